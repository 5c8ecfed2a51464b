"""What is told exactly, and for free, is public; what fails on somebody's value is paid for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.conftest import Runner

from hybridp.blend.mean import Rule
from hybridp.curator.sums import Columns
from hybridp.errors import HybridpError
from hybridp.ledger import Ledger
from hybridp.protocols.driver import release as release_mean
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.randomisers import Bounds
from hybridp.tasks.mean import MeanTask

RELEASES = {
    "mean": "release mean people.csv --everyone trusted --epsilon 1 --column pay --missing middle --lower 0 "
    "--upper 100",
    "synth": "synth fit people.csv --epsilon 1 --delta 1e-5 --schema schema.json --out model --other last "
    "--marginals colour,town",
}


@pytest.fixture
def people(tmp_path: Path) -> Path:
    told = [f"{i},{10 * i},{20 + i},{'ab'[i % 2]},{'red' if i % 3 else 'blue'},trusted,1" for i in range(8)]
    (tmp_path / "people.csv").write_text("\n".join(["who,pay,age,town,colour,trust,own", *told]) + "\n")
    (tmp_path / "schema.json").write_text(json.dumps({"colour": ["red", "blue"], "town": ["a", "b"]}))
    return tmp_path / "people.csv"


def made(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "l", {"trusted": ApproxDP(5.0, 0.001), "local": PureDP(5.0)})


def spent(ledger: Ledger) -> float:
    (account,) = [one for one in ledger.accounts() if one.people.startswith("trusted")]
    return account.total.epsilon - account.left.epsilon


def test_a_look_at_the_sizes_that_fails_costs_all_that_they_may_decide(people: Path, tmp_path: Path) -> None:
    """Whose word of trust cannot be read depends on pay; the groups' sizes are counted before anything is charged."""
    import duckdb

    with duckdb.connect(str(tmp_path / "sizes.duckdb")) as db:
        word = "CASE WHEN pay > 60 THEN error('x') ELSE trust END AS trust"
        db.execute(f"CREATE TABLE t AS FROM '{people}'; CREATE VIEW v AS SELECT pay, {word} FROM t")
    ledger, study = made(tmp_path), MeanTask(Bounds(0, 100), PureDP(2.0), Rule("alike"))
    columns = Columns("pay", "trust", missing="middle")
    with pytest.raises(HybridpError):
        release_mean(tmp_path / "sizes.duckdb", study, columns, table="v", ledger=ledger)
    assert spent(ledger) == 2.0


@pytest.mark.parametrize("kind", ["mean", "synth"])
def test_nobody_in_a_table_is_public_and_free(run: Runner, people: Path, tmp_path: Path, kind: str) -> None:
    people.write_text(people.read_text().split("\n")[0] + "\n")
    ledger = made(tmp_path)
    told = run(f"{RELEASES[kind]} --ledger l")
    assert (told.code, "the charge stands" in told.err) == (2, False), told.err
    assert spent(ledger) == 0


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
