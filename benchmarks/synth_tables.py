"""Synthetic rows on ten public tables beside AIM and MST: `python -m benchmarks.synth_tables [--peer-python PATH ...]`.

For each table of `hybridp_lab.problems.tables`, 16 random 3-way marginals with at most as many cells as people; delta =
1/n^2. Figures: the workload's mean total variation distance and largest error, the distance on 16 marginals not
in the workload, the accuracy on a real fifth of the rows of a classifier of the last column trained on synthetic rows
(fitted to the other rows), CPU seconds of the fit and largest memory. Every fit runs in a process of its own.

The peers run by an interpreter of their own, with the sources of `ryan112358/mbi`:

    python -m venv peers && peers/bin/pip install jax scipy pandas networkx matplotlib ./mbi
    python -m benchmarks.synth_tables --peer-python peers/bin/python --mechanisms mbi/mechanisms

Their promise is for adding or removing a person, ours for replacing one. `aim` and `mst` are as they come. `aim,
replaced` and `mst, replaced` promise what we do: a marginal moves by sqrt(2) in L2 where it moved by 1, so that rho is
halved, and the L1 errors among which they choose by 2, so that their sensitivity is another sqrt(2) times as large. JAM
of the same sources needs a public table of the same columns, which no table here has.
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
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["main"]

_PEER = r"""
import sys, time, json, resource, contextlib, os
import numpy as np
folder, mechanisms, how, epsilon, seed = sys.argv[1], sys.argv[2], sys.argv[3], float(sys.argv[4]), int(sys.argv[5])
sys.path.insert(0, mechanisms)
from mbi import Dataset, Domain, MarkovRandomField
drawn, rows = MarkovRandomField.synthetic_data, int(sys.argv[6])
MarkovRandomField.synthetic_data = lambda self, *_, **__: drawn(self, rows)
kept = np.load(folder + "/in.npz")
records, sizes = kept["records"], kept["sizes"].tolist()
names = ["c%d" % i for i in range(len(sizes))]
data = Dataset({c: records[:, i] for i, c in enumerate(names)}, Domain(names, sizes))
np.random.seed(seed)
delta, before = len(records) ** -2.0, time.process_time()
with contextlib.redirect_stdout(open(os.devnull, "w")):
    kind, _, replaced = how.partition(", ")
    if kind == "mst":
        import mst
        if replaced:
            added, chosen = mst.cdp_rho, mst.exponential_mechanism
            mst.cdp_rho = lambda *budget: added(*budget) / 2
            mst.exponential_mechanism = lambda q, eps, sensitivity: chosen(q, eps, sensitivity * 2**0.5)
        made = mst.MST(data, epsilon, delta)
    else:
        import aim
        mechanism = aim.AIM(epsilon, delta)
        if replaced:
            mechanism.rho /= 2
            picked = mechanism.exponential_mechanism
            mechanism.exponential_mechanism = lambda q, eps, sensitivity=1.0: picked(q, eps, sensitivity * 2**0.5)
        work = [(tuple(names[f] for f in one), 1.0) for one in kept["work"].tolist()]
        made = mechanism.run(data, work)[1]
