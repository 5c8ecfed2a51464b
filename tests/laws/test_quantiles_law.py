"""Quantiles, from published numbers: a draw of the stated law on every count, one promise in parts, free reports.

The noisy counts are published with the values between which people were counted, so that what was added to the true
counts is read off: a replaced person leaves one stretch and enters another.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hybridp.ledger import Ledger
from hybridp.public.budgets import PureDP

from .means import command, local, read, trusted, whole, write
from .recording import Recording, apart, laplaces, span_of

PAY = ("--value", "pay", "--trust", "trust", "--lower", 0, "--upper", 128)
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
    assert look["values"] == [8.0 * i for i in range(1, 16)]
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


def test_reports_of_a_mean_tell_quantiles_for_nothing(tmp_path: Path) -> None:
    table, values = crowd(tmp_path, 2.0)
    Ledger.create(tmp_path / "l", {"trusted": PureDP(1.0), "local": PureDP(2.0)})
    promise = (*PAY, "--epsilon", 2, "--trusted-epsilon", 0.5, "--ledger", tmp_path / "l")
    with Recording(5).as_the_systems() as tape:
        command("release", "mean", table, *promise)
        before = len(tape.words)
        found = command("release", "quantiles", table, *promise, "--at", ".5", "--estimator", "lm-only")
        assert len(tape.words) == before, "nothing is drawn"
    assert [(e.people, e.budget.epsilon) for e in Ledger.open(tmp_path / "l").history()] == [
        ("trusted", 0.5),
        ("local", 2.0),
    ]
    assert counted(found) == []
    assert [p["group"] for p in found["receipt"]["promises"]] == ["local", "local"]
    assert "no further epsilon" in found["receipt"]["promises"][1]["note"]
    (low,), (high,) = found["questions"]["pay"]["quantiles"]["interval"]
    assert low <= np.median(values) <= high
    assert not found["simulated"]


def test_nobody_moves_the_counts_further_whatever_their_field_holds(tmp_path: Path) -> None:
    """The same words on neighbouring rows: the noise cancels exactly in the first look."""
    seen = []
    for mine in ("0", "128", "64", "", "nan", "-inf", "inf", "x", "8", "8.0000001"):
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


def test_trials_say_so(tmp_path: Path) -> None:
    table = write(tmp_path / "rows.csv", [*trusted(*VALUES), *local(*VALUES)])
    assert command("release", "quantiles", table, *PAY, "--epsilon", 1, "--simulate-local")["simulated"]
    command("randomise", "quantiles", table, *PAY, "--epsilon", 1, "--seed", 1, "--out", tmp_path / "seeded.csv")
    assert command("release", "quantiles", tmp_path / "seeded.csv", *PAY, "--epsilon", 1)["simulated"]


def test_a_steered_second_question_spends_each_group_once_and_is_better(tmp_path: Path) -> None:
    """Trusted people say where the median lies; local people answer within that window; both are blended."""
    rng = np.random.default_rng(3)
    people = rng.normal(60, 15, 21_000).round(4).tolist()
    own = write(tmp_path / "own.csv", trusted(*people[:1000]))
    Ledger.create(tmp_path / "l", {"trusted": PureDP(1.0), "local": PureDP(1.0)})
    with Recording(7).as_the_systems():
        first = command("release", "quantiles", own, *PAY, "--epsilon", 1, "--at", ".5", "--estimator", "tcm-only",
                        "--ledger", tmp_path / "l", "--out", tmp_path / "pilot.json")  # fmt: skip
    ((low, high),) = first["questions"]["pay"]["quantiles"]["windows"]
    assert 50 < low < 60 < high < 70
    window = ("--value", "pay", "--trust", "trust", "--lower", low, "--upper", high, "--epsilon", 1)
    with Recording(8).as_the_systems() as tape:
        command("randomise", "quantiles", write(tmp_path / "raw.csv", local(*people[1000:])), *window,
                "--out", tmp_path / "sent.csv")  # fmt: skip
        drawn = len(tape.words)
        found = command("release", "quantiles", tmp_path / "sent.csv", *window, "--at", ".5", "--estimator", "lm-only",
                        "--pilot", tmp_path / "pilot.json", "--ledger", tmp_path / "l")  # fmt: skip
        assert len(tape.words) == drawn
    charges = Ledger.open(tmp_path / "l").history()
    assert [(e.people, e.budget.epsilon) for e in charges] == [("trusted", 1.0), ("local", 1.0)]
    told = found["questions"]["pay"]["quantiles"]
    assert any("asked before" in line for line in found["receipt"]["assumes"])
    widths = [told["interval"][1][0] - told["interval"][0][0], high - low]
    assert told["interval"][0][0] <= np.median(people) <= told["interval"][1][0]
    assert widths[0] < widths[1] / 2
    assert told["trusted"] is not None
    assert not found["simulated"]
    # A trial in the first phase is one in the second.
    document = (tmp_path / "pilot.json").read_text().replace('"simulated": false', '"simulated": true')
    (tmp_path / "trial.json").write_text(document)
    again = command("release", "quantiles", tmp_path / "sent.csv", *window, "--at", ".5", "--estimator", "lm-only",
                    "--pilot", tmp_path / "trial.json")  # fmt: skip
    assert again["simulated"]
