"""Hybrid K-means: what everyone may know before, between and after the rounds, and what travels between the rooms.

Points live in a public box, on a public lattice with one step for all coordinates, so that distances keep their shape:
every coordinate is a whole number of steps, sums of them are exact, and a person's part in a sum is bounded in
integers. Centres are public in every round, and `nearest` is the same function on a device and at the curator.

Local people's devices answer the *map*, once and with the whole epsilon: in which cell of a public grid are you?
Trusted people are counted on it too, and in *rounds*: which of these centres is nearest, and how far off are you?

>>> box = Box((0.0, 0.0), (1.0, 2.0))
>>> box.tops
(524288, 1048576)
>>> box.values(packing(box, 2)).shape
(2, 2)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import must
from hybridp.public.mechanisms import ZCDP, PureDP, discrete_laplace
from hybridp.public.messages import Invite
from hybridp.public.randomisers import Bounds, Floats, Ints, Lattice, Oracle, k_randomised_response

__all__ = ["LEAST_CLUSTERED", "MOST_CELLS", "STEPS", "Box", "Grid", "OnMap", "Spend", "TotalsNoise", "TrustedRound"]
__all__ += ["lloyd", "map_invite", "map_noise", "nearest", "packing", "round_noise", "separation"]

Spend = PureDP | ZCDP

LEAST_CLUSTERED = 0.02
STEPS = 2**20
"""Lattice steps over the widest side of the box."""
_CHUNK = 1 << 15  # people at a time: the work stays in the cache, and threads seldom wait for each other
_CANDIDATES = 4096
MOST_DIMENSIONS = 1024
"""So that squared distances in steps stay below 2^53, where doubles hold every whole number."""
MOST_CELLS = 1 << 14


@dataclass(frozen=True, slots=True)
class Box:
    """The public bounds of every coordinate. Points outside are clipped by the side that sees them."""

    lower: tuple[float, ...]
    upper: tuple[float, ...]

    def __post_init__(self) -> None:
        d, many = len(self.lower), len(self.upper)
        must(1 <= d <= MOST_DIMENSIONS, "lower", f"must have 1 to {MOST_DIMENSIONS:,} coordinates", d)
        must(d == many, "upper", "must have as many coordinates as lower", f"{many} and {d}")
        for low, high in zip(self.lower, self.upper, strict=True):
            Bounds(low, high)
        must(min(self.tops) >= 1, "upper", "must not make one side a millionth of another", self.upper)

    @property
    def dims(self) -> int:
        return len(self.lower)

    @property
    def step(self) -> float:
        """One step in the data's units: exact on the widest side, within half a step over all of the others."""
        return max(h - w for w, h in zip(self.lower, self.upper, strict=True)) / STEPS

    @property
    def tops(self) -> tuple[int, ...]:
        return tuple(math.floor((h - w) / self.step + 0.5) for w, h in zip(self.lower, self.upper, strict=True))

    def levels(self, points: ArrayLike) -> Floats:
        """Clip and round people's points (one row each) to whole steps: an array (coordinates, people).

        A coordinate that is missing is in the middle: a refusal would be an answer about somebody.
        """
        x = np.asarray(points, dtype=np.float64)
        must(x.ndim == 2 and x.shape[1] == self.dims, "points", f"must have {self.dims} columns", x.shape[1:])
        out = np.empty((self.dims, len(x)))
        sides = zip(self.lower, self.upper, self.tops, strict=True)
        for j, (low, high, top) in enumerate(sides):
            lattice = Lattice(low, high, top)
            out[j] = lattice.round(x[:, j], lattice.middle)
        return out

    def values(self, levels: ArrayLike) -> Floats:
        """Points given in steps (last axis: coordinates) in the data's own units."""
        steps = np.subtract(self.upper, self.lower) / self.tops
        return np.asarray(self.lower + np.asarray(levels, dtype=np.float64) * steps)

    def inside(self, levels: ArrayLike) -> Floats:
        return np.clip(np.asarray(levels, dtype=np.float64), 0.0, np.asarray(self.tops, dtype=np.float64))


def _score(x: Floats, centre: Floats, out: Floats, term: Floats) -> Floats:
    """|x - c|^2 less |x|^2, which all centres share."""
    np.multiply(x[0], -2 * centre[0], out=out)
    for row, c in zip(x[1:], centre[1:], strict=True):
        np.multiply(row, -2 * c, out=term)
        out += term
    out += float(centre @ centre)
    return out


