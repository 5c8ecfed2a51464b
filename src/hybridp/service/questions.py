"""One question of a study as people answer it on a page, whatever it asks.

Its declaration and its task say what is asked of whom, what a report looks like (`formats`), what is spent, and how
stored answers become a release, by the very conversation that a table of the same declaration has. RAW: the people of a
service answer its rounds by what they entrusted and reported.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from typing import Any, ClassVar, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybridp.bench.models import shown_probability, zipf
from hybridp.curator import models as modelling
from hybridp.curator import sums as summing
from hybridp.curator.sums import TrustedAnswers, as_numbers, noisy_sums
from hybridp.errors import InvalidInput
from hybridp.ledger import Charge
from hybridp.protocols.rows import LatticePeople, SummedPeople
from hybridp.public import rounds
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.distribution import BinnedReports, by_window
from hybridp.public.groups import Grouping
from hybridp.public.heavy import discovery
from hybridp.public.messages import Invite, ReportsByEpsilon, SlotReports
from hybridp.public.randomisers import best_randomiser
from hybridp.public.rounds import Answer, Crowd, drive
from hybridp.public.shares import NoisyCounts, ShareReports
from hybridp.public.study import Choice, Question
from hybridp.public.vector import VectorReportSums
from hybridp.randomness import Randomness
from hybridp.release.release import Release
from hybridp.service.formats import Field, Heard, Reports, option_field, place_reports, reports_on
from hybridp.tasks.distribution import DistributionTask
from hybridp.tasks.groups import ask_groups
from hybridp.tasks.task import Batches
from hybridp.tasks.transcript import Transcript

__all__ = ["Forecast", "Part", "categories_of", "pack_answers", "pack_reports", "unpacked_reports"]

_PLACE = struct.Struct("<H")
_SAID: dict[str, Callable[[Any], dict[str, Any]]] = {
    "number": lambda asked: {"windows": [list(window) for window in asked.windows]} if asked.windows else {},
    "cell": lambda asked: {"grid": {"per_axis": asked.encoding.per_axis, "cells": asked.encoding.cells}},
    "line": lambda asked: {"line": {name: getattr(asked.encoding, name) for name in ("form", "centre", "clip")}},
    "slot": lambda asked: {"slots": [list(slot) for slot in asked.encoding.slots]},
}
"""What a device must know of an invitation, beside its mechanism, by its way."""


class Forecast(NamedTuple):
    """How many people must give a record for it to be listed, how many records will probably be, and both in words."""

    threshold: int
    records: float
    words: str


@dataclass
class Part:
    """One question at its part of the promise: what trusted people give (`fields`), the invitation that goes to local
    people, None where it is not known before the first of two phases, and what a task document says of it (`about`)."""

    question: Question
    task: Any
    fields: tuple[Field, ...]
    invite: Any
    about: Mapping[str, Any] = field(default_factory=dict)
    grouping: Grouping | None = None  # by which public group the answer is told, which everybody sends as it is
    choices: tuple[float, ...] = ()  # the epsilons that people choose from, where everybody has their own
    said: Transcript | None = None  # the first of two phases
    drawn: ClassVar[bool] = False  # whether a local person's device draws what of it is reported on

    @classmethod
    def of(cls, question: Question, task: Any, given: Field, invite: Any, **about: Any) -> Part:
        """Of which trusted people give one field, as it is shown to everybody."""
        return cls(question, task, (given,), invite, {**given.about, **about})

    def __post_init__(self) -> None:
        self.name, self.options = self.question.name, tuple(self.about.get("options", ()))
        self.names = tuple(side["name"] for side in self.about.get("coordinates", ())) or (self.name,)
        # Who is heard; a number's may be open until its people are counted.
        self.estimator: str = (self.task.estimator if self.choices else getattr(self.question, "estimator", None)) or ""

    @property
    def waits(self) -> bool:
        """Whether local people can be asked only when trusted people have answered."""
        return (self.task.by_invitation and not self.task.planned) or self.about.get("form") == "steered"

    @property
    def once(self) -> bool:
        """Whether it is released once, and no more."""
        return self.waits or self.drawn or self.task.planned or self.task.personal

    @property
    def promise(self) -> PureDP | ApproxDP:
        result: PureDP | ApproxDP = PureDP(self.task.guarantee.epsilon) if self.invite is None else self.invite.promise
        return result

    @property
    def hears(self) -> tuple[str, ...]:
        if self.choices and not self.task.uses_reports:
            return ("trusted",)
        return {"tcm-only": ("trusted",), "lm-only": ("local",)}.get(self.estimator, ("trusted", "local"))

    @property
    def reported(self) -> tuple[Part, ...]:
        return (self,)

    @cached_property
    def reports(self) -> Reports:
        if self.invite is None:  # a group, as it is; or nothing is asked yet
            return place_reports(len(self.options), {}, self.options)
        counted = getattr(self.task, "distribution", self.task)
        return reports_on(self.invite, binned=isinstance(counted, DistributionTask))

    def at(self, epsilon: float | None) -> Part:
        if epsilon is None or not self.choices:
            return self
        return replace(self, invite=Invite(self.task.bounds, best_randomiser(PureDP(epsilon))))

    @property
    def mixed(self) -> Part | None:
        """The question as people are asked it who send their report through a mixer."""
        invite = self.task.mixed_invite
        return None if invite is None else replace(self, invite=invite)

    def charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        """What a release of this question spends of both groups' promises, or of so many people."""
        task = self.task
        if people is not None:
            local = people["expected" if self.waits else "local"]
            task = task.decided(people["trusted"], local, people.get("shuffled", 0))
        result: list[Charge] = task.charges(self.name, None)
        where = " within windows" if self.about.get("form") == "steered" else ""
        return [replace(c, mechanism=c.mechanism + where) if c.people == "local" else c for c in result]

    def described(self) -> dict[str, Any]:
        """The question, and how a local person's device answers it, unless the task's choices say that. `mechanism` is
        the line that a device writes beside its report, where that may stand in a table."""
        result = dict(self.about)
        if self.invite is None or self.choices:
            return result
        said = _SAID.get(self.invite.way, lambda asked: {})(self.invite)
        line = {} if self.invite.way in ("cell", "slot") else {"mechanism": self.invite.text}
        return result | said | {"randomiser": dict(self.reports.mechanism)} | line

    def heard(self, body: bytes, epsilon: float | None, groups: NDArray[np.uint32] | None) -> Heard:
        """What some reports say, of people with this epsilon; `groups` are their senders' public groups."""
        if self.grouping is None or groups is None:
            return self.reports.heard(body, epsilon)
        rows = np.frombuffer(body, dtype=np.uint8).reshape(-1, self.reports.size)
        own = (rows[groups == place].tobytes() for place in range(len(self.grouping.names)))
        return Heard(len(rows), groups=tuple(self.reports.heard(some, epsilon) for some in own))

    def pilot(
        self, people: int, answers: TrustedAnswers, expected: int, *, rng: Randomness
    ) -> tuple[Release, Transcript]:
        """The first of two phases: what trusted people say, with noise drawn here, and the invitation that follows from
        it; local people are `expected`."""
        task, heard = self.task.decided(people, expected), list[Any]()
        begun = Transcript(task, self.names, simulated=rng.simulated)
        result = drive(task.ask(begun.crowd(rng)), StorePeople(answers, people, Heard(), rng), heard)
        return result, Transcript.of(task, self.names, heard, simulated=rng.simulated)

    def answer(
        self, local: Sequence[Heard], answers: TrustedAnswers | None, people: int, *, rng: Randomness
    ) -> Release:
        """The answer to the question from the reports and, where they are read, so many people's entrusted answers: its
        task's own conversation. The noise is drawn here, before anything is charged."""
        (told,) = local
        if self.said is not None:  # blended with all that the first phase heard: nothing is drawn
            invite: Any = self.said.asked.invite
            later = by_window(told.counts, invite) if self.said.asked.bins else _sums(told, invite)
            return cast(Release, self.said.released(Answer(local=later), rng))
        own = StorePeople(answers, people, told, rng, mixed=self.task.mixed_invite, levels=self.choices)
        crowd = Crowd(self.names, lambda middle: "", lambda: {"rng": rng, "entries": (), "simulated_local": False})
        if self.grouping is not None:
            return ask_groups(self.task.decided(0, 0), self.grouping, own, crowd)
        sizes = 0 if answers is None else people, told.people, 0 if told.mixed is None else told.mixed.people
        result: Release = drive(self.task.decided(*sizes).ask(crowd), own)
        return result

    def forecast(self, trusted: int) -> Forecast | None:
        """How many records a first phase of so many trusted people lists if their shares fall as 1/rank."""
        if (share := getattr(self.task, "discovery_share", None)) is None:
            return None
        mechanism, among = discovery(self.task.trusted_whole), round(trusted * share)
        threshold, records = mechanism.threshold, float(shown_probability(zipf(1000, 1.0), among, mechanism).sum())
        words = (
            f"A record is listed if about {threshold:,} of the {among:,} people who discover give it "
            f"({min(1.0, threshold / max(among, 1)):.1%}): at most about {among // threshold:,} records, and "
            f"{records:.1f} if 1,000 are given as often as 1/rank. The promise is spent even if the list is empty."
        )
        return Forecast(threshold, records, words)


