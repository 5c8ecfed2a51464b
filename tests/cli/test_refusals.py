"""Bad input: one sentence, exit code 2 or 3, one JSON object when asked for, and never a person's value."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

SECRET = "987654.321"
Runner = Callable[..., Any]

RELEASE = "--column pay --trust trust --missing middle --lower 0 --upper 100000 --epsilon 1"
PLAN = "plan mean --n 1000 --opt-in 0.1 --lower 0 --upper 1 --epsilon 1"
REPORTS = "--column pay --trust trust --missing middle --lower 0 --upper 100000 --epsilon 1 --out new.csv"

# (command, what the sentence must name)
BAD = [
    # the promise
    (f"release mean collected.csv {RELEASE} --epsilon -1", "epsilon"),
    (f"release mean collected.csv {RELEASE} --epsilon nan", "epsilon"),
    (f"release mean collected.csv {RELEASE} --epsilon lots", "epsilon"),
    (f"release mean collected.csv {RELEASE} --delta 1", "delta"),
    (f"release mean collected.csv {RELEASE} --noise gaussian", "delta"),
    (f"release mean collected.csv {RELEASE} --local gaussian", "delta"),
    # the bounds
    (f"release mean collected.csv {RELEASE} --upper -5", "upper"),
    (f"release mean collected.csv {RELEASE} --missing middle --lower nan", "lower"),
    ("release mean collected.csv --column pay --trust trust --missing middle --lower 0 --epsilon 1", "upper"),
    # the columns and the file
    (f"release mean collected.csv {RELEASE} --person who", "person"),
    (f"release mean people.csv {RELEASE}", "report"),
    (f"release mean nowhere.csv {RELEASE}", "exists"),
    (f"release mean folder.csv {RELEASE}", "file"),
    (f"release mean fake.parquet {RELEASE}", "Parquet"),
    (f"release mean collected.csv {RELEASE} --table t", "table"),
    (f"release mean {RELEASE}", "FILE"),
    # the rows
    (f"release mean empty.csv {RELEASE}", "header"),
    (f"release mean header.csv {RELEASE}", "people"),
    (f"release mean secretlabel.csv {RELEASE}", "trust"),
    (f"release mean missing.csv {RELEASE} --missing nan", "missing"),
    (f"release mean ragged.csv {RELEASE}", "fields"),
    (f"release mean latin.csv {RELEASE}", "UTF-8"),
    (f"release mean far.csv {RELEASE}", "report"),
    (f"release mean repeated.csv {RELEASE}", "repeated"),
    (f"release mean othermechanism.csv {RELEASE}", "mechanism"),
    (f"release mean torn.csv {RELEASE} --person id --record-key key", "label"),
    # the estimator
    (f"release mean collected.csv {RELEASE} --estimator fixed", "weight"),
    (f"release mean collected.csv {RELEASE} --estimator kvh", "sd"),
    (f"release mean collected.csv {RELEASE} --level 1", "level"),
    (f"release mean collected.csv {RELEASE} --estimator median", "estimator"),
    (f"release mean collected.csv {RELEASE} --publish estimate-only", "publish"),
    (f"release mean collected.csv {RELEASE} --seed -1", "seed"),
    (f"release mean collected.csv {RELEASE} --plot picture.gif", "plot"),
    (f"release mean collected.csv {RELEASE} --plot nowhere/picture.png", "plot"),
    # the ledger
    (f"release mean collected.csv {RELEASE} --ledger people.csv", "ledger"),
    (f"release mean collected.csv {RELEASE} --ledger folder.csv", "ledger"),
    ("ledger show nowhere.ledger", "ledger"),
    ("ledger show people.csv", "ledger"),
    ("ledger create people.csv --epsilon 1", "exists"),
    ("ledger create nowhere/l.ledger --epsilon 1", "folder"),
    ("ledger create l.ledger --epsilon nan", "epsilon"),
    ("ledger create l.ledger --epsilon 1 --delta 1", "delta"),
    # the devices
    (f"randomise mean people.csv {REPORTS} --out nowhere/new.csv", "out"),
    (f"randomise mean people.csv {REPORTS} --out people.csv", "out"),
    (f"randomise mean collected.csv {REPORTS}", "report"),
    (f"randomise mean latin.csv {REPORTS}", ""),
    # the plan
    (f"{PLAN} --n many", "--n"),
    (f"{PLAN} --n 1e400", "--n"),
    (f"{PLAN} --opt-in 0", "opt-in"),
    (f"{PLAN} --sd 1:2:3", "sd"),
    (f"{PLAN} --plot picture", "plot"),
    # the demo and the words
    ("demo --n 5", "n"),
    ("demo --n 1000 --trials 1", "trials"),
    ("demo --n 1000 --opt-in 0", "opt-in"),
    ("demo --out people.csv", "out"),
    ("dance", "dance"),
    ("release medan collected.csv", "median"),
    ("ledger", "--json"),
]


def check_refusal(found: Any, names: str) -> None:
    assert found.code in (2, 3)
    message = found.document["error"]["message"]
    assert set(found.document) == {"error"}
    assert found.document["error"]["exit_code"] == found.code
    assert names in message
    assert len(message) < 400
    lines = found.err.splitlines()
    assert lines == [f"hybridp: {message}"]
    for text in (found.out, found.err):
        assert "Traceback" not in text
        assert SECRET.split(".")[0] not in text


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("line", "names"), BAD)
def test_a_refusal_is_one_sentence(run: Runner, line: str, names: str) -> None:
    check_refusal(run(line, "--json"), names)


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("line", [BAD[0][0], f"release mean nowhere.csv {RELEASE}", "dance"])
def test_without_json_stdout_stays_empty(run: Runner, line: str) -> None:
    found = run(line)
    assert (found.code, found.out) == (2, "")
    assert re.fullmatch(r"hybridp: [^\n]+\n", found.err)


# Each line is refused today, but not as it should be, or is not refused at all.
ODD = [
    pytest.param(f"release mean headerless.csv {RELEASE}", "", id="a file without a header: nobody's row is quoted"),
    pytest.param(f"release mean collected.csv {RELEASE} --ledger no/l.ledger", "ledger", id="Created is said early"),
    pytest.param(f"randomise mean people.csv {REPORTS} --out new.txt", "`out`", id="the ending is blamed on path"),
    pytest.param(f"{PLAN} --n 1e300", "n", id="too many people overflow"),
    pytest.param(f"{PLAN} --n 1e19", "n", id="more people than 64 bits"),
    pytest.param(f"{PLAN} --opt-in 1e-300", "opt-in", id="less than one trusted person, division by zero"),
    pytest.param(f"{PLAN} --opt-in 0.0001", "opt-in", id="a tenth of a trusted person"),
    pytest.param(f"{PLAN} --upper 1e308", "upper", id="a range whose square overflows"),
    pytest.param(f"{PLAN} --upper 1e-200", "upper", id="a range whose square underflows"),
    pytest.param(f"{PLAN} --elasticity 1e6", "elasticity", id="an elasticity that overflows"),
    pytest.param("demo --n 1e30 --trials 2", "n", id="more made-up people than fit"),
]


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("line", "names"), ODD)
def test_odd_input_is_refused_in_one_sentence(run: Runner, line: str, names: str) -> None:
    check_refusal(run(line, "--json"), names)


def test_the_smallest_plan_can_be_drawn(run: Runner) -> None:
    found = run("plan mean --n 2 --opt-in 0.5 --lower 0 --upper 1 --epsilon 1 --plot plan.png --json")
    assert found.code == 0


@pytest.mark.parametrize("picture", ["picture.gif", "nowhere/picture.png"])
def test_a_picture_that_cannot_be_saved_costs_nothing(run: Runner, folder: Path, picture: str) -> None:
    assert run("ledger create study.ledger --epsilon 1 --json").code == 0
    assert run(f"release mean collected.csv {RELEASE} --ledger study.ledger --plot {picture} --json").code == 2
    accounts = run("ledger show study.ledger --json").document["accounts"]
    assert [a["left"]["epsilon"] for a in accounts] == [1.0, 1.0]
    assert (folder / "study.ledger").exists()


def test_a_trusted_only_table_needs_no_reports(run: Runner, tmp_path: Path) -> None:
    (tmp_path / "trusted.csv").write_text("pay,trust\n5,trusted\n7,trusted\n")
    assert run(f"release mean trusted.csv {RELEASE} --estimator tcm-only --json").code == 0


# --- exit code 3 ------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("file", ["collected.csv", "nowhere.csv", "empty.csv", "text.csv", "folder.csv"])
def test_an_overdraft_is_refused_before_the_file_is_looked_at(run: Runner, file: str) -> None:
    assert run("ledger create small.ledger --epsilon 0.5 --json").code == 0
    found = run(f"release mean {file} {RELEASE} --ledger small.ledger --json")
    assert found.code == 3
    check_refusal(found, "left")


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("file", ["nowhere.csv", "empty.csv", "header.csv", "far.csv"])
def test_a_bad_file_is_charged_and_voided(run: Runner, file: str) -> None:
    assert run("ledger create study.ledger --epsilon 1 --json").code == 0
    assert run(f"release mean {file} {RELEASE} --ledger study.ledger --json").code == 2
    ledger = run("ledger show study.ledger --json").document
    assert [a["left"]["epsilon"] for a in ledger["accounts"]] == [1.0, 1.0]
    assert {c["state"] for c in ledger["charges"]} == {"void"}
    assert run(f"release mean collected.csv {RELEASE} --ledger study.ledger --json").code == 0


@pytest.mark.usefixtures("folder")
def test_a_look_at_rows_that_cannot_be_read_stays_charged(run: Runner) -> None:
    Path("torn.csv").write_bytes(b"pay,trust,report\n\xff\xfe,trusted,\n")
    assert run("ledger create study.ledger --epsilon 1 --json").code == 0
    assert run(f"release mean torn.csv {RELEASE} --ledger study.ledger --json").code == 2
    ledger = run("ledger show study.ledger --json").document
    assert {a["group"]: a["left"]["epsilon"] for a in ledger["accounts"]}["trusted"] == 0.0
    assert {c["state"] for c in ledger["charges"] if c["group"] == "trusted"} == {"refused"}
    assert run(f"release mean collected.csv {RELEASE} --ledger study.ledger --json").code == 3
