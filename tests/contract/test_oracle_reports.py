"""The reports of frequency oracles: their exact law, each decision of the samplers at its edge, and the hash."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from hybridp.noise import oracles as oracle_noise
from hybridp.noise.oracles import oracle_reports
from hybridp.public.budgets import PureDP
from hybridp.public.oracles import (
    LocalHashing,
    Oracle,
    hashed_buckets,
    local_hashing,
    optimised_unary,
    subset_selection,
    support_counts,
)
from hybridp.public.randomisers import k_randomised_response
from hybridp.randomness import seeded
from hybridp.testing.laws import WORD

from .test_local import replay
from .test_oracles import TABLES, case_of

TINY_P = 1e-6
N = 60_000

# --- the reports ------------------------------------------------------------------------------------------------------

SAMPLED = [
    k_randomised_response(PureDP(1.0), 5),
    optimised_unary(PureDP(1.0), 4),
    subset_selection(PureDP(0.5), 5),
    subset_selection(PureDP(0.3), 8),
    local_hashing(PureDP(1.0), 2),
]
sampled = pytest.mark.parametrize("oracle", SAMPLED, ids=lambda o: f"{o.name} {o.categories}")


def report_p(made: Oracle, stated: Oracle, value: int, seed: int = 5) -> float:
    """The chi-square p-value of reports against the law of `stated`, every possible report being a cell."""
    reports = oracle_reports(made, np.full(N, value), rng=seeded(seed))
    k = stated.categories
    if isinstance(stated, LocalHashing):
        own = hashed_buckets(stated, np.full(N, value), reports["multiplier"], reports["offset"])
        g, p = stated.buckets, stated.keep / WORD
        seen = np.bincount(own * g + reports["bucket"], minlength=g * g)
        expected = np.where(np.eye(g) > 0, p, (1 - p) / (g - 1)).ravel() / g
        return float(stats.chisquare(seen, N * expected).pvalue)
    parameters = {name: getattr(stated, name) for name in type(stated).__dataclass_fields__}
    law = TABLES[stated.name](**parameters)[value]
    codes = [sum(1 << x for x in report) for report in law]  # type: ignore[attr-defined]
    if stated.name == "unary":
        mine = np.unpackbits(reports, axis=1, count=k) @ (1 << np.arange(k))
    else:
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
