"""True errors against a plain computation, baselines, the non-adaptive variant, and the diagonal search."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hybridp.bench.synth import plan_synth
from hybridp.curator.models import Codes, measure_table
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.tasks.table import TableTask
from hybridp_lab.errors import evaluate, present_error
from hybridp_lab.simulate import fit_synth

SCHEMA = Schema.from_domain({"a": 3, "b": 4, "c": 2})
WORK = Workload(SCHEMA, (Threshold((0, 1), 2), Threshold((0, 1, 2), 2)))
PROMISE = ApproxDP(1.0, 1e-7)


def rows(people: int = 2000) -> Codes:
    rng = synthetic_data_generator(seeded(3))
    first = rng.integers(0, 3, people)
    return Codes(SCHEMA, np.stack([first, (first + rng.integers(0, 2, people)) % 4, first // 2]))


def truth(codes: Codes) -> np.ndarray:
    out = []
    for threshold in WORK.thresholds:
        for target in itertools.product(*(range(SCHEMA.sizes[f]) for f in threshold.features)):
            held = sum((codes.values[f] == v).astype(int) for f, v in zip(threshold.features, target, strict=True))
            out.append(float(np.mean(held >= threshold.r)))
    return np.array(out)


def test_planned_errors_are_those_of_what_the_curator_measures() -> None:
    """The plan's standard deviation, largest and total error against tables that the curator has measured."""
    codes, plan = rows(), plan_synth(2000, WORK, PROMISE)
    study = TableTask(WORK, PROMISE)
    assert [one["columns"] for one in plan.predicted["tables"]] == [
        [SCHEMA.names[f] for f in features] for use in study.plan for features in use.tables
    ]
    rng = seeded(5)
    for told, (features, sigma) in zip(
        plan.predicted["tables"], [(f, use.sigma) for use in study.plan for f in use.tables], strict=True
    ):
        exact = codes.table(features)
        drawn = [measure_table(codes, features, sigma, rng=rng).counts - exact for _ in range(1500)]
        sd, largest, total = told["sd"], told["expected_largest_error"], told["expected_total_error"]
        gaps = np.abs(np.array(drawn)).reshape(1500, -1) / 2000
        for measured, expected in (
            (gaps**2, sd**2), (gaps.max(axis=1), largest), (gaps.sum(axis=1), total),
        ):  # fmt: skip
            z = (measured.mean() - expected) / (measured.std() / math.sqrt(measured.size))
            assert abs(z) < 5
            # A prediction of a fifth less is noticed.
            assert abs(measured.mean() - 0.8 * expected) / (measured.std() / math.sqrt(measured.size)) > 5


def test_a_fit_states_the_noise_that_was_planned() -> None:
    model = fit_synth(rows(), TableTask(WORK, PROMISE, rows=50), rng=seeded(1))
    stated = {tuple(one["features"]): one["noise_sd"] for one in model.utility()["marginals"]}
    planned = {tuple(one["columns"]): one["sd"] for one in plan_synth(2000, WORK, PROMISE).predicted["tables"]}
    assert stated.keys() <= planned.keys()
    for features, noise in stated.items():
        assert noise == pytest.approx(planned[features], rel=1e-9)


def test_errors_are_the_norms_of_the_differences() -> None:
    codes, rng = rows(), np.random.default_rng(1)
    answers = [(t, rng.random(SCHEMA.cells(t.features))) for t in WORK.thresholds]
    gaps = np.abs(np.concatenate([a for _, a in answers]) - truth(codes))
    found = present_error(codes, WORK, answers)
    assert (found.l_inf, found.l1, found.l2) == pytest.approx((gaps.max(), gaps.sum(), np.linalg.norm(gaps)))
    assert found.to_dict()["mean_absolute"] == pytest.approx(gaps.mean())


def test_evaluate_agrees_with_the_rows_and_says_that_it_is_not_private() -> None:
    codes = rows()
    model = fit_synth(codes, TableTask(WORK, PROMISE, rows=50), rng=seeded(1))
    found = evaluate(model, codes)
    answers = np.concatenate([a for _, a in model.answers()])
    assert found["settled"]["l_inf"] == pytest.approx(np.abs(answers - truth(codes)).max())
    assert set(found["classes"]) == {"2-of-2", "2-of-3"}
    assert found["private"] is found["settled"]["private"] is False
    assert found["all_zero"]["l_inf"] == pytest.approx(truth(codes).max())
    from dataclasses import replace

    exact = evaluate(replace(model, records=codes.values.T, tables=()), codes)
    assert exact["synthetic"]["l_inf"] < 1e-5
