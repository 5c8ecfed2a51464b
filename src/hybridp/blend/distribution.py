"""One distribution function from everything that was told about it: post-processing, so it costs nothing.

F is told at the ends of `CELLS` cells, and of finer ones where people were asked within a window. What the groups sent
is linear in F with normal errors: shares of reports in public bins (`hybridp.public.distribution`), and noisy counts of
trusted people below public cuts. F itself is taken as a walk whose steps, or whose changes of step, are independent and
of one size (Whittaker 1923; Kimeldorf and Wahba 1970); the size is not chosen but averaged over, weighted by how well
it explains what was seen. So a smooth distribution is told precisely. The errors of F that this states serve plans;
where the walk is not what F is like they are too small, and intervals come from `hybridp.blend.plausible`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_solve, cholesky, cholesky_banded
from scipy.linalg.lapack import dpotri

from hybridp.errors import must
from hybridp.public.distribution import CELLS, BinnedReports, WindowReports, report_bins
from hybridp.public.shares import NoisyCounts

__all__ = ["Blended", "Known", "Seen", "Shape", "SharesBelow", "answers_seen", "blended", "counts_seen", "finer", "fit"]
__all__ += ["gini", "reports_seen", "shares_seen", "variance"]

Floats = NDArray[np.float64]

WITHIN = 32
"""Cells of a window, at least, where there are few."""
_EXTRA = 288  # cells of all windows together, about: fitting takes time that grows with the cube of all cells
_FINEST = 20  # cells are powers of 1/2 of the range, down to this one


@dataclass(frozen=True, eq=False, slots=True)
class Seen:
    """Numbers whose mean is ``matrix @ F``, and the inverse of their covariance."""

    matrix: Floats
    values: Floats
    precision: Floats


def finer(windows: Sequence[tuple[float, float]], cells: int = CELLS) -> Floats:
    """The ends of even cells over the range, and of `WITHIN` in each window (in shares of the range) that is narrow.

    Where there are many windows, of fewer.
    """
    ends = [np.linspace(0.0, 1.0, cells + 1)]
    within = min(WITHIN, max(_EXTRA // max(len(windows), 1), 4))
    for low, high in windows:
        width = 0.5 ** min(max(math.ceil(math.log2(within / (high - low))), 0), _FINEST)
        if width >= 1 / cells:
            continue
        first, last = math.floor(low / width), math.ceil(high / width)
        places = np.arange(max(first, 0), min(last, round(1 / width)) + 1)
        ends.append(np.asarray(places * width, dtype=np.float64))
    return np.unique(np.concatenate(ends))


def answers_seen(told: WindowReports, ends: Floats) -> Seen:
    """Answers to random thresholds within a window: each bin of them tells the mean of F over its stretch.

    The share of answers "above" is ``q + (1 - 2q)(1 - F)``, q being the probability of a flip.
    """
    kept = told.people_by_bin > 0
    n, above = told.people_by_bin[kept].astype(np.float64), told.above[kept]
    q = told.flip
    overall = float(above.sum() / n.sum())
    variance = max(overall * (1 - overall), q * (1 - q)) / (1 - 2 * q) ** 2 / n
    at = np.linspace(*told.window, len(told.above) + 1)
    low, high = at[:-1][kept], at[1:][kept]
    matrix = (_areas(high, ends) - _areas(low, ends)) / (high - low)[:, None]
    return Seen(matrix, 1 - (above / n - q) / (1 - 2 * q), np.diag(1 / variance))


def _areas(places: Floats, ends: Floats) -> Floats:
    """The area below F from 0 to each place, as a row of weights of F at the ends."""
    width = np.diff(ends)
    cell = np.clip(np.searchsorted(ends, places, side="right") - 1, 0, len(width) - 1)
    t = (places - ends[cell]) / width[cell]
    before = np.arange(len(width)) < cell[:, None]
    full = np.where(before, width / 2, 0.0)
    rows = np.zeros((len(places), len(ends)))
    rows[:, :-1] += full
    rows[:, 1:] += full
    at = np.arange(len(places))
    rows[at, cell] += width[cell] * (t - t**2 / 2)
    rows[at, cell + 1] += width[cell] * t**2 / 2
    return rows


def reports_seen(told: BinnedReports, cells: int, ends: Floats | None = None) -> Seen:
    """Shares of reports by bin. They are close to independent: there are many bins."""
    bins, n = report_bins(told.randomiser, cells), told.people
    must(len(told.counts) == bins.size, "reports", f"must be counted in {bins.size} bins", len(told.counts))
    step = bins.matrix  # a column for each increment of F
    matrix = np.zeros((bins.size, cells + 1))
    matrix[:, 1:] += step
    matrix[:, :-1] -= step
    matrix[:, 0] += step[:, 0]  # people at the lower bound itself lie in the first cell,
    matrix[:, -1] -= step[:, -1]  # and whoever is not below the last cell's lower end lies in it
    seen = told.counts / n
    spread = np.maximum(seen, np.maximum(step.mean(axis=1), 1e-9) / 3)  # a bin with no report is not known exactly
    if ends is not None:  # the ends of even cells are among them
        wide = np.zeros((bins.size, len(ends)))
        wide[:, np.searchsorted(ends, np.linspace(0.0, 1.0, cells + 1))] = matrix
        matrix = wide
    return Seen(matrix, seen - step[:, -1], np.diag(n / spread))


def counts_seen(told: NoisyCounts, places: Sequence[float], pilot: Shape) -> Seen:
    """The shares of trusted people at or below places of the range, from noisy counts between them."""
    one = told.noise.mechanism.variance / told.noise.steps**2
    return shares_seen([SharesBelow(np.cumsum(told.shares)[:-1], tuple(places), told.people, one)], pilot)


def shares_seen(parts: Sequence[SharesBelow], pilot: Shape) -> Seen:
    """What trusted people say, of whom everybody was counted in every part: one sample, and noise of each part's own.

    Sampling: ``F(a)(1 - F(b))/k`` for a <= b, at a pilot of F, whatever parts a and b belong to. Noise: that of the
    counts between places, added up.
    """
    k = parts[0].people
    places = np.concatenate([one.places for one in parts])
    at = np.clip(np.interp(places, pilot.ends, pilot.monotone), 0.5 / k, 1 - 0.5 / k)
    spread = np.minimum.outer(at, at) * (1 - np.maximum.outer(at, at)) / k
    start = 0
    for one in parts:
        m, end = len(one.places) + 1, start + len(one.places)
        add = np.tril(np.ones((m - 1, m)))
        drawn = np.array([[1.0]]) if m == 2 else add @ (np.eye(m) - 1 / m) @ add.T
        spread[start:end, start:end] += drawn * one.noise / k**2
        start = end
    matrix = np.array([pilot.row(place) for place in places.tolist()])
    return Seen(matrix, np.concatenate([one.shares for one in parts]), np.linalg.inv(spread))


@dataclass(frozen=True, eq=False, slots=True)
class SharesBelow:
    """Shares of trusted people at or below places of the range, from counts between them with this noise each."""

    shares: Floats
    places: tuple[float, ...]
    people: int
    noise: float


@dataclass(frozen=True, eq=False, slots=True)
class Known:
    """Everything that was told so far, all of it public: trusted counts, reports of a mean, answers within windows."""

    counted: tuple[SharesBelow, ...] = ()
    reports: BinnedReports | None = None
    answered: tuple[WindowReports, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Blended:
    """F by everybody, by trusted people alone, by local people alone; and what the counts say, place by place."""

    both: Shape
    trusted: Shape | None
    local: Shape | None
    counted: Seen | None


def blended(known: Known, *, alone: bool = True) -> Blended:
    """One distribution function from everything that is known, told finely where people were asked.

    What each group says `alone` may be left out.
    """
    ends = finer([*(one.window for one in known.answered), *_looked(known.counted)])
    told = [] if known.reports is None else [reports_seen(known.reports, CELLS, ends)]
    told += [answers_seen(one, ends) for one in known.answered if one.people]
    local = fit(told, ends) if told and alone else None

    counted = None
    if known.counted:  # how much a count varies by sampling is told by a pilot of F
        pilot = fit([shares_seen(known.counted, Shape.known(ends=ends)), *told], ends)
        counted = shares_seen(known.counted, pilot)
    heard = [] if counted is None else [counted]
    own = fit(heard, ends) if heard and alone else None
    return Blended(fit([*heard, *told], ends), own, local, counted)


def _looked(counted: Sequence[SharesBelow]) -> list[tuple[float, float]]:
    """Where trusted people were counted between places that are close to each other, as around a quantile."""
    found: list[tuple[float, float]] = []
    for one in counted:
        near = [pair for pair in pairwise(one.places) if pair[1] - pair[0] < 0.75 / CELLS]
        for low, high in near:
            if found and low <= found[-1][1]:
                found[-1] = (found[-1][0], high)
            else:
                found.append((low, high))
    return found


@dataclass(frozen=True, eq=False, slots=True)
class Shape:
    """F at the ends of the cells, from the lower bound (0) to the upper (1), and the covariance of its error."""

    mean: Floats
    covariance: Floats
    ends: Floats = field(default_factory=lambda: np.linspace(0.0, 1.0, CELLS + 1))

    @classmethod
    def known(cls, mean: Floats | None = None, ends: Floats | None = None) -> Shape:
        """A distribution function without error; that of numbers that are spread evenly unless one is given."""
        places = np.linspace(0.0, 1.0, CELLS + 1) if ends is None else ends
        return cls(places if mean is None else mean, np.zeros((len(places), len(places))), places)

    @property
    def cells(self) -> int:
        return len(self.mean) - 1

    @property
    def sd(self) -> Floats:
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))

    @property
    def monotone(self) -> Floats:
        """F as a distribution function: never falling, between 0 and 1, and 1 at the upper bound."""
        found = _isotonic(np.clip(self.mean, 0.0, 1.0))
        found[-1] = 1.0
        return found

    def below(self, place: float) -> tuple[float, float]:
        """The share of people at or below a place between 0 and 1 of the range, and its standard error."""
        row = self.row(place)
        value = float(np.interp(place, self.ends, self.monotone))
        return value, math.sqrt(max(float(row @ self.covariance @ row), 0.0))

    def between(self, low: float | None, high: float | None) -> tuple[float, float]:
        """The share of people above one place and at or below another, and its standard error; None is no limit."""
        first, last = (None if place is None else self.row(place) for place in (low, high))
        row = (0.0 if last is None else last) - (np.zeros(self.cells + 1) if first is None else first)
        f = self.monotone
        value = (1.0 if last is None else float(last @ f)) - (0.0 if first is None else float(first @ f))
        return max(value, 0.0), self._error(np.asarray(row))

    def row(self, place: float) -> Floats:
        """F at a place, linear within cells, as a row of a matrix."""
        at = min(max(place, 0.0), 1.0)
        low = min(int(np.searchsorted(self.ends, at, side="right")) - 1, self.cells - 1)
        part = (at - self.ends[low]) / (self.ends[low + 1] - self.ends[low])
        row = np.zeros(self.cells + 1)
        row[low], row[low + 1] = 1 - part, part
        return row

    def quantile(self, share: float) -> float:
        """The place, between 0 and 1 of the range, below which this share of people lies."""
        return _inverse(self.monotone, share, self.ends)

    def moments(self) -> dict[str, tuple[float, float]]:
        """Mean and variance of where people lie (0 to 1 of the range), each with its standard error.

        That of the variance is that of its differential.
        """
        weights, f = _trapezoid(self.ends), self.monotone
        spread, slope = variance(self.ends, f)
        return {
            "mean": (1 - float(weights @ f), self._error(weights)),
            "variance": (max(spread, 0.0), self._error(slope)),
        }

    def gini(self, origin: float) -> tuple[float, float]:
        """Gini's coefficient of numbers counted from `origin` (in ranges below the lower bound), and its error."""
        found, slope = gini(self.ends, self.monotone, origin)
        return found, self._error(slope)

    def _error(self, weights: Floats) -> float:
        return math.sqrt(max(float(weights @ self.covariance @ weights), 0.0))


