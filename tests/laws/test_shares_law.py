"""Shares, from published numbers: a draw of the stated law on every count, one person's reach, reports and charges.

Scales are computed here: a replaced person moves one of two counts by 1, and of more than two counts one up and one
down. Group sizes are powers of two, so that a share holds its noisy count to the last step.
"""

from __future__ import annotations

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

from .means import WORD, Row, command, read, write
from .recording import Recording

TWO, FOUR = ("yes", "no"), ("a", "b", "c", "d")
HELD = {TWO: ["yes", "yes", "no", "yes", "", "no", "what", "yes"], FOUR: ["a", "a", "a", "b", "d", "?", "c", "a"]}


def rows(answers: list[Any], trust: str = "trusted") -> list[Row]:
    return [{"answer": str(a), "trust": trust} for a in answers]


def asked(options: tuple[str, ...]) -> tuple[str, ...]:
    return ("--column", "answer", "--options", ",".join(options), "--missing", options[-1], "--trust", "trust")


def shares(found: dict[str, Any], name: str = "shares") -> dict[str, Any]:
    statistic: dict[str, Any] = found["questions"]["answer"][name]
    return statistic


def stated(document: dict[str, Any], group: str) -> dict[str, Any]:
    (found,) = [
        p for p in document["receipt"]["promises"] if (p["group"], p["against"]) == (group, "whoever sees the release")
    ]
    return found


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
