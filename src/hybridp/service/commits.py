"""A group of uploads becomes durable: in as few questions to the database as can be, on a connection of its own.

Nearly every group is plain: open studies, no invitations, no report that came before. Such a group is written without
looking first; the database itself says when it was not plain (a closed study, another phase, an id that is there), and
then the whole of it is taken the careful way, by `store.take`. Nothing is durable in between.

The driver is called directly. On PostgreSQL a plain group is one prepared statement in a transaction of its own: one
journey, one flush of the log. Its arrays are written in PostgreSQL's binary form (oid, then length and bytes of each).
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from sqlalchemy import Engine

from hybridp.service.reports import Failure, Packed
from hybridp.service.store import BIN, Batch, Bins, insert_sqlite, take

__all__ = ["Commits"]


class _Unusual(Exception):
    """Not a plain group."""


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
                if attempt == 0 and self._plain(raw, batches):
                    return [[] for _ in batches]
                with _transaction(raw, self._postgres):
                    return take(raw, batches, self._postgres)
            except self._errors as error:
                self.drop()
                if attempt == 2 or not isinstance(error, self._twice):
                    raise
        raise AssertionError("unreachable")

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
                raw = self._held.dbapi_connection
                raw.autocommit = True
                _prepare(raw)
        return self._held.dbapi_connection

    def _plain(self, raw: Any, batches: Sequence[Batch]) -> bool:
        """Whether the group was plain, and is durable now."""
        by_study: dict[tuple[int, int], list[Batch]] = {}
        for batch in batches:
            by_study.setdefault((batch.study, batch.phase), []).append(batch)
            if batch.late:
                return False
        if self._postgres:
            if len(by_study) > 1:
                return False
            ((key, mine),) = by_study.items()
            rows, bins = _gathered(mine)
            return rows is not None and _plain_postgres(raw, *key, rows, bins)
        try:
            with _transaction(raw, False):
                for key in sorted(by_study):
                    rows, bins = _gathered(by_study[key])
                    if rows is None:
                        raise _Unusual
                    _plain_sqlite(raw, *key, rows, bins)
        except (_Unusual, self._twice):
            return False
        return True


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


def _gathered(batches: Iterable[Batch]) -> tuple[list[Packed] | None, Bins]:
    """All reports of one study, and how many belong to each stretch of time; None where one has an invitation."""
    rows: list[Packed] = []
    bins: Bins = {}
    for batch in batches:
        width = max(batch.precision, BIN)
        for report in batch.reports:
            if report[5] is not None:
                return None, bins
            key = (report[1] // width * width, report[2])
            bins[key] = bins.get(key, 0) + 1
        rows += batch.reports
    return rows, bins


def _plain_sqlite(raw: Any, study: int, phase: int, rows: list[Packed], bins: Bins) -> None:
    state, now = raw.execute("SELECT state, phase FROM progress WHERE study = ?", (study,)).fetchone()
    if state != "open" or now != phase:
        raise _Unusual
    insert_sqlite(raw, study, rows, 0, bins)


# --- PostgreSQL -------------------------------------------------------------------------------------------------------

_PLAIN = b"hybridp_plain"
_INT2, _INT8, _FLOAT8, _BYTEA = 21, 20, 701, 17
_TYPES = (23, 21, 1001, 1016, 1005, 1022, 1001, 20, 1016, 1005, 1016)

# Whoever is closing the study, or opening its next phase, holds the row of `progress`; this one waits for it, and sees
# what it did. An id that is there, or that comes twice, breaks the unique key and undoes all of it.
_SQL = b"""
WITH here AS MATERIALIZED (
    SELECT study FROM progress WHERE study = $1 AND state = 'open' AND phase = $2 FOR UPDATE
), stored AS (
    INSERT INTO reports (study, id, at, grp, epsilon, body)
    SELECT $1, given.id, given.at, given.grp, given.epsilon, given.body
    FROM here, unnest($3::bytea[], $4::bigint[], $5::smallint[], $6::float8[], $7::bytea[])
        AS given (id, at, grp, epsilon, body)
), counted AS (
    INSERT INTO participation (study, start, grp, people)
    SELECT $1, given.start, given.grp, given.people
    FROM here, unnest($9::bigint[], $10::smallint[], $11::bigint[]) AS given (start, grp, people)
    ON CONFLICT (study, start, grp) DO UPDATE SET people = participation.people + excluded.people
)
UPDATE progress SET taken = progress.taken + $8 FROM here WHERE progress.study = here.study
"""
_HEAD, _LONG, _SHORT, _REAL = struct.Struct(">iiIii"), struct.Struct(">iq"), struct.Struct(">ih"), struct.Struct(">id")
_LENGTH = struct.Struct(">i")
_NULL = _LENGTH.pack(-1)


def _array(of: int, parts: Sequence[bytes], nulls: bool = False) -> bytes:
    """A list of one dimension in PostgreSQL's binary form; each part has its length in front already."""
    return _HEAD.pack(1, int(nulls), of, len(parts), 1) + b"".join(parts)


def _prepare(raw: Any) -> None:
    from psycopg import pq

    done = raw.pgconn.prepare(_PLAIN, _SQL, _TYPES)
    if done.status != pq.ExecStatus.COMMAND_OK:
        raise _failed(done)


def _plain_postgres(raw: Any, study: int, phase: int, rows: list[Packed], bins: Bins) -> bool:
    from psycopg import pq

    rows.sort()  # by the rows' names: within a commit nothing tells who came first
    ids, ats, groups, epsilons, bodies, _, _ = zip(*rows, strict=True)
    values = [
        _LENGTH.pack(study),
        struct.pack(">h", phase),
        _array(_BYTEA, [b"\0\0\0\x10" + x for x in ids]),
        _array(_INT8, [_LONG.pack(8, x) for x in ats]),
        _array(_INT2, [_SHORT.pack(2, x) for x in groups]),
        _array(_FLOAT8, [_NULL if x is None else _REAL.pack(8, x) for x in epsilons], nulls=True),
        _array(_BYTEA, [_LENGTH.pack(len(x)) + x for x in bodies]),
        struct.pack(">q", len(rows)),
        _array(_INT8, [_LONG.pack(8, start) for start, _ in bins]),
        _array(_INT2, [_SHORT.pack(2, group) for _, group in bins]),
        _array(_INT8, [_LONG.pack(8, people) for people in bins.values()]),
    ]
    done = raw.pgconn.exec_prepared(_PLAIN, values, [1] * len(values))
    if done.status == pq.ExecStatus.COMMAND_OK:
        return bool(done.command_tuples)
    if done.error_field(pq.DiagnosticField.SQLSTATE) == b"23505":
        return False
    raise _failed(done)


def _failed(done: Any) -> Exception:
    from psycopg import OperationalError

    return OperationalError(f"the server refused a group (status {int(done.status)})")
