"""`study release`, stopped by a signal at each of its stages: what it says then is what the store says.

Each stage is held open by a hook in the real process, which says on stderr that it is there and goes on when a file
appears; no time decides anything.
"""

from __future__ import annotations

import asyncio
import re
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import func, select

from hybridp.service import studies
from hybridp.service.core import Service
from hybridp.service.schema import charges, connect, releases
from hybridp.service.settings import Settings
from hybridp.service.store import reading
from tests import warm

from .declared import study_of

Make = Callable[..., dict[str, Any]]
PATIENCE = 240  # seconds: for what will never come
HELD = """
import os, pathlib, signal, sys, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job ignores it
import hybridp.cli.study as command
import hybridp.service.studies as r
from hybridp.service.store import Sweeper
def here(name):
    sys.stderr.write(name + "\\n"); sys.stderr.flush()
def until(file):
    while not pathlib.Path(file).exists(): time.sleep(0.01)
def never():
    while True: time.sleep(0.01)
look = command._is_stored
command._is_stored = lambda *a: (here("looking"), look(*a))[1]
"""
READING = "r._prepared = r._between = lambda *a, **k: (here('ready'), never())"
COMMITTING = "once = r.release_once; r.release_once = lambda *a: (here('ready'), until('go'), once(*a))[2]"
ROLLING_BACK = "r.release_once = lambda *a: (here('ready'), until('go'), 1 / 0)"
SWEEPING = "Sweeper.wait = lambda *a: (here('ready'), never())"
FITTING = "command._print_release = lambda *a, **k: (here('ready'), never())"


class Stopped:
    def __init__(self, process: warm.Process, log: Path) -> None:
        self.process, self.log = process, log

    def until(self, word: str) -> None:
        limit = time.monotonic() + PATIENCE
        while f"{word}\n" not in self.log.read_text():
            assert self.process.poll() is None, self.log.read_text()
            assert time.monotonic() < limit, word
            time.sleep(0.02)

    def end(self) -> tuple[int, str]:
        code = self.process.wait(PATIENCE)
        (said,) = [line for line in self.log.read_text().splitlines() if line.startswith("hybridp: ")]
        assert "Traceback" not in self.log.read_text()
        return code, said


@contextmanager
def command(settings: Settings, folder: Path, hook: str, *words: str) -> Iterator[Stopped]:
    log = folder / "log"
    where = ("--database", settings.database, "--key-file", str(settings.key_file))
    with log.open("wb") as file:
        code = f"{HELD}\n{hook}\n{warm.COMMAND}"
        process = warm.Process(code, *words, *where, cwd=folder, stdout=file, stderr=file, env=warm.unbuffered())
    try:
        yield Stopped(process, log)
    finally:
        process.kill()


def filled(settings: Settings, plan: dict[str, Any], rows: list[dict[str, Any]], *, close: bool = True) -> str:
    service = Service(settings)
    study = str(studies.create_study(service, plan)["id"])
    assert asyncio.run(studies.submit(service, study, rows)) == []
    if close:
        studies.close_study(service, study)
    service.close()
    return study


def stored(settings: Settings) -> tuple[int, int]:
    """Releases and charges in the store."""
    engine = connect(settings.database)
    with reading(engine) as db:
        found = [int(db.execute(select(func.count()).select_from(one)).scalar_one()) for one in (releases, charges)]
    engine.dispose()
    return found[0], found[1]


NOTHING = "hybridp: interrupted; nothing was released."
IS_STORED = r"hybridp: interrupted; the release is stored: `(hybridp study .*)` shows it, uncharged\."
UNKNOWN = r"hybridp: interrupted; whether it was released is not known: `(hybridp study .*)` shows it, or makes it, .*"


def shown_again(settings: Settings, line: str) -> None:
    """The command that was named shows the release and charges nothing."""
    before = stored(settings)
    where = ("--database", settings.database, "--key-file", str(settings.key_file))
    done = warm.run(warm.COMMAND, *line.split()[1:], *where)
    assert done.returncode == 0, done.stderr
    assert done.stdout
    assert stored(settings) == before


