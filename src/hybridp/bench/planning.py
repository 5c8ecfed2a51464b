"""How good will it be? Answers from public numbers, before anyone is asked for anything.

>>> plan = plan_mean(n=250_000, opt_in=0.01, bounds=Bounds(0, 2.4e6), sd=53_000, guarantee=PureDP(1.0))
>>> plan.errors["kvh"] < min(plan.errors["tcm-only"], plan.errors["full-lm"])
True
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.errors import InvalidInput, must
from hybridp.public import mean as theory
from hybridp.public.anchoring import SPREAD_SHARE, Anchoring, clipping_loss, leash, mean_anchoring
from hybridp.public.budgets import ApproxDP, PureDP, split_off
from hybridp.public.errorlaw import NormalLaplace
from hybridp.public.lattice import Bounds
from hybridp.public.mean import NoiseName, posterior_variance, predicted_se, sum_noise
from hybridp.public.randomisers import LEVELS, LocalName, Randomiser, randomiser
from hybridp.release import style
from hybridp.release.plan import Plan, planned, predicted

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = [
    "PLAIN",
    "SAID_OF_EVERYONE",
    "Mechanisms",
    "anchored",
    "check_people",
    "draw_curves",
    "error_curves",
    "leashed",
    "mechanisms_of",
    "squared_error",
]
__all__ += ["plan_mean", "predictions"]

Guarantee = PureDP | ApproxDP
PlanName = Literal["tcm-only", "full-lm", "lm-only", "everyone", "pwh", "kvh", "adaptive", "anchored"]
PLANNED: tuple[PlanName, ...] = get_args(PlanName)
PLAIN: dict[str, str] = {
    "tcm-only": "only the trusting",
    "full-lm": "everybody local",
    "lm-only": "only the local",
    "everyone": "weighted by numbers",
    "pwh": "hybrid, spread unknown",
    "kvh": "hybrid, spread known",
    "adaptive": "hybrid, spread learned",
    "anchored": "hybrid that lies cannot pull",
}
"""The estimators in words."""
SAID_OF_EVERYONE = "Estimator: everyone by default: each group counts by its number of people, however much they differ"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mechanisms:
    """The two noises as variances in the value's own unit: `per_sum` of the trusted sum, `report` of one report.

    A `share` of the local people report this value (all, unless it is one column of many), and without a stated mean
    `square` is the largest mean square of the values, in half-ranges. `paid` is the trusted sum's variance where a part
    of the epsilon measures the spread, for an anchored blend.
    """

    bounds: Bounds
    randomiser: Randomiser
    per_sum: float
    mean: float | None
    local_name: str
    noise_name: str
    share: float = 1.0
    square: float = 1.0
    paid: float | None = None

    def report(self, variance: ArrayLike) -> Floats:
        """Variance of a report; where it depends on the value, for the stated mean, or for the worst one."""
        constant, quadratic = self.randomiser.variance_terms
        unit = 0.0 if self.mean is None else (self.mean - self.bounds.centre) / self.bounds.half
        square = np.minimum(1.0, np.asarray(variance) / self.bounds.half**2 + unit**2)
        if self.mean is None:
            square = np.maximum(self.square, square)
        return np.asarray(self.bounds.half**2 * (constant + quadratic * square), dtype=np.float64)

    def setting(self, n: ArrayLike, c: ArrayLike, variance: ArrayLike) -> theory.Setting:
        """The papers' setting: where m of N people report, their mean has ``variance (1/m - 1/N)`` more noise."""
        people = np.asarray(n, dtype=np.float64) * np.asarray(c, dtype=np.float64)
        noise_t = self.per_sum / people**2
        noise_l = self.report(variance) / self.share + np.asarray(variance) * (1 / self.share - 1)
        return theory.Setting.of(n=n, c=c, variance=variance, noise_t=noise_t, noise_l=noise_l)


def mechanisms_of(
    bounds: Bounds,
    guarantee: Guarantee,
    noise: NoiseName,
    local: LocalName,
    mean: float | None,
    trusted_guarantee: Guarantee | None = None,
) -> Mechanisms:
    trusted = trusted_guarantee or guarantee
    described = sum_noise(trusted, noise)
    chosen = randomiser(local, guarantee)
    lattice = described.variance * (bounds.width / LEVELS) ** 2
    kind = "laplace" if hasattr(described, "scale") else "gaussian"
    if mean is not None:
        must(bounds.lower <= mean <= bounds.upper, "mean", "must lie within the bounds", mean)
    return Mechanisms(bounds, chosen, lattice, mean, chosen.name, kind)


