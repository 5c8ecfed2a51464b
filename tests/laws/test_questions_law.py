"""What a study asks of one number, or counts: every statistic from one report, the trusted promise in stated halves.

The system's randomness is on tape (`recording`). The noise of a sum or a count is what was published less the true one,
computed here, and its scale is stated here: the sensitivity over the part of epsilon that the guide names.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hybridp as hp
from hybridp import BudgetExceeded, Ledger, PureDP, Study

from .means import LEVELS, LOWER, UPPER, command, level, local, read, trusted, whole, write
from .recording import Recording, apart, laplaces, span_of

VALUES = [1.5, 17.0, 30.25, 30.25, 64.0, 100.0, 127.0, 500.0, -3.0, 50.0, 51.0, 52.0, 53.0, 70.0, 80.0, 90.0]
PAY = {"name": "pay", "kind": "number", "missing": "middle", "lower": LOWER, "upper": UPPER, "local": "dithered"}
PAY |= {"noise": "laplace"}
EPSILON = 2.0


def declared(*questions: dict[str, Any], **changes: Any) -> Study:
    return Study(**{"title": "T", "promise": EPSILON, "trust": "trust", "questions": list(questions), **changes})


def asking(*statistics: str, **more: Any) -> dict[str, Any]:
    return {**PAY, "statistics": list(statistics), **more}


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A few trusted people, and enough reports by devices to tell where to count them."""
    folder = tmp_path_factory.mktemp("people")
    values = np.random.default_rng(1).normal(60, 15, 4000).round(3).tolist()
    write(folder / "raw.csv", [*trusted(*VALUES), *local(*values)])
    with Recording(2).as_the_systems():
        declared(PAY).randomise(folder / "raw.csv", folder / "rows.csv")
    return folder / "rows.csv"


def added_to_sum(found: dict[str, Any]) -> int:
    share = (found["questions"]["pay"]["mean"]["trusted"] - LOWER) / (UPPER - LOWER)
    return whole(share * len(VALUES) * LEVELS) - sum(map(level, VALUES))


def added_to_counts(told: dict[str, Any]) -> list[int]:
    clipped = np.clip(VALUES, LOWER, UPPER)
    below = [int((clipped <= value).sum()) for value in told["values"]]
    noisy = [whole(n) for n in told["noisy_counts"]]
    return (np.array(noisy) - np.diff([0, *below, len(VALUES)])[: len(noisy)]).tolist()


def test_the_sum_and_the_counts_have_half_of_the_trusted_promise_each(table: Path, tmp_path: Path) -> None:
    study = declared(asking("mean", "shares-below", "histogram", below=[50.0], edges=[0.0, 30.0, 90.0, 128.0]))
    with Recording(3).as_the_systems() as tape:
        found = study.release(table, ledger=tmp_path / "l").to_dict()
    (told,) = found["questions"]["pay"]["distribution"]["counted"]
    assert told["values"] == pytest.approx([30.0, 50.0, 90.0])  # a bin begins at its edge: people are counted below it
    spans = [
        span_of(tape, added_to_sum(found), laplaces(LEVELS / (EPSILON / 2))),
        span_of(tape, added_to_counts(told), laplaces(2 / (EPSILON / 2))),
    ]
    apart(*spans)
    assert sum(end - start for start, end in spans) == len(tape.words)  # nothing else was drawn
    for added, sensitivity in ((added_to_sum(found), LEVELS), (added_to_counts(told), 2)):
        with pytest.raises(AssertionError, match="stretches"):  # the whole promise would be less noise
            span_of(tape, added, laplaces(sensitivity / EPSILON))
    history = Ledger.open(tmp_path / "l").history()
    assert [(e.people, e.budget.epsilon) for e in history] == [("trusted", EPSILON), ("local", EPSILON)]
    promised = {p["group"]: p["epsilon"] for p in found["receipt"]["promises"] if p["epsilon"] is not None}
    assert promised == {"trusted": EPSILON, "local": EPSILON}
    assert not found["simulated"]


def test_what_is_asked_alone_has_the_whole_promise(table: Path) -> None:
    own = {"epsilon": EPSILON, "trusted_epsilon": 0.01}
    with Recording(4).as_the_systems() as tape:
        found = declared(asking("shares-above", above=[50.0]), promise=own).release(table).to_dict()
    (told,) = found["questions"]["pay"]["distribution"]["counted"]
    assert span_of(tape, added_to_counts(told), laplaces(1 / 0.01)) == (0, len(tape.words))
    assert list(found["questions"]["pay"]) == ["shares-above", "distribution"]
    with Recording(5).as_the_systems() as tape:
        found = declared(asking("mean", "sum")).release(table).to_dict()
    assert span_of(tape, added_to_sum(found), laplaces(LEVELS / EPSILON)) == (0, len(tape.words))


