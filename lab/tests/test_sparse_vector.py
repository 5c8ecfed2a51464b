"""The closed form against the privacy loss of the mechanism itself, by integration over the threshold's noise."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from numpy.typing import NDArray

from hybridp.errors import InvalidInput
from hybridp_lab.problems.sparse_vector import SparseVector, sparse_vector

Floats = NDArray[np.float64]


def tail(x: Floats, scale: float) -> Floats:
    """P(Laplace(scale) >= x)."""
    small = 0.5 * np.exp(-np.abs(x) / scale)
    return np.where(x > 0, small, 1 - small)


def law(answers: tuple[int, ...], b1: float, b2: float, cutoff: int) -> dict[tuple[int, ...], float]:
    """The probability of every output, by the midpoint rule over rho (in units of its quantiles)."""
    u = (np.arange(20_000) + 0.5) / 20_000
    rho = np.where(u < 0.5, np.log(2 * u), -np.log(2 * (1 - u))) * b1
    result: dict[tuple[int, ...], float] = {}
    for output in itertools.product((0, 1), repeat=len(answers)):
        if sum(output) > cutoff:
            continue
        chance, seen = np.ones_like(rho), 0
        for q, w in zip(answers, output, strict=True):
            if seen >= cutoff:
                break
            above = tail(0.5 + rho - q, b2)
            chance = chance * (above if w else 1 - above)
            seen += w
        result[output] = float(chance.mean())
    return result


def worst_loss(b1: float, b2: float, cutoff: int, queries: int) -> float:
    """The largest |log ratio| over all outputs and all pairs of answers (every binary query may change by 1)."""
    laws = [law(a, b1, b2, cutoff) for a in itertools.product((0, 1), repeat=queries)]
    return max(
        abs(math.log(p[w]) - math.log(q[w])) for p, q in itertools.combinations(laws, 2) for w in p if p[w] and q[w]
    )


@pytest.mark.parametrize(("noise", "cutoff", "queries"), [(4.0, 1, 5), (6.0, 2, 5), (2.0, 1, 3), (20.0, 3, 5)])
def test_no_output_tells_more_than_epsilon(noise: float, cutoff: int, queries: int) -> None:
    mechanism = sparse_vector(noise, cutoff)
    loss = worst_loss(mechanism.threshold_scale, mechanism.query_scale, cutoff, queries)
    assert loss <= mechanism.epsilon
    assert loss > 0.3 * mechanism.epsilon  # the closed form is not idle


def test_control_epsilon_without_the_threshold_or_the_cutoff_is_exceeded() -> None:
    """What several published variants claim: the noise of the queries as if the cutoff cost nothing."""
    mechanism = sparse_vector(8.0, 3)
    loss = worst_loss(mechanism.threshold_scale, mechanism.query_scale, 3, 5)
    assert loss > 1 / mechanism.threshold_scale
    assert loss > 2 / mechanism.query_scale + 0.5 / mechanism.threshold_scale


@pytest.mark.parametrize("cutoff", [1, 2, 7, 30])
@pytest.mark.parametrize("noise", [0.01, 1.0, 100.0])
def test_epsilon_is_the_printed_closed_form(noise: float, cutoff: int) -> None:
    root = (2 * cutoff) ** (1 / 3)
    mechanism = sparse_vector(noise, cutoff)
    assert mechanism.epsilon == pytest.approx((1 + root) * (1 + root**2) / noise, rel=1e-12)
    assert mechanism.threshold_scale + mechanism.query_scale == pytest.approx(noise, rel=1e-15)
    assert mechanism.guarantee.epsilon >= mechanism.epsilon


def test_the_split_gives_the_least_variance_at_its_epsilon() -> None:
    mechanism = sparse_vector(5.0, 6)
    epsilon = mechanism.epsilon

    def variance(share: float) -> float:
        return 2 * (1 / (share * epsilon)) ** 2 + 2 * (12 / ((1 - share) * epsilon)) ** 2

    mine = variance(1 / mechanism.threshold_scale / epsilon)
    assert mine <= min(variance(float(s)) for s in np.linspace(0.01, 0.99, 999)) * (1 + 1e-9)


@pytest.mark.parametrize(("noise", "cutoff"), [(0.0, 1), (math.inf, 1), (1.0, 0), (-1.0, 2), (math.nan, 2)])
def test_bad_settings_are_refused(noise: float, cutoff: int) -> None:
    with pytest.raises(InvalidInput, match="must be"):
        sparse_vector(noise, cutoff)


def test_scales_are_checked() -> None:
    with pytest.raises(InvalidInput, match="query_scale"):
        SparseVector(1.0, 0.0, 1)
