"""The curator's part of K-means: counts in cells, and counts and sums by cluster, with their noise.

Trusted points are whole lattice steps, and so is everything that is added up; replacing one person's point changes two
clusters (or two cells) by what `hybridp.public.kmeans` states, so that discrete noise has exactly the stated guarantee.
Assignments of trusted people are never released.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp import noise
from hybridp.curator.sources import Entrusted
from hybridp.errors import must
from hybridp.public.kmeans import Box, Grid, TotalsNoise, nearest
from hybridp.public.kmeans_rounds import TrustedMap, TrustedRound
from hybridp.randomness import Randomness
from hybridp.tables.kmeans import PointQuery, check_points, store_points

__all__ = ["AnswerPoints", "PointQuery", "PointRows", "Points", "check_points", "release_map", "release_round",
           "store_points"]  # fmt: skip

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_CHUNK = 1 << 15
_MANY = 1 << 20  # people from which threads pay


class PointRows(Protocol):
    """RAW: trusted people's points, wherever they live. Its answers never leave this room without noise."""

    @property
    def people(self) -> int: ...

    def cell_counts(self, grid: Grid) -> Ints:
        """People in every cell."""
        ...

    def totals(self, centres: Floats, radius: int) -> tuple[Ints, Ints]:
        """By nearest centre, all of whole steps: people, and exact sums of their deviations, cut to the radius."""
        ...

    def parts(self) -> Iterator[Floats]:
        """Their levels, in bounded pieces (coordinates, people)."""
        ...


@dataclass(frozen=True, eq=False)
class Points:
    """Points in memory, as lattice levels (coordinates, people)."""

    levels: Floats

    @classmethod
    def read(cls, box: Box, points: ArrayLike) -> Points:
        return cls(box.levels(points))

    @property
    def people(self) -> int:
        return int(self.levels.shape[1])

    def cell_counts(self, grid: Grid) -> Ints:
        counts = np.zeros(grid.cells, dtype=np.int64)
        for part in self.parts():
            counts += np.bincount(grid.cell(part), minlength=grid.cells)
        return counts

    def totals(self, centres: Floats, radius: int) -> tuple[Ints, Ints]:
        workers = (os.cpu_count() or 1) if self.people >= _MANY else 1
        edges = np.linspace(0, self.people, workers + 1).astype(np.int64)
        if workers == 1:
            return self._block(centres, radius)
        blocks = [Points(self.levels[:, a:b]) for a, b in itertools.pairwise(edges)]
        with ThreadPoolExecutor(workers) as pool:  # whole numbers: the same totals in any order
            found = list(pool.map(lambda part: part._block(centres, radius), blocks))
        return sum((c for c, _ in found), start=found[0][0] * 0), sum((s for _, s in found), start=found[0][1] * 0)

    def _block(self, centres: Floats, radius: int) -> tuple[Ints, Ints]:
        k, d = np.shape(centres)
        counts = np.zeros(k, dtype=np.int64)
        sums = np.zeros((d, k), dtype=np.int64)
        for x in self.parts():
            square = np.empty(x.shape[1])  # distances come with the labels: whole numbers below 2^53
            label = nearest(x, centres, scores=square)
            counts += np.bincount(label, minlength=k)
            # Whole numbers below 2^53 in doubles: these sums are exact in any order.
            sums += _sums(x, label, k)
            for row in x:
                square += row * row
            far = np.flatnonzero(square > float(radius) ** 2)
            if len(far):
                surplus = _surplus(x[:, far] - centres.T[:, label[far]], square[far], radius)
                sums -= _sums(surplus, label[far], k)
        return counts, sums.T - counts[:, None] * centres.astype(np.int64)

    def parts(self) -> Iterator[Floats]:
        for start in range(0, self.people, _CHUNK):
            yield self.levels[:, start : start + _CHUNK]


@dataclass(frozen=True, eq=False)
class AnswerPoints:
    """Answers that a service keeps, read anew for every question: memory does not grow with the number of people."""

    answers: Entrusted
    box: Box
    people: int

    def cell_counts(self, grid: Grid) -> Ints:
        counts = np.zeros(grid.cells, dtype=np.int64)
        for part in self.parts():
            counts += Points(part).cell_counts(grid)
        return counts

    def totals(self, centres: Floats, radius: int) -> tuple[Ints, Ints]:
        counts, sums = np.zeros(len(centres), dtype=np.int64), np.zeros(np.shape(centres), dtype=np.int64)
        for part in self.parts():
            more, moved = Points(part).totals(centres, radius)
            counts, sums = counts + more, sums + moved
        return counts, sums

    def parts(self) -> Iterator[Floats]:
        return (self.box.levels(values) for values in self.answers.numbers(self.box.dims))


def _sums(x: Floats, label: Ints, clusters: int) -> Ints:
    """The sums of whole numbers by label, an array (coordinates, clusters)."""
    return np.stack([np.bincount(label, weights=row, minlength=clusters).astype(np.int64) for row in x])


def _surplus(deviation: Floats, square: Floats, radius: int) -> Floats:
    """What must be taken off deviations longer than the radius: whole steps, after which no norm exceeds the radius."""
    return np.asarray(deviation - np.trunc(deviation * (radius * (1 - 1e-9) / np.sqrt(square))))


def _draws(mechanism: TotalsNoise, size: int, rng: Randomness) -> Ints:
    if mechanism.kind == "laplace":
        return noise.discrete_laplace(mechanism.size, size, rng=rng)
    return noise.discrete_gaussian(mechanism.size, size, rng=rng)


def release_map(rows: PointRows, grid: Grid, mechanism: TotalsNoise, *, rng: Randomness) -> TrustedMap:
    """Noisy counts in every cell: private as `mechanism.spend` says."""
    must(mechanism.radius == 0, "mechanism", "must be made for counts alone", mechanism.radius)
    counts = rows.cell_counts(grid) + _draws(mechanism, grid.cells, rng)
    return TrustedMap(rows.people, counts, mechanism)


def release_round(
    rows: PointRows, centres: Floats, mechanism: TotalsNoise, *, radius: int, rng: Randomness
) -> TrustedRound:
    """Noisy counts and sums by cluster: private as `mechanism.spend` says, which must be made for this radius."""
    must(mechanism.radius == radius, "mechanism", f"must be made for the radius {radius}", mechanism.radius)
    counts, sums = rows.totals(np.rint(centres), radius)
    drawn = _draws(mechanism, counts.size + sums.size, rng)
    noisy = counts * mechanism.weight + drawn[: counts.size]
    return TrustedRound(
        rows.people,
        noisy / mechanism.weight,
        (sums + drawn[counts.size :].reshape(sums.shape)).astype(np.float64),
        mechanism,
    )
