"""Quantiles under mixed trust: trusted alone, collections made for them, free reports, both, and steered, in one run.

    python -m benchmarks.quantiles [--trials 20] [--processes 1] [--only salaries] [--grid [--every 7]] [--coverage]

The error is in shares of people: how far the released value's true rank is from the one asked for (RMSE over trials).
Everything goes through the product's own counting, windows and estimator (`hybridp.protocols`, `hybridp.blend`).

* `trusted`: trusted people alone. `hierarchical`: what a collection made for quantiles reaches, where every local
  person tells one level of a binary tree of 128 cells by optimised unary encoding, made consistent by least squares
  (Hay et al. 2010; Kulkarni et al. 2019). `free`: reports of a mean. `both`: the plain blend. `steered`: in phases.
* `chosen`: what the planner would do, steered or plain, knowing n, opt-in and epsilon alone. `ratio`: its error over
  that of the better of `trusted` and `hierarchical` (target: at most 1.05).
* `OpenDP`: its private quantile with everybody trusting; `limit`: one bit a local person at the quantile itself.

The salaries are read from the folder that HYBRIDP_DATA names; without it a made-up law stands in, and is labelled so.
`--coverage` tells how often the 95 % intervals of trusted people alone, of both and of steered hold the quantile, and
nothing else: `--trials 2000 --processes 16` for figures. The package needs no DuckDB for any of this.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridp import noise
from hybridp.blend.distribution import Shape, blended
from hybridp.protocols.distribution import DistributionStudy
from hybridp.protocols.heard import Heard, hear
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import PureDP
from hybridp.public.distribution import BINS, CELLS, PHASES, BinnedReports, WindowReports, report_bins
from hybridp.public.oracles import estimate, optimised_unary
from hybridp.public.randomisers import WORD, Randomiser
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.randomness import Randomness, seeded

__all__ = ["main"]

Floats = NDArray[np.float64]
R = np.random.Generator
LAWS: dict[str, Callable[[R, int], Floats]] = {
    "beta(2,5)": lambda rng, n: rng.beta(2, 5, n),
    "two hills": lambda rng, n: np.clip(rng.normal(np.where(rng.random(n) < 0.6, 0.3, 0.7), 0.05), 0, 1),
    "log-normal": lambda rng, n: np.clip(rng.lognormal(-2, 0.6, n), 0, 1),
    # Pay within [0, 200,000]: most people between 20,000 and 80,000, a long tail, many at round sums.
    "made-up pay": lambda rng, n: _pay(rng, n),
}
QUANTILES = (0.5, 0.9)
NAMED = ((100_000, 0.01, 1.0), (100_000, 0.01, 0.5), (1_000_000, 0.002, 1.0))
GRID = tuple(product((10_000, 100_000, 1_000_000), (0.002, 0.01, 0.05), (0.1, 0.5, 1.0, 4.0)))


class Cell(NamedTuple):
    law: str
    n: int
    opt_in: float
    epsilon: float
    quantile: float

    @property
    def study(self) -> DistributionStudy:
        return DistributionStudy(Bounds(0, 1), PureDP(self.epsilon), at=(self.quantile,))


# --- people -----------------------------------------------------------------------------------------------------------


def _pay(rng: R, n: int) -> Floats:
    pay = rng.lognormal(10.6, 0.55, n)
    round_sums = np.where(rng.random(n) < 0.1, np.round(pay / 5_000) * 5_000, pay)
    return np.asarray(np.clip(round_sums / 200_000, 0, 1))


def _salaries_file() -> Path | None:
    folder = os.environ.get("HYBRIDP_DATA")
    file = None if folder is None else Path(folder) / "uc-salaries.csv.gz"
    return file if file is not None and file.exists() else None


def laws() -> list[str]:
    """Four laws: the salaries where they are at hand, otherwise their stand-in."""
    first = "salaries" if _salaries_file() is not None else "made-up pay"
    return [first, *(name for name in LAWS if name != "made-up pay")]


@cache
def population(law: str) -> Floats:
    """Everybody, within [0, 1], in order."""
    file = _salaries_file()
    if law == "salaries" and file is not None:
        with gzip.open(file, "rt") as lines:
            pay = np.loadtxt(lines, delimiter=",", skiprows=1, usecols=1)
        return np.sort(np.clip(pay / 200_000, 0, 1))
    return np.sort(LAWS[law](np.random.default_rng(0), 2_000_000))


def _below(people: Floats, places: Floats) -> Floats:
    return np.searchsorted(people, places, side="right") / len(people)


def rank_error(people: Floats, value: float, q: float) -> float:
    """How far from q: 0 where the value stands among people who all have it, and q with them."""
    low = np.searchsorted(people, value, side="left") / len(people)
    high = np.searchsorted(people, value, side="right") / len(people)
    return float(max(low - q, q - high, 0.0))


# --- one collection ---------------------------------------------------------------------------------------------------


@cache
def _fine(law: str) -> Floats:
    """The shares of people in each sixteenth of a cell."""
    ends = np.linspace(0.0, 1.0, 16 * CELLS + 1)
    below = _below(population(law), ends)
    below[0], below[-1] = 0.0, 1.0
    return np.diff(below)


@cache
def _report_law(report: Randomiser) -> Floats:
    """The probability of each bin of a mean's reports, for people in each sixteenth of a cell."""
    fine, bins = report_bins(report, 16 * CELLS), report_bins(report, CELLS)
    sides = 2 if fine.signed else 1
    by_side = fine.matrix.reshape(sides, fine.count, -1)
    padded = np.pad(by_side, ((0, 0), (0, 16 * bins.count - fine.count), (0, 0)))
    return np.asarray(padded.reshape(sides * bins.count, 16, -1).sum(axis=1))


