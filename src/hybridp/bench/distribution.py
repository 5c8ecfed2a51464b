"""How good will quantiles be? Predictions from public numbers, before anyone is asked.

What would be seen on average, if people's numbers were normal, goes through the estimator itself: the errors are those
that its intervals would state, which are wider than needed where a distribution is smooth.

>>> from hybridp.public.budgets import PureDP
>>> plan = plan_distribution(n=20_000, opt_in=0.05, study=DistributionStudy(Bounds(0, 100), PureDP(1.0)))
>>> [name for name in plan.ranks]
['steered', 'everyone', 'hybrid', 'tcm-only', 'lm-only']
>>> plan.ranks["hybrid"][0] < min(plan.ranks["tcm-only"][0], plan.ranks["lm-only"][0])
True
>>> plan.ranks["everyone"][0] > plan.ranks["hybrid"][0]    # the price of not taking the groups for alike
True
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridp.blend.distribution import Shape, blended
from hybridp.errors import must
from hybridp.protocols.distribution import DistributionStudy, stretches
from hybridp.protocols.heard import Heard, hear
from hybridp.public.bounds import Bounds
from hybridp.public.distribution import BINS, CELLS, PHASES, BinnedReports, WindowReports, report_bins
from hybridp.public.randomisers import WORD
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.release import style
from hybridp.release.result import Result, Words, people_words, plan_document

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["DistributionPlan", "plan_distribution"]


@dataclass(frozen=True)
class DistributionPlan(Result):
    """Standard errors of quantiles, by who is heard: in shares of people (`ranks`) and in the number's own unit."""

    question: str
    study: DistributionStudy
    n: int
    opt_in: float
    quantiles: tuple[float, ...]
    ranks: dict[str, tuple[float, ...]]
    values: dict[str, tuple[float, ...]]
    assumes: tuple[str, ...]
    others: dict[str, dict[str, tuple[float, ...]]]
    """Standard errors of the other statistics that the study asks for, by who is heard."""

    def _error(self, name: str) -> float:
        """Over all quantiles, in shares of people."""
        told = self.ranks.get(name, ())
        return math.sqrt(sum(x**2 for x in told) / len(told)) if told else math.inf

    def _alone(self, *, phased: bool) -> bool:
        trusted = round(self.n * self.opt_in)
        return replace(self.study, estimator="alike").trusted_alone(trusted, self.n - trusted, phased=phased)

    @property
    def choice(self) -> str:
        """What to do: "steered", in phases, or "tcm-only" where nobody is local."""
        return "steered" if math.isfinite(self._error("steered")) else "tcm-only"

    @property
    def in_one_go(self) -> str:
        """What a release does where nobody can be asked later, unless told otherwise."""
        return "everyone" if 0 < self.opt_in < 1 else "tcm-only" if self.opt_in else "lm-only"

    @property
    def why(self) -> str:
        """The choice and its reason, in a sentence."""
        said = {name: f"{self._error(name):.2%}" for name in ("steered", "everyone", "hybrid", "tcm-only", "lm-only")}
        phases = ", ".join(f"{100 * part:g}" for part in PHASES)
        errors = (
            f"predicted rank errors are {said['steered']} of people steered (local people asked in phases of {phases} "
            f"%), {said['everyone']} in one go, {said['hybrid']} if the groups are taken for alike, {said['tcm-only']} "
            f"by trusted and {said['lm-only']} by local people alone"
        )
        if self.choice == "tcm-only":
            return "trusted people alone: nobody is local"
        alone = "; if the groups are alike, trusted people alone are about as good" if self._alone(phased=True) else ""
        return f"steer, and where that cannot be, both groups in one go, each by its number of people{alone}: {errors}"

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints. Lists have one entry a quantile."""
        told = {
            "task": "quantiles",
            "predicted": {
                "estimators": {
                    name: {"rank_error": list(self.ranks[name]), "rmse_population": list(self.values[name])}
                    for name in self.ranks
                },
                "default": {"estimator": self.in_one_go},
            },
            "at": list(self.study.at),
            "quantiles": list(self.quantiles),
            "assumes": list(self.assumes),
            "choice": self.choice,
            "why": self.why,
        }
        trusted = self.study.trusted_guarantee
        found = {"quantiles": told} if self.study.at else {}
        for name, errors in self.others.items():
            heard = {who: {"rmse_population": list(e) if len(e) > 1 else e[0]} for who, e in errors.items()}
            found[name] = {"task": name, "predicted": {"estimators": heard}, "assumes": list(self.assumes)}
        return plan_document(
            {self.question: found},
            people=self.n,
            opt_in=self.opt_in,
            epsilon=self.study.guarantee.epsilon,
            delta=self.study.guarantee.delta,
            trusted_epsilon=None if trusted is None else trusted.epsilon,
        )

    def to_frame(self) -> DataFrame:
        """One row a quantile: where it is assumed to be, and its standard errors in the number's unit; needs pandas."""
        import pandas as pd

        return pd.DataFrame({"at": self.quantiles, **self.values}, index=pd.Index(self.study.at, name="quantile"))

    @property
    def _title(self) -> str:
        promise = self.study.guarantee
        told = f"epsilon {promise.epsilon:g}" + (f", delta {promise.delta:g}" if promise.delta else "")
        trusted = round(self.n * self.opt_in)
        return f"Expected error of quantiles of {self.question}: {people_words(trusted, self.n - trusted)}, {told}"

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows = [
            (f"{q:g}", f"{x:,.6g}", *(f"{self.ranks[m][i]:.2%}, {self.values[m][i]:,.4g}" for m in self.ranks))
            for i, (q, x) in enumerate(zip(self.study.at, self.quantiles, strict=True))
        ]
        columns = ("quantile", "at about", *(f"{name}: share of people, value" for name in self.ranks))
        said = (f"Best: {self.why}.",) if self.study.at else ()
        return Words(self._title, columns, rows, (*said, *(f"Assumes: {a}." for a in self.assumes)))

    def plot(self, ax: Axes | None = None) -> Axes:
        """The standard error of each quantile, in shares of people, by who is heard; needs matplotlib."""
        ax = style.new_axes(ax, 7.2, 2.0 + 0.28 * len(self.study.at))
        style.heard_rows(ax, [style.percent(q) for q in self.study.at], self.ranks)
        style.dress(
            ax, self._title, "A row is the number that this share of people is at or below. Further left is better."
        )
        return ax


