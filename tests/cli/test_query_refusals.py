"""Whom a query leaves may depend on people's values: a refusal over its answer is paid for, in every release."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Runner

from hybridp.errors import BudgetExceeded, HybridpError, InvalidInput, LedgerProblem
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.paying import spending
from hybridp.protocols.personal import ACCOUNTS
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.study import Study
from hybridp.tables.source import Source, open_rows

STUDY = """
[promise]
epsilon = 1
[trust]
everyone = "trusted"
[[questions]]
name = "pay"
kind = "number"
missing = "middle"
lower = 0
upper = 100
statistics = ["mean", "sd"]
[[questions]]
name = "colour"
kind = "choice"
options = ["red", "blue"]
missing = "blue"
"""
NUMBER = "--value pay --missing middle --lower 0 --upper 100"
POINTS = "--columns pay --columns age --missing middle --lower 0 --upper 100"
RELEASES = {
    "mean": f"release mean people.csv --all-trusted --epsilon 1 {NUMBER}",
    "sum": "release sum.toml people.csv",
    "one estimator": f"release mean people.csv --all-trusted --epsilon 1 {NUMBER} --estimator tcm-only",
    "steered mean": f"release mean people.csv --all-trusted --epsilon 1 {NUMBER} --invite-out i.json --local-people 9",
    "own epsilon": f"release mean people.csv --trust trust --epsilon-column own {NUMBER}",
    "public groups": f"release mean people.csv --all-trusted --epsilon 1 {NUMBER} --by town --categories a,b",
    "private groups": f"release mean people.csv --all-trusted --epsilon 1 {NUMBER} --by town --by-private "
    "--categories a,b",
    "quantiles": f"release quantiles people.csv --all-trusted --epsilon 1 {NUMBER}",
    "histogram": "release histogram people.csv --all-trusted --epsilon 1 --value pay --edges 0,50,100 "
        "--missing 50..100",
    "shares": "release shares people.csv --all-trusted --epsilon 1 --choice colour --options red,blue --missing blue",
    "count": "release count people.csv --all-trusted --epsilon 1 --choice colour --value red",
    "regression": "release regression people.csv --all-trusted --epsilon 1 --target pay --on age "
        "--missing middle --lower 0 --upper 100",
    "vector": f"release vector-mean people.csv --all-trusted --epsilon 1 {POINTS}",
    "heavy hitters": "release heavy-hitters people.csv --all-trusted --epsilon 1 --delta 1e-5 --record colour "
    "--person who --head 2",
    "invitation": "release heavy-hitters people.csv --all-trusted --epsilon 1 --delta 1e-5 --record colour "
    "--person who --head 2 --invite-out i.json",
    "kmeans": f"release kmeans people.csv --all-trusted --epsilon 1 {POINTS} --clusters 2",
    "synth": "synth fit people.csv --epsilon 1 --delta 1e-5 --schema schema.json --out model --marginals colour,town",
    "synth of both": "synth fit people.csv --trust trust --epsilon 1 --delta 1e-5 --schema schema.json --out model "
    "--marginals colour,town",
    "study": "release study.toml people.csv",
}  # fmt: skip
BY_VALUE = "SELECT * FROM rows WHERE CAST(pay AS DOUBLE) > 100"  # nobody has more


@pytest.fixture
def people(tmp_path: Path) -> Path:
    told = [f"{i},{10 * i},{20 + i},{'ab'[i % 2]},{'red' if i % 3 else 'blue'},trusted,1" for i in range(8)]
    (tmp_path / "people.csv").write_text("\n".join(["who,pay,age,town,colour,trust,own", *told]) + "\n")
    (tmp_path / "study.toml").write_text(STUDY)
    (tmp_path / "sum.toml").write_text(STUDY.split('[[questions]]\nname = "colour"')[0].replace('"sd"', '"sum"'))
    (tmp_path / "schema.json").write_text(json.dumps({"colour": ["red", "blue"], "town": ["a", "b"]}))
    return tmp_path / "people.csv"


def made(tmp_path: Path, kind: str = "") -> Ledger:
    totals: Any = {"trusted": ApproxDP(5.0, 0.001), "local": PureDP(5.0)}
    if kind == "own epsilon":
        totals = {account: PureDP(1.0) for account in ACCOUNTS.values()}
    return Ledger.create(tmp_path / "l", totals)


def spent(ledger: Ledger) -> float:
    (account,) = [one for one in ledger.accounts() if one.people.startswith("trusted")]
    return account.total.epsilon - account.left.epsilon


@pytest.mark.parametrize("kind", RELEASES)
def test_a_query_that_leaves_nobody_is_refused_and_charged(
    run: Runner, people: Path, tmp_path: Path, kind: str
) -> None:
    ledger = made(tmp_path, kind)
    told = run(f"{RELEASES[kind]} --ledger l", "--query", BY_VALUE)
    assert (told.code, "the charge stands" in told.err) == (2, True), told.err
    # All of the promise, or the round of a fit that would have been the first.
    assert spent(ledger) > 0.9 or (kind.startswith("synth") and spent(ledger) > 0)
    assert {entry.state for entry in ledger.history()} == {"refused"}
    assert not ledger.releases()


def test_what_is_refused_before_a_query_is_asked_is_free(run: Runner, people: Path, tmp_path: Path) -> None:
    """A slip of the pen says nothing of anybody: the file, the query's own words and the columns that it makes."""
    ledger = made(tmp_path)
    for query in (
        "SELECT nothing FROM rows",
        "SELECT age FROM rows",
        "DELETE FROM rows",
    ):
        told = run(f"{RELEASES['mean']} --ledger l", "--query", query)
        assert (told.code, "the charge stands" in told.err) == (2, False), told.err
    assert run(f"{RELEASES['mean']} --ledger l".replace("people.csv", "none.csv"), "--query", BY_VALUE).code == 2
    assert spent(ledger) == 0


