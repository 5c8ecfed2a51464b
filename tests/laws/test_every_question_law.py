"""What holds of every question, whichever it is: near the truth, paid for first and once, marked where it is a trial.

Each is declared, answered by devices, and released from files, as a user does it. Laws of one task alone (which noise,
which draw, whose reach) have a file of their own beside this one.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tests.questions import INVITED, OWN, TASKS, Sent, crowd, declare

from hybridp import ApproxDP, BudgetExceeded, HybridpError, Ledger, PureDP, seeded
from hybridp.errors import InvalidInput, LedgerProblem, UnusableRows
from hybridp.noise import Randomness
from hybridp.release.release import CURATOR, VIEWER, Release
from hybridp.tasks.task import ledger_totals

FIRST = ("steered", "records", "regression")  # whose trusted people answer, and pay, before local people are asked


class Collected(Sent):
    """A folder with what devices sent to a study, and the invitation where there is one."""

    def invite(self, ledger: Ledger | None = None, rows: str = "people.csv", rng: Randomness | None = None) -> None:
        """A map of points is of public numbers, and no row is read for it."""
        if self.task in INVITED:
            (self.folder / "invite.json").unlink(missing_ok=True)
            out, data = self.folder / "invite.json", None if self.task == "points" else self.folder / rows
            if self.task == "steered":  # whose trusted people's answer is published as well
                self.study.release(data, invite_out=out, ledger=ledger, rng=rng)
            else:
                self.study.invite(out, data, ledger=ledger, rng=rng)

    def send(self, name: str, rng: Randomness | None = None) -> None:
        self.study.randomise(self.folder / "people.csv", self.folder / name, rng=rng, **self.invited)

    def release(self, name: str, **run: Any) -> Release:
        """From these reports, and the rows of trusted people where reports are in a file of their own."""
        if self.task not in INVITED:
            return self.study.release(self.folder / name, **run)
        return self.study.release(self.folder / "people.csv", reports=self.folder / name, **self.invited, **run)

    def look(self, rows: str, **run: Any) -> None:
        """The first thing that is paid for: trusted people's answers."""
        if self.task in FIRST:
            self.invite(run["ledger"], rows)
        else:
            self.study.release(self.folder / rows, **run)

    def ledger(self, trusted: float = 1, local: float = 1, *, trial: bool = False, name: str = "ledger") -> Ledger:
        """One that pays for so many such studies."""
        groups = zip(ledger_totals(self.study).items(), (trusted, local), strict=True)
        totals = {who: ApproxDP(times * b.epsilon, times * getattr(b, "delta", 0.0)) for (who, b), times in groups}
        return Ledger.create(self.folder / name, totals, trial=trial)


def collected(task: str, folder: Path) -> Collected:
    crowd().to_csv(folder / "people.csv", index=False)
    return Collected(task, declare(task), folder)


@pytest.fixture(params=TASKS)
def asked(request: pytest.FixtureRequest, tmp_path: Path) -> Collected:
    """Nobody was asked yet."""
    return collected(request.param, tmp_path)


