"""A real server in a process of its own, and a browser that writes down everything it sends.

Run as a program this file is that process: `hybridp serve`, with every byte that it is sent written to a file as well.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
if __name__ != "__main__":  # as a program it is found by its path alone
    import httpx2
    import pytest

    from tests import warm

    in_chromium = pytest.mark.skipif(CHROMIUM is None, reason="not installed: Chromium (apt-get install chromium)")
PATIENCE = 120  # seconds: a limit for what will never come, not an expectation; other work may slow everything down


def options() -> list[str]:
    """Words for Chromium: pages are drawn without a graphics card, and without a program that plays one."""
    root = hasattr(os, "geteuid") and os.geteuid() == 0
    return ["--disable-gpu", "--disable-software-rasterizer", *(["--no-sandbox"] if root else [])]


@dataclass(frozen=True)
class Live:
    """A running server and one analyst's key. Studies are made and released as an analyst would, through the server."""

    url: str
    key: str
    received: Path

    def has_received(self, *texts: str) -> bool:
        """Whether one of these texts was in any byte that reached the server: line, headers (cookies too) or body."""
        everything = self.received.read_bytes()
        return any(text.encode() in everything for text in texts)

    def ask(self, path: str, body: object = None, *, method: str = "POST") -> Any:
        """The JSON answer of the analysts' API."""
        from tests.service.declared import study_of  # here: this file is also run as a program, the server

        if isinstance(body, dict) and not path:  # a new study, which says who asks
            body = study_of(body)
        headers = {"Authorization": f"Bearer {self.key}"}
        url = f"{self.url}/api/studies{path}"
        answer = httpx2.request(method, url, json=body, headers=headers, timeout=PATIENCE)
        return answer.raise_for_status().json()

    def study(self, **plan: Any) -> str:
        stated = {"kind": "mean", "title": "Way to work", "question": "How long?", "min_batch": 2, "epsilon": 1.0}
        stated |= {"bounds": {"lower": 0, "upper": 120}, "unit": "minutes"}
        if plan.get("kind", "mean") != "mean":
            stated = {k: v for k, v in stated.items() if k in ("title", "question", "min_batch")}
        return str(self.ask("", stated | plan)["id"])

    def people(self, study: str) -> dict[str, int]:
        found: dict[str, int] = self.ask(f"/{study}", method="GET")["people"]
        return found

    def invite(self, study: str, count: int) -> list[str]:
        tokens: list[str] = self.ask(f"/{study}/invitations", {"count": count})["tokens"]
        return tokens

    def open_phase(self, study: str, phase: int = 2) -> None:
        self.ask(f"/{study}/phases/{phase}")

    def release(self, study: str) -> None:
        self.ask(f"/{study}/close")
        self.ask(f"/{study}/release")


@contextmanager
def running(log: Path, does: str, code: str, *words: str, **environment: str) -> Iterator[str]:
    """The address of a program that says on which port it does this, until the block ends."""
    with log.open("w") as file:
        server = warm.Process(code, *words, stdout=file, stderr=file, env=warm.unbuffered(**environment))
    try:
        yield address(server, log, does)
    finally:
        server.terminate()
        try:
            server.wait(PATIENCE)
        finally:
            server.kill()


@contextmanager
def serving(folder: Path, *more: str, **environment: str) -> Iterator[Live]:
    """`hybridp serve` on a port that the system chooses, until the block ends."""
    received = folder / "received"
    received.touch()
    where = ["--database", f"sqlite:///{folder / 'live.db'}", "--key-file", str(folder / "live.key")]
    words = [__file__, str(received), *where, "--port", "0", "--rate", "0", *more]
    with running(folder / "log", "Serving", warm.SCRIPT, *words, **environment) as url:
        key = warm.run(warm.COMMAND, "study", "analyst", "ana", *where, check=True).stdout.strip()
        yield Live(url, key, received)


