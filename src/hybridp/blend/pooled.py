"""Reports of different randomisers as one group: people who trust nobody, and people whose reports were mixed.

Group g has n_g reports with noise v_g. Its mean has a share ``a_g`` of the pooled mean, in proportion to
``n_g/(var + v_g)`` at a public guess of the data's variance, so that no report moves the shares. The pooled mean has
the variance of ``n = 1/sum(a_g^2/n_g)`` reports with the noise ``sum(b_g v_g)``, where ``b_g = n a_g^2/n_g`` add up to
1: that is a `LocalSummary`, and blends like any other. With one randomiser it is their plain sum. Where the groups may
differ, their shares are stated: those of their people.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.mean import PILOT_VARIANCE
from hybridp.public.messages import LocalSummary
from hybridp.public.randomisers import Randomiser

__all__ = ["pooled", "shares"]


@dataclass(frozen=True, slots=True)
class _Mixture:
    """The noise of a pooled report: the figures of a randomiser that a blend reads."""

    parts: tuple[Randomiser, ...]
    shares: tuple[float, ...]

    name = "pooled"

    @property
    def guarantee(self) -> PureDP | ApproxDP:
        """The weakest of them: nobody in the group has less."""
        return max((part.guarantee for part in self.parts), key=lambda g: (g.epsilon, g.delta))

    @property
    def variance_terms(self) -> tuple[float, float]:
        terms = [part.variance_terms for part in self.parts]
        first, second = (sum(b * t[i] for b, t in zip(self.shares, terms, strict=True)) for i in (0, 1))
        return first, second

    @property
    def worst_variance(self) -> float:
        return sum(b * part.worst_variance for b, part in zip(self.shares, self.parts, strict=True))

    @property
    def bound(self) -> float:
        return max(part.bound for part in self.parts)

    def square_deviation(self, mean: float, spread: float) -> float:
        each = [part.square_deviation(mean, spread) for part in self.parts]
        return sum(b * one for b, one in zip(self.shares, each, strict=True))


def _usual_noise(randomiser: Randomiser) -> float:
    """The noise of a report on values that are spread evenly over the bounds, whose mean square is a third."""
    constant, quadratic = randomiser.variance_terms
    return constant + quadratic / 3


def shares(groups: Sequence[LocalSummary]) -> list[float]:
    """Each group's share of the pooled mean: by public numbers alone, so that no report moves it."""
    weights = [group.people / (PILOT_VARIANCE + _usual_noise(group.randomiser)) for group in groups]
    return [weight / sum(weights) for weight in weights]


def pooled(groups: Sequence[LocalSummary], by: Sequence[float] | None = None) -> LocalSummary | None:
    """The groups as one; None where nobody reported. Each counts in proportion to `by`, or by its precision.

    >>> from hybridp.public.randomisers import dithered_bit
    >>> weak, strong = dithered_bit(PureDP(1.0)), dithered_bit(PureDP(4.0))
    >>> both = pooled([LocalSummary(1000, 100.0, 5000.0, weak), LocalSummary(1000, 120.0, 1200.0, strong)])
    >>> 0.115 < both.mean < 0.12  # the better reports decide
    True
    """
    stated = [1.0] * len(groups) if by is None else by
    some = [group for group in groups if group.people]
    if not some:
        return None
    heard = [weight for group, weight in zip(groups, stated, strict=True) if group.people]
    total = some[0]
    alike = by is None or len({group.people / weight for group, weight in zip(some, heard, strict=True)}) == 1
    if alike and all(group.randomiser == total.randomiser for group in some):
        for group in some[1:]:
            total = total + group
        return total
    share = shares(some) if by is None else [weight / sum(heard) for weight in heard]
    people = 1 / sum(a * a / group.people for a, group in zip(share, some, strict=True))
    parts = tuple(people * a * a / group.people for a, group in zip(share, some, strict=True))
    mixture = cast("Randomiser", _Mixture(tuple(group.randomiser for group in some), parts))
    whole = max(1, int(people))  # rounded down: never surer than it is
    mean = sum(a * group.mean for a, group in zip(share, some, strict=True))
    square = sum(b * group.squares / group.people for b, group in zip(parts, some, strict=True))
    if by is not None:  # each around its own mean: they may differ
        square = mean**2 + sum(b * group.second_moment(group.mean) for b, group in zip(parts, some, strict=True))
    return LocalSummary(whole, mean * whole, square * whole, mixture)
