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
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cholesky, solve_triangular

from hybridp.errors import must
from hybridp.public.distribution import CELLS, BinnedReports, WindowReports, report_bins, report_ends, report_rows
from hybridp.public.lattice import Floats
from hybridp.public.randomisers import WORD, DitheredBit
from hybridp.public.shares import NoisyCounts

__all__ = ["Blended", "Known", "Seen", "Shape", "SharesBelow", "answers_seen", "blended", "counts_seen", "finer", "fit"]
__all__ += ["gini", "means_over", "reports_seen", "seen_below", "shares_seen", "variance"]


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


def answers_seen(
    told: WindowReports, ends: Floats, *, jumps: bool = False, means: Floats | None = None, pilot: Floats | None = None
) -> Seen:
    """Answers to random thresholds within a window: each bin of them tells the mean of F over its stretch.

    The share of answers "above" is ``q + (1 - 2q)(1 - F)``, q being the probability of a flip. `means` are the bins'
    means of F where F is not told at the `ends`; a `pilot` of F tells how much answers vary.
    """
    edges = np.linspace(*told.window, len(told.above) + 1)
    rows = means_over(edges, ends, jumps=jumps) if means is None else means
    return _bits_seen(told.above, told.people_by_bin, told.flip, rows, pilot)


def _bits_seen(above: NDArray[np.int64], people: NDArray[np.int64], q: float, means: Floats, pilot: Any) -> Seen:
    kept = people > 0
    n, said = people[kept].astype(np.float64), above[kept]
    rows = means[kept]
    often = said.sum() / n.sum() if pilot is None else q + (1 - 2 * q) * (1 - rows @ pilot)
    variance = np.maximum(often * (1 - often), q * (1 - q)) / (1 - 2 * q) ** 2 / n
    return Seen(rows, 1 - (said / n - q) / (1 - 2 * q), np.diag(1 / variance))


def means_over(edges: Floats, ends: Floats, *, jumps: bool = False) -> Floats:
    """The means of F between edges, as rows of weights of F at the ends, between which it is linear, or stays."""
    return np.asarray(np.diff(_areas(edges, ends, jumps), axis=0) / np.diff(edges)[:, None])


def _areas(places: Floats, ends: Floats, jumps: bool) -> Floats:
    """The area below F from 0 to each place, as a row of weights of F at the ends."""
    width = np.diff(ends)
    cell = np.clip(np.searchsorted(ends, places, side="right") - 1, 0, len(width) - 1)
    t = (places - ends[cell]) / width[cell]
    later = np.zeros_like(t) if jumps else t**2 / 2
    before = np.where(np.arange(len(width)) < cell[:, None], width, 0.0)
    rows = np.zeros((len(places), len(ends)))
    rows[:, :-1] += before if jumps else before / 2
    rows[:, 1:] += 0.0 if jumps else before / 2
    at = np.arange(len(places))
    rows[at, cell] += width[cell] * (t - later)
    rows[at, cell + 1] += width[cell] * later
    return rows


def reports_seen(
    told: BinnedReports,
    cells: int,
    ends: Floats | None = None,
    *,
    jumps: bool = False,
    means: Floats | None = None,
    pilot: Floats | None = None,
) -> Seen:
    """What reports of a mean tell of the means of F over even cells: of the dithered bit answers within the range.

    Others are seen as shares of reports by bin, which are close to independent: there are many bins.
    """
    size = report_bins(told.randomiser, cells).size
    must(len(told.counts) == size, "reports", f"must be counted in {size} bins", len(told.counts))
    even, between = np.linspace(0.0, 1.0, cells + 1), report_ends(told.randomiser, cells)
    rows = means_over(between, even if ends is None else ends, jumps=jumps) if means is None else means
    if isinstance(told.randomiser, DitheredBit):
        below, above = told.counts[:cells], told.counts[cells:]
        return _bits_seen(above, below + above, told.randomiser.flips / WORD, rows, pilot)
    at, seen = report_rows(told.randomiser, cells), told.counts / told.people
    matrix = (at[:, :-1] - at[:, 1:]) @ rows
    near = np.convolve(np.pad(seen, 4, mode="edge"), np.full(9, 1 / 9), "valid")  # chance must not choose the weights
    likely = near if pilot is None else matrix @ pilot + at[:, -1]
    spread = np.maximum(likely, np.maximum(at.mean(axis=1), 1e-9) / 3)
    return Seen(matrix, seen - at[:, -1], np.diag(told.people / spread))


