"""Frequency oracles as frozen descriptions: how many people hold each of k items, told by randomised reports.

A report *supports* some of the items: its own holder's with probability ``truth`` (p*), any other given item with
probability ``other`` (q*). The supports of an item, counted over n reports, are debiased by
``share = (count/n - q*)/(p* - q*)``; one report's share of that has variance ``s (1-s)/(p*-q*)^2`` with
``s = share p* + (1-share) q*`` (Wang, Blocki, Li and Jha 2017, "pure" protocols). k-ary randomised response
(`randomisers.KRandomisedResponse`) is an oracle too: a report supports the item that it names.

Probabilities are whole multiples of 2^-64, rounded towards more privacy, and verified in exact arithmetic when a
description is made. Counting supports is post-processing: it needs no randomness and spends nothing.

>>> best_oracle(PureDP(4.0), 3).name, best_oracle(PureDP(1.0), 500).name
('k-rr', 'subset')
>>> round(optimised_unary(PureDP(1.0), 500).variance(0.0), 3)    # 4e/(e-1)^2
3.683
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.randomisers import (
    WORD,
    KRandomisedResponse,
    _pure,
    _usable,
    exact_exp,
    k_randomised_response,
)

__all__ = [
    "HASHED",
    "LocalHashing",
    "OptimisedUnary",
    "Oracle",
    "SubsetSelection",
    "best_oracle",
    "estimate",
    "hashed_buckets",
    "local_hashing",
    "optimised_unary",
    "subset_selection",
    "support_counts",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

HASHED = np.dtype([("multiplier", "<u8"), ("offset", "<u8"), ("bucket", "<u4")])
"""A local-hashing report: the public hash function (two words that the device drew) and the randomised bucket."""

_LARGEST_HASH = 2**31
_LARGEST_TABLE = 2**24
_HALF = np.uint64(0xFFFFFFFF)
_HALF_BITS = np.uint64(32)


def _enough(categories: int) -> None:
    whole = isinstance(categories, int) and not isinstance(categories, bool)
    must(whole and 2 <= categories < 2**63, "categories", "must be at least 2 and below 2**63", categories)


def _within(left: int, right: int, guarantee: PureDP) -> bool:
    """``left <= e^epsilon right``, with 60 digits of e^epsilon: whole numbers below 2^128 have 39."""
    return left <= exact_exp(guarantee.epsilon) * right


def _debiased_variance(truth: float, other: float, share: float) -> float:
    must(0 <= share <= 1, "share", "must be between 0 and 1", share)
    seen = share * truth + (1 - share) * other
    return seen * (1 - seen) / (truth - other) ** 2


# --- descriptions -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OptimisedUnary:
    """One bit for each item: the holder's own is a fair coin, every other is 1 with probability q = flips/2^64.

    epsilon-DP when ``(1-q)/q <= e^epsilon``: between two values only their two bits differ, and the likeliest
    difference has the ratio ``(1/2 (1-q))/(q 1/2)``. Variance ``4 e^epsilon/(e^epsilon-1)^2`` at share 0 (Wang et
    al. 2017, OUE).
    """

    guarantee: PureDP
    categories: int
    flips: int

    name = "unary"

    def __post_init__(self) -> None:
        _usable(self.guarantee)
        _enough(self.categories)
        ok = 0 < self.flips < WORD // 2 and _within(WORD - self.flips, self.flips, self.guarantee)
        must(ok, "flips", f"must be large enough for {self.guarantee}", self.flips)

    @property
    def truth(self) -> float:
        return 0.5

    @property
    def other(self) -> float:
        return self.flips / WORD

    def variance(self, share: float) -> float:
        """Variance of one debiased indicator whose item has this true share."""
        return _debiased_variance(self.truth, self.other, share)

    def profile(self, epsilon: float) -> float:
        """``((1-q) - e^epsilon q)/2``: the reports with the own bit set and the other value's bit not."""
        return max(0.0, (WORD - self.flips) / WORD - math.exp(epsilon) * self.other) / 2


