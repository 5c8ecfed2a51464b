"""The variance is free: what the local reports tell about the spread of the data, at no privacy cost.

The sample variance of the reports is the data's variance plus the randomiser's, which is public. The difference is
noisy, so it is not plugged in as it is: the posterior mean under a log-uniform prior is, which brings the hybrid's
error to within a few percent of the one with the variance known (measured in `docs/adaptive.md`). Unit coordinate:
variances are at most 1 on [-1, 1].

>>> round(posterior_variance(raw=0.33, se=0.001), 3)
0.33
>>> 0.0025 < posterior_variance(raw=-3.0, se=10.0) < 0.25       # no information: the prior's mean
True
"""

from __future__ import annotations

import math

import numpy as np

from hybridp.public.randomisers import Randomiser

__all__ = [
    "PILOT_VARIANCE",
    "SMALLEST_VARIANCE",
    "WORST_VARIANCE",
    "learned_variance",
    "posterior_variance",
    "predicted_se",
    "raw_variance",
    "upper_variance",
]

WORST_VARIANCE = 1.0
"""Of anything on [-1, 1] (Popoviciu)."""

PILOT_VARIANCE = 0.16
"""The prior's mean, near enough: only the weight of a pilot mean depends on it."""

SMALLEST_VARIANCE = 1 / 400
"""The prior's lower end, 1/1600 of the squared range: below it the weight hardly changes any more."""


def raw_variance(second_moment: float, centre: float, randomiser: Randomiser) -> float:
    """An unbiased estimate of the data's variance from the reports' mean square around their (pilot) mean.

    ``E (y-m)^2 = var + constant + quadratic (var + m^2)`` when m is the mean; solved for var. May be negative.
    """
    constant, quadratic = randomiser.variance_terms
    return (second_moment - constant - quadratic * centre**2) / (1 + quadratic)


def predicted_se(people: int, centre: float, spread: float, randomiser: Randomiser) -> float:
    """Standard error of `raw_variance` for so many reports."""
    return randomiser.square_deviation(centre, spread) / math.sqrt(people) / (1 + randomiser.variance_terms[1])


def posterior_variance(raw: float, se: float) -> float:
    """Posterior mean of the variance: normal likelihood, log-uniform prior on [1/400, 1]."""
    low, high = max(SMALLEST_VARIANCE, raw - 9 * se), min(1.0, raw + 9 * se)
    if not low < high:  # the likelihood is a point, or lies outside the prior's range: the nearest value inside
        return min(max(raw, SMALLEST_VARIANCE), 1.0)
    grid = np.geomspace(low, high, 241)
    log_weight = -(((raw - grid) / se) ** 2) / 2
    weight = np.exp(log_weight - log_weight.max())
    return float(np.sum(weight * grid) / np.sum(weight))


def upper_variance(raw: float, se: float) -> float:
    """A 95 % upper limit of the variance, for intervals: never above the largest possible 1."""
    return min(1.0, max(raw, 0.0) + 1.645 * se)


def learned_variance(raw: float, se: float, pilot: float) -> tuple[float, float]:
    """For weights the posterior mean, at most what a mean at `pilot` leaves room for; for intervals the upper limit."""
    room = max(1 - pilot**2, 1e-3)
    return min(posterior_variance(raw, se), room), upper_variance(raw, se)
