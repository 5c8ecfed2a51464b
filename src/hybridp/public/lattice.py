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

**Sums of reports** have no rounding either, so that neither order nor grouping can be seen in them: addition of doubles
is not associative, and two halves of a collection, added up apart and then together, would end in other digits than the
whole. A report, in reaches from the middle, is rounded to a whole number of steps of 2^-40, and these and their squares
are added up as integers: in three parts of 21 bits, of which 64 bits hold sums of products for 2^15 reports at a time.

>>> half = exact_sums(np.array([1.0, 2.0**-40])) + exact_sums(np.array([-1.0]))
>>> half.total, half == exact_sums(np.array([2.0**-40, -1.0, 1.0]))
(1, True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import finite, must

__all__ = ["HALF", "LEVELS", "MOST_LEVELS", "SQUARE_STEPS", "STEPS", "Bounds", "Floats", "Groups", "Ints", "Lattice"]
__all__ += ["Sums", "column_sums", "exact_sums", "grouped_sums", "joined", "missing_each", "numbers"]

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


STEPS = 2**40
"""Steps of a reach in which reports are added up."""
_BLOCK = 1 << 15  # reports at a time: no sum of products of parts of so many bits leaves 64 bits
_BITS = 21
_PART = (1 << _BITS) - 1
_FARTHEST = 2.0**22  # reaches from the middle, beyond which no device's report lies


@dataclass(frozen=True, slots=True)
class Sums:
    """How many reports, their sum in `STEPS`, and the sum of its terms' squares: whole numbers, mergeable by `+`."""

    people: int = 0
    total: int = 0
    squares: int = 0

    def __post_init__(self) -> None:
        ok = all(type(x) is int for x in (self.people, self.total, self.squares)) and self.people >= 0
        ok = ok and self.squares >= abs(self.total) and self.total**2 <= self.people * self.squares
        must(ok, "sums", "must be those of so many whole numbers, and of their squares", "others")

    def __add__(self, other: Sums) -> Sums:
        return Sums(self.people + other.people, self.total + other.total, self.squares + other.squares)

    @property
    def moments(self) -> tuple[float, float]:
        """The sums of reports and of their squares, in reaches, each rounded once."""
        return self.total / STEPS, self.squares / STEPS**2

    def check_reach(self, reach: float) -> None:
        """Refuse sums that no reports have which honest devices send."""
        most = math.floor(reach * STEPS) + 1
        ok = abs(self.total) <= self.people * most and self.squares <= self.people * most**2
        must(ok, "reports", "must lie where this mechanism can put them", "one that does not")


def exact_sums(reports: Floats) -> Sums:
    """Of reports in reaches from the middle, each rounded to a whole step."""
    near = bool((np.abs(reports) <= _FARTHEST).all())  # which no NaN is
    must(near, "reports", "must be finite numbers that lie where a mechanism can put them", "others")
    total = squares = 0
    for start in range(0, len(reports), _BLOCK):
        steps = np.rint(reports[start : start + _BLOCK] * STEPS).astype(np.int64)
        parts = [steps & _PART, (steps >> _BITS) & _PART, steps >> 2 * _BITS]
        for i, one in enumerate(parts):
            total += int(one.sum()) << _BITS * i
            squares += int(one @ one) << 2 * _BITS * i
            squares += sum(int(one @ other) << _BITS * (i + j) + 1 for j, other in enumerate(parts[:i]))
    return Sums(len(reports), total, squares)


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
    return tuple(exact_sums(column[~np.isnan(column)]) for column in values.T)


def grouped_sums(values: Floats, keys: Floats) -> Groups:
    """The sums of the values of each key."""
    order = np.argsort(keys, kind="stable")
    distinct, starts = np.unique(keys[order], return_index=True)
    parts = np.split(values[order], starts[1:])
    return tuple((key, exact_sums(part)) for key, part in zip(distinct.tolist(), parts, strict=False))


def joined(one: Groups, two: Groups) -> Groups:
    """Both in one."""
    result = dict(one)
    for key, sums in two:
        result[key] = result.get(key, Sums()) + sums
    return tuple(sorted(result.items()))
