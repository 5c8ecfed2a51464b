"""Two mechanisms of diffprivlib held to the contract of `hybridp_lab.testing`: one keeps it, one tells too much.

Its geometric noise for whole numbers does what it says:

>>> from hybridp_lab.testing import broken
>>> broken(geometric(PureDP(1.0), 1))
[]

Half the scale for the same promise does not:

>>> [failure.promise for failure in broken(half_the_scale(PureDP(1.0), 1))]
['draws have mean zero and the stated variance']

Its Laplace noise for real numbers has the stated law, and is added in floating point. Near 0, what is added to 0 has
finer last bits than what is added to 1 can have, so that one output may tell the two apart, whatever epsilon says:

>>> for failure in broken(laplace(PureDP(1.0), 1.0)):
...     print(failure)
the last bits of an output do not tell the value: outputs near 0 are multiples of other powers of two ...
"""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise import Randomness
from hybridp.public.mechanisms import PureDP
from hybridp_lab.testing import Case, laws, less_scale

__all__ = ["Noise", "geometric", "half_the_scale", "laplace"]

# Version 0.6.6 imports its models with it, and those need an older scikit-learn; its mechanisms do not.
sys.modules.setdefault("diffprivlib.models", ModuleType("diffprivlib.models"))
mechanisms = importlib.import_module("diffprivlib.mechanisms")


@dataclass(frozen=True)
class Noise:
    """Noise of diffprivlib by its scale; the library itself asks for an epsilon, which is sensitivity/scale."""

    guarantee: PureDP
    sensitivity: float
    scale: float

    def __post_init__(self) -> None:
        enough = self.sensitivity <= Fraction(self.guarantee.epsilon) * Fraction(self.scale)
        must(enough, "scale", f"must be large enough for {self.guarantee}", self.scale)

    def mechanism(self) -> Any:
        """Without a `random_state` it draws from the system's randomness."""
        kind = mechanisms.Laplace if isinstance(self.sensitivity, float) else mechanisms.Geometric
        return kind(epsilon=self.sensitivity / self.scale, sensitivity=self.sensitivity)

    @property
    def variance(self) -> float:
        """As diffprivlib states it."""
        return float(self.mechanism().variance(0))


def draw(noise: Noise, value: float, size: int, _: Randomness) -> NDArray[Any]:
    made, kind = noise.mechanism(), type(noise.sensitivity)
    return np.array([made.randomise(kind(value)) for _ in range(size)])


def geometric(guarantee: PureDP, sensitivity: int) -> Case:
    described = Noise(guarantee, sensitivity, sensitivity / guarantee.epsilon)
    return Case(described, laws.discrete_laplace, less_scale, "lattice", draw=draw)


def laplace(guarantee: PureDP, sensitivity: float) -> Case:
    described = Noise(guarantee, sensitivity, sensitivity / guarantee.epsilon)
    return Case(described, laws.laplace, less_scale, "continuous", draw=draw)


def half_the_scale(guarantee: PureDP, sensitivity: int) -> Case:
    """Wrong on purpose: twice the epsilon is asked of diffprivlib."""
    right = geometric(guarantee, sensitivity)

    def less(noise: Noise, value: float, size: int, rng: Randomness) -> NDArray[Any]:
        return draw(Noise(PureDP(25.0), noise.sensitivity, noise.scale / 2), value, size, rng)

    return Case(right.mechanism, right.law_of, right.weaken, "lattice", draw=less)
