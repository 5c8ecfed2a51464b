"""The public bounds of a value, and the public lattice on which everything exact happens.

>>> bounds = Bounds(0, 200_000)
>>> bounds.levels([0.0, 100_000.0, 999_999.0]).tolist() == [0, LEVELS // 2, LEVELS]
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import finite, must
from hybridp.public.randomisers import LEVELS

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
        must(math.isfinite(self.width), "upper", "must not be so far from lower that the range overflows", self.upper)

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
        x = np.asarray(values, dtype=np.float64)
        must(not bool(np.isnan(x).any()), "value", "must be a number", "a missing value")
        inside = np.clip(x, self.lower, self.upper)
        return np.clip(np.floor((inside - self.lower) * (LEVELS / self.width) + 0.5), 0, LEVELS).astype(np.int64)

    def from_unit(self, y: float) -> float:
        """From the unit coordinate [-1, 1] to the value's own."""
        return self.centre + self.half * y

    def project(self, x: float) -> float:
        return min(max(x, self.lower), self.upper)
