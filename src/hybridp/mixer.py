"""The mixer hands sealed reports on in random order, without their senders; who runs it does not collude with the
collector, and has a program, a database and a key of their own that opens no report.

A sealed report lies beside the hash of its ticket, so that no second one is taken. When a batch is made, its reports
move in one transaction to the outbox, in random order, and leave it when the collector has them, which takes a batch of
the same name only once: whatever the moment at which the program dies, each report is in one place, or was
acknowledged.

Its web application has POST /mix/{study} with a ticket and a sealed report, and nothing else that matters. Whoever
sends is answered when the report is durable. No address, ticket or report is logged. Batches are made when there are
enough reports, and sent until they are acknowledged.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import math
import random
import secrets
import sqlite3
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa
from sqlalchemy import Column, Connection, Engine, LargeBinary, Table, Text, bindparam, select
from sqlalchemy.exc import SQLAlchemyError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route as Address

from hybridp.errors import HybridpError, InvalidInput, must
from hybridp.public.envelope import appearing
from hybridp.public.mixing import OVERHEAD, Batch, Signer, check_ticket, from_text, pack_batch, text

__all__ = ["Route", "Sender", "Store", "Ticketed", "build_app", "load_or_make"]

metadata = sa.MetaData()


def _needed(kind: Any, names: str) -> list[Column[Any]]:
    return [Column(name, kind, nullable=False) for name in names.split()]


routes = Table(
    "mixer_routes",
    metadata,
    Column("study", Text, primary_key=True),
    *_needed(Text, "collector origin state"),
    *_needed(sa.Integer, "batch size"),
    *_needed(LargeBinary, "ticket_key report_key"),
    Column("closes", sa.BigInteger),
)
# Named by a hash, and without row numbers: nothing in it tells who came when.
held = Table(
    "mixer_held",
    metadata,
    Column("study", Text, primary_key=True),
    Column("ticket", LargeBinary, primary_key=True),
    Column("sealed", LargeBinary),
    sqlite_with_rowid=False,
)
_HERE = held.c.sealed.is_not(None)
sa.Index("mixer_waiting", held.c.study, held.c.ticket, sqlite_where=_HERE, postgresql_where=_HERE)
outbox = Table(
    "mixer_outbox",
    metadata,
    Column("id", LargeBinary, primary_key=True),
    *_needed(Text, "study"),
    *_needed(sa.Boolean, "last"),
    *_needed(LargeBinary, "body"),
    sqlite_with_rowid=False,
)


@dataclass(frozen=True, slots=True)
class Route:
    """A study whose reports are mixed: where they go, how many at least at once, how long each is, and until when.

    `report_key` is whom they are sealed for: the mixer tells devices, so that nobody is given a key of their own.
    """

    study: str
    collector: str
    origin: str
    batch: int
    size: int
    ticket_key: bytes
    report_key: bytes
    closes: int | None
    state: str = "open"


class Ticketed(NamedTuple):
    study: str
    nonce: bytes
    sealed: bytes


class Store:
    """The mixer's database. Every method is one transaction, durable when it returns."""

    def __init__(self, engine: Engine, *, chance: random.Random | None = None) -> None:
        self.engine = engine
        self._changing = engine.execution_options(immediate=True).begin
        self._chance = secrets.SystemRandom() if chance is None else chance
        metadata.create_all(engine)

    def join(self, route: Route) -> None:
        """Mix for a study from now on; what it says must not change afterwards."""
        with self._changing() as db:
            known = db.execute(select(routes).where(routes.c.study == route.study)).first()
            stated = {name: getattr(route, name) for name in route.__slots__}
            if known is None:
                db.execute(routes.insert().values(stated))
            elif dict(known._mapping) | {"state": route.state} != stated:
                raise InvalidInput(f"`study` must say what it said before. Got another statement of {route.study}.")

    def routes(self) -> list[Route]:
        with self.engine.connect() as db:
            return [Route(**row._mapping) for row in db.execute(select(routes).order_by(routes.c.study))]

    def close(self, study: str) -> None:
        """Take no more reports; what is held goes on as the last batch, and then the study is `sent`."""
        must(study in [route.study for route in self.routes()], "study", "must be one that this mixer mixes for", study)
        here = (routes.c.study == study, routes.c.state == "open")
        with self._changing() as db:
            db.execute(routes.update().where(*here).values(state="closed"))

    def take(self, given: Sequence[Ticketed]) -> list[bool]:
        """Hold sealed reports; of several under one ticket the first counts, whenever the others come.

        Whether each is held, or was. A new one of a study that is closed is not: its last batch may have been made.
        """
        rows: list[dict[str, Any]]
        rows = [{"study": one.study, "ticket": _hashed(one.nonce), "sealed": one.sealed} for one in given]
        rows.sort(key=lambda row: (row["study"], row["ticket"]))  # two processes lock in one order
        sql = f"INSERT INTO {held} (study, ticket, sealed) VALUES (:study, :ticket, :sealed) ON CONFLICT DO NOTHING"
        with self._changing() as db:
            here = (routes.c.study.in_({one.study for one in given}), routes.c.state == "open")
            taking = set(db.execute(select(routes.c.study).where(*here).with_for_update(read=True)).scalars())
            late = [(row["study"], row["ticket"]) for row in rows if row["study"] not in taking]
            if len(late) < len(rows):
                db.execute(sa.text(sql), [row for row in rows if row["study"] in taking])
            there = select(held.c.study, held.c.ticket).where(sa.tuple_(held.c.study, held.c.ticket).in_(late))
            refused = set(late) - {(study, bytes(ticket)) for study, ticket in db.execute(there)}
        return [(one.study, _hashed(one.nonce)) not in refused for one in given]

    def waiting(self, study: str) -> int:
        with self.engine.connect() as db:
            return _waiting(db, study)

    def make_batch(self, study: str, signer: Signer) -> int:
        """Put a batch into the outbox if there are enough for it; how many people's reports are in it, or 0. While the
        study is open, one of the stated size is drawn at random as soon as twice as many are held: so the last one,
        which takes all the rest, is that large too. It says that it is the last, also where nothing is left for it."""
        with self._changing() as db:
            result = select(routes).where(routes.c.study == study).with_for_update()
            route = Route(**db.execute(result).one()._mapping)
            waiting, last = _waiting(db, study), False
            people = route.batch if waiting >= 2 * route.batch else 0
            if not people and route.state == "closed":
                people, last = waiting, True
                db.execute(routes.update().where(routes.c.study == study).values(state="sent"))
            if not (people or last):
                return 0
            mine = (held.c.study == study) & held.c.sealed.is_not(None)
            tickets = [bytes(t) for t in db.execute(select(held.c.ticket).where(mine)).scalars()]
            drawn = set(self._chance.sample(tickets, people))
            there = db.execute(select(held.c.ticket, held.c.sealed).where(mine).execution_options(yield_per=1000))
            sealed = [bytes(row.sealed) for row in there if bytes(row.ticket) in drawn]
            self._chance.shuffle(sealed)
            body = pack_batch(Batch(name := secrets.token_bytes(16), tuple(sealed), last), study, signer)
            db.execute(outbox.insert().values(id=name, study=study, last=last, body=body))
            if not drawn:
                return 0
            gone = held.update().where(held.c.study == study, held.c.ticket == bindparam("which")).values(sealed=None)
            db.execute(gone, [{"which": one} for one in drawn])
            return people

    def to_send(self) -> list[tuple[bytes, str]]:
        """Names and studies of the batches that the collector has not acknowledged, the last of a study at the end."""
        with self.engine.connect() as db:
            result = select(outbox.c.id, outbox.c.study).order_by(outbox.c.last)
            return [(bytes(row.id), row.study) for row in db.execute(result)]

    def body(self, name: bytes) -> bytes:
        with self.engine.connect() as db:
            return bytes(db.execute(select(outbox.c.body).where(outbox.c.id == name)).scalar_one())

    def sent(self, name: bytes) -> None:
        with self._changing() as db:
            db.execute(outbox.delete().where(outbox.c.id == name))

    def emptied_log(self) -> bool:
        """Whether SQLite's file was written anew and its log cut off: deleted reports lie beside tickets in the log,
        and copies of some in the free space of pages. Not while somebody reads."""
        if self.engine.dialect.name != "sqlite":
            return True
        with self.engine.connect() as db:
            raw: Any = db.connection.dbapi_connection
            raw.execute("PRAGMA busy_timeout = 20")  # reports wait for it too
            try:
                raw.execute("VACUUM")
                busy, _, _ = raw.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.OperationalError:  # another process writes: the next turn tries again
                return False
            finally:
                raw.execute("PRAGMA busy_timeout = 30000")
            return not busy


