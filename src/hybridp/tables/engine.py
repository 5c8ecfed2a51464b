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
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import numpy as np

from hybridp.errors import HybridpError, InvalidInput, UnusableRows, must
from hybridp.tables.sql import VIEW, chosen, column, literal, select

if TYPE_CHECKING:
    from hybridp.tables.servers import Postgres, Spark
    from hybridp.tables.source import Rows, Source

__all__ = ["DECIMAL", "Duck", "Engine", "answers", "arrays", "attempt", "drop", "fresh", "give", "keep"]
__all__ += ["filled_columns", "held", "kind_of", "local_copy", "memory_short", "on_duck", "open_duck", "parquet_or_csv"]
__all__ += ["read_header", "read_kept", "sql_for", "stated_decimal", "stream", "type_name", "unreadable"]
__all__ += ["without_bar"]

Engine: TypeAlias = "Duck | Postgres | Spark"
"""Where rows live. It answers queries about them (`ask`), has one sentence for each of its errors, and gives everything
back (`close`). Any but DuckDB can `send` columns to one, where whatever is kept is kept (`local_copy`)."""
T = TypeVar("T")
_serial = itertools.count()


def fresh(purpose: str) -> str:
    """A new name for a table."""
    return f"{purpose}_{next(_serial)}"


def sql_for(rows: Rows, query: str) -> str:
    """The query in the engine's own words, about the rows that are meant. Only what was made here is run on them."""
    dialect = rows.engine.dialect
    if rows.part is not None:
        query = f"WITH {VIEW} AS {'NOT MATERIALIZED ' if dialect == 'duckdb' else ''}({rows.part}) {query}"
    if dialect == "duckdb":
        return query
    from hybridp.tables.dialects import translated

    return translated(query, dialect)


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
    names, result = attempt(rows.engine, lambda: rows.engine.ask(sql_for(rows, query)))
    return [dict(zip(names, row, strict=True)) for row in result]


def arrays(rows: Rows, query: str) -> dict[str, Any]:
    """The columns that answer a query to DuckDB, as NumPy arrays (masked where a value is missing)."""
    result: dict[str, Any] = on_duck(rows).execute(sql_for(rows, query)).fetchnumpy()
    return result


# --- what is kept: always in a private DuckDB -------------------------------------------------------------------------

_KNOWN = re.compile(r"(TINY|SMALL|BIG|HUGE)INT|INTEGER|FLOAT|DOUBLE|BOOLEAN|DATE|UUID|DECIMAL\(([12]?\d|3[0-8]),.+\)")


def local_copy(rows: Rows, columns: Iterable[str | None]) -> Rows:
    """The rows, or of another engine's rows these columns, sent once: kept within a limit of memory, then on disk.

    No row can make it fail: what a declared type cannot hold, such as NaN in a decimal number, is missing.
    """
    if isinstance(rows.engine, Duck):
        return rows
    wanted = {*columns}
    kinds = {name: kind for name, kind in rows.columns.items() if name in wanted}
    engine, sql = rows.engine, sql_for(rows, select(chosen(kinds), VIEW))
    if sql not in engine.copies:
        duck, table = new_duck(rows.name), fresh("copied")
        part = select(chosen(kinds), table)
        engine.copies[sql] = replace(rows, columns=MappingProxyType(kinds), engine=duck, part=part)
        arriving = attempt(engine, lambda: engine.send(sql, duck))
        typed = {}
        for place, (name, kind) in enumerate(kinds.items()):
            known = kind if _KNOWN.fullmatch(kind) else "DOUBLE" if kind.startswith("DECIMAL") else "VARCHAR"
            typed[name] = f"TRY_CAST(c{place} AS {known})"
        duck.execute(f"CREATE TEMP TABLE {table} AS {select(typed, arriving)}")
        for file in Path(duck.spill.name).glob("sent.*"):
            file.unlink()
    return engine.copies[sql]


def on_duck(rows: Rows) -> Duck:
    """DuckDB, which alone keeps tables, and the order of a file's rows."""
    if not isinstance(rows.engine, Duck):
        raise InvalidInput("`path` must be a file to be copied with reports. Got a table of another engine.")
    return rows.engine


def keep(rows: Rows, table: str, query: str) -> None:
    """Keep an answer, within the limit of memory and then on disk, until `drop`."""
    on_duck(rows).execute(f"CREATE TEMP TABLE {column(table)} AS {sql_for(rows, query)}")


