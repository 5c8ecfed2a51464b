"""The curator's part of models and records: exact counts and sums of trusted people's points, products, scores or
records, with their noise.

Everybody's columns are whole lattice steps, and what is added up are whole numbers; replacing one person moves all sums
of all rounds together by what `hybridp.public.kmeans` and `hybridp.public.regression` state, so that discrete noise has
exactly the stated guarantee. Assignments of trusted people to clusters are never released. Of records everybody has
one, so that a replaced person moves one count down and another up by 1. Which marginal a model misses most is selected
by the exponential mechanism itself, drawn exactly: scores are whole numbers of lattice steps, so that their sensitivity
is exact, and rounding changes no probability.

Where every person brings their own epsilon the trusted sum is weighted: a person who asks for more privacy counts less.
To stay exact, weights become whole numbers a_i, so that the weighted sum of levels is a whole number which person i
moves by at most ``a_i LEVELS``. It is rounded to multiples of a coarser step (which adds at most one step to anybody's
reach), and discrete Laplace noise of t of those steps makes the release ``(floor(a_i LEVELS/step) + 1)/t``-DP for
person i, at most what they asked for. People with epsilon 0 are left out altogether, whatever their data.
"""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp import noise, tables
from hybridp.curator import sums as summing
from hybridp.curator.sums import Answers, Columns, Raw, Rows, TableLike, TrustedAnswers, as_numbers, noisy_sums
from hybridp.errors import must
from hybridp.noise import Randomness, settle_below_exp
from hybridp.public.heavy import Discovery, HeadList
from hybridp.public.kmeans import Box, Grid, TotalsNoise, TrustedRound, nearest
from hybridp.public.mechanisms import DiscreteLaplace
from hybridp.public.messages import MECHANISM, Invite, VectorBounds, WeightedSum, reports_digest
from hybridp.public.queries import Feature, Schema, table_counts
from hybridp.public.randomisers import LEVELS, Bounds, Floats, Ints
from hybridp.public.regression import LADDER, TAIL, OnLine, farther, round_sums
from hybridp.public.rounds import Products, Scale
from hybridp.public.shares import OnMarginals
from hybridp.public.synth import MeasuredTable, gumbel_scale
from hybridp.tables import counts as marginals
from hybridp.tables.counts import Record, local_slots
from hybridp.tables.engine import VIEW, answers, column, text
from hybridp.tables.totals import Query, count_groups, kept_levels

__all__ = ["Codes", "LATTICE", "LatticeRows", "answer_codes", "answer_rows", "cell_counts", "cluster_totals"]
__all__ += ["discover_answers", "found_records", "gain", "groups_of", "local_slots"]
__all__ += ["measure_table", "pick_table", "read_codes", "read_domain", "read_levels", "read_reports", "release_cells"]
__all__ += ["release_moves", "release_products", "release_scale", "release_weighted_sum", "sample", "slots_among"]
__all__ += ["table_rows", "threshold_counts"]

_PART = 1 << 16  # people at a time
_WEIGHT_STEPS = 2**40  # the largest whole-number weight
_SCALE = 2**40  # the noise in steps: far finer than anything it must hide
_LEAST = 1e-9  # below, rounding to steps would ask for more noise than the person's weight does
_MANY = 1 << 20  # people from which threads pay


# --- rows of several columns, wherever they live ----------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class LatticeRows:
    """RAW: so many people's columns on the lattice, a row each, the target of a regression last.

    `parts` reads them, some at a time and anew for every question: memory does not grow with the number of people.
    """

    people: int
    parts: Callable[[], Iterator[NDArray[Any]]]


def table_rows(
    rows: Rows, columns: Columns, bounds: VectorBounds | Box, *, local_raw: bool = False, **how: Any
) -> tuple[LatticeRows, LatticeRows]:
    """A table's trusted people and its local ones, whose rows are read in a trial alone (`local_raw`); checked, and
    kept by the engine when they are first read, as `how` says (`hybridp.tables.totals.kept_levels`).

    Values outside the bounds are clipped, those that are missing or no number count as the public `missing` of their
    column, and nobody is told how many.
    """
    query = summing.people_query(columns, bounds, local_raw=local_raw)

    def group(name: str, people: int) -> LatticeRows:
        kept = cache(lambda: kept_levels(rows, query, name, _PART, **how))
        return LatticeRows(people, lambda: kept()())

    trusted, local = count_groups(rows, query)
    return group("trusted", trusted), group("local", local)


