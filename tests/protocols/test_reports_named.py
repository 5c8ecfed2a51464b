"""Ways around the ledger by way of reports, each tried by a short program: one set of reports, one charge."""

from __future__ import annotations

import csv
import hashlib
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from tests.reports import randomise_many

from hybridp.curator.sums import Columns
from hybridp.errors import InvalidInput, UnusablePublicRows
from hybridp.ledger import Ledger
from hybridp.noise import seeded
from hybridp.protocols.driver import release as release_mean
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import Invite
from hybridp.public.randomisers import Bounds
from hybridp.tasks.mean import MeanTask

STUDY = MeanTask(Bounds(0, 100), PureDP(1.0))
COLUMNS = Columns("pay", "trust", missing="middle")
INVITE = Invite(STUDY.bounds, STUDY.invite.mechanism, ("pay",))
LOCAL = 60


def wave(file: Path, seed: int, *, question: str = "pay", mechanism: bool = True, people: int = LOCAL) -> Path:
    """Fresh reports by the same people, as a device writes them."""
    sent = randomise_many([20.0 + i for i in range(people)], INVITE, rng=seeded(seed)).tolist()
    text = replace(INVITE, question=(question,)).text
    rows = [f"{40 + i},trusted," + ("," if mechanism else "") for i in range(9)]
    rows += [f",local,{x!r}" + (f',"{text}"' if mechanism else "") for x in sent]
    file.write_text(f"{question},trust,report{',report_mechanism' if mechanism else ''}\n" + "\n".join(rows) + "\n")
    return file


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger.create(tmp_path / "study.ledger", {"trusted": PureDP(50.0), "local": PureDP(5.0)})


def local_entries(ledger: Ledger) -> list[str | None]:
    return [e.digest for e in ledger.history() if e.people.startswith("local") and e.state == "spent"]


# --- one name, many collections ---------------------------------------------------------------------------------------


def test_waves_under_one_name_are_not_charged_once(tmp_path: Path, ledger: Ledger) -> None:
    release_mean(wave(tmp_path / "0.csv", 0), STUDY, COLUMNS, ledger=ledger, collection="spring")
    for i in range(1, 4):
        with pytest.raises(InvalidInput, match=r"`collection` must name one set of reports.*another name, or none"):
            release_mean(wave(tmp_path / f"{i}.csv", i), STUDY, COLUMNS, ledger=ledger, collection="spring")
    assert ledger.remaining("local").epsilon == 4.0
    assert [e.state for e in ledger.history() if e.people == "trusted"] == ["spent"] + ["void"] * 3


def test_a_mechanism_that_is_no_text_is_refused_as_another_one(tmp_path: Path, ledger: Ledger) -> None:
    """Nothing of anybody's value decides it, so that the charge is void."""
    file = tmp_path / "numbers.parquet"
    frame = pd.read_csv(wave(tmp_path / "a.csv", 1)).assign(report_mechanism=7)
    frame.to_parquet(file)
    with pytest.raises(UnusablePublicRows, match="must name the mechanism"):
        release_mean(file, STUDY, COLUMNS, ledger=ledger)
    assert [entry.state for entry in ledger.history()] == ["void"]


def test_one_report_more_or_one_changed_is_another_set(tmp_path: Path, ledger: Ledger) -> None:
    """A set that has grown is charged again: whether the new reports are by new people cannot be seen."""
    file = wave(tmp_path / "a.csv", 1)
    release_mean(file, STUDY, COLUMNS, ledger=ledger)
    lines = file.read_text().splitlines()
    fields = next(csv.reader([lines[-1]]))
    step = 100 / 2**32
    for changed in (
        [*lines, lines[-1]],
        [*lines[:-1], lines[-1].replace(fields[2], repr(float(fields[2]) + 3 * step))],
        lines[:-1],
    ):
        file.write_text("\n".join(changed) + "\n")
        release_mean(file, STUDY, COLUMNS, ledger=ledger)
    assert len(set(local_entries(ledger))) == 4


def test_the_digest_is_what_its_definition_says(tmp_path: Path, ledger: Ledger) -> None:
    """An independent computation: people, the exclusive or of reports in steps, the least and the largest."""
    file = wave(tmp_path / "a.csv", 4)
    release_mean(file, STUDY, COLUMNS, ledger=ledger)
    with file.open(newline="") as opened:
        sent = np.array([float(row["report"]) for row in csv.DictReader(opened) if row["trust"] == "local"])
    steps = [int(x) for x in np.rint((sent - 50.0) * (2**32 / 100.0))]
    parity = 0
    for x in steps:
        parity ^= x
    stated = json.dumps([INVITE.text, len(steps), parity, float(sent.min()), float(sent.max())])
    assert local_entries(ledger) == ["sha256:" + hashlib.sha256(stated.encode()).hexdigest()[:32]]


# --- reports of another promise, or another question ------------------------------------------------------------------


def test_reports_on_one_column_are_not_reports_on_another(tmp_path: Path) -> None:
    file = wave(tmp_path / "a.csv", 1, question="pay23")
    assert release_mean(file, STUDY, Columns("pay23", "trust", missing="middle")).people["local"] == LOCAL
    file.write_text(file.read_text().replace("pay23,trust", "pay24,trust"))
    with pytest.raises(UnusablePublicRows, match="on `pay24`"):
        release_mean(file, STUDY, Columns("pay24", "trust", missing="middle"))