@dataclass(frozen=True)
class LiveMixer:
    """A running mixer, as somebody else would run it."""

    url: str
    key: str
    where: tuple[str, ...]

    def run(self, *command: str) -> str:
        """`hybridp mix ...` beside it."""
        return _mix(*command, *self.where)


def _mix(*command: str) -> str:
    return warm.run(warm.COMMAND, "mix", *command, check=True).stdout.strip()


@contextmanager
def mixing(folder: Path) -> Iterator[LiveMixer]:
    """`hybridp mix serve` on a port that the system chooses, until the block ends."""
    where = ("--database", f"sqlite:///{folder / 'mixer.db'}", "--key-file", str(folder / "mixer.key"))
    key = _mix("key", *where)
    with running(folder / "mixer.log", "Mixing", warm.COMMAND, "mix", "serve", *where, "--port", "0") as url:
        yield LiveMixer(url, key, where)


def address(server: warm.Process, log: Path, does: str = "Serving") -> str:
    """Where the server says that it serves, and then listens."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until and server.poll() is None:
        found = re.search(rf"{does} on (http://([\w.]+):(\d+));", log.read_text(encoding="utf-8"))
        with contextlib.suppress(ConnectionError):  # it says so a moment before it listens
            if found and socket.create_connection((found[2], int(found[3]))).close() is None:
                return found[1]
        time.sleep(0.02)
    raise AssertionError(f"the server did not start\n{log.read_text(encoding='utf-8')}")


def recording(app: Any, received: BinaryIO) -> Any:
    """The application, with everything that it is sent written down before it is handed on."""

    async def run(scope: Any, receive: Any, send: Any) -> None:
        async def noted() -> Any:
            message = await receive()
            received.write(message.get("body", b"") + b"\n")
            return message

        if scope["type"] == "http":
            received.write(scope["raw_path"] + b"?" + scope["query_string"] + b"\n")
            received.writelines(name + b": " + value + b"\n" for name, value in scope["headers"])
        await app(scope, noted if scope["type"] == "http" else receive, send)

    return run


@dataclass
class Traffic:
    """All requests of a browser context: address, headers and body of each; errors of its pages."""

    sent: list[tuple[str, str, str, str]] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    @contextmanager
    def along(self, page: Any) -> Iterator[Any]:
        """A page that others used before, as if it were new, and its requests and complaints until the end."""
        heard = {"console": self._said, "pageerror": self._raised, "websocket": self._socket}
        page.unroute_all()
        page.context.clear_cookies()
        page.set_viewport_size({"width": 1280, "height": 720})
        page.goto("about:blank")
        page.context.on("request", self._note)
        for event, listener in heard.items():
            page.on(event, listener)
        yield page
        for event, listener in heard.items():
            page.remove_listener(event, listener)
        page.context.remove_listener("request", self._note)

    def _note(self, request: Any) -> None:
        body = request.post_data_buffer or b""
        self.sent.append((request.method, request.url, repr(request.headers), body.decode("utf-8", "replace")))

    def _said(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.complaints.append(message.text)

    def _raised(self, error: Any) -> None:
        self.complaints.append(str(error))

    def _socket(self, opened: Any) -> None:
        self.sent.append(("WS", opened.url, "", ""))

    def holding(self, *texts: str) -> list[tuple[str, str, str, str]]:
        """Requests with one of these texts anywhere in them."""
        return [r for r in self.sent if any(t in part for t in texts for part in r)]

    @property
    def uploads(self) -> list[str]:
        return [body for method, url, _, body in self.sent if method == "POST" and url.endswith("/reports")]


PHONE = {"width": 360, "height": 740}
HEAVY = {"kind": "heavy-hitters", "epsilon": 4.0, "delta": 1e-3, "head": 5}
SIDES = [{"lower": 0, "upper": 24}, {"lower": 0, "upper": 200}, {"lower": -50, "upper": 50}]
VECTOR = {"kind": "vector-mean", "columns": ["Sleep", "Weight", "Mood"], "bounds": SIDES}
ASKED = [
    {"name": "smokes", "kind": "choice", "text": "Do you smoke?", "options": ["never", "at times", "daily"]},
    {"name": "ways", "kind": "choice", "options": ["foot", "bike", "car"], "several": 2},
    {"name": "way", "kind": "number", "lower": 0, "upper": 120},
]


def asked_study(server: Any, *questions: Any, epsilon: float = 1.0, **more: Any) -> str:
    plan = {"title": "Way", "promise": epsilon, "collection": {"min_batch": 2}, "questions": list(questions), **more}
    return str(server.ask("", plan)["id"])


LOOKS = """
() => {
  const rgb = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const linear = (v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  const light = ([r, g, b]) => 0.2126 * linear(r / 255) + 0.7152 * linear(g / 255) + 0.0722 * linear(b / 255);
  const behind = (element) => {
    for (let e = element; e; e = e.parentElement) {
      const colour = rgb(getComputedStyle(e).backgroundColor);
      if (colour.length === 3 || colour[3] > 0) return colour;
    }
    return [255, 255, 255];
  };
  const weak = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    const text = walker.currentNode.textContent.trim();
    if (!text || !element.checkVisibility() || element.closest("title, noscript")) continue;
    const style = getComputedStyle(element);
    const [a, b] = [light(rgb(element.closest("svg") ? style.fill : style.color)), light(behind(element))];
    const contrast = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (contrast < 4.5) weak.push([text, contrast]);
  }
  const fields = [...document.querySelectorAll("input, select, textarea")];
  const visible = fields.filter((e) => e.type !== "hidden" && !e.hidden);
  return {
    weak,
    unlabelled: visible.filter((e) => e.labels.length === 0).map((e) => e.outerHTML),
    twice: [...document.querySelectorAll("[id]")].map((e) => e.id).filter((id, i, all) => all.indexOf(id) !== i),
    landmarks: ["header", "main", "footer"].filter((name) => document.querySelectorAll(`body > ${name}`).length !== 1),
    headings: document.querySelectorAll("h1").length,
    pictures: [...document.querySelectorAll("svg")].filter((e) => !e.getAttribute("aria-label")).length,
    inline: document.querySelectorAll("[style], style, script:not([src])").length,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    language: document.documentElement.lang,
  };
}
"""
# What is folded is opened as by a person, from the outside in.
UNFOLD = """
() => {
  for (const summary of document.querySelectorAll("details > summary")) {
    if (!summary.parentElement.open && summary.checkVisibility()) summary.click();
  }
}
"""
FINE = {
    "weak": [],
    "unlabelled": [],
    "twice": [],
    "landmarks": [],
    "headings": 1,
    "pictures": 0,
    "inline": 0,
    "wide": 0,
    "language": "en",
}


def _serve(received: str, *arguments: str) -> None:
    from hybridp.cli import main
    from hybridp.service import app as served

    build = served.build_app
    file = open(received, "ab", buffering=0)  # noqa: SIM115 - as long as the process
    if os.environ.get("LOSE_ANSWERS"):
        _lose_answers()
    served.build_app = lambda *given, **more: recording(build(*given, **more), file)
    main(["serve", *arguments])


def _lose_answers() -> None:
    """A store that commits and then goes away before it has said so: of every two uploads the first is told 503."""
    from hybridp.service.problems import Refused
    from hybridp.service.store import Writer

    whole, told = Writer.store, [0]

    async def store(self: Any, batch: Any) -> Any:
        found = await whole(self, batch)
        told[0] += 1
        if told[0] % 2:
            raise Refused("unavailable", "The store did not answer: send the reports again.", retry_after=2)
        return found

    Writer.store = store  # type: ignore[method-assign]


if __name__ == "__main__":
    _serve(*sys.argv[1:])
