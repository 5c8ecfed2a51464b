"""Frequency oracles as frozen descriptions: how many people hold each of k items, told by randomised reports.

A report *supports* some of the items: its own holder's with probability ``truth`` (p*), any other given item with
probability ``other`` (q*). The supports of an item, counted over n reports, are debiased by
``share = (count/n - q*)/(p* - q*)``; one report's share of that has variance ``s (1-s)/(p*-q*)^2`` with
``s = share p* + (1-share) q*`` (Wang, Blocki, Li and Jha 2017, "pure" protocols). k-ary randomised response
is an oracle too: a report supports the item that it names.

Probabilities are whole multiples of 2^-64, rounded towards more privacy, and verified in exact arithmetic when a
description is made. Counting supports is post-processing: it needs no randomness and spends nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, Guarantee, PureDP
from hybridp.public.lattice import Floats, Ints
from hybridp.public.randomisers import WORD, _pure, exact_exp

__all__ = ["Oracle", "estimate", "k_randomised_response", "randomised_response", "share_oracle", "subset_selection"]
__all__ += ["support_counts"]


def _enough(categories: int) -> None:
    whole = isinstance(categories, int) and not isinstance(categories, bool)
    must(whole and 2 <= categories < 2**63, "categories", "must be at least 2 and below 2**63", categories)


def debiased_variance(truth: float, other: float, share: float) -> float:
    """Variance of one debiased indicator whose item has this true share."""
    must(0 <= share <= 1, "share", "must be between 0 and 1", share)
    seen = share * truth + (1 - share) * other
    return seen * (1 - seen) / (truth - other) ** 2


@dataclass(frozen=True, slots=True)
class Oracle:
    """A set of d = `size` items: with the holder's own with probability p = keep/2^64, the rest uniform.

    A set that holds the own item has probability ``p/C(k-1, d-1)``, another ``(1-p)/C(k-1, d)``: epsilon-DP when
    ``p (k-d) <= e^epsilon (1-p) d``. d near ``k/(e^epsilon+1)`` is best (Ye and Barg 2018).

    One item (d = 1) is k-ary randomised response: the truth with probability p, otherwise one of the k-1 others,
    uniformly. It may spend a delta: (epsilon, delta)-DP when ``p <= (e^epsilon + (k-1) delta)/(e^epsilon + k - 1)``;
    for k = 2 this is the dissertation's Thm 1.1.3.
    """

    guarantee: Guarantee
    categories: int
    keep: int
    size: int = 1

    def __post_init__(self) -> None:
        _pure(self.guarantee)
        _enough(self.categories)
        k, d, keep = self.categories, self.size, self.keep
        must(isinstance(d, int) and 1 <= d < k, "size", "must be at least 1 and below the number of categories", d)
        # An own item that is no likelier than chance (d/k) would say nothing: nothing could be debiased.
        above = WORD * d < keep * k and keep <= WORD
        spare = Fraction(self.guarantee.delta) * WORD * (k - 1) if d == 1 else 0
        # 60 digits of e^epsilon: whole numbers below 2^128 have 39.
        ok = above and keep * (k - d) <= exact_exp(self.guarantee.epsilon) * (WORD - keep) * d + spare
        must(ok, "keep", f"must be small enough for {self.guarantee} and above chance", keep)

    @property
    def name(self) -> str:
        return "k-rr" if self.size == 1 else "subset"

    @property
    def truth(self) -> float:
        return self.keep / WORD

    @property
    def other(self) -> float:
        """The d-1 or d places left, spread over k-1 items: ``(d - p)/(k-1)``."""
        return (self.size * WORD - self.keep) / (WORD * (self.categories - 1))

    def variance(self, share: float) -> float:
        return debiased_variance(self.truth, self.other, share)

    def likelihood(self, output: int, value: int) -> float:
        """Of one named item."""
        return self.truth if output == value else self.other


def k_randomised_response(guarantee: Guarantee, categories: int) -> Oracle:
    """The most truthful k-ary randomised response, its probability rounded down to a multiple of 2^-64.

    >>> round(k_randomised_response(PureDP(np.log(3)), 2).truth, 12)
    0.75
    """
    _pure(guarantee)
    _enough(categories)
    e, others, delta = exact_exp(guarantee.epsilon), categories - 1, Fraction(guarantee.delta)
    keep = int(WORD * (e + others * delta) / (e + others)) - 1
    return Oracle(guarantee, categories, keep)


def randomised_response(guarantee: Guarantee) -> Oracle:
    """Randomised response on one bit (dissertation, Def. 1.1.2 and Thm 1.1.3)."""
    return k_randomised_response(guarantee, 2)


def subset_selection(guarantee: PureDP | ApproxDP, categories: int) -> Oracle:
    """Subset selection with the size next to ``k/(e^epsilon + 1)`` that has the smaller variance at share 0.

    ``p = e^epsilon d/(e^epsilon d + k - d)``, rounded down to a multiple of 2^-64.

    >>> subset_selection(PureDP(1.0), 500).size    # 500/(e+1) = 134.5
    134
    """
    pure = _pure(guarantee)
    _enough(categories)
    e = exact_exp(pure.epsilon)

    def with_size(d: int) -> Oracle:
        return Oracle(pure, categories, int(WORD * e * d / (e * d + categories - d)) - 1, d)

    below = min(max(1, int(categories / (e + 1))), categories - 1)
    above = min(below + 1, categories - 1)
    return min(with_size(below), with_size(above), key=lambda oracle: oracle.variance(0.0))


def share_oracle(guarantee: PureDP | ApproxDP, size: int) -> Oracle:
    """The most precise report for a rare one of so many items: k-ary randomised response, or a random set of items.

    A stated delta is not spent. Optimised unary encoding and local hashing (Wang et al. 2017) are never better.

    >>> share_oracle(PureDP(1.0), 3).name, share_oracle(PureDP(1.0), 50).name
    ('k-rr', 'subset')
    """
    # Beyond this, multiples of 2^-64 are too coarse for the smallest epsilons of k-ary randomised response.
    must(size <= 2**52, "categories", "must be at most 2**52", size)
    return subset_selection(guarantee, size)


_BLOCK = 1 << 14


def support_counts(oracle: Oracle, reports: NDArray[Any]) -> Ints:
    """How many reports support each item. They come from outside: their shape and range are checked."""
    reports, k = np.asarray(reports), oracle.categories
    shape = (len(reports), oracle.size) if oracle.size > 1 else (len(reports),)
    must(reports.shape == shape, "reports", f"must have the shape {shape}", reports.shape)
    flat = reports.reshape(-1)
    counts = np.zeros(k, dtype=np.int64)
    step = max(_BLOCK, 4 * k)
    for start in range(0, len(flat), step):
        part = flat[start : start + step]
        _in_range("reports", part, k)
        counts += np.bincount(part, minlength=k)
    return counts


def _in_range(name: str, numbers: NDArray[Any], k: Any) -> None:
    whole = numbers.dtype.kind in "iu"
    inside = whole and (not numbers.size or bool(numbers.min() >= 0 and (numbers < k).all()))
    must(inside, name, f"must be whole numbers from 0 to {k - 1}", "something else")


def estimate(oracle: Oracle, counts: Ints, n: int) -> tuple[Floats, Floats]:
    """Unbiased shares ``(count/n - q*)/(p* - q*)`` and the variance of each, from the supports among n reports.

    The variance ``s (1-s)/(n (p*-q*)^2)``, s = count/n, counts the people as a sample from the population that the
    share speaks of. Shares may be negative or above 1: cutting them off would bias them.

    >>> shares, variances = estimate(k_randomised_response(PureDP(np.log(3)), 2), np.array([75, 25]), 100)
    >>> shares.round(12).tolist(), variances.round(12).tolist()
    ([1.0, 0.0], [0.0075, 0.0075])
    """
    must(bool(np.all(n > 0)), "n", "must be positive", n)
    counts = np.asarray(counts)
    _in_range("counts", counts, n + 1)
    seen = counts / n
    gap = oracle.truth - oracle.other
    return (seen - oracle.other) / gap, seen * (1 - seen) / (n * gap**2)
