"""How good will it be? A study's task at its part of the promise, asked of expected people: public numbers alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from hybridp.bench.crowd import Crowd, Guesses
from hybridp.bench.driven import HEARD, plan_distribution, plan_driven, plan_groups, plan_steered, shares_of
from hybridp.bench.models import plan_personal, plan_points, plan_records, plan_regression
from hybridp.curator.sums import Counted, count_people, group_sizes, with_public
from hybridp.errors import InvalidInput, must
from hybridp.protocols.driver import trust_rule
from hybridp.public.study import Declaration
from hybridp.release.plan import Plan, error_of, planned, predicted, ways
from hybridp.tasks.distribution import NumberTask, number_task
from hybridp.tasks.mean import mean_task
from hybridp.tasks.personal import at_epsilon, personal_task
from hybridp.tasks.shares import shares_task
from hybridp.tasks.task import BUILDERS

__all__ = ["plan_question", "plan_study"]


def plan_question(
    study: Declaration, i: int, n: int, opt_in: float, guess: Guesses | None = None, *, shuffled: int = 0,
    sizes: Mapping[str, int] | None = None, epsilons: Any = None,
) -> Plan:  # fmt: skip
    """Predict the errors of the question at this place, where of so many people a share trusts.

    Where some of the others trust the study's mixer it says under `shuffled` the error of all three groups together,
    each one's weight, and what one more person is worth. `sizes` are those of its public groups, and `epsilons`
    everybody's own, where a table says so.
    """
    question, guess = study.questions[i], guess or Guesses()
    if guess.sd is None:
        guess = replace(guess, sd=getattr(question, "sd", None) or None)
    crowd = Crowd(n, opt_in, guess, question.name, tuple(question.columns_read), study.chances[question.name])
    if question.groups is not None:
        return _by_group(study, i, crowd, sizes)
    if study.promise.personal:
        rule = "must be given for a plan with everyone's own epsilon, which it counts"
        must(epsilons is not None, "data", rule, "none")
        if question.by_levels:
            return _by_level(study, i, crowd, epsilons)
        own, ((levels, people), local) = personal_task(study, i), epsilons
        known: dict[str, Any] = {"bounds": own.bounds, "sd": crowd.guess.sd, "question": crowd.question}
        return plan_personal((levels * own.share, people), local, **known)
    result = _plan(study, i, crowd)
    if not shuffled:
        return result
    by_people = getattr(question, "estimator", None) in (None, "everyone")
    groups = crowd.trusted, shuffled, crowd.local - shuffled
    mixing = study.mixing_of(i)
    assert mixing is not None
    return result.adding(shuffled=result.setting.three_groups(groups, mixing, by_people=by_people))


def plan_study(
    study: Declaration, data: Any = None, *, table: str | None = None, trusted: int | None = None,
    local: int | None = None, shuffled: int | None = None,
) -> Plan:  # fmt: skip
    """Predict every question's error. Nothing is charged, and of `data` only what is public is read.

    Of a mean that is steered it says under `steered` the standard deviation that is assumed, as none is stated, and
    both errors at it.
    """
    data = with_public(data, study.people.public)
    mixed = study.people.shuffled or 0 if shuffled is None else shuffled
    rule = "must go with a study that has a mixer ([mixer])"
    must(not mixed or study.mixer is not None, "shuffled", rule, mixed)
    rule = "must be left out where everyone has their own epsilon"
    must(not mixed or not study.promise.personal, "shuffled", rule, mixed)
    people = _people(study, data, table, trusted, local)
    many = people.trusted + people.local + mixed
    plans = {}
    for i, question in enumerate(study.questions):
        own: dict[str, Any] = {"sizes": _sizes(study, i, data, table), "epsilons": people.epsilons, "shuffled": mixed}
        plans[question.name] = plan_question(study, i, many, people.trusted / many, **own)
    told = {name: _told(study, i, plan) for i, (name, plan) in enumerate(plans.items())}
    promise, form, notes = study.promise, study.form, []
    more: dict[str, Any] = {}
    unstated = [q.name for q in study.questions if getattr(q, "sd", True) in (None, ())]
    if unstated and not promise.personal:
        worst = "the largest possible is assumed, and errors are at most these"
        notes = [f"Of {', '.join(unstated)} no sd is stated: {worst}; at a sixth of the range half as large."]
    if len(plans) > 1:
        notes.insert(0, f"The promise: {form.why}.")
        more["several"] = {
            "form": "drawn" if form.drawn else "split",
            "why": form.why,
            "stated": promise.several is not None,
            "drawn_over_split": dict(form.ratios),
            "chances": study.chances,
        }
    result = planned(
        told, many, people.trusted / many, promise, promise.trusted_epsilon, shuffled=mixed, more=more, parts=plans,
        title=study.title or "A study", notes=tuple(notes),
    )  # fmt: skip
    first: Any = study.questions[0]
    steered = getattr(first, "form", None) == "steered" and getattr(first, "summed", False)
    if not steered or not 0 < people.trusted < many:
        return result
    # Of a mean that is steered no spread is stated: one is assumed, and the plan is at it.
    sd = (first.upper - first.lower) / 6
    at = Crowd(many, people.trusted / many, Guesses(sd=sd))
    return result.adding(steered={"sd": sd, **plan_steered(plan_driven(mean_task(study, 0), at))})


def _told(study: Declaration, i: int, plan: Plan) -> dict[str, Any]:
    """What a question's plan says, with its part of the promise; where an estimator is stated, that and no default."""
    part, question, result = study.parts[i], study.questions[i], {}
    stated = getattr(question, "estimator", None)
    if getattr(question, "statistics", ("mean",)) != ("mean",) and not study.promise.personal:
        task = number_task(study, i)  # which takes one whatever the groups' sizes
        stated = task.estimator if isinstance(task, NumberTask) else stated
    own: dict[str, Any] = {"epsilon": "personal" if part.everybody is None else part.everybody.epsilon}
    if study.drawn and part.trusted is not None:
        own["trusted_epsilon"] = part.trusted.epsilon
    for name, facts in next(iter(plan.questions.values())).items():
        known = dict(facts["predicted"])
        stated = known.get("alike", {}).get("estimator") if stated == "alike" else stated
        if stated in known.get("estimators", {}):
            known.pop("default", None)
            known["estimator"] = stated
        result[name] = {**facts, "predicted": known, **own}
    return result


