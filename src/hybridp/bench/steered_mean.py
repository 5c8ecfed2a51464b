"""How good will a steered mean be? Predictions from public numbers, beside the mean in one go.

>>> from hybridp.bench.planning import plan_mean
>>> from hybridp import Bounds, PureDP
>>> people = {"n": 1_000_000, "opt_in": 0.01, "bounds": Bounds(0, 100), "guarantee": PureDP(1.0), "mean": 50}
>>> plan_steered(plan_mean(sd=5, **people)).form, plan_steered(plan_mean(sd=45, **people)).form
('steered', 'plain')
>>> people |= {"n": 10_000_000, "guarantee": PureDP(4.0)}
>>> plan_steered(plan_mean(sd=2, **people)).form
'steered'
>>> people |= {"opt_in": 0.002}  # so few trusted people do not exclude that too much lies beyond a window
>>> plan_steered(plan_mean(sd=2, **people)).form
'plain'
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridp.public.steered_mean import PILOT_SHARE, Crowd, Quartiles, normal_people

if TYPE_CHECKING:
    from hybridp.bench.planning import MeanPlan

__all__ = ["SteeredPlan", "plan_steered"]


@dataclass(frozen=True, slots=True)
class SteeredPlan:
    """What to do ("steered" or "plain"), both errors, and the window that is expected."""

    form: str
    rmse: float | None
    plain_rmse: float
    window: tuple[float, float] | None
    why: str

    @property
    def said(self) -> str:
        """What to do, in a sentence."""
        if self.rmse is None:
            return f"In one go: {self.why}."
        told = f"rmse {self.rmse:.6g} steered, {self.plain_rmse:.6g} in one go, where both groups are alike"
        return f"{'Steer' if self.form == 'steered' else 'In one go'}: {told}; {self.why}."

    def to_dict(self) -> dict[str, Any]:
        window = None if self.window is None else list(self.window)
        return {"form": self.form, "rmse_population": self.rmse, "plain": self.plain_rmse, "window": window,
                "why": self.why}  # fmt: skip


def plan_steered(plan: MeanPlan) -> SteeredPlan:
    """Whether trusted people who are asked first, and local people within a window, would tell the mean better.

    For numbers that are normal, with the plan's standard deviation and mean (the middle of the bounds unless stated).
    """
    trusted, bounds = round(plan.n * plan.opt_in), plan.bounds
    crowd = Crowd.of(trusted, round(plan.n) - trusted, plan.trusted_epsilon, plan.mechanisms.randomiser.variance_terms)
    plain = plan[plan.alike].rmse
    if trusted < 1 or not crowd.worth_a_pilot:
        why = "by the numbers of people and epsilon no window could pay for naming it"
        return SteeredPlan("plain", None, plain, None, why)
    middle = bounds.centre if plan.mechanisms.mean is None else plan.mechanisms.mean
    mean, sd = (middle - bounds.lower) / bounds.width, max(plan.sd / bounds.width, 1e-4)
    window = crowd.window(Quartiles.normal(mean, sd))
    if window is None:
        most = f"naming a window would cost {PILOT_SHARE:.1%} of the trusted people's epsilon"
        why = f"at this standard deviation no window gains much, with what might lie beyond it, and {most}"
        return SteeredPlan("plain", None, plain, None, why)
    (found,) = crowd.steered(np.array([[window.low, window.high]]), *normal_people(mean, sd))
    rmse = bounds.width * math.sqrt(found.variance)
    ends = bounds.lower + bounds.width * window.low, bounds.lower + bounds.width * window.high
    form = "steered" if rmse < plain else "plain"
    why = f"local people would be asked between about {ends[0]:,.4g} and {ends[1]:,.4g}"
    return SteeredPlan(form, rmse, plain, ends, why)
