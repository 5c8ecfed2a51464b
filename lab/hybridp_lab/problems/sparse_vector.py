"""The sparse vector technique: which of many queries exceed a threshold, paid for only when one does.

Algorithm 3.1 of the dissertation fixes the sensitivity at 1, the threshold at 1/2 and takes a total noise level b and
a cutoff C: ``rho ~ Laplace(b_1)`` is drawn once for the threshold, ``nu_i ~ Laplace(b_2)`` for every query, and query i
is answered 1 when ``q_i + nu_i >= 1/2 + rho``, until C queries were. It is Algorithm 7 of Lyu, Su and Li (2017) with
``epsilon_1 = 1/b_1`` and ``epsilon_2 = 2C/b_2``.

>>> mechanism = sparse_vector(noise=10.0, cutoff=4)
>>> mechanism.threshold_scale + mechanism.query_scale
10.0
>>> round(mechanism.epsilon, 6)
1.5
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from hybridp.errors import must
from hybridp.public.mechanisms import PureDP

__all__ = ["SparseVector", "sparse_vector"]


@dataclass(frozen=True, slots=True)
class SparseVector:
    """SVT with Laplace noise for queries of sensitivity 1, stopped after `cutoff` answers of 1.

    epsilon-DP (replacement of one person) with ``epsilon = 1/b_1 + 2C/b_2`` (Lyu et al. 2017, Thm 4).
    """

    threshold_scale: float
    query_scale: float
    cutoff: int
    threshold: float = 0.5

    def __post_init__(self) -> None:
        for name in ("threshold_scale", "query_scale"):
            scale = getattr(self, name)
            must(math.isfinite(scale) and scale > 0, name, "must be positive and finite", scale)
        whole = isinstance(self.cutoff, int) and not isinstance(self.cutoff, bool)
        must(whole and self.cutoff >= 1, "cutoff", "must be a whole number of at least 1", self.cutoff)
        must(math.isfinite(self.threshold), "threshold", "must be a finite number", self.threshold)

    @property
    def epsilon(self) -> float:
        return 1 / self.threshold_scale + 2 * self.cutoff / self.query_scale

    @property
    def guarantee(self) -> PureDP:
        """The same, a few units in the last place up, so that the rounding of two divisions cannot understate it."""
        return PureDP(self.epsilon * (1 + 2.0**-50))


def sparse_vector(noise: float, cutoff: int) -> SparseVector:
    """Algorithm 3.1's split of one noise level: ``b_1 = b/(1 + (2C)^(1/3))`` and ``b_2 = b - b_1``.

    Then ``epsilon = (1 + (2C)^(1/3)) (1 + (2C)^(2/3)) / b`` (dissertation, App. 3.A). Its two terms are in the ratio
    ``1 : (2C)^(2/3)``, which at equal epsilon makes the variance of ``nu - rho`` least (Lyu et al. 2017, Sec. 4.2).

    >>> sparse_vector(10.0, 4).threshold_scale == 10 / 3
    True
    """
    must(math.isfinite(noise) and noise > 0, "noise", "must be positive and finite", noise)
    must(cutoff >= 1, "cutoff", "must be a whole number of at least 1", cutoff)
    first = noise / (1 + math.cbrt(2 * cutoff))
    return SparseVector(first, noise - first, cutoff)
