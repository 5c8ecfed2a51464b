"""Points in a table: read once under rules that every record must obey, then counted and summed by the engine.

The rows of one group become a temporary table of lattice levels inside the engine (in its memory limit, then on disk);
the counts of a grid's cells and the sums by cluster are one query each. Everything that is summed is a whole number.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.kmeans import Box, Grid
from hybridp.tables.columns import check_trust, unlabelled
from hybridp.tables.engine import answers, fresh, keep, stream
from hybridp.tables.mean import CHUNK
from hybridp.tables.source import Rows

__all__ = ["PointQuery", "StoredPoints", "check_points", "store_points"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PointQuery:
    """Which columns hold the coordinates, in the order of the box, and which one says `trusted` or `local`.

    Coordinates outside the box are clipped, those that are missing or no number count as the public `missing` of their
    column ("middle": of the box), and nobody is told how many. With `local_raw` (a trial) the local rows hold
    points too; otherwise their coordinates are not read. Without `trust` every row is local (a file on the
    devices' side).
    """

    columns: tuple[str, ...]
    trust: str | None
    box: Box
    local_raw: bool = False
    missing: tuple[float | str, ...] | None = None

    def __post_init__(self) -> None:
        must(len(set(self.columns)) == len(self.columns), "columns", "must be different columns", self.columns)
        must(self.trust is not None or self.local_raw, "trust", "must be given unless all rows are local", None)
        must(len(self.columns) == self.box.dims, "columns", f"must be {self.box.dims}, as the bounds", self.columns)


def check_points(rows: Rows, query: PointQuery) -> tuple[int, int]:
    """How many people are trusted and local; refuses a label that is neither, and no point."""
    from hybridp.tables import kmeans_queries as queries

    for name in query.columns:
        rows.need("columns", name)
        rows.need_number(name)
        rows.need_missing(name, query.missing)
    if query.trust is not None:
        check_trust(rows, query.trust)
    (found,) = answers(rows, queries.labels(query))
    people = int(found["trusted"] or 0), int(found["local"] or 0)
    if sum(people) != found["records"]:
        raise unlabelled(rows, query.trust or "")
    return people


def store_points(rows: Rows, query: PointQuery, label: str) -> StoredPoints:
    """The points of one group as levels, kept by the engine. Call `check_points` first."""
    from hybridp.tables import kmeans_queries as queries

    must(label == "trusted" or query.local_raw, "local_raw", "must be true to read points of local people", False)
    table = fresh("points")
    keep(rows, table, queries.levels(rows, query, label))
    (found,) = answers(rows, queries.size(table))
    return StoredPoints(rows, table, query.box, int(found["people"]))


@dataclass(frozen=True, eq=False)
class StoredPoints:
    """RAW: exact counts and sums of one group's points; they need noise before they may be released."""

    rows: Rows
    table: str
    box: Box
    people: int

    def cell_counts(self, grid: Grid) -> Ints:
        """People in every cell of the grid: one query."""
        from hybridp.tables import kmeans_queries as queries

        out = np.zeros(grid.cells, dtype=np.int64)
        for row in answers(self.rows, queries.cells(self.table, grid)):
            out[int(row["cell"])] = int(row["people"])
        return out

    def totals(self, centres: Floats, radius: int) -> tuple[Ints, Ints]:
        """By nearest centre, all of whole steps: people, and sums of deviations cut to the radius: one query."""
        from hybridp.tables import kmeans_queries as queries

        k, d = np.shape(centres)
        counts, sums = np.zeros(k, dtype=np.int64), np.zeros((k, d), dtype=np.int64)
        for row in answers(self.rows, queries.totals(self.table, centres, radius)):
            place = int(row["label"])
            counts[place] = int(row["people"])
            sums[place] = [int(row[f"sum{j}"]) for j in range(d)]
        return counts, sums

    def parts(self) -> Iterator[Floats]:
        """Levels in chunks (coordinates, people)."""
        from hybridp.tables import kmeans_queries as queries

        for found in stream(self.rows, queries.every(self.table, self.box.dims), CHUNK):
            yield np.stack([np.asarray(found[f"c{j}"], dtype=np.float64) for j in range(self.box.dims)])
