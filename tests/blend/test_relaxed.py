"""The fit of D' to noisy marginals: ceilings, targets, and why not least squares."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.blend.tables import Goal, _descend, fit_rows, pair_sums, sparsemax
from hybridp.errors import InvalidInput
from hybridp.public.synth import MeasuredTable

SIZES = (6, 40, 30)
PEOPLE = 20_000


def _truth(seed: int) -> np.ndarray:
    """A table with few large cells and many empty ones."""
    rng = np.random.default_rng(seed)
    shares = np.zeros(SIZES)
    shares[0, :2, :3] = 0.9 * rng.dirichlet(np.full(6, 5.0)).reshape(2, 3)
    shares[1:, 5:, 5:] = 0.1 / shares[1:, 5:, 5:].size
    return shares


def _measured(shares: np.ndarray, sigma: float, seed: int) -> MeasuredTable:
    noise = np.random.default_rng(seed).normal(0, sigma, shares.shape)
    return MeasuredTable((0, 1, 2), np.rint(shares * PEOPLE + noise).astype(np.int64), sigma)


def table(lines: np.ndarray, sizes: tuple[int, ...] = SIZES) -> np.ndarray:
    blocks = np.split(lines, np.cumsum(sizes)[:-1])
    return np.einsum(*[x for i, b in enumerate(blocks) for x in (b, [i, 9])], list(range(len(sizes)))) / lines.shape[1]


def _largest(lines: np.ndarray, shares: np.ndarray) -> float:
    return float(np.abs(table(lines) - shares).max())


def by_sort(x: np.ndarray) -> np.ndarray:
    """Sparsemax as it is defined, in double precision: sort, and take the largest support that stays positive."""
    s = np.sort(x)[::-1]
    k = max(j for j in range(1, len(s) + 1) if 1 + j * s[j - 1] > s[:j].sum())
    return np.maximum(x - (s[:k].sum() - 1) / k, 0)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.floats(-30, 30, width=32), min_size=3, max_size=3), min_size=1, max_size=40))
def test_sparsemax_is_its_definition(numbers: list[list[float]]) -> None:
    given, block = np.array(numbers), np.array(numbers)
    sparsemax(block)
    for found, column in zip(block.T, given.T, strict=True):
        assert found == pytest.approx(by_sort(column), abs=1e-9)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([1e-3, 1.0, 1e3]))
def test_sparsemax_ends_in_single_precision(seed: int, scale: float) -> None:
    block = (scale * np.random.default_rng(seed).standard_normal((17, 200))).astype(np.float32)
    sparsemax(block)
    assert np.abs(block.sum(0, dtype=np.float64) - 1).max() < 1e-5 * max(1.0, scale)
    assert block.min() >= 0


def test_ceilings_do_not_follow_the_noise() -> None:
    shares = _truth(1)
    assert _largest(fit_rows([_measured(shares, 200.0, 2)], SIZES, PEOPLE, rows=100, seed=1), shares) < 0.05


def test_without_noise_the_table_is_found() -> None:
    shares = _truth(3)
    exact = MeasuredTable((0, 1, 2), np.rint(shares * PEOPLE).astype(np.int64), 0.5)
    found = fit_rows([exact], SIZES, PEOPLE, rows=150, seed=2)
    assert _largest(found, shares) < 0.02  # 150 rows do not hold every share
    for block in np.split(found, np.cumsum(SIZES)[:-1]):
        assert np.all(block >= 0)
        assert np.allclose(block.sum(0), 1, atol=1e-5)


def test_large_tables_are_fitted_as_well_as_small_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    shares = _truth(4)
    noisy = [_measured(shares, 200.0, seed) for seed in range(5, 11)]
    small = fit_rows(noisy, SIZES, PEOPLE, rows=100, seed=3)
    for name in ("_LARGE", "_STEP"):
        monkeypatch.setattr(f"hybridp.blend.tables.{name}", 1000)
    large = fit_rows(noisy, SIZES, PEOPLE, rows=100, seed=3)
    assert not np.array_equal(small, large)
    assert abs(_largest(small, shares) - _largest(large, shares)) < 0.01
    assert _largest(large, shares) < 0.02


def test_rows_that_are_below_their_ceilings_and_on_their_targets_stay() -> None:
    records = np.repeat(np.array([[0, 1, 2], [3, 4, 5]]), 10, axis=0)
    lines = np.concatenate([np.eye(size, dtype=np.float32)[:, records[:, f]] for f, size in enumerate(SIZES)])
    counts = np.full(SIZES, 3, dtype=np.int64)
    counts[0, 1, 2] = counts[3, 4, 5] = PEOPLE // 2
    found = lines.copy()
    _descend(found, SIZES, [Goal.of(MeasuredTable((0, 1, 2), counts, 2.0), PEOPLE, 2.0, 1)], 5, 0.02)
    assert np.allclose(found, lines, atol=1e-4)


@pytest.mark.parametrize("features", [(1,), (2, 0), (0, 1, 2), (3, 1, 0, 2)])
@pytest.mark.parametrize("most", [1, 1 << 20])
def test_the_slope_is_that_of_the_stated_loss(
    features: tuple[int, ...], most: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against differences of the loss, on rows that are taken one by one, or all at once."""
    monkeypatch.setattr("hybridp.blend.tables._MOST", most)
    draw, sizes = np.random.default_rng(4), (3, 4, 5, 2)
    blocks = [draw.random((size, 7)) for size in sizes]
    counts = draw.integers(0, 9, [sizes[f] for f in features])
    goal = Goal.of(MeasuredTable(features, counts, 2.0), 10, 3.0, 1)
    assert 0 < np.isinf(goal.floor).sum() < goal.floor.size

    def loss(parts: list[np.ndarray]) -> float:
        terms = [x for i, f in enumerate(features) for x in (parts[f], [i, 9])]
        error = np.einsum(*terms, list(range(len(features)))).reshape(goal.wanted.shape) / 7 - goal.wanted
        return goal.weight * float((np.maximum(error, goal.floor) ** 2).sum())

    slopes = [np.zeros((size, 7)) for size in sizes]
    goal.add_slope(blocks, slopes)
    for f, (slope, block) in enumerate(zip(slopes, blocks, strict=True)):
        for cell in np.ndindex(block.shape):
            moved = [one.copy() for one in blocks]
            moved[f][cell] += 1e-5
            higher = loss(moved)
            moved[f][cell] -= 2e-5
            assert slope[cell] == pytest.approx((higher - loss(moved)) / 2e-5, rel=1e-3, abs=1e-4)


