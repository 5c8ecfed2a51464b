"""Fronts by their laws; hypervolumes against inclusion-exclusion, Monte Carlo and botorch."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from hybridp.errors import InvalidInput
from hybridp.pareto import hypervolume, pareto_indices, staircase


def dominated(points: Any, queries: Any) -> Any:
    """Whether each query lies in the region that the points dominate (equality counts)."""
    below = np.asarray(points)[None, :, :] <= np.asarray(queries)[:, None, :]
    return np.any(np.all(below, axis=2), axis=1)


def inclusion_exclusion(points, corner):
    """Volume of a union of boxes [p, corner], from its definition."""
    total = 0.0
    for size in range(1, len(points) + 1):
        for chosen in itertools.combinations(points, size):
            sides = np.maximum(corner - np.max(chosen, axis=0), 0)
            total += (-1) ** (size + 1) * float(np.prod(sides))
    return total


coarse = st.integers(0, 6).map(lambda v: v / 4)  # ties and points beyond the corner happen


@given(
    st.sampled_from([2, 3]).flatmap(
        lambda d: arrays(float, st.tuples(st.integers(1, 7), st.just(d)), elements=coarse)
    )
)
@settings(max_examples=60, deadline=None)
def test_hypervolume_is_the_volume_of_the_union(points):
    corner = np.full(points.shape[1], 1.25)
    assert hypervolume(points, corner) == pytest.approx(inclusion_exclusion(points, corner), abs=1e-9)


@pytest.mark.parametrize("dim", [2, 3, 4])
def test_hypervolume_by_monte_carlo(dim):
    rng = np.random.default_rng(dim)
    points = rng.random((12, dim)) ** 2
    draws = rng.random((100_000, dim))
    hit = dominated(points, draws)
    share, error = hit.mean(), hit.std() / len(hit) ** 0.5
    exact = hypervolume(points, np.ones(dim))
    assert abs(exact - share) < 5 * error
    assert abs(1.05 * exact - share) > 5 * error  # the control


@given(
    st.sampled_from([2, 3]).flatmap(lambda d: arrays(float, st.tuples(st.integers(1, 30), st.just(d)), elements=coarse))
)
@settings(max_examples=100, deadline=None)
def test_front_laws(points):
    index = pareto_indices(points)
    front = points[index]
    for i, j in itertools.permutations(range(len(front)), 2):
        assert not np.all(front[i] <= front[j])
    assert dominated(front, points).all()
    assert np.all(np.diff(front[:, 0]) >= 0)
    assert hypervolume(front, np.full(points.shape[1], 2.0)) == hypervolume(points, np.full(points.shape[1], 2.0))


@given(arrays(float, st.tuples(st.integers(1, 12), st.just(2)), elements=coarse), st.tuples(coarse, coarse))
def test_a_new_point_never_lowers_the_volume(points, new):
    corner = [1.6, 1.6]
    before, after = hypervolume(points, corner), hypervolume(np.vstack([points, new]), corner)
    assert after >= before - 1e-12
    inside = new[0] < 1.6 and new[1] < 1.6
    assert (after > before + 1e-12) == (inside and not bool(dominated(points, [new])[0]))


def test_the_staircase_is_conservative():
    """Sampled from a convex true front, the empirical one never lies below it."""
    x = np.sort(np.random.default_rng(2).random(20))
    steps = staircase(np.column_stack([x, (1 - x) ** 2]))
    asked = np.linspace(0, 1, 500)
    assert np.all(steps(asked) >= (1 - asked) ** 2)
    assert np.isinf(steps([x[0] - 1e-9])[0])


def test_nothing_is_dominated_by_nothing():
    assert hypervolume(np.empty((0, 2)), [1.0, 1.0]) == 0.0
    assert hypervolume([[2.0, 0.0]], [1.0, 1.0]) == 0.0


@pytest.mark.parametrize("points", [[[np.nan, 1.0]], [[np.inf, -np.inf]], [[1.0, 1.0, 1.0]]])
def test_bad_points_are_refused(points):
    with pytest.raises(InvalidInput):
        hypervolume(points, [2.0, 2.0])
