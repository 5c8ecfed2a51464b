"""The pages in real Chromium: what leaves the page, what works without scripts, who can read and use it."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
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
from hybridp.public.budgets import PureDP
from hybridp.public.lattice import Bounds
from hybridp.public.randomisers import dithered_bit
from hybridp.randomness import seeded
from hybridp.release.result import sole

from . import live

playwright = pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.skipif(live.CHROMIUM is None, reason="not installed: Chromium (apt-get install chromium)")

PHONE = {"width": 360, "height": 740}
HEAVY = {"kind": "heavy-hitters", "epsilon": 4.0, "delta": 1e-3, "head": 5}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with live.serving(tmp_path_factory.mktemp("live")) as running:
        yield running


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        browser = p.chromium.launch(executable_path=live.CHROMIUM, args=live.options())
        yield browser
        browser.close()


@pytest.fixture
def traffic() -> Any:
    return live.Traffic()


@pytest.fixture(scope="module")
def pages(chromium: Any) -> dict[bool, Any]:
    """A page that runs scripts and one that does not: to open another costs the browser ten times a new address."""
    found = {}
    for scripts in (True, False):
        context = chromium.new_context(java_script_enabled=scripts)
        context.set_default_timeout(live.PATIENCE * 1000)
        found[scripts] = context.new_page()
    return found


@pytest.fixture
def page(pages: dict[bool, Any], traffic: Any) -> Iterator[Any]:
    with traffic.along(pages[True]) as page:
        yield page


@pytest.fixture
def plain_page(pages: dict[bool, Any], traffic: Any) -> Iterator[Any]:
    """A page without scripts."""
    with traffic.along(pages[False]) as page:
        yield page


# --- the raw value stays ----------------------------------------------------------------------------------------------


def test_a_local_answer_never_leaves_the_page(server: Any, page: Any, traffic: Any) -> None:
    study = server.study()
    page.goto(f"{server.url}/s/{study}")
    page.fill("#local-answer-0", "37.51234")
    page.click("#local-send:enabled")
    page.wait_for_selector("#local-status .done")
    page.reload()
    level = int(Bounds(0, 120).levels([37.51234])[0])
    raw = ("37.51234", "37%2E51234", "3751234", str(level))
    assert traffic.holding(*raw) == []
    assert not server.has_received(*raw)
    (body,) = traffic.uploads
    (report,) = json.loads(body)["reports"]
    assert report["group"] == "local"
    assert server.has_received(json.dumps(report["payload"], separators=(",", ":")))
    assert set(report["payload"]["reports"]) == {"answer"}
    assert 0 <= report["payload"]["reports"]["answer"]["threshold"] < 2**32
    assert isinstance(report["payload"]["reports"]["answer"]["above"], bool)
    assert {url.split("/")[2] for _, url, _, _ in traffic.sent if url.startswith("http")} == {server.url.split("/")[2]}
    assert server.people(study) == {"trusted": 0, "local": 1}
    assert traffic.complaints == []


def test_the_watch_on_the_traffic_can_fail(server: Any, page: Any, traffic: Any) -> None:
    """The control: a trusted answer is seen on its way."""
    study = server.study()
    page.goto(f"{server.url}/s/{study}")
    page.fill("#trusted-answer-0", "41.98765")
    page.click(".trusted form button")
    page.wait_for_url("**/thanks")
    assert len(traffic.holding("41.98765")) == 1
    assert server.has_received("41.98765")
    assert server.people(study) == {"trusted": 1, "local": 0}


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


def test_who_asks_is_on_the_first_screen_of_a_phone(server: Any, page: Any) -> None:
    study = server.study(asked_by="the <b>town</b>", purpose="to plan buses", contact="buses@town.example")
    page.set_viewport_size(PHONE)
    page.goto(f"{server.url}/s/{study}")
    for text in ("the <b>town</b>", "to plan buses", "buses@town.example", "deleted after the release"):
        place = page.locator(".asker", has_text=text).bounding_box()
        assert place["y"] + place["height"] < PHONE["height"]
    assert page.locator(".pick").bounding_box()["y"] < PHONE["height"] - 100


def test_a_shuffled_answer_is_seen_by_neither(server: Any, page: Any, traffic: Any, tmp_path: Path) -> None:
    """The collector gets no report from the page, the mixer none that it can open; together with others it arrives."""
    with live.mixing(tmp_path) as mixer:
        stated = {"batch": 3, "delta": 1e-2, "url": mixer.url, "key": mixer.key}
        study = server.study(mixer=stated)
        assert json.loads(mixer.run("join", f"{server.url}/s/{study}", "--json")) == {"study": study, "batch": 3}
        where = f"{mixer.url}/mix/{study}"
        other = {"key": mixer.key, "batch": 3, "report_key": "A" * 43}  # the page was given a key of its own
        page.route(where, lambda route: route.fulfill(json=other, headers={"access-control-allow-origin": "*"}))
        page.goto(f"{server.url}/s/{study}")
        page.fill("#shuffled-answer-0", "37.51234")
        page.click("#shuffled-send:enabled")
        page.wait_for_selector("#shuffled-status .problem")
        assert traffic.holding("/ticket") == []
        page.unroute(where)
        page.goto(f"{server.url}/s/{study}")
        page.reload()
        page.fill("#shuffled-answer-0", "37.51234")
        page.click("#shuffled-send:enabled")
        page.wait_for_selector("#shuffled-status .done")
        report = json.loads(page.inner_text("#shuffled-status pre"))
        assert page.is_disabled("#local-answer-0")
        task = fetch_task(server.url, study)
        for value in (10.0, 20.0):
            send_shuffled(server.url, task, shuffled_report(task, value, rng=seeded(int(value))))
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
        found = sole(server.ask(f"/{study}/release"))
        assert found["mixing"]["batches"][0]["people"] == 3
    assert traffic.complaints == []


SIDES = [{"lower": 0, "upper": 24}, {"lower": 0, "upper": 200}, {"lower": -50, "upper": 50}]
VECTOR = {"kind": "vector-mean", "columns": ["Sleep", "Weight", "Mood"], "bounds": SIDES}


ASKED = [
    {"name": "smokes", "kind": "choice", "text": "Do you smoke?", "options": ["never", "at times", "daily"]},
    {"name": "ways", "kind": "choice", "options": ["foot", "bike", "car"], "several": 2},
    {"name": "way", "kind": "number", "lower": 0, "upper": 120},
]


def asked_study(server: Any, *questions: Any, epsilon: float = 1.0) -> str:
    plan = {"title": "Way", "promise": epsilon, "collection": {"min_batch": 2}, "questions": list(questions)}
    return str(server.ask("", plan)["id"])


def fill_in(page: Any, way: str, place: int) -> None:
    if place == 0:
        page.select_option(f"#{way}-answer-0", label="at times")
    elif place == 1:
        page.check(f"#{way}-answer-1-0")
        page.check(f"#{way}-answer-1-2")
    else:
        page.fill(f"#{way}-answer-2", "37.51234")


def test_of_several_questions_a_local_person_is_asked_the_drawn_one(
    server: Any, page: Any, plain_page: Any, traffic: Any
) -> None:
    """Loaded until each was drawn: what is sent is about that one alone, by its randomiser. Trusted people tell all."""
    study = asked_study(server, *ASKED)
    seen: set[int] = set()
    while len(seen) < 3:
        page.context.clear_cookies()  # another visit
        page.goto(f"{server.url}/s/{study}")
        page.wait_for_selector("#local-send:enabled")
        (field,) = page.locator("#local-form .question:visible").all()
        place = int(field.get_attribute("data-place"))
        if place in seen:
            continue
        seen.add(place)
        page.click("#local-send")
        if place != 1:  # none ticked is an answer too
            assert "Nothing was sent" in page.inner_text("#local-status")
            fill_in(page, "local", place)
            page.click("#local-send")
        page.wait_for_selector("#local-status .done")
        (report,) = json.loads(traffic.uploads[-1])["reports"]
        ((name, told),) = report["payload"]["reports"].items()
        assert name == ASKED[place]["name"]
        assert set(told) == {"threshold", "above"} if place == 2 else 0 <= told < (3, 6)[place]
    assert len(traffic.uploads) == 3
    assert len({len(body) for body in traffic.uploads}) == 1
    assert traffic.holding("37.51234", "at times") == []
    assert not server.has_received("37.51234")
    plain_page.goto(f"{server.url}/s/{study}")
    for place in range(3):
        fill_in(plain_page, "trusted", place)
    plain_page.click(".trusted form button")
    assert "Thank you" in plain_page.inner_text("h1")
    assert len(traffic.holding("37.51234")) == 1  # the control
    assert server.people(study) == {"trusted": 1, "local": 3}
    assert traffic.complaints == []


WORK = {"name": "work", "kind": "regression", "target": "retired", "on": ["age", "pay"], "lower": [0, -4, 0],
        "upper": [16, 4, 1], "model": "logistic"}  # fmt: skip
HOMES = {"name": "homes", "kind": "points", "columns": ["east", "north"], "lower": 0, "upper": [8, 4], "clusters": 2}


BODY = {"name": "body", "kind": "vector", "columns": ["height", "weight"], "lower": 0, "upper": [2, 200]}
OWN = {"kind": "personal-mean", "bounds": {"lower": 0, "upper": 16}, "allowed_epsilons": [0.5, 4.0]}
RECORDS = [("news", "a.org")] * 60 + [("maps", "m.org")] * 40
THREE = {"0-0": "6.82731", "0-1": "71.98765", "0-2": "-13.2468"}
WORKERS = [[i / 4, 2.0 - i / 16, float(i > 30)] for i in range(64)]
SPLIT = {"epsilon": 8.0, "several": "split"}
STEERED = ASKED[2] | {"statistics": ["quantiles"], "at": [0.5], "form": "steered"}
# what is asked (by a plan, or as questions of a promise), what trusted people answer first, and what is typed
ANSWERS: dict[str, tuple[dict[str, Any], list[Any], dict[str, str]]] = {
    "a record": (HEAVY, RECORDS, {"0-0": "my secret search", "0-1": "x.y.z"}),
    "a bit of one's own": (OWN, [], {"epsilon": "0.5", "0": "7.12345"}),
    "a number of one's own": (OWN, [], {"epsilon": "4.0", "0": "7.12345"}),
    "a bit on one of three": (VECTOR | {"epsilon": 1.0, "local": "sampling"}, [], THREE),
    "a number on each of three": (VECTOR | {"epsilon": 9.0, "local": "per-coordinate"}, [], THREE),
    "within windows": ({"promise": 1.0, "questions": [STEERED]}, [20.0 + i % 40 for i in range(60)], {"0": "36.18273"}),
    "about a line": ({"promise": 4.0, "questions": [WORK]}, WORKERS, {"0-0": "3.61357", "0-1": "1.92468", "0-2": "1"}),
    "a field of a map": ({"promise": 4.0, "questions": [HOMES]}, [], {"0-0": "3.61357", "0-1": "1.92468"}),
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
        server.open_phase_two(study)
        page.goto("about:blank")
    page.goto(f"{server.url}/s/{study}#local")
    page.wait_for_selector("#local-send:enabled")
    assert page.evaluate(LOOKS) == FINE
    page.click("#local-send")
    assert "Nothing was sent" in page.inner_text("#local-status")
    for place, value in typed.items():
        field = page.locator(f"#local-{place}" if place == "epsilon" else f"#local-answer-{place}")
        (field.select_option if field.evaluate("e => e.tagName") == "SELECT" else field.fill)(value)
    page.click("#local-send")
    page.wait_for_selector("#local-status .done")
    raw = [value.strip("-") for place, value in typed.items() if "." in value and place != "epsilon"]
    assert traffic.holding(*raw, "secret") == []
    assert not server.has_received(*raw, "secret")
    (report,) = json.loads(traffic.uploads[0])["reports"]
    task = fetch_task(server.url, study)
    assert len(json.dumps(report, separators=(",", ":"))) == task["bytes"]["local"]
    assert list(report["payload"]["reports"]) == [question["name"] for question in task["questions"]]
    assert report["epsilon"] == (float(typed["epsilon"]) if "epsilon" in typed else None)
    assert server.people(study)["local"] == 1
    assert traffic.complaints == []


def test_of_a_table_a_local_person_is_asked_a_cell_of_the_drawn_marginal(
    server: Any, page: Any, plain_page: Any, traffic: Any
) -> None:
    """What is sent is a report on that cell alone, among the marginal's. Trusted people tell all columns."""
    values = [{"name": name, "values": [f"{name}{i}" for i in range(2)]} for name in "abc"]
    table = {"name": "home", "kind": "table", "features": values, "marginals": ["a,b", "b,c"]}
    study = str(server.ask("", {"promise": {"epsilon": 1.0, "delta": 1e-6}, "questions": [table]})["id"])
    page.goto(f"{server.url}/s/{study}")
    page.wait_for_selector("#local-send:enabled")
    (field,) = page.locator("#local-form .question:visible").all()
    place = int(field.get_attribute("data-place"))
    first, second = ("ab", "bc")[place]
    page.select_option(f"#local-answer-{place}-0", label=f"{first}1")
    page.click("#local-send")
    assert "Nothing was sent" in page.inner_text("#local-status")
    page.select_option(f"#local-answer-{place}-1", label=f"{second}0")
    page.click("#local-send")
    page.wait_for_selector("#local-status .done")
    (report,) = json.loads(traffic.uploads[-1])["reports"]
    ((name, told),) = report["payload"]["reports"].items()
    assert name == ("a, b", "b, c")[place]
    assert 0 <= told < 4
    plain_page.goto(f"{server.url}/s/{study}")
    for i in range(3):
        plain_page.select_option(f"#trusted-answer-{i}", "1")
    plain_page.click(".trusted form button")
    assert "Thank you" in plain_page.inner_text("h1")
    assert server.people(study) == {"trusted": 1, "local": 1}
    assert traffic.complaints == []


