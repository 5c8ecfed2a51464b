"""Tallies on the command line: adding, merging, and the same release as from a file that holds every row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest
from click.testing import CliRunner, Result

from hybridp.cli import tally
from hybridp.cli.verbs import randomise, release
from hybridp.errors import BudgetExceeded, InvalidInput, UnusableRows
from hybridp.ledger import Ledger
from hybridp.release.result import sole

RELEASE, RANDOMISE = release.tasks, randomise.tasks
SECRET = "987654.321"
DRAW = np.random.default_rng(7)
MEAN = "--column pay --trust trust --missing middle --lower 0 --upper 90000 --epsilon 1"
SHAPE = "--column a b c --lower 0 0 0 --upper 10 20 30 --epsilon 4"
HEAVY = "--person id --column query url --trust trust --epsilon 4 --delta 1e-5"


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


def split(file: str, trust: int, *parts: tuple[int, int]) -> None:
    """Trusted rows into trusted.csv, and ranges of the local rows, shuffled, into part0.csv and following."""
    head, *lines = Path(file).read_text().splitlines()
    local = [line for line in lines if line.split(",")[trust] == "local"]
    kept = [line for line in lines if line.split(",")[trust] == "trusted"]
    Path("trusted.csv").write_text("\n".join([head, *kept]) + "\n")
    local = [local[i] for i in np.random.default_rng(1).permutation(len(local))]
    for i, (a, b) in enumerate(parts):
        Path(f"part{i}.csv").write_text("\n".join([head, *local[a:b]]) + "\n")


def same(found: dict[str, Any], whole: dict[str, Any]) -> None:
    """The same answer, but for the order in which a file's doubles are summed."""
    for key in ("estimate", "trusted", "local"):
        one, two = (np.array(sole(told)[key], dtype=float) for told in (found, whole))
        np.testing.assert_allclose(one, two, rtol=1e-9)
    assert found["receipt"] == whole["receipt"]


@pytest.fixture
def reports(here: Path) -> str:
    """150 trusted and 450 local people with reports on their pay."""
    rows = [f"{i},{pay:.2f},{'trusted' if i % 4 == 0 else 'local'},{(0.5, 1, 3)[i % 3]}"
            for i, pay in enumerate(DRAW.uniform(2e4, 6e4, 600))]  # fmt: skip
    Path("people.csv").write_text("\n".join(["id,pay,trust,eps", *rows]) + "\n")
    done(RANDOMISE["mean"], f"people.csv {MEAN} --keep id,eps --out sent.csv")
    split("sent.csv", 2, (0, 100), (100, 101), (101, 450))
    return "sent.csv"


# --- the mean ---


@pytest.mark.parametrize("how", ["--estimator kvh --sd 20000 --publish estimate-only", "--estimator full-lm"])
def test_a_tally_stands_in_for_local_rows(reports: str, how: str) -> None:
    held = "--publish estimate-only" if "estimate-only" in how else ""
    one = done(tally.add, f"part0.csv --tally one.json {held}")
    assert (one["kind"], one["people"], one["added"], one["batches"]) == ("mean", 100, 100, 1)
    done(tally.add, f"part2.csv part1.csv --tally two.json {held}")
    both = done(tally.merge, "two.json one.json --out both.json")
    assert (both["people"], both["batches"], both["merged"]) == (450, 3, 2)
    whole = done(RELEASE["mean"], f"{reports} {MEAN} --seed 5 {how}")
    found = done(RELEASE["mean"], f"trusted.csv {MEAN} --seed 5 --tally both.json {how}")
    same(found, whole)


def test_a_collection_has_one_name(reports: str) -> None:
    done(tally.add, "part0.csv --tally all.json --collection spring")
    line = f"trusted.csv {MEAN} --tally all.json --ledger ledger.json --collection autumn"
    refused(RELEASE["mean"], line, "`collection` must be spring")
    refused(tally.add, "part1.csv --tally all.json --collection autumn", "`collection` must be spring")


# --- the distribution ---


def test_a_mean_and_then_its_distribution_are_charged_once(reports: str) -> None:
    done(tally.add, "part0.csv part1.csv part2.csv --tally all.json --collection spring")
    line = f"trusted.csv {MEAN} --tally all.json --ledger study.ledger"
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


