"""The pages in real Chromium: what works without scripts, who can read them, and who can use them."""

from __future__ import annotations

from typing import Any

import pytest
from tests.results import sole

from hybridp.device.client import fetch_task, local_report, send_reports, trusted_report
from hybridp.noise import seeded

from . import live
from .live import ASKED, FINE, HEAVY, LOOKS, PHONE, UNFOLD, VECTOR, asked_study

pytestmark = live.in_chromium


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
    page.fill("[name='question.lower']", "0")
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


def released_study(server: Any) -> str:
    study: str = server.study(
        expected={"trusted": 100, "local": 1000}, title="A study with a rather long title, to wrap"
    )
    task, rng = fetch_task(server.url, study), seeded(2)
    made = [trusted_report(task, 20.0 + i) for i in range(40)]
    made += [local_report(task, 20.0 + i, rng=rng) for i in range(60)]
    assert send_reports(server.url, study, made) == []
    server.release(study)
    return study


def test_every_page_is_readable(server: Any, page: Any, traffic: Any) -> None:
    """On a desk and on a phone: contrast of 4.5 at least, labels, landmarks, no scrolling sideways, nothing inline, no
    complaint anywhere."""
    personal = server.study(kind="personal-mean", bounds={"lower": 0, "upper": 16}, allowed_epsilons=[0.5, 1, 4])
    released, heavy = released_study(server), server.study(**HEAVY)
    vector, answered = server.study(**VECTOR, epsilon=1.0), asked_study(server, *ASKED)
    told = {"smokes": "daily", "ways": ["car"], "way": 9.0}
    crowd = [trusted_report(fetch_task(server.url, answered), told) for _ in range(3)]
    assert send_reports(server.url, answered, crowd) == []
    server.release(answered)
    open_study = server.study()
    mixed = server.study(mixer={"batch": 1000, "delta": 1e-6, "url": "http://127.0.0.1:1", "key": "A" * 43})
    addresses = [f"/s/{mixed}{way}" for way in ("#shuffled", "")]
    addresses += [f"/s/{s}{way}" for s in (personal, vector, heavy) for way in ("#trusted", "#local")]
    addresses += [f"/s/{open_study}", f"/s/{released}", f"/s/{open_study}/thanks", "/login"]
    private = ["/", "/studies/new", "/studies/new?kind=records", "/studies/new?kind=choice"]
    private += [f"/studies/{s}" for s in (personal, released, heavy, answered)]
    private += [f"/studies/{heavy}/confirm?what=next-phase"]
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


@pytest.mark.parametrize(("kind", "scripts"), [("mean", False), ("personal-mean", True)])
def test_both_ways_are_in_the_first_screen_of_a_phone(
    server: Any, page: Any, plain_page: Any, kind: str, scripts: bool
) -> None:
    """Side by side, equally large, whole, and no field of either way before one of them is chosen."""
    own = {"bounds": {"lower": 0, "upper": 9}, "allowed_epsilons": [0.5, 4.0]} if kind == "personal-mean" else {}
    question = "How many minutes did you need to get to work yesterday, one way, door to door?"
    page = page if scripts else plain_page
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(f"{server.url}/s/{server.study(kind=kind, question=question, **own)}")
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


def test_what_a_page_cannot_draw_it_does_not_offer(server: Any, page: Any) -> None:
    asked = {**VECTOR, "epsilon": 4.0, "norm": "l2", "radius": 1.0, "local": "unit-vector"}
    page.goto(f"{server.url}/s/{server.study(**asked)}")
    assert "Python client" in page.inner_text(".local")
    assert page.locator("#local-form").count() == 0


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
