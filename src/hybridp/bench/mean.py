"""How good will a mean be, of a number or of several columns? From public numbers, before anyone is asked for anything.

>>> from hybridp.bench.crowd import Guesses
>>> from hybridp.public.budgets import PureDP
>>> study = MeanTask(Bounds(0, 2.4e6), PureDP(1.0))
>>> plan = plan_mean(study, Crowd(250_000, 0.01, Guesses(sd=53_000)))
>>> plan.errors["kvh"] < min(plan.errors["tcm-only"], plan.errors["full-lm"])
True

Each column of a vector is blended as a mean of its own; what differs is the noise. Where a device reports some of the
columns, the mean of a column is over those who drew it (`Mechanisms.share`), and the noise of the trusted sums grows
with the dimension.

>>> box = VectorTask(VectorBounds.of([0] * 10, [1] * 10), PureDP(1.0))
>>> plan = plan_vector(box, Crowd(50_000, 0.05, Guesses(sd=[0.2] * 10)))
>>> overall = {name: told["overall_rmse_in_half_ranges"] for name, told in plan.estimators.items()}
>>> overall["adaptive"] < min(overall["tcm-only"], overall["full-lm"])
True
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.bench.crowd import PLAIN, SAID_OF_EVERYONE, Cells, Crowd, anchored, draw_curves
from hybridp.errors import InvalidInput, must
from hybridp.public import mean as theory
from hybridp.public.anchoring import (
    clipping_loss,
    leash,
)
from hybridp.public.budgets import split_off
from hybridp.public.lattice import Bounds
from hybridp.public.mean import NormalLaplace, posterior_variance, predicted_se, sum_noise
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.randomisers import LEVELS, Randomiser
from hybridp.public.shuffling import Mixing
from hybridp.public.vector import HALF, VectorBounds, vector_noise
from hybridp.release.plan import Plan, predicted
from hybridp.tasks.mean import MeanTask, VectorTask

__all__ = ["Mechanisms", "plan_mean", "plan_vector"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mechanisms(Cells):
    """The two noises as variances in the value's own unit: `per_sum` of the trusted sum, `noise_of` of one report.

    `sd` is that of the values. A `share` of the local people report this value (all, unless it is one column of many),
    and without a stated mean `square` is the largest mean square of the values, in half-ranges. `paid` is the trusted
    sum's variance where a part of the epsilon measures the spread, for an anchored blend. `mixed` is the randomiser of
    people who trust a mixer, and the share of them who report.
    """

    bounds: Bounds
    randomiser: Randomiser
    per_sum: float
    sd: float
    local_name: str
    noise_name: str
    mean: float | None = None
    share: float = 1.0
    square: float = 1.0
    paid: float | None = None
    mixed: tuple[Randomiser, float] | None = None

    @property
    def unit_mean(self) -> float:
        """The stated mean in the unit coordinate, or the middle."""
        return 0.0 if self.mean is None else (self.mean - self.bounds.centre) / self.bounds.half

    def noise_of(self, variance: ArrayLike) -> Floats:
        """Variance of a report; where it depends on the value, for the stated mean, or for the worst one."""
        constant, quadratic = self.randomiser.variance_terms
        square = np.minimum(1.0, np.asarray(variance) / self.bounds.half**2 + self.unit_mean**2)
        if self.mean is None:
            square = np.maximum(self.square, square)
        return np.asarray(self.bounds.half**2 * (constant + quadratic * square), dtype=np.float64)

    def setting(self, n: ArrayLike, c: ArrayLike, variance: ArrayLike | None = None) -> theory.Setting:
        """The papers' setting: where m of N people report, their mean has ``variance (1/m - 1/N)`` more noise."""
        spread = np.asarray(self.sd**2 if variance is None else variance)
        people = np.asarray(n, dtype=np.float64) * np.asarray(c, dtype=np.float64)
        noise_l = self.noise_of(spread) / self.share + spread * (1 / self.share - 1)
        return theory.Setting.of(n=n, c=c, variance=spread, noise_t=self.per_sum / people**2, noise_l=noise_l)

    def trusted(self, k: int) -> float:
        return k * k / (k * self.sd**2 + self.per_sum)

    def report(self, mixing: Mixing | None) -> float:
        own = self
        if mixing is not None:
            assert self.mixed is not None
            own = replace(self, randomiser=self.mixed[0], share=self.mixed[1])
        return own.share / (self.sd**2 + float(own.noise_of(self.sd**2)))

    def paying(self, s: theory.Setting) -> theory.Setting:
        """The setting in which a part of the trusted epsilon measures the spread."""
        return s if self.paid is None else replace(s, noise_t=s.noise_t * self.paid / self.per_sum)

    def leash(self, s: theory.Setting) -> tuple[Floats, Floats, Floats]:
        """Its length, what one standard error of the difference may move, ``V_T/sqrt(V_T + V_L)``, and what is lost."""
        held = self.paying(s)
        v_t = held.var_t / (held.c * held.n) + held.noise_t
        v_l = (held.var_l + held.noise_l) / ((1 - held.c) * held.n)
        laplace = held.noise_t * (self.noise_name == "laplace")
        reach, step = leash(v_t, v_l, laplace), np.asarray(v_t / np.sqrt(v_t + v_l))
        return reach, step, clipping_loss(reach, v_t, v_l, laplace) * step**2

    def weight(self, name: str, s: theory.Setting) -> Floats | None:
        """Of the trusted group; None where everybody is local."""
        match name:
            case "tcm-only":
                return np.asarray(1.0)
            case "lm-only":
                return np.asarray(0.0)
            case "everyone":
                return s.c
            case "pwh":
                # It balances the noise alone, and so does not know that fewer people report.
                return theory.pwh_weight(replace(s, noise_l=self.noise_of(s.var_t) / self.share))
            case "kvh" | "adaptive":
                return theory.kvh_weight(s)
            case "anchored":
                return theory.kvh_weight(self.paying(s))
        return None

    def squared_error(self, name: str, s: theory.Setting) -> Floats:
        """One estimator's error against the mean of these people."""
        weight = self.weight(name, s)
        if weight is None:
            return theory.full_lm(s)
        if name == "adaptive":
            return _adaptive_error(self, s)
        if name == "anchored":
            return theory.hybrid(self.paying(s), weight) + self.leash(s)[2]
        return theory.hybrid(s, weight)

    def predictions(self, crowd: Crowd, low: float | None = None) -> dict[str, dict[str, Any]]:
        """Every estimator's error for the standard deviation, and its range from a `low` one on.

        `mse` is against the mean of these n people, `rmse_population` against that of the population they come from.
        """
        s = self.setting(crowd.n, crowd.opt_in)
        s_low = None if low is None else self.setting(crowd.n, crowd.opt_in, low**2)
        result = {}
        for name in PLAIN:
            mse, weight = float(self.squared_error(name, s)), self.weight(name, s)
            other = mse if s_low is None else float(self.squared_error(name, s_low))
            result[name] = {
                "weight": None if weight is None else float(weight),
                "mse": mse,
                "R": float(theory.over_best(s, mse)),
                "r": float(theory.over_worst(s, mse)),
                "rmse_population": math.sqrt(mse + float(theory.sampling_variance(s))),
                "mse_range": [min(mse, other), max(mse, other)],
            }
        return result


