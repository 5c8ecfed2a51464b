"""The oracles of a release under the contract of every frequency oracle; their reports at each edge of the sampler.

Likelihoods are written here from the definition of a subset, in fractions; a set of one is randomised response.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from tests.chance import replay

from hybridp.errors import InvalidInput
from hybridp.noise import oracle_reports, seeded, simulate_counts
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.randomisers import (
    Oracle,
    estimate,
    k_randomised_response,
    share_oracle,
    support_counts,
)
from hybridp_lab.testing.laws import WORD

from .oracle_laws import *  # noqa: F403
from .oracle_laws import Oracles, Table, case_of, parameters, set_cells


def subset_table(categories: int, keep: int, size: int = 1, **_: object) -> Table:
    p = Fraction(keep, WORD)
    sets = [frozenset(s) for s in itertools.combinations(range(categories), size)]
    table: Table = []
    for v in range(categories):
        holding = sum(v in s for s in sets)
        table.append({s: p / holding if v in s else (1 - p) / (len(sets) - holding) for s in sets})
    return table


def cells(stated: Any, value: int, reports: NDArray[Any]) -> tuple[Any, Any]:
    masks = (1 << reports.reshape(len(reports), -1).astype(np.int64)).sum(axis=1)
    return set_cells(subset_table(**parameters(stated))[value], masks)


ORACLES = Oracles(
    makers=(k_randomised_response, share_oracle),
    cases=[
        case_of(share_oracle(PureDP(epsilon), k), subset_table)
        for epsilon in (0.1, 1 / 3, 1.0, 4.0, 10.0)
        for k in (2, 3, 5, 7)
    ],
    sampled=[
        k_randomised_response(PureDP(1.0), 5),
        share_oracle(PureDP(0.5), 5),
        share_oracle(PureDP(0.3), 8),
    ],
    table=lambda oracle: subset_table(**parameters(oracle)),
    reports=oracle_reports,
    counts=support_counts,
    simulated=simulate_counts,
    supporters=lambda oracle, reports, item: int((reports == item).sum()),
    cells=cells,
)

# --- published numbers and choices ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.5, 5.0])
@pytest.mark.parametrize("k", [2, 16, 1024])
def test_variances_are_the_published_ones(epsilon: float, k: int) -> None:
    """Wang et al. 2017, equation 7, at share 0: n Var is (k-2+e)/(e-1)^2."""
    e, less = math.exp(epsilon), math.expm1(epsilon)
    found = k_randomised_response(PureDP(epsilon), k).variance(0.0)
    assert found == pytest.approx((k - 2 + e) / less**2, rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 2.0, 4.0, 9.0])
@pytest.mark.parametrize("k", [2, 3, 4, 7, 20, 61])
def test_no_other_subset_size_is_better(epsilon: float, k: int) -> None:
    def variance(d: int) -> float:
        p = math.exp(epsilon) * d / (math.exp(epsilon) * d + k - d)
        q = (d - p) / (k - 1)
        return q * (1 - q) / (p - q) ** 2

    budget = PureDP(epsilon)
    made = share_oracle(budget, k)
    assert made.variance(0.0) == pytest.approx(min(variance(d) for d in range(1, k)), rel=1e-9)
    assert made.variance(0.0) <= k_randomised_response(budget, k).variance(0.0) * (1 + 1e-12)
    assert made.name == ("k-rr" if made.size == 1 else "subset")


def test_a_delta_is_not_spent() -> None:
    assert share_oracle(ApproxDP(1.0, 1e-6), 100).guarantee == PureDP(1.0)


def test_what_makes_no_oracle_or_no_count_is_refused() -> None:
    with pytest.raises(InvalidInput, match="`size` must be"):
        Oracle(PureDP(1.0), 4, WORD // 2, 4)
    with pytest.raises(InvalidInput, match=r"`keep` must be small enough for .* and above chance"):
        Oracle(PureDP(1.0), 4, WORD // 2, 2)
    with pytest.raises(InvalidInput, match="`share` must be"):
        share_oracle(PureDP(1.0), 2).variance(1.5)
    with pytest.raises(InvalidInput, match="`n` must be positive"):
        estimate(k_randomised_response(PureDP(1.0), 2), np.array([0, 0]), 0)
    with pytest.raises(InvalidInput, match="`counts` must be"):
        estimate(k_randomised_response(PureDP(1.0), 2), np.array([3, 0]), 2)
    with pytest.raises(InvalidInput, match="`reports` must be whole numbers"):
        support_counts(k_randomised_response(PureDP(1.0), 5), np.array([0, 5]))


def test_domains_beyond_any_table() -> None:
    named = k_randomised_response(PureDP(30.0), 2**31)
    assert oracle_reports(named, np.array([17]), rng=seeded(4)).shape == (1,)
    for make in (k_randomised_response, share_oracle):
        with pytest.raises(InvalidInput, match="`categories` must be at least 2 and at most"):
            make(PureDP(30.0), 2**31 + 1)


def test_rows_of_subsets_are_in_rising_order() -> None:
    """The place of an item in its row must not tell whether it is the holder's own."""
    oracle = share_oracle(PureDP(1.0), 40)
    rows = oracle_reports(oracle, np.arange(3000) % 40, rng=seeded(1))
    assert rows.dtype == np.int32
    assert rows.shape == (3000, oracle.size)
    assert (np.diff(rows, axis=1) > 0).all()


# --- each decision of the sampler at its edge -------------------------------------------------------------------------


def test_one_word_keeps_or_moves_an_item() -> None:
    """The upper half of a word is compared with that of `keep`, ties with a second word; the lower half chooses."""
    oracle = k_randomised_response(PureDP(1.0), 5)
    lead, rest = oracle.keep >> 32, oracle.keep & 0xFFFFFFFF

    def report(words: list[int]) -> int:
        return int(oracle_reports(oracle, np.array([2]), rng=replay(words))[0])

    for choice, expected in ((0, 0), (2**30 - 1, 0), (2**30, 1), (2**31, 3), (2**32 - 1, 4)):
        assert report([(lead + 1) << 32 | choice]) == expected
        assert report([(lead - 1) << 32 | choice]) == 2
        assert report([lead << 32 | choice, rest << 32]) == expected
        assert report([lead << 32 | choice, (rest - 1) << 32]) == 2


def test_an_uneven_choice_is_drawn_again() -> None:
    """2^32 = 3 (2^32 // 3) + 1: of the first 32 bits one value is too many, and is redrawn from two bits."""
    oracle = k_randomised_response(PureDP(1.0), 4)
    for again, expected in ((0, 0), (1, 1), (2, 3)):
        words = [2**64 - 2**32, again << 62]
        assert oracle_reports(oracle, np.array([2]), rng=replay(words)).tolist() == [expected]
