"""Personal epsilons: the best weights, privacy of the stored numbers, limits, and closed forms of the best report."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hybridp.errors import InvalidInput
from hybridp.public.mechanisms import PureDP
from hybridp.public.personal import PersonalDP, adpm_weights, local_terms
from hybridp.public.randomisers import DitheredBit, best_randomiser

INF = math.inf
EPSILON = st.one_of(st.floats(-12, 12).map(lambda power: 10.0**power), st.sampled_from([0.0, 0.05, 0.3, 1.0, 4.0, INF]))
CROWD = st.lists(EPSILON, min_size=1, max_size=30).filter(any)
VARIANCE = st.one_of(st.none(), st.floats(1e-6, 0.25))


def objective(w, eps, variance, width):
    asked = np.isfinite(eps) & (eps > 0)
    scale = width * np.max(w[asked] / eps[asked], initial=0.0)
    return variance * np.dot(w, w) + 2 * scale**2


def exact_theta(eps, target):
    """Sort and prefix sums in rational arithmetic: the first k with (S2 + target)/S1 <= eps_{k+1}."""
    ordered = sorted(Fraction(e) for e in eps if 0 < e < INF)
    s1 = s2 = Fraction(0)
    for e in ordered:
        if s1 and (s2 + target) / s1 <= e:
            return (s2 + target) / s1
        s1, s2 = s1 + e, s2 + e * e
    return (s2 + target) / s1


# --- optimality ---


@given(CROWD, VARIANCE)
@settings(max_examples=200, deadline=None)
def test_the_kkt_conditions_hold(epsilons, variance):
    """min s^2 sum w^2 + 2 b^2, w_i <= b eps_i, sum w = 1: multipliers l_i = nu - 2 s^2 w_i >= 0, 4b = sum l_i eps_i."""
    eps = np.array(epsilons)
    assume(np.any((eps > 0) & np.isfinite(eps)))
    w = adpm_weights(eps, variance=variance)
    spread = 0.25 if variance is None else variance
    assert w.weight.sum() == pytest.approx(1, rel=1e-12)
    bound = ~w.saturated
    np.testing.assert_allclose(w.weight[bound], w.noise_scale * eps[bound], rtol=1e-12)
    x, b = w.weight[bound], w.noise_scale
    nu = (4 * b + 2 * spread * np.dot(x, eps[bound])) / eps[bound].sum()
    assert np.all(2 * spread * x <= nu * (1 + 1e-9))
    np.testing.assert_allclose(2 * spread * w.weight[w.saturated], nu, rtol=1e-9)
    assert w.mse == pytest.approx(objective(w.weight, eps, spread, 1.0), rel=1e-12)


@given(st.lists(st.floats(-12, 12).map(lambda p: 10.0**p), min_size=1, max_size=60), st.booleans())
@settings(max_examples=200, deadline=None)
def test_theta_agrees_with_rational_arithmetic(eps, public):
    everyone = [*eps, INF] if public else eps
    want = exact_theta(eps, 8)
    want = want if public else min(want, Fraction(max(eps)))
    assert adpm_weights(everyone).theta == pytest.approx(float(want), rel=1e-14)


def test_theta_among_nearly_equal_epsilons():
    """Here S2 - theta S1 in floating point would cancel to nothing."""
    eps = 1e6 * (1 + 1e-12 * np.random.default_rng(5).uniform(size=500))
    assert adpm_weights(eps).theta == pytest.approx(float(exact_theta(eps.tolist(), 8)), rel=1e-15)


# --- privacy, symmetries and limits ---


@given(CROWD, VARIANCE, st.floats(1e-3, 1e3))
@settings(max_examples=200, deadline=None)
def test_nobody_gets_less_privacy_than_asked_by_the_stored_numbers(epsilons, unit_variance, width):
    variance = None if unit_variance is None else unit_variance * width * width
    w = adpm_weights(epsilons, variance=variance, width=width)
    for e, x in zip(epsilons, w.weight.tolist(), strict=True):
        if e < INF and x > 0:
            assert Fraction(width) * Fraction(x) <= Fraction(e) * Fraction(w.noise_scale)
    for e, got, x in zip(epsilons, w.effective_epsilon.tolist(), w.weight.tolist(), strict=True):
        assert got <= e
        if w.noise_scale > 0:
            assert width * x / w.noise_scale == pytest.approx(got, rel=1e-12)


def test_the_width_scales_noise_and_error_only():
    eps = np.exp(np.random.default_rng(3).uniform(-4, 3, 50))
    a, b = adpm_weights(eps, variance=0.03), adpm_weights(eps, variance=0.03 * 49, width=7.0)
    np.testing.assert_allclose(b.weight, a.weight, rtol=1e-12)
    assert b.noise_scale == pytest.approx(7 * a.noise_scale, rel=1e-12)
    assert b.mse == pytest.approx(49 * a.mse, rel=1e-12)


def test_counts_stand_for_repetition():
    eps, counts = [0.0, 0.05, 0.3, 2.0, 40.0], [3, 40, 20, 10, 2]
    grouped, repeated = adpm_weights(eps, counts=counts), adpm_weights(np.repeat(eps, counts))
    np.testing.assert_allclose(np.repeat(grouped.weight, counts), repeated.weight, rtol=1e-12)
    assert grouped.mse == pytest.approx(repeated.mse, rel=1e-12)


def test_zero_and_infinite_epsilons():
    w = adpm_weights([0.0, 0.5, INF, INF])
    assert w.weight[0] == 0
    assert w.theta == pytest.approx(0.5 + 8 / 0.5)
    assert w.effective_epsilon.tolist() == [0, 0.5, w.theta, w.theta]
    everyone_public = adpm_weights([INF] * 5)
    assert everyone_public.weight.tolist() == [0.2] * 5
    assert everyone_public.noise_scale == 0
    assert everyone_public.mse == pytest.approx(0.05)
    assert adpm_weights([0.0, INF]).weight.tolist() == [0, 1]
    assert not adpm_weights([0.0, INF]).saturated.any()
    assert adpm_weights([1e300, INF, 1e-300]).weight.sum() == pytest.approx(1)


def test_without_variance_only_the_noise_counts():
    w = adpm_weights([1.0, 2.0, 5.0], variance=0)
    np.testing.assert_allclose(w.weight, [1 / 8, 2 / 8, 5 / 8])
    assert adpm_weights([1.0, INF], variance=0).mse == 0


def test_the_constant_is_better_when_epsilons_are_tiny():
    assert adpm_weights([0.01] * 10).constant_better
    assert not adpm_weights([1.0] * 10).constant_better
    assert adpm_weights([0.01] * 10, width=5.0).constant_better


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda: adpm_weights([]), "epsilons"),
        (lambda: adpm_weights([0.0, 0.0]), "epsilons"),
        (lambda: adpm_weights([1.0, math.nan]), "epsilons"),
        (lambda: adpm_weights([1.0, -0.1]), "epsilons"),
        (lambda: adpm_weights([[1.0]]), "epsilons"),
        (lambda: adpm_weights([1.0], variance=0.26), "variance"),
        (lambda: adpm_weights([1.0], variance=math.nan), "variance"),
        (lambda: adpm_weights([1.0], width=0), "width"),
        (lambda: adpm_weights([1.0, 2.0], counts=[1]), "counts"),
        (lambda: adpm_weights([1.0], counts=[0]), "counts"),
        (lambda: adpm_weights([1.0], counts=[1.5]), "counts"),
    ],
)
def test_a_broken_rule_is_named(call, name):
    with pytest.raises(InvalidInput, match=rf"^`{name}` "):
        call()


# --- the best report for each epsilon, and vectors of epsilons ---

GRID = [0.001, 0.003, 0.01, 0.05, *np.round(np.geomspace(0.1, 30, 40), 6).tolist(), 1.6, 2.0, 2.1, 2.2]


@pytest.mark.parametrize("epsilon", GRID)
def test_closed_forms_equal_the_verified_randomisers(epsilon: float) -> None:
    """The randomiser's probabilities are rounded to 2^-64 and its window to whole cells: a few millionths."""
    want = best_randomiser(PureDP(epsilon))
    terms = local_terms([epsilon])
    constant, quadratic = want.variance_terms
    assert terms.dithered[0] == isinstance(want, DitheredBit)
    assert terms.constant[0] == pytest.approx(constant, rel=2e-5)
    assert terms.quadratic[0] == pytest.approx(quadratic, rel=2e-5, abs=1e-15)
    assert terms.reach[0] == pytest.approx(want.bound, rel=2e-5)
    assert local_terms([epsilon]).worst[0] == pytest.approx(want.worst_variance, rel=2e-5)
    for mean, spread in ((0.0, 0.16), (0.7, 0.3)):
        stated = want.square_deviation(mean, spread)
        # At the largest epsilons the bound on a fourth moment is a small difference of large numbers.
        assert terms.square_deviation(mean, spread)[0] == pytest.approx(stated, rel=1e-3)


