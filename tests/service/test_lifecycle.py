"""A study to its end: what people were told is what is spent, drawn and deleted; no click is a dead end."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import func, select
from starlette.testclient import TestClient

from hybridp.device.client import local_report, trusted_report
from hybridp.errors import HybridpError, InvalidInput
from hybridp.noise import secure
from hybridp.service import studies
from hybridp.service.app import build_app
from hybridp.service.core import Service
from hybridp.service.plans import parse_plan
from hybridp.service.schema import invitations, reports
from hybridp.service.settings import Limits, Settings
from hybridp.service.store import reading

from .declared import study_of
from .sent import service_of

Make = Callable[..., Any]
SITE = {"sec-fetch-site": "same-origin"}
HEAVY: dict[str, Any] = {"kind": "heavy-hitters", "title": "Searches", "epsilon": 4.0, "delta": 1e-3, "min_batch": 2,
                         "head": 5}  # fmt: skip


def send(service: Service, study: str, made: list[dict[str, Any]]) -> None:
    assert asyncio.run(studies.submit(service, study, made)) == []


def rows(service: Service, study: str) -> int:
    number = service.number(study)
    with reading(service.engine) as db:
        return int(db.execute(select(func.count()).select_from(reports).where(reports.c.study == number)).scalar_one())


# --- totals -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "more",
    [
        {"releases": 5},
        {"releases": 3, "epsilon": 1 / 3, "trusted_epsilon": 0.7},
        {"releases": 2, "delta": 1e-6, "noise": "gaussian", "trusted_epsilon": 0.5},
    ],
    ids=["five", "thirds", "gaussian"],
)
def test_what_the_task_states_is_what_all_releases_spend(
    service: Service, mean_plan: Make, more: dict[str, Any]
) -> None:
    """Promise, task, receipts and ledger: one total, reached by the last planned release and by no other."""
    study = studies.create_study(service, mean_plan(**more))["id"]
    task = studies.task_document(service, study)
    send(service, study, [trusted_report(task, 40.0) for _ in range(6)])
    send(service, study, [local_report(task, 40.0, rng=secure()) for _ in range(6)])
    studies.close_study(service, study)
    so_far = {"epsilon": 0.0, "delta": 0.0}
    for i in range(1, more["releases"] + 1):
        document = studies.release_study(service, study, f"r{i}")
        spending = document["spending"]
        assert (spending["release"], spending["planned_releases"]) == (i, task["releases"])
        trusted = spending["groups"]["trusted"]
        for name, scale in (("epsilon", 1e-12), ("delta", 1e-18)):
            assert trusted["this_release"][name] == pytest.approx(task["each_release"]["trusted"][name], abs=2 * scale)
            so_far[name] += trusted["this_release"][name]
            assert trusted["so_far"][name] == pytest.approx(so_far[name], abs=10 * scale)
            assert trusted["total"][name] == task["guarantee"]["trusted"][name]
        local = spending["groups"]["local"]
        assert local["so_far"] == local["total"]  # the reports are used again, and charged once
        assert local["total"]["epsilon"] == pytest.approx(task["guarantee"]["local"]["epsilon"], abs=1e-11)
        viewer = [p for p in document["receipt"]["promises"] if p["group"] == "trusted" and p["epsilon"] is not None]
        assert [(p["epsilon"], p["delta"]) for p in viewer] == [tuple(task["each_release"]["trusted"].values())]
        assert studies.study_summary(service, study)["raw_deleted"] == (i == more["releases"])
    for account in studies.study_summary(service, study)["ledger"]:
        promised = task["guarantee"][account["people"]]
        assert account["epsilon_spent"] == pytest.approx(promised["epsilon"], abs=1e-11)
        assert account["epsilon_spent"] == account["epsilon_total"]
        assert account["delta_spent"] == pytest.approx(promised["delta"], abs=1e-17)
    with pytest.raises(HybridpError):
        studies.release_study(service, study, "one more")


# --- the last day -----------------------------------------------------------------------------------------------------


def test_a_studys_last_day_is_kept(settings: Settings, mean_plan: Make) -> None:
    """Nothing is released, nobody closes it: on the day that people read, their answers go all the same."""
    now = [time.time()]
    service = Service(settings, clock=lambda: now[0])
    study = studies.create_study(service, mean_plan())["id"]
    task = studies.task_document(service, study)
    assert task["delete_by"] % 86_400 == 0
    assert 455 <= (task["delete_by"] - now[0]) / 86_400 <= 456  # a year, and 90 days
    send(service, study, [trusted_report(task, 40.0) for _ in range(5)])
    send(service, study, [local_report(task, 40.0, rng=secure()) for _ in range(3)])
    now[0] = task["delete_by"] - 1
    assert service.delete_due() == task["delete_by"]
    assert rows(service, study) == 8
    now[0] = task["delete_by"]
    assert service.delete_due() is None
    assert service.sweeper.wait(60)
    assert rows(service, study) == 3  # local reports are private by themselves, and stay
    summary = studies.study_summary(service, study)
    assert (summary["status"], summary["raw_deleted"]) == ("closed", True)
    with pytest.raises(HybridpError, match="deleted"):
        studies.release_study(service, study)
    service.close()


def test_the_last_day_comes_while_the_server_runs_and_at_its_start(tmp_path: Path, mean_plan: Make) -> None:
    where = Settings.from_environment(f"sqlite:///{tmp_path / 's.db'}", tmp_path / "k", limits=Limits(rate=0))
    service = Service(where)
    due = int(time.time()) + 2
    study = studies.create_study(service, mean_plan(delete_by=due))["id"]
    later = studies.create_study(service, mean_plan(delete_by=due + 3600))["id"]
    for one in (study, later):
        send(service, one, [trusted_report(studies.task_document(service, one), 40.0)])
    with TestClient(build_app(where, service=service)):
        until = time.monotonic() + 60
        while rows(service, study) and time.monotonic() < until:
            time.sleep(0.1)
        assert (rows(service, study), rows(service, later)) == (0, 1)
    again = Service(where, clock=lambda: due + 3600)
    assert again.sweeper.wait(60)
    assert rows(again, later) == 0
    again.close()


@pytest.mark.parametrize(
    ("more", "days"),
    [({"closes": 86_400 * 50}, 140), ({"opens": 86_400 * 10}, 465), ({"delete_by": 86_400 * 500}, 500)],
)
def test_which_day_it_is(mean_plan: Make, more: dict[str, int], days: int) -> None:
    assert parse_plan(mean_plan(**more)).dated(0).delete_by == days * 86_400


def test_no_day_is_for_ever(mean_plan: Make) -> None:
    for more in ({"delete_by": 99}, {"closes": 1000, "delete_by": 1000 + 86_400 * 3661}):
        with pytest.raises(InvalidInput, match="delete_by"):
            parse_plan(mean_plan(**more)).dated(100)


def test_a_deleted_study_keeps_what_was_spent(service: Service, mean_plan: Make) -> None:
    study = studies.create_study(service, mean_plan(by_invitation=True, releases=2))["id"]
    task = studies.task_document(service, study)
    tokens = studies.invite(service, study, 9)
    send(service, study, [trusted_report(task, 40.0, token=t) for t in tokens[:4]])
    send(service, study, [local_report(task, 40.0, token=t, rng=secure()) for t in tokens[4:8]])
    studies.close_study(service, study)
    released = studies.release_study(service, study)
    studies.delete_study(service, study)
    assert service.sweeper.wait(60)
    assert rows(service, study) == 0
    with reading(service.engine) as db:
        assert db.execute(select(func.count()).select_from(invitations)).scalar_one() == 0
    summary = studies.study_summary(service, study)
    assert (summary["status"], summary["release"]) == ("deleted", released)
    assert [a["epsilon_spent"] for a in summary["ledger"]] == [1.0, 1.0]
    for key in ("another", "release-2"):
        with pytest.raises(HybridpError, match="deleted"):
            studies.release_study(service, study, key)
    late = trusted_report(task, 1.0, token=tokens[8])
    assert asyncio.run(studies.submit(service, study, [late]))[0]["code"] in ("closed", "token-unknown")


@pytest.mark.parametrize("whole", [True, False])
def test_what_is_deleted_while_a_release_reads_it_stays_deleted(
    service: Service, mean_plan: Make, monkeypatch: pytest.MonkeyPatch, whole: bool
) -> None:
    """A release takes a minute at ten million: whoever deletes meanwhile, or the last day, wins. Nothing is charged."""
    study = studies.create_study(service, mean_plan(releases=2))["id"]
    task = studies.task_document(service, study)
    send(service, study, [trusted_report(task, 40.0) for _ in range(4)])
    send(service, study, [local_report(task, 40.0, rng=secure()) for _ in range(4)])
    studies.close_study(service, study)
    found = discovering(service)
    for name, what, ask in (
        ("_prepared", study, studies.release_study),
        ("_between", found, studies.open_phase),
    ):
        read, number = getattr(studies, name), service.number(what)

        def and_deleted(*given: Any, read: Any = read, number: int = number, what: str = what) -> Any:
            build = read(*given)
            service.delete(number, what, whole=whole)
            return build

        with monkeypatch.context() as patch:
            patch.setattr(studies, name, and_deleted)
            with pytest.raises(HybridpError, match="deleted"):
                ask(service, what)
        assert service.sweeper.wait(60)
        summary = studies.study_summary(service, what)
        assert (summary["status"], summary["releases"]) == ("deleted" if whole else "closed", [])
        assert {a["epsilon_spent"] for a in summary["ledger"]} == {0.0}
        assert rows(service, what) == (0 if whole or what == found else 4)


# --- no dead ends -----------------------------------------------------------------------------------------------------


@pytest.fixture
def web(web: TestClient) -> TestClient:
    key = studies.add_analyst(service_of(web), "ana")
    assert web.post("/login", data={"key": key}, headers=SITE).status_code == 303
    return web


def discovering(service: Service) -> str:
    study = str(studies.create_study(service, study_of(HEAVY))["id"])
    task = studies.task_document(service, study)
    send(service, study, [trusted_report(task, ["news", "a.org"]) for _ in range(60)])
    return study


def test_a_discovery_that_died_is_offered_again(web: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    service = service_of(web)
    study = discovering(service)
    with monkeypatch.context() as patch:
        patch.setattr(studies, "_commit", lambda *given: (_ for _ in ()).throw(RuntimeError))
        patch.setattr(studies, "_move", lambda _, row, old, new, move=studies._move: new or move(_, row, old, new))
        with pytest.raises(RuntimeError):
            studies.open_phase(service, study)
    assert studies.study_summary(service, study)["phase"] == 0
    page = web.get(f"/studies/{study}").text
    assert "Phase 2 is being opened, and is not open yet" in page
    assert "Discover, then invite local people" in page
    assert "between two phases" in web.get(f"/s/{study}").text
    studies.open_phase(service, study)
    assert studies.study_summary(service, study)["phase"] == 2


def test_the_page_opens_the_phase_that_it_asked_about_and_no_other(web: TestClient) -> None:
    """Two clicks on one button are one phase; what all have said so far is shown between."""
    service = service_of(web)
    asked = {"name": "way", "kind": "number", "lower": 0, "upper": 100, "statistics": ["quantiles"], "at": [0.5],
             "form": "steered"}  # fmt: skip
    stated = {"title": "t", "promise": 2, "collection": {"min_batch": 20}, "questions": [asked]}
    study = str(studies.create_study(service, study_of(stated))["id"])
    token = re.findall(r'name="form_token" value="([^"]*)"', web.get(f"/studies/{study}").text)[0]
    for phase, says in ((2, "whole promise is spent"), (3, "Who has answered cannot answer again")):
        task = studies.task_document(service, study)
        make = trusted_report if phase == 2 else partial(local_report, rng=secure())
        send(service, study, [make(task, float(i)) for i in range(40)])
        page = web.get(f"/studies/{study}/confirm?what=next-phase").text
        assert says in page
        form = dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)"', page))
        for _ in range(2):
            assert web.post(f"/studies/{study}/next-phase", data=form).status_code == 303
        assert studies.study_summary(service, study)["phase"] == phase
    assert "What was said in the phases before this one" in web.get(f"/studies/{study}").text
    assert web.post(f"/studies/{study}/next-phase", data={"form_token": token, "phase": "x"}).status_code == 409


def test_what_cannot_be_undone_is_asked_about(web: TestClient) -> None:
    """One click on the study's page changes nothing; the second one, on the page that says what it does, does it."""
    service = service_of(web)
    study = discovering(service)
    page = web.get(f"/studies/{study}").text
    forms = re.findall(r'<form method="(\w+)" action="([^"]+)"', page[page.index("<main") :])
    assert len(forms) == 3  # each of them leads to a question
    assert {f for f in forms if f[0] == "post"} == set()
    for what, says in (("close", "Discover"), ("next-phase", "public from then on"), ("delete", "ledger")):
        asked = web.get(f"/studies/{study}/confirm?what={what}").text
        assert says in asked
        assert "No, go back" in asked
    summary = studies.study_summary(service, study)
    assert (summary["status"], summary["phase"]) == ("open", 1)
    token = re.findall(r'name="form_token" value="([^"]*)"', page)[0]
    assert web.post(f"/studies/{study}/delete").status_code == 403
    assert web.post(f"/studies/{study}/delete", data={"form_token": token}).status_code == 303
    assert "deleted" in web.get(f"/studies/{study}").text
    assert web.get(f"/studies/{study}/confirm?what=nothing").status_code == 404


