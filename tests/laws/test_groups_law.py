"""Answers by group, from published numbers: every group's noise, one person's reach, and one charge for all of them.

Scales are computed here. Group sizes are powers of two, so that a mean holds its noisy sum to the last step.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hybridp.curator.mean import Columns
from hybridp.curator.sources import Source
from hybridp.ledger import Ledger
from hybridp.noise.reports import oracle_reports, rounded_up
from hybridp.protocols.driver import release_groups, release_joint
from hybridp.public.budgets import PureDP
from hybridp.public.groups import Grouping
from hybridp.public.lattice import Bounds
from hybridp.public.oracles import share_oracle
from hybridp.public.randomisers import KRandomisedResponse
from hybridp.randomness import seeded
from hybridp.tasks.joint import JointStudy
from hybridp.tasks.mean import MeanStudy

from .means import LEVELS, LOWER, UPPER, Row, command, level, read, whole, write
from .recording import Recording, apart, laplaces, span_of

PAY = {"a": [3.25, 127.0, 64.5, 1e9], "b": [-5.0, 0.0], "c": [99.75, 12.5, 1.0, 8.0, 16.5, 32.0, 64.0, 2.0]}
MEAN = ("--column", "pay", "--trust", "trust", "--missing", "middle", "--lower", LOWER, "--upper", UPPER)
WAYS = {"a": ["x", "y", "z", "x"], "b": ["z", "?"], "c": ["x"] * 8}
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
        found = command("release", "mean", table, *MEAN, *BY, "--epsilon", epsilon, "--ledger", tmp_path / "l")
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
        found = command("release", "shares", table, *SHARES, *BY, "--epsilon", 1, "--ledger", tmp_path / "l")
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
            found = command("release", "mean", table, *MEAN, *BY, "--epsilon", 1)
        seen.append(sums(found, {dept: len(values) for dept, values in PAY.items()}))
    moved = {dept: max(s[dept] for s in seen) - min(s[dept] for s in seen) for dept in PAY}
    assert moved == {"a": LEVELS, "b": 0, "c": 0}


def test_what_every_group_decides_by_its_size_is_paid_by_the_one_charge(tmp_path: Path) -> None:
    """Whether a group pays for its spread its own numbers of people decide; all of it within the promise."""
    crowd = [
        {"pay": str(i % 128), "dept": d, "trust": t} for i in range(600) for d, t in (("a", "local"), ("b", "local"))
    ]
    table = write(tmp_path / "rows.csv", [*crowd[:40], *rows({"a": [64.0] * 512, "b": [32.0]})])
    trial = ("--simulate-local", "--ledger", tmp_path / "l")
    found = command("release", "mean", table, *MEAN, *BY, "--epsilon", 1, *trial)
    charged = {e.people: e.budget.epsilon for e in Ledger.open(tmp_path / "l").history()}
    assert charged == {"trusted": 1.0, "local": 1.0}
    promised = [p for p in found["receipt"]["promises"] if p["against"] == "whoever sees the release"]
    assert {p["epsilon"] for p in promised} == {1.0}


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
    study, columns = MeanStudy(Bounds(LOWER, UPPER), PureDP(1.0)), Columns("pay", "trust", missing="middle")
    with Recording(5).as_the_systems() as tape:
        own = Source(write(tmp_path / "own.csv", rows(PAY)), public="dept")
        found = release_groups(own, study, columns, Grouping("dept"))
        drawn = len(tape.words)
        joint = JointStudy(study, "pay", Grouping("dept", ("a", "b", "c"), private=True))
        private = release_joint(tmp_path / "own.csv", joint, columns)
    assert 0 < drawn < len(tape.words)
    assert not found.simulated
    assert not private.simulated
    trial = ("release", "mean", table, *MEAN, *PRIVATE, "--epsilon", 1, "--simulate-local")
    assert command(*trial)["simulated"]
    assert command("release", "mean", table, *MEAN, *BY, "--epsilon", 1, "--simulate-local")["simulated"]
    assert command("release", "mean", tmp_path / "own.csv", *MEAN, *BY, "--epsilon", 1, "--seed", 1)["simulated"]


# --- private categories -----------------------------------------------------------------------------------------------


def cells(document: dict[str, Any], people: int) -> np.ndarray[Any, Any]:
    """The trusted people's noisy votes, upper bound first, from a release that hears nobody else."""
    facts = told(document)
    share = np.array(facts["by"]["shares"]) * people
    upper = share * (np.array(facts["trusted"]) - LOWER) / (UPPER - LOWER)
    return np.column_stack([upper, share - upper]).ravel()


