"""What must not be possible, written down, or left behind. On SQLite, in process."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient
from tests.results import sole

from hybridp.service import studies
from hybridp.service.problems import Gate
from tests import warm

from .declared import study_of
from .sent import service_of

Make = Callable[..., dict[str, Any]]


def send(web: TestClient, study: str, reports: list[dict[str, Any]]) -> list[str]:
    answer = web.post(f"/tasks/{study}/reports", json={"reports": reports})
    assert answer.status_code == 200, answer.text
    return [failure["code"] for failure in answer.json()["failures"]]


# --- one invitation, one contribution ---------------------------------------------------------------------------------


def test_an_invitation_is_for_one_way_of_its_own_study(web: TestClient, mean_plan: Make, report: Make) -> None:
    study = studies.create_study(service_of(web), mean_plan(by_invitation=True))["id"]
    another = studies.create_study(service_of(web), mean_plan(by_invitation=True))["id"]
    for first, second in (("trusted", "local"), ("local", "trusted")):
        token, other = studies.invite(service_of(web), study, 2)
        assert send(web, another, [report(token=token)]) == ["token-unknown"]
        assert send(web, study, [report(group=first, token=token)]) == []
        assert send(web, study, [report(group=second, token=token)]) == ["token-used"]
        together = [report(group=first, token=other), report(group=second, token=other)]
        assert send(web, study, together) == ["token-used"]
    assert "<form" not in web.get(f"/s/{study}?t={token}").text
    form = {"report_id": studies.new_report_id(), "answer.0": "5", "t": token}
    assert web.post(f"/s/{study}", data=form).status_code == 409
    assert sum(studies.study_summary(service_of(web), study)["people"].values()) == 4


def test_an_invitation_is_not_for_both_phases(web: TestClient, report: Make) -> None:
    plan = {"kind": "heavy-hitters", "title": "h", "epsilon": 6, "delta": 1e-3, "min_batch": 2, "by_invitation": True}
    study = studies.create_study(service_of(web), study_of(plan | {"time_precision": 60}))["id"]
    tokens = studies.invite(service_of(web), study, 60)
    rows = [report(payload={"answers": {"answer": ["q", "u"]}}, token=t) for t in tokens[:50]]
    assert send(web, study, rows) == []
    studies.open_phase(service_of(web), study)
    again = report(group="local", payload={"reports": {"answer": 0}}, token=tokens[0])
    fresh = report(group="local", payload={"reports": {"answer": 0}}, token=tokens[55])
    assert send(web, study, [again, fresh]) == ["token-used"]


def test_an_idempotency_key_is_for_its_own_study(web: TestClient, mean_plan: Make, report: Make) -> None:
    service, found = service_of(web), []
    for value in (10.0, 90.0):
        study = studies.create_study(service, mean_plan(epsilon=20.0))["id"]
        assert send(web, study, [report(value) for _ in range(40)]) == []
        studies.close_study(service, study)
        found.append(sole(studies.release_study(service, study, "same key"))["estimate"])
    assert found[0] == pytest.approx(10, abs=3)
    assert found[1] == pytest.approx(90, abs=3)


# --- rates ------------------------------------------------------------------------------------------------------------


def test_forms_count_for_the_rate_limit(web: TestClient, mean_plan: Make) -> None:
    study = studies.create_study(service_of(web), mean_plan())["id"]
    service_of(web).gate = Gate(0.001, 3)
    statuses = [web.post("/login", data={"key": "guess"}).status_code for _ in range(2)]
    page = web.get(f"/s/{study}").text
    form = {"report_id": re.findall(r'name="report_id" value="([^"]*)"', page)[0], "answer.0": "5"}
    statuses += [web.post(f"/s/{study}", data=form).status_code for _ in range(2)]
    assert statuses == [401, 401, 303, 429]
    assert int(web.post("/login", data={"key": "guess"}).headers["retry-after"]) > 1


def test_a_network_of_ipv6_is_one_address() -> None:
    gate = Gate(1.0, 1, clock=lambda: 0.0)
    assert [gate.wait(f"2001:db8::{i}") > 0 for i in range(3)] == [False, True, True]
    assert gate.wait("2001:db8:0:1::1") == 0
    assert gate.wait("::ffff:192.0.2.1") == 0
    assert gate.wait("192.0.2.1") > 0  # the same one, written in two ways
    assert gate.wait("2001:zz::") == 0  # nonsense is an address of its own


# --- nothing about people in logs -------------------------------------------------------------------------------------


def test_nothing_of_a_person_is_logged(
    web: TestClient, mean_plan: Make, report: Make, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    service = service_of(web)
    key = studies.add_analyst(service, "ada")
    study = studies.create_study(service, mean_plan(by_invitation=True))["id"]
    (token,) = studies.invite(service, study, 1)
    rows = [report(31.41592, token=token), report(27.18281, token="no such token"), report("16.18033")]
    send(web, study, rows)
    web.get(f"/s/{study}?t={token}")
    web.post(f"/s/{study}", data={"answer.0": "14.14213", "t": token, "report_id": rows[0]["id"]})
    web.get("/api/studies", headers={"Authorization": f"Bearer {key}"})
    web.post("/login", data={"key": key})
    # Names that begin with http are those of the test's own client.
    told = "\n".join(r.getMessage() for r in caplog.records if not r.name.startswith("http"))
    secrets = [token, key, "31.41592", "27.18281", "16.18033", "14.14213", "no such token", rows[0]["id"], "testclient"]
    assert [secret for secret in secrets if secret in told] == []


def test_an_unexpected_error_says_nothing_of_what_was_sent(
    web: TestClient, mean_plan: Make, report: Make, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    from hybridp.service import pages
    from hybridp.service.core import View

    study = studies.create_study(service_of(web), mean_plan())["id"]

    def broken(*given: Any, **more: Any) -> None:
        raise ValueError("the answer is 42.4242")

    monkeypatch.setattr(View, "check", broken)
    monkeypatch.setattr(pages, "participant_view", broken)
    for answer in (web.post(f"/tasks/{study}/reports", json={"reports": [report()]}), web.get(f"/s/{study}")):
        assert answer.status_code == 500
        assert answer.headers["content-type"] == "application/problem+json"
        assert "42.4242" not in answer.text
    assert "ValueError" in caplog.text  # its kind and place are logged
    assert "42.4242" not in caplog.text


def test_the_server_writes_no_access_log(tmp_path: Path) -> None:
    """Addresses, and tokens in links, would be in it; nor is a key written where there is no terminal."""
    code = (
        "import json, sys, uvicorn\n"
        "def run(server, sockets=None):\n"
        "    c = server.config\n"
        "    print(json.dumps([c.access_log, c.log_level, c.server_header]))\n"
        "    c.app.state.service.close()\n"
        "uvicorn.Server.run = run\n"
        "from hybridp.cli.app import main\n"
        "main(sys.argv[1:])"
    )
    where = ["--database", f"sqlite:///{tmp_path}/s.db", "--key-file", str(tmp_path / "k"), "--port", "0"]
    told = warm.run(code, "serve", *where)
    assert told.returncode == 0, told.stderr
    assert [False, "warning", False] in [json.loads(line) for line in told.stdout.splitlines() if line.startswith("[")]
    said = told.stdout + told.stderr
    assert "study analyst NAME" in said
    assert not re.search(r"[\w-]{43}", said)


# --- nothing left behind ----------------------------------------------------------------------------------------------


def test_files_are_for_their_owner_only(web: TestClient, tmp_path: Path, mean_plan: Make) -> None:
    studies.create_study(service_of(web), mean_plan())
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path.name


# --- a server that asks for too little noise, a device that says too much ---------------------------------------------


def test_names_are_data_and_not_sql(web: TestClient, mean_plan: Make, report: Make) -> None:
    evil = "'; DROP TABLE reports; --"
    study = studies.create_study(service_of(web), mean_plan(title=evil, by_invitation=True))["id"]
    assert send(web, study, [report(token=evil)]) == ["token-unknown"]
    assert web.get(f"/tasks/{evil}").status_code == 404
    key = studies.add_analyst(service_of(web), evil)
    headers = {"Authorization": f"Bearer {key}", "Idempotency-Key": evil}
    assert web.post(f"/api/studies/{study}/release", headers=headers).status_code == 409
    assert studies.list_studies(service_of(web))[0]["title"] == evil


def test_refusals_of_the_front_door_are_safe_to_show(web: TestClient) -> None:
    for answer in (web.post("/tasks/none/reports", json={}), web.post("/login", content=b"x" * (2 << 20))):
        assert answer.status_code in (404, 413)
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "default-src 'none'" in answer.headers["content-security-policy"]
