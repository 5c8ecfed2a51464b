"""The study: some questions, one promise, people who choose whom they trust. Declared once, checked when it is made.

>>> import tomllib
>>> from hybridp.public.questions import to_toml
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

Beside it the questions of one number; `hybridp.public.questions` has the other kinds.

>>> Question.of({"name": "salary", "kind": "number", "lower": 0, "upper": 200_000}).columns_read
('salary',)
>>> Question.of({"name": "salary", "kind": "number", "lower": 9, "upper": 1})
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `salary.upper` must be greater than lower (9). Got 1.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache, cached_property
from importlib.metadata import entry_points
from os import PathLike
from typing import Any, ClassVar, Self, TypeVar

from hybridp import errors
from hybridp.errors import Check, Fields, InvalidInput, TrustRule, at_least, field, named, positive, share, short
from hybridp.public.envelope import write_new
from hybridp.public.groups import Grouping
from hybridp.public.mechanisms import ApproxDP, Form, Guarantee, PureDP, best_form, chances, promised, split
from hybridp.public.messages import SYNONYMS
from hybridp.public.queries import Feature
from hybridp.public.randomisers import randomiser
from hybridp.public.shares import LEAST_COUNTED, share_mixing
from hybridp.public.shuffling import LevelMixing, Mixer, Mixing

__all__ = ["ANSWERED", "ANSWERED_IN", "CHOICE_ESTIMATORS", "ESTIMATORS", "KINDS", "LEAST", "MISSINGS"]
__all__ += ["NOISES", "SCHEMA", "Collection", "Declaration", "Form", "Grouped", "Mixer", "Number", "Part", "People"]
__all__ += ["Promise", "Question", "check_estimator", "check_missing", "goes_by_people", "settled"]

T = TypeVar("T")

NOISES = {
    "best": "the smaller of the two",
    "laplace": "pure, without a delta",
    "gaussian": "needs a delta",
}

LEAST = 0.001

"""The smallest epsilon that a question can be answered with."""


@dataclass(frozen=True, kw_only=True)
class Promise(Fields):
    """What people are promised: one for everybody, another one for the trusted, or everyone's own."""

    _label: ClassVar[str] = "promise."
    _alone: ClassVar[str] = "epsilon"

    epsilon: float | None = field(None, help="What every person is promised.", check=positive)
    delta: float = field(
        0.0,
        help="For approximate guarantees: well below one in the number of people.",
        check=Check("must be at least 0 and less than 1", lambda x: 0 <= x < 1),
    )
    trusted_epsilon: float | None = field(None, help="Another promise for the trusted group.", check=positive)
    epsilon_column: str | None = field(
        None, help="The column with each person's own epsilon, in place of epsilon.", check=named
    )
    share: float = field(1.0, help="With own epsilons: the study spends this share of everybody's own.", check=share)
    allowed_epsilons: tuple[float, ...] = field(
        (),
        help="With own epsilons: those that people choose from. In a table everybody counts as the largest of them "
        "that is at most their own; a plain mean needs none there.",
        check=positive,
        option="",
    )

    several: str | None = field(
        None,
        help="How several questions share the promise. Default: whichever predicts less error, from the study alone.",
        choices={
            "split": "everybody answers all, each at its part",
            "drawn": "a local person's device draws one question, by the weights, and answers it with the whole",
        },
        option="",
    )

    @property
    def personal(self) -> bool:
        """Whether everyone brings their own epsilon."""
        return self.epsilon_column is not None or bool(self.allowed_epsilons)

    def check(self) -> None:
        if not self.personal:
            rule = "must be given, or epsilon_column: what every person is promised, such as 1.0"
            self.must(self.epsilon is not None, "epsilon", rule, "neither")
            self.must(self.share == 1, "share", "must go with epsilon_column", self.share)
            return
        self.left_out("must not go with everyone's own epsilon", "epsilon", "trusted_epsilon", "delta", "several")
        distinct = len(set(self.allowed_epsilons)) == len(self.allowed_epsilons)
        self.must(distinct, "allowed_epsilons", "must be different from each other", list(self.allowed_epsilons))


