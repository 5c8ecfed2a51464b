"""The one writer of a process: it commits together whatever queued up while the previous commit was on its way.

An upload is answered only when its transaction is durable; one commit serves everybody who is waiting. Other changes (a
release, a closed study) go through the same thread in transactions of their own, so that SQLite's lock is never fought
over within a process; between processes the database's own locks decide. On PostgreSQL a plain group (one open study,
no invitations, nothing that came before) is written without looking first, by one statement; where the database says
that it was not plain, all of it is taken the careful way, by `store.take`. Nothing is durable in between.

Deleting trusted people's values: the key first, in the release's own transaction: from the commit of `shred` on nobody
can read them. A thread then removes the rows in short steps between the uploads' commits, until the sealed key is in no
file any more: SQLite keeps old pages in its log and copies of rows in free space, PostgreSQL old rows in the table's
file (its reports: until they are free to be overwritten). A process that dies leaves the rest to the next one.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import queue
import sqlite3
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, and_, select
from sqlalchemy.exc import SQLAlchemyError

from hybridp.errors import HybridpError
from hybridp.service.problems import Refused
from hybridp.service.reports import Failure
from hybridp.service.schema import TICKET, TRUSTED, batches, invitations, progress, reports, study_keys
from hybridp.service.store import Batch, reading, take, take_plain, writing

__all__ = ["Commits", "Sweeper", "Writer", "end", "shred", "sweep"]

T = TypeVar("T")
Waiter = tuple[Batch, asyncio.Future[list[Failure]]]

_TOGETHER = 4000  # reports of one commit
_LOG = 4000  # reports in SQLite's log from which on it is moved into the database


class Writer:
    """A thread and what it is asked to do, in turn. `waiting` counts the reports that are not yet durable."""

    def __init__(self, engine: Engine, *, most_waiting: int, watch: Callable[[int, float], None]) -> None:
        self._engine = engine
        self._queue: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._most = most_waiting
        self._watch = watch
        self._closed = False
        self._commits = Commits(engine)  # the thread's own
        self._uploads: deque[Waiter] = deque()
        self._logged = 0
        self.waiting = 0
        self.in_file = engine.dialect.name == "sqlite" and engine.url.database not in (None, "", ":memory:")
        self._thread = threading.Thread(target=self._run, name="hybridp-writer", daemon=True)
        self._thread.start()

    async def store(self, batch: Batch) -> list[Failure]:
        size = len(batch.reports)
        if self._closed or self.waiting + size > self._most:
            raise Refused("overloaded", "Too many reports are waiting to be stored: come back later.", retry_after=2)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[list[Failure]] = loop.create_future()
        self.waiting += size
        self._uploads.append((batch, result))
        # Asked for when this turn of the loop is through: who came in the same turn shares the commit.
        loop.call_soon(self._queue.put, self._commit)
        try:
            return await result
        finally:
            self.waiting -= size

    def change(self, run: Callable[[Connection], T]) -> T:
        """Run a function in a transaction of its own and wait until it is durable. Not from the event loop."""

        def transaction() -> T:
            with writing(self._engine) as db:
                return run(db)

        return self._between(transaction)

    def alone(self, statement: str, patience: int = 30_000) -> Any:
        """The row of a statement of SQLite that runs between two commits, which wait for it."""
        return self._between(lambda: _sqlite(self._engine, statement, patience))

    def _between(self, run: Callable[[], T]) -> T:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a change must not ask for another one")
        if self._closed:
            raise Refused("unavailable", "The service is closing.", retry_after=5)
        result: Future[T] = Future()

        def change() -> None:
            try:
                result.set_result(run())
            except BaseException as error:
                result.set_exception(error)

        self._queue.put(change)
        return result.result()

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._queue.put(None)
            self._thread.join(timeout=30)

    def _run(self) -> None:
        while (job := self._queue.get()) is not None:
            job()
        self._commits.drop()

    def _commit(self) -> None:
        """Commit what has come in so far; it may have gone with an earlier turn's already."""
        waiters, size = list[Waiter](), 0
        while self._uploads and size < _TOGETHER:
            waiters.append(self._uploads.popleft())
            size += len(waiters[-1][0].reports)
        if not waiters:
            return
        began = time.perf_counter()
        outcomes: Sequence[list[Failure] | Refused]
        try:
            outcomes = self._commits.commit([batch for batch, _ in waiters])
        except Exception:
            # What was not acknowledged may be sent again: ids make that harmless.
            self._commits.drop()
            refused = Refused("unavailable", "The store did not answer: send the reports again.", retry_after=2)
            outcomes = [refused] * len(waiters)
        self._logged += size
        if self.in_file and self._logged >= _LOG:
            self._logged = 0
            threading.Thread(target=self._checkpoint, name="hybridp-checkpoint", daemon=True).start()
        self._watch(size, time.perf_counter() - began)
        answers = [(result, outcome) for (_, result), outcome in zip(waiters, outcomes, strict=True)]
        for loop, own in groupby(answers, key=lambda one: one[0].get_loop()):
            with contextlib.suppress(RuntimeError):  # the loop was closed: its requests went with it
                loop.call_soon_threadsafe(_answer, list(own))

    def _checkpoint(self) -> None:
        """Move SQLite's log into the database beside the commits, and then the little rest between two of them, so that
        the log starts again from its beginning."""
        with contextlib.suppress(SQLAlchemyError, sqlite3.Error, Refused):  # the database's own limit moves it then
            _sqlite(self._engine, _MOVE_LOG)
            self.alone(_MOVE_LOG)


