"""Quantiles under mixed trust: trusted alone, collections made for them, free reports, both, and steered, in one run.

    python -m benchmarks.quantiles [--trials 20] [--only salaries] [--grid] [--opendp]

The error is in shares of people: how far the released value's true rank is from the one asked for (RMSE over trials).
Everything goes through the product's own counting, windows and estimator (`hybridp.protocols`, `hybridp.blend`). What
people send is drawn as counts, which is the same law as drawing every person and takes no longer for a million of them.

* `trusted`: trusted people alone. `hierarchical`: what a collection made for quantiles reaches, where every local
  person tells one level of a binary tree of 128 cells by optimised unary encoding, made consistent by least squares
  (Hay et al. 2010; Kulkarni et al. 2019). `square wave`: the other such collection, where a report is near the value
  more often than far from it, undone by expectation maximisation with smoothing (Li et al. 2020). `free`:
  reports of a mean. `both`: the plain blend. `steered`: in phases.
* What the planner would do, steered or trusted alone, knows n, opt-in and epsilon alone. `ratio`: its error over
  that of the better of `trusted` and `hierarchical` (target: at most 1.05).
* `OpenDP`: its private quantile with everybody trusting; `limit`: one bit a local person at the quantile itself.

`--grid`: n, opt-in and epsilon over a grid, 384 cells on one core in about a quarter of an hour: `--trials` of each,
and up to `--most` where the ratio could be on either side of 1.05. Prints a table of 48 rows and the cells that miss.
How often intervals hold, with 2,000 trials a cell: `python -m benchmarks.coverage`.

The salaries are read from the folder that HYBRIDP_DATA names; without it a made-up law stands in, and is labelled so.
"""

from __future__ import annotations

import argparse
import gzip
import math
import os
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridp import noise
from hybridp.blend.distribution import Evidence, Shape, blended
from hybridp.blend.plausible import plausible, windows_around
from hybridp.noise import Randomness, seeded
from hybridp.public.distribution import BINS, CELLS, PHASES, BinnedReports, cell_chances, report_bins
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import WORD, Bounds, Randomiser, estimate
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.tasks.distribution import DistributionTask
from hybridp_lab.baselines.oracles import optimised_unary
from hybridp_lab.simulate import hear

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
GRID = tuple(product((10_000, 100_000, 1_000_000), (0.002, 0.01, 0.05, 0.2), (0.1, 0.5, 1.0, 4.0)))


class Cell(NamedTuple):
    law: str
    n: int
    opt_in: float
    epsilon: float
    quantile: float

    @property
    def study(self) -> DistributionTask:
        return DistributionTask(Bounds(0, 1), PureDP(self.epsilon), at=(self.quantile,))


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
    by_side = cell_chances(report, 16 * CELLS).reshape(sides, fine.count, -1)
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
        report = self.study.invite.mechanism
        law = _report_law(report) @ _fine(self.cell.law)
        return BinnedReports(self.lots.multinomial(self.local, law / law.sum()), report)

    def answers(self, window: tuple[float, float], people: int) -> BinnedReports:
        """Answers within a window: each is above its threshold by chance."""
        many = self.lots.multinomial(people, np.full(BINS, 1 / BINS))
        edges = np.linspace(*window, 16 * BINS + 1)
        below = _below(self.everybody, (edges[:-1] + edges[1:]) / 2).reshape(BINS, 16).mean(axis=1)
        bit = self.study.invite_within(()).mechanism
        q = bit.flips / WORD
        above = self.lots.binomial(many, q + (1 - 2 * q) * (1 - below))
        return BinnedReports(np.concatenate([many - above, above]), bit, window)

    def plain(self) -> Evidence:
        return hear(replace(self.study, estimator="hybrid"), self.trusted, self.reports(), self.counting())

    def alone(self) -> Evidence:
        return hear(replace(self.study, estimator="tcm-only"), self.trusted, None, self.counting())

    def steered(self, pilot: Evidence) -> Evidence:
        heard = pilot
        for part in PHASES:
            (window,) = windows_around(self.study.at, heard)
            told = self.answers(window, round(part * self.local))
            heard = replace(heard, answered=(*heard.answered, told))
        return heard


