"""Consistent queries a second: grouped counts on the real rows, contractions on D', and one step of the projection.

    python benchmarks/synth_eval.py [--quick]

ADULT is read from the folder in HYBRIDP_DATA, and generated with its shape otherwise; LOANS' rows are always generated
from its shape. CPU seconds of this process, so that a shared machine tells the truth.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np

from hybridp.curator.models import Codes, read_codes
from hybridp.public.queries import Schema, Workload, counts
from hybridp_lab.papers.rap2023.projection import Options, TableGoal, project
from hybridp_lab.papers.rap2023.relaxed import Relaxed, answers, sparsemax_blocks, start
from hybridp_lab.papers.rap2023.workloads import sample_workload

# The sizes of LOANS' 48 features, as its published domain has them.
LOANS = [101] * 7 + [17, 27, 122, 122, 62, 7, 101, 122] + [101] * 10 + [4, 101, 101, 26, 3, 8, 36, 12, 6, 4, 61, 5, 15]
LOANS += [1001, 51, 72, 61, 121, 145, 3, 145, 4, 145]
ADULT = [85, 9, 100, 16, 7, 15, 6, 5, 2, 100, 100, 99, 42, 2]


def generated(sizes: list[int], people: int, seed: int) -> Codes:
    """Records with skewed values that depend on a hidden class."""
    rng = np.random.default_rng(seed)
    hidden = rng.integers(0, 6, people)
    columns = [
        np.minimum((rng.exponential(0.12, people) + 0.05 * (hidden + i % 5)) * s, s - 1) for i, s in enumerate(sizes)
    ]
    schema = Schema.from_domain({f"f{i}": size for i, size in enumerate(sizes)})
    return Codes(schema, np.stack(columns, axis=1).astype(np.int64).T)


def adult() -> tuple[Codes, str]:
    folder = os.environ.get("HYBRIDP_DATA")
    if folder is None or not Path(folder, "adult.csv.gz").exists():
        return generated(ADULT, 48_842, 1), "generated, ADULT's shape"
    schema = Schema.from_domain(json.loads(Path(folder, "adult-domain.json").read_text()))
    return read_codes(Path(folder, "adult.csv.gz"), schema), "real ADULT"


def drained(pieces: Iterable[tuple[Any, Any]]) -> int:
    return sum(len(part) for _, part in pieces)


def rate(run: Callable[[], int], repeats: int) -> tuple[float, float]:
    """Queries a second of CPU time, the best of some runs, and its CPU seconds."""
    taken = []
    queries = 0
    for _ in range(repeats):
        began = time.process_time()
        queries = run()
        taken.append(time.process_time() - began)
    return queries / min(taken), min(taken)


def report(name: str, work: Workload, run: Callable[[], int], repeats: int) -> None:
    found, seconds = rate(run, repeats)
    print(f"| {name} | {work.queries:,} | {seconds:.3f} | {found / 1e6:,.0f} |", flush=True)


def peaked(data: Relaxed, times: int) -> Relaxed:
    """A D' as sparse as a fitted one."""
    values = data.values
    for _ in range(times):
        values = sparsemax_blocks(1.4 * values, data.sizes)
    return Relaxed(values, data.sizes)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="one run each, and no LOANS")
    quick = parser.parse_args().quick
    repeats = 1 if quick else 3
    people, name = adult()
    schema = people.schema
    filtered = sample_workload(schema, "3-of-3:64", rng=np.random.default_rng(1), most_queries=people.people)
    whole = sample_workload(schema, "3-of-3:64", rng=np.random.default_rng(1))
    first = start(1000, schema.sizes, seed=1)
    fitted = peaked(first, 8)
    print("| 64 3-way marginals, " + name + " | queries | CPU s | million a second |\n|---|---|---|---|")
    for label, work in (("at most n queries each", filtered), ("all", whole)):
        report(f"rows, {label}", work, lambda work=work: drained(counts(people.values, work)), repeats)
        report(f"D' at its start, {label}", work, lambda work=work: drained(answers(first, work)), repeats)
        report(f"D' once sparse, {label}", work, lambda work=work: drained(answers(fitted, work)), repeats)
    print("\n| one step of the projection on all 64 tables | ms |\n|---|---|")
    for label, work in (("at most n queries each", filtered), ("all", whole)):
        share = [part.astype(np.float32) / people.people for _, part in counts(people.values, work)]
        goals = [TableGoal(t, values) for t, values in zip(work.thresholds, share, strict=True)]
        for kind, data in (("start", first), ("once sparse", fitted)):
            steps = 2 if quick else 6
            began = time.process_time()
            project(data, tables=goals, options=Options(steps=steps))
            print(f"| {label}, {kind} | {1000 * (time.process_time() - began) / (steps + 1):.0f} |", flush=True)
    if not quick:
        loans = generated(LOANS, 42_535, 2)
        work = sample_workload(loans.schema, "1-of-4:64", rng=np.random.default_rng(1), most_queries=1_900_000)
        relaxed = start(1000, loans.schema.sizes, seed=1)
        print("\n| 64 1-of-4 thresholds, LOANS-shaped | queries | CPU s | million a second |\n|---|---|---|---|")
        report("rows", work, lambda: drained(counts(loans.values, work)), 1)
        report("D' at its start", work, lambda: drained(answers(relaxed, work)), 1)
        report("D' once sparse", work, lambda: drained(answers(peaked(relaxed, 8), work)), 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"peak memory {peak:.0f} MiB", file=sys.stderr)


if __name__ == "__main__":
    main()
