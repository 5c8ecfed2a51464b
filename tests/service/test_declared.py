"""The service's plan is the study as it is declared: in a file, as JSON, in a form, in the interface's description."""

from __future__ import annotations

import html
import re
import tomllib
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from fastapi import FastAPI
from starlette.testclient import TestClient

from hybridp.public.study import Declaration
from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.pages import KINDS
from hybridp.service.plans import parse_plan

from .conftest import Start
from .declared import study_of

TEXT = """
title = "The way to work"
asked_by = "the town"
[promise]
epsilon = 1.0
[trust]
column = "consent"
trusted = ["yes"]
[collection]
purpose = "to plan buses"
contact = "buses@town.example"
min_batch = 4
[[question]]
name = "way"
kind = "number"
text = "How many minutes, one way?"
lower = 0
upper = 120
"""


@pytest.mark.parametrize("field", ["asked_by", "collection.purpose", "collection.contact"])
def test_a_study_is_opened_only_when_it_says_who_asks(service: Service, web: TestClient, field: str) -> None:
    """By the API and by the page. One sentence names the field and an example."""
    name = field.rpartition(".")[2]
    text = "\n".join(line for line in TEXT.splitlines() if not line.startswith(f"{name} ="))
    key = {"Authorization": f"Bearer {studies.add_analyst(service, 'ada')}"}
    answer = web.post("/api/studies", json=Declaration.of(tomllib.loads(text)).to_dict(), headers=key)
    said = f"`{field}` must be given before people are asked: they read it first (such as {name} = "
    assert (answer.status_code, answer.json()["detail"].startswith(said)) == (422, True)
    page = Inputs()
    page.feed(web.get("/studies/new?kind=number").text)
    answer = web.post("/studies/new", data=page.fields | {"title": "T"} | ASKED_BY | TYPED["number"] | {field: " "})
    assert (answer.status_code, html.escape(said) in answer.text) == (422, True)
    assert studies.list_studies(service) == []


def test_serving_a_study_file_makes_it_once(start_server: Start, tmp_path: Path, database: str) -> None:
    file = tmp_path / "study.toml"
    file.write_text(TEXT)
    before = f"import sys; sys.argv.insert(1, {str(file)!r})"
    links = []
    for _ in range(2):
        running = start_server(before)
        (link,) = re.findall(r"^The way to work: http://\S+(/s/\w+)$", running.log.read_text(), re.M)
        links.append(link)
        assert "How many minutes, one way?" in running.http.get(link).text
        running.kill()
    assert links[0] == links[1]
    file.write_text(TEXT.replace("upper = 120", "upper = 240"))
    running = start_server(before)
    assert links[0] not in running.log.read_text()


def test_the_best_report_of_a_vector_is_one_that_a_page_can_draw() -> None:
    plan = {"kind": "vector-mean", "title": "t", "columns": list("abc"), "epsilon": 8.0}
    made = parse_plan(study_of(plan, bounds=[{"lower": 0, "upper": 1}] * 3, local="best"))
    assert made.to_dict()["questions"][0]["local"] == "sampling"


# --- the form ---------------------------------------------------------------------------------------------------------


class Inputs(HTMLParser):
    """What a browser would send of a form that nobody touched, and which fields it insists on."""

    def __init__(self) -> None:
        super().__init__()
        self.fields: dict[str, str] = {}
        self.required: set[str] = set()
        self._select = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag == "input" and found.get("name"):
            self.fields[str(found["name"])] = found.get("value") or ""
            if "required" in found:
                self.required.add(str(found["name"]))
        elif tag == "select":
            self._select = str(found["name"])
        elif tag == "option" and ("selected" in found or self._select not in self.fields):
            self.fields[self._select] = found.get("value") or ""


@pytest.fixture
def web(app: FastAPI, service: Any) -> Any:
    from hybridp.service.app import build_app

    with TestClient(build_app(service.settings, service=service), follow_redirects=False) as client:
        client.post("/login", data={"key": studies.add_analyst(service, "ada")})
        yield client


ASKED_BY = {"asked_by": "us", "collection.purpose": "to try", "collection.contact": "none"}
TYPED = {
    "number": {"question.lower": "0", "question.upper": "9"},
    "choice": {},
    "count": {"question.value": "yes"},
    "vector": {"question.columns": "a, b", "question.lower": "0", "question.upper": "9, 1"},
    "records": {"question.columns": "query, url"},
    "regression": {"question.target": "y", "question.on": "x", "question.lower": "0", "question.upper": "9"},
    "points": {"question.columns": "x, y", "question.lower": "0", "question.upper": "9", "question.clusters": "2"},
}  # fmt: skip
SAID: dict[str, dict[str, str]] = {
    "choice": {"question.options": "yes, no"},
    "records": {"promise.delta": "1e-6"},
    "regression": {"people.local": "50"},
    "points": {"people.trusted": "900", "people.local": "900"},
}
"""What the form does not insist on, and the declaration of this kind does."""


MORE: dict[str, dict[str, str]] = {
    "a mixer": {
        "mixer.batch": "50",
        "mixer.delta": "0.01",
        "mixer.url": "https://mixer.example",
        "mixer.key": "A" * 43,
    },
    "a public group": {"question.by": "town", "question.categories": "Bonn, Ulm", "question.least": "5"},
    "a private group": {"question.by": "town", "question.categories": "Bonn, Ulm", "question.by_private": "true"},
    "own epsilons": {"promise.epsilon": "", "promise.allowed_epsilons": "0.2, 0.5, 1, 2"},
    "statistics": {"question.statistics": "mean, quantiles", "question.at": "0.25, 0.5, 0.75"},
}


@pytest.mark.parametrize(("kind", "more"), [*((kind, None) for kind in TYPED), *(("number", more) for more in MORE)])
def test_a_form_filled_in_where_it_insists_makes_a_study(web: TestClient, kind: str, more: str | None) -> None:
    page = Inputs()
    page.feed(web.get(f"/studies/new?kind={kind}").text)
    empty = {name for name in page.required if not page.fields[name]}
    assert empty == {"title", *ASKED_BY, *TYPED[kind]}
    filled = page.fields | {"title": "T"} | ASKED_BY | TYPED[kind] | MORE.get(more or "", {})
    if SAID.get(kind):
        answer = web.post("/studies/new", data=filled)
        assert (answer.status_code, 'class="problem"' in answer.text) == (422, True)
    answer = web.post("/studies/new", data=filled | SAID.get(kind, {}))
    assert answer.status_code == 303, answer.text
    study = answer.headers["location"].rsplit("/", 1)[1]
    made = studies.study_summary(web.app.state.service, study)  # type: ignore[attr-defined]
    assert made["kind"] == KINDS[kind].kind
    assert not made["open_to_all"]
    task = web.get(f"/tasks/{study}").json()
    assert ("shuffled" in task["groups"]) == (more == "a mixer")
    assert ("columns" in task, [by["name"] for by in task.get("by") or ()]) == (
        more == "a private group", ["town"] * (more == "a public group"))  # fmt: skip