def variance(ends: Floats, f: Floats) -> tuple[float, Floats]:
    """``E[p^2] - E[p]^2`` of where people lie, and its slope in F; ``E[p] = 1 - int F``, ``E[p^2] = 1 - 2 int p F``."""
    weights = _trapezoid(ends)
    mean, square = 1 - float(weights @ f), 1 - 2 * float((weights * ends) @ f)
    return square - mean**2, 2 * weights * (mean - ends)


def gini(ends: Floats, f: Floats, origin: float) -> tuple[float, Floats]:
    """``int F (1 - F) / mean`` and its slope in F, the mean counted from `origin` (in ranges below the lower bound)."""
    weights = _trapezoid(ends)
    mean = max(origin + 1 - float(weights @ f), 1e-9)
    found = float(weights @ (f * (1 - f))) / mean
    return found, weights * ((1 - 2 * f) + found) / mean


def _trapezoid(ends: Floats) -> Floats:
    half = np.diff(ends) / 2
    return np.asarray(np.pad(half, (0, 1)) + np.pad(half, (1, 0)))


def _inverse(f: Floats, share: float, ends: Floats) -> float:
    """Where a function that does not fall, linear within cells, reaches a value first."""
    after = int(np.searchsorted(f, share, side="left"))
    if after == 0:
        return 0.0
    part = (share - f[after - 1]) / (f[after] - f[after - 1])
    return float(ends[after - 1] + part * (ends[after] - ends[after - 1]))


