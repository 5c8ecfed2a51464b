"""One uploaded report against its study's plan: packed for the store, or refused with a clear code.

Nothing here knows the database. A value entrusted to the study is sealed before it leaves this file; a local report is
packed as the whole numbers that the device drew. Of several trusted records only one is kept, chosen by a keyed hash of
the report's id: by chance, but the same one if the report is sent again.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from hybridp.errors import InvalidInput
from hybridp.protocols.heavy import Invitation
from hybridp.protocols.regression_files import Invitation as Line
from hybridp.public.budgets import PureDP
from hybridp.public.heavy import normalised
from hybridp.public.mixing import unseal
from hybridp.public.randomisers import LEVELS, DitheredBit, Randomiser, best_randomiser
from hybridp.public.vector import VectorInvite
from hybridp.public.vector_randomisers import ScalarReports
from hybridp.service import vectors
from hybridp.service.keys import RowCipher, hashed
from hybridp.service.plans import (
    Head,
    HeavyPlan,
    MeanPlan,
    PersonalPlan,
    PointsPlan,
    QuestionsPlan,
    RegressionPlan,
    SomePlan,
    VectorPlan,
)
from hybridp.service.problems import STATUS, Refused
from hybridp.service.questions import BIT, NUMBER, SLOT, Asked, Invited, pack_answers, pack_reports
from hybridp.service.schema import LOCAL, SHUFFLED, TRUSTED

__all__ = ["PAYLOADS", "Checker", "Failure", "Packed", "Report", "Upload", "packed_record", "parse_upload", "report_id",
           "unpacked_record"]  # fmt: skip

# --- the wire ---------------------------------------------------------------------------------------------------------


class Report(msgspec.Struct, forbid_unknown_fields=True):
    """One contribution. `payload` depends on the study's kind and on the group."""

    id: Annotated[str, msgspec.Meta(description="16 random bytes, base64url without padding")]
    time: Annotated[int, msgspec.Meta(description="Unix seconds, rounded down to the study's precision")]
    group: Literal["trusted", "local"]
    payload: msgspec.Raw
    token: Annotated[str, msgspec.Meta(max_length=200)] | None = None
    epsilon: float | None = None
    padding: Annotated[
        str, msgspec.Meta(description="Makes the report as long as the task's `bytes` say; not kept")
    ] = ""


class Upload(msgspec.Struct, forbid_unknown_fields=True):
    """One or many reports."""

    reports: list[Report]


class Mixed(msgspec.Struct, forbid_unknown_fields=True):
    """What is sealed for the collector and comes through a mixer: no time, no invitation, nothing that tells who."""

    id: str
    payload: msgspec.Raw
    padding: str = ""


class Value(msgspec.Struct, forbid_unknown_fields=True):
    """Trusted, a mean."""

    value: float


class Bit(msgspec.Struct, forbid_unknown_fields=True):
    """A dithered bit as it was drawn."""

    threshold: Annotated[int, msgspec.Meta(ge=0, lt=LEVELS)]
    above: bool


class DitheredReport(msgspec.Struct, forbid_unknown_fields=True):
    """Local, a mean, the dithered bit."""

    report: Bit


class NumberReport(msgspec.Struct, forbid_unknown_fields=True):
    """Local, a mean, another randomiser: in the value's own unit."""

    report: float


class Records(msgspec.Struct, forbid_unknown_fields=True):
    """Trusted, heavy hitters: the person's records, each a list of one or two texts."""

    records: list[list[str]]


class Category(msgspec.Struct, forbid_unknown_fields=True):
    """Local, heavy hitters: the number of a slot of the head list; points: of a cell of the map."""

    category: int


class Values(msgspec.Struct, forbid_unknown_fields=True):
    """Trusted, a vector mean, a regression or points: one number for each column, a target last."""

    values: list[float]


class Coordinates(msgspec.Struct, forbid_unknown_fields=True):
    """Some columns by their numbers, ascending, and the report on each: a bit, or a number in the column's own unit."""

    coordinates: list[int]
    each: list[Bit | float]


class CoordinatesReport(msgspec.Struct, forbid_unknown_fields=True):
    """Local, a vector mean or a regression, some coordinates."""

    report: Coordinates


class DirectionReport(msgspec.Struct, forbid_unknown_fields=True):
    """Local, a vector mean or a regression, one direction: a number for each coordinate, in its own unit."""

    report: list[float]


