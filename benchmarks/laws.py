"""Do intervals of a distribution hold on scales, heaps and groups that differ? Every person is drawn, and reports.

    python -m benchmarks.laws [--trials 200] [--only scale,hours]

Prints a line a cell: how often each 95 % interval held what is true of everybody (of a quantile all that may be called
so), its mean width, the root mean square of the error (of a quantile in shares of people), and how often groups were
said to differ. Laws of `benchmarks.coverage` are continuous; these have atoms, bounds full of people, and gaps.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridp import noise
from hybridp.noise import seeded
from hybridp.public.distribution import CELLS, BinnedReports, report_bins
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import LEVELS, Bounds
from hybridp.public.rounds import Crowd
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.tasks.distribution import DistributionTask, publish
from hybridp_lab.simulate import hear

__all__ = ["main"]

Floats = NDArray[np.float64]


class Cell(NamedTuple):
    law: str
    trusted: int
    local: int
    epsilon: float
    gap: float = 0.0
    """By how many standard deviations those who trust have more."""
    step: float | None = None


CELLS_RUN = (
    *(Cell("scale", 200, 1_800, 1.0, step=step) for step in (1.0, None)),
    *(Cell("satisfied", 2_500, 47_500, 4.0, step=step) for step in (1.0, None)),
    Cell("hours", 1_000, 19_000, 1.0, step=1.0),
    *(Cell(law, 500, 9_500, 1.0) for law in ("uniform", "u-shaped")),
    *(Cell("normal", 1_000, 9_000, 1.0, gap) for gap in (0.0, 0.1, 0.5, 1.0)),
)


def population(law: str) -> tuple[Bounds, Floats, tuple[float, ...]]:
    """Bounds, everybody, and the edges of a histogram."""
    draw = np.random.default_rng(0)
    if law in ("scale", "satisfied"):  # the second like marriages' ratings in Fair (1978)
        many = [10, 15, 30, 25, 20] if law == "scale" else [16, 55, 156, 352, 421]
        return Bounds(1, 5), np.repeat(np.arange(1.0, 6.0), many), (1.0, 2.0, 3.0, 4.0, 5.0)
    n = 400_000
    if law == "hours":  # whole hours, nearly half of them 40
        worked = np.where(draw.random(n) < 0.45, 40.0, np.round(draw.normal(36, 11, n)))
        worked = np.where(draw.random(n) < 0.08, 20.0, worked)
        return Bounds(0, 80), np.clip(worked, 0, 80), (0.0, 20.0, 35.0, 40.0, 48.0, 80.0)
    if law == "normal":
        return Bounds(0, 100), np.clip(draw.normal(45, 14, n), 0, 100), ()
    return Bounds(0, 1), draw.random(n) if law == "uniform" else draw.beta(0.4, 0.5, n), ()


def truth(everybody: Floats, study: DistributionTask) -> dict[str, list[tuple[float, float]]]:
    """Of each statistic the least and the largest number that may be called so."""
    ranked, n = np.sort(everybody), len(everybody)
    below = np.searchsorted(ranked, study.edges[1:-1], side="right") / n
    gini = float(((2 * np.arange(1, n + 1) - n - 1) * ranked).sum() / n**2 / ranked.mean())
    ends = [(math.ceil(q * n - 1e-9) - 1, min(math.floor(q * n + 1e-9), n - 1)) for q in study.at]
    return {
        "quantiles": [(float(ranked[a]), float(ranked[b])) for a, b in ends],
        "histogram": [(x, x) for x in np.diff([0.0, *below, 1.0]).tolist()],
        "sd": [(float(ranked.std()),) * 2],
        "gini": [(gini, gini)],
    }


def release(study: DistributionTask, trusted: Floats, local: Floats, seed: int) -> Any:
    """What the product publishes of these people."""
    own, rng = np.sort(study.bounds.levels(trusted)), seeded(seed)

    def count(places: tuple[float, ...], stated: CountNoise) -> NoisyCounts:
        cuts = [math.floor(place * LEVELS + 0.5) for place in places]
        counts = np.diff([0, *np.searchsorted(own, cuts, side="right"), len(own)])[: stated.draws] * stated.steps
        drawn = noise.discrete_laplace(stated.mechanism.scale, stated.draws, rng=rng)  # type: ignore[union-attr]
        return NoisyCounts(len(own), tuple((counts + drawn).tolist()), stated)

    report = study.invite.mechanism
    bins = report_bins(report, CELLS)
    sent = bins.numbers(noise.reports(report, study.bounds.levels(local), rng=rng))
    heard = hear(study, len(own), BinnedReports(np.bincount(sent, minlength=bins.size), report), count)
    return publish(study, heard, Crowd.of("x", simulated_local=True, rng=rng))


def run(cell: Cell, trials: int) -> str:
    bounds, pop, edges = population(cell.law)
    moved = np.clip(pop + cell.gap * pop.std(), bounds.lower, bounds.upper)
    study = DistributionTask(
        bounds, PureDP(cell.epsilon), at=(0.1, 0.5, 0.9), edges=edges, spread=cell.law != "normal", step=cell.step
    )
    share = cell.trusted / (cell.trusted + cell.local)
    first = round(share * len(pop)) if cell.gap else 0
    everybody = np.concatenate([moved[:first], pop[first:]])
    true, ranked = truth(everybody, study), np.sort(everybody)
    held: dict[str, list[tuple[bool, float, float]]] = {}
    alarms = 0
    for seed in range(trials):
        draw = np.random.default_rng(seed)
        found = release(study, draw.choice(moved, cell.trusted), draw.choice(pop, cell.local), seed)
        (statistics,) = found.questions.values()
        alarms += bool(statistics["distribution"]["disagreement"]["groups_disagree"])
        for name, told in ((name, told) for name, told in statistics.items() if name in true):
            at = told.get("at")
            for i, (x, low, high) in enumerate(np.column_stack([told["estimate"], *told["interval"]]).tolist()):
                least, most = true[name][i]
                error = x - least
                if name == "quantiles":
                    ends = (np.searchsorted(ranked, x, side=side) / len(ranked) for side in ("left", "right"))
                    error = max(next(ends) - at[i], at[i] - next(ends), 0.0)
                inside = low <= least + 1e-9 and most - 1e-9 <= high
                key = f"{name} {at[i]:g}" if at else name
                held.setdefault(key, []).append((inside, high - low, error))
    parts = []
    for key, some in held.items():
        inside, width, error = np.array(some, dtype=np.float64).T
        parts.append(f"{key} {inside.mean():.0%} (width {width.mean():.3g}, error {math.sqrt((error**2).mean()):.2g})")
    return f"{cell}: alarms {alarms / trials:.0%}; " + ", ".join(parts)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=200, help="of each cell")
    parser.add_argument("--only", default="", help="some of the laws, separated by commas")
    asked = parser.parse_args(arguments)
    for cell in CELLS_RUN:
        if not asked.only or cell.law in asked.only.split(","):
            print(run(cell, asked.trials), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
