"""A published distribution: quantiles, shares at or below values, spread, their intervals, and the receipt."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from hybridp.release import style
from hybridp.release.document import release_document, statistic
from hybridp.release.receipt import Receipt
from hybridp.release.result import Result, Words, interval_words, people_words, promise_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Counted", "Curve", "DistributionRelease", "Gap", "Told"]

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


@dataclass(frozen=True, slots=True)
class DistributionRelease(Result):
    """What is known of a number's distribution in the population that the people were drawn from.

    `told` has the statistics that were asked for: "quantiles" (at shares of people), "shares-below" and "shares-above"
    (at values), "histogram" (by bins), and "variance", "sd" and "gini", which have one entry. Intervals cover sampling
    and noise, and assume nothing of the distribution; each covers at the stated level or, when `joint`, all of `told`
    cover together. `gap` tells whether the two groups disagree, and by how much.
    """

    question: str
    bounds: tuple[float, float]
    estimator: str
    told: dict[str, Told]
    curve: Curve
    counted: tuple[Counted, ...]
    level: float
    people: tuple[int, int]
    gap: Gap | None
    noise: str
    reports: str
    receipt: Receipt
    windows: tuple[tuple[float, float], ...] = ()
    """Around each quantile: where it almost certainly lies, and where local people should be asked."""
    joint: bool = False
    edges: Numbers = ()
    """Of the bins of a histogram; whoever is below the first edge or above the last lies in the nearest bin."""

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    @property
    def test_level(self) -> float:
        return round(1 - self.level, 12)

    @property
    def p_value(self) -> float | None:
        return None if self.gap is None else self.gap.p_value

    @property
    def groups_disagree(self) -> bool | None:
        return None if self.p_value is None else self.p_value < self.test_level

    @property
    def said_of_groups(self) -> str:
        """How the groups compare, in a sentence; empty where one of them says nothing."""
        gap = self.gap
        if gap is None:
            return ""
        apart = (
            f"{gap.trusted:.1%} of those who trust and {gap.local:.1%} of the others are at or "
            f"below {gap.value:,.6g}, a difference of {100 * gap.difference:.1f} points "
            f"({100 * gap.low:.1f} to {100 * gap.high:.1f}; p = {gap.p_value:.3g})"
        )
        if not self.groups_disagree:
            return f"No sign that the groups disagree: where they are most clearly apart, {apart}."
        right = "each counts by its number of people" if self.estimator in ("everyone", "steered") else "read with care"
        return f"The groups DISAGREE: {apart}; {right}."

    @property
    def bins(self) -> tuple[str, ...]:
        """What the bins of a histogram are called: a lower edge belongs to its bin."""
        inner = [f"{edge:g}" for edge in self.edges[1:-1]]
        if not inner:
            return ()
        return f"below {inner[0]}", *(f"{a} to below {b}" for a, b in pairwise(inner)), f"{inner[-1]} or more"

    def where(self, name: str, place: int) -> str:
        """What one entry of a statistic is about."""
        if name == "histogram":
            return self.bins[place]
        return f"{self.told[name].at[place]:g}" if self.told[name].at else ""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        common = {
            "estimator": self.estimator,
            "groups": {"trusted": {"people": self.people[0]}, "local": {"people": self.people[1]}},
            "disagreement": {
                **({} if self.gap is None else {
                    "at": self.gap.value, "trusted": self.gap.trusted, "local": self.gap.local,
                    "difference": self.gap.difference, "interval": [self.gap.low, self.gap.high],
                    "said": self.said_of_groups,
                }),
                "p_value": self.p_value,
                "groups_disagree": self.groups_disagree,
                "test_level": None if self.p_value is None else self.test_level,
            },
            "mechanisms": {"trusted": self.noise, "local": self.reports},
            "clipped_to": list(self.bounds),
        }
        found = {name: self._statistic(name, told, common) for name, told in self.told.items()}
        curve = self.curve
        found["distribution"] = statistic(
            "distribution", list(curve.shares), (list(curve.low), list(curve.high)), at=list(curve.values), joint=False,
            counted=[
                {
                    "values": list(one.values),
                    "noisy_counts": [n / one.steps for n in one.noisy],
                    "people": one.people,
                    "noise_variance": one.variance,
                }
                for one in self.counted
            ],
            **common,
        )  # fmt: skip
        return release_document({self.question: found}, level=self.level, receipt=self.receipt)

    def _statistic(self, name: str, told: Told, common: dict[str, Any]) -> dict[str, Any]:
        def listed(values: Numbers | None) -> Any:
            return None if values is None else list(values) if told.at else values[0]

        more: dict[str, Any] = {"at": list(told.at)} if told.at else {}
        if name == "histogram":
            more = {"edges": list(self.edges), "options": list(self.bins)}
        more["joint"] = self.joint
        if name == "quantiles":
            more["windows"] = [list(window) for window in self.windows]
        ends = listed(told.low), listed(told.high)
        return statistic(name, listed(told.estimate), ends, listed(told.trusted), listed(told.local), **more, **common)

    def to_frame(self) -> DataFrame:
        """One row an estimate, and one of how far the groups are apart; needs pandas, the extra "frames"."""
        import pandas as pd

        def alone(values: Numbers | None, i: int) -> float | None:
            return None if values is None else values[i]

        rows: list[tuple[Any, ...]] = [
            (name, told.at[i] if told.at else None, told.estimate[i], told.low[i], told.high[i],
             alone(told.trusted, i), alone(told.local, i), None)
            for name, told in self.told.items()
            for i in range(len(told.estimate))
        ]  # fmt: skip
        if (gap := self.gap) is not None:
            rows.append(("gap", gap.value, gap.difference, gap.low, gap.high, gap.trusted, gap.local, gap.p_value))
        columns = ["statistic", "at", "estimate", "low", "high", "trusted", "local", "p_value"]
        return pd.DataFrame(rows, columns=columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The distribution function with its band, and the quantiles on it; needs matplotlib, the extra "plot"."""
        ax = style.new_axes(ax, 7.2, 4.6)
        curve = self.curve
        ax.fill_between(curve.values, curve.low, curve.high, color=style.TRUSTED, alpha=0.22, lw=0)
        ax.plot(curve.values, curve.shares, color=style.INK, lw=2)
        if (told := self.told.get("quantiles")) is not None:
            for at, x, low, high in zip(told.at, told.estimate, told.low, told.high, strict=True):
                ax.plot([low, high], [at, at], color=style.LOCAL, alpha=0.5, lw=style.points(ax, 4))
                ax.plot(x, at, "o", color=style.LOCAL, ms=style.points(ax, 6.5), mec="white", mew=1)
                ax.annotate(
                    f"{style.percent(at)} are at most {style.shortly(x, high - low)}", (x, at),
                    xytext=(style.points(ax, 8), -style.points(ax, 6)), textcoords="offset points", va="top",
                    fontsize=style.points(ax, 9), color=style.LOCAL,
                )  # fmt: skip
        ax.set_xlim(*self.bounds)
        ax.set_ylim(0, 1)
        style.plain_numbers(ax.xaxis)
        style.plain_numbers(ax.yaxis, percents=True)
        ax.set_xlabel(self.question)
        ax.set_ylabel("people at or below")
        style.dress(
            ax,
            f"Distribution of {self.question}: {people_words(*self.people)}, {promise_words(self.receipt)}",
            interval_words(
                self.level, "all true numbers at once" if self.joint else "the true number there", together=self.joint
            )
            + " The band is made of such intervals, each by itself."
            + (f" {self.said_of_groups}" if self.gap else ""),
            simulated=self.simulated,
            grid="both",
        )
        return ax

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows = []
        for name, told in self.told.items():
            for i, x in enumerate(told.estimate):
                wide = told.high[i] - told.low[i]
                at = f" at {self.where(name, i)}" if told.at else ""
                alone = ("" if some is None else style.shortly(some[i], wide) for some in (told.trusted, told.local))
                numbers = (style.shortly(v, wide) for v in (x, told.low[i], told.high[i]))
                rows.append((f"{name}{at}", *numbers, *alone))
        kind = "joint " if self.joint else ""
        return Words(
            f"{self.question} of {people_words(*self.people)}, with {kind}{100 * self.level:.6g}% intervals",
            ("statistic", "estimate", "from", "to", "trusted alone", "local alone"),
            rows,
            () if self.gap is None else (self.said_of_groups,),
        )

    def __str__(self) -> str:
        lines = []
        for name, told in self.told.items():
            for i, x in enumerate(told.estimate):
                at = f" at {self.where(name, i)}" if told.at else ""
                lines.append(f"{name}{at}: {x:,.6g}  ({told.low[i]:,.6g} to {told.high[i]:,.6g})")
        lines += [self.said_of_groups] if self.gap else []
        return "\n".join(lines) + (f"\n[{style.SIMULATED}]" if self.simulated else "")