def test_no_value_names_a_column() -> None:
    """Whether there is a column `70`, and all the names that `hybridp init` shows, would tell who earns what."""
    frame = {"pay": [10.0, 70.0], "town": ["a", "b"]}
    for made_of in ("(PIVOT rows ON pay USING count(*))", "rows PIVOT (count(*) FOR pay IN (SELECT pay FROM rows))"):
        with pytest.raises(InvalidInput, match="must list what PIVOT makes columns of"):
            open_rows(Source(frame, query=f"SELECT * FROM {made_of}"))
    for listed in ("(PIVOT rows ON town IN ('a', 'z') USING sum(pay))", "rows PIVOT (sum(pay) FOR town IN ('a', 'z'))"):
        with open_rows(Source(frame, query=f"SELECT * FROM {listed}")) as rows:
            assert {"a", "z"} <= set(rows.columns)
    with open_rows(Source(frame, query="SELECT n, v FROM (UNPIVOT rows ON pay INTO NAME n VALUE v)")) as rows:
        assert set(rows.columns) == {"n", "v"}


@pytest.mark.parametrize("kind", ["mean", "regression", "one estimator", "synth"])
def test_nobody_in_a_table_is_public_and_free(run: Runner, people: Path, tmp_path: Path, kind: str) -> None:
    people.write_text(people.read_text().split("\n")[0] + "\n")
    ledger = made(tmp_path, kind)
    told = run(f"{RELEASES[kind]} --ledger l")
    assert (told.code, "the charge stands" in told.err) == (2, False), told.err
    assert spent(ledger) == 0


def test_a_ledger_that_is_new_stays_with_its_charge(run: Runner, people: Path, tmp_path: Path) -> None:
    assert run(f"{RELEASES['mean']} --ledger new", "--query", BY_VALUE).code == 2
    assert [entry.state for entry in Ledger.open(tmp_path / "new").history()] == ["refused"]


def test_too_few_and_a_folder_of_others_are_paid_for_too(run: Runner, people: Path, tmp_path: Path) -> None:
    ledger = made(tmp_path)
    told = run(f"{RELEASES['regression']} --ledger l", "--query", "SELECT * FROM rows WHERE pay = '70'")
    assert (told.code, "coefficients" in told.err, spent(ledger)) == (2, True, 1.0)
    fit = f"{RELEASES['synth']} --ledger l"
    assert run(fit, "--query", "SELECT * FROM rows").code == 0
    paid = spent(ledger)
    people.write_text("\n".join(people.read_text().split("\n")[:-2]) + "\n")
    told = run(fit, "--query", "SELECT * FROM rows")
    assert (told.code, "same study and rows" in told.err, spent(ledger) > paid) == (2, True, True), told.err


ASKED = Source({"pay": [1.0]}, query="SELECT pay FROM rows")
CHARGE = Charge("trusted", PureDP(1.0), "noise", "")


@pytest.mark.parametrize(
    ("failure", "path", "state"),
    [
        (InvalidInput("too few"), ASKED, "refused"),
        (BudgetExceeded("these reports are others"), ASKED, "refused"),
        (LedgerProblem("the disk is full"), ASKED, "void"),
        (KeyboardInterrupt(), ASKED, "void"),
        (InvalidInput("too few"), Source({"pay": [1.0]}), "void"),
    ],
)
def test_only_the_answer_to_a_query_makes_a_public_refusal_private(
    tmp_path: Path, failure: BaseException, path: Source, state: str
) -> None:
    ledger = made(tmp_path)
    with pytest.raises(type(failure)), spending(ledger, [CHARGE], trial=False, path=path):
        raise failure
    assert [entry.state for entry in ledger.history()] == [state]


def test_a_query_that_runs_out_of_memory_has_been_asked() -> None:
    """How much it needs may depend on one value."""
    large = "SELECT repeat('x', 1000000) AS x FROM (SELECT unnest(range(200)) FROM rows)"
    source = Source({"pay": [1.0]}, query=f"SELECT string_agg(x, '') AS pay FROM ({large})")
    with pytest.raises(HybridpError, match="memory_limit") as told:
        open_rows(source, memory_limit="60MB")
    assert told.value.of_rows


