"""The dissertation's acquisition function against Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest

from hybridp.pareto import Categorical, Integer, LogReal, Problem, Space, hypervolume, pareto_indices
from hybridp.pareto.models import cells
from hybridp_lab.baselines.acquisition import full_grid, grid_search, poi, volume_poi


def added(front, point, corner):
    return hypervolume(np.vstack([front, point]), corner) - hypervolume(front, corner)


@pytest.mark.parametrize("dim", [2, 3])
def test_hvpoi_is_gain_of_the_mean_times_probability(dim):
    rng = np.random.default_rng(dim)
    points = rng.random((8, dim))
    front, corner = points[pareto_indices(points)], np.full(dim, 1.2)
    mean, sd = rng.uniform(0, 1, (3, dim)), rng.uniform(0.05, 0.3, (3, dim))
    lower, upper = cells(front, corner)
    for k in range(3):
        draws = rng.normal(mean[k], sd[k], (50_000, dim))
        improves = (draws <= corner).all(1) & ~(front[None] <= draws[:, None]).all(2).any(1)
        share, error = improves.mean(), improves.std() / len(draws) ** 0.5
        ours = float(poi(mean[k : k + 1], sd[k : k + 1], lower, upper)[0])
        assert abs(ours - share) < 5 * error + 1e-9
        if error > 0:
            assert abs(ours - share * 1.05 - 0.01) > 5 * error  # the control
        expected = added(front, mean[k], corner) * ours
        assert volume_poi(front, corner, mean[k : k + 1], sd[k : k + 1])[0] == pytest.approx(expected, abs=1e-9)


def test_a_grid_has_every_combination_once():
    settings = full_grid(Space({"c": Integer(1, 3), "b": LogReal(0.01, 100)}), 5)
    assert len(settings) == 15
    assert len({(s["c"], s["b"]) for s in settings}) == 15
    assert sorted({s["b"] for s in settings}) == pytest.approx([0.01, 0.1, 1.0, 10.0, 100.0])


def test_a_grid_is_searched_whole():
    space = Space({"b": LogReal(0.01, 100), "e": Categorical(("sgd", "adam"))})
    toy = Problem("toy", space, lambda s: 1 / s["b"], lambda s, seed: 1 / (1 + s["b"]))
    found = grid_search(toy, per_axis=3, seed=1)
    assert len({tuple(e.setting.values()) for e in found.evaluations}) == 6
