"""Templates, answers as pages, and security headers: the browser may load, run, send and frame only what is named."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from fastapi import Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from fastapi.routing import APIRoute
from jinja2 import Environment, FileSystemLoader, StrictUndefined, select_autoescape
from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hybridp.errors import HybridpError
from hybridp.service import words
from hybridp.service.problems import NoSuchStudy
from hybridp.service.uploads import log_internal

__all__ = ["HERE", "POLICY", "PageRoute", "SecurityHeaders", "address_of", "for_people"]
__all__ += ["form_fields", "paced", "page", "policy_with"]
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
