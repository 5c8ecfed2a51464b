"""HTML pages: for participants (no login, no cookie) and for analysts (a session and a token in every form).

Pages work without scripts; the one exception is the local choice, whose point is that the answer stays on the page.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import JSONResponse, Response
from sqlalchemy import Connection, delete, select
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from hybridp.errors import HybridpError
from hybridp.service import charts, participant, sessions, store, studies
from hybridp.service.charts import error_rows, error_unit, shown_release
from hybridp.service.core import Service
from hybridp.service.forms import NAMES, declared_by, fieldsets
from hybridp.service.html import (
    HERE,
    SecurityHeaders,
    address_of,
    for_people,
    form_fields,
    paced,
    page,
    see,
    slowly,
    status_of,
    trouble,
    whatever_is_stored,
)
from hybridp.service.problems import Refused
from hybridp.service.schema import analysts, meta

__all__ = ["install", "router"]

router = APIRouter(include_in_schema=False, dependencies=[Depends(paced)])


def install(app: FastAPI) -> None:
    """Static files, security headers, and sentences as pages where a page was asked for."""
    as_json: Any = app.exception_handlers[HTTPException]

    async def answer(request: Request, error: Any) -> Any:
        if not for_people(request):
            return await as_json(request, error)
        title = "There is no such page" if error.status_code == 404 else "This did not work"
        return page("problem.html", error.status_code, title=title, detail=f"{error.detail}.", back=None)

    app.include_router(participant.router)
    app.add_exception_handler(HTTPException, answer)
    refused: Any = app.exception_handlers[HybridpError]

    async def refuse(request: Request, error: Any) -> Any:
        return trouble(error) if for_people(request) else await refused(request, error)

    app.add_exception_handler(HybridpError, refuse)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.add_middleware(SecurityHeaders, https=app.state.service.settings.secure_cookies)


# --- analysts ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Session:
    """A logged-in analyst and the token of their forms."""

    analyst: studies.Analyst
    form_token: str


def _same_site(request: Request) -> bool:
    """Browsers say where a request comes from; what another site caused is refused. Old browsers say nothing."""
    return request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _known(service: Service, who: int, cookie: str) -> studies.Analyst | None:
    """The analyst, unless their key was revoked or this session was ended by logging out."""
    with store.reading(service.engine) as db:
        row = db.execute(select(analysts).where(analysts.c.id == who, analysts.c.revoked.is_(None))).first()
        ended = db.execute(select(meta.c.key).where(meta.c.key == _ended(cookie))).first()
    return None if row is None or ended is not None else studies.Analyst(row.id, row.name)


def _ended(cookie: str) -> str:
    return f"ended:{sessions.mark(cookie)}"


def _end(service: Service, cookie: str) -> None:
    """End a session for good, wherever its cookie has been copied to; forget those that are over anyway."""

    def run(db: Connection) -> None:
        kept = db.execute(select(meta.c.key, meta.c.value).where(meta.c.key.like("ended:%"))).all()
        over = [key for key, until in kept if int(until) < time.time()]
        db.execute(delete(meta).where(meta.c.key.in_([*over, _ended(cookie)])))
        db.execute(meta.insert().values(key=_ended(cookie), value=str(sessions.ends(cookie))))

    service.write(run)


def _session(request: Request) -> Session | None:
    service = request.app.state.service
    cookie = request.cookies.get(sessions.COOKIE, "")
    who = sessions.read_session(service.settings.session_secret, cookie, now=time.time())
    if who is None:
        return None
    analyst = _known(service, who, cookie)
    if analyst is None:
        return None
    return Session(analyst, sessions.form_token(service.settings.session_secret, cookie))


Asked = Annotated["Session | None", Depends(_session)]


async def _posted(request: Request) -> tuple[Session, dict[str, str]]:
    """The session and fields of a form that this site made; Refused otherwise."""
    session = await run_in_threadpool(_session, request)
    if session is None:
        raise Refused("unauthorised", "Please log in first.")
    form = await form_fields(request)
    secret = request.app.state.service.settings.session_secret
    cookie = request.cookies.get(sessions.COOKIE, "")
    if not _same_site(request) or not sessions.form_token_ok(secret, cookie, form.pop("form_token", "")):
        raise Refused("csrf", "This form is too old or came from another site. Please go back and try again.")
    return session, form


@router.get("/login")
def login_page() -> Response:
    return page("login.html", problem="")


@router.post("/login")
async def login(request: Request) -> Response:
    service = request.app.state.service
    try:
        slowly(request)
        service.guesses.may_guess(address_of(request))
    except Refused as error:
        return trouble(error, "/login")
    form = await form_fields(request)
    analyst = await run_in_threadpool(studies.check_key, service, form.get("key", "").strip())
    if analyst is None:
        service.guesses.guessed_wrong(address_of(request))
    if analyst is None or not _same_site(request):
        return page("login.html", 401, problem="This key is not known.")
    answer = see("/")
    answer.set_cookie(
        sessions.COOKIE,
        sessions.open_session(service.settings.session_secret, analyst.id, now=time.time()),
        max_age=sessions.LASTS,
        httponly=True,
        samesite="lax",
        secure=service.settings.secure_cookies,
    )
    return answer


@router.post("/logout")
async def logout(request: Request) -> Response:
    try:
        await _posted(request)
    except Refused as error:
        return trouble(error, "/")
    await run_in_threadpool(_end, request.app.state.service, request.cookies.get(sessions.COOKIE, ""))
    answer = see("/login")
    answer.delete_cookie(sessions.COOKIE)
    return answer


@router.get("/")
def study_list(request: Request, session: Asked) -> Response:
    if session is None:
        return see("/login")
    found = studies.list_studies(request.app.state.service)
    return page("studies.html", studies=found, here="list", form_token=session.form_token)


def _new_page(session: Session, kind: str, given: Mapping[str, str], problem: str = "", status: int = 200) -> Response:
    chosen = kind if kind in NAMES else "mean"
    values = {"kinds": NAMES.items(), "kind": chosen, "sets": fieldsets(chosen), "given": given, "problem": problem}
    return page("new.html", status, **values, here="new", form_token=session.form_token)


@router.get("/studies/new")
def new_study_page(session: Asked, kind: str = "mean") -> Response:
    return see("/login") if session is None else _new_page(session, kind, {})


@router.post("/studies/new")
async def new_study(request: Request) -> Response:
    try:
        session, form = await _posted(request)
    except Refused as error:
        return trouble(error, "/studies/new")
    service = request.app.state.service
    try:
        made = await run_in_threadpool(studies.create_study, service, declared_by(form), analyst=session.analyst)
    except HybridpError as error:
        return _new_page(session, form.get("kind", "mean"), form, str(error), status_of(error))
    return see(f"/studies/{made['id']}")


def _study_page(
    request: Request, session: Session, study_id: str, problem: str = "", status: int = 200, live: int = 0
) -> Response:
    try:
        s = studies.study_summary(request.app.state.service, study_id)
    except HybridpError as error:
        return trouble(error, "/")
    finals = [r for r in s["releases"] if r["kind"] == "final"]
    planned = whatever_is_stored(lambda: error_rows(s), [])
    first = (r["document"] for r in s["releases"] if r["kind"] == "discovery" and "questions" in r["document"])
    told = s["release"] or next(first, None)
    return page(
        "study.html",
        status,
        s=s,
        here="",
        live=live if s["status"] == "open" else 0,
        problem=problem,
        form_token=session.form_token,
        participation=whatever_is_stored(
            lambda: charts.participation(s["participation"]["bins"], s["participation"]["width"]), ""
        ),
        errors=whatever_is_stored(lambda: charts.bars(planned, error_unit(s)), None) if planned else None,
        assumed=(s["now_predicted"] or s["planned"] or {}).get("assumes", ""),
        may_release=s["can_release"],
        may_discover=s["phased"] and s["phase"] != 2 and s["status"] in ("open", "closed"),
        told=told,
        shown=whatever_is_stored(lambda: shown_release(told, s["plan"]), None) if told else None,
        release_key=f"release-{len(finals) + 1}" if finals else "release",
    )


@router.get("/studies/{study_id}")
def study_page(request: Request, study_id: str, session: Asked, live: str = "") -> Response:
    """`live` seconds until the page is loaded again: for watching, on demand."""
    if session is None:
        return see("/login")
    again = min(max(int(live), 2), 600) if live.isdecimal() and len(live) < 9 else 0
    return _study_page(request, session, study_id, live=again)


@router.get("/studies/{study_id}/release.json")
def release_file(request: Request, study_id: str, session: Asked) -> Response:
    if session is None:
        return see("/login")
    try:
        found = studies.study_summary(request.app.state.service, study_id)["release"]
    except HybridpError as error:
        return trouble(error, "/")
    if found is None:
        return trouble(Refused("no-release", "Nothing has been released."), f"/studies/{study_id}")
    head = {"content-disposition": f'attachment; filename="release-{found.get("task", "study")}.json"'}
    return JSONResponse(json.loads(json.dumps(found)), headers=head)


async def _act(request: Request, study_id: str, what: Any) -> Response:
    """Do something to a study, then show it; a refusal is shown above it."""
    try:
        session, form = await _posted(request)
    except Refused as error:
        return trouble(error, f"/studies/{study_id}")
    try:
        await run_in_threadpool(what, form)
    except HybridpError as error:
        return await run_in_threadpool(_study_page, request, session, study_id, str(error), status_of(error))
    return see(f"/studies/{study_id}")


@router.get("/studies/{study_id}/confirm")
def confirm(request: Request, study_id: str, session: Asked, what: str = "") -> Response:
    """What cannot be undone is asked about first, with what it would do."""
    if session is None:
        return see("/login")
    try:
        s = studies.study_summary(request.app.state.service, study_id)
    except HybridpError as error:
        if what != "delete" or isinstance(error, studies.NoSuchStudy):
            return trouble(error, "/")
        s = {"id": study_id, "title": study_id, "kind": "", "phased": False, "phase": 0, "people": {}}
        s |= {"answers_last": True, "planned_releases": 1}
    if what not in _DEEDS:
        return trouble(Refused("not-found", "There is no such thing to do."), f"/studies/{study_id}")
    finals = sum(r["kind"] == "final" for r in s.get("releases", ()))
    path, title, button, sentences = _DEEDS[what]
    told = [sentence for sentence in sentences(s) if sentence]
    key = f"release-{finals + 1}" if finals else "release"
    values: dict[str, Any] = {
        "s": s,
        "path": path,
        "title": title,
        "button": button,
        "told": told,
        "key": key,
        "here": "",
    }
    return page("confirm.html", **values, form_token=session.form_token)


def _closing(s: Mapping[str, Any]) -> list[str]:
    found = ["Nobody can answer any more, and it cannot be opened again."]
    if s["phased"] and s["phase"] != 2:
        made = "The list can still be made" if s["kind"] == "records" else "What they say can still be released"
        found = [
            "Trusted people cannot answer any more.",
            f"{made}: “Discover” opens the study again, for local people.",
        ]
    return found


def _discovering(s: Mapping[str, Any]) -> list[str]:
    if s["answers_last"]:
        return [
            "Trusted people cannot answer any more: a part of their promise is spent on the line of what they say.",
            "It is public from then on, and local people are asked about it. Their other answers wait for the release.",
        ]
    heavy = s["kind"] == "records"
    made = "the list of frequent answers" if heavy else "statistics of what they say"
    public = "The list is public from then on, and local people are asked about it."
    if not heavy:
        public = "These are public from then on, and local people are asked near what they say."
    return [
        f"The trusted people’s part ends: their whole promise is spent on {made}.",
        s["discovery_forecast"] or "",
        public,
        "Trusted answers are deleted." if s["plan"]["collection"]["delete_raw_after_release"] else "",
    ]


def _releasing(s: Mapping[str, Any]) -> list[str]:
    left = s["planned_releases"] - sum(r["kind"] == "final" for r in s["releases"])
    return [
        "The ledger is charged, and what is published cannot be called back.",
        f"The plan pays for {left:,} more of {s['planned_releases']:,}." if s["planned_releases"] > 1 else "",
        "It is the last one: trusted answers are deleted."
        if left == 1 and s["plan"]["collection"]["delete_raw_after_release"] and s["answers_last"]
        else "",
    ]


def _deleting(s: Mapping[str, Any]) -> list[str]:
    return [
        "Trusted answers, local reports and unused invitations are deleted, for good.",
        "The plan, the ledger and what was published stay on record: what was spent is spent.",
    ]


_DEEDS: dict[str, tuple[str, str, str, Callable[[Mapping[str, Any]], list[str]]]] = {
    "close": ("close", "Close the study?", "Yes, close it", _closing),
    "discover": ("phase-two", "Discover, then invite local people?", "Yes, discover", _discovering),
    "release": ("release", "Release the study?", "Yes, release it", _releasing),
    "delete": ("delete", "Delete the study?", "Yes, delete it", _deleting),
}


@router.post("/studies/{study_id}/delete")
async def delete_study(request: Request, study_id: str) -> Response:
    service = request.app.state.service
    return await _act(request, study_id, lambda form: studies.delete_study(service, study_id))


@router.post("/studies/{study_id}/close")
async def close(request: Request, study_id: str) -> Response:
    service = request.app.state.service
    return await _act(request, study_id, lambda form: studies.close_study(service, study_id))


@router.post("/studies/{study_id}/phase-two")
async def phase_two(request: Request, study_id: str) -> Response:
    service = request.app.state.service
    return await _act(request, study_id, lambda form: studies.open_phase_two(service, study_id, sure="sure" in form))


@router.post("/studies/{study_id}/release")
async def release(request: Request, study_id: str) -> Response:
    service = request.app.state.service
    return await _act(
        request, study_id, lambda form: studies.release_study(service, study_id, key=form.get("key") or "release")
    )


@router.post("/studies/{study_id}/invitations")
async def invitations(request: Request, study_id: str) -> Response:
    service = request.app.state.service
    try:
        session, form = await _posted(request)
        count = int(form.get("count", "")) if form.get("count", "").isdecimal() else 0
        if not 1 <= count <= 10_000:
            raise Refused("invalid", "`count` must be at least 1 and at most 10,000.")
        tokens = await run_in_threadpool(studies.invite, service, study_id, count)
    except HybridpError as error:
        return trouble(error, f"/studies/{study_id}")
    links = [f"{service.settings.base_url}/s/{study_id}?t={token}" for token in tokens]
    return page("invitations.html", links=links, study_id=study_id, here="", form_token=session.form_token)
