"""How good will a mean of many columns be? The plan of a mean, column by column, from public numbers.

Each column is blended as a mean of its own; what differs is the noise. Where a device reports some of the columns, the
mean of a column is over those who drew it (`Mechanisms.share`), and the noise of the trusted sums grows with the
dimension.

>>> box = VectorBounds.of([0] * 10, [1] * 10)
>>> plan = plan_vector_mean(n=50_000, opt_in=0.05, bounds=box, guarantee=PureDP(1.0), sd=(0.2,))
>>> plan.overall("adaptive") < min(plan.overall("tcm-only"), plan.overall("full-lm"))
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from hybridp.bench.planning import (
    PLAIN,
    PLANNED,
    SAID_OF_EVERYONE,
    Mechanisms,
    PlanName,
    Prediction,
    check_people,
    leashed,
    predictions,
)
from hybridp.errors import InvalidInput, must
from hybridp.public.anchoring import VECTOR_SPREAD_SHARE, Anchoring, vector_anchoring
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import ApproxDP, PureDP, split_off
from hybridp.public.mechanisms import DiscreteLaplace
from hybridp.public.randomisers import Randomiser
from hybridp.public.vector import HALF, VectorBounds
from hybridp.public.vector_noise import VectorNoiseName, vector_noise
from hybridp.public.vector_randomisers import ScalarReports, VectorLocalName, VectorReports, vector_reports
from hybridp.release import style
from hybridp.release.result import Result, Words, plan_document

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["VectorPlan", "plan_vector_mean"]

Guarantee = PureDP | ApproxDP


@dataclass(frozen=True)
class VectorPlan(Result):
    """Every estimator's predicted error of every column, and what the predictions assume."""

    n: float
    opt_in: float
    names: tuple[str, ...]
    bounds: VectorBounds
    sd: tuple[float, ...]
    sd_assumed: bool
    guarantee: Guarantee
    trusted_epsilon: float
    noise: str
    reports: VectorReports
    columns: tuple[tuple[Prediction, ...], ...]
    assumes: tuple[str, ...]
    default: Anchoring
    reach: float | None
    """The leash of "alike" in standard errors of the groups' difference, the longest of the columns'."""
    most: tuple[float, ...] | None
    """How far from each trusted mean any reports could move "alike"; None where it is the plain blend."""
    question: str = "vector"

    def column(self, index: int, name: PlanName) -> Prediction:
        """One estimator's prediction for one column."""
        return self.columns[index][PLANNED.index(name)]

    def overall(self, name: PlanName) -> float:
        """The root mean squared error over all columns, against these people's means, in half-ranges of the bounds."""
        errors = (self.column(j, name).mse / b.half**2 for j, b in enumerate(self.bounds.bounds))
        return math.sqrt(math.fsum(errors) / len(self.names))

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints. Lists have one entry a column."""
        d = range(len(self.names))
        reported = self.reports.reported if isinstance(self.reports, ScalarReports) else len(self.names)
        told = {
            "task": "vector-mean",
            "predicted": {
                "estimators": {
                    name: {
                        "overall_rmse_in_half_ranges": self.overall(name),
                        "weight": [self.column(j, name).weight for j in d],
                        "mse": [self.column(j, name).mse for j in d],
                        "R": [self.column(j, name).over_best for j in d],
                        "rmse_population": [self.column(j, name).rmse for j in d],
                    }
                    for name in PLANNED
                },
                "default": {"estimator": self.used},
                "alike": {
                    "estimator": self.alike,
                    "spread": self.default.spread if self.most is not None else None,
                    "reach": self.reach,
                    "cost": self.default.cost if math.isfinite(self.default.cost) else None,
                    "most": None if self.most is None else list(self.most),
                },
            },
            "columns": list(self.names),
            "bounds": {
                "lower": [b.lower for b in self.bounds.bounds],
                "upper": [b.upper for b in self.bounds.bounds],
                "norm": self.bounds.norm,
                "radius": self.bounds.radius,
            },
            "sd": {"used": list(self.sd), "worst_case": self.sd_assumed},
            "mechanisms": {"trusted": self.noise, "local": self.reports.name, "columns_reported": reported},
            "assumes": list(self.assumes),
        }
        return plan_document(
            {self.question: {"mean": told}},
            people=self.n,
            opt_in=self.opt_in,
            epsilon=self.guarantee.epsilon,
            delta=self.guarantee.delta,
            trusted_epsilon=self.trusted_epsilon,
        )

    def to_frame(self) -> DataFrame:
        """One row a column, one entry an estimator: the error of its mean, in its own unit; needs pandas."""
        import pandas as pd

        errors = {name: [self.column(j, name).rmse for j in range(len(self.names))] for name in PLANNED}
        return pd.DataFrame(errors, index=pd.Index(self.names, name="column"))

    @property
    def used(self) -> PlanName:
        """The estimator that a release of so many people takes, where none is stated."""
        return "everyone"

    @property
    def alike(self) -> PlanName:
        """What "alike" is for so many people."""
        return "adaptive" if self.most is None else "anchored"

    @property
    def said_of_default(self) -> str:
        """Which estimator that is, and why; and what "alike" would be, and how far reports can move it."""
        return f"{SAID_OF_EVERYONE}. {self._said_of_alike}"

    @property
    def _said_of_alike(self) -> str:
        said = self.default.of_vector(self.reach)
        if self.most is None:
            return said
        wide = max(m / b.width for m, b in zip(self.most, self.bounds.bounds, strict=True))
        return f"{said}: here by at most {wide:.3g} of a column's range"

    @property
    def _title(self) -> str:
        promise = f"epsilon {self.guarantee.epsilon:g}"
        promise += f", delta {self.guarantee.delta:g}" if self.guarantee.delta else ""
        trusting = f"{style.percent(self.opt_in, 3)} trusting"
        return f"Expected error of {len(self.names):,} means: {self.n:,.0f} people, {trusting}, {promise}"

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows = [(f"{PLAIN[name]} ({name})", f"{self.overall(name):.4g}") for name in PLANNED]
        columns = ("estimator", "expected error over all columns, in half-ranges")
        remarks = (*(f"Assumes: {a}." for a in self.assumes), f"{self.said_of_default}.")
        return Words(self._title, columns, rows, remarks)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Every estimator's error over all columns, in half-ranges of their bounds; needs matplotlib."""
        rows = [(PLAIN[name], self.overall(name), style.percent(self.overall(name), 3)) for name in PLANNED]
        ax = style.new_axes(ax, 7.2, 1.7 + 0.3 * len(rows))
        style.sized_rows(ax, rows, strong=(PLAIN[self.used],))
        style.plain_numbers(ax.xaxis, percents=True)
        ax.set_xlabel("error, as a share of a column's half-range")
        about = f"Over all columns together; {self.noise} noise, {self.reports.name} reports. Further left is better."
        style.dress(ax, self._title, about)
        return ax


