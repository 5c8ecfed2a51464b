"""Hand-made laws of knobs (Avent 2023, Tables 3.2 and 3.3), each drawn again until it lies in what is accepted."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias, final

import numpy as np

from hybridp.pareto import Space
from hybridp.pareto.problem import Value

__all__ = ["Law", "Normal", "ShiftedExponential", "Uniform", "by_laws"]

Law: TypeAlias = Callable[[np.random.Generator], Value | None]
"""A hand-made law of one knob: it draws a value, again and again until the knob holds it."""


def by_laws(space: Space, laws: Mapping[str, Law], n: int, rng: np.random.Generator) -> list[dict[str, Value]]:
    """n independent settings, each knob by its law."""

    def draw(name: str) -> Value:
        while True:
            value = laws[name](rng)
            if value is not None and space.knobs[name].holds(value):
                return value

    return [{name: draw(name) for name in space.names} for _ in range(n)]


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
