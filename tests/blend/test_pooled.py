"""Reports of two randomisers as one group: unbiased, as precise as it says, and the best that weights can do."""

from __future__ import annotations

import math

import numpy as np
import pytest

from hybridp.blend.mean import pooled
from hybridp.noise import reports, seeded, synthetic_data_generator
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import LocalSummary
from hybridp.public.randomisers import LEVELS, Randomiser, dithered_bit, piecewise

WEAK, STRONG = dithered_bit(PureDP(1.0)), piecewise(PureDP(5.0))


def summary(unit: np.ndarray, mechanism: Randomiser) -> LocalSummary:
    return LocalSummary(len(unit), float(unit.sum()), float((unit * unit).sum()), mechanism)


def collection(seed: int, weak: int, strong: int) -> tuple[LocalSummary, LocalSummary, float, float]:
    """Two groups of one population, and its true mean and variance."""
    rng = seeded(seed)
    levels = np.rint(synthetic_data_generator(rng).beta(2, 5, weak + strong) * LEVELS).astype(np.int64)
    mean, variance = 2 * 2 / 7 - 1, 4 * 10 / (49 * 8)
    sent = [reports(WEAK, levels[:weak], rng=rng), reports(STRONG, levels[weak:], rng=rng)]
    return summary(sent[0], WEAK), summary(sent[1], STRONG), mean, variance


def test_one_randomiser_is_a_plain_sum() -> None:
    parts = [LocalSummary(n, 0.3 * n, 9.0 * n, WEAK) for n in (3, 5)]
    assert pooled(parts) == parts[0] + parts[1]
    assert pooled([LocalSummary(0, 0.0, 0.0, WEAK), parts[1]]) == parts[1]
    assert pooled([LocalSummary(0, 0.0, 0.0, WEAK)]) is None


def test_it_is_unbiased_and_as_precise_as_it_says() -> None:
    errors, said, spreads = [], [], []
    for seed in range(300):
        weak, strong, mean, variance = collection(seed, 4000, 1000)
        both = pooled([weak, strong])
        assert both is not None
        errors.append(both.mean - mean)
        constant, quadratic = both.randomiser.variance_terms
        said.append((variance + constant + quadratic * (variance + mean**2)) / both.people)
        spreads.append((both.second_moment(mean) - constant - quadratic * mean**2) / (1 + quadratic))
    se = math.sqrt(float(np.mean(said)) / 300)
    assert abs(float(np.mean(errors))) < 5 * se
    assert np.mean(np.square(errors)) == pytest.approx(np.mean(said), rel=5 * math.sqrt(2 / 300))
    assert abs(float(np.mean(spreads)) - variance) < 5 * float(np.std(spreads)) / math.sqrt(300)


@pytest.mark.parametrize(("weak", "strong"), [(4000, 1000), (100, 4000), (20_000, 50)])
def test_it_is_never_worse_than_the_better_group_by_more_than_a_few_percent(weak: int, strong: int) -> None:
    """And as good as inverse variances, which know the data's variance."""
    local, mixed, mean, variance = collection(1, weak, strong)
    each = []
    for group in (local, mixed):
        constant, quadratic = group.randomiser.variance_terms
        each.append((variance + constant + quadratic * (variance + mean**2)) / group.people)
    both = pooled([local, mixed])
    assert both is not None
    constant, quadratic = both.randomiser.variance_terms
    found = (variance + constant + quadratic * (variance + mean**2)) / both.people
    best = 1 / sum(1 / one for one in each)
    assert best <= found * (1 + 1e-12)
    assert found < 1.03 * best


def test_the_shares_do_not_look_at_the_reports() -> None:
    weak, strong, _, _ = collection(2, 300, 300)
    moved = LocalSummary(strong.people, strong.total + 30.0, strong.squares * 9, STRONG)
    first, second = pooled([weak, strong]), pooled([weak, moved])
    assert first is not None
    assert second is not None
    assert (first.people, first.randomiser) == (second.people, second.randomiser)
    per_person = (second.mean - first.mean) / 0.1  # the mean of the strong group moved by .1
    assert 0.9 < per_person < 1.0
