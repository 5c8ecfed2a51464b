"""Of a mean's plan: does it pay to promise trusted people more, how many are needed, and should one steer?

>>> from hybridp.bench.planning import plan_mean
>>> from hybridp import PureDP
>>> from hybridp.public.lattice import Bounds
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
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.bench.planning import PlanName, squared_error
from hybridp.errors import InvalidInput, must
from hybridp.public import mean as theory
from hybridp.public.steered_mean import PILOT_SHARE, Crowd, Quartiles, normal_people
from hybridp.release.plan import Plan

__all__ = ["opt_ins_needed", "plan_steered", "trust_offer"]

Floats = NDArray[np.float64]


def trust_offer(plan: Plan, elasticity: float) -> dict[str, Any]:
    """Does promising trusted people more privacy pay, if more of them then opt in? By plain numbers.

    The trusted group's epsilon varies, ``-dln c/dln epsilon_T`` being `elasticity`, with pure noise there. The
    threshold is the elasticity (percent more opt-ins per percent less epsilon) from which it pays, at the margin; the
    best trusted epsilon is that for the stated elasticity, with the opt-in rate and RMSE that it brings.

    Information is ``I = k/(var + a/(epsilon_T^2 k)) + (n-k)/(var + v)`` with a/epsilon_T^2 the noise of the sum; with
    rho = noise/(k var), lowering epsilon_T pays iff the elasticity exceeds
    ``2 rho/(1 + 2 rho - (1+rho)^2 var/(var+v))``.
    """
    must(0 <= elasticity <= 100, "elasticity", "must lie between 0 and 100", elasticity)
    base, now = plan.setting, plan.promise["trusted_epsilon"]
    if base.noise_name != "laplace":
        raise InvalidInput(f"`noise` must be laplace to vary the trusted epsilon. Got {base.noise_name}.")
    variance, n, rate = plan.facts["sd"]["used"] ** 2, plan.people["n"], plan.people["opt_in"]
    report = float(base.report(variance))

    def information(epsilon: Floats) -> tuple[Floats, Floats]:
        c = np.minimum(rate * (now / epsilon) ** elasticity, 0.999)
        k = c * n
        per_sum = base.per_sum * (now / epsilon) ** 2
        return k / (variance + per_sum / k) + (n - k) / (variance + report), c

    epsilons = np.geomspace(now / 50, now, 2001)
    info, rates = information(epsilons)
    best = int(np.argmax(info))
    rho = base.per_sum / (rate * n) / variance
    bottom = 1 + 2 * rho - (1 + rho) ** 2 * variance / (variance + report)
    threshold = 2 * rho / bottom if bottom > 0 else math.inf
    return {
        "elasticity_threshold": float(threshold),
        "lowering_pays": bool(elasticity > threshold),
        "best_trusted_epsilon": float(epsilons[best]),
        "opt_in_there": float(rates[best]),
        "rmse_there": float(1 / math.sqrt(info[best])),
        "rmse_now": float(1 / math.sqrt(info[-1])),
    }


def opt_ins_needed(plan: Plan, name: PlanName, target_rmse: float | None = None) -> int | None:
    """The fewest trusted people, of n, for which an estimator reaches a population RMSE, or beats both baselines.

    None when no number does. Checked on every count up to 2,000 and on a geometric grid above, then refined.
    """
    if target_rmse is not None:
        must(math.isfinite(target_rmse) and target_rmse > 0, "target", "must be positive and finite", target_rmse)
    mechanisms, variance = plan.setting, plan.facts["sd"]["used"] ** 2
    n = int(plan.people["n"])

    def good(counts: NDArray[np.int64]) -> NDArray[np.bool_]:
        s = mechanisms.setting(n, counts / n, variance)
        # The adaptive estimator is within a few percent of KVH, whose error is a closed form.
        mse = squared_error("kvh" if name == "adaptive" else name, mechanisms, s)
        if target_rmse is None:
            return np.asarray(theory.over_best(s, mse) > 1)
        return np.asarray(np.sqrt(mse + theory.sampling_variance(s)) <= target_rmse)

    counts = np.unique(np.concatenate([np.arange(1, min(n, 2000)), np.geomspace(1, n - 1, 4000).astype(np.int64)]))
    found = np.flatnonzero(good(counts))
    if not len(found):
        return None
    first = int(found[0])
    if first == 0:
        return int(counts[0])
    between = np.arange(counts[first - 1] + 1, counts[first] + 1)
    return int(between[np.flatnonzero(good(between))[0]])


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
