"""The reports of frequency oracles: their exact law, each decision of the samplers at its edge."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hybridp.noise.reports import oracle_reports
from hybridp.public.budgets import PureDP
from hybridp.public.oracles import Oracle, subset_selection
from hybridp.public.randomisers import k_randomised_response
from hybridp.randomness import seeded

from .test_local import replay
from .test_oracles import case_of, subset_table

TINY_P = 1e-6
N = 60_000

# --- the reports ------------------------------------------------------------------------------------------------------

SAMPLED = [
    k_randomised_response(PureDP(1.0), 5),
    subset_selection(PureDP(0.5), 5),
    subset_selection(PureDP(0.3), 8),
]
sampled = pytest.mark.parametrize("oracle", SAMPLED, ids=lambda o: f"{o.name} {o.categories}")


def report_p(made: Oracle, stated: Oracle, value: int, seed: int = 5) -> float:
    """The chi-square p-value of reports against the law of `stated`, every possible report being a cell."""
    reports = oracle_reports(made, np.full(N, value), rng=seeded(seed))
    k = stated.categories
    parameters = {name: getattr(stated, name) for name in type(stated).__dataclass_fields__}
    law = subset_table(**parameters)[value]
    codes = [sum(1 << x for x in report) for report in law]  # type: ignore[attr-defined]
    mine = (1 << reports.reshape(N, -1).astype(np.int64)).sum(axis=1)
    seen = np.bincount(mine, minlength=1 << k)
    assert seen[codes].sum() == N
    return float(stats.chisquare(seen[codes], [N * float(p) for p in law.values()]).pvalue)


@sampled
def test_reports_have_the_exact_law(oracle: Oracle) -> None:
    for value in (0, oracle.categories - 1):
        assert report_p(oracle, oracle, value) > TINY_P


@sampled
def test_control_ten_percent_less_noise_is_noticed(oracle: Oracle) -> None:
    control = case_of(oracle).weaker(guarantee=PureDP(25.0))
    assert report_p(control, oracle, 0) < TINY_P


def test_rows_of_subsets_are_in_rising_order() -> None:
    """The place of an item in its row must not tell whether it is the holder's own."""
    oracle = subset_selection(PureDP(1.0), 40)
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
