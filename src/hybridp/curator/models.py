"""The curator's part of models: exact counts and sums of trusted people's points, products or scores, with their noise.

Everybody's columns are whole lattice steps, and what is added up are whole numbers; replacing one person moves all sums
of all rounds together by what `hybridp.public.kmeans` and `hybridp.public.regression` state, so that discrete noise has
exactly the stated guarantee. Assignments of trusted people to clusters are never released.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp import noise, tables
from hybridp.curator.reports import Sent
from hybridp.curator.sources import Columns, Entrusted, Rows, TableLike, noisy_sums
from hybridp.curator.sums import column_reports, lattice_query, report_sums
from hybridp.errors import InvalidInput, must
from hybridp.public.kmeans import Box, Grid, TotalsNoise, nearest
from hybridp.public.kmeans_rounds import TrustedMap, TrustedRound
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import MECHANISM, reports_digest
from hybridp.public.regression import LADDER, TAIL, KindName, Question, farther, round_sums
from hybridp.public.trust import label_column
from hybridp.public.vector import VectorBounds
from hybridp.randomness import Randomness
from hybridp.tables.columns import only_texts
from hybridp.tables.query import Query
from hybridp.tables.totals import count_groups, kept_levels

__all__ = ["LatticeRows", "PointRows", "Points", "StreamedPoints", "answer_points", "answer_rows", "held_rows"]
__all__ += ["read_reports", "release_cells", "release_moves", "release_products", "release_scale", "table_points"]
__all__ += ["table_rows"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
_CHUNK = 1 << 15
_MANY = 1 << 20  # people from which threads pay
_PART = 1 << 16


# --- rows of several columns, wherever they live ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LatticeRows:
    """RAW: so many people's columns on the lattice, the target last; `parts` reads one group's, some at a time."""

    trusted: int
    local: int
    parts: Callable[[str], Iterator[Ints]]


def table_rows(rows: Rows, columns: Columns, bounds: VectorBounds, *, local_raw: bool = False) -> LatticeRows:
    """The rows of a table, checked; with `local_raw` (a trial) those of local people can be read too."""
    query = lattice_query(columns, bounds, local_raw=local_raw)
    people = count_groups(rows, query)
    held: dict[str, Callable[[], Iterator[Ints]]] = {}

    def parts(group: str) -> Iterator[Ints]:
        if group not in held:
            held[group] = kept_levels(rows, query, group, _PART)
        return held[group]()

    return LatticeRows(*people, parts)


def held_rows(trusted: Ints, local: Ints) -> LatticeRows:
    """Two groups' columns in memory."""
    held = {"trusted": trusted, "local": local}

    def parts(group: str) -> Iterator[Ints]:
        return (held[group][start : start + _PART] for start in range(0, len(held[group]), _PART))

    return LatticeRows(len(trusted), len(local), parts)


def answer_rows(answers: Entrusted, bounds: VectorBounds, people: int) -> LatticeRows:
    """Answers that a service keeps: those of its trusted people, and nobody else's."""

    def parts(group: str) -> Iterator[Ints]:
        for values in answers.numbers(bounds.dimensions):
            for start in range(0, len(values), _PART):
                yield bounds.steps(values[start : start + _PART])

    return LatticeRows(people, 0, parts)


# --- regression -------------------------------------------------------------------------------------------------------


def release_products(
    rows: LatticeRows,
    kind: KindName,
    mechanism: DiscreteLaplace | DiscreteGaussian,
    centre: tuple[float, ...] = (),
    *,
    rng: Randomness,
) -> tuple[int, ...]:
    """The trusted people's sums of one round, each with a draw of the mechanism's noise."""
    totals: list[int] = []
    for part in rows.parts("trusted"):
        more = round_sums(kind, part, centre).tolist()
        totals = more if not totals else [a + b for a, b in zip(totals, more, strict=True)]
    return noisy_sums(totals, mechanism, rng=rng)


def release_scale(
    rows: LatticeRows, centre: tuple[float, ...], first: int, mechanism: DiscreteLaplace, *, rng: Randomness
) -> int:
    """Which distance of the ladder, from the `first` on, about a twentieth of the trusted people exceed.

    Private as `scale_noise` says; `centre` and `first` follow from what was released before.
    """
    counts = np.zeros(len(LADDER), dtype=np.int64)
    for part in rows.parts("trusted"):
        counts += farther(part, centre)
    drawn = noise.discrete_laplace(mechanism.scale, len(LADDER), rng=rng)
    return first + int(np.argmax((drawn - np.abs(TAIL * counts - rows.trusted))[first:]))


def read_reports(
    path: TableLike, question: Question, mechanism: str, *, table: str | None = None, assume: bool = False
) -> Sent:
    """Reports that answer the question with this text, which they must name unless it is assumed. Private already."""
    names = question.names
    bounds = VectorBounds.of((-1.0,) * len(names), (1.0,) * len(names))
    query = Query.on(bounds, names, None, **column_reports(question.invite, names, bounds))
    simulated = f"{mechanism} SIMULATED"
    with tables.open_rows(path, table=table) as rows:
        for name in names:
            if name not in rows.columns:
                rule = "must hold the reports that `hybridp randomise regression --invite` writes"
                raise InvalidInput(f"`file` {rule}. Got {rows.name} without the column `{name}`.")
        marks = only_texts(rows, MECHANISM, (mechanism, simulated)) if MECHANISM in rows.columns else None
        found = tables.add_up(rows, query)
    assumed = tables.named_mechanism(MECHANISM, None if marks is None else True, found.local_people, assume=assume)
    digest = reports_digest(mechanism, *found.fingerprint)
    return Sent(report_sums(found, question.invite), marks is not None and simulated in marks, assumed, digest)


# --- K-means ----------------------------------------------------------------------------------------------------------


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
class StreamedPoints:
    """Points that are read anew for every question, in parts: memory does not grow with the number of people."""

    people: int
    parts: Callable[[], Iterator[Floats]]

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


def answer_points(answers: Entrusted, box: Box, people: int) -> StreamedPoints:
    """Answers that a service keeps."""
    return StreamedPoints(people, lambda: (box.levels(values) for values in answers.numbers(box.dims)))


def table_points(
    rows: Rows, columns: Columns, box: Box, *, local_raw: bool
) -> tuple[tuple[int, int], Callable[[str], StreamedPoints]]:
    """How many people are trusted and local, and the points of either group, kept by the engine.

    Coordinates outside the box are clipped, those that are missing or no number count as the public `missing` of their
    column, and nobody is told how many. Local people's are read in a trial alone (`local_raw`).
    """
    label, reads = label_column(columns.trust), "all" if local_raw else "trusted"
    query = Query.on(box, columns.names, label, columns.missing, reads=reads)
    people = dict(zip(("trusted", "local"), count_groups(rows, query), strict=True))

    def points(group: str) -> StreamedPoints:
        read = kept_levels(rows, query, group, ordered=False, dtype=np.float64)
        return StreamedPoints(people[group], lambda: (x.T for x in read()))

    return (people["trusted"], people["local"]), points


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


def release_cells(rows: PointRows, grid: Grid, mechanism: TotalsNoise, *, rng: Randomness) -> TrustedMap:
    """Noisy counts in every cell: private as `mechanism.spend` says."""
    must(mechanism.radius == 0, "mechanism", "must be made for counts alone", mechanism.radius)
    counts = rows.cell_counts(grid) + _draws(mechanism, grid.cells, rng)
    return TrustedMap(rows.people, counts, mechanism)


def release_moves(
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
