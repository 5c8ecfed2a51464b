"""DuckDB, embedded and without network: CSV, Parquet and DuckDB files."""

from __future__ import annotations

import csv
import glob
import gzip
import os
import re
import tempfile
from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hybridp.errors import HybridpError, InvalidInput, must
from hybridp.tables.engine import attempt, fresh, memory_short, quoted, text, unreadable

__all__ = ["Duck", "kind_of", "open_duck", "parquet_or_csv", "read_header", "without_bar"]

_DATABASES = (".duckdb", ".ddb", ".db")


@dataclass(frozen=True, eq=False)
class Duck:
    """An in-memory DuckDB with the rows as a view; what it spills lies in a private folder."""

    name: str
    connection: Any = field(repr=False)
    spill: tempfile.TemporaryDirectory[str] = field(repr=False)

    @property
    def dialect(self) -> str:
        return "duckdb"

    @property
    def source(self) -> None:
        return None

    def execute(self, sql: str) -> Any:
        """Run one statement; the connection holds its result."""
        return attempt(self, lambda: self.connection.execute(sql))

    def ask(self, sql: str) -> list[dict[str, Any]]:
        result = self.connection.execute(sql)
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def columns(self, sql: str) -> dict[str, Any]:
        found: dict[str, Any] = self.connection.execute(sql).fetchnumpy()
        return found

    def keep(self, table: str, sql: str) -> None:
        self.connection.execute(f"CREATE TEMP TABLE {quoted(table)} AS {sql}")

    def drop(self, table: str) -> None:
        import duckdb

        try:
            self.connection.unregister(table)
        except duckdb.ConnectionException:
            return  # closed, and the table gone with it
        self.connection.execute(f"DROP TABLE IF EXISTS {quoted(table)}")

    def give(self, table: str, fields: Mapping[str, Any]) -> None:
        self.connection.register(table, dict(fields))

    def stream(self, sql: str, chunk: int) -> Generator[dict[str, Any]]:
        # A connection holds one result at a time, and temporary tables are its own: rows are numbered in a table.
        table = fresh("stream")
        self.keep(table, sql)
        return self._stream(table, chunk)

    def _stream(self, table: str, chunk: int) -> Generator[dict[str, Any]]:
        start = 0
        try:
            while True:
                here = f"rowid >= {start:d} AND rowid < {start + chunk:d}"
                part = self.columns(f"SELECT * FROM {quoted(table)} WHERE {here} ORDER BY rowid")
                if not len(next(iter(part.values()))):
                    return
                yield part
                start += chunk
        finally:
            self.drop(table)

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
    where: str, view: str, *, table: str | None, threads: int | None, memory_limit: str
) -> tuple[Duck, dict[str, str]]:
    """The engine with a view of the file, and the types of its columns."""
    kind = kind_of(where)
    must(table is None or kind == "DuckDB", "table", "is only for a DuckDB file", table)
    files = [where] if os.path.isfile(where) else sorted(glob.glob(where, recursive=True)) if kind == "Parquet" else []
    must(bool(files), "path", "must be a file that exists", where)

    import duckdb

    spill = tempfile.TemporaryDirectory(prefix="hybridp-")
    engine: Duck | None = None
    try:
        config: dict[str, Any] = {
            "memory_limit": memory_limit,
            "temp_directory": spill.name,
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        if threads is not None:
            config["threads"] = threads
        connection: Any = None
        try:
            connection = duckdb.connect(":memory:", config=config)
        except duckdb.Error:
            connection = None
        must(connection is not None, "memory_limit", "must be a size such as 1GB", memory_limit)
        engine = Duck(Path(where).name, connection, spill)
        without_bar(connection)
        # A Parquet file's statistics leave NaN out, and the optimiser takes them at their word: a NaN would count as a
        # value inside the least and the greatest, and so be neither refused nor replaced.
        connection.execute("SET disabled_optimizers = 'statistics_propagation'")

        def look() -> list[tuple[Any, ...]]:
            source = _database(connection, where, table) if kind == "DuckDB" else _scan(kind, files)
            connection.execute(f"CREATE TEMP VIEW {view} AS SELECT * FROM {source}")
            found: list[tuple[Any, ...]] = connection.execute(f"DESCRIBE {view}").fetchall()
            return found

        found = attempt(engine, look, InvalidInput(f"`path` must be a readable {kind} file. Got {where}."))
    except BaseException:
        if engine is not None:
            engine.connection.close()
        spill.cleanup()
        raise
    return engine, {row[0]: str(row[1]) for row in found}


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


def _scan(kind: str, files: list[str]) -> str:
    # The engine takes a path for a pattern, so that a file called `a[1].parquet` has to be escaped.
    paths = ", ".join(text(glob.escape(file)) for file in files)
    if kind == "Parquet":
        return f"read_parquet([{paths}])"
    names, delimiter = read_header(files[0])
    columns = ", ".join(f"{text(name)}: 'VARCHAR'" for name in names)
    # Nothing is guessed: a sniffer drops the rows above the ones that it likes best.
    return (
        f"read_csv([{paths}], auto_detect = false, header = true, delim = {text(delimiter)}, quote = '\"', "
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
    connection.execute(f"ATTACH {text(path)} AS source (READ_ONLY)")
    found = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = 'source' ORDER BY 1, 2"
    ).fetchall()
    known = ", ".join(f"`{name}`" for _, name in found) or "none"
    if table is None:
        must(len(found) == 1, "table", f"must be given when a file has not exactly one table ({known})", table)
    chosen = [row for row in found if table in (None, row[1])]
    must(len(chosen) == 1, "table", f"must be one table of the file ({known})", table)
    schema, name = chosen[0]
    return f"source.{quoted(schema)}.{quoted(name)}"
