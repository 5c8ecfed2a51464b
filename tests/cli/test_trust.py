"""Who trusts, on the command line: words of one's own, everybody alike, a drawn trial; and a query for rows."""

from __future__ import annotations

import csv
import random
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Runner

BOUNDS = "--missing middle --lower 0 --upper 100 --epsilon 1"


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """One's own CSV: a yes/no column, and nothing called trusted or local."""
    monkeypatch.chdir(tmp_path)
    draw = random.Random(4)
    with open("people.csv", "w", newline="") as file:
        out = csv.writer(file)
        out.writerow(["who", "pay", "age", "colour", "consent"])
        for who in range(800):
            out.writerow([who, draw.randrange(100), draw.randrange(100), draw.choice(["red", "blue"]),
                          draw.choice(["yes", "no", "no", ""])])  # fmt: skip
    return tmp_path / "people.csv"


def groups(document: dict[str, Any]) -> tuple[int, int]:
    (statistics,) = document["questions"].values()
    facts = next(iter(statistics.values()))
    told = facts["groups"]
    return told["trusted"]["people"], told["local"]["people"]


def test_a_yes_no_column_is_told_which_option_helps_and_the_option_does(run: Runner, people: Path) -> None:
    said = run(f"randomise mean people.csv --column pay --trust consent {BOUNDS} --out r.csv")
    assert said.code == 2
    assert "Got the words no, yes in `consent`. Add --trusted-value yes (in a study: `trust.trusted`)." in said.err
    assert not Path("r.csv").exists()
    line = f"randomise mean people.csv --column pay --trust consent --trusted-value yes {BOUNDS} --out r.csv"
    assert run(line).code == 0
    said = run(f"release mean r.csv --column pay --trust consent {BOUNDS}")
    assert said.code == 2
    assert "Add --trusted-value yes (in a study: `trust.trusted`)." in said.err
    done = run(f"release mean r.csv --column pay --trust consent --trusted-value yes {BOUNDS} --ledger a.ledger --json")
    assert done.code == 0
    words = [row["consent"] for row in csv.DictReader(people.read_text().splitlines())]
    assert groups(done.document) == (words.count("yes"), 800 - words.count("yes"))
    assert done.document["simulated"] is False
    rule = "in `consent`, yes means trusted; any other word, or none, means local"
    assert rule in done.document["receipt"]["assumes"]


def test_all_local_randomises_everybody_and_no_column_is_added(run: Runner, people: Path) -> None:
    for i, option in enumerate(("--everyone local", "")):
        made = run(f"randomise mean people.csv --column pay {option} {BOUNDS} --out {i}.csv --json")
        assert made.document["randomised"] == 800
        assert Path(f"{i}.csv").read_text().splitlines()[0] == "pay,report,report_mechanism"
    assert run(f"randomise mean people.csv --column pay --everyone trusted {BOUNDS} --out no.csv").code == 2
    done = run(f"release mean 0.csv --column pay --everyone local {BOUNDS} --json")
    assert groups(done.document) == (0, 800)
    assert done.document["questions"]["pay"]["mean"]["trusted"] is None


# --- the rows of a query ----------------------------------------------------------------------------------------------
