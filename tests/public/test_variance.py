"""What the local reports tell about the spread of the data: unbiased, with the stated error, sensibly shrunk."""

from __future__ import annotations

import itertools
import math

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hybridp import noise
from hybridp.noise import seeded
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import SMALLEST_VARIANCE, posterior_variance, predicted_se, raw_variance, upper_variance
from hybridp.public.randomisers import LEVELS, Randomiser, dithered_bit, piecewise

RANDOMISERS: list[Randomiser] = [
    dithered_bit(PureDP(0.5)),
    dithered_bit(PureDP(2.0)),
    piecewise(PureDP(1.0)),
    piecewise(PureDP(4.0)),
]
DATA: list[tuple[tuple[float, ...], tuple[float, ...]]] = [  # points in [-1, 1] and their shares
    ((0.0,), (1.0,)),
    ((0.75,), (1.0,)),
    ((-1.0, 1.0), (0.5, 0.5)),
    ((-1.0, 1.0), (0.9, 0.1)),
    ((-0.5, 0.0, 0.25, 1.0), (0.4, 0.3, 0.2, 0.1)),
]
ids = [f"{r.name}-{r.guarantee.epsilon:g}" for r in RANDOMISERS]
every_randomiser = pytest.mark.parametrize("mechanism", RANDOMISERS, ids=ids)
every_data = pytest.mark.parametrize(("points", "shares"), DATA)


def moments(points: tuple[float, ...], shares: tuple[float, ...]) -> tuple[float, float]:
    mean = math.fsum(p * x for x, p in zip(points, shares, strict=True))
    return mean, math.fsum(p * (x - mean) ** 2 for x, p in zip(points, shares, strict=True))


def draw(mechanism: Randomiser, points: tuple[float, ...], shares: tuple[float, ...], n: int) -> NDArray[np.float64]:
    who = np.random.default_rng(17).choice(len(points), size=n, p=shares)
    levels = np.array([round((x + 1) / 2 * LEVELS) for x in points])[who]
    return noise.reports(mechanism, levels, rng=seeded(18))


@every_randomiser
@every_data
def test_raw_variance_is_unbiased_around_the_true_mean(
    mechanism: Randomiser, points: tuple[float, ...], shares: tuple[float, ...]
) -> None:
    """E (y - m)^2 by conditioning on each value: its report's own variance plus its distance from m."""
    mean, variance = moments(points, shares)
    constant, quadratic = mechanism.variance_terms
    second = math.fsum(p * (constant + quadratic * x**2 + (x - mean) ** 2) for x, p in zip(points, shares, strict=True))
    assert raw_variance(second, mean, mechanism) == pytest.approx(variance, abs=1e-9 * constant + 1e-12)


@every_randomiser
@every_data
def test_the_predicted_error_covers_the_true_one(
    mechanism: Randomiser, points: tuple[float, ...], shares: tuple[float, ...]
) -> None:
    """sd of (y - m)^2 from 60,000 draws: never more than predicted."""
    mean, variance = moments(points, shares)
    n = 60_000
    square = (draw(mechanism, points, shares, n) - mean) ** 2
    true = float(square.std()) / (1 + mechanism.variance_terms[1])
    predicted = predicted_se(1, mean, variance, mechanism)
    assert true <= predicted * 1.05
    assert predicted_se(400, mean, variance, mechanism) == pytest.approx(predicted / 20, rel=1e-12)


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 3.0])
@pytest.mark.parametrize("z", [-1.0, 0.0, 0.5])
def test_the_dithered_fourth_moment(epsilon: float, z: float) -> None:
    """var (y - z)^2 = 4 B^2/3 - 56/45 + 4 z^2 (B^2 - 1), by integrating over the threshold; stated with 4/45."""
    mechanism = dithered_bit(PureDP(epsilon))
    q = mechanism.flips / 2**64
    b = 1 / (1 - 2 * q)

    def moment(power: int) -> mp.mpf:
        def part(sign: int, low: float, high: float, p: float) -> mp.mpf:
            return p / 2 * mp.quad(lambda u: (b * sign + u - z) ** power, [low, high]) if high > low else mp.mpf(0)

        below = part(1, -1, z, 1 - q) + part(-1, -1, z, q)
        return below + part(-1, z, 1, 1 - q) + part(1, z, 1, q)

    exact = float(moment(4) - moment(2) ** 2)
    assert float(moment(2)) == pytest.approx(mechanism.worst_variance, rel=1e-9)
    assert exact == pytest.approx(4 * b**2 / 3 - 56 / 45 + 4 * z**2 * (b**2 - 1), rel=1e-9)
    assert mechanism.square_deviation(z, 0.0) ** 2 == pytest.approx(exact + 60 / 45, rel=1e-9)


# --- shrinking --------------------------------------------------------------------------------------------------------


def by_quadrature(raw: float, se: float) -> float:
    """Posterior mean under the density 1/v on [1/400, 1] and a normal likelihood, in 15 digits."""
    with mp.workdps(15):
        r, s = mp.mpf(raw), mp.mpf(se)
        inside = [mp.mpf(1) / 400, *(x for k in range(-8, 9) if mp.mpf(1) / 400 < (x := r + k * s) < 1), mp.mpf(1)]

        def weight(v: mp.mpf) -> mp.mpf:
            return mp.exp(-(((r - v) / s) ** 2) / 2)

        return float(mp.quad(weight, inside) / mp.quad(lambda v: weight(v) / v, inside))


@pytest.mark.parametrize("raw", [-0.5, 0.0, 0.003, 0.05, 0.33, 0.9, 1.1])
@pytest.mark.parametrize("se", [0.001, 0.02, 0.3, 5.0])
def test_the_posterior_mean_is_the_integral(raw: float, se: float) -> None:
    if raw - 9 * se >= 1 or raw + 9 * se <= SMALLEST_VARIANCE:  # the likelihood does not reach the prior
        assert posterior_variance(raw, se) == (1.0 if raw > 1 else SMALLEST_VARIANCE)
    else:
        assert posterior_variance(raw, se) == pytest.approx(by_quadrature(raw, se), rel=0.02)


def test_the_posterior_mean_is_monotone_and_stays_inside_the_prior() -> None:
    for se in (0.003, 0.1, 2.0):
        found = [posterior_variance(float(raw), se) for raw in np.linspace(-1, 2, 61)]
        assert all(b >= a - 1e-12 for a, b in itertools.pairwise(found))
        assert SMALLEST_VARIANCE <= found[0] <= found[-1] <= 1


def test_the_upper_limit_covers_and_is_capped() -> None:
    """P(raw + 1.645 se >= variance) = 95 % for a normal raw."""
    raw = 0.3 + 0.05 * stats.norm.ppf(np.linspace(0.0005, 0.9995, 1000))
    covered = np.mean([upper_variance(float(x), 0.05) >= 0.3 for x in raw])
    assert covered == pytest.approx(0.95, abs=0.002)
    assert upper_variance(5.0, 1.0) == 1.0
    assert upper_variance(-5.0, 0.1) == pytest.approx(0.1645)
