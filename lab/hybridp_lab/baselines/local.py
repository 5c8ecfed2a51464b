"""The papers' local forms: a device adds discrete Laplace or Gaussian noise to its value.

The product's reports (`hybridp.public.randomisers`) have less variance at every epsilon, and a liar reaches less far
with them; the papers' figures are about these.

>>> from hybridp.public.mechanisms import PureDP
>>> round(local_additive(PureDP(1.0)).worst_variance, 6)
8.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from hybridp.noise import Randomness, additive
from hybridp.noise import reports as library_reports
from hybridp.public.mechanisms import (
    ApproxDP,
    DiscreteGaussian,
    DiscreteLaplace,
    Guarantee,
    discrete_gaussian,
    discrete_laplace,
)
from hybridp.public.randomisers import LEVELS, Floats, Ints, Randomiser, _pure, _Told

__all__ = ["LocalAdditive", "Report", "local_additive", "reports"]


@dataclass(frozen=True, slots=True)
class LocalAdditive(_Told):
    """The level plus discrete Laplace or Gaussian noise."""

    noise: DiscreteLaplace | DiscreteGaussian

    @property
    def guarantee(self) -> Guarantee:
        return self.noise.guarantee

    @property
    def name(self) -> str:
        return self.noise.name

    @property
    def variance_terms(self) -> tuple[float, float]:
        return self.noise.variance * (2 / LEVELS) ** 2, 0.0

    @property
    def bound(self) -> float:
        """Reports beyond this have probability below e^-60: not from an honest device."""
        if isinstance(self.noise, DiscreteLaplace):
            return 1 + 60 * self.noise.scale * 2 / LEVELS
        return 1 + 11 * self.noise.sigma * 2 / LEVELS

    def square_deviation(self, mean: float, spread: float) -> float:
        """sd of (X + N - mean)^2 with E N^4 = 6 v^2 (Laplace) or 3 v^2 (Gaussian), v the noise variance."""
        v = self.variance_terms[0]
        excess = 5.0 if isinstance(self.noise, DiscreteLaplace) else 2.0
        own = spread * max((1 + abs(mean)) ** 2 - spread, 0.0)
        return math.sqrt(excess * v**2 + 4 * spread * v + own)


def local_additive(guarantee: Guarantee, kind: Literal["laplace", "gaussian"] = "laplace") -> LocalAdditive:
    """Laplace or Gaussian noise added on the device; one person's value is the whole data set."""
    _pure(guarantee)
    if kind == "laplace":
        return LocalAdditive(discrete_laplace(guarantee, LEVELS))
    return LocalAdditive(discrete_gaussian(ApproxDP(guarantee.epsilon, guarantee.delta), LEVELS))


Report = Randomiser | LocalAdditive


def reports(randomiser: Report, levels: Ints, *, rng: Randomness) -> Floats:
    """One report for each person's level, in the unit coordinate, by the papers' forms or the library's."""
    if not isinstance(randomiser, LocalAdditive):
        return library_reports(randomiser, levels, rng=rng)
    noisy = levels + additive(randomiser.noise, len(levels), rng=rng)
    return np.asarray(noisy * (2 / LEVELS) - 1)
