"""Reports of local randomisers, drawn exactly: a device's whole numbers, and what they stand for.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.randomisers import dithered_bit
>>> from hybridp.randomness import seeded
>>> reports(dithered_bit(PureDP(1.0)), np.array([0, LEVELS]), rng=seeded(1)).shape
(2,)

Of frequency oracles every probability is the stated multiple of 2^-64. No step rounds: a coin compares whole numbers,
ties are settled with further bits, and a uniform choice redraws what would make it uneven (Lemire 2019).
`oracle_reports` is what devices send; `simulate_counts` adds the reports up as they are made.

>>> from hybridp.public.randomisers import estimate, subset_selection
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
from hybridp.noise.additive import bernoulli, uniform_below
from hybridp.public.lattice import LEVELS, Floats, Ints
from hybridp.public.randomisers import DitheredBit, DitheredReports, Oracle, Piecewise, Randomiser, support_counts
from hybridp.randomness import Randomness

__all__ = ["categories", "dithered", "oracle_reports", "reports", "rounded_up", "simulate_counts", "support_counts"]
__all__ += ["voted_cells"]


# Reports made at a time: a quarter of a mebibyte a temporary array, which keeps the work in the cache.
_CHUNK = 1 << 15
_HALF = np.uint64(0xFFFFFFFF)


def reports(randomiser: Randomiser, levels: Ints, *, rng: Randomness) -> Floats:
    """One report for each person's level, in the unit coordinate: unbiased for ``2 level/LEVELS - 1``.

    The floats are computed from exactly drawn integers, so rounding them is post-processing.
    """
    out = np.empty(len(levels))
    for start in range(0, len(levels), _CHUNK):
        part = levels[start : start + _CHUNK]
        if isinstance(randomiser, DitheredBit):
            out[start : start + _CHUNK] = randomiser.values(_dithered(randomiser, part, rng))
        else:
            out[start : start + _CHUNK] = _piecewise(randomiser, part, rng)
    return out


def dithered(randomiser: DitheredBit, levels: Ints, *, rng: Randomness) -> DitheredReports:
    """One dithered bit for each person's level, as the whole numbers that a device sends.

    >>> from hybridp.public.budgets import PureDP
    >>> from hybridp.public.randomisers import dithered_bit
    >>> from hybridp.randomness import seeded
    >>> bit, levels = dithered_bit(PureDP(1.0)), np.array([0, 2**31])
    >>> sent = dithered(bit, levels, rng=seeded(1))
    >>> bool((bit.values(sent) == reports(bit, levels, rng=seeded(1))).all())
    True
    """
    parts = [_dithered(randomiser, levels[at : at + _CHUNK], rng) for at in range(0, max(len(levels), 1), _CHUNK)]
    return DitheredReports(*(np.concatenate(part) for part in zip(*parts, strict=True)))


def _dithered(randomiser: DitheredBit, levels: Ints, rng: Randomness) -> DitheredReports:
    """One word a report: its upper half is the threshold, its lower half the leading bits of the flip's uniform."""
    words = rng.words(len(levels))
    low = words & _HALF
    words >>= np.uint64(32)
    threshold = words.view(np.int64)
    above = levels > threshold
    above ^= _coins(low, randomiser.flips, rng)
    return DitheredReports(threshold, above)


