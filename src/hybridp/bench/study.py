"""How good will it be? A study's task at its part of the promise, asked of expected people: public numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from hybridp.bench.counts import plan_distribution, plan_groups, plan_shares
from hybridp.bench.crowd import Crowd, Guesses, plan_steered
from hybridp.bench.mean import plan_mean, plan_vector
from hybridp.bench.models import plan_personal, plan_points, plan_records, plan_regression
from hybridp.curator.sources import Counted, count_people, group_sizes, must_not_ask, with_public
from hybridp.errors import InvalidInput, must
from hybridp.protocols.driver import trust_rule
from hybridp.public.study import Declaration
from hybridp.release.plan import Plan, planned, predicted
from hybridp.tasks.declared import task_of
from hybridp.tasks.mean import mean_task
from hybridp.tasks.number import NumberTask, number_task
from hybridp.tasks.personal import personal_task
from hybridp.tasks.shares import shares_task
from hybridp.tasks.table import table_task

__all__ = ["plan_question", "plan_study", "three_groups"]


@dataclass(frozen=True)
class _Asked:
    """One question of a study, and so many people of whom a share trusts."""

    study: Declaration
    i: int
    n: int
    opt_in: float
    guess: Guesses | None = None
    sizes: Mapping[str, int] | None = None
    epsilons: Any = None

    @cached_property
    def question(self) -> Any:
        return self.study.questions[self.i]

    @cached_property
    def crowd(self) -> Crowd:
        """The people who are asked, and what is guessed of them or stated in the question."""
        question, guess = self.question, self.guess or Guesses()
        if guess.sd is None:
            guess = replace(guess, sd=getattr(question, "sd", None) or None)
        chance = self.study.chances[question.name]
        return Crowd(self.n, self.opt_in, guess, question.name, tuple(question.columns_read), chance)


def plan_question(study: Declaration, i: int, n: int, opt_in: float, guess: Guesses | None = None) -> Plan:
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
    plans = {one.question.name: _plan(one) for one in every}
    told = {one.question.name: _told(one, plan) for one, plan in zip(every, plans.values(), strict=True)}
    promise, form, notes = study.promise, study.form, [_pessimistic(study)]
    more: dict[str, Any] = {}
    if len(plans) > 1:
        notes.insert(0, f"The promise: {form.why}.")
        more["several"] = {
            "form": "drawn" if form.drawn else "split",
            "why": form.why,
            "stated": promise.several is not None,
            "drawn_over_split": dict(form.ratios),
            "chances": study.chances,
        }
    n = many + mixed
    result = planned(
        told, n, people.trusted / n, promise, promise.trusted_epsilon, shuffled=mixed, more=more, parts=plans,
        title=study.title or "A study", notes=tuple(filter(None, notes)),
    )  # fmt: skip
    if mixed:
        (plan,) = plans.values()
        result = result.adding(shuffled=three_groups(study, (people.trusted, mixed, people.local), plan))
    steered = _steered(every[0])
    return result if steered is None else result.adding(steered=steered)


def three_groups(study: Declaration, people: tuple[int, int, int], plan: Plan) -> dict[str, Any]:
    """The same question where so many people trust, trust the study's mixer, or nobody, as plain data."""
    assert study.mixing is not None
    by_people = getattr(study.questions[0], "estimator", None) in (None, "everyone")
    result: dict[str, Any] = plan.setting.three_groups(people, study.mixing, by_people=by_people)
    return result


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
    part, stated, result = one.study.parts[one.i], _stated(one), {}
    own: dict[str, Any] = {"epsilon": "personal" if part.everybody is None else part.everybody.epsilon}
    if one.study.drawn and part.trusted is not None:
        own["trusted_epsilon"] = part.trusted.epsilon
    for name, facts in next(iter(plan.questions.values())).items():
        known = dict(facts["predicted"])
        stated = known.get("alike", {}).get("estimator") if stated == "alike" else stated
        if stated in known.get("estimators", {}):
            known.pop("default", None)
            known["estimator"] = stated
        result[name] = {**facts, "predicted": known, **own}
    return result


def _stated(one: _Asked) -> str | None:
    """The estimator that a question states, or that several statistics of a number take whatever the groups' sizes."""
    several = getattr(one.question, "statistics", ("mean",)) != ("mean",) and not one.study.promise.personal
    task = number_task(one.study, one.i) if several else None
    return task.estimator if isinstance(task, NumberTask) else getattr(one.question, "estimator", None)


def _steered(one: _Asked) -> dict[str, Any] | None:
    """Of a mean that is steered, which is a study's only question: the spread that is assumed, and the plan at it."""
    question = one.question
    steered = getattr(question, "form", None) == "steered" and getattr(question, "summed", False)
    if not steered or not one.crowd.both:
        return None
    sd = (question.upper - question.lower) / 6
    at = replace(one.crowd, guess=Guesses(sd=sd))
    return {"sd": sd, **plan_steered(plan_mean(mean_task(one.study, one.i), at))}


# --- who takes part ---------------------------------------------------------------------------------------------------


