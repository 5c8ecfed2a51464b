"""A published regression: coefficients, their errors and intervals, whether the groups agree, and the receipt."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from hybridp.release import style
from hybridp.release.document import release_document, statistic
from hybridp.release.receipt import Receipt, plain
from hybridp.release.result import (
    Result,
    Words,
    differing_in,
    each_in_words,
    interval_words,
    people_words,
    promise_words,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["RegressionGroup", "RegressionRelease"]

Numbers = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class RegressionGroup:
    """One group's own noisy coefficients; already private."""

    people: int
    coefficients: Numbers | None = None
    standard_errors: Numbers | None = None


@dataclass(frozen=True, slots=True)
class RegressionRelease(Result):
    """Coefficients in the columns' own units (log-odds for a logistic one), the intercept first.

    Standard errors and intervals contain the drawing of people, both groups' noise and, of a steered question, the
    error of the trusted people's line that it was about. They are infinite where the spread of the columns cannot be
    told from the noise. Each interval covers its own coefficient at the stated level or, when `joint`, all of them
    together. `expected` is the root mean squared error that each way to ask promised before local people were asked, of
    all coefficients together, columns scaled to [-1, 1].
    """

    target: str
    names: tuple[str, ...]
    kind: str
    form: str
    estimate: Numbers
    standard_errors: Numbers
    low: Numbers
    high: Numbers
    level: float
    joint: bool
    trusted: RegressionGroup
    local: RegressionGroup
    p_values: Numbers | None
    expected: dict[str, float]
    clip: float | None
    totals: tuple[tuple[int, ...], ...]
    place: int | None
    noise: str
    reports: str
    receipt: Receipt

    @property
    def simulated(self) -> bool:
        return self.receipt.simulated

    @property
    def people(self) -> int:
        return self.trusted.people + self.local.people

    @property
    def test_level(self) -> float:
        return round(1 - self.level, 12)

    @property
    def disagreeing(self) -> tuple[str, ...]:
        """The coefficients in which the groups disagree, for all of them together: at 5 % beside 95 % intervals."""
        found = zip(self.names, self.p_values or (1.0,) * len(self.names), strict=True)
        return tuple(name for name, p in found if p < self.test_level)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints. Lists have one entry a coefficient."""
        own, told = self.trusted.coefficients, self.local.coefficients
        gaps = None if own is None or told is None else [a - b for a, b in zip(own, told, strict=True)]
        facts = statistic(
            "regression",
            list(self.estimate),
            (list(self.low), list(self.high)),
            own,
            told,
            columns=list(self.names),
            kind=self.kind,
            form=self.form,
            joint=self.joint,
            standard_error=list(self.standard_errors),
            groups={
                name: {"people": group.people, "standard_error": group.standard_errors}
                for name, group in (("trusted", self.trusted), ("local", self.local))
            },
            disagreement={
                "difference": gaps,
                "p_value": self.p_values,
                "columns": list(self.disagreeing),
                "test_level": self.test_level,
            },
            expected=self.expected,
            clip=self.clip,
            noisy_totals=self.totals,
            noisy_place=self.place,
            mechanisms={"trusted": self.noise, "local": self.reports},
        )
        return release_document({self.target: {"regression": plain(facts)}}, level=self.level, receipt=self.receipt)

    def to_frame(self) -> DataFrame:
        """One row a coefficient; needs pandas, the extra "frames"."""
        import pandas as pd

        nothing = (None,) * len(self.names)
        return pd.DataFrame(
            {
                "coefficient": self.estimate,
                "standard_error": self.standard_errors,
                "low": self.low,
                "high": self.high,
                "trusted_coefficient": self.trusted.coefficients or nothing,
                "local_coefficient": self.local.coefficients or nothing,
                "p_value": self.p_values or nothing,
            },
            index=pd.Index(self.names, name="column"),
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """A dot and an interval for each coefficient, in its own unit, and where zero is; needs matplotlib."""
        ax = style.new_axes(ax, 7.2, 1.4 + 0.6 * len(self.names))
        rows = []
        for y, (name, x, low, high) in enumerate(zip(self.names, self.estimate, self.low, self.high, strict=True)):
            wide = high - low
            if not math.isfinite(wide):
                rows.append(style.Row(name, math.nan, -1.05, 1.05, "cannot be told from the noise", "unknown"))
                continue
            at, *ends = (style.shortly(v, wide) for v in (x, low, high))
            words = f"{at}  ({' to '.join(ends)})" + ("  groups differ" if name in self.disagreeing else "")
            reach = max(abs(low), abs(high)) or 1.0  # each on a scale of its own, with zero in the middle
            rows.append(style.Row(name, x / reach, low / reach, high / reach, words, at))
            ax.plot([0, 0], [y - 0.3, y + 0.3], color=style.QUIET, lw=1.2, zorder=1)
        style.interval_rows(ax, rows, beside=True)
        ax.set_xlim(-1.05, 1.05)
        ax.set_xticks([0], ["0"])
        people = people_words(self.trusted.people, self.local.people)
        all_of = "all true coefficients at once" if self.joint else "the true coefficient"
        said = interval_words(self.level, all_of, together=self.joint)
        style.dress(
            ax,
            f"{self.kind.capitalize()} regression of {self.target}: {people}, {promise_words(self.receipt)}",
            f"{said} Every coefficient has a scale of its own.",
            simulated=self.simulated,
        )
        return ax

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows = []
        alone = [g.coefficients or (None,) * len(self.names) for g in (self.trusted, self.local)]
        p_values = self.p_values or (None,) * len(self.names)
        for j, name in enumerate(self.names):
            wide, p = self.high[j] - self.low[j], p_values[j]
            numbers = [style.shortly(x, wide) for x in (self.estimate[j], self.low[j], self.high[j])]
            own = ["" if part[j] is None else style.shortly(float(part[j] or 0.0), wide) for part in alone]
            mine, others = (part[j] for part in alone)
            gap = "" if mine is None or others is None else style.shortly(float(mine) - float(others), wide)
            rows.append((name, *numbers, *own, gap, "" if p is None else f"{p:.3g}"))
        people = people_words(self.trusted.people, self.local.people)
        title = f"{self.kind.capitalize()} regression of {self.target}, {people}"
        words = each_in_words(
            title, ("column", "coefficient"), rows, self.level, joint=self.joint,
            said=differing_in(self.disagreeing, ""),
        )
        if math.isfinite(self.high[0] - self.low[0]):
            return words
        weak = "The spread of the columns cannot be told from the noise: the intervals have no ends."
        return replace(words, remarks=(*words.remarks, weak))
