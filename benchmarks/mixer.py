"""The mixer: sealed reports a second beside plain uploads, and kill -9 at random moments on mixer and collector.

    python -m benchmarks.mixer [--seconds 3] [--kills 40] [--stores sqlite postgres]

Speed: one server process at a time and one client process over loopback, one report a request, 32 connections: plain
uploads to the collector, tickets from the collector, sealed reports to the mixer (drawn, sealed and ticketed
beforehand: that is the devices' work), and batches of 1,000 that the collector opens and stores.

Kills: mixer and collector run as processes of their own while four devices send reports, each until it is acknowledged;
every few hundred milliseconds one of the two is killed and started again. At the end every acknowledged report must lie
in the collector's store once, and none in the mixer's.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import http.client
import itertools
import json
import multiprocessing
import os
import random
import socket
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

__all__ = ["audit", "main", "torment"]


def _plan(url: str, key: str, batch: int) -> dict[str, Any]:
    asked = {"name": "x", "kind": "number", "missing": "middle", "lower": 0, "upper": 100}
    mixer = {"batch": batch, "epsilon": 1.0, "delta": 1e-2, "url": url, "key": key}  # a report of one dithered bit
    told = {"purpose": "to measure", "contact": "none"}
    return {"title": "t", "asked_by": "t", "promise": 1.0, "collection": told, "mixer": mixer, "questions": [asked]}


# --- the two servers --------------------------------------------------------------------------------------------------


def collect(database: str, key_file: str, port: int) -> None:
    """A process's whole work."""
    import uvicorn

    from hybridp.service.app import build_app
    from hybridp.service.settings import Limits, Settings

    settings = Settings.from_environment(database, key_file, limits=Limits(rate=0))
    uvicorn.run(build_app(settings), port=port, access_log=False, log_level="critical")


def mix(database: str, key_file: str, port: int) -> None:
    """The other's."""
    import logging

    import uvicorn

    from hybridp.mixer import Store, build_app, load_or_make
    from hybridp.service.schema import connect

    logging.disable()  # a collector that was killed does not answer
    app = build_app(Store(connect(database)), load_or_make(Path(key_file), lambda: True))
    uvicorn.run(app, port=port, access_log=False, log_level="critical")


_PRELOADED = ["hybridp.service.app", "hybridp.mixer", "hybridp.service.api", "uvicorn.protocols.http.auto"]
_FORKS = multiprocessing.get_context("forkserver")


class Server:
    """One of the two, on a port of its own, killed and started as often as one likes."""

    def __init__(self, work: Callable[..., None], *where: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = int(probe.getsockname()[1])
        self._work, self._where = work, where

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        _FORKS.set_forkserver_preload([*_PRELOADED, __name__])
        self.process = _FORKS.Process(target=self._work, args=(*self._where, self.port), daemon=True)
        self.process.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.join()

    def wait(self) -> None:
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=5):
                return
            time.sleep(0.02)


@contextlib.contextmanager
def both(collector_at: str, mixer_at: str, folder: Path, batch: int) -> Iterator[tuple[Server, Server, str, Any]]:
    """Collector and mixer, a study that they share, and the mixer's store."""
    from hybridp.mixer import Route, Store, load_or_make
    from hybridp.public.mixing import from_text, text
    from hybridp.service import studies
    from hybridp.service.core import Service
    from hybridp.service.schema import connect
    from hybridp.service.settings import Settings

    own, theirs = str(folder / "collector.key"), str(folder / "mixer.key")
    collector, mixer = Server(collect, collector_at, own), Server(mix, mixer_at, theirs)
    service = Service(Settings.from_environment(collector_at, own))
    plan = _plan(mixer.url, text(load_or_make(Path(theirs), lambda: True).public), batch)
    study: str = studies.create_study(service, plan)["id"]
    task = studies.task_document(service, study)["mixer"]
    service.close()
    store = Store(connect(mixer_at))
    keys = [from_text(task[name], 32, name) for name in ("ticket_key", "report_key")]
    store.join(Route(study, collector.url, collector.url, task["batch"], task["bytes"], *keys, None))
    for server in (collector, mixer):
        server.start()
        server.wait()
    try:
        yield collector, mixer, study, store
    finally:
        for server in (collector, mixer):
            server.kill()
        store.engine.dispose()