def test_a_plan_counts_nobody_whom_a_query_chose(run: Runner, people: Path) -> None:
    """It pays for nothing, and would tell exactly how many people earn less than 50."""
    told = run("plan study.toml people.csv", "--query", "SELECT * FROM rows WHERE pay < '50'")
    assert (told.code, told.out, "`query` must be left out" in told.err) == (2, "", True), told.err
    assert run("plan study.toml people.csv --json").code == 0
    with pytest.raises(InvalidInput, match="`query` must be left out"):
        Study.read(people.parent / "study.toml").plan(Source(people, query="SELECT * FROM rows"))


def test_a_study_file_is_made_without_asking_a_query(run: Runner, people: Path, tmp_path: Path) -> None:
    """Whether it fails on somebody's value was told for free, by a command that looks at no value."""
    fails = "SELECT *, CASE WHEN CAST(pay AS INT) > {} THEN CAST(error('') AS INT) ELSE 1 END AS x FROM rows"
    line = "init people.csv --column pay --lower 0 --upper 100 --all-trusted --defaults --out new.toml"
    told = {(said.code, said.out, said.err) for said in (run(line, "--query", fails.format(n)) for n in (60, 900))}
    ((code, _, err),) = told
    assert (code, "`query` must be left out" in err, (tmp_path / "new.toml").exists()) == (2, True, False)
    assert run(line).code == 0


@pytest.fixture
def both(run: Runner, people: Path, tmp_path: Path) -> Ledger:
    """Twelve more people are local, whose reports are paid for once, and a ledger with nothing for others."""
    more = [f"{i},{i},30,a,red,local,1" for i in range(8, 20)]
    people.write_text(people.read_text() + "\n".join(more) + "\n")
    columns = "--schema schema.json --marginals colour,town --trust trust --epsilon 1"
    assert run(f"randomise synth people.csv {columns} --keep who --keep pay --out reports.csv").code == 0
    ledger = Ledger.create(tmp_path / "l", {"trusted": ApproxDP(5.0, 0.001), "local": PureDP(1.0)})
    assert run(BOTH, "--query", "SELECT * FROM rows").code == 0
    return ledger


BOTH = RELEASES["synth of both"].replace("people.csv", "reports.csv") + " --ledger l"


@pytest.mark.parametrize(
    ("query", "code", "says"),
    [
        # Other reports, which the ledger cannot pay for, where somebody earns more than 60; else the same ones.
        ("SELECT * FROM rows WHERE who <> '8' OR (SELECT max(CAST(pay AS INT)) FROM rows) <= 60", 3, "local group"),
        ("SELECT * FROM rows WHERE trust = 'local' OR CAST(pay AS INT) > 100", 2, "`query` must leave somebody"),
        ("SELECT * FROM rows WHERE (SELECT max(CAST(pay AS INT)) FROM rows) <= 60 OR trust = 'trusted'", 2, "no local"),
    ],
)
def test_whom_a_query_leaves_in_a_fit_of_both_groups_is_paid_for(
    run: Runner, both: Ledger, query: str, code: int, says: str
) -> None:
    paid = spent(both)
    told = run(BOTH.replace("--out model", "--out other"), "--query", query)
    assert (told.code, says in told.err, "the charge stands" in told.err) == (code, True, True), told.err
    assert spent(both) > paid
    assert both.history()[-1].state == "refused"


def test_a_fit_goes_on_with_the_same_query_words_and_reports_alone(
    run: Runner, both: Ledger, people: Path, tmp_path: Path
) -> None:
    """Where all is paid for, another query with as many people would be answered for free: it is never asked."""
    paid, entries = spent(both), both.history()
    assert run(BOTH, "--query", "SELECT * FROM rows").code == 0
    told = run(BOTH, "--query", "SELECT * FROM rows WHERE CAST(pay AS INT) < 100")
    assert (told.code, "same study and rows" in told.err, "charge" in told.err) == (2, True, False), told.err
    told = run(BOTH + " --trusted-value trusted", "--query", "SELECT * FROM rows")
    assert (told.code, "same study and rows" in told.err) == (2, True), told.err
    # Other reports of the same people: they would be neither charged nor used.
    columns = "--schema schema.json --marginals colour,town --trust trust --epsilon 1"
    assert run(f"randomise synth people.csv {columns} --keep who --keep pay --out again.csv").code == 0
    (tmp_path / "again.csv").replace(tmp_path / "reports.csv")
    assert (spent(both), both.history()) == (paid, entries)
    told = run(BOTH, "--query", "SELECT * FROM rows")
    assert (told.code, "same study and rows" in told.err, "charge stands" in told.err) == (2, True, True), told.err


def test_one_column_is_one(run: Runner) -> None:
    plan = "plan vector-mean --n 100 --opt-in 0.5 --lower 0 --upper 1 --epsilon 1"
    assert "1 column of" in run(f"{plan} --columns a").out
    assert "2 columns of" in run(f"{plan} --columns a --columns b").out
