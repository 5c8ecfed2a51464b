"""A stored release as the study page shows it: a headline, a chart, the same as a table, and the receipt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from hybridp.release.facts import Facts, cells, heading, is_share, text
from hybridp.release.release import Release
from hybridp.service import charts

__all__ = ["error_rows", "error_unit", "shown_release"]

_MOST = 15  # records in the chart


def _half_width(release: Mapping[str, Any], question: Mapping[str, Any]) -> float | None:
    """Of several columns the root mean square, in half-ranges of each one's bounds."""
    every = [(name, key, told) for name, facts in release["questions"].items() for key, told in facts.items()]
    told = every[0][2]
    if len(every) > 1 or told["task"] in ("heavy-hitters", "regression", "kmeans") or "by" in told:
        return None
    low, high = told["interval"]
    if told["task"] in ("shares", "histogram", "count"):
        return max(cell.width for cell in cells(*every[0])) / 2 / float(told.get("people", 1))
    if told["task"] == "mean":
        return float(high - low) / 2
    if told["task"] != "vector-mean":  # a sum or a curve: nothing was planned that it could be compared with
        return None
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
    asked = summary["plan"]["questions"][0]
    units = {"number": asked.get("unit") or "in the unit of the answer", "vector": "in half-ranges of a column"}
    return str(units.get(asked["kind"], "share of people"))


def shown_release(document: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """For the template; `plan` gives the unit."""
    release = Release.of_dict(document)
    units = {q["name"]: q.get("unit") or "" for q in plan.get("questions", ())}
    several, parts = len(release.questions) > 1, []
    for name, statistics in release.questions.items():
        for key, facts in statistics.items():
            if key != "distribution":  # a curve, for the download
                part = _part(release[name].of(key), facts, units.get(name, ""))
                if several or len(statistics) > 1:
                    part["title"] = f"{name}: {key}" if several else key
                parts.append(part)
    return {"simulated": release.simulated, "receipt": document["receipt"], "parts": parts}


def _part(release: Release, facts: Facts, unit: str) -> dict[str, Any]:
    ((question, (key,)),) = release.questions.items()
    words, *more = release.all_words()
    every, share, task = release.cells, is_share(facts), facts["task"]
    level = "" if release.level is None else f"{release.level:.0%}"
    level += " (all together)" if facts.get("joint") and len(every) > 1 else ""
    what = "share of people" if share else "people" if task == "count" else unit or key.replace("_", " ")
    shown = {"title": "", "headline": heading(question, key, facts), "beside": f"{what}, {level} intervals"}
    rows = [(cell.name or "everyone", cell.estimate, cell.low, cell.high) for cell in every]
    if task == "synthetic-data":
        said = "`hybridp study release STUDY --model FOLDER` fits its rows, for free."
        return shown | {"beside": f"{facts['people']:,} people. {said}", "chart": "", "tables": [], "remarks": []}
    if task == "kmeans":
        rows, what, level = _centres(facts), "people", "95%"
        shown["beside"] = "how many people are near each, with 95% intervals for the noise"
    elif len(every) == 1 and "by" not in facts:
        (cell,) = every
        at, low, high = (text(x, cell.width, share=share) for x in (cell.estimate, cell.low, cell.high))
        shown |= {"headline": f"{at} {unit}".strip(), "beside": f"{level} interval: {low} to {high}"}
        for group, part in (facts.get("groups") or {}).items():
            own, reach = getattr(cell, group), part.get("half_width")
            if own is not None and reach is not None:
                rows.append((f"{group} people ({part['people']:,})", own, own - reach, own + reach))
    known = [(at, x, low, high) for at, x, low, high in rows
             if x is not None and low is not None and high is not None and math.isfinite(low)]  # fmt: skip
    whole = bool(rows) and len(known) == len(rows) and task != "regression"
    chart = charts.intervals(known[:_MOST], f"{what}, with {level} interval") if whole else ""
    return shown | {"chart": chart, "tables": [words, *more], "remarks": words.remarks}


def _centres(facts: Facts) -> list[tuple[str, float | None, float | None, float | None]]:
    """How many people are near each centre, which its coordinates name, with an interval of two deviations."""
    found = []
    for centre, size, error in zip(facts["estimate"], facts["size"], facts["size_error"], strict=True):
        named = ", ".join(f"{column} {x:,.4g}" for column, x in zip(facts["columns"], centre, strict=True))
        reach = math.inf if error is None else 1.96 * error
        found.append((named, size, size - reach, size + reach))
    return found