def counts_seen(told: NoisyCounts, places: Sequence[float], pilot: Shape) -> Seen:
    """The shares of trusted people at or below places of the range, from noisy counts between them."""
    one = told.noise.mechanism.variance / told.noise.steps**2
    return shares_seen([SharesBelow(np.cumsum(told.shares)[:-1], tuple(places), told.people, one)], pilot)


def shares_seen(parts: Sequence[SharesBelow], pilot: Shape) -> Seen:
    """What trusted people say, where F is told at the ends of a pilot."""
    rows = np.array([pilot.row(place) for one in parts for place in one.places])
    return seen_below(parts, rows, pilot.monotone)


def seen_below(parts: Sequence[SharesBelow], matrix: Floats, pilot: Floats) -> Seen:
    """What trusted people say, of whom everybody was counted in every part: one sample, and noise of each part's own.

    Sampling: ``F(a)(1 - F(b))/k`` for a <= b, at a pilot of F, whatever parts a and b belong to. Noise: that of the
    counts between places, added up.
    """
    k = parts[0].people
    at = np.clip(matrix @ pilot, 0.5 / k, 1 - 0.5 / k)
    spread = np.minimum.outer(at, at) * (1 - np.maximum.outer(at, at)) / k
    start = 0
    for one in parts:
        m, end = len(one.places) + 1, start + len(one.places)
        add = np.tril(np.ones((m - 1, m)))
        drawn = np.array([[1.0]]) if m == 2 else add @ (np.eye(m) - 1 / m) @ add.T
        spread[start:end, start:end] += drawn * one.noise / k**2
        start = end
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
    """Everything that was told so far, all of it public: trusted counts, reports of a mean, answers within windows.

    `trusted` is the share of people who trust, where groups may differ and each counts by its number of people; None
    takes them for alike. Where all numbers are whole steps from the lower bound on, `atoms` are their places.
    """

    counted: tuple[SharesBelow, ...] = ()
    reports: BinnedReports | None = None
    answered: tuple[WindowReports, ...] = ()
    trusted: float | None = None
    atoms: tuple[float, ...] = ()

    @property
    def apart(self) -> bool:
        """Whether there are two groups that may differ."""
        local = self.reports is not None or any(one.people for one in self.answered)
        return self.trusted is not None and bool(self.counted) and local


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
    jumps = bool(known.atoms)
    ends = finer([*(one.window for one in known.answered), *_looked(known.counted)])
    close = [place for one in known.counted for place in one.places if min(place, 1 - place) < 1 / CELLS]
    ends = np.array(known.atoms) if jumps else np.union1d(ends, close)
    how: dict[str, Any] = {"jumps": jumps, "clock": _clock(known.counted, ends)}
    told = [] if known.reports is None else [reports_seen(known.reports, CELLS, ends, jumps=jumps)]
    told += [answers_seen(one, ends, jumps=jumps) for one in known.answered if one.people]
    local = fit(told, ends, **how) if told and (alone or known.apart) else None

    counted = None
    if known.counted:  # how much a count varies by sampling is told by a pilot of F
        first = shares_seen(known.counted, Shape.known(ends=ends, jumps=jumps))
        counted = shares_seen(known.counted, fit([first, *([] if known.apart else told)], ends, **how))
    heard = [] if counted is None else [counted]
    own = fit(heard, ends, **how) if heard and (alone or known.apart) else None
    if known.apart and known.trusted is not None and own is not None and local is not None:
        return Blended(own.mixed(local, known.trusted), own, local, counted)
    return Blended(fit([*heard, *told], ends, **how), own, local, counted)


