"""Where people get hurt in silence: promises that protect hardly anybody, told aloud or refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hybridp.curator.sums import Columns
from hybridp.errors import PromiseWarning
from hybridp.protocols.driver import release as release_mean
from hybridp.public.mechanisms import ApproxDP, PureDP, doubts
from hybridp.public.randomisers import Bounds
from hybridp.tasks.mean import MeanTask

from .conftest import Runner

MEAN = "release mean trusted.csv --column pay --trust trust --missing middle --lower 0 --upper 100000 --epsilon 1"


@pytest.fixture(autouse=True)
def people(tmp_path: Path) -> Path:
    """A hundred trusted people."""
    rows = [f"{20_000 + 137 * i},{i % 7},trusted,u{i}" for i in range(100)]
    (tmp_path / "trusted.csv").write_text("\n".join(["pay,age,trust,id", *rows]) + "\n")
    return tmp_path


@pytest.mark.parametrize(
    ("promise", "words"),
    [
        (PureDP(10.0), None),
        (PureDP(10.1), "epsilon 10.1 is above 10"),
        (ApproxDP(1.0, 0.0099), None),
        (ApproxDP(1.0, 0.01), "not below 1/n"),
        (ApproxDP(1.0, 0.5), "not below 1/n"),
    ],
)
def test_the_library_warns(people: Path, promise: Any, words: str | None, recwarn: pytest.WarningsRecorder) -> None:
    """From 1/n on, to publish one of n people at random would keep the delta: n is 100 here."""
    study = MeanTask(Bounds(0, 100_000), promise)
    import warnings

    warnings.simplefilter("always", PromiseWarning)
    found = release_mean(people / "trusted.csv", study, Columns("pay", "trust", missing="middle"))
    said = [str(w.message) for w in recwarn if issubclass(w.category, PromiseWarning)]
    on_receipt = [line for line in found.receipt.assumes if line.startswith("WARNING: ")]
    assert on_receipt == [f"WARNING: {text}" for text in said]
    assert said == list(doubts(promise, 100))
    assert len(said) == (words is not None)
    assert words is None or words in said[0]


@pytest.mark.parametrize(
    "line",
    [
        f"{MEAN} --noise gaussian",
        "release heavy-hitters trusted.csv --person id --column age --trust trust --epsilon 1",
    ],
)
def test_a_delta_of_a_tenth_must_be_insisted_on(run: Runner, line: str) -> None:
    refused = run(f"{line} --delta 0.1 --ledger l.ledger --json")
    assert (refused.code, "add --insist" in refused.document["error"]["message"]) == (2, True)
    assert not Path("l.ledger").exists()
    insisted = run(f"{line} --delta 0.1 --insist --json")
    assert insisted.code == 0
    assert "hybridp: warning: delta 0.1 is not below 1/n (0.01 for 100 people)" in insisted.err
    warned = run(f"{line} --delta 0.02 --json")
    assert warned.code == 0
    assert "not below 1/n" in warned.err
    receipt = warned.document["receipt"]
    assert any("WARNING: delta 0.02" in text for text in receipt["assumes"])


def test_devices_refuse_what_a_release_would(run: Runner) -> None:
    """Reports cannot be taken back: what must be insisted on at the release is asked before they are made."""
    line = "randomise mean trusted.csv --column pay --missing middle --lower 0 --upper 100000 --epsilon 1"
    refused = run(f"{line} --delta 0.5 --out r.csv --json")
    assert (refused.code, "add --insist" in refused.document["error"]["message"]) == (2, True)
    assert not Path("r.csv").exists()
    assert run(f"{line} --delta 0.5 --insist --out r.csv --json").code == 0