def test_an_invitation_starts_from_a_tally_and_its_reports_are_charged_once(reports: str) -> None:
    """Phase two rests on the tally's reports: its own people are charged beside them, and nobody twice."""
    done(tally.add, "part0.csv part1.csv part2.csv --tally all.json")
    done(RELEASE["quantiles"], f"trusted.csv {MEAN} --tally all.json --invite-out asked.json --ledger l")
    later = "\n".join(f"{i},{pay:.2f},local,1" for i, pay in enumerate(DRAW.uniform(2e4, 6e4, 300)))
    Path("later.csv").write_text(f"id,pay,trust,eps\n{later}\n")
    done(
        RANDOMISE["quantiles"],
        "later.csv --trust trust --missing middle --invite asked.json --epsilon 9 --out answers.csv",
    )
    found = done(RELEASE["quantiles"], "answers.csv --trust trust --invite asked.json --ledger l")
    groups = found["questions"]["pay"]["quantiles"]["groups"]
    assert (groups["trusted"]["people"], groups["local"]["people"]) == (150, 750)
    assert [e.people for e in Ledger.open("l").history()] == ["trusted", "local", "local"]
    refused(RELEASE["quantiles"], "answers.csv --trust trust --invite asked.json --tally all.json", "`tally`")


def test_a_column_names_whose_reports_are_added_up(reports: str) -> None:
    """Of a study with several questions the reports stand in NAME_report."""
    text = Path("part0.csv").read_text()
    Path("two.csv").write_text(
        text.replace("report,", "pay_report,", 1).replace("report_mechanism", "pay_report_mechanism")
    )
    done(tally.add, "part0.csv --tally one.json")
    done(tally.add, "two.csv --column pay --tally same.json")
    one, same = (json.loads(Path(f"{name}.json").read_text()) for name in ("one", "same"))
    assert (one["counts"], one["people"]) == (same["counts"], same["people"])


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
    refused(
        tally.add, "part2.csv --tally all.json --publish estimate-only", "`publish` must be said when a tally is new"
    )
    refused(
        tally.add, f"part2.csv --tally v.json --publish estimate-only {SHAPE}", "`publish` must go with reports on one"
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f'report,report_mechanism\n5,"coin(epsilon={SECRET})"\n', "must be one that hybridp writes"),
        ('report,report_mechanism\n5,"T"\n5,\n', "must name one mechanism"),
        (f'report,report_mechanism\n{SECRET}e9,"T"\n', "must lie where this mechanism"),
        (f'report,report_mechanism\nabout {SECRET},"T"\n', "must hold numbers"),
        ('report,report_mechanism\ninf,"T"\n', "must hold a number in every row"),
    ],
)
def test_files_that_are_no_reports(reports: str, text: str, why: str) -> None:
    Path("bad.csv").write_text(text.replace("T", "dithered(epsilon=1.0,delta=0.0,lower=0.0,upper=90000.0)"))
    refused(tally.add, "bad.csv --tally bad.json", why)
    assert not Path("bad.json").exists()


def test_more_that_is_refused(reports: str) -> None:
    done(tally.add, "part0.csv --tally one.json")
    before = Path("one.json").read_bytes()
    Path("again.csv").write_bytes(Path("part0.csv").read_bytes())
    refused(tally.add, "part1.csv again.csv --tally one.json", "`batch` must not be in the tally yet")
    assert (Path("one.json").read_bytes(), list(Path().glob(".*.json*"))) == (before, [])  # all files, or none
    refused(tally.add, "nowhere.csv --tally one.json", "nowhere.csv")
    refused(tally.add, "sent.csv --tally one.json", "must name one mechanism")  # trusted rows without --trust
    refused(tally.add, "sent.csv --trust id --tally one.json", "`trusted` or `local`")
    refused(tally.add, "part1.csv --tally one.json --epsilon 1", "`columns`")
    refused(tally.add, f"part1.csv --tally one.json {SHAPE}", "`tally` must be one of the mechanism")
    refused(tally.add, "part1.csv --tally nowhere/one.json", "existing folder")
    refused(tally.merge, "one.json one.json --out two.json", "must share no batch")
    assert not Path("two.json").exists()
    refused(tally.merge, "one.json --out one.json", "`out` must name a new file")
    Path("torn.json").write_text("{")
    for command, line in ((tally.show, "torn.json"), (tally.add, "part1.csv --tally torn.json")):
        refused(command, line, "`tally` must name a file")
    done(RANDOMISE["mean"], f"people.csv {MEAN.replace('--epsilon 1', '--epsilon 2')} --keep id,eps --out other.csv")
    assert isinstance(run(tally.add, "other.csv --trust trust --tally one.json").exception, UnusableRows)


