"""The fit of D' to noisy marginals: ceilings, targets, and why not least squares."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from hybridp.blend.relaxed import one_hot, start, table
from hybridp.blend.synth import Fit, Small, fit_tables, gathered, pair_sums, settle
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


def _largest(data: object, shares: np.ndarray) -> float:
    return float(np.abs(table(data, (0, 1, 2)).numpy() - shares).max())  # type: ignore[arg-type]


def test_ceilings_do_not_follow_the_noise() -> None:
    shares = _truth(1)
    noisy = _measured(shares, 200.0, 2)
    begun = start(100, SIZES, seed=1)
    ours = _largest(fit_tables(begun, [noisy], PEOPLE, Fit(steps=200, learning_rate=0.05)), shares)
    assert ours < 0.05  # five standard deviations of the noise


def test_without_noise_the_table_is_found() -> None:
    shares = _truth(3)
    exact = MeasuredTable((0, 1, 2), np.rint(shares * PEOPLE).astype(np.int64), 0.5)
    found = fit_tables(start(150, SIZES, seed=2), [exact], PEOPLE, Fit(steps=400, learning_rate=0.05))
    assert _largest(found, shares) < 0.02  # 150 rows do not hold every share
    blocks = [found.block(f).numpy() for f in range(3)]
    assert all(np.all(b >= 0) and np.allclose(b.sum(1), 1, atol=1e-5) for b in blocks)


def test_large_tables_are_fitted_as_well_as_small_ones() -> None:
    shares = _truth(4)
    noisy = _measured(shares, 100.0, 5)
    begun = start(100, SIZES, seed=3)
    small, large = (
        fit_tables(begun, [noisy], PEOPLE, Fit(steps=240, learning_rate=0.05, large=size, every=4))
        for size in (10**6, 10)
    )
    assert not np.array_equal(small.numpy(), large.numpy())
    assert abs(_largest(small, shares) - _largest(large, shares)) < 0.01
    assert _largest(large, shares) < 0.02


def test_a_data_set_that_is_below_its_ceilings_and_on_its_targets_stays() -> None:
    records = np.repeat(np.array([[0, 1, 2], [3, 4, 5]]), 10, axis=0)
    data = one_hot(records, SIZES)
    counts = np.full(SIZES, 3, dtype=np.int64)
    counts[0, 1, 2] = counts[3, 4, 5] = PEOPLE // 2
    found = fit_tables(data, [MeasuredTable((0, 1, 2), counts, 2.0)], PEOPLE, Fit(steps=5))
    assert np.allclose(found.numpy(), data.numpy(), atol=1e-4)


@pytest.mark.parametrize("features", [(1,), (2, 0)])
def test_the_slope_of_a_small_table_is_that_of_the_stated_loss(features: tuple[int, ...]) -> None:
    data = start(7, (3, 4, 5), seed=4)
    shape = [data.sizes[f] for f in features]
    draw = torch.Generator().manual_seed(5)
    wanted = torch.rand(shape, generator=draw) / len(shape) ** 2  # some below the share of D', some above
    target = torch.rand(shape, generator=draw) < 0.5
    values = data.values.clone().requires_grad_()
    blocks = [values[:, data.offsets[f] : data.offsets[f] + data.sizes[f]] for f in features]
    found = torch.einsum("ra,rb->ab", *blocks) / 7 if len(blocks) == 2 else blocks[0].mean(0)
    error = found - wanted
    assert bool((error[~target] < 0).any())
    (1.7 * (error[target] ** 2).sum() + 1.7 * (error[~target].clamp(min=0) ** 2).sum()).backward()
    lines = [slice(data.offsets[f], data.offsets[f] + data.sizes[f]) for f in features]
    slope = torch.ones_like(data.values.T)
    Small.of(lines, wanted, target, 1.7).add_slope(data.values.T.contiguous(), slope)
    assert values.grad is not None
    assert torch.allclose(slope.T - 1, values.grad, atol=1e-6)


def test_goals_at_once_have_the_slopes_of_each() -> None:
    data = start(7, (3, 4, 5), seed=4)
    draw = torch.Generator().manual_seed(6)
    goals = []
    for features in ((0,), (2,), (0, 1), (2, 1), (0, 2), (0, 2), (2, 0)):  # one pair comes three times
        shape = [data.sizes[f] for f in features]
        lines = [slice(data.offsets[f], data.offsets[f] + data.sizes[f]) for f in features]
        wanted, target = torch.rand(shape, generator=draw) / len(shape) ** 2, torch.rand(shape, generator=draw) < 0.5
        goals.append(Small.of(lines, wanted, target, 1.0 + len(goals)))
    found = []
    for at_once in (False, True):
        slope = torch.zeros_like(data.values.T)
        for goal in gathered(goals, sum(data.sizes), at_once=at_once):
            goal.add_slope(data.values.T.contiguous(), slope)
        found.append(slope)
    assert torch.allclose(*found, atol=1e-6)
    assert float(found[0].abs().max()) > 0.01
    assert len(gathered(goals, sum(data.sizes), at_once=True)) == 3


def test_settled_answers_are_never_farther_from_a_truth_that_the_measurement_allows() -> None:
    rng = np.random.default_rng(7)
    truth, synthetic = rng.random(500) / 10, rng.random(500) / 10
    measured = truth + rng.uniform(-0.02, 0.02, 500)
    found = settle(synthetic, measured, 0.02)
    assert np.all(np.abs(found - truth) <= np.abs(synthetic - truth) + 1e-15)
    assert np.all(found >= 0)


def test_bad_goals_are_refused() -> None:
    data = start(5, SIZES, seed=1)
    with pytest.raises(InvalidInput, match="`tables`"):
        fit_tables(data, [], PEOPLE)
    with pytest.raises(InvalidInput, match="`counts`"):
        fit_tables(data, [MeasuredTable((0, 1), np.zeros((2, 2), np.int64), 1.0)], PEOPLE)
    with pytest.raises(InvalidInput, match="`steps`"):
        Fit(steps=0)


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
    from hybridp.blend import synth as blending

    counts = np.zeros((2, 2, 60), np.int64)
    counts[0, 0], counts[1, 1] = 40, 43
    noise = np.rint(np.random.default_rng(2).normal(0, 40, counts.shape)).astype(np.int64)
    tables = [MeasuredTable((0, 1, 2), counts + noise, 40.0), MeasuredTable((0,), counts.sum(axis=(1, 2)), 300.0)]
    begun = start(150, counts.shape, seed=2)
    apart = []
    for sums in (blending.pair_sums, lambda tables: []):
        monkeypatch.setattr(blending, "pair_sums", sums)
        found = table(fit_tables(begun, tables, int(counts.sum()), Fit(learning_rate=0.05)), (0, 1))
        apart.append(np.abs(np.asarray(found) - counts.sum(axis=2) / counts.sum()).sum() / 2)
    assert apart[0] < 0.2 < 0.3 < apart[1]
