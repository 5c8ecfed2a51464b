"""The kinds of questions about whole rows: records, points, a regression, a table; declared as fields.

>>> Regression(name="hours", target="hours", on=["age,schooling"], lower=[0], upper=[100]).columns
('age', 'schooling', 'hours')
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from hybridp.public.regression import MOST_PREDICTORS
from hybridp.public.study.fields import Fields, at_least, between_0_and_1, field, positive
from hybridp.public.study.question import KINDS, Question, named
from hybridp.public.study.questions import MISSINGS, NOISES, Box, Number, check_box, check_missings

__all__ = ["INVITED", "Feature", "Points", "Records", "Regression", "Table", "needs_invitation"]

FORMS = {
    "best": "what promises less error",
    "steered": "how far they are from the line of the trusted people",
    "plain": "all products of the columns",
    "tcm-only": "nothing: only the people who trust are heard",
}


@dataclass(frozen=True, kw_only=True)
class Regression(Question):
    """A target explained by several columns; the promise covers all of them together."""

    kind: ClassVar[str] = "regression"
    _what: ClassVar[str] = "a question of kind regression"

    target: str = field(help="The column that is explained.", check=named)
    on: tuple[str, ...] = field(help="The columns that explain it: A,B.", check=named)
    lower: tuple[float, ...] = field(
        help="Public lower bounds: one for all columns, or one for each, the target's last."
    )
    upper: tuple[float, ...] = field(
        help="Public upper bounds: one for all columns, or one for each, the target's last."
    )
    missing: tuple[float | str, ...] = field((), help=f"{MISSINGS} The target's is the last.")
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
    noise: str = field("best", help="Noise of the trusted group.", choices=NOISES)
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
        check_box(self)
        few = len(split) <= MOST_PREDICTORS
        self.must(few, "on", f"must name 1 to {MOST_PREDICTORS} columns", len(split))
        check_missings(self)
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
    _what: ClassVar[str] = "a question of kind records"

    columns: tuple[str, ...] = field(help="The record's column, or two: query and url.", check=named, option="column")
    head: int = field(50, help="The most queries to keep (M).", check=at_least(1, 10_000))
    discovery_share: float = field(0.95, help="Trusted people used to discover.", check=between_0_and_1, option="")
    reuse: bool = field(True, help="Blend the discovery group's noisy counts too.", option="")
    estimator: str = field("alike", help="How far reports move what the trusted counted.", choices=RECORD_ESTIMATORS)
    max_records: int = field(
        100, help="The most records that one person may send to the service.", check=at_least(1, 1000), option=""
    )
    max_length: int = field(
        200, help="The most characters of a record that is sent to the service.", check=at_least(1, 1000), option=""
    )

    def check(self) -> None:
        self.must(len(self.columns) in (1, 2), "columns", "must be one column, or two: query and url",
                  len(self.columns))  # fmt: skip
        self.must(len(set(self.columns)) == len(self.columns), "columns", "must have different names", "a name twice")


@dataclass(frozen=True, kw_only=True)
class Points(Box):
    """Points in a public box, to be clustered around K centres."""

    kind: ClassVar[str] = "points"
    _what: ClassVar[str] = "a question of kind points"

    clusters: int = field(help="How many centres (K).", check=at_least(1))
    iterations: int | None = field(
        None, help="The most questions to anyone. Default: planned from public numbers.", check=at_least(1), option=""
    )


INVITED = (Records, Points, Regression)


def needs_invitation(question: Question) -> bool:
    """Whether local people can answer only what they have been sent: these kinds, and the steered mean of a number."""
    mean = isinstance(question, Number) and question.form == "steered" and question.statistics == ("mean",)
    return isinstance(question, INVITED) or mean


KINDS |= {one.kind: one for one in INVITED}


@dataclass(frozen=True, kw_only=True)
class Feature(Fields):
    """One column of a synthetic table, with its public values or the public edges of its bins."""

    _what: ClassVar[str] = "a column of a table"

    name: str = field(help="The column.", check=named)
    values: tuple[str, ...] = field((), help="Its public values.")
    edges: tuple[float, ...] = field((), help="Or the public edges of its bins, ascending.")
    missing: bool = field(False, help="What is missing or not listed is a category of its own.")

    @property
    def label(self) -> str:
        name = getattr(self, "name", None)
        return f"{name}." if isinstance(name, str) and name else "feature."

    def check(self) -> None:
        one = bool(self.values) != bool(self.edges)
        self.must(one, "values", "must be given, or edges in their place", "both" if self.values else "neither")
        rising = all(a < b for a, b in zip(self.edges, self.edges[1:], strict=False))
        self.must(rising, "edges", "must ascend", ", ".join(f"{e:g}" for e in self.edges))
        distinct = len(set(self.values)) == len(self.values)
        self.must(distinct, "values", "must be different from each other", "a value twice")


@dataclass(frozen=True, kw_only=True)
class Table(Question):
    """A synthetic table with the original columns and values.

    Where local people take part their device draws one of the stated marginals and reports on it (`check_mixed`).
    """

    kind: ClassVar[str] = "table"
    _what: ClassVar[str] = "a question of kind table"

    features: tuple[Feature, ...] = field(help="The columns of the table with their public values or edges.", option="")
    other: str | None = field(
        None,
        help="Public: what a field counts as that is missing or not listed, in a column that has no category for it: "
        "last, the last value; or missing, such a category. A table needs it, or `missing` in every column.",
        choices=("last", "missing"), option="",
    )  # fmt: skip
    marginals: tuple[str, ...] = field((), help='Questions of your own: "age,sex,race" or "2-of: age,sex,race".')
    thresholds: str | None = field(None, help='Kinds of questions and how many: "3-of-3:64, 1-of-4:16".')
    law: str = field("uniform", help="How thresholds picks columns: uniform, or zipf[:s] or geometric[:p].", option="")
    most_queries: int | None = field(
        None, help="Leave out sets of columns with more consistent queries than this.", check=at_least(1), option=""
    )
    workload_seed: int = field(0, help="Public: decides what thresholds picks.", check=at_least(0), option="")
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
        some = bool(self.marginals) or self.thresholds is not None
        self.must(some, "marginals", "must be given, or thresholds", "neither")

    def check_mixed(self) -> None:
        """What cannot go together where local people take part: one model is fitted to the stated marginals of both."""
        self.must(self.method is None, "method", "must be left out where local people take part", self.method)

    @property
    def columns_read(self) -> tuple[str, ...]:
        return tuple(feature.name for feature in self.features)


KINDS[Table.kind] = Table
