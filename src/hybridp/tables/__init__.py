"""Where rows live: each aggregation is one query, built with sqlglot, for DuckDB, PostgreSQL and Spark."""

from __future__ import annotations

from hybridp.public.lattice import Lattice
from hybridp.tables.columns import ByCategory, Category, Number, Report, number_column, slot_counts
from hybridp.tables.heavy import (
    HeavyQuery,
    RecordSample,
    discovery_counts,
    head_counts,
    local_slots,
    records_at,
    sample_records,
)
from hybridp.tables.query import Query
from hybridp.tables.source import ENGINES, Rows, Source, TableLike, open_rows
from hybridp.tables.totals import (
    PersonalTotals,
    Totals,
    add_up,
    check_mechanism,
    epsilon_counts,
    levels_of,
    named_mechanism,
    personal_totals,
)

__all__ = ["ENGINES", "ByCategory", "Category", "HeavyQuery", "Lattice", "Number", "PersonalTotals", "Query"]
__all__ += ["RecordSample", "Report", "Rows", "Source", "TableLike", "Totals", "add_up", "check_mechanism"]
__all__ += ["discovery_counts", "epsilon_counts", "head_counts", "levels_of", "local_slots", "named_mechanism"]
__all__ += ["number_column", "open_rows", "personal_totals", "records_at", "sample_records", "slot_counts"]
