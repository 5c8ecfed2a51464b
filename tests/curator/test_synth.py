"""The selection's law, exactly and by test; the noise of measurements; sensitivities on tiny rows."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from scipy import stats

from hybridp.curator import synth as curating
from hybridp.curator.synth import LATTICE, _Candidate, _settled, _top, codes_of, errors
from hybridp.errors import InvalidInput
from hybridp.public.queries import Schema, Threshold, Workload, pieces
from hybridp.public.synth import gumbel_scale
from hybridp.randomness import Randomness, seeded

SCHEMA = Schema.from_domain({"a": 2, "b": 3})
WORK = Workload(SCHEMA, (Threshold((0, 1), 2), Threshold((0, 1), 1)))
NONE = np.zeros(0, np.int64)


def _law(scores: np.ndarray, scale: float, picks: int) -> dict[tuple[int, ...], float]:
    """The exponential mechanism `picks` times without replacement, by its definition."""
    weight = np.exp(scores / scale)
    found = {}
    for order in itertools.permutations(range(len(scores)), picks):
        left, p = weight.sum(), 1.0
        for i in order:
            p *= weight[i] / left
            left -= weight[i]
        found[order] = p
    return found


def _p_value(draws: list[tuple[int, ...]], law: dict[tuple[int, ...], float]) -> float:
    counts = np.array([draws.count(key) for key in law])
    assert counts.sum() == len(draws)
    return float(stats.chisquare(counts, np.array(list(law.values())) * len(draws)).pvalue)


def test_the_selection_has_the_exponential_mechanisms_probabilities() -> None:
    people, rho, picks = np.array([0, 3, 1, 5]), 0.04, 2
    scores = [(0, people[:1] * LATTICE), (1, people[1:] * LATTICE)]
    rng = seeded(11)
    draws = [tuple(curating.top_errors(scores, picks, rho, without=NONE, rng=rng).tolist()) for _ in range(6000)]
    scale = gumbel_scale(rho, picks)
    assert scale == pytest.approx(5.0)
    assert _p_value(draws, _law(people, scale, picks)) > 1e-6
    assert _p_value(draws, _law(people, scale * 1.3, picks)) < 1e-6  # a perturbed scale is rejected


def test_what_is_left_out_is_never_picked_and_numbers_are_the_workloads() -> None:
    scores = [(0, np.array([9, 9]) * 10**9), (2, np.array([1, 7, 2]) * 10**9)]
    found = curating.top_errors(scores, 2, 1.0, without=np.array([0, 3]), rng=seeded(1))
    assert found.tolist() == [1, 4]
    with pytest.raises(InvalidInput, match="`per_round` must be at most the 3 queries that are left"):
        curating.top_errors(scores, 4, 1.0, without=np.array([0, 3]), rng=seeded(1))


def _replay(words: list[int]) -> Randomness:
    left = list(words)

    def source(n: int) -> np.ndarray:
        taken, left[:] = left[:n], left[n:]
        return np.array(taken, dtype=np.uint64)

    return Randomness(True, "replayed", source, lambda n: [])


def test_ties_are_settled_by_more_bits() -> None:
    same = 1 << 63
    scores = [(0, np.array([5, 5, 5]))]
    # The keys of equal errors are in the order of the words that come after equal ones: the smallest is the largest.
    found = _top(scores, 2, Fraction(7), NONE, _replay([same, same, same, 30 << 32, 10 << 32, 20 << 32]))
    assert found.tolist() == [1, 2]


def test_a_word_of_zeros_says_too_little_to_decide() -> None:
    """Query 1 leads by five at the leading words, which are 0 for both; the next ones put query 0 far ahead.

    Its V is then 2^-100 and its key 69.3; the other's V is just below 2^-64, and its key 44.4 + 5.
    """
    scores = [(0, np.array([0, 5]))]
    found = _top(scores, 1, Fraction(1), NONE, _replay([0, 0, (1 << 64) - 1, 1 << 28]))
    assert found.tolist() == [0]


def test_the_order_of_settled_candidates_is_that_of_high_precision_arithmetic() -> None:
    rng = np.random.default_rng(5)
    corners = [1, 2, (1 << 24) - 1, (1 << 64) - 2, (1 << 63) + 1]
    words = [*corners, *(int(w) for w in rng.integers(1 << 30, 1 << 63, 7, dtype=np.int64))]
    scale = Fraction(3)
    candidates = [_Candidate(i, int(rng.integers(0, 9)), word) for i, word in enumerate(words)]
    with mpmath.workdps(60):
        keys = [
            c.score / mpmath.mpf(3) - mpmath.log(-mpmath.log(1 - mpmath.mpf(c.prefix * 2 + 1) / 2**65))
            for c in candidates
        ]
    want = sorted(range(len(words)), key=lambda i: -keys[i])
    assert _settled(candidates, len(words) - 1, scale, seeded(1)).tolist() == want[:-1]


def test_float_keys_are_within_the_stated_slack() -> None:
    rng = np.random.default_rng(2)
    words = np.concatenate([rng.integers(1 << 24, 1 << 63, 300), [1 << 24, (1 << 63) - 1]]).astype(np.uint64)
    words = np.concatenate([words, np.array([(1 << 64) - (1 << 40)], dtype=np.uint64)])
    scores = rng.integers(0, 1 << 36, len(words))
    found = curating._keys(words, scores, 2.0**16)
    with mpmath.workdps(50):
        for word, score, key in zip(words.tolist(), scores.tolist(), found.tolist(), strict=True):
            for end in (word, word + 1):
                true = mpmath.mpf(score) / 2**16 - mpmath.log(-mpmath.log(1 - mpmath.mpf(end) / 2**64))
                assert abs(true - key) < 2.0**-20


def _rows(records: list[tuple[int, int]]) -> curating.Codes:
    return codes_of(SCHEMA, np.array(records))


def test_replacing_a_person_moves_tables_and_errors_by_their_sensitivities() -> None:
    everyone = list(itertools.product(range(2), range(3)))
    others = [(0, 2), (1, 1)]
    rng = np.random.default_rng(3)
    shares = [(piece, rng.random(piece.cells)) for piece in pieces(WORK)]
    tables, scores = [], []
    for record in everyone:
        codes = _rows([record, *others])
        exact = curating.measure_table(codes, (0, 1), 1e-3, rng=seeded(1))  # so little noise that there is none
        tables.append(exact.counts.ravel())
        scores.append(np.concatenate([s for _, s in errors(codes, WORK, shares)]))
    pairs = list(itertools.combinations(range(len(everyone)), 2))
    assert max(float(np.linalg.norm(tables[i] - tables[j])) for i, j in pairs) == pytest.approx(math.sqrt(2))
    assert max(int(np.abs(scores[i] - scores[j]).max()) for i, j in pairs) <= LATTICE


def test_errors_are_those_of_the_definition() -> None:
    codes = _rows([(0, 2), (1, 1), (0, 0), (0, 2)])
    shares = [(piece, np.full(piece.cells, 0.25)) for piece in pieces(WORK)]
    found = np.concatenate([s for _, s in errors(codes, WORK, shares)]) / LATTICE
    marginal = np.abs(np.array([1, 0, 2, 0, 1, 0]) - 1.0)
    either = np.array(
        [[(a == x) or (b == y) for a, b in [(0, 2), (1, 1), (0, 0), (0, 2)]] for x in (0, 1) for y in range(3)]
    )
    assert found == pytest.approx(np.concatenate([marginal, np.abs(either.sum(1) - 1.0)]))


def test_measurements_have_the_stated_noise() -> None:
    schema = Schema.from_domain({"a": 100, "b": 100})
    codes = codes_of(schema, np.zeros((50, 2), dtype=np.int64))
    table = curating.measure_table(codes, (0, 1), 12.0, rng=seeded(4))
    noise = table.counts.astype(float).ravel()
    noise[0] -= 50
    statistic = float((noise**2).sum()) / 12.0**2
    assert 1e-6 < stats.chi2.cdf(statistic, noise.size) < 1 - 1e-6
    wrong = stats.chi2.cdf(statistic * (12.0 / 13.0) ** 2, noise.size)
    assert not 1e-6 < wrong < 1 - 1e-6  # a perturbed scale is rejected
    asked = Workload(schema, (Threshold((0, 1), 2),))
    one = curating.measure_queries(codes, asked, np.array([0, 7]), 1e-3, rng=seeded(4))
    assert one.counts.tolist() == [50, 0]
    assert one.selection.columns.tolist() == [[0, 100], [0, 107]]
