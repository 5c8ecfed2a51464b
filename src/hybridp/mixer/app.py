"""The mixer's web application: POST /mix/{study} with a ticket and a sealed report, and nothing else that matters.

Whoever sends is answered when the report is durable. No address, ticket or report is logged.
Batches are made when there are enough reports, and sent until they are acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
import secrets
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import msgspec
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as Address

from hybridp.errors import HybridpError, InvalidInput, must
from hybridp.mixer.store import Route, Store, Ticketed
from hybridp.public.envelope import appearing
from hybridp.public.mixing import OVERHEAD, Signer, check_ticket, from_text, text

__all__ = ["Sender", "build_app", "load_or_make"]


_log = logging.getLogger("hybridp.mixer")
_LONGEST = 60.0  # seconds between two tries
_ASK = 5.0  # seconds after which the collector is asked again whether a study goes on
_OVER = ("closed", "released", "deleted")


class Sender:
    """One thread that makes batches and sends them. What goes wrong is tried again: a batch is never given up."""

    def __init__(self, store: Store, signer: Signer, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._signer = signer
        self._clock = clock
        self._asked: dict[str, float] = {}
        self._traces = True  # of reports that were sent on, also by a mixer that was killed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="hybridp-mixer", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join(timeout=30)

    def turn(self) -> bool:
        """Close what has ended, make the batches that can be made, and send everything; whether all of it went."""
        known = {route.study: route for route in self._store.routes()}
        for route in known.values():
            if route.state == "open" and self._is_over(route):
                self._store.close(route.study)
            while route.state != "sent" and self._store.make_batch(route.study, self._signer):
                pass
        stuck: set[str] = set()
        for name, study in self._store.to_send():
            if study in stuck:  # the last batch of a study waits for the others
                continue
            if _send(known[study], self._store.body(name)):
                self._store.sent(name)
                self._traces = True
            else:
                stuck.add(study)
        if self._traces:
            self._traces = not self._store.emptied_log()
        return not stuck

    def _is_over(self, route: Route) -> bool:
        now = self._clock()
        if route.closes is not None and route.closes <= now:
            return True
        if now - self._asked.get(route.study, -_ASK) < _ASK:
            return False
        self._asked[route.study] = now
        try:
            with urllib.request.urlopen(f"{route.collector}/tasks/{route.study}", timeout=10) as answer:
                return json.load(answer).get("status") in _OVER
        except (OSError, ValueError, AttributeError):
            return False

    def _run(self) -> None:
        wait = 1.0
        while not self._stop.is_set():
            try:
                wait = 1.0 if self.turn() else min(2 * wait, _LONGEST)
            except (SQLAlchemyError, HybridpError) as error:
                _log.error("the store did not answer: %s", type(error).__name__)
                wait = min(2 * wait, _LONGEST)
            self._stop.wait(wait)


def _send(route: Route, body: bytes) -> bool:
    where, kind = f"{route.collector}/tasks/{route.study}/mixed", {"Content-Type": "application/octet-stream"}
    asked = urllib.request.Request(where, body, kind, method="POST")
    try:
        with urllib.request.urlopen(asked, timeout=600) as answer:
            return bool(200 <= answer.status < 300)
    except urllib.error.HTTPError as error:
        _log.error("the collector refused a batch with status %s", error.code)
    except OSError as error:
        _log.error("the collector did not answer: %s", type(error).__name__)
    return False


_MOST = 1 << 16
_TOGETHER, _QUEUE = 2000, 50_000  # reports of one commit, and that may wait
_SAFE = {"cache-control": "no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}


class _Sent(msgspec.Struct, forbid_unknown_fields=True):
    ticket: str
    sealed: str


_decoder = msgspec.json.Decoder(_Sent)


class Writer:
    """One commit at a time, beside the event loop; what comes while it is made shares the next one."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: list[tuple[Ticketed, asyncio.Future[bool]]] = []
        self._writing: asyncio.Task[None] | None = None

    async def take(self, given: Ticketed) -> bool:
        """Whether the report is held, durably; False where the study takes no more."""
        if len(self._waiting) >= _QUEUE:
            raise HybridpError("Too many reports are waiting to be stored: come back later.")
        done: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((given, done))
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write())
        return await done

    async def _write(self) -> None:
        while self._waiting:
            some, self._waiting = self._waiting[:_TOGETHER], self._waiting[_TOGETHER:]
            held, failed = [False] * len(some), None
            try:
                held = await asyncio.to_thread(self._store.take, [given for given, _ in some])
            except Exception as error:
                failed = HybridpError(f"The store did not answer ({type(error).__name__}): send the report again.")
            for (_, done), here in zip(some, held, strict=True):
                if done.done():  # the request went away; its report is held all the same
                    continue
                done.set_result(here) if failed is None else done.set_exception(failed)


