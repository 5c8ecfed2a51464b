"""Every form of a table, in every task: the release that a CSV file would give, to the last digit."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import hybridp as hp
from hybridp.blend.mean import Rule
from hybridp.curator.heavy import RecordColumns
from hybridp.curator.marginals import read_codes
from hybridp.curator.mean import Columns
from hybridp.curator.sources import Source
from hybridp.curator.vector import VectorColumns
from hybridp.device.files import write_number_reports
from hybridp.errors import BudgetExceeded, HybridpError, InvalidInput
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.groups import release_groups
from hybridp.protocols.heavy import HeavyStudy
from hybridp.protocols.heavy_files import release_heavy_hitters, write_invitation
from hybridp.protocols.kmeans import KMeansStudy
from hybridp.protocols.kmeans_files import PointColumns, release_kmeans
from hybridp.protocols.mean import MeanStudy, release_mean
from hybridp.protocols.paying import spending
from hybridp.protocols.personal import ACCOUNTS, PersonalStudy, release_personal_mean
from hybridp.protocols.shares import ShareStudy, choice, release_shares
from hybridp.protocols.vector import VectorStudy, release_vector_mean
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.groups import Grouping
from hybridp.public.kmeans import Box
from hybridp.public.lattice import Bounds
from hybridp.public.messages import Invite
from hybridp.public.queries import Feature, Schema
from hybridp.public.randomisers import randomiser
from hybridp.public.trust import TrustRule
from hybridp.public.vector import VectorBounds
from hybridp.randomness import secure, seeded

from ..tables.inputs import KINDS, every_form

N = 600
YES = TrustRule("consent", trusted=("yes",))
BOUNDS = Bounds(0, 100)


@functools.cache
def people() -> pa.Table:
    words = seeded(11).words(5 * N).reshape(5, N)
    pay = (words[0] % 130).astype(float) / 1.1 - 5
    return pa.table(
        {
            "who": pa.array(np.arange(N)),
            "pay": pa.array([None if i % 17 == 0 else float(x) for i, x in enumerate(pay)]),
            "age": pa.array((words[1] % 90).astype(np.int64)),
            "colour": pa.array([("red", "blue", "red", "green")[w % 4] for w in words[2].tolist()]),
            "consent": pa.array([("yes", "no", "No", "yes")[w % 4] for w in words[3].tolist()]),
            "own": pa.array([(0.5, 1.0, 2.0)[w % 3] for w in words[4].tolist()]),
        }
    )


Release = Callable[..., Any]
VECTOR = VectorStudy(VectorBounds.of([0, 0], [100, 100]), PureDP(1.0))
HEAVY = HeavyStudy(ApproxDP(4.0, 1e-4), depth=1, head=3)


def mean(data: Any, trust: Any, **run: Any) -> Any:
    return release_mean(
        data, MeanStudy(BOUNDS, PureDP(1.0), Rule("adaptive")), Columns("pay", trust, missing="middle"), **run
    )


def personal(data: Any, trust: Any, **run: Any) -> Any:
    data = replace(data if isinstance(data, Source) else Source(data), public=("own",))
    return release_personal_mean(data, PersonalStudy(BOUNDS), Columns("pay", trust, missing="middle"), "own", **run)


def vector(data: Any, trust: Any, **run: Any) -> Any:
    return release_vector_mean(data, VECTOR, VectorColumns(("pay", "age"), trust, missing="middle"), **run)


def heavy(data: Any, trust: Any, **run: Any) -> Any:
    return release_heavy_hitters(data, HEAVY, RecordColumns("who", ("colour",), trust), **run)


def kmeans(data: Any, trust: Any, **run: Any) -> Any:
    study = KMeansStudy(Box((0, 0), (100, 100)), 2, PureDP(4.0))
    return release_kmeans(data, study, PointColumns(("pay", "age"), trust, missing="middle"), **run)


def shares(data: Any, trust: Any, **run: Any) -> Any:
    study = ShareStudy(choice("colour", ["red", "blue"], other="another"), PureDP(1.0))
    return release_shares(data, study, Columns("colour", trust), **run)


TASKS: dict[str, Release] = {
    "mean": mean,
    "personal": personal,
    "vector": vector,
    "heavy": heavy,
    "kmeans": kmeans,
    "shares": shares,
}


@pytest.fixture(scope="module")
def forms(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Callable[[], Any]]:
    """Objects of Python are read as text: what their decimal sign is must be stated."""
    made = every_form(people(), tmp_path_factory.mktemp("forms"))
    return {kind: _written(form) if "objects" in kind else form for kind, form in made.items()}


def _written(form: Callable[[], Any]) -> Callable[[], Any]:
    return lambda: hp.Source(form(), decimal=".")


@functools.cache
def of_csv(task: str, path: str) -> dict[str, Any]:
    return said(TASKS[task](path, YES, simulate_local=True, rng=seeded(3)))


def said(release: Any) -> dict[str, Any]:
    document = release.to_dict()
    document["receipt"]["assumes"] = [
        line for line in document["receipt"]["assumes"] if not line.startswith("the rows are the answer to a query")
    ]
    return document


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "csv"])
@pytest.mark.parametrize("task", list(TASKS))
def test_every_form_in_every_task_is_the_release_of_the_file(
    forms: dict[str, Callable[[], Any]], task: str, kind: str
) -> None:
    release = TASKS[task](forms[kind](), YES, simulate_local=True, rng=seeded(3))
    assert said(release) == of_csv(task, str(forms["csv"]()))
    assert ("query" in kind) == any("the query is: " in line for line in release.receipt.assumes)
    assert YES.rule in release.receipt.assumes


@pytest.mark.parametrize("kind", KINDS)
def test_every_form_gives_the_same_codes_to_a_synthetic_table(forms: dict[str, Callable[[], Any]], kind: str) -> None:
    features = (Feature.categorical("colour", ("red", "blue")), Feature.binned("pay", (0, 30, 60, 100), missing=True))
    found = read_codes(forms[kind](), Schema(features))
    colours, pay = people()["colour"].to_pylist(), people()["pay"].to_pylist()
    assert found.values[0].tolist() == [0 if colour == "red" else 1 for colour in colours]
    assert found.values[1].tolist() == [3 if x is None else 0 if x < 30 else 1 if x < 60 else 2 for x in pay]


@pytest.mark.parametrize("kind", KINDS)
def test_devices_randomise_every_form_alike_and_keep_the_words(
    forms: dict[str, Callable[[], Any]], kind: str, tmp_path: Path
) -> None:
    out = tmp_path / "reports.csv"
    invite = Invite(BOUNDS, randomiser("best", PureDP(1.0)))
    run: dict[str, Any] = {"value": "pay", "trust": YES, "kept": ("who",), "missing": "middle"}
    count, _, left_out = write_number_reports(forms[kind](), invite, out, rng=seeded(5), **run)
    words = people()["consent"].to_pylist()
    assert count == sum(word != "yes" for word in words)
    assert left_out == ["age", "colour", "own"]
    lines = [line.split(",") for line in out.read_text().splitlines()[1:]]
    assert [line[2] for line in lines] == words  # as they were written, so that the same option reads them again
    assert all(line[1] == "" for line, word in zip(lines, words, strict=True) if word != "yes")
    release = mean(out, YES, rng=seeded(1))
    assert release.people == {"trusted": N - count, "local": count}
    with pytest.raises(HybridpError, match=r"Got the words No, no, yes in `consent`. Add --trusted-value yes\."):
        mean(out, "consent", rng=seeded(1))


# --- who trusts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", list(TASKS))
def test_a_drawn_split_is_a_trial_and_no_real_ledger_pays_for_it(task: str, tmp_path: Path) -> None:
    drawn = TrustRule(trial_opt_in=0.5)
    real = Ledger.create(tmp_path / "real.ledger", totals(task))
    with pytest.raises(HybridpError, match="trial"):
        TASKS[task](people(), drawn, ledger=real, rng=secure())
    assert not [entry for entry in real.history() if entry.state != "void"]
    trial = Ledger.create(tmp_path / "trial.ledger", totals(task), trial=True)
    release = TASKS[task](people(), drawn, ledger=trial, rng=secure())
    assert release.receipt.simulated
    assert release.to_dict()["simulated"] is True
    assert any(line.startswith("TRIAL: every person was drawn as trusted") for line in release.receipt.assumes)
    told = release.receipt.asked.columns
    assert (told["trust"] if isinstance(told, dict) else told.trust) is not None


def totals(task: str) -> dict[str, Any]:
    if task == "personal":
        from hybridp.protocols.personal import ACCOUNTS

        return {name: PureDP(1.0) for name in ACCOUNTS.values()}
    promise = ApproxDP(4.0, 1e-4) if task == "heavy" else PureDP(4.0)
    return {"trusted": promise, "local": promise}


@pytest.mark.parametrize("task", list(TASKS))
def test_a_drawn_split_is_the_same_with_the_same_seed_and_cuts_everybody(task: str) -> None:
    runs = [TASKS[task](people(), TrustRule(trial_opt_in=0.3), rng=seeded(seed)) for seed in (1, 1, 2)]
    first, again, other = (run.to_dict()["questions"] for run in runs)
    assert first == again != other
    sides = [(run.people["trusted"], run.people["local"]) for run in runs]
    assert all(sum(side) == N for side in sides)
    assert all(abs(side[0] - 0.3 * N) < 6 * (N * 0.21) ** 0.5 for side in sides)


def test_devices_do_not_draw_who_trusts_for_an_invitation(tmp_path: Path) -> None:
    columns = RecordColumns("who", ("colour",), TrustRule(trial_opt_in=0.5))
    with pytest.raises(InvalidInput, match="`trial-opt-in` must be for a release in one go"):
        write_invitation(people(), HEAVY, columns, tmp_path / "invite.json")


@pytest.mark.parametrize("task", ["mean", "vector", "personal", "shares"])
def test_where_everybody_is_local_no_raw_value_is_summed(task: str) -> None:
    """Raw values, and no reports: nothing to release. With reports, other values beside them change nothing."""
    everyone = TrustRule(everyone="local")
    with pytest.raises(HybridpError, match="report"):
        TASKS[task](people(), everyone, rng=seeded(1))


def test_reports_alone_decide_where_everybody_is_local(tmp_path: Path) -> None:
    out = tmp_path / "reports.parquet"
    invite, everyone = Invite(BOUNDS, randomiser("best", PureDP(1.0))), TrustRule(everyone="local")
    write_number_reports(people(), invite, out, value="pay", missing="middle", trust=everyone, rng=seeded(5))
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(out)
    assert "trusted_or_local" not in table.column_names
    assert table["pay"].null_count == N
    planted = table.set_column(table.column_names.index("pay"), "pay", pa.array(np.full(N, 100.0)))
    one, two = (mean(data, everyone, rng=seeded(2)).to_dict() for data in (table, planted))
    assert one == two
    assert one["questions"]["pay"]["mean"]["trusted"] is None
    # The control: were they trusted, the values would be summed.
    assert mean(planted, TrustRule(everyone="trusted"), rng=seeded(2)).estimate > 90


@pytest.mark.parametrize("task", list(TASKS))
def test_where_everybody_is_trusted_no_report_is_needed(task: str) -> None:
    release = TASKS[task](people(), TrustRule(everyone="trusted"), rng=secure())
    assert not release.receipt.simulated
    assert not any(promise.people == "local" for promise in release.receipt.promises)


def test_a_real_ledger_pays_for_words_as_for_labels(tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "a.ledger", {"trusted": PureDP(1.0), "local": PureDP(1.0)})
    everyone = TrustRule(everyone="trusted")
    mean(people(), everyone, ledger=ledger)
    with pytest.raises(BudgetExceeded):
        mean(people(), everyone, ledger=ledger)


@pytest.mark.parametrize("kind", ["mean by group", "shares by group", "own epsilons"])
def test_a_column_whose_counts_are_published_is_declared_in_python_too(tmp_path: Path, kind: str) -> None:
    """Called by themselves, these told how many people hold what in any column; refused unread and unpaid."""
    own = MeanStudy(BOUNDS, PureDP(1.0))
    asked = ShareStudy(choice("colour", ["red", "blue"], missing="blue"), PureDP(1.0))
    ways: dict[str, Release] = {
        "mean by group": lambda data, **run: release_groups(
            data, own, Columns("pay", YES, missing="middle"), Grouping("colour"), **run),
        "shares by group": lambda data, **run: release_groups(
            data, asked, Columns("colour", YES), Grouping("age"), **run),
        "own epsilons": lambda data, **run: release_mean(
            data, PersonalStudy(BOUNDS), Columns("pay", YES, missing="middle"), epsilon="own", **run),
    }  # fmt: skip
    column = {"mean by group": "colour", "shares by group": "age", "own epsilons": "own"}[kind]
    names = ACCOUNTS.values() if kind == "own epsilons" else ("trusted", "local")
    ledger = Ledger.create(tmp_path / "l", dict.fromkeys(names, PureDP(1.0)))
    for undeclared in (tmp_path / "none.csv", Source(tmp_path / "none.csv", public=("who",))):  # nothing is opened
        with pytest.raises(InvalidInput, match=rf"must be declared public.*Source.*Got `{column}`"):
            ways[kind](undeclared, ledger=ledger)
    assert not ledger.history()
    found = ways[kind](Source(people(), public=("who", column)), simulate_local=True)
    assert any(line.endswith(f"who, {column}") for line in found.receipt.assumes if "declared public" in line)


@pytest.mark.parametrize("kind", ["mean", "vector", "shares", "number", "groups"])
def test_a_query_is_refused_where_nobody_would_pay_for_its_failure(tmp_path: Path, kind: str) -> None:
    """Reports alone are charged when they have been read: a query that fails on a trusted value failed for nothing."""
    table = tmp_path / "people.csv"
    table.write_text("pay,colour,town,trust\n31,red,a,trusted\n17,blue,b,trusted\n")
    told = Source(table, query="SELECT pay, colour, town, trust FROM rows", public=("town",))
    own = MeanStudy(BOUNDS, PureDP(1.0), Rule("lm-only"))
    ways: dict[str, Callable[[Ledger], Any]] = {
        "mean": lambda ledger: release_mean(told, own, Columns("pay", "trust", missing="middle"), ledger=ledger),
        "vector": lambda ledger: release_vector_mean(
            told, VectorStudy(VectorBounds.of([0], [100]), PureDP(1.0), (Rule("lm-only"),)),
            VectorColumns(("pay",), "trust", missing="middle"), ledger=ledger,
        ),
        "shares": lambda ledger: release_shares(
            told, ShareStudy(choice("colour", ["red", "blue"], missing="blue"), PureDP(1.0), estimator="lm-only"),
            Columns("colour", "trust"), ledger=ledger,
        ),
        "number": lambda ledger: hp.Study.of(
            {"promise": {"epsilon": 1.0}, "trust": {"column": "trust"}, "people": {"public": ["town"]},
             "questions": [
                {"name": "pay", "kind": "number", "missing": "middle", "lower": 0, "upper": 100,
                 "statistics": ["mean", "sd"],
                 "estimator": "lm-only"}]}
        ).release(told, ledger=ledger),
        "groups": lambda ledger: release_groups(
            told, own, Columns("pay", "trust", missing="middle"), Grouping("town", ("a", "b")), ledger=ledger),
    }  # fmt: skip
    ledger = Ledger.create(tmp_path / "l", {"trusted": PureDP(1.0), "local": PureDP(1.0)})
    with pytest.raises(InvalidInput, match="`query` must be left out"):
        ways[kind](ledger)
    paid = [Charge("local", PureDP(1.0), "report", "", digest="of a tally")]  # and may be paid for already
    with pytest.raises(InvalidInput, match="`query` must be left out"), spending(ledger, paid, trial=False, path=told):
        pass
    assert not ledger.history()
    with pytest.raises(InvalidInput, match=r"local rows|report|people"):  # of a table, a failure is of what is public
        release_mean(table, own, Columns("pay", "trust", missing="middle"), ledger=ledger)
