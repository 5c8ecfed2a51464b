"""What training with noise costs: DP-SGD and DP-Adam by accounting, output perturbation in closed form.

Everything here is for replacement of one person's example and depends on public numbers only.

DP-SGD and DP-Adam (dissertation, Algs 3.3 and 3.4) draw m of n examples without replacement at every step, clip every
gradient to norm L and add ``(2L/m) Normal(0, sigma^2)`` to their mean. Replacing one example moves the mean by at most
``2L/m``, so `noise` = sigma is the noise in units of the sensitivity, whatever L is. One step obeys the Renyi bound of
Wang, Balle and Kasiviswanathan (2019, Thm 27); steps add up; the sum is converted to (epsilon, delta).

>>> run = Training(people=40_000, batch=128, epochs=10, noise=1.5)
>>> run.steps
3120
>>> round(run.epsilon(delta=1e-5), 2), round(run.epsilon(delta=1e-5, conversion="classical"), 2)
(1.12, 1.36)
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.mechanisms import gaussian_profile

__all__ = [
    "ORDERS",
    "Conversion",
    "OutputPerturbation",
    "Training",
    "convert",
    "gaussian_epsilon",
    "step_renyi",
]

Floats = NDArray[np.float64]
Conversion = Literal["tight", "classical"]

_EXACT = 256  # central moments are computed up to this order, and bounded by plain ones above
ORDERS: Floats = np.array(
    [*range(2, 33), *range(36, 65, 4), *range(72, 129, 8), *range(144, 257, 16), 512, 1024], float
)
_OCTAVE = 16  # nodes an octave of sigma
_LEAST, _MOST = 0.05, 1000.0


# --- one step ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=4096)
def _log_moments(node: int) -> Floats:
    """``log E_Q[(P/Q - 1)^i]`` for even i = 2, 4 .. 256, P and Q unit normals 1/sigma apart, at sigma = 2^(node/16).

    The integrand is positive for even i and entire, so the trapezoidal rule loses no digits to cancellation and its
    error is far below the margin added at the end.
    """
    sigma = 2.0 ** (node / _OCTAVE)
    x = np.arange(-30.0, _EXACT / sigma + 45.0, 0.125)
    u = x / sigma - 0.5 / sigma**2
    with np.errstate(divide="ignore"):
        log_gap = np.maximum(u, 0) + np.log(-np.expm1(-np.abs(u)))
    log_gap = np.maximum(log_gap, -1e4)  # the zero at u = 0
    log_weight = -x * x / 2 + math.log(0.125 / math.sqrt(2 * math.pi))
    out = np.empty(_EXACT // 2)
    for k in range(len(out)):
        values = log_weight + (2 * k + 2) * log_gap
        top = values.max()
        out[k] = top + math.log(np.exp(values - top).sum())
    return out + 1e-10


@lru_cache(maxsize=2)
def _binomials(low: int, high: int) -> tuple[Floats, Floats]:
    """i = 2 .. high, and ``log binom(a, i)`` for the orders a in low .. high (minus infinity where i exceeds a)."""
    from scipy.special import gammaln

    i = np.arange(2.0, high + 1)
    a = ORDERS[(low <= ORDERS) & (high >= ORDERS)][:, None]
    inside = i <= a
    choose = gammaln(a + 1) - gammaln(i + 1) - gammaln(np.where(inside, a - i, 0) + 1)
    return i, np.where(inside, choose, -np.inf)


@lru_cache(maxsize=512)
def _log_terms(noise: float) -> Floats:
    """Theorem 27's factors of ``binom(order, i) q^i`` for i = 2 .. 1024, in logarithms.

    Between two nodes the moments are interpolated linearly in log sigma. They are power series in 1/sigma^2 with
    coefficients of one sign (products of binom(x, 2) expand in the binomials binom(x, i) with whole positive factors),
    hence log-convex in log sigma: the chord lies above, on the side of more epsilon.
    """
    place = math.log2(noise) * _OCTAVE
    node = math.floor(place)
    share = place - node
    even = (1 - share) * _log_moments(node) + share * _log_moments(node + 1)
    i = np.arange(2.0, ORDERS[-1] + 1)
    rate = 1 / noise**2
    plain: Floats = math.log(2) + i * (i - 1) / 2 * rate  # 2 E_Q[(P/Q)^i]
    low = np.floor(i[: _EXACT - 1] / 2).astype(int) - 1
    high = np.ceil(i[: _EXACT - 1] / 2).astype(int) - 1
    central = math.log(4) + 0.5 * (even[low] + even[high])
    central[0] = math.log(4) + math.log(math.expm1(rate)) if rate < 700 else math.log(4) + rate
    plain[: _EXACT - 1] = np.minimum(plain[: _EXACT - 1], central)
    return plain


@lru_cache(maxsize=4096)
def step_renyi(fraction: float, noise: float) -> Floats:
    """The Renyi divergence of one step at every order of `ORDERS`: fixed-size batches, replacement neighbours.

    ``log(1 + sum_i binom(a, i) q^i min(4 sqrt(D_lo D_hi), 2 e^{i(i-1)/(2 sigma^2)})) / (a - 1)`` (Wang et al. 2019,
    Thm 27), and never more than the ``a/(2 sigma^2)`` of a step on everybody, since a batch is a mixture.
    dp-accounting computes the same bound from tables of differences in 0.3 s; here it takes a fraction of a
    millisecond once the moments near this noise are known, so that an optimiser may ask thousands of times.
    """
    must(0 < fraction <= 1, "fraction", "must be above 0 and at most 1", fraction)
    must(_LEAST <= noise <= _MOST, "noise", f"must lie between {_LEAST:g} and {_MOST:g}", noise)
    whole: Floats = ORDERS / (2 * noise**2)
    if fraction == 1:
        return whole
    factors = _log_terms(noise)
    parts = []
    for low, high in ((2, _EXACT), (_EXACT + 1, int(ORDERS[-1]))):  # two blocks: few orders need many terms
        i, choose = _binomials(low, high)
        terms = choose + (factors[: len(i)] + i * math.log(fraction))
        top = terms.max(axis=1)
        parts.append(top + np.log(np.exp(terms - top[:, None]).sum(axis=1)))
    out: Floats = np.minimum(np.logaddexp(0.0, np.concatenate(parts)) / (ORDERS - 1), whole)
    out.setflags(write=False)
    return out


# --- many steps -------------------------------------------------------------------------------------------------------


def convert(renyi: Floats, delta: float, conversion: Conversion = "tight", orders: Floats = ORDERS) -> float:
    """epsilon from Renyi divergences, at least 0.

    "tight": ``R(a) + log(1 - 1/a) - log(a delta)/(a - 1)`` (Canonne, Kamath and Steinke 2020, Prop. 12).
    "classical": ``R(a) - log(delta)/(a - 1)`` (Mironov 2017), as in the code of the dissertation's time.
    """
    must(0 < delta < 1, "delta", "must be strictly between 0 and 1", delta)
    must(conversion in ("tight", "classical"), "conversion", "must be tight or classical", conversion)
    if conversion == "classical":
        result = renyi - math.log(delta) / (orders - 1)
    else:
        result = renyi + np.log1p(-1 / orders) - np.log(orders * delta) / (orders - 1)
    return max(0.0, float(result.min()))


@dataclass(frozen=True, slots=True)
class Training:
    """The numbers that decide what DP-SGD or DP-Adam costs: `noise` is sigma, in units of the sensitivity 2L/m.

    An epoch is ``floor(n/m)`` steps, each on its own sample of m of the n people without replacement.
    """

    people: int
    batch: int
    epochs: int
    noise: float

    def __post_init__(self) -> None:
        must(self.people >= 1, "people", "must be at least 1", self.people)
        must(1 <= self.batch <= self.people, "batch", f"must lie between 1 and people ({self.people})", self.batch)
        must(self.epochs >= 1, "epochs", "must be at least 1", self.epochs)
        must(_LEAST <= self.noise <= _MOST, "noise", f"must lie between {_LEAST:g} and {_MOST:g}", self.noise)

    @property
    def steps(self) -> int:
        return self.epochs * (self.people // self.batch)

    def epsilon(self, delta: float, conversion: Conversion = "tight") -> float:
        """The epsilon at this delta. The step's divergences are kept, so that other epochs only scale them.

        The tight form is also never worse than the exact epsilon of the same steps on everybody (a Gaussian with
        noise ``sigma/sqrt(steps)``), which dominates a step on a sample.
        """
        result = convert(self.steps * step_renyi(self.batch / self.people, self.noise), delta, conversion)
        whole = self.noise / math.sqrt(self.steps)
        if conversion == "tight" and gaussian_profile(1.0, whole, result) <= delta:
            return gaussian_epsilon(1.0, whole, delta)
        return result


# --- output perturbation ----------------------------------------------------------------------------------------------


def _least_epsilon(enough: Callable[[float], bool]) -> float:
    """The least epsilon that suffices, to a relative 1e-12 and rounded up; at least 1e-9."""
    low = high = 1e-9
    while not enough(high):
        low, high = high, high * 2
    for _ in range(200):
        middle = (low + high) / 2
        if not low < middle < high or high - low < 1e-12 * high:
            break
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def gaussian_epsilon(sensitivity: float, sigma: float, delta: float) -> float:
    """The exact epsilon of Gaussian noise at this delta (Balle and Wang 2018; dissertation, Thm 1.1.8), rounded up.

    >>> round(gaussian_epsilon(1.0, 4.0, 1e-6), 4)
    1.0607
    """
    must(math.isfinite(sensitivity) and sensitivity > 0, "sensitivity", "must be positive and finite", sensitivity)
    must(math.isfinite(sigma) and sigma > 0, "sigma", "must be positive and finite", sigma)
    must(0 < delta < 1, "delta", "must be strictly between 0 and 1", delta)
    return _least_epsilon(lambda epsilon: gaussian_profile(sensitivity, sigma, epsilon) <= delta)


@dataclass(frozen=True, slots=True)
class OutputPerturbation:
    """Regularised logistic regression by SGD, with Gaussian noise on the result (Wu et al. 2017, Alg. 2).

    For examples with ``||x|| <= 1`` and regularisation gamma the loss is (1 + gamma)-smooth and gamma-strongly convex.
    Steps ``eta_t = min(1/beta, 1/(gamma t))`` over a fixed order of the data contract by ``1 - gamma eta_t``; the one
    that meets the replaced example also moves the result by ``2 eta_t/m``, the two logistic gradients' distance.
    Whatever the passes and the batches, that leaves at most ``2/(gamma n)``. Wu et al. bound the same step by the whole
    loss's Lipschitz constant ``L = 1 + gamma R = 2`` on the ball ``R = 1/gamma``, which counts the regulariser although
    it is common to both: `published_sensitivity` is twice as large. The ball needs no projection, since a step from
    within it, ``(1 - gamma eta) w - eta s x``, ends within it.

    >>> OutputPerturbation(people=40_000, strength=0.01, sigma=0.1).sensitivity
    0.005
    """

    people: int
    strength: float
    sigma: float

    def __post_init__(self) -> None:
        must(self.people >= 1, "people", "must be at least 1", self.people)
        ok = math.isfinite(self.strength) and self.strength > 0
        must(ok, "strength", "must be positive and finite", self.strength)
        must(math.isfinite(self.sigma) and self.sigma > 0, "sigma", "must be positive and finite", self.sigma)

    @property
    def sensitivity(self) -> float:
        return 2 / (self.strength * self.people)

    @property
    def published_sensitivity(self) -> float:
        """``2 L/(gamma n)`` with L = 2 (Wu et al. 2017)."""
        return 2 * self.sensitivity

    def step(self, t: int) -> float:
        """The learning rate of step t = 1, 2 ..: ``min(1/beta, 1/(gamma t))`` with ``beta = 1 + gamma``."""
        return min(1 / (1 + self.strength), 1 / (self.strength * t))

    def epsilon(self, delta: float) -> float:
        """Exact for Gaussian noise at this sensitivity."""
        return gaussian_epsilon(self.sensitivity, self.sigma, delta)
