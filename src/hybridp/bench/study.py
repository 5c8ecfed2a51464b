"""How good will a study be? Every question's plan at its part of the promise, from public numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from hybridp.bench.number import USED, AlonePlan, NumberPlan
from hybridp.bench.steered_mean import SteeredPlan, plan_steered
from hybridp.curator.groups import group_sizes
from hybridp.curator.sources import Counted, count_people, must_not_ask, with_public
from hybridp.errors import InvalidInput, must
from hybridp.protocols import asked
from hybridp.protocols.mean import MeanStudy
from hybridp.public.study import (
    REPORTED,
    Choice,
    Count,
    Declaration,
    Number,
    Points,
    Records,
    Regression,
    Table,
    Vector,
)
from hybridp.release import style
from hybridp.release.result import Result, Words, people_words, plan_document

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["StudyPlan", "plan_study", "taken"]

DISTINCT = 1_000_000
"""Distinct records that a plan of heavy hitters takes there to be, their popularity falling as one over the rank."""


_SHARES = ("shares", "histogram", "shares_by_group", "histogram_by_group", "shares-below", "shares-above", "gini")
_IN_RANGE = ("mean", "mean_by_group", "vector-mean", "sum", "quantiles", "sd", "count", *_SHARES)


@dataclass(frozen=True)
class StudyPlan(Result):
    """The plans of a study's questions by their names, for so many trusted and local people.

    Where some people trust the study's mixer, `mixed` is its one question's plan of three groups, as plain data: the
    error of all together, each group's weight, and what a person's move from one group to the next is worth. Of a mean
    that is steered, `steered` is the standard deviation that is assumed, as none is stated, and both errors at it.
    """

    study: Declaration
    trusted: int
    local: int
    plans: Mapping[str, Any]
    shuffled: int = 0
    mixed: Mapping[str, Any] | None = None
    steered: tuple[float, SteeredPlan] | None = None

    def __getitem__(self, name: str) -> Any:
        return self.plans[name]

    @property
    def people(self) -> int:
        return self.trusted + self.local + self.shuffled

    def plot(self, ax: Axes | None = None) -> Axes:
        """The predicted standard errors of numbers, vectors and shares, in shares of their ranges; needs matplotlib."""
        shown = {name: error for name, plan in self.plans.items() if (error := self._error(name, plan)) is not None}
        if not shown and len(self.plans) == 1:
            alone: Axes = next(iter(self.plans.values())).plot(ax)
            return alone
        if not shown:
            raise InvalidInput("`plot` must be of a study with a question of kind number, choice or vector. Got none.")
        ax = style.new_axes(ax, 7.2, 1.7 + 0.35 * len(shown))
        style.sized_rows(ax, [(name, error, f"±{style.percent(error, 3)}") for name, error in shown.items()])
        style.plain_numbers(ax.xaxis, percents=True)
        ax.set_xlabel("expected standard error, as a share of the public range")
        several = any(isinstance(q, (Choice, Count, Vector)) for q in self.study.questions)
        of = " Of a question's options or columns the largest." if several else ""
        style.dress(ax, self._title, f"Further left is better. Against the mean of the population.{of}")
        return ax

    @property
    def _title(self) -> str:
        epsilon = self.study.promise.epsilon
        promise = "an epsilon of their own" if epsilon is None else f"epsilon {epsilon:g}"
        return f"{self.study.title or 'A study'}: {people_words(self.trusted, self.local, self.shuffled)}, {promise}"

    def to_frame(self) -> DataFrame:
        """The questions' tables below each other, with the question's name; needs pandas, the extra "frames"."""
        import pandas as pd

        parts = [_named(plan.to_frame()).assign(question=name) for name, plan in self.plans.items()]
        found: DataFrame = pd.concat(parts, ignore_index=True)
        return found[["question", *(name for name in found.columns if name != "question")]]

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        told = ((name, self._error(name, plan)) for name, plan in self.plans.items())
        rows = [(name, "" if error is None else f"±{style.percent(error, 3)} of the range") for name, error in told]
        remarks: tuple[str, ...] = () if len(rows) == 1 else (f"The promise: {self.study.form.why}.",)
        if self.mixed is not None:
            moves = {name: np.min(worth) for name, worth in self.mixed["moves_in_local_people"].items()}
            remarks += (f"A move is worth so many local people more: {_listed(moves)}.",)
        remarks += (self.steering,) if self.steered is not None else ()
        remarks += (self.pessimistic,) if self.pessimistic else ()
        return Words(self._title, ("question", "expected standard error"), rows, remarks)

    @property
    def pessimistic(self) -> str:
        """Of which means no spread is stated, so that the largest there is stands in for it; empty where of none."""
        unstated = [q.name for q in self.study.questions if isinstance(q, Number) and q.summed and q.sd is None]
        if not unstated or self.study.promise.personal:
            return ""
        return (
            f"Of {', '.join(unstated)} no sd is stated: the largest there is, half the range, is assumed, and errors "
            "are at most these; at a sixth of the range they can be half as large. State sd for closer ones."
        )

    @property
    def steering(self) -> str:
        """Whether local people should be asked within a window, in a sentence; nothing where no mean is steered."""
        if self.steered is None:
            return ""
        sd, plan = self.steered
        return f"At a standard deviation of {sd:.6g}, a sixth of the range: {plan.said[0].lower()}{plan.said[1:]}"

    def all_words(self) -> list[Words]:
        """Every question's own table, under the study's title."""
        return [self.in_words(), *(plan.in_words() for plan in self.plans.values())]

    def _error(self, name: str, plan: Any) -> float | None:
        """One standard error against the population, in shares of the range; the largest of options or columns."""
        (question,) = [q for q in self.study.questions if q.name == name]
        if not isinstance(question, REPORTED):
            return None
        told = self._told(name, plan)
        width = np.subtract(question.upper, question.lower) if isinstance(question, (Number, Vector)) else 1.0
        of = next((one for one in _IN_RANGE if one in told), None)
        if of is None:
            return None
        facts = told[of]
        width = {"sum": width * self.people, "count": self.people}.get(of, 1.0 if of in _SHARES else width)
        if self.mixed is not None:
            return float(np.max(np.divide(self.mixed["rmse_population"], width)))
        known = facts["predicted"]["estimators"]
        used = next(known[one] for one in (taken(facts["predicted"]), *USED) if one in known)
        error = used["rmse_population"] if "rmse_population" in used else math.sqrt(max(used["mse"], 0.0))
        return float(np.max(np.divide(error, width)))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        promise = self.study.promise
        document = plan_document(
            {name: self._told(name, plan) for name, plan in self.plans.items()},
            people=self.people,
            opt_in=self.trusted / self.people,
            epsilon="personal" if promise.epsilon is None else promise.epsilon,
            delta=promise.delta,
            trusted_epsilon=promise.trusted_epsilon,
            shuffled=self.shuffled,
        )
        return document if len(self.plans) == 1 else {**document, "several": self._several()}

    def _told(self, name: str, plan: Any) -> dict[str, Any]:
        """What a plan's own document says; where the study states an estimator, that one and no default."""
        facts = _facts(plan.to_dict())
        (i,) = [i for i, question in enumerate(self.study.questions) if question.name == name]
        stated = _stated(self.study, i)
        for told in facts.values():
            known = told.get("predicted", {})
            stated = known.get("alike", {}).get("estimator") if stated == "alike" else stated
            if stated in known.get("estimators", {}):
                known.pop("default", None)
                known["estimator"] = stated
            if self.mixed is not None:
                known["shuffled"] = dict(self.mixed)
            if self.steered is not None:
                known["steered"] = {"sd": self.steered[0], **self.steered[1].to_dict()}
        return facts

    def _several(self) -> dict[str, Any]:
        """How the questions share the promise, and why."""
        form = self.study.form
        return {
            "form": "drawn" if form.drawn else "split",
            "why": form.why,
            "stated": self.study.promise.several is not None,
            "drawn_over_split": dict(form.ratios),
            "chances": self.study.chances,
        }


