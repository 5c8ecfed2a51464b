"""Thresholds: the law of the draw, the filter, the specification, and the user's own list."""

from __future__ import annotations

from collections import Counter
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.public.queries import Schema, Threshold
from hybridp.public.workloads import listed_workload, parse_spec, sample_thresholds, stated_workload

SCHEMA = Schema.from_domain({"a": 2, "b": 3, "c": 4, "d": 50})


def test_every_fitting_set_is_drawn_once() -> None:
    drawn = sample_thresholds(SCHEMA, 1, 2, 3, rng=np.random.default_rng(1), most_queries=12)
    assert {t.features for t in drawn} == {(0, 1), (0, 2), (1, 2)}
    with pytest.raises(InvalidInput, match="too few fit"):
        sample_thresholds(SCHEMA, 1, 2, 4, rng=np.random.default_rng(1), most_queries=12)


def test_all_sets_are_equally_likely() -> None:
    rng, draws = np.random.default_rng(5), 4000
    seen = Counter(sample_thresholds(SCHEMA, 2, 2, 1, rng=rng)[0].features for _ in range(draws))
    counts = [seen[one] for one in combinations(range(4), 2)]
    assert stats.chisquare(counts).pvalue > 1e-6
    assert stats.chisquare(counts, draws * np.arange(8, 14) / 63).pvalue < 1e-6


def test_specifications_and_lists() -> None:
    assert [*parse_spec(" 3-of-3:64,1-of-4:16 ")] == [(3, 3, 64), (1, 4, 16)]
    work = stated_workload(SCHEMA, "2-of-2:3, 1-of-3:2")
    assert [(t.r, t.k) for t in work.thresholds] == [(2, 2)] * 3 + [(1, 3)] * 2
    assert listed_workload(SCHEMA, ["c , a", "1-of: a,b"]).thresholds == (Threshold((2, 0), 2), Threshold((0, 1), 1))


def test_many_features_are_drawn_without_listing_their_sets() -> None:
    wide = Schema.from_domain({f"f{i}": 2 + i % 3 for i in range(200)})
    drawn = sample_thresholds(wide, 1, 4, 50, rng=np.random.default_rng(2), most_queries=40)
    assert len({t.features for t in drawn}) == 50
    assert all(wide.cells(t.features) <= 40 for t in drawn)


@pytest.mark.parametrize("text", ["3-of-2:1", "0-of-2:1", "3-of-3", "2-of-3:0", "", "3of3:1"])
def test_a_wrong_specification_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="thresholds"):
        list(parse_spec(text))


def test_bad_parameters_are_refused() -> None:
    with pytest.raises(InvalidInput, match="number of features"):
        stated_workload(SCHEMA, "5-of-5:1")
    with pytest.raises(InvalidInput, match="one of a, b, c, d"):
        listed_workload(SCHEMA, ["a,salary"])
    with pytest.raises(InvalidInput, match="different"):
        listed_workload(SCHEMA, ["a,a"])
