"""Workloads of the published experiments: sets of features drawn alike, or by how often analysts ask about each."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from functools import lru_cache
from itertools import chain, combinations
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, must
from hybridp.public.queries import Schema, Threshold, Workload

__all__ = ["FeatureLaw", "feature_weights", "first_queries", "parse_spec", "sample_thresholds", "sample_workload"]

FeatureLaw = Literal["uniform", "zipf", "geometric"]
_LISTED = 1 << 20  # Sets of features that may be listed to draw from; beyond, draws are repeated until they fit.
_DRAWS = 1000  # Draws for one threshold before it is taken that there is none left.


@lru_cache(maxsize=8)
def first_queries(workload: Workload) -> NDArray[np.int64]:
    """The number of each threshold's first query, and at the end the number of queries."""
    cells = [workload.schema.cells(t.features) for t in workload.thresholds]
    return np.concatenate([[0], np.cumsum(np.array(cells, dtype=np.int64))]).astype(np.int64)


def feature_weights(count: int, law: FeatureLaw, parameter: float | None = None) -> NDArray[np.float64]:
    """Probabilities of `count` features in descending order: how often analysts ask about each (Avent 2023, 4.5.3).

    Zipf: p_i proportional to 1/i^s, s = 1 unless given. Geometric: proportional to (1-p)^(i-1), p = 1/3 unless given.

    >>> feature_weights(3, "zipf").round(4).tolist()
    [0.5455, 0.2727, 0.1818]
    """
    must(count >= 1, "count", "must be at least 1", count)
    must(law in ("uniform", "zipf", "geometric"), "law", "must be uniform, zipf or geometric", law)
    ranks = np.arange(1, count + 1, dtype=np.float64)
    if law == "uniform":
        must(parameter is None, "parameter", "is only for zipf and geometric", parameter)
        mass = np.ones(count)
    elif law == "zipf":
        power = 1.0 if parameter is None else parameter
        must(power > 0 and math.isfinite(power), "parameter", "must be positive for zipf", power)
        mass = ranks**-power
    else:
        stop = 1 / 3 if parameter is None else parameter
        must(0 < stop < 1, "parameter", "must be between 0 and 1 for geometric", stop)
        mass = (1 - stop) ** (ranks - 1)
    return np.asarray(mass / mass.sum(), dtype=np.float64)


def sample_thresholds(
    schema: Schema,
    *,
    k: int,
    r: int,
    count: int,
    rng: np.random.Generator,
    weights: NDArray[np.float64] | None = None,
    most_queries: int | None = None,
    distinct: bool = True,
) -> tuple[Threshold, ...]:
    """Draw sets of k features: all alike, or with `weights` feature by feature without replacement.

    `most_queries` leaves out every set with more consistent queries (the published experiments allow as many as there
    are people). With `distinct` no set comes twice; without it the draws are independent (Definition 4.5.1).

    >>> schema = Schema.from_domain({"a": 2, "b": 3, "c": 50})
    >>> drawn = sample_thresholds(schema, k=2, r=1, count=1, rng=np.random.default_rng(1), most_queries=90)
    >>> drawn
    (Threshold(features=(0, 1), r=1),)
    """
    known = len(schema.features)
    must(1 <= k <= known, "k", f"must be at least 1 and at most the number of features ({known})", k)
    must(1 <= r <= k, "r", f"must be between 1 and k = {k}", r)
    must(count >= 1, "count", "must be at least 1", count)
    must(most_queries is None or most_queries >= 1, "most_queries", "must be at least 1", most_queries)
    if weights is not None:
        ok = len(weights) == known and bool((np.asarray(weights) >= 0).all()) and float(np.sum(weights)) > 0
        must(ok, "weights", f"must be {known} numbers that are not negative and not all zero", len(weights))
    few = math.comb(known, k) <= _LISTED
    fitting = [c for c in combinations(range(known), k) if _fits(schema, c, most_queries)] if few else None
    if fitting is not None:
        enough = len(fitting) >= (count if distinct else 1)
        limit = "" if most_queries is None else f" with at most {most_queries} queries"
        must(enough, "count", f"must be at most the number of sets of {k} features{limit} ({len(fitting)})", count)
        if weights is None:
            chosen = rng.choice(len(fitting), size=count, replace=not distinct)
            return tuple(Threshold(fitting[i], r) for i in chosen.tolist())
        positive = int(np.count_nonzero(weights))
        must(positive >= k, "weights", f"must be positive for at least {k} features", positive)
    result: list[tuple[int, ...]] = []
    seen: set[tuple[int, ...]] = set()
    misses = 0
    share = None if weights is None else np.asarray(weights, dtype=np.float64) / float(np.sum(weights))
    while len(result) < count:
        drawn = tuple(sorted(rng.choice(known, size=k, replace=False, p=share).tolist()))
        if (distinct and drawn in seen) or not _fits(schema, drawn, most_queries):
            misses += 1
            must(misses < _DRAWS * count, "count", "must be smaller: too few sets of features fit", count)
            continue
        seen.add(drawn)
        result.append(drawn)
    return tuple(Threshold(features, r) for features in result)


def _fits(schema: Schema, features: tuple[int, ...], most: int | None) -> bool:
    return most is None or schema.cells(features) <= most


def parse_spec(text: str) -> Iterator[tuple[int, int, int]]:
    """Read "3-of-3:64, 1-of-4:16": r, k and how many, here 64 three-way marginals and 16 of at least 1 of 4.

    >>> list(parse_spec("3-of-3:64, 1-of-4:16"))
    [(3, 3, 64), (1, 4, 16)]
    """
    for part in text.split(","):
        result = re.fullmatch(r"\s*(\d+)\s*-\s*of\s*-\s*(\d+)\s*:\s*(\d+)\s*", part)
        if result is None:
            raise InvalidInput(f"`thresholds` must be written like 3-of-3:64, 1-of-4:16. Got {text!r}.")
        r, k, count = (int(group) for group in result.groups())
        must(1 <= r <= k, "thresholds", f"must ask for at least 1 and at most k = {k} matches", part.strip())
        must(count >= 1, "thresholds", "must ask for at least one of each kind", part.strip())
        yield r, k, count


def sample_workload(schema: Schema, spec: str, *, rng: np.random.Generator, **how: Any) -> Workload:
    """A workload from a specification, each of its parts sampled as by `sample_thresholds`."""
    parts = (sample_thresholds(schema, k=k, r=r, count=count, rng=rng, **how) for r, k, count in parse_spec(spec))
    return Workload(schema, tuple(chain.from_iterable(parts)))
