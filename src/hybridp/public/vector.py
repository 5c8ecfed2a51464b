"""The vector mean: bounds and clipping, the sensitivity of a sum of vectors, and the messages that cross a boundary.

A vector is put on a public lattice: `HALF` steps from the centre to the bound of each coordinate, so that coordinate j
is a whole number of steps in [-HALF, HALF]. With a `norm` it is then shrunk towards the centre until its L1 or L2 norm,
computed in integers, is within the radius. Sums of such vectors are exact, and so is their sensitivity.

>>> bounds = VectorBounds((Bounds(0, 10), Bounds(-1, 1)), norm="l2", radius=1.0)
>>> (bounds.steps([[10.0, 1.0], [5.0, 0.25]]) / HALF).round(6).tolist()
[[0.707107, 0.707107], [0.0, 0.25]]
>>> bounds.l2_sensitivity == 2 * HALF
True
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Self, TypeAlias

import numpy as np

from hybridp.errors import must
from hybridp.public.budgets import Guarantee
from hybridp.public.lattice import HALF, Bounds, Floats, Ints, Lattice, Sums
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace, NoiseName, best_noise
from hybridp.public.messages import Invite, LocalSummary, ReportSums
from hybridp.public.randomisers import Randomiser
from hybridp.public.vector_randomisers import MOST_DIMENSIONS, VectorReports

__all__ = ["HALF", "SHRINK", "NormName", "VectorBounds", "OnVector", "VectorReportSums", "vector_noise"]


NormName = Literal["l1", "l2"]

SHRINK = 1 - 2.0**-45
"""A clipped vector is made this much shorter than its radius: more than six roundings of a double can add to it."""

SMALLEST_RADIUS = 0.001


@dataclass(frozen=True)
class VectorBounds:
    """A box, and inside it perhaps a ball: what is known of everybody's vector without looking at the data.

    `bounds` holds each coordinate's lower and upper bound. In the unit coordinates [-1, 1] of these bounds, `norm` and
    `radius` clip a vector further, to an L1 or L2 ball around the centre of the box: longer vectors are scaled down.
    """

    way: ClassVar[str] = "vector"
    start: ClassVar[int] = 0
    """Steps are counted from the middle."""
    square_steps: ClassVar[int] = 2**10
    """From the centre to the reach, where squares are added up."""
    bounds: tuple[Bounds, ...]
    norm: NormName | None = None
    radius: float | None = None

    def __post_init__(self) -> None:
        must(1 <= len(self.bounds) <= MOST_DIMENSIONS, "dimensions", f"must be between 1 and {MOST_DIMENSIONS:,}",
             len(self.bounds))  # fmt: skip
        must(self.norm in (None, "l1", "l2"), "norm", "must be l1 or l2", self.norm)
        must(self.norm is None or self.radius is not None, "radius", f"must be given with the norm {self.norm}", "none")
        must(self.radius is None or self.norm is not None, "norm", "must be given with a radius: l1 or l2", "none")
        if self.radius is not None:
            ok = math.isfinite(self.radius) and self.radius >= SMALLEST_RADIUS
            must(ok, "radius", f"must be at least {SMALLEST_RADIUS} (in half-ranges of the bounds)", self.radius)

    @staticmethod
    def of(
        lower: Sequence[float], upper: Sequence[float], *, norm: NormName | None = None, radius: float | None = None
    ) -> VectorBounds:
        """From a list of lower and a list of upper bounds."""
        must(len(lower) == len(upper), "upper", f"must hold as many bounds as lower ({len(lower)})", len(upper))
        return VectorBounds(tuple(Bounds(a, b) for a, b in zip(lower, upper, strict=True)), norm, radius)

    @property
    def dimensions(self) -> int:
        return len(self.bounds)

    # --- how far a vector reaches -------------------------------------------------------------------------------------

    @cached_property
    def radius_steps(self) -> int | None:
        """The radius in lattice steps, rounded down; None where the ball holds the whole box."""
        if self.radius is None:
            return None
        d = self.dimensions
        within = self.radius >= d if self.norm == "l1" else self.radius**2 >= d
        return None if within else math.floor(self.radius * HALF)

    @cached_property
    def _l2_square(self) -> int:
        """The largest squared L2 norm, in steps: d HALF^2 in the box; R^2 in an L2 ball.

        In an L1 ball the longest vectors have as many coordinates as possible at their bound: for R = q HALF + r steps,
        ``q HALF^2 + r^2``.
        """
        r = self.radius_steps
        if r is None:
            return self.dimensions * HALF**2
        if self.norm == "l2":
            return r * r
        whole, rest = divmod(r, HALF)
        return whole * HALF**2 + rest**2

    @cached_property
    def l1_sensitivity(self) -> int:
        """How far the sum may move, in steps, when one person's vector is replaced: L1."""
        r = self.radius_steps
        if r is None:
            return 2 * self.dimensions * HALF
        return 2 * r if self.norm == "l1" else math.isqrt(4 * self.dimensions * r * r)

    @cached_property
    def l2_sensitivity(self) -> int:
        """The same for L2, rounded up to a whole step."""
        return math.isqrt(4 * self._l2_square - 1) + 1

    @cached_property
    def squares_sensitivity(self) -> int:
        """How far the sums of squares may move, all together, in `square_steps` from the centre to the reach: L1.

        Each of them by the largest square at most; all of them by no more than two squared lengths.
        """
        whole = self.square_steps**2
        return min(self.dimensions * whole, 2 * self._l2_square * whole // self.reach_steps**2)

    @property
    def reach(self) -> float:
        """No coordinate is farther from the centre than this, in half-ranges."""
        return self.reach_steps / HALF

    @property
    def reach_steps(self) -> int:
        return min(HALF, self.radius_steps or HALF)

    @property
    def ratio(self) -> float:
        """The largest L2 norm, in reaches."""
        return max(1.0, math.sqrt(self._l2_square) / self.reach_steps)

    # --- values, lattice, estimates -----------------------------------------------------------------------------------

    def steps(self, values: Sequence[Sequence[float]] | Floats) -> Ints:
        """Everybody's vector (one a row) on the lattice, clipped. What is not a number is refused."""
        x = np.asarray(values, dtype=np.float64)
        must(x.ndim == 2 and x.shape[1] == self.dimensions, "values",
             f"must be rows of {self.dimensions} numbers", f"shape {x.shape}")  # fmt: skip
        out = np.empty(x.shape, dtype=np.int64)
        for j, b in enumerate(self.bounds):
            out[:, j] = Lattice(b.lower, b.upper, 2 * HALF).round(x[:, j]) - HALF
        return self.clip(out)

    def clip(self, steps: Ints) -> Ints:
        """Shrink rows beyond the radius towards the centre; whether a row is beyond is decided in integers.

        Every operation on doubles is off by at most 2^-53 of its result, six of them by less than `SHRINK` takes away,
        and rounding goes towards 0: the result's norm, in integers, is at most the radius.
        """
        radius = self.radius_steps
        if radius is None:
            return steps
        size = np.abs(steps).sum(axis=1) if self.norm == "l1" else (steps * steps).sum(axis=1)
        far = size > (radius if self.norm == "l1" else radius * radius)
        length = size[far].astype(np.float64)
        factor = radius * SHRINK / (length if self.norm == "l1" else np.sqrt(length))
        out = steps.copy()
        rows = steps[far]
        out[far] = np.sign(rows) * np.floor(np.abs(rows) * factor[:, None]).astype(np.int64)
        return out

    @property
    def sides(self) -> tuple[tuple[float, float], ...]:
        """Of each coordinate the centre, and how far a value lies from it at most."""
        return tuple((b.centre, b.half * self.reach) for b in self.bounds)

    def from_unit(self, z: Floats) -> Floats:
        """From unit coordinates to the values' own."""
        return np.array([b.from_unit(float(v)) for b, v in zip(self.bounds, z, strict=True)])

    def project(self, z: Floats) -> Floats:
        """The estimate (unit coordinates) put back into the box, then the ball: both steps can only come closer."""
        inside = np.clip(z, -1.0, 1.0)
        if self.radius_steps is None or self.radius is None:
            return np.asarray(inside)
        if self.norm == "l2":
            return np.asarray(inside * min(1.0, self.radius / max(float(np.linalg.norm(inside)), 1e-300)))
        size = np.abs(inside)
        if size.sum() <= self.radius:
            return np.asarray(inside)
        # The nearest point of an L1 ball takes the same off every coordinate (Duchi et al. 2008).
        down = np.sort(size)[::-1]
        off = (np.cumsum(down) - self.radius) / np.arange(1, len(down) + 1)
        return np.asarray(np.sign(inside) * np.maximum(size - off[np.flatnonzero(down > off)[-1]], 0.0))

    @property
    def text(self) -> str:
        """The bounds in one word: whoever uses other bounds has another one."""
        listed = ",".join(f"{float(b.lower)!r}:{float(b.upper)!r}" for b in self.bounds)
        ball = "" if self.norm is None else f",norm={self.norm},radius={float(self.radius or 0)!r}"
        return f"dimensions={self.dimensions}{ball},bounds={hashlib.sha256(listed.encode()).hexdigest()[:16]}"

    def made(self, invite: Any) -> str:
        """How reports on such a vector are made, in a line."""
        return f"{invite.mechanism.text},epsilon={invite.promise.epsilon!r},{self.text})"


# --- messages ---------------------------------------------------------------------------------------------------------


OnVector: TypeAlias = Invite[VectorBounds, VectorReports]


@dataclass(frozen=True, eq=False)
class VectorReportSums(ReportSums):
    """Sums over local reports on a number or several, one entry a coordinate, in reach coordinates.

    `people` sent a report; `counts[j]` of them said something about coordinate j.
    """

    people: int
    counts: Ints
    totals: Floats
    squares: Floats
    reports: Randomiser | VectorReports

    @classmethod
    def of(cls, people: int, sums: Sequence[Sums], reports: Randomiser | VectorReports) -> Self:
        """From each column's exact sums."""
        totals, squares = (np.array(part) for part in zip(*(one.moments for one in sums), strict=True))
        return cls(people, np.array([one.people for one in sums], dtype=np.int64), totals, squares, reports)

    @property
    def columns(self) -> tuple[LocalSummary | None, ...]:
        """Of each coordinate; None where nobody reported it."""
        every = zip(self.counts.tolist(), self.totals.tolist(), self.squares.tolist(), strict=True)
        return tuple(LocalSummary(*one, self.reports.law) if one[0] else None for one in every)


def vector_noise(
    guarantee: Guarantee, bounds: VectorBounds, name: NoiseName = "best"
) -> DiscreteLaplace | DiscreteGaussian:
    """The noise of every coordinate of the trusted sum: Laplace, Gaussian (needs delta), or the one of less variance.

    >>> from hybridp.public.budgets import ApproxDP, PureDP
    >>> box = VectorBounds.of([0] * 100, [1] * 100)
    >>> type(vector_noise(ApproxDP(1.0, 1e-6), box)).__name__, type(vector_noise(PureDP(1.0), box)).__name__
    ('DiscreteGaussian', 'DiscreteLaplace')
    """
    ok = math.isfinite(guarantee.epsilon) and 0.001 <= guarantee.epsilon <= 500
    must(ok, "epsilon", "must be at least 0.001 and at most 500", guarantee.epsilon)
    return best_noise(guarantee, name, bounds.l1_sensitivity, bounds.l2_sensitivity, bounds.dimensions)
