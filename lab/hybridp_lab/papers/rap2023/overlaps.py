"""What one historical threshold is worth, by how many features a future threshold shares with it (Figure 4.14).

Which features analysts like best is drawn at random. So by symmetry the future error after one historical threshold is,
under every distribution, sum_j P(j shared features) x the mean error of thresholds that share j with it: the chances
are computed, and only these mean errors are measured, over all future thresholds. After a history of every threshold
there is (364 on ADULT) the fit knows nothing of the distribution, any threshold is as likely to be next as any other,
and distributions differ by exactly 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hybridp.public.queries import Threshold, Workload
from hybridp.public.workloads import FeatureLaw, feature_weights
from hybridp.randomness import seeded
from hybridp_lab.figure.declared import Check, Point, Row
from hybridp_lab.figure.ruling import measured
from hybridp_lab.papers.rap2023 import experiments as rap

__all__ = ["chances", "judge_overlaps", "overlaps"]

Floats = NDArray[np.float64]


def chances(features: int, k: int, law: FeatureLaw) -> Floats:
    """The chances that two thresholds over k of so many features share 0, 1, ..., k of them, drawn by a law.

    >>> [round(p, 4) for p in chances(14, 3, "uniform").tolist()]
    [0.4533, 0.4533, 0.0907, 0.0027]
    """
    weights = feature_weights(features, law, rap.GEOMETRIC if law == "geometric" else None)
    sets = np.array(list(combinations(range(features), k)))
    mass = weights[sets].prod(axis=1)
    mass /= mass.sum()
    member = np.zeros((len(sets), features), dtype=np.int64)
    np.put_along_axis(member, sets, 1, axis=1)
    shared = member @ member.T
    return np.array([float(mass @ (shared == j) @ mass) for j in range(k + 1)])


def overlaps(point: Point) -> list[Row]:
    """RAP fitted to one threshold: the mean error of all thresholds that share 0, 1, ..., k features with it."""
    people = rap.codes(point["data"])
    features = len(people.schema.features)
    sets = list(combinations(range(features), point["k"]))
    one = sets[np.random.default_rng([point["trial"], 414]).integers(len(sets))]
    data = rap.fit(
        people, Workload(people.schema, (Threshold(one, point["r"]),)), point, rng=seeded(rap.point_seed(point))
    )
    found: list[list[float]] = [[] for _ in range(point["k"] + 1)]
    for other in sets:
        asked = Workload(people.schema, (Threshold(other, point["r"]),))
        found[len({*one} & {*other})].append(rap.largest_error(people, asked, data))
    return [{**point, "threshold": list(one), "features": features, "errors": [float(np.mean(e)) for e in found]}]


def judge_overlaps(quick: Sequence[Row], rows: Sequence[Row]) -> list[Check]:
    """By how much Uniform's future error exceeds Geometric's after one threshold; after all of them it is 0."""
    first = rows[0]
    gap = chances(first["features"], first["k"], "uniform") - chances(first["features"], first["k"], "geometric")
    return [
        measured(
            "The distributions differ less at the largest workload than at the smallest.",
            [float(gap @ np.array(row["errors"])) for row in rows],
            "above",
            0.0,
            place="4.5.3.1, Figure 4.14",
            printed="Uniform the highest and Geometric the lowest for small workloads",
            found="Uniform less Geometric after one threshold; after all of them they differ by exactly 0",
        )
    ]
