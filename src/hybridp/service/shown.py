"""A stored release as the study page shows it: a headline, a chart, the same as a table, and the receipt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from hybridp.release.result import said_of_gap
from hybridp.service import charts

__all__ = ["centre_rows", "difference_rows", "error_rows", "error_unit", "estimate_rows", "group_remarks"]
__all__ += ["shown_release"]

_MOST = 15  # records in the chart


def _number(x: float) -> str:
    return f"{x:,.4g}" if abs(x) < 10_000 else f"{x:,.0f}"


def _half_width(release: Mapping[str, Any], question: Mapping[str, Any]) -> float | None:
    """Of several columns the root mean square, in half-ranges of each one's bounds."""
    every = [told for facts in release["questions"].values() for told in facts.values()]
    told = every[0]
    if len(every) > 1 or told["task"] in ("heavy-hitters", "regression", "kmeans") or "by" in told:
        return None
    low, high = told["interval"]
    if told["task"] in ("shares", "count"):
        return max(b - a for _, _, a, b in estimate_rows(told["task"], told)) / 2 / float(told.get("people", 1))
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
    if summary["kind"] == "heavy-hitters" or (summary["kind"] == "questions" and asked["kind"] != "number"):
        return "share of people"
    if summary["kind"] == "vector-mean":
        return "in half-ranges of a column"
    return str(asked.get("unit") or "in the unit of the answer")


def shown_release(release: Mapping[str, Any], plan: Mapping[str, Any]) -> dict[str, Any]:
    """For the template; `plan` gives the unit."""
    shown: dict[str, Any] = {"simulated": release["simulated"], "receipt": release["receipt"]}
    level, units = f"{release['level']:.0%}", {q["name"]: q.get("unit") or "" for q in plan.get("questions", ())}
    several = len(release["questions"]) > 1
    parts = []
    for name, facts in release["questions"].items():
        for statistic, told in facts.items():
            if statistic != "distribution":  # a curve, for the download
                part = _part(statistic, told, level, units.get(name, ""))
                nothing = {"title": "", "beside": "", "disagreement": "", "chart": "", "own": [], "open": False}
                nothing |= {"differences": [], "remarks": [], "gaps": gap_cells(told)}
                parts.append({**nothing, **part})
                if several or len(facts) > 1:
                    parts[-1]["title"] = f"{name}: {statistic}" if several else statistic
    return {**shown, "parts": parts}


def _part(statistic: str, told: Mapping[str, Any], level: str, unit: str) -> dict[str, Any]:
    match told["task"]:
        case "heavy-hitters":
            return _heavy(told, level)
        case "vector-mean":
            return _vector(told, level)
        case "mean":
            return _mean(told, level, unit)
        case "regression":
            return _regression(told, level)
        case "kmeans":
            return _centres(told)
        case "synthetic-data":
            what = f"A synthetic table of {', '.join(told['features'])}"
            said = "`hybridp study release STUDY --model FOLDER` fits its rows, for free."
            return {"headline": what, "beside": f"{told['people']:,} people. {said}", "table": []}
    return _estimates(statistic, told, level, unit)


def estimate_rows(statistic: str, told: Mapping[str, Any]) -> list[tuple[str, float, float, float]]:
    """A statistic's estimates by name, each with its interval: of options, places, bins, or one for everybody."""
    found, (low, high) = told.get("projected", told["estimate"]), told["interval"]
    if "by" in told:
        return [row for row in _by_group(told, found, low, high) if row[1] is not None]
    if not isinstance(found, list):
        name = told["options"][0] if told.get("options") else "everyone"
        return [(name, found, low, high)]
    if told.get("options") or "columns" in told:
        names = told.get("options") or told["columns"]
    elif "edges" in told:
        names = [f"{a:g} to {b:g}" for a, b in pairwise(told["edges"])]
    else:
        words = {"shares-above": "above {:g}", "shares-below": "at or below {:g}"}.get(statistic)
        names = [words.format(at) if words else f"{100 * at:g}% of people are below" for at in told["at"]]
    return list(zip(names, found, low, high, strict=True))


def _by_group(told: Mapping[str, Any], *columns: Any) -> list[Any]:
    """Numbers of every group, or group and option, by its name; None where a group has none."""
    names, options = told["by"]["categories"], told.get("options")
    nothing = [None] * len(options) if options else None
    each = [[nothing if x is None else x for x in column or [None] * len(names)] for column in columns]
    rows = zip(names, *each, strict=True)
    if not options:
        return list(rows)
    return [(f"{name}: {option}", *numbers) for name, *some in rows
            for option, *numbers in zip(options, *some, strict=True)]  # fmt: skip


def gap_cells(told: Mapping[str, Any]) -> list[str]:
    """Of several answers, each one's difference between the groups, its interval and p-value; none of a single one."""
    gap = told.get("disagreement") or {}
    columns = [gap.get("difference"), *(gap.get("interval") or ()), gap.get("p_value")]
    if len(columns) != 4 or not all(isinstance(column, list) for column in columns):
        return []
    names = told.get("options") or told.get("columns") or columns[0]
    rows = _by_group(told, *columns) if "by" in told else list(zip(names, *columns, strict=True))
    return [
        "" if None in numbers else f"{_number(d)} ({_number(low)} to {_number(high)}), p = {p:.2g}"
        for _, *numbers in rows
        for d, low, high, p in [numbers]
    ]


