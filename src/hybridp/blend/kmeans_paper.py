"""Algorithm 2.7's centre update, corrected (errata 17): debiased local sums and counts, PWH weight in each cluster."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridp.public.kmeans_rounds import TrustedRound
from hybridp.public.randomisers import KRandomisedResponse

__all__ = ["PaperLocal", "debiased_totals", "paper_update"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class PaperLocal:
    """Sums of noisy points (steps) by the label told, and the scale of their Laplace noise."""

    counts: Ints
    sums: Floats
    response: KRandomisedResponse | None
    scale: float


def debiased_totals(local: PaperLocal) -> tuple[Floats, Floats]:
    """Unbiased counts and sums of every cluster.

    A label is true with probability p and any other one with q, and then it carries the whole point along:
    ``E told_k = (p-q) S_k + q sum_j S_j``, for counts and sums alike.
    """
    if local.response is None:
        return local.counts.astype(np.float64), local.sums
    p, q = local.response.truth, local.response.other
    counts = (local.counts - q * local.counts.sum()) / (p - q)
    sums = (local.sums - q * local.sums.sum(axis=0)) / (p - q)
    return counts, sums


def paper_update(before: Floats, trusted: TrustedRound | None, local: PaperLocal | None) -> tuple[Floats, Floats]:
    """The next centres (steps) and the noisy sizes of the clusters.

    ``w = (s_L^2/N_L)/(s_L^2/N_L + s_T^2)`` with ``s_T^2 = 2 b_T^2/N_T^2`` and ``s_L^2 = 2 b_L^2`` (Def. 2.3.22). A
    group whose noisy count is not above 1 has no mean; when neither has one, the centre stays.
    """
    k = len(before)
    none = np.zeros(k)
    n_t, mean_t = none, before
    if trusted is not None:
        n_t = trusted.counts
        mean_t = trusted.sums / np.where(n_t > 1, n_t, 1.0)[:, None]
    n_l, mean_l, s_l = none, before, 0.0
    if local is not None:
        n_l, sums = debiased_totals(local)
        mean_l = sums / np.where(n_l > 1, n_l, 1.0)[:, None]
        s_l = 2 * local.scale**2
    s_t = 0.0 if trusted is None else trusted.noise.variance
    noise_t = s_t / np.where(n_t > 1, n_t, 1.0) ** 2
    noise_l = s_l / np.where(n_l > 1, n_l, 1.0)
    weight = noise_l / np.maximum(noise_l + noise_t, 1e-300)
    weight = np.where(n_l > 1, weight, 1.0)
    weight = np.where(n_t > 1, weight, 0.0)[:, None]
    moved = weight * mean_t + (1 - weight) * mean_l
    known = ((n_t > 1) | (n_l > 1))[:, None]
    return np.where(known, moved, before), np.maximum(n_t, 0.0) + np.maximum(n_l, 0.0)