@dataclass(frozen=True, kw_only=True)
class People(Fields):
    """How a table tells people apart, and how many are expected."""

    _label: ClassVar[str] = "people."

    column: str | None = field(
        None, help="The column that identifies a person. Default: every row is a person.", check=named, option="person"
    )
    record_key: str | None = field(
        None, help="A random key stored per record, which chooses one record a person.", check=named
    )
    decimal: str | None = field(
        None,
        help="The decimal sign of numbers that a table holds as text. Without it they have a point in a CSV file, and "
        "a column that is declared as text holds no numbers.",
        choices=(".", ","),
        option="",
    )
    public: tuple[str, ...] = field((), help=errors.PUBLIC, check=named, option="")
    trusted: int | None = field(
        None, help="For plans: how many trusted people are expected.", check=at_least(0, 1e10), option=""
    )
    local: int | None = field(
        None, help="For plans: how many local people are expected.", check=at_least(0, 1e10), option=""
    )
    shuffled: int | None = field(
        None, help="For plans: how many people are expected to trust the mixer.", check=at_least(0, 1e10), option=""
    )

    def check(self) -> None:
        ok = self.record_key is None or self.column is not None
        self.must(ok, "column", "must go with record_key", "nothing")


@dataclass(frozen=True, kw_only=True)
class Collection(Fields):
    """What the collection service must know beside the questions."""

    _label: ClassVar[str] = "collection."

    purpose: str = field("", help="What the answers are for, as participants read it.", check=short(500))
    contact: str = field(
        "", help="Where participants reach those who ask, such as an e-mail address.", check=short(200)
    )
    opens: datetime | None = field(None, help="When the first answer is taken. Default: at once.")
    closes: datetime | None = field(None, help="When the last answer is taken. Default: when it is closed by hand.")
    min_batch: int = field(
        20,
        help="Nothing is released before so many people have answered; in a study of two phases, so many in each.",
        check=at_least(2, 1e10),
    )
    time_precision: int = field(
        3600, help="Reports carry their time rounded down to so many seconds.", check=at_least(1, 7 * 86_400)
    )
    by_invitation: bool = field(False, help="Only people with a single-use link may answer.")
    releases: int = field(
        1, help="How many releases the trusted group's budget pays for; each keeps the promise.", check=at_least(1, 1e6)
    )
    delete_raw_after_release: bool = field(True, help="Trusted answers are deleted with the last release.")
    delete_by: datetime | None = field(
        None, help="When trusted answers are deleted at the latest. Default: 90 days after the closing."
    )

    def check(self) -> None:
        if self.opens is not None and self.closes is not None:
            rule = f"must be after opens ({self.opens.isoformat()})"
            self.must(self.opens < self.closes, "closes", rule, self.closes.isoformat())


# --- questions --------------------------------------------------------------------------------------------------------

_OWN = "must be left out where everyone has their own epsilon"

KINDS: dict[str, type[Question]] = {}

"""The kinds of questions by their names; `hybridp.public.questions` adds all but a number."""


@cache
def _load_plugged() -> None:
    """Import what installed packages offer as more kinds: each registers its own."""
    for point in entry_points(group="hybridp.questions"):
        point.load()


