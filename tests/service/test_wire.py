"""What an observer of the network learns: the sizes of uploads, and from what clock their times are.

TLS hides what is sent, not how long it is. Real bodies, from the Python client and from Chromium, over answers that
make a report as short and as long as it can be: one size for each study and group.
"""

from __future__ import annotations

import json
import time
import urllib.request
from typing import Any

import numpy as np
import pytest

from hybridp.device import client
from hybridp.errors import InvalidInput
from hybridp.noise import Randomness, secure
from hybridp.public.heavy import normalised

from . import live


@pytest.fixture
def bodies(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, bytes]]:
    """What the Python client really sends: address and body of every request with one."""
    sent: list[tuple[str, bytes]] = []
    real = urllib.request.urlopen

    def noted(request: Any, **more: Any) -> Any:
        if request.data is not None and "/tasks/" in request.full_url:
            sent.append((request.full_url, request.data))
        return real(request, **more)

    monkeypatch.setattr(client.urllib.request, "urlopen", noted)
    return sent


def beginning(word: int) -> Randomness:
    """The first words are all this one, the smallest or the largest: the shortest and the longest reports."""
    rest, first = secure(), [True]

    def words(n: int) -> Any:
        was, first[0] = first[0], False
        return np.full(n, word, dtype=np.uint64) if was else rest.words(n)

    return Randomness(True, "test", words, rest.children)


SIDES = [{"lower": 0, "upper": 1e-7}, {"lower": -1e15, "upper": 1e15}, {"lower": 0, "upper": 3}]
VECTOR = {"kind": "vector-mean", "columns": ["a", "b", "c"], "bounds": SIDES}
NUMBERS = (0.0, 7.0, 119.99999999999999, 1e-300, -2.2250738585072014e-308, -1.7976931348623157e308)
VALUES = ([0.0, 0.0, 0.0], [1.2345678901234567e-8, -123456789012345.67, 1.5], [1e-7, 1e15, 3.0])
STUDIES: list[tuple[str, dict[str, Any], tuple[Any, ...], tuple[float | None, ...]]] = [
    ("invited", {"by_invitation": True}, NUMBERS, (None,)),
    ("piecewise", {"local": "piecewise"}, NUMBERS, (None,)),
    ("personal", {"kind": "personal-mean", "bounds": {"lower": 0, "upper": 120}, "allowed_epsilons": [0.5, 1.0, 4.0]},
     NUMBERS, (0.5, 1.0, 4.0)),
    ("all three", VECTOR | {"epsilon": 9.0, "local": "per-coordinate"}, VALUES, (None,)),
    ("a direction", VECTOR | {"epsilon": 4.0, "local": "unit-vector", "norm": "l2", "radius": 1.0}, VALUES, (None,)),
]  # fmt: skip


@pytest.mark.parametrize(("plan", "answers", "epsilons"), [s[1:] for s in STUDIES], ids=[s[0] for s in STUDIES])
def test_every_upload_of_a_study_and_group_has_one_size(
    server: Any, bodies: list[tuple[str, bytes]], plan: dict[str, Any], answers: tuple[Any, ...],
    epsilons: tuple[float | None, ...],
) -> None:  # fmt: skip
    study = server.study(**plan)
    task = client.fetch_task(server.url, study)
    needed = 3 * len(answers) * len(epsilons)
    tokens = server.invite(study, needed) if task["by_invitation"] else [None] * needed
    for group in ("trusted", "local"):
        bodies.clear()
        for answer in answers:
            for epsilon in epsilons:
                if group == "trusted":
                    made = client.trusted_report(task, answer, epsilon=epsilon, token=tokens.pop())
                    assert client.send_reports(server.url, study, [made]) == []
                    continue
                # Words that no generator gives in a row: only their lengths matter, and these are not sent.
                for rng in (beginning(0), beginning(2**64 - 1), beginning(2**52)):
                    if plan.get("local") == "unit-vector":
                        rng = secure()
                    made = client.local_report(task, answer, epsilon=epsilon, rng=rng)
                    bodies.append(("/reports", client._encoded({"reports": [made]})))
                made = client.local_report(task, answer, epsilon=epsilon, token=tokens.pop(), rng=secure())
                if task["by_invitation"]:
                    bodies.clear()  # the drafts above had no invitation
                assert client.send_reports(server.url, study, [made]) == []
        found = {len(body) for address, body in bodies if address.endswith("/reports")}
        assert found == {task["bytes"][group] + len('{"reports":[]}')}, group
        bare = {len(body) - len(json.loads(body)["reports"][0]["padding"]) for _, body in bodies if b"padding" in body}
        assert len(bare) > 1 or group == "local"  # a control: without the padding sizes differ


