"""Where rows live: each aggregation is one query, built with sqlglot, for DuckDB, PostgreSQL and Spark."""

from __future__ import annotations

from hybridp.public.randomisers import Lattice
from hybridp.tables.counts import RecordSample, discovery_counts, head_counts, local_slots, records_at, sample_records
from hybridp.tables.engine import ENGINES, Rows, Source, TableLike, open_rows
from hybridp.tables.totals import ByCategory, Category, Columns, Number, Query, Raw, Report, add_up, levels_of

__all__ = ["ENGINES", "ByCategory", "Category", "Columns", "Lattice", "Number", "Query", "Raw", "RecordSample"]
__all__ += ["Report", "Rows", "Source", "TableLike", "add_up", "discovery_counts", "head_counts", "levels_of"]
__all__ += ["local_slots", "open_rows", "records_at", "sample_records"]
