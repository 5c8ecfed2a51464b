"""How people's answers come over the wire, are checked, lie in the store and add up: trusted people's field by field,
local people's reports, as the whole numbers that the device drew, by the invitation that asks for them.

An answer takes 8 bytes for each number or option, whatever it says, and a record as many as the longest that the plan
allows; reports by one mechanism are all as long: the size of what is stored tells nothing.

>>> from hybridp.public.mechanisms import PureDP
>>> from hybridp.public.randomisers import k_randomised_response
>>> described(k_randomised_response(PureDP(1.0), 3))["categories"]
3
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from operator import add
from typing import Annotated, Any, Literal, NamedTuple, TypedDict

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput
from hybridp.public import randomisers
from hybridp.public.distribution import invite_bins
from hybridp.public.heavy import normalised
from hybridp.public.messages import Invite
from hybridp.public.mixing import from_text
from hybridp.public.randomisers import LEVELS, DitheredBit, DitheredReports, Oracle, ScalarReports, Sums
from hybridp.service.problems import STATUS, Refused

__all__ = ["BIT", "BROKEN", "DIGITS", "FORM_NUMBER", "NUMBER", "PAYLOADS", "Answers", "Bit", "Coordinates", "Failed"]
__all__ += ["Failures", "Field", "Heard", "Mixed", "OutOfReach", "Packed", "Report", "ReportCodec", "Reports", "Upload"]
__all__ += ["broken", "described", "failed", "number_field", "numbers_field", "option_field", "parse_upload"]
__all__ += ["place_reports", "record_field", "report_id", "reports_on", "unpacked_record"]

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


BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class OutOfReach(InvalidInput):
    """A number that no device which follows the plan can send."""


def broken(error: Exception) -> str:
    """What is wrong with a body, without what was sent."""
    said = isinstance(error, msgspec.ValidationError | OutOfReach) or type(error) is ValueError
    return str(error) if said else "It is not JSON"


def _place(size: int) -> Any:
    return Annotated[int, msgspec.Meta(ge=0, lt=size)]


def _many(kind: Any, most: int, least: int) -> Any:
    return Annotated[list[kind], msgspec.Meta(min_length=least, max_length=most)]


def _check_rising(places: Sequence[int]) -> None:
    if any(a >= b for a, b in pairwise(places)):
        raise ValueError("Expected different places, rising")


@dataclass(frozen=True, kw_only=True)
class Sent:
    """What is sent under a question's name: its type, which states most of its rules, the longest, and how it is
    packed for the store, into `size` bytes; `ValueError` where no device that follows the plan sends it."""

    type: Any
    longest: Any
    size: int
    pack: Callable[..., bytes] = field(compare=False)

    @cached_property
    def _decoder(self) -> Any:
        return msgspec.json.Decoder(self.type)

    def packed(self, name: str, raw: msgspec.Raw) -> bytes:
        try:
            return self.pack(self._decoder.decode(raw))
        except (ValueError, *BROKEN) as error:
            kind = OutOfReach if isinstance(error, OutOfReach) else InvalidInput
            raise kind(f"`{name}` must be what its question asks for. {broken(error)}.") from None


@dataclass(frozen=True, kw_only=True)
class Field(Sent):
    """One field of a form, or of a program's answer: what people and devices are told of it, and its most `characters`
    in a form."""

    name: str
    about: Mapping[str, Any]
    characters: int
    size: int = CODE.size


def number_field(name: str, about: Mapping[str, Any]) -> Field:
    return Field(name=name, about=about, type=float, longest=DIGITS, characters=FORM_NUMBER, pack=NUMBER.pack)


def option_field(name: str, about: Mapping[str, Any]) -> Field:
    """One of several options, by its place; where `several` may be ticked, the places of those that are."""
    size, most = len(about["options"]), about.get("several") or 0
    last, place = size - 1, _place(size)

    def ticks(given: Sequence[int]) -> bytes:
        _check_rising(given)
        return CODE.pack(sum(1 << one for one in given))

    if not most:
        return Field(name=name, about=about, type=place, longest=last, characters=len(str(last)), pack=CODE.pack)
    characters = len(f"&answer.00.{last}=on") * most
    kind, longest = _many(place, most, 0), [last] * most
    return Field(name=name, about=about, type=kind, longest=longest, characters=characters, pack=ticks)


def numbers_field(name: str, about: Mapping[str, Any]) -> Field:
    many = len(about["coordinates"])
    row, kind, longest = struct.Struct(f"<{many}d"), _many(float, many, many), [DIGITS] * many
    characters = many * (FORM_NUMBER + len(f"&answer.00.{many}="))
    return Field(name=name, about=about, type=kind, longest=longest, characters=characters,
                 pack=lambda given: row.pack(*given), size=row.size)  # fmt: skip


_PART = struct.Struct("<H")


def record_field(name: str, about: Mapping[str, Any]) -> Field:
    """A record, in as many bytes as the longest one that the plan allows.

    >>> asked = record_field("seen", {"record": ["query", "url"], "max_length": 20})
    >>> both = [asked.pack([query, "ж"]) for query in ("flu", "schizophrenia")]
    >>> {len(one) for one in both} == {asked.size}, unpacked_record(both[0])
    (True, ('flu', 'ж'))
    """
    longest, parts = about["max_length"], len(about["record"])
    room = 4 * longest * parts  # UTF-8 takes four bytes a character at most

    def pack(given: Sequence[str]) -> bytes:
        record = [normalised(part) for part in given]
        if any(not 1 <= len(part) <= longest for part in record):
            raise ValueError(f"Expected parts of 1 to {longest} characters")
        texts = [part.encode() for part in record]
        body = b"".join([_PART.pack(len(text)) + text for text in texts])
        return bytes([parts]) + body + bytes(room - sum(map(len, texts)))

    characters = parts * (FORM_CHARACTER * longest + len("&answer.00.0="))
    return Field(name=name, about=about, type=_many(str, parts, parts), longest=["x" * (4 * longest)] * parts,
                 characters=characters, pack=pack, size=1 + _PART.size * parts + room)  # fmt: skip


def unpacked_record(packed: bytes) -> tuple[str, ...]:
    parts, at = [], 1
    for _ in range(packed[0]):
        (size,) = _PART.unpack_from(packed, at)
        parts.append(packed[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return tuple(parts)


# --- local people's reports -------------------------------------------------------------------------------------------


class Bit(msgspec.Struct, forbid_unknown_fields=True):
    threshold: Annotated[int, msgspec.Meta(ge=0, lt=LEVELS)]
    above: bool


class Coordinates(msgspec.Struct, forbid_unknown_fields=True):
    """Some columns by their numbers, ascending, and the report on each: a bit, or a number in the column's own unit."""

    coordinates: list[int]
    each: list[Bit | float]


