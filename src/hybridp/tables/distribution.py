"""Counts by stretch of a number's range, and of reports by public bins, under the rules of `hybridp.tables.mean`."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import UnusableRows, must
from hybridp.public.distribution import ReportBins
from hybridp.tables.engine import answers
from hybridp.tables.mean import MeanQuery
from hybridp.tables.source import Rows

__all__ = ["report_counts", "stretch_counts"]

Ints = NDArray[np.int64]


def stretch_counts(rows: Rows, query: MeanQuery, cuts: Sequence[int], people: int) -> Ints:
    """RAW: how many trusted people have a level at or below each cut and above the one before, and above the last.

    Replacing one person moves one count down and another up by 1. The rules of `mean_totals` have been checked.
    """
    from sqlglot import exp

    from hybridp.tables import sql

    must(all(a < b for a, b in pairwise(cuts)), "cuts", "must rise", "others")
    slot: Any = exp.Case()
    for place, cut in enumerate(cuts):
        slot = slot.when(exp.LTE(this=sql.column("level"), expression=sql.whole(cut)), sql.whole(place))
    counts = np.zeros(len(cuts) + 1, dtype=np.int64)
    for group in answers(rows, _grouped(rows, query, slot.else_(sql.whole(len(cuts))), "trusted")):
        counts[int(group["slot"])] += int(group["records"])
    if int(counts.sum()) != people:
        raise UnusableRows(f"The rows of {rows.name} must not change while they are read.")
    return counts


def report_counts(rows: Rows, query: MeanQuery, bins: ReportBins, people: int) -> Ints:
    """How many local reports lie in each bin. Reports are private already; the rules have been checked."""
    from sqlglot import exp

    from hybridp.tables import sql

    half = query.report_half
    moved = exp.paren(exp.Sub(this=sql.column("sent_number"), expression=sql.double(query.report_centre)))
    plus = exp.GT(this=moved, expression=sql.double(0.0))

    def place(start: float) -> Any:
        shifted = exp.paren(exp.Sub(this=moved.copy(), expression=sql.double(start * half)))
        step = exp.Floor(this=exp.Div(this=shifted, expression=sql.double(bins.width * half)))
        inside = exp.Case().when(exp.LT(this=step, expression=sql.double(0.0)), sql.double(0.0))
        last = sql.double(float(bins.count - 1))
        return inside.when(exp.GT(this=step.copy(), expression=last), last.copy()).else_(step.copy())

    slot: Any = place(bins.starts[0])
    if bins.signed:
        above = exp.Add(this=place(bins.starts[1]), expression=sql.double(float(bins.count)))
        slot = exp.Case().when(plus, above).else_(slot)
    counts = np.zeros(bins.size, dtype=np.int64)
    for group in answers(rows, _grouped(rows, query, sql.cast(slot, "bigint"), "local")):
        counts[int(group["slot"])] += int(group["records"])
    if int(counts.sum()) != people:
        raise UnusableRows(f"The rows of {rows.name} must not change while they are read.")
    return counts


def _grouped(rows: Rows, query: MeanQuery, slot: Any, label: str) -> Any:
    from sqlglot import exp

    from hybridp.tables import queries, sql

    wanted = [sql.column(label), *([sql.column("first")] if "first" in queries.flags(query) else [])]
    chosen = queries.people(rows, query).subquery("people")
    coded = exp.select(sql.named(slot, "slot")).from_(chosen).where(sql.both(*wanted)).subquery("coded")
    counted = exp.select(sql.column("slot"), sql.named(exp.Count(this=exp.Star()), "records")).from_(coded)
    return counted.group_by(sql.column("slot"))