def build_app(store: Store, signer: Signer, wait: Callable[[str], float] = lambda address: 0.0) -> Starlette:
    """The application; its sender runs as long as it does. `wait`: the seconds after which an address may send."""
    writer, sender, known, read = Writer(store), Sender(store, signer), dict[str, Route](), -math.inf

    @contextlib.asynccontextmanager
    async def life(_: Starlette) -> AsyncIterator[None]:
        sender.start()
        yield
        sender.stop()

    async def route_of(request: Request) -> Route | None:
        """What other processes joined and closed is read again every second."""
        nonlocal known, read
        study = request.path_params["study"]
        if study not in known or time.monotonic() - read > 1:
            known = {route.study: route for route in await asyncio.to_thread(store.routes)}
            read = time.monotonic()
        return known.get(study)

    async def mix(request: Request) -> Response:
        """GET: what the mixer promises, and was told when it joined, which devices hold the collector to."""
        route = await route_of(request)
        if route is None:
            return _problem(404, "This mixer does not know the study.")
        if request.method == "OPTIONS":
            return Response(status_code=204, headers=_allowed(route))
        if request.method != "POST":
            stated = {"study": route.study, "batch": route.batch, "key": text(signer.public), "state": route.state}
            stated["report_key"] = text(route.report_key)
            return JSONResponse(stated, headers=_allowed(route))
        if seconds := math.ceil(wait(request.client.host if request.client else "")):
            return _problem(429, f"Too many at once: come back in {seconds} s.", route, seconds)
        try:
            given = _decoder.decode(await _body(request))
            sealed = from_text(given.sealed, route.size + OVERHEAD, "sealed")
            nonce = check_ticket(given.ticket, route.ticket_key, route.study)
        except (InvalidInput, msgspec.DecodeError, UnicodeDecodeError) as error:
            return _problem(422, str(error), route)
        try:
            if not await writer.take(Ticketed(route.study, nonce, sealed)):
                return _problem(409, "The study takes no more reports.", route)
        except HybridpError as error:
            return _problem(503, str(error), route)
        return JSONResponse({"held": True}, headers=_allowed(route))

    paths = [
        Address("/mix/{study}", mix, methods=["GET", "POST", "OPTIONS"]),
        Address("/health", lambda _: JSONResponse({"status": "ok"}), methods=["GET"]),
    ]
    return Starlette(routes=paths, lifespan=life)


async def _body(request: Request) -> bytes:
    body = b""
    async for part in request.stream():
        body += part
        must(len(body) <= _MOST, "body", f"must be at most {_MOST} bytes", "more")
    return body


def _allowed(route: Route) -> dict[str, str]:
    """The study's own page, and no other, may send from a browser."""
    how = {"origin": route.origin, "headers": "content-type", "methods": "GET, POST"}
    return {**_SAFE, **{f"access-control-allow-{name}": value for name, value in how.items()}, "vary": "origin"}


def _problem(status: int, detail: str, route: Route | None = None, seconds: int = 2) -> Response:
    headers = _SAFE if route is None else _allowed(route)
    wait = {"retry-after": str(seconds)} if status in (429, 503) else {}
    body = {"type": "about:blank", "status": status, "detail": detail}
    return JSONResponse(body, status, {**headers, **wait}, media_type="application/problem+json")


def load_or_make(path: Path, empty: Callable[[], bool]) -> Signer:
    """The file's key; a new file where there is none and the store is `empty`: studies that joined name the old key."""
    if not path.exists():
        must(path.parent.is_dir(), "key-file", "must lie in an existing folder", path)
        if not empty():
            rule = "must be there, since studies that this mixer joined name its key"
            restore = "mount its disk, put its backup back, or give another --database for a new mixer"
            raise InvalidInput(f"`key-file` {rule}: {restore}. Got no {path}.")
        # Where another process was quicker, its file counts.
        with contextlib.suppress(FileExistsError), appearing(path, new=True, mode=0o600) as draft:
            draft.write_text(text(secrets.token_bytes(32)))
    must(not path.stat().st_mode & 0o077, "key-file", "must be readable by its owner only (chmod 600)", path)
    return Signer(from_text(path.read_text().strip(), 32, "key-file"))