@dataclass(frozen=True, kw_only=True)
class Question(Fields):
    """What every question states; `KINDS` has one class for each kind.

    What a study, a driver or a plan must know of a question, the question says itself: nobody asks which kind it is.
    """

    kind: ClassVar[str] = ""
    _label: ClassVar[str] = "question."
    reported: ClassVar[bool] = True
    """Whether local reports stand in the table itself; those on other kinds answer an invitation."""
    as_count: ClassVar[bool] = False
    """Whether it is answered by a number of people."""
    has_model: ClassVar[bool] = False
    """Whether its answer is a folder that is kept beside the release."""
    needs_delta: ClassVar[bool] = False
    drawable: ClassVar[bool] = False
    """Whether a local person may be asked another question in its place."""
    mixes: ClassVar[bool] = False
    """Whether people may answer through a mixer."""
    in_phases: ClassVar[bool] = False
    """Whether people may be asked about it one after another, within what the first of them said."""
    tally_kind: ClassVar[str] = ""
    """Of which kind a tally is that stands in for its reports; empty where there is none."""
    guessed = False

    name: str = field(help="The question's name: its results are listed under it.", check=named, option="")
    text: str = field("", help="The question as people read it.", check=short(2000), lines=True, option="")
    unit: str = field("", help="The unit of the answer, for people and pictures.", check=short(40), option="")
    weight: float = field(
        1.0,
        help="The question's part of the promise, relative to the weights of the other questions.",
        check=positive,
        option="",
    )

    @property
    def columns_read(self) -> tuple[str, ...]:
        """The columns of a table that hold people's answers: with the value, a private category."""
        several = getattr(self, "columns", None)
        read: tuple[str, ...] = (getattr(self, "column"),) if several is None else tuple(several)  # noqa: B009
        return (*read, self.groups.column) if self.groups is not None and self.groups.private else read

    @property
    def groups(self) -> Grouping | None:
        """By which groups it is to be answered; None where it is for everybody at once."""
        return None

    @property
    def by_invitation(self) -> bool:
        """Whether local people can answer only what they have been sent."""
        return not self.reported

    def has_reports(self, study: Declaration) -> bool:
        """Whether local people's reports on it stand in the study's table."""
        return self.reported and not self.by_invitation

    def report_columns(self, start: str) -> tuple[str, ...]:
        """The columns of a table that hold reports, and last the one that says how they were made."""
        return ()

    def least_epsilon(self, *, trusted: bool) -> float:
        """The smallest epsilon that it can be answered with: by the trusted people, or by a report."""
        return LEAST

    def report_variance(self, promise: Guarantee) -> float:
        """Of what one local person tells: among people, as plans take it, and of the report."""
        return math.inf

    def asks_everybody(self) -> str:
        """Why every local person must answer it; nothing where one question may be drawn in its place."""
        return "" if self.drawable else f"`{self.name}` is of kind {self.kind}, which everybody answers"

    def mixed_size(self) -> int | None:
        """How many options a report through a mixer is one of; None where it is any report."""
        return None

    def entry(self, table: Mapping[str, T]) -> T:
        """What a table by kinds holds for this one, or for the kind that it is a special case of."""
        kinds = (str(getattr(one, "kind", "")) for one in type(self).__mro__)
        return next(table[kind] for kind in kinds if kind in table)

    @property
    def one_epsilon(self) -> str:
        """Why everybody must have the same epsilon; nothing where everyone may bring their own."""
        if self.needs_delta:
            return "needs a delta, and own epsilons are promises without one"
        return "asks local people by an invitation, which is made for one epsilon" * self.by_invitation

    @property
    def by_levels(self) -> bool:
        """Whether people with own epsilons count as one of some that are stated; a plain mean weighs each by theirs."""
        return True

    def check_own_epsilons(self, study: Declaration) -> None:
        """The rules where everyone has their own epsilon."""
        known, alone = ("everyone", *PERSONAL_ESTIMATORS), ["gap", "local"]
        if self.by_levels:
            known, alone = ("everyone", "alike", "hybrid", "tcm-only", "lm-only"), ["sd", "gap", "trusted_weight"]
        self.left_out(_OWN, "by", "joint", *alone)
        estimator = getattr(self, "estimator", None)
        self.must(estimator in (None, *known), "estimator", f"must be one of {', '.join(known)} {_OWN[17:]}", estimator)
        for name, other in (("noise", "gaussian"), ("missing", "exclude")):
            self.must(getattr(self, name, None) != other, name, f"must not be {other} {_OWN[17:]}", other)
        rule = f"must list the epsilons that count for {self.name}: people of each are asked as if they were alone"
        listed = not self.by_levels or bool(study.promise.allowed_epsilons)
        study.promise.must(listed, "allowed_epsilons", rule, "none")

    def check_study(self, study: Declaration) -> None:
        """The rules between the question and its study."""

    def check_table(self, study: Declaration) -> None:
        """The rules where it is asked over a table."""

    @classmethod
    def of(cls, stated: Mapping[str, Any]) -> Self:
        """A question of the kind that is stated."""
        given = {name: value for name, value in stated.items() if name != "kind"}
        if cls is not Question:
            rule = "must be left out: nobody is in two groups, so that a study of each group alone asks the same"
            known = "by" not in given or any(one.name == "by" for one in errors.declared(cls))
            errors.must(known, f"{cls._labelled(stated.get('name'))}by", rule, stated.get("by"))
            return super().of(given)
        importlib.import_module("hybridp.public.questions")  # which adds the kinds that are not here
        kind, where = stated.get("kind"), cls._labelled(stated.get("name"))
        errors.must(kind is not None, f"{where}kind", f"must be given: one of {', '.join(KINDS)}", "nothing")
        if isinstance(kind, str) and kind not in KINDS:
            _load_plugged()
        if not isinstance(kind, str) or kind not in KINDS:
            hint = errors.did_you_mean(str(kind), KINDS)
            raise InvalidInput(f"`{where}kind` must be one of {', '.join(KINDS)}. Got {str(kind)[:60]!r}.{hint}")
        made: Any = KINDS[kind].of(given)
        return made  # type: ignore[no-any-return]

    def to_dict(self, *, everything: bool = False) -> dict[str, Any]:
        stated = super().to_dict(everything=everything)
        return {"name": stated.pop("name"), "kind": self.kind, **stated}


