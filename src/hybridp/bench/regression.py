"""How good will a regression be, and what should local people be asked? Predictions from public numbers.

>>> plan = plan_regression(n=100_000, opt_in=0.02, predictors=4, guarantee=PureDP(1.0), residual_sd=0.1)
>>> plan.form, plan.errors["steered"] < min(plan.errors["tcm-only"], plan.errors["plain"])
('steered', True)
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridp.blend.regression import Score, deviation, forecast
from hybridp.errors import must
from hybridp.protocols.mean import noise_level
from hybridp.protocols.regression import FormName, RegressionStudy
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.regression import LADDER, MOST_PREDICTORS, KindName, NoisyRounds, Question, Trusted
from hybridp.public.vector import VectorBounds
from hybridp.public.vector_noise import VectorNoiseName
from hybridp.release import style
from hybridp.release.result import Result, Words, people_words, plan_document

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["RegressionPlan", "plan_regression"]

Guarantee = PureDP | ApproxDP


@dataclass(frozen=True)
class RegressionPlan(Result):
    """The root mean squared error of a slope, columns scaled to [-1, 1], by what local people are asked."""

    target: str
    kind: str
    predictors: int
    n: int
    opt_in: float
    errors: dict[str, float]
    noise: str
    reports: dict[str, str]
    guarantee: Guarantee
    trusted_guarantee: Guarantee | None
    assumes: tuple[str, ...]
    stated: FormName = "best"

    @property
    def trusted_people(self) -> int:
        return round(self.n * self.opt_in)

    @property
    def form(self) -> str:
        """The way that was stated, or else that of the least predicted error."""
        if self.stated in self.errors:
            return self.stated
        return min(self.errors, key=lambda name: self.errors[name])

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        told = {
            "task": "regression",
            "predicted": {"forms": {name: {"rmse_slope": error} for name, error in self.errors.items()}},
            "form": self.form,
            "kind": self.kind,
            "predictors": self.predictors,
            "mechanisms": {"trusted": self.noise, "local": self.reports},
            "assumes": list(self.assumes),
        }
        return plan_document(
            {self.target: {"regression": told}},
            people=self.n,
            opt_in=self.opt_in,
            epsilon=self.guarantee.epsilon,
            delta=self.guarantee.delta,
            trusted_epsilon=None if self.trusted_guarantee is None else self.trusted_guarantee.epsilon,
        )

    def to_frame(self) -> DataFrame:
        """One row a way to ask local people; needs pandas."""
        import pandas as pd

        return pd.DataFrame({"rmse_slope": self.errors.values()}, index=pd.Index(list(self.errors), name="form"))

    @property
    def _title(self) -> str:
        people = people_words(self.trusted_people, self.n - self.trusted_people)
        promise = f"epsilon {self.guarantee.epsilon:g}"
        promise += f", delta {self.guarantee.delta:g}" if self.guarantee.delta else ""
        return f"Expected error of a {self.kind} regression on {self.predictors} columns: {people}, {promise}"

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows = [(name, f"{error:.4g}", "best" if name == self.form else "") for name, error in self.errors.items()]
        remarks = tuple(f"Assumes: {a}." for a in self.assumes)
        return Words(self._title, ("local people are asked", "error of a slope", ""), rows, remarks)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The predicted error of each way; needs matplotlib."""
        ax = style.new_axes(ax, 7.2, 1.6 + 0.4 * len(self.errors))
        style.sized_rows(ax, [(name, e, f"{e:.3g}") for name, e in self.errors.items()], strong=[self.form])
        ax.set_xlabel("root mean squared error of a slope, columns scaled to [-1, 1]")
        style.dress(ax, self._title, "Further left is better.")
        return ax


