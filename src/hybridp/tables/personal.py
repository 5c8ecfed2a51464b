"""Totals of people who ask for the same epsilon, in both groups: all that the personal mean needs to know."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, UnusablePublicRows
from hybridp.public.personal import local_terms
from hybridp.tables import queries
from hybridp.tables.columns import unlabelled
from hybridp.tables.engine import arrays
from hybridp.tables.mean import MeanQuery, check_columns, check_people, check_reports, ends
from hybridp.tables.source import VIEW, Rows
from hybridp.tables.sql import column, number, select

__all__ = ["PersonalTotals", "epsilon_counts", "personal_totals"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_SLACK = 1e-4  # the device's probabilities are rounded to whole cells, which moves a reach by a few millionths


@dataclass(frozen=True, eq=False)
class PersonalTotals:
    """One entry for each distinct epsilon of a group, ascending. The trusted sums are exact, and raw."""

    trusted_epsilons: Floats
    trusted_people: Ints
    trusted_level_sums: Ints
    local_epsilons: Floats
    local_people: Ints
    report_sums: Floats
    report_square_sums: Floats
    fingerprint: tuple[tuple[float | int, ...], ...] = field(default=(), repr=False)


def personal_totals(rows: Rows, query: MeanQuery) -> PersonalTotals:
    """The totals of `query` for each trust label and each epsilon in the column `query.epsilon`, in one scan.

    Reports are in the unit coordinate. A missing, NaN or negative epsilon is 0 for a trusted person, and refused for a
    local one; 0 and infinity are allowed, and nothing is used of a person with epsilon 0. Other rules as in
    `mean_totals`.
    """
    if query.epsilon is None:
        raise InvalidInput("`epsilon` must name the column of personal epsilons. Got None.")
    check_columns(rows, query)
    raw = arrays(rows, queries.totals(rows, query))
    found = {name: _filled(a) for name, a in raw.items()}
    for name in {"levels", "parity"} & raw.keys():
        found[name] = np.ma.filled(raw[name], 0).astype(np.int64)  # exact: never through a double
    label = found["trusted"]
    trusted, local = label == 1, label == 0
    nobody = bool((~(trusted | local)).any()) or bool((found["local"][local] != found["records"][local]).any())
    totals, of_local = (
        {name: np.nansum(a[which]) for name, a in found.items() if name not in ("trusted", "asked", "least", "most")}
        for which in (slice(None), local)
    )
    check_people([totals], of_local, query, missing=unlabelled(rows, query.trust) if nobody else None)
    people = found["first"] if "first" in found else found["records"]
    read = people > 0
    asked = found["asked"]
    if bool((local & read & ~(asked >= 0)).any()):
        raise UnusablePublicRows(f"Column `{query.epsilon}` must hold an epsilon of 0 or more for every local person.")
    heard = local & read & (asked > 0)
    trusted &= read
    if not query.local_raw:
        check_reports(_merged(found, heard), int(people[heard].sum()), query)
        _check_reach(found, heard, query)
    silent = local & read & (asked == 0)
    groups = [np.flatnonzero(g)[np.argsort(asked[g], kind="stable")] for g in (trusted, heard | silent)]
    half = query.report_half
    zero = np.zeros(len(groups[1]))
    sums = found["reports"][groups[1]] / half if "reports" in found else zero
    squares = found["squares"][groups[1]] / half / half if "squares" in found else zero
    return PersonalTotals(
        trusted_epsilons=asked[groups[0]],
        trusted_people=people[groups[0]].astype(np.int64),
        trusted_level_sums=found["levels"][groups[0]].astype(np.int64),
        local_epsilons=asked[groups[1]],
        local_people=people[groups[1]].astype(np.int64),
        report_sums=np.where(asked[groups[1]] > 0, np.nan_to_num(sums), 0.0),
        report_square_sums=np.where(asked[groups[1]] > 0, np.nan_to_num(squares), 0.0),
        fingerprint=_fingerprint(found, people, groups[1]),
    )


def _fingerprint(found: dict[str, Any], people: Any, places: Any) -> tuple[tuple[float | int, ...], ...]:
    """What stands for the reports at each epsilon; those at epsilon 0 are not looked at."""
    if "parity" not in found:
        return ()
    return tuple(
        (float(found["asked"][i]), int(people[i]), int(found["parity"][i]), *ends(found["least"][i], found["most"][i]))
        if found["asked"][i] > 0
        else (0.0, int(people[i]))
        for i in places.tolist()
    )


def _check_reach(found: dict[str, Any], heard: NDArray[np.bool_], query: MeanQuery) -> None:
    """Nobody's report may lie further out than the best report for their own epsilon can."""
    if "least" not in found:
        return
    reach = local_terms(found["asked"][heard]).reach * query.report_half * (1 + _SLACK)
    far = np.maximum(query.report_centre - found["least"][heard], found["most"][heard] - query.report_centre)
    if bool((far > reach).any()):
        raise UnusablePublicRows(f"Column `{query.report}` has a report that its person's own epsilon cannot produce.")


def epsilon_counts(rows: Rows, epsilon: str) -> tuple[Floats, Ints]:
    """The distinct epsilons of a column and how many rows have each: what a plan needs, and no value."""
    rows.need("epsilon-column", epsilon)
    asked = number(column(epsilon), is_text=rows.is_text(epsilon))
    found = arrays(rows, select({"asked": asked, "people": "COUNT(*)"}, VIEW, f"GROUP BY {asked}"))
    values = _filled(found["asked"])
    if not bool((values >= 0).all()):
        raise UnusablePublicRows(f"Column `{epsilon}` must hold an epsilon of 0 or more for every person.")
    order = np.argsort(values)
    return values[order], _filled(found["people"])[order].astype(np.int64)


def _filled(found: Any) -> Any:
    """Missing numbers as NaN; whole numbers without missing ones stay whole."""
    if np.ma.is_masked(found):
        return np.ma.filled(found.astype(np.float64), np.nan)
    return np.asarray(found)


def _merged(found: dict[str, Any], chosen: NDArray[np.bool_]) -> dict[str, Any]:
    """The counts and extremes of several groups as one."""
    if not bool(chosen.any()):
        return {}
    out = {
        name: float(np.nansum(a[chosen]))
        for name, a in found.items()
        if name not in ("trusted", "asked", "least", "most", "squares", "levels")
    }
    if "least" in found:
        # NaN among the reports must not be lost: a plain maximum keeps it.
        out |= {"least": float(np.min(found["least"][chosen])), "most": float(np.max(found["most"][chosen]))}
        out["squares"] = float(np.sum(found["squares"][chosen]))
    return out
