"""Shares, from published numbers: a draw of the stated law on every count, one person's reach, reports and charges.

Scales are computed here: a replaced person moves one of two counts by 1, and of more than two counts one up and one
down. Group sizes are powers of two, so that a share holds its noisy count to the last step.
"""

from __future__ import annotations

import itertools
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.ledger import Ledger
from hybridp.noise.reports import oracle_reports
from hybridp.public.budgets import PureDP
from hybridp.public.oracles import SubsetSelection
from hybridp.public.randomisers import KRandomisedResponse
from hybridp.testing import laws

from .means import WORD, Row, command, read, whole, write
from .recording import Recording, gaussians, laplaces, span_of

TWO, FOUR = ("yes", "no"), ("a", "b", "c", "d")
HELD = {TWO: ["yes", "yes", "no", "yes", "", "no", "what", "yes"], FOUR: ["a", "a", "a", "b", "d", "?", "c", "a"]}
BINS = ("--column", "answer", "--edges", "0,10,20,40,80", "--missing", "40..80")


def rows(answers: list[Any], trust: str = "trusted") -> list[Row]:
    return [{"answer": str(a), "trust": trust} for a in answers]


def asked(options: tuple[str, ...]) -> tuple[str, ...]:
    return ("--column", "answer", "--options", ",".join(options), "--missing", options[-1], "--trust", "trust")


def shares(found: dict[str, Any], name: str = "shares") -> dict[str, Any]:
    statistic: dict[str, Any] = found["questions"]["answer"][name]
    return statistic


def exact(options: tuple[str, ...], answers: list[str]) -> list[int]:
    """Counts by hand: what is not listed is the last option."""
    return [sum((a if a in options else options[-1]) == o for a in answers) for o in options]


def stated(document: dict[str, Any], group: str) -> dict[str, Any]:
    (found,) = [
        p for p in document["receipt"]["promises"] if (p["group"], p["against"]) == (group, "whoever sees the release")
    ]
    return found


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_of_two_options_the_first_count_has_one_draw_for_a_sensitivity_of_one(tmp_path: Path, epsilon: float) -> None:
    table = write(tmp_path / "rows.csv", rows(HELD[TWO]))
    with Recording(1).as_the_systems() as tape:
        found = command("release", "shares", table, *asked(TWO), "--epsilon", epsilon, "--ledger", tmp_path / "l")
    told = shares(found)
    counted = whole(told["trusted"][0] * 8)
    assert span_of(tape, [counted - exact(TWO, HELD[TWO])[0]], laplaces(1 / epsilon)) == (0, len(tape.words))
    assert told["trusted"][1] == 1 - told["trusted"][0]
    assert stated(found, "trusted")["epsilon"] == epsilon
    assert "count of the first option" in stated(found, "trusted")["mechanism"]
    (charge,) = Ledger.open(tmp_path / "l").history()
    assert (charge.people, charge.budget.epsilon, charge.noise, charge.steps) == (
        "trusted", epsilon, ("laplace", 1 / epsilon), 1)  # fmt: skip
    assert not found["simulated"]


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_of_four_options_every_count_has_a_draw_of_its_own_for_a_sensitivity_of_two(
    tmp_path: Path, epsilon: float
) -> None:
    table = write(tmp_path / "rows.csv", rows(HELD[FOUR]))
    with Recording(1).as_the_systems() as tape:
        found = command("release", "shares", table, *asked(FOUR), "--epsilon", epsilon, "--ledger", tmp_path / "l")
    drawn, end = tape.read_from(0, laplaces(2 / epsilon), 4)  # type: ignore[misc]
    assert end == len(tape.words)
    assert len(set(drawn.tolist())) > 1
    # Noisy counts, less an equal part each of what they add up to too much.
    noisy = np.array(exact(FOUR, HELD[FOUR])) + drawn
    np.testing.assert_allclose(np.array(shares(found)["trusted"]) * 8, noisy - (noisy.sum() - 8) / 4, atol=1e-12)
    weaker = tape.read_from(0, laplaces(1.5 / epsilon), 4)
    assert weaker is None or not np.array_equal(weaker[0], drawn)  # the check can fail
    assert sum(shares(found)["trusted"]) == pytest.approx(1, abs=1e-12)
    (charge,) = Ledger.open(tmp_path / "l").history()
    assert (charge.people, charge.budget.epsilon, charge.noise) == ("trusted", epsilon, None)
    assert stated(found, "trusted")["epsilon"] == epsilon


