"""Differences and private categories: published numbers, independent computations, and coverage with a fixed seed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hybridp.blend.groups import JointBlend, apart, blend_joint, mean_gaps, pair_chances, published_gap
from hybridp.blend.mean import Blend, Rule, blend, weighted
from hybridp.blend.shares import blend_shares, weighted_shares
from hybridp.errors import InvalidInput
from hybridp.noise import oracle_reports, seeded
from hybridp.public.groups import STEPS, Grouping, Joint
from hybridp.public.mechanisms import PureDP, discrete_laplace
from hybridp.public.messages import LocalSummary, TrustedSummary, sum_noise
from hybridp.public.queries import Feature
from hybridp.public.randomisers import (
    LEVELS,
    Bounds,
    dithered_bit,
    k_randomised_response,
    randomiser,
    share_oracle,
    support_counts,
)
from hybridp.public.shares import NoisyCounts, ShareReports, count_noise
from hybridp.release.release import Receipt, Release
from hybridp.release.waves import compare_waves

TRIALS = 200


def test_the_interval_of_a_difference_is_newcombes() -> None:
    """Newcombe 1998, Table II, method 10: 56 of 70 against 48 of 80 gives 0.0524 to 0.3339."""
    wilson = [stats.binomtest(x, n).proportion_ci(method="wilson") for x, n in ((56, 70), (48, 80))]
    ends = [(np.array([w.low]), np.array([w.high])) for w in wilson]
    low, high = apart(np.array([0.8]), ends[0], np.array([0.6]), ends[1])
    assert (round(float(low[0]), 4), round(float(high[0]), 4)) == (0.0524, 0.3339)
    together = apart(np.array([0.8]), ends[0], np.array([0.6]), ends[1], 0.5)
    assert float(together[1][0] - together[0][0]) < float(high[0] - low[0])


def test_small_groups_are_merged_or_withheld_by_one_rule() -> None:
    asked = Grouping("dept", least=10)
    assert asked.arranged({"a": 10, "b": 9, "c": 1}) == ({"a": ("a",), "other": ("b", "c")}, ())
    assert asked.arranged({"a": 10, "b": 9}) == ({"a": ("a",)}, ("b",))
    assert asked.arranged({"a": 10, "other": 30, "c": 1}) == ({"a": ("a",), "other": ("other", "c")}, ())
    assert asked.arranged({"a": 10, "other": 30}) == ({"a": ("a",), "other": ("other",)}, ())
    assert Grouping("dept", compare="all").pairs(["a", "b", "c"]) == [(0, 1), (0, 2), (1, 2)]
    assert Grouping("dept", compare="b").pairs(["a", "b", "c"]) == [(0, 1), (2, 1)]
    with pytest.raises(InvalidInput, match="at least 2"):
        Grouping("dept", ("a",), private=True)


def share_of(inside: int, trials: int = TRIALS) -> tuple[float, float]:
    """What a count of successes leaves open, at one in a million."""
    found = stats.binomtest(inside, trials).proportion_ci(1 - 1e-6, method="exact")
    return found.low, found.high


def covers(inside: int, trials: int = TRIALS) -> bool:
    return share_of(inside, trials)[1] >= 0.95


def test_differences_of_public_means_cover_and_a_narrower_law_would_not() -> None:
    draw, sd, half = np.random.default_rng(1), 0.3, LEVELS / 2
    report, noise = randomiser("dithered", PureDP(1.0)), discrete_laplace(PureDP(1.0), LEVELS)
    rule, inside, narrow, alarms = Rule("adaptive"), 0, 0, 0

    def wave(mean: float, k: int, n: int) -> Any:
        total = int(half * (draw.normal(mean, sd, k).sum() + k) + draw.laplace(0, noise.scale))
        values = np.clip(draw.normal(mean, sd, n), -1, 1)
        u = draw.uniform(-1, 1, n)
        told = np.where(draw.random(n) < 1 / (math.e + 1), -1, 1) * np.sign(values - u)
        sent = (math.e + 1) / (math.e - 1) * told + u
        local = LocalSummary(n, float(sent.sum()), float((sent**2).sum()), report)
        return blend(TrustedSummary(k, total, noise), local, rule)

    for _ in range(TRIALS):
        found = [wave(0.2, 60, 1500), wave(-0.1, 200, 500)]
        (gap,) = mean_gaps(found, [(0, 1)], 0.95)
        inside += gap.low <= 0.3 <= gap.high
        middle, reach = (gap.low + gap.high) / 2, 0.5 * (gap.high - gap.low) / 2
        narrow += abs(0.3 - middle) <= reach
        (same,) = mean_gaps([found[0], wave(0.2, 60, 500)], [(0, 1)], 0.95)
        alarms += same.p_value < 0.05
    assert covers(inside)
    assert not covers(narrow)  # the check can fail
    assert share_of(alarms)[0] <= 0.05


def test_how_often_a_random_set_holds_two_cells_is_known() -> None:
    oracle, n = share_oracle(PureDP(0.5), 8), 60_000
    mine, none = pair_chances(oracle)
    sets = oracle_reports(oracle, np.zeros(n, dtype=np.int64), rng=seeded(1))
    both = [(np.isin(sets, pair).sum(axis=1) == 2).sum() for pair in ([0, 3], [3, 5])]
    for seen, chance in zip(both, (mine, none), strict=True):
        assert stats.binomtest(int(seen), n, chance).pvalue > 1e-6
    assert stats.binomtest(int(both[0]), n, none).pvalue < 1e-6  # the check can fail


@pytest.mark.parametrize(("epsilon", "opt_in"), [(1.0, 0.0), (0.4, 0.2), (1.0, 1.0)])
def test_private_categories_cover_their_means_shares_and_differences(epsilon: float, opt_in: float) -> None:
    draw, rng = np.random.default_rng(3), seeded(4)
    joint = Joint(Feature.categorical("dept", ["a", "b", "c"]), "pay", Bounds(0, 1))
    noise, oracle = joint.noise(PureDP(epsilon)), joint.invite(PureDP(epsilon)).mechanism
    shares, means = np.array([0.55, 0.35, 0.1]), np.array([0.3, 0.3, 0.8])
    k = round(4000 * opt_in)
    n = 4000 - k
    inside = np.zeros(5, dtype=int)
    misses = alarms = 0
    for _ in range(TRIALS // 2):
        people = draw.multinomial(k, shares)
        # all at one of the bounds: the widest spread there is, which the intervals allow for
        upper = [int((draw.random(m) < mean).sum()) * STEPS for m, mean in zip(people, means, strict=True)]
        cells = np.column_stack([upper, people * STEPS - upper]).ravel()
        noisy = tuple(int(c + round(draw.laplace(0, noise.mechanism.scale))) for c in cells)  # type: ignore[union-attr]
        held = draw.choice(6, n, p=np.column_stack([shares * means, shares * (1 - means)]).ravel())
        told = support_counts(oracle, oracle_reports(oracle, held, rng=rng))
        whole = JointBlend(
            NoisyCounts(k, noisy, noise) if k else None, ShareReports(n, told, oracle) if n else None, joint.size
        )
        blends = [blend_joint(whole, [i]) for i in range(3)]
        for i, found in enumerate(blends):
            low, high = found.intervals(0.95)
            inside[i] += low[0] <= means[i] <= high[0]
        low, high = blends[0].share_interval(0.95)
        inside[3] += low <= shares[0] <= high
        (gap, _) = blends[0].gaps(blends[1], 0.95)
        inside[4] += gap.low <= 0 <= gap.high
        alarms += gap.p_value < 0.05
        misses += not low <= shares[0] + 0.3 <= high
    assert all(covers(int(x), TRIALS // 2) for x in inside), inside
    assert share_of(alarms, TRIALS // 2)[0] <= 0.06  # noise of few cells has heavier tails than the test's normal law
    assert misses > 0  # the check can fail


def test_waves_have_a_p_value_that_is_right_for_normal_and_for_laplace_errors() -> None:
    draw, n = np.random.default_rng(5), 5_000
    for errors, reach in ((draw.normal(0, 1, (n, 2)), 1.959964), (draw.laplace(0, 1, (n, 2)), math.log(20))):
        for level in (0.05, 0.2):
            p = [published_gap(x, (x - reach, x + reach), y, (y - reach, y + reach), 0.95).p_value for x, y in errors]
            assert stats.binomtest(sum(v < level for v in p), n, level, alternative="greater").pvalue > 1e-6


def wave(mean: float, reach: float, **facts: Any) -> dict[str, Any]:
    told = {"task": "mean", "estimate": mean, "interval": [max(mean - reach, 0), min(mean + reach, 10)]}
    told |= {"trusted": None, "local": None, "clipped_to": [0, 10], **facts}
    receipt = Receipt((), "none", False, "one person, one record", ())
    return Release({"pay": {"mean": told}}, 0.95, receipt).to_dict()


def test_a_wave_cut_at_its_bounds_is_as_uncertain_as_it_was() -> None:
    (change,) = compare_waves(wave(5, 3), wave(9, 4)).cells
    assert (change.estimate, change.low, change.high) == pytest.approx((4, -1, 9))
    assert change.p_value == pytest.approx(0.05 ** (4 / 5)) or change.p_value > 0.05
    (wide,) = compare_waves(wave(5, 3), wave(5, 50)).cells
    assert wide.low <= -10 <= 10 <= wide.high
    for other, word in (
        (wave(5, 1, clipped_to=[0, 20]), "clipped_to"),
        (wave(5, 1, task="sum"), "task"),
        ({**wave(5, 1), "level": 0.9}, "level"),
        ({**wave(5, 1), "questions": {"age": wave(5, 1)["questions"]["pay"]}}, "in common"),
        ({"plan": 1}, "must be a release"),
    ):
        with pytest.raises(InvalidInput, match=word):
            compare_waves(wave(5, 1), other)


def test_bounds_that_differ_in_a_late_digit_name_different_cells() -> None:
    joint = Joint(Feature.categorical("dept", ["a", "b"]), "born", Bounds(1e12, 1e12 + 2))
    assert joint.cells.values[:2] == ("a: 1000000000002.0", "a: 1000000000000.0")


# --- a population whose groups are not those of the people who took part ----------------------------------------------


def _two(k: int, n_l: int, mean: float, away: float, rng: np.random.Generator) -> Blend:
    """The mean of a group whose trusted people's is `away` from the others'; values have a standard deviation of .2."""
    device, noise = dithered_bit(PureDP(1.0)), sum_noise(PureDP(1.0))
    scale, theirs = noise.scale / (LEVELS / 2) / k, 0.04 + device.worst_variance
    own = mean + away + rng.normal(0, 0.2 / k**0.5) + rng.laplace(0, scale)
    local = mean + rng.normal(0, (theirs / n_l) ** 0.5)
    trusted = TrustedSummary(k, round((own + 1) / 2 * LEVELS * k), noise)
    return blend(trusted, LocalSummary(n_l, n_l * local, n_l * (theirs + mean**2), device), Rule())


@pytest.mark.parametrize("away", [0.0, 0.02, 0.2])
def test_a_population_is_covered_and_alike_people_within_its_groups_tell_more_of_it(away: float) -> None:
    """Four groups, of which those with the largest means took part most: the mean of those who took part is .12 too
    high. Within groups people who trust are alike, or differ all in one direction."""
    rng, means, took, shares = np.random.default_rng(5), (-0.3, -0.1, 0.1, 0.3), (1, 2, 4, 8), (0.4, 0.3, 0.2, 0.1)
    sizes = [(300 * times, 3000 * times) for times in took]
    own = [m + away / 11 for m in means]  # of all who took part in a group
    truth, covered, errors, plain = float(np.dot(shares, own)), 0, [], []
    naive = float(np.dot(np.array(took) / sum(took), own)) - truth
    assert naive > 0.12
    for _ in range(800):
        each = [_two(*size, m, away, rng) for size, m in zip(sizes, means, strict=True)]
        found = weighted(each, shares)
        assert found.middle == pytest.approx(float(np.dot(shares, [one.middle for one in each])))
        assert abs(found.estimate - found.middle) < found.half_width(0.95)
        covered += abs(found.middle - truth) <= found.half_width(0.95)
        errors.append(found.estimate - truth)
        plain.append(found.middle - truth)
    assert stats.binomtest(covered, 800, 0.95).pvalue > 1e-3
    gain = float(np.mean(np.square(plain)) / np.mean(np.square(errors)))
    assert gain > 2 if away == 0 else gain > 0.5
    assert found.error.variance == pytest.approx(np.var(plain), rel=0.35)  # the trusted spread is the largest there is


def test_shares_of_a_population_are_covered() -> None:
    rng, shares, options = np.random.default_rng(6), (0.7, 0.3), 3
    law = np.array([[0.5, 0.3, 0.2], [0.2, 0.2, 0.6]])
    oracle, noise, covered = k_randomised_response(PureDP(1.0), options), count_noise(PureDP(1.0), options), 0
    truth = np.array(shares) @ law
    for _ in range(150):
        each = []
        for own, (k, n_l) in zip(law, ((200, 3000), (600, 9000)), strict=True):
            drawn = rng.multinomial(k, own) * noise.steps + rng.laplace(0, noise.mechanism.scale, options)
            counts = rng.multinomial(n_l, oracle.other + (oracle.truth - oracle.other) * own)
            trusted = NoisyCounts(k, tuple(map(round, drawn)), noise)
            each.append(blend_shares(trusted, ShareReports(n_l, counts, oracle)))
        found = weighted_shares(each, shares, 0.95, joint=False)
        covered += ((found.ends[0] <= truth) & (truth <= found.ends[1])).astype(int)
        assert found.unbiased == pytest.approx(np.array(shares) @ np.array([one.estimate for one in each]))
        assert found.p_values is not None
    for held in np.atleast_1d(covered):
        assert 0.91 < held / 150 <= 1.0