@dataclass(frozen=True, kw_only=True)
class OneColumn(Question):
    """A question about one column."""

    column: str | None = field(
        None, help="The column with everybody's answer. Default: the question's name.", shown=True
    )
    noise: str = field("best", help="Noise of the trusted group.", choices=NOISES)
    report: str | None = field(
        None,
        help="The column with local people's reports. Default: report; with several questions NAME_report.",
        option="",
    )

    def check(self) -> None:
        if self.column is None:
            object.__setattr__(self, "column", self.name)


@dataclass(frozen=True, kw_only=True)
class ByGroup(Question):
    """A question that may be answered for everybody's public group."""

    by_private: ClassVar[bool] = False

    by: str | None = field(None, help="Answer by group: the column that names everybody's group.", check=named)
    categories: tuple[str, ...] = field(
        (),
        help="With by: the public names of the groups, A,B,C. Default: those that the column holds; private groups "
        "must be listed, and whoever is in none of them counts in the last.",
        check=named,
    )
    least: int = field(
        1,
        help="With by: groups of fewer people are merged into `other`, which is withheld if it has fewer; of private "
        "groups by their noisy counts.",
        check=at_least(1),
    )
    compare: str | None = field(
        None,
        help="With by: differences between all pairs of groups (all), or of all from one, with intervals.",
        check=named,
    )
    population: tuple[float, ...] = field(
        (), help="With by and categories: how many people of the population are in each, for an answer about all of it."
    )
    joint: bool = field(False, help="Intervals that hold for all groups, options, columns and statistics together.")

    @property
    def groups(self) -> Grouping | None:
        if self.by is None:
            return None
        own = (self.by_private, self.least, self.compare, self.joint, self.population)
        return Grouping(self.by, self.categories, *own)

    def asks_everybody(self) -> str:
        return "" if self.by is None else f"`{self.name}` is asked by group, which everybody answers"

    def check(self) -> None:
        super().check()
        if self.by is None:
            rule, private = "must go with by, the column of the groups", ("by_private",) * self.by_private
            return self.left_out(rule, *private, "categories", "compare", "least", "population")
        self.must(self.by not in self.columns_read[:-1 if self.by_private else None], "by",
                  "must be another column than the value's", self.by)  # fmt: skip
        known = not self.categories or self.compare in (None, "all", "other", *self.categories)
        self.must(known, "compare", "must be all, or one of the categories", self.compare)
        _ = self.groups


@dataclass(frozen=True, kw_only=True)
class Grouped(ByGroup, OneColumn):
    """A question about one column, which may be answered by group."""

    by_private: bool = field(  # type: ignore[misc]
        False,
        help="With by: the group is an answer too, as private as the value. Without it everybody may know who is in "
        "which group.",
    )

    def report_columns(self, start: str) -> tuple[str, ...]:
        """The report itself, the batch of one on options, and how it was made."""
        report = self.report or f"{start}report"
        return report, *((f"{report}_batch",) if self.on_options else ()), f"{report}_mechanism"

    @property
    def on_options(self) -> bool:
        """Whether reports are on one of several options, of a private group too."""
        return self.by_private


# --- questions --------------------------------------------------------------------------------------------------------

ESTIMATORS = {
    "everyone": "by the number of people: right however much those who trust differ from those who do not",
    "alike": "assumes that both groups are alike: anchored where a formula finds that cheap, else adaptive",
    "adaptive": "by the groups' errors, with the spread of the values learned from the reports",
    "anchored": "the same, and dishonest reports move the trusted mean by little",
    "skew-aware": "the same, and the groups may have different means",
    "kvh": "by the groups' errors for a known spread (sd)",
    "pwh": "by the noise of the groups alone",
    "fixed": "by your own weight",
    "tcm-only": "only the people who trust",
    "lm-only": "only the local people",
    "full-lm": "everybody reports as if local",
    "naive": "the papers' name of everyone",
    "trusted": "another name of tcm-only",
    "local": "another name of lm-only",
}

PERSONAL_ESTIMATORS = {
    "unified": "both groups, each person by their own epsilon: assumes that people of all epsilons are alike",
    "adpm": "trusted people, by the best weights for their epsilons",
}

