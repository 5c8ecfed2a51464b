"""`hybridp demo --serve`: a server with one study, and a crowd of made-up people who answer it while one watches."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hybridp.cli.common import note, progress
from hybridp.errors import must

__all__ = ["Demo", "demo_plan", "run", "serve_demo"]


@dataclass(frozen=True, slots=True)
class Demo:
    """What to tell whoever started it."""

    base_url: str
    study_id: str
    key: str


Crowd = Callable[[Demo, Callable[[], bool]], None]
"""Called with where the study is, and a function that says when to stop."""


def run(
    out: Path, *, people: int, opt_in: float, epsilon: float, seconds: float, port: int, stay: bool
) -> dict[str, Any]:
    """Serve, let the crowd come, and stop in good order on Ctrl-C; the study's summary."""
    from hybridp.cli.serve import needs_service

    needs_service()
    from hybridp.device.client import take_part
    from hybridp.randomness import secure, seeded

    must(1 <= people <= 1_000_000, "n", "must be at least 1 and at most 1,000,000", people)
    must(0 <= opt_in <= 1, "opt-in", "must be at least 0 and at most 1", opt_in)
    must(0 <= seconds <= 86_400, "seconds", "must be at least 0 and at most a day", seconds)

    def crowd(demo: Demo, stopped: Callable[[], bool]) -> None:
        note(
            f"Take part:  {demo.base_url}/s/{demo.study_id}\n"
            f"Watch:      {demo.base_url}/studies/{demo.study_id}?live=3\n"
            f"            log in with {demo.key}\n"
            "Made-up people are on their way; stop with Ctrl-C."
        )
        with progress() as bar:
            task = bar.add_task("people", total=people)
            take_part(
                demo.base_url,
                demo.study_id,
                people=people,
                opt_in=opt_in,
                seconds=seconds,
                made_up=seeded(2010),
                rng=secure(),
                tick=lambda sent: bar.update(task, completed=sent),
                stopped=stopped,
            )
        if stay and not stopped():
            note("All have come. Close the study and release it on its page, or stop with Ctrl-C.")

    found = serve_demo(out, crowd, demo_plan(people, opt_in, epsilon), port=port, keep=stay)
    came = found["people"]
    note(f"{came['trusted']:,} trusted and {came['local']:,} local people took part; the study is in {out}.")
    return found


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


def serve_demo(folder: Path, crowd: Crowd, plan: dict[str, Any], *, port: int, keep: bool) -> dict[str, Any]:
    """Serve until interrupted (or, without `keep`, until the crowd is through); the study's summary at the end.

    Every demonstration is a new study in a new database: an old one in the folder is replaced.
    """
    import uvicorn

    from hybridp.service import studies
    from hybridp.service.app import build_app, listen
    from hybridp.service.core import Service
    from hybridp.service.settings import Limits, Settings

    failed: list[Exception] = []
    with listen("127.0.0.1", port) as (listening, base_url):
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
        key, study_id = studies.add_analyst(service, "demo"), str(studies.create_study(service, plan)["id"])
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))

        def visit() -> None:
            while not server.started:
                if server.should_exit:
                    return
                time.sleep(0.05)
            try:
                crowd(Demo(base_url, study_id, key), lambda: server.should_exit)
            except Exception as error:
                # Interrupted in the middle of a request: the server was told to go, and went.
                if not server.should_exit:
                    failed.append(error)
            finally:
                if not keep or failed:
                    server.should_exit = True

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
