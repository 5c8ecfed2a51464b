"""The public lattice on which everything exact happens: one clip-and-round for one number and for several.

A floating-point sum depends on the order of its terms, so that replacing one person's value may move it by more than
the range of a value: the sensitivity that the noise is calibrated to would be wrong (Casacuberta, Shoemate, Vadhan and
Wagaman, "Widespread underestimation of sensitivity in differentially private libraries", CCS 2022). Integers are summed
exactly: every person contributes one level in {0, ..., levels}, and replacing a person moves the sum by at most
`levels`.

How many levels depends on what must fit into 64 bits: a number has `LEVELS`, a coordinate of a vector twice `HALF`,
because the squared norm of a vector of up to 1,024 coordinates is computed in integers too.

>>> bounds = Bounds(0, 200_000)
>>> bounds.levels([0.0, 100_000.0, 999_999.0]).tolist() == [0, LEVELS // 2, LEVELS]
True

**Sums of reports** are those of doubles without rounding, in which neither order nor grouping can be seen. Addition of
doubles is not associative: two halves of a collection, added up apart and then together, end in other digits than the
whole. Every finite double is a whole multiple of 2^-1074, so its sum and the sum of its squares are dyadic rationals,
which Python's integers hold exactly. To stay quick, a block of numbers is cut into limbs of 20 bits,

    x = sum_i l_i 2^(top - 20 (i+1)),   |l_i| < 2^20,   x^2 = sum_s 2^(2 top - 20 (s+2)) sum_(i+j=s) l_i l_j

which are added up as 64-bit integers: there are at most 105 limbs, so that 2^15 of the inner sums stay below 2^62.

>>> half = exact_sums(np.array([1e16, 1.0]))[0] + exact_sums(np.array([-1e16]))[0]
>>> half.total, half == exact_sums(np.array([1.0, -1e16, 1e16]))[0]
(Fraction(1, 1), True)
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, finite, must

__all__ = ["HALF", "LEVELS", "MOST_LEVELS", "NOTHING", "SQUARE_STEPS", "Bounds", "Floats", "Groups", "Ints", "Lattice"]
__all__ += ["Sums", "check_reach", "column_sums", "exact_sums", "grouped_sums", "joined", "missing_each", "numbers"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


LEVELS = 2**32
"""Steps over the bounds of one number: finer than any data that 32 bits can tell apart."""

SQUARE_STEPS = 2**16
"""Steps of the distance from the middle of the bounds, rounded down, whose squares are summed for the spread."""

HALF = 2**24
"""Steps from the centre to a bound of one of several numbers: with at most 1,024 dimensions a squared norm stays below
2^59, so that 64-bit integers hold it exactly."""

MOST_LEVELS = 2**50
_CHUNK = 1 << 15  # values at a time: the work stays in the cache


@dataclass(frozen=True)
class Lattice:
    """`levels` equal steps over [lower, upper]; a value is rounded to the nearest point after clipping.

    `level(x)` = floor((clip(x) - lower) * scale + 1/2) with scale = levels / (upper - lower), in IEEE doubles. Each
    operation is monotone in x, and the construction checks that `upper` itself maps to `levels`: so every x maps
    into {0, ..., levels}, whatever the rounding.

    >>> Lattice(0.0, 100.0, 1000).round(np.array([12.34, math.inf])).tolist()
    [123, 1000]
    """

    lower: float
    upper: float
    levels: int

    def __post_init__(self) -> None:
        Bounds(self.lower, self.upper)
        must(1 <= self.levels <= MOST_LEVELS, "levels", "must be between 1 and 2**50", self.levels)
        ok = math.floor(self.width * self.scale + 0.5) == self.levels
        must(ok, "levels", "must be a number of steps that doubles can tell apart over this range", self.levels)

    @property
    def width(self) -> float:
        return float(self.upper) - float(self.lower)

    @property
    def middle(self) -> float:
        """What stands for a value that is missing or no number, unless another public value is stated."""
        return min(max(float(self.lower) + self.width / 2, self.lower), self.upper)

    @property
    def scale(self) -> float:
        return self.levels / self.width

    def level(self, value: float) -> int:
        """The level of one value that is not NaN."""
        return int(self.round(np.array([value], dtype=np.float64))[0])

    def round(self, values: NDArray[np.float64], missing: float | None = None) -> NDArray[np.int64]:
        """The levels of many values; one that is no number has the level of `missing`, and is refused without it."""
        out = np.empty(values.shape, dtype=np.int64)
        source, flat = values.reshape(-1), out.reshape(-1)
        for start in range(0, len(source), _CHUNK):
            share = np.clip(source[start : start + _CHUNK], self.lower, self.upper)
            # Clipped values are finite, so the sum is not a number exactly when one of them is not.
            if np.isnan(share.sum()):
                must(missing is not None, "value", "must be a number", "a missing value")
                share[np.isnan(share)] = missing
            share -= self.lower
            share *= self.scale
            share += 0.5
            np.floor(share, out=share)
            flat[start : start + _CHUNK] = share
        return out


def missing_each(stated: Sequence[float | str] | float | str | None, columns: int) -> tuple[float | str, ...] | None:
    """What a missing value of each column counts as: a number or "middle", one for all or one for each.

    >>> missing_each("middle", 2), missing_each(None, 2)
    (('middle', 'middle'), None)
    """
    if stated is None or isinstance(stated, str | float | int):
        return None if stated is None else (stated,) * columns
    return tuple(stated) * (columns if len(stated) == 1 else 1)


@dataclass(frozen=True, slots=True)
class Bounds:
    """lower < upper, chosen without looking at the data. Values outside are clipped by the side that sees them."""

    way: ClassVar[str] = "number"
    dimensions: ClassVar[int] = 1
    reach: ClassVar[float] = 1.0
    ratio: ClassVar[float] = 1.0
    reach_steps: ClassVar[int] = LEVELS // 2
    start: ClassVar[int] = -1
    """Where steps are counted from, in reaches from the middle: from the lower bound."""
    square_steps: ClassVar[int] = SQUARE_STEPS
    squares_sensitivity: ClassVar[int] = SQUARE_STEPS**2
    """How far one person moves the sum of squared steps from the middle."""
    lower: float
    upper: float

    def __post_init__(self) -> None:
        finite("lower", self.lower)
        finite("upper", self.upper)
        must(self.lower < self.upper, "upper", f"must be greater than lower ({self.lower:g})", self.upper)
        sensible = 1e-280 <= self.width <= 1e280
        must(sensible, "upper", "must be neither so near to lower nor so far that doubles give up", self.upper)

    @property
    def width(self) -> float:
        return self.upper - self.lower

    @property
    def centre(self) -> float:
        return self.lower + self.width / 2

    @property
    def half(self) -> float:
        return self.width / 2

    @property
    def sides(self) -> tuple[tuple[float, float], ...]:
        """The centre, and how far a value lies from it at most."""
        return ((self.centre, self.half),)

    def levels(self, values: Sequence[float] | Floats) -> NDArray[np.int64]:
        """Clip and round to the lattice. A value that is not a number has no level and is refused."""
        return Lattice(self.lower, self.upper, LEVELS).round(np.asarray(values, dtype=np.float64))

    def steps(self, values: Floats) -> Ints:
        """The levels of everybody's number (one a row), as of a vector of one column."""
        return self.levels(values)

    def from_unit(self, y: float) -> float:
        """From the unit coordinate [-1, 1] to the value's own."""
        return self.centre + self.half * y

    def project(self, x: float) -> float:
        return min(max(x, self.lower), self.upper)

    def made(self, invite: Any) -> str:
        """How reports on a number within these bounds are made, in a line."""
        g, tag = invite.promise, f",invite={invite.answers}" if invite.answers else ""
        kept = {} if g is None else {"epsilon": g.epsilon, "delta": g.delta}
        fields = kept | {"lower": self.lower, "upper": self.upper}
        return f"{invite.name}({','.join(f'{key}={float(value)!r}' for key, value in fields.items())}{tag})"


