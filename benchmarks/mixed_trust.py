"""Mixed trust and mixed epsilons on salaries: what the unified estimator saves, simulated.

    HYBRIDP_DATA=FOLDER python -m benchmarks.mixed_trust [--runs 1000]

The folder holds uc-salaries.csv.gz (columns year and gross pay, public record); its rows of 2010 are the population,
from which every run draws as many people as there are, with replacement. Without the folder made-up salaries stand in,
and the table says so. 5 % of the people trust the curator; in both groups 30 % ask for epsilon .1, 40 % for .5, 25 %
for 2 and 5 % for 8. Pay is clipped to [0, 400,000], and errors are against the mean of the clipped population. Devices,
curator and blend are the library's own code with a seeded generator. Writes the table of `docs/personal.md` and its
picture.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.utility import DOCS, write_between
from hybridp.bench.crowd import salary_like
from hybridp.blend.mean import Rule, Spread, combine, learn_variance
from hybridp.curator.models import release_weighted_sum
from hybridp.device.reports import randomise_own
from hybridp.noise import Randomness, seeded, synthetic_data_generator
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import ReportsByEpsilon, sum_noise
from hybridp.public.personal import adpm_weights
from hybridp.public.randomisers import LEVELS, Bounds, best_randomiser
from hybridp_lab.simulate import collect

__all__ = ["CHOICES", "Crowd", "main", "population", "run"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

BOUNDS = Bounds(0.0, 400_000.0)
UNIT = Bounds(-1.0, 1.0)
TRUSTING = 0.05
CHOICES = ((0.1, 0.30), (0.5, 0.40), (2.0, 0.25), (8.0, 0.05))
NAMES = (
    "unified, variance learned",
    "unified, variance known",
    "two separate estimates",
    "drop the strict: only epsilon >= .5, at .5",
    "everyone at the smallest epsilon, .1",
    "trusted alone (ADPM)",
    "local alone",
)
RULE = Rule("adaptive")


@dataclass(frozen=True, eq=False)
class Crowd:
    """How many people of each epsilon are in a group, and everybody's epsilon in that order."""

    levels: Floats
    people: Ints

    @classmethod
    def of(cls, n: int) -> Crowd:
        shares = np.cumsum([share for _, share in CHOICES])
        ends = np.rint(shares * n).astype(np.int64)
        return cls(np.array([e for e, _ in CHOICES]), np.diff(ends, prepend=0))

    @property
    def epsilons(self) -> Floats:
        return np.repeat(self.levels, self.people)

    def sums(self, values: NDArray[Any]) -> NDArray[Any]:
        return np.asarray(np.add.reduceat(values, np.cumsum(self.people) - self.people))


def population() -> tuple[Floats, str]:
    """Pay of 2010 and where it comes from."""
    folder = os.environ.get("HYBRIDP_DATA")
    if folder is None:
        return salary_like(26_619, rng=seeded(2010)), "generated salaries (no HYBRIDP_DATA)"
    with gzip.open(Path(folder, "uc-salaries.csv.gz"), "rt", newline="") as file:
        rows = csv.reader(file)
        next(rows)
        pay = [float(row[1]) for row in rows if row[0] == "2010"]
    return np.array(pay), "University of California salaries, 2010"


