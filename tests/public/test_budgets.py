"""Laws of budgets: conversion against an independent accountant, and the relation each one speaks of."""

from __future__ import annotations

import math

import dp_accounting
import mpmath as mp
import pytest
from dp_accounting.rdp import RdpAccountant

from hybridp.errors import InvalidInput
from hybridp.public.mechanisms import ZCDP, ApproxDP, Neighbours, PureDP, promised, zcdp_epsilon, zcdp_for


def test_a_promise_keeps_its_delta_and_its_neighbours() -> None:
    assert promised(0.5) == PureDP(0.5)
    assert promised(0.5, 1e-9) == ApproxDP(0.5, 1e-9)
    assert promised(0.5, 1e-9, Neighbours.ADD_REMOVE).neighbours is Neighbours.ADD_REMOVE
    assert promised(0.5, neighbours=Neighbours.ADD_REMOVE).neighbours is Neighbours.ADD_REMOVE


# --- zCDP -------------------------------------------------------------------------------------------------------------


def least_epsilon(rho: float, delta: float) -> float:
    """min over alpha of Canonne, Kamath and Steinke's bound, by a fine scan and refinement in 40 digits."""
    with mp.workdps(40):

        def bound(log_excess: mp.mpf) -> mp.mpf:
            a = 1 + mp.exp(log_excess)
            return rho * a + (mp.log(1 / (a * mp.mpf(delta))) + (a - 1) * mp.log(1 - 1 / a)) / (a - 1)

        grid = [mp.mpf(i) / 8 for i in range(-120, 200)]
        best = min(grid, key=bound)
        step = mp.mpf(1) / 8
        for _ in range(60):
            best = min((best - step, best, best + step), key=bound)
            step /= mp.mpf("1.5")
        return max(0.0, float(bound(best)))


CASES = [(rho, delta) for rho in (1e-4, 0.01, 0.125, 1.0, 20.0) for delta in (0.1, 1e-3, 1e-6, 1e-12)]


@pytest.mark.parametrize(("rho", "delta"), CASES)
def test_conversion_is_the_least_and_on_the_safe_side(rho: float, delta: float) -> None:
    found, least = zcdp_epsilon(rho, delta), least_epsilon(rho, delta)
    assert least <= found <= least * (1 + 1e-9) + 1e-12
    assert found <= (rho + 2 * math.sqrt(rho * math.log(1 / delta))) * (1 + 1e-11)


@pytest.mark.parametrize(("rho", "delta"), [case for case in CASES if case[0] >= 0.01 and case[1] <= 1e-3])
def test_conversion_agrees_with_the_renyi_accountant(rho: float, delta: float) -> None:
    """dp_accounting takes the best of the orders that it is given: never better, and as good on a fine grid."""
    orders = [1 + 10 ** (i / 60) for i in range(-120, 181)]
    accountant = RdpAccountant(orders)
    accountant.compose(dp_accounting.GaussianDpEvent(math.sqrt(1 / (2 * rho))))
    theirs = accountant.get_epsilon(delta)
    assert zcdp_epsilon(rho, delta) == pytest.approx(theirs, rel=1e-3)
    assert zcdp_epsilon(rho, delta) <= theirs * (1 + 1e-9)


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_zcdp_for_is_the_inverse_rounded_down(epsilon: float, delta: float) -> None:
    budget = zcdp_for(epsilon, delta)
    assert zcdp_epsilon(budget.rho, delta) <= epsilon
    assert zcdp_epsilon(budget.rho * (1 + 1e-9), delta) > epsilon
    assert least_epsilon(budget.rho, delta) <= epsilon


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1e-9, -1.0, math.nan])
def test_negative_levels_are_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match="`epsilon` must be zero or positive"):
        PureDP(bad)
    with pytest.raises(InvalidInput, match="`epsilon` must be zero or positive"):
        ApproxDP(bad, 1e-6)
    for refused in (ZCDP, lambda rho: zcdp_epsilon(rho, 1e-6)):
        with pytest.raises(InvalidInput, match="`rho` must be zero or positive"):
            refused(bad)


@pytest.mark.parametrize("bad", [-1e-9, 1.0, math.nan])
def test_deltas_outside_zero_one_are_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match="`delta`"):
        ApproxDP(1.0, bad)
    for refused in (zcdp_epsilon, zcdp_for):
        with pytest.raises(InvalidInput, match="`delta`"):
            refused(1.0, bad)
        with pytest.raises(InvalidInput, match="`delta` must be strictly"):
            refused(1.0, 0.0)
