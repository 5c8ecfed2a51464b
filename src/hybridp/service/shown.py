"""A stored release as the study page shows it: a headline, a chart, the same as a table, and the receipt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hybridp.release.document import sole
from hybridp.service import charts

__all__ = ["error_rows", "error_unit", "shown_release"]

_MOST = 15  # records in the chart


def _number(x: float) -> str:
    return f"{x:,.4g}" if abs(x) < 10_000 else f"{x:,.0f}"


def _half_width(release: Mapping[str, Any], question: Mapping[str, Any]) -> float | None:
    """Of several columns the root mean square, in half-ranges of each one's bounds."""
    told = sole(release)
    if told["task"] == "heavy-hitters":
        return None
    low, high = told["interval"]
    if told["task"] == "mean":
        return float(high - low) / 2
    sides = zip(low, high, question["lower"], question["upper"], strict=True)
    wide = [(b - a) / (upper - lower) for a, b, lower, upper in sides]
    return math.sqrt(math.fsum(w * w for w in wide) / len(wide))


def error_rows(summary: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Half-widths of the interval: as planned, as predicted for the people who came, and of the release."""
    found: list[tuple[str, float]] = []
    for name, label in (("planned", "planned"), ("now_predicted", "predicted for those who came")):
        if summary.get(name):
            found.append((label, float(summary[name]["half_width"])))
    release = summary.get("release")
    actual = _half_width(release, summary["plan"]["questions"][0]) if release else None
    if actual is not None:
        found.append(("the release", actual))
    return found


def error_unit(summary: Mapping[str, Any]) -> str:
    """What the errors are measured in."""
    if summary["kind"] == "heavy-hitters":
        return "share of people"
    if summary["kind"] == "vector-mean":
        return "in half-ranges of a column"
    return str(summary["plan"]["questions"][0].get("unit") or "in the unit of the answer")


def shown_release(release: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """For the template; `plan` gives the unit."""
    shown: dict[str, Any] = {
        "simulated": release["simulated"],
        "receipt": release["receipt"],
        "headline": "",
        "beside": "",
        "disagreement": "",
    }
    told, level = sole(release), f"{release['level']:.0%}"
    if told["task"] == "heavy-hitters":
        return {**shown, **_heavy(told, level)}
    return {**shown, **(_vector(told, level) if told["task"] == "vector-mean" else _mean(told, level, plan))}


def _mean(told: Mapping[str, Any], level: str, plan: Mapping[str, Any]) -> dict[str, Any]:
    (low, high), unit = told["interval"], plan["questions"][0].get("unit") or ""
    rows = [("everyone", told["projected"], low, high)]
    for group, part in told["groups"].items():
        mean = told[group]
        if mean is not None and (reach := part["half_width"]) is not None:
            rows.append((f"{group} people ({part['people']:,})", mean, mean - reach, mean + reach))
    gap = told["disagreement"]
    return {
        "headline": f"{_number(told['projected'])} {unit}".strip(),
        "beside": f"{level} interval: {_number(low)} to {_number(high)}",
        "chart": charts.intervals(rows, f"mean, with {level} interval"),
        "table": rows,
        "disagreement": _disagreement(gap["p_value"], gap["groups_disagree"], gap["test_level"]),
    }


def _disagreement(p: float | None, disagree: bool | None, level: float | None) -> str:
    if p is None or level is None:
        return ""
    said = f"at the {100 * level:.6g}% level, p = {p:.2g}"
    if disagree:
        return f"The two groups differ ({said}): the trusting are not like the others. Read it with care."
    return f"The two groups do not differ more than chance explains ({said})."


def _vector(told: Mapping[str, Any], level: str) -> dict[str, Any]:
    rows = list(zip(told["columns"], told["projected"], *told["interval"], strict=True))
    level += " (all together)" if told["joint"] else ""
    differ = told["disagreement"]["columns"]
    return {
        "headline": f"{len(rows):,} means",
        "beside": f"with {level} intervals",
        "chart": charts.intervals(rows[:_MOST], f"mean, with {level} interval"),
        "table": rows,
        "disagreement": f"The two groups differ in {', '.join(differ)}. Read it with care." if differ else "",
    }


def _heavy(told: Mapping[str, Any], level: str) -> dict[str, Any]:
    def name(record: list[str | None]) -> str:
        return ", ".join("everything else" if part is None else part for part in record)

    def listed(part: Mapping[str, Any]) -> list[tuple[str, float, float, float]]:
        found = zip(part["records"], part["estimate"], *part["interval"], strict=True)
        return [(name(record)[:60], x, low, high) for record, x, low, high in found]

    rows, rest = listed(told), listed(told["wildcards"])
    if not rows:
        return {"chart": "", "table": rest, "headline": "No record was frequent enough to be found."}
    return {
        "headline": f"{len(rows):,} records found",
        "beside": f"shares of people, with {level} intervals",
        "chart": charts.intervals(rows[:_MOST], f"share of people, with {level} interval"),
        "table": rows + rest,
    }
