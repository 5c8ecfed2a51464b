"""Settings -> the application that uvicorn, and every test, runs; and the hot path, POST /tasks/{id}/reports, as plain
ASGI in front of everything else.

A report costs one request's parsing, a handful of checks, and its share of a group commit. What is answered with 200 is
durable. No address, token, id or body is written anywhere but into the store; refusals are logged by their kind.

Bodies must come within a time, and what is held of all those that are still on their way is bounded: whoever begins a
thousand bodies and finishes none costs no more memory than that.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hybridp import __version__
from hybridp.errors import HybridpError, InvalidInput
from hybridp.public.mixing import HEAD, MOST_BATCH, from_text, read_batch, read_head
from hybridp.service import api, html, pages, participant
from hybridp.service.api import MIXED, UPLOAD, complete
from hybridp.service.core import Service
from hybridp.service.problems import MEDIA_TYPE, Refused, log_internal, problem, problem_of
from hybridp.service.reports import parse_upload
from hybridp.service.settings import Settings
from hybridp.service.studies import submit_reports, take_batch

__all__ = ["Front", "build_app", "listen", "settle"]

_CODES = {400: "bad-request", 401: "unauthorised", 404: "not-found", 405: "wrong-method", 413: "too-large"}


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
    for one in (api, pages, participant):
        app.include_router(one.router)
    app.mount("/static", StaticFiles(directory=html.HERE / "static"), name="static")
    _handle_errors(app)
    described = app.openapi
    app.openapi = lambda: complete(described())  # type: ignore[method-assign]
    app.add_middleware(Front, service=running)
    return app


@contextmanager
def listen(host: str, port: int) -> Iterator[tuple[socket.socket, str]]:
    """A socket that takes connections from now on, and its address; port 0 is any free one.

    It is open before anybody is told of it: what is told is true, and nobody else can have the port.
    """
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
        due: int | None = None
        with contextlib.suppress(HybridpError, SQLAlchemyError):  # the store is away: the next turn tries again
            due = await asyncio.to_thread(service.delete_due)
        wait = 60.0 if due is None else min(max(due - service.now(), 1), 60)
        await asyncio.sleep(wait)


def settle() -> None:
    """For a process that serves and does nothing else: shorter pauses. Called once, when everything is loaded.

    What was loaded stays for good, so that the collector of cycles need not walk over it again and again; and the
    writer, when a commit is through, gets the interpreter within a millisecond instead of five.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 50, 100)
    sys.setswitchinterval(0.001)


_SAFE = {
    "cache-control": "no-store",
    "x-content-type-options": "nosniff",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
}


def _answer(status: int, body: bytes, wait: int | None = None) -> Response:
    """A problem document."""
    headers = dict(_SAFE)
    if wait is not None:
        headers["retry-after"] = str(wait)
    if status == 401:
        headers["www-authenticate"] = "Bearer"
    if status in (408, 413, 503):  # the rest of the body need not come any more
        headers["connection"] = "close"
    return Response(body, status, headers, media_type=MEDIA_TYPE)


def _handle_errors(app: FastAPI) -> None:
    @app.exception_handler(HybridpError)
    async def ours(_: Request, error: HybridpError) -> Response:
        return _answer(*problem_of(error))

    @app.exception_handler(RequestValidationError)
    async def invalid(_: Request, error: RequestValidationError) -> Response:
        result = error.errors()
        malformed = any(e.get("type") == "json_invalid" for e in result)
        if malformed:
            return _answer(400, problem("malformed", "The body must be JSON."))
        # One of pydantic's findings as one of our sentences, without what was sent.
        name = ".".join(str(part) for part in result[0].get("loc", ()) if part != "body")[:80] or "body"
        return _answer(422, problem("invalid", f"`{name}` must follow its rule: {result[0]['msg']}."))

    @app.exception_handler(HTTPException)
    async def plain(request: Request, error: HTTPException) -> Response:
        if html.for_people(request):
            return html.trouble(error.status_code, f"{error.detail}.")
        code = _CODES.get(error.status_code, "bad-request")
        detail = str(error.detail)
        if detail == "There was an error parsing the body":
            detail = "The body must be JSON, with numbers and texts of a moderate size."
        answer = _answer(error.status_code, problem(code, detail, status=error.status_code))
        answer.headers.update(error.headers or {})
        return answer

    @app.exception_handler(SQLAlchemyError)
    async def store(_: Request, error: SQLAlchemyError) -> Response:
        log_internal(error)
        return _answer(503, problem("unavailable", "The store does not answer."), 5)


# --- uploads, in front of everything else -----------------------------------------------------------------------------

