"""The device: reports are unbiased for the clipped value, follow a change of unit, and depend on the level alone; with
the person's own epsilon they are that person's only, and none at 0; of a point every coordinate is told as often."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.reports import randomise_many

from hybridp.device.reports import (
    own_randomiser,
    randomise_own,
    randomise_steps,
)
from hybridp.errors import InvalidInput
from hybridp.noise import secure, seeded
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.messages import Invite
from hybridp.public.randomisers import LEVELS, Bounds, LocalName, randomiser

KINDS: tuple[LocalName, ...] = ("dithered", "piecewise")
SALARY = Bounds(10_000, 90_000)
UNIT = Bounds(-1, 1)


def invited(kind: LocalName, epsilon: float = 1.0, bounds: Bounds = SALARY) -> Invite:
    return Invite(bounds, randomiser(kind, ApproxDP(epsilon, 1e-6)))


@pytest.mark.parametrize("kind", KINDS)
@given(
    values=st.lists(st.integers(-5, 15), min_size=1, max_size=8),
    lower=st.integers(-1000, 1000),
    power=st.integers(-8, 8),
    seed=st.integers(0, 2**32),
)
@settings(max_examples=25, deadline=None)
def test_a_change_of_unit_changes_the_reports_the_same_way(
    kind: LocalName, values: list[int], lower: int, power: int, seed: int
) -> None:
    # Powers of two keep the map between the units exact, so that the levels, and with them the coins, agree.
    scale = 2.0**power
    plain = randomise_many([float(v) for v in values], invited(kind, bounds=Bounds(0, 8)), rng=seeded(seed))
    moved = invited(kind, bounds=Bounds(lower, lower + 8 * scale))
    found = randomise_many([lower + scale * v for v in values], moved, rng=seeded(seed))
    np.testing.assert_allclose(found, lower + scale * plain, rtol=1e-9, atol=1e-9 * (abs(lower) + 8 * scale))


@pytest.mark.parametrize("kind", KINDS)
def test_a_value_outside_the_bounds_reports_like_the_bound(kind: LocalName) -> None:
    invite = invited(kind)
    for outside, bound in [(-1e9, 10_000.0), (math.inf, 90_000.0), (90_000.01, 90_000.0), (-math.inf, 10_000.0)]:
        assert randomise_many([outside], invite, rng=seeded(1)) == randomise_many([bound], invite, rng=seeded(1))


@pytest.mark.parametrize("kind", KINDS)
def test_no_report_lies_beyond_the_stated_reach(kind: LocalName) -> None:
    invite = invited(kind)
    levels = np.resize(np.array([0, LEVELS // 3, LEVELS]), 30_000)
    reach = SALARY.half * invite.mechanism.bound
    assert np.abs(randomise_steps(levels[:, None], invite, rng=seeded(4)) - SALARY.centre).max() <= reach * (1 + 1e-12)


def test_a_missing_value_has_no_report_and_is_not_told() -> None:
    with pytest.raises(InvalidInput) as refused:
        randomise_many([987654.321, math.nan], invited("dithered"), rng=secure())
    assert "987654" not in str(refused.value)


def test_the_ends_of_the_range() -> None:
    assert own_randomiser(0.0) is None
    assert own_randomiser(0.00099) is None
    for wide in (31.0, 1e6, math.inf):  # more privacy than asked for, never less
        found = own_randomiser(wide)
        assert found is not None
        assert found.guarantee.epsilon == 30
    for bad in (-0.1, math.nan):
        with pytest.raises(InvalidInput, match=r"^`epsilon` "):
            own_randomiser(bad)


def test_silence_says_nothing_about_the_value() -> None:
    bounds = Bounds(0, 10)
    levels = bounds.levels([0, 3, 7, 10])
    for values in (levels, levels[::-1]):
        assert randomise_own(values, np.zeros(4), bounds, rng=seeded(1)).tolist() == [5.0] * 4


def test_one_report_depends_only_on_the_persons_own_value() -> None:
    """With the same randomness, somebody else's value changes somebody else's report alone."""
    eps = np.array([0.5, 2.0, 0.5, 9.0, 0.0])
    one = UNIT.levels(np.array([0.1, -0.4, 0.9, 0.0, 0.3]))
    two = one.copy()
    two[2] = 0
    a, b = (randomise_own(levels, eps, UNIT, rng=seeded(5)) for levels in (one, two))
    assert np.flatnonzero(a != b).tolist() in ([], [2])