CHOICE_ESTIMATORS = {
    "everyone": "by the number of people: right however much those who trust differ from those who do not",
    "alike": "assumes that both groups are alike: anchored where a formula finds that cheap, else hybrid",
    "hybrid": "both groups, option by option, by their errors",
    "anchored": "the same, and dishonest reports move a trusted share by little",
    **{name: ESTIMATORS[name] for name in ("tcm-only", "lm-only", "naive", "trusted", "local")},
}

STATISTICS = {
    "mean": "",
    "sum": "the mean times the number of people, which is public",
    "variance": "",
    "sd": "",
    "quantiles": "at stated shares of people",
    "histogram": "shares by bins",
    "shares-below": "of people at or below values",
    "shares-above": "of people above values",
    "gini": "",
    "distribution": "the share of people at or below any value",
}

NUMBER_FORMS = {
    "plain": "their number, with noise, at any time",
    "steered": "near the quantiles (in the service), or within the window, that trusted people named first",
}

MISSING = (
    "Public: what a value counts as that is missing or no number: a number within the bounds, middle (of them), or "
    "exclude: whoever has none is left out, and counted with noise (trusted people's mean alone). A table needs it "
    "unless its column is declared to hold a number in every row."
)

_PLACES = {"at": "quantiles", "below": "shares-below", "above": "shares-above", "edges": "histogram"}

MISSINGS = (
    "Public: what a value counts as that is missing or no number: a number within the bounds, or middle (of them); one "
    "for all columns, or one for each. A table needs it unless its columns are declared to hold a number in every row."
)

MOST_PLACES = 50


