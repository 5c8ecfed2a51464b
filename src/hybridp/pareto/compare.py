"""Fronts side by side: bands over repeats (Avent 2023, Figure 3.9), and where each of two is lower."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import must
from .front import Staircase, hypervolume, staircase
from .problem import Evaluation, Problem

__all__ = ["Band", "Wins", "band", "wins"]

Floats: TypeAlias = NDArray[np.float64]


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
    tables = [problem.axes([e.epsilon for e in run], [e.values for e in run]) for run in (first, second)]
    a, b = (hypervolume(t, corner) for t in tables)
    steps = [staircase(t[:, :2]) for t in tables]
    start = min(s.x[0] for s in steps)
    if start >= corner[0]:
        return Wins(a, b, 0.0, 0.0)
    edges = np.unique(np.clip(np.concatenate([steps[0].x, steps[1].x, [corner[0]]]), start, corner[0]))
    width = np.diff(edges) / (corner[0] - start)
    one, two = (s.at(edges[:-1]) for s in steps)
    return Wins(a, b, float(width[one < two].sum()), float(width[two < one].sum()))
