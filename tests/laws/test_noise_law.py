"""Noise on real numbers and on weighted sums: rounding to the lattice is part of what a neighbour moves.

With the same words on neighbouring data the noise cancels exactly. What is left, in steps of the lattice, must be
covered by epsilon times the scale that was drawn, to the last step and in exact arithmetic.
"""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from hybridp.curator.models import release_weighted_sum
from hybridp.errors import InvalidInput
from hybridp.public.mechanisms import (
    ApproxDP,
    DiscreteLaplace,
    discrete_gaussian_profile,
    discrete_laplace,
)
from hybridp_lab.testing import laws

from .means import LEVELS
from .recording import Recording, laplaces


@pytest.mark.parametrize("seed", range(6))
def test_a_weighted_sum_covers_everybodys_rounded_reach_exactly(seed: int) -> None:
    """Whole-number weights a up to 2^40, steps of the noise over 2^40: ceil(a LEVELS/step) steps, in rationals."""
    rng = np.random.default_rng(seed)
    epsilons = np.sort(rng.uniform(0.05, 0.4, 5))
    weights = epsilons * rng.uniform(0.5, 1, 5)
    people = np.full(5, 4, dtype=np.int64)
    sums = np.full(5, 2 * LEVELS, dtype=np.int64)
    tape = Recording(seed)
    found = release_weighted_sum(epsilons, people, sums, weights, rng=tape.rng)
    whole = [int(w) for w in np.floor(weights / weights.max() * 2**40)]
    mass = 4 * sum(whole)
    strictest = max(Fraction(a) / Fraction(e) for a, e in zip(whole, epsilons, strict=True))
    step = int(strictest * LEVELS / 2**40)
    scale = Fraction(found.laplace_scale) * mass * LEVELS / (2 * step)
    for a, epsilon, spent in zip(whole, epsilons, found.spent, strict=True):
        reach = -(-a * LEVELS // step)
        assert reach <= Fraction(epsilon) * scale
        assert Fraction(float(spent)) * scale * (1 + Fraction(1, 2**45)) >= reach
    # What was drawn has that scale: the noise of the published mean, in steps, is the tape's.
    (drawn,), end = tape.read_from(0, laplaces(float(scale)), 1)
    assert end == len(tape.words)
    true = sum(a * total for a, total in zip(whole, sums.tolist(), strict=True))
    added = ((Fraction(found.mean) + 1) * mass * LEVELS / 2 - true) / step
    assert abs(added - int(drawn)) < 2**14  # doubles hold the mean to 2^-52, the noise is about 2^40 steps


@pytest.mark.parametrize(("shift", "sigma"), [(5000, 5000.0), (9000, 4100.0), (4097, 20000.0)])
@pytest.mark.parametrize("epsilon", [0.25, 1.0, 3.0])
def test_delta_on_a_fine_lattice_is_enclosed_from_above_and_closely(shift: int, sigma: float, epsilon: float) -> None:
    """Where sums are too long to be added up, tails are enclosed by integrals: against the sums, with 25 digits."""
    exact = laws.discrete_gaussian(shift, sigma).delta(epsilon)
    stated = discrete_gaussian_profile(shift, sigma, epsilon)
    assert exact <= stated
    assert stated <= exact * 1.05 + 1e-12  # far below any delta that is promised, tails may be wider


def test_a_laplace_scale_that_exceeds_its_delta_cannot_be_described() -> None:
    promise = ApproxDP(1.0, 0.01)
    least = discrete_laplace(promise, 1000).scale
    assert DiscreteLaplace(promise, 1000, least).guarantee == promise
    with pytest.raises(InvalidInput, match="scale"):
        DiscreteLaplace(promise, 1000, least * 0.99)
