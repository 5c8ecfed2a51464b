"""Settings -> the application that uvicorn, and every test, runs; and the hot path, POST /tasks/{id}/reports, as plain
ASGI in front of everything else.

What is answered with 200 is durable. No address, token, id or body is written anywhere but into the store; refusals are
logged by their kind. Bodies must come within a time, and what is held of all that are on their way is bounded.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hybridp import __version__
from hybridp.errors import BudgetExceeded, HybridpError, InvalidInput
from hybridp.public.mixing import HEAD, MOST_BATCH, from_text, read_batch, read_head
from hybridp.service import api, pages
from hybridp.service.api import MIXED, UPLOAD, complete
from hybridp.service.core import Service
from hybridp.service.formats import Failures, parse_upload
from hybridp.service.problems import MEDIA_TYPE, STATUS, Refused, log_internal
from hybridp.service.settings import Settings
from hybridp.service.studies import submit_reports, take_batch

__all__ = ["Front", "build_app", "listen", "settle"]


def build_app(settings: Settings, *, service: Service | None = None) -> FastAPI:
    """The whole service. It opens its database now and closes it when the server stops."""
    running = Service(settings) if service is None else service

    @asynccontextmanager
    async def life(_: FastAPI) -> AsyncIterator[None]:
        keeper = asyncio.create_task(_keep_promises(running))
        yield
        keeper.cancel()
        running.close()

    # Interactive documentation would load scripts from elsewhere: the description itself is at /openapi.json.
    app = FastAPI(title="hybridp", version=__version__, lifespan=life, docs_url=None, redoc_url=None)
    app.state.service = running
    for one in (api, pages):
        app.include_router(one.router)
    app.mount("/static", StaticFiles(directory=pages.HERE / "static"), name="static")
    for kind in (HybridpError, RequestValidationError, HTTPException, SQLAlchemyError):
        app.add_exception_handler(kind, _refuse)
    described = app.openapi
    app.openapi = lambda: complete(described())  # type: ignore[method-assign]
    app.add_middleware(Front, service=running)
    return app


@contextmanager
def listen(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """A socket that takes connections from now on, and its address; port 0 is any free one."""
    six = ":" in host
    try:
        opened = socket.create_server((host, port), family=socket.AF_INET6 if six else socket.AF_INET)
    except OSError as error:
        rule = "`host` and `port` must be an address of this machine that nothing else uses (port 0: any free one)"
        raise InvalidInput(f"{rule}. Got {host}:{port} ({error.strerror or error}).") from None
    with opened:
        yield opened, f"http://{f'[{host}]' if six else host}:{opened.getsockname()[1]}"


async def _keep_promises(service: Service) -> None:
    """Delete what must be deleted by today, as long as the server runs: at each such moment, and once a minute."""
    while True:
        wait = 60
        with contextlib.suppress(HybridpError, SQLAlchemyError):  # the store is away: the next turn tries again
            if (due := await asyncio.to_thread(service.delete_due)) is not None:
                wait = min(max(due - service.now(), 1), wait)
        await asyncio.sleep(wait)


def settle() -> None:
    """For a process that serves and does nothing else, once everything is loaded: the collector of cycles need not walk
    over it again, and the writer gets the interpreter back within a millisecond."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    sys.setswitchinterval(0.001)


_SAFE = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}
_CODES = {401: "unauthorised", 404: "not-found", 405: "wrong-method", 413: "too-large"}
_SMALL = 1 << 16


