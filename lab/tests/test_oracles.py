"""Others' frequency oracles under the contract of every oracle, and each decision of their samplers at its edge.

Likelihoods are written here from the definitions, in fractions, for every value and every possible report. Bits
are enumerated; local hashing is enumerated over all functions from two items to the buckets, the ideal that
its hash is tested against in the last part.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Hashable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats
from tests.chance import replay
from tests.contract.oracle_laws import *  # noqa: F403
from tests.contract.oracle_laws import (
    TINY_P,
    N,
    Oracles,
    Table,
    case_of,
    parameters,
    set_cells,
    test_simulated_counts_have_the_law_of_counted_reports,
)

from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.randomisers import estimate, k_randomised_response, share_oracle
from hybridp_lab.baselines import oracles as oracle_noise
from hybridp_lab.baselines.oracles import (
    LocalHashing,
    hashed_buckets,
    local_hashing,
    optimised_unary,
    oracle_reports,
    simulate_counts,
    support_counts,
)
from hybridp_lab.testing.laws import WORD

# --- likelihoods from the definitions ---------------------------------------------------------------------------------


def unary_table(categories: int, flips: int, **_: object) -> Table:
    q = Fraction(flips, WORD)
    table: Table = []
    for v in range(categories):
        ones = [Fraction(1, 2) if x == v else q for x in range(categories)]
        row: dict[Hashable, Fraction] = {}
        for bits in itertools.product((0, 1), repeat=categories):
            factors = (one if bit else 1 - one for one, bit in zip(ones, bits, strict=True))
            row[frozenset(x for x, bit in enumerate(bits) if bit)] = math.prod(factors, start=Fraction(1))
        table.append(row)
    return table


def hashing_table(categories: int, buckets: int, keep: int, **_: object) -> Table:
    """Reports are (function, bucket): the function is uniform among all, the bucket a randomised response."""
    p = Fraction(keep, WORD)
    functions = list(itertools.product(range(buckets), repeat=categories))
    return [
        {
            (f, y): (p if f[v] == y else (1 - p) / (buckets - 1)) / len(functions)
            for f in functions
            for y in range(buckets)
        }
        for v in range(categories)
    ]


TABLES: dict[str, Callable[..., Table]] = {"unary": unary_table, "hashing": hashing_table}


def supporters(oracle: Any, reports: NDArray[Any], item: int) -> int:
    if isinstance(oracle, LocalHashing):
        own = hashed_buckets(oracle, np.full(len(reports), item), reports["multiplier"], reports["offset"])
        return int((own == reports["bucket"]).sum())
    return int((reports[:, item // 8] >> (7 - item % 8) & 1).sum())


def cells(stated: Any, value: int, reports: NDArray[Any]) -> tuple[Any, Any]:
    if isinstance(stated, LocalHashing):
        own = hashed_buckets(stated, np.full(len(reports), value), reports["multiplier"], reports["offset"])
        g, p = stated.buckets, stated.keep / WORD
        seen = np.bincount(own * g + reports["bucket"], minlength=g * g)
        return seen, np.where(np.eye(g) > 0, p, (1 - p) / (g - 1)).ravel() / g
    k = stated.categories
    masks = np.unpackbits(reports, axis=1, count=k) @ (1 << np.arange(k))
    return set_cells(unary_table(**parameters(stated))[value], masks)


HASHED = [local_hashing(PureDP(epsilon), 2) for epsilon in (0.1, 1 / 3, 1.0, 1.7)] + [local_hashing(PureDP(1 / 3), 4)]
UNARY = [optimised_unary(PureDP(epsilon), k) for epsilon in (0.1, 1 / 3, 1.0, 4.0, 10.0) for k in (2, 3, 6)]
ORACLES = Oracles(
    makers=(optimised_unary, local_hashing),
    cases=[case_of(oracle, TABLES[oracle.name]) for oracle in (*UNARY, *HASHED)],
    sampled=[optimised_unary(PureDP(1.0), 4), local_hashing(PureDP(1.0), 2)],
    table=lambda oracle: TABLES[oracle.name](**parameters(oracle)),
    reports=oracle_reports,
    counts=support_counts,
    simulated=simulate_counts,
    supporters=supporters,
    cells=cells,
)


@pytest.mark.parametrize("factor", [0.0, 0.9, 1.1])
def test_a_hash_that_tells_two_items_apart_has_the_stated_profile(factor: float) -> None:
    for case in (case for case in ORACLES.cases if isinstance(case.mechanism, LocalHashing)):
        epsilon = case.guarantee.epsilon * factor
        stated = case.mechanism.profile(epsilon) * (1 - 1 / case.mechanism.buckets)
        assert stated == pytest.approx(float(case.law.delta(epsilon)), rel=1e-7, abs=1e-9)


# --- published numbers and choices ------------------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 2.5, 5.0])
@pytest.mark.parametrize("k", [2, 16, 1024])
def test_variances_are_the_published_ones(epsilon: float, k: int) -> None:
    """Wang et al. 2017, equations 7, 10 and 12, at share 0: n Var is 4e/(e-1)^2, g-dependent."""
    e, less = math.exp(epsilon), math.expm1(epsilon)
    budget = PureDP(epsilon)
    assert optimised_unary(budget, k).variance(0.0) == pytest.approx(4 * e / less**2, rel=1e-9)
    hashing = local_hashing(budget, k)
    g = hashing.buckets
    assert g == round(e) + 1
    assert hashing.variance(0.0) == pytest.approx((e - 1 + g) ** 2 / (less**2 * (g - 1)), rel=1e-9)


@pytest.mark.parametrize("epsilon", [0.05, 0.5, 1.0, 2.0, 4.0, 9.0])
@pytest.mark.parametrize("k", [2, 3, 4, 7, 20, 61])
def test_what_a_release_takes_is_as_good_as_any_for_a_rare_item(epsilon: float, k: int) -> None:
    budget = PureDP(epsilon)
    least = min(make(budget, k).variance(0.0) for make in ORACLES.makers)
    assert share_oracle(budget, k).variance(0.0) <= least * (1 + 1e-12)


def test_sums_of_unary_bits_have_the_law_of_counted_reports(monkeypatch: pytest.MonkeyPatch) -> None:
    """As above, with the way that is otherwise kept for many people."""
    monkeypatch.setattr(oracle_noise, "_MANY", 0)
    test_simulated_counts_have_the_law_of_counted_reports(optimised_unary, ORACLES)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_a_delta_is_not_spent(make: Any) -> None:
    assert make(ApproxDP(1.0, 1e-6), 100).guarantee == PureDP(1.0)


def test_items_that_are_none_and_forged_reports_are_refused(make: Any) -> None:
    oracle = make(PureDP(1.0), 5)
    with pytest.raises(InvalidInput, match="`items` must be whole numbers"):
        support_counts(oracle, oracle_reports(oracle, np.array([1]), rng=seeded(1)), np.array([5]))
    with pytest.raises(InvalidInput, match="`share` must be"):
        optimised_unary(PureDP(1.0), 2).variance(1.5)
    with pytest.raises(InvalidInput, match="`items` must be named"):
        support_counts(local_hashing(PureDP(1.0), 2**48), np.zeros(0))
    hashing = local_hashing(PureDP(1.0), 5)
    reports = oracle_reports(hashing, np.array([1, 2]), rng=seeded(1))
    reports["bucket"][1] = hashing.buckets
    with pytest.raises(InvalidInput, match="`reports` must be whole numbers"):
        support_counts(hashing, reports)


def test_domains_beyond_any_table() -> None:
    """Prefixes of 48 bits: hashed and asked for by name."""
    oracle = local_hashing(PureDP(4.0), 2**48)
    items = np.array([2**47 + 12345, 17, 2**48 - 1])
    values = np.repeat(items[:2], 20_000)
    counts = support_counts(oracle, oracle_reports(oracle, values, rng=seeded(4)), items)
    shares, variances = estimate(oracle, counts, len(values))
    assert (np.abs(shares - [0.5, 0.5, 0]) < 5 * np.sqrt(variances)).all()


def test_the_supports_of_many_people_vary_as_their_coins_do() -> None:
    """An item of m holders among n: Binomial(m, 1/2) + Binomial(n - m, q), items apart; by the sum of squares."""
    oracle, n, times = optimised_unary(PureDP(1.0), 3), 40_000, 400
    q = oracle.flips / 2**64
    values = np.repeat([0, 1], [30_000, 10_000])
    holders = np.bincount(values, minlength=3)
    rng = seeded(3)
    result = np.array([simulate_counts(oracle, values, rng=rng) for _ in range(times)])
    mean = holders / 2 + (n - holders) * q

    def p_values(variance: np.ndarray) -> list[float]:
        squares = ((result - mean) ** 2).sum(axis=0) / variance
        return [2 * min(stats.chi2.cdf(s, times), stats.chi2.sf(s, times)) for s in squares]

    mine, others = holders / 4, (n - holders) * q * (1 - q)
    assert min(p_values(mine + others)) > 1e-6
    assert p_values(mine + 1e-9)[1] < 1e-6  # controls: one group's coins alone
    assert p_values(others)[0] < 1e-6
    assert abs(np.corrcoef(result.T)[0, 1]) < 5 / np.sqrt(times)


# --- the reports ------------------------------------------------------------------------------------------------------

@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("k", [8, 9, 21])
def test_bits_across_bytes_are_independent_and_padding_is_empty(epsilon: float, k: int) -> None:
    oracle = optimised_unary(PureDP(epsilon), k)
    bits = np.unpackbits(oracle_reports(oracle, np.full(N, 7), rng=seeded(9)), axis=1)
    assert not bits[:, k:].any()
    ones = np.full(k, oracle.flips / WORD)
    ones[7] = 0.5
    for item in range(k):
        assert stats.binomtest(int(bits[:, item].sum()), N, ones[item]).pvalue > TINY_P
    for a, b in {(0, 1), (6, 7), (0, 7), (0, k - 1)}:
        assert stats.binomtest(int((bits[:, a] & bits[:, b]).sum()), N, ones[a] * ones[b]).pvalue > TINY_P
    others = int(bits[:, :7].sum())
    assert (
        stats.binomtest(others, 7 * N, ones[0]).pvalue > TINY_P > stats.binomtest(others, 7 * N, ones[0] * 1.1).pvalue
    )


# --- each decision of the sampler at its edge -------------------------------------------------------------------------


@pytest.mark.parametrize("epsilon", [0.3, 4.0, 30.0])
def test_eight_bits_are_one_inversion_of_512_bits(epsilon: float) -> None:
    """Every start of a byte's range, and the numbers next to it, fall where the cumulated products say."""
    flips = optimised_unary(PureDP(epsilon), 8).flips
    law = oracle_noise._byte_law(flips)
    assert sorted(law.order.tolist()) == list(range(256))
    start, opened = 0, law.open.tolist()
    for rank, byte in enumerate(law.order.tolist()):
        for number, expected in ((start - 1, law.order[rank - 1]), (start, byte), (start + 1, byte)):
            if number >= 0 and number >> 496 in opened:
                words = [number >> 64 * i & (WORD - 1) for i in reversed(range(8))]
                first, second = law.sure + opened.index(number >> 496), (words[0] & (2**48 - 1)) << 16
                drawn = oracle_noise._biased_bytes(flips, 1, replay([first, second, *words[1:]]))
                assert drawn.tolist() == [expected]
        start += math.prod(flips if byte >> i & 1 else WORD - flips for i in range(8))
    assert start == WORD**8


