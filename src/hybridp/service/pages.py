"""HTML pages: for analysts (a session and a token in every form), and for participants (no login): what each choice
means for one person, from the task document alone, and the trusted form. They work without scripts, but for the local
choice, whose point is that the answer stays on the page. And what they are made of: templates, security headers (the
browser may load, run, send and frame only what is named), charts, which `templates/charts.html` draws; and the form of
a new study, made from the fields that a study declares: their names, help, choices and defaults.

>>> "<script>" in charts.intervals([("<script>", 1.0, 0.5, 1.5)], "x")
False
>>> [name for name, one in fieldsets("number")["What is asked"].items() if one.required]
['question.name', 'question.lower', 'question.upper']
>>> stated = declared_by({"kind": "number", "title": "Sleep", "question.lower": "0", "promise.epsilon": "1"})
>>> stated["promise"], stated["questions"]
({'epsilon': 1.0}, [{'kind': 'number', 'lower': 0.0}])
"""

from __future__ import annotations

import hmac
import math
import re
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote, urlsplit

from fastapi import APIRouter, Depends, Request
from fastapi.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from sqlalchemy import Connection, delete, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException

from hybridp.errors import Declared, Fields, HybridpError, InvalidInput, declared, must
from hybridp.public.questions import KINDS as QUESTIONS
from hybridp.public.study import Collection, Declaration, Mixer, People, Promise
from hybridp.release.facts import Facts, heading, is_share
from hybridp.release.release import Release
from hybridp.service import schema, store, studies, words
from hybridp.service.api import Here
from hybridp.service.core import Service
from hybridp.service.problems import Refused, address_of, log_internal
from hybridp.service.schema import TICKET, analysts, meta
from hybridp.service.settings import hashed
from hybridp.service.words import TEMPLATES, VISIT_HOURS

__all__ = ["COOKIE", "HERE", "KINDS", "POLICY", "SAFE", "charts", "declared_by", "fieldsets", "participant_view"]
__all__ += ["refused", "router", "shown_release", "trouble"]

HERE = Path(__file__).parent


def page(name: str, status: int = 200, error: HybridpError | None = None, **values: Any) -> HTMLResponse:
    """A page, which says what was refused, if anything was, and when to try again."""
    values = {"problem": str(error or ""), **values}
    answer = HTMLResponse(TEMPLATES.get_template(name).render(**values), status_of(error) if error else status)
    if wait := getattr(error, "retry_after", None):
        answer.headers["retry-after"] = str(wait)
    return answer


def status_of(error: HybridpError) -> int:
    return int(getattr(error, "status", 422))


def trouble(status: int, error: HybridpError | None = None, **values: Any) -> HTMLResponse:
    title = "There is no such page" if status == 404 else "This did not work"
    return page("problem.html", status, error, **{"title": title, "back": None, **values})


def refused(request: Request, error: HybridpError) -> Response:
    """A refusal is a page too, with the way back; who must log in first is sent there."""
    study, path = request.path_params.get("study_id"), request.url.path
    if status_of(error) == 401 and request.method == "GET" and not path.startswith("/s/"):
        return see("/login")
    back = path if path in ("/login", "/studies/new") else "/"
    back = f"/studies/{study}" if study and getattr(error, "code", "") != "not-found" else back
    return trouble(status_of(error), error, back=None if path.startswith("/s/") else back)


def whatever_is_stored(draw: Callable[[], Any], instead: Any) -> Any:
    """A page never fails because of stored data: what cannot be drawn is left out, and logged by its kind."""
    try:
        return draw()
    except Exception as error:
        log_internal(error)
        return instead


async def form_fields(request: Request) -> dict[str, str]:
    async with request.form(max_files=0, max_fields=600) as form:
        return {name: value for name, value in form.items() if isinstance(value, str)}


async def paced(request: Request) -> None:
    """Every page that is asked for counts, whoever asks."""
    request.app.state.service.pages.check(address_of(request))


def see(path: str) -> RedirectResponse:
    return RedirectResponse(path, status_code=303)


# --- headers ----------------------------------------------------------------------------------------------------------

POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)

SAFE = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # An invitation's code is in the address of the page: no other server may read it there.
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=(), browsing-topics=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}
"""What every answer says."""