def nearest(levels: Floats, centres: ArrayLike, *, scores: Floats | None = None) -> Ints:
    """The nearest centre of each point, the first one when two are equally near; levels are (coordinates, people).

    With `scores`, an array for them, the squared distances less ``|x|^2`` are kept there. Elementwise operations only:
    nobody's label depends on who else is in the array, as it might inside a matrix product, whose rounding depends on
    the blocks that it is cut into.
    """
    c = np.asarray(centres, dtype=np.float64)
    out = np.empty(levels.shape[1], dtype=np.int64)
    small = np.dtype(np.uint8 if len(c) <= 256 else np.uint32)
    for start in range(0, levels.shape[1], _CHUNK):
        x = levels[:, start : start + _CHUNK]
        score, term = np.empty(x.shape[1]), np.empty(x.shape[1])
        best = _score(x, c[0], np.empty(x.shape[1]), term)
        label = np.zeros(x.shape[1], dtype=small)
        for k in range(1, len(c)):
            _score(x, c[k], score, term)
            # Later centres have larger numbers, so the largest k that came closer is the nearest.
            np.maximum(label, np.multiply(score < best, k, dtype=small), out=label)
            np.minimum(best, score, out=best)
        out[start : start + _CHUNK] = label
        if scores is not None:
            scores[start : start + _CHUNK] = best
    return out


def lloyd(points: Floats, mass: Floats, centres: Floats, steps: int = 50) -> Floats:
    """Weighted steps of Lloyd's algorithm, a row a point; an empty cluster stays."""
    columns = np.ascontiguousarray(points.T)
    for _ in range(steps):
        label = nearest(columns, centres)
        size = np.bincount(label, weights=mass, minlength=len(centres))
        sums = np.stack([np.bincount(label, weights=mass * c, minlength=len(centres)) for c in columns], axis=1)
        moved = np.where(size[:, None] > 0, sums / np.maximum(size, 1e-300)[:, None], centres)
        if np.allclose(moved, centres, rtol=0, atol=1e-3):
            return np.asarray(moved)
        centres = moved
    return centres


# --- places that depend on no data ------------------------------------------------------------------------------------


def packing(box: Box, clusters: int) -> Floats:
    """Centres packed like spheres in the box (whole steps): far from one another and from the walls.

    Su et al. (2016) search the largest radius for which random spheres fit; here the next centre is the point of a
    fixed low-discrepancy sequence (Roberts' R_d) whose sphere, kept off the walls and off the others, is the largest.
    The same box and number always give the same centres, and no data is looked at.
    """
    must(clusters >= 1, "clusters", "must be at least 1", clusters)
    sides = np.asarray(box.tops, dtype=np.float64)
    g = 2.0
    for _ in range(60):  # the unique positive root of g^(d+1) = g + 1
        g = (1 + g) ** (1 / (box.dims + 1))
    steps = g ** -np.arange(1, box.dims + 1)
    unit = (0.5 + np.outer(np.arange(max(_CANDIDATES, 4 * clusters)), steps)) % 1.0
    points = unit * sides
    room = np.minimum(points, sides - points).min(axis=1)  # the largest sphere that does not leave the box
    if clusters == 1:
        return np.floor(sides[None, :] / 2)
    chosen = [int(np.argmin(np.abs(room - np.quantile(room, 0.6))))]
    apart = np.full(len(points), np.inf)
    for _ in range(clusters - 1):
        apart = np.minimum(apart, np.linalg.norm(points - points[chosen[-1]], axis=1))
        chosen.append(int(np.argmax(np.minimum(apart / 2, room))))
    result = points[chosen]
    # A few steps on the sequence itself: even shares of the box.
    return np.floor(lloyd(points, np.ones(len(points)), result, 20))


def separation(centres: ArrayLike) -> Floats:
    """Half the distance from every centre to the nearest other one; infinity for a single centre."""
    c = np.asarray(centres, dtype=np.float64)
    gaps = np.linalg.norm(c[:, None] - c[None], axis=2)
    np.fill_diagonal(gaps, np.inf)
    return np.asarray(gaps.min(axis=1) / 2)


