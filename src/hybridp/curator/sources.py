"""Where rows come from, and what may be read of them that is public: the one door to tables for everyone else."""

from __future__ import annotations

from hybridp.tables.columns import number_column
from hybridp.tables.personal import epsilon_counts
from hybridp.tables.source import ENGINES, Rows, Source, open_rows, shown

__all__ = ["ENGINES", "Rows", "Source", "epsilon_counts", "number_column", "open_rows", "shown"]
