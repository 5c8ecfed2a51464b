"""Frequency oracles at the edge of their promise, and the supports of many people drawn from their own law."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.noise.oracles import simulate_counts
from hybridp.public.budgets import PureDP
from hybridp.public.oracles import local_hashing, optimised_unary, subset_selection
from hybridp.public.randomisers import k_randomised_response
from hybridp.randomness import seeded


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.0, 4.0])
@pytest.mark.parametrize("k", [2, 7, 500])
def test_one_step_of_two_to_the_minus_64_beyond_the_promise_is_refused(epsilon: float, k: int) -> None:
    """Doubles could not tell: the promise would be exceeded by a part in 10^18."""
    promise = PureDP(epsilon)
    unary = optimised_unary(promise, k)
    with pytest.raises(InvalidInput, match="flips"):
        replace(unary, flips=unary.flips - 1)
    for made in (subset_selection(promise, k), local_hashing(promise, k), k_randomised_response(promise, k)):
        replace(made, keep=made.keep + 1)  # what calibration rounds down from
        with pytest.raises(InvalidInput, match="keep"):
            replace(made, keep=made.keep + 2)


def test_the_supports_of_many_people_vary_as_their_coins_do() -> None:
    """An item of m holders among n: Binomial(m, 1/2) + Binomial(n - m, q), items apart; by the sum of squares."""
    oracle, n, times = optimised_unary(PureDP(1.0), 3), 40_000, 400
    q = oracle.flips / 2**64
    values = np.repeat([0, 1], [30_000, 10_000])
    holders = np.bincount(values, minlength=3)
    rng = seeded(3)
    found = np.array([simulate_counts(oracle, values, rng=rng) for _ in range(times)])
    mean = holders / 2 + (n - holders) * q

    def p_values(variance: np.ndarray) -> list[float]:
        squares = ((found - mean) ** 2).sum(axis=0) / variance
        return [2 * min(stats.chi2.cdf(s, times), stats.chi2.sf(s, times)) for s in squares]

    mine, others = holders / 4, (n - holders) * q * (1 - q)
    assert min(p_values(mine + others)) > 1e-6
    assert p_values(mine + 1e-9)[1] < 1e-6  # controls: one group's coins alone
    assert p_values(others)[0] < 1e-6
    assert abs(np.corrcoef(found.T)[0, 1]) < 5 / np.sqrt(times)
