"""The one writer of a process: it commits together whatever queued up while the previous commit was on its way.

An upload is answered only when its transaction is durable. One commit serves everybody who is waiting, so that the disk
is asked once for a group instead of once for each report; nobody waits for a timer. Other changes (a release, a closed
study) go through the same thread in transactions of their own, so that SQLite's lock is never fought over within a
process. Between processes the database's own locks decide.

Nearly every group of uploads is plain: one open study, no invitations, no report that came before. On PostgreSQL such a
group is written without looking first, by one prepared statement in a transaction of its own: one journey, one flush of
the log. The database itself says when it was not plain (a closed study, another phase, an id that is there), and then
the whole of it is taken the careful way, by `store.take`. Nothing is durable in between.
"""

from __future__ import annotations

import asyncio
import contextlib
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from hybridp.service.problems import Refused
from hybridp.service.reports import Failure
from hybridp.service.store import Batch, take, take_plain, writing

__all__ = ["Commits", "Writer"]


T = TypeVar("T")
Watch = Callable[[int, float], None]
Waiter = tuple[Batch, asyncio.Future[list[Failure]]]

_TOGETHER = 4000  # reports of one commit
_LOG = 4000  # reports in SQLite's log from which on it is moved into the database


@dataclass(frozen=True, slots=True)
class _Change:
    """Something else to do between two commits."""

    run: Callable[[], Any]
    result: Future[Any]


@dataclass(frozen=True, slots=True)
class _Uploads:
    """What came in during one turn of an event loop."""

    loop: asyncio.AbstractEventLoop
    waiters: list[Waiter]


class Writer:
    """A thread and its queue. `waiting` counts the reports that are not yet durable."""

    def __init__(self, engine: Engine, *, most_waiting: int = 50_000, watch: Watch | None = None) -> None:
        self._engine = engine
        self._queue: queue.SimpleQueue[_Uploads | _Change | None] = queue.SimpleQueue()
        self._most = most_waiting
        self._watch = watch
        self._closed = False
        self._commits = Commits(engine)  # the thread's own
        self._gathering: dict[asyncio.AbstractEventLoop, list[Waiter]] = {}
        self._logged = 0
        self.waiting = 0
        self._thread = threading.Thread(target=self._run, name="hybridp-writer", daemon=True)
        self._thread.start()
        self._tidy: threading.Thread | None = None
        self._stop = threading.Event()
        if engine.dialect.name == "sqlite" and engine.url.database not in (None, "", ":memory:"):
            self._tidy = threading.Thread(target=self._checkpoint, name="hybridp-checkpoint", daemon=True)
            self._tidy.start()

    async def store(self, batch: Batch) -> list[Failure]:
        """The batch's failures, once everything else of it is durable."""
        size = len(batch.reports)
        if self._closed or self.waiting + size > self._most:
            raise Refused("overloaded", "Too many reports are waiting to be stored: come back later.", retry_after=2)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[list[Failure]] = loop.create_future()
        self.waiting += size
        gathered = self._gathering.get(loop)
        if gathered is None:
            # Handed over when this turn of the loop is through: who came in the same turn shares the commit.
            gathered = self._gathering[loop] = []
            loop.call_soon(self._hand_over, loop)
        gathered.append((batch, result))
        try:
            return await result
        finally:
            self.waiting -= size

    def _hand_over(self, loop: asyncio.AbstractEventLoop) -> None:
        self._queue.put(_Uploads(loop, self._gathering.pop(loop)))

    def change(self, run: Callable[[Connection], T]) -> T:
        """Run a function in a transaction of its own and wait until it is durable. Not from the event loop."""

        def transaction() -> T:
            with writing(self._engine) as db:
                return run(db)

        return self._between(transaction)

    def emptied_log(self) -> bool:
        """Whether all of SQLite's log could be moved into the database and cut off, so that nothing deleted is in it.
        Not while somebody reads an older state."""
        if self._tidy is None:
            return True
        _move_log(self._engine)  # most of it, beside the commits
        return self._between(self._cut_log)

    def rewrite(self) -> None:
        """Write SQLite's file anew, between two commits: a page that was split keeps copies of its rows in its free
        space, which `secure_delete` does not overwrite. About a second for a million reports."""
        if self._tidy is not None:
            self._between(self._vacuum)

    def _between(self, run: Callable[[], T]) -> T:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a change must not ask for another one")
        if self._closed:
            raise Refused("unavailable", "The service is closing.", retry_after=5)
        result: Future[T] = Future()
        self._queue.put(_Change(run, result))
        return result.result()

    def _cut_log(self) -> bool:
        with self._engine.connect() as db:
            raw: Any = db.connection.dbapi_connection
            raw.execute("PRAGMA busy_timeout = 20")  # the commits wait for it too
            try:
                busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            finally:
                raw.execute("PRAGMA busy_timeout = 30000")
            return not busy

    def _vacuum(self) -> None:
        with self._engine.connect() as db:
            raw: Any = db.connection.dbapi_connection
            raw.execute("VACUUM")

    def close(self) -> None:
        """Finish what is queued and stop."""
        if not self._closed:
            self._stop.set()
            if self._tidy is not None:
                self._tidy.join(timeout=30)
            self._closed = True
            self._queue.put(None)
            self._thread.join(timeout=30)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            stop = item is None
            size = 0
            uploads: list[_Uploads] = []
            change: _Change | None = None
            while item is not None:
                if isinstance(item, _Change):
                    change = item
                    break
                uploads.append(item)
                size += sum([len(batch.reports) for batch, _ in item.waiters])
                if size >= _TOGETHER:
                    break
                try:
                    item = self._queue.get_nowait()
                except queue.Empty:
                    break
                stop = stop or item is None
            if uploads:
                self._commit(uploads, size)
            if change is not None:
                self._change(change)
            if stop:
                self._commits.drop()
                return

    def _commit(self, uploads: Sequence[_Uploads], size: int) -> None:
        began = time.perf_counter()
        outcome: list[list[Failure]] | Refused
        try:
            outcome = self._commits.commit([batch for some in uploads for batch, _ in some.waiters])
        except Exception:
            # What was not acknowledged may be sent again: ids make that harmless.
            self._commits.drop()
            outcome = Refused("unavailable", "The store did not answer: send the reports again.", retry_after=2)
        self._logged += size
        if self._watch is not None:
            self._watch(size, time.perf_counter() - began)
        first = 0
        for some in uploads:
            last = first + len(some.waiters)
            mine = outcome if isinstance(outcome, Refused) else outcome[first:last]
            first = last
            with contextlib.suppress(RuntimeError):  # the loop was closed: its requests went with it
                some.loop.call_soon_threadsafe(_answer, some.waiters, mine)

    def _checkpoint(self) -> None:
        """Move SQLite's log into the database beside the commits, so that no upload waits for all of it.

        While commits go on there is always a rest of the log that is newer; once most of it is moved, the writer moves
        that little rest between two commits, and the log starts again from its beginning.
        """
        while not self._stop.wait(0.25):
            if self._logged < _LOG:
                continue
            self._logged = 0
            try:
                _move_log(self._engine)
                self._queue.put(_Change(lambda: _move_log(self._engine), Future()))
            except (SQLAlchemyError, sqlite3.Error):
                continue  # the database's own limit moves the log if this does not

    def _change(self, change: _Change) -> None:
        try:
            found = change.run()
        except BaseException as error:
            change.result.set_exception(error)
        else:
            change.result.set_result(found)


