"""Writing reports and reading them back. Every function runs inside the caller's transaction.

`take` stores a whole group of uploads in a handful of statements, each of them for many rows, written for both
databases by hand; `commits.py` has the shorter way for a group in which nothing is unusual. Reading for a release is a
stream: its memory does not grow with the number of reports.
"""

from __future__ import annotations

import base64
import contextlib
import secrets
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

from sqlalchemy import Connection, Engine, select

from hybridp.service.keys import RowCipher, hashed
from hybridp.service.reports import Failure, Packed
from hybridp.service.schema import LOCAL, TRUSTED, invitations, progress, reports, study_keys

__all__ = ["BIN", "Batch", "Bins", "counts", "insert_sqlite", "make_tokens", "participation_by", "reading",
           "rebuilt_counts", "shred", "snapshot", "stream", "sweep", "take", "writing"]  # fmt: skip

_ROWS = 4000  # rows a statement: seven values each stay below SQLite's 32,766
BIN = 60  # seconds: the finest grain at which participation is counted


@contextlib.contextmanager
def reading(engine: Engine) -> Iterator[Connection]:
    with engine.connect() as db, db.begin():
        yield db


@contextlib.contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that takes SQLite's write lock at its beginning, so that it never has to give up half-way."""
    with engine.connect().execution_options(immediate=True) as db, db.begin():
        yield db


@contextlib.contextmanager
def snapshot(engine: Engine) -> Iterator[Connection]:
    """A transaction that sees one state of the database throughout."""
    if engine.dialect.name == "postgresql":
        engine = engine.execution_options(isolation_level="REPEATABLE READ")
    with engine.connect() as db, db.begin():
        yield db


# --- uploads ----------------------------------------------------------------------------------------------------------


class Batch(NamedTuple):
    """Checked reports of one request; `cipher` opens stored values when one of them must be compared.

    `late` ones came after the closing time: those that are already there are fine, new ones are refused.
    """

    study: int
    phase: int
    precision: int
    cipher: RowCipher | None
    reports: Sequence[Packed]
    late: bool = False


def take(raw: Any, batches: Sequence[Batch], postgres: bool) -> list[list[Failure]]:
    """Store what can be stored, in the transaction that is open on this driver's connection; failures of each batch.

    A report that is already there with the same content is fine; with another content it fails. Guarantees, whatever
    else runs: one row for each id, one report for each token, none once the study is closed or in another phase, and
    counters that agree with the rows.
    """
    failures: list[list[Failure]] = [[] for _ in batches]
    by_study: dict[int, list[int]] = {}
    for i, batch in enumerate(batches):
        by_study.setdefault(batch.study, []).append(i)
    for study in sorted(by_study):  # always in this order, so that two writers cannot wait for each other
        _take_study(raw, study, [(batches[i], failures[i]) for i in by_study[study]], postgres)
    return failures


