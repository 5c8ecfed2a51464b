"""The blend: the weight against other formulas, groups of any size, and honest errors by simulation."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats

from hybridp.bench.crowd import salary_like
from hybridp.blend.mean import EstimatorName, Rule, blend
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public import messages as theory
from hybridp.public.mechanisms import ApproxDP, PureDP, discrete_laplace
from hybridp.public.messages import (
    SQUARE_STEPS,
    LocalSummary,
    NoisySquares,
    NormalLaplace,
    TrustedSummary,
    sum_noise,
)
from hybridp.public.randomisers import LEVELS, LocalName, Randomiser, randomiser
from hybridp_lab.baselines.local import local_additive
from hybridp_lab.simulate import Trial, trials

ONE = PureDP(1.0)
DECIDED = [name for name in get_args(EstimatorName) if name != "alike"]  # what that is, a study decides before


def told(people: int, mean: float, kind: LocalName = "dithered", epsilon: float = 1.0, sd: float = 0.5) -> LocalSummary:
    """What reports with this mean would sum to, if their variance were the one expected for data of this sd."""
    device = randomiser(kind, PureDP(epsilon))
    return LocalSummary(people, people * mean, people * (sd**2 + device.worst_variance + mean**2), device)


def summed(people: int, mean: float, epsilon: float = 1.0) -> TrustedSummary:
    return TrustedSummary(people, round((mean + 1) / 2 * LEVELS * people), sum_noise(PureDP(epsilon)))


def rule(name: EstimatorName) -> Rule:
    return Rule(name, sd=0.4 if name in ("kvh", "anchored") else None, weight=0.3 if name == "fixed" else None)


# --- the weight -------------------------------------------------------------------------------------------------------


@given(
    k=st.integers(1, 10**6),
    n_l=st.integers(1, 10**8),
    epsilon=st.floats(0.01, 10),
    sd=st.floats(0.01, 1),
    local_sd=st.floats(0.01, 1),
    gap=st.floats(0, 2),
    kind=st.sampled_from(["dithered", "piecewise"]),
)
@settings(max_examples=200, deadline=None)
def test_the_weight_is_kvh_s_by_two_other_routes(
    k: int, n_l: int, epsilon: float, sd: float, local_sd: float, gap: float, kind: LocalName
) -> None:
    trusted, local = summed(k, 0.2, epsilon), told(n_l, 0.1, kind, epsilon)
    found = blend(trusted, local, Rule("kvh", sd=sd, local_sd=local_sd, gap=gap))
    n, c = k + n_l, k / (k + n_l)
    noise_t = 2 * (2 / (epsilon * k)) ** 2
    noise_l = local.randomiser.worst_variance
    closed = theory.Setting(n=n, c=c, var_t=sd**2, var_l=local_sd**2, noise_t=noise_t, noise_l=noise_l, gap=gap)
    assert found.weight == pytest.approx(float(theory.kvh_weight(closed)), rel=1e-7, abs=1e-12)

    def mse(w: float) -> float:
        """Against the mean of these people: each group's values count w - c too much or too little, and the noise."""
        values = (w - c) ** 2 * (sd**2 / k + local_sd**2 / n_l + gap**2)
        return values + w**2 * noise_t + (1 - w) ** 2 * noise_l / n_l

    least = optimize.minimize_scalar(mse, bounds=(0, 1), method="bounded", options={"xatol": 1e-10})
    assert mse(found.weight) <= mse(float(least.x)) * (1 + 1e-9)
    assert found.slack == pytest.approx(abs(found.weight - c) * gap)


def test_the_papers_weights() -> None:
    trusted, local = summed(40, 0.1), told(760, 0.0)
    assert blend(trusted, local, Rule("everyone")).weight == pytest.approx(0.05)
    assert blend(trusted, local, Rule("tcm-only")).estimate == trusted.mean
    assert blend(trusted, local, Rule("lm-only")).estimate == local.mean
    assert blend(trusted, local, rule("fixed")).estimate == pytest.approx(0.3 * trusted.mean + 0.7 * local.mean)
    noise_t, noise_l = 2 * (2 / 40) ** 2, local.randomiser.worst_variance / 760
    assert blend(trusted, local, Rule("pwh")).weight == pytest.approx(noise_l / (noise_l + noise_t), rel=1e-9)


