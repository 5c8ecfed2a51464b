"""Codes and grouped counts through SQL, against counting by hand in Python."""

from __future__ import annotations

from pathlib import Path

import pytest

from hybridp.errors import UnusablePublicRows
from hybridp.public.queries import Feature, Schema
from hybridp.tables import open_rows
from hybridp.tables.counts import codes


def test_bins_of_what_is_no_number_are_refused_by_the_type(tmp_path: Path) -> None:
    """A type is public: the refusal tells nothing of the rows, and its charge is void."""
    import duckdb

    path = tmp_path / "typed.parquet"
    duckdb.execute(f"COPY (SELECT DATE '2020-01-01' AS born) TO '{path}'")
    schema = Schema((Feature.binned("born", [0, 5, 7]),))
    refused = pytest.raises(UnusablePublicRows, match="Column `born` must hold numbers; its type is DATE")
    with open_rows(path, threads=1) as rows, refused:
        codes(rows, schema)
