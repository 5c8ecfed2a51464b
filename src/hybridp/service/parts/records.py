"""The most frequent records. Phase one: trusted people discover; phase two: local people answer the head list.

Of several trusted records only one is kept, chosen by a keyed hash of the report's id: by chance, but the same one if
the report is sent again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar

from hybridp.bench.models import shown_probability, zipf
from hybridp.ledger import Charge
from hybridp.protocols import asked as asking
from hybridp.protocols.transcript import Transcript
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heavy import TEXT_RULE, discovery, normalised
from hybridp.public.messages import SlotReports
from hybridp.public.randomisers import k_randomised_response
from hybridp.public.study import Declaration, Records
from hybridp.release.release import Release
from hybridp.service.parts.base import Forecast, Heard, Part
from hybridp.service.parts.described import FORM_CHARACTER, described
from hybridp.service.problems import Refused
from hybridp.tasks.records import HeavyStudy

__all__ = ["packed_record", "records_part", "unpacked_record"]

_PART = struct.Struct("<H")
_EMPTY = (
    "No record was given often enough to be listed, and the trusted people's promise is spent. Close the study: local "
    "people would be asked about nothing."
)


def packed_record(record: tuple[str, ...], longest: int) -> bytes:
    """A record in as many bytes as the longest one that the plan allows: its size tells nothing.

    >>> len(packed_record(("flu", ""), 20)) == len(packed_record(("schizophrenia", "ж" * 20), 20))
    True
    >>> unpacked_record(packed_record(("flu", "ж"), 20))
    ('flu', 'ж')
    """
    texts = [part.encode() for part in record]
    room = len(record) * 4 * longest  # UTF-8 takes four bytes a character at most
    return bytes([len(record)]) + b"".join([_PART.pack(len(t)) + t for t in texts]) + bytes(room - sum(map(len, texts)))


def unpacked_record(packed: bytes) -> tuple[str, ...]:
    parts, at = [], 1
    for _ in range(packed[0]):
        (size,) = _PART.unpack_from(packed, at)
        parts.append(packed[at + 2 : at + 2 + size].decode())
        at += 2 + size
    return tuple(parts)


def records_part(declared: Declaration, place: int, question: Records) -> Part:
    """The records that are asked for at this place."""
    return Frequent(question, asking.heavy_study(declared, place))


class Frequent(Part):
    """Records that many people gave, word for word."""

    question: Records
    study: HeavyStudy
    within: Transcript | None
    waits: ClassVar[bool] = True
    once: ClassVar[bool] = True
    alone: ClassVar[str] = "kind"
    answer_type: ClassVar[Any] = list[list[str]]

    @property
    def promise(self) -> PureDP | ApproxDP:
        return self.study.local_guarantee

    @property
    def hears(self) -> tuple[str, ...]:
        return "trusted", "local"

    def charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        return [charge for charge in self.study.charges(self.name, None) if charge.people != "shuffled"]

    @property
    def places(self) -> int:
        return 0 if self.within is None else len(self.within.invite.head)

    def pack_answer(self, given: Any, choose: Callable[[int], int]) -> bytes:
        most, longest, parts = self.question.max_records, self.question.max_length, len(self.question.columns)
        if not 1 <= len(given) <= most:
            raise self.refused(f"at least 1 and at most {most} records")
        records = [tuple(normalised(part) for part in record) for record in given]
        for record in records:
            if len(record) != parts:
                raise self.refused(f"records of {parts} parts each")
            if any(not 1 <= len(part) <= longest for part in record):
                raise self.refused(f"records with parts of 1 to {longest} characters")
        return packed_record(sorted(records)[choose(len(records))], longest)

    def column(self) -> dict[str, Any]:
        asked = self.question
        own = {"record": list(asked.columns), "max_records": asked.max_records, "max_length": asked.max_length}
        return super().column() | own | {"text_rule": TEXT_RULE}

    def described(self) -> dict[str, Any]:
        if self.within is None:
            return self.column()
        invited = self.within.invite
        slots = {"slots": [list(slot) for slot in invited.head.slots]}
        return self.column() | slots | {"randomiser": described(invited.mechanism)}

    def longest(self) -> tuple[Any, Any, int]:
        longest, parts = self.question.max_length, len(self.question.columns)
        room = parts * (FORM_CHARACTER * longest + len("&answer.00.0="))
        return [["x" * (4 * longest)] * parts], max(self.places - 1, 0), room  # 4 bytes of UTF-8 at most

    def remark(self, found: Release) -> str:
        return "" if found.facts["discovered_records"] else _EMPTY

    def reported_as(self, told: Heard) -> SlotReports:
        return SlotReports(told.people, told.counts)

    # --- what an analyst is told --------------------------------------------------------------------------------------

    @cached_property
    def _discovery(self) -> Any:
        return discovery(self.study.trusted_promise)

    def forecast(self, people: dict[str, int]) -> Forecast | None:
        """Of a rare record's share: the discovery noise, and a flat report over the planned head list."""
        task, head, found = self.study, self.question.head, {}
        if trusted := people["trusted"]:
            found["trusted"] = self._discovery.variance / (trusted * task.discovery_share) ** 2
        if local := people["local"]:
            found["local"] = k_randomised_response(task.local_guarantee, head + 1).variance(0.0) / local
        assumes = f"a rare record and a head list of {head} queries"
        return Forecast(found, "share of people", assumes, alike=True)

    def first_forecast(self, trusted: int) -> str | None:
        """What a list of records from so many trusted people would hold."""
        threshold, among, records = self._expected_records(trusted)
        share = f"{min(1.0, threshold / max(among, 1)):.1%}"
        return (
            f"A record is listed if about {threshold:,} of the {among:,} people who discover give it ({share}): "
            f"at most about {among // threshold:,} records, and {records:.1f} if 1,000 are given as often as 1/rank. "
            "The promise is spent even if the list is empty."
        )

    def check_first(self, trusted: int, *, sure: bool) -> None:
        """Refuse a list that must be empty; and one that probably is, unless somebody is `sure`."""
        threshold, _, records = self._expected_records(trusted)
        if trusted < threshold:
            must_give = f"of which about {threshold:,} must give the same"
            detail = f"{trusted:,} trusted people cannot discover a record, {must_give}"
            raise Refused("batch-too-small", f"{detail}: invite more. Nothing was spent.")
        if records < 1 and not sure:
            way_out = "Wait for more people, or confirm (`--yes`, in the API `?sure=true`)."
            detail = f"The list would probably be empty. {self.first_forecast(trusted)} {way_out}"
            raise Refused("little-to-discover", detail)

    def _expected_records(self, trusted: int) -> tuple[int, int, float]:
        """The threshold, how many people discover, and how many records pass if their shares fall as 1/rank."""
        mechanism, among = self._discovery, round(trusted * self.study.discovery_share)
        return mechanism.threshold, among, float(shown_probability(zipf(1000, 1.0), among, mechanism).sum())
