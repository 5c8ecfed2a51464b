"""The KVH weight for given mechanisms, which is fixed before the data is seen."""

from __future__ import annotations

from typing import Literal

from hybridp.errors import must
from hybridp.public import mean as theory
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.lattice import Bounds
from hybridp.public.mechanisms import classic_gaussian, gaussian, laplace

__all__ = ["kvh_weight_for"]


def kvh_weight_for(
    *,
    n: int,
    opt_in: float,
    bounds: Bounds,
    sd: float,
    epsilon: float,
    delta: float,
    noise: Literal["gaussian", "laplace"],
    calibration: Literal["analytic", "classic"] = "analytic",
) -> float:
    """w* of P Def. 4.1 with the same noise mechanism in both groups.

    >>> salaries = Bounds(0, 2349033)
    >>> w = kvh_weight_for(n=250_000, opt_in=0.01, bounds=salaries, sd=53254, epsilon=1, delta=0, noise="laplace")
    >>> round(w, 4)
    0.9389
    """
    must(0 < sd <= bounds.half, "sd", f"must be positive and at most half the range ({bounds.half:g})", sd)
    must(0 < opt_in < 1, "opt-in", "must be strictly between 0 and 1", opt_in)
    must(n * opt_in >= 0.5, "n", "must leave at least one trusted person", n)
    if noise == "laplace":
        variance = laplace(PureDP(epsilon), bounds.width).variance
    else:
        calibrate = gaussian if calibration == "analytic" else classic_gaussian
        variance = calibrate(ApproxDP(epsilon, delta), bounds.width).variance
    setting = theory.Setting.of(n=n, c=opt_in, variance=sd**2, noise_t=variance / (opt_in * n) ** 2, noise_l=variance)
    return float(theory.kvh_weight(setting))
