"""The whole conversation on files: the estimate is near the truth, the noise is right, the ledger comes first."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from scipy import stats

from hybridp.blend.mean import EstimatorName, Rule
from hybridp.curator.sources import Columns
from hybridp.device.reports import randomise_many
from hybridp.errors import BudgetExceeded, InvalidInput
from hybridp.ledger import SEALED, Ledger
from hybridp.protocols.driver import release as release_mean
from hybridp.public.budgets import PureDP
from hybridp.public.lattice import Bounds
from hybridp.randomness import seeded
from hybridp.release.receipt import VIEWER
from hybridp.release.release import Release
from hybridp.tasks.mean import MeanStudy

BOUNDS = Bounds(0, 100_000)
STUDY = MeanStudy(BOUNDS, PureDP(1.0))
COLUMNS = Columns("pay", "trust", missing="middle")
SIZE, TRUSTED = 3_000, 300
_draw = np.random.default_rng(31)
PAY = np.round(_draw.gamma(4, 10_000, SIZE), 2)
# E min(X, u) for a Gamma(4, theta): 4 theta F_5(u) + u (1 - F_4(u)).
TRUTH = float(40_000 * stats.gamma(5).cdf(10) + 100_000 * stats.gamma(4).sf(10))

Maker = Callable[..., Path]


@pytest.fixture(scope="module")
def collect(tmp_path_factory: pytest.TempPathFactory) -> Maker:
    """A file in which the devices of local people have already answered."""

    def make(name: str = "rows.parquet", study: MeanStudy = STUDY, *, raw: bool = False, seed: int = 4) -> Path:
        path = tmp_path_factory.mktemp("collected") / name
        reports = randomise_many(PAY[TRUSTED:], study.invite, rng=seeded(seed))
        rows: list[tuple[Any, ...]] = [(x, "trusted", None) for x in PAY[:TRUSTED].tolist()]
        rows += [
            (x if raw else None, "local", None if raw else y)
            for x, y in zip(PAY[TRUSTED:].tolist(), reports.tolist(), strict=True)
        ]
        shown = ["" if x is None else repr(x) for row in rows for x in (row[0], row[2])]
        text = replace(study.invite, question=("pay",)).text
        made = ["" if row[2] is None else f'"{text}"' for row in rows]
        lines = [f"{a},{row[1]},{b},{m}\n" for row, a, b, m in zip(rows, shown[::2], shown[1::2], made, strict=True)]
        table = path.with_suffix(".csv")
        table.write_text("pay,trust,report,report_mechanism\n" + "".join(lines))
        if path != table:
            types = "{'pay': 'DOUBLE', 'trust': 'VARCHAR', 'report': 'DOUBLE', 'report_mechanism': 'VARCHAR'}"
            with duckdb.connect() as db:
                db.execute(f"COPY (FROM read_csv('{table}', columns = {types})) TO '{path}' (FORMAT parquet)")
        return path

    return make


@pytest.fixture(scope="module")
def rows(collect: Maker) -> Path:
    return collect()


def standard_error(found: Release) -> float:
    return (found.high - found.low) / 2 / 1.96


# --- the ledger -------------------------------------------------------------------------------------------------------


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "study.ledger", {"trusted": PureDP(1.0), "local": PureDP(1.0)})


@pytest.mark.parametrize("rule", ["everyone", "alike"])  # of which the second goes by the groups' sizes
@pytest.mark.parametrize("file", ["nowhere.csv", "bad.csv", "folder.csv"])
def test_without_budget_nothing_is_read(
    tmp_path: Path, rows: Path, ledger: Ledger, file: str, rule: EstimatorName
) -> None:
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


def viewer_promise(found: Release, group: str) -> Any:
    (promise,) = (p for p in found.receipt.promises if p.people == group and p.against == VIEWER)
    return promise


@pytest.mark.parametrize("name", ["kvh", "pwh", "naive", "fixed", "tcm-only", "lm-only"])
@pytest.mark.parametrize("local", ["best", "laplace"])
def test_amplification_only_when_nothing_else_is_published(collect: Maker, name: EstimatorName, local: Any) -> None:
    study = replace(STUDY, local=local, rule=Rule(name, sd=0.4, weight=0.7 if name == "fixed" else None))
    path = collect(study=study)
    full = release_mean(path, study, COLUMNS)
    if name != "tcm-only":
        assert viewer_promise(full, "local").budget == PureDP(1.0)
        assert full.local is not None
    only = release_mean(path, replace(study, publish="estimate-only"), COLUMNS)
    assert (only.trusted, only.local, only.difference, only.p_value, only.facts["sd_estimate"]) == (None,) * 5
    assert abs(only.facts["unbiased"] - TRUTH) < 6 * standard_error(only)
    if name != "lm-only":
        assert viewer_promise(only, "trusted").budget == PureDP(1.0)
    w, c = only.facts["weight"], TRUSTED / SIZE
    if name in ("kvh", "pwh", "fixed"):
        amplified = viewer_promise(only, "local").budget.epsilon
        assert amplified < 1.0
        if local == "laplace":
            assert amplified == pytest.approx(c * (1 - w) / ((1 - c) * w), rel=1e-4)
    elif name != "tcm-only":
        assert viewer_promise(only, "local").budget == PureDP(1.0)


FULL = replace(STUDY, rule=Rule("kvh", sd=0.4))
ALONE = replace(FULL, publish="estimate-only")


def roomy(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "l", {"trusted": PureDP(9.0), "local": PureDP(9.0)})


def unmark(ledger: Ledger) -> None:
    """As a ledger was before its charges said what is released alone."""
    with closing(sqlite3.connect(ledger.path)) as db, db:
        db.execute("UPDATE charges SET mechanism = replace(mechanism, ?, '')", (SEALED,))
    assert not any(SEALED in entry.mechanism for entry in ledger.history())


@pytest.mark.parametrize("marked", [True, False])
@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (FULL, ALONE, "`publish` must be full for reports that were released before"),
        (ALONE, FULL, "`reports` must be ones of which no estimate was published alone"),
        (ALONE, ALONE, "`reports` must be ones of which no estimate was published alone"),
        (ALONE, STUDY, "`reports` must be ones of which no estimate was published alone"),
    ],
)
def test_an_amplified_release_of_reports_is_the_only_one(
    rows: Path, tmp_path: Path, first: MeanStudy, second: MeanStudy, why: str, marked: bool
) -> None:
    """In whichever order, under whatever name: the ledger knows the reports by their digest; also in a ledger of an
    earlier version, whose charges have no mark: what was promised stands in the release that it keeps."""
    ledger = roomy(tmp_path)
    found = release_mean(rows, first, COLUMNS, ledger=ledger)
    if not marked:
        unmark(ledger)
    assert (viewer_promise(found, "local").budget.epsilon < 1) == (first is ALONE)
    before, kept = [account.spent for account in ledger.accounts()], len(ledger.releases())
    for name in (None, "spring"):
        with pytest.raises(InvalidInput, match=why):
            release_mean(rows, second, COLUMNS, ledger=ledger, collection=name)
    assert ([account.spent for account in ledger.accounts()], len(ledger.releases())) == (before, kept)


def test_a_set_that_may_share_reports_with_an_amplified_one_is_named(collect: Maker, tmp_path: Path) -> None:
    """One changed row is another digest, and nobody can see that the rest are the same: a name says not."""
    changed = tmp_path / "changed.csv"
    lines = collect("rows.csv").read_text().splitlines()
    changed.write_text("\n".join(lines[:-1]) + "\n")
    for first, second, marked in ((ALONE, FULL, True), (ALONE, FULL, False), (ALONE, ALONE, True), (FULL, ALONE, True)):
        (tmp_path / "l").unlink(missing_ok=True)
        ledger = roomy(tmp_path)
        release_mean(collect("rows.csv"), first, COLUMNS, ledger=ledger)
        if not marked:
            unmark(ledger)
        with pytest.raises(InvalidInput, match="`collection` must name these reports"):
            release_mean(changed, second, COLUMNS, ledger=ledger)
        release_mean(changed, second, COLUMNS, ledger=ledger, collection="other people")
        assert ledger.remaining("local").epsilon == 7.0
    found = release_mean(changed, ALONE, COLUMNS)
    assert any("cannot see one of a set that shares reports" in line for line in found.receipt.assumes)


def test_an_amplified_release_that_came_to_nothing_can_be_made_again(
    rows: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = roomy(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("hybridp.curator.sums.release_sum", lambda *a, **k: 1 / 0)  # what nobody foresaw
        with pytest.raises(ZeroDivisionError):
            release_mean(rows, ALONE, COLUMNS, ledger=ledger)
    assert [(e.people, e.state) for e in ledger.history()] == [("trusted", "refused"), ("local", "void")]
    assert ledger.remaining("local").epsilon == 9.0
    release_mean(rows, ALONE, COLUMNS, ledger=ledger)
    assert ledger.remaining("local").epsilon == 8.0


@pytest.mark.parametrize(
    "rule",
    [Rule("adaptive"), Rule("adaptive", sd=0.4), Rule("skew-aware", sd=0.4), Rule("full-lm", sd=0.4), Rule("naive")],
)
def test_a_learned_weight_or_spread_cannot_be_sealed(rule: Rule) -> None:
    with pytest.raises(InvalidInput, match="`publish`"):
        replace(STUDY, rule=rule, publish="estimate-only")


@pytest.mark.parametrize(("told", "said"), [({"phases": (0.5, 0.5)}, "phases"), ({"as_count": True}, "two options")])
def test_what_a_mean_does_not_have_is_refused_before_anything_is_charged(
    rows: Path, tmp_path: Path, told: dict[str, Any], said: str
) -> None:
    ledger = Ledger.create(tmp_path / "l", {"trusted": PureDP(1.0), "local": PureDP(1.0)})
    with pytest.raises(InvalidInput, match=said):
        release_mean(rows, STUDY, COLUMNS, ledger=ledger, **told)
    assert ledger.history() == []
