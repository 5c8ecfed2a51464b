"""Answers by group, from published numbers: every group's noise, one person's reach, and one charge for all of them.

Scales are computed here. Group sizes are powers of two, so that a mean holds its noisy sum to the last step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hybridp import InvalidInput, Study
from hybridp.blend.tally import Tally
from hybridp.curator.sums import Columns, Source
from hybridp.ledger import Ledger
from hybridp.noise import rounded_up, seeded
from hybridp.protocols.driver import release as release_groups
from hybridp.protocols.driver import release as release_joint
from hybridp.public.groups import Grouping
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import Bounds
from hybridp.tasks.groups import PrivateGroupsTask
from hybridp.tasks.mean import MeanTask
from hybridp.tasks.task import task_of

from .means import LOWER, UPPER, Row, command, read, write
from .recording import Recording

PAY = {"a": [3.25, 127.0, 64.5, 1e9], "b": [-5.0, 0.0], "c": [99.75, 12.5, 1.0, 8.0, 16.5, 32.0, 64.0, 2.0]}
MEAN = ("--column", "pay", "--trust", "trust", "--missing", "middle", "--lower", LOWER, "--upper", UPPER)
STEPS = 2**20
BY = ("--by", "dept", "--public", "dept")
PRIVATE = ("--by", "dept", "--by-private", "--categories", "a,b,c")
SHARES = ("--column", "way", "--options", "x,y,z", "--missing", "z", "--trust", "trust")


def rows(held: dict[str, list[Any]], column: str = "pay", trust: str = "trusted") -> list[Row]:
    return [{column: str(v), "dept": dept, "trust": trust} for dept, values in held.items() for v in values]


def told(document: dict[str, Any]) -> dict[str, Any]:
    ((facts,),) = (question.values() for question in document["questions"].values())
    found: dict[str, Any] = facts
    return found


@pytest.mark.parametrize(
    ("asked", "column", "held"),
    [(("mean", MEAN), "pay", [3.25, 64.5, 8.0, 99.0, 1.0]), (("shares", SHARES), "way", ["x", "y", "z", "x", "y"])],
    ids=["mean", "shares"],
)
def test_people_of_a_withheld_group_who_were_charged_have_a_line_on_the_receipt(
    tmp_path: Path, asked: tuple[str, tuple[Any, ...]], column: str, held: list[Any]
) -> None:
    """The only local people, or the only trusted ones, are in a group that is withheld: they reported all the same."""
    (name, words), by = asked, (*BY, "--least", 4, "--epsilon", 1)
    for few, many in (("local", "trusted"), ("trusted", "local")):
        raw = write(tmp_path / f"{few}.csv", rows({"a": held}, column, many) + rows({"b": held[:3]}, column, few))
        sent, ledger = tmp_path / f"{few}-sent.csv", tmp_path / f"{few}.ledger"
        command("randomise", name, raw, *words, "--epsilon", 1, "--keep", "dept", "--out", sent)
        found = command("release", name, sent, *words, *by, "--ledger", ledger)
        assert told(found)["by"]["withheld"] == ["b"]
        charged = {entry.people for entry in Ledger.open(ledger).history()}
        lines = {(p["group"], p["against"]): p for p in found["receipt"]["promises"]}
        assert {group for group, _ in lines} == charged == {"trusted", "local"}
        assert (lines["local", "the curator"]["epsilon"], lines["trusted", "the curator"]["epsilon"]) == (1.0, None)
        assert {p["epsilon"] for (group, _), p in lines.items() if group == "local"} == {1.0}
        assert any("their group is withheld" in p["mechanism"] + p["note"] for p in lines.values())


def test_withheld_people_are_told_of_by_nothing_but_their_number(tmp_path: Path) -> None:
    """Whatever the people of a withheld group hold, the same words give the same document."""
    documents = []
    for mine in (0.0, 128.0):
        table = write(tmp_path / "rows.csv", rows(PAY | {"b": [mine, mine]}))
        with Recording(3).as_the_systems():
            found = command("release", "mean", table, *MEAN, *BY, "--least", 4, "--epsilon", 1)
        documents.append({**found, "receipt": {**found["receipt"], "asked": None}})
    assert documents[0] == documents[1]
    assert told(documents[0])["by"]["withheld"] == ["b"]
    assert told(documents[0])["by"]["categories"] == ["a", "c"]


def test_reports_for_a_mean_serve_its_groups_too_and_are_charged_once(tmp_path: Path) -> None:
    raw = write(tmp_path / "raw.csv", rows(PAY, trust="local"))
    with Recording(4).as_the_systems():
        command("randomise", "mean", raw, *MEAN, "--by", "dept", "--epsilon", 1, "--out", tmp_path / "sent.csv")
        sent = read(tmp_path / "sent.csv")
        assert {row["pay"] for row in sent} == {""}, "a randomised row keeps no value"
        assert [row["dept"] for row in sent] == [row["dept"] for row in rows(PAY)]
        table = write(tmp_path / "rows.csv", [*rows(PAY), *sent])
        Ledger.create(tmp_path / "l", {"trusted": PureDP(0.2), "local": PureDP(1.0)})
        promise = ("--epsilon", 1, "--trusted-epsilon", 0.1, "--estimator", "adaptive", "--ledger", tmp_path / "l")
        command("release", "mean", table, *MEAN, *promise)
        found = command("release", "mean", table, *MEAN, *BY, *promise)
    entries = Ledger.open(tmp_path / "l").history()
    assert [(e.people, e.budget.epsilon) for e in entries] == [("trusted", 0.1), ("local", 1.0), ("trusted", 0.1)]
    facts = told(found)
    for dept, mean in zip(facts["by"]["categories"], facts["local"], strict=True):
        reports = [float(row["report"]) for row in sent if row["dept"] == dept]
        assert mean == pytest.approx(sum(reports) / len(reports), rel=1e-9)


def test_the_library_draws_from_the_system_and_trials_say_so(tmp_path: Path) -> None:
    table = write(tmp_path / "rows.csv", [*rows(PAY), *rows(PAY, trust="local")])
    study, columns = MeanTask(Bounds(LOWER, UPPER), PureDP(1.0)), Columns("pay", "trust", missing="middle")
    with Recording(5).as_the_systems() as tape:
        own = Source(write(tmp_path / "own.csv", rows(PAY)), public="dept")
        found = release_groups(own, study, columns, Grouping("dept"))
        drawn = len(tape.words)
        joint = PrivateGroupsTask(study, "pay", Grouping("dept", ("a", "b", "c"), private=True))
        private = release_joint(tmp_path / "own.csv", joint, columns)
    assert 0 < drawn < len(tape.words)
    assert not found.simulated
    assert not private.simulated
    trial = ("release", "mean", table, *MEAN, *PRIVATE, "--epsilon", 1, "--simulate-local")
    assert command(*trial)["simulated"]
    assert command("release", "mean", table, *MEAN, *BY, "--epsilon", 1, "--simulate-local")["simulated"]
    assert command("release", "mean", tmp_path / "own.csv", *MEAN, *BY, "--epsilon", 1, "--seed", 1)["simulated"]


# --- private categories -----------------------------------------------------------------------------------------------


def test_a_number_is_rounded_up_in_proportion() -> None:
    levels = np.repeat([0, STEPS // 4, STEPS], 40_000)
    up = rounded_up(levels, STEPS, rng=seeded(1)).reshape(3, -1).sum(axis=1)
    assert (up[0], up[2]) == (0, 40_000)
    assert stats.binomtest(int(up[1]), 40_000, 0.25).pvalue > 1e-6
    assert stats.binomtest(int(up[1]), 40_000, 0.27).pvalue < 1e-6  # the check can fail


def compared(statistics: list[str], **asked: Any) -> dict[str, Any]:
    """The differences by statistic of groups whose trusted and local people differ by what was stated."""
    trust, town = ["trusted" if i % 10 < 3 else "local" for i in range(800)], ["uvw"[i % 3] for i in range(800)]
    drawn = [(i * 7919) % 100 for i in range(800)]
    pay = [100.0 * (x < (64 if who == "trusted" else 44)) for x, who in zip(drawn, trust, strict=True)]
    question = {"name": "pay", "kind": "number", "lower": 0, "upper": 100, "missing": 50, "by": "town"}
    asked |= {"compare": "all"}
    study = Study(questions=[{**question, "statistics": statistics, **asked}], promise=1.0, trust="trust",
                  people={"public": ["town"]})  # fmt: skip
    held = {"pay": drawn if "at" in asked else pay, "town": town, "trust": trust}
    answers = study.release(held, simulate_local=True, rng=seeded(1)).questions["pay"]
    return {key: facts["differences"] for key, facts in answers.items()}


def test_a_mean_is_compared_by_its_own_law_whatever_is_asked_beside_it() -> None:
    """Also where a stated gap may shift it. Sums of groups of different sizes are not compared."""
    stated = {"estimator": "fixed", "trusted_weight": 0.8, "gap": 20, "sd": 50}
    for asked in ({}, stated, {**stated, "joint": True}):
        alone, beside = compared(["mean"], **asked), compared(["mean", "sum"], **asked)
        assert beside == {"mean_by_group": alone["mean_by_group"], "sum_by_group": []}


def test_joint_differences_of_medians_reach_beyond_single_ones() -> None:
    """A law with Laplace's tails holds each of three at a third of what may go wrong."""
    single, joint = (compared(["quantiles"], at=[0.5], joint=joint)["quantiles_by_group"] for joint in (False, True))
    for one, other in zip(single, joint, strict=True):
        assert other["interval"][0] < one["interval"][0] < one["interval"][1] < other["interval"][1]


