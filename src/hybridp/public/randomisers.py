"""Local randomisers as frozen descriptions: what a device does to one value before anything leaves it.

A value is first clipped and put on a public lattice of `LEVELS` steps over its bounds: level l stands for the unit
coordinate ``z = 2 l/LEVELS - 1`` in [-1, 1]. Every randomiser answers with a *report* y in the same coordinate,
unbiased (``E[y] = z`` exactly), with variance ``constant + quadratic z^2``. Probabilities are whole multiples of 2^-64,
rounded towards more privacy: a device draws them exactly by comparing integers, and the guarantee is verified in exact
arithmetic when the description is made.

>>> best_randomiser(PureDP(1.0)).name, best_randomiser(PureDP(4.0)).name
('dithered', 'piecewise')
>>> round(dithered_bit(PureDP(1.0)).worst_variance, 2)
4.02

Frequency oracles as frozen descriptions: how many people hold each of k items, told by randomised reports.

A report *supports* some of the items: its own holder's with probability ``truth`` (p*), any other given item with
probability ``other`` (q*). The supports of an item, counted over n reports, are debiased by
``share = (count/n - q*)/(p* - q*)``; one report's share of that has variance ``s (1-s)/(p*-q*)^2`` with
``s = share p* + (1-share) q*`` (Wang, Blocki, Li and Jha 2017, "pure" protocols). k-ary randomised response
is an oracle too: a report supports the item that it names.

Probabilities are whole multiples of 2^-64, rounded towards more privacy, and verified in exact arithmetic when a
description is made. Counting supports is post-processing: it needs no randomness and spends nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from decimal import ROUND_HALF_EVEN, Context, Decimal, DivisionByZero, InvalidOperation, Overflow
from fractions import Fraction
from typing import Any, Literal, NamedTuple, cast, get_args

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, Guarantee, PureDP
from hybridp.public.lattice import LEVELS, Floats, Ints

__all__ = ["DitheredBit", "DitheredReports", "LEVELS", "LOCAL_NAMES", "LocalName", "Oracle", "Piecewise"]
__all__ += ["Randomiser", "best_randomiser", "dithered_bit", "estimate", "exact_context", "exact_exp"]
__all__ += ["k_randomised_response", "piecewise", "randomised_response", "randomiser"]
__all__ += ["share_oracle", "subset_selection", "support_counts"]

WORD = 2**64
"""Probabilities are multiples of 1/WORD."""

LocalName = Literal["best", "dithered", "piecewise"]
LOCAL_NAMES: tuple[LocalName, ...] = get_args(LocalName)


def exact_context(digits: int) -> Context:
    """A decimal context of our own, every field stated: nothing that a program set for its own numbers reaches it."""
    traps = [InvalidOperation, DivisionByZero, Overflow]
    return Context(digits, ROUND_HALF_EVEN, Emin=-999_999, Emax=999_999, capitals=1, clamp=0, flags=[], traps=traps)


def exact_exp(epsilon: float) -> Fraction:
    """e^epsilon to 60 digits, from below (Decimal's exponential is correctly rounded), as a fraction.

    Whatever is computed from it is computed exactly, and from below is the side of more privacy.
    """
    context = exact_context(60)
    return Fraction(context.next_minus(context.exp(Decimal.from_float(float(epsilon)))))


def _pure(guarantee: Guarantee) -> PureDP:
    """An epsilon that a report can have. Most randomisers are purely private; a stated delta is simply not spent."""
    epsilon = guarantee.epsilon
    must(0.001 <= epsilon <= 30, "epsilon", "must be at least 0.001 and at most 30 for a local report", epsilon)
    return PureDP(epsilon)


class _Told:
    """A report whose variance is ``constant + quadratic z^2``: of a number all that is reported, and by everybody."""

    __slots__ = ()
    share = 1.0
    reported = 1

    @property
    def law(self) -> Randomiser:
        """Of one coordinate's report."""
        return cast(Randomiser, self)

    @property
    def variance_terms(self) -> tuple[float, float]:
        raise NotImplementedError

    @property
    def worst_variance(self) -> float:
        constant, quadratic = self.variance_terms
        return constant + max(0.0, quadratic)


# --- numbers ----------------------------------------------------------------------------------------------------------


class DitheredReports(NamedTuple):
    """Dithered bits as devices send them, whole numbers: the threshold's midpoint, and which side of it was told."""

    threshold: NDArray[Any]
    above: NDArray[Any]


@dataclass(frozen=True, slots=True)
class DitheredBit(_Told):
    """One dithered bit: a public random threshold U and the noisy sign of z - U.

    U is uniform on the midpoints of the lattice, independent of the value; s = sign(z - U) is flipped with probability
    q = flips/2^64; the report is ``y = B s + U`` with ``B = 1/(1-2q)``. Only s depends on the value and, given U, it
    is a randomised response: epsilon-DP when ``(1-q)/q <= e^epsilon``. Variance ``B^2 - 2/3`` for every z (subtractive
    dithering on Duchi's bit; Ben-Basat, Mitzenmacher and Vargaftik 2021).
    """

    guarantee: PureDP
    flips: int

    name = "dithered"

    def __post_init__(self) -> None:
        _pure(self.guarantee)
        ok = 0 < self.flips <= WORD // 2 and WORD - self.flips <= exact_exp(self.guarantee.epsilon) * self.flips
        must(ok, "flips", f"must be large enough for {self.guarantee}", self.flips)

    @property
    def gain(self) -> float:
        """B, the size of the debiased sign."""
        return WORD / (WORD - 2 * self.flips)

    def values(self, sent: DitheredReports) -> NDArray[np.float64]:
        """What reports stand for in the unit coordinate: ``y = B s + U``, unbiased for each person's value."""
        y: NDArray[np.float64] = np.multiply(sent.threshold, 2 / LEVELS, dtype=np.float64)
        y += sent.above * (2 * self.gain)
        y += 1 / LEVELS - 1 - self.gain
        return y

    @property
    def variance_terms(self) -> tuple[float, float]:
        return self.gain**2 - 2 / 3, 0.0

    @property
    def bound(self) -> float:
        """No honest report lies outside [-bound, bound]."""
        return self.gain + 1

    def square_deviation(self, mean: float, spread: float) -> float:
        """sd of (y - mean)^2 for one report.

        Exactly ``4 B^2/3 - 56/45 + 4 z^2 (B^2 - 1)`` is its variance when everybody holds z = mean; the constant
        4/45 in place of -56/45 covers spread-out data.
        """
        return math.sqrt(4 * self.gain**2 / 3 + 4 / 45 + 4 * mean**2 * (self.gain**2 - 1))


@dataclass(frozen=True, slots=True)
class Piecewise(_Told):
    """The piecewise mechanism (Wang et al. 2019) on integers: a window around the value is more likely than the rest.

    There are LEVELS + width cells; the window of level l is [l, l + width). With probability p = inside/2^64 the cell
    is uniform in the window, otherwise uniform outside. epsilon-DP when ``p/width <= e^epsilon (1-p)/LEVELS``. The
    mean cell is linear in l, so the report is debiased exactly. ``width = LEVELS/t``; t = e^(epsilon/3) is the better
    choice.
    """

    guarantee: PureDP
    width: int
    inside: int

    name = "piecewise"

    def __post_init__(self) -> None:
        _pure(self.guarantee)
        odds_ok = self.inside * LEVELS <= exact_exp(self.guarantee.epsilon) * (WORD - self.inside) * self.width
        must(0 < self.width <= LEVELS, "width", "must be at least 1 and at most the number of levels", self.width)
        must(self.slope > 0 and odds_ok, "inside", f"must be small enough for {self.guarantee}", self.inside)

    @property
    def _p(self) -> float:
        return self.inside / WORD

    @property
    def slope(self) -> float:
        """How far the mean cell moves when the level moves by one."""
        return self._p - (1 - self._p) * self.width / LEVELS

    @property
    def cells(self) -> int:
        return LEVELS + self.width

    @property
    def offset(self) -> float:
        """The mean cell at level 0."""
        centre = (self.width - 1) / 2
        rest = (self.cells * ((self.cells - 1) / 2) - self.width * centre) / LEVELS
        return self._p * centre + (1 - self._p) * rest

    @property
    def variance_terms(self) -> tuple[float, float]:
        """In the continuous limit, the lattice being 2^-32 fine: E[cell^2] is quadratic in the window's centre."""
        w = self.width / self.cells  # all lengths as shares of the cells
        p = self._p
        slope = p - (1 - p) * w / (1 - w)
        scale = slope * (1 - w) / 2  # cell position per unit of z
        middle = p * w**2 / 12 + (1 - p) * (1 / 3 - w**3 / 12) / (1 - w)

        def variance(z: float) -> float:
            c = (z + 1) / 2 * (1 - w) + w / 2
            mean = p * c + (1 - p) * (0.5 - w * c) / (1 - w)
            return (middle + slope * c**2 - mean**2) / scale**2

        constant = variance(0.0)
        return constant, variance(1.0) - constant

    @property
    def bound(self) -> float:
        far = (self.cells - 1 - self.offset) / self.slope
        return 2 * far / LEVELS - 1

    def square_deviation(self, mean: float, spread: float) -> float:
        """An upper bound: |y - mean| is bounded, so the fourth moment is at most its square times the second."""
        second = self.worst_variance + spread
        return math.sqrt(max(second * ((self.bound + abs(mean)) ** 2 - second), 1e-12))


Randomiser = DitheredBit | Piecewise


def dithered_bit(guarantee: Guarantee) -> DitheredBit:
    """The dithered bit for an epsilon: ``q = 1/(e^epsilon + 1)``, rounded up to a multiple of 2^-64."""
    pure = _pure(guarantee)
    return DitheredBit(pure, int(WORD / (exact_exp(pure.epsilon) + 1)) + 1)


def piecewise(guarantee: Guarantee) -> Piecewise:
    """The piecewise mechanism: ``p = e^epsilon/(t + e^epsilon)`` rounded down, t = e^(epsilon/3)."""
    pure = _pure(guarantee)
    t = math.exp(pure.epsilon / 3)
    width = max(1, round(LEVELS / t))
    odds = exact_exp(pure.epsilon) * width / LEVELS
    return Piecewise(pure, width, int(WORD * odds / (1 + odds)) - 1)


def best_randomiser(guarantee: Guarantee) -> Randomiser:
    """The purely private randomiser with the smallest worst-case variance: dithered bit up to epsilon of about 2,
    piecewise above."""
    candidates: tuple[Randomiser, ...] = (dithered_bit(guarantee), piecewise(guarantee))
    return min(candidates, key=lambda r: r.worst_variance)


def randomiser(name: LocalName, guarantee: Guarantee) -> Randomiser:
    """A randomiser by its name on the command line."""
    must(name in LOCAL_NAMES, "local", f"must be one of {', '.join(LOCAL_NAMES)}", name)
    made = {"best": best_randomiser, "dithered": dithered_bit, "piecewise": piecewise}
    return made[name](guarantee)


def _enough(categories: int) -> None:
    whole = isinstance(categories, int) and not isinstance(categories, bool)
    must(whole and 2 <= categories < 2**63, "categories", "must be at least 2 and below 2**63", categories)


def debiased_variance(truth: float, other: float, share: float) -> float:
    """Variance of one debiased indicator whose item has this true share."""
    must(0 <= share <= 1, "share", "must be between 0 and 1", share)
    seen = share * truth + (1 - share) * other
    return seen * (1 - seen) / (truth - other) ** 2


@dataclass(frozen=True, slots=True)
class Oracle:
    """A set of d = `size` items: with the holder's own with probability p = keep/2^64, the rest uniform.

    A set that holds the own item has probability ``p/C(k-1, d-1)``, another ``(1-p)/C(k-1, d)``: epsilon-DP when
    ``p (k-d) <= e^epsilon (1-p) d``. d near ``k/(e^epsilon+1)`` is best (Ye and Barg 2018).

    One item (d = 1) is k-ary randomised response: the truth with probability p, otherwise one of the k-1 others,
    uniformly. It may spend a delta: (epsilon, delta)-DP when ``p <= (e^epsilon + (k-1) delta)/(e^epsilon + k - 1)``;
    for k = 2 this is the dissertation's Thm 1.1.3.
    """

    guarantee: Guarantee
    categories: int
    keep: int
    size: int = 1

    def __post_init__(self) -> None:
        _pure(self.guarantee)
        _enough(self.categories)
        k, d, keep = self.categories, self.size, self.keep
        must(isinstance(d, int) and 1 <= d < k, "size", "must be at least 1 and below the number of categories", d)
        # An own item that is no likelier than chance (d/k) would say nothing: nothing could be debiased.
        above = WORD * d < keep * k and keep <= WORD
        spare = Fraction(self.guarantee.delta) * WORD * (k - 1) if d == 1 else 0
        # 60 digits of e^epsilon: whole numbers below 2^128 have 39.
        ok = above and keep * (k - d) <= exact_exp(self.guarantee.epsilon) * (WORD - keep) * d + spare
        must(ok, "keep", f"must be small enough for {self.guarantee} and above chance", keep)

    @property
    def name(self) -> str:
        return "k-rr" if self.size == 1 else "subset"

    @property
    def truth(self) -> float:
        return self.keep / WORD

    @property
    def other(self) -> float:
        """The d-1 or d places left, spread over k-1 items: ``(d - p)/(k-1)``."""
        return (self.size * WORD - self.keep) / (WORD * (self.categories - 1))

    def variance(self, share: float) -> float:
        return debiased_variance(self.truth, self.other, share)

    def likelihood(self, output: int, value: int) -> float:
        """Of one named item."""
        return self.truth if output == value else self.other


def k_randomised_response(guarantee: Guarantee, categories: int) -> Oracle:
    """The most truthful k-ary randomised response, its probability rounded down to a multiple of 2^-64.

    >>> round(k_randomised_response(PureDP(np.log(3)), 2).truth, 12)
    0.75
    """
    _pure(guarantee)
    _enough(categories)
    e, others, delta = exact_exp(guarantee.epsilon), categories - 1, Fraction(guarantee.delta)
    keep = int(WORD * (e + others * delta) / (e + others)) - 1
    return Oracle(guarantee, categories, keep)


def randomised_response(guarantee: Guarantee) -> Oracle:
    """Randomised response on one bit (dissertation, Def. 1.1.2 and Thm 1.1.3)."""
    return k_randomised_response(guarantee, 2)


def subset_selection(guarantee: PureDP | ApproxDP, categories: int) -> Oracle:
    """Subset selection with the size next to ``k/(e^epsilon + 1)`` that has the smaller variance at share 0.

    ``p = e^epsilon d/(e^epsilon d + k - d)``, rounded down to a multiple of 2^-64.

    >>> subset_selection(PureDP(1.0), 500).size    # 500/(e+1) = 134.5
    134
    """
    pure = _pure(guarantee)
    _enough(categories)
    e = exact_exp(pure.epsilon)

    def with_size(d: int) -> Oracle:
        return Oracle(pure, categories, int(WORD * e * d / (e * d + categories - d)) - 1, d)

    below = min(max(1, int(categories / (e + 1))), categories - 1)
    above = min(below + 1, categories - 1)
    return min(with_size(below), with_size(above), key=lambda oracle: oracle.variance(0.0))


def share_oracle(guarantee: PureDP | ApproxDP, size: int) -> Oracle:
    """The most precise report for a rare one of so many items: k-ary randomised response, or a random set of items.

    A stated delta is not spent. Optimised unary encoding and local hashing (Wang et al. 2017) are never better.

    >>> share_oracle(PureDP(1.0), 3).name, share_oracle(PureDP(1.0), 50).name
    ('k-rr', 'subset')
    """
    # Beyond this, multiples of 2^-64 are too coarse for the smallest epsilons of k-ary randomised response.
    must(size <= 2**52, "categories", "must be at most 2**52", size)
    return subset_selection(guarantee, size)


_BLOCK = 1 << 14


def support_counts(oracle: Oracle, reports: NDArray[Any]) -> Ints:
    """How many reports support each item. They come from outside: their shape and range are checked."""
    reports, k = np.asarray(reports), oracle.categories
    shape = (len(reports), oracle.size) if oracle.size > 1 else (len(reports),)
    must(reports.shape == shape, "reports", f"must have the shape {shape}", reports.shape)
    flat = reports.reshape(-1)
    counts = np.zeros(k, dtype=np.int64)
    step = max(_BLOCK, 4 * k)
    for start in range(0, len(flat), step):
        part = flat[start : start + step]
        _in_range("reports", part, k)
        counts += np.bincount(part, minlength=k)
    return counts


def _in_range(name: str, numbers: NDArray[Any], k: Any) -> None:
    whole = numbers.dtype.kind in "iu"
    inside = whole and (not numbers.size or bool(numbers.min() >= 0 and (numbers < k).all()))
    must(inside, name, f"must be whole numbers from 0 to {k - 1}", "something else")


def estimate(oracle: Oracle, counts: Ints, n: int) -> tuple[Floats, Floats]:
    """Unbiased shares ``(count/n - q*)/(p* - q*)`` and the variance of each, from the supports among n reports.

    The variance ``s (1-s)/(n (p*-q*)^2)``, s = count/n, counts the people as a sample from the population that the
    share speaks of. Shares may be negative or above 1: cutting them off would bias them.

    >>> shares, variances = estimate(k_randomised_response(PureDP(np.log(3)), 2), np.array([75, 25]), 100)
    >>> shares.round(12).tolist(), variances.round(12).tolist()
    ([1.0, 0.0], [0.0075, 0.0075])
    """
    must(bool(np.all(n > 0)), "n", "must be positive", n)
    counts = np.asarray(counts)
    _in_range("counts", counts, n + 1)
    seen = counts / n
    gap = oracle.truth - oracle.other
    return (seen - oracle.other) / gap, seen * (1 - seen) / (n * gap**2)
