"""The study: some questions, one promise, people who choose whom they trust. Declared once, checked when it is made.

>>> import tomllib
>>> study = Declaration(
...     title="Pay in our town",
...     questions=[{"name": "salary", "kind": "number", "lower": 0, "upper": 200_000},
...                {"name": "age", "kind": "number", "lower": 0, "upper": 120, "weight": 3}],
...     promise={"epsilon": 1.0, "several": "split"},
...     trust={"column": "consent", "trusted": ["yes"], "local": ["no"]},
... )
>>> [str(part.everybody) for part in study.parts]
['0.25-DP (replace-one)', '0.75-DP (replace-one)']
>>> Declaration.of(tomllib.loads(to_toml(study))) == study
True

The kinds of questions about several columns: vectors, records, points, a regression, a table; declared as fields.

>>> Regression(name="hours", target="hours", on=["age,schooling"], lower=[0], upper=[100]).columns
('age', 'schooling', 'hours')
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from os import PathLike
from typing import Any, ClassVar, Self

from hybridp import errors
from hybridp.errors import Fields, TrustRule, at_least, comment, declared, field, field_lines, named, positive, short
from hybridp.public import queries
from hybridp.public import questions as basics
from hybridp.public.envelope import write_new
from hybridp.public.kmeans import LEAST_CLUSTERED
from hybridp.public.mechanisms import ApproxDP, Guarantee, PureDP, split
from hybridp.public.messages import VectorBounds
from hybridp.public.questions import KINDS, Choice, Collection, Count, Grouped, Mixer, Number, People, Promise, Question
from hybridp.public.randomisers import k_randomised_response, vector_reports
from hybridp.public.regression import MOST_PREDICTORS
from hybridp.public.shares import share_mixing
from hybridp.public.shuffling import LevelMixing, Mixing

__all__ = ["ANSWERED", "ANSWERED_IN", "KINDS", "SCHEMA", "Choice", "Collection", "Count", "Declaration", "Feature"]
__all__ += ["Fields", "Form", "Grouped", "Mixer", "Number", "Part", "People", "Points", "Promise", "Question"]
__all__ += ["Records", "Regression", "Table", "TrustRule", "Vector", "declared", "to_toml"]

MOST_COLUMNS = 10_000

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
class Vector(Box):
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
    joint: bool = field(False, help="Intervals that hold for all columns together.")

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
        return basics.goes_by_people(self)


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


RECORD_ESTIMATORS = {
    "alike": "assumes that both groups are alike: anchored where a formula finds that cheap, else hybrid",
    "hybrid": "by the groups' errors, record by record",
    "anchored": "the same, and dishonest reports move a trusted share by little",
}


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


KINDS |= {one.kind: one for one in (Vector, Records, Points, Regression, Table)}


# --- study ------------------------------------------------------------------------------------------------------------

SCHEMA = 1

"""The version of the declaration, in files and as plain data."""


@dataclass(frozen=True, slots=True)
class Part:
    """One question's part of the promise: for everybody, and for the trusted where they have one of their own.

    None where everyone brings their own epsilon.
    """

    question: Question
    everybody: Guarantee | None
    trusted: Guarantee | None


@dataclass(frozen=True, kw_only=True)
class Declaration(Fields):
    """A study as it is declared: everything that is decided, and public, before anybody sends anything.

    Questions, promise and trust may be given as plain data, with the fields of a study file; `promise` also as a number
    (its epsilon) and `trust` as the name of a column that says `trusted` or `local`. What is wrong is refused here, in
    one sentence. `hybridp.Study` is this with what can be done with it.
    """

    title: str = field("", help="What the study is called.", check=short(200), shown=True)
    asked_by: str = field("", help="Who asks.", check=short(200), shown=True)
    level: float = field(0.95, help="Coverage of the intervals.", check=errors.between_0_and_1, shown=True)
    promise: Promise = field(help="What people are promised.")
    trust: TrustRule = field(help="Who trusts the curator.")
    people: People = field(People(), help="How a table tells people apart, and how many are expected.")
    collection: Collection | None = field(None, help="What the collection service must know.")
    mixer: Mixer | None = field(None, help="A mixer, for people who trust that two do not collude.")
    questions: tuple[Question, ...] = field(help="What is asked.")

    def check(self) -> None:
        self.must(bool(self.questions), "questions", "must hold at least one", "none")
        drawn = self.trust.trial_opt_in is not None or self.trust.answering is not None
        self.must(not drawn, "trust", "must be what people say: of a trial, a release is told", "a draw")
        names = [question.name for question in self.questions]
        taken: set[str] = set()
        for name in names:
            self.must(name.lower() not in taken, "name", "must be a question's own, also in another case", repr(name))
            taken.add(name.lower())
        for question in self.questions:
            self._check_question(question)
        if len(names) > 1:
            self._check_report_columns()
            self._check_several()
        if self.mixer is not None:
            self._check_mixer(self.mixer)
        _ = self.parts

    def _check_question(self, question: Question) -> None:
        promise, trust = self.promise, self.trust
        public = {"who trusts": trust.column, "who is who": self.people.column, "own epsilons": promise.epsilon_column}
        for what, column in public.items():  # a report takes the value's place
            rule = f"must not be the column of {what}, which is public"
            question.must(column is None or column not in question.columns_read, "column", rule, f"`{column}`")
        if question.groups is not None:
            by, private = question.groups.column, question.groups.private
            others = (q.columns_read for q in self.questions if q is not question or not private)
            taken = {trust.column, *(name for names in others for name in names)}
            rule = "must not be the column of who trusts, or of a question's answers"
            question.must(by not in taken, "by", rule, f"`{by}`")
        if promise.personal:
            alone = len(self.questions) == 1 and question.own_epsilons
            rule = "must be of kind number and the only one where everyone has their own epsilon"
            self.must(alone, question.name, rule, f"{len(self.questions)} questions, this one of kind {question.kind}")
            question.check_own_epsilons()
            return
        gaussian = getattr(question, "noise", None) == "gaussian"
        rule = f"must be positive for the Gaussian noise of {question.name}"
        promise.must(not gaussian or promise.delta > 0, "delta", rule, promise.delta)
        rule = f"must be positive for {question.name}, a question of kind {question.kind}"
        promise.must(not question.needs_delta or promise.delta > 0, "delta", rule, promise.delta)
        question.check_study(self)

    def _check_mixer(self, mixer: Mixer) -> None:
        question = self.questions[0]
        alone = len(self.questions) == 1 and question.mixes
        rule = "must be left out, unless the study asks for one mean, the shares of one choice, or records"
        self.must(alone, "mixer", rule, f"{len(self.questions)} questions, the first of kind {question.kind}")
        if self.promise.personal:
            rule = "must be left out where everyone has their own epsilon, which is their report's"
            mixer.left_out(rule, "epsilon", "cap")
        _ = self.mixing, self.level_mixing

    def _check_report_columns(self) -> None:
        """Reports on several questions stand in one table: no two columns may have one name, and none is read twice."""
        used: set[str] = set()
        for question in self.questions:
            for name in question.columns_read if question.has_reports(self) else ():
                rule = "must not be read by another question too: its report takes the value's place"
                question.must(name.lower() not in used, "column", rule, f"`{name}`")
                used.add(name.lower())
        used |= {name.lower() for question in self.questions for name in question.columns_read}
        used |= {name.lower() for name in (self.trust.column, self.people.column) if name is not None}
        if self.drawn:
            for name in (ANSWERED, ANSWERED_IN):
                rule = "must leave a name free, for the question that was drawn"
                self.must(name not in used, "column", rule, f"`{name}`")
                used.add(name)
        for question in self.questions:
            reports = question.by_invitation or question.has_reports(self)
            for name in self.report_columns(question) if reports else ():
                rule = "must leave the names of the columns of reports free: another question or column has one"
                question.must(name.lower() not in used, "name", rule, repr(name))
                used.add(name.lower())

    def _check_several(self) -> None:
        """More questions than the promise can carry are refused, and so is one that everybody must answer if drawn."""
        told = [q for q in self.questions if q.reported]
        unheard = [q.name for q in told if getattr(q, "estimator", None) == "tcm-only"]
        rule = "must be tcm-only for all questions or for none: local people would report what nobody listens to"
        same = self.trust.everyone == "trusted" or len(unheard) in (0, len(told))
        self.must(same, "estimator", rule, f"it for {', '.join(unheard)} alone")
        for question in self.questions if self.promise.several == "drawn" else ():
            reason = question.asks_everybody()
            self.promise.must(not reason, "several", f"must be split, or left out: {reason}", "drawn")
        self._check_carried("trusted_epsilon", self.trusted_guarantee.epsilon)
        if not self.drawn:
            self._check_carried("epsilon", self.guarantee.epsilon)

    def _check_carried(self, group: str, epsilon: float) -> None:
        """Every question's part of a promise must do for it. If one does not: how many the promise could carry."""
        trusted = group == "trusted_epsilon"
        needs = [
            (question.least_epsilon(trusted=trusted) / chance, question.least_epsilon(trusted=trusted), question)
            for question, chance in zip(self.questions, chances(self.questions), strict=True)
        ]
        whole, least, question = max(needs, key=lambda need: need[0])
        if epsilon >= whole * (1 - 1e-9):
            return
        most, of = math.floor(epsilon / least * (1 + 1e-9)), "the trusted people's promise" if trusted else "a promise"
        needed = math.ceil(whole * 1e6 * (1 - 1e-9)) / 1e6
        takes = f"{question.name} takes {least:g} or more, and all of these {needed:g} together"
        name = group if self.promise.trusted_epsilon is not None else "epsilon"
        self.promise.must(most > 1, name, f"must be larger for several questions: {takes}", f"{epsilon:g}")
        rule = f"must be at most {most:,} of one weight for {of} of epsilon {epsilon:g}: {takes}"
        self.must(False, "questions", rule, f"{len(self.questions):,}")

    def report_columns(self, question: Question) -> tuple[str, ...]:
        """The columns of a table that hold local people's reports on a question, and last the one that says how they
        were made: `report` for a study of one question, NAME_report for several."""
        return question.report_columns("" if len(self.questions) == 1 else f"{question.name}_")

    # --- the promise --------------------------------------------------------------------------------------------------

    @property
    def guarantee(self) -> Guarantee:
        """What every person is promised, by all questions together. Not where everyone has their own epsilon."""
        if self.promise.epsilon is None:
            raise errors.InvalidInput("`promise.epsilon` must be given here. Got everyone's own epsilon.")
        return self.promise.budget(self.promise.epsilon)

    @property
    def trusted_guarantee(self) -> Guarantee:
        own = self.promise.trusted_epsilon
        return self.guarantee if own is None else self.promise.budget(own)

    @cached_property
    def form(self) -> Form:
        """How several questions share the promise, and why: decided by the declaration alone."""
        if len(self.questions) == 1:
            return Form(False, "one question has the whole promise", {})
        best = best_form(self.questions, self.guarantee)
        if self.promise.several is None:
            return best
        drawn = self.promise.several == "drawn"
        form = "one drawn question for every local person" if drawn else "split over the questions"
        return Form(drawn, f"{form}, as stated", best.ratios)

    @property
    def drawn(self) -> bool:
        """Whether every local person answers one drawn question with the whole promise."""
        return not self.promise.personal and self.form.drawn

    @property
    def chances(self) -> dict[str, float]:
        """How likely a local person's device draws each question; all are certain where the promise is split."""
        likely = chances(self.questions) if self.drawn else (1.0,) * len(self.questions)
        return {question.name: chance for question, chance in zip(self.questions, likely, strict=True)}

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The promise split over the questions by their weights, for both groups; together it is the whole, exactly.

        Where questions are drawn it is split for the trusted people alone, and everybody else's part is the whole.
        """
        if self.promise.personal:
            return (Part(self.questions[0], None, None),)
        weights = [question.weight for question in self.questions]
        several, own = len(weights) > 1, self.drawn or self.promise.trusted_epsilon is not None
        whole, theirs = [self.guarantee] * len(weights), [self.trusted_guarantee] * len(weights)
        everybody = split(self.guarantee, weights) if several and not self.drawn else whole
        trusted = split(self.trusted_guarantee, weights) if several else theirs
        parts = zip(self.questions, everybody, trusted, strict=True)
        return tuple(Part(question, part, other if own else None) for question, part, other in parts)

    @cached_property
    def mixing(self) -> Mixing | None:
        """What a report through the mixer keeps by itself, and in a batch of the stated size; None without a mixer."""
        mixer = self.mixer
        if mixer is None or self.promise.epsilon is None:
            return None
        delta = self._mixed_delta(mixer)
        promise, size = ApproxDP(self.promise.epsilon, delta), self.questions[0].mixed_size()
        if size is not None:
            return share_mixing(promise, size, mixer.batch, epsilon=mixer.epsilon, cap=mixer.cap)
        return Mixing.planned(promise, mixer.batch, epsilon=mixer.epsilon, cap=mixer.cap)

    @property
    def level_mixing(self) -> LevelMixing | None:
        """The same where everyone has their own epsilon: a mixer's people hide among those who chose the same."""
        mixer = self.mixer
        if mixer is None or not self.promise.personal:
            return None
        return LevelMixing(mixer.batch, self._mixed_delta(mixer))

    def _mixed_delta(self, mixer: Mixer) -> float:
        delta = mixer.delta if mixer.delta is not None else self.promise.delta
        other = "" if self.promise.personal else ", or promise.delta"
        mixer.must(delta > 0, "delta", f"must be given{other}: a mixed batch has no pure guarantee", delta)
        return delta

    @property
    def purpose(self) -> str:
        """What a ledger notes: the title, or the questions' names."""
        return self.title or ", ".join(question.name for question in self.questions)

    # --- plain data and files -----------------------------------------------------------------------------------------

    @classmethod
    def of(cls, stated: Mapping[str, Any]) -> Self:
        """A study from plain data, such as `to_dict` gives and a file holds."""
        given = dict(stated)
        version = given.pop("schema", SCHEMA)
        errors.must(
            version == SCHEMA, "schema", f"must be {SCHEMA}, the version that this hybridp reads", f"{version!r}"
        )
        if "question" in given and "questions" not in given:
            given["questions"] = given.pop("question")
        return super().of(given)

    def to_dict(self, *, everything: bool = False) -> dict[str, Any]:
        return {"schema": SCHEMA, **super().to_dict(everything=everything)}

    def write(self, path: str | PathLike[str]) -> None:
        """Write the study to a new file that `read` gives back, with a comment for every field."""
        write_new(path, to_toml(self))