def test_a_tally_for_an_estimate_alone_holds_no_bins_whatever_is_asked() -> None:
    asked = {"name": "pay", "kind": "number", "lower": 0, "upper": 100, "publish": "estimate-only", "sd": 20}
    for statistics in (["mean"], ["sum"], ["mean", "sum"]):
        own = {**asked, "estimator": "kvh", "statistics": statistics}
        task: Any = task_of(Study(questions=[own], promise=1.0, trust="trust"), 0)
        task.check_tally(Tally.of(task.invite, sums_only=True))
        with pytest.raises(InvalidInput, match="publish estimate-only"):
            task.check_tally(Tally.of(task.invite))


def test_every_statistic_of_the_groups_has_a_panel_that_names_it() -> None:
    held = {"pay": [float(i % 50) for i in range(400)], "town": ["uv"[i % 2] for i in range(400)]}
    asked = {"name": "pay", "kind": "number", "lower": 0, "upper": 100, "missing": 50, "by": "town", "at": [0.5]}
    study = Study(questions=[{**asked, "statistics": ["mean", "sd", "quantiles"]}], promise=4.0,
                  trust={"everyone": "trusted"}, people={"public": ["town"]})  # fmt: skip
    figure: Any = study.release(held, rng=seeded(1)).plot().get_figure()
    words = [[text.get_text() for text in panel.texts] for panel in figure.axes[1:]]
    titles = [next(one for one in each if "by town" in one) for each in words]
    starts = ("Mean pay by town", "Standard deviation of pay by town", "Quantiles of pay by town")
    assert all(title.startswith(start) for title, start in zip(titles, starts, strict=True))