def test_bad_goals_are_refused() -> None:
    with pytest.raises(InvalidInput, match="`tables`"):
        fit_rows([], SIZES, PEOPLE, rows=5, seed=1)
    with pytest.raises(InvalidInput, match="`counts`"):
        fit_rows([MeasuredTable((0, 1), np.zeros((2, 2), np.int64), 1.0)], SIZES, PEOPLE, rows=5, seed=1)


def test_pairs_of_larger_tables_have_the_noise_that_is_stated() -> None:
    """Sums of 5 and of 3 cells, averaged by their precision: the variance is 1/(1/(5 s^2) + 1/(3 (2s)^2))."""
    draw, errors = np.random.default_rng(8), []
    first, second = draw.integers(0, 900, (2, 4, 5)), draw.integers(0, 900, (3, 4, 2))
    second[0] += first.sum(axis=2).T - second.sum(axis=0)  # the same in sum over the feature that is not shared
    for _ in range(400):
        noisy = [
            MeasuredTable((0, 1, 3), first + np.rint(draw.normal(0, 40, first.shape)).astype(np.int64), 40.0),
            MeasuredTable((2, 1, 0), second + np.rint(draw.normal(0, 80, second.shape)).astype(np.int64), 80.0),
        ]
        (pair,) = (p for p in pair_sums(noisy) if p.features == (0, 1))
        errors.append(pair.counts - first.sum(axis=2))
    expected = (1 / (5 * 40**2) + 1 / (3 * 80**2)) ** -0.5
    assert pair.sigma == pytest.approx(expected)
    assert abs(np.mean(errors)) < 4 * expected / math.sqrt(400 * 8)
    assert np.std(errors) == pytest.approx(expected, rel=0.06)
    assert {p.features for p in pair_sums(noisy)} == {(0, 1), (0, 3), (1, 3), (1, 2), (0, 2)}
    assert pair_sums([MeasuredTable((0, 1), first[:, :, 0], 1.0)]) == []


def test_what_only_sums_of_cells_tell_is_fitted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two columns that agree, and a third of 60 values: no cell stands out of the noise, their sums do."""
    from hybridp.blend import tables as blending

    counts = np.zeros((2, 2, 60), np.int64)
    counts[0, 0], counts[1, 1] = 40, 43
    noise = np.rint(np.random.default_rng(2).normal(0, 40, counts.shape)).astype(np.int64)
    tables = [MeasuredTable((0, 1, 2), counts + noise, 40.0), MeasuredTable((0,), counts.sum(axis=(1, 2)), 300.0)]
    apart = []
    for sums in (blending.pair_sums, lambda tables: []):
        monkeypatch.setattr(blending, "pair_sums", sums)
        found = table(fit_rows(tables, counts.shape, int(counts.sum()), rows=150, seed=2), counts.shape).sum(axis=2)
        apart.append(np.abs(found - counts.sum(axis=2) / counts.sum()).sum() / 2)
    assert apart[0] < 0.2 < 0.3 < apart[1]
