"""Accuracy, CPU seconds and memory of synthetic data on ADULT: `python -m benchmarks.synth [--quick]`.

The workloads are those of the published experiments: 16 and 64 random 3-way marginals with at most n consistent queries
(74,076 and 458,996 of them), and 64 of any size (3.5 million); n' = 1000, delta = 1/n^2; the largest error over all
consistent queries, mean over the seeds. Each fit runs in a process of its own, which measures its CPU time and its
largest memory. Real ADULT is read from the folder HYBRIDP_DATA; without it, made-up rows of the same shape are used,
and the table says so.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

DOMAIN = {
    "age": 85, "workclass": 9, "fnlwgt": 100, "education-num": 16, "marital-status": 7, "occupation": 15,
    "relationship": 6, "race": 5, "sex": 2, "capital-gain": 100, "capital-loss": 100, "hours-per-week": 99,
    "native-country": 42, "income>50K": 2,
}  # fmt: skip
PEOPLE = 48_842
WORKLOADS = {"16": (16, True), "64": (64, True), "64 unfiltered": (64, False)}
TARGETS = {
    ("queries", 1.0): {"16": 0.020, "64": 0.034},
    ("queries", 0.1): {"16": 0.075, "64": 0.110},
    ("tables", 1.0): {"16": 0.018, "64": 0.025, "64 unfiltered": 0.025},
    ("tables", 0.1): {"16": 0.030, "64": 0.040, "64 unfiltered": 0.040},
}
# The best (T, K, share of the budget for the selection) of a search over T in 8..64 and K in 1..16 on this very data,
# as the dissertation reports its own. Its share is one half: (20, 1, .5) on the 16 at eps = .1 gives .078.
BEST = {
    ("16", 1.0): (48, 2, 0.65),
    ("64", 1.0): (48, 2, 0.65),
    ("64 unfiltered", 1.0): (48, 2, 0.65),
    ("16", 0.1): (20, 1, 0.8),
    ("64", 0.1): (20, 1, 0.8),
    ("64 unfiltered", 0.1): (20, 1, 0.8),
}
SECONDS, MEBIBYTES = 20.0, 1024


def rows() -> tuple[np.ndarray[Any, Any], bool]:
    """ADULT, or made-up rows of its shape; and whether they are real."""
    home = os.environ.get("HYBRIDP_DATA")
    if home and (Path(home) / "adult.csv.gz").is_file():
        return np.loadtxt(Path(home) / "adult.csv.gz", delimiter=",", skiprows=1, dtype=np.int64), True
    rng = np.random.default_rng(1)
    kind = rng.integers(0, 8, PEOPLE)  # eight kinds of people, each with its own favourite values
    columns = []
    for size in DOMAIN.values():
        common, special = rng.dirichlet(np.full(size, 4 / size)), rng.integers(0, size, 8)
        columns.append(np.where(rng.random(PEOPLE) < 0.5, rng.choice(size, PEOPLE, p=common), special[kind]))
    return np.stack(columns, axis=1), False


def one(method: str, name: str, epsilon: float, seed: int, *setting: str) -> dict[str, Any]:
    """One fit in this process: its errors, CPU seconds (the fit alone) and largest memory."""
    from hybridp.curator.models import Codes
    from hybridp.noise import seeded
    from hybridp.public.mechanisms import ApproxDP
    from hybridp.public.queries import Schema, Threshold, Workload
    from hybridp.tasks.table import TableTask
    from hybridp_lab.errors import evaluate, present_error
    from hybridp_lab.simulate import fit_synth

    records, real = rows()
    schema = Schema.from_domain(DOMAIN)
    codes = Codes(schema, records.T)
    count, filtered = WORKLOADS[name]
    sets = [s for s in itertools.combinations(range(14), 3) if not filtered or schema.cells(s) <= codes.people]
    chosen = np.random.RandomState(0).permutation(len(sets))[:count]
    workload = Workload(schema, tuple(Threshold(sets[i], 3) for i in chosen))
    promise, rng = ApproxDP(epsilon, codes.people**-2.0), seeded(100 + seed)
    before = time.process_time()
    if method == "tables":
        model = fit_synth(codes, TableTask(workload, promise, seed=seed), rng=rng)
    else:
        from hybridp_lab.papers.rap2023.experiments import by_threshold
        from hybridp_lab.papers.rap2023.mechanism import fit_rap

        given = (int(setting[0]), int(setting[1]), float(setting[2])) if setting else BEST[name, epsilon]
        how: dict[str, Any] = dict(zip(("rounds", "per_round", "select_share"), given, strict=True))
        data = fit_rap(codes, workload, promise, seed=seed, rng=rng, **how)
    seconds = time.process_time() - before
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    if method == "tables":
        errors = evaluate(model, codes)
    else:  # its answers are those of D'
        found = present_error(codes, workload, by_threshold(data, workload)).to_dict()
        errors = {"settled": found, "synthetic": found}
    return {
        "real": real,
        "queries": workload.queries,
        "error": errors["settled"]["l_inf"],
        "synthetic": errors["synthetic"]["l_inf"],
        "rms": errors["settled"]["root_mean_square"],
        "seconds": seconds,
        "memory": memory,
    }


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed, and only the 16 marginals")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--one", nargs="+", help="METHOD WORKLOAD EPSILON SEED [T K SHARE]: one fit, as JSON")
    asked = parser.parse_args(arguments)
    if asked.one:
        method, name, epsilon, seed, *setting = asked.one
        print(json.dumps(one(method, name, float(epsilon), int(seed), *setting)))
        return
    seeds = 1 if asked.quick else asked.seeds
    names = ["16"] if asked.quick else list(WORKLOADS)
    print("| method | eps | marginals | queries | l_inf | D' alone | target | CPU s | MiB | |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    real = True
    for (method, epsilon), targets in TARGETS.items():
        for name in names:
            found = []
            for seed in range(seeds):
                command = [sys.executable, "-m", "benchmarks.synth", "--one", method, name, str(epsilon), str(seed)]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
                found.append(json.loads(done.stdout))
                print(f"{method} {name} eps={epsilon} seed {seed}: {found[-1]}", file=sys.stderr, flush=True)
            real &= found[0]["real"]
            mean = {key: float(np.mean([f[key] for f in found])) for key in ("error", "synthetic", "seconds")}
            memory = max(f["memory"] for f in found)
            goal = targets.get(name)
            ok = (goal is None or mean["error"] <= goal) and mean["seconds"] <= SECONDS and memory <= MEBIBYTES
            setting = "" if method == "tables" else f" {BEST[name, epsilon]}"
            print(
                f"| {method}{setting} | {epsilon:g} | {name} | {found[0]['queries']:,} | {mean['error']:.4f} | "
                f"{mean['synthetic']:.4f} | {'' if goal is None else f'{goal:.3f}'} | {mean['seconds']:.1f} | "
                f"{memory:.0f} | {'reached' if ok else 'NOT reached'} |",
                flush=True,
            )
    print(f"\n{'Real ADULT' if real else 'MADE-UP rows of the shape of ADULT'}; mean of {seeds} seeds.")
    print(
        "All constants (T, K, shares, steps, rates, significance) were tuned on ADULT and these workloads: not private,"
    )
    print("and optimistic for other data.")


if __name__ == "__main__":
    main()
