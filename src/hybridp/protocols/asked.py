"""From a declared question, and its part of the promise, to the study of the protocol that answers it.

>>> from hybridp.public.study import Declaration
>>> pay = {"name": "pay", "kind": "number", "lower": 0, "upper": 10}
>>> mean_study(Declaration(promise=1.0, trust="trust", questions=[pay]), 0).guarantee.epsilon
1.0
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from hybridp.blend.mean import Rule
from hybridp.curator.heavy import RecordColumns
from hybridp.curator.mean import Columns
from hybridp.curator.sources import CHOICES, NUMBERS, TABLES, asks, must_be_public, unstated
from hybridp.curator.vector import VectorColumns
from hybridp.errors import must
from hybridp.public.budgets import ApproxDP
from hybridp.public.distribution import CELLS
from hybridp.public.groups import Grouping
from hybridp.public.kmeans import Box
from hybridp.public.lattice import Bounds
from hybridp.public.queries import Feature, Schema
from hybridp.public.study import (
    Choice,
    Count,
    Declaration,
    Grouped,
    Number,
    Points,
    Records,
    Regression,
    Table,
    Vector,
    needs_invitation,
)
from hybridp.public.synth import usual_method
from hybridp.public.trust import TrustRule, rule_of
from hybridp.public.vector import VectorBounds
from hybridp.public.workloads import stated_workload
from hybridp.tasks.distribution import DistributionStudy
from hybridp.tasks.joint import JointStudy
from hybridp.tasks.kmeans import KMeansStudy
from hybridp.tasks.mean import MeanStudy
from hybridp.tasks.number import NumberStudy, halves
from hybridp.tasks.personal import PersonalStudy
from hybridp.tasks.records import HeavyStudy
from hybridp.tasks.regression import RegressionStudy
from hybridp.tasks.shares import ShareStudy, bins, choice
from hybridp.tasks.steered import SteeredStudy
from hybridp.tasks.table import Method, SynthStudy
from hybridp.tasks.task import Task
from hybridp.tasks.vector import VectorStudy

__all__ = [
    "columns_of",
    "grouping",
    "joint_study",
    "heavy_study",
    "kmeans_study",
    "must_declare",
    "mean_study",
    "number_columns",
    "number_study",
    "personal_study",
    "record_columns",
    "regression_study",
    "reports_in",
    "several_columns",
    "share_columns",
    "share_study",
    "synth_study",
    "task_of",
    "trust_rule",
    "vector_columns",
    "vector_study",
]


def trust_rule(study: Declaration) -> TrustRule | str:
    """How a table says who trusts: the column's name where it holds `trusted` and `local`, otherwise the rule."""
    rule = rule_of(study.trust)
    assert rule is not None
    return rule.column if rule.column is not None and not rule.trusted else rule


def mean_study(study: Declaration, place: int) -> MeanStudy:
    """The mean of the number that is asked for at this place among the questions."""
    asked, part = cast(Number, study.questions[place]), study.parts[place]
    bounds = Bounds(asked.lower, asked.upper)

    def unit(size: float | None) -> float | None:
        return None if size is None else size / bounds.half

    rule = Rule(
        name=cast(Any, asked.estimator or "everyone"),
        sd=unit(asked.sd),
        local_sd=unit(asked.local_sd),
        gap=unit(asked.gap),
        weight=asked.trusted_weight,
    )
    assert part.everybody is not None
    return MeanStudy(
        bounds=bounds,
        guarantee=part.everybody,
        rule=rule,
        local=cast(Any, asked.local),
        noise=cast(Any, asked.noise),
        trusted_guarantee=part.trusted,
        level=study.level,
        publish=cast(Any, asked.publish),
        clipped_share=asked.clipped_share,
        mixing=study.mixing,
        answering=study.chances[asked.name],
    )


