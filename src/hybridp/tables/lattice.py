"""The integer lattice on which trusted values are summed.

A floating-point sum depends on the order of its terms, so that replacing one person's value may move it by more than
the range of a value: the sensitivity that the noise is calibrated to would be wrong (Casacuberta, Shoemate, Vadhan and
Wagaman, "Widespread underestimation of sensitivity in differentially private libraries", CCS 2022). Integers are summed
exactly: every person contributes one level in {0, ..., levels}, and replacing a person moves the sum by at most
`levels`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hybridp.errors import finite, must

__all__ = ["MOST_LEVELS", "Lattice"]

MOST_LEVELS = 2**50


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