def _piecewise(randomiser: Piecewise, levels: Ints, rng: Randomness) -> Floats:
    """One word a report: 16 bits choose (ties are settled with 48 more), 48 bits place.

    Outside the window the place is 32 of the 48 bits. Inside it is floor(x width/2^48), uniform once the remainder
    x width mod 2^48 is at least 2^48 mod width (Lemire 2019); otherwise, once in 65,536 or less, it is drawn again.
    """
    width = np.uint64(randomiser.width)
    words = rng.words(len(levels))
    low = words & np.uint64(0xFFFF)
    words >>= np.uint64(16)
    high = words & _HALF
    words >>= np.uint64(32)
    inside = _coins(words, randomiser.inside, rng, bits=16)
    low *= width
    product = high * width  # x width / 2^16, rounded down: below 2^64 since width <= 2^32
    product += low >> np.uint64(16)
    limit = 2**48 % randomiser.width
    near = np.flatnonzero(inside & ((product & _HALF) <= np.uint64(limit >> 16)))
    remainder = ((product[near] & _HALF) << np.uint64(16)) | (low[near] & np.uint64(0xFFFF))
    again = near[remainder < np.uint64(limit)]
    product >>= np.uint64(32)
    window = product.view(np.int64)
    window[again] = uniform_below(randomiser.width, len(again), rng=rng)
    window += levels
    cell = high.view(np.int64)
    cell += (cell >= levels) * randomiser.width
    np.copyto(cell, window, where=inside)
    scale = 2 / (randomiser.slope * LEVELS)
    report = cell * scale
    report -= randomiser.offset * scale + 1
    return np.asarray(report)


def categories(mechanism: Oracle, values: Ints, *, rng: Randomness) -> Ints:
    """A k-ary randomised response for each value in 0..k-1: the truth, or uniformly one of the others.

    Any other value is refused: nobody else would ever tell it.
    """
    inside = not len(values) or bool(values.min() >= 0 and values.max() < mechanism.categories)
    must(inside, "values", f"must lie between 0 and {mechanism.categories - 1}", "something else")
    keep = bernoulli(mechanism.keep, 64, len(values), rng=rng)
    other = uniform_below(mechanism.categories - 1, len(values), rng=rng)
    return np.where(keep, values, other + (other >= values))


def rounded_up(levels: Ints, steps: int, *, rng: Randomness) -> NDArray[np.bool_]:
    """Whether each level is rounded up to `steps`: with probability ``level/steps`` exactly; else down to 0.

    >>> from hybridp.randomness import seeded
    >>> rounded_up(np.array([0, 4, 4]), 4, rng=seeded(1)).tolist()
    [False, True, True]
    """
    return np.asarray(uniform_below(steps, len(levels), rng=rng) < levels)


def voted_cells(joint: Ints, stride: int, steps: int, *, rng: Randomness) -> Ints:
    """The cell of each joint level ``category * stride + level``: the category's first where it is rounded up."""
    category, level = np.divmod(joint, stride)
    return np.asarray(2 * category + ~rounded_up(level, steps, rng=rng), dtype=np.int64)


_CELLS = 1 << 21  # entries of a people-by-items array at a time: the work stays in the cache
_HALF_BITS = np.uint64(32)


def oracle_reports(oracle: Oracle, values: Ints, *, rng: Randomness) -> NDArray[Any]:
    """One report for each person's item in 0..k-1, with the oracle's guarantee for each person.

    k-ary randomised response gives int64[n], the named item; subset selection int32[n, size], each row in rising
    order, so that the place of an item says nothing (int64 for more than 2^31 items).
    """
    values, step, draw = _checked(oracle.categories, values), _people(oracle), _subset if oracle.size > 1 else _response
    item = np.int32 if oracle.size > 1 and oracle.categories <= 2**31 else np.int64
    parts = (draw(oracle, values[at : at + step], rng) for at in range(0, max(len(values), 1), step))
    return np.concatenate([part.astype(item, copy=False) for part in parts])


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
    return max(1, min(_CHUNK, _CELLS // oracle.categories)) if oracle.size > 1 else _CHUNK


# --- coins and choices ------------------------------------------------------------------------------------------------


def _coins(leading: NDArray[np.uint64], numerator: int, rng: Randomness, *, bits: int = 32) -> NDArray[np.bool_]:
    """True with probability numerator/2^64, `leading` being the first `bits` of each coin's uniform number."""
    lead, rest = divmod(numerator, 1 << (64 - bits))
    out = leading < np.uint64(lead)
    ties = np.flatnonzero(leading == np.uint64(lead))
    if len(ties):
        out[ties] = rng.words(len(ties)) >> np.uint64(bits) < np.uint64(rest)
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


def _response(mechanism: Oracle, values: Ints, rng: Randomness) -> Ints:
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


def _subset(oracle: Oracle, values: Ints, rng: Randomness) -> Ints:
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
