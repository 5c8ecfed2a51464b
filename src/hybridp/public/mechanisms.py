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

Privacy budgets, the neighbouring relation they speak of, and conversion.

A budget without its neighbouring relation means nothing, so every budget carries one:

* ``replace-one`` (the default everywhere): two data sets are neighbours when one person's data is *replaced*. The
  number of people is public.
* ``add-remove``: one person's data is *added or taken away*. The number of people is protected too.

>>> round(zcdp_epsilon(0.125, delta=1e-6), 3)
2.419
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from itertools import accumulate, pairwise
from numbers import Real
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import numpy as np

from hybridp.errors import InvalidInput, PromiseWarning, must

if TYPE_CHECKING:
    from hybridp.public.study import Question

__all__ = ["LOCAL_LIMIT", "ZCDP", "AddedNoise", "ApproxDP", "DiscreteGaussian", "DiscreteLaplace", "Form", "Guarantee"]
__all__ += ["Neighbours", "NoiseName", "PureDP", "added", "best_form", "best_noise", "chances", "discrete_gaussian"]
__all__ += ["discrete_gaussian_profile", "discrete_laplace", "doubts", "gaussian_is_enough", "gaussian_profile"]
__all__ += ["gaussian_sigma", "hides_little", "laplace_profile", "laplace_scale", "promised", "split", "split_off"]
__all__ += ["turning_point", "vector_gaussian", "warned", "zcdp_epsilon", "zcdp_for"]


class Neighbours(StrEnum):
    """When two data sets count as neighbours."""

    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"


def _privacy_level(name: str, value: Any) -> None:
    """Levels run from 0 (no influence at all) to infinity (public)."""
    must(isinstance(value, Real) and float(value) >= 0, name, "must be zero or positive", value)


@dataclass(frozen=True, slots=True)
class PureDP:
    """epsilon-DP: ``P[M(D) in S] <= e^epsilon P[M(D') in S]`` for neighbours D, D'."""

    epsilon: float
    neighbours: Neighbours = Neighbours.REPLACE_ONE

    def __post_init__(self) -> None:
        _privacy_level("epsilon", self.epsilon)

    @property
    def delta(self) -> float:
        return 0.0

    def __str__(self) -> str:
        return f"{self.epsilon:.6g}-DP ({self.neighbours})"


@dataclass(frozen=True, slots=True)
class ApproxDP:
    """(epsilon, delta)-DP: ``P[M(D) in S] <= e^epsilon P[M(D') in S] + delta`` (dissertation, Def. 1.1.1)."""

    epsilon: float
    delta: float
    neighbours: Neighbours = Neighbours.REPLACE_ONE

    def __post_init__(self) -> None:
        _privacy_level("epsilon", self.epsilon)
        _privacy_level("delta", self.delta)
        must(self.delta < 1, "delta", "must be at least 0 and less than 1", self.delta)

    def __str__(self) -> str:
        return f"({self.epsilon:.6g}, {self.delta:.3g})-DP ({self.neighbours})"


@dataclass(frozen=True, slots=True)
class ZCDP:
    """rho-zCDP: Rényi divergence of every order alpha at most rho alpha (Bun and Steinke 2016)."""

    rho: float
    neighbours: Neighbours = Neighbours.REPLACE_ONE

    def __post_init__(self) -> None:
        _privacy_level("rho", self.rho)

    def __str__(self) -> str:
        return f"{self.rho:.6g}-zCDP ({self.neighbours})"


Guarantee = PureDP | ApproxDP
Whole = TypeVar("Whole", bound=PureDP | ApproxDP)


def promised(epsilon: float, delta: float = 0.0, neighbours: Neighbours = Neighbours.REPLACE_ONE) -> PureDP | ApproxDP:
    """The budget that two numbers state: pure where no delta is.

    >>> promised(1.0), promised(1.0, 1e-6).delta
    (PureDP(epsilon=1.0, neighbours=<Neighbours.REPLACE_ONE: 'replace-one'>), 1e-06)
    """
    return ApproxDP(epsilon, delta, neighbours) if delta else PureDP(epsilon, neighbours)


