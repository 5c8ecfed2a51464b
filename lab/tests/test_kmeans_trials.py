"""The figure on a small scale: the improved hybrid beats the baselines and the corrected paper mechanism."""

from __future__ import annotations

import numpy as np
import pytest

from hybridp.noise import seeded
from hybridp.public.kmeans import Box
from hybridp_lab.papers.mean2020.kmeans_trials import LAYOUT, experiment, paper_points, wcss

UNIT = Box((0.0, 0.0), (1.0, 1.0))


def test_the_sum_of_squares_is_the_plain_one() -> None:
    points = paper_points(50, rng=seeded(1))
    centres = np.asarray(LAYOUT)
    plain = ((points.T[:, None] - centres[None]) ** 2).sum(axis=2).min(axis=1).sum()
    assert wcss(points, centres) == pytest.approx(plain)
    # Two coordinates of variance sigma^2 each.
    assert plain == pytest.approx(200 * 2 * 0.028**2, rel=0.25)


def test_the_claims_of_the_figure() -> None:
    cells = experiment(trials=4, per_cluster=10_000, shares=(0.004, 0.04), taus=(1, 2, 5), rng=seeded(7))
    by = {(c.method, c.share, c.tau): c.mean for c in cells}
    for share in (0.004, 0.04):
        for tau in (1, 2, 5):
            better = min(by["tcm", share, tau], by["lm", share, tau])
            for method in ("improved", "improved_delta"):
                assert by[method, share, tau] <= 1.05 * better
                assert by[method, share, tau] < by["corrected", share, tau]
    # As printed, lying labels pull the centres together: worse with every iteration.
    assert by["as_printed", 0.04, 5] > 2 * by["corrected", 0.04, 5]
