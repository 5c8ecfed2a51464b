"""The dissertation's acquisition function against Monte Carlo."""

from __future__ import annotations

import numpy as np
import pytest

from hybridp.pareto import hypervolume, pareto_indices
from hybridp.pareto.models import cells
from hybridp_lab.baselines.acquisition import poi, volume_poi


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
