"""Formulas of the hybrid mean papers, corrected (docs/errata.md), that no plan and no release needs."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.public.mean import Setting

__all__ = ["critical_n_fixed_noise", "pwh_beats_both"]

Floats = NDArray[np.float64]


def critical_n_fixed_noise(s: Setting) -> Floats:
    """n_crit of P Lemma 3.6 as corrected, for a trusted noise variance s_T^2 that stays fixed while n grows.

    ``[c s_L^2 - (1-c)((1-c) var_T + c var_L)] / (c ((mu_T - mu)^2 + s_T^2))``: TCM-Only wins up to this n.
    """
    top = s.c * s.noise_l - (1 - s.c) * ((1 - s.c) * s.var_t + s.c * s.var_l)
    return np.asarray(top / (s.c * (s.trusted_bias**2 + s.noise_t)))


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