@pytest.mark.parametrize("options", [TWO, FOUR])
def test_gaussian_noise_covers_a_move_between_two_counts(tmp_path: Path, options: tuple[str, ...]) -> None:
    """Two counts, each moved by 1, lie sqrt 2 apart; of two options only one is told."""
    table = write(tmp_path / "rows.csv", rows(HELD[options]))
    promise = ("--epsilon", 1, "--delta", 1e-6, "--noise", "gaussian")
    with Recording(3).as_the_systems() as tape:
        found = command("release", "shares", table, *asked(options), *promise, "--ledger", tmp_path / "l")
    (charge,) = Ledger.open(tmp_path / "l").history()
    assert charge.noise is not None
    kind, size = charge.noise
    assert kind == "gaussian"
    assert laws.gaussian(1.0, size).delta(1.0) <= 1e-6 < laws.gaussian(1.0, 0.99 * size).delta(1.0)
    counts, steps = np.array(exact(options, HELD[options])), 1 if options is TWO else 2**20
    apart = 1 if options is TWO else math.isqrt(2 * steps**2) + 1
    draws = 1 if options is TWO else 4
    drawn, end = tape.read_from(0, gaussians(size * apart), draws)  # type: ignore[misc]
    assert end == len(tape.words)
    noisy = counts[:draws] + drawn / steps
    shown = np.array(shares(found)["trusted"]) * 8
    if options is TWO:
        np.testing.assert_allclose(shown, [noisy[0], 8 - noisy[0]], atol=1e-9)
    else:
        np.testing.assert_allclose(shown, noisy - (noisy.sum() - 8) / 4, atol=1e-4)
    assert (charge.budget.epsilon, charge.budget.delta) == (1.0, 1e-6)


@pytest.mark.parametrize("form", ["two", "four", "bins"])
def test_nobody_moves_the_counts_further_whatever_their_field_holds(tmp_path: Path, form: str) -> None:
    """The same words on neighbouring rows: the noise cancels exactly."""
    options = {"two": asked(TWO), "four": asked(FOUR), "bins": (*BINS, "--trust", "trust")}[form]
    odd = ["yes", "no", "a", "d", "", "nan", "-inf", "1e308", "9.99", "10", "80", "79", "'; --", "YES", "é"]
    seen = []
    for mine in odd:
        table = write(tmp_path / "rows.csv", rows([mine, *HELD[FOUR][1:]]))
        with Recording(2).as_the_systems():
            found = command("release", "histogram" if form == "bins" else "shares", table, *options, "--epsilon", 1)
        told = shares(found, "histogram" if form == "bins" else "shares")
        seen.append(np.array(told["trusted"]) * 8)
    moves = [np.abs(a - b) for a, b in itertools.combinations(seen, 2)]
    largest = max(float(m[0] if form == "two" else m.sum()) for m in moves)
    assert largest == pytest.approx(1 if form == "two" else 2, abs=1e-9)


