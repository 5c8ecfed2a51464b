"""How good will a study be? Every question's plan at its part of the promise, from public numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, cast

from hybridp.bench.steered_mean import plan_steered
from hybridp.curator.groups import group_sizes
from hybridp.curator.sources import Counted, count_people, must_not_ask, with_public
from hybridp.errors import InvalidInput, must
from hybridp.protocols import asked
from hybridp.public.study import (
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
from hybridp.release.plan import Plan, planned, predicted
from hybridp.tasks.mean import MeanStudy

__all__ = ["plan_study"]

DISTINCT = 1_000_000
"""Distinct records that a plan of heavy hitters takes there to be, their popularity falling as one over the rank."""


def _pessimistic(study: Declaration) -> str:
    """Of which means no spread is stated, so that the largest there is stands in for it; empty where of none."""
    unstated = [q.name for q in study.questions if isinstance(q, Number) and q.summed and q.sd is None]
    if unstated and not study.promise.personal:
        return (
            f"Of {', '.join(unstated)} no sd is stated: the largest there is, half the range, is assumed, and errors "
            "are at most these; at a sixth of the range they can be half as large. State sd for closer ones."
        )
    guessed = any(not getattr(question, "sd", True) for question in study.questions)
    return "Where sd is not stated, the largest spread within the bounds is assumed." if guessed else ""


def _told(study: Declaration, i: int, plan: Plan) -> dict[str, Any]:
    """What a question's plan says, with its part of the promise; where an estimator is stated, that and no default."""
    part, stated, found = study.parts[i], _stated(study, i), {}
    own: dict[str, Any] = {"epsilon": "personal" if part.everybody is None else part.everybody.epsilon}
    if study.drawn and part.trusted is not None:
        own["trusted_epsilon"] = part.trusted.epsilon
    for name, facts in next(iter(plan.questions.values())).items():
        known = dict(facts["predicted"])
        stated = known.get("alike", {}).get("estimator") if stated == "alike" else stated
        if stated in known.get("estimators", {}):
            known.pop("default", None)
            known["estimator"] = stated
        found[name] = {**facts, "predicted": known, **own}
    return found


def _stated(study: Declaration, i: int) -> str | None:
    """The estimator that a question states, or that several statistics of a number take whatever the groups' sizes."""
    question = study.questions[i]
    if isinstance(question, Number) and question.statistics != ("mean",) and not study.promise.personal:
        mean = asked.number_study(study, i).mean
        return question.estimator if mean is None else mean.rule.name
    return getattr(question, "estimator", None)


