"""Engines elsewhere, and their words: PostgreSQL, and Spark through Spark Connect, whose client needs no Java.

Of PostgreSQL one table is read with the rights of the user that connects, in one transaction (REPEATABLE READ), so that
all queries of a release see the same rows. Nothing is kept there: no right but SELECT is needed.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import sqlglot
from sqlglot import exp

from hybridp.errors import HybridpError, InvalidInput, UnusableRows, must
from hybridp.tables import engine
from hybridp.tables.engine import VIEW, Duck, Rows, Source, attempt, literal, parquet_or_csv, select, text
from hybridp.tables.engine import column as _quoted

__all__ = ["Postgres", "Spark", "open_postgres", "open_spark", "translated"]

_TYPES = {"int": "INTEGER", "real": "FLOAT", "double precision": "DOUBLE", "text": "VARCHAR", "name": "VARCHAR"}
_TYPES |= {"USER-DEFINED": "VARCHAR"}  # an enumeration; whatever else it is has a text form too


def _type_name(told: str) -> str:
    """A type as a catalogue spells it, by DuckDB's name, which every other room knows.

    >>> _type_name("numeric(8,2)"), _type_name("character varying"), _type_name("smallint")
    ('DECIMAL(8,2)', 'VARCHAR', 'SMALLINT')
    """
    words = told.startswith(("varchar", "char", "string"))
    return _TYPES.get(told, "VARCHAR" if words else told.replace("numeric", "decimal", 1).upper())


@dataclass(frozen=True, eq=False)
class Postgres:
    """A connection of psycopg, in one transaction."""

    name: str
    connection: Any = field(repr=False)
    copies: dict[str, Rows] = field(default_factory=dict, repr=False)
    dialect: str = field(default="postgres", init=False)

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        with self.connection.cursor(binary=True) as cursor:
            result = cursor.execute(sql).fetchall()
            return [column.name for column in cursor.description], result

    def send(self, sql: str, duck: Duck) -> str:
        # Every text is quoted, so that an empty one differs from none.
        file, kept = os.path.join(duck.spill.name, "sent.csv"), f"COPY ({sql}) TO STDOUT"
        with open(file, "wb") as out, self.connection.cursor() as cursor:
            wide = len(cursor.execute(f"SELECT * FROM ({sql}) AS sent LIMIT 0").description)
            with cursor.copy(f"{kept} (FORMAT csv, FORCE_QUOTE *, NULL '-')") as parts:
                for part in parts:
                    out.write(part)
        columns = ", ".join(f"'c{place}': 'VARCHAR'" for place in range(wide))
        return (
            f"read_csv({literal(file)}, auto_detect = false, header = false, delim = ',', quote = '\"', escape = '\"', "
            f"nullstr = '-', allow_quoted_nulls = false, parallel = false, new_line = '\\n', "
            f"max_line_size = 2000000000, columns = {{{columns}}})"
        )

    def sentence(self, error: Exception) -> HybridpError | None:
        import psycopg

        if not isinstance(error, psycopg.Error):
            return None
        code = error.sqlstate or ""
        known = {
            "42501": f"The table {self.name} must be readable by this user.",
            "57014": f"The query on {self.name} must be allowed to finish: the server cancelled it.",
            "53200": f"The server of {self.name} must have enough memory for the query.",
        }
        if code in ("22021", "22P05"):
            return engine.unreadable(self.name)
        if code in known:
            return InvalidInput(known[code])
        if isinstance(error, psycopg.OperationalError) and (not code or code[:2] in ("08", "57")):
            return InvalidInput(f"The database of {self.name} must stay connected until the release is done.")
        if code[:2] in ("40", "53", "55"):
            return InvalidInput(f"The server of {self.name} must let the query finish: it gave up (SQLSTATE {code}).")
        return UnusableRows(
            f"The rows of {self.name} must be numbers and texts that the query can compute with (SQLSTATE {code})."
        )

    def close(self) -> None:
        """End the transaction, and forget what was copied."""
        for rows in self.copies.values():
            rows.close()
        self.connection.close()


def open_postgres(source: Source, table: str | None, undo: contextlib.ExitStack) -> Rows:
    """A table of the database."""
    url, shown = source.location, source.shown
    try:
        import psycopg
    except ImportError:
        raise InvalidInput("`engine` must have psycopg installed (the extra `postgres`). Got no psycopg.") from None

    plain = "postgresql://" + url.split("://", 1)[1]
    connection: Any = None
    try:
        usual: dict[str, Any] = {"application_name": "hybridp"}
        usual["connect_timeout"] = os.environ.get("PGCONNECT_TIMEOUT", "10")
        stated = psycopg.conninfo.conninfo_to_dict(plain)
        connection = psycopg.connect(**{**usual, **stated, "client_encoding": "utf8"})
        connection.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
    except (psycopg.Error, ValueError):
        connection = None
    rule = "must be a PostgreSQL database that answers, with a user that may connect"
    must(connection is not None, "path", rule, shown)

    undo.callback(connection.close)

    def look() -> tuple[str, str, dict[str, str]]:
        connection.execute(_SETTINGS)
        schema, name, number = _find(connection, table, shown)
        columns = connection.execute(_COLUMNS, (number,)).fetchall()
        return schema, name, {str(column): _type_name(str(kind)) for column, kind in columns}

    schema, name, types = attempt(Postgres(table or shown, connection), look)
    # Text is compared byte by byte, as elsewhere: another collation could sort texts differently from other engines, or
    # even take different ones for equal.
    outputs = {one: f'{text(_quoted(one))} COLLATE "C"' if types[one] == "VARCHAR" else _quoted(one) for one in types}
    part = select(outputs, f"{_quoted(schema)}.{_quoted(name)}")
    return Rows(MappingProxyType(types), Postgres(name, connection), part=part, decimal=source.decimal)


# What a role or a database may have set otherwise: how literals are read, how dates are written, and where a temporary
# table is looked for before any other.
_SETTINGS = """
SET standard_conforming_strings = on; SET DateStyle = ISO; SET client_min_messages = error;
SELECT set_config('search_path', concat_ws(', ', 'pg_temp', nullif(current_setting('search_path'), '')), false)
"""
_TABLES = """
SELECT n.nspname, c.relname, c.oid, pg_table_is_visible(c.oid), c.relispartition
FROM pg_catalog.pg_class AS c JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p', 'v', 'm', 'f') AND n.nspname NOT IN ('pg_catalog', 'information_schema')
AND NOT pg_is_other_temp_schema(n.oid) AND has_schema_privilege(n.oid, 'USAGE')
AND has_any_column_privilege(c.oid, 'SELECT') ORDER BY 1, 2
"""
# The type below a domain; of numeric with its digits. A column that this user may not read is left out.
_COLUMNS = """
SELECT a.attname, CASE WHEN b.typelem <> 0 AND b.typlen = -1 THEN 'ARRAY'
  WHEN b.typnamespace <> 'pg_catalog'::regnamespace THEN 'USER-DEFINED'
  WHEN b.oid = 'numeric'::regtype
  THEN format_type(b.oid, CASE WHEN t.typtype = 'd' THEN t.typtypmod ELSE a.atttypmod END)
  ELSE format_type(b.oid, NULL) END