def number_study(study: Declaration, place: int) -> NumberStudy:
    """The statistics of the number that is asked for at this place among the questions.

    Where sums and counts are both needed each has half of the trusted people's part.
    """
    asked, part = cast(Number, study.questions[place]), study.parts[place]
    assert part.everybody is not None
    summed = counted = part.trusted or part.everybody
    if asked.summed and asked.counted:
        summed, counted = halves(summed)
    together = _intervals(asked) if asked.joint else 0
    mean = None
    if asked.summed:
        usual = mean_study(study, place)
        rule = usual.rule
        if rule.name == "alike":  # whatever the groups' sizes
            rule = replace(rule, name="adaptive")
        mean = replace(usual, rule=rule, trusted_guarantee=summed, level=1 - (1 - study.level) / max(together, 1))
    distribution = None
    if asked.counted:
        distribution = DistributionStudy(
            Bounds(asked.lower, asked.upper),
            part.everybody,
            at=asked.at,
            below=asked.below,
            spread=not {"variance", "sd", "gini", "distribution"}.isdisjoint(asked.statistics),
            estimator=_heard_in_counts(asked.estimator),
            local=cast(Any, asked.local),
            noise=cast(Any, asked.noise),
            trusted_guarantee=counted,
            level=study.level,
            above=asked.above,
            edges=asked.edges,
            together=together,
            step=asked.step,
        )
    return NumberStudy(asked.statistics, mean, distribution, study.level, asked.joint)


def _heard_in_counts(estimator: str | None) -> Any:
    """The distribution's estimator beside this one of the mean: whatever weighs by precision takes groups for alike."""
    name = "everyone" if estimator in (None, "naive") else estimator
    return name if name in ("everyone", "tcm-only", "lm-only", "hybrid") else "alike"


def _intervals(asked: Number) -> int:
    """How many intervals joint coverage is about: a sum's says what the mean's does, an sd's the variance's."""
    alone = asked.summed + (not {"variance", "sd"}.isdisjoint(asked.statistics)) + ("gini" in asked.statistics)
    curve = CELLS if "distribution" in asked.statistics else 0
    return alone + len(asked.at) + len(asked.below) + len(asked.above) + max(len(asked.edges) - 1, 0) + curve


def grouping(study: Declaration, place: int) -> Grouping | None:
    """By which groups the question at this place is to be answered; None where it is for everybody at once."""
    asked = study.questions[place]
    if not isinstance(asked, Grouped) or asked.by is None:
        return None
    return Grouping(asked.by, asked.categories, asked.by_private, asked.least, asked.compare, asked.joint)


_WAYS = {Choice: CHOICES, Table: TABLES}


def must_declare(study: Declaration, data: Any) -> None:
    """Refuse what is not declared, before anything is opened: that a column is public by whose groups, or own epsilons,
    it is told exactly who holds what; and what a missing field counts as, where no query says that there is none."""
    for place, asked in enumerate(study.questions):
        by, stated = grouping(study, place), getattr(asked, "missing", "nothing")
        if isinstance(asked, Choice):
            stated = stated or asked.other or asked.several
        if isinstance(asked, Table):
            stated = asked.other or all(one.missing for one in asked.features) or None
        if asks(data) and stated in (None, ()) and study.trust.everyone != "local":
            raise unstated(asked.columns_read[0], _WAYS.get(type(asked), NUMBERS))
        if by is not None and not by.private:
            must_be_public(data, "by", by.column)
    if study.promise.epsilon_column is not None:
        must_be_public(data, "epsilon-column", study.promise.epsilon_column)


def joint_study(study: Declaration, place: int) -> JointStudy:
    """The mean or shares by a private category that are asked for at this place among the questions."""
    groups = grouping(study, place)
    assert groups is not None
    asked = study.questions[place]
    own = mean_study(study, place) if isinstance(asked, Number) else share_study(study, place)
    return JointStudy(own, asked.columns_read[0], groups)


def task_of(study: Declaration, place: int) -> Task:
    """The question at this place, at its part of the promise."""
    question, groups = study.questions[place], grouping(study, place)
    if groups is not None and groups.private:
        return joint_study(study, place)
    made: Callable[[Declaration, int], Task] | None = _STUDIES.get(question.kind)
    if made is not None:
        return made(study, place)
    question = cast(Number, question)
    if question.form == "steered" and question.statistics == ("mean",):
        return SteeredStudy(mean_study(study, place))
    if study.promise.personal:
        named = study.promise.epsilon_column is not None
        must(named, "promise.epsilon_column", "must name the column of everyone's own epsilon", "nothing")
        return personal_study(study, place)
    plain = groups is not None or question.statistics == ("mean",)
    return mean_study(study, place) if plain else number_study(study, place)


