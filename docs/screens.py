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
import urllib.request
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import Page, sync_playwright

from hybridp.cli.demo import Demo, demo_plan, serve_demo, take_part
from hybridp.public.mixing import Signer, new_key, text

__all__ = ["main"]

IMAGES = Path(__file__).resolve().parent / "images"
PEOPLE, SECONDS = 3_000, 420
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
    who = {"url": "https://mixer.example", "run_by": "the university", "key": text(Signer(new_key()).public)}
    return {"batch": 1000, "delta": 1e-6, **who}


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

    with (
        tempfile.TemporaryDirectory() as folder,
        serve_demo(Path(folder), demo_plan(PEOPLE, 0.05, 1.0), port=0) as demo,
    ):
        take_part(demo, PEOPLE // 2, 0.05, SECONDS / 2)
        _pictures(demo, out, phone=bool(names))


if __name__ == "__main__":
    main(sys.argv[1:])
