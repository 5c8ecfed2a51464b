"""Decide floor(-scale ln U) and U < exp(-a) for an infinite uniform bit string U, without any error.

Each decision is made from an interval that provably contains the real number. The interval comes from the
cheapest of three computations that settles the question:

1. float64 with the platform's `log` or `exp`, with a margin of at least 64 times its error;
2. for the logarithm, about 2**-67 of absolute error from IEEE additions and multiplications alone;
3. rational numbers around `decimal`'s correctly rounded `ln` and `exp`, drawing more bits of U as needed.

Only unsettled elements move on. Stage 3 ends with probability one: e**x is irrational for every rational
x != 0, so a cell's end is no dyadic rational and some prefix of U falls strictly on one side of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hybridp.public.randomisers import exact_context
from hybridp.randomness import Randomness

__all__ = ["LOG_MARGIN", "EXP_MARGIN", "below_exp", "geometric", "settle_below_exp", "settle_geometric"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

# Stage 1: |computed - true| of L = -ln u is below LOG_MARGIN * (L + 1) by a factor of 64 if log is within 4 ulp:
# 4 ulp(L) <= 2**-50 L, and rounding u, the scale and the product adds 2**-53 + 2 * 2**-53 L.
LOG_MARGIN = 2.0**-44
# Below this the unknown bits of U (relative width 1/w) are no longer small beside LOG_MARGIN.
_SMALLEST_FAST = 1 << 50
# Stage 2: |computed - true| of L is below 2**-67; the fraction of scale * L adds a few 2**-52.
_FINE_LOG_MARGIN = 2.0**-61
_FINE_CELL_MARGIN = 2.0**-46
# Relative margin of p = exp(-a); the error is below 2**-43 wherever p > 2**-72 (see `below_exp`).
EXP_MARGIN = 2.0**-36


@dataclass(frozen=True)
class _LogTable:
    """ln 2 and ln(k/1024) as a multiple of 2**-40 (exact to add up) and a float64 remainder (below 2**-41)."""

    ln2_high: float
    ln2_low: float
    inverse: Floats
    high: Floats
    low: Floats


@lru_cache(maxsize=1)
def _log_table() -> _LogTable:
    context = exact_context(50)

    def split(x: Decimal) -> tuple[float, float]:
        exact = Fraction(x)
        high = Fraction(round(exact * 2**40), 2**40)
        return float(high), float(exact - high)

    # Bin i holds m in [1 + i/256, 1 + (i+1)/256); k/1024 is close to the reciprocal of its middle.
    inverse = [round(Fraction(1024 * 512, 513 + 2 * i)) for i in range(256)]
    parts = [split(context.subtract(context.ln(k), context.ln(1024))) for k in inverse]
    two = split(context.ln(2))
    return _LogTable(
        two[0],
        two[1],
        np.array(inverse, dtype=np.float64),
        np.array([high for high, _ in parts]),
        np.array([low for _, low in parts]),
    )


def _fine_log(w: Ints) -> tuple[Floats, Floats]:
    """-ln(w / 2**63) for w >= 1 as an unevaluated sum, within 2**-67, from exact float64 steps.

    With w = z 2**-s and m = z / 2**62 in [1, 2):  -ln(w/2**63) = (s+1) ln 2 + ln(k/1024) - ln(1 + r),
    where r = m k/1024 - 1 is held exactly as rh + rl and |r| < 2**-8.
    """
    table = _log_table()
    # Where float64(w) was rounded up to a power of two, m lies just below 1 and the first bin serves.
    s = np.maximum(63 - np.frexp(w.astype(np.float64))[1].astype(np.int64), 0)
    z = w << s
    bin_ = np.maximum((z >> 54) - 256, 0)
    k = table.inverse[bin_]
    rh = ((z >> 22).astype(np.float64) * k - 2.0**50) * 2.0**-50
    rl = (z & ((1 << 22) - 1)).astype(np.float64) * k * 2.0**-72
    r = rh + rl
    # ln(1+r) - r = r^2 (-1/2 + r/3 - r^2/4 + ...); the first term left out is below 2**-78.
    series = np.full(len(w), -1 / 8)
    for power in range(7, 1, -1):
        series *= r
        series += (-1.0) ** (power + 1) / power
    series *= r * r
    turns = (s + 1).astype(np.float64)
    head = turns * table.ln2_high + table.high[bin_]
    high = head - rh
    back = high - head
    lost = (head - (high - back)) - (rh + back)
    low = ((turns * table.ln2_low + table.low[bin_]) - rl - series) + lost
    return high, low


def _halves(x: Floats) -> tuple[Floats, Floats]:
    """x as the sum of two 26-bit numbers (Veltkamp)."""
    c = x * 134217729.0
    top = c - (c - x)
    return top, x - top


def _fine_cells(w: Ints, scale: Fraction) -> tuple[Ints, Bools]:
    """Stage 2: floor(scale * -ln U) where the leading 63 bits of U are w, and where that is certain."""
    high, low = _fine_log(np.maximum(w, 1))
    s = float(scale)
    rest = float(scale - Fraction(s))
    product = high * s
    (a, b), (c, d) = _halves(high), _halves(np.array([s]))
    lost = b * d - (((product - a * c) - b * c) - a * d)
    cell = np.floor(product)
    part = (product - cell) + (lost + (low * s + high * rest))
    carry = np.floor(part)
    part -= carry
    margin = s * (_FINE_LOG_MARGIN + 2.0 / np.maximum(w, 1)) + _FINE_CELL_MARGIN
    cell += carry
    # The cell [0, 1) has no lower end to fall below; w = 0 says nothing about how small U is.
    sure = (part < 1.0 - margin) & ((part > margin) | (cell == 0.0)) & (w > 0)
    return cell.astype(np.int64), sure


def settle_geometric(prefix: int, bits: int, scale: Fraction, rng: Randomness) -> int:
    """Stage 3: floor(-scale ln U), U's leading `bits` bits being `prefix` and the rest drawn when needed.

    >>> from hybridp.randomness import seeded
    >>> settle_geometric(1 << 62, 63, Fraction(10), seeded(0))    # 10 ln 2 = 6.93
    6
    """
    while True:
        if prefix > 0:
            context = exact_context(bits // 3 + 30)
            log = bits * Fraction(context.ln(2)) - Fraction(context.ln(prefix))
            # Both terms are below `bits` and correctly rounded: off by 10 * bits * 10**-prec. ln(1 + 1/x) < 1/x.
            error = Fraction(bits, 10 ** (context.prec - 2))
            least = max(Fraction(0), scale * (log - Fraction(1, prefix) - error))
            cell = math.floor(least)
            if cell == math.floor(scale * (log + error)):
                return cell
        prefix = prefix << 64 | int(rng.words(1)[0])
        bits += 64


@np.errstate(all="ignore")
def geometric(w: Ints, scale: Fraction, rng: Randomness) -> Ints:
    """floor(-scale ln U) for each element, w being the leading 63 bits of its U: P(X >= k) = exp(-k/scale).

    >>> from hybridp.randomness import seeded
    >>> geometric(np.array([1 << 62, (1 << 63) - 1]), Fraction(10), seeded(0)).tolist()
    [6, 0]
    """
    s = float(scale)
    v = w.astype(np.float64)
    np.maximum(v, 1.0, out=v)
    v *= 2.0**-63
    np.log(v, out=v)
    v *= -s
    cell = np.floor(v)
    # Unsettled: the distance to the middle of the cell exceeds 1/2 - LOG_MARGIN * (v + s).
    part = v - cell
    part -= 0.5
    np.abs(part, out=part)
    v *= LOG_MARGIN
    part += v
    unsure = part >= 0.5 - (LOG_MARGIN * s + 2.0**-50)
    unsure |= w < _SMALLEST_FAST
    out = cell.astype(np.int64)
    at = np.flatnonzero(unsure)
    if len(at):
        out[at], sure = _fine_cells(w[at], scale)
        for i in at[~sure]:
            out[i] = settle_geometric(int(w[i]), 63, scale, rng)
    return out


def settle_below_exp(prefix: int, bits: int, exponent: Fraction, rng: Randomness) -> bool:
    """Is U < exp(-exponent)? U's leading `bits` bits are `prefix`; the rest is drawn when needed.

    >>> from hybridp.randomness import seeded
    >>> settle_below_exp(1 << 63, 64, Fraction(1), seeded(0))    # .5 < .37
    False
    """
    if exponent == 0:
        return True
    while True:
        if exponent >= bits:
            # exp(-exponent) < 2**-bits: any prefix but 0 is above it.
            if prefix > 0:
                return False
        else:
            context = exact_context(bits // 3 + 30)
            power = context.divide(Decimal(-exponent.numerator), Decimal(exponent.denominator))
            p = Fraction(context.exp(power))
            # The exponent is below `bits` and off by 10**(1 - prec) of itself; p is at most 1.
            error = Fraction(bits, 10 ** (context.prec - 2))
            if Fraction(prefix + 1, 1 << bits) <= p - error:
                return True
            if Fraction(prefix, 1 << bits) >= p + error:
                return False
        prefix = prefix << 64 | int(rng.words(1)[0])
        bits += 64


@np.errstate(all="ignore")
def below_exp(y: Ints, centre: Fraction, sigma: Fraction, rng: Randomness) -> Bools:
    """An exact Bernoulli(exp(-a)) for each y >= 0, with a = (y - centre)**2 / (2 sigma**2).

    Where a <= 50 (otherwise p < 2**-72), d = y - centre is at most 10 sigma. The caller's centre is below sigma,
    so d/sigma is known to 31 * 2**-53, a to 2**-44, and p to a relative 2**-43: 128 times inside EXP_MARGIN.

    >>> from hybridp.randomness import seeded
    >>> below_exp(np.array([0, 10**6]), Fraction(0), Fraction(1), seeded(0)).tolist()
    [True, False]
    """
    # Below 2**-100 the answer is "y is 0" to within 2**-200, and float64 could divide by nothing.
    s = max(float(sigma), 2.0**-100)
    q = y.astype(np.float64)
    q -= float(centre)
    q /= s
    # Past 2**10 the exponent exceeds 2**19 and p is 0 in float64 either way; the clip avoids an overflow.
    np.clip(q, -1024.0, 1024.0, out=q)
    np.square(q, out=q)
    q *= -0.5
    np.exp(q, out=q)
    q *= 2.0**64
    words = rng.words(len(y))
    u = words.astype(np.float64)
    u -= q
    accept = u < 0.0
    np.abs(u, out=u)
    q *= EXP_MARGIN
    # The 4096 covers the unknown bits (1) and the rounding of the word (2**10).
    q += 4096.0
    for i in np.flatnonzero(u <= q):
        exponent = (int(y[i]) - centre) ** 2 / (2 * sigma**2)
        accept[i] = settle_below_exp(int(words[i]), 64, exponent, rng)
    return accept
