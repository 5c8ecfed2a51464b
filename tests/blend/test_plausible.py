"""Intervals that assume of a distribution function only that it rises."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scipy import optimize, stats

from hybridp import noise
from hybridp.blend.distribution import Evidence, Seen, SharesBelow, blended, gini, variance
from hybridp.blend.plausible import Ladder, Plausible, normal_reach, plausible
from hybridp.noise import seeded
from hybridp.public import rounds
from hybridp.public.distribution import CELLS, BinnedReports, cell_chances, report_bins
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import LEVELS, WORD, Bounds, Piecewise, randomiser
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.release.release import Release
from hybridp.tasks.distribution import DistributionTask, publish
from hybridp_lab.simulate import hear

UNIT = Bounds(0, 1)


def _small(seed: int) -> tuple[Seen, Any]:
    """Nine numbers seen of F at six of seven atoms, with errors that are correlated."""
    rng = np.random.default_rng(seed)
    ends = np.array([0.0, 0.1, 0.35, 0.5, 0.8, 1.0, 1.2])
    matrix = rng.random((9, 6)) * (rng.random((9, 6)) < 0.5) + np.eye(9, 6)
    root = 3 * (np.eye(9) + 0.3 * rng.random((9, 9)))
    truth = np.array([0.02, 0.3, 0.35, 0.8, 0.85, 0.9])
    return Seen(matrix, matrix @ truth + rng.normal(0, 0.1, 9), root @ root.T), ends


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_the_ends_are_those_that_a_general_optimiser_finds(seed: int) -> None:
    """The largest and least of statistics over all rising functions that misfit by at most 1.96^2 more than the best,
    by sequential quadratic programming from several starts."""
    seen, ends = _small(seed)
    found = Plausible([[seen]], [Ladder(ends, jumps=True)], [1.0])
    found._free = 0  # a misfit of one number, whatever directions are given up: the solver by itself

    def misfit(f: Any) -> float:
        miss = seen.values - seen.matrix @ f
        return float(miss @ seen.precision @ miss)

    rises = [
        {"type": "ineq", "fun": lambda f: np.diff(f)},
        {"type": "ineq", "fun": lambda f: np.array([f[0], 1 - f[-1]])},
    ]
    least = min(optimize.minimize(misfit, np.linspace(a, b, 6), constraints=rises, tol=1e-10).fun
                for a, b in ((0.0, 1.0), (0.4, 0.6)))  # fmt: skip
    assert misfit(found.best) == pytest.approx(least, abs=1e-4)
    near = {"type": "ineq", "fun": lambda f: least + 1.96**2 - misfit(f)}
    row = np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0])
    asked = {
        "F": (lambda f: float(row @ f), (found._edge(row, -1, 1.96)[0], found._edge(row, 1, 1.96)[0])),
        "variance": (lambda f: variance(np.diff(ends), np.diff(ends**2), f)[0], found.variance_interval(1.96)),
        "gini": (lambda f: gini(np.diff(ends), f, 0.2)[0], found.gini_interval(0.2, 1.96)),
    }
    for name, (statistic, told) in asked.items():
        for side, end in zip((1, -1), told, strict=True):

            def goal(f: Any, side: int = side, statistic: Any = statistic) -> float:
                return float(side * statistic(f))

            tried = [optimize.minimize(goal, start, constraints=[*rises, near], tol=1e-9)
                     for start in (found.best, np.linspace(0, 1, 6))]  # fmt: skip
            best = side * min(one.fun for one in tried if one.success)
            assert end == pytest.approx(best, abs=0.02 * (told[1] - told[0])), (name, side)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_solver_that_goes_round_in_circles_ends_no_release(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """By then the noise is drawn and paid for: another solver finds the same function, and no narrower intervals."""
    seen, ends = _small(seed)
    row = np.array([0.0, 0.0, 1.0, 0.0, 0.0, 0.0])

    def told() -> tuple[Any, list[tuple[float, float]]]:
        found = Plausible([[seen]], [Ladder(ends, jumps=True)], [1.0])
        middle = found._edge(row, -1, 1.96)[0], found._edge(row, 1, 1.96)[0]
        return found.best, [middle, found.quantile_interval(0.5, 1.96)]

    best, expected = told()

    def gives_up(*_: Any, **__: Any) -> Any:
        raise RuntimeError("Maximum number of iterations reached.")

    monkeypatch.setattr(optimize, "nnls", gives_up)
    again, intervals = told()
    assert again == pytest.approx(best, abs=1e-3)
    for (low, high), (least, most) in zip(intervals, expected, strict=True):
        assert low <= least + 1e-3
        assert high >= most - 1e-3


def test_one_count_has_the_interval_of_a_share_and_says_what_rising_leaves_beside_it() -> None:
    """4,000 people counted once, at .5: there 1.96 standard errors; below it 0 to that, above it that to 1."""
    k, share, spread = 4_000, 0.7, 900.0
    known = Evidence(counted=(SharesBelow(np.array([share]), (0.5,), k, spread),))
    found = plausible(known)
    error = math.sqrt(share * (1 - share) / k + spread / k**2)
    low, high = found.between(None, 0.5, 1.96)
    assert (low, high) == pytest.approx((share - 1.96 * error, share + 1.96 * error), abs=0.03 * error)
    assert found.between(None, 0.25, 1.96) == pytest.approx((0.0, high), abs=0.03 * error)
    assert found.between(None, 0.75, 1.96) == pytest.approx((low, 1.0), abs=0.03 * error)
    # A quantile is beyond the place, or below it, as soon as the count says so; nothing else is known.
    assert found.quantile_interval(0.6, 1.96) == (0.0, 0.5)
    assert found.quantile_interval(0.8, 1.96) == (0.5, 1.0)
    assert found.quantile_interval(0.7, 1.96) == (0.0, 1.0)


class Crowd:
    """Trusted and local people of one law, counted and asked as the product does."""

    def __init__(self, law: Any, seed: int) -> None:
        self.law, self.seed, self.lots = law, seed, np.random.default_rng(seed)

    def count(self, k: int) -> Any:
        ranks, rng = np.sort(self.lots.random(k)), seeded(self.seed)

        def count(places: tuple[float, ...], stated: CountNoise) -> NoisyCounts:
            below = np.searchsorted(ranks, self.law.cdf(places))
            drawn = noise.discrete_laplace(stated.mechanism.scale, stated.draws, rng=rng)  # type: ignore[union-attr]
            return NoisyCounts(k, tuple((np.diff([0, *below, k])[: stated.draws] + drawn).tolist()), stated)

        return count

    def reports(self, n: int, study: DistributionTask) -> BinnedReports:
        report = study.invite.mechanism
        shares = np.diff(self.law.cdf(np.linspace(0, 1, CELLS + 1)))
        law = cell_chances(report, CELLS) @ (shares / shares.sum())
        return BinnedReports(self.lots.multinomial(n, law / law.sum()), report)


def test_intervals_hold_where_little_is_known_and_people_are_not_spread_evenly() -> None:
    """100 trusted of 10,000 people at epsilon .1, half of them within the first sixteenth of the range.

    The control: what the estimate's own curve says of its error there holds far less often.
    """
    law = stats.expon(scale=0.08)
    study = DistributionTask(UNIT, PureDP(0.1), at=(0.5,), estimator="hybrid")
    held, control, trials = 0, 0, 60
    for seed in range(trials):
        crowd = Crowd(law, 100 + seed)
        known = hear(study, 100, crowd.reports(9_900, study), crowd.count(100))
        shape = blended(known, alone=False).both
        low, high = plausible(known).quantile_interval(0.5, 1.96)
        held += low <= law.ppf(0.5) <= high
        share, error = shape.below(law.ppf(0.5))
        control += abs(share - 0.5) <= 1.96 * error
    assert held >= 52  # below that by chance once in 20,000 times, at 95 %
    assert control < 52


def test_a_tail_without_people_that_was_counted_at_many_places_keeps_its_coverage() -> None:
    """2,000 people, nobody in the last half, where seven places were counted: what is said of the share there.

    All seven counts must be 0 for the share to be, so that the misfit of 0 is that of up to seven numbers that can only
    be raised. The control: as if it were that of one.
    """
    rng, places, k, sd = np.random.default_rng(4), tuple(i / 16 for i in range(1, 16)), 2_000, 30.0
    true = np.minimum(np.arange(1, 17) / 8, 1.0) * k
    held, control, trials = 0, 0, 80
    for _ in range(trials):
        noisy = np.diff([0.0, *true]) + rng.normal(0, sd, 16)
        shares = np.cumsum(noisy / k - (noisy.sum() / k - 1) / 16)[:-1]
        found = plausible(Evidence(counted=(SharesBelow(shares, places, k, sd**2),)))
        low, _ = found.between(0.5, None, 1.96)
        held += low <= 0.0
        control += found._fit(found.limit(0.5, 1)[0], 1.0)[0] - found._least <= 1.96**2
    assert held >= 68  # below that by chance once in 20,000 times, at 95 %
    assert control < 68


def _ends(found: Release, statistic: str, place: int = 0) -> tuple[float, float]:
    cell = found.of(statistic).cells[place]
    assert cell.low is not None
    assert cell.high is not None
    return cell.low, cell.high


def _apart(found: Release) -> dict[str, Any]:
    """How far the groups are apart."""
    gap: dict[str, Any] = found.questions["x"]["distribution"]["disagreement"]
    return gap


def _published(study: DistributionTask, heard: Any) -> Any:
    return publish(study, heard, rounds.Crowd.of("x", simulated_local=True, rng=seeded(1)))


def test_groups_that_are_alike_are_not_said_to_differ_and_others_are() -> None:
    """100 trusted people at epsilon .1, whose counts' noise has the tails of single Laplace draws."""
    law = stats.expon(scale=0.08)
    study = DistributionTask(UNIT, PureDP(0.1), at=(0.5,), estimator="hybrid")
    alarms, trials = 0, 25
    for seed in range(trials):
        crowd = Crowd(law, 500 + seed)
        found = _published(study, hear(study, 100, crowd.reports(9_900, study), crowd.count(100)))
        alarms += _apart(found)["groups_disagree"]
    assert alarms <= 7  # more than that by chance once in 50,000 times, at 5 %
    other, own = Crowd(stats.expon(scale=0.3), 1), Crowd(law, 1)
    study = DistributionTask(UNIT, PureDP(1.0), at=(0.5,), estimator="hybrid")
    gap = _apart(_published(study, hear(study, 2_000, own.reports(20_000, study), other.count(2_000))))
    assert gap["p_value"] < 1e-6
    truth = stats.expon(scale=0.3).cdf(gap["at"]) - law.cdf(gap["at"])
    low, high = gap["interval"]
    assert low <= truth <= high < 0


