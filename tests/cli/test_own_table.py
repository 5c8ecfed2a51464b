"""A new user's way, in an empty folder: one's own CSV with a yes/no column to a kept release, in four commands."""

from __future__ import annotations

import json
import random
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests import warm

PAYS = 4000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Nothing but people's answers."""
    draw = random.Random(11)
    rows = [f"{draw.gauss(52_000, 9_000):.0f},{'yes' if draw.random() < 0.2 else 'no'}" for _ in range(PAYS)]
    (tmp_path / "people.csv").write_text("\n".join(["salary,consent", *rows]) + "\n")
    return tmp_path


def hybridp(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """The command, as a process of its own, with no terminal to ask."""
    return warm.run(warm.COMMAND, *words, cwd=folder)


def answer(folder: Path, *words: str) -> dict[str, Any]:
    done = hybridp(folder, *words, "--json")
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_four_commands_lead_from_a_table_to_a_kept_release(folder: Path) -> None:
    assert hybridp(folder, "init", "people.csv", "--yes").returncode == 0
    answer(folder, "randomise", "study.toml", "people.csv", "--out", "reports.csv")
    found = answer(folder, "release", "study.toml", "reports.csv", "--ledger", "town.ledger", "--out", "release.json")
    kept = answer(folder, "ledger", "show", "town.ledger", "--release", "1")

    mean = found["questions"]["salary"]["mean"]
    low, high = mean["interval"]
    assert low - 2 * (high - low) < 52_000 < high + 2 * (high - low)  # real noise: ten standard errors
    assert low <= mean["estimate"] <= high
    assert set(mean) >= {"estimate", "interval", "trusted", "local"}
    assert found["schema"] == 1
    assert not found["simulated"]
    assert kept["questions"] == found["questions"]
    assert json.loads((folder / "release.json").read_text())["questions"] == found["questions"]
    accounts = answer(folder, "ledger", "show", "town.ledger")["accounts"]
    assert {account["spent"]["epsilon"] for account in accounts} == {1.0}
    # The reports' file holds no local person's salary, and a second release is refused: the promise is spent.
    local = [line.split(",") for line in (folder / "reports.csv").read_text().splitlines()[1:] if ",no," in line]
    assert len(local) > 2500
    assert {fields[0] for fields in local} <= {"", '""'}
    again = hybridp(folder, "release", "study.toml", "reports.csv", "--ledger", "town.ledger")
    assert again.returncode == 3
    assert again.stdout == ""


def test_bounds_that_were_guessed_are_said_until_somebody_chooses_them(folder: Path) -> None:
    hybridp(folder, "init", "people.csv", "--yes")
    planned = hybridp(folder, "plan", "study.toml", "people.csv")
    assert planned.returncode == 0
    assert "the bounds of `salary`, 0 to 200000, are a guess from its name" in planned.stderr
    text = (folder / "study.toml").read_text()
    text = re.sub(r"upper = \d+", "upper = 120000", text).replace("guessed = true\n", "")
    (folder / "study.toml").write_text(text)
    planned = hybridp(folder, "plan", "study.toml", "people.csv", "--json")
    assert planned.stderr == ""
    assert json.loads(planned.stdout)["questions"]["salary"]["mean"]["predicted"]
