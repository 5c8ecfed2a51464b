"""How much of the sparse vector technique's front is found, beside Optuna, random and grid search?

Run with `python -m benchmarks.pareto_svt [--seeds 10] [--methods exact tpe ...]`. Hypervolume in (ln epsilon, 1 - F1)
below (ln 1000, 1), as a share of the front of a fine grid. The observed hypervolume is inflated by noise, so every
setting is re-evaluated: not by fresh repeats but by the exact expectation of F1, their limit.

Two shares a method: of the settings on the front that the method itself would hand over (by posterior mean
for the models here, as observed for the others), and of all settings that it tried.
"""

from __future__ import annotations

import argparse
import functools
import math
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridp.pareto import Evaluation, Run, dpareto, final_front, grid_search, hypervolume, random_search
from hybridp_lab.baselines.acquisition import by_hvpoi, by_nehvi
from hybridp_lab.problems.svt import POSITIVE, QUERIES, sparse_vector_problem

PROBLEM = sparse_vector_problem()
BUDGETS = (80, 272)
FINE = 401


@functools.cache
def _binomials(n: int) -> tuple[np.ndarray, np.ndarray]:
    from scipy.special import gammaln

    k = np.arange(n + 1)
    return k, gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _binomial(n: int, p: np.ndarray) -> np.ndarray:
    k, ways = _binomials(n)
    p = np.clip(p, 1e-300, 1 - 1e-16)[:, None]
    return np.exp(ways + k * np.log(p) + (n - k) * np.log1p(-p))


def _above(answer: int, rho: np.ndarray, scale: float) -> np.ndarray:
    """P(answer + Laplace(scale) >= 1/2 + rho)."""
    gap = 0.5 + rho - answer
    tail = 0.5 * np.exp(-np.abs(gap) / scale)
    return np.where(gap > 0, tail, 1 - tail)


@functools.cache
def exact_f1(cutoff: int, b: float) -> float:
    """E[F1] of Algorithm 3.1 over noise and random orders, by quadrature over the threshold's noise.

    Given that noise, t of the positive and f of the other queries lie above, independent binomials; the first
    n = min(C, t + f) of those in a random order are answered, of which n t/(t + f) are right on average, and
    F1 = 2 right/(positive + n) is linear in them.
    """
    first = b / (1 + (2 * cutoff) ** (1 / 3))
    u = (np.arange(300) + 0.5) / 300
    rho = np.where(u < 0.5, first * np.log(2 * u), -first * np.log(2 * (1 - u)))
    right, wrong = (_binomial(n, _above(a, rho, b - first)) for n, a in ((POSITIVE, 1), (QUERIES - POSITIVE, 0)))
    t, f = np.arange(POSITIVE + 1)[:, None], np.arange(QUERIES - POSITIVE + 1)[None]
    n = np.minimum(cutoff, t + f)
    score = 2 * n * t / np.maximum(t + f, 1) / (POSITIVE + n)
    return float(np.sum((right @ score) * wrong) / len(rho))


def true_volume(settings: Sequence[Any]) -> float:
    points = [(np.log(PROBLEM.privacy(s)), 1 - exact_f1(s["C"], s["b"])) for s in settings]
    return hypervolume(np.array(points), PROBLEM.corner)


@functools.cache
def best_volume() -> float:
    """Of every C with a fine grid of b."""
    return true_volume([{"C": c, "b": float(b)} for c in range(1, 31) for b in np.geomspace(1e-2, 1e2, FINE)])


Tried = Sequence[Evaluation]


def _optuna(sampler: Callable[[int], Any], n: int, seed: int) -> Tried:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler(seed))
    tried: list[Evaluation] = []

    def objective(trial: Any) -> tuple[float, float]:
        setting = {"C": trial.suggest_int("C", 1, 30), "b": trial.suggest_float("b", 1e-2, 1e2, log=True)}
        tried.append(PROBLEM.evaluate(setting, seed * 100_003 + trial.number))
        return math.log(tried[-1].epsilon), tried[-1].values[0]

    study.optimize(objective, n_trials=n)
    return tried


def _tpe(seed: int) -> Any:
    import optuna

    return optuna.samplers.TPESampler(multivariate=True, n_startup_trials=16, seed=seed)


def _nsga(seed: int) -> Any:
    import optuna

    return optuna.samplers.NSGAIISampler(population_size=16, seed=seed)


def _ours(**how: Any) -> Callable[[int, int], Tried]:
    return lambda n, seed: dpareto(PROBLEM, init=16, steps=n - 16, seed=seed, **how).evaluations


METHODS: dict[str, Callable[[int, int], Tried]] = {
    "exact": _ours(),
    "hvpoi": _ours(chooser=by_hvpoi),
    "nehvi": _ours(chooser=by_nehvi),
    "tpe": lambda n, seed: _optuna(_tpe, n, seed),
    "nsga2": lambda n, seed: _optuna(_nsga, n, seed),
    "random": lambda n, seed: random_search(PROBLEM, n=n, seed=seed).evaluations,
    "grid": lambda n, seed: grid_search(PROBLEM, per_axis=int(n**0.5), seed=seed).evaluations,
}


def shares(name: str, seed: int, budgets: Sequence[int]) -> list[tuple[float, float, float]]:
    """For each budget: true share of the front handed over, of everything tried, and CPU seconds of the longest run.

    No method looks ahead to its budget, so the first 80 evaluations of a long run are a short run; only grids differ.
    """
    start = time.process_time()
    longest = METHODS[name](max(budgets), seed)
    spent = time.process_time() - start
    out = []
    for n in budgets:
        tried = METHODS[name](n, seed) if name == "grid" else longest[:n]
        modelled = name in ("exact", "hvpoi", "nehvi")
        chosen = final_front(PROBLEM, tried) if modelled else Run(PROBLEM, tuple(tried)).front
        volumes = [true_volume([e.setting for e in which]) / best_volume() for which in (chosen, tried)]
        out.append((100 * volumes[0], 100 * volumes[1], spent))
    return out


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--methods", nargs="*", default=list(METHODS), choices=list(METHODS))
    parser.add_argument("--budgets", nargs="*", type=int, default=list(BUDGETS))
    args = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    print(f"fine grid: {best_volume():.4f}; {args.seeds} seeds; CPU seconds are of the longest run, oracles included")
    print("method  budget  handed over % (sd, least)  all tried %  CPU s", flush=True)
    for name in args.methods:
        table = np.array([shares(name, seed, args.budgets) for seed in range(args.seeds)])
        for n, (front, every, spent) in zip(args.budgets, table.transpose(1, 2, 0), strict=True):
            print(
                f"{name:7s} {n:6d}  {front.mean():6.2f} ({front.std():.2f}, {front.min():.2f})"
                f"  {every.mean():6.2f}  {spent.mean():6.1f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