@dataclass(frozen=True, kw_only=True)
class Number(Grouped):
    """One number a person, within public bounds."""

    kind: ClassVar[str] = "number"

    lower: float = field(help="Public lower bound of the value, chosen without looking at the data.")
    upper: float = field(help="Public upper bound of the value, chosen without looking at the data.")
    missing: float | str | None = field(None, help=MISSING)
    statistics: tuple[str, ...] = field(
        ("mean",), help="What is wanted of the number.", choices=STATISTICS, shown=True, option=""
    )
    at: tuple[float, ...] = field(
        (), help="For quantiles: the shares of people, such as 0.5, 0.9.", check=errors.between_0_and_1, option=""
    )
    below: tuple[float, ...] = field((), help="For shares-below: the values at or below which people are.", option="")
    above: tuple[float, ...] = field((), help="For shares-above: the values above which people are.", option="")
    edges: tuple[float, ...] = field((), help="For a histogram: the public edges of the bins, ascending.", option="")
    estimator: str | None = field(
        None,
        help="How the groups are weighed. Default: everyone.",
        choices={**ESTIMATORS, "hybrid": "adaptive, of quantiles and the like alone", **PERSONAL_ESTIMATORS},
    )
    sd: float | None = field(None, help="A known standard deviation (kvh needs it).", check=positive)
    local_sd: float | None = field(None, help="With sd: another one for local people.", check=positive, option="")
    gap: float | None = field(None, help="By how much the two groups' means differ at most.", check=at_least(0))
    lies: float = field(
        0.0,
        help="The largest share of local people who may send anything: the interval contains what they can do.",
        check=Check("must be at least 0 and below 1", lambda x: 0 <= x < 1),
    )
    trusted_weight: float | None = field(
        None,
        help="The weight of the trusted mean, for the estimator fixed.",
        check=at_least(0, 1),
        option="",
    )
    local: str = field(
        "best",
        help="The randomiser on local people's devices.",
        choices={
            "best": "the smallest noise for this epsilon",
            "dithered": "one bit, whether the value is above a drawn threshold, told truly with a stated chance",
            "piecewise": "a number that is near the value more often than elsewhere",
        },
    )
    form: str = field("plain", help="What local people are asked.", choices=NUMBER_FORMS)
    publish: str = field(
        "full",
        help="estimate-only seals the group figures and amplifies local people's privacy.",
        choices=("full", "estimate-only"),
    )
    clipped_share: float = field(
        0.0,
        help="Spend this share of the trusted group's epsilon to say how many of them the bounds clip.",
        check=Check("must be 0, or strictly between 0 and 1", lambda x: 0 <= x < 1),
        option="",
    )
    step: float | None = field(None, help="The step of the numbers, from lower on.", check=positive, option="")
    guessed: bool = field(
        False,
        help="`hybridp init` guessed these bounds from the column's name. Choose them, and delete this line.",
        option="",
    )

    def check(self) -> None:
        super().check()
        self.must(self.upper > self.lower, "upper", f"must be greater than lower ({self.lower:g})", f"{self.upper:g}")
        width, half = self.upper - self.lower, (self.upper - self.lower) / 2
        check_missing(self, self.missing, self.lower, self.upper, ("middle", "exclude"))
        self.must(bool(self.statistics), "statistics", "must name at least one", "none")
        once = len(set(self.statistics)) == len(self.statistics)
        self.must(once, "statistics", "must name each once", ", ".join(self.statistics))
        self._check_statistics()
        for name, most in (("sd", half), ("local_sd", half), ("gap", width), ("step", width)):
            value = getattr(self, name)
            rule = f"must be at most {most:g} for these bounds"
            self.must(value is None or value <= most * (1 + 1e-12), name, rule, value)
        check_estimator(self)
        if self.publish == "estimate-only":
            seals = (None, "everyone", "kvh", "pwh", "fixed", "tcm-only", "lm-only")
            fixed = self.estimator in seals and self.sd is not None
            rule = "must be full unless the weight is fixed in advance and sd is stated"
            self.must(fixed, "publish", rule, self.publish)
        if self.missing == "exclude":
            self._check_excluding()
        one = self.by is None and self.statistics in (("mean",), ("sum",))
        self.must(not (one and self.joint), "joint", "must go with by, or with several statistics", "one number")
        if self.by is not None:
            mean, rule = self.statistics == ("mean",), "must be the mean alone for an answer by a private group"
            self.must(mean or not self.by_private, "statistics", rule, ", ".join(self.statistics))
            curve = "must not name the distribution for an answer by group: ask for quantiles"
            self.must("distribution" not in self.statistics, "statistics", curve, "it")
            self.must(self.publish == "full", "publish", "must be full for an answer by group", self.publish)
            self.must(not self.clipped_share, "clipped_share", "must not go with by", self.clipped_share)

    def _check_excluding(self) -> None:
        """Who has no value can be left out of a mean of trusted people: a report cannot say that there is none."""
        rule = "must be left out where missing is exclude"
        more = f"{rule}, which is for the mean alone so far: state a value instead"
        self.left_out(more, "statistics", "by", "form", "publish")
        self.must(self.estimator in (None, "everyone", "tcm-only"), "estimator", f"{rule}, or tcm-only", self.estimator)
        self.must(self.noise != "gaussian", "noise", f"{rule}, or laplace", self.noise)

    def _check_statistics(self) -> None:
        """Each statistic has the places that it needs, and no others are given."""
        for name, wanted in _PLACES.items():
            places = getattr(self, name)
            rule = f"must be given exactly when statistics names {wanted}"
            self.must((wanted in self.statistics) == bool(places), name, rule, len(places) or "nothing")
            few = len(set(places)) == len(places) <= MOST_PLACES
            self.must(few, name, f"must be at most {MOST_PLACES} different numbers", len(places))
        for name in ("below", "above"):
            for place in getattr(self, name):
                rule = f"must lie between {self.lower:g} and {self.upper:g}"
                self.must(self.lower < place < self.upper, name, rule, f"{place:g}")
        if self.edges:
            Feature.binned(self.name, self.edges)  # rising
            inside = self.lower <= self.edges[0] and self.edges[-1] <= self.upper
            rule = f"must lie within the bounds, {self.lower:g} to {self.upper:g}"
            self.must(inside, "edges", rule, f"{self.edges[0]:g} to {self.edges[-1]:g}")
        rule = "must not be asked for where the lower bound is negative"
        self.must("gini" not in self.statistics or self.lower >= 0, "statistics", rule, "gini")
        rule = "must go with a mean: of other statistics those of the groups do not add up to the population's"
        self.must(not self.population or "mean" in self.statistics, "population", rule, ", ".join(self.statistics))
        rule = "must be adaptive in place of hybrid where the mean or the sum is asked for"
        self.must(self.estimator != "hybrid" or not self.summed, "estimator", rule, self.estimator)
        if self.counted:
            self.left_out("must go with the mean alone: of other statistics nothing bounds what lies do", "lies")
            rule = "must not be full-lm where more than the mean and the sum is asked for"
            self.must(self.estimator != "full-lm", "estimator", rule, self.estimator)
            rule = "must be full where more than the mean and the sum is asked for"
            self.must(self.publish == "full", "publish", rule, self.publish)
        if self.form == "steered":
            self._check_steered()

    def _check_steered(self) -> None:
        """One bit near the quantiles tells of the distribution there, and of nothing else; or it is a mean alone."""
        rule = "must be the mean alone, or name quantiles and neither mean nor sum, where local people are asked later"
        mean = self.statistics == ("mean",)
        asked = "quantiles" in self.statistics and not self.summed
        self.must(asked or mean, "statistics", rule, ", ".join(self.statistics))
        rule = "must be left out where trusted people are asked first, and local people around what they say"
        self.must(self.estimator in (None, "everyone"), "estimator", rule, self.estimator)
        self.left_out(rule, "by")
        if mean:
            self.left_out(rule, "sd", "local_sd", "gap", "lies", "publish", "clipped_share")
            self.must(self.noise != "gaussian", "noise", "must not be gaussian where a mean is steered", self.noise)
            return
        rule = "must be dithered, or left out, where people are asked around quantiles"
        self.must(self.local in ("best", "dithered"), "local", rule, self.local)

    @property
    def by_levels(self) -> bool:
        return self.statistics != ("mean",)

    def check_own_epsilons(self, study: Declaration) -> None:
        self.left_out(_OWN, "local_sd", "lies", "publish", "clipped_share", "form")
        if self.by_levels:
            shares = {"shares-below", "shares-above", "histogram"}.issuperset(self.statistics)
            rule = "must be the mean alone, or shares (below, above, histogram), where everyone has their own epsilon: "
            rule += "quantiles and spreads of the people of each do not add up to those of all"
            self.must(shares, "statistics", rule, ", ".join(self.statistics))
        super().check_own_epsilons(study)

    def check_study(self, study: Any) -> None:
        needs = "must go with everyone's own epsilon (promise.epsilon_column)"
        self.must(self.estimator not in PERSONAL_ESTIMATORS, "estimator", needs, self.estimator)

    def check_table(self, study: Any) -> None:
        rule = "must be plain over a table, where `hybridp release quantiles --invite-out` asks people in phases"
        self.must(self.form == "plain" or self.by_invitation, "form", rule, self.form)

    def wanted(self, study: Declaration) -> str:
        """What is asked for of the number: the mean alone, also within a window or by own epsilons, or more."""
        if self.by_invitation or study.promise.personal:
            return "steered" if self.by_invitation else "own epsilons"
        return "mean" if self.statistics == ("mean",) else "statistics"

    @property
    def by_invitation(self) -> bool:
        """A steered mean is: local people are asked within the window that trusted people named."""
        return self.form == "steered" and self.statistics == ("mean",)

    @property
    def in_phases(self) -> bool:  # type: ignore[override]
        return self.by is None

    @property
    def tally_kind(self) -> str:  # type: ignore[override]
        return "mean" if self.form == "plain" else ""

    @property
    def mixes(self) -> bool:  # type: ignore[override]
        return self.statistics == ("mean",) and self.by is None and self.form == "plain"

    def least_epsilon(self, *, trusted: bool) -> float:
        """Trusted people are counted in two looks, and where they are added up too each takes half."""
        return (4 if self.summed else 2) * LEAST_COUNTED if trusted and self.counted else LEAST

    def report_variance(self, promise: Guarantee) -> float:
        among = 1.0 if self.sd is None else (self.sd / ((self.upper - self.lower) / 2)) ** 2
        return among + randomiser(self.local, promise).worst_variance  # type: ignore[arg-type]

    def asks_everybody(self) -> str:
        sealed = "" if self.publish == "full" else f"`{self.name}` seals the groups' figures"
        return super().asks_everybody() or goes_by_people(self) or sealed

    @property
    def summed(self) -> bool:
        """Whether trusted values are added up: for the mean and the sum."""
        return not {"mean", "sum"}.isdisjoint(self.statistics)

    @property
    def counted(self) -> bool:
        """Whether trusted people are counted between places: for everything else."""
        return not {"mean", "sum"}.issuperset(self.statistics)


