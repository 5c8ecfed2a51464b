"""What trusted people are asked for, field by field: how an answer comes, is checked, and lies in the store.

An answer takes 8 bytes for each number or option, whatever it says, and a record as many as the longest that the plan
allows: the size of what is stored tells nothing.
"""

from __future__ import annotations

import math
import struct
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, ClassVar

from hybridp.errors import InvalidInput
from hybridp.public.heavy import normalised

__all__ = ["DIGITS", "FORM_NUMBER", "NUMBER", "Field", "NumberField", "NumbersField", "OptionField", "RecordField"]
__all__ += ["TicksField", "double", "refused", "rising", "unpacked_record"]

NUMBER, CODE = struct.Struct("<d"), struct.Struct("<q")
"""How answers lie in the store: a number, and the place of an option or the bits of those ticked."""
DIGITS = 10**24
"""25 characters: no double is written longer, in Python or in a browser."""
FORM_NUMBER, FORM_CHARACTER = 40, 9
"""Characters of a number in a page's form, and of one letter (%XX for each of 3 bytes, or of 4 in two halves)."""


def double(given: Any) -> float:
    """The number as a double; JSON has whole numbers that are larger than any."""
    try:
        return float(given)
    except OverflowError:
        return math.inf


def rising(places: Sequence[Any], size: int) -> bool:
    """Whether these are different places in a list, in their order."""
    return all(0 <= a < size for a in places) and all(a < b for a, b in pairwise(places))


def refused(name: str, rule: str) -> InvalidInput:
    return InvalidInput(f"`{name}` must be {rule}. Got something else.")


@dataclass(frozen=True)
class Field(ABC):
    """One field of a form, or of a program's answer: its name, and what people and devices are told of it."""

    name: str
    about: Mapping[str, Any]
    type: ClassVar[Any] = float
    """What an answer is on its way."""

    @property
    def size(self) -> int:
        """Bytes of an entrusted answer in the store, before it is sealed."""
        return CODE.size

    @property
    @abstractmethod
    def longest(self) -> tuple[Any, int]:
        """The longest answer, and the characters of its fields in a form."""

    @abstractmethod
    def pack(self, given: Any, choose: Callable[[int], int]) -> bytes:
        """An answer for the store. `choose` picks one of so many, by chance, but the same one if it is sent again."""

    def column(self) -> dict[str, Any]:
        """As a task document states it."""
        return {"name": self.name, **self.about}


class NumberField(Field):
    """One number."""

    @property
    def longest(self) -> tuple[Any, int]:
        return DIGITS, FORM_NUMBER

    def pack(self, given: Any, choose: Callable[[int], int]) -> bytes:
        if not math.isfinite(number := double(given)):
            raise refused(self.name, "a finite number")
        return NUMBER.pack(number)


class OptionField(Field):
    """One of several options, by its place."""

    type: ClassVar[Any] = int

    @property
    def options(self) -> list[str]:
        found: list[str] = self.about["options"]
        return found

    @property
    def longest(self) -> tuple[Any, int]:
        last = len(self.options) - 1
        return last, len(str(last))

    def pack(self, given: Any, choose: Callable[[int], int]) -> bytes:
        if not 0 <= given < len(self.options):
            raise refused(self.name, f"the place of an option, from 0 to {len(self.options) - 1}")
        return CODE.pack(given)


class TicksField(OptionField):
    """Those ticked of several options, by their places."""

    type: ClassVar[Any] = list[int]

    @property
    def longest(self) -> tuple[Any, int]:
        last, most = len(self.options) - 1, self.about["several"]
        return [last] * most, len(f"&answer.00.{last}=on") * most

    def pack(self, given: Any, choose: Callable[[int], int]) -> bytes:
        most = self.about["several"]
        if not (len(given) <= most and rising(given, len(self.options))):
            rule = f"at most {most} different places of its {len(self.options)} options, rising"
            raise refused(self.name, rule)
        return CODE.pack(sum(1 << place for place in given))


class NumbersField(Field):
    """One number for each of several columns."""

    type: ClassVar[Any] = list[float]

    @property
    def size(self) -> int:
        return NUMBER.size * len(self.about["coordinates"])

    @property
    def longest(self) -> tuple[Any, int]:
        many = len(self.about["coordinates"])
        return [DIGITS] * many, many * (FORM_NUMBER + len(f"&answer.00.{many}="))

    def pack(self, given: Any, choose: Callable[[int], int]) -> bytes:
        numbers, many = [double(number) for number in given], len(self.about["coordinates"])
        if len(numbers) != many or not all(map(math.isfinite, numbers)):
            raise refused(self.name, f"{many} finite numbers")
        return struct.pack(f"<{many}d", *numbers)


_PART = struct.Struct("<H")


class RecordField(Field):
    """Records, of which one is kept: by chance, but the same one if the answer is sent again.

    It is kept in as many bytes as the longest one that the plan allows: its size tells nothing.

    >>> asked = RecordField("seen", {"record": ["query", "url"], "max_records": 2, "max_length": 20})
    >>> both = [asked.pack([[query, "ж"]], lambda among: 0) for query in ("flu", "schizophrenia")]
    >>> {len(one) for one in both} == {asked.size}, unpacked_record(both[0])
    (True, ('flu', 'ж'))
    """

    type: ClassVar[Any] = list[list[str]]

    @property
    def _room(self) -> int:
        """UTF-8 takes four bytes a character at most."""
        return 4 * int(self.about["max_length"]) * len(self.about["record"])

    @property
    def size(self) -> int:
        return 1 + _PART.size * len(self.about["record"]) + self._room

    @property
    def longest(self) -> tuple[Any, int]:
        longest, parts = self.about["max_length"], len(self.about["record"])
        return [["x" * (4 * longest)] * parts], parts * (FORM_CHARACTER * longest + len("&answer.00.0="))

    def pack(self, given: Any, choose: Callable[[int], int]) -> bytes:
        most, longest, parts = self.about["max_records"], self.about["max_length"], len(self.about["record"])
        if not 1 <= len(given) <= most:
            raise refused(self.name, f"at least 1 and at most {most} records")
        records = [tuple(normalised(part) for part in record) for record in given]
        for record in records:
            if len(record) != parts:
                raise refused(self.name, f"records of {parts} parts each")
            if any(not 1 <= len(part) <= longest for part in record):
                raise refused(self.name, f"records with parts of 1 to {longest} characters")
        texts = [part.encode() for part in sorted(records)[choose(len(records))]]
        body = b"".join([_PART.pack(len(text)) + text for text in texts])
        return bytes([parts]) + body + bytes(self._room - sum(map(len, texts)))


def unpacked_record(packed: bytes) -> tuple[str, ...]:
    """A record as it was packed."""
    parts, at = [], 1
    for _ in range(packed[0]):
        (size,) = _PART.unpack_from(packed, at)
        parts.append(packed[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return tuple(parts)
