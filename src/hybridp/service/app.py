"""Settings -> the application that uvicorn, and every test, runs."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import importlib.util
import socket
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException

from hybridp import __version__
from hybridp.errors import HybridpError, InvalidInput
from hybridp.service import api
from hybridp.service.api import complete
from hybridp.service.core import Service
from hybridp.service.problems import MEDIA_TYPE, problem, problem_of, sentence
from hybridp.service.settings import Settings
from hybridp.service.uploads import Front, log_internal

__all__ = ["build_app", "listen", "settle"]

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
    if pages and importlib.util.find_spec("hybridp.service.pages") is not None:
        from hybridp.service import pages as html

        app.include_router(html.router)
        if hasattr(html, "install"):
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
        found = error.errors()
        malformed = any(e.get("type") == "json_invalid" for e in found)
        if malformed:
            return _answer(400, problem("malformed", "The body must be JSON."))
        return _answer(422, problem("invalid", sentence(found[0])))

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
