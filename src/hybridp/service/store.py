"""Writing reports and reading them back. Every function runs inside the caller's transaction.

`take` stores a whole group of uploads in a handful of statements for many rows each; `take_plain` is PostgreSQL's
shorter way for a group in which nothing is unusual. Reading for a release is a stream.
"""

from __future__ import annotations

import contextlib
import secrets
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import groupby
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, func, select

from hybridp.public.mixing import Batch as Mixed
from hybridp.service.problems import Refused
from hybridp.service.reports import Failure, Packed
from hybridp.service.schema import GROUPS, TICKET, batches, invitations, participation, progress
from hybridp.service.settings import hashed

__all__ = ["Batch", "arrivals", "counts", "driver", "known_tokens", "make_tokens", "participation_by", "reading"]
__all__ += ["snapshot", "stored_rows", "stream", "take", "take_mixed", "take_plain", "writing"]

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


def take(raw: Any, batches: Sequence[Batch], postgres: bool) -> list[list[Failure]]:
    """Store what can be stored, in the transaction that is open on this driver's connection; failures of each batch.

    A report that came before is fine, whatever it says now: the first one counts, and nobody learns from the answer
    what that was. Who has no invitation of the study does not even learn that. Guarantees, whatever else runs: one row
    for each id, one report for each token, none once the study is closed or in another phase, and counters that agree
    with the rows.
    """
    failures: list[list[Failure]] = [[] for _ in batches]
    work = sorted(zip(batches, failures, strict=True), key=lambda one: one[0].study)
    # Always in this order, so that two writers cannot wait for each other.
    for study, own in groupby(work, key=lambda one: one[0].study):
        _take_study(raw, study, list(own), postgres)
    return failures


def _take_study(raw: Any, study: int, work: list[tuple[Batch, list[Failure]]], postgres: bool) -> None:
    sent = [report for batch, _ in work for report in batch.reports]
    state, phase, there = _known(raw, postgres, study, [report.row for report in sent])
    asked = [report.token for report in sent if report.token is not None]
    tokens = known_tokens(raw, postgres, study, asked) if asked else {}
    fresh: list[Packed] = []
    for batch, failed in work:
        for report in batch.reports:
            if report.token is not None and report.token not in tokens:
                failed.append(Failure(report.sent, "token-unknown", "The study knows no such invitation."))
            elif report.row not in there:
                refused = _refusal(report, "closed" if batch.late else state, phase, batch.phase, tokens)
                if refused is not None:
                    failed.append(refused)
                    continue
                if report.token is not None:
                    tokens[report.token] = True
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


def _refusal(report: Packed, state: str, phase: int, meant: int, tokens: dict[bytes, bool]) -> Failure | None:
    if state != "open":
        return Failure(report.sent, "closed", "The study takes no more reports.")
    if phase != meant:
        return Failure(report.sent, "wrong-phase", "The study has moved on to its next phase: read the task again.")
    if report.token is not None and tokens[report.token]:
        return Failure(report.sent, "token-used", "This invitation was used: each is for one contribution.")
    return None


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
    given = select(func.sum(participation.c.people)).where(participation.c.study == study)
    result = select(func.count(), func.sum(batches.c.people), func.count().filter(batches.c.last))
    many, people, last = db.execute(result.where(batches.c.study == study)).one()
    tickets = int(db.execute(given.where(participation.c.grp == TICKET)).scalar() or 0)
    return {"tickets": tickets, "arrived": int(people or 0), "batches": int(many), "complete": bool(last)}


# --- invitations ------------------------------------------------------------------------------------------------------


def make_tokens(db: Connection, study: int, count: int) -> list[str]:
    """New single-use invitations. Only their hashes are stored, and not which report used which."""
    tokens = [secrets.token_urlsafe(16) for _ in range(count)]
    for start in range(0, count, 10_000):
        some = tokens[start : start + 10_000]
        db.execute(invitations.insert(), [{"study": study, "token": hashed(t), "used": False} for t in some])
    made = progress.c.tokens_made + count
    db.execute(progress.update().where(progress.c.study == study).values(tokens_made=made))
    return tokens


# --- reading ----------------------------------------------------------------------------------------------------------


def counts(db: Connection, study: int) -> dict[str, int]:
    """How many people of each group took part, from the counters; shuffled ones where there are any."""
    rows = db.exec_driver_sql(f"SELECT grp, sum(people) FROM participation WHERE study = {int(study)} GROUP BY grp")
    result = {int(group): int(people) for group, people in rows}
    named = {name: result[group] for group, name in GROUPS.items() if group in result}
    return {"trusted": 0, "local": 0, **named}


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
    span = db.exec_driver_sql(f"SELECT min(start), max(start) FROM participation WHERE study = {int(study)}").one()
    if span[0] is None:
        return BIN, []
    need = (int(span[1]) - int(span[0])) / 60
    width = next((w for w in _WIDTHS if w >= need), _WIDTHS[-1] * max(1, round(need / _WIDTHS[-1])))
    rows = db.exec_driver_sql(
        f"SELECT start / {width} * {width}, grp, sum(people) FROM participation WHERE study = {int(study)} "
        "GROUP BY 1, 2 ORDER BY 1"
    )
    result: dict[int, dict[str, int]] = {}
    for start, group, people in rows:
        if group in GROUPS:
            here = result.setdefault(int(start), {"start": int(start), "trusted": 0, "local": 0})
            here[GROUPS[group]] = here.get(GROUPS[group], 0) + int(people)
    return width, list(result.values())


_WIDTHS = (60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400)
