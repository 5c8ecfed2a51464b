"""Published centres: where they are, noisy sizes, and the receipt. No point and no label of anybody is in here."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridp.release.document import release_document, statistic
from hybridp.release.receipt import Receipt

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
class KMeansRelease:
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
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(5.2, 4.6), layout="constrained")
        import matplotlib.patches as patches

        flat = len(self.columns) == 1
        x = [c.centre[0] for c in self.clusters]
        y = [0.0 if flat else c.centre[1] for c in self.clusters]
        low = (self.lower[0], -1.0 if flat else self.lower[1])
        high = (self.upper[0], 1.0 if flat else self.upper[1])
        largest = max((c.size for c in self.clusters), default=0.0) or 1.0
        ax.add_patch(
            patches.Rectangle(low, high[0] - low[0], high[1] - low[1], fill=False, ls="--", color="0.6", label="bounds")
        )
        area = [60 + 900 * max(c.size, 0.0) / largest for c in self.clusters]
        ax.scatter(x, y, s=area, alpha=0.3, color="C0", linewidths=0)
        ax.plot(x, y, "+", color="C3", ms=9, mew=2, label="centre")
        for c, at_x, at_y in zip(self.clusters, x, y, strict=True):
            ax.annotate(f"{c.size:,.0f}", (at_x, at_y), xytext=(7, 7), textcoords="offset points", fontsize=8)
        margin = [0.04 * (h - w) for w, h in zip(low, high, strict=True)]
        ax.set_xlim(low[0] - margin[0], high[0] + margin[0])
        ax.set_ylim(low[1] - margin[1], high[1] + margin[1])
        ax.set_xlabel(self.columns[0])
        if flat:
            ax.set_yticks([])
        else:
            ax.set_ylabel(self.columns[1])
        note = " (simulated)" if self.simulated else ""
        ax.set_title(f"{len(self.clusters)} centres and noisy sizes{note}", fontsize=10)
        ax.legend(loc="best", fontsize=8)
        return ax

    def __str__(self) -> str:
        mark = "  [SIMULATED: not a private release]" if self.simulated else ""
        shown = "; ".join(
            f"({', '.join(f'{v:.4g}' for v in c.centre)}) of about {_whole(c.size)}" for c in self.clusters
        )
        return f"{len(self.clusters)} centres: {shown}{mark}"


def _whole(size: float) -> str:
    return f"{size:,.0f}" if math.isfinite(size) else "?"
