"""Do intervals hold what they say? Every 95 % interval of a study over a grid, 2,000 trials a cell.

    python -m benchmarks.coverage [--trials 2000] [--jobs 16] [--minutes 8] [--only mean,shares] [--out lines.jsonl]
    python -m benchmarks.coverage --table lines.jsonl

The first prints, and writes, one JSON line for each cell and statistic: how often the interval held what is true of the
population that people were drawn from. The second writes the tables of `benchmarks/README.md`. Everything goes through
the product's own mechanisms, counting, windows and estimators; people, and what is counted of them, are drawn by NumPy.

* mean: of trusted, of local and of both groups, by the default rule; a sum and its interval are so many times these.
* shares: of one of two (a count), three and ten options, and of several of five; by the default rule.
* number: what a distribution function tells: three quantiles, a share above a line, F at a place that nobody asked for,
  a histogram, variance (the standard deviation is its root), Gini. Reports of a mean alone are the free statistics.
* steered: two quantiles, local people asked in three phases within windows around them.
* groups, private, waves: differences between public groups, private categories, and two waves.
* strata: mean, share and median of everybody, where those who trust have so many standard deviations more than others.

"no alarm" is how often two groups that are alike were not said to differ, at 5 %. A share of 95 % has a standard error
of .5 %. On 16 cores it takes about seven minutes.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import pairwise, product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.quantiles import Cell as QuantileCell
from benchmarks.quantiles import Crowd, population
from benchmarks.utility import write_between
from hybridp import noise
from hybridp.blend.groups import JointBlend, blend_joint, mean_gaps, published_gap, share_gaps
from hybridp.blend.mean import Blend, blend
from hybridp.blend.plausible import plausible, windows_around
from hybridp.blend.shares import ShareBlend, blend_shares
from hybridp.noise import Randomness, seeded
from hybridp.public.distribution import PHASES
from hybridp.public.groups import STEPS, Joint
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import LocalSummary, TrustedSummary
from hybridp.public.queries import Feature
from hybridp.public.randomisers import Bounds, k_randomised_response, share_oracle
from hybridp.public.shares import NoisyCounts, ShareReports, count_noise, tick_noise
from hybridp.tasks.distribution import DistributionTask
from hybridp.tasks.mean import MeanTask
from hybridp_lab.simulate import hear

__all__ = ["main"]

LEVEL, REACH = 0.95, 1.959964
BLOCK = 20
EPSILONS = (0.1, 0.5, 1.0, 4.0)
UNIT = Bounds(0, 1)
Floats = NDArray[np.float64]
Draw = np.random.Generator
Held = dict[str, bool]
PAY = "made-up pay"


@dataclass(frozen=True)
class Cell:
    """Some kind of statistics, of so many trusted and local people of one law, at one epsilon."""

    kind: str
    law: str
    trusted: int
    local: int
    epsilon: float

    @property
    def promise(self) -> PureDP:
        return PureDP(self.epsilon)

    @property
    def people(self) -> str:
        both = (self.trusted, "trusted"), (self.local, "local")
        return " + ".join(f"{many:,} {who}" for many, who in both if many)


# --- means ------------------------------------------------------------------------------------------------------------


@cache
def _everybody(law: str) -> Floats:
    """A population within [0, 1]: a law of `benchmarks.quantiles`, or so many at 1 and the rest at 0."""
    if law.startswith("yes or no"):
        share = float(law.split()[-1])
        return np.repeat([0.0, 1.0], [round(1_000 * (1 - share)), round(1_000 * share)])
    return population(law)


def _mean(cell: Cell, draw: Draw, rng: Randomness, trusting: Floats | None = None) -> Blend:
    """One study of a mean by the default rule; those who trust may be another population."""
    study, people = MeanTask(UNIT, cell.promise), _everybody(cell.law)
    own = told = None
    if cell.trusted:
        held = draw.choice(people if trusting is None else trusting, cell.trusted)
        drawn = int(_laplace(study.sum_noise.scale, 1, rng)[0])  # type: ignore[union-attr]
        own = TrustedSummary(cell.trusted, int(UNIT.levels(held).sum()) + drawn, study.sum_noise)
    if cell.local:
        report = study.invite.mechanism
        sent = noise.reports(report, UNIT.levels(draw.choice(people, cell.local)), rng=rng)
        told = LocalSummary(cell.local, float(sent.sum()), float(sent @ sent), report)
    return blend(own, told, study.rule)


def mean_trial(cell: Cell, draw: Draw, rng: Randomness) -> Held:
    found, truth = _mean(cell, draw, rng), 2 * float(_everybody(cell.law).mean()) - 1
    told = {"mean, sum": abs(found.estimate - truth) <= found.half_width(LEVEL)}
    if found.disagreement is not None:
        told["no alarm"] = found.disagreement.p_value >= 1 - LEVEL
    return told


# --- choices ----------------------------------------------------------------------------------------------------------

CHOICES = {
    "2 options": (0.02, 0.98),
    "3 options": (0.02, 0.28, 0.7),
    "10 options": (0.005, 0.02, 0.03, 0.05, 0.08, 0.1, 0.12, 0.15, 0.2, 0.245),
    "several of 5": (0.01, 0.05, 0.2, 0.5, 0.9),
}


def _laplace(scale: float, many: int, rng: Randomness) -> NDArray[np.int64]:
    return np.asarray(noise.discrete_laplace(scale, many, rng=rng), dtype=np.int64)


def _shares(
    cell: Cell, draw: Draw, rng: Randomness, shares: Sequence[float] = (), trusting: Sequence[float] = ()
) -> ShareBlend:
    """One study of some options by the default rule; those who trust may have other shares."""
    truth = np.asarray(shares or CHOICES[cell.law])
    stated, oracle = count_noise(cell.promise, len(truth)), share_oracle(cell.promise, len(truth))
    own = told = None
    if cell.trusted:
        held = draw.multinomial(cell.trusted, trusting or truth)[: stated.draws]
        noisy = held + _laplace(stated.mechanism.scale, stated.draws, rng)  # type: ignore[union-attr]
        own = NoisyCounts(cell.trusted, tuple(noisy.tolist()), stated)
    if cell.local:
        told = ShareReports(cell.local, _supports(draw, oracle, draw.multinomial(cell.local, truth)), oracle)
    return blend_shares(own, told)


def _supports(draw: Draw, oracle: Any, held: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many reports support each option: named ones, or sets drawn as those of the holder and of the rest."""
    size = len(held)
    counts = np.zeros(size, dtype=np.int64)
    for option, people in enumerate(held.tolist()):
        kept = int(draw.binomial(people, oracle.truth))
        counts[option] += kept
        others = np.delete(np.arange(size), option)
        set_size = getattr(oracle, "size", 1)
        for many, picks in ((kept, set_size - 1), (people - kept, set_size)):
            if many and picks == 1:
                counts[others] += draw.multinomial(many, np.full(size - 1, 1 / (size - 1)))
            elif many and picks:
                keys = draw.random((many, size - 1), dtype=np.float32)
                chosen = np.argpartition(keys, picks - 1, axis=1)[:, :picks]
                counts[others] += np.bincount(chosen.ravel(), minlength=size - 1)
    return counts