def _take_study(raw: Any, study: int, work: list[tuple[Batch, list[Failure]]], postgres: bool) -> None:
    state, phase, taken, there = _known(raw, study, [r.id for batch, _ in work for r in batch.reports], postgres)
    asked = [r.token for batch, _ in work for r in batch.reports if r.token is not None]
    tokens = _tokens(raw, study, asked, postgres) if asked else {}
    fresh: list[Packed] = []
    bins: Bins = {}
    for batch, failed in work:
        width = max(batch.precision, BIN)
        for report in batch.reports:
            before = there.get(report.id)
            if before is not None:
                if not _same(before, report, batch.cipher):
                    failed.append(_failure(report, "id-conflict", "This id came before with another content."))
                continue
            refused = _refusal(report, "closed" if batch.late else state, phase, batch.phase, tokens)
            if refused is not None:
                failed.append(refused)
                continue
            if report.token is not None:
                tokens[report.token] = True
            there[report.id] = report
            fresh.append(report)
            key = (report.at // width * width, report.group)
            bins[key] = bins.get(key, 0) + 1
    if not fresh:
        return
    used = [r.token for r in fresh if r.token is not None]
    if used:
        _use(raw, study, used, postgres)
    (_insert_postgres if postgres else insert_sqlite)(raw, study, taken, fresh, len(used), bins)


def _refusal(report: Packed, state: str, phase: int, meant: int, tokens: dict[bytes, bool]) -> Failure | None:
    if state != "open":
        return _failure(report, "closed", "The study takes no more reports.")
    if phase != meant:
        return _failure(report, "wrong-phase", "The study has moved on to its next phase: read the task again.")
    if report.token is not None:
        if report.token not in tokens:
            return _failure(report, "token-unknown", "The study knows no such invitation.")
        if tokens[report.token]:
            return _failure(report, "token-used", "This invitation was used: each is for one contribution.")
    return None


def _failure(report: Packed, code: str, detail: str) -> Failure:
    return Failure(base64.urlsafe_b64encode(report.id)[:22].decode(), code, detail)


def _same(before: Packed, report: Packed, cipher: RowCipher | None) -> bool:
    if (before.at, before.group, before.epsilon) != (report.at, report.group, report.epsilon):
        return False
    if report.group == LOCAL:
        return before.body == report.body
    return cipher is not None and cipher.unseal(before.body, report.id) == cipher.unseal(report.body, report.id)


@lru_cache(maxsize=4096)
def _lines(n: int) -> str:
    return ", ".join(["(?)"] * n)


@lru_cache(maxsize=4096)
def _marks(n: int) -> str:
    return ", ".join("?" * n)


def _known(raw: Any, study: int, ids: list[bytes], postgres: bool) -> tuple[str, int, int, dict[bytes, Packed]]:
    """The study's state, phase and number of reports, locked; and those of the reports that are already there."""
    there: dict[bytes, Packed] = {}
    if postgres:
        rows = raw.execute(_LOCK, (study, ids, study)).fetchall()
        head, found = rows[0][:3], [row[3:] for row in rows if row[3] is not None]
    else:
        head = raw.execute("SELECT state, phase, taken FROM progress WHERE study = ?", (study,)).fetchone()
        found = []
        for start in range(0, len(ids), 30_000):
            some = ids[start : start + 30_000]
            # CROSS JOIN keeps this order: each id is looked up by itself, where IN would read the whole study.
            sql = f"WITH given (id) AS (VALUES {_lines(len(some))}) SELECT r.id, r.at, r.grp, r.epsilon, r.body "
            sql += "FROM given CROSS JOIN reports AS r ON r.study = ? AND r.id = given.id"
            found += raw.execute(sql, (*some, study)).fetchall()
    for key, at, group, epsilon, body in found:
        there[bytes(key)] = Packed(bytes(key), at, group, epsilon, bytes(body), None)
    return head[0], head[1], head[2], there


# One question instead of two. The reports are those at its beginning: one that another process stored while this one
# waited for the lock is met again by the unique key, and the whole transaction is tried once more. Each id is looked up
# by itself (a lateral LIMIT is never flattened): a planner without statistics would rather scan the whole study.
_LOCK = """
WITH here AS MATERIALIZED (SELECT study, state, phase, taken FROM progress WHERE study = %s FOR UPDATE)
SELECT here.state, here.phase, here.taken, r.id, r.at, r.grp, r.epsilon, r.body
FROM here LEFT JOIN LATERAL (
    SELECT found.* FROM unnest(%s::bytea[]) AS given (id) CROSS JOIN LATERAL (
        SELECT id, at, grp, epsilon, body FROM reports WHERE reports.study = %s AND reports.id = given.id LIMIT 1
    ) AS found
) AS r ON true
"""


def _tokens(raw: Any, study: int, asked: list[bytes], postgres: bool) -> dict[bytes, bool]:
    found: dict[bytes, bool] = {}
    for start in range(0, len(asked), 30_000):
        some = asked[start : start + 30_000]
        if postgres:
            rows = raw.execute(_FIND_TOKENS, (some, study))
        else:
            sql = f"SELECT token, used FROM invitations WHERE study = ? AND token IN ({_marks(len(some))})"
            rows = raw.execute(sql, (study, *some))
        found |= {bytes(token): bool(used) for token, used in rows.fetchall()}
    return found


_FIND_TOKENS = """
SELECT found.* FROM unnest(%s::bytea[]) AS given (token) CROSS JOIN LATERAL (
    SELECT token, used FROM invitations WHERE invitations.study = %s AND invitations.token = given.token LIMIT 1
) AS found
"""


def _use(raw: Any, study: int, used: list[bytes], postgres: bool) -> None:
    for start in range(0, len(used), 30_000):
        some = used[start : start + 30_000]
        if postgres:
            raw.execute("UPDATE invitations SET used = true WHERE study = %s AND token = ANY(%s)", (study, some))
        else:
            sql = f"UPDATE invitations SET used = 1 WHERE study = ? AND token IN ({_marks(len(some))})"
            raw.execute(sql, (study, *some))


Bins = dict[tuple[int, int], int]
"""How many people of a group came in a stretch of time, by (start, group)."""


def _insert_postgres(raw: Any, study: int, first: int, fresh: list[Packed], used: int, bins: Bins) -> None:
    """Rows and counters in one statement."""
    columns = [list(column) for column in zip(*fresh, strict=True)][:5]
    starts, groups = zip(*bins, strict=True)
    people = list(bins.values())
    values = (study, list(range(first, first + len(fresh))), *columns, len(fresh), used, study)
    raw.execute(_STORE, (*values, study, list(starts), list(groups), people))


_STORE = """
WITH rows AS (
    INSERT INTO reports (study, seq, id, at, grp, epsilon, body)
    SELECT %s, * FROM unnest(%s::bigint[], %s::bytea[], %s::bigint[], %s::smallint[], %s::float8[], %s::bytea[])
), counter AS (
    UPDATE progress SET taken = taken + %s, tokens_used = tokens_used + %s WHERE study = %s
)
INSERT INTO participation (study, start, grp, people)
SELECT %s, * FROM unnest(%s::bigint[], %s::smallint[], %s::bigint[])
ON CONFLICT (study, start, grp) DO UPDATE SET people = participation.people + excluded.people
"""


def insert_sqlite(raw: Any, study: int, first: int, fresh: Sequence[Packed], used: int, bins: Bins) -> None:
    """Rows by one statement for many of them: the interpreter's lock is given up, and taken again, once."""
    for start in range(0, len(fresh), _ROWS):
        some = fresh[start : start + _ROWS]
        raw.execute(
            _value_rows(len(some)),
            [x for seq, r in enumerate(some, first + start) for x in (study, seq, r[0], r[1], r[2], r[3], r[4])],
        )
    raw.execute(
        "UPDATE progress SET taken = taken + ?, tokens_used = tokens_used + ? WHERE study = ?",
        (len(fresh), used, study),
    )
    rows = ", ".join(["(?, ?, ?, ?)"] * len(bins))
    raw.execute(
        f"INSERT INTO participation (study, start, grp, people) VALUES {rows} "
        "ON CONFLICT (study, start, grp) DO UPDATE SET people = participation.people + excluded.people",
        [x for (start, group), n in bins.items() for x in (study, start, group, n)],
    )


@lru_cache(maxsize=4096)
def _value_rows(n: int) -> str:
    rows = ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * n)
    return f"INSERT INTO reports (study, seq, id, at, grp, epsilon, body) VALUES {rows}"


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
    """How many people of each group took part, from the counters."""
    rows = db.exec_driver_sql(f"SELECT grp, sum(people) FROM participation WHERE study = {int(study)} GROUP BY grp")
    found = {int(group): int(people) for group, people in rows}
    return {"trusted": found.get(TRUSTED, 0), "local": found.get(LOCAL, 0)}