class Crowd:
    """A sample of people, who are asked as the product asks them.

    What is counted is drawn, not each person: how many of n people answer, or lie, so or so is multinomial. Trusted
    people, who are counted twice, are their ranks.
    """

    def __init__(self, cell: Cell, seed: int) -> None:
        self.cell, self.seed = cell, zlib.crc32(repr((*cell, seed)).encode())  # each cell has luck of its own
        self.lots = np.random.default_rng(self.seed)
        self.everybody, self.study = population(cell.law), cell.study
        self.trusted = round(cell.n * cell.opt_in)
        gaps = self.lots.standard_exponential(self.trusted + 1).cumsum()
        self.ranks = gaps[:-1] / gaps[-1]  # of a sample, in order
        self.local = cell.n - self.trusted

    def counting(self) -> Callable[[tuple[float, ...], CountNoise], NoisyCounts]:
        """Counts with the stated noise: the same words every time, so that ways to use them can be compared."""
        rng = seeded(self.seed)
        return lambda places, stated: self._count(places, stated, rng)

    def _count(self, places: tuple[float, ...], stated: CountNoise, rng: Randomness) -> NoisyCounts:
        below = np.searchsorted(self.ranks, _below(self.everybody, np.array(places)), side="right")
        counts = np.diff([0, *below, self.trusted])[: stated.draws] * stated.steps
        drawn = noise.discrete_laplace(stated.mechanism.scale, stated.draws, rng=rng)  # type: ignore[union-attr]
        return NoisyCounts(self.trusted, tuple((counts + drawn).tolist()), stated)

    def reports(self) -> BinnedReports:
        """Local people's reports of a mean, by bins."""
        report = self.study.invite.randomiser
        law = _report_law(report) @ _fine(self.cell.law)
        return BinnedReports(self.lots.multinomial(self.local, law / law.sum()), report)

    def answers(self, window: tuple[float, float], people: int) -> WindowReports:
        """Answers within a window: each is above its threshold by chance."""
        many = self.lots.multinomial(people, np.full(BINS, 1 / BINS))
        edges = np.linspace(*window, 16 * BINS + 1)
        below = _below(self.everybody, (edges[:-1] + edges[1:]) / 2).reshape(BINS, 16).mean(axis=1)
        q = self.study.bit.flips / WORD
        above = self.lots.binomial(many, q + (1 - 2 * q) * (1 - below))
        return WindowReports(window, many - above, above, self.study.bit)

    def plain(self) -> Heard:
        return hear(replace(self.study, estimator="hybrid"), self.trusted, self.reports(), self.counting())

    def alone(self) -> Heard:
        return hear(replace(self.study, estimator="tcm-only"), self.trusted, None, self.counting())

    def steered(self, pilot: Heard) -> Heard:
        heard = pilot
        for part in PHASES:
            (window,) = heard.windows(self.study.at, self.study.bounds)
            told = self.answers(window, round(part * self.local))
            heard = replace(heard, answered=(*heard.answered, told))
        return heard


