"""How good will it be? Every question's plan at its part of the promise, from public numbers; one function a kind."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from numpy.typing import ArrayLike

from hybridp.curator.sources import Counted, count_people, group_sizes, must_not_ask, with_public
from hybridp.errors import InvalidInput, must
from hybridp.protocols import asked
from hybridp.public.study import Declaration
from hybridp.release.plan import Plan, planned, predicted
from hybridp.tasks.mean import MeanStudy

__all__ = ["Guesses", "plan_question", "plan_study", "three_groups"]

DISTINCT = 1_000_000
"""Distinct records that a plan of heavy hitters takes there to be, their popularity falling as one over the rank."""


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """What is guessed of people's answers, beside what the study says: `sd` may be a range, or one of a regression's
    columns and of its residuals; `shares` are those of the options or, of an answer by group, of the groups."""

    mean: float | None = None
    sd: Any = None
    shares: Sequence[float] | None = None
    popularity: ArrayLike | None = None


_NONE = Guesses()


@dataclass(frozen=True)
class _Asked:
    """One question of a study, and so many people of whom a share trusts."""

    study: Declaration
    i: int
    n: int
    opt_in: float
    guess: Guesses = _NONE
    sizes: Mapping[str, int] | None = None
    epsilons: Any = None

    @cached_property
    def question(self) -> Any:
        return self.study.questions[self.i]

    @property
    def trusted(self) -> int:
        return round(self.n * self.opt_in)

    @property
    def both(self) -> bool:
        return 0 < self.trusted < self.n

    @property
    def chance(self) -> float:
        return self.study.chances[self.question.name]

    @property
    def sd(self) -> Any:
        return (self.question.sd or None) if self.guess.sd is None else self.guess.sd

    @property
    def answering(self) -> _Asked:
        """The people who answer the question: of the local ones as many as draw it, on average."""
        if not self.study.drawn:
            return self
        n = self.trusted + round((self.n - self.trusted) * self.chance)
        return replace(self, n=n, opt_in=self.trusted / n)

    @property
    def crowd(self) -> dict[str, Any]:
        return {"n": self.n, "opt_in": self.opt_in}


def plan_question(study: Declaration, i: int, n: int, opt_in: float, guess: Guesses = _NONE) -> Plan:
    """Predict the errors of the question at this place, where of so many people a share trusts."""
    return _plan(_Asked(study, i, n, opt_in, guess))


def plan_study(
    study: Declaration, data: Any = None, *, table: str | None = None, trusted: int | None = None,
    local: int | None = None, shuffled: int | None = None,
) -> Plan:  # fmt: skip
    """Predict every question's error. Nothing is charged, and of `data` only what is public is read.

    Where some people trust the study's mixer, its one question's plan says under `shuffled` the error of all three
    groups together, each one's weight, and what a move from one to the next is worth; of a mean that is steered it says
    under `steered` the standard deviation that is assumed, as none is stated, and both errors at it.
    """
    data = with_public(data, study.people.public)
    mixed = study.people.shuffled or 0 if shuffled is None else shuffled
    rule = "must go with a study that has a mixer ([mixer])"
    must(not mixed or study.mixer is not None, "shuffled", rule, mixed)
    rule = "must be left out where everyone has their own epsilon"
    must(not mixed or not study.promise.personal, "shuffled", rule, mixed)
    people = _people(study, data, table, trusted, local)
    many = people.trusted + people.local
    whole = _Asked(study, 0, many, people.trusted / many, epsilons=people.epsilons)
    every = [replace(whole, i=i, sizes=_sizes(study, i, data, table)) for i in range(len(study.questions))]
    plans = [_plan(one) for one in every]
    told = {one.question.name: _told(one, plan) for one, plan in zip(every, plans, strict=True)}
    several, promise, notes = len(plans) > 1, study.promise, []
    more: dict[str, Any] = {}
    if several:
        notes.append(f"The promise: {study.form.why}.")
        more["several"] = {
            "form": "drawn" if study.form.drawn else "split",
            "why": study.form.why,
            "stated": promise.several is not None,
            "drawn_over_split": dict(study.form.ratios),
            "chances": study.chances,
        }
    n = many + mixed
    found = planned(
        told, n, people.trusted / n, promise, promise.trusted_epsilon, shuffled=mixed, more=more,
        title=study.title or "A study", notes=tuple(filter(None, (*notes, _pessimistic(study)))),
        parts={one.question.name: plan for one, plan in zip(every, plans, strict=True)},
    )  # fmt: skip
    added = {"shuffled": three_groups(study, (people.trusted, mixed, people.local), *plans)} if mixed else {}
    steered = _steered(every[0])
    return found.adding(**added, **({} if steered is None else {"steered": steered}))


def _pessimistic(study: Declaration) -> str:
    """Of which means no spread is stated, so that the largest there is stands in for it; empty where of none."""
    unstated = [q.name for q in study.questions if getattr(q, "summed", False) and getattr(q, "sd", True) is None]
    if unstated and not study.promise.personal:
        return (
            f"Of {', '.join(unstated)} no sd is stated: the largest there is, half the range, is assumed, and errors "
            "are at most these; at a sixth of the range they can be half as large. State sd for closer ones."
        )
    guessed = any(not getattr(question, "sd", True) for question in study.questions)
    return "Where sd is not stated, the largest spread within the bounds is assumed." if guessed else ""


def _told(one: _Asked, plan: Plan) -> dict[str, Any]:
    """What a question's plan says, with its part of the promise; where an estimator is stated, that and no default."""
    part, stated, found = one.study.parts[one.i], _stated(one), {}
    own: dict[str, Any] = {"epsilon": "personal" if part.everybody is None else part.everybody.epsilon}
    if one.study.drawn and part.trusted is not None:
        own["trusted_epsilon"] = part.trusted.epsilon
    for name, facts in next(iter(plan.questions.values())).items():
        known = dict(facts["predicted"])
        stated = known.get("alike", {}).get("estimator") if stated == "alike" else stated
        if stated in known.get("estimators", {}):
            known.pop("default", None)
            known["estimator"] = stated
        found[name] = {**facts, "predicted": known, **own}
    return found


