"""A real server on a free port, and a browser that writes down everything it sends."""

from __future__ import annotations

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn

from hybridp.service import studies
from hybridp.service.app import build_app
from hybridp.service.core import Service
from hybridp.service.settings import Limits, Settings

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


@dataclass(frozen=True)
class Live:
    """A running server with one analyst."""

    url: str
    service: Service
    key: str
    received: list[bytes]

    def has_received(self, *texts: str) -> bool:
        """Whether one of these texts was in any byte that reached the server: line, headers (cookies too) or body."""
        return any(text.encode() in part for text in texts for part in self.received)

    def study(self, **plan: Any) -> str:
        stated = {"kind": "mean", "title": "Way to work", "question": "How long?", "min_batch": 2, "epsilon": 1.0}
        stated |= {"bounds": {"lower": 0, "upper": 120}, "unit": "minutes"}
        if plan.get("kind", "mean") != "mean":
            stated = {k: v for k, v in stated.items() if k in ("title", "question", "min_batch")}
        return str(studies.create_study(self.service, stated | plan)["id"])

    def people(self, study: str) -> dict[str, int]:
        found: dict[str, int] = studies.study_summary(self.service, study)["people"]
        return found


def recording(app: Any, received: list[bytes]) -> Any:
    """The application, with everything that it is sent written down."""

    async def run(scope: Any, receive: Any, send: Any) -> None:
        async def noted() -> Any:
            message = await receive()
            received.append(message.get("body", b""))
            return message

        if scope["type"] == "http":
            received.append(scope["raw_path"] + b"?" + scope["query_string"])
            received.extend(name + b": " + value for name, value in scope["headers"])
        await app(scope, noted if scope["type"] == "http" else receive, send)

    return run


@contextmanager
def serving(folder: Path) -> Iterator[Live]:
    port = free_port()
    settings = Settings.from_environment(
        database=f"sqlite:///{folder / 'live.db'}",
        key_file=folder / "live.key",
        base_url=f"http://127.0.0.1:{port}",
        limits=Limits(rate=0),
    )
    app = build_app(settings)
    key = studies.add_analyst(app.state.service, "ana")
    received: list[bytes] = []
    server = uvicorn.Server(
        uvicorn.Config(recording(app, received), host="127.0.0.1", port=port, log_level="warning", ws="none")
    )
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    until = time.monotonic() + 30
    while not server.started:
        assert time.monotonic() < until, "the server did not start"
        time.sleep(0.02)
    try:
        yield Live(settings.base_url, app.state.service, key, received)
    finally:
        server.should_exit = True
        thread.join(timeout=20)


@dataclass
class Traffic:
    """All requests of a browser context: address, headers and body of each; errors of its pages."""

    sent: list[tuple[str, str, str, str]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def watch(self, context: Any) -> None:
        context.on("request", self._note)
        context.on("page", self._page)

    def _note(self, request: Any) -> None:
        body = request.post_data_buffer or b""
        self.sent.append((request.method, request.url, repr(request.headers), body.decode("utf-8", "replace")))

    def _page(self, page: Any) -> None:
        page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        page.on("pageerror", lambda e: self.complaints.append(str(e)))
        page.on("websocket", lambda w: self.sent.append(("WS", w.url, "", "")))

    def holding(self, *texts: str) -> list[tuple[str, str, str, str]]:
        """Requests with one of these texts anywhere in them."""
        return [r for r in self.sent if any(t in part for t in texts for part in r)]

    @property
    def uploads(self) -> list[str]:
        return [body for method, url, _, body in self.sent if method == "POST" and url.endswith("/reports")]
