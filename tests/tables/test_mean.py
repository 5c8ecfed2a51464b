"""The totals of a mean: an independent computation in fractions, every rule, and which record stands for a person."""

from __future__ import annotations

import tempfile
from fractions import Fraction
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.queries import figures, number_query

from hybridp.errors import InvalidInput, UnusableRows
from hybridp.tables import Lattice, Raw, add_up, levels_of, open_rows

HEADER = ("value", "trust", "report")
BASE: dict[str, Any] = {
    "value": "value",
    "trust": "trust",
    "report": "report",
    "lower": -3,
    "upper": 7,
    "missing": "middle",
}
RANGE: dict[str, Any] = {"report_low": -10, "report_high": 20, "report_centre": 2, "report_half": 5}


def save(folder: Path, records: list[tuple[Any, ...]], header: tuple[str, ...] = HEADER) -> Path:
    path = folder / "rows.csv"
    lines = [",".join("" if field is None else str(field) for field in record) for record in [header, *records]]
    path.write_text("\n".join(lines) + "\n")
    return path


def totals(path: Path, **changes: Any) -> Raw:
    with open_rows(path, threads=1) as rows:
        return add_up(rows, number_query(**{**BASE, **changes}))


def test_replacing_one_person_moves_the_sum_by_at_most_the_levels(tmp_path: Path) -> None:
    others = [(f"{10.0**k}", "trusted", None) for k in range(-9, 1)]
    sums = [
        totals(save(tmp_path, [*others[:5], (value, "trusted", None), *others[5:]]), levels=1000).trusted[0]
        for value in ("-inf", "-3", "0.1", "7", "inf")
    ]
    assert max(sums) - min(sums) == 1000


@given(
    st.floats(allow_nan=False),
    st.floats(-1e6, 1e6),
    st.floats(1e-6, 1e6),
    st.one_of(st.integers(1, 40), st.integers(1, 2**50)),
)
def test_every_value_has_a_level_near_it(value: float, lower: float, width: float, levels: int) -> None:
    upper = lower + width
    try:
        lattice = Lattice(lower, upper, levels)
    except InvalidInput:
        return
    found = lattice.level(value)
    assert 0 <= found <= levels
    clipped = Fraction(min(max(value, lower), upper))
    exact = (clipped - Fraction(lower)) / (Fraction(upper) - Fraction(lower)) * levels
    assert abs(found - exact) <= Fraction(1, 2) + Fraction(levels, 2**50)


def test_a_trusted_row_may_carry_a_report_and_a_local_row_a_value(tmp_path: Path) -> None:
    path = save(tmp_path, [(7, "trusted", "inf"), ("words", "local", 12), (5, "trusted", "words")])
    assert figures(totals(path, levels=10, **RANGE)) == (2, 18, 1, 2.0, 4.0)


def test_an_empty_table_has_empty_totals(tmp_path: Path) -> None:
    for changes in ({}, {"report": None}, {"local_raw": True}):
        assert figures(totals(save(tmp_path, []), **changes)) == (0, 0, 0, 0.0, 0.0)
    with open_rows(save(tmp_path, []), threads=1) as rows:
        assert list(levels_of(rows, number_query(**BASE), "trusted")) == []


def test_simulated_local_people_hold_raw_values(tmp_path: Path) -> None:
    path = save(tmp_path, [(7, "trusted", None), (2, "local", None), (-9, "local", None)])
    assert figures(totals(path, local_raw=True, levels=10)) == (1, 10, 2, 0.0, 0.0)
    with open_rows(path, threads=1) as rows:
        raw = number_query(**{**BASE, "local_raw": True, "levels": 10})
        assert np.concatenate(list(levels_of(rows, raw, "local"))).tolist() == [[0], [5]]
        with pytest.raises(InvalidInput, match="`local_raw` must be true"):
            levels_of(rows, number_query(**BASE), "local")


GOOD = [(1, "trusted", None), (None, "local", 3)]


