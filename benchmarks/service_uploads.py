"""Uploads: durable reports a second over loopback, beside the same server that only parses, and beside the bare store.

    python -m benchmarks.service_uploads [--seconds 2] [--connections 32 128] [--rounds 5] [--stores sqlite postgres]

One server process (uvicorn, one event loop, one writer thread) and one client process share the machine. Each report is
a local dithered bit in a request of its own, except where it says 50 a request. `parse only` is the same server, checks
included, whose writer answers at once; `commit each` commits every request by itself; `bare store` hands batches of 64
to the store in a loop, without HTTP. The ways take turns, slice by slice, and medians over the rounds are shown, so
that a busy machine slows all of them alike; the server's own CPU time depends least on it. Targets: 70 % of parse only;
p99 below ten times p50.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import contextlib
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["main"]

PLAN = {
    "title": "t",
    "asked_by": "nobody",
    "promise": 1.0,
    "collection": {"purpose": "to measure", "contact": "none"},
    "questions": [{"name": "x", "kind": "number", "lower": 0, "upper": 100}],
}
TARGET, TAIL = 0.7, 10.0


# --- the server -------------------------------------------------------------------------------------------------------


def serve(way: str, database: str, key_file: str, port: int) -> None:
    """A child's whole work."""
    import uvicorn

    from hybridp.service.app import build_app, settle
    from hybridp.service.core import Service
    from hybridp.service.settings import Limits, Settings
    from hybridp.service.studies import create_study

    settings = Settings.from_environment(database, key_file, limits=Limits(rate=0))
    service = Service(settings)
    study = create_study(service, PLAN)["id"]
    if way == "parse only":
        service.writer.store = _at_once  # type: ignore[method-assign]
    elif way == "commit each":
        _commit_each()
    app = build_app(settings, service=service)
    settle()
    server = uvicorn.Server(uvicorn.Config(app, port=port, access_log=False, log_level="error"))

    async def run() -> None:
        task = asyncio.create_task(server.serve())
        while not server.started:
            await asyncio.sleep(0.01)
        print(study, flush=True)
        await task

    asyncio.run(run())


def _commit_each() -> None:
    from hybridp.service import store as writer

    def alone(self: writer.Writer, loop: asyncio.AbstractEventLoop) -> None:
        for one in self._gathering.pop(loop):
            self._uploads.append((loop, [one]))
            self._queue.put(self._commit)

    writer._TOGETHER = 1
    writer.Writer._hand_over = alone  # type: ignore[method-assign]


async def _at_once(batch: Any) -> list[Any]:
    return []


@contextlib.contextmanager
def running(way: str, database: str, key_file: Path) -> Iterator[tuple[str, int, int]]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, __file__, "--serve", way, database, str(key_file), str(port)]
    child = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert child.stdout is not None
        yield child.stdout.readline().strip(), port, child.pid
    finally:
        child.terminate()
        child.wait(30)


# --- the client -------------------------------------------------------------------------------------------------------


class Client(asyncio.Protocol):
    """One connection that sends its next request when the answer to the last one has come."""

    def __init__(self, study: str, reports: int, until: float, times: list[float], done: asyncio.Future[None]) -> None:
        self._head = f"POST /tasks/{study}/reports HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n"
        self._hour = int(time.time()) // 3600 * 3600
        self._reports, self._until, self._times, self._done = reports, until, times, done
        self._seen = b""

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self._send()

    def _send(self) -> None:
        parts = []
        for _ in range(self._reports):
            raw = os.urandom(20)
            name = base64.urlsafe_b64encode(raw[:16])[:22].decode()
            threshold = int.from_bytes(raw[16:], "big")
            parts.append(
                f'{{"id":"{name}","time":{self._hour},"group":"local",'
                f'"payload":{{"reports":{{"x":{{"threshold":{threshold},"above":true}}}}}}}}'
            )
        body = f'{{"reports":[{",".join(parts)}]}}'
        self._began = time.perf_counter()
        self._transport.write(f"{self._head}content-length: {len(body)}\r\n\r\n{body}".encode())

    def data_received(self, data: bytes) -> None:
        self._seen += data
        if not self._seen.endswith(b'{"failures":[]}'):
            if b" 200 OK" not in self._seen[:20] or self._seen.endswith(b"]}"):
                raise RuntimeError(self._seen.decode())
            return
        self._seen = b""
        now = time.perf_counter()
        self._times.append(now - self._began)
        if now < self._until:
            self._send()
        else:
            self._transport.close()
            self._done.set_result(None)


async def load(study: str, port: int, connections: int, seconds: float, reports: int) -> tuple[float, float, float]:
    """Reports a second, median and 99th percentile of a request's latency in milliseconds."""
    loop = asyncio.get_running_loop()
    times: list[float] = []
    ends = [loop.create_future() for _ in range(connections)]
    began = time.perf_counter()
    for end in ends:
        await loop.create_connection(
            lambda end=end: Client(study, reports, began + seconds, times, end), "127.0.0.1", port
        )
    await asyncio.gather(*ends)
    spent = time.perf_counter() - began
    times.sort()
    at = [1e3 * times[int(share * (len(times) - 1))] for share in (0.5, 0.99)]
    return len(times) * reports / spent, at[0], at[1]


