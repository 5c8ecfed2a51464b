"""One table in every form that a person may have it in."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa

KINDS = ["csv", "parquet", "duckdb file", "pandas", "pandas objects", "pandas arrow", "polars", "polars lazy", "arrow"]
KINDS += ["arrow batch", "arrow reader", "arrow dataset", "arrays", "arrays objects", "structured", "relation"]


def every_form(table: pa.Table, folder: Path) -> dict[str, Callable[[], Any]]:
    """The table by the names of `KINDS`; each is made when it is asked for, as a stream can be read but once."""
    import pyarrow.csv
    import pyarrow.dataset
    import pyarrow.parquet

    frame = table.to_pandas()
    pyarrow.csv.write_csv(table, folder / "t.csv")
    pyarrow.parquet.write_table(table, folder / "t.parquet")
    with duckdb.connect(str(folder / "t.duckdb")) as made:
        made.register("given", table)
        made.execute("CREATE TABLE people AS SELECT * FROM given")
    columns = {name: masked(table[name]) for name in table.column_names}
    return {
        "csv": lambda: folder / "t.csv",
        "parquet": lambda: str(folder / "t.parquet"),
        "duckdb file": lambda: folder / "t.duckdb",
        "pandas": lambda: frame,
        "pandas objects": lambda: frame.astype(object).where(frame.notna(), None),
        "pandas arrow": lambda: table.to_pandas(types_mapper=pd.ArrowDtype),
        "polars": lambda: pl.from_arrow(table),
        "polars lazy": lambda: pl.from_arrow(table).lazy(),
        "arrow": lambda: table,
        "arrow batch": lambda: table.combine_chunks().to_batches()[0],
        "arrow reader": lambda: table.to_reader(max_chunksize=3),
        "arrow dataset": lambda: pyarrow.dataset.dataset(table),
        "arrays": lambda: columns,
        "arrays objects": lambda: {
            name: np.array(table[name].to_pylist(), dtype=object) for name in table.column_names
        },
        "structured": lambda: structured(frame),
        "relation": lambda: duckdb.connect().from_arrow(table),
    }


def masked(column: pa.ChunkedArray) -> Any:
    """A column as NumPy has it, with a mask where something is missing."""
    missing = np.asarray(column.is_null())
    if pa.types.is_string(column.type):
        return np.array(column.to_pylist(), dtype=object)
    plain = np.asarray(column.fill_null(0))
    return np.ma.masked_array(plain, missing) if missing.any() else plain


def structured(frame: pd.DataFrame) -> Any:
    """Rows of one array. It has no missing text and no missing whole number: empty and NaN stand for them."""
    kinds = {name: "U40" if is_text(frame[name]) else frame[name].dtype.str for name in frame.columns}
    made = np.empty(len(frame), dtype=list(kinds.items()))
    for name in frame.columns:
        made[name] = frame[name].fillna("") if is_text(frame[name]) else frame[name]
    return made


def is_text(column: pd.Series) -> bool:
    return not pd.api.types.is_numeric_dtype(column)
