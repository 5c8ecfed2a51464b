"""Does it pay to promise trusted people more, if more of them then opt in (dissertation, section 2.6)?"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybridp.errors import must
from hybridp.public.randomisers import Floats
from hybridp.release.plan import Plan

__all__ = ["trust_offer"]


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
    s, now, noise = plan.setting.setting, plan.promise["trusted_epsilon"], plan.facts["mechanisms"]["trusted"]
    must(noise == "laplace", "noise", "must be laplace to vary the trusted epsilon", noise)
    n, rate, variance, report = (float(x) for x in (s.n, s.c, s.var_t[0], s.noise_l[0]))
    of_sum = float(s.noise_t[0]) * (rate * n) ** 2

    def information(epsilon: Floats) -> tuple[Floats, Floats]:
        c = np.minimum(rate * (now / epsilon) ** elasticity, 0.999)
        k = c * n
        per_sum = of_sum * (now / epsilon) ** 2
        return k / (variance + per_sum / k) + (n - k) / (variance + report), c

    epsilons = np.geomspace(now / 50, now, 2001)
    info, rates = information(epsilons)
    best = int(np.argmax(info))
    rho = of_sum / (rate * n) / variance
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