def goes_by_people(asked: Any) -> str:
    """Why a weight that goes by the groups' sizes needs everybody's answer."""
    by_people = asked.estimator in ("skew-aware", "full-lm") or asked.gap is not None
    return f"the estimator of `{asked.name}` goes by the numbers of people" if by_people else ""


def settled(asked: Any) -> None:
    """An estimator by its own name."""
    object.__setattr__(asked, "estimator", SYNONYMS.get(asked.estimator, asked.estimator))


def check_missing(
    asked: Any, value: float | str | None, lower: float, upper: float, words: tuple[str, ...] = ("middle",)
) -> None:
    """What a missing value counts as is a number within the bounds, or one of these words."""
    if value is not None:
        ok = value in words if isinstance(value, str) else lower <= value <= upper
        rule = f"must be a number from {lower:g} to {upper:g}, or {' or '.join(words)}"
        asked.must(ok, "missing", rule, value if isinstance(value, str) else f"{value:g}")


def check_estimator(asked: Any) -> None:
    settled(asked)
    asked.must(asked.estimator != "kvh" or bool(asked.sd), "sd", "must be given for the estimator kvh", "nothing")
    fixed = asked.estimator == "fixed"
    asked.must(
        fixed == (asked.trusted_weight is not None),
        "trusted_weight",
        "must be given for the estimator fixed, and for no other",
        "nothing" if asked.trusted_weight is None else asked.trusted_weight,
    )


