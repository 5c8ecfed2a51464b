"""The reports of frequency oracles, drawn exactly: every probability is the stated multiple of 2^-64.

No step rounds: a coin compares whole numbers, ties are settled with further bits, and a uniform choice redraws what
would make it uneven (Lemire 2019). `oracle_reports` is what devices send; `simulate_counts` adds the reports up as they
are made, or draws their sum from its own law where that law is known exactly.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.oracles import estimate, local_hashing
>>> from hybridp.randomness import seeded
>>> oracle, values = local_hashing(PureDP(4.0), 10), np.arange(20_000) % 2
>>> counts = support_counts(oracle, oracle_reports(oracle, values, rng=seeded(1)))
>>> estimate(oracle, counts, len(values))[0][:2].round(1).tolist()
[0.5, 0.5]
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise import categories, uniform_below
from hybridp.public.oracles import (
    HASHED,
    LocalHashing,
    OptimisedUnary,
    Oracle,
    SubsetSelection,
    hashed_buckets,
    support_counts,
)
from hybridp.public.randomisers import WORD, KRandomisedResponse
from hybridp.randomness import Randomness

__all__ = ["oracle_reports", "simulate_counts", "support_counts"]

Ints = NDArray[np.int64]
Bytes = NDArray[np.uint8]

# People at a time, and entries of a people-by-items array at a time: both keep the work in the cache.
_CHUNK = 1 << 15
_CELLS = 1 << 21

# From this many people on, a count drawn from its own law costs less than the reports that it adds up.
_MANY = 1 << 15

_HALF = np.uint64(0xFFFFFFFF)
_HALF_BITS = np.uint64(32)


def oracle_reports(oracle: Oracle, values: Ints, *, rng: Randomness) -> NDArray[Any]:
    """One report for each person's item in 0..k-1, with the oracle's guarantee for each person.

    k-ary randomised response gives int64[n], the named item; optimised unary encoding uint8[n, ceil(k/8)], bits in
    the order of `np.packbits`; subset selection int32[n, size], each row in rising order, so that the place of an item
    says nothing (int64 for more than 2^31 items); local hashing records of the type `HASHED`.

    >>> from hybridp.public.budgets import PureDP
    >>> from hybridp.public.oracles import optimised_unary
    >>> from hybridp.randomness import seeded
    >>> oracle_reports(optimised_unary(PureDP(1.0), 20), np.array([3, 4]), rng=seeded(1)).shape
    (2, 3)
    """
    values = _checked(oracle, values)
    out = _empty(oracle, len(values))
    step = _people(oracle)
    for start in range(0, len(values), step):
        out[start : start + step] = _chunk(oracle, values[start : start + step], rng)
    return out


def simulate_counts(oracle: Oracle, values: Ints, *, rng: Randomness) -> Ints:
    """The supports of each item among everybody's reports: the law of ``support_counts(oracle, oracle_reports(...))``.

    Memory does not grow with the people. The bits of unary reports are independent, so an item held by m of n people
    is counted Binomial(m, 1/2) + Binomial(n - m, q) times, independently of the others: for many people that is drawn
    instead.

    >>> from hybridp.public.budgets import PureDP
    >>> from hybridp.public.oracles import optimised_unary
    >>> from hybridp.randomness import seeded
    >>> values = np.zeros(8000, dtype=np.int64)
    >>> simulate_counts(optimised_unary(PureDP(9.0), 3), values, rng=seeded(1)).round(-3).tolist()
    [4000, 0, 0]
    """
    values = _checked(oracle, values)
    if isinstance(oracle, OptimisedUnary) and len(values) >= _MANY:
        holders = np.bincount(values, minlength=oracle.categories).tolist()
        supports = [_binomial(m, WORD // 2, rng) + _binomial(len(values) - m, oracle.flips, rng) for m in holders]
        return np.array(supports, dtype=np.int64)
    counts = np.zeros(oracle.categories, dtype=np.int64)
    step = max(_people(oracle), min(oracle.categories, _CELLS))
    for start in range(0, len(values), step):
        counts += support_counts(oracle, oracle_reports(oracle, values[start : start + step], rng=rng))
    return counts


def _checked(oracle: Oracle, values: Ints) -> Ints:
    values = np.asarray(values)
    k = oracle.categories
    whole = values.dtype.kind in "iu" and values.ndim == 1
    inside = whole and (not len(values) or bool(values.min() >= 0 and values.max() < k))
    must(inside, "values", f"must be a row of whole numbers from 0 to {k - 1}", "something else")
    return values.astype(np.int64, copy=False)


def _empty(oracle: Oracle, n: int) -> NDArray[Any]:
    match oracle:
        case KRandomisedResponse():
            return np.empty(n, dtype=np.int64)
        case OptimisedUnary():
            return np.empty((n, -(-oracle.categories // 8)), dtype=np.uint8)
        case SubsetSelection():
            item = np.int32 if oracle.categories <= 2**31 else np.int64
            return np.empty((n, oracle.size), dtype=item)
        case LocalHashing():
            return np.empty(n, dtype=HASHED)


def _people(oracle: Oracle) -> int:
    """How many people to take at a time."""
    match oracle:
        case OptimisedUnary():
            return max(1, min(_CHUNK, 2 * _CELLS // oracle.categories))
        case SubsetSelection():
            return max(1, min(_CHUNK, _CELLS // oracle.categories))
    return _CHUNK


def _chunk(oracle: Oracle, values: Ints, rng: Randomness) -> NDArray[Any]:
    match oracle:
        case KRandomisedResponse():
            return _response(oracle, values, rng)
        case OptimisedUnary():
            return _unary(oracle, values, rng)
        case SubsetSelection():
            return _subset(oracle, values, rng)
        case LocalHashing():
            out = np.empty(len(values), dtype=HASHED)
            a, b = rng.words(len(values)), rng.words(len(values))
            out["multiplier"], out["offset"] = a, b
            out["bucket"] = _response(oracle.response, hashed_buckets(oracle, values, a, b), rng)
            return out


# --- coins and choices ------------------------------------------------------------------------------------------------


def _coins(leading: NDArray[np.uint64], numerator: int, rng: Randomness) -> NDArray[np.bool_]:
    """True with probability numerator/2^64, `leading` being the first 32 bits of each coin's uniform number."""
    lead = np.uint64(numerator >> 32)
    out = leading < lead
    ties = np.flatnonzero(leading == lead)
    if len(ties):
        out[ties] = rng.words(len(ties)) >> _HALF_BITS < np.uint64(numerator & 0xFFFFFFFF)
    return out