_STATED: dict[str, tuple[str, str, bool]] = {
    "dithered": ("flips", "gain", True),
    "piecewise": ("width inside", "bound", True),
    "k-rr": ("keep", "categories", True),
    "subset": ("keep", "categories size", True),
    "unit-vector": ("inside", "dimensions pairs top", False),
    "one-slot": ("", "", True),
}
"""What a device must know of each mechanism: whole numbers over 2^64, written as decimal strings, so that a browser
draws them exactly and computes no exponential; other numbers; and whether the page can draw it exactly."""


def described(mechanism: Any) -> dict[str, Any]:
    """A mechanism as a task document states it; `browser` says whether the page can draw it exactly."""
    if isinstance(mechanism, ScalarReports):
        each = described(mechanism.randomiser)
        own = {"name": "coordinates", "dimensions": mechanism.dimensions, "reported": mechanism.reported}
        return {**own, "each": each, "browser": each["browser"]}
    words, plain, browser = _STATED[mechanism.name]
    chances = {name: str(getattr(mechanism, name)) for name in words.split()}
    return {"name": mechanism.name, **chances, **{name: getattr(mechanism, name) for name in plain.split()},
            "browser": browser}  # fmt: skip


@dataclass(frozen=True)
class Heard:
    """What local reports on one question say: how many, the sums of each number that they tell, and their counts, or
    all that by public `groups`, or by the epsilon that people chose (`levels`). `mixed` is what came through a mixer,
    and `batches` how many in each batch."""

    people: int = 0
    sums: tuple[Sums, ...] = ()
    counts: Ints = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    groups: tuple[Heard, ...] = ()
    mixed: Heard | None = None
    batches: tuple[int, ...] = ()
    levels: Mapping[float, Heard] = field(default_factory=dict)

    def __add__(self, other: Heard) -> Heard:
        sums, groups = (tuple(map(add, *both)) for both in ((self.sums, other.sums), (self.groups, other.groups)))
        counts, levels = self.counts + other.counts, dict(self.levels)
        for epsilon, told in other.levels.items():
            levels[epsilon] = levels[epsilon] + told if epsilon in levels else told
        return Heard(self.people + other.people, sums, counts, groups, levels=levels)


