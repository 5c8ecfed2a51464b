"""Published shares: one estimate an option, their intervals, whether the groups agree, and the receipt."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hybridp.release import style
from hybridp.release.document import release_document, statistic
from hybridp.release.mean import ClippedShare
from hybridp.release.receipt import Receipt
from hybridp.release.result import (
    Anchored,
    Result,
    Shuffled,
    Words,
    differing_in,
    each_in_words,
    gap_words,
    interval_words,
    people_words,
    promise_words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["ShareGroup", "SharesRelease"]

Numbers = tuple[float, ...]
_DRAWN = 60  # options whose names a picture can hold


@dataclass(frozen=True, slots=True)
class ShareGroup:
    """One group's own noisy shares; already private."""

    people: int
    shares: Numbers | None = None
    standard_errors: Numbers | None = None


@dataclass(frozen=True, slots=True)
class SharesRelease(Result):
    """The shares of the population that the people were drawn from; every tuple has one entry an option.

    `estimate` is unbiased (given fixed weights) and may lie below 0; `projected` is the nearest that is not negative
    and adds up to 1. Each interval covers its own option at the stated level or, when `joint`, all of them cover
    together. `differences`, trusted less local, with their intervals and `p_values` tell where the two groups disagree;
    the p-values are adjusted for the number of options (Holm). `anchor` holds
    for `estimate`; the nearest shares that add up are no farther, all options together (the root of summed squares).
    """

    question: str
    options: tuple[str, ...]
    edges: Numbers
    estimator: str
    estimate: Numbers
    projected: Numbers
    low: Numbers
    high: Numbers
    level: float
    joint: bool
    weights: Numbers
    trusted: ShareGroup
    local: ShareGroup
    p_values: Numbers | None
    noise: str
    reports: str
    receipt: Receipt
    anchor: Anchored | None = None
    difference_reaches: Numbers | None = None
    """Half the widths of the differences' intervals."""
    counted: bool = False
    """Asked for as a count: how many people have the first option, of two."""
    everyone: int | None = None
    """How many people there are, where not all of them answered this question."""
    shuffled: Shuffled[ShareGroup] | None = None
    left_out: ClippedShare | None = None
    """The share of trusted people without an option, where those are left out."""
    told: Numbers | None = None
    """The shares of all reports together, where some of them were mixed."""

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    @property
    def statistic(self) -> str:
        return "count" if self.counted else "histogram" if self.edges else "shares"

    @property
    def people(self) -> int:
        """How many there are: public."""
        heard = self.trusted.people + self.local.people + self._mixed
        return heard if self.everyone is None else self.everyone

    @property
    def _mixed(self) -> int:
        return 0 if self.shuffled is None else self.shuffled.group.people

    def groups(self) -> list[tuple[str, ShareGroup]]:
        """The groups by name; people who trust a mixer where there are any."""
        found = [("trusted", self.trusted), ("local", self.local)]
        return found if self.shuffled is None else [*found, ("shuffled", self.shuffled.group)]

    def _count(self, told: dict[str, Any]) -> dict[str, Any]:
        """The first option's share as a number of people: share times people, who are as many whoever is replaced."""

        def first(values: Any) -> Any:
            return None if values is None else values[0]

        n, (low, high) = self.people, (first(ends) for ends in told["interval"])
        gap = told["disagreement"]
        gap |= {name: first(gap[name]) for name in ("difference", "p_value")}
        gap["interval"] = None if gap["interval"] is None else [first(end) for end in gap["interval"]]
        shares = (first(told[group]) for group in ("trusted", "local"))
        return {
            **told,
            "estimate": n * self.projected[0],
            "interval": [n * low, n * high],
            **{g: None if p is None else n * p for g, p in zip(("trusted", "local"), shares, strict=True)},
            "unbiased": n * self.estimate[0],
            "share": {"estimate": self.projected[0], "interval": [low, high]},
            "options": list(self.options[:1]),
            "people": n,
            "weight": self.weights[0],
            "anchor": None
            if told["anchor"] is None
            else {**told["anchor"], **{name: n * first(told["anchor"][name]) for name in ("plain", "most")}},
        }

    @property
    def differences(self) -> Numbers | None:
        """Each trusted share less that of all who reported."""
        heard = self.told or self.local.shares
        if self.trusted.shares is None or heard is None:
            return None
        return tuple(mine - others for mine, others in zip(self.trusted.shares, heard, strict=True))

    @property
    def difference_intervals(self) -> tuple[Numbers, Numbers] | None:
        """The lower ends of the differences' intervals, and the upper ones."""
        gaps, reaches = self.differences, self.difference_reaches
        if gaps is None or reaches is None:
            return None
        ends = [(x - wide, x + wide) for x, wide in zip(gaps, reaches, strict=True)]
        return tuple(max(low, -1.0) for low, _ in ends), tuple(min(high, 1.0) for _, high in ends)

    @property
    def said_of_groups(self) -> str:
        """Where the groups differ, in a sentence or two; empty where they do not."""
        return differing_in(self.disagreeing[:1] if self.counted else self.disagreeing, self.estimator)

    @property
    def test_level(self) -> float:
        return round(1 - self.level, 12)

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """The options in which the groups disagree, for all of them together: at 5 % beside 95 % intervals."""
        found = zip(self.options, self.p_values or (1.0,) * len(self.options), strict=True)
        return tuple(name for name, p in found if p < self.test_level)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        own: dict[str, Any] = {} if self.left_out is None else {"left_out": self.left_out.to_dict()}
        ends = self.difference_intervals
        if self.shuffled is not None:
            own |= {"shuffled": _listed(self.shuffled.group.shares), "mixing": self.shuffled.to_dict()}
        told = statistic(
            self.statistic,
            list(self.projected),
            (list(self.low), list(self.high)),
            _listed(self.trusted.shares),
            _listed(self.local.shares),
            options=list(self.options),
            **({"edges": list(self.edges)} if self.edges else {}),
            unbiased=list(self.estimate),
            joint=self.joint,
            anchor=None if self.anchor is None else self.anchor.to_dict(),
            estimator=self.estimator,
            weight=list(self.weights),
            groups={
                name: {"people": group.people, "standard_error": _listed(group.standard_errors)}
                for name, group in self.groups()
            },
            disagreement={
                "difference": _listed(self.differences),
                "interval": None if ends is None else [list(end) for end in ends],
                "p_value": _listed(self.p_values),
                "options": list(self.disagreeing),
                "test_level": self.test_level,
            },
            mechanisms={"trusted": self.noise, "local": self.reports},
            **own,
        )
        told = self._count(told) if self.counted else told
        return release_document({self.question: {self.statistic: told}}, level=self.level, receipt=self.receipt)

    def to_frame(self) -> DataFrame:
        """One row an option; needs pandas, the extra "frames"."""
        import pandas as pd

        nothing, ends = (None,) * len(self.options), self.difference_intervals
        return pd.DataFrame(
            {
                "share": self.projected,
                "low": self.low,
                "high": self.high,
                "weight": self.weights,
                "trusted_share": self.trusted.shares or nothing,
                "local_share": self.local.shares or nothing,
                **({} if self.shuffled is None else {"shuffled_share": self.shuffled.group.shares}),
                "difference": self.differences or nothing,
                "difference_low": nothing if ends is None else ends[0],
                "difference_high": nothing if ends is None else ends[1],
                "p_value": self.p_values or nothing,
                **({} if self.left_out is None else self.left_out.columns()),
            },
            index=pd.Index(self.options, name="option"),
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """A dot and an interval for each option; needs matplotlib, the extra "plot"."""
        many = len(self.options) > _DRAWN
        ax = style.new_axes(ax, 7.2, 4.8 if many else 1.5 + 0.28 * len(self.options))
        wide = max(100 * (high - low) for low, high in zip(self.low, self.high, strict=True))
        rows = []
        for name, x, low, high in zip(self.options, self.projected, self.low, self.high, strict=True):
            at, *ends = (style.shortly(100 * v, wide) for v in (x, low, high))
            words = f"{at}%  ({' to '.join(ends)})" + ("  groups differ" if name in self.disagreeing else "")
            rows.append(style.Row(name, x, low, high, words, f"{at}%"))
        if many:
            rows = [row._replace(label="", words="", brief="") for row in rows]
        style.interval_rows(ax, rows, beside=True)
        ax.set_xlim(left=0)
        style.plain_numbers(ax.xaxis, percents=True)
        ax.set_xlabel("share of people")
        if many:
            ax.set_yticks([])
            ax.set_ylabel(f"{len(rows):,} options, in their order")
        people = people_words(self.trusted.people, self.local.people, self._mixed)
        all_of = "all true shares at once" if self.joint else "the true share of its option"
        style.dress(
            ax,
            f"Shares by {self.question}: {people}, {promise_words(self.receipt)}",
            " ".join(filter(None, (interval_words(self.level, all_of, together=self.joint), self.said_of_groups))),
            simulated=self.simulated,
        )
        return ax

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        nothing = (None,) * len(self.options)
        alone = (self.trusted.shares or nothing, self.local.shares or nothing)
        gaps, ends = self.differences or nothing, self.difference_intervals or (nothing, nothing)
        rows = [
            (name, f"{x:.2%}", f"{low:.2%}", f"{high:.2%}", *("" if v is None else f"{v:.2%}" for v in own),
             gap_words(*(None if v is None else f"{v:.2%}" for v in gap)), "" if p is None else f"{p:.3g}")
            for name, x, low, high, *own, gap, p in zip(
                self.options, self.projected, self.low, self.high, *alone, zip(gaps, *ends, strict=True),
                self.p_values or nothing, strict=True
            )
        ]  # fmt: skip
        title = f"Shares by {self.question} of {people_words(self.trusted.people, self.local.people, self._mixed)}"
        if self.counted:
            number = tuple(f"{self.people * v[0]:,.0f}" for v in (self.projected, self.low, self.high))
            return each_in_words(
                f"People with {self.options[0]} in {self.question}, of {self.people:,}", ("people with", "count"),
                [(self.options[0], *number, *rows[0][4:])], self.level, joint=False, said=self.said_of_groups,
            )  # fmt: skip
        told = each_in_words(title, ("option", "share"), rows, self.level, joint=self.joint, said=self.said_of_groups)
        return told if self.left_out is None else replace(told, remarks=(*told.remarks, self._said_of_left_out))

    def __str__(self) -> str:
        mark = f"\n[{style.SIMULATED}]" if self.simulated else ""
        if self.counted:
            x, low, high = (f"{self.people * v[0]:,.0f}" for v in (self.projected, self.low, self.high))
            return f"{x} people with {self.options[0]}  ({low} to {high})" + self._said + mark
        shown = zip(self.options, self.projected, self.low, self.high, strict=True)
        return "\n".join(f"{n}: {x:.2%}  ({low:.2%} to {high:.2%})" for n, x, low, high in shown) + self._said + mark

    @property
    def _said_of_left_out(self) -> str:
        return "" if self.left_out is None else self.left_out.said("Left out, without an option")

    @property
    def _said(self) -> str:
        return "".join(f"\n{said}" for said in (self.said_of_groups, self._said_of_left_out) if said)


def _listed(values: Numbers | None) -> list[float] | None:
    return None if values is None else list(values)
