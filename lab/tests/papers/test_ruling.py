"""The one rule: wrong verdicts in both directions, several settings together, and trials that would decide."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from scipy.stats import binomtest

from hybridp_lab.figure.ruling import everywhere, exact, measured, ruled, student

TOLD: Any = {"place": "sec. 1", "printed": "above 0"}


def statuses(mean: float, trials: int, repeats: int = 2000, seed: int = 7) -> Counter[str]:
    draw = np.random.default_rng(seed)
    return Counter(
        measured("x", draw.normal(mean, 1.0, trials).tolist(), "above", 0.0, **TOLD).status for _ in range(repeats)
    )


def test_at_the_limit_either_verdict_is_wrong_once_in_forty() -> None:
    result = statuses(0.0, 10)
    for status in ("reproduced", "refuted"):
        assert binomtest(result[status], 2000, 0.025).pvalue > 1e-6
        assert binomtest(result[status], 2000, 0.05).pvalue < 1e-3  # the control
    assert statuses(3.0, 10)["reproduced"] > 1990
    assert statuses(-3.0, 10)["refuted"] > 1990


def test_settings_are_judged_together() -> None:
    """With all of eight means at the limit, one refutes by chance in one of forty cases, not in one of five."""
    draw = np.random.default_rng(8)
    result = Counter(
        everywhere("x", {str(i): draw.normal(0, 1, 10).tolist() for i in range(8)}, "above", 0.0, **TOLD).status
        for _ in range(1000)
    )
    assert binomtest(result["refuted"], 1000, 0.025).pvalue > 1e-6
    assert result["reproduced"] == 0
    samples = draw.normal(0, 1, (300, 8, 10)).tolist()
    alone = sum(any(ruled(*student(one), "above", 0.0) is False for one in eight) for eight in samples)
    assert alone > 2 * 0.025 * 300  # the control: eight intervals of their own err far more often


def test_one_setting_on_the_other_side_refutes_and_one_open_leaves_it_open() -> None:
    good, bad, wide = [1.0, 1.1, 1.2], [-1.0, -1.1, -1.2], [-5.0, 5.0, 1.0]
    assert everywhere("x", {"a": good, "b": bad, "c": wide}, "above", 0.0, **TOLD).status == "refuted"
    left = everywhere("x", {"a": good, "c": wide}, "above", 0.0, **TOLD)
    assert (left.status, "1 of 2 settings hold" in left.found, "c" in left.found) == ("undecided", True, True)
    assert everywhere("x", {"a": good, "b": []}, "above", 0.0, **TOLD).status == "reproduced"
    assert everywhere("x", {}, "above", 0.0, **TOLD).status == "undecided"
    assert measured("x", [1.0], "above", 0.0, **TOLD).status == "undecided"  # no interval from one trial


def test_as_many_more_trials_as_are_told_decide_with_the_told_chance() -> None:
    """Of experiments of that size whose truth is what was measured: about .8 decide, and of half the size far fewer."""
    spread = np.random.default_rng(9).normal(0.0, 1.0, 40)
    sample = 0.2 + (spread - spread.mean()) / spread.std(ddof=1)
    check = measured("x", sample.tolist(), "above", 0.0, **TOLD)
    assert check.status == "undecided"
    assert check.needs is not None
    whole = len(sample) + check.needs
    decided = statuses(0.2, whole)["reproduced"]
    assert binomtest(decided, 2000, 0.8).pvalue > 1e-6
    assert binomtest(statuses(0.2, whole // 2)["reproduced"], 2000, 0.8).pvalue < 1e-6  # the control


def test_an_erratum_mends_and_does_not_hide() -> None:
    assert exact("x", True, "", erratum="errata 1", **TOLD).status == "reproduced after the erratum"
    assert exact("x", False, "", erratum="errata 1", **TOLD).status == "refuted"
    assert measured("x", [1.0, 1.1], "above", 0.0, erratum="errata 1", **TOLD).status == "reproduced after the erratum"


def test_a_share_of_truth_values_has_clopper_and_pearsons_interval() -> None:
    wanted = binomtest(3, 8).proportion_ci(0.95)
    assert student([True] * 3 + [False] * 5) == pytest.approx((wanted.low, wanted.high))
    assert measured("x", [True] * 3, "above", 0.5, **TOLD).status == "undecided"
    assert measured("x", [True] * 8, "above", 0.5, **TOLD).status == "reproduced"