def _ticks(cell: Cell, draw: Draw, rng: Randomness) -> list[ShareBlend]:
    """One study of several of several options, which people tick as they like: a yes or no each."""
    truth = CHOICES[cell.law]
    question = Feature("ways", tuple(f"w{i}" for i in range(len(truth))), most=len(truth))
    stated = replace(tick_noise(cell.promise, question), size=2, several=False)
    oracle = k_randomised_response(cell.promise, 2)
    asked = draw.multinomial(cell.local, np.full(len(truth), 1 / len(truth))).tolist()
    found = []
    for share, people in zip(truth, asked, strict=True):
        own = told = None
        if cell.trusted:
            ticked = int(draw.binomial(cell.trusted, share)) + int(_laplace(stated.mechanism.scale, 1, rng)[0])  # type: ignore[union-attr]
            own = NoisyCounts(cell.trusted, (ticked,), stated)
        if people:
            yes = int(draw.binomial(people, oracle.other + (oracle.truth - oracle.other) * share))
            told = ShareReports(people, np.array([yes, people - yes]), oracle)
        found.append(blend_shares(own, told, answering=people / cell.local if cell.local else 1.0))
    return found


def share_trial(cell: Cell, draw: Draw, rng: Randomness) -> Held:
    truth = CHOICES[cell.law]
    told: Held = {}
    if cell.law.startswith("several"):
        blends = _ticks(cell, draw, rng)
        ends = [one.intervals(LEVEL) for one in blends]
        low, high = [float(a[0]) for a, _ in ends], [float(b[0]) for _, b in ends]
        alarms = [one.single_p_values() for one in blends]
        alarm = None if alarms[0] is None else [p[0] for p in alarms if p is not None]
    else:
        found = _shares(cell, draw, rng)
        low, high = (end.tolist() for end in found.intervals(LEVEL))
        alarm = found.single_p_values()
    for share, a, b in zip(truth, low, high, strict=True):
        told[f"share of {share:g}"] = a <= share <= b
    if alarm is not None:
        told["no alarm"] = alarm[-1] >= 1 - LEVEL
    return told


