"""Regression: trusted alone, local alone, plain, and the planner's own choice, in one run; and do intervals cover?

    python -m benchmarks.regression [--trials 20] [--covered 100] [--jobs 1] [--minutes 60] [--people 10000,100000]

`gain` is how many times the mean squared error of the coefficients (all together, columns scaled to [-1, 1]) of the
planner's choice lies below the best of the others: trusted people alone, local people alone (plain), and the plain
blend. Four columns in [-1, 1], residuals with a standard deviation of .1, epsilon 1; `clip` is stated as .45, or left
to the trusted people. `cover` counts true coefficients within their 95 % interval, over all coefficients.

The coverage is one line of JSON a cell, over a grid of people, opt-in, epsilon (delta 10^-6), columns, model and shape
of residuals; without a clip. Nobody trusted is the plain question, and needs no line.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import multiprocessing
import sys
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridp.curator.sums import Columns
from hybridp.noise import seeded
from hybridp.protocols.driver import release
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import VectorBounds
from hybridp.tasks.regression import RegressionTask

__all__ = ["main"]

Floats = NDArray[np.float64]
R = np.random.Generator
BETA = np.array([0.1, 0.3, -0.2, 0.15, 0.05])
CELLS = ((100_000, 0.01), (100_000, 0.02), (1_000_000, 0.002), (1_000_000, 0.005))
RESIDUALS: dict[str, Callable[[R, Floats], Floats]] = {
    "normal": lambda rng, x: 0.1 * rng.standard_normal(len(x)),
    "skewed": lambda rng, x: 0.1 * (rng.exponential(1.0, len(x)) - 1),
    "uneven": lambda rng, x: 0.15 * np.abs(x[:, 0]) * rng.standard_normal(len(x)),
    "wide": lambda rng, x: 0.25 * rng.uniform(-math.sqrt(3), math.sqrt(3), len(x)),
}


def people(rng: R, n: int, d: int = 4, residuals: str = "normal", *, related: bool = False) -> Floats:
    """Columns and target, within [-1, 1] by themselves, so that the true coefficients are `BETA`."""
    x = rng.uniform(-1, 1, (n, d))
    if related:
        x = 0.6 * x + 0.4 * rng.uniform(-1, 1, (n, 1))
    y = BETA[0] + x @ BETA[1 : d + 1] + RESIDUALS[residuals](rng, x)
    return np.column_stack([x, y])


def chances(rng: R, n: int, d: int = 2) -> Floats:
    """Columns and a yes or no, whose log-odds are 5 times as large."""
    x = rng.uniform(-1, 1, (n, d))
    odds = 5 * (BETA[0] + x @ BETA[1 : d + 1])
    return np.column_stack([x, rng.random(n) < 1 / (1 + np.exp(-odds))])


def run(rows: Floats, k: int, seed: int, guarantee: Any, **more: Any) -> Any:
    d = rows.shape[1] - 1
    lower = 0.0 if more.get("kind") == "logistic" else -1.0
    bounds = VectorBounds.of([-1.0] * d + [lower], [1.0] * (d + 1))
    study, names = RegressionTask(bounds, guarantee, **more), (*(f"x{j}" for j in range(d)), "y")
    data = {**dict(zip(names, rows.T, strict=True)), "trust": np.where(np.arange(len(rows)) < k, "trusted", "local")}
    columns = Columns(names, "trust", missing="middle")
    return release(data, study, columns, simulate_local=k < len(rows), rng=seeded(seed))


def _error(coefficients: Any, truth: Floats) -> float:
    return float(((np.asarray(coefficients) - truth) ** 2).sum())


def _known(numbers: Any, unknown: float) -> Floats:
    return np.array([unknown if x is None else x for x in numbers])


def _covered(found: Any, truth: Floats) -> list[bool]:
    low, high = found.facts["interval"]
    return ((_known(low, -math.inf) <= truth) & (truth <= _known(high, math.inf))).tolist()


def gains(trials: int, guarantee: Any, cells: Any = CELLS) -> None:
    print("| people | trusted | clip | trusted alone | local alone | plain | choice | form | gain | cover |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for n, opt_in in cells:
        k = round(n * opt_in)
        for clip in (0.45, None):
            errors: dict[str, list[float]] = {"tcm-only": [], "local": [], "plain": [], "best": []}
            covered, forms = [], []
            for t in range(trials if n < 500_000 else max(trials // 2, 4)):
                print(f"{n} {opt_in} {clip} {t}", file=sys.stderr, end="\r")
                rows = people(np.random.default_rng(t), n)
                for form in ("tcm-only", "plain", "best"):
                    found = run(rows, k, t, guarantee, form=form, clip=None if form == "plain" else clip)
                    errors[form].append(_error(found.facts["estimate"], BETA))
                    if form == "plain":
                        errors["local"].append(_error(found.facts["local"], BETA))
                covered += _covered(found, BETA)
                forms.append(found.facts["form"])
            root = {name: math.sqrt(float(np.mean(some))) for name, some in errors.items()}
            best = min(root[name] for name in ("tcm-only", "local", "plain"))
            told = " | ".join(f"{root[name]:.4f}" for name in ("tcm-only", "local", "plain", "best"))
            chosen = "/".join(sorted(set(forms)))
            gain = (best / root["best"]) ** 2
            print(f"| {n:,} | {opt_in:.1%} | {clip or 'found'} | {told} | {chosen} | {gain:.2f} | "
                  f"{np.mean(covered):.1%} |", flush=True)  # fmt: skip


class Cell(NamedTuple):
    """People of one kind, of whom some intervals should hold the truth."""

    kind: str
    people: int
    opt_in: float
    epsilon: float
    columns: int
    residuals: str

    def trial(self, t: int) -> dict[str, tuple[Floats, Floats]]:
        """By group: how far each coefficient is from the truth, and its standard error. Every other trial's columns
        are correlated."""
        lots, d = np.random.default_rng([t, self.people]), self.columns
        if self.kind == "logistic":
            rows, truth = chances(lots, self.people, d), 5 * BETA[: d + 1]
        else:
            rows = people(lots, self.people, d, self.residuals, related=t % 2 == 1)
            truth = BETA[: d + 1]
        promise: Any = ApproxDP(self.epsilon, 1e-6)
        found = run(rows, round(self.people * self.opt_in), t, promise, kind=self.kind).facts
        said = {"both": (found["estimate"], found["standard_error"])}
        for name in ("trusted", "local"):
            if found[name] is not None:
                said[name] = found[name], found["groups"][name]["standard_error"]
        return {name: (np.asarray(beta) - truth, _known(error, math.inf)) for name, (beta, error) in said.items()}


def cells(sizes: tuple[int, ...]) -> list[Cell]:
    """Those of up to a hundred thousand people cross everything; a million take epsilon 1 and four columns."""
    found = []
    for n, opt_in, epsilon, d in itertools.product(sizes, (0.0, 0.002, 0.02, 0.2), (0.5, 1.0, 4.0), (2, 4)):
        if n <= 100_000 or (epsilon, d) == (1.0, 4):
            found.append(Cell("linear", n, opt_in, epsilon, d, "normal"))
            if opt_in:
                found.append(Cell("logistic", n, opt_in, epsilon, d, ""))
        if n <= 100_000 and opt_in and d == 2 and epsilon >= 1:
            found += [Cell("linear", n, opt_in, epsilon, d, name) for name in ("skewed", "uneven", "wide")]
    return found


def _some_trials(task: tuple[Cell, int, int, float]) -> tuple[Cell, dict[str, tuple[Floats, Floats]]] | None:
    cell, first, last, deadline = task
    seen: dict[str, list[tuple[Floats, Floats]]] = {}
    for t in range(first, last):
        if time.time() > deadline:
            return None
        for name, pair in cell.trial(t).items():
            seen.setdefault(name, []).append(pair)
    return cell, {name: tuple(map(np.array, zip(*some, strict=True))) for name, some in seen.items()}  # type: ignore[misc]


def _cell_line(cell: Cell, blocks: list[dict[str, tuple[Floats, Floats]]]) -> dict[str, Any]:
    """`covered` is the share of all coefficients within their interval of 95 %, `least` that of the worst coefficient;
    `unbounded` the share of trials whose slope could not be told from noise, whose intervals hold everything."""
    told: dict[str, Any] = cell._asdict()
    told["trials"] = sum(len(block["both"][0]) for block in blocks)
    for name in ("trusted", "local", "both"):
        some = [block[name] for block in blocks if name in block]
        if not some:
            continue
        away, error = (np.concatenate(part) for part in zip(*some, strict=True))
        bounded = np.isfinite(error).all(axis=1)
        inside = (np.abs(away) <= 1.959964 * error)[bounded]
        told[name] = {"unbounded": round(1 - float(bounded.mean()), 4)}
        if len(inside):
            each = inside.mean(axis=0)
            told[name] |= {
                "covered": round(float(each.mean()), 4),
                "least": round(float(each.min()), 4),
                "shift": [round(float(z), 2) for z in (away / error)[bounded].mean(axis=0)],
                "rmse": float(f"{math.sqrt(float((away[bounded] ** 2).sum(axis=1).mean())):.4g}"),
            }
    return told


def coverage(trials: int, jobs: int, minutes: float, sizes: tuple[int, ...]) -> None:
    """One line of JSON a cell. All cells go forward together, a block of trials each, until the time is over."""
    block, deadline = max(10, -(-trials // 40)), time.time() + 60 * minutes
    grid = sorted(cells(sizes), key=lambda cell: -cell.people)
    tasks = [(cell, t, min(t + block, trials), deadline) for t in range(0, trials, block) for cell in grid]
    seen: dict[Cell, list[Any]] = {cell: [] for cell in grid}
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        for result in pool.imap_unordered(_some_trials, tasks):
            if result is not None:
                seen[result[0]].append(result[1])
    for cell, blocks in seen.items():
        if blocks:
            print(json.dumps(_cell_line(cell, blocks)), flush=True)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=20, help="of each cell of the gains; half of it for a million")
    parser.add_argument("--covered", type=int, default=100, help="trials of each cell of the coverage")
    parser.add_argument("--jobs", type=int, default=1, help="processes of the coverage")
    parser.add_argument("--minutes", type=float, default=60.0, help="after which the coverage starts no more trials")
    parser.add_argument("--people", default="10000,100000", help="sizes of the coverage, up to 1000000")
    given = parser.parse_args(arguments)
    if given.trials:
        gains(given.trials, PureDP(1.0))
    if given.covered:
        coverage(given.covered, given.jobs, given.minutes, tuple(map(int, given.people.split(","))))


if __name__ == "__main__":
    main()
