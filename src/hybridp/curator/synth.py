"""The curator's part of a synthetic data set: pick the marginal that a model misses most, measure marginals.

The selection is the exponential mechanism itself, drawn exactly. The scores are whole numbers of lattice steps, so that
their sensitivity is exact, and "the largest score plus Gumbel noise" is decided from intervals: 64 bits of a uniform
number settle almost every comparison in float64, and the few that they do not are settled with as many more bits, in
decimal arithmetic, as it takes. Rounding therefore changes no probability, which plain floating-point Gumbel noise
cannot promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hybridp import noise
from hybridp.curator import marginals
from hybridp.curator.marginals import Codes, codes_of, read_codes
from hybridp.curator.sources import Entrusted
from hybridp.public.queries import Schema
from hybridp.public.randomisers import exact_context
from hybridp.public.synth import MeasuredTable, gumbel_scale
from hybridp.randomness import Randomness

__all__ = [
    "LATTICE",
    "SLACK",
    "Candidate",
    "Codes",
    "codes_of",
    "gain",
    "gumbel_keys",
    "measure_answers",
    "measure_table",
    "pick_table",
    "read_codes",
    "settled",
    "unsettled",
]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

LATTICE = 1 << 16  # Steps to a person: the answers of D' are rounded to them, which is post-processing.
# A float64 key is within SLACK of the true one for words from _LOW to _HIGH: the unknown bits of V move the key by at
# most 2^-24, rounding V by 2^-29 where it is near 1, and log1p, log, quotient and sum by a few ulp of a key below 2^30.
SLACK = 2.0**-20
_LOW, _HIGH = np.uint64(1 << 24), np.uint64((1 << 64) - (1 << 40))


def measure_table(codes: Codes, features: tuple[int, ...], sigma: float, *, rng: Randomness) -> MeasuredTable:
    """One whole marginal with exact discrete Gaussian noise on every cell: 1/sigma^2-zCDP, sigma in people."""
    counts = marginals.table_counts(codes, features)
    drawn = noise.discrete_gaussian(sigma, counts.size, rng=rng).reshape(counts.shape)
    return MeasuredTable(features, np.asarray(counts + drawn, dtype=np.int64), sigma)


def measure_answers(
    answers: Entrusted, schema: Schema, tables: Sequence[tuple[int, ...]], sigma: float, *, rng: Randomness
) -> list[MeasuredTable]:
    """The same of all these marginals, from answers to every column as a service keeps them."""
    rows = [rows.astype(np.uint16) for rows in answers.codes(len(schema.features))]
    codes = Codes(schema, np.concatenate(rows).T)
    return [measure_table(codes, features, sigma, rng=rng) for features in tables]


def gain(codes: Codes, features: tuple[int, ...], modelled: Floats, sigma: float) -> int:
    """RAW: how many people nearer a marginal measured with noise sigma would bring a model, in lattice steps.

    Half the L1 distance, less what noise would leave of it. That is k = sqrt(2/pi) sigma for each cell, and at most
    what the cell holds by the rows or by the model: |c - m| - min(k, max(c, m)). But a cell that already agrees to
    within k, where a fit that trusts the model would stay, loses nothing: max(0, |c - m| - k). The score is the mean of
    the two. Replacing a person moves one count up and another down by 1, both terms of a cell by at most as much, and
    the score by at most LATTICE: rounding down keeps whole bounds.
    """
    counts = marginals.table_counts(codes, features) * LATTICE
    expected = np.rint(modelled * (float(LATTICE) * codes.people)).astype(np.int64)
    left = round(math.sqrt(2 / math.pi) * sigma * LATTICE)
    missed = np.abs(counts - expected)
    clear = np.maximum(missed - left, 0)
    known = missed - np.minimum(np.maximum(counts, expected), left)
    return int((clear + known).sum()) // 4


def pick_table(scores: Sequence[int], rho: float, allowed: Callable[[int], bool], *, rng: Randomness) -> int | None:
    """The number of one score by the exponential mechanism among those that are `allowed`: rho-zCDP.

    The scores have the sensitivity LATTICE. Whether a number is allowed is public; it is asked only of those that come
    before the pick, which is the largest score plus Gumbel noise among the allowed ones. None where none is.
    """
    order = _ordered(np.asarray(scores, dtype=np.int64), Fraction(gumbel_scale(rho, 1)) * LATTICE, rng)
    return next((i for i in order.tolist() if allowed(i)), None)


@dataclass(slots=True)
class Candidate:
    """A score whose key is known as an interval: it is in lattice steps, and the leading bits of its uniform."""

    flat: int
    score: int
    prefix: int
    bits: int = 64

    def more(self, rng: Randomness) -> None:
        self.prefix = self.prefix << 64 | int(rng.words(1)[0])
        self.bits += 64

    def interval(self, scale: Fraction) -> tuple[Fraction, Fraction]:
        """Around score/scale - ln(-ln(1 - V)), V's leading bits being the prefix; the key falls as V grows."""
        if self.prefix == 0 or self.prefix + 1 == 1 << self.bits:
            return Fraction(-(10**9)), Fraction(10**9)
        context = exact_context(self.bits // 3 + 30)
        ends = []
        for numerator in (self.prefix + 1, self.prefix):
            left = context.divide(Decimal((1 << self.bits) - numerator), Decimal(1 << self.bits))
            ends.append(-Fraction(context.ln(context.minus(context.ln(left)))))
        # Quotient and logarithms are correctly rounded, and -ln(left) is at least 2^-bits: off by 10^-(30 + bits/32).
        error = Fraction(1, 10 ** (25 + self.bits // 40))
        share = self.score / scale
        return share + ends[0] - error, share + ends[1] + error


def _ordered(scores: Ints, scale: Fraction, rng: Randomness) -> Ints:
    """The numbers of the scores by score/scale + Gumbel, from the largest."""
    words = rng.words(len(scores))
    keys = gumbel_keys(words, scores, float(scale))
    order = np.argsort(-keys, kind="stable")
    if not unsettled(words).any() and bool((-np.diff(keys[order]) > 2 * SLACK).all()):
        return order
    return settled([Candidate(i, int(scores[i]), int(words[i])) for i in order.tolist()], len(order), scale, rng)


def unsettled(words: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """Keys that the leading word says too little about."""
    return np.asarray((words < _LOW) | (words > _HIGH), dtype=np.bool_)


def gumbel_keys(words: NDArray[np.uint64], values: Ints, scale: float) -> Floats:
    """values/scale - ln(-ln(1 - V)): V small makes the key large, and V's leading bits are the most of a float."""
    v = words.astype(np.float64)
    v += 0.5
    v *= -(2.0**-64)
    np.maximum(v, -1 + 2.0**-53, out=v)
    np.log1p(v, out=v)
    np.negative(v, out=v)
    np.log(v, out=v)
    return np.asarray(values / scale - v)


def settled(candidates: list[Candidate], picks: int, scale: Fraction, rng: Randomness) -> Ints:
    """The largest in order, drawing more bits of those whose intervals still meet."""
    while True:
        known = sorted(((c.interval(scale), c) for c in candidates), key=lambda pair: -pair[0][1])
        # Sorted by upper ends: the first is certain where its lower end is above every other upper end.
        unsure: set[int] = set()
        for i in range(min(picks, len(known) - 1)):
            if known[i][0][0] <= known[i + 1][0][1]:
                unsure |= {i, i + 1}
        if not unsure:
            return np.array([c.flat for _, c in known[:picks]], dtype=np.int64)
        for i in unsure:
            known[i][1].more(rng)
