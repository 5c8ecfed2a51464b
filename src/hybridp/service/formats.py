"""How people's answers come, are checked, lie in the store and add up: trusted people's field by field, local people's
reports by the invitation that asks for them, whatever the question.

An answer takes 8 bytes for each number or option, whatever it says, and a record as many as the longest that the plan
allows; reports by one mechanism are all as long: the size of what is stored tells nothing.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.randomisers import k_randomised_response
>>> described(k_randomised_response(PureDP(1.0), 3))["categories"]
3
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Annotated, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput
from hybridp.public.distribution import invite_bins
from hybridp.public.heavy import OneSlot, normalised
from hybridp.public.lattice import NOTHING, Sums, column_sums
from hybridp.public.messages import Invite
from hybridp.public.oracles import SubsetSelection
from hybridp.public.randomisers import (
    LEVELS,
    DitheredBit,
    DitheredReports,
    KRandomisedResponse,
    LocalAdditive,
    Piecewise,
)
from hybridp.public.vector_randomisers import ScalarReports, UnitVector

__all__ = ["BIT", "DIGITS", "FORM_NUMBER", "NUMBER", "Bit", "Coordinates", "Field", "Heard"]
__all__ += ["OutOfReach", "Reports", "described", "number_field", "numbers_field", "option_field", "place_reports"]
__all__ += ["record_field", "reports_on", "unpacked_record"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
BIT, SLOT = struct.Struct("<IB"), struct.Struct("<I")
"""How reports lie in the store: a dithered bit (threshold, above), and a place in a list."""
NUMBER, CODE = struct.Struct("<d"), struct.Struct("<q")
"""How answers lie in the store: a number, and the place of an option or the bits of those ticked."""
DIGITS = 10**24
"""25 characters: no double is written longer, in Python or in a browser."""
FORM_NUMBER, FORM_CHARACTER = 40, 9
"""Characters of a number in a page's form, and of one letter (%XX for each of 3 bytes, or of 4 in two halves)."""


def double(given: Any) -> float:
    try:
        return float(given)
    except OverflowError:  # JSON has whole numbers that are larger than any
        return math.inf


def rising(places: Sequence[Any], size: int) -> bool:
    return all(0 <= a < size for a in places) and all(a < b for a, b in pairwise(places))


def refused(name: str, rule: str) -> InvalidInput:
    return InvalidInput(f"`{name}` must be {rule}. Got something else.")


Choose = Callable[[int], int]
"""Picks one of so many, by chance, but the same one if an answer is sent again."""


@dataclass(frozen=True)
class Field:
    """One field of a form, or of a program's answer: its name, what people and devices are told of it, the type of an
    answer on its way, the longest (and its `characters` in a form), and how it is packed for the store, into `size`
    bytes before it is sealed."""

    name: str
    about: Mapping[str, Any]
    type: Any
    longest: Any
    characters: int
    pack: Callable[[Any, Choose], bytes] = field(compare=False)
    size: int = CODE.size


def number_field(name: str, about: Mapping[str, Any]) -> Field:

    def pack(given: Any, choose: Choose) -> bytes:
        if not math.isfinite(number := double(given)):
            raise refused(name, "a finite number")
        return NUMBER.pack(number)

    return Field(name, about, float, DIGITS, FORM_NUMBER, pack)


def option_field(name: str, about: Mapping[str, Any]) -> Field:
    """One of several options, by its place; where `several` may be ticked, the places of those that are."""
    size, most = len(about["options"]), about.get("several") or 0

    def option(given: Any, choose: Choose) -> bytes:
        if not 0 <= given < size:
            raise refused(name, f"the place of an option, from 0 to {size - 1}")
        return CODE.pack(given)

    def ticks(given: Any, choose: Choose) -> bytes:
        if not (len(given) <= most and rising(given, size)):
            raise refused(name, f"at most {most} different places of its {size} options, rising")
        return CODE.pack(sum(1 << place for place in given))

    if not most:
        return Field(name, about, int, size - 1, len(str(size - 1)), option)
    return Field(name, about, list[int], [size - 1] * most, len(f"&answer.00.{size - 1}=on") * most, ticks)


