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
from hybridp.public.lattice import Lattice
from hybridp.tables.columns import check_trust, unlabelled
from hybridp.tables.engine import answers, fresh, keep, stream
from hybridp.tables.mean import CHUNK
from hybridp.tables.source import VIEW, Rows
from hybridp.tables.sql import chosen, column, count_if, double, labelled, level, number, select, whole

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
    for name in query.columns:
        rows.need("columns", name)
        rows.need_number(name)
        rows.need_missing(name, query.missing)
    if query.trust is not None:
        check_trust(rows, query.trust)
    asked = {label: count_if(_labelled(query, label)) for label in ("trusted", "local")}
    (found,) = answers(rows, select(asked | {"records": "COUNT(*)"}, VIEW))
    people = int(found["trusted"] or 0), int(found["local"] or 0)
    if sum(people) != found["records"]:
        raise unlabelled(rows, query.trust or "")
    return people


def store_points(rows: Rows, query: PointQuery, label: str) -> StoredPoints:
    """The points of one group as levels, kept by the engine. Call `check_points` first."""
    must(label == "trusted" or query.local_raw, "local_raw", "must be true to read points of local people", False)
    table = fresh("points")
    keep(rows, table, _levels(rows, query, label))
    (found,) = answers(rows, select({"people": "COUNT(*)"}, table))
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
        out = np.zeros(grid.cells, dtype=np.int64)
        for row in answers(self.rows, _cells(self.table, grid)):
            out[int(row["cell"])] = int(row["people"])
        return out

    def totals(self, centres: Floats, radius: int) -> tuple[Ints, Ints]:
        """By nearest centre, all of whole steps: people, and sums of deviations cut to the radius: one query."""
        k, d = np.shape(centres)
        counts, sums = np.zeros(k, dtype=np.int64), np.zeros((k, d), dtype=np.int64)
        for row in answers(self.rows, _totals(self.table, centres, radius)):
            place = int(row["label"])
            counts[place] = int(row["people"])
            sums[place] = [int(row[f"sum{j}"]) for j in range(d)]
        return counts, sums

    def parts(self) -> Iterator[Floats]:
        """Levels in chunks (coordinates, people)."""
        for found in stream(self.rows, f"SELECT * FROM {self.table}", CHUNK):
            yield np.stack([np.asarray(found[f"c{j}"], dtype=np.float64) for j in range(self.box.dims)])


# --- queries ----------------------------------------------------------------------------------------------------------
# Scores and deviations are doubles that hold whole numbers below 2^53 wherever they are summed; a person's label
# depends on that person's row alone.


def _labelled(query: PointQuery, label: str) -> str:
    return str(label == "local").upper() if query.trust is None else labelled(column(query.trust), label)


def _levels(rows: Rows, query: PointQuery, label: str) -> str:
    """The levels c0, c1, ... of everybody with this label."""
    found, box = {}, query.box
    stated = query.missing or ("middle",) * len(query.columns)
    sides = zip(query.columns, box.lower, box.upper, box.tops, stated, strict=True)
    for j, (name, low, high, top, missing) in enumerate(sides):
        value = number(column(name), is_text=rows.is_text(name), decimal=rows.decimal)
        found[f"c{j}"] = f"CAST({level(value, Lattice(low, high, top), missing)} AS INT)"
    return select(found, VIEW, f"WHERE {_labelled(query, label)}")


def _cells(table: str, grid: Grid) -> str:
    """People in each cell that has any, numbered with the last coordinate fastest."""
    place = whole(0)
    for j, top in enumerate(grid.box.tops):
        # floor(level * per_axis / (top + 1)), in whole numbers.
        part = f"(CAST(c{j} AS BIGINT) * {whole(grid.per_axis)}) // {whole(top + 1)}"
        place = f"({place}) * {whole(grid.per_axis)} + ({part})"
    each = f"({select({'cell': place}, table)}) AS cells"
    return select({"cell": "cell", "people": "COUNT(*)"}, each, "GROUP BY cell")


def _totals(table: str, centres: Floats, radius: int) -> str:
    """People and summed deviations by nearest centre."""
    k, d = centres.shape
    coordinates, deviations = [f"c{j}" for j in range(d)], [f"d{j}" for j in range(d)]
    scores = {}
    for i, centre in enumerate(centres):
        terms = [f"CAST(c{j} AS DOUBLE) * {double(-2 * float(x))}" for j, x in enumerate(centre)]
        scores[f"s{i}"] = " + ".join([double(float(centre @ centre)), *terms])
    scored = select(chosen(coordinates) | scores, table)
    least = f"LEAST({', '.join(scores)})" if k > 1 else "s0"
    ranked = select(chosen([*coordinates, *scores]) | {"least": least}, f"({scored}) AS scored")
    cases = " ".join(f"WHEN s{i} = least THEN {whole(i)}" for i in range(k))
    near = select(chosen(coordinates) | {"label": f"CASE {cases} END"}, f"({ranked}) AS ranked")
    moved = {"label": "label"}
    for j in range(d):
        own = " ".join(f"WHEN {whole(i)} THEN {double(float(x))}" for i, x in enumerate(centres[:, j]))
        moved[f"d{j}"] = f"CAST(c{j} AS DOUBLE) - CASE label {own} END"
    square = " + ".join(f"{name} * {name}" for name in deviations)
    squared = select(chosen(moved) | {"square": square}, f"({select(moved, f'({near}) AS near')}) AS moved")
    sums = {f"sum{j}": f"SUM(CAST({_cut(name, radius)} AS BIGINT))" for j, name in enumerate(deviations)}
    return select({"label": "label", "people": "COUNT(*)", **sums}, f"({squared}) AS squared", "GROUP BY label")


def _cut(name: str, radius: int) -> str:
    """The deviation, shortened to the radius and cut to whole steps towards 0."""
    factor = f"({double(radius * (1 - 1e-9))} / SQRT(square))"
    far = f"SIGN({name}) * FLOOR(ABS({name}) * {factor})"
    return f"CASE WHEN square > {double(float(radius) ** 2)} THEN {far} ELSE {name} END"
