"""Exact noise: drawn bit by bit, added to sums (`additive`), or sent as reports (`reports`).

Uniform bits come from the operating system, or from a seed for simulations. Every sampler takes a `Randomness` and asks
it for 64-bit words and nothing else, so a simulation runs the code that a release runs. `secure()` is the only source
that carries a privacy guarantee: whoever knows a seed can subtract the noise. The flag `simulated` and the `label`
travel with the source so that a receipt can say which of the two was used.

>>> seeded(7).label, secure().simulated
('seeded generator, simulation only', False)

Noise computed by rounding a real formula to float64 leaves gaps that identify the data (Mironov 2012). These
samplers return integers, and the probability of each integer is exactly the stated one, given uniform words:
no step rounds (docs/exact-noise.md). Multiply the value by the lattice first, round it, count the rounding in the
sensitivity, and add the noise there. Sampling time depends on the values drawn; no protection against an observer of
the clock is claimed.

floor(-scale ln U) and U < exp(-a), for an infinite uniform bit string U, are decided without any error: from an
interval that provably contains the real number. It comes from the cheapest of three computations that settles the
question:

1. float64 with the platform's `log` or `exp`, with a margin of at least 64 times its error;
2. for the logarithm, the same in extended precision, where the platform has it;
3. rational numbers around `decimal`'s correctly rounded `ln` and `exp`, drawing more bits of U as needed.

Only unsettled elements move on. Stage 3 ends with probability one: e**x is irrational for every rational
x != 0, so a cell's end is no dyadic rational and some prefix of U falls strictly on one side of it.

Of frequency oracles every probability is the stated multiple of 2^-64. No step rounds: a coin compares whole numbers,
ties are settled with further bits, and a uniform choice redraws what would make it uneven (Lemire 2019).
`oracle_reports` is what devices send; `simulate_counts` adds the reports up as they are made.

>>> from hybridp.public.mechanisms import PureDP
>>> from hybridp.public.randomisers import dithered_bit, estimate, share_oracle, support_counts
>>> oracle, values = share_oracle(PureDP(1.0), 10), np.arange(20_000) % 2
>>> counts = support_counts(oracle, oracle_reports(oracle, values, rng=seeded(1)))
>>> estimate(oracle, counts, len(values))[0][:2].round(1).tolist()
[0.5, 0.5]
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from fractions import Fraction
from numbers import Rational
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public import randomisers
from hybridp.public.mechanisms import AddedNoise, DiscreteLaplace
from hybridp.public.randomisers import LEVELS, DitheredBit, DitheredReports, Floats, Ints, Oracle, exact_context

__all__ = ["EXP_MARGIN", "EXTENDED", "FINE_LOG_MARGIN", "LARGEST_SCALE", "LOG_MARGIN", "Randomness", "additive"]
__all__ += ["below_exp", "bernoulli", "categories", "discrete_gaussian", "discrete_laplace", "dithered", "geometric"]
__all__ += ["oracle_reports", "perturb", "reports", "rounded_up", "secure", "seeded", "settle_below_exp"]
__all__ += ["settle_geometric", "simulate_counts", "synthetic_data_generator", "uniform_below", "voted_cells"]

Words: TypeAlias = NDArray[np.uint64]

# One call to the system generator fetches at most this many words (a quarter of a mebibyte).
_CHUNK = 1 << 15


@final
@dataclass(frozen=True, eq=False)
class Randomness:
    """A source of independent, uniform 64-bit words.

    `source(n)` returns n fresh words and `children(n)` returns n sources that are independent of this one
    and of each other. A test may pass its own `source` to replay chosen words.
    """

    simulated: bool
    label: str
    source: Callable[[int], Words] = field(repr=False)
    children: Callable[[int], list[Randomness]] = field(repr=False)

    def words(self, n: int) -> Words:
        """n independent words, each uniform on 0 .. 2**64 - 1, in an array that the caller may overwrite.

        >>> len(secure().words(5))
        5
        """
        must(n >= 0, "n", "must not be negative", n)
        return self.source(n)

    def spawn(self, n: int) -> list[Randomness]:
        """n sources for parallel work; those of a seeded source are reproducible, and new at every call.

        >>> a, b = seeded(1).spawn(2)
        >>> bool((a.words(4) == b.words(4)).any())
        False
        """
        must(n >= 0, "n", "must not be negative", n)
        return self.children(n)


def _system_words(n: int) -> Words:
    """Fresh bytes at every call: with nothing kept between calls, a forked process cannot repeat its parent."""
    out = np.empty(n, dtype=np.uint64)
    for start in range(0, n, _CHUNK):
        stop = min(n, start + _CHUNK)
        out[start:stop] = np.frombuffer(os.urandom(8 * (stop - start)), dtype=np.uint64)
    return out


def secure() -> Randomness:
    """The operating system's cryptographic generator; required for anything that is released.

    >>> secure().label
    'system randomness'
    """
    return Randomness(False, "system randomness", _system_words, lambda n: [secure() for _ in range(n)])


def _from_sequence(sequence: np.random.SeedSequence) -> Randomness:
    generator = np.random.SFC64(sequence)
    return Randomness(
        simulated=True,
        label="seeded generator, simulation only",
        source=lambda n: generator.random_raw(n),
        children=lambda n: [_from_sequence(child) for child in sequence.spawn(n)],
    )


def seeded(seed: int) -> Randomness:
    """Reproducible words from NumPy's SFC64, for simulations and tests; it protects nobody.

    >>> bool((seeded(3).words(10) == seeded(3).words(10)).all())
    True
    """
    whole = isinstance(seed, int | np.integer) and not isinstance(seed, bool)
    must(whole and seed >= 0, "seed", "must be a whole number that is not negative", seed)
    return _from_sequence(np.random.SeedSequence(int(seed)))


def synthetic_data_generator(rng: Randomness) -> np.random.Generator:
    """A NumPy generator for made-up data, seeded from a simulation's own words; never for noise that protects anyone.

    >>> synthetic_data_generator(seeded(1)).random() == synthetic_data_generator(seeded(1)).random()
    True
    """
    must(rng.simulated, "rng", "must be a seeded generator for made-up data", rng.label)
    return np.random.Generator(np.random.SFC64(rng.words(4).tolist()))


# --- additive ---------------------------------------------------------------------------------------------------------

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
    size = _count(size)
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

    >>> noise = discrete_laplace(10, 100_000, rng=seeded(1))
    >>> 190 < float(noise.var()) < 210    # 2q/(1-q)**2 = 199.8
    True
    """
    exact = _rational("scale", scale)
    return _fill(size, lambda n: _laplace(n, exact, rng))