@dataclass(frozen=True, slots=True)
class Grid:
    """The box cut into equal cells, `per_axis` along every coordinate; at most 2^14 of them."""

    way: ClassVar[str] = "cell"
    box: Box
    per_axis: int

    def __post_init__(self) -> None:
        ok = isinstance(self.per_axis, int) and self.per_axis >= 2 and self.cells <= MOST_CELLS
        must(ok, "per_axis", f"must be a whole number from 2 on, for at most {MOST_CELLS:,} cells", self.per_axis)

    @property
    def cells(self) -> int:
        return int(self.per_axis**self.box.dims)

    @property
    def categories(self) -> int:
        return self.cells

    def made(self, invite: Any) -> str:
        return f"map(cells={self.cells},epsilon={invite.promise.epsilon!r},invite={invite.answers})"

    def cell(self, levels: Floats) -> Ints:
        """The cell of every point, numbered with the last coordinate fastest."""
        out = np.zeros(levels.shape[1], dtype=np.int64)
        for row, top in zip(levels, self.box.tops, strict=True):
            part = (row * (self.per_axis / (top + 1))).astype(np.int64)
            out *= self.per_axis
            out += np.minimum(part, self.per_axis - 1)
        return out

    def middles(self) -> Floats:
        """The middle of every cell, in steps: an array (cells, coordinates)."""
        axis = (np.arange(self.per_axis) + 0.5) / self.per_axis
        mesh = np.meshgrid(*[axis * top for top in self.box.tops], indexing="ij")
        return np.stack([m.ravel() for m in mesh], axis=1)


# --- the trusted group's noise ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TotalsNoise:
    """Noise for the numbers (weight x counts, sums), all of them drawn alike: discrete Laplace or Gaussian.

    `size` is the scale or sigma in steps. Built by `round_noise` and `map_noise`, which state the sensitivity; `spend`
    is what one such answer costs. `radius` is the longest deviation that it protects (0: counts alone), and the curator
    refuses to add it to anything longer.
    """

    spend: Spend
    size: float
    weight: int
    radius: int

    @property
    def kind(self) -> str:
        return "laplace" if isinstance(self.spend, PureDP) else "gaussian"

    @property
    def variance(self) -> float:
        """Of every noisy sum; a noisy count has this over weight squared."""
        return 2 * self.size**2 if self.kind == "laplace" else self.size**2


def _noise(spend: Spend, l1: int, l2: float, weight: int, radius: int) -> TotalsNoise:
    if isinstance(spend, PureDP):
        return TotalsNoise(spend, discrete_laplace(spend, l1).scale, weight, radius)
    # Canonne, Kamath and Steinke 2020, Thm 4, over several numbers: rho = l2^2/(2 sigma^2).
    return TotalsNoise(spend, l2 / math.sqrt(2 * spend.rho) * (1 + 1e-12), weight, radius)


def round_noise(spend: Spend, dims: int, radius: int) -> TotalsNoise:
    """Noise for counts and sums of deviations no longer than `radius` steps (Euclidean norm, in integers).

    A person is a count of weight w and a deviation u in one cluster. Replacing the person changes two clusters by at
    most ``2 (w + floor(sqrt(d) radius))`` in L1 and ``sqrt(2 (w^2 + radius^2))`` in L2, or one cluster by
    ``2 radius`` in L2. So with Gaussian noise w = radius is free; with Laplace noise counts pay, and w = 0.4 radius is
    near the best for deviations of a third of the radius.
    """
    must(radius >= 1, "radius", "must be at least one step", radius)
    weight = max(1, math.floor(0.4 * radius)) if isinstance(spend, PureDP) else radius
    l1 = 2 * (weight + math.isqrt(dims * radius**2))
    l2 = max(2.0 * radius, math.sqrt(2 * (weight**2 + radius**2)))
    return _noise(spend, l1, l2, weight, radius)


def map_noise(spend: Spend) -> TotalsNoise:
    """Noise for the counts of a grid: replacing a person moves one count up and one down."""
    return _noise(spend, 2, math.sqrt(2), 1, 0)


# --- what travels between the rooms -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class TrustedRound:
    """Noisy counts of trusted people in each cell of a map; or by cluster, with sums of their deviations (in steps)."""

    people: int
    counts: NDArray[Any]
    noise: TotalsNoise
    sums: Floats | None = None


# --- invitations ------------------------------------------------------------------------------------------------------


OnMap: TypeAlias = Invite[Grid, Oracle]


def map_invite(grid: Grid, epsilon: float) -> OnMap:
    """In which cell are you? Answered by k-ary randomised response with the whole epsilon."""
    return Invite(grid, k_randomised_response(PureDP(epsilon), grid.cells))
