"""Writing reports and reading them back. Every function runs inside the caller's transaction.

`take` stores a whole group of uploads in a handful of statements for many rows each; `take_plain` is PostgreSQL's
shorter way for a group in which nothing is unusual. Reading for a release is a stream.

The writer, one of each process, commits together whatever queued up while the previous commit was on its way.

An upload is answered only when its transaction is durable; one commit serves everybody who is waiting. Other changes (a
release, a closed study) go through the same thread in transactions of their own, so that SQLite's lock is never fought
over within a process; between processes the database's own locks decide. On PostgreSQL a plain group (one open study,
no invitations, nothing that came before) is written without looking first, by one statement; where the database says
that it was not plain, all of it is taken the careful way, by `take`. Nothing is durable in between.

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
import secrets
import sqlite3
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from functools import lru_cache, partial
from itertools import groupby
from typing import Any, NamedTuple, TypeVar

from sqlalchemy import Connection, Engine, and_, func, select
from sqlalchemy.exc import SQLAlchemyError

from hybridp.errors import HybridpError
from hybridp.public.mixing import Batch as Mixed
from hybridp.service import schema
from hybridp.service.formats import Failed, Packed, failed
from hybridp.service.problems import Refused
from hybridp.service.schema import GROUPS, TICKET, batches, invitations, participation, progress, reports, study_keys
from hybridp.service.settings import hashed

__all__ = ["Batch", "Commits", "Sweeper", "Writer", "arrivals", "counts", "counts_by", "driver", "end"]
__all__ += ["known_tokens", "make_tokens", "participation_by", "reading", "shred", "snapshot", "stored_rows", "stream"]
__all__ += ["sweep", "take", "take_mixed", "take_plain", "writing"]

_ROWS = 5000  # rows a statement: six values each stay below SQLite's 32,766
BIN = 60  # seconds: the finest grain at which participation is counted


@contextlib.contextmanager
def reading(engine: Engine, **options: Any) -> Iterator[Connection]:
    with engine.connect().execution_options(**options) as db, db.begin():
        yield db


def writing(engine: Engine) -> contextlib.AbstractContextManager[Connection]:
    """A transaction that takes SQLite's write lock at its beginning, so that it never has to give up half-way."""
    return reading(engine, immediate=True)


def snapshot(engine: Engine) -> contextlib.AbstractContextManager[Connection]:
    """A transaction that sees one state of the database throughout."""
    postgres = engine.dialect.name == "postgresql"
    return reading(engine, **({"isolation_level": "REPEATABLE READ"} if postgres else {}))


def driver(db: Connection) -> tuple[Any, bool]:
    return db.connection.dbapi_connection, db.dialect.name == "postgresql"


