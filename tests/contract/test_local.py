"""Local randomisers: exact moments, bounds, the reports themselves, and each decision of the sampler at its edge."""

from __future__ import annotations

import math

import pytest

from hybridp.errors import InvalidInput
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.randomisers import (
    LEVELS,
    DitheredBit,
    Piecewise,
    Randomiser,
    best_randomiser,
    dithered_bit,
    k_randomised_response,
    piecewise,
    randomiser,
)
from hybridp_lab.testing import Case, Promise

from .catalogue import contract_of, every
from .library_laws import pieces


@contract_of("local", "categories", "names", about=("draws", "library_laws"))
def test_moments_and_reports_are_the_stated_ones(promise: Promise, case: Case) -> None:
    promise.check(case)


# --- bounds -----------------------------------------------------------------------------------------------------------


@every("local")
def test_the_bound_is_the_end_of_the_support(case: Case) -> None:
    mechanism = case.mechanism
    ends = [edge for z in (-1.0, 1.0) for start, stop, _ in pieces(mechanism, z) for edge in (start, stop)]
    assert mechanism.bound == pytest.approx(max(ends), rel=1e-8)
    assert -mechanism.bound == pytest.approx(min(ends), rel=1e-8)


# --- published numbers and choices ------------------------------------------------------------------------------------

WORST = {  # epsilon: dithered bit, piecewise with t = e^(epsilon/3)
    0.1: (400, 533),
    0.5: (16, 21.1),
    1.0: (4.02, 5.08),
    2.0: (1.06, 1.11),
    4.0: (0.41, 0.167),
}


@pytest.mark.parametrize("epsilon", WORST)
def test_worst_variances_are_the_known_ones(epsilon: float) -> None:
    made: list[Randomiser] = [dithered_bit(PureDP(epsilon)), piecewise(PureDP(epsilon))]
    for mechanism, value in zip(made, WORST[epsilon], strict=True):
        assert mechanism.worst_variance == pytest.approx(value, rel=5e-3)


@pytest.mark.parametrize("epsilon", [0.001, 0.3, 1.7, 6.0, 30.0])
def test_piecewise_has_the_published_variance(epsilon: float) -> None:
    """Wang et al. 2019 for any t: (t+1) z^2/(e-1) + (t+e)((t+1)^3 + e - 1)/(3 t^2 (e-1)^2), e = exp(epsilon)."""
    e, less = math.exp(epsilon), math.expm1(epsilon)
    mechanism = piecewise(PureDP(epsilon))
    t = LEVELS / mechanism.width  # a whole number of cells
    assert t == pytest.approx(math.exp(epsilon / 3), rel=1e-3)
    constant, quadratic = mechanism.variance_terms
    assert quadratic == pytest.approx((t + 1) / less, rel=1e-6)
    assert constant == pytest.approx((t + e) * ((t + 1) ** 3 + less) / (3 * t**2 * less**2), rel=1e-6)


@pytest.mark.parametrize("epsilon", [0.01, 0.5, 1.0, 1.5, 2.0, 3.0, 8.0, 20.0])
def test_best_is_best(epsilon: float) -> None:
    budget = PureDP(epsilon)
    best = best_randomiser(budget)
    others: list[Randomiser] = [dithered_bit(budget), piecewise(budget)]
    assert best.worst_variance == min(m.worst_variance for m in others) < 8 / epsilon**2  # of Laplace noise
    assert isinstance(best, DitheredBit if epsilon <= 2 else Piecewise)


def test_randomised_response_is_the_dissertations() -> None:
    """Thm 1.1.3: the truth with probability (e^epsilon + delta)/(e^epsilon + 1)."""
    for epsilon, delta in ((0.5, 0.0), (1.0, 1e-3), (3.0, 0.2)):
        expected = (math.exp(epsilon) + delta) / (math.exp(epsilon) + 1)
        assert k_randomised_response(ApproxDP(epsilon, delta), 2).truth == pytest.approx(expected, rel=1e-15)


@pytest.mark.parametrize("epsilon", [0.0, 0.0009, 30.5, math.inf])
def test_local_epsilons_outside_their_range_are_refused(epsilon: float) -> None:
    for make in (dithered_bit, piecewise, lambda promise: k_randomised_response(promise, 2)):
        with pytest.raises(InvalidInput, match=r"`epsilon` must be at least 0\.001 and at most 30"):
            make(PureDP(epsilon))


def test_refusals_name_the_parameter() -> None:
    with pytest.raises(InvalidInput, match="`categories` must be at least 2"):
        k_randomised_response(PureDP(1.0), 1)
    with pytest.raises(InvalidInput, match="`local` must be one of"):
        randomiser("uniform", PureDP(1.0))  # type: ignore[arg-type]
    assert randomiser("best", ApproxDP(1.0, 1e-3)).guarantee == PureDP(1.0)
