"""How good will a regression be, and what should local people be asked? Predictions from public numbers.

>>> plan = plan_regression(n=100_000, opt_in=0.02, predictors=4, guarantee=PureDP(1.0), residual_sd=0.1)
>>> plan.facts["form"], plan.errors["steered"] < min(plan.errors["tcm-only"], plan.errors["plain"])
('steered', True)
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from hybridp.blend.regression import Score, deviation, forecast
from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.regression import LADDER, MOST_PREDICTORS, KindName, NoisyRounds, Question, Trusted
from hybridp.public.vector import VectorBounds, VectorNoiseName
from hybridp.release.plan import Plan, planned, predicted
from hybridp.tasks.protections import noise_level
from hybridp.tasks.regression import FormName, RegressionStudy

__all__ = ["plan_regression"]

Guarantee = PureDP | ApproxDP


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
) -> Plan:
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
    facts = predicted(
        "regression",
        more={"forms": {name: {"rmse_slope": error} for name, error in errors.items()}},
        form=stated if stated in errors else min(errors, key=lambda name: errors[name]),
        kind=kind,
        predictors=predictors,
        mechanisms={"trusted": noise_level(trusted.noise)[0], "local": reports},
        assumes=[
            f"columns are centred and uncorrelated, with a standard deviation of {column_sd:g} half-ranges",
            f"residuals have one of {residual_sd:g} half-ranges" if kind == "linear" else "the odds are nearly even",
            "the groups are alike",
        ],
    )
    own = None if trusted_guarantee is None else trusted_guarantee.epsilon
    return planned({target: {"regression": facts}}, n, opt_in, guarantee, own)


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