# --- kills ------------------------------------------------------------------------------------------------------------


def _post(url: str, document: Any) -> Any:
    headers = {"content-type": "application/json"}
    asked = urllib.request.Request(url, json.dumps(document).encode(), headers, method="POST")
    with urllib.request.urlopen(asked, timeout=30) as answer:
        return json.load(answer)


def _sealed(task: Any, number: int) -> str:
    """A report that says its number, as no device would."""
    from hybridp.public.mixing import from_text, seal, text
    from hybridp.service.studies import new_report_id

    payload = {"reports": {"x": {"threshold": number, "above": True}}}
    body = {"id": new_report_id(), "payload": payload, "padding": ""}
    size = task["mixer"]["bytes"] - len(json.dumps(body, separators=(",", ":")))
    raw = json.dumps(body | {"padding": "x" * size}, separators=(",", ":")).encode()
    return text(seal(raw, from_text(task["mixer"]["report_key"], 32, "key"), task["id"]))


class Crowd:
    """Devices that send one report after the other, each again and again until it is acknowledged."""

    def __init__(self, collector: str, mixer: str, study: str) -> None:
        with urllib.request.urlopen(f"{collector}/tasks/{study}", timeout=30) as answer:
            self._task = json.load(answer)
        self._collector, self._mixer = f"{collector}/tasks/{study}/ticket", f"{mixer}/mix/{study}"
        self._lock, self._next, self._stop = threading.Lock(), 0, threading.Event()
        self.acknowledged: list[int] = []
        self.refused = 0
        self._threads = [threading.Thread(target=self._run, daemon=True) for _ in range(4)]
        for thread in self._threads:
            thread.start()

    def _run(self) -> None:
        from hybridp.service.studies import new_report_id

        while not self._stop.is_set():
            with self._lock:
                number, self._next = self._next, self._next + 1
            name, sealed = new_report_id(), _sealed(self._task, number)
            while True:
                try:
                    ticket = _post(self._collector, {"id": name})["ticket"]
                    _post(self._mixer, {"ticket": ticket, "sealed": sealed})
                    break
                except (OSError, ValueError, http.client.HTTPException) as error:
                    if getattr(error, "code", None) == 409:  # an open study that takes no more
                        self.refused += 1
                        return
                    time.sleep(0.02)  # no answer, half of one, or come back later
            self.acknowledged.append(number)

    def finish(self) -> list[int]:
        self._stop.set()
        until = time.monotonic() + 120
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))
        stuck = sum(thread.is_alive() for thread in self._threads)
        if stuck or self.refused:
            raise RuntimeError(f"{stuck} devices wait for an answer, {self.refused} were refused by an open study")
        return sorted(self.acknowledged)


def torment(
    collector_at: str, mixer_at: str, folder: Path, kills: int, *, longest: float = 0.6
) -> tuple[Counter[str], list[int]]:
    """So many kills at random moments: what was counted, and the reports that were acknowledged."""
    from hybridp.service.schema import connect

    found: Counter[str] = Counter()
    with both(collector_at, mixer_at, folder, 10) as (collector, mixer, study, store):
        crowd = Crowd(collector.url, mixer.url, study)
        for _ in range(kills):
            time.sleep(random.uniform(0.05, longest))
            who = random.choice((collector, mixer))
            who.kill()
            found[f"kills of the {'mixer' if who is mixer else 'collector'}"] += 1
            who.start()
            who.wait()
        sent = crowd.finish()
        store.close(study)
        engine = connect(collector_at)
        until = time.monotonic() + 120
        while time.monotonic() < until:
            with engine.connect() as db:
                if db.exec_driver_sql("SELECT count(*) FROM batches WHERE last").scalar():
                    break
            time.sleep(0.1)
        engine.dispose()
        until = time.monotonic() + 30
        while store.to_send() and time.monotonic() < until:  # acknowledged, and about to be forgotten
            time.sleep(0.05)
    return found + audit(collector_at, mixer_at, sent), sent