_BITS = 20
_BLOCK = 1 << 15
_UNIT = 1074  # every double is a whole multiple of 2^-1074
_LONGEST = 1100  # hexadecimal digits: squares need 4,196 bits, and their number 63 more
_DYADIC = re.compile(r"(-?)0x(0|[1-9a-f][0-9a-f]*)p-(0|[1-9][0-9]*)")


@dataclass(frozen=True, slots=True)
class Sums:
    """How many numbers, their sum, the sum of their squares, the least and the most: exact, and mergeable by `+`."""

    people: int
    total: Fraction
    squares: Fraction
    least: float | None
    most: float | None

    def __post_init__(self) -> None:
        must(self.people >= 0, "people", "must not be negative", self.people)
        if self.least is None or self.most is None:
            ok = self.people == 0 and self.total == self.squares == 0 and self.least is self.most
        else:
            # The sum of n numbers in [least, most] lies between n times both; the squares obey Cauchy and Schwarz.
            n, low, high = self.people, Fraction(self.least), Fraction(self.most)
            ok = n > 0 and n * low <= self.total <= n * high
            ok = ok and self.total**2 <= n * self.squares <= n * n * max(low * low, high * high)
        must(ok, "sums", "must be those of numbers between the least and the most", "others")

    def __add__(self, other: Sums) -> Sums:
        return Sums(
            self.people + other.people,
            self.total + other.total,
            self.squares + other.squares,
            min((x for x in (self.least, other.least) if x is not None), default=None),
            max((x for x in (self.most, other.most) if x is not None), default=None),
        )

    def moved(self, centre: float, half: float) -> tuple[float, float]:
        """The sums of ``(x - centre)/half`` and of its square, each rounded once."""
        n, c, h = self.people, Fraction(centre), Fraction(half)
        total = self.total - n * c
        return float(total / h), float((self.squares - c * (self.total + total)) / (h * h))

    def to_dict(self) -> dict[str, Any]:
        """For JSON, without loss.

        >>> exact_sums(np.array([0.5, 3.0]))[0].to_dict()
        {'people': 2, 'total': '0x7p-1', 'squares': '0x25p-2', 'least': 0.5, 'most': 3.0}
        """
        return asdict(self) | {"total": _written(self.total), "squares": _written(self.squares)}

    @classmethod
    def from_dict(cls, stated: Any) -> Sums:
        """The inverse of `to_dict`; anything that it cannot have written is refused."""
        ok = isinstance(stated, dict) and set(stated) == {f.name for f in fields(cls)}
        must(ok, "sums", "must hold people, total, squares, least and most", "other fields")
        people, ends = stated["people"], (stated["least"], stated["most"])
        ok = type(people) is int and all(e is None or (type(e) is float and math.isfinite(e)) for e in ends)
        must(ok, "sums", "must hold finite numbers", "others")
        return cls(people, _read(stated["total"], _UNIT), _read(stated["squares"], 2 * _UNIT), *ends)


