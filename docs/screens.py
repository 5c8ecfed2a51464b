"""The guides' pictures of pages, taken by Chromium of a running service: `python docs/screens.py [FOLDER]`.

Needs the extras `service` and `test`, and Chromium. It takes four minutes, in which made-up people come. With a FOLDER
the pictures are written there, with those of a phone beside them, to look at; without one docs/images has them.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes
from typing import Any

import numpy as np
import uvicorn
from PIL import Image
from playwright.sync_api import Page, sync_playwright

from hybridp.device.client import fetch_task, local_report, send_reports, trusted_report
from hybridp.noise import secure, seeded, synthetic_data_generator
from hybridp.public.mixing import Signer, text
from hybridp.service import studies
from hybridp.service.app import build_app, listen
from hybridp.service.settings import Limits, Settings

__all__ = ["main"]

IMAGES = Path(__file__).resolve().parent / "images"
PEOPLE, SECONDS, OPT_IN = 3_000, 420, 0.05
AT_ONCE = 500  # reports a request
WAY = {
    "name": "way",
    "kind": "number",
    "text": "How many minutes did you need to get to work yesterday, one way?",
    "unit": "minutes",
    "lower": 0,
    "upper": 120,
}
SHORT = {**WAY, "text": "How many minutes, one way?"}
SMOKES = {"name": "smokes", "kind": "choice", "text": "Do you smoke?", "options": ["never", "at times", "daily"]}
COMES = {"name": "ways", "kind": "choice", "text": "How do you come to work?", "several": 2,
         "options": ["on foot", "bicycle", "car", "bus or train"]}  # fmt: skip


def _study(*questions: dict[str, Any], **more: Any) -> dict[str, Any]:
    said = {"purpose": "to plan the bus lines", "contact": "survey@town.example", "delete_by": "2028-02-15T00:00:00Z"}
    asker = {"title": "The way to work", "asked_by": "the town council", "promise": {"epsilon": 1.0}}
    return {**asker, "collection": said, "questions": list(questions), **more}


def _mixer() -> dict[str, Any]:
    who = {"url": "https://mixer.example", "run_by": "the university", "key": text(Signer(token_bytes(32)).public)}
    return {"batch": 1000, "delta": 1e-6, **who}


@dataclass(frozen=True, slots=True)
class Demo:
    """A study online, and the key of its analyst."""

    base_url: str
    study_id: str
    key: str


@contextmanager
def _serve(folder: Path) -> Iterator[Demo]:
    """A server with a study of the way to work, open to all, in a new database."""
    trusted = round(PEOPLE * OPT_IN)
    people = {"trusted": trusted, "local": PEOPLE - trusted}
    said = {"purpose": "to show how a study works; the people in it are made up", "time_precision": 1}
    plan = {
        "title": "Demo: the way to work (made-up people)",
        "asked_by": "nobody: this is a demonstration of hybridp",
        "promise": {"epsilon": 1.0},
        "people": people,
        "collection": {**said, "contact": "whoever started the demonstration"},
        "questions": [{**WAY, "step": 1, "sd": 20}],
    }
    with listen("127.0.0.1", 0) as (listening, base_url):
        database, everybody = f"sqlite:///{(folder / 'demo.db').resolve()}", Limits(rate=0)  # they have one address
        app = build_app(Settings.from_environment(database, folder / "demo.key", base_url, everybody))
        service = app.state.service
        key, study_id = studies.add_analyst(service, "demo"), str(studies.create_study(service, plan)["id"])
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False))
        serving = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, name="server")
        serving.start()
        try:
            yield Demo(base_url, study_id, key)
        finally:
            server.should_exit = True
            serving.join()


def _take_part(demo: Demo, people: int, seconds: float) -> None:
    """Let made-up people answer the study one after the other, by a device's client: many come early, few late.

    Their reports are drawn as real devices draw them. Minutes on the way to work are skewed like real ones, with a
    median of 27.
    """
    task, rng, made_up = fetch_task(demo.base_url, demo.study_id), secure(), synthetic_data_generator(seeded(2010))
    values = np.clip(np.round(27 * np.exp(0.6 * made_up.standard_normal(people))), 1, 240).tolist()
    when = np.sort(made_up.beta(1.3, 2.0, people)) * seconds
    trusts = (made_up.random(people) < OPT_IN).tolist()
    began, sent = time.monotonic(), 0
    while sent < people:
        due = int(np.searchsorted(when, time.monotonic() - began, side="right"))
        stop = min(due, sent + AT_ONCE)
        if stop == sent:
            time.sleep(0.2)
            continue
        made = [
            trusted_report(task, x) if trust else local_report(task, x, rng=rng)
            for x, trust in zip(values[sent:stop], trusts[sent:stop], strict=True)
        ]
        send_reports(demo.base_url, demo.study_id, made)
        sent = stop


def _created(demo: Demo, study: dict[str, Any]) -> str:
    headers = {"Authorization": f"Bearer {demo.key}", "Content-Type": "application/json"}
    asked = urllib.request.Request(f"{demo.base_url}/api/studies", json.dumps(study).encode(), headers)
    with urllib.request.urlopen(asked, timeout=60) as answer:
        return f"{demo.base_url}/s/{json.load(answer)['id']}"


def _take(page: Page, out: Path, width: int, height: int, *, phone: bool, card: str | None = None) -> None:
    """One picture of the top of a page, or from a card on; of 256 colours it is half the size."""
    page.set_viewport_size({"width": width, "height": height})
    top = 0.0 if card is None else page.locator(card).first.bounding_box()["y"]  # type: ignore[index]
    page.screenshot(path=out, clip={"x": 0, "y": top, "width": width, "height": height}, full_page=True)
    Image.open(out).convert("RGB").quantize(256).save(out, optimize=True)
    if phone:
        page.set_viewport_size({"width": 360, "height": 740})
        page.screenshot(path=out.with_stem(f"{out.stem}-phone"), full_page=True)


def _pictures(demo: Demo, out: Path, *, phone: bool) -> None:
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with sync_playwright() as p:
        where = shutil.which("chromium") or shutil.which("chromium-browser")
        page = p.chromium.launch(executable_path=where, args=["--disable-gpu", *root]).new_page()
        page.goto(f"{demo.base_url}/login")
        page.fill("#key", demo.key)
        page.click("form button")
        page.goto(f"{demo.base_url}/studies/{demo.study_id}")
        _take(page, out / "service.png", 850, 800, phone=phone)
        for name, study, card, width, height in (
            ("service-people", _study(WAY), None, 1000, 1090),
            ("service-questions", _study(SMOKES, COMES, SHORT), "#trusted", 900, 1230),
            ("mixer", _study(WAY, mixer=_mixer()), None, 1100, 1000),
        ):
            page.goto(_created(demo, study))
            _take(page, out / f"{name}.png", width, height, phone=phone, card=card)


def main(names: list[str]) -> None:
    out = Path(*names) if names else IMAGES

    with tempfile.TemporaryDirectory() as folder, _serve(Path(folder)) as demo:
        _take_part(demo, PEOPLE // 2, SECONDS / 2)
        _pictures(demo, out, phone=bool(names))


if __name__ == "__main__":
    main(sys.argv[1:])