def policy_with(url: str) -> str:
    """The policy of a page whose script also sends to the server of this address, and to no other.

    >>> policy_with("https://mixer.example/path").split("; ")[4]
    "connect-src 'self' https://mixer.example"
    """
    parts = urlsplit(url)
    return POLICY.replace("connect-src 'self'", f"connect-src 'self' {parts.scheme}://{parts.netloc}")


# --- charts -----------------------------------------------------------------------------------------------------------


def _short(x: float) -> str:
    return f"{x:,.0f}" if abs(x) >= 1000 and x == round(x) else f"{x:,.4g}"


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers that cover [low, high]: steps of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not (math.isfinite(span) and span > 0):
        return [low]
    power = 10.0 ** math.floor(math.log10(span / about))
    step = next(s * power for s in (1, 2, 5, 10) if s * power * about >= span)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


TEMPLATES.filters |= {"short": _short, "tenth": "{:.1f}".format}
TEMPLATES.globals |= {"ticks": _ticks}
charts: Any = TEMPLATES.get_template("charts.html").module
"""`participation(bins, width)`, `intervals(rows, label)` and `bars(rows, label)`, each one SVG."""


# --- a release on its study's page ------------------------------------------------------------------------------------

_MOST = 15  # records in the chart


def shown_release(document: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    release = Release.of_dict(document)
    units = {q["name"]: q.get("unit") or "" for q in plan.get("questions", ())}
    several, parts = len(release.questions) > 1, []
    for name, statistics in release.questions.items():
        for key, facts in statistics.items():
            if key != "distribution":  # a curve, for the download
                part = _part(release[name].of(key), facts, units.get(name, ""))
                if several or len(statistics) > 1:
                    part["title"] = f"{name}: {key}" if several else key
                parts.append(part)
    return {"simulated": release.simulated, "receipt": document["receipt"], "parts": parts}


def _part(release: Release, facts: Facts, unit: str) -> dict[str, Any]:
    ((question, (key,)),) = release.questions.items()
    words, *more = release.all_words()
    every, share, task = release.cells, is_share(facts), facts["task"]
    level = "" if release.level is None else f"{release.level:.0%}"
    level += " (all together)" if facts.get("joint") and len(every) > 1 else ""
    what = "share of people" if share else "people" if task.startswith("count") else unit or key.replace("_", " ")
    shown = {"title": "", "headline": heading(question, key, facts), "beside": f"{what}, {level} intervals"}
    rows = [(cell.name or "everyone", cell.estimate, cell.low, cell.high) for cell in every]
    if task == "synthetic-data":
        said = "`hybridp study release STUDY --model FOLDER` fits its rows, for free."
        return shown | {"beside": f"{facts['people']:,} people. {said}", "chart": "", "tables": [], "remarks": []}
    if len(every) == 1 and "by" not in facts:
        (cell,) = every
        at, low, high = cell.texts()
        shown |= {"headline": f"{at} {unit}".strip(), "beside": f"{level} interval: {low} to {high}"}
        for group, part in (facts.get("groups") or {}).items():
            own, reach = getattr(cell, group), part.get("half_width")
            if own is not None and reach is not None:
                rows.append((f"{group} people ({part['people']:,})", own, own - reach, own + reach))
    known = [(at, x, low, high) for at, x, low, high in rows
             if x is not None and low is not None and high is not None and math.isfinite(low)]  # fmt: skip
    whole = bool(rows) and len(known) == len(rows) and task not in ("regression", "kmeans")
    chart = charts.intervals(known[:_MOST], f"{what}, with {level} interval") if whole else ""
    return shown | {"chart": chart, "tables": [words, *more], "remarks": words.remarks}


# --- the form of a new study ------------------------------------------------------------------------------------------

KINDS = {kind: question for kind, question in QUESTIONS.items() if kind != "table"}
"""What a form can state, and the question that asks for it. A table is stated in a study file."""
_LEGENDS = {"": "The study", "question": "What is asked", "promise": "What is promised",
            "collection": "Who may answer, until when, and how long answers are kept",
            "people": "How many people are expected", "mixer": "A mixer between, if there is one"}  # fmt: skip
_OF_TABLES = {"question.column", "question.report", "question.missing", "question.weight", "question.publish",
              "question.clipped_share", "question.guessed", "promise.epsilon_column", "promise.share",
              "promise.several", "people.column", "people.record_key", "people.record_id", "people.decimal",
              "people.public"}  # fmt: skip
"""Fields that the page of one question has no use for."""


def _places(kind: str) -> dict[str, type[Fields]]:
    """The tables of a declaration that asks one question of this kind."""
    return {"": Declaration, "question": KINDS[kind], "promise": Promise, "collection": Collection, "people": People,
            "mixer": Mixer}  # fmt: skip


def fieldsets(kind: str) -> dict[str, dict[str, Declared]]:
    """The form of a kind: under the legend of every table of the declaration its fields, by their place in it."""
    return {
        _LEGENDS[place]: {f"{place}.{one.name}".removeprefix("."): one for one in declared(of)
                          if one.of is None and f"{place}.{one.name}" not in _OF_TABLES}
        for place, of in _places(kind).items()
    }  # fmt: skip


def _rare(name: str, one: Declared) -> bool:
    """Whether most studies leave a field alone."""
    own = name.startswith("question.") and not one.shown and one.name not in ("text", "unit")
    return own or name.startswith("mixer.")


def declared_by(form: Mapping[str, str]) -> dict[str, Any]:
    """A study as plain data from a form's fields: empty ones are left to their defaults, others are the declaration's
    to refuse."""
    kind = form.get("kind", "number")
    must(kind in KINDS, "kind", f"must be one of {', '.join(KINDS)}", "another")
    forms = {place: {one.name: one.form for one in declared(of)} for place, of in _places(kind).items()}
    result: dict[str, dict[str, Any]] = {"": {}, "question": {"kind": kind}}
    for name, given in form.items():
        place, _, field = name.rpartition(".")
        if name not in ("kind", "form_token") and given.strip():
            result.setdefault(place, {})[field] = _read(forms.get(place, {}).get(field, "text"), given.strip())
    own, question = result.pop(""), result.pop("question")
    return {**own, **result, "questions": [question]}


_READERS: dict[str, Callable[[str], Any]] = {
    "number": float,
    "whole": int,
    "yes/no": lambda given: given.lower() in ("on", "true", "1", "yes"),
    "texts": lambda given: [part.strip() for part in given.split(",") if part.strip()],
    "numbers": lambda given: [float(part) for part in given.split(",") if part.strip()],
    "moment": lambda given: datetime.fromisoformat(given).replace(tzinfo=UTC),
}


def _read(form: str, given: str) -> Any:
    """A field's text in its form, where it has it; what it may be is the declaration's to say."""
    try:
        return _READERS.get(form, str)(given)
    except ValueError:
        return given


# --- the routes -------------------------------------------------------------------------------------------------------

router = APIRouter(include_in_schema=False, dependencies=[Depends(paced)])


# --- an analyst's session ---------------------------------------------------------------------------------------------

# The cookie is a random number; the store keeps a hash of it, whose session it is and until when. Logging out forgets
# it, wherever it has been copied to. The form token is another hash of the cookie, which no other site can read.

COOKIE = "hybridp_session"
LASTS = 12 * 3600  # seconds


@dataclass(frozen=True, slots=True)
class Session:
    analyst: int
    form_token: str
    cookie: str


def _same_site(request: Request) -> bool:
    """Browsers say where a request comes from; what another site caused is refused. Old browsers say nothing."""
    return request.headers.get("sec-fetch-site", "same-origin") in ("same-origin", "none")


def _kept(cookie: str) -> str:
    return f"session:{hashed(cookie).hex()}"


def _session(request: Request, service: Here) -> Session:
    """Whoever is logged in; who is not is sent to the login, and a form of theirs is refused."""
    cookie = request.cookies.get(COOKIE, "")
    with store.reading(service.engine) as db:
        who, _, until = (schema.meta_value(db, _kept(cookie)) or "0.0").partition(".")
        here = (analysts.c.id == int(who), analysts.c.revoked.is_(None))  # not of a key that was revoked
        row = db.execute(select(analysts).where(*here)).first()
    if row is None or int(until) < time.time():
        raise Refused("unauthorised", "Please log in first.")
    return Session(row.id, hashed(f"form:{cookie}").hex(), cookie)


Asked = Annotated[Session, Depends(_session)]


async def _form(request: Request, session: Asked) -> dict[str, str]:
    """The fields of a form that this site made; Refused otherwise."""
    form = await form_fields(request)
    mine = hmac.compare_digest(form.pop("form_token", "").encode(), session.form_token.encode())
    if not mine or not _same_site(request):
        raise Refused("csrf", "This form is too old or came from another site. Please go back and try again.")
    return form


Posted = Annotated[dict[str, str], Depends(_form)]


@router.get("/login")
def login_page() -> Response:
    return page("login.html")


@router.post("/login")
async def login(request: Request, service: Here) -> Response:
    service.gate.check(address_of(request))
    service.guesses.may_guess(address_of(request))
    form = await form_fields(request)
    analyst = await run_in_threadpool(studies.check_key, service, form.get("key", "").strip())
    if analyst is None:
        service.guesses.guessed_wrong(address_of(request))
    if analyst is None or not _same_site(request):
        return page("login.html", 401, problem="This key is not known.")
    answer, cookie, secure = see("/"), secrets.token_urlsafe(32), service.settings.secure_cookies
    until = f"{analyst}.{int(time.time()) + LASTS}"
    await run_in_threadpool(service.write, partial(schema.set_meta, key=_kept(cookie), value=until))
    answer.set_cookie(COOKIE, cookie, max_age=LASTS, httponly=True, samesite="lax", secure=secure)
    return answer


@router.post("/logout")
def logout(service: Here, session: Asked, form: Posted) -> Response:
    """End a session for good; forget those that are over anyway."""

    def end(db: Connection) -> None:
        kept = db.execute(select(meta.c.key, meta.c.value).where(meta.c.key.like("session:%"))).all()
        over = [key for key, value in kept if int(value.partition(".")[2]) < time.time()]
        db.execute(delete(meta).where(meta.c.key.in_([*over, _kept(session.cookie)])))

    service.write(end)
    answer = see("/login")
    answer.delete_cookie(COOKIE)
    return answer


@router.get("/")
def study_list(service: Here, session: Asked) -> Response:
    return page("studies.html", studies=studies.list_studies(service), here="list", form_token=session.form_token)


def _new_page(session: Session, kind: str, given: Mapping[str, str], error: HybridpError | None = None) -> Response:
    chosen = kind if kind in KINDS else "number"
    form: dict[str, Any] = {"kinds": KINDS, "kind": chosen, "sets": fieldsets(chosen), "rare": _rare, "given": given}
    return page("new.html", error=error, **form, here="new", form_token=session.form_token)


@router.get("/studies/new")
def new_study_page(session: Asked, kind: str = "number") -> Response:
    return _new_page(session, kind, {})


@router.post("/studies/new")
def new_study(service: Here, session: Asked, form: Posted) -> Response:
    try:
        made = studies.create_study(service, declared_by(form), analyst=session.analyst)
    except HybridpError as error:
        return _new_page(session, form.get("kind", "number"), form, error)
    return see(f"/studies/{made['id']}")


def _study_page(service: Service, session: Session, study_id: str, error: HybridpError | None, live: int) -> Response:
    s, drawn = studies.study_summary(service, study_id), whatever_is_stored
    assumed = s["now_predicted"] or s["planned"] or {}
    labels = {"planned": "planned", "now_predicted": "predicted for those who came"}
    planned = [(label, s[name]["half_width"]) for name, label in labels.items() if s[name]]
    told = s["release"] or next((r["document"] for r in s["releases"][::-1] if "questions" in r["document"]), None)
    return page(
        "study.html",
        error=error,
        s=s,
        here="",
        live=live if s["status"] == "open" else 0,
        form_token=session.form_token,
        participation=drawn(lambda: charts.participation(**s["participation"]), ""),
        errors=drawn(lambda: planned and charts.bars(planned, assumed.get("unit", "")), None),
        assumed=assumed.get("assumes", ""),
        told=told,
        shown=drawn(lambda: shown_release(told, s["plan"]), None) if told else None,
    )


@router.get("/studies/{study_id}")
def study_page(service: Here, study_id: str, session: Asked, live: str = "") -> Response:
    return _study_page(service, session, study_id, None, min(max(_whole(live), 2), 600) if live else 0)


def _whole(text: str) -> int:
    return int(text) if text.isdecimal() and len(text) < 9 else 0


@router.get("/studies/{study_id}/release.json")
def release_file(service: Here, study_id: str, session: Asked) -> Response:
    result = studies.newest_release(service, study_id)
    head = {"content-disposition": f'attachment; filename="release-{result.get("task", "study")}.json"'}
    return JSONResponse(result, headers=head)


_Do = Callable[[Service, str, Mapping[str, str]], object]
_DEEDS: dict[str, tuple[str, _Do]] = {
    "close": ("Close the study", lambda service, study, form: studies.close_study(service, study)),
    "next-phase": ("Discover, then invite local people",
                   lambda service, study, form:
                   studies.open_phase(service, study, _whole(form.get("phase", "")), sure="sure" in form)),
    "release": ("Release the study",
                lambda service, study, form: studies.release_study(service, study, form.get("key") or "release")),
    "delete": ("Delete the study", lambda service, study, form: studies.delete_study(service, study)),
}  # fmt: skip
"""What cannot be undone, and how it is done, with the fields of its form; confirm.html says what it does."""


@router.get("/studies/{study_id}/confirm")
def confirm(service: Here, study_id: str, session: Asked, what: str = "") -> Response:
    """What cannot be undone is asked about first, with what it would do."""
    if what not in _DEEDS:
        raise Refused("not-found", "There is no such thing to do.")
    try:
        s = studies.study_summary(service, study_id)
    except HybridpError as error:
        if what != "delete" or status_of(error) == 404:
            raise
        s = {"id": study_id, "title": study_id}
    made, title = sum(r["kind"] == "final" for r in s.get("releases", ())), _DEEDS[what][0]
    return page("confirm.html", s=s, deed=what, title=title, made=made, here="", form_token=session.form_token)


@router.post("/studies/{study_id}/invitations")
def invitations(service: Here, study_id: str, session: Asked, form: Posted) -> Response:
    tokens = studies.invite(service, study_id, _whole(form.get("count", "")))
    links = [f"{service.settings.base_url}/s/{study_id}?t={token}" for token in tokens]
    return page("invitations.html", links=links, study_id=study_id, here="", form_token=session.form_token)


@router.post("/studies/{study_id}/{path}")
def act(service: Here, study_id: str, path: str, session: Asked, form: Posted) -> Response:
    """Do something to a study, then show it; a refusal is shown above it."""
    if path not in _DEEDS:
        raise HTTPException(404, "Not Found")
    try:
        _DEEDS[path][1](service, study_id, form)
    except HybridpError as error:
        return _study_page(service, session, study_id, error, 0)
    return see(f"/studies/{study_id}")


# --- participants -----------------------------------------------------------------------------------------------------


def participant_view(task: Mapping[str, Any]) -> dict[str, Any]:
    say = words.said(task)
    told = [text for text in task["notice"] if task["status"] == "open" or text != say["crowd"]]
    return {"task": task, "choices": task.get("choices") or (), "say": say, "sentences": told}


def _given(question: Mapping[str, Any], field: str, form: Mapping[str, str]) -> Any:
    """The answer to a question: an option's place, those of the ticked ones, a number, several, or a record."""
    if "record" in question:
        record = [form.get(f"{field}.{i}", "").strip() for i in range(len(question["record"]))]
        if not all(record):
            raise InvalidInput("Please fill in every field.")
        return record
    if "coordinates" in question:
        return [_number(form.get(f"{field}.{i}", "")) for i in range(len(question["coordinates"]))]
    if "options" not in question:
        return _number(form.get(field, ""))
    if question["several"] is not None:
        ticked = [place for place in range(len(question["options"])) if form.get(f"{field}.{place}")]
        if len(ticked) > int(question["several"]):
            raise InvalidInput(f"Please tick at most {question['several']}.")
        return ticked
    return _place(form.get(field, ""))


def _place(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise InvalidInput("Please choose an answer to every question.")
    return int(text[:9])


def _number(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise InvalidInput("Please give a number.")
    return value


def _participant(
    request: Request, study_id: str, token: str | None, form: Mapping[str, str], error: HybridpError | None = None
) -> Response:
    """The page of a study; a form that comes back keeps its report's id, so that it counts once however often sent, and
    does not hold the answer: that is not sent back over the wire for caches and screens to keep."""
    service, address = request.app.state.service, address_of(request)
    task = studies.task_document(service, study_id)
    known, visit = form.get("report_id", ""), None if task["by_invitation"] else _visit(request)
    name = known if _ID.fullmatch(known) else visit or studies.new_report_id()
    if token:
        service.guesses.may_guess(address)
    state = studies.token_state(service, study_id, token)
    if state == "unknown":
        service.guesses.guessed_wrong(address)
    answered = None if visit is None else studies.answered(service, service.view(study_id), name)
    answer = page(
        "participant.html",
        error=error,
        **participant_view(task),
        token=token,
        token_state=state,
        answered=answered is not None,
        may_answer=state == "fine" and answered is None,
        may_mix=state == "fine" and answered in (None, TICKET),
        report_id=name,
        given={name: text for name, text in form.items() if name in ("epsilon", "report_id")},
    )
    if not task["by_invitation"] and visit is None:
        _begin(request, study_id, name, answer)
    if "mixer" in task:
        answer.headers["content-security-policy"] = policy_with(task["mixer"]["url"])
    return answer


_ID = re.compile("[A-Za-z0-9_-]{21}[AQgw]")
_VISIT, _VISIT_LASTS = "hybridp_visit", VISIT_HOURS * 3600


def _visit(request: Request) -> str | None:
    """The random number of an open study's visit, which names its one report; None at its beginning, or long after."""
    name, _, began = request.cookies.get(_VISIT, "").partition(".")
    if not (_ID.fullmatch(name) and began.isascii() and began.isdecimal() and len(began) < 12):
        return None
    return name if 0 <= time.time() - int(began) < _VISIT_LASTS else None


def _begin(request: Request, study_id: str, name: str, answer: Response) -> None:
    """A cookie that ends with the browser, or by its own hour; only this study's pages get it, and no script."""
    value, secure = f"{name}.{int(time.time()) // 3600 * 3600}", request.app.state.service.settings.secure_cookies
    answer.set_cookie(_VISIT, value, path=f"/s/{quote(study_id)}", httponly=True, samesite="lax", secure=secure)


@router.post("/s/{study_id}/visit")
def another_visit(request: Request, service: Here, study_id: str) -> Response:
    """Somebody else at the same device: the next answer is another person's."""
    service.gate.check(address_of(request))
    service.study(study_id)
    answer = see(f"/s/{quote(study_id)}")
    _begin(request, study_id, studies.new_report_id(), answer)
    return answer


@router.get("/s/{study_id}")
def participant_page(request: Request, study_id: str, t: str | None = None) -> Response:
    return _participant(request, study_id, t or None, {})


@router.post("/s/{study_id}")
async def participate(request: Request, service: Here, study_id: str) -> Response:
    """The trusted choice. The report's id came with the form, so that sending the form twice counts once."""
    form = await form_fields(request)
    token = form.get("t") or None
    try:
        try:
            service.gate.check(address_of(request))  # what anyone may send counts as uploads do
            if token:
                service.guesses.may_guess(address_of(request))
            task = await run_in_threadpool(studies.task_document, service, study_id)
            asked = task.get("columns") or task["questions"]  # the store checks the rest
            told = {q["name"]: _given(q, f"answer.{i}", form) for i, q in enumerate(asked)}
            told |= {by["name"]: _place(form.get(f"by.{i}", "")) for i, by in enumerate(task["by"])}
            epsilon = _number(form.get("epsilon", "")) if "choices" in task else None
            report = {"id": form.get("report_id", ""), "time": studies.rounded_now(task), "token": token}
            report |= {"group": "trusted", "epsilon": epsilon, "payload": {"answers": told}}
            for failure in await studies.submit(service, study_id, [report]):
                raise Refused(failure["code"], failure["detail"])
            return see(f"/s/{study_id}/thanks")
        except HybridpError as error:
            if status_of(error) in (429, 503):
                return _again(study_id, form, error)
            return await run_in_threadpool(_participant, request, study_id, token, form, error)
    except SQLAlchemyError as error:
        log_internal(error)
        return _again(study_id, form, Refused("unavailable", "The store does not answer.", retry_after=5))


def _again(study_id: str, form: Mapping[str, str], error: HybridpError) -> Response:
    """The same form once more, made without the store: the id in it makes sure that the answer counts once."""
    own = {} if _ID.fullmatch(form.get("report_id", "")) else {"report_id": studies.new_report_id()}
    return page("retry.html", error=error, action=f"/s/{quote(study_id)}", fields={**form, **own}.items())


@router.get("/s/{study_id}/thanks")
def thanks(service: Here, study_id: str) -> Response:
    task = studies.task_document(service, study_id)
    return page("thanks.html", task=task, say=words.said(task))
