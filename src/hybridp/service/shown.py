"""A stored release as the study page shows it: a headline, a chart, the same as a table, and the receipt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hybridp.service import charts

__all__ = ["error_rows", "error_unit", "shown_release"]

_MOST = 15  # records in the chart


def _number(x: float) -> str:
    return f"{x:,.4g}" if abs(x) < 10_000 else f"{x:,.0f}"


def _half_width(release: Mapping[str, Any], plan: Mapping[str, Any]) -> float | None:
    """Of several columns the root mean square, in half-ranges of each one's bounds."""
    interval = release.get("interval")
    if not isinstance(interval, Mapping):
        return None
    if not isinstance(interval["low"], Mapping):
        return float(interval["high"] - interval["low"]) / 2
    wide = [
        (interval["high"][name] - interval["low"][name]) / (side["upper"] - side["lower"])
        for name, side in zip(plan["columns"], plan["bounds"], strict=True)
    ]
    return math.sqrt(math.fsum(w * w for w in wide) / len(wide))


def error_rows(summary: Mapping[str, Any]) -> list[tuple[str, float]]:
    """Half-widths of the interval: as planned, as predicted for the people who came, and of the release."""
    found: list[tuple[str, float]] = []
    for name, label in (("planned", "planned"), ("now_predicted", "predicted for those who came")):
        if summary.get(name):
            found.append((label, float(summary[name]["half_width"])))
    release = summary.get("release")
    actual = _half_width(release, summary["plan"]) if release else None
    if actual is not None:
        found.append(("the release", actual))
    return found


def error_unit(summary: Mapping[str, Any]) -> str:
    """What the errors are measured in."""
    if summary["kind"] == "heavy-hitters":
        return "share of people"
    if summary["kind"] == "vector-mean":
        return "in half-ranges of a column"
    return str(summary["plan"].get("unit") or "in the unit of the answer")


def shown_release(release: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """For the template; `plan` gives the unit."""
    shown: dict[str, Any] = {
        "simulated": bool(release.get("simulated")),
        "receipt": release.get("receipt") or release["privacy"],
        "headline": "",
        "beside": "",
        "disagreement": "",
    }
    if release["task"] == "heavy-hitters":
        return {**shown, **_heavy(release)}
    return {**shown, **(_vector(release) if release["task"] == "vector-mean" else _mean(release, plan))}


def _mean(release: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    interval, unit = release["interval"], plan.get("unit") or ""
    rows = [("everyone", release["projected"], interval["low"], interval["high"])]
    for group, name in (("trusted", "trusted people"), ("local", "local people")):
        part = release["groups"][group]
        if part["mean"] is not None and part["half_width"] is not None:
            reach = part["half_width"]
            rows.append((f"{name} ({part['people']:,})", part["mean"], part["mean"] - reach, part["mean"] + reach))
    level = f"{interval['level']:.0%}"
    gap = release["disagreement"]
    return {
        "headline": f"{_number(release['projected'])} {unit}".strip(),
        "beside": f"{level} interval: {_number(interval['low'])} to {_number(interval['high'])}",
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


def _vector(release: Mapping[str, Any]) -> dict[str, Any]:
    interval = release["interval"]
    rows = [(n, x, interval["low"][n], interval["high"][n]) for n, x in release["projected"].items()]
    level = f"{interval['level']:.0%}" + (" (all together)" if interval["joint"] else "")
    differ = release["disagreement"]["columns"]
    return {
        "headline": f"{len(rows):,} means",
        "beside": f"with {level} intervals",
        "chart": charts.intervals(rows[:_MOST], f"mean, with {level} interval"),
        "table": rows,
        "disagreement": f"The two groups differ in {', '.join(differ)}. Read it with care." if differ else "",
    }


def _heavy(release: Mapping[str, Any]) -> dict[str, Any]:
    def name(record: list[str | None]) -> str:
        return ", ".join("everything else" if part is None else part for part in record)

    rows = [(name(r["record"])[:60], r["estimate"], r["low"], r["high"]) for r in release["records"]]
    rest = [(name(r["record"])[:60], r["estimate"], r["low"], r["high"]) for r in release["wildcards"]]
    if not rows:
        return {"chart": "", "table": rest, "headline": "No record was frequent enough to be found."}
    many = len(release["records"])
    return {
        "headline": f"{many:,} records found",
        "beside": f"shares of people, with {release['level']:.0%} intervals",
        "chart": charts.intervals(rows[:_MOST], f"share of people, with {release['level']:.0%} interval"),
        "table": rows + rest,
    }
