"""Laws of budgets: composition, conversion against an independent accountant, and the relation each one speaks of."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import dp_accounting
import mpmath as mp
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld
from dp_accounting.rdp import RdpAccountant
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.errors import InvalidInput
from hybridp.public.budgets import (
    ZCDP,
    ApproxDP,
    Budget,
    Neighbours,
    PureDP,
    as_approx,
    as_replacement,
    as_zcdp,
    parallel,
    promised,
    sequential,
    zcdp_for,
)

levels = st.floats(0, 50, allow_nan=False)
deltas = st.floats(0, 0.1)
pures = st.builds(PureDP, levels)
approxes = st.builds(ApproxDP, levels, deltas)
zcdps = st.builds(ZCDP, levels)
without_zcdp = st.lists(pures | approxes, min_size=3, max_size=3)
with_zcdp = st.lists(pures | zcdps, min_size=3, max_size=3)
triples = without_zcdp | with_zcdp


def numbers(budget: Budget) -> tuple[float, ...]:
    return (budget.rho,) if isinstance(budget, ZCDP) else (budget.epsilon, budget.delta)


def same(a: Budget, b: Budget) -> bool:
    return type(a) is type(b) and numbers(a) == pytest.approx(numbers(b), rel=1e-14, abs=1e-300)


def test_a_promise_keeps_its_delta_and_its_neighbours() -> None:
    assert same(promised(0.5), PureDP(0.5))
    assert same(promised(0.5, 1e-9), ApproxDP(0.5, 1e-9))
    assert promised(0.5, 1e-9, Neighbours.ADD_REMOVE).neighbours is Neighbours.ADD_REMOVE
    assert promised(0.5, neighbours=Neighbours.ADD_REMOVE).neighbours is Neighbours.ADD_REMOVE


# --- composition ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compose", [sequential, parallel])
@settings(max_examples=100, deadline=None)
@given(budgets=triples)
def test_composition_is_commutative_and_associative(compose: Callable[..., Budget], budgets: list[Budget]) -> None:
    a, b, c = budgets
    assert len({compose(*order) for order in itertools.permutations(budgets)}) == 1
    left, right, flat = compose(compose(a, b), c), compose(a, compose(b, c)), compose(a, b, c)
    if compose is sequential and {type(x) for x in budgets} == {PureDP, ZCDP}:
        # Two pure budgets added first cost (e1 + e2)^2/2, more than e1^2/2 + e2^2/2: true, but not the least.
        assert min(numbers(left), numbers(right)) >= tuple(x * (1 - 1e-14) for x in numbers(flat))
    else:
        assert same(left, right)
        assert same(left, flat)


@pytest.mark.parametrize("compose", [sequential, parallel])
@pytest.mark.parametrize("budget", [PureDP(0.3), ApproxDP(0.3, 1e-6), ZCDP(0.3)])
def test_a_budget_of_zero_changes_nothing(compose: Callable[..., Budget], budget: Budget) -> None:
    assert compose(budget) == budget
    assert compose(budget, PureDP(0.0)) == budget


def test_levels_add_up_without_drift() -> None:
    """Ten times a tenth is one, which repeated float addition misses (0.9999999999999999)."""
    assert sequential(*[PureDP(0.1)] * 10) == PureDP(1.0)
    assert same(sequential(ApproxDP(0.5, 1e-7), ApproxDP(0.25, 2e-7), PureDP(1.0)), ApproxDP(1.75, 3e-7))
    assert sequential(ZCDP(0.1), PureDP(1.0)).rho == 0.1 + 0.5  # type: ignore[union-attr]


@settings(max_examples=100, deadline=None)
@given(budgets=triples)
def test_other_people_cost_no_more_than_the_same_people(budgets: list[Budget]) -> None:
    together, apart = sequential(*budgets), parallel(*budgets)
    assert all(p <= s * (1 + 1e-14) for p, s in zip(numbers(apart), numbers(together), strict=True))


def test_mixed_relations_and_kinds_are_refused() -> None:
    with pytest.raises(InvalidInput, match="must share one neighbouring relation"):
        sequential(PureDP(1.0), PureDP(1.0, Neighbours.ADD_REMOVE))
    with pytest.raises(InvalidInput, match="must share one neighbouring relation"):
        parallel(ZCDP(1.0, Neighbours.ADD_REMOVE), PureDP(1.0))
    with pytest.raises(InvalidInput, match="must not mix zCDP with"):
        sequential(ZCDP(1.0), ApproxDP(1.0, 1e-6))
    with pytest.raises(InvalidInput, match="must name at least one budget"):
        sequential()
    with pytest.raises(InvalidInput, match="must be pure or zCDP"):
        as_zcdp(ApproxDP(1.0, 1e-6))


@pytest.mark.parametrize("relation", list(Neighbours))
def test_the_relation_survives_composition_and_conversion(relation: Neighbours) -> None:
    pure, rho = PureDP(0.5, relation), ZCDP(0.5, relation)
    results = [sequential(pure, pure), parallel(pure, pure), sequential(pure, rho), as_zcdp(pure)]
    results += [as_approx(rho, 1e-6), as_approx(pure, 1e-6)]
    assert {b.neighbours for b in results} == {relation}


# --- from adding and removing to replacing ----------------------------------------------------------------------------


def test_a_replacement_is_a_removal_and_an_addition() -> None:
    assert as_replacement(PureDP(0.5, Neighbours.ADD_REMOVE)) == PureDP(1.0)
    found = as_replacement(ApproxDP(0.5, 1e-6, Neighbours.ADD_REMOVE))
    assert same(found, ApproxDP(1.0, (1 + math.exp(0.5)) * 1e-6))
    assert as_replacement(ZCDP(0.5, Neighbours.ADD_REMOVE)) == ZCDP(2.0)
    for already in (PureDP(0.5), ApproxDP(0.5, 1e-6), ZCDP(0.5)):
        assert as_replacement(already) == already
        assert as_replacement(as_replacement(already)) == already


@pytest.mark.parametrize("sigma", [1.0, 3.0, 10.0])
def test_replacement_covers_a_sum_whose_sensitivity_doubles(sigma: float) -> None:
    """Values in [-1, 1]: adding a person moves a sum by 1, replacing one by 2; the conversion must cover it."""
    for epsilon in (0.1, 0.5, 1.0):
        once = pld.from_gaussian_mechanism(sigma, sensitivity=1).get_delta_for_epsilon(epsilon)
        if 0 < once < 0.1:
            claimed = as_replacement(ApproxDP(epsilon, once, Neighbours.ADD_REMOVE))
            assert isinstance(claimed, ApproxDP)
            twice = pld.from_gaussian_mechanism(sigma, sensitivity=2).get_delta_for_epsilon(claimed.epsilon)
            assert twice <= claimed.delta
    assert as_replacement(ZCDP(1 / (2 * sigma**2), Neighbours.ADD_REMOVE)).rho == pytest.approx((2 / sigma) ** 2 / 2)  # type: ignore[union-attr]


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
    found, least = as_approx(ZCDP(rho), delta).epsilon, least_epsilon(rho, delta)
    assert least <= found <= least * (1 + 1e-9) + 1e-12
    assert found <= (rho + 2 * math.sqrt(rho * math.log(1 / delta))) * (1 + 1e-11)


@pytest.mark.parametrize(("rho", "delta"), [case for case in CASES if case[0] >= 0.01 and case[1] <= 1e-3])
def test_conversion_agrees_with_the_renyi_accountant(rho: float, delta: float) -> None:
    """dp_accounting takes the best of the orders that it is given: never better, and as good on a fine grid."""
    orders = [1 + 10 ** (i / 60) for i in range(-120, 181)]
    accountant = RdpAccountant(orders)
    accountant.compose(dp_accounting.GaussianDpEvent(math.sqrt(1 / (2 * rho))))
    theirs = accountant.get_epsilon(delta)
    assert as_approx(ZCDP(rho), delta).epsilon == pytest.approx(theirs, rel=1e-3)
    assert as_approx(ZCDP(rho), delta).epsilon <= theirs * (1 + 1e-9)


@pytest.mark.parametrize(("rho", "delta"), [(0.02, 1e-6), (0.5, 1e-5), (2.0, 1e-3)])
def test_conversion_covers_the_exact_gaussian_mechanism(rho: float, delta: float) -> None:
    exact = pld.from_gaussian_mechanism(math.sqrt(1 / (2 * rho))).get_epsilon_for_delta(delta)
    assert exact <= as_approx(ZCDP(rho), delta).epsilon <= 1.35 * exact


def test_conversion_is_monotone() -> None:
    rhos = [10 ** (i / 4) for i in range(-20, 9)]
    by_rho = [as_approx(ZCDP(rho), 1e-6).epsilon for rho in rhos]
    by_delta = [as_approx(ZCDP(0.1), 10.0**-d).epsilon for d in range(1, 15)]
    assert by_rho == sorted(by_rho)
    assert by_delta == sorted(by_delta)
    assert as_approx(ZCDP(0.0), 1e-6).epsilon == 0
    assert as_approx(ZCDP(math.inf), 1e-6).epsilon == math.inf


@pytest.mark.parametrize("epsilon", [0.01, 0.1, 1.0, 8.0, 100.0])
@pytest.mark.parametrize("delta", [1e-3, 1e-6, 1e-10])
def test_zcdp_for_is_the_inverse_rounded_down(epsilon: float, delta: float) -> None:
    budget = zcdp_for(epsilon, delta)
    assert as_approx(budget, delta).epsilon <= epsilon
    assert as_approx(ZCDP(budget.rho * (1 + 1e-9)), delta).epsilon > epsilon
    assert least_epsilon(budget.rho, delta) <= epsilon


def test_pure_as_zcdp_covers_randomised_response() -> None:
    """epsilon-DP is epsilon^2/2-zCDP: check Renyi divergences of randomised response, the worst pure mechanism."""
    for epsilon in (0.1, 1.0, 3.0):
        p = math.exp(epsilon) / (1 + math.exp(epsilon))
        rho = as_zcdp(PureDP(epsilon)).rho
        for alpha in (1.001, 1.5, 2.0, 5.0, 50.0):
            moment = p**alpha * (1 - p) ** (1 - alpha) + (1 - p) ** alpha * p ** (1 - alpha)
            assert math.log(moment) / (alpha - 1) <= rho * alpha * (1 + 1e-9)


# --- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bad", [-1e-9, -1.0, math.nan])
def test_negative_levels_are_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match="`epsilon` must be zero or positive"):
        PureDP(bad)
    with pytest.raises(InvalidInput, match="`epsilon` must be zero or positive"):
        ApproxDP(bad, 1e-6)
    with pytest.raises(InvalidInput, match="`rho` must be zero or positive"):
        ZCDP(bad)


@pytest.mark.parametrize("bad", [-1e-9, 1.0, math.nan])
def test_deltas_outside_zero_one_are_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match="`delta`"):
        ApproxDP(1.0, bad)
    for budget in (PureDP(1.0), ZCDP(1.0)):
        with pytest.raises(InvalidInput, match="`delta`"):
            as_approx(budget, bad)
    with pytest.raises(InvalidInput, match="`delta` must be strictly"):
        as_approx(ZCDP(1.0), 0.0)
    with pytest.raises(InvalidInput, match="`delta`"):
        zcdp_for(1.0, bad)


def test_a_stated_delta_is_never_lowered() -> None:
    with pytest.raises(InvalidInput, match="must be at least the budget's own 1e-06"):
        as_approx(ApproxDP(1.0, 1e-6), 1e-7)
    assert as_approx(ApproxDP(1.0, 1e-6), 1e-5) == ApproxDP(1.0, 1e-5)
    assert as_approx(PureDP(1.0), 0.0) == ApproxDP(1.0, 0.0)


def test_budgets_read_aloud() -> None:
    assert str(PureDP(0.5)) == "0.5-DP (replace-one)"
    assert str(ApproxDP(1.0, 1e-6, Neighbours.ADD_REMOVE)) == "(1, 1e-06)-DP (add-remove)"
    assert str(ZCDP(0.25)) == "0.25-zCDP (replace-one)"
