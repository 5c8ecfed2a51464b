"""From a declared question, and its part of the promise, to the task that asks it.

>>> from hybridp.public.study import Declaration
>>> pay = {"name": "pay", "kind": "number", "lower": 0, "upper": 10}
>>> task_of(Declaration(promise=1.0, trust="trust", questions=[pay]), 0).guarantee.epsilon
1.0
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from hybridp.errors import must
from hybridp.public.study import KINDS, Declaration, Number, Question
from hybridp.tasks.groups import private_groups_task
from hybridp.tasks.kmeans import kmeans_task
from hybridp.tasks.mean import mean_task
from hybridp.tasks.number import number_task
from hybridp.tasks.personal import personal_task
from hybridp.tasks.records import records_task
from hybridp.tasks.regression import regression_task
from hybridp.tasks.shares import shares_task
from hybridp.tasks.steered import SteeredTask
from hybridp.tasks.table import table_task
from hybridp.tasks.task import Task
from hybridp.tasks.vector import vector_task

__all__ = ["register", "task_of"]

Builder = Callable[[Declaration, int], Task]


def task_of(study: Declaration, place: int) -> Task:
    """The question at this place, at its part of the promise."""
    question = study.questions[place]
    if question.groups is not None and question.groups.private:
        return private_groups_task(study, place)
    return question.entry(_BUILDERS)(study, place)


def register(kind: type[Question], builder: Builder) -> None:
    """Let studies ask a kind of question: how it is declared, and the task that a declared one becomes."""
    KINDS[kind.kind], _BUILDERS[kind.kind] = kind, builder


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


_BUILDERS: dict[str, Builder] = {
    "number": _number, "choice": shares_task, "count": shares_task, "points": kmeans_task, "records": records_task,
    "regression": regression_task, "table": table_task, "vector": vector_task,
}  # fmt: skip
