"""Noise for a sum of vectors: what d independent draws guarantee, and how little of them is enough.

Discrete Laplace noise of scale ``L1 sensitivity/epsilon`` in every coordinate is epsilon-DP. (The sharper scale for a
delta that the mean uses is a statement about one dimension, and is not used here: a delta is left unspent.)

Discrete Gaussian noise is calibrated to the L2 sensitivity D. Two certificates are sound in d dimensions, and either
one is enough:

* ``D^2/(2 sigma^2)``-zCDP (Canonne, Kamath and Steinke 2020, on multivariate noise), converted by their Prop. 12;
* the continuous mechanism's analytic profile, plus what the lattice can change. One coordinate k of the noise has at
  most e^(1/(24 sigma^2)) times the probability of the continuous noise rounded to k (Jensen; the normaliser of the
  discrete law is at least that of the continuous one) and, for |k| <= c sigma, at least e^(-c^2/(24 sigma^2) - u)
  times, u = 2.1 e^(-2 pi^2 sigma^2) (the normaliser, by Poisson summation). Rounding is post-processing, and commutes
  with a shift by whole steps. So with eta = d/(24 sigma^2) and eta' = d (c^2/(24 sigma^2) + u)

      delta(epsilon) <= e^eta delta_continuous(epsilon - eta - eta') + 2 d e^epsilon Phi(-c + 1/(2 sigma)).

  On a lattice as fine as ours this is the analytic Gaussian (Balle and Wang 2018) to five digits or more.

>>> noise = vector_gaussian(ApproxDP(1.0, 1e-6), sensitivity=2**25, dimensions=100)
>>> round(noise.sigma / 2**25, 4)
4.2247
"""

from __future__ import annotations

import math
from typing import Literal

from hybridp.errors import InvalidInput, must
from hybridp.public.budgets import ZCDP, ApproxDP, PureDP, as_approx
from hybridp.public.mechanisms import (
    DiscreteGaussian,
    DiscreteLaplace,
    discrete_laplace,
    gaussian,
    gaussian_profile,
)
from hybridp.public.vector import VectorBounds

__all__ = ["VectorNoiseName", "gaussian_is_enough", "vector_gaussian", "vector_noise"]

VectorNoiseName = Literal["laplace", "gaussian", "best"]
Guarantee = PureDP | ApproxDP


def gaussian_is_enough(guarantee: ApproxDP, sensitivity: int, dimensions: int, sigma: float) -> bool:
    """Whether discrete Gaussian noise of this sigma in every coordinate is certain to keep the promise."""
    epsilon, delta, d = guarantee.epsilon, guarantee.delta, dimensions
    if as_approx(ZCDP((sensitivity / sigma) ** 2 / 2 * (1 + 1e-12)), delta).epsilon <= epsilon:
        return True
    if sigma < 2:
        return False
    far = math.sqrt(2 * (epsilon + math.log(2 * d) - math.log(delta) + 25)) + 0.5 / sigma
    above = d / (24 * sigma**2)
    below = d * (far**2 / (24 * sigma**2) + 2.1 * math.exp(-2 * (math.pi * sigma) ** 2))
    rest = epsilon - above - below
    if rest <= 0:
        return False
    tail = delta * math.exp(-25)  # Phi(-x) <= e^(-x^2/2) at x = far - 1/(2 sigma)
    return math.exp(above) * gaussian_profile(sensitivity, sigma, rest) + tail <= delta


def vector_gaussian(guarantee: ApproxDP, sensitivity: int, dimensions: int) -> DiscreteGaussian:
    """The least discrete Gaussian noise that one of the two certificates covers."""
    must(guarantee.delta > 0, "delta", "must be positive for Gaussian noise", guarantee.delta)
    low = high = gaussian(guarantee, sensitivity).sigma
    while not gaussian_is_enough(guarantee, sensitivity, dimensions, high):
        low, high = high, high * 1.05
    for _ in range(60):
        middle = (low + high) / 2
        if not low < middle < high:
            break
        low, high = (low, middle) if gaussian_is_enough(guarantee, sensitivity, dimensions, middle) else (middle, high)
    for _ in range(60):  # the description's own check, for one dimension, may round a little further
        try:
            return DiscreteGaussian(guarantee, sensitivity, high)
        except ValueError:
            high *= 1 + 1e-6
    raise InvalidInput(f"`epsilon` must be within what Gaussian noise can keep. Got {guarantee.epsilon}.")


def vector_noise(
    guarantee: Guarantee, bounds: VectorBounds, name: VectorNoiseName = "best"
) -> DiscreteLaplace | DiscreteGaussian:
    """The noise of every coordinate of the trusted sum: Laplace, Gaussian (needs delta), or the one of less variance.

    >>> box = VectorBounds.of([0] * 100, [1] * 100)
    >>> type(vector_noise(ApproxDP(1.0, 1e-6), box)).__name__, type(vector_noise(PureDP(1.0), box)).__name__
    ('DiscreteGaussian', 'DiscreteLaplace')
    """
    ok = math.isfinite(guarantee.epsilon) and 0.001 <= guarantee.epsilon <= 500
    must(ok, "epsilon", "must be at least 0.001 and at most 500", guarantee.epsilon)
    must(name in ("laplace", "gaussian", "best"), "noise", "must be one of laplace, gaussian, best", name)
    found: list[DiscreteLaplace | DiscreteGaussian] = []
    if name != "gaussian":
        found.append(discrete_laplace(PureDP(guarantee.epsilon), bounds.l1_sensitivity))
    if name != "laplace" and guarantee.delta > 0:
        promise = ApproxDP(guarantee.epsilon, guarantee.delta)
        found.append(vector_gaussian(promise, bounds.l2_sensitivity, bounds.dimensions))
    if not found:
        raise InvalidInput("`delta` must be positive for Gaussian noise. Got 0.")
    return min(found, key=lambda m: m.variance)
