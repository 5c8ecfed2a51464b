"""The contract of every frequency oracle: the guarantee by enumeration, exact reports, unbiased counts.

Likelihoods are written here from the definitions, in fractions, for every value and every possible report.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.noise.reports import oracle_reports, simulate_counts
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.oracles import Oracle, SubsetSelection, estimate, share_oracle, subset_selection, support_counts
from hybridp.public.randomisers import KRandomisedResponse, k_randomised_response
from hybridp.randomness import seeded
from hybridp.testing import Case, Law, more_truth
from hybridp.testing.laws import WORD, precise, real

TINY_P = 1e-6
MAKERS: list[Callable[[PureDP | ApproxDP, int], Any]] = [
    k_randomised_response,
    subset_selection,
]
Table = list[dict[Hashable, Fraction]]
"""For each value, the probability of each report."""


def items_of(*values: int) -> frozenset[int]:
    return frozenset(values)


# --- likelihoods from the definitions ---------------------------------------------------------------------------------


def subset_table(categories: int, keep: int, size: int = 1, **_: object) -> Table:
    """A set of one is k-ary randomised response."""
    p = Fraction(keep, WORD)
    sets = [items_of(*s) for s in itertools.combinations(range(categories), size)]
    table: Table = []
    for v in range(categories):
        holding = sum(v in s for s in sets)
        table.append({s: p / holding if v in s else (1 - p) / (len(sets) - holding) for s in sets})
    return table


def support(table: Table, value: int, item: int) -> Fraction:
    """The probability that a report of this value supports this item."""
    return sum((p for report, p in table[value].items() if item in report), Fraction(0))  # type: ignore[operator]


def law_from(make_table: Callable[..., Table]) -> Callable[..., Law]:
    def law(**parameters: Any) -> Law:
        table = make_table(**parameters)
        pairs = [[(p, other[report]) for report, p in own.items()] for own, other in itertools.permutations(table, 2)]

        @precise
        def delta(epsilon: float) -> mp.mpf:
            e = mp.exp(mp.mpf(epsilon))
            return max(mp.fsum(max(mp.mpf(0), real(p) - e * real(q)) for p, q in pair) for pair in pairs)

        @precise
        def loss() -> mp.mpf:
            return mp.log(real(max(p / q for pair in pairs for p, q in pair)))

        @precise
        def variance(share: float) -> mp.mpf:
            truth, other, f = support(table, 0, 0), support(table, 1, 0), Fraction(share)
            ones = f * truth + (1 - f) * other
            low, high = -other / (truth - other), (1 - other) / (truth - other)
            return real(ones * high**2 + (1 - ones) * low**2 - (ones * high + (1 - ones) * low) ** 2)

        return Law(delta, loss(), variance)

    return law


def case_of(oracle: Oracle) -> Case:
    return Case(oracle, law_from(subset_table), more_truth, "categories")


def _cases() -> Iterator[Case]:
    for epsilon in (0.1, 1 / 3, 1.0, 4.0, 10.0):
        for k in (2, 3, 5, 9):
            yield case_of(subset_selection(PureDP(epsilon), k))


CASES = list(_cases())
every = pytest.mark.parametrize("case", CASES, ids=str)


@every
def test_the_stated_guarantee_is_true_and_not_wasted(case: Case) -> None:
    epsilon = case.guarantee.epsilon
    with mp.workdps(40):
        assert case.law.loss <= real(epsilon) + mp.mpf(10) ** -30
        assert case.law.loss >= epsilon - 1e-9


@every
@pytest.mark.parametrize("factor", [0.0, 0.9, 1.1])
def test_the_profile_is_the_exact_one(case: Case, factor: float) -> None:
    epsilon = case.guarantee.epsilon * factor
    exact, stated = float(case.law.delta(epsilon)), case.mechanism.profile(epsilon)
    assert stated >= exact * (1 - 1e-11) - 2.0**-50
    assert stated == pytest.approx(exact, rel=1e-7, abs=1e-9)


@every
def test_ten_percent_less_noise_is_refused_and_would_break_the_promise(case: Case) -> None:
    with pytest.raises(InvalidInput, match="`keep` must be small enough for"):
        case.weaker()
    assert case.weaker_law.loss > case.guarantee.epsilon * 1.001
    assert case.weaker_law.delta(case.guarantee.epsilon) > 1e-6


@every
def test_probabilities_are_the_nearest_multiples_on_the_safe_side(case: Case) -> None:
    just_less = case.law_of(**(case.parameters | {"keep": case.parameters["keep"] + 3}))
    with mp.workdps(40):
        assert just_less.loss > real(case.guarantee.epsilon)


@every
def test_supports_and_variance_follow_from_the_definition(case: Case) -> None:
    oracle = case.mechanism
    table = subset_table(**case.parameters)
    k = oracle.categories
    assert all(sum(row.values()) == 1 for row in table)
    assert oracle.truth == pytest.approx(float(support(table, k - 1, k - 1)), rel=1e-15)
    for value, item in itertools.islice(itertools.permutations(range(k), 2), 6):
        assert oracle.other == pytest.approx(float(support(table, value, item)), rel=1e-15)
    for share in (0.0, 0.2, 1.0):
        assert oracle.variance(share) == pytest.approx(float(case.law.variance(share)), rel=1e-9)


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
    made = subset_selection(budget, k)
    assert made.variance(0.0) == pytest.approx(min(variance(d) for d in range(1, k)), rel=1e-9)
    assert share_oracle(budget, k).variance(0.0) <= min(make(budget, k).variance(0.0) for make in MAKERS) * (1 + 1e-12)
    assert share_oracle(budget, k).name == ("k-rr" if made.size == 1 else "subset")


def test_a_delta_is_not_spent() -> None:
    for make in (*MAKERS[1:], share_oracle):
        assert make(ApproxDP(1.0, 1e-6), 100).guarantee == PureDP(1.0)


# --- the server -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("n", [0, 1, 700, 40_000])
def test_supports_are_counted_one_by_one(make: Callable[..., Oracle], n: int) -> None:
    oracle = make(PureDP(1.0), 19)
    reports = oracle_reports(oracle, np.arange(n) % 19, rng=seeded(3))
    assert len(reports) == n
    assert support_counts(oracle, reports).tolist() == [(reports == item).sum() for item in range(19)]


@pytest.mark.parametrize("make", MAKERS)
def test_estimates_are_unbiased_with_the_stated_variance(make: Callable[..., Oracle]) -> None:
    """Over repetitions with people drawn afresh; the variance pools all items, so it is known to a few per cent."""
    shares = np.array([0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.02, 0.0])
    oracle = make(PureDP(1.5), len(shares))
    people, n, times = np.random.default_rng(8), 500, 600
    rng = seeded(8)
    found, claimed = np.empty((times, len(shares))), np.empty((times, len(shares)))
    for i in range(times):
        values = people.choice(len(shares), size=n, p=shares)
        found[i], claimed[i] = estimate(oracle, simulate_counts(oracle, values, rng=rng), n)
    stated = np.array([oracle.variance(share) for share in shares]) / n
    assert (np.abs(found.mean(axis=0) - shares) < 5 * np.sqrt(stated / times)).all()
    assert (found.var(axis=0) / stated).mean() == pytest.approx(1, abs=0.1)
    assert claimed.mean(axis=0) == pytest.approx(stated, rel=0.02)


@pytest.mark.parametrize("make", MAKERS)
def test_simulated_counts_have_the_law_of_counted_reports(make: Callable[..., Oracle]) -> None:
    oracle, values, times = make(PureDP(1.0), 3), np.array([0, 0, 2]), 1500
    assert counts_p(oracle, oracle, values, times) > TINY_P
    assert counts_p(oracle, make(PureDP(1.6), 3), values, times) < TINY_P


def counts_p(simulated: Oracle, counted: Oracle, values: NDArray[np.int64], times: int) -> float:
    """Chi-square test that two samples of whole count vectors have one law."""
    one, two = seeded(21), seeded(22)
    digits = (len(values) + 1) ** np.arange(simulated.categories)
    cells = np.zeros((2, int(digits[-1]) * (len(values) + 1)), dtype=np.int64)
    for _ in range(times):
        cells[0, simulate_counts(simulated, values, rng=one) @ digits] += 1
        cells[1, support_counts(counted, oracle_reports(counted, values, rng=two)) @ digits] += 1
    common = cells.sum(axis=0) >= 40
    table = np.column_stack([cells[:, common], cells[:, ~common].sum(axis=1)])
    return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)


def test_many_people_are_added_up_in_chunks() -> None:
    values = np.repeat([0, 1, 1, 5], 30_000)
    for make in MAKERS:
        oracle = make(PureDP(3.0), 6)
        shares, variances = estimate(oracle, simulate_counts(oracle, values, rng=seeded(2)), len(values))
        truth = np.bincount(values, minlength=6) / len(values)
        assert (np.abs(shares - truth) < 5.5 * np.sqrt(variances)).all()


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_refusals_name_the_parameter_and_no_value_of_a_person() -> None:
    for make in MAKERS:
        with pytest.raises(InvalidInput, match="`categories` must be at least 2"):
            make(PureDP(1.0), 1)
        with pytest.raises(InvalidInput, match=r"`epsilon` must be at least 0\.001"):
            make(PureDP(0.0), 5)
        oracle = make(PureDP(1.0), 5)
        for values in (np.array([0, 777]), np.array([-777]), np.array([0.5]), np.array([[1]])):
            with pytest.raises(InvalidInput, match="`values` must be a row of whole numbers from 0 to 4") as refusal:
                oracle_reports(oracle, values, rng=seeded(1))
            assert "777" not in str(refusal.value)
        with pytest.raises(InvalidInput, match="`reports` must"):
            support_counts(oracle, np.full((3, 9), 99.0))
    with pytest.raises(InvalidInput, match="`size` must be"):
        SubsetSelection(PureDP(1.0), 4, 4, WORD // 2)
    with pytest.raises(InvalidInput, match=r"`keep` must be small enough for .* and above chance"):
        SubsetSelection(PureDP(1.0), 4, 2, WORD // 2)
    with pytest.raises(InvalidInput, match="`n` must be positive"):
        estimate(k_randomised_response(PureDP(1.0), 2), np.array([0, 0]), 0)
    with pytest.raises(InvalidInput, match="`counts` must be"):
        estimate(k_randomised_response(PureDP(1.0), 2), np.array([3, 0]), 2)
    with pytest.raises(InvalidInput, match="`share` must be"):
        subset_selection(PureDP(1.0), 2).variance(1.5)


def test_forged_reports_are_refused() -> None:
    with pytest.raises(InvalidInput, match="`reports` must be whole numbers"):
        support_counts(KRandomisedResponse(PureDP(1.0), 5, WORD // 5), np.array([0, 5]))


def test_domains_beyond_any_table() -> None:
    named = k_randomised_response(PureDP(30.0), 2**40)
    assert oracle_reports(named, np.array([17]), rng=seeded(4)).shape == (1,)


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.0, 4.0])
@pytest.mark.parametrize("k", [2, 7, 500])
def test_one_step_of_two_to_the_minus_64_beyond_the_promise_is_refused(epsilon: float, k: int) -> None:
    """Doubles could not tell: the promise would be exceeded by a part in 10^18."""
    for made in (subset_selection(PureDP(epsilon), k), k_randomised_response(PureDP(epsilon), k)):
        replace(made, keep=made.keep + 1)  # what calibration rounds down from
        with pytest.raises(InvalidInput, match="keep"):
            replace(made, keep=made.keep + 2)
