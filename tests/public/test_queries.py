"""Schemas, thresholds and their implicit queries: numbering, and r-of-k answers by counting matches."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.errors import InvalidInput
from hybridp.public.queries import (
    MOST_VALUES,
    Feature,
    Schema,
    Threshold,
    Workload,
    at_least,
    at_least_coefficients,
    counts,
)

SCHEMA = Schema.from_domain({"a": 2, "b": 3, "c": 4, "d": 2})


def test_labels_of_bins_and_missing() -> None:
    assert Feature.binned("x", [0, 1, 2, 4]).values == ("0", "1", "2..4")
    assert Feature.binned("x", [0.0, 0.5, 1.5]).values == ("0.0..0.5", "0.5..1.5")
    feature = Feature.categorical("x", ["u", "v"], missing=True)
    assert feature.size == 3
    assert feature.code("v") == 1


@pytest.mark.parametrize(
    ("make", "names"),
    [
        (lambda: Feature.categorical("x", ["only"]), "at least 2"),
        (lambda: Feature.categorical("x", ["u", "u"]), "different"),
        (lambda: Feature.binned("x", [0, 1]), "at least 3 numbers"),
        (lambda: Feature.binned("x", [0, 2, 1]), "each above the one before"),
        (lambda: Feature.binned("x", [0, 1, math.inf]), "finite"),
        (lambda: Schema.from_domain({"x": MOST_VALUES + 1}), "at most"),
        (lambda: Schema(()), "at least one"),
        (lambda: Schema((*SCHEMA.features, SCHEMA.features[0])), "different names"),
        (lambda: SCHEMA.index("salary"), "one of a, b, c, d"),
        (lambda: Threshold((0, 0), 1), "different"),
        (lambda: Threshold((0, 1), 3), "between 1 and k"),
        (lambda: Workload(SCHEMA, ()), "at least one"),
        (lambda: Workload(SCHEMA, (Threshold((0, 1, 2, 3, 4), 1),)), "below 4"),
        (lambda: Workload(SCHEMA, (Threshold((0, 7), 1),)), "below 4"),
        (
            lambda: Workload(Schema.from_domain({f"f{i}": 60_000 for i in range(4)}), (Threshold((0, 1, 2, 3), 1),)),
            "2^62",
        ),
    ],
)
def test_what_breaks_a_rule_is_refused_in_one_sentence(make: object, names: str) -> None:
    with pytest.raises(InvalidInput, match=names.replace("^", "\\^")) as refused:
        make()  # type: ignore[operator]
    assert str(refused.value).count("\n") == 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=4), st.data())
def test_at_least_counts_matching_axes(shape: list[int], data: st.DataObject) -> None:
    r = data.draw(st.integers(1, len(shape)))
    cells = math.prod(shape)
    table = np.array(data.draw(st.lists(st.integers(0, 9), min_size=cells, max_size=cells))).reshape(shape)
    found = at_least(table, r)
    for cell in product(*(range(s) for s in shape)):
        mass = sum(int(table[o]) for o in np.ndindex(*shape) if sum(x == y for x, y in zip(o, cell, strict=True)) >= r)
        assert found[cell] == mass
    other = np.arange(cells).reshape(shape) % 5
    assert int((at_least(table, r) * other).sum()) == int((table * at_least(other, r)).sum())


def test_coefficients_of_inclusion_and_exclusion() -> None:
    # With j of k events true, sum_i c_i C(j, i) must be 1 exactly when j >= r.
    for k in range(1, 8):
        for r in range(1, k + 1):
            c = at_least_coefficients(r, k)
            for j in range(k + 1):
                assert sum(int(c[i]) * math.comb(j, i) for i in range(k + 1)) == int(j >= r)


def test_a_workload_of_billions_is_never_listed() -> None:
    schema = Schema.from_domain({f"f{i}": 1000 for i in range(5)})
    work = Workload(schema, (Threshold((0, 1, 2, 3, 4), 2),))
    assert work.queries == 10**15
    with pytest.raises(InvalidInput, match="at most 2\\^27"):
        next(counts(np.zeros((5, 1), dtype=np.uint16), work))
