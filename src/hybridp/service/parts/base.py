"""One question as people answer it on a page: how answers and reports lie in the store, what devices are told of it,
what its release spends, and how stored answers become one.

A driver of the service asks a part, never which task it is. Each part is answered by the study of its own protocol, the
very one that a table of the same declaration would be released by. In the store an entrusted answer takes 8 bytes for
each number or option that is asked for, whatever it says, and reports on a question are all as long.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hybridp.curator.sources import Entrusted
from hybridp.errors import InvalidInput
from hybridp.ledger import Charge
from hybridp.protocols.transcript import Transcript
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.groups import Grouping
from hybridp.public.rounds import Answer, Crowd, drive
from hybridp.public.study import Number, People, Question
from hybridp.randomness import Randomness
from hybridp.release.release import Release
from hybridp.service.people import Heard, StorePeople
from hybridp.tasks.groups import ask_groups

__all__ = [
    "BIT",
    "CODE",
    "NUMBER",
    "SLOT",
    "Category",
    "Forecast",
    "Heard",
    "OutOfReach",
    "Part",
    "Pilot",
    "check_bounds",
]
__all__ += ["double", "rising", "unsupported"]

BIT, NUMBER, SLOT, CODE = (struct.Struct(form) for form in ("<IB", "<d", "<I", "<q"))
"""How reports and answers lie in the store: a dithered bit (threshold, above), a number, a place in a list; a code."""
_FAR, _NEAR = 1e30, 1e-12
Ints = NDArray[np.int64]
Pilot = Callable[[tuple[int, ...]], tuple[Release, dict[str, Any]]]
"""States, for the ids of its charges, what a first phase released, and the invitation that follows from it."""


class OutOfReach(InvalidInput):
    """A number that no device which follows the plan can send."""


# --- the rules of a page ----------------------------------------------------------------------------------------------


def unsupported(asked: Question, **nothing: Any) -> None:
    """Fields of a question that only a table can answer, with the value at which they ask for nothing."""
    for name, value in nothing.items():
        given = getattr(asked, name)
        rule = "must be left out: a study that people answer on a page cannot do it"
        asked.must(given == value, name, rule, given)


def check_bounds(asked: Question, lower: float, upper: float) -> None:
    """Bounds that can be shown on a page and computed with."""
    for name, value in (("lower", lower), ("upper", upper)):
        asked.must(abs(value) <= _FAR, name, f"must lie between {-_FAR:g} and {_FAR:g}", value)
    least = max(_NEAR * max(abs(lower), abs(upper)), 1 / _FAR)
    asked.must(upper - lower >= least, "upper", f"must be at least {least:g} above lower ({lower:g})", upper)


def check_number(number: Number) -> None:
    """What an analyst states of the values must fit the range and the page."""
    unsupported(number, publish="full", clipped_share=0.0)
    rule = "must be deleted, and the bounds chosen: everyone reads them, and they cannot be changed"
    number.must(not number.guessed, "guessed", rule, number.guessed)
    check_bounds(number, number.lower, number.upper)
    half = (number.upper - number.lower) / 2
    for name, least in (("sd", _NEAR * half), ("local_sd", _NEAR * half), ("step", 2 * _NEAR * half)):
        value = getattr(number, name)
        number.must(value is None or value >= least, name, f"must be at least {least:g} for these bounds", value)
    rule = "must be left out: a trial on raw values knows it, people on a page do not"
    number.must(number.estimator != "full-lm", "estimator", rule, number.estimator)


def double(given: Any) -> float:
    """The number as a double; JSON has whole numbers that are larger than any."""
    try:
        return float(given)
    except OverflowError:
        return math.inf


def rising(places: Sequence[Any], size: int) -> bool:
    """Whether these are different places in a list, in their order."""
    return all(0 <= a < size for a in places) and all(a < b for a, b in pairwise(places))


@dataclass(frozen=True)
class Forecast:
    """An answer's error, as it is known beforehand: each group's variance, in units of `scale`, and what it assumes."""

    variances: dict[str, float]
    unit: str
    assumes: str
    scale: float = 1.0
    alike: bool = False


# --- a part -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Part:
    """One question, and the study of the protocol that answers it."""

    question: Question
    study: Any
    grouping: Grouping | None = None
    """By which public group the answer is told, which everybody sends as it is."""
    within: Any = None
    """What a local person's device is asked where the study alone does not say: what those said who came first, or the
    epsilon that a person chose."""

    waits: ClassVar[bool] = False
    """Whether local people can be asked only when trusted people have answered."""
    once: ClassVar[bool] = False
    """Whether it is released once, and no more."""
    alone: ClassVar[str] = ""
    """The field by which it must be a study's only question."""
    mixes: ClassVar[bool] = False
    """Whether reports may come through a mixer."""
    drawn: ClassVar[bool] = False
    """Whether a local person's device draws what of it is reported on."""

    @property
    def name(self) -> str:
        return self.question.name

    @property
    def names(self) -> tuple[str, ...]:
        """The names of what a person gives."""
        return (self.name,)

    @property
    def invite(self) -> Any:
        """What goes to every device."""
        return self.study.invite

    @property
    def promise(self) -> PureDP | ApproxDP:
        """What a report on this question keeps."""
        found: PureDP | ApproxDP = self.invite.promise
        return found

    @property
    def estimator(self) -> str:
        """Who is heard; a number's may be open until its people are counted."""
        return getattr(self.question, "estimator", None) or ""

    @property
    def hears(self) -> tuple[str, ...]:
        """The groups whose answers count."""
        return {"tcm-only": ("trusted",), "lm-only": ("local",)}.get(self.estimator, ("trusted", "local"))

    @property
    def columns(self) -> tuple[Part, ...]:
        """What a trusted person is asked: the question, and before it a private group."""
        return (self,)

    @property
    def reported(self) -> tuple[Part, ...]:
        """What local people report on."""
        return (self,)

    @property
    def choices(self) -> tuple[float, ...]:
        """The epsilons that people choose from, where everybody has their own."""
        return ()

    def at(self, epsilon: float | None) -> Part:
        """The question as people are asked it who chose this epsilon."""
        return self

    def asked_within(self, stated: dict[str, Any]) -> Part:
        """The question as local people are asked it in the second phase, by the invitation of the first."""
        return replace(self, within=Transcript.opened(stated))

    @property
    def mixed(self) -> Part | None:
        """The question as people are asked it who send their report through a mixer."""
        return None

    def check_people(self, people: People) -> None:
        """What must be known of who will come."""

    def charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        """What a release of this question spends of both groups' promises, or of so many people."""
        found: list[Charge] = self.study.charges(self.name, None)
        return found

    def refused(self, rule: str) -> InvalidInput:
        return InvalidInput(f"`{self.name}` must be {rule}. Got something else.")

    # --- an entrusted answer ------------------------------------------------------------------------------------------

    answer_type: ClassVar[Any] = float
    """What an answer is on its way."""

    @property
    def cells(self) -> int:
        """How many times 8 bytes an entrusted answer takes."""
        return 1

    def pack_answer(self, given: Any, choose: Callable[[int], int]) -> bytes:
        """8 bytes, whatever the answer; of several numbers as many for each. `choose` picks one of so many, by chance,
        but the same one if the answer is sent again."""
        raise NotImplementedError

    # --- a report -----------------------------------------------------------------------------------------------------

    @property
    def report_type(self) -> Any:
        """What a report is on its way."""
        return int

    @property
    def size(self) -> int:
        """Bytes of a report in the store."""
        return SLOT.size

    @property
    def places(self) -> int:
        """How many places a report may name, where it names one."""
        raise NotImplementedError

    def pack_report(self, told: Any) -> bytes:
        """A report as a device that follows the plan sends it."""
        if not 0 <= told < self.places:
            raise self.refused(f"a whole number from 0 to {self.places - 1}")
        return SLOT.pack(told)

    def written(self, body: bytes) -> Any:
        """A stored report as a device would write it into a table."""
        return SLOT.unpack(body)[0]

    # --- what people and devices are told -----------------------------------------------------------------------------

    def column(self) -> dict[str, Any]:
        """What is asked, as a field of a form."""
        return {"name": self.name, "kind": self.question.kind, "text": self.question.text}

    def described(self) -> dict[str, Any]:
        """The question, and how a local person's device answers it. `mechanism` is the line that a device writes beside
        its report in a table."""
        raise NotImplementedError

    def described_report(self) -> dict[str, Any]:
        """The mechanism of a report by itself."""
        found: dict[str, Any] = self.described()["randomiser"]
        return found

    def longest(self) -> tuple[Any, Any, int]:
        """The longest answer, the longest report, and the characters of its fields in a form."""
        raise NotImplementedError

    # --- a release ----------------------------------------------------------------------------------------------------

    def nothing(self) -> Heard:
        """What is heard before the first report."""
        names = () if self.grouping is None else self.grouping.names
        counts = (np.zeros(self.counted, dtype=np.int64) for _ in ("all", *names))
        return Heard(counts=next(counts), groups=tuple(Heard(counts=own) for own in counts))

    @property
    def counted(self) -> int:
        """How many places reports are counted by."""
        return self.places

    def add(self, told: Heard, body: bytes, epsilon: float | None, groups: NDArray[np.uint32] | None) -> None:
        """Some reports more, of people with this epsilon; `groups` are their senders' public groups."""
        if groups is None:
            return self.tally(told, body, epsilon)
        told.people += len(body) // self.size
        rows = np.frombuffer(body, dtype=np.uint8).reshape(-1, self.size)
        for place, own in enumerate(told.groups):
            self.tally(own, rows[groups == place].tobytes(), epsilon)
        return None

    def tally(self, told: Heard, body: bytes, epsilon: float | None) -> None:
        told.people += len(body) // self.size
        told.counts += self.supports(body)

    def supports(self, body: bytes) -> Ints:
        """How many reports name each place, or hold it in their set."""
        found = np.bincount(np.frombuffer(body, dtype="<u4"), minlength=self.counted)
        if len(found) != self.counted:
            raise InvalidInput(f"`{self.name}` must be reports that name places of its list. Got others.")
        return found

    def pilot(self, people: int, answers: Entrusted, expected: int, *, rng: Randomness) -> Pilot:
        """The first of two phases: what trusted people say, with noise drawn here; local people are `expected`."""
        task, heard = self.study.decided(people, expected), list[Any]()
        begun = Transcript(task, self.names, simulated=rng.simulated)
        found = drive(task.ask(begun.crowd()), StorePeople(answers, people, Heard(), rng), heard)

        def state(entries: tuple[int, ...]) -> tuple[Release, dict[str, Any]]:
            said = Transcript.of(task, self.names, heard, entries=entries, simulated=rng.simulated)
            return replace(found, receipt=replace(found.receipt, ledger_entries=entries)), said.document()

        return state

    def remark(self, found: Release) -> str:
        """What an analyst must be told of a first phase."""
        return ""

    def reported_as(self, told: Heard) -> Any:
        """The reports of people who were asked in the second phase, added up."""
        raise NotImplementedError

    def answer(self, local: Sequence[Heard], answers: Entrusted | None, people: int, *, rng: Randomness) -> Release:
        """The answer to the question from the reports and, where they are read, so many people's entrusted answers: its
        protocol's own conversation. The noise is drawn here, before anything is charged."""
        (told,) = local
        if self.waits:  # blended with all that the first phase heard: nothing is drawn
            found: Release = self.within.released(Answer(local=self.reported_as(told)))
            return found
        own = StorePeople(answers, people, told, rng, mixed=self.study.mixed_invite, levels=self.choices)
        crowd = Crowd(self.names, lambda middle: "", lambda: {"rng": rng, "entries": (), "simulated_local": False})
        if self.grouping is not None:
            return ask_groups(self.study.decided(0, 0), self.grouping, own, crowd)
        sizes = 0 if answers is None else people, told.people, 0 if told.mixed is None else told.mixed.people
        found = drive(self.study.decided(*sizes).ask(crowd), own)
        return found

    # --- what an analyst is told --------------------------------------------------------------------------------------

    def forecast(self, people: dict[str, int]) -> Forecast | None:
        """How well so many people answer it; None where no law is known."""
        return None

    def first_forecast(self, trusted: int) -> str | None:
        """What the first phase of so many trusted people would find, in a sentence."""
        return None

    def check_first(self, trusted: int, *, sure: bool) -> None:
        """Refuse, by public numbers and before anything is spent, a first phase that cannot find anything."""


@dataclass(frozen=True)
class Category(Part):
    """Everybody's public group, by which the answer is told: its place among the names, as it is, whichever way."""

    answer_type: ClassVar[Any] = int

    @property
    def options(self) -> tuple[str, ...]:
        assert self.grouping is not None
        return self.grouping.names

    @property
    def name(self) -> str:
        assert self.grouping is not None
        return self.grouping.column

    @property
    def places(self) -> int:
        return len(self.options)

    def pack_answer(self, given: Any, choose: Callable[[int], int]) -> bytes:
        return CODE.pack(SLOT.unpack(self.pack_report(given))[0])

    def written(self, body: bytes) -> Any:
        return self.options[SLOT.unpack(body)[0]]

    def longest(self) -> tuple[Any, Any, int]:
        many = len(self.options)
        return many, many, len(str(many))