@pytest.mark.parametrize("epsilon", [0.3, 1.0, 4.0])
def test_the_cells_of_a_byte_are_as_many_as_its_probability(epsilon: float) -> None:
    law = oracle_noise._byte_law(optimised_unary(PureDP(epsilon), 8).flips)
    q = optimised_unary(PureDP(epsilon), 8).flips / WORD
    expected = np.array([q ** b.bit_count() * (1 - q) ** (8 - b.bit_count()) for b in range(256)]) * 2**16
    missing = expected - np.bincount(law.byte[: law.sure], minlength=256)
    assert (missing > -1e-6).all()
    assert (missing < 2).all()
    assert missing.sum() == pytest.approx(len(law.open))


def test_binomial_counts_compare_64_bits() -> None:
    """One trial looks at one bit a word: its number against the numerator, to the last bit."""
    numerator = optimised_unary(PureDP(1.0), 2).flips
    for number in (0, numerator - 1, numerator, numerator + 1, WORD - 1):
        bits = [(number >> place & 1) << 63 for place in reversed(range(64))]
        assert oracle_noise._binomial(1, numerator, replay(bits)) == (number < numerator)


@pytest.mark.parametrize("trials", [30, 1000])
def test_binomial_counts_have_their_law(trials: int) -> None:
    numerator, rng = optimised_unary(PureDP(1.0), 2).flips, seeded(6)
    draws = [oracle_noise._binomial(trials, numerator, rng) for _ in range(4000)]
    for scale, fits in ((1.0, True), (1.1, False)):
        law = stats.binom(trials, numerator / WORD * scale)
        edges = np.unique(law.ppf(np.arange(1, 10) / 10))
        seen = np.bincount(np.searchsorted(edges, draws), minlength=len(edges) + 1)
        expected = 4000 * np.diff([0, *law.cdf(edges), 1])
        assert (stats.chisquare(seen, expected).pvalue > TINY_P) == fits