def zcdp_epsilon(rho: float, delta: float) -> float:
    """The epsilon of rho-zCDP as (epsilon, delta)-DP for the given delta, rounded towards a larger one.

    Over all alpha > 1, the least ``rho alpha + (ln(1/delta) + (alpha-1) ln(1-1/alpha) - ln alpha)/(alpha-1)`` (Canonne,
    Kamath, Steinke 2020, Prop. 12), which is never above the familiar ``rho + 2 sqrt(rho ln(1/delta))``.
    """
    _privacy_level("rho", rho)
    must(0 < delta < 1, "delta", "must be strictly between 0 and 1", delta)
    if rho == 0 or math.isinf(rho):
        return rho
    log_delta = math.log(delta)

    def epsilon_at(log_excess: float) -> float:
        excess = math.exp(log_excess)  # alpha - 1
        alpha = 1 + excess
        return rho * alpha + (-log_delta - math.log(alpha)) / excess + math.log(excess / alpha)

    # Every alpha gives a valid epsilon, so an inexact minimum errs towards the safe side.
    low, high = -30.0, 60.0
    golden = (math.sqrt(5) - 1) / 2
    for _ in range(120):
        left, right = high - golden * (high - low), low + golden * (high - low)
        if epsilon_at(left) < epsilon_at(right):
            high = right
        else:
            low = left
    classical = rho + 2 * math.sqrt(rho * -log_delta)
    return max(0.0, min(epsilon_at((low + high) / 2) * (1 + 1e-12), classical * (1 + 1e-12)))


@lru_cache(maxsize=1024, typed=True)
def zcdp_for(epsilon: float, delta: float) -> ZCDP:
    """The largest rho whose conversion gives (epsilon, delta)-DP, rounded towards less rho.

    >>> zcdp_epsilon(zcdp_for(1.0, 1e-6).rho, 1e-6) <= 1.0
    True
    """
    must(math.isfinite(epsilon) and epsilon > 0, "epsilon", "must be positive and finite", epsilon)
    return ZCDP(turning_point(0.0, epsilon, lambda rho: zcdp_epsilon(rho, delta) > epsilon)[0])


def turning_point(low: float, high: float, holds: Callable[[float], bool], *, near: float = 0.0) -> tuple[float, float]:
    """The last number where something does not hold yet and the first where it does, between two such numbers: by
    halves, until no double lies between them, or they are this near to each other, relatively."""
    while low < (middle := (low + high) / 2) < high and high - low > near * high:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def split_off(budget: Whole, share: float) -> tuple[Whole, PureDP]:
    """What is left of a budget, and the share of its epsilon that is taken off: together never more than it was.

    Both are whole multiples of 10^-12, as a ledger counts, and rounded down.

    >>> split_off(PureDP(1.0), 0.1)[0].epsilon, split_off(PureDP(1.0), 0.1)[1].epsilon
    (0.9, 0.1)
    """
    must(0 < share < 1, "share", "must be strictly between 0 and 1", share)
    unit = 10**12
    whole = math.floor(Fraction(repr(float(budget.epsilon))) * unit)
    part = math.floor(Fraction(repr(float(share))) * whole)
    must(part > 0, "share", "must leave some epsilon on both sides", share)
    return replace(budget, epsilon=(whole - part) / unit), PureDP(part / unit, budget.neighbours)