# --- plans that would break a page ------------------------------------------------------------------------------------


NUMBERS = st.one_of(
    st.floats(allow_nan=False), st.integers(-(10**6), 10**6), st.sampled_from([1e-300, 1e15, 1e30, 0.1])
)


@given(
    lower=NUMBERS, upper=NUMBERS, sd=st.none() | NUMBERS, step=st.none() | NUMBERS, epsilon=NUMBERS, delta=NUMBERS,
    releases=st.integers(1, 10**6), level=st.floats(0, 1), closes=st.none() | st.integers(0, 2**41),
    title=st.text(max_size=20), unit=st.text(max_size=5), expected=st.integers(0, 10**11),
    local=st.sampled_from(["dithered", "piecewise", "best"]),
)  # fmt: skip
@settings(max_examples=50, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_plan_that_is_accepted_has_pages(web: TestClient, **fields: Any) -> None:
    plan = {"kind": "mean", "bounds": {"lower": fields.pop("lower"), "upper": fields.pop("upper")}, **fields}
    plan["expected"] = {"trusted": plan["expected"], "local": 7}
    try:
        study = studies.create_study(service_of(web), study_of(plan))["id"]
    except InvalidInput:
        return
    for address in (
        "/",
        f"/studies/{study}",
        f"/s/{study}",
        f"/s/{study}/thanks",
        f"/studies/{study}/confirm?what=close",
    ):
        assert web.get(address).status_code == 200, address
    assert web.get(f"/tasks/{study}").status_code == 200