def columns_of(study: Declaration, place: int, trust: Any) -> Any:
    """Where a table holds what the question asks for, and the reports on it."""
    kind = study.questions[place].kind
    return _COLUMNS[kind](study, place, trust) if kind in _COLUMNS else share_columns(study, place, trust)


def personal_study(study: Declaration, place: int) -> PersonalStudy:
    """The same where everyone has their own epsilon."""
    asked = cast(Number, study.questions[place])
    bounds = Bounds(asked.lower, asked.upper)
    estimator = cast(Any, asked.estimator or "everyone")
    mixing = study.level_mixing
    return PersonalStudy(bounds, estimator, sd=asked.sd, share=study.promise.share, level=study.level, mixing=mixing)


def number_columns(study: Declaration, place: int, trust: Any) -> Columns:
    """Where a table holds the number, and the reports on it."""
    asked, people = cast(Number, study.questions[place]), study.people
    rule = "must be plain over a table, where `hybridp release quantiles --invite-out` asks people in phases"
    asked.must(asked.form == "plain" or needs_invitation(asked), "form", rule, asked.form)
    alone = len(study.questions) == 1 and not study.promise.personal
    rule = "must be that of a study's only question, with one epsilon for all: trusted people are asked about it first"
    asked.must(asked.form == "plain" or alone, "form", rule, asked.form)
    report = study.report_columns(asked)[0]
    return Columns(
        asked.columns_read[0], trust, report, people.column, people.record_key, people.record_id, asked.missing
    )


def share_study(study: Declaration, place: int) -> ShareStudy:
    """The shares of the options, or bins, that are asked for at this place among the questions."""
    asked, part = cast(Choice | Count, study.questions[place]), study.parts[place]
    assert part.everybody is not None
    assert asked.column is not None
    if isinstance(asked, Count):
        feature = choice(asked.column, (asked.value,), other=f"not {asked.value}")
    elif asked.edges:
        feature = bins(asked.column, asked.edges, other=asked.other, missing=asked.missing)
    elif asked.several is not None:
        feature = Feature(asked.column, asked.options, most=asked.several)
    else:
        feature = choice(asked.column, asked.options, other=asked.other, missing=asked.missing)
    return ShareStudy(
        feature,
        part.everybody,
        cast(Any, asked.estimator),
        cast(Any, asked.noise),
        part.trusted,
        study.level,
        isinstance(asked, Choice) and asked.joint,
        None if feature.most else study.mixing,
        study.chances[asked.name],
    )


def share_columns(study: Declaration, place: int, trust: Any) -> Columns:
    """Where a table holds the options, and the reports on them."""
    asked, people = study.questions[place], study.people
    report = study.report_columns(asked)[0]
    if isinstance(asked, Choice) and asked.several is not None:
        rule = "must be none: of several options, a person without an answer has ticked nothing"
        asked.must(asked.missing is not None, "missing", rule, "nothing")
    return Columns(asked.columns_read[0], trust, report, people.column, people.record_key, people.record_id)


def vector_study(study: Declaration, place: int) -> VectorStudy:
    """The mean of the vector that is asked for at this place among the questions."""
    asked, part = cast(Vector, study.questions[place]), study.parts[place]
    bounds = VectorBounds.of(asked.lower, asked.upper, norm=cast(Any, asked.norm), radius=asked.radius)
    name = cast(Any, asked.estimator)
    sizes: list[float | None] = [None]
    if asked.sd:
        sizes = [size / b.half for size, b in zip(asked.sd, bounds.bounds, strict=True)]
    assert part.everybody is not None
    return VectorStudy(
        bounds,
        part.everybody,
        rules=tuple(Rule(name=name, sd=sd, gap=asked.gap, weight=asked.trusted_weight) for sd in sizes),
        local=cast(Any, asked.local),
        noise=cast(Any, asked.noise),
        trusted_guarantee=part.trusted,
        level=study.level,
        joint=asked.joint,
        mixing=study.mixing,
        answering=study.chances[asked.name],
    )