HEAVY = {"kind": "heavy-hitters", "title": "h", "epsilon": 6, "delta": 1e-3, "min_batch": 2, "time_precision": 60}
STAGES = {
    "reading": (READING, signal.SIGTERM),
    "committing": (COMMITTING, signal.SIGINT),
    "rolling back": (ROLLING_BACK, signal.SIGTERM),
    "sweeping": (SWEEPING, signal.SIGINT),
    "reading of two phases": (READING, signal.SIGINT),
    "committing of two phases": (COMMITTING, signal.SIGINT),
}


@pytest.mark.parametrize("name", STAGES)
def test_what_an_interrupted_release_says_is_true(
    settings: Settings, tmp_path: Path, mean_plan: Make, report: Make, name: str
) -> None:
    (stage, number), phased = STAGES[name], "two phases" in name
    if phased:
        rows = [report(payload={"answers": {"answer": ["q", "u"]}}) for _ in range(50)]
        study = filled(settings, study_of(HEAVY), rows, close=False)
    else:
        study = filled(settings, mean_plan(), [report() for _ in range(4)])
    with command(settings, tmp_path, stage, "study", "open-phase" if phased else "release", study) as running:
        running.until("ready")
        running.process.send_signal(number)
        if not phased:
            running.until("looking")
        (tmp_path / "go").touch()
        code, said = running.end()
    assert code == 130
    if stage in (READING, ROLLING_BACK):
        assert (said, stored(settings)) == (NOTHING, (0, 0))
    else:
        assert stored(settings)[0] == 1
        found = re.fullmatch(IS_STORED, said)
        assert found is not None, said
        shown_again(settings, found[1])


def test_a_second_interrupt_before_the_store_answers_says_that_nobody_knows(
    settings: Settings, tmp_path: Path, mean_plan: Make, report: Make
) -> None:
    study = filled(settings, mean_plan(), [report() for _ in range(4)])
    unanswered = f"{COMMITTING}; command._is_stored = lambda *a: (here('looking'), never())"
    with command(settings, tmp_path, unanswered, "study", "release", study) as running:
        running.until("ready")
        running.process.send_signal(signal.SIGINT)
        running.until("looking")
        running.process.send_signal(signal.SIGINT)
        (tmp_path / "go").touch()
        code, said = running.end()
    assert code == 130
    found = re.fullmatch(UNKNOWN, said)
    assert found is not None, said
    shown_again(settings, found[1])  # it was stored after all


def test_an_interrupt_while_a_stored_release_is_shown(
    settings: Settings, tmp_path: Path, mean_plan: Make, report: Make
) -> None:
    study = filled(settings, mean_plan(), [report() for _ in range(4)])
    with command(settings, tmp_path, FITTING, "study", "release", study) as running:
        running.until("ready")
        running.process.send_signal(signal.SIGINT)
        code, said = running.end()
    assert (code, stored(settings)) == (130, (1, 1))
    assert "after the release was made" in said


LOST = """
from sqlalchemy.exc import OperationalError
whole = r.release_once
def cut(db, *a):
    found = whole(db, *a)
    if db.dialect.name == "postgresql":
        db.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
    raise OperationalError("COMMIT", None, Exception("lost"))
r.release_once = cut
"""
AWAY = LOST + "command._is_stored = lambda *a: (_ for _ in ()).throw(OperationalError('look', None, Exception('away')))"


def test_a_connection_that_is_lost_in_the_commit(
    settings: Settings, tmp_path: Path, mean_plan: Make, report: Make
) -> None:
    """The store is asked anew; where it does not answer either, nobody knows, and the same command finds out."""
    study = filled(settings, mean_plan(), [report() for _ in range(4)])
    with command(settings, tmp_path, LOST, "study", "release", study) as running:
        code, said = running.end()
    assert (code, stored(settings)) == (2, (0, 0))
    assert said.endswith("; nothing was released.")
    with command(settings, tmp_path, AWAY, "study", "release", study) as running:
        code, said = running.end()
    assert code == 4
    assert "whether it was released is not known" in said
