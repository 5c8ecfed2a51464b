"""Fits in rounds: what is charged and when, that they are whole or nothing, their folders, accuracy on made-up rows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.curator import models as curating
from hybridp.curator.models import Codes
from hybridp.curator.sums import Raw
from hybridp.errors import BudgetExceeded, InvalidInput, NotShown
from hybridp.ledger import Ledger, tight_epsilon
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.protocols.driver import must_have_paid
from hybridp.protocols.invited import fit_file
from hybridp.protocols.rows import CodePeople
from hybridp.public import envelope
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.tasks import table
from hybridp.tasks.table import NoSignalWarning, TableTask, packed
from hybridp.tasks.transcript import load_model, save_model, write_invitation
from hybridp_lab.errors import evaluate
from hybridp_lab.simulate import fit_synth

SCHEMA = Schema.from_domain({"a": 3, "b": 4, "c": 6, "d": 2}).counting("last")
WORK = Workload(SCHEMA, (Threshold((0, 1, 2), 3), Threshold((1, 2, 3), 3), Threshold((0, 3), 1)))
PROMISE = ApproxDP(1.0, 1e-7)


def rows(people: int, seed: int = 1) -> Codes:
    rng = synthetic_data_generator(seeded(seed))
    kind = rng.integers(0, 2, people)
    columns = [
        np.where(rng.random(people) < 0.7, (kind * 2 + f) % s, rng.integers(0, s, people))
        for f, s in enumerate(SCHEMA.sizes)
    ]
    return Codes(SCHEMA, np.stack(columns))


def study(method: str = "tables", **changes: Any) -> TableTask:
    given: dict[str, Any] = {"rounds": 3, "rows": 60} | changes
    return TableTask(WORK, given.pop("guarantee", PROMISE), method, **given)  # type: ignore[arg-type]


def ledger(folder: Path, total: float = 1.0) -> Ledger:
    return Ledger.create(folder / "study.ledger", {"trusted": ApproxDP(total, 1e-7)}, trial=True)


@pytest.mark.parametrize("method", ["tables", "adaptive"])
def test_a_fit_spends_the_guarantee_and_no_more(method: str, tmp_path: Path) -> None:
    book = ledger(tmp_path)
    model = fit_synth(rows(2000), study(method), ledger=book, rng=seeded(1))
    [account] = book.accounts()
    assert 1 - 1e-8 < account.spent.epsilon <= 1
    assert account.spent.delta == 1e-7
    assert len(book.history()) == len(study(method).plan) == len(model.receipt.ledger_entries)
    assert tight_epsilon(book, "trusted", 1e-7) <= 1 + 1e-9
    # The noise that was really added, composed by the definition of zCDP.
    spent = sum((1 / t.sigma**2) for t in model.tables)
    rho = math.fsum(use.rho for use in study(method).plan)
    # Three rounds have as much as the one-way marginals, a tenth of it for choices, and all that is asked three fifths.
    share = {"tables": 1, "adaptive": 0.6 + 0.4 * (0.5 + 0.5 * 0.9)}[method]
    assert spent == pytest.approx(rho * share)
    with pytest.raises(BudgetExceeded):
        fit_synth(rows(2000), study(method), ledger=book, rng=seeded(1))


def test_every_round_is_charged_before_the_rows_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = ledger(tmp_path)
    seen = []
    real = curating.pick_table

    def watched(*given: Any, **named: Any) -> Any:
        seen.append(len(book.history()))
        return real(*given, **named)

    monkeypatch.setattr(curating, "pick_table", watched)
    fit_synth(rows(500), study("adaptive"), ledger=book, rng=seeded(1))
    assert seen == [5, 5, 5]


def written(folder: Path, codes: Codes) -> Path:
    lines = ["a,b,c,d", *(",".join(map(str, record)) for record in codes.values.T.tolist())]
    (folder / "rows.csv").write_text("\n".join(lines))
    return folder / "rows.csv"


@pytest.mark.parametrize("where", [(CodePeople, "measure"), (table, "round_rows"), (table.zlib, "compress")])
def test_an_interrupted_fit_is_not_charged_and_leaves_nothing(
    where: tuple[Any, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, book, out = written(tmp_path, rows(400)), ledger(tmp_path), tmp_path / "model"

    def stopped(*_: Any, **__: Any) -> Any:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(*where, stopped)
        with pytest.raises(KeyboardInterrupt):
            fit_file(file, study(), folder=out, ledger=book, rng=seeded(7))
    assert book.accounts()[0].spent.epsilon == 0
    assert not book.releases()
    assert {path.name for path in tmp_path.iterdir()} == {"rows.csv", "study.ledger"}
    model = fit_file(file, study(), folder=out, ledger=book, rng=seeded(7))
    assert 1 - 1e-8 < book.accounts()[0].spent.epsilon <= 1
    assert np.array_equal(load_model(out).records, model.records)
    for taken in (out, tmp_path / "rows.csv"):
        with pytest.raises(InvalidInput, match="`out` must be a new folder"):
            fit_file(file, study(), folder=taken, rng=seeded(7))


@pytest.mark.parametrize("method", ["tables", "adaptive"])
def test_a_budget_that_leaves_no_signal_is_warned_about(method: str) -> None:
    poor = study(method, guarantee=ApproxDP(0.01, 1e-9))
    with pytest.warns(NoSignalWarning, match="leaves no signal"):
        model = fit_synth(rows(100), poor, rng=seeded(1))
    assert any("no signal" in line for line in model.receipt.assumes)


@pytest.mark.parametrize(("method", "most"), [("tables", 0.03), ("adaptive", 0.06)])
def test_made_up_rows_are_answered_well(method: str, most: float) -> None:
    codes = rows(5000)
    model = fit_synth(codes, study(method, rounds=12, rows=200), rng=seeded(5))
    found = evaluate(model, codes)
    assert found["settled"]["l_inf"] < most < found["all_zero"]["l_inf"] / 3
    assert found["private"] is False


def test_a_file_is_read_by_the_schema(tmp_path: Path) -> None:
    codes = rows(400)
    found = fit_file(written(tmp_path, codes), study(), rng=seeded(2))
    assert np.array_equal(found.records, fit_synth(codes, study(), rng=seeded(2)).records)
    assert found.simulated
    assert not fit_file(tmp_path / "rows.csv", study()).simulated  # the system's randomness, unless another is given
    book = ledger(tmp_path)
    (tmp_path / "bad.csv").write_text("a,b,c\n0,9,0\n1,1,1\n")
    with pytest.raises(InvalidInput, match="must be a column"):
        fit_file(tmp_path / "bad.csv", study(), ledger=book, rng=seeded(2))
    assert {entry.state for entry in book.history()} == {"void"}
    poor = Ledger.create(tmp_path / "poor", {"trusted": ApproxDP(1e-3, 1e-9)}, trial=True)
    with pytest.raises(BudgetExceeded):  # before a file is opened: this one is not there
        fit_file(tmp_path / "nowhere.csv", study(), ledger=poor, rng=seeded(2))


def test_impossible_studies_are_refused() -> None:
    for unknown in ("magic", "queries"):
        with pytest.raises(InvalidInput, match="`method`"):
            study(unknown)
    with pytest.raises(InvalidInput, match="`rows`"):
        study(rows=0)
    with pytest.raises(InvalidInput, match="`delta`"):
        study(guarantee=ApproxDP(1.0, 0.0))


def test_rounds_that_another_plan_measured_are_never_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a version without a last round: they spent another part of the promise."""
    with monkeypatch.context() as patch:
        patch.setattr(table.planning, "measured_last", lambda *_: ())
        save_model(fit_synth(rows(300), study("adaptive"), rng=seeded(1)), tmp_path / "m")
        load_model(tmp_path / "m")
    with pytest.raises(InvalidInput, match="`model` must be the folder"):
        load_model(tmp_path / "m")


