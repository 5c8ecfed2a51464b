"""Of a mean's plan: how many trusted people are needed, and should one steer?

>>> from hybridp.bench.crowd import Crowd, Guesses
>>> from hybridp.bench.driven import plan_driven
>>> from hybridp.public.mechanisms import PureDP
>>> from hybridp.public.randomisers import Bounds
>>> from hybridp.tasks.mean import MeanTask
>>> def form(n: int, opt_in: float, epsilon: float, sd: float) -> str:
...     study, people = MeanTask(Bounds(0, 100), PureDP(epsilon)), Crowd(n, opt_in, Guesses(sd=sd, mean=50))
...     return plan_steered(plan_driven(study, people))["form"]
>>> form(1_000_000, 0.01, 1.0, 5), form(1_000_000, 0.01, 1.0, 45), form(10_000_000, 0.01, 4.0, 2)
('steered', 'plain', 'steered')
>>> form(10_000_000, 0.002, 4.0, 2)  # so few trusted people do not exclude that too much lies beyond a window
'plain'
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public import messages as theory
from hybridp.public import steered_mean as steering
from hybridp.public.randomisers import Floats
from hybridp.release import style
from hybridp.release.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_curves", "error_curves", "opt_ins_needed", "plan_steered"]


def opt_ins_needed(plan: Plan, name: str, target_rmse: float | None = None) -> int | None:
    """The fewest trusted people, of n, for which an estimator reaches a population RMSE, or beats both baselines.

    None when no number does. Checked on every count up to 2,000 and on a geometric grid above, then refined.
    """
    if target_rmse is not None:
        must(math.isfinite(target_rmse) and target_rmse > 0, "target", "must be positive and finite", target_rmse)
    n = int(plan.people["n"])

    def good(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        s = plan.setting.at(n, counts / n)
        mse = _squared_error(name, s)
        if target_rmse is None:
            return np.asarray(theory.over_best(s, mse) > 1)
        return np.asarray(np.sqrt(mse + theory.sampling_variance(s)) <= target_rmse)

    counts = np.unique(np.concatenate([np.arange(1, min(n, 2000)), np.geomspace(1, n - 1, 4000).astype(np.int64)]))
    result = np.flatnonzero(good(counts))
    if not len(result):
        return None
    first = int(result[0])
    if first == 0:
        return int(counts[0])
    between = np.arange(counts[first - 1] + 1, counts[first] + 1)
    return int(between[np.flatnonzero(good(between))[0]])


def plan_steered(plan: Plan) -> dict[str, Any]:
    """Whether trusted people who are asked first, and local people within a window, would tell the mean better.

    What to do ("steered" or "plain"), both errors and the window that is expected, for numbers that are normal, with
    the plan's standard deviation and mean (the middle of the bounds unless stated).
    """
    trusted, local, task, guess = plan.people["trusted"], plan.people["local"], plan.setting.task, plan.setting.guess
    bounds, terms = task.bounds, task.invite.mechanism.variance_terms
    crowd = steering.Crowd(trusted, local, plan.promise["trusted_epsilon"], terms)
    plain = plan.errors[plan.predicted["alike"]["estimator"]]

    def told(form: str, why: str, rmse: float | None = None, window: list[float] | None = None) -> dict[str, Any]:
        return {"form": form, "rmse_population": rmse, "plain": plain, "window": window, "why": why}

    if trusted < 1 or not crowd.worth_a_pilot:
        return told("plain", "by the numbers of people and epsilon no window could pay for naming it")
    middle = bounds.centre if guess.mean is None else guess.mean
    mean, sd = (middle - bounds.lower) / bounds.width, max(guess.sd / bounds.width, 1e-4)
    window = crowd.window(steering.Quartiles.normal(mean, sd))
    if window is None:
        most = f"naming a window would cost {steering.PILOT_SHARE:.1%} of the trusted people's epsilon"
        why = f"at this standard deviation no window gains much, with what might lie beyond it, and {most}"
        return told("plain", why)
    (result,) = crowd.steered(np.array([[window.low, window.high]]), *steering.normal_people(mean, sd))
    rmse = bounds.width * math.sqrt(result.variance)
    ends = bounds.lower + bounds.width * window.low, bounds.lower + bounds.width * window.high
    form = "steered" if rmse < plain else "plain"
    why = f"local people would be asked between about {ends[0]:,.4g} and {ends[1]:,.4g}"
    return told(form, why, rmse, list(ends))


def _squared_error(name: str, s: theory.Setting) -> Floats:
    """Of an estimator whose weight is a closed form. The adaptive one is within a few percent of KVH's."""
    if name == "full-lm":
        return theory.full_lm(s)
    weights: dict[str, Any] = {"tcm-only": 1.0, "lm-only": 0.0, "everyone": s.c, "pwh": theory.pwh_weight(s)}
    return theory.hybrid(s, weights.get(name, theory.kvh_weight(s)))