def refusal(error: Exception) -> Response:
    """What went wrong as a problem document. Of what nobody expected nothing is told or logged but its kind."""
    code, detail = "internal", "Something went wrong here; nothing about it was logged but its kind."
    headers, wait = {**_SAFE}, None
    match error:
        case Refused():
            code, detail, wait = error.code, str(error), error.retry_after
        case BudgetExceeded():
            code, detail = "budget-exceeded", str(error)
        case InvalidInput():
            code, detail = "invalid", str(error)
        case RequestValidationError():
            first = error.errors()[0]
            code, detail = "malformed", "The body must be JSON."
            if first["type"] != "json_invalid":  # one of pydantic's findings, without what was sent
                name = ".".join(str(part) for part in first["loc"] if part != "body")[:80] or "body"
                code, detail = "invalid", f"`{name}` must follow its rule: {first['msg']}."
        case HTTPException():
            code, detail = _CODES.get(error.status_code, "bad-request"), str(error.detail)
            headers |= error.headers or {}
            if detail == "There was an error parsing the body":
                detail = "The body must be JSON, with numbers and texts of a moderate size."
        case HybridpError():
            code, detail, wait = "unavailable", str(error), 5
        case SQLAlchemyError():
            log_internal(error)
            code, detail, wait = "unavailable", "The store does not answer.", 5
        case _:
            log_internal(error)
    status = getattr(error, "status_code", STATUS[code])
    if wait is not None:
        headers["retry-after"] = str(wait)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status in (408, 413, 503):  # the rest of the body need not come any more
        headers["connection"] = "close"
    said = {"type": f"/problems/{code}", "title": code.replace("-", " ").capitalize(), "status": status}
    said |= {"detail": detail, "code": code}
    return Response(msgspec.json.encode(said), status, headers, media_type=MEDIA_TYPE)


async def _refuse(request: Request, error: Exception) -> Response:
    if isinstance(error, HybridpError) and not getattr(request.scope.get("route"), "include_in_schema", True):
        return pages.refused(request, error)
    people = "text/html" in request.headers.get("accept", "") and not request.url.path.startswith(("/api/", "/tasks/"))
    if isinstance(error, HTTPException) and people:
        return pages.trouble(error.status_code, problem=f"{error.detail}.")
    return refusal(error)


# --- uploads, in front of everything else -----------------------------------------------------------------------------


