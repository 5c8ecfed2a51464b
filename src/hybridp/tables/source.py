"""Opening a table: CSV, Parquet or a DuckDB file, read by an embedded DuckDB without network.

Whatever the file is, the open table is the view `rows`, so that every query is written against one name.
"""

from __future__ import annotations

import csv
import glob
import gzip
import os
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from hybridp.errors import InvalidInput, must
from hybridp.tables.engine import attempt, quoted, text

__all__ = ["VIEW", "Rows", "open_rows"]

VIEW = "rows"
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")
_DATABASES = (".duckdb", ".ddb", ".db")


@dataclass(frozen=True, eq=False)
class Rows:
    """An open table: its columns with their types, and the connection that answers queries about it.

    `columns` maps each name to DuckDB's name of its type; every CSV column is text (`VARCHAR`) and is converted by the
    query that reads it, because types guessed from the first rows would depend on the people in them.
    """

    name: str
    columns: Mapping[str, str]
    connection: Any = field(repr=False)
    spill: tempfile.TemporaryDirectory[str] = field(repr=False)

    def need(self, parameter: str, column: str) -> None:
        """Refuse a column that the table does not have."""
        # The other names are not listed: in a file without a header they would be somebody's values.
        must(column in self.columns, parameter, f"must be a column of {self.name}", f"`{column}`")

    def is_text(self, column: str) -> bool:
        return self.columns[column] == "VARCHAR" or self.columns[column].startswith("ENUM")

    def is_number(self, column: str) -> bool:
        return self.columns[column].removeprefix("U").startswith(_NUMBERS) and "[" not in self.columns[column]

    def close(self) -> None:
        """Close the connection and remove what was spilled to disk."""
        self.connection.close()
        self.spill.cleanup()

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def open_rows(
    path: str | os.PathLike[str],
    *,
    table: str | None = None,
    threads: int | None = None,
    memory_limit: str = "1GB",
) -> Rows:
    """Open a CSV file (.csv, .tsv, also .gz), Parquet file or pattern, or DuckDB file (read-only) as `Rows`.

    A CSV file has a header, one delimiter (comma, semicolon, tab or bar, whichever is the most frequent in the header)
    and double quotes; an empty field is missing. `table` names the table of a DuckDB file and may be left out when
    there is only one. `threads` is all cores by default. What does not fit in `memory_limit` is spilled to a private
    temporary directory, which `close` removes.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "people.csv")
    >>> _ = file.write_text("salary,trust\\n12,trusted\\n")
    >>> with open_rows(file) as rows:
    ...     print(dict(rows.columns))
    {'salary': 'VARCHAR', 'trust': 'VARCHAR'}
    >>> folder.cleanup()
    """
    where = os.fspath(path)
    name = Path(where).name
    must(threads is None or threads >= 1, "threads", "must be at least 1", threads)
    kind = kind_of(where)
    must(table is None or kind == "DuckDB", "table", "is only for a DuckDB file", table)
    files = [where] if os.path.isfile(where) else sorted(glob.glob(where, recursive=True)) if kind == "Parquet" else []
    must(bool(files), "path", "must be a file that exists", where)

    import duckdb

    spill = tempfile.TemporaryDirectory(prefix="hybridp-")
    connection: Any = None
    try:
        config: dict[str, Any] = {
            "memory_limit": memory_limit,
            "temp_directory": spill.name,
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
        }
        if threads is not None:
            config["threads"] = threads
        try:
            connection = duckdb.connect(":memory:", config=config)
        except duckdb.Error:
            connection = None
        must(connection is not None, "memory_limit", "must be a size such as 1GB", memory_limit)
        connection.execute("SET enable_progress_bar = false")

        def look() -> list[tuple[Any, ...]]:
            source = _database(connection, where, table) if kind == "DuckDB" else _scan(kind, files)
            connection.execute(f"CREATE TEMP VIEW {VIEW} AS SELECT * FROM {source}")
            found: list[tuple[Any, ...]] = connection.execute(f"DESCRIBE {VIEW}").fetchall()
            return found

        found = attempt(look, InvalidInput(f"`path` must be a readable {kind} file. Got {where}."))
    except BaseException:
        if connection is not None:
            connection.close()
        spill.cleanup()
        raise
    return Rows(name, MappingProxyType({row[0]: str(row[1]) for row in found}), connection, spill)


def kind_of(path: str) -> str:
    """CSV, Parquet or DuckDB, from the name's extension."""
    plain = path.lower()
    if plain.removesuffix(".gz").endswith((".csv", ".tsv")):
        return "CSV"
    if plain.endswith((".parquet", ".pq")):
        return "Parquet"
    must(plain.endswith(_DATABASES), "path", "must end in .csv, .csv.gz, .tsv, .parquet, .duckdb or .db", path)
    return "DuckDB"


def _scan(kind: str, files: list[str]) -> str:
    # The engine takes a path for a pattern, so that a file called `a[1].parquet` has to be escaped.
    paths = ", ".join(text(glob.escape(file)) for file in files)
    if kind == "Parquet":
        return f"read_parquet([{paths}])"
    names, delimiter = _header(files[0])
    columns = ", ".join(f"{text(name)}: 'VARCHAR'" for name in names)
    # Nothing is guessed: a sniffer drops the rows above the ones that it likes best.
    return (
        f"read_csv([{paths}], auto_detect = false, header = true, delim = {text(delimiter)}, quote = '\"', "
        f"escape = '\"', columns = {{{columns}}})"
    )


def _header(file: str) -> tuple[list[str], str]:
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
