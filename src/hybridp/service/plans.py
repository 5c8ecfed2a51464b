"""A study's plan: the study as it is declared (`hybridp.public.study`), held to what a collection over the web can do.

A plan has no fields of its own: what may be stated, how it is checked and what it is for stand in the declaration, and
forms, interface description and study files are made from there. A plan is stored as it was accepted and never changes.
It makes the library's own study object, which knows the mechanisms and what a release costs.

>>> way = {"name": "way", "kind": "number", "lower": 0, "upper": 120}
>>> plan = parse_plan({"title": "Commute", "promise": 1, "questions": [way]})
>>> plan.kind, plan.accounts()["trusted"].epsilon
('mean', 1.0)
>>> parse_plan({"title": "Commute", "promise": 1, "questions": [way | {"upper": -1}]})
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `way.upper` must be greater than lower (0). Got -1.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from hybridp.errors import InvalidInput, must
from hybridp.ledger import Charge
from hybridp.ledger.rule import DELTA, EPSILON, units
from hybridp.protocols import asked
from hybridp.protocols.heavy import HeavyStudy
from hybridp.protocols.mean import MeanStudy
from hybridp.protocols.personal import PersonalStudy
from hybridp.protocols.vector import VectorStudy
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heterogeneous import LOCAL_LEAST, LOCAL_MOST
from hybridp.public.mixing import from_text
from hybridp.public.study import SCHEMA, Collection, Declaration, Grouped, Mixer, Number, Question, Records, Vector
from hybridp.public.study.fields import plain_fields
from hybridp.public.vector import VectorInvite

__all__ = [
    "KINDS",
    "HeavyPlan",
    "MeanPlan",
    "PersonalPlan",
    "Plan",
    "SomePlan",
    "VectorPlan",
    "moment",
    "parse_plan",
]

DAY = 86_400
KEPT_DAYS = 90
"""Days after the closing at which trusted answers go, unless the plan says otherwise."""
OPEN_DAYS = 365
"""A study without a closing time is taken to be open for so long when its answers' last day is chosen."""
MOST_DAYS = 3660
MOST_EPSILON = 1000.0
LEAST_DELTA, MOST_DELTA = 1e-15, 0.1
MOST_COLUMNS = 500
MOST_MIXED = 200_000
"""People in a batch: one of nearly twice as many, the last of a study, comes in one request (`mixing.MOST_BATCH`)."""
_FAR, _NEAR = 1e30, 1e-12
_LAST = 253_370_764_800  # the year 9999: dates can be written, and a day be added to them

Groups = dict[str, PureDP | ApproxDP]
Asked = TypeVar("Asked", bound=Question)


def promise(epsilon: float, delta: float = 0.0) -> PureDP | ApproxDP:
    return ApproxDP(epsilon, delta) if delta else PureDP(epsilon)


def moment(stated: datetime | str | None) -> int | None:
    """A declared moment, or its text, in Unix seconds, as people's devices are told it; None for what is none."""
    try:
        found = datetime.fromisoformat(stated) if isinstance(stated, str) else stated
        return int(found.timestamp()) if isinstance(found, datetime) else None
    except (ValueError, OverflowError):
        return None


def _over(budget: PureDP | ApproxDP, releases: int) -> PureDP | ApproxDP:
    """So many releases of this budget, as the ledger adds them up: each is a whole number of units, rounded up.

    >>> _over(PureDP(1 / 3), 3).epsilon
    1.000000000002
    """
    epsilon = Decimal(units(budget.epsilon, EPSILON) * releases) / EPSILON
    delta = Decimal(units(budget.delta, DELTA) * releases) / DELTA
    return promise(float(epsilon), float(delta))


