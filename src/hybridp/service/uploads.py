"""The hot path: POST /tasks/{id}/reports, as plain ASGI in front of everything else.

A report costs one request's parsing, a handful of checks, and its share of a group commit. What is answered with 200 is
durable. No address, token, id or body is written anywhere but into the store.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

import msgspec

from hybridp.errors import HybridpError
from hybridp.service.core import Service
from hybridp.service.problems import MEDIA_TYPE, Refused, problem, problem_of
from hybridp.service.reports import PAYLOADS, Upload, parse_upload
from hybridp.service.studies import submit_reports

__all__ = ["Front", "describe_upload"]

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

ROUTE = "/tasks/{id}/reports"
_SAFE = (
    (b"cache-control", b"no-store"),
    (b"x-content-type-options", b"nosniff"),
    (b"content-security-policy", b"default-src 'none'; frame-ancestors 'none'"),
)
_ALL_FINE = b'{"failures":[]}'
_log = logging.getLogger("hybridp.service")


class Front:
    """Uploads are answered here; everything else is passed on, counted, and held to the size limit."""

    def __init__(self, app: App, service: Service) -> None:
        self._app = app
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        path: str = scope["path"]
        if path.startswith("/tasks/") and path.endswith("/reports") and path.count("/") == 3:
            await self._uploads(scope, receive, send, path[7:-8])
        else:
            await self._others(scope, receive, send)

    # --- uploads ------------------------------------------------------------------------------------------------------

    async def _uploads(self, scope: Scope, receive: Receive, send: Send, study_id: str) -> None:
        extra: list[tuple[bytes, bytes]] = []
        kind = b"application/json"
        try:
            status, body = 200, await self._answer(scope, receive, study_id)
        except HybridpError as error:
            status, body, wait = problem_of(error)
            kind = MEDIA_TYPE.encode()
            if wait is not None:
                extra.append((b"retry-after", str(wait).encode()))
            if status == 405:
                extra.append((b"allow", b"POST"))
        except Exception as error:
            log_internal(error)
            status, body, kind = 500, internal_problem(), MEDIA_TYPE.encode()
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), *extra, *_SAFE]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})
        self._service.metrics.count("hybridp_requests_total", route=ROUTE, status=str(status))

    async def _answer(self, scope: Scope, receive: Receive, study_id: str) -> bytes:
        service = self._service
        if scope["method"] != "POST":
            raise Refused("wrong-method", "Reports are sent with POST.")
        self._pass(scope, 1)
        length, kind = _headers(scope)
        if kind.split(b";")[0].strip().lower() != b"application/json":
            raise Refused("media-type", "The body must be application/json.")
        view = service.kept_view(study_id)
        if view is None:
            view = await asyncio.to_thread(service.fresh_view, study_id)
        body = await _body(receive, length, service.settings.limits.body_bytes)
        given = parse_upload(body, service.settings.limits.reports_per_request)
        if len(given) > 1:
            self._pass(scope, len(given) - 1)
        failures = await submit_reports(service, view, given)
        return msgspec.json.encode({"failures": failures}) if failures else _ALL_FINE

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
            refused = self._too_large(scope)
            if refused is None:
                await self._app(scope, receive, watched)
            else:
                await _problem(watched, *problem_of(refused)[:2])
        except Exception as error:
            # Caught here, so that nobody further out logs a message that may hold data.
            log_internal(error)
            if not status:
                await _problem(watched, 500, internal_problem())
        finally:
            route = getattr(scope.get("route"), "path", "other")
            self._service.metrics.count("hybridp_requests_total", route=str(route), status=str(status))

    def _too_large(self, scope: Scope) -> Refused | None:
        if scope["method"] not in ("POST", "PUT", "PATCH"):
            return None
        try:
            length, _ = _headers(scope)
        except Refused as refused:
            return refused
        if length is None:
            return Refused("length-needed", "The body must come with its length.")
        if length > self._service.settings.limits.body_bytes:
            return Refused("too-large", f"The body must be at most {self._service.settings.limits.body_bytes} bytes.")
        return None


async def _problem(send: Send, status: int, body: bytes) -> None:
    headers = [(b"content-type", MEDIA_TYPE.encode()), (b"content-length", str(len(body)).encode()), *_SAFE]
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


async def _body(receive: Receive, length: int | None, most: int) -> bytes:
    if length is not None and length > most:
        raise Refused("too-large", f"The body must be at most {most} bytes.")
    message = await receive()
    body: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body"):
        if len(body) > most:
            raise Refused("too-large", f"The body must be at most {most} bytes.")
        return body
    parts = [body]
    size = len(body)
    while message["type"] == "http.request" and message.get("more_body"):
        message = await receive()
        parts.append(message.get("body", b""))
        size += len(parts[-1])
        if size > most:
            raise Refused("too-large", f"The body must be at most {most} bytes.")
    if message["type"] != "http.request":
        raise Refused("bad-request", "The connection was closed before the body had come.")
    return b"".join(parts)


# --- its description --------------------------------------------------------------------------------------------------


def describe_upload(document: dict[str, Any]) -> dict[str, Any]:
    """The OpenAPI document with the upload in it, from the very types that parse it."""
    template = "#/components/schemas/{name}"
    _, parts = msgspec.json.schema_components([Upload, *PAYLOADS], ref_template=template)
    names = [template.format(name=kind.__name__) for kind in PAYLOADS]
    parts["Report"]["properties"]["payload"] = {"anyOf": [{"$ref": name} for name in names]}
    parts["Report"]["properties"]["id"] |= {"pattern": "^[A-Za-z0-9_-]{21}[AQgw]$"}
    failure = {
        "type": "object",
        "required": ["id", "code", "status", "detail"],
        "properties": {
            "id": {"type": "string"},
            "code": {"type": "string"},
            "status": {"type": "integer", "minimum": 400, "maximum": 499},
            "detail": {"type": "string"},
        },
    }
    parts["Failures"] = {
        "type": "object",
        "required": ["failures"],
        "properties": {"failures": {"type": "array", "items": failure}},
    }
    text = {"type": "string"}
    parts["Problem"] = {
        "type": "object",
        "description": "RFC 9457",
        "required": ["type", "title", "status", "detail", "code"],
        "properties": {"type": text, "title": text, "status": {"type": "integer"}, "detail": text, "code": text},
    }
    document.setdefault("components", {}).setdefault("schemas", {}).update(parts)
    refused = {"content": {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/Problem"}}}}
    answers: dict[str, Any] = {
        "200": {
            "description": "Everything that is not listed is stored, durably. Sending it again changes nothing.",
            "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Failures"}}},
        }
    }
    for status, text_ in (("400", "No such JSON"), ("404", "No such study"), ("409", "The study has not opened"),
                          ("413", "Too large"), ("415", "Not JSON"), ("429", "Too fast: see Retry-After"),
                          ("503", "Nothing of it is stored: send it again")):  # fmt: skip
        answers[status] = {"description": text_, **refused}
    place = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    document["paths"][ROUTE] = {
        "post": {
            "summary": "Send one or many reports",
            "operationId": "upload_reports",
            "tags": ["participants"],
            "parameters": [place],
            "requestBody": {
                "required": True,
                "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Upload"}}},
            },
            "responses": answers,
        }
    }
    return document


def internal_problem() -> bytes:
    return problem("internal", "Something went wrong here; nothing about it was logged but its kind.")


def log_internal(error: BaseException) -> None:
    """The kind of an unexpected error and where it arose: never its message, which may hold data."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f"{trace.tb_frame.f_code.co_qualname}:{trace.tb_lineno}" if trace is not None else "?"
    _log.error("unexpected %s at %s", type(error).__name__, where)
