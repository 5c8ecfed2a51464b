"""Queries of one number, as tests of tables and engines write them."""

from __future__ import annotations

import math
from typing import Any

from hybridp.public.messages import SQUARE_STEPS
from hybridp.public.randomisers import LEVELS
from hybridp.tables import Lattice, Number, Query, Raw, Report

__all__ = ["figures", "number_query"]


def number_query(
    value: str,
    trust: str,
    lower: float,
    upper: float,
    *,
    levels: int = LEVELS,
    missing: float | str | None = None,
    local_raw: bool = False,
    report: str | None = None,
    report_low: float = -math.inf,
    report_high: float = math.inf,
    report_centre: float = 0.0,
    report_half: float = 1.0,
    count_clipped: bool = False,
    sum_squares: bool = False,
    **how: Any,
) -> Query:
    column = () if report is None else (Report(report, report_centre, report_half, report_low, report_high),)
    how |= {"count_clipped": count_clipped, "square_steps": SQUARE_STEPS if sum_squares else 0}
    values, reads = (Number(value, Lattice(lower, upper, levels), missing),), "all" if local_raw else "trusted"
    return Query(values=values, trust=trust, reports=column, reads=reads, **how)


def figures(found: Raw) -> tuple[int, int, int, float, float]:
    """Trusted people and the sum of their levels, local people, the sum of their reports and of the squares."""
    reports = float(found.local.totals[0]), float(found.local.squares[0])
    return found.trusted_people, found.trusted[0], found.local_people, *reports
