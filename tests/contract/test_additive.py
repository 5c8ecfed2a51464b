"""Additive noise: stated variances, a second accountant's opinion, and the draws themselves."""

from __future__ import annotations

import math
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as pld

from hybridp import noise
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public.mechanisms import (
    ApproxDP,
    DiscreteGaussian,
    DiscreteLaplace,
    PureDP,
    discrete_gaussian,
    gaussian_sigma,
    laplace_scale,
)
from hybridp_lab.testing import Case, Promise, laws
from hybridp_lab.testing.draws import outputs

from .catalogue import contract_of, every

GRID = 1e-4


@contract_of("lattice", about="draws")
def test_moments_and_draws_are_the_stated_ones(promise: Promise, case: Case) -> None:
    promise.check(case)


@pytest.mark.parametrize("sigma", [0.3, 0.5, 0.8, 1.2, 2.0, 5.0])
def test_a_discrete_gaussian_varies_less_than_its_sigma_says(sigma: float) -> None:
    """Canonne, Kamath and Steinke 2020, Cor. 9; the difference vanishes from sigma = 2 on."""
    mechanism = DiscreteGaussian(ApproxDP(100.0, 0.9), 1, sigma)
    exact = laws.discrete_gaussian(1, sigma).variance(0.0)
    assert exact < mechanism.variance * (1 + 1e-15)
    if sigma >= 2:
        assert abs(exact / mp.mpf(sigma) ** 2 - 1) < 1e-15


@pytest.mark.parametrize(("epsilon", "delta", "steps"), [(8.0, 0.1, 1), (3.0, 1e-4, 3), (1.0, 0.01, 1)])
def test_the_least_discrete_gaussian_on_a_coarse_lattice(epsilon: float, delta: float, steps: int) -> None:
    budget = ApproxDP(epsilon, delta)
    calibrated = discrete_gaussian(budget, steps).sigma
    true = laws.discrete_gaussian(steps, calibrated * 0.999).delta(epsilon)
    assert true > delta


# --- a second opinion: privacy loss distributions of dp_accounting ----------------------------------------------------


def _accountant(core: Any) -> Any:
    """Its pessimistic estimate: every privacy loss is rounded up to the next multiple of GRID at most."""
    grid = {"value_discretization_interval": GRID}
    if isinstance(core, DiscreteLaplace):
        return pld.from_discrete_laplace_mechanism(1 / core.scale, core.sensitivity, **grid)
    return pld.from_discrete_gaussian_mechanism(core.sigma, core.sensitivity, **grid)


@every("lattice", epsilon=5, sensitivity=2000)
def test_dp_accounting_agrees(case: Case) -> None:
    other = _accountant(case.core)
    for factor in (0.3, 0.8, 1.0):
        epsilon = case.guarantee.epsilon * factor
        theirs = other.get_delta_for_epsilon(epsilon)
        assert case.mechanism.profile(epsilon) <= theirs * (1 + 1e-6) + 1e-12
        assert case.mechanism.profile(epsilon - GRID) >= theirs * (1 - 1e-6) - 1e-12


# --- the draws --------------------------------------------------------------------------------------------------------


@every("lattice")
def test_perturbing_adds_the_same_noise_to_any_total(case: Case) -> None:
    for seed in range(5):
        drawn = int(outputs(case, case.core, 0.0, 1, rng=seeded(seed))[0])
        for total in (0, -3, 2**40 + 1, 10**15):
            assert noise.perturb(case.core, total, rng=seeded(seed)) - total == drawn


# --- the classic Gaussian ---------------------------------------------------------------------------------------------


def test_control_the_classic_formula_breaks_its_promise_at_epsilon_ten() -> None:
    def true_delta(epsilon: float) -> float:
        return float(laws.gaussian(1, math.sqrt(2 * math.log(1.25e7)) / epsilon).delta(epsilon))

    assert true_delta(10.0) > 1.2e-7
    assert true_delta(1.0) < 1e-8
    with pytest.raises(InvalidInput, match="`sigma` must be large enough"):
        DiscreteGaussian(ApproxDP(10.0, 1e-7), 2**32, 2**32 * math.sqrt(2 * math.log(1.25e7)) / 10)
    # "From epsilon of about 9 it really fails."
    crossing = next(e for e in np.arange(5, 12, 0.25) if true_delta(float(e)) > 1e-7)
    assert 8 <= crossing <= 9.5


def test_delta_lets_laplace_noise_shrink_as_the_dissertation_says() -> None:
    """Thm 1.1.5: scale = sensitivity/(epsilon - 2 ln(1 - delta)); without a delta, sensitivity/epsilon."""
    for epsilon, delta in ((0.1, 0.05), (1.0, 1e-3), (3.0, 0.4)):
        expected = 2.0 / (epsilon - 2 * math.log(1 - delta))
        assert laplace_scale(ApproxDP(epsilon, delta), 2.0) == pytest.approx(expected, rel=1e-12)
    assert laplace_scale(ApproxDP(1.0, 0.0), 2.0) == laplace_scale(PureDP(1.0), 2.0) == 2.0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.inf, math.nan])
def test_unusable_sensitivities_are_refused(bad: float) -> None:
    with pytest.raises(InvalidInput, match="`sensitivity` must be positive and finite"):
        laplace_scale(PureDP(1.0), bad)
    with pytest.raises(InvalidInput, match="`sensitivity` must be positive and finite"):
        gaussian_sigma(ApproxDP(1.0, 1e-6), bad)


@pytest.mark.parametrize("epsilon", [0.0, math.inf])
def test_unusable_epsilons_are_refused(epsilon: float) -> None:
    with pytest.raises(InvalidInput, match="`epsilon` must be positive and finite"):
        laplace_scale(PureDP(epsilon), 1)


def test_gaussian_noise_needs_a_delta_and_lattices_whole_steps() -> None:
    with pytest.raises(InvalidInput, match="`delta` must be positive"):
        gaussian_sigma(ApproxDP(1.0, 0.0), 1)
    with pytest.raises(InvalidInput, match="`sensitivity` must be a whole number"):
        DiscreteLaplace(PureDP(1.0), 1.5, 2.0)  # type: ignore[arg-type]
