"""A published vector mean: estimates by column, their intervals, whether the groups agree, and the receipt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridp.release import style
from hybridp.release.document import release_document, statistic
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

__all__ = ["VectorGroup", "VectorMeanRelease"]

Numbers = tuple[float, ...]
_DRAWN = 60  # columns whose names a picture can hold
_OWN_SCALES = 14  # columns that can each have a scale of their own


@dataclass(frozen=True, slots=True)
class VectorGroup:
    """One group's own noisy means; already private. `counts` tells how many people spoke about each coordinate."""

    people: int
    counts: tuple[int, ...]
    means: tuple[float | None, ...]
    standard_errors: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class VectorMeanRelease(Result):
    """The mean vector of the population that the people were drawn from; every tuple has one entry a column.

    `estimate` is unbiased (given fixed weights); `projected` is the same put back inside the bounds, and the ball where
    there is one. Each interval covers its own coordinate at the stated level or, when `joint`, all of them cover
    together. `p_values` tell where the two groups disagree, adjusted for the number of columns (Holm).
    """

    names: tuple[str, ...]
    bounds: tuple[tuple[float, float], ...]
    estimator: str
    estimate: Numbers
    projected: Numbers
    low: Numbers
    high: Numbers
    level: float
    joint: bool
    weights: Numbers
    trusted: VectorGroup
    local: VectorGroup
    differences: tuple[float | None, ...]
    p_values: tuple[float | None, ...]
    noise: str
    reports: str
    receipt: Receipt
    question: str = "vector"
    anchor: Anchored | None = None
    difference_reaches: tuple[float | None, ...] = ()
    """Half the widths of the differences' intervals."""
    shuffled: Shuffled[VectorGroup] | None = None

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    def groups(self) -> list[tuple[str, VectorGroup]]:
        """The groups by name; people who trust a mixer where there are any."""
        found = [("trusted", self.trusted), ("local", self.local)]
        return found if self.shuffled is None else [*found, ("shuffled", self.shuffled.group)]

    @property
    def people(self) -> int:
        """Everybody who took part."""
        return sum(group.people for _, group in self.groups())

    @property
    def _of_people(self) -> str:
        return people_words(*(group.people for _, group in self.groups()))

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """The columns in which the groups disagree, for all of them together: at 5 % beside 95 % intervals."""
        found = zip(self.names, self.p_values, strict=True)
        return tuple(n for n, p in found if p is not None and p < self.test_level)

    @property
    def difference_intervals(self) -> tuple[tuple[float | None, ...], tuple[float | None, ...]]:
        """The lower ends of the differences' intervals, and the upper ones."""
        wide = self.difference_reaches or (None,) * len(self.names)
        ends = [(None, None) if x is None or w is None else (x - w, x + w)
                for x, w in zip(self.differences, wide, strict=True)]  # fmt: skip
        return tuple(low for low, _ in ends), tuple(high for _, high in ends)

    @property
    def said_of_groups(self) -> str:
        """Where the groups differ, in a sentence or two; empty where they do not."""
        return differing_in(self.disagreeing, self.estimator)

    @property
    def test_level(self) -> float:
        return round(1 - self.level, 12)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints. Lists have one entry a column."""
        own: dict[str, Any] = {}
        if self.shuffled is not None:
            own = {"shuffled": list(self.shuffled.group.means), "mixing": self.shuffled.to_dict()}
        told = statistic(
            "vector-mean",
            list(self.projected),
            (list(self.low), list(self.high)),
            list(self.trusted.means),
            list(self.local.means),
            columns=list(self.names),
            unbiased=list(self.estimate),
            joint=self.joint,
            bounds={"lower": [low for low, _ in self.bounds], "upper": [high for _, high in self.bounds]},
            anchor=None if self.anchor is None else self.anchor.to_dict(),
            estimator=self.estimator,
            weight=list(self.weights),
            groups={
                name: {"people": g.people, "counts": list(g.counts), "standard_error": list(g.standard_errors)}
                for name, g in self.groups()
            },
            disagreement={
                "difference": list(self.differences),
                "interval": [list(ends) for ends in self.difference_intervals],
                "p_value": list(self.p_values),
                "columns": list(self.disagreeing),
                "test_level": self.test_level,
            },
            mechanisms={"trusted": self.noise, "local": self.reports},
            **own,
        )
        return release_document({self.question: {"mean": told}}, level=self.level, receipt=self.receipt)

    def to_frame(self) -> DataFrame:
        """One row a column of the data; needs pandas, the extra "frames"."""
        import pandas as pd

        return pd.DataFrame(
            {
                "mean": self.projected,
                "low": self.low,
                "high": self.high,
                "weight": self.weights,
                "trusted_mean": self.trusted.means,
                "local_mean": self.local.means,
                **({} if self.shuffled is None else {"shuffled_mean": self.shuffled.group.means}),
                "difference": self.differences,
                **dict(zip(("difference_low", "difference_high"), self.difference_intervals, strict=True)),
                "p_value": self.p_values,
            },
            index=pd.Index(self.names, name="column"),
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """A dot and an interval for each column, in the column's own unit; needs matplotlib, the extra "plot".

        Columns with the same bounds share a scale. Of others each has its own or, where they are many, is drawn by
        where it lies between its bounds, with its numbers beside it.
        """
        d, alike = len(self.names), len(set(self.bounds)) == 1
        own = not alike and d <= _OWN_SCALES
        ax = style.new_axes(ax, 7.2, 4.8 if d > _DRAWN else 1.3 + (0.72 if own else 0.3) * d)
        if own:
            self._own_scales(ax)
        else:
            rows = [self._row(j, alike) for j in range(d)]
            style.interval_rows(
                ax, rows if d <= _DRAWN else [r._replace(words="", brief="") for r in rows], beside=True
            )
            style.plain_numbers(ax.xaxis, percents=not alike)
            ax.set_xlabel("mean" if alike else "mean, between its column's bounds")
            if d > _DRAWN:
                ax.set_yticks([])
                ax.set_ylabel(f"{d:,} columns")
        all_of = "all true means at once" if self.joint else "the true mean of its column"
        style.dress(
            ax,
            f"Means of {d:,} columns: {self._of_people}, {promise_words(self.receipt)}",
            " ".join(filter(None, (interval_words(self.level, all_of, together=self.joint), self.said_of_groups))),
            simulated=self.simulated,
            grid="" if own else "x",
        )
        if own:
            ax.spines[["left", "bottom"]].set_visible(False)
        return ax

    def _row(self, j: int, alike: bool) -> style.Row:
        (a, b), x, low, high = self.bounds[j], self.projected[j], self.low[j], self.high[j]
        at = style.shortly(x, high - low)
        words = f"{at}  ({style.shortly(low, high - low)} to {style.shortly(high, high - low)})"
        if self.names[j] in self.disagreeing:
            words += "  groups differ"
        if not alike:
            x, low, high = ((v - a) / (b - a) for v in (x, low, high))
        return style.Row(self.names[j], x, low, high, words, at)

    def _own_scales(self, ax: Axes) -> None:
        """Each column on a line of its own, with ticks in its own unit."""
        from matplotlib.ticker import MaxNLocator

        rows = []
        for y in range(len(self.names)):
            row = self._row(y, alike=True)
            reach = (row.high - row.low) or max(abs(row.x), 1.0) * 1e-6
            start, wide = row.low - 0.35 * reach, 1.7 * reach

            def place(v: float, start: float = start, wide: float = wide) -> float:
                return (v - start) / wide

            rows.append(row._replace(x=place(row.x), low=place(row.low), high=place(row.high)))
            ax.plot([0, 1], [y, y], color=style.FAINT, lw=0.8, zorder=1)
            for tick in MaxNLocator(4, steps=[1, 2, 2.5, 5, 10]).tick_values(start, start + wide):
                if 0.02 <= place(tick) <= 0.98:
                    ax.plot([place(tick)] * 2, [y + 0.06, y + 0.12], color=style.QUIET, lw=0.8, zorder=1)
                    ax.annotate(
                        style.number(tick), (place(tick), y), xytext=(0, -style.points(ax, 7)), va="top", ha="center",
                        textcoords="offset points", fontsize=style.points(ax, 8), color=style.QUIET,
                    )  # fmt: skip
        style.interval_rows(ax, rows)
        ax.set_xlim(0, 1)
        ax.set_xticks([])
        ax.set_ylim(len(rows) - 0.45, -0.6)

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows = []
        for j, name in enumerate(self.names):
            wide, p = self.high[j] - self.low[j], self.p_values[j]
            numbers = (style.shortly(x, wide) for x in (self.projected[j], self.low[j], self.high[j]))
            alone = ("" if x is None else style.shortly(x, wide) for x in (self.trusted.means[j], self.local.means[j]))
            gap = (self.differences[j], *(ends[j] for ends in self.difference_intervals))
            apart = gap_words(*(None if x is None else style.shortly(x, wide) for x in gap))
            rows.append((name, *numbers, *alone, apart, "" if p is None else f"{p:.3g}"))
        title = f"Means of {len(rows):,} columns of {self._of_people}"
        return each_in_words(title, ("column", "mean"), rows, self.level, joint=self.joint, said=self.said_of_groups)

    def __str__(self) -> str:
        mark = f"\n[{style.SIMULATED}]" if self.simulated else ""
        said = f"\n{self.said_of_groups}" if self.said_of_groups else ""
        shown = zip(self.names, self.projected, self.low, self.high, strict=True)
        return "\n".join(f"{n}: {x:,.6g}  ({low:,.6g} to {high:,.6g})" for n, x, low, high in shown) + said + mark