class Answers(msgspec.Struct, forbid_unknown_fields=True):
    """Trusted, questions: by their names a number, the place of an option among the task's, the places of those ticked,
    or one number for each column."""

    answers: dict[str, int | float | list[int | float]]


class Reports(msgspec.Struct, forbid_unknown_fields=True):
    """Local, questions: by their names a bit or a number, a place in a list, or several places, rising; of several
    numbers some coordinates, or one direction. Where questions are drawn, one."""

    reports: dict[str, msgspec.Raw]


TOLD: tuple[Any, ...] = (int | float | list[int] | Bit, Coordinates, list[float])
"""What a report on one of several questions may be: it depends on the question."""


PAYLOADS = (Value, DitheredReport, NumberReport, Records, Category, Values, CoordinatesReport, DirectionReport, Answers,
            Reports)  # fmt: skip

_upload = msgspec.json.Decoder(Upload)
_mixed = msgspec.json.Decoder(Mixed)
_decoders: dict[Any, msgspec.json.Decoder[Any]] = {kind: msgspec.json.Decoder(kind) for kind in (*PAYLOADS, *TOLD)}
_FAR = "The report lies further out than any device that follows the plan can be."
_BROKEN = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def parse_upload(body: bytes, most: int) -> list[Report]:
    """The reports of a request; a body that is no such thing, or too long a list, is refused as a whole."""
    try:
        found = _upload.decode(body).reports
    except _BROKEN as error:
        detail = str(error) if isinstance(error, msgspec.DecodeError) else "it is not UTF-8 text of moderate depth"
        raise Refused("malformed", f"The body must be a JSON object with a list of reports: {detail}.") from None
    if len(found) > most:
        raise Refused("too-many-reports", f"One request may carry at most {most} reports.")
    return found


class Packed(NamedTuple):
    """A report as the store takes it, under the name of its row; `sent` is the id as it came, for an answer only."""

    row: bytes
    at: int
    group: int
    epsilon: float | None
    body: bytes
    token: bytes | None
    sent: str


@dataclass(frozen=True, slots=True)
class Failure:
    """A report that was not taken; `status` is what it would have got on its own."""

    id: str
    code: str
    detail: str

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id[:64], "code": self.code, "status": STATUS[self.code], "detail": self.detail}


class _Bad(Refused):
    """Why a report is not taken."""


def report_id(text: str) -> bytes:
    """The 16 bytes of an id, only from its one right spelling."""
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise _Bad("bad-id", "The id must be 16 bytes in base64url without padding.") from None
    if len(raw) != 16 or len(text) != 22 or base64.urlsafe_b64encode(raw)[:22] != text.encode():
        raise _Bad("bad-id", "The id must be 16 bytes in base64url without padding.")
    return raw


# --- checking ---------------------------------------------------------------------------------------------------------

Pack = Callable[[bytes, msgspec.Raw], bytes]


