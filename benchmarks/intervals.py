"""Do intervals hold what they say? Simulated people through the product's own estimators, 2,000 trials a cell.

`python -m benchmarks.intervals [--trials 2000] [--only mean,shares,groups,private]` prints the share of trials in which
a 95 % interval held the truth, cell by cell: of a mean, of shares, of differences between public groups, and of private
categories and their differences. Samples are drawn by NumPy; reports and noise have the mechanisms' own laws. A share
outside 93 to 97.5 % is marked.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.groups import mean_gaps, share_gaps
from hybridp.blend.joint import JointBlend, blend_joint
from hybridp.blend.mean import Blend, Rule, blend
from hybridp.blend.shares import ShareBlend, blend_shares
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import PureDP
from hybridp.public.joint import STEPS, Joint
from hybridp.public.mechanisms import discrete_laplace
from hybridp.public.messages import LocalSummary, TrustedSummary
from hybridp.public.queries import Feature
from hybridp.public.randomisers import LEVELS, randomiser
from hybridp.public.shares import NoisyCounts, ShareReports, count_noise, share_oracle

__all__ = ["main"]

LEVEL = 0.95
Floats = NDArray[np.float64]
Draw = np.random.Generator
Cell = tuple[str, Callable[[Draw], dict[str, bool]]]


def _mean(draw: Draw, epsilon: float, k: int, n: int, mean: float, sd: float) -> Blend:
    """One study of a number in [-1, 1] that is beta distributed with this mean and standard deviation."""
    spread = (1 - mean**2) / sd**2 - 1
    a, b = (1 + mean) / 2 * spread, (1 - mean) / 2 * spread
    noise = discrete_laplace(PureDP(epsilon), LEVELS)
    trusted = local = None
    if k:
        total = (draw.beta(a, b, k) * LEVELS).sum() + draw.laplace(0, noise.scale)
        trusted = TrustedSummary(k, round(float(total)), noise)
    if n:
        values, u, e = 2 * draw.beta(a, b, n) - 1, draw.uniform(-1, 1, n), math.exp(epsilon)
        told = np.where(draw.random(n) < 1 / (e + 1), -1, 1) * np.where(values > u, 1, -1)
        sent = (e + 1) / (e - 1) * told + u
        report = randomiser("dithered", PureDP(epsilon))
        local = LocalSummary(n, float(sent.sum()), float((sent**2).sum()), report)
    return blend(trusted, local, Rule("adaptive"))


def _shares(draw: Draw, epsilon: float, k: int, n: int, shares: list[float]) -> ShareBlend:
    """One study of some options by k-ary randomised response."""
    size = len(shares)
    noise, oracle = count_noise(PureDP(epsilon), size), share_oracle(PureDP(epsilon), size)
    assert oracle.name == "k-rr"
    trusted = local = None
    if k:
        scale = noise.mechanism.scale  # type: ignore[union-attr]
        held = draw.multinomial(k, shares)[: noise.draws]
        trusted = NoisyCounts(k, tuple(int(x + round(draw.laplace(0, scale))) for x in held), noise)
    if n:
        seen = oracle.other + (oracle.truth - oracle.other) * np.asarray(shares)
        local = ShareReports(n, draw.multinomial(n, seen / seen.sum()), oracle)
    return blend_shares(trusted, local, "hybrid")


def _joint(draw: Draw, epsilon: float, k: int, n: int, parts: Floats, means: Floats, spread: float) -> JointBlend:
    """One study of a number in [0, 1] by a private category; `spread` 1 puts everybody at a bound."""
    names = [f"c{i}" for i in range(len(parts))]
    joint = Joint(Feature.categorical("category", names), "value", Bounds(0, 1))
    noise, oracle = joint.noise(PureDP(epsilon)), joint.invite(PureDP(epsilon)).oracle
    trusted = local = None
    sd = None
    if k:
        people = draw.multinomial(k, parts)
        if spread == 1:
            upper = draw.binomial(people, means).astype(np.float64)
        else:
            size = 1 / spread**2 - 1
            upper = np.array([draw.beta(m * size, (1 - m) * size, p).sum() for m, p in zip(means, people, strict=True)])
            sd = float(np.sqrt(np.max(means * (1 - means)) / (size + 1)))
        cells = np.column_stack([upper, people - upper]).ravel() * STEPS
        noisy = cells + draw.laplace(0, noise.mechanism.scale, len(cells))  # type: ignore[union-attr]
        trusted = NoisyCounts(k, tuple(round(float(x)) for x in noisy), noise)
    if n:
        chances = np.column_stack([parts * means, parts * (1 - means)]).ravel()
        held = draw.multinomial(n, chances)
        local = ShareReports(n, _supports(draw, oracle, held), oracle)
    return JointBlend(trusted, local, joint.size, sd)


def _supports(draw: Draw, oracle: Any, held: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many reports support each cell: named ones, or sets drawn as those of the holder and of the rest."""
    size = len(held)
    counts = np.zeros(size, dtype=np.int64)
    for cell, people in enumerate(held.tolist()):
        kept = int(draw.binomial(people, oracle.truth))
        counts[cell] += kept
        others = np.delete(np.arange(size), cell)
        set_size = getattr(oracle, "size", 1)
        for many, picks in ((kept, set_size - 1), (people - kept, set_size)):
            if many and picks == 1:
                counts[others] += draw.multinomial(many, np.full(size - 1, 1 / (size - 1)))
            elif many and picks:
                keys = draw.random((many, size - 1), dtype=np.float32)
                chosen = np.argpartition(keys, picks - 1, axis=1)[:, :picks]
                counts[others] += np.bincount(chosen.ravel(), minlength=size - 1)
    return counts


