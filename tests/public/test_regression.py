"""How far one person moves the sums of a regression, and that a device tells nothing beyond its bounds."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest

from hybridp.errors import InvalidInput
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import VectorBounds
from hybridp.public.regression import (
    KindName,
    Line,
    farther,
    round_sums,
    rounds_noise,
    scale_noise,
    scale_share,
    sensitivities,
)

HALF = 2**24


def people(kind: str, d: int, draw: np.random.Generator) -> np.ndarray:
    """Corners, edges, middles and others of the box, on the lattice."""
    corners = np.array(list(itertools.product((-HALF, HALF), repeat=d + 1)))
    faces = np.array(list(itertools.product((-HALF, 0, HALF), repeat=d + 1)))
    return np.concatenate([corners, faces, draw.integers(-HALF, HALF + 1, (60, d + 1))]).astype(np.int64)


@pytest.mark.parametrize(("kind", "d"), [("linear", 1), ("linear", 2), ("linear", 3), ("logistic", 1), ("logistic", 2)])
def test_no_two_people_are_farther_apart_than_stated_and_some_nearly_are(kind: KindName, d: int) -> None:
    draw = np.random.default_rng(d)
    centres = [(0.0,) * (d + 1), (3.0, -2.0, 1.0)[: d + 1], (9.0, 9.0, -9.0)[: d + 1]] if kind == "logistic" else [()]
    crowd = people(kind, d, draw)
    each = np.concatenate(
        [np.array([round_sums(kind, row[None, :], centre) for row in crowd]) for centre in centres], axis=1
    ).astype(np.float64)
    gap = each[:, None, :] - each[None, :, :]
    l1, l2 = sensitivities(kind, d)
    most = float(np.abs(gap).sum(axis=2).max()), float(np.sqrt((gap**2).sum(axis=2)).max())
    assert most[0] <= l1
    assert most[1] <= l2
    least = (0.8, 0.93) if kind == "linear" else (0.4, 0.5)
    assert most[0] > least[0] * l1
    assert most[1] > least[1] * l2


@pytest.mark.parametrize("d", [3, 8, 20])
def test_what_rounding_adds_to_a_move_is_allowed_for(d: int) -> None:
    """Terms are rounded down, then weighed by 3 or 2. Two people one step off the middle, where the curvature is one
    step: their products are 2^-13 of a step, and the negative ones count as a whole one.
    """
    p, unit, steps = d + 1, 3 * 2**26, 2**13
    near = [steps, *(1 if i % 2 else -1 for i in range(d))]
    told = [np.array([[*(HALF // steps * x for x in who), -HALF]]) for who in (near[1:], [0] * d)]
    one, other = (round_sums("logistic", who, (-10.4, *[0.0] * d)) for who in told)
    places = [(i, j) for i in range(p) for j in range(i, p)]
    middle = [steps, *[0] * d]
    exact = [(2 if i == j else 3) * Fraction(near[i] * near[j] - middle[i] * middle[j], steps) for i, j in places]
    moved = (one - other)[p:].tolist()  # scores are products of whole numbers
    beyond = sum(map(abs, moved)) - sum(map(abs, exact))
    l1, l2 = sensitivities("logistic", d)
    assert 3 * (d // 2) * ((d + 1) // 2) - 1 < beyond <= l1 // 3 - (2 * p + 2 * (p * p // 4)) * unit - p * 2 * steps**2
    assert 3 * beyond <= l2 - math.isqrt(3 * (p * p + 4 * p) * unit**2)


def test_the_l2_sensitivity_of_products_is_reached() -> None:
    """Two orthogonal corners of (1, x1, x2, y): |uu' - vv'|^2 = 2 s^2, of which half is counted."""
    a, b = ([HALF, HALF, HALF], [HALF, -HALF, -HALF])
    gap = round_sums("linear", np.array([a])) - round_sums("linear", np.array([b]))
    assert math.isqrt(int((gap.astype(object) ** 2).sum())) == sensitivities("linear", 2)[1] == 4 * 3 * 2**26


def test_sums_of_many_are_the_sums_of_each() -> None:
    draw = np.random.default_rng(3)
    crowd = draw.integers(-HALF, HALF + 1, (500, 3))
    for kind, centre in (("linear", ()), ("logistic", (0.3, -2.0, 1.0))):
        each = sum(round_sums(kind, row[None, :], centre) for row in crowd)
        assert np.array_equal(round_sums(kind, crowd, centre), each)
        assert np.array_equal(round_sums(kind, crowd[::-1].copy(), centre), each)


def test_the_noise_of_the_scale_covers_two_people_s_worth_of_quality() -> None:
    """Replacing one person moves -|20 m - k| by at most 20 for every distance, up for one and down for another."""
    draw = np.random.default_rng(6)
    crowd = people("linear", 2, draw)
    line = (0.2, 0.5, -0.3)
    base = farther(crowd[1:], line)
    quality = np.array([-np.abs(20 * (base + farther(one[None, :], line)) - len(crowd)) for one in crowd])
    moved = np.abs(quality[:, None, :] - quality[None, :, :]).max()
    assert moved == 20
    assert scale_noise(PureDP(0.25)).scale >= 2 * moved / 0.25


def test_the_scale_is_sought_where_noise_leaves_the_twentieth_and_takes_little() -> None:
    """The twentieth of the people who are counted is never below the scale of the noise on them, 2/(share epsilon)."""
    for k, epsilon in itertools.product((10, 600, 1000, 5000, 10**6), (0.1, 1.0, 4.0)):
        share = scale_share(k, epsilon)
        if share is None:
            assert k * epsilon < 600
            continue
        assert 0.02 <= share <= 0.07
        assert k / 20 >= 2 / (share * epsilon)


def test_a_device_tells_of_nothing_beyond_its_bounds() -> None:
    bounds = VectorBounds.of([0, 0, 0], [1, 1, 1])
    crowd = people("linear", 2, np.random.default_rng(4))
    wild = Line("linear", "steered", bounds, (50.0, -70.0, 90.0), 0.01)
    told = wild.steps(crowd)
    assert np.abs(told).max() == HALF
    plain = Line("linear", "plain", bounds)
    assert plain.steps(crowd).shape == (len(crowd), 9)
    assert np.abs(plain.steps(crowd)).max() == HALF
    # A square lies between 0 and 1, and is told as twice that less 1.
    assert plain.steps(np.zeros((1, 3), dtype=np.int64)).tolist() == [[0, 0, 0, -HALF, 0, 0, -HALF, 0, -HALF]]


def test_what_cannot_be_asked_is_refused() -> None:
    bounds = VectorBounds.of([0, 0], [1, 1])
    with pytest.raises(InvalidInput, match="`form`"):
        Line("logistic", "plain", bounds)
    with pytest.raises(InvalidInput, match="`centre`"):
        Line("linear", "steered", bounds, (1.0, float("nan")), 1.0)
    with pytest.raises(InvalidInput, match="`epsilon`"):
        rounds_noise(PureDP(1e-5), "logistic", 20)
