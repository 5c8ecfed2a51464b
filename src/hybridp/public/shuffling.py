"""Shuffling: what a mixer that keeps quiet adds to reports that are private by themselves.

n people send a report of the same `local_epsilon`-DP randomiser to a mixer, who hands the batch on in random order. If
mixer and collector do not collude, whoever sees the mixed batch learns about one person only what is left when that
person's report hides among the others'. If they do collude, `local_epsilon` is what remains: it must be a promise that
stands alone.

Why others help: any other person's report is, with a probability that their data cannot change, a draw that says
nothing about their own data and is as likely to come from the first as from the second of two values that the person
in question may have (a clone: Feldman, McMillan and Talwar 2021, Theorem 3.1 and its proof).

- Any randomiser (`k=None`): a clone with probability ``e^-e0``, and the person's own report tells the two apart with
  probability ``e^e0/(e^e0 + 1)``.
- k-ary randomised response: a clone with probability ``2/(e^e0 + k - 1)``, and with probability ``(k - 2)/(e^e0 + k -
  1)`` the person's own report names a third value and tells nothing. The same argument with the randomiser's own
  probabilities; tighter the larger k is.

Given t reports of the two values, the likelihood ratio of the two cases rises with the number h of the first value, so
the divergence is a difference of two binomial tails; summed over t that is the whole of delta. t is binomial too: all
but 2e-18 of its probability lies in a window of some tens of standard deviations, and what lies outside is added to
delta, as is more than the rounding of the sum. The answer is therefore never too small, and takes a fraction of a
second for a hundred million people.

>>> round(largest_local_epsilon(1_000, 1.0, 1e-6), 2)
2.72
>>> round(central_epsilon(10_000, 4.79, 1e-6), 2)
1.0
>>> mixed_delta(1, 2.0, 1.0) > 0.3  # nobody to hide among
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import special

from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heterogeneous import LOCAL_LEAST

__all__ = [
    "MOST_LEVELS",
    "MOST_LOCAL",
    "LevelMixing",
    "Mixing",
    "central_epsilon",
    "largest_local_epsilon",
    "mixed_delta",
]

MOST_LOCAL = 16.0
"""The largest local epsilon that is ever planned with: beyond it a report alone protects nobody."""

MOST_LEVELS = 64
"""Different epsilons of people in mixed batches: who may choose among more hides among hardly anybody."""

_OUTSIDE = 1e-18  # probability of a count of clones beyond the window on either side; it is added to delta
_ROUNDING = 1e-9  # relative, of every term: far above that of the tails (about 1e-13) and of the weights (1e-10)

Floats = NDArray[np.float64]


def mixed_delta(n: int, local_epsilon: float, epsilon: float, *, k: int | None = None) -> float:
    """An upper bound on delta at `epsilon`, for one person among n in a mixed batch (replace-one).

    Against whoever sees the batch and nothing else about these reports. `k` is the number of categories of k-ary
    randomised response; None stands for any randomiser with this guarantee. Exact for the pair of clones but for what
    is rounded up.
    """
    _check(n, k)
    e0 = local_epsilon
    must(math.isfinite(e0) and 0 < e0 <= MOST_LOCAL, "local_epsilon", f"must be above 0, at most {MOST_LOCAL:g}", e0)
    must(epsilon >= 0, "epsilon", "must not be negative", epsilon)
    if epsilon >= e0:
        return 0.0
    if k is None:
        clone, speaks = math.exp(-e0), 1.0
    else:
        clone, speaks = 2 / (math.exp(e0) + k - 1), (math.exp(e0) + 1) / (math.exp(e0) + k - 1)
    first, clones = _clones(n - 1, clone)
    # t people name one of the two values: t - 1 clones and the person, or t clones when the person names a third.
    t = first + np.arange(len(clones) + 1, dtype=np.float64)
    mine, third = speaks * np.append(0.0, clones), (1 - speaks) * np.append(clones, 0.0)
    return min(1.0, float(np.sum(_excess(t, mine, third, e0, epsilon))) + 2 * _OUTSIDE)


def _excess(t: Floats, mine: Floats, third: Floats, e0: float, epsilon: float) -> Floats:
    """sum over h of (P - e^epsilon Q)_+ at each t, where P and Q are the two cases and h counts the first value.

    With ``b(h; t)`` the fair binomial, ``b(h-1; t-1) = (2h/t) b(h; t)`` and ``b(h; t-1) = (2(t-h)/t) b(h; t)``, so that
    ``P/b`` and ``Q/b`` are straight lines in h and the positive part is the tail above one h.
    """
    grown = math.exp(epsilon)
    right, wrong = special.expit(e0), special.expit(-e0)  # the person's own report: the right value, the other one
    safe = np.maximum(t, 1.0)
    # P - grown Q over b, at h: rise * h + start
    rise = 2 * mine / safe * (1 + grown) * (right - wrong)
    start = 2 * mine * (wrong - grown * right) + third * (1 - grown)
    with np.errstate(divide="ignore", invalid="ignore"):
        least = np.where(rise > 0, np.ceil(-start / rise), np.inf)
    least = np.clip(np.nan_to_num(least, nan=np.inf, posinf=np.inf), 0.0, t + 1)
    above = _fair_tail(least, t)
    up, down = _fair_tail(least - 1, t - 1), _fair_tail(least, t - 1)
    p = mine * (right * up + wrong * down) + third * above
    q = mine * (wrong * up + right * down) + third * above
    return np.asarray(np.maximum(0.0, p * (1 + _ROUNDING) - grown * q * (1 - _ROUNDING)))


def _fair_tail(h: Floats, t: Floats) -> Floats:
    """P(H >= h) for H ~ Bin(t, 1/2); 1 for h <= 0 and 0 for h > t or t < 0."""
    inside = (h > 0) & (h <= t)
    tail = special.betainc(np.where(inside, h, 1.0), np.where(inside, t - h + 1, 1.0), 0.5)
    return np.where(inside, tail, ((h <= 0) & (t >= 0)).astype(np.float64))


def _clones(n: int, p: float) -> tuple[int, Floats]:
    """The first count of a window and Bin(n, p) from there on: all but 2 _OUTSIDE, by Bernstein's inequality.

    Ratios of neighbours, added up in logarithms from the first count on and scaled to a sum of 1: no factorials, whose
    logarithms lose digits for a large n.
    """
    log = -math.log(_OUTSIDE)
    reach = math.sqrt(2 * log * n * p * (1 - p)) + 2 * log / 3 + 1
    first, last = max(0, math.floor(n * p - reach)), min(n, math.ceil(n * p + reach))
    count = np.arange(first, last, dtype=np.float64)
    steps = np.log((n - count) / (count + 1) * (p / (1 - p)))
    logs = np.append(0.0, np.cumsum(steps))
    weights = np.exp(logs - logs.max())
    return first, weights / weights.sum()


def central_epsilon(n: int, local_epsilon: float, delta: float, *, k: int | None = None) -> float:
    """The smallest epsilon, rounded up, that a batch of n keeps at this delta; never above `local_epsilon`."""
    _check_delta(delta)
    return _central_epsilon(n, local_epsilon, delta, k)


@lru_cache(maxsize=1024, typed=True)
def _central_epsilon(n: int, local_epsilon: float, delta: float, k: int | None) -> float:
    low, high = 0.0, float(local_epsilon)
    if mixed_delta(n, local_epsilon, 0.0, k=k) <= delta:
        return 0.0
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if mixed_delta(n, local_epsilon, middle, k=k) <= delta else (middle, high)
        if high - low <= 1e-9 * high:
            break
    return high


def largest_local_epsilon(
    n: int, epsilon: float, delta: float, *, k: int | None = None, cap: float = MOST_LOCAL
) -> float:
    """The largest local epsilon, rounded down, whose mixed batch of n is (epsilon, delta)-DP; at most `cap`.

    At least `epsilon` itself, which needs no mixer.
    """
    _check(n, k)
    _check_delta(delta)
    must(math.isfinite(epsilon) and epsilon > 0, "epsilon", "must be positive and finite", epsilon)
    must(0 < cap <= MOST_LOCAL, "cap", f"must be above 0 and at most {MOST_LOCAL:g}", cap)
    if epsilon >= cap or mixed_delta(n, cap, epsilon, k=k) <= delta:
        return float(cap)
    low, high = float(epsilon), float(cap)
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if mixed_delta(n, middle, epsilon, k=k) <= delta else (low, middle)
        if high - low <= 1e-9 * high:
            break
    return low


@dataclass(frozen=True, slots=True)
class Mixing:
    """Reports that go through a mixer: what each keeps by itself, the fewest in a batch, and the batch's delta.

    >>> mixing = Mixing.planned(ApproxDP(1.0, 1e-6), batch=1000)
    >>> round(mixing.epsilon, 2), str(mixing.promise(1000)), str(mixing.promise(999))
    (2.72, '(0.999944, 1e-06)-DP (replace-one)', '2.7241-DP (replace-one)')
    """

    epsilon: float
    batch: int
    delta: float
    k: int | None = None

    @classmethod
    def planned(
        cls, promise: ApproxDP, batch: int, *, epsilon: float | None = None, cap: float = 8.0, k: int | None = None
    ) -> Mixing:
        """The largest local epsilon, at most `cap`, with which a batch keeps the promise; or the stated one."""
        most = largest_local_epsilon(batch, promise.epsilon, promise.delta, k=k, cap=min(cap, MOST_LOCAL))
        if most < cap:  # everybody reads it: four decimals, rounded down
            most = max(math.floor(most * 1e4) / 1e4, promise.epsilon)
        stated = most if epsilon is None else epsilon
        rule = f"must be at most {most:.6g}: in a batch of {batch:,} more would not keep the promise, or pass the cap"
        must(0 < stated <= most, "mixer.epsilon", rule, stated)
        return cls(stated, batch, promise.delta, k)

    def promise(self, people: int) -> PureDP | ApproxDP:
        """What a batch of so many keeps against whoever sees it and nothing else about these reports.

        One that is smaller than was promised counts as not mixed: only the report's own guarantee is left.
        """
        own = PureDP(self.epsilon)
        if people < self.batch:
            return own
        central = central_epsilon(people, self.epsilon, self.delta, k=self.k)
        return own if central >= self.epsilon else ApproxDP(central, self.delta)

    def to_dict(self, people: int) -> dict[str, Any]:
        """What a batch of so many keeps, as plain data."""
        kept = self.promise(max(people, 1))
        return {"least": self.batch, "local_epsilon": self.epsilon, "epsilon": kept.epsilon, "delta": kept.delta}


@dataclass(frozen=True, slots=True)
class LevelMixing:
    """Reports through a mixer where everyone chose an epsilon of their own, which stands beside their report.

    Choices are public and do not depend on data that is protected, so that all is said given everybody's choice. What
    is seen of a batch is then one mixed set of reports for each epsilon, a level, drawn independently of one another. A
    person's data has to do with one of them, in which all reports are of one randomiser: the bound of clones holds
    there, with as many people as the level has in this batch. Those of other levels hide nobody, however many
    they are. `batch` is the fewest people of one level: where there are fewer, only a report's own epsilon holds.

    >>> mixing = LevelMixing(1000, 1e-6)
    >>> str(mixing.promise(2.72, 1000)), mixing.promise(2.72, 999), mixing.promise(20.0, 1000)
    ('(0.996556, 1e-06)-DP (replace-one)', None, None)
    """

    batch: int
    delta: float

    def __post_init__(self) -> None:
        must(self.batch >= 2, "batch", "must be at least 2", self.batch)
        _check_delta(self.delta)

    def level(self, epsilon: float) -> Mixing | None:
        """The people of one epsilon; None where a device says nothing, or more than a mixer is counted for."""
        return Mixing(epsilon, self.batch, self.delta) if LOCAL_LEAST <= epsilon <= MOST_LOCAL else None

    def promise(self, epsilon: float, people: int) -> ApproxDP | None:
        """What a level of so many people in one batch keeps; None where that is a report's own epsilon."""
        mixing = self.level(epsilon)
        kept = None if mixing is None else mixing.promise(people)
        return kept if isinstance(kept, ApproxDP) else None


def _check(n: int, k: int | None) -> None:
    must(n >= 1, "n", "must be at least 1", n)
    must(n <= 10**9, "n", "must be at most 1,000,000,000", n)
    must(k is None or k >= 2, "k", "must be at least 2", k)


def _check_delta(delta: float) -> None:
    must(1e-15 <= delta < 1, "delta", "must be at least 1e-15 and below 1", delta)