def plan_study(
    study: Declaration, data: Any = None, *, table: str | None = None, trust: Any = None,
    trusted: int | None = None, local: int | None = None, shuffled: int | None = None,
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
    people = _people(study, data, table, trust, trusted, local)
    plans = [_plan(study, i, people, _sizes(study, i, data, table, trust)) for i in range(len(study.questions))]
    told = {q.name: _told(study, i, plans[i]) for i, q in enumerate(study.questions)}
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
    n = people.trusted + people.local + mixed
    found = planned(
        told, n, people.trusted / n, promise, promise.trusted_epsilon, shuffled=mixed, more=more,
        title=study.title or "A study", notes=tuple(filter(None, (*notes, _pessimistic(study)))),
        parts={q.name: plans[i] for i, q in enumerate(study.questions)},
    )  # fmt: skip
    added = {"shuffled": _three_groups(study, people, mixed, *plans)} if mixed else {}
    steered = _steered(study, people)
    return found.adding(**added, **({} if steered is None else {"steered": steered}))


def _steered(study: Declaration, people: Counted) -> dict[str, Any] | None:
    """Of a mean that is steered, which is a study's only question: the spread that is assumed, and the plan at it."""
    question = study.questions[0]
    if not isinstance(question, Number) or question.form != "steered" or not question.summed:
        return None
    if not people.trusted or not people.local:
        return None
    sd = (question.upper - question.lower) / 6
    alone = _number(study, 0, people, people.trusted / (people.trusted + people.local), sd=sd)
    return {"sd": sd, **plan_steered(alone)}


def _three_groups(study: Declaration, people: Counted, shuffled: int, plan: Plan) -> dict[str, Any]:
    """The same question where so many people trust the mixer, as plain data."""
    from hybridp.bench.planning import mechanisms_of
    from hybridp.bench.shares import three_shares
    from hybridp.bench.shuffling import plan_groups, plan_record_groups, plan_vector_groups

    question, mixing = study.questions[0], study.mixing
    assert mixing is not None
    many = people.trusted, shuffled, people.local
    how = {"by_people": getattr(question, "estimator", None) in (None, "everyone")}
    if isinstance(question, Choice):
        return three_shares(asked.share_study(study, 0), plan.facts["shares"], many, mixing, **how)
    if isinstance(question, Records):
        return plan_record_groups(*many, plan, mixing).to_dict()
    facts = next(iter(plan.questions.values()))["mean"]
    if isinstance(question, Vector):
        return plan_vector_groups(*many, asked.vector_study(study, 0), facts["sd"]["used"], **how).to_dict()
    own = asked.mean_study(study, 0)
    known = mechanisms_of(own.bounds, own.guarantee, own.noise, own.local, None, own.trusted_guarantee)
    return plan_groups(*many, known, mixing, sd=facts["sd"]["used"], **how).to_dict()


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
            from hybridp.bench.shares import as_count, plan_shares

            shares = asked.choice_study(study, i)
            found = plan_shares(
                question=shares.question, n=many, opt_in=opt_in, guarantee=shares.guarantee,
                noise=cast(Any, question.noise),
                trusted_guarantee=shares.trusted_guarantee, answering=chance,
            )  # fmt: skip
            return as_count(found) if isinstance(question, Count) else found
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
    sd = own.bounds.half if question.sd is None else question.sd
    return _alone(study, i, people, own, sd)


def _alone(study: Declaration, i: int, people: Counted, own: MeanStudy, sd: float) -> Plan:
    """A mean where everybody is in one group: its error from noise alone, and against the population."""
    question = study.questions[i]
    assert isinstance(question, Number)
    if people.trusted:
        noise, many, who, group, mechanism = own.sum_noise, people.trusted, "tcm-only", "trusted", "noise on the sum"
        error = own.bounds.width * math.sqrt(noise.variance) / (noise.sensitivity * many)
    else:
        told = max(people.local * study.chances[question.name], 1.0)
        error = own.bounds.half * math.sqrt(own.invite.randomiser.worst_variance / told)
        many, who, group, mechanism = round(told), "lm-only", "local", own.invite.randomiser.name
    # Those who answer are the sample.
    by = {who: {"mse": error**2, "rmse_population": math.hypot(error, sd / math.sqrt(many))}}
    facts = predicted("mean", by, sd={"used": sd, "worst_case": question.sd is None}, mechanisms={group: mechanism},
                      range=own.bounds.width)  # fmt: skip
    return planned({question.name: {"mean": facts}}, many, float(bool(people.trusted)), own.guarantee)


def _several(study: Declaration, i: int, people: Counted, everybody: Counted) -> Plan:
    """Several statistics of a number; a sum is about everybody, whichever question they answered."""
    from hybridp.bench.distribution import plan_distribution

    question, own, many = study.questions[i], asked.number_study(study, i), people.trusted + people.local
    assert isinstance(question, Number)
    n = everybody.trusted + everybody.local
    known: dict[str, Any] = {}
    if own.mean is not None:
        mean = _number(study, i, everybody, everybody.trusted / n, own.mean)
        known["mean"] = mean.facts
        scaled = {
            who: {"mse": e["mse"] * n**2, "rmse_population": e["rmse_population"] * n}
            for who, e in mean.estimators.items()
        }
        known["sum"] = predicted("sum", scaled, range=mean.facts["range"] * n)
    told = own.distribution
    if told is not None:
        spread = plan_distribution(
            n=many, opt_in=people.trusted / many, study=told, sd=question.sd, question=question.name
        )
        known |= spread.questions[question.name]
    facts = {question.name: {name: known[name] for name in question.statistics if name in known}}
    return planned(facts, many, people.trusted / many, study.parts[i].everybody)


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
    many = people.trusted + people.local
    if study.trust.everyone != "trusted":
        from hybridp.bench.synth_rows import plan_rows

        both = asked.synth_study(study, i, mixed=True)
        return plan_rows(many, people.trusted / many, both.workload, both.guarantee)
    own = asked.synth_study(study, i)
    if own.method == "adaptive":
        from hybridp.bench.synth_rows import plan_rows

        return plan_rows(many, 1.0, own.workload, own.guarantee)
    from hybridp.bench.synth import plan_synth

    return plan_synth(many, own.workload, own.guarantee, most_cells=own.most_cells)