def votes(held: dict[str, list[Any]]) -> np.ndarray[Any, Any]:
    """By hand: what everybody gives to the two cells of their category, in steps."""
    upper = np.array([sum(level(v, levels=STEPS) for v in held[dept]) for dept in "abc"])
    everything = np.array([STEPS * len(held[dept]) for dept in "abc"])
    return np.column_stack([upper, everything - upper]).ravel()


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_every_cell_of_a_private_category_has_a_draw_for_a_moved_vote(tmp_path: Path, epsilon: float) -> None:
    """A vote that moves from one category to another changes the cells by 2, in all; the ledger is charged once."""
    held = {dept: values * 16 for dept, values in PAY.items()}  # enough people that no category seems empty
    table, n = write(tmp_path / "rows.csv", rows(held)), 16 * 14
    with Recording(1).as_the_systems() as tape:
        found = command("release", "mean", table, *MEAN, *PRIVATE, "--epsilon", epsilon, "--ledger", tmp_path / "l")
    drawn, end = tape.read_from(0, laplaces(2 * STEPS / epsilon), 6)  # type: ignore[misc]
    assert end == len(tape.words)
    noisy = (votes(held) + drawn) / STEPS
    np.testing.assert_allclose(cells(found, n), noisy - (noisy.sum() - n) / 6, rtol=1e-9)
    weaker = tape.read_from(0, laplaces(STEPS / epsilon), 6)
    assert weaker is None or not np.array_equal(weaker[0], drawn)  # the check can fail
    (charge,) = Ledger.open(tmp_path / "l").history()
    assert (charge.people, charge.budget.epsilon, charge.noise) == ("trusted", epsilon, None)
    promised = [p for p in found["receipt"]["promises"] if p["against"] == "whoever sees the release"]
    assert [(p["group"], p["epsilon"]) for p in promised] == [("trusted", epsilon)]
    assert any("`dept` is private" in line for line in found["receipt"]["assumes"])


def test_nobody_moves_the_cells_further_whatever_category_and_value_they_hold(tmp_path: Path) -> None:
    """The same words on neighbouring rows, whose category changes too: the noise cancels exactly."""
    others = rows({dept: values * 16 for dept, values in PAY.items()})
    seen = []
    for dept, mine in [(d, v) for d in ("a", "c", "nobody's", "") for v in (-1e9, 64, 1e9, "", "nan")]:
        table = write(tmp_path / "rows.csv", [{"pay": str(mine), "dept": dept, "trust": "trusted"}, *others])
        with Recording(2).as_the_systems():
            found = command("release", "mean", table, *MEAN, *PRIVATE, "--epsilon", 4)
        seen.append(cells(found, len(others) + 1))
    largest = max(float(np.abs(a - b).sum()) for a in seen for b in seen)
    assert largest == pytest.approx(2, abs=1e-6)


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_a_report_tells_category_and_value_together_at_the_whole_epsilon(tmp_path: Path, epsilon: float) -> None:
    """Numbers at their bounds are rounded to themselves: the cells that the reports are drawn from are known."""
    held = {"a": [LOWER, UPPER] * 8, "b": [UPPER] * 8, "c": [LOWER] * 8}
    raw = write(tmp_path / "raw.csv", rows(held, trust="local"))
    options = (*MEAN, *PRIVATE, "--epsilon", epsilon)
    with Recording(3).as_the_systems() as tape:
        command("randomise", "mean", raw, *options, "--keep", "dept", "--out", tmp_path / "sent.csv")
    sent = read(tmp_path / "sent.csv")
    assert {(row["pay"], row["dept"]) for row in sent} == {("", "")}, "a randomised row keeps no value and no category"
    assert len({row["report_mechanism"] for row in sent}) == 1
    codes = np.array([2 * "abc".index(dept) + (v == LOWER) for dept, values in held.items() for v in values])

    def reads(size: float) -> list[Any]:
        oracle = share_oracle(PureDP(size), 6)
        found = [tape.read_from(at, lambda n, rng: oracle_reports(oracle, codes, rng=rng), 32) for at in tape.starts]
        return [one[0].tolist() for one in found if one is not None]

    names = [f"{dept}: {end:g}" for dept in "abc" for end in (UPPER, LOWER)]
    oracle = share_oracle(PureDP(epsilon), 6)
    if isinstance(oracle, KRandomisedResponse):
        assert oracle.truth <= np.exp(epsilon) / (np.exp(epsilon) + 5)
        wanted: Any = [names.index(row["report"]) for row in sent]
    else:
        wanted = [[i for i in range(6) if int(row["report"], 16) >> (7 - i) & 1] for row in sent]
    assert wanted in reads(epsilon)
    assert wanted not in reads(3 * epsilon)
    with Recording(4).as_the_systems():
        found = command("release", "mean", tmp_path / "sent.csv", *options, "--ledger", tmp_path / "l")
    charged = [(e.people, e.budget.epsilon) for e in Ledger.open(tmp_path / "l").history()]
    assert charged == [("trusted", epsilon), ("local", epsilon)]
    supports = np.bincount(np.ravel(wanted), minlength=6)
    truth = (supports / 32 - oracle.other) / (oracle.truth - oracle.other)
    expected = dict(zip("abc", truth.reshape(3, 2).sum(axis=1).tolist(), strict=True))
    by = told(found)["by"]
    assert set(by["categories"]) | set(by["withheld"]) == {"a", "b", "c"}
    for dept, share in zip(by["categories"], by["shares"], strict=True):
        assert share == pytest.approx(expected[dept], rel=1e-9)
    assert all(32 * expected[dept] < 1 for dept in by["withheld"])  # by noisy counts, without anything else


