"""One question of a study as people answer it on a page, whatever it asks, and the rules of a page by its kind.

Its declaration and its task say what is asked of whom, what a report looks like (`formats`), what is spent, and how
stored answers become a release, by the very conversation that a table of the same declaration has. RAW: the people of a
service answer its rounds by what they entrusted and reported.

>>> smokes = {"name": "smokes", "kind": "choice", "options": ["yes", "no", "at times"]}
>>> way = {"name": "way", "kind": "number", "lower": 0, "upper": 120}
>>> asked = parts_of(Declaration(promise=1.0, trust="trust", questions=[smokes, way]))
>>> (packed := pack_reports(asked, [{0: 0.5, 1: 0.5}], {"smokes": b"2"})).hex()
'00000200000000'
>>> [part.hex() for part in unpacked_reports(asked, [{0: 0.5, 1: 0.5}], [packed])]
['02000000', '']
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, reduce
from itertools import product
from typing import Any, ClassVar, NamedTuple, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from hybridp.bench.models import shown_probability, zipf
from hybridp.curator import models as modelling
from hybridp.curator import sums as summing
from hybridp.curator.models import answer_codes
from hybridp.curator.sums import Raw, TrustedAnswers, as_numbers, noisy_sums
from hybridp.errors import must
from hybridp.ledger import Charge
from hybridp.noise import Randomness
from hybridp.protocols.rows import CodePeople, LatticePeople, SummedPeople
from hybridp.public import rounds
from hybridp.public.distribution import BinnedReports, by_window
from hybridp.public.groups import Grouping
from hybridp.public.heavy import TEXT_RULE, discovery
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import ReportsByEpsilon, SlotReports, VectorReportSums, drive
from hybridp.public.personal import LOCAL_LEAST, LOCAL_MOST
from hybridp.public.queries import Feature
from hybridp.public.questions import Choice
from hybridp.public.randomisers import Bounds, UnitVector
from hybridp.public.rounds import Answer, Crowd
from hybridp.public.shares import MarginalReports, NoisyCounts, ShareReports
from hybridp.public.study import Declaration, Question
from hybridp.release.release import Release, statistic
from hybridp.service import formats
from hybridp.service.formats import Field, Heard, ReportCodec, number_field, numbers_field, option_field, place_reports
from hybridp.service.problems import Refused
from hybridp.tasks.distribution import DistributionTask
from hybridp.tasks.groups import ask_groups
from hybridp.tasks.kmeans import kmeans_task
from hybridp.tasks.personal import at_epsilon, personal_task
from hybridp.tasks.regression import regression_task
from hybridp.tasks.shares import SharesTask, shares_task
from hybridp.tasks.table import Made, table_task
from hybridp.tasks.task import Batches, task_of
from hybridp.tasks.transcript import Tape, Transcript, plain_of

__all__ = ["Forecast", "Lots", "Part", "categories_of", "drawable", "pack_answers", "pack_reports", "parts_of"]
__all__ += ["unpacked_reports"]

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
    said: Transcript | None = None  # the phases before
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
    def by_turns(self) -> bool:
        return self.waits and self.task.by_turns

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
    def reports(self) -> ReportCodec:
        if self.invite is None:  # a group, as it is; or nothing is asked yet
            return place_reports(len(self.options), {}, self.options)
        own = self.task.each[0][2] if self.choices and self.question.by_levels else self.task
        counted = getattr(self.task, "distribution", own)  # where people chose an epsilon: of local people
        return formats.reports_on(self.invite, binned=isinstance(counted, DistributionTask))

    def at(self, epsilon: float | None) -> Part:
        if epsilon is None or not self.choices:
            return self
        return replace(self, invite=self.task.invite_at(epsilon))

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
        if self.choices:
            levels = {} if epsilon is None else {epsilon: self.reports.heard(body)}
            return Heard(sum(one.people for one in levels.values()), levels=levels)
        if self.grouping is None or groups is None:
            return self.reports.heard(body)
        rows = np.frombuffer(body, dtype=np.uint8).reshape(-1, self.reports.size)
        own = (rows[groups == place].tobytes() for place in range(len(self.grouping.names)))
        return Heard(len(rows), groups=tuple(map(self.reports.heard, own)))

    def pilot(
        self, people: int, answers: TrustedAnswers, expected: int, *, rng: Randomness
    ) -> tuple[Release, Transcript]:
        """The first of two phases: what trusted people say, with noise drawn here, and the invitation that follows from
        it; local people are `expected`."""
        task, heard = self.task.decided(people, expected), list[Any]()
        begun = Transcript(task, self.names, simulated=rng.simulated)
        result = drive(task.ask(begun.crowd(rng)), StorePeople(answers, people, Heard(), rng), heard)
        return result, Transcript.of(task, self.names, heard, simulated=rng.simulated)

    def further(self, told: Heard, *, rng: Randomness) -> tuple[Release, Transcript]:
        """The same of a later phase, in which local people `told` more: nothing is drawn."""
        said, heard = cast(Transcript, self.said), list[Any]()
        result = drive(said.task.ask(said.crowd(rng)), Tape(said, self._later(told)), heard)
        return result, Transcript.of(said.task, said.names, heard, entries=said.entries, simulated=said.simulated)

    def _later(self, told: Heard) -> Answer | None:
        """What those said who were asked last; None where nobody was there."""
        asked = cast(Transcript, self.said).asked
        if not told.people:
            return None
        return Answer(local=by_window(told.counts, asked.invite) if asked.bins else _sums(told, asked.invite))

    def answer(
        self, local: Sequence[Heard], answers: TrustedAnswers | None, people: int, *, rng: Randomness
    ) -> Release:
        """The answer to the question from the reports and, where they are read, so many people's entrusted answers: its
        task's own conversation. The noise is drawn here, before anything is charged."""
        (told,) = local
        if self.said is not None:  # blended with all that was heard before: nothing is drawn
            return cast(Release, self.said.released(self._later(told), rng))
        own = StorePeople(answers, people, told, rng, mixed=self.task.mixed_invite, choices=self.choices)
        crowd = Crowd.of(*self.names, rng=rng)
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
    rule = "must hold one for every question, and no others"
    must(set(given) == {one.name for one in asked}, "answers", rule, "others")
    return b"".join([one.packed(one.name, given[one.name]) for one in asked])


