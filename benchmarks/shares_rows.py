"""Shares of 50 options among ten million people, beside DuckDB's own group-by of the same file.

    python -m benchmarks.shares_rows [--rows 1e7]

Both read one Parquet file, in turn, three times each; the ratio is of the best times in this run. What the release
adds: its rules on labels and options, the noise, the blend and its intervals.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import duckdb

from hybridp import PureDP
from hybridp.curator.sums import Columns
from hybridp.protocols.driver import release as release_shares
from hybridp.public.queries import Feature
from hybridp.tasks.shares import SharesTask

__all__ = ["main"]

OPTIONS = [f"option {i:02d}" for i in range(50)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=float, default=1e7)
    rows = int(parser.parse_args(arguments).rows)
    question = Feature.categorical("answer", OPTIONS, missing=OPTIONS[-1])
    study, columns = SharesTask(question, PureDP(1.0)), Columns("answer", "trust")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "people.parquet")
        made = (
            "SELECT 'option ' || lpad(CAST(hash(i) % 50 AS VARCHAR), 2, '0') AS answer, 'trusted' AS trust "
            f"FROM range({rows}) AS t(i)"
        )
        duckdb.execute(f"COPY ({made}) TO '{file}' (FORMAT parquet)")
        plain, ours = [], []
        for _ in range(3):
            start = time.perf_counter()
            duckdb.execute(f"SELECT trust, answer, count(*) FROM '{file}' GROUP BY ALL").fetchall()
            plain.append(time.perf_counter() - start)
            start = time.perf_counter()
            release_shares(file, study, columns)
            ours.append(time.perf_counter() - start)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10
    print(f"{rows:,} rows: group-by {min(plain):.2f} s, release {min(ours):.2f} s, {min(ours) / min(plain):.2f} times; "
          f"peak memory {peak:,.0f} MiB")  # fmt: skip
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
