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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
from scipy.linalg import block_diag, cholesky, solve_triangular

from hybridp.public.distribution import CELLS, BinnedReports, chances_at
from hybridp.public.randomisers import WORD, DitheredBit, Floats
from hybridp.public.shares import NoisyCounts

if TYPE_CHECKING:
    from hybridp.blend.plausible import Ladder

__all__ = ["Blended", "Evidence", "Grid", "Seen", "Shape", "SharesBelow", "blended", "counts_seen", "finer", "fit"]
__all__ += ["gini", "joined_windows", "reports_seen", "variance"]


WITHIN = 32
"""Cells of a window, at least, where there are few."""
_EXTRA = 288  # cells of all windows together, about: fitting takes time that grows with the cube of all cells
_FINEST = 20  # cells are powers of 1/2 of the range, down to this one


# --- what was told ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class SharesBelow:
    """Shares of trusted people at or below places of the range, from counts between them with this noise each."""

    shares: Floats
    places: tuple[float, ...]
    people: int
    noise: float
    counts: NoisyCounts | None = None

    @classmethod
    def of(cls, counts: NoisyCounts, places: tuple[float, ...]) -> SharesBelow:
        noise = counts.noise.mechanism.variance / counts.noise.steps**2
        return cls(np.cumsum(counts.shares)[:-1], places, counts.people, noise, counts)


@dataclass(frozen=True, eq=False, slots=True)
class Evidence:
    """Everything that was told so far, all of it public: trusted counts, reports of a mean, answers within windows.

    Unless the groups are taken for `alike`, each counts by its number of people. Where all numbers are whole steps from
    the lower bound on, `atoms` are their places.
    """

    counted: tuple[SharesBelow, ...] = ()
    reports: BinnedReports | None = None
    answered: tuple[BinnedReports, ...] = ()
    trusted: int = 0
    alike: bool = True
    atoms: tuple[float, ...] = ()

    @property
    def local(self) -> int:
        return sum(one.people for one in (self.reports, *self.answered) if one is not None)

    @property
    def released(self) -> list[tuple[tuple[float, ...], NoisyCounts]]:
        """The counts as they left the curator, and the places between which they are."""
        return [(one.places, one.counts) for one in self.counted if one.counts is not None]

    @property
    def share(self) -> float:
        return self.trusted / max(self.trusted + self.local, 1)

    @property
    def apart(self) -> bool:
        """Whether there are two groups that may differ."""
        return not self.alike and bool(self.counted) and self.local > 0


def joined_windows(windows: Iterable[tuple[float, float]]) -> list[tuple[float, float]]:
    """Windows in rising order, as one where they meet."""
    result: list[tuple[float, float]] = []
    for low, high in sorted(windows):
        if result and low <= result[-1][1]:
            result[-1] = (result[-1][0], max(high, result[-1][1]))
        else:
            result.append((low, high))
    return result