def test_skew_aware_runs_from_the_adaptive_to_the_stratified_weight() -> None:
    k, n_l = 20_000, 380_000
    local = told(n_l, 0.0)
    same = blend(summed(k, 0.0), local, Rule("skew-aware"))
    assert same.weight == blend(summed(k, 0.0), local, Rule("adaptive")).weight
    assert same.weight > 0.1
    weights = [blend(summed(k, d), local, Rule("skew-aware")).weight for d in (0.0, 0.03, 0.1, 0.4, 1.0)]
    assert weights == sorted(weights, reverse=True)
    assert weights[-1] == pytest.approx(0.05, abs=1e-4)


# --- groups of any size -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", DECIDED)
def test_one_group_is_enough(name: EstimatorName) -> None:
    alone = blend(summed(50, 0.3), None, rule(name))
    assert (alone.weight, alone.disagreement, alone.slack) == (1.0, None, 0.0)
    assert alone.estimate == pytest.approx(0.3, abs=1e-9)
    nobody = told(0, 0.0)
    assert blend(summed(50, 0.3), nobody, rule(name)) == alone
    other = blend(None, told(50, -0.2), rule(name))
    assert (other.weight, other.disagreement) == (0.0, None)
    assert other.estimate == pytest.approx(-0.2)
    with pytest.raises(InvalidInput, match="`people` must be at least 1"):
        blend(None, nobody, rule(name))


@pytest.mark.parametrize("name", DECIDED)
@pytest.mark.parametrize(("k", "n_l"), [(1, 1), (1, 2), (1, 10**6), (10**6, 1), (1, None), (None, 1)])
def test_groups_of_one_give_finite_answers(name: EstimatorName, k: int | None, n_l: int | None) -> None:
    trusted = None if k is None else summed(k, 0.3)
    local = None if n_l is None else told(n_l, -0.4)
    found = blend(trusted, local, rule(name))
    assert 0 <= found.weight <= 1
    assert math.isfinite(found.estimate)
    assert 0 < found.half_width(0.5) < found.half_width(0.95) < found.half_width(0.999) < math.inf
    assert found.disagreement is None or 0 <= found.disagreement.p_value <= 1


def test_reports_of_two_mechanisms_are_not_added_up() -> None:
    with pytest.raises(InvalidInput, match="one mechanism"):
        told(3, 0.0) + told(3, 0.0, epsilon=2.0)


# --- the error, by simulation -----------------------------------------------------------------------------------------

_draw = np.random.default_rng(20)
POPULATIONS = {
    "uniform": _draw.uniform(-1, 1, 4000),
    "lopsided": 2 * _draw.beta(2, 8, 4000) - 1,
    "coin": np.where(_draw.random(4000) < 0.5, -1.0, 1.0),
    "salaries": 2 * np.minimum(salary_like(4000, rng=seeded(1)) / 400_000, 1) - 1,
    "narrow": _draw.normal(0.2, 0.05, 4000).clip(-1, 1),
}
CELLS = [
    ("uniform", 600, 60, ApproxDP(0.3, 0.01)),  # gaussian noise
    ("lopsided", 600, 60, PureDP(0.5)),
    ("salaries", 1000, 50, ONE),
    ("narrow", 1000, 20, PureDP(2.0)),
    ("coin", 400, 300, PureDP(4.0)),  # here the sampling of the trusted is most of the error
    ("uniform", 90, 30, PureDP(0.1)),  # and here their noise
]
TRIALS = 800
LOWEST = stats.binom.ppf(1e-6, TRIALS, 0.94) / TRIALS  # a coverage of 94 % is seen below this once in a million


