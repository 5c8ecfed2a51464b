"""Maps and rounds of both groups become centres: post-processing of what is already private.

A map is blended from both groups by the inverse of their predicted variances. A round moves each centre by the trusted
people's deviation, shrunk by what noise alone would have made of it; a cluster whose noisy size cannot be told from
nothing stays where it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.shares import simplex, weigh
from hybridp.errors import must
from hybridp.public.kmeans import Box, Grid, TrustedRound, lloyd, nearest, packing, separation
from hybridp.public.randomisers import Floats, estimate
from hybridp.public.shares import ShareReports

__all__ = ["Clusters", "MapShares", "blend_map", "blend_round", "centres_of_map", "packed", "radius_for"]

_CANDIDATES = 1024
_SPREAD = 1 / 3  # of the radius: the standard deviation of one coordinate that predictions assume


@dataclass(frozen=True, eq=False, slots=True)
class Clusters:
    """Centres in steps (not rounded), each cluster's share of the people, and the standard errors of both.

    `spread` is the typical distance from the centre (None when nothing tells), in steps.
    """

    centres: Floats
    shares: Floats
    centre_errors: Floats
    share_errors: Floats
    spread: float | None = None


def packed(box: Box, clusters: int) -> Clusters:
    nothing = np.full((clusters, box.dims), np.inf)
    return Clusters(packing(box, clusters), np.full(clusters, 1 / clusters), nothing, nothing[:, 0])


# --- the map ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False, slots=True)
class MapShares:
    """The share of the people in every cell, the variance of one share, and each group's weight with its law: the
    variance of the summed share f of so many cells c, sampling included."""

    shares: Floats
    variance: float
    groups: list[tuple[float, Callable[[Floats, Floats], Floats]]]


def blend_map(trusted: TrustedRound | None, local: ShareReports | None) -> MapShares:
    """The share of the people in every cell, by inverse variance from whoever answered.

    Of c cells, trusted: c draws of noise, and ``f (1-f)/n``. Local: a report names one of these cells with probability
    ``P = q c + (p-q) f``, so that the debiased share has variance ``P (1-P)/(n (p-q)^2)``.
    """
    result: list[tuple[Floats, float, Callable[[Floats, Floats], Floats]]] = []
    if trusted is not None and (n := trusted.people) > 0:
        noise, sampling = trusted.noise.variance / n**2, 1 / (len(trusted.counts) * n)
        result.append((trusted.counts / n, noise + sampling, lambda c, f: c * noise + f * (1 - f) / n))
    if local is not None and (m := local.people):
        oracle, lift = local.oracle, local.oracle.truth - local.oracle.other
        shares = estimate(oracle, local.counts, m)[0]

        def law(c: Floats, f: Floats) -> Floats:
            named = oracle.other * c + lift * f
            return named * (1 - named) / (m * lift**2)

        result.append((shares, (oracle.variance(0.0) + 1 / len(shares)) / m, law))
    must(bool(result), "people", "must be at least 1 on the map", "0")
    total = sum(1 / variance for _, variance, _ in result)
    blended = sum(1 / variance / total * told for told, variance, _ in result)
    return MapShares(np.asarray(blended), 1 / total, [(1 / variance / total, law) for _, variance, law in result])


def centres_of_map(grid: Grid, mapped: MapShares, clusters: int) -> Clusters:
    """Lloyd's algorithm on the cells: started greedily, each new centre where it lowers the sum of squares the most."""
    weight, variance = simplex(mapped.shares), mapped.variance
    middles = grid.middles()
    held = np.flatnonzero(weight > 0)
    points, mass = middles[held], weight[held]
    centres = _best(points, mass, clusters, middles)
    label = nearest(np.ascontiguousarray(points.T), centres)
    size = np.asarray(np.bincount(label, weights=mass, minlength=clusters), dtype=np.float64)
    far = np.linalg.norm(points - centres[label], axis=1)
    order = np.argsort(far)
    typical = float(far[order][min(np.searchsorted(np.cumsum(mass[order]), 0.5), len(far) - 1)])
    cell = max(grid.box.tops) / grid.per_axis
    # A share's error: the noise of the cells that are left (the others were cut to nothing) and who was asked.
    cells = np.bincount(label, minlength=clusters)
    # A centre's error: noise in its cells pulls by their distance; the cell hides where inside it people are.
    pull = np.bincount(label, weights=far**2, minlength=clusters) * variance / np.maximum(size, 1e-12) ** 2
    errors = np.sqrt(np.minimum(pull / grid.box.dims, cell**2 * grid.per_axis**2 / 4) + cell**2 / 144)
    some, named = np.maximum(cells, 1.0), np.clip(size, 0.0, 1.0)
    share_errors = np.sqrt(sum(weight**2 * law(some, named) for weight, law in mapped.groups))
    return Clusters(centres, size, np.repeat(errors[:, None], grid.box.dims, axis=1), share_errors, typical + cell / 2)


