"""A steered mean's blend: right whatever the window, as precise as promised, and covered by its interval."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hybridp.blend.mean import blend_window
from hybridp.curator.sums import release_window
from hybridp.noise import seeded
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import LocalSummary
from hybridp.public.randomisers import LEVELS, Bounds, best_randomiser, dithered_bit
from hybridp.public.steered_mean import (
    PILOT_SHARE,
    SQUARES_SHARE,
    Crowd,
    Quartiles,
    WindowNoise,
    WindowSums,
    normal_people,
)

K, N, EPSILON = 4000, 400_000, 1.0
BIT = dithered_bit(PureDP(EPSILON))
REPORT = (((math.e + 1) / (math.e - 1)) ** 2 - 2 / 3) / 4  # of one bit about the whole range
TERMS = (4 * REPORT, 0.0)
CROWD = Crowd(K, N, EPSILON, TERMS)


def errors(ends: tuple[float, float], spread: float, times: int, within: bool) -> tuple[np.ndarray, list[bool], float]:
    """What is drawn by the library's own release, and reports by their normal law: errors, coverage, the promise."""
    draw, rng = np.random.default_rng(5), seeded(5)
    people = np.clip(draw.normal(0.4, spread, 200_000), 0, 1)
    (window,) = CROWD.steered(np.array([ends]), *normal_people(0.4, spread))
    sums, squares = (PureDP(EPSILON * (1 - PILOT_SHARE) * part) for part in (1 - SQUARES_SHARE, SQUARES_SHARE))
    noise = WindowNoise.of(sums, squares, *window.levels)
    low, high = ends if within else (0.0, 1.0)
    placed = 2 * (np.clip(people, low, high) - low) / (high - low) - 1
    variance = placed.var() + 4 * REPORT
    found, covered = [], []
    for _ in range(times):
        own = release_window([Bounds(0, 1).levels(draw.choice(people, K))], window, noise, rng=rng)
        said = WindowSums(K, *own, noise, window, within)
        mean = placed.mean() + math.sqrt(variance / N) * draw.standard_normal()
        told = blend_window(said, LocalSummary(N, mean * N, (variance + placed.mean() ** 2) * N, BIT))
        error = (told.estimate + 1) / 2 - people.mean()
        found.append(error)
        covered.append(abs(error) <= told.half_width(0.95) / 2)
    if within:
        return np.array(found), covered, window.variance
    apart = people.var() / K + 2 * 2 / (sums.epsilon * K) ** 2  # both sums have noise
    return np.array(found), covered, float(1 / (1 / apart + N / (people.var() + REPORT)))


@pytest.mark.parametrize(
    ("ends", "within"), [((0.25, 0.5), True), ((0.375, 0.4375), True), ((0.75, 1.0), True), ((0.375, 0.4375), False)]
)
def test_no_window_makes_the_estimate_wrong_and_each_is_as_good_as_it_promises(
    ends: tuple[float, float], within: bool
) -> None:
    """Nor does one that was named for nothing, where local people are asked about the whole range."""
    times = 400
    found, covered, promised = errors(ends, 0.08, times, within)
    assert abs(found.mean()) < 5 * math.sqrt(promised / times)  # five standard errors
    # The variance of 400 draws, by five of its own standard errors (Laplace draws have a kurtosis of 6).
    assert (found**2).mean() / promised == pytest.approx(1, abs=5 * math.sqrt(5 / times))
    assert np.mean(covered) > 0.95 - 5 * math.sqrt(0.05 * 0.95 / times)
    bias = float(np.mean(np.clip(np.random.default_rng(1).normal(0.4, 0.08, 100_000), *ends))) - 0.4
    if ends[0] > 0.4:
        assert abs(bias) > 5 * math.sqrt(promised), "the check can fail: the window alone would be far off"


