"""The key file that is missing, or another one: nothing starts, no new one is made in silence, /healthz knows."""

from __future__ import annotations

import asyncio
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.schema import connect, meta
from hybridp.service.settings import KeyRing, Settings, load, save
from hybridp.service.store import writing
from tests import warm

Make = Callable[..., dict[str, Any]]
ALWAYS_LOOKS = "import hybridp.service.core as c; c._BELIEVED = 0.0"


@pytest.fixture
def filled(settings: Settings, mean_plan: Make, report: Make) -> str:
    """A study with sealed answers."""
    service = Service(settings)
    study = str(studies.create_study(service, mean_plan())["id"])
    assert asyncio.run(studies.submit(service, study, [report() for _ in range(4)])) == []
    studies.close_study(service, study)
    service.close()
    return study


def command(settings: Settings, *words: str) -> Any:
    where = ("--database", settings.database, "--key-file", str(settings.key_file))
    return warm.run(warm.COMMAND, *words, *where)


def refused(done: Any) -> str:
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert done.stderr.count("\n") == 1
    assert "mount its disk, put its backup back" in done.stderr
    return str(done.stderr)


def test_without_its_key_file_nothing_starts_and_no_new_key_is_made(settings: Settings, filled: str) -> None:
    kept = settings.key_file.rename(settings.key_file.with_suffix(".away"))
    for words in (("serve", "--port", "0"), ("study", "list"), ("study", "release", filled), ("study", "rotate-key")):
        assert f"Got no {settings.key_file}" in refused(command(settings, *words))
        assert not settings.key_file.exists()
    kept.rename(settings.key_file)
    found = command(settings, "study", "release", filled, "--json")
    assert json.loads(found.stdout)["study"] == filled


@pytest.mark.parametrize("written_down", [True, False])
def test_with_another_key_nothing_starts(settings: Settings, filled: str, written_down: bool) -> None:
    """Also where an earlier program did not write down which key it was."""
    if not written_down:
        engine = connect(settings.database)
        with writing(engine) as db:
            assert db.execute(meta.delete().where(meta.c.key == "key")).rowcount == 1
        engine.dispose()
    shutil.copy(settings.key_file, kept := settings.key_file.with_suffix(".away"))
    save(settings.key_file, KeyRing.fresh())
    for words in (("serve", "--port", "0"), ("study", "list"), ("study", "rotate-key")):
        assert "Got another key" in refused(command(settings, *words))
    shutil.copy(kept, settings.key_file)
    assert filled in command(settings, "study", "list").stdout


def test_a_first_start_makes_the_key_and_says_so_once(settings: Settings) -> None:
    settings.key_file.unlink()
    first, second = (command(settings, "study", "list").stderr for _ in range(2))
    assert "Made a new key" in first
    assert str(settings.key_file) in first
    assert "Made a new key" not in second
    settings.key_file.unlink()  # nothing was sealed by it yet
    assert "Made a new key" in command(settings, "study", "list").stderr


def test_health_fails_when_the_key_goes_or_changes_and_comes_back_with_it(
    settings: Settings, filled: str, start_server: Callable[..., Any]
) -> None:
    http = start_server(ALWAYS_LOOKS).http
    assert http.get("/healthz").status_code == 200
    kept = settings.key_file.rename(settings.key_file.with_suffix(".away"))
    told = http.get("/healthz")
    assert (told.status_code, "key file is gone" in told.text) == (503, True)
    assert str(settings.key_file) not in told.text
    save(settings.key_file, KeyRing.fresh())
    assert http.get("/healthz").status_code == 503
    shutil.copy(kept, settings.key_file)
    assert http.get("/healthz").status_code == 200


def test_a_rotation_is_known_and_the_old_key_starts_nothing(settings: Settings, filled: str, tmp_path: Path) -> None:
    shutil.copy(settings.key_file, old := tmp_path / "old.key")
    assert command(settings, "study", "rotate-key").returncode == 0
    assert load(settings.key_file).current == 2
    assert filled in command(settings, "study", "list").stdout
    shutil.copy(old, settings.key_file)
    assert "Got another key" in refused(command(settings, "study", "list"))
