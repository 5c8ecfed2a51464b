"""Nested regressions against normal equations and scipy, effects that are there or not, and Holm by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.public.messages import holm
from hybridp_lab.papers.rap2023.regression import filtering_design, filtering_effect, filtering_test, nested_test

PRINTED = {  # Appendix 4.A: observations, log-likelihood and AIC of the full models with their 12 coefficients
    "ADULT, workload": (126, 295.45, -566.9),
    "LOANS, workload": (144, 228.17, -432.3),
    "ADULT, queries": (126, 227.07, -430.1),
    "LOANS, queries": (144, 180.50, -337.0),
}


def _direct(y, x):
    """Coefficients, their standard errors and the log-likelihood at its maximum, from the normal equations."""
    inverse = np.linalg.inv(x.T @ x)
    b = inverse @ x.T @ y
    rest = float(((y - x @ b) ** 2).sum())
    n = len(y)
    likelihood = -n / 2 * (math.log(2 * math.pi * rest / n) + 1)
    return b, np.sqrt(np.diag(inverse) * rest / (n - x.shape[1])), likelihood, rest


@pytest.fixture(scope="module")
def sample():
    rng = np.random.default_rng(5)
    base = np.column_stack([np.ones(60), rng.normal(size=60)])
    extra = rng.normal(size=(60, 3))
    return base @ [1.0, -2.0] + extra @ [0.3, 0.0, 0.1] + rng.normal(0, 0.5, 60), base, extra


def test_the_fit_and_the_test_are_those_of_the_normal_equations(sample):
    y, base, extra = sample
    result = nested_test(y, base, extra)
    whole = np.column_stack([base, extra])
    b, errors, likelihood, rest = _direct(y, whole)
    _, _, small, _ = _direct(y, base)
    assert [c.value for c in result.coefficients] == pytest.approx(b.tolist(), rel=1e-9, abs=1e-12)
    assert [c.error for c in result.coefficients] == pytest.approx(errors.tolist(), rel=1e-9)
    assert [c.p for c in result.coefficients] == pytest.approx((2 * stats.t.sf(np.abs(b / errors), 55)).tolist())
    assert result.log_likelihood == pytest.approx(likelihood)
    assert result.restricted_log_likelihood == pytest.approx(small)
    assert result.ratio == pytest.approx(2 * (likelihood - small))
    assert result.degrees == 3
    assert result.p == pytest.approx(stats.chi2.sf(2 * (likelihood - small), 3))
    share = 1 - rest / float(((y - y.mean()) ** 2).sum())
    assert result.r_squared == pytest.approx(share)
    assert result.adjusted_r_squared == pytest.approx(1 - (1 - share) * 59 / 55)
    assert result.f_p == pytest.approx(stats.f.sf(share / 4 / ((1 - share) / 55), 4, 55))
    assert result.omnibus_p == pytest.approx(stats.normaltest(y - whole @ b).pvalue)


def _rows(effect, rng, trials=8):
    """Errors as Figure 4.6 has them: growing with the logarithm of the queries, and with filtering by `effect`."""
    rows = []
    for epsilon, slope in ((0.01, 0.05), (0.1, 0.01), (1.0, 0.005)):
        for size in (1, 4, 16, 64):
            for filtered in (False, True):
                for _ in range(trials):
                    queries = int(size * rng.uniform(2_000, 5_000) * (1 if filtered else 20))
                    error = 0.02 + slope * math.log(queries) * (1 + effect * filtered) + rng.normal(0, 0.01)
                    told = {"epsilon": epsilon, "workload": size, "queries": queries}
                    rows.append({**told, "filtered": filtered, "error": error})
    return rows


def test_an_effect_is_found_with_its_size():
    rows = _rows(0.2, np.random.default_rng(1))
    result = filtering_test(rows, "queries")
    assert result.observations == 192
    assert result.degrees == 6
    assert result.p < 1e-6
    assert filtering_effect(result, 0, 20_000) == pytest.approx(0.2 * 0.05 * math.log(20_000), rel=0.1)
    assert filtering_effect(result, 1, 20_000) == pytest.approx(0.2 * 0.01 * math.log(20_000), abs=0.01)


def test_without_an_effect_the_p_values_are_even():
    p = [filtering_test(_rows(0.0, np.random.default_rng([2, i]), 4), "queries").p for i in range(60)]
    # The chi-square law holds for many observations: with 96 the p-values are a little small.
    assert stats.kstest(p, "uniform").pvalue > 1e-6
    control = [filtering_test(_rows(0.1, np.random.default_rng([2, i]), 4), "queries").p for i in range(60)]
    assert stats.kstest(control, "uniform").pvalue < 1e-6


def test_the_columns_are_the_appendix_written_out():
    rng = np.random.default_rng(3)
    epsilons, sizes, filtered = rng.choice([0.01, 0.1, 1.0], 30), rng.integers(1, 300, 30), rng.random(30) < 0.5
    base, extra = filtering_design(epsilons.tolist(), sizes.tolist(), filtered.tolist())
    b = rng.normal(size=12)
    for i in range(30):
        x1, x2, x3, x4 = epsilons[i] == 0.1, epsilons[i] == 1.0, math.log(sizes[i]), float(filtered[i])
        printed = b[0] + b[1] * x1 + b[2] * x2 + (b[3] + b[4] * x1 + b[5] * x2) * x3
        printed += (b[6] + b[7] * x1 + b[8] * x2 + (b[9] + b[10] * x1 + b[11] * x2) * x3) * x4
        assert np.concatenate([base[i], extra[i]]) @ b == pytest.approx(printed)


@pytest.mark.parametrize("name", PRINTED)
def test_the_printed_full_models_have_twelve_coefficients(name):
    observations, likelihood, aic = PRINTED[name]
    rows = _rows(0.0, np.random.default_rng(4), 6)[:observations]
    assert len(filtering_test(rows, "workload").coefficients) == 12
    assert -2 * likelihood + 2 * 12 == pytest.approx(aic, abs=0.06)


def test_holm_by_hand():
    # Sorted: .01 * 4, .02 * 3, .03 * 2, .2 * 1, each at least the one before.
    assert holm([0.03, 0.01, 0.2, 0.02]) == pytest.approx((0.06, 0.04, 0.2, 0.06))
    assert holm([0.6, 0.7]) == (1.0, 1.0)
    assert holm([]) == ()


def test_holm_on_the_printed_likelihood_ratio_tests():
    # Footnote 32 says that Holm's method changes no conclusion at .05. It does change one: beside LOANS' .623, ADULT's
    # .026 counts twice. (The printed "< .0001" is taken as .0001.)
    adjusted = holm([0.026, 0.623, 0.0001, 0.0001])
    assert adjusted == pytest.approx((0.052, 0.623, 0.0004, 0.0004))
    assert holm([0.026, 0.623])[0] > 0.05


def test_holm_keeps_the_family_wise_error():
    rng = np.random.default_rng(6)
    wrong = sum(min(holm(rng.random(5).tolist())) < 0.05 for _ in range(4000))
    assert stats.binomtest(wrong, 4000, 0.05, alternative="greater").pvalue > 1e-6
    unadjusted = sum(rng.random(5).min() < 0.05 for _ in range(4000))
    assert stats.binomtest(unadjusted, 4000, 0.05, alternative="greater").pvalue < 1e-6


def test_bad_input_is_refused(sample):
    y, base, extra = sample
    with pytest.raises(InvalidInput, match="`extra` must not repeat other columns"):
        nested_test(y, base, base[:, 1:])
    with pytest.raises(InvalidInput, match="must have at least 8 observations"):
        nested_test(y[:7], base[:7], extra[:7])
    with pytest.raises(InvalidInput, match="must have more observations than the"):
        nested_test(y[:8], base[:8], np.random.default_rng(1).normal(size=(8, 7)))
    with pytest.raises(InvalidInput, match="`p_values` must lie between 0 and 1"):
        holm([0.5, 1.5])
