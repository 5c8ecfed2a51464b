"""Synthetic data under mixed trust: `HYBRIDP_DATA=FOLDER python -m benchmarks.synth_mixed [--seeds 3]`.

ADULT ten times over (488,420 people), the columns with at most 50 values, 28 random two-way marginals of them,
epsilon 1, delta 1/n^2, 1 % of the people trusted. Mean total variation distance to the truth of everybody, over the
marginals: of each group's tables and their blend, each table projected on the simplex by itself, and of the rows of
the model that is fitted to them. "Chosen" are the rows where the trusted people choose by the adaptive method, alone
and with the local people's reports on what was chosen. A seed draws the marginals, who trusts, noise and reports.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from itertools import combinations
from pathlib import Path

import numpy as np

from hybridp.blend.graph import GraphModel
from hybridp.blend.shares import to_simplex
from hybridp.blend.tables import blend_tables
from hybridp.curator.models import Codes, measure_table
from hybridp.curator.sums import Raw
from hybridp.device.reports import simulated_marginals
from hybridp.noise import seeded
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.public.rounds import Answer
from hybridp.tasks.table import TableTask
from hybridp.tasks.transcript import save_model, write_invitation
from hybridp_lab.errors import evaluate
from hybridp_lab.simulate import fit_synth

TIMES, MOST, MARGINALS, EPSILON, TRUSTED = 10, 50, 28, 1.0, 0.01


def one(records: np.ndarray, schema: Schema, seed: int) -> dict[str, float]:
    draw = np.random.default_rng(seed)
    pairs = list(combinations(range(len(schema.sizes)), 2))
    chosen = [pairs[i] for i in sorted(draw.choice(len(pairs), MARGINALS, replace=False))]
    promise = ApproxDP(EPSILON, len(records) ** -2.0)
    study = TableTask(Workload(schema, tuple(Threshold(pair, 2) for pair in chosen)), promise, "mixed")
    trusts = draw.random(len(records)) < TRUSTED
    trusted, local, every = (Codes(schema, records[w].T) for w in (trusts, ~trusts, slice(None)))
    truth = {pair: every.table(pair) / every.people for pair in chosen}
    rng = seeded(seed)
    (use,) = study.plan
    tables = [measure_table(trusted, features, use.sigma, rng=rng) for features in use.tables]
    reports = simulated_marginals(local.values, study.invite, rng=rng)
    told = reports.told
    shapes = [(pair, tuple(schema.sizes[f] for f in pair)) for pair in chosen]
    sides = {"trusted": (tables, trusted.people, []), "local": ([], 0, told), "both": (tables, trusted.people, told)}
    found = {}
    for name, (own, people, sent) in sides.items():
        blended = blend_tables(shapes, own, people, sent)
        total = people + sum(part.people for part in sent)
        model = GraphModel.uniform(schema.sizes).fit([table for _, table in blended], total, sweeps=60)
        apart: dict[str, list[float]] = {"tables": [], "model": []}
        for table, _ in blended:
            true = truth[table.features]
            alone = to_simplex(table.counts.ravel() / total).reshape(true.shape)
            apart["tables"].append(float(np.abs(alone - true).sum() / 2))
            apart["model"].append(float(np.abs(model.table(table.features) - true).sum() / 2))
        found |= {f"{name}, {kind}": float(np.mean(all_)) for kind, all_ in apart.items()}
    start = time.process_time()
    rows = fit_synth(Raw(trusted.people, trusted, reports, simulated_reports=True), study, rng=seeded(seed + 1000))
    found["CPU s"] = time.process_time() - start
    found["rows"] = float(evaluate(rows, every)["synthetic"]["total_variation"])
    with tempfile.TemporaryDirectory() as folder:
        pilot = TableTask(study.workload, promise, "adaptive")
        alone = save_model(fit_synth(trusted, pilot, rng=seeded(seed + 2000)), f"{folder}/pilot")
        sent = write_invitation(f"{folder}/pilot", Path(folder) / "invitation.json")
    told = simulated_marginals(local.values, sent.invite, rng=seeded(seed + 3000))
    both = sent.released(Answer(local=told), seeded(0))
    for name, model in (("trusted alone, chosen", alone), ("both, chosen", both)):
        found[name] = float(evaluate(model, every)["synthetic"]["total_variation"])
    return found


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    seeds = parser.parse_args(words).seeds
    home = Path(os.environ["HYBRIDP_DATA"])
    sizes = json.loads((home / "adult-domain.json").read_text())
    rows = np.loadtxt(home / "adult.csv.gz", delimiter=",", skiprows=1, dtype=np.int64)
    kept = [i for i, size in enumerate(sizes.values()) if size <= MOST]
    schema = Schema.from_domain({name: size for name, size in sizes.items() if size <= MOST})
    records = np.tile(rows[:, kept], (TIMES, 1))
    found = []
    for seed in range(1, seeds + 1):
        found.append(one(records, schema, seed))
        print(f"seed {seed}: {found[-1]}", file=sys.stderr, flush=True)
    for name in found[0]:
        values = [run[name] for run in found]
        print(f"{name:22} {np.mean(values):.4f}  ({min(values):.4f} to {max(values):.4f})")


if __name__ == "__main__":
    main()
