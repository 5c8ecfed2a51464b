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
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from hybridp import __version__
from hybridp.errors import HybridpError, InvalidInput
from hybridp.public.mixing import HEAD, MOST_BATCH, from_text, read_batch, read_head
from hybridp.service import api
from hybridp.service.api import MIXED, UPLOAD, complete
from hybridp.service.core import Service
from hybridp.service.mixed import take_batch
from hybridp.service.problems import MEDIA_TYPE, Refused, log_internal, problem, problem_of, sentence
from hybridp.service.reports import parse_upload
from hybridp.service.settings import Settings
from hybridp.service.studies import submit_reports

__all__ = ["Front", "build_app", "listen", "settle"]

_CODES = {400: "bad-request", 401: "unauthorised", 404: "not-found", 405: "wrong-method", 413: "too-large"}


def build_app(settings: Settings, *, service: Service | None = None, pages: bool = True) -> FastAPI:
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
    app.include_router(api.router)
    _handle_errors(app)
    if pages:
        from hybridp.service import pages as html

        app.include_router(html.router)
        html.install(app)
    _describe(app)
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


def _answer(status: int, body: bytes, wait: int | None = None) -> Response:
    headers = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
    if wait is not None:
        headers["Retry-After"] = str(wait)
    if status == 401:
        headers["WWW-Authenticate"] = "Bearer"
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
        return _answer(422, problem("invalid", sentence(result[0])))

    @app.exception_handler(HTTPException)
    async def plain(_: Request, error: HTTPException) -> Response:
        code = _CODES.get(error.status_code, "bad-request")
        detail = str(error.detail)
        if detail == "There was an error parsing the body":
            detail = "The body must be JSON, with numbers and texts of a moderate size."
        answer = _answer(error.status_code, problem(code, detail, status=error.status_code))
        for name, value in (error.headers or {}).items():
            answer.headers[name] = value
        return answer

    @app.exception_handler(SQLAlchemyError)
    async def store(_: Request, error: SQLAlchemyError) -> Response:
        log_internal(error)
        return _answer(503, problem("unavailable", "The store does not answer."), 5)


def _describe(app: FastAPI) -> None:
    made = app.openapi

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = complete(made())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


# --- uploads, in front of everything else -----------------------------------------------------------------------------

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_SAFE = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_INTERNAL = problem("internal", "Something went wrong here; nothing about it was logged but its kind.")
_ALL_FINE = b'{"failures":[]}'


