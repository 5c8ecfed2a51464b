"""Clipping, sensitivity and projection of vectors in exact integers; noise in d dimensions: deltas summed over small
lattices, and the continuous calibration as the limit."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.errors import InvalidInput
from hybridp.public.mechanisms import (
    ApproxDP,
    DiscreteGaussian,
    DiscreteLaplace,
    PureDP,
    gaussian_is_enough,
    gaussian_sigma,
    vector_gaussian,
    zcdp_for,
)
from hybridp.public.messages import HALF, Invite, VectorBounds, VectorReportSums, sum_noise
from hybridp.public.randomisers import scalar_reports


@st.composite
def geometries(draw: st.DrawFn) -> VectorBounds:
    d = draw(st.integers(1, 6))
    norm: Any = draw(st.sampled_from([None, "l1", "l2"]))
    radius = None if norm is None else draw(st.floats(0.001, 3.0))
    return VectorBounds.of([-1.0] * d, [1.0] * d, norm=norm, radius=radius)


def vectors(d: int) -> st.SearchStrategy[list[float]]:
    edge = st.sampled_from([-1.0, 1.0, 0.0, 1e9, -1e9, 1 / 3, math.inf, -math.inf])
    return st.lists(st.one_of(edge, st.floats(-1.2, 1.2)), min_size=d, max_size=d)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_replacing_one_person_moves_the_sum_by_no_more_than_the_sensitivity(data: st.DataObject) -> None:
    bounds = data.draw(geometries())
    a, b = (data.draw(vectors(bounds.dimensions)) for _ in range(2))
    x, y = ([int(v) for v in row] for row in bounds.steps([a, b]))
    move = [p - q for p, q in zip(x, y, strict=True)]
    assert sum(map(abs, move)) <= bounds.l1_sensitivity
    assert sum(m * m for m in move) <= bounds.l2_sensitivity**2
    for row in (x, y):
        assert max(map(abs, row)) <= bounds.reach_steps
        assert math.sqrt(sum(v * v for v in row)) <= bounds.ratio * bounds.reach_steps * (1 + 1e-12)
        if bounds.radius_steps is not None:
            within = bounds.radius_steps
            if bounds.norm == "l1":
                assert sum(map(abs, row)) <= within
            else:
                assert sum(v * v for v in row) <= within**2


def test_clipping_keeps_the_direction_and_leaves_short_vectors_alone() -> None:
    bounds = VectorBounds.of([0, 0, 0], [2, 4, 8], norm="l2", radius=0.5)
    short = bounds.steps([[1.2, 2.4, 4.0]])
    assert (short[0] / HALF).tolist() == pytest.approx([0.2, 0.2, 0.0], abs=1e-7)
    long = bounds.steps([[2.0, 4.0, 4.0]])[0] / HALF
    assert long.tolist() == pytest.approx([0.5 / math.sqrt(2)] * 2 + [0.0], abs=1e-6)


@settings(max_examples=100, deadline=None)
@given(st.data())
def test_a_projected_estimate_is_no_farther_from_any_possible_mean(data: st.DataObject) -> None:
    bounds = data.draw(geometries())
    d = bounds.dimensions
    wild = np.array(data.draw(st.lists(st.floats(-4, 4), min_size=d, max_size=d)))
    truth = bounds.steps([data.draw(vectors(d))])[0] / HALF
    found = bounds.project(wild)
    assert np.linalg.norm(found - truth) <= np.linalg.norm(wild - truth) + 1e-9
    assert np.abs(found).max() <= 1 + 1e-12
    if bounds.radius is not None:
        size = np.abs(found).sum() if bounds.norm == "l1" else np.linalg.norm(found)
        assert size <= bounds.radius + 1e-9
    assert bounds.project(found).tolist() == pytest.approx(found.tolist(), abs=1e-9)


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: VectorBounds.of([0, 0], [1]), "`upper` must hold as many bounds as lower"),
        (lambda: VectorBounds.of([], []), "`dimensions` must be between 1 and 1,024"),
        (lambda: VectorBounds.of([0], [0]), "`upper` must be greater than lower"),
        (lambda: VectorBounds.of([0], [1], norm="l2"), "`radius` must be given with the norm l2"),
        (lambda: VectorBounds.of([0], [1], radius=1.0), "`norm` must be given with a radius"),
        (lambda: VectorBounds.of([0], [1], norm="l2", radius=-1.0), "`radius` must be at least 0.001"),
        (lambda: VectorBounds.of([0], [1], norm="l2", radius=math.nan), "`radius` must be at least 0.001"),
        (lambda: VectorBounds.of([0], [1]).steps([[math.nan]]), "`value` must be a number"),
        (lambda: VectorBounds.of([0], [1]).steps([[1.0, 2.0]]), "`values` must be rows of 1 numbers"),
    ],
)
def test_what_is_wrong_is_said_in_one_sentence(make: Any, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        make()
    assert str(refusal.value).startswith(sentence)


def test_mechanism_texts_tell_mechanisms_apart() -> None:
    texts = set()
    for upper, norm, radius, k in ((1, None, None, 1), (2, None, None, 1), (1, "l2", 1.0, 1), (1, "l1", 1.0, 1),
                                   (1, "l2", 0.9, 1), (1, None, None, 2)):  # fmt: skip
        bounds = VectorBounds.of([0, 0], [upper, 1], norm=norm, radius=radius)  # type: ignore[arg-type]
        texts.add(Invite(bounds, scalar_reports(PureDP(1.0), 2, k)).text)
    assert len(texts) == 6
    with pytest.raises(InvalidInput, match="`dimensions` must be the 1 that are asked about"):
        Invite(VectorBounds.of([0], [1]), scalar_reports(PureDP(1.0), 2, 1))


def test_sums_of_reports_are_mergeable_and_never_mixed() -> None:
    one, two = (scalar_reports(PureDP(1.0), 2, k) for k in (1, 2))
    part = VectorReportSums(3, np.array([1, 2]), np.array([0.5, 1.0]), np.array([1.0, 4.0]), one)
    both = part + part
    assert (both.people, both.counts.tolist(), both.totals.tolist()) == (6, [2, 4], [1.0, 2.0])
    with pytest.raises(InvalidInput, match="one mechanism"):
        part + VectorReportSums(1, np.array([1, 1]), np.zeros(2), np.zeros(2), two)


# --- noise ------------------------------------------------------------------------------------------------------------


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
    found = sum_noise(ApproxDP(epsilon, delta), "gaussian", bounds)
    assert isinstance(found, DiscreteGaussian)
    analytic = gaussian_sigma(ApproxDP(epsilon, delta), bounds.l2_sensitivity)
    assert analytic <= found.sigma <= analytic * (1 + 1e-5)
    assert found.sigma < 0.97 * bounds.l2_sensitivity / math.sqrt(2 * zcdp_for(epsilon, delta).rho)


def test_laplace_noise_is_calibrated_to_l1() -> None:
    for bounds in (
        VectorBounds.of([0] * 9, [1] * 9),
        VectorBounds.of([0] * 9, [1] * 9, norm="l2", radius=0.5),
        VectorBounds.of([0] * 9, [1] * 9, norm="l1", radius=0.5),
    ):
        found = sum_noise(ApproxDP(0.7, 1e-5), "laplace", bounds)
        assert isinstance(found, DiscreteLaplace)
        assert found.guarantee == PureDP(0.7)
        assert found.scale * 0.7 == pytest.approx(bounds.l1_sensitivity, rel=1e-12)


def test_best_is_laplace_in_few_dimensions_and_gaussian_in_many() -> None:
    kinds = {}
    for d in (1, 2, 100):
        box = VectorBounds.of([0] * d, [1] * d)
        plans = {name: sum_noise(ApproxDP(1.0, 1e-6), name, box) for name in ("best", "laplace", "gaussian")}  # type: ignore[arg-type]
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
def test_refusals_of_noise(guarantee: PureDP, name: str, sentence: str) -> None:
    with pytest.raises(InvalidInput) as refusal:
        sum_noise(guarantee, name, VectorBounds.of([0], [1]))  # type: ignore[arg-type]
    assert str(refusal.value).startswith(sentence)