def _stated(one: _Asked) -> str | None:
    """The estimator that a question states, or that several statistics of a number take whatever the groups' sizes."""
    question, stated = one.question, getattr(one.question, "estimator", None)
    if question.kind == "number" and question.statistics != ("mean",) and not one.study.promise.personal:
        mean = asked.number_study(one.study, one.i).mean
        stated = stated if mean is None else mean.rule.name
    return stated


def _steered(one: _Asked) -> dict[str, Any] | None:
    """Of a mean that is steered, which is a study's only question: the spread that is assumed, and the plan at it."""
    from hybridp.bench.offering import plan_steered

    question = one.question
    if question.kind != "number" or question.form != "steered" or not question.summed or not one.both:
        return None
    sd = (question.upper - question.lower) / 6
    return {"sd": sd, **plan_steered(_mean(replace(one, guess=Guesses(sd=sd))))}


def three_groups(study: Declaration, people: tuple[int, int, int], plan: Plan) -> dict[str, Any]:
    """The same question where so many people trust, trust the study's mixer, or nobody, as plain data."""
    from hybridp.bench import shuffling
    from hybridp.bench.planning import mechanisms_of
    from hybridp.bench.shares import three_shares

    question, mixing = study.questions[0], study.mixing
    assert mixing is not None
    how = {"by_people": getattr(question, "estimator", None) in (None, "everyone")}
    if question.kind == "choice":
        return three_shares(asked.share_study(study, 0), plan.facts["shares"], people, mixing, **how)
    if question.kind == "records":
        return shuffling.plan_record_groups(*people, plan, mixing)
    sd = plan.facts["sd"]["used"]
    if question.kind == "vector":
        return shuffling.plan_vector_groups(*people, asked.vector_study(study, 0), sd, **how)
    own, known = asked.mean_study(study, 0), plan.setting
    if known is None:
        known = mechanisms_of(own.bounds, own.guarantee, own.noise, own.local, None, own.trusted_guarantee)
    return shuffling.plan_groups(*people, known, mixing, sd=sd, **how)


# --- who takes part ---------------------------------------------------------------------------------------------------


