"""Published answers by group: an estimate and an interval each, differences, and the receipt."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridp.release import style
from hybridp.release.document import release_document, statistic
from hybridp.release.receipt import Receipt
from hybridp.release.result import (
    Result,
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

__all__ = ["Difference", "GroupAnswer", "GroupShare", "GroupsRelease"]

Numbers = tuple[float, ...]
_DRAWN = 60


@dataclass(frozen=True, slots=True)
class GroupShare:
    """How large a private group is: its share of all people, estimated with an interval."""

    estimate: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class GroupAnswer:
    """One group's answer; every tuple has one entry, or one an option.

    `members` are the groups that it is made of, more than one where small ones were merged. `people` are its trusted
    and local people where the group is public, and `share` is its estimated share of everybody where it is private.
    `apart` is the trusted people's answer less the local ones', with the ends of its intervals.
    """

    name: str
    members: tuple[str, ...]
    estimate: Numbers
    projected: Numbers
    low: Numbers
    high: Numbers
    weight: Numbers
    trusted: Numbers | None
    local: Numbers | None
    p_values: Numbers | None
    people: tuple[int, int] | None = None
    share: GroupShare | None = None
    apart: tuple[Numbers, Numbers, Numbers] | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """One group less another (of shares: in one option), its interval, and the adjusted p-value of no difference."""

    first: str
    second: str
    option: str | None
    estimate: float
    low: float
    high: float
    p_value: float

    def to_dict(self) -> dict[str, Any]:
        told = {"of": self.first, "less": self.second, "option": self.option, "estimate": self.estimate}
        return {**told, "interval": [self.low, self.high], "p_value": self.p_value}


@dataclass(frozen=True, slots=True)
class GroupsRelease(Result):
    """The means, or shares, of the people of every group.

    Each interval covers its own answer at the stated level or, when `joint`, all of them cover together, and so do the
    differences among themselves. p-values are adjusted for their number (Holm): those of the groups of trust that
    disagree, and those of the differences. `withheld` groups had too few people, by the public rule `least`.
    """

    question: str
    kind: str
    by: str
    private: bool
    options: tuple[str, ...]
    edges: Numbers
    estimator: str
    groups: tuple[GroupAnswer, ...]
    differences: tuple[Difference, ...]
    withheld: tuple[str, ...]
    least: int
    level: float
    joint: bool
    trusted_people: int
    local_people: int
    noise: str
    reports: str
    receipt: Receipt
    bounds: tuple[float, float] | None = None

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    @property
    def statistic(self) -> str:
        return f"{self.kind}_by_group"

    @property
    def test_level(self) -> float:
        return round(1 - self.level, 12)

    def __getitem__(self, name: str) -> GroupAnswer:
        return next(group for group in self.groups if group.name == name)

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """The groups (and options) in which trusted and local people disagree."""
        return tuple(label for label, answer, at in self._each() if _p(answer, at) < self.test_level)

    @property
    def said_of_groups(self) -> str:
        """Where trusted and local people differ, in a sentence or two; empty where they do not."""
        return differing_in(self.disagreeing, self.estimator)

    @property
    def different(self) -> tuple[Difference, ...]:
        """The differences that are none by chance, at the level that goes with the intervals'."""
        return tuple(gap for gap in self.differences if gap.p_value < self.test_level)

    def _each(self) -> Iterator[tuple[str, GroupAnswer, int]]:
        for group in self.groups:
            for at in range(len(group.estimate)):
                yield (group.name if not self.options else f"{group.name}: {self.options[at]}"), group, at

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""

        def listed(name: str) -> list[Any] | None:
            values = [getattr(group, name) for group in self.groups]
            if all(value is None for value in values):
                return None
            if self.options:
                return [None if value is None else list(value) for value in values]
            return [None if value is None else value[0] for value in values]

        by: dict[str, Any] = {
            "column": self.by,
            "private": self.private,
            "categories": [group.name for group in self.groups],
            "members": [list(group.members) for group in self.groups],
            "withheld": list(self.withheld),
            "least": self.least,
        }
        if self.private:
            shares = [group.share for group in self.groups if group.share is not None]
            by["shares"] = [share.estimate for share in shares]
            by["shares_interval"] = [[share.low for share in shares], [share.high for share in shares]]
        else:
            by["people"] = [list(group.people or ()) for group in self.groups]
        apart = [group.apart or ((None,) * len(group.estimate),) * 3 for group in self.groups]
        gaps: list[Any] = [[list(one[i]) if self.options else one[i][0] for one in apart] for i in range(3)]
        told = statistic(
            f"{self.kind}-by-group",
            listed("projected"),
            (listed("low"), listed("high")),
            listed("trusted"),
            listed("local"),
            by=by,
            **({"options": list(self.options)} if self.options else {}),
            **({"edges": list(self.edges)} if self.edges else {}),
            **({"clipped_to": list(self.bounds)} if self.bounds is not None else {}),
            unbiased=listed("estimate"),
            joint=self.joint,
            estimator=self.estimator,
            weight=listed("weight"),
            groups={"trusted": {"people": self.trusted_people}, "local": {"people": self.local_people}},
            disagreement={
                "difference": gaps[0],
                "interval": gaps[1:],
                "p_value": listed("p_values"),
                "groups": list(self.disagreeing),
                "test_level": self.test_level,
            },
            differences=[gap.to_dict() for gap in self.differences],
            mechanisms={"trusted": self.noise, "local": self.reports},
        )
        return release_document({self.question: {self.statistic: told}}, level=self.level, receipt=self.receipt)

    def to_frame(self) -> DataFrame:
        """One row a group, or a group and option; needs pandas, the extra "frames"."""
        import pandas as pd

        rows = []
        for _, group, at in self._each():
            own = {"group": group.name, **({"option": self.options[at]} if self.options else {})}
            numbers = {"estimate": group.projected[at], "low": group.low[at], "high": group.high[at]}
            alone = {"trusted": _at(group.trusted, at), "local": _at(group.local, at)}
            names = ("difference", "difference_low", "difference_high")
            apart = {name: None if group.apart is None else group.apart[i][at] for i, name in enumerate(names)}
            rows.append({**own, **numbers, **alone, **apart, "p_value": _p(group, at)})
        return pd.DataFrame(rows)

    def _text(self, x: float, wide: float) -> str:
        return f"{style.shortly(100 * x, 100 * wide)}%" if self.options else style.shortly(x, wide)

    @property
    def _title(self) -> str:
        what = f"{'Mean' if self.kind == 'mean' else 'Shares of'} {self.question} by {self.by}"
        return f"{what}: {people_words(self.trusted_people, self.local_people)}"

    def plot(self, ax: Axes | None = None) -> Axes:
        """A dot and an interval for each group, or group and option; needs matplotlib, the extra "plot"."""
        rows = []
        for label, group, at in self._each():
            x, low, high = group.projected[at], group.low[at], group.high[at]
            brief = self._text(x, high - low)
            words = f"{brief}  ({self._text(low, high - low)} to {self._text(high, high - low)})"
            words += "  trusted and local differ" if label in self.disagreeing else ""
            rows.append(style.Row(label, x, low, high, words, brief))
        many = len(rows) > _DRAWN
        ax = style.new_axes(ax, 7.2, 4.8 if many else 1.6 + 0.28 * len(rows))
        style.interval_rows(
            ax, [row._replace(label="", words="", brief="") for row in rows] if many else rows, beside=True
        )
        if self.options:
            ax.set_xlim(left=0)
        style.plain_numbers(ax.xaxis, percents=bool(self.options))
        ax.set_xlabel("share of the group's people" if self.options else self.question)
        if many:
            ax.set_yticks([])
            ax.set_ylabel(f"{len(rows):,} answers, in their order")
        what = "share" if self.options else "mean"
        all_of = f"all true {what}s at once" if self.joint else f"the true {what} of its group"
        style.dress(
            ax,
            f"{self._title}, {promise_words(self.receipt)}",
            " ".join(filter(None, (interval_words(self.level, all_of, together=self.joint), self.said_of_groups))),
            simulated=self.simulated,
        )
        return ax

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows = []
        for label, group, at in self._each():
            wide = group.high[at] - group.low[at]
            numbers = (self._text(x, wide) for x in (group.projected[at], group.low[at], group.high[at]))
            alone = (_at(group.trusted, at), _at(group.local, at))
            p = "" if group.p_values is None else f"{group.p_values[at]:.3g}"
            cells = ["" if x is None else self._text(x, wide) for x in alone]
            gap = "" if group.apart is None else gap_words(*(self._text(end[at], wide) for end in group.apart))
            rows.append((label, *numbers, *cells, gap, p))
        what = "share" if self.options else "mean"
        told = each_in_words(self._title, ("group", what), rows, self.level, joint=self.joint, said=self.said_of_groups)
        return Words(told.title, told.columns, told.rows, (*told.remarks, *self._remarks()))

    def _remarks(self) -> Iterator[str]:
        for group in self.groups:
            if len(group.members) > 1:
                yield f"`{group.name}` is {', '.join(group.members)}: groups of fewer than {self.least:,} people."
        if self.withheld:
            few = f"together fewer than {self.least:,} people"
            yield f"Withheld: {', '.join(self.withheld)} ({few}{', by noisy counts' if self.private else ''})."

    def differences_in_words(self) -> Words:
        """The differences as a table."""
        rows = []
        for gap in self.differences:
            wide = gap.high - gap.low
            pair = f"{gap.first} - {gap.second}" + (f": {gap.option}" if gap.option is not None else "")
            numbers = (self._text(x, wide) for x in (gap.estimate, gap.low, gap.high))
            rows.append((pair, *numbers, f"{gap.p_value:.3g}"))
        kind = "joint " if self.joint else ""
        title = f"Differences, with {kind}{100 * self.level:.6g}% intervals; p-values adjusted for {len(rows)} (Holm)"
        return Words(title, ("groups", "difference", "from", "to", "p (no difference)"), rows)

    def all_words(self) -> list[Words]:
        """What a notebook shows, one below the other."""
        return [self.in_words(), *([self.differences_in_words()] if self.differences else [])]

    def __str__(self) -> str:
        mark = f"\n[{style.SIMULATED}]" if self.simulated else ""
        lines = []
        for label, group, at in self._each():
            low, high = group.low[at], group.high[at]
            numbers = [self._text(x, high - low) for x in (group.projected[at], low, high)]
            lines.append(f"{label}: {numbers[0]}  ({numbers[1]} to {numbers[2]})")
        return "\n".join(lines + ([self.said_of_groups] if self.said_of_groups else [])) + mark


def _at(values: Sequence[float] | None, place: int) -> float | None:
    return None if values is None else values[place]


def _p(group: GroupAnswer, at: int) -> float:
    return 1.0 if group.p_values is None else group.p_values[at]
