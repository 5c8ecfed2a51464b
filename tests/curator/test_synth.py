"""The exact order of scores with Gumbel noise; the noise of measurements; sensitivities on tiny rows."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest

from hybridp.curator import marginals as curating
from hybridp.curator.marginals import Candidate, _ordered, codes_of, gumbel_keys, settled
from hybridp.public.queries import Schema
from hybridp.randomness import Randomness, seeded

SCHEMA = Schema.from_domain({"a": 2, "b": 3})


def _replay(words: list[int]) -> Randomness:
    left = list(words)

    def source(n: int) -> np.ndarray:
        taken, left[:] = left[:n], left[n:]
        return np.array(taken, dtype=np.uint64)

    return Randomness(True, "replayed", source, lambda n: [])


def test_ties_are_settled_by_more_bits() -> None:
    same = 1 << 63
    # The keys of equal scores are in the order of the words that come after equal ones: the smallest is the largest.
    found = _ordered(np.array([5, 5, 5]), Fraction(7), _replay([same, same, same, 30 << 32, 10 << 32, 20 << 32]))
    assert found.tolist() == [1, 2, 0]


def test_a_word_of_zeros_says_too_little_to_decide() -> None:
    """Score 1 leads by five at the leading words, which are 0 for both; the next ones put score 0 far ahead.

    Its V is then 2^-100 and its key 69.3; the other's V is just below 2^-64, and its key 44.4 + 5.
    """
    found = _ordered(np.array([0, 5]), Fraction(1), _replay([0, 0, (1 << 64) - 1, 1 << 28]))
    assert found.tolist() == [0, 1]


def test_the_order_of_settled_candidates_is_that_of_high_precision_arithmetic() -> None:
    rng = np.random.default_rng(5)
    corners = [1, 2, (1 << 24) - 1, (1 << 64) - 2, (1 << 63) + 1]
    words = [*corners, *(int(w) for w in rng.integers(1 << 30, 1 << 63, 7, dtype=np.int64))]
    scale = Fraction(3)
    candidates = [Candidate(i, int(rng.integers(0, 9)), word) for i, word in enumerate(words)]
    with mpmath.workdps(60):
        keys = [
            c.score / mpmath.mpf(3) - mpmath.log(-mpmath.log(1 - mpmath.mpf(c.prefix * 2 + 1) / 2**65))
            for c in candidates
        ]
    want = sorted(range(len(words)), key=lambda i: -keys[i])
    assert settled(candidates, len(words) - 1, scale, seeded(1)).tolist() == want[:-1]


def test_float_keys_are_within_the_stated_slack() -> None:
    rng = np.random.default_rng(2)
    words = np.concatenate([rng.integers(1 << 24, 1 << 63, 300), [1 << 24, (1 << 63) - 1]]).astype(np.uint64)
    words = np.concatenate([words, np.array([(1 << 64) - (1 << 40)], dtype=np.uint64)])
    scores = rng.integers(0, 1 << 36, len(words))
    found = gumbel_keys(words, scores, 2.0**16)
    with mpmath.workdps(50):
        for word, score, key in zip(words.tolist(), scores.tolist(), found.tolist(), strict=True):
            for end in (word, word + 1):
                true = mpmath.mpf(score) / 2**16 - mpmath.log(-mpmath.log(1 - mpmath.mpf(end) / 2**64))
                assert abs(true - key) < 2.0**-20


def _rows(records: list[tuple[int, int]]) -> curating.Codes:
    return codes_of(SCHEMA, np.array(records))


def test_replacing_a_person_moves_a_table_by_its_sensitivity() -> None:
    everyone, others = list(itertools.product(range(2), range(3))), [(0, 2), (1, 1)]
    tables = [
        curating.measure_table(_rows([record, *others]), (0, 1), 1e-3, rng=seeded(1)).counts.ravel()  # no noise
        for record in everyone
    ]
    moved = [float(np.linalg.norm(one - other)) for one, other in itertools.combinations(tables, 2)]
    assert max(moved) == pytest.approx(math.sqrt(2))
