"""A server under strain: a full disk, bodies that never end, refusals that somebody must be able to see."""

from __future__ import annotations

import json
import resource
import socket
import time
import urllib.error
import urllib.request
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
import hybridp.service.settings as s
s.Limits = functools.partial(s.Limits, body_seconds=4.0)
"""


def ask(url: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"content-type": "application/json"} | headers)
    try:
        with urllib.request.urlopen(request, timeout=120) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


@pytest.fixture
def study(settings: Settings, mean_plan: Make) -> str:
    service = Service(settings)
    made = str(studies.create_study(service, mean_plan(by_invitation=False))["id"])
    service.close()
    return made


def test_health_knows_a_full_disk(start_server: Start, settings: Settings, study: str, report: Make) -> None:
    """No file of the server's process may grow or be written beyond byte 0: what it sees is a disk without room."""
    server = start_server("import hybridp.service.core as c\nc._BELIEVED = 0.0")
    assert ask(server.url, "/healthz") == (200, {"status": "ok"})
    hard = resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (0, hard))
    status, told = ask(server.url, "/healthz")
    assert (status, told.get("code")) == (503, "unavailable"), told
    row = report()
    assert ask(server.url, f"/tasks/{study}/reports", {"reports": [row]})[0] == 503
    resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (hard, hard))
    assert ask(server.url, "/healthz") == (200, {"status": "ok"})
    assert ask(server.url, f"/tasks/{study}/reports", {"reports": [row]}) == (200, {"failures": []})


def resident(pid: int) -> int:
    """MiB."""
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0]) // 1024


def test_bodies_that_never_end_cost_little_and_are_let_go(
    start_server: Start, settings: Settings, study: str, report: Make
) -> None:
    """200 connections send nine tenths of a body each (180 MB together), to uploads and to forms, and then nothing."""
    server = start_server(SHORT)
    assert ask(server.url, f"/tasks/{study}/reports", {"reports": [report()]}) == (200, {"failures": []})
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
    assert ask(server.url, f"/tasks/{study}/reports", {"reports": [report()]}) == (200, {"failures": []})
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
        assert ask(server.url, f"/tasks/{study}/reports", {"reports": [wrong]})[1]["failures"][0]["code"] == "bad-time"
    assert ask(server.url, f"/tasks/{study}/reports", {"reports": [{"id": "31.41592"}]})[0] == 400
    log = server.log.read_text()
    assert [log.count(f"uploads refused: {kind} (1 ") for kind in ("bad-time", "malformed")] == [1, 1]
    assert [
        secret for secret in ("31.41592", wrong["id"], study, "127.0.0.1:") if secret in log.split("Ctrl-C")[1]
    ] == []


FEW = """
import hybridp.service.settings as s
whole = s.Limits
s.Limits = lambda rate: whole(rate=0.002, burst=12, reports_per_request=12, guess_rate=0.001, guess_burst=5)
"""


def fetched(url: str, body: Any = None, **headers: str) -> tuple[int, str, str]:
    """Status, the seconds to wait, and the text; as a browser asks, which follows nothing."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    asked = urllib.request.Request(url, body, {"accept": "text/html"} | named)
    try:
        with urllib.request.urlopen(asked, timeout=120) as answer:
            return answer.status, answer.headers.get("retry-after", ""), answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers.get("retry-after", ""), error.read().decode()


def test_pages_are_limited_by_address_behind_the_proxy_that_is_trusted(
    start_server: Start, settings: Settings, study: str
) -> None:
    """Twelve reports, and six pages, at once; then a page that says when to come back. The proxy's word on the address
    counts, and that of a proxy which is not trusted does not."""
    server = start_server(FEW)
    page = f"{server.url}/s/{study}"
    assert [fetched(page, x_forwarded_for="192.0.2.1")[0] for _ in range(7)] == [200] * 6 + [429]
    status, wait, text = fetched(f"{server.url}/login", x_forwarded_for="192.0.2.1")
    assert (status, text.startswith("<!doctype html>")) == (429, True)
    assert 0 < int(wait) <= 1000
    assert f"come back in {wait} s" in text
    assert fetched(f"{server.url}/tasks/{study}", x_forwarded_for="192.0.2.1")[0] == 429
    assert fetched(page, x_forwarded_for="192.0.2.2")[0] == 200
    assert fetched(f"{server.url}/static/style.css", x_forwarded_for="192.0.2.1")[0] == 200
    other = start_server(f"{FEW}\nimport sys; sys.argv[1:1] = ['--trust-proxy', '198.51.100.7']")
    told = [fetched(f"{other.url}/s/{study}", x_forwarded_for=f"192.0.2.{i}")[0] for i in range(7)]
    assert told == [200] * 6 + [429]


def guesses(url: str, study: str, key: str) -> dict[str, Callable[[str], tuple[int, str, str]]]:
    """One wrong try by each way in, from an address."""
    asked = json.dumps({"reports": [{"id": "A" * 22, "token": "wrong"}]}).encode()
    report = {"id": "A" * 22, "time": int(time.time()), "group": "trusted", "token": "wrong"}
    report["payload"] = {"answers": {"answer": 1}}
    sent = json.dumps({"reports": [report]}).encode()
    kind = {"content_type": "application/json"}
    form = {"content_type": "application/x-www-form-urlencoded"}
    task = f"{url}/tasks/{study}"
    return {
        "key": lambda at: fetched(f"{url}/api/studies", authorization=f"Bearer {key}", x_forwarded_for=at),
        "login": lambda at: fetched(f"{url}/login", b"key=" + key.encode(), **form, x_forwarded_for=at),
        "link": lambda at: fetched(f"{url}/s/{study}?t=wrong", x_forwarded_for=at),
        "metrics": lambda at: fetched(f"{url}/metrics", authorization=f"Bearer {key}", x_forwarded_for=at),
        "invitations": lambda at: fetched(f"{task}/invitations", asked, **kind, x_forwarded_for=at),
        "reports": lambda at: fetched(f"{task}/reports", sent, **kind, x_forwarded_for=at),
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
    for place, (name, guess) in enumerate(guesses(server.url, study, "wrong").items()):
        told = [guess(f"192.0.2.{place}") for _ in range(6)]
        if name == "reports":  # its failures are within the answer
            assert [status for status, *_ in told] == [200] * 5 + [429], told
        else:
            assert {status for status, *_ in told[:5]} <= {200, 401, 403}, (name, told)
            assert told[5][0] == 429, (name, told)
        assert int(told[5][1]) > 0
        ask = guesses(server.url, study, good)["key"]
        assert ask(f"192.0.2.{place}")[0] == 429
        assert ask(f"192.0.2.{100 + place}")[0] == 200


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