def taken(predicted: Mapping[str, Any]) -> str:
    """The estimator that a release takes, as far as a plan says so (else ""): the stated one, or the default."""
    return str(predicted.get("estimator") or predicted.get("default", {}).get("estimator", ""))


def _stated(study: Declaration, i: int) -> str | None:
    """The estimator that a question states, or that several statistics of a number take whatever the groups' sizes."""
    question = study.questions[i]
    if isinstance(question, Number) and question.statistics != ("mean",) and not study.promise.personal:
        mean = asked.number_study(study, i).mean
        return question.estimator if mean is None else mean.rule.name
    return getattr(question, "estimator", None)


def _facts(document: Mapping[str, Any]) -> dict[str, Any]:
    """What a plan's own document says of its statistics."""
    (facts,) = document["questions"].values()
    return dict(facts)


def plan_study(
    study: Declaration, data: Any = None, *, table: str | None = None, trust: Any = None,
    trusted: int | None = None, local: int | None = None, shuffled: int | None = None,
) -> StudyPlan:  # fmt: skip
    """Predict every question's error. Nothing is charged, and of `data` only what is public is read."""
    data = with_public(data, study.people.public)
    mixed = study.people.shuffled or 0 if shuffled is None else shuffled
    rule = "must go with a study that has a mixer ([mixer])"
    must(not mixed or study.mixer is not None, "shuffled", rule, mixed)
    rule = "must be left out where everyone has their own epsilon"
    must(not mixed or not study.promise.personal, "shuffled", rule, mixed)
    counted = _people(study, data, table, trust, trusted, local)
    plans = {
        q.name: _plan(study, i, counted, _sizes(study, i, data, table, trust)) for i, q in enumerate(study.questions)
    }
    if study.drawn:  # a sum or a count is about everybody, whichever question they answered
        everyone = counted.trusted + counted.local
        plans = {
            name: replace(plan, everyone=everyone) if hasattr(plan, "everyone") else plan
            for name, plan in plans.items()
        }
    three = _three_groups(study, counted, mixed, *plans.values()) if mixed else None
    return StudyPlan(study, counted.trusted, counted.local, plans, mixed, three, _steered(study, counted))