def test_groups_beside_other_questions_on_the_page(server: Any, page: Any, plain_page: Any, traffic: Any) -> None:
    """A private group and a number leave as one of all their pairs; a public one as it is, and the page says so."""
    pay = {"name": "pay", "kind": "number", "lower": 0, "upper": 9000, "by": "team", "by_private": True,
           "categories": ["sales", "law", "post"]}  # fmt: skip
    sick = {"name": "sick", "kind": "number", "lower": 0, "upper": 60, "by": "site", "categories": ["Ulm", "Bonn"],
            "least": 2}  # fmt: skip
    study = asked_study(server, pay, sick, ASKED[0], epsilon=3.0)
    page.goto(f"{server.url}/s/{study}")
    page.wait_for_selector("#local-send:enabled")
    said = page.inner_text("#local")
    assert "Your group (site) is sent and kept as it is" in said
    assert "Your group (team) is a part of your answer" in said
    assert said.count("At ε = 1:") == 3
    page.select_option("#local-answer-0-0", label="law")
    page.fill("#local-answer-0-1", "4321.5")
    page.fill("#local-answer-1", "37.51234")
    page.select_option("#local-answer-2", label="at times")
    page.click("#local-send")
    assert "Nothing was sent" in page.inner_text("#local-status")
    page.select_option("#local-by-0", label="Bonn")
    page.click("#local-send")
    page.wait_for_selector("#local-status .done")
    (report,) = json.loads(traffic.uploads[0])["reports"]
    told = report["payload"]["reports"]
    assert set(told) == {"pay", "sick", "smokes", "site"}
    assert told["site"] == 1
    assert 0 <= told["pay"] < 6
    assert len(json.dumps(report, separators=(",", ":"))) == fetch_task(server.url, study)["bytes"]["local"]
    assert traffic.holding("4321.5", "37.51234", "law") == []
    assert not server.has_received("4321.5")
    plain_page.goto(f"{server.url}/s/{study}")
    for field, value in (("answer-0", "law"), ("answer-3", "at times"), ("by-0", "Ulm")):
        plain_page.select_option(f"#trusted-{field}", label=value)
    plain_page.fill("#trusted-answer-1", "4321.5")
    plain_page.fill("#trusted-answer-2", "3")
    plain_page.click(".trusted form button")
    assert "Thank you" in plain_page.inner_text("h1")
    assert len(traffic.holding("4321.5")) == 1  # the control
    assert server.people(study) == {"trusted": 1, "local": 1}
    assert traffic.complaints == []
    page.set_viewport_size(PHONE)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


