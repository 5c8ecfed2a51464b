"""What pages are made of: templates, security headers (the browser may load, run, send and frame only what is named),
and charts, which `templates/charts.html` draws.

>>> "<script>" in charts.intervals([("<script>", 1.0, 0.5, 1.5)], "x")
False
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping
from itertools import cycle
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hybridp.errors import HybridpError
from hybridp.release.facts import Facts, cells, heading, is_share, text
from hybridp.release.release import Release
from hybridp.service.problems import log_internal
from hybridp.service.words import TEMPLATES

__all__ = ["HERE", "POLICY", "PageRoute", "SecurityHeaders", "address_of", "charts", "error_rows", "error_unit"]
__all__ += ["for_people", "form_fields", "paced", "page", "policy_with", "see", "shown_release", "slowly", "status_of"]
__all__ += ["trouble", "whatever_is_stored"]

HERE = Path(__file__).parent


def page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(TEMPLATES.get_template(name).render(**values), status_code=status)


def status_of(error: HybridpError) -> int:
    return int(getattr(error, "status", 422))


def trouble(error: HybridpError, back: str | None = None) -> HTMLResponse:
    status = status_of(error)
    title = "There is no such page" if status == 404 else "This did not work"
    answer = page("problem.html", status, title=title, detail=str(error), back=back)
    wait = getattr(error, "retry_after", None)
    if wait is not None:
        answer.headers["retry-after"] = str(wait)
    return answer


class PageRoute(APIRoute):
    """A refusal is a page too, with the way back; who must log in first is sent there."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                return await handle(request)
            except HybridpError as error:
                study, path = request.path_params.get("study_id"), request.url.path
                if path.startswith("/s/"):
                    return trouble(error)
                if status_of(error) == 401 and request.method == "GET":
                    return see("/login")
                back = path if path in ("/login", "/studies/new") else "/"
                known = study and getattr(error, "code", "") != "not-found"
                return trouble(error, f"/studies/{study}" if known else back)

        return answer


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


def for_people(request: Request) -> bool:
    """Whether a page was asked for, and not a document of an interface."""
    return "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(("/api/", "/tasks/"))


def slowly(request: Request) -> None:
    """What anyone may send, without a key, counts for the same limit as uploads."""
    request.app.state.service.gate.check(address_of(request))


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


def policy_with(url: str) -> str:
    """The policy of a page whose script also sends to the server of this address, and to no other.

    >>> policy_with("https://mixer.example/path").split("; ")[4]
    "connect-src 'self' https://mixer.example"
    """
    parts = urlsplit(url)
    return POLICY.replace("connect-src 'self'", f"connect-src 'self' {parts.scheme}://{parts.netloc}")


class SecurityHeaders:
    """ASGI middleware; `https` adds the promise that this host is only ever reached by TLS."""

    def __init__(self, app: ASGIApp, https: bool = False) -> None:
        self.app = app
        self.more = {"strict-transport-security": "max-age=31536000"} if https else {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in {**_ALWAYS, **self.more}.items():
                    headers.setdefault(name, value)  # a page may say which other server its script must reach
                if headers.get("content-type", "").startswith("text/html"):
                    headers["cache-control"] = "no-store"
            await send(message)

        await self.app(scope, receive, with_headers)


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


def _half_width(release: Mapping[str, Any], question: Mapping[str, Any]) -> float | None:
    """The largest of all cells, of columns in half-ranges of each one's bounds; None of what no plan is about."""
    (only, *others) = [(name, key, facts) for name, some in release["questions"].items() for key, facts in some.items()]
    facts = only[2]
    if others or "by" in facts or facts["task"] not in ("mean", "shares", "histogram", "count", "vector-mean"):
        return None
    scales = [float(facts.get("people", 1)) if facts["task"] == "count" else 1.0]
    if facts["task"] == "vector-mean":
        scales = [(high - low) / 2 for low, high in zip(question["lower"], question["upper"], strict=True)]
    return max(cell.width / 2 / scale for cell, scale in zip(cells(*only), cycle(scales), strict=False))


def error_rows(summary: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Half-widths of the interval: as planned, as predicted for the people who came, and of the release."""
    labels = {"planned": "planned", "now_predicted": "predicted for those who came"}
    found = [(label, float(summary[name]["half_width"])) for name, label in labels.items() if summary.get(name)]
    release = summary.get("release")
    actual = _half_width(release, summary["plan"]["questions"][0]) if release else None
    return found if actual is None else [*found, ("the release", actual)]


def error_unit(summary: Mapping[str, Any]) -> str:
    """What the errors are measured in."""
    asked = summary["plan"]["questions"][0]
    units = {"number": asked.get("unit") or "in the unit of the answer", "vector": "in half-ranges of a column"}
    return str(units.get(asked["kind"], "share of people"))


def shown_release(document: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """For the template; `plan` gives the unit."""
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
    what = "share of people" if share else "people" if task == "count" else unit or key.replace("_", " ")
    shown = {"title": "", "headline": heading(question, key, facts), "beside": f"{what}, {level} intervals"}
    rows = [(cell.name or "everyone", cell.estimate, cell.low, cell.high) for cell in every]
    if task == "synthetic-data":
        said = "`hybridp study release STUDY --model FOLDER` fits its rows, for free."
        return shown | {"beside": f"{facts['people']:,} people. {said}", "chart": "", "tables": [], "remarks": []}
    if task == "kmeans":
        rows, what, level = _centres(facts), "people", "95%"
        shown["beside"] = "how many people are near each, with 95% intervals for the noise"
    elif len(every) == 1 and "by" not in facts:
        (cell,) = every
        at, low, high = (text(x, cell.width, share=share) for x in (cell.estimate, cell.low, cell.high))
        shown |= {"headline": f"{at} {unit}".strip(), "beside": f"{level} interval: {low} to {high}"}
        for group, part in (facts.get("groups") or {}).items():
            own, reach = getattr(cell, group), part.get("half_width")
            if own is not None and reach is not None:
                rows.append((f"{group} people ({part['people']:,})", own, own - reach, own + reach))
    known = [(at, x, low, high) for at, x, low, high in rows
             if x is not None and low is not None and high is not None and math.isfinite(low)]  # fmt: skip
    whole = bool(rows) and len(known) == len(rows) and task != "regression"
    chart = charts.intervals(known[:_MOST], f"{what}, with {level} interval") if whole else ""
    return shown | {"chart": chart, "tables": [words, *more], "remarks": words.remarks}


def _centres(facts: Facts) -> list[tuple[str, float | None, float | None, float | None]]:
    """How many people are near each centre, which its coordinates name, with an interval of two deviations."""
    found = []
    for centre, size, error in zip(facts["estimate"], facts["size"], facts["size_error"], strict=True):
        named = ", ".join(f"{column} {x:,.4g}" for column, x in zip(facts["columns"], centre, strict=True))
        reach = math.inf if error is None else 1.96 * error
        found.append((named, size, size - reach, size + reach))
    return found
