"""Tables that Python holds.

DuckDB reads frames, Arrow tables and arrays where they lie. What can be read only once (a reader of record batches, a
relation of somebody's own connection, any other Arrow stream) is streamed into a table of the private database:
queries then see one state of it, and nothing is written to the other connection.

A column has the type that its table declares. Python objects of no one type are text, as in a CSV file: a type that
is guessed from some of the values would depend on whose they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from hybridp.errors import HybridpError, InvalidInput, must
from hybridp.tables.engine import column, fresh, unreadable

__all__ = ["filled_columns", "held", "put"]

_READ_AGAIN = ("DataFrame", "Table", "RecordBatch", "Dataset")
_BATCH = 1 << 16


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
        # Without a copy but for texts, dates and another machine's numbers.
        data = {name: _checked_array(name, np.asanyarray(data[name])) for name in names_of(data)}
        lengths = {len(array) for array in data.values()}
        must(len(lengths) == 1, "path", "must have columns of one length", f"{len(lengths)} lengths")
    elif kind == "LazyFrame":
        data = data.collect()
    elif kind == "RecordBatch":
        import pyarrow as pa

        data = pa.Table.from_batches([data])
    elif not kind.endswith(_READ_AGAIN):
        return _copied(connection, data)
    return _registered(connection, data)


def _registered(connection: Any, data: Any) -> str:
    name, names = fresh("held"), names_of(data)
    if not _readable(connection, name, data):  # types are declared, and tell nothing of the rows
        some = (each for each in names if not _readable(connection, fresh("held"), _only(data, each)))
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
    source, table = _registered(connection, reader), fresh("copied")
    connection.execute(f"CREATE TEMP TABLE {column(table)} AS SELECT * FROM {source}")
    return column(table)


def _checked_array(name: str, array: Any) -> Any:
    """A column as DuckDB reads it."""
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