def answer_rows(answers: TrustedAnswers, steps: Callable[[Floats], NDArray[Any]], people: int) -> LatticeRows:
    """Numbers that a service keeps: those of its trusted people, and nobody else's."""
    return LatticeRows(people, lambda: (steps(as_numbers(some)) for some in answers))


# --- regression -------------------------------------------------------------------------------------------------------


def release_products(rows: LatticeRows, asked: Products, *, rng: Randomness) -> tuple[int, ...]:
    """The trusted people's sums of one round, each with a draw of its noise."""
    totals = np.sum([round_sums(asked.model, part, asked.centre) for part in rows.parts()], axis=0)
    return noisy_sums(totals, asked.noise, rng=rng)


def release_scale(rows: LatticeRows, asked: Scale, *, rng: Randomness) -> int:
    """Which distance of the ladder, from the first that is asked about on, about a twentieth of trusted people exceed.

    Private as `scale_noise` says; the line and the first distance follow from what was released before.
    """
    counts = sum(farther(part, asked.line) for part in rows.parts())
    drawn = noise.discrete_laplace(asked.noise.scale, len(LADDER), rng=rng)
    return asked.first + int(np.argmax((drawn - np.abs(TAIL * counts - rows.people))[asked.first :]))


def read_reports(path: TableLike, invite: OnLine, *, table: str | None = None, assume: bool = False) -> Raw:
    """Reports that answer the invitation, which they must name unless it is assumed. Private already."""
    names, mechanism = invite.encoding.names, invite.text
    bounds = VectorBounds.of((-1.0,) * len(names), (1.0,) * len(names))
    reports = summing.column_reports(Invite(bounds, invite.mechanism), names)
    query = Query.on(bounds, names, None, made=invite.mechanism, **reports)
    with tables.open_rows(path, table=table) as rows:
        rule = "must hold the reports that `hybridp randomise INVITATION.json` writes"
        for name in names:
            must(name in rows.columns, "file", rule, f"{rows.name} without the column `{name}`")
        says, raw = summing.check_mechanism(rows, None, MECHANISM, mechanism), tables.add_up(rows, query)
    assumed = summing.named_mechanism(MECHANISM, says, raw.local_people, assume=assume)
    digest = reports_digest(mechanism, *raw.marks)
    return replace(raw, simulated_reports=bool(says), assumed=assumed, digest=digest)


# --- K-means ----------------------------------------------------------------------------------------------------------


def cell_counts(rows: LatticeRows, grid: Grid) -> Ints:
    """RAW: people in every cell."""
    empty = np.zeros(grid.cells, dtype=np.int64)
    return sum((np.bincount(grid.cell(part.T), minlength=grid.cells) for part in rows.parts()), start=empty)


def cluster_totals(rows: LatticeRows, centres: Floats, radius: int) -> tuple[Ints, Ints]:
    """RAW: by nearest centre, all of whole steps: people, and exact sums of their deviations, cut to the radius."""
    counts, sums = np.zeros(len(centres), dtype=np.int64), np.zeros(np.shape(centres), dtype=np.int64)
    workers, parts = (os.cpu_count() or 1) if rows.people >= _MANY else 1, rows.parts()
    with ThreadPoolExecutor(workers) as pool:  # whole numbers: the same totals in any order
        while some := [part.T for part in itertools.islice(parts, 2 * workers)]:
            add_up = partial(_cluster_totals, centres=centres, radius=radius)
            for more, moved in pool.map(add_up, some) if workers > 1 else map(add_up, some):
                counts, sums = counts + more, sums + moved
    return counts, sums


def _cluster_totals(x: Floats, centres: Floats, radius: int) -> tuple[Ints, Ints]:
    k = len(centres)
    square = np.empty(x.shape[1])  # distances come with the labels: whole numbers below 2^53
    label = nearest(x, centres, scores=square)
    counts = np.bincount(label, minlength=k)
    # Whole numbers below 2^53 in doubles: these sums are exact in any order.
    sums = _sums(x, label, k)
    for row in x:
        square += row * row
    far = np.flatnonzero(square > float(radius) ** 2)
    if len(far):
        # What must be taken off deviations longer than the radius: whole steps, after which no norm exceeds it.
        deviation = x[:, far] - centres.T[:, label[far]]
        surplus = np.asarray(deviation - np.trunc(deviation * (radius * (1 - 1e-9) / np.sqrt(square[far]))))
        sums -= _sums(surplus, label[far], k)
    return counts, sums.T - counts[:, None] * centres.astype(np.int64)


def _sums(x: Floats, label: Ints, clusters: int) -> Ints:
    """The sums of whole numbers by label, an array (coordinates, clusters)."""
    return np.stack([np.bincount(label, weights=row, minlength=clusters).astype(np.int64) for row in x])


