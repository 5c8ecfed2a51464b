"""Where rows live: each aggregation is one query, built with sqlglot, for DuckDB, PostgreSQL and Spark."""

from __future__ import annotations

from hybridp.public.lattice import Lattice
from hybridp.tables.columns import check_mechanism, epsilon_counts, number_column, slot_counts
from hybridp.tables.heavy import (
    RecordSample,
    discovery_counts,
    head_counts,
    local_slots,
    records_at,
    sample_records,
)
from hybridp.tables.query import ByCategory, Category, Number, Query, Report
from hybridp.tables.source import ENGINES, Rows, Source, TableLike, open_rows
from hybridp.tables.sql import Columns, named_mechanism
from hybridp.tables.totals import Totals, add_up, levels_of

__all__ = ["ENGINES", "ByCategory", "Category", "Columns", "Lattice", "Number", "Query", "RecordSample", "Report"]
__all__ += ["Rows", "Source", "TableLike", "Totals", "add_up", "check_mechanism", "discovery_counts", "epsilon_counts"]
__all__ += ["head_counts", "levels_of", "local_slots", "named_mechanism", "number_column", "open_rows", "records_at"]
__all__ += ["sample_records", "slot_counts"]
