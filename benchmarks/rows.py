"""Rows: `add_up` beside DuckDB's own `count(*), avg(clipped)` over the same Parquet file.

    python -m benchmarks.rows [--rows 1e8] [--threads N] [--repeat 3]

Every query runs in a child process of its own, so that its peak memory is its own. Within a child it runs once to warm
the file cache and then `--repeat` times; wall and CPU time are the smallest of those. DuckDB's clipping is timed in
both of its forms: least(greatest(x, low), high), and the faster CASE.

`all trusted`  every row has a value x and the label `trusted`; beside avg(clipped x).
`hybrid`       1 % of the rows trusted with a value, the others with a report; beside avg(clipped report). Reports are
               continuous (as after Laplace noise), or one of two numbers (as after randomised response), which Parquet
               keeps as a dictionary of two entries, so that DuckDB clips only those two.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from hybridp.public.randomisers import Bounds
from hybridp.tables import Query, Report, add_up, open_rows

LOWER, UPPER = 0.0, 100.0
REPORT_LOW, REPORT_HIGH = -70.0, 170.0


def hybrid(report: str) -> Query:
    column = Report(report, centre=50.0, half=50.0, low=REPORT_LOW, high=REPORT_HIGH)
    return Query.on(Bounds(LOWER, UPPER), ("value",), "trust", "middle", reports=(column,))


CASES = {
    "all trusted": ("x", LOWER, UPPER, Query.on(Bounds(LOWER, UPPER), ("x",), "everybody", "middle")),
    "hybrid": ("report", REPORT_LOW, REPORT_HIGH, hybrid("report")),
    "hybrid, two-valued reports": ("bit", REPORT_LOW, REPORT_HIGH, hybrid("bit")),
}
WAYS = ("totals", "least", "case")


def generate(path: Path, rows: int) -> None:
    import duckdb

    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute("SET enable_progress_bar = false")
        connection.execute(
            f"""
            COPY (
                SELECT x, 'trusted' AS everybody,
                    CASE WHEN t THEN 'trusted' ELSE 'local' END AS trust,
                    CASE WHEN t THEN x END AS value,
                    CASE WHEN NOT t THEN {REPORT_LOW} + u * {REPORT_HIGH - REPORT_LOW} END AS report,
                    CASE WHEN NOT t THEN CASE WHEN u < x / 100 THEN {REPORT_HIGH} ELSE {REPORT_LOW} END END AS bit
                FROM (SELECT random() * 110 - 5 AS x, random() AS u, random() < 0.01 AS t FROM range({rows}))
            ) TO '{path}' (FORMAT parquet)
            """
        )


def plain(path: Path, column: str, low: float, high: float, way: str) -> str:
    clipped = f"least(greatest({column}, {low}), {high})"
    if way == "case":
        clipped = f"CASE WHEN {column} < {low} THEN {low} WHEN {column} > {high} THEN {high} ELSE {column} END"
    return f"SELECT count(*), avg({clipped}) FROM '{path}'"


def child(path: Path, case: str, way: str, threads: int, repeat: int) -> None:
    """Time one way over one file and print the figures as JSON."""
    column, low, high, query = CASES[case]
    with open_rows(path, threads=threads) as rows:
        run: Callable[[], object] = lambda: add_up(rows, query)  # noqa: E731
        if way != "totals":
            run = lambda: rows.engine.connection.execute(plain(path, column, low, high, way)).fetchall()  # noqa: E731
        run()
        times = []
        for _ in range(repeat):
            wall, cpu = time.perf_counter(), time.process_time()
            run()
            times.append((time.perf_counter() - wall, time.process_time() - cpu))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"wall": min(t[0] for t in times), "cpu": min(t[1] for t in times), "peak": peak}))


def measure(path: Path, case: str, way: str, threads: int, repeat: int) -> dict[str, float]:
    command = [sys.executable, "-m", "benchmarks.rows", "--child", str(path), case, way]
    command += ["--threads", str(threads), "--repeat", str(repeat)]
    found: dict[str, float] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=float, default=1e8)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--child", nargs=3, metavar=("PATH", "CASE", "WAY"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        path, case, way = options.child
        child(Path(path), case, way, options.threads, options.repeat)
        return
    with tempfile.TemporaryDirectory(prefix="hybridp-") as folder:
        path = Path(folder, "rows.parquet")
        generate(path, int(options.rows))
        size = path.stat().st_size / 2**30
        print(f"{int(options.rows):,} rows, {size:.2f} GiB of Parquet, {options.threads} threads")
        for case in CASES:
            found = {way: measure(path, case, way, options.threads, options.repeat) for way in WAYS}
            print(case)
            for way, name in zip(WAYS, ("add_up", "avg(least(greatest))", "avg(CASE)"), strict=True):
                here = found[way]
                ratio = found["totals"]["wall"] / here["wall"], found["totals"]["cpu"] / here["cpu"]
                beside = "" if way == "totals" else f"   add_up / this: wall {ratio[0]:.2f}, CPU {ratio[1]:.2f}"
                figures = f"wall {here['wall']:7.3f} s   CPU {here['cpu']:7.3f} s   peak {here['peak']:.2f} GiB"
                print(f"  {name:22s} {figures}{beside}")


if __name__ == "__main__":
    main()