class Front:
    """Uploads are answered here; everything else is passed on, counted, and held to the limits of size and time."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        self._service = service
        self._held = 0  # bytes of bodies that are still on their way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if path.startswith("/tasks/") and path.count("/") == 3 and path.endswith(("/reports", "/mixed")):
            study_id, _, kind = path[7:].partition("/")
            route, answer = (UPLOAD, self._answer) if kind == "reports" else (MIXED, self._mixed)
            await self._uploads(scope, send, route, lambda: answer(scope, receive, study_id))
        else:
            await self._others(scope, receive, send)

    # --- uploads ------------------------------------------------------------------------------------------------------

    async def _uploads(self, scope: Scope, send: Send, route: str, answer: Callable[[], Awaitable[bytes]]) -> None:
        kind, extra = MEDIA_TYPE.encode(), list[tuple[bytes, bytes]]()
        try:
            if scope["method"] != "POST":
                raise Refused("wrong-method", "Reports and batches are sent with POST.")
            self._pass(scope, 1)
            status, body, kind = 200, await answer(), b"application/json"
        except HybridpError as error:
            status, body, extra = _refused(error)
            self._service.metrics.refused(getattr(error, "code", "invalid"))
        except Exception as error:
            log_internal(error)
            status, body = 500, _INTERNAL
        await _send(send, status, body, extra, kind)
        self._service.metrics.count("hybridp_requests_total", route=route, status=str(status))

    async def _answer(self, scope: Scope, receive: Receive, study_id: str) -> bytes:
        service = self._service
        length, kind = _headers(scope)
        if kind.split(b";")[0].strip().lower() != b"application/json":
            raise Refused("media-type", "The body must be application/json.")
        view = await service.hot_view(study_id)
        body = await self._body(receive, length)
        given = parse_upload(body, service.settings.limits.reports_per_request)
        if len(given) > 1:
            self._pass(scope, len(given) - 1)
        address = (scope.get("client") or ("",))[0]
        if view.study.plan.collection.by_invitation:
            service.guesses.may_guess(address)
        failures = await submit_reports(service, view, given)
        if unknown := sum(failure["code"] == "token-unknown" for failure in failures):
            service.guesses.guessed_wrong(address, unknown)
        return msgspec.json.encode({"failures": failures}) if failures else _ALL_FINE

    async def _mixed(self, scope: Scope, receive: Receive, study_id: str) -> bytes:
        """A batch from the study's mixer, whose signature is looked at before the rest of the body is read."""
        service = self._service
        length, _ = _headers(scope)
        if length is None:
            raise Refused("length-needed", "The body must come with its length.")
        view = await asyncio.to_thread(service.view, study_id)
        mixer = view.study.plan.declared.mixer
        if mixer is None or mixer.key is None:
            raise Refused("no-mixer", "The study has no mixer.")
        key = from_text(mixer.key, 32, "key")
        body, most, seconds = bytearray(), HEAD, 10 * service.settings.limits.body_seconds
        try:
            async with asyncio.timeout(seconds):
                while (message := await receive())["type"] == "http.request":
                    body += message.get("body", b"")
                    if most == HEAD and len(body) >= HEAD:
                        most = HEAD + min(read_head(bytes(body[:HEAD]), study_id, key).bytes, MOST_BATCH)
                    if len(body) > most:
                        raise Refused("too-large", "The batch must be as long as it says.")
                    if not message.get("more_body"):
                        break
        except TimeoutError:
            raise Refused("too-slow", f"The body must come within {seconds:g} seconds.") from None
        batch = await asyncio.to_thread(read_batch, bytes(body), study_id, key)
        return msgspec.json.encode(await asyncio.to_thread(take_batch, service, view, batch))

    def _pass(self, scope: Scope, cost: int) -> None:
        client = scope.get("client")
        self._service.gate.check(client[0] if client else "", cost)

    # --- the rest -----------------------------------------------------------------------------------------------------

    async def _others(self, scope: Scope, receive: Receive, send: Send) -> None:
        status = 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            if scope["method"] in ("POST", "PUT", "PATCH"):
                receive = await self._whole(scope, receive)
            await self._app(scope, receive, watched)
        except Refused as error:
            await _send(watched, *_refused(error))
        except Exception as error:
            # Caught here, so that nobody further out logs a message that may hold data.
            log_internal(error)
            if not status:
                await _send(watched, 500, _INTERNAL)
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._service.metrics.count("hybridp_requests_total", route=str(route), status=str(status))

    async def _whole(self, scope: Scope, receive: Receive) -> Receive:
        """The body, whole, before anybody else sees the request."""
        length, _ = _headers(scope)
        if length is None:
            raise Refused("length-needed", "The body must come with its length.")
        first: list[Message] = [{"type": "http.request", "body": await self._body(receive, length), "more_body": False}]

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
        try:
            async with asyncio.timeout(limits.body_seconds):
                while True:
                    message = await receive()
                    if message["type"] != "http.request":
                        raise Refused("bad-request", "The connection was closed before the body had come.")
                    part: bytes = message.get("body", b"")
                    if size + len(part) > limits.body_bytes:
                        raise Refused("too-large", f"The body must be at most {limits.body_bytes} bytes.")
                    if not message.get("more_body"):
                        return b"".join([*parts, part]) if parts else part
                    parts.append(part)
                    size += len(part)
                    self._held += len(part)
                    # Large bodies give way first, so that single reports are taken as long as possible.
                    if self._held > limits.held_bytes * (1 if size > _SMALL else 2):
                        raise Refused("overloaded", "Too many bodies are on their way: come back later.", retry_after=2)
        except TimeoutError:
            raise Refused("too-slow", f"The body must come within {limits.body_seconds:g} seconds.") from None
        finally:
            self._held -= size


_SMALL = 1 << 16


def _refused(error: HybridpError) -> tuple[int, bytes, list[tuple[bytes, bytes]]]:
    status, body, wait = problem_of(error)
    extra = [] if wait is None else [(b"retry-after", str(wait).encode())]
    if status == 405:
        extra.append((b"allow", b"POST"))
    if status in (408, 413, 503):  # the rest of the body need not come any more
        extra.append((b"connection", b"close"))
    return status, body, extra


async def _send(
    send: Send, status: int, body: bytes, extra: Iterable[tuple[bytes, bytes]] = (), kind: bytes = MEDIA_TYPE.encode()
) -> None:
    headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *extra, *_SAFE]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _headers(scope: Scope) -> tuple[int | None, bytes]:
    length, kind = None, b""
    for name, value in scope["headers"]:
        if name == b"content-length":
            if not value.isdigit() or len(value) > 18:
                raise Refused("bad-request", "The length of the body must be a number.")
            length = int(value)
        elif name == b"content-type":
            kind = value
    return length, kind
