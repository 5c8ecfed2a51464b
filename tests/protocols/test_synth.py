"""Fits in rounds: what is charged and when, interruption at every point, determinism, accuracy on made-up rows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.bench.synth import all_zero, evaluate
from hybridp.curator import synth as curating
from hybridp.curator.marginals import Codes, codes_of
from hybridp.errors import BudgetExceeded, InvalidInput
from hybridp.ledger import Ledger, tight_epsilon
from hybridp.protocols import synth as protocol
from hybridp.protocols.synth import NoSignalWarning, SynthStudy, fit_file, fit_synth, load_model
from hybridp.protocols.synth_files import Folder
from hybridp.public import envelope
from hybridp.public.budgets import ApproxDP
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.randomness import seeded, synthetic_data_generator

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
    return codes_of(SCHEMA, np.stack(columns, axis=1))


def study(method: str = "tables", **changes: Any) -> SynthStudy:
    given: dict[str, Any] = {"rounds": 3, "rows": 60} | changes
    return SynthStudy(WORK, given.pop("guarantee", PROMISE), method, **given)  # type: ignore[arg-type]


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
        fit_synth(rows(2000), study(method), folder=tmp_path / "model", ledger=book, rng=seeded(1))
    assert not (tmp_path / "model").exists()


def test_every_round_is_charged_before_the_rows_are_looked_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    book = ledger(tmp_path)
    seen = []
    real = curating.pick_table

    def watched(*given: Any, **named: Any) -> Any:
        seen.append(len(book.history()))
        return real(*given, **named)

    monkeypatch.setattr(curating, "pick_table", watched)
    fit_synth(rows(500), study("adaptive"), ledger=book, rng=seeded(1))
    assert seen == [2, 3, 4]


def test_an_overdraft_is_refused_before_anything_is_charged(tmp_path: Path) -> None:
    book = ledger(tmp_path, total=0.9)
    with pytest.raises(BudgetExceeded):
        fit_synth(rows(500), study("adaptive"), ledger=book, rng=seeded(1))
    assert book.history() == []


class Killed(BaseException):
    """Stands in for the end of the process: nothing of ours catches it."""


@pytest.mark.parametrize("method", ["tables", "adaptive"])
@pytest.mark.parametrize("at", ["before measuring", "before saving", "after saving", "before the fit is saved"])
def test_an_interrupted_fit_goes_on_without_paying_twice(
    method: str, at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = fit_synth(rows(800), study(method), rng=seeded(7))
    book, out = ledger(tmp_path), tmp_path / "model"
    calls = {"n": 0}

    def killing(real: Any, *, after: bool) -> Any:
        def run(*given: Any, **named: Any) -> Any:
            calls["n"] += 1
            if calls["n"] == 2 and not after:
                raise Killed
            found = real(*given, **named)
            if calls["n"] == 2:
                raise Killed
            return found

        return run

    with monkeypatch.context() as patch:
        if at in ("before measuring", "before saving"):
            patch.setattr(protocol, "_measure", killing(protocol._measure, after=at == "before saving"))
        elif at == "after saving":
            patch.setattr(Folder, "save_measured", killing(Folder.save_measured, after=True))
        else:
            calls["n"] = int(method == "adaptive")  # whose rows are saved once
            patch.setattr(Folder, "save_synthetic", killing(Folder.save_synthetic, after=False))
        with pytest.raises(Killed):
            fit_synth(rows(800), study(method), folder=out, ledger=book, rng=seeded(7))
    with pytest.raises(InvalidInput, match="must be a fit that has ended"):
        load_model(out)
    resumed = fit_synth(rows(800), study(method), folder=out, ledger=book, rng=seeded(7))
    assert np.array_equal(resumed.data.numpy(), whole.data.numpy())
    assert len(book.history()) == len(study(method).plan)
    assert 1 - 1e-8 < book.accounts()[0].spent.epsilon <= 1
    again = fit_synth(rows(800), study(method), folder=out, ledger=book, rng=seeded(8))
    assert np.array_equal(again.data.numpy(), whole.data.numpy())
    assert len(book.history()) == len(study(method).plan)


def test_a_folder_of_another_study_or_of_other_things_is_refused(tmp_path: Path) -> None:
    out = tmp_path / "model"
    fit_synth(rows(300), study(), folder=out, rng=seeded(1))
    with pytest.raises(InvalidInput, match="`out`"):
        fit_synth(rows(300), study(rows=61), folder=out, rng=seeded(1))
    with pytest.raises(InvalidInput, match="`out`"):
        fit_synth(rows(301), study(), folder=out, rng=seeded(1))
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").write_text("dear")
    with pytest.raises(InvalidInput, match="`out`"):
        fit_synth(rows(300), study(), folder=tmp_path / "other", rng=seeded(1))


@pytest.mark.parametrize("method", ["tables", "adaptive"])
def test_seeded_fits_are_deterministic_and_say_that_they_protect_nobody(method: str) -> None:
    first, second = (fit_synth(rows(500), study(method), rng=seeded(3)) for _ in range(2))
    assert np.array_equal(first.data.numpy(), second.data.numpy())
    other = fit_synth(rows(500), study(method), rng=seeded(4))
    assert not np.array_equal(first.data.numpy(), other.data.numpy())
    assert first.simulated
    assert any("SIMULATION" in line for line in first.receipt.assumes)
    assert not fit_synth(rows(500), study(method)).simulated


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
    assert found["settled"]["l_inf"] < most < all_zero(codes, WORK).l_inf / 3
    assert found["private"] is False


def test_a_file_is_read_by_the_schema(tmp_path: Path) -> None:
    codes = rows(400)
    lines = ["a,b,c,d", *(",".join(map(str, record)) for record in codes.values.T.tolist())]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    found = fit_file(tmp_path / "rows.csv", study(), rng=seeded(2))
    assert np.array_equal(found.data.numpy(), fit_synth(codes, study(), rng=seeded(2)).data.numpy())
    book = ledger(tmp_path)
    (tmp_path / "bad.csv").write_text("a,b,c\n0,9,0\n1,1,1\n")
    with pytest.raises(InvalidInput, match="must be a column"):
        fit_file(tmp_path / "bad.csv", study(), ledger=book, rng=seeded(2))
    assert book.history() == []
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


def test_two_fits_in_one_folder_are_refused_while_one_runs(tmp_path: Path) -> None:
    from hybridp.protocols.synth_files import Folder

    study: dict[str, object] = {"rounds": 1}
    with Folder.open(tmp_path / "model", study, people=10, simulated=True):
        again = Folder.open(tmp_path / "model", study, people=10, simulated=True)
        with pytest.raises(InvalidInput, match="in use by another fit"), again:
            pass
    with Folder.open(tmp_path / "model", study, people=10, simulated=True):
        pass  # free again


@pytest.mark.parametrize("method", ["tables", "adaptive"])
def test_a_round_that_was_used_is_never_measured_again(method: str, tmp_path: Path) -> None:
    book, folder = ledger(tmp_path), tmp_path / "model"
    fit_synth(rows(500), study(method), folder=folder, ledger=book, rng=seeded(1))
    kept = {place: place.read_bytes() for place in folder.glob("*.npz")}
    for place, content in kept.items():
        if place.name == "synthetic.npz":
            continue
        place.unlink()
        with pytest.raises(InvalidInput, match="all rounds"):
            load_model(folder)
        fit_synth(rows(500), study(method), folder=folder, ledger=book, rng=seeded(2))
        assert place.read_bytes() == content
    (folder / "synthetic.npz").unlink()  # made of the rounds, and so made again
    fit_synth(rows(500), study(method), folder=folder, ledger=book, rng=seeded(1))
    assert load_model(folder).people == 500
    (folder / "synthetic.npz").unlink()
    (folder / "round-001.npz").unlink()
    with pytest.raises(InvalidInput, match="all rounds"):
        fit_synth(rows(500), study(method), folder=folder, rng=seeded(1))  # nothing to fill it again from
    fit_synth(rows(500), study(method), folder=folder, ledger=book, rng=seeded(3))
    assert {place: place.read_bytes() for place in kept if "round" in place.name} == {
        place: content for place, content in kept.items() if "round" in place.name
    }


def test_damaged_folders_are_refused_in_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    fit_synth(rows(500), study(), folder=folder, rng=seeded(1))
    for name in ("round-001.npz", "synthetic.npz", "model.json"):
        whole = (folder / name).read_bytes()
        for part in (b"", whole[:60], whole[: len(whole) // 2], whole[:-30]):
            (folder / name).write_bytes(part)
            with pytest.raises(InvalidInput, match="model"):
                load_model(folder)
        (folder / name).write_bytes(whole)
    kept = json.loads((folder / "model.json").read_text())
    changed = kept | {"study": {}}
    (folder / "model.json").write_text(json.dumps(changed))
    with pytest.raises(InvalidInput, match="model"):
        load_model(folder)
    (folder / "model.json").write_text(json.dumps(changed | {"digest": envelope.digest(changed)}))
    with pytest.raises(InvalidInput, match="model"):
        load_model(folder)


def test_a_domain_read_from_the_rows_is_said_by_every_reader(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    plain = fit_synth(rows(500), study(), folder=folder, rng=seeded(1))
    assert not any("NOT PROTECTED" in line for line in plain.receipt.assumes)
    Folder.load(folder).say_read_from_rows(["a", "d"])
    for found in (load_model(folder), fit_synth(rows(500), study(), folder=folder, rng=seeded(1))):
        assert "NOT PROTECTED: which values occur in a, d" in found.receipt.assumes[0]
        assert not any("without looking" in line for line in found.receipt.assumes)


@pytest.mark.parametrize("write", range(1, 8))
def test_a_receipt_names_every_entry_once_wherever_the_fit_stopped(
    write: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    book, folder, done = ledger(tmp_path), tmp_path / "model", []
    real = envelope.write

    def stopping(*given: Any, **how: Any) -> None:
        done.append(given)
        if len(done) == write:
            raise KeyboardInterrupt
        real(*given, **how)

    monkeypatch.setattr(envelope, "write", stopping)
    with pytest.raises(KeyboardInterrupt):
        fit_synth(rows(300), study(), folder=folder, ledger=book, rng=seeded(1))
    found = fit_synth(rows(300), study(), folder=folder, ledger=book, rng=seeded(1))
    assert found.receipt.ledger_entries == tuple(entry.id for entry in book.history()) == (1, 2)


@pytest.mark.parametrize("method", ["tables", "adaptive"])
def test_progress_moves_while_rows_are_fitted(method: str) -> None:
    told: list[float] = []
    chosen = study(method)
    fit_synth(rows(300), chosen, progress=lambda done, rounds: told.append(done / rounds), rng=seeded(1))
    assert told == sorted(told)
    assert told[-1] == 1
    parts = 1 if method == "adaptive" else 20  # a round of the adaptive method is the smallest step
    assert max(np.diff(told, prepend=0)) <= (1 / parts + 1e-12) / len(chosen.plan)


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