_MOVE_LOG = "PRAGMA wal_checkpoint(PASSIVE)"


def _sqlite(engine: Engine, statement: str, patience: int = 30_000) -> Any:
    """The row of a statement outside of any transaction, which waits so many milliseconds for a lock."""
    with engine.connect() as db:
        raw: Any = db.connection.dbapi_connection
        raw.execute(f"PRAGMA busy_timeout = {patience}")
        try:
            return raw.execute(statement).fetchone()
        finally:
            raw.execute("PRAGMA busy_timeout = 30000")


def _answer(answers: Sequence[tuple[asyncio.Future[list[Failure]], list[Failure] | Refused]]) -> None:
    for result, outcome in answers:
        if result.done():  # the request went away; its reports are stored all the same
            continue
        result.set_exception(outcome) if isinstance(outcome, Refused) else result.set_result(outcome)


class Commits:
    """The writer's own connection. Used by one thread; made again after anything that went wrong."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._postgres = engine.dialect.name == "postgresql"
        self._held: Connection | None = None
        dbapi: Any = engine.dialect.dbapi
        self._errors: Any = dbapi.Error
        self._twice: Any = dbapi.IntegrityError

    def commit(self, batches: Sequence[Batch]) -> list[list[Failure]]:
        """Store what can be stored, durably; the failures of each batch. Tried again where another process stored the
        same id at the same moment."""
        for attempt in range(3):
            try:
                db = self._connection()
                raw: Any = db.connection.dbapi_connection
                if attempt == 0 and self._postgres:
                    with contextlib.suppress(self._twice):
                        if take_plain(raw, batches):
                            return [[] for _ in batches]
                with raw.transaction() if self._postgres else db.begin():
                    return take(raw, batches, self._postgres)
            except self._errors as error:
                self.drop()
                if attempt == 2 or not isinstance(error, self._twice):
                    raise
        raise AssertionError("unreachable")

    def drop(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            with contextlib.suppress(self._errors, SQLAlchemyError):
                if self._postgres:  # it may be broken, and need not be looked at
                    held.invalidate()
                held.close()

    def _connection(self) -> Connection:
        if self._held is None:
            how: dict[str, Any] = {"isolation_level": "AUTOCOMMIT"} if self._postgres else {"immediate": True}
            self._held = self._engine.connect().execution_options(**how)
        return self._held


# --- deleting ---------------------------------------------------------------------------------------------------------

STEP = 2000
"""Rows looked at in one step: some milliseconds, for which the uploads' next commit waits at most."""

_SHORTEST, _LONGEST = 0.05, 5.0  # seconds between two attempts
_LOOK = 60.0  # seconds after which the database is asked what other processes have left
_log = logging.getLogger("hybridp.service")


def shred(db: Connection, study: int, renewed: bytes | None = None) -> None:
    """Delete the study's key: from this commit on its rows can neither be read nor compared with anything. A study that
    takes further reports gets a new one (`renewed`, sealed)."""
    db.execute(study_keys.delete().where(study_keys.c.study == study))
    if renewed is not None:
        db.execute(study_keys.insert().values(study=study, sealed=renewed))
    db.execute(progress.update().where(progress.c.study == study).values(raw="deleting"))


def end(db: Connection, study: int, *, whole: bool) -> None:
    """No more reports, and nobody can read trusted people's values. Of a `whole` study invitations go at once, and
    `sweep` takes local reports too; its plan, ledger and releases stay: what was spent is not forgotten."""
    here = progress.c.study == study
    if whole:
        db.execute(progress.update().where(here).values(state="deleted"))
        db.execute(invitations.delete().where(invitations.c.study == study))
        db.execute(batches.delete().where(batches.c.study == study))
    else:
        db.execute(progress.update().where(here, progress.c.state == "open").values(state="closed"))
    shred(db, study)