# --- who takes part ---------------------------------------------------------------------------------------------------


def _people(study: Declaration, data: Any, table: str | None, trusted: int | None, local: int | None) -> Counted:
    if data is not None:
        answers = {question.name: question.columns_read for question in study.questions}
        people = study.people.column, study.promise.epsilon_column
        result = count_people(data, trust_rule(study), *people, answers=answers, table=table)
    else:
        many = (study.people.trusted if trusted is None else trusted, study.people.local if local is None else local)
        if many[0] is None or many[1] is None:
            raise InvalidInput(
                "`people.trusted` and `people.local` must be given for a plan: how many people are expected in each "
                "group; or a table, whose people are counted. Got neither."
            )
        result = Counted(many[0], many[1])
    must(result.trusted + result.local >= 2, "people", "must be at least 2 for a plan", result.trusted + result.local)
    return result


def _sizes(study: Declaration, i: int, data: Any, table: str | None) -> Mapping[str, int] | None:
    """How many people every public group of a table has; None where no table says so."""
    by = study.questions[i].groups
    if data is None or by is None or by.private:
        return None
    result = group_sizes(data, by.column, trust_rule(study), study.people.column, table=table)
    return {name: sum(people) for name, people in by.sized(result).items()}


# --- one question -----------------------------------------------------------------------------------------------------


def _plan(study: Declaration, i: int, crowd: Crowd) -> Plan:
    """Of a question for everybody; a special case is planned as what it is a case of."""
    kind = study.questions[i].entry({kind: kind for kind in (*_PLANS, "number")})
    return _number(study, i, crowd) if kind == "number" else _PLANS[kind](BUILDERS[kind](study, i), crowd)


def _by_group(study: Declaration, i: int, crowd: Crowd, sizes: Mapping[str, int] | None) -> Plan:
    question, crowd = study.questions[i], replace(crowd, chance=1.0)
    by = question.groups
    assert by is not None
    if sizes is not None:
        groups, _ = by.must_remain(sizes)
        left = {name: sum(sizes[member] for member in members) for name, members in groups.items()}
        many = sum(left.values())
        guess = replace(crowd.guess, shares=[size / many for size in left.values()])
        by, crowd = replace(by, names=tuple(left)), replace(crowd, n=many, guess=guess)
    question.must(bool(by.names), "categories", "must be listed for a plan without a table, as A,B,C", "none")
    builders: dict[str, Any] = {"number": mean_task, "choice": shares_task, "count": shares_task, "vector": None}
    own = question.entry(builders)
    if own is not None and getattr(question, "statistics", ("mean",)) == ("mean",):
        return plan_groups(own(study, i), by, crowd)
    guess, parts = replace(crowd.guess, shares=None), shares_of(crowd.guess.shares, len(by.names), "groups")
    plans = [_plan(study, i, replace(crowd, n=max(round(crowd.n * part), 1), guess=guess)) for part in parts]
    every = [plan.questions[crowd.question] for plan in plans]
    about = {"column": by.column, "private": by.private, "categories": list(by.names)}
    facts = {}
    for key, first in every[0].items():
        errors = {
            who: {"rmse_population": [float(np.max(error_of(ways(one[key])[who]))) for one in every]}
            for who in HEARD if who in ways(first)
        }  # fmt: skip
        more = {name: first[name] for name in ("assumes", "range") if name in first}
        default = {"default": {"estimator": "everyone"}}
        facts[f"{key}_by_group"] = predicted(f"{key}-by-group", errors, default, by=about, shares=parts, **more)
    part = study.parts[i]
    trusted = None if part.trusted is None else part.trusted.epsilon
    return planned({crowd.question: facts}, crowd.n, crowd.opt_in, part.everybody, trusted)


