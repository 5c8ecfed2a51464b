"""The plan of a vector mean against simulated collections by the real devices, curator and blend, and theory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from docs.examples import own_ratio
from tests.plans import plan_mean, plan_vector

from hybridp import Study
from hybridp.blend.mean import Rule, blend_columns
from hybridp.curator.sums import Raw, release_sums
from hybridp.device.reports import reach_reports
from hybridp.noise import seeded
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import Invite, VectorBounds, VectorReportSums, sum_noise
from hybridp.public.randomisers import Bounds, VectorReports, column_sums, vector_reports
from hybridp.release.plan import Plan

N, TRUSTED, D, TRIALS = 900, 150, 5, 180
BOX = VectorBounds.of([0, -1, 10, 0, 0], [1, 1, 30, 4, 2])
BALL = VectorBounds(BOX.bounds, norm="l2", radius=1.0)
RULES: tuple[Any, ...] = ("tcm-only", "lm-only", "everyone", "pwh", "kvh", "adaptive")


def squared_errors(bounds: VectorBounds, promise: PureDP, reports: VectorReports, size: float) -> dict[str, Any]:
    """Signed corners of size `size` (half-ranges): one row a trial and column, one list a rule; mean squares over."""
    rng, draw = seeded(11), np.random.default_rng(3)
    noise, invite = sum_noise(promise, bounds=bounds), Invite(bounds, reports)
    sd = {name: size if name == "kvh" else None for name in RULES}
    found: dict[str, Any] = {name: [] for name in RULES}
    for _ in range(TRIALS):
        unit = size * draw.choice([-1.0, 1.0], (N, D))
        steps = bounds.steps([b.centre for b in bounds.bounds] + unit * [b.half for b in bounds.bounds])
        truth = unit.mean(axis=0)
        sent = reach_reports(steps[TRUSTED:], invite, rng=rng)
        local = VectorReportSums.of(len(sent), column_sums(sent), invite.mechanism)
        totals = Raw(TRUSTED, tuple(int(x) for x in steps[:TRUSTED].sum(axis=0)), local, False, False, None)
        trusted = release_sums(totals, noise, bounds, rng=rng)
        for name in RULES:
            blended = blend_columns(trusted, [local], Rule(name, sd=sd[name]), bounds.reach)
            found[name].append((bounds.reach * np.array([one.estimate for one in blended]) - truth) ** 2)
    return {name: np.array(errors) for name, errors in found.items()}


def mse(plan: Plan, name: str) -> Any:
    return plan.estimators[name]["mse"]


def distance(measured: Any, plan: Plan, bounds: VectorBounds, name: str) -> float:
    """How far the mean of relative squared errors is from 1, in standard errors over trials."""
    predicted = [error / b.half**2 for error, b in zip(mse(plan, name), bounds.bounds, strict=True)]
    relative = (measured / predicted).mean(axis=1)
    return float((relative.mean() - 1) / (relative.std(ddof=1) / math.sqrt(len(relative))))


@pytest.mark.parametrize(
    ("bounds", "local", "size"),
    [(BOX, "per-coordinate", 1.0), (BOX, "sampling", 1.0), (BALL, "unit-vector", D**-0.5)],
    ids=["every column", "some columns", "a direction"],
)
def test_predicted_errors_are_those_of_simulated_collections(bounds: VectorBounds, local: Any, size: float) -> None:
    setting: dict[str, Any] = {"n": N, "opt_in": TRUSTED / N, "bounds": bounds, "guarantee": PureDP(4.0)}
    plan = plan_vector(**setting, local=local)
    assert plan.facts["sd"]["used"] == pytest.approx([size * b.half for b in bounds.bounds])
    measured = squared_errors(bounds, PureDP(4.0), vector_reports(local, PureDP(4.0), D, bounds.ratio), size)
    for name in RULES:
        # The learned variance's correlation with the local mean is neglected: a few percent.
        assert abs(distance(measured[name], plan, bounds, name)) < (6 if name == "adaptive" else 4.5), name
    # A plan for another promise, or for fewer trusted people, is told apart.
    for other in ({"guarantee": PureDP(3.0)}, {"opt_in": 0.5 * TRUSTED / N}):
        wrong = plan_vector(**{**setting, **other}, local=local)
        assert max(abs(distance(measured[name], wrong, bounds, name)) for name in ("tcm-only", "lm-only")) > 6


@pytest.mark.parametrize("promise", [PureDP(1.0), ApproxDP(0.5, 1e-6)])
def test_one_column_is_the_mean(promise: Any) -> None:
    """The sum of one column has the same noise, but for the lattice; and the same report, chosen by its variance."""
    one = plan_vector(n=9000, opt_in=0.1, bounds=VectorBounds.of([0], [8]), guarantee=promise, sd=(1.5,))
    reports = vector_reports("best", promise, 1, 1.0)
    same: dict[str, Any] = {"noise": one.facts["mechanisms"]["trusted"], "local": reports.randomiser.name}  # type: ignore[union-attr]
    mean = plan_mean(n=9000, opt_in=0.1, bounds=Bounds(0, 8), guarantee=promise, sd=1.5, **same)
    rel = 1e-5 if promise.delta == 0 else 0.02  # with a delta the mean's noise is a little smaller
    for name in mean.estimators:
        assert mse(one, name)[0] == pytest.approx(mse(mean, name), rel=rel)


def test_a_question_that_is_a_special_case_is_planned_as_what_it_is_a_case_of() -> None:
    """Found by its ancestors, as its devices and its curator are."""
    question = {"name": "pay", "columns": ["wage", "hours"], "lower": [0, 1], "upper": [100, 80]}
    ratio, vector = (Study(questions=[{**question, "kind": kind}], promise=1.0, trust="trust")
                     for kind in (own_ratio.Ratio.kind, "vector"))  # fmt: skip
    people = {"trusted": 500, "local": 9_500}
    assert ratio.plan(**people).errors == vector.plan(**people).errors
