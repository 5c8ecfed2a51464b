"""A published distribution: quantiles, shares at or below values, spread and their intervals, as facts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from hybridp.release.facts import statistic
from hybridp.release.receipt import Receipt
from hybridp.release.release import Release

__all__ = ["Counted", "Curve", "Gap", "Told", "distribution_release"]

Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Told:
    """Estimates of one kind, each at its own place, with intervals and what each group says alone."""

    at: Numbers
    estimate: Numbers
    low: Numbers
    high: Numbers
    trusted: Numbers | None
    local: Numbers | None


@dataclass(frozen=True, slots=True)
class Counted:
    """Noisy counts of trusted people at or below each value and above the one before; `steps` of a count are a person.

    Of one value only the count below it is told.
    """

    values: Numbers
    noisy: tuple[int, ...]
    steps: int
    people: int
    variance: float
    """Of the noise in each count, in people."""


@dataclass(frozen=True, slots=True)
class Gap:
    """How far the groups are apart where they differ most clearly: the shares of each at or below a value.

    The difference, trusted less local, has an interval that counts for all places that were looked at, and so does p.
    """

    value: float
    trusted: float
    local: float
    difference: float
    low: float
    high: float
    p_value: float


@dataclass(frozen=True, slots=True)
class Curve:
    """The distribution function at some places, for pictures and for programs."""

    values: Numbers
    shares: Numbers
    low: Numbers
    high: Numbers


def distribution_release(
    question: str,
    told: Mapping[str, Told],
    curve: Curve,
    *,
    bounds: tuple[float, float],
    estimator: str,
    counted: tuple[Counted, ...],
    level: float,
    joint: bool,
    people: tuple[int, int],
    gap: Gap | None,
    windows: tuple[tuple[float, float], ...],
    edges: Numbers,
    mechanisms: tuple[str, str],
    receipt: Receipt,
) -> Release:
    """What is known of a number's distribution in the population that the people were drawn from.

    `told` has the statistics that were asked for: "quantiles" (at shares of people), "shares-below" and "shares-above"
    (at values), "histogram" (by bins of these `edges`), and "variance", "sd" and "gini", which have one entry.
    Intervals cover sampling and noise, and assume nothing of the distribution; each covers at the stated level or, when
    `joint`, all of `told` cover together. `gap` tells whether the two groups disagree, and by how much; `windows`,
    around each quantile, where it almost certainly lies, and where local people should be asked.
    """
    test = round(1 - level, 12)
    apart: dict[str, Any] = {"p_value": None, "groups_disagree": None, "test_level": None}
    if gap is not None:
        apart = {
            "at": gap.value,
            "trusted": gap.trusted,
            "local": gap.local,
            "difference": gap.difference,
            "interval": [gap.low, gap.high],
            "p_value": gap.p_value,
            "groups_disagree": gap.p_value < test,
            "test_level": test,
        }
    common = {
        "estimator": estimator,
        "groups": {"trusted": {"people": people[0]}, "local": {"people": people[1]}},
        "disagreement": apart,
        "mechanisms": dict(zip(("trusted", "local"), mechanisms, strict=True)),
        "clipped_to": list(bounds),
    }
    found = {}
    for name, one in told.items():

        def listed(values: Numbers | None, one: Told = one) -> Any:
            return None if values is None else list(values) if one.at else values[0]

        more: dict[str, Any] = {"at": list(one.at)} if one.at else {}
        if name == "histogram":
            more = {"edges": list(edges), "options": _bins(edges)}
        if name == "quantiles":
            more["windows"] = [list(window) for window in windows]
        ends = (listed(one.low), listed(one.high))
        own, others = listed(one.trusted), listed(one.local)
        found[name] = statistic(name, listed(one.estimate), ends, own, others, joint=joint, **more, **common)
    ends = list(curve.low), list(curve.high)
    found["distribution"] = statistic(
        "distribution", list(curve.shares), ends, at=list(curve.values), joint=False,
        counted=[
            {
                "values": list(one.values),
                "noisy_counts": [n / one.steps for n in one.noisy],
                "people": one.people,
                "noise_variance": one.variance,
            }
            for one in counted
        ],
        **common,
    )  # fmt: skip
    return Release({question: found}, level, receipt)


def _bins(edges: Numbers) -> list[str]:
    """What the bins of a histogram are called: a lower edge belongs to its bin, and the ends take whoever is beyond."""
    inner = [f"{edge:g}" for edge in edges[1:-1]]
    if not inner:
        return []
    return [f"below {inner[0]}", *(f"{a} to below {b}" for a, b in pairwise(inner)), f"{inner[-1]} or more"]
