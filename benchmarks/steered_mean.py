"""Steered means: error, fall-back and coverage beside the plain mean, on a grid; `--help` says more.

Everything that trusted people say is drawn by the library itself, from numbers in memory; local reports are drawn as
one normal number with the mean and the variance of their sum, which is exact enough for thousands of people and lets
ten million of them take no time. The plain form is the library's own, with the whole of epsilon. Errors are compared by
their exact variance given the window and the weight of every run, so that few runs tell them; coverage takes many.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hybridp.blend.mean import Rule
from hybridp.curator.sums import Raw, _cuts, release_counts, release_sums, release_window, squares
from hybridp.noise import Randomness, seeded
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import LocalSummary, TrustedSummary, drive
from hybridp.public.randomisers import Bounds
from hybridp.public.rounds import Answer, Between, Crowd, Later, Numbers, Within
from hybridp.public.shares import NoisyCounts
from hybridp.public.steered_mean import WindowSums
from hybridp.tasks.mean import MeanTask, publish_mean
from hybridp.tasks.steered import SteeredTask

Floats = np.ndarray[Any, np.dtype[np.float64]]
BOUNDS = Bounds(0.0, 1.0)
POPULATION = 100_000
SDS = (0.02, 0.05, 0.1, 0.18)
CROWDS = ((10**5, 0.01), (10**5, 0.05), (10**5, 0.2), (10**6, 0.002), (10**6, 0.01), (10**6, 0.05), (10**7, 0.002),
          (10**7, 0.01))  # fmt: skip


def people(law: str, sd: float) -> Floats:
    """A large population, as even quantiles of its law: nothing of it is drawn."""
    from scipy.special import ndtri
    from scipy.stats import gamma

    at = (np.arange(POPULATION) + 0.5) / POPULATION
    match law:
        case "normal":
            x = 0.5 + sd * ndtri(at)
        case "skewed":
            x = 0.1 + sd * gamma.ppf(at, 2.0) / math.sqrt(2)
        case "lumpy":
            x = np.round((0.4 + sd * ndtri(at)) * 20) / 20
        case _:  # one in 300 is at the upper bound
            x = np.where(at < 299 / 300, 0.3 + sd * ndtri(np.minimum(at * 300 / 299, 1 - 1e-9)), 1.0)
    return np.asarray(np.clip(x, 0.0, 1.0))


def reports(study: MeanTask, placed: Floats, local: int, seed: int) -> LocalSummary:
    """The sums of so many reports on these places in [-1, 1]; of the squares only the mean matters."""
    randomiser = study.invite.mechanism
    constant, quadratic = randomiser.variance_terms
    square = float((placed**2).mean())
    variance = float(placed.var()) + constant + quadratic * square
    draw = float(np.random.default_rng([seed, 1]).standard_normal())
    mean = float(placed.mean()) + math.sqrt(variance / local) * draw
    return LocalSummary(local, mean * local, (variance + float(placed.mean()) ** 2) * local, randomiser)


def variance(study: MeanTask, everyone: Floats, local: int, said: Any, weight: float) -> float:
    """The exact variance of the estimate, given its window and weight: what an average over many draws would tell."""
    constant, quadratic = study.invite.mechanism.variance_terms
    if isinstance(said, WindowSums) and said.within:
        y = np.clip(everyone, said.window.low, said.window.high)
        unit = 2 * (y - said.window.low) / said.window.width - 1
        told = y.var() + said.window.width**2 / 4 * (constant + quadratic * (unit**2).mean())
        own = np.var(everyone - y + weight * y) / said.people + (1 + weight**2) * said.noise_variance
        return float(own + (1 - weight) ** 2 * told / local)
    told = everyone.var() + (constant + quadratic * ((2 * everyone - 1) ** 2).mean()) / 4
    noise = 2 * said.noise_variance if isinstance(said, WindowSums) else said.noise_variance / 4
    own = everyone.var() / said.people + noise
    return float(weight**2 * own + (1 - weight) ** 2 * told / local)


@dataclass
class Collection:
    """People who answer a steered mean: trusted ones as they are, with noise, and local ones by the law of reports.

    `pilot` are counts that were told before: the window is then the same.
    """

    study: MeanTask
    everyone: Floats
    levels: Any
    local: int
    seed: int
    rng: Randomness
    pilot: list[NoisyCounts] = field(default_factory=list)
    said: Any = None
    window: tuple[float, float] = (0.0, 1.0)
    counted: int = 0

    def answer(self, asked: Any) -> Any:
        return getattr(self, asked.kind)(asked)

    def between(self, asked: Between) -> NoisyCounts:
        self.counted += 1
        if self.counted > len(self.pilot):
            raw = np.bincount(np.searchsorted(_cuts(asked.places), self.levels), minlength=len(asked.places) + 1)
            self.pilot.append(release_counts(Raw(len(self.levels), raw), asked.noise, rng=self.rng))
        return self.pilot[self.counted - 1]

    def within(self, asked: Within) -> tuple[int, int, int]:
        self.said = release_window([self.levels], asked.window, asked.noise, rng=self.rng)
        return self.said.inside, self.said.outside, self.said.squares

    def numbers(self, asked: Numbers) -> Answer:
        self.said = summed(self.study, self.levels, asked.noise, asked.squares, self.rng)
        return Answer(len(self.levels), self.said)

    def later(self, asked: Later) -> Answer:
        low, high = self.window = asked.invite.windows[0]
        if isinstance(self.said, WindowSums):
            self.said = replace(self.said, within=self.window != (0.0, 1.0))
        placed = 2 * (np.clip(self.everyone, low, high) - low) / (high - low) - 1
        return Answer(local=reports(self.study, placed, self.local, self.seed))

    def released(self) -> Any:
        task = SteeredTask(self.study).decided(len(self.levels), self.local)
        return drive(task.ask(Crowd.of("x", simulated_local=True, rng=self.rng)), self)


def summed(study: MeanTask, levels: Any, noise: Any, spread: Any, rng: Randomness) -> tuple[TrustedSummary, ...]:
    totals = Raw(len(levels), [int(levels.sum())], squares=squares(levels[:, None], study.bounds))
    return release_sums(totals, noise, study.bounds, spread, rng=rng)


def trial(study: MeanTask, everyone: Floats, trusted: int, local: int, seed: int) -> dict[str, Any]:
    """One collection, plain and steered: the same trusted people and, where both ask the same, the same draws."""
    values = everyone[np.random.default_rng(seed).integers(0, len(everyone), trusted)]
    levels = BOUNDS.levels(values)
    own_people = Collection(study, everyone, levels, local, seed, seeded(seed))
    steered = own_people.released()
    own, rng = replace(study, rule=Rule("alike")).decided(trusted, local), seeded(seed)
    added = summed(study, levels, own.sum_noise, own.squares_noise, rng)
    told = reports(study, 2 * everyone - 1, local, seed)
    plain = publish_mean(own, Answer(trusted, added, told), Crowd.of("x", rng=rng))
    truth = float(everyone.mean())
    return {
        "said": own_people, "steered": own_people.window != (0.0, 1.0), "pilot": bool(own_people.pilot),
        "variance": variance(study, everyone, local, own_people.said, steered.facts["weight"]),
        "plain_variance": variance(study, everyone, local, added, plain.facts["weight"]),
        "error": steered.facts["unbiased"] - truth, "plain": plain.facts["unbiased"] - truth,
        "covered": steered.low <= truth <= steered.high, "plain_covered": plain.low <= truth <= plain.high,
        "width": steered.high - steered.low, "plain_width": plain.high - plain.low,
    }  # fmt: skip


def again(said: Collection, everyone: Floats, local: int, times: int, seed: int) -> list[bool]:
    """Whether the interval holds the mean in further collections with the same window, of other people."""
    if not isinstance(said.said, WindowSums):
        return []
    draw, levels, truth = np.random.default_rng([seed, 2]), BOUNDS.levels(everyone), float(everyone.mean())
    rng, found = seeded(seed), []
    for i in range(times):
        chosen = levels[draw.integers(0, len(levels), len(said.levels))]
        one = Collection(said.study, everyone, chosen, local, seed + 10_000 * (i + 1), rng, said.pilot).released()
        found.append(one.low <= truth <= one.high)
    return found


def cell(job: tuple[str, float, int, float, float, int, int]) -> dict[str, Any]:
    law, sd, n, opt_in, epsilon, trials, times = job
    study, everyone, trusted = MeanTask(BOUNDS, PureDP(epsilon)), people(law, sd), round(n * opt_in)
    found = [trial(study, everyone, trusted, n - trusted, 1000 + i) for i in range(trials)]
    more = [ok for i, one in enumerate(found) for ok in again(one["said"], everyone, n - trusted, times, 1000 + i)]
    covered = [one["covered"] for one in found] + more
    mean: Callable[[str], float] = lambda name: float(np.mean([one[name] for one in found]))  # noqa: E731

    def rmse(name: str) -> float:
        return math.sqrt(float(np.mean([one[name] ** 2 for one in found])))

    return {
        "law": law, "sd": sd, "n": n, "opt_in": opt_in, "epsilon": epsilon, "trials": trials,
        "steered": mean("steered"), "pilot": mean("pilot"), "rmse": rmse("error"), "plain_rmse": rmse("plain"),
        "ratio": math.sqrt(mean("variance") / mean("plain_variance")), "coverage": float(np.mean(covered)),
        "collections": len(covered), "plain_coverage": mean("plain_covered"),
        "width": mean("width") / mean("plain_width"),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=200)
    parser.add_argument("--again", type=int, default=0, help="Further collections in each run's window.")
    parser.add_argument("--laws", default="normal,skewed,lumpy,outliers")
    parser.add_argument("--sds", default=",".join(map(str, SDS)))
    parser.add_argument("--epsilons", default="1")
    parser.add_argument("--crowds", default=";".join(f"{n}:{c}" for n, c in CROWDS), help="N:OPT_IN;...")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--out", help="Write all figures as JSON lines to this file.")
    asked = parser.parse_args()
    crowds = [(int(n), float(c)) for n, c in (part.split(":") for part in asked.crowds.split(";"))]
    jobs = [(law, float(sd), n, c, float(epsilon), asked.trials, asked.again) for law in asked.laws.split(",")
            for sd in asked.sds.split(",") for epsilon in asked.epsilons.split(",") for n, c in crowds]  # fmt: skip
    print("| law | sd | n, trusted, epsilon | steered | RMSE over plain | width over plain | coverage, plain |")
    print("|---|---|---|---|---|---|---|")
    lines = []
    with ProcessPoolExecutor(asked.processes) as pool:
        for one in pool.map(cell, jobs):
            lines.append(json.dumps(one))
            print(f"| {one['law']} | {one['sd']:g} | {one['n']:,}, {one['opt_in']:.1%}, {one['epsilon']:g} "
                  f"| {one['steered']:.0%} | {one['ratio']:.2f} | {one['width']:.2f} "
                  f"| {one['coverage']:.1%}, {one['plain_coverage']:.1%} |", flush=True)  # fmt: skip
    if asked.out:
        with open(asked.out, "w") as file:
            file.write("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