class Front:
    """Uploads are answered here; everything else is passed on, counted, held to the limits of size and time, and sent
    with headers that say what a browser may do."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._headers = {**pages.SAFE}
        if service.settings.secure_cookies:  # this host is only ever reached by TLS
            self._headers["strict-transport-security"] = "max-age=31536000"
        self._held = 0  # bytes of bodies that are still on their way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope.get("path", "")
        if scope["type"] != "http":
            await self._app(scope, receive, send)
        elif path.startswith("/tasks/") and path.count("/") == 3 and path.endswith(("/reports", "/mixed")):
            await self._uploads(scope, receive, send, *path[7:].split("/"))
        else:
            await self._others(scope, receive, send)

    async def _uploads(self, scope: Scope, receive: Receive, send: Send, study_id: str, kind: str) -> None:
        try:
            if scope["method"] != "POST":
                raise Refused("wrong-method", "Reports and batches are sent with POST.")
            address = (scope.get("client") or ("",))[0]
            self._service.gate.check(address)
            answer = self._reports if kind == "reports" else self._mixed
            told = msgspec.json.encode(await answer(scope, receive, study_id, address))
            response = Response(told, 200, _SAFE, media_type="application/json")
        except Exception as error:
            response = refusal(error)
            if response.status_code == 405:
                response.headers["allow"] = "POST"
            if isinstance(error, HybridpError):
                self._service.metrics.refused(getattr(error, "code", "invalid"))
        await response(scope, receive, send)
        route, status = UPLOAD if kind == "reports" else MIXED, str(response.status_code)
        self._service.metrics.count("hybridp_requests_total", route=route, status=status)

    async def _reports(self, scope: Scope, receive: Receive, study_id: str, address: str) -> Failures:
        service = self._service
        kind = Headers(scope=scope).get("content-type", "")
        if kind.split(";")[0].strip().lower() != "application/json":
            raise Refused("media-type", "The body must be application/json.")
        view = await service.hot_view(study_id)
        body = await self._body(receive, _length(scope))
        given = parse_upload(body, service.settings.limits.reports_per_request)
        if len(given) > 1:
            service.gate.check(address, len(given) - 1)
        if view.study.plan.collection.by_invitation:
            service.guesses.may_guess(address)
        failures = await submit_reports(service, view, given)
        if unknown := sum(failure["code"] == "token-unknown" for failure in failures):
            service.guesses.guessed_wrong(address, unknown)
        return {"failures": failures}

    async def _mixed(self, scope: Scope, receive: Receive, study_id: str, address: str) -> dict[str, int]:
        """A batch from the study's mixer, whose signature is looked at before the rest of the body is read."""
        service = self._service
        _length(scope, needed=True)
        view = await asyncio.to_thread(service.view, study_id)
        mixer = view.study.plan.declared.mixer
        if mixer is None or mixer.key is None:
            raise Refused("no-mixer", "The study has no mixer.")
        key = from_text(mixer.key, 32, "key")
        body, most = bytearray(), HEAD

        def take(part: bytes) -> None:
            nonlocal body, most
            body += part
            if most == HEAD and len(body) >= HEAD:
                head = read_head(bytes(body[:HEAD]), study_id, key)
                most = HEAD + min(head.size * head.people, MOST_BATCH)
            if len(body) > most:
                raise Refused("too-large", "The batch must be as long as it says.")

        await _read(receive, 10 * service.settings.limits.body_seconds, take)
        batch = await asyncio.to_thread(read_batch, bytes(body), study_id, key)
        return await asyncio.to_thread(take_batch, service, view, batch)

    async def _others(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status, headers = message["status"], MutableHeaders(scope=message)
                for name, value in self._headers.items():
                    headers.setdefault(name, value)  # a page may say which other server its script must reach
                if headers.get("content-type", "").startswith("text/html"):
                    headers["cache-control"] = "no-store"
            await send(message)

        try:
            if scope["method"] in ("POST", "PUT", "PATCH"):
                body = await self._body(receive, _length(scope, needed=True))  # whole, before anybody else sees it
                first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]
                rest = receive

                async def receive() -> Message:
                    return first.pop() if first else await rest()

            await self._app(scope, receive, watched)
        except Exception as error:  # caught here, so that nobody further out logs a message that may hold data
            response = refusal(error)
            if not status:
                await response(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._service.metrics.count("hybridp_requests_total", route=str(route), status=str(status))

    async def _body(self, receive: Receive, length: int | None) -> bytes:
        limits = self._service.settings.limits
        if length is not None and length > limits.body_bytes:
            raise Refused("too-large", f"The body must be at most {limits.body_bytes} bytes.")
        parts: list[bytes] = []
        size = 0

        def take(part: bytes) -> None:
            nonlocal size
            parts.append(part)
            size += len(part)
            self._held += len(part)
            if size > limits.body_bytes:
                raise Refused("too-large", f"The body must be at most {limits.body_bytes} bytes.")
            # Large bodies give way first, so that single reports are taken as long as possible.
            if self._held > limits.held_bytes * (1 if size > _SMALL else 2):
                raise Refused("overloaded", "Too many bodies are on their way: come back later.", retry_after=2)

        try:
            await _read(receive, limits.body_seconds, take)
        finally:
            self._held -= size
        return b"".join(parts)


async def _read(receive: Receive, seconds: float, take: Callable[[bytes], None]) -> None:
    """The parts of a body, which must come within a time."""
    try:
        async with asyncio.timeout(seconds):
            more = True
            while more:
                message = await receive()
                if message["type"] != "http.request":
                    raise Refused("bad-request", "The connection was closed before the body had come.")
                take(message.get("body", b""))
                more = message.get("more_body", False)
    except TimeoutError:
        raise Refused("too-slow", f"The body must come within {seconds:g} seconds.") from None


def _length(scope: Scope, *, needed: bool = False) -> int | None:
    stated = Headers(scope=scope).get("content-length")
    if stated is None:
        if needed:
            raise Refused("length-needed", "The body must come with its length.")
        return None
    if not (stated.isascii() and stated.isdigit() and len(stated) <= 18):
        raise Refused("bad-request", "The length of the body must be a number.")
    return int(stated)
