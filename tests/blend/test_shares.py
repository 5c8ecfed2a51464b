"""Blended shares against formulas and simulations made here."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hybridp import noise
from hybridp.blend.shares import blend_shares, to_simplex
from hybridp.device.reports import simulated_reports
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public.mechanisms import DiscreteLaplace, PureDP
from hybridp.public.messages import Invite
from hybridp.public.queries import Feature
from hybridp.public.randomisers import k_randomised_response, share_oracle
from hybridp.public.shares import (
    CountNoise,
    NoisyCounts,
    ShareReports,
    count_noise,
    tick_noise,
)

RARE = [0.01, 0.09, 0.3, 0.6]


def groups(p: list[float], epsilon: float, trusted: int, local: int, seed: int) -> tuple[NoisyCounts, ShareReports]:
    rng, people = seeded(seed), np.random.default_rng(seed)
    question = Feature.categorical("c", [f"o{i}" for i in range(len(p))])
    stated = count_noise(PureDP(epsilon), len(p))
    counts = people.multinomial(trusted, p)[: stated.draws]
    drawn = noise.discrete_laplace(stated.mechanism.scale, stated.draws, rng=rng)  # type: ignore[union-attr]
    own = NoisyCounts(trusted, tuple((counts + drawn).tolist()), stated)
    invite = Invite(question, share_oracle(PureDP(epsilon), len(p)))
    return own, simulated_reports(people.multinomial(local, p), invite, rng=rng)


def test_the_weight_is_the_inverse_of_the_variances_of_warner_and_laplace() -> None:
    """V_T = p(1-p)/k + 2 r/(1-r)^2/k^2 with r = e^-epsilon; V_L = p(1-p)/n + e/(e-1)^2/n (Warner 1965)."""
    own, told = groups([0.3, 0.7], 1.0, 500, 20_000, 1)
    found = blend_shares(own, told, "hybrid")
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


@pytest.mark.parametrize(
    ("p", "epsilon", "name"),
    [([0.3, 0.7], 1.0, "everyone"), (RARE, 0.5, "everyone"), (RARE, 0.5, "hybrid"), (RARE, 0.5, "anchored")],
)
def test_intervals_cover_and_the_test_keeps_its_level(p: list[float], epsilon: float, name: Any) -> None:
    runs, truth = 120, np.array(p)
    inside = together = narrow = alarms = 0
    for seed in range(runs):
        found = blend_shares(*groups(p, epsilon, 200, 3000, seed), name)
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


def test_ticks_of_which_groups_say_the_same_have_a_p_value_of_one() -> None:
    """Of two options the groups differ in the first alone: with Holm the second has its own p-value, which is 1."""
    question = Feature("ways", ("train", "car"), most=2)
    own = NoisyCounts(1000, (900, 500), tick_noise(PureDP(500.0), question))
    told = ShareReports(2000, np.array([100, 900, 500, 500]), k_randomised_response(PureDP(20.0), 2))
    first, second = blend_shares(own, told).p_values() or ()
    assert first < 1e-9
    assert second == pytest.approx(1.0)


@pytest.mark.parametrize("trusted", [200, 1500])
def test_groups_that_differ_are_counted_by_their_people_and_the_interval_covers(trusted: int) -> None:
    """By whom they count: k/(k + n) of the trusted shares. A blend that takes the groups to be alike misses."""
    p_t, p_l, local = np.array([0.75, 0.2, 0.05]), np.array([0.35, 0.35, 0.3]), 3000
    c = trusted / (trusted + local)
    truth, apart = c * p_t + (1 - c) * p_l, p_t - p_l
    runs, held, gaps, alike = 120, 0, 0, 0
    for seed in range(runs):
        own, _ = groups(p_t.tolist(), 1.0, trusted, 1, seed)
        _, told = groups(p_l.tolist(), 1.0, 1, local, 10_000 + seed)
        found = blend_shares(own, told)
        assert found.weights == pytest.approx([c] * 3)
        low, high = found.intervals(0.95)
        held += int(((low <= truth) & (truth <= high)).sum())
        widths = found.gap_widths(0.95)
        assert found.trusted is not None
        assert found.local is not None
        assert widths is not None
        gaps += int((np.abs(found.trusted - found.local - apart) <= widths).sum())
        low, high = blend_shares(own, told, "hybrid").intervals(0.95)
        alike += int(((low <= truth) & (truth <= high)).sum())
    for inside in (held, gaps):
        assert stats.binomtest(inside, 3 * runs, 0.95, alternative="less").pvalue > 1e-4
    assert alike < 0.5 * 3 * runs


def test_a_third_group_counts_by_its_people_too() -> None:
    own, _ = groups([0.5, 0.5], 1.0, 1000, 1, 1)
    _, told = groups([0.2, 0.8], 1.0, 1, 6000, 2)
    _, mixed = groups([0.8, 0.2], 4.0, 1, 3000, 3)
    found = blend_shares(own, told, "everyone", mixed)
    assert found.parts == pytest.approx((2 / 3, 1 / 3))
    parts = [own.shares, *(blend_shares(None, one).estimate for one in (told, mixed))]
    assert found.estimate == pytest.approx(0.1 * parts[0] + 0.6 * parts[1] + 0.3 * parts[2])
    half = blend_shares(own, told, answering=0.5)  # every second local person was asked, and speaks for two
    assert half.weights[0] == pytest.approx(1000 / 13_000)


def test_one_group_alone_is_the_estimate_and_nobody_is_refused() -> None:
    own, told = groups([0.3, 0.7], 1.0, 500, 2000, 1)
    assert blend_shares(own, told, "tcm-only").estimate.tolist() == own.shares.tolist()
    assert blend_shares(None, told).estimate.tolist() == blend_shares(own, told, "lm-only").estimate.tolist()
    with pytest.raises(InvalidInput, match="people"):
        blend_shares(None, None)


@pytest.mark.parametrize(("size", "sensitivity"), [(2, 0), (3, 1), (50, 1)])
def test_noise_for_a_smaller_move_is_refused(size: int, sensitivity: int) -> None:
    with pytest.raises(InvalidInput, match="sensitivity"):
        CountNoise(DiscreteLaplace(PureDP(1.0), sensitivity, 5.0), size)


# --- lies -------------------------------------------------------------------------------------------------------------


@given(
    named=st.lists(st.floats(0, 1), min_size=4, max_size=4),
    seed=st.integers(0, 3),
    few=st.sampled_from([30, 300, 3000]),
)
@settings(max_examples=150, deadline=None, derandomize=True)
def test_no_reports_whatever_move_an_anchored_share_beyond_what_it_says(
    named: list[float], seed: int, few: int
) -> None:
    """Not even counts that no devices could send; and neither weight, leash nor the stated error come from them."""
    own, told = groups(RARE, 1.0, few, 9 * few, seed)
    lies = ShareReports(told.people, np.rint(np.array(named) * told.people).astype(np.int64), told.oracle)
    honest, found = blend_shares(own, told, "anchored"), blend_shares(own, lies, "anchored")
    assert found.anchor is not None
    assert honest.anchor is not None
    assert (np.abs(found.estimate - own.shares) <= found.anchor.most * (1 + 1e-12)).all()
    assert found.anchor.most.tolist() == honest.anchor.most.tolist()
    assert found.weights.tolist() == honest.weights.tolist()
    at = np.full(4, 0.25)
    assert found.errors(at)[0].tolist() == honest.errors(at)[0].tolist()
    moved = to_simplex(found.estimate) - to_simplex(own.shares)
    assert np.linalg.norm(moved) <= np.linalg.norm(found.anchor.most) * (1 + 1e-9)
    np.testing.assert_allclose(
        found.anchor.plain, own.shares + (1 - found.weights) * (blend_shares(None, lies).estimate - own.shares)
    )


def test_the_leash_is_so_many_standard_errors_of_the_groups_difference() -> None:
    """Warner's and the Laplace noise's variances, by hand, at the trusted share."""
    own, told = groups([0.3, 0.7], 1.0, 500, 4000, 1)
    found = blend_shares(own, told, "anchored")
    p, r, e = own.shares[0], math.exp(-1), math.e
    v_t = p * (1 - p) / 500 + 2 * r / (1 - r) ** 2 / 500**2
    v_l = p * (1 - p) / 4000 + e / (e - 1) ** 2 / 4000
    assert found.anchor is not None
    assert found.anchor.most[0] == pytest.approx(1.5 * v_t / math.sqrt(v_t + v_l), rel=1e-9)
    assert found.weights[0] == pytest.approx(v_l / (v_t + v_l), rel=1e-9)


def test_by_default_the_reports_are_held_where_that_costs_little() -> None:
    for trusted, local, name in ((2000, 18_000, "anchored"), (20, 19_980, "hybrid"), (15_000, 5_000, "anchored")):
        own, told = groups([0.25] * 4, 1.0, trusted, local, 1)
        found = blend_shares(own, told, "alike")
        assert found.estimator == name
        assert found.default is not None
        assert (found.anchor is not None) == (name == "anchored") == (found.default.cost <= 0.03)
        if name == "hybrid":
            assert found.estimate.tolist() == blend_shares(own, told, "hybrid").estimate.tolist()
    assert blend_shares(own, None, "alike").default is None


def test_ticks_of_two_mechanisms_are_heard_option_by_option_by_the_people_who_drew_it() -> None:
    """Each group's own shares by the textbook's formula, (yes/n - q)/(p - q), weighed by people; one option that no
    device of a group drew has the other's."""
    weak, strong = k_randomised_response(PureDP(1.0), 2), k_randomised_response(PureDP(3.0), 2)
    sent = [ShareReports(300, np.array([60, 40, 90, 110]), weak), ShareReports(100, np.array([0, 0, 80, 20]), strong)]
    found = blend_shares(None, sent[0], "everyone", sent[1])
    told = ((60, 100, weak), (90, 200, weak), (80, 100, strong))
    own = [(yes / n - made.other) / (made.truth - made.other) for yes, n, made in told]
    assert found.estimate == pytest.approx([own[0], (200 * own[1] + 100 * own[2]) / 300])