def _adaptive_error(mechanisms: Mechanisms, s: theory.Setting) -> Floats:
    """E over the learned variance of E_H(w): Gauss-Hermite over the noise of the raw variance estimate.

    The weight is a smooth function of the learned variance; its correlation with the local mean is neglected.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    half2, unit = mechanisms.bounds.half**2, mechanisms.unit_mean
    n, c, var = (np.broadcast_to(a, np.broadcast(s.n, s.c, s.var_t).shape).ravel() for a in (s.n, s.c, s.var_t))
    out = np.empty(len(n))
    for i in range(len(n)):
        spread = min(var[i] / half2, 1.0)
        se = predicted_se(max(1, round((1 - c[i]) * n[i] * mechanisms.share)), unit, spread, mechanisms.randomiser)
        learned = np.array([posterior_variance(spread + se * x, se) for x in nodes]) * half2
        believed = mechanisms.setting(n[i], c[i], learned)
        truth = mechanisms.setting(n[i], c[i], var[i])
        out[i] = np.dot(weights, theory.hybrid(truth, theory.kvh_weight(believed))) / weights.sum()
    return out.reshape(np.broadcast(s.n, s.c, s.var_t).shape)


# --- a number ---------------------------------------------------------------------------------------------------------


def _sd_range(sd: float | tuple[float, float] | None, bounds: Bounds) -> tuple[float, float]:
    worst = bounds.half
    low, high = (worst, worst) if sd is None else (sd, sd) if isinstance(sd, (int, float)) else sd
    for value in (low, high):
        must(math.isfinite(value) and value > 0, "sd", "must be positive and finite", value)
        must(value <= worst, "sd", f"must be at most half the range ({worst:g}), the largest possible", value)
    must(low <= high, "sd", "must be a range from low to high", f"{low:g}:{high:g}")
    return float(low), float(high)


def mechanisms_of(
    own: MeanTask, noise: DiscreteLaplace | DiscreteGaussian, sd: float | None, mean: float | None = None,
    chance: float = 1.0,
) -> Mechanisms:  # fmt: skip
    """Those of a mean with this noise on its sum, and the largest spread unless one is stated."""
    bounds, drawn, mixed = own.bounds, own.invite.mechanism, own.mixed_invite
    must(mean is None or bounds.lower <= mean <= bounds.upper, "mean", "must lie within the bounds", mean)
    per_sum, through = noise.variance * (bounds.width / LEVELS) ** 2, None if mixed is None else (mixed.mechanism, 1.0)
    return Mechanisms(bounds, drawn, per_sum, bounds.half if sd is None else sd, drawn.name, noise.name, mean, chance,
                      mixed=through)  # fmt: skip


def plan_mean(own: MeanTask, crowd: Crowd) -> Plan:
    """Predict every estimator's error. The guessed sd may be one number, a (low, high) range, or None: the worst case.

    With a range the predictions are for its upper end, and `mse_range` gives both. With Laplace noise in both groups
    these are the papers' formulas as corrected.
    """
    bounds, promise, sd = own.bounds, own.trusted_whole, crowd.guess.sd
    must(1e-100 <= bounds.width <= 1e100, "upper", "must be a sensible distance from lower", bounds.upper)
    low, high = _sd_range(sd, bounds)
    mechanisms = mechanisms_of(own, sum_noise(promise, own.noise), high, crowd.guess.mean, crowd.chance)
    if not crowd.both:
        return _alone(own, crowd, mechanisms)
    known = high if sd is not None and low == high else None
    unit = None if known is None else [known / bounds.half]
    reports = [(mechanisms.randomiser, round(crowd.told))]
    default = own.anchoring(crowd.trusted, reports, unit)
    if known is None:
        with suppress(InvalidInput):
            drawn = sum_noise(split_off(promise, own.spread_share)[0], own.noise)
            mechanisms = replace(mechanisms, paid=drawn.variance * (bounds.width / LEVELS) ** 2)
    s = mechanisms.setting(crowd.n, crowd.opt_in)
    plain = promise == own.guarantee and mechanisms.local_name == mechanisms.noise_name == "laplace"
    reach, step, _ = (float(x) for x in mechanisms.leash(s))
    held, most = (None, None) if default.reach is None else (reach, reach * step)
    wide, critical = _half_width(mechanisms, s), float(theory.critical_n(s))
    alike = default.of_mean(held, stated=known is not None) + ("" if most is None else f": here at most {most:,.4g}")
    facts = predicted(
        "mean",
        mechanisms.predictions(crowd, low if low < high else None),
        {
            "critical": {"c": float(theory.critical_c(s)), "n": None if math.isinf(critical) else critical},
            "sup_R": float(theory.sup_over_best(own.guarantee.epsilon, high, bounds.width)) if plain else None,
            "default": {"estimator": "everyone", "half_width": wide},
            "alike": anchored(default, "adaptive", held, most),
        },
        bounds={"lower": bounds.lower, "upper": bounds.upper},
        sd={"used": high, "low": low, "high": high, "worst_case": sd is None},
        mechanisms={"trusted": mechanisms.noise_name, "local": mechanisms.local_name},
        assumes=_assumptions(
            "" if sd is not None else "the largest possible, half the range, is assumed",
            mechanisms, "the worst case is assumed (state a mean to sharpen it)",
        ),
        remarks=[f"{SAID_OF_EVERYONE}; without a stated sd its 95 % interval would reach {wide:,.4g} to either side. "
                 f"{alike}."],
        range=bounds.width,
    )  # fmt: skip
    return crowd.planned(own, {"mean": facts}, picture=draw_curves, setting=mechanisms)


def _alone(own: MeanTask, crowd: Crowd, mechanisms: Mechanisms) -> Plan:
    """A mean where everybody is in one group: its error from noise alone, and against the population."""
    if crowd.trusted:
        noise, many, who, group, words = own.sum_noise, crowd.trusted, "tcm-only", "trusted", "noise on the sum"
        error = own.bounds.width * math.sqrt(noise.variance) / (noise.sensitivity * many)
    else:
        told = max(crowd.told, 1.0)
        error = own.bounds.half * math.sqrt(own.invite.mechanism.worst_variance / told)
        many, who, group, words = round(told), "lm-only", "local", mechanisms.local_name
    # Those who answer are the sample.
    by = {who: {"mse": error**2, "rmse_population": math.hypot(error, mechanisms.sd / math.sqrt(many))}}
    facts = predicted("mean", by, sd={"used": mechanisms.sd, "worst_case": crowd.guess.sd is None},
                      mechanisms={group: words}, range=own.bounds.width)  # fmt: skip
    return replace(crowd, n=many).planned(own, {"mean": facts}, setting=mechanisms)


def _half_width(mechanisms: Mechanisms, s: theory.Setting) -> float:
    """Of the release's own 95 % interval: without a stated sd the trusted people's spread is the largest possible."""
    c, k = float(s.c), float(s.c * s.n)
    most = mechanisms.bounds.half**2 * (1 - mechanisms.unit_mean**2)
    noise, laplace = float(s.noise_t), mechanisms.noise_name == "laplace"
    normal = c**2 * (most / k + noise * (not laplace)) + (1 - c) ** 2 * float(s.var_l + s.noise_l) / (float(s.n) - k)
    return NormalLaplace(math.sqrt(normal), c * math.sqrt(noise / 2) * laplace).quantile(0.975)


def _assumptions(spread: str, mechanisms: Mechanisms, worst: str) -> list[str]:
    result = ["both groups have the same distribution"]
    if spread:
        result.append(f"no sd was given: {spread}")
    if mechanisms.randomiser.variance_terms[1] and mechanisms.mean is None:
        result.append(f"the local noise depends on the values; {worst}")
    return result


# --- several columns --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Columns(Cells):
    """Of each column, in its own unit."""

    each: Sequence[Mechanisms]

    def trusted(self, k: int) -> Floats:
        return np.array([one.trusted(k) for one in self.each])

    def report(self, mixing: Mixing | None) -> Floats:
        return np.array([one.report(mixing) for one in self.each])


def plan_vector(own: VectorTask, crowd: Crowd) -> Plan:
    """Predict every estimator's error in every column.

    The guess of the sd holds one standard deviation a column, in its own unit, of values clipped to the bounds; None
    for the largest that all columns can have at once.
    """
    crowd.must_be_both()
    bounds, d, reach, sd = own.bounds, own.bounds.dimensions, own.bounds.reach, crowd.guess.sd
    square = min(1.0, bounds.ratio**2 / d)
    halves = [b.half * reach for b in bounds.bounds]
    sizes = [half * math.sqrt(square) for half in halves] if sd is None else list(sd)
    must(len(sizes) == d, "sd", f"must be one for each of the {d} columns", len(sizes))
    for size, half in zip(sizes, halves, strict=True):
        ok = math.isfinite(size) and 0 < size <= half * (1 + 1e-12)
        must(ok, "sd", f"must be positive and at most {half:g} for these bounds", size)
    promise, reports = own.trusted_whole, own.invite.mechanism
    paid = drawn = vector_noise(promise, bounds, own.noise)
    stated = None if sd is None else [size / b.half for size, b in zip(sizes, bounds.bounds, strict=True)]
    told = [(reports, round(crowd.told))]
    default = own.anchoring(crowd.trusted, told, stated)
    if sd is None:
        with suppress(InvalidInput):
            paid = vector_noise(split_off(promise, own.spread_share)[0], bounds, own.noise)
    mixed = None if own.mixed_invite is None else own.mixed_invite.mechanism
    each = [
        Mechanisms(
            # where the middle of the bounds lies changes no error
            Bounds(-half, half), reports.law, drawn.variance * (b.half / HALF) ** 2, size, reports.name, drawn.name,
            None, reports.share * crowd.chance, square, paid.variance * (b.half / HALF) ** 2,
            None if mixed is None else (mixed.law, mixed.share),
        )
        for b, half, size in zip(bounds.bounds, halves, sizes, strict=True)
    ]  # fmt: skip
    seen: dict[Mechanisms, tuple[Any, float, float]] = {}
    for one in dict.fromkeys(each):
        long, step, _ = (float(x) for x in one.leash(one.setting(crowd.n, crowd.opt_in)))
        seen[one] = one.predictions(crowd), long, long * step
    result = [seen[one] for one in each]
    longest = most = None
    if default.reach is not None:
        longest, most = max(long for _, long, _ in result), [far for _, _, far in result]
    said = f"{SAID_OF_EVERYONE}. {default.of_mean(longest, stated=sd is not None, several=True)}"
    if most is not None:
        wide = max(far / b.width for far, b in zip(most, bounds.bounds, strict=True))
        said += f": here by at most {wide:.3g} of a column's range"
    facts = predicted(
        "vector-mean",
        {name: _together(name, [told for told, _, _ in result], bounds) for name in PLAIN},
        {"default": {"estimator": "everyone"},
         "alike": anchored(default, "adaptive", longest, most)},
        columns=list(crowd.columns) or [f"column {j + 1}" for j in range(d)],
        bounds={
            "lower": [b.lower for b in bounds.bounds],
            "upper": [b.upper for b in bounds.bounds],
            "norm": bounds.norm,
            "radius": bounds.radius,
        },
        sd={"used": list(sizes), "worst_case": sd is None},
        mechanisms={"trusted": drawn.name, "local": reports.name, "columns_reported": reports.reported},
        assumes=_assumptions("" if sd is not None else f"the {_LARGEST} is assumed", one, f"the {_LARGEST} is assumed"),
        remarks=[f"{said}."],
        range=[b.width for b in bounds.bounds],
    )  # fmt: skip
    return crowd.planned(own, {"mean": facts}, setting=_Columns(each))


_LARGEST = "largest that all columns can have at once"


def _together(name: str, columns: Sequence[Any], bounds: VectorBounds) -> dict[str, Any]:
    """One estimator's predictions column by column, and its error over all of them against these people's means."""
    errors = (told[name]["mse"] / b.half**2 for told, b in zip(columns, bounds.bounds, strict=True))
    overall = math.sqrt(math.fsum(errors) / len(columns))
    each = {key: [told[name][key] for told in columns] for key in ("weight", "mse", "R", "rmse_population")}
    return {"overall_rmse_in_half_ranges": overall, **each}
