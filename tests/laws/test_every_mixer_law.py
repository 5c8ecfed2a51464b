"""What holds of every question that a mixer may carry: what a batch holds and keeps, what it is charged, what is none.

Each is declared, answered by devices, and released from files over two batches, one of them too small to hide anybody.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from tests.questions import TASKS, Sent, crowd, declare

from hybridp import InvalidInput, Ledger, PureDP, Study, seeded
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.shares import share_mixing
from hybridp.public.shuffling import Mixing, central_epsilon
from hybridp.release.release import COLLUDING, MIXED, Release

DELTA, LEAST = 1e-4, 300
PROMISE = {"epsilon": 1.0, "delta": 1e-6}
VALUES = {"mean": ["pay"], "choice": ["way"], "ticks": ["liked"], "vector": ["a", "b"], "records": ["query"]}
SMALL = {"one": 350, "two": 50}


class Collected(Sent):
    """Local reports and two batches, and the invitation where there is one."""

    @property
    def own(self) -> float:
        """The epsilon of a report that hides among so many."""
        kept = ApproxDP(1.0, DELTA)
        return (share_mixing(kept, 3, LEAST) if self.task == "choice" else Mixing.planned(kept, LEAST)).epsilon

    def batch(self, name: str) -> Path:
        return self.folder / f"{name}-batch.csv"

    def frame(self, name: str = "one") -> pd.DataFrame:
        return pd.read_csv(self.batch(name), dtype=str, keep_default_na=False)

    def release(self, *mixed: Path, study: Study | None = None, **run: Any) -> Release:
        if self.task == "records":
            run |= {"reports": self.folder / "sent.csv", **self.invited}
        rows = self.folder / ("people.csv" if self.task == "records" else "sent.csv")
        return (study or self.study).release(rows, mixed=mixed, **run)


def mixing(task: str, **mixer: Any) -> Study:
    public = {"public": ["trust"], **({"column": "id"} if task == "records" else {})}
    return declare(task, promise=PROMISE, people=public, mixer={"batch": LEAST, "delta": DELTA, **mixer})


@pytest.fixture(scope="module", params=VALUES)
def sent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Collected:
    made = Collected(request.param, mixing(request.param), tmp_path_factory.mktemp("mixed"))
    crowd().to_csv(made.folder / "people.csv", index=False)
    if made.task == "records":
        made.study.invite(made.folder / "invite.json", made.folder / "people.csv")
    made.study.randomise(made.folder / "people.csv", made.folder / "sent.csv", **made.invited)
    for name, many in SMALL.items():
        crowd().drop(columns="trust").tail(many).to_csv(made.folder / f"{name}.csv", index=False)
        made.study.randomise(made.folder / f"{name}.csv", made.batch(name), mixed=True, **made.invited)
    return made


def test_a_batch_is_its_reports_and_nothing_else(sent: Collected) -> None:
    rows = sent.frame()
    values = VALUES[sent.task]
    reports = [f"{name}_report" for name in values] if len(values) > 1 else ["report"]
    empty = [] if sent.task == "records" else values
    assert set(rows) == {*empty, *reports, "report_mechanism", "report_batch"}
    assert (rows[empty] == "").all(axis=None)
    assert len(rows) == SMALL["one"]
    assert rows.report_batch.nunique() == rows.report_mechanism.nunique() == 1
    order = rows[reports] if sent.task in ("choice", "ticks") else rows[reports].replace("", "inf").astype(float)
    assert order.values.tolist() == sorted(order.values.tolist())  # the order of a set
    assert str(sent.own) in rows.report_mechanism[0]
    with pytest.raises(InvalidInput, match="keep"):
        sent.study.randomise(sent.folder / "one.csv", sent.folder / "x.csv", mixed=True, keep=("id",), **sent.invited)
    with pytest.raises(InvalidInput, match=r"mixer alone|column of trust|`trust`"):  # with the mixer's epsilon
        sent.study.randomise(sent.folder / "people.csv", sent.folder / "x.csv", mixed=True, **sent.invited)
    plain = declare(sent.task, promise=PROMISE)
    with pytest.raises(InvalidInput, match=r"has a mixer|states a mixer"):
        plain.randomise(sent.folder / "one.csv", sent.folder / "x.csv", mixed=True, **sent.invited)
    assert not (sent.folder / "x.csv").exists()


def test_every_batch_is_charged_once_and_promised_what_its_size_keeps(sent: Collected, tmp_path: Path) -> None:
    room = ApproxDP(4.0, 1e-5)
    ledger = Ledger.create(tmp_path / "l", {"trusted": room, "local": room, "shuffled": PureDP(2 * sent.own)})

    def spent() -> float:
        return next(account.spent.epsilon for account in ledger.accounts() if account.people == "shuffled")

    found = sent.release(ledger=ledger)
    assert spent() == 0.0  # a table holds no batch
    assert "shuffled" not in {promise.people for promise in found.receipt.promises}
    for _ in range(2):  # the same batches again, for nothing
        found = sent.release(sent.batch("one"), sent.batch("two"), ledger=ledger)
        assert spent() == pytest.approx(sent.own)
    assert found.people["shuffled"] == sum(SMALL.values())
    assert not found.simulated
    k = {"choice": 3, "records": len(found.facts.get("records", ())) + 1}.get(sent.task)
    told = [(p.budget.epsilon, p.budget.delta) for p in found.receipt.promises if p.people == "shuffled"]
    hidden = central_epsilon(SMALL["one"], sent.own, DELTA, k=k)
    assert told == [(sent.own, 0.0), (pytest.approx(hidden), DELTA), (sent.own, 0.0)]
    assert any("one report, in one batch" in line for line in found.receipt.assumes)  # which no file shows
    sent.release(sent.batch("two"), ledger=ledger)  # another set of reports
    assert spent() == pytest.approx(2 * sent.own)


def test_a_batch_counts_once_and_is_of_its_mixer_and_its_study(sent: Collected, tmp_path: Path) -> None:
    one, rows = sent.batch("one"), sent.frame()

    def written(name: str, frame: pd.DataFrame) -> Path:
        frame.to_csv(tmp_path / name, index=False)
        return tmp_path / name

    named = written("named.csv", rows.assign(who="Ann"))
    cases = [
        ((one, one), "every batch once"),
        ((one, written("part.csv", rows.head(40))), "every batch once"),  # some of the same reports
        ((written("both.csv", pd.concat([sent.frame("two"), rows.head(9)])),), r"one name of the batch.* 2 names"),
        ((written("nameless.csv", rows.drop(columns="report_batch")),), r"one name of the batch.* none|`report_batch`"),
        ((named,), "nothing but reports"),  # beside somebody's name a report is not mixed
        ((written("weaker.csv", rows.assign(report_mechanism="piecewise(epsilon=9.0)")),), "mechanism"),
        ((written("mute.csv", rows.drop(columns="report_mechanism")),), "mechanism"),
    ]
    for value in VALUES[sent.task] if sent.task != "records" else ():  # nor beside what it stands for
        cases += [((written(f"{value}.csv", rows.assign(**{value: "7.1717"})),), f"nothing in .*`{value}`")]
    for batches, said in cases:
        with pytest.raises(InvalidInput, match=said) as refused:
            sent.release(*batches)
        assert "Ann" not in str(refused.value)
        assert "7.1717" not in str(refused.value)
    sent.study.randomise(sent.folder / "one.csv", tmp_path / "s.csv", mixed=True, rng=seeded(1), **sent.invited)
    assert sent.release(tmp_path / "s.csv").simulated
    assumed = sent.release(tmp_path / "mute.csv", assume_mechanism=True).receipt.assumed_mechanism
    assert assumed == rows.report_mechanism[0]
    for other in (declare(sent.task, promise=PROMISE), mixing(sent.task, batch=320)):
        with pytest.raises(InvalidInput, match=r"mixer|--batch|invitation|batch"):
            sent.release(one, study=other)


SEVERAL = [TASKS["mean"], {**TASKS["choice"], "weight": 2}, TASKS["vector"]]


def test_reports_on_several_questions_are_one_row_of_a_batch(tmp_path: Path) -> None:
    """A row is one report of its parts' epsilon together, so that it keeps what any report of that epsilon keeps."""
    stated: dict[str, Any] = {"trust": "trust", "promise": PROMISE, "people": {"public": ["trust"]}}
    stated |= {"questions": SEVERAL, "mixer": {"batch": LEAST, "delta": DELTA}, "level": 1 - 1e-6}
    study, whole = Study(**stated), Mixing.planned(ApproxDP(1.0, DELTA), LEAST).epsilon
    crowd().to_csv(tmp_path / "people.csv", index=False)
    study.randomise(tmp_path / "people.csv", tmp_path / "sent.csv")
    batches = []
    for name, many in SMALL.items():
        crowd().drop(columns="trust").tail(many).to_csv(tmp_path / f"{name}.csv", index=False)
        batches.append(tmp_path / f"{name}-batch.csv")
        study.randomise(tmp_path / f"{name}.csv", batches[-1], mixed=True)
    rows = pd.read_csv(batches[0], dtype=str, keep_default_na=False)
    assert (rows[["pay", "way", "a", "b"]] == "").all(axis=None)
    pay = rows.pay_report.astype(float).tolist()
    assert pay == sorted(pay)  # whose row is which does not show
    texts = [rows[f"{name}_mechanism"].unique().tolist() for name in ("pay_report", "way_report", "body_report")]
    parts = [float(text.partition("epsilon=")[2].split(",")[0].split(")")[0]) for (text,) in texts]
    assert parts == pytest.approx([whole / 4, whole / 2, whole / 4])
    assert sum(parts) <= whole * (1 + 1e-15)

    room = ApproxDP(4.0, 1e-5)
    ledger = Ledger.create(tmp_path / "l", {"trusted": room, "local": room, "shuffled": PureDP(2 * whole)})
    for _ in range(2):
        found = study.release(tmp_path / "sent.csv", mixed=batches, ledger=ledger)
        spent = {account.people: account.spent.epsilon for account in ledger.accounts()}
        assert spent["shuffled"] == pytest.approx(whole)
    assert spent == pytest.approx({"trusted": 2.0, "local": 1.0, "shuffled": whole})
    told = {p.against: (p.budget.epsilon, p.budget.delta) for p in found.receipt.promises if p.people == "shuffled"}
    assert told[COLLUDING] == (pytest.approx(whole), 0.0)
    assert told[MIXED] == (whole, 0.0)  # for all batches: the smaller one hides nobody
    alone = study.release(tmp_path / "sent.csv", mixed=batches[:1])
    (kept,) = [p.budget for p in alone.receipt.promises if p.against == MIXED]
    assert (kept.epsilon, kept.delta) == (pytest.approx(central_epsilon(SMALL["one"], whole, DELTA)), DELTA)
    assert kept.epsilon <= 1.0
    for cell, (low, high), true in (
        (found.questions["pay"]["mean"], found.questions["pay"]["mean"]["interval"], crowd().pay.mean()),
        (found.questions["body"]["mean"], [end[0] for end in found.questions["body"]["mean"]["interval"]], 50.0),
    ):
        assert low <= true <= high
        assert cell["groups"]["shuffled"]["people"] == sum(SMALL.values())

    rows.assign(age="7").to_csv(tmp_path / "more.csv", index=False)
    rows.assign(way="bus").to_csv(tmp_path / "held.csv", index=False)
    for file, said in (("more.csv", "nothing but reports"), ("held.csv", "nothing in")):
        with pytest.raises(InvalidInput, match=said):
            study.release(tmp_path / "sent.csv", mixed=[tmp_path / file])
    with pytest.raises(InvalidInput, match="several` must be split"):
        Study(**{**stated, "promise": {**PROMISE, "several": "drawn"}})