@pytest.mark.parametrize("lie", [None, "a randomiser", "a part"])
def test_questions_that_keep_less_than_the_page_shows_are_refused_aloud(
    server: Any, page: Any, traffic: Any, lie: str | None
) -> None:
    """A split promise, changed on its way; without a lie (the control) all three are asked and sent."""

    def changed(route: Any) -> None:
        task = route.fetch().json()
        one = task["questions"][0]
        if lie == "a randomiser":
            one["randomiser"]["keep"] = str(int(one["randomiser"]["keep"]) + 2**40)
        if lie == "a part":
            one["guarantee"]["epsilon"] *= 1.25
        route.fulfill(json=task)

    page.route("**/tasks/*", changed)
    page.goto(f"{server.url}/s/{asked_study(server, *ASKED, epsilon=24.0)}")
    if lie is not None:
        page.wait_for_selector("#local-status .problem")
        assert "less noise than this page promises" in page.inner_text("#local-status")
        assert page.is_disabled("#local-send")
        return
    for place in range(3):
        fill_in(page, "local", place)
    page.click("#local-send:enabled")
    page.wait_for_selector("#local-status .done")
    (report,) = json.loads(traffic.uploads[0])["reports"]
    assert list(report["payload"]["reports"]) == ["smokes", "ways", "way"]
    page.context.clear_cookies()  # another visit
    page.reload()
    for place in range(3):
        page.check(f"#local-answer-1-{place}")
    page.select_option("#local-answer-0", "1")
    page.click("#local-send:enabled")
    assert "Please tick at most 2." in page.inner_text("#local-status")
    assert len(traffic.uploads) == 1