KINDS["number"] = Number


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
            rule = "must be the only one where everyone has their own epsilon"
            self.must(len(self.questions) == 1, question.name, rule, f"{len(self.questions)} questions")
            rule = f"must be another question where everyone has their own epsilon: this one {question.one_epsilon}"
            self.must(not question.one_epsilon, question.name, rule, question.kind)
            question.check_own_epsilons(self)
            return
        gaussian = getattr(question, "noise", None) == "gaussian"
        rule = f"must be positive for the Gaussian noise of {question.name}"
        promise.must(not gaussian or promise.delta > 0, "delta", rule, promise.delta)
        rule = f"must be positive for {question.name}, a question of kind {question.kind}"
        promise.must(not question.needs_delta or promise.delta > 0, "delta", rule, promise.delta)
        question.check_study(self)

    def _check_mixer(self, mixer: Mixer) -> None:
        question, several = self.questions[0], len(self.questions) > 1
        for one in self.questions:
            mixes = one.mixes and not (several and one.by_invitation)
            rule = "must go with means, choices and vectors, which one report tells, or with records alone"
            self.must(mixes, "mixer", rule, f"{one.name}, a question of kind {one.kind}")
        rule = "must be split, or left out, where a mixer carries reports: a person's are one row of a batch"
        self.promise.must(self.promise.several != "drawn", "several", rule, "drawn")
        if self.promise.personal:
            rule = "must go with a plain mean where everyone has their own epsilon"
            self.must(not question.by_levels, "mixer", rule, question.kind)
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
        return promised(self.promise.epsilon, self.promise.delta)

    @property
    def trusted_guarantee(self) -> Guarantee:
        own = self.promise.trusted_epsilon
        return self.guarantee if own is None else promised(own, self.promise.delta)

    @cached_property
    def form(self) -> Form:
        """How several questions share the promise, and why: decided by the declaration alone."""
        if len(self.questions) == 1:
            return Form(False, "one question has the whole promise", {})
        best = best_form(self.questions, self.guarantee)
        if self.promise.several is None and self.mixer is None:
            return best
        drawn = self.promise.several == "drawn"
        form = "one drawn question for every local person" if drawn else "split over the questions"
        return Form(drawn, f"{form}, as {'stated' if self.promise.several else 'a mixer needs it'}", best.ratios)

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
        delta, several = self._mixed_delta(mixer), len(self.questions) > 1
        promise, size = ApproxDP(self.promise.epsilon, delta), self.questions[0].mixed_size()
        if size is not None and not several:  # a row of several reports is bounded as any randomiser is
            return share_mixing(promise, size, mixer.batch, epsilon=mixer.epsilon, cap=mixer.cap)
        return Mixing.planned(promise, mixer.batch, epsilon=mixer.epsilon, cap=mixer.cap)

    def mixing_of(self, place: int) -> Mixing | None:
        """The same of the report on one question: of several, its part of what a person's reports keep together."""
        whole = self.mixing
        if whole is None or len(self.questions) == 1:
            return whole
        part = split(PureDP(whole.epsilon), [question.weight for question in self.questions])[place]
        return replace(whole, epsilon=part.epsilon, whole=whole.epsilon)

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
        from hybridp.public.questions import to_toml

        write_new(path, to_toml(self))


ANSWERED = "answered"
"""The column that names the question which a local person's device drew."""
ANSWERED_IN = "answered_in"
"""The column that names the batch of the file that holds a report on an invitation."""