@dataclass(frozen=True, slots=True)
class SubsetSelection:
    """A set of d = `size` items: with the holder's own with probability p = keep/2^64, the rest uniform.

    A set that holds the own item has probability ``p/C(k-1, d-1)``, another ``(1-p)/C(k-1, d)``: epsilon-DP when
    ``p (k-d) <= e^epsilon (1-p) d``. d near ``k/(e^epsilon+1)`` is best (Ye and Barg 2018).
    With d = 1 it is k-ary randomised response.
    """

    guarantee: PureDP
    categories: int
    size: int
    keep: int

    name = "subset"

    def __post_init__(self) -> None:
        _usable(self.guarantee)
        _enough(self.categories)
        k, d = self.categories, self.size
        must(isinstance(d, int) and 1 <= d < k, "size", "must be at least 1 and below the number of categories", d)
        # An own item that is no likelier than chance (d/k) would say nothing: nothing could be debiased.
        ok = WORD * d < self.keep * k and _within(self.keep * (k - d), (WORD - self.keep) * d, self.guarantee)
        must(ok, "keep", f"must be small enough for {self.guarantee} and above chance", self.keep)

    @property
    def truth(self) -> float:
        return self.keep / WORD

    @property
    def other(self) -> float:
        """The d-1 or d places left, spread over k-1 items: ``(d - p)/(k-1)``."""
        return (self.size * WORD - self.keep) / (WORD * (self.categories - 1))

    def variance(self, share: float) -> float:
        """Variance of one debiased indicator whose item has this true share."""
        return _debiased_variance(self.truth, self.other, share)

    def profile(self, epsilon: float) -> float:
        """The C(k-2, d-1) sets with the own item and without the other value's: all have the same ratio."""
        d, k = self.size, self.categories
        less = (WORD - self.keep) * d / (WORD * (k - 1))
        return max(0.0, self.keep * (k - d) / (WORD * (k - 1)) - math.exp(epsilon) * less)


@dataclass(frozen=True, slots=True)
class LocalHashing:
    """k-ary randomised response on a hash of the item into g = `buckets`, the hash function drawn on the device.

    The report is the hash function and the bucket; it supports every item of that bucket. Given the function, which
    is independent of the value, the bucket is a randomised response: epsilon-DP when ``p (g-1) <= e^epsilon (1-p)``,
    p = keep/2^64. g = e^epsilon + 1 is best (Wang et al. 2017, OLH).

    The function is ``floor(g (a m(x) + b mod 2^64)/2^64)`` with a, b uniform words and m a fixed bijection. Then m(x)
    of two items, 2^t dividing their difference, are hashed to a uniform first value and, given it, a second one
    uniform on a lattice of step 2^t: ``q* = 1/g`` within 2^(t-64), provably. (A share 2^-t of all pairs has such a t.)
    """

    guarantee: PureDP
    categories: int
    buckets: int
    keep: int

    name = "hashing"

    def __post_init__(self) -> None:
        g = self.buckets
        _enough(self.categories)
        must(isinstance(g, int) and 2 <= g <= _LARGEST_HASH, "buckets", "must be at least 2 and at most 2**31", g)
        must(self.keep * g > WORD, "keep", "must be above chance", self.keep)
        _ = self.response

    @property
    def response(self) -> KRandomisedResponse:
        """What happens to the bucket; its own construction verifies the guarantee."""
        return KRandomisedResponse(self.guarantee, self.buckets, self.keep)

    @property
    def truth(self) -> float:
        return self.keep / WORD

    @property
    def other(self) -> float:
        return 1 / self.buckets

    def variance(self, share: float) -> float:
        """Variance of one debiased indicator whose item has this true share."""
        return _debiased_variance(self.truth, self.other, share)

    def profile(self, epsilon: float) -> float:
        """That of the randomised response, reached when two values fall into different buckets."""
        return self.response.profile(epsilon)


Oracle = KRandomisedResponse | OptimisedUnary | SubsetSelection | LocalHashing


# --- calibration ------------------------------------------------------------------------------------------------------


def optimised_unary(guarantee: PureDP | ApproxDP, categories: int) -> OptimisedUnary:
    """Optimised unary encoding: ``q = 1/(e^epsilon + 1)``, rounded up to a multiple of 2^-64.

    >>> round(optimised_unary(PureDP(math.log(3)), 10).other, 12)
    0.25
    """
    pure = _pure(guarantee)
    return OptimisedUnary(pure, categories, int(WORD / (exact_exp(pure.epsilon) + 1)) + 1)


def subset_selection(guarantee: PureDP | ApproxDP, categories: int) -> SubsetSelection:
    """Subset selection with the size next to ``k/(e^epsilon + 1)`` that has the smaller variance at share 0.

    ``p = e^epsilon d/(e^epsilon d + k - d)``, rounded down to a multiple of 2^-64.

    >>> subset_selection(PureDP(1.0), 500).size    # 500/(e+1) = 134.5
    134
    """
    pure = _pure(guarantee)
    _enough(categories)
    e = exact_exp(pure.epsilon)

    def with_size(d: int) -> SubsetSelection:
        return SubsetSelection(pure, categories, d, int(WORD * e * d / (e * d + categories - d)) - 1)

    below = min(max(1, int(categories / (e + 1))), categories - 1)
    above = min(below + 1, categories - 1)
    return min(with_size(below), with_size(above), key=lambda oracle: oracle.variance(0.0))


