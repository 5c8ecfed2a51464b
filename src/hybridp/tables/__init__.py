"""Where rows live: each aggregation is one query in DuckDB's dialect, built with sqlglot."""

from __future__ import annotations

from hybridp.tables.lattice import Lattice
from hybridp.tables.mean import MeanQuery, MeanTotals, check_mechanism, local_levels, mean_totals, trusted_levels
from hybridp.tables.personal import PersonalTotals, epsilon_counts, personal_totals
from hybridp.tables.reports import write_reports
from hybridp.tables.source import Rows, open_rows

__all__ = [
    "Lattice",
    "MeanQuery",
    "MeanTotals",
    "PersonalTotals",
    "Rows",
    "check_mechanism",
    "epsilon_counts",
    "local_levels",
    "mean_totals",
    "open_rows",
    "personal_totals",
    "trusted_levels",
    "write_reports",
]