seconds = time.process_time() - before
columns = made.to_dict() if hasattr(made, "to_dict") else made.df
np.save(folder + "/out.npy", np.stack([np.asarray(columns[c]) for c in names], axis=1).astype(np.int64))
memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"seconds": seconds, "memory": memory}))
"""


def _rows(people: int) -> int:
    """How many rows every method makes: enough that their scatter around its model says little."""
    return max(2 * people, 1 << 15)


def _ours(folder: str, how: str, epsilon: float, seed: int) -> dict[str, float]:
    from hybridp.curator.marginals import codes_of
    from hybridp.protocols.synth import SynthStudy, fit_synth
    from hybridp.public.budgets import ApproxDP
    from hybridp.public.queries import Schema, Threshold, Workload
    from hybridp.randomness import seeded

    kept = np.load(f"{folder}/in.npz")
    schema = Schema.from_domain({f"c{i}": size for i, size in enumerate(kept["sizes"].tolist())})
    work = Workload(schema, tuple(Threshold(tuple(one), len(one)) for one in kept["work"].tolist()))
    codes = codes_of(schema, kept["records"])
    study = SynthStudy(work, ApproxDP(epsilon, codes.people**-2.0), "adaptive" if how == "adaptive" else "tables")
    before = time.process_time()
    model = fit_synth(codes, study, rng=seeded(100 + seed))
    seconds = time.process_time() - before
    from hybridp.blend.relaxed import round_records

    np.save(f"{folder}/out.npy", round_records(model.data, _rows(codes.people), seed=seed).astype(np.int64))
    return {"seconds": seconds, "memory": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


def _distances(real: Any, made: Any, sizes: list[int], work: list[tuple[int, ...]]) -> tuple[float, float]:
    """The mean total variation distance over marginals, and the largest error of a cell."""
    found = []
    for features in work:
        shape = [sizes[f] for f in features]
        shares = []
        for rows in (real, made):
            cell = np.ravel_multi_index(tuple(rows[:, f] for f in features), shape)
            shares.append(np.bincount(cell, minlength=int(np.prod(shape))) / len(rows))
        gaps = np.abs(shares[0] - shares[1])
        found.append((gaps.sum() / 2, gaps.max()))
    return float(np.mean([f for f, _ in found])), float(max(f for _, f in found))


def _accuracy(made: Any, test: Any) -> float:
    from sklearn.ensemble import HistGradientBoostingClassifier

    if len(np.unique(made[:, -1])) < 2:
        return float(np.mean(test[:, -1] == made[0, -1]))
    some = made[:20_000]
    model = HistGradientBoostingClassifier(max_iter=40, early_stopping=False, random_state=0).fit(
        some[:, :-1], some[:, -1]
    )
    return float(model.score(test[:, :-1], test[:, -1]))


def compare(name: str, how: str, epsilon: float, seed: int, *, python: str, mechanisms: str) -> dict[str, float]:
    """One fit to four fifths of a table, and how good its rows are."""
    from hybridp_lab.problems.tables import Codes, marginals, table

    whole = table(name)
    order = np.random.RandomState(1).permutation(len(whole.records))
    cut = len(order) // 5
    codes, test = Codes(name, whole.records[order[cut:]], whole.sizes), whole.records[order[:cut]]
    work = marginals(codes)
    other = marginals(codes, without=work)
    asked, unasked = ([t.features for t in part.thresholds] for part in (work, other))
    with tempfile.TemporaryDirectory() as folder:
        np.savez(f"{folder}/in.npz", records=codes.records, sizes=codes.sizes, work=asked)
        setting = [how, str(epsilon), str(seed)]
        if how in ("adaptive", "tables"):
            command = [sys.executable, "-m", "benchmarks.synth_tables", "--one", folder, *setting]
        else:
            command = [python, "-c", _PEER, folder, mechanisms, *setting, str(_rows(len(codes.records)))]
        done = subprocess.run(command, check=True, capture_output=True, text=True, env={**os.environ})
        made = np.load(f"{folder}/out.npy")
    distance, largest = _distances(codes.records, made, list(codes.sizes), asked)
    return {
        "distance": distance,
        "largest": largest,
        "unasked": _distances(codes.records, made, list(codes.sizes), unasked)[0],
        "accuracy": _accuracy(made, test),
        **json.loads(done.stdout.splitlines()[-1]),
    }


def main(arguments: list[str] | None = None) -> None:
    from hybridp_lab.problems.tables import HELD_OUT, TUNED

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", nargs="*", default=[*TUNED, *HELD_OUT])
    parser.add_argument("--epsilons", nargs="*", type=float, default=[0.1, 1.0, 10.0])
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--ours", nargs="*", default=["adaptive", "tables"])
    parser.add_argument("--peers", nargs="*", default=["aim", "aim, replaced", "mst", "mst, replaced"])
    parser.add_argument("--peer-python", help="an interpreter with mbi and jax; without it, only our figures")
    parser.add_argument("--mechanisms", default="mbi/mechanisms", help="the folder of aim.py and mst.py")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    asked = parser.parse_args(arguments)
    if asked.one:
        folder, how, epsilon, seed = asked.one
        print(json.dumps(_ours(folder, how, float(epsilon), int(seed))))
        return
    methods = [*asked.ours, *(asked.peers if asked.peer_python else [])]
    print("| table | eps | method | distance | largest | not asked | accuracy | CPU s | MiB |")
    print("|---|---|---|---|---|---|---|---|---|")
    for name in asked.tables:
        for epsilon in asked.epsilons:
            for how in methods:
                mechanisms = str(Path(asked.mechanisms).resolve())
                found = [
                    compare(name, how, epsilon, seed, python=asked.peer_python or "", mechanisms=mechanisms)
                    for seed in range(asked.seeds)
                ]
                mean = {key: float(np.mean([one[key] for one in found])) for key in found[0]}
                print(
                    f"| {name}{'*' if name in TUNED else ''} | {epsilon:g} | {how} | {mean['distance']:.4f} | "
                    f"{mean['largest']:.4f} | {mean['unasked']:.4f} | {mean['accuracy']:.3f} | {mean['seconds']:.1f} | "
                    f"{mean['memory']:.0f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