def test_the_ledger_that_paid_for_a_choice_knows_its_invitation(tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "l", {"trusted": ApproxDP(3.0, 1e-5)}, trial=True)
    fit_file(written(tmp_path, rows(300)), study("adaptive"), folder=tmp_path / "m", ledger=book, rng=seeded(1))
    write_invitation(tmp_path / "m", tmp_path / "i.json")
    must_have_paid(book, tmp_path / "i.json")
    other = Ledger.create(tmp_path / "o", {"trusted": ApproxDP(3.0, 1e-5)}, trial=True)
    fit_file(tmp_path / "rows.csv", study("adaptive"), folder=tmp_path / "n", ledger=other, rng=seeded(2))
    with pytest.raises(InvalidInput, match="must be the one that paid"):
        must_have_paid(other, tmp_path / "i.json")
    measured = load_model(tmp_path / "m").digest
    fit_file(tmp_path / "rows.csv", study("adaptive"), ledger=other, purpose=f"a note on {measured}", rng=seeded(3))
    with pytest.raises(InvalidInput, match="must be the one that paid"):
        must_have_paid(other, tmp_path / "i.json")


def test_a_folder_that_is_taken_by_then_loses_no_model(tmp_path: Path) -> None:
    model = fit_synth(rows(300), study(), rng=seeded(1))
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "notes").write_text("somebody's")
    with pytest.raises(NotShown, match="The release was made"):
        save_model(model, tmp_path / "m")
    (draft,) = tmp_path.glob(".m.*")
    assert (load_model(draft).digest, [one.name for one in (tmp_path / "m").iterdir()]) == (model.digest, ["notes"])