def _draws(mechanism: TotalsNoise, size: int, rng: Randomness) -> Ints:
    if mechanism.kind == "laplace":
        return noise.discrete_laplace(mechanism.size, size, rng=rng)
    return noise.discrete_gaussian(mechanism.size, size, rng=rng)


def release_cells(rows: LatticeRows, grid: Grid, mechanism: TotalsNoise, *, rng: Randomness) -> TrustedRound:
    """Noisy counts in every cell: private as `mechanism.spend` says."""
    must(mechanism.radius == 0, "mechanism", "must be made for counts alone", mechanism.radius)
    return TrustedRound(rows.people, cell_counts(rows, grid) + _draws(mechanism, grid.cells, rng), mechanism)


def release_moves(rows: LatticeRows, centres: Floats, mechanism: TotalsNoise, *, rng: Randomness) -> TrustedRound:
    """Noisy counts and sums by cluster, of deviations no longer than the mechanism's radius: private as it says."""
    counts, sums = cluster_totals(rows, np.rint(centres), mechanism.radius)
    drawn = _draws(mechanism, counts.size + sums.size, rng)
    noisy = counts * mechanism.weight + drawn[: counts.size]
    moved = (sums + drawn[counts.size :].reshape(sums.shape)).astype(np.float64)
    return TrustedRound(rows.people, noisy / mechanism.weight, mechanism, moved)


# --- records: discovered by most of the trusted people, counted by the rest -------------------------------------------


def sample(rows: tables.Rows, columns: Columns, discovery_share: float, *, rng: Randomness) -> tables.RecordSample:
    """One record of each person, and the split of the trusted people, by a fresh salt. RAW: stays here."""
    return tables.sample_records(rows, columns, int(rng.words(1)[0]), discovery_share=discovery_share)


def found_records(people: tables.RecordSample, mechanism: Discovery, *, rng: Randomness) -> tuple[list[Record], Ints]:
    """The records that the discovery part shows, and their noisy counts."""
    passing, noisy = threshold_counts(tables.discovery_counts(people), mechanism, rng=rng)
    return _in_order(tables.records_at(people, passing), noisy)


def _in_order(records: list[Record], noisy: Ints) -> tuple[list[Record], Ints]:
    """Alphabetically: the order in which rows held them may tell of people."""
    order = sorted(range(len(records)), key=records.__getitem__)
    return [records[i] for i in order], noisy[order]


def slots_among(
    people: tables.RecordSample, head: HeadList, mechanism: DiscreteLaplace, *, rng: Randomness
) -> tuple[int, ...]:
    """The noisy counts of every slot among the estimation part, wildcards included (Alg. 2.3)."""
    return noisy_sums(tables.head_counts(people, head, "estimation"), mechanism, rng=rng)


def discover_answers(
    answers: Answers, share: float, mechanism: Discovery, *, rng: Randomness
) -> tuple[tuple[list[Record], list[int], int], Counter[Record]]:
    """Of the answers that a service keeps, one record of each person: the records that a part of them show, their noisy
    counts, and how many these people are; and RAW: what the others hold.

    Who discovers and who counts is decided by a coin for each person, without looking at their record.
    """
    limit = np.uint64(int(share * 2**64))
    halves: tuple[Counter[Record], Counter[Record]] = (Counter(), Counter())
    for records in answers.records():
        counts_others = (rng.words(len(records)) >= limit).tolist()
        for record, half in zip(records, counts_others, strict=True):
            halves[half][record] += 1
    known = list(halves[0])
    among = np.array([halves[0][record] for record in known], dtype=np.int64)
    passing, noisy = threshold_counts(among, mechanism, rng=rng)
    shown, counts = _in_order([known[i] for i in passing.tolist()], noisy)
    return (shown, counts.tolist(), halves[0].total()), halves[1]


def threshold_counts(counts: Ints, mechanism: Discovery, *, rng: Randomness) -> tuple[Ints, Ints]:
    """Which of the distinct records are shown, and their noisy counts (Alg. 2.2). `counts` are at least 1, and RAW.

    The guarantee is the mechanism's, for one record a person: the numbers of the records that pass, and their noisy
    counts, may leave this room once they are in an order that tells nothing (`_in_order`).
    """
    noisy = counts + noise.discrete_laplace(mechanism.scale, len(counts), rng=rng)
    passing = np.flatnonzero(noisy >= mechanism.threshold).astype(np.int64)
    return passing, noisy[passing]


