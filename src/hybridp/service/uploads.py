"""The hot path: POST /tasks/{id}/reports, as plain ASGI in front of everything else.

A report costs one request's parsing, a handful of checks, and its share of a group commit. What is answered with 200 is
durable. No address, token, id or body is written anywhere but into the store; refusals are logged by their kind.

Bodies must come within a time, and what is held of all those that are still on their way is bounded: whoever begins a
thousand bodies and finishes none costs no more memory than that.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from typing import Any

import msgspec

from hybridp.errors import HybridpError
from hybridp.public.mixing import HEAD, MOST_BATCH, from_text, read_batch, read_head
from hybridp.service.api import MIXED, UPLOAD
from hybridp.service.core import Service
from hybridp.service.mixed import take_batch
from hybridp.service.problems import MEDIA_TYPE, Refused, problem, problem_of
from hybridp.service.reports import parse_upload
from hybridp.service.studies import submit_reports

__all__ = ["Front", "internal_problem", "log_internal"]

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
_ALL_FINE = b'{"failures":[]}'
_log = logging.getLogger("hybridp.service")


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
            status, body = 500, internal_problem()
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
                await _send(watched, 500, internal_problem())
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


def internal_problem() -> bytes:
    return problem("internal", "Something went wrong here; nothing about it was logged but its kind.")


def log_internal(error: BaseException) -> None:
    """The kind of an unexpected error and where it arose: never its message, which may hold data."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace is not None else "?"
    _log.error("unexpected %s at %s", type(error).__name__, where)
