"""Hand-made laws of knobs (Avent 2023, Tables 3.2 and 3.3), each drawn again until it lies in what is accepted."""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

__all__ = ["Normal", "ShiftedExponential", "Uniform"]


@final
@dataclass(frozen=True)
class Uniform:
    """Uniform over the whole numbers from low to high."""

    low: int
    high: int

    def __call__(self, rng: np.random.Generator) -> int:
        return int(rng.integers(self.low, self.high + 1))


@final
@dataclass(frozen=True)
class Normal:
    """Normal, rounded to a whole number."""

    mean: float
    sd: float
    accept: tuple[float, float]

    def __call__(self, rng: np.random.Generator) -> int | None:
        value = round(float(rng.normal(self.mean, self.sd)))
        return value if self.accept[0] <= value <= self.accept[1] else None


@final
@dataclass(frozen=True)
class ShiftedExponential:
    """shift + Exponential(rate)."""

    rate: float
    shift: float
    accept: tuple[float, float]

    def __call__(self, rng: np.random.Generator) -> float | None:
        value = self.shift + float(rng.exponential(1 / self.rate))
        return value if self.accept[0] <= value <= self.accept[1] else None
