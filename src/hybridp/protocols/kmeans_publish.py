"""From centres to a release: units, noisy sizes, promises. And the whole way for points in memory."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from hybridp.blend.kmeans import Clusters
from hybridp.curator.kmeans import PointRows, Points
from hybridp.errors import must
from hybridp.protocols.kmeans import Crowd, KMeansStudy, SimulatedCrowd, cluster
from hybridp.protocols.kmeans_paper import cluster_as_in_paper
from hybridp.public.budgets import ZCDP, PureDP
from hybridp.public.kmeans_rounds import Plan
from hybridp.randomness import Randomness
from hybridp.release.kmeans import Cluster, KMeansRelease
from hybridp.release.receipt import (
    Protection,
    build_receipt,
    choice_unprotected,
    chosen_blindly,
    public_choice,
    values_rule,
)

__all__ = ["publish_kmeans", "release_points", "run_kmeans"]

_ASSUMES = (
    public_choice("point is"),
    choice_unprotected(),
    chosen_blindly("the bounds and the number of clusters"),
    "the centres are estimates of a local optimum; nobody's label is published, and labels computed from the centres "
    "for a person are as private as that person's point",
    values_rule(),
)


def run_kmeans(
    study: KMeansStudy, trusted: PointRows | None, local: Crowd | None, *, plan: Plan | None = None, rng: Randomness
) -> tuple[Clusters, Plan | None]:
    """The study's method on these groups; no plan comes back from the paper's methods."""
    if study.method == "improved":
        return cluster(study, trusted, local, plan=plan, rng=rng)
    must(
        local is None or isinstance(local, SimulatedCrowd),
        "method",
        "must be improved unless local people are simulated: the paper's ask everybody again in every round",
        study.method,
    )
    crowd = local if isinstance(local, SimulatedCrowd) else None
    return cluster_as_in_paper(study, trusted, crowd, rng=rng), None


def release_points(
    study: KMeansStudy,
    trusted: ArrayLike | None,
    local: ArrayLike | None,
    *,
    columns: tuple[str, ...] | None = None,
    rng: Randomness,
) -> KMeansRelease:
    """Release the centres of points in memory; local people's are raw and randomised here, which makes it a trial.

    >>> from hybridp.public.kmeans import Box
    >>> from hybridp.randomness import seeded
    >>> study = KMeansStudy(Box((0.0,), (1.0,)), 2, PureDP(5.0))
    >>> points = [[0.1]] * 500 + [[0.9]] * 500
    >>> found = release_points(study, points, None, rng=seeded(1))
    >>> sorted(round(c.centre[0], 1) for c in found.clusters)
    [0.1, 0.9]
    """
    rows = None if trusted is None or not len(np.asarray(trusted)) else Points.read(study.box, trusted)
    crowd = None if local is None or not len(np.asarray(local)) else SimulatedCrowd(study.box.levels(local), rng)
    found, plan = run_kmeans(study, rows, crowd, rng=rng)
    return publish_kmeans(
        study,
        found,
        plan,
        columns=columns or tuple(f"x{j}" for j in range(study.box.dims)),
        people=(0 if rows is None else rows.people, 0 if crowd is None else crowd.people),
        simulated_local=crowd is not None and study.method != "tcm",
        rng=rng,
    )


def publish_kmeans(
    study: KMeansStudy,
    found: Clusters,
    plan: Plan | None,
    *,
    columns: tuple[str, ...],
    people: tuple[int, int],
    entries: tuple[int, ...] = (),
    simulated_local: bool = False,
    rng: Randomness,
) -> KMeansRelease:
    """State what was found and what was promised. Post-processing: no rows, no noise."""
    total = sum(people) if study.method != "tcm" else people[0]
    centres = study.box.values(found.centres)
    clusters = [
        Cluster(
            tuple(float(v) for v in centres[i]),
            float(found.shares[i]) * total,
            _known(float(np.sqrt(np.mean(found.centre_errors[i] ** 2))) * study.box.step),
            _known(float(found.share_errors[i]) * total),
        )
        for i in np.argsort(-found.shares, kind="stable")
    ]
    return KMeansRelease(
        method=study.method,
        columns=columns,
        clusters=tuple(clusters),
        lower=study.box.lower,
        upper=study.box.upper,
        trusted_people=people[0],
        local_people=people[1],
        iterations=(study.iterations or 5) if plan is None else plan.iterations,
        map_cells=plan.per_axis**study.box.dims if plan is not None and plan.per_axis else 0,
        noise=_noise(plan),
        receipt=build_receipt(
            _trusted_protection(study, plan) if people[0] else None,
            _local_protection(study, plan) if people[1] and study.method != "tcm" else None,
            assumes=_ASSUMES,
            randomness=rng.label,
            seeded=rng.simulated,
            simulated_local=simulated_local,
            reads="points",
            unit="one person, one point",
            entries=entries,
        ),
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _noise(plan: Plan | None) -> str:
    if plan is None:
        return "laplace"
    return "none" if plan.spent is None else "laplace" if isinstance(plan.spent, PureDP) else "gaussian"


def _trusted_protection(study: KMeansStudy, plan: Plan | None) -> Protection:
    own = PureDP(study.guarantee.epsilon)
    if study.method == "lm":
        return Protection(own, "reports of a point drawn by the curator")
    if plan is None:
        return Protection(own, f"discrete Laplace noise on counts and sums by cluster, {study.iterations or 5} times")
    spent = plan.spent
    level = f"composed as {spent}" if isinstance(spent, ZCDP) else "composed by adding up"
    promise = study.guarantee if isinstance(spent, ZCDP) else own
    kind = f"discrete {_noise(plan)} noise on counts in cells and sums by cluster"
    return Protection(promise, kind, f"{plan.iterations} answers, {level}")


def _local_protection(study: KMeansStudy, plan: Plan | None) -> Protection:
    times = f"{(study.iterations or 5) + 1} reports of a point"
    once = times if plan is None else "one report of a point, with the whole epsilon"
    return Protection(PureDP(study.guarantee.epsilon), f"{once}, on their own device")