# --- uploads ----------------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Checked reports of one request. `late` ones came after the closing time: those that are there are fine, new ones
    are refused."""

    study: int
    phase: int
    precision: int
    reports: Sequence[Packed]
    late: bool = False


def take(raw: Any, batches: Sequence[Batch], postgres: bool) -> list[list[Failed]]:
    """Store what can be stored, in the transaction that is open on this driver's connection; failures of each batch.

    A report that came before is fine, whatever it says now: the first one counts, and nobody learns from the answer
    what that was. Who has no invitation of the study does not even learn that. Guarantees, whatever else runs: one row
    for each id, one report for each token, none once the study is closed or in another phase, and counters that agree
    with the rows.
    """
    failures: list[list[Failed]] = [[] for _ in batches]
    work = sorted(zip(batches, failures, strict=True), key=lambda one: one[0].study)
    # Always in this order, so that two writers cannot wait for each other.
    for study, own in groupby(work, key=lambda one: one[0].study):
        _take_study(raw, study, list(own), postgres)
    return failures


def _take_study(raw: Any, study: int, work: list[tuple[Batch, list[Failed]]], postgres: bool) -> None:
    sent = [report for batch, _ in work for report in batch.reports]
    state, phase, there = _known(raw, postgres, study, [report.row for report in sent])
    asked = [report.token for report in sent if report.token is not None]
    tokens = known_tokens(raw, postgres, study, asked) if asked else {}
    fresh: list[Packed] = []
    for batch, refused in work:
        for report in batch.reports:
            token = report.token
            if token is not None and token not in tokens:
                refused.append(failed(report.sent, "token-unknown", "The study knows no such invitation."))
            elif report.row in there:
                continue
            elif batch.late or state != "open":
                refused.append(failed(report.sent, "closed", "The study takes no more reports."))
            elif phase != batch.phase:
                why = "The study has moved on to its next phase: read the task again."
                refused.append(failed(report.sent, "wrong-phase", why))
            elif token is not None and tokens[token]:
                why = "This invitation was used: each is for one contribution."
                refused.append(failed(report.sent, "token-used", why))
            else:
                if token is not None:
                    tokens[token] = True
                there.add(report.row)
                fresh.append(report)
    used = [r.token for r in fresh if r.token is not None]
    if used and postgres:
        raw.execute("UPDATE invitations SET used = true WHERE study = %s AND token = ANY(%s)", (study, used))
    elif used:
        sql = "UPDATE invitations SET used = 1 WHERE study = ? AND token = ?"
        raw.executemany(sql, [(study, token) for token in used])
    if fresh:
        _insert(raw, study, fresh, len(used), work[0][0].precision, postgres)


def take_plain(raw: Any, batches: Sequence[Batch]) -> bool:
    """Whether a group was plain, and is stored on PostgreSQL, in one statement: one open study, no invitations. An id
    that is there, or that comes twice, breaks the unique key and undoes all of it."""
    head = batches[0]
    if any(batch.late or (batch.study, batch.phase) != (head.study, head.phase) for batch in batches):
        return False
    rows = [report for batch in batches for report in batch.reports]
    if any(report.token is not None for report in rows):
        return False
    return _insert(raw, head.study, rows, 0, head.precision, True, head.phase)


@lru_cache(maxsize=4096)
def _marks(n: int, row: str = "?") -> str:
    return ", ".join([row] * n)


def _known(raw: Any, postgres: bool, study: int, rows: list[bytes]) -> tuple[str, int, set[bytes]]:
    """The study's state and phase, locked; and which of these rows are already there."""
    sql = "SELECT state, phase FROM progress WHERE study = " + ("%s FOR UPDATE" if postgres else "?")
    state, phase = raw.execute(sql, (study,)).fetchone()
    return state, phase, stored_rows(raw, postgres, study, rows)


def _looked_up(raw: Any, postgres: bool, study: int, table: str, columns: str, given: list[bytes]) -> list[Any]:
    """Of these keys (the first column) those that a study has in a table, each looked up by itself, where a planner
    without statistics would rather read the whole study: SQLite keeps the order of a CROSS JOIN, PostgreSQL never
    flattens a lateral LIMIT."""
    key = columns.split(", ")[0]
    if postgres:
        own = f"SELECT {columns} FROM {table} WHERE study = %s AND {key} = given.name LIMIT 1"
        sql = f"SELECT there.* FROM unnest(%s::bytea[]) AS given (name) CROSS JOIN LATERAL ({own}) AS there"
        return list(raw.execute(sql, (given, study)).fetchall())
    result = []
    for start in range(0, len(given), 30_000):
        some = given[start : start + 30_000]
        sql = f"WITH given (name) AS (VALUES {_marks(len(some), '(?)')}) SELECT {columns} "
        sql += f"FROM given CROSS JOIN {table} ON study = ? AND {key} = given.name"
        result += raw.execute(sql, (*some, study)).fetchall()
    return result


def stored_rows(raw: Any, postgres: bool, study: int, rows: list[bytes]) -> set[bytes]:
    return {bytes(row) for (row,) in _looked_up(raw, postgres, study, "reports", "id", rows)}


def known_tokens(raw: Any, postgres: bool, study: int, asked: list[bytes]) -> dict[bytes, bool]:
    there = _looked_up(raw, postgres, study, "invitations", "token, used", asked)
    return {bytes(token): bool(used) for token, used in there}