def _default(
    mechanisms: Mechanisms, promise: Guarantee, noise: NoiseName, sd: float | None, trusted: int, local: int
) -> tuple[Mechanisms, Anchoring]:
    """What a release of so many people takes where nobody says how; and the mechanisms with what it pays."""
    unit = None if sd is None else sd / mechanisms.bounds.half
    found = mean_anchoring(promise, noise, [(mechanisms.randomiser, local)], unit, trusted=trusted)
    paid = None
    if sd is None:
        with suppress(InvalidInput):
            drawn = sum_noise(split_off(promise, SPREAD_SHARE)[0], noise)
            paid = drawn.variance * (mechanisms.bounds.width / LEVELS) ** 2
    return replace(mechanisms, paid=paid), found


def _sd_range(sd: float | tuple[float, float] | None, bounds: Bounds) -> tuple[float, float, bool]:
    worst = bounds.width / 2
    if sd is None:
        return worst, worst, True
    low, high = (sd, sd) if isinstance(sd, (int, float)) else sd
    for value in (low, high):
        must(math.isfinite(value) and value > 0, "sd", "must be positive and finite", value)
        must(value <= worst, "sd", f"must be at most half the range ({worst:g}), the largest possible", value)
    must(low <= high, "sd", "must be a range from low to high", f"{low:g}:{high:g}")
    return float(low), float(high), False


def _weight(name: PlanName, mechanisms: Mechanisms, s: theory.Setting) -> Floats | None:
    match name:
        case "tcm-only":
            return np.asarray(1.0)
        case "lm-only":
            return np.asarray(0.0)
        case "everyone":
            return s.c
        case "pwh":
            # It balances the noise alone, and so does not know that fewer people report.
            return theory.pwh_weight(replace(s, noise_l=mechanisms.report(s.var_t) / mechanisms.share))
        case "kvh" | "adaptive":
            return theory.kvh_weight(s)
        case "anchored":
            return theory.kvh_weight(_paying(mechanisms, s))
    return None


def squared_error(name: PlanName, mechanisms: Mechanisms, s: theory.Setting) -> Floats:
    """One estimator's error against the mean of these people."""
    if name == "full-lm":
        return theory.full_lm(s)
    if name == "adaptive":
        return _adaptive_error(mechanisms, s)
    if name == "anchored":
        return theory.hybrid(held := _paying(mechanisms, s), theory.kvh_weight(held)) + leashed(mechanisms, s)[2]
    weight = _weight(name, mechanisms, s)
    assert weight is not None
    return theory.hybrid(s, weight)


def _paying(mechanisms: Mechanisms, s: theory.Setting) -> theory.Setting:
    """The setting in which a part of the trusted epsilon measures the spread."""
    paid = mechanisms.per_sum if mechanisms.paid is None else mechanisms.paid
    return replace(s, noise_t=s.noise_t * paid / mechanisms.per_sum)


def leashed(mechanisms: Mechanisms, s: theory.Setting) -> tuple[Floats, Floats, Floats]:
    """The leash, what one standard error of the difference may move, ``V_T/sqrt(V_T + V_L)``, and what is cut off."""
    held = _paying(mechanisms, s)
    v_t = held.var_t / (held.c * held.n) + held.noise_t
    v_l = (held.var_l + held.noise_l) / ((1 - held.c) * held.n)
    laplace = held.noise_t * (mechanisms.noise_name == "laplace")
    reach, step = leash(v_t, v_l, laplace), np.asarray(v_t / np.sqrt(v_t + v_l))
    return reach, step, clipping_loss(reach, v_t, v_l, laplace) * step**2


def _adaptive_error(mechanisms: Mechanisms, s: theory.Setting) -> Floats:
    """E over the learned variance of E_H(w): Gauss-Hermite over the noise of the raw variance estimate.

    The weight is a smooth function of the learned variance; its correlation with the local mean is neglected.
    """
    nodes, weights = np.polynomial.hermite_e.hermegauss(15)
    half2 = mechanisms.bounds.half**2
    unit = 0.0
    if mechanisms.mean is not None:
        unit = (mechanisms.mean - mechanisms.bounds.centre) / mechanisms.bounds.half
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


