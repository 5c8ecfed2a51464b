"""The service's plan of a declared study: the same fields, in the plan's own form.

>>> from hybridp.public.study import Declaration
>>> pay = {"name": "pay", "kind": "number", "lower": 0, "upper": 10, "text": "What do you earn?"}
>>> plan_of(Declaration(title="Pay", promise=1.0, trust="trust", questions=[pay]))["bounds"]
{'lower': 0.0, 'upper': 10.0}
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from sqlalchemy import select

from hybridp.errors import InvalidInput, must
from hybridp.public.study import Collection, Declaration, Number, Question, Records, Vector, declared
from hybridp.service import store
from hybridp.service.core import Service
from hybridp.service.plans import parse_plan
from hybridp.service.schema import progress, studies
from hybridp.service.studies import create_study, study_summary

__all__ = ["collect", "plan_of"]


def plan_of(study: Declaration) -> dict[str, Any]:
    """Plain data for `hybridp.service.plans.parse_plan`; what the service cannot ask is refused."""
    if len(study.questions) != 1:
        raise InvalidInput(f"`questions` must be one for the collection service. Got {len(study.questions)}.")
    (question,) = study.questions
    own = _asked(study, question)
    collection = study.collection or Collection()
    for one in declared(Collection):
        value = getattr(collection, one.name)
        if value is not None and value != one.default:
            own[one.name] = int(value.timestamp()) if isinstance(value, datetime) else value
    if "releases" in own:
        several = isinstance(question, (Number, Vector)) and not study.promise.personal
        must(several, "collection.releases", "must be 1 for a question of this kind", own["releases"])
    people = study.people
    if people.trusted is not None or people.local is not None:
        own["expected"] = {"trusted": people.trusted or 0, "local": people.local or 0}
    stated = {"title": study.title or question.name, "question": question.text, "unit": question.unit}
    return {**stated, "level": study.level, **own}


def _asked(study: Declaration, question: Question) -> dict[str, Any]:
    promise = study.promise
    levels: dict[str, Any] = {"epsilon": promise.epsilon, "delta": promise.delta}
    if promise.trusted_epsilon is not None:
        levels["trusted_epsilon"] = promise.trusted_epsilon
    match question:
        case Number():
            own = _kept(question, ("estimator", "sd", "step", "local", "noise"))
            own["bounds"] = {"lower": question.lower, "upper": question.upper}
            _refused(question, ("local_sd", "gap", "trusted_weight", "publish", "clipped_share"))
            if not promise.personal:
                return {"kind": "mean", **own, **levels}
            rule = "must list the epsilons that people may choose from, for the collection service"
            promise.must(bool(promise.allowed_epsilons), "allowed_epsilons", rule, "none")
            promise.must(promise.share == 1, "share", "must be 1 for the collection service", promise.share)
            return {"kind": "personal-mean", **own, "allowed_epsilons": list(promise.allowed_epsilons)}
        case Vector():
            own = _kept(question, ("norm", "radius", "estimator", "local", "noise", "joint"))
            sides = zip(question.lower, question.upper, strict=True)
            own["bounds"] = [{"lower": low, "upper": high} for low, high in sides]
            _refused(question, ("sd", "gap", "trusted_weight"))
            return {"kind": "vector-mean", "columns": list(question.columns), **own, **levels}
        case Records():
            own = _kept(question, ("head", "max_records", "max_length"))
            own["local"] = question.local
            _refused(question, ("discovery_share", "query_share", "reuse", "blend"))
            return {"kind": "heavy-hitters", "record": list(question.columns), **own, **levels}
    raise InvalidInput(
        f"`{question.name}.kind` must be number, vector or records for the service. Got {question.kind}."
    )


def _kept(question: Question, names: tuple[str, ...]) -> dict[str, Any]:
    """What differs from the declaration's default; for the rest the service has defaults that a browser can keep."""
    usual = {one.name: one.default for one in declared(type(question))}
    return {name: getattr(question, name) for name in names if getattr(question, name) != usual[name]}


def _refused(question: Question, names: tuple[str, ...]) -> None:
    """What the service would pass over in silence."""
    usual = {one.name: one.default for one in declared(type(question))}
    for name in names:
        value = getattr(question, name)
        question.must(value == usual[name], name, "must be left out for the collection service", value)


def collect(service: Service, study: Declaration) -> dict[str, Any]:
    """The study in this service: the open one that was made from the same declaration, or a new one."""
    plan = parse_plan(plan_of(study))
    query = select(studies.c.id, studies.c.plan).join(progress, progress.c.study == studies.c.number)
    with store.reading(service.engine) as db:
        rows = db.execute(query.where(studies.c.title == plan.title, progress.c.state == "open")).all()
    for row in rows:
        there = parse_plan(row.plan)
        if there == plan.model_copy(
            update={"delete_by": there.delete_by if plan.delete_by is None else plan.delete_by}
        ):
            return study_summary(service, row.id)
    return create_study(service, plan.model_dump(mode="json", exclude_none=True))