def test_one_report_serves_every_statistic_and_is_charged_once(table: Path, tmp_path: Path) -> None:
    ledger = Ledger.create(tmp_path / "l", {"trusted": PureDP(2 * EPSILON), "local": PureDP(EPSILON)})
    declared(PAY).release(table, ledger=ledger)  # collected for a mean, and released as one
    declared(asking("mean", "sd", "gini")).release(table, ledger=ledger)
    charged = [(e.people, e.budget.epsilon) for e in ledger.history()]
    assert charged == [("trusted", EPSILON), ("local", EPSILON), ("trusted", EPSILON)]
    with pytest.raises(BudgetExceeded):
        declared(asking("sd")).release(table, ledger=ledger)
    alone = declared(asking("mean", "quantiles", at=[0.5], estimator="lm-only"))
    assert alone.release(table, ledger=ledger)["pay"].of("mean").people["local"] == 4000  # for nothing
    assert len(ledger.history()) == 3


def test_statistics_agree_with_each_other(table: Path) -> None:
    below, edges = [30.0, 60.0, 90.0], [0.0, 30.0, 60.0, 90.0, 128.0]
    statistics = ("mean", "sum", "variance", "sd", "histogram", "shares-below", "shares-above", "distribution")
    found = declared(asking(*statistics, below=below, above=below, edges=edges)).release(table)
    facts = found.to_dict()["questions"]["pay"]
    assert set(facts) == set(statistics)
    people = len(VALUES) + 4000
    for key in ("estimate", "trusted", "local"):
        assert facts["sum"][key] == pytest.approx(people * facts["mean"][key])
    assert facts["sum"]["interval"] == pytest.approx([people * end for end in facts["mean"]["interval"]])
    assert facts["sd"]["estimate"] ** 2 == pytest.approx(facts["variance"]["estimate"])
    told, rest = (np.array(facts[f"shares-{side}"]["estimate"]) for side in ("below", "above"))
    assert told + rest == pytest.approx(1)
    low, high = np.array(facts["histogram"]["interval"])
    bins = np.diff([0, *told, 1])  # who is just at an edge begins a bin, and is at or below the value
    assert np.all((low <= bins) & (bins <= high))
    for side in ("trusted", "local"):
        assert sum(facts["histogram"][side]) == pytest.approx(1)
    assert facts["histogram"]["options"] == ["below 30", "30 to below 60", "60 to below 90", "90 or more"]
    at = facts["distribution"]["at"].index(60.0)
    assert facts["distribution"]["estimate"][at] == pytest.approx(told[1])
    frame = found.to_frame()
    assert len(frame) == 4 + 4 + 3 + 3
    assert {"statistic", "name", "estimate", "low", "high"} < set(frame.columns)


def test_joint_intervals_are_those_of_the_level_that_is_left_to_each(table: Path) -> None:
    """Bonferroni over mean, spread, two quantiles and three bins: seven intervals; a sum's is the mean's."""
    asked = asking("mean", "sum", "sd", "quantiles", "histogram", at=[0.25, 0.5], edges=[0.0, 40.0, 80.0, 128.0])
    found = []
    for changes, joint in (({"level": 0.9}, True), ({"level": 1 - 0.1 / 7}, False), ({"level": 0.9}, False)):
        with Recording(7).as_the_systems():
            found.append(declared({**asked, "joint": joint}, **changes).release(table).to_dict())
    together, each, plain = (one["questions"]["pay"] for one in found)
    for name in ("mean", "sum", "sd", "quantiles", "histogram"):
        assert np.allclose(together[name]["interval"], each[name]["interval"], rtol=1e-9)
        assert np.ptp(together[name]["interval"], axis=0).sum() > np.ptp(plain[name]["interval"], axis=0).sum()
        assert together[name]["joint"]
    assert found[0]["level"] == 0.9