@pytest.mark.parametrize(
    ("record", "sentence"),
    [
        ((1, None, None), "Column `trust` must hold `trusted` or `local` in every row."),
        ((1, "Trusted", None), "Column `trust` must hold `trusted` or `local` in every row."),
        ((1, "local ", None), "Column `trust` must hold `trusted` or `local` in every row."),
        ((None, "local", None), "Column `report` must have a report for every local person."),
        ((None, "local", "nan"), "Column `report` must hold finite reports."),
        ((None, "local", "-inf"), "Column `report` must hold finite reports."),
        ((None, "local", "1e200"), "Column `report` must hold finite reports."),
        ((None, "local", "secret"), "Column `report` must hold numbers."),
        ((None, "local", 20.5), "Column `report` has a report that this mechanism cannot produce"),
        ((None, "local", -10.5), "Column `report` has a report that this mechanism cannot produce"),
    ],
)
def test_a_record_that_breaks_a_rule_is_refused(tmp_path: Path, record: tuple[Any, ...], sentence: str) -> None:
    totals(save(tmp_path, GOOD), **RANGE)
    for records in ([*GOOD, record], [record, *GOOD]):
        with pytest.raises(UnusableRows) as caught:
            totals(save(tmp_path, [*records]), **RANGE)
        assert str(caught.value).startswith(sentence)
        assert "secret" not in str(caught.value)


def test_local_people_need_a_report_column(tmp_path: Path) -> None:
    with pytest.raises(UnusableRows, match="no column holds their reports"):
        totals(save(tmp_path, GOOD), report=None)


def test_columns_of_another_type_are_refused(tmp_path: Path) -> None:
    made = duckdb.sql("SELECT 1 AS value, 'trusted' AS trust, DATE '2020-01-01' AS day, [1] AS list, 2 AS code")
    made.write_parquet(str(tmp_path / "a.parquet"))
    for column in ("day", "list"):
        with pytest.raises(UnusableRows, match=f"Column `{column}` must hold numbers; its type is"):
            totals(tmp_path / "a.parquet", value=column, report=None)
    with pytest.raises(UnusableRows, match="Column `code` must hold text"):
        totals(tmp_path / "a.parquet", trust="code", report=None)
    with pytest.raises(InvalidInput, match=r"`value` must be a column of a\.parquet\. Got `none`"):
        totals(tmp_path / "a.parquet", value="none", report=None)


# Records of people: (value, trust, report, person, key).
PEOPLE = (*HEADER, "person", "key")


@pytest.mark.parametrize(
    ("records", "sentence"),
    [
        ([(1, "trusted", None, None, 1)], "Column `person` must name a person in every row."),
        ([(None, "local", 1, "a", None)], "Column `key` must not be empty in any local row."),
        ([(None, "local", 1, "a", 1), (None, "local", 2, "a", 1)], "Column `key` must differ between"),
        ([(1, "trusted", None, "a", 1), (2, "local", 1, "a", 2)], "Column `trust` must hold one label for each"),
        ([(1, "trusted", None, "a", 1), (2, None, 1, "a", 2)], "Column `trust` must hold `trusted` or `local`"),
    ],
)
def test_people_must_be_told_apart(tmp_path: Path, records: list[tuple[Any, ...]], sentence: str) -> None:
    good = [(1, "trusted", None, "b", 1), (2, "local", 1, "c", 1)]
    totals(save(tmp_path, good, PEOPLE), person="person", record_key="key")
    for order in (records, records[::-1]):
        with pytest.raises(UnusableRows) as caught:
            totals(save(tmp_path, [good[0], *order, good[1]], PEOPLE), person="person", record_key="key")
        assert str(caught.value).startswith(sentence)


def test_without_a_key_every_person_has_one_record(tmp_path: Path) -> None:
    good = [(1, "trusted", None, "a", None), (2, "local", 1, "b", None), (7, "trusted", None, "c", None)]
    assert figures(totals(save(tmp_path, good, PEOPLE), person="person", levels=10)) == (2, 14, 1, 1.0, 1.0)
    for extra, sentence in [
        ((1, "local", 5, "b", None), "Column `person` must name each local person once"),
        ((1, "local", 5, "a", None), "Column `trust` must hold one label for each person, not both"),
        ((1, "trusted", None, None, None), "Column `person` must name a person in every row"),
        ((1, "other", None, "d", None), "Column `trust` must hold"),
    ]:
        with pytest.raises(UnusableRows, match=sentence):
            totals(save(tmp_path, [*good, extra], PEOPLE), person="person")