def simulated(population: str, n: int, k: int, promise: PureDP | ApproxDP, seed: int) -> Iterable[Trial]:
    drawn = sum_noise(promise, "gaussian" if promise.delta else "best")
    how: dict[str, Any] = {"noise": drawn, "randomiser": randomiser("best", promise), "rng": seeded(seed)}
    return trials(POPULATIONS[population], n=n, trusted_people=k, count=TRIALS, **how)


@pytest.mark.parametrize(("population", "n", "k", "promise"), CELLS)
def test_adaptive_covers_as_stated_and_is_nearly_as_good_as_kvh(
    population: str, n: int, k: int, promise: PureDP | ApproxDP
) -> None:
    sd = float(POPULATIONS[population].std())
    covered = halved = 0
    adaptive, known = [], []
    for trial in simulated(population, n, k, promise, seed=5):
        found = trial.blend(Rule("adaptive"))
        reach, error = found.half_width(0.95), abs(found.estimate - trial.population_mean)
        covered += error <= reach
        halved += error <= reach / 2
        adaptive.append((found.estimate - trial.empirical_mean) ** 2)
        known.append((trial.blend(Rule("kvh", sd=sd)).estimate - trial.empirical_mean) ** 2)
    assert covered / TRIALS >= LOWEST
    assert halved / TRIALS < LOWEST  # the control: half the interval is not enough
    assert np.mean(adaptive) <= 1.15 * np.mean(known)


# --- disagreement -----------------------------------------------------------------------------------------------------


def p_values(rule: Rule, population: str = "uniform", shift: float = 0.0) -> np.ndarray:
    found = []
    for trial in simulated(population, 600, 60, PureDP(0.7), seed=7):
        assert trial.trusted is not None
        moved = replace(trial.trusted, noisy_total=trial.trusted.noisy_total + round(shift / trial.trusted.step))
        gap = blend(moved, trial.local, rule).disagreement
        assert gap is not None
        found.append(gap.p_value)
    return np.array(found)


def test_p_values_are_uniform_when_the_groups_agree_and_the_spread_is_known() -> None:
    sd = float(POPULATIONS["coin"].std())
    assert stats.kstest(p_values(Rule("kvh", sd=sd), "coin"), "uniform").pvalue > 1e-6
    # The control: a stated spread of a quarter of the true one makes the p-values too small.
    assert stats.kstest(p_values(Rule("kvh", sd=sd / 4), "coin"), "uniform").pvalue < 1e-6


@pytest.mark.parametrize("population", ["uniform", "coin", "salaries"])
def test_p_values_are_never_too_small_when_the_spread_is_learned(population: str) -> None:
    found = p_values(Rule("adaptive"), population)
    for level in (0.01, 0.05, 0.2):
        assert np.sum(found <= level) <= stats.binom.ppf(1 - 1e-6, TRIALS, level)


def test_p_values_are_small_when_the_groups_differ() -> None:
    found = p_values(Rule("adaptive"), shift=0.9)
    assert np.mean(found < 0.01) > 0.9


@pytest.mark.parametrize("device", [randomiser(k, ONE) for k in ("dithered", "piecewise")], ids=str)
def test_the_learned_spread_does_not_lean(device: Randomiser) -> None:
    """Over many people the learned variance comes to the data's, whatever the randomiser."""
    people = np.resize(POPULATIONS["lopsided"], 400_000)
    noise = sum_noise(ONE)
    runs = trials(people, n=400_000, trusted_people=500, noise=noise, randomiser=device, count=1, rng=seeded(2))
    (one,) = runs
    assert one.blend(Rule("adaptive")).variance == pytest.approx(float(people.var()), abs=0.06)


