"""Local reports of a point: their privacy by counting outcomes, and what they are on average."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hybridp.device.kmeans import answer_map, answer_round
from hybridp.public.budgets import PureDP
from hybridp.public.kmeans import STEPS, Box, Grid
from hybridp.public.kmeans_rounds import RoundInvite, map_invite, round_invite
from hybridp.public.randomisers import dithered_bit
from hybridp.randomness import seeded

LINE = Box((0.0,), (1.0,))
CENTRES = np.array([[STEPS * 0.25], [STEPS * 0.75]])
N = 400_000


def _frequencies(level: float, invite: RoundInvite, seed: int) -> np.ndarray:
    """How often each (label, sign of the value's deviation from the threshold ...) comes: 2 labels x 24 bins."""
    found = answer_round(np.full((1, N), level), invite, rng=seeded(seed))
    edges = np.linspace(-invite.value.bound, invite.value.bound, 25)
    bins = np.clip(np.digitize(found.value[:, 0], edges) - 1, 0, 23)
    return np.bincount(found.cluster * 24 + bins, minlength=48) / N


@pytest.mark.parametrize("epsilon", [1.0, 3.0])
def test_no_event_of_the_whole_report_is_likelier_than_allowed(epsilon: float) -> None:
    """Label and value together: P(event | x) <= e^eps P(event | x'), for far and near points, up to counting error."""
    invite = round_invite(LINE, CENTRES, STEPS // 4, epsilon)
    assert invite.response is not None
    points = (0.0, STEPS * 0.25, STEPS * 0.45, STEPS * 0.55, float(STEPS))
    laws = [_frequencies(p, invite, 10 + i) for i, p in enumerate(points)]
    worst = 0.0
    for a in laws:
        for b in laws:
            slack = 6 * np.sqrt(np.maximum(a, 1 / N) / N) + 6 * math.exp(epsilon) * np.sqrt(np.maximum(b, 1 / N) / N)
            assert (a - math.exp(epsilon) * b <= slack).all()
            worst = max(
                worst, float((np.log(np.maximum(a, 1e-9)) - np.log(np.maximum(b, 1e-9)))[(a + b) > 0.004].max())
            )
    # The control: the report does use its budget, so that a promise of half of it is broken.
    assert worst > epsilon / 2


def test_the_label_and_value_likelihoods_multiply_to_epsilon() -> None:
    """By enumeration: label (2) x sign of a dithered bit (2), given its threshold; deviations told as 0 for a lie."""
    for epsilon in (0.5, 1.5):
        invite = round_invite(LINE, CENTRES, STEPS // 4, epsilon)
        assert invite.response is not None
        flip = dithered_bit(PureDP(invite.value.guarantee.epsilon)).flips / 2**64

        def law(label: int, above: bool, told: int, sign: int, centre: bool) -> float:
            p = invite.truth if told == label else invite.other  # noqa: B023
            says = above if told == label else centre
            return p * ((1 - flip) if (sign == 1) == says else flip)  # noqa: B023

        for centre in (True, False):
            worst = max(
                law(a, bool(x), t, s, centre) / law(b, bool(y), t, s, centre)
                for t, s, a, b, x, y in itertools.product((0, 1), repeat=6)
            )  # fmt: skip
            assert math.log(worst) <= epsilon + 1e-9
            assert math.log(worst) > 0.9 * epsilon


def test_a_map_answer_is_the_cell_as_often_as_promised() -> None:
    grid = Grid(Box((0.0, 0.0), (1.0, 1.0)), 3)
    invite = map_invite(grid, 1.2)
    told = answer_map(np.full((2, N), STEPS * 0.5), invite, rng=seeded(3))
    share = np.bincount(told, minlength=9) / N
    expected = np.where(np.arange(9) == 4, invite.response.truth, invite.response.other)
    assert (np.abs(share - expected) < 5 * np.sqrt(expected / N)).all()
    assert share[4] / share[0] < math.exp(1.2) * 1.03


@pytest.mark.parametrize("dims", [1, 3])
def test_coordinates_are_told_equally_often(dims: int) -> None:
    box = Box((0.0,) * dims, (1.0,) * dims)
    invite = round_invite(box, np.full((1, dims), STEPS / 2.0), 1000, 0.5)
    found = answer_round(np.full((dims, 60_000), STEPS / 2.0), invite, rng=seeded(4))
    assert found.coordinate.shape == (60_000, invite.coordinates)
    shares = np.bincount(found.coordinate.ravel(), minlength=dims) / 60_000
    assert np.abs(shares - invite.coordinates / dims).max() < 0.011
    assert all(len(set(row)) == invite.coordinates for row in found.coordinate[:200].tolist())