def plan_regression(
    *,
    n: int,
    opt_in: float,
    predictors: int,
    guarantee: Guarantee,
    kind: KindName = "linear",
    column_sd: float = 0.5,
    residual_sd: float = 0.2,
    clip: float | None = None,
    trusted_guarantee: Guarantee | None = None,
    noise: VectorNoiseName = "best",
    target: str = "target",
    stated: FormName = "best",
) -> RegressionPlan:
    """Predicted errors of a slope: trusted people alone, and both groups by what local people are asked.

    All in unit coordinates, where a column's bounds are -1 and 1: the columns are guessed to be centred and
    uncorrelated with the standard deviation `column_sd`, and the residuals to have `residual_sd`. The predictors
    together are guessed to explain as much as the residuals leave.
    """
    must(n >= 1, "n", "must be at least 1", n)
    ok = 1 <= predictors <= MOST_PREDICTORS
    must(ok, "on", f"must name 1 to {MOST_PREDICTORS} columns", predictors)
    must(0 <= opt_in <= 1, "opt-in", "must lie between 0 and 1", opt_in)
    must(0 < column_sd <= 1, "column-sd", "must be positive and at most 1 (half of the bounds' range)", column_sd)
    must(0 < residual_sd <= 1, "residual-sd", "must be positive and at most 1 (half of the bounds' range)", residual_sd)
    k = round(n * opt_in)
    lower = 0.0 if kind == "logistic" else -1.0
    study = RegressionStudy(
        VectorBounds.of([-1.0] * predictors + [lower], [1.0] * (predictors + 1)),
        guarantee, kind, stated, noise=noise, trusted_guarantee=trusted_guarantee, clip=clip,
    )  # fmt: skip
    local = n - k
    trusted = study.trusted(k, local)
    score = _guess(study, trusted, max(k, 1), predictors, column_sd, residual_sd)
    # What about a twentieth of normal distances exceed.
    away = 1.96 * deviation(score)
    place = min(range(len(LADDER)), key=lambda g: abs(LADDER[g] - away)) if trusted.scale else None
    errors: dict[str, float] = {}
    reports: dict[str, str] = {}

    def slope_error(covariance: Any) -> float:
        return math.sqrt(float(np.mean(np.diag(covariance)[1:])))

    asked: dict[str, Question] = {}
    if local and k:
        asked["steered"] = study.question("steered", score, local, place=place)
    if local and kind == "linear":
        asked["plain"] = study.question("plain", None, local)
    found = forecast(score, asked, local) if k else {}
    errors = {name: slope_error(fit.covariance) for name, fit in found.items()}
    if local and not k and kind == "linear":
        large = replace(score, score_noise=score.score_noise * 1e12, slope_noise=score.slope_noise * 1e12)
        errors["plain"] = slope_error(forecast(large, {"plain": asked["plain"]}, local)["plain"].covariance)
    must(bool(errors), "opt-in", "must leave somebody trusted for a logistic regression", opt_in)
    reports = {name: question.invite.reports.name for name, question in asked.items()}
    return RegressionPlan(
        target=target,
        kind=kind,
        predictors=predictors,
        n=n,
        opt_in=opt_in,
        errors=errors,
        noise=noise_level(trusted.noise)[0],
        reports=reports,
        guarantee=guarantee,
        trusted_guarantee=trusted_guarantee,
        assumes=(
            f"columns are centred and uncorrelated, with a standard deviation of {column_sd:g} half-ranges",
            f"residuals have one of {residual_sd:g} half-ranges" if kind == "linear" else "the odds are nearly even",
            "the groups are alike",
        ),
        stated=stated,
    )


def _guess(study: RegressionStudy, trusted: Trusted, k: int, d: int, column_sd: float, residual_sd: float) -> Score:
    """What the trusted people would say of the guessed data, without the luck of a draw."""
    p = d + 1
    second = np.diag([1.0, *[column_sd**2] * d])
    beta = np.array([0.0, *[residual_sd / (column_sd * math.sqrt(d))] * d])
    sizes = (p + 1) * (p + 2) // 2 - 1 if study.kind == "linear" else p + p * (p + 1) // 2
    said = NoisyRounds(study.kind, k, ((0,) * sizes,), trusted.noise, ((0.0,) * p,))
    if study.kind == "linear":
        _, noise = said.second
        at = second @ beta
        return Score(k, np.zeros(p), at, second, noise[:p, p], noise[:p, :p], residual_sd**2 * second, residual_sd**2)
    _, score_noise, _, slope_noise = said.last
    return Score(k, np.zeros(p), np.zeros(p), second / 4, score_noise, slope_noise, second / 4, 0.25)
