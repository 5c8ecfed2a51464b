"""From a declared question, and its part of the promise, to the task that asks it; and from all answers to the release.

>>> from hybridp.public.study import Declaration
>>> pay = {"name": "pay", "kind": "number", "lower": 0, "upper": 10}
>>> task_of(Declaration(promise=1.0, trust="trust", questions=[pay]), 0).guarantee.epsilon
1.0
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, cast

from hybridp.errors import must
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.study import KINDS, Declaration, Number, Question
from hybridp.release.receipt import one_receipt
from hybridp.release.release import Release, about
from hybridp.tasks.groups import private_groups_task
from hybridp.tasks.kmeans import kmeans_task
from hybridp.tasks.mean import mean_task, vector_task
from hybridp.tasks.number import number_task
from hybridp.tasks.personal import personal_task
from hybridp.tasks.records import records_task
from hybridp.tasks.regression import regression_task
from hybridp.tasks.shares import shares_task
from hybridp.tasks.steered import SteeredTask
from hybridp.tasks.table import table_task
from hybridp.tasks.task import Task

__all__ = ["BUILDERS", "answered_once", "ledger_totals", "people_in", "published", "register", "task_of"]

Builder = Callable[[Declaration, int], Task]


def task_of(study: Declaration, place: int) -> Task:
    """The question at this place, at its part of the promise."""
    question = study.questions[place]
    if question.groups is not None and question.groups.private:
        return private_groups_task(study, place)
    return question.entry(BUILDERS)(study, place)


def register(kind: type[Question], builder: Builder) -> None:
    """Let studies ask a kind of question: how it is declared, and the task that a declared one becomes."""
    KINDS[kind.kind], BUILDERS[kind.kind] = kind, builder


def _number(study: Declaration, place: int) -> Task:
    question = cast(Number, study.questions[place])
    if question.by_invitation:
        return SteeredTask(mean_task(study, place))
    if study.promise.personal:
        named = study.promise.epsilon_column is not None
        must(named, "promise.epsilon_column", "must name the column of everyone's own epsilon", "nothing")
        return personal_task(study, place)
    plain = question.groups is not None or question.statistics == ("mean",)
    return mean_task(study, place) if plain else number_task(study, place)


BUILDERS: dict[str, Builder] = {
    "number": _number, "choice": shares_task, "count": shares_task, "points": kmeans_task, "records": records_task,
    "regression": regression_task, "table": table_task, "vector": vector_task,
}  # fmt: skip


# --- all questions together ------------------------------------------------------------------------------------------


def ledger_totals(study: Declaration) -> dict[str, PureDP | ApproxDP]:
    """The totals of a ledger that pays for the study once."""
    if study.promise.personal:
        return {**personal_task(study, 0).accounts}
    mixed: dict[str, PureDP | ApproxDP] = {}
    if study.mixing is not None:  # whatever mixer and curator do, no more than a report's own epsilon
        mixed["shuffled"] = PureDP(study.mixing.epsilon)
    return {"trusted": study.trusted_guarantee, "local": study.guarantee, **mixed}


def published(study: Declaration, answers: Mapping[str, Any], entries: tuple[int, ...]) -> Release:
    """The answers under one receipt. Post-processing: no rows, no noise."""
    if study.drawn:  # a sum or a count is about everybody, whichever question they answered
        heard = [people_in(answer) for answer in answers.values()]
        everyone = max(trusted for trusted, _ in heard) + sum(local for _, local in heard)
        answers = {n: about(a, everyone) if isinstance(a, Release) else a for n, a in answers.items()}
    receipts = {name: answer.receipt for name, answer in answers.items()}
    receipt = one_receipt(receipts, _split(study), once=answered_once(study))
    # What an invitation cost was charged when it was made.
    paid = tuple(dict.fromkeys((*receipt.ledger_entries, *entries)))
    receipt = replace(receipt, assumes=receipt.assumes + _guessed(study), ledger_entries=paid)
    facts = {name: next(iter(answer.questions.values())) for name, answer in answers.items()}
    models = {name: answer for name, answer in answers.items() if not isinstance(answer, Release)}
    level = study.level if models or len(answers) > 1 else next(iter(answers.values())).level
    return Release(facts, level, receipt, study.title, joined=True, models=models)


def answered_once(study: Declaration) -> tuple[str, ...]:
    """The groups of which nobody answers more than one question: they spend the promise on it, and no more."""
    return ("local",) if study.drawn else ()


def _split(study: Declaration) -> str:
    parts = [f"{part.question.name} {part.everybody}" for part in study.parts if part.everybody is not None]
    own = [f"{part.question.name} {part.trusted}" for part in study.parts if part.trusted is not None]
    if study.drawn:
        likely = ", ".join(f"{name} {chance:.4g}" for name, chance in study.chances.items())
        return (
            "every local person answers one question with the whole promise, drawn by their device whatever their "
            f"data, with these chances: {likely}; that of the trusted, who answer all, is split: {', '.join(own)}"
        )
    said = f"the promise is split over the questions by their weights: {', '.join(parts)}"
    return f"{said}; of the trusted: {', '.join(own)}" if own else said


def _guessed(study: Declaration) -> tuple[str, ...]:
    names = [q.name for q in study.questions if q.guessed]
    return (f"the bounds of {', '.join(names)} were guessed from names, and nobody has chosen them",) if names else ()


def people_in(answer: Any) -> tuple[int, int]:
    """Trusted people of an answer, and those who sent reports."""
    people = answer.people
    if not isinstance(people, Mapping):
        return people, 0
    return people["trusted"], sum(people.values()) - people["trusted"]
