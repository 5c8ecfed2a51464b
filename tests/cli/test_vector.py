"""The two commands about vectors, run as commands of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from hybridp.blend.mean import ESTIMATORS
from hybridp.cli.verbs import randomise, release
from hybridp.errors import BudgetExceeded, InvalidInput
from hybridp.release.result import sole

X = np.random.default_rng(3).beta(2, 4, size=(900, 3)) * [10, 20, 30]
SHAPE = "--column a b c --missing middle --lower 0 0 0 --upper 10 20 30 --trust trust"


@pytest.fixture
def people(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    lines = [f"{i},{a:.4f},{b:.4f},{c:.4f},{'trusted' if i % 3 == 0 else 'local'}" for i, (a, b, c) in enumerate(X)]
    file = tmp_path / "people.csv"
    file.write_text("\n".join(["id,a,b,c,trust", *lines]) + "\n")
    return file


def run(command: click.Command, line: str) -> Result:
    return CliRunner().invoke(command, line.split())


def done(command: click.Command, line: str) -> dict[str, Any]:
    result = run(command, f"{line} --json")
    assert result.exit_code == 0, result.exception
    assert result.stdout.count("\n") == 1
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("how", ["", "--local unit-vector", "--norm l2 --radius 0.9", "--local per-coordinate"])
def test_randomise_then_release(people: Path, how: str) -> None:
    sent = done(randomise.tasks["vector-mean"], f"people.csv {SHAPE} --epsilon 4 --out sent.csv --person id {how}")
    assert sent["randomised"] == 600
    assert sent["simulated"] is False
    assert Path("sent.csv").read_text().startswith("id,a,b,c,trust,a_report,b_report,c_report,report_mechanism\n")
    found = done(release.tasks["vector-mean"], f"sent.csv {SHAPE} --epsilon 4 --person id {how}")
    assert sent["mechanism"].startswith(sole(found)["mechanisms"]["local"].split()[0])
    assert found["simulated"] is False
    assert sole(found)["groups"]["trusted"]["people"] == 300
    assert sole(found)["columns"] == ["a", "b", "c"]
    for j in range(3):
        assert abs(sole(found)["estimate"][j] - X[:, j].mean()) < (12 if "norm" in how else 8) * (j + 1)


PLAN = "plan vector-mean --n 5000 --opt-in 0.1 --lower 0 --upper 1 --epsilon 1"


def test_a_plan_by_names_or_by_their_number(capsys: pytest.CaptureFixture[str]) -> None:
    from hybridp.cli.app import main

    def told(line: str) -> Any:
        capsys.readouterr()
        with pytest.raises(SystemExit) as left:
            main([*line.split(), "--json"])
        return left.value.code, json.loads(capsys.readouterr().out)

    code, named = told(f"{PLAN} --column a b c")
    assert code == 0
    mean = named["questions"]["vector"]["mean"]
    assert mean["columns"] == ["a", "b", "c"]
    predicted = mean["predicted"]
    assert set(predicted["estimators"]) <= {*ESTIMATORS}
    other = told(f"{PLAN} --column 3")[1]["questions"]["vector"]["mean"]["predicted"]
    assert other["estimators"] == predicted["estimators"]
    for more, said in (("", "'--column'"), ("--column 0", "`column"), ("--column 3 --sd 1 2", "`sd`")):
        code, refused = told(f"{PLAN} {more}")
        assert (code, said in refused["error"]["message"]) == (2, True)


def test_the_rows_of_a_trial(people: Path) -> None:
    line = f"people.csv {SHAPE} --epsilon 1 --delta 1e-6 --simulate-local --seed 3 --joint --plot p.png"
    found = done(release.tasks["vector-mean"], line)
    assert found["simulated"] is True
    assert sole(found)["joint"] is True
    assert found["plot"] == "p.png"
    assert Path("p.png").stat().st_size > 1000
    shown = run(release.tasks["vector-mean"], line)
    assert shown.exit_code == 0
    assert "Receipt" in shown.stdout
    assert "SIMULATED" in shown.stderr


def test_one_bound_may_stand_for_all(people: Path) -> None:
    line = (
        "people.csv --column a b c "
        "--missing middle --lower -30 --upper 30 --trust trust --epsilon 4 --simulate-local --seed 1"
    )
    assert sole(done(release.tasks["vector-mean"], line))["task"] == "vector-mean"


def test_known_sizes_make_kvh(people: Path) -> None:
    line = f"people.csv {SHAPE} --epsilon 4 --simulate-local --seed 1 --estimator kvh"
    assert sole(done(release.tasks["vector-mean"], f"{line} --sd 1.8 3.6 5.4"))["estimator"] == "kvh"
    line = f"people.csv {SHAPE} --epsilon 4 --simulate-local --estimator fixed --weight 0.25"
    fixed = done(release.tasks["vector-mean"], line)
    assert sole(fixed)["weight"] == [0.25] * 3


def test_a_ledger_is_made_charged_and_kept_to(people: Path) -> None:
    line = f"people.csv {SHAPE} --epsilon 1 --simulate-local --ledger l.ledger"
    assert done(release.tasks["vector-mean"], line)["receipt"]["ledger_entries"] == [1, 2]
    assert isinstance(run(release.tasks["vector-mean"], line).exception, BudgetExceeded)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"people.csv {SHAPE} --epsilon 0", "`epsilon` must be positive and finite"),
        (
            "people.csv --column a b c --missing middle --lower 0 0 --upper 1 --trust trust --epsilon 1",
            "`lower` must be one number, or",
        ),
        (
            "people.csv --column a b --missing middle --lower 2 --upper 1 --trust trust --epsilon 1",
            "`upper` must be greater than lower",
        ),
        (f"people.csv {SHAPE} --epsilon 1 --norm l2 --radius -2", "`radius` must be positive"),
        (f"people.csv {SHAPE} --epsilon 1 --radius 2", "`norm` must be given with a radius"),
        (f"people.csv {SHAPE} --epsilon 1 --noise gaussian", "`delta` must be positive for the Gaussian noise"),
        (f"people.csv {SHAPE} --epsilon 1 --estimator kvh", "`sd` must be given for the estimator kvh"),
        (f"people.csv {SHAPE} --epsilon 1 --estimator kvh --sd 99", "`sd` must be at most 5"),
        *(
            (f"people.csv {SHAPE} --epsilon 1 --gap {gap}", f"`gap` must be {rule}")
            for gap, rule in (("nan", "a finite number"), ("-1", "at least 0 and at most 2"), ("9", "at least 0"))
        ),
        (f"people.csv {SHAPE} --epsilon 1 --plot p.doc", "`--plot` must end in"),
        (f"people.csv {SHAPE} --epsilon 1", "Column `trust` labels rows `local`"),
        (
            "people.csv --column a z --missing middle --lower 0 --upper 1 --trust trust --epsilon 1",
            "`columns` must be a column of",
        ),
        (
            "people.csv --column a a --missing middle --lower 0 --upper 1 --trust trust --epsilon 1",
            "`column` must have different names",
        ),
    ],
)
def test_refusals_are_one_sentence(people: Path, line: str, sentence: str) -> None:
    found = run(release.tasks["vector-mean"], line).exception
    assert isinstance(found, InvalidInput)
    assert str(found).startswith(sentence)
