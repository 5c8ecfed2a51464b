"""The public bounds of a value, and the public lattice on which everything exact happens.

>>> bounds = Bounds(0, 200_000)
>>> bounds.levels([0.0, 100_000.0, 999_999.0]).tolist() == [0, LEVELS // 2, LEVELS]
True
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import finite, must
from hybridp.public.lattice import LEVELS, Lattice

__all__ = ["Bounds"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Bounds:
    """lower < upper, chosen without looking at the data. Values outside are clipped by the side that sees them."""

    lower: float
    upper: float

    def __post_init__(self) -> None:
        finite("lower", self.lower)
        finite("upper", self.upper)
        must(self.lower < self.upper, "upper", f"must be greater than lower ({self.lower:g})", self.upper)
        sensible = 1e-280 <= self.width <= 1e280
        must(sensible, "upper", "must be neither so near to lower nor so far that doubles give up", self.upper)

    @property
    def width(self) -> float:
        return self.upper - self.lower

    @property
    def centre(self) -> float:
        return self.lower + self.width / 2

    @property
    def half(self) -> float:
        return self.width / 2

    def levels(self, values: Sequence[float] | Floats) -> NDArray[np.int64]:
        """Clip and round to the lattice. A value that is not a number has no level and is refused."""
        return Lattice(self.lower, self.upper, LEVELS).round(np.asarray(values, dtype=np.float64))

    def from_unit(self, y: float) -> float:
        """From the unit coordinate [-1, 1] to the value's own."""
        return self.centre + self.half * y

    def project(self, x: float) -> float:
        return min(max(x, self.lower), self.upper)