def audit(collector_at: str, mixer_at: str, sent: list[int]) -> Counter[str]:
    """What the stores hold of these reports; what breaks a rule begins with BROKEN."""
    from hybridp.service.schema import SHUFFLED, connect

    engine = connect(collector_at)
    with engine.connect() as db:
        bodies = db.exec_driver_sql(f"SELECT body FROM reports WHERE grp = {SHUFFLED}").scalars().all()
        batches = [int(n) for n in db.exec_driver_sql("SELECT people FROM batches").scalars()]
    engine.dispose()
    engine = connect(mixer_at)
    with engine.connect() as db:
        held = db.exec_driver_sql("SELECT count(*) FROM mixer_held WHERE sealed IS NOT NULL").scalar_one()
        waiting = db.exec_driver_sql("SELECT count(*) FROM mixer_outbox").scalar_one()
    engine.dispose()
    stored = Counter(int.from_bytes(bytes(body)[:4], "little") for body in bodies)
    broken = {
        "lost": len(set(sent) - set(stored)),
        "twice": sum(n - 1 for n in stored.values()),
        "never sent": len(set(stored) - set(sent)),
        "still at the mixer": int(held) + int(waiting),
        "batches of another size": int(sum(batches) != len(bodies)),
    }
    counted = Counter({"acknowledged reports": len(sent), "batches": len(batches)})
    return counted + Counter({f"BROKEN: {name}": n for name, n in broken.items()})


# --- speed ------------------------------------------------------------------------------------------------------------


class Client(asyncio.Protocol):
    """One connection that posts its next body when the answer to the last one has come."""

    def __init__(self, path: str, bodies: Iterator[bytes], until: float, ends: asyncio.Future[None]) -> None:
        self._head = f"POST {path} HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n".encode()
        self._bodies, self._until, self._ends = bodies, until, ends
        self.answers = 0

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        body = next(self._bodies, None)
        if body is None or time.perf_counter() > self._until:
            self._transport.close()
            self._ends.set_result(None)
            return
        self._transport.write(self._head + b"content-length: %d\r\n\r\n" % len(body) + body)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"HTTP/1.1") and not data.startswith(b"HTTP/1.1 200"):
            raise RuntimeError(data.decode())
        if data.endswith(b"}"):
            self.answers += 1
            self._send()


async def _load(port: int, path: str, bodies: Iterator[bytes], seconds: float, connections: int = 32) -> float:
    """Requests a second."""
    loop, clients = asyncio.get_running_loop(), []
    ends = [loop.create_future() for _ in range(connections)]
    began = time.perf_counter()
    for end in ends:
        made = await loop.create_connection(
            lambda end=end: Client(path, bodies, began + seconds, end), "127.0.0.1", port
        )
        clients.append(made[1])
    await asyncio.gather(*ends)
    return sum(client.answers for client in clients) / (time.perf_counter() - began)


def _plain_bodies() -> Iterator[bytes]:
    hour = int(time.time()) // 3600 * 3600
    while True:
        raw = os.urandom(20)
        name, bit = base64.urlsafe_b64encode(raw[:16])[:22].decode(), int.from_bytes(raw[16:], "big")
        payload = {"reports": {"x": {"threshold": bit, "above": True}}}
        report = {"id": name, "time": hour, "group": "local", "payload": payload}
        yield json.dumps({"reports": [report]}).encode()