def local_hashing(guarantee: PureDP | ApproxDP, categories: int) -> LocalHashing:
    """Optimised local hashing: ``g = round(e^epsilon) + 1`` (2^31 at most), p rounded down to a multiple of 2^-64.

    >>> local_hashing(PureDP(4.0), 500).buckets
    56
    """
    pure = _pure(guarantee)
    buckets = min(round(exact_exp(pure.epsilon)) + 1, _LARGEST_HASH)
    return LocalHashing(pure, categories, buckets, k_randomised_response(pure, buckets).keep)


def best_oracle(guarantee: PureDP | ApproxDP, categories: int, share: float = 0.0) -> Oracle:
    """The purely private oracle with the smallest variance for an item of this share; the simplest when they tie.

    A stated delta is not spent. At share 0 the answer is subset selection, which with a size of 1 is k-ary randomised
    response. Optimised unary encoding and local hashing come close to it when k is well above e^epsilon.
    """
    pure = _pure(guarantee)
    # Beyond this, multiples of 2^-64 are too coarse for the smallest epsilons of k-ary randomised response.
    must(categories <= 2**52, "categories", "must be at most 2**52", categories)
    subset = subset_selection(pure, categories)
    candidates: list[Oracle] = [
        k_randomised_response(pure, categories),
        *([subset] if subset.size > 1 else []),
        optimised_unary(pure, categories),
        local_hashing(pure, categories),
    ]
    return min(candidates, key=lambda oracle: oracle.variance(share))


# --- the public hash --------------------------------------------------------------------------------------------------


def _mixed(items: NDArray[Any]) -> Words:
    """m(x): the finaliser of SplitMix64 (Steele, Lea and Flood 2014), a bijection of 64-bit words.

    It takes neighbouring items apart: three items in arithmetic progression would otherwise be hashed to three
    values in arithmetic progression, and their counts would be correlated.
    """
    x = items.astype(np.uint64)
    x += np.uint64(0x9E3779B97F4A7C15)
    x ^= x >> np.uint64(30)
    x *= np.uint64(0xBF58476D1CE4E5B9)
    x ^= x >> np.uint64(27)
    x *= np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    return x


def hashed_buckets(oracle: LocalHashing, items: Ints, multiplier: Words, offset: Words) -> Ints:
    """The bucket of each item under each hash function, exactly ``floor(g h/2^64)`` with ``h = a m(x) + b``."""
    h = _mixed(np.asarray(items)) * multiplier
    h += offset
    g = np.uint64(oracle.buckets)
    # floor(g h/2^64) = floor((g high + floor(g low/2^32))/2^32), and g high + g stays below 2^64.
    low = h & _HALF
    low *= g
    low >>= _HALF_BITS
    h >>= _HALF_BITS
    h *= g
    h += low
    h >>= _HALF_BITS
    return h.view(np.int64)


def _interval(buckets: NDArray[Any], g: int) -> tuple[Words, Words]:
    """First h and number of h whose bucket is y: h runs from ceil(y 2^64/g) to below ceil((y+1) 2^64/g)."""
    whole, rest = divmod(WORD, g)

    def start(y: Words) -> Words:
        return y * np.uint64(whole) + (y * np.uint64(rest) + np.uint64(g - 1)) // np.uint64(g)

    y = buckets.astype(np.uint64)
    first = start(y)
    # The end of the last bucket, 2^64, is 0 here, and the difference is right all the same.
    return first, start(y + np.uint64(1)) - first


# --- the server's side ------------------------------------------------------------------------------------------------

_BLOCK = 1 << 14


def support_counts(oracle: Oracle, reports: NDArray[Any], items: Ints | None = None) -> Ints:
    """How many reports support each item (or each of `items`), from reports as `noise.oracles.oracle_reports` makes.

    Reports come from outside: their shape and range are checked. Memory does not grow with the reports. Local
    hashing tries every item on every report, so name the `items` of interest when there are many.

    >>> support_counts(k_randomised_response(PureDP(1.0), 4), np.array([2, 0, 2])).tolist()
    [1, 0, 2, 0]
    """
    reports = np.asarray(reports)
    k = oracle.categories
    if items is None:
        must(k <= _LARGEST_TABLE, "items", "must be named when there are more than 2**24 categories", items)
    else:
        items = np.asarray(items)
        _in_range("items", items, k)
    if isinstance(oracle, LocalHashing):
        return _hash_supports(oracle, reports, np.arange(k) if items is None else items)
    match oracle:
        case KRandomisedResponse():
            counts = _named(reports, k, (len(reports),))
        case SubsetSelection():
            counts = _named(reports, k, (len(reports), oracle.size))
        case OptimisedUnary():
            counts = _bit_supports(reports, k)
    return counts if items is None else counts[items]


