"""Local reports of a point: their privacy by counting outcomes, and what they are on average."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from hybridp.device.reports import answer_round
from hybridp.public.budgets import PureDP
from hybridp.public.kmeans import STEPS, Box
from hybridp.public.kmeans_rounds import round_invite
from hybridp.public.randomisers import dithered_bit
from hybridp.randomness import seeded

LINE = Box((0.0,), (1.0,))
CENTRES = np.array([[STEPS * 0.25], [STEPS * 0.75]])


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


@pytest.mark.parametrize("dims", [1, 3])
def test_coordinates_are_told_equally_often(dims: int) -> None:
    box = Box((0.0,) * dims, (1.0,) * dims)
    invite = round_invite(box, np.full((1, dims), STEPS / 2.0), 1000, 0.5)
    found = answer_round(np.full((dims, 60_000), STEPS / 2.0), invite, rng=seeded(4))
    assert found.coordinate.shape == (60_000, invite.coordinates)
    shares = np.bincount(found.coordinate.ravel(), minlength=dims) / 60_000
    assert np.abs(shares - invite.coordinates / dims).max() < 0.011
    assert all(len(set(row)) == invite.coordinates for row in found.coordinate[:200].tolist())
