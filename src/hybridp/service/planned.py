"""How good will it be? A study's error from group sizes and public numbers alone, for the plan and for a page.

>>> from hybridp.service.plans import parse_plan
>>> asked = {"name": "way", "kind": "number", "lower": 0, "upper": 100, "sd": 10, "local": "dithered"}
>>> plan = parse_plan({"title": "t", "promise": 1, "questions": [asked]})
>>> round(predicted(plan, {"trusted": 1000, "local": 9000})["rmse"], 2)
0.96
"""

from __future__ import annotations

import math
from statistics import NormalDist
from typing import Any

from hybridp.service.plans import Plan

__all__ = ["predicted"]


def predicted(plan: Plan, people: dict[str, int]) -> dict[str, Any] | None:
    """Root mean squared error and half-width of the interval; None where nobody, or too few, take part."""
    found = plan.asked[0].forecast(people) if len(plan.asked) == 1 else None
    variances = {} if found is None else {group: v for group, v in found.variances.items() if v > 0}
    if found is None or not variances:
        return None
    if found.alike:
        variance = 1 / sum(1 / v for v in variances.values())
    else:  # each group counts by its number of people
        whole = sum(people[group] for group in variances)
        variance = sum((people[group] / whole) ** 2 * v for group, v in variances.items())
    rmse = found.scale * math.sqrt(variance)
    z = NormalDist().inv_cdf((1 + plan.level) / 2)
    groups = ("trusted", "local", *(("shuffled",) if people.get("shuffled") else ()))
    return {
        "people": {group: people[group] for group in groups},
        "rmse": rmse,
        "half_width": z * rmse,
        "unit": found.unit,
        "assumes": found.assumes,
    }
