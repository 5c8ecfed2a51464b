"""A study's plan: what is decided and public before anybody sends anything, one model a task.

A plan is stored as it was accepted and never changes. It makes the library's own study object, which knows the
mechanisms and what a release costs.

>>> plan = parse_plan({"kind": "mean", "title": "Commute", "bounds": {"lower": 0, "upper": 120}, "epsilon": 1})
>>> plan.accounts()["trusted"].epsilon
1.0
>>> parse_plan({"kind": "mean", "title": "Commute", "bounds": {"lower": 9, "upper": 1}, "epsilon": 1})
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `upper` must be greater than lower (9). Got 1.0.
"""

from __future__ import annotations

import difflib
import re
import unicodedata
from collections.abc import Mapping
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, TypeAdapter, ValidationError

from hybridp.blend.mean import ESTIMATORS, Rule
from hybridp.errors import InvalidInput, must
from hybridp.ledger import Charge
from hybridp.ledger.rule import DELTA, EPSILON, units
from hybridp.protocols.heavy import HeavyStudy
from hybridp.protocols.mean import MeanStudy
from hybridp.protocols.personal import PersonalStudy
from hybridp.protocols.vector import VectorStudy
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heterogeneous import LOCAL_LEAST, LOCAL_MOST
from hybridp.public.vector import VectorBounds, VectorInvite

__all__ = [
    "AnyPlan",
    "HeavyPlan",
    "MeanPlan",
    "PersonalPlan",
    "Plan",
    "Range",
    "SomePlan",
    "VectorPlan",
    "parse_plan",
    "plan_from_form",
]

DAY = 86_400
KEPT_DAYS = 90
"""Days after the closing at which trusted answers go, unless the plan says otherwise."""
OPEN_DAYS = 365
"""A study without a closing time is taken to be open for so long when its answers' last day is chosen."""
MOST_DAYS = 3660
MOST_EPSILON = 1000.0
LEAST_DELTA, MOST_DELTA = 1e-15, 0.1
_FAR, _NEAR = 1e30, 1e-12


def _prose(text: str) -> str:
    """Text that every database stores and every page shows."""
    if any(c != "\n" and unicodedata.category(c) in ("Cc", "Cs") for c in text):
        raise ValueError("must be text without control characters")
    return text


def _one_line(text: str) -> str:
    if "\n" in text:
        raise ValueError("must be text of one line")
    return _prose(text)


Number = Annotated[float, Field(allow_inf_nan=False)]
OneLine = AfterValidator(_one_line)
Text200 = Annotated[str, StringConstraints(min_length=1, max_length=200, strip_whitespace=True), OneLine]
Moment = Annotated[int, Field(ge=0, le=253_370_764_800)]  # up to the year 9998: dates can be written
Groups = dict[str, PureDP | ApproxDP]


def promise(epsilon: float, delta: float = 0.0) -> PureDP | ApproxDP:
    return ApproxDP(epsilon, delta) if delta else PureDP(epsilon)


def _over(budget: PureDP | ApproxDP, releases: int) -> PureDP | ApproxDP:
    """So many releases of this budget, as the ledger adds them up: each is a whole number of units, rounded up.

    >>> _over(PureDP(1 / 3), 3).epsilon
    1.000000000002
    """
    epsilon = Decimal(units(budget.epsilon, EPSILON) * releases) / EPSILON
    delta = Decimal(units(budget.delta, DELTA) * releases) / DELTA
    return promise(float(epsilon), float(delta))


def _check_levels(epsilons: Mapping[str, float | None], delta: float, releases: int = 1) -> None:
    for name, epsilon in epsilons.items():
        if epsilon is not None:
            must(0.001 <= epsilon <= 30, name, "must be at least 0.001 and at most 30", epsilon)
            rule = (
                f"must be at most {MOST_EPSILON / epsilon:.0f}: together they may spend an epsilon of {MOST_EPSILON:g}"
            )
            must(epsilon * releases <= MOST_EPSILON, "releases", rule, releases)
    rule = f"must be 0, or at least {LEAST_DELTA:g} and, over all releases together, below {MOST_DELTA:g}"
    must(delta == 0 or (delta >= LEAST_DELTA and delta * releases < MOST_DELTA), "delta", rule, delta)