Lots = Sequence[Mapping[int, float]]
"""Places of parts, of each of which a local person's device draws one, with their chances."""


def pack_reports(asked: Sequence[Part], lots: Lots, given: Mapping[str, msgspec.Raw]) -> bytes:
    """A local person's report: on every question and, of those that are drawn, on one of each lot, in as many bytes
    whichever it is."""
    if not lots and len(given) == len(asked) and all(one.name in given for one in asked):  # most uploads
        return b"".join([one.reports.packed(one.name, given[one.name]) for one in asked])
    places = {place for place, one in enumerate(asked) if one.name in given}
    drawn = [next(iter(places & lot.keys()), 0) for lot in lots]
    every = [place for place in range(len(asked)) if not any(place in lot for lot in lots)]
    alike = len(given) == len(places) and places == {*every, *drawn}
    which = "every question" if not lots else f"{'every question, and ' if every else ''}one of those that are drawn"
    must(alike, "reports", f"must be on {which}, and no more", "others")
    packed = {place: asked[place].reports.packed(asked[place].name, given[asked[place].name]) for place in places}
    body = b"".join([packed[place] for place in every])
    for lot, place in zip(lots, drawn, strict=True):
        room = max(asked[one].reports.size for one in lot)
        body += _PLACE.pack([*lot].index(place)) + packed[place].ljust(room, b"\0")
    return body