def stream(db: Connection, study: int, group: int, *, size: int = 20_000) -> Iterator[list[tuple[Any, ...]]]:
    """A group's rows (id, epsilon, body), a list of at most `size` at a time."""
    raw: Any = db.connection.dbapi_connection
    sql = f"SELECT id, epsilon, body FROM reports WHERE study = {int(study)} AND grp = {int(group)} ORDER BY seq"
    # A named cursor stays on PostgreSQL's side; SQLite's steps through the table by itself.
    cursor = raw.cursor(name="stream") if db.dialect.name == "postgresql" else raw.cursor()
    try:
        cursor.execute(sql)
        while rows := cursor.fetchmany(size):
            yield rows
    finally:
        cursor.close()


def participation_by(db: Connection, study: int, bins: int) -> tuple[int, list[dict[str, int]]]:
    """People in at most about `bins` stretches of time: the width in seconds, and the stretches with anybody in."""
    span = db.exec_driver_sql(f"SELECT min(start), max(start) FROM participation WHERE study = {int(study)}").one()
    if span[0] is None:
        return BIN, []
    need = (int(span[1]) - int(span[0])) / max(bins, 1)
    width = next((w for w in _WIDTHS if w >= need), _WIDTHS[-1] * max(1, round(need / _WIDTHS[-1])))
    rows = db.exec_driver_sql(
        f"SELECT start / {width} * {width}, grp, sum(people) FROM participation WHERE study = {int(study)} "
        "GROUP BY 1, 2 ORDER BY 1"
    )
    found: dict[int, dict[str, int]] = {}
    for start, group, people in rows:
        here = found.setdefault(int(start), {"start": int(start), "trusted": 0, "local": 0})
        here["trusted" if group == TRUSTED else "local"] += int(people)
    return width, list(found.values())


_WIDTHS = (60, 300, 900, 3600, 4 * 3600, 86_400, 7 * 86_400)


def shred(db: Connection, study: int) -> None:
    """Delete the key of trusted people's values: from this commit on nobody can read them; `sweep` removes the rows."""
    db.execute(study_keys.delete().where(study_keys.c.study == study))
    db.execute(progress.update().where(progress.c.study == study).values(raw="deleting"))


def sweep(db: Connection, study: int, first: int, rows: int = 20_000) -> int | None:
    """Remove shredded values from row `first` on; the row to go on with, or None at the end. Local reports stay."""
    taken = db.execute(select(progress.c.taken).where(progress.c.study == study)).scalar_one()
    here = (reports.c.study == study, reports.c.grp == TRUSTED, reports.c.seq >= first, reports.c.seq < first + rows)
    db.execute(reports.delete().where(*here))
    if first + rows < taken:
        return first + rows
    db.execute(progress.update().where(progress.c.study == study).values(raw="deleted"))
    return None


def rebuilt_counts(db: Connection, study: int) -> Iterable[tuple[int, int]]:
    """The groups' sizes counted from the rows themselves: for checks, never for pages."""
    rows = db.exec_driver_sql(f"SELECT grp, count(*) FROM reports WHERE study = {int(study)} GROUP BY grp")
    return [(int(g), int(n)) for g, n in rows]