def _people(study: Declaration, data: Any, table: str | None, trusted: int | None, local: int | None) -> Counted:
    if data is not None:
        answers = {question.name: question.columns_read for question in study.questions}
        people = study.people.column, study.promise.epsilon_column
        instead = "State how many are expected (--n and --opt-in, or people.trusted and people.local)"
        must_not_ask(data, "people are counted for a plan, which pays for nothing", instead)
        result = count_people(data, trust_rule(study), *people, answers=answers, table=table)
    else:
        many = (study.people.trusted if trusted is None else trusted, study.people.local if local is None else local)
        if many[0] is None or many[1] is None:
            raise InvalidInput(
                "`people.trusted` and `people.local` must be given for a plan: how many people are expected in each "
                "group; or a table, whose people are counted. Got neither."
            )
        result = Counted(many[0], many[1])
    if result.trusted + result.local < 2:
        raise InvalidInput(f"`people` must be at least 2 for a plan. Got {result.trusted + result.local}.")
    return result


def _sizes(study: Declaration, i: int, data: Any, table: str | None) -> Mapping[str, int] | None:
    """How many people every public group of a table has; None where no table says so."""
    by = study.questions[i].groups
    if data is None or by is None or by.private:
        return None
    result = group_sizes(data, by.column, trust_rule(study), study.people.column, table=table)
    return {name: sum(people) for name, people in by.sized(result).items()}


# --- one question -----------------------------------------------------------------------------------------------------


def _plan(one: _Asked) -> Plan:
    if one.question.groups is not None:
        return _by_group(one)
    planned: Plan = one.question.entry(_PLANS)(one)
    return planned


def _by_group(one: _Asked) -> Plan:
    by, crowd, question = one.question.groups, replace(one.crowd, chance=1.0), one.question
    assert by is not None
    if one.sizes is not None:
        groups, _ = by.must_remain(one.sizes)
        left = {name: sum(one.sizes[member] for member in members) for name, members in groups.items()}
        many = sum(left.values())
        guess = replace(crowd.guess, shares=[size / many for size in left.values()])
        by, crowd = replace(by, names=tuple(left)), replace(crowd, n=many, guess=guess)
    question.must(bool(by.names), "categories", "must be listed for a plan without a table, as A,B,C", "none")
    own = question.entry({"number": mean_task, "choice": shares_task, "count": shares_task})(one.study, one.i)
    return plan_groups(own, by, crowd)


def _number(one: _Asked) -> Plan:
    """A mean, or several statistics of a number; a sum is about everybody, whichever question they answered."""
    if one.study.promise.personal:
        return _personal(one)
    if one.question.statistics == ("mean",):
        return plan_mean(mean_task(one.study, one.i), one.crowd)
    own, crowd, n = number_task(one.study, one.i), one.crowd.answering, one.n
    known: dict[str, Any] = {}
    counted = own.distribution if isinstance(own, NumberTask) else own
    if isinstance(own, NumberTask):
        mean = plan_mean(own.mean, one.crowd)
        known["mean"] = mean.facts
        scaled = {
            who: {"mse": e["mse"] * n**2, "rmse_population": e["rmse_population"] * n}
            for who, e in mean.estimators.items()
        }
        known["sum"] = predicted("sum", scaled, range=mean.facts["range"] * n)
    if counted is not None:
        known |= plan_distribution(counted, crowd).questions[crowd.question]
    facts = {name: known[name] for name in one.question.statistics if name in known}
    part = one.study.parts[one.i]
    trusted = None if part.trusted is None else part.trusted.epsilon
    return planned({crowd.question: facts}, crowd.n, crowd.opt_in, part.everybody, trusted)


def _personal(one: _Asked) -> Plan:
    own = personal_task(one.study, one.i)
    if one.epsilons is None:
        raise InvalidInput("`data` must be given for a plan with everyone's own epsilon, which it counts. Got none.")
    (epsilons, people), local = one.epsilons
    trusted = epsilons * own.share, people
    return plan_personal(trusted, local, bounds=own.bounds, sd=one.crowd.guess.sd, question=one.question.name)


def _table(one: _Asked) -> Plan:
    from hybridp.bench.synth import plan_rows, plan_synth

    crowd, own = one.crowd.answering, table_task(one.study, one.i)
    people = int(crowd.n)
    if own.method != "tables":
        return plan_rows(people, crowd.opt_in if own.both else 1.0, own.workload, own.guarantee)
    return plan_synth(people, own.workload, own.guarantee, most_cells=own.most_cells)


def _of_task(plan: Callable[[Any, Crowd], Plan]) -> Callable[[_Asked], Plan]:
    return lambda one: plan(task_of(one.study, one.i), one.crowd)


_PLANS: dict[str, Callable[[_Asked], Plan]] = {
    "number": _number,
    "choice": _of_task(plan_shares),
    "count": _of_task(plan_shares),
    "vector": _of_task(plan_vector),
    "records": _of_task(plan_records),
    "points": _of_task(plan_points),
    "regression": _of_task(plan_regression),
    "table": _table,
}