def check_people(n: float, opt_in: float) -> None:
    """Refuse numbers of people that no plan can be made for."""
    must(2 <= n <= 1e15, "n", "must be at least 2 and at most 1e15", n)
    must(0 < opt_in < 1, "opt-in", "must be strictly between 0 and 1", opt_in)
    few = min(opt_in, 1 - opt_in) * n
    must(few >= 1 - 1e-9, "opt-in", f"must leave at least one person in each group of {n:,.0f} people", opt_in)


def predictions(mechanisms: Mechanisms, n: float, opt_in: float, low: float, high: float) -> dict[str, dict[str, Any]]:
    """Every estimator's error for the standard deviation `high`, and its range from `low` on.

    `mse` is against the mean of these n people, `rmse_population` against that of the population they come from.
    """
    s, s_low = (mechanisms.setting(n, opt_in, sd**2) for sd in (high, low))
    found = {}
    for name in PLANNED:
        mse = float(squared_error(name, mechanisms, s))
        other = float(squared_error(name, mechanisms, s_low)) if low < high else mse
        weight = _weight(name, mechanisms, s)
        found[str(name)] = {
            "weight": None if weight is None else float(weight),
            "mse": mse,
            "R": float(theory.over_best(s, mse)),
            "r": float(theory.over_worst(s, mse)),
            "rmse_population": math.sqrt(mse + float(theory.sampling_variance(s))),
            "mse_range": [min(mse, other), max(mse, other)],
        }
    return found


def plan_mean(
    *,
    n: float,
    opt_in: float,
    bounds: Bounds,
    guarantee: Guarantee,
    sd: float | tuple[float, float] | None = None,
    noise: NoiseName = "best",
    local: LocalName = "best",
    mean: float | None = None,
    trusted_guarantee: Guarantee | None = None,
    answering: float = 1.0,
    question: str = "value",
) -> Plan:
    """Predict every estimator's error. `sd` may be one number, a (low, high) range, or None for the worst case.

    Of local people a share `answering` is asked.

    With a range the predictions are for its upper end, and `mse_range` gives both. With Laplace noise in both groups
    these are the papers' formulas as corrected.
    """
    check_people(n, opt_in)
    must(1e-100 <= bounds.width <= 1e100, "upper", "must be a sensible distance from lower", bounds.upper)
    low, high, assumed = _sd_range(sd, bounds)
    mechanisms = replace(mechanisms_of(bounds, guarantee, noise, local, mean, trusted_guarantee), share=answering)
    known, trusted = None if assumed or low < high else high, round(n * opt_in)
    mechanisms, default = _default(
        mechanisms, trusted_guarantee or guarantee, noise, known, trusted, round((round(n) - trusted) * answering)
    )
    s = mechanisms.setting(n, opt_in, high**2)
    plain = trusted_guarantee in (None, guarantee) and mechanisms.local_name == mechanisms.noise_name == "laplace"
    reach, step, _ = leashed(mechanisms, s)
    most = None if default.reach is None else float(reach * step)
    wide, critical = _half_width(mechanisms, s), float(theory.critical_n(s))
    alike = default.of_mean(None if most is None else float(reach), stated=known is not None)
    alike += "" if most is None else f": here at most {most:,.4g}"
    said = f"{SAID_OF_EVERYONE}; without a stated sd its 95 % interval would reach {wide:,.4g} to either side. {alike}."
    more = {
        "critical": {"c": float(theory.critical_c(s)), "n": None if math.isinf(critical) else critical},
        "sup_R": float(theory.sup_over_best(guarantee.epsilon, high, bounds.width)) if plain else None,
        "default": {"estimator": "everyone", "half_width": wide},
        "alike": anchored(default, "adaptive", None if most is None else float(reach), most),
    }
    facts = predicted(
        "mean",
        predictions(mechanisms, n, opt_in, low, high),
        more,
        bounds={"lower": bounds.lower, "upper": bounds.upper},
        sd={"used": high, "low": low, "high": high, "worst_case": assumed},
        mechanisms={"trusted": mechanisms.noise_name, "local": mechanisms.local_name},
        assumes=_assumptions(assumed, mechanisms),
        remarks=[said],
        range=bounds.width,
    )
    own = trusted_guarantee or guarantee
    told = {question: {"mean": facts}}
    return planned(told, n, opt_in, guarantee, own.epsilon, picture=draw_curves, setting=mechanisms)


def anchored(default: Anchoring, plain: str, reach: float | None, most: Any) -> dict[str, Any]:
    """What "alike" is for so many people, what it costs, and how far any reports could move it."""
    cost = default.cost if math.isfinite(default.cost) else None
    return {"estimator": plain if default.reach is None else "anchored", "reach": reach, "cost": cost, "most": most}


