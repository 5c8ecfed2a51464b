"""Advice within a bound, bands, differences and what publishing costs."""

from __future__ import annotations

import math

import pytest
from toys import SPACE, laplace_epsilon, toy, true_error

from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.pareto import Problem, final_front, random_search, suggest
from hybridp.public.mechanisms import PureDP
from hybridp_lab.fronts import guarded, release_front


@pytest.fixture(scope="module")
def done():
    return random_search(toy(), n=40, seed=4).evaluations


def test_the_suggestion_is_within_the_bound_and_nearly_best(done):
    advice = suggest(toy(), done, epsilon=1.0)
    best = true_error({"b": 1.0, "x": 0.5})  # the least error with epsilon <= 1
    assert advice.suggested.epsilon <= 1.0
    assert true_error(advice.suggested.setting) < best + 0.01
    assert advice.suggested.low < advice.suggested.predicted < advice.suggested.high
    assert advice.suggested.low - 0.01 < true_error(advice.suggested.setting) < advice.suggested.high + 0.01
    assert advice.measured is not None
    assert advice.measured.epsilon <= 1.0
    assert true_error(advice.suggested.setting) <= true_error(advice.measured.setting) + 1e-3


def test_a_bound_out_of_reach_is_refused(done):
    with pytest.raises(InvalidInput, match="epsilon"):
        suggest(toy(), done, epsilon=1e-3)
    with pytest.raises(InvalidInput):
        suggest(toy(), done, epsilon=math.nan)
    with pytest.raises(InvalidInput):
        suggest(toy(), done[:2], epsilon=1.0)


def test_the_final_front_is_ordered_and_measured(done):
    front = final_front(toy(), done)
    epsilons, errors = [c.epsilon for c in front], [c.predicted for c in front]
    assert epsilons == sorted(epsilons)
    assert errors == sorted(errors, reverse=True)
    assert {tuple(c.setting.items()) for c in front} <= {tuple(e.setting.items()) for e in done}


@pytest.mark.parametrize("right", [0, 1, 24_999, 25_000, 25_001, 50_000, math.nan, math.inf, -math.inf])
def test_no_answer_is_refused(right):
    """25,001 of 50,000 right answers lay beyond what the noise's lattice held, and 25,000 did not: that told which."""
    people = 50_000
    problem = Problem("r", SPACE, laplace_epsilon, lambda s, seed: [right / people], sensitivity=1 / people)
    found = release_front(problem, [{"b": 1.0, "x": 0.5}], trained=PureDP(1.0), evaluated=PureDP(1.4), rng=seeded(3))
    true = min(max(0.0 if math.isnan(right) else right / people, 0.0), 1.0)
    assert found.errors[0] == pytest.approx(1 - true, abs=40 / people)
    guard = guarded(problem, epsilon_each=1.4)
    assert guard.utility({"b": 1.0, "x": 0.5}, 0)[0] == pytest.approx(true, abs=40 / people)