def _people(study: Declaration, data: Any, table: str | None, trusted: int | None, local: int | None) -> Counted:
    if data is not None:
        answers = {question.name: question.columns_read for question in study.questions}
        people = study.people.column, study.promise.epsilon_column
        instead = "State how many are expected (--n and --opt-in, or people.trusted and people.local)"
        must_not_ask(data, "people are counted for a plan, which pays for nothing", instead)
        found = count_people(data, asked.trust_rule(study), *people, answers=answers, table=table)
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
    for question in study.questions:
        rule = f"must be in both groups to plan `{question.name}`, a question of kind {question.kind}"
        both = question.kind not in ("vector", "records") or (found.trusted > 0 and found.local > 0)
        must(both, "people", rule, f"{found.trusted} trusted and {found.local} local")
    return found


def _sizes(study: Declaration, i: int, data: Any, table: str | None) -> Mapping[str, int] | None:
    """How many people every public group of a table has; None where no table says so."""
    by = study.questions[i].groups
    if data is None or by is None or by.private:
        return None
    found = group_sizes(data, by.column, asked.trust_rule(study), study.people.column, table=table)
    return {name: sum(people) for name, people in by.sized(found).items()}


# --- one kind of question each ----------------------------------------------------------------------------------------


def _plan(one: _Asked) -> Plan:
    if getattr(one.question, "by", None) is not None:
        return _by_group(one)
    planned: Plan = one.question.entry(_PLANS)(one)
    return planned


def _by_group(one: _Asked) -> Plan:
    from hybridp.bench.groups import plan_groups

    question, by, many, shares = one.question, one.question.groups, one.n, one.guess.shares
    assert by is not None
    if one.sizes is not None:
        groups, _ = by.must_remain(one.sizes)
        left = {name: sum(one.sizes[member] for member in members) for name, members in groups.items()}
        many = sum(left.values())
        by, shares = replace(by, names=tuple(left)), [size / many for size in left.values()]
    question.must(bool(by.names), "categories", "must be listed for a plan without a table, as A,B,C", "none")
    number = question.kind == "number"
    own: Any = (asked.mean_study if number else asked.share_study)(one.study, one.i)
    return plan_groups(
        own, by, n=many, opt_in=one.opt_in, question=question.name, shares=shares,
        sd=one.sd if number else None, mean=one.guess.mean,
    )  # fmt: skip


def _number(one: _Asked) -> Plan:
    if one.study.promise.personal:
        return _personal(one)
    return _mean(one) if one.question.statistics == ("mean",) else _statistics(one)


def _mean(one: _Asked, given: MeanStudy | None = None) -> Plan:
    from hybridp.bench.planning import plan_mean

    own = given or asked.mean_study(one.study, one.i)
    if not one.both:
        return _alone(one, own)
    return plan_mean(
        **one.crowd, bounds=own.bounds, guarantee=own.guarantee, sd=one.sd, mean=one.guess.mean, noise=own.noise,
        local=own.local, trusted_guarantee=own.trusted_guarantee, answering=one.chance,
    )  # fmt: skip


def _alone(one: _Asked, own: MeanStudy) -> Plan:
    """A mean where everybody is in one group: its error from noise alone, and against the population."""
    sd = own.bounds.half if one.sd is None else one.sd
    if one.trusted:
        noise, many, who, group, mechanism = own.sum_noise, one.trusted, "tcm-only", "trusted", "noise on the sum"
        error = own.bounds.width * math.sqrt(noise.variance) / (noise.sensitivity * many)
    else:
        told = max(one.n * one.chance, 1.0)
        error = own.bounds.half * math.sqrt(own.invite.randomiser.worst_variance / told)
        many, who, group, mechanism = round(told), "lm-only", "local", own.invite.randomiser.name
    # Those who answer are the sample.
    by = {who: {"mse": error**2, "rmse_population": math.hypot(error, sd / math.sqrt(many))}}
    facts = predicted("mean", by, sd={"used": sd, "worst_case": one.sd is None}, mechanisms={group: mechanism},
                      range=own.bounds.width)  # fmt: skip
    return planned({one.question.name: {"mean": facts}}, many, float(bool(one.trusted)), own.guarantee)


