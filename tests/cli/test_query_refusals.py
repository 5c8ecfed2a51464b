"""Whom a query leaves may depend on people's values: a refusal over its answer is paid for, in every release."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Runner

from hybridp.blend.mean import Rule
from hybridp.curator.sums import Columns, count_rows, open_rows
from hybridp.errors import BudgetExceeded, HybridpError, InvalidInput, LedgerProblem
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.driver import charged
from hybridp.protocols.driver import release as release_mean
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.lattice import Bounds
from hybridp.study import Study
from hybridp.tables.source import Source
from hybridp.tasks.mean import MeanTask
from hybridp.tasks.personal import ACCOUNTS

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
NUMBER = "--column pay --missing middle --lower 0 --upper 100"
POINTS = "--column pay --column age --missing middle --lower 0 --upper 100"
RELEASES = {
    "mean": f"release mean people.csv --everyone trusted --epsilon 1 {NUMBER}",
    "steered mean": f"release mean people.csv --everyone trusted --epsilon 1 {NUMBER} --invite-out i.json --n 9",
    "own epsilon": f"release mean people.csv --trust trust --epsilon-column own --public own {NUMBER}",
    "private groups": f"release mean people.csv --everyone trusted --epsilon 1 {NUMBER} --by town --by-private "
    "--categories a,b",
    "regression": "release regression people.csv --everyone trusted --epsilon 1 --target pay --on age "
        "--missing middle --lower 0 --upper 100",
    "heavy hitters": "release heavy-hitters people.csv --everyone trusted --epsilon 1 --delta 1e-5 --column colour "
    "--person who --head 2",
    "invitation": "release heavy-hitters people.csv --everyone trusted --epsilon 1 --delta 1e-5 --column colour "
    "--person who --head 2 --invite-out i.json",
    "kmeans": f"release kmeans people.csv --everyone trusted --epsilon 1 {POINTS} --clusters 2",
    "synth": "synth fit people.csv --epsilon 1 --delta 1e-5 --schema schema.json --out model --other last "
    "--marginals colour,town",
    "synth of both": "synth fit people.csv --trust trust --epsilon 1 --delta 1e-5 --schema schema.json --out model "
    "--other last --marginals colour,town",
    "study": "release study.toml people.csv",
}  # fmt: skip
BY_VALUE = "SELECT * FROM rows WHERE TRY_CAST(pay AS DOUBLE) > 43"  # of nobody's business how many have more
NOBODY = "SELECT * FROM rows WHERE town = 'z'"


@pytest.fixture
def people(tmp_path: Path) -> Path:
    told = [f"{i},{10 * i},{20 + i},{'ab'[i % 2]},{'red' if i % 3 else 'blue'},trusted,1" for i in range(8)]
    (tmp_path / "people.csv").write_text("\n".join(["who,pay,age,town,colour,trust,own", *told]) + "\n")
    (tmp_path / "study.toml").write_text(STUDY)
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


def declared(people: Path, line: str) -> str:
    """The same command where everybody may know who lives where: a study says so itself."""
    if ".toml" not in line:
        return f"{line} --public town" if "--public" not in line else line.replace("--public own", "--public own,town")
    study = people.parent / "study.toml"
    study.write_text(study.read_text().replace("[trust]", '[people]\npublic = ["town"]\n[trust]'))
    return line


@pytest.mark.parametrize("kind", RELEASES)
def test_no_release_chooses_rows_by_a_private_column(run: Runner, people: Path, tmp_path: Path, kind: str) -> None:
    """How many people earn more than 43 was printed exactly; it is refused before a row is read, and costs nothing."""
    ledger = made(tmp_path, kind)
    told = run(f"{declared(people, RELEASES[kind])} --ledger l", "--query", BY_VALUE)
    assert (told.code, told.out, "add it to people.public, or --public pay" in told.err) == (2, "", True), told.err
    assert not ledger.history()[-1:] or ledger.history()[-1].state == "void"
    assert spent(ledger) == 0


@pytest.mark.parametrize("kind", RELEASES)
def test_a_query_that_leaves_nobody_is_refused_and_charged(
    run: Runner, people: Path, tmp_path: Path, kind: str
) -> None:
    ledger = made(tmp_path, kind)
    told = run(f"{declared(people, RELEASES[kind])} --ledger l", "--query", NOBODY)
    assert (told.code, "the charge stands" in told.err) == (2, True), told.err
    assert spent(ledger) >= min(1.0, ledger.accounts()[0].total.epsilon) - 1e-9
    assert {entry.state for entry in ledger.history()} == {"refused"}
    assert not ledger.releases()


def test_whom_a_query_leaves_is_not_told_where_trusted_people_pay_nothing(
    run: Runner, people: Path, tmp_path: Path
) -> None:
    """Without a ledger too, and beside a question for which they pay."""
    alone = f"{declared(people, RELEASES['mean'])} --estimator lm-only"
    for line in (alone, f"{alone} --ledger l"):
        told = run(line, "--query", NOBODY)
        assert (told.code, "must be left out where trusted people are charged nothing" in told.err) == (2, True)
    assert not (tmp_path / "l").exists()


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
    assert run(f"{RELEASES['mean']} --ledger l".replace("people.csv", "none.csv"), "--query", NOBODY).code == 2
    assert spent(ledger) == 0


@pytest.fixture
def failing(people: Path) -> Callable[[int], None]:
    """A view that fails where somebody earns more than this: no query can be written that does, but a database has one.

    The largest of these people's pay is 70.
    """
    import duckdb

    def view(most: int) -> None:
        made = people.parent / "people.duckdb"
        made.unlink(missing_ok=True)
        wrong = f"CASE WHEN pay > {most} THEN error('x') ELSE pay END AS pay"
        with duckdb.connect(str(made)) as db:
            db.execute(f"CREATE TABLE t AS SELECT * FROM read_csv('{people}')")
            db.execute(f"CREATE VIEW v AS SELECT {wrong}, town, trust, own, age, colour FROM t")

    return view


OWN = f"{RELEASES['own epsilon']} --share 1e-9 --ledger l".replace("people.csv", "people.duckdb")


def test_a_query_that_fails_all_the_same_costs_all_that_was_promised(
    run: Runner, failing: Callable[[int], None], tmp_path: Path
) -> None:
    """At the price that the analyst chose, 1e-9, it told whether anybody earns more: now a failure costs everything."""
    ledger = made(tmp_path, "own epsilon")
    failing(900)
    assert run(OWN, "--query", "SELECT * FROM v").code == 0
    assert spent(ledger) == pytest.approx(1e-9)
    failing(60)
    told = run(OWN, "--query", "SELECT * FROM v")
    assert (told.code, "costs trusted people an epsilon of 1, or all they have left" in told.err) == (2, True), told.err
    assert spent(ledger) == 1.0
    assert [entry.state for entry in ledger.history()] == ["spent", "refused", "refused"]
    failing(900)
    assert run(OWN, "--query", "SELECT * FROM v").code == 3


@pytest.mark.parametrize("estimator", ["tcm-only", "alike"])
def test_the_floor_is_what_a_query_costs_that_ends_in_no_release(
    run: Runner, failing: Callable[[int], None], people: Path, tmp_path: Path, estimator: str
) -> None:
    """A release of 1/4 costs 1 where it fails, and one of 2 costs 2; also where the groups' sizes decide (alike)."""
    failing(60)
    line = RELEASES["mean"].replace("people.csv", "people.duckdb") + f" --estimator {estimator} --ledger l"
    ledger = made(tmp_path)
    assert run(line.replace("--epsilon 1", "--epsilon 0.25"), "--query", "SELECT * FROM v").code == 2
    assert spent(ledger) == 1.0
    assert run(line.replace("--epsilon 1", "--epsilon 2"), "--query", "SELECT * FROM v").code == 2
    assert spent(ledger) == 3.0


