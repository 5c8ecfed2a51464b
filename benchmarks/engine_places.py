"""Where the rows of the engines' benchmark live, and what a query there costs: files, a throwaway server, Java.

CPU time is that of every process that works for the query: this one with its threads for DuckDB, this one and the JVM
below it for Spark, and the server with its workers for PostgreSQL. The last two are read from /proc (in hundredths of a
second), where a process that has ended is part of its parent's figure.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tools.throwaway import spark

from benchmarks.engine_rows import COLUMNS
from hybridp.tables import Rows, Source, open_rows

__all__ = ["TABLE", "cpu_seconds", "fill", "opened", "peak_gib", "server_process"]

TABLE = "rows"
_PIECE = 1 << 20


def opened(engine: str, place: str, *, threads: int, memory: str) -> Rows:
    """The rows as the library opens them; `place` is a file, or the URL of a server that `fill` has filled."""
    if engine == "postgresql":
        return open_rows(place, table=TABLE)
    if engine == "spark":
        stack = ExitStack()
        atexit.register(stack.close)
        engine = stack.enter_context(spark(threads))
    return open_rows(Source(place, engine), threads=threads, memory_limit=memory)


def fill(url: str, path: Path) -> None:
    """The Parquet file as a table of the server, with statistics and no index."""
    import duckdb
    import psycopg

    text = path.with_suffix(".csv")
    with duckdb.connect(config={"memory_limit": "1GB"}) as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(f"COPY (SELECT {', '.join(COLUMNS)} FROM '{path}') TO '{text}' (FORMAT csv, HEADER false)")
    try:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(f"DROP TABLE IF EXISTS {TABLE}")
            connection.execute(f"CREATE TABLE {TABLE} ({', '.join(f'{n} {t}' for n, t in COLUMNS.items())})")
            with connection.cursor().copy(f"COPY {TABLE} FROM STDIN (FORMAT csv)") as copy, text.open("rb") as file:
                while piece := file.read(_PIECE):
                    copy.write(piece)
            # Dead weight of the load (hint bits, statistics) is not the first query's.
            connection.execute(f"VACUUM ANALYZE {TABLE}")
    finally:
        text.unlink(missing_ok=True)


def server_process(url: str) -> int:
    """The process of a throwaway server, whose folder is its socket's."""
    folder = parse_qs(urlsplit(url).query)["host"][0]
    return int(Path(folder, "data", "postmaster.pid").read_text().split()[0])


def cpu_seconds(engine: str, server: int | None) -> float:
    """CPU seconds so far of whatever works for a query."""
    if engine == "duckdb":
        return time.process_time()
    ticks = sum(_ticks(process) for process in _tree(server or os.getpid()))
    return ticks / os.sysconf("SC_CLK_TCK")


def peak_gib(engine: str) -> float | None:
    """The most memory that this process, and Java below it, has held; a server's contains its shared buffers."""
    if engine == "postgresql":
        return None
    return sum(_peak(process) for process in _tree(os.getpid())) / 2**20


def _tree(root: int) -> Iterator[int]:
    below: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            fields = _stat(int(entry.name))
            if fields:
                below.setdefault(int(fields[1]), []).append(int(entry.name))
    waiting = [root]
    while waiting:
        process = waiting.pop()
        yield process
        waiting += below.get(process, [])


def _stat(process: int) -> list[str]:
    """The fields of /proc/PID/stat after the name, which may itself hold spaces: state, parent, ..."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # it has ended
        return []


def _ticks(process: int) -> int:
    fields = _stat(process)
    return sum(int(field) for field in fields[11:15])  # own user and system time, and those of ended children


def _peak(process: int) -> int:
    try:
        lines: Any = Path(f"/proc/{process}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in lines if line.startswith("VmHWM"))
