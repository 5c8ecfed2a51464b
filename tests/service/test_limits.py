"""A server under strain: a full disk, bodies that never end, refusals that somebody must be able to see."""

from __future__ import annotations

import resource
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.problems import Gate, Refused
from hybridp.service.settings import Settings

Make = Callable[..., dict[str, Any]]
Start = Callable[..., Any]
SHORT = """
import functools
import hybridp.cli.serve as s
s.Limits = functools.partial(s.Limits, body_seconds=4.0)
"""


@pytest.fixture
def study(settings: Settings, mean_plan: Make) -> str:
    service = Service(settings)
    made = str(studies.create_study(service, mean_plan(by_invitation=False))["id"])
    service.close()
    return made


def test_health_knows_a_full_disk(start_server: Start, study: str, report: Make) -> None:
    """No file of the server's process may grow or be written beyond byte 0: what it sees is a disk without room."""
    server = start_server("import hybridp.service.core as c\nc._BELIEVED = 0.0")
    sent = {"url": f"/tasks/{study}/reports", "json": {"reports": [report()]}}
    assert server.http.get("/healthz").json() == {"status": "ok"}
    hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, hard))
    told = server.http.get("/healthz")
    assert (told.status_code, told.json()["code"]) == (503, "unavailable"), told
    assert server.http.post(**sent).status_code == 503
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert server.http.get("/healthz").json() == {"status": "ok"}
    assert server.http.post(**sent).json() == {"failures": []}


