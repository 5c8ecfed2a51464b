"""What was measured stays with its charge: neither a deleted round nor a copied folder measures twice."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from hybridp.curator.synth import codes_of
from hybridp.ledger import Ledger
from hybridp.ledger import file as ledgers
from hybridp.protocols import synth as protocol
from hybridp.protocols.synth import SynthStudy, fit_synth
from hybridp.public.budgets import ApproxDP
from hybridp.public.queries import Schema, Threshold, Workload

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
