"""Published heavy hitters: records with intervals, which ranks can be told apart, and the receipt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridp.release.document import release_document, statistic
from hybridp.release.receipt import Receipt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["HeavyRecord", "HeavyRelease"]


@dataclass(frozen=True, slots=True)
class HeavyRecord:
    """One record (or query): its share of people, an interval, and the best and worst rank it may have.

    In a wildcard the last entries are None: everything else of a query, or of all.
    """

    record: tuple[str | None, ...]
    estimate: float
    low: float
    high: float
    best_rank: int | None = None
    worst_rank: int | None = None


def _listed(records: tuple[HeavyRecord, ...]) -> dict[str, Any]:
    """Parallel lists, one entry a record."""
    return {
        "records": [list(r.record) for r in records],
        "estimate": [r.estimate for r in records],
        "interval": [[r.low for r in records], [r.high for r in records]],
    }


@dataclass(frozen=True, slots=True)
class HeavyRelease:
    """The head list with everybody's counts. Records and queries are ordered by their estimates, wildcards last."""

    records: tuple[HeavyRecord, ...]
    queries: tuple[HeavyRecord, ...]
    wildcards: tuple[HeavyRecord, ...]
    discovered: int
    trusted_people: int
    discovery_people: int
    local_people: int
    mechanisms: dict[str, str]
    level: float
    receipt: Receipt
    question: str = "records"

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints. Lists have one entry a record, in the order of `records`."""
        listed = _listed(self.records)
        told = statistic(
            "heavy-hitters",
            listed["estimate"],
            listed["interval"],
            records=listed["records"],
            ranks={"best": [r.best_rank for r in self.records], "worst": [r.worst_rank for r in self.records]},
            queries=_listed(self.queries),
            wildcards=_listed(self.wildcards),
            head_list_size=len(self.queries),
            discovered_records=self.discovered,
            groups={
                "trusted": {
                    "people": self.trusted_people,
                    "discovery": self.discovery_people,
                    "estimation": self.trusted_people - self.discovery_people,
                },
                "local": {"people": self.local_people},
            },
            mechanisms=self.mechanisms,
        )
        return release_document({self.question: {"shares": told}}, level=self.level, receipt=self.receipt)

    def to_frame(self) -> DataFrame:
        """One row a record; needs pandas, the extra "frames"."""
        import pandas as pd

        rows = [(*r.record, r.estimate, r.low, r.high, r.best_rank, r.worst_rank) for r in self.records]
        depth = len(self.records[0].record) if self.records else 1
        names = [f"record_{i + 1}" for i in range(depth)]
        return pd.DataFrame(rows, columns=[*names, "estimate", "low", "high", "best_rank", "worst_rank"])

    def plot(self, ax: Axes | None = None, most: int = 30) -> Axes:
        """The most frequent queries with their intervals; needs matplotlib, the extra "plot"."""
        if ax is None:
            import matplotlib.pyplot as plt

            _, ax = plt.subplots(figsize=(7, 6), layout="constrained")
        shown = self.queries[:most][::-1]
        for y, q in enumerate(shown):
            ax.plot([q.low, q.high], [y, y], color="0.6", lw=2)
            ax.plot(q.estimate, y, "o", color="C0", ms=4)
        ax.set_yticks(range(len(shown)), [str(q.record[0])[:40] for q in shown], fontsize=8)
        ax.set_xlabel(f"share of people, with {self.level:.0%} interval" + (" (simulated)" if self.simulated else ""))
        ax.grid(axis="x", alpha=0.3)
        return ax
