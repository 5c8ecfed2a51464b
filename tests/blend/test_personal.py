"""One estimate from both groups: its special cases, the learned variance, and how often the interval covers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from hybridp.blend.mean import Rule, Spread, blend, combine, learn_variance, local_mean
from hybridp.curator.models import release_weighted_sum
from hybridp.curator.sums import Raw, release_sums
from hybridp.device.reports import randomise_own
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import LocalSummary, ReportsByEpsilon, Setting, WeightedSum, kvh_weight, sum_noise
from hybridp.public.personal import adpm_weights, local_terms
from hybridp.public.randomisers import LEVELS, Bounds, best_randomiser

UNIT = Bounds(-1, 1)


def added_up(reports: Any, epsilons: Any) -> ReportsByEpsilon:
    distinct, inverse, people = np.unique(epsilons, return_inverse=True, return_counts=True)
    size = len(distinct)
    sums, squares = (np.bincount(inverse, weights=x, minlength=size) for x in (reports, reports**2))
    return ReportsByEpsilon(distinct, people, sums, squares)


def reported(values: Any, epsilons: Any, seed: int) -> ReportsByEpsilon:
    return added_up(randomise_own(UNIT.levels(values), epsilons, UNIT, rng=seeded(seed)), epsilons)


NOBODY = added_up(np.zeros(0), np.zeros(0))
EPS, PEOPLE = np.array([0.1, 0.6, 4.0]), np.array([500, 200, 50])


def trusted_release(variance: float = 0.3, seed: int = 1) -> tuple[WeightedSum, Any]:
    weights = adpm_weights(EPS, counts=PEOPLE, width=2.0, variance=variance).weight
    sums = (PEOPLE * (LEVELS * 0.6)).astype(np.int64)
    return release_weighted_sum(EPS, PEOPLE, sums, weights, rng=seeded(seed)), PEOPLE.astype(float)


# --- special cases ---


def test_without_local_people_it_is_adpm() -> None:
    """Worst-case variance, nobody local: the trusted release itself, with the error of adpm_weights."""
    trusted, people = trusted_release(variance=1.0)
    found = combine(trusted, people, NOBODY, Spread())
    assert (found.weight, found.estimate, found.disagreement) == (1.0, trusted.mean, None)
    want = adpm_weights(EPS, counts=PEOPLE, width=2.0)
    assert found.error.variance == pytest.approx(want.mse, rel=1e-8)
    np.testing.assert_allclose(trusted.weights, want.weight, rtol=1e-9)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 1.5])
@pytest.mark.parametrize(("k", "n_l", "sd"), [(50, 4000, 0.3), (1000, 1000, 0.6), (5, 300, 0.1)])
def test_with_one_epsilon_the_weight_is_that_of_kvh(epsilon: float, k: int, n_l: int, sd: float) -> None:
    """Three computations of one number: this blend, the mean's blend told the variance, and the paper's formula."""
    draw = np.random.default_rng(k)
    values = draw.uniform(-0.5, 0.5, n_l)
    reports = reported(values, np.full(n_l, epsilon), 3)
    level_sum = int(LEVELS * k * 0.4)
    weighted = release_weighted_sum(
        np.array([epsilon]), np.array([k]), np.array([level_sum]), np.array([1.0]), rng=seeded(9)
    )
    found = combine(weighted, np.array([float(k)]), reports, Spread(sd**2, sd**2))
    randomiser = best_randomiser(PureDP(epsilon))
    local = LocalSummary(n_l, float(reports.totals[0]), float(reports.squares[0]), randomiser)
    (plain,) = release_sums(Raw(k, [level_sum], local), sum_noise(PureDP(epsilon)), Bounds(0, 1), rng=seeded(9))
    same = blend(plain, local, Rule("kvh", sd=sd))
    setting = Setting(
        n=k + n_l, c=k / (k + n_l), var_t=sd**2, noise_t=8 / (epsilon * k) ** 2, noise_l=randomiser.worst_variance
    )
    assert found.weight == pytest.approx(same.weight, rel=1e-8)
    assert found.weight == pytest.approx(float(kvh_weight(setting)), rel=1e-8)
    assert weighted.laplace_scale == pytest.approx(plain.laplace_scale, rel=1e-8)
    blended = found.weight * weighted.mean + (1 - found.weight) * reports.totals[0] / n_l
    assert found.estimate == pytest.approx(blended, rel=1e-12)


def test_the_weights_are_those_of_the_optimum() -> None:
    """Dithered reports, whose noise does not depend on the data: each half by the inverse of its error."""
    own = np.repeat([0.0005, 0.2, 1.1], [7, 300, 400])
    reports = reported(np.random.default_rng(1).uniform(-1, 1, own.size), own, 2)
    trusted, people = trusted_release()
    found = combine(trusted, people, reports, Spread(0.3, 0.3))
    half_t = 1 / adpm_weights(EPS, variance=0.3, width=2.0, counts=PEOPLE).mse
    half_l = float(np.sum(1 / (0.3 + local_terms(own).constant)))
    assert found.weight == pytest.approx(half_t / (half_t + half_l), rel=1e-8)
    assert found.error.variance == pytest.approx(1 / (half_t + half_l), rel=1e-8)
    alone = combine(None, people, reports, Spread(0.3, 0.3))
    assert alone.weight == 0
    assert alone.estimate == pytest.approx(local_mean(reports, 0.3), rel=1e-12)
    assert alone.error.variance == pytest.approx(1 / half_l, rel=1e-8)


def test_whoever_is_silent_does_not_count() -> None:
    trusted, people = trusted_release()
    values = np.random.default_rng(1).uniform(-1, 1, 300)
    quiet = ReportsByEpsilon(np.array([0.0, 0.0001]), np.array([40, 3]), np.array([9e5, 5.0]), np.array([1e9, 9.0]))
    heard = reported(values, np.full(300, 0.7), 4)
    both = ReportsByEpsilon(*(np.concatenate([a, b]) for a, b in zip(_fields(quiet), _fields(heard), strict=True)))
    assert learn_variance(both) == learn_variance(heard)
    spread = learn_variance(heard)
    assert combine(trusted, people, both, spread) == combine(trusted, people, heard, spread)
    assert learn_variance(quiet) == Spread() == learn_variance(NOBODY)
    assert combine(trusted, people, quiet, Spread()).weight == 1
    with pytest.raises(InvalidInput, match=r"^`epsilons` "):
        combine(None, people, quiet, Spread())


def _fields(reports: ReportsByEpsilon) -> tuple[Any, ...]:
    return reports.epsilons, reports.people, reports.totals, reports.squares


# --- the learned variance ---


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.5, 8.0])
@pytest.mark.parametrize("n", [500, 50_000])
def test_the_learned_variance_is_the_means_own_for_one_epsilon(epsilon: float, n: int) -> None:
    """Exactly for the dithered bit; piecewise reports differ in the spread that is assumed for their own error."""
    values = np.random.default_rng(5).beta(2, 3, n) * 2 - 1
    reports = reported(values, np.full(n, epsilon), 6)
    randomiser = best_randomiser(PureDP(epsilon))
    local = LocalSummary(n, float(reports.totals[0]), float(reports.squares[0]), randomiser)
    want = blend(None, local, Rule("adaptive")).variance
    assert learn_variance(reports).used == pytest.approx(want, rel=1e-6 if epsilon < 2 else 0.1)


MIXED = np.repeat([0.0, 0.3, 1.0, 2.5, 8.0], [500, 4000, 3000, 2000, 500])


def learned(runs: int, draw: Any, scale: float = 1.0) -> list[Spread]:
    values = [scale * (2 * draw.beta(2, 3, MIXED.size) - 1) for _ in range(runs)]
    order = [draw.permutation(MIXED.size) for _ in range(runs)]
    return [learn_variance(reported(v, MIXED[o], i)) for i, (v, o) in enumerate(zip(values, order, strict=True))]


def test_the_learned_variance_is_unbiased_and_its_upper_limit_is_one() -> None:
    """Beta(2,3) on [-1,1] has variance .16; the control, data 10 % wider, is told apart."""
    found = learned(150, np.random.default_rng(8))
    used = np.array([s.used for s in found])
    se = used.std(ddof=1) / math.sqrt(used.size)
    assert abs(used.mean() - 0.16) < 5 * se
    assert all(s.learned for s in found)
    # A one-sided 95 % limit: at most 15 of 150 below the truth has probability 1 - 5e-4 at 5 %, and it is cautious.
    assert sum(s.upper < 0.16 for s in found) <= 15
    wider = np.array([s.used for s in learned(150, np.random.default_rng(8), scale=1.1)])
    assert abs(wider.mean() - 0.16) > 5 * se


# --- the interval ---


def covered(runs: int, stretch: float) -> int:
    """How often the 95 % interval, stretched, covers the mean -1/5 of Beta(2,3), with every estimate learned."""
    draw = np.random.default_rng(12)
    eps_t, many = np.array([0.1, 0.5, 5.0]), np.array([60, 60, 30])
    own = np.repeat([0.1, 0.5, 2.5], [600, 600, 300])
    hits = 0
    for i in range(runs):
        reports = reported(2 * draw.beta(2, 3, own.size) - 1, own, i)
        spread = learn_variance(reports)
        levels = UNIT.levels(2 * draw.beta(2, 3, int(many.sum())) - 1)
        sums = np.add.reduceat(levels, [0, 60, 120])
        weights = adpm_weights(eps_t, counts=many, width=2.0, variance=spread.used).weight
        trusted = release_weighted_sum(eps_t, many, sums, weights, rng=seeded(10_000 + i))
        found = combine(trusted, many.astype(float), reports, spread)
        hits += abs(found.estimate + 0.2) <= stretch * found.half_width(0.95)
    return hits


def test_the_interval_covers_and_a_narrower_one_does_not() -> None:
    """600 runs have a standard error of .9 % at 95 %; with half the width they cover far less."""
    assert covered(600, 1.0) >= 0.93 * 600
    assert covered(200, 0.5) < 0.85 * 200