# --- everybody's own epsilon ------------------------------------------------------------------------------------------


def read_levels(answers: Any, bounds: Bounds, epsilons: Sequence[float]) -> Raw:
    """RAW: how many people have each of these epsilons, and the sums of their levels."""
    place = {epsilon: i for i, epsilon in enumerate(epsilons)}
    people, sums = np.zeros((2, len(place)), dtype=np.int64)
    for epsilon, rows in () if answers is None else answers.by_epsilon():
        people[place[epsilon]] += len(rows)
        sums[place[epsilon]] += int(bounds.levels(as_numbers(rows)[:, 0]).sum())
    here = people > 0
    return Raw(people[here], sums[here], epsilons=np.array(epsilons)[here])


def release_weighted_sum(
    epsilons: Floats, people: Ints, level_sums: Ints, weights: Floats, *, rng: Randomness
) -> WeightedSum:
    """The weighted mean with the least noise that respects everybody's epsilon.

    `weights` (one for each level of epsilon) may be any non-negative numbers; only their ratios matter. A weight on
    epsilon 0 is refused. Infinite epsilons never ask for noise; positive ones below 1e-9 are left out like 0.
    """
    ok = bool(np.all(weights >= 0)) and bool(np.any(weights > 0))
    must(ok, "weights", "must be non-negative, one positive", "other")
    must(not bool(np.any((weights > 0) & (epsilons <= 0))), "weights", "must be 0 where epsilon is 0", "positive")
    heard = np.where(epsilons >= _LEAST, weights, 0.0)
    must(bool(heard.any()), "epsilons", "must be at least 1e-9 for somebody who counts", float(epsilons.max()))
    whole = np.floor(heard / heard.max() * _WEIGHT_STEPS)
    total = sum(map(operator.mul, map(int, whole), level_sums.tolist()))
    mass = sum(map(operator.mul, map(int, whole), people.tolist()))
    asks = (whole > 0) & np.isfinite(epsilons)
    if not bool(asks.any()):  # everybody who counts is public
        return WeightedSum(int(people.sum()), _unit(total, mass), 0.0, whole / mass, np.where(whole > 0, math.inf, 0.0))
    need = float(np.max(whole[asks] / epsilons[asks])) * LEVELS  # the noise, before rounding
    step = max(1, int(need / _SCALE))
    # Whole-number weights up to 2^40 and 1/step are far within a double's precision; 2^-40 covers every rounding here.
    reach = np.where(whole > 0, whole * (LEVELS / step) + 1, 0.0)
    scale = float(np.max(reach[asks] / epsilons[asks])) * (1 + 2.0**-40)
    noisy = int(noise.discrete_laplace(scale, 1, rng=rng)[0])
    rounded = (total + step // 2) // step + noisy
    return WeightedSum(
        people=int(people.sum()),
        mean=_unit(rounded * step, mass),
        laplace_scale=2 * scale * float(Fraction(step, mass * LEVELS)),
        weights=whole / mass,
        spent=np.minimum(reach / scale * (1 + 2.0**-40), epsilons),
    )


def _unit(total: int, mass: int) -> float:
    return float(Fraction(2 * total, mass * LEVELS)) - 1


# --- whole tables, as codes -------------------------------------------------------------------------------------------

_MOST_READ = 4096  # Read from rows, a domain of more values is no domain: every value would be about somebody.
LATTICE = 1 << 16  # Steps to a person: the answers of D' are rounded to them, which is post-processing.


@dataclass(frozen=True, eq=False)
class Codes:
    """RAW: the code of every person's value, one array for each feature of the schema. Never leaves this room."""

    schema: Schema
    values: NDArray[np.uint16]

    @property
    def people(self) -> int:
        return int(self.values.shape[1])

    def table(self, features: Sequence[int]) -> Ints:
        """The exact counts of the table over these features."""
        return table_counts(self.values, self.schema.sizes, features)


def read_codes(path: TableLike, schema: Schema, *, table: str | None = None) -> Codes:
    """Read a table once and keep its codes: two bytes a field. See `hybridp.tables.counts.codes`."""
    with tables.open_rows(path, table=table) as rows:
        return Codes(schema, marginals.codes(rows, schema))


def read_domain(path: TableLike, names: Iterable[str], *, table: str | None = None) -> dict[str, Feature]:
    """NOT PRIVATE: the distinct values of columns, for data whose domain is public or for a rehearsal."""
    result = {}
    with tables.open_rows(path, table=table) as rows:
        for name in names:
            rows.need("columns", name)
            distinct = f"SELECT DISTINCT {text(column(name))} AS v FROM {VIEW} LIMIT {_MOST_READ + 2}"
            values = [row["v"] for row in answers(rows, distinct)]
            labels = [v for v in values if v is not None]
            rule = f"must be at most {_MOST_READ} to be read from a file: give --bins, or group them in --schema"
            must(len(labels) <= _MOST_READ, f"values of {name}", rule, "more")
            made = Feature.categorical(name, sorted(labels, key=_order), missing=len(labels) < len(values))
            result[name] = made.counting("last")  # every field is listed
    return result


def _order(label: str) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        size = float(label)
    except ValueError:
        size = math.nan
    return (math.isnan(size), 0.0 if math.isnan(size) else size, label)


def groups_of(
    rows: Rows, schema: Schema, columns: Columns, invite: OnMarginals | None, *, local_raw: bool = False,
    assume: bool = False,
) -> Raw:  # fmt: skip
    """RAW: the codes of trusted people; of local ones their reports or, in a trial, their codes (`held`).

    Without an invitation nobody is local. What a field counts as must be declared.
    """
    labels = columns.trust_column
    if local_raw or rows.trust is None or rows.trust.everyone != "local":
        marginals.check_schema(rows, schema, declared=True)
    trusted = Codes(schema, marginals.codes(rows, schema, trust=labels))
    if invite is None or labels is None:
        return Raw(trusted.people, trusted, notes=rows.notes)
    if local_raw:
        held = Codes(schema, marginals.codes(rows, schema, trust=labels, label="local"))
        return Raw(trusted.people, trusted, simulated_reports=True, held=held, notes=rows.notes)
    return replace(summing.read(rows, columns, invite, assume=assume), trusted_people=trusted.people, trusted=trusted)


def measure_table(codes: Codes, features: tuple[int, ...], sigma: float, *, rng: Randomness) -> MeasuredTable:
    """One whole marginal with exact discrete Gaussian noise on every cell: 1/sigma^2-zCDP, sigma in people."""
    counts = codes.table(features)
    drawn = noise.discrete_gaussian(sigma, counts.size, rng=rng).reshape(counts.shape)
    return MeasuredTable(features, np.asarray(counts + drawn, dtype=np.int64), sigma)


def answer_codes(answers: TrustedAnswers, schema: Schema) -> Codes:
    """RAW: the answers to every column as a service keeps them."""
    return Codes(schema, np.concatenate([rows.astype(np.uint16) for rows in answers]).T)


def gain(codes: Codes, features: tuple[int, ...], modelled: Floats, sigma: float) -> int:
    """RAW: how many people nearer a marginal measured with noise sigma would bring a model, in lattice steps.

    Half the L1 distance, less what noise would leave of it. That is k = sqrt(2/pi) sigma for each cell, and at most
    what the cell holds by the rows or by the model: |c - m| - min(k, max(c, m)). But a cell that already agrees to
    within k, where a fit that trusts the model would stay, loses nothing: max(0, |c - m| - k). The score is the mean of
    the two. Replacing a person moves one count up and another down by 1, both terms of a cell by at most as much, and
    the score by at most LATTICE: rounding down keeps whole bounds.
    """
    counts = codes.table(features) * LATTICE
    expected = np.rint(modelled * (float(LATTICE) * codes.people)).astype(np.int64)
    left = round(math.sqrt(2 / math.pi) * sigma * LATTICE)
    missed = np.abs(counts - expected)
    clear = np.maximum(missed - left, 0)
    known = missed - np.minimum(np.maximum(counts, expected), left)
    return int((clear + known).sum()) // 4


def pick_table(scores: Sequence[int], rho: float, allowed: Callable[[int], bool], *, rng: Randomness) -> int | None:
    """The number of one score by the exponential mechanism among those that are `allowed`: rho-zCDP.

    The scores have the sensitivity LATTICE. A number is drawn evenly and taken with probability
    ``exp((score - largest)/scale)``, decided exactly: each is taken in proportion to ``exp(score/scale)``. Whether it
    is allowed is public: one that is not is put aside, which leaves the others' proportions. None where none is.
    """
    scale, left = Fraction(gumbel_scale(rho, 1)) * LATTICE, list(range(len(scores)))
    largest = max(scores, default=0)
    while left:
        place = int(noise.uniform_below(len(left), 1, rng=rng)[0])
        behind = (largest - scores[left[place]]) / scale
        if settle_below_exp(int(rng.words(1)[0]), 64, behind, rng):
            if allowed(left[place]):
                return left[place]
            del left[place]
            largest = max((scores[i] for i in left), default=0)
    return None
