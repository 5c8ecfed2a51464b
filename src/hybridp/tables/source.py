"""Opening a table: a CSV, Parquet or DuckDB file, or a table of PostgreSQL or Spark.

Whatever holds the rows, every query is written against one name, `rows`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal, get_args

from hybridp.errors import InvalidInput, did_you_mean, must
from hybridp.tables.engine import Engine

__all__ = ["ENGINES", "VIEW", "EngineName", "Rows", "Source", "open_rows", "shown"]

VIEW = "rows"
EngineName = Literal["duckdb", "postgresql", "spark"]
ENGINES: tuple[str, ...] = get_args(EngineName)
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_WHOLE_DECIMAL = re.compile(r"DECIMAL\([0-9]+, ?0\)")
_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")
# Two letters at least: one is a drive. `pathlib` leaves one slash of a URL's two.
_URL = re.compile(r"([a-z][a-z0-9+.:-]+):/", re.IGNORECASE)
_STRING = re.compile(r"\bpassword\s*=", re.IGNORECASE)


@dataclass(frozen=True, repr=False)
class Source:
    """Where rows live: a path or a connection URL, and the engine that reads it.

    >>> Source("people.parquet").engine, Source("postgresql://db.example/people").engine
    ('duckdb', 'postgresql')
    >>> Source("sc://spark.example:15002/;token=abc").shown
    'sc://spark.example:15002'
    """

    location: str
    engine: str = ""

    def __post_init__(self) -> None:
        start = self.location.lower()
        natural = "postgresql" if start.startswith(_POSTGRES) else "spark" if start.startswith("sc://") else "duckdb"
        engine = self.engine or natural
        remote = engine.startswith("sc://")
        must(engine in ENGINES or remote, "engine", f"must be one of {', '.join(ENGINES)} or an sc:// URL", self._kind)
        ok = natural == "duckdb" or natural == engine
        must(ok, "engine", f"must be {natural} for this URL", self._kind)
        if engine == "postgresql" and natural != engine:
            raise InvalidInput(
                "`path` must be a URL such as postgresql://user@host/database for this engine. Got a path."
            )
        if engine == "duckdb" and self.shown != self.location:
            raise InvalidInput(
                "`path` must be a file, or a URL that starts with postgresql:// or sc://. "
                f"Got {self.shown or 'a connection string'}."
            )
        object.__setattr__(self, "engine", engine)

    @property
    def _kind(self) -> str:
        return shown(self.engine)

    @property
    def shown(self) -> str:
        """The location without a password, token or other option: fit for a message."""
        return shown(self.location)

    def __fspath__(self) -> str:
        return self.location

    def __repr__(self) -> str:
        return f"Source({self.shown!r}, {self._kind!r})"

    def __str__(self) -> str:
        return self.shown


def shown(location: str | os.PathLike[str]) -> str:
    """A location without a password, token or other option: fit for a message.

    >>> shown("postgresql://ann:hunter2@db.example/people"), shown("folder/people.csv")
    ('postgresql://db.example/people', 'folder/people.csv')
    """
    from urllib.parse import urlsplit

    location = os.fspath(location)
    url = _URL.match(location)
    if url is None:
        return "" if _STRING.search(location) else location
    scheme = url[1]
    try:
        parts = urlsplit(location)
        host, port = parts.hostname or "", f":{parts.port}" if parts.port else ""
    except ValueError:
        return f"{scheme}://"
    # A password with a slash or a number sign ends the host too early; what follows is then not a path.
    if ":" in scheme or "://" not in location or ("@" in location and "@" not in parts.netloc):
        return f"{scheme}://"
    # The path of a Spark Connect URL starts its options, among them the token.
    return f"{scheme}://{host}{port}" + ("" if scheme == "sc" else parts.path)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


@dataclass(frozen=True, eq=False)
class Rows:
    """An open table: its columns with their types, and the engine that answers queries about it.

    `columns` maps each name to DuckDB's name of its type; every CSV column is text (`VARCHAR`) and is converted by the
    query that reads it, because types guessed from the first rows would depend on the people in them.
    """

    name: str
    columns: Mapping[str, str]
    engine: Engine = field(repr=False)

    def need(self, parameter: str, column: str) -> None:
        """Refuse a column that the table does not have."""
        if column in self.columns:
            return
        # Names are not listed: in a file without a header they would be somebody's values. A header has no numbers.
        header = not any(any(sign.isdigit() for sign in name) and _is_number(name) for name in self.columns)
        hint = did_you_mean(column, self.columns) if header else ""
        raise InvalidInput(f"`{parameter}` must be a column of {self.name}. Got `{column}`.{hint}")

    def is_text(self, column: str) -> bool:
        return self.columns[column] == "VARCHAR" or self.columns[column].startswith("ENUM")

    def is_number(self, column: str) -> bool:
        return self.columns[column].removeprefix("U").startswith(_NUMBERS) and "[" not in self.columns[column]

    def is_whole(self, column: str) -> bool:
        kind = self.columns[column]
        # An unsigned number of 64 bits is a DECIMAL(20,0) elsewhere.
        return kind.removeprefix("U") in _WHOLE or _WHOLE_DECIMAL.fullmatch(kind) is not None

    def need_identifier(self, parameter: str, column: str) -> None:
        """Refuse a column whose text form is not the same on every engine, and with it the sample made from it."""
        ok = self.is_text(column) or self.is_whole(column) or self.columns[column] in ("UUID", "DATE")
        must(ok, parameter, "must hold text, whole numbers, dates or UUIDs", f"`{column}` of {self.columns[column]}")

    def close(self) -> None:
        """Give back what the engine holds."""
        self.engine.close()

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
    """Open a file or a table of a database as `Rows`. A `Source` chooses the engine; a path alone is DuckDB's.

    - A CSV file (.csv, .tsv, also .gz), a Parquet file or pattern, or a DuckDB file (read-only). A CSV file has a
      header, one delimiter (comma, semicolon, tab or bar, whichever is the most frequent in the header) and double
      quotes; an empty field is missing.
    - ``postgresql://user@host/database``: a table or view of PostgreSQL, read in one snapshot.
    - ``sc://host:15002``: a table of a Spark cluster, through Spark Connect; or a CSV or Parquet file with
      ``Source(path, "spark")`` (a local Spark) or ``Source(path, "sc://host:15002")`` (a path that the cluster sees).

    `table` may be left out for a DuckDB file or a PostgreSQL schema with only one table. `threads` (all cores by
    default) and `memory_limit` are for DuckDB and a local Spark; what does not fit is spilled to a private temporary
    directory, which `close` removes.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "people.csv")
    >>> _ = file.write_text("salary,trust\\n12,trusted\\n")
    >>> with open_rows(file) as rows:
    ...     print(dict(rows.columns))
    {'salary': 'VARCHAR', 'trust': 'VARCHAR'}
    >>> folder.cleanup()
    """
    source = path if isinstance(path, Source) else Source(os.fspath(path))
    must(threads is None or threads >= 1, "threads", "must be at least 1", threads)
    engine: Engine
    if source.engine == "duckdb":
        from hybridp.tables.duck import open_duck

        engine, columns = open_duck(source.location, VIEW, table=table, threads=threads, memory_limit=memory_limit)
        name = os.path.basename(source.location)
    elif source.engine == "postgresql":
        from hybridp.tables.postgres import open_postgres

        engine, columns, name = open_postgres(source.location, source.shown, table)
    else:
        from hybridp.tables.spark import open_spark

        engine, columns, name = open_spark(source, VIEW, table, threads=threads, memory_limit=memory_limit)
    return Rows(name, MappingProxyType(columns), engine)