class Checker:
    """The rules of one study in one phase, made once and used for every report."""

    def __init__(
        self,
        plan: SomePlan,
        phase: int,
        head: Head | None,
        cipher: RowCipher | None,
        *,
        since: int,
        clock_skew: int,
    ) -> None:
        self.plan = plan
        self.phase = phase
        self._cipher = cipher
        precision = plan.time_precision
        # Devices take the time from the date of an answer, which has whole seconds and may be a little old.
        self._earliest = ((plan.opens if plan.opens is not None else since) - clock_skew) // precision * precision
        self._latest = plan.closes
        self._skew = clock_skew
        self._slots = len(head.head) if isinstance(head, Invitation) else 0
        if isinstance(plan, PointsPlan):
            self._slots = plan.invite.grid.cells
        self._packers = self._choose(head)

    def check(self, report: Report, now: int) -> Packed | Failure:
        try:
            raw = report_id(report.id)
            if self._cipher is None:
                raise _Bad("closed", "The study takes no more reports.")
            row = self._cipher.row(raw)
            self._check_time(report.time, now)
            epsilon = self._epsilon(report.epsilon)
            group = TRUSTED if report.group == "trusted" else LOCAL
            packer = self._packers.get((group, epsilon))
            if packer is None:
                raise _Bad("wrong-phase", f"The study does not take {report.group} reports in this phase.")
            token = self.token(report.token)
            return Packed(row, report.time, group, epsilon, packer(row, report.payload), token, report.id)
        except _Bad as bad:
            return Failure(report.id, bad.code, str(bad))

    def mixed(self, sealed: bytes, study: str, at: int) -> Packed | None:
        """A report that came through a mixer; None for one that this study's devices do not send."""
        packer = self._packers.get((SHUFFLED, None))
        if self._cipher is None or packer is None:
            return None
        try:
            found = _mixed.decode(unseal(sealed, self._cipher.mixed, study))
            row = self._cipher.row(report_id(found.id))
            return Packed(row, at, SHUFFLED, None, packer(row, found.payload), None, "")
        except (_Bad, InvalidInput, *_BROKEN):
            return None

    def _check_time(self, time: int, now: int) -> None:
        if time % self.plan.time_precision:
            raise _Bad("bad-time", f"The time must be a multiple of {self.plan.time_precision} seconds.")
        if time > now + self._skew:
            raise _Bad("bad-time", "The time must not lie in the future.")
        if time < self._earliest or (self._latest is not None and time > self._latest):
            raise _Bad("bad-time", "The time must lie between the opening and the closing of the study.")

    def _epsilon(self, epsilon: float | None) -> float | None:
        if isinstance(self.plan, PersonalPlan):
            if epsilon not in self.plan.allowed_epsilons:
                raise _Bad("bad-epsilon", "The epsilon must be one of those that the study allows.")
        elif epsilon is not None:
            raise _Bad("bad-epsilon", "The epsilon must be null: the study has one for everybody.")
        return epsilon

    def token(self, token: str | None) -> bytes | None:
        if not self.plan.by_invitation:
            return None
        if token is None:
            raise _Bad("token-needed", "The study takes reports by invitation only: a token is needed.")
        return hashed(token)

    # --- payloads -----------------------------------------------------------------------------------------------------

    def _choose(self, head: Head | None) -> dict[tuple[int, float | None], Pack]:
        plan = self.plan
        found: dict[tuple[int, float | None], Pack]
        steps: dict[int, dict[tuple[int, float | None], Pack]]
        match plan:
            case MeanPlan():
                found = {(TRUSTED, None): self._value, (LOCAL, None): self._report_of(plan.study.invite.randomiser)}
                if plan.study.mixed_invite is not None:
                    found[SHUFFLED, None] = self._report_of(plan.study.mixed_invite.randomiser)
                return found
            case PersonalPlan():
                found = {}
                for e in plan.allowed_epsilons:
                    found[TRUSTED, e] = self._value
                    found[LOCAL, e] = self._report_of(best_randomiser(PureDP(e)))
                return found
            case VectorPlan():
                return {(TRUSTED, None): self._values_of(plan.columns), (LOCAL, None): self._vector_of(plan.invite)}
            case PointsPlan():
                return {(TRUSTED, None): self._values_of(plan.columns), (LOCAL, None): self._slot}
            case RegressionPlan():
                steps = {1: {(TRUSTED, None): self._values_of(plan.columns)}}
                if isinstance(head, Line):
                    steps[2] = {(LOCAL, None): self._vector_of(head.question.invite)}
                return steps.get(self.phase, {})
            case QuestionsPlan():
                steps = {1: {(TRUSTED, None): self._answers_of(plan)}}
                if not plan.phased or head is not None:
                    steps[2] = {(LOCAL, None): self._reports_of(plan, head)}
                return steps.get(self.phase, {}) if plan.phased else steps[1] | steps[2]
            case HeavyPlan():
                steps = {1: {(TRUSTED, None): self._record}, 2: {(LOCAL, None): self._slot}}
                return steps.get(self.phase, {})

    def _seal(self, value: bytes, row: bytes) -> bytes:
        assert self._cipher is not None
        return self._cipher.seal(value, row)

    def _value(self, row: bytes, payload: msgspec.Raw) -> bytes:
        return self._seal(NUMBER.pack(_decoded(Value, payload).value), row)

    def _report_of(self, randomiser: Randomiser) -> Pack:
        if isinstance(randomiser, DitheredBit):
            return _bit
        assert isinstance(self.plan, MeanPlan | PersonalPlan)
        bounds = self.plan.study.bounds
        reach = bounds.half * randomiser.bound * (1 + 1e-9)

        def number(row: bytes, payload: msgspec.Raw) -> bytes:
            report: float = _decoded(NumberReport, payload).report
            if not abs(report - bounds.centre) <= reach:
                raise _Bad("out-of-range", _FAR)
            return NUMBER.pack(report)

        return number

    def _values_of(self, columns: tuple[str, ...]) -> Pack:
        def numbers(row: bytes, payload: msgspec.Raw) -> bytes:
            values: list[float] = _decoded(Values, payload).values
            if len(values) != len(columns) or not all(map(math.isfinite, values)):
                raise _Bad("bad-payload", f"The values must be {len(columns)} finite numbers.")
            return self._seal(struct.pack(f"<{len(values)}d", *values), row)

        return numbers

    def _vector_of(self, invite: VectorInvite) -> Pack:
        some = isinstance(invite.reports, ScalarReports)

        def vector(row: bytes, payload: msgspec.Raw) -> bytes:
            try:
                if not some:
                    return vectors.direction(invite, _decoded(DirectionReport, payload).report)
                return vectors.pack(invite, *_plain(_decoded(CoordinatesReport, payload).report))
            except vectors.OutOfReach:
                raise _Bad("out-of-range", _FAR) from None
            except InvalidInput as error:
                raise _Bad("bad-payload", str(error)) from None

        return vector

    def _answers_of(self, plan: QuestionsPlan) -> Pack:
        def answers(row: bytes, payload: msgspec.Raw) -> bytes:
            try:
                return self._seal(pack_answers(plan.entrusted, _decoded(Answers, payload).answers), row)
            except InvalidInput as error:
                raise _Bad("bad-payload", str(error)) from None

        return answers

    def _reports_of(self, plan: QuestionsPlan, head: Head | None) -> Pack:
        packed = plan.packed_within(head)
        kinds = {one.name: _told_on(one.invite) for one in packed if isinstance(one, Asked)}

        def reports(row: bytes, payload: msgspec.Raw) -> bytes:
            given = _decoded(Reports, payload).reports.items()
            told = {name: _plain(_decoded(kinds.get(name, TOLD[0]), raw)) for name, raw in given}
            try:
                return pack_reports(packed, plan.drawn, told)
            except vectors.OutOfReach:
                raise _Bad("out-of-range", _FAR) from None
            except InvalidInput as error:
                raise _Bad("bad-payload", str(error)) from None

        return reports

    def _record(self, row: bytes, payload: msgspec.Raw) -> bytes:
        assert isinstance(self.plan, HeavyPlan)
        given: list[list[str]] = _decoded(Records, payload).records
        if not 1 <= len(given) <= self.plan.asked.max_records:
            raise _Bad("bad-payload", f"The records must be at least 1 and at most {self.plan.asked.max_records}.")
        records = [tuple([normalised(part) for part in record]) for record in given]
        for record in records:
            if len(record) != len(self.plan.record):
                raise _Bad("bad-payload", f"Each record must have {len(self.plan.record)} parts.")
            if any(not 1 <= len(part) <= self.plan.asked.max_length for part in record):
                raise _Bad("bad-payload", f"Each part must have 1 to {self.plan.asked.max_length} characters.")
        assert self._cipher is not None
        chosen = sorted(records)[self._cipher.choice(row, len(records))]
        return self._seal(packed_record(chosen, self.plan.asked.max_length), row)

    def _slot(self, row: bytes, payload: msgspec.Raw) -> bytes:
        slot: int = _decoded(Category, payload).category
        if not 0 <= slot < self._slots:
            raise _Bad("out-of-range", f"The category must lie between 0 and {self._slots - 1}.")
        return SLOT.pack(slot)