def test_what_a_page_cannot_draw_it_does_not_offer(server: Any, page: Any) -> None:
    for more in ({**VECTOR, "epsilon": 4.0, "norm": "l2", "radius": 1.0, "local": "unit-vector"}, {"local": "laplace"}):
        page.goto(f"{server.url}/s/{server.study(**more)}")
        assert "Python client" in page.inner_text(".local")
        assert page.locator("#local-form").count() == 0


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


def test_an_answer_out_of_range_is_not_randomised(server: Any, page: Any, traffic: Any) -> None:
    page.goto(f"{server.url}/s/{server.study()}")
    for bad in ("", "121"):
        page.fill("#local-answer-0", bad)
        page.click("#local-send:enabled")
        page.wait_for_selector("#local-status .problem")
        assert page.get_attribute("#local-answer-0", "aria-invalid") == "true"
    assert traffic.uploads == []


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


def test_made_up_reports_are_drawn_and_not_sent(server: Any, page: Any, traffic: Any) -> None:
    page.goto(f"{server.url}/s/{server.study()}")
    page.click("#simulation summary")
    before = len(traffic.sent)
    page.click("#try")
    said = page.inner_text("#try-status")
    counts = [page.inner_text(f'.dot-count[data-which="{end}"]') for end in ("one", "other")]
    assert all(count.split()[0] in said for count in counts)
    # 46 apart on average with a standard deviation of 6.3: the order is wrong once in 10^12 runs
    assert int(counts[0].split()[0]) < int(counts[1].split()[0])
    assert len(traffic.sent) == before