def _move_log(engine: Engine) -> None:
    with engine.connect() as db:
        raw: Any = db.connection.dbapi_connection
        raw.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _answer(waiters: Sequence[Waiter], outcome: list[list[Failure]] | Refused) -> None:
    for i, (_, result) in enumerate(waiters):
        if result.done():  # the request went away; its reports are stored all the same
            continue
        if isinstance(outcome, Refused):
            result.set_exception(outcome)
        else:
            result.set_result(outcome[i])


# --- one group of uploads ---------------------------------------------------------------------------------------------


class Commits:
    """The writer's own connection. Used by one thread; made again after anything that went wrong."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._postgres = engine.dialect.name == "postgresql"
        self._held: Any = None
        dbapi: Any = engine.dialect.dbapi
        self._errors: Any = dbapi.Error
        self._twice: Any = dbapi.IntegrityError

    def commit(self, batches: Sequence[Batch]) -> list[list[Failure]]:
        """Store what can be stored, durably; the failures of each batch. Tried again where another process stored the
        same id at the same moment."""
        for attempt in range(3):
            try:
                raw = self._connection()
                if attempt == 0 and self._postgres and self._plain(raw, batches):
                    return [[] for _ in batches]
                with _transaction(raw, self._postgres):
                    return take(raw, batches, self._postgres)
            except self._errors as error:
                self.drop()
                if attempt == 2 or not isinstance(error, self._twice):
                    raise
        raise AssertionError("unreachable")

    def _plain(self, raw: Any, batches: Sequence[Batch]) -> bool:
        try:
            return take_plain(raw, batches)
        except self._twice:
            return False

    def drop(self) -> None:
        """Let the connection go."""
        held, self._held = self._held, None
        if held is not None:
            with contextlib.suppress(self._errors):
                # A connection that commits by itself must not go back among the others.
                held.invalidate() if self._postgres else held.close()

    def _connection(self) -> Any:
        if self._held is None:
            self._held = self._engine.raw_connection()
            if self._postgres:
                self._held.dbapi_connection.autocommit = True
        return self._held.dbapi_connection


@contextlib.contextmanager
def _transaction(raw: Any, postgres: bool) -> Any:
    raw.execute("BEGIN" if postgres else "BEGIN IMMEDIATE")
    try:
        yield
        raw.execute("COMMIT")
    except BaseException:
        with contextlib.suppress(Exception):
            raw.execute("ROLLBACK")
        raise