def numbers_field(name: str, about: Mapping[str, Any]) -> Field:
    many = len(about["coordinates"])

    def pack(given: Any, choose: Choose) -> bytes:
        numbers = [double(number) for number in given]
        if len(numbers) != many or not all(map(math.isfinite, numbers)):
            raise refused(name, f"{many} finite numbers")
        return struct.pack(f"<{many}d", *numbers)

    characters = many * (FORM_NUMBER + len(f"&answer.00.{many}="))
    return Field(name, about, list[float], [DIGITS] * many, characters, pack, NUMBER.size * many)


_PART = struct.Struct("<H")


def record_field(name: str, about: Mapping[str, Any]) -> Field:
    """Records, of which one is kept: by chance, but the same one if the answer is sent again, in as many bytes as the
    longest one that the plan allows.

    >>> asked = record_field("seen", {"record": ["query", "url"], "max_records": 2, "max_length": 20})
    >>> both = [asked.pack([[query, "ж"]], lambda among: 0) for query in ("flu", "schizophrenia")]
    >>> {len(one) for one in both} == {asked.size}, unpacked_record(both[0])
    (True, ('flu', 'ж'))
    """
    most, longest, parts = about["max_records"], about["max_length"], len(about["record"])
    room = 4 * longest * parts  # UTF-8 takes four bytes a character at most

    def pack(given: Any, choose: Choose) -> bytes:
        if not 1 <= len(given) <= most:
            raise refused(name, f"at least 1 and at most {most} records")
        records = [tuple(normalised(part) for part in record) for record in given]
        for record in records:
            if len(record) != parts:
                raise refused(name, f"records of {parts} parts each")
            if any(not 1 <= len(part) <= longest for part in record):
                raise refused(name, f"records with parts of 1 to {longest} characters")
        texts = [part.encode() for part in sorted(records)[choose(len(records))]]
        body = b"".join([_PART.pack(len(text)) + text for text in texts])
        return bytes([parts]) + body + bytes(room - sum(map(len, texts)))

    characters = parts * (FORM_CHARACTER * longest + len("&answer.00.0="))
    answer = [["x" * (4 * longest)] * parts]
    return Field(name, about, list[list[str]], answer, characters, pack, 1 + _PART.size * parts + room)


def unpacked_record(packed: bytes) -> tuple[str, ...]:
    parts, at = [], 1
    for _ in range(packed[0]):
        (size,) = _PART.unpack_from(packed, at)
        parts.append(packed[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return tuple(parts)


# --- local people's reports -------------------------------------------------------------------------------------------


class OutOfReach(InvalidInput):
    """A number that no device which follows the plan can send."""


class Bit(msgspec.Struct, forbid_unknown_fields=True):
    threshold: Annotated[int, msgspec.Meta(ge=0, lt=LEVELS)]
    above: bool


class Coordinates(msgspec.Struct, forbid_unknown_fields=True):
    """Some columns by their numbers, ascending, and the report on each: a bit, or a number in the column's own unit."""

    coordinates: list[int]
    each: list[Bit | float]


_STATED: dict[type, tuple[str, str, bool]] = {
    DitheredBit: ("flips", "gain", True),
    Piecewise: ("width inside", "bound", True),
    LocalAdditive: ("", "bound", False),
    KRandomisedResponse: ("keep", "categories", True),
    SubsetSelection: ("keep", "categories size", True),
    UnitVector: ("inside", "dimensions pairs top", False),
    OneSlot: ("", "", True),
}
"""What a device must know of each mechanism: whole numbers over 2^64, written as decimal strings, so that a browser
draws them exactly and computes no exponential; other numbers; and whether the page can draw it exactly."""


def described(mechanism: Any) -> dict[str, Any]:
    """A mechanism as a task document states it; `browser` says whether the page can draw it exactly."""
    if isinstance(mechanism, ScalarReports):
        each = described(mechanism.randomiser)
        own = {"name": "coordinates", "dimensions": mechanism.dimensions, "reported": mechanism.reported}
        return {**own, "each": each, "browser": each["browser"]}
    words, plain, browser = _STATED[type(mechanism)]
    chances = {name: str(getattr(mechanism, name)) for name in words.split()}
    return {"name": mechanism.name, **chances, **{name: getattr(mechanism, name) for name in plain.split()},
            "browser": browser}  # fmt: skip


@dataclass
class Heard:
    """What local reports on one question say: how many, the sums of each number that they tell, and their counts, or
    all that by public `groups`. `own` are the sums of people with an epsilon of their own; `mixed` is what came through
    a mixer, and `batches` how many in each batch."""

    people: int = 0
    sums: tuple[Sums, ...] = ()
    counts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    groups: tuple[Heard, ...] = ()
    own: dict[float, Sums] = field(default_factory=dict)
    mixed: Heard | None = None
    batches: tuple[int, ...] = ()

    @property
    def sum(self) -> Sums:
        return self.sums[0] if self.sums else NOTHING

    def __add__(self, other: Heard) -> Heard:
        sums = tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)) if self.sums and other.sums else None
        return Heard(self.people + other.people, sums or self.sums or other.sums, self.counts + other.counts)


