"""What was measured stays with its charge: neither a deleted round nor a copied folder measures twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from hybridp.curator.synth import codes_of
from hybridp.errors import InvalidInput
from hybridp.ledger import Ledger
from hybridp.ledger import file as ledgers
from hybridp.protocols import synth as protocol
from hybridp.protocols.synth import SynthStudy, fit_synth, load_model, write_invitation
from hybridp.public.budgets import ApproxDP
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.tasks import table

pytest.importorskip("torch")
SCHEMA = Schema.from_domain({"a": 2, "b": 3})
STUDY = SynthStudy(Workload(SCHEMA, (Threshold((0, 1), 2),)), ApproxDP(1.0, 1e-6), rows=20)
CODES = codes_of(SCHEMA, np.array([[i % 2, i % 3] for i in range(200)]))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "l.ledger", {"trusted": ApproxDP(3.0, 1e-5)})


def rounds(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in sorted(folder.glob("round-*.npz"))]


def test_a_deleted_round_is_filled_again_and_not_measured(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    fit_synth(CODES, STUDY, folder=tmp_path / "m", ledger=ledger)
    before, entries = rounds(tmp_path / "m"), ledger.history()
    monkeypatch.setattr(protocol, "_measure", lambda *_: pytest.fail("measured twice for one charge"))
    for _ in range(2):
        for file in [*(tmp_path / "m").glob("round-*.npz"), tmp_path / "m" / "synthetic.npz"]:
            file.unlink()
        fit_synth(CODES, STUDY, folder=tmp_path / "m", ledger=ledger)
        assert rounds(tmp_path / "m") == before
        assert ledger.history() == entries


def test_a_copied_folder_has_the_same_rounds(tmp_path: Path, ledger: Ledger) -> None:
    fit_synth(CODES, STUDY, folder=tmp_path / "m", ledger=ledger)
    entries = ledger.history()
    for name in ("n", "o"):
        (tmp_path / name).mkdir()
        shutil.copy(tmp_path / "m" / "model.json", tmp_path / name)
        fit_synth(CODES, STUDY, folder=tmp_path / name, ledger=ledger)
        assert rounds(tmp_path / name) == rounds(tmp_path / "m")
    assert ledger.history() == entries


def test_what_is_too_large_to_keep_is_charged_anew_once_it_is_lost(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledgers, "MOST_KEPT", 0)
    fit_synth(CODES, STUDY, folder=tmp_path / "m", ledger=ledger)
    spent = ledger.remaining("trusted").epsilon
    fit_synth(CODES, STUDY, folder=tmp_path / "m", ledger=ledger)
    assert ledger.remaining("trusted").epsilon == spent
    for file in [*(tmp_path / "m").glob("round-*.npz"), tmp_path / "m" / "synthetic.npz"]:
        file.unlink()
    fit_synth(CODES, STUDY, folder=tmp_path / "m", ledger=ledger)
    assert ledger.remaining("trusted").epsilon == pytest.approx(spent - 1.0, abs=1e-6)


def test_the_ledger_that_charged_a_lost_round_anew_is_the_one_that_paid(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It knows one measurement more than the fit was made of."""
    monkeypatch.setattr(ledgers, "MOST_KEPT", 0)
    asked = Workload(SCHEMA, (Threshold((0, 1), 2), Threshold((0,), 1)))
    study = SynthStudy(asked, ApproxDP(1.0, 1e-6), "adaptive", rounds=1)
    for _ in range(2):
        fit_synth(CODES, study, folder=tmp_path / "m", ledger=ledger)
        for file in [*(tmp_path / "m").glob("round-*.npz"), tmp_path / "m" / "synthetic.npz"]:
            file.unlink()
    fit_synth(CODES, study, folder=tmp_path / "m", ledger=ledger)
    sent = write_invitation(tmp_path / "m", tmp_path / "i.json")
    sent.must_be_paid_by(ledger)
    with pytest.raises(InvalidInput, match="must be the one that paid"):
        sent.must_be_paid_by(Ledger.create(tmp_path / "other", {"trusted": ApproxDP(3.0, 1e-5)}))


