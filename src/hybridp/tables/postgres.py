"""PostgreSQL: one snapshot of one table, read with the rights of the user that connects.

Everything runs in one transaction (REPEATABLE READ), so that all queries of a release see the same rows. Tables that
are kept are temporary ones of the session; a simple total needs none, and then no right but SELECT.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np

from hybridp.errors import HybridpError, InvalidInput, UnusableRows, must
from hybridp.tables.engine import fresh

__all__ = ["Postgres", "open_postgres"]

# Names of types as information_schema spells them, and as every other room knows them.
_TYPES = {
    "smallint": "SMALLINT",
    "integer": "INTEGER",
    "bigint": "BIGINT",
    "numeric": "DECIMAL",
    "real": "FLOAT",
    "double precision": "DOUBLE",
    "boolean": "BOOLEAN",
    "text": "VARCHAR",
    "character varying": "VARCHAR",
    "character": "VARCHAR",
    "name": "VARCHAR",
    "USER-DEFINED": "VARCHAR",  # an enumeration; whatever else it is has a text form too
    "uuid": "UUID",
    "date": "DATE",
}
_GIVEN = {"i": "BIGINT", "u": "BIGINT", "f": "DOUBLE PRECISION", "b": "BOOLEAN", "O": "TEXT", "U": "TEXT"}


@dataclass(frozen=True, eq=False)
class Postgres:
    """A connection of psycopg, in one transaction, and the relation that stands for the rows."""

    name: str
    relation: Any = field(repr=False)
    connection: Any = field(repr=False)

    @property
    def dialect(self) -> str:
        return "postgres"

    @property
    def source(self) -> Any:
        return self.relation

    def ask(self, sql: str) -> list[dict[str, Any]]:
        from psycopg.rows import dict_row

        with self.connection.cursor(row_factory=dict_row, binary=True) as cursor:
            found: list[dict[str, Any]] = cursor.execute(sql).fetchall()
        return found

    def columns(self, sql: str) -> dict[str, Any]:
        with self.connection.cursor(binary=True) as cursor:
            cursor.execute(sql)
            return _arrays([column.name for column in cursor.description], cursor.fetchall())

    def keep(self, table: str, sql: str) -> None:
        # ON COMMIT DROP: nothing outlives the transaction. Statistics help the joins that follow.
        with self.connection.cursor() as cursor:
            cursor.execute(f"CREATE TEMP TABLE {_quoted(table)} ON COMMIT DROP AS {sql}")
            cursor.execute(f"ANALYZE {_quoted(table)}")

    def drop(self, table: str) -> None:
        import psycopg

        if self.connection.info.transaction_status == psycopg.pq.TransactionStatus.INERROR:
            return  # the transaction failed, and takes the table with it
        with self.connection.cursor() as cursor:
            cursor.execute("SET LOCAL client_min_messages = warning")
            cursor.execute(f"DROP TABLE IF EXISTS {_quoted(table)}")

    def give(self, table: str, fields: Mapping[str, Any]) -> None:
        typed = ", ".join(f"{_quoted(name)} {_GIVEN[np.asarray(a).dtype.kind]}" for name, a in fields.items())
        with self.connection.cursor() as cursor:
            cursor.execute(f"CREATE TEMP TABLE {_quoted(table)} ({typed}) ON COMMIT DROP")
            with cursor.copy(f"COPY {_quoted(table)} FROM STDIN") as copy:
                for row in zip(*(np.asarray(a).tolist() for a in fields.values()), strict=True):
                    copy.write_row(row)
            cursor.execute(f"ANALYZE {_quoted(table)}")

    def stream(self, sql: str, chunk: int) -> Generator[dict[str, Any]]:
        # Kept first: an open cursor would hold on to every table that the query reads.
        table = fresh("stream")
        self.keep(table, f"SELECT *, row_number() OVER () AS place_ FROM ({sql}) AS answer")
        return self._stream(table, chunk)

    def _stream(self, table: str, chunk: int) -> Generator[dict[str, Any]]:
        try:
            with self.connection.cursor(name=f"cursor_{table}", binary=True) as cursor:
                cursor.execute(f"SELECT * FROM {_quoted(table)} ORDER BY place_")
                while rows := cursor.fetchmany(chunk):
                    found = _arrays([column.name for column in cursor.description], rows)
                    found.pop("place_")
                    yield found
        finally:
            self.drop(table)

    def sentence(self, error: Exception) -> HybridpError | None:
        import psycopg

        if not isinstance(error, psycopg.Error):
            return None
        code = error.sqlstate or ""
        if isinstance(error, psycopg.OperationalError) and (not code or code[:2] in ("08", "57")):
            return InvalidInput(f"The database of {self.name} must stay connected until the release is done.")
        known = {
            "42501": f"The table {self.name} must be readable by this user, who must also be allowed temporary tables.",
            "57014": f"The query on {self.name} must be allowed to finish: the server cancelled it.",
            "53100": f"The disk of the server of {self.name} must have room for temporary tables.",
            "53200": f"The server of {self.name} must have enough memory for the query.",
        }
        if code in known:
            return InvalidInput(known[code])
        return UnusableRows(
            f"The rows of {self.name} must be numbers and texts that the query can compute with (SQLSTATE {code})."
        )

    def close(self) -> None:
        """End the transaction, and with it every temporary table."""
        self.connection.close()


def open_postgres(url: str, shown: str, table: str | None) -> tuple[Postgres, dict[str, str], str]:
    """The engine, the types of the table's columns, and its name for messages."""
    try:
        import psycopg
    except ImportError:
        raise InvalidInput("`engine` must have psycopg installed (the extra `postgres`). Got no psycopg.") from None

    plain = url.replace("postgresql+psycopg://", "postgresql://", 1)
    connection: Any = None
    try:
        connection = psycopg.connect(plain, application_name="hybridp", connect_timeout=_seconds())
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    except (psycopg.Error, ValueError):
        connection = None
    if connection is None:
        raise InvalidInput(
            f"`path` must be a PostgreSQL database that answers, with a user that may connect. Got {shown}."
        )
    try:
        schema, name = _find(connection, table, shown)
        types = _columns(connection, schema, name)
        engine = Postgres(name, _relation(schema, name, types), connection)
    except BaseException:
        connection.close()
        raise
    return engine, {column: _shown(kind) for column, kind in types.items()}, name


