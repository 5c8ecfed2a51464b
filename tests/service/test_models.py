"""Models of several numbers in the service, on both stores: what a page asks, what is taken, stored, shown and refused.

What is drawn for their releases is in `tests/laws/test_service_phases_law.py`, and what a page computes in
`test_models_js.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from hybridp.device.client import local_report, trusted_report
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.plans import parse_plan
from hybridp.service.problems import Refused
from hybridp.service.settings import Settings
from hybridp.service.store import shred

from .declared import stated as several
from .declared import study_of
from .sent import asked, send

LINE = {"name": "work", "kind": "regression", "target": "hours", "on": ["age", "pay"], "lower": [0, -4, 0],
        "upper": [16, 4, 64]}  # fmt: skip
YES = LINE | {"model": "logistic", "upper": [16, 4, 1]}


def stated(question: dict[str, Any] = LINE, **more: Any) -> dict[str, Any]:
    usual = {"title": "Work", "promise": {"epsilon": 4.0}, "people": {"local": 200},
             "collection": {"min_batch": 4, "time_precision": 60}, "questions": [question]}  # fmt: skip
    return study_of(usual | more)


def people(many: int, seed: int = 1) -> list[list[float]]:
    rng = np.random.default_rng(seed)
    age, pay = rng.uniform(0, 16, many), rng.uniform(-4, 4, many)
    return np.stack([age, pay, 8 + 2 * age + 3 * pay + rng.normal(0, 2, many)], axis=1).tolist()


def opened(service: Service, **more: Any) -> tuple[str, dict[str, Any]]:
    study = str(studies.create_study(service, stated(**more))["id"])
    return study, studies.task_document(service, study)


def second_phase(service: Service, trusted: int = 400) -> tuple[str, dict[str, Any]]:
    study, task = opened(service)
    assert send(service, study, [trusted_report(task, values) for values in people(trusted)]) == []
    studies.open_phase(service, study)
    return study, studies.task_document(service, study)


def test_where_a_page_could_not_draw_the_best_report_people_are_asked_about_the_line() -> None:
    """At ε = 8 all products are told best by a direction, which a page leaves to programs."""
    for epsilon, form in ((1.0, "best"), (8.0, "steered")):
        plan = parse_plan(stated(promise={"epsilon": epsilon}))
        assert plan.declared.questions[0].form == form
    plan = parse_plan(stated(LINE | {"form": "plain"}, promise={"epsilon": 8.0}))
    assert plan.declared.questions[0].form == "plain"


def test_a_plan_charges_no_more_than_its_people_were_promised() -> None:
    """However many trusted people there will be, and whichever way their promise is spent."""
    plan = parse_plan(stated(promise={"epsilon": 2.0, "trusted_epsilon": 0.7, "delta": 1e-6}, people={"local": 10**7}))
    whole, ways = plan.accounts()["trusted"], set()
    for many in (4, 100, 10**4, 10**6, 10**9):
        (charge,) = plan.discovery_charges({"trusted": many, "local": 0})
        assert charge.people == "trusted"
        assert charge.budget.epsilon <= whole.epsilon <= 0.7 + 1e-9
        assert charge.budget.delta <= whole.delta <= 1e-6
        ways.add(charge.mechanism)
    assert len(ways) == 2
    assert [(c.people, c.budget.epsilon) for c in plan.charges("s")] == [("local", 2.0)]


def test_what_a_seed_said_is_no_release_of_anybody(settings: Settings) -> None:
    """A first phase from a seed marks the second one, whoever makes it."""
    trial = Service(settings, rng=seeded(3))
    study, task = second_phase(trial)
    trial.close()
    service = Service(settings)
    assert send(service, study, [local_report(task, row, rng=seeded(i)) for i, row in enumerate(people(9))]) == []
    studies.close_study(service, study)
    found = studies.release_study(service, study)
    service.close()
    assert (found["simulated"], found["receipt"]["simulated"]) == (True, True)


# --- points -----------------------------------------------------------------------------------------------------------

HOMES = {"name": "homes", "kind": "points", "columns": ["east", "north"], "lower": [0, 0], "upper": [8, 4],
         "clusters": 2}  # fmt: skip
EXPECTED = {"people": {"trusted": 300, "local": 600}}


def test_cells_that_no_map_has_are_not_told(service: Service) -> None:
    _, task = opened(service, question=HOMES, **EXPECTED)
    weaker = asked(task, guarantee={"epsilon": 1.0, "delta": 0.0})
    with pytest.raises(InvalidInput, match="`keep` must"):
        local_report(weaker, [1.0, 1.0], rng=seeded(1))
    other = asked(task, grid={"per_axis": 2, "cells": 4})
    with pytest.raises(InvalidInput, match="`categories` must be the 4"):
        local_report(other, [1.0, 1.0], rng=seeded(1))


# --- beside other questions -------------------------------------------------------------------------------------------

SMOKES = {"name": "smokes", "kind": "choice", "options": ["never", "at times", "daily"]}
PAY = {"name": "pay", "kind": "number", "lower": 0, "upper": 8}
BODY = {"name": "body", "kind": "vector", "columns": ["height", "weight"], "lower": 0, "upper": [2, 200]}
PLACES = HOMES | {"weight": 2}


def beside(*questions: Any, **more: Any) -> dict[str, Any]:
    return study_of(several(*questions, **({"people": {"trusted": 2000, "local": 20_000}} | more)))


def test_the_map_is_for_those_who_will_be_asked_about_it() -> None:
    """Of local people who draw one of four questions, by weights 1, 1, 1 and 2, two in five answer about the map."""
    drawn = parse_plan(beside(SMOKES, PAY, BODY, PLACES, epsilon=2.0))
    split = parse_plan(beside(SMOKES, PAY, BODY, PLACES, epsilon=5.0, promise={"several": "split"}))
    fewer = {"people": {"trusted": 2000, "local": 8000}, "promise": {"trusted_epsilon": 0.8}}
    alone, everybody = parse_plan(beside(PLACES, epsilon=2.0, **fewer)), parse_plan(beside(PLACES, epsilon=2.0))
    grids = [plan.parts[3].invite.encoding for plan in (drawn, split)]
    assert grids == [alone.parts[0].invite.encoding, everybody.parts[0].invite.encoding]


def test_a_release_after_the_last_day_says_that_the_answers_are_gone(service: Service) -> None:
    """Answers to the other questions wait for the release: deleted before it, they cannot be made up for."""
    stated_so = beside(PAY, YES, SMOKES, epsilon=12.0, people={"local": 400})
    study = str(studies.create_study(service, stated_so)["id"])

    def worker(i: int) -> dict[str, Any]:
        return {"pay": 3.5, "work": [float(i % 16), 1.0, float(i % 16 > 9)], "smokes": "never"}

    task = studies.task_document(service, study)
    assert send(service, study, [trusted_report(task, worker(i)) for i in range(400)]) == []
    studies.open_phase(service, study)
    task = studies.task_document(service, study)
    assert send(service, study, [local_report(task, worker(i), rng=seeded(i)) for i in range(9)]) == []
    studies.close_study(service, study)
    service.write(lambda db: shred(db, service.number(study), None))
    service.forget(service.study(study))
    assert "deleted" in studies.study_summary(service, study)["why_not"]
    with pytest.raises(Refused, match="deleted"):
        studies.release_study(service, study)
    assert [a["epsilon_spent"] for a in studies.study_summary(service, study)["ledger"]] == [4.0, 0.0]