def reports_in(study: Declaration, place: int) -> tuple[str, ...]:
    """The columns of a table of which one at least is filled where a person reported; none answer an invitation."""
    columns = study.report_columns(study.questions[place])
    return columns[:-1] if isinstance(study.questions[place], Vector) else columns[:1]


def vector_columns(study: Declaration, place: int, trust: Any) -> VectorColumns:
    """Where a table holds the vector, and the reports on it."""
    asked = cast(Vector, study.questions[place])
    mechanism = study.report_columns(asked)[-1]
    return VectorColumns(asked.columns, trust, study.people.column, asked.missing or None, mechanism)


def heavy_study(study: Declaration, place: int) -> HeavyStudy:
    """The heavy hitters that are asked for at this place among the questions."""
    asked, part = cast(Records, study.questions[place]), study.parts[place]
    assert isinstance(part.everybody, ApproxDP)
    assert part.trusted is None or isinstance(part.trusted, ApproxDP)
    return HeavyStudy(
        part.everybody,
        depth=len(asked.columns),
        head=asked.head,
        discovery_share=asked.discovery_share,
        reuse=asked.reuse,
        level=study.level,
        estimator=cast(Any, asked.estimator),
        mixing=study.mixing,
        trusted_guarantee=part.trusted,
    )


def record_columns(study: Declaration, place: int, trust: Any) -> RecordColumns:
    """Where a table holds people's records."""
    asked, people = cast(Records, study.questions[place]), study.people
    assert people.column is not None
    return RecordColumns(people.column, asked.columns, trust, people.record_key, people.record_id)


def kmeans_study(study: Declaration, place: int) -> KMeansStudy:
    """The clustering that is asked for at this place among the questions."""
    asked, part = cast(Points, study.questions[place]), study.parts[place]
    assert part.everybody is not None
    box = Box(asked.lower, asked.upper)
    return KMeansStudy(box, asked.clusters, part.everybody, asked.iterations, part.trusted)


def regression_study(study: Declaration, place: int) -> RegressionStudy:
    """The regression that is asked for at this place among the questions."""
    asked, part = cast(Regression, study.questions[place]), study.parts[place]
    assert part.everybody is not None
    return RegressionStudy(
        VectorBounds.of(asked.lower, asked.upper),
        part.everybody,
        cast(Any, asked.model),
        cast(Any, asked.form),
        cast(Any, asked.noise),
        part.trusted,
        asked.clip,
        study.level,
        asked.joint,
    )


def several_columns(study: Declaration, place: int, trust: Any) -> VectorColumns:
    """Where a table holds the coordinates of points, or the predictors and, last, the target."""
    asked = cast(Points | Regression, study.questions[place])
    person = study.people.column if asked.kind == "regression" else None
    return VectorColumns(asked.columns, trust, person, asked.missing or None)


def synth_study(study: Declaration, place: int, *, mixed: bool = False) -> SynthStudy:
    """The synthetic table that is asked for at this place among the questions; `mixed` where local people take part."""
    asked, part = cast(Table, study.questions[place]), study.parts[place]
    assert isinstance(part.everybody, ApproxDP)
    features = tuple(
        Feature.binned(one.name, one.edges, missing=one.missing)
        if one.edges
        else Feature.categorical(one.name, one.values, missing=one.missing)
        for one in asked.features
    )
    workload = stated_workload(
        Schema(features).counting(asked.other),
        asked.thresholds,
        asked.marginals,
        law=asked.law,
        most_queries=asked.most_queries,
        seed=asked.workload_seed,
    )
    if mixed:
        asked.check_mixed()
    chosen = "mixed" if mixed else asked.method or usual_method(workload)
    return SynthStudy(workload, part.everybody, method=cast(Method, chosen), rows=asked.rows)


_STUDIES: dict[str, Callable[[Declaration, int], Task]] = {
    "choice": share_study, "count": share_study, "points": kmeans_study, "records": heavy_study,
    "regression": regression_study, "vector": vector_study,
}  # fmt: skip
_COLUMNS: dict[str, Callable[[Declaration, int, Any], Any]] = {
    "number": number_columns, "points": several_columns, "records": record_columns, "regression": several_columns,
    "vector": vector_columns,
}  # fmt: skip