def _choices(bits: NDArray[np.uint64], k: int, rng: Randomness) -> Ints:
    """Uniform on 0..k-1, k below 2^32, from 32 bits each: floor(bits k/2^32), redrawn where that is uneven."""
    product = bits * np.uint64(k)
    limit = 2**32 % k
    again = np.flatnonzero((product & _HALF) < np.uint64(limit)) if limit else np.empty(0, dtype=np.int64)
    product >>= _HALF_BITS
    out = product.view(np.int64)
    out[again] = uniform_below(k, len(again), rng=rng)
    return out


def _half_words(n: int, rng: Randomness) -> NDArray[np.uint64]:
    """n times 32 uniform bits, two of a word."""
    return rng.words(-(-n // 2)).view(np.uint32)[:n].astype(np.uint64)


def _response(mechanism: KRandomisedResponse, values: Ints, rng: Randomness) -> Ints:
    """k-ary randomised response with one word a person: half for the coin, half for the choice."""
    others = mechanism.categories - 1
    if others >= 2**32:
        return categories(mechanism, values, rng=rng)
    words = rng.words(len(values))
    keep = _coins(words >> _HALF_BITS, mechanism.keep, rng)
    words &= _HALF
    out = _choices(words, others, rng)
    out += out >= values
    np.copyto(out, values, where=keep)
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


# --- unary encoding ---------------------------------------------------------------------------------------------------


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


# --- subset selection -------------------------------------------------------------------------------------------------


def _subset(oracle: SubsetSelection, values: Ints, rng: Randomness) -> Ints:
    """Floyd's algorithm for everybody at once: for j = m-s, ..., m-1 take a uniform number up to j, or j if taken.

    m = k-1 others; s = d of them without the own item and d-1 with it, that is the same steps less the first.
    """
    n, k, d = len(values), oracle.categories, oracle.size
    keep = _coins(_half_words(n, rng), oracle.keep, rng)
    chosen = np.zeros((n, k), dtype=np.bool_)
    flat = chosen.reshape(-1)
    row = np.arange(n) * k
    flat[row + values] = keep
    people = np.flatnonzero(~keep)
    for j in range(k - 1 - d, k - 1):
        base, own = row[people], values[people]
        # Others are numbered 0..k-2, passing over the own item.
        pick = _uniform(j + 1, len(people), rng)
        pick += pick >= own
        at = base + pick
        taken = flat[at]
        np.copyto(at, base + j + (j >= own), where=taken)
        flat[at] = True
        if j == k - 1 - d:
            people = np.arange(n)
    return np.flatnonzero(flat).reshape(n, d) - row[:, None]


def _uniform(k: int, n: int, rng: Randomness) -> Ints:
    return _choices(_half_words(n, rng), k, rng) if k < 2**32 else uniform_below(k, n, rng=rng)
