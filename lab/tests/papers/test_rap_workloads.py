"""Thresholds by a distribution over features: the law of the draw, and the published weights."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations
from math import prod

import numpy as np
import pytest
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.public.queries import Schema
from hybridp_lab.papers.rap2023.workloads import feature_weights, parse_spec, sample_thresholds, sample_workload

SCHEMA = Schema.from_domain({"a": 2, "b": 3, "c": 4, "d": 50})


def _share(weights: np.ndarray, features: tuple[int, ...]) -> float:
    """P(this set) when features are drawn one by one without replacement: summed over the orders of drawing."""
    total = 0.0
    for order in permutations(features):
        left, p = 1.0, 1.0
        for f in order:
            p *= weights[f] / left
            left -= weights[f]
        total += p
    return total


@pytest.mark.parametrize("law", ["uniform", "zipf", "geometric"])
def test_sets_follow_draws_without_replacement(law: str) -> None:
    weights = feature_weights(4, law)  # type: ignore[arg-type]
    assert np.all(np.diff(weights) <= 0)
    draws = 4000
    drawn = sample_thresholds(
        SCHEMA, k=2, r=2, count=draws, rng=np.random.default_rng(5), weights=weights, distinct=False
    )
    seen = Counter(t.features for t in drawn)
    sets = list(combinations(range(4), 2))
    counts = [seen[s] for s in sets]
    wanted = np.array([_share(weights, s) for s in sets])
    assert stats.chisquare(counts, draws * wanted / wanted.sum()).pvalue > 1e-6
    wrong = np.array([prod(weights[list(s)]) ** 2 for s in sets]) + 0.1 * np.arange(6)
    assert stats.chisquare(counts, draws * wrong / wrong.sum()).pvalue < 1e-6


def test_weights_of_the_published_laws() -> None:
    zipf, geometric = feature_weights(14, "zipf"), feature_weights(14, "geometric", 0.25)
    assert zipf[0] / zipf[6] == pytest.approx(7)
    assert geometric[3] / geometric[2] == pytest.approx(0.75)
    assert zipf.sum() == pytest.approx(1)
    with pytest.raises(InvalidInput, match="positive for at least 2"):
        sample_thresholds(SCHEMA, k=2, r=1, count=1, rng=np.random.default_rng(0), weights=np.array([1.0, 0, 0, 0]))
    with pytest.raises(InvalidInput, match="parameter"):
        feature_weights(3, "geometric", 1.0)


def test_specifications() -> None:
    assert [*parse_spec(" 3-of-3:64,1-of-4:16 ")] == [(3, 3, 64), (1, 4, 16)]
    work = sample_workload(SCHEMA, "2-of-2:3, 1-of-3:2", rng=np.random.default_rng(0))
    assert [(t.r, t.k) for t in work.thresholds] == [(2, 2)] * 3 + [(1, 3)] * 2


@pytest.mark.parametrize("text", ["3-of-2:1", "0-of-2:1", "3-of-3", "2-of-3:0", "", "3of3:1"])
def test_a_wrong_specification_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="thresholds"):
        list(parse_spec(text))