_HEAD = """\
# A study: what is asked, of whom, and what they are promised. All of it is public.
# `hybridp plan`, `randomise`, `release` and `serve` take this file."""


def to_toml(study: Declaration, *, first: str = "", last: str = "") -> str:
    """The study as the text of a file; `first` and `last` are added to its head and its end, as comments."""
    stated = study.to_dict()
    lines = [_HEAD, *comment(first), "", "# The version of this file's form.", f"schema = {SCHEMA}"]
    lines += field_lines(study, stated)
    for one in declared(type(study)):
        if one.form == "table" and stated.get(one.name):
            table = field_lines(getattr(study, one.name), stated[one.name])
            lines += ["", f"# {one.help}", f"[{one.name}]", *table]
    for question, given in zip(study.questions, stated["questions"], strict=True):
        lines += ["", "[[question]]", *field_lines(question, {"name": given.pop("name")})]
        lines += comment(f"What is asked for: {(question.__doc__ or '').strip()} One of {', '.join(KINDS)}.")
        lines += [f'kind = "{question.kind}"', *field_lines(question, given)]
        for feature in getattr(question, "features", ()):
            lines += ["", "[[question.features]]", *field_lines(feature, feature.to_dict())]
    return "\n".join([*lines, *(["", *comment(last)] if last else []), ""])


