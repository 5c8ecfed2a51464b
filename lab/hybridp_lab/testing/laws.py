"""What each mechanism promises, computed a second time from the mathematical definition of its distribution.

Nothing here calls the library. A law is built from a mechanism's public parameters; `delta(epsilon)` is the
hockey-stick divergence ``sum (P - e^epsilon Q)_+`` of its outputs for the worst pair of neighbours, to 25 digits or
more, and `loss` the supremum of ``ln P/Q``. Densities are integrated numerically, lattices are enumerated or summed
by a series whose remainder is known, and probabilities that are multiples of 2^-64 stay fractions.

>>> import math
>>> law = laplace(sensitivity=1.0, scale=2.0)
>>> float(law.loss), round(float(law.delta(0.0)), 12) == round(1 - math.exp(-0.25), 12)
(0.5, True)
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from fractions import Fraction
from functools import wraps
from typing import ParamSpec, TypeVar

import mpmath as mp

from hybridp_lab.testing import Law

__all__ = ["Law", "discrete_gaussian", "discrete_laplace", "enumerated", "gaussian", "k_response", "laplace"]
__all__ += ["of_outcomes", "precise", "real", "unstated"]

DIGITS = 40
WORD = 2**64

_P = ParamSpec("_P")
_T = TypeVar("_T")


def precise(f: Callable[_P, _T]) -> Callable[_P, _T]:
    """Evaluate with DIGITS digits, whatever the caller's precision."""

    @wraps(f)
    def inner(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        with mp.workdps(DIGITS):
            return f(*args, **kwargs)

    return inner


def real(x: float | Fraction) -> mp.mpf:
    """A float or a fraction as exactly the number that it is."""
    exact = Fraction(x)
    return mp.mpf(exact.numerator) / exact.denominator


# --- densities --------------------------------------------------------------------------------------------------------


def _stick(log_p: Callable[[mp.mpf], mp.mpf], shift: mp.mpf, width: mp.mpf, epsilon: float) -> mp.mpf:
    """Integral of ``(p(x) - e^epsilon p(x - shift))_+`` for a log-concave even density, whose ratio falls with x."""
    e = mp.mpf(epsilon)
    reach = 70 * width + shift

    def ratio(x: mp.mpf) -> mp.mpf:
        return log_p(x) - log_p(x - shift)

    low, high = -reach, reach
    # A ratio within rounding of epsilon on a whole half-line (pure Laplace noise) contributes nothing.
    if ratio(low) <= e + mp.mpf(10) ** (8 - DIGITS):
        return mp.mpf(0)
    for _ in range(160):
        middle = (low + high) / 2
        low, high = (middle, high) if ratio(middle) > e else (low, middle)
    kinks = [k for k in (mp.mpf(0), shift) if low - 60 * width < k < low]
    cuts = sorted({low - j * width for j in (60, 44, 32, 24, 16, 12, 8, 5, 3, 2, 1)} | set(kinks) | {low})
    return mp.quadgl(lambda x: mp.exp(log_p(x)) - mp.exp(e + log_p(x - shift)), cuts)


def _of_density(log_p: Callable[[mp.mpf], mp.mpf], shift: mp.mpf, width: mp.mpf, loss: mp.mpf, ends: str) -> Law:
    """The law of noise with this even density; its variance is integrated up to these multiples of the width."""
    cuts = [int(j) * width for j in ends.split()]
    variance = precise(lambda _: 2 * mp.quadgl(lambda x: x**2 * mp.exp(log_p(x)), cuts))
    return Law(precise(lambda epsilon: _stick(log_p, shift, width, epsilon)), loss, variance)


@precise
def laplace(sensitivity: float, scale: float, **_: object) -> Law:
    """Density ``exp(-|x|/b)/(2b)``."""
    b, d = real(scale), real(sensitivity)
    return _of_density(lambda x: -abs(x) / b - mp.log(2 * b), d, b, d / b, "0 1 3 7 15 30 60 120")


@precise
def gaussian(sensitivity: float, sigma: float, **_: object) -> Law:
    """Density ``exp(-x^2/(2 s^2))/(s sqrt(2 pi))``."""
    s, d = real(sigma), real(sensitivity)
    return _of_density(
        lambda x: -((x / s) ** 2) / 2 - mp.log(s * mp.sqrt(2 * mp.pi)), d, s, mp.inf, "0 1 2 4 7 11 18"
    )


# --- lattices ---------------------------------------------------------------------------------------------------------


def _last_above(ratio: Callable[[int], mp.mpf], e: mp.mpf, reach: int) -> int:
    """The last integer whose (falling) log-ratio exceeds epsilon, by bisection."""
    return bisect_left(range(1 - reach, reach), -e, key=lambda k: -ratio(k)) - reach


def enumerated(mass: dict[int, mp.mpf], shift: int, epsilon: float) -> mp.mpf:
    """The hockey stick by brute force: every integer in turn."""
    factor = mp.exp(mp.mpf(epsilon))
    zero = mp.mpf(0)
    return mp.fsum(max(zero, p - factor * mass.get(k - shift, zero)) for k, p in mass.items() if k - shift in mass)


@precise
def discrete_laplace(sensitivity: int, scale: float, **_: object) -> Law:
    """``P(k)`` proportional to ``r^|k|``, ``r = e^(-1/scale)``; half-lines are geometric series."""
    b, d = real(scale), sensitivity
    r = mp.exp(-1 / b)

    def above(k: int) -> mp.mpf:
        """P(X >= k), k > 0: ``(1-r)/(1+r) (r^k + r^(k+1) + ...)``."""
        return mp.exp(-k / b) / (1 + r)

    def up_to(k: int) -> mp.mpf:
        return above(-k) if k < 0 else 1 - above(k + 1)

    @precise
    def delta(epsilon: float) -> mp.mpf:
        e = mp.mpf(epsilon)
        if d / b <= e:
            return mp.mpf(0)
        last = _last_above(lambda k: (abs(k - d) - abs(k)) / b, e, d + 1)
        return up_to(last) - mp.exp(e) * up_to(last - d)

    # x d/dx applied twice to the geometric series: sum k^2 r^k = r (1+r)/(1-r)^3, both sides of 0.
    variance = precise(lambda _: 2 * (1 - r) / (1 + r) * r * (1 + r) / (1 - r) ** 3)
    return Law(delta, d / b, variance)


@precise
def discrete_gaussian(sensitivity: int, sigma: float, **_: object) -> Law:
    """``P(k)`` proportional to ``exp(-k^2/(2 s^2))``: enumerated, or on a fine lattice by Euler-Maclaurin.

    ``sum_{k>=m} f(k) = int_m^inf f + f(m)/2 - f'(m)/12 + f'''(m)/720 - ...``, the next term being of order s^-5.
    """
    s, d = real(sigma), sensitivity
    small = s < 300

    def f(k: int) -> mp.mpf:
        return mp.exp(-((k / s) ** 2) / 2)

    if small:
        reach = int(18 * s) + d + 40
        weights = {k: f(k) for k in range(-reach, reach + 1)}
        total = mp.fsum(weights.values())
        mass = {k: w / total for k, w in weights.items()}
    else:
        total = s * mp.sqrt(2 * mp.pi)  # Poisson summation: the correction is 2 e^(-2 pi^2 s^2)

    def above(m: int) -> mp.mpf:
        x, at = m / s, f(m)
        first, third = -x / s * at, (3 * x - x**3) / s**3 * at
        tail = s * mp.sqrt(mp.pi / 2) * mp.erfc(x / mp.sqrt(2))
        return (tail + at / 2 - first / 12 + third / 720) / total

    @precise
    def delta(epsilon: float) -> mp.mpf:
        e = mp.mpf(epsilon)
        if small:
            return enumerated(mass, d, epsilon)
        last = _last_above(lambda k: (mp.mpf(k - d) ** 2 - mp.mpf(k) ** 2) / (2 * s**2), e, d + int(100 * s))
        # P(X <= last) - e^epsilon P(X <= last - d), mirrored so that both are upper tails.
        return above(-last) - mp.exp(e) * above(d - last)

    return Law(delta, mp.inf, precise(lambda _: mp.fsum(k**2 * p for k, p in mass.items()) if small else s**2))


# --- local randomisers, in fractions of 2^64 --------------------------------------------------------------------------


def unstated(_: float) -> mp.mpf:
    raise NotImplementedError("these laws are about privacy alone")


def of_outcomes(rows: Sequence[tuple[Fraction, Fraction]], variance: Callable[[float], mp.mpf] = unstated) -> Law:
    """Outcomes in turn, each with its probability for either of two values that differ as much as they can."""

    @precise
    def delta(epsilon: float) -> mp.mpf:
        factor = mp.exp(mp.mpf(epsilon))
        return mp.fsum(max(mp.mpf(0), real(p) - factor * real(q)) for p, q in rows)

    return Law(delta, mp.log(real(max(p / q for p, q in rows if q))), precise(variance))


@precise
def k_response(categories: int, keep: int, **_: object) -> Law:
    """The truth with probability keep/2^64, each other category with an equal share of the rest."""
    truth = Fraction(keep, WORD)
    other = (1 - truth) / (categories - 1)

    def variance(share: float) -> mp.mpf:
        # The debiased indicator is a (y - other)/(truth - other) of a bit y that is 1 with probability `seen`.
        seen = Fraction(share) * truth + (1 - Fraction(share)) * other
        return real((seen - seen**2) / (truth - other) ** 2)

    return of_outcomes([(truth, other), (other, truth), *[(other, other)] * (categories - 2)], variance)
