"""Exact counts on codes, every form against counting matches person by person."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hybridp.curator.models import Codes, read_codes
from hybridp.errors import InvalidInput
from hybridp.public import queries
from hybridp.public.queries import Feature, Schema, Threshold, Workload, counts
from hybridp_lab.papers.rap2023.workloads import first_queries

SCHEMA = Schema.from_domain({"a": 2, "b": 3, "c": 4, "d": 3})
people = st.lists(st.tuples(*(st.integers(0, s - 1) for s in SCHEMA.sizes)), min_size=1, max_size=25)
WORK = Workload(SCHEMA, (Threshold((0, 1, 2), 3), Threshold((3, 1, 2, 0), 2), Threshold((2, 3), 1), Threshold((1,), 1)))


def by_hand(rows: list[tuple[int, ...]], work: Workload) -> list[int]:
    return [
        sum(sum(row[f] == v for f, v in zip(t.features, cell, strict=True)) >= t.r for row in rows)
        for t in work.thresholds
        for cell in product(*(range(SCHEMA.sizes[f]) for f in t.features))
    ]


@settings(max_examples=40, deadline=None)
@given(people)
def test_matching_people_are_counted_query_by_query(rows: list[tuple[int, ...]]) -> None:
    codes = Codes(SCHEMA, np.array(rows).T)
    wanted = by_hand(rows, WORK)
    found = list(counts(codes.values, WORK))
    assert np.concatenate([part for _, part in found]).tolist() == wanted
    assert first_queries(WORK).tolist() == np.cumsum([0, *(len(part) for _, part in found)]).tolist()


def test_rows_in_lots_add_up(monkeypatch: pytest.MonkeyPatch) -> None:
    records = np.random.default_rng(1).integers(0, SCHEMA.sizes, size=(500, 4))
    whole = Codes(SCHEMA, records.T).table((2, 0))
    monkeypatch.setattr(queries, "_LOT", 7)
    assert np.array_equal(Codes(SCHEMA, records.T).table((2, 0)), whole)
    assert int(whole.sum()) == 500
    assert int(Codes(SCHEMA, records[:0].T).table((2, 0)).sum()) == 0


def test_a_file_is_read_once_into_codes(tmp_path: Path) -> None:
    path = tmp_path / "people.csv"
    path.write_text("b,a\n2,u\n0,v\n")
    schema = Schema((Feature.categorical("a", ["u", "v"]), Feature.binned("b", [0, 1, 3])))
    assert read_codes(path, schema).values.tolist() == [[0, 1], [1, 0]]


def test_codes_of_another_schema_are_refused() -> None:
    other = Workload(Schema.from_domain({"a": 2, "b": 2}), (Threshold((0, 1), 1),))
    with pytest.raises(InvalidInput, match="schema of the codes"):
        next(counts(Codes(SCHEMA, np.zeros((1, 4), dtype=int).T).values, other))