FROM pg_catalog.pg_attribute AS a JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
JOIN pg_catalog.pg_type AS b ON b.oid = CASE WHEN t.typtype = 'd' THEN t.typbasetype ELSE t.oid END
WHERE a.attrelid = %s AND a.attnum > 0 AND NOT a.attisdropped
AND has_column_privilege(a.attrelid, a.attnum, 'SELECT') ORDER BY a.attnum
"""


def _find(connection: Any, table: str | None, shown: str) -> tuple[str, str, int]:
    """The schema, name and number of the one table meant. A name may hold dots, with its schema before it or not."""
    every = connection.execute(_TABLES).fetchall()
    if table is None:
        result = [row for row in every if row[3] and not row[4]]
        must(len(result) == 1, "table", f"must be given when {shown} has not exactly one table", len(result))
    else:
        named = [row for row in every if row[1] == table]
        # As PostgreSQL itself does: the first schema on the search path that has the name.
        result = [row for row in named if row[3]] or named
        result += [row for row in every if f"{row[0]}.{row[1]}" == table]
        must(len(result) == 1, "table", f"must be one table of {shown} that this user may read", table)
    return str(result[0][0]), str(result[0][1]), int(result[0][2])


# --- Spark ------------------------------------------------------------------------------------------------------------

# Loggers of the client that write a failed query's message, with the value in it, to standard error.
_TALKATIVE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.logging")


@dataclass(frozen=True, eq=False)
class Spark:
    """A session with the rows as a temporary view."""

    name: str
    session: Any = field(repr=False)
    copies: dict[str, Rows] = field(default_factory=dict, repr=False)
    dialect: str = field(default="spark", init=False)

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        frame = self.session.sql(sql)
        return frame.columns, [tuple(row) for row in frame.collect()]

    def send(self, sql: str, duck: Duck) -> str:
        # In one piece: a partition at a time would run the query once for each on some clusters.
        whole = self.session.sql(sql).toArrow()
        duck.connection.register("sent", whole.rename_columns([f"c{place}" for place in range(whole.num_columns)]))
        return "sent"

    def sentence(self, error: Exception) -> HybridpError | None:
        kind = type(error).__module__.split(".")[0]
        if kind not in ("pyspark", "grpc", "pyarrow"):
            return None
        told = _condition(error)
        if kind == "grpc" or "UNAVAILABLE" in told or "SESSION" in told:
            return InvalidInput(f"The Spark server of {self.name} must stay reachable until the release is done.")
        if told in ("OUT_OF_MEMORY", "UNABLE_TO_ACQUIRE_MEMORY"):
            return engine.memory_short()
        return UnusableRows(
            f"The rows of {self.name} must be readable, and numbers and texts that the query can compute with"
            f"{f' ({told})' if told else ''}."
        )

    def close(self) -> None:
        """Forget what was copied, and end the session."""
        for rows in self.copies.values():
            rows.close()
        with contextlib.suppress(Exception):  # it may be gone already
            self.session.stop()


def _condition(error: Exception) -> str:
    """The name of an error's condition, such as CAST_INVALID_INPUT: a word of Spark's, never a value."""
    try:
        result = str(error.getCondition() or "")  # type: ignore[attr-defined]
    except Exception:
        result = ""
    return result if result.replace("_", "").replace(".", "").isalnum() else ""


def open_spark(source: Source, table: str | None, undo: contextlib.ExitStack) -> Rows:
    """A view of the file or table."""
    at_cluster = source.location.lower().startswith("sc://")
    kind = None if at_cluster else parquet_or_csv(source.location)
    if at_cluster:
        must(table is not None, "table", "must be given with an sc:// URL", table)
    else:
        must(kind is not None, "path", "must end in .csv, .csv.gz, .tsv or .parquet for Spark", source.shown)
        must(table is None, "table", "is not for a file", table)
    session = _connected(source.location if at_cluster else source.engine)
    spark = Spark(table or os.path.basename(source.shown), session)
    undo.callback(spark.close)
    refused = InvalidInput(
        f"`table` must be a table that the cluster knows and this user may read. Got {table}."
        if table is not None
        else f"`path` must be a readable {kind} file that Spark sees. Got {source.shown}."
    )

    def look() -> dict[str, str]:
        frame = session.table(table) if table is not None else _file(session, source.location, kind)
        frame.createOrReplaceTempView(VIEW)
        return {column: _type_name(told) for column, told in frame.dtypes}

    types = attempt(spark, look, refused)
    return Rows(MappingProxyType(types), spark, decimal=source.decimal or "." * (kind == "CSV"))


def _file(session: Any, location: str, kind: str | None) -> Any:
    if kind == "Parquet":
        return session.read.parquet(location)
    # Every column is text, as in the embedded engine; a row with another number of fields fails the whole file.
    options = {"header": True, "inferSchema": False, "mode": "FAILFAST", "quote": '"', "escape": '"', "multiLine": True}
    return session.read.options(**options, sep="\t" if ".tsv" in location.lower() else ",").csv(location)


# An overflow is an error and never wraps; names that differ in case are different names; a label such as
# ${spark.app.name} stays what it is.
_SETTINGS_OF_SPARK = {"ansi.enabled": "true", "caseSensitive": "true", "variable.substitute": "false"}


def _connected(url: str) -> Any:
    sql = _pyspark()
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
    except (ImportError, SystemExit):  # under `python -c` PySpark takes a missing package for a reason to leave, with 0
        raise InvalidInput("`engine` must have all of the extra `spark` installed. Got PySpark alone.") from None
    session = None
    try:
        session = sql.SparkSession.builder.remote(url).create()
        # Some fifteen seconds, where the client by itself would try again for ten minutes.
        session.client.set_retry_policies([DefaultPolicy(max_retries=6, max_backoff=5_000)])
        for name, setting in _SETTINGS_OF_SPARK.items():
            session.conf.set(f"spark.sql.{name}", setting)
        return session
    except Exception:
        if session is not None:
            with contextlib.suppress(Exception):
                session.client.close()  # or it would try again when this process ends
    raise InvalidInput(f"`engine` must be a Spark Connect server that answers. Got {Source(url).shown}.")


def _pyspark() -> Any:
    import warnings

    # pandas is not used here: neither is its version anything to tell people about.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    # Said in a sentence, where it matters.
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]", category=UserWarning)
    try:
        import pyarrow  # noqa: F401
        import pyspark.sql as sql
    except ImportError:
        raise InvalidInput("`engine` must have PySpark installed (the extra `spark`). Got no pyspark.") from None
    from pyspark.logger import PySparkLogger

    for name in _TALKATIVE:
        PySparkLogger.getLogger(name).disabled = True
    return sql


# --- their words, where sqlglot does not translate by itself, or translates to something else -------------------------

Sql = Any  # Any sqlglot node: the library's own node classes share no public static type for operands.

# Digits may be grouped by single underscores, as DuckDB reads them. No backslash: dialects disagree about escaping it.
_DIGITS = "[0-9]+(_[0-9]+)*"
_NUMBER = f"^[+-]?({_DIGITS}[.]?({_DIGITS})?|[.]{_DIGITS})(e[+-]?EXPONENT)?$"
_EXPONENT = {"postgres": "0*[0-9]{1,4}", "spark": "[0-9]+"}  # PostgreSQL's decimals end at about 1e131072
_INFINITE, _MINUS_INFINITE, _NAN = "^[+]?(inf|infinity)$", "^-(inf|infinity)$", "^[+-]?nan$"
_BLANKS = " \t\n\r\f\v"
_LARGEST, _SMALLEST = "'1.797693134862315808e308'", "'2.4703282292062328e-324'"  # that doubles round to infinity and 0


def translated(sql: str, dialect: str) -> str:
    """A query in the words of one dialect, identifiers quoted.

    >>> translated("SELECT TRY_CAST(x AS DOUBLE) FROM t", "duckdb")
    'SELECT TRY_CAST("x" AS DOUBLE) FROM "t"'
    >>> "CASE" in translated("SELECT TRY_CAST(x AS DOUBLE) FROM t", "postgres")
    True
    """
    result: Sql = sqlglot.parse_one(sql, read="duckdb")
    for node in reversed(list(result.dfs())) if dialect != "duckdb" else ():  # what is inside a part comes before it
        changed = _changed(node, dialect)
        if changed is not node:
            node.replace(changed)
    return str(result.sql(dialect=dialect, identify=True, copy=False))


def _of(sql: str, dialect: str, **parts: Sql) -> Sql:
    """An expression in a dialect's own words, with parts in place of bare names."""
    made = sqlglot.parse_one(sql, read=dialect)
    for name in list(made.find_all(exp.Column)):
        name.replace(parts[name.name].copy())
    return exp.paren(made)


