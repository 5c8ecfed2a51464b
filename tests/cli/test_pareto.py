"""`hybridp pareto`: a problem of the user's, from its file to a suggestion; refusals are sentences."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hybridp.cli import pareto
from hybridp.errors import HybridpError

PROBLEM = """
import numpy as np
from hybridp.pareto import LogReal, Problem, Space

def privacy(setting):
    return 1 / setting["b"]

def utility(setting, seed):
    return np.clip(1 / (1 + setting["b"]) + 0.02 * np.random.default_rng(seed).normal(size=8), 0, 1)

problem = Problem("mine", Space({"b": LogReal(0.01, 100)}), privacy, utility)
failing = Problem("failing", Space({"b": LogReal(0.01, 100)}), privacy, lambda s, seed: 1 / 0)
half = Problem("half", Space({"b": LogReal(0.01, 100)}), privacy, lambda s, seed: 0.5 if s["b"] < 1 else 1 / 0)
loud = Problem("loud", Space({"b": LogReal(0.01, 100)}), privacy, lambda s, seed: print("987654.321") or 0.5)
"""


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(PROBLEM)
    return tmp_path


def ask(command: click.Command, line: str) -> dict:
    found = CliRunner().invoke(command, line.split(), catch_exceptions=False, standalone_mode=False)
    return json.loads(found.stdout)


def test_worker_processes_receive_the_file_by_value(place: Path) -> None:
    ran = ask(pareto.run, "mine.py:problem --init 4 --steps 0 --jobs 2 --json")
    assert (ran["evaluations"], ran["failures"]) == (4, [])


def test_failures_are_reported_and_do_not_stop(place: Path) -> None:
    ran = ask(pareto.run, "mine.py:half --init 8 --steps 0 --json")
    assert ran["evaluations"] == 4
    assert ran["failures"] == ["the oracle raised ZeroDivisionError"] * 4


def test_an_oracle_that_never_answers_ends_the_command(place: Path) -> None:
    line = "mine.py:failing --init 2 --steps 1 --out kept.jsonl --json"
    with pytest.raises(HybridpError, match=r"3 failures, the last: .*the oracle raised ZeroDivisionError"):
        CliRunner().invoke(pareto.run, line.split(), catch_exceptions=False, standalone_mode=False)
    with pytest.raises(HybridpError, match="at least one evaluation that succeeded"):
        CliRunner().invoke(pareto.front, ["kept.jsonl"], catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize("jobs", [1, 2])
def test_what_an_oracle_prints_stays_out_of_the_answer(
    place: Path, capfd: pytest.CaptureFixture[str], jobs: int
) -> None:
    from hybridp.cli.app import main

    with pytest.raises(SystemExit) as ended:
        main(["pareto", "run", "mine.py:loud", "--init", "2", "--steps", "0", "--jobs", str(jobs), "--json"])
    said = capfd.readouterr()
    assert ended.value.code == 0
    assert json.loads(said.out)["evaluations"] == 2
    assert "987654" not in said.out
    assert jobs > 1 or "987654" in said.err  # workers may be older than this test and write where it cannot see