def resident(pid: int) -> int:
    """MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) // 1024


def test_bodies_that_never_end_cost_little_and_are_let_go(
    start_server: Start, settings: Settings, study: str, report: Make
) -> None:
    """200 connections send nine tenths of a body each (180 MB together), to uploads and to forms, and then nothing."""
    server = start_server(SHORT)
    assert server.http.post(f"/tasks/{study}/reports", json={"reports": [report()]}).json() == {"failures": []}
    before = resident(server.process.pid)
    host, port = str(urlsplit(server.url).hostname), int(urlsplit(server.url).port or 0)
    part, crowd = b" " * 900_000, []
    for i in range(200):
        one = socket.create_connection((host, port), timeout=60)
        crowd.append(one)
        path = f"/tasks/{study}/reports" if i % 2 else f"/s/{study}"
        kind = "application/json" if i % 2 else "application/x-www-form-urlencoded"
        head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: {kind}\r\ncontent-length: 1000000\r\n\r\n"
        try:
            one.sendall(head.encode() + part)
        except (ConnectionError, TimeoutError):
            continue  # it was told to come back later, and did not listen
    # 64 MiB of bodies at most, and what the server keeps of each connection itself.
    assert resident(server.process.pid) - before < 160
    assert server.http.post(f"/tasks/{study}/reports", json={"reports": [report()]}).json() == {"failures": []}
    said = set()
    for one in crowd:
        with one:
            one.settimeout(120)
            try:
                answer = b""
                while some := one.recv(65536):  # until the server ends it
                    answer += some
            except ConnectionError:
                answer = b""
            said.add(answer[9:12].decode())
    assert said <= {"408", "503", ""}
    assert "408" in said


def test_refused_uploads_are_logged_by_kind_and_nothing_else(
    start_server: Start, settings: Settings, study: str, report: Make
) -> None:
    server = start_server()
    wrong = report(31.41592) | {"time": 61}
    for _ in range(5):
        told = server.http.post(f"/tasks/{study}/reports", json={"reports": [wrong]}).json()
        assert told["failures"][0]["code"] == "bad-time"
    assert server.http.post(f"/tasks/{study}/reports", json={"reports": [{"id": "31.41592"}]}).status_code == 400
    log = server.log.read_text()
    assert [log.count(f"uploads refused: {kind} (1 ") for kind in ("bad-time", "malformed")] == [1, 1]
    assert [
        secret for secret in ("31.41592", wrong["id"], study, "127.0.0.1:") if secret in log.split("Ctrl-C")[1]
    ] == []


FEW = """
import hybridp.cli.serve as s
whole = s.Limits
s.Limits = lambda rate: whole(rate=0.002, burst=12, reports_per_request=12, guess_rate=0.001, guess_burst=5)
"""


def test_pages_are_limited_by_address_behind_the_proxy_that_is_trusted(start_server: Start, study: str) -> None:
    """Twelve reports, and six pages, at once; then a page that says when to come back. The proxy's word on the address
    counts, and that of a proxy which is not trusted does not."""

    def fetched(server: Any, path: str, address: str) -> Any:
        return server.http.get(path, headers={"accept": "text/html", "x-forwarded-for": address})

    server, page = start_server(FEW), f"/s/{study}"
    assert [fetched(server, page, "192.0.2.1").status_code for _ in range(7)] == [200] * 6 + [429]
    told = fetched(server, "/login", "192.0.2.1")
    assert (told.status_code, told.text.startswith("<!doctype html>")) == (429, True)
    assert 0 < int(told.headers["retry-after"]) <= 1000
    assert f"come back in {told.headers['retry-after']} s" in told.text
    assert fetched(server, f"/tasks/{study}", "192.0.2.1").status_code == 429
    assert fetched(server, page, "192.0.2.2").status_code == 200
    assert fetched(server, "/static/style.css", "192.0.2.1").status_code == 200
    other = start_server(f"{FEW}\nimport sys; sys.argv[1:1] = ['--trust-proxy', '198.51.100.7']")
    assert [fetched(other, page, f"192.0.2.{i}").status_code for i in range(7)] == [200] * 6 + [429]


def guesses(study: str, key: str) -> dict[str, dict[str, Any]]:
    """One wrong try by each way in."""
    bearer = {"Authorization": f"Bearer {key}"}
    report = {"id": "A" * 22, "time": int(time.time()), "group": "trusted", "token": "wrong"}
    asked = {"reports": [{"id": "A" * 22, "token": "wrong"}]}
    sent = {"reports": [report | {"payload": {"answers": {"answer": 1}}}]}
    return {
        "key": {"method": "GET", "url": "/api/studies", "headers": bearer},
        "login": {"method": "POST", "url": "/login", "data": {"key": key}},
        "link": {"method": "GET", "url": f"/s/{study}?t=wrong"},
        "metrics": {"method": "GET", "url": "/metrics", "headers": bearer},
        "invitations": {"method": "POST", "url": f"/tasks/{study}/invitations", "json": asked},
        "reports": {"method": "POST", "url": f"/tasks/{study}/reports", "json": sent},
    }


def test_wrong_keys_and_invitations_are_limited_by_address(
    start_server: Start, settings: Settings, mean_plan: Make
) -> None:
    """Five wrong ones, by any way in; then none is looked at, not even a good one, and other addresses go on."""
    service = Service(settings)
    study = str(studies.create_study(service, mean_plan(by_invitation=True, time_precision=1))["id"])
    good = studies.add_analyst(service, "ada")
    service.close()
    server = start_server(FEW.replace("burst=12", "burst=1000"), HYBRIDP_METRICS_TOKEN="counted")

    def tried(guess: dict[str, Any], at: int) -> Any:
        headers = guess.get("headers", {}) | {"x-forwarded-for": f"192.0.2.{at}"}
        return server.http.request(**{**guess, "headers": headers})

    for place, (name, guess) in enumerate(guesses(study, "wrong").items()):
        told = [tried(guess, place) for _ in range(6)]
        allowed = {200} if name == "reports" else {200, 401, 403}  # its failures are within the answer
        assert {answer.status_code for answer in told[:5]} <= allowed, (name, told)
        assert (told[5].status_code, int(told[5].headers["retry-after"]) > 0) == (429, True), (name, told)
        right = guesses(study, good)["key"]
        assert [tried(right, at).status_code for at in (place, 100 + place)] == [429, 200]


def test_many_wrong_ones_in_one_request_cost_at_most_two_bursts() -> None:
    now = [0.0]
    gate = Gate(rate=1.0, burst=10, clock=lambda: now[0])
    gate.guessed_wrong("192.0.2.1", 1000)
    gate.guessed_wrong("192.0.2.1", 1000)
    with pytest.raises(Refused):
        gate.may_guess("192.0.2.1")
    now[0] = 11.0  # ten of the second burst, and one
    gate.may_guess("192.0.2.1")
    assert gate.wait("192.0.2.2", 10) == 0.0  # nobody else's