@pytest.fixture(scope="module", params=TASKS)
def sent(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Collected:
    """Devices have sent their reports; no ledger was charged."""
    made = collected(request.param, tmp_path_factory.mktemp("sent"))
    made.invite()
    made.send("sent.csv")
    return made


def truth(task: str) -> dict[str, float]:
    """Every published cell's true number, among all people."""
    people = crowd()
    shares = people.way.value_counts(normalize=True)
    slope = np.polyfit(people.a, people.b, 1)
    return {
        "mean": {"": people.pay.mean()},
        "steered": {"": people.pay.mean()},
        "own epsilons": {"": people.pay.mean()},
        "own choice": dict(shares),
        "own shares": {"30": (people.pay <= 30).mean(), "50 or more": (people.pay >= 50).mean()},
        "statistics": {"": people.pay.mean(), "0.5": people.pay.median()},
        "public groups": dict(people.groupby("town").pay.mean()),
        "statistics by group": {**people.groupby("town").pay.mean(),
                                **{f"{town}: 0.5": own.pay.median() for town, own in people.groupby("town")}},
        "private groups": {f"{ill}: {way}": shares[way] for ill in ("yes", "no") for way in shares.index},
        "choice": dict(shares),
        "ticks": {"a": 2 / 3, "b": 2 / 3, "c": 1 / 3},
        "count": {"bus": len(people) / 2},
        "vector": {"a": people.a.mean(), "b": people.b.mean()},
        "vector by group": {f"{town}: {x}": own[x].mean() for town, own in people.groupby("town") for x in "ab"},
        "records": dict.fromkeys(("weather", "news", "maps"), 1 / 7),
        "points": {},
        "regression": {"intercept": slope[1], "a": slope[0]},
        "table": {},
    }[task]


def test_it_is_near_the_truth_and_everybody_is_charged_the_promise_once(asked: Collected) -> None:
    """The same reports are free in any order, others are charged again; without budget nothing is read."""
    ledger = asked.ledger(trusted=1 if asked.task in FIRST else 2)
    asked.invite(ledger)
    asked.send("sent.csv")
    found = asked.release("sent.csv", ledger=ledger)
    expected = truth(asked.task)
    seen = {cell.name: cell for cell in found.cells if cell.statistic != "sd"}
    for name, true in expected.items():
        assert seen[name].low < true < seen[name].high
    assert not found.simulated
    assert found.receipt.randomness == "system randomness"
    accounts = {account.people: account for account in ledger.accounts()}
    assert [entry.state for entry in ledger.history()] == ["spent", "spent"]
    assert found.receipt.ledger_entries == (1, 2)
    for (name, promised), group in zip(ledger_totals(asked.study).items(), ("trusted", "local"), strict=True):
        spent = accounts[name].spent
        assert promised.epsilon * (1 - 1e-9) < spent.epsilon <= promised.epsilon
        assert spent.delta <= getattr(promised, "delta", 0.0)
        told = {p.against: p.budget for p in found.receipt.promises if p.people == group}
        assert set(told) == {CURATOR, VIEWER}
        assert (told[CURATOR] is None) == (group == "trusted")
        stated = {getattr(b, "epsilon", promised.epsilon) for b in told.values() if b is not None}
        assert max(stated) == pytest.approx(promised.epsilon)
    asked.send("again.csv")
    with pytest.raises(BudgetExceeded, match="local"):
        asked.release("again.csv", ledger=ledger)
    head, *rows = (asked.folder / "sent.csv").read_text().splitlines()
    (asked.folder / "turned.csv").write_text("\n".join([head, *rows[::-1]]) + "\n")
    asked.release("turned.csv", ledger=ledger)
    assert [entry.people.split()[0] for entry in ledger.history()].count("local") == 1
    before = ledger.history()
    with pytest.raises(BudgetExceeded) as refused:
        asked.look("nowhere.csv", ledger=ledger)
    assert (refused.value.exit_code, refused.value.__context__) == (3, None)
    assert ledger.history() == before


def test_trusted_people_with_a_promise_of_their_own_are_charged_and_promised_that_one(asked: Collected) -> None:
    if asked.task in (*OWN, "table"):  # which have one promise for everybody, and say so
        return
    study = declare(asked.task, promise={"epsilon": 4.0, "trusted_epsilon": 1.0, "delta": 1e-6})
    mine = replace(asked, study=study)
    ledger = mine.ledger()
    mine.invite(ledger)
    mine.send("sent.csv")
    found = mine.release("sent.csv", ledger=ledger)
    spent = {account.people: account.spent.epsilon for account in ledger.accounts()}
    assert spent == {"trusted": pytest.approx(1.0), "local": pytest.approx(4.0)}
    told = {p.people: p.budget.epsilon for p in found.receipt.promises if p.against == VIEWER}
    assert told == {"trusted": pytest.approx(1.0), "local": pytest.approx(4.0)}


def test_labels_are_public_and_what_else_rows_say_is_charged(asked: Collected) -> None:
    ledger = asked.ledger()
    crowd().assign(trust="perhaps").to_csv(asked.folder / "labels.csv", index=False)
    for rows in ("labels.csv", "nowhere.csv"):
        with pytest.raises(HybridpError):
            asked.look(rows, ledger=ledger)
        assert {entry.state for entry in ledger.history()} <= {"void"}
    people = crowd().assign(trust="trusted").to_csv(index=False)
    (asked.folder / "broken.csv").write_text(people.replace("rare", "ra,re", 1))  # as a comma in somebody's value would
    with pytest.raises(UnusableRows):
        asked.look("broken.csv", ledger=ledger)
    assert "refused" in {entry.state for entry in ledger.history()}


def test_a_seed_at_any_step_is_on_the_receipt(sent: Collected, tmp_path: Path) -> None:
    sent.send("seeded.csv", seeded(1))
    assert sent.release("seeded.csv").simulated
    if sent.task in FIRST:  # which draws nothing afterwards
        assert not sent.release("sent.csv", rng=seeded(1)).simulated
        trial = collected(sent.task, tmp_path)
        trial.invite(rng=seeded(1))
        trial.send("of a trial.csv")
        assert trial.release("of a trial.csv").simulated
    else:
        first, again = (sent.release("sent.csv", rng=seeded(1)).to_dict() for _ in "ab")
        assert first["simulated"]
        assert first["questions"] == again["questions"]
        if sent.task == "mean":  # the control
            assert first["questions"] != sent.release("sent.csv", rng=seeded(2)).to_dict()["questions"]


def test_raw_values_of_local_people_are_for_a_trial_that_no_real_ledger_pays_for(asked: Collected) -> None:
    real, trial = asked.ledger(), asked.ledger(trial=True, name="trial")
    with pytest.raises(HybridpError, match=r"report|invit|simulate"):
        asked.study.release(asked.folder / "people.csv", ledger=real)
    for run in ({"simulate_local": True}, {"trial_opt_in": 0.2}):
        with pytest.raises(HybridpError, match="trial"):
            asked.study.release(asked.folder / "people.csv", ledger=real, **run)
    assert {entry.state for entry in real.history()} <= {"void"}
    found = asked.study.release(asked.folder / "people.csv", ledger=trial, simulate_local=True)
    assert found.simulated
    assert any("SIMULATION" in line for line in found.receipt.assumes)
    drawn = asked.study.release(asked.folder / "people.csv", trial_opt_in=0.3)
    assert drawn.receipt.simulated
    assert drawn.to_dict()["simulated"] is True
    assert any(line.startswith("TRIAL: every person was drawn as trusted") for line in drawn.receipt.assumes)
    with pytest.raises(BudgetExceeded):  # a trial draws new reports each time
        asked.study.release(asked.folder / "people.csv", ledger=trial, simulate_local=True)


def test_where_everybody_is_alike_one_group_answers_alone(asked: Collected) -> None:
    """No report is needed of people who all trust, and no raw value is summed of people who are all local."""
    if asked.task == "steered":  # trusted people steer local ones: both are asked
        return
    public = {"public": ["own", "town"], **({"column": "id"} if asked.task == "records" else {})}
    trusted, local = (declare(asked.task, trust={"everyone": group}, people=public) for group in ("trusted", "local"))
    found = trusted.release(asked.folder / "people.csv")
    assert not found.receipt.simulated
    assert {promise.people for promise in found.receipt.promises} == {"trusted"}
    with pytest.raises(HybridpError, match=r"report|trust|invit"):
        local.release(asked.folder / "people.csv")


def test_reports_of_another_promise_or_of_none_are_refused(sent: Collected) -> None:
    rows = pd.read_csv(sent.folder / "sent.csv", dtype=str)
    unnamed = rows.drop(columns=[name for name in rows if name.endswith("report_mechanism")])
    unnamed.to_csv(sent.folder / "unnamed.csv", index=False)
    with pytest.raises(UnusableRows, match="--assume-mechanism"):
        sent.release("unnamed.csv")
    assert sent.release("unnamed.csv", assume_mechanism=True).receipt.assumed_mechanism is not None
    with pytest.raises(LedgerProblem, match=r"account for the (trusted|local)"):
        sent.release("sent.csv", ledger=Ledger.create(sent.folder / "staff", {"staff": PureDP(9.0)}))
    if sent.task in OWN:
        return
    other, ledger = declare(sent.task, promise={"epsilon": 2.0, "delta": 1e-6}), sent.ledger()
    with pytest.raises(HybridpError, match=r"mechanism|invit|promise"):
        replace(sent, study=other).release("sent.csv", ledger=ledger)
    assert {entry.state for entry in ledger.history()} <= {"void"}
    if sent.task in INVITED:  # devices promise their people what the study does
        with pytest.raises(HybridpError, match="must be an invitation to this question"):
            replace(sent, study=other).send("other.csv")


def leaves(document: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    inside = document.items() if isinstance(document, dict) else enumerate(document)
    for key, value in inside:
        yield from leaves(value, (*path, key)) if isinstance(value, dict | list) else [(*path, key)]


@pytest.mark.parametrize("task", INVITED)
def test_an_invitation_that_was_edited_anywhere_is_none(task: str, tmp_path: Path) -> None:
    """Whatever it says of the study, of what was released and of what was charged goes into its digest."""
    made = collected(task, tmp_path)
    made.invite()
    stated = (tmp_path / "invite.json").read_text()
    places = list(leaves(json.loads(stated)))
    for place in places[:: len(places) // 30 + 1]:
        document = json.loads(stated)
        inner = document
        for key in place[:-1]:
            inner = inner[key]
        was = inner[place[-1]]
        inner[place[-1]] = not was if isinstance(was, bool) else was + 1 if isinstance(was, int | float) else f"{was}x"
        (tmp_path / "invite.json").write_text(json.dumps(document))
        with pytest.raises(HybridpError, match="`invite` must name an invitation") as refused:
            made.send("sent.csv")
        assert refused.value.__suppress_context__, place
    assert not (tmp_path / "sent.csv").exists()


UNSAID = r"missing` must (say what a missing or unreadable field of|be none: of several options)"
NEEDS = [task for task, one in TASKS.items() if {"missing", "other"} & {*one}]


@pytest.mark.parametrize("task", NEEDS)
def test_nobody_said_what_missing_means_and_nothing_is_spent_whatever_the_rows_hold(task: str, tmp_path: Path) -> None:
    unsaid = {name: value for name, value in TASKS[task].items() if name not in ("missing", "other")}
    made = replace(collected(task, tmp_path), study=declare(task, questions=[unsaid]))
    gaps, said = crowd().astype(object), []
    gaps.loc[:9, [name for name in gaps if name not in ("id", "trust", "own", "town")]] = ""
    for rows in (crowd(), gaps):
        rows.to_csv(tmp_path / "rows.csv", index=False)
        ledger = made.ledger(name=f"{len(said)}.ledger")
        with pytest.raises(InvalidInput, match=UNSAID) as why:
            made.look("rows.csv", ledger=ledger)
        said.append(str(why.value))
        assert {entry.state for entry in ledger.history()} <= {"void"}
    assert said[0] == said[1]
    if task not in INVITED:
        with pytest.raises(InvalidInput, match=UNSAID):
            made.send("sent.csv")
        assert not (tmp_path / "sent.csv").exists()
