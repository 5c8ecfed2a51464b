"""Whom does a mean speak for, where people who trust differ from those who do not?

    python -m benchmarks.who_answered [--trials 2000] [--adult 150]

Two tables. First the default over a grid of gaps, shares of trusting people and epsilons, of 100,000 people whose
values have a standard deviation of a tenth of the range: coverage of its 95 % interval, its error over KVH's where the
groups are alike and over the stratified mean's elsewhere, and the same of a stated gap (the true one). What the groups
send is drawn by its law: the mean of values and reports is normal, the curator's noise Laplace's.

Then hours a week of ADULT (`HYBRIDP_DATA`; without it a labelled stand-in), of people who trust the more the older they
are, men more than women, and who take part by sex: bias, error and coverage of the mean of everybody in the table, by
default and with the known sizes of groups by sex and age.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator
from itertools import chain
from typing import Any

import numpy as np
import pandas as pd

import hybridp as hp
from benchmarks.questions import table
from hybridp.blend.mean import Rule, blend
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import LocalSummary, TrustedSummary, sum_noise
from hybridp.public.randomisers import LEVELS, best_randomiser

__all__ = ["main"]

PEOPLE, SD = 100_000, 0.2
AGES = (0, 25, 35, 45, 55, 200)


def cell(share: float, epsilon: float, gap: float, trials: int, rng: Any) -> dict[str, tuple[float, float, float]]:
    """By rule the root mean squared error, the coverage, and half the interval's width."""
    k = round(PEOPLE * share)
    device, noise, n_l, apart = best_randomiser(PureDP(epsilon)), sum_noise(PureDP(epsilon)), PEOPLE - k, gap * SD
    constant, slope = device.variance_terms
    variance, truth = SD**2 + constant + slope * SD**2, share * apart
    rules = {"everyone": Rule(), "kvh": Rule("kvh", sd=SD), "gap": Rule(gap=apart, sd=SD)}
    found: dict[str, list[tuple[float, bool, float]]] = {name: [] for name in rules}
    for _ in range(trials):
        total = LEVELS * k * (1 + apart + rng.normal(0, SD / math.sqrt(k))) / 2 + rng.laplace(0, noise.scale)
        squares = n_l * variance + rng.normal(0, math.sqrt(n_l) * device.square_deviation(0.0, SD**2))
        local = LocalSummary(n_l, n_l * rng.normal(0, math.sqrt(variance / n_l)), squares, device)
        for name, rule in rules.items():
            one = blend(TrustedSummary(k, round(total), noise), local, rule)
            half = one.half_width(0.95)
            found[name].append((one.estimate - truth, abs(one.middle - truth) <= half, half))
    result = {}
    for name, some in found.items():
        errors, held, halves = (np.array(column) for column in zip(*some, strict=True))
        result[name] = float(np.sqrt(np.mean(errors**2))), float(held.mean()), float(halves.mean())
    own = SD**2 / k + noise.variance / (LEVELS / 2 * k) ** 2
    result["stratified"] = math.sqrt(share**2 * own + (1 - share) ** 2 * variance / n_l), 0.95, 0.0
    return result


def grid(trials: int) -> Iterator[str]:
    yield "| trusted | epsilon | gap (sd) | coverage | error, of KVH's or the stratified | with a stated gap | width |"
    yield "|---|---|---|---|---|---|---|"
    rng = np.random.default_rng(1)
    for share in (0.01, 0.05, 0.2):
        for epsilon in (0.3, 1.0, 4.0):
            for gap in (0.0, 0.1, 0.5, 1.0):
                told = cell(share, epsilon, gap, trials, rng)
                beside, (rmse, held, half) = told["kvh" if gap == 0 else "stratified"][0], told["everyone"]
                known = f"{told['gap'][1]:.1%} | {told['gap'][2] / half:.2f}"
                yield f"| {share:.0%} | {epsilon:g} | {gap:g} | {held:.1%} | {rmse / beside:.2f} | {known} |"


def adult(trials: int) -> Iterator[str]:
    columns, real = table()
    frame = pd.DataFrame({name: columns[name] for name in ("age", "sex", "hours-per-week")}).astype(float)
    frame["who"] = frame.sex.map({0: "a", 1: "b"}).fillna("a") + np.digitize(frame.age, AGES[1:-1]).astype(str)
    yield f"{'ADULT' if real else 'A STAND-IN FOR ADULT'}: {len(frame):,} people, epsilon 1"
    truth, groups = float(frame["hours-per-week"].mean()), sorted(set(frame.who))
    sizes = [int((frame.who == one).sum()) for one in groups]
    rng = np.random.default_rng(2)
    opt_in = 0.02 + 0.16 * (frame.age > 40) * (0.5 + 0.5 * (frame.sex == frame.sex.mode()[0]))
    takes = 0.4 + 0.5 * (frame.sex == frame.sex.mode()[0])
    by = {"by": "who", "categories": groups, "population": sizes}
    ways: dict[str, dict[str, Any]] = {
        "alike (the papers)": {"estimator": "kvh"}, "everyone who took part": {}, "by sex and age": by,
    }  # fmt: skip
    found: dict[str, list[tuple[float, float, bool]]] = {name: [] for name in ways}
    sd = float(frame["hours-per-week"].std())
    for i in range(trials):
        came = frame[rng.random(len(frame)) < takes]
        came = came.assign(trust=np.where(rng.random(len(came)) < opt_in[came.index], "trusted", "local"))
        for name, way in ways.items():
            study: dict[str, Any] = {"name": "hours-per-week", "kind": "number", "lower": 0, "upper": 99,
                                     "missing": "middle", **way}  # fmt: skip
            study |= {"sd": sd} if way.get("estimator") == "kvh" else {}
            made = hp.Study(questions=[study], promise=1.0, trust="trust", people={"public": ["trust", "who"]})
            told = made.release(came, simulate_local=True, rng=hp.seeded(1000 * i + len(name))).cells[-1]
            assert told.estimate is not None
            assert told.low is not None
            assert told.high is not None
            plain = told.estimate - truth
            found[name].append((plain, told.high - told.low, told.low <= truth <= told.high))
    yield "| the mean of everybody in the table, by | bias, hours | error | width of the interval | coverage |"
    yield "|---|---|---|---|---|"
    for name, some in found.items():
        errors, widths, held = (np.array(column) for column in zip(*some, strict=True))
        rmse = math.sqrt(float(np.mean(errors**2)))
        yield f"| {name} | {errors.mean():.3f} | {rmse:.3f} | {widths.mean():.2f} | {held.mean():.1%} |"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.who_answered")
    parser.add_argument("--trials", type=int, default=2000)
    parser.add_argument("--adult", type=int, default=150)
    given = parser.parse_args(arguments)
    for line in chain(grid(given.trials), [""], adult(given.adult)):
        print(line, flush=True)


if __name__ == "__main__":
    main()
