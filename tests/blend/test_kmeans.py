"""Blending maps and rounds: near the truth, and robust to empty clusters."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hybridp.blend.kmeans import Clusters, blend_map, blend_round, centres_of_map, radius_for
from hybridp.device.reports import answer_map
from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp.public.kmeans import STEPS, Box, Grid, TrustedRound, map_invite, map_noise, nearest, round_noise
from hybridp.public.mechanisms import PureDP
from hybridp.public.shares import ShareReports

BOX = Box((0.0, 0.0), (1.0, 1.0))
CENTRES = np.floor(np.array([[0.25, 0.3], [0.7, 0.75], [0.8, 0.2]]) * STEPS)
TRUE = CENTRES + np.array([[0.05, -0.03], [-0.04, 0.0], [0.0, 0.06]]) * STEPS
SHARES = np.array([0.5, 0.3, 0.2])
N = 200_000


def _crowd(n: int, seed: int) -> np.ndarray:
    draw = np.random.default_rng(seed)
    label = draw.choice(3, n, p=SHARES)
    return np.ascontiguousarray(np.clip(np.rint(TRUE[label] + 0.02 * STEPS * draw.standard_normal((n, 2))), 0, STEPS).T)


@pytest.mark.parametrize("who", ["trusted", "local", "both"])
def test_a_map_finds_the_centres(who: str) -> None:
    levels, grid = _crowd(N, 6), Grid(BOX, 16)
    counts = np.bincount(grid.cell(levels), minlength=grid.cells)
    draw = np.random.default_rng(7)
    noise = map_noise(PureDP(1.0))
    noisy = np.rint(counts + draw.laplace(0, noise.size, grid.cells)).astype(np.int64)
    trusted = TrustedRound(N, noisy, noise) if who != "local" else None
    invite = map_invite(grid, 6.0)
    told = np.bincount(answer_map(levels, invite, rng=seeded(8)), minlength=grid.cells)
    local = ShareReports(int(told.sum()), told, invite.mechanism) if who != "trusted" else None
    found = centres_of_map(grid, blend_map(trusted, local), 3)
    order = [int(((found.centres - t) ** 2).sum(axis=1).argmin()) for t in TRUE]
    assert sorted(order) == [0, 1, 2]
    assert np.abs(found.centres[order] - TRUE).max() < 0.01 * STEPS
    assert np.abs(found.shares[order] - SHARES).max() < 0.02
    assert found.spread is not None
    assert 0.01 < found.spread / STEPS < 0.12


def _start() -> Clusters:
    return Clusters(CENTRES, np.full(3, 1 / 3), np.full((3, 2), math.inf), np.full(3, math.inf))


def test_exact_deviations_move_the_centres_to_the_means() -> None:
    levels = _crowd(N, 9)
    label = nearest(levels, CENTRES)
    noise = round_noise(PureDP(1.0), 2, STEPS // 4)
    counts = np.bincount(label, minlength=3).astype(float)
    sums = np.stack([np.bincount(label, weights=x, minlength=3) for x in levels], axis=1) - counts[:, None] * CENTRES
    exact = TrustedRound(N, counts, noise, sums)
    assert np.abs(blend_round(BOX, _start(), exact, reseed=False).centres - TRUE).max() < 0.002 * STEPS


def test_empty_and_negative_counts_keep_a_centre_or_reseed_it() -> None:
    noise = round_noise(PureDP(5.0), 2, STEPS // 4)
    counts = np.array([900.0, 100.0, -2.0])
    sums = np.array([[1e6, 0.0], [0.0, 1e6], [9e9, -9e9]])
    trusted = TrustedRound(1000, counts, noise, sums)
    kept = blend_round(BOX, _start(), trusted, reseed=False)
    assert np.array_equal(kept.centres[2], CENTRES[2])
    assert (kept.shares >= 0).all()
    moved = blend_round(BOX, _start(), trusted, reseed=True)
    apart = np.linalg.norm(moved.centres[2] - moved.centres[0])
    assert 0 < apart <= STEPS // 4
    assert (moved.centres >= 0).all()
    assert (moved.centres <= STEPS).all()


def test_the_radius_shrinks_with_what_the_map_told() -> None:
    wide = radius_for(BOX, _start())
    told = Clusters(CENTRES, SHARES, np.ones((3, 2)), np.ones(3), 0.05 * STEPS)
    assert radius_for(BOX, told) == pytest.approx(0.1 * STEPS, abs=1)
    assert radius_for(BOX, told) < wide <= math.sqrt(2) * STEPS / 2 + 1
    one = Clusters(CENTRES[:1], SHARES[:1], np.ones((1, 2)), np.ones(1))
    assert radius_for(BOX, one) == math.ceil(math.sqrt(2) * STEPS / 2)


@pytest.mark.parametrize(("who", "epsilon"), [("trusted", 0.2), ("local", 3.0), ("both", 3.0)])
def test_sizes_read_off_a_map_are_as_far_off_as_stated(who: str, epsilon: float) -> None:
    """Noise counts, and so does who was asked. Noise alone would state too little."""
    n, grid, z = 4000, Grid(BOX, 12), []
    noise, invite, rng, draw = (
        map_noise(PureDP(epsilon)),
        map_invite(grid, epsilon),
        seeded(15),
        np.random.default_rng(16),
    )
    for seed in range(60):
        levels = _crowd(n, 1000 + seed)
        counts = np.bincount(grid.cell(levels), minlength=grid.cells)
        noisy = np.rint(counts + draw.laplace(0, noise.size, grid.cells)).astype(np.int64)
        trusted = TrustedRound(n, noisy, noise) if who != "local" else None
        told = np.bincount(answer_map(_crowd(n, 2000 + seed), invite, rng=rng), minlength=grid.cells)
        local = ShareReports(int(told.sum()), told, invite.mechanism) if who != "trusted" else None
        found = centres_of_map(grid, blend_map(trusted, local), 3)
        order = [int(((found.centres - t) ** 2).sum(axis=1).argmin()) for t in TRUE]
        z += ((found.shares[order] - SHARES) / found.share_errors[order]).tolist()
    assert 0.6 < np.sqrt(np.mean(np.square(z))) < 1.2
    assert np.mean(np.abs(z) < 1.96) > 0.9


def test_a_map_of_nobody_is_refused() -> None:
    invite = map_invite(Grid(BOX, 4), 1.0)
    with pytest.raises(InvalidInput, match="`people` must be at least 1 on the map"):
        blend_map(None, ShareReports(0, np.zeros(16, dtype=np.int64), invite.mechanism))
