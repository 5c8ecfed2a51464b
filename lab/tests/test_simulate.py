"""Simulated collections: reproducible, marked, unbiased, and as noisy as the formulas say."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hybridp.bench.crowd import salary_like
from hybridp.blend.mean import Rule
from hybridp.errors import InvalidInput
from hybridp.noise import secure, seeded
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import sum_noise
from hybridp.public.randomisers import LEVELS
from hybridp_lab.baselines.local import local_additive
from hybridp_lab.simulate import Trial, collect, errors, trials

POPULATION = np.random.default_rng(3).uniform(-1, 0.5, 2000)
SETTING: dict[str, Any] = {
    "n": 300,
    "trusted_people": 60,
    "noise": sum_noise(PureDP(1.0)),
    "randomiser": local_additive(PureDP(1.0)),
}


def run(count: int, seed: int = 1, **changes: Any) -> list[Trial]:
    return list(trials(POPULATION, count=count, rng=seeded(seed), **{**SETTING, **changes}))


def test_the_same_seed_gives_the_same_collections() -> None:
    assert run(3) == run(3)
    assert run(3) != run(3, seed=2)
    with pytest.raises(InvalidInput, match="`rng`"):
        list(trials(POPULATION, count=1, rng=secure(), **SETTING))
    with pytest.raises(InvalidInput, match="`rng`"):
        salary_like(10, rng=secure())


def test_the_empirical_mean_is_that_of_the_people() -> None:
    trusted = np.array([0, LEVELS // 2, LEVELS])
    local = np.array([LEVELS // 4])
    for extra in (False, True):
        one = collect(
            trusted, local, SETTING["noise"], SETTING["randomiser"], population_mean=0.0, baseline=extra, rng=seeded(1)
        )
        assert one.empirical_mean == pytest.approx((-1 + 0 + 1 - 0.5) / 4)
        assert (one.trusted is not None and one.trusted.people, one.local is not None and one.local.people) == (3, 1)
        assert (one.full_local is None) is not extra
    assert one.full_local is not None
    assert one.full_local.people == 4


def test_a_group_may_be_empty_but_not_both() -> None:
    nobody, some = np.array([], dtype=np.int64), np.array([5, 6])
    kinds = (SETTING["noise"], SETTING["randomiser"])
    assert collect(nobody, some, *kinds, population_mean=0.0, rng=seeded(1)).trusted is None
    assert collect(some, nobody, *kinds, population_mean=0.0, rng=seeded(1)).local is None
    with pytest.raises(InvalidInput, match="`people`"):
        collect(nobody, nobody, *kinds, population_mean=0.0, rng=seeded(1))
    for wrong in (-1, 301):
        with pytest.raises(InvalidInput, match="`trusted_people`"):
            run(1, trusted_people=wrong)


def test_the_baselines_have_the_errors_of_the_papers() -> None:
    """E_T and E_F with Laplace noise, written out: m = 2 on [-1, 1]."""
    rules = [Rule("tcm-only"), Rule("full-lm"), Rule("lm-only")]
    found = errors(run(3000, baseline=True), rules)
    assert found.shape == (3000, 3)
    n, c, var = 300, 0.2, float(POPULATION.var())
    noise_t, noise_l = 2 * (2 / (c * n)) ** 2, 8.0
    expected = [(1 - c) * var / (c * n) + noise_t, noise_l / n, c * var / ((1 - c) * n) + noise_l / ((1 - c) * n)]
    z = (found.mean(axis=0) - expected) / (found.std(axis=0) / math.sqrt(3000))
    assert np.abs(z).max() < 4.9
    # The control: a third more error is noticed.
    z = (found.mean(axis=0) * 4 / 3 - expected) / (found.std(axis=0) / math.sqrt(3000))
    assert np.abs(z).min() > 4.9