@pytest.mark.parametrize(("k", "n", "truth_t"), [(100, 9_900, 0.4), (500, 500, -0.2)])
def test_groups_that_differ_are_counted_by_their_people_and_the_interval_covers(k: int, n: int, truth_t: float) -> None:
    """The trusted at both bounds, everybody else at one value: another mean, and another spread; or the spread alone.

    The controls: a blend by errors, which is biased where means differ, and the same weight with a spread learned from
    reports, which is too sure where the trusted people's sampling counts.
    """
    truth_l, c, runs, epsilon = -0.2, k / (k + n), 300, 4.0
    device: Any = local_additive(PureDP(epsilon))
    noise = sum_noise(PureDP(epsilon))
    draw, held = np.random.default_rng(3), dict.fromkeys(("everyone", "gap", "adaptive", "fixed"), 0)
    for _ in range(runs):
        up, sent = draw.binomial(k, (1 + truth_t) / 2), truth_l + draw.laplace(0.0, 2 / epsilon, n)
        trusted = TrustedSummary(k, int(up) * LEVELS + round(draw.laplace(0.0, LEVELS / epsilon)), noise)
        local = LocalSummary(n, float(sent.sum()), float(sent @ sent), device)
        found = blend(trusted, local, Rule())
        assert found.weight == pytest.approx(c)
        gap = found.disagreement
        assert gap is not None
        held["gap"] += abs(gap.difference - (truth_t - truth_l)) <= gap.half_width(0.95)
        for rule in (Rule(), Rule("adaptive"), Rule("fixed", weight=c)):
            found = blend(trusted, local, rule)
            held[rule.name] += abs(found.estimate - c * truth_t - (1 - c) * truth_l) <= found.half_width(0.95)
    for name in ("everyone", "gap"):
        assert stats.binomtest(held[name], runs, 0.95, alternative="less").pvalue > 1e-4
        assert held[name] < runs, "the interval is not so wide that nothing is said"
    wrong = "adaptive" if k < n else "fixed"
    assert stats.binomtest(held[wrong], runs, 0.95, alternative="less").pvalue < 1e-4


def sent(k: int, mean: float, local: float, n_l: int) -> tuple[TrustedSummary, LocalSummary]:
    """Two groups with these means, whose values have a standard deviation of .2."""
    return summed(k, mean), told(n_l, local, sd=0.2)


def test_the_estimate_moves_towards_alike_groups_within_the_stratified_interval() -> None:
    """All the way where the groups' means are the same, and by less of what parts them the farther they are."""
    both, left = Rule("adaptive"), 1.0
    for apart in (0.0, 0.01, 0.03, 0.1, 0.5):
        groups = sent(5000, apart, 0.0, 95_000)
        plain, found, alike = 0.05 * apart, blend(*groups, Rule()), blend(*groups, both)
        assert found.middle == pytest.approx(plain)
        assert plain - 1e-12 <= found.estimate <= alike.estimate + 1e-12
        assert abs(found.estimate - found.middle) < found.half_width(0.95)
        share = 1.0 if apart == 0 else (found.estimate - plain) / (alike.estimate - plain)
        assert share <= left + 1e-9
        left = share
    assert left < 0.05


@pytest.mark.parametrize("apart", [0.0, 0.15, 1.0])
@pytest.mark.parametrize(("share", "alike", "worst"), [(0.01, 1.15, 1.12), (0.05, 1.4, 1.35), (0.2, 1.65, 1.6)])
def test_the_default_is_near_the_better_of_both_whatever_the_gap(
    share: float, alike: float, worst: float, apart: float
) -> None:
    """100,000 people, epsilon 1: errors beside KVH's where groups are alike, beside the stratified mean's elsewhere."""
    rng, k = np.random.default_rng(11), round(1e5 * share)
    n_l, sd, trials = 100_000 - k, 0.2, 600
    device, noise = randomiser("dithered", PureDP(1.0)), sum_noise(PureDP(1.0))
    error, covered, truth = [], 0, share * apart * sd
    theirs = device.worst_variance + sd**2
    laplace = rng.laplace(0, noise.scale / (LEVELS / 2) / k, trials)
    for away, l_mean in zip(apart * sd + rng.normal(0, sd / k**0.5, trials) + laplace,
                            rng.normal(0, (theirs / n_l) ** 0.5, trials), strict=True):  # fmt: skip
        found = blend(*sent(k, away, l_mean, n_l), Rule())
        error.append(found.estimate - truth)
        covered += abs(found.middle - truth) <= found.half_width(0.95)
    v_t, v_l = sd**2 / k + 2 * (noise.scale / (LEVELS / 2) / k) ** 2, theirs / n_l
    best = v_t * v_l / (v_t + v_l) if apart == 0 else share**2 * v_t + (1 - share) ** 2 * v_l
    assert np.mean(np.square(error)) ** 0.5 < 1.07 * (alike if apart == 0 else worst) * best**0.5  # 600 trials
    assert stats.binomtest(covered, trials, 0.95).pvalue > 1e-4


