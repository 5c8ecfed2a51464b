"""Pareto fronts and their hypervolumes; every objective is minimised.

An empirical front is a staircase: at a point between two measured ones it promises only what the measured ones
promise, so it never overstates the true front (Avent 2023, section 3.3.1). The hypervolume
HV(P) = volume{v : v <= anti-ideal, some u in P has u <= v} is exact: a sweep in two dimensions, botorch's
partition in more.

>>> hypervolume([[0, 1], [1, 0]], [2, 2])
3.0
>>> pareto_indices([[0, 1], [1, 0], [1, 1]]).tolist()
[0, 1]

Of fronts side by side there are bands over repeats (Avent 2023, Figure 3.9), and where each of two is lower.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import InvalidInput, must
from hybridp.pareto.problem import Evaluation, Problem

__all__ = ["Band", "Staircase", "Wins", "band", "hypervolume", "pareto_indices", "quiet", "staircase", "wins"]


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings of the libraries are silenced inside; errors are not."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


Floats: TypeAlias = NDArray[np.float64]


def _points(points: ArrayLike) -> Floats:
    table = np.asarray(points, dtype=float)
    if table.size == 0:
        return table.reshape(0, table.shape[-1] if table.ndim == 2 else 0)
    must(table.ndim == 2, "points", "must be a table, one row a point", f"{table.ndim} dimensions")
    must(not np.isnan(table).any(), "points", "must not hold NaN", "NaN")
    return table


def pareto_indices(points: ArrayLike) -> NDArray[np.intp]:
    """Rows that no other row dominates, in increasing order of the first objective; of equal rows the first one.

    >>> pareto_indices([[2, 0], [0, 0], [0, 0]]).tolist()
    [1]
    """
    table = _points(points)
    if len(table) == 0:
        return np.empty(0, dtype=np.intp)
    order = np.lexsort(table.T[::-1])
    if table.shape[1] == 2:
        best = np.minimum.accumulate(table[order, 1])
        return np.asarray(order[np.concatenate([[True], table[order[1:], 1] < best[:-1]])])
    kept: list[int] = []
    for i in order:  # a row can only be dominated by one that comes before it
        if not any(bool(np.all(table[j] <= table[i])) for j in kept):
            kept.append(int(i))
    return np.array(kept, dtype=np.intp)


def hypervolume(points: ArrayLike, anti_ideal: Sequence[float] | Floats) -> float:
    """The volume that the points dominate below the anti-ideal point; points beyond it add nothing."""
    table, corner = _points(points), np.asarray(anti_ideal, dtype=float)
    must(bool(np.isfinite(corner).all()), "anti_ideal", "must be finite", corner.tolist())
    if len(table) == 0:
        return 0.0
    must(table.shape[1] == len(corner), "anti_ideal", f"must have {table.shape[1]} coordinates", corner.tolist())
    if not np.isfinite(table).all():
        raise InvalidInput("`points` must be finite. Got an infinite coordinate.")
    table = table[(table < corner).all(1)]
    table = table[pareto_indices(table)]
    if len(table) == 0:
        return 0.0
    if len(corner) == 1:
        return float(corner[0] - table[0, 0])
    if len(corner) == 2:
        right = np.append(table[1:, 0], corner[0])
        return float(np.sum((right - table[:, 0]) * (corner[1] - table[:, 1])))
    with quiet():
        import torch
        from botorch.utils.multi_objective.hypervolume import Hypervolume

    # botorch maximises: both signs are turned.
    volume = Hypervolume(torch.as_tensor(-corner, dtype=torch.double))
    return float(volume.compute(torch.as_tensor(-table, dtype=torch.double)))


@final
@dataclass(frozen=True)
class Staircase:
    """A conservative front in two dimensions: the least second objective reached at or before each first one."""

    x: Floats
    y: Floats

    def at(self, x: ArrayLike) -> Floats:
        """The height of the staircase; infinite to the left of the first point.

        >>> staircase([[0, 1], [2, 0.5]]).at([-1, 0, 1.9, 2]).tolist()
        [inf, 1.0, 1.0, 0.5]
        """
        place = np.searchsorted(self.x, np.asarray(x, dtype=float), side="right")
        return np.asarray(np.concatenate([[np.inf], self.y])[place])


def staircase(points: ArrayLike) -> Staircase:
    """The staircase through the non-dominated points."""
    table = _points(points)
    must(len(table) > 0 and table.shape[1] == 2, "points", "must be pairs, at least one", f"shape {table.shape}")
    front = table[pareto_indices(table)]
    return Staircase(front[:, 0], front[:, 1])


@final
@dataclass(frozen=True)
class Band:
    """Staircases of (epsilon, error) through the best, the mean and the worst run of every setting."""

    best: Staircase
    mean: Staircase
    worst: Staircase

    def at(self, epsilon: ArrayLike) -> tuple[Floats, Floats, Floats]:
        """Best, mean and worst error at each epsilon; infinite below the smallest epsilon measured."""
        return self.best.at(epsilon), self.mean.at(epsilon), self.worst.at(epsilon)


def band(done: Sequence[Evaluation]) -> Band:
    """The band of a run, from its evaluations that succeeded.

    >>> band([Evaluation({}, 0, 1.0, (0.4,), (0.3, 0.5), 0.0)]).at([1.0])
    (array([0.3]), array([0.4]), array([0.5]))
    """
    must(len(done) > 0, "evaluations", "must hold at least one that succeeded", 0)
    epsilon = [e.epsilon for e in done]
    rows = ([min(e.runs) for e in done], [e.values[0] for e in done], [max(e.runs) for e in done])
    best, mean, worst = (staircase(np.column_stack([epsilon, errors])) for errors in rows)
    return Band(best, mean, worst)


@final
@dataclass(frozen=True)
class Wins:
    """Two fronts on common axes: their volumes, and the share of ln(epsilon) where each is strictly lower."""

    first: float
    second: float
    first_share: float
    second_share: float


def wins(problem: Problem, first: Sequence[Evaluation], second: Sequence[Evaluation]) -> Wins:
    """Compare two runs below one anti-ideal point, over the range of epsilon that either has measured."""
    corner = problem.corner
    tables = [problem.points(run) for run in (first, second)]
    a, b = (hypervolume(t, corner) for t in tables)
    steps = [staircase(t[:, :2]) for t in tables]
    start = min(s.x[0] for s in steps)
    if start >= corner[0]:
        return Wins(a, b, 0.0, 0.0)
    edges = np.unique(np.clip(np.concatenate([steps[0].x, steps[1].x, [corner[0]]]), start, corner[0]))
    width = np.diff(edges) / (corner[0] - start)
    one, two = (s.at(edges[:-1]) for s in steps)
    return Wins(a, b, float(width[one < two].sum()), float(width[two < one].sum()))