def _in_range(name: str, numbers: NDArray[Any], k: int) -> None:
    """The message says what was expected and nothing of what was found: it may be a person's."""
    whole = numbers.dtype.kind in "iu"
    inside = whole and (not numbers.size or bool(numbers.min() >= 0 and numbers.max() < k))
    must(inside, name, f"must be whole numbers from 0 to {k - 1}", "something else")


def _named(reports: NDArray[Any], k: int, shape: tuple[int, ...]) -> Ints:
    must(reports.shape == shape, "reports", f"must have the shape {shape}", reports.shape)
    flat = reports.reshape(-1)
    counts = np.zeros(k, dtype=np.int64)
    step = max(_BLOCK, 4 * k)
    for start in range(0, len(flat), step):
        part = flat[start : start + step]
        _in_range("reports", part, k)
        counts += np.bincount(part, minlength=k)
    return counts


def _bit_supports(reports: NDArray[Any], k: int) -> Ints:
    """Column sums of packed bits, 15 rows at a time by full adders on whole rows (Harley and Seal).

    Seven carries of weight 2 and one sum come of 15 rows, three of weight 4 of those, and so on: four rows are left to
    be unpacked. 255 of them fit a byte, which adds fastest.
    """
    width = -(-k // 8)
    ok = reports.ndim == 2 and reports.shape[1] == width and reports.dtype == np.uint8
    must(ok, "reports", f"must be rows of {width} bytes", f"{reports.dtype} {reports.shape}")
    counts = np.zeros(8 * width, dtype=np.int64)
    for start in range(0, len(reports), 15 * 255):
        part = reports[start : start + 15 * 255]
        if len(part) % 15:
            part = np.concatenate([part, np.zeros((-len(part) % 15, width), dtype=np.uint8)])
        rows, weight = list(part.reshape(15, -1, width)), 1
        while rows:
            carries = []
            while len(rows) > 1:
                a, b, c = rows.pop(), rows.pop(), rows.pop()
                odd = a ^ b
                carries.append(a & b | odd & c)
                rows.append(odd ^ c)
            ones = np.add.reduce(np.unpackbits(rows[0], axis=1), axis=0, dtype=np.uint8)
            counts += weight * ones.astype(np.int64)
            rows, weight = carries, 2 * weight
    return counts[:k]


def _hash_supports(oracle: LocalHashing, reports: NDArray[Any], items: Ints) -> Ints:
    """Item x supports bucket y when ``a m(x) + b - first(y) mod 2^64`` is below the bucket's length."""
    must(reports.dtype == HASHED and reports.ndim == 1, "reports", "must be hashed reports", reports.dtype)
    counts = np.zeros(len(items), dtype=np.int64)
    mixed = _mixed(items)
    for start in range(0, len(reports), _BLOCK):
        part = reports[start : start + _BLOCK]
        _in_range("reports", part["bucket"], oracle.buckets)
        first, length = _interval(part["bucket"], oracle.buckets)
        multiplier, shift = np.ascontiguousarray(part["multiplier"]), part["offset"] - first
        # Few reports: take several items at once, so that a block is large enough to be worth a call.
        rows = max(1, _BLOCK // len(part))
        h = np.empty((rows, len(part)), dtype=np.uint64)
        hit = np.empty(h.shape, dtype=np.bool_)
        for at in range(0, len(items), rows):
            some = mixed[at : at + rows, None]
            here, yes = h[: len(some)], hit[: len(some)]
            np.multiply(some, multiplier, out=here)
            here += shift
            np.less(here, length, out=yes)
            counts[at : at + rows] += np.count_nonzero(yes) if rows == 1 else np.count_nonzero(yes, axis=1)
    return counts


def estimate(oracle: Oracle, counts: Ints, n: int) -> tuple[Floats, Floats]:
    """Unbiased shares ``(count/n - q*)/(p* - q*)`` and the variance of each, from the supports among n reports.

    The variance ``s (1-s)/(n (p*-q*)^2)``, s = count/n, counts the people as a sample from the population that the
    share speaks of. Shares may be negative or above 1: cutting them off would bias them.

    >>> shares, variances = estimate(k_randomised_response(PureDP(math.log(3)), 2), np.array([75, 25]), 100)
    >>> shares.round(12).tolist(), variances.round(12).tolist()
    ([1.0, 0.0], [0.0075, 0.0075])
    """
    must(n > 0, "n", "must be positive", n)
    counts = np.asarray(counts)
    _in_range("counts", counts, n + 1)
    seen = counts / n
    gap = oracle.truth - oracle.other
    return (seen - oracle.other) / gap, seen * (1 - seen) / (n * gap**2)
