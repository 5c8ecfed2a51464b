"""Fits in rounds: what is charged and when, interruption at every point, determinism, accuracy on made-up rows.

What was measured stays with its charge: neither a lost folder nor a copied one measures twice.
"""

from __future__ import annotations

import functools
import json
import math
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp import ledger as ledgers
from hybridp.bench.synth import evaluate
from hybridp.curator import marginals as curating
from hybridp.curator.marginals import Codes, codes_of
from hybridp.errors import BudgetExceeded, InvalidInput
from hybridp.ledger import Ledger, tight_epsilon
from hybridp.protocols.models import CodePeople
from hybridp.protocols.paying import must_have_paid
from hybridp.protocols.synth import NoSignalWarning, TableTask, fit_file, fit_synth
from hybridp.public import envelope
from hybridp.public.budgets import ApproxDP
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.randomness import seeded, synthetic_data_generator
from hybridp.tasks import table
from hybridp.tasks.fits import KeptFit, load_model, write_invitation

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


class Killed(BaseException):
    """Stands in for the end of the process: nothing of ours catches it."""


@functools.cache
def whole_fit(method: str) -> Any:
    return fit_synth(rows(800), study(method), rng=seeded(7))


@pytest.mark.parametrize("method", ["tables", "adaptive"])
@pytest.mark.parametrize("at", ["before measuring", "before saving", "after saving", "before the fit is saved"])
def test_an_interrupted_fit_goes_on_without_paying_twice(
    method: str, at: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, book, out = whole_fit(method), ledger(tmp_path), tmp_path / "model"
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
            patch.setattr(CodePeople, "measure", killing(CodePeople.measure, after=at == "before saving"))
        elif at == "after saving":
            patch.setattr(KeptFit, "add", killing(KeptFit.add, after=True))
        else:
            calls["n"] = 1  # rows are saved once
            patch.setattr(KeptFit, "save_rows", killing(KeptFit.save_rows, after=False))
        with pytest.raises(Killed):
            fit_synth(rows(800), study(method), folder=out, ledger=book, rng=seeded(7))
    with pytest.raises(InvalidInput, match="must be a fit that has ended"):
        load_model(out)
    resumed = fit_synth(rows(800), study(method), folder=out, ledger=book, rng=seeded(7))
    assert np.array_equal(resumed.records, whole.records)
    assert len(book.history()) == len(study(method).plan)
    assert 1 - 1e-8 < book.accounts()[0].spent.epsilon <= 1
    again = fit_synth(rows(800), study(method), folder=out, ledger=book, rng=seeded(8))
    assert np.array_equal(again.records, whole.records)
    assert len(book.history()) == len(study(method).plan)
    assert whole.simulated
    assert any("SIMULATION" in line for line in whole.receipt.assumes)


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
    lines = ["a,b,c,d", *(",".join(map(str, record)) for record in codes.values.T.tolist())]
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    found = fit_file(tmp_path / "rows.csv", study(), rng=seeded(2))
    assert np.array_equal(found.records, fit_synth(codes, study(), rng=seeded(2)).records)
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
    fit_synth(rows(100), study(), folder=tmp_path / "model", rng=seeded(1))
    with envelope.held(tmp_path / "model", "out"), pytest.raises(InvalidInput, match="in use by another"):
        fit_synth(rows(100), study(), folder=tmp_path / "model", rng=seeded(1))
    fit_synth(rows(100), study(), folder=tmp_path / "model", rng=seeded(1))  # free again


def _kept(folder: Path, answers: int) -> None:
    """The folder as it was after so many rounds."""
    before = KeptFit.load(folder)
    before.said, before.receipt = replace(before.said, answers=before.said.answers[:answers]), None
    before.save()


@pytest.mark.parametrize("method", ["tables", "adaptive"])
def test_a_round_that_was_paid_for_is_never_measured_again(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder that lost rounds, or a copy of one, is filled again from the ledger."""
    book, folder = ledger(tmp_path), tmp_path / "model"
    whole = fit_synth(rows(500), study(method), folder=folder, ledger=book, rng=seeded(1))
    answers, entries = KeptFit.load(folder).said.answers, book.history()
    monkeypatch.setattr(CodePeople, "measure", lambda *_: pytest.fail("measured twice for one charge"))
    for many in range(len(answers)):
        shutil.copytree(folder, tmp_path / f"copy{many}")
        _kept(tmp_path / f"copy{many}", many)
        with pytest.raises(InvalidInput, match="must be a fit that has ended"):
            load_model(tmp_path / f"copy{many}")
        found = fit_synth(rows(500), study(method), folder=tmp_path / f"copy{many}", ledger=book, rng=seeded(2))
        assert np.array_equal(found.records, whole.records)
        assert found.receipt.ledger_entries == whole.receipt.ledger_entries
        assert KeptFit.load(tmp_path / f"copy{many}").said.answers == answers
    assert book.history() == entries
    (folder / "synthetic.npz").unlink()  # made of the rounds, and so made again
    with pytest.raises(InvalidInput, match="must be a fit that has ended"):
        load_model(folder)
    fit_synth(rows(500), study(method), folder=folder, ledger=book, rng=seeded(1))
    assert load_model(folder).receipt == whole.receipt
    other = Ledger.create(tmp_path / "other", {"trusted": ApproxDP(9.0, 1e-6)}, trial=True)
    for wrong in (None, other):
        with pytest.raises(InvalidInput, match="`ledger` must be the one that paid"):
            fit_synth(rows(500), study(method), folder=folder, ledger=wrong, rng=seeded(1))


def test_rows_that_were_made_of_other_rounds_are_made_again(tmp_path: Path) -> None:
    """Without a ledger every fit is a new look: what followed from an earlier one does not stand for it."""
    fit_synth(rows(300), study(), folder=tmp_path / "m", rng=seeded(1))
    _kept(tmp_path / "m", 0)
    found = fit_synth(rows(300), study(), folder=tmp_path / "m", rng=seeded(2))
    assert np.array_equal(found.records, fit_synth(rows(300), study(), rng=seeded(2)).records)


def test_what_is_too_large_to_keep_is_charged_anew_once_it_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And the ledger that did so, which knows one measurement more, is the one that paid."""
    monkeypatch.setattr(ledgers, "MOST_KEPT", 0)
    book = Ledger.create(tmp_path / "l", {"trusted": ApproxDP(3.0, 1e-5)}, trial=True)
    for fits in (1, 2):
        for _ in range(2):
            fit_synth(rows(300), study("adaptive", rounds=1), folder=tmp_path / "m", ledger=book, rng=seeded(1))
            assert book.accounts()[0].spent.epsilon == pytest.approx(fits, abs=1e-6)
        sent = tmp_path / f"{fits}.json"
        write_invitation(tmp_path / "m", sent)
        must_have_paid(book, sent)
        with pytest.raises(InvalidInput, match="must be the one that paid"):
            must_have_paid(Ledger.create(tmp_path / f"o{fits}", {"trusted": ApproxDP(3.0, 1e-5)}, trial=True), sent)
        _kept(tmp_path / "m", 0)


KILLED = """
import os, runpy, sys
here = runpy.run_path(sys.argv[2])
from hybridp.ledger import Ledger

real = Ledger.keep_measured
def stopped(*given):
    if sys.argv[1] == "after":
        real(*given)
    os.kill(os.getpid(), 9)
Ledger.keep_measured = stopped
book = Ledger.open("study.ledger")
here["fit_synth"](here["rows"](300), here["study"](), folder="m", ledger=book, rng=here["seeded"](1))
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_killed_fit_neither_loses_what_it_paid_for_nor_measures_twice(
    tmp_path: Path, when: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests import warm  # here: the killed process runs this file too

    book = ledger(tmp_path)
    assert warm.run(KILLED, when, __file__, cwd=tmp_path).returncode == -9
    kept = book.measured(book.history()[0].collection or "")
    assert (kept is None) == (when == "before")
    times: list[int] = []
    real = CodePeople.measure
    monkeypatch.setattr(CodePeople, "measure", lambda *given: times.append(1) or real(*given))  # type: ignore[func-returns-value]
    fit_synth(rows(300), study(), folder=tmp_path / "m", ledger=book, rng=seeded(1))
    assert len(times) == len(study().plan) - (kept is not None)
    assert kept is None or KeptFit.load(tmp_path / "m").said.answers[0].encode() == kept[1]
    assert book.accounts()[0].spent.epsilon == pytest.approx(1.0, abs=1e-6)


def test_rounds_that_another_plan_measured_are_never_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a version without a last round: they spent the whole promise, and that round would come on top."""
    with monkeypatch.context() as patch:
        patch.setattr(table, "measured_last", lambda *_: ())
        fit_synth(rows(300), study("adaptive"), folder=tmp_path / "m", rng=seeded(1))
    assert len(study("adaptive").plan) == len(KeptFit.load(tmp_path / "m").said.answers) + 1
    shutil.copytree(tmp_path / "m", tmp_path / "n")
    _kept(tmp_path / "n", 2)  # as it ended, and interrupted
    for name in ("m", "n"):
        with pytest.raises(InvalidInput, match=r"fit it anew in a new folder\. Got another round 1 in"):
            load_model(tmp_path / name)
        with pytest.raises(InvalidInput, match="must hold what its study measures, with the noise of its promise"):
            fit_synth(rows(300), study("adaptive"), folder=tmp_path / name, rng=seeded(1))


def test_damaged_folders_are_refused_in_a_sentence(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    fit_synth(rows(300), study(), folder=folder, rng=seeded(1))
    for name in ("synthetic.npz", "transcript.json"):
        whole = (folder / name).read_bytes()
        for part in (b"", whole[: len(whole) // 2], whole[:-30]):
            (folder / name).write_bytes(part)
            with pytest.raises(InvalidInput, match="model"):
                load_model(folder)
        (folder / name).write_bytes(whole)
    kept = json.loads((folder / "transcript.json").read_text())
    for change in ({"task": {}}, {"task": {**kept["task"], "people": None}}, {"answers": ["AAAA"]}):
        changed = kept | change
        for digest in ({}, {"digest": envelope.digest(changed)}):
            (folder / "transcript.json").write_text(json.dumps(changed | digest))
            with pytest.raises(InvalidInput, match="model"):
                load_model(folder)


def test_a_domain_read_from_the_rows_is_said_by_every_reader(tmp_path: Path) -> None:
    folder, read = tmp_path / "model", study(read=("a", "d"))
    assert not any("NOT PROTECTED" in line for line in fit_synth(rows(300), study(), rng=seeded(1)).receipt.assumes)
    fit_synth(rows(300), read, folder=folder, rng=seeded(1))
    for found in (load_model(folder), fit_synth(rows(300), read, folder=folder, rng=seeded(1))):
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