@dataclass(frozen=True, kw_only=True)
class Reports:
    """The reports that one mechanism makes: of which type they are on their way, the longest, how the task document
    states the `mechanism`, and how they are kept in the store, in `size` bytes each.

    `pack` checks a report on the question of a name (`InvalidInput` where no device that follows the plan sends it),
    `written` is a stored one as a device would write it into a table, and `add` adds stored ones, behind each other, of
    people with an epsilon, to what was heard, `counted` by so many places. `units` are numbers in reaches from the
    centre, one row each; NaN where none was told.
    """

    type: Any
    size: int
    longest: Any
    mechanism: Mapping[str, Any]
    pack: Callable[[str, Any], bytes]
    written: Callable[[bytes], Any]
    add: Callable[[Heard, bytes, float | None], None]
    counted: int = 0
    units: Callable[[bytes], Floats] | None = None


def place_reports(places: int, mechanism: Mapping[str, Any], names: Sequence[str] = ()) -> Reports:
    """One of so many places of a list, whose entries may have names."""

    def pack(name: str, told: Any) -> bytes:
        if not 0 <= told < places:
            raise refused(name, f"a whole number from 0 to {places - 1}")
        return SLOT.pack(told)

    def written(body: bytes) -> Any:
        (place,) = SLOT.unpack(body)
        return names[place] if names else place

    def add(heard: Heard, body: bytes, epsilon: float | None) -> None:
        named = np.bincount(np.frombuffer(body, dtype="<u4"), minlength=places)
        if len(named) != places:
            raise InvalidInput("`reports` must name places of their list. Got others.")
        heard.people += len(body) // SLOT.size
        heard.counts += named

    own: dict[str, Any] = {"type": int, "size": SLOT.size, "longest": max(places - 1, 0), "counted": places}
    return Reports(mechanism=mechanism, pack=pack, written=written, add=add, **own)


def _set_reports(made: SubsetSelection) -> Reports:
    """So many of a list's places, a bit for each place in the store."""
    k, size = made.categories, -(-made.categories // 8)

    def pack(name: str, told: Any) -> bytes:
        if not (len(told) == made.size and rising(told, k)):
            raise refused(name, f"{made.size} different places of its options, rising")
        bits = np.zeros(k, dtype=np.bool_)
        bits[np.array(told, dtype=np.int64)] = True
        return np.packbits(bits).tobytes()

    def add(heard: Heard, body: bytes, epsilon: float | None) -> None:
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8).reshape(-1, size), axis=1)
        heard.people += len(bits)
        heard.counts += bits[:, :k].sum(axis=0, dtype=np.int64)

    own: dict[str, Any] = {"type": list[int], "size": size, "longest": [k - 1] * made.size, "counted": k}
    return Reports(mechanism=described(made), pack=pack, written=bytes.hex, add=add, **own)