def error_curves(plan: Plan, opt_in: Floats) -> dict[str, Floats]:
    """Population RMSE of every estimator with a closed form over an array of opt-in rates, for plots."""
    s = plan.setting.at(plan.people["n"], opt_in)
    return {name: np.sqrt(_squared_error(name, s) + theory.sampling_variance(s)) for name in LOOKS}


LOOKS = {
    "tcm-only": ("only the trusting", style.TRUSTED, "--", 1.6), "full-lm": ("everybody local", style.LOCAL, "--", 1.6),
    "pwh": ("hybrid, spread unknown", style.QUIET, "-", 1.2), "kvh": ("hybrid, spread known", style.QUIET, ":", 2.4),
    "everyone": ("weighted by numbers", style.INK, "-", 2.2),
}  # fmt: skip
"""Label, colour, dashes and width of each curve."""


def draw_curves(plan: Plan, ax: Axes | None = None) -> Axes:
    """Every estimator's error against the share of trusting people, the planned one marked; needs matplotlib."""
    ax = style.new_axes(ax, 7.4, 4.2)
    n, planned_rate = plan.people["n"], plan.people["opt_in"]
    edge = 1 / n
    rates = np.geomspace(max(edge, planned_rate / 30), min(0.9, 1 - edge, planned_rate * 30), 60)
    curves = error_curves(plan, rates)
    ax.set_xscale("log")
    ax.set_yscale("log")
    for name, (_, colour, dashes, width) in LOOKS.items():
        ax.plot(rates, curves[name], dashes, color=colour, lw=width)
    best, worst = (float(pick([*curves.values()])) for pick in (np.min, np.max))
    # One bad baseline must not squeeze the rest into a line.
    ax.set_ylim(best / 1.3, min(worst * 1.3, best * 60))
    if rates[0] < rates[-1]:  # two people leave one rate
        ax.set_xlim(rates[0], rates[-1])
    ax.axvline(planned_rate, color=style.QUIET, lw=0.8)
    said, across = f"planned: {style.percent(planned_rate, 3)}", ax.get_xaxis_transform()
    style.note(ax, said, (planned_rate, 0), (4, 5), 9, style.QUIET, xycoords=across)
    style.end_labels(ax, [(look[0], rates[-1], float(curves[name][-1]), look[1]) for name, look in LOOKS.items()])
    sd, noises, bounds = plan.facts["sd"], plan.facts["mechanisms"], plan.setting.task.bounds
    spread = "the largest possible spread" if sd["worst_case"] else f"a standard deviation of {sd['used']:,.6g}"
    style.dress(
        ax,
        plan.in_words().title,
        f"Values from {bounds.lower:,.6g} to {bounds.upper:,.6g} with {spread}; {noises['trusted']} noise, "
        f"{noises['local']} reports. Errors are against the mean of the population.",
        x="people who trust the curator",
        y="root mean squared error",
        percents="x",
        grid="both",
    )
    return ax