@pytest.mark.parametrize(("trusted", "local"), [(10_000, 990_000), (50_000, 950_000), (100_000, 9_900_000)])
def test_few_people_far_beyond_a_window_never_cost_more_than_a_twentieth(trusted: int, local: int) -> None:
    """At epsilon 4, with whatever share of people at the upper bound: the exact error of what is chosen after trusted
    people's squares, drawn here, over that of the best mean in one go with the whole of epsilon."""
    epsilon, draw = 4.0, np.random.default_rng(3)
    terms = best_randomiser(PureDP(epsilon)).variance_terms
    crowd = Crowd(trusted, local, epsilon, terms)
    window = crowd.window(Quartiles.normal(0.3, 0.03))
    assert window is not None
    noise = 2 / (epsilon * 0.955 * 0.8 * trusted) ** 2
    middle = np.clip(draw.normal(0.3, 0.03, 20_000), 0, 1)

    def told(x: np.ndarray, low: float, high: float, p: np.ndarray) -> float:
        unit = 2 * (x - low) / (high - low) - 1
        return float(p @ x**2 - (p @ x) ** 2 + (high - low) ** 2 / 4 * (terms[0] + terms[1] * (p @ unit**2))) / local

    ratios, always, chosen = [], [], []
    for rare in (0.0, 1e-4, 3e-4, 1e-3, 1 / 300, 1e-2, 5e-2):
        x = np.append(middle, 1.0)
        p = np.append(np.full(len(middle), (1 - rare) / len(middle)), rare)
        y = np.clip(x, window.low, window.high)
        spread = float(p @ x**2 - (p @ x) ** 2)
        plain = 1 / (1 / (spread / trusted + 2 / (epsilon * trusted) ** 2) + 1 / told(x, 0, 1, p))
        whole = 1 / (1 / (spread / trusted + 2 * noise) + 1 / told(x, 0, 1, p))
        outside = float(p @ (x - y) ** 2 - (p @ (x - y)) ** 2)  # local people alone tell what is within
        within = outside / trusted + noise + told(y, window.low, window.high, p)
        met = draw.binomial(trusted, rare, 200) / trusted * (1 - window.high) ** 2
        near = (1 - rare) * float(np.mean((middle - np.clip(middle, window.low, window.high)) ** 2))
        squares = met + near + draw.laplace(0, window.far**2 / (epsilon * 0.955 * 0.2 * trusted), 200)
        asked = crowd.asks_within(window, np.maximum(squares, 0.0))
        ratios.append(math.sqrt(np.where(asked, within, whole).mean() / plain))
        always.append(math.sqrt(within / plain))
        chosen.append(asked.mean())
    assert max(ratios) < 1.05
    assert max(always) > 1.5, "the check can fail: a window whatever the squares say"
    assert ratios[0] < 0.8, "and what it is for is kept"
    assert chosen[0] > 0.5 > chosen[-1] == 0


def test_both_sums_move_by_the_range_and_squares_by_the_farthest() -> None:
    """Of a replaced person, wherever the window is: what the noise is made for, and no less."""
    (window,) = CROWD.steered(np.array([[0.25, 0.5]]), *normal_people(0.4, 0.1))
    low, high = window.levels
    noise = WindowNoise.of(PureDP(1e6), PureDP(1e6), low, high)
    values = (0, low, (low + high) // 2, high, LEVELS)
    moved = [release_window([np.array([value])], window, noise, rng=seeded(1)) for value in values]
    ends = np.array(moved, dtype=np.float64)
    sums = [abs(a[0] - b[0]) + abs(a[1] - b[1]) for a in ends for b in ends]
    squares = [abs(a[2] - b[2]) for a in ends for b in ends]
    assert max(sums) == LEVELS == noise.sums.sensitivity
    assert max(squares) == (2**15) ** 2 == noise.squares.sensitivity


def test_public_numbers_decide_and_fall_back() -> None:
    assert CROWD.worth_a_pilot
    assert not Crowd(1000, N, EPSILON, TERMS).worth_a_pilot, "too few for a pilot"
    assert not Crowd(K, 0, EPSILON, TERMS).worth_a_pilot, "nobody to ask"
    assert not Crowd(100_000, 1000, EPSILON, TERMS).worth_a_pilot, "local people would add nothing"
    narrow, wide = (CROWD.window(Quartiles.normal(0.5, sd)) for sd in (0.08, 0.45))
    assert narrow is not None
    assert wide is None
    places, shares = CROWD.assumed(Quartiles.normal(0.5, 0.08))
    plain = CROWD.at_once(0.5, float(shares @ (places - 0.5) ** 2), CROWD.sum_noise(EPSILON))
    assert narrow.variance + CROWD.slack(narrow) < plain, "an interval that is no wider"
    # Where it is of no use, a pilot raises the noise by less than a twentieth.
    assert 1 / (1 - PILOT_SHARE) < 1.05