def _number_reports(invite: Invite[Any, Any], binned: bool) -> Reports:
    """Numbers, each within its reach of its centre: the only one, one for each column (a direction), or some of them
    with their places. A dithered bit is kept as it was drawn, another report as it was sent. With `binned` the only
    number is counted too, by the bins of its mechanism, or of windows that people are asked in."""
    made, bounds = invite.mechanism, invite.encoding
    law, many, (centres, reaches) = getattr(made, "law", made), getattr(made, "reported", 1), np.array(bounds.sides).T
    bit, some, d = isinstance(law, DitheredBit), isinstance(made, ScalarReports), len(centres)
    kept = [("threshold", "<u4"), ("above", "u1")] if bit else [("value", "<f8")]
    stored = np.dtype([*([("at", "<u2")] if some else []), *kept])
    row = struct.Struct(f"<{'H' * some}{'IB' if bit else 'd'}")  # the same, one by one
    kind: Any = Bit if bit else float
    longest: Any = {"threshold": LEVELS - 1, "above": False} if bit else DIGITS
    mechanism, bins = described(made), invite_bins(invite) if binned else None
    if isinstance(made, UnitVector):
        kind, longest = list[float], [DIGITS] * d
    elif some:
        kind, longest = Coordinates, {"coordinates": [d - 1] * many, "each": [longest] * many}
        page = mechanism["browser"] and bounds.radius_steps is None
        mechanism |= {"reach": bounds.reach_steps, "browser": page}

    def pack(name: str, told: Any) -> bytes:
        rows, places, each = [], range(many), told if kind == list[float] else [told]
        if some:
            places, each = told.coordinates, told.each
        if not (len(places) == len(each) == many and rising(places, d)):
            raise refused(name, f"{many} numbers, of different coordinates, ascending")
        for j, one in zip(places, each, strict=True):
            if isinstance(one, Bit) != bit:
                raise refused(name, "a report of the plan's randomiser")
            kept = (one.threshold, one.above) if isinstance(one, Bit) else (double(one),)
            reach = reaches[j] * law.bound * (1 + 1e-9)
            if not isinstance(one, Bit) and not abs(kept[0] - centres[j]) <= reach:
                rule = "must be a report that a device which follows the plan can send"
                raise OutOfReach(f"`{name}` {rule}. Got a number beyond its reach.")
            rows.append(row.pack(*((j, *kept) if some else kept)))
        return b"".join(rows)

    def units(body: bytes) -> Floats:
        """Of a dithered bit, ``y = B s + U``."""
        read = np.frombuffer(body, dtype=stored).reshape(-1, many)
        at = read["at"] if some else np.broadcast_to(np.arange(many), read.shape)
        if isinstance(law, DitheredBit):
            told = law.values(DitheredReports(read["threshold"], read["above"]))
        else:
            told = (read["value"] - centres[at]) / reaches[at]
        out = np.full((len(read), d), np.nan)
        out[np.arange(len(read))[:, None], at] = told
        return out

    def written(body: bytes) -> Any:
        """In the columns' own units; None where one was not told."""
        own = (centres + reaches * units(body)[0]).tolist()
        result = [None if math.isnan(x) else x for x in own]
        return result if kind in (Coordinates, list[float]) else result[0]

    def add(heard: Heard, body: bytes, epsilon: float | None) -> None:
        values = units(body)
        heard.people += len(values)
        more = column_sums(values)
        if epsilon is not None:
            heard.own[epsilon] = heard.own.get(epsilon, NOTHING) + more[0]
        heard.sums = tuple(a + b for a, b in zip(heard.sums or (NOTHING,) * len(more), more, strict=True))
        if bins is not None:
            heard.counts += np.bincount(bins.numbers(values[:, 0]), minlength=bins.size)

    return Reports(type=kind, size=stored.itemsize * many, longest=longest, mechanism=mechanism, pack=pack,
                   written=written, add=add, counted=0 if bins is None else bins.size, units=units)  # fmt: skip


def reports_on(invite: Any, *, binned: bool = False) -> Reports:
    """The reports that an invitation asks for: numbers, so many of a list's places, or one (a slot, a cell, an option
    or, where several may be ticked, yes or no to a drawn one)."""
    if invite.way == "line":
        return _number_reports(replace(invite, encoding=invite.encoding.vector), False)
    encoding, made = invite.encoding, invite.mechanism
    if hasattr(encoding, "sides"):
        return _number_reports(invite, binned)
    if isinstance(made, SubsetSelection):
        return _set_reports(made)
    mechanism, names = described(made), getattr(encoding, "told", ())
    if getattr(encoding, "most", 0):
        mechanism |= {"name": invite.name, "options": encoding.size}
    return place_reports(len(names) or encoding.categories, mechanism, names)
