"""A published mean, from the blend's numbers: the facts of one statistic, and the receipt."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from hybridp.public.lattice import Bounds
from hybridp.release.facts import statistic
from hybridp.release.mixing import Shuffled, ShuffledLevels
from hybridp.release.receipt import Receipt
from hybridp.release.release import Release

__all__ = ["GroupEstimate", "mean_release", "personal_facts"]

_SHOWN = 1000  # levels of epsilon listed in full


@dataclass(frozen=True, slots=True)
class GroupEstimate:
    """One group's own noisy mean, its standard error, and half the width of its interval at the release's level."""

    people: int
    mean: float | None = None
    standard_error: float | None = None
    half_width: float | None = None


class _Gap(Protocol):
    """How far the groups' means are apart, in half-ranges."""

    @property
    def difference(self) -> float: ...
    @property
    def p_value(self) -> float: ...
    def half_width(self, level: float) -> float: ...


def mean_release(
    bounds: Bounds,
    estimate: float,
    reach: float,
    groups: Mapping[str, GroupEstimate],
    *,
    level: float,
    estimator: str,
    weight: float,
    gap: _Gap | None,
    mechanisms: tuple[str, str],
    receipt: Receipt,
    shuffled: Shuffled[GroupEstimate] | ShuffledLevels[GroupEstimate] | None = None,
    **own: Any,
) -> Release:
    """The mean of the population that the people were drawn from, in the unit of the bounds.

    `estimate` is unbiased given the weight; what is published is the same put back inside the bounds, which can only
    come closer, and its interval of half-width `reach`, which covers sampling and noise. A `gap` says whether the
    groups disagree. Of an estimate-only publication the groups hold nothing but their numbers of people.
    """
    if shuffled is not None:
        groups = {**groups, "shuffled": shuffled.group}
        own |= {"shuffled": shuffled.group.mean, "mixing": shuffled.to_dict()}
    test = round(1 - level, 12)
    lower, upper = bounds.lower, bounds.upper
    having = " of those who have one" if own.get("left_out") else ""
    difference = interval = None
    if gap is not None:
        difference, wide = bounds.half * gap.difference, bounds.half * gap.half_width(level)
        interval = [difference - wide, difference + wide]
    facts = statistic(
        "mean",
        bounds.project(estimate),
        (bounds.project(estimate - reach), bounds.project(estimate + reach)),
        groups["trusted"].mean,
        groups["local"].mean,
        unbiased=estimate,
        what=f"mean of values clipped to [{lower:,.6g}, {upper:,.6g}]{having}",
        clipped_to=[lower, upper],
        estimator=estimator,
        weight=weight,
        groups={
            name: {"people": g.people, "standard_error": g.standard_error, "half_width": g.half_width}
            for name, g in groups.items()
        },
        disagreement={
            "difference": difference,
            "interval": interval,
            "p_value": None if gap is None else gap.p_value,
            "groups_disagree": None if gap is None else gap.p_value < test,
            "test_level": None if gap is None else test,
        },
        mechanisms=dict(zip(("trusted", "local"), mechanisms, strict=True)),
        **{"clipped": None, "anchor": None, "sd_estimate": None, **own},
    )
    return Release({"value": {"mean": facts}}, level, receipt)


def personal_facts(groups: list[tuple[float, float, int, float, float]]) -> dict[str, Any]:
    """What trusted people asked for and what they got, by (asked, may spend, people, weight of each, spent).

    Who spends less than this release might have has more privacy, for free. Infinity is written "inf", and at most
    1,000 levels are listed.
    """

    def level(value: float) -> float | str:
        return value if math.isfinite(value) else "inf"

    return {
        "levels": len(groups),
        "saturated": sum(n for _, may, n, _, spent in groups if spent < may * (1 - 1e-9)),
        "groups": [
            {"asked": level(asked), "epsilon": level(may), "people": n, "weight": w, "effective_epsilon": level(spent)}
            for asked, may, n, w, spent in groups[:_SHOWN]
        ],
    }