def measure(store_name: str, collector_at: str, mixer_at: str, folder: Path, seconds: float) -> None:
    from hybridp.public.mixing import Batch, from_text, pack_batch
    from hybridp.service.core import Service
    from hybridp.service.settings import Settings

    with both(collector_at, mixer_at, folder, 1000) as (collector, mixer, study, _):
        with urllib.request.urlopen(f"{collector.url}/tasks/{study}", timeout=30) as answer:
            task = json.load(answer)
        service = Service(Settings.from_environment(collector_at, folder / "collector.key"))
        cipher = service.view(study).cipher
        service.close()
        assert cipher is not None
        from hybridp.mixer import load_or_make
        from hybridp.public.mixing import ticket

        many = int(6000 * seconds)
        began = time.perf_counter()
        sealed = [_sealed(task, i) for i in range(many)]
        sealing = many / (time.perf_counter() - began)
        tickets = [ticket(cipher.signer, study, os.urandom(16)) for _ in range(many)]
        bodies = [json.dumps({"ticket": t, "sealed": s}).encode() for t, s in zip(tickets, sealed, strict=True)]
        names = (base64.urlsafe_b64encode(os.urandom(16))[:22].decode() for _ in itertools.repeat(None))
        asked = (json.dumps({"id": name}).encode() for name in names)
        rates = {
            "plain uploads": asyncio.run(_load(collector.port, f"/tasks/{study}/reports", _plain_bodies(), seconds)),
            "tickets": asyncio.run(_load(collector.port, f"/tasks/{study}/ticket", asked, seconds)),
            "sealed reports": asyncio.run(_load(mixer.port, f"/mix/{study}", iter(bodies), seconds)),
        }
        signer = load_or_make(folder / "mixer.key", lambda: True)
        given = int(rates["tickets"] * seconds) // 1000 * 1000  # the collector takes a report for each, and no more
        raw = [from_text(s, task["mixer"]["bytes"] + 48, "sealed") for s in sealed[-min(5000, given) :]]
        began = time.perf_counter()
        for i in range(0, len(raw), 1000):
            packed = pack_batch(Batch(os.urandom(16), tuple(raw[i : i + 1000])), study, signer)
            sent = urllib.request.Request(f"{collector.url}/tasks/{study}/mixed", packed, method="POST")
            urllib.request.urlopen(sent, timeout=60).close()
        rates["opened and stored, 1,000 a batch"] = len(raw) / (time.perf_counter() - began)
        rates["sealed by a device, one after the other"] = sealing
        for name, rate in rates.items():
            print(f"{store_name:9} {name:42} {rate:8,.0f}/s  {rate / rates['plain uploads']:6.2f} x plain", flush=True)


# --- both -------------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _stores(name: str, folder: Path, part: str) -> Iterator[tuple[str, str]]:
    """Two databases, for collector and mixer."""
    if name == "sqlite":
        yield f"sqlite:///{folder / f'{part}-collector.db'}", f"sqlite:///{folder / f'{part}-mixer.db'}"
        return
    from tools.throwaway import postgres

    with postgres() as one, postgres() as other:
        yield one, other


def _broken(found: Counter[str]) -> int:
    return sum(n for what, n in found.items() if what.startswith("BROKEN"))


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mixer", description=(__doc__ or "").strip())
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--kills", type=int, default=40)
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgres"])
    arguments = parser.parse_args(argv)
    broken = 0
    for name in arguments.stores:
        with tempfile.TemporaryDirectory() as folder:
            with _stores(name, Path(folder), "speed") as (one, other):
                measure(name, one, other, Path(folder), arguments.seconds)
            with _stores(name, Path(folder), "kill") as (one, other):
                found, _ = torment(one, other, Path(folder), arguments.kills)
            told = ", ".join(f"{what} {n:,}" for what, n in found.items())
            print(f"{name:9} {told}; lost or doubled: {'SOME' if _broken(found) else 'nothing'}", flush=True)
            broken += _broken(found)
    return int(broken > 0)


if __name__ == "__main__":
    sys.exit(main())