class _Frozen(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Range(_Frozen):
    """Public bounds of a value, chosen without looking at the data."""

    lower: Number
    upper: Number

    @property
    def bounds(self) -> Bounds:
        return Bounds(self.lower, self.upper)

    def check(self) -> None:
        """Bounds that can be shown on a page and computed with."""
        for name, value in (("lower", self.lower), ("upper", self.upper)):
            must(abs(value) <= _FAR, name, f"must lie between {-_FAR:g} and {_FAR:g}", value)
        least = max(_NEAR * max(abs(self.lower), abs(self.upper)), 1 / _FAR)
        must(
            self.bounds.width >= least, "upper", f"must be at least {least:g} above lower ({self.lower:g})", self.upper
        )

    def check_within(self, sd: float | None, step: float | None) -> None:
        """What an analyst states of the values must fit the range: no spread exceeds half of it."""
        half = self.bounds.half
        if sd is not None:
            must(_NEAR * half <= sd <= half, "sd", f"must be positive and at most half of the range, {half:g}", sd)
        if step is not None:
            most = 2 * half
            must(_NEAR * most <= step <= most, "step", f"must be positive and at most the range, {most:g}", step)


class Expected(_Frozen):
    """How many people the analyst expects in each group: for the planned error only."""

    trusted: Annotated[int, Field(ge=0, le=10**10)] = 0
    local: Annotated[int, Field(ge=0, le=10**10)] = 0


class Plan(_Frozen):
    """What every kind of study states. Times are Unix seconds; reports carry theirs rounded down to the precision."""

    title: Text200
    question: Annotated[str, StringConstraints(max_length=2000, strip_whitespace=True), AfterValidator(_prose)] = ""
    unit: Annotated[str, StringConstraints(max_length=40, strip_whitespace=True), OneLine] = ""
    opens: Moment | None = None
    closes: Moment | None = None
    min_batch: Annotated[int, Field(ge=2, le=10**10)] = 20
    time_precision: Annotated[int, Field(ge=1, le=7 * 86_400)] = 3600
    by_invitation: bool = False
    delete_raw_after_release: bool = True
    delete_by: Moment | None = None
    expected: Expected | None = None
    level: Annotated[float, Field(ge=0.5, le=0.999)] = 0.95

    def check(self) -> None:
        """The rules that hold between fields."""
        if self.opens is not None and self.closes is not None:
            must(self.opens < self.closes, "closes", f"must be after opens ({self.opens})", self.closes)
        last = self.closes if self.closes is not None else self.opens
        if last is not None and self.delete_by is not None:
            must(self.delete_by > last, "delete_by", f"must be after the study's last moment ({last})", self.delete_by)

    def dated(self, now: int) -> Self:
        """The same plan with the day on which trusted answers go at the latest, for all to read.

        Where it states none: 90 days after the closing, rounded up to a whole day; a study that is closed by hand is
        taken to be open for a year.
        """
        last = self.closes if self.closes is not None else max(now, self.opens or 0) + OPEN_DAYS * DAY
        if self.delete_by is None:
            return self.model_copy(update={"delete_by": -(-(last + KEPT_DAYS * DAY) // DAY) * DAY})
        must(self.delete_by > now, "delete_by", "must lie in the future", self.delete_by)
        most = last + MOST_DAYS * DAY
        rule = f"must be at most {MOST_DAYS:,} days after the study's last moment: answers do not stay for ever"
        must(self.delete_by <= most, "delete_by", rule, self.delete_by)
        return self

    @property
    def planned_releases(self) -> int:
        """How many times trusted people's answers are used, at most."""
        return 1

    @property
    def uses(self) -> tuple[str, ...]:
        """The groups whose answers count in the result."""
        name = getattr(self, "estimator", "")
        return {"tcm-only": ("trusted",), "lm-only": ("local",)}.get(name, ("trusted", "local"))

    @property
    def phases(self) -> int:
        return 1


class MeanPlan(Plan):
    """The mean of one number. `releases` says how many releases the trusted group's budget pays for."""

    kind: Literal["mean"]
    bounds: Range
    epsilon: Number
    delta: Number = 0.0
    trusted_epsilon: Number | None = None
    releases: Annotated[int, Field(ge=1, le=10**6)] = 1
    estimator: Literal["adaptive", "anchored", "skew-aware", "kvh", "pwh", "naive", "tcm-only", "lm-only"] = "adaptive"
    local: Literal["best", "dithered", "piecewise", "laplace", "gaussian"] = "dithered"
    noise: Literal["laplace", "gaussian", "best"] = "best"
    sd: Number | None = None
    step: Number | None = None

    def check(self) -> None:
        super().check()
        self.bounds.check()
        self.bounds.check_within(self.sd, self.step)
        own = {"epsilon": self.epsilon, "trusted_epsilon": self.trusted_epsilon}
        _check_levels(own, self.delta, self.releases)
        assert self.estimator in ESTIMATORS
        _ = self.study.invite

    @property
    def planned_releases(self) -> int:
        return self.releases

    @cached_property
    def study(self) -> MeanStudy:
        bounds = self.bounds.bounds
        own = None if self.trusted_epsilon is None else promise(self.trusted_epsilon, self.delta)
        return MeanStudy(
            bounds=bounds,
            guarantee=promise(self.epsilon, self.delta),
            rule=Rule(self.estimator, sd=None if self.sd is None else self.sd / bounds.half),
            local=self.local,
            noise=self.noise,
            trusted_guarantee=own,
            level=self.level,
        )

    def accounts(self) -> Groups:
        """Totals of the ledger: as many trusted sums as planned, and each local person's one report."""
        trusted = self.study.trusted_guarantee or self.study.guarantee
        return {"trusted": _over(trusted, self.releases), "local": self.study.invite.promise}

    def charges(self, collection: str) -> list[Charge]:
        return self.study.charges(self.title, collection)


class PersonalPlan(Plan):
    """The mean of one number when everyone chooses an epsilon from a list."""

    kind: Literal["personal-mean"]
    bounds: Range
    allowed_epsilons: Annotated[tuple[Number, ...], Field(min_length=1, max_length=50)]
    estimator: Literal["unified", "adpm", "propdpm", "uni"] = "unified"
    sd: Number | None = None
    step: Number | None = None

    def check(self) -> None:
        super().check()
        self.bounds.check()
        self.bounds.check_within(self.sd, self.step)
        for e in self.allowed_epsilons:
            rule = f"must lie between {LOCAL_LEAST:g} and {LOCAL_MOST:g}"
            must(LOCAL_LEAST <= e <= LOCAL_MOST, "allowed_epsilons", rule, e)
        distinct = len(set(self.allowed_epsilons)) == len(self.allowed_epsilons)
        must(distinct, "allowed_epsilons", "must be different from each other", list(self.allowed_epsilons))
        _ = self.study

    @cached_property
    def study(self) -> PersonalStudy:
        return PersonalStudy(self.bounds.bounds, self.estimator, self.sd, level=self.level)

    @property
    def uses(self) -> tuple[str, ...]:
        return ("trusted", "local") if self.study.uses_reports else ("trusted",)

    def accounts(self) -> Groups:
        """1 stands for everybody's own epsilon, spent once."""
        return {charge.people: PureDP(1.0) for charge in self.charges("")}

    def charges(self, collection: str) -> list[Charge]:
        return self.study.charges(self.title, collection)


class VectorPlan(Plan):
    """The mean of several numbers at once: the guarantee is for a person's whole vector.

    `local` is one that a browser can draw unless another is asked for; "best" may choose a direction: for programs.
    """

    kind: Literal["vector-mean"]
    columns: Annotated[tuple[Text200, ...], Field(min_length=1, max_length=500)]
    bounds: Annotated[tuple[Range, ...], Field(min_length=1, max_length=500)]
    norm: Literal["l1", "l2"] | None = None
    radius: Number | None = None
    epsilon: Number
    delta: Number = 0.0
    trusted_epsilon: Number | None = None
    releases: Annotated[int, Field(ge=1, le=10**6)] = 1
    estimator: Literal["adaptive", "skew-aware", "pwh", "naive", "tcm-only", "lm-only"] = "adaptive"
    local: Literal["best", "per-coordinate", "sampling", "unit-vector"] = "sampling"
    noise: Literal["laplace", "gaussian", "best"] = "best"
    joint: bool = False

    def check(self) -> None:
        super().check()
        for side in self.bounds:
            side.check()
        own = {"epsilon": self.epsilon, "trusted_epsilon": self.trusted_epsilon}
        _check_levels(own, self.delta, self.releases)
        if self.radius is not None:
            most = len(self.columns)
            must(self.radius <= most, "radius", f"must be at most {most}: beyond, it holds the whole box", self.radius)
        must(len(self.columns) == len(self.bounds), "bounds", f"must be {len(self.columns)}, one for each column",
             len(self.bounds))  # fmt: skip
        must(len(set(self.columns)) == len(self.columns), "columns", "must have different names", "a name twice")
        _ = self.invite

    @property
    def planned_releases(self) -> int:
        return self.releases

    @cached_property
    def study(self) -> VectorStudy:
        own = None if self.trusted_epsilon is None else promise(self.trusted_epsilon, self.delta)
        return VectorStudy(
            bounds=VectorBounds(tuple(b.bounds for b in self.bounds), self.norm, self.radius),
            guarantee=promise(self.epsilon, self.delta),
            rules=(Rule(self.estimator),),
            local=self.local,
            noise=self.noise,
            trusted_guarantee=own,
            level=self.level,
            joint=self.joint,
        )

    @cached_property
    def invite(self) -> VectorInvite:
        return self.study.invite

    def accounts(self) -> Groups:
        trusted = self.study.trusted_guarantee or self.study.guarantee
        return {"trusted": _over(trusted, self.releases), "local": self.invite.promise}

    def charges(self, collection: str) -> list[Charge]:
        return self.study.charges(self.title, collection)


class HeavyPlan(Plan):
    """The most frequent records. Phase one: trusted people discover; phase two: local people answer the head list."""

    kind: Literal["heavy-hitters"]
    record: Annotated[tuple[Text200, ...], Field(min_length=1, max_length=2)] = ("query", "url")
    epsilon: Number
    delta: Number
    head: Annotated[int, Field(ge=1, le=10_000)] = 50
    local: Literal["two-stage", "k-rr"] = "two-stage"
    max_records: Annotated[int, Field(ge=1, le=1000)] = 100
    max_length: Annotated[int, Field(ge=1, le=1000)] = 200

    def check(self) -> None:
        super().check()
        _check_levels({"epsilon": self.epsilon}, self.delta)
        must(self.delta > 0, "delta", "must be positive for heavy hitters", self.delta)
        must(len(set(self.record)) == len(self.record), "record", "must have different names", "a name twice")
        _ = self.study

    @property
    def phases(self) -> int:
        return 2

    @cached_property
    def study(self) -> HeavyStudy:
        return HeavyStudy(
            ApproxDP(self.epsilon, self.delta),
            depth=len(self.record),
            head=self.head,
            local=self.local,
            level=self.level,
        )

    def accounts(self) -> Groups:
        return {"trusted": self.study.guarantee, "local": self.study.local_guarantee}

    def charges(self, collection: str) -> list[Charge]:
        """Of the second phase; the first charges the trusted."""
        mechanism = f"{self.local} report on the head list"
        return [Charge("local", self.study.local_guarantee, mechanism, self.title, collection=collection)]

    def discovery_charges(self) -> list[Charge]:
        return [Charge("trusted", self.study.guarantee, "thresholded counts of one record", self.title)]


SomePlan = MeanPlan | PersonalPlan | VectorPlan | HeavyPlan
AnyPlan = Annotated[SomePlan, Field(discriminator="kind")]
_adapter: TypeAdapter[SomePlan] = TypeAdapter(AnyPlan)


def parse_plan(stated: Mapping[str, Any] | str) -> SomePlan:
    """A checked plan from plain data (or its JSON text); one sentence says what is wrong with a bad one."""
    try:
        found = _adapter.validate_json(stated) if isinstance(stated, str) else _adapter.validate_python(stated)
    except ValidationError as error:
        raise InvalidInput(sentence(error.errors(include_url=False)[0])) from None
    found.check()
    return found


_KINDS = tuple(get_args(model.model_fields["kind"].annotation)[0] for model in get_args(SomePlan))
_FIELDS = {name for model in get_args(SomePlan) for name in model.model_fields}


def sentence(problem: Mapping[str, Any]) -> str:
    """One of pydantic's findings as one of our sentences, without what was sent.

    >>> sentence({"type": "extra_forbidden", "loc": ("mean", "epsilom"), "msg": "Extra inputs are not permitted"})
    '`epsilom` must be left out: a plan of this kind has no such field. Did you mean `epsilon`?'
    """
    where = [str(part) for part in problem.get("loc", ()) if part not in (*_KINDS, "body")]
    name = ".".join(where)[:80] or "plan"
    kind = str(problem.get("type", ""))
    if kind.startswith("union_tag"):
        return f"`kind` must be one of {', '.join(_KINDS)}."
    if kind == "extra_forbidden":
        near = difflib.get_close_matches(where[-1] if where else "", sorted(_FIELDS), n=1)
        hint = f" Did you mean `{near[0]}`?" if near else ""
        return f"`{name}` must be left out: a plan of this kind has no such field.{hint}"
    if kind in _RULES:
        return f"`{name}` {_RULES[kind]}."
    rule = re.sub(r"^\w+ should ", "must ", str(problem["msg"]).removeprefix("Value error, "))
    rule = re.sub(r" after validation, not .*$|, unable to .*$|, got a number with .*$", "", rule)
    return f"`{name}` {rule if rule.startswith('must') else f'must follow its rule ({rule})'}."


_RULES = {
    "missing": "must be given",
    "json_invalid": "must be JSON",
    "int_parsing_size": "must be a whole number of a moderate size",
    "model_type": "must be an object",
    "model_attributes_type": "must be an object",
    "dict_type": "must be an object",
}


def plan_from_form(form: Mapping[str, str]) -> dict[str, Any]:
    """Plain data from a form's fields: empty ones dropped, dots nest, lists by commas, check boxes as booleans.

    The bounds of several columns are two lists: one number for all of them, or one for each.

    >>> plan_from_form({"kind": "mean", "bounds.lower": "0", "sd": "", "by_invitation": "on"})
    {'kind': 'mean', 'bounds': {'lower': '0'}, 'by_invitation': True}
    >>> plan_from_form({"columns": "a, b", "lower": "0", "upper": "1, 2"})["bounds"]
    [{'lower': '0', 'upper': '1'}, {'lower': '0', 'upper': '2'}]
    """
    found: dict[str, Any] = {}
    if form.get("columns", "").strip():
        found["bounds"] = _sides(len(_listed(form["columns"])), form.get("lower", ""), form.get("upper", ""))
        form = {name: text for name, text in form.items() if name not in ("lower", "upper")}
    for name, text in form.items():
        value: Any = text.strip()
        if not value:
            continue
        if name in ("allowed_epsilons", "record", "columns"):
            value = _listed(value)
        elif name in ("by_invitation", "delete_raw_after_release"):
            value = value.lower() in ("on", "true", "1", "yes")
        place = found
        *nests, last = name.split(".")
        for nest in nests:
            place = place.setdefault(nest, {})
            if not isinstance(place, dict):
                raise InvalidInput("`form` must name each field once. Got a field and a part of it.")
        place[last] = value
    return found


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _sides(columns: int, lower: str, upper: str) -> list[dict[str, str]]:
    sides = {"lower": _listed(lower), "upper": _listed(upper)}
    for name, given in sides.items():
        must(
            len(given) in (1, columns),
            name,
            f"must be one number, or one for each of the {columns} columns",
            len(given),
        )
    every = {name: given * columns if len(given) == 1 else given for name, given in sides.items()}
    return [{"lower": a, "upper": b} for a, b in zip(every["lower"], every["upper"], strict=True)]