# --- without scripts --------------------------------------------------------------------------------------------------


def test_the_trusted_choice_needs_no_script(server: Any, plain_page: Any) -> None:
    study = server.study()
    plain_page.goto(f"{server.url}/s/{study}")
    assert "needs JavaScript" in plain_page.inner_text(".local")
    assert plain_page.is_disabled("#local-send")
    plain_page.fill("#trusted-answer-0", "25")
    plain_page.click(".trusted form button")
    assert "Thank you" in plain_page.inner_text("h1")
    assert server.people(study) == {"trusted": 1, "local": 0}


def test_an_analyst_needs_no_script(server: Any, plain_page: Any, traffic: Any) -> None:
    """From the login to the release: plan, invite, close, release."""
    page = plain_page
    page.goto(server.url)
    page.fill("#key", "wrong")
    page.click("main button")
    assert "not known" in page.inner_text("main")
    page.fill("#key", server.key)
    page.click("main button")
    page.click("text=New study")
    page.fill("[name=title]", "Sleep & <b>rest</b>")
    page.fill("[name=asked_by]", "the clinic")
    page.fill("[name='collection.purpose']", "to see who sleeps badly")
    page.fill("[name='collection.contact']", "sleep@clinic.example")
    page.fill("[name='question.upper']", "-3")
    page.click("main form button")
    assert "upper" in page.inner_text(".problem")
    page.fill("[name='question.upper']", "16")
    page.fill("[name='people.trusted']", "100")
    page.fill("[name='people.local']", "900")
    page.click("main form button")
    assert page.inner_text("h1").startswith("Sleep & <b>rest</b>")
    study = page.url.rsplit("/", 1)[1]
    page.fill("#count", "100")
    page.click("text=Make links")
    tokens = [link.split("?t=")[1] for link in page.input_value("#links").split()]
    assert len(set(tokens)) == 100
    task = fetch_task(server.url, study)
    rng = seeded(1)
    made = [trusted_report(task, 7.0 + i % 3, token=t) for i, t in enumerate(tokens[:50])]
    made += [local_report(task, 7.0 + i % 3, token=t, rng=rng) for i, t in enumerate(tokens[50:])]
    assert send_reports(server.url, study, made) == []
    page.goto(f"{server.url}/studies/{study}")
    assert "100 of 100" in page.inner_text(".facts")
    page.click("text=Close the study")
    assert "cannot be opened again" in page.inner_text("main")
    page.click("text=Yes, close it")
    page.click("main >> text='Release' >> nth=-1")
    assert "cannot be called back" in page.inner_text("main")
    page.click("text=Yes, release it")
    headline = page.inner_text(".headline")
    assert 0 <= float(headline.split()[0]) <= 16
    assert page.locator("svg[role=img]").count() == 3
    assert "dithered" in page.inner_text(".stack")
    refusals = ["status of 401" in c or "status of 422" in c for c in traffic.complaints]
    assert refusals == [True, True]  # the wrong key and the wrong bound, and nothing else
    document = page.request.get(f"{server.url}/studies/{study}/release.json").json()
    assert sole(document)["estimate"] == pytest.approx(float(headline.split()[0]), rel=1e-3)
    page.click("text=Log out")
    page.goto(f"{server.url}/studies/{study}")
    assert page.url.endswith("/login")


