"""The noise of counts and the reports of options, against calculations made here."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import Invite
from hybridp.public.queries import Feature
from hybridp.public.randomisers import share_oracle
from hybridp.public.shares import NoisyCounts, count_noise, read_reports, unreadable, written_reports


@pytest.mark.parametrize("delta", [0.0, 1e-6, 1e-3])
def test_laplace_noise_on_several_counts_spends_no_delta(delta: float) -> None:
    """The pair of likelihoods of two counts, each a discrete Laplace draw, moved by +1 and -1: ratio e^(2/scale)."""
    noise = count_noise(ApproxDP(0.7, delta), 5, "laplace").mechanism
    assert 2 / noise.scale <= 0.7 * (1 + 1e-12)  # type: ignore[union-attr]
    best = count_noise(ApproxDP(0.7, 1e-9), 5).mechanism
    assert best.guarantee.delta == 0
    assert 2 / best.scale <= 0.7 * (1 + 1e-12)  # type: ignore[union-attr]


def test_one_count_uses_its_delta_and_keeps_its_promise() -> None:
    noise = count_noise(ApproxDP(0.5, 1e-2), 2).mechanism
    assert noise.variance < count_noise(PureDP(0.5), 2).mechanism.variance
    assert noise.profile(0.5) <= 1e-2


def test_noisy_counts_made_to_add_up_lose_a_part_of_their_noise() -> None:
    """L_i - mean(L) has (1 - 1/k) of the variance of L_i."""
    noise = count_noise(PureDP(1.0), 4)
    drawn = np.random.default_rng(1).laplace(scale=2, size=(20_000, 4)).round().astype(int)
    shares = np.array([NoisyCounts(1000, tuple(row), noise).shares for row in (250 + drawn).tolist()])
    np.testing.assert_allclose(shares.sum(axis=1), 1)
    assert shares.std(axis=0) * 1000 == pytest.approx([math.sqrt(noise.variance)] * 4, rel=0.03)
    assert noise.normal_variance + 2 * noise.laplace_scale**2 == pytest.approx(noise.variance)


@pytest.mark.parametrize("size", [3, 8, 17, 64, 200])
def test_sets_are_read_as_they_were_written(size: int) -> None:
    question = Feature.categorical("c", [f"o{i}" for i in range(size)])
    invite = Invite(question, share_oracle(PureDP(0.3), size))
    d = getattr(invite.mechanism, "size", 1)
    rng = np.random.default_rng(size)
    sets = np.sort(np.array([rng.permutation(size)[:d] for _ in range(50)]), axis=1)
    if d == 1:
        assert written_reports(invite.mechanism, sets[:, 0], question.values) == [f"o{i}" for i in sets[:, 0]]
        return
    told = read_reports(invite.mechanism, written_reports(invite.mechanism, sets), unreadable("report", invite.text))
    assert told.counts.tolist() == np.bincount(sets.ravel(), minlength=size).tolist()


def test_other_options_are_another_mechanism() -> None:
    def text(*options: str) -> str:
        return Invite(Feature.categorical("c", options), share_oracle(PureDP(1.0), len(options))).text

    assert len({text("a", "b"), text("b", "a"), text("a", "c"), text("a,b", "c")}) == 4