# --- a number's distribution ------------------------------------------------------------------------------------------

AT = (0.5, 0.9, 0.99)
LINE, PLACE = 0.3, 0.25
EDGES = (0.0, 0.1, 0.2, 0.4, 0.7, 1.0)


@cache
def _truth(law: str) -> dict[str, Any]:
    """Of the population: quantiles, shares at or below places, variance and Gini."""
    people = _everybody(law)
    n = len(people)
    below = {x: float(np.searchsorted(people, x, side="right")) / n for x in (*EDGES, LINE, PLACE)}
    index = float(((2 * np.arange(1, n + 1) - n - 1) * people).sum() / n**2 / people.mean())
    return {"quantiles": {q: float(people[int(q * n)]) for q in AT}, "below": below, "variance": float(people.var()),
            "gini": index}  # fmt: skip


def _crowd(cell: Cell, study: DistributionTask, draw: Draw) -> Crowd:
    n = cell.trusted + cell.local
    crowd = Crowd(QuantileCell(cell.law, n, cell.trusted / n, cell.epsilon, 0.5), int(draw.integers(2**62)))
    crowd.study = study
    return crowd


def _held(span: tuple[float, float], truth: float) -> bool:
    return bool(span[0] <= truth <= span[1])


def number_trial(cell: Cell, draw: Draw, rng: Randomness) -> Held:
    whole = DistributionTask(UNIT, cell.promise, at=AT, above=(LINE,), edges=EDGES, spread=True, estimator="hybrid")
    crowd = _crowd(cell, whole, draw)
    heard = hear(whole, cell.trusted, crowd.reports() if cell.local else None, crowd.counting())
    beside = plausible(heard, (LINE, *EDGES[1:-1]))
    truth = _truth(cell.law)
    told = {f"quantile {q:g}": _held(beside.quantile_interval(q, REACH), x) for q, x in truth["quantiles"].items()}
    shares: dict[str, tuple[float | None, float | None]] = {
        "share above": (LINE, None),
        "F, not asked for": (None, PLACE),
    }
    for i, (low, high) in enumerate(pairwise(EDGES), 1):
        shares[f"bin {i}"] = None if low == 0 else low, None if high == 1 else high
    for name, (first, last) in shares.items():
        true = (1.0 if last is None else truth["below"][last]) - (0.0 if first is None else truth["below"][first])
        told[name] = _held(beside.between(first, last, REACH), true)
    told["variance"] = _held(beside.variance_interval(REACH), truth["variance"])
    told["gini"] = _held(beside.gini_interval(0.0, REACH), truth["gini"])
    return told


def steered_trial(cell: Cell, draw: Draw, rng: Randomness) -> Held:
    study = DistributionTask(UNIT, cell.promise, at=AT[:2])
    crowd = _crowd(cell, study, draw)
    heard = hear(replace(study, estimator="tcm-only"), cell.trusted, None, crowd.counting())
    heard = replace(heard, alike=False)
    for part in PHASES:
        windows = windows_around(study.at, heard)
        many = draw.multinomial(round(part * cell.local), np.full(len(windows), 1 / len(windows))).tolist()
        told = tuple(crowd.answers(window, people) for window, people in zip(windows, many, strict=True))
        heard = replace(heard, answered=(*heard.answered, *told))
    beside = plausible(heard)
    return {f"quantile {q:g}": _held(beside.quantile_interval(q, REACH), _truth(cell.law)["quantiles"][q])
            for q in study.at}  # fmt: skip


# --- groups, private categories, waves --------------------------------------------------------------------------------