# --- the same text, however it is written -----------------------------------------------------------------------------


def test_a_text_counts_however_it_is_spelled(server: Any) -> None:
    """ "Weather", " WEATHER " and "weather" are one answer: for trusted people, for devices, and in the list."""
    study = server.study(kind="heavy-hitters", epsilon=6.0, delta=1e-3, record=["query"], min_batch=2)
    task = client.fetch_task(server.url, study)
    several = client.trusted_report(task, [["a"], ["b"], ["c" * 200]])
    assert several["payload"]["answers"]["answer"] in (["a"], ["b"], ["c" * 200])  # the others stay on the device
    with pytest.raises(InvalidInput, match="1 to 200 characters"):
        client.trusted_report(task, ["x" * 201])
    spelled = ["Weather", " WEATHER ", "weather", "Ｗeather", "wea\u00adther".replace("\u00ad", "")]
    raw = [client.trusted_report(task, [spelled[i % 5]]) for i in range(100)]
    for i, one in enumerate(raw):  # as a client would send them that does not know the rule
        one["payload"]["answers"]["answer"] = [spelled[i % 5]]
    assert client.send_reports(server.url, study, raw) == []
    server.open_phase(study)
    slots = client.fetch_task(server.url, study)["questions"][0]["slots"]
    assert slots == [["weather"], [None]]
    task = client.fetch_task(server.url, study)
    told = [client.local_report(task, ["  WeaTher"], rng=secure())["payload"]["reports"]["answer"] for _ in range(200)]
    assert told.count(0) > 150  # at epsilon 6 it would be about none of them if the text were "everything else"
    assert normalised(normalised("ẞ  İ")) == normalised("ẞ  İ")


# --- wrong clocks -----------------------------------------------------------------------------------------------------


