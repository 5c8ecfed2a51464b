"""Asking an engine: where its errors are replaced; and DuckDB, embedded and without network, for files and frames.

An engine's message may quote the value that it could not convert. No such text leaves this module: it is replaced by
one sentence, and the original exception is not even kept as the context of the new one.
"""

from __future__ import annotations

import csv
import glob
import gzip
import itertools
import os
import re
import tempfile
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np

from hybridp.errors import HybridpError, InvalidInput, UnusableRows, must
from hybridp.tables.sql import VIEW, chosen, column, literal, select

if TYPE_CHECKING:
    from hybridp.tables.source import Rows, Source

__all__ = ["DECIMAL", "Duck", "Engine", "answers", "arrays", "attempt", "drop", "fresh", "give", "keep", "kind_of"]
__all__ += ["open_duck", "parquet_or_csv", "read_header", "read_kept", "stated_decimal", "stream", "unreadable"]
__all__ += ["array_of", "derived", "files_of", "memory_short", "type_name", "without_bar"]

T = TypeVar("T")
_serial = itertools.count()


class Engine(Protocol):
    """What a place where rows live can do. Tables that it keeps are its own, and gone when it is closed."""

    @property
    def name(self) -> str:
        """What messages call the rows."""

    @property
    def dialect(self) -> str:
        """sqlglot's name of its SQL."""

    @property
    def source(self) -> Any:
        """What stands for the rows in a query, where the engine has no view of them."""

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """The rows that answer a query, each as a dictionary by column name."""

    def columns(self, sql: str) -> dict[str, Any]:
        """The columns that answer a query, as NumPy arrays (masked where a value is missing)."""

    def derive(self, columns: Mapping[str, str], where: str | None = None) -> Engine:
        """The engine whose rows have these columns, computed from theirs, in place of those of the same names.

        With `where`, which reads the new columns, only the rows for which it holds.
        """

    def keep(self, table: str, sql: str) -> None:
        """Keep the answer as a table."""

    def drop(self, table: str) -> None:
        """Forget a table, if there is one of this name."""

    def give(self, table: str, fields: Mapping[str, Any]) -> None:
        """Arrays as a table, which `drop` forgets."""

    def parts(self, table: str, chunk: int) -> Generator[dict[str, Any]]:
        """The columns of a table that was kept, some rows at a time and in their order."""

    def sentence(self, error: Exception) -> HybridpError | None:
        """What to say in place of an error of this engine; None for an error that is not the engine's."""

    def close(self) -> None:
        """Give everything back."""


def fresh(purpose: str) -> str:
    """A new name for a table."""
    return f"{purpose}_{next(_serial)}"


def _sql(rows: Rows, query: str) -> str:
    """The query in the engine's own words, about the rows that are meant. Only here one is run on them."""
    rows.ran.add(rows.name)
    source, dialect = rows.engine.source if rows.part is None else rows.part, rows.engine.dialect
    if dialect == "duckdb" and source is None:
        return query
    from hybridp.tables.dialects import translated

    return translated(query, dialect, source)


def attempt(engine: Engine, call: Callable[[], T], sentence: HybridpError | None = None) -> T:
    """The result of `call`, or one sentence in place of whatever the engine raises in it: `sentence`, where given."""
    try:
        return call()
    except HybridpError:
        raise
    except Exception as error:
        # Bytes that are no Unicode are the rows' doing, whoever reads them; such an error holds the whole text.
        problem = unreadable(engine.name) if isinstance(error, UnicodeError) else engine.sentence(error)
        if problem is None:
            raise
        if sentence is not None and isinstance(problem, UnusableRows):
            problem = sentence
    # Raised outside the handlers, so that the engine's exception is not attached to this one.
    raise problem


def unreadable(name: str) -> UnusableRows:
    return UnusableRows(
        f"The rows of {name} must be readable: a damaged file, text that is not UTF-8, or a row with "
        "more or fewer fields than the header is refused."
    )


def answers(rows: Rows, query: str) -> list[dict[str, Any]]:
    """The rows that answer a query, each as a dictionary by column name."""
    return attempt(rows.engine, lambda: rows.engine.ask(_sql(rows, query)))


def arrays(rows: Rows, query: str) -> dict[str, Any]:
    """The columns that answer a query, as NumPy arrays (masked where a value is missing)."""
    return attempt(rows.engine, lambda: rows.engine.columns(_sql(rows, query)))


def keep(rows: Rows, table: str, query: str) -> None:
    """Let the engine keep an answer, within its memory and then on disk, until `drop`."""
    attempt(rows.engine, lambda: rows.engine.keep(table, _sql(rows, query)))


