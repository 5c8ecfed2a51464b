"""How good will several statistics of one number be? The mean's plan and the distribution's, at their own parts."""

from __future__ import annotations

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

__all__ = ["USED", "NumberPlan"]

USED = ("adaptive", "hybrid", "unified", "tcm-only", "lm-only")
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
