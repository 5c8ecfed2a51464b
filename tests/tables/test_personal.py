"""Totals by epsilon: an independent computation in fractions, every rule, and whose data are looked at."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.queries import number_query

from hybridp.curator.sums import epsilon_counts
from hybridp.errors import InvalidInput, UnusableRows
from hybridp.tables import Raw, add_up, open_rows

HEADER = ("value", "trust", "eps", "report")
BASE: dict[str, Any] = {"value": "value", "trust": "trust", "report": "report", "epsilon": "eps", "lower": 0}
BASE |= {
    "missing": "middle",
    "upper": 8,
    "levels": 16,
    "report_low": -1e6,
    "report_high": 1e6,
    "report_centre": 4,
    "report_half": 4,
}


def save(folder: Path, records: list[tuple[Any, ...]], header: tuple[str, ...] = HEADER) -> Path:
    path = folder / "rows.csv"
    lines = [",".join("" if field is None else str(field) for field in record) for record in [header, *records]]
    path.write_text("\n".join(lines) + "\n")
    return path


def totals(path: Path, **changes: Any) -> Raw:
    with open_rows(path, threads=1) as rows:
        return add_up(rows, number_query(**{**BASE, **changes}))


def test_who_asks_for_0_is_not_looked_at(tmp_path: Path) -> None:
    others = [(3, "trusted", 1, None), (None, "local", 0.5, 6)]
    found = []
    for value, report in ((1, 9), ("", ""), ("abc", "abc"), ("inf", "inf"), (None, -1e9), ("nan", "nan")):
        rows = [*others, (value, "trusted", 0, None), (None, "local", 0, report)]
        got = totals(save(tmp_path, rows))
        found.append((got.trusted[1], got.local.totals.tolist(), got.local.squares.tolist()))
        assert (got.trusted_people.tolist(), got.local.people.tolist()) == ([1, 1], [1, 1])
    assert found == found[:1] * len(found)


def test_epsilons_that_are_the_same_number_are_one_level(tmp_path: Path) -> None:
    got = totals(save(tmp_path, [(1, "trusted", e, None) for e in ("0.5", "0.50", "5e-1", "inf", "Infinity")]))
    assert got.epsilons.tolist() == [0.5, math.inf]
    assert got.trusted_people.tolist() == [3, 2]


OKAY = [(3, "trusted", 1, None), (None, "local", 0.5, 6)]


@pytest.mark.parametrize(
    ("record", "column"),
    [
        ((None, "local", "nan", 3), "eps"),
        ((None, "local", "much", 3), "eps"),
        ((None, "local", -1, 3), "eps"),
        ((None, "local", None, 3), "eps"),
        ((None, "local", 0.5, None), "report"),
        ((None, "local", 0.5, "secret-731"), "report"),
        ((None, "local", 0.5, "inf"), "report"),
        ((None, "local", 2, 30.731), "report"),
        ((1, "friend", 1, None), "trust"),
        ((1, None, 1, None), "trust"),
    ],
)
def test_a_broken_rule_names_its_column_and_nobody(tmp_path: Path, record: tuple[Any, ...], column: str) -> None:
    with pytest.raises(UnusableRows, match=rf"^Column `{column}` ") as refused:
        totals(save(tmp_path, [*OKAY, record]))
    assert "731" not in str(refused.value)
    assert "much" not in str(refused.value)


def test_a_report_must_be_possible_for_its_own_epsilon(tmp_path: Path) -> None:
    """(e^.2 + 1)/(e^.2 - 1) + 1 = 11.03 half-ranges at epsilon .2: 40 is a report there, and none at epsilon 2."""
    totals(save(tmp_path, [(None, "local", 0.2, 40)]))
    with pytest.raises(UnusableRows, match="own epsilon"):
        totals(save(tmp_path, [(None, "local", 0.2, 40), (None, "local", 2, 40)]))


def test_the_column_of_epsilons_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="nowhere"):
        totals(save(tmp_path, OKAY), epsilon="nowhere")


def test_counts_of_epsilons(tmp_path: Path) -> None:
    with open_rows(save(tmp_path, [(e,) for e in (2, 0.5, "inf", 2, 0)], ("eps",))) as rows:
        values, people = epsilon_counts(rows, "eps")
    assert (values.tolist(), people.tolist()) == ([0, 0.5, 2, math.inf], [1, 1, 2, 1])
    for bad in ("-1", "nan", "text", '""'):
        with (
            open_rows(save(tmp_path, [("1",), (bad,)], ("eps",))) as rows,
            pytest.raises(UnusableRows, match=r"^Column `eps` "),
        ):
            epsilon_counts(rows, "eps")