def _isotonic(y: Floats) -> Floats:
    """The nearest values that never fall (pool adjacent violators)."""
    means: list[float] = []
    sizes: list[int] = []
    for value in y.tolist():
        means.append(value)
        sizes.append(1)
        while len(means) > 1 and means[-2] > means[-1]:
            size = sizes[-2] + sizes[-1]
            means[-2:] = [(means[-2] * sizes[-2] + means[-1] * sizes[-1]) / size]
            sizes[-2:] = [size]
    return np.repeat(np.array(means), sizes)


_STIFF = 1e14  # a walk of smaller steps than that is a straight line as far as doubles tell
_WALKS = ((1, np.geomspace(1e-4, 0.5, 12)), (2, np.geomspace(1e-6, 0.3, 14)))


def fit(seen: Sequence[Seen], cells: int | Floats) -> Shape:
    """The distribution function that everything seen speaks for, with the covariance of its error.

    It is told at the ends of so many even cells, or at these ends.

    The estimate is averaged over both walks. Its error is that of the first, which minds lumps, beside the distance of
    the two: where F is smooth, as it often is, that is more than the error.
    """
    ends = np.linspace(0.0, 1.0, cells + 1) if isinstance(cells, int) else cells
    info = np.zeros((len(ends), len(ends)))
    score = np.zeros(len(ends))
    for one in seen:
        half = one.matrix.T @ one.precision
        info += half @ one.matrix
        score += half @ one.values
    info[0, 0] += 100.0  # people at the lower bound itself: hardly any, give or take a tenth, unless people say so
    # Around the straight line that suits what was seen, weakly held to the one from 0 to 1: walks have no drift.
    line = np.stack([np.ones(len(ends)), ends], axis=1)
    suits = np.linalg.solve(line.T @ info @ line + np.eye(2), line.T @ score + np.array([0.0, 1.0]))
    start = line @ suits
    score -= info @ start
    lumpy, smooth = (_walked(order, sizes, info, score, ends) for order, sizes in _WALKS)
    # For the error, steps vary by as much as they are large, at least: where little is known, a straight line is not.
    allowed = [one for one in lumpy if one.size >= 1 / CELLS]
    rough, both = _mean(allowed), _mean([*lumpy, *smooth])
    apart = both - rough
    return Shape(start + both, _covariance(allowed, rough) + np.outer(apart, apart), ends)


