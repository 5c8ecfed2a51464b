"""Exact samplers: whole numbers whose distribution is the stated one, bit for bit.

Noise computed by rounding a real formula to float64 leaves gaps that identify the data (Mironov 2012). These
samplers return integers, and the probability of each integer is exactly the stated one, given uniform words:
no step rounds (docs/exact-noise.md). Multiply the value by the lattice first, round it, count the rounding in the
sensitivity, and add the noise there. Sampling time depends on the values drawn; no protection against an observer of
the clock is claimed.

>>> from hybridp.randomness import seeded
>>> discrete_laplace(2**36, 4, rng=seeded(1)).dtype.name
'int64'

floor(-scale ln U) and U < exp(-a), for an infinite uniform bit string U, are decided without any error: from an
interval that provably contains the real number. It comes from the cheapest of three computations that settles the
question:

1. float64 with the platform's `log` or `exp`, with a margin of at least 64 times its error;
2. for the logarithm, about 2**-67 of absolute error from IEEE additions and multiplications alone;
3. rational numbers around `decimal`'s correctly rounded `ln` and `exp`, drawing more bits of U as needed.

Only unsettled elements move on. Stage 3 ends with probability one: e**x is irrational for every rational
x != 0, so a cell's end is no dyadic rational and some prefix of U falls strictly on one side of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from numbers import Rational

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.randomisers import exact_context
from hybridp.randomness import Randomness

__all__ = ["EXP_MARGIN", "LARGEST_SCALE", "LOG_MARGIN", "additive", "below_exp", "bernoulli", "discrete_gaussian"]
__all__ += ["discrete_laplace", "geometric", "perturb", "settle_below_exp", "settle_geometric", "uniform_below"]

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


# --- samplers ---------------------------------------------------------------------------------------------------------

LARGEST_SCALE = 2**46

# Samples made at a time: a quarter of a mebibyte a temporary array, which keeps the work in the cache.
_CHUNK = 1 << 15


def _rational(name: str, value: float | Fraction) -> Fraction:
    """The number that the value is, exactly (a float is a dyadic rational), in (0, LARGEST_SCALE]."""
    must(not isinstance(value, bool), name, "must be a number", value)
    rule = "must be positive and at most 2**46"
    if isinstance(value, Rational):
        exact = Fraction(int(value.numerator), int(value.denominator))
    else:
        must(math.isfinite(value), name, rule, value)
        exact = Fraction(float(value))
    must(0 < exact <= LARGEST_SCALE, name, rule, value)
    return exact


def _whole(name: str, value: int) -> int:
    whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    must(whole, name, "must be a whole number", value)
    return int(value)


def _count(size: int) -> int:
    size = _whole("size", size)
    must(size >= 0, "size", "must not be negative", size)
    return size


def _fill(size: int, attempt: Callable[[int], Ints]) -> Ints:
    """The first `size` results of independent attempts, `attempt(n)` being what n of them leave over."""
    out = np.empty(size, dtype=np.int64)
    done = 0
    while done < size:
        kept = attempt(min(size - done, _CHUNK))
        out[done : done + len(kept)] = kept
        done += len(kept)
    return out


def _laplace(n: int, scale: Fraction, rng: Randomness) -> Ints:
    """What n attempts leave: 63 bits of a word begin U, one is the sign, and (minus, 0) is refused."""
    words = rng.words(n)
    minus = (words & np.uint64(1)).view(np.int64)
    words >>= np.uint64(1)
    magnitude = geometric(words.view(np.int64), scale, rng)
    refused = magnitude < minus
    # (x ^ -1) + 1 is -x, (x ^ 0) + 0 is x.
    magnitude ^= -minus
    magnitude += minus
    return magnitude[~refused] if refused.any() else magnitude


def discrete_laplace(scale: float | Fraction, size: int, *, rng: Randomness) -> Ints:
    """`size` draws with P(k) = (1 - q)/(1 + q) q**|k|, q = exp(-1/scale), exactly.

    Guarantee: added to an integer query of L1 sensitivity D, pure epsilon-DP with epsilon = D/scale (Ghosh,
    Roughgarden and Sundararajan 2009). The scale is taken as the rational number that it is, 0 < scale <= 2**46.
    Method: the magnitude is floor(-scale ln U) of an infinite uniform bit string U, whose bits are looked at
    until the cell is certain; a random sign; "minus zero" is drawn again.

    >>> from hybridp.randomness import seeded
    >>> noise = discrete_laplace(10, 100_000, rng=seeded(1))
    >>> 190 < float(noise.var()) < 210    # 2q/(1-q)**2 = 199.8
    True
    """
    exact = _rational("scale", scale)
    return _fill(_count(size), lambda n: _laplace(n, exact, rng))


def discrete_gaussian(sigma: float | Fraction, size: int, *, rng: Randomness) -> Ints:
    """`size` draws with P(k) proportional to exp(-k**2 / (2 sigma**2)), exactly.

    Guarantee: added to an integer query of sensitivity D, (D/sigma)**2/2-zCDP (Canonne, Kamath and Steinke
    2020, Theorem 4). Method: their Algorithm 3, rejection from the discrete Laplace of scale
    t = floor(sigma) + 1 with acceptance exp(-(|Y| - sigma**2/t)**2 / (2 sigma**2)); 0 < sigma <= 2**46.

    >>> from hybridp.randomness import seeded
    >>> noise = discrete_gaussian(10, 100_000, rng=seeded(1))
    >>> 97 < float(noise.var()) < 103
    True
    """
    exact = _rational("sigma", sigma)
    t = math.floor(exact) + 1
    centre = exact**2 / t

    def attempt(n: int) -> Ints:
        y = _laplace(n, Fraction(t), rng)
        return y[below_exp(np.abs(y), centre, exact, rng)]

    return _fill(_count(size), attempt)


def bernoulli(numerator: int, bits: int, size: int, *, rng: Randomness) -> NDArray[np.bool_]:
    """`size` draws that are True with probability numerator / 2**bits exactly, 1 <= bits <= 64.

    The leading `bits` bits of a word are compared with the numerator, which may be 2**bits (always True).

    >>> from hybridp.randomness import seeded
    >>> bernoulli(4, 2, 3, rng=seeded(1)).tolist()
    [True, True, True]
    """
    bits = _whole("bits", bits)
    must(1 <= bits <= 64, "bits", "must be between 1 and 64", bits)
    numerator = _whole("numerator", numerator)
    must(0 <= numerator <= 1 << bits, "numerator", f"must be between 0 and 2**{bits}", numerator)
    size = _count(size)
    out = np.empty(size, dtype=np.bool_)
    if numerator == 1 << bits:
        out[:] = True
        return out
    for start in range(0, size, _CHUNK):
        words = rng.words(min(_CHUNK, size - start))
        out[start : start + len(words)] = words >> np.uint64(64 - bits) < np.uint64(numerator)
    return out


def uniform_below(k: int, size: int, *, rng: Randomness) -> Ints:
    """`size` draws uniform on 0 .. k-1 exactly, 1 <= k <= 2**63.

    The leading ceil(log2 k) bits of a word, drawn again when they are k or more: fewer than two words a draw on
    average, and one when k is a power of two.

    >>> from hybridp.randomness import seeded
    >>> sorted(set(uniform_below(3, 100, rng=seeded(1)).tolist()))
    [0, 1, 2]
    """
    k = _whole("k", k)
    must(1 <= k <= 1 << 63, "k", "must be between 1 and 2**63", k)
    size = _count(size)
    if k == 1:
        return np.zeros(size, dtype=np.int64)
    shift = np.uint64(64 - (k - 1).bit_length())

    def attempt(n: int) -> Ints:
        words = rng.words(n)
        words >>= shift
        draws = words.view(np.int64)
        return draws if k & (k - 1) == 0 else draws[draws < k]

    return _fill(size, attempt)


# --- draws from a described mechanism ---------------------------------------------------------------------------------


def perturb(mechanism: DiscreteLaplace | DiscreteGaussian, total: int, *, rng: Randomness) -> int:
    """A whole number plus one draw of the mechanism's noise."""
    return total + int(additive(mechanism, 1, rng=rng)[0])


def additive(mechanism: DiscreteLaplace | DiscreteGaussian, size: int, *, rng: Randomness) -> Ints:
    """`size` draws of the mechanism's noise."""
    if isinstance(mechanism, DiscreteLaplace):
        return discrete_laplace(mechanism.scale, size, rng=rng)
    return discrete_gaussian(mechanism.sigma, size, rng=rng)