def sweep(db: Connection, study: int, after: bytes = b"", rows: int = STEP) -> bytes | None:
    """Remove trusted people's values (of a deleted study: all) among the next `rows` rows, in the order of their names;
    where to go on, or None."""
    here = and_(reports.c.study == study, reports.c.id > after)
    last = db.execute(select(reports.c.id).where(here).order_by(reports.c.id).offset(rows - 1).limit(1)).scalar()
    stretch = here if last is None else and_(here, reports.c.id <= last)
    whole = db.execute(select(progress.c.state).where(progress.c.study == study)).scalar_one() == "deleted"
    db.execute(reports.delete().where(stretch if whole else and_(stretch, reports.c.grp.in_((TRUSTED, TICKET)))))
    return None if last is None else bytes(last)


class Sweeper:
    """The thread. `add` returns at once; `wait` is for commands that end when everything is done."""

    def __init__(self, engine: Engine, writer: Writer) -> None:
        self._engine, self._writer = engine, writer
        self._left: set[int] = set()
        self._added: set[int] = set()  # since the turn began that is under way
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="hybridp-sweeper", daemon=True)
        self._look()
        self._thread.start()

    def add(self, study: int) -> None:
        with self._change:
            self._left.add(study)
            self._added.add(study)
            self._change.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        with self._change:
            return self._change.wait_for(lambda: not self._left or self._closed, timeout) and not self._left

    def close(self) -> None:
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join(timeout=30)

    def _run(self) -> None:
        pause = _SHORTEST
        while not self._closed:
            with self._change:
                self._change.wait_for(lambda: self._closed or self._left, _LOOK)
                studies, self._added = set(self._left), set()
            try:
                self._tidy(studies) if studies else self._look()
                pause = _SHORTEST
            except (SQLAlchemyError, sqlite3.Error, HybridpError) as error:  # the store is away, or closing: try again
                if pause == _LONGEST:
                    _log.warning("values whose key is deleted cannot be removed yet: %s", type(error).__name__)
                pause = self._rest(pause)

    def _rest(self, pause: float) -> float:
        """Wait so long, unless there is something new; how long to wait the next time."""
        with self._change:
            self._change.wait_for(lambda: self._closed or self._added, pause)
        return min(2 * pause, _LONGEST)

    def _look(self) -> None:
        with reading(self._engine) as db:
            left = db.execute(select(progress.c.study).where(progress.c.raw == "deleting")).scalars().all()
        for number in left:
            self.add(int(number))

    def _tidy(self, studies: set[int]) -> None:
        """Remove the rows of these studies, then what is left of them in files; begun anew where one is added."""
        for study in studies:
            after: bytes | None = b""
            while after is not None:
                if self._closed:
                    return
                after = self._writer.change(partial(sweep, study=study, after=after))
        since, pause = self._rewritten(), _SHORTEST
        while not self._purged(since):
            pause = self._rest(pause)
            if self._closed or self._added:
                return
        here = (progress.c.study.in_(studies), progress.c.raw == "deleting")
        self._writer.change(lambda db: db.execute(progress.update().where(*here).values(raw="deleted")) and None)
        with self._change:
            self._left -= studies - self._added  # one that was added again meanwhile, for another key, stays
            self._change.notify_all()

    def _rewritten(self) -> int:
        """SQLite's file is written anew: a page that was split keeps copies of its rows in its free space, which
        `secure_delete` does not overwrite. Of PostgreSQL, the transaction that no snapshot may be older than."""
        if self._writer.in_file:
            self._writer.alone("VACUUM")  # about a second for a million reports
        if self._engine.dialect.name == "sqlite":
            return 0
        with reading(self._engine) as db:
            return int(db.exec_driver_sql("SELECT txid_current()").scalar_one())

    def _purged(self, since: int) -> bool:
        """Whether nothing of what was deleted is left in SQLite's log, which nobody may read at the moment; of a key:
        in the table's file (PostgreSQL)."""
        if self._writer.in_file:
            _sqlite(self._engine, _MOVE_LOG)  # most of it, beside the commits
            return not self._writer.alone("PRAGMA wal_checkpoint(TRUNCATE)", patience=20)[0]
        if self._engine.dialect.name == "sqlite":
            return True
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            # Rows that an old snapshot may still see are carried over into the new file: wait until there is none.
            if db.exec_driver_sql(_OLD_SNAPSHOTS, (since % 2**32,)).scalar_one():
                return False
            db.exec_driver_sql("SET lock_timeout = '200ms'")  # who waits for a lock makes others wait
            try:
                db.exec_driver_sql("VACUUM FULL study_keys")
            finally:
                db.exec_driver_sql("SET lock_timeout = DEFAULT")
            db.exec_driver_sql("VACUUM reports")  # takes no lock that an upload waits for, and leaves bytes: see docs
        return True


_OLD_SNAPSHOTS = """
SELECT count(*) FROM pg_stat_activity
WHERE datname = current_database() AND pid <> pg_backend_pid() AND age(backend_xmin) >= age(%s::text::xid)
"""
