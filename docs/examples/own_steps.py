"""Noise of the curator's own, to copy: a staircase. Described, verified and drawn in seventy lines.

``P(k)`` is proportional to ``exp(-(D/scale) |round(k/D)|)`` for a whole-number sum of odd sensitivity D: steps that
are D wide, each ``e^(-D/scale)`` times as high as the one before. A shift of at most D moves k by at most one step, so
this is epsilon-DP when ``D <= epsilon scale``, as for Laplace noise, whose variance is larger up to an epsilon of about
4 (a simple case of Geng and Viswanath 2014).

>>> from hybridp.public.mechanisms import discrete_laplace
>>> made = own_steps(PureDP(2.0), 1001)
>>> round(made.variance / discrete_laplace(PureDP(2.0), 1001).variance, 3)
0.891
>>> OwnSteps(PureDP(2.0), 1001, 400.0)
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `scale` must be large enough for 2-DP (replace-one) at sensitivity 1001. Got 400.0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hybridp import noise
from hybridp.errors import must
from hybridp.noise import Randomness
from hybridp.public.mechanisms import PureDP

__all__ = ["OwnSteps", "own_steps", "own_steps_noise"]


# In the library: src/hybridp/public/mechanisms.py
@dataclass(frozen=True, slots=True)
class OwnSteps:
    """The staircase, verified in exact arithmetic when it is made: floats are taken for the rationals that they are."""

    guarantee: PureDP
    sensitivity: int
    scale: float

    def __post_init__(self) -> None:
        must(self.sensitivity > 0 and self.sensitivity % 2 == 1, "sensitivity", "must be odd", self.sensitivity)
        enough = self.scale > 0 and self.sensitivity <= Fraction(self.guarantee.epsilon) * Fraction(self.scale)
        rule = f"must be large enough for {self.guarantee} at sensitivity {self.sensitivity}"
        must(enough, "scale", rule, self.scale)

    @property
    def variance(self) -> float:
        """``D^2`` times the variance of the step, plus that of an even draw of D whole numbers."""
        d = self.sensitivity
        return d**2 / (2 * math.sinh(d / (2 * self.scale)) ** 2) + (d**2 - 1) / 12

    def profile(self, epsilon: float) -> float:
        """The exact delta at an epsilon: a shift by D moves every step by one; r is the ratio of their heights."""
        r = math.exp(-self.sensitivity / self.scale)
        return max(0.0, (1 - math.exp(epsilon) * r) / (1 + r))


def own_steps(guarantee: PureDP, sensitivity: int) -> OwnSteps:
    """The least noise for the promise: the smallest float that is not below ``sensitivity/epsilon``."""
    scale = sensitivity / guarantee.epsilon
    while Fraction(sensitivity) > Fraction(guarantee.epsilon) * Fraction(scale):
        scale = math.nextafter(scale, math.inf)
    return OwnSteps(guarantee, sensitivity, scale)


# In the library: src/hybridp/noise.py
def own_steps_noise(mechanism: OwnSteps, size: int, *, rng: Randomness) -> NDArray[np.int64]:
    """Exact draws: which step is a discrete Laplace draw, and where on the step an even one."""
    d = mechanism.sensitivity
    step = noise.discrete_laplace(Fraction(mechanism.scale) / d, size, rng=rng)
    return step * d + noise.uniform_below(d, size, rng=rng) - d // 2