def _half_width(mechanisms: Mechanisms, s: theory.Setting) -> float:
    """Of the release's own 95 % interval: without a stated sd the trusted people's spread is the largest possible."""
    c, k = float(s.c), float(s.c * s.n)
    middle = mechanisms.bounds.centre if mechanisms.mean is None else mechanisms.mean
    most = mechanisms.bounds.half**2 - (middle - mechanisms.bounds.centre) ** 2
    noise, laplace = float(s.noise_t), mechanisms.noise_name == "laplace"
    normal = c**2 * (most / k + noise * (not laplace)) + (1 - c) ** 2 * float(s.var_l + s.noise_l) / (float(s.n) - k)
    return NormalLaplace(math.sqrt(normal), c * math.sqrt(noise / 2) * laplace).quantile(0.975)


def _assumptions(assumed: bool, mechanisms: Mechanisms) -> list[str]:
    found = ["both groups have the same distribution"]
    if assumed:
        found.append("no sd was given: the largest possible, half the range, is assumed")
    if mechanisms.randomiser.variance_terms[1] and mechanisms.mean is None:
        found.append("the local noise depends on the values; the worst case is assumed (state a mean to sharpen it)")
    return found


def error_curves(plan: Plan, opt_in: Floats) -> dict[str, Floats]:
    """Population RMSE of every estimator over an array of opt-in rates, for plots."""
    mechanisms = plan.setting
    s = mechanisms.setting(plan.people["n"], opt_in, plan.facts["sd"]["used"] ** 2)
    return {name: np.sqrt(squared_error(name, mechanisms, s) + theory.sampling_variance(s)) for name in PLANNED}


def draw_curves(plan: Plan, ax: Axes | None = None) -> Axes:
    """Every estimator's error against the share of trusting people, the planned one marked; needs matplotlib."""
    ax = style.new_axes(ax, 7.4, 4.2)
    (facts,) = (told["mean"] for told in plan.questions.values())
    n, planned_rate = plan.people["n"], plan.people["opt_in"]
    edge = 1 / n
    rates = np.geomspace(max(edge, planned_rate / 30), min(0.9, 1 - edge, planned_rate * 30), 60)
    curves = error_curves(plan, rates)
    ax.set_xscale("log")
    ax.set_yscale("log")
    looks = {
        "tcm-only": (style.TRUSTED, "--", 1.6), "full-lm": (style.LOCAL, "--", 1.6), "pwh": (style.QUIET, "-", 1.2),
        "kvh": (style.QUIET, ":", 2.4), "adaptive": (style.QUIET, "--", 1.6), "everyone": (style.INK, "-", 2.2),
    }  # fmt: skip
    for name, (colour, dashes, width) in looks.items():
        ax.plot(rates, curves[name], dashes, color=colour, lw=width)
    shown = [curves[name] for name in looks]
    best, worst = (float(pick([pick(c) for c in shown])) for pick in (np.min, np.max))
    # One bad baseline must not squeeze the rest into a line.
    ax.set_ylim(best / 1.3, min(worst * 1.3, best * 60))
    if rates[0] < rates[-1]:  # two people leave one rate
        ax.set_xlim(rates[0], rates[-1])
    style.plain_numbers(ax.xaxis, percents=True)
    style.plain_numbers(ax.yaxis)
    ax.axvline(planned_rate, color=style.QUIET, lw=0.8)
    ax.annotate(
        f"planned: {style.percent(planned_rate, 3)}", (planned_rate, 0), xycoords=ax.get_xaxis_transform(),
        xytext=(4, 5), textcoords="offset points", fontsize=style.points(ax, 9), color=style.QUIET,
    )  # fmt: skip
    style.end_labels(ax, [(PLAIN[name], rates[-1], float(curves[name][-1]), look[0]) for name, look in looks.items()])
    ax.set_xlabel("people who trust the curator")
    ax.set_ylabel("root mean squared error")
    sd, noises, bounds = facts["sd"], facts["mechanisms"], facts["bounds"]
    spread = "the largest possible spread" if sd["worst_case"] else f"a standard deviation of {sd['used']:,.6g}"
    style.dress(
        ax,
        plan.in_words().title,
        f"Values from {bounds['lower']:,.6g} to {bounds['upper']:,.6g} with {spread}; {noises['trusted']} noise, "
        f"{noises['local']} reports. Errors are against the mean of the population.",
        grid="both",
    )
    return ax