def k_rr(epsilon: float, k: int) -> KRandomisedResponse:
    """The largest keep with keep (k-1) <= e^epsilon (2^64 - keep), to the last few of 2^64."""
    e = math.exp(epsilon)
    return KRandomisedResponse(PureDP(epsilon), k, int(WORD * (e / (e + k - 1)) * (1 - 1e-15)))


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_reports_are_drawn_for_their_epsilon_and_join_the_release_once(tmp_path: Path, epsilon: float) -> None:
    held = HELD[FOUR] * 4
    raw = write(tmp_path / "raw.csv", rows(held, "local"))
    with Recording(5).as_the_systems() as tape:
        made = command("randomise", "shares", raw, *asked(FOUR), "--epsilon", epsilon, "--out", tmp_path / "s.csv")
    sent = read(tmp_path / "s.csv")
    assert all(row["answer"] == "" for row in sent), "a randomised row keeps no option"
    codes = np.array([FOUR.index(a) if a in FOUR else 3 for a in held])
    wanted = [FOUR.index(row["report"]) for row in sent]

    def reads(size: float) -> bool:
        def draw(n: int, rng: Any) -> Any:
            return oracle_reports(k_rr(size, 4), codes, rng=rng)

        found = [tape.read_from(start, draw, len(codes)) for start in tape.starts]
        return any(one is not None and one[0].tolist() == wanted for one in found)

    assert reads(epsilon)
    assert not reads(epsilon * 1.5)
    assert {row["report_mechanism"] for row in sent} == {made["mechanism"]}
    assert f"epsilon={epsilon!r}" in made["mechanism"]
    table = write(tmp_path / "rows.csv", [*rows(HELD[FOUR]), *sent])
    Ledger.create(tmp_path / "l", {"trusted": PureDP(1.0), "local": PureDP(epsilon)})  # room for one set of reports
    promise = ("--epsilon", epsilon, "--trusted-epsilon", 0.1, "--ledger", tmp_path / "l")
    for _ in range(2):
        with Recording(6).as_the_systems():
            found = command("release", "shares", table, *asked(FOUR), *promise)
    entries = Ledger.open(tmp_path / "l").history()
    assert [(e.people, e.budget.epsilon) for e in entries] == [("trusted", 0.1), ("local", epsilon), ("trusted", 0.1)]
    assert stated(found, "local")["epsilon"] == epsilon
    seen = np.bincount(wanted, minlength=4) / len(sent)
    truth = math.exp(epsilon) / (math.exp(epsilon) + 3)
    lies = (1 - truth) / 3
    np.testing.assert_allclose(shares(found)["local"], (seen - lies) / (truth - lies), rtol=1e-9)


def test_sets_of_many_options_are_reports_of_their_epsilon_too(tmp_path: Path) -> None:
    options = tuple(f"o{i}" for i in range(20))
    held = [options[i % 20] for i in range(64)]
    raw = write(tmp_path / "raw.csv", rows(held, "local"))
    with Recording(7).as_the_systems() as tape:
        command("randomise", "shares", raw, *asked(options), "--epsilon", 1, "--out", tmp_path / "s.csv")
    sent = read(tmp_path / "s.csv")
    sets = [
        [i for i in range(20) if int(r["report"], 16) >> (23 - i) & 1] for r in sent
    ]  # three bytes, first bit first
    size = round(20 / (math.e + 1))
    assert {len(s) for s in sets} == {size}
    # p = e d/(e d + k - d): Ye and Barg 2018
    keep = math.e * size / (math.e * size + 20 - size)
    oracle = SubsetSelection(PureDP(1.0), 20, size, int(WORD * keep * (1 - 1e-15)))
    codes = np.array([options.index(a) for a in held])

    def draw(n: int, rng: Any) -> Any:
        return oracle_reports(oracle, codes, rng=rng)

    found = [tape.read_from(start, draw, 64) for start in tape.starts]
    assert any(one is not None and one[0].tolist() == sets for one in found)
    with Recording(8).as_the_systems():
        release = command("release", "shares", tmp_path / "s.csv", *asked(options), "--epsilon", 1)
    seen = np.array([sum(i in s for s in sets) for i in range(20)]) / 64
    truth, other = oracle.truth, (size - oracle.truth) / 19
    np.testing.assert_allclose(shares(release)["local"], (seen - other) / (truth - other), rtol=1e-9)