def _mean_cells() -> Iterator[Cell]:
    for epsilon, k, n, mean, sd in ((1.0, 200, 4000, -0.4, 0.3), (0.2, 50, 5000, 0.0, 0.5), (1.0, 0, 3000, 0.5, 0.2)):

        def trial(draw: Draw, at: tuple[Any, ...] = (epsilon, k, n, mean, sd)) -> dict[str, bool]:
            found = _mean(draw, *at)
            return {"mean": abs(found.estimate - at[3]) <= found.half_width(LEVEL)}

        yield f"mean, epsilon {epsilon:g}, {k} trusted, {n} local, mean {mean:g}, sd {sd:g}", trial


def _share_cells() -> Iterator[Cell]:
    for epsilon, k, n in ((1.0, 200, 4000), (0.3, 500, 0)):
        truth = [0.02, 0.28, 0.7]

        def trial(
            draw: Draw, at: tuple[Any, ...] = (epsilon, k, n, truth), truth: list[float] = truth
        ) -> dict[str, bool]:
            low, high = _shares(draw, *at).intervals(LEVEL)
            return {f"share {p:g}": bool(a <= p <= b) for p, a, b in zip(truth, low, high, strict=True)}

        yield f"shares, epsilon {epsilon:g}, {k} trusted, {n} local", trial


def _group_cells() -> Iterator[Cell]:
    def means(draw: Draw) -> dict[str, bool]:
        pair = [_mean(draw, 1.0, 60, 1500, 0.2, 0.3), _mean(draw, 1.0, 200, 500, -0.1, 0.3)]
        alike = _mean(draw, 1.0, 60, 500, 0.2, 0.3)
        (gap,), (none,) = mean_gaps(pair, [(0, 1)], LEVEL), mean_gaps([pair[0], alike], [(0, 1)], LEVEL)
        return {"difference": gap.low <= 0.3 <= gap.high, "no alarm": none.p_value >= 1 - LEVEL}

    def alone(draw: Draw) -> dict[str, bool]:
        pair = [_mean(draw, 0.5, 100, 0, 0.2, 0.3), _mean(draw, 0.5, 40, 0, -0.1, 0.3)]
        (gap,) = mean_gaps(pair, [(0, 1)], LEVEL)
        return {"difference": gap.low <= 0.3 <= gap.high}

    def shares(draw: Draw) -> dict[str, bool]:
        pair = [_shares(draw, 1.0, 150, 2000, [0.05, 0.35, 0.6]), _shares(draw, 1.0, 60, 400, [0.25, 0.35, 0.4])]
        (gaps,) = share_gaps(pair, [(0, 1)], LEVEL)
        told = {
            "difference -0.2": gaps[0].low <= -0.2 <= gaps[0].high,
            "difference 0": gaps[1].low <= 0 <= gaps[1].high,
        }
        return {**told, "no alarm": gaps[1].p_value >= 1 - LEVEL}

    yield "public groups, means, epsilon 1, 60 + 1500 and 200 + 500 people", means
    yield "public groups, means, epsilon 0.5, 100 and 40 trusted alone", alone
    yield "public groups, shares, epsilon 1, 150 + 2000 and 60 + 400 people", shares


def _private_cells() -> Iterator[Cell]:
    parts, means = np.array([0.55, 0.35, 0.1]), np.array([0.3, 0.3, 0.8])
    for epsilon, k, n, spread in ((1.0, 0, 6000, 1.0), (1.0, 600, 5400, 1.0), (1.0, 2000, 4000, 0.3)):

        def trial(draw: Draw, at: tuple[Any, ...] = (epsilon, k, n, parts, means, spread)) -> dict[str, bool]:
            whole = _joint(draw, *at)
            found = [blend_joint(whole, [i]) for i in range(3)]
            told = {}
            for i in (0, 2):
                low, high = found[i].intervals(LEVEL)
                told[f"category of {parts[i]:.0%}"] = bool(low[0] <= means[i] <= high[0])
            low_share, high_share = found[2].share_interval(LEVEL)
            gap = found[0].gaps(found[1], LEVEL)[0]
            told["its share"] = low_share <= parts[2] <= high_share
            return {**told, "difference": gap.low <= 0 <= gap.high, "no alarm": gap.p_value >= 1 - LEVEL}

        values = "at the bounds" if spread == 1 else "within them, sd stated"
        yield f"private category, epsilon {epsilon:g}, {k} trusted, {n} local, values {values}", trial


CELLS = {"mean": _mean_cells, "shares": _share_cells, "groups": _group_cells, "private": _private_cells}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print a row for every interval of every cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--only", default=",".join(CELLS), help="kinds of cells, as mean,groups")
    parser.add_argument("--seed", type=int, default=1)
    asked = parser.parse_args(arguments)
    print(f"{asked.trials:,} trials a cell, 95 % intervals\n\n| cell | interval of | covered |\n|---|---|---|")
    for kind in asked.only.split(","):
        for name, trial in CELLS[kind]():
            draw = np.random.default_rng([asked.seed, *name.encode()])
            counts: dict[str, int] = {}
            for _ in range(asked.trials):
                for what, inside in trial(draw).items():
                    counts[what] = counts.get(what, 0) + bool(inside)
            for what, held in counts.items():
                share = held / asked.trials
                text = f"{share:.1%}" if 0.93 <= share <= 0.975 else f"**{share:.1%}**"
                print(f"| {name} | {what} | {text} |", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