# --- all questions of a study -----------------------------------------------------------------------------------------


def categories_of(parts: Sequence[Part]) -> tuple[Part, ...]:
    """The public groups that people are asked for, each once, however many answers are told by it: everybody sends its
    place among the names, as it is, whichever way."""
    result: dict[str, Part] = {}
    for one in parts:
        if (by := one.grouping) is not None:
            shown = option_field(by.column, {"options": list(by.names)})
            own = Part.of(Choice(name=by.column, options=by.names), None, shown, None)
            rule = "must be those of the other question by the same group: people are asked for it once"
            same = result.setdefault(own.name, own) == own
            one.question.must(same, "categories", rule, "others")
    names = [*result, *(given.name for one in parts for given in one.fields)]
    for one in parts:
        by_name = getattr(one.question, "by", None) or ""
        rule = "must not be a question's own name, or another one's group"
        one.question.must(names.count(by_name) < 2, "by", rule, by_name)
    return tuple(result.values())


def pack_answers(asked: Sequence[Field], given: Mapping[str, msgspec.Raw]) -> bytes:
    if set(given) != {one.name for one in asked}:
        raise InvalidInput("`answers` must hold one for every question, and no others. Got others.")
    return b"".join([one.packed(one.name, given[one.name]) for one in asked])


def pack_reports(asked: Sequence[Part], drawn: bool, given: Mapping[str, msgspec.Raw]) -> bytes:
    """A local person's report: on all questions or, where they are drawn, on one, in as many bytes whichever it is."""
    places = [place for place, one in enumerate(asked) if one.name in given]
    if len(given) != len(places) or len(places) != (1 if drawn else len(asked)):
        wanted = "on one question" if drawn else "on every question"
        raise InvalidInput(f"`reports` must be {wanted}, and no more. Got others.")
    body = b"".join([asked[i].reports.packed(asked[i].name, given[asked[i].name]) for i in places])
    if not drawn:
        return body
    return _PLACE.pack(places[0]) + body.ljust(max(one.reports.size for one in asked), b"\0")


