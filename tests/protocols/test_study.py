"""A study of every kind of question runs: on files, in one go or in two phases, with one promise and one charge."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import pytest
from tests.plans import plan_mean
from tests.questions import LOCAL, TASKS, TRUSTED, crowd

from hybridp import ApproxDP, InvalidInput, Ledger, PureDP, Study, seeded
from hybridp.errors import LedgerProblem
from hybridp.tasks.kmeans import kmeans_task
from hybridp.tasks.mean import mean_task, vector_task
from hybridp.tasks.records import records_task
from hybridp.tasks.regression import regression_task
from hybridp.tasks.table import table_task

NUMBER, VECTOR, RECORDS, POINTS, LINE, TABLE = (
    TASKS[task] for task in ("mean", "vector", "records", "points", "regression", "table")
)


@pytest.fixture(scope="module")
def people(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("people") / "people.csv"
    crowd().to_csv(file, index=False)
    return file


def declare(*questions: dict[str, Any], **changes: Any) -> Study:
    """Its noise is drawn from system randomness: at this level one interval in a million misses."""
    promise = {"epsilon": 4.0, "delta": 1e-6, "several": "split"}
    people = {"column": "id", "public": ["trust", "own"]}
    stated = {"title": "All", "promise": promise, "trust": "trust", "people": people}
    return Study(**{**stated, "level": 1 - 1e-6, "questions": list(questions), **changes})


def charged(file: Path) -> dict[str, float]:
    """What each group spent in all, by the ledger's own sums."""
    return {account.people: account.spent.epsilon for account in Ledger.open(file).accounts()}


def test_everyones_own_epsilon_is_charged_in_shares(people: Path, tmp_path: Path) -> None:
    study = declare(NUMBER, promise={"epsilon_column": "own", "share": 0.5})
    study.randomise(people, tmp_path / "r.csv")
    found = study.release(tmp_path / "r.csv", ledger=tmp_path / "l")
    assert charged(tmp_path / "l") == {
        "trusted (share of own epsilon)": 0.5,
        "local (share of own epsilon)": 1.0,
    }
    low, high = found.to_dict()["questions"]["pay"]["mean"]["interval"]
    assert low < 40 < high
    assert study.plan(people)["pay"].estimators["unified"]["mse"] > 0


