"""The order of scores with Gumbel noise, drawn exactly.

"The largest scores plus Gumbel noise" are decided from intervals: 64 bits of a uniform number settle almost every
comparison in float64, and the few that they do not are settled with as many more bits, in decimal arithmetic, as it
takes. Rounding therefore changes no probability, which plain floating-point Gumbel noise cannot promise.
"""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hybridp.noise import Randomness
from hybridp.public.randomisers import exact_context

__all__ = ["SLACK", "Candidate", "gumbel_keys", "settled", "unsettled"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
# A float64 key is within SLACK of the true one for words from _LOW to _HIGH: the unknown bits of V move the key by at
# most 2^-24, rounding V by 2^-29 where it is near 1, and log1p, log, quotient and sum by a few ulp of a key below 2^30.
SLACK = 2.0**-20
_LOW, _HIGH = np.uint64(1 << 24), np.uint64((1 << 64) - (1 << 40))


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