def _by_level(study: Declaration, i: int, crowd: Crowd, epsilons: Any) -> Plan:
    """Of people who count as one of some epsilons: those of each are a study of their own, and weighed as released."""
    levels, counted = sorted(study.promise.allowed_epsilons), study.questions[i].as_count
    sizes = [[int(many[np.searchsorted(levels, own, side="right") == j + 1].sum()) for own, many in epsilons]
             for j in range(len(levels))]  # fmt: skip
    heard = [(epsilon, both) for epsilon, both in zip(levels, sizes, strict=True) if sum(both)]
    must(bool(heard), "allowed_epsilons", "must be at most somebody's own epsilon", f"{levels[0]:g} and more")
    people = [sum(both[place] for _, both in heard) for place in (0, 1)]
    plans = [(both, _plan(at_epsilon(study, i, epsilon), 0, replace(crowd, n=sum(both), opt_in=both[0] / sum(both))))
             for epsilon, both in heard]  # fmt: skip
    facts = {}
    for key, first in plans[0][1].questions[crowd.question].items():
        variances: dict[str, Any] = {}
        for place, name in enumerate(("tcm-only", "lm-only")):
            errors = [error_of(ways(plan.questions[crowd.question][key])[name]) for both, plan in plans if both[place]]
            scales = [sum(both) if counted else 1.0 for both, _ in plans if both[place]]
            if errors:
                each = [np.square(np.divide(error, scale)) for error, scale in zip(errors, scales, strict=True)]
                weights = np.array([1 / float(np.mean(one)) for one in each])
                variances[name] = sum(w**2 * one for w, one in zip(weights / weights.sum(), each, strict=True))
        told = dict(variances)
        if len(told) == 2:
            c, (t, e) = people[0] / sum(people), variances.values()
            w = float(np.mean(e) / (np.mean(t) + np.mean(e)))
            told = {"everyone": c**2 * t + (1 - c) ** 2 * e, "hybrid": w**2 * t + (1 - w) ** 2 * e, **told}
        rmse = {name: (np.sqrt(one) * (sum(people) if counted else 1)).tolist() for name, one in told.items()}
        own = {name: one for name, one in first.items() if name not in ("task", "predicted")}
        assumes = [*first.get("assumes", ()), "people of one group who chose different epsilons are alike"]
        facts[key] = predicted(
            first["task"], {name: {"rmse_population": one} for name, one in rmse.items()},
            {"default": {"estimator": next(iter(rmse))}}, **{**own, "assumes": assumes},
        )  # fmt: skip
        if counted:
            facts[key]["range"] = sum(people)
    return planned({crowd.question: facts}, sum(people), people[0] / sum(people), None)


def _number(study: Declaration, i: int, crowd: Crowd) -> Plan:
    """A mean, or several statistics of a number; a sum is about everybody, whichever question they answered."""
    question: Any = study.questions[i]
    if question.statistics == ("mean",):
        return plan_driven(mean_task(study, i), crowd)
    own, n = number_task(study, i), crowd.n
    known: dict[str, Any] = {}
    counted = own.distribution if isinstance(own, NumberTask) else own
    if isinstance(own, NumberTask):
        known["mean"] = mean = plan_driven(own.mean, crowd).facts
        scaled = {
            who: {"mse": told["mse"] * n**2, "rmse_population": told["rmse_population"] * n}
            for who, told in ways(mean).items()
        }
        known["sum"] = predicted("sum", scaled, range=mean["range"] * n)
    if counted is not None:
        known |= plan_distribution(counted, crowd.answering).questions[crowd.question]
    facts = {name: known[name] for name in question.statistics if name in known}
    return crowd.answering.planned(mean_task(study, i), facts)


def _table(own: Any, crowd: Crowd) -> Plan:
    from hybridp.bench.synth import plan_rows, plan_synth

    crowd = crowd.answering
    people = int(crowd.n)
    if own.method != "tables":
        return plan_rows(people, crowd.opt_in if own.both else 1.0, own.workload, own.guarantee)
    return plan_synth(people, own.workload, own.guarantee)


_PLANS: dict[str, Callable[[Any, Crowd], Plan]] = {
    "choice": plan_driven,
    "count": plan_driven,
    "vector": plan_driven,
    "records": plan_records,
    "points": plan_points,
    "regression": plan_regression,
    "table": _table,
}
