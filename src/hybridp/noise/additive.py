"""Exact samplers: whole numbers whose distribution is the stated one, bit for bit.

Noise computed by rounding a real formula to float64 leaves gaps that identify the data (Mironov 2012). These
samplers return integers, and the probability of each integer is exactly the stated one, given uniform words:
no step rounds (see `noise.exact` and docs/exact-noise.md). Multiply the value by the lattice first, round it, count
the rounding in the sensitivity, and add the noise there. Sampling time depends on the values drawn; no
protection against an observer of the clock is claimed.

>>> from hybridp.randomness import seeded
>>> discrete_laplace(2**36, 4, rng=seeded(1)).dtype.name
'int64'
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from numbers import Rational

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise.exact import below_exp, geometric
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.randomness import Randomness

__all__ = [
    "LARGEST_SCALE",
    "additive",
    "bernoulli",
    "discrete_gaussian",
    "discrete_laplace",
    "perturb",
    "uniform_below",
]

Ints = NDArray[np.int64]

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
