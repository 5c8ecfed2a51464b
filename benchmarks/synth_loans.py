"""Synthetic data on rows of LOANS' shape: `python -m benchmarks.synth_loans [--device cuda] [--quick]`.

LOANS' rows are not public any more, so they are made up over its domain (42,535 people, 48 features), which is read
from `loans-domain.json` in the folder HYBRIDP_DATA, or drawn to the same total size without it. Two jobs of the
dissertation: 64 1-of-4 thresholds (about 3.5e7 consistent queries; 1,240 s on its GPU) and the non-adaptive variant on
256 marginals of any size. "queries" is the dissertation's mechanism, corrected.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import time
from pathlib import Path

import numpy as np

from hybridp.curator.models import Codes
from hybridp.noise import seeded
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.queries import Schema, Workload
from hybridp_lab.papers.rap2023.workloads import sample_workload

PEOPLE, FEATURES, WIDTH = 42_535, 48, 4_427
MOST_QUERIES = 2_000_000  # of one threshold: 64 of them then have the dissertation's 3.5e7


def domain() -> tuple[dict[str, int], str]:
    home = os.environ.get("HYBRIDP_DATA")
    if home and (Path(home) / "loans-domain.json").is_file():
        return dict(json.loads((Path(home) / "loans-domain.json").read_text())), "LOANS' domain"
    share = np.random.default_rng(0).dirichlet(np.full(FEATURES, 0.3))
    sizes = 2 + np.floor(share * (WIDTH - 2 * FEATURES)).astype(int)
    return {f"f{i}": int(size) for i, size in enumerate(sizes)}, "a made-up domain of LOANS' size"


def rows(schema: Schema) -> Codes:
    """Eight kinds of people, each with favourite values."""
    draw = np.random.default_rng(1)
    kind = draw.integers(0, 8, PEOPLE)
    columns = []
    for size in schema.sizes:
        common, special = draw.dirichlet(np.full(size, 4 / size)), draw.integers(0, size, 8)
        columns.append(np.where(draw.random(PEOPLE) < 0.5, draw.choice(size, PEOPLE, p=common), special[kind]))
    return Codes(schema, np.stack(columns))


def fit(codes: Codes, workload: Workload, device: str, method: str) -> None:
    from hybridp.tasks.table import TableTask
    from hybridp_lab.errors import present_error
    from hybridp_lab.papers.rap2023.experiments import by_threshold
    from hybridp_lab.papers.rap2023.mechanism import fit_rap
    from hybridp_lab.simulate import fit_synth

    promise = ApproxDP(1.0, codes.people**-2.0)
    wall, cpu = time.perf_counter(), time.process_time()
    if method == "tables":
        model = fit_synth(codes, TableTask(workload, promise), rng=seeded(1))
    else:
        data = fit_rap(codes, workload, promise, rounds=16, per_round=4, device=device, rng=seeded(1))
    wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
    answers = model.answers() if method == "tables" else by_threshold(data, workload)
    error = present_error(codes, workload, answers).l_inf
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"{method} on {device}: {workload.queries:,} queries, fit {wall:.1f} s ({cpu:.1f} CPU s), "
          f"{memory:,.0f} MiB, largest error {error:.4f}", flush=True)  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", help="of RAP")
    parser.add_argument("--methods", nargs="*", default=["tables", "queries"], help="none: no thresholds")
    parser.add_argument("--no-marginals", action="store_true", help="leave the non-adaptive variant out")
    parser.add_argument("--quick", action="store_true", help="8 thresholds and 16 marginals")
    asked = parser.parse_args(arguments)
    sizes, name = domain()
    schema = Schema.from_domain(sizes)
    codes = rows(schema)
    print(f"{PEOPLE:,} made-up people over {name} ({len(sizes)} features, {sum(sizes.values()):,} values)")
    few = asked.quick
    draw = np.random.default_rng(0)
    thresholds = sample_workload(schema, "1-of-4:8" if few else "1-of-4:64", rng=draw, most_queries=MOST_QUERIES)
    for method in asked.methods:
        fit(codes, thresholds, asked.device, method)
    if asked.no_marginals:
        return
    from hybridp_lab.errors import present_error
    from hybridp_lab.papers.rap2023.experiments import non_adaptive
    from hybridp_lab.papers.rap2023.relaxed import answers

    marginals = sample_workload(schema, "3-of-3:16" if few else "3-of-3:256", rng=draw)
    start, cpu = time.perf_counter(), time.process_time()
    promise = ApproxDP(1.0, codes.people**-2.0)
    data = non_adaptive(codes, marginals, promise, rows=1000, steps=100, projection="ours", rng=seeded(2))
    shares = ((threshold, found.cpu().numpy()) for threshold, found in answers(data, marginals))
    errors = present_error(codes, marginals, shares)
    print(f"non-adaptive: {marginals.queries:,} queries of {len(marginals.thresholds)} unfiltered marginals in "
          f"{time.perf_counter() - start:.1f} s ({time.process_time() - cpu:.1f} CPU s), "
          f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:,.0f} MiB, {errors}")  # fmt: skip


if __name__ == "__main__":
    main()