@dataclass(frozen=True)
class Plan(Generic[Asked]):
    """What every kind of plan tells the service. Times are Unix seconds."""

    declared: Declaration
    kind: ClassVar[str]
    unsupported: ClassVar[dict[str, Any]] = {}
    """Fields of the question that only a table can answer, with the value at which they ask for nothing."""

    @property
    def asked(self) -> Asked:
        return cast(Asked, self.declared.questions[0])

    @property
    def collection(self) -> Collection:
        assert self.declared.collection is not None
        return self.declared.collection

    def check(self) -> None:
        """The rules of a collection over the web, beside those of the declaration."""
        stated, collection = self.declared, self.collection
        must(0.5 <= stated.level <= 0.999, "level", "must be at least 0.5 and at most 0.999", stated.level)
        must(stated.trust.everyone is None, "trust.everyone", "must be left out: people choose", stated.trust.everyone)
        for name, at in (("opens", self.opens), ("closes", self.closes), ("delete_by", self.delete_by)):
            must(at is None or 0 <= at <= _LAST, f"collection.{name}", "must lie in the years 1970 to 9998", "another")
        last = self.closes if self.closes is not None else self.opens
        if last is not None and self.delete_by is not None:
            rule = "must be after the study's last moment"
            must(self.delete_by > last, "collection.delete_by", rule, str(collection.delete_by))
        for name, nothing in self.unsupported.items():
            given = getattr(self.asked, name)
            rule = "must be left out: a study that people answer on a page cannot do it"
            self.asked.must(given == nothing, name, rule, given)
        self.check_kind()
        _ = self.accounts()

    def check_kind(self) -> None:
        """The rules of this kind alone."""
        raise NotImplementedError

    def once(self) -> None:
        rule = f"must be 1 for a question of this kind ({self.kind})"
        must(self.planned_releases == 1, "collection.releases", rule, self.planned_releases)

    def check_levels(self) -> None:
        stated = self.declared.promise
        for name, epsilon in (("epsilon", stated.epsilon), ("trusted_epsilon", stated.trusted_epsilon)):
            if epsilon is not None:
                must(0.001 <= epsilon <= 30, f"promise.{name}", "must be at least 0.001 and at most 30", epsilon)
                most = MOST_EPSILON / epsilon
                rule = f"must be at most {most:.0f}: together they may spend an epsilon of {MOST_EPSILON:g}"
                must(self.planned_releases <= most, "collection.releases", rule, self.planned_releases)
        ok = stated.delta == 0 or (stated.delta >= LEAST_DELTA and stated.delta * self.planned_releases < MOST_DELTA)
        rule = f"must be 0, or at least {LEAST_DELTA:g} and, over all releases together, below {MOST_DELTA:g}"
        must(ok, "promise.delta", rule, stated.delta)

    def check_bounds(self, lower: float, upper: float) -> None:
        """Bounds that can be shown on a page and computed with."""
        for name, value in (("lower", lower), ("upper", upper)):
            self.asked.must(abs(value) <= _FAR, name, f"must lie between {-_FAR:g} and {_FAR:g}", value)
        least = max(_NEAR * max(abs(lower), abs(upper)), 1 / _FAR)
        self.asked.must(upper - lower >= least, "upper", f"must be at least {least:g} above lower ({lower:g})", upper)

    def dated(self, now: int) -> Self:
        """The same plan with the day on which trusted answers go at the latest, for all to read.

        Where it states none: 90 days after the closing, rounded up to a whole day; a study that is closed by hand is
        taken to be open for a year.
        """
        last = self.closes if self.closes is not None else max(now, self.opens or 0) + OPEN_DAYS * DAY
        if self.delete_by is None:
            at = datetime.fromtimestamp(-(-(last + KEPT_DAYS * DAY) // DAY) * DAY, UTC)
            return replace(self, declared=replace(self.declared, collection=replace(self.collection, delete_by=at)))
        stated = str(self.collection.delete_by)
        must(self.delete_by > now, "collection.delete_by", "must lie in the future", stated)
        most = last + MOST_DAYS * DAY
        rule = f"must be at most {MOST_DAYS:,} days after the study's last moment: answers do not stay for ever"
        must(self.delete_by <= most, "collection.delete_by", rule, stated)
        return self

    def to_dict(self) -> dict[str, Any]:
        """The declaration with everything that it states, defaults too: what is stored and shown."""
        stated = plain_fields(self.declared, everything=True)
        questions = [{"kind": q.kind, **plain_fields(q, everything=True)} for q in self.declared.questions]
        return {"schema": SCHEMA, **stated, "questions": questions}

    # --- what pages, devices and releases read ------------------------------------------------------------------------

    @property
    def title(self) -> str:
        return self.declared.title

    @property
    def question(self) -> str:
        return self.asked.text

    @property
    def unit(self) -> str:
        return self.asked.unit

    @property
    def level(self) -> float:
        return self.declared.level

    @property
    def opens(self) -> int | None:
        return moment(self.collection.opens)

    @property
    def closes(self) -> int | None:
        return moment(self.collection.closes)

    @property
    def delete_by(self) -> int | None:
        return moment(self.collection.delete_by)

    @property
    def min_batch(self) -> int:
        return self.collection.min_batch

    @property
    def time_precision(self) -> int:
        return self.collection.time_precision

    @property
    def by_invitation(self) -> bool:
        return self.collection.by_invitation

    @property
    def delete_raw_after_release(self) -> bool:
        return self.collection.delete_raw_after_release

    @property
    def expected(self) -> dict[str, int] | None:
        """How many people are expected in each group: for the planned error only."""
        people = self.declared.people
        if people.trusted is None and people.local is None:
            return None
        mixed = {} if self.mixer is None else {"shuffled": people.shuffled or 0}
        return {"trusted": people.trusted or 0, "local": people.local or 0, **mixed}

    @property
    def mixer(self) -> Mixer | None:
        return self.declared.mixer

    @property
    def planned_releases(self) -> int:
        """How many times trusted people's answers are used, at most."""
        return self.collection.releases

    @property
    def uses(self) -> tuple[str, ...]:
        """The groups whose answers count in the result."""
        name = getattr(self.asked, "estimator", None) or ""
        reports = ("local",) if self.mixer is None else ("local", "shuffled")
        return {"tcm-only": ("trusted",), "lm-only": reports}.get(name, ("trusted", *reports))

    def accounts(self) -> Groups:
        """The totals of the study's ledger."""
        raise NotImplementedError

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        """What the final release of so many people in each group charges."""
        raise NotImplementedError


class _NumberPlan(Plan[Number]):
    """One number a person."""

    unsupported: ClassVar[dict[str, Any]] = {"publish": "full", "clipped_share": 0.0, "statistics": ("mean",)}

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.asked.lower, self.asked.upper)

    def check_kind(self) -> None:
        """What an analyst states of the values must fit the range and the page."""
        number = self.asked
        rule = "must be deleted, and the bounds chosen: everyone reads them, and they cannot be changed"
        number.must(not number.guessed, "guessed", rule, number.guessed)
        self.check_bounds(number.lower, number.upper)
        half = self.bounds.half
        for name, least in (("sd", _NEAR * half), ("local_sd", _NEAR * half), ("step", 2 * _NEAR * half)):
            value = getattr(number, name)
            number.must(value is None or value >= least, name, f"must be at least {least:g} for these bounds", value)


class MeanPlan(_NumberPlan):
    """The mean of one number."""

    kind: ClassVar[str] = "mean"

    def check_kind(self) -> None:
        super().check_kind()
        self.check_levels()
        rule = "must be left out: a trial on raw values knows it, people on a page do not"
        self.asked.must(self.asked.estimator != "full-lm", "estimator", rule, self.asked.estimator)
        _ = self.study.invite
        if self.mixer is not None:
            self.check_mixer(self.mixer)

    def check_mixer(self, mixer: Mixer) -> None:
        """People's browsers must find the mixer, and the collector know its signature."""
        mixer.must(mixer.url is not None, "url", "must be given: people's devices send their reports there", "nothing")
        from_text(mixer.key or "", 32, "mixer.key")
        rule = f"must be at most {MOST_MIXED:,} in a study of the service"
        mixer.must(mixer.batch <= MOST_MIXED, "batch", rule, mixer.batch)

    @cached_property
    def study(self) -> MeanStudy:
        return asked.mean_study(self.declared, 0)

    def accounts(self) -> Groups:
        """As many trusted sums as planned, and each local person's one report."""
        trusted = self.study.trusted_guarantee or self.study.guarantee
        invite = self.study.mixed_invite
        mixed: Groups = {} if invite is None else {"shuffled": invite.promise}
        return {"trusted": _over(trusted, self.planned_releases), "local": self.study.invite.promise, **mixed}

    def decided(self, people: dict[str, int]) -> MeanStudy:
        """The study of so many people in each group, which decides the estimator where the plan leaves it open."""
        return self.study.decided(people["trusted"], people["local"], people.get("shuffled", 0))

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        task = self.study if people is None else self.decided(people)
        return task.charges(self.title, collection)


class PersonalPlan(_NumberPlan):
    """The mean of one number when everyone chooses an epsilon from a list."""

    kind: ClassVar[str] = "personal-mean"

    def check_kind(self) -> None:
        super().check_kind()
        self.once()
        stated = self.declared.promise
        rule = "must list the ones that people choose from, 50 at most"
        must(1 <= len(self.allowed_epsilons) <= 50, "promise.allowed_epsilons", rule, len(self.allowed_epsilons))
        for e in self.allowed_epsilons:
            rule = f"must lie between {LOCAL_LEAST:g} and {LOCAL_MOST:g}"
            must(LOCAL_LEAST <= e <= LOCAL_MOST, "promise.allowed_epsilons", rule, e)
        must(stated.share == 1, "promise.share", "must be 1: people are promised the epsilon they chose", stated.share)
        _ = self.study

    @property
    def allowed_epsilons(self) -> tuple[float, ...]:
        return self.declared.promise.allowed_epsilons

    @cached_property
    def study(self) -> PersonalStudy:
        return asked.personal_study(self.declared, 0)

    @property
    def uses(self) -> tuple[str, ...]:
        return ("trusted", "local") if self.study.uses_reports else ("trusted",)

    def accounts(self) -> Groups:
        """1 stands for everybody's own epsilon, spent once."""
        return {charge.people: PureDP(1.0) for charge in self.charges("")}

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        return self.study.charges(self.title, collection)


class VectorPlan(Plan[Vector]):
    """The mean of several numbers at once: the guarantee is for a person's whole vector."""

    kind: ClassVar[str] = "vector-mean"
    unsupported: ClassVar[dict[str, Any]] = {"statistics": ("mean",)}

    def check_kind(self) -> None:
        vector = self.asked
        most = len(vector.columns)
        vector.must(most <= MOST_COLUMNS, "columns", f"must be at most {MOST_COLUMNS} on a page", most)
        for lower, upper in zip(vector.lower, vector.upper, strict=True):
            self.check_bounds(lower, upper)
        self.check_levels()
        ok = vector.radius is None or vector.radius <= most
        vector.must(ok, "radius", f"must be at most {most}: beyond, it holds the whole box", vector.radius)
        _ = self.invite

    @property
    def columns(self) -> tuple[str, ...]:
        return self.asked.columns

    @cached_property
    def study(self) -> VectorStudy:
        return asked.vector_study(self.declared, 0)

    @cached_property
    def invite(self) -> VectorInvite:
        return self.study.invite

    def accounts(self) -> Groups:
        trusted = self.study.trusted_guarantee or self.study.guarantee
        return {"trusted": _over(trusted, self.planned_releases), "local": self.invite.promise}

    def decided(self, people: dict[str, int]) -> VectorStudy:
        """The study of so many people in each group, which decides the estimator where the plan leaves it open."""
        return self.study.decided(people["trusted"], people["local"], people.get("shuffled", 0))

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        return (self.study if people is None else self.decided(people)).charges(self.title, collection)


class HeavyPlan(Plan[Records]):
    """The most frequent records. Phase one: trusted people discover; phase two: local people answer the head list."""

    kind: ClassVar[str] = "heavy-hitters"

    def check_kind(self) -> None:
        self.once()
        self.check_levels()
        words, local = ("k-rr", "two-stage"), self.asked.local
        self.asked.must(local in words, "local", f"must be {' or '.join(words)}, which a page can send", local)
        _ = self.study

    @property
    def record(self) -> tuple[str, ...]:
        return self.asked.columns

    @cached_property
    def study(self) -> HeavyStudy:
        return asked.heavy_study(self.declared, 0)

    def accounts(self) -> Groups:
        return {"trusted": self.study.guarantee, "local": self.study.local_guarantee}

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        """Of the second phase; the first charges the trusted."""
        mechanism = f"{self.asked.local} report on the head list"
        return [Charge("local", self.study.local_guarantee, mechanism, self.title, collection=collection)]

    def discovery_charges(self) -> list[Charge]:
        return [Charge("trusted", self.study.guarantee, "thresholded counts of one record", self.title)]


SomePlan = MeanPlan | PersonalPlan | VectorPlan | HeavyPlan
KINDS: dict[str, type[Question]] = {"mean": Number, "personal-mean": Number, "vector-mean": Vector,
                                    "heavy-hitters": Records}  # fmt: skip
"""What a page collects, and the question that asks for it."""


def parse_plan(stated: Mapping[str, Any] | str | Declaration) -> SomePlan:
    """A checked plan from a declaration, its plain data, or its JSON text; one sentence says what is wrong.

    What only a table needs may be left out: the column that tells the groups apart, and the one that tells people
    apart. A report by the best randomiser is the best that a page can draw.
    """
    declared = stated if isinstance(stated, Declaration) else _declaration(stated)
    must(len(declared.questions) == 1, "questions", "must be one in a study of the service", len(declared.questions))
    question = declared.questions[0]
    if isinstance(question, Grouped):
        question.must(question.by is None, "by", "must be left out: the service answers for everybody", question.by)
    declared = replace(declared, title=declared.title or question.name, collection=declared.collection or Collection())
    plan: SomePlan
    match question:
        case Number() if declared.promise.personal:
            plan = PersonalPlan(declared)
        case Number():
            plan = MeanPlan(declared)
        case Vector():
            if question.local == "best":
                declared = replace(declared, questions=(replace(question, local="sampling"),))
            plan = VectorPlan(declared)
        case Records():
            plan = HeavyPlan(declared)
        case _:
            kinds = ", ".join(dict.fromkeys(asked.kind for asked in KINDS.values()))
            rule = f"must be one of {kinds} for the service; the other kinds are collected over files"
            raise InvalidInput(f"`{question.name}.kind` {rule}. Got {question.kind}.")
    got = f"a mixer and a question of kind {question.kind}"
    must(declared.mixer is None or isinstance(plan, MeanPlan), "mixer", "must go with the mean of a number here", got)
    plan.check()
    return plan


def _declaration(stated: Mapping[str, Any] | str) -> Declaration:
    if isinstance(stated, str):
        try:
            stated = json.loads(stated)
        except ValueError:
            raise InvalidInput("`study` must be JSON. Got something else.") from None
    if not isinstance(stated, Mapping):
        raise InvalidInput("`study` must be an object with the fields of a study. Got something else.")
    given = dict(stated)
    given.setdefault("trust", {"column": "trust"})
    questions, people = given.get("questions") or given.get("question") or [], given.get("people", {})
    records = any(isinstance(q, Mapping) and q.get("kind") == Records.kind for q in questions)
    if records and isinstance(people, Mapping):
        given["people"] = {"column": "person", **people}
    return Declaration.of(given)
