"""Noise in d dimensions: deltas summed over small lattices, and the continuous calibration as the limit."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hybridp.errors import InvalidInput
from hybridp.public.budgets import ApproxDP, PureDP, zcdp_for
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace, gaussian
from hybridp.public.vector import VectorBounds, gaussian_is_enough, vector_gaussian, vector_noise


def true_delta(sigma: float, shift: tuple[int, ...], epsilon: float) -> float:
    """The hockey-stick divergence of discrete Gaussian noise over Z^d, term by term."""
    reach = math.ceil(9 * sigma) + max(map(abs, shift))
    grid = np.arange(-reach, reach + 1)
    mass = np.exp(-(grid**2) / (2 * sigma**2))
    norm = mass.sum()
    here, there = 1.0, 1.0
    p, q = np.ones(1), np.ones(1)
    for s in shift:
        p = np.multiply.outer(p, mass / norm).reshape(-1)
        q = np.multiply.outer(q, np.exp(-((grid - s) ** 2) / (2 * sigma**2)) / norm).reshape(-1)
        here, there = p.sum(), q.sum()
    assert here == pytest.approx(1)
    assert there == pytest.approx(1)
    return float(np.maximum(p - math.exp(epsilon) * q, 0).sum())


@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-2), (1.0, 1e-4), (3.0, 1e-3)])
@pytest.mark.parametrize(("d", "sensitivity"), [(1, 3), (2, 1), (2, 3), (2, 5), (3, 1)])
def test_the_promise_holds_for_every_shift_of_a_small_lattice(
    epsilon: float, delta: float, d: int, sensitivity: int
) -> None:
    sigma = vector_gaussian(ApproxDP(epsilon, delta), sensitivity, d).sigma
    shifts = [s for s in itertools.product(range(sensitivity + 1), repeat=d) if any(s)]
    allowed = [s for s in shifts if sum(v * v for v in s) <= sensitivity**2 and list(s) == sorted(s)]
    assert max(true_delta(sigma, s, epsilon) for s in allowed) <= delta
    if not any(true_delta(0.8 * sigma, s, epsilon) > delta for s in allowed):
        pytest.fail("a fifth less noise keeps the promise: too much is added, or the check is blind")


@pytest.mark.parametrize("sigma", [1.0, 2.0, 3.0, 5.0, 8.0])
@pytest.mark.parametrize("epsilon", [0.3, 1.0, 2.5])
def test_no_certificate_covers_too_little_noise(sigma: float, epsilon: float) -> None:
    """Deltas just under the true one, for the worst shift (2, 2), are never certified."""
    truth = true_delta(sigma, (2, 2), epsilon)
    if truth > 1e-12:
        assert not gaussian_is_enough(ApproxDP(epsilon, truth * 0.999), 3, 2, sigma)


@pytest.mark.parametrize(("epsilon", "delta"), [(0.1, 1e-6), (1.0, 1e-6), (4.0, 1e-9), (20.0, 1e-5)])
@pytest.mark.parametrize("d", [1, 10, 1024])
def test_on_the_real_lattice_it_is_the_analytic_gaussian(epsilon: float, delta: float, d: int) -> None:
    bounds = VectorBounds.of([0] * d, [1] * d)
    found = vector_noise(ApproxDP(epsilon, delta), bounds, "gaussian")
    assert isinstance(found, DiscreteGaussian)
    analytic = gaussian(ApproxDP(epsilon, delta), bounds.l2_sensitivity).sigma
    assert analytic <= found.sigma <= analytic * (1 + 1e-5)
    assert found.sigma < 0.97 * bounds.l2_sensitivity / math.sqrt(2 * zcdp_for(epsilon, delta).rho)


def test_laplace_noise_is_calibrated_to_l1() -> None:
    for bounds in (
        VectorBounds.of([0] * 9, [1] * 9),
        VectorBounds.of([0] * 9, [1] * 9, norm="l2", radius=0.5),
        VectorBounds.of([0] * 9, [1] * 9, norm="l1", radius=0.5),
    ):
        found = vector_noise(ApproxDP(0.7, 1e-5), bounds, "laplace")
        assert isinstance(found, DiscreteLaplace)
        assert found.guarantee == PureDP(0.7)
        assert found.scale * 0.7 == pytest.approx(bounds.l1_sensitivity, rel=1e-12)


def test_best_is_laplace_in_few_dimensions_and_gaussian_in_many() -> None:
    kinds = {}
    for d in (1, 2, 100):
        box = VectorBounds.of([0] * d, [1] * d)
        plans = {name: vector_noise(ApproxDP(1.0, 1e-6), box, name) for name in ("best", "laplace", "gaussian")}  # type: ignore[arg-type]
        assert plans["best"].variance == min(plans["laplace"].variance, plans["gaussian"].variance)
        kinds[d] = type(plans["best"])
    assert kinds == {1: DiscreteLaplace, 2: DiscreteLaplace, 100: DiscreteGaussian}


@pytest.mark.parametrize(
    ("guarantee", "name", "sentence"),
    [
        (PureDP(1.0), "gaussian", "`delta` must be positive for Gaussian noise"),
        (PureDP(0.0), "best", "`epsilon` must be at least 0.001 and at most 500"),
        (PureDP(1.0), "uniform", "`noise` must be one of laplace, gaussian, best"),
    ],
)
def test_refusals(guarantee: PureDP, name: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        vector_noise(guarantee, VectorBounds.of([0], [1]), name)  # type: ignore[arg-type]
    assert str(refusal.value).startswith(sentence)
