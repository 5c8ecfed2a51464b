"""How good will statistics of one number be? The plans of its mean and its distribution, and of one group alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridp.bench.distribution import DistributionPlan
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.release import style
from hybridp.release.result import Result, Words, people_words

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["USED", "AlonePlan", "NumberPlan"]

USED = ("everyone", "adaptive", "hybrid", "unified", "tcm-only", "lm-only")
"""The estimators that plans predict, in the order in which one is used where it can be."""


@dataclass(frozen=True)
class NumberPlan(Result):
    """The statistics that are asked for, each with the error of every way to hear people."""

    question: str
    statistics: tuple[str, ...]
    n: int
    trusted: int
    guarantee: PureDP | ApproxDP
    mean: Any
    distribution: DistributionPlan | None
    everyone: int | None = None
    """How many people there are, where not all of them answer this question."""

    def _facts(self) -> dict[str, dict[str, Any]]:
        known: dict[str, dict[str, Any]] = {}
        if self.mean is not None:
            (told,) = self.mean.to_dict()["questions"].values()
            known["mean"] = told["mean"]
            errors = told["mean"]["predicted"]["estimators"]
            n = self.everyone or self.n
            scaled = {
                who: {"mse": e["mse"] * n**2, "rmse_population": e["rmse_population"] * n} for who, e in errors.items()
            }
            known["sum"] = {"task": "sum", "predicted": {"estimators": scaled}}
        if self.distribution is not None:
            (told,) = self.distribution.to_dict()["questions"].values()
            known |= told
        return {name: known[name] for name in self.statistics if name in known}

    def to_dict(self) -> dict[str, Any]:
        """The statistics of the question, as a study's plan tells them."""
        return {"questions": {self.question: self._facts()}}

    @property
    def _title(self) -> str:
        people = people_words(self.trusted, self.n - self.trusted)
        return f"Expected errors of {self.question}: {people}, epsilon {self.guarantee.epsilon:g}"

    def _rows(self) -> Iterator[tuple[str, float]]:
        """Every statistic's error, of several numbers the largest."""
        for name, facts in self._facts().items():
            errors = facts["predicted"]["estimators"]
            error = next(errors[one] for one in USED if one in errors)["rmse_population"]
            yield name, max(error) if isinstance(error, list) else error

    def to_frame(self) -> DataFrame:
        """One row a statistic; needs pandas, the extra "frames"."""
        import pandas as pd

        return pd.DataFrame(list(self._rows()), columns=["statistic", "rmse_population"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """The distribution's plan, or the mean's; needs matplotlib."""
        chosen = self.distribution if self.distribution is not None and self.distribution.study.at else self.mean
        if chosen is not None:
            drawn: Axes = chosen.plot(ax)
            return drawn
        ax = style.new_axes(ax, 7.2, 1.7 + 0.35 * len(self.statistics))
        style.sized_rows(ax, [(name, error, f"{error:,.4g}") for name, error in self._rows()])
        style.dress(ax, self._title, "Each in its own unit.")
        return ax

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows = [(name, f"{error:,.4g}") for name, error in self._rows()]
        return Words(f"{self._title}, each in its own unit", ("statistic", "standard error"), rows)


@dataclass(frozen=True)
class AlonePlan(Result):
    """A mean where everybody is in one group: its error from noise alone, and against the population."""

    question: str
    group: str
    people: int
    sd: float
    sd_assumed: bool
    noise_error: float
    mechanism: str

    @property
    def rmse(self) -> float:
        return math.hypot(self.noise_error, self.sd / math.sqrt(self.people))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        name = "tcm-only" if self.group == "trusted" else "lm-only"
        predicted = {"estimators": {name: {"mse": self.noise_error**2, "rmse_population": self.rmse}}}
        told = {
            "task": "mean",
            "predicted": predicted,
            "sd": {"used": self.sd, "worst_case": self.sd_assumed},
            "mechanisms": {self.group: self.mechanism},
        }
        return {"questions": {self.question: {"mean": told}}}

    def to_frame(self) -> DataFrame:
        """One row; needs pandas, the extra "frames"."""
        import pandas as pd

        return pd.DataFrame([(self.group, self.people, self.rmse)], columns=["group", "people", "rmse_population"])

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        title = f"Expected error of mean {self.question}: {self.people:,} people, all {self.group}"
        return Words(title, ("mechanism", "expected error"), [(self.mechanism, f"{self.rmse:,.4g}")])

    def plot(self, ax: Axes | None = None) -> Axes:
        """The error from noise alone, and against the population; needs matplotlib."""
        ax = style.new_axes(ax, 7.2, 2.2)
        errors = {"noise alone": self.noise_error, "against the population": self.rmse}
        style.sized_rows(ax, [(name, error, f"{error:,.4g}") for name, error in errors.items()])
        ax.set_xlabel("root mean squared error")
        style.dress(ax, self.in_words().title, f"By {self.mechanism}.")
        return ax
