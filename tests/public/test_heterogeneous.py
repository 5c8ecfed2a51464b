"""Vectors of epsilons, and the closed forms of the best report against the randomisers themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hybridp.errors import InvalidInput
from hybridp.public.budgets import PureDP
from hybridp.public.personal import PersonalDP, local_terms, local_variances
from hybridp.public.randomisers import DitheredBit, best_randomiser

GRID = [0.001, 0.003, 0.01, 0.05, *np.round(np.geomspace(0.1, 30, 40), 6).tolist(), 1.6, 2.0, 2.1, 2.2]


@pytest.mark.parametrize("epsilon", GRID)
def test_closed_forms_equal_the_verified_randomisers(epsilon: float) -> None:
    """The randomiser's probabilities are rounded to 2^-64 and its window to whole cells: a few millionths."""
    want = best_randomiser(PureDP(epsilon))
    terms = local_terms([epsilon])
    constant, quadratic = want.variance_terms
    assert terms.dithered[0] == isinstance(want, DitheredBit)
    assert terms.constant[0] == pytest.approx(constant, rel=2e-5)
    assert terms.quadratic[0] == pytest.approx(quadratic, rel=2e-5, abs=1e-15)
    assert terms.reach[0] == pytest.approx(want.bound, rel=2e-5)
    assert local_variances([epsilon])[0] == pytest.approx(want.worst_variance, rel=2e-5)
    for mean, spread in ((0.0, 0.16), (0.7, 0.3)):
        stated = want.square_deviation(mean, spread)
        # At the largest epsilons the bound on a fourth moment is a small difference of large numbers.
        assert terms.square_deviation(mean, spread)[0] == pytest.approx(stated, rel=1e-3)


def test_more_epsilon_is_never_worse_and_the_ends_are_silence_and_thirty() -> None:
    eps = np.geomspace(0.001, 30, 3000)
    assert (np.diff(local_variances(eps)) < 0).all()
    assert local_variances([0.0, 0.00099]).tolist() == [math.inf] * 2
    assert local_variances([30.0, 1e9, math.inf]).tolist() == [local_variances([30.0])[0]] * 3


def test_a_vector_of_epsilons() -> None:
    asked = PersonalDP.of([2.0, 0.5, math.inf, 0.0, 2.0])
    assert asked.levels == ((0.0, 1), (0.5, 1), (2.0, 2), (math.inf, 1))
    assert (asked.people, asked.least, asked.most) == (5, 0.0, math.inf)
    assert asked == PersonalDP.of([0.0, 0.5, 2.0, math.inf], [1, 1, 2, 1])
    assert str(PersonalDP.of([0.5, 2.0])).startswith("personal epsilons from 0.5 to 2, 2 people")
    assert str(PersonalDP.of([0.5, 0.5])).startswith("0.5-DP")


@pytest.mark.parametrize("bad", [[], [-1.0], [math.nan], [1.0, -math.inf]])
def test_what_is_no_vector_of_epsilons(bad: list[float]) -> None:
    with pytest.raises(InvalidInput, match=r"^`epsilons` "):
        PersonalDP.of(bad)