def test_a_state_that_changes_meanwhile_is_left_alone(reports: str) -> None:
    from hybridp.protocols.tally import add_file, load_tally, number_tally, save_tally

    empty = number_tally("part0.csv")
    one = add_file(empty, "part0.csv")
    save_tally(one, "state.json")
    with pytest.raises(InvalidInput, match="must not change"):
        save_tally(add_file(empty, "part1.csv"), "state.json")
    both = add_file(one, "part1.csv")
    save_tally(both, "state.json", before=one)
    assert load_tally("state.json") == both


# --- vectors ---


def test_a_tally_of_vectors_knows_its_geometry() -> None:
    values, ball = DRAW.beta(2, 4, size=(600, 3)) * [10, 20, 30], "--local unit-vector --norm l2 --radius 0.9"
    rows = [f"{a:.4f},{b:.4f},{c:.4f},{'trusted' if i % 3 == 0 else 'local'}" for i, (a, b, c) in enumerate(values)]
    Path("people.csv").write_text("\n".join(["a,b,c,trust", *rows]) + "\n")
    how = f"{SHAPE} {ball} --missing middle --trust trust"
    done(RANDOMISE["vector-mean"], f"people.csv {how} --out sent.csv")
    split("sent.csv", 3, (0, 150), (150, 400))
    done(tally.add, f"part0.csv --tally one.json {SHAPE} {ball}")
    done(tally.add, "part1.csv --tally one.json")
    whole = done(RELEASE["vector-mean"], f"sent.csv {how} --seed 5")
    same(done(RELEASE["vector-mean"], f"trusted.csv {how} --seed 5 --tally one.json"), whole)
    turned = how.replace("a b c", "b a c").replace("10 20", "20 10")
    refused(RELEASE["vector-mean"], f"trusted.csv {turned} --tally one.json", "must hold reports on these")
    refused(tally.add, f"part0.csv --tally two.json {SHAPE.split(' --epsilon')[0]}", "`epsilon` must be given")
    Path("part0.csv").write_text(Path("part0.csv").read_text().replace(",local,", ",local,nan,", 1))
    assert run(tally.add, f"part0.csv --tally two.json {SHAPE} {ball}").exit_code != 0


# --- slots ---


def test_heavy_hitters() -> None:
    query = np.minimum(DRAW.geometric(0.33, 3000) - 1, 40)
    rows = [f"{i},q{q},u{i % 2},{'trusted' if i < 800 else 'local'}" for i, q in enumerate(query.tolist())]
    Path("log.csv").write_text("\n".join(["id,query,url,trust", *rows]) + "\n")
    done(RELEASE["heavy-hitters"], f"log.csv {HEAVY} --invite-out invite.json")
    answer = "--person id --column query url --trust trust --invite invite.json --epsilon 9"
    done(RANDOMISE["heavy-hitters"], f"log.csv {answer} --out sent.csv")
    head, *lines = Path("sent.csv").read_text().splitlines()
    for i, part in enumerate((lines[::3], lines[1::3], lines[2::3])):
        Path(f"part{i}.csv").write_text("\n".join([head, *part]) + "\n")
    done(tally.add, "part0.csv --tally one.json --invite invite.json")
    done(tally.add, "part2.csv part1.csv --tally two.json --invite invite.json")
    assert done(tally.merge, "one.json two.json --out both.json")["people"] == 2200
    whole = done(RELEASE["heavy-hitters"], "sent.csv --invite invite.json")
    found = done(RELEASE["heavy-hitters"], "--invite invite.json --tally both.json")
    assert found == whole
    refused(RELEASE["heavy-hitters"], "sent.csv --invite invite.json --tally both.json", "`file` must be given, or")
    refused(RELEASE["heavy-hitters"], HEAVY, "`file` must be given, or")
    refused(RELEASE["heavy-hitters"], f"--tally both.json {HEAVY}", "`file` must be given, or")
    done(RELEASE["heavy-hitters"], f"log.csv {HEAVY} --invite-out other.json")
    refused(RELEASE["heavy-hitters"], "--invite other.json --tally both.json", "must hold reports by")
    refused(tally.add, "part0.csv --tally other.tally --invite other.json", "must name the mechanism of the tally")
    refused(tally.add, "part0.csv --tally x.json --invite part0.csv", "`invite`")
