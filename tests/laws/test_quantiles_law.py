"""Quantiles, from published numbers: a draw of the stated law on every count, one promise in parts, free reports.

The noisy counts are published with the values between which people were counted, so that what was added to the true
counts is read off: a replaced person leaves one stretch and enters another.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.ledger import Ledger
from hybridp.public.mechanisms import PureDP
from hybridp.tasks.transcript import read_invitation

from .means import command, local, read, trusted, whole, write
from .recording import Recording, apart, laplaces, span_of

PAY = ("--column", "pay", "--trust", "trust", "--missing", "middle", "--lower", 0, "--upper", 128)
VALUES = [1.5, 17.0, 30.25, 30.25, 64.0, 100.0, 127.0, 500.0, -3.0, 50.0, 51.0, 52.0, 53.0, 70.0, 80.0, 90.0]


def counted(found: dict[str, Any]) -> list[dict[str, Any]]:
    told: list[dict[str, Any]] = found["questions"]["pay"]["distribution"]["counted"]
    return told


def exact(values: list[float], people: list[float]) -> np.ndarray[Any, Any]:
    """How many clipped values lie at or below each, and above the one before; the last count is the rest."""
    clipped = np.clip(people, 0, 128)
    below = [int((clipped <= value).sum()) for value in values]
    return np.diff([0, *below, len(people)])


def added(told: dict[str, Any], people: list[float]) -> list[int]:
    noisy = [whole(n) for n in told["noisy_counts"]]
    return (np.array(noisy) - exact(told["values"], people)[: len(noisy)]).tolist()


@pytest.mark.parametrize("epsilon", [0.5, 2.0])
def test_without_local_people_half_of_epsilon_looks_and_half_counts(tmp_path: Path, epsilon: float) -> None:
    table = write(tmp_path / "rows.csv", trusted(*VALUES))
    with Recording(1).as_the_systems() as tape:
        found = command("release", "quantiles", table, *PAY, "--epsilon", epsilon, "--at", ".25,.75",
                        "--ledger", tmp_path / "l")  # fmt: skip
    look, around = counted(found)
    assert look["values"][4:-4] == [8.0 * i for i in range(1, 16)]
    assert look["values"][:4] == [128 * 2.0**-i for i in (11, 9, 7, 5)], "people may be close to a bound"
    # Half of epsilon each, for an L1 sensitivity of 2 (1 where one place is left of a look at so few people).
    reaches = [1 if len(one["values"]) == 1 else 2 for one in (look, around)]
    assert reaches[0] == 2
    spans = [
        span_of(tape, added(one, VALUES), laplaces(reach / (epsilon / 2)))
        for one, reach in zip((look, around), reaches, strict=True)
    ]
    apart(*spans)
    assert sum(end - start for start, end in spans) == len(tape.words)
    with pytest.raises(AssertionError, match="stretches"):  # the check can fail
        span_of(tape, added(look, VALUES), laplaces(2 / epsilon))
    (charge,) = Ledger.open(tmp_path / "l").history()
    assert (charge.people, charge.budget.epsilon, charge.noise) == ("trusted", epsilon, None)
    promise = found["receipt"]["promises"][1]
    assert (promise["group"], promise["epsilon"]) == ("trusted", epsilon)
    assert promise["mechanism"].count(f"(epsilon {epsilon / 2:g})") == 2


def crowd(tmp_path: Path, epsilon: float) -> tuple[Path, list[float]]:
    """Enough local reports to tell where to look, by devices, beside a few trusted people."""
    values = np.random.default_rng(1).normal(60, 15, 4000).round(3).tolist()
    raw = write(tmp_path / "raw.csv", local(*values))
    with Recording(2).as_the_systems():
        command("randomise", "quantiles", raw, *PAY, "--epsilon", epsilon, "--out", tmp_path / "sent.csv")
    return write(tmp_path / "rows.csv", [*trusted(*VALUES), *read(tmp_path / "sent.csv")]), values


def test_local_people_tell_where_all_of_epsilon_counts(tmp_path: Path) -> None:
    table, _ = crowd(tmp_path, 2.0)
    with Recording(3).as_the_systems() as tape:
        found = command("release", "quantiles", table, *PAY, "--epsilon", 2, "--at", ".5", "--ledger", tmp_path / "l")
    (around,) = counted(found)
    assert len(around["values"]) == 3
    assert all(35 < value < 85 for value in around["values"])
    assert span_of(tape, added(around, VALUES), laplaces(2 / 2.0)) == (0, len(tape.words))
    with Recording(4).as_the_systems() as tape:
        found = command("release", "quantiles", table, *PAY, "--epsilon", 2, "--trusted-epsilon", 0.01, "--below", 50)
    (around,) = counted(found)
    assert around["values"] == [50.0]
    # One value: one count, which a replaced person moves by 1.
    assert span_of(tape, added(around, VALUES), laplaces(1 / 0.01)) == (0, len(tape.words))
    charges = Ledger.open(tmp_path / "l").history()
    assert [(e.people, e.budget.epsilon) for e in charges] == [("trusted", 2.0), ("local", 2.0)]


def test_nobody_moves_the_counts_further_whatever_their_field_holds(tmp_path: Path) -> None:
    """The same words on neighbouring rows: the noise cancels exactly in the first look."""
    seen = []
    for mine in ("0", "128", "", "-inf", "x", "8.0000001"):
        table = write(tmp_path / "rows.csv", trusted(mine, *VALUES[1:]))
        with Recording(6).as_the_systems():
            found = command("release", "quantiles", table, *PAY, "--epsilon", 1)
        seen.append(np.array(counted(found)[0]["noisy_counts"]))
    assert max(float(np.abs(a - b).sum()) for a in seen for b in seen) == 2


@pytest.mark.parametrize("noise", ["best", "gaussian"])
def test_a_delta_is_promised_where_it_may_be_spent(tmp_path: Path, noise: str) -> None:
    table = write(tmp_path / "rows.csv", trusted(*VALUES))
    options = ("--epsilon", 1, "--delta", 1e-6, "--noise", noise, "--at", ".1,.3,.5,.7,.9", "--ledger", tmp_path / "l")
    command("release", "quantiles", table, *PAY, *options)
    (charge,) = Ledger.open(tmp_path / "l").history()
    assert (charge.budget.epsilon, charge.budget.delta) == (1.0, 1e-6)


# --- steered ----------------------------------------------------------------------------------------------------------


def steer(tmp_path: Path) -> tuple[Path, list[float], dict[str, Any]]:
    """Trusted people are asked, and an invitation is written; the tape of their noise is checked on the way."""
    people = np.random.default_rng(3).normal(60, 15, 21_000).round(4).tolist()
    own = write(tmp_path / "own.csv", [*trusted(*people[:1000]), *local(*people[1000:1100])])
    Ledger.create(tmp_path / "l", {"trusted": PureDP(1.0), "local": PureDP(1.0)})
    with Recording(7).as_the_systems() as tape:
        first = command("release", "quantiles", own, *PAY, "--epsilon", 1, "--at", ".5",
                        "--ledger", tmp_path / "l", "--invite-out", tmp_path / "one.json")  # fmt: skip
    spans = [span_of(tape, added(one, people[:1000]), laplaces(2 / 0.5)) for one in counted(first)]
    assert sum(end - start for start, end in spans) == len(tape.words), "local people, who are asked later, draw none"
    assert not first["simulated"]
    return tmp_path / "one.json", people, first


def answer(raw: Path, invitation: Path, out: Path) -> None:
    command("randomise", invitation, raw, "--trust", "trust", "--missing", "middle", "--epsilon", 9, "--out", out)


def windows(invitation: Path) -> list[list[float]]:
    told: list[list[float]] = json.loads(invitation.read_text())["asks"]["windows"]
    return told


def test_phases_spend_each_promise_once_and_tell_more_and_more(tmp_path: Path) -> None:
    invitation, people, first = steer(tmp_path)
    rows = {"first": people[1000:6000], "rest": people[6000:]}
    ((low, high),) = windows(invitation)
    assert 50 < low < 60 < high < 70
    with Recording(8).as_the_systems() as tape:
        for name, values in rows.items():
            raw = write(tmp_path / f"{name}.csv", local(*values))
            answer(raw, invitation, tmp_path / f"{name}-sent.csv")
            drawn = len(tape.words)
            told = (tmp_path / f"{name}-sent.csv", "--ledger", tmp_path / "l")  # nobody but local people answers
            after = tmp_path / f"after-{name}.json"
            found = command("release", invitation, *told, "--invite-out", after)
            assert len(tape.words) == drawn, "blending draws nothing"
            invitation = after if name == "first" else invitation
    spent = [(e.people, e.budget.epsilon) for e in Ledger.open(tmp_path / "l").history()]
    assert spent == [("trusted", 1.0), ("local", 1.0), ("local", 0.0)], "people of later phases are others"
    assert [promise["epsilon"] for promise in found["receipt"]["promises"]] == [None, 1.0, 1.0, 1.0]
    told = found["questions"]["pay"]["quantiles"]
    assert not any("tell a rank to about" in text for text in found["receipt"]["assumes"]), "they are enough"
    assert told["groups"] == {"trusted": {"people": 1000}, "local": {"people": 20_000}}
    assert counted(found) == counted(first), "trusted people are not asked again"
    ends = [told["interval"][0][0], told["interval"][1][0]]
    assert ends[0] <= np.median(people) <= ends[1]
    before = first["questions"]["pay"]["quantiles"]["interval"]
    assert ends[1] - ends[0] < 0.75 * (before[1][0] - before[0][0])
    assert any("one phase alone" in line for line in found["receipt"]["assumes"])
    assert not found["simulated"]
    # The very same answers again cost nothing; others to the same invitation are charged, and there is nothing left.
    again = ("release", invitation, tmp_path / "rest-sent.csv", "--trust", "trust")
    command(*again, "--ledger", tmp_path / "l")
    assert len(Ledger.open(tmp_path / "l").history()) == 3
    other = tmp_path / "other.csv"
    answer(tmp_path / "rest.csv", invitation, other)
    with pytest.raises(AssertionError, match="has epsilon 0"):
        command("release", invitation, other, "--trust", "trust", "--ledger", tmp_path / "l")
    with pytest.raises(AssertionError, match="must be the one that paid for the invitation"):
        command(*again, "--ledger", tmp_path / "fresh")
    # A ledger that never paid for the first phase would pay for the second.
    fresh = Ledger.create(tmp_path / "fresh", {"local": PureDP(1.0)})
    fresh.charge(read_invitation(invitation).charges("", None, "these"))
    assert [(e.people, e.budget.epsilon) for e in fresh.history()] == [("local", 1.0)]


def test_where_all_people_share_a_number_every_quantile_is_that_number(tmp_path: Path) -> None:
    """No gentle function fits such people: an upper quantile was told to lie anywhere above them."""
    table = write(tmp_path / "rows.csv", trusted(*[64.0] * 600))
    found = command("release", "quantiles", table, *PAY, "--epsilon", 1, "--at", ".1,.5,.9", "--seed", 9)
    told = found["questions"]["pay"]["quantiles"]
    assert told["estimate"] == sorted(told["estimate"])
    assert told["estimate"] == pytest.approx([64.0] * 3, abs=1.0)
    for least, most in zip(*told["interval"], strict=True):
        assert least <= 64.0 <= most < 66.0
