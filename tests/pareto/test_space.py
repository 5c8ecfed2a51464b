"""Encoding is inverted by decoding, uniform points are uniform settings."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.pareto import Categorical, Integer, LogInteger, LogReal, Real, Space

SPACE = Space(
    {
        "a": Real(-2.0, 3.0),
        "b": LogReal(1e-4, 1e3),
        "c": Integer(1, 30),
        "d": LogInteger(1, 512),
        "e": Categorical(("sgd", "adam", "none")),
    }
)


@given(st.lists(st.floats(0, 1), min_size=5, max_size=5))
def test_a_setting_survives_the_round_trip(x):
    setting = SPACE.decode(x)
    assert SPACE.check(setting) == setting
    again = SPACE.decode(SPACE.encode(setting))
    assert (again["c"], again["d"], again["e"]) == (setting["c"], setting["d"], setting["e"])
    assert again["a"] == pytest.approx(setting["a"], abs=1e-9)
    assert again["b"] == pytest.approx(setting["b"], rel=1e-9)
    assert np.all((SPACE.encode(setting) >= 0) & (SPACE.encode(setting) <= 1))


def test_uniform_points_are_uniform_whole_numbers():
    rng = np.random.default_rng(3)
    drawn = [s["c"] for s in SPACE.sample(6000, rng=rng)]
    assert stats.chisquare(np.bincount(drawn, minlength=31)[1:]).pvalue > 1e-6
    skewed = [min(v + (v == 3), 30) for v in drawn]  # the control: one cell emptied into its neighbour
    assert stats.chisquare(np.bincount(skewed, minlength=31)[1:]).pvalue < 1e-6


@pytest.mark.parametrize(
    "make",
    [
        lambda: Space({}),
        lambda: Space({"a": Real(1, 1), "b": Categorical(("x",))}),
        lambda: Real(2, 1),
        lambda: Categorical(("x", "x")),
        lambda: SPACE.check({"a": 0.0}),
        lambda: SPACE.check({"a": 9.0, "b": 1.0, "c": 1, "d": 1, "e": "sgd"}),
    ],
)
def test_bad_spaces_are_refused(make):
    with pytest.raises(InvalidInput):
        make()
