"""`plan`, `randomise` and `release` of a regression: what is refused, in one sentence, and what is kept."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from hybridp.ledger import Ledger

from .conftest import SECRET, Runner

ASK = "--target y --on a,b --missing middle --lower 0 0 0 --upper 10 10 10 --trust trust --epsilon 1"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    draw = np.random.default_rng(1)
    lines = []
    for i in range(4000):
        a, b = draw.uniform(0, 10, 2)
        lines.append(
            f"{a:.3f},{b:.3f},{0.4 * a + 0.3 * b + draw.normal():.3f},{int(a > 5)},{'local' if i % 2 else 'trusted'}"
        )
    lines[2] = f"{SECRET},{SECRET},{SECRET},{SECRET},trusted"
    file = tmp_path / "people.csv"
    file.write_text("a,b,y,z,trust\n" + "\n".join(lines) + "\n")
    return file


@pytest.mark.parametrize("way", ["--simulate-local", "--invite-out i.json"])
def test_a_look_at_rows_that_fails_by_a_value_stays_charged(run: Runner, people: Path, way: str) -> None:
    """That somebody's row is damaged is told, so that it is paid for."""
    with people.open("a") as file:
        file.write("1,2,3,0,trusted,5\n")
    assert run(f"release regression people.csv {ASK} --ledger m {way}").code == 2
    charged = [e for e in Ledger.open("m").history() if e.people == "trusted"]
    assert {e.state for e in charged} == {"refused"}
    assert sum(e.budget.epsilon for e in charged) == pytest.approx(1)
    assert not Path("i.json").exists()