def test_a_copy_with_reports_holds_the_points_of_trusted_people_alone(people: Path, tmp_path: Path) -> None:
    """Points and numbers together: what local people tell elsewhere is in no column of theirs."""
    study = declare(NUMBER, {**POINTS, "weight": 3}, people={"trusted": TRUSTED, "local": LOCAL})
    sent = study.randomise(people, tmp_path / "r.csv")
    assert set(sent.left_out) == {*crowd()} - {"pay", "x", "y", "trust"}
    with (tmp_path / "r.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    with people.open(newline="") as file:
        raw = list(csv.DictReader(file))
    for row, true in zip(rows, raw, strict=True):
        assert all(row[name] == (true[name] if row["trust"] == "trusted" else "") for name in ("pay", "x", "y"))
    study.invite(tmp_path / "map.json")
    study.randomise(people, tmp_path / "cells.csv", invite=tmp_path / "map.json")
    found = study.release(
        tmp_path / "r.csv", ledger=tmp_path / "l", invite=tmp_path / "map.json", reports=tmp_path / "cells.csv"
    )
    assert charged(tmp_path / "l") == {"trusted": 4.0, "local": 4.0}
    assert set(found.to_dict()["questions"]) == {"pay", "place"}


def test_a_model_is_written_when_its_charge_stands(
    people: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever sees a folder that is being written has the model: nothing that happens then is free."""
    from hybridp.public import envelope

    study = declare(TABLE, trust={"everyone": "trusted"}, people={})
    ledger = Ledger.create(tmp_path / "l", {"trusted": ApproxDP(4.0, 1e-6), "local": PureDP(1.0)})
    (tmp_path / "old").mkdir()
    with pytest.raises(InvalidInput, match="`model` must be a new folder in an existing one"):
        study.release(people, ledger=ledger, model=tmp_path / "old")
    assert ledger.history() == []
    states = []

    def interrupted(*_: object, **__: object) -> None:
        states.extend(entry.state for entry in ledger.history())
        raise KeyboardInterrupt

    monkeypatch.setattr(envelope, "save", interrupted)
    with pytest.raises(KeyboardInterrupt):
        study.release(people, ledger=ledger, model=tmp_path / "model")
    assert states == [entry.state for entry in ledger.history()] == ["spent"]
    assert len(ledger.releases()) == 1


def test_what_a_question_needs_first_is_said_in_one_sentence(people: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="`invite` must be given for `search`"):
        declare(RECORDS).randomise(people, tmp_path / "r.csv")
    with pytest.raises(InvalidInput, match="`question` must be one of none in this study"):
        declare(NUMBER).invite(tmp_path / "i.json", people)
    with pytest.raises(InvalidInput, match="`people` must be given for a map of points"):
        declare(POINTS, people={}).invite(tmp_path / "i.json")
    with pytest.raises(InvalidInput, match="`reports` must be given together with the invitation"):
        declare(POINTS, people={}).release(people, reports=tmp_path / "r.csv")
    with pytest.raises(InvalidInput, match="`invite` must be given by question's name unless exactly one"):
        declare(NUMBER).release(people, invite=tmp_path / "i.json")
    with pytest.raises(InvalidInput, match="`collection` must not name the reports of a trial"):
        declare(NUMBER).release(people, simulate_local=True, collection="x")
    with pytest.raises(InvalidInput, match="must be given for a plan"):
        declare(NUMBER).plan()
    assert list(tmp_path.iterdir()) == []


def test_a_ledger_that_a_refusal_made_goes_again_and_a_trials_is_no_ones_else(people: Path, tmp_path: Path) -> None:
    study = declare(NUMBER)
    with pytest.raises(InvalidInput, match="no column holds their reports"):
        study.release(people, ledger=tmp_path / "l")
    assert not (tmp_path / "l").exists()
    study.release(people, ledger=tmp_path / "t", simulate_local=True, rng=seeded(1))
    study.randomise(people, tmp_path / "r.csv")
    with pytest.raises((InvalidInput, LedgerProblem), match="trial"):
        study.release(tmp_path / "r.csv", ledger=tmp_path / "t")


def test_plans_are_of_each_part_and_read_no_value(people: Path, tmp_path: Path) -> None:
    """The plan at a part is the plan of that epsilon alone; values that change change nothing of it."""
    from hybridp.public.mechanisms import ApproxDP
    from hybridp.public.randomisers import Bounds

    study = declare(NUMBER, VECTOR, RECORDS)
    plan = study.plan(people)
    assert (plan.people["trusted"], plan.people["local"]) == (TRUSTED, LOCAL)
    third = study.parts[0].everybody
    assert isinstance(third, ApproxDP)
    alone = plan_mean(n=TRUSTED + LOCAL, opt_in=0.2, bounds=Bounds(0, 100), guarantee=third)
    assert plan["pay"].errors["adaptive"] == alone.errors["adaptive"]
    other = tmp_path / "other.csv"
    crowd().assign(pay=1, a=1, b=1, x=1, y=1, query=1).to_csv(other, index=False)
    assert study.plan(other).to_dict() == plan.to_dict()
    assert set(plan.to_dict()["questions"]) == {"pay", "body", "search"}
    assert all("predicted" in f for q in plan.to_dict()["questions"].values() for f in q.values())


def test_every_kind_is_answered_at_its_part_of_the_promise() -> None:
    """Epsilon 4 and delta 1e-6 by the weights 3 and 5: what each protocol is told to keep."""

    def parts(*studies: Any) -> list[tuple[float, float]]:
        return [(one.guarantee.epsilon, one.guarantee.delta) for one in studies]

    search = declare({**VECTOR, "weight": 3}, {**RECORDS, "weight": 5})
    assert parts(vector_task(search, 0), records_task(search, 1)) == [(1.5, 3.75e-7), (2.5, 6.25e-7)]
    place = declare({**NUMBER, "weight": 3}, {**POINTS, "weight": 5}, people={})
    assert parts(mean_task(place, 0), kmeans_task(place, 1)) == [(1.5, 3.75e-7), (2.5, 6.25e-7)]
    alike = declare(TABLE, {**NUMBER, "weight": 3}, trust={"everyone": "trusted"}, people={})
    assert table_task(alike, 0).guarantee.epsilon == 1.0
    line = declare({**NUMBER, "weight": 3}, {**LINE, "weight": 5}, promise={"epsilon": 4.0, "trusted_epsilon": 8.0})
    found = regression_task(line, 1)
    assert (found.guarantee, found.trusted_guarantee) == (PureDP(2.5), PureDP(5.0))
    own = declare(VECTOR, NUMBER, promise={"epsilon": 1.0, "trusted_epsilon": 3.0, "several": "split"})
    assert vector_task(own, 0).trusted_guarantee == PureDP(1.5)


def test_a_plan_tells_the_error_of_the_estimator_that_the_study_takes(people: Path) -> None:
    """One that is stated, or that several statistics take: the plan is of what the release does."""
    several = {"statistics": ["mean", "sum", "quantiles"], "at": [0.5]}
    for more in ({}, {"estimator": "tcm-only", **several}):
        study = declare({**NUMBER, **more}, promise={"epsilon": 1.0})
        plan = study.plan(people)
        released = study.release(people, simulate_local=True, rng=seeded(1)).to_dict()["questions"]["pay"]
        for name, told in plan.to_dict()["questions"]["pay"].items():
            by = told["predicted"].get("estimator") or told["predicted"].get("default", {}).get("estimator", "hybrid")
            assert by == released[name]["estimator"]
            if name == "mean":
                shown = float(plan.in_words().rows[0][3].strip("± "))
                assert shown == pytest.approx(told["predicted"]["estimators"][by]["rmse_population"], rel=0.01)


def test_a_number_in_two_phases_is_asked_by_the_service_and_refused_over_a_table(people: Path, tmp_path: Path) -> None:
    """In one go it would be another release than was declared. Nothing is written, and the way out is named."""
    study = declare({**NUMBER, "statistics": ["quantiles"], "at": [0.5], "form": "steered"}, promise={"epsilon": 1.0})
    out, says = tmp_path / "o.csv", r"`pay.form` must be plain over a table, where `hybridp release quantiles"
    for run in (lambda: study.release(people, simulate_local=True), lambda: study.randomise(people, out)):
        with pytest.raises(InvalidInput, match=says):
            run()
    assert not out.exists()
