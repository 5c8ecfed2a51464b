"""Budgets, scales and sensitivities of synthetic data: against brute force, dp_accounting and the errata."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.errors import InvalidInput
from hybridp.public.mechanisms import ApproxDP, zcdp_epsilon
from hybridp.public.queries import Schema, Threshold, Workload, at_least
from hybridp.public.synth import (
    adaptive_rounds,
    cumulative_epsilons,
    gaussian_level,
    gumbel_scale,
    table_plan,
    table_rounds,
    table_sigma,
    total_rho,
)

SCHEMA = Schema.from_domain({"a": 2, "b": 3, "c": 4, "d": 5})
WORK = Workload(SCHEMA, (Threshold((0, 1, 2), 3), Threshold((1, 2, 3), 1), Threshold((2, 0, 1), 3)))


def _indicator(sizes: tuple[int, ...], record: tuple[int, ...], r: int) -> np.ndarray:
    """All consistent r-of-k queries on one record, by their definition."""
    out = np.zeros(sizes)
    for target in itertools.product(*map(range, sizes)):
        out[target] = sum(x == y for x, y in zip(record, target, strict=True)) >= r
    return out


@pytest.mark.parametrize("sizes", [(2, 2), (2, 3), (3, 4), (2, 2, 2), (2, 3, 4), (2, 2, 3, 2)])
def test_answers_are_the_tables_under_a_linear_map(sizes: tuple[int, ...]) -> None:
    """One record's table gives the record's own answers; a whole marginal moves by sqrt 2 at most."""
    records = list(itertools.product(*map(range, sizes)))
    for r in range(1, len(sizes) + 1):
        one = np.zeros(sizes)
        one[records[-1]] = 1
        assert np.array_equal(at_least(one, r), _indicator(sizes, records[-1], r))
    whole = [_indicator(sizes, record, len(sizes)) for record in records]
    assert max(float(np.linalg.norm(a - b)) for a in whole for b in whole) == pytest.approx(math.sqrt(2))


@given(st.floats(1e-9, 10.0), st.integers(1, 300))
def test_calibration_errs_towards_more_privacy(rho: float, picks: int) -> None:
    # Floats are rationals: sensitivity^2 / (2 sigma^2), and K epsilon'^2 / 8 with epsilon' = 2/scale, without rounding.
    assert 2 / (2 * Fraction(table_sigma(rho)) ** 2) <= Fraction(rho)
    assert picks * (2 / Fraction(gumbel_scale(rho, picks))) ** 2 / 8 <= Fraction(rho)


def test_the_zcdp_of_the_exponential_mechanism_bounds_its_divergences() -> None:
    # Two candidates whose scores move in opposite directions: the largest range, epsilon' = 2 / scale.
    scale = gumbel_scale(0.2, 1)
    first, second = (np.array([math.exp(0.0), math.exp(x / scale)]) for x in (-1.0, 1.0))
    p, q = first / first.sum(), second / second.sum()
    for alpha in (1.01, 1.5, 2, 5, 30, 200):
        divergence = math.log(float((p**alpha * q ** (1 - alpha)).sum())) / (alpha - 1)
        assert divergence <= alpha * 0.2


@pytest.mark.parametrize("method", ["tables", "adaptive"])
def test_rounds_add_up_to_the_guarantee_by_an_independent_accountant(method: str) -> None:
    from dp_accounting import dp_event
    from dp_accounting.rdp import RdpAccountant

    promise = ApproxDP(1.0, 1e-8)
    rho = total_rho(promise, 2)
    plan = table_rounds(WORK, rho) if method == "tables" else adaptive_rounds(WORK, rho, rounds=5)
    assert math.fsum(use.rho for use in plan) == pytest.approx(rho, rel=1e-12)
    events = []
    for use in plan:
        events += [dp_event.GaussianDpEvent(use.sigma / math.sqrt(2))] * max(1, len(use.tables))
        # A selection of rho is at most as lossy, in Rényi divergence, as a Gaussian mechanism of the same rho.
        if use.select_rho:
            events.append(dp_event.GaussianDpEvent(1 / math.sqrt(2 * use.select_rho)))
    accountant = RdpAccountant()
    accountant.compose(dp_event.ComposedDpEvent(events))
    found = accountant.get_epsilon(1e-8)
    assert 0.97 < found <= 1.0 + 1e-3  # its grid of orders is coarser than the exact minimum


def test_the_charges_of_the_rounds_sum_to_the_guarantee() -> None:
    promise = ApproxDP(0.5, 1e-9)
    for rounds in (1, 2, 64):
        rho = total_rho(promise, rounds)
        steps = cumulative_epsilons([rho / rounds] * rounds, 1e-9)
        assert steps == sorted(steps)
        assert 0.5 - 1e-8 < steps[-1] <= 0.5 - 0.9e-11 * rounds
        assert steps[-1] == pytest.approx(zcdp_epsilon(rho, 1e-9))


def test_the_gaussian_stand_in_is_no_more_private_than_a_selection() -> None:
    # delta(epsilon) of randomised response with epsilon' = 2/scale, the worst epsilon'-DP mechanism.
    from hybridp.public.mechanisms import gaussian_profile

    for scale in (0.7, 5.0, 200.0):
        loss = 2 / scale
        level = gaussian_level(0.0, scale)
        p = 1 / (1 + math.exp(-loss))
        for share in (0.0, 0.2, 0.5, 0.9, 0.99):
            worst = max(0.0, p - math.exp(share * loss) * (1 - p))
            assert gaussian_profile(1.0, level, share * loss) >= worst * (1 - 1e-9)
    assert gaussian_level(0.02) == pytest.approx(1 / math.sqrt(0.04))


@pytest.mark.parametrize("loss", [36.7, 40.0, 600.0, 699.9, 700.1, 5000.0])
def test_a_selection_of_a_large_loss_has_a_level(loss: float) -> None:
    """At the corner, where the curve of epsilon-DP meets the Gaussian one, by the log of its tail: no more private."""
    from scipy.special import log_ndtr

    mu = 1 / gaussian_level(0.0, 2 / loss)
    assert float(log_ndtr(-mu / 2)) <= -loss * (1 - 1e-9)
    assert mu <= 2 * math.sqrt(2 * loss)


def test_the_plan_measures_each_marginal_once_and_breaks_up_large_ones() -> None:
    assert table_plan(WORK) == [(0, 1, 2), (1, 2), (1, 3), (2, 3)]
    assert table_plan(WORK, most_cells=11) == [(0, 1), (0, 2)]
    first, second = table_rounds(WORK, 1.0)
    assert first.tables == ((0,), (1,), (2,), (3,))
    assert (first.rho, second.rho) == pytest.approx((0.15, 0.85))
    [only] = table_rounds(Workload(SCHEMA, (Threshold((1,), 1),)), 1.0)
    assert only.tables == ((1,),)


@settings(max_examples=30)
@given(st.integers(1, 4), st.integers(1, 60))
def test_no_table_exceeds_the_limit(k: int, most: int) -> None:
    work = Workload(SCHEMA, (Threshold(tuple(range(k)), k),))
    assert {f for use in table_rounds(work, 1.0) for t in use.tables for f in t} == set(range(k))
    assert all(SCHEMA.cells(t) <= most for t in table_plan(work, most_cells=most))


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: table_sigma(0.0), "rho"),
        (lambda: gumbel_scale(0.1, 0), "picks"),
        (lambda: adaptive_rounds(WORK, 0.1, rounds=0), "rounds"),
        (lambda: total_rho(ApproxDP(1.0, 0.0), 1), "delta"),
    ],
)
def test_bad_numbers_are_refused_by_name(call: object, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{name}`"):
        call()  # type: ignore[operator]
