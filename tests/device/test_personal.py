"""A report for one's own epsilon: the right randomiser, unbiased, with the stated variance, and silence at 0."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hybridp.device.reports import own_randomiser, randomise_own
from hybridp.errors import InvalidInput
from hybridp.public.lattice import Bounds
from hybridp.public.personal import local_terms
from hybridp.randomness import seeded

UNIT = Bounds(-1, 1)
EPS = (0.3, 1.0, 2.5, 6.0)


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


def test_reports_are_unbiased_and_have_the_stated_variance() -> None:
    """Five standard errors each, of mixed and shuffled epsilons; a variance 40 % off is noticed."""
    n, z = 40_000, 0.6
    eps = np.tile(EPS, n)
    order = np.random.default_rng(3).permutation(eps.size)
    reports = randomise_own(UNIT.levels(np.full(eps.size, z)), eps[order], UNIT, rng=seeded(2))
    terms = local_terms(EPS)
    for i, epsilon in enumerate(EPS):
        own = reports[eps[order] == epsilon]
        variance = terms.constant[i] + terms.quadratic[i] * z**2
        se = math.sqrt(variance / n)
        assert abs(own.mean() - z) < 5 * se
        squares = (own - z) ** 2
        spread = squares.std() / math.sqrt(n)
        assert abs(squares.mean() - variance) < 5 * spread
        assert abs(squares.mean() - 1.4 * variance) > 5 * spread
        assert np.abs(own).max() <= terms.reach[i] * (1 + 1e-4)


def test_one_report_depends_only_on_the_persons_own_value() -> None:
    """With the same randomness, somebody else's value changes somebody else's report alone."""
    eps = np.array([0.5, 2.0, 0.5, 9.0, 0.0])
    one = UNIT.levels(np.array([0.1, -0.4, 0.9, 0.0, 0.3]))
    two = one.copy()
    two[2] = 0
    a, b = (randomise_own(levels, eps, UNIT, rng=seeded(5)) for levels in (one, two))
    assert np.flatnonzero(a != b).tolist() in ([], [2])
