"""One answer, one row: a form, or a page's report, that is told 503 and sent again counts once. Addresses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import httpx2
import pytest
from sqlalchemy.exc import OperationalError
from starlette.testclient import TestClient

from hybridp.service import pages, studies
from hybridp.service.app import build_app
from hybridp.service.settings import Limits, Settings
from tests import warm

from . import live
from .declared import file_of, study_of

PEOPLE = 12


@pytest.fixture(scope="module")
def losing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A real server whose store commits and then goes away before it has said so."""
    with live.serving(tmp_path_factory.mktemp("losing"), LOSE_ANSWERS="1") as running:
        yield running


def fields_of(page: str) -> dict[str, str]:
    """What a browser would send of the page's only form with an address."""
    form = page[page.index('<form method="post"') :]
    found = re.findall(r'<input[^>]*name="([^"]+)"[^>]*value="([^"]*)"', form[: form.index("</form>")])
    return {name: unescape(value) for name, value in found}


def test_a_form_told_503_and_sent_again_counts_once(losing: Any) -> None:
    """As a browser: fill in what the page offers, send; whatever form comes back is sent again, until it is through."""
    study = losing.study()
    url = f"{losing.url}/s/{study}"
    tries = 0
    for i in range(PEOPLE):
        fields = fields_of(httpx2.get(url).text) | {"answer.0": str(30 + i)}
        told = httpx2.post(url, data=fields, follow_redirects=True)
        while told.status_code == 503:
            tries += 1
            assert tries <= PEOPLE
            again = fields_of(told.text)
            assert again == fields  # the same id, and the answer still in it
            told = httpx2.post(url, data=again, follow_redirects=True)
        assert (told.status_code, "Thank you" in told.text) == (200, True)
    assert tries == PEOPLE
    assert losing.people(study) == {"trusted": PEOPLE, "local": 0}


def test_a_form_with_a_mistake_keeps_its_id(losing: Any) -> None:
    url = f"{losing.url}/s/{losing.study()}"
    fields = fields_of(httpx2.get(url).text)
    told = httpx2.post(url, data=fields | {"answer.0": "x"})
    assert (told.status_code, fields_of(told.text)["report_id"]) == (422, fields["report_id"])


SECRETS = {
    "mean": ({}, {"answer.0": "777777.125"}),
    "heavy-hitters": ({"epsilon": 4.0, "delta": 1e-3, "max_length": 5}, {"record.0": "777777.125", "record.1": "y"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", SECRETS)
def test_a_refused_form_does_not_send_the_answer_back(losing: Any, kind: str) -> None:
    plan, answer = SECRETS[kind]
    url = f"{losing.url}/s/{losing.study(kind=kind, **plan, by_invitation=kind == 'mean')}"
    told = httpx2.post(url, data={"report_id": "A" * 22, **answer})  # without an invitation, or against a rule
    assert 400 <= told.status_code < 500
    assert ("777777" in told.text, "problem" in told.text) == (False, True)


def test_without_a_store_the_form_still_comes_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The database is away before the study can even be read: the answer and its id are in the page that says so."""
    where = Settings.from_environment(f"sqlite:///{tmp_path / 's.db'}", tmp_path / "k", limits=Limits(rate=0))
    with TestClient(build_app(where), follow_redirects=False) as web:
        service = web.app.state.service  # type: ignore[attr-defined]
        plan = {"kind": "mean", "title": "t", "bounds": {"lower": 0, "upper": 9}, "epsilon": 1.0}
        study = studies.create_study(service, study_of(plan))["id"]
        form = fields_of(web.get(f"/s/{study}").text) | {"answer.0": "5"}

        def away(*given: Any) -> Any:
            raise OperationalError("select", {}, Exception("gone"))

        with monkeypatch.context() as patch:
            patch.setattr(pages.studies, "task_document", away)
            answer = web.post(f"/s/{study}", data=form)
        assert (answer.status_code, fields_of(answer.text)) == (503, form)
        assert answer.headers["retry-after"]
        assert web.post(f"/s/{study}", data=form).status_code == 303


# --- addresses --------------------------------------------------------------------------------------------------------


def command(*arguments: str) -> str:
    return warm.run(warm.COMMAND, *arguments, check=True).stdout


def test_links_are_those_of_the_server_on_this_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HYBRIDP_BASE_URL", raising=False)
    plan = file_of(tmp_path, {"kind": "mean", "title": "t", "bounds": {"lower": 0, "upper": 9}, "epsilon": 1,
                              "by_invitation": True})  # fmt: skip
    where = ["--database", f"sqlite:///{tmp_path / 'live.db'}", "--key-file", str(tmp_path / "live.key")]
    with live.serving(tmp_path) as running:
        link = command("study", "create", plan, *where).split()[-1]
        assert link.startswith(running.url + "/s/")
        study = link.rsplit("/", 1)[1]
        (invited,) = command("study", "invite", study, "1", *where).split()
        assert invited.startswith(f"{running.url}/s/{study}?t=")
        answer = httpx2.get(invited)
        assert (answer.status_code, "strict-transport-security" in answer.headers) == (200, False)


def test_the_address_of_the_environment_counts(tmp_path: Path) -> None:
    """Secure cookies, HSTS and links follow HYBRIDP_BASE_URL."""
    public = "https://study.example.org"
    with live.serving(tmp_path, HYBRIDP_BASE_URL=public) as running:
        assert running.ask("", method="GET") == {"studies": []}
        study = running.study()
        assert running.ask(f"/{study}", method="GET")["link"] == f"{public}/s/{study}"
        assert httpx2.get(f"{running.url}/s/{study}").headers["strict-transport-security"]
        told = httpx2.post(f"{running.url}/login", data={"key": running.key})
        assert (told.status_code, "; secure" in told.headers["set-cookie"].lower()) == (303, True)