def plan_vector_mean(
    *,
    n: float,
    opt_in: float,
    bounds: VectorBounds,
    guarantee: Guarantee,
    names: Sequence[str] = (),
    sd: Sequence[float] | None = None,
    noise: VectorNoiseName = "best",
    local: VectorLocalName = "best",
    trusted_guarantee: Guarantee | None = None,
    answering: float = 1.0,
) -> VectorPlan:
    """Predict every estimator's error in every column. Of local people a share `answering` is asked.

    `sd` holds one standard deviation, or one a column, in the columns' own units, of values clipped to the bounds;
    None for the largest that all columns can have at once.
    """
    check_people(n, opt_in)
    d, reach = bounds.dimensions, bounds.reach
    named = tuple(names) or tuple(f"column {j + 1}" for j in range(d))
    must(len(named) == d, "names", f"must be as many as the bounds ({d})", len(named))
    must(sd is None or len(sd) in (1, d), "sd", f"must be one number, or one for each of the {d} columns", sd)
    square = min(1.0, bounds.ratio**2 / d)
    halves = [b.half * reach for b in bounds.bounds]
    sizes = [h * math.sqrt(square) for h in halves] if sd is None else list(sd) * (d if len(sd) == 1 else 1)
    for size, half in zip(sizes, halves, strict=True):
        ok = math.isfinite(size) and 0 < size <= half * (1 + 1e-12)
        must(ok, "sd", f"must be positive and at most {half:g} for these bounds", size)
    promise, k = trusted_guarantee or guarantee, round(n * opt_in)
    described = vector_noise(promise, bounds, noise)
    reports = vector_reports(local, guarantee, d, bounds.ratio)
    share = reports.share * answering
    kind = "laplace" if isinstance(described, DiscreteLaplace) else "gaussian"
    law = cast(Randomiser, reports.randomiser if isinstance(reports, ScalarReports) else reports)
    stated = None if sd is None else [size / b.half for size, b in zip(sizes, bounds.bounds, strict=True)]
    default = vector_anchoring(
        promise, noise, bounds, [(reports, round((round(n) - k) * answering))], stated, trusted=k
    )
    paid = described
    if default.spread == "measured":
        with suppress(InvalidInput):
            paid = vector_noise(split_off(promise, VECTOR_SPREAD_SHARE)[0], bounds, noise)
    seen: dict[tuple[float, float], tuple[Prediction, ...]] = {}
    leashes: dict[tuple[float, float], tuple[float, float]] = {}
    found = []
    for b, size in zip(bounds.bounds, sizes, strict=True):
        key = (b.half, size)  # where the middle of the bounds lies changes no error
        if key not in seen:
            reached = Bounds(-b.half * reach, b.half * reach)
            per_sum = described.variance * (b.half / HALF) ** 2
            paying = paid.variance * (b.half / HALF) ** 2
            mechanisms = Mechanisms(reached, law, per_sum, None, reports.name, kind, share, square, paying)
            seen[key] = predictions(mechanisms, n, opt_in, size, size)
            spread = size if default.variance is None else b.half * reach * math.sqrt(default.variance)
            leash, step, _ = leashed(mechanisms, mechanisms.setting(n, opt_in, spread**2))
            longest = float(leash) if default.variance is None else default.reach or 0.0
            leashes[key] = longest, longest * float(step)
        found.append(seen[key])
    return VectorPlan(
        n=n,
        opt_in=opt_in,
        names=named,
        bounds=bounds,
        sd=tuple(sizes),
        sd_assumed=sd is None,
        guarantee=guarantee,
        trusted_epsilon=(trusted_guarantee or guarantee).epsilon,
        noise=kind,
        reports=reports,
        columns=tuple(found),
        assumes=_assumptions(sd is None, law),
        default=default,
        reach=None if default.reach is None else max(leash for leash, _ in leashes.values()),
        most=None if default.reach is None else tuple(leashes[b.half, size][1] for b, size in
                                                      zip(bounds.bounds, sizes, strict=True)),
    )  # fmt: skip


def _assumptions(assumed: bool, law: Randomiser) -> tuple[str, ...]:
    found = ["both groups have the same distribution"]
    if assumed:
        found.append("no sd was given: the largest that all columns can have at once is assumed")
    if law.variance_terms[1]:
        found.append("the local noise depends on the values; the largest that all columns can have at once is assumed")
    return tuple(found)
