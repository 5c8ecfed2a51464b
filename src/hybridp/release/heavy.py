"""Published heavy hitters: records with intervals, which ranks can be told apart, and the receipt."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridp.release import style
from hybridp.release.document import release_document, statistic
from hybridp.release.receipt import Receipt
from hybridp.release.result import Result, Shuffled, Words, interval_words, people_words, promise_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["HeavyRecord", "HeavyRelease"]


@dataclass(frozen=True, slots=True)
class HeavyRecord:
    """One record (or query): its share of people, an interval, and the best and worst rank it may have.

    In a wildcard the last entries are None: everything else of a query, or of all. Where reports are held to the
    trusted counts, `plain` is the unbiased blend without that rule, and `most` the farthest from the trusted share that
    any reports could have moved the unbiased estimate (None where the trusted say nothing); the estimate is the nearest
    of all that add up.
    """

    record: tuple[str | None, ...]
    estimate: float
    low: float
    high: float
    best_rank: int | None = None
    worst_rank: int | None = None
    plain: float | None = None
    most: float | None = None


def _listed(records: tuple[HeavyRecord, ...]) -> dict[str, Any]:
    """Parallel lists, one entry a record."""
    return {
        "records": [list(r.record) for r in records],
        "estimate": [r.estimate for r in records],
        "interval": [[r.low for r in records], [r.high for r in records]],
    }


@dataclass(frozen=True, slots=True)
class HeavyRelease(Result):
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
    reach: float | None = None
    """The leash of reports, in standard errors of the groups' difference; None where they are blended plainly."""
    shuffled: Shuffled[int] | None = None
    """How many people's reports came through a mixer, and in which batches."""

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    @property
    def people(self) -> int:
        """Everybody who took part."""
        return self.trusted_people + self.local_people + self._mixed

    @property
    def _mixed(self) -> int:
        return 0 if self.shuffled is None else self.shuffled.group

    @property
    def _of_people(self) -> str:
        return people_words(self.trusted_people, self.local_people, self._mixed)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints. Lists have one entry a record, in the order of `records`."""
        listed, mixed, own = _listed(self.records), {}, {}
        if self.shuffled is not None:
            mixed, own = {"shuffled": {"people": self._mixed}}, {"mixing": self.shuffled.to_dict()}
        told = statistic(
            "heavy-hitters",
            listed["estimate"],
            listed["interval"],
            records=listed["records"],
            ranks={"best": [r.best_rank for r in self.records], "worst": [r.worst_rank for r in self.records]},
            queries=_listed(self.queries),
            wildcards=_listed(self.wildcards),
            anchor=None
            if self.reach is None
            else {
                "plain": [r.plain for r in self.records],
                "most": [r.most for r in self.records],
                "reach": self.reach,
            },
            head_list_size=len(self.queries),
            discovered_records=self.discovered,
            groups={
                "trusted": {
                    "people": self.trusted_people,
                    "discovery": self.discovery_people,
                    "estimation": self.trusted_people - self.discovery_people,
                },
                "local": {"people": self.local_people},
                **mixed,
            },
            mechanisms=self.mechanisms,
            **own,
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
        shown = self.queries[:most]
        ax = style.new_axes(ax, 7.2, 1.5 + 0.27 * max(len(shown), 1))
        rows = []
        wide = max((100 * (q.high - q.low) for q in shown), default=1.0)
        for q in shown:
            at, low, high = (style.shortly(100 * v, wide) for v in (q.estimate, q.low, q.high))
            name = _spoken(q.record)
            label = name if len(name) <= 34 else f"{name[:33]}…"
            rows.append(style.Row(label, q.estimate, q.low, q.high, f"{at}%  ({low} to {high})", f"{at}%"))
        style.interval_rows(ax, rows, beside=True)
        ax.set_xlim(left=0)
        style.plain_numbers(ax.xaxis, percents=True)
        ax.set_xlabel("share of people")
        more = f" The {most} most frequent of {len(self.queries):,} are shown." if len(self.queries) > most else ""
        style.dress(
            ax,
            f"Frequent records: {self._of_people}, {promise_words(self.receipt)}",
            interval_words(self.level, "the true share of its record") + more,
            simulated=self.simulated,
        )
        return ax

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows, wide = [], max((100 * (r.high - r.low) for r in self.records), default=1.0)
        for r in self.records:
            rank = f"{r.best_rank}" if r.best_rank == r.worst_rank else f"{r.best_rank} to {r.worst_rank}"
            shares = (f"{style.shortly(100 * x, wide)}%" for x in (r.estimate, r.low, r.high))
            rows.append((_spoken(r.record), *shares, "" if r.best_rank is None else rank))
        rest = [f"{_spoken(w.record)}: {100 * w.estimate:.3g}%" for w in self.wildcards]
        return Words(
            f"{len(self.records):,} frequent records of {self._of_people}: shares "
            f"of people, with {100 * self.level:.6g}% intervals",
            ("record", "share", "from", "to", "rank"),
            rows,
            ("A range of ranks: those records cannot be told apart.", f"The rest: {'; '.join(rest)}.") if rest else (),
        )


def _spoken(record: tuple[str | None, ...]) -> str:
    """A record as one text; None is whatever else there is."""
    return " / ".join("everything else" if part is None else part for part in record)