def unpacked_reports(asked: Sequence[Part], lots: Lots, bodies: Sequence[bytes]) -> list[bytes]:
    """The stored reports question by question: those of one behind each other."""
    rows = np.frombuffer(b"".join(bodies), dtype=np.uint8).reshape(len(bodies), -1)
    sizes, result, at = [one.reports.size for one in asked], dict[int, bytes](), 0
    for place, size in enumerate(sizes):
        if not any(place in lot for lot in lots):
            result[place], at = rows[:, at : at + size].tobytes(), at + size
    for lot in lots:
        drawn = rows[:, at : at + 2].copy().view("<u2")[:, 0] if len(rows) else np.empty(0)
        at += 2
        result |= {place: rows[drawn == i, at : at + sizes[place]].tobytes() for i, place in enumerate(lot)}
        at += max(sizes[place] for place in lot)
    return [result[place] for place in range(len(asked))]


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
    choices: tuple[float, ...] = ()  # the epsilons that people chose from, where everybody has their own

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

    def levels(self, asked: rounds.Levels) -> dict[float, tuple[int, int]]:
        """How many people chose each epsilon."""
        self._kept, result = {}, {}
        for epsilon, _ in asked.invite.each:
            own = None if self.answers is None else Choosing(self.answers, epsilon)
            people = 0 if own is None else sum(map(len, own))
            told = self.told.levels.get(epsilon, Heard())
            self._kept[epsilon] = StorePeople(own, people, told, self.rng)
            result[epsilon] = people, told.people
        return result

    def epsilons(self, asked: rounds.Epsilons) -> Any:
        raw = self._kept = modelling.read_levels(self.answers, asked.bounds, sorted(self.choices))
        reports = ReportsByEpsilon.of([(own, told.sums[0]) for own, told in sorted(self.told.levels.items())])
        return raw.epsilons * asked.share, raw.trusted_people, reports, Batches()

    def read(self, asked: Any) -> None:
        """RAW: what the round needs of every group. Answers are unsealed once, whatever the number of groups."""
        nobody = self._summed(asked, [np.zeros((0, getattr(asked.invite.encoding, "dimensions", 1)), dtype=np.int64)])
        self.groups = [nobody for _ in self.told.groups]
        for rows in self.answers or ():
            for place in np.unique(rows[:, -1]).tolist():
                more = self._summed(asked, [rows[rows[:, -1] == place, :-1]])
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
        own = None if self.answers is None else Members(self.answers, tuple(places))
        return StorePeople(own, totals.trusted_people, told, self.rng, totals)


@dataclass(frozen=True)
class Choosing:
    """RAW: the answers of people who chose an epsilon."""

    answers: Any
    epsilon: float

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return (rows for epsilon, rows in self.answers.by_epsilon() if epsilon == self.epsilon)


@dataclass(frozen=True)
class Members:
    """RAW: the answers of people in some groups, whose place among the names stands beside their value."""

    answers: TrustedAnswers
    places: tuple[int, ...]

    def __iter__(self) -> Iterator[NDArray[np.int64]]:
        return (rows[np.isin(rows[:, -1], self.places), :-1] for rows in self.answers)


MOST_OPTIONS, MOST_QUESTIONS, MOST_COLUMNS, MOST_COORDINATES = 500, 50, 500, 20
"""On a page: of one choice, of one study, of a vector, and of a point."""
_FAR, _NEAR = 1e30, 1e-12
_FOR_TABLES = "must be left out: a study that people answer on a page cannot do it"


def _check_bounds(asked: Question, lower: float, upper: float) -> None:
    for name, value in (("lower", lower), ("upper", upper)):
        asked.must(abs(value) <= _FAR, name, f"must lie between {-_FAR:g} and {_FAR:g}", value)
    least = max(_NEAR * max(abs(lower), abs(upper)), 1 / _FAR)
    asked.must(upper - lower >= least, "upper", f"must be at least {least:g} above lower ({lower:g})", upper)


def _about(asked: Question, **more: Any) -> dict[str, Any]:
    return {"name": asked.name, "kind": asked.kind, "text": asked.text, **more}