def _steered(study: Declaration, people: Counted) -> tuple[float, SteeredPlan] | None:
    """Of a mean that is steered, which is a study's only question: the spread that is assumed, and the plan at it."""
    question = study.questions[0]
    if not isinstance(question, Number) or question.form != "steered" or not question.summed:
        return None
    if not people.trusted or not people.local:
        return None
    sd = (question.upper - question.lower) / 6
    return sd, plan_steered(_number(study, 0, people, people.trusted / (people.trusted + people.local), sd=sd))


def _three_groups(study: Declaration, people: Counted, shuffled: int, plan: Any) -> dict[str, Any]:
    """The same question where so many people trust the mixer, as plain data."""
    from hybridp.bench.planning import mechanisms_of
    from hybridp.bench.shuffling import plan_groups, plan_record_groups, plan_vector_groups

    question, mixing = study.questions[0], study.mixing
    assert mixing is not None
    many = people.trusted, shuffled, people.local
    how = {"by_people": getattr(question, "estimator", None) in (None, "everyone")}
    if isinstance(question, Choice):
        told: dict[str, Any] = plan.three_groups(many, mixing, cast(Any, question.noise), **how)
        return told
    if isinstance(question, Records):
        return plan_record_groups(*many, plan, mixing).to_dict()
    if isinstance(question, Vector):
        return plan_vector_groups(*many, asked.vector_study(study, 0), plan.sd, **how).to_dict()
    own = asked.mean_study(study, 0)
    known = mechanisms_of(own.bounds, own.guarantee, own.noise, own.local, None, own.trusted_guarantee)
    return plan_groups(*many, known, mixing, sd=plan.sd, **how).to_dict()