def drop(rows: Rows, *tables: str) -> None:
    """Forget tables that were kept; those that were not are ignored."""
    for table in tables:
        attempt(rows.engine, lambda table=table: rows.engine.drop(table))  # type: ignore[misc]


def give(rows: Rows, fields: Mapping[str, Any]) -> str:
    """Arrays as a table of the engine, until `drop`; gives its name."""
    name = fresh("given")
    attempt(rows.engine, lambda: rows.engine.give(name, fields))
    return name


def stream(rows: Rows, query: str, chunk: int) -> Iterator[dict[str, Any]]:
    """The columns that answer a query, at most `chunk` rows at a time, in its order.

    The query runs at the call, and its answer is kept: other queries may run while the parts are read.
    """
    must(chunk >= 1, "chunk", "must be at least 1", chunk)
    table = fresh("stream")
    keep(rows, table, query)
    return _once(rows, table, chunk)


def _once(rows: Rows, table: str, chunk: int) -> Iterator[dict[str, Any]]:
    try:
        yield from read_kept(rows, table, chunk)
    finally:
        drop(rows, table)


def read_kept(rows: Rows, table: str, chunk: int) -> Iterator[dict[str, Any]]:
    """The columns of a table that was kept, at most `chunk` rows at a time, in the order of its query."""
    parts = attempt(rows.engine, lambda: rows.engine.parts(table, chunk))
    try:
        while (part := attempt(rows.engine, lambda: next(parts, None))) is not None:
            yield part
    finally:
        parts.close()


def memory_short() -> InvalidInput:
    return InvalidInput("`memory_limit` must be larger for this table, or the disk emptier.")


def derived(there: Iterable[str], columns: Mapping[str, str], before: str, where: str | None) -> str:
    """The query of `Engine.derive`, over a view with these columns."""
    made = select(chosen(there) | {**columns}, before)
    return made if where is None else f"SELECT * FROM ({made}) AS derived WHERE {where}"


_TYPES = {"int": "INTEGER", "real": "FLOAT", "double precision": "DOUBLE", "text": "VARCHAR", "name": "VARCHAR"}
_TYPES |= {"USER-DEFINED": "VARCHAR"}  # an enumeration; whatever else it is has a text form too


def type_name(told: str) -> str:
    """A type as a catalogue spells it, by DuckDB's name, which every other room knows.

    >>> type_name("numeric(8,2)"), type_name("character varying"), type_name("smallint")
    ('DECIMAL(8,2)', 'VARCHAR', 'SMALLINT')
    """
    words = told.startswith(("varchar", "char", "string"))
    return _TYPES.get(told, "VARCHAR" if words else told.replace("numeric", "decimal", 1).upper())


def array_of(values: list[Any]) -> Any:
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


def files_of(path: str, *, pattern: bool) -> list[str]:
    """The files that are meant, of a pattern perhaps several."""
    result = [path] if os.path.isfile(path) else sorted(glob.glob(path, recursive=True)) if pattern else []
    must(bool(result), "path", "must be a file that exists", path)
    return result


# --- DuckDB -----------------------------------------------------------------------------------------------------------

DECIMAL = "hybridp_decimal"
"""What a Parquet file that hybridp wrote calls the decimal sign of the numbers that are text in it."""
_DATABASES = (".duckdb", ".ddb", ".db")