def test_a_number_is_rounded_up_in_proportion_and_shares_have_a_cell_an_option(tmp_path: Path) -> None:
    levels = np.repeat([0, STEPS // 4, STEPS], 40_000)
    up = rounded_up(levels, STEPS, rng=seeded(1)).reshape(3, -1).sum(axis=1)
    assert (up[0], up[2]) == (0, 40_000)
    assert stats.binomtest(int(up[1]), 40_000, 0.25).pvalue > 1e-6
    assert stats.binomtest(int(up[1]), 40_000, 0.27).pvalue < 1e-6  # the check can fail
    held = {dept: values * 16 for dept, values in WAYS.items()}
    table = write(tmp_path / "rows.csv", rows(held, "way"))
    with Recording(5).as_the_systems() as tape:
        found = command("release", "shares", table, *SHARES, *PRIVATE, "--epsilon", 1)
    drawn, end = tape.read_from(0, laplaces(2.0), 9)  # type: ignore[misc]
    assert end == len(tape.words)
    exact = [sum((w if w in "xy" else "z") == way for w in held[dept]) for dept in "abc" for way in "xyz"]
    noisy = np.array(exact) + drawn
    noisy = (noisy - (noisy.sum() - sum(exact)) / 9).reshape(3, 3)
    facts = told(found)
    np.testing.assert_allclose(facts["by"]["shares"], noisy.sum(axis=1) / sum(exact), rtol=1e-9)
    np.testing.assert_allclose(facts["trusted"], noisy / noisy.sum(axis=1, keepdims=True), rtol=1e-9)


def test_the_receipt_of_many_groups_says_once_what_differs_by_its_figures(tmp_path: Path) -> None:
    """Groups of different sizes have different costs of anchoring: one line with their range, however many."""
    way = {dept: list("xyz") * 20 * (i + 1) for i, dept in enumerate("abcdef")}
    people = [*rows(way, "way"), *rows(way, "way", "local")]
    file = write(tmp_path / "p.csv", people)
    found = command("release", "shares", file, *SHARES, *BY, "--epsilon", 4, "--simulate-local",
                    "--estimator", "alike")  # fmt: skip
    lines = [line for line in found["receipt"]["assumes"] if "estimator:" in line]
    forms = {"anchored" if "alike is anchored" in line else "hybrid" for line in lines}
    assert len(lines) == len(forms)
    assert any(" to " in line for line in lines)
