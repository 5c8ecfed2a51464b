"""Reports of local randomisers, drawn exactly: a device's whole numbers, and what they stand for.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.randomisers import dithered_bit
>>> from hybridp.randomness import seeded
>>> reports(dithered_bit(PureDP(1.0)), np.array([0, LEVELS]), rng=seeded(1)).shape
(2,)
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise.additive import additive, bernoulli, uniform_below
from hybridp.public.randomisers import (
    LEVELS,
    DitheredBit,
    DitheredReports,
    KRandomisedResponse,
    LocalAdditive,
    Piecewise,
    Randomiser,
)
from hybridp.randomness import Randomness

__all__ = ["categories", "dithered", "reports"]

Ints = NDArray[np.int64]

# Reports made at a time: a quarter of a mebibyte a temporary array, which keeps the work in the cache.
_CHUNK = 1 << 15
_HALF = np.uint64(0xFFFFFFFF)


def reports(randomiser: Randomiser, levels: Ints, *, rng: Randomness) -> NDArray[np.float64]:
    """One report for each person's level, in the unit coordinate: unbiased for ``2 level/LEVELS - 1``.

    The floats are computed from exactly drawn integers, so rounding them is post-processing.
    """
    out = np.empty(len(levels))
    for start in range(0, len(levels), _CHUNK):
        part = levels[start : start + _CHUNK]
        out[start : start + _CHUNK] = _report_chunk(randomiser, part, rng)
    return out


def _report_chunk(randomiser: Randomiser, levels: Ints, rng: Randomness) -> NDArray[np.float64]:
    match randomiser:
        case DitheredBit():
            return randomiser.values(_dithered(randomiser, levels, rng))
        case Piecewise():
            return _piecewise(randomiser, levels, rng)
        case LocalAdditive():
            noisy = levels + additive(randomiser.noise, len(levels), rng=rng)
            return np.asarray(noisy * (2 / LEVELS) - 1)


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
    lead = np.uint64(randomiser.flips >> 32)
    above = levels > threshold
    above ^= low < lead
    ties = np.flatnonzero(low == lead)
    if len(ties):
        rest = rng.words(len(ties)) >> np.uint64(32)
        above[ties] ^= rest < np.uint64(randomiser.flips & 0xFFFFFFFF)
    return DitheredReports(threshold, above)


def _piecewise(randomiser: Piecewise, levels: Ints, rng: Randomness) -> NDArray[np.float64]:
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
    lead = np.uint64(randomiser.inside >> 48)
    inside = words < lead
    ties = np.flatnonzero(words == lead)
    if len(ties):
        rest = rng.words(len(ties)) >> np.uint64(16)
        inside[ties] = rest < np.uint64(randomiser.inside & (2**48 - 1))
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


def categories(mechanism: KRandomisedResponse, values: Ints, *, rng: Randomness) -> Ints:
    """A k-ary randomised response for each value in 0..k-1: the truth, or uniformly one of the others.

    Any other value is refused: nobody else would ever tell it.
    """
    inside = not len(values) or bool(values.min() >= 0 and values.max() < mechanism.categories)
    must(inside, "values", f"must lie between 0 and {mechanism.categories - 1}", "something else")
    keep = bernoulli(mechanism.keep, 64, len(values), rng=rng)
    other = uniform_below(mechanism.categories - 1, len(values), rng=rng)
    return np.where(keep, values, other + (other >= values))