def _clock(counted: Sequence[SharesBelow], ends: Floats) -> Floats | None:
    """Half by the range, half by where trusted people were counted, if many are within a small part of the range."""
    if not counted:
        return None
    seen = sorted(pair for one in counted for pair in zip(one.places, one.shares.tolist(), strict=True))
    places, shares = np.array(seen).T
    rises = _isotonic(np.clip(shares, 0.0, 1.0))

    def below(at: Floats) -> Floats:
        return np.asarray(np.interp(at, [0.0, *places, 1.0], [0.0, *rises, 1.0]))

    crowded = np.diff(below(np.linspace(0.0, 1.0, CELLS // 2 + 1))).max() > 0.2
    return np.asarray((ends + below(ends)) / 2) if crowded else None


def _looked(counted: Sequence[SharesBelow]) -> list[tuple[float, float]]:
    """Where trusted people were counted between places that are close to each other, as around a quantile."""
    result: list[tuple[float, float]] = []
    pairs = sorted(pair for one in counted for pair in pairwise(one.places))
    for low, high in (pair for pair in pairs if pair[1] - pair[0] < 0.75 / CELLS):
        if result and low <= result[-1][1]:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result


@dataclass(frozen=True, eq=False, slots=True)
class Shape:
    """F at the ends of the cells, from the lower bound (0) to the upper (1), and the covariance of its error."""

    mean: Floats
    covariance: Floats
    ends: Floats = field(default_factory=lambda: np.linspace(0.0, 1.0, CELLS + 1))
    jumps: bool = False
    """Whether F stays between two ends, where people are, or is linear."""

    @classmethod
    def known(cls, mean: Floats | None = None, ends: Floats | None = None, *, jumps: bool = False) -> Shape:
        """A distribution function without error; that of numbers that are spread evenly unless one is given."""
        places = np.linspace(0.0, 1.0, CELLS + 1) if ends is None else ends
        return cls(places if mean is None else mean, np.zeros((len(places), len(places))), places, jumps)

    def mixed(self, other: Shape, share: float) -> Shape:
        """That of this share of people of one group and the rest of another, told at the same ends."""
        mean = share * self.mean + (1 - share) * other.mean
        covariance = share**2 * self.covariance + (1 - share) ** 2 * other.covariance
        return Shape(mean, covariance, self.ends, self.jumps)

    @property
    def cells(self) -> int:
        return len(self.mean) - 1

    @property
    def sd(self) -> Floats:
        return np.asarray(np.sqrt(np.maximum(np.diag(self.covariance), 0.0)))

    @property
    def monotone(self) -> Floats:
        """F as a distribution function: never falling, between 0 and 1, and 1 at the upper bound."""
        result = _isotonic(np.clip(self.mean, 0.0, 1.0))
        result[-1] = 1.0
        return result

    def below(self, place: float) -> tuple[float, float]:
        """The share of people at or below a place between 0 and 1 of the range, and its standard error."""
        row = self.row(place)
        value = float(row @ self.monotone)
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
        part = math.floor(part) if self.jumps else part
        row = np.zeros(self.cells + 1)
        row[low], row[low + 1] = 1 - part, part
        return row

    def quantile(self, share: float) -> float:
        """The place, between 0 and 1 of the range, below which this share of people lies."""
        f = self.monotone
        return float(self.ends[np.searchsorted(f, share)]) if self.jumps else _inverse(f, share, self.ends)

    def moments(self) -> dict[str, tuple[float, float]]:
        """Mean and variance of where people lie (0 to 1 of the range), each with its standard error.

        That of the variance is that of its differential.
        """
        weights, squares = self._weights
        f = self.monotone
        spread, slope = variance(weights, squares, f)
        return {
            "mean": (1 - float(weights @ f), self._error(weights)),
            "variance": (max(spread, 0.0), self._error(slope)),
        }

    def gini(self, origin: float) -> tuple[float, float]:
        """Gini's coefficient of numbers counted from `origin` (in ranges below the lower bound), and its error."""
        result, slope = gini(self._weights[0], self.monotone, origin)
        return result, self._error(slope)

    @property
    def _weights(self) -> tuple[Floats, Floats]:
        """Of F at the ends in ``int F`` and in ``int 2 p F``."""
        if self.jumps:
            return np.append(np.diff(self.ends), 0.0), np.append(np.diff(self.ends**2), 0.0)
        return _trapezoid(self.ends), 2 * _trapezoid(self.ends) * self.ends

    def _error(self, weights: Floats) -> float:
        return math.sqrt(max(float(weights @ self.covariance @ weights), 0.0))


def variance(weights: Floats, squares: Floats, f: Floats) -> tuple[float, Floats]:
    """``E[p^2] - E[p]^2`` of where people lie, and its slope in F; ``E[p] = 1 - int F``, ``E[p^2] = 1 - int 2 p F``.

    Both integrals are told as weights of F.
    """
    mean, square = 1 - float(weights @ f), 1 - float(squares @ f)
    return square - mean**2, 2 * weights * mean - squares


def gini(weights: Floats, f: Floats, origin: float) -> tuple[float, Floats]:
    """``int F (1 - F) / mean`` and its slope in F, the mean counted from `origin` (in ranges below the lower bound)."""
    mean = max(origin + 1 - float(weights @ f), 1e-9)
    result = float(weights @ (f * (1 - f))) / mean
    return result, weights * ((1 - 2 * f) + result) / mean


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


_WALKS = ((1, np.geomspace(1e-4, 0.5, 12)), (2, np.geomspace(1e-6, 0.3, 14)))


def fit(seen: Sequence[Seen], cells: int | Floats, *, jumps: bool = False, clock: Floats | None = None) -> Shape:
    """The distribution function that everything seen speaks for, with the covariance of its error.

    It is told at the ends of so many even cells, or at these ends. A walk takes its steps by a `clock`, that of the
    range unless another one, which rises from 0 to 1 at the ends, says where people are.

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
    if not jumps:  # people at the lower bound itself: hardly any, give or take a tenth, unless people say so
        info[0, 0] += 100.0
    time = ends if clock is None else clock
    # Around the straight line that suits what was seen, weakly held to the one from 0 to 1: walks have no drift.
    line = np.stack([np.ones(len(ends)), time], axis=1)
    suits = np.linalg.solve(line.T @ info @ line + np.eye(2), line.T @ score + np.array([0.0, 1.0]))
    start = line @ suits
    score -= info @ start
    lumpy = _walked(*_WALKS[0], info, score, time)
    smooth = _walked(*_WALKS[1], info, score, time) if len(ends) > 3 else []
    # For the error, steps vary by as much as they are large, at least: where little is known, a straight line is not.
    allowed = [one for one in lumpy if one.size >= 1 / CELLS]
    rough, both = _mean(allowed), _mean([*lumpy, *smooth])
    apart = both - rough
    return Shape(start + both, _covariance(allowed, rough) + np.outer(apart, apart), ends, jumps)


@dataclass(frozen=True, eq=False, slots=True)
class _Walk:
    """What is believed of F, less a straight line, under one size of steps, and how well it explains what was seen.

    Its error is ``steps' inv(root root') steps``: a walk's steps, each by its own size, and what they became.
    """

    size: float
    evidence: float
    mean: Floats
    steps: Floats
    root: Floats


def _walked(order: int, sizes: Floats, info: Floats, score: Floats, ends: Floats) -> list[_Walk]:
    """The walks of these sizes, which are those of steps of one even cell: over h of a cell a step varies by size^2 h,
    and a slope, which is a step divided by h, likewise.

    A walk is told by its steps, which are independent and of size 1: what is solved is 1 plus what was seen of them,
    and hardly depends on how doubles are rounded, however small the steps are.
    """
    widths, place = np.diff(ends) * CELLS, (ends - ends[0]) * CELLS
    start = np.ones((1, len(ends)))  # F at the lower bound: anywhere
    if order == 1:
        steps = np.sqrt(widths)[:, None] * (np.arange(len(ends)) > np.arange(len(widths))[:, None])
    else:
        start = np.stack([start[0], place * (10 / CELLS)])  # and the first slope
        steps = np.sqrt((widths[:-1] + widths[1:]) / 2)[:, None] * np.maximum(place - place[1:-1, None], 0.0)
    basis = np.concatenate([start, steps])
    last = basis[:, -1]  # F just below the upper bound: anywhere, since who lies beyond is clipped to it, maybe many
    seen = basis @ (info + info.T) @ basis.T / 2 + np.outer(last, last)
    told, result = basis @ score, []
    for size in sizes.tolist():
        scale = np.concatenate([np.ones(len(start)), np.full(len(steps), size)])
        root = cholesky(seen * np.outer(scale, scale) + np.eye(len(scale)), lower=True, check_finite=False)
        half = solve_triangular(root, scale * told, lower=True, check_finite=False)
        mean = (scale * solve_triangular(root, half, lower=True, trans=1, check_finite=False)) @ basis
        free = math.log1p(float(np.square(scale * last).sum())) / 2
        evidence = free - float(np.log(np.diag(root)).sum()) + float(half @ half) / 2
        result.append(_Walk(size, evidence, mean, scale[:, None] * basis, root))
    return result


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
        half = solve_triangular(one.root, one.steps, lower=True, check_finite=False)
        covariance += weight * (half.T @ half + np.outer(one.mean - mean, one.mean - mean))
    return covariance