def split(budget: PureDP | ApproxDP, weights: Sequence[float]) -> list[PureDP | ApproxDP]:
    """One budget in parts that are to each other as the weights, and together are it exactly.

    Parts are whole multiples of 10^-12 of an epsilon and 10^-18 of a delta, as a ledger counts (of fewer digits where a
    double has no more); what the budget has beyond those is lost, never gained.

    >>> [part.epsilon for part in split(PureDP(1.0), [1, 1, 1])]
    [0.333333333333, 0.333333333333, 0.333333333334]
    """
    must(bool(weights) and all(w > 0 for w in weights), "weights", "must be positive", list(weights))
    ends = list(accumulate((Fraction(repr(float(weight))) for weight in weights), initial=Fraction(0)))

    def parts(level: float, unit: int) -> list[float]:
        while level * unit >= 2**53:  # a double holds every part exactly, as it is written
            unit //= 1000
        whole = math.floor(Fraction(repr(float(level))) * unit)
        marks = [math.floor(whole * end / ends[-1]) for end in ends]
        return [(b - a) / unit for a, b in pairwise(marks)]

    epsilons = parts(budget.epsilon, 10**12)
    must(all(epsilons), "weights", "must leave some epsilon to every part", list(weights))
    if isinstance(budget, PureDP):
        return [replace(budget, epsilon=epsilon) for epsilon in epsilons]
    deltas = parts(budget.delta, 10**18)
    return [replace(budget, epsilon=e, delta=d) for e, d in zip(epsilons, deltas, strict=True)]


def added(budgets: Sequence[PureDP | ApproxDP]) -> PureDP | ApproxDP:
    """Their sum (basic composition) as written, digit by digit: one of doubles could be a last digit more.

    >>> added([PureDP(0.1), PureDP(0.2)]).epsilon
    0.3
    """
    epsilon, delta = (float(sum(Fraction(repr(float(getattr(one, name)))) for one in budgets))
                      for name in ("epsilon", "delta"))  # fmt: skip
    return promised(epsilon, delta, budgets[0].neighbours)


LOCAL_LIMIT = 3.0
"""The largest epsilon at which a randomised report is offered to people who trust nobody: there a guess between two
answers is right at most about 95 times in 100. Above it a report is called what it is."""


def hides_little(epsilon: float, delta: float = 0.0) -> str:
    """What is said of a report above the limit; nothing at or below it.

    >>> hides_little(3.0)
    ''
    >>> hides_little(4.0)
    'it hides little: a guess between two answers may be right about 98 times in 100'
    """
    if epsilon <= LOCAL_LIMIT:
        return ""
    right = 100 * (1 - (1 - delta) / (1 + math.exp(min(epsilon, 700.0))))
    often = "over 99" if right > 99.5 else f"about {right:.0f}"
    return f"it hides little: a guess between two answers may be right {often} times in 100"


def doubts(budget: PureDP | ApproxDP, people: int) -> tuple[str, ...]:
    """What somebody should hear before they rely on such a promise to so many people; nothing for a sound one.

    >>> doubts(ApproxDP(1.0, 1e-6), 1000)
    ()
    >>> doubts(PureDP(12.0), 1000)
    ('epsilon 12 is above 10: what was learned may multiply the odds on a person by 1.63e+05',)
    """
    result = []
    if budget.epsilon > 10:
        odds = f"{math.exp(min(budget.epsilon, 700.0)):.3g}"
        result.append(
            f"epsilon {budget.epsilon:g} is above 10: what was learned may multiply the odds on a person by {odds}"
        )
    if budget.delta * people >= 1:
        result.append(
            f"delta {budget.delta:g} is not below 1/n ({1 / people:.3g} for {people:,} people): to publish one of them "
            "at random, raw, would keep it"
        )
    return tuple(result)


def warned(promises: Iterable[Guarantee], people: int) -> tuple[str, ...]:
    """What must be said of these promises, as warnings (`PromiseWarning`) and as lines for the receipt."""
    said = tuple(dict.fromkeys(doubt for promise in promises for doubt in doubts(promise, people)))
    for doubt in said:
        warnings.warn(doubt, PromiseWarning, stacklevel=3)
    return tuple(f"WARNING: {doubt}" for doubt in said)


# --- what a ledger is asked for ---------------------------------------------------------------------------------------

SEALED = ", for one estimate published alone"
"""Ends the mechanism of reports whose people are promised an amplification: they are released once."""
SHARES = "(share of own epsilon)"
"""Ends the name of an account that counts in shares of everybody's own epsilon: 1 stands for all of it."""


