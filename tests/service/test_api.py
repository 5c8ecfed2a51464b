"""The service from outside: studies, uploads, releases, refusals. Each test on SQLite and on PostgreSQL."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient
from tests.results import sole

from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import LEVELS, dithered_bit
from hybridp.service.core import Service

from .declared import study_of

Make = Callable[..., dict[str, Any]]


def created(client: TestClient, analyst: dict[str, str], plan: dict[str, Any]) -> str:
    answer = client.post("/api/studies", json=study_of(plan), headers=analyst)
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def send(client: TestClient, study: str, reports: list[dict[str, Any]]) -> list[dict[str, Any]]:
    answer = client.post(f"/tasks/{study}/reports", json={"reports": reports})
    assert answer.status_code == 200, answer.text
    found: list[dict[str, Any]] = answer.json()["failures"]
    return found


def local_bits(values: list[float], report: Make) -> list[dict[str, Any]]:
    """What devices send for these values (epsilon 1 on [0, 100]): threshold and bit, by an independent formula."""
    rng = np.random.default_rng(5)
    found = []
    q = dithered_bit(PureDP(1.0)).flips / 2**64
    for value in values:
        threshold = int(rng.integers(LEVELS))
        above = bool((value / 100 * LEVELS > threshold) ^ (rng.random() < q))
        found.append(report(group="local", payload={"reports": {"answer": {"threshold": threshold, "above": above}}}))
    return found


def test_a_study_from_plan_to_release(
    client: TestClient, analyst: dict[str, str], mean_plan: Make, report: Make, service: Service
) -> None:
    study = created(client, analyst, mean_plan(sd=10.0, expected={"trusted": 400, "local": 400}))
    rng = np.random.default_rng(1)
    values = np.clip(rng.normal(40, 10, 800), 0, 100)
    assert send(client, study, [report(float(v)) for v in values[:400]]) == []
    assert send(client, study, local_bits(values[400:].tolist(), report)) == []
    page = client.get(f"/api/studies/{study}", headers=analyst).json()
    assert page["people"] == {"trusted": 400, "local": 400}
    assert sum(b["trusted"] + b["local"] for b in page["participation"]["bins"]) == 800
    assert page["planned"]["rmse"] == pytest.approx(page["now_predicted"]["rmse"])
    early = client.post(f"/api/studies/{study}/release", headers=analyst)
    assert (early.status_code, early.json()["code"]) == (409, "still-open")
    assert early.headers["content-type"] == "application/problem+json"
    assert client.post(f"/api/studies/{study}/close", headers=analyst).json()["status"] == "closed"
    first = client.post(f"/api/studies/{study}/release", headers=analyst)
    assert first.status_code == 200, first.text
    found = first.json()
    # Eight standard errors of the plan: an honest release is never so far away.
    assert abs(sole(found)["estimate"] - 40) < 8 * page["now_predicted"]["rmse"]
    assert sole(found)["groups"]["trusted"]["people"] == sole(found)["groups"]["local"]["people"] == 400
    assert found["simulated"] is False
    assert len(found["receipt"]["ledger_entries"]) == 2
    again = client.post(f"/api/studies/{study}/release", headers=analyst)
    assert again.json() == found
    other = client.post(f"/api/studies/{study}/release", headers=analyst | {"Idempotency-Key": "another"})
    assert (other.status_code, other.json()["code"]) == (409, "budget-exceeded")
    after = client.get(f"/api/studies/{study}", headers=analyst).json()
    assert {a["people"]: a["epsilon_spent"] for a in after["ledger"]} == {"trusted": 1.0, "local": 1.0}
    assert after["status"] == "released"
    assert after["release"] == found
    assert after["raw_deleted"] is True
    lines = client.get(f"/api/studies/{study}/export", headers=analyst).text.splitlines()
    assert len(lines) == 400
    assert client.get(f"/api/studies/{study}/release", headers=analyst).json() == found


def test_bad_reports_about_several_numbers(client: TestClient, analyst: dict[str, str], report: Make) -> None:
    sides = [{"lower": 0, "upper": 10}] * 3
    plan = {"kind": "vector-mean", "title": "v", "columns": ["a", "b", "c"], "bounds": sides, "time_precision": 60}
    bits = created(client, analyst, plan | {"epsilon": 1.0, "local": "sampling"})
    numbers = created(client, analyst, plan | {"epsilon": 9.0, "local": "per-coordinate"})
    ball = created(client, analyst, plan | {"epsilon": 4.0, "local": "unit-vector", "norm": "l2", "radius": 1.0})
    assert client.get(f"/tasks/{bits}").json()["questions"][0]["randomiser"]["reported"] == 1
    bit = {"threshold": 1, "above": True}
    good, whole = {"coordinates": [2], "each": [bit]}, {"coordinates": [0, 1, 2], "each": [5.0, 5.0, 5.0]}
    assert send(client, bits, [report(group="local", payload={"reports": {"answer": good}})]) == []
    assert send(client, numbers, [report(group="local", payload={"reports": {"answer": whole}})]) == []
    cases: list[tuple[str, Any, str]] = [
        (bits, {"coordinates": [], "each": []}, "bad-payload"),
        (bits, {"coordinates": [3], "each": [bit]}, "bad-payload"),
        (bits, {"coordinates": [0, 1], "each": [bit, bit]}, "bad-payload"),
        (bits, {"coordinates": [0], "each": [bit, bit]}, "bad-payload"),
        (bits, {"coordinates": [0], "each": [5.0]}, "bad-payload"),
        (bits, {"coordinates": [0], "each": [{"threshold": 2**32, "above": True}]}, "bad-payload"),
        (numbers, {"coordinates": [0, 1, 1], "each": [5.0, 5.0, 5.0]}, "bad-payload"),
        (numbers, {"coordinates": [0, 1, 2], "each": [5.0, bit, 5.0]}, "bad-payload"),
        (numbers, {"coordinates": [0, 1, 2], "each": [5.0, 5.0, 1e6]}, "out-of-range"),
        (ball, [5.0, 5.0], "bad-payload"),
        (ball, [5.0, 5.0, -1e6], "out-of-range"),
    ]
    for study, wrong, code in cases:
        found = send(client, study, [report(group="local", payload={"reports": {"answer": wrong}})])
        assert [f["code"] for f in found] == [code], wrong
        assert "1e6" not in found[0]["detail"]
        assert "1000000" not in found[0]["detail"]
    assert send(client, bits, [report(payload={"answers": {"answer": [1.0]}})])[0]["code"] == "bad-payload"


def test_uploads_are_idempotent(client: TestClient, analyst: dict[str, str], mean_plan: Make, report: Make) -> None:
    study = created(client, analyst, mean_plan())
    one, two = report(10.0), report(group="local")
    assert send(client, study, [one, one, two]) == []
    assert send(client, study, [two, one]) == []
    changed = one | {"payload": {"answers": {"answer": 11.0}}}
    assert send(client, study, [changed, two]) == []  # the first counts, and the answer does not tell what it was
    assert client.get(f"/api/studies/{study}", headers=analyst).json()["people"] == {"trusted": 1, "local": 1}
    client.post(f"/api/studies/{study}/close", headers=analyst)
    assert send(client, study, [one]) == []  # the acknowledgement may have been lost
    assert [f["code"] for f in send(client, study, [report(1.0)])] == ["closed"]


def test_one_contribution_for_each_invitation(
    client: TestClient, analyst: dict[str, str], mean_plan: Make, report: Make
) -> None:
    study = created(client, analyst, mean_plan(by_invitation=True))
    tokens = client.post(f"/api/studies/{study}/invitations", json={"count": 3}, headers=analyst).json()["tokens"]
    assert len(set(tokens)) == 3
    good = report(token=tokens[0])
    rows = [report(), report(token="guess"), good, report(token=tokens[0]), good]
    assert [f["code"] for f in send(client, study, rows)] == ["token-needed", "token-unknown", "token-used"]
    assert [f["code"] for f in send(client, study, [report(token=tokens[0]), good])] == ["token-used"]
    assert client.get(f"/api/studies/{study}", headers=analyst).json()["invitations"] == {"made": 3, "used": 1}
    open_study = created(client, analyst, mean_plan())
    refused = client.post(f"/api/studies/{open_study}/invitations", json={"count": 3}, headers=analyst)
    assert refused.status_code == 422


def test_whole_requests_are_refused_with_problem_documents(
    client: TestClient, analyst: dict[str, str], mean_plan: Make, report: Make
) -> None:
    study = created(client, analyst, mean_plan())
    place = f"/tasks/{study}/reports"
    as_json = {"content-type": "application/json"}
    many = {"reports": [report() for _ in range(1001)]}
    deep = b'{"reports":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    cases = [
        (client.post(place, content=b"{", headers=as_json), 400, "malformed"),
        (client.post(place, content=deep, headers=as_json), 400, "malformed"),
        (client.post(place, json={"reports": [report() | {"surprise": 1}]}), 400, "malformed"),
        (client.post(place, json=many), 413, "too-many-reports"),
        (client.post(place, content=b" " * (1 << 20) + b"1", headers=as_json), 413, "too-large"),
        (client.post(place, content=iter([b" " * (1 << 20), b"1"]), headers=as_json), 413, "too-large"),
        (client.post(place, content=b"{}", headers={"content-type": "text/plain"}), 415, "media-type"),
        (client.post("/tasks/none/reports", json={"reports": []}), 404, "not-found"),
        (client.get(place), 405, "wrong-method"),
        (client.get("/api/studies", headers={"Authorization": "Bearer nonsense"}), 401, "unauthorised"),
        (client.post("/api/studies", json=mean_plan(epsilon=-1), headers=analyst), 422, "invalid"),
        (client.post("/api/studies", content=b"{", headers=analyst | as_json), 400, "malformed"),
    ]
    for answer, status, code in cases:
        assert (answer.status_code, answer.json()["code"]) == (status, code)
        assert answer.headers["content-type"] == "application/problem+json"
        assert set(answer.json()) >= {"type", "title", "status", "detail", "code"}


def test_too_few_people_are_not_released(
    client: TestClient, analyst: dict[str, str], mean_plan: Make, report: Make
) -> None:
    study = created(client, analyst, mean_plan())
    send(client, study, [report() for _ in range(3)])
    client.post(f"/api/studies/{study}/close", headers=analyst)
    refused = client.post(f"/api/studies/{study}/release", headers=analyst)
    assert (refused.status_code, refused.json()["code"]) == (409, "batch-too-small")
    assert client.get(f"/api/studies/{study}/release", headers=analyst).json()["code"] == "no-release"


def test_the_task_document_is_complete_and_constant(
    client: TestClient, analyst: dict[str, str], mean_plan: Make, report: Make
) -> None:
    study = created(client, analyst, mean_plan())
    first = client.get(f"/tasks/{study}")
    send(client, study, [report()])
    second = client.get(f"/tasks/{study}")
    assert first.content == second.content
    assert client.get(f"/tasks/{study}", headers={"If-None-Match": first.headers["etag"]}).status_code == 304
    task = first.json()
    assert task["questions"][0]["randomiser"]["flips"] == str(dithered_bit(PureDP(1.0)).flips)
    assert any("more than once" in sentence for sentence in task["notice"])


def test_health_and_metrics_name_nobody(
    client: TestClient, analyst: dict[str, str], mean_plan: Make, report: Make, service: Service
) -> None:
    study = created(client, analyst, mean_plan())
    send(client, study, [report(), report() | {"id": "x"}])
    assert client.get("/healthz").json() == {"status": "ok"}
    assert (client.get("/metrics").status_code, client.get("/metrics").json()["code"]) == (403, "metrics-closed")
    service.settings = replace(service.settings, metrics_open=True)
    text = client.get("/metrics").text
    assert 'hybridp_reports_total{outcome="accepted"} 1' in text
    assert 'hybridp_reports_total{outcome="bad-id"} 1' in text
    assert study not in text


def test_metrics_may_ask_for_a_token(settings: Any, service: Service) -> None:
    from hybridp.service.app import build_app

    service.settings = replace(settings, metrics_token="scraper")
    with TestClient(build_app(settings, service=service)) as client:
        assert client.get("/metrics").status_code == 401
        assert client.get("/metrics", headers={"Authorization": "Bearer guess"}).status_code == 401
        assert client.get("/metrics", headers={"Authorization": "Bearer scraper"}).status_code == 200
