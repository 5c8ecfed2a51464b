"""Appendix 4.A: the printed tables against their own p-values, and the models of made-up rows."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hybridp_lab.papers.rap2023 import regression
from hybridp_lab.papers.rap2023.appendix import PRINTED, appendix, filtering, filtering_rows


def _rows(effect, trials=8, seed=1):
    rng = np.random.default_rng(seed)
    rows = []
    for epsilon, slope in ((0.01, 0.05), (0.1, 0.01), (1.0, 0.005)):
        for size in (1, 4, 16, 64):
            for filtered in (False, True):
                for trial in range(trials):
                    queries = int(size * rng.uniform(2_000, 5_000) * (1 if filtered else 20))
                    error = 0.02 + slope * math.log(queries) * (1 + effect * filtered) + rng.normal(0, 0.005)
                    told = {"data": "adult", "epsilon": epsilon, "workload": size, "queries": queries}
                    rows.append({**told, "filtered": filtered, "trial": trial, "T": 1, "K": 4, "error": error})
    return rows


@pytest.mark.parametrize("model", PRINTED, ids=lambda p: f"{p.data} by {p.size}")
def test_the_printed_tables_are_typed_in_right(model):
    """F's own p-value and the fit's numbers follow from each other: a slip of the pen would show."""
    n, k = model.observations, len(model.coefficients)
    assert (k, len(model.errors)) == (12, 12)
    wanted = {("adult", "workload"): 7.40e-76, ("loans", "workload"): 1.05e-75}
    wanted |= {("adult", "queries"): 3.83e-49, ("loans", "queries"): 7.68e-57}
    assert stats.f.logsf(model.f, k - 1, n - k) == pytest.approx(math.log(wanted[model.data, model.size]), abs=0.1)


def test_what_the_print_says_of_itself():
    checks = {check.place: check for check in appendix(_rows(0.2)).checks}
    assert checks["Appendix 4.A"].status == "reproduced"
    assert checks["footnote 32"].status == "refuted"
    assert checks["footnote 32"].value == pytest.approx(0.052)
    sign = checks["Appendix 4.A against 4.3.4.3"]
    assert sign.status == "refuted"
    middle = math.exp(np.mean([math.log(row["queries"]) for row in _rows(0.2)]))
    assert sign.value == pytest.approx(0.1198 - 0.1237 + (-0.0127 + 0.0123) * math.log(middle))
    assert all(bool(check.reason) == (check.status == "refuted") for check in checks.values())


def test_an_effect_of_filtering_is_seen_with_its_interval():
    verdict = filtering(_rows(0.3), "queries")
    assert [check.status for check in verdict.checks] == ["reproduced"] * 3 + ["not judgeable"], str(verdict)
    effect = verdict.checks[2]
    assert effect.low < effect.value < effect.high
    assert [check.status for check in filtering(_rows(0.0), "queries").checks][1:3] == ["refuted", "undecided"]
    assert filtering(_rows(-0.3), "queries").checks[2].status == "refuted"
    by_size = filtering(_rows(0.3), "workload").checks[1]  # what Holm's method makes of the print is the appendix's
    assert (by_size.printed, by_size.erratum) == ("p = 0.026", "")


def test_the_error_of_an_effect_is_that_of_a_regression_moved_to_it():
    """With x3 measured from the size asked about and the level's dummy turned round, the effect is one coefficient."""
    rows = _rows(0.2)
    result = regression.filtering_test(rows, "queries")
    size = 30_000.0
    y = np.array([row["error"] for row in rows])
    x = np.log([row["queries"] for row in rows]) - math.log(size)
    other = [np.array([row["epsilon"] == e for row in rows], float) for e in (0.01, 1.0)]
    flag = np.array([row["filtered"] for row in rows], float)
    base = np.column_stack([np.ones(len(y)), *other, x, *(o * x for o in other)])
    design = np.column_stack([base, base * flag[:, None]])
    inverse = np.linalg.inv(design.T @ design)
    b = inverse @ design.T @ y
    spread = float(((y - design @ b) ** 2).sum()) / (len(y) - 12)
    assert regression.filtering_effect(result, 1, size) == pytest.approx(b[6])
    assert regression.effect_error(result, 1, size) == pytest.approx(math.sqrt(spread * inverse[6, 6]))


def test_one_observation_a_setting_is_the_least_error():
    rows = _rows(0.0, trials=1)
    doubled = [*rows, *({**row, "K": 16, "error": row["error"] / 2} for row in rows)]
    kept = filtering_rows(doubled)
    assert len(kept) == len(rows)
    assert all(row["K"] == 16 for row in kept)
