"""`hybridp plan shuffle`: what a mixer allows, for people and as JSON."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

Runner = Callable[..., Any]

PLAN = "plan shuffle --n 100_000 --epsilon 1 --delta 1e-6"


def test_the_plan_says_epsilon_delta_and_method(run: Runner) -> None:
    found = run(f"{PLAN} --json").document
    assert found["local_epsilon"] == pytest.approx(7.07, abs=0.005)
    assert found["delta"] == 1e-6
    assert "clones" in found["method"]
    errors = found["standard_error"]
    assert errors["trusted"] < errors["shuffled"] < errors["local"]
    assert any("collude" in line and f"{found['local_epsilon']:.6g}" in line for line in found["assumes"])
    shown = run(PLAN)
    assert shown.code == 0
    assert "7.07" in shown.out


def test_responses_allow_more_and_a_cap_less(run: Runner) -> None:
    anything = run(f"{PLAN} --json").document["local_epsilon"]
    assert run(f"{PLAN} --randomiser k-rr:50 --json").document["local_epsilon"] > anything
    assert run(f"{PLAN} --cap 4 --json").document["local_epsilon"] == 4


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ("--n 0 --epsilon 1 --delta 1e-6", "n"),
        ("--n 100 --epsilon -1 --delta 1e-6", "epsilon"),
        ("--n 100 --epsilon inf --delta 1e-6", "epsilon"),
        ("--n 100 --epsilon 1 --delta 0", "delta"),
        ("--n 100 --epsilon 1 --delta 1e-6 --randomiser olh", "randomiser"),
        ("--n 100 --epsilon 1 --delta 1e-6 --randomiser k-rr:1", "randomiser"),
        ("--n 100 --epsilon 1 --delta 1e-6 --cap 99", "cap"),
    ],
)
def test_bad_plans_are_one_sentence(run: Runner, options: str, field: str) -> None:
    ran = run(f"plan shuffle {options}")
    assert ran.code == 2
    assert f"`{field}`" in ran.err
    assert "Traceback" not in ran.err
