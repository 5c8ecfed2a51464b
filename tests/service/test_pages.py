"""Pages without a browser: headers, sessions, forms from elsewhere, forms sent twice, and what people wrote."""

from __future__ import annotations

import re
from typing import Any

import pytest
from starlette.testclient import TestClient

from hybridp.service import pages, studies

from .declared import ASKER as OF
from .declared import study_of
from .sent import service_of

PLAN: dict[str, Any] = {
    "kind": "mean",
    "title": "Way <script>alert(1)</script>",
    "question": 'How "long"?',
    "bounds": {"lower": 0, "upper": 120},
    "epsilon": 1.0,
    "min_batch": 2,
}
ASKER = {"asked_by": OF["asked_by"], "collection.purpose": OF["purpose"], "collection.contact": OF["contact"]}
SITE = {"sec-fetch-site": "same-origin"}


def log_in(web: TestClient, name: str = "ana") -> str:
    key = studies.add_analyst(service_of(web), name)
    assert web.post("/login", data={"key": key}, headers=SITE).status_code == 303
    return key


def make(web: TestClient, **changes: Any) -> str:
    return str(studies.create_study(service_of(web), study_of(PLAN | changes))["id"])


def hidden(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found is not None
    return found[1]


# --- headers ----------------------------------------------------------------------------------------------------------


def test_every_page_has_the_strict_policy(web: TestClient) -> None:
    study = make(web)
    log_in(web)
    addresses = ["/", "/login", "/studies/new", f"/studies/{study}", f"/s/{study}", f"/s/{study}/thanks", "/s/none"]
    for address in [*addresses, "/static/style.css", "/static/randomise.js", "/static/participant.js"]:
        headers = web.get(address).headers
        assert headers["content-security-policy"] == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
            "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
        )
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"
        assert headers["x-frame-options"] == "DENY"
        if headers["content-type"].startswith("text/html"):
            assert headers["cache-control"] == "no-store", address


def test_people_get_a_page_and_programs_a_document(web: TestClient) -> None:
    page = web.get("/nowhere", headers={"accept": "text/html"})
    assert (page.status_code, page.headers["content-type"]) == (404, "text/html; charset=utf-8")
    document = web.get("/nowhere", headers={"accept": "*/*"})
    assert (document.status_code, document.headers["content-type"]) == (404, "application/problem+json")
    task = web.get("/tasks/nowhere", headers={"accept": "text/html"})
    assert (task.status_code, task.headers["content-type"]) == (404, "application/problem+json")


def test_what_people_wrote_is_escaped(web: TestClient) -> None:
    study = make(web)
    log_in(web)
    for address in ("/", f"/studies/{study}", f"/s/{study}", f"/s/{study}?t=%22%3E%3Cscript%3E"):
        page = web.get(address).text
        assert "<script>alert" not in page
        assert '"><script>' not in page
    page = web.post(f"/s/{study}", data={"answer.0": '"><script>x'}).text
    assert '"><script>' not in page


def test_participants_get_one_cookie_or_none(web: TestClient) -> None:
    """With an invitation none; in an open study one, of its pages alone, which ends with the browser or by itself."""
    invited, study = make(web, by_invitation=True), make(web)
    assert "set-cookie" not in web.get(f"/s/{invited}").headers
    assert "set-cookie" not in web.post(f"/s/{invited}", data={"answer.0": "5"}).headers
    first = web.get(f"/s/{study}")
    told = [part.strip().lower() for part in first.headers["set-cookie"].split(";")]
    assert sorted(told[1:]) == ["httponly", f"path=/s/{study}", "samesite=lax"]
    name, began = web.cookies["hybridp_visit"].split(".")
    assert name == hidden(first.text, "report_id")
    assert int(began) % 3600 == 0
    again = web.get(f"/s/{study}")
    assert "set-cookie" not in again.headers
    assert hidden(again.text, "report_id") == name
    web.cookies.clear()
    for old in (f"{name}.{int(began) - 12 * 3600}", f"{name}.{int(began) + 7200}", name, "nonsense", f"{name}.x", "."):
        answer = web.get(f"/s/{study}", headers={"cookie": f"hybridp_visit={old}"})
        assert hidden(answer.text, "report_id") != name
        assert "set-cookie" in answer.headers
        web.cookies.clear()


# --- analysts ---------------------------------------------------------------------------------------------------------