@dataclass(frozen=True, slots=True)
class Charge:
    """What one use of a group's data costs.

    `digest` stands for a set of local reports, whatever their order: the very same ones are charged once, however often
    they are used, because using them again is post-processing. `collection` is a name for such a set: one name, one
    digest. A set that has grown is another set, and is charged again: whether the reports that came are by new people
    or by the same ones cannot be seen. `beside` is the digest of a set that other people sent: where that one is paid
    for at this price, a set beside it takes nothing more, since everybody still sent one report; there is one such set
    for each `collection`, which then names a phase of the study, and any other is charged. `noise` (mechanism, noise
    multiplier, and the sensitivity in steps of the lattice that it was drawn on) is kept so that the whole history can
    be composed more tightly than by adding up.
    """

    people: str
    budget: PureDP | ApproxDP
    mechanism: str
    purpose: str
    collection: str | None = None
    noise: tuple[str, float] | tuple[str, float, int] | None = None
    digest: str | None = None
    beside: str | None = None


# --- mechanisms -------------------------------------------------------------------------------------------------------

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
    return _around(value, enough, up=1.001, down=1.0)


def _around(guess: float, enough: Callable[[float], bool], *, up: float, down: float) -> float:
    """The least float for which `enough` holds, sought by these factors above a guess and below it."""
    low = high = guess
    while not enough(high):
        high *= up
    while enough(low):
        low *= down
    return turning_point(low, high, enough)[1]


def _cautious(guarantee: Guarantee) -> float:
    """The delta to calibrate for: a little less, so that rounding cannot exceed the stated one; 0 when it is tiny."""
    return max(guarantee.delta - 2.0**-49 * (1 + guarantee.epsilon), 0.0)


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
    from scipy.special import log_ndtr, ndtr

    if first <= 0 or epsilon == 0:
        # The enclosure needs the falling side; by symmetry the body is at most one minus the far tail.
        upper = float(ndtr(-(first - 1) / sigma)) + 1 / sigma
        lower = max(0.0, float(ndtr(-(first + d) / sigma)) - 1 / sigma)
        return max(0.0, upper - math.exp(epsilon) * lower)
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
    epsilon, delta = guarantee.epsilon, guarantee.delta
    start = sensitivity / epsilon
    return _around(start, lambda sigma: gaussian_profile(sensitivity, sigma, epsilon) <= delta, up=2, down=0.5)


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
        return max(0.0, self.cdf(last) - math.exp(epsilon) * self.cdf(last - self.sensitivity))

    def cdf(self, k: float) -> float:
        """The probability that the noise is at most k."""
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


AddedNoise = DiscreteLaplace | DiscreteGaussian


def discrete_laplace(guarantee: Guarantee, sensitivity: int) -> DiscreteLaplace:
    """The least discrete Laplace noise for the guarantee, found from the continuous calibration."""
    start = laplace_scale(guarantee, sensitivity)
    goal = _cautious(guarantee)
    calibrated = ApproxDP(guarantee.epsilon, goal) if goal else PureDP(guarantee.epsilon)
    enough = _constructs(lambda scale: DiscreteLaplace(calibrated, sensitivity, scale))
    return DiscreteLaplace(guarantee, sensitivity, _least(start, enough))


def discrete_gaussian(guarantee: ApproxDP, sensitivity: int) -> DiscreteGaussian:
    """The least discrete Gaussian noise for the guarantee, found from the analytic calibration."""
    start = gaussian_sigma(guarantee, sensitivity)
    calibrated = ApproxDP(guarantee.epsilon, guarantee.delta * (1 - 1e-9))
    enough = _constructs(lambda sigma: DiscreteGaussian(calibrated, sensitivity, sigma))
    # On a coarse lattice less may do.
    return DiscreteGaussian(guarantee, sensitivity, _around(start, enough, up=1.0001, down=0.9))


# --- several sums at once ---------------------------------------------------------------------------------------------