def test_a_stated_gap_or_share_of_liars_gives_the_shortest_honest_interval() -> None:
    """Beside a grid of all weights; under the worst that is stated, its coverage is its level."""
    groups = sent(5000, 0.02, 0.0, 95_000)
    both = blend(*groups, Rule())
    own, theirs = both.trusted_error, both.local_error
    assert own is not None
    assert theirs is not None
    reach = groups[1].randomiser.bound
    for gap, lies in ((0.0, 0.0), (0.01, 0.0), (0.1, 0.0), (0.02, 0.001), (None, 0.01), (0.0, 0.2)):
        found = blend(*groups, Rule(gap=gap, lies=lies))

        def off(w: float, gap: float | None = gap, lies: float = lies) -> float:
            return abs(w - 0.05) * (gap or 0.0) + (1 - w) * lies * (1 + reach)

        every = [0.05] if gap is None else np.linspace(0, 1, 401)
        lengths = [NormalLaplace(((w * own.s) ** 2 + ((1 - w) * theirs.s) ** 2) ** 0.5, w * own.b).reach(0.95, off(w))
                   for w in every]  # fmt: skip
        assert found.half_width(0.95) == pytest.approx(min(lengths), rel=1e-3)
        assert found.slack == pytest.approx(off(found.weight))
        rng = np.random.default_rng(3)
        errors = found.error.s * rng.standard_normal(200_000) + found.error.b * rng.laplace(size=200_000)
        inside = np.mean(np.abs(errors + found.slack) <= found.half_width(0.95))
        assert inside == pytest.approx(0.95, abs=0.003)
    assert blend(*groups, Rule(gap=0.0, sd=0.2)).half_width(0.95) < 0.5 * blend(*groups, Rule()).half_width(0.95)
    for wrong in ({"lies": 1.0}, {"lies": -0.1}, {"lies": 0.1, "name": "adaptive"}, {"gap": 0.1, "name": "anchored"}):
        with pytest.raises(InvalidInput, match=r"lies|gap"):
            Rule(**wrong)


def test_an_interval_holds_a_mean_that_few_people_far_from_all_others_make() -> None:
    """Two in a hundred at the upper bound and the rest at the lower: coverage over all samples of 200, without noise.

    The control: a limit of the spread as of a normal sample, which such people do not obey.
    """
    k, p, held, control = 200, 0.02, 0.0, 0.0
    loud = discrete_laplace(PureDP(400.0), LEVELS)
    for x in range(40):
        often = math.comb(k, x) * p**x * (1 - p) ** (k - x)
        squares = NoisySquares(k, k * SQUARE_STEPS**2, discrete_laplace(PureDP(400.0), SQUARE_STEPS**2))
        found = blend(TrustedSummary(k, x * LEVELS, loud, squares), None, Rule("adaptive"))
        held += often * (abs(found.estimate - (2 * p - 1)) <= found.half_width(0.95))
        v = 4 * x / k * (1 - x / k)
        control += often * (abs(2 * x / k - 2 * p) <= 1.96 * math.sqrt(v * (1 + 1.645 * math.sqrt(2 / k)) / k))
    assert held >= 0.93
    assert control < 0.93
