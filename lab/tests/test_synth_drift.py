"""Drift of questions: the definition's ends and middle, future errors with intervals, augmentation."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import stats

from hybridp.curator.models import Codes
from hybridp.errors import InvalidInput
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.queries import Schema, Threshold, Workload
from hybridp.tasks.table import TableTask
from hybridp_lab.errors import present_error
from hybridp_lab.papers.rap2023.drift import advised_size, augment, drifted_weights, future_error, total_variation
from hybridp_lab.papers.rap2023.workloads import feature_weights
from hybridp_lab.simulate import fit_synth

SCHEMA = Schema.from_domain({name: 2 + i % 3 for i, name in enumerate("abcdef")})


def test_no_drift_changes_nothing_and_full_drift_reverses() -> None:
    weights = np.array([0.1, 0.4, 0.05, 0.2, 0.25])
    rng = np.random.default_rng(1)
    assert np.array_equal(drifted_weights(weights, 0.0, rng=rng), weights)
    turned = drifted_weights(weights, 1.0, rng=rng)
    assert np.array_equal(np.argsort(turned), np.argsort(-weights))
    assert sorted(turned) == sorted(weights)
    for gamma in (-0.1, 1.1):
        with pytest.raises(InvalidInput, match="`gamma`"):
            drifted_weights(weights, gamma, rng=rng)


def test_half_drift_is_a_uniform_shuffle() -> None:
    weights, rng = np.array([0.6, 0.3, 0.1]), np.random.default_rng(2)

    def p_value(gamma: float) -> float:
        drawn = [tuple(drifted_weights(weights, gamma, rng=rng)) for _ in range(1200)]
        _, counts = np.unique(drawn, axis=0, return_counts=True)
        return float(stats.chisquare(np.pad(counts, (0, 6 - len(counts)))).pvalue)

    assert p_value(0.5) > 1e-6
    assert p_value(0.4) < 1e-6


def test_distance_grows_with_drift() -> None:
    weights, rng = feature_weights(14, "geometric"), np.random.default_rng(3)
    means = [
        np.mean([total_variation(weights, drifted_weights(weights, g, rng=rng)) for _ in range(60)])
        for g in (0.0, 0.1, 0.3, 0.5, 1.0)
    ]
    assert means[0] == 0
    assert all(a < b for a, b in itertools.pairwise(means))
    assert total_variation(np.array([1.0, 0.0]), np.array([0.0, 1.0])) == 1


def test_future_error_is_the_mean_largest_error_over_drawn_thresholds() -> None:
    rng = synthetic_data_generator(seeded(4))
    first = rng.integers(0, 2, 1500)
    codes = Codes(SCHEMA, np.stack([(first + rng.integers(0, 2, 1500)) % s for s in SCHEMA.sizes]))
    work = Workload(SCHEMA, (Threshold((0, 1), 1), Threshold((2, 3), 1)))
    models = [fit_synth(codes, TableTask(work, ApproxDP(1.0, 1e-6), rows=40), rng=seeded(i)) for i in range(3)]
    # All weight on two features leaves one threshold to draw, whose error can be computed directly.
    weights = np.array([0.5, 0.5, 0, 0, 0, 0])
    result = future_error(models, codes, weights, k=2, r=1, count=3, rng=np.random.default_rng(1))
    only = Workload(SCHEMA, (Threshold((0, 1), 1),))
    each = [present_error(codes, only, m.answers(only)).l_inf for m in models]
    assert result.mean == pytest.approx(np.mean(each))
    low, high = stats.t.interval(0.95, 2, loc=np.mean(each), scale=stats.sem(each))
    assert (result.low, result.high) == pytest.approx((max(0, low), high))
    assert result.to_dict()["private"] is False
    one = future_error(models[:1], codes, np.ones(6) / 6, k=2, r=1, count=20, rng=np.random.default_rng(1))
    assert one.low < one.mean < one.high
    assert one.thresholds == 20


def test_augmentation_adds_thresholds_of_the_same_kinds() -> None:
    work = Workload(SCHEMA, (Threshold((0, 1, 2), 1), Threshold((3, 4), 2)))
    more = augment(work, rng=np.random.default_rng(1))
    assert more.thresholds[:2] == work.thresholds
    assert len(more.thresholds) == len(set(more.thresholds)) == advised_size(6) == 8
    assert {(t.k, t.r) for t in more.thresholds} == {(3, 1), (2, 2)}
    assert augment(more, rng=np.random.default_rng(1)) == more