def _number(declared: Declaration, place: int, asked: Any) -> Part:
    """A number, which may be by group; its mean alone through a mixer, or at everybody's own epsilon."""
    asked.left_out(_FOR_TABLES, "publish", "clipped_share")
    rule = "must be deleted, and the bounds chosen: everyone reads them, and they cannot be changed"
    asked.must(not asked.guessed, "guessed", rule, asked.guessed)
    _check_bounds(asked, asked.lower, asked.upper)
    half = (asked.upper - asked.lower) / 2
    for name, least in (("sd", _NEAR * half), ("local_sd", _NEAR * half), ("step", 2 * _NEAR * half)):
        value = getattr(asked, name)
        asked.must(value is None or value >= least, name, f"must be at least {least:g} for these bounds", value)
    rule = "must be left out: a trial on raw values knows it, people on a page do not"
    asked.must(asked.estimator != "full-lm", "estimator", rule, asked.estimator)
    if asked.form == "steered" and asked.statistics == ("mean",):
        rule = "must say how many are expected where a mean is steered: that decides where they are asked"
        must(bool(declared.people.local), "people.local", rule, "nothing")
    bounds = {"lower": asked.lower, "upper": asked.upper}
    given = number_field(asked.name, _about(asked, unit=asked.unit, bounds=bounds, step=asked.step))
    about: dict[str, Any] = {"statistics": list(asked.statistics)}
    if declared.promise.personal:
        return Part.of(asked, personal_task(declared, place), given, None, **about)
    task: Any = task_of(declared, place)
    invite = task.invite
    if asked.form == "steered":
        about |= {"form": "steered", "windows": []}
        invite = task.invite_within(()) if isinstance(task, DistributionTask) else invite
    return Part.of(asked, task, given, invite, **about)


def _option(asked: Question, task: Any, **about: Any) -> Part:
    feature = task.invite.encoding
    several = {"several": feature.most or None, **({"edges": list(feature.edges)} if feature.edges else {})}
    given = option_field(asked.name, _about(asked, options=list(feature.values), **several))
    return Part.of(asked, task, given, task.invite, **about)


def _choice(declared: Declaration, place: int, asked: Any) -> Part:
    task = shares_task(declared, place)
    many = task.question.size
    asked.must(many <= MOST_OPTIONS, "options", f"must be at most {MOST_OPTIONS} on a page", many)
    return _option(asked, task)


def _several(asked: Any, task: Any, **about: Any) -> Part:
    """One number for each of several columns; a target comes last."""
    for lower, upper in zip(asked.lower, asked.upper, strict=True):
        _check_bounds(asked, lower, upper)
    sides = zip(asked.columns, asked.lower, asked.upper, strict=True)
    columns: list[dict[str, Any]] = [{"name": name, "lower": low, "upper": high} for name, low, high in sides]
    if about.get("model") == "logistic":  # 0 or 1 is asked for as no or yes
        columns[-1]["yes"] = True
    given = numbers_field(asked.name, _about(asked, coordinates=columns))
    return Part.of(asked, task, given, task.invite, **about)


def _vector(declared: Declaration, place: int, asked: Any) -> Part:
    most = len(asked.columns)
    asked.left_out(_FOR_TABLES, "statistics")
    asked.must(most <= MOST_COLUMNS, "columns", f"must be at most {MOST_COLUMNS} on a page", most)
    ok = asked.radius is None or asked.radius <= most
    asked.must(ok, "radius", f"must be at most {most}: beyond, it holds the whole box", asked.radius)
    return _several(asked, task_of(declared, place), norm=asked.norm, radius=asked.radius)


def _expect(people: Any, name: str, why: str, least: int = 0) -> int:
    """How many people of a group are expected, which decides what is asked."""
    expected = getattr(people, name)
    rule = f"must say how many {name} people are expected{', from 1 on' * least}: {why}"
    people.must(expected is not None and expected >= least, name, rule, expected or "none")
    return int(expected)


def _points(declared: Declaration, place: int, asked: Any) -> Part:
    """Around K centres: trusted people give their point, local people one cell of a map, which follows from how many
    people are expected."""
    many = len(asked.columns)
    asked.must(many <= MOST_COORDINATES, "columns", f"must be at most {MOST_COORDINATES} on a page", many)
    trusted, local = (_expect(declared.people, name, "the map follows from it") for name in ("trusted", "local"))
    task = kmeans_task(declared, place).mapped(trusted, round(local * declared.chances[asked.name]))  # as devices draw
    return _several(asked, task, clusters=asked.clusters)


def _regression(declared: Declaration, place: int, asked: Any) -> Part:
    asked.left_out(_FOR_TABLES, "missing")
    rule = "must not be tcm-only in the service, which asks local people too"
    asked.must(asked.form != "tcm-only", "form", rule, asked.form)
    _expect(declared.people, "local", "what they are asked follows from it", 1)
    return _several(asked, task_of(declared, place), model=asked.model)