def test_of_several_records_of_a_trusted_person_one_counts(tmp_path: Path) -> None:
    """Which one depends on that person's records alone: not on their order, nor on anybody else's."""
    own = [(-3, "trusted", None, "a", "5"), (7, "trusted", None, "a", "5"), (2, "trusted", None, "a", None)]
    other = [(7, "trusted", None, "c", "1")]
    for by, allowed in (({}, {0, 5, 10}), ({"record_key": "key"}, {0})):
        found = {
            figures(totals(save(tmp_path, rows, PEOPLE), person="person", levels=10, **by))
            for mine in (own, own[::-1], own[1:] + own[:1])
            for rows in ([*mine, *other], [*other, *mine])
        }
        assert len(found) == 1
        (one,) = found
        assert one[0] == 2
        assert one[1] - 10 in allowed


def test_the_record_without_a_key_is_drawn_by_hash(tmp_path: Path) -> None:
    """Of 2,000 people who have 0 and 10, about half count as 10: neither the smallest nor the largest is preferred."""
    rows = [(v, "trusted", None, f"p{i}", None) for i in range(2000) for v in (-3 + 0.001 * i, 7 - 0.001 * i)]
    share = totals(save(tmp_path, rows, PEOPLE), person="person", levels=2**32).trusted[0] / 2**32 / 2000
    assert 0.4 < share < 0.6


def test_the_fields_of_unused_records_do_not_matter(tmp_path: Path) -> None:
    records = [(7, "trusted", None, "a", 9), ("words", "trusted", None, "a", 10), (None, "trusted", None, "a", 11)]
    records += [(None, "local", 12, "b", 1), (None, "local", "nan", "b", 2)]
    found = totals(save(tmp_path, records, PEOPLE), person="person", record_key="key", missing=2, levels=10, **RANGE)
    assert figures(found) == (1, 10, 1, 2.0, 4.0)


def test_text_keys_that_are_numbers_are_compared_as_numbers(tmp_path: Path) -> None:
    beyond_doubles = ("9007199254740992", "9007199254740993")
    for small, large in [("9", "10"), ("-2", "-1"), beyond_doubles, ("5e-1", "2"), ("7", "x")]:
        records = [(7, "trusted", None, "a", small), (-3, "trusted", None, "a", large)]
        for order in (records, records[::-1]):
            found = totals(save(tmp_path, order, PEOPLE), person="person", record_key="key", levels=10)
            assert found.trusted[0] == 10, (small, large)


RECORD = st.tuples(st.integers(-3, 7), st.integers(0, 3), st.integers(0, 10**6))


@settings(max_examples=10, deadline=None)
@given(
    st.lists(RECORD, min_size=1, max_size=12, unique_by=lambda record: record[2]),
    st.lists(st.tuples(st.integers(-3, 7), st.integers(0, 10**6)), max_size=6, unique_by=lambda record: record[1]),
    st.randoms(use_true_random=False),
)
def test_nobody_moves_the_record_of_another(
    records: list[tuple[int, int, int]], newcomer: list[tuple[int, int]], random: Any
) -> None:
    """Shuffling the rows or adding somebody's records changes nobody else's contribution."""

    def chosen(rows: list[tuple[int, int]]) -> int:
        return min(rows, key=lambda row: row[1])[0]

    people = {who: [(value, key) for value, owner, key in records if owner == who] for _, who, _ in records}
    expected = sum(chosen(rows) + 3 for rows in people.values())
    table = [(value, "trusted", None, f"p{who}", key) for value, who, key in records]
    joined = [*table, *((value, "trusted", None, "newcomer", key) for value, key in newcomer)]
    random.shuffle(joined)
    random.shuffle(table)
    with tempfile.TemporaryDirectory() as folder:
        path = save(Path(folder), table, PEOPLE)
        alone = totals(path, person="person", levels=10, record_key="key")
        more = totals(save(Path(folder), joined, PEOPLE), person="person", levels=10, record_key="key")
    assert alone.trusted[0] == expected
    assert alone.trusted_people == len(people)
    extra = chosen(newcomer) + 3 if newcomer else 0
    assert more.trusted[0] - alone.trusted[0] == extra
