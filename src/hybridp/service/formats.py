"""How local people's reports come, are checked, lie in the store and add up: by the invitation that asks for them,
whatever the question. Reports by one mechanism are all as long.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.randomisers import k_randomised_response
>>> described(k_randomised_response(PureDP(1.0), 3))["categories"]
3
"""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput
from hybridp.public.distribution import ReportBins, report_bins, window_bins
from hybridp.public.heavy import OneSlot
from hybridp.public.lattice import NOTHING, Sums, column_sums
from hybridp.public.messages import OnNumber
from hybridp.public.oracles import SubsetSelection
from hybridp.public.randomisers import (
    LEVELS,
    DitheredBit,
    DitheredReports,
    KRandomisedResponse,
    LocalAdditive,
    Piecewise,
    Randomiser,
)
from hybridp.public.shares import OnOptions
from hybridp.public.vector import OnVector
from hybridp.public.vector_randomisers import UnitVector
from hybridp.service.fields import DIGITS, NUMBER, double, refused, rising

__all__ = ["BIT", "Bit", "Coordinates", "Heard", "NumberReports", "OutOfReach", "Reports", "described"]
__all__ += ["number_reports", "place_reports", "reports_on"]

BIT, SLOT = struct.Struct("<IB"), struct.Struct("<I")
"""How reports lie in the store: a dithered bit (threshold, above), and a place in a list."""
Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mechanism = DitheredBit | Piecewise | LocalAdditive | KRandomisedResponse | SubsetSelection | OneSlot | UnitVector


class OutOfReach(InvalidInput):
    """A number that no device which follows the plan can send."""


class Bit(msgspec.Struct, forbid_unknown_fields=True):
    """A dithered bit as it was drawn."""

    threshold: Annotated[int, msgspec.Meta(ge=0, lt=LEVELS)]
    above: bool


class Coordinates(msgspec.Struct, forbid_unknown_fields=True):
    """Some columns by their numbers, ascending, and the report on each: a bit, or a number in the column's own unit."""

    coordinates: list[int]
    each: list[Bit | float]


def described(mechanism: Mechanism) -> dict[str, Any]:
    """A randomiser as a task document states it; `browser` says whether the page can draw it exactly.

    Probabilities are whole numbers over 2^64, written as decimal strings, so that a browser draws them exactly and
    computes no exponential.
    """
    match mechanism:
        case DitheredBit():
            return {"name": "dithered", "flips": str(mechanism.flips), "gain": mechanism.gain, "browser": True}
        case Piecewise():
            own = {"width": str(mechanism.width), "inside": str(mechanism.inside)}
            return {"name": "piecewise", **own, "bound": mechanism.bound, "browser": True}
        case LocalAdditive():
            return {"name": mechanism.name, "bound": mechanism.bound, "browser": False}
        case KRandomisedResponse():
            kept = {"keep": str(mechanism.keep), "categories": mechanism.categories}
            return {"name": "k-rr", **kept, "browser": True}
        case SubsetSelection():
            of = {"categories": mechanism.categories, "size": mechanism.size}
            return {"name": "subset", **of, "keep": str(mechanism.keep), "browser": True}
        case UnitVector():
            cap: dict[str, Any] = {"pairs": mechanism.pairs, "top": mechanism.top, "inside": str(mechanism.inside)}
            return {"name": mechanism.name, "dimensions": mechanism.dimensions, **cap, "browser": False}
        case OneSlot():
            return {"name": mechanism.name, "browser": True}


@dataclass
class Heard:
    """What local reports on one question say: how many, the sums of each number that they tell, and their counts.

    Where the answer is told by a public group: how many, and the rest category by category. `own` are the sums of
    people with an epsilon of their own; `mixed` is what came through a mixer, and `batches` how many in each batch.
    """

    people: int = 0
    sums: tuple[Sums, ...] = ()
    counts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    groups: tuple[Heard, ...] = ()
    own: dict[float, Sums] = field(default_factory=dict)
    mixed: Heard | None = None
    batches: tuple[int, ...] = ()

    @property
    def sum(self) -> Sums:
        """Of the only number."""
        return self.sums[0] if self.sums else NOTHING

    def __add__(self, other: Heard) -> Heard:
        sums = tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)) if self.sums and other.sums else None
        return Heard(self.people + other.people, sums or self.sums or other.sums, self.counts + other.counts)


@dataclass(frozen=True, kw_only=True)
class Reports(ABC):
    """The reports that one mechanism makes: how they come, are checked and kept, and what many of them add up to."""

    type: Any
    """What a report is on its way."""
    size: int
    """Bytes of a report in the store."""
    longest: Any
    """The longest report."""
    mechanism: Mapping[str, Any]
    """As a task document states it."""
    counted: int = 0
    """How many places reports are counted by."""

    @abstractmethod
    def pack(self, name: str, told: Any) -> bytes:
        """A report as a device that follows the plan sends it; `InvalidInput` otherwise."""

    @abstractmethod
    def written(self, body: bytes) -> Any:
        """A stored report as a device would write it into a table."""

    @abstractmethod
    def add(self, heard: Heard, body: bytes, epsilon: float | None = None) -> None:
        """Some stored reports more, behind each other, of people with this epsilon."""


