"""Every form of a table: the release that a CSV file would give, to the last digit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from tests.questions import LOCAL, TRUSTED, crowd, declare

import hybridp as hp
from hybridp.blend.mean import Rule
from hybridp.curator.models import read_codes
from hybridp.curator.sums import Columns, Source
from hybridp.device.files import Asked, write_reports
from hybridp.errors import HybridpError, InvalidInput, TrustRule
from hybridp.ledger import Ledger
from hybridp.noise import seeded
from hybridp.protocols.driver import release as release_groups
from hybridp.protocols.driver import release as release_mean
from hybridp.public.groups import Grouping
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import Invite
from hybridp.public.queries import Feature, Schema
from hybridp.public.randomisers import Bounds, randomiser
from hybridp.tasks.mean import MeanTask
from hybridp.tasks.personal import ACCOUNTS, PersonalTask
from hybridp.tasks.shares import SharesTask

from ..tables.inputs import KINDS, every_form

YES = TrustRule("consent", trusted=("yes",))
BOUNDS = Bounds(0, 100)


@functools.cache
def people() -> pa.Table:
    """The crowd, of whom some have no number, and who say in two words that they do not trust."""
    made = crowd()
    pay = made.pay.where(made.id % 17 > 0)
    words = [("yes", "no", "No", "no", "no")[i % 5] for i in made.id]
    columns = made.drop(columns=["pay", "trust"]).to_dict("list")
    return pa.table({**columns, "pay": pa.array(pay, from_pandas=True), "consent": words})


Release = Callable[..., Any]


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[], Any]]:
    """Objects of Python are read as text: what their decimal sign is must be stated."""
    made = every_form(people(), tmp_path_factory.mktemp("forms"))
    return {kind: _written(form) if "objects" in kind else form for kind, form in made.items()}


def _written(form: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: hp.Source(form(), decimal=".")


def trial(task: str, data: Any) -> Any:
    public = {"public": ["consent", "own"], **({"column": "id"} if task == "records" else {})}
    study = declare(task, trust={"column": "consent", "trusted": ["yes"]}, people=public)
    return study.release(data, simulate_local=True, rng=seeded(3))


@functools.cache
def of_csv(task: str, path: str) -> dict[str, Any]:
    return said(trial(task, path))


def said(release: Any) -> dict[str, Any]:
    document: dict[str, Any] = release.to_dict()
    return document


@pytest.mark.parametrize(
    ("task", "kind"),
    [
        *(("mean", kind) for kind in KINDS[1:]),
        *((task, kind) for task in ("choice", "records") for kind in KINDS[2::6]),
        *((task, kind) for task in ("own epsilons", "vector", "points", "regression") for kind in KINDS[4::12]),
    ],
)
def test_every_form_is_the_release_of_the_file(forms: dict[str, Callable[[], Any]], task: str, kind: str) -> None:
    release = trial(task, forms[kind]())
    assert said(release) == of_csv(task, str(forms["csv"]()))
    assert YES.rule in release.receipt.assumes


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_gives_the_same_codes_to_a_synthetic_table(forms: dict[str, Callable[[], Any]], kind: str) -> None:
    features = (Feature.categorical("way", ("bus", "car")), Feature.binned("pay", (0, 30, 60, 100), missing=True))
    found = read_codes(forms[kind](), Schema(features))
    ways, pay = people()["way"].to_pylist(), people()["pay"].to_pylist()
    assert found.values[0].tolist() == [0 if way == "bus" else 1 for way in ways]
    assert found.values[1].tolist() == [3 if x is None else 0 if x < 30 else 1 if x < 60 else 2 for x in pay]


@pytest.mark.parametrize("kind", KINDS)
def test_devices_randomise_every_form_alike_and_keep_the_words(
    forms: dict[str, Callable[[], Any]], kind: str, tmp_path: Path
) -> None:
    out = tmp_path / "reports.csv"
    study = declare("mean", trust={"column": "consent", "trusted": ["yes"]}, people={"public": ["consent"]})
    sent = study.randomise(forms[kind](), out, keep=("id",), rng=seeded(5))
    assert sent.reports == {"pay": LOCAL}
    words = people()["consent"].to_pylist()
    lines = [line.split(",") for line in out.read_text().splitlines()[1:]]
    assert [line[2] for line in lines] == words  # as they were written, so that the same option reads them again
    assert all(line[1] == "" for line, word in zip(lines, words, strict=True) if word != "yes")
    assert study.release(out, rng=seeded(1)).people == {"trusted": TRUSTED, "local": LOCAL}
    with pytest.raises(HybridpError, match=r"Got the words No, no, yes in `consent`. Add --trusted-value yes"):
        declare("mean", trust="consent", people={}).release(out)


def test_reports_alone_decide_where_everybody_is_local(tmp_path: Path) -> None:
    out = tmp_path / "reports.parquet"
    invite, everyone = Invite(BOUNDS, randomiser("best", PureDP(1.0)), ("pay",)), TrustRule(everyone="local")
    write_reports(people(), [Asked(invite, Columns("pay", everyone, missing="middle"))], out, rng=seeded(5))
    import pyarrow.parquet

    def mean(data: Any, trust: TrustRule) -> Any:
        study = MeanTask(BOUNDS, PureDP(1.0), Rule("adaptive"))
        return release_mean(data, study, Columns("pay", trust, missing="middle"), rng=seeded(2))

    table = pyarrow.parquet.read_table(out)
    assert "trusted_or_local" not in table.column_names
    assert table["pay"].null_count == len(table)
    planted = table.set_column(table.column_names.index("pay"), "pay", pa.array(np.full(len(table), 100.0)))
    one, two = (mean(data, everyone).to_dict() for data in (table, planted))
    assert one == two
    assert one["questions"]["pay"]["mean"]["trusted"] is None
    # The control: were they trusted, the values would be summed.
    assert mean(planted, TrustRule(everyone="trusted")).estimate > 90


@pytest.mark.parametrize("kind", ["mean by group", "shares by group", "own epsilons"])
def test_a_column_whose_counts_are_published_is_declared_in_python_too(tmp_path: Path, kind: str) -> None:
    """Called by themselves, these told how many people hold what in any column; refused unread and unpaid."""
    own = MeanTask(BOUNDS, PureDP(1.0))
    asked = SharesTask(Feature.categorical("way", ["bus", "car"], missing="car"), PureDP(1.0))
    ways: dict[str, Release] = {
        "mean by group": lambda data, **run: release_groups(
            data, own, Columns("pay", YES, missing="middle"), Grouping("way"), **run),
        "shares by group": lambda data, **run: release_groups(
            data, asked, Columns("way", YES), Grouping("town"), **run),
        "own epsilons": lambda data, **run: release_mean(
            data, PersonalTask(BOUNDS), Columns("pay", YES, missing="middle"), epsilon="own", **run),
    }  # fmt: skip
    column = {"mean by group": "way", "shares by group": "town", "own epsilons": "own"}[kind]
    names = ACCOUNTS.values() if kind == "own epsilons" else ("trusted", "local")
    ledger = Ledger.create(tmp_path / "l", dict.fromkeys(names, PureDP(1.0)))
    for undeclared in (tmp_path / "none.csv", Source(tmp_path / "none.csv", public=("id",))):  # nothing is opened
        with pytest.raises(InvalidInput, match=rf"must be declared public.*Source.*Got `{column}`"):
            ways[kind](undeclared, ledger=ledger)
    assert not ledger.history()
    found = ways[kind](Source(people(), public=("id", column)), simulate_local=True)
    assert any(line.endswith(f"id, {column}") for line in found.receipt.assumes if "declared public" in line)
