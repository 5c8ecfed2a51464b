"""The contract of every frequency oracle: the guarantee by enumeration, exact reports, unbiased counts.

A module of tests imports these laws and names its oracles in `ORACLES`. Likelihoods are written there from the
definitions, in fractions, for every value and every possible report.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import mpmath as mp
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.randomisers import estimate
from hybridp_lab.testing import Case, Law, fewer_flips, more_truth, promises
from hybridp_lab.testing.laws import precise, real

TINY_P = 1e-6
N = 60_000
Table = list[dict[Hashable, Fraction]]
"""For each value, the probability of each report: a set of items, or a function of them and a bucket."""


@dataclass(frozen=True)
class Oracles:
    """Oracles, what draws and counts their reports, and what is known of both by definition."""

    makers: Sequence[Callable[[PureDP | ApproxDP, int], Any]]
    cases: Sequence[Case]
    sampled: Sequence[Any]
    table: Callable[[Any], Table]
    reports: Callable[..., NDArray[Any]]
    counts: Callable[..., NDArray[np.int64]]
    simulated: Callable[..., NDArray[np.int64]]
    supporters: Callable[[Any, NDArray[Any], int], int]  # how many of the reports support an item
    cells: Callable[[Any, int, NDArray[Any]], tuple[Any, Any]]  # how often each report was seen, and its probability


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    of: Oracles = metafunc.module.ORACLES
    if "case" in metafunc.fixturenames:
        metafunc.parametrize("case", of.cases, ids=str)
    if "make" in metafunc.fixturenames:
        metafunc.parametrize("make", of.makers)
    if "oracle" in metafunc.fixturenames:
        metafunc.parametrize("oracle", of.sampled, ids=lambda one: f"{one.name} {one.categories}")


@pytest.fixture(scope="module")
def of(request: pytest.FixtureRequest) -> Oracles:
    found: Oracles = request.module.ORACLES
    return found


def support(table: Table, value: int, item: int) -> Fraction:
    """The probability that a report of this value supports this item."""

    def supports(report: Any) -> bool:
        return item in report if isinstance(report, frozenset) else bool(report[0][item] == report[1])

    return sum((p for report, p in table[value].items() if supports(report)), Fraction(0))


def case_of(oracle: Any, table: Callable[..., Table]) -> Case:
    """An oracle with the law that follows from its likelihoods."""

    def law(**parameters: Any) -> Law:
        rows = table(**parameters)
        pairs = [[(p, other[report]) for report, p in own.items()] for own, other in itertools.permutations(rows, 2)]

        @precise
        def delta(epsilon: float) -> mp.mpf:
            e = mp.exp(mp.mpf(epsilon))
            return max(mp.fsum(max(mp.mpf(0), real(p) - e * real(q)) for p, q in pair) for pair in pairs)

        @precise
        def loss() -> mp.mpf:
            return mp.log(real(max(p / q for pair in pairs for p, q in pair)))

        @precise
        def variance(share: float) -> mp.mpf:
            truth, other, f = support(rows, 0, 0), support(rows, 1, 0), Fraction(share)
            ones = f * truth + (1 - f) * other
            low, high = -other / (truth - other), (1 - other) / (truth - other)
            return real(ones * high**2 + (1 - ones) * low**2 - (ones * high + (1 - ones) * low) ** 2)

        return Law(delta, loss(), variance)

    return Case(oracle, law, fewer_flips if hasattr(oracle, "flips") else more_truth, "categories")


def parameters(oracle: Any) -> dict[str, Any]:
    return {name: getattr(oracle, name) for name in type(oracle).__dataclass_fields__}


def set_cells(row: dict[Hashable, Fraction], masks: NDArray[Any]) -> tuple[Any, Any]:
    """Of reports that are sets, each the bits of its items: how often each was seen, and its probability."""
    codes = [sum(1 << x for x in report) for report in row]  # type: ignore[attr-defined]
    seen = np.bincount(masks, minlength=max(codes) + 1)
    assert seen[codes].sum() == len(masks)
    return seen[codes], [float(p) for p in row.values()]


# --- the guarantee ----------------------------------------------------------------------------------------------------


def test_what_is_stated_is_true_and_not_wasteful_and_less_noise_is_refused(case: Case) -> None:
    hashed = hasattr(case.mechanism, "buckets")  # two items may share a bucket: the stated profile is of those apart
    for promise in promises(case):
        if promise.check.__module__ == "hybridp_lab.testing" and not (hashed and "profile" in promise.name):
            promise.check(case)


def test_supports_and_variance_follow_from_the_definition(case: Case, of: Oracles) -> None:
    oracle = case.mechanism
    table = of.table(oracle)
    k = oracle.categories
    assert all(sum(row.values()) == 1 for row in table)
    assert oracle.truth == pytest.approx(float(support(table, k - 1, k - 1)), rel=1e-15)
    for value, item in itertools.islice(itertools.permutations(range(k), 2), 6):
        assert oracle.other == pytest.approx(float(support(table, value, item)), rel=1e-15)
    for share in (0.0, 0.2, 1.0):
        assert oracle.variance(share) == pytest.approx(float(case.law.variance(share)), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.1, 0.7, 1.0, 4.0])
@pytest.mark.parametrize("k", [2, 7, 500])
def test_one_step_of_two_to_the_minus_64_beyond_the_promise_is_refused(make: Any, epsilon: float, k: int) -> None:
    """Doubles could not tell: the promise would be exceeded by a part in 10^18."""
    made = make(PureDP(epsilon), k)
    if hasattr(made, "flips"):
        name, most, beyond = "flips", made.flips, made.flips - 1
    else:
        name, most, beyond = "keep", made.keep + 1, made.keep + 2  # calibration rounds down
    type(made)(**(parameters(made) | {name: most}))
    with pytest.raises(InvalidInput, match=name):
        type(made)(**(parameters(made) | {name: beyond}))


# --- the server -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [0, 1, 700, 5_000])
def test_supports_are_counted_one_by_one(make: Any, n: int, of: Oracles) -> None:
    oracle = make(PureDP(1.0), 19)
    reports = of.reports(oracle, np.arange(n) % 19, rng=seeded(3))
    assert len(reports) == n
    assert of.counts(oracle, reports).tolist() == [of.supporters(oracle, reports, item) for item in range(19)]


def test_estimates_are_unbiased_with_the_stated_variance(make: Any, of: Oracles) -> None:
    """Over repetitions with people drawn afresh; the variance pools all items, so it is known to a few per cent."""
    shares = np.array([0.4, 0.25, 0.15, 0.1, 0.05, 0.03, 0.02, 0.0])
    oracle = make(PureDP(1.5), len(shares))
    people, n, times = np.random.default_rng(8), 500, 600
    rng = seeded(8)
    found, claimed = np.empty((times, len(shares))), np.empty((times, len(shares)))
    for i in range(times):
        values = people.choice(len(shares), size=n, p=shares)
        found[i], claimed[i] = estimate(oracle, of.simulated(oracle, values, rng=rng), n)
    stated = np.array([oracle.variance(share) for share in shares]) / n
    assert (np.abs(found.mean(axis=0) - shares) < 5 * np.sqrt(stated / times)).all()
    assert (found.var(axis=0) / stated).mean() == pytest.approx(1, abs=0.1)
    assert claimed.mean(axis=0) == pytest.approx(stated, rel=0.02)


def test_simulated_counts_have_the_law_of_counted_reports(make: Any, of: Oracles) -> None:
    """Chi-square test that two samples of whole count vectors have one law; with more noise they have not."""
    values, times = np.array([0, 0, 2]), 1500
    oracle, other = make(PureDP(1.0), 3), make(PureDP(1.6), 3)
    digits = (len(values) + 1) ** np.arange(3)

    def cells(counted: Callable[[Any], NDArray[np.int64]], seed: int) -> NDArray[np.int64]:
        rng = seeded(seed)
        return np.bincount([int(counted(rng) @ digits) for _ in range(times)], minlength=int(digits[-1]) * 4)

    simulated = cells(lambda rng: of.simulated(oracle, values, rng=rng), 21)

    def p_value(stated: Any) -> float:
        real = cells(lambda rng: of.counts(stated, of.reports(stated, values, rng=rng)), 22)
        seen = np.array([simulated, real])
        common = seen.sum(axis=0) >= 40
        table = np.column_stack([seen[:, common], seen[:, ~common].sum(axis=1)])
        return float(stats.chi2_contingency(table[:, table.sum(axis=0) > 0]).pvalue)

    assert p_value(oracle) > TINY_P
    assert p_value(other) < TINY_P


def test_many_people_are_added_up_in_chunks(make: Any, of: Oracles) -> None:
    values = np.repeat([0, 1, 1, 5], 30_000)
    oracle = make(PureDP(3.0), 6)
    shares, variances = estimate(oracle, of.simulated(oracle, values, rng=seeded(2)), len(values))
    truth = np.bincount(values, minlength=6) / len(values)
    assert (np.abs(shares - truth) < 5.5 * np.sqrt(variances)).all()


def test_refusals_name_the_parameter_and_no_value_of_a_person(make: Any, of: Oracles) -> None:
    with pytest.raises(InvalidInput, match="`categories` must be at least 2"):
        make(PureDP(1.0), 1)
    with pytest.raises(InvalidInput, match=r"`epsilon` must be at least 0\.001"):
        make(PureDP(0.0), 5)
    oracle = make(PureDP(1.0), 5)
    for values in (np.array([0, 777]), np.array([-777]), np.array([0.5]), np.array([[1]])):
        with pytest.raises(InvalidInput, match="`values` must be a row of whole numbers from 0 to 4") as refusal:
            of.reports(oracle, values, rng=seeded(1))
        assert "777" not in str(refusal.value)
    with pytest.raises(InvalidInput, match="`reports` must"):
        of.counts(oracle, np.full((3, 9), 99.0))


# --- the reports ------------------------------------------------------------------------------------------------------


def report_p(of: Oracles, made: Any, stated: Any, value: int) -> float:
    """The chi-square p-value of reports against the law of `stated`, every possible report being a cell."""
    seen, law = of.cells(stated, value, of.reports(made, np.full(N, value), rng=seeded(5)))
    return float(stats.chisquare(seen, N * np.asarray(law)).pvalue)


def test_reports_have_the_exact_law(oracle: Any, of: Oracles) -> None:
    for value in (0, oracle.categories - 1):
        assert report_p(of, oracle, oracle, value) > TINY_P


def test_control_ten_percent_less_noise_is_noticed(oracle: Any, of: Oracles) -> None:
    control = case_of(oracle, lambda **_: of.table(oracle)).weaker(guarantee=PureDP(25.0))
    assert report_p(of, control, oracle, 0) < TINY_P
