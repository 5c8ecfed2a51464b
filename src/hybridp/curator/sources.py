"""Where rows come from, and what may be read of them that is public: the one door to tables for everyone else."""

from __future__ import annotations

from hybridp.errors import must
from hybridp.public.trust import Trusts, label_column
from hybridp.tables.columns import number_column
from hybridp.tables.frames import read_once
from hybridp.tables.people import Counted
from hybridp.tables.people import count_people as count_rows
from hybridp.tables.personal import epsilon_counts
from hybridp.tables.source import ENGINES, Rows, Source, TableLike, open_rows, shown

__all__ = [
    "ENGINES",
    "Counted",
    "Rows",
    "Source",
    "TableLike",
    "count_people",
    "epsilon_counts",
    "must_read_again",
    "number_column",
    "open_rows",
    "shown",
]


def must_read_again(data: TableLike | None, times: int) -> None:
    """Refuse a stream, which can be read but once, where a table is read for several questions."""
    must(times == 1 or not read_once(data), "data", "must be a table for several questions", "a stream: read it whole")


def count_people(
    data: TableLike, trust: Trusts, person: str | None, epsilon: str | None, *, table: str | None = None
) -> Counted:
    """How many people are in each group, by their choices alone."""
    with open_rows(data, table=table, trust=trust, person=person) as rows:
        return count_rows(rows, label_column(trust), person, epsilon)
