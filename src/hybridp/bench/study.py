"""How good will it be? A study's task at its part of the promise, asked of expected people: public numbers alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from hybridp.bench.crowd import Crowd, Expected, Guesses
from hybridp.bench.driven import HEARD, UNSTATED, Driven, plan_distribution, plan_driven, plan_steered, shares_of
from hybridp.bench.models import plan_personal, plan_points, plan_records, plan_regression
from hybridp.blend.groups import JointBlend, blend_joint
from hybridp.curator.sums import Counted, count_people, group_sizes, with_public
from hybridp.errors import InvalidInput, must
from hybridp.protocols.driver import trust_rule
from hybridp.public.groups import Grouping
from hybridp.public.study import Declaration
from hybridp.release.facts import Facts
from hybridp.release.plan import Plan, error_of, planned, predicted, ways
from hybridp.tasks.distribution import NumberTask, number_task
from hybridp.tasks.groups import private_groups_task
from hybridp.tasks.mean import MeanTask, mean_task
from hybridp.tasks.personal import at_epsilon, personal_task
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
        told, many, people.trusted / many, promise, None if promise.personal else study.trusted_guarantee,
        shuffled=mixed, more=more, parts=plans, title=study.title or "A study", notes=tuple(notes),
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
        chosen = known.get("alike", {}).get("estimator") if stated == "alike" else stated
        if stated in ("alike", "adaptive", "kvh") and chosen not in ways(facts):  # it goes by another name there
            chosen = "hybrid"
        if chosen in ways(facts):
            known.pop("default", None)
            known["estimator"] = chosen
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
    """How many people every public group of a table has by the rule on small ones; None where no table says so."""
    by = study.questions[i].groups
    if data is None or by is None or by.private:
        return None
    own = group_sizes(data, by.column, trust_rule(study), study.people.column, table=table)
    sizes = {name: sum(people) for name, people in by.sized(own).items()}
    groups, _ = by.must_remain(sizes)
    return {name: sum(sizes[member] for member in members) for name, members in groups.items()}


# --- one question -----------------------------------------------------------------------------------------------------


def _plan(study: Declaration, i: int, crowd: Crowd) -> Plan:
    """Of a question for everybody; a special case is planned as what it is a case of."""
    kind = study.questions[i].entry({kind: kind for kind in (*_PLANS, "number")})
    return _number(study, i, crowd) if kind == "number" else _PLANS[kind](BUILDERS[kind](study, i), crowd)


# --- answers by group -------------------------------------------------------------------------------------------------

Predicted = tuple[Facts, list[Facts], Mapping[tuple[int, int], float]]
"""What is told of one statistic, every group's errors by estimator, and those of the groups' differences."""


def _by_group(study: Declaration, i: int, crowd: Crowd, sizes: Mapping[str, int] | None) -> Plan:
    """Predict every group's standard error against the population that its people come from.

    The guessed shares are the categories' of all people (equal without them), the sd that within a group (the largest
    possible without it), the mean that of a number, for the reports on a private category.
    """
    question, shares = study.questions[i], crowd.guess.shares
    by = question.groups
    assert by is not None
    if sizes is not None:
        by, crowd = replace(by, names=tuple(sizes)), replace(crowd, n=sum(sizes.values()))
        shares = [size / crowd.n for size in sizes.values()]
    names = by.names
    question.must(bool(names), "categories", "must be listed for a plan without a table, as A,B,C", "none")
    parts = shares_of(shares, len(names), "groups")
    must(min(parts) > 0, "shares", "must be positive", ", ".join(f"{p:g}" for p in parts))
    crowd, facts = replace(crowd, chance=1.0, guess=replace(crowd.guess, shares=None)), {}
    for key, (first, every, gaps) in (_private if by.private else _public)(study, i, by, crowd, parts).items():
        errors = {who: [one[who] for one in every] for who in HEARD if all(who in one for one in every)}
        assumes = [line.replace("groups are", "groups of trust are") for line in first.get("assumes", ())]
        assumes.insert(1, "categories have equal shares" * (shares is None))
        if "sd" in first:
            spread = "every group has the stated sd" if crowd.guess.sd else UNSTATED
            told = "takes the largest possible" if by.private else "finds every group's own"
            assumes = [*(line for line in assumes if line != UNSTATED), f"{spread}; a release that is told none {told}"]
        own: dict[str, Any] = {"range": float(np.max(first["range"]))} if "range" in first else {}
        if len(first.get("options", ())) > 1:
            own |= {"options": [*first["options"]], "by_option": errors}
        differences = [{"of": names[a], "less": names[b], "standard_error": gap} for (a, b), gap in gaps.items()]
        facts[f"{key}_by_group"] = predicted(
            f"{key}-by-group",
            {who: {"rmse_population": [max(each) for each in some]} for who, some in errors.items()},
            {"default": {"estimator": "everyone"}, "differences": differences},
            by={"column": by.column, "private": by.private, "categories": list(names)},
            shares=parts,
            assumes=[line for line in (*assumes, by.unlisted) if line],
            **own,
        )
    return planned({crowd.question: facts}, crowd.n, crowd.opt_in, study.parts[i].everybody, study.parts[i].trusted)


def _public(study: Declaration, i: int, by: Grouping, crowd: Crowd, parts: Sequence[float]) -> dict[str, Predicted]:
    """Every group is a study of its own; those of one size are planned once."""
    sizes = [max(round(crowd.n * part), 1) for part in parts]
    largest = _plan(study, i, replace(crowd, n=max(sizes)))

    def estimators(n: int) -> dict[str, Facts]:
        """Of a group of so many; where one round tells all, the errors alone and no whole plan."""
        if not isinstance(largest.setting, Driven):
            plan = _plan(study, i, replace(crowd, n=n)).questions[crowd.question]
            return {key: ways(facts) for key, facts in plan.items()}
        own = Driven.of(largest.setting.task, replace(crowd, n=n))
        told = {who: own.told(who) for who in own.names if who in (*HEARD, "kvh")}
        if own.crowd.both:  # by which groups are compared
            told["unbiased"] = {"rmse_population": own.unbiased()}
        return dict.fromkeys(largest.questions[crowd.question], told)

    by_size, result = {n: estimators(n) for n in {*sizes}}, dict[str, Predicted]()
    for key in by_size[min(sizes)]:  # of very few people not all can be told
        every: list[Facts] = []
        for n in sizes:
            known = {who: np.ravel(error_of(told)).tolist() for who, told in by_size[n][key].items()}
            alone = next(iter(known.values()))  # of a group that nobody trusts, or everybody
            every.append({"everyone": alone, "hybrid": known.get("kvh", alone), **known})
        worst = [max(one.get("unbiased", one["everyone"])) for one in every]
        pairs = [] if key == "sum" else by.pairs(by.names)  # sums of groups of different sizes are not compared
        gaps = {(a, b): math.hypot(worst[a], worst[b]) for a, b in pairs}
        result[key] = largest.questions[crowd.question][key], every, gaps
    return result


def _private(study: Declaration, i: int, by: Grouping, crowd: Crowd, parts: Sequence[float]) -> dict[str, Predicted]:
    """What would be seen on average goes through the estimator itself, whose own law of the error is the prediction."""
    task, guess, width = private_groups_task(study, i), crowd.guess, 1.0
    inside, first = np.full(task.joint.size, 1 / task.joint.size), {"assumes": ["the groups are alike"]}
    if isinstance(task.study, MeanTask):
        bounds, width = task.study.bounds, task.study.bounds.width
        first["sd"] = guess.sd
        up = 0.5 if guess.mean is None else (bounds.project(guess.mean) - bounds.lower) / width
        inside = np.array([up, 1 - up])
    spread = None if guess.sd is None else guess.sd / width
    cells = np.outer(parts, inside).ravel().tolist()
    answer = Expected(crowd.trusted, crowd.local, Guesses(shares=cells)).held(task, (crowd.question,)).answer
    told = answer.trusted, answer.local, task.joint.size, spread
    everyone, hybrid = (JointBlend(*told, by_people=by_people) for by_people in (True, False))
    blends = [blend_joint(everyone, [place]) for place in range(len(parts))]
    every: list[Facts] = []
    for place, part in enumerate(parts):
        known = dict(zip(HEARD, (blends[place], blend_joint(hybrid, [place]), *blends[place].alone()), strict=True))
        laws = {name: blend.law(inside) for name, blend in known.items() if blend is not None}
        every.append({name: (width * np.sqrt(s**2 + 2 * b**2) / part).tolist() for name, (s, b) in laws.items()})
    pairs = by.pairs(by.names)
    gaps = {(a, b): width * max(blends[a].gap_errors(blends[b], inside).tolist()) for a, b in pairs}
    return {task.study.called: ({**first, "range": width, "options": task.study.options}, every, gaps)}


# --- own epsilons -----------------------------------------------------------------------------------------------------


def _by_level(study: Declaration, i: int, crowd: Crowd, epsilons: Any) -> Plan:
    """Of people who count as one of some epsilons: those of each are a study of their own, and weighed as released."""
    levels, counted = sorted(study.promise.allowed_epsilons), study.questions[i].as_count
    places = [(np.searchsorted(levels, own, side="right"), people) for own, people in epsilons]
    sizes = np.array([np.bincount(at, people, len(levels) + 1)[1:] for at, people in places])
    must(bool(sizes.any()), "allowed_epsilons", "must be at most somebody's own epsilon", f"{levels[0]:g} and more")

    def of(people: Any) -> Crowd:
        return replace(crowd, n=int(sum(people)), opt_in=float(people[0] / sum(people)))

    crowds = {epsilon: of(people) for epsilon, people in zip(levels, sizes.T, strict=True) if people.any()}
    plans = [(own, _plan(at_epsilon(study, i, e), 0, own).questions[crowd.question]) for e, own in crowds.items()]
    whole, facts = of(sizes.sum(axis=1)), {}
    for key, first in plans[0][1].items():
        each = [(ways(plan[key]), whole.n / own.n if counted else 1.0) for own, plan in plans]
        rmse: dict[str, Any] = {}
        for name in ("tcm-only", "lm-only"):
            if errors := [np.multiply(error_of(known[name]), unit) for known, unit in each if name in known]:
                rmse[name] = _pooled(errors)
        if len(rmse) == 2:
            both = [*rmse.values()]
            rmse = {"everyone": _pooled(both, (whole.trusted, whole.local)), "hybrid": _pooled(both), **rmse}
        told = {who: {"rmse_population": error.tolist()} for who, error in rmse.items()}
        assumes = [*first.get("assumes", ()), "people of one group who chose different epsilons are alike"]
        own = {**first, "assumes": assumes, **({"range": whole.n} if counted else {})}
        facts[key] = own | predicted(first["task"], told, {"default": {"estimator": next(iter(told))}})
    return planned({crowd.question: facts}, whole.n, whole.opt_in, None)


def _pooled(errors: Sequence[Any], by: Sequence[float] | None = None) -> Any:
    """The errors of independent estimates as one, which count by numbers of people or else by their precision."""
    parts = np.array([1 / np.mean(np.square(error)) for error in errors] if by is None else by)
    return np.sqrt(np.square(parts / parts.sum()) @ np.square(errors))


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
