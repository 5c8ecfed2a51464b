"""What every kind of plan has: the declared study and its questions, held to what a collection over the web can do."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, ClassVar, Generic, Self, TypeVar, cast

from hybridp.errors import must
from hybridp.ledger import Charge
from hybridp.ledger.rule import DELTA, EPSILON, units
from hybridp.public.budgets import ApproxDP, PureDP, promised
from hybridp.public.lattice import Bounds
from hybridp.public.study import (
    SCHEMA,
    Collection,
    Declaration,
    Mixer,
    Number,
    People,
    Points,
    Question,
    Regression,
    Vector,
)
from hybridp.public.study.fields import plain_fields

__all__ = ["Groups", "Plan", "check_bounds", "check_line", "check_number", "check_points", "check_vector", "in_turn"]
__all__ += ["moment", "over"]

DAY = 86_400
KEPT_DAYS = 90
"""Days after the closing at which trusted answers go, unless the plan says otherwise."""
OPEN_DAYS = 365
"""A study without a closing time is taken to be open for so long when its answers' last day is chosen."""
MOST_DAYS = 3660
MOST_EPSILON = 1000.0
LEAST_DELTA, MOST_DELTA = 1e-15, 0.1
_FAR, _NEAR = 1e30, 1e-12
MOST_COLUMNS, MOST_COORDINATES = 500, 20
"""Of a vector, and of a point, on a page."""
_LAST = 253_370_764_800  # the year 9999: dates can be written, and a day be added to them

_SUCH_AS = {
    "asked_by": "the town council",
    "collection.purpose": "to plan the bus lines",
    "collection.contact": "survey@town.example",
}

Groups = dict[str, PureDP | ApproxDP]
Asked = TypeVar("Asked", bound=Question)


def moment(stated: datetime | str | None) -> int | None:
    """A declared moment, or its text, in Unix seconds, as people's devices are told it; None for what is none."""
    try:
        found = datetime.fromisoformat(stated) if isinstance(stated, str) else stated
        return int(found.timestamp()) if isinstance(found, datetime) else None
    except (ValueError, OverflowError):
        return None


def over(budget: PureDP | ApproxDP, releases: int) -> PureDP | ApproxDP:
    """So many releases of this budget, as the ledger adds them up: each is a whole number of units, rounded up.

    >>> over(PureDP(1 / 3), 3).epsilon
    1.000000000002
    """
    return in_turn(budget, times=releases)


def in_turn(*budgets: PureDP | ApproxDP, times: int = 1) -> PureDP | ApproxDP:
    """Releases of these budgets one after the other, so many times, as the ledger adds them up.

    >>> in_turn(PureDP(1 / 3), PureDP(2 / 3)).epsilon
    1.000000000001
    """
    epsilon = Decimal(times * sum(units(budget.epsilon, EPSILON) for budget in budgets)) / EPSILON
    delta = Decimal(times * sum(units(budget.delta, DELTA) for budget in budgets)) / DELTA
    return promised(float(epsilon), float(delta))


# --- the rules of a page ----------------------------------------------------------------------------------------------


def check_bounds(asked: Question, lower: float, upper: float) -> None:
    """Bounds that can be shown on a page and computed with."""
    for name, value in (("lower", lower), ("upper", upper)):
        asked.must(abs(value) <= _FAR, name, f"must lie between {-_FAR:g} and {_FAR:g}", value)
    least = max(_NEAR * max(abs(lower), abs(upper)), 1 / _FAR)
    asked.must(upper - lower >= least, "upper", f"must be at least {least:g} above lower ({lower:g})", upper)


def check_number(number: Number) -> None:
    """What an analyst states of the values must fit the range and the page."""
    rule = "must be deleted, and the bounds chosen: everyone reads them, and they cannot be changed"
    number.must(not number.guessed, "guessed", rule, number.guessed)
    check_bounds(number, number.lower, number.upper)
    half = Bounds(number.lower, number.upper).half
    for name, least in (("sd", _NEAR * half), ("local_sd", _NEAR * half), ("step", 2 * _NEAR * half)):
        value = getattr(number, name)
        number.must(value is None or value >= least, name, f"must be at least {least:g} for these bounds", value)
    rule = "must be left out: a trial on raw values knows it, people on a page do not"
    number.must(number.estimator != "full-lm", "estimator", rule, number.estimator)


def check_vector(vector: Vector) -> None:
    """What a page can ask for several numbers."""
    most = len(vector.columns)
    vector.must(most <= MOST_COLUMNS, "columns", f"must be at most {MOST_COLUMNS} on a page", most)
    for lower, upper in zip(vector.lower, vector.upper, strict=True):
        check_bounds(vector, lower, upper)
    ok = vector.radius is None or vector.radius <= most
    vector.must(ok, "radius", f"must be at most {most}: beyond, it holds the whole box", vector.radius)


def check_points(points: Points, people: People) -> None:
    """What a page can ask for a point, and what must be known for its map."""
    many = len(points.columns)
    points.must(many <= MOST_COORDINATES, "columns", f"must be at most {MOST_COORDINATES} on a page", many)
    for lower, upper in zip(points.lower, points.upper, strict=True):
        check_bounds(points, lower, upper)
    for name, expected in (("trusted", people.trusted), ("local", people.local)):
        rule = f"must say how many {name} people are expected: the map follows from it"
        people.must(expected is not None, name, rule, "none")


def check_line(question: Regression, people: People) -> None:
    """What a page can ask for a regression, and what must be known for it."""
    for lower, upper in zip(question.lower, question.upper, strict=True):
        check_bounds(question, lower, upper)
    rule = "must be left out: a study that people answer on a page cannot do it"
    question.must(not question.missing, "missing", rule, question.missing)
    rule = "must not be tcm-only in the service, which asks local people too"
    question.must(question.form != "tcm-only", "form", rule, question.form)
    rule = "must say how many local people are expected, from 1 on: what they are asked follows from it"
    people.must(bool(people.local), "local", rule, people.local or "none")


# --- a plan -----------------------------------------------------------------------------------------------------------


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

    def check_asker(self) -> None:
        """Who asks, why, and where to reach them: participants read it first. Only of a study that is opened now."""
        told = {"asked_by": self.asked_by, "collection.purpose": self.purpose, "collection.contact": self.contact}
        for name, text in told.items():
            rule = "must be given before people are asked: they read it first"
            must(bool(text), name, f'{rule} (such as {name.rpartition(".")[2]} = "{_SUCH_AS[name]}")', "nothing")

    def check_kind(self) -> None:
        """The rules of this kind alone."""
        raise NotImplementedError

    @property
    def phased(self) -> bool:
        """Whether trusted people come first, and what they say tells what local people are asked."""
        return False

    @property
    def answers_last(self) -> bool:
        """Whether the final release reads trusted people's answers: of two phases only where the first leaves some."""
        return not self.phased

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
    def asked_by(self) -> str:
        return self.declared.asked_by

    @property
    def purpose(self) -> str:
        return self.collection.purpose

    @property
    def contact(self) -> str:
        return self.collection.contact

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

    @property
    def each_release(self) -> PureDP | ApproxDP:
        """What one release spends of the trusted people's promise."""
        return self.declared.trusted_guarantee

    def charges(self, collection: str, people: dict[str, int] | None = None) -> list[Charge]:
        """What the final release of so many people in each group charges."""
        raise NotImplementedError

    def discovery_charges(self, people: dict[str, int] | None = None) -> list[Charge]:
        """What the release of the first phase of so many people charges, where there is one."""
        raise NotImplementedError