def test_simulated_reports_are_never_charged_to_a_real_ledger(tmp_path: Path) -> None:
    book = Ledger.create(tmp_path / "l", {"trusted": ApproxDP(3.0, 1e-5), "local": PureDP(3.0)})
    crowd = Raw(200, rows(200), held=rows(300, 2), simulated_reports=True)
    with pytest.raises(InvalidInput, match="made for trials"):
        fit_synth(crowd, TableTask(Workload(SCHEMA, WORK.thresholds[:2]), PROMISE, method="mixed"), ledger=book)
    assert book.history() == []


def test_damaged_folders_are_refused_in_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    save_model(fit_synth(rows(300), study(), rng=seeded(1)), folder)
    whole = (folder / "transcript.json").read_bytes()
    for part in (b"", whole[: len(whole) // 2], whole[:-30]):
        (folder / "transcript.json").write_bytes(part)
        with pytest.raises(InvalidInput, match="model"):
            load_model(folder)
    kept = json.loads(whole)
    changes: tuple[Any, ...] = ({"task": {}}, {"task": {**kept["task"], "people": None}}, {"answers": ["AAAA"]})
    for change in (*changes, {"records": "AAAA"}, {"records": packed(np.full(4, 10**4), "<u2")}):
        changed = kept | change
        for digest in ({}, {"digest": envelope.digest(changed)}):
            (folder / "transcript.json").write_text(json.dumps(changed | digest))
            with pytest.raises(InvalidInput, match="model"):
                load_model(folder)


def test_a_domain_read_from_the_rows_is_said_by_every_reader(tmp_path: Path) -> None:
    folder, read = tmp_path / "model", study(read=("a", "d"))
    assert not any("NOT PROTECTED" in line for line in fit_synth(rows(300), study(), rng=seeded(1)).receipt.assumes)
    save_model(fit_synth(rows(300), read, rng=seeded(1)), folder)
    for found in (load_model(folder), fit_synth(rows(300), read, rng=seeded(1))):
        assert "NOT PROTECTED: which values occur in a, d" in found.receipt.assumes[0]
        assert not any("without looking" in line for line in found.receipt.assumes)


def test_an_adaptive_fit_has_as_many_rounds_as_its_budget_carries() -> None:
    """More people (delta = 1/n^2), or a larger epsilon, carry more rounds; the one-way marginals take three of them.

    Three quarters of them where all that is asked is measured at the end: where the noise of that is short.
    """
    for people, epsilon, last in ((1_000, 0.1, 0), (3_000, 0.1, 0), (50_000, 0.1, 1), (50_000, 1.0, 1)):
        chosen = study("adaptive", guarantee=ApproxDP(epsilon, people**-2.0), rounds=0)
        rho = math.fsum(use.rho for use in chosen.plan)
        cells, tables = (72 + 48 + 6) / 3, 3
        assert (math.sqrt(tables / (0.6 * rho) * cells) <= 0.15 * people) is bool(last)
        expected = max(6, (0.75 if last else 1) * 4 * math.log2(max(1, people * math.sqrt(rho) / 64)))
        assert abs(chosen.rounds - expected) <= 0.51
        assert len(chosen.plan) == 1 + chosen.rounds + last
        choices = chosen.plan[1 : 1 + chosen.rounds]
        assert chosen.plan[0].rho == pytest.approx(3 * math.fsum(use.rho for use in choices) / chosen.rounds)
        if last:
            assert chosen.plan[-1].tables == chosen.last == ((0, 1, 2), (1, 2, 3), (0, 3))
            assert chosen.plan[-1].rho == pytest.approx(0.6 * rho)
    least = [study("adaptive", guarantee=ApproxDP(1.0, delta), rounds=0).rounds for delta in (1e-18, 1e-200)]
    assert least[1] <= least[0], "a delta that no ledger tells from 0 is no sign of more people"