# --- for everyone -----------------------------------------------------------------------------------------------------

LOOKS = """
() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const weak = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || !element.checkVisibility() || element.closest("title, noscript")) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(rgb(element.closest("svg") ? style.fill : style.color)), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) weak.push([text, contrast]);
  }
  const fields = [...document.querySelectorAll("input, select, textarea")];
  const visible = fields.filter((e) => e.type !== "hidden" && !e.hidden);
  return {
    weak,
    unlabelled: visible.filter((e) => e.labels.length === 0).map((e) => e.outerHTML),
    twice: [...document.querySelectorAll("[id]")].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i),
    landmarks: ["header", "main", "footer"].filter((name) => document.querySelectorAll(`body > ${name}`).length !== 1),
    headings: document.querySelectorAll("h1").length,
    pictures: [...document.querySelectorAll("svg")].filter((e) => !e.getAttribute("aria-label")).length,
    inline: document.querySelectorAll("[style], style, script:not([src])").length,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    language: document.documentElement.lang,
  };
}
"""
# What is folded is opened as by a person, from the outside in.
UNFOLD = """
() => {
  for (const summary of document.querySelectorAll("details > summary")) {
    if (!summary.parentElement.open && summary.checkVisibility()) summary.click();
  }
}
"""
FINE = {
    "weak": [],
    "unlabelled": [],
    "twice": [],
    "landmarks": [],
    "headings": 1,
    "pictures": 0,
    "inline": 0,
    "wide": 0,
    "language": "en",
}


def released_study(server: Any) -> str:
    study: str = server.study(
        expected={"trusted": 100, "local": 1000}, title="A study with a rather long title, to wrap"
    )
    task = fetch_task(server.url, study)
    rng = seeded(2)
    made = [trusted_report(task, 20.0 + i) for i in range(40)] + [
        local_report(task, 20.0 + i, rng=rng) for i in range(60)
    ]
    assert send_reports(server.url, study, made) == []
    server.release(study)
    return study


def released_vectors(server: Any) -> str:
    study: str = server.study(**VECTOR, epsilon=2.0, expected={"trusted": 40, "local": 60})
    task = fetch_task(server.url, study)
    rng = seeded(3)
    made = [trusted_report(task, [7.0, 60.0 + i, 3.0]) for i in range(40)]
    made += [local_report(task, [8.0, 70.0, i - 30.0], rng=rng) for i in range(60)]
    assert send_reports(server.url, study, made) == []
    server.release(study)
    return study