_INTERNAL = problem("internal", "Something went wrong here; nothing about it was logged but its kind.")
_SMALL = 1 << 16


class Front:
    """Uploads are answered here; everything else is passed on, counted, held to the limits of size and time, and sent
    with headers that say what a browser may do."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app = app
        self._service = service
        self._headers = html.safe_headers(https=service.settings.secure_cookies)
        self._held = 0  # bytes of bodies that are still on their way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if path.startswith("/tasks/") and path.count("/") == 3 and path.endswith(("/reports", "/mixed")):
            study_id, _, kind = path[7:].partition("/")
            route, answer = (UPLOAD, self._reports) if kind == "reports" else (MIXED, self._mixed)
            await self._uploads(scope, receive, send, route, lambda: answer(scope, receive, study_id))
        else:
            await self._others(scope, receive, send)

    # --- uploads ------------------------------------------------------------------------------------------------------

    async def _uploads(
        self, scope: Scope, receive: Receive, send: Send, route: str, answer: Callable[[], Awaitable[Any]]
    ) -> None:
        try:
            if scope["method"] != "POST":
                raise Refused("wrong-method", "Reports and batches are sent with POST.")
            self._pass(scope, 1)
            response = Response(msgspec.json.encode(await answer()), 200, _SAFE, media_type="application/json")
        except HybridpError as error:
            response = _answer(*problem_of(error))
            if response.status_code == 405:
                response.headers["allow"] = "POST"
            self._service.metrics.refused(getattr(error, "code", "invalid"))
        except Exception as error:
            log_internal(error)
            response = _answer(500, _INTERNAL)
        await response(scope, receive, send)
        self._service.metrics.count("hybridp_requests_total", route=route, status=str(response.status_code))

    async def _reports(self, scope: Scope, receive: Receive, study_id: str) -> dict[str, Any]:
        service = self._service
        kind = Headers(scope=scope).get("content-type", "")
        if kind.split(";")[0].strip().lower() != "application/json":
            raise Refused("media-type", "The body must be application/json.")
        view = await service.hot_view(study_id)
        body = await self._body(receive, _length(scope))
        given = parse_upload(body, service.settings.limits.reports_per_request)
        if len(given) > 1:
            self._pass(scope, len(given) - 1)
        address = (scope.get("client") or ("",))[0]
        if view.study.plan.collection.by_invitation:
            service.guesses.may_guess(address)
        failures = await submit_reports(service, view, given)
        if unknown := sum(failure["code"] == "token-unknown" for failure in failures):
            service.guesses.guessed_wrong(address, unknown)
        return {"failures": failures}

    async def _mixed(self, scope: Scope, receive: Receive, study_id: str) -> dict[str, int]:
        """A batch from the study's mixer, whose signature is looked at before the rest of the body is read."""
        service = self._service
        _needed_length(scope)
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
                most = HEAD + min(read_head(bytes(body[:HEAD]), study_id, key).bytes, MOST_BATCH)
            if len(body) > most:
                raise Refused("too-large", "The batch must be as long as it says.")

        await _read(receive, 10 * service.settings.limits.body_seconds, take)
        batch = await asyncio.to_thread(read_batch, bytes(body), study_id, key)
        return await asyncio.to_thread(take_batch, service, view, batch)

    def _pass(self, scope: Scope, cost: int) -> None:
        client = scope.get("client")
        self._service.gate.check(client[0] if client else "", cost)

    # --- the rest -----------------------------------------------------------------------------------------------------

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
                receive = await self._whole(scope, receive)
            await self._app(scope, receive, watched)
        except Refused as error:
            await _answer(*problem_of(error))(scope, receive, watched)
        except Exception as error:
            # Caught here, so that nobody further out logs a message that may hold data.
            log_internal(error)
            if not status:
                await _answer(500, _INTERNAL)(scope, receive, watched)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._service.metrics.count("hybridp_requests_total", route=str(route), status=str(status))

    async def _whole(self, scope: Scope, receive: Receive) -> Receive:
        """The body, whole, before anybody else sees the request."""
        body = await self._body(receive, _needed_length(scope))
        first: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

        async def again() -> Message:
            return first.pop() if first else await receive()

        return again

    # --- bodies -------------------------------------------------------------------------------------------------------

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


def _length(scope: Scope) -> int | None:
    stated = Headers(scope=scope).get("content-length")
    if stated is None:
        return None
    if not (stated.isascii() and stated.isdigit() and len(stated) <= 18):
        raise Refused("bad-request", "The length of the body must be a number.")
    return int(stated)


def _needed_length(scope: Scope) -> int:
    length = _length(scope)
    if length is None:
        raise Refused("length-needed", "The body must come with its length.")
    return length