def shape_of(heard: Evidence) -> Shape:
    return blended(heard, alone=False).both


def span_of(heard: Evidence, q: float) -> tuple[float, float]:
    """The 95 % interval of a quantile."""
    return plausible(heard).quantile_interval(q, 1.96)


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


@cache
def _wave(epsilon: float) -> Floats:
    """The probability of each of 128 even bins of the square wave's reports, for people in each sixteenth of a cell."""
    e = math.exp(epsilon)
    reach = (epsilon * e - e + 1) / (2 * e * (e - 1 - epsilon))
    far = 1 / (2 * reach * e + 1)
    cuts, at = np.linspace(-reach, 1 + reach, CELLS + 1), (np.arange(16 * CELLS) + 0.5) / 16 / CELLS
    inside = np.diff(np.clip(cuts[:, None], at - reach, at + reach), axis=0)
    return np.asarray(far * np.diff(cuts)[:, None] + far * (e - 1) * inside)


def square_wave(cell: Cell, lots: R) -> Floats:
    """The distribution function at the ends of 128 cells."""
    local = cell.n - round(cell.n * cell.opt_in)
    law = _wave(cell.epsilon) @ _fine(cell.law)
    sent = lots.multinomial(local, law / law.sum()) / local
    matrix = _wave(cell.epsilon).reshape(CELLS, CELLS, 16).mean(axis=2)
    shares, before = np.full(CELLS, 1 / CELLS), -math.inf
    for _ in range(10_000):
        meant = matrix @ shares
        likely = local * float(sent @ np.log(meant))
        if likely - before < 1e-3 * math.exp(cell.epsilon):
            break
        before = likely
        shares = shares * (matrix.T @ (sent / meant))
        shares = np.convolve(np.pad(shares, 1, mode="edge"), [0.25, 0.5, 0.25], mode="valid")
        shares /= shares.sum()
    return np.concatenate([[0.0], np.cumsum(shares)])


WAYS = ("trusted", "hierarchical", "square wave", "free", "both", "steered")


def one_trial(cell: Cell, seed: int) -> dict[str, tuple[float, float, float]]:
    """By each way: the estimate of the quantile, and the ends of its 95 % interval where the product states one."""
    crowd, q = Crowd(cell, seed), cell.quantile
    plain, alone = crowd.plain(), crowd.alone()
    ways = {
        "trusted": alone,
        "hierarchical": Shape.known(hierarchical(cell, crowd.lots)),
        "square wave": Shape.known(square_wave(cell, crowd.lots)),
        "free": Evidence(reports=plain.reports),
        "both": plain,
        "steered": crowd.steered(alone),
    }
    found = {}
    for way, told in ways.items():
        shape = shape_of(told) if isinstance(told, Evidence) else told
        span = span_of(told, q) if isinstance(told, Evidence) else (math.nan, math.nan)
        found[way] = (shape.quantile(q), *span)
    return found


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


# --- tables -----------------------------------------------------------------------------------------------------------


def _trials(arguments: tuple[Cell, int]) -> tuple[Cell, dict[str, tuple[float, float]], float]:
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
    bit = cell.study.invite_within(()).mechanism
    limit = 100 * math.sqrt((bit.gain**2 - (2 * cell.quantile - 1) ** 2) / 4 / cell.n)
    return cell, told, limit


