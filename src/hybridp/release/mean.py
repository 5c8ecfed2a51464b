"""A published mean: the estimate, its interval, whether the groups agree, and the receipt."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridp.public.errorlaw import NormalLaplace
from hybridp.release import style
from hybridp.release.document import release_document, statistic
from hybridp.release.receipt import Receipt
from hybridp.release.result import (
    Anchored,
    Result,
    Shuffled,
    ShuffledLevels,
    Words,
    interval_words,
    people_words,
    promise_words,
    said_of_gap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["ClippedShare", "EpsilonGroup", "GroupEstimate", "MeanRelease"]

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

    @classmethod
    def of(cls, count: float, people: int, scale: float, level: float, sd: float = 0.0) -> ClippedShare:
        """From a count with Laplace and normal noise, which is all of its error: the interval lies within [0, 1]."""
        reach = NormalLaplace(sd, scale).quantile((1 + level) / 2) + 0.5
        return cls(*(min(max(x / people, 0.0), 1.0) for x in (count, count - reach, count + reach)))

    def to_dict(self) -> dict[str, Any]:
        return {"share": self.share, "interval": [self.low, self.high]}

    def said(self, what: str) -> str:
        return f"{what}: {self.share:.2%} of trusted people ({self.low:.2%} to {self.high:.2%})."

    def columns(self) -> dict[str, float]:
        """For the frame of a release that leaves people out, the same in every row."""
        return {"left_out": self.share, "left_out_low": self.low, "left_out_high": self.high}


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
class MeanRelease(Result):
    """The mean of the population that the people were drawn from.

    `estimate` is unbiased (given a fixed weight); `projected` is the same put back inside the bounds, which can only
    come closer. The interval covers sampling and noise at the stated level. `difference`, trusted less local, with its
    interval and `p_value` tells whether the two groups disagree. The estimator `everyone` is right all the same; others
    take the groups to be alike. In an estimate-only publication the group figures are None: they stay unpublished.
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
    left_out: ClippedShare | None = None
    """The share of trusted people without a value, where those are left out."""
    anchor: Anchored | None = None
    shuffled: Shuffled[GroupEstimate] | ShuffledLevels[GroupEstimate] | None = None
    question: str = "value"
    difference_reach: float | None = None
    """Half the width of the difference's interval, at the release's level."""
    window: tuple[float, float] | None = None
    """Where local people were asked, of a steered mean; what lies outside of it is the trusted people's word."""

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    @property
    def sealed(self) -> bool:
        """Whether nothing but the estimate and its interval is told of the reports."""
        own = (x for g in (self.trusted, self.local) for x in (g.mean, g.standard_error, g.half_width))
        others = (self.difference, self.p_value, self.sd_estimate, self.clipped, self.anchor, self.shuffled)
        return all(x is None for x in (*own, *others, self.window)) and not self.by_epsilon

    @property
    def groups_disagree(self) -> bool | None:
        """At the level that goes with the interval's: 5 % beside a 95 % interval."""
        return None if self.p_value is None else self.p_value < self.test_level

    @property
    def difference_interval(self) -> tuple[float, float] | None:
        """Of the trusted mean less the local one."""
        if self.difference is None or self.difference_reach is None:
            return None
        return self.difference - self.difference_reach, self.difference + self.difference_reach

    @property
    def said_of_groups(self) -> str:
        """How the groups compare, in a sentence or two; empty where one of them says nothing."""
        facts = {"estimator": self.estimator, "trusted": self.trusted.mean, "interval": [self.low, self.high]}
        return said_of_gap({**facts, "disagreement": self._disagreement()})

    def _disagreement(self) -> dict[str, Any]:
        return {
            "difference": self.difference,
            "interval": None if self.difference_interval is None else list(self.difference_interval),
            "p_value": self.p_value,
            "groups_disagree": self.groups_disagree,
            "test_level": None if self.p_value is None else self.test_level,
        }

    @property
    def test_level(self) -> float:
        return round(1 - self.level, 12)

    @property
    def what(self) -> str:
        """What was estimated: bounds that are wrong move the mean, and no interval knows of it."""
        if self.clipped_to is None:
            return "mean"
        having = "" if self.left_out is None else " of those who have one"
        return f"mean of values clipped to [{self.clipped_to[0]:,.6g}, {self.clipped_to[1]:,.6g}]{having}"

    @property
    def said_of_window(self) -> str:
        """Where local people were asked, in a sentence; empty where they were asked about all of it."""
        if self.window is None:
            return ""
        low, high = self.window
        return f"Local people were asked between {low:,.6g} and {high:,.6g}; trusted people tell what lies outside."

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        own: dict[str, Any] = {"personal": self._personal()} if self.by_epsilon else {}
        if self.shuffled is not None:
            own |= {"shuffled": self.shuffled.group.mean, "mixing": self.shuffled.to_dict()}
        if self.window is not None:
            own["window"] = list(self.window)
        if self.left_out is not None:
            own["left_out"] = self.left_out.to_dict()
        told = statistic(
            "mean",
            self.projected,
            (self.low, self.high),
            self.trusted.mean,
            self.local.mean,
            unbiased=self.estimate,
            what=self.what,
            clipped_to=None if self.clipped_to is None else list(self.clipped_to),
            clipped=None if self.clipped is None else self.clipped.to_dict(),
            anchor=None if self.anchor is None else self.anchor.to_dict(),
            estimator=self.estimator,
            weight=self.weight,
            groups={
                name: {"people": g.people, "standard_error": g.standard_error, "half_width": g.half_width}
                for name, g in self.groups()
            },
            disagreement=self._disagreement(),
            sd_estimate=self.sd_estimate,
            mechanisms={"trusted": self.noise, "local": self.randomiser},
            **own,
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
        """One row an estimate (hybrid, trusted, local) and one of the groups' difference; needs pandas."""
        import pandas as pd

        rows: list[Any] = [("hybrid", self.people, self.projected, self.low, self.high, None)]
        rows += [(name, g.people, mean, mean - reach, mean + reach, None) for name, g, mean, reach in self._alone()]
        if (ends := self.difference_interval) is not None:
            rows.append(("difference", self.people, self.difference, *ends, self.p_value))
        found = pd.DataFrame(rows, columns=["estimate", "people", "mean", "low", "high", "p_value"])
        return found if self.left_out is None else found.assign(**self.left_out.columns())

    def groups(self) -> list[tuple[str, GroupEstimate]]:
        """The groups by name; people who trust a mixer where there are any."""
        found = [("trusted", self.trusted), ("local", self.local)]
        return found if self.shuffled is None else [*found, ("shuffled", self.shuffled.group)]

    @property
    def people(self) -> int:
        """Everybody who took part."""
        return sum(group.people for _, group in self.groups())

    def _alone(self) -> list[tuple[str, GroupEstimate, float, float]]:
        """The groups that have an estimate of their own: name, group, mean, half-width."""
        groups = self.groups()
        return [(n, g, g.mean, g.half_width) for n, g in groups if g.mean is not None and g.half_width is not None]

    def plot(self, ax: Axes | None = None) -> Axes:
        """The estimates with their intervals; needs matplotlib, the extra "plot"."""
        alone = self._alone()
        ax = style.new_axes(ax, 7.2, 1.9 + 0.55 * len(alone))
        wide = self.high - self.low
        how = "" if self.estimator == "everyone" else f" ({self.estimator})"
        named = [(f"everyone{how}", self.projected, self.low, self.high, style.INK)]
        for name, g, mean, reach in alone:
            colour = {"trusted": style.TRUSTED, "local": style.LOCAL}.get(name, style.SHUFFLED)
            named.append((f"{g.people:,} {name} people alone", mean, mean - reach, mean + reach, colour))
        rows = []
        for name, x, low, high, colour in named:
            ends = f"{style.shortly(low, wide)} to {style.shortly(high, wide)}"
            at = style.shortly(x, wide)
            rows.append(style.Row(name, x, low, high, f"{at}  ({ends})", at, colour))
        style.interval_rows(ax, rows)
        style.plain_numbers(ax.xaxis)
        ax.set_xlabel(self.question)
        mixed = 0 if self.shuffled is None else self.shuffled.group.people
        people = people_words(self.trusted.people, self.local.people, mixed)
        style.dress(
            ax,
            f"{self._title}: {people}, {promise_words(self.receipt)}",
            " ".join(filter(None, (interval_words(self.level, f"the true {self.what}"), self.said_of_groups))),
            simulated=self.simulated,
        )
        return ax

    @property
    def _title(self) -> str:
        return "Mean" if self.question == "value" else f"Mean {self.question}"

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows: list[Any] = [(f"hybrid ({self.estimator})", self.people, self.projected, self.low, self.high)]
        rows += [
            (f"{name} alone", g.people, mean, mean - reach, mean + reach) for name, g, mean, reach in self._alone()
        ]
        if (ends := self.difference_interval) is not None:
            rows.append(("trusted less local", self.people, self.difference, *ends))
        wide = self.high - self.low
        remarks = [self.said_of_groups] if self.said_of_groups else []
        if self.window is not None:
            remarks.append(self.said_of_window)
        if self.left_out is not None:
            remarks.append(self.left_out.said("Left out, without a value"))
        if self.clipped is not None:
            remarks.append(self.clipped.said("Clipped by the bounds"))
        return Words(
            f"{self._title} ({self.what}), with {_percent(self.level)} intervals",
            ("estimate", "people", "mean", "from", "to"),
            [(name, f"{people:,}", *(style.shortly(x, wide) for x in numbers)) for name, people, *numbers in rows],
            tuple(remarks),
        )

    def __str__(self) -> str:
        mark = f"  [{style.SIMULATED}]" if self.simulated else ""
        interval = f"{_percent(self.level)} interval {self.low:,.6g} to {self.high:,.6g}"
        said = f"; {self.said_of_groups}" if self.said_of_groups else ""
        return f"{self.projected:,.6g}  ({interval}; {self.what}){said}{mark}"


def _percent(level: float) -> str:
    """95%, and 99.9% is not rounded away."""
    return f"{100 * level:.6g}%"
