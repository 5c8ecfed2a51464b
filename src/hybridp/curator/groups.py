"""The curator's part of an answer by group: who is in which public group, and one group's rows after another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hybridp.curator.mean import Columns
from hybridp.curator.sources import Rows
from hybridp.public.trust import label_column
from hybridp.tables.groups import group_sizes, kept_by_group, rows_of

__all__ = ["grouped", "rows_of", "sizes"]


@contextmanager
def grouped(rows: Rows, by: str, columns: Columns) -> Iterator[Rows]:
    """The columns of a release, kept beside everybody's group."""
    report = columns.report
    beside = () if report is None else (report, f"{report}_mechanism", f"{report}_batch")
    own = (columns.value, label_column(columns.trust), columns.person, columns.record_key, columns.record_id)
    with kept_by_group(rows, by, (*own, *beside)) as kept:
        yield kept


def sizes(kept: Rows, by: str, columns: Columns) -> dict[str, tuple[int, int]]:
    """How many trusted and local people each group has: public, as who trusts is."""
    return group_sizes(kept, by, label_column(columns.trust), columns.person)
