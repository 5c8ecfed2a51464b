"""One distribution function from reports and counts, against samples whose distribution is known."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hybridp import noise
from hybridp.blend.distribution import Evidence, Seen, Shape, SharesBelow, blended, counts_seen, fit, reports_seen
from hybridp.blend.plausible import Plausible, plausible
from hybridp.noise import seeded
from hybridp.public.distribution import CELLS, BinnedReports, cell_chances, report_bins
from hybridp.public.mechanisms import PureDP
from hybridp.public.randomisers import LEVELS, Bounds, LocalName, randomiser
from hybridp.public.shares import CountNoise, NoisyCounts, count_noise
from hybridp.tasks.distribution import DistributionTask, places_around
from hybridp_lab.simulate import hear

ENDS = np.linspace(0, 1, CELLS + 1)


def reported(values: Any, name: LocalName, epsilon: float, seed: int) -> BinnedReports:
    """The reports of people with these places (0 to 1 of the range)."""
    drawn = randomiser(name, PureDP(epsilon))
    sent = noise.reports(drawn, np.floor(values * LEVELS + 0.5).astype(np.int64), rng=seeded(seed))
    bins = report_bins(drawn, CELLS)
    return BinnedReports(np.bincount(bins.numbers(sent), minlength=bins.size), drawn)


def told(values: Any, name: LocalName, epsilon: float, seed: int) -> Seen:
    """What they say."""
    return reports_seen(reported(values, name, epsilon, seed), Shape.known())


@pytest.mark.parametrize(("name", "epsilon"), [("dithered", 1.0), ("piecewise", 4.0)])
def test_the_matrix_is_the_law_of_the_reports(name: LocalName, epsilon: float) -> None:
    """People spread evenly over one cell: their reports against its column, by a chi-square test."""
    drawn, cells, n = randomiser(name, PureDP(epsilon)), 16, 40_000
    bins, chances = report_bins(drawn, cells), cell_chances(drawn, cells)
    np.testing.assert_allclose(chances.sum(axis=0), 1, atol=1e-9)
    for cell in (0, 5, 15):
        levels = np.random.default_rng(cell).integers(cell * LEVELS // cells, (cell + 1) * LEVELS // cells, n)
        counts = np.bincount(bins.numbers(noise.reports(drawn, levels, rng=seeded(cell))), minlength=bins.size)
        assert _fits(counts, chances[:, cell]) > 1e-6
        assert _fits(counts, chances[:, (cell + 4) % cells]) < 1e-6  # the check can fail


def _fits(counts: Any, law: Any) -> float:
    often = law * counts.sum() > 5
    seen = np.append(counts[often], counts[~often].sum())
    meant = np.append(law[often], law[~often].sum()) * counts.sum()
    keep = meant > 1e-9
    return float(stats.chisquare(seen[keep], meant[keep] * seen[keep].sum() / meant[keep].sum()).pvalue)


@pytest.mark.parametrize(("name", "epsilon", "n"), [("dithered", 1.0, 50_000), ("piecewise", 4.0, 20_000)])
@pytest.mark.parametrize("law", ["beta", "two hills", "lumps"])
def test_the_band_covers_along_the_distribution(name: LocalName, epsilon: float, n: int, law: str) -> None:
    rng, inside, narrow = np.random.default_rng(5), [], []
    draw = {
        "beta": lambda size: rng.beta(2, 5, size),
        "two hills": lambda size: np.clip(rng.normal(np.where(rng.random(size) < 0.6, 0.3, 0.7), 0.05), 0, 1),
        "lumps": lambda size: np.where(rng.random(size) < 0.3, rng.integers(1, 9, size) / 10, rng.beta(2, 4, size)),
    }[law]
    truth = np.searchsorted(np.sort(draw(400_000)), ENDS, side="right") / 400_000
    for seed in range(12):
        shape = fit([told(draw(n), name, epsilon, seed)])
        away = (np.abs(shape.mean - truth) / np.sqrt(np.diag(shape.covariance)))[4:-4]
        inside.append(float((away <= 1.96).mean()))
        narrow.append(float((away <= 0.2).mean()))
    assert np.mean(inside) >= 0.93
    assert np.mean(narrow) < 0.9  # a band a tenth as wide does not cover


def test_people_clipped_to_a_bound_do_not_bend_the_rest() -> None:
    """Three in ten lie beyond the upper bound, and two in ten below the lower one."""
    rng, errors, inside = np.random.default_rng(9), [], 0
    for seed in range(30):
        sent = reported(np.clip(rng.uniform(-0.4, 1.6, 50_000), 0, 1), "dithered", 1.0, seed)
        shape = fit([reports_seen(sent, Shape.known())])
        errors += [shape.below(place)[0] - (place + 0.4) / 2 for place in (0.02, 0.5, 0.9, 0.98)]
        low, high = plausible(Evidence(reports=sent)).quantile_interval(0.6, 1.96)
        inside += low <= 0.8 <= high
    assert math.sqrt(np.mean(np.square(errors))) < 0.018
    assert inside >= 26


def test_moments_and_gini_of_a_known_distribution() -> None:
    """Uniform on [0, 1]: variance 1/12, Gini 1/3; of b + a uniform number: a/(6 (b + a/2))."""
    shape = Shape(ENDS.copy(), np.eye(CELLS + 1) * 1e-12)
    assert shape.variance()[0] == pytest.approx(1 / 12, rel=1e-3)
    assert shape.gini(0.0)[0] == pytest.approx(1 / 3, rel=1e-3)
    assert shape.gini(1.5)[0] == pytest.approx(1 / 6 / 2, rel=1e-3)


def test_the_error_of_the_spread_is_that_of_samples() -> None:
    rng, found = np.random.default_rng(8), []
    for seed in range(40):
        shape = fit([told(rng.beta(2, 5, 20_000), "dithered", 1.0, seed)])
        found.append([*shape.variance(), *shape.gini(0.0)])
    values = np.array(found)
    truth = 10 / (49 * 8)  # a b/((a+b)^2 (a+b+1))
    assert abs(values[:, 0].mean() - truth) < 4 * values[:, 0].std() / math.sqrt(40) + 0.1 * values[:, 1].mean()
    assert (np.abs(values[:, 0] - truth) <= 1.96 * values[:, 1]).mean() >= 0.85
    spread = rng.beta(2, 5, 200_000)
    gini = float(np.abs(spread[::2] - spread[1::2]).mean() / 2 / spread.mean())
    assert (np.abs(values[:, 2] - gini) <= 1.96 * values[:, 3]).mean() >= 0.85


def test_the_same_people_counted_twice_are_not_twice_as_many() -> None:
    """Without noise to speak of, the error at a place is that of a sample of k, however often they are counted."""
    k, places = 400, (0.25, 0.5, 0.75)
    one = SharesBelow(np.array(places), places, k, 1e-6)
    flat, errors = Shape.known(), []
    for parts in ((one,), (one, one), (one, one, one)):
        spread = np.linalg.inv(counts_seen(parts, flat).precision)
        assert np.diag(spread) == pytest.approx([p * (1 - p) / k for p in places] * len(parts), rel=1e-4)
        errors.append(blended(Evidence(counted=parts), alone=False).both.below(0.5)[1])
    assert errors == pytest.approx([errors[0]] * 3, rel=0.01)
    # Noise of each part's own is averaged out.
    loud = SharesBelow(np.array([0.5]), (0.5,), k, 1e4)
    errors = [blended(Evidence(counted=(loud,) * many), alone=False).both.below(0.5)[1] for many in (1, 4)]
    assert errors[1] < 0.7 * errors[0]


def test_a_steep_start_is_no_crowd_at_the_lower_bound() -> None:
    """Half of 500 people within the first sixteenth, seen there only: the median lies inside of it, not at 0."""
    shares = np.array([0.563, 0.599, 0.678, 0.74, 0.783, 0.814, *np.linspace(0.83, 0.99, 9)])
    look = SharesBelow(shares, tuple(i / 16 for i in range(1, 16)), 500, 128.0)
    assert 0.03 < blended(Evidence(counted=(look,)), alone=False).both.quantile(0.5) < 1 / 16


@pytest.mark.parametrize("places", [5, 9, 17, 33])
def test_places_close_together_leave_the_estimate_a_number(places: int) -> None:
    """Quantiles that nearly coincide are counted a few parts in a million of the range apart: no walk may break."""
    for start in np.random.default_rng(3).uniform(0.1, 0.9, 10):
        close = np.floor(start * 2**19) / 2**19 + np.arange(places) / 2**19
        ends = np.unique(np.concatenate([np.linspace(0, 1, CELLS + 1), close]))
        shape = fit([], Shape.known(ends=ends))  # nobody said anything: a straight line is as good as any
        assert np.abs(shape.mean - ends).max() < 0.05
        assert np.isfinite(shape.covariance).all()


def heard_of(k: int, epsilon: float, seed: int) -> Plausible:
    """What k trusted people say of the median of beta(2,5), their noise drawn."""
    study = DistributionTask(Bounds(0, 1), PureDP(epsilon), estimator="tcm-only")
    ranks, rng = np.sort(np.random.default_rng(seed).random(k)), seeded(seed)

    def count(places: tuple[float, ...], stated: CountNoise) -> NoisyCounts:
        below = np.searchsorted(ranks, stats.beta.cdf(places, 2, 5))
        drawn = noise.discrete_laplace(stated.mechanism.scale, stated.draws, rng=rng)  # type: ignore[union-attr]
        return NoisyCounts(k, tuple((np.diff([0, *below, k])[: stated.draws] + drawn).tolist()), stated)

    return plausible(hear(study, k, None, count))


def test_an_interval_shrinks_with_the_number_of_people_who_trust() -> None:
    """The median's standard error is 1/(2 sqrt k) of people; whatever k, the interval is at most ten of them wide."""
    truth, widths = stats.beta.ppf(0.5, 2, 5), []
    for k in (2_000, 20_000, 200_000):
        for seed in range(4):
            low, high = heard_of(k, 1.0, seed).quantile_interval(0.5, 1.96)
            assert low <= truth <= high
            widths.append(float(np.diff(stats.beta.cdf([low, high], 2, 5))[0]) * 2 * math.sqrt(k))
    assert max(widths) < 10, widths
    assert min(widths) > 3.0, "an interval of 95 % is four standard errors wide, but for luck"


def test_places_are_as_many_as_their_noise_allows() -> None:
    counts = NoisyCounts(900, (300, 300, 300), count_noise(PureDP(1.0), 3))
    shape, at = fit([counts_seen([SharesBelow.of(counts, (0.3, 0.6))], Shape.known())]), (0.5,)
    study = DistributionTask(Bounds(0, 1), PureDP(1.0), at=at)
    many = [len(places_around(study, shape, k)) for k in (30, 300, 3_000, 300_000)]
    assert many == sorted(many)
    assert (many[0], many[-1]) == (3, 33)
