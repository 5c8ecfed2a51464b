"""What numbers of people decide: one charge, made before anybody is counted, covers either way, as the plan says it.

A mean and a vector whose groups are taken for alike may pay for the trusted people's spread, a regression for the scale
of its residuals.
"""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from tests.plans import plan_mean, plan_vector

from hybridp.blend.mean import Rule
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import VectorBounds
from hybridp.public.randomisers import Bounds
from hybridp.tasks.mean import MeanTask, VectorTask
from hybridp.tasks.regression import RegressionTask

BOUNDS = Bounds(0, 100)
BOX = VectorBounds.of([0, 0, -5], [100, 200, 5])
ALIKE = Rule("alike")
STUDIES: dict[str, Any] = {
    "mean": lambda promise: MeanTask(BOUNDS, promise, ALIKE),
    "mean with a count of the clipped": lambda promise: MeanTask(BOUNDS, promise, ALIKE, clipped_share=0.2),
    "vector": lambda promise: VectorTask(BOX, promise, ALIKE),
    "regression": lambda promise: RegressionTask(BOX, promise),
}


@pytest.mark.parametrize("promise", [PureDP(1.0), PureDP(1 / 3), ApproxDP(0.7, 1e-7), ApproxDP(5.0, 1e-9)])
@pytest.mark.parametrize("study", STUDIES.values(), ids=list(STUDIES))
def test_before_it_is_decided_the_charge_covers_both(study: Any, promise: PureDP | ApproxDP) -> None:
    undecided, own = study(promise).charges("", None)
    assert (undecided.people, own.people, own.budget.epsilon) == ("trusted", "local", promise.epsilon)
    assert undecided.noise is None  # by the promise alone: two draws are not one of their sum
    draws = set()
    for sizes in ((1000, 9000), (2, 10**6), (10**6, 10**6), (302, 10**8)):
        spent = [c.budget for c in study(promise).decided(*sizes).charges("", None) if c.people == "trusted"]
        exact = sum(Fraction(repr(b.epsilon)) for b in spent)  # as a ledger counts
        assert exact <= Fraction(repr(undecided.budget.epsilon)) == Fraction(repr(promise.epsilon))
        assert math.fsum(b.delta for b in spent) <= undecided.budget.delta
        assert float(exact) == pytest.approx(promise.epsilon, rel=1e-9)  # every draw is charged
        draws.add(len(spent))
    assert len(draws) == 2 or promise.epsilon < 2  # some sizes pay for it, and others do not


@pytest.mark.parametrize("several", [False, True], ids=["mean", "vector"])
@pytest.mark.parametrize(("n", "opt_in"), [(20_000, 0.05), (20_000, 0.5), (10**6, 0.0002), (300, 0.1), (10**5, 1e-4)])
@pytest.mark.parametrize("stated", [False, True])
def test_the_plan_and_the_study_decide_alike_by_the_same_public_numbers(
    several: bool, n: int, opt_in: float, stated: bool
) -> None:
    public: dict[str, Any] = {"n": n, "opt_in": opt_in, "guarantee": PureDP(1.0)}
    sds, halves = (10.0, 20.0, 2.0), (50.0, 100.0, 5.0)
    units = tuple(sd / half for sd, half in zip(sds, halves, strict=True))
    if several:
        plan = plan_vector(bounds=BOX, sd=sds if stated else None, **public)
        study: Any = VectorTask(BOX, PureDP(1.0), Rule("alike", sd=units if stated else None))
    else:
        plan = plan_mean(bounds=BOUNDS, sd=sds[0] if stated else None, **public)
        study = MeanTask(BOUNDS, PureDP(1.0), Rule("alike", sd=units[0] if stated else None))
    decided, told = study.decided(round(n * opt_in), n - round(n * opt_in)), plan.predicted["alike"]
    assert decided.estimator == told["estimator"]
    assert (decided.default.cost if math.isfinite(decided.default.cost) else None) == told["cost"]
    assert (decided.squares_noise is not None) == (told["estimator"] == "anchored" and not stated)


def test_what_is_stated_is_not_decided_anew_and_one_group_alone_has_no_anchor() -> None:
    mean, box = STUDIES["mean"](PureDP(1.0)), STUDIES["vector"](PureDP(1.0))
    for rule, name in ((Rule("adaptive"), "adaptive"), (Rule("alike", gap=0.1), "adaptive"), (Rule("pwh"), "pwh")):
        assert replace(mean, rule=rule).decided(1000, 19_000).rule.name == name
        assert replace(box, rule=rule).decided(1000, 19_000).estimator == name
    for sizes in ((0, 100), (100, 0)):
        assert (mean.decided(*sizes).rule.name, mean.decided(*sizes).default) == ("adaptive", None)
        assert box.decided(*sizes).estimator == "adaptive"