def _hashed(nonce: bytes) -> bytes:
    return hashlib.sha256(b"hybridp used ticket\0" + nonce).digest()


def _waiting(db: Connection, study: str) -> int:
    mine = select(sa.func.count()).select_from(held).where(held.c.study == study, held.c.sealed.is_not(None))
    return int(db.execute(mine).scalar_one())


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
            body = b""
            async for part in request.stream():
                body += part
                must(len(body) <= _MOST, "body", f"must be at most {_MOST} bytes", "more")
            given = _decoder.decode(body)
            sealed = from_text(given.sealed, route.size + OVERHEAD, "sealed")
            nonce = check_ticket(given.ticket, route.ticket_key, route.study)
            if not await writer.take(Ticketed(route.study, nonce, sealed)):
                return _problem(409, "The study takes no more reports.", route)
        except (InvalidInput, msgspec.DecodeError, UnicodeDecodeError) as error:
            return _problem(422, str(error), route)
        except HybridpError as error:
            return _problem(503, str(error), route)
        return JSONResponse({"held": True}, headers=_allowed(route))

    paths = [
        Address("/mix/{study}", mix, methods=["GET", "POST", "OPTIONS"]),
        Address("/health", lambda _: JSONResponse({"status": "ok"}), methods=["GET"]),
    ]
    return Starlette(routes=paths, lifespan=life)


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