def finer(windows: Sequence[tuple[float, float]]) -> Floats:
    """The ends of even cells over the range, and of `WITHIN` in each window (in shares of the range) that is narrow.

    Where there are many windows, of fewer.
    """
    ends = [np.linspace(0.0, 1.0, CELLS + 1)]
    within = min(WITHIN, max(_EXTRA // max(len(windows), 1), 4))
    for low, high in windows:
        width = 0.5 ** min(max(math.ceil(math.log2(within / (high - low))), 0), _FINEST)
        if width < 1 / CELLS:
            first, last = max(math.floor(low / width), 0), min(math.ceil(high / width), round(1 / width))
            ends.append(np.asarray(np.arange(first, last + 1) * width, dtype=np.float64))
    return np.unique(np.concatenate(ends))


# --- what that says of F, which is linear in it -----------------------------------------------------------------------


Grid: TypeAlias = "Shape | Ladder"
"""Numbers by which F is told, at the `ends` of cells from the lower bound (0) to the upper (1)."""


@dataclass(frozen=True, eq=False, slots=True)
class Seen:
    """Numbers whose mean is ``matrix @ F``, and the inverse of their covariance."""

    matrix: Floats
    values: Floats
    precision: Floats


def reports_seen(told: BinnedReports, grid: Grid, pilot: Floats | None = None) -> Seen:
    """What reports tell of the means of F; a `pilot` of F tells how much they vary.

    Of the dithered bit each bin of thresholds tells its own: the share of answers "above" is ``q + (1 - 2q)(1 - F)``, q
    being the probability of a flip. Others are seen as shares by bin, which are close to independent: there are many.
    """
    rows = grid.means(told.edges)
    if isinstance(told.randomiser, DitheredBit):
        below, above = told.counts.reshape(2, -1)
        kept, q = below + above > 0, told.randomiser.flips / WORD
        n, said, rows = (below + above)[kept].astype(np.float64), above[kept], rows[kept]
        often = said.sum() / n.sum() if pilot is None else q + (1 - 2 * q) * (1 - rows @ pilot)
        variance = np.maximum(often * (1 - often), q * (1 - q)) / (1 - 2 * q) ** 2 / n
        return Seen(rows, 1 - (said / n - q) / (1 - 2 * q), np.diag(1 / variance))
    at, seen = chances_at(told.randomiser, told.edges), told.counts / told.people
    matrix = (at[:, :-1] - at[:, 1:]) @ rows
    near = np.convolve(np.pad(seen, 4, mode="edge"), np.full(9, 1 / 9), "valid")  # chance must not choose the weights
    likely = near if pilot is None else matrix @ pilot + at[:, -1]
    spread = np.maximum(likely, np.maximum(at.mean(axis=1), 1e-9) / 3)
    return Seen(matrix, seen - at[:, -1], np.diag(told.people / spread))


def counts_seen(parts: Sequence[SharesBelow], grid: Grid, pilot: Floats | None = None) -> Seen:
    """What trusted people say, of whom everybody was counted in every part: one sample, and noise of each part's own.

    Sampling: ``F(a)(1 - F(b))/k`` for a <= b, at a pilot of F (that of people who are spread evenly, unless given),
    whatever parts a and b belong to. Noise: that of the counts between places, added up.
    """
    k, places = parts[0].people, np.array([place for one in parts for place in one.places])
    matrix = np.array([grid.at(place) for place in places.tolist()])
    even = grid.ends[np.searchsorted(grid.ends, places, side="right") - 1] if grid.jumps else places
    at = np.clip(even if pilot is None else matrix @ pilot, 0.5 / k, 1 - 0.5 / k)
    spread = np.minimum.outer(at, at) * (1 - np.maximum.outer(at, at)) / k
    drawn = []
    for one in parts:
        i, m = np.arange(1, len(one.places) + 1), len(one.places) + 1  # of two counts only one has noise
        drawn.append((np.minimum.outer(i, i) - (m > 2) * np.outer(i, i) / m) * one.noise / k**2)
    spread += block_diag(*drawn)
    return Seen(matrix, np.concatenate([one.shares for one in parts]), np.linalg.inv(spread))


# --- one function from all of it --------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class Blended:
    """F by everybody, by trusted people alone, by local people alone; and what the counts say, place by place."""

    both: Shape
    trusted: Shape | None
    local: Shape | None
    counted: Seen | None


def blended(known: Evidence, *, alone: bool = True) -> Blended:
    """One distribution function from everything that is known, told finely where people were asked.

    What each group says `alone` may be left out.
    """
    grid = Shape.known(ends=np.array(known.atoms), jumps=True)
    if not known.atoms:
        pairs = (pair for one in known.counted for pair in pairwise(one.places))
        looked = joined_windows(pair for pair in pairs if pair[1] - pair[0] < 0.75 / CELLS)  # as around a quantile
        close = [place for one in known.counted for place in one.places if min(place, 1 - place) < 1 / CELLS]
        grid = Shape.known(ends=np.union1d(finer([*(one.window for one in known.answered), *looked]), close))
    clock = _clock(known.counted, grid.ends)
    told = [reports_seen(one, grid) for one in (known.reports, *known.answered) if one is not None and one.people]
    local = fit(told, grid, clock) if told and (alone or known.apart) else None
    heard: list[Seen] = []
    if known.counted:  # how much a count varies by sampling is told by a pilot of F
        first = counts_seen(known.counted, grid)
        pilot = fit([first, *([] if known.apart else told)], grid, clock)
        heard = [counts_seen(known.counted, grid, pilot.monotone)]
    own = fit(heard, grid, clock) if heard and (alone or known.apart) else None
    if known.apart and own is not None and local is not None:
        both = own.mixed(local, known.share)
    else:
        both = fit([*heard, *told], grid, clock)
    return Blended(both, own, local, heard[0] if heard else None)


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
    def monotone(self) -> Floats:
        """F as a distribution function: never falling, between 0 and 1, and 1 at the upper bound."""
        result = _isotonic(np.clip(self.mean, 0.0, 1.0))
        result[-1] = 1.0
        return result

    def below(self, place: float) -> tuple[float, float]:
        """The share of people at or below a place between 0 and 1 of the range, and its standard error."""
        return self.between(None, place)

    def between(self, low: float | None, high: float | None) -> tuple[float, float]:
        """The share of people above one place and at or below another, and its standard error; None is no limit."""
        nothing = np.zeros_like(self.mean)
        first, last = (nothing if place is None else self.at(place) for place in (low, high))
        value = (1.0 if high is None else float(last @ self.monotone)) - float(first @ self.monotone)
        return max(value, 0.0), self._error(last - first)

    def at(self, place: float) -> Floats:
        """F at a place, linear within cells, as a row of a matrix."""
        where = min(max(place, 0.0), 1.0)
        low = min(int(np.searchsorted(self.ends, where, side="right")) - 1, len(self.ends) - 2)
        part = (where - self.ends[low]) / (self.ends[low + 1] - self.ends[low])
        part = math.floor(part) if self.jumps else part
        row = np.zeros_like(self.mean)
        row[low], row[low + 1] = 1 - part, part
        return row

    def means(self, edges: Floats) -> Floats:
        """The means of F between edges, as rows of weights."""
        width = np.diff(self.ends)
        part = np.clip(edges[:, None] - self.ends[:-1], 0.0, width)  # of every cell, before each edge
        later = np.zeros_like(part) if self.jumps else part**2 / (2 * width)
        areas = np.zeros((len(edges), len(self.ends)))  # below F, from 0 to each edge: by both ends of every cell
        areas[:, :-1] = part - later
        areas[:, 1:] += later
        return np.asarray(np.diff(areas, axis=0) / np.diff(edges)[:, None])

    def quantile(self, share: float) -> float:
        """The place, between 0 and 1 of the range, at which F reaches this share of people first."""
        f = self.monotone
        after = int(np.searchsorted(f, share))
        if self.jumps or after == 0:
            return float(self.ends[after])
        part = (share - f[after - 1]) / (f[after] - f[after - 1])
        return float(self.ends[after - 1] + part * (self.ends[after] - self.ends[after - 1]))

    def variance(self) -> tuple[float, float]:
        """Of where people lie (0 to 1 of the range), and its standard error: that of its differential."""
        spread, slope = variance(*self._weights, self.monotone)
        return max(spread, 0.0), self._error(slope)

    def gini(self, origin: float) -> tuple[float, float]:
        """Gini's coefficient of numbers counted from `origin` (in ranges below the lower bound), and its error."""
        result, slope = gini(self._weights[0], self.monotone, origin)
        return result, self._error(slope)

    @property
    def _weights(self) -> tuple[Floats, Floats]:
        """Of F at the ends in ``int F`` and in ``int 2 p F``."""
        if self.jumps:
            return np.append(np.diff(self.ends), 0.0), np.append(np.diff(self.ends**2), 0.0)
        half = np.diff(self.ends) / 2
        weights = np.pad(half, (0, 1)) + np.pad(half, (1, 0))
        return weights, 2 * weights * self.ends

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


def _isotonic(y: Floats) -> Floats:
    from scipy.optimize import isotonic_regression

    return np.array(isotonic_regression(y).x)


_WALKS = ((1, np.geomspace(1e-4, 0.5, 12)), (2, np.geomspace(1e-6, 0.3, 14)))


def fit(seen: Sequence[Seen], grid: Shape | None = None, clock: Floats | None = None) -> Shape:
    """The distribution function that everything seen speaks for, with the covariance of its error.

    It is told at the ends of a grid, of even cells unless given. A walk takes its steps by a `clock`, that of the range
    unless another one, which rises from 0 to 1 at the ends, says where people are.

    The estimate is averaged over both walks. Its error is that of the first, which minds lumps, beside the distance of
    the two: where F is smooth, as it often is, that is more than the error.
    """
    grid = Shape.known() if grid is None else grid
    ends = grid.ends
    info, score = np.zeros((len(ends), len(ends))), np.zeros(len(ends))
    for one in seen:
        half = one.matrix.T @ one.precision
        info += half @ one.matrix
        score += half @ one.values
    if not grid.jumps:  # people at the lower bound itself: hardly any, give or take a tenth, unless people say so
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
    weighted = _weighted(allowed)
    rough, both = _mean(weighted), _mean(_weighted([*lumpy, *smooth]))
    covariance = np.outer(both - rough, both - rough)
    for weight, walk in weighted:  # of each size of steps, and among them
        root = solve_triangular(walk.root, walk.steps, lower=True, check_finite=False)
        covariance += weight * (root.T @ root + np.outer(walk.mean - rough, walk.mean - rough))
    return replace(grid, mean=start + both, covariance=covariance)


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


def _weighted(walks: Sequence[_Walk]) -> list[tuple[float, _Walk]]:
    """Walks weighted by their evidence, without those that hardly count."""
    best = max(one.evidence for one in walks)
    likely = [(math.exp(one.evidence - best), one) for one in walks if one.evidence > best - 12]
    total = sum(weight for weight, _ in likely)
    return [(weight / total, one) for weight, one in likely]


def _mean(weighted: Sequence[tuple[float, _Walk]]) -> Floats:
    return np.asarray(np.sum([weight * one.mean for weight, one in weighted], axis=0))