@dataclass(frozen=True, eq=False, slots=True)
class _Walk:
    """What is believed of F, less a straight line, under one size of steps, and how well it explains what was seen."""

    size: float
    evidence: float
    mean: Floats
    root: Floats


def _walked(order: int, sizes: Floats, info: Floats, score: Floats, ends: Floats) -> list[_Walk]:
    """The walks of these sizes, which are those of steps of one even cell: over h of a cell a step varies by size^2 h,
    and a slope, which is a step divided by h, likewise."""
    count, widths = len(ends), np.diff(ends) * CELLS
    steps = np.diff(np.eye(count), axis=0)
    if order == 1:
        steps /= np.sqrt(widths)[:, None]
    else:
        steps = np.diff(steps / widths[:, None], axis=0) / np.sqrt((widths[:-1] + widths[1:]) / 2)[:, None]
    rough, loose = steps.T @ steps, np.zeros((count, count))
    stiffest = float(np.diag(rough).max())
    loose[0, 0] = 1.0  # F at the lower bound: anywhere
    loose[-1, -1] = 1.0  # and just below the upper one: whoever lies beyond is clipped to it, and may be many
    if order == 2:
        first = np.diff(np.eye(count), axis=0)[0] / widths[0]
        loose += np.outer(first, first) * (CELLS / 10) ** 2
    bands = [np.array([np.pad(np.diag(part, -i), (0, i)) for i in range(order + 1)]) for part in (rough, loose)]
    found = []
    for size in sizes[sizes**2 >= min(stiffest / _STIFF, sizes[-1] ** 2)].tolist():
        band = bands[0] / size**2 + bands[1]
        try:
            root = cholesky(rough / size**2 + loose + info, lower=True, check_finite=False)
            before = float(np.log(cholesky_banded(band, lower=True, check_finite=False)[0]).sum())
        except np.linalg.LinAlgError:  # many places close together: too stiff for doubles after all
            continue
        mean = cho_solve((root, True), score, check_finite=False)
        evidence = before - float(np.log(np.diag(root)).sum()) + float(score @ mean) / 2
        found.append(_Walk(size, evidence, mean, root))
    return found


def _weighted(found: Sequence[_Walk]) -> list[tuple[float, _Walk]]:
    """Walks weighted by their evidence, without those that hardly count."""
    best = max(one.evidence for one in found)
    told = [one for one in found if one.evidence > best - 12]
    weights = np.array([math.exp(one.evidence - best) for one in told])
    return list(zip((weights / weights.sum()).tolist(), told, strict=True))


def _mean(found: Sequence[_Walk]) -> Floats:
    """Over all sizes of steps."""
    return np.asarray(np.sum([weight * one.mean for weight, one in _weighted(found)], axis=0))


def _covariance(found: Sequence[_Walk], mean: Floats) -> Floats:
    """Over all sizes of steps: of each, and among them."""
    covariance = np.zeros((len(mean), len(mean)))
    for weight, one in _weighted(found):
        own = dpotri(one.root, lower=1)[0]
        own = np.tril(own) + np.tril(own, -1).T
        covariance += weight * (own + np.outer(one.mean - mean, one.mean - mean))
    return covariance