def group_trial(cell: Cell, draw: Draw, rng: Randomness) -> Held:
    """Two groups, the second of a third of the people: means that differ, and that do not; shares likewise."""
    other = replace(cell, trusted=cell.trusted // 3, local=cell.local // 3)
    apart = replace(other, law="yes or no 0.2")
    means = [_mean(one, draw, rng) for one in (cell, apart, other)]
    gap, none = mean_gaps(means, [(0, 1), (0, 2)], LEVEL)
    truth = 2 * float(_everybody(cell.law).mean() - 0.2)
    told = {"difference of means": gap.low <= truth <= gap.high, "no alarm (means)": none.p_value >= 1 - LEVEL}
    first, second = (0.05, 0.35, 0.6), (0.25, 0.35, 0.4)
    pair = [_shares(cell, draw, rng, first), _shares(other, draw, rng, second)]
    (gaps,) = share_gaps(pair, [(0, 1)], LEVEL)
    for i in (0, 1):
        d = first[i] - second[i]
        told[f"difference of shares {d:g}"] = gaps[i].low <= d <= gaps[i].high
    return {**told, "no alarm (shares)": gaps[1].p_value >= 1 - LEVEL}


def _median(cell: Cell, draw: Draw, estimator: Any, trusting: Floats | None = None) -> tuple[float, float]:
    """The interval of a median; those who trust may be another population."""
    study = DistributionTask(UNIT, cell.promise, at=(0.5,), estimator=estimator)
    crowd = _crowd(cell, study, draw)
    crowd.everybody = crowd.everybody if trusting is None else trusting
    heard = hear(study, cell.trusted, crowd.reports() if cell.local else None, crowd.counting())
    return plausible(heard).quantile_interval(0.5, REACH)


def wave_trial(cell: Cell, draw: Draw, rng: Randomness) -> Held:
    """Two waves of other people, by what was published of each: a mean, a share, a median."""
    waves: dict[str, list[tuple[float, tuple[float, float]]]] = {"mean": [], "share": [], "median": []}
    for law, yes in ((cell.law, 0.1), ("beta(2,5)", 0.15)):
        found = _mean(replace(cell, law=law), draw, rng)
        half = found.half_width(LEVEL)
        waves["mean"].append((found.estimate, (found.estimate - half, found.estimate + half)))
        blended = _shares(cell, draw, rng, (yes, 1 - yes))
        low, high = (float(end[0]) for end in blended.intervals(LEVEL))
        waves["share"].append((min(max(float(blended.estimate[0]), low), high), (low, high)))
        span = _median(replace(cell, law=law), draw, "hybrid")
        waves["median"].append(((span[0] + span[1]) / 2, span))
    truth = {
        "mean": 2 * float(_everybody(cell.law).mean() - _everybody("beta(2,5)").mean()),
        "share": -0.05,
        "median": _truth(cell.law)["quantiles"][0.5] - _truth("beta(2,5)")["quantiles"][0.5],
    }
    gaps = {name: published_gap(*first, *second, LEVEL) for name, (first, second) in waves.items()}
    return {f"change of a {name}": gap.low <= truth[name] <= gap.high for name, gap in gaps.items()}


PARTS, MEANS = np.array([0.55, 0.35, 0.1]), np.array([0.3, 0.3, 0.8])


def private_trial(cell: Cell, draw: Draw, rng: Randomness) -> Held:
    """A number in [0, 1] by a private category: everybody at a bound, or within them with a stated spread."""
    joint = Joint(Feature.categorical("category", ["a", "b", "c"]), "value", UNIT)
    stated, oracle = joint.noise(cell.promise), joint.invite(cell.promise).oracle
    own = told = sd = None
    if cell.trusted:
        people = draw.multinomial(cell.trusted, PARTS)
        if cell.law == "at the bounds":
            upper = draw.binomial(people, MEANS).astype(np.float64)
        else:
            size = 1 / 0.3**2 - 1
            upper = np.array([draw.beta(m * size, (1 - m) * size, p).sum() for m, p in zip(MEANS, people, strict=True)])
            sd = float(np.sqrt(np.max(MEANS * (1 - MEANS)) / (size + 1)))
        cells = np.column_stack([upper, people - upper]).ravel() * STEPS
        noisy = cells + _laplace(stated.mechanism.scale, len(cells), rng)  # type: ignore[union-attr]
        own = NoisyCounts(cell.trusted, tuple(round(float(x)) for x in noisy), stated)
    if cell.local:
        chances = np.column_stack([PARTS * MEANS, PARTS * (1 - MEANS)]).ravel()
        told = ShareReports(cell.local, _supports(draw, oracle, draw.multinomial(cell.local, chances)), oracle)
    whole = JointBlend(own, told, joint.size, sd, by_people=True)
    found = [blend_joint(whole, [i]) for i in range(3)]
    held: Held = {}
    for i in (0, 2):
        low, high = found[i].intervals(LEVEL)
        held[f"mean in {PARTS[i]:.0%}"] = bool(low[0] <= MEANS[i] <= high[0])
    low_share, high_share = found[2].share_interval(LEVEL)
    gap = found[0].gaps(found[1], LEVEL)[0]
    held["share of 10%"] = low_share <= PARTS[2] <= high_share
    return {**held, "difference": gap.low <= 0 <= gap.high, "no alarm": gap.p_value >= 1 - LEVEL}


# --- groups that differ, by the default rule --------------------------------------------------------------------------

GAPS, YES = {f"beta(2,5) + {gap:g}": f"{gap:g} sd" for gap in (0, 0.1, 0.5, 1)}, 0.2


def strata_trial(cell: Cell, draw: Draw, rng: Randomness) -> Held:
    """A number, and a yes or no, of which those who trust have so many standard deviations more than the others."""
    name, gap = cell.law.split(" + ")
    cell, part = replace(cell, law=name), cell.trusted / (cell.trusted + cell.local)
    others = np.minimum((people := _everybody(name)) + float(gap) * people.std(), 1.0)
    found, truth = _mean(cell, draw, rng, others), 2 * (part * others.mean() + (1 - part) * people.mean()) - 1
    told = {"mean": abs(found.estimate - truth) <= found.half_width(LEVEL)}
    more = YES + float(gap) * math.sqrt(YES * (1 - YES))
    low, high = _shares(cell, draw, rng, (YES, 1 - YES), (more, 1 - more)).intervals(LEVEL)
    told["share"] = bool(low[0] <= YES + part * (more - YES) <= high[0])
    places = np.linspace(0, 1, 20_001)
    below = (np.searchsorted(one, places, side="right") / len(one) for one in (others, people))
    middle = float(np.interp(0.5, sum(w * f for w, f in zip((part, 1 - part), below, strict=True)), places))
    return {**told, "median": _held(_median(cell, draw, "everyone", others), middle)}


# --- the grid ---------------------------------------------------------------------------------------------------------

Trial = Callable[[Cell, Draw, Randomness], Held]
TRIALS: dict[str, Trial] = {
    "steered": steered_trial, "number": number_trial, "waves": wave_trial, "mean": mean_trial, "groups": group_trial,
    "shares": share_trial, "private": private_trial, "strata": strata_trial,
}  # fmt: skip
SOME = (0.1, 1.0)
GRID: dict[str, tuple[Sequence[str], Sequence[tuple[int, int]], Sequence[float]]] = {
    "steered": ((PAY,), ((1_000, 99_000),), SOME),
    "number": ((PAY,), ((2_000, 0), (0, 20_000), (100, 9_900), (5_000, 45_000)), EPSILONS),
    "waves": (("log-normal",), ((200, 10_000),), SOME),
    "mean": (("beta(2,5)", PAY, "yes or no 0.02"), ((500, 0), (0, 5_000), (200, 5_000)), EPSILONS),
    "groups": ((PAY,), ((600, 0), (150, 6_000)), SOME),
    "shares": (tuple(CHOICES), ((500, 0), (0, 5_000), (200, 5_000)), EPSILONS),
    "private": (("at the bounds",), ((0, 6_000), (600, 5_400)), (1.0, 4.0)),
    "strata": (tuple(GAPS), ((1_000, 99_000), (5_000, 95_000), (20_000, 80_000)), (1.0,)),
}


def cells() -> Iterator[Cell]:
    """The grid, what takes longest first."""
    for kind, (laws, people, epsilons) in GRID.items():
        for epsilon, (trusted, local), law in product(epsilons, people, laws):
            yield Cell(kind, law, trusted, local, epsilon)
    for epsilon, law in product(SOME, ("beta(2,5)", "log-normal", "two hills")):
        yield Cell("number", law, 100, 9_900, epsilon)
    yield Cell("private", "within the bounds", 2_000, 4_000, 1.0)


def _block(block: tuple[Cell, int, int, float]) -> tuple[Cell, dict[str, int], int]:
    cell, number, many, until = block
    seed = zlib.crc32(repr((cell, number)).encode())
    draw, rng = np.random.default_rng(seed), seeded(seed)
    held: dict[str, int] = {}
    for trial in range(many):
        if time.time() > until:
            return cell, held, trial
        for name, inside in TRIALS[cell.kind](cell, draw, rng).items():
            held[name] = held.get(name, 0) + bool(inside)
    return cell, held, many


def _line(cell: Cell, name: str, held: int, trials: int) -> str:
    return json.dumps({**asdict(cell), "interval": name, "held": held, "trials": trials})


def _table(lines: Sequence[str], by: str, columns: dict[Any, str]) -> str:
    """A row for each kind, people and interval, a column for each epsilon, or gap: the least and largest over laws."""
    told: dict[tuple[str, str, str], dict[Any, list[tuple[float, int]]]] = {}
    for one in map(json.loads, lines):
        cell = Cell(one["kind"], one["law"], one["trusted"], one["local"], one["epsilon"])
        name, law = one["interval"], cell.law
        if cell.kind == "shares":
            name = "no alarm" if name == "no alarm" else f"each of {law}"
        elif cell.kind == "number" and name.startswith("bin"):
            name = "histogram, each bin"
        row = told.setdefault((cell.kind, cell.people, name), {})
        row.setdefault(one[by], []).append((one["held"] / one["trials"], one["trials"]))
    head = ["", "people", "interval of", *columns.values()]
    found = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for (kind, people, name), seen in told.items():
        texts = []
        for some in (seen.get(column, []) for column in columns):
            ends = dict.fromkeys(f"{100 * end(some)[0]:.1f}" for end in (min, max) if some)
            least, trials = min(some, default=(1.0, 1))
            bold = "**" if least < 0.93 - 1.96 * math.sqrt(0.93 * 0.07 / trials) else ""
            texts.append(f"{bold}{' – '.join(ends)}{bold}")
        found.append("| " + " | ".join([kind, people, name, *texts]) + " |")
    return "\n".join(found)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2_000)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="then no further trials begin")
    parser.add_argument("--only", default=",".join(TRIALS), help="kinds of cells, as mean,number")
    parser.add_argument("--out", type=Path, help="where the lines go, beside standard output")
    parser.add_argument("--table", type=Path, help="no trials: write the table of these lines into README.md")
    asked = parser.parse_args(arguments)
    if asked.table is not None:
        lines, readme = asked.table.read_text().splitlines(), Path(__file__).parent / "README.md"
        if strata := [line for line in lines if '"strata"' in line]:
            write_between(readme, "strata", _table(strata, "law", GAPS))
        if others := [line for line in lines if line not in strata]:
            write_between(readme, "coverage", _table(others, "epsilon", {e: f"ε = {e:g}" for e in EPSILONS}))
        return 0
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    chosen = [cell for cell in cells() if cell.kind in asked.only.split(",")]
    parts = [min(BLOCK, asked.trials - start) for start in range(0, asked.trials, BLOCK)]
    counts: dict[Cell, dict[str, int]] = {cell: {} for cell in chosen}
    done = dict.fromkeys(chosen, 0)
    until, kept = time.time() + 60 * asked.minutes, time.time()
    blocks = [(cell, i, many, until) for i, many in enumerate(parts) for cell in chosen]
    with get_context("spawn").Pool(asked.jobs) as pool:
        for at, (cell, held, many) in enumerate(pool.imap_unordered(_block, blocks), 1):
            done[cell] += many
            for name, times in held.items():
                counts[cell][name] = counts[cell].get(name, 0) + times
            if time.time() > kept + 5 or at == len(blocks):  # what was done is never lost
                kept = time.time()
                lines = [_line(one, name, times, done[one]) for one in chosen for name, times in counts[one].items()]
                if asked.out is not None:
                    asked.out.write_text("\n".join(lines) + "\n")
                print(f"{at} of {len(blocks)} blocks", file=sys.stderr, flush=True)
    print("\n".join(lines), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