def _statistics(everybody: _Asked) -> Plan:
    """Several statistics of a number; a sum is about everybody, whichever question they answered."""
    from hybridp.bench.distribution import plan_distribution

    one, question = everybody.answering, everybody.question
    own, n, trusted = asked.number_study(one.study, one.i), everybody.n, one.study.parts[one.i].trusted
    known: dict[str, Any] = {}
    if own.mean is not None:
        mean = _mean(everybody, own.mean)
        known["mean"] = mean.facts
        scaled = {
            who: {"mse": e["mse"] * n**2, "rmse_population": e["rmse_population"] * n}
            for who, e in mean.estimators.items()
        }
        known["sum"] = predicted("sum", scaled, range=mean.facts["range"] * n)
    if own.distribution is not None:
        spread = plan_distribution(
            **one.crowd, study=own.distribution, mean=one.guess.mean, sd=one.sd, question=question.name
        )
        known |= spread.questions[question.name]
    facts = {question.name: {name: known[name] for name in question.statistics if name in known}}
    promise = one.study.parts[one.i].everybody
    return planned(facts, one.n, one.opt_in, promise, None if trusted is None else trusted.epsilon)


def _personal(one: _Asked) -> Plan:
    from hybridp.bench.personal import plan_personal

    own = asked.personal_study(one.study, one.i)
    if one.epsilons is None:
        raise InvalidInput("`data` must be given for a plan with everyone's own epsilon, which it counts. Got none.")
    trusted, local = one.epsilons
    return plan_personal(
        trusted[0] * own.share, trusted[1], local_epsilons=local[0], local_counts=local[1], bounds=own.bounds,
        sd=one.sd,
    )  # fmt: skip


def _choice(one: _Asked) -> Plan:
    from hybridp.bench.shares import as_count, plan_shares

    own = asked.share_study(one.study, one.i)
    found = plan_shares(
        question=own.question, **one.crowd, guarantee=own.guarantee, noise=one.question.noise, shares=one.guess.shares,
        trusted_guarantee=own.trusted_guarantee, answering=one.chance,
    )  # fmt: skip
    return as_count(found) if one.question.kind == "count" else found


def _vector(one: _Asked) -> Plan:
    from hybridp.bench.models import plan_vector_mean

    own = asked.vector_study(one.study, one.i)
    return plan_vector_mean(
        **one.crowd, bounds=own.bounds, guarantee=own.guarantee, names=one.question.columns, sd=one.sd,
        noise=own.noise, local=own.local, trusted_guarantee=own.trusted_guarantee, answering=one.chance,
    )  # fmt: skip


def _records(one: _Asked) -> Plan:
    from hybridp.bench.models import plan_heavy, zipf

    one, own = one.answering, asked.heavy_study(one.study, one.i)
    popularity = zipf(DISTINCT, 1.0) if one.guess.popularity is None else one.guess.popularity
    return plan_heavy(
        people=one.n, opt_in=one.opt_in, guarantee=own.guarantee, shares=popularity, head=own.head,
        discovery_share=own.discovery_share, trusted_guarantee=own.trusted_guarantee,
    )  # fmt: skip


def _points(one: _Asked) -> Plan:
    from hybridp.bench.models import plan_kmeans

    one, own = one.answering, asked.kmeans_study(one.study, one.i)
    return plan_kmeans(own, one.question.columns, people=one.n, opt_in=one.opt_in)


def _regression(one: _Asked) -> Plan:
    from hybridp.bench.models import plan_regression

    one, own = one.answering, asked.regression_study(one.study, one.i)
    guessed = {} if one.guess.sd is None else dict(zip(("column_sd", "residual_sd"), one.guess.sd, strict=True))
    return plan_regression(
        **one.crowd, predictors=len(one.question.on), guarantee=own.guarantee, kind=own.kind,
        clip=None if own.clip is None else own.clip / own.bounds.bounds[-1].half,
        trusted_guarantee=own.trusted_guarantee, noise=own.noise, target=one.question.target, stated=own.form,
        **guessed,
    )  # fmt: skip


def _table(one: _Asked) -> Plan:
    from hybridp.bench.synth import plan_rows, plan_synth

    one = one.answering
    own = asked.synth_study(one.study, one.i)
    if own.method != "tables":
        return plan_rows(one.n, one.opt_in if own.both else 1.0, own.workload, own.guarantee)
    return plan_synth(one.n, own.workload, own.guarantee, most_cells=own.most_cells)


_PLANS: dict[str, Callable[[_Asked], Plan]] = {
    "number": _number,
    "choice": _choice,
    "count": _choice,
    "vector": _vector,
    "records": _records,
    "points": _points,
    "regression": _regression,
    "table": _table,
}
