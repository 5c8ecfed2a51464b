"""Rows of heavy hitters: sampling, discovery and slots beside DuckDB's own `count(*) GROUP BY query, url`.

    python -m benchmarks.heavy_rows [--people 5e6] [--events 2e7] [--threads N] [--repeat 2] [--memory 1GB]

Two Parquet files of generated searches with Zipf-like queries, 5 % of the people trusted: one record for each person,
and several. The steps are `sample_records` (with half of the trusted people for discovery), `discovery_counts`,
`records_at` for the records of at least 50 people, `head_counts` of the estimation part, and `local_slots` read to the
end, with a head of 50 queries with two URLs each: 151 slots. Both ways run under the same memory limit, each in a
child process of its own, so that its peak memory is its own; wall and CPU time are those of the fastest repetition.
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
from typing import Any

import numpy as np

from hybridp.public.heavy import HeadList
from hybridp.tables import (
    Columns,
    discovery_counts,
    head_counts,
    local_slots,
    open_rows,
    records_at,
    sample_records,
)
from hybridp.tables.engine import drop

QUERY = Columns(("query", "url"), "trust", person="person")
WAYS = ("hybridp", "duckdb")
DISTINCT = 4_800_000
PLAIN = "SELECT count(*), max(n) FROM (SELECT query, url, count(*) AS n FROM rows GROUP BY ALL)"
TOP = "SELECT {0} FROM rows WHERE {1} GROUP BY ALL ORDER BY count(*) DESC, 1 LIMIT {2}"


def generate(path: Path, records: int, people: int | None) -> None:
    """Queries of rank r with probability about proportional to 1/r, a few URLs each; without `people`, one row each."""
    import duckdb

    person = "i" if people is None else f"(hash(i) % {people})::BIGINT"
    with duckdb.connect() as connection:
        connection.execute("SELECT setseed(0.5)")
        connection.execute("SET enable_progress_bar = false")
        connection.execute(
            f"""
            COPY (
                SELECT person, 'q' || substr(md5(r::VARCHAR), 1, 4 + r % 9) || ' ' || r AS query,
                    'www.' || substr(md5(r % 97 || '/' || u), 1, 8) || '.com/' || r // 3 || '/' || u AS url,
                    CASE WHEN hash(person) % 100 < 5 THEN 'trusted' ELSE 'local' END AS trust
                FROM (
                    SELECT {person} AS person, floor(exp(random() * ln({DISTINCT})))::BIGINT AS r,
                        floor(-ln(1 - random()) * 0.6)::INT AS u
                    FROM range({records}) t(i)
                )
            ) TO '{path}' (FORMAT parquet)
            """
        )


def head_of(connection: Any) -> HeadList:
    """The 50 most frequent queries with the two most frequent URLs of each, their wildcards, and the rest."""
    head: list[tuple[str, ...]] = []
    for (query,) in connection.execute(TOP.format("query", "true", 50)).fetchall():
        urls = connection.execute(TOP.format("url", "query = ?", 2), [query]).fetchall()
        head += [(query, url) for (url,) in urls]
    return HeadList.of(head)


def steps(rows: Any, head: HeadList) -> dict[str, tuple[float, float]]:
    """Wall and CPU seconds of each step."""
    clock = [(time.perf_counter(), time.process_time())]
    sample = sample_records(rows, QUERY, 7, discovery_share=0.5)
    clock.append((time.perf_counter(), time.process_time()))
    counts = discovery_counts(sample)
    records_at(sample, np.flatnonzero(counts >= 50))
    clock.append((time.perf_counter(), time.process_time()))
    head_counts(sample, head, "estimation")
    clock.append((time.perf_counter(), time.process_time()))
    seen = np.zeros(len(head), dtype=np.int64)
    for slots in local_slots(sample, head):
        seen += np.bincount(slots, minlength=len(head))
    clock.append((time.perf_counter(), time.process_time()))
    if seen.sum() != sample.local_people:
        raise AssertionError("every local person has a slot")
    drop(sample.rows, sample.table, f"{sample.table}_discovered")
    names = ("sample", "discovery", "head", "slots")
    return {name: (b[0] - a[0], b[1] - a[1]) for name, a, b in zip(names, clock, clock[1:], strict=False)}


def child(path: Path, way: str, head: HeadList, options: argparse.Namespace) -> None:
    """Time one way over one file and print the figures as JSON."""
    with open_rows(path, threads=options.threads, memory_limit=options.memory) as rows:

        def plain() -> dict[str, tuple[float, float]]:
            start = time.perf_counter(), time.process_time()
            rows.engine.connection.execute(PLAIN).fetchall()
            return {"group by": (time.perf_counter() - start[0], time.process_time() - start[1])}

        run: Callable[[], dict[str, tuple[float, float]]] = plain if way == "duckdb" else lambda: steps(rows, head)
        found = min((run() for _ in range(options.repeat)), key=lambda laps: sum(lap[0] for lap in laps.values()))
    print(json.dumps({"steps": found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20}))


def measure(path: Path, way: str, head: HeadList, options: argparse.Namespace) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.heavy_rows", "--child", str(path), way, json.dumps(head.slots)]
    command += ["--threads", str(options.threads), "--repeat", str(options.repeat), "--memory", options.memory]
    found: dict[str, Any] = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    found["wall"], found["cpu"] = (sum(lap[i] for lap in found["steps"].values()) for i in (0, 1))
    return found


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=float, default=5e6)
    parser.add_argument("--events", type=float, default=2e7)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--memory", default="1GB")
    parser.add_argument("--child", nargs=3, metavar=("PATH", "WAY", "HEAD"), help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.child:
        path, way, head = options.child
        child(Path(path), way, HeadList(2, tuple(map(tuple, json.loads(head)))), options)
        return
    people, events = int(options.people), int(options.events)
    with tempfile.TemporaryDirectory(prefix="hybridp-") as folder:
        for name, records, among in (("one record each", people, None), ("several records", events, people)):
            path = Path(folder, "rows.parquet")
            generate(path, records, among)
            with open_rows(path) as rows:
                head = head_of(rows.engine.connection)
            found = {way: measure(path, way, head, options) for way in WAYS}
            size = f"{records:,} records of {people:,} people, {path.stat().st_size / 2**30:.2f} GiB of Parquet"
            print(f"{name}: {size}, {len(head)} slots, {options.threads} threads, memory limit {options.memory}")
            for way in WAYS:
                here = found[way]
                laps = ", ".join(f"{step} {lap[0]:.2f}" for step, lap in here["steps"].items())
                print(f"  {way:8s} wall {here['wall']:6.2f} s   CPU {here['cpu']:6.2f} s   "
                      f"peak {here['peak']:.2f} GiB   ({laps})")  # fmt: skip
            wall, cpu = (found["hybridp"][clock] / found["duckdb"][clock] for clock in ("wall", "cpu"))
            print(f"  hybridp / duckdb: wall {wall:.2f}, CPU {cpu:.2f}")


if __name__ == "__main__":
    main()