class Seen(NamedTuple):
    """One cell of the grid: rank errors of each way and widths of intervals, trial by trial, in shares of people."""

    cell: Cell
    errors: dict[str, list[float]]
    widths: dict[str, list[float]]
    held: dict[str, list[bool]]
    tree: float
    wave: float

    @property
    def ratio(self) -> float:
        """The planner's choice over the better of trusted alone and a hierarchical collection."""
        return self._ratio(range(len(self.errors["trusted"])))

    def _ratio(self, trials: Sequence[int]) -> float:
        def rmse(way: str) -> float:
            return math.sqrt(float(np.mean([self.errors[way][i] ** 2 for i in trials]))) + 1e-9

        return rmse("steered") / min(rmse("trusted"), self.tree)

    @property
    def uncertain(self) -> float:
        """The standard error of the ratio's logarithm, by leaving out one trial at a time."""
        many = len(self.errors["trusted"])
        left = [math.log(self._ratio([j for j in range(many) if j != i])) for i in range(many)]
        return math.sqrt((many - 1) * float(np.var(left)))

    @property
    def missed(self) -> bool:
        """Above 1.05 by two standard errors."""
        return math.log(self.ratio / 1.05) > 2 * self.uncertain

    @property
    def close(self) -> bool:
        """Not below 1.05 by two standard errors."""
        return math.log(self.ratio / 1.05) > -2 * self.uncertain

    def grow(self, trials: int) -> None:
        people, q = population(self.cell.law), self.cell.quantile
        first = len(self.errors["trusted"]) + 1
        for seed in range(first, first + trials):
            crowd = Crowd(self.cell, seed)
            alone = crowd.alone()
            ways = {"trusted": alone, "both": crowd.plain(), "steered": crowd.steered(alone)}
            for way, heard in ways.items():
                shape = shape_of(heard)
                self.errors[way].append(rank_error(people, shape.quantile(q), q))
                low, high = span_of(heard, q)
                self.held[way].append(low <= float(people[int(q * len(people))]) <= high)
                self.widths[way].append(float(np.diff(_below(people, np.array([low, high])))[0]))


def _seen(cell: Cell, trials: int, most: int) -> Seen:
    people, lots = population(cell.law), np.random.default_rng(zlib.crc32(repr(cell).encode()))

    def rmse(shapes: Iterator[Floats]) -> float:
        errors = (rank_error(people, Shape.known(shape).quantile(cell.quantile), cell.quantile) for shape in shapes)
        return math.sqrt(float(np.mean([error**2 for error in errors])))

    tree = rmse(hierarchical(cell, lots) for _ in range(60))
    # It takes long to undo where epsilon is small, and says little there.
    wave = rmse(square_wave(cell, lots) for _ in range(8)) if cell.epsilon >= 1 else math.nan
    ways = ("trusted", "both", "steered")
    seen = Seen(cell, {way: [] for way in ways}, {way: [] for way in ways}, {way: [] for way in ways}, tree, wave)
    seen.grow(trials)
    while seen.close and len(seen.errors["trusted"]) < most:
        seen.grow(trials)
    return seen