def _changed(node: Sql, dialect: str) -> Sql:
    if isinstance(node, exp.Anonymous) and node.name == "enum_code":
        return _code(node, dialect)
    if isinstance(node, exp.TryCast) and node.to.is_type("double"):
        return _as_number(node.this, dialect)
    if isinstance(node, exp.TryCast) and node.to.is_type("bigint"):  # DuckDB's rounds, a tie to the even one
        small = "CASE WHEN ABS(x) < CAST('9e18' AS DOUBLE PRECISION) THEN CAST(x AS BIGINT) END"
        return _of(small if dialect == "postgres" else "TRY_CAST(rint(x) AS BIGINT)", dialect, x=node.this)
    if isinstance(node, exp.Sum) and dialect == "spark":  # which alone does not widen a sum of 64 bits by itself
        cast = isinstance(node.this, exp.Cast) and node.this.to.is_type("double", "int")
        return node if cast else exp.Sum(this=exp.cast(node.this, "DECIMAL(20, 0)"))
    return node


def _code(node: Sql, dialect: str) -> Sql:
    tried = node.expressions[0]
    case = exp.Case(this=tried.this)
    for place, label in enumerate(tried.to.expressions):
        if dialect != "postgres" or "\0" not in label.name:  # which no text there can hold
            case = case.when(label, exp.Literal.number(place))
    return case if case.args["ifs"] else exp.cast(exp.Null(), "int")


