"""A study of the service in this process: opened, sent to, and what may be seen of its reports from outside."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, select
from starlette.testclient import TestClient

from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.plans import Survey
from hybridp.service.schema import reports
from hybridp.service.store import reading

from .declared import study_of


def service_of(web: TestClient) -> Service:
    """The service behind these pages."""
    found: Service = web.app.state.service  # type: ignore[attr-defined]
    return found


def opened(service: Service, plan: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """A new study and its task document."""
    study = str(studies.create_study(service, study_of(plan))["id"])
    return study, studies.task_document(service, study)


def send(service: Service, study: str, made: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was refused of these reports."""
    return asyncio.run(studies.submit(service, study, made))


def lengths(made: list[dict[str, Any]]) -> set[int]:
    """How long these are on their way."""
    return {len(json.dumps(one, separators=(",", ":"))) for one in made}


def kept_lengths(service: Service, study: str) -> set[tuple[str, int]]:
    """How long the reports of each group are in the store."""
    kept = select(reports.c.grp, reports.c.body).where(reports.c.study == service.number(study))
    with reading(service.engine) as db:
        return {(group, len(body)) for group, body in db.execute(kept)}


def rebuilt_counts(db: Connection, study: int) -> list[tuple[int, int]]:
    """The groups' sizes, counted from the rows themselves."""
    rows = db.exec_driver_sql(f"SELECT grp, count(*) FROM reports WHERE study = {int(study)} GROUP BY grp")
    return [(int(g), int(n)) for g, n in rows]


def asked(task: dict[str, Any], **changes: Any) -> dict[str, Any]:
    """The task, whose only question is changed; a promise is changed in both places that state it."""
    (question,) = task["questions"]
    found = task | {"questions": [question | changes]}
    if "guarantee" in changes:
        found["guarantee"] = task["guarantee"] | {"local": changes["guarantee"]}
    return found


def alone(question: dict[str, Any]) -> dict[str, Any]:
    """The task of local people who are asked this question and no other."""
    promise = {"local": question["guarantee"]}
    return {"questions": [question], "draws": None, "groups": ["local"], "time_precision": 60, "guarantee": promise}


def within(plan: Survey, place: int, invite: Any) -> Survey:
    """The plan, whose question at this place is asked as a first phase told."""
    asked = list(plan.asked)
    asked[place] = replace(asked[place], invite=invite) if invite is not None else asked[place]
    return Survey(plan.declared, tuple(asked))
