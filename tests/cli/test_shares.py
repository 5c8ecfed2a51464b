"""`plan`, `randomise` and `release` of shares and histograms: what is refused, in one sentence, and what is kept."""

from __future__ import annotations

from pathlib import Path

import pytest

from .conftest import SECRET, Runner

CHOICE = "--column smokes --options yes,no --missing no --trust trust --epsilon 1"
SENT = "smokes,trust,report,report_mechanism\n"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    rows = [f"{'yes' if i % 4 else 'no'},{i % 80},{'trusted' if i % 5 else 'local'}" for i in range(400)]
    rows[1] = f"{SECRET},{SECRET},trusted"
    file = tmp_path / "people.csv"
    file.write_text("smokes,age,trust\n" + "\n".join(rows) + "\n")
    return file


@pytest.mark.parametrize("report", ["maybe", "", "0"])
def test_a_report_that_names_no_option_is_refused(run: Runner, tmp_path: Path, report: str) -> None:
    Path("sent.csv").write_text(f"{SENT}yes,trusted,,\n,local,{report},x\n,local,yes,x\n")
    left = run(f"release shares sent.csv {CHOICE} --ledger l")
    assert (left.code, Path("l").exists()) == (2, False)
    Path("sent.csv").write_text(f"smokes,trust,report\nyes,trusted,\n,local,{report}\n,local,yes\n")
    left = run(f"release shares sent.csv {CHOICE} --assume-mechanism")
    assert left.code == 2
    assert "must name one of the options" in left.err


@pytest.mark.parametrize("report", ["zz", "ffffff", "00", "e04000"])
def test_a_set_that_no_device_draws_is_refused(run: Runner, tmp_path: Path, report: str) -> None:
    options = ",".join(f"o{i}" for i in range(18))
    Path("sent.csv").write_text(f"smokes,trust,report\n,local,{report}\n")
    line = (
        f"release shares sent.csv --column smokes --options {options} "
        "--missing o17 --trust trust --epsilon 1 --assume-mechanism"
    )
    assert run(line).code == 2


def test_an_option_that_holds_a_comma_goes_from_the_command_to_reports_and_answers(run: Runner, tmp_path: Path) -> None:
    """On a command it stands in quotes, as in a CSV file; a study's list holds it as it is: the same question."""
    options = ["Yes, always", "No", 'Only "now", and then']
    written = ("--options", '"Yes, always", No,"Only ""now"", and then"')
    in_csv = ['"Yes, always"', "No", '"Only ""now"", and then"']
    rows = [f"{in_csv[i % 4 % 3]},{'trusted' if i // 4 % 2 else 'local'}" for i in range(400)]
    (tmp_path / "people.csv").write_text("smokes,trust\n" + "\n".join(rows) + "\n")
    how = "--column smokes --missing No --trust trust --epsilon 20 --insist"
    assert run(f"randomise shares people.csv {how} --out sent.csv", *written).code == 0
    found = run(f"release shares sent.csv {how} --json", *written).document["questions"]["smokes"]["shares"]
    assert found["options"] == options
    for group in ("estimate", "trusted", "local"):
        assert found[group] == pytest.approx([0.5, 0.25, 0.25], abs=0.02)
    Path("study.toml").write_text(
        'schema = 1\npromise = {epsilon = 20}\ntrust = {column = "trust"}\n[[question]]\nname = "smokes"\n'
        "kind = 'choice'\noptions = ['Yes, always', 'No', 'Only \"now\", and then']\nmissing = 'No'\n"
    )
    declared = run("release study.toml sent.csv --insist --json").document["questions"]["smokes"]["shares"]
    assert (declared["options"], declared["local"]) == (options, found["local"])
    empty = run("release shares sent.csv --column smokes --options a,,b --trust trust --epsilon 1")
    assert (empty.code, "without empty parts" in empty.err) == (2, True)