NOTHING = Sums(0, Fraction(0), Fraction(0), None, None)
"""The sums of nobody: the identity of `+`."""


def _written(x: Fraction) -> str:
    """A dyadic rational as the hexadecimal number that C and Python read, with an exponent of 2."""
    return f"{x.numerator:#x}p-{x.denominator.bit_length() - 1}"


def _read(text: Any, most: int) -> Fraction:
    result = _DYADIC.fullmatch(text) if isinstance(text, str) and len(text) <= _LONGEST else None
    if result is not None and int(result[3]) <= most:
        value = Fraction(int(result[1] + result[2], 16), 1 << int(result[3]))
        if _written(value) == text:  # lowest terms: equal sums have equal texts
            return value
    raise InvalidInput("`sums` must hold exact numbers such as 0x7p-1. Got another text.")


def check_reach(sums: Sums, centre: float, reach: float) -> None:
    """Refuse sums that hold a report which no honest device sends."""
    ok = sums.least is None or sums.most is None or (centre - reach <= sums.least and sums.most <= centre + reach)
    must(ok, "reports", "must lie where this mechanism can put them", "one that does not")


def numbers(name: str, given: Any, *shape: int) -> Floats:
    """An array of doubles whose entries, one a person, have this shape."""
    x = np.asarray(given, dtype=np.float64)
    ok = x.ndim == len(shape) + 1 and x.shape[1:] == shape
    must(ok, name, f"must be numbers of shape (people{''.join(f', {n}' for n in shape)})", f"shape {x.shape}")
    return x


# --- by column, by group ---------------------------------------------------------------------------------------------

Groups = tuple[tuple[float, Sums], ...]
"""The sums of people who share a number (an epsilon), each number once and ascending."""


