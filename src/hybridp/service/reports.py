"""One uploaded report against its study's plan: packed for the store, or refused with a clear code.

Nothing here knows the database. A value entrusted to the study is sealed before it leaves this file; a local report is
packed as the whole numbers that the device drew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from hybridp.errors import InvalidInput
from hybridp.public.mixing import from_text, unseal
from hybridp.service.formats import BROKEN, Bit, Coordinates, OutOfReach, broken
from hybridp.service.plans import Survey
from hybridp.service.problems import STATUS, Refused
from hybridp.service.questions import Part, pack_answers, pack_reports
from hybridp.service.schema import LOCAL, SHUFFLED, TRUSTED
from hybridp.service.settings import RowCipher, hashed

__all__ = ["PAYLOADS", "Failure", "Packed", "Report", "StudyRow", "Upload", "View", "parse_upload", "report_id"]

# --- the wire ---------------------------------------------------------------------------------------------------------


class Report(msgspec.Struct, forbid_unknown_fields=True):
    """One contribution. `payload` depends on the group, and on the study's questions."""

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
_mixed = msgspec.json.Decoder(Mixed)
_answers, _reports = msgspec.json.Decoder(Answers), msgspec.json.Decoder(Reports)


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


@dataclass(frozen=True, slots=True)
class Failure:
    """A report that was not taken; `status` is what it would have got on its own."""

    id: str
    code: str
    detail: str

    def to_dict(self) -> dict[str, Any]:
        return {"id": self.id[:64], "code": self.code, "status": STATUS[self.code], "detail": self.detail}


def report_id(text: str) -> bytes:
    """The 16 bytes of an id, only from its one right spelling."""
    try:
        return from_text(text, 16, "id")
    except InvalidInput:
        raise Refused("bad-id", "The id must be 16 bytes in base64url without padding.") from None


# --- checking ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StudyRow:
    number: int
    id: str
    plan: Survey
    created: int


class View:
    """What a study accepts at the moment: its phase, its plan as people are asked in it, and the rules for a report."""

    def __init__(
        self, study: StudyRow, plan: Survey, state: str, phase: int, raw: str, cipher: RowCipher | None, skew: int
    ) -> None:
        self.study, self.plan, self.state, self.phase, self.raw, self.cipher = study, plan, state, phase, raw, cipher
        self._precision, self._skew = plan.collection.time_precision, skew
        # Devices take the time from the date of an answer, which has whole seconds and may be a little old.
        earliest = (plan.opens if plan.opens is not None else study.created) - skew
        self._earliest = earliest // self._precision * self._precision
        self._asked: dict[tuple[int, float | None], Sequence[Part]] = {}
        for epsilon in plan.choices or (None,):
            if cipher is not None and (not plan.phased or phase == 1):
                self._asked[TRUSTED, epsilon] = ()  # the plan's fields
            if not plan.phased or phase == 2:
                self._asked[LOCAL, epsilon] = [one.at(epsilon) for one in plan.packed]
        if plan.mixed:
            self._asked[SHUFFLED, None] = plan.mixed

    def check_open(self, now: int) -> None:
        """Refused before the study opens; what comes after it has closed is for the store to say."""
        if self.plan.opens is not None and now < self.plan.opens:
            raise Refused("not-open", "The study has not opened yet.")

    def check(self, report: Report, now: int) -> Packed | Failure:
        try:
            raw, time, epsilon, allowed = report_id(report.id), report.time, report.epsilon, self.plan.choices
            if self.cipher is None:
                raise Refused("closed", "The study takes no more reports.")
            if time % self._precision:
                raise Refused("bad-time", f"The time must be a multiple of {self._precision} seconds.")
            if time > now + self._skew:
                raise Refused("bad-time", "The time must not lie in the future.")
            if time < self._earliest or (self.plan.closes is not None and time > self.plan.closes):
                raise Refused("bad-time", "The time must lie between the opening and the closing of the study.")
            if allowed and epsilon not in allowed:
                raise Refused("bad-epsilon", "The epsilon must be one of those that the study allows.")
            if not allowed and epsilon is not None:
                raise Refused("bad-epsilon", "The epsilon must be null: the study has one for everybody.")
            group = TRUSTED if report.group == "trusted" else LOCAL
            if (group, epsilon) not in self._asked:
                raise Refused("wrong-phase", f"The study does not take {report.group} reports in this phase.")
            row, token = self.cipher.row(raw), self.token(report.token)
            body = self._packed(self.cipher, row, group, epsilon, report.payload)
            return Packed(row, time, group, epsilon, body, token, report.id)
        except Refused as refused:
            return Failure(report.id, refused.code, str(refused))

    def mixed(self, sealed: bytes, at: int) -> Packed | None:
        """A report that came through a mixer; None for one that this study's devices do not send."""
        if self.cipher is None or not self.plan.mixed:
            return None
        try:
            result = _mixed.decode(unseal(sealed, self.cipher.mixed, self.study.id))
            row = self.cipher.row(report_id(result.id))
            body = self._packed(self.cipher, row, SHUFFLED, None, result.payload)
            return Packed(row, at, SHUFFLED, None, body, None, "")
        except (Refused, InvalidInput, *BROKEN):
            return None

    def token(self, token: str | None) -> bytes | None:
        if not self.plan.collection.by_invitation:
            return None
        if token is None:
            raise Refused("token-needed", "The study takes reports by invitation only: a token is needed.")
        return hashed(token)

    def _packed(self, cipher: RowCipher, row: bytes, group: int, epsilon: float | None, payload: msgspec.Raw) -> bytes:
        """As it lies in the store: a trusted answer sealed, a report as it is."""
        try:
            if group == TRUSTED:
                return cipher.seal(pack_answers(self.plan.entrusted, _answers.decode(payload).answers), row)
            drawn = self.plan.drawn and group == LOCAL
            return pack_reports(self._asked[group, epsilon], drawn, _reports.decode(payload).reports)
        except InvalidInput as error:
            raise Refused("out-of-range" if isinstance(error, OutOfReach) else "bad-payload", str(error)) from None
        except BROKEN as error:
            rule = "The payload must be what the study's questions ask for"
            raise Refused("bad-payload", f"{rule}. {broken(error)}.") from None