def test_a_fit_stopped_before_a_round_is_kept_pays_for_it_once(
    tmp_path: Path, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Ledger, "keep_measured", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fit_synth(CODES, STUDY, folder=tmp_path / "m", ledger=ledger)
    assert not rounds(tmp_path / "m")
    fit_synth(CODES, STUDY, folder=tmp_path / "m", ledger=ledger)
    assert ledger.remaining("trusted").epsilon == pytest.approx(2.0, abs=1e-6)


KILLED = """
import os, runpy, sys
here = runpy.run_path(sys.argv[2])
from hybridp.ledger import Ledger
from hybridp.protocols.synth_files import Folder

real = {"keep": Ledger.keep_measured, "save": Folder.save_measured, "project": Folder.save_synthetic}
when, point = sys.argv[1].split()
def stopped(*given):
    if when == "after":
        real[point](*given)
    os.kill(os.getpid(), 9)
if point == "keep":
    Ledger.keep_measured = stopped
elif point == "save":
    Folder.save_measured = stopped
else:
    Folder.save_synthetic = stopped
here["fit_synth"](here["CODES"], here["STUDY"], folder="m", ledger=Ledger.open("l.ledger"))
"""


@pytest.mark.parametrize("point", ["before keep", "after keep", "after save", "before project"])
def test_a_killed_fit_neither_loses_what_it_paid_for_nor_measures_twice(
    tmp_path: Path, ledger: Ledger, point: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests import warm  # here: the killed process runs this file too

    run = warm.run(KILLED, point, __file__, cwd=tmp_path)
    assert run.returncode == -9
    first = ledger.history()[0]
    kept = ledger.measured(first.collection or "")
    assert (kept is None) == (point == "before keep")
    times: list[int] = []
    real = protocol._measure
    monkeypatch.setattr(protocol, "_measure", lambda *given: times.append(1) or real(*given))  # type: ignore[func-returns-value]
    fit_synth(CODES, STUDY, folder=tmp_path / "m", ledger=ledger)
    assert len(times) == len(STUDY.plan) - (kept is not None)
    assert kept is None or rounds(tmp_path / "m")[0] == kept[1]
    assert ledger.remaining("trusted").epsilon == pytest.approx(2.0, abs=1e-6)


def test_rounds_that_another_plan_measured_are_never_gone_on_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As those of a version without a last round: they spent the whole promise, and that round would come on top."""
    schema = Schema.from_domain({"a": 2, "b": 3, "c": 2})
    asked = Workload(schema, (Threshold((0, 1), 2), Threshold((1, 2), 2)))
    codes = codes_of(schema, np.array([[i % 2, i % 3, i % 2] for i in range(200)]))

    def study() -> SynthStudy:
        return SynthStudy(asked, ApproxDP(2.0, 1e-4), "adaptive", rounds=2)

    with monkeypatch.context() as patch:
        patch.setattr(table, "measured_last", lambda *_: ())
        fit_synth(codes, study(), folder=tmp_path / "m")
    assert len(study().plan) == len(rounds(tmp_path / "m")) + 1
    shutil.copytree(tmp_path / "m", tmp_path / "n")
    for file in ("synthetic.npz", "round-003.npz"):
        (tmp_path / "n" / file).unlink()
    for name in ("m", "n"):  # as it ended, and interrupted
        with pytest.raises(InvalidInput, match=r"fit it anew in a new folder\. Got another round 1 in"):
            load_model(tmp_path / name)
        with pytest.raises(InvalidInput, match="must hold what its study measures, with the noise of its promise"):
            fit_synth(codes, study(), folder=tmp_path / name)
        assert len(rounds(tmp_path / name)) == (3 if name == "m" else 2)
    fit_synth(codes, study(), folder=tmp_path / "o")
    assert load_model(tmp_path / "o").people == 200