def test_a_look_at_the_sizes_that_fails_costs_all_that_they_may_decide(people: Path, tmp_path: Path) -> None:
    """Whose word of trust cannot be read depends on pay; the groups' sizes are counted before anything is charged."""
    import duckdb

    with duckdb.connect(str(tmp_path / "sizes.duckdb")) as db:
        word = "CASE WHEN pay > 60 THEN error('x') ELSE trust END AS trust"
        db.execute(f"CREATE TABLE t AS FROM '{people}'; CREATE VIEW v AS SELECT pay, {word} FROM t")
    ledger, study = made(tmp_path), MeanTask(Bounds(0, 100), PureDP(2.0), Rule("alike"))
    source = Source(tmp_path / "sizes.duckdb", query="SELECT * FROM v")
    with pytest.raises(HybridpError):
        release_mean(source, study, Columns("pay", "trust", missing="middle"), ledger=ledger)
    assert spent(ledger) == 2.0


def test_a_column_that_is_missed_after_a_row_was_read_is_not_free() -> None:
    with open_rows(Source({"trust": ["trusted"]}, query="SELECT trust FROM rows"), trust="trust") as rows:
        for read in (False, True):
            with pytest.raises(InvalidInput) as missed:
                rows.need("value", "age")
            assert missed.value.of_rows is read
            assert count_rows(rows, "trust", None).trusted == 1