def _listed(numbers: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {number:.3g}" for name, number in numbers.items())


def _asked(study: Declaration, name: str, people: Counted) -> Counted:
    """The people who answer a question: of the local ones as many as draw it, on average."""
    return replace(people, local=round(people.local * study.chances[name])) if study.drawn else people


def _people(
    study: Declaration, data: Any, table: str | None, trust: Any, trusted: int | None, local: int | None
) -> Counted:
    if data is not None:
        rule = asked.trust_rule(study) if trust is None else trust
        answers = {question.name: question.columns_read for question in study.questions}
        people = study.people.column, study.promise.epsilon_column
        instead = "State how many are expected (--n and --opt-in, or people.trusted and people.local)"
        must_not_ask(data, "people are counted for a plan, which pays for nothing", instead)
        found = count_people(data, rule, *people, answers=answers, table=table)
    else:
        many = (study.people.trusted if trusted is None else trusted, study.people.local if local is None else local)
        if many[0] is None or many[1] is None:
            raise InvalidInput(
                "`people.trusted` and `people.local` must be given for a plan: how many people are expected in each "
                "group; or a table, whose people are counted. Got neither."
            )
        found = Counted(many[0], many[1])
    if found.trusted + found.local < 2:
        raise InvalidInput(f"`people` must be at least 2 for a plan. Got {found.trusted + found.local}.")
    return found


def _sizes(study: Declaration, i: int, data: Any, table: str | None, trust: Any) -> Mapping[str, int] | None:
    """How many people every public group of a table has; None where no table says so."""
    by = asked.grouping(study, i)
    if data is None or by is None or by.private:
        return None
    rule = asked.trust_rule(study) if trust is None else trust
    found = group_sizes(data, by.column, rule, study.people.column, table=table)
    return {name: sum(people) for name, people in by.sized(found).items()}


def _by_group(study: Declaration, i: int, people: Counted, opt_in: float, sizes: Mapping[str, int] | None) -> Any:
    from hybridp.bench.groups import plan_groups

    question, by, many = study.questions[i], asked.grouping(study, i), people.trusted + people.local
    assert by is not None
    shares = None
    if sizes is not None:
        groups, _ = by.must_remain(sizes)
        left = {name: sum(sizes[member] for member in members) for name, members in groups.items()}
        many = sum(left.values())
        by, shares = replace(by, names=tuple(left)), [size / many for size in left.values()]
    question.must(bool(by.names), "categories", "must be listed for a plan without a table", "none")
    own: Any = asked.mean_study(study, i) if isinstance(question, Number) else asked.share_study(study, i)
    sd = question.sd if isinstance(question, Number) else None
    return plan_groups(own, by, n=many, opt_in=opt_in, question=question.name, shares=shares, sd=sd)


def _plan(study: Declaration, i: int, people: Counted, sizes: Mapping[str, int] | None = None) -> Any:
    question = study.questions[i]
    chance, everybody = study.chances[question.name], people
    mean = isinstance(question, Number) and question.statistics == ("mean",)
    if not (mean or isinstance(question, (Choice, Count, Vector))):
        people = _asked(study, question.name, people)
    many = people.trusted + people.local
    opt_in = people.trusted / many
    if isinstance(question, (Vector, Records)):
        rule = f"must be in both groups to plan `{question.name}`, a question of kind {question.kind}"
        must(0 < people.trusted < many, "people", rule, f"{people.trusted} trusted and {people.local} local")
    match question:
        case Number() if study.promise.personal:
            return _personal(study, i, people)
        case Number() | Choice() if question.by is not None:
            return _by_group(study, i, people, opt_in, sizes)
        case Number():
            return _number(study, i, people, opt_in) if mean else _several(study, i, people, everybody)
        case Choice() | Count():
            from hybridp.bench.shares import CountPlan, plan_shares

            shares = asked.choice_study(study, i)
            planned = plan_shares(
                question=shares.question, n=many, opt_in=opt_in, guarantee=shares.guarantee,
                noise=cast(Any, question.noise),
                trusted_guarantee=shares.trusted_guarantee, answering=chance,
            )  # fmt: skip
            return CountPlan(**vars(planned)) if isinstance(question, Count) else planned
        case Vector():
            from hybridp.bench.vector import plan_vector_mean

            own = asked.vector_study(study, i)
            return plan_vector_mean(
                n=many, opt_in=opt_in, bounds=own.bounds, guarantee=own.guarantee, names=question.columns,
                sd=question.sd or None, noise=own.noise, local=own.local, trusted_guarantee=own.trusted_guarantee,
                answering=chance,
            )  # fmt: skip
        case Records():
            from hybridp.bench.heavy_plan import plan_heavy, zipf

            heavy = asked.heavy_study(study, i)
            return plan_heavy(
                people=many, opt_in=opt_in, guarantee=heavy.guarantee, shares=zipf(DISTINCT, 1.0), head=heavy.head,
                discovery_share=heavy.discovery_share, trusted_guarantee=heavy.trusted_guarantee,
            )  # fmt: skip
        case Points():
            from hybridp.bench.kmeans_plan import plan_kmeans

            return plan_kmeans(asked.kmeans_study(study, i), question.columns, people=many, opt_in=opt_in)
        case Regression():
            from hybridp.bench.regression import plan_regression

            line = asked.regression_study(study, i)
            return plan_regression(
                n=many, opt_in=opt_in, predictors=len(question.on), guarantee=line.guarantee, kind=line.kind,
                clip=None if line.clip is None else line.clip / line.bounds.bounds[-1].half,
                trusted_guarantee=line.trusted_guarantee, noise=line.noise, target=question.target, stated=line.form,
            )  # fmt: skip
        case Table():
            return _table(study, i, people)
    raise InvalidInput(f"`{question.name}.kind` must be one that can be planned. Got {question.kind}.")


def _number(
    study: Declaration, i: int, people: Counted, opt_in: float, given: MeanStudy | None = None, sd: float | None = None
) -> Any:
    from hybridp.bench.planning import plan_mean

    question, own = study.questions[i], given or asked.mean_study(study, i)
    assert isinstance(question, Number)
    if people.trusted and people.local:
        return plan_mean(
            n=people.trusted + people.local, opt_in=opt_in, bounds=own.bounds, guarantee=own.guarantee,
            sd=question.sd if sd is None else sd, noise=own.noise, local=own.local,
            trusted_guarantee=own.trusted_guarantee, answering=study.chances[question.name],
        )  # fmt: skip
    worst = own.bounds.half
    sd = worst if question.sd is None else question.sd
    told = 0.0
    if people.trusted:
        noise = own.sum_noise
        steps = noise.sensitivity * people.trusted
        error, group, mechanism = own.bounds.width * math.sqrt(noise.variance) / steps, "trusted", "noise on the sum"
    else:
        told = max(people.local * study.chances[question.name], 1.0)
        error = worst * math.sqrt(own.invite.randomiser.worst_variance / told)
        group, mechanism = "local", own.invite.randomiser.name
    many = people.trusted or round(told)  # those who answer are the sample
    return AlonePlan(question.name, group, many, sd, question.sd is None, error, mechanism)


def _several(study: Declaration, i: int, people: Counted, everybody: Counted) -> NumberPlan:
    from hybridp.bench.distribution import plan_distribution

    question, own, many = study.questions[i], asked.number_study(study, i), people.trusted + people.local
    assert isinstance(question, Number)
    opt_in = everybody.trusted / (everybody.trusted + everybody.local)
    mean = None if own.mean is None else _number(study, i, everybody, opt_in, own.mean)
    told = own.distribution
    spread = None if told is None else plan_distribution(
        n=many, opt_in=people.trusted / many, study=told, sd=question.sd, question=question.name
    )  # fmt: skip
    promise = study.parts[i].everybody
    assert promise is not None
    return NumberPlan(question.name, question.statistics, many, people.trusted, promise, mean, spread)


def _personal(study: Declaration, i: int, people: Counted) -> Any:
    from hybridp.bench.personal import plan_personal

    question, own = study.questions[i], asked.personal_study(study, i)
    assert isinstance(question, Number)
    if people.epsilons is None:
        raise InvalidInput("`data` must be given for a plan with everyone's own epsilon, which it counts. Got none.")
    trusted, local = people.epsilons
    return plan_personal(
        trusted[0] * own.share, trusted[1], local_epsilons=local[0], local_counts=local[1], bounds=own.bounds,
        sd=question.sd,
    )  # fmt: skip


def _table(study: Declaration, i: int, people: Counted) -> Any:
    question, many = study.questions[i], people.trusted + people.local
    if study.trust.everyone != "trusted":
        from hybridp.bench.synth_rows import plan_rows

        both = asked.synth_study(study, i, mixed=True)
        return plan_rows(many, people.trusted / many, both.workload, both.guarantee)
    own = asked.synth_study(study, i)
    if own.method == "adaptive":
        from hybridp.bench.synth_rows import plan_rows

        return plan_rows(many, 1.0, own.workload, own.guarantee)
    question.must(own.method == "tables", "method", "must be tables or adaptive for a plan", "rap")
    from hybridp.bench.synth import plan_synth

    return plan_synth(many, own.workload, own.guarantee, most_cells=own.most_cells)


def _named(frame: DataFrame) -> DataFrame:
    """A frame whose rows are named by a column of it, so that they still are below other frames."""
    return frame if frame.index.name is None else frame.reset_index()
