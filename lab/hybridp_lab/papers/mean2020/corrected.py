"""Formulas of the hybrid mean papers, corrected (docs/errata.md), that no plan and no release needs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.public.messages import Setting

__all__ = ["critical_n_fixed_noise", "laplace_setting", "pwh_beats_both", "sup_over_best", "with_people"]

Floats = NDArray[np.float64]


def laplace_setting(
    *,
    n: ArrayLike,
    c: ArrayLike,
    width: ArrayLike,
    epsilon: ArrayLike,
    sd: ArrayLike,
    local_sd: ArrayLike | None = None,
    gap: ArrayLike = 0.0,
) -> Setting:
    """The papers' choice, epsilon-DP Laplace noise: s_T^2 = 2 (m/(epsilon c n))^2, s_L^2 = 2 (m/epsilon)^2."""
    one = 2 * (np.asarray(width, dtype=np.float64) / np.asarray(epsilon, dtype=np.float64)) ** 2
    trusted = np.asarray(c, dtype=np.float64) * np.asarray(n, dtype=np.float64)
    local = None if local_sd is None else np.asarray(local_sd, dtype=np.float64) ** 2
    spread = np.asarray(sd, dtype=np.float64) ** 2
    return Setting(
        n=n, c=c, var_t=spread, noise_t=one / trusted**2, noise_l=one, var_l=local, gap=gap
    )


def with_people(s: Setting, n: ArrayLike) -> Setting:
    """The same mechanisms with another number of people: s_T^2 shrinks with the square of the trusted group."""
    many = np.asarray(n, dtype=np.float64)
    return replace(s, n=many, noise_t=s.noise_t * (s.n / many) ** 2)


def critical_n_fixed_noise(s: Setting) -> Floats:
    """n_crit of P Lemma 3.6 as corrected, for a trusted noise variance s_T^2 that stays fixed while n grows.

    ``[c s_L^2 - (1-c)((1-c) var_T + c var_L)] / (c ((mu_T - mu)^2 + s_T^2))``: TCM-Only wins up to this n.
    """
    top = s.c * s.noise_l - (1 - s.c) * ((1 - s.c) * s.var_t + s.c * s.var_l)
    return np.asarray(top / (s.c * (((1 - s.c) * s.gap) ** 2 + s.noise_t)))


def pwh_beats_both(
    n: ArrayLike, c: ArrayLike, epsilon: ArrayLike, sd: ArrayLike, width: ArrayLike
) -> NDArray[np.bool_]:
    """Where PWH with Laplace noise has R > 1 (P sec. 5, corrected), for more than one trusted person.

    With y = (epsilon sd/width)^2: iff ``c >= y/(2+y)`` or ``n < (1-c)(2+y)/(c((1-c) y - 2c))``.
    """
    n, c = np.asarray(n), np.asarray(c)
    y = (np.asarray(epsilon) * np.asarray(sd) / np.asarray(width)) ** 2
    room = (1 - c) * y - 2 * c
    with np.errstate(divide="ignore"):
        limit = np.where(room > 0, (1 - c) * (2 + y) / (c * np.where(room > 0, room, 1)), np.inf)
    return np.asarray((c >= y / (2 + y)) | (n < limit))


def sup_over_best(epsilon: ArrayLike, sd: ArrayLike, width: ArrayLike) -> Floats:
    """sup R of KVH with Laplace noise over all n and c: ``2 + (epsilon sd/width)^2/2``, approached but not attained.

    At most 17/8 for epsilon <= 1, since sd <= width/2 (P Cor. 4.4 allows up to 16/7).
    """
    ratio = np.asarray(epsilon, dtype=np.float64) * np.asarray(sd) / np.asarray(width)
    return np.asarray(2 + ratio**2 / 2)
