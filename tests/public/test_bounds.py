"""The public lattice: clipping, rounding, and the way back."""

from __future__ import annotations

import math
from fractions import Fraction

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from hybridp.errors import InvalidInput
from hybridp.public.randomisers import LEVELS, Bounds

ends = st.floats(-1e12, 1e12).filter(lambda x: x == 0 or abs(x) > 1e-9)


@settings(max_examples=200, deadline=None)
@given(a=ends, b=ends, x=st.floats(allow_nan=False))
def test_levels_are_the_nearest_lattice_points_of_the_clipped_value(a: float, b: float, x: float) -> None:
    assume(abs(a - b) > 1e-6 * max(abs(a), abs(b)))
    bounds = Bounds(min(a, b), max(a, b))
    (level,) = bounds.levels([x]).tolist()
    assert 0 <= level <= LEVELS
    clipped = bounds.upper if x > bounds.upper else max(x, bounds.lower)
    lower, width = Fraction(bounds.lower), Fraction(bounds.upper) - Fraction(bounds.lower)
    exact = (Fraction(clipped) - lower) / width * LEVELS
    # Half a step for the rounding; float64 places a value with a relative error of 2^-53 or so of the ends.
    slack = Fraction(max(abs(a), abs(b))) / width * LEVELS / 2**51
    assert abs(level - exact) <= Fraction(1, 2) + slack


def test_the_ends_and_the_middle() -> None:
    bounds = Bounds(-2.0, 6.0)
    assert bounds.levels([-2, 6, 2]).tolist() == [0, LEVELS, LEVELS // 2]
    assert bounds.levels([-math.inf, math.inf, -1e300, 1e300]).tolist() == [0, LEVELS, 0, LEVELS]
    assert bounds.levels([]).tolist() == []
    assert (bounds.width, bounds.centre, bounds.half) == (8, 2, 4)
    assert [bounds.from_unit(y) for y in (-1, 0, 1)] == [-2, 2, 6]
    assert [bounds.project(x) for x in (-5, 1, 7)] == [-2, 1, 6]


@settings(max_examples=100, deadline=None)
@given(level=st.integers(0, LEVELS))
def test_a_level_read_back_is_the_same_level(level: int) -> None:
    bounds = Bounds(0, 200_000)
    assert bounds.levels([bounds.from_unit(2 * level / LEVELS - 1)]).tolist() == [level]


@pytest.mark.parametrize(
    ("lower", "upper", "name"),
    [
        (1.0, 1.0, "upper"),
        (2.0, 1.0, "upper"),
        (math.nan, 1.0, "lower"),
        (0.0, math.inf, "upper"),
        (-math.inf, 0.0, "lower"),
        (-1.7e308, 1.7e308, "upper"),
    ],
)
def test_impossible_bounds_are_refused(lower: float, upper: float, name: str) -> None:
    with pytest.raises(InvalidInput, match=f"`{name}` must"):
        Bounds(lower, upper)


def test_a_missing_value_is_refused_without_being_shown() -> None:
    with pytest.raises(InvalidInput) as refusal:
        Bounds(0, 1).levels([0.123456, math.nan, 0.5])
    assert "0.123456" not in str(refusal.value)