def run(levels: Ints, trusting: Crowd, local: Crowd, variance: float, rng: Randomness) -> list[float]:
    """One collection; the estimates in the order of NAMES, in the unit coordinate."""
    k = int(trusting.people.sum())
    trusted_levels, local_levels = levels[:k], levels[k:]
    heard = randomise_own(local_levels, local.epsilons, UNIT, rng=rng)
    reports = ReportsByEpsilon(local.levels, local.people, local.sums(heard), local.sums(heard**2))
    sums, counts = trusting.sums(trusted_levels).astype(np.int64), trusting.people.astype(np.float64)
    nobody = ReportsByEpsilon(np.zeros(0), np.zeros(0, dtype=np.int64), np.zeros(0), np.zeros(0))
    found = []
    worst = Spread.worst()
    for spread in (learn_variance(reports), Spread(variance, variance), worst):
        # With the worst case this is ADPM's release and the local mean, each on its own, combined afterwards.
        best = adpm_weights(trusting.levels, counts=trusting.people, width=2.0, variance=spread.used)
        released = release_weighted_sum(trusting.levels, trusting.people, sums, best.weight, rng=rng)
        found.append(combine(released, counts, reports, spread).estimate)
    for least, epsilon in ((0.5, 0.5), (0.0, 0.1)):
        trial = collect(
            trusted_levels[trusting.epsilons >= least],
            local_levels[local.epsilons >= least],
            sum_noise(PureDP(epsilon)),
            best_randomiser(PureDP(epsilon)),
            population_mean=0.0,
            rng=rng,
        )
        found.append(trial.blend(RULE).estimate)
    found.append(combine(released, counts, nobody, worst).estimate)
    found.append(combine(None, counts, reports, worst).estimate)
    return found


def bootstrap(errors: Floats, draw: np.random.Generator, times: int = 2_000) -> Floats:
    """Root mean squared error of every column with its 95 % bootstrap interval: rows are (value, low, high)."""
    squares = errors**2
    runs = len(squares)
    chosen = draw.multinomial(runs, np.full(runs, 1 / runs), size=times) / runs
    low, high = np.sqrt(np.quantile(chosen @ squares, [0.025, 0.975], axis=0))
    return np.stack([np.sqrt(squares.mean(axis=0)), low, high], axis=1)


def table(rmse: Floats, source: str, n: int, runs: int) -> str:
    lines = [
        f"{source}; {n:,} people, {runs:,} runs, root mean squared error in dollars with 95 % bootstrap intervals:",
        "",
        "| estimator | RMSE | 95 % interval | over unified |",
        "|---|---|---|---|",
    ]
    for name, (value, low, high) in zip(NAMES, rmse, strict=True):
        lines.append(f"| {name} | {value:,.0f} | {low:,.0f} to {high:,.0f} | {value / rmse[0, 0]:.2f} |")
    return "\n".join(lines)


def picture(rmse: Floats, source: str, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8.4, 3.6), layout="constrained")
    y = np.arange(len(NAMES))[::-1]
    colours = ["#00798c", "#7fbfc8", *["#bbbbbb"] * (len(NAMES) - 2)]
    axes.barh(y, rmse[:, 0], color=colours)
    axes.errorbar(rmse[:, 0], y, xerr=np.abs(rmse[:, 1:].T - rmse[:, 0]), fmt="none", ecolor="black", elinewidth=1)
    for where, (value, _, high) in zip(y, rmse, strict=True):
        axes.text(high + 0.01 * rmse.max(), where, f"{value:,.0f}", va="center", fontsize=9)
    axes.set_yticks(y, NAMES)
    axes.set(xlabel="root mean squared error of the mean (dollars)", title=source)
    axes.set_xlim(0, 1.1 * rmse.max())
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    from rich.console import Console
    from rich.progress import track

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    runs = parser.parse_args(arguments).runs
    pay, source = population()
    levels, n = BOUNDS.levels(pay), len(pay)
    unit = levels * (2 / LEVELS) - 1
    k = round(TRUSTING * n)
    trusting, local = Crowd.of(k), Crowd.of(n - k)
    rng = seeded(5)
    draw = synthetic_data_generator(rng)
    steps = track(range(runs), "mixed trust", console=Console(file=sys.stderr))
    found = [run(levels[draw.integers(0, n, n)], trusting, local, float(unit.var()), rng) for _ in steps]
    errors = (np.array(found) - unit.mean()) * BOUNDS.half
    rmse = bootstrap(errors, draw)
    text = table(rmse, source, n, runs)
    write_between(DOCS / "personal.md", "mixed-trust", text)
    picture(rmse, source, DOCS / "images" / "mixed-trust.png")
    print(text)
    print(f"mean of the clipped population {BOUNDS.from_unit(float(unit.mean())):,.2f}")
    print(f"its standard deviation {BOUNDS.half * float(unit.std()):,.0f}")


if __name__ == "__main__":
    main()
