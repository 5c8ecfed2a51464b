"""Codes and grouped counts through SQL, against counting by hand in Python."""

from __future__ import annotations

import csv
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hybridp.errors import InvalidInput, UnusablePublicRows
from hybridp.public.queries import Feature, Schema
from hybridp.tables import open_rows
from hybridp.tables.marginals import codes, table_counts

SCHEMA = Schema(
    (
        Feature.categorical("city", ["Oslo", "it's", "a, b"], missing=True),
        Feature.binned("age", [0, 18, 65, 120], missing=True),
        Feature.categorical("sex", ["F", "M"]),
    )
)
LABELS = [["Oslo", "it's", "a, b", ""], ["0", "17.9", "18", "64", "65", "120", ""], ["F", "M"]]
CODES = [[0, 1, 2, 3], [0, 0, 1, 1, 2, 2, 3], [0, 1]]
people = st.lists(
    st.tuples(*(st.integers(0, len(labels) - 1) for labels in LABELS)),
    min_size=1,
    max_size=30,
)


def save(path: Path, records: list[tuple[str, ...]]) -> Path:
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([("sex", "age", "city"), *((r[2], r[1], r[0]) for r in records)])
    return path


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(people)
def test_sql_counts_are_those_by_hand(tmp_path: Path, picks: list[tuple[int, ...]]) -> None:
    path = save(tmp_path / "people.csv", [tuple(LABELS[i][p] for i, p in enumerate(row)) for row in picks])
    by_hand = [tuple(CODES[i][p] for i, p in enumerate(row)) for row in picks]
    tuples = [(0,), (0, 1), (2, 0, 1), (1, 0), (1, 2)]
    with open_rows(path, threads=1) as rows:
        assert [tuple(row) for row in codes(rows, SCHEMA).T.tolist()] == by_hand
        tables = table_counts(rows, SCHEMA, tuples)
    for features, table in zip(tuples, tables, strict=True):
        assert table.shape == tuple(SCHEMA.sizes[f] for f in features)
        seen = Counter(tuple(row[f] for f in features) for row in by_hand)
        assert {cell: int(table[cell]) for cell in zip(*np.nonzero(table), strict=True)} == dict(seen)


LAST = [s - 1 for s in SCHEMA.sizes]


@pytest.mark.parametrize(
    ("field", "place"),
    [
        (("Rome", "3", "F"), (0, LAST[0])),
        (("", "3", "F"), (0, LAST[0])),
        (("O" * 100_000, "3", "F"), (0, LAST[0])),
        (("Oslo", "-1", "F"), (1, 0)),
        (("Oslo", "-inf", "F"), (1, 0)),
        (("Oslo", "1e999", "F"), (1, LAST[1] - 1)),
        (("Oslo", "300", "F"), (1, LAST[1] - 1)),
        (("Oslo", "x7", "F"), (1, LAST[1])),
        (("Oslo", "nan", "F"), (1, LAST[1])),
        (("Oslo", "3", ""), (2, LAST[2])),
        (("Oslo", "3", "f"), (2, LAST[2])),
        (("Oslo", "3", "F\0"), (2, LAST[2])),
        (("Oslo", "3", "Ｆ"), (2, LAST[2])),
    ],
)
def test_every_field_has_a_code(tmp_path: Path, field: tuple[str, ...], place: tuple[int, int]) -> None:
    """Out of range is the nearest bin; what is missing or not listed, the last value. Nothing is refused."""
    path = save(tmp_path / "people.csv", [("Oslo", "3", "M"), field])
    with open_rows(path, threads=1) as rows:
        found = codes(rows, SCHEMA)
        assert found[place[0], 1] == place[1]
        tables = table_counts(rows, SCHEMA, [(0, 1), (2,)])
    assert [int(t.sum()) for t in tables] == [2, 2]
    assert all(t[tuple(found[list(f), 1])] >= 1 for t, f in zip(tables, [(0, 1), (2,)], strict=True))


def test_a_column_must_be_there(tmp_path: Path) -> None:
    path = save(tmp_path / "people.csv", [("Oslo", "3", "M")])
    with open_rows(path, threads=1) as rows, pytest.raises(InvalidInput, match="must be a column"):
        codes(rows, Schema((Feature.categorical("job", ["a", "b"]),)))


def test_numbers_in_a_typed_table(tmp_path: Path) -> None:
    import duckdb

    path = tmp_path / "typed.parquet"
    duckdb.execute(f"COPY (SELECT * FROM (VALUES (1, 2.5), (0, NULL), (1, 7.0)) t(flag, size)) TO '{path}'")
    schema = Schema((Feature.categorical("flag", ["0", "1"]), Feature.binned("size", [0, 5, 7], missing=True)))
    with open_rows(path, threads=1) as rows:
        assert codes(rows, schema).tolist() == [[1, 0, 1], [0, 2, 1]]


def test_bins_of_what_is_no_number_are_refused_by_the_type(tmp_path: Path) -> None:
    """A type is public: the refusal tells nothing of the rows, and its charge is void."""
    import duckdb

    path = tmp_path / "typed.parquet"
    duckdb.execute(f"COPY (SELECT DATE '2020-01-01' AS born) TO '{path}'")
    schema = Schema((Feature.binned("born", [0, 5, 7]),))
    with open_rows(path, threads=1) as rows:
        for read in (lambda: codes(rows, schema), lambda: table_counts(rows, schema, [(0,)])):
            with pytest.raises(UnusablePublicRows, match="Column `born` must hold numbers; its type is DATE"):
                read()
