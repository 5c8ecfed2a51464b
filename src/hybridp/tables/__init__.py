"""Where rows live: each aggregation is one query in DuckDB's dialect, built with sqlglot."""

from __future__ import annotations

from hybridp.tables.lattice import Lattice
from hybridp.tables.mean import MeanQuery, MeanTotals, local_levels, mean_totals, trusted_levels
from hybridp.tables.reports import write_reports
from hybridp.tables.source import Rows, open_rows

__all__ = [
    "Lattice",
    "MeanQuery",
    "MeanTotals",
    "Rows",
    "local_levels",
    "mean_totals",
    "open_rows",
    "trusted_levels",
    "write_reports",
]
