"""The pages in real Chromium: what leaves the page, and what it refuses to send."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from hybridp.device.client import (
    fetch_task,
    local_report,
    send_reports,
    send_shuffled,
    shuffled_report,
    trusted_report,
)
from hybridp.noise import secure, seeded
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import Bounds, dithered_bit

from . import live
from .live import ASKED, FINE, HEAVY, LOOKS, PHONE, VECTOR, asked_study

pytestmark = live.in_chromium


# --- the raw value stays ----------------------------------------------------------------------------------------------


def test_a_visit_counts_once_however_often_it_sends(server: Any, page: Any, traffic: Any) -> None:
    """A double click, the way back, and another tab that was open before: one person. A new visit is another one."""
    study = server.study()
    tab = page.context.new_page()
    for one in (page, tab):
        one.goto(f"{server.url}/s/{study}")
    page.fill("#trusted-answer-0", "41")
    page.dblclick(".trusted form button")
    page.wait_for_url("**/thanks")
    page.go_back()
    page.wait_for_selector("#answered")
    assert page.query_selector_all("#local-form, .trusted form") == []
    tab.fill("#local-answer-0", "77")
    tab.click("#local-send:enabled")
    tab.wait_for_selector("#local-status .problem")
    assert "An answer has arrived from this visit" in tab.inner_text("#local-status")
    assert traffic.uploads == []
    tab.fill("#trusted-answer-0", "55")
    tab.click(".trusted form button:not(.second)")
    tab.wait_for_url("**/thanks")
    tab.close()
    assert server.people(study) == {"trusted": 1, "local": 0}
    page.click("text=Somebody else answers")
    page.fill("#local-answer-0", "30")
    page.click("#local-send:enabled")
    page.wait_for_selector("#local-status .done")
    page.reload()
    assert "another would not count" in page.inner_text("#answered")
    assert server.people(study) == {"trusted": 1, "local": 1}
    assert traffic.complaints == []


def test_a_shuffled_answer_is_seen_by_neither(server: Any, page: Any, traffic: Any, tmp_path: Path) -> None:
    """The collector gets no report from the page, the mixer none that it can open; together with others it arrives."""
    with live.mixing(tmp_path) as mixer:
        stated = {"batch": 3, "delta": 1e-2, "url": mixer.url, "key": mixer.key}
        study = asked_study(server, ASKED[2], ASKED[0], mixer=stated)  # a number, and a choice
        assert json.loads(mixer.run("join", f"{server.url}/s/{study}", "--json")) == {"study": study, "batch": 3}
        where = f"{mixer.url}/mix/{study}"
        other = {"key": mixer.key, "batch": 3, "report_key": "A" * 43}  # the page was given a key of its own
        page.route(where, lambda route: route.fulfill(json=other, headers={"access-control-allow-origin": "*"}))
        page.goto(f"{server.url}/s/{study}")
        page.fill("#shuffled-answer-0", "37.51234")
        page.select_option("#shuffled-answer-1", label="at times")
        page.click("#shuffled-send:enabled")
        page.wait_for_selector("#shuffled-status .problem")
        assert traffic.holding("/ticket") == []
        page.unroute(where)
        page.goto(f"{server.url}/s/{study}")
        page.reload()
        page.fill("#shuffled-answer-0", "37.51234")
        page.select_option("#shuffled-answer-1", label="at times")
        page.click("#shuffled-send:enabled")
        page.wait_for_selector("#shuffled-status .done")
        report = json.loads(page.inner_text("#shuffled-status pre"))
        assert page.is_disabled("#local-answer-0")
        task = fetch_task(server.url, study)
        for value in (10.0, 20.0):
            told = {ASKED[2]["name"]: value, ASKED[0]["name"]: "daily"}
            send_shuffled(server.url, task, shuffled_report(task, told, rng=seeded(int(value))))
        (sent,) = (body for _, url, _, body in traffic.sent if url.startswith(mixer.url) and body)
        assert set(json.loads(sent)) == {"ticket", "sealed"}
        assert json.loads(mixer.run("status", "--json"))["studies"][0]["held"] == 3
        said = json.dumps(report["payload"], separators=(",", ":"))
        raw = ("37.51234", "37%2E51234", "3751234", str(int(Bounds(0, 120).levels([37.51234])[0])))
        assert traffic.holding(*raw, said, report["id"]) == []
        assert not server.has_received(*raw, said, report["id"], json.loads(sent)["sealed"])
        assert server.people(study) == {"trusted": 0, "local": 0}
        server.ask(f"/{study}/close")
        until = time.monotonic() + 120
        while server.people(study) != {"trusted": 0, "local": 0, "shuffled": 3}:  # the mixer asks every few seconds
            assert time.monotonic() < until, "the mixer sent nothing"
            page.wait_for_timeout(100)
        assert not server.has_received(json.loads(sent)["ticket"])
        assert json.loads(mixer.run("status", "--json"))["studies"][0] == {
            "study": study, "state": "sent", "batch": 3, "held": 0, "to_send": 0,
        }  # fmt: skip
        for found in server.ask(f"/{study}/release")["questions"].values():
            assert next(iter(found.values()))["mixing"]["batches"][0]["people"] == 3
    assert traffic.complaints == []


def fill_in(page: Any, way: str, place: int) -> None:
    if place == 0:
        page.select_option(f"#{way}-answer-0", label="at times")
    elif place == 1:
        page.check(f"#{way}-answer-1-0")
        page.check(f"#{way}-answer-1-2")
    else:
        page.fill(f"#{way}-answer-2", "35.97531")


def fill_in_cell(page: Any, way: str, place: int) -> None:
    if way == "trusted":
        page.select_option(f"#trusted-answer-{place}", "1")
        return
    first, second = ("ab", "bc")[place]
    page.select_option(f"#local-answer-{place}-0", label=f"{first}1")
    page.click("#local-send")
    assert "Nothing was sent" in page.inner_text("#local-status")
    page.select_option(f"#local-answer-{place}-1", label=f"{second}0")


COLUMNS = [{"name": name, "values": [f"{name}{i}" for i in range(2)]} for name in "abc"]
TABLE = {"name": "home", "kind": "table", "features": COLUMNS, "marginals": ["a,b", "b,c"]}
# questions, what a local person may draw and how many reports there are on it, and how a way is filled in
DRAWN: dict[str, tuple[list[Any], dict[str, int], Any]] = {
    "questions": (ASKED, {"smokes": 3, "ways": 6, "way": 0}, fill_in),
    "marginals of a table": ([TABLE], {"a, b": 4, "b, c": 4}, fill_in_cell),
}


@pytest.mark.parametrize("kind", DRAWN)
def test_of_several_questions_a_local_person_is_asked_the_drawn_one(
    server: Any, page: Any, plain_page: Any, traffic: Any, kind: str
) -> None:
    """Loaded until each was drawn: what is sent is about that one alone, by its randomiser. Trusted people tell all."""
    questions, reports, fill = DRAWN[kind]
    promise = {"epsilon": 1.0, "delta": 1e-6 if kind != "questions" else 0.0}
    study = str(server.ask("", {"promise": promise, "questions": questions})["id"])
    seen: set[int] = set()
    while len(seen) < len(reports):
        page.context.clear_cookies()  # another visit
        page.goto(f"{server.url}/s/{study}")
        page.wait_for_selector("#local-send:enabled")
        (field,) = page.locator("#local-form .question:visible").all()
        place = int(field.get_attribute("data-place"))
        if place in seen:
            continue
        seen.add(place)
        fill(page, "local", place)
        page.click("#local-send")
        page.wait_for_selector("#local-status .done")
        (report,) = json.loads(traffic.uploads[-1])["reports"]
        ((name, told),) = report["payload"]["reports"].items()
        assert name == [*reports][place]
        assert 0 <= told < reports[name] if reports[name] else set(told) == {"threshold", "above"}
    assert len({len(body) for body in traffic.uploads}) == 1
    assert traffic.holding("35.97531", "at times") == []
    assert kind != "questions" or not server.has_received("35.97531")
    plain_page.goto(f"{server.url}/s/{study}")
    for place in range(3):
        fill(plain_page, "trusted", place)
    plain_page.click(".trusted form button")
    assert "Thank you" in plain_page.inner_text("h1")
    assert len(traffic.holding("35.97531")) == (kind == "questions")  # the control
    assert server.has_received("35.97531") or kind != "questions"
    assert server.people(study) == {"trusted": 1, "local": len(reports)}
    assert traffic.complaints == []


WORK = {"name": "work", "kind": "regression", "target": "retired", "on": ["age", "pay"], "lower": [0, -4, 0],
        "upper": [16, 4, 1], "model": "logistic"}  # fmt: skip
HOMES = {"name": "homes", "kind": "points", "columns": ["east", "north"], "lower": 0, "upper": [8, 4], "clusters": 2}


BODY = {"name": "body", "kind": "vector", "columns": ["height", "weight"], "lower": 0, "upper": [2, 200]}
OWN = {"kind": "personal-mean", "bounds": {"lower": 0, "upper": 16}, "allowed_epsilons": [0.5, 4.0]}
LEVELS = {"promise": {"allowed_epsilons": [0.5, 4.0]}}
RECORDS = [("news", "a.org")] * 60 + [("maps", "m.org")] * 40
THREE = {"0-0": "6.82731", "0-1": "71.98765", "0-2": "-13.2468"}
WORKERS = [[i / 4, 2.0 - i / 16, float(i > 30)] for i in range(64)]
SPLIT = {"epsilon": 8.0, "several": "split"}
STEERED = ASKED[2] | {"statistics": ["quantiles"], "at": [0.5], "form": "steered"}
TEAM = {"name": "team_pay", "kind": "number", "lower": 0, "upper": 9000, "by": "team", "by_private": True,
        "categories": ["sales", "law", "post"]}  # fmt: skip
SITE = {"name": "sick", "kind": "number", "lower": 0, "upper": 60, "by": "site", "categories": ["Ulm", "Bonn"],
        "least": 2}  # fmt: skip
# what is asked (by a plan, or as questions of a promise), what trusted people answer first, and what is typed
ANSWERS: dict[str, tuple[dict[str, Any], list[Any], dict[str, str]]] = {
    "a bit": ({}, [], {"0": "28.64209"}),
    "a record": (HEAVY, RECORDS, {"0-0": "my secret search", "0-1": "x.y.z"}),
    "a number of one's own": (OWN, [], {"epsilon": "4.0", "0": "7.12345"}),
    "an option at an epsilon of one's own": (LEVELS | {"questions": [ASKED[0]]}, [], {"epsilon": "4.0", "0": "1"}),
    "numbers at an epsilon of one's own": (
        LEVELS | {"questions": [BODY]}, [], {"epsilon": "0.5", "0-0": "1.83579", "0-1": "71.98765"}),
    "a bit on one of three": (VECTOR | {"epsilon": 1.0, "local": "sampling"}, [], THREE),
    "a number on each of three": (VECTOR | {"epsilon": 9.0, "local": "per-coordinate"}, [], THREE),
    "within windows": ({"promise": 1.0, "questions": [STEERED]}, [20.0 + i % 40 for i in range(60)], {"0": "36.18273"}),
    "about a line": ({"promise": 4.0, "questions": [WORK]}, WORKERS, {"0-0": "3.61357", "0-1": "1.92468", "0-2": "1"}),
    "a field of a map": ({"promise": 4.0, "questions": [HOMES]}, [], {"0-0": "3.61357", "0-1": "1.92468"}),
    "by groups": ({"promise": SPLIT, "questions": [TEAM, SITE, ASKED[0]]}, [],
                  {"0-0": "1", "0-1": "4321.57531", "1": "37.51234", "2": "1", "by-0": "1"}),
    "all at once": (
        {"promise": SPLIT, "questions": [ASKED[0], BODY, HOMES, WORK]},
        [{"smokes": "never", "body": [1.5, 50.0], "homes": [2.0, 1.0], "work": row} for row in WORKERS],
        {"0": "1", "1-0": "1.83579", "1-1": "71.98765", "2-0": "3.61357", "2-1": "1.92468", "3-0": "7.53197",
         "3-1": "2.97531", "3-2": "1"},
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", ANSWERS)
def test_no_answer_leaves_the_page_whatever_is_asked(server: Any, page: Any, traffic: Any, kind: str) -> None:
    """On a phone, in the second phase where there is one: one message of one length, which holds nothing typed."""
    stated, first, typed = ANSWERS[kind]
    whole = {"title": "t", "collection": {"min_batch": 2}, "people": {"trusted": 2000, "local": 9000}}
    study = str(server.ask("", whole | stated)["id"]) if "questions" in stated else server.study(**stated)
    page.set_viewport_size(PHONE)
    if first:
        task = fetch_task(server.url, study)
        assert send_reports(server.url, study, [trusted_report(task, answer) for answer in first]) == []
        page.goto(f"{server.url}/s/{study}#local")
        assert "opens later" in page.inner_text("#local")
        server.open_phase(study)
        if kind == "within windows":  # in the third phase
            task = fetch_task(server.url, study)
            sent = [local_report(task, answer, rng=secure()) for answer in first]
            assert send_reports(server.url, study, sent) == []
            server.open_phase(study, 3)
        page.goto("about:blank")
    page.goto(f"{server.url}/s/{study}#local")
    page.wait_for_selector("#local-send:enabled")
    assert page.evaluate(LOOKS) == FINE
    page.click("#local-send")
    assert "Nothing was sent" in page.inner_text("#local-status")
    for place, value in typed.items():
        field = page.locator(f"#local-{place}" if place in ("epsilon", "by-0") else f"#local-answer-{place}")
        (field.select_option if field.evaluate("e => e.tagName") == "SELECT" else field.fill)(value)
    page.click("#local-send")
    page.wait_for_selector("#local-status .done")
    raw = [value.strip("-") for place, value in typed.items() if "." in value and place != "epsilon"]
    raw += [text for value in raw for text in (value.replace(".", "%2E"), value.replace(".", ""))]
    raw += [str(int(Bounds(0, 120).levels([28.64209])[0]))] if kind == "a bit" else []
    assert traffic.holding(*raw, "secret") == []
    assert {url.split("/")[2] for _, url, _, _ in traffic.sent if url.startswith("http")} == {server.url.split("/")[2]}
    assert not server.has_received(*raw, "secret")
    (report,) = json.loads(traffic.uploads[0])["reports"]
    task = fetch_task(server.url, study)
    assert len(json.dumps(report, separators=(",", ":"))) == task["bytes"]["local"]
    told, public = report["payload"]["reports"], [by["name"] for by in task.get("by") or ()]
    assert list(told) == [*(question["name"] for question in task["questions"]), *public]
    if kind == "by groups":  # a private group and its number are one of all their pairs; a public one is as it is
        assert (told["site"], told["team_pay"] in range(6)) == (1, True)
        said = page.inner_text("#local")
        assert "Your group (site) is sent and kept as it is" in said
        assert "Your group (team) is a part of your answer" in said
    assert report["epsilon"] == (float(typed["epsilon"]) if "epsilon" in typed else None)
    assert report.get("phase") == (3 if kind == "within windows" else None)
    assert server.people(study)["local"] == (61 if kind == "within windows" else 1)
    assert traffic.complaints == []


def another_promise(task: Any) -> None:
    task["guarantee"]["local"]["epsilon"] = task["questions"][0]["guarantee"]["epsilon"] = 8.0
    task["questions"][0]["randomiser"]["flips"] = str(dithered_bit(PureDP(8.0)).flips)


def a_randomiser(task: Any) -> None:
    how = task["questions"][0]["randomiser"]
    how["keep"] = str(int(how["keep"]) + 2**40)


def a_part(task: Any) -> None:
    task["questions"][0]["guarantee"]["epsilon"] *= 1.25


@pytest.mark.parametrize("lie", [another_promise, a_randomiser, a_part, None])
def test_a_task_that_keeps_less_than_the_page_shows_is_refused_aloud(
    server: Any, page: Any, traffic: Any, lie: Any
) -> None:
    """A proxy changes the task document on its way; without a lie (the control) all is asked and sent."""

    def changed(route: Any) -> None:
        task = route.fetch().json()
        if lie is not None:
            lie(task)
        route.fulfill(json=task)

    page.route("**/tasks/*", changed)
    study = server.study() if lie is another_promise else asked_study(server, *ASKED, epsilon=24.0)
    page.goto(f"{server.url}/s/{study}")
    if lie is not None:
        page.wait_for_selector("#local-status .problem")
        assert "less noise than this page promises" in page.inner_text("#local-status")
        assert page.is_disabled("#local-send")
        assert "less noise" in page.inner_text("#local-why")
        page.evaluate("document.getElementById('local-form').requestSubmit()")
        assert traffic.uploads == []
        return
    for place in range(3):
        fill_in(page, "local", place)
    page.check("#local-answer-1-1")
    page.click("#local-send:enabled")
    assert "Please tick at most 2." in page.inner_text("#local-status")
    page.uncheck("#local-answer-1-1")
    page.click("#local-send:enabled")
    page.wait_for_selector("#local-status .done")
    (report,) = json.loads(traffic.uploads[0])["reports"]
    assert list(report["payload"]["reports"]) == ["smokes", "ways", "way"]


def test_enter_before_the_script_runs_sends_nothing(server: Any, page: Any, traffic: Any) -> None:
    """Fields without names and a button that only the script enables: the browser itself has nothing to submit."""
    page.route("**/participant.js", lambda route: route.abort())
    page.goto(f"{server.url}/s/{server.study()}")
    page.fill("#local-answer-0", "29.13579")
    page.press("#local-answer-0", "Enter")
    with page.expect_navigation():
        page.evaluate("document.getElementById('local-form').submit()")
    assert traffic.holding("29.13579") == []


def test_after_a_failure_the_same_report_is_sent(server: Any, page: Any, traffic: Any) -> None:
    study = server.study()
    page.goto(f"{server.url}/s/{study}")
    page.route("**/reports", lambda route: route.abort())
    page.fill("#local-answer-0", "12")
    page.click("#local-send:enabled")
    page.wait_for_selector("#local-status .problem")
    page.unroute("**/reports")
    page.click("#local-send:enabled")
    page.wait_for_selector("#local-status .done")
    first, second = traffic.uploads
    assert first == second
    assert server.people(study)["local"] == 1


def test_an_invitation_works_once(server: Any, page: Any, traffic: Any) -> None:
    study = server.study(by_invitation=True)
    (token,) = server.invite(study, 1)
    page.goto(f"{server.url}/s/{study}?t={token}")
    page.fill("#local-answer-0", "12")
    page.click("#local-send:enabled")
    page.wait_for_selector("#local-status .done")
    for link in (f"?t={token}", "?t=unknown", ""):  # nobody types an answer that would not be taken
        page.goto(f"{server.url}/s/{study}{link}")
        assert page.locator("main .problem").count() == 1
        assert page.locator("main form").count() == 0
    assert server.people(study)["local"] == 1
    assert not any(token in headers for _, _, headers, _ in traffic.sent)  # no address of the page as a referrer
