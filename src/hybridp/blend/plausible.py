"""Intervals of whatever a distribution function tells, from what was seen and from nothing else but that it rises.

What groups sent is linear in the distribution function F with errors that are close to normal, so that every F misfits
by some ``chi2(F) = |values - matrix @ F|^2`` in units of those errors. An interval of 95 % holds every value of a
statistic that some F has which misfits by at most ``1.96^2`` more than the best F does, both among the functions that
rise from 0 to 1: the profile of a likelihood ratio (Wilks 1938; at a point of a rising function Banerjee and Wellner
2001, whose limit is below that of Wilks, so that the interval errs on the wide side). Where a value leaves F less room
than one direction, as a tail without people does in which many places were counted, the misfit is that of as many
normal numbers as directions were given up (chi-bar-square, conditionally on the faces: Wollan and Dykstra 1986).

Nothing is assumed of F between the places where it was seen, and atoms may stand anywhere: reports tell means of F over
cells, counts tell F at places, and all that links them is that F rises (`Ladder`). A rank that people tell coarsely has
a wide interval, however even the estimate's own curve is. Groups that may differ have a function each, and the
statistic is one of their mixture, each counting by its number of people.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend import distribution as blend_distribution
from hybridp.blend.distribution import WITHIN, Evidence, Shape, gini, joined_windows, reports_seen, variance
from hybridp.public.distribution import BinnedReports
from hybridp.public.messages import NormalLaplace, holm
from hybridp.public.randomisers import Floats

__all__ = ["Ladder", "Plausible", "groups_apart", "normal_reach", "plausible", "windows_around"]

Row = tuple[Floats, float]
"""Weights of the numbers of a ladder, or of several, and what is added."""

_HEAVY = 1e3  # a rule that must hold, in units of what was seen
_NEAR = 0.01  # an end of an interval is told to this part of its distance from the best value
_PLACES = 16  # where a band is worked out
_NARROWEST = 2.0**-14
_NOUGHT = 1e-9  # a step below that is none: steps add up to 1, and doubles do not tell it from rounding
_CLOSE = 1e-6  # parts of the way to the farthest value there is
_ROUNDS = 3
_TESTED = 16  # places, at most, at which groups are compared
_STEPS = 6  # towards the end of an interval of a statistic that bends with F


class Ladder:
    """One group's F as numbers that rise from 0 to 1: its mean over each cell and, at places, F itself between them.

    Of a law on atoms, which are the ends, the numbers are F at each of them but the last.
    """

    def __init__(self, ends: Floats, places: Sequence[float] = (), *, jumps: bool = False) -> None:
        self.ends, self.jumps = ends, jumps
        shown = np.isin(ends[:-1], () if jumps else places)
        self._mean = np.arange(len(shown)) + np.cumsum(shown)
        self._low = np.repeat(ends[:-1], 1 + shown)  # from where to where each number is about F
        self._high = self._low.copy()
        self._high[self._mean] = ends[1:]
        self.size = len(self._low)

    def at(self, place: float) -> Floats:
        return self.limit(place, 1)[0]

    def means(self, edges: Floats) -> Floats:
        low, high = np.maximum.outer(edges[:-1], self.ends[:-1]), np.minimum.outer(edges[1:], self.ends[1:])
        rows = np.zeros((len(edges) - 1, self.size))
        rows[:, self._mean] = np.maximum(high - low, 0.0) / np.diff(edges)[:, None]
        return rows

    def limit(self, place: float, side: int) -> Row:
        """F at a place, or the nearest number that is not below (1) or above (-1) it."""
        row = np.zeros(self.size)
        if place >= self.ends[-1]:
            return row, 1.0
        if side > 0 and not self.jumps:
            near = int(np.searchsorted(self._low, place))
        else:
            near = int(np.searchsorted(self._low if self.jumps else self._high, place, side="right")) - 1
        if 0 <= near < self.size:
            row[near] = 1.0
        return row, float(near == self.size)

    def unseen(self, numbers: Floats) -> tuple[Floats, Floats]:
        """The width of each cell, and how far F may rise within it."""
        result = np.concatenate([[0.0], numbers[self._mean], [1.0]])
        return np.diff(self.ends), np.zeros(len(self._mean)) if self.jumps else result[2:] - result[:-2]


def plausible(known: Evidence, asked: Sequence[float] = ()) -> Plausible:
    """All distribution functions beside what is known, told at the places where people were counted or that are asked
    for.

    How much counts and reports vary by sampling depends on F: it is told by the best one, in a few rounds.
    """
    several = len(known.answered)
    sent = [one for one in (known.reports, *(_grouped(one, several) for one in known.answered)) if one and one.people]
    shares, told = [1.0], [(known.counted, sent)]  # which counts and reports are about each group
    if known.apart:
        shares, told = [known.share, 1 - known.share], [(known.counted, []), ((), sent)]
    ladders = []
    for counted, reports in told:
        places = [*(place for one in counted for place in one.places), *asked]
        ends = np.unique(np.concatenate([[0.0, 1.0], places, *(one.edges for one in reports)]))
        ladders.append(Ladder(np.array(known.atoms), jumps=True) if known.atoms else Ladder(ends, places))
    pilots: list[Floats | None] = [None] * len(told)
    for _ in range(_ROUNDS):
        seen = []
        for (counted, reports), one, pilot in zip(told, ladders, pilots, strict=True):
            own = [blend_distribution.counts_seen(counted, one, pilot)] if counted else []
            seen.append([*own, *(reports_seen(got, one, pilot) for got in reports)])
        result = Plausible(seen, ladders, shares)
        pilots = list(result.parts(result.best))
    return result


def _grouped(one: BinnedReports, windows: int) -> BinnedReports:
    """Answers by fewer bins, so that there are about as many in all windows together as a fit has time for."""
    many = len(one.counts) // 2
    while many > max(4, min(WITHIN, 9 * WITHIN // windows)) and many % 2 == 0:
        many //= 2
    return replace(one, counts=one.counts.reshape(2 * many, -1).sum(axis=1))


def windows_around(at: Sequence[float], known: Evidence) -> tuple[tuple[float, float], ...]:
    """Where to ask about these quantiles next: where each may lie, in eleven of twelve cases; joined where they meet.

    In shares of the range; everywhere while nothing is known. A quantile that lies beyond is still found, because F is
    known, less well, outside of the windows too.
    """
    if not known.counted and not known.local:
        return ((0.0, 1.0),)
    beside = plausible(known)
    result = []
    beyond = known.atoms[1] / 2 if known.atoms else 0.0
    wide = 1.0 if known.alike or known.answered else 2.0  # others may be elsewhere
    for low, high in (beside.quantile_interval(q, 1.75) for q in at):
        middle, half = (low + high) / 2, wide * max(high - low, _NARROWEST) / 2 + beyond
        result.append((max(middle - half, 0.0), min(middle + half, 1.0)))
    return tuple(joined_windows(result))


def normal_reach(level: float, many: int = 1) -> float:
    """How many standard errors intervals reach, so many of which hold together at a level."""
    from scipy.special import ndtri

    return float(-ndtri((1 - level) / many / 2))


def groups_apart(known: Evidence, told: blend_distribution.Blended, level: float) -> dict[str, Any] | None:
    """Do the groups differ at any of the places where trusted people were counted? Adjusted (Holm), and where they do
    most clearly by how much, with an interval that counts for all places: the place, each group's share at or below
    it, their difference, its interval, p.

    The largest of the draws that a count below a place adds up keeps its Laplace tails; whatever else errs is normal.
    """
    if told.local is None or told.counted is None or told.trusted is None:
        return None
    variances = iter(np.diag(np.linalg.inv(told.counted.precision)).tolist())
    seen = []
    for one in known.counted:
        many = len(one.places) + 1
        for i, (place, share) in enumerate(zip(one.places, one.shares.tolist(), strict=True), 1):
            drawn = 1.0 if many == 2 else max(i, many - i) / many
            seen.append((place, share, next(variances), drawn**2 * one.noise / one.people**2))
    seen = [seen[i] for i in np.unique(np.linspace(0, len(seen) - 1, _TESTED).round().astype(int))]
    local = plausible(replace(known, counted=()), sorted({place for place, *_ in seen}))
    result = []
    for place, share, spread, noise in seen:
        laplace = min(noise / spread, 1.0)
        law = NormalLaplace(math.sqrt(1 - laplace), math.sqrt(laplace / 2))
        result.append(float(law.two_sided_p(local.apart(place, share, math.sqrt(spread)))))
    place = seen[int(np.argmin(result))][0]
    apart = plausible(replace(known, alike=False), (place,))
    low, high = apart.gap(place, normal_reach(level, len(seen)))
    own, others = told.trusted.below(place)[0], told.local.below(place)[0]
    gap = {"at": place, "trusted": own, "local": others, "difference": min(max(own - others, low), high)}
    return {**gap, "interval": [low, high], "p_value": min(holm(result))}


class Plausible:
    """The distribution functions that what was seen leaves plausible: those of groups, by ladders, and their mixture.

    What was `seen` of each group is linear in the numbers of its ladder.
    """

    def __init__(
        self, seen: Sequence[Sequence[blend_distribution.Seen]], ladders: Sequence[Ladder], weights: Sequence[float]
    ) -> None:
        self.ladders, self.weights = ladders, weights
        self.ends = np.unique(np.concatenate([one.ends for one in ladders]))
        self._starts = np.cumsum([0, *(one.size for one in ladders)])
        parts: list[tuple[Floats, Floats]] = []
        for i, told in enumerate(seen):
            for one in told:
                root = np.linalg.cholesky(one.precision).T
                others = self._starts[i], self._starts[-1] - self._starts[i + 1]  # numbers of groups before and behind
                parts.append((np.pad(root @ one.matrix, ((0, 0), others)), root @ one.values))
        turn, rows = np.linalg.qr(np.concatenate([rows for rows, _ in parts]))
        self._rows, self._values = self._by_steps(rows), turn.T @ np.concatenate([values for _, values in parts])
        self._padded = np.pad(self._rows, ((0, 0), (0, len(ladders) + 1)))  # for what rules leave over
        self._heavy = _HEAVY * math.sqrt(float((self._rows**2).sum() / rows.shape[1]))
        self._likely = np.ones(rows.shape[1], dtype=np.bool_)  # steps of the last F: the next one has most of them
        self._least, self._free, self.best = self._fit(None, 0.0)

    def parts(self, numbers: Floats) -> list[Floats]:
        return [numbers[a:b] for a, b in pairwise(self._starts.tolist())]

    def shapes(self) -> list[Shape]:
        """Of atoms: what is likeliest of everybody, and of each group."""
        each = [np.append(part, 1.0) for part in self.parts(self.best)]
        both = np.sum([weight * part for weight, part in zip(self.weights, each, strict=True)], axis=0)
        return [Shape.known(f, self.ends, jumps=True) for f in (both, *each)]

    def _by_steps(self, rows: Floats) -> Floats:
        """Weights of the numbers as weights of their steps."""
        each = (rows[:, a:b] for a, b in pairwise(self._starts.tolist()))
        return np.concatenate([part[:, ::-1].cumsum(axis=1)[:, ::-1] for part in each], axis=1)

    def limit(self, place: float, side: int) -> Row:
        """The share of everybody at or below a place, or what is known not to be below (1) or above (-1) it."""
        each = [(weight, *one.limit(place, side)) for weight, one in zip(self.weights, self.ladders, strict=True)]
        row = np.concatenate([weight * own for weight, own, _ in each])
        return row, sum(weight * constant for weight, _, constant in each)

    def _fit(
        self, row: Floats | None, target: float, side: int = 0, error: float | None = None
    ) -> tuple[float, int, Floats]:
        """The misfit of the best F whose ``row @ F`` is the target, at most (-1) or at least (1) it; in how many
        directions that F was free to move; and F.

        With an `error`, of the best F where the target was seen with that standard error.
        """
        count, groups = int(self._starts[-1]), len(self.ladders)
        rules = np.zeros((groups + (row is not None), count + groups + 1))
        for i, (a, b) in enumerate(pairwise(self._starts.tolist())):
            rules[i, a:b] = rules[i, count + i] = 1.0  # steps, and what is left for the upper bound, add up to 1
        sums, weights = np.ones(len(rules)), np.full(len(rules), self._heavy)
        if row is not None:
            scale = float(np.abs(row).max()) or 1.0
            rules[-1, :count] = self._by_steps(row[None, :])[0] / scale
            rules[-1, -1] = -float(side)
            sums[-1] = target / scale
            weights[-1] = self._heavy if error is None else scale / error
        likely = np.concatenate([self._likely, np.ones(groups + 1, dtype=np.bool_)])
        wanted = np.concatenate([self._values, weights * sums])
        steps = _not_below_zero(np.concatenate([self._padded, weights[:, None] * rules]), wanted, likely)
        self._likely = steps[:count] > 0
        miss = self._rows @ steps[:count] - self._values
        free = int(np.count_nonzero(steps > _NOUGHT)) - (len(rules) if error is None else groups)
        return float(miss @ miss), free, np.concatenate([part.cumsum() for part in self.parts(steps[:count])])

    def apart(self, place: float, share: float, error: float) -> float:
        """By how many standard errors F at one of the ends is seen away from what others, with an error, say of it."""
        row = self.limit(place, 1)[0]
        misfit, free, f = self._fit(row, share, error=error)
        return self._errors(misfit + ((float(row @ f) - share) / error) ** 2, free - 1)

    def gap(self, place: float, reach: float) -> tuple[float, float]:
        """The share of the first group at or below a place less that of the second."""
        ends = []
        for side in (-1, 1):
            (own, more), (other, less) = self.ladders[0].limit(place, side), self.ladders[1].limit(place, -side)
            ends.append(self._edge(np.concatenate([own, -other]), side, reach)[0] + more - less)
        return max(ends[0], -1.0), min(ends[1], 1.0)

    def _errors(self, misfit: float, free: int) -> float:
        """A misfit as standard errors of one normal number: with the directions that were given up as its degrees."""
        from scipy.special import chdtrc, ndtri

        more, lost = max(misfit - self._least, 0.0), max(self._free - free, 1)
        return math.sqrt(more) if lost == 1 else max(-float(ndtri(max(chdtrc(lost, more), 1e-300) / 2)), 0.0)

    def quantile_interval(self, share: float, reach: float) -> tuple[float, float]:
        """All cells in which F may reach `share`; of atoms, all at which it may."""
        last, jumps = len(self.ends) - 1, self.ladders[0].jumps

        def at(end: int, side: int) -> float:
            row, more = self.limit(float(self.ends[end]), side)
            return float(row @ self.best) + more

        def may(end: int, side: int) -> bool:
            row, more = self.limit(float(self.ends[end]), side)
            return self._errors(*self._fit(row, share - more, side)[:2]) <= reach

        # If F is at most `share` at one end, it is so at all ends before; and at least, at all after.
        inner = int(np.searchsorted([at(end, -1) for end in range(last)], share, side="right")) - 1
        below = _last(lambda end: may(end, -1), inner, last)
        inner = int(np.searchsorted([at(end, 1) for end in range(last)], share))
        above = _last(lambda end: may(end, 1), inner, -1)
        return float(self.ends[max(above - (not jumps), 0)]), float(self.ends[below + 1])

    def between(self, low: float | None, high: float | None, reach: float) -> tuple[float, float]:
        """The share of people above one end and at or below another; None is no limit."""
        nothing = np.zeros(int(self._starts[-1]))
        ends = []
        for side in (-1, 1):
            first, less = (nothing, 0.0) if low is None else self.limit(low, -side)
            second, more = (nothing, 1.0) if high is None else self.limit(high, side)
            ends.append(self._edge(second - first, side, reach)[0] + more - less)
        return max(ends[0], 0.0), min(ends[1], 1.0)

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
        weights, squares = np.diff(self.ends), np.diff(self.ends**2)

        def within(f: Floats, widths: Floats, rises: Floats) -> float:
            return float(widths**2 @ rises) / 4

        return self._bent(lambda f: variance(weights, squares, f), reach, within)

    def gini_interval(self, origin: float, reach: float) -> tuple[float, float]:
        weights = np.diff(self.ends)

        def within(f: Floats, widths: Floats, rises: Floats) -> float:
            return float(widths @ rises**2) / 4 / max(origin + 1 - float(weights @ f), 1e-9)

        return self._bent(lambda f: gini(weights, f, origin), reach, within)

    def _bent(
        self, statistic: Callable[[Floats], tuple[float, Floats]], reach: float,
        within: Callable[[Floats, Floats, Floats], float],
    ) -> tuple[float, float]:  # fmt: skip
        """The least and the largest plausible value of a statistic of F's means with a slope, in straight steps.

        People within one cell are as far apart as their mean allows at most, and all at one place at least: what that
        takes off, cell `within` cell, follows from the widths of cells and how far F may rise in them.
        """
        parts = list(zip(self.weights, self.ladders, strict=True))
        means = np.concatenate([weight * one.means(self.ends) for weight, one in parts], axis=1)
        ends = []
        for side in (-1, 1):
            numbers = self.best
            value, slope = statistic(means @ numbers)
            for _ in range(_STEPS):
                goal = self._edge(slope @ means, side, reach)[1]
                tried = [numbers + part * (goal - numbers) for part in np.linspace(0, 1, 17)]
                numbers = max(tried, key=lambda one: side * statistic(means @ one)[0])
                before, (value, slope) = value, statistic(means @ numbers)
                if abs(value - before) <= _NEAR * abs(value):
                    break
            if side < 0:
                for (weight, one), own in zip(parts, self.parts(numbers), strict=True):
                    value -= weight * within(means @ numbers, *one.unseen(own))
            ends.append(value)
        return ends[0], ends[1]

    def _edge(self, row: Floats, side: int, reach: float) -> tuple[float, Floats]:
        """The least (-1) or largest (1) plausible value of ``row @ F``, and an F that has it."""
        steps = self._by_steps(row[None, :])[0]  # of all people of a group at one place
        inner = float(row @ self.best)
        outer = float(sum(side * (side * np.append(part, 0.0)).max() for part in self.parts(steps)))
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


def _not_below_zero(matrix: Floats, values: Floats, likely: NDArray[np.bool_]) -> Floats:
    """The least squares without a number below zero, first among the likely columns: those that would make them
    less join, until none does.

    An active set may go round in circles where columns nearly coincide; what was paid for is not lost for that: an
    interior method, which is slower, comes to an end.
    """
    from scipy.optimize import lsq_linear, nnls

    result = np.zeros(matrix.shape[1])
    none = 10 * max(matrix.shape) * float(np.finfo(np.float64).eps * np.abs(matrix).sum(axis=0).max())
    try:
        while True:
            result[likely], _ = nnls(matrix[:, likely], values, maxiter=50 * matrix.shape[1])
            more = ((values - matrix @ result) @ matrix > none) & ~likely
            if not more.any():
                return result
            likely = likely | more
    except RuntimeError:
        result = lsq_linear(matrix, values, bounds=(0.0, np.inf), tol=1e-12).x
        return np.where(result > 1e-9 * result.max(), result, 0.0)  # what an active set leaves out is exactly nought


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
