"""Tallies on the command line. That they tell what their rows tell is `tests/laws/test_every_tally_law.py`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from hybridp.cli import tally
from hybridp.cli.options import INVITATION
from hybridp.cli.tasks import randomise, release
from hybridp.errors import BudgetExceeded, InvalidInput, UnusableRows
from hybridp.ledger import Ledger
from hybridp.public.mechanisms import PureDP

RELEASE, RANDOMISE = release.tasks, randomise.tasks
SECRET = "987654.321"
DRAW = np.random.default_rng(7)
MEAN = "--column pay --trust trust --missing middle --lower 0 --upper 90000 --epsilon 1"
SHAPE = "--column a b c --lower 0 0 0 --upper 10 20 30 --epsilon 4"


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(command: click.Command, line: str) -> Result:
    return CliRunner().invoke(command, line.split())


def done(command: click.Command, line: str) -> dict[str, Any]:
    result = run(command, f"{line} --json")
    assert result.exit_code == 0, result.exception or result.output
    assert result.stdout.count("\n") == 1
    document = json.loads(result.stdout)
    assert isinstance(document, dict)
    (document.get("receipt", {}).get("asked") or {}).pop("at", None)  # when it was released: maybe a second later
    return document


def refused(command: click.Command, line: str, why: str) -> None:
    found = run(command, line)
    assert isinstance(found.exception, InvalidInput), found.output
    assert why in str(found.exception)
    assert SECRET not in str(found.exception)


@pytest.fixture
def reports(here: Path) -> str:
    """150 trusted and 450 local people with reports on their pay."""
    rows = [f"{i},{pay:.2f},{'trusted' if i % 4 == 0 else 'local'},{(0.5, 1, 3)[i % 3]}"
            for i, pay in enumerate(DRAW.uniform(2e4, 6e4, 600))]  # fmt: skip
    Path("people.csv").write_text("\n".join(["id,pay,trust,eps", *rows]) + "\n")
    done(RANDOMISE["mean"], f"people.csv {MEAN} --keep id,eps --out sent.csv")
    head, *lines = Path("sent.csv").read_text().splitlines()
    local, trusted = ([line for line in lines if f",{group}," in line] for group in ("local", "trusted"))
    parts = {"trusted": trusted, "part0": local[:100], "part1": local[100:101], "part2": local[101:]}
    for name, rows in parts.items():
        Path(f"{name}.csv").write_text("\n".join([head, *rows]) + "\n")
    return "sent.csv"


# --- the distribution ---


def test_a_mean_and_then_its_distribution_are_charged_once(reports: str) -> None:
    one = done(tally.add, "part0.csv part1.csv --tally one.json --collection spring")
    assert (one["kind"], one["people"], one["added"], one["batches"]) == ("mean", 101, 101, 2)
    done(tally.add, "part2.csv --tally two.json --collection spring")
    assert done(tally.merge, "two.json one.json --out all.json")["people"] == 450
    line = f"trusted.csv {MEAN} --tally all.json --ledger study.ledger"
    refused(RELEASE["mean"], f"{line} --collection autumn", "`collection` must be spring")
    done(RELEASE["mean"], line)
    before = Ledger.open("study.ledger").history()
    found = done(RELEASE["quantiles"], f"{line} --estimator lm-only --at .5")
    assert "costs no further epsilon" in json.dumps(found["receipt"])
    assert [e.state for e in Ledger.open("study.ledger").history()] == [e.state for e in before]
    asked = run(RELEASE["quantiles"], f"{line} --at .5")  # which would ask trusted people again
    assert isinstance(asked.exception, BudgetExceeded)
    done(RELEASE["quantiles"], f"{line.replace('study.ledger', 'new.ledger')} --at .5")
    paid = [(e.people, e.budget.epsilon, e.collection) for e in Ledger.open("new.ledger").history()]
    assert paid == [("trusted", 1.0, None), ("local", 1.0, "spring")]
    # Other reports of the same people are no second reading of the first ones.
    done(tally.add, "part0.csv part1.csv --tally fewer.json")
    line = f"trusted.csv {MEAN} --tally fewer.json --ledger study.ledger --estimator lm-only"
    other = run(RELEASE["quantiles"], line)
    assert isinstance(other.exception, BudgetExceeded)


def test_other_reports_under_a_taken_name_are_refused_and_nobody_pays(reports: str) -> None:
    done(tally.add, "part0.csv --tally one.json --collection spring")
    done(tally.add, "part2.csv --tally two.json --collection spring")
    Ledger.create("l", {"trusted": PureDP(9.0), "local": PureDP(9.0)})
    done(RELEASE["quantiles"], f"trusted.csv {MEAN} --at .5 --tally one.json --ledger l")
    before = Ledger.open("l").history()
    line = f"trusted.csv {MEAN} --at .5 --tally two.json --invite-out asked.json --ledger l"
    refused(RELEASE["quantiles"], line, "`collection` must name one set of reports")
    assert (Ledger.open("l").history(), Path("asked.json").exists()) == (before, False)


def test_an_invitation_starts_from_a_tally_and_its_reports_are_charged_once(reports: str) -> None:
    """Phase two rests on the tally's reports: its own people are charged beside them, and nobody twice."""
    done(tally.add, "part0.csv part1.csv part2.csv --tally all.json")
    done(RELEASE["quantiles"], f"trusted.csv {MEAN} --tally all.json --invite-out asked.json --ledger l")
    later = "\n".join(f"{i},{pay:.2f},local,1" for i, pay in enumerate(DRAW.uniform(2e4, 6e4, 300)))
    Path("later.csv").write_text(f"id,pay,trust,eps\n{later}\n")
    answer = "asked.json later.csv --trust trust --missing middle --epsilon 9 --out answers.csv"
    done(RANDOMISE[INVITATION], answer)
    found = done(RELEASE[INVITATION], "asked.json answers.csv --trust trust --ledger l")
    groups = found["questions"]["pay"]["quantiles"]["groups"]
    assert (groups["trusted"]["people"], groups["local"]["people"]) == (150, 750)
    assert [e.people for e in Ledger.open("l").history()] == ["trusted", "local", "local"]
    refused(RELEASE[INVITATION], "asked.json answers.csv --trust trust --tally all.json", "`tally`")