def test_more_epsilon_is_never_worse_and_the_ends_are_silence_and_thirty() -> None:
    eps = np.geomspace(0.001, 30, 3000)
    assert (np.diff(local_terms(eps).worst) < 0).all()
    assert local_terms([0.0, 0.00099]).worst.tolist() == [math.inf] * 2
    assert local_terms([30.0, 1e9, math.inf]).worst.tolist() == [local_terms([30.0]).worst[0]] * 3


def test_a_vector_of_epsilons() -> None:
    asked = PersonalDP.of([2.0, 0.5, math.inf, 0.0, 2.0])
    assert asked.levels == ((0.0, 1), (0.5, 1), (2.0, 2), (math.inf, 1))
    assert (asked.people, asked.least, asked.most) == (5, 0.0, math.inf)
    assert asked == PersonalDP.of([0.0, 0.5, 2.0, math.inf], [1, 1, 2, 1])
    assert str(PersonalDP.of([0.5, 2.0])).startswith("personal epsilons from 0.5 to 2, 2 people")
    assert str(PersonalDP.of([0.5, 0.5])).startswith("0.5-DP")


@pytest.mark.parametrize("bad", [[], [-1.0], [math.nan], [1.0, -math.inf]])
def test_what_is_no_vector_of_epsilons(bad: list[float]) -> None:
    with pytest.raises(InvalidInput, match=r"^`epsilons` "):
        PersonalDP.of(bad)
