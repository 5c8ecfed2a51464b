"""The numbers that checks carry: intervals against scipy, and a ratio of means that small denominators do not rule."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hybridp_lab.figure.ruling import student
from hybridp_lab.papers.rap2023.checks import best, by_trial, ratio, tried


def test_the_interval_is_scipys():
    values = np.random.default_rng(1).normal(3, 2, 9)
    wanted = stats.t.interval(0.95, 8, loc=values.mean(), scale=stats.sem(values))
    assert student(values.tolist()) == pytest.approx(wanted)
    assert student([1.0]) == (None, None)


def test_the_ratio_of_means_and_its_coverage():
    above, below = {0: 1.0, 1: 1.0, 2: 4.0}, {0: 1.0, 1: 0.001, 2: 5.0}
    assert np.mean(ratio(above, below)) == pytest.approx(6.0 / 6.001)
    assert np.mean([above[t] / below[t] for t in above]) > 300  # what a mean of ratios would have said
    assert ratio({0: 1.0}, {1: 1.0}) == []
    rng = np.random.default_rng(2)
    inside = 0
    for _ in range(1000):
        a, b = rng.normal(2, 0.3, 20), rng.normal(1, 0.1, 20)
        low, high = student(ratio(dict(enumerate(a)), dict(enumerate(b))))
        inside += low < 2.0 < high
    assert stats.binomtest(inside, 1000, 0.95).pvalue > 1e-6
    assert stats.binomtest(inside, 1000, 0.80).pvalue < 1e-6


def test_settings_that_were_not_possible_in_every_trial_are_left_out():
    rows = [
        {"T": 1, "K": 4, "trial": 0, "error": 0.2},
        {"T": 1, "K": 4, "trial": 1, "error": 0.4},
        {"T": 4, "K": 4, "trial": 1, "error": 0.0},
        {"T": 0, "K": 0, "trial": 0, "error": 0.1, "mechanism": "GM"},
    ]
    assert by_trial(rows, []) == {(): {(1, 4): {0: 0.2, 1: 0.4}}}
    assert best(tried(rows, [])[()]) == ((1, 4), pytest.approx(0.3))