def test_every_page_is_readable(server: Any, page: Any, traffic: Any) -> None:
    """On a desk and on a phone: contrast of 4.5 at least, labels, landmarks, no scrolling sideways, nothing inline, no
    complaint anywhere."""
    personal = server.study(kind="personal-mean", bounds={"lower": 0, "upper": 16}, allowed_epsilons=[0.5, 1, 4])
    released, heavy, several = released_study(server), server.study(**HEAVY), released_vectors(server)
    vector, asked = server.study(**VECTOR, epsilon=1.0), asked_study(server, *ASKED)
    task = fetch_task(server.url, asked)
    told = {"smokes": "daily", "ways": ["car"], "way": 9.0}
    assert send_reports(server.url, asked, [trusted_report(task, told) for _ in range(3)]) == []
    answered = asked_study(server, *ASKED)
    task = fetch_task(server.url, answered)
    assert send_reports(server.url, answered, [trusted_report(task, told) for _ in range(3)]) == []
    server.release(answered)
    open_study = server.study()
    mixed = server.study(mixer={"batch": 1000, "delta": 1e-6, "url": "http://127.0.0.1:1", "key": "A" * 43})
    addresses = [f"/s/{mixed}{way}" for way in ("#trusted", "#shuffled", "#local", "")]
    addresses += [
        f"/s/{s}{way}" for s in (open_study, personal, vector, asked, released, heavy) for way in ("#trusted", "#local")
    ]
    addresses += [f"/s/{open_study}"]
    addresses += [f"/s/{open_study}/thanks", "/login"]
    private = ["/", "/studies/new", "/studies/new?kind=personal-mean", "/studies/new?kind=heavy-hitters"]
    private += [f"/studies/new?kind={kind}" for kind in ("vector-mean", "choice", "number")]
    private += [f"/studies/{s}" for s in (personal, released, heavy, several, answered)]
    private += [f"/studies/{heavy}/confirm?what={what}" for what in ("close", "discover", "delete")]
    for address in [*addresses, *private]:
        if address == "/":
            page.goto(f"{server.url}/login")
            page.fill("#key", server.key)
            page.click("main button")
        before = page.url.partition("#")[0]
        page.goto(server.url + address)
        if page.url.partition("#")[0] == before:  # an address that differs in its last part alone is not loaded anew
            page.reload()
        for size in ({"width": 1200, "height": 900}, PHONE):
            page.set_viewport_size(size)
            page.evaluate(UNFOLD)
            assert page.evaluate(LOOKS) == FINE, (address, size)
    assert traffic.complaints == []


@pytest.mark.parametrize("scripts", [True, False])
@pytest.mark.parametrize("kind", ["mean", "personal-mean", "heavy-hitters"])
def test_both_ways_are_in_the_first_screen_of_a_phone(
    server: Any, page: Any, plain_page: Any, kind: str, scripts: bool
) -> None:
    """Side by side, equally large, whole, and no field of either way before one of them is chosen."""
    more = {"mean": {}, "heavy-hitters": HEAVY, "personal-mean": {"bounds": {"lower": 0, "upper": 9}}}[kind]
    more |= {"kind": kind, "question": "How many minutes did you need to get to work yesterday, one way, door to door?"}
    if kind == "personal-mean":
        more["allowed_epsilons"] = [0.5, 4.0]
    page = page if scripts else plain_page
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server.url}/s/{server.study(**more)}")
    first, second = (page.locator(f".pick a[href='#{way}']").bounding_box() for way in ("trusted", "local"))
    assert (first["y"], first["height"]) == (second["y"], second["height"])
    assert first["width"] == pytest.approx(second["width"], abs=1)
    assert first["y"] > 0
    assert first["y"] + first["height"] < 844
    assert not any(
        page.locator(f"#{way} {field}").first.is_visible() for way in ("trusted", "local") for field in ("h2", "dl")
    )
    for way, other in (("trusted", "local"), ("local", "trusted")):
        page.click(f".pick a[href='#{way}']")
        assert page.is_visible(f"#{way} h2")
        assert not page.is_visible(f"#{other} h2")


def test_both_ways_are_in_the_first_screen_of_a_desk(server: Any, page: Any) -> None:
    page.goto(f"{server.url}/s/{server.study()}")
    first, second = (page.locator(f"#{way}-title").bounding_box() for way in ("trusted", "local"))
    assert first["y"] == second["y"] < 720
    assert not page.is_visible(".pick")