def test_a_count_is_one_noisy_count_of_people(tmp_path: Path) -> None:
    people = [{"smokes": word, "trust": "trusted"} for word in ["yes"] * 11 + ["no"] * 20 + ["", "Yes", "x"]]
    people += [{"smokes": ("yes", "no", "no")[i % 3], "trust": "local"} for i in range(300)]
    write(tmp_path / "raw.csv", people)
    study = declared({"name": "smokers", "kind": "count", "column": "smokes", "value": "yes"},
                     promise={"epsilon": EPSILON, "trusted_epsilon": 0.01})  # fmt: skip
    study.write(tmp_path / "study.toml")
    command("randomise", tmp_path / "study.toml", tmp_path / "raw.csv", "--out", tmp_path / "rows.csv")
    assert {row["smokes"] for row in read(tmp_path / "rows.csv") if row["trust"] == "local"} == {""}
    with Recording(8).as_the_systems() as tape:
        found = command("release", tmp_path / "study.toml", tmp_path / "rows.csv", "--ledger", tmp_path / "l")
    told = found["questions"]["smokers"]["count"]
    assert told["people"] == 334
    noisy = whole(told["trusted"] / 334 * 34)
    assert span_of(tape, [noisy - 11], laplaces(1 / 0.01)) == (0, len(tape.words))
    low, high = told["interval"]
    assert low <= told["estimate"] <= high
    assert [334 * end for end in told["share"]["interval"]] == pytest.approx([low, high])
    history = Ledger.open(tmp_path / "l").history()
    assert [(e.people, e.budget.epsilon) for e in history] == [("trusted", 0.01), ("local", EPSILON)]
    assert study.plan(trusted=34, local=300).to_dict()["questions"]["smokers"]["count"]["predicted"]["estimators"]


def test_counts_by_group_are_each_groups_share_times_its_people() -> None:
    """The same draws: a choice of yes or not yes, and a count of yes, in groups of 900 and 300."""
    rows = {"smokes": ["yes", "no", "no"] * 400, "town": ["u"] * 900 + ["v"] * 300, "trust": ["trusted", "local"] * 600}
    people: dict[str, Any] = {name: np.array(column) for name, column in rows.items()}
    terms: Any = {"trust": "trust", "epsilon": 1.0, "by": "town", "public": ["town"], "simulate_local": True}
    told = hp.count(people, "smokes", value="yes", rng=hp.seeded(3), **terms).facts
    share = hp.shares(people, "smokes", options=["yes"], other="not yes", rng=hp.seeded(3), **terms).facts
    for name in ("unbiased", "trusted", "local"):
        assert told[name] == pytest.approx([900 * share[name][0][0], 300 * share[name][1][0]])
    for end, shares in zip(told["interval"], share["interval"], strict=True):
        assert end == pytest.approx([900 * shares[0][0], 300 * shares[1][0]])


OPTIONS = ("train", "car", "walk", "bus", "boat")


def test_several_of_several_beside_other_questions_are_told_at_their_part(tmp_path: Path) -> None:
    draw, chance = np.random.default_rng(4), (0.6, 0.4, 0.3, 0.1, 0.02)
    ticked = draw.random((8000, 5)) < chance
    cells = [";".join(o for o, mine in zip(OPTIONS, row, strict=True) if mine) for row in ticked]
    groups = [("trusted", "local")[i % 4 > 0] for i in range(len(cells))]
    rows = [{"ways": cell, "pay": "50", "trust": group} for cell, group in zip(cells, groups, strict=True)]
    write(tmp_path / "raw.csv", rows)
    asked = {"name": "ways", "kind": "choice", "options": list(OPTIONS), "several": 5, "missing": "none", "joint": True}
    study = declared(asked, PAY, level=1 - 1e-6)
    assert study.drawn
    study.randomise(tmp_path / "raw.csv", tmp_path / "rows.csv")
    found = study.release(tmp_path / "rows.csv", ledger=tmp_path / "l")
    low, high = np.array(found.to_dict()["questions"]["ways"]["shares"]["interval"])
    assert ((low <= ticked.mean(axis=0)) & (ticked.mean(axis=0) <= high)).all()
    charged = [(e.people, e.budget.epsilon) for e in Ledger.open(tmp_path / "l").history()]
    assert charged == [("trusted", EPSILON), ("local", EPSILON)]
    assert not found.simulated
    trial = declared(asked).release(tmp_path / "raw.csv", simulate_local=True)
    assert trial.simulated
    assert np.abs(np.array(trial["ways"].facts["local"]) - ticked.mean(axis=0)).max() < 0.2
