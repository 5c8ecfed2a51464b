"""A published mean: the estimate, its interval, whether the groups agree, and the receipt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridp.release.document import release_document, statistic
from hybridp.release.receipt import Receipt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Anchored", "ClippedShare", "EpsilonGroup", "GroupEstimate", "MeanRelease"]

_SHOWN = 1000  # levels of epsilon listed in full


@dataclass(frozen=True, slots=True)
class GroupEstimate:
    """One group's own noisy mean; already private, and part of what is published."""

    people: int
    mean: float | None = None
    standard_error: float | None = None
    half_width: float | None = None
    """Of its own interval, at the release's level."""


@dataclass(frozen=True, slots=True)
class ClippedShare:
    """The share of trusted people whose values lie outside the bounds, measured with noise of its own."""

    share: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Anchored:
    """The plain blend beside an anchored estimate, and how far from the trusted mean reports can move the latter."""

    plain: float
    most: float


@dataclass(frozen=True, slots=True)
class EpsilonGroup:
    """Trusted people who asked for the same epsilon: what this release may spend of it, the weight of each, and what
    they really spent."""

    asked: float
    epsilon: float
    people: int
    weight: float
    effective_epsilon: float

    @property
    def saturated(self) -> bool:
        """They spent less than this release might have: more privacy, for free."""
        return self.effective_epsilon < self.epsilon * (1 - 1e-9)


@dataclass(frozen=True, slots=True)
class MeanRelease:
    """The mean of the population that the people were drawn from.

    `estimate` is unbiased (given a fixed weight); `projected` is the same put back inside the bounds, which can only
    come closer. The interval covers sampling and noise at the stated level. `difference` and `p_value` tell whether the
    two groups disagree: a small p-value says that the trusting are not like the others, and that a mean over both
    should be read with care. In an estimate-only publication the group figures are None: they stay unpublished.
    `question` is the name under which a document holds it: of a table, the column's.
    """

    estimator: str
    estimate: float
    projected: float
    low: float
    high: float
    level: float
    weight: float
    trusted: GroupEstimate
    local: GroupEstimate
    difference: float | None
    p_value: float | None
    sd_estimate: float | None
    noise: str
    randomiser: str
    receipt: Receipt
    by_epsilon: tuple[EpsilonGroup, ...] = ()
    clipped_to: tuple[float, float] | None = None
    clipped: ClippedShare | None = None
    anchor: Anchored | None = None
    question: str = "value"

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    @property
    def groups_disagree(self) -> bool | None:
        """At the level that goes with the interval's: 5 % beside a 95 % interval."""
        return None if self.p_value is None else self.p_value < self.test_level

    @property
    def test_level(self) -> float:
        return round(1 - self.level, 12)

    @property
    def what(self) -> str:
        """What was estimated: bounds that are wrong move the mean, and no interval knows of it."""
        if self.clipped_to is None:
            return "mean"
        return f"mean of values clipped to [{self.clipped_to[0]:,.6g}, {self.clipped_to[1]:,.6g}]"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        personal = {"personal": self._personal()} if self.by_epsilon else {}
        clipped = self.clipped
        told = statistic(
            "mean",
            self.estimate,
            (self.low, self.high),
            self.trusted.mean,
            self.local.mean,
            projected=self.projected,
            what=self.what,
            clipped_to=None if self.clipped_to is None else list(self.clipped_to),
            clipped=None if clipped is None else {"share": clipped.share, "interval": [clipped.low, clipped.high]},
            anchor=None if self.anchor is None else {"plain": self.anchor.plain, "most": self.anchor.most},
            estimator=self.estimator,
            weight=self.weight,
            groups={
                name: {"people": g.people, "standard_error": g.standard_error, "half_width": g.half_width}
                for name, g in (("trusted", self.trusted), ("local", self.local))
            },
            disagreement={
                "difference": self.difference,
                "p_value": self.p_value,
                "groups_disagree": self.groups_disagree,
                "test_level": None if self.p_value is None else self.test_level,
            },
            sd_estimate=self.sd_estimate,
            mechanisms={"trusted": self.noise, "local": self.randomiser},
            **personal,
        )
        return release_document({self.question: {"mean": told}}, level=self.level, receipt=self.receipt)

    def _personal(self) -> dict[str, Any]:
        """What people asked for and what they got; infinity is written "inf", and at most 1,000 levels are listed."""

        def level(value: float) -> float | str:
            return value if math.isfinite(value) else "inf"

        return {
            "levels": len(self.by_epsilon),
            "saturated": sum(g.people for g in self.by_epsilon if g.saturated),
            "groups": [
                {
                    "asked": level(g.asked),
                    "epsilon": level(g.epsilon),
                    "people": g.people,
                    "weight": g.weight,
                    "effective_epsilon": level(g.effective_epsilon),
                }
                for g in self.by_epsilon[:_SHOWN]
            ],
        }

    def to_frame(self) -> DataFrame:
        """One row an estimate (hybrid, trusted, local); needs pandas, the extra "frames"."""
        import pandas as pd

        rows = [("hybrid", self.trusted.people + self.local.people, self.projected, self.low, self.high)]
        for name, g in (("trusted", self.trusted), ("local", self.local)):
            if g.mean is not None and g.half_width is not None:
                rows.append((name, g.people, g.mean, g.mean - g.half_width, g.mean + g.half_width))
        return pd.DataFrame(rows, columns=["estimate", "people", "mean", "low", "high"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """The three estimates with their intervals; needs matplotlib, the extra "plot"."""
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(6.4, 2.6), layout="constrained")
        rows: list[tuple[str, float, float, float]] = [
            (f"hybrid ({self.estimator})", self.projected, self.low, self.high)
        ]
        for name, g in (("trusted people", self.trusted), ("local people", self.local)):
            if g.mean is not None and g.half_width is not None:
                rows.append((f"{name} ({g.people:,})", g.mean, g.mean - g.half_width, g.mean + g.half_width))
        for y, (_, x, low, high) in enumerate(reversed(rows)):
            colour = "C0" if y == len(rows) - 1 else "0.45"
            ax.errorbar(x, y, xerr=[[x - low], [high - x]], fmt="o", color=colour, capsize=4, lw=2)
        ax.set_yticks(range(len(rows)), [row[0] for row in reversed(rows)])
        ax.set_ylim(-0.6, len(rows) - 0.4)
        ax.set_xlabel(f"{self.what}, {_percent(self.level)} interval" + (" (simulated)" if self.simulated else ""))
        ax.grid(axis="x", alpha=0.3)
        return ax

    def __str__(self) -> str:
        mark = "  [SIMULATED: not a private release]" if self.simulated else ""
        interval = f"{_percent(self.level)} interval {self.low:,.6g} to {self.high:,.6g}"
        return f"{self.projected:,.6g}  ({interval}; {self.what}){mark}"


def _percent(level: float) -> str:
    """95%, and 99.9% is not rounded away."""
    return f"{100 * level:.6g}%"