@pytest.mark.parametrize("kind", ["mean", "study"])
def test_columns_are_known_before_a_query_reads_a_row(
    run: Runner, failing: Callable[[int], None], people: Path, tmp_path: Path, kind: str
) -> None:
    """It ran first, and its charge was void: whether it failed, or how long it took, was told for nothing."""
    ledger = made(tmp_path)
    line = f"{declared(people, RELEASES[kind])} --ledger l".replace("people.csv", "people.duckdb")
    told = set()
    for most in (60, 900):
        failing(most)
        told.add(run(line, "--query", "SELECT town, trust, own, pay AS wages FROM v").err)
    ((said),) = told
    assert ("must be a column" in said, spent(ledger)) == (True, 0.0), said


def test_the_second_questions_column_is_not_missed_for_free(run: Runner, people: Path, tmp_path: Path) -> None:
    """The first question has read the rows by then."""
    ledger = made(tmp_path)
    told = run("release study.toml people.csv --ledger l", "--query", "SELECT pay, trust FROM rows")
    assert (told.code, "must be a column" in told.err, spent(ledger)) == (2, True, 1.0), told.err


@pytest.mark.parametrize("column", ["trust", "person"])
def test_nobody_is_counted_by_what_a_query_makes_of_private_columns(
    run: Runner, people: Path, tmp_path: Path, column: str
) -> None:
    """The groups' sizes are published, and how many people there are: `pay > 43` as trust was told exactly."""
    ledger = made(tmp_path)
    made_of = {
        "trust": "CASE WHEN TRY_CAST({} AS DOUBLE) > 43 THEN 'trusted' ELSE 'local' END AS trust",
        "person": "CASE WHEN TRY_CAST({} AS DOUBLE) > 43 THEN 'one' ELSE who END AS person",
    }
    line = {
        "trust": "--trust trust --simulate-local --seed 1",
        "person": "--everyone trusted --person person --ledger l",
    }
    line = f"release mean people.csv {NUMBER} --epsilon 1 {line[column]}"
    told = run(line, "--query", f"SELECT pay, {made_of[column].format('pay')} FROM rows")
    assert (told.code, "made of public ones" in told.err, spent(ledger)) == (2, True, 0.0), told.err
    of_public = f"SELECT pay, {made_of[column].format('age')} FROM rows"
    assert run(f"{line} --public age,who", "--query", of_public).code == 0


@pytest.mark.parametrize("kind", ["mean", "synth"])
def test_nobody_in_a_table_is_public_and_free(run: Runner, people: Path, tmp_path: Path, kind: str) -> None:
    people.write_text(people.read_text().split("\n")[0] + "\n")
    ledger = made(tmp_path, kind)
    told = run(f"{RELEASES[kind]} --ledger l")
    assert (told.code, "the charge stands" in told.err) == (2, False), told.err
    assert spent(ledger) == 0


def test_too_few_are_paid_for_too(run: Runner, people: Path, tmp_path: Path) -> None:
    ledger = made(tmp_path)
    told = run(f"{RELEASES['regression']} --public who --ledger l", "--query", "SELECT * FROM rows WHERE who = '7'")
    assert (told.code, "coefficients" in told.err, spent(ledger)) == (2, True, 1.0)


ASKED = Source({"pay": [1.0]}, query="SELECT pay FROM rows")
CHARGE = Charge("trusted", PureDP(1.0), "noise", "")


@pytest.mark.parametrize(
    ("failure", "path", "state"),
    [
        (InvalidInput("too few"), ASKED, "refused"),
        (BudgetExceeded("these reports are others"), ASKED, "refused"),
        (LedgerProblem("the disk is full"), ASKED, "void"),
        (KeyboardInterrupt(), ASKED, "refused"),
        (MemoryError(), ASKED, "refused"),
        (InvalidInput("too few"), Source({"pay": [1.0]}), "void"),
        (KeyboardInterrupt(), Source({"pay": [1.0]}), "void"),
    ],
)
def test_only_the_answer_to_a_query_makes_a_public_refusal_private(
    tmp_path: Path, failure: BaseException, path: Source, state: str
) -> None:
    ledger = made(tmp_path)
    with pytest.raises(type(failure)), charged(ledger, [CHARGE], trial=False, path=path):
        raise failure
    assert [entry.state for entry in ledger.history()] == [state]


def test_a_plan_counts_nobody_whom_a_query_chose(run: Runner, people: Path) -> None:
    """It pays for nothing, and would tell exactly how many people earn less than 50."""
    told = run("plan study.toml people.csv", "--query", "SELECT * FROM rows WHERE pay < '50'")
    assert (told.code, told.out, "`query` must be left out" in told.err) == (2, "", True), told.err
    assert run("plan study.toml people.csv --json").code == 0
    with pytest.raises(InvalidInput, match="`query` must be left out"):
        Study.read(people.parent / "study.toml").plan(Source(people, query="SELECT * FROM rows"))