def test_nothing_is_shown_without_a_login(web: TestClient) -> None:
    study = make(web)
    for address in ("/", "/studies/new", f"/studies/{study}", f"/studies/{study}/release.json"):
        answer = web.get(address)
        assert (answer.status_code, answer.headers["location"]) == (303, "/login")
    for address in ("close", "release", "next-phase", "invitations"):
        assert web.post(f"/studies/{study}/{address}").status_code == 401
    assert studies.study_summary(service_of(web), study)["status"] == "open"


def test_the_cookie_is_for_this_server_alone(web: TestClient) -> None:
    key = studies.add_analyst(service_of(web), "ana")
    cookie = web.post("/login", data={"key": key}, headers=SITE).headers["set-cookie"].lower()
    assert "httponly" in cookie
    assert "samesite=lax" in cookie
    assert key.lower() not in cookie


@pytest.mark.parametrize("cookie", ["", "1.99999999999.x.0", "nonsense", "1.2.3", "é.1.1.1"])
def test_a_forged_cookie_is_nobody(web: TestClient, cookie: str) -> None:
    assert web.get("/", headers={"cookie": f"{pages.COOKIE}={cookie}".encode()}).status_code == 303


def test_a_session_ends_with_its_key(web: TestClient) -> None:
    log_in(web)
    assert web.get("/").status_code == 200
    studies.revoke_analyst(service_of(web), "ana")
    assert web.get("/").status_code == 303


def test_logging_out_ends_a_stolen_copy_of_the_session_too(web: TestClient) -> None:
    key = log_in(web)
    stolen = {pages.COOKIE: web.cookies[pages.COOKIE]}
    thief = TestClient(web.app, follow_redirects=False, base_url="http://127.0.0.1:8000", cookies=stolen)
    other = TestClient(web.app, follow_redirects=False, base_url="http://127.0.0.1:8000")
    assert other.post("/login", data={"key": key}, headers=SITE).status_code == 303
    assert thief.get("/").status_code == 200
    token = hidden(web.get("/studies/new").text, "form_token")
    assert web.post("/logout", data={"form_token": token}, headers=SITE).status_code == 303
    assert thief.get("/").status_code == 303
    assert other.get("/").status_code == 200  # another session of the same analyst goes on


@pytest.mark.parametrize("action", ["close", "release", "next-phase", "invitations"])
def test_a_form_from_elsewhere_does_nothing(web: TestClient, action: str) -> None:
    study = make(web, by_invitation=True)
    log_in(web)
    token = hidden(web.get(f"/studies/{study}").text, "form_token")
    other = TestClient(web.app, follow_redirects=False)
    log_in(other, "eve")
    alien = hidden(other.get("/studies/new").text, "form_token")
    address = f"/studies/{study}/{action}"
    assert web.post(address).status_code == 403
    assert web.post(address, data={"form_token": alien}).status_code == 403
    crossing = {"sec-fetch-site": "cross-site"}
    assert web.post(address, data={"form_token": token}, headers=crossing).status_code == 403
    summary = studies.study_summary(service_of(web), study)
    assert (summary["status"], summary["invitations"]["made"], summary["release"]) == ("open", 0, None)


# --- participants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", ["", "nan", "1e999"])
def test_a_bad_answer_is_asked_for_again(web: TestClient, value: str) -> None:
    study = make(web)
    page = web.get(f"/s/{study}").text
    answer = web.post(f"/s/{study}", data={"report_id": hidden(page, "report_id"), "answer.0": value})
    assert answer.status_code == 422
    assert 'role="alert"' in answer.text
    assert studies.study_summary(service_of(web), study)["people"]["trusted"] == 0


def test_local_fields_have_no_names(web: TestClient) -> None:
    """What a browser submits by itself is what has a name."""
    for plan in (
        PLAN,
        {"kind": "personal-mean", "title": "x", "bounds": {"lower": 0, "upper": 1}, "allowed_epsilons": [1, 2]},
    ):
        study = str(studies.create_study(service_of(web), study_of(plan))["id"])
        page = web.get(f"/s/{study}").text
        form = page[page.index('<form id="local-form"') :]
        form = form[: form.index("</form>")]
        assert "<input" in form
        assert "name=" not in form
        assert "action=" not in form


# --- charts -----------------------------------------------------------------------------------------------------------


def test_charts_have_no_script_and_no_style() -> None:
    svg = str(pages.charts.bars([("<b onload=x>", 1.0), ("two", 0.0)], "minutes & more"))
    assert "<b" not in svg
    assert "style=" not in svg
    assert "minutes &amp; more" in svg
