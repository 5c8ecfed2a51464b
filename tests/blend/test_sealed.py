"""Estimate-only publication: what one local person can move, by brute force, and what that is worth."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hybridp.blend.mean import Blend, Rule, blend, seal
from hybridp.curator.sums import Raw, release_sums
from hybridp.noise import reports, seeded
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import LocalSummary, TrustedSummary, sum_noise
from hybridp.public.randomisers import LEVELS, Bounds, Randomiser, randomiser

PROMISE = ApproxDP(1.0, 1e-6)


def local_sum(levels: np.ndarray, device: Randomiser, coins: int) -> LocalSummary:
    unit = reports(device, levels, rng=seeded(coins))
    return LocalSummary(len(unit), float(unit.sum()), float((unit**2).sum()), device)


def trusted_sum(people: int, promise: PureDP | ApproxDP = PROMISE, seed: int = 1) -> TrustedSummary:
    noise = sum_noise(promise, "laplace")
    held = Raw(people, [people * LEVELS // 3])
    return release_sums(held, noise, Bounds(0, 1), rng=seeded(seed))[0]


def sealed_with(trusted: TrustedSummary, local: LocalSummary, weight: float) -> tuple[Blend, Blend, Any]:
    found = blend(trusted, local, Rule("fixed", weight=weight, sd=0.4))
    return found, *seal(trusted, local, found)


def steps(sealed: Blend, trusted: TrustedSummary, weight: float) -> Fraction:
    """The published number in steps of the noisy sum, as the rational number that it is."""
    return (Fraction(sealed.estimate) + Fraction(weight)) / (Fraction(weight) * Fraction(trusted.step))


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("c", [0.001, 0.05, 0.4])
@pytest.mark.parametrize("over", [1.3, 3.0])
def test_amplification_is_the_papers_for_the_reach_of_a_report(epsilon: float, c: float, over: float) -> None:
    n, weight = 20_000, 1 - (1 - c) / over
    k, device = round(c * n), randomiser("best", PureDP(epsilon))
    local = LocalSummary(n - k, 12.5, 40.0 * n, device)
    promise = sealed_with(trusted_sum(k, PureDP(epsilon)), local, weight)[2]
    expected = device.bound * epsilon * c * (1 - weight) / ((1 - c) * weight)
    if expected >= epsilon:
        assert promise is None
        return
    assert promise is not None
    assert promise.delta == 0
    # A handful of rounding steps, of which one person's reach has 2^32 or a few orders fewer.
    assert expected <= promise.epsilon <= expected * (1 + 1e-4)
    assert promise.epsilon < epsilon


def test_no_amplification_is_claimed_where_there_is_none() -> None:
    trusted = trusted_sum(50, PureDP(1.0))
    device = randomiser("best", PureDP(1.0))
    local, even = LocalSummary(50, 1.0, 400.0, device), device.bound / (1 + device.bound)
    # With equal groups the trusted noise covers a local person only when it weighs more than the reach of a report.
    assert sealed_with(trusted, local, even + 0.01)[2] is not None
    assert sealed_with(trusted, local, even - 0.01)[2] is None
    for weight in (0.0, 1.0):
        found, sealed, promise = sealed_with(trusted, local, weight)
        assert (promise, sealed.estimate) == (None, found.estimate)
    for one in (
        seal(None, local, blend(None, local, Rule("adaptive"))),
        seal(trusted, None, blend(trusted, None, Rule("adaptive"))),
    ):
        assert one[1] is None


def test_the_interval_uses_public_numbers_only() -> None:
    trusted = trusted_sum(60)
    device = randomiser("dithered", PROMISE)
    widths = set()
    for coins in range(6):
        local = local_sum(np.random.default_rng(coins).integers(0, LEVELS + 1, 300), device, coins)
        widths.add(sealed_with(trusted, local, 0.5)[1].half_width(0.95))
    assert len(widths) == 1