def test_every_estimate_lies_in_its_interval_and_the_band_holds_the_curve() -> None:
    edges = (0.0, 0.05, 0.1, 0.3, 1.0)
    for seed, (k, n, epsilon) in enumerate([(40, 3_000, 0.3), (2_000, 0, 0.5), (0, 50_000, 1.0)]):
        study = DistributionTask(UNIT, PureDP(epsilon), at=(0.1, 0.5, 0.99), below=(0.2,), above=(0.07,), edges=edges,
                                  spread=True, estimator="hybrid")  # fmt: skip
        crowd = Crowd(stats.expon(scale=0.08), seed)
        heard = hear(study, k, crowd.reports(n, study) if n else None, crowd.count(k))
        found = _published(study, heard)
        told = {"quantiles", "shares-below", "shares-above", "histogram", "variance", "sd", "gini"}
        assert {cell.statistic for cell in found.cells} == told
        for cell in found.cells:
            assert cell.low <= cell.estimate <= cell.high, cell
            assert cell.low < cell.high, cell
        curve = found.questions["x"]["distribution"]
        lows, highs = curve["interval"]
        assert all(np.diff(part).min() >= 0 for part in (curve["estimate"], lows, highs))
        assert all(a <= x <= b for a, x, b in zip(lows, curve["estimate"], highs, strict=True))
        assert _ends(found, "sd")[0] == pytest.approx(math.sqrt(_ends(found, "variance")[0]))


