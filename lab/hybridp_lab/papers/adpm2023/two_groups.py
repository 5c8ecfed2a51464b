"""Two groups of epsilons: the paper's Table I, and the bounds of its Theorems 1 and 2."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from hybridp.errors import must
from hybridp_lab.baselines.personal import _le_cam

__all__ = ["TwoGroups", "two_groups"]


@dataclass(frozen=True)
class TwoGroups:
    """Two groups: Table I's weight of a member of each, the saturation ratio R, and the bounds of Theorems 1 and 2.

    The second group gains nothing from an epsilon above `saturation` = R eps_1.
    """

    R: float
    saturation: float
    weight: tuple[float, float]
    upper: float
    lower: float


def two_groups(n: int, fraction: float, epsilon_1: float, epsilon_2: float, *, width: float = 1.0) -> TwoGroups:
    r"""Table I and Theorems 1 and 2 for a fraction f with the smaller eps_1 and the others with eps_2.

    R = 1 + 8/(eps_1^2 n f). Up to R eps_1 the weights are proportional to epsilon and the error is
    :math:`\overline{\epsilon^2}/(4n\bar\epsilon^2) + 2/(n\bar\epsilon)^2`; above, it stays at R/(4n[f+(1-f)R]);
    both times width^2 and at most width^2/4. `lower` is `lower_bound` for these groups, since Theorem 2 leaves its
    constant open.

    >>> g = two_groups(1000, 0.7, 0.1, 0.5)
    >>> round(g.R, 4), round(g.saturation, 4), [round(w * 1000, 4) for w in g.weight], round(g.upper * 1e4, 4)
    (2.1429, 0.2143, [0.7447, 1.5957], 3.9894)
    """
    must(n >= 1, "n", "must be at least 1", n)
    must(0 <= fraction <= 1, "fraction", "must lie between 0 and 1", fraction)
    must(0 <= epsilon_1 < math.inf, "epsilon_1", "must be non-negative and finite", epsilon_1)
    must(epsilon_2 >= epsilon_1, "epsilon_2", "must be at least epsilon_1", epsilon_2)
    must(0 < width < math.inf, "width", "must be positive and finite", width)
    f, g = fraction, 1 - fraction
    must(epsilon_1 * f > 0 or epsilon_2 * g > 0, "epsilon_2", "must leave someone a positive epsilon", epsilon_2)
    inner = n * f * epsilon_1 * epsilon_1
    q = inner / (inner + 8)  # 1/R, which stays finite when f or epsilon_1 is 0
    if math.isinf(epsilon_2) or (q > 0 and epsilon_2 * q >= epsilon_1):
        weight = (q / (n * (f * q + g)), 1 / (n * (f * q + g)))
        error = (inner + 8) / (4 * n * (inner + 8 * g))
    else:
        mean = f * epsilon_1 + g * epsilon_2
        weight = (epsilon_1 / mean / n, epsilon_2 / mean / n)
        noise = 1 / (n * mean)
        error = n * (f * weight[0] ** 2 + g * weight[1] ** 2) / 4 + 2 * noise * noise
    R = 1 / q if q > 0 else math.inf
    return TwoGroups(
        R=R,
        saturation=epsilon_1 / q if q > 0 else math.inf,
        weight=weight,
        upper=min(error, 0.25) * width * width,
        lower=_le_cam(np.array([epsilon_1, epsilon_2]), np.array([n * f, n * g])) * width * width,
    )