@dataclass(frozen=True, kw_only=True)
class _PlaceReports(Reports):
    """A place of a list, whose entries may have names."""

    names: Sequence[str] = ()

    def pack(self, name: str, told: Any) -> bytes:
        if not 0 <= told < self.counted:
            raise refused(name, f"a whole number from 0 to {self.counted - 1}")
        return SLOT.pack(told)

    def written(self, body: bytes) -> Any:
        (place,) = SLOT.unpack(body)
        return self.names[place] if self.names else place

    def add(self, heard: Heard, body: bytes, epsilon: float | None = None) -> None:
        named = np.bincount(np.frombuffer(body, dtype="<u4"), minlength=self.counted)
        if len(named) != self.counted:
            raise InvalidInput("`reports` must name places of their list. Got others.")
        heard.people += len(body) // self.size
        heard.counts += named


def place_reports(places: int, mechanism: Mapping[str, Any], names: Sequence[str] = ()) -> Reports:
    """One of so many places."""
    own: dict[str, Any] = {"type": int, "size": SLOT.size, "longest": max(places - 1, 0), "counted": places}
    return _PlaceReports(mechanism=mechanism, names=names, **own)


@dataclass(frozen=True, kw_only=True)
class _SetReports(Reports):
    """So many of a list's places, a bit for each place in the store."""

    members: int

    def pack(self, name: str, told: Any) -> bytes:
        if not (len(told) == self.members and rising(told, self.counted)):
            raise refused(name, f"{self.members} different places of its options, rising")
        bits = np.zeros(self.counted, dtype=np.bool_)
        bits[np.array(told, dtype=np.int64)] = True
        return np.packbits(bits).tobytes()

    def written(self, body: bytes) -> Any:
        return body.hex()

    def add(self, heard: Heard, body: bytes, epsilon: float | None = None) -> None:
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8).reshape(-1, self.size), axis=1)
        heard.people += len(bits)
        heard.counts += bits[:, : self.counted].sum(axis=0, dtype=np.int64)