def _seconds() -> int:
    return int(os.environ.get("PGCONNECT_TIMEOUT", "10"))


def _find(connection: Any, table: str | None, shown: str) -> tuple[str, str]:
    found = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables "
        "WHERE table_schema NOT IN ('pg_catalog', 'information_schema') ORDER BY 1, 2"
    ).fetchall()
    if table is None:
        own = [row for row in found if row[0] == "public"]
        must(len(own) == 1, "table", f"must be given when {shown} has not exactly one public table", len(own))
        return str(own[0][0]), str(own[0][1])
    schema, _, name = table.rpartition(".")
    same = [row for row in found if row[1] in (name, table) and row[0] == (schema or row[0])]
    if not schema and len(same) > 1:
        same = [row for row in same if row[0] == "public"]
    must(len(same) == 1, "table", f"must be one table of {shown} that this user may read", table)
    return str(same[0][0]), str(same[0][1])


def _columns(connection: Any, schema: str, name: str) -> dict[str, str]:
    found = connection.execute(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_schema = %s AND table_name = %s ORDER BY ordinal_position",
        (schema, name),
    ).fetchall()
    return {str(column): str(kind) for column, kind in found}


def _shown(kind: str) -> str:
    return "INTEGER" if kind == "boolean" else _TYPES.get(kind, kind.upper())


def _relation(schema: str, name: str, types: Mapping[str, str]) -> Any:
    """The columns as the queries expect them: truth as 0 and 1, and text compared byte by byte, as elsewhere."""
    from sqlglot import exp

    outputs: list[Any] = []
    for column, kind in types.items():
        this: Any = exp.column(column, quoted=True)
        if kind == "boolean":
            this = exp.cast(this, "int")
        elif _TYPES.get(kind) == "VARCHAR":
            # Another collation could sort texts differently from other engines, or even take different ones for equal.
            this = exp.Collate(this=exp.cast(this, "text"), expression=exp.to_identifier("C", quoted=True))
        outputs.append(exp.alias_(this, column, quoted=True))
    table = exp.Table(this=exp.to_identifier(name, quoted=True), db=exp.to_identifier(schema, quoted=True))
    return exp.select(*outputs).from_(table).subquery()


def _quoted(name: str) -> str:
    from sqlglot import exp

    return str(exp.to_identifier(name, quoted=True).sql(dialect="postgres"))


def _arrays(names: Sequence[str], rows: Sequence[tuple[Any, ...]]) -> dict[str, Any]:
    return {name: _array([row[place] for row in rows]) for place, name in enumerate(names)}


def _array(values: list[Any]) -> Any:
    """One column; masked where something is missing, whole numbers exact (objects, if they need more than 64 bits)."""
    mask = [value is None for value in values]
    some = next((value for value in values if value is not None), 0)
    if isinstance(some, Decimal):
        values = [None if value is None else int(value) for value in values]
        some = 0
    if isinstance(some, str):
        plain: Any = np.array(values, dtype=object)
    else:
        filled = [type(some)() if value is None else value for value in values]
        try:
            plain = np.array(filled, dtype=np.int64 if type(some) is int else None)
        except OverflowError:
            plain = np.array(filled, dtype=object)
    return np.ma.masked_array(plain, mask=mask) if any(mask) else plain
