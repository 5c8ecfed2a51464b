"""Hybrid-DP K-means as the dissertation has it (Algorithm 2.7), corrected, and its two baselines.

`paper`: both groups, combined by PWH in each cluster. `tcm`: the trusted group alone. `lm`: everybody is local.
Corrections (docs/errata.md): b_T = 2(md+1) tau/epsilon, s_T^2 = 2 b_T^2/N_T^2, sums over the cluster, devices assign
the true point, debiased local sums and counts, and the centre update that the listing forgets.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.kmeans import Clusters
from hybridp.blend.kmeans_paper import PaperLocal, paper_update
from hybridp.curator.kmeans import PointRows, release_round
from hybridp.device.kmeans import paper_label, paper_point
from hybridp.errors import InvalidInput, must
from hybridp.protocols.kmeans import KMeansStudy, SimulatedCrowd
from hybridp.public.budgets import PureDP
from hybridp.public.kmeans import packing, paper_noise
from hybridp.public.randomisers import k_randomised_response
from hybridp.randomness import Randomness

__all__ = ["cluster_as_in_paper"]

Floats = NDArray[np.float64]


def cluster_as_in_paper(
    study: KMeansStudy, trusted: PointRows | None, local: SimulatedCrowd | None, *, rng: Randomness
) -> Clusters:
    """Run `study.method` for `study.iterations` (5 unless given) rounds; centres in steps of the box.

    Guarantee: epsilon-DP for both groups. Trusted: tau answers of epsilon/tau. Local: one noisy point and tau labels,
    epsilon/(tau+1) each. A local person answers tau + 1 times, so that local people are simulated here.
    """
    box, k, tau = study.box, study.clusters, study.iterations or 5
    epsilon = study.guarantee.epsilon
    levels = None if local is None else local.levels
    if study.method == "lm" and trusted is not None:  # the curator randomises on the trusted people's behalf
        parts = [*trusted.parts(), *([] if levels is None else [levels])]
        trusted, levels = None, np.concatenate(parts, axis=1)
    if study.method == "tcm":
        levels = None
    people = (0 if trusted is None else trusted.people) + (0 if levels is None else levels.shape[1])
    if people == 0:
        raise InvalidInput(f"`people` must be at least 1 in a group that {study.method} reads. Got 0.")
    must(people >= k, "people", f"must be at least the number of clusters ({k})", people)
    share = epsilon / (tau + 1) * (1 - 1e-12)
    response = k_randomised_response(PureDP(share), k) if k > 1 else None
    sent = None if levels is None else paper_point(levels, box, share, rng=rng).astype(np.float64)
    noise = paper_noise(PureDP(epsilon / tau * (1 - 1e-12)), box.tops)
    centres, sizes = packing(box, k), np.full(k, people / k)
    for _ in range(tau):
        added = said = None
        if trusted is not None:
            added = release_round(trusted, centres, noise, radius=None, origins=np.zeros_like(centres), rng=rng)
        if levels is not None and sent is not None:
            told = paper_label(levels, centres, response, rng=rng)
            sums = np.array([np.bincount(told, weights=x, minlength=k) for x in sent], dtype=np.float64).T
            said = PaperLocal(np.bincount(told, minlength=k), sums, response, sum(box.tops) / share)
        moved, sizes = paper_update(centres, added, said)
        centres = box.inside(moved)
    nothing = np.full(k, np.inf)
    return Clusters(centres, sizes / max(float(sizes.sum()), 1.0), np.full((k, box.dims), np.inf), nothing)
