"""Debiasing, variances, the simplex, inverse variance and ranks, against simulation and first principles."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from hybridp.blend import heavy as blending
from hybridp.blend.heavy import Estimate, better_queries, combine, from_noisy_counts, local_estimate, project
from hybridp.blend.shares import simplex
from hybridp.noise import discrete_laplace, seeded, simulate_counts, synthetic_data_generator
from hybridp.public.heavy import HeadList, OneSlot, counting_noise
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import SlotReports
from hybridp.public.randomisers import Oracle, k_randomised_response
from hybridp.public.shuffling import Mixing
from hybridp.tasks.records import RecordsTask

HEAD = HeadList.of([("a", "1"), ("a", "2"), ("b", "1"), ("c", "1"), ("c", "2"), ("c", "3")])
# a: 1, 2, *   b: 1, *   c: 1, 2, 3, *   *
TRUTH = np.array([0.20, 0.10, 0.02, 0.15, 0.01, 0.08, 0.04, 0.02, 0.03, 0.35])
QUERIES = np.array([0.32, 0.16, 0.17, 0.35])
TRIALS = 4000


def gap(values: np.ndarray, centre: np.ndarray | float) -> np.ndarray:
    """Distance of the mean over trials from where it should be, in its own standard errors."""
    return np.asarray(np.abs(values.mean(axis=0) - centre) / (values.std(axis=0, ddof=1) / np.sqrt(len(values))))


def spread(values: np.ndarray, stated: np.ndarray) -> np.ndarray:
    """Distance of the sample variance from the mean stated one, in standard errors (normal values)."""
    ratio = values.var(axis=0, ddof=1) / stated.mean(axis=0)
    return np.asarray(np.abs(ratio - 1) / np.sqrt(2 / (len(values) - 1)))


def columns(found: list[Estimate]) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return (
        np.array([f.slots for f in found]),
        np.array([f.variances for f in found]),
        np.array([f.queries for f in found]),
        np.array([f.query_variances for f in found]),
    )


# --- clients ---


def reported(counts: Any, truth: float, other: float, people: int) -> Estimate:
    return local_estimate(HEAD, cast(Any, SimpleNamespace(truth=truth, other=other)), SlotReports(people, counts))


@pytest.mark.parametrize("n", [2, 10, 1000])
def test_no_reports_of_a_slot_is_not_certainty(n: int) -> None:
    """All reports on one slot: a slot that nobody named must not weigh more than a group that saw many people."""
    counts = np.zeros(len(HEAD), dtype=np.int64)
    counts[0] = n
    found = reported(counts, 0.99, 1e-9, n)
    assert (np.sqrt(found.variances) > 0.5 / n).all()
    assert (np.sqrt(found.query_variances) > 0.5 / n).all()


def test_an_oracles_shares_are_unbiased_with_the_right_variance() -> None:
    """Unary bits are independent: binomial supports of each slot, holders and others apart."""
    truth, other, n, draw = 0.5, 1 / (math.exp(2.0) + 1), 1000, np.random.default_rng(8)
    held = np.random.default_rng(1).multinomial(n, TRUTH, size=TRIALS)
    supports = draw.binomial(held, truth) + draw.binomial(n - held, other)
    found = [reported(c, truth, other, n) for c in supports]
    slots, variances, queries, query_variances = columns(found)
    assert gap(slots, TRUTH).max() < 5
    assert gap(queries, QUERIES).max() < 5
    assert spread(slots, variances).max() < 6
    # Holding one slot excludes the others: the sum of the variances is an upper bound, and near.
    ratio = queries.var(axis=0) / query_variances.mean(axis=0)
    assert ratio.max() < 1 + 6 * np.sqrt(2 / TRIALS)
    assert ratio.min() > 0.7


# --- trusted people: Alg. 2.3 ---


def opt_in_trials(merged: int, claimed: int, seed: int = 3) -> tuple[np.ndarray, ...]:
    """Noisy counts of 300 people; the last slot carries `merged` + 1 noise draws and claims `claimed` + 1."""
    noise, n, draw = counting_noise(ApproxDP(1.0, 1e-4)), 300, np.random.default_rng(seed)
    r = np.exp(-1 / noise.scale)
    counts = draw.multinomial(n, TRUTH, size=TRIALS)

    def laplace(*shape: int) -> np.ndarray:  # a difference of two geometric numbers
        return draw.geometric(1 - r, size=shape) - draw.geometric(1 - r, size=shape)

    noisy = counts + laplace(TRIALS, len(HEAD))
    noisy[:, -1] += laplace(TRIALS, merged).sum(axis=1)
    variance = np.full(len(HEAD), noise.variance)
    variance[-1] *= claimed + 1
    return columns([from_noisy_counts(HEAD, c.astype(float), n, variance) for c in noisy])


def test_opt_in_is_unbiased_with_the_right_variance_where_records_are_merged() -> None:
    """Errata 19: j merged records bring j more noise draws. Stated variances are unbiased where no floor acts."""
    slots, variances, queries, query_variances = opt_in_trials(merged=5, claimed=5)
    assert gap(slots, TRUTH).max() < 5
    assert gap(queries, QUERIES).max() < 5
    held = TRUTH > 0.05  # a share of a few noise scales: the floor at one person's share does not act
    assert spread(slots, variances)[held].max() < 7
    assert spread(queries, query_variances).max() < 7
    # Rare slots: the floor makes the stated variance larger, never smaller.
    assert (variances.mean(axis=0) > 0.9 * slots.var(axis=0)).all()


def test_a_merged_wildcard_that_claims_one_draw_is_noticed() -> None:
    slots, variances, _, _ = opt_in_trials(merged=5, claimed=0)
    assert spread(slots, variances)[-1] > 7


def test_one_opt_in_person_knows_nothing() -> None:
    found = from_noisy_counts(HEAD, np.ones(len(HEAD)), 1, np.ones(len(HEAD)))
    assert np.isinf(found.variances).all()


# --- both groups ---


def estimate(slots: np.ndarray, variances: np.ndarray, head: HeadList = HEAD) -> Estimate:
    sums = np.bincount(head.query_of, weights=slots), np.bincount(head.query_of, weights=variances)
    return Estimate(slots, variances, *sums)


def test_combining_is_weighted_least_squares() -> None:
    """The minimiser of sum (x - e_i)^2/v_i, slot by slot, with the inverse of its curvature as variance."""
    draw = np.random.default_rng(5)
    parts = [estimate(draw.normal(size=10), draw.uniform(0.1, 2, 10)) for _ in range(3)]
    found = combine(parts)
    for i in range(10):
        design, target = np.ones((3, 1)), np.array([p.slots[i] for p in parts])
        weight = np.sqrt([1 / p.variances[i] for p in parts])
        best = np.linalg.lstsq(design * weight[:, None], target * weight, rcond=None)[0][0]
        assert found.slots[i] == pytest.approx(best, rel=1e-9)
        assert found.variances[i] == pytest.approx(1 / (weight**2).sum(), rel=1e-9)
    assert combine(parts[:1]).slots == pytest.approx(parts[0].slots)
    assert combine(parts[::-1]).queries == pytest.approx(found.queries)


def test_who_knows_nothing_changes_nothing() -> None:
    known, unknown = estimate(TRUTH, np.full(10, 0.01)), estimate(np.full(10, 9.0), np.full(10, np.inf))
    assert combine([known, unknown]).slots == pytest.approx(TRUTH)
    nobody = combine([unknown, unknown])
    assert (nobody.slots.tolist(), nobody.variances.tolist()) == ([0.0] * 10, [np.inf] * 10)


def test_projected_slots_and_queries_agree() -> None:
    draw = np.random.default_rng(9)
    found = project(HEAD, estimate(TRUTH + draw.normal(0, 0.05, 10), np.full(10, 0.0025)))
    assert found.slots.min() >= 0
    assert found.slots.sum() == pytest.approx(1)
    assert np.bincount(HEAD.query_of, weights=found.slots) == pytest.approx(found.queries)


def test_unknown_wildcards_leave_the_records_alone() -> None:
    """Only the discovery group spoke: it says nothing of wildcards, and everything else has what is left."""
    records = HEAD.is_record
    part = Estimate(
        np.where(records, TRUTH, 0.0), np.where(records, 1e-4, np.inf), np.zeros(4), np.full(4, np.inf)
    )  # fmt: skip
    found = project(HEAD, better_queries(HEAD, combine([part])))
    assert found.slots[records] == pytest.approx(TRUTH[records])
    assert found.slots[-1] == pytest.approx(1 - TRUTH[records].sum())
    assert np.isinf(found.query_variances).all()


def test_a_querys_better_estimate_counts() -> None:
    own = np.array([0.5, 0.1, 0.1, 0.3])
    for variance, expected in [(1e-6, own), (1.0, QUERIES)]:
        found = better_queries(HEAD, Estimate(TRUTH, np.full(10, 1e-2), own, np.full(4, variance)))
        assert found.queries == pytest.approx(expected)
        assert found.slots == pytest.approx(TRUTH)
        assert found.query_variances.max() <= max(variance, 0.04)


def test_a_small_group_that_sees_nothing_does_not_pull_down() -> None:
    """Counts among 100 people beside clients of standard error .014: weights that follow the luck of the former bias
    the blend of rare slots, weights at the blended probabilities hardly. Bias in standard deviations of the blend.
    """
    draw, noise, flat = np.random.default_rng(21), np.full(10, 0.2), np.full(10, 0.014**2)
    blended, lucky = [], []
    for _ in range(TRIALS):
        counted = from_noisy_counts(HEAD, draw.multinomial(100, TRUTH).astype(np.float64), 100, noise)
        parts = [counted, estimate(TRUTH + draw.normal(0, 0.014, 10), flat)]
        blended.append(combine(parts).slots)
        lucky.append(np.average([p.slots for p in parts], axis=0, weights=[1 / p.variances for p in parts]))
    shared = (np.mean(blended, axis=0) - TRUTH) / np.std(blended, axis=0)
    own = (np.mean(lucky, axis=0) - TRUTH) / np.std(lucky, axis=0)
    assert np.abs(shared).max() < 0.1
    assert own[TRUTH < 0.05].mean() < -0.12


numbers = st.lists(st.floats(-2, 2), min_size=1, max_size=8).map(np.array)


# --- ranks ---


def test_ranks_of_clear_differences_are_the_order() -> None:
    values = np.random.default_rng(3).permutation(1200) / 1200  # more than one strip of pairs
    best, worst = blending.rank_ranges(values, np.full(1200, 1e-6))
    assert np.array_equal(best, worst)
    assert np.array_equal(best, stats.rankdata(-values))


def test_equal_shares_of_the_same_people_are_rarely_told_apart() -> None:
    """Two records of 45 % each at a level of 95 %: some 5 % of trials tell them apart. As if independent, 14 % do."""
    counts = np.random.default_rng(1).multinomial(1000, [0.45, 0.45, 0.1], size=2000)[:, :2] / 1000
    apart = [blending.rank_ranges(p, np.sqrt(p * (1 - p) / 1000))[1].min() == 1 for p in counts]
    assert 0.03 < np.mean(apart) < 0.07


@given(numbers, st.floats(0.001, 1), st.floats(0.5, 0.99))
def test_rank_ranges_hold_the_rank_and_shrink_with_the_error(values: np.ndarray, error: float, level: float) -> None:
    best, worst = blending.rank_ranges(values, np.full(len(values), error), level)
    wide_best, wide_worst = blending.rank_ranges(values, np.full(len(values), 2 * error), level)
    assert (best <= stats.rankdata(-values, method="min")).all()
    assert (stats.rankdata(-values, method="max") <= worst).all()
    assert (wide_best <= best).all()
    assert (worst <= wide_worst).all()
    assert (best >= 1).all()
    assert (worst <= len(values)).all()


def test_unknown_values_may_have_any_rank() -> None:
    best, worst = blending.rank_ranges(np.array([0.5, 0.1, 0.2]), np.array([np.inf, 1e-3, 1e-3]))
    assert (best.tolist(), worst.tolist()) == ([1, 2, 1], [3, 3, 2])


@pytest.mark.parametrize("seed", range(4))
def test_a_weighted_projection_is_the_nearest_point(seed: int) -> None:
    """Karush-Kuhn-Tucker: where something is left, (v - x)/w is one number; elsewhere v/w is at most that number."""
    draw = np.random.default_rng(seed)
    values, weights = draw.normal(0.1, 0.3, 12), draw.uniform(0.01, 2, 12)
    found = simplex(values, weights)
    assert found.sum() == pytest.approx(1.0)
    assert (found >= 0).all()
    slope = ((values - found) / weights)[found > 0]
    assert slope == pytest.approx(np.full(len(slope), slope[0]))
    assert (values[found == 0] / weights[found == 0] <= slope[0] + 1e-12).all()
    assert simplex(values, np.full(12, 3.0)) == pytest.approx(simplex(values))


# --- lies -------------------------------------------------------------------------------------------------------------


def both(trusted: int, local: int, seed: int, epsilon: float = 2.0) -> tuple[list[Estimate], SlotReports, Oracle]:
    """What trusted people count, with Laplace noise, and reports by k-ary randomised response."""
    draw = np.random.default_rng(seed)
    oracle = k_randomised_response(PureDP(epsilon), len(TRUTH))
    noise = counting_noise(ApproxDP(epsilon, 1e-6))
    noisy = draw.multinomial(trusted, TRUTH) + draw.laplace(0, noise.scale, len(TRUTH))
    own = from_noisy_counts(HEAD, noisy, trusted, np.full(len(TRUTH), noise.variance))
    seen = TRUTH * oracle.truth + (1 - TRUTH) * oracle.other
    return [own], SlotReports(local, draw.multinomial(local, seen / seen.sum())), oracle


@given(named=st.lists(st.floats(0, 1), min_size=len(TRUTH), max_size=len(TRUTH)), seed=st.integers(0, 3))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_no_reports_whatever_move_a_record_beyond_what_is_said(named: list[float], seed: int) -> None:
    """Neither the leash nor the stated error come from them; the plain blend, the control, is pulled farther."""
    trusted, told, oracle = both(400, 4000, seed)
    lies = SlotReports(4000, np.rint(np.array(named) * 4000).astype(np.int64))
    (honest,), leash, _ = blending.held(HEAD, trusted, [(oracle, told)], "anchored")
    (found,), anchor, _ = blending.held(HEAD, trusted, [(oracle, lies)], "anchored")
    assert anchor is not None
    assert leash is not None
    assert (np.abs(found.slots - trusted[0].slots) <= anchor.most * (1 + 1e-12)).all()
    assert anchor.most.tolist() == leash.most.tolist()
    assert found.variances.tolist() == honest.variances.tolist()
    blended = blending.blend_heavy(HEAD, [found], anchor)
    assert (np.abs(blended.centres - trusted[0].slots) <= anchor.most * (1 + 1e-12)).all()
    pulled = blending.held(HEAD, trusted, [(oracle, SlotReports(4000, np.full(len(TRUTH), 4000)))], "hybrid")[0]
    assert (np.abs(combine(pulled).slots - trusted[0].slots) > anchor.most).any()


def test_the_leash_of_a_record_is_so_many_standard_errors_of_the_groups_difference() -> None:
    trusted, told, oracle = both(400, 4000, 1)
    anchor = blending.held(HEAD, trusted, [(oracle, told)], "anchored")[1]
    assert anchor is not None
    p = np.clip(trusted[0].slots, 0, 1)
    noise = counting_noise(ApproxDP(2.0, 1e-6)).variance
    v_t = np.maximum(trusted[0].slots * (1 - trusted[0].slots), 1 / 400) / 400 + noise / 400**2
    v_l = np.array([oracle.variance(x) for x in p.tolist()]) / 4000
    np.testing.assert_allclose(anchor.most, 1.5 * v_t / np.sqrt(v_t + v_l), rtol=1e-9)


def test_by_default_records_are_held_where_that_costs_little_and_honest_people_pay_no_more() -> None:
    squared = {"alike": 0.0, "hybrid": 0.0}
    for seed in range(400):
        trusted, told, oracle = both(1000, 4000, seed)
        for name in squared:
            estimates, anchor, default = blending.held(HEAD, trusted, [(oracle, told)], name)  # type: ignore[arg-type]
            assert (anchor is not None) == (name == "alike")
            assert default is None or default.cost <= 0.03
            squared[name] += float(np.sum((combine(estimates).slots - TRUTH) ** 2))
    assert np.sqrt(squared["alike"] / squared["hybrid"]) < 1.04
    few, told, oracle = both(4, 40_000, 1)
    _, anchor, default = blending.held(HEAD, few, [(oracle, told)], "alike")
    assert anchor is None
    assert default is not None
    assert default.reach is None


def test_what_trusted_people_say_nothing_of_is_not_held() -> None:
    trusted, told, oracle = both(1000, 4000, 1)
    unknown = trusted[0].variances.copy()
    unknown[-1] = np.inf
    own = Estimate(trusted[0].slots, unknown, trusted[0].queries, trusted[0].query_variances)
    (found,), anchor, _ = blending.held(HEAD, [own], [(oracle, told)], "anchored")
    assert anchor is not None
    assert np.isinf(anchor.most[-1])
    assert found.slots[-1] == pytest.approx((told.counts[-1] / 4000 - oracle.other) / (oracle.truth - oracle.other))
    assert blending.held(HEAD, [], [(oracle, told)], "anchored")[1] is None
    assert blending.held(HEAD, trusted, [(OneSlot(), told)], "anchored")[1] is None


# --- three groups ---

PROMISE, FIVE = ApproxDP(1.0, 1e-5), HeadList.of([(name,) for name in "abcde"], 1)
SIX = np.array([0.3, 0.2, 0.15, 0.1, 0.05, 0.2])
PEOPLE_OF = {"trusted": 300, "shuffled": 1500, "local": 5000}
MIXING = Mixing.planned(PROMISE, PEOPLE_OF["shuffled"])
STUDY = RecordsTask(PROMISE, depth=1, mixing=MIXING)


def test_the_groups_count_by_their_variance_and_lies_through_a_mixer_are_held() -> None:
    """Over 200 collections, from public laws. Controls: without the mixer's people, and where reports are not held."""
    noise, local = counting_noise(PROMISE), STUDY.invite_to(FIVE).mechanism
    invited = STUDY.mixed_of(STUDY.invite_to(FIVE))
    assert invited is not None
    mixed = invited.mechanism
    assert (local.guarantee.epsilon, mixed.guarantee.epsilon) == (1.0, MIXING.epsilon)  # type: ignore[union-attr]
    errors, alone = [], []
    for seed in range(200):
        rng = seeded(seed)
        held = [synthetic_data_generator(rng).choice(6, n, p=SIX) for n in PEOPLE_OF.values()]
        noisy = np.bincount(held[0], minlength=6) + discrete_laplace(noise.scale, 6, rng=rng)
        own = from_noisy_counts(FIVE, noisy.astype(np.float64), PEOPLE_OF["trusted"], np.full(6, noise.variance))
        batch = SlotReports(len(held[1]), simulate_counts(mixed, held[1], rng=rng))  # type: ignore[arg-type]
        sent = SlotReports(len(held[2]), simulate_counts(local, held[2], rng=rng))  # type: ignore[arg-type]
        three = combine(blending.held(FIVE, [own], [(local, sent), (mixed, batch)], "hybrid")[0])
        errors.append(three.slots - SIX)
        alone.append(combine(blending.held(FIVE, [own], [(local, sent)], "hybrid")[0]).slots - SIX)
    information = PEOPLE_OF["trusted"] ** 2 / (PEOPLE_OF["trusted"] * SIX * (1 - SIX) + noise.variance)
    for oracle, group in ((local, "local"), (mixed, "shuffled")):
        information += np.array([PEOPLE_OF[group] / oracle.variance(p) for p in SIX])  # type: ignore[union-attr]
    rmse, worse = (np.sqrt(np.mean(np.square(e), axis=0)) for e in (errors, alone))
    np.testing.assert_allclose(rmse, information**-0.5, rtol=5 / math.sqrt(400))
    assert (worse > 1.3 * rmse).all()
    np.testing.assert_allclose(np.sqrt(three.variances), information**-0.5, rtol=0.15)
    # Everybody who came through the mixer names the rarest record: no farther than was said, whatever they say.
    lies = SlotReports(batch.people, np.where(np.arange(6) == 4, batch.people, 0))
    (honest,), leash, _ = blending.held(FIVE, [own], [(local, sent), (mixed, batch)], "anchored")
    (found,), anchor, _ = blending.held(FIVE, [own], [(local, sent), (mixed, lies)], "anchored")
    assert leash is not None
    assert anchor is not None
    np.testing.assert_array_equal(anchor.most, leash.most)  # nothing that decides how far comes from reports
    assert (np.abs(found.slots - own.slots) <= anchor.most + 1e-12).all()
    assert abs(anchor.plain[4] - own.slots[4]) > 3 * anchor.most[4]
    assert np.abs(honest.slots - leash.plain).max() < anchor.most.max()