def gaussian_is_enough(guarantee: ApproxDP, sensitivity: int, dimensions: int, sigma: float) -> bool:
    """Whether discrete Gaussian noise of this sigma in every coordinate is certain to keep the promise."""
    epsilon, delta, d = guarantee.epsilon, guarantee.delta, dimensions
    if zcdp_epsilon((sensitivity / sigma) ** 2 / 2 * (1 + 1e-12), delta) <= epsilon:
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


def best_noise(guarantee: Guarantee, name: NoiseName, l1: int, l2: int, sums: int | None = None) -> AddedNoise:
    """The noise of each of so many sums that a person moves by at most `l1` and `l2`; None for one sum alone.

    Laplace, Gaussian (needs delta), or the one of less variance. The sharper Laplace scale that a delta buys is a
    statement about one sum (Thm 1.1.5 of the dissertation): several leave their delta unspent.
    """
    must(name in ("laplace", "gaussian", "best"), "noise", "must be one of laplace, gaussian, best", name)
    result: list[AddedNoise] = []
    if name != "gaussian":
        spends_delta = sums is None and name == "best"
        result.append(discrete_laplace(guarantee if spends_delta else PureDP(guarantee.epsilon), l1))
    if name != "laplace" and guarantee.delta > 0:
        promise = ApproxDP(guarantee.epsilon, guarantee.delta)
        result.append(discrete_gaussian(promise, l2) if sums is None else vector_gaussian(promise, l2, sums))
    must(bool(result), "delta", "must be positive for Gaussian noise", 0)
    return min(result, key=lambda noise: noise.variance)


# --- several questions under one promise ------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Form:
    """How several questions share a promise, and why; `ratios` are the local errors if drawn over those if split."""

    drawn: bool
    why: str
    ratios: Mapping[str, float]


def chances(questions: Sequence[Question]) -> tuple[float, ...]:
    whole = math.fsum(question.weight for question in questions)
    return tuple(question.weight / whole for question in questions)


def best_form(questions: Sequence[Question], promise: Guarantee) -> Form:
    """Split the promise over the questions, or let every local person answer one with the whole of it: whichever
    predicts the smaller local errors, by the mean logarithm of their ratios, weighted as questions are.

    A device draws the question by the weights, whatever its person's data. With m questions of one kind and weight the
    variance of a question's local estimate is then ``m (s + v(epsilon))/n`` in place of ``(s + v(epsilon/m))/n``, s
    being the variance among people and v that of a report: drawing wins but where v is flat, at a large epsilon. Both
    are known from the declaration alone, so that devices and curator agree. Trusted people answer everything.

    >>> from hybridp.public.study import Question
    >>> pay, age = (Question.of({"name": n, "kind": "number", "lower": 0, "upper": 9}) for n in ("pay", "age"))
    >>> best_form((pay, age), PureDP(1.0)).drawn, best_form((pay, age), PureDP(12.0)).drawn
    (True, False)
    """
    for question in questions:
        if reason := question.asks_everybody():
            return Form(False, f"split over the questions, because {reason}", {})
    parts, drawn = split(promise, [question.weight for question in questions]), chances(questions)
    ratios = {}
    for question, part, chance in zip(questions, parts, drawn, strict=True):
        whole, own = _variance(question, promise) / chance, _variance(question, part)
        ratios[question.name] = 1.0 if whole == own else math.sqrt(whole / own) if own < math.inf else 0.0
    gain = sum(
        chance * (math.log(ratio) if ratio else -math.inf) for chance, ratio in zip(drawn, ratios.values(), strict=True)
    )
    told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    other = ", ".join(f"{name} {1 / ratio if ratio else math.inf:.2f}" for name, ratio in ratios.items())
    said = "because that predicts less error (local people's standard errors, over those of the other form: "
    if gain < 0:
        return Form(True, f"one drawn question for every local person, {said}{told})", ratios)
    return Form(False, f"split over the questions, {said}{other})", ratios)


def _variance(question: Question, promise: Guarantee) -> float:
    """Of what one local person tells; infinite where no report can be made."""
    try:
        return question.report_variance(promise)
    except InvalidInput:
        return math.inf