@dataclass(frozen=True, eq=False)
class Duck:
    """An in-memory DuckDB with the rows as a view; what it spills lies in a private folder."""

    name: str
    connection: Any = field(repr=False)
    spill: tempfile.TemporaryDirectory[str] = field(repr=False)
    dialect: str = field(default="duckdb", init=False)
    source: None = field(default=None, init=False)

    def execute(self, sql: str) -> Any:
        """Run one statement; the connection holds its result."""
        return attempt(self, lambda: self.connection.execute(sql))

    def ask(self, sql: str) -> list[dict[str, Any]]:
        result = self.connection.execute(sql)
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def columns(self, sql: str) -> dict[str, Any]:
        result: dict[str, Any] = self.connection.execute(sql).fetchnumpy()
        return result

    def derive(self, columns: Mapping[str, str], where: str | None = None) -> Duck:
        self.replace_view(derived(self.types(), columns, (before := fresh("before")), where), before)
        return self

    def types(self) -> dict[str, str]:
        """The columns of the rows, and DuckDB's names of their types."""
        return {row[0]: str(row[1]) for row in self.connection.execute(f"DESCRIBE {VIEW}").fetchall()}

    def replace_view(self, sql: str, before: str) -> None:
        """Let the rows be what a query makes of them, which calls them `before`. Nothing is read here."""
        self.connection.execute(f"ALTER VIEW {VIEW} RENAME TO {before}")
        self.connection.execute(f"CREATE TEMP VIEW {VIEW} AS {sql}")

    def keep(self, table: str, sql: str) -> None:
        self.connection.execute(f"CREATE TEMP TABLE {column(table)} AS {sql}")

    def drop(self, table: str) -> None:
        import duckdb

        try:
            self.connection.unregister(table)
        except duckdb.ConnectionException:
            return  # closed, and the table gone with it
        self.connection.execute(f"DROP TABLE IF EXISTS {column(table)}")

    def give(self, table: str, fields: Mapping[str, Any]) -> None:
        self.connection.register(table, dict(fields))

    def parts(self, table: str, chunk: int) -> Generator[dict[str, Any]]:
        start = 0  # a connection holds one result at a time: rows are found by their numbers
        while True:
            here = f"rowid >= {start:d} AND rowid < {start + chunk:d}"
            part = self.columns(f"SELECT * FROM {column(table)} WHERE {here} ORDER BY rowid")
            if not len(next(iter(part.values()))):
                return
            yield part
            start += chunk

    def sentence(self, error: Exception) -> HybridpError | None:
        import duckdb

        # Ctrl-C inside a query comes as an error of the query, of one kind or another.
        if isinstance(error, duckdb.InterruptException) or str(error) == "Query interrupted":
            raise KeyboardInterrupt from None
        if isinstance(error, duckdb.OutOfMemoryException):
            return memory_short()
        return unreadable(self.name) if isinstance(error, duckdb.Error) else None

    def close(self) -> None:
        """Close the connection and remove what was spilled to disk."""
        self.connection.close()
        self.spill.cleanup()


def without_bar(connection: Any) -> None:
    """No progress bar of DuckDB's own. It is on only where it could be drawn, and elsewhere may not even be named."""
    (shown,) = connection.execute("SELECT current_setting('enable_progress_bar')").fetchone()
    if shown:
        connection.execute("SET enable_progress_bar = false")


def open_duck(
    source: Source, *, table: str | None, threads: int | None, memory_limit: str
) -> tuple[Duck, dict[str, str]]:
    """The engine with a view of the rows, and the types of its columns."""
    where = source.location
    kind = "table" if source.held is not None else kind_of(where)
    must(table is None or kind == "DuckDB", "table", "is only for a DuckDB file", table)
    asked = None
    if source.query is not None:
        from hybridp.tables.dialects import parse_query, row_by_row, table_of

        asked = parse_query(source.query, "duckdb")
        named = table_of(asked, "duckdb", tables=kind == "DuckDB")
        table = named if kind == "DuckDB" else None
    files = [] if source.held is not None else files_of(where, pattern=kind == "Parquet")
    refused = InvalidInput(f"`path` must be a readable {kind} file. Got {source.shown}.")

    spill = tempfile.TemporaryDirectory(prefix="hybridp-")
    engine: Duck | None = None
    try:
        name = source.held or Path(where).name
        engine = Duck(name, _connected(spill.name, threads, memory_limit), spill)
        run = engine.connection.execute

        def look() -> None:
            if source.held is not None:
                from hybridp.tables.frames import put

                relation = put(engine.connection, where)
            else:
                relation = _database(engine.connection, where, table) if kind == "DuckDB" else _scan(kind, files)
            # What has no type, because there is nothing in it, is text without a letter.
            empty = [row[0] for row in run(f"DESCRIBE SELECT * FROM {relation}").fetchall() if "NULL" in str(row[1])]
            instead = ", ".join(f"CAST({column(name)} AS VARCHAR) AS {column(name)}" for name in empty)
            run(f"CREATE TEMP VIEW {VIEW} AS SELECT * {f'REPLACE ({instead}) ' if empty else ''}FROM {relation}")

        # A stream is read here, whole: what its rows hold may be why it fails, which is then no fault of the form.
        attempt(engine, look, None if source.held is not None else refused)
        if asked is not None:
            before, unknown = fresh("before"), InvalidInput("`query` must combine columns as their types allow.")
            sql = row_by_row(asked, "duckdb", before, engine.types(), source.public)
            attempt(engine, lambda: engine.replace_view(sql, before), unknown)
        result = attempt(engine, engine.types, refused)
    except BaseException:
        if engine is not None:
            engine.connection.close()
        spill.cleanup()
        raise
    # The words of an enumeration are of the rows: they belong in no message.
    return engine, {name: re.sub(r"ENUM\(.*\)", "ENUM", kind) for name, kind in result.items()}


