"""What pages are made of: templates, security headers (the browser may load, run, send and frame only what is named),
charts, which `templates/charts.html` draws; and the form of a new study, made from the fields that a study declares:
their names, help, choices and defaults.

>>> "<script>" in charts.intervals([("<script>", 1.0, 0.5, 1.5)], "x")
False
>>> [one.name for one in fieldsets("mean")[1][1]][:3]
['question.lower', 'question.upper', 'question.sd']
>>> stated = declared_by({"kind": "mean", "title": "Sleep", "question.lower": "0", "promise.epsilon": "1"})
>>> stated["promise"], stated["questions"]
({'epsilon': 1.0}, [{'kind': 'number', 'lower': 0.0}])
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from hybridp.errors import HybridpError, must
from hybridp.public.fields import Declared, Fields, declared
from hybridp.public.study import KINDS as QUESTIONS
from hybridp.public.study import Collection, Declaration, Mixer, People, Promise
from hybridp.public.study.basics import GROUPED
from hybridp.release.facts import Facts, heading, is_share
from hybridp.release.release import Release
from hybridp.service.problems import log_internal
from hybridp.service.words import TEMPLATES

__all__ = ["HERE", "KINDS", "NAMES", "POLICY", "address_of", "charts", "declared_by"]
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

_RANGE = ("lower", "upper", "sd", "step")
_KEPT = ("min_batch", "releases", "delete_raw_after_release", "delete_by")
_WHEN = ("by_invitation", "opens", "closes", "time_precision")
_MIXER = ("batch", "url", "run_by", "key", "delta", "epsilon", "cap")
_OF_TABLES = {"column", "report", "missing", "weight", "publish", "clipped_share", "guessed"}
"""Fields of questions that a page has no use for."""
_NEEDED = {"title", "asked_by", "collection.purpose", "collection.contact", "promise.epsilon",
           "promise.allowed_epsilons", "question.options"}  # fmt: skip
_SUGGESTED = {"question.name": "answer", "collection.by_invitation": "true", "question.least": "",
              "promise.epsilon": "1"}  # fmt: skip
"""What a new form holds already, beside the declared defaults and what its kind suggests."""


class _Form(NamedTuple):
    """What a form of this kind asks for first, and what it holds already."""

    name: str
    question: str
    collected: tuple[str, ...]
    suggested: Mapping[str, str] = MappingProxyType({})
    promised: tuple[str, ...] = ("epsilon", "delta", "trusted_epsilon")
    counted: tuple[str, ...] = ()
    """Where questions follow from how many people are expected: the groups that must be stated."""
    mixes: bool = False


_FORMS = {
    "mean": _Form("Mean of a number", "number", _RANGE, {"question.lower": "0"}, mixes=True),
    "number": _Form("Statistics of a number", "number", ("lower", "upper", "statistics", "at", "below", "above",
                    "edges", "form", "step"), {"question.lower": "0", "question.statistics": "mean, quantiles",
                                               "question.at": "0.25, 0.5, 0.75"}),
    "choice": _Form("Choice among options", "choice", ("options", "several", "other"), mixes=True),
    "count": _Form("Count", "count", ("value",), {"question.value": "yes"}),
    "personal-mean": _Form("Mean, everyone their own ε", "number", _RANGE,
                           {"question.lower": "0", "promise.allowed_epsilons": "0.2, 0.5, 1, 2"},
                           promised=("allowed_epsilons",)),
    "vector-mean": _Form("Mean of several numbers", "vector", ("columns", "lower", "upper"), {"question.lower": "0"}),
    "heavy-hitters": _Form("Heavy hitters", "records", ("columns", "head"),
                           {"question.columns": "query, url", "promise.epsilon": "4", "promise.delta": "1e-6"}),
    "regression": _Form("Regression", "regression", ("target", "on", "lower", "upper", "model"), counted=("local",)),
    "points": _Form("Centres of K groups", "points", ("columns", "lower", "upper", "clusters"),
                    {"question.columns": "x, y", "promise.epsilon": "2"}, counted=("trusted", "local")),
}  # fmt: skip
NAMES = {kind: form.name for kind, form in _FORMS.items()}
KINDS = {kind: QUESTIONS[form.question] for kind, form in _FORMS.items()}
"""What a page collects that a form can state, and the question that asks for it. A table is stated in a study file."""


@dataclass(frozen=True, slots=True)
class FormField:
    """One field as a page shows it; `name` is its place in the declaration."""

    name: str
    label: str
    hint: str
    type: str
    value: str
    required: bool
    choices: tuple[tuple[str, str], ...]


def fieldsets(kind: str) -> list[tuple[str, list[FormField]]]:
    """The form of a kind: a legend and its fields, in order; the last set holds what most studies leave alone."""
    question, form = KINDS[kind], _FORMS[kind]
    grouped = [one.name for one in declared(question) if one.name in GROUPED]
    shown = {"name", "text", "unit", *form.collected, *grouped} | _OF_TABLES
    shown |= set() if kind == "number" else {"statistics"}
    rest = [one.name for one in declared(question) if one.name not in shown]

    def fields(of: type[Fields], where: str, *names: str) -> list[FormField]:
        known = {one.name: one for one in declared(of)}
        return [_field(form, known[name], where) for name in names]

    asked, collection = partial(fields, question, "question."), partial(fields, Collection, "collection.")
    result = [
        ("What participants read", [*fields(Declaration, "", "title", "asked_by"), *collection("purpose", "contact"),
                                    *asked("text", "unit")]),
        ("What is collected", asked(*form.collected, "name")),
        ("What is promised", [*fields(Promise, "promise.", *form.promised), *collection(*_KEPT)]),
        ("Who, and when", [*collection(*_WHEN), *fields(People, "people.", "trusted", "local")]),
    ]  # fmt: skip
    if grouped:
        result.append(("By group, if the answer is told so", asked(*grouped)))
    if form.mixes:
        mixer = [replace(one, required=False, value="") for one in fields(Mixer, "mixer.", *_MIXER)]
        result.append(("A mixer between, if there is one", [*mixer, *fields(People, "people.", "shuffled")]))
    return [*result, ("How the estimate is made", [*asked(*rest), *fields(Declaration, "", "level")])]


def _field(form: _Form, one: Declared, where: str) -> FormField:
    name = f"{where}{one.name}"
    value = form.suggested.get(name, _SUGGESTED.get(name, _written(one)))
    needed = one.required or name in _NEEDED or (where == "people." and one.name in form.counted)
    hint = one.help + {"texts": " Separated by commas.", "numbers": " Separated by commas.", "moment": " UTC."}.get(
        one.form, ""
    )
    choices = () if one.form == "texts" else tuple((word, word) for word in one.choices)
    if choices and one.optional:
        choices = (("", "the default"), *choices)
    if one.form == "yes/no":
        choices = (("true", "yes"), ("false", "no"))
    if one.form == "texts" and one.choices:
        hint += f" Of {', '.join(one.choices)}."
    kind = {"whole": "number", "moment": "datetime-local"}.get(one.form, "text")
    return FormField(name, one.name.replace("_", " ").capitalize(), hint, kind, value, needed, choices)


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
    kind = form.get("kind", "mean")
    must(kind in KINDS, "kind", f"must be one of {', '.join(KINDS)}", "another")
    places: dict[str, type[Fields]] = {"": Declaration, "promise": Promise, "collection": Collection, "people": People,
                                       "mixer": Mixer, "question": KINDS[kind]}  # fmt: skip
    result: dict[str, dict[str, Any]] = {"": {}, "question": {"kind": KINDS[kind].kind}}
    for name, given in form.items():
        place, _, field = name.rpartition(".")
        if name not in ("kind", "form_token") and given.strip():
            known = {one.name: one.form for one in declared(places[place])} if place in places else {}
            result.setdefault(place, {})[field] = _read(known.get(field, "text"), given.strip())
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
