"""How good will a steered mean be? Predictions from public numbers, beside the mean in one go.

>>> from hybridp.bench.planning import plan_mean
>>> from hybridp import Bounds, PureDP
>>> people = {"n": 1_000_000, "opt_in": 0.01, "bounds": Bounds(0, 100), "guarantee": PureDP(1.0), "mean": 50}
>>> plan_steered(plan_mean(sd=5, **people))["form"], plan_steered(plan_mean(sd=45, **people))["form"]
('steered', 'plain')
>>> people |= {"n": 10_000_000, "guarantee": PureDP(4.0)}
>>> plan_steered(plan_mean(sd=2, **people))["form"]
'steered'
>>> people |= {"opt_in": 0.002}  # so few trusted people do not exclude that too much lies beyond a window
>>> plan_steered(plan_mean(sd=2, **people))["form"]
'plain'
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridp.public.steered_mean import PILOT_SHARE, Crowd, Quartiles, normal_people

if TYPE_CHECKING:
    from hybridp.release.plan import Plan

__all__ = ["plan_steered"]


def plan_steered(plan: Plan) -> dict[str, Any]:
    """Whether trusted people who are asked first, and local people within a window, would tell the mean better.

    What to do ("steered" or "plain"), both errors and the window that is expected, for numbers that are normal, with
    the plan's standard deviation and mean (the middle of the bounds unless stated).
    """
    trusted, local, mechanisms = plan.people["trusted"], plan.people["local"], plan.setting
    bounds = mechanisms.bounds
    crowd = Crowd.of(trusted, local, plan.promise["trusted_epsilon"], mechanisms.randomiser.variance_terms)
    plain = plan.errors[plan.predicted["alike"]["estimator"]]

    def told(form: str, why: str, rmse: float | None = None, window: list[float] | None = None) -> dict[str, Any]:
        return {"form": form, "rmse_population": rmse, "plain": plain, "window": window, "why": why}

    if trusted < 1 or not crowd.worth_a_pilot:
        return told("plain", "by the numbers of people and epsilon no window could pay for naming it")
    middle = bounds.centre if mechanisms.mean is None else mechanisms.mean
    mean, sd = (middle - bounds.lower) / bounds.width, max(plan.facts["sd"]["used"] / bounds.width, 1e-4)
    window = crowd.window(Quartiles.normal(mean, sd))
    if window is None:
        most = f"naming a window would cost {PILOT_SHARE:.1%} of the trusted people's epsilon"
        why = f"at this standard deviation no window gains much, with what might lie beyond it, and {most}"
        return told("plain", why)
    (found,) = crowd.steered(np.array([[window.low, window.high]]), *normal_people(mean, sd))
    rmse = bounds.width * math.sqrt(found.variance)
    ends = bounds.lower + bounds.width * window.low, bounds.lower + bounds.width * window.high
    form = "steered" if rmse < plain else "plain"
    why = f"local people would be asked between about {ends[0]:,.4g} and {ends[1]:,.4g}"
    return told(form, why, rmse, list(ends))