# --- the hash ---------------------------------------------------------------------------------------------------------


def hash_p(items: tuple[int, ...], g: int, one_multiplier: bool = False, plain: bool = False) -> float:
    """Do the buckets of these items behave as independent and uniform, over random functions?"""
    oracle = replace(local_hashing(PureDP(1.0), 2**40), buckets=g, keep=WORD // g + WORD // 100)
    rng = seeded(77)
    a, b = rng.words(N), rng.words(N)
    if one_multiplier:
        a[:] = a[0]
    code = np.zeros(N, dtype=np.int64)
    for item in items:
        plain_bucket = ((a * np.uint64(item) + b) >> np.uint64(32)).astype(np.int64) * g >> 32
        bucket = plain_bucket if plain else hashed_buckets(oracle, np.full(N, item), a, b)
        code = code * g + bucket
    return float(stats.chisquare(np.bincount(code, minlength=g ** len(items))).pvalue)


@pytest.mark.parametrize("items", [(0, 1), (3, 499), (0, 2**20), (7, 7 + 2**39), (0, 1, 2), (5, 6, 8), (10, 20, 30)])
@pytest.mark.parametrize("g", [2, 4, 7])
def test_items_are_hashed_independently(items: tuple[int, ...], g: int) -> None:
    assert hash_p(items, g) > TINY_P


def test_control_lesser_hashes_are_noticed() -> None:
    assert hash_p((3, 499), 4, one_multiplier=True) < TINY_P
    assert hash_p((0, 1), 4, plain=True) > TINY_P
    assert hash_p((0, 1, 2), 4, plain=True) < TINY_P


@pytest.mark.parametrize("g", [2, 3, 56, 1000003, 2**31])
def test_the_server_and_the_device_agree_at_the_edges_of_every_bucket(g: int) -> None:
    """With multiplier 0 the hash is the offset: the ends of bucket y are ceil(y 2^64/g) and the word before."""
    oracle = replace(local_hashing(PureDP(30.0), 5), buckets=g, keep=k_randomised_response(PureDP(30.0), g).keep)
    some = sorted({0, 1, g // 3, g // 2, g - 1})
    offsets = [word for y in some for word in (-(-y * WORD // g), -(-(y + 1) * WORD // g) - 1)]
    reports = np.zeros(len(offsets), dtype=oracle_reports(oracle, np.array([0]), rng=seeded(1)).dtype)
    reports["offset"] = offsets
    exact = [offset * g // WORD for offset in offsets]
    own = hashed_buckets(oracle, np.zeros(len(offsets)), reports["multiplier"], reports["offset"])
    assert own.tolist() == exact == [y for y in some for _ in range(2)]
    for shift, hits in ((0, 1), (1, 0), (-1, 0)):
        for i, y in enumerate(exact):
            one: NDArray[Any] = reports[i : i + 1].copy()
            if 0 <= y + shift < g:
                one["bucket"] = y + shift
                assert support_counts(oracle, one).tolist() == [hits] * 5
