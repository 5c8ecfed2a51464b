"""Published centres: where they are, noisy sizes, and the receipt. No point and no label of anybody is in here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridp.release import style
from hybridp.release.document import release_document, statistic
from hybridp.release.receipt import Receipt
from hybridp.release.result import Result, Words, people_words, promise_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["Cluster", "KMeansRelease"]


@dataclass(frozen=True, slots=True)
class Cluster:
    """One centre in the data's own units, and how many people are nearest to it, with noise.

    `standard_error` (of the centre, the same in every coordinate up to noise) and `size_error` are predictions; None
    where the method makes none.
    """

    centre: tuple[float, ...]
    size: float
    standard_error: float | None
    size_error: float | None


@dataclass(frozen=True, slots=True)
class KMeansRelease(Result):
    """K centres of both groups together, the largest cluster first.

    `iterations` counts how often the curator asked (the map is one), `map_cells` is the number of cells of the map, 0
    without one.
    """

    method: str
    columns: tuple[str, ...]
    clusters: tuple[Cluster, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    trusted_people: int
    local_people: int
    iterations: int
    map_cells: int
    noise: str
    receipt: Receipt
    question: str = "points"

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints. Lists have one entry a cluster; a centre has one a column."""
        told = statistic(
            "kmeans",
            [list(c.centre) for c in self.clusters],
            None,
            columns=list(self.columns),
            standard_error=[c.standard_error for c in self.clusters],
            size=[c.size for c in self.clusters],
            size_error=[c.size_error for c in self.clusters],
            bounds={"lower": list(self.lower), "upper": list(self.upper)},
            method=self.method,
            groups={"trusted": {"people": self.trusted_people}, "local": {"people": self.local_people}},
            iterations=self.iterations,
            map_cells=self.map_cells,
            noise=self.noise,
        )
        return release_document({self.question: {"centres": told}}, level=None, receipt=self.receipt)

    def to_frame(self) -> DataFrame:
        """One row a cluster; needs pandas, the extra "frames"."""
        import pandas as pd

        rows = [(*c.centre, c.size, c.standard_error, c.size_error) for c in self.clusters]
        return pd.DataFrame(rows, columns=[*self.columns, "size", "standard_error", "size_error"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Centres in the first two coordinates, discs as large as the clusters, inside the public bounds."""
        ax = style.new_axes(ax, 6.0, 5.4)
        flat = len(self.columns) == 1
        largest = max((c.size for c in self.clusters), default=0.0) or 1.0
        for c in self.clusters:
            at = (c.centre[0], 0.0 if flat else c.centre[1])
            area = (90 + 1200 * max(c.size, 0.0) / largest) * (style.points(ax, 10) / 10) ** 2
            ax.scatter(*at, s=area, color=style.TRUSTED, alpha=0.22, linewidths=0)
            ax.plot(*at, "+", color=style.INK, ms=8, mew=1.6)
            reach = "" if c.size_error is None else f" ± {1.96 * c.size_error:,.0f}"
            ax.annotate(
                f"{_whole(c.size)}{reach} people", at, xytext=(0, -math.sqrt(area) / 2 - 3), textcoords="offset points",
                fontsize=style.points(ax, 9.5), color=style.INK, ha="center", va="top",
            )  # fmt: skip
        ax.set_xlim(self.lower[0], self.upper[0])
        ax.set_ylim(*((-1.0, 1.0) if flat else (self.lower[1], self.upper[1])))
        ax.set_xlabel(self.columns[0])
        style.plain_numbers(ax.xaxis)
        if flat:
            ax.set_yticks([])
        else:
            ax.set_ylabel(self.columns[1])
            style.plain_numbers(ax.yaxis)
        seen = "" if len(self.columns) <= 2 else f" The first two of {len(self.columns)} coordinates are shown."
        style.dress(
            ax,
            f"{len(self.clusters)} centres: {people_words(self.trusted_people, self.local_people)}, "
            f"{promise_words(self.receipt)}",
            "A cross is a centre; its disc is as large as the noisy number of people nearest to it, given with "
            f"95% of its noise where that is known. The axes span the public bounds.{seen}",
            simulated=self.simulated,
            grid="x" if flat else "both",
        )
        return ax

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        sides = [b - a for a, b in zip(self.lower, self.upper, strict=True)]
        rows = [
            (
                str(i),
                *(style.shortly(v, side / 100) for v, side in zip(c.centre, sides, strict=True)),
                _whole(c.size),
                "" if c.size_error is None else f"± {1.96 * c.size_error:,.0f}",
            )
            for i, c in enumerate(self.clusters, start=1)
        ]
        title = f"{len(rows)} centres ({self.method}) of {people_words(self.trusted_people, self.local_people)}"
        return Words(title, ("cluster", *self.columns, "people", "95% of the noise"), rows)

    def __str__(self) -> str:
        mark = f"  [{style.SIMULATED}]" if self.simulated else ""
        shown = "; ".join(
            f"({', '.join(f'{v:.4g}' for v in c.centre)}) of about {_whole(c.size)}" for c in self.clusters
        )
        return f"{len(self.clusters)} centres: {shown}{mark}"


def _whole(size: float) -> str:
    return f"{size:,.0f}" if math.isfinite(size) else "?"
