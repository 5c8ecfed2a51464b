"""The reports of frequency oracles, drawn exactly: every probability is the stated multiple of 2^-64.

No step rounds: a coin compares whole numbers, ties are settled with further bits, and a uniform choice redraws what
would make it uneven (Lemire 2019). `oracle_reports` is what devices send; `simulate_counts` adds the reports up as they
are made.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.oracles import estimate, subset_selection
>>> from hybridp.randomness import seeded
>>> oracle, values = subset_selection(PureDP(1.0), 10), np.arange(20_000) % 2
>>> counts = support_counts(oracle, oracle_reports(oracle, values, rng=seeded(1)))
>>> estimate(oracle, counts, len(values))[0][:2].round(1).tolist()
[0.5, 0.5]
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise import categories, uniform_below
from hybridp.public.oracles import Oracle, SubsetSelection, support_counts
from hybridp.public.randomisers import KRandomisedResponse
from hybridp.randomness import Randomness

__all__ = ["oracle_reports", "simulate_counts", "support_counts"]

Ints = NDArray[np.int64]

# People at a time, and entries of a people-by-items array at a time: both keep the work in the cache.
_CHUNK = 1 << 15
_CELLS = 1 << 21

_HALF = np.uint64(0xFFFFFFFF)
_HALF_BITS = np.uint64(32)


def oracle_reports(oracle: Oracle, values: Ints, *, rng: Randomness) -> NDArray[Any]:
    """One report for each person's item in 0..k-1, with the oracle's guarantee for each person.

    k-ary randomised response gives int64[n], the named item; subset selection int32[n, size], each row in rising
    order, so that the place of an item says nothing (int64 for more than 2^31 items).
    """
    values, n = _checked(oracle.categories, values), len(values)
    if isinstance(oracle, SubsetSelection):
        item = np.int32 if oracle.categories <= 2**31 else np.int64
        out: NDArray[Any] = np.empty((n, oracle.size), dtype=item)
    else:
        out = np.empty(n, dtype=np.int64)
    step = _people(oracle)
    for start in range(0, n, step):
        part = values[start : start + step]
        drawn = _subset(oracle, part, rng) if isinstance(oracle, SubsetSelection) else _response(oracle, part, rng)
        out[start : start + step] = drawn
    return out


def simulate_counts(oracle: Oracle, values: Ints, *, rng: Randomness) -> Ints:
    """The supports of each item among everybody's reports: ``support_counts(oracle, oracle_reports(...))``, in memory
    that does not grow with the people."""
    values = _checked(oracle.categories, values)
    counts = np.zeros(oracle.categories, dtype=np.int64)
    step = max(_people(oracle), min(oracle.categories, _CELLS))
    for start in range(0, len(values), step):
        counts += support_counts(oracle, oracle_reports(oracle, values[start : start + step], rng=rng))
    return counts


def _checked(k: int, values: Ints) -> Ints:
    values = np.asarray(values)
    whole = values.dtype.kind in "iu" and values.ndim == 1
    inside = whole and (not len(values) or bool(values.min() >= 0 and values.max() < k))
    must(inside, "values", f"must be a row of whole numbers from 0 to {k - 1}", "something else")
    return values.astype(np.int64, copy=False)


def _people(oracle: Oracle) -> int:
    """How many people to take at a time."""
    return max(1, min(_CHUNK, _CELLS // oracle.categories)) if isinstance(oracle, SubsetSelection) else _CHUNK


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
