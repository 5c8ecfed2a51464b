"""Answers by group, from published numbers: every group's noise, one person's reach, and one charge for all of them.

Scales are computed here. Group sizes are powers of two, so that a mean holds its noisy sum to the last step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.curator.mean import Columns
from hybridp.ledger import Ledger
from hybridp.protocols.groups import release_groups
from hybridp.protocols.mean import MeanStudy
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import PureDP
from hybridp.public.groups import Grouping

from .means import LEVELS, LOWER, UPPER, Row, command, level, read, whole, write
from .recording import Recording, apart, laplaces, span_of

PAY = {"a": [3.25, 127.0, 64.5, 1e9], "b": [-5.0, 0.0], "c": [99.75, 12.5, 1.0, 8.0, 16.5, 32.0, 64.0, 2.0]}
MEAN = ("--value", "pay", "--trust", "trust", "--lower", LOWER, "--upper", UPPER)
WAYS = {"a": ["x", "y", "z", "x"], "b": ["z", "?"], "c": ["x"] * 8}
SHARES = ("--choice", "way", "--options", "x,y,z", "--trust", "trust")


def rows(held: dict[str, list[Any]], column: str = "pay", trust: str = "trusted") -> list[Row]:
    return [{column: str(v), "dept": dept, "trust": trust} for dept, values in held.items() for v in values]


def told(document: dict[str, Any]) -> dict[str, Any]:
    ((facts,),) = (question.values() for question in document["questions"].values())
    found: dict[str, Any] = facts
    return found


def sums(document: dict[str, Any], people: dict[str, int]) -> dict[str, int]:
    """Every group's noisy sum, in steps, from its published mean."""
    facts = told(document)
    means = dict(zip(facts["by"]["categories"], facts["trusted"], strict=True))
    return {dept: whole((means[dept] - LOWER) / (UPPER - LOWER) * n * LEVELS) for dept, n in people.items()}


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_every_public_group_has_a_draw_of_its_own_at_the_whole_epsilon_and_all_pay_once(
    tmp_path: Path, epsilon: float
) -> None:
    table = write(tmp_path / "rows.csv", rows(PAY))
    with Recording(1).as_the_systems() as tape:
        found = command(
            "release", "mean", table, *MEAN, "--by", "dept", "--epsilon", epsilon, "--ledger", tmp_path / "l"
        )
    noisy = sums(found, {dept: len(values) for dept, values in PAY.items()})
    added = {dept: noisy[dept] - sum(map(level, values)) for dept, values in PAY.items()}
    spans = [span_of(tape, [noise], laplaces(LEVELS / epsilon)) for noise in added.values()]
    apart(*spans)
    assert sorted(spans)[0][0] == 0
    assert sorted(spans)[-1][1] == len(tape.words)
    with pytest.raises(AssertionError, match="stretches"):  # the check can fail
        span_of(tape, [added["a"]], laplaces(LEVELS / epsilon / 3))
    (charge,) = Ledger.open(tmp_path / "l").history()
    assert (charge.people, charge.budget.epsilon, charge.noise) == ("trusted", epsilon, ("laplace", 1 / epsilon))
    promised = [p for p in found["receipt"]["promises"] if p["against"] == "whoever sees the release"]
    assert [(p["group"], p["epsilon"]) for p in promised] == [("trusted", epsilon)]
    assert any("nobody is in two groups" in line for line in found["receipt"]["assumes"])


def test_counts_of_every_public_group_have_draws_of_their_own(tmp_path: Path) -> None:
    table = write(tmp_path / "rows.csv", rows(WAYS, "way"))
    with Recording(1).as_the_systems() as tape:
        found = command("release", "shares", table, *SHARES, "--by", "dept", "--epsilon", 1, "--ledger", tmp_path / "l")
    facts, at = told(found), 0
    for dept, shares in zip(facts["by"]["categories"], facts["trusted"], strict=True):
        held = [way if way in ("x", "y") else "z" for way in WAYS[dept]]
        drawn, at = tape.read_from(at, laplaces(2.0), 3)  # type: ignore[misc]
        noisy = np.array([held.count(way) for way in ("x", "y", "z")]) + drawn
        np.testing.assert_allclose(np.array(shares) * len(held), noisy - (noisy.sum() - len(held)) / 3, atol=1e-12)
    assert at == len(tape.words)
    assert [(e.people, e.budget.epsilon) for e in Ledger.open(tmp_path / "l").history()] == [("trusted", 1.0)]


def test_a_person_moves_their_own_group_alone_and_by_no_more_than_the_bounds(tmp_path: Path) -> None:
    """The same words on neighbouring rows: the noise cancels exactly."""
    seen = []
    for mine in (-1e9, 0, 64.25, 1e9, "", "nan", "'; --"):
        table = write(tmp_path / "rows.csv", rows(PAY | {"a": [mine, *PAY["a"][1:]]}))
        with Recording(2).as_the_systems():
            found = command("release", "mean", table, *MEAN, "--by", "dept", "--epsilon", 1)
        seen.append(sums(found, {dept: len(values) for dept, values in PAY.items()}))
    moved = {dept: max(s[dept] for s in seen) - min(s[dept] for s in seen) for dept in PAY}
    assert moved == {"a": LEVELS, "b": 0, "c": 0}


def test_withheld_people_are_told_of_by_nothing_but_their_number(tmp_path: Path) -> None:
    """Whatever the people of a withheld group hold, the same words give the same document."""
    documents = []
    for mine in (0.0, 128.0):
        table = write(tmp_path / "rows.csv", rows(PAY | {"b": [mine, mine]}))
        with Recording(3).as_the_systems():
            found = command("release", "mean", table, *MEAN, "--by", "dept", "--least", 4, "--epsilon", 1)
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
        promise = ("--epsilon", 1, "--trusted-epsilon", 0.1, "--ledger", tmp_path / "l")
        command("release", "mean", table, *MEAN, *promise)
        found = command("release", "mean", table, *MEAN, "--by", "dept", *promise)
    entries = Ledger.open(tmp_path / "l").history()
    assert [(e.people, e.budget.epsilon) for e in entries] == [("trusted", 0.1), ("local", 1.0), ("trusted", 0.1)]
    facts = told(found)
    for dept, mean in zip(facts["by"]["categories"], facts["local"], strict=True):
        reports = [float(row["report"]) for row in sent if row["dept"] == dept]
        assert mean == pytest.approx(sum(reports) / len(reports), rel=1e-9)


def test_the_library_draws_from_the_system_and_trials_say_so(tmp_path: Path) -> None:
    table = write(tmp_path / "rows.csv", [*rows(PAY), *rows(PAY, trust="local")])
    study, columns = MeanStudy(Bounds(LOWER, UPPER), PureDP(1.0)), Columns("pay", "trust")
    with Recording(5).as_the_systems() as tape:
        found = release_groups(write(tmp_path / "own.csv", rows(PAY)), study, columns, Grouping("dept"))
    assert len(tape.words)
    assert not found.simulated
    assert command("release", "mean", table, *MEAN, "--by", "dept", "--epsilon", 1, "--simulate-local")["simulated"]
    assert command("release", "mean", tmp_path / "own.csv", *MEAN, "--by", "dept", "--epsilon", 1, "--seed", 1)[
        "simulated"
    ]