def unpacked_reports(asked: Sequence[Part], drawn: bool, bodies: Sequence[bytes]) -> list[bytes]:
    """The stored reports question by question: those of one behind each other."""
    rows = np.frombuffer(b"".join(bodies), dtype=np.uint8).reshape(len(bodies), -1)
    sizes = [one.reports.size for one in asked]
    if drawn:
        place = rows[:, :2].copy().view("<u2")[:, 0] if len(rows) else np.empty(0)
        return [rows[place == i, 2 : 2 + size].tobytes() for i, size in enumerate(sizes)]
    return [rows[:, end - size : end].tobytes() for size, end in zip(sizes, np.cumsum(sizes), strict=True)]


# --- people who answer rounds ----------------------------------------------------------------------------------------


def _sums(told: Heard, invite: Any) -> Any:
    """What the reports that answer an invitation say, added up."""
    if invite.way == "slot":
        return SlotReports(told.people, told.counts)
    if invite.way == "option":
        return ShareReports(told.people, told.counts, invite.mechanism)
    return VectorReportSums.of(told.people, told.sums, invite.mechanism)


@dataclass
class StorePeople(SummedPeople):
    """RAW: so many trusted people and their answers to one question, and what the local reports on it say."""

    answers: Any
    people: int
    told: Heard
    rng: Randomness
    totals: Any = None  # what a round needs of the answers, where they were read before
    groups: list[Any] = field(default_factory=list)
    names: tuple[str, ...] = ()
    mixed: Any = None  # what people were asked who sent their report through a mixer
    levels: tuple[float, ...] = ()  # the epsilons that people chose from, where everybody has their own
    _kept: Any = None

    def _summed(self, asked: Any, answers: TrustedAnswers) -> Any:
        """RAW: what the round needs of these answers; it adds up over people."""
        return summing.read_answers(answers, asked.invite, getattr(asked, "joint", None))

    def _said(self, asked: Any, **more: Any) -> Answer:
        """What leaves the curator of the trusted answers, and the reports, also of a mixer, where they are heard."""
        if self.totals is None and self.answers is not None and asked.noise is not None:
            self.totals = self._summed(asked, self.answers)
        trusted = summing.release_totals(self.totals, asked, rng=self.rng)
        told, mixed = self.told, None
        if asked.heard and told.mixed is not None and self.mixed is not None:
            mixed = Batches(_sums(told.mixed, self.mixed), told.batches)
        came = asked.heard and (told.people or told.mixed is not None)
        return Answer(self.people, trusted, _sums(told, asked.invite) if came else None, mixed, **more)

    def numbers(self, asked: rounds.Numbers) -> Answer:
        made, heard = asked.invite.mechanism, asked.bins and asked.heard and self.told.people
        binned = BinnedReports(self.told.counts, made) if heard else None
        return self._said(asked, binned=binned)

    def options(self, asked: rounds.Options) -> Answer:
        return self._said(asked)

    def between(self, asked: rounds.Between) -> NoisyCounts:
        return summing.count_answers(self.answers, asked.invite.encoding, asked.places, asked.noise, rng=self.rng)

    def within(self, asked: rounds.Within) -> tuple[int, int, int]:
        levels = (asked.invite.encoding.levels(values[:, 0]) for values in map(as_numbers, self.answers))
        return summing.release_window(levels, asked.window, asked.noise, rng=self.rng)

    def products(self, asked: rounds.Products) -> tuple[int, ...]:
        bounds = asked.bounds
        rows = modelling.answer_rows(self.answers, bounds.steps, self.people)
        people = self._kept = LatticePeople(rows, rows, self.rng)
        return people.products(asked)

    def discover(self, asked: rounds.Discover) -> Any:
        told, self._kept = modelling.discover_answers(self.answers, asked.share, asked.mechanism, rng=self.rng)
        return *told, self._kept.total()

    def slots(self, asked: rounds.Slots) -> Any:
        counted = np.zeros(len(asked.head), dtype=np.int64)
        for record, n in self._kept.items():
            counted[asked.head.slot_of(record)] += n
        return list(noisy_sums(counted, asked.noise, rng=self.rng))

    def later(self, asked: rounds.Later) -> None:
        """Nobody was invited yet."""

    def many(self, asked: rounds.Many) -> tuple[int, int]:
        box, people = asked.box, 0 if self.answers is None else self.people
        rows = modelling.answer_rows(self.answers, lambda values: box.levels(values).T, people)
        points = self._kept = LatticePeople(rows, rows, self.rng, self.told.counts)
        return points.many(asked)

    def epsilons(self, asked: rounds.Epsilons) -> Any:
        raw = self._kept = modelling.read_levels(self.answers, asked.bounds, sorted(self.levels))
        reports = ReportsByEpsilon.of(self.told.own)
        return raw.epsilons * asked.share, raw.trusted_people, reports, Batches()

    def read(self, asked: Any) -> None:
        """RAW: what the round needs of every group. Answers are unsealed once, whatever the number of groups."""
        nobody = self._summed(asked, [np.zeros((0, 1), dtype=np.int64)])
        self.groups = [nobody for _ in self.told.groups]
        for rows in self.answers or ():
            for place in np.unique(rows[:, 1]).tolist():
                more = self._summed(asked, [rows[rows[:, 1] == place]])
                self.groups[place] = self.groups[place].plus(more)

    def pay(self, totals: None) -> None:
        """The service charges when all noise was drawn."""

    def sizes(self, by: Grouping) -> dict[str, tuple[int, int]]:
        self.names = by.names
        told = zip(by.names, self.groups, self.told.groups, strict=True)
        return {name: (own.trusted_people, local.people) for name, own, local in told}

    def of(self, members: tuple[str, ...]) -> StorePeople:
        places = [self.names.index(name) for name in members]
        told = reduce(Heard.__add__, (self.told.groups[i] for i in places))
        totals = reduce(lambda one, more: one.plus(more), (self.groups[i] for i in places))
        return StorePeople(self.answers, totals.trusted_people, told, self.rng, totals)