def _records(declared: Declaration, place: int, asked: Any) -> Part:
    own = {"record": list(asked.columns), "max_length": asked.max_length}
    given = formats.record_field(asked.name, _about(asked, **own, text_rule=TEXT_RULE))
    return Part.of(asked, task_of(declared, place), given, None)


def _table(declared: Declaration, place: int, asked: Any) -> Part:
    """A synthetic table: trusted people answer every column, local people the one marginal that their device draws."""
    task = replace(table_task(declared, place), method="mixed")
    schema, marginals = task.workload.schema, task.invite.mechanism.marginals
    many = max(len(schema.features), len(marginals))
    asked.must(many <= MOST_QUESTIONS, "marginals", f"and features must be at most {MOST_QUESTIONS} on a page", many)
    largest = max(*schema.sizes, *(schema.cells(features) for features in marginals))
    rule = f"must have at most {MOST_OPTIONS} cells each on a page"
    asked.must(largest <= MOST_OPTIONS, "marginals", rule, largest)
    columns = [_stated_choice(f.name, f.values, task.invite.promise) for f in schema.features]
    return _Synthetic(asked, task, tuple(field for one in columns for field in one.fields), task.invite)


def _stated_choice(name: str, options: Sequence[str], promise: Any, **about: Any) -> Part:
    study = SharesTask(Feature.categorical(name, options), promise)
    return _option(Choice(name=name, options=tuple(options)), study, **about)


class _Synthetic(Part):
    """All marginals of the trusted answers with noise, and the reports on each."""

    drawn = True

    @cached_property
    def reported(self) -> tuple[Part, ...]:
        """The marginals: a cell is an option, and each is drawn as often as the others."""
        result = []
        for features in self.invite.mechanism.marginals:
            own = [self.task.workload.schema.features[f] for f in features]
            cells = product(*(f.values for f in own))  # the last column moves first, as in a cell's number
            labels = ["; ".join(f"{f.name}: {value}" for f, value in zip(own, cell, strict=True)) for cell in cells]
            names = [f.name for f in own]
            result.append(_stated_choice(", ".join(names), labels, self.invite.promise, columns=names))
        return tuple(result)

    def charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        """All of the trusted promise: noise that is rounded up to whole steps spends no more."""
        own, reports = self.task.charges(self.name, None)
        return [replace(own, budget=self.task.guarantee), reports]

    def answer(
        self, local: Sequence[Heard], answers: TrustedAnswers | None, people: int, *, rng: Randomness
    ) -> Release:
        empty = [one.name for one, told in zip(self.reported, local, strict=True) if not told.people]
        if answers is None and empty:
            raise Refused("batch-too-small", f"Nobody drew the marginal {empty[0]}, and nobody trusted.")
        sent = zip(local, self.invite.mechanism.oracles, strict=True)
        reports = MarginalReports(tuple(ShareReports(told.people, told.counts, oracle) for told, oracle in sent))
        task = replace(self.task, people=(0 if answers is None else people, reports.people))
        names = task.workload.schema.names
        raw = Raw(people, answers and answer_codes(answers, task.workload.schema), reports)
        result = drive(task.ask(Crowd.of(*names, rng=rng)), _Unfitted(raw, rng))
        model = {"task": plain_of(task), "answers": list(result.answered)}  # of which a fit is made
        facts = {"method": task.method, "people": result.people, "features": list(names), "model": model}
        told = statistic("synthetic-data", None, None, **facts)
        return Release({self.name: {"synthetic": told}}, None, result.receipt)


class _Unfitted(CodePeople):
    """People who answer the rounds of a table whose records nobody makes here."""

    def _own(self, asked: Any, place: int) -> Randomness:
        return self.rng

    def made(self, asked: Made) -> NDArray[np.uint16]:
        return np.zeros((0, 0), np.uint16)


_KINDS: dict[str, Callable[[Declaration, int, Any], Part]] = {
    "number": _number,
    "choice": _choice,
    "count": _choice,
    "vector": _vector,
    "points": _points,
    "regression": _regression,
    "records": _records,
    "table": _table,
}


