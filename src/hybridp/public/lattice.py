"""The public lattice on which everything exact happens: one clip-and-round for one number and for several.

A floating-point sum depends on the order of its terms, so that replacing one person's value may move it by more than
the range of a value: the sensitivity that the noise is calibrated to would be wrong (Casacuberta, Shoemate, Vadhan and
Wagaman, "Widespread underestimation of sensitivity in differentially private libraries", CCS 2022). Integers are summed
exactly: every person contributes one level in {0, ..., levels}, and replacing a person moves the sum by at most
`levels`.

How many levels depends on what must fit into 64 bits: a number has `LEVELS`, a coordinate of a vector twice `HALF`,
because the squared norm of a vector of up to 1,024 coordinates is computed in integers too.
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

__all__ = ["HALF", "LEVELS", "MOST_LEVELS", "Bounds", "Lattice", "missing_each"]

Floats = NDArray[np.float64]

LEVELS = 2**32
"""Steps over the bounds of one number: finer than any data that 32 bits can tell apart."""

HALF = 2**24
"""Steps from the centre to a bound of one of several numbers: with at most 1,024 dimensions a squared norm stays below
2^59, so that 64-bit integers hold it exactly."""

MOST_LEVELS = 2**50
_CHUNK = 1 << 15  # values at a time: the work stays in the cache


@dataclass(frozen=True)
class Lattice:
    """`levels` equal steps over [lower, upper]; a value is rounded to the nearest point after clipping.

    `level(x)` = floor((clip(x) - lower) * scale + 1/2) with scale = levels / (upper - lower), in IEEE doubles. Each
    operation is monotone in x, and the construction checks that `upper` itself maps to `levels`: so every x maps
    into {0, ..., levels}, whatever the rounding.

    >>> Lattice(0.0, 100.0, 1000).level(12.34)
    123
    >>> Lattice(0.0, 100.0, 1000).level(float("inf"))
    1000
    """

    lower: float
    upper: float
    levels: int

    def __post_init__(self) -> None:
        finite("lower", self.lower)
        finite("upper", self.upper)
        must(self.lower < self.upper, "lower", f"must be below `upper` ({self.upper})", self.lower)
        must(1 <= self.levels <= MOST_LEVELS, "levels", "must be between 1 and 2**50", self.levels)
        must(math.isfinite(self.width), "upper", "must be within a double's range of `lower`", self.upper)
        ok = math.isfinite(self.scale) and math.floor(self.width * self.scale + 0.5) == self.levels
        must(ok, "levels", "must be a number of steps that doubles can tell apart over this range", self.levels)

    @property
    def width(self) -> float:
        return float(self.upper) - float(self.lower)

    @property
    def middle(self) -> float:
        """What stands for a value that is missing or no number, unless another public value is stated."""
        return min(max(float(self.lower) + self.width / 2, self.lower), self.upper)

    @property
    def scale(self) -> float:
        return self.levels / self.width

    def level(self, value: float) -> int:
        """The level of one value that is not NaN; values outside the bounds are clipped."""
        must(not math.isnan(value), "value", "must be a number", value)
        if value <= self.lower:
            return 0
        if value >= self.upper:
            return self.levels
        return math.floor((value - self.lower) * self.scale + 0.5)

    def round(self, values: NDArray[np.float64], missing: float | None = None) -> NDArray[np.int64]:
        """The levels of many values: `level` of each, in the same operations on doubles.

        A value that is no number has the level of `missing`; without it, it is refused.

        >>> Lattice(0.0, 100.0, 1000).round(np.array([12.34, 500.0])).tolist()
        [123, 1000]
        """
        out = np.empty(values.shape, dtype=np.int64)
        source, flat = values.reshape(-1), out.reshape(-1)
        for start in range(0, len(source), _CHUNK):
            share = np.clip(source[start : start + _CHUNK], self.lower, self.upper)
            # Clipped values are finite, so the sum is not a number exactly when one of them is not.
            if np.isnan(share.sum()):
                must(missing is not None, "value", "must be a number", "a missing value")
                share[np.isnan(share)] = missing
            share -= self.lower
            share *= self.scale
            share += 0.5
            np.floor(share, out=share)
            flat[start : start + _CHUNK] = share
        return out


def missing_each(stated: Sequence[float | str] | float | str | None, columns: int) -> tuple[float | str, ...] | None:
    """What a missing value of each column counts as: a number or "middle", one for all or one for each.

    >>> missing_each("middle", 2), missing_each(None, 2)
    (('middle', 'middle'), None)
    """
    if stated is None or isinstance(stated, str | float | int):
        return None if stated is None else (stated,) * columns
    return tuple(stated) * (columns if len(stated) == 1 else 1)


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