def _connected(spill: str, threads: int | None, memory_limit: str) -> Any:
    import duckdb

    config: dict[str, Any] = {
        "memory_limit": memory_limit,
        "temp_directory": spill,
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        # A thread that took a task whole would end it before it heard of Ctrl-C, be it hours later.
        "scheduler_process_partial": "true",
    }
    if threads is not None:
        config["threads"] = threads
    connection: Any = None
    try:
        connection = duckdb.connect(":memory:", config=config)
    except duckdb.Error:
        connection = None
    must(connection is not None, "memory_limit", "must be a size such as 1GB", memory_limit)
    without_bar(connection)
    # A Parquet file's statistics leave NaN out, and the optimiser takes them at their word: a NaN would count as a
    # value inside the least and the greatest, and so be neither refused nor replaced.
    connection.execute("SET disabled_optimizers = 'statistics_propagation'")
    return connection


def parquet_or_csv(path: str) -> str | None:
    """CSV or Parquet, from the name's extension; None for anything else."""
    plain = path.lower()
    if plain.removesuffix(".gz").endswith((".csv", ".tsv")):
        return "CSV"
    return "Parquet" if plain.endswith((".parquet", ".pq")) else None


def kind_of(path: str) -> str:
    """CSV, Parquet or DuckDB, from the name's extension."""
    kind = parquet_or_csv(path)
    if kind is not None:
        return kind
    known = path.lower().endswith(_DATABASES)
    must(known, "path", "must end in .csv, .csv.gz, .tsv, .parquet, .duckdb or .db", path)
    return "DuckDB"


def stated_decimal(engine: Duck, path: str) -> str:
    """The decimal sign that Parquet files state of their text, if all of them state the same; empty without one."""
    stated = f"SELECT DISTINCT decode(value) FROM parquet_kv_metadata({literal(path)})"
    result = engine.execute(f"{stated} WHERE decode(key) = '{DECIMAL}'").fetchall()
    return str(result[0][0]) if len(result) == 1 and result[0][0] in (".", ",") else ""


def _scan(kind: str, files: list[str]) -> str:
    # The engine takes a path for a pattern, so that a file called `a[1].parquet` has to be escaped.
    paths = ", ".join(literal(glob.escape(file)) for file in files)
    if kind == "Parquet":
        return f"read_parquet([{paths}])"
    names, delimiter = read_header(files[0])
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    # Nothing is guessed: a sniffer drops the rows above the ones that it likes best.
    return (
        f"read_csv([{paths}], auto_detect = false, header = true, delim = {literal(delimiter)}, quote = '\"', "
        f"escape = '\"', columns = {{{columns}}})"
    )


def read_header(file: str) -> tuple[list[str], str]:
    """The names in the first line of a CSV file, and its delimiter."""
    opened = gzip.open if file.lower().endswith(".gz") else open
    names: list[str] = []
    delimiter = ","
    try:
        with opened(file, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            first = lines.readline()
            outside_quotes = re.sub('"[^"]*"', "", first)
            delimiter = "\t" if ".tsv" in Path(file).name.lower() else max(",;\t|", key=outside_quotes.count)
            lines.seek(0)
            names = next(csv.reader(lines, delimiter=delimiter), [])
            readable = "".join(names).encode() != b""
    except (OSError, EOFError, UnicodeError, csv.Error):
        readable = False
    must(readable, "path", "must be a CSV file in UTF-8 that starts with a header", file)
    names = [name or f"column{index}" for index, name in enumerate(names)]
    # Column names are compared without regard to case by most engines.
    distinct = len({name.lower() for name in names}) == len(names)
    must(distinct, "path", "must have a header without repeated column names", file)
    return names, delimiter


def _database(connection: Any, path: str, table: str | None) -> str:
    connection.execute(f"ATTACH {literal(path)} AS source (READ_ONLY)")
    result = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = 'source' ORDER BY 1, 2"
    ).fetchall()
    known = ", ".join(f"`{name}`" for _, name in result) or "none"
    if table is None:
        must(len(result) == 1, "table", f"must be given when a file has not exactly one table ({known})", table)
    chosen = [row for row in result if table in (None, row[1])]
    must(len(chosen) == 1, "table", f"must be one table of the file ({known})", table)
    schema, name = chosen[0]
    return f"source.{column(schema)}.{column(name)}"