@pytest.mark.parametrize("epsilon", [14.0, 20.0])
def test_reports_of_a_large_epsilon_hold_people_who_all_stand_on_the_edges_of_a_histogram(epsilon: float) -> None:
    """Of 40,000 reports by bin, as many as the window [x, x + wide) and what is outside make likely; three edges that
    are no ends of cells, and all people on them: a bin that has its lower edge has the people there."""
    drawn = randomiser("piecewise", PureDP(epsilon))
    assert isinstance(drawn, Piecewise)
    places, shares, bins = np.array([0.1, 0.37, 0.7]), np.array([0.3, 0.5, 0.2]), report_bins(drawn, CELLS)
    cuts, wide, inside = np.arange(bins.count + 1) / CELLS, drawn.width / LEVELS, drawn.inside / WORD
    cuts[-1] = 1 + wide
    within = np.array([[max(min(b, x + wide) - max(a, x), 0.0) for x in places] for a, b in pairwise(cuts)])
    likely = (inside * within / wide + (1 - inside) * (np.diff(cuts)[:, None] - within)) @ shares
    assert likely.sum() == pytest.approx(1.0)
    known = Evidence(reports=BinnedReports(np.random.default_rng(5).multinomial(40_000, likely), drawn))
    ends = [place - 1 / LEVELS for place in places]
    found = plausible(known, ends)
    for (a, b), share in zip(pairwise((None, *ends, None)), (0.0, *shares.tolist()), strict=True):
        low, high = found.between(a, b, normal_reach(0.9999))
        assert low <= share + 1e-9, (a, b)
        assert share - 1e-9 <= high, (a, b)
    assert found.between(0.2, 0.5, 1.96)[0] > 0.49  # and the middle one is not told as anything


