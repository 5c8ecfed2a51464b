"""Deleting trusted people's values: the key first, in the release's own transaction; then the rows, in the background.

From the commit of `shred` on nobody can read the values any more. What remains is to tidy up, and nobody waits for it:
a thread removes the rows in short steps between the uploads' commits, and sees to it that the sealed key itself is in
no file any more. SQLite keeps old pages in its log while somebody reads them, and copies of rows in its pages' free
space; PostgreSQL old rows in the table's file: the thread tries again until they are gone (of PostgreSQL's reports:
until they are free to be overwritten), and only then is a study's deletion called done. A process that dies in the
middle leaves the rest to the next one.
"""

from __future__ import annotations

import logging
import sqlite3
import threading
from functools import partial

from sqlalchemy import Connection, Engine, and_, select
from sqlalchemy.exc import SQLAlchemyError

from hybridp.errors import HybridpError
from hybridp.service.schema import TICKET, TRUSTED, batches, invitations, progress, reports, study_keys
from hybridp.service.store import reading
from hybridp.service.writer import Writer

__all__ = ["Sweeper", "end", "shred", "sweep"]

STEP = 2000
"""Rows looked at in one step: some milliseconds, for which the uploads' next commit waits at most."""

_LONGEST = 5.0  # seconds between two attempts
_LOOK = 60.0  # seconds after which the database is asked what other processes have left
_log = logging.getLogger("hybridp.service")


def shred(db: Connection, study: int, renewed: bytes | None = None) -> None:
    """Delete the study's key: from this commit on its rows can neither be read nor compared with anything.

    A study that takes further reports gets a new one (`renewed`, sealed), which knows nothing of the old rows.
    """
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
    """Remove trusted people's values (of a deleted study: all) among the next `rows` rows; where to go on, or None.

    Rows lie in the order of their names, so that each is looked at once, wherever one stops and goes on.
    """
    here = and_(reports.c.study == study, reports.c.id > after)
    last = db.execute(select(reports.c.id).where(here).order_by(reports.c.id).offset(rows - 1).limit(1)).scalar()
    stretch = here if last is None else and_(here, reports.c.id <= last)
    whole = db.execute(select(progress.c.state).where(progress.c.study == study)).scalar_one() == "deleted"
    db.execute(reports.delete().where(stretch if whole else and_(stretch, reports.c.grp.in_((TRUSTED, TICKET)))))
    return None if last is None else bytes(last)


def _done(db: Connection, study: int) -> None:
    here = (progress.c.study == study, progress.c.raw == "deleting")
    db.execute(progress.update().where(*here).values(raw="deleted"))


class Sweeper:
    """The thread. `add` returns at once; `wait` is for commands that end when everything is done."""

    def __init__(self, engine: Engine, writer: Writer) -> None:
        self._engine, self._writer = engine, writer
        self._left: dict[int, bool] = {}  # study: whether its rows are gone
        self._since: int | None = None
        self._change = threading.Condition()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="hybridp-sweeper", daemon=True)
        self._look()
        self._thread.start()

    def add(self, study: int) -> None:
        with self._change:
            self._left[study] = False
            self._since = None
            self._change.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        """Whether everything is done, after at most so many seconds."""
        with self._change:
            return self._change.wait_for(lambda: not self._left or self._closed, timeout) and not self._left

    def close(self) -> None:
        """Stop after the step that is under way."""
        with self._change:
            self._closed = True
            self._change.notify_all()
        self._thread.join(timeout=30)

    # --- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        pause = 0.05
        while not self._closed:
            with self._change:
                if not self._left:
                    self._change.wait(_LOOK)
                studies = dict(self._left)
            try:
                if not studies:
                    self._look()
                elif self._tidied(studies):
                    pause = 0.05
                    continue
            except (SQLAlchemyError, sqlite3.Error, HybridpError) as error:  # the store is away, or closing: try again
                if pause == _LONGEST:
                    _log.warning("values whose key is deleted cannot be removed yet: %s", type(error).__name__)
            if studies:
                with self._change:
                    self._change.wait_for(lambda: self._closed, pause)
                pause = min(2 * pause, _LONGEST)

    def _look(self) -> None:
        """What was left by a process that died, or that had no time."""
        with reading(self._engine) as db:
            left = db.execute(select(progress.c.study).where(progress.c.raw == "deleting")).scalars().all()
        for number in left:
            self.add(int(number))

    def _tidied(self, studies: dict[int, bool]) -> bool:
        for study, empty in studies.items():
            if not empty:
                if not self._swept(study):
                    return False
                with self._change:
                    self._left[study] = True
        if not self._purged():
            return False
        for study in studies:
            self._writer.change(partial(_done, study=study))
        with self._change:
            # One that was added again meanwhile, for another key, stays.
            self._left = {study: empty for study, empty in self._left.items() if study not in studies or not empty}
            self._change.notify_all()
        return True

    def _swept(self, study: int) -> bool:
        after: bytes | None = b""
        while after is not None:
            if self._closed:
                return False
            after = self._writer.change(partial(sweep, study=study, after=after))
        return True

    def _purged(self) -> bool:
        """Whether nothing of what was deleted is left in SQLite's files; of a key: in the table's file (PostgreSQL)."""
        if self._engine.dialect.name == "sqlite":
            if self._since is None:
                self._since = 0  # before: what is added meanwhile asks for it again
                try:
                    self._writer.rewrite()
                except BaseException:
                    self._since = None
                    raise
            return self._writer.emptied_log()
        with self._engine.connect().execution_options(isolation_level="AUTOCOMMIT") as db:
            if self._since is None:
                self._since = int(db.exec_driver_sql("SELECT txid_current()").scalar_one())
            # Rows that an old snapshot may still see are carried over into the new file: wait until there is none.
            if db.exec_driver_sql(_OLD_SNAPSHOTS, (self._since % 2**32,)).scalar_one():
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
