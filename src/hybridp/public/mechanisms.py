"""Additive noise mechanisms as frozen descriptions: what they add, how much it hurts, what they guarantee.

A description is *checked when it is made*: the privacy profile ``delta(epsilon)`` is computed, and a scale that does
not meet the stated guarantee cannot be constructed. Sampling lives in `hybridp.noise`, accounting in `hybridp.ledger`.

Noise is on a lattice, because noise on integers can be drawn exactly.

>>> discrete_laplace(PureDP(0.5), sensitivity=1).scale
2.0
>>> DiscreteLaplace(PureDP(0.5), sensitivity=1, scale=1.8)
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `scale` must be large enough for 0.5-DP (replace-one) at sensitivity 1. Got 1.8.

**Noise** for a sum of vectors: what d independent draws guarantee, and how little of them is enough.

Discrete Laplace noise of scale ``L1 sensitivity/epsilon`` in every coordinate is epsilon-DP. (The sharper scale for a
delta that the mean uses is a statement about one dimension, and is not used here: a delta is left unspent.)

Discrete Gaussian noise is calibrated to the L2 sensitivity D. Two certificates are sound in d dimensions, and either
one is enough:

* ``D^2/(2 sigma^2)``-zCDP (Canonne, Kamath and Steinke 2020, on multivariate noise), converted by their Prop. 12;
* the continuous mechanism's analytic profile, plus what the lattice can change. One coordinate k of the noise has at
  most e^(1/(24 sigma^2)) times the probability of the continuous noise rounded to k (Jensen; the normaliser of the
  discrete law is at least that of the continuous one) and, for |k| <= c sigma, at least e^(-c^2/(24 sigma^2) - u)
  times, u = 2.1 e^(-2 pi^2 sigma^2) (the normaliser, by Poisson summation). Rounding is post-processing, and commutes
  with a shift by whole steps. So with eta = d/(24 sigma^2) and eta' = d (c^2/(24 sigma^2) + u)

      delta(epsilon) <= e^eta delta_continuous(epsilon - eta - eta') + 2 d e^epsilon Phi(-c + 1/(2 sigma)).

  On a lattice as fine as ours this is the analytic Gaussian (Balle and Wang 2018) to five digits or more.

>>> noise = vector_gaussian(ApproxDP(1.0, 1e-6), sensitivity=2**25, dimensions=100)
>>> round(noise.sigma / 2**25, 4)
4.2247
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Literal

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import ZCDP, ApproxDP, Guarantee, PureDP, as_approx, turning_point

__all__ = ["DiscreteGaussian", "DiscreteLaplace", "NoiseName", "best_noise", "discrete_gaussian"]
__all__ += ["discrete_gaussian_profile", "discrete_laplace", "gaussian_is_enough", "gaussian_profile", "gaussian_sigma"]
__all__ += ["laplace_profile", "laplace_scale", "vector_gaussian"]

NoiseName = Literal["laplace", "gaussian", "best"]


def _usable(guarantee: Guarantee, sensitivity: float) -> None:
    epsilon, rule = guarantee.epsilon, "must be positive and finite"
    must(math.isfinite(epsilon) and epsilon > 0, "epsilon", f"{rule} for additive noise", epsilon)
    must(math.isfinite(sensitivity) and sensitivity > 0, "sensitivity", rule, sensitivity)


def _ratio_at_most(sensitivity: float, scale: float, epsilon: float) -> bool:
    """sensitivity/scale <= epsilon in exact arithmetic: floats are rationals."""
    return Fraction(sensitivity) <= Fraction(epsilon) * Fraction(scale)


def _least(guess: float, enough: Callable[[float], bool]) -> float:
    """The least float near or above `guess` for which `enough` holds: rounding towards more privacy."""
    value = guess
    for _ in range(8):  # calibrations in closed form are at most a few rounding errors short
        if enough(value):
            return value
        value = math.nextafter(value, math.inf)
    low = high = guess
    while not enough(high):
        low, high = high, high * 1.001
    return turning_point(low, high, enough)[1]


def _cautious(guarantee: Guarantee) -> float:
    """The delta to calibrate for: a little less, so that rounding cannot exceed the stated one; 0 when it is tiny."""
    goal = guarantee.delta - 2.0**-49 * (1 + guarantee.epsilon)
    return max(goal, 0.0)


def _constructs(build: Callable[[float], object]) -> Callable[[float], bool]:
    def enough(scale: float) -> bool:
        try:
            build(scale)
        except ValueError:
            return False
        return True

    return enough


# --- privacy profiles -------------------------------------------------------------------------------------------------


def laplace_profile(shift: float, scale: float, epsilon: float) -> float:
    """delta(epsilon) of Laplace(scale) noise against a shift: ``1 - exp((epsilon - shift/scale)/2)``, at least 0."""
    return max(0.0, -math.expm1((epsilon - shift / scale) / 2))


def gaussian_profile(shift: float, sigma: float, epsilon: float) -> float:
    """delta(epsilon) of Normal(0, sigma^2) noise against a shift, rounded up (Balle and Wang 2018; D Thm 1.1.8).

    ``Phi(-a) - e^epsilon Phi(-b)`` with ``mu = shift/sigma``, ``a = epsilon/mu - mu/2`` and ``b = a + mu``. Since
    ``e^epsilon phi(b) = phi(a)``, both terms are phi(a) times a Mills ratio, so that no tail is lost; their
    difference is off by a few units in the last place of the first term, which are added.
    """
    from scipy.special import erfcx, ndtr

    mu = shift / sigma
    a, b = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    second = 0.5 * math.exp(-a * a / 2) * float(erfcx(b * math.sqrt(0.5)))
    first = float(ndtr(-a)) if a < 0 else 0.5 * math.exp(-a * a / 2) * float(erfcx(a * math.sqrt(0.5)))
    return max(0.0, first * (1 + 1e-14) - second)


def discrete_gaussian_profile(shift: int, sigma: float, epsilon: float) -> float:
    """An upper bound of delta(epsilon) for discrete Gaussian noise; exact up to rounding for sigma below 4096.

    ``P[Z > x] - e^epsilon P[Z > x + d]`` with ``x = epsilon sigma^2/d - d/2`` (Canonne et al., Thm 7). For a fine
    lattice the two tails are enclosed by Gaussian integrals: the mass function falls on the tail, so
    ``Q(m) <= sum over k >= m <= Q(m-1)``, and the normaliser lies between ``sigma sqrt(2 pi)`` and that plus 1.
    """
    d = shift
    x = epsilon * sigma**2 / d - d / 2
    first = math.floor(x) + 1
    if sigma < 4096:
        reach = math.ceil(40 * sigma) + 1
        mass = np.exp(-((np.arange(-reach, reach + 1) / sigma) ** 2) / 2)
        total = float(mass.sum())
        # Added from the tail inwards, so that small terms are not lost beside large ones.
        upper = float(mass[max(0, min(len(mass), first + reach)) :][::-1].sum()) / total
        lower = float(mass[max(0, min(len(mass), first + d + reach)) :][::-1].sum()) / total
        return max(0.0, upper - math.exp(epsilon) * lower)
    if first <= 0 or epsilon == 0:
        # The enclosure needs the falling side; by symmetry the body is at most one minus the far tail.
        from scipy.special import ndtr

        upper = float(ndtr(-(first - 1) / sigma)) + 1 / sigma
        lower = max(0.0, float(ndtr(-(first + d) / sigma)) - 1 / sigma)
        return max(0.0, upper - math.exp(epsilon) * lower)
    from scipy.special import log_ndtr

    norm = math.log1p(1 / (sigma * math.sqrt(2 * math.pi)))
    log_upper = float(log_ndtr(-(first - 1) / sigma))
    log_lower = epsilon + float(log_ndtr(-(first + d) / sigma)) - norm
    return math.exp(log_upper) * -math.expm1(min(0.0, log_lower - log_upper))


# --- continuous noise, from which the search on the lattice starts ----------------------------------------------------


def laplace_scale(guarantee: Guarantee, sensitivity: float) -> float:
    """The least scale of Laplace noise for the guarantee.

    Pure: ``sensitivity/epsilon``. Approximate: ``sensitivity/(epsilon - 2 ln(1-delta))`` (dissertation, Thm 1.1.5),
    which is exact in one dimension.

    >>> laplace_scale(PureDP(0.5), sensitivity=1)
    2.0
    """
    _usable(guarantee, sensitivity)
    goal = _cautious(guarantee)
    effective = guarantee.epsilon - 2 * math.log1p(-goal)

    def enough(scale: float) -> bool:
        if goal == 0:
            return _ratio_at_most(sensitivity, scale, guarantee.epsilon)
        return laplace_profile(sensitivity, scale, guarantee.epsilon) <= goal

    return _least(sensitivity / effective, enough)


def gaussian_sigma(guarantee: ApproxDP, sensitivity: float) -> float:
    """The least Gaussian noise for the guarantee: the analytic calibration (Balle and Wang 2018), any epsilon > 0."""
    _usable(guarantee, sensitivity)
    must(guarantee.delta > 0, "delta", "must be positive for Gaussian noise", guarantee.delta)

    def enough(sigma: float) -> bool:
        return gaussian_profile(sensitivity, sigma, guarantee.epsilon) <= guarantee.delta

    low = high = sensitivity / guarantee.epsilon
    while not enough(high):
        high *= 2
    while enough(low):
        low /= 2
    return turning_point(low, high, enough)[1]


# --- on a lattice: what is really drawn -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DiscreteLaplace:
    """An integer plus noise with ``P(k)`` proportional to ``exp(-|k|/scale)``; sensitivity in lattice steps."""

    guarantee: Guarantee
    sensitivity: int
    scale: float

    name = "laplace"

    def __post_init__(self) -> None:
        _usable(self.guarantee, self.sensitivity)
        must(isinstance(self.sensitivity, int), "sensitivity", "must be a whole number of steps", self.sensitivity)
        promise, size = self.guarantee, self.scale
        if promise.delta == 0:
            ok = size > 0 and _ratio_at_most(self.sensitivity, size, promise.epsilon)
        else:
            ok = size > 0 and self.profile(promise.epsilon) <= promise.delta
        must(ok, "scale", f"must be large enough for {promise} at sensitivity {self.sensitivity:g}", size)

    @property
    def variance(self) -> float:
        """``2 r/(1-r)^2`` with ``r = e^(-1/scale)``."""
        return 1 / (2 * math.sinh(1 / (2 * self.scale)) ** 2)

    def profile(self, epsilon: float) -> float:
        """The exact delta: the log-ratio is ``(d - 2k)/scale`` between 0 and the shift d, so a half-line is optimal."""
        last = math.ceil((self.sensitivity - self.scale * epsilon) / 2) - 1  # ratio > epsilon up to here
        if self.scale * epsilon >= self.sensitivity:
            return 0.0
        return max(0.0, self._cdf(last) - math.exp(epsilon) * self._cdf(last - self.sensitivity))

    def _cdf(self, k: int) -> float:
        weight = 1 / (1 + math.exp(-1 / self.scale))  # P(X <= k) = r^-k/(1+r) below 0
        if k < 0:
            return weight * math.exp(k / self.scale)
        return 1 - weight * math.exp(-(k + 1) / self.scale)


@dataclass(frozen=True, slots=True)
class DiscreteGaussian:
    """An integer plus noise with ``P(k)`` proportional to ``exp(-k^2/(2 sigma^2))`` (Canonne, Kamath, Steinke 2020)."""

    guarantee: ApproxDP
    sensitivity: int
    sigma: float

    name = "gaussian"

    def __post_init__(self) -> None:
        _usable(self.guarantee, self.sensitivity)
        must(isinstance(self.sensitivity, int), "sensitivity", "must be a whole number of steps", self.sensitivity)
        promise, size = self.guarantee, self.sigma
        must(promise.delta > 0, "delta", "must be positive for Gaussian noise", promise.delta)
        ok = size > 0 and self.profile(promise.epsilon) <= promise.delta
        must(ok, "sigma", f"must be large enough for {promise} at sensitivity {self.sensitivity:g}", size)

    @property
    def variance(self) -> float:
        """At most ``sigma^2``, and within ``1e-16`` of it from sigma = 2 on."""
        return self.sigma**2

    def profile(self, epsilon: float) -> float:
        """An upper bound of the exact delta, exact for small sigma: see `discrete_gaussian_profile`."""
        return discrete_gaussian_profile(self.sensitivity, self.sigma, epsilon)


def discrete_laplace(guarantee: Guarantee, sensitivity: int) -> DiscreteLaplace:
    """The least discrete Laplace noise for the guarantee, found from the continuous calibration."""
    start = laplace_scale(guarantee, sensitivity)
    goal = _cautious(guarantee)
    calibrated = ApproxDP(guarantee.epsilon, goal) if goal else PureDP(guarantee.epsilon)
    enough = _constructs(lambda scale: DiscreteLaplace(calibrated, sensitivity, scale))
    return DiscreteLaplace(guarantee, sensitivity, _least(start, enough))


def discrete_gaussian(guarantee: ApproxDP, sensitivity: int) -> DiscreteGaussian:
    """The least discrete Gaussian noise for the guarantee, found from the analytic calibration."""
    low = high = gaussian_sigma(guarantee, sensitivity)
    calibrated = ApproxDP(guarantee.epsilon, guarantee.delta * (1 - 1e-9))
    enough = _constructs(lambda sigma: DiscreteGaussian(calibrated, sensitivity, sigma))
    while not enough(high):
        high *= 1.0001
    while enough(low):  # on a coarse lattice less may do
        low *= 0.9
    return DiscreteGaussian(guarantee, sensitivity, turning_point(low, high, enough)[1])


# --- several sums at once ---------------------------------------------------------------------------------------------


def gaussian_is_enough(guarantee: ApproxDP, sensitivity: int, dimensions: int, sigma: float) -> bool:
    """Whether discrete Gaussian noise of this sigma in every coordinate is certain to keep the promise."""
    epsilon, delta, d = guarantee.epsilon, guarantee.delta, dimensions
    if as_approx(ZCDP((sensitivity / sigma) ** 2 / 2 * (1 + 1e-12)), delta).epsilon <= epsilon:
        return True
    if sigma < 2:
        return False
    far = math.sqrt(2 * (epsilon + math.log(2 * d) - math.log(delta) + 25)) + 0.5 / sigma
    above = d / (24 * sigma**2)
    below = d * (far**2 / (24 * sigma**2) + 2.1 * math.exp(-2 * (math.pi * sigma) ** 2))
    rest = epsilon - above - below
    if rest <= 0:
        return False
    tail = delta * math.exp(-25)  # Phi(-x) <= e^(-x^2/2) at x = far - 1/(2 sigma)
    return math.exp(above) * gaussian_profile(sensitivity, sigma, rest) + tail <= delta


@lru_cache(maxsize=1024)
def vector_gaussian(guarantee: ApproxDP, sensitivity: int, dimensions: int) -> DiscreteGaussian:
    """The least discrete Gaussian noise that one of the two certificates covers."""
    low = high = gaussian_sigma(guarantee, sensitivity)
    while not gaussian_is_enough(guarantee, sensitivity, dimensions, high):
        low, high = high, high * 1.05
    high = turning_point(low, high, lambda sigma: gaussian_is_enough(guarantee, sensitivity, dimensions, sigma))[1]
    for _ in range(60):  # the description's own check, for one dimension, may round a little further
        try:
            return DiscreteGaussian(guarantee, sensitivity, high)
        except ValueError:
            high *= 1 + 1e-6
    raise InvalidInput(f"`epsilon` must be within what Gaussian noise can keep. Got {guarantee.epsilon}.")


def best_noise(
    guarantee: Guarantee, name: NoiseName, l1: int, l2: int, sums: int | None = None
) -> DiscreteLaplace | DiscreteGaussian:
    """The noise of each of so many sums that a person moves by at most `l1` and `l2`; None for one sum alone.

    Laplace, Gaussian (needs delta), or the one of less variance. The sharper Laplace scale that a delta buys is a
    statement about one sum (Thm 1.1.5 of the dissertation): several leave their delta unspent.
    """
    must(name in ("laplace", "gaussian", "best"), "noise", "must be one of laplace, gaussian, best", name)
    result: list[DiscreteLaplace | DiscreteGaussian] = []
    if name != "gaussian":
        spends_delta = sums is None and name == "best"
        result.append(discrete_laplace(guarantee if spends_delta else PureDP(guarantee.epsilon), l1))
    if name != "laplace" and guarantee.delta > 0:
        promise = ApproxDP(guarantee.epsilon, guarantee.delta)
        result.append(discrete_gaussian(promise, l2) if sums is None else vector_gaussian(promise, l2, sums))
    must(bool(result), "delta", "must be positive for Gaussian noise", 0)
    return min(result, key=lambda noise: noise.variance)