def test_a_program_with_a_wrong_clock_takes_part(server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    study = server.study(time_precision=60)
    real = time.time
    monkeypatch.setattr(client.time, "time", lambda: real() - 2 * 3600)
    task = client.fetch_task(server.url, study)
    made = [client.local_report(task, 25.0, rng=secure()), client.trusted_report(task, 25.0)]
    assert client.send_reports(server.url, study, made) == []
    del task["clock_offset"]  # a control: by its own clock it could not
    assert [f["code"] for f in client.send_reports(server.url, study, [client.trusted_report(task, 1.0)])] == [
        "bad-time"
    ]


# --- an answer waits for its invitation -------------------------------------------------------------------------------


def test_an_entrusted_answer_is_not_sent_with_a_bad_invitation(server: Any, bodies: list[tuple[str, bytes]]) -> None:
    study = server.study(by_invitation=True)
    task = client.fetch_task(server.url, study)
    (token,) = server.invite(study, 1)
    bad = client.trusted_report(task, 41.98765, token="guess")
    assert [f["code"] for f in client.send_reports(server.url, study, [bad])] == ["token-unknown"]
    assert not any(b"41.98765" in body for _, body in bodies)
    assert not server.has_received("41.98765")
    good = client.trusted_report(task, 52.12345, token=token)
    assert client.send_reports(server.url, study, [good]) == []
    assert server.has_received("52.12345")  # a control: it is seen when it is sent
    bodies.clear()
    assert client.send_reports(server.url, study, [good]) == []  # it is there: there is nothing to send
    assert not any(b"52.12345" in body for _, body in bodies)
    late = client.trusted_report(task, 63.13579, token=token)
    assert [f["code"] for f in client.send_reports(server.url, study, [late])] == ["token-used"]
    assert not server.has_received("63.13579")
    assert server.people(study) == {"trusted": 1, "local": 0}


# --- the same from a browser ------------------------------------------------------------------------------------------


# The first words are all zeros or all ones, as on the device above; then the browser's own.
WORDS = """
const real = crypto.getRandomValues.bind(crypto);
let first = true;
crypto.getRandomValues = (buffer) => {
  if (!(buffer instanceof BigUint64Array) || !first) return real(buffer);
  first = false;
  return buffer.fill(%s);
};
"""
CLOCK = "const real = Date.now; Date.now = () => real() + %d * 1000;"


@pytest.fixture(scope="module")
def scripted(chromium: Any) -> Pages:
    return Pages(chromium)


class Pages(dict[str, Any]):
    """A page for each script that runs before all others: opening one costs ten times a new address in it."""

    def __init__(self, browser: Any) -> None:
        super().__init__()
        self.browser = browser

    def __missing__(self, script: str) -> Any:
        context = self.browser.new_context()
        context.set_default_timeout(live.PATIENCE * 1000)
        context.add_init_script(script)
        self[script] = page = context.new_page()
        return page


def sent(chromium: Pages, address: str, script: str, fields: dict[str, str], button: str, done: str) -> bytes:
    """The body that leaves the browser when a form is filled in and sent."""
    page, bodies = chromium[script], []

    def note(request: Any) -> None:
        if request.method == "POST":
            bodies.append(request.post_data_buffer)

    page.on("request", note)
    page.context.clear_cookies()  # somebody else's visit: one visit has one answer
    page.goto(address)
    page.wait_for_selector("#local-send:enabled")  # the script has read the task
    for field, text in fields.items():
        page.locator(field).evaluate("(e, text) => { e.value = text; }", text)
    page.locator(button).evaluate("(e) => e.closest('form').requestSubmit()")
    page.wait_for_selector(done)
    page.remove_listener("request", note)
    found: list[bytes] = [body for body in bodies if body is not None]
    return found[-1]


@live.in_chromium
def test_every_upload_of_a_browser_has_one_size(server: Any, scripted: Any) -> None:
    local = ("#local-send:enabled", "#local-status .done")
    trusted = (".trusted form button", "h1:has-text('Thank you')")
    one = [{"answer-0": "0"}, {"answer-0": "119.99999999999"}]
    three = [{f"answer-0-{i}": text for i in range(3)} for text in ("0", "99.123456")]
    several = VECTOR | {"epsilon": 9.0, "local": "per-coordinate", "bounds": [{"lower": 0, "upper": 120}] * 3}
    for plan, answers in (({}, one), ({"epsilon": 4.0, "local": "piecewise"}, one), (several, three)):
        study = server.study(**plan)
        task = client.fetch_task(server.url, study)
        address = f"{server.url}/s/{study}"
        told = [sent(scripted, address, WORDS % word, {f"#local-{k}": v for k, v in answer.items()}, *local)
                for answer, word in zip(answers, ("0n", "0xffffffffffffffffn"), strict=True)]  # fmt: skip
        assert {len(body) for body in told} == {task["bytes"]["local"] + len('{"reports":[]}')}
        if not plan:  # a control, where the words above decide all that is drawn: without the padding the sizes differ
            assert len({len(body) - len(json.loads(body)["reports"][0]["padding"]) for body in told}) == 2
        told = [sent(scripted, address, "", {f"#trusted-{k}": v for k, v in answer.items()}, *trusted)
                for answer in answers]  # fmt: skip
        assert {len(body) for body in told} == {task["bytes"]["form"]}
        assert server.people(study) == {"trusted": 2, "local": 2}


@live.in_chromium
def test_a_browser_with_a_wrong_clock_takes_part(server: Any, scripted: Any) -> None:
    study = server.study(time_precision=60)
    button, done = "#local-send:enabled", "#local-status .done"
    body = sent(scripted, f"{server.url}/s/{study}", CLOCK % -7200, {"#local-answer-0": "25"}, button, done)
    (report,) = json.loads(body)["reports"]
    assert abs(report["time"] - time.time()) < 300
    assert server.people(study) == {"trusted": 0, "local": 1}
