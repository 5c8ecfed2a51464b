"""A local randomiser of your own, to copy: Duchi's bit. Described, verified and drawn in seventy lines.

The device tells one bit: whether the value lies above a secret threshold drawn evenly over the bounds, a bit which is
then flipped with probability q. The report is ``B`` or ``-B`` with ``B = 1/(1-2q)``, unbiased for the value's unit
coordinate z (Duchi, Jordan and Wainwright 2018). epsilon-DP when ``(1-q)/q <= e^epsilon``. Variance ``B^2 - z^2``.

>>> round(own_bit(PureDP(1.0)).worst_variance, 2)
4.68
>>> OwnBit(PureDP(1.0), 2**60)
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `flips` must be large enough for 1-DP (replace-one). Got 1152921504606846976.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise import Randomness, bernoulli, uniform_below
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import LEVELS, exact_exp

__all__ = ["OwnBit", "own_bit", "own_bit_reports"]

WORD = 2**64


# In the library: src/hybridp/public/randomisers.py
@dataclass(frozen=True, slots=True)
class OwnBit:
    """One flipped bit: q = flips/2^64, verified against the promise in exact arithmetic when it is made."""

    guarantee: PureDP
    flips: int

    name = "own-bit"

    def __post_init__(self) -> None:
        enough = WORD - self.flips <= exact_exp(self.guarantee.epsilon) * self.flips
        must(0 < self.flips < WORD // 2 and enough, "flips", f"must be large enough for {self.guarantee}", self.flips)

    @property
    def bound(self) -> float:
        """B: no honest report lies outside [-bound, bound]."""
        return WORD / (WORD - 2 * self.flips)

    @property
    def variance_terms(self) -> tuple[float, float]:
        """(constant, quadratic): the variance of a report of z is constant + quadratic z^2."""
        return self.bound**2, -1.0

    @property
    def worst_variance(self) -> float:
        return self.bound**2

    def profile(self, epsilon: float) -> float:
        """The exact delta at an epsilon: the two ends of the bounds are the worst pair."""
        q = self.flips / WORD
        return max(0.0, (1 - q) - math.exp(epsilon) * q)


def own_bit(guarantee: PureDP) -> OwnBit:
    """The least noisy one: ``q = 1/(e^epsilon + 1)``, rounded up to a multiple of 2^-64, towards more privacy."""
    return OwnBit(guarantee, int(WORD / (exact_exp(guarantee.epsilon) + 1)) + 1)


# In the library: src/hybridp/noise.py
def own_bit_reports(mechanism: OwnBit, levels: NDArray[np.int64], *, rng: Randomness) -> NDArray[np.float64]:
    """A report for each level 0..LEVELS. Integers are compared, so that every probability is exactly the stated one."""
    above = levels > uniform_below(LEVELS, len(levels), rng=rng)
    above ^= bernoulli(mechanism.flips, 64, len(levels), rng=rng)
    return np.where(above, mechanism.bound, -mechanism.bound)
