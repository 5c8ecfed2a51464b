"""Privacy budgets, the neighbouring relation they speak of, and conversion.

A budget without its neighbouring relation means nothing, so every budget carries one:

* ``replace-one`` (the default everywhere): two data sets are neighbours when one person's data is *replaced*. The
  number of people is public.
* ``add-remove``: one person's data is *added or taken away*. The number of people is protected too.

>>> round(as_approx(ZCDP(0.125), delta=1e-6).epsilon, 3)
2.419
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from fractions import Fraction
from functools import lru_cache
from itertools import pairwise
from numbers import Real

from hybridp.errors import PromiseWarning, must

__all__ = ["LOCAL_LIMIT", "ApproxDP", "Budget", "Guarantee", "Neighbours", "PureDP", "ZCDP", "added", "as_approx"]
__all__ += ["doubts", "hides_little", "promised", "split", "split_off", "turning_point", "warned", "zcdp_for"]


class Neighbours(StrEnum):
    """When two data sets count as neighbours."""

    REPLACE_ONE = "replace-one"
    ADD_REMOVE = "add-remove"


def _number(value: object) -> bool:
    return isinstance(value, Real)


def _privacy_level(name: str, value: float) -> None:
    """Levels run from 0 (no influence at all) to infinity (public)."""
    must(_number(value) and value >= 0, name, "must be zero or positive", value)


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
        ok = _number(self.delta) and 0 <= self.delta < 1
        must(ok, "delta", "must be at least 0 and less than 1", self.delta)

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
Budget = Guarantee | ZCDP


def promised(epsilon: float, delta: float = 0.0, neighbours: Neighbours = Neighbours.REPLACE_ONE) -> PureDP | ApproxDP:
    """The budget that two numbers state: pure where no delta is.

    >>> promised(1.0), promised(1.0, 1e-6).delta
    (PureDP(epsilon=1.0, neighbours=<Neighbours.REPLACE_ONE: 'replace-one'>), 1e-06)
    """
    return ApproxDP(epsilon, delta, neighbours) if delta else PureDP(epsilon, neighbours)


def as_approx(budget: Budget, delta: float) -> ApproxDP:
    """The budget as (epsilon, delta)-DP for the given delta, rounded towards a larger epsilon.

    For zCDP, over all alpha > 1, the least ``rho alpha + (ln(1/delta) + (alpha-1) ln(1-1/alpha) - ln alpha)/(alpha-1)``
    (Canonne, Kamath, Steinke 2020, Prop. 12), which is never above the familiar ``rho + 2 sqrt(rho ln(1/delta))``.
    """
    if isinstance(budget, PureDP):
        must(0 <= delta < 1, "delta", "must be at least 0 and less than 1", delta)
        return ApproxDP(budget.epsilon, delta, budget.neighbours)
    if isinstance(budget, ApproxDP):
        must(delta >= budget.delta, "delta", f"must be at least the budget's own {budget.delta:.3g}", delta)
        return replace(budget, delta=delta)
    must(0 < delta < 1, "delta", "must be strictly between 0 and 1", delta)
    return ApproxDP(_zcdp_epsilon(budget.rho, delta), delta, budget.neighbours)


def _zcdp_epsilon(rho: float, delta: float) -> float:
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

    >>> budget = zcdp_for(1.0, 1e-6)
    >>> as_approx(budget, 1e-6).epsilon <= 1.0
    True
    """
    must(math.isfinite(epsilon) and epsilon > 0, "epsilon", "must be positive and finite", epsilon)
    must(0 < delta < 1, "delta", "must be strictly between 0 and 1", delta)
    return ZCDP(turning_point(0.0, epsilon, lambda rho: _zcdp_epsilon(rho, delta) > epsilon)[0])


def turning_point(low: float, high: float, holds: Callable[[float], bool], *, near: float = 0.0) -> tuple[float, float]:
    """The last number where something does not hold yet and the first where it does, between two such numbers: by
    halves, until no double lies between them, or they are this near to each other, relatively."""
    while low < (middle := (low + high) / 2) < high and high - low > near * high:
        low, high = (low, middle) if holds(middle) else (middle, high)
    return low, high


def split_off(budget: PureDP | ApproxDP, share: float) -> tuple[PureDP | ApproxDP, PureDP]:
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
    ends = [Fraction(0)]
    for weight in weights:
        ends.append(ends[-1] + Fraction(repr(float(weight))))

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