def shape_of(heard: Heard) -> Shape:
    return blended(heard.known(Bounds(0, 1)), alone=False).both


def hierarchical(cell: Cell, lots: R) -> Floats:
    """The distribution function at the ends of 128 cells."""
    depth, shares = int(math.log2(CELLS)), _fine(cell.law).reshape(CELLS, 16).sum(axis=1)
    local = cell.n - round(cell.n * cell.opt_in)
    levels: list[Floats] = [np.ones(1)]
    for level, people in enumerate(lots.multinomial(local, np.full(depth, 1 / depth)).tolist(), 1):
        oracle = optimised_unary(PureDP(cell.epsilon), 2**level)
        mine = lots.multinomial(people, shares.reshape(2**level, -1).sum(axis=1))
        supports = lots.binomial(mine, oracle.truth) + lots.binomial(people - mine, oracle.other)
        levels.append(estimate(oracle, supports, people)[0])
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


WAYS = ("trusted", "hierarchical", "free", "both", "steered")


def one_trial(cell: Cell, seed: int) -> dict[str, tuple[float, float, float]]:
    """By each way: the estimate of the quantile, and the ends of its 95 % interval."""
    crowd, q = Crowd(cell, seed), cell.quantile
    plain, alone = crowd.plain(), crowd.alone()
    shapes = {
        "trusted": shape_of(alone),
        "hierarchical": Shape.known(hierarchical(cell, crowd.lots)),
        "free": shape_of(Heard(reports=plain.reports)),
        "both": shape_of(plain),
        "steered": shape_of(crowd.steered(alone)),
    }
    return {way: (shape.quantile(q), *shape.quantile_interval(q, 1.96)) for way, shape in shapes.items()}


