"""What holds of every question whose reports may be added up beforehand: the tally tells what its rows tell, no more.

Reports are split over files, added up in two tallies and merged; trusted people are in a file of their own.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.questions import INVITED, TASKS, Sent, crowd, declare

from hybridp import ApproxDP, BudgetExceeded, Ledger, seeded
from hybridp.blend.tally import Tally
from hybridp.errors import InvalidInput
from hybridp.noise import Randomness
from hybridp.protocols.reports import add_file, invitation_tally, number_tally, save_tally
from hybridp.release.release import Release
from hybridp.tasks.mean import vector_task
from hybridp.tasks.task import ledger_totals

QUANTILES = {**TASKS["mean"], "statistics": ["quantiles", "sd"], "at": [0.1, 0.5]}
TALLIED: dict[str, dict[str, Any]] = {**{key: {} for key in ("mean", "own epsilons", "vector", "points", "records")},
                                      "quantiles": {"questions": [QUANTILES]},
                                      "statistics": {"questions": [TASKS["statistics"]]}}  # fmt: skip


class Collected(Sent):
    """Reports in one file, and split over three; trusted people's rows."""

    def send(self, rng: Randomness | None = None) -> None:
        out = self.folder / "sent.csv"
        out.unlink(missing_ok=True)
        self.study.randomise(self.folder / "people.csv", out, rng=rng, **self.invited)
        rows = pd.read_csv(out, dtype=str, keep_default_na=False)
        if self.task not in INVITED:
            rows = rows[rows.trust == "local"]
        mixed = rows.sample(frac=1, random_state=1)
        for i, part in enumerate((mixed[:500], mixed[500:501], mixed[501:])):
            part.to_csv(self.folder / f"part{i}.csv", index=False)

    def empty(self) -> Tally:
        if self.task in INVITED:
            return invitation_tally(self.folder / "invite.json")
        if self.task == "vector":
            return Tally.of(vector_task(self.study, 0).named(("a", "b")))
        return number_tally(self.folder / "part0.csv")

    def tally(self, *parts: int) -> Tally:
        found, epsilon = self.empty(), "own" if self.task == "own epsilons" else None
        for part in parts:
            found = add_file(found, self.folder / f"part{part}.csv", epsilon=epsilon)
        return found

    def release(self, tally: Tally | None, **run: Any) -> Release:
        if tally is None:
            own = {"reports": self.folder / "sent.csv", **self.invited} if self.task in INVITED else {}
            return self.study.release(self.folder / ("people.csv" if own else "sent.csv"), **own, **run)
        place = self.folder / f"{len(list(self.folder.iterdir()))}.json"
        save_tally(tally, place)
        return self.study.release(self.folder / "trusted.csv", tally=place, **self.invited, **run)


@pytest.fixture(params=TALLIED)
def sent(request: pytest.FixtureRequest, tmp_path: Path) -> Collected:
    name = request.param if request.param in TASKS else "mean"
    made = Collected(request.param, declare(name, **TALLIED[request.param]), tmp_path)
    crowd().to_csv(tmp_path / "people.csv", index=False)
    crowd()[crowd().trust == "trusted"].to_csv(tmp_path / "trusted.csv", index=False)
    if made.task in INVITED:
        made.study.invite(tmp_path / "invite.json", tmp_path / "people.csv" if made.task == "records" else None)
    made.send()
    return made


def test_it_tells_what_its_rows_tell_whatever_their_split_and_is_charged_once(sent: Collected) -> None:
    both = sent.tally(2) + sent.tally(1, 0)
    rows, added = (sent.release(one, rng=seeded(5)).to_frame() for one in (None, both))
    pd.testing.assert_frame_equal(added, rows, rtol=1e-9)
    if sent.task == "mean":  # the control
        assert not sent.release(sent.tally(0), rng=seeded(5)).to_frame().equals(rows)
    totals = {who: ApproxDP(2 * b.epsilon, 2 * getattr(b, "delta", 0.0)) if who.startswith("trusted") else b
              for who, b in ledger_totals(sent.study).items()}  # fmt: skip
    ledger = Ledger.create(sent.folder / "ledger", totals)
    for _ in range(2):  # the same reports are paid for
        assert not sent.release(both, ledger=ledger).simulated
    assert [entry.people.split()[0] for entry in ledger.history()].count("local") == 1
    before = ledger.history()
    with pytest.raises(BudgetExceeded):
        sent.release(sent.tally(0, 1), ledger=ledger)
    assert ledger.history() == before


def test_reports_count_once_at_their_own_promise_and_a_seed_stays_on_the_receipt(sent: Collected) -> None:
    one = sent.tally(0)
    with pytest.raises(InvalidInput, match="must not be in the tally yet"):
        add_file(one, sent.folder / "part0.csv")
    with pytest.raises(InvalidInput, match="must share no batch"):
        one + sent.tally(1, 0)
    save_tally(one, sent.folder / "one.json")
    if sent.task not in INVITED:
        with pytest.raises(InvalidInput, match="must hold trusted rows only"):
            sent.study.release(sent.folder / "sent.csv", tally=sent.folder / "one.json")
    if sent.task not in ("own epsilons", *INVITED):
        other = declare("vector" if sent.task == "vector" else "mean", promise={"epsilon": 2.0}, **TALLIED[sent.task])
        with pytest.raises(InvalidInput, match="`tally` must hold reports by"):
            other.release(sent.folder / "trusted.csv", tally=sent.folder / "one.json")
    sent.send(seeded(1))
    assert sent.release(sent.tally(0, 1, 2)).simulated