def _as_number(this: Sql, dialect: str) -> Sql:
    """Text as a double, NULL where it is no number: the texts that DuckDB takes for numbers, and no others.

    PostgreSQL has no cast that gives NULL, and refuses numbers beyond a double's range; Spark takes '1d' for a number.
    """
    double = "DOUBLE PRECISION" if dialect == "postgres" else "DOUBLE"
    value = f"CAST(REPLACE(x, '_', '') AS {double})"
    if dialect == "postgres":
        size, none, all_of = (f"CAST({one} AS DECIMAL)" for one in ("REPLACE(x, '_', '')", _SMALLEST, _LARGEST))
        huge = f"CAST(SIGN({size}) AS {double}) * CAST('Infinity' AS {double})"
        value = (f"CASE WHEN ABS({size}) <= {none} THEN CAST('0' AS {double}) WHEN ABS({size}) >= {all_of} THEN {huge} "
                 f"ELSE CAST({size} AS {double}) END")  # fmt: skip
    words = {"Infinity": _INFINITE, "-Infinity": _MINUS_INFINITE, "NaN": _NAN}
    cases = {value: _NUMBER.replace("EXPONENT", _EXPONENT[dialect])}
    cases |= {f"CAST('{word}' AS {double})": pattern for word, pattern in words.items()}
    like = "~" if dialect == "postgres" else "RLIKE"
    branches = " ".join(f"WHEN LOWER(x) {like} '{pattern}' THEN {this}" for this, pattern in cases.items())
    return _of(f"CASE {branches} END", dialect, x=exp.Trim(this=this, expression=exp.Literal.string(_BLANKS)))
