"""The kinds of questions that a study may ask, each declared as fields with their help and check.

>>> Question.of({"name": "salary", "kind": "number", "lower": 0, "upper": 200_000}).columns_read
('salary',)
>>> Question.of({"name": "salary", "kind": "number", "lower": 9, "upper": 1})
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `salary.upper` must be greater than lower (9). Got 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from hybridp.errors import InvalidInput, did_you_mean
from hybridp.public.fields import Check, at_least, between_0_and_1, field, named, positive
from hybridp.public.mean import SYNONYMS
from hybridp.public.queries import Feature
from hybridp.public.randomisers import randomiser, share_oracle
from hybridp.public.shares import LEAST_COUNTED
from hybridp.public.study.basics import KINDS, LEAST, Grouped, Guarantee, Question

__all__ = ["KINDS", "Choice", "Count", "Grouped", "Number", "Question"]

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
    own_epsilons: ClassVar[bool] = True

    lower: float = field(help="Public lower bound of the value, chosen without looking at the data.")
    upper: float = field(help="Public upper bound of the value, chosen without looking at the data.")
    missing: float | str | None = field(None, help=MISSING)
    statistics: tuple[str, ...] = field(
        ("mean",), help="What is wanted of the number.", choices=STATISTICS, shown=True, option=""
    )
    at: tuple[float, ...] = field(
        (), help="For quantiles: the shares of people, such as 0.5, 0.9.", check=between_0_and_1, option=""
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
    gap: float | None = field(
        None, help="A bound on the difference of the two groups' means.", check=at_least(0), option=""
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
            self.must(self.statistics == ("mean",), "statistics", "must be the mean alone for an answer by group",
                      ", ".join(self.statistics))  # fmt: skip
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
        rule = "must be adaptive in place of hybrid where the mean or the sum is asked for"
        self.must(self.estimator != "hybrid" or not self.summed, "estimator", rule, self.estimator)
        if self.counted:
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
        if mean:
            self.left_out(rule, "sd", "local_sd", "gap", "by", "publish", "clipped_share")
            self.must(self.noise != "gaussian", "noise", "must not be gaussian where a mean is steered", self.noise)
            return
        rule = "must be dithered, or left out, where people are asked around quantiles"
        self.must(self.local in ("best", "dithered"), "local", rule, self.local)

    def check_own_epsilons(self) -> None:
        known = ("everyone", *PERSONAL_ESTIMATORS)
        rule = f"must be one of {', '.join(known)} where everyone has their own epsilon"
        self.must(self.estimator is None or self.estimator in known, "estimator", rule, self.estimator)
        uniform = ("local_sd", "gap", "publish", "clipped_share", "local", "statistics", "by", "form")
        self.left_out("must be left out where everyone has their own epsilon", *uniform)
        laplace = self.noise != "gaussian"
        self.must(laplace, "noise", "must not be gaussian where everyone has their own epsilon", self.noise)

    def check_study(self, study: Any) -> None:
        needs = "must go with everyone's own epsilon (promise.epsilon_column)"
        self.must(self.estimator not in PERSONAL_ESTIMATORS, "estimator", needs, self.estimator)

    def check_table(self, study: Any) -> None:
        rule = "must be plain over a table, where `hybridp release quantiles --invite-out` asks people in phases"
        self.must(self.form == "plain" or self.by_invitation, "form", rule, self.form)
        alone = len(study.questions) == 1 and not study.promise.personal
        rule = "must be that of a study's only question, with one epsilon for all: trusted people are asked first"
        self.must(self.form == "plain" or alone, "form", rule, self.form)

    @property
    def by_invitation(self) -> bool:
        """A steered mean is: local people are asked within the window that trusted people named."""
        return self.form == "steered" and self.statistics == ("mean",)

    @property
    def in_phases(self) -> bool:  # type: ignore[override]
        return self.by is None

    @property
    def tally_kind(self) -> str:  # type: ignore[override]
        return "" if self.form != "plain" or (self.summed and self.counted) else "mean"

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
    rule = "must go with an estimator that weighs by it (adaptive, skew-aware, kvh): everyone holds whatever the gap is"
    asked.must(asked.gap is None or asked.estimator not in (None, "everyone"), "gap", rule, asked.gap)
    asked.must(asked.estimator != "kvh" or bool(asked.sd), "sd", "must be given for the estimator kvh", "nothing")
    fixed = asked.estimator == "fixed"
    asked.must(
        fixed == (asked.trusted_weight is not None),
        "trusted_weight",
        "must be given for the estimator fixed, and for no other",
        "nothing" if asked.trusted_weight is None else asked.trusted_weight,
    )


@dataclass(frozen=True, kw_only=True)
class _Shares(Grouped):
    """What is asked of one option a person."""

    on_options: ClassVar[bool] = True

    estimator: str = field("everyone", help="Who is heard, and how the groups are weighed.", choices=CHOICE_ESTIMATORS)

    def check(self) -> None:
        super().check()
        settled(self)

    @property
    def size(self) -> int:
        """How many options there are."""
        return 2

    @property
    def mixes(self) -> bool:  # type: ignore[override]
        return self.by is None

    def mixed_size(self) -> int:
        return self.size

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
    def feature(self) -> Feature:
        """The options, or bins, and what stands for a field that is none of them."""
        column = str(self.column)
        if self.several is not None:
            return Feature(column, self.options, most=self.several)
        if self.edges:
            return Feature.binned(column, self.edges, other=self.other, missing=self.missing)
        return Feature.categorical(column, self.options, other=self.other, missing=self.missing)

    def _check_missing(self) -> None:
        if self.missing is None:
            return
        if self.several is not None:
            rule = "must be none where several options may be ticked: nothing is ticked"
            self.must(self.missing == "none", "missing", rule, self.missing)
            return
        options = Feature.binned(self.name, self.edges).values if self.edges else self.options
        known = [*options, *([] if self.other is None else [self.other]), "exclude"]
        hint = did_you_mean(self.missing, known)
        rule = f"must be one of {', '.join(known)}" if self.edges else "must be one of the options, or exclude"
        if self.missing not in known:
            raise InvalidInput(f"`{self.prefix}missing` {rule}. Got {self.missing!r}.{hint}")
        if self.missing == "exclude":
            rule = "must be left out where missing is exclude"
            self.must(self.by is None, "by", f"{rule}: state an option instead", self.by)
            self.must(self.estimator in ("everyone", "tcm-only"), "estimator", f"{rule}, or tcm-only", self.estimator)

    @property
    def mixes(self) -> bool:  # type: ignore[override]
        return self.several is None and super().mixes

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
        self.left_out(rule, "by_private", "compare")

    @property
    def feature(self) -> Feature:
        return Feature.categorical(str(self.column), (self.value,), other=f"not {self.value}")


KINDS |= {one.kind: one for one in (Number, Choice, Count)}
