"""How far do liars pull a mean that takes groups to be alike? 20,000 people, 5 % trusting, epsilon 1, the largest lies.

    python -m benchmarks.lies [--trials 150]

Each trial is one table, released by `release_mean`, as `alike`, with only bounds and epsilon stated; the
plain blend that it publishes beside its estimate is the one without the leash. Root mean squared errors in
percent of the range, beside the targets.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa

from hybridp import PureDP, seeded
from hybridp.blend.mean import Rule
from hybridp.curator.sums import Columns
from hybridp.noise import reports, synthetic_data_generator
from hybridp.protocols.driver import release as release_mean
from hybridp.public.randomisers import LEVELS, Bounds
from hybridp.tasks.mean import MeanTask

__all__ = ["main"]

PEOPLE, TRUSTED = 20_000, 1_000
TARGETS = {0.0: 0.48, 0.01: 0.75, 0.05: 0.85, 0.1: 0.85, 0.3: 0.85}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=150)
    trials = parser.parse_args(arguments).trials
    study = MeanTask(Bounds(0, 1), PureDP(1.0), Rule("alike"))
    invite = replace(study.invite, question=("pay",))
    law, columns = invite.mechanism, Columns("pay", "trust", missing="middle")
    squares: dict[tuple[float, str], float] = {}
    farthest = widest = 0.0
    for seed in range(trials):
        rng = seeded(seed)
        values = synthetic_data_generator(rng).beta(2, 5, PEOPLE)
        honest = reports(law, np.rint(values[TRUSTED:] * LEVELS).astype(np.int64), rng=rng)
        for liars in TARGETS:
            sent = honest.copy()
            sent[: round(liars * len(sent))] = law.bound
            people = _table(values, 0.5 + sent / 2, invite.text)
            found = {"alike": release_mean(people, study, columns, rng=seeded(1000 + seed))}
            plain = replace(study, rule=Rule("adaptive"))
            found["adaptive"] = release_mean(people, plain, columns, rng=seeded(1000 + seed))
            for name, one in found.items():
                squares[liars, name] = (
                    squares.get((liars, name), 0.0) + (100 * (one.facts["unbiased"] - 2 / 7)) ** 2 / trials
                )
            held = found["alike"].facts
            most = held["anchor"]["most"]
            widest = max(widest, 100 * most)
            farthest = max(farthest, 100 * (abs(held["unbiased"] - held["trusted"]) - most))
    print("liars   alike    target  adaptive")
    for liars, target in TARGETS.items():
        held, plainly = (math.sqrt(squares[liars, name]) for name in ("alike", "adaptive"))
        mark = "" if held <= target else "  MISSED"
        print(f"{liars:5.0%} {held:9.2f} {target:7.2f} {plainly:9.2f}{mark}")
    beyond = "never farther from the trusted mean than it said" if farthest <= 1e-9 else f"BEYOND IT by {farthest:.2g}"
    print(f"It was {beyond}: at most {widest:.2f} % of the range.")
    return 0


def _table(values: Any, sent: Any, text: str) -> pa.Table:
    local = len(sent)
    return pa.table(
        {
            "pay": pa.array([*values[:TRUSTED].tolist(), *([None] * local)], pa.float64()),
            "trust": ["trusted"] * TRUSTED + ["local"] * local,
            "report": pa.array([*([None] * TRUSTED), *sent.tolist()], pa.float64()),
            "report_mechanism": pa.array([*([None] * TRUSTED), *([text] * local)], pa.string()),
        }
    )


if __name__ == "__main__":
    raise SystemExit(main())
