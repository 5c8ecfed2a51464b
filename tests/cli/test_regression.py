"""`plan`, `randomise` and `release` of a regression: what is refused, in one sentence, and what is kept."""

from __future__ import annotations

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


def test_a_plan_says_which_question_is_better(run: Runner) -> None:
    told = run("plan regression --on 4 --n 100000 --opt-in 2% --epsilon 1 --sd .5,.1 --clip .45 --json").document
    facts = told["questions"]["target"]["regression"]
    forms = facts["predicted"]["forms"]
    assert facts["form"] == "steered"
    assert forms["steered"]["rmse_slope"] < 0.5 * min(forms["plain"]["rmse_slope"], forms["tcm-only"]["rmse_slope"])
    local = run("plan regression --on 4 --n 100000 --opt-in 0 --epsilon 1 --json").document
    assert list(local["questions"]["target"]["regression"]["predicted"]["forms"]) == ["plain"]
