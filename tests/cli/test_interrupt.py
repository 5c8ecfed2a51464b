"""Ctrl-C, sent to a real process in its work: exit code 130, one sentence, no traceback, nothing spent."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from pathlib import Path

import pytest

from tests import warm

MEAN = (
    "release mean people.csv --column pay --trust trust "
    "--missing middle --lower 0 --upper 100000 --epsilon 1 --simulate-local"
)
FIT = "synth fit people.csv --column trust --domain-from-file --marginals trust --epsilon 1 --delta 1e-6 --out model"

READY = "sys.stderr.write('ready\\n'); sys.stderr.flush()"
QUERY = f"""
from hybridp.tables.engine import Duck
def long(self, sql):
    {READY}
    return self.connection.execute("SELECT sum(a.range * b.range) FROM range(10000000) a, range(10000000) b").fetchall()
Duck.ask = long
"""
NUMPY = f"""
import numpy as np
from hybridp.protocols import driver
def long(*_, **__):
    {READY}
    while True:
        np.sort(np.arange(100_000)[::-1])
driver.sum_reports = long
"""
FITTING = f"""
import numpy as np
from hybridp.tasks import table
def long(*_, **__):
    {READY}
    while True:
        np.ones((200, 200)) @ np.ones((200, 200))
table.fit_rows = long
"""


def interrupted(folder: Path, line: str | list[str], before: str) -> tuple[int, list[str], str]:
    """Exit code, what stderr says after the work began, and stdout."""
    # A shell's background jobs ignore Ctrl-C, and so would this one when the tests are such a job.
    heard = "import signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)"
    code = f"import sys\n{heard}\n{before}\nfrom hybridp.cli.app import main\nmain(sys.argv[1:])"
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        words = line.split() if isinstance(line, str) else line
        child = warm.Process(code, *words, cwd=folder, stdout=out, stderr=err)
        try:
            while "ready\n" not in os.pread(err.fileno(), 10_000, 0).decode():
                assert child.poll() is None
                time.sleep(0.02)
            time.sleep(0.3)  # into the query; earlier is as good, and is an interrupt of Python's own
            child.send_signal(signal.SIGINT)
            ended = child.wait()  # once: whoever pressed it need not press again
        finally:
            child.kill()
        said, told = (os.pread(file.fileno(), 10_000, 0).decode() for file in (err, out))
        return ended, [line for line in said.partition("ready\n")[2].splitlines() if line], told


@pytest.fixture
def people(tmp_path: Path) -> Path:
    rows = [f"{20_000 + 137 * i},{'trusted' if i % 2 else 'local'}" for i in range(120)]
    (tmp_path / "people.csv").write_text("\n".join(["pay,trust", *rows]) + "\n")
    return tmp_path


@pytest.mark.parametrize("before", [QUERY, NUMPY], ids=["a query", "numpy"])
def test_ctrl_c_in_a_release(people: Path, before: str) -> None:
    code, said, out = interrupted(people, f"{MEAN} --ledger l.ledger", before)
    assert (code, said, out) == (130, ["hybridp: interrupted; nothing was released."], "")
    assert [file.name for file in people.iterdir()] == ["people.csv"]


def test_ctrl_c_in_a_fit(people: Path) -> None:
    code, said, out = interrupted(people, FIT, FITTING)
    assert (code, out) == (130, "")
    (sentence,) = said
    assert "nothing was released" in sentence


def test_ctrl_c_is_how_the_service_is_stopped(tmp_path: Path) -> None:
    pytest.importorskip("uvicorn")
    before = f"from hybridp.cli import serve\ndef told(text):\n    if 'Serving' in text: {READY}\nserve.note = told"
    code, said, out = interrupted(tmp_path, "serve --port 0 --database sqlite:///s.db --key-file s.key", before)
    assert (code, said, out) == (0, [], "")
