"""Quantiles: trusted alone, a collection made for them, free reports of a mean, and both groups, in one run.

    python -m benchmarks.quantiles [--trials 20]

The error is in shares of people: how far the released value's true rank is from the one asked for. `hierarchical` is
what a collection made for quantiles reaches: every local person tells one level of a binary tree of 128 cells by
optimised unary encoding, made consistent by least squares (Hay et al. 2010; Kulkarni et al. 2019). `coverage` is that
of the 95 % interval of both groups.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hybridp import noise
from hybridp.blend.distribution import Shape, counts_seen, fit, reports_seen
from hybridp.noise.oracles import simulate_counts
from hybridp.protocols.distribution import DistributionStudy, places_around
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import PureDP
from hybridp.public.distribution import CELLS, BinnedReports, report_bins
from hybridp.public.oracles import estimate, optimised_unary
from hybridp.public.randomisers import LEVELS, randomiser
from hybridp.public.shares import NoisyCounts, count_noise
from hybridp.randomness import Randomness, seeded

__all__ = ["main"]

Floats = NDArray[np.float64]
R = np.random.Generator
LAWS: dict[str, Callable[[R, int], Floats]] = {
    # Pay within [0, 200,000]: most people between 20,000 and 80,000, a long tail, many at round sums.
    "pay": lambda rng, n: _pay(rng, n),
    "beta(2,5)": lambda rng, n: rng.beta(2, 5, n),
    "two hills": lambda rng, n: np.clip(rng.normal(np.where(rng.random(n) < 0.6, 0.3, 0.7), 0.05), 0, 1),
    "log-normal": lambda rng, n: np.clip(rng.lognormal(-2, 0.6, n), 0, 1),
}
PLACES = ((100_000, 0.01, 1.0), (100_000, 0.01, 0.5), (1_000_000, 0.002, 1.0))
QUANTILES = (0.5, 0.9)


def _pay(rng: R, n: int) -> Floats:
    pay = rng.lognormal(10.6, 0.55, n)
    round_sums = np.where(rng.random(n) < 0.1, np.round(pay / 5_000) * 5_000, pay)
    return np.asarray(np.clip(round_sums / 200_000, 0, 1))


def _counted(people: Floats, places: Sequence[float], epsilon: float, rng: Randomness) -> NoisyCounts:
    stated = count_noise(PureDP(epsilon), len(places) + 1)
    counts = np.histogram(people, [-1.0, *places, 2.0])[0][: stated.draws]
    drawn = noise.discrete_laplace(stated.mechanism.scale, stated.draws, rng=rng)  # type: ignore[union-attr]
    return NoisyCounts(len(people), tuple((counts + drawn).tolist()), stated)


def _hierarchical(people: Floats, epsilon: float, rng: Randomness, lots: R) -> Floats:
    """The distribution function at the ends of 128 cells."""
    cells = np.minimum((people * CELLS).astype(np.int64), CELLS - 1)
    depth = int(math.log2(CELLS))
    told = lots.integers(1, depth + 1, len(people))
    levels: list[Floats] = [np.ones(1)]
    for level in range(1, depth + 1):
        mine = cells[told == level] >> (depth - level)
        oracle = optimised_unary(PureDP(epsilon), max(2**level, 2))
        levels.append(estimate(oracle, simulate_counts(oracle, mine, rng=rng), len(mine))[0])
    up = [levels[-1]]  # from the leaves: a node's own figure and its children's, by their variances (Hay et al.)
    for level in range(depth - 1, -1, -1):
        span = 2 ** (depth - level)
        children = up[0].reshape(-1, 2).sum(axis=1)
        own = levels[level]
        weight = (span - span / 2) / (span - 1)
        up.insert(0, own if level == 0 else weight * own + (1 - weight) * children)
    down = [up[0]]
    for level in range(1, depth + 1):
        missing = (down[-1] - up[level].reshape(-1, 2).sum(axis=1)) / 2
        down.append(up[level] + np.repeat(missing, 2))
    return np.maximum.accumulate(np.clip(np.concatenate([[0.0], np.cumsum(down[-1])]), 0, 1))


def _one(law: str, n: int, opt_in: float, epsilon: float, seed: int) -> dict[str, list[float]]:
    lots, rng, draw = np.random.default_rng(seed), seeded(seed), LAWS[law]
    trusted, local = draw(lots, round(n * opt_in)), draw(lots, n - round(n * opt_in))
    study = DistributionStudy(Bounds(0, 1), PureDP(epsilon), at=QUANTILES)
    report = randomiser("best", PureDP(epsilon))
    bins = report_bins(report, CELLS)
    sent = noise.reports(report, np.floor(local * LEVELS + 0.5).astype(np.int64), rng=rng)
    seen = reports_seen(BinnedReports(np.bincount(bins.numbers(sent), minlength=bins.size), report), CELLS)
    free = fit([seen], CELLS)
    places = places_around(study, free)
    both = fit([seen, counts_seen(_counted(trusted, places, epsilon, rng), places, free)], CELLS)
    coarse = tuple(i / 16 for i in range(1, 16))
    flat = Shape(np.linspace(0, 1, CELLS + 1), np.zeros((CELLS + 1, CELLS + 1)))
    look = counts_seen(_counted(trusted, coarse, epsilon / 2, rng), coarse, flat)
    rough = fit([look], CELLS)
    around = places_around(study, rough)
    own = fit([look, counts_seen(_counted(trusted, around, epsilon / 2, rng), around, rough)], CELLS)
    made = Shape(_hierarchical(local, epsilon, rng, lots), np.zeros((CELLS + 1, CELLS + 1)))
    found = {"trusted": own, "hierarchical": made, "free": free, "both": both}
    out = {name: [shape.quantile(q) for q in QUANTILES] for name, shape in found.items()}
    for i, q in enumerate(QUANTILES):
        out[f"interval {i}"] = [*both.quantile_interval(q, 1.96)]
    return out


def _rank(people: Floats, value: float, q: float) -> float:
    """How far from q: 0 where the value stands among people who all have it, and q with them."""
    low = np.searchsorted(people, value, side="left") / len(people)
    high = np.searchsorted(people, value, side="right") / len(people)
    return float(max(low - q, q - high, 0.0))


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    trials = parser.parse_args(arguments).trials
    print("law n opt-in epsilon quantile: rank RMSE in % of trusted, hierarchical, free, both;")
    print("both over the better of the first two; coverage of both's interval")
    for law in LAWS:
        population = np.sort(LAWS[law](np.random.default_rng(0), 2_000_000))
        for n, opt_in, epsilon in PLACES:
            runs = [_one(law, n, opt_in, epsilon, seed) for seed in range(1, trials + 1)]
            for i, q in enumerate(QUANTILES):
                error = {
                    name: 100 * math.sqrt(np.mean([_rank(population, run[name][i], q) ** 2 for run in runs]))
                    for name in ("trusted", "hierarchical", "free", "both")
                }
                true = population[int(q * len(population))]
                covered = np.mean([run[f"interval {i}"][0] <= true <= run[f"interval {i}"][1] for run in runs])
                ratio = error["both"] / min(error["trusted"], error["hierarchical"])
                said = " ".join(f"{x:.2f}" for x in error.values())
                print(
                    f"{law} {n:,} {opt_in:g} {epsilon:g} {q:g}: {said}, {ratio:.2f}, {100 * covered:.0f} %", flush=True
                )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
