"""When local reports are held to the trusted estimate by default, and how tightly: a rule of public numbers.

An anchored blend is ``m_T + (1-w) clip(m_L - m_T, +-c s)``: s is the standard error of the difference between the
groups, so that reports move the trusted estimate by at most ``(1-w) c s``, whatever they say. If nobody lies the
clipping costs something: at ``w = V_L/(V_T + V_L)`` the plain blend and the difference are uncorrelated, and what is
cut off adds ``(1-w)^2 s^2 g(c)``, with ``g(c) = E (|Z| - c)_+^2`` for a standard normal Z. So the mean squared error
grows by the factor ``1 + g(c) V_T/V_L``.

The default is the tightest leash, of 1.5 to 3 standard errors, that costs at most 3 % of the error (its root mean
square) if nobody lies; where none does, the blend stays plain. Only numbers that everybody may know before anything is
drawn decide: group sizes, noise, and a reference for what is unknown of the data.

>>> anchoring(1.0, 2.0).reach, anchoring(5.0, 1.0).reach < 2.2, anchoring(1000.0, 1.0).reach
(1.5, True, None)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from hybridp.errors import InvalidInput
from hybridp.public.budgets import ApproxDP, PureDP, split_off
from hybridp.public.mean import NoiseName, sum_noise
from hybridp.public.randomisers import LEVELS, Randomiser
from hybridp.public.variance import PILOT_VARIANCE

__all__ = ["LOOSEST", "MOST_COST", "SPREAD_SHARE", "TIGHTEST", "Anchoring", "anchoring", "clipping_loss"]
__all__ += ["leash", "mean_anchoring"]

TIGHTEST, LOOSEST = 1.5, 3.0
"""The leash in standard errors of the difference: never shorter by default, never longer."""

SPREAD_SHARE = 0.1
"""The part of the trusted group's epsilon that measures the spread of a mean's values, where nobody states it."""

MOST_COST = 0.03
"""The largest growth of the root mean squared error that the default accepts where nobody lies."""


@dataclass(frozen=True, slots=True)
class Anchoring:
    """The default for two groups: `reach` standard errors, or None for the plain blend; and what it costs.

    `cost` is the growth of the root mean squared error where nobody lies; without a reach, of the loosest leash.
    """

    reach: float | None
    cost: float

    def words(self, plain: str, of: str, reference: str, reach: float | None) -> str:
        """Which blend was taken by default, with which leash, and why: for the receipt."""
        price = f"{100 * self.cost:.2g} % of the error if nobody lies ({reference})"
        if reach is None:
            return (
                f"estimator: {plain} by default: anchoring would cost {price}, more than {MOST_COST:.0%}; dishonest "
                "reports can pull the estimate, and the estimator anchored would hold them"
            )
        return (
            f"estimator: anchored by default: whatever the reports say, they move {of} by at most {reach:.3g} "
            f"standard errors of the groups' difference times their weight; that costs {price}, and up to "
            f"{MOST_COST:.0%} is accepted"
        )

    def of_mean(self, reach: float | None, *, stated: bool) -> str:
        """The same of a mean, with a stated standard deviation or without."""
        at = "at the stated standard deviation" if stated else "at a standard deviation of a fifth of the range"
        return self.words("adaptive", "the trusted mean", at, reach)


def clipping_loss(reach: float) -> float:
    """``E (|Z| - reach)_+^2`` for a standard normal Z.

    >>> round(clipping_loss(0.0), 12), round(clipping_loss(1.5), 4)
    (1.0, 0.0457)
    """
    density = math.exp(-(reach**2) / 2) / math.sqrt(2 * math.pi)
    return max((1 + reach**2) * math.erfc(reach / math.sqrt(2)) - 2 * reach * density, 0.0)


def anchoring(trusted: float, local: float, paid: float | None = None) -> Anchoring:
    """The default for these variances of the groups' estimates.

    `paid` is the trusted one's where a part of its epsilon measures the spread that the leash needs.
    """
    split = trusted if paid is None else paid

    def cost(reach: float) -> float:
        plain, held = trusted * local / (trusted + local), split * local / (split + local)
        return math.sqrt(held / plain * (1 + clipping_loss(reach) * split / local)) - 1

    if not (0 < trusted < math.inf and 0 < local < math.inf):
        return Anchoring(None, math.inf)
    if cost(LOOSEST) > MOST_COST:
        return Anchoring(None, cost(LOOSEST))
    low, high = TIGHTEST, LOOSEST
    if cost(low) <= MOST_COST:
        return Anchoring(low, cost(low))
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if cost(middle) <= MOST_COST else (middle, high)
    return Anchoring(high, cost(high))


def leash(trusted: float, local: float) -> float:
    """The tightest one whose clipping costs at most 3 % for these variances, and else the loosest.

    >>> leash(1.0, 2.0), round(leash(4.0, 1.0), 2), leash(1000.0, 1.0)
    (1.5, 1.9, 3.0)
    """
    return anchoring(trusted, local).reach or LOOSEST


def mean_anchoring(
    promise: PureDP | ApproxDP,
    noise: NoiseName,
    reports: Sequence[tuple[Randomiser, int]],
    sd: float | None,
    *,
    trusted: int,
) -> Anchoring:
    """The default for a mean, from the trusted group's promise and size, and the laws of so many people's reports.

    `sd`, in the unit coordinate, is a stated one. Without it the rule asks at a fifth of the range, around its middle,
    and counts what the trusted group pays to measure its own; the leash is then that of the spread that it finds.

    >>> from hybridp.public.randomisers import best_randomiser
    >>> reports = [(best_randomiser(PureDP(1.0)), 19_000)]
    >>> found = mean_anchoring(PureDP(1.0), "best", reports, None, trusted=1_000)
    >>> found.reach, round(found.cost, 3)
    (1.5, 0.021)
    """
    if not (trusted and any(people for _, people in reports)):
        return Anchoring(None, math.inf)
    variance = PILOT_VARIANCE if sd is None else sd**2

    def trusts(part: PureDP | ApproxDP) -> float:
        return variance / trusted + sum_noise(part, noise).variance * (2 / LEVELS / trusted) ** 2

    def one(law: Randomiser) -> float:
        constant, quadratic = law.variance_terms
        return variance + constant + quadratic * variance

    local = 1 / sum(people / one(law) for law, people in reports)
    if sd is not None:
        return anchoring(trusts(promise), local)
    try:
        return anchoring(trusts(promise), local, trusts(split_off(promise, SPREAD_SHARE)[0]))
    except InvalidInput:  # an epsilon so small that no mechanism keeps a part of it
        return Anchoring(None, math.inf)