def bare(database: str, seconds: float) -> float:
    """Reports a second of the store alone: batches of 64, one after the other."""
    from hybridp.service.formats import BIT, Packed
    from hybridp.service.schema import LOCAL, begun, connect, prepare
    from hybridp.service.store import Batch, Commits, writing

    engine = connect(database)
    prepare(engine)
    with writing(engine) as db:
        db.execute(begun(999))
    store = Commits(engine)
    hour = int(time.time()) // 3600 * 3600
    stored = 0
    began = time.perf_counter()
    while time.perf_counter() < began + seconds:
        rows = [Packed(os.urandom(16), hour, LOCAL, None, BIT.pack(5, 1), None, "") for _ in range(64)]
        store.commit([Batch(999, 1, 3600, [row]) for row in rows])
        stored += 64
    spent = time.perf_counter() - began
    store.drop()
    engine.dispose()
    return stored / spent


# --- the table --------------------------------------------------------------------------------------------------------


def measure(store: str, url: str, folder: Path, arguments: argparse.Namespace) -> bool:
    sizes = {"parse only": (1, 50), "group commit": (1, 50), "commit each": (1,)}
    rows: dict[tuple[str, int, int], list[tuple[float, float, float, float]]] = {}
    alone: list[float] = []
    with contextlib.ExitStack() as servers:
        up = {}
        for way in sizes:
            fresh = url.replace("study.db", f"study-{way[:3]}.db")
            up[way] = servers.enter_context(running(way, fresh, folder / "key"))
            asyncio.run(load(*up[way][:2], 8, 0.3, 1))  # warm
        for turn in range(arguments.rounds):
            for connections in arguments.connections:
                for size in (1, 50):
                    for way in (way for way in sizes if size in sizes[way]):
                        study, port, child = up[way]
                        before = _cpu(child)
                        rate, *times = asyncio.run(load(study, port, connections, arguments.seconds, size))
                        spent = 1e6 * (_cpu(child) - before) / (rate * arguments.seconds)
                        rows.setdefault((way, size, connections), []).append((rate, times[0], times[1], spent))
            alone.append(bare(url.replace("study.db", f"bare-{turn}.db"), arguments.seconds / 2))
            _clear(url)
    fine = True
    for connections in arguments.connections:
        for size in (1, 50):
            whole = least = 0.0
            for way in (way for way in sizes if size in sizes[way]):
                runs = rows[way, size, connections]
                rate, middle, tail, cpu = (statistics.median(run[i] for run in runs) for i in range(4))
                whole, least = whole or rate, least or cpu
                text = f"{store:9} {connections:4} connections  {way:12} {size:2} a request {rate:9,.0f}/s"
                text += f"  p50 {middle:7.2f} ms  p99 {tail:8.2f} ms ({tail / middle:4.1f} x)"
                text += f"  server CPU {cpu:5.0f} us a report  {rate / whole:5.0%} of parse only"
                print(f"{text} ({least / cpu:4.0%} by the server's CPU)", flush=True)
                if (way, size) == ("group commit", 1):
                    fine &= rate / whole >= TARGET and tail < TAIL * middle
    print(f"{store:9} bare store, 64 a commit {statistics.median(alone):24,.0f}/s", flush=True)
    return fine


def _cpu(child: int) -> float:
    """Seconds that a process has computed so far, its threads included."""
    fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _clear(url: str) -> None:
    """PostgreSQL has one database for all ways: the bare store's study must be new each time."""
    if url.startswith("postgresql"):
        from sqlalchemy import create_engine

        engine = create_engine(url)
        with engine.begin() as db:
            db.exec_driver_sql("DELETE FROM progress WHERE study = 999")
            db.exec_driver_sql("DELETE FROM reports WHERE study = 999")
            db.exec_driver_sql("DELETE FROM participation WHERE study = 999")
        engine.dispose()


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.service_uploads", description=(__doc__ or "").strip())
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--connections", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--stores", nargs="+", default=["sqlite", "postgres"])
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    arguments = parser.parse_args(argv)
    if arguments.serve:
        way, database, key, port = arguments.serve
        serve(way, database, key, int(port))
        return 0
    fine = True
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if "sqlite" in arguments.stores:
            fine &= measure("sqlite", f"sqlite:///{folder}/study.db", folder, arguments)
        if "postgres" in arguments.stores:
            from tools.throwaway import postgres

            with postgres() as url:
                fine &= measure("postgres", url, folder, arguments)
    print(f"{TARGET:.0%} of parse only, p99 below {TAIL:.0f} x p50: {'reached' if fine else 'NOT reached'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