def plan_distribution(
    *,
    n: int,
    opt_in: float,
    study: DistributionStudy,
    mean: float | None = None,
    sd: float | None = None,
    question: str = "value",
) -> DistributionPlan:
    """Predicted errors of the quantiles of a study, for a normal distribution: by default a sixth of the range wide."""
    from scipy.special import ndtr, ndtri

    must(n >= 1, "n", "must be at least 1", n)
    must(0 <= opt_in <= 1, "opt-in", "must lie between 0 and 1", opt_in)
    bounds: Bounds = study.bounds
    centre = bounds.centre if mean is None else mean
    spread = bounds.width / 6 if sd is None else sd
    must(bounds.lower <= centre <= bounds.upper, "mean", "must lie between the bounds", centre)
    must(0 < spread <= bounds.half, "sd", f"must be positive and at most {bounds.half:g}", spread)

    def share(place: Any) -> Any:
        return np.where(
            np.asarray(place) >= 1, 1.0, ndtr((bounds.lower + bounds.width * np.asarray(place) - centre) / spread)
        )

    trusted = round(n * opt_in)
    crowd = _Average(study, Shape.known(share(np.linspace(0, 1, CELLS + 1))), trusted, n - trusted)
    ranks: dict[str, tuple[float, ...]] = {}
    values: dict[str, tuple[float, ...]] = {}
    others: dict[str, dict[str, tuple[float, ...]]] = {}
    quantiles = tuple(float(min(max(centre + spread * ndtri(q), bounds.lower), bounds.upper)) for q in study.at)
    for name, heard in crowd.heard().items():
        errors = [math.inf] * len(study.at)
        if heard.counted or heard.local:
            alike = name in ("hybrid", "tcm-only", "lm-only")
            known = heard.known(replace(study, estimator="hybrid" if alike else "everyone"))
            shape = blended(known, alone=False).both
            errors = [shape.below((x - bounds.lower) / bounds.width)[1] for x in quantiles]
            for statistic, told_errors in _other_errors(study, shape).items():
                others.setdefault(statistic, {})[name] = told_errors
        slopes = [math.exp(-(((x - centre) / spread) ** 2) / 2) / spread / math.sqrt(2 * math.pi) for x in quantiles]
        ranks[name] = tuple(errors)
        values[name] = tuple(e / f for e, f in zip(errors, slopes, strict=True))
    law = f"numbers are normal, of mean {centre:g} and standard deviation {spread:g}"
    smooth = "errors of a smooth distribution: intervals do not assume one, and may be wider"
    assumes = (law, "the groups are alike, which everyone and steered do not need", smooth)
    return DistributionPlan(question, study, n, opt_in, quantiles, ranks, values, assumes, others)