def _option_reports(invite: OnOptions) -> Reports:
    """One option, a set of them or, where several may be ticked, yes or no to a drawn one."""
    question, oracle, mechanism = invite.encoding, invite.mechanism, described(invite.mechanism)
    if isinstance(oracle, SubsetSelection):
        k, longest = oracle.categories, [oracle.categories - 1] * oracle.size
        own: dict[str, Any] = {"type": list[int], "size": -(-k // 8), "longest": longest, "counted": k}
        return _SetReports(mechanism=mechanism, members=oracle.size, **own)
    if question.most:
        mechanism |= {"name": "one-option", "options": question.size}
        return place_reports(2 * question.size, mechanism, invite.encoding.told)
    return place_reports(question.size, mechanism, question.values)


@dataclass(frozen=True, kw_only=True)
class NumberReports(Reports):
    """Numbers, each within its reach of its centre: the only one (`type` is a bit or a number), one for each column, or
    some of them with their places. A dithered bit is kept as it was drawn, another report as it was sent.

    With `bins` reports on the only number are counted by them too.
    """

    centres: Floats
    reaches: Floats
    randomiser: Randomiser | UnitVector
    reported: int
    bins: ReportBins | None = None

    @cached_property
    def _row(self) -> struct.Struct:
        """How one number lies in the store, behind its place where that is told."""
        bit = isinstance(self.randomiser, DitheredBit)
        return struct.Struct(f"<{'H' * (self.type is Coordinates)}{'IB' if bit else 'd'}")

    @cached_property
    def _stored(self) -> Any:
        """The same as an array has it."""
        bit = isinstance(self.randomiser, DitheredBit)
        kept = [("threshold", "<u4"), ("above", "u1")] if bit else [("value", "<f8")]
        return np.dtype([*([("at", "<u2")] if self.type is Coordinates else []), *kept])

    def _told(self, name: str, told: Any) -> tuple[Sequence[int], Sequence[Any]]:
        """The places of the numbers, and these."""
        if self.type is not Coordinates:
            each = told if self.type == list[float] else [told]
            if len(each) != self.reported:
                raise refused(name, f"{self.reported} numbers")
            return range(len(each)), each
        places, each = told.coordinates, told.each
        if not (len(places) == len(each) == self.reported and rising(places, len(self.centres))):
            raise refused(name, f"{self.reported} different coordinates, ascending, each with its report")
        return places, each

    def pack(self, name: str, told: Any) -> bytes:
        rows = []
        for j, one in zip(*self._told(name, told), strict=True):
            if isinstance(one, Bit) != isinstance(self.randomiser, DitheredBit):
                raise refused(name, "a report of the plan's randomiser")
            kept = (one.threshold, one.above) if isinstance(one, Bit) else (double(one),)
            reach = self.reaches[j] * self.randomiser.bound * (1 + 1e-9)
            if not isinstance(one, Bit) and not abs(kept[0] - self.centres[j]) <= reach:
                rule = "must be a report that a device which follows the plan can send"
                raise OutOfReach(f"`{name}` {rule}. Got a number beyond its reach.")
            rows.append(self._row.pack(*((j, *kept) if self.type is Coordinates else kept)))
        return b"".join(rows)

    def units(self, body: bytes) -> Floats:
        """Stored reports, behind each other, in reaches from the centre, one row each; NaN where none was told.

        Of a dithered bit, ``y = B s + U``.
        """
        stored = np.frombuffer(body, dtype=self._stored).reshape(-1, self.reported)
        at = stored["at"] if self.type is Coordinates else np.broadcast_to(np.arange(self.reported), stored.shape)
        if isinstance(self.randomiser, DitheredBit):
            told = self.randomiser.values(DitheredReports(stored["threshold"], stored["above"]))
        else:
            told = (stored["value"] - self.centres[at]) / self.reaches[at]
        out = np.full((len(stored), len(self.centres)), np.nan)
        out[np.arange(len(stored))[:, None], at] = told
        return out

    def written(self, body: bytes) -> Any:
        """In the columns' own units; None where one was not told."""
        each = zip(self.units(body)[0].tolist(), self.centres.tolist(), self.reaches.tolist(), strict=True)
        found = [None if math.isnan(x) else centre + reach * x for x, centre, reach in each]
        return found if self.type in (Coordinates, list[float]) else found[0]

    def add(self, heard: Heard, body: bytes, epsilon: float | None = None) -> None:
        units = self.units(body)
        heard.people += len(units)
        more = column_sums(units)
        if epsilon is not None:
            heard.own[epsilon] = heard.own.get(epsilon, NOTHING) + more[0]
        heard.sums = tuple(a + b for a, b in zip(heard.sums or (NOTHING,) * len(more), more, strict=True))
        if self.bins is not None:
            heard.counts += np.bincount(self.bins.numbers(units[:, 0]), minlength=self.bins.size)


def _longest(randomiser: Randomiser) -> Any:
    return {"threshold": LEVELS - 1, "above": False} if isinstance(randomiser, DitheredBit) else DIGITS


def number_reports(invite: OnNumber, *, binned: bool = False) -> Reports:
    """One number; with `binned` counted too, by the bins of its mechanism, or of windows that people are asked in."""
    made, bounds, bins = invite.mechanism, invite.encoding, None
    if binned:
        within = bool(invite.windows) and isinstance(made, DitheredBit)
        bins = window_bins(made, len(invite.windows)) if within else report_bins(made)  # type: ignore[arg-type]
    return NumberReports(
        type=Bit if isinstance(made, DitheredBit) else float,
        size=(BIT if isinstance(made, DitheredBit) else NUMBER).size,
        longest=_longest(made),
        mechanism=described(made),
        counted=0 if bins is None else bins.size,
        centres=np.array([bounds.centre]),
        reaches=np.array([bounds.half]),
        randomiser=made,
        reported=1,
        bins=bins,
    )


def _vector_reports(invite: OnVector) -> Reports:
    """Some coordinates, each by itself, or a direction. The page draws some coordinates of a box; a ball it leaves to a
    program."""
    plan, bounds = invite.mechanism, invite.encoding
    own: dict[str, Any] = {
        "centres": np.array([side.centre for side in bounds.bounds]),
        "reaches": np.array([side.half * bounds.reach for side in bounds.bounds]),
    }
    if isinstance(plan, UnitVector):
        d = bounds.dimensions
        own |= {"type": list[float], "size": NUMBER.size * d, "longest": [DIGITS] * d, "mechanism": described(plan)}
        return NumberReports(randomiser=plan, reported=d, **own)
    each, many = described(plan.randomiser), plan.reported
    form = {"name": "coordinates", "dimensions": plan.dimensions, "reported": many, "reach": bounds.reach_steps}
    form |= {"each": each, "browser": each["browser"] and bounds.radius_steps is None}
    longest = {"coordinates": [plan.dimensions - 1] * many, "each": [_longest(plan.randomiser)] * many}
    size = many * (2 + (BIT if isinstance(plan.randomiser, DitheredBit) else NUMBER).size)
    own |= {"type": Coordinates, "size": size, "longest": longest, "mechanism": form}
    return NumberReports(randomiser=plan.randomiser, reported=many, **own)


_FORMS: dict[str, Callable[[Any], Reports]] = {
    "number": number_reports,
    "option": _option_reports,
    "vector": _vector_reports,
    "line": lambda asked: _vector_reports(asked.invite),
    "cell": lambda asked: place_reports(asked.encoding.cells, described(asked.mechanism)),
    "slot": lambda asked: place_reports(len(asked.encoding), described(asked.mechanism)),
}


def reports_on(invite: Any) -> Reports:
    """The reports that an invitation asks for."""
    return _FORMS[invite.way](invite)
