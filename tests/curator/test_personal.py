"""The weighted sum: everybody's epsilon in exact arithmetic, what one person can move, and the noise that is drawn."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from hybridp.curator import models as curating
from hybridp.curator.models import release_weighted_sum
from hybridp.errors import InvalidInput
from hybridp.noise import Randomness, seeded
from hybridp.public.messages import WeightedSum
from hybridp.public.personal import adpm_weights
from hybridp.public.randomisers import LEVELS

INF = math.inf


class Silent:
    """Stands in for the sampler: remembers the scale that was asked for and adds nothing."""

    def __init__(self) -> None:
        self.scales: list[float] = []

    def discrete_laplace(self, scale: float, size: int, *, rng: Randomness) -> Any:
        self.scales.append(scale)
        return np.zeros(size, dtype=np.int64)


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Silent:
    stand_in = Silent()
    monkeypatch.setattr(curating, "noise", stand_in)
    return stand_in


def crowd(seed: int) -> tuple[Any, Any]:
    """Epsilons from 1e-3 to 1e6 with 0 and infinity among them, and how many people ask for each."""
    draw = np.random.default_rng(seed)
    eps = np.unique(np.concatenate([10.0 ** draw.uniform(-3, 6, draw.integers(1, 40)), [0.0, INF][: seed % 3]]))
    return eps, draw.integers(1, 1000, len(eps))


def whole_numbers(found: WeightedSum, people: Any) -> tuple[list[int], int]:
    """The whole-number weights behind the shares: the largest is 2^40."""
    mass = Fraction(2**40) / Fraction(float(found.weights.max()))
    whole = [round(Fraction(float(w)) * mass) for w in found.weights]
    return whole, sum(a * int(n) for a, n in zip(whole, people, strict=True))


def lattice_step(found: WeightedSum, people: Any, scale: float) -> tuple[list[int], Fraction]:
    """The step to which the sum was rounded, recovered from what was published and the scale that was drawn."""
    whole, mass = whole_numbers(found, people)
    return whole, Fraction(round(Fraction(found.laplace_scale) * mass * LEVELS / (2 * Fraction(scale))))


@pytest.mark.parametrize("rule", ["adpm", "proportional", "equal"])
@pytest.mark.parametrize("seed", range(25))
def test_nobody_spends_more_than_their_epsilon_in_exact_arithmetic(silent: Silent, rule: str, seed: int) -> None:
    eps, people = crowd(seed)
    weights = adpm_weights(eps, counts=people).weight
    if rule != "adpm":
        weights = (eps > 0).astype(float) if rule == "equal" else np.minimum(eps, 10.0)
    found = release_weighted_sum(eps, people, people * 5, weights, rng=seeded(1))
    if not silent.scales:
        assert not np.isfinite(eps[weights > 0]).any()
        return
    (scale,) = silent.scales
    whole, step = lattice_step(found, people, scale)
    spends = [(math.floor(a * LEVELS / step) + 1) / Fraction(scale) if a else Fraction(0) for a in whole]
    asked = [(Fraction(float(e)), spent) for e, spent in zip(eps, spends, strict=True) if e < INF]
    assert all(spent <= e for e, spent in asked)
    assert all(
        Fraction(float(stated)) >= spent or stated == e
        for e, spent, stated in zip(eps, spends, found.spent, strict=True)
    )
    assert (found.weights[eps == 0] == 0).all()
    assert (found.spent <= eps).all()
    # The control: a tenth less noise breaks somebody's promise, so none is wasted either.
    assert any(spent / Fraction(9, 10) > e for e, spent in asked)


@pytest.mark.parametrize("seed", range(12))
def test_one_person_moves_the_rounded_sum_by_no_more_than_claimed(
    silent: Silent, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Brute force: replace one person's level, for every level of epsilon, and look at the sum before its noise."""
    eps, people = crowd(seed)
    weights = adpm_weights(eps, counts=people).weight
    draw = np.random.default_rng(seed)
    sums = np.array([draw.integers(0, LEVELS * n, endpoint=True) for n in people])
    base = release_weighted_sum(eps, people, sums, weights, rng=seeded(1))
    if base.laplace_scale == 0:
        return
    whole, step = lattice_step(base, people, silent.scales[-1])
    totals: list[int] = []
    monkeypatch.setattr(curating, "_unit", lambda total, mass: totals.append(total) or 0.0)
    release_weighted_sum(eps, people, sums, weights, rng=seeded(1))
    widest = 0
    for i, a in enumerate(whole):
        reach = (math.floor(a * LEVELS / step) + 1) * step if a else 0
        for change in (LEVELS, LEVELS // 2, 1):
            moved = sums.copy()
            moved[i] += change if sums[i] + change <= LEVELS * people[i] else -change
            release_weighted_sum(eps, people, moved, weights, rng=seeded(1))
            assert abs(totals[-1] - totals[0]) <= reach
            widest = max(widest, abs(totals[-1] - totals[0]))
    assert widest >= max(whole) * LEVELS - step  # the claim is as tight as the rounding allows


def test_rounding_to_steps_adds_at_most_one_step() -> None:
    """Every start within two steps and every change: |round(x + c) - round(x)| is floor(c/step) or one more."""
    for step in (1, 2, 7, 10):
        for change in range(4 * step + 1):
            jumps = {(x + change + step // 2) // step - (x + step // 2) // step for x in range(2 * step)}
            assert max(jumps) <= change // step + 1


EPS, PEOPLE = np.array([0.0, 0.05, 0.4, 3.0, INF]), np.array([40, 300, 200, 100, 10])
SUMS = (PEOPLE * (LEVELS * np.array([0.9, 0.2, 0.5, 0.7, 0.1]))).astype(np.int64)


def test_the_scale_is_the_least_that_the_weights_allow() -> None:
    """Up to the rounding to steps, the noise is that of the real-valued weights: width * max w/eps."""
    best = adpm_weights(EPS, counts=PEOPLE, width=2.0)
    found = release_weighted_sum(EPS, PEOPLE, SUMS, best.weight, rng=seeded(1))
    assert found.laplace_scale == pytest.approx(best.noise_scale, rel=1e-8)
    np.testing.assert_allclose(found.weights, best.weight, rtol=1e-9)
    np.testing.assert_allclose(found.spent, best.effective_epsilon, rtol=1e-8)


def test_one_vanishing_epsilon_costs_the_others_nothing() -> None:
    """Rounding to steps must not let a person who hardly counts double everybody's noise."""
    for tiny in (1e-8, 1e-10, 1e-12, 1e-300, 5e-324):
        eps, people = np.array([tiny, 1.0]), np.array([1, 1000])
        best = adpm_weights(eps, counts=people, width=2.0)
        found = release_weighted_sum(eps, people, people, best.weight, rng=seeded(1))
        assert found.laplace_scale == pytest.approx(best.noise_scale, rel=1e-3)
        assert found.spent[0] <= tiny


@pytest.mark.parametrize(
    ("eps", "weights", "name"),
    [
        ([0.0, 1.0], [0.5, 0.5], "weights"),
        ([1.0, 1.0], [-0.5, 1.5], "weights"),
        ([1.0, 1.0], [math.nan, 1.0], "weights"),
        ([1.0, 1.0], [0.0, 0.0], "weights"),
        ([0.0, 1e-10], [0.0, 1.0], "epsilons"),
    ],
)
def test_a_broken_rule_is_named(eps: list[float], weights: list[float], name: str) -> None:
    with pytest.raises(InvalidInput, match=rf"^`{name}` "):
        release_weighted_sum(np.array(eps), np.array([3, 3]), np.array([1, 1]), np.array(weights), rng=seeded(1))