def _other_errors(study: DistributionStudy, shape: Shape) -> dict[str, tuple[float, ...]]:
    """Standard errors of what is asked for beside quantiles."""
    found = {name: tuple(shape.between(*ends)[1] for ends in at) for name, (_, at) in stretches(study).items()}
    if study.spread:
        low, width = study.bounds.lower, study.bounds.width
        spread, error = shape.moments()["variance"]
        found["variance"] = (error * width**2,)
        found["sd"] = (error * width / 2 / math.sqrt(spread),)
        if low >= 0:
            found["gini"] = (shape.gini(low / width)[1],)
    return found


@dataclass(frozen=True)
class _Average:
    """People of whom everything is told as often as it is on average, for a distribution function that is known."""

    study: DistributionStudy
    true: Shape
    trusted: int
    local: int

    def heard(self) -> dict[str, Heard]:
        """What would be heard, by who is heard and how."""
        study, reports = self.study, self._reports() if self.local else None
        found = {
            "everyone": hear(replace(study, estimator="everyone"), self.trusted, reports, self._count),
            "hybrid": hear(replace(study, estimator="hybrid"), self.trusted, reports, self._count),
            "tcm-only": hear(replace(study, estimator="tcm-only"), self.trusted, None, self._count),
            "lm-only": hear(replace(study, estimator="lm-only"), 0, reports, self._count),
        }
        if not (study.at and self.local):
            return found
        steered = found["tcm-only"]
        for part in PHASES:
            windows = steered.windows(replace(study, estimator="everyone"))
            told = (self._answers(window, part * self.local / len(windows)) for window in windows)
            steered = replace(steered, answered=(*steered.answered, *told))
        return {"steered": steered, **found}

    def _reports(self) -> BinnedReports:
        drawn, ends = self.study.invite.randomiser, self.true.mean
        cells = np.diff(ends)
        cells[0] += ends[0]
        counts = self.local * (report_bins(drawn, CELLS).matrix @ cells)
        return BinnedReports(np.rint(counts).astype(np.int64), drawn)

    def _count(self, places: tuple[float, ...], noise: CountNoise) -> NoisyCounts:
        shares = np.diff([0.0, *(self.true.below(place)[0] for place in places), 1.0])
        counts = np.rint(self.trusted * noise.steps * shares).astype(np.int64)
        return NoisyCounts(self.trusted, tuple(counts[: noise.draws].tolist()), noise)

    def _answers(self, window: tuple[float, float], people: float) -> WindowReports:
        edges = np.linspace(*window, BINS + 1)
        below = np.interp((edges[1:] + edges[:-1]) / 2, self.true.ends, self.true.mean)
        q, many = self.study.bit.flips / WORD, max(people / BINS, 1.0)
        above = np.rint(many * (q + (1 - 2 * q) * (1 - below))).astype(np.int64)
        return WindowReports(window, round(many) - above, above, self.study.bit)