def column_sums(values: Floats) -> tuple[Sums, ...]:
    """The sums of each column of (people x columns); NaN where a person says nothing of a column.

    >>> [s.people for s in column_sums(np.array([[1.0, np.nan], [2.0, 3.0]]))]
    [2, 1]
    """
    return tuple(exact_sums(column[~np.isnan(column)])[0] for column in values.T)


def grouped_sums(values: Floats, keys: Floats) -> Groups:
    """The sums of the values of each key."""
    order = np.argsort(keys, kind="stable")
    distinct, starts = np.unique(keys[order], return_index=True)
    result = exact_sums(values[order], starts) if len(distinct) else []
    return tuple(zip(distinct.tolist(), result, strict=True))


def joined(one: Groups, two: Groups) -> Groups:
    """Both in one."""
    result = dict(one)
    for key, sums in two:
        result[key] = result.get(key, NOTHING) + sums
    return tuple(sorted(result.items()))


# --- adding up --------------------------------------------------------------------------------------------------------


def exact_sums(values: Floats, starts: Ints | None = None) -> list[Sums]:
    """The sums of each segment of `values`; segments begin at `starts` (ascending from 0, none of them empty)."""
    x = np.ascontiguousarray(values, dtype=np.float64)
    must(bool(np.isfinite(x).all()), "reports", "must be finite numbers", "others")
    if not len(x):
        return [NOTHING]
    begin = np.zeros(1, dtype=np.int64) if starts is None else np.asarray(starts, dtype=np.int64)
    totals, squares = [0] * len(begin), [0] * len(begin)
    for low in range(0, len(x), _BLOCK):
        block = x[low : low + _BLOCK]
        first = int(np.searchsorted(begin, low, side="right")) - 1
        last = int(np.searchsorted(begin, low + len(block), side="left"))
        cuts = np.maximum(begin[first:last] - low, 0)
        _add_block(block, cuts, first, totals, squares)
    counts = np.diff(begin, append=len(x)).tolist()
    # Adding 0 makes the two zeros one, which minima and maxima would otherwise choose by their order.
    least, most = ((end.reduceat(x, begin) + 0.0).tolist() for end in (np.minimum, np.maximum))
    return [
        Sums(n, Fraction(t, 1 << _UNIT), Fraction(q, 1 << 2 * _UNIT), low, high)
        for n, t, q, low, high in zip(counts, totals, squares, least, most, strict=True)
    ]


def _add_block(block: Floats, cuts: Ints, first: int, totals: list[int], squares: list[int]) -> None:
    """Add the segments of a block, the first of which has the number `first`, to sums in units of 2^-1074 and of its
    square."""
    limbs, lowest = _limbs(block)
    last = len(limbs) - 1
    pairs = [
        sum((limbs[i] * limbs[s - i] for i in range(max(0, s - last), min(s, last) + 1)), start=np.int64(0))
        for s in range(2 * last + 1)
    ]
    # Trailing limbs may lie below 2^-1074, where every double has only zeros.
    for sums, parts, shift in ((totals, limbs, lowest + _UNIT), (squares, pairs, 2 * (lowest + _UNIT))):
        for number, digits in enumerate(zip(*(np.add.reduceat(part, cuts).tolist() for part in parts), strict=True)):
            whole = 0
            for digit in digits:
                whole = (whole << _BITS) + digit
            sums[first + number] += whole << shift if shift >= 0 else whole >> -shift


def _limbs(block: Floats) -> tuple[list[Ints], int]:
    """Whole numbers of 20 bits, the most significant first, and the exponent of the last: the block is their sum."""
    weight = int(np.frexp(np.abs(block).max())[1])
    rest = block
    result: list[Ints] = []
    while rest.any():
        weight -= _BITS
        limb = np.trunc(_scaled(rest, -weight))
        result.append(limb.astype(np.int64))
        rest = rest - _scaled(limb, weight)
    return result, weight


def _scaled(x: Floats, exponent: int) -> Floats:
    """x 2^exponent; a product is several times quicker than ldexp, where that power is a double."""
    if -1022 <= exponent <= 1023:
        return x * 2.0**exponent
    return np.asarray(np.ldexp(x, exponent))