def test_two_phases_and_an_invitation_that_was_changed(run: Runner, people: Path) -> None:
    sent = run(f"release regression people.csv {ASK} --ledger l --invite-out i.json --json").document
    assert sent["local_people"] == 2000
    assert sent["expected"][sent["form"]] == min(sent["expected"].values())
    assert run("randomise regression people.csv --invite i.json --epsilon 9 --trust trust --out r.csv").code == 0
    assert SECRET not in Path("r.csv").read_text() + Path("i.json").read_text()
    found = run("release regression r.csv --invite i.json --ledger l --json").document
    assert found["questions"]["y"]["regression"]["form"] == sent["form"]
    unpaid = run("release regression r.csv --invite i.json --ledger l", "--query", "SELECT * FROM rows")
    assert (unpaid.code, "`query` must be left out where trusted people are charged nothing" in unpaid.err) == (2, True)
    changed = json.loads(Path("i.json").read_text())
    changed["question"]["clip"] = 0.001
    Path("c.json").write_text(json.dumps(changed))
    for line in ("randomise regression people.csv --invite c.json --epsilon 9 --trust trust --out c.csv",
                 "release regression r.csv --invite c.json"):  # fmt: skip
        refused = run(line)
        assert refused.code == 2
        assert "`invite`" in refused.err
    assert not Path("c.csv").exists()
    raw = run("release regression people.csv --invite i.json")
    assert raw.code == 2
    assert "hybridp randomise regression --invite" in raw.err
    other = run(f"release regression people.csv {ASK} --invite-out j.json --seed 3 --json")
    assert other.code == 0
    refused = run("release regression r.csv --invite j.json")
    assert refused.code == 2
    assert "report_mechanism" in refused.err


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (f"release regression people.csv {ASK}", "nobody asked them"),
        (
            "release regression people.csv --target y --on a,b --missing middle --lower 0 --upper 10 --trust trust",
            "'--epsilon'",
        ),
        (
            "release regression people.csv --target y --on a,b --trust trust --epsilon 1 --missing middle --lower 0",
            "'--upper'",
        ),
        (
            "release regression people.csv --target y --on a "
            "--missing middle --lower 9 --upper 0 --trust trust --epsilon 1",
            "`upper`",
        ),
        (
            f"release regression people.csv {ASK} --simulate-local --lower 0 --lower 1",
            "one for each of the 3 columns",
        ),
        (
            "release regression people.csv --target y --on a,b,a "
            "--missing middle --lower 0 --upper 9 --trust trust --epsilon 1",
            "twice",
        ),
        (
            "release regression people.csv --target y --on a,,b "
            "--missing middle --lower 0 --upper 9 --trust trust --epsilon 1",
            "`on`",
        ),
        (
            "release regression people.csv --target y --on a,y "
            "--missing middle --lower 0 --upper 9 --trust trust --epsilon 1",
            "itself",
        ),
        (
            "release regression people.csv --target no --on a "
            "--missing middle --lower 0 --upper 9 --trust trust --epsilon 1",
            "`no`",
        ),
        (f"release regression people.csv {ASK} --simulate-local --noise gaussian", "`delta`"),
        (f"release regression people.csv {ASK} --simulate-local --clip -1", "`clip`"),
        (f"release regression people.csv {ASK} --simulate-local --kind logistic", "0 and 1"),
        (f"release regression people.csv {ASK} --invite-out i.json --invite i.json", "two phases"),
        (f"release regression people.csv {ASK} --invite-out no/i.json", "`invite-out`"),
        (f"release regression people.csv {ASK} --invite-out i.json --n 0", "local-people"),
        ("release regression people.csv --invite people.csv", "`invite`"),
        ("release regression people.csv --invite people.csv --epsilon 1", "`epsilon`"),
        ("randomise regression people.csv --invite people.csv --epsilon 9 --out r.csv", "`invite`"),
        (f"release regression people.csv {ASK} --simulate-local --clip 1e300", "a million half-ranges"),
        (f"release regression few.csv {ASK} --simulate-local", "as many as the coefficients (3, with the intercept)"),
        (f"release regression few.csv {ASK} --invite-out i.json", "as many as the coefficients (3"),
        ("plan regression --on a,a --n 100 --opt-in 5% --epsilon 1", "different names"),
        ("plan regression --target a --on a,b --n 100 --opt-in 5% --epsilon 1", "must not name the target"),
        ("plan regression --on ² --n 100 --opt-in 5% --epsilon 1 --json --target ²", "`on`"),
        (f"plan regression --on {'9' * 5000} --n 100 --opt-in 5% --epsilon 1", "1 to 20 columns"),
        ("plan regression --on 0 --n 100 --opt-in 5% --epsilon 1", "`on`"),
        ("plan regression --on 3 --n 100 --opt-in 5% --epsilon 1 --sd .5,3", "`residual-sd`"),
        ("plan regression --on 3 --n 100 --opt-in 0 --epsilon 1 --kind logistic", "trusted"),
    ],
)
def test_bad_input_is_one_sentence_and_charges_nothing(run: Runner, people: Path, line: str, word: str) -> None:
    more = " --ledger l" if line.startswith("release") else ""
    Path("few.csv").write_text("a,b,y,trust\n1,2,3,trusted\n4,5,6,local\n")
    refused = run(line + more)
    assert refused.code == 2
    assert word in refused.err
    assert SECRET not in refused.err
    assert "Traceback" not in refused.err
    assert not Path("l").exists()
    assert not Path("i.json").exists()


def test_a_plan_says_which_question_is_better(run: Runner) -> None:
    told = run("plan regression --on 4 --n 100000 --opt-in 2% --epsilon 1 --sd .5,.1 --clip .45 --json").document
    facts = told["questions"]["target"]["regression"]
    forms = facts["predicted"]["forms"]
    assert facts["form"] == "steered"
    assert forms["steered"]["rmse_slope"] < 0.5 * min(forms["plain"]["rmse_slope"], forms["tcm-only"]["rmse_slope"])
    local = run("plan regression --on 4 --n 100000 --opt-in 0 --epsilon 1 --json").document
    assert list(local["questions"]["target"]["regression"]["predicted"]["forms"]) == ["plain"]