def difference_rows(told: Mapping[str, Any]) -> list[tuple[str, float, float, float, float]]:
    """One group less another, its interval, and the adjusted p-value of no difference; of shares option by option."""
    found = []
    for gap in told.get("differences") or ():
        pair = f"{gap['of']} - {gap['less']}" + (f": {gap['option']}" if gap["option"] is not None else "")
        found.append((pair, gap["estimate"], *gap["interval"], gap["p_value"]))
    return found


def group_remarks(told: Mapping[str, Any]) -> list[str]:
    """What became of groups with too few people."""
    by, found = told.get("by"), []
    if by is None:
        return []
    few = f"fewer than {by['least']:,} people{', by noisy counts' if by['private'] else ''}"
    for name, members in zip(by["categories"], by["members"], strict=True):
        if len(members) > 1:
            found.append(f"{name} is {', '.join(members)}: groups of {few}.")
    if by["withheld"]:
        found.append(f"Withheld: {', '.join(by['withheld'])}, together {few}.")
    return found


def _estimates(statistic: str, told: Mapping[str, Any], level: str, unit: str) -> dict[str, Any]:
    rows = estimate_rows(statistic, told)
    level += " (all together)" if told.get("joint") and len(rows) > 1 else ""
    shares = statistic in ("shares", "histogram", "shares-below", "shares-above")
    what = "share of people" if shares else "people" if statistic == "count" else unit or statistic
    if "by" in told:
        what = "share of people" if told.get("options") else unit or "mean"
    groups = (told["trusted"], told["local"])
    own = [x if isinstance(x, list) else [x] for x in groups if x is not None]
    shown = {"headline": "", "beside": f"{what}, {level} intervals", "table": rows}
    if "by" in told:
        shown |= {"own": [numbers for _, *numbers in _by_group(told, *groups)] if len(own) == 2 else []}
        shown |= {"differences": difference_rows(told), "remarks": group_remarks(told)}
    else:
        shown |= {"own": list(zip(*own, strict=True))}
    if not rows:
        return shown | {"beside": ""}
    if len(rows) == 1:
        ((_, alone, low, high),) = rows
        shown |= {"headline": f"{_number(alone)} {'' if shares else what}".strip()}
        shown |= {"beside": f"{level} interval: {_number(low)} to {_number(high)}"}
    shown["disagreement"] = said_of_gap(told)
    return {**shown, "chart": charts.intervals(rows[:_MOST], f"{what}, with {level} interval")}


def _mean(told: Mapping[str, Any], level: str, unit: str) -> dict[str, Any]:
    found, (low, high) = told.get("projected", told["estimate"]), told["interval"]
    rows = [("everyone", found, low, high)]
    for group, part in told["groups"].items():
        mean = told[group]
        if mean is not None and (reach := part["half_width"]) is not None:
            rows.append((f"{group} people ({part['people']:,})", mean, mean - reach, mean + reach))
    return {
        "headline": f"{_number(found)} {unit}".strip(),
        "beside": f"{level} interval: {_number(low)} to {_number(high)}",
        "chart": charts.intervals(rows, f"mean, with {level} interval"),
        "table": rows,
        "disagreement": said_of_gap(told),
    }


def _vector(told: Mapping[str, Any], level: str) -> dict[str, Any]:
    rows = list(zip(told["columns"], told.get("projected", told["estimate"]), *told["interval"], strict=True))
    own = told["trusted"], told["local"]
    level += " (all together)" if told["joint"] else ""
    return {
        "headline": f"{len(rows):,} means",
        "beside": f"with {level} intervals",
        "chart": charts.intervals(rows[:_MOST], f"mean, with {level} interval"),
        "table": rows,
        "own": [] if None in own or any(None in means for means in own) else list(zip(*own, strict=True)),
        "disagreement": said_of_gap(told),
    }


def _regression(told: Mapping[str, Any], level: str) -> dict[str, Any]:
    """Coefficients, each in its own unit: a chart has one scale and would hide the small ones."""
    rows, weak = estimate_rows("regression", told), "the spread of the columns cannot be told from the noise"
    level += " (all together)" if told["joint"] else ""
    own = [x for x in (told["trusted"], told["local"]) if x is not None]
    return {
        "headline": f"{told['kind'].capitalize()} regression on {', '.join(told['columns'][1:])}",
        "beside": weak if told["interval"][0][0] is None else f"coefficients, with {level} intervals",
        "table": rows,
        "own": list(zip(*own, strict=True)),
        "open": True,
        "disagreement": said_of_gap(told),
    }


def centre_rows(told: Mapping[str, Any]) -> list[tuple[str, float, float, float]]:
    """How many people are near each centre, which its coordinates name, with an interval of two deviations."""
    found = []
    for centre, size, error in zip(told["estimate"], told["size"], told["size_error"], strict=True):
        name = ", ".join(f"{column} {_number(x)}" for column, x in zip(told["columns"], centre, strict=True))
        reach = math.inf if error is None else 1.96 * error
        found.append((name, size, size - reach, size + reach))
    return found


def _centres(told: Mapping[str, Any]) -> dict[str, Any]:
    rows = centre_rows(told)
    known = all(math.isfinite(row[2]) for row in rows)
    return {
        "headline": f"{len(rows):,} centres of {', '.join(told['columns'])}",
        "beside": "how many people are near each, with 95% intervals for the noise",
        "chart": charts.intervals(rows[:_MOST], "people, with 95% interval") if known else "",
        "table": rows,
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
