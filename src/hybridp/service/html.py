"""What pages are made of: templates, security headers (the browser may load, run, send and frame only what is named),
and charts as SVG made on the server: no script, no inline style, colours by class, words for those who cannot see them.

Every chart is 320 units wide, so that its text stays readable on a phone; the stylesheet says how wide it is shown.

>>> str(dots(27, "27 of 100")).count("<circle")
100
>>> "<script>" in intervals([("<script>", 1.0, 0.5, 1.5)], "x")
False
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from markupsafe import Markup, escape
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hybridp.errors import HybridpError
from hybridp.release.facts import Facts, cells, heading, is_share, text
from hybridp.release.release import Release
from hybridp.service import words
from hybridp.service.problems import NoSuchStudy, log_internal

__all__ = ["HERE", "POLICY", "PageRoute", "SecurityHeaders", "address_of", "for_people"]
__all__ += ["form_fields", "paced", "page", "policy_with"]
__all__ += ["bars", "dots", "error_rows", "error_unit", "intervals", "participation", "shown_release"]
__all__ += ["see", "slowly", "status_of", "trouble", "whatever_is_stored"]


HERE = Path(__file__).parent


_environment = Environment(
    loader=FileSystemLoader(HERE / "templates"),
    autoescape=select_autoescape(default=True, default_for_string=True),
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    auto_reload=False,  # a running server serves the pages that it started with
)
_environment.filters["moment"] = words.when
_environment.filters["number"] = words.number
_environment.filters["figure"] = lambda x, none="": none if x is None else f"{x:g}" if isinstance(x, float | int) else x
_environment.filters["plain"] = lambda x: f"{x:.15g}"


def page(name: str, status: int = 200, **values: Any) -> HTMLResponse:
    return HTMLResponse(_environment.get_template(name).render(**values), status_code=status)


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
                return trouble(error, f"/studies/{study}" if study and not isinstance(error, NoSuchStudy) else back)

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

WIDTH = 320


def _svg(height: float, title: str, body: str, kind: str) -> Markup:
    head = f'<svg class="chart {kind}" viewBox="0 0 {WIDTH} {height:g}" role="img" aria-label="{escape(title)}">'
    return Markup(f"{head}{body}</svg>")


def _text(x: float, y: float, words: object, kind: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{anchor}">{escape(words)}</text>'


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{kind}"/>'


def _rect(x: float, y: float, width: float, height: float, kind: str, title: str = "") -> str:
    inside = f"<title>{escape(title)}</title>" if title else ""
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0.5):.1f}" height="{height:.1f}" class="{kind}">'
        f"{inside}</rect>"
    )


def _number(x: float) -> str:
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


def _moment(seconds: float, span: float) -> str:
    form = "%H:%M" if span < 86_400 else "%d %b" if span < 200 * 86_400 else "%b %Y"
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def participation(bins: Sequence[dict[str, Any]], width: float) -> Markup:
    """How many people took part in each stretch of time, one panel a group with its own scale; times are UTC."""
    if not bins:
        return _svg(60, "Nobody has taken part yet", _text(WIDTH / 2, 34, "Nobody yet", "quiet", "middle"), "time")
    left, right, panel, gap, bottom = 38.0, 6.0, 70.0, 24.0, 20.0
    start, stop = float(bins[0]["start"]), float(bins[-1]["start"]) + width
    stop = max(stop, start + 12 * width)  # a lone bin would fill the picture
    groups = ("trusted", "local", "shuffled")[: 3 if any(b.get("shuffled") for b in bins) else 2]
    plot, height = WIDTH - left - right, len(groups) * (panel + gap) + bottom

    def x(t: float) -> float:
        return left + plot * (t - start) / (stop - start)

    body, said = [], []
    for place, group in enumerate(groups):
        foot = (place + 1) * (panel + gap)
        people, most = sum(b.get(group, 0) for b in bins), max(1, *(b.get(group, 0) for b in bins))
        said.append(f"{people:,} {group}")
        body += [_rect(left, foot - panel - 15, 9, 9, group), _text(left + 14, foot - panel - 6, said[-1])]
        for tick in (t for t in _ticks(0, most, 2) if t == round(t)):
            y = foot - panel * tick / most
            body += [_line(left, y, WIDTH - right, y, "grid"), _text(left - 5, y + 4, _number(tick), "quiet", "end")]
        for b in bins:
            if b.get(group):
                begin, end = x(b["start"]), x(b["start"] + width)
                tall = panel * b[group] / most
                when = datetime.fromtimestamp(b["start"], UTC).strftime("%d %b %Y %H:%M UTC")
                told = f"{when}: {b[group]:,} {group}"
                body.append(_rect(begin, foot - tall, max(end - begin - 0.6, 1), tall, group, told))
    for share, anchor in ((0.0, "start"), (0.5, "middle"), (1.0, "end")):
        moment = start + share * (stop - start)
        body.append(_text(left + plot * share, height - 4, _moment(moment, stop - start), "quiet", anchor))
    return _svg(height, f"Participation over time: {' and '.join(said)} people", "".join(body), "time")


def intervals(rows: Sequence[tuple[str, float, float, float]], label: str) -> Markup:
    """Estimates (name, value, low, high) as dots on their intervals, one below the other."""
    row, top, bottom = 38.0, 6.0, 40.0
    height = top + row * len(rows) + bottom
    low, high = min(r[2] for r in rows), max(r[3] for r in rows)
    reach = (high - low) or max(abs(high), 1.0)
    low, high = low - 0.08 * reach, high + 0.08 * reach
    left, plot = 14.0, WIDTH - 28.0

    def x(value: float) -> float:
        return left + plot * (value - low) / (high - low)

    body = []
    for tick in _ticks(low, high, 4):
        body.append(_line(x(tick), top, x(tick), height - bottom, "grid"))
        body.append(_text(x(tick), height - bottom + 15, _number(tick), "quiet", "middle"))
    for i, (name, value, least, most) in enumerate(rows):
        y = top + row * i + 26
        kind = "main" if i == 0 else "other"
        body.append(_text(left, y - 12, name))
        body.append(_line(x(least), y, x(most), y, f"reach {kind}"))
        body.append(f'<circle cx="{x(value):.1f}" cy="{y:.1f}" r="4.5" class="{kind}"/>')
    body.append(_text(WIDTH / 2, height - 6, label, "quiet", "middle"))
    said = "; ".join(f"{name}: {_number(v)}, from {_number(a)} to {_number(b)}" for name, v, a, b in rows)
    return _svg(height, f"{label}. {said}", "".join(body), "reaches")


def bars(rows: Sequence[tuple[str, float]], label: str) -> Markup:
    """Named sizes (all at least 0) as horizontal bars with their numbers."""
    row, top, bottom = 40.0, 2.0, 22.0
    height = top + row * len(rows) + bottom
    most = max((size for _, size in rows), default=0.0) or 1.0
    body = []
    for i, (name, size) in enumerate(rows):
        y = top + row * i
        body.append(_text(4, y + 12, name))
        body.append(_rect(4, y + 17, 220 * size / most, 14, f"bar-{i}"))
        body.append(_text(4 + 220 * size / most + 6, y + 28.5, _number(size), "quiet"))
    body.append(_text(4, height - 6, label, "quiet"))
    said = "; ".join(f"{name}: {_number(size)}" for name, size in rows)
    return _svg(height, f"{label}. {said}", "".join(body), "sizes")


def dots(filled: int, title: str, kind: str = "") -> Markup:
    """A hundred people as dots, `filled` of them marked."""
    body = [
        f'<circle cx="{8 + 14 * (i % 20)}" cy="{8 + 14 * (i // 20)}" r="5" class="{"on" if i < filled else "off"}"/>'
        for i in range(100)
    ]
    head = f'<svg class="dots {escape(kind)}" viewBox="0 0 282 72" role="img" aria-label="{escape(title)}">'
    return Markup(head + "".join(body) + "</svg>")


# --- a release on its study's page ------------------------------------------------------------------------------------

_MOST = 15  # records in the chart


def _half_width(release: Mapping[str, Any], question: Mapping[str, Any]) -> float | None:
    """Of several columns the root mean square, in half-ranges of each one's bounds."""
    every = [(name, key, told) for name, facts in release["questions"].items() for key, told in facts.items()]
    told = every[0][2]
    if len(every) > 1 or told["task"] in ("heavy-hitters", "regression", "kmeans") or "by" in told:
        return None
    low, high = told["interval"]
    if told["task"] in ("shares", "histogram", "count"):
        return max(cell.width for cell in cells(*every[0])) / 2 / float(told.get("people", 1))
    if told["task"] == "mean":
        return float(high - low) / 2
    if told["task"] != "vector-mean":  # a sum or a curve: nothing was planned that it could be compared with
        return None
    sides = zip(low, high, question["lower"], question["upper"], strict=True)
    wide = [(b - a) / (upper - lower) for a, b, lower, upper in sides]
    return math.sqrt(math.fsum(w * w for w in wide) / len(wide))


def error_rows(summary: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Half-widths of the interval: as planned, as predicted for the people who came, and of the release."""
    found: list[tuple[str, float]] = []
    for name, label in (("planned", "planned"), ("now_predicted", "predicted for those who came")):
        if summary.get(name):
            found.append((label, float(summary[name]["half_width"])))
    release = summary.get("release")
    actual = _half_width(release, summary["plan"]["questions"][0]) if release else None
    if actual is not None:
        found.append(("the release", actual))
    return found


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
    chart = intervals(known[:_MOST], f"{what}, with {level} interval") if whole else ""
    return shown | {"chart": chart, "tables": [words, *more], "remarks": words.remarks}


def _centres(facts: Facts) -> list[tuple[str, float | None, float | None, float | None]]:
    """How many people are near each centre, which its coordinates name, with an interval of two deviations."""
    found = []
    for centre, size, error in zip(facts["estimate"], facts["size"], facts["size_error"], strict=True):
        named = ", ".join(f"{column} {x:,.4g}" for column, x in zip(facts["columns"], centre, strict=True))
        reach = math.inf if error is None else 1.96 * error
        found.append((named, size, size - reach, size + reach))
    return found
