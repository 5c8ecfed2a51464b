"""HTML pages: for participants (no login, no cookie) and for analysts (a session and a token in every form).

Pages work without scripts; the one exception is the local choice, whose point is that the answer stays on the page.
"""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any, get_args

from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from sqlalchemy import Connection, delete, select
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles

from hybridp.errors import HybridpError, InvalidInput
from hybridp.service import charts, sessions, store, studies
from hybridp.service.core import Service
from hybridp.service.headers import SecurityHeaders
from hybridp.service.participant import participant_view, trusted_payload
from hybridp.service.plans import AnyPlan
from hybridp.service.problems import Refused
from hybridp.service.schema import analysts, meta
from hybridp.service.shown import error_rows, error_unit, shown_release

__all__ = ["install", "router"]

HERE = Path(__file__).parent
_NAMES = {
    "mean": "Mean of a number",
    "personal-mean": "Mean, everyone their own ε",
    "vector-mean": "Mean of several numbers",
    "heavy-hitters": "Heavy hitters",
}
# The plans' own models say which kinds there are.
_MODELS = get_args(get_args(AnyPlan)[0])
_OFFERED = {get_args(model.model_fields["kind"].annotation)[0] for model in _MODELS}
KINDS = tuple((kind, name) for kind, name in _NAMES.items() if kind in _OFFERED)

router = APIRouter(include_in_schema=False)


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%d %B %Y, %H:%M UTC")


