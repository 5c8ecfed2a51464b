"""Where rows live: each aggregation is one query, built with sqlglot, for DuckDB, PostgreSQL and Spark."""

from __future__ import annotations

from hybridp.public.lattice import Lattice
from hybridp.tables.columns import number_column, slot_counts
from hybridp.tables.heavy import (
    HeavyQuery,
    RecordSample,
    discovery_counts,
    head_counts,
    local_slots,
    records_at,
    sample_records,
)
from hybridp.tables.mean import (
    MeanQuery,
    MeanTotals,
    PersonalTotals,
    check_mechanism,
    epsilon_counts,
    local_levels,
    mean_totals,
    named_mechanism,
    personal_totals,
    trusted_levels,
)
from hybridp.tables.source import ENGINES, Rows, Source, TableLike, open_rows

__all__ = [
    "ENGINES",
    "HeavyQuery",
    "Lattice",
    "MeanQuery",
    "MeanTotals",
    "PersonalTotals",
    "RecordSample",
    "Rows",
    "Source",
    "TableLike",
    "check_mechanism",
    "named_mechanism",
    "discovery_counts",
    "epsilon_counts",
    "head_counts",
    "local_levels",
    "local_slots",
    "mean_totals",
    "number_column",
    "open_rows",
    "personal_totals",
    "records_at",
    "sample_records",
    "slot_counts",
    "trusted_levels",
]
