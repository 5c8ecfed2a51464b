"""Weights under personal epsilons: time beside sorting the same array, and beside a general convex solver.

Run with `python -m benchmarks.weights`. CPU time of this process, best of a few repetitions.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from hybridp.public.personal import adpm_weights

PEOPLE = 10_000_000
SMALL = 1000


def cpu(task: Callable[[], Any], repeat: int) -> tuple[float, Any]:
    """The least CPU time over the repetitions, in seconds, and the last result."""
    best, result = float("inf"), None
    for _ in range(repeat):
        start = time.process_time()
        result = task()
        best = min(best, time.process_time() - start)
    return best, result


def beside_sorting() -> None:
    rng = np.random.default_rng(0)
    for low, high in ((-4, 2), (-27, 27)):
        eps = np.exp(rng.uniform(low, high, PEOPLE))
        sorting, _ = cpu(lambda eps=eps: np.sort(eps), 3)
        weighing, w = cpu(lambda eps=eps: adpm_weights(eps), 3)
        print(
            f"{PEOPLE:.0e} epsilons in e^[{low},{high}]: {weighing:.2f} s, np.sort {sorting:.2f} s,"
            f" ratio {weighing / sorting:.2f} (target < 10); {w.saturated.mean():.1%} saturated"
        )


def beside_cvxpy() -> None:
    try:
        import cvxpy as cp
    except ImportError:
        print("cvxpy is not installed: no comparison with a convex solver")
        return
    eps = np.exp(np.random.default_rng(1).uniform(-4, 2, SMALL))
    # Weights times the number of people: numbers near 1, on which the solver's tolerances mean something.
    w = cp.Variable(SMALL, nonneg=True)
    cost = cp.sum_squares(w) / 4 + 2 * cp.square(cp.max(cp.multiply(1 / eps, w)))
    problem = cp.Problem(cp.Minimize(cost), [cp.sum(w) == SMALL])
    options = {"tol_gap_abs": 1e-13, "tol_gap_rel": 1e-13, "tol_feas": 1e-13}
    solving, _ = cpu(lambda: problem.solve(solver="CLARABEL", **options), 3)
    weighing, ours = cpu(lambda: [adpm_weights(eps) for _ in range(200)], 3)
    weighing /= 200
    apart = np.abs(w.value / SMALL - ours[-1].weight).max()
    print(
        f"{SMALL} epsilons: {weighing * 1e6:.0f} us, cvxpy (Clarabel) {solving * 1e3:.1f} ms,"
        f" ratio {solving / weighing:.0f}; largest weight difference {apart:.1e},"
        f" error relative to the solver's {ours[-1].mse / problem.value * SMALL**2 - 1:+.1e}"
    )


def main() -> int:
    beside_sorting()
    beside_cvxpy()
    return 0


if __name__ == "__main__":
    sys.exit(main())