def drop(rows: Rows, *tables: str) -> None:
    """Forget tables that were kept or given; those that were not are ignored."""
    import duckdb

    for table in tables:
        try:
            on_duck(rows).connection.unregister(table)
        except duckdb.ConnectionException:
            return  # closed, and the table gone with it
        on_duck(rows).execute(f"DROP TABLE IF EXISTS {column(table)}")


def give(rows: Rows, fields: Mapping[str, Any]) -> str:
    """Arrays as a table, until `drop`; gives its name."""
    name = fresh("given")
    attempt(rows.engine, lambda: on_duck(rows).connection.register(name, dict(fields)))
    return name


def stream(rows: Rows, query: str, chunk: int) -> Iterator[dict[str, Any]]:
    """The columns that answer a query, at most `chunk` rows at a time, in its order.

    The query runs at the call, and its answer is kept: other queries may run while the parts are read.
    """
    must(chunk >= 1, "chunk", "must be at least 1", chunk)
    table = fresh("stream")
    keep(rows, table, query)

    def parts() -> Iterator[dict[str, Any]]:
        try:
            yield from read_kept(rows, table, chunk)
        finally:
            drop(rows, table)

    return parts()


def read_kept(rows: Rows, table: str, chunk: int) -> Iterator[dict[str, Any]]:
    """The columns of a table that was kept, at most `chunk` rows at a time, in the order of its query."""
    start = 0  # a connection holds one result at a time: rows are found by their numbers
    while True:
        here = f"rowid >= {start:d} AND rowid < {start + chunk:d}"
        sql = f"SELECT * FROM {column(table)} WHERE {here} ORDER BY rowid"
        part = on_duck(rows).execute(sql).fetchnumpy()
        if not len(next(iter(part.values()))):
            return
        yield part
        start += chunk


def memory_short() -> InvalidInput:
    return InvalidInput("`memory_limit` must be larger for this table, or the disk emptier.")


_TYPES = {"int": "INTEGER", "real": "FLOAT", "double precision": "DOUBLE", "text": "VARCHAR", "name": "VARCHAR"}
_TYPES |= {"USER-DEFINED": "VARCHAR"}  # an enumeration; whatever else it is has a text form too


def type_name(told: str) -> str:
    """A type as a catalogue spells it, by DuckDB's name, which every other room knows.

    >>> type_name("numeric(8,2)"), type_name("character varying"), type_name("smallint")
    ('DECIMAL(8,2)', 'VARCHAR', 'SMALLINT')
    """
    words = told.startswith(("varchar", "char", "string"))
    return _TYPES.get(told, "VARCHAR" if words else told.replace("numeric", "decimal", 1).upper())


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

    def execute(self, sql: str) -> Any:
        """Run one statement; the connection holds its result."""
        return attempt(self, lambda: self.connection.execute(sql))

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        result = self.connection.execute(sql)
        return [column[0] for column in result.description], result.fetchall()

    def types(self) -> dict[str, str]:
        """The columns of the rows, and DuckDB's names of their types."""
        return {row[0]: str(row[1]) for row in self.connection.execute(f"DESCRIBE {VIEW}").fetchall()}

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
    files: list[str] = []
    if source.held is None:
        pattern = kind == "Parquet" and not os.path.isfile(where)
        files = sorted(glob.glob(where, recursive=True)) if pattern else [where] if os.path.isfile(where) else []
        must(bool(files), "path", "must be a file that exists", where)
    refused = InvalidInput(f"`path` must be a readable {kind} file. Got {source.shown}.")

    engine = new_duck(source.held or Path(where).name, threads, memory_limit)
    run = engine.connection.execute
    try:

        def look() -> None:
            if source.held is not None:
                relation = put(engine.connection, where)
            else:
                relation = _database(engine.connection, where, table) if kind == "DuckDB" else _scan(kind, files)
            # What has no type, because there is nothing in it, is text without a letter.
            empty = [row[0] for row in run(f"DESCRIBE SELECT * FROM {relation}").fetchall() if "NULL" in str(row[1])]
            instead = ", ".join(f"CAST({column(name)} AS VARCHAR) AS {column(name)}" for name in empty)
            run(f"CREATE TEMP VIEW {VIEW} AS SELECT * {f'REPLACE ({instead}) ' if empty else ''}FROM {relation}")

        # A stream is read here, whole: what its rows hold may be why it fails, which is then no fault of the form.
        attempt(engine, look, None if source.held is not None else refused)
        result = attempt(engine, engine.types, refused)
    except BaseException:
        engine.close()
        raise
    # The words of an enumeration are of the rows: they belong in no message.
    return engine, {name: re.sub(r"ENUM\(.*\)", "ENUM", kind) for name, kind in result.items()}


