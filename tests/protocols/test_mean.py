"""A mean on files: the ledger comes first, and an estimate that is published alone is the only thing of its reports."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.questions import LOCAL, TRUSTED, crowd, declare

from hybridp.blend.mean import EstimatorName, Rule
from hybridp.curator.sums import Columns
from hybridp.errors import BudgetExceeded, InvalidInput
from hybridp.ledger import SEALED, Ledger
from hybridp.protocols.driver import release as release_mean
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import Bounds
from hybridp.release.release import VIEWER, Release
from hybridp.tasks.mean import MeanTask

STUDY = MeanTask(Bounds(0, 100), PureDP(1.0))
FULL = replace(STUDY, rule=Rule("kvh", sd=0.4))
ALONE = replace(FULL, publish="estimate-only")
COLUMNS = Columns("pay", "trust", missing="middle")


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file in which the devices of local people have already answered."""
    path = tmp_path_factory.mktemp("collected") / "rows.csv"
    declare("mean", promise=1.0).randomise(crowd(), path)
    return path


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "l", {"trusted": PureDP(9.0), "local": PureDP(9.0)})


@pytest.mark.parametrize("rule", ["everyone", "alike"])  # of which the second goes by the groups' sizes
@pytest.mark.parametrize("file", ["nowhere.csv", "bad.csv", "folder.csv"])
def test_without_budget_nothing_is_read(tmp_path: Path, rows: Path, file: str, rule: EstimatorName) -> None:
    ledger = Ledger.create(tmp_path / "l", {"trusted": PureDP(1.0), "local": PureDP(1.0)})
    release_mean(rows, STUDY, COLUMNS, ledger=ledger)
    before = len(ledger.history())
    (tmp_path / "bad.csv").write_text("no such columns\n")
    (tmp_path / "folder.csv").mkdir()
    with pytest.raises(BudgetExceeded) as refused:
        release_mean(tmp_path / file, replace(STUDY, rule=Rule(rule)), COLUMNS, ledger=ledger)
    assert refused.value.exit_code == 3
    assert refused.value.__context__ is None, "the file was tried before"
    assert len(ledger.history()) == before


# --- estimate only ----------------------------------------------------------------------------------------------------


def promised(found: Release, group: str) -> Any:
    """What is promised against whoever sees the release."""
    (promise,) = (p for p in found.receipt.promises if p.people == group and p.against == VIEWER)
    return promise.budget


@pytest.mark.parametrize("name", ["kvh", "pwh", "everyone", "fixed", "tcm-only", "lm-only"])
def test_amplification_only_when_nothing_else_is_published(rows: Path, name: EstimatorName) -> None:
    rule = Rule(name, sd=0.4, weight=0.7 if name == "fixed" else None)
    full = release_mean(rows, replace(STUDY, rule=rule), COLUMNS)
    only = release_mean(rows, replace(STUDY, rule=rule, publish="estimate-only"), COLUMNS)
    assert (only.trusted, only.local, only.difference, only.p_value, only.facts["sd_estimate"]) == (None,) * 5
    assert name == "lm-only" or promised(only, "trusted") == PureDP(1.0)
    if name != "tcm-only":
        assert promised(full, "local") == PureDP(1.0)
        assert (promised(only, "local").epsilon < 1) == (name in ("kvh", "pwh", "fixed"))
    if name == "kvh":  # a report's reach, by the weights and the numbers of people
        w, reach = only.facts["weight"], ALONE.invite.mechanism.bound
        assert promised(only, "local").epsilon == pytest.approx(reach * TRUSTED * (1 - w) / (LOCAL * w), rel=1e-4)


def unmark(ledger: Ledger) -> None:
    """As a ledger was before its charges said what is released alone."""
    with closing(sqlite3.connect(ledger.path)) as db, db:
        db.execute("UPDATE charges SET mechanism = replace(mechanism, ?, '')", (SEALED,))
    assert not any(SEALED in entry.mechanism for entry in ledger.history())


ONCE = "`reports` must be ones of which no estimate was published alone"


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (FULL, ALONE, "`publish` must be full for reports that were released before"),
        (ALONE, FULL, ONCE),
        (ALONE, ALONE, ONCE),
        (ALONE, STUDY, ONCE),
    ],
)
def test_an_amplified_release_of_reports_is_the_only_one(
    rows: Path, tmp_path: Path, ledger: Ledger, first: MeanTask, second: MeanTask, why: str, marked: bool
) -> None:
    """In whichever order, under whatever name: the ledger knows the reports by their digest; also in a ledger of an
    earlier version, whose charges have no mark: what was promised stands in the release that it keeps. One changed row
    is another digest, and nobody can see that the rest are the same: a name says not."""
    found = release_mean(rows, first, COLUMNS, ledger=ledger)
    if not marked:
        unmark(ledger)
    assert (promised(found, "local").epsilon < 1) == (first is ALONE)
    before, kept = [account.spent for account in ledger.accounts()], len(ledger.releases())
    for name in (None, "spring"):
        with pytest.raises(InvalidInput, match=why):
            release_mean(rows, second, COLUMNS, ledger=ledger, collection=name)
    changed = tmp_path / "changed.csv"
    changed.write_text("\n".join(rows.read_text().splitlines()[:-1]) + "\n")
    if second is not STUDY:
        with pytest.raises(InvalidInput, match="`collection` must name these reports"):
            release_mean(changed, second, COLUMNS, ledger=ledger)
    assert ([account.spent for account in ledger.accounts()], len(ledger.releases())) == (before, kept)
    other = release_mean(changed, second, COLUMNS, ledger=ledger, collection="other people")
    assert ledger.remaining("local").epsilon == 7.0
    said = any("cannot see one of a set that shares reports" in line for line in other.receipt.assumes)
    assert said == (second is ALONE)


def test_an_amplified_release_that_came_to_nothing_can_be_made_again(
    rows: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("hybridp.curator.sums.release_sums", lambda *a, **k: 1 / 0)  # what nobody foresaw
        with pytest.raises(ZeroDivisionError):
            release_mean(rows, ALONE, COLUMNS, ledger=ledger)
    assert [(e.people, e.state) for e in ledger.history()] == [("trusted", "refused"), ("local", "void")]
    assert ledger.remaining("local").epsilon == 9.0
    release_mean(rows, ALONE, COLUMNS, ledger=ledger)
    assert ledger.remaining("local").epsilon == 8.0


@pytest.mark.parametrize(
    "rule",
    [Rule("adaptive"), Rule("adaptive", sd=0.4), Rule("skew-aware", sd=0.4), Rule("full-lm", sd=0.4), Rule("everyone"),
     Rule("everyone", sd=0.4, gap=0.1), Rule("everyone", sd=0.4, lies=0.1)],
)
def test_a_learned_weight_or_spread_cannot_be_sealed(rule: Rule) -> None:
    with pytest.raises(InvalidInput, match="`publish`"):
        replace(STUDY, rule=rule, publish="estimate-only")


def test_what_a_mean_does_not_have_is_refused_before_anything_is_charged(rows: Path, ledger: Ledger) -> None:
    with pytest.raises(InvalidInput, match="phases"):
        release_mean(rows, STUDY, COLUMNS, ledger=ledger, phases=(0.5, 0.5))
    assert ledger.history() == []