_environment = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=select_autoescape(default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
_environment.filters["moment"] = _moment
_environment.filters["number"] = lambda x: f"{x:,.6g}" if abs(x) < 1e6 else f"{x:,.0f}"
_environment.filters["figure"] = lambda x, none="": none if x is None else f"{x:g}" if isinstance(x, float | int) else x
_environment.filters["plain"] = lambda x: f"{x:.15g}"


def _page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(_environment.get_template(name).render(**values), status_code=status)


def install(app: FastAPI) -> None:
    """Static files, security headers, and sentences as pages where a page was asked for."""
    as_json: Any = app.exception_handlers[HTTPException]

    async def answer(request: Request, error: Any) -> Any:
        for_people = "text/html" in request.headers.get("accept", "")
        if not for_people or request.url.path.startswith(("/api/", "/tasks/")):
            return await as_json(request, error)
        title = "There is no such page" if error.status_code == 404 else "This did not work"
        return _page("problem.html", error.status_code, title=title, detail=f"{error.detail}.", back=None)

    app.add_exception_handler(HTTPException, answer)
    app.mount("/static", StaticFiles(directory=HERE / "static"), name="static")
    app.add_middleware(SecurityHeaders, https=app.state.service.settings.secure_cookies)


def _status(error: HybridpError) -> int:
    return int(getattr(error, "status", 422))


def _trouble(error: HybridpError, back: str | None = None) -> HTMLResponse:
    status = _status(error)
    title = "There is no such page" if status == 404 else "This did not work"
    answer = _page("problem.html", status, title=title, detail=str(error), back=back)
    wait = getattr(error, "retry_after", None)
    if wait is not None:
        answer.headers["retry-after"] = str(wait)
    return answer


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


async def _form(request: Request) -> dict[str, str]:
    async with request.form(max_files=0, max_fields=200) as form:
        return {name: value for name, value in form.items() if isinstance(value, str)}


async def _posted(request: Request) -> tuple[Session, dict[str, str]]:
    """The session and fields of a form that this site made; Refused otherwise."""
    session = await run_in_threadpool(_session, request)
    if session is None:
        raise Refused("unauthorised", "Please log in first.")
    form = await _form(request)
    secret = request.app.state.service.settings.session_secret
    cookie = request.cookies.get(sessions.COOKIE, "")
    if not _same_site(request) or not sessions.form_token_ok(secret, cookie, form.pop("form_token", "")):
        raise Refused("csrf", "This form is too old or came from another site. Please go back and try again.")
    return session, form


def _slowly(request: Request) -> None:
    """What anyone may send, without a key, counts for the same limit as uploads."""
    request.app.state.service.gate.check(request.client.host if request.client else "")


def _to(path: str) -> RedirectResponse:
    return RedirectResponse(path, status_code=303)


@router.get("/login")
def login_page() -> Response:
    return _page("login.html", problem="")


@router.post("/login")
async def login(request: Request) -> Response:
    service = request.app.state.service
    try:
        _slowly(request)
    except Refused as error:
        return _trouble(error, "/login")
    form = await _form(request)
    analyst = await run_in_threadpool(studies.check_key, service, form.get("key", "").strip())
    if analyst is None or not _same_site(request):
        return _page("login.html", 401, problem="This key is not known.")
    answer = _to("/")
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
        return _trouble(error, "/")
    await run_in_threadpool(_end, request.app.state.service, request.cookies.get(sessions.COOKIE, ""))
    answer = _to("/login")
    answer.delete_cookie(sessions.COOKIE)
    return answer


@router.get("/")
def study_list(request: Request, session: Asked) -> Response:
    if session is None:
        return _to("/login")
    found = studies.list_studies(request.app.state.service)
    return _page("studies.html", studies=found, here="list", form_token=session.form_token)


def _new_page(session: Session, kind: str, given: Mapping[str, str], problem: str = "", status: int = 200) -> Response:
    chosen = kind if kind in dict(KINDS) else "mean"
    values = {"kinds": KINDS, "kind": chosen, "given": given, "problem": problem, "here": "new"}
    return _page("new.html", status, **values, form_token=session.form_token)


@router.get("/studies/new")
def new_study_page(session: Asked, kind: str = "mean") -> Response:
    return _to("/login") if session is None else _new_page(session, kind, {})


def _as_plan(form: Mapping[str, str]) -> dict[str, Any]:
    """The form's fields as a plan: moments of UTC become Unix seconds."""
    fields = dict(form)
    for name in ("opens", "closes"):
        if text := fields.get(name, "").strip():
            try:
                fields[name] = str(int(datetime.fromisoformat(text).replace(tzinfo=UTC).timestamp()))
            except ValueError:
                raise InvalidInput(f"`{name}` must be a date and a time. Got something else.") from None
    return studies.plan_from_form(fields)


@router.post("/studies/new")
async def new_study(request: Request) -> Response:
    try:
        session, form = await _posted(request)
    except Refused as error:
        return _trouble(error, "/studies/new")
    service = request.app.state.service
    try:
        made = await run_in_threadpool(studies.create_study, service, _as_plan(form), analyst=session.analyst)
    except HybridpError as error:
        return _new_page(session, form.get("kind", "mean"), form, str(error), _status(error))
    return _to(f"/studies/{made['id']}")


def _study_page(
    request: Request, session: Session, study_id: str, problem: str = "", status: int = 200, live: int = 0
) -> Response:
    try:
        s = studies.study_summary(request.app.state.service, study_id)
    except HybridpError as error:
        return _trouble(error, "/")
    finals = [r for r in s["releases"] if r["kind"] == "final"]
    planned = error_rows(s)
    return _page(
        "study.html",
        status,
        s=s,
        here="",
        live=live if s["status"] == "open" else 0,
        problem=problem,
        form_token=session.form_token,
        participation=charts.participation(s["participation"]["bins"], s["participation"]["width"]),
        errors=charts.bars(planned, error_unit(s)) if planned else None,
        assumed=(s["now_predicted"] or s["planned"] or {}).get("assumes", ""),
        may_release=s["can_release"] and len(finals) < (s["plan"].get("releases") or 1),
        shown=shown_release(s["release"], s["plan"]) if s["release"] else None,
        release_key=f"release-{len(finals) + 1}" if finals else "release",
    )


@router.get("/studies/{study_id}")
def study_page(request: Request, study_id: str, session: Asked, live: str = "") -> Response:
    """`live` seconds until the page is loaded again: for watching, on demand."""
    if session is None:
        return _to("/login")
    again = min(max(int(live), 2), 600) if live.isdecimal() and len(live) < 9 else 0
    return _study_page(request, session, study_id, live=again)


@router.get("/studies/{study_id}/release.json")
def release_file(request: Request, study_id: str, session: Asked) -> Response:
    if session is None:
        return _to("/login")
    try:
        found = studies.study_summary(request.app.state.service, study_id)["release"]
    except HybridpError as error:
        return _trouble(error, "/")
    if found is None:
        return _trouble(Refused("no-release", "Nothing has been released."), f"/studies/{study_id}")
    head = {"content-disposition": f'attachment; filename="release-{found.get("task", "study")}.json"'}
    return JSONResponse(json.loads(json.dumps(found)), headers=head)


async def _act(request: Request, study_id: str, what: Any) -> Response:
    """Do something to a study, then show it; a refusal is shown above it."""
    try:
        session, form = await _posted(request)
    except Refused as error:
        return _trouble(error, f"/studies/{study_id}")
    try:
        await run_in_threadpool(what, form)
    except HybridpError as error:
        return await run_in_threadpool(_study_page, request, session, study_id, str(error), _status(error))
    return _to(f"/studies/{study_id}")


@router.post("/studies/{study_id}/close")
async def close(request: Request, study_id: str) -> Response:
    service = request.app.state.service
    return await _act(request, study_id, lambda form: studies.close_study(service, study_id))


@router.post("/studies/{study_id}/phase-two")
async def phase_two(request: Request, study_id: str) -> Response:
    service = request.app.state.service
    return await _act(request, study_id, lambda form: studies.open_phase_two(service, study_id))


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
        return _trouble(error, f"/studies/{study_id}")
    links = [f"{service.settings.base_url}/s/{study_id}?t={token}" for token in tokens]
    return _page("invitations.html", links=links, study_id=study_id, here="", form_token=session.form_token)


# --- participants -----------------------------------------------------------------------------------------------------


@router.get("/s/{study_id}")
def participant_page(request: Request, study_id: str, t: str | None = None) -> Response:
    try:
        task = studies.task_document(request.app.state.service, study_id)
    except HybridpError as error:
        return _trouble(error)
    view = participant_view(task, token=t or None, report_id=studies.new_report_id())
    return _page("participant.html", **view)


@router.post("/s/{study_id}")
async def participate(request: Request, study_id: str) -> Response:
    """The trusted choice. The report's id came with the form, so that sending the form twice counts once."""
    service = request.app.state.service
    try:
        _slowly(request)
    except Refused as error:
        return _trouble(error, f"/s/{study_id}")
    form = await _form(request)
    token = form.get("t") or None
    try:
        task = await run_in_threadpool(studies.task_document, service, study_id)
    except HybridpError as error:
        return _trouble(error)

    def again(problem: str, status: int) -> Response:
        view = participant_view(task, token=token, report_id=studies.new_report_id(), problem=problem, given=form)
        return _page("participant.html", status, **view)

    try:
        payload, epsilon = trusted_payload(task, form)
        report = {
            "id": form.get("report_id", ""),
            "time": studies.rounded_now(task),
            "token": token,
            "group": "trusted",
            "epsilon": epsilon,
            "payload": payload,
        }
        failures = await studies.submit(service, study_id, [report])
    except HybridpError as error:
        return again(str(error), _status(error))
    if failures:
        return again(str(failures[0]["detail"]), int(failures[0].get("status", 422)))
    return _to(f"/s/{study_id}/thanks")


@router.get("/s/{study_id}/thanks")
def thanks(request: Request, study_id: str) -> Response:
    try:
        return _page("thanks.html", task=studies.task_document(request.app.state.service, study_id))
    except HybridpError as error:
        return _trouble(error)
