"""A published vector mean: estimates by column, their intervals, whether the groups agree, and the receipt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridp.release.document import release_document, statistic
from hybridp.release.receipt import Receipt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["VectorGroup", "VectorMeanRelease"]

Numbers = tuple[float, ...]
_DRAWN = 60  # coordinates whose names a picture can hold


@dataclass(frozen=True, slots=True)
class VectorGroup:
    """One group's own noisy means; already private. `counts` tells how many people spoke about each coordinate."""

    people: int
    counts: tuple[int, ...]
    means: tuple[float | None, ...]
    standard_errors: tuple[float | None, ...]


@dataclass(frozen=True, slots=True)
class VectorMeanRelease:
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

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """The columns in which the groups disagree, for all of them together: at 5 % beside 95 % intervals."""
        found = zip(self.names, self.p_values, strict=True)
        return tuple(n for n, p in found if p is not None and p < self.test_level)

    @property
    def test_level(self) -> float:
        return round(1 - self.level, 12)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints. Lists have one entry a column."""
        told = statistic(
            "vector-mean",
            list(self.estimate),
            (list(self.low), list(self.high)),
            list(self.trusted.means),
            list(self.local.means),
            columns=list(self.names),
            projected=list(self.projected),
            joint=self.joint,
            bounds={"lower": [low for low, _ in self.bounds], "upper": [high for _, high in self.bounds]},
            estimator=self.estimator,
            weight=list(self.weights),
            groups={
                name: {"people": g.people, "counts": list(g.counts), "standard_error": list(g.standard_errors)}
                for name, g in (("trusted", self.trusted), ("local", self.local))
            },
            disagreement={
                "difference": list(self.differences),
                "p_value": list(self.p_values),
                "columns": list(self.disagreeing),
                "test_level": self.test_level,
            },
            mechanisms={"trusted": self.noise, "local": self.reports},
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
                "p_value": self.p_values,
            },
            index=pd.Index(self.names, name="column"),
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """A dot and an interval for each column; needs matplotlib, the extra "plot".

        Columns with different bounds are drawn by where they lie between their own.
        """
        many = len(self.names) > _DRAWN
        if ax is None:
            import matplotlib.pyplot as plt

            height = 4.8 if many else 1.2 + 0.28 * len(self.names)
            _, ax = plt.subplots(figsize=(6.4, height), layout="constrained")
        alike = len(set(self.bounds)) == 1

        def place(values: Numbers) -> list[float]:
            return [x if alike else (x - a) / (b - a) for x, (a, b) in zip(values, self.bounds, strict=True)]

        at, low, high = place(self.projected), place(self.low), place(self.high)
        below = [max(0.0, x - end) for x, end in zip(at, low, strict=True)]
        above = [max(0.0, end - x) for x, end in zip(at, high, strict=True)]
        rows = range(len(self.names))
        ax.errorbar(at, rows, xerr=[below, above], fmt="o", ms=2 if many else 5, capsize=0 if many else 3, lw=1.5)
        if many:
            ax.set_ylabel("column")
        else:
            ax.set_yticks(rows, self.names)
        ax.set_ylim(len(self.names) - 0.4, -0.6)
        what = "mean" if alike else "mean, from lower bound (0) to upper bound (1)"
        kind = "joint " if self.joint else ""
        ax.set_xlabel(f"{what}, with {kind}{self.level:.0%} interval" + (" (simulated)" if self.simulated else ""))
        ax.grid(axis="x", alpha=0.3)
        return ax

    def __str__(self) -> str:
        mark = "\n[SIMULATED: not a private release]" if self.simulated else ""
        shown = zip(self.names, self.projected, self.low, self.high, strict=True)
        return "\n".join(f"{n}: {x:,.6g}  ({low:,.6g} to {high:,.6g})" for n, x, low, high in shown) + mark