def _grid(cells: Sequence[Cell], trials: int, most: int) -> int:
    """A row for each n, opt-in and epsilon: over the laws and quantiles, geometric means and the largest ratio."""
    cells = sorted(cells, key=lambda cell: cell[1:4])
    missed: list[str] = []
    print("| n, opt-in, ε | choice; in one go | ratio: mean, largest | over square wave | width | covers |")
    print("|---|---|---|---|---|---|")
    ratios: dict[float, list[float]] = {q: [] for q in QUANTILES}
    held_by: dict[tuple[str, str], list[bool]] = {}

    def mean(values: Sequence[float]) -> float:
        return math.exp(float(np.mean(np.log(np.maximum(values, 1e-9)))))

    for place in dict.fromkeys(cell[1:4] for cell in cells):
        told = [_seen(cell, trials, most) for cell in cells if cell[1:4] == place]
        ways = [["steered"] * len(told), ["both"] * len(told)]
        for one in told:
            ratios[one.cell.quantile].append(one.ratio)
            if one.ratio > 1.05:
                error = f"{one.ratio:.2f} (± {one.ratio * one.uncertain:.2f}, {len(one.errors['trusted'])} runs)"
                named = f"{one.cell.law}, n = {one.cell.n:,}, {one.cell.opt_in:.1%}, ε = {one.cell.epsilon:g}, "
                missed.append(f"{named}quantile {one.cell.quantile:g}: {'**' * one.missed}{error}{'**' * one.missed}")
        own = [float(np.mean(one.widths["trusted"])) for one in told]
        by_way = [list(zip(told, ways[i], strict=True)) for i in (0, 1)]
        wide = [mean([float(np.mean(one.widths[way])) for one, way in of]) / mean(own) for of in by_way]
        largest = max(one.ratio for one in told)
        bold = "**" if any(one.missed for one in told) else ""
        said = "; ".join(" or ".join(sorted(set(way))) for way in ways)
        row = f"{place[0]:,}, {place[1]:.1%}, {place[2]:g} | {said}"
        row += f" | {mean([one.ratio for one in told]):.2f}, {bold}{largest:.2f}{bold}"
        waves = [math.sqrt(float(np.mean(np.square(one.errors[way])))) / one.wave for one, way in by_way[0]]
        beside = "" if math.isnan(waves[0]) else f"{mean(waves):.2f}"
        covers = [100 * float(np.mean([held for one, way in of for held in one.held[way]])) for of in by_way]
        for of, name in zip(by_way, ("choice", "in one go"), strict=True):
            for one, way in of:
                held_by.setdefault((one.cell.law, name), []).extend(one.held[way])
        row += f" | {beside} | {wide[0]:.2f}, {wide[1]:.2f} | {covers[0]:.0f}, {covers[1]:.0f}"
        print(f"| {row} |", flush=True)
    for (law, name), held in held_by.items():
        print(f"{law}, {name}: {len(held)} intervals, {100 * float(np.mean(held)):.1f} % cover")
    for q, values in ((q, values) for q, values in ratios.items() if values):
        print(f"quantile {q:g}: {len(values)} cells, ratio {mean(values):.2f} on average, largest {max(values):.2f}")
    print(f"above 1.05 (bold: by two standard errors): {len(missed)}", *missed, sep="\n* ")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--most", type=int, default=60, help="with --grid: trials of a cell that is close")
    parser.add_argument("--grid", action="store_true", help="n, opt-in and epsilon over a grid, not three cells a law")
    parser.add_argument("--only", help="one law")
    parser.add_argument("--every", type=int, default=1, help="only every so-manieth cell")
    parser.add_argument("--opendp", action="store_true", help="beside OpenDP's quantile, where everybody trusts")
    asked = parser.parse_args(arguments)
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    known = [law for law in laws() if asked.only in (None, law)]
    places = GRID if asked.grid else NAMED
    cells = [Cell(law, *place, q) for law in known for place in places for q in QUANTILES][:: asked.every]
    if asked.grid:
        return _grid(cells, asked.trials, asked.most)
    print(f"law n opt-in epsilon quantile: rank RMSE in % of {', '.join(WAYS)}, the limit; what the planner chooses,")
    print("over the best of the first three; coverage in % of both's and steered's 95 % intervals")
    worst = 0.0
    for cell, told, limit in map(_trials, ((cell, asked.trials) for cell in cells)):
        ratio = told["steered"][0] / min(told[way][0] for way in WAYS[:3])
        worst = max(worst, ratio)
        numbers = " ".join(f"{told[way][0]:.2f}" for way in WAYS)
        covered = ", ".join(f"{told[way][1]:.1f}" for way in ("both", "steered"))
        beside = ""
        if asked.opendp:
            errors = [rank_error(population(cell.law), opendp_quantile(cell, s), cell.quantile) for s in (1, 2, 3)]
            beside = f"; OpenDP, all trusted: {100 * math.sqrt(float(np.mean(np.square(errors)))):.2f}"
        named = f"{cell.law} {cell.n:,} {cell.opt_in:g} {cell.epsilon:g} {cell.quantile:g}"
        print(f"{named}: {numbers}, {limit:.2f}; steered, {ratio:.2f}; {covered}{beside}", flush=True)
    print(f"largest ratio of the planner's choice: {worst:.2f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
