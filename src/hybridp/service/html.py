"""What pages are made of: templates, security headers (the browser may load, run, send and frame only what is named),
charts, which `templates/charts.html` draws; and the form of a new study, made from the fields that a study declares:
their names, help, choices and defaults.

>>> "<script>" in charts.intervals([("<script>", 1.0, 0.5, 1.5)], "x")
False
>>> [one.name for one in fieldsets("number")[1][1] if one.required]
['question.name', 'question.lower', 'question.upper']
>>> stated = declared_by({"kind": "number", "title": "Sleep", "question.lower": "0", "promise.epsilon": "1"})
>>> stated["promise"], stated["questions"]
({'epsilon': 1.0}, [{'kind': 'number', 'lower': 0.0}])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from hybridp.errors import Declared, Fields, HybridpError, declared, must
from hybridp.public.questions import KINDS as QUESTIONS
from hybridp.public.study import Collection, Declaration, Mixer, People, Promise
from hybridp.release.facts import Facts, heading, is_share
from hybridp.release.release import Release
from hybridp.service.problems import log_internal
from hybridp.service.words import TEMPLATES

__all__ = ["HERE", "KINDS", "POLICY", "address_of", "charts", "declared_by"]
__all__ += ["fieldsets", "form_fields", "paced", "page", "policy_with", "refused"]
__all__ += ["safe_headers", "see", "shown_release", "status_of", "trouble", "whatever_is_stored"]

HERE = Path(__file__).parent


def page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(TEMPLATES.get_template(name).render(**values), status_code=status)


def status_of(error: HybridpError) -> int:
    return int(getattr(error, "status", 422))


def trouble(status: int, detail: str, back: str | None = None, wait: int | None = None) -> HTMLResponse:
    title = "There is no such page" if status == 404 else "This did not work"
    answer = page("problem.html", status, title=title, detail=detail, back=back)
    if wait is not None:
        answer.headers["retry-after"] = str(wait)
    return answer


def refused(request: Request, error: HybridpError) -> Response:
    """A refusal is a page too, with the way back; who must log in first is sent there."""
    study, path = request.path_params.get("study_id"), request.url.path
    if status_of(error) == 401 and request.method == "GET" and not path.startswith("/s/"):
        return see("/login")
    back = path if path in ("/login", "/studies/new") else "/"
    back = f"/studies/{study}" if study and getattr(error, "code", "") != "not-found" else back
    back_to = None if path.startswith("/s/") else back
    return trouble(status_of(error), str(error), back_to, getattr(error, "retry_after", None))


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


def address_of(request: Request) -> str:
    """Where a request comes from; behind a proxy that is trusted, where the proxy says."""
    return request.client.host if request.client else ""


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

_ALWAYS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    # An invitation's code is in the address of the page: no other server may read it there.
    "referrer-policy": "no-referrer",
    "permissions-policy": "camera=(), geolocation=(), microphone=(), payment=(), usb=(), browsing-topics=()",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


def safe_headers(*, https: bool) -> dict[str, str]:
    """What every answer says; `https` adds the promise that this host is only ever reached by TLS."""
    return _ALWAYS | ({"strict-transport-security": "max-age=31536000"} if https else {})


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
_NEEDED = {"title", "asked_by", "collection.purpose", "collection.contact"}
_SUGGESTED = {"question.name": "answer", "collection.by_invitation": "true", "promise.epsilon": "1"}
"""What a new form holds already, beside the declared defaults."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One field as a page shows it; `name` is its place in the declaration. Most studies leave `rare` ones alone."""

    name: str
    label: str
    hint: str
    type: str
    value: str
    required: bool
    choices: tuple[tuple[str, str], ...]
    rare: bool


def _places(kind: str) -> dict[str, type[Fields]]:
    """The tables of a declaration that asks one question of this kind."""
    return {"": Declaration, "question": KINDS[kind], "promise": Promise, "collection": Collection, "people": People,
            "mixer": Mixer}  # fmt: skip


def fieldsets(kind: str) -> list[tuple[str, list[FormField]]]:
    """The form of a kind: the legend of every table of the declaration and its fields, in their order."""
    return [
        (_LEGENDS[place], [_field(one, f"{place}.{one.name}".removeprefix(".")) for one in declared(of)
                           if one.of is None and f"{place}.{one.name}" not in _OF_TABLES])
        for place, of in _places(kind).items()
    ]  # fmt: skip


def _field(one: Declared, name: str) -> FormField:
    mixed = name.startswith("mixer.")  # a study without one leaves all of its fields empty
    value = "" if mixed else _SUGGESTED.get(name, _written(one))
    notes = {"texts": " Separated by commas.", "numbers": " Separated by commas.", "moment": " UTC."}
    hint, choices = one.help + notes.get(one.form, ""), tuple((word, word) for word in one.choices)
    if one.form == "texts" and choices:
        hint, choices = f"{hint} Of {', '.join(one.choices)}.", ()
    if choices and one.optional:
        choices = (("", "the default"), *choices)
    if one.form == "yes/no":
        choices = (("true", "yes"), ("false", "no"))
    kind = {"whole": "number", "moment": "datetime-local"}.get(one.form, "text")
    rare = mixed or (name.startswith("question.") and not one.shown and one.name not in ("text", "unit"))
    needed = name in _NEEDED or (one.required and not mixed)
    return FormField(name, one.name.replace("_", " ").capitalize(), hint, kind, value, needed, choices, rare)


def _written(one: Declared) -> str:
    if one.default is None or one.default == ():
        return ""
    if isinstance(one.default, bool):
        return str(one.default).lower()
    if isinstance(one.default, tuple):
        return ", ".join(map(str, one.default))
    return f"{one.default:g}" if isinstance(one.default, float) else str(one.default)


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
