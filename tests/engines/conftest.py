"""The same table on every engine: a Parquet file for DuckDB and Spark, a table of a real server for PostgreSQL.

Both servers are started once for each process; where either cannot be, its tests say why.
"""

from __future__ import annotations

import atexit
import functools
import itertools
import shutil
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from tools import throwaway

from hybridp.tables import Rows, Source, open_rows

Columns = Mapping[str, tuple[str, Sequence[Any]]]  # name -> (type, values); types are DuckDB's
Opened = Callable[[str, Columns], Any]
ENGINES = ("duckdb", "postgresql", "spark")
_serial = itertools.count()
_TYPES = {"VARCHAR": "text", "DOUBLE": "double precision", "BIGINT": "bigint", "INTEGER": "integer"}


@pytest.fixture(scope="session")
def server(postgres_server: str) -> str:
    """The URL of a PostgreSQL server whose texts sort by language: collations are a trap of their own."""
    return postgres_server.replace("postgresql+psycopg://", "postgresql://")


@pytest.fixture
def closed_port() -> Iterator[int]:
    """A port that refuses: taken, so that nobody else gets it, and not listened on."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield int(taken.getsockname()[1])


@functools.cache
def spark() -> str:
    """The URL of a Spark Connect server on this machine, until this process ends."""
    pytest.importorskip("pyspark")
    if shutil.which("java") is None:
        pytest.skip("not installed: Java, which a Spark server needs (apt-get install default-jre-headless)")
    stack = ExitStack()
    atexit.register(stack.close)
    return stack.enter_context(throwaway.spark())


def source_of(engine: str, location: Any, **more: Any) -> Source:
    """Where an engine of this name reads a file, or a database."""
    return Source(location, spark() if engine == "spark" else engine, **more)


def write_parquet(path: Path, columns: Columns) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    types = {
        "VARCHAR": pa.string(), "DOUBLE": pa.float64(), "BIGINT": pa.int64(), "INTEGER": pa.int32(),
        "BOOLEAN": pa.bool_(), "DATE": pa.date32(),
    }  # fmt: skip
    pq.write_table(pa.table({n: pa.array(list(v), types[t]) for n, (t, v) in columns.items()}), path)


def fill_postgres(url: str, name: str, columns: Columns) -> None:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        typed = ", ".join(f'"{n}" {_TYPES.get(t, t.lower())}' for n, (t, _) in columns.items())
        connection.execute(f'CREATE TABLE "{name}" ({typed})')
        listed = ", ".join(f'"{n}"' for n in columns)
        with connection.cursor() as cursor, cursor.copy(f'COPY "{name}" ({listed}) FROM STDIN') as copy:
            for row in zip(*(values for _, values in columns.values()), strict=True):
                copy.write_row(row)


@pytest.fixture
def opened(tmp_path: Path, request: pytest.FixtureRequest) -> Opened:
    """Open the same columns on an engine: `with opened("spark", columns) as rows`."""

    @contextmanager
    def open_on(engine: str, columns: Columns) -> Iterator[Rows]:
        if engine == "postgresql":
            url = request.getfixturevalue("server")
            name = f"people_{next(_serial)}"
            fill_postgres(url, name, columns)
            with open_rows(Source(url, decimal="."), table=name) as rows:  # numbers may stand there as text
                yield rows
            return
        file = tmp_path / f"people_{next(_serial)}.parquet"
        write_parquet(file, columns)
        with open_rows(source_of(engine, file, decimal="."), threads=2) as rows:
            yield rows

    return open_on