@dataclass(frozen=True, kw_only=True)
class ReportCodec(Sent):
    """The reports that one mechanism makes, and how the task document states the `mechanism`.

    `written` is a stored one as a device would write it into a table, and `heard` what stored ones say, behind each
    other. `units` are numbers in reaches from the centre, one row each; NaN where none was
    told.
    """

    mechanism: Mapping[str, Any]
    written: Callable[[bytes], Any]
    heard: Callable[[bytes], Heard]
    units: Callable[[bytes], Floats] | None = None


def place_reports(places: int, mechanism: Mapping[str, Any], names: Sequence[str] = ()) -> ReportCodec:
    """One of so many places of a list, whose entries may have names."""

    def written(body: bytes) -> Any:
        (place,) = SLOT.unpack(body)
        return names[place] if names else place

    def heard(body: bytes) -> Heard:
        named = np.bincount(np.frombuffer(body, dtype="<u4"), minlength=places)
        return Heard(len(body) // SLOT.size, counts=named)

    return ReportCodec(type=_place(places), size=SLOT.size, longest=max(places - 1, 0), mechanism=mechanism,
                   pack=SLOT.pack, written=written, heard=heard)  # fmt: skip


def _set_reports(made: Oracle) -> ReportCodec:
    """So many of a list's places, a bit for each place in the store."""
    k, size = made.categories, -(-made.categories // 8)

    def pack(told: Sequence[int]) -> bytes:
        _check_rising(told)
        return np.packbits(np.isin(np.arange(k), told)).tobytes()

    def heard(body: bytes) -> Heard:
        bits = np.unpackbits(np.frombuffer(body, dtype=np.uint8).reshape(-1, size), axis=1)
        return Heard(len(bits), counts=bits[:, :k].sum(axis=0, dtype=np.int64))

    return ReportCodec(type=_many(_place(k), made.size, made.size), size=size, longest=[k - 1] * made.size,
                   mechanism=described(made), pack=pack, written=bytes.hex, heard=heard)  # fmt: skip


def _number_reports(invite: Invite[Any, Any], binned: bool) -> ReportCodec:
    """Numbers, each within its reach of its centre: the only one, one for each column (a direction), or some of them
    with their places. A dithered bit is kept as it was drawn, another report as it was sent. With `binned` the only
    number is counted too, by the bins of its mechanism, or of windows that people are asked in."""
    made, bounds = invite.mechanism, invite.encoding
    law, many, (centres, reaches) = made.law, made.reported, np.array(bounds.sides).T
    bit, some, d = isinstance(law, DitheredBit), isinstance(made, ScalarReports), len(centres)
    direction = isinstance(made, randomisers.UnitVector)
    kept = [("threshold", "<u4"), ("above", "u1")] if bit else [("value", "<f8")]
    stored = np.dtype([*([("at", "<u2")] if some else []), *kept])
    row = struct.Struct(f"<{'H' * some}{'IB' if bit else 'd'}")  # the same, one by one
    kind: Any = Bit if bit else float
    longest: Any = {"threshold": LEVELS - 1, "above": False} if bit else DIGITS
    mechanism, bins = described(made), invite_bins(invite) if binned else None
    if direction:
        kind, longest = _many(float, d, d), [DIGITS] * d
    elif some:
        kind, longest = Coordinates, {"coordinates": [d - 1] * many, "each": [longest] * many}
        page = mechanism["browser"] and bounds.radius_steps is None
        mechanism |= {"reach": bounds.reach_steps, "browser": page}

    def pack(told: Any) -> bytes:
        rows, places, each = [], range(many), told if direction else [told]
        if some:
            places, each = told.coordinates, told.each
            _check_rising([-1, *places, d])
        if not (len(places) == len(each) == many and all(isinstance(one, Bit) == bit for one in each)):
            raise ValueError(f"Expected {many} numbers, or bits, as the task states its randomiser")
        for j, one in zip(places, each, strict=True):
            kept = (one.threshold, one.above) if isinstance(one, Bit) else (one,)
            if not isinstance(one, Bit) and not abs(one - centres[j]) <= reaches[j] * law.bound * (1 + 1e-9):
                raise OutOfReach("Got a number beyond the reach of a device that follows the plan")
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
        return result if some or direction else result[0]

    def heard(body: bytes) -> Heard:
        values = units(body)
        sums, counts = randomisers.column_sums(values), np.zeros(0, dtype=np.int64)
        if bins is not None:
            counts = np.bincount(bins.numbers(values[:, 0]), minlength=bins.size)
        return Heard(len(values), sums, counts)

    return ReportCodec(type=kind, size=stored.itemsize * many, longest=longest, mechanism=mechanism, pack=pack,
                   written=written, heard=heard, units=units)  # fmt: skip


def reports_on(invite: Any, *, binned: bool = False) -> ReportCodec:
    """The reports that an invitation asks for: numbers, so many of a list's places, or one (a slot, a cell, an option
    or, where several may be ticked, yes or no to a drawn one)."""
    if invite.way == "line":
        return _number_reports(replace(invite, encoding=invite.encoding.vector), False)
    encoding, made = invite.encoding, invite.mechanism
    if hasattr(encoding, "sides"):
        return _number_reports(invite, binned)
    if getattr(made, "size", 1) > 1:
        return _set_reports(made)
    mechanism, names = described(made), getattr(encoding, "told", ())
    if getattr(encoding, "most", 0):
        mechanism |= {"name": invite.name, "options": encoding.size}
    return place_reports(len(names) or encoding.categories, mechanism, names)


# --- the wire ---------------------------------------------------------------------------------------------------------


class Report(msgspec.Struct, forbid_unknown_fields=True):
    """One contribution. `payload` depends on the group, and on the study's questions."""

    id: Annotated[str, msgspec.Meta(description="16 random bytes, base64url without padding")]
    time: Annotated[int, msgspec.Meta(description="Unix seconds, rounded down to the study's precision")]
    group: Literal["trusted", "local"]
    payload: msgspec.Raw
    token: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    epsilon: float | None = None
    phase: Annotated[int | None, msgspec.Meta(description="Of local people from the task's third phase on: it")] = None
    padding: Annotated[
        str, msgspec.Meta(description="Makes the report as long as the task's `bytes` say; not kept")
    ] = ""


class Upload(msgspec.Struct, forbid_unknown_fields=True):
    reports: list[Report]


class Mixed(msgspec.Struct, forbid_unknown_fields=True):
    """What is sealed for the collector and comes through a mixer: no time, no invitation, nothing that tells who."""

    id: str
    payload: msgspec.Raw
    padding: str = ""


class Answers(msgspec.Struct, forbid_unknown_fields=True):
    """Trusted: by the questions' names a number, the place of an option among the task's, the places of those ticked,
    one number for each column, or the texts of a record."""

    answers: dict[str, msgspec.Raw]


class Reports(msgspec.Struct, forbid_unknown_fields=True):
    """Local: by the questions' names a bit or a number in the value's own unit, a place in a list, or several places,
    rising; of several numbers some coordinates, or one direction. Where questions are drawn, one."""

    reports: dict[str, msgspec.Raw]


PAYLOADS: dict[type[msgspec.Struct], tuple[Any, ...]] = {
    Answers: (float, list[float], list[list[str]]),
    Reports: (float, list[float], Bit, Coordinates),
}
"""What is sent, and what may stand in it under a question's name."""

_upload = msgspec.json.Decoder(Upload)


def parse_upload(body: bytes, most: int) -> list[Report]:
    """The reports of a request; a body that is no such thing, or too long a list, is refused as a whole."""
    try:
        result = _upload.decode(body).reports
    except BROKEN as error:
        detail = str(error) if isinstance(error, msgspec.DecodeError) else "it is not UTF-8 text of moderate depth"
        raise Refused("malformed", f"The body must be a JSON object with a list of reports: {detail}.") from None
    if len(result) > most:
        raise Refused("too-many-reports", f"One request may carry at most {most} reports.")
    return result


class Packed(NamedTuple):
    """A report as the store takes it, under the name of its row; `sent` is the id as it came, for an answer only."""

    row: bytes
    at: int
    group: int
    epsilon: float | None
    body: bytes
    token: bytes | None
    sent: str


class Failed(TypedDict):
    """A report that was not taken; its status is what it would have got alone."""

    id: str
    code: str
    status: int
    detail: str


class Failures(TypedDict):
    """Everything that is not listed is stored, durably."""

    failures: list[Failed]


def failed(sent: str, code: str, detail: str) -> Failed:
    return {"id": sent[:64], "code": code, "status": STATUS[code], "detail": detail}


def report_id(text: str) -> bytes:
    """The 16 bytes of an id, only from its one right spelling."""
    try:
        return from_text(text, 16, "id")
    except InvalidInput:
        raise Refused("bad-id", "The id must be 16 bytes in base64url without padding.") from None