def _insert(
    raw: Any, study: int, fresh: list[Packed], used: int, precision: int, postgres: bool, phase: int | None = None
) -> bool:
    """Rows, in the order of their names (within a commit nothing tells who came first), and counters; of a `phase`, on
    PostgreSQL, only while the study is open and in it: whether that was so."""
    fresh.sort()
    width = max(precision, BIN)
    bins = Counter([(one[1] // width * width, one[2]) for one in fresh])
    if not postgres:
        _insert_sqlite(raw, study, fresh, used, bins)
        return True
    names = ("ids", "ats", "groups", "epsilons", "bodies")
    values: dict[str, Any] = {name: list(column) for name, column in zip(names, zip(*fresh, strict=True), strict=False)}
    starts, grps = zip(*bins, strict=True)
    values |= {"starts": list(starts), "grps": list(grps), "people": list(bins.values())}
    values |= {"study": study, "phase": phase, "many": len(fresh), "used": used}
    return bool(raw.execute(_STORE, values, prepare=True).rowcount)


# Whoever is closing the study, or opening its next phase, holds the row of `progress`; this one waits for it, and sees
# what it did.
_STORE = """
WITH here AS MATERIALIZED (
    SELECT study FROM progress WHERE study = %(study)b
    AND (%(phase)b::smallint IS NULL OR (state = 'open' AND phase = %(phase)b::smallint)) FOR UPDATE
), stored AS (
    INSERT INTO reports (study, id, at, grp, epsilon, body)
    SELECT here.study, given.* FROM here, unnest(
        %(ids)b::bytea[], %(ats)b::bigint[], %(groups)b::smallint[], %(epsilons)b::float8[], %(bodies)b::bytea[]
    ) AS given
), counted AS (
    INSERT INTO participation (study, start, grp, people)
    SELECT here.study, given.* FROM here, unnest(
        %(starts)b::bigint[], %(grps)b::smallint[], %(people)b::bigint[]
    ) AS given
    ON CONFLICT (study, start, grp) DO UPDATE SET people = participation.people + excluded.people
)
UPDATE progress SET taken = progress.taken + %(many)b, tokens_used = progress.tokens_used + %(used)b
FROM here WHERE progress.study = here.study
"""


def _insert_sqlite(raw: Any, study: int, fresh: list[Packed], used: int, bins: Counter[tuple[int, int]]) -> None:
    """By one statement for many rows: the interpreter's lock is given up, and taken again, once."""
    for start in range(0, len(fresh), _ROWS):
        some = fresh[start : start + _ROWS]
        rows = _marks(len(some), "(?, ?, ?, ?, ?, ?)")
        sql = f"INSERT INTO reports (study, id, at, grp, epsilon, body) VALUES {rows}"
        raw.execute(sql, [x for r in some for x in (study, r[0], r[1], r[2], r[3], r[4])])
    raw.execute(
        "UPDATE progress SET taken = taken + ?, tokens_used = tokens_used + ? WHERE study = ?",
        (len(fresh), used, study),
    )
    raw.execute(
        f"INSERT INTO participation (study, start, grp, people) VALUES {_marks(len(bins), '(?, ?, ?, ?)')} "
        "ON CONFLICT (study, start, grp) DO UPDATE SET people = participation.people + excluded.people",
        [x for (start, group), n in bins.items() for x in (study, start, group, n)],
    )


# --- batches of a mixer -----------------------------------------------------------------------------------------------


def take_mixed(db: Connection, study: int, phase: int | None, batch: Mixed, rows: list[Packed], precision: int) -> int:
    """Store a batch as a whole, once; how many reports of it were taken. One that came before is answered as then.

    Reports that came before are left out, and which report came in which batch is kept nowhere. One that would make
    more reports than there are tickets is refused: a batch that the mixer fills up itself hides nobody.
    """
    raw, postgres = driver(db)
    state, now, there = _known(raw, postgres, study, [row.row for row in rows])
    mine = batches.c.study == study
    before = db.execute(select(batches.c.people).where(mine, batches.c.id == batch.id)).scalar()
    if before is not None:
        return int(before)
    over = db.execute(select(batches.c.id).where(mine, batches.c.last)).first() is not None
    if over or state not in ("open", "closed") or phase != now:
        raise Refused("closed", "The study takes no more batches.")
    fresh = {row.row: row for row in reversed(rows) if row.row not in there}
    here = arrivals(db, study)
    if here["arrived"] + len(fresh) > here["tickets"]:
        raise Refused("no-tickets", "The mixer must not send more reports than people have tickets.")
    db.execute(batches.insert().values(study=study, id=batch.id, people=len(fresh), last=batch.last))
    if fresh:
        _insert(raw, study, list(fresh.values()), 0, precision, postgres)
    return len(fresh)


def arrivals(db: Connection, study: int) -> dict[str, Any]:
    """How many people have a ticket, how many reports came, in how many batches, and whether the last one did."""
    result = select(func.count(), func.sum(batches.c.people), func.count().filter(batches.c.last))
    many, people, last = db.execute(result.where(batches.c.study == study)).one()
    came = {"arrived": int(people or 0), "batches": int(many), "complete": bool(last)}
    return {"tickets": people_in(db, study, TICKET), **came}


# --- invitations ------------------------------------------------------------------------------------------------------


def make_tokens(db: Connection, study: int, count: int) -> list[str]:
    """New single-use invitations. Only their hashes are stored, and not which report used which."""
    tokens = [secrets.token_urlsafe(16) for _ in range(count)]
    db.execute(invitations.insert(), [{"study": study, "token": hashed(t), "used": False} for t in tokens])
    made = progress.c.tokens_made + count
    db.execute(progress.update().where(progress.c.study == study).values(tokens_made=made))
    return tokens


# --- reading ----------------------------------------------------------------------------------------------------------


def counts(db: Connection, study: int) -> dict[str, int]:
    """How many people of each group took part, from the counters; shuffled ones where there are any."""
    return counts_by(db, "study", f"WHERE study = {int(study)}")[study]


def people_in(db: Connection, study: int, group: int) -> int:
    """How many people are of a group, as it is written."""
    here = (participation.c.study == study, participation.c.grp == group)
    return int(db.execute(select(func.sum(participation.c.people)).where(*here)).scalar() or 0)


def counts_by(db: Connection, what: str, where: str = "") -> defaultdict[int, dict[str, int]]:
    """The same by study, or by another whole number that a row has, in its order."""
    result = defaultdict[int, dict[str, int]](lambda: {"trusted": 0, "local": 0})
    sql = f"SELECT {what}, grp, sum(people) FROM participation {where} GROUP BY 1, 2 ORDER BY 1"
    for place, group, people in db.exec_driver_sql(sql):
        if group != TICKET:
            name = GROUPS.get(group, "local")
            result[int(place)][name] = result[int(place)].get(name, 0) + int(people)
    return result


def stream(db: Connection, study: int, group: int, *, size: int = 20_000) -> Iterator[list[tuple[Any, ...]]]:
    """A group's rows (id, epsilon, body), a list of at most `size` at a time, in no order that means anything."""
    raw, postgres = driver(db)
    sql = f"SELECT id, epsilon, body FROM reports WHERE study = {int(study)} AND grp = {int(group)}"
    # A named cursor stays on PostgreSQL's side; SQLite's steps through the table by itself.
    cursor = raw.cursor(name="stream") if postgres else raw.cursor()
    try:
        cursor.execute(sql)
        while rows := cursor.fetchmany(size):
            yield rows
    finally:
        cursor.close()


def participation_by(db: Connection, study: int) -> tuple[int, list[dict[str, int]]]:
    """People in at most about 60 stretches of time: the width in seconds, and the stretches with anybody in."""
    here = f"WHERE study = {int(study)}"
    span = db.exec_driver_sql(f"SELECT min(start), max(start) FROM participation {here}").one()
    if span[0] is None:
        return BIN, []
    need = (int(span[1]) - int(span[0])) / 60
    width = next((w for w in _WIDTHS if w >= need), _WIDTHS[-1] * max(1, round(need / _WIDTHS[-1])))
    people = counts_by(db, f"start / {width} * {width}", here)
    return width, [{"start": start, **some} for start, some in people.items()]


_WIDTHS = (60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400)


T = TypeVar("T")
Waiter = tuple[Batch, asyncio.Future[list[Failed]]]

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

    async def store(self, batch: Batch) -> list[Failed]:
        size = len(batch.reports)
        if self._closed or self.waiting + size > self._most:
            raise Refused("overloaded", "Too many reports are waiting to be stored: come back later.", retry_after=2)
        loop = asyncio.get_running_loop()
        result: asyncio.Future[list[Failed]] = loop.create_future()
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
        outcomes: Sequence[list[Failed] | Refused]
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


def _answer(answers: Sequence[tuple[asyncio.Future[list[Failed]], list[Failed] | Refused]]) -> None:
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

    def commit(self, batches: Sequence[Batch]) -> list[list[Failed]]:
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
    db.execute(reports.delete().where(stretch if whole else and_(stretch, reports.c.grp.in_((schema.TRUSTED, TICKET)))))
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
