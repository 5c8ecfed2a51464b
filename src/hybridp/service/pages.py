"""HTML pages: for participants (no login, no cookie) and for analysts (a session and a token in every form).

Pages work without scripts; the one exception is the local choice, whose point is that the answer stays on the page.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

from fastapi import APIRouter, Depends, Request
from fastapi.responses import JSONResponse, Response
from sqlalchemy import Connection, delete, select
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from hybridp.errors import HybridpError
from hybridp.service import html, schema, store, studies
from hybridp.service.core import Service
from hybridp.service.problems import Refused
from hybridp.service.schema import analysts, meta

__all__ = ["COOKIE", "open_session", "read_session", "router"]

router = APIRouter(include_in_schema=False, dependencies=[Depends(html.paced)], route_class=html.PageRoute)


# --- an analyst's session ---------------------------------------------------------------------------------------------

# The cookie says who, until when, and a random number; a keyed hash (HMAC-SHA256) of that makes it unforgeable. The
# form token is a keyed hash of the whole cookie, so that another site, which can make a browser send the cookie but
# cannot read it, cannot make the token. A change of the secret ends every session; logging out ends one, by a hash of
# its cookie that the server keeps until the session would have ended by itself.

COOKIE = "hybridp_session"
LASTS = 12 * 3600
"""Seconds until a session ends."""


def _mac(secret: bytes, purpose: str, text: str) -> str:
    return hmac.new(secret, f"{purpose}:{text}".encode(), hashlib.sha256).hexdigest()


def open_session(secret: bytes, analyst: int, *, now: float) -> str:
    """The cookie of a new session.

    >>> secret = bytes(32)
    >>> cookie = open_session(secret, 7, now=1000)
    >>> read_session(secret, cookie, now=1001), read_session(secret, cookie, now=10**9)
    (7, None)
    >>> read_session(bytes(31) + b"x", cookie, now=1001) is None
    True
    """
    text = f"{analyst}.{int(now) + LASTS}.{secrets.token_urlsafe(16)}"
    return f"{text}.{_mac(secret, 'session', text)}"


def read_session(secret: bytes, cookie: str, *, now: float) -> int | None:
    """Whose session it is; None for a forged or an old one."""
    text, _, mac = cookie.rpartition(".")
    parts = text.split(".")
    if len(parts) != 3 or not cookie.isascii() or not hmac.compare_digest(mac, _mac(secret, "session", text)):
        return None
    return int(parts[0]) if now < int(parts[1]) else None


@dataclass(frozen=True, slots=True)
class Session:
    """A logged-in analyst, the token of their forms, and their cookie."""

    analyst: studies.Analyst
    form_token: str
    cookie: str


def _same_site(request: Request) -> bool:
    """Browsers say where a request comes from; what another site caused is refused. Old browsers say nothing."""
    return request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _ended(cookie: str) -> str:
    """What is kept of a session that was ended: nobody can make the cookie from it."""
    return f"ended:{hashlib.sha256(f'ended:{cookie}'.encode()).hexdigest()}"


def _session(request: Request) -> Session:
    """Whoever is logged in; who is not is sent to the login, and a form of theirs is refused."""
    service = request.app.state.service
    cookie = request.cookies.get(COOKIE, "")
    who = read_session(service.settings.keys.session, cookie, now=time.time())
    with store.reading(service.engine) as db:  # not of a key that was revoked, or after logging out
        row = db.execute(select(analysts).where(analysts.c.id == who, analysts.c.revoked.is_(None))).first()
        ended = schema.meta_value(db, _ended(cookie))
    if row is None or ended is not None:
        raise Refused("unauthorised", "Please log in first.")
    form_token = _mac(service.settings.keys.session, "form", cookie)
    return Session(studies.Analyst(row.id, row.name), form_token, cookie)


Asked = Annotated[Session, Depends(_session)]


async def _form(request: Request, session: Asked) -> dict[str, str]:
    """The fields of a form that this site made; Refused otherwise."""
    form = await html.form_fields(request)
    mine = hmac.compare_digest(form.pop("form_token", "").encode(), session.form_token.encode())
    if not mine or not _same_site(request):
        raise Refused("csrf", "This form is too old or came from another site. Please go back and try again.")
    return form


Posted = Annotated[dict[str, str], Depends(_form)]


@router.get("/login")
def login_page() -> Response:
    return html.page("login.html", problem="")


@router.post("/login")
async def login(request: Request) -> Response:
    service = request.app.state.service
    html.slowly(request)
    service.guesses.may_guess(html.address_of(request))
    form = await html.form_fields(request)
    analyst = await run_in_threadpool(studies.check_key, service, form.get("key", "").strip())
    if analyst is None:
        service.guesses.guessed_wrong(html.address_of(request))
    if analyst is None or not _same_site(request):
        return html.page("login.html", 401, problem="This key is not known.")
    answer = html.see("/")
    cookie = open_session(service.settings.keys.session, analyst.id, now=time.time())
    secure = service.settings.secure_cookies
    answer.set_cookie(COOKIE, cookie, max_age=LASTS, httponly=True, samesite="lax", secure=secure)
    return answer


@router.post("/logout")
def logout(request: Request, session: Asked, form: Posted) -> Response:
    """End a session for good, wherever its cookie has been copied to; forget those that are over anyway."""

    def end(db: Connection) -> None:
        kept = db.execute(select(meta.c.key, meta.c.value).where(meta.c.key.like("ended:%"))).all()
        over = [key for key, until in kept if int(until) < time.time()]
        db.execute(delete(meta).where(meta.c.key.in_(over)))
        schema.set_meta(db, _ended(session.cookie), session.cookie.split(".")[1])

    request.app.state.service.write(end)
    answer = html.see("/login")
    answer.delete_cookie(COOKIE)
    return answer


@router.get("/")
def study_list(request: Request, session: Asked) -> Response:
    result = studies.list_studies(request.app.state.service)
    return html.page("studies.html", studies=result, here="list", form_token=session.form_token)


def _new_page(session: Session, kind: str, given: Mapping[str, str], problem: str = "", status: int = 200) -> Response:
    chosen = kind if kind in html.NAMES else "mean"
    form = {"kinds": html.NAMES.items(), "kind": chosen, "sets": html.fieldsets(chosen), "given": given}
    return html.page("new.html", status, **form, problem=problem, here="new", form_token=session.form_token)


@router.get("/studies/new")
def new_study_page(session: Asked, kind: str = "mean") -> Response:
    return _new_page(session, kind, {})


@router.post("/studies/new")
def new_study(request: Request, session: Asked, form: Posted) -> Response:
    try:
        made = studies.create_study(request.app.state.service, html.declared_by(form), analyst=session.analyst)
    except HybridpError as error:
        return _new_page(session, form.get("kind", "mean"), form, str(error), html.status_of(error))
    return html.see(f"/studies/{made['id']}")


def _study_page(
    request: Request, session: Session, study_id: str, problem: str = "", status: int = 200, live: int = 0
) -> Response:
    s = studies.study_summary(request.app.state.service, study_id)
    planned, assumed = html.whatever_is_stored(lambda: html.error_rows(s), []), s["now_predicted"] or s["planned"] or {}
    first = (r["document"] for r in s["releases"] if r["kind"] == "discovery" and "questions" in r["document"])
    told = s["release"] or next(first, None)
    return html.page(
        "study.html",
        status,
        s=s,
        here="",
        live=live if s["status"] == "open" else 0,
        problem=problem,
        form_token=session.form_token,
        participation=html.whatever_is_stored(
            lambda: html.charts.participation(s["participation"]["bins"], s["participation"]["width"]), ""
        ),
        errors=html.whatever_is_stored(lambda: planned and html.charts.bars(planned, assumed.get("unit", "")), None),
        assumed=assumed.get("assumes", ""),
        may_discover=s["phased"] and s["phase"] != 2 and s["status"] in ("open", "closed"),
        told=told,
        shown=html.whatever_is_stored(lambda: html.shown_release(told, s["plan"]), None) if told else None,
    )


@router.get("/studies/{study_id}")
def study_page(request: Request, study_id: str, session: Asked, live: str = "") -> Response:
    """`live` seconds until the page is loaded again: for watching, on demand."""
    again = min(max(int(live), 2), 600) if live.isdecimal() and len(live) < 9 else 0
    return _study_page(request, session, study_id, live=again)


@router.get("/studies/{study_id}/release.json")
def release_file(request: Request, study_id: str, session: Asked) -> Response:
    result = studies.newest_release(request.app.state.service, study_id)
    head = {"content-disposition": f'attachment; filename="release-{result.get("task", "study")}.json"'}
    return JSONResponse(result, headers=head)


@router.get("/studies/{study_id}/confirm")
def confirm(request: Request, study_id: str, session: Asked, what: str = "") -> Response:
    """What cannot be undone is asked about first, with what it would do."""
    result = next((one for one in _DEEDS if one.name == what), None)
    if result is None:
        raise Refused("not-found", "There is no such thing to do.")
    try:
        s = studies.study_summary(request.app.state.service, study_id)
    except HybridpError as error:
        if what != "delete" or html.status_of(error) == 404:
            raise
        s = {"id": study_id, "title": study_id}
    made = sum(r["kind"] == "final" for r in s.get("releases", ()))
    return html.page("confirm.html", s=s, deed=result, made=made, here="", form_token=session.form_token)


@dataclass(frozen=True, slots=True)
class _Deed:
    """What cannot be undone, and how it is done, with the fields of its form; confirm.html says what it does."""

    name: str
    path: str
    title: str
    do: Callable[[Service, str, dict[str, str]], object]


_DEEDS = (
    _Deed("close", "close", "Close the study",
          lambda service, study_id, form: studies.close_study(service, study_id)),
    _Deed("discover", "phase-two", "Discover, then invite local people",
          lambda service, study_id, form: studies.open_phase_two(service, study_id, sure="sure" in form)),
    _Deed("release", "release", "Release the study",
          lambda service, study_id, form: studies.release_study(service, study_id, form.get("key") or "release")),
    _Deed("delete", "delete", "Delete the study",
          lambda service, study_id, form: studies.delete_study(service, study_id)),
)  # fmt: skip


@router.post("/studies/{study_id}/invitations")
def invitations(request: Request, study_id: str, session: Asked, form: Posted) -> Response:
    service = request.app.state.service
    count = int(form.get("count", "")) if form.get("count", "").isdecimal() else 0
    if not 1 <= count <= 10_000:
        raise Refused("invalid", "`count` must be at least 1 and at most 10,000.")
    tokens = studies.invite(service, study_id, count)
    links = [f"{service.settings.base_url}/s/{study_id}?t={token}" for token in tokens]
    return html.page("invitations.html", links=links, study_id=study_id, here="", form_token=session.form_token)


@router.post("/studies/{study_id}/{path}")
def act(request: Request, study_id: str, path: str, session: Asked, form: Posted) -> Response:
    """Do something to a study, then show it; a refusal is shown above it."""
    result = next((one for one in _DEEDS if one.path == path), None)
    if result is None:
        raise HTTPException(404, "Not Found")
    try:
        result.do(request.app.state.service, study_id, form)
    except HybridpError as error:
        return _study_page(request, session, study_id, str(error), html.status_of(error))
    return html.see(f"/studies/{study_id}")