def _best(points: Floats, mass: Floats, clusters: int, spare: Floats) -> Floats:
    """Centres of weighted points: a greedy start, Lloyd's algorithm, and swaps while they help. No chance is involved.

    A swap takes one centre away and puts it where it lowers the sum of squares the most: this leaves the poor optimum
    in which two centres share a cluster and two clusters a centre.
    """
    if len(points) <= clusters:
        rest = spare[np.linspace(0, len(spare) - 1, clusters - len(points)).astype(np.int64)]
        return np.concatenate([points, rest])
    # A large set is thinned to its heaviest points as candidates.
    candidates = points if len(points) <= _CANDIDATES else points[np.argsort(-mass)[:_CANDIDATES]]
    apart = np.zeros((len(candidates), len(points)))
    for of, to in zip(candidates.T, points.T, strict=True):  # one coordinate at a time: no array larger than the result
        apart += (of[:, None] - to[None]) ** 2

    def added(near: Floats) -> Floats:
        return np.asarray(candidates[int(np.argmin(np.minimum(near, apart) @ mass))])

    chosen: list[Floats] = []
    near = np.full(len(points), np.inf)
    for _ in range(clusters):
        chosen.append(added(near))
        near = np.minimum(near, ((points - chosen[-1]) ** 2).sum(axis=1))
    centres = lloyd(points, mass, np.stack(chosen))
    cost = float(_near(points, centres) @ mass)
    for _ in range(2):
        before = cost
        for k in range(clusters if clusters > 1 else 0):
            rest = np.delete(centres, k, axis=0)
            tried = lloyd(points, mass, np.concatenate([rest, added(_near(points, rest))[None]]), 10)
            if (now := float(_near(points, tried) @ mass)) < cost * (1 - 1e-9):
                centres, cost = tried, now
        if cost >= before:
            break
    return lloyd(points, mass, centres)


def _near(points: Floats, centres: Floats) -> Floats:
    label = nearest(np.ascontiguousarray(points.T), centres)
    return np.asarray(((points - centres[label]) ** 2).sum(axis=1))


# --- a round ----------------------------------------------------------------------------------------------------------


def radius_for(box: Box, clusters: Clusters) -> int:
    """How far a deviation may reach in the next round, from public centres alone (whole steps).

    Twice the typical distance when a map told it; otherwise the widest of the clusters' half-distances to their
    neighbours, beyond which few points of a cluster lie. Never more than half the diagonal.
    """
    half = math.sqrt(sum(t * t for t in box.tops)) / 2
    gaps = separation(clusters.centres)
    reach = float(gaps.max()) if np.isfinite(gaps).all() else half
    if clusters.spread is not None:
        reach = min(reach, 2 * clusters.spread)
    return max(1, math.ceil(min(half, max(reach, half / 64))))


def blend_round(box: Box, before: Clusters, moved: TrustedRound, *, reseed: bool) -> Clusters:
    """The next centres.

    Shares are blended by inverse variance with what was known before, and the move ``S/f`` is multiplied by ``max(0, 1
    - V/|move|^2)``, V its whole noise variance (the positive part of a James-Stein factor): noise alone hardly moves a
    centre. With `reseed` a cluster that looks empty is put beside the largest one.
    """
    assert moved.sums is not None
    n, radius, share = moved.people, moved.noise.radius, moved.counts / moved.people
    share_variance = moved.noise.variance / moved.noise.weight**2 / n**2 + np.clip(share, 0.5 / n, 0.25) / n
    variance = moved.noise.variance / n**2 + np.clip(share, 1 / n, 1.0) * (_SPREAD * radius) ** 2 / n
    both = np.array([share, before.shares]), np.array([share_variance, before.share_errors**2])
    share, share_variance = weigh(*both)
    error = np.sqrt(share_variance)
    solid = share > 2 * error
    size = np.where(solid, share, 1.0)
    move, noise = moved.sums / n / size[:, None], variance / size**2
    shrink = np.maximum(0.0, 1 - box.dims * noise / np.maximum((move**2).sum(axis=1), 1e-300))
    if before.spread is not None:  # what a map knows of a centre counts too, by inverse variance
        shrink /= 1 + noise / np.mean(before.centre_errors**2, axis=1)
    move *= np.where(solid, shrink, 0.0)[:, None]
    length = np.linalg.norm(move, axis=1, keepdims=True)
    move *= np.minimum(1.0, radius / np.maximum(length, 1e-300))
    centres = box.inside(before.centres + move)
    if reseed:  # only where the size is known well enough to be called nothing
        centres = _reseeded(box, centres, share, solid | (error * 4 * len(share) > 1), radius)
    kept = np.where(solid[:, None], np.sqrt(noise)[:, None], before.centre_errors)
    return Clusters(centres, np.maximum(share, 0.0), np.minimum(kept, before.centre_errors), error, before.spread)


def _reseeded(box: Box, centres: Floats, share: Floats, solid: NDArray[np.bool_], radius: int) -> Floats:
    """Empty clusters go beside the largest ones, along one axis after the other: a public rule."""
    out = centres.copy()
    room = np.where(solid, share, 0.0)
    if not room.any():
        return out
    for turn, k in enumerate(np.flatnonzero(~solid)):
        big = int(np.argmax(room))
        room[big] /= 2
        out[k] = out[big]
        out[k, turn % box.dims] += radius / 2 * (1 if turn % 2 == 0 else -1)
    return box.inside(out)
