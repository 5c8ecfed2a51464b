"""Blended shares against formulas and simulations made here."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from hybridp import noise
from hybridp.blend.shares import blend_shares, to_simplex
from hybridp.device.shares import simulated_reports
from hybridp.errors import InvalidInput
from hybridp.public.budgets import PureDP
from hybridp.public.mechanisms import DiscreteLaplace
from hybridp.public.queries import Feature
from hybridp.public.shares import CountNoise, NoisyCounts, ShareInvite, ShareReports, count_noise, share_oracle
from hybridp.randomness import seeded


def groups(p: list[float], epsilon: float, trusted: int, local: int, seed: int) -> tuple[NoisyCounts, ShareReports]:
    rng, people = seeded(seed), np.random.default_rng(seed)
    question = Feature.categorical("c", [f"o{i}" for i in range(len(p))])
    stated = count_noise(PureDP(epsilon), len(p))
    counts = people.multinomial(trusted, p)[: stated.draws]
    drawn = noise.discrete_laplace(stated.mechanism.scale, stated.draws, rng=rng)  # type: ignore[union-attr]
    own = NoisyCounts(trusted, tuple((counts + drawn).tolist()), stated)
    invite = ShareInvite(question, share_oracle(PureDP(epsilon), len(p)))
    return own, simulated_reports(people.multinomial(local, p), invite, rng=rng)


def test_the_weight_is_the_inverse_of_the_variances_of_warner_and_laplace() -> None:
    """V_T = p(1-p)/k + 2 r/(1-r)^2/k^2 with r = e^-epsilon; V_L = p(1-p)/n + e/(e-1)^2/n (Warner 1965)."""
    own, told = groups([0.3, 0.7], 1.0, 500, 20_000, 1)
    found = blend_shares(own, told)
    p, r, e = found.estimate[0], math.exp(-1), math.e
    v_t = p * (1 - p) / 500 + 2 * r / (1 - r) ** 2 / 500**2
    v_l = p * (1 - p) / 20_000 + e / (e - 1) ** 2 / 20_000
    assert found.weights[0] == pytest.approx(v_l / (v_t + v_l), rel=1e-3)
    assert found.standard_errors("local") == pytest.approx([math.sqrt(v_l)] * 2, rel=1e-9)


def test_without_noise_the_interval_is_wilsons() -> None:
    """An epsilon of 500 leaves no noise at all: Wilson's score interval (1927)."""
    own = NoisyCounts(400, (12,), count_noise(PureDP(500.0), 2))
    low, high = blend_shares(own, None).intervals(0.95)
    wilson = stats.binomtest(12, 400).proportion_ci(0.95, method="wilson")
    assert (low[0], high[0]) == pytest.approx((wilson.low, wilson.high), rel=1e-6)


@pytest.mark.parametrize(("p", "epsilon"), [([0.3, 0.7], 1.0), ([0.01, 0.09, 0.3, 0.6], 0.5)])
def test_intervals_cover_and_the_test_keeps_its_level(p: list[float], epsilon: float) -> None:
    runs, truth = 300, np.array(p)
    inside = together = narrow = alarms = 0
    for seed in range(runs):
        found = blend_shares(*groups(p, epsilon, 200, 3000, seed))
        low, high = found.intervals(0.95)
        inside += int(((low <= truth) & (truth <= high)).sum())
        all_low, all_high = found.intervals(0.95, joint=True)
        together += bool(((all_low <= truth) & (truth <= all_high)).all())
        middle, reach = (low + high) / 2, (high - low) / 4  # half as wide: the check can fail
        narrow += int((np.abs(middle - truth) <= reach).sum())
        alarms += min(found.p_values() or ()) < 0.05
    assert stats.binomtest(inside, runs * len(p), 0.95, alternative="less").pvalue > 1e-4
    assert stats.binomtest(together, runs, 0.95, alternative="less").pvalue > 1e-4
    assert stats.binomtest(alarms, runs, 0.05, alternative="greater").pvalue > 1e-4
    assert stats.binomtest(narrow, runs * len(p), 0.95, alternative="less").pvalue < 1e-4


def test_groups_that_differ_are_told_apart() -> None:
    own, _ = groups([0.7, 0.2, 0.1], 1.0, 4000, 1, 1)
    _, told = groups([0.2, 0.7, 0.1], 1.0, 1, 20_000, 2)
    found = blend_shares(own, told).p_values()
    assert found is not None
    assert max(found[:2]) < 1e-6 < 0.01 < found[2]


def test_one_group_alone_is_the_estimate_and_nobody_is_refused() -> None:
    own, told = groups([0.3, 0.7], 1.0, 500, 2000, 1)
    assert blend_shares(own, told, "tcm-only").estimate.tolist() == own.shares.tolist()
    assert blend_shares(None, told).estimate.tolist() == blend_shares(own, told, "lm-only").estimate.tolist()
    with pytest.raises(InvalidInput, match="people"):
        blend_shares(None, None)


def test_the_projection_is_the_nearest_point_of_the_simplex() -> None:
    x = np.array([0.6, 0.5, 0.2, -0.3])
    found = to_simplex(x)
    assert found.sum() == pytest.approx(1)
    rng = np.random.default_rng(1)
    others = rng.dirichlet(np.ones(4), 5000)
    assert ((others - x) ** 2).sum(axis=1).min() >= ((found - x) ** 2).sum() - 1e-12


@pytest.mark.parametrize(("size", "sensitivity"), [(2, 0), (3, 1), (50, 1)])
def test_noise_for_a_smaller_move_is_refused(size: int, sensitivity: int) -> None:
    with pytest.raises(InvalidInput, match="sensitivity"):
        CountNoise(DiscreteLaplace(PureDP(1.0), sensitivity, 5.0), size)
