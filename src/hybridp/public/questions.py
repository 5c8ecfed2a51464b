"""The kinds of questions that a study may ask beside a number, each declared as fields with their help and check: about
one option of several, and about several columns.

>>> Regression(name="hours", target="hours", on=["age,schooling"], lower=[0], upper=[100]).columns
('age', 'schooling', 'hours')
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

from hybridp import errors
from hybridp.errors import Fields, InvalidInput, at_least, did_you_mean, field, named, positive
from hybridp.public import queries
from hybridp.public import study as basics
from hybridp.public.kmeans import LEAST_CLUSTERED
from hybridp.public.mechanisms import Guarantee, PureDP
from hybridp.public.messages import VectorBounds
from hybridp.public.queries import Feature as Values
from hybridp.public.randomisers import k_randomised_response, share_oracle, vector_reports
from hybridp.public.regression import MOST_PREDICTORS
from hybridp.public.study import KINDS, ByGroup, Declaration, Grouped, Number, Question

__all__ = ["KINDS", "Choice", "Count", "Feature", "Number", "Points", "Records", "Regression", "Table", "Vector"]
__all__ += ["to_toml"]

MOST_COLUMNS = 10_000


@dataclass(frozen=True, kw_only=True)
class _Shares(Grouped):
    """What is asked of one option a person."""

    on_options: ClassVar[bool] = True

    estimator: str = field(
        "everyone", help="Who is heard, and how the groups are weighed.", choices=basics.CHOICE_ESTIMATORS
    )

    def check(self) -> None:
        super().check()
        basics.settled(self)

    @property
    def size(self) -> int:
        """How many options there are."""
        return 2

    @property
    def mixes(self) -> bool:  # type: ignore[override]
        return self.by is None

    def mixed_size(self) -> int | None:
        return self.size if getattr(self, "several", None) is None else None

    def report_variance(self, promise: Guarantee) -> float:
        return share_oracle(promise, self.size).variance(1 / self.size)


@dataclass(frozen=True, kw_only=True)
class Choice(_Shares):
    """One of several public options a person, or a number in one of several bins: the share of each is asked for."""

    kind: ClassVar[str] = "choice"

    options: tuple[str, ...] = field((), help='The public options: A,B or "Yes, always",No.', check=named, shown=True)
    edges: tuple[float, ...] = field((), help="Or the public edges of a number's bins, ascending: 0,10,20.")
    several: int | None = field(
        None,
        help="Several of several: a person may tick up to so many options, written A;B.",
        check=at_least(1, 60),
    )
    other: str | None = field(
        None, help="One more option, for whatever is not listed, or missing where `missing` does not say.", check=named
    )
    missing: str | None = field(
        None,
        help="Public: the option as which a field counts that is missing or (without `other`) not listed; or exclude: "
        "those people are left out, and counted with noise (trusted people alone). A table needs it, or `other`; "
        "of several options, none: nothing is ticked.",
        check=named,
    )

    def check(self) -> None:
        super().check()
        one = bool(self.options) != bool(self.edges)
        self.must(one, "options", "must be given, or edges in their place", "both" if self.options else "neither")
        rule = "must go with options, not with edges"
        self.must(self.several is None or not self.edges, "several", rule, self.several)
        self._check_missing()
        if self.several is not None:
            rule = "must be left out where several may be ticked"
            self.left_out(rule, "other", "by_private")
            self.must(self.noise != "gaussian", "noise", rule, self.noise)
            known = self.estimator in ("everyone", "hybrid", "tcm-only", "lm-only")
            self.must(known, "estimator", rule, self.estimator)
        _ = self.feature

    @property
    def feature(self) -> Values:
        """The options, or bins, and what stands for a field that is none of them."""
        column = str(self.column)
        if self.several is not None:
            return Values(column, self.options, most=self.several)
        if self.edges:
            return Values.binned(column, self.edges, other=self.other, missing=self.missing)
        return Values.categorical(column, self.options, other=self.other, missing=self.missing)

    def _check_missing(self) -> None:
        if self.missing is None:
            return
        if self.several is not None:
            rule = "must be none where several options may be ticked: nothing is ticked"
            self.must(self.missing == "none", "missing", rule, self.missing)
            return
        options = Values.binned(self.name, self.edges).values if self.edges else self.options
        known = [*options, *([] if self.other is None else [self.other]), "exclude"]
        hint = did_you_mean(self.missing, known)
        rule = f"must be one of {', '.join(known)}" if self.edges else "must be one of the options, or exclude"
        if self.missing not in known:
            raise InvalidInput(f"`{self.prefix}missing` {rule}. Got {self.missing!r}.{hint}")
        if self.missing == "exclude":
            rule = "must be left out where missing is exclude"
            self.must(self.by is None, "by", f"{rule}: state an option instead", self.by)
            self.must(self.estimator in ("everyone", "tcm-only"), "estimator", f"{rule}, or tcm-only", self.estimator)

    def check_table(self, study: Any) -> None:
        rule = "must be none: of several options, a person without an answer has ticked nothing"
        self.must(self.several is None or self.missing is not None, "missing", rule, "nothing")

    @property
    def size(self) -> int:
        """How many options or bins there are, with one for whatever is not listed."""
        return (len(self.options) or len(self.edges) - 1) + (self.other is not None)

    def report_variance(self, promise: Guarantee) -> float:
        if self.several is not None:
            return len(self.options) * share_oracle(promise, 2).variance(0.5)
        return super().report_variance(promise)


@dataclass(frozen=True, kw_only=True)
class Count(_Shares):
    """How many people have one public value in a column: a yes or no, whose share is told too."""

    kind: ClassVar[str] = "count"
    as_count: ClassVar[bool] = True

    value: str = field(help="The value that is counted, as it is written in the column.", check=named)

    def check(self) -> None:
        super().check()
        rule = "must be left out of a count, which goes by the number of people in a group: ask a choice instead"
        self.left_out(rule, "by_private", "compare", "population")

    @property
    def feature(self) -> Values:
        return Values.categorical(str(self.column), (self.value,), other=f"not {self.value}")


FORMS = {
    "best": "what promises less error",
    "steered": "how far they are from the line of the trusted people",
    "plain": "all products of the columns",
    "tcm-only": "nothing: only the people who trust are heard",
}


@dataclass(frozen=True, kw_only=True)
class Bounded(Question):
    """Several numbers a person, within public bounds."""

    lower: tuple[float, ...] = field(help="Public lower bounds: one for all columns, or one for each.")
    upper: tuple[float, ...] = field(help="Public upper bounds: one for all columns, or one for each.")
    missing: tuple[float | str, ...] = field((), help=basics.MISSINGS)

    def check(self) -> None:
        names = self.columns_read
        self.must(1 <= len(names) <= MOST_COLUMNS, "columns", f"must be 1 to {MOST_COLUMNS:,}", len(names))
        distinct = len({name.lower() for name in names}) == len(names)
        self.must(distinct, "columns", "must have different names", "a name twice")
        self.each("lower", "upper", *(["missing"] if self.missing else []))
        for column, low, high in zip(names, self.lower, self.upper, strict=True):
            self.must(high > low, "upper", f"must be greater than lower ({low:g}) for {column}", f"{high:g}")
        for value, low, high in zip(self.missing, self.lower, self.upper, strict=False):
            basics.check_missing(self, value, low, high)

    def each(self, *names: str) -> None:
        """One number for all columns becomes one for each."""
        d = len(self.columns_read)
        for name in names:
            given = getattr(self, name)
            self.must(len(given) in (1, d), name, f"must be one number, or one for each of the {d} columns", len(given))
            object.__setattr__(self, name, given * d if len(given) == 1 else given)


@dataclass(frozen=True, kw_only=True)
class Box(Bounded):
    """Several numbers a person, each in a column of its own."""

    columns: tuple[str, ...] = field(help="The columns of the numbers.", check=named, option="column")


@dataclass(frozen=True, kw_only=True)
class Vector(ByGroup, Box):
    """Several numbers a person; the promise covers all of them together."""

    kind: ClassVar[str] = "vector"
    mixes: ClassVar[bool] = True
    tally_kind: ClassVar[str] = "vector-mean"

    statistics: tuple[str, ...] = field(
        ("mean",), help="What is wanted of the vector.", choices=("mean",), shown=True, option=""
    )
    norm: str | None = field(None, help="Clip further, to a ball around the centre.", choices=("l1", "l2"))
    radius: float | None = field(
        None, help="With norm: the ball's radius, in half-ranges of the bounds.", check=positive
    )
    estimator: str = field(
        "everyone",
        help="How the groups are weighed.",
        choices={name: text for name, text in basics.ESTIMATORS.items() if name != "full-lm"},
    )
    sd: tuple[float, ...] = field(
        (), help="Known standard deviations (kvh needs them): one for all columns, or one for each.", check=positive
    )
    gap: float | None = field(
        None, help="A bound on the difference of the groups' means, in half-ranges.", check=at_least(0, 2), option=""
    )
    trusted_weight: float | None = field(
        None, help="The weight of the trusted means, for the estimator fixed.", check=at_least(0, 1), option=""
    )
    noise: str = field("best", help="Noise of the trusted group.", choices=basics.NOISES)
    local: str = field(
        "best",
        help="The report of local people; best is chosen from public numbers.",
        choices={
            "best": "",
            "per-coordinate": "every column, with a part of epsilon each",
            "sampling": "some drawn columns",
            "unit-vector": "one of several drawn directions, near the person's more often than others",
        },
    )

    def check(self) -> None:
        super().check()
        self.each(*(["sd"] if self.sd else []))
        for value, low, high in zip(self.sd, self.lower, self.upper, strict=False):
            most = (high - low) / 2
            self.must(value <= most * (1 + 1e-12), "sd", f"must be at most {most:g} for these bounds", value)
        _ = self.bounds
        basics.check_estimator(self)

    @property
    def bounds(self) -> VectorBounds:
        return VectorBounds.of(self.lower, self.upper, norm=self.norm, radius=self.radius)  # type: ignore[arg-type]

    def report_columns(self, start: str) -> tuple[str, ...]:
        return *(f"{name}_report" for name in self.columns), f"{start}report_mechanism"

    def report_variance(self, promise: Guarantee) -> float:
        """Of a column, on average, with the report that is taken for so many columns."""
        columns, bounds = len(self.columns), self.bounds
        among = min(1.0, bounds.ratio**2 / columns)
        if self.sd:
            halves = [bound.half * bounds.reach for bound in bounds.bounds]
            among = math.fsum((sd / half) ** 2 for sd, half in zip(self.sd, halves, strict=True)) / columns
        return vector_reports(self.local, promise, columns, bounds.ratio).cost(among)  # type: ignore[arg-type]

    def asks_everybody(self) -> str:
        return super().asks_everybody() or basics.goes_by_people(self)


@dataclass(frozen=True, kw_only=True)
class Regression(Bounded):
    """A target explained by several columns; the promise covers all of them together."""

    kind: ClassVar[str] = "regression"
    reported: ClassVar[bool] = False

    target: str = field(help="The column that is explained.", check=named)
    on: tuple[str, ...] = field(
        help="The columns that explain it: A,B. What is said of each column is in this order, the target's last.",
        check=named,
    )
    model: str = field(
        "linear", help="The model: linear, or logistic for a target of 0 and 1.", choices=("linear", "logistic"),
        option="kind",
    )  # fmt: skip
    form: str = field("best", help="What local people are asked.", choices=FORMS)
    clip: float | None = field(
        None,
        help="A public bound on how far a target lies from the line, in the target's unit (in a plan, in half-ranges "
        "of its bounds); what is farther is clipped. "
        "Default: from the trusted people's release.",
        check=positive,
    )
    noise: str = field("best", help="Noise of the trusted group.", choices=basics.NOISES)
    joint: bool = field(False, help="Intervals that hold for all coefficients together.")

    @property
    def columns(self) -> tuple[str, ...]:
        """The predictors, then the target."""
        return (*self.on, self.target)

    def check(self) -> None:
        split = tuple(part.strip() for text in self.on for part in text.split(","))
        object.__setattr__(self, "on", split)
        self.must(all(split), "on", "must be a list such as A,B without empty parts", ",".join(self.on))
        self.must(self.target not in split, "on", "must not name the target, which cannot explain itself", self.target)
        super().check()
        few = len(split) <= MOST_PREDICTORS
        self.must(few, "on", f"must name 1 to {MOST_PREDICTORS} columns", len(split))
        if self.model == "logistic":
            last = self.lower[-1], self.upper[-1]
            rule = "must bound the target of a logistic regression by 0 and 1"
            self.must(last == (0, 1), "upper", rule, f"{last[0]:g} and {last[1]:g}")
            rule = "must not be plain for a logistic regression: its steps need answers about other lines, and a person"
            self.must(self.form != "plain", "form", f"{rule} answers once", self.form)
            self.must(self.clip is None, "clip", "must go with a linear regression", self.clip)


RECORD_ESTIMATORS = {name: basics.CHOICE_ESTIMATORS[name] for name in ("alike", "hybrid", "anchored")}
RECORD_ESTIMATORS["hybrid"] = "by the groups' errors, record by record"


@dataclass(frozen=True, kw_only=True)
class Records(Question):
    """The most frequent records: discovered by the trusted, then counted by everybody."""

    kind: ClassVar[str] = "records"
    mixes: ClassVar[bool] = True
    tally_kind: ClassVar[str] = "slots"
    drawable: ClassVar[bool] = True
    reported: ClassVar[bool] = False
    needs_delta: ClassVar[bool] = True

    columns: tuple[str, ...] = field(help="The record's column, or two: query and url.", check=named, option="column")
    head: int = field(50, help="The most queries to keep (M).", check=at_least(1, 10_000))
    discovery_share: float = field(
        0.95, help="Trusted people used to discover.", check=errors.between_0_and_1, option=""
    )
    estimator: str = field("alike", help="How far reports move what the trusted counted.", choices=RECORD_ESTIMATORS)
    max_length: int = field(
        200, help="The most characters of a record that is sent to the service.", check=at_least(1, 1000), option=""
    )

    def check(self) -> None:
        self.must(len(self.columns) in (1, 2), "columns", "must be one column, or two: query and url",
                  len(self.columns))  # fmt: skip
        self.must(len(set(self.columns)) == len(self.columns), "columns", "must have different names", "a name twice")

    def check_study(self, study: Any) -> None:
        rule = f"must be given for {self.name}: one record of each person is used"
        study.people.must(study.people.column is not None, "column", rule, "nothing")

    def report_variance(self, promise: Guarantee) -> float:
        """One slot of a whole list, with one for everything else."""
        return k_randomised_response(PureDP(promise.epsilon), self.head + 1).variance(1 / (self.head + 1))


@dataclass(frozen=True, kw_only=True)
class Points(Box):
    """Points in a public box, to be clustered around K centres."""

    kind: ClassVar[str] = "points"
    tally_kind: ClassVar[str] = "slots"
    drawable: ClassVar[bool] = True
    reported: ClassVar[bool] = False

    clusters: int = field(help="How many centres (K).", check=at_least(1))
    iterations: int | None = field(
        None, help="The most questions to anyone. Default: planned from public numbers.", check=at_least(1), option=""
    )

    def check_study(self, study: Any) -> None:
        check_rows_are_people(self, study)

    def least_epsilon(self, *, trusted: bool) -> float:
        return LEAST_CLUSTERED

    def report_variance(self, promise: Guarantee) -> float:
        """One cell of the coarsest map that is of use."""
        axes = len(self.columns)
        cells: int = max(2, math.ceil((4 * self.clusters) ** (1 / axes))) ** axes
        return k_randomised_response(PureDP(promise.epsilon), cells).variance(1 / cells)


def check_rows_are_people(asked: Question, study: Any) -> None:
    rule = f"must be left out with {asked.name}, a question of kind {asked.kind}: there a row is a person"
    study.people.must(study.people.column is None, "column", rule, study.people.column)


@dataclass(frozen=True, kw_only=True)
class Feature(Fields):
    """One column of a synthetic table, with its public values or the public edges of its bins."""

    _label: ClassVar[str] = "feature."

    name: str = field(help="The column.", check=named)
    values: tuple[str, ...] = field((), help="Its public values.")
    edges: tuple[float, ...] = field((), help="Or the public edges of its bins, ascending.")
    missing: bool = field(False, help="What is missing or not listed is a category of its own.")

    def check(self) -> None:
        one = bool(self.values) != bool(self.edges)
        self.must(one, "values", "must be given, or edges in their place", "both" if self.values else "neither")
        _ = self.feature

    @property
    def feature(self) -> queries.Feature:
        if self.edges:
            return queries.Feature.binned(self.name, self.edges, missing=self.missing)
        return queries.Feature.categorical(self.name, self.values, missing=self.missing)


@dataclass(frozen=True, kw_only=True)
class Table(Question):
    """A synthetic table with the original columns and values.

    Where local people take part their device draws one of the stated marginals and reports on it.
    """

    kind: ClassVar[str] = "table"
    has_model: ClassVar[bool] = True
    needs_delta: ClassVar[bool] = True

    features: tuple[Feature, ...] = field(help="The columns of the table with their public values or edges.", option="")
    other: str | None = field(
        None,
        help="Public: what a field counts as that is missing or not listed, in a column that has no category for it: "
        "last, the last value; or missing, such a category. A table needs it, or `missing` in every column.",
        choices=("last", "missing"), option="",
    )  # fmt: skip
    marginals: tuple[str, ...] = field((), help='Questions of your own: "age,sex,race" or "2-of: age,sex,race".')
    method: str | None = field(
        None,
        help="tables: all marginals asked for; adaptive: those that a model misses most. Default: adaptive; tables "
        "for thresholds, one marginal alone, and those beyond a model. Left out where local people take part.",
        choices=("tables", "adaptive"),
    )
    rows: int = field(1000, help="Rows of the relaxed data set (n').", check=at_least(1))

    def check(self) -> None:
        names = [feature.name for feature in self.features]
        self.must(bool(names), "features", "must list at least one column", "none")
        self.must(len(set(names)) == len(names), "features", "must name each column once", ", ".join(names))
        self.must(bool(self.marginals), "marginals", "must be given", "none")

    def check_study(self, study: Any) -> None:
        check_rows_are_people(self, study)
        promise = study.promise
        if study.trust.everyone != "trusted":
            rule = "must be left out where local people take part: one model is fitted to the stated marginals of both"
            self.must(self.method is None, "method", rule, self.method)
        rule = f"must not be given with {self.name}, a question of kind {self.kind}"
        promise.must(promise.trusted_epsilon is None, "trusted_epsilon", rule, promise.trusted_epsilon)

    def has_reports(self, study: Any) -> bool:
        return bool(study.trust.everyone != "trusted")

    def report_columns(self, start: str) -> tuple[str, ...]:
        return f"{start}report", f"{start}report_batch", f"{start}report_mechanism"

    @property
    def columns_read(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features)


KINDS |= {one.kind: one for one in (Choice, Count, Vector, Records, Points, Regression, Table)}


# --- a study file -----------------------------------------------------------------------------------------------------

_HEAD = """\
# A study: what is asked, of whom, and what they are promised. All of it is public.
# `hybridp plan`, `randomise`, `release` and `serve` take this file."""


def to_toml(study: Declaration, *, first: str = "", last: str = "") -> str:
    """The study as the text of a file; `first` and `last` are added to its head and its end, as comments."""
    stated = study.to_dict()
    lines = [_HEAD, *errors.comment(first), "", "# The version of this file's form.", f"schema = {basics.SCHEMA}"]
    lines += errors.field_lines(study, stated)
    for one in errors.declared(type(study)):
        if one.form == "table" and stated.get(one.name):
            table = errors.field_lines(getattr(study, one.name), stated[one.name])
            lines += ["", f"# {one.help}", f"[{one.name}]", *table]
    for question, given in zip(study.questions, stated["questions"], strict=True):
        lines += ["", "[[question]]", *errors.field_lines(question, {"name": given.pop("name")})]
        lines += errors.comment(f"What is asked for: {(question.__doc__ or '').strip()} One of {', '.join(KINDS)}.")
        lines += [f'kind = "{question.kind}"', *errors.field_lines(question, given)]
        for feature in getattr(question, "features", ()):
            lines += ["", "[[question.features]]", *errors.field_lines(feature, feature.to_dict())]
    return "\n".join([*lines, *(["", *errors.comment(last)] if last else []), ""])