# --- whole steps, and groups that differ ------------------------------------------------------------------------------


def _of_people(study: DistributionTask, trusted: Any, local: Any, seed: int) -> Any:
    """A release by these people, each of whom is counted or sends a report."""
    own, told, rng = np.sort(study.bounds.levels(trusted)), study.bounds.levels(local), seeded(seed)

    def count(places: tuple[float, ...], stated: CountNoise) -> NoisyCounts:
        cuts = [math.floor(place * LEVELS + 0.5) for place in places]
        counts = np.diff([0, *np.searchsorted(own, cuts, side="right"), len(own)])[: stated.draws] * stated.steps
        drawn = noise.discrete_laplace(stated.mechanism.scale, stated.draws, rng=rng)  # type: ignore[union-attr]
        return NoisyCounts(len(own), tuple((counts + drawn).tolist()), stated)

    report = study.invite.mechanism
    bins = report_bins(report, CELLS)
    numbers = bins.numbers(noise.reports(report, told, rng=rng))
    reports = BinnedReports(np.bincount(numbers, minlength=bins.size), report)
    return _published(study, hear(study, len(own), reports, count))


@pytest.mark.parametrize(("epsilon", "step"), [(1.0, 1.0), (4.0, 1.0), (4.0, None)])
def test_a_scale_from_1_to_5_is_told_as_one(epsilon: float, step: float | None) -> None:
    """Sums over five numbers: every interval of every trial holds but for one in twenty or so, and no alarm is false.

    Without the step the reports cannot say whether people at an edge are at it: intervals hold, and are wide."""
    shares = np.array([0.03, 0.07, 0.12, 0.38, 0.40])
    scale = np.arange(1.0, 6.0)
    mean = float(shares @ scale)
    apart = np.abs(np.subtract.outer(scale, scale))
    truth = {
        "sd": [math.sqrt(shares @ (scale - mean) ** 2)],
        "gini": [float(shares @ apart @ shares) / 2 / mean],
        "quantiles": [3.0, 4.0, 5.0],
        "histogram": [0.03, 0.07, 0.12, 0.78],
    }
    study = DistributionTask(Bounds(1, 5), PureDP(epsilon), at=(0.15, 0.5, 0.9), edges=(1.0, 2.0, 3.0, 4.0, 5.0),
                              spread=True, step=step)  # fmt: skip
    missed, asked, alarms, trials = 0, 0, 0, 12 if step else 3
    for seed in range(trials):
        draw = np.random.default_rng(seed)
        found = _of_people(study, draw.choice(scale, 300, p=shares), draw.choice(scale, 5_700, p=shares), seed)
        alarms += _apart(found)["groups_disagree"]
        for name, values in truth.items():
            for cell, true in zip(found.of(name).cells, values, strict=True):
                low, high = cell.low, cell.high
                assert low <= cell.estimate <= high
                asked, missed = asked + 1, missed + (not low - 1e-9 <= true <= high + 1e-9)
        if step:
            assert all(x in scale for cell in found.of("quantiles").cells for x in (cell.low, cell.high))
            assert "whole steps of 1 from 1 on" in " ".join(found.receipt.assumes)
    assert missed <= 0.05 * asked + 4 * math.sqrt(0.05 * asked)
    assert alarms <= 2


def test_groups_that_differ_each_count_by_their_number_of_people() -> None:
    """A fifth trusts, and has two standard deviations more: the median of all is that of the mixture, not of either.

    The control takes the groups for alike, says so on its receipt, and misses."""
    gap, held, missed = 28.0, 0, 0
    mixed = optimize.brentq(
        lambda x: 0.2 * stats.norm.cdf(x, 40 + gap, 14) + 0.8 * stats.norm.cdf(x, 40, 14) - 0.5, 0, 100
    )
    for seed in range(3):
        draw = np.random.default_rng(seed)
        trusted, local = draw.normal(40 + gap, 14, 2_000), draw.normal(40, 14, 8_000)
        study = DistributionTask(Bounds(0, 120), PureDP(1.0), at=(0.5,))
        found = _of_people(study, trusted, local, seed)
        assert found.of("quantiles").facts["estimator"] == "everyone"
        assert _apart(found)["groups_disagree"]
        low, high = _ends(found, "quantiles")
        held += low <= mixed <= high
        alike = _of_people(replace(study, estimator="hybrid"), trusted, local, seed)
        low, high = _ends(alike, "quantiles")
        missed += not low <= mixed <= high
        assert "people who trust are like the others" in " ".join(alike.receipt.assumes)
        assert "DISAGREE" in str(found)
        assert "DISAGREE" in str(found.in_words())
    assert held == 3
    assert missed == 3