def opendp_quantile(cell: Cell, seed: int) -> float:
    """OpenDP's private quantile of everybody, who all trust; 1,001 candidates."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    people = np.random.default_rng(seed).choice(population(cell.law), cell.n)
    candidates = [i / 1000 for i in range(1001)]
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=cell.n), dp.symmetric_distance()

    def measure(scale: float) -> Any:
        scored = space >> dp.t.then_quantile_score_candidates(candidates, cell.quantile)
        return scored >> dp.m.then_noisy_max(dp.max_divergence(), scale, negate=True)

    private = dp.binary_search_chain(measure, d_in=2, d_out=cell.epsilon)
    return candidates[int(private(people.tolist()))]


# --- the planner's choice ---------------------------------------------------------------------------------------------


def chosen(cell: Cell) -> str:
    """Steered or both, by public numbers alone."""
    from hybridp.bench.distribution import plan_distribution

    told = plan_distribution(n=cell.n, opt_in=cell.opt_in, study=cell.study)
    return "steered" if told.choice == "steered" else "both"


# --- tables -----------------------------------------------------------------------------------------------------------


Told = tuple[Cell, dict[str, tuple[float, float]], float]


def _trials(arguments: tuple[Cell, int]) -> Told:
    """RMSE and coverage of each way, and the limit, in %."""
    cell, trials = arguments
    people = population(cell.law)
    true = float(people[int(cell.quantile * len(people))])
    runs = [one_trial(cell, seed) for seed in range(1, trials + 1)]
    told = {}
    for way in WAYS:
        errors = [rank_error(people, run[way][0], cell.quantile) for run in runs]
        covered = np.mean([run[way][1] <= true <= run[way][2] for run in runs])
        told[way] = 100 * math.sqrt(float(np.mean(np.square(errors)))), 100 * float(covered)
    bit = cell.study.bit
    limit = 100 * math.sqrt((bit.gain**2 - (2 * cell.quantile - 1) ** 2) / 4 / cell.n)
    return cell, told, limit


def _told(cells: Sequence[Cell], trials: int, processes: int) -> Iterator[Told]:
    work = [(cell, trials) for cell in cells]
    if processes == 1:
        yield from map(_trials, work)
        return
    with ProcessPoolExecutor(processes) as pool:
        yield from pool.map(_trials, work)


def _covered(arguments: tuple[Cell, int]) -> tuple[Cell, list[float]]:
    """How often, in %, the 95 % intervals of trusted people alone, of both and of steered hold the quantile."""
    cell, trials = arguments
    people = population(cell.law)
    true = float(people[int(cell.quantile * len(people))])
    held = np.zeros(3)
    for seed in range(1, trials + 1):
        crowd = Crowd(cell, seed)
        alone = crowd.alone()
        for i, heard in enumerate((alone, crowd.plain(), crowd.steered(alone))):
            low, high = shape_of(heard).quantile_interval(cell.quantile, 1.96)
            held[i] += low <= true <= high
    return cell, (100 * held / trials).tolist()


def _coverage(cells: Sequence[Cell], trials: int, processes: int) -> int:
    print("law n opt-in epsilon quantile: coverage in % of the 95 % intervals of trusted, both, steered")
    with ProcessPoolExecutor(processes) as pool:
        for cell, held in pool.map(_covered, [(cell, trials) for cell in cells]):
            print(" ".join(f"{x:g}" if isinstance(x, float) else str(x) for x in cell), *held, flush=True)
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--grid", action="store_true", help="n, opt-in and epsilon over a grid, not three cells a law")
    parser.add_argument("--only", help="one law")
    parser.add_argument("--every", type=int, default=1, help="only every so-manieth cell")
    parser.add_argument("--coverage", action="store_true", help="only how often intervals hold the quantile")
    parser.add_argument("--opendp", action="store_true", help="beside OpenDP's quantile, where everybody trusts")
    asked = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    known = [law for law in laws() if asked.only in (None, law)]
    cells = [Cell(law, *place, q) for law in known for place in (GRID if asked.grid else NAMED) for q in QUANTILES]
    cells = cells[:: asked.every]
    if asked.coverage:
        return _coverage(cells, asked.trials, asked.processes)
    print(f"law n opt-in epsilon quantile: rank RMSE in % of {', '.join(WAYS)}, the limit; what the planner chooses,")
    print("over the better of trusted and hierarchical; coverage in % of both's and steered's 95 % intervals")
    worst = 0.0
    for cell, told, limit in _told(cells, asked.trials, asked.processes):
        choice = chosen(cell)
        ratio = told[choice][0] / min(told["trusted"][0], told["hierarchical"][0])
        worst = max(worst, ratio)
        numbers = " ".join(f"{told[way][0]:.2f}" for way in WAYS)
        covered = ", ".join(f"{told[way][1]:.1f}" for way in ("both", "steered"))
        beside = ""
        if asked.opendp:
            errors = [rank_error(population(cell.law), opendp_quantile(cell, s), cell.quantile) for s in (1, 2, 3)]
            beside = f"; OpenDP, all trusted: {100 * math.sqrt(float(np.mean(np.square(errors)))):.2f}"
        named = f"{cell.law} {cell.n:,} {cell.opt_in:g} {cell.epsilon:g} {cell.quantile:g}"
        print(f"{named}: {numbers}, {limit:.2f}; {choice}, {ratio:.2f}; {covered}{beside}", flush=True)
    print(f"largest ratio of the planner's choice: {worst:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
