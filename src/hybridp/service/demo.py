"""A server with one study that a crowd of made-up people answers while one watches.

The crowd is a function that is handed in: participants are clients, and a server does not know how they make reports.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridp.service import studies
from hybridp.service.app import build_app, listen
from hybridp.service.core import Service
from hybridp.service.settings import Limits, Settings

__all__ = ["Demo", "demo_plan", "serve_demo"]

Crowd = Callable[[str, str, Callable[[], bool]], None]
"""Called with the server's address, the study's id, and a function that says when to stop."""


@dataclass(frozen=True, slots=True)
class Demo:
    """What to tell whoever started it."""

    base_url: str
    study_id: str
    key: str

    @property
    def link(self) -> str:
        return f"{self.base_url}/s/{self.study_id}"

    @property
    def page(self) -> str:
        return f"{self.base_url}/studies/{self.study_id}?live=3"


def demo_plan(people: int, opt_in: float, epsilon: float) -> dict[str, Any]:
    """The plan of the study: minutes on the way to work, open to all.

    >>> demo_plan(10_000, 0.05, 1.0)["people"]
    {'trusted': 500, 'local': 9500}
    """
    trusted = round(people * opt_in)
    question = {
        "name": "way",
        "kind": "number",
        "text": "How many minutes did you need to get to work yesterday, one way?",
        "unit": "minutes",
        "lower": 0,
        "upper": 120,
        "step": 1,
        "sd": 20,
    }
    return {
        "title": "Demo: the way to work (made-up people)",
        "asked_by": "nobody: this is a demonstration of hybridp",
        "promise": {"epsilon": epsilon},
        "people": {"trusted": trusted, "local": people - trusted},
        "collection": {
            "purpose": "to show how a study works; the people in it are made up",
            "contact": "whoever started the demonstration",
            "time_precision": 1,
        },
        "questions": [question],
    }


def serve_demo(
    folder: Path,
    crowd: Crowd,
    *,
    people: int = 10_000,
    opt_in: float = 0.05,
    epsilon: float = 1.0,
    host: str = "127.0.0.1",
    port: int = 8000,
    tell: Callable[[Demo], None],
    keep: bool = True,
) -> dict[str, Any]:
    """Serve until interrupted (or, without `keep`, until the crowd is through); the study's summary at the end.

    Every demonstration is a new study in a new database: an old one in the folder is replaced.
    """
    with listen(host, port) as (listening, base_url):
        return _serve(listening, base_url, folder, crowd, demo_plan(people, opt_in, epsilon), tell, keep)


def _serve(
    listening: socket.socket,
    base_url: str,
    folder: Path,
    crowd: Crowd,
    plan: dict[str, Any],
    tell: Callable[[Demo], None],
    keep: bool,
) -> dict[str, Any]:
    import uvicorn

    folder.mkdir(parents=True, exist_ok=True)
    for old in ("demo.db", "demo.db-wal", "demo.db-shm", "demo.key"):
        (folder / old).unlink(missing_ok=True)
    settings = Settings.from_environment(
        database=f"sqlite:///{(folder / 'demo.db').resolve()}",
        key_file=folder / "demo.key",
        base_url=base_url,
        limits=Limits(rate=0),  # the whole crowd comes from one address
    )
    app = build_app(settings)
    service = app.state.service
    key = studies.add_analyst(service, "demo")
    study_id = str(studies.create_study(service, plan)["id"])
    server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))

    def visit() -> None:
        while not server.started:
            if server.should_exit:
                return
            time.sleep(0.05)
        tell(Demo(base_url, study_id, key))
        try:
            crowd(base_url, study_id, lambda: server.should_exit)
        except Exception as error:
            # Interrupted in the middle of a request: the server was told to go, and went.
            if not server.should_exit:
                failed.append(error)
        finally:
            if not keep or failed:
                server.should_exit = True

    failed: list[Exception] = []
    visitors = threading.Thread(target=visit, name="crowd", daemon=True)
    visitors.start()
    with contextlib.suppress(KeyboardInterrupt):  # uvicorn stops in good order, then passes the signal on
        server.run(sockets=[listening])
    server.should_exit = True
    visitors.join(timeout=10)
    if failed:
        raise failed[0]
    again = Service(settings)
    try:
        return studies.study_summary(again, study_id)
    finally:
        again.close()
