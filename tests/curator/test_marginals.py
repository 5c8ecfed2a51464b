"""Exact counts on codes, every form against counting matches person by person; the exact order of scores with Gumbel
noise."""

from __future__ import annotations

from fractions import Fraction
from itertools import product
from pathlib import Path

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.curator import marginals
from hybridp.curator.marginals import (
    Candidate,
    _ordered,
    codes_of,
    counts,
    gumbel_keys,
    read_codes,
    settled,
    table_counts,
)
from hybridp.errors import InvalidInput
from hybridp.public.queries import Feature, Schema, Threshold, Workload
from hybridp.randomness import Randomness, seeded

SCHEMA = Schema.from_domain({"a": 2, "b": 3, "c": 4, "d": 3})
people = st.lists(st.tuples(*(st.integers(0, s - 1) for s in SCHEMA.sizes)), min_size=1, max_size=25)
WORK = Workload(SCHEMA, (Threshold((0, 1, 2), 3), Threshold((3, 1, 2, 0), 2), Threshold((2, 3), 1), Threshold((1,), 1)))


def by_hand(rows: list[tuple[int, ...]], work: Workload) -> list[int]:
    return [
        sum(sum(row[f] == v for f, v in zip(t.features, cell, strict=True)) >= t.r for row in rows)
        for t in work.thresholds
        for cell in product(*(range(SCHEMA.sizes[f]) for f in t.features))
    ]


@settings(max_examples=40, deadline=None)
@given(people, st.integers(1, 80))
def test_every_form_counts_the_same_people(rows: list[tuple[int, ...]], most: int) -> None:
    codes = codes_of(SCHEMA, np.array(rows))
    wanted = by_hand(rows, WORK)
    found = list(counts(codes, WORK, most_cells=most))
    assert np.concatenate([part for _, part in found]).tolist() == wanted
    assert [piece.start for piece, _ in found] == np.cumsum([0, *(len(part) for _, part in found)])[:-1].tolist()


def test_rows_in_lots_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    records = np.random.default_rng(1).integers(0, SCHEMA.sizes, size=(500, 4))
    whole = table_counts(codes_of(SCHEMA, records), (2, 0))
    monkeypatch.setattr(marginals, "_LOT", 7)
    assert np.array_equal(table_counts(codes_of(SCHEMA, records), (2, 0)), whole)
    assert int(whole.sum()) == 500
    assert int(table_counts(codes_of(SCHEMA, records[:0]), (2, 0)).sum()) == 0


def test_a_file_is_read_once_into_codes(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("b,a\n2,u\n0,v\n")
    schema = Schema((Feature.categorical("a", ["u", "v"]), Feature.binned("b", [0, 1, 3])))
    assert read_codes(path, schema).values.tolist() == [[0, 1], [1, 0]]


def test_codes_outside_the_schema_are_the_last_ones() -> None:
    last = [s - 1 for s in SCHEMA.sizes]
    for odd in (-1, 1 << 40, 70_000):
        assert codes_of(SCHEMA, np.array([[0, odd, 0, 0]])).values[:, 0].tolist() == [0, last[1], 0, 0]
    for odd in (float("nan"), float("inf"), 0.5, -1.0):
        assert codes_of(SCHEMA, np.array([[0.0, odd, 1.0, 0]])).values[:, 0].tolist() == [0, last[1], 1, 0]


def test_records_of_another_shape_are_refused() -> None:
    with pytest.raises(InvalidInput, match="4 columns"):
        codes_of(SCHEMA, np.array([[0, 0]]))
    with pytest.raises(InvalidInput, match="must be numbers"):
        codes_of(SCHEMA, np.array([["0", "0", "0", "0"]]))
    other = Workload(Schema.from_domain({"a": 2, "b": 2}), (Threshold((0, 1), 1),))
    with pytest.raises(InvalidInput, match="schema of the codes"):
        next(counts(codes_of(SCHEMA, np.zeros((1, 4), dtype=int)), other))


# --- scores with Gumbel noise -----------------------------------------------------------------------------------------


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