def new_duck(name: str, threads: int | None = None, memory_limit: str = "1GB") -> Duck:
    """A database of its own, without network."""
    import duckdb

    spill = tempfile.TemporaryDirectory(prefix="hybridp-")
    config: dict[str, Any] = {
        "memory_limit": memory_limit,
        "temp_directory": spill.name,
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
        spill.cleanup()
    must(connection is not None, "memory_limit", "must be a size such as 1GB", memory_limit)
    without_bar(connection)
    # A Parquet file's statistics leave NaN out, and the optimiser takes them at their word: a NaN would count as a
    # value inside the least and the greatest, and so be neither refused nor replaced.
    connection.execute("SET disabled_optimizers = 'statistics_propagation'")
    return Duck(name, connection, spill)


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


# --- tables that Python holds -----------------------------------------------------------------------------------------
# DuckDB reads frames, Arrow tables and arrays where they lie. What can be read only once (a reader of record batches, a
# relation of somebody's own connection, any other Arrow stream) is streamed into a table of the private database:
# queries then see one state of it, and nothing is written to the other connection.
#
# A column has the type that its table declares. Python objects of no one type are text, as in a CSV file: a type that
# is guessed from some of the values would depend on whose they are.

_READ_AGAIN = ("DataFrame", "Table", "RecordBatch", "Dataset")
_BATCH = 1 << 16


def names_of(data: Any) -> list[str]:
    """The names of the columns; refused unless they are texts that differ by more than their case."""
    if isinstance(data, Mapping):
        result = list(data)
    elif isinstance(data, np.ndarray):
        result = list(data.dtype.names or ())
    else:
        of_arrow = getattr(getattr(data, "schema", None), "names", None)
        result = list(of_arrow if isinstance(of_arrow, list) else data.columns)
    must(all(isinstance(name, str) for name in result), "path", "must have texts as names of its columns", "others")
    distinct = len({name.lower() for name in result}) == len(result) >= 1
    must(distinct, "path", "must have columns whose names differ", f"{len(result)} columns")
    return result


def put(connection: Any, data: Any) -> str:
    """Let DuckDB read the table; gives what stands for it in a query."""
    import duckdb

    problem: HybridpError
    try:
        return _put(connection, data)
    except (HybridpError, duckdb.Error):
        raise
    except ImportError as error:
        missing = (error.name or "pyarrow").split(".")[0]
        problem = InvalidInput(f"`path` must be a table of a kind whose packages are installed. Got no {missing}.")
    except Exception:  # of whoever makes the rows of a stream: its message may quote them
        problem = unreadable(held(data) or "the table")
    raise problem


def _put(connection: Any, data: Any) -> str:
    kind = type(data).__name__
    # Objects are text, not what the first thousand of them look like.
    connection.execute("SET pandas_analyze_sample = 0")
    if isinstance(data, Mapping | np.ndarray):
        data = _checked_arrays({name: data[name] for name in names_of(data)})
    elif kind == "LazyFrame":
        data = data.collect()
    elif kind == "RecordBatch":
        import pyarrow as pa

        data = pa.Table.from_batches([data])
    elif not kind.endswith(_READ_AGAIN):
        return _copied(connection, data)
    if not isinstance(data, dict):
        names_of(data)
    return _registered(connection, data)


def _registered(connection: Any, data: Any) -> str:
    name = fresh("held")
    if not _readable(connection, name, data):  # types are declared, and tell nothing of the rows
        some = (each for each in names_of(data) if not _readable(connection, fresh("held"), _only(data, each)))
        raise InvalidInput(
            "`path` must have columns of types that DuckDB reads: numbers, text, truth, dates. "
            f"Got `{next(some, 'a column')}` of another type: convert it, or leave it out."
        )
    return column(name)


def _readable(connection: Any, name: str, data: Any) -> bool:
    """Whether DuckDB reads the table, by this name."""
    import duckdb

    try:
        connection.register(name, data)
        connection.execute(f"SELECT * FROM {column(name)} LIMIT 0")
    except duckdb.NotImplementedException:
        return False
    return True


def _only(data: Any, name: str) -> Any:
    """The table with this column alone."""
    if isinstance(data, dict):
        return {name: data[name]}
    return data.select([name]) if hasattr(data, "select") else data[[name]]


def _copied(connection: Any, data: Any) -> str:
    """What can be read only once, as a table of the private database."""
    import pyarrow as pa

    reader = data
    if not isinstance(data, pa.RecordBatchReader):
        own = getattr(data, "to_arrow_reader", None) or getattr(data, "fetch_arrow_reader", None)
        reader = pa.RecordBatchReader.from_stream(data) if own is None else own(_BATCH)
    names_of(reader)
    source, table = _registered(connection, reader), fresh("copied")
    connection.execute(f"CREATE TEMP TABLE {column(table)} AS SELECT * FROM {source}")
    return column(table)


def _checked_arrays(fields: Mapping[str, Any]) -> dict[str, Any]:
    """One array a column, as DuckDB reads them: without a copy but for texts, dates and another machine's numbers."""
    result = {name: _checked_array(name, np.asanyarray(field)) for name, field in fields.items()}
    lengths = {len(array) for array in result.values()}
    must(len(lengths) == 1, "path", "must have columns of one length", f"{len(lengths)} lengths")
    return result


def _checked_array(name: str, array: Any) -> Any:
    must(array.ndim == 1, "path", f"must have one value a row in `{name}`", f"an array of {array.ndim} dimensions")
    kind = array.dtype.kind
    readable = kind in "OUSMT" or (kind in "biuf" and array.dtype.itemsize <= 8)
    must(readable, "path", f"must hold numbers, text, truth or dates in `{name}`", f"the type {array.dtype}")
    if kind == "S":  # bytes that are no UTF-8 are refused by whoever reads the rows
        return np.array([field.decode() for field in array.tolist()], dtype=object)
    if kind in "UT":
        return array.astype(object)
    if kind == "M":
        return array.astype("datetime64[us]")
    return array.astype(array.dtype.newbyteorder("=")) if not array.dtype.isnative else array


def held(data: object) -> str | None:
    """What messages call a table that Python holds; None for anything else.

    >>> held({"salary": np.array([1.0])}), held("people.csv")
    ('the arrays', None)
    """
    if isinstance(data, Mapping) or (isinstance(data, np.ndarray) and data.dtype.names is not None):
        return "the arrays"
    kind = type(data)
    owner = {each.__module__.split(".")[0].lstrip("_") for each in kind.__mro__}
    for package, word in (("pandas", "pandas"), ("polars", "Polars"), ("pyarrow", "Arrow"), ("duckdb", "DuckDB")):
        if package in owner:
            table = hasattr(kind, "__arrow_c_stream__") or hasattr(kind, "collect_schema") or "Dataset" in kind.__name__
            series = kind.__name__ in ("Series", "Index", "ChunkedArray", "Array")
            return f"the {word} {kind.__name__.removeprefix('DuckDBPy')}" if table and not series else None
    return f"the {kind.__name__}" if hasattr(kind, "__arrow_c_stream__") else None


def filled_columns(data: Any) -> frozenset[str]:
    """The columns with a number in every row by their type alone: whole numbers and truth of NumPy, also in pandas.

    >>> sorted(filled_columns({"age": np.array([31, 45]), "pay": np.array([1.5, 2.5])}))
    ['age']
    """
    types: dict[Any, Any] = {}
    if isinstance(data, Mapping):
        types = {name: getattr(of, "dtype", None) for name, of in data.items() if not np.ma.isMaskedArray(of)}
    elif isinstance(data, np.ndarray) and data.dtype.names is not None and not np.ma.isMaskedArray(data):
        types = {name: data.dtype[name] for name in data.dtype.names}
    elif type(data).__name__ == "DataFrame" and hasattr(data, "dtypes") and hasattr(data, "iloc"):
        types = dict(data.dtypes.items())
    return frozenset(name for name, of in types.items() if isinstance(of, np.dtype) and of.kind in "biu")
