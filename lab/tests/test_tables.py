"""The tables on which synthetic data are compared: codes of their domains, and workloads as stated."""

from __future__ import annotations

import pytest

from hybridp_lab.problems.tables import HELD_OUT, TUNED, marginals, table


@pytest.mark.parametrize("name", ["fair", "diabetes", "digits", "sparse"])
def test_records_are_codes_and_workloads_do_not_meet(name: str) -> None:
    codes = table(name)
    assert codes.records.min() == 0
    assert all(column.max() < size for column, size in zip(codes.records.T, codes.sizes, strict=True))
    work = marginals(codes)
    other = marginals(codes, without=work)
    asked, unasked = ({t.features for t in one.thresholds} for one in (work, other))
    assert len(asked) == len(unasked) == 16
    assert not asked & unasked
    assert all(codes.schema.cells(f) <= max(len(codes.records), 1000) for f in asked | unasked)
    assert marginals(codes).thresholds == work.thresholds


def test_half_of_the_tables_are_held_out() -> None:
    assert len(TUNED) == len(HELD_OUT) == 5
    assert not set(TUNED) & set(HELD_OUT)