def test_the_whole_message_is_shown(server: Any, page: Any, traffic: Any) -> None:
    """To the letter: id, time, token and group too."""
    page.goto(f"{server.url}/s/{server.study()}")
    page.fill("#local-answer-0", "37")
    page.click("#local-send:enabled")
    page.wait_for_selector("#local-status .done")
    (body,) = traffic.uploads
    assert page.text_content("#local-status pre") == body
    assert {"id", "time", "token", "group", "epsilon", "payload"} <= set(json.loads(body)["reports"][0])
    assert page.is_disabled(".trusted form button")
    assert "one answer is enough" in page.inner_text(".trusted form")  # a button that does nothing says why


def fewer_flips(task: Any) -> None:
    how = task["questions"][0]["randomiser"]
    how["flips"] = str(int(how["flips"]) * 9 // 10)


def another_promise(task: Any) -> None:
    task["guarantee"]["local"]["epsilon"] = task["questions"][0]["guarantee"]["epsilon"] = 8.0
    task["questions"][0]["randomiser"]["flips"] = str(dithered_bit(PureDP(8.0)).flips)


def turned_bounds(task: Any) -> None:
    task["questions"][0]["bounds"]["upper"] = -1


LIES = {"fewer flips": fewer_flips, "another promise": another_promise, "turned bounds": turned_bounds}


@pytest.mark.parametrize("lie", [None, *LIES])
def test_a_task_that_keeps_less_than_the_page_shows_is_refused_aloud(
    server: Any, page: Any, traffic: Any, lie: str | None
) -> None:
    """A proxy changes the task document on its way; without a lie (the control) the same way works."""

    def changed(route: Any) -> None:
        task = route.fetch().json()
        if lie is not None:
            LIES[lie](task)
        route.fulfill(json=task)

    study = server.study()
    page.route("**/tasks/*", changed)
    page.goto(f"{server.url}/s/{study}")
    page.fill("#local-answer-0", "37")
    if lie is None:
        page.click("#local-send:enabled")
        page.wait_for_selector("#local-status .done")
        return
    page.wait_for_selector("#local-status .problem")
    assert "less noise than this page promises" in page.inner_text("#local-status")
    assert page.is_disabled("#local-send")
    assert "less noise" in page.inner_text("#local-why")
    page.evaluate("document.getElementById('local-form').requestSubmit()")
    assert traffic.uploads == []


def test_an_epsilon_that_the_task_does_not_know_is_refused_in_words(server: Any, page: Any, traffic: Any) -> None:
    def shorter(route: Any) -> None:
        task = route.fetch().json()
        route.fulfill(json=task | {"choices": task["choices"][1:]})

    study = server.study(kind="personal-mean", bounds={"lower": 0, "upper": 16}, allowed_epsilons=[0.5, 4.0])
    page.route("**/tasks/*", shorter)
    page.goto(f"{server.url}/s/{study}")
    page.wait_for_selector("#local-why:has-text('cannot be made in a browser')")
    assert page.is_disabled("#local-send")
    assert traffic.complaints == []


def test_the_check_of_looks_can_fail(server: Any, page: Any) -> None:
    page.goto(f"{server.url}/login")
    page.evaluate("document.querySelector('main').innerHTML += '<input><div id=far class=far>pale</div>'")
    page.evaluate("document.getElementById('far').style.cssText = 'color: rgb(200, 200, 200); width: 5000px'")
    found = page.evaluate(LOOKS)
    assert found["weak"] and found["unlabelled"] and found["wide"] > 0  # noqa: PT018


def test_the_keyboard_is_enough(server: Any, page: Any) -> None:
    study = server.study()
    page.goto(f"{server.url}/s/{study}")
    page.wait_for_selector("#local-send:enabled")
    seen: list[str] = []
    for _ in range(30):
        page.keyboard.press("Tab")
        here = page.evaluate("document.activeElement.id || document.activeElement.textContent.trim()")
        seen.append(here)
        ring = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert ring != "none", here
        if here == "local-answer-0":
            page.keyboard.type("33")
        if here == "local-send":
            page.keyboard.press("Enter")
            break
    page.wait_for_selector("#local-status .done")
    assert seen[0] == "Skip to the content"
    assert seen.index("trusted-answer-0") < seen.index("local-answer-0") < seen.index("local-send")
    assert server.people(study)["local"] == 1
