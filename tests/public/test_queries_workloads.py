"""Sampling of thresholds: laws of the draw, the filter, the specification, and the user's own list."""

from __future__ import annotations

from collections import Counter
from itertools import combinations, permutations
from math import prod

import numpy as np
import pytest
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.public.queries import Schema, Threshold
from hybridp.public.workloads import (
    feature_weights,
    listed_workload,
    parse_spec,
    sample_thresholds,
    sample_workload,
    stated_workload,
)

SCHEMA = Schema.from_domain({"a": 2, "b": 3, "c": 4, "d": 50})


def test_every_fitting_set_is_drawn_once() -> None:
    drawn = sample_thresholds(SCHEMA, k=2, r=1, count=3, rng=np.random.default_rng(1), most_queries=12)
    assert {t.features for t in drawn} == {(0, 1), (0, 2), (1, 2)}
    with pytest.raises(InvalidInput, match=r"at most 12 queries \(3\)"):
        sample_thresholds(SCHEMA, k=2, r=1, count=4, rng=np.random.default_rng(1), most_queries=12)


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
    assert stated_workload(SCHEMA, "2-of-2:1", law="zipf:30").thresholds == (Threshold((0, 1), 2),)
    with pytest.raises(InvalidInput, match="`law` must be written like zipf"):
        stated_workload(SCHEMA, "2-of-2:1", law="zipf:x")
    zipf, geometric = feature_weights(14, "zipf"), feature_weights(14, "geometric", 0.25)
    assert zipf[0] / zipf[6] == pytest.approx(7)
    assert geometric[3] / geometric[2] == pytest.approx(0.75)
    assert zipf.sum() == pytest.approx(1)


def test_specifications_and_lists() -> None:
    assert [*parse_spec(" 3-of-3:64,1-of-4:16 ")] == [(3, 3, 64), (1, 4, 16)]
    work = sample_workload(SCHEMA, "2-of-2:3, 1-of-3:2", rng=np.random.default_rng(0))
    assert [(t.r, t.k) for t in work.thresholds] == [(2, 2)] * 3 + [(1, 3)] * 2
    assert listed_workload(SCHEMA, ["c , a", "1-of: a,b"]).thresholds == (Threshold((2, 0), 2), Threshold((0, 1), 1))


def test_many_features_are_drawn_without_listing_their_sets() -> None:
    wide = Schema.from_domain({f"f{i}": 2 + i % 3 for i in range(200)})
    drawn = sample_thresholds(wide, k=4, r=1, count=50, rng=np.random.default_rng(2), most_queries=40)
    assert len({t.features for t in drawn}) == 50
    assert all(wide.cells(t.features) <= 40 for t in drawn)


@pytest.mark.parametrize("text", ["3-of-2:1", "0-of-2:1", "3-of-3", "2-of-3:0", "", "3of3:1"])
def test_a_wrong_specification_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="thresholds"):
        list(parse_spec(text))


def test_bad_parameters_are_refused() -> None:
    rng = np.random.default_rng(0)
    with pytest.raises(InvalidInput, match="number of features"):
        sample_workload(SCHEMA, "5-of-5:1", rng=rng)
    with pytest.raises(InvalidInput, match="one of a, b, c, d"):
        listed_workload(SCHEMA, ["a,salary"])
    with pytest.raises(InvalidInput, match="different"):
        listed_workload(SCHEMA, ["a,a"])
    with pytest.raises(InvalidInput, match="positive for at least 2"):
        sample_thresholds(SCHEMA, k=2, r=1, count=1, rng=rng, weights=np.array([1.0, 0, 0, 0]))
    with pytest.raises(InvalidInput, match="parameter"):
        feature_weights(3, "geometric", 1.0)
