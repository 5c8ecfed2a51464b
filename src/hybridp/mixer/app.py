"""The mixer's web application: POST /mix/{study} with a ticket and a sealed report, and nothing else that matters.

Whoever sends is answered when the report is durable. No address, ticket or report is logged.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import queue
import threading
from collections.abc import AsyncIterator, Callable
from concurrent.futures import Future

import msgspec
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as Path

from hybridp.errors import HybridpError, InvalidInput
from hybridp.mixer.send import Sender
from hybridp.mixer.store import Route, Store, Ticketed
from hybridp.public.mixing import OVERHEAD, Signer, check_ticket, from_text, text

__all__ = ["build_app"]

_MOST = 1 << 16
_TOGETHER = 2000
_SAFE = {"cache-control": "no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


class _Sent(msgspec.Struct, forbid_unknown_fields=True):
    ticket: str
    sealed: str


_decoder = msgspec.json.Decoder(_Sent)


class Writer:
    """One thread that writes; what comes while it writes shares the next commit."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._queue: queue.Queue[tuple[Ticketed, Future[bool]] | None] = queue.Queue(50_000)
        self._thread = threading.Thread(target=self._run, name="hybridp-mixer-writer", daemon=True)
        self._thread.start()

    async def take(self, given: Ticketed) -> bool:
        """Whether the report is held, durably; False where the study takes no more."""
        done: Future[bool] = Future()
        try:
            self._queue.put_nowait((given, done))
        except queue.Full:
            raise HybridpError("Too many reports are waiting to be stored: come back later.") from None
        return await asyncio.wrap_future(done)

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join(timeout=30)

    def _run(self) -> None:
        while True:
            some = [self._queue.get()]
            with contextlib.suppress(queue.Empty):
                while len(some) < _TOGETHER:
                    some.append(self._queue.get_nowait())
            waiting = [one for one in some if one is not None]
            if waiting:
                self._commit(waiting)
            if len(waiting) < len(some):
                return

    def _commit(self, waiting: list[tuple[Ticketed, Future[bool]]]) -> None:
        try:
            held = self._store.take([given for given, _ in waiting])
        except Exception as error:
            failed = HybridpError(f"The store did not answer ({type(error).__name__}): send the report again.")
            for _, done in waiting:
                done.set_exception(failed)
        else:
            for (_, done), here in zip(waiting, held, strict=True):
                done.set_result(here)


class Mixer:
    """Everything that a request needs."""

    def __init__(self, store: Store, signer: Signer) -> None:
        self.store = store
        self.signer = signer
        self.writer = Writer(store)
        self.sender = Sender(store, signer)
        self._routes: dict[str, Route] = {}

    async def route(self, study: str) -> Route | None:
        if study not in self._routes:
            self._routes = {route.study: route for route in await asyncio.to_thread(self.store.routes)}
        return self._routes.get(study)

    def forget(self) -> None:
        self._routes = {}


def build_app(store: Store, signer: Signer, wait: Callable[[str], float] = lambda address: 0.0) -> Starlette:
    """The application; its sender runs as long as it does.

    `wait` says for how many seconds an address must still wait before it may send: it keeps none, and logs none.
    """
    mixer = Mixer(store, signer)

    @contextlib.asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        mixer.sender.start()
        keeper = asyncio.create_task(_look_again(mixer))
        yield
        keeper.cancel()
        mixer.sender.stop()
        mixer.writer.close()

    async def about(request: Request) -> Response:
        """What the mixer promises, and was told when it joined: public, and what devices hold the collector to."""
        route = await mixer.route(request.path_params["study"])
        if route is None:
            return _problem(404, "This mixer does not know the study.")
        stated = {"study": route.study, "batch": route.batch, "key": text(signer.public), "state": route.state}
        stated["report_key"] = text(route.report_key)
        return JSONResponse(stated, headers=_allowed(route))

    async def mix(request: Request) -> Response:
        route = await mixer.route(request.path_params["study"])
        if route is None:
            return _problem(404, "This mixer does not know the study.")
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=_allowed(route))
        if seconds := math.ceil(wait(request.client.host if request.client else "")):
            return _problem(429, f"Too many at once: come back in {seconds} s.", route, seconds)
        try:
            body = await _body(request)
            given = _decoder.decode(body)
            sealed = from_text(given.sealed, route.size + OVERHEAD, "sealed")
            nonce = check_ticket(given.ticket, route.ticket_key, route.study)
        except (InvalidInput, msgspec.DecodeError, UnicodeDecodeError) as error:
            return _problem(422, str(error), route)
        try:
            if not await mixer.writer.take(Ticketed(route.study, nonce, sealed)):
                return _problem(409, "The study takes no more reports.", route)
        except HybridpError as error:
            return _problem(503, str(error), route)
        return JSONResponse({"held": True}, headers=_allowed(route))

    paths = [
        Path("/mix/{study}", about, methods=["GET"]),
        Path("/mix/{study}", mix, methods=["POST", "OPTIONS"]),
        Path("/health", lambda _: JSONResponse({"status": "ok"}), methods=["GET"]),
    ]
    return Starlette(routes=paths, lifespan=life)


async def _look_again(mixer: Mixer) -> None:
    """Studies are joined and closed by other processes."""
    while True:
        await asyncio.sleep(1)
        mixer.forget()


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        if len(body) > _MOST:
            raise InvalidInput(f"`body` must be at most {_MOST} bytes. Got more.")
    return body


def _allowed(route: Route) -> dict[str, str]:
    """The study's own page, and no other, may send from a browser."""
    return {
        **_SAFE,
        "access-control-allow-origin": route.origin,
        "access-control-allow-headers": "content-type",
        "access-control-allow-methods": "GET, POST",
        "vary": "origin",
    }


def _problem(status: int, detail: str, route: Route | None = None, seconds: int = 2) -> Response:
    headers = _SAFE if route is None else _allowed(route)
    wait = {"retry-after": str(seconds)} if status in (429, 503) else {}
    body = {"type": "about:blank", "status": status, "detail": detail}
    return JSONResponse(body, status, {**headers, **wait}, media_type="application/problem+json")