def test_an_estimate_that_is_published_alone_has_a_tally_of_sums_alone(reports: str) -> None:
    """What makes its promise larger is that nothing else is told of these reports."""
    alone = f"trusted.csv {MEAN} --estimator kvh --sd 20000 --publish estimate-only --ledger l"
    done(tally.add, "part0.csv --tally all.json")
    refused(RELEASE["mean"], f"{alone} --tally all.json", "`tally` must be made with --publish estimate-only")
    assert not Path("l").exists()
    assert done(tally.add, "part0.csv --tally sums.json --publish estimate-only")["entries"] == 1
    done(tally.add, "part1.csv --tally sums.json")  # and stays so
    assert json.loads(Path("sums.json").read_text())["counts"] is None
    done(RELEASE["mean"], f"{alone} --tally sums.json")
    refused(RELEASE["quantiles"], f"trusted.csv {MEAN} --tally sums.json", "Got one of sums only")
    done(tally.add, "part2.csv --tally rest.json")
    refused(tally.merge, "sums.json rest.json --out both.json", "must hold sums only")


def test_more_that_is_refused(reports: str) -> None:
    done(tally.add, "part0.csv --tally one.json")
    before = Path("one.json").read_bytes()
    Path("again.csv").write_bytes(Path("part0.csv").read_bytes())
    refused(tally.add, "part1.csv again.csv --tally one.json", "`batch` must not be in the tally yet")
    assert (Path("one.json").read_bytes(), list(Path().glob(".*.json*"))) == (before, [])  # all files, or none
    for column, why in ((f"about {SECRET}", "must hold numbers"), ("nan", "must hold a number"), ("1e9", "must lie")):
        text = f'report,report_mechanism\n{column},"dithered(epsilon=1.0,delta=0.0,lower=0.0,upper=90000.0)"\n'
        Path("bad.csv").write_text(text)
        refused(tally.add, "bad.csv --tally bad.json", why)
        assert not Path("bad.json").exists()
    refused(tally.add, "sent.csv --tally one.json", "must name one mechanism")  # trusted rows without --trust
    refused(tally.add, "part1.csv --tally one.json --epsilon 1", "`columns`")
    refused(tally.add, f"part1.csv --tally one.json {SHAPE}", "`tally` must be one of the mechanism")
    refused(tally.merge, "one.json --out one.json", "`out` must name a new file")
    Path("torn.json").write_text("{")
    for command, line in ((tally.merge, "torn.json --out all.json"), (tally.add, "part1.csv --tally torn.json")):
        refused(command, line, "`tally` must name a file")
    done(RANDOMISE["mean"], f"people.csv {MEAN.replace('--epsilon 1', '--epsilon 2')} --keep id,eps --out other.csv")
    assert isinstance(run(tally.add, "other.csv --trust trust --tally one.json").exception, UnusableRows)


def test_a_state_that_changes_meanwhile_is_left_alone(reports: str) -> None:
    from hybridp.protocols.reports import add_file, load_tally, number_tally, save_tally

    empty = number_tally("part0.csv")
    one = add_file(empty, "part0.csv")
    save_tally(one, "state.json")
    with pytest.raises(InvalidInput, match="must not change"):
        save_tally(add_file(empty, "part1.csv"), "state.json")
    both = add_file(one, "part1.csv")
    save_tally(both, "state.json", before=one)
    assert load_tally("state.json") == both


# --- slots ---
