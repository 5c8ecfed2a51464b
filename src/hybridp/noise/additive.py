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
2. for the logarithm, the same in extended precision, where the platform has it;
3. rational numbers around `decimal`'s correctly rounded `ln` and `exp`, drawing more bits of U as needed.

Only unsettled elements move on. Stage 3 ends with probability one: e**x is irrational for every rational
x != 0, so a cell's end is no dyadic rational and some prefix of U falls strictly on one side of it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.lattice import Ints
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.randomisers import exact_context
from hybridp.randomness import Randomness

__all__ = ["EXP_MARGIN", "EXTENDED", "FINE_LOG_MARGIN", "LARGEST_SCALE", "LOG_MARGIN", "additive", "below_exp"]
__all__ += ["bernoulli", "discrete_gaussian", "discrete_laplace", "geometric", "perturb", "settle_below_exp"]
__all__ += ["settle_geometric", "uniform_below"]

Bools = NDArray[np.bool_]

# |computed - true| of L = -ln u is below LOG_MARGIN * (L + 1) by a factor of 64 if log is within 4 ulp: 4 ulp(L) <=
# 2**-50 L, and rounding u, the scale and the product adds 2**-53 + 2 * 2**-53 L. With 64 bits it is 2**-11 of that.
LOG_MARGIN = 2.0**-44
FINE_LOG_MARGIN = 2.0**-55
# Below this the unknown bits of U (relative width 1/w) are no longer small beside LOG_MARGIN.
_SMALLEST_FAST = 1 << 50
EXTENDED = np.finfo(np.longdouble).nmant >= 63
"""Whether this platform has numbers of 64 bits and more."""
# Relative margin of p = exp(-a); the error is below 2**-43 wherever p > 2**-72 (see `below_exp`).
EXP_MARGIN = 2.0**-36


def _cells(w: Ints, scale: Fraction, kind: type[np.floating[Any]], margin: Any) -> tuple[Ints, Bools]:
    """floor(-scale ln U), the leading 63 bits of U being w, computed in this kind of number; and where it is not sure:
    where v = -scale ln U is within `margin` of v + scale from an end of its cell."""
    near = float(scale)
    s = kind(near) + kind(float(scale - Fraction(near)))
    v: NDArray[Any] = w.astype(kind)
    np.maximum(v, 1.0, out=v)
    v *= 2.0**-63
    np.log(v, out=v)
    v *= -s
    cell = np.floor(v)
    part = v - cell  # and its distance from the middle
    part -= 0.5
    np.abs(part, out=part)
    v *= margin
    part += v
    return cell.astype(np.int64), np.asarray(part >= 0.5 - (margin * s + 2.0**-50))


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
    out, unsure = _cells(w, scale, np.float64, LOG_MARGIN)
    unsure |= w < _SMALLEST_FAST
    at = np.flatnonzero(unsure)
    if len(at) and EXTENDED:
        # The unknown bits of U move v by at most scale/w.
        out[at], unsure = _cells(w[at], scale, np.longdouble, FINE_LOG_MARGIN + 1 / w[at])
        at = at[unsure]
    for i in at:
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