_PART = struct.Struct("<H")


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


def _bit(row: bytes, payload: msgspec.Raw) -> bytes:
    found: Bit = _decoded(DitheredReport, payload).report
    return BIT.pack(found.threshold, found.above)


def _told_on(invite: Invited) -> Any:
    """What a report on this question is on its way."""
    if not isinstance(invite, VectorInvite):
        return TOLD[0]
    return TOLD[1] if isinstance(invite.reports, ScalarReports) else TOLD[2]


def _plain(told: Any) -> Any:
    """The same without its names: a bit is its threshold and whether the value is above it."""
    if isinstance(told, Coordinates):
        return told.coordinates, [_plain(x) for x in told.each]
    return (told.threshold, told.above) if isinstance(told, Bit) else told


def _decoded(kind: Any, payload: msgspec.Raw) -> Any:
    try:
        found = _decoders[kind].decode(payload)
    except _BROKEN as error:
        shown = str(error) if isinstance(error, msgspec.ValidationError) else "it is not JSON"
        of = "one of the study's questions" if kind in TOLD else kind.__name__
        raise _Bad("bad-payload", f"The payload must be that of {of}: {shown}.") from None
    if kind in (Value, NumberReport) and not math.isfinite(found.value if kind is Value else found.report):
        raise _Bad("bad-payload", "The number must be finite.")
    return found