ANSWERED = "answered"

ANSWERED_IN = "answered_in"  # the batch of the file that holds a report on an invitation

"""The column that names the question which a local person's device drew."""


@dataclass(frozen=True, slots=True)
class Form:
    """How several questions share a promise, and why; `ratios` are the local errors if drawn over those if split."""

    drawn: bool
    why: str
    ratios: Mapping[str, float]


def chances(questions: Sequence[Question]) -> tuple[float, ...]:
    whole = math.fsum(question.weight for question in questions)
    return tuple(question.weight / whole for question in questions)


def best_form(questions: Sequence[Question], promise: Guarantee) -> Form:
    """Split the promise over the questions, or let every local person answer one with the whole of it: whichever
    predicts the smaller local errors, by the mean logarithm of their ratios, weighted as questions are.

    A device draws the question by the weights, whatever its person's data. With m questions of one kind and weight the
    variance of a question's local estimate is then ``m (s + v(epsilon))/n`` in place of ``(s + v(epsilon/m))/n``, s
    being the variance among people and v that of a report: drawing wins but where v is flat, at a large epsilon. Both
    are known from the declaration alone, so that devices and curator agree. Trusted people answer everything.

    >>> from hybridp.public.mechanisms import PureDP
    >>> pay, age = (Question.of({"name": n, "kind": "number", "lower": 0, "upper": 9}) for n in ("pay", "age"))
    >>> best_form((pay, age), PureDP(1.0)).drawn, best_form((pay, age), PureDP(12.0)).drawn
    (True, False)
    """
    for question in questions:
        if reason := question.asks_everybody():
            return Form(False, f"split over the questions, because {reason}", {})
    parts, drawn = split(promise, [question.weight for question in questions]), chances(questions)
    ratios = {}
    for question, part, chance in zip(questions, parts, drawn, strict=True):
        whole, own = _variance(question, promise) / chance, _variance(question, part)
        ratios[question.name] = 1.0 if whole == own else math.sqrt(whole / own) if own < math.inf else 0.0
    gain = sum(
        chance * (math.log(ratio) if ratio else -math.inf) for chance, ratio in zip(drawn, ratios.values(), strict=True)
    )
    told = ", ".join(f"{name} {ratio:.2f}" for name, ratio in ratios.items())
    other = ", ".join(f"{name} {1 / ratio if ratio else math.inf:.2f}" for name, ratio in ratios.items())
    said = "because that predicts less error (local people's standard errors, over those of the other form: "
    if gain < 0:
        return Form(True, f"one drawn question for every local person, {said}{told})", ratios)
    return Form(False, f"split over the questions, {said}{other})", ratios)


def _variance(question: Question, promise: Guarantee) -> float:
    """Of what one local person tells; infinite where no report can be made."""
    try:
        return question.report_variance(promise)
    except errors.InvalidInput:
        return math.inf
