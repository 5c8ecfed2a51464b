"""Intervals of whatever a distribution function tells, from what was seen and from nothing else but that it rises.

What groups sent is linear in the distribution function F with errors that are close to normal, so that every F misfits
by some ``chi2(F) = |values - matrix @ F|^2`` in units of those errors. An interval of 95 % holds every value of a
statistic that some F has which misfits by at most ``1.96^2`` more than the best F does, both among the functions that
rise from 0 to 1: the profile of a likelihood ratio (Wilks 1938; at a point of a rising function Banerjee and Wellner
2001, whose limit is below that of Wilks, so that the interval errs on the wide side). Where a value leaves F less room
than one direction, as a tail without people does in which many places were counted, the misfit is that of as many
normal numbers as directions were given up (chi-bar-square, conditionally on the faces: Wollan and Dykstra 1986).

Nothing is assumed of F between the places where it was seen: a rank that people tell coarsely has a wide interval,
however even the estimate's own curve is, and above the last place that was counted F is not below its value there.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.distribution import (
    Known,
    Seen,
    Shape,
    answers_seen,
    finer,
    gini,
    reports_seen,
    shares_seen,
    variance,
)
from hybridp.public.distribution import CELLS

__all__ = ["Plausible", "plausible", "windows_around"]

Floats = NDArray[np.float64]
Statistic = Callable[[Floats], tuple[float, Floats]]

_HEAVY = 1e3  # a rule that must hold, in units of what was seen
_NEAR = 0.01  # an end of an interval is told to this part of its distance from the best value
_PLACES = 32  # where a band is worked out
_NARROWEST = 2.0**-14
_CLOSE = 1e-6  # parts of the way to the farthest value there is
_ROUNDS = 3
_STEPS = 6  # towards the end of an interval of a statistic that bends with F


def plausible(known: Known, asked: Sequence[float] = ()) -> Plausible:
    """All distribution functions beside what is known, told at the places where people were counted or that are asked
    for.

    How much the counts of trusted people vary by sampling depends on F: it is told by the best one, in a few rounds.
    """
    windows = [one.window for one in known.answered]
    counted = [place for one in known.counted for place in one.places]
    ends = np.unique(np.concatenate([finer(windows), counted, asked]))
    told = [] if known.reports is None else [reports_seen(known.reports, CELLS, ends)]
    told += [answers_seen(one, ends) for one in known.answered if one.people]
    if not known.counted:
        return Plausible(told, ends)
    found, f = None, ends
    for _ in range(_ROUNDS):
        found = Plausible([shares_seen(known.counted, Shape.known(f, ends)), *told], ends)
        f = found.best
    assert found is not None
    return found


def windows_around(at: Sequence[float], known: Known) -> tuple[tuple[float, float], ...]:
    """Where to ask about these quantiles next: where each may lie, in eleven of twelve cases; joined where they meet.

    In shares of the range. A quantile that lies beyond is still found, because F is known, less well, outside of the
    windows too.
    """
    beside = plausible(known)
    found: list[tuple[float, float]] = []
    for low, high in sorted(beside.quantile_interval(q, 1.75) for q in at):
        middle, half = (low + high) / 2, max(high - low, _NARROWEST) / 2
        low, high = max(middle - half, 0.0), min(middle + half, 1.0)
        if found and low <= found[-1][1]:
            found[-1] = (found[-1][0], max(high, found[-1][1]))
        else:
            found.append((low, high))
    return tuple(found)


class Plausible:
    """The distribution functions that what was seen leaves plausible, told at the ends of cells."""

    def __init__(self, seen: Sequence[Seen], ends: Floats) -> None:
        self.ends = ends
        roots = [np.linalg.cholesky(one.precision).T for one in seen]
        matrix = np.concatenate([root @ one.matrix for root, one in zip(roots, seen, strict=True)])
        values = np.concatenate([root @ one.values for root, one in zip(roots, seen, strict=True)])
        turn, rows = np.linalg.qr(matrix)
        self._rows, self._values = _by_steps(rows), turn.T @ values
        self._heavy = _HEAVY * math.sqrt(float((self._rows**2).sum() / len(ends)))
        self._least, self._free, self.best = self._fit(None, 0.0)

    def _fit(
        self, row: Floats | None, target: float, side: int = 0, error: float | None = None
    ) -> tuple[float, int, Floats]:
        """The misfit of the best F whose ``row @ F`` is the target, at most (-1) or at least (1) it; in how many
        directions that F was free to move; and F.

        With an `error`, of the best F where the target was seen with that standard error.
        """
        count = len(self.ends)
        rules = np.zeros((1 if row is None else 2, count + 2))
        rules[0, : count + 1] = 1.0  # steps of F and what is left for the upper bound itself add up to 1
        sums, weights = np.ones(len(rules)), np.full(len(rules), self._heavy)
        if row is not None:
            scale = float(np.abs(row).max())
            rules[1, :count] = _by_steps(row[None, :])[0] / scale
            rules[1, -1] = -float(side)
            sums[1] = target / scale
            weights[1] = self._heavy if error is None else scale / error
        seen = np.pad(self._rows, ((0, 0), (0, 2)))
        steps = _not_below_zero(
            np.concatenate([seen, weights[:, None] * rules]), np.concatenate([self._values, weights * sums])
        )
        miss = self._rows @ steps[:count] - self._values
        free = int(np.count_nonzero(steps)) - (len(rules) if error is None else 1)
        return float(miss @ miss), free, np.cumsum(steps[:count])

    def away(self, row: Floats, target: float, side: int = 0) -> float:
        """By how many standard errors ``row @ F`` is seen away from the target, or beyond it on one side."""
        return self._errors(*self._fit(row, target, side)[:2])

    def apart(self, place: float, share: float, error: float) -> float:
        """By how many standard errors F at one of the ends is seen away from what others, with an error, say of it."""
        row = self._row(place)
        misfit, free, f = self._fit(row, share, error=error)
        return self._errors(misfit + ((float(row @ f) - share) / error) ** 2, free - 1)

    def _errors(self, misfit: float, free: int) -> float:
        """A misfit as standard errors of one normal number: with the directions that were given up as its degrees."""
        from scipy.special import chdtrc, ndtri

        more, lost = max(misfit - self._least, 0.0), max(self._free - free, 1)
        return math.sqrt(more) if lost == 1 else max(-float(ndtri(max(chdtrc(lost, more), 1e-300) / 2)), 0.0)

    def _row(self, place: float) -> Floats:
        """F at one of the ends."""
        return np.asarray(np.arange(len(self.ends)) == np.searchsorted(self.ends, place), dtype=np.float64)

    def quantile_interval(self, share: float, reach: float) -> tuple[float, float]:
        """All cells in which F may reach `share`."""
        last, at = len(self.ends) - 1, np.eye(len(self.ends))  # F is 1 at the last end

        # If F is at most `share` at one end, it is so at all ends before; and at least, at all after.
        middle = min(int(np.searchsorted(self.best, share)), last)
        below = _last(lambda end: self.away(at[end], share, -1) <= reach, middle - 1, last)
        above = _last(lambda end: self.away(at[end], share, 1) <= reach, middle, -1)
        return float(self.ends[max(above - 1, 0)]), float(self.ends[below + 1])

    def interval(self, row: Floats, reach: float) -> tuple[float, float]:
        """The values of ``row @ F``."""
        return self._edge(row, -1, reach)[0], self._edge(row, 1, reach)[0]

    def between(self, low: float | None, high: float | None, reach: float) -> tuple[float, float]:
        """The share of people above one end and at or below another; None is no limit."""
        ends = [np.zeros(len(self.ends)) if place is None else self._row(place) for place in (low, high)]
        least, most = self.interval(ends[1] - ends[0], reach)
        rest = 1.0 if high is None else 0.0
        return max(rest + least, 0.0), min(rest + most, 1.0)

    def band(self, shape: Shape, reach: float) -> tuple[Floats, Floats]:
        """Intervals of F at the ends of another shape's cells.

        They are worked out where that shape rises by a `_PLACES`-th. Between two such places F is at least what it is
        at the first, and at most what it is at the second.
        """
        f = shape.monotone
        rises = np.unique(np.searchsorted(f, np.arange(1, _PLACES) / _PLACES))
        at = np.unique(np.clip(np.concatenate([rises - 1, rises, [1, len(f) - 2]]), 0, len(f) - 2))
        told = [self.between(None, float(shape.ends[i]), reach) for i in at]
        low, high = np.zeros(len(f)), np.ones(len(f))
        low[at], high[at] = zip(*told, strict=True)
        low[-1] = 1.0
        low, high = np.maximum.accumulate(low), np.minimum.accumulate(high[::-1])[::-1]
        return np.minimum(low, f), np.maximum(high, f)

    def variance_interval(self, reach: float) -> tuple[float, float]:
        low, high = (self.extreme(lambda f: variance(self.ends, f), side, reach) for side in (-1, 1))
        return low, high

    def gini_interval(self, origin: float, reach: float) -> tuple[float, float]:
        low, high = (self.extreme(lambda f: gini(self.ends, f, origin), side, reach) for side in (-1, 1))
        return low, high

    def _edge(self, row: Floats, side: int, reach: float) -> tuple[float, Floats]:
        """The least (-1) or largest (1) plausible value of ``row @ F``, and an F that has it."""
        steps = np.append(_by_steps(row[None, :])[0], 0.0)  # of all people at one place
        inner, outer = float(row @ self.best), float(steps.max() if side > 0 else steps.min())
        least = _CLOSE * abs(outer - inner)
        near, (misfit, free, f) = 0.0, self._fit(row, outer)
        far = self._errors(misfit, free)
        while far > reach * (1 + _NEAR):  # by secants, which are close: misfit is a parabola where no rule binds
            part = min(max((reach - near) / (far - near), 0.05), 0.95)
            middle = inner + part * (outer - inner)
            misfit, free, f = self._fit(row, middle)
            away = self._errors(misfit, free)
            if away < reach * (1 - _NEAR) and abs(outer - inner) > least:
                inner, near = middle, away
            else:
                outer, far = middle, away
                if abs(outer - inner) <= least:
                    break
        return outer, f

    def extreme(self, statistic: Statistic, side: int, reach: float) -> float:
        """The least (-1) or largest (1) plausible value of a statistic with a slope, in straight steps towards it."""
        f = self.best
        value, slope = statistic(f)
        for _ in range(_STEPS):
            goal = self._edge(slope, side, reach)[1]
            tried = [f + part * (goal - f) for part in np.linspace(0, 1, 17)]
            f = max(tried, key=lambda one: side * statistic(one)[0])
            before, (value, slope) = value, statistic(f)
            if abs(value - before) <= _NEAR * abs(value):
                break
        return value


def _not_below_zero(matrix: Floats, values: Floats) -> Floats:
    """The least squares without a number below zero. An active set may go round in circles where columns nearly
    coincide; what was paid for is not lost for that: an interior method, which is slower, comes to an end."""
    from scipy.optimize import lsq_linear, nnls

    try:
        found, _ = nnls(matrix, values, maxiter=50 * matrix.shape[1])
    except RuntimeError:
        found = lsq_linear(matrix, values, bounds=(0.0, np.inf), tol=1e-12).x
        found = np.where(found > 1e-9 * found.max(), found, 0.0)  # what an active set leaves out is exactly nought
    return np.asarray(found, dtype=np.float64)


def _by_steps(rows: Floats) -> Floats:
    """Weights of F at the ends as weights of its steps."""
    return np.asarray(rows[:, ::-1].cumsum(axis=1)[:, ::-1])


def _last(holds: Callable[[int], bool], inner: int, outer: int) -> int:
    """The last place, from one where something holds towards one where it does not, up to which it does."""
    step = 1
    while abs(outer - inner) > 1:
        ahead = min(step, abs(outer - inner) // 2 if step > 1 else 1)
        tried = inner + (ahead if outer > inner else -ahead)
        if holds(tried):
            inner, step = tried, 2 * step
        else:
            outer, step = tried, abs(outer - inner)  # from here on by halves
    return inner
