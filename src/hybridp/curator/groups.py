"""The curator's part of an answer by group: who is in which public group, and one group's rows after another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from hybridp.curator.mean import Columns
from hybridp.curator.sources import Rows, TableLike, must_be_public, open_rows
from hybridp.public.trust import Trusts, label_column
from hybridp.tables.columns import group_sizes as sizes_of
from hybridp.tables.columns import kept_by_group, rows_of

__all__ = ["group_sizes", "grouped", "rows_of", "sizes"]


@contextmanager
def grouped(rows: Rows, by: str, columns: Columns, ways: str, missing: object) -> Iterator[Rows]:
    """The columns of a release, kept beside everybody's group; `ways` says how one may state what is `missing`."""
    rows.need("column", columns.value)
    if rows.trust is None or rows.trust.everyone != "local":
        rows.need_missing(columns.value, missing, ways)
    report = columns.report
    beside = () if report is None else (report, f"{report}_mechanism", f"{report}_batch")
    own = (columns.value, label_column(columns.trust), columns.person, columns.record_key, columns.record_id)
    with kept_by_group(rows, by, (*own, *beside)) as kept:
        yield kept


def sizes(kept: Rows, by: str, columns: Columns) -> dict[str, tuple[int, int]]:
    """How many trusted and local people each group has: public, as who trusts is."""
    return sizes_of(kept, by, label_column(columns.trust), columns.person)


def group_sizes(
    data: TableLike, by: str, trust: Trusts, person: str | None, *, table: str | None = None
) -> dict[str, tuple[int, int]]:
    """The same of a whole table, for a plan: no value of anybody is read."""
    label = label_column(trust)
    must_be_public(data, "by", by)
    with (
        open_rows(data, table=table, trust=trust, person=person) as rows,
        kept_by_group(rows, by, (label, person)) as kept,
    ):
        return sizes_of(kept, by, label, person)