def discrete_gaussian(sigma: float | Fraction, size: int, *, rng: Randomness) -> Ints:
    """`size` draws with P(k) proportional to exp(-k**2 / (2 sigma**2)), exactly.

    Guarantee: added to an integer query of sensitivity D, (D/sigma)**2/2-zCDP (Canonne, Kamath and Steinke
    2020, Theorem 4). Method: their Algorithm 3, rejection from the discrete Laplace of scale
    t = floor(sigma) + 1 with acceptance exp(-(|Y| - sigma**2/t)**2 / (2 sigma**2)); 0 < sigma <= 2**46.

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

    return _fill(size, attempt)


def bernoulli(numerator: int, bits: int, size: int, *, rng: Randomness) -> NDArray[np.bool_]:
    """`size` draws that are True with probability numerator / 2**bits exactly, 1 <= bits <= 64.

    The leading `bits` bits of a word are compared with the numerator, which may be 2**bits (always True).

    >>> bernoulli(4, 2, 3, rng=seeded(1)).tolist()
    [True, True, True]
    """
    bits = _whole("bits", bits)
    must(1 <= bits <= 64, "bits", "must be between 1 and 64", bits)
    numerator = _whole("numerator", numerator)
    must(0 <= numerator <= 1 << bits, "numerator", f"must be between 0 and 2**{bits}", numerator)
    size = _count(size)
    out = np.ones(size, dtype=np.bool_)
    for start in range(0, size if numerator < 1 << bits else 0, _CHUNK):
        words = rng.words(min(_CHUNK, size - start))
        out[start : start + len(words)] = words >> np.uint64(64 - bits) < np.uint64(numerator)
    return out


def uniform_below(k: int, size: int, *, rng: Randomness) -> Ints:
    """`size` draws uniform on 0 .. k-1 exactly, 1 <= k <= 2**63.

    The leading ceil(log2 k) bits of a word, drawn again when they are k or more: fewer than two words a draw on
    average, and one when k is a power of two.

    >>> sorted(set(uniform_below(3, 100, rng=seeded(1)).tolist()))
    [0, 1, 2]
    """
    k = _whole("k", k)
    must(1 <= k <= 1 << 63, "k", "must be between 1 and 2**63", k)
    if k == 1:
        return np.zeros(_count(size), dtype=np.int64)
    shift = np.uint64(64 - (k - 1).bit_length())

    def attempt(n: int) -> Ints:
        words = rng.words(n)
        words >>= shift
        draws = words.view(np.int64)
        return draws if k & (k - 1) == 0 else draws[draws < k]

    return _fill(size, attempt)


# --- draws from a described mechanism ---------------------------------------------------------------------------------


def perturb(mechanism: AddedNoise, total: int, *, rng: Randomness) -> int:
    """A whole number plus one draw of the mechanism's noise."""
    return total + int(additive(mechanism, 1, rng=rng)[0])


def additive(mechanism: AddedNoise, size: int, *, rng: Randomness) -> Ints:
    """`size` draws of the mechanism's noise."""
    if isinstance(mechanism, DiscreteLaplace):
        return discrete_laplace(mechanism.scale, size, rng=rng)
    return discrete_gaussian(mechanism.sigma, size, rng=rng)


# --- reports ----------------------------------------------------------------------------------------------------------

_HALF = np.uint64(0xFFFFFFFF)


