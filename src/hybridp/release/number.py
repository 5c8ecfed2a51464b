"""Several published statistics of one number: those of the mean's kind, those of the distribution's, one receipt."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hybridp.release import style
from hybridp.release.distribution import DistributionRelease
from hybridp.release.document import release_document
from hybridp.release.mean import MeanRelease
from hybridp.release.receipt import Receipt
from hybridp.release.result import Result, Words, people_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["NumberRelease", "times"]


def times(facts: dict[str, Any], people: int) -> dict[str, Any]:
    """A mean's facts as those of the sum: everything in the number's unit, as often as there are people.

    >>> times({"task": "mean", "estimate": 2.0, "interval": [1.0, 3.0], "trusted": None, "local": 2.5}, 10)["interval"]
    [10.0, 30.0]
    """

    def scaled(value: Any) -> Any:
        return None if value is None else [people * x for x in value] if isinstance(value, list) else people * value

    gap = dict(facts.get("disagreement") or {})
    gap |= {name: scaled(gap[name]) for name in ("difference", "interval") if name in gap}
    return {
        "task": "sum",
        **{name: scaled(facts[name]) for name in ("estimate", "interval", "trusted", "local")},
        **{name: scaled(facts[name]) for name in ("unbiased",) if name in facts},
        "what": f"{people} times the mean",
        **{name: facts[name] for name in ("estimator", "weight", "mechanisms") if name in facts},
        **({"disagreement": gap} if gap else {}),
        "groups": {name: {"people": one["people"]} for name, one in facts.get("groups", {}).items()},
    }


@dataclass(frozen=True)
class NumberRelease(Result):
    """What is known of a number in the population that the people were drawn from: `statistics` in their order.

    The sum is the mean times the number of people, which is public; like the mean's, its interval covers sampling, so
    that for the sum over these very people it is wider than it need be. With `joint` all intervals hold together.
    """

    question: str
    statistics: tuple[str, ...]
    mean: MeanRelease | None
    distribution: DistributionRelease | None
    people: tuple[int, int]
    level: float
    joint: bool
    receipt: Receipt
    everyone: int | None = None
    """How many people there are, where not all of them answered this question."""

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    @property
    def sealed(self) -> bool:
        """Whether it tells the mean or the sum alone, and that sealed."""
        return self.distribution is None and self.mean is not None and self.mean.sealed

    @property
    def trusted_people(self) -> int:
        return self.people[0]

    @property
    def local_people(self) -> int:
        return self.people[1]

    def _facts(self) -> dict[str, dict[str, Any]]:
        known: dict[str, dict[str, Any]] = {}
        if self.mean is not None:
            (told,) = self.mean.to_dict()["questions"].values()
            known |= {"mean": told["mean"], "sum": times(told["mean"], self.everyone or sum(self.people))}
        if self.distribution is not None:
            (told,) = self.distribution.to_dict()["questions"].values()
            known |= told
        wanted = [name for name in self.statistics if name != "distribution"]
        wanted += [] if self.distribution is None else ["distribution"]
        found = {name: {**known[name], "joint": self.joint} for name in wanted}
        if "distribution" not in self.statistics and "distribution" in found:
            found["distribution"]["joint"] = False  # its intervals were not counted among those that hold together
        return found

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints. The distribution function comes with what is read from it."""
        return release_document({self.question: self._facts()}, level=self.level, receipt=self.receipt)

    def _rows(self) -> Iterator[tuple[str, float | None, float, float, float, float | None, float | None]]:
        """Statistic, place, estimate, interval, each group alone: one for every number but those of the curve."""
        for name, facts in self._facts().items():
            if name == "distribution":
                continue
            ends, groups = facts["interval"], (facts["trusted"], facts["local"])
            if not isinstance(facts["estimate"], list):
                yield name, None, facts["estimate"], *ends, *groups
                continue
            places = facts["edges"][:-1] if name == "histogram" else facts["at"]
            for i, x in enumerate(facts["estimate"]):
                yield name, places[i], x, ends[0][i], ends[1][i], *(None if g is None else g[i] for g in groups)

    def to_frame(self) -> DataFrame:
        """One row an estimate; needs pandas, the extra "frames"."""
        import pandas as pd

        columns = ["statistic", "at", "estimate", "low", "high", "trusted", "local"]
        return pd.DataFrame(list(self._rows()), columns=columns)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The distribution function with the mean in it, or the mean alone; needs matplotlib, the extra "plot"."""
        if self.distribution is None:
            assert self.mean is not None
            return replace(self.mean, receipt=self.receipt).plot(ax)
        ax = replace(self.distribution, receipt=self.receipt).plot(ax)
        if self.mean is not None:
            ax.axvspan(self.mean.low, self.mean.high, color=style.INK, alpha=0.12, lw=0)
            ax.axvline(self.mean.projected, color=style.INK, lw=style.points(ax, 1.2), ls="--")
            low, high = ax.get_xlim()  # above the curve, left of the mean, nothing else is said: if there is room
            left = self.mean.projected - low > 0.2 * (high - low)
            ax.annotate(
                f"mean {style.shortly(self.mean.projected, self.mean.high - self.mean.low)}",
                (self.mean.low if left else self.mean.high, 0.97 if left else 0.02),
                xytext=(style.points(ax, -5 if left else 5), 0), textcoords="offset points",
                ha="right" if left else "left", va="top" if left else "bottom",
                fontsize=style.points(ax, 9), color=style.INK,
            )  # fmt: skip
        return ax

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows = []
        for name, at, *numbers in self._rows():
            wide = numbers[2] - numbers[1]  # type: ignore[operator]
            where = "" if at is None else f" at {at:g}"
            if name == "histogram" and self.distribution is not None and at is not None:
                where = f": {self.distribution.bins[self.distribution.edges.index(at)]}"
            rows.append((f"{name}{where}", *("" if x is None else style.shortly(x, wide) for x in numbers)))
        kind = "joint " if self.joint else ""
        title = f"{self.question} of {people_words(*self.people)}, with {kind}{100 * self.level:.6g}% intervals"
        remarks = [remark for part in (self.mean, self.distribution) if part is not None
                   for remark in part.in_words().remarks]  # fmt: skip
        columns = ("statistic", "estimate", "from", "to", "trusted alone", "local alone")
        return Words(title, columns, rows, tuple(dict.fromkeys(remarks)))
