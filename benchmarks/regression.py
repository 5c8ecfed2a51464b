"""Regression: trusted alone, local alone, plain, and the planner's own choice, in one run; and do intervals cover?

    python -m benchmarks.regression [--trials 20] [--covered 400]

`gain` is how many times the mean squared error of the coefficients (all together, columns scaled to [-1, 1]) of the
planner's choice lies below the best of the others: trusted people alone, local people alone (plain), and the plain
blend. Four columns in [-1, 1], residuals with a standard deviation of .1, epsilon 1; `clip` is stated as .45, or left
to the trusted people. `cover` counts true coefficients within their 95 % interval, over all coefficients.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.protocols.regression import RegressionStudy, release_people
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.vector import VectorBounds
from hybridp.randomness import seeded

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
    study = RegressionStudy(bounds, guarantee, **more)
    return release_people(study, rows[:k], rows[k:], (*(f"x{j}" for j in range(d)), "y"), rng=seeded(seed))


def _error(coefficients: Any, truth: Floats) -> float:
    return float(((np.asarray(coefficients) - truth) ** 2).sum())


def _covered(found: Any, truth: Floats) -> list[bool]:
    return [bool(a <= b <= c) for a, b, c in zip(found.low, truth, found.high, strict=True)]


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
                    errors[form].append(_error(found.estimate, BETA))
                    if form == "plain":
                        errors["local"].append(_error(found.local.coefficients, BETA))
                covered += _covered(found, BETA)
                forms.append(found.form)
            root = {name: math.sqrt(float(np.mean(some))) for name, some in errors.items()}
            best = min(root[name] for name in ("tcm-only", "local", "plain"))
            told = " | ".join(f"{root[name]:.4f}" for name in ("tcm-only", "local", "plain", "best"))
            chosen = "/".join(sorted(set(forms)))
            gain = (best / root["best"]) ** 2
            print(f"| {n:,} | {opt_in:.1%} | {clip or 'found'} | {told} | {chosen} | {gain:.2f} | "
                  f"{np.mean(covered):.1%} |", flush=True)  # fmt: skip


def coverage(trials: int) -> None:
    print("| regression | people | trusted | epsilon | residuals | cover, trusted alone | cover, choice | gain |")
    print("|---|---|---|---|---|---|---|---|")
    cells = [
        ("linear", 20_000, opt_in, epsilon, residuals, d)
        for opt_in, epsilon, d in ((0.05, 1.0, 2), (0.2, 0.5, 2), (0.5, 1.0, 4), (0.1, 4.0, 4))
        for residuals in RESIDUALS
    ] + [("logistic", 40_000, opt_in, epsilon, "", 2) for opt_in, epsilon in ((0.1, 1.0), (0.3, 1.0), (0.1, 4.0))]
    for kind, n, opt_in, epsilon, residuals, d in cells:
        truth = BETA[: d + 1] * (5 if kind == "logistic" else 1)
        guarantee: Any = ApproxDP(epsilon, 1e-6)
        hits: dict[str, list[bool]] = {"tcm-only": [], "best": []}
        errors: dict[str, list[float]] = {"tcm-only": [], "best": [], "plain": []}
        for t in range(trials):
            lots = np.random.default_rng(t)
            rows = chances(lots, n, d) if kind == "logistic" else people(lots, n, d, residuals, related=t % 2 == 1)
            for form in ("tcm-only", "best", "plain") if kind == "linear" else ("tcm-only", "best"):
                found = run(rows, round(n * opt_in), t, guarantee, form=form, kind=kind)
                errors[form].append(_error(found.estimate, truth))
                if form != "plain":
                    hits[form] += _covered(found, truth)
        mse = {name: float(np.mean(some)) for name, some in errors.items() if some}
        gain = min(v for name, v in mse.items() if name != "best") / mse["best"]
        told = " | ".join(f"{np.mean(some):.1%}" for some in hits.values())
        print(f"| {kind}, {d} columns | {n:,} | {opt_in:.0%} | {epsilon:g} | {residuals} | {told} | {gain:.2f} |",
              flush=True)  # fmt: skip


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--trials", type=int, default=20, help="of each cell of the gains; half of it for a million")
    parser.add_argument("--covered", type=int, default=400, help="trials of each cell of the coverage")
    given = parser.parse_args(arguments)
    if given.trials:
        gains(given.trials, PureDP(1.0))
    if given.covered:
        coverage(given.covered)


if __name__ == "__main__":
    main()
