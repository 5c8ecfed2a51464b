"""Frequency oracles of others: optimised unary encoding and local hashing (Wang, Blocki, Li and Jha 2017).

Subset selection is never worse for a rare item (`hybridp.public.randomisers`), so that no release takes one of these;
the figures of the papers and the comparisons do. Probabilities are whole multiples of 2^-64, rounded towards more
privacy, verified in exact arithmetic when a description is made, and drawn exactly.

>>> from hybridp.public.randomisers import estimate
>>> from hybridp.noise import seeded
>>> round(optimised_unary(PureDP(1.0), 500).variance(0.0), 3)    # 4e/(e-1)^2
3.683
>>> oracle, values = local_hashing(PureDP(4.0), 10), np.arange(20_000) % 2
>>> counts = support_counts(oracle, oracle_reports(oracle, values, rng=seeded(1)))
>>> estimate(oracle, counts, len(values))[0][:2].round(1).tolist()
[0.5, 0.5]
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise import Randomness, _checked, _response
from hybridp.noise import oracle_reports as usual_reports
from hybridp.noise import simulate_counts as usual_counts
from hybridp.public import randomisers as known
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.randomisers import (
    WORD,
    Oracle,
    _in_range,
    _pure,
    exact_exp,
    k_randomised_response,
)

__all__ = [
    "HASHED",
    "AnyOracle",
    "LocalHashing",
    "OptimisedUnary",
    "hashed_buckets",
    "local_hashing",
    "optimised_unary",
    "oracle_reports",
    "simulate_counts",
    "support_counts",
]

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]
Words = NDArray[np.uint64]

HASHED = np.dtype([("multiplier", "<u8"), ("offset", "<u8"), ("bucket", "<u4")])
"""A local-hashing report: the public hash function (two words that the device drew) and the randomised bucket."""

_LARGEST_HASH = 2**31
_LARGEST_TABLE = 2**24
_BLOCK = 1 << 14
_HALF = np.uint64(0xFFFFFFFF)
_HALF_BITS = np.uint64(32)

# People at a time, and entries of a people-by-items array at a time: both keep the work in the cache.
_CHUNK = 1 << 15
_CELLS = 1 << 21

# From this many people on, a count drawn from its own law costs less than the reports that it adds up.
_MANY = 1 << 15


# --- descriptions -----------------------------------------------------------------------------------------------------


def _debiased_variance(truth: float, other: float, share: float) -> float:
    """Variance of one debiased indicator whose item has this true share."""
    must(0 <= share <= 1, "share", "must be between 0 and 1", share)
    seen = share * truth + (1 - share) * other
    return seen * (1 - seen) / (truth - other) ** 2


def _enough(categories: int) -> None:
    whole = isinstance(categories, int) and not isinstance(categories, bool)
    must(whole and 2 <= categories < 2**63, "categories", "must be at least 2 and below 2**63", categories)


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
        _pure(self.guarantee)
        _enough(self.categories)
        ok = 0 < self.flips < WORD // 2 and WORD - self.flips <= exact_exp(self.guarantee.epsilon) * self.flips
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
    def response(self) -> Oracle:
        """What happens to the bucket; its own construction verifies the guarantee."""
        return Oracle(self.guarantee, self.buckets, self.keep)

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
        return max(0.0, self.truth - math.exp(epsilon) * self.response.other)


AnyOracle = Oracle | OptimisedUnary | LocalHashing


# --- calibration ------------------------------------------------------------------------------------------------------


def optimised_unary(guarantee: PureDP | ApproxDP, categories: int) -> OptimisedUnary:
    """Optimised unary encoding: ``q = 1/(e^epsilon + 1)``, rounded up to a multiple of 2^-64.

    >>> round(optimised_unary(PureDP(math.log(3)), 10).other, 12)
    0.25
    """
    pure = _pure(guarantee)
    return OptimisedUnary(pure, categories, int(WORD / (exact_exp(pure.epsilon) + 1)) + 1)


def local_hashing(guarantee: PureDP | ApproxDP, categories: int) -> LocalHashing:
    """Optimised local hashing: ``g = round(e^epsilon) + 1`` (2^31 at most), p rounded down to a multiple of 2^-64.

    >>> local_hashing(PureDP(4.0), 500).buckets
    56
    """
    pure = _pure(guarantee)
    buckets = min(round(exact_exp(pure.epsilon)) + 1, _LARGEST_HASH)
    return LocalHashing(pure, categories, buckets, k_randomised_response(pure, buckets).keep)


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


def support_counts(oracle: AnyOracle, reports: NDArray[Any], items: Ints | None = None) -> Ints:
    """How many reports support each item (or each of `items`), from reports as `oracle_reports` makes.

    Reports come from outside: their shape and range are checked. Memory does not grow with the reports. Local
    hashing tries every item on every report, so name the `items` of interest when there are many.
    """
    reports, k = np.asarray(reports), oracle.categories
    if items is None:
        must(k <= _LARGEST_TABLE, "items", "must be named when there are more than 2**24 categories", items)
    else:
        items = np.asarray(items)
        _in_range("items", items, k)
    if isinstance(oracle, LocalHashing):
        return _hash_supports(oracle, reports, np.arange(k) if items is None else items)
    counts = _bit_supports(reports, k) if isinstance(oracle, OptimisedUnary) else known.support_counts(oracle, reports)
    return counts if items is None else counts[items]


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


# --- reports ----------------------------------------------------------------------------------------------------------


def oracle_reports(oracle: AnyOracle, values: Ints, *, rng: Randomness) -> NDArray[Any]:
    """One report for each person's item in 0..k-1, with the oracle's guarantee for each person.

    Optimised unary encoding gives uint8[n, ceil(k/8)], bits in the order of `np.packbits`; local hashing records of the
    type `HASHED`; the others what `hybridp.noise` says.

    >>> from hybridp.noise import seeded
    >>> oracle_reports(optimised_unary(PureDP(1.0), 20), np.array([3, 4]), rng=seeded(1)).shape
    (2, 3)
    """
    if isinstance(oracle, Oracle):
        return usual_reports(oracle, values, rng=rng)
    values = _checked(oracle.categories, values)
    shape, kind = ((len(values),), HASHED) if isinstance(oracle, LocalHashing) else (
        (len(values), -(-oracle.categories // 8)), np.dtype(np.uint8))  # fmt: skip
    out = np.empty(shape, dtype=kind)
    step = _people(oracle)
    for start in range(0, len(values), step):
        out[start : start + step] = _chunk(oracle, values[start : start + step], rng)
    return out


def simulate_counts(oracle: AnyOracle, values: Ints, *, rng: Randomness) -> Ints:
    """The supports of each item among everybody's reports: the law of ``support_counts(oracle, oracle_reports(...))``.

    Memory does not grow with the people. The bits of unary reports are independent, so an item held by m of n people
    is counted Binomial(m, 1/2) + Binomial(n - m, q) times, independently of the others: for many people that is drawn
    instead.

    >>> from hybridp.noise import seeded
    >>> values = np.zeros(8000, dtype=np.int64)
    >>> simulate_counts(optimised_unary(PureDP(9.0), 3), values, rng=seeded(1)).round(-3).tolist()
    [4000, 0, 0]
    """
    if isinstance(oracle, Oracle):
        return usual_counts(oracle, values, rng=rng)
    values = _checked(oracle.categories, values)
    if isinstance(oracle, OptimisedUnary) and len(values) >= _MANY:
        holders = np.bincount(values, minlength=oracle.categories).tolist()
        supports = [_binomial(m, WORD // 2, rng) + _binomial(len(values) - m, oracle.flips, rng) for m in holders]
        return np.array(supports, dtype=np.int64)
    counts = np.zeros(oracle.categories, dtype=np.int64)
    step = max(_people(oracle), min(oracle.categories, _CELLS))
    for start in range(0, len(values), step):
        counts += support_counts(oracle, oracle_reports(oracle, values[start : start + step], rng=rng))
    return counts


def _people(oracle: OptimisedUnary | LocalHashing) -> int:
    """How many people to take at a time."""
    return max(1, min(_CHUNK, 2 * _CELLS // oracle.categories)) if isinstance(oracle, OptimisedUnary) else _CHUNK


def _chunk(oracle: OptimisedUnary | LocalHashing, values: Ints, rng: Randomness) -> NDArray[Any]:
    if isinstance(oracle, OptimisedUnary):
        return _unary(oracle, values, rng)
    out = np.empty(len(values), dtype=HASHED)
    a, b = rng.words(len(values)), rng.words(len(values))
    out["multiplier"], out["offset"] = a, b
    out["bucket"] = _response(oracle.response, hashed_buckets(oracle, values, a, b), rng)
    return out


def _fair_bits(n: int, rng: Randomness) -> Bytes:
    return np.unpackbits(rng.words(-(-n // 64)).view(np.uint8), count=n)


def _binomial(n: int, numerator: int, rng: Randomness) -> int:
    """How many of n uniform numbers fall below numerator/2^64, their bits looked at together, about 2n in all.

    A number whose bit is 0 where the numerator's is 1 falls below, 1 where it is 0 falls above; equals go on.
    """
    below = 0
    for place in reversed(range(64)):
        if n == 0:
            break
        ones = _heads(n, rng)
        if numerator >> place & 1:
            below += n - ones
            n = ones
        else:
            n -= ones
    return below


def _heads(n: int, rng: Randomness) -> int:
    """Heads among n fair coins."""
    whole, rest = divmod(n, 64)
    heads = 0
    for start in range(0, whole, _CHUNK):
        heads += int(np.bitwise_count(rng.words(min(_CHUNK, whole - start))).sum(dtype=np.int64))
    return heads + ((int(rng.words(1)[0]) >> (64 - rest)).bit_count() if rest else 0)


@dataclass(frozen=True)
class _ByteLaw:
    """Eight independent bits at once, by inverting the distribution of the byte that they make.

    Byte `order[j]` holds the uniform numbers from `starts[j]/2^512` to the next start: products of eight multiples
    of 2^-64, so 512 bits decide exactly. The first 16 bits name one of 65,536 cells. Most cells lie inside one byte's
    range: `sure` of them, renumbered to come first, with the byte in `byte`. The others are listed in `open`.
    """

    order: Bytes
    starts: list[int]
    leads: NDArray[np.uint64]
    byte: Bytes
    sure: int
    open: NDArray[np.uint64]


@lru_cache(maxsize=32)
def _byte_law(flips: int) -> _ByteLaw:
    # Rare bytes next to each other share cells: in the order of their number of ones few cells are open.
    order = sorted(range(256), key=lambda byte: (byte.bit_count(), byte))
    starts, total = [], 0
    for byte in order:
        starts.append(total)
        total += flips ** byte.bit_count() * (WORD - flips) ** (8 - byte.bit_count())
    cell_of = [start >> 496 for start in starts]
    opened = sorted({cell for cell, start in zip(cell_of, starts, strict=True) if cell << 496 != start})
    cells = np.arange(1 << 16)
    last = np.searchsorted(np.array(cell_of), cells, side="right") - 1
    by_cell = np.array(order, dtype=np.uint8)[last]
    closed = np.ones(1 << 16, dtype=np.bool_)
    closed[opened] = False
    return _ByteLaw(
        order=np.array(order, dtype=np.uint8),
        starts=starts,
        leads=np.array([start >> 448 for start in starts], dtype=np.uint64),
        byte=np.concatenate([by_cell[closed], np.zeros(len(opened), dtype=np.uint8)]),
        sure=(1 << 16) - len(opened),
        open=np.array(opened, dtype=np.uint64),
    )


def _biased_bytes(flips: int, n: int, rng: Randomness) -> Bytes:
    """n bytes of eight bits each that are 1 with probability flips/2^64."""
    law = _byte_law(flips)
    cells = rng.words(-(-n // 4)).view(np.uint16)[:n]
    out = law.byte[cells]
    unsure = np.flatnonzero(cells >= law.sure)
    if len(unsure):
        prefix = law.open[cells[unsure] - law.sure] << np.uint64(48)
        prefix |= rng.words(len(unsure)) >> np.uint64(16)
        rank = np.searchsorted(law.leads, prefix, side="right") - 1
        # A start with just these 64 bits, a matter of one in 2^56: all 512 are drawn and compared.
        for i in np.flatnonzero(law.leads[rank] == prefix):
            number = int(prefix[i])
            for word in rng.words(7).tolist():
                number = number << 64 | word
            rank[i] = bisect_right(law.starts, number) - 1
        out[unsure] = law.order[rank]
    return out


def _unary(oracle: OptimisedUnary, values: Ints, rng: Randomness) -> Bytes:
    n, width = len(values), -(-oracle.categories // 8)
    out = _biased_bytes(oracle.flips, n * width, rng)
    own = np.arange(n) * width + (values >> 3)
    mask = (128 >> (values & 7)).astype(np.uint8)
    out[own] = np.where(_fair_bits(n, rng), out[own] | mask, out[own] & ~mask)
    rows = out.reshape(n, width)
    rows[:, -1] &= np.uint8(256 - (1 << (8 * width - oracle.categories)))
    return rows