def test_a_plan_of_own_epsilons_counts_a_public_column_alone(run: Runner, people: Path, tmp_path: Path) -> None:
    """Whatever column was named had its counts told exactly, for nothing."""
    asked = '[[questions]]\nname = "pay"\nkind = "number"\nmissing = "middle"\nlower = 0\nupper = 100\n'
    head = '[promise]\nepsilon_column = "own"\n[trust]\ncolumn = "trust"\n[people]\npublic = '
    for public, code in (('["trust"]', 2), ('["age", "trust"]', 2), ('["own", "trust"]', 0)):
        (tmp_path / "own.toml").write_text(f"{head}{public}\n{asked}")
        told = run("plan own.toml people.csv --json")
        assert told.code == code, told.err
        assert not code or "add it to people.public, or --public own, if everybody may know it" in told.err


def test_a_study_tells_exactly_of_its_public_columns_alone(run: Runner, people: Path, tmp_path: Path) -> None:
    study = tmp_path / "by.toml"
    question = '[[questions]]\nname = "pay"\nkind = "number"\nmissing = "middle"\nlower = 0\nupper = 100\nby = "town"\n'
    declares = "[people]\npublic = {}\n"
    head = '[promise]\nepsilon = 1\n[trust]\ncolumn = "trust"\n'
    codes = {'["age"]': [2, 2], '["trust"]': [2, 2], '["town"]': [2, 0], '["town", "trust"]': [0, 0]}
    for public, expected in codes.items():
        study.write_text(declares.format(public) + head + question)
        told = run("plan by.toml people.csv"), run("release by.toml people.csv")
        assert [one.code for one in told] == expected, (public, told)
        assert all("people.public" in one.err for one in told if one.code)
    private = question + 'by_private = true\ncategories = ["a", "b"]\n'
    study.write_text(head + private)
    assert run("release by.toml people.csv").code == 0


def test_a_study_file_is_made_without_asking_a_query(run: Runner, people: Path, tmp_path: Path) -> None:
    """Whether it fails on somebody's value was told for free, by a command that looks at no value."""
    fails = "SELECT *, CASE WHEN CAST(pay AS INT) > {} THEN CAST(error('') AS INT) ELSE 1 END AS x FROM rows"
    line = "init people.csv --column pay --lower 0 --upper 100 --everyone trusted --yes --out new.toml"
    told = {(said.code, said.out, said.err) for said in (run(line, "--query", fails.format(n)) for n in (60, 900))}
    ((code, _, err),) = told
    assert (code, "`query` must be left out" in err, (tmp_path / "new.toml").exists()) == (2, True, False)
    assert run(line).code == 0


@pytest.fixture
def both(run: Runner, people: Path, tmp_path: Path) -> Ledger:
    """Twelve more people are local, whose reports are paid for once, and a ledger with nothing for others."""
    more = [f"{i},{i},30,a,red,local,1" for i in range(8, 20)]
    people.write_text(people.read_text() + "\n".join(more) + "\n")
    columns = "--schema schema.json --other last --marginals colour,town --trust trust --epsilon 1"
    assert run(f"randomise synth people.csv {columns} --keep who --keep pay --out reports.csv").code == 0
    ledger = Ledger.create(tmp_path / "l", {"trusted": ApproxDP(5.0, 0.001), "local": PureDP(1.0)})
    assert run(BOTH, "--query", "SELECT * FROM rows").code == 0
    return ledger


BOTH = RELEASES["synth of both"].replace("people.csv", "reports.csv") + " --ledger l"


@pytest.mark.parametrize(
    ("query", "code", "says"),
    [
        ("SELECT * FROM rows WHERE who <> '8'", 3, "local group"),  # other reports, which the ledger cannot pay for
        ("SELECT * FROM rows WHERE trust = 'trusted'", 2, "no local"),
    ],
)
def test_whom_a_query_leaves_in_a_fit_of_both_groups_is_paid_for(
    run: Runner, both: Ledger, query: str, code: int, says: str
) -> None:
    paid = spent(both)
    told = run(BOTH.replace("--out model", "--out other --public who,trust"), "--query", query)
    assert (told.code, says in told.err, "the charge stands" in told.err) == (code, True, True), told.err
    assert spent(both) > paid
    assert both.history()[-1].state == "refused"


def test_a_fit_that_a_query_leaves_to_local_people_is_paid_for_by_trusted_ones(run: Runner, both: Ledger) -> None:
    """That nobody was left is told: they are charged before a row is read."""
    paid = spent(both)
    line, query = BOTH.replace("--out model", "--out m --public trust"), "SELECT * FROM rows WHERE trust = 'local'"
    told = run(line, "--query", query)
    assert (told.code, spent(both) - paid) == (0, pytest.approx(1.0, abs=1e-6)), told.err
