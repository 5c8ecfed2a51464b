"""Formulas of the hybrid mean papers as they were printed, beside what `hybridp.public` has corrected.

UNSAFE OR WRONG, each in its own way, and evaluated only so that a figure can show both forms (docs/errata.md has the
numbers). Nothing outside the laboratory may use them. P is Avent, Dubey and Korolova 2020, W the workshop paper of
2018, D the dissertation.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.public import messages as theory
from hybridp.public.messages import Setting

__all__ = [
    "amplified",
    "critical_n",
    "gamma",
    "local_samples",
    "mixture_variance",
    "over_best",
    "pwh_beats_both",
    "trusted_samples",
    "workshop_bound",
]

Floats = NDArray[np.float64]


def critical_n(s: Setting) -> Floats:
    """n_crit of P Lemma 3.6: a sign is wrong inside the bracket (errata 7)."""
    top = s.c * s.noise_l + (1 - s.c) * ((1 - s.c) * s.var_t - s.c * s.var_l)
    return np.asarray(top / (s.c * (((1 - s.c) * s.gap) ** 2 + s.noise_t)))


def over_best(s: Setting, error: ArrayLike) -> Floats:
    """R by P Def. 3.7 with that n_crit, and E_L where E_F is meant (errata 8).

    >>> from hybridp_lab.papers.mean2020.corrected import laplace_setting
    >>> s = laplace_setting(n=1500, c=0.05, width=1, epsilon=1, sd=12**-0.5)
    >>> error = theory.hybrid(s, theory.kvh_weight(s))
    >>> round(float(over_best(s, error)), 2), round(float(theory.over_best(s, error)), 2)
    (2.09, 1.97)
    """
    trusted = (s.c > theory.critical_c(s)) & (s.n <= critical_n(s))
    return np.asarray(np.where(trusted, theory.tcm_only(s), theory.hybrid(s, 0.0)) / np.asarray(error))


def gamma(s: Setting) -> Floats:
    """gamma of P Thm 4.3, the factor of the better baseline: it is KVH's error and not its inverse (errata 9).

    >>> from hybridp_lab.papers.mean2020.corrected import laplace_setting
    >>> s = laplace_setting(n=1500, c=0.05, width=1, epsilon=1, sd=12**-0.5)
    >>> bool(np.isclose(gamma(s), theory.hybrid(s, theory.kvh_weight(s)), rtol=1e-12))
    True
    """
    c, n, v, local, trusted = s.c, s.n, s.var_t, s.noise_l, s.noise_t
    top = (1 - c) * v * local + c * n * (c * v + local) * trusted
    return np.asarray(top / (n * (v + c * local) + (1 - c) * c * n**2 * trusted))


def pwh_beats_both(
    n: ArrayLike, c: ArrayLike, epsilon: ArrayLike, sd: ArrayLike, width: ArrayLike
) -> NDArray[np.bool_]:
    """Where PWH is said to beat both baselines (P sec. 5): the condition of the weight w = c (errata 11)."""
    n, c, width = np.asarray(n), np.asarray(c), np.asarray(width)
    y = (np.asarray(epsilon) * np.asarray(sd) / width) ** 2
    room = 2 * c - y
    limit = np.where(room > 0, 2 * (1 + c) / (c * np.where(room > 0, room, 1.0)), np.inf)
    return np.asarray((y >= 2) | (c <= y / 2) | (n < limit))


def amplified(*, n: int, trusted: int, weight: float, epsilon: float, delta: float, honest: int) -> float:
    """epsilon' of P Thm 8.1: the smaller of the two groups' sensitivities (errata 1). It PROTECTS NOBODY at that level.

    In units of the range m, with the classic calibration s_L = sqrt(2 ln(1.25/delta))/epsilon and s_T = s_L/|T|.
    """
    factor = math.sqrt(2 * math.log(1.25 / delta))
    local = n - trusted
    joint = (factor / epsilon) * math.hypot(weight / trusted, (1 - weight) / local * math.sqrt(honest))
    return factor * min(weight / trusted, (1 - weight) / local) / joint


def mixture_variance(c: float, mean_t: float, mean_l: float, var_t: float, var_l: float) -> float:
    """P sec. 2.2: the mixture's second moment, from which mu^2 must still be subtracted (errata 10)."""
    return c * (mean_t**2 + var_t) + (1 - c) * (mean_l**2 + var_l)


def workshop_bound(epsilon: float, sd: float, width: float) -> float:
    """W: the bound on R_max, whose "- 1" is of no dimension (errata 13)."""
    y = (epsilon * sd) ** 2
    return (y + 4 * width**2) / (y + 2 * width**2 - 1)


def local_samples(alpha: float, beta: float, epsilon: float) -> float:
    """W App. B for data on [0, m]: it lacks the factor m^2 (errata 13)."""
    return 8 / (epsilon * alpha) ** 2 * math.log(2 / beta)


def trusted_samples(alpha: float, beta: float, epsilon: float) -> float:
    """W App. B for data on [0, m]: it lacks the factor m (errata 13)."""
    return math.log(1 / beta) / (epsilon * alpha)
