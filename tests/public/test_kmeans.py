"""Boxes, packings, noise and plans of K-means: integers brute-forced, formulas from the papers, budgets added up."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest

from hybridp.errors import InvalidInput
from hybridp.public.kmeans import STEPS, Box, Grid, map_noise, nearest, packing, separation
from hybridp.public.mechanisms import ZCDP, ApproxDP, PureDP, zcdp_epsilon
from hybridp.public.messages import Invite
from hybridp.public.randomisers import k_randomised_response
from hybridp.tasks.kmeans import KMeansTask

UNIT = Box((0.0, 0.0), (1.0, 1.0))


# --- the lattice ---


def test_levels_clip_round_and_come_back() -> None:
    box = Box((-1.0, 0.0), (1.0, 0.5))
    assert box.tops == (STEPS, STEPS // 4)
    levels = box.levels([[-9.0, 9.0], [0.0, 0.25], [math.inf, -math.inf]])
    assert levels.T.tolist() == [[0, STEPS // 4], [STEPS // 2, STEPS // 8], [STEPS, 0]]
    x = np.random.default_rng(1).uniform([-1, 0], [1, 0.5], (1000, 2))
    assert np.abs(box.values(box.levels(x).T) - x).max() <= box.step / 2 * (1 + 1e-9)


@pytest.mark.parametrize("odd", [math.nan, None])
def test_what_is_no_number_is_in_the_middle(odd: object) -> None:
    assert UNIT.levels([[odd, 0.0]]).T.tolist() == [[STEPS // 2, 0]]
    assert UNIT.levels([[0.25, odd]]).T.tolist() == [[STEPS // 4, STEPS // 2]]
    assert UNIT.levels([[math.inf, -math.inf]]).T.tolist() == [[STEPS, 0]]


@pytest.mark.parametrize(
    ("lower", "upper"),
    [
        ((0.0,), (0.0,)),
        ((0.0,), (1.0, 2.0)),
        ((), ()),
        ((0.0, 0.0), (1.0, 1e-9)),
        ((math.nan,), (1.0,)),
        ((0.0,) * 1025, (1.0,) * 1025),
    ],
)
def test_bad_boxes_are_refused(lower: tuple[float, ...], upper: tuple[float, ...]) -> None:
    with pytest.raises(InvalidInput):
        Box(lower, upper)


@pytest.mark.parametrize("clusters", [1, 2, 5, 300])
def test_nearest_is_the_first_of_the_least_distances(clusters: int) -> None:
    draw = np.random.default_rng(clusters)
    x, c = draw.integers(0, 40, (3, 5000)).astype(float), draw.integers(0, 40, (clusters, 3)).astype(float)
    apart = ((x.T[:, None] - c[None]) ** 2).sum(axis=2)
    scores = np.empty(5000)
    assert np.array_equal(nearest(x, c, scores=scores), apart.argmin(axis=1))
    assert np.array_equal(scores + (x**2).sum(axis=0), apart.min(axis=1))


@pytest.mark.parametrize(("dims", "clusters"), [(1, 3), (2, 4), (2, 9), (5, 8), (10, 10)])
def test_packed_centres_keep_apart_and_off_the_walls(dims: int, clusters: int) -> None:
    box = Box((0.0,) * dims, (1.0,) * dims)
    centres = packing(box, clusters)
    assert np.array_equal(centres, packing(box, clusters))
    assert np.array_equal(centres, np.floor(centres))
    # Spheres of an equal share of the volume, a quarter of that radius at the least.
    share = (math.gamma(dims / 2 + 1) / clusters) ** (1 / dims) / math.sqrt(math.pi)
    assert separation(centres).min() / STEPS >= share / 4
    assert min(centres.min(), (STEPS - centres).min()) / STEPS >= share / 8


def test_cells_and_their_middles_agree() -> None:
    grid = Grid(Box((0.0, 0.0), (1.0, 2.0)), 5)
    assert np.array_equal(grid.cell(np.floor(grid.middles().T)), np.arange(25))
    corners = np.array(list(itertools.product((0, grid.box.tops[0]), (0, grid.box.tops[1])))).T.astype(float)
    assert grid.cell(corners).tolist() == [0, 4, 20, 24]


# --- sensitivity ---


def test_a_replaced_person_moves_two_cells_of_a_map() -> None:
    assert map_noise(PureDP(0.5)).size == pytest.approx(4.0)
    assert map_noise(ZCDP(0.25)).size == pytest.approx(2.0)


# --- plans ---


def task(promise: PureDP | ApproxDP, dims: int, clusters: int, iterations: int | None = None) -> KMeansTask:
    return KMeansTask(Box((0.0,) * dims, (1.0,) * dims), clusters, promise, iterations)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 7.0])
@pytest.mark.parametrize(
    ("dims", "clusters", "trusted", "local"),
    [(2, 4, 160, 159_840), (2, 4, 1600, 0), (10, 10, 1797, 0), (4, 8, 2000, 98_000), (2, 3, 0, 5000)],
)
def test_the_trusted_budget_is_never_exceeded(
    dims: int, clusters: int, trusted: int, local: int, epsilon: float, delta: float
) -> None:
    promise = ApproxDP(epsilon, delta) if delta else PureDP(epsilon)
    for iterations in (None, 1, 2, 7):
        own = task(promise, dims, clusters, iterations)
        for plan in (own.plan(trusted, local), replace(own, per_axis=4).plan(trusted, local)):
            assert (trusted > 0 or plan.per_axis > 0) <= plan.iterations <= (iterations or 10)
            spent = plan.spent
            assert (spent is None) == (trusted == 0)
            if isinstance(spent, PureDP):
                assert epsilon * 0.999 <= spent.epsilon <= epsilon
            elif isinstance(spent, ZCDP):
                assert epsilon * 0.99 <= zcdp_epsilon(spent.rho, delta) <= epsilon


def test_more_people_afford_a_finer_map() -> None:
    sizes = [task(PureDP(1.0), 2, 4).plan(n, 0).per_axis for n in (100, 2000, 20_000, 200_000)]
    assert sizes == sorted(sizes)
    assert sizes[0] == 0
    assert sizes[-1] >= 16


def test_fewer_people_than_clusters_are_refused() -> None:
    with pytest.raises(InvalidInput, match="people"):
        task(PureDP(1.0), 2, 8).plan(3, 4)


@pytest.mark.parametrize("per_axis", [1, -3, 2.5, "4", 129, 10**6])
def test_a_grid_has_whole_cells_and_not_too_many(per_axis: int) -> None:
    with pytest.raises(InvalidInput, match="per_axis"):
        Grid(UNIT, per_axis)


def test_descriptions_that_would_spend_more_than_promised_are_refused() -> None:
    with pytest.raises(InvalidInput, match="`categories` must be the 16 that are asked about"):
        Invite(Grid(UNIT, 4), k_randomised_response(PureDP(1.0), 15))
    for promise, more in ((PureDP(1.0), PureDP(0.51)), (ApproxDP(1.0, 1e-6), ZCDP(0.1))):
        plan = task(promise, 4, 4).plan(100_000, 0)
        assert type(plan.round_spend) is type(more)
        with pytest.raises(InvalidInput, match="`round_spend` must be small enough"):
            replace(plan, round_spend=more)
