"""Rounding to records and post-processing of tables."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from hybridp.blend.tables import round_rows, sparsemax
from hybridp.errors import InvalidInput

SIZES = (2, 3, 5)


ENDS = np.cumsum(SIZES)[:-1]


def start(rows: int, seed: int) -> np.ndarray:
    lines = np.random.default_rng(seed).random((sum(SIZES), rows))
    for block in np.split(lines, ENDS):
        sparsemax(block)
    return lines


def one_hot(records: np.ndarray) -> np.ndarray:
    return np.concatenate([np.eye(size)[:, records[:, f]] for f, size in enumerate(SIZES)])


def test_one_hot_rows_come_back_as_they_are() -> None:
    records = np.random.default_rng(1).integers(0, SIZES, size=(40, 3))
    found = round_rows(one_hot(records), SIZES, 80, seed=2)
    assert sorted(map(tuple, found.tolist())) == sorted(map(tuple, np.repeat(records, 2, axis=0).tolist()))


def test_records_follow_the_relaxed_rows() -> None:
    data = start(3, seed=3)
    rows = 30_000
    found = round_rows(data, SIZES, rows, seed=4)
    cells = np.ravel_multi_index(tuple(found.T.astype(np.int64)), SIZES)
    counts = np.bincount(cells, minlength=30)
    wanted = np.einsum("ar,br,cr->abc", *np.split(data, ENDS)).ravel() / 3
    on = wanted > 0
    assert counts[~on].sum() == 0
    # Rows serve equally often, which only makes the counts closer than independent draws: the test stays valid.
    assert stats.chisquare(counts[on], rows * wanted[on] / wanted[on].sum()).pvalue > 1e-6
    bent = wanted[on] * np.linspace(0.8, 1.2, int(on.sum()))
    assert stats.chisquare(counts[on], rows * bent / bent.sum()).pvalue < 1e-6


def test_every_value_of_a_relaxed_row_comes_as_often_as_its_share_says() -> None:
    one = start(1, seed=6)
    blocks = [block[:, 0] for block in np.split(one, ENDS)]
    found = round_rows(one, SIZES, 1003, seed=7)
    for f, size in enumerate(SIZES):
        counts = np.bincount(found[:, f], minlength=size)
        assert np.abs(counts - 1003 * blocks[f]).max() < 2
    # Features stay independent within the row: a table of two of them scatters, around the product of their shares.
    pairs = np.stack([_pair(one, seed) for seed in range(400)])
    wanted = 1003 * np.outer(blocks[1], blocks[2])
    error = np.abs(pairs.mean(0) - wanted)
    assert np.all(error <= 5 * np.sqrt(wanted / 400) + 0.1)
    assert pairs.std(0).max() > 1


def _pair(data: np.ndarray, seed: int) -> np.ndarray:
    found = round_rows(data, SIZES, 1003, seed=seed).astype(np.int64)
    return np.bincount(found[:, 1] * 5 + found[:, 2], minlength=15).reshape(3, 5)


def test_each_row_serves_equally_often() -> None:
    data = one_hot(np.array([[0, 0, 0], [1, 1, 1], [1, 2, 2]]))
    for rows in (1, 7, 9, 10):
        served = np.bincount(round_rows(data, SIZES, rows, seed=5)[:, 1], minlength=3)
        assert served.sum() == rows
        assert served.max() - served.min() <= 1
    assert np.array_equal(round_rows(data, SIZES, 10, seed=6), round_rows(data, SIZES, 10, seed=6))
    with pytest.raises(InvalidInput, match="rows"):
        round_rows(data, SIZES, 0, seed=1)
