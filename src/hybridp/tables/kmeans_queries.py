"""The queries of K-means, each one sqlglot expression: what to refuse, levels, cells, and sums by cluster.

Scores and deviations are doubles that hold whole numbers below 2^53 wherever they are summed; a person's label depends
on that person's row alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp.public.kmeans import Grid
from hybridp.public.lattice import Lattice
from hybridp.tables.source import VIEW, Rows
from hybridp.tables.sql import cast, column, count_if, double, exact_sum, exp, labelled, level, named, number, whole

if TYPE_CHECKING:
    from hybridp.tables.kmeans import PointQuery

__all__ = ["cells", "every", "labels", "levels", "size", "totals"]

Floats = NDArray[np.float64]
Sql = Any


def _levels(rows: Rows, query: PointQuery) -> list[Sql]:
    found = []
    stated = query.missing or ("middle",) * len(query.columns)
    sides = zip(query.columns, query.box.lower, query.box.upper, query.box.tops, stated, strict=True)
    for name, low, high, top, missing in sides:
        value = number(column(name), is_text=rows.is_text(name), decimal=rows.decimal)
        found.append(level(value, Lattice(low, high, top), missing))
    return found


def _label(query: PointQuery, label: str) -> Sql:
    return exp.Boolean(this=label == "local") if query.trust is None else labelled(column(query.trust), label)


def labels(query: PointQuery) -> exp.Select:
    """Counts of records and of each label."""
    asked = {"trusted": count_if(_label(query, "trusted")), "local": count_if(_label(query, "local"))}
    return exp.select(
        named(exp.Count(this=exp.Star()), "records"), *(named(this, name) for name, this in asked.items())
    ).from_(VIEW)


def levels(rows: Rows, query: PointQuery, label: str) -> exp.Select:
    """The levels c0, c1, ... of everybody with this label."""
    wanted = [named(cast(this, "int"), f"c{j}") for j, this in enumerate(_levels(rows, query))]
    return exp.select(*wanted).from_(VIEW).where(_label(query, label))


def size(table: str) -> exp.Select:
    """How many people were stored."""
    return exp.select(named(exp.Count(this=exp.Star()), "people")).from_(exp.to_identifier(table, quoted=True))


def every(table: str, dims: int) -> exp.Select:
    """All stored levels."""
    return exp.select(*(column(f"c{j}") for j in range(dims))).from_(exp.to_identifier(table, quoted=True))


def cells(table: str, grid: Grid) -> exp.Select:
    """People in each cell that has any, numbered with the last coordinate fastest."""
    place: Sql = whole(0)
    for j, top in enumerate(grid.box.tops):
        # floor(level * per_axis / (top + 1)), in whole numbers.
        part = exp.IntDiv(
            this=exp.paren(exp.Mul(this=cast(column(f"c{j}"), "bigint"), expression=whole(grid.per_axis))),
            expression=whole(top + 1),
        )
        grown = exp.Mul(this=exp.paren(place), expression=whole(grid.per_axis))
        place = exp.Add(this=grown, expression=exp.paren(part))
    cell = exp.select(named(place, "cell")).from_(exp.to_identifier(table, quoted=True)).subquery("cells")
    return exp.select(column("cell"), named(exp.Count(this=exp.Star()), "people")).from_(cell).group_by(column("cell"))


def _times(name: str, factor: float) -> Sql:
    return exp.Mul(this=cast(column(name), "double"), expression=double(factor))


def _by_label(values: Floats) -> Sql:
    case = exp.Case(this=column("label"))
    for k, value in enumerate(values):
        case = case.when(whole(k), double(float(value)))
    return case


def totals(table: str, centres: Floats, radius: int) -> exp.Select:
    """People and summed deviations by nearest centre."""
    k, d = centres.shape
    coordinates = [column(f"c{j}") for j in range(d)]
    scores = []
    for i in range(k):
        terms: Sql = double(float(centres[i] @ centres[i]))
        for j in range(d):
            terms = exp.Add(this=terms, expression=_times(f"c{j}", -2 * float(centres[i, j])))
        scores.append(named(terms, f"s{i}"))
    scored = exp.select(*coordinates, *scores).from_(exp.to_identifier(table, quoted=True)).subquery("scored")
    names = [column(f"s{i}") for i in range(k)]
    least = exp.Least(this=names[0].copy(), expressions=[n.copy() for n in names[1:]]) if k > 1 else names[0].copy()
    ranked = exp.select(*coordinates, *names, named(least, "least")).from_(scored).subquery("ranked")
    case = exp.Case()
    for i in range(k - 1):
        case = case.when(exp.EQ(this=column(f"s{i}"), expression=column("least")), whole(i))
    label = case.else_(whole(k - 1)) if k > 1 else whole(0)
    labelled_rows = exp.select(*(c.copy() for c in coordinates), named(label, "label")).from_(ranked).subquery("near")
    deviations = [
        named(exp.Sub(this=cast(column(f"c{j}"), "double"), expression=_by_label(centres[:, j])), f"d{j}")
        for j in range(d)
    ]
    moved = exp.select(column("label"), *deviations).from_(labelled_rows).subquery("moved")
    square: Sql = double(0.0)
    for j in range(d):
        square = exp.Add(this=square, expression=exp.Mul(this=column(f"d{j}"), expression=column(f"d{j}")))
    kept = exp.select(column("label"), *(column(f"d{j}") for j in range(d)), named(square, "square"))
    moved = kept.from_(moved).subquery("squared")
    sums = [named(exact_sum(cast(_cut(f"d{j}", radius), "bigint")), f"sum{j}") for j in range(d)]
    people = named(exp.Count(this=exp.Star()), "people")
    return exp.select(column("label"), people, *sums).from_(moved).group_by(column("label"))


def _cut(name: str, radius: int) -> Sql:
    """The deviation, shortened to the radius and cut to whole steps towards 0."""
    factor = exp.Div(this=double(radius * (1 - 1e-9)), expression=exp.Sqrt(this=column("square")))
    scaled = exp.Mul(this=exp.Abs(this=column(name)), expression=exp.paren(factor))
    signed = exp.Mul(this=exp.Sign(this=column(name)), expression=exp.Floor(this=scaled))
    far = exp.GT(this=column("square"), expression=double(float(radius) ** 2))
    return exp.Case().when(far, signed).else_(column(name))