# --- all questions of a study -----------------------------------------------------------------------------------------


def drawable(declared: Declaration) -> Declaration:
    """The same study as a page can ask it: of the best reports the best that its browser can draw."""
    questions = list(declared.questions)
    for place, asked in enumerate(questions):
        stated = vars(asked)
        if asked.kind == "vector" and stated["local"] == "best":
            questions[place] = replace(asked, local="sampling")  # type: ignore[call-arg]
        if asked.kind == "regression" and (stated["model"], stated["form"]) == ("linear", "best"):
            plain = regression_task(declared, place).question(None, 1)
            if isinstance(plain.mechanism, UnitVector):  # a direction among all products
                questions[place] = replace(asked, form="steered")  # type: ignore[call-arg]
    return replace(declared, questions=tuple(questions))


def parts_of(declared: Declaration) -> tuple[Part, ...]:
    """The questions with their tasks, held to what a page can ask; one sentence says what is wrong."""
    many = len(declared.questions)
    must(many <= MOST_QUESTIONS, "questions", f"must be at most {MOST_QUESTIONS} on a page", many)
    return tuple(_part(declared, place, question) for place, question in enumerate(declared.questions))


def _part(declared: Declaration, place: int, question: Any) -> Part:
    if question.groups is not None:  # nobody knows beforehand who will be in which
        many = len(question.categories)
        rule = f"must list 2 to {MOST_OPTIONS}: people choose from them"
        question.must(2 <= many <= MOST_OPTIONS, "categories", rule, many)
        rule = "must be at least 2 on a page: a category that nobody chooses is merged or withheld"
        question.must(question.least >= 2 or question.by_private, "least", rule, question.least)
        rule = "must be all, or left out, on a page: a category may turn out too small to compare with"
        question.must(question.compare in (None, "all"), "compare", rule, question.compare)
    if declared.promise.personal:
        return _chosen(declared, place, question)
    result: Part = question.entry(_KINDS)(declared, place, question)
    if question.groups is None:
        return result
    if question.by_private:
        return _pairs(result, task_of(declared, place))
    # No one size speaks for all groups.
    return replace(result, task=result.task.decided(0, 0), grouping=question.groups)


def _chosen(declared: Declaration, place: int, question: Any) -> Part:
    """A question at an epsilon that everybody chooses."""
    share, allowed, name = declared.promise.share, declared.promise.allowed_epsilons, "promise.allowed_epsilons"
    must(1 <= len(allowed) <= 50, name, "must list the ones that people choose from, 50 at most", len(allowed))
    for e in allowed:
        must(LOCAL_LEAST <= e <= LOCAL_MOST, name, f"must lie between {LOCAL_LEAST:g} and {LOCAL_MOST:g}", e)
    must(share == 1, "promise.share", "must be 1: people are promised the epsilon they chose", share)
    of_one = at_epsilon(declared, place, min(allowed)) if question.by_levels else declared
    result: Part = question.entry(_KINDS)(of_one, place, question)
    return replace(result, task=task_of(declared, place), choices=allowed).at(min(allowed))


def _pairs(plain: Part, task: Any) -> Part:
    """The question told by a private group: one more answer of trusted people, and a local person's one report is about
    both (`hybridp.public.groups`): votes for a category and an answer at once."""
    question, cells, groups = plain.question, task.joint.cells.values, task.joint.by
    rule = f"must make at most {MOST_OPTIONS} pairs with the answers on a page"
    question.must(len(cells) <= MOST_OPTIONS, "categories", rule, len(cells))
    own = Choice(name=groups.name, text=f"Your group: {groups.name}", options=groups.values)
    group = option_field(own.name, _about(own, options=list(groups.values), several=None))
    about: dict[str, Any] = {"columns": [groups.name, plain.name]}
    if isinstance(ends := task.joint.answers, Bounds):  # a number counts as one of its bounds, by chance
        about |= {"bounds": {"lower": ends.lower, "upper": ends.upper}, "steps": task.joint.steps}
    about = _about(question, options=list(cells), several=None) | about
    return Part(question, task, (group, *plain.fields), task.invite, about)