def reports(randomiser: randomisers.Randomiser, levels: Ints, *, rng: Randomness) -> Floats:
    """One report for each person's level, in the unit coordinate: unbiased for ``2 level/LEVELS - 1``.

    The floats are computed from exactly drawn integers, so rounding them is post-processing.
    """
    out = np.empty(len(levels))
    for start in range(0, len(levels), _CHUNK):
        part = levels[start : start + _CHUNK]
        if isinstance(randomiser, DitheredBit):
            out[start : start + _CHUNK] = randomiser.values(dithered(randomiser, part, rng=rng))
        else:
            out[start : start + _CHUNK] = _piecewise(randomiser, part, rng)
    return out


def dithered(randomiser: DitheredBit, levels: Ints, *, rng: Randomness) -> DitheredReports:
    """One dithered bit for each person's level, as the whole numbers that a device sends.

    One word a report: its upper half is the threshold, its lower half the leading bits of the flip's uniform.

    >>> from hybridp.public.mechanisms import PureDP
    >>> from hybridp.public.randomisers import dithered_bit
    >>> bit, levels = dithered_bit(PureDP(1.0)), np.array([0, 2**31])
    >>> sent = dithered(bit, levels, rng=seeded(1))
    >>> bool((bit.values(sent) == reports(bit, levels, rng=seeded(1))).all())
    True
    """
    words = rng.words(len(levels))
    low = words & _HALF
    words >>= np.uint64(32)
    threshold = words.view(np.int64)
    above = levels > threshold
    above ^= _coins(low, randomiser.flips, rng)
    return DitheredReports(threshold, above)


def _piecewise(randomiser: randomisers.Piecewise, levels: Ints, rng: Randomness) -> Floats:
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
    values = _checked(mechanism.categories, values)
    keep = bernoulli(mechanism.keep, 64, len(values), rng=rng)
    other = uniform_below(mechanism.categories - 1, len(values), rng=rng)
    return np.where(keep, values, other + (other >= values))


def rounded_up(levels: Ints, steps: int, *, rng: Randomness) -> NDArray[np.bool_]:
    """Whether each level is rounded up to `steps`: with probability ``level/steps`` exactly; else down to 0.

    >>> rounded_up(np.array([0, 4, 4]), 4, rng=seeded(1)).tolist()
    [False, True, True]
    """
    return np.asarray(uniform_below(steps, len(levels), rng=rng) < levels)


def voted_cells(joint: Ints, stride: int, steps: int, *, rng: Randomness) -> Ints:
    """The cell of each joint level ``category * stride + level``: the category's first where it is rounded up."""
    category, level = np.divmod(joint, stride)
    return np.asarray(2 * category + ~rounded_up(level, steps, rng=rng), dtype=np.int64)


_CELLS = 1 << 21  # entries of a people-by-items array at a time: the work stays in the cache


def oracle_reports(oracle: Oracle, values: Ints, *, rng: Randomness) -> NDArray[Any]:
    """One report for each person's item in 0..k-1, with the oracle's guarantee for each person.

    k-ary randomised response gives int64[n], the named item; subset selection int32[n, size], each row in rising
    order, so that the place of an item says nothing.
    """
    values, step, draw = _checked(oracle.categories, values), _people(oracle), _subset if oracle.size > 1 else _response
    item = np.int32 if oracle.size > 1 else np.int64
    parts = (draw(oracle, values[at : at + step], rng) for at in range(0, max(len(values), 1), step))
    return np.concatenate([part.astype(item, copy=False) for part in parts])


def simulate_counts(oracle: Oracle, values: Ints, *, rng: Randomness) -> Ints:
    """The supports of each item among everybody's reports: ``support_counts(oracle, oracle_reports(...))``, in memory
    that does not grow with the people."""
    values = _checked(oracle.categories, values)
    counts = np.zeros(oracle.categories, dtype=np.int64)
    step = max(_people(oracle), min(oracle.categories, _CELLS))
    for start in range(0, len(values), step):
        counts += randomisers.support_counts(oracle, oracle_reports(oracle, values[start : start + step], rng=rng))
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
    product >>= np.uint64(32)
    out = product.view(np.int64)
    out[again] = uniform_below(k, len(again), rng=rng)
    return out


def _half_words(n: int, rng: Randomness) -> NDArray[np.uint64]:
    """n times 32 uniform bits, two of a word."""
    return rng.words(-(-n // 2)).view(np.uint32)[:n].astype(np.uint64)


def _response(mechanism: Oracle, values: Ints, rng: Randomness) -> Ints:
    """k-ary randomised response with one word a person: half for the coin, half for the choice."""
    words = rng.words(len(values))
    keep = _coins(words >> np.uint64(32), mechanism.keep, rng)
    words &= _HALF
    out = _choices(words, mechanism.categories - 1, rng)
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
        pick = _choices(_half_words(len(people), rng), j + 1, rng)
        pick += pick >= own
        at = base + pick
        taken = flat[at]
        np.copyto(at, base + j + (j >= own), where=taken)
        flat[at] = True
        if j == k - 1 - d:
            people = np.arange(n)
    return np.flatnonzero(flat).reshape(n, d) - row[:, None]
