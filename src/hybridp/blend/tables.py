"""Trusted tables with noise and local reports on them -> one table for each marginal. Post-processing.

Of a cell with share f, the trusted people (n_t, noise of standard deviation sigma people) tell f with the variance
``sigma^2/n_t^2 + f(1-f)/n_t``, the n_j local people who drew its marginal with that of their oracle over n_j. The
blend weighs both by the inverse, cell by cell; f is taken from a first blend with the variances of an empty cell.

Records of a graphical model -> records that also follow noisy marginals which no junction tree could hold together.

Post-processing. First the records get weights (raking, Deming and Stephan 1940), table by table, each step exact for

    least relative entropy to equal weights + sum_t |mu_t - y_t|^2 / (2 lambda_t),

as in `hybridp.blend.graph`. The records are a guess from what was measured before, and the new measurements y_t say
themselves how closely they are to be followed. Let q_t be the records' own table and s_t the noise: |y_t - q_t|^2 less
the noise's part, cells times s_t^2, estimates how much the records miss, r_t. Its scatter is s_t^2 sqrt(2 cells), in
which unit it is at least what all tables miss in the mean. Errors of variance r_t q_t are followed with lambda_t =
s_t^2 / r_t. Then the weights become whole numbers of records, so that the new tables stay as near as these can.

>>> noisy = MeasuredTable((0, 1), np.array([[500, 0], [3, 497]]), 2.0)
>>> made = raked(GraphModel.uniform((2, 2)), [], [noisy], 1000, rows=1000, seed=0)
>>> len(made), abs(int((made.sum(axis=1) == 2).sum()) - 497) < 10
(1000, True)
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.graph import Goal, GraphModel, consistent, together
from hybridp.errors import must
from hybridp.public.lattice import Floats
from hybridp.public.oracles import estimate
from hybridp.public.shares import ShareReports
from hybridp.public.synth import MeasuredTable

__all__ = ["blend_tables", "raked"]


def blend_tables(
    marginals: Sequence[tuple[tuple[int, ...], tuple[int, ...]]],
    trusted: Sequence[MeasuredTable | None],
    trusted_people: int,
    local: Sequence[ShareReports | None],
) -> list[tuple[MeasuredTable, MeasuredTable]]:
    """One table, in people of both groups, for each of `marginals` (its features and shape), from what each group told
    of it: None where it told nothing, [] for a group of nobody.

    Each comes twice: its sigma is the largest standard deviation of a cell, or their root mean square, by which a fit
    to the whole weighs it.
    """
    people = trusted_people + sum(told.people for told in local if told is not None)
    must(people >= 1, "people", "must be at least 1", people)
    result = []
    for i, (features, shape) in enumerate(marginals):
        shares, variances = _blended(trusted[i] if trusted else None, trusted_people, local[i] if local else None)
        counts = np.rint(shares * people).astype(np.int64).reshape(shape)
        reach = np.sqrt(variances) * people
        sizes = float(reach.max()), float(np.sqrt(np.mean(reach**2)))
        result.append((MeasuredTable(features, counts, sizes[0]), MeasuredTable(features, counts, sizes[1])))
    return result


def _blended(trusted: MeasuredTable | None, people: int, told: ShareReports | None) -> tuple[Floats, Floats]:
    """The shares of all cells, in C order, and their variances."""
    sides: list[Floats] = []
    if trusted is not None:
        sides.append(np.asarray(trusted.counts.reshape(-1) / people, dtype=np.float64))
    if told is not None and told.people:
        sides.append(estimate(told.oracle, told.counts, told.people)[0])
    must(bool(sides), "people", "must be so many that every marginal is drawn by somebody", "fewer")

    def precisions(share: Floats) -> list[Floats]:
        out: list[Floats] = []
        if trusted is not None:
            out.append(1 / ((trusted.sigma / people) ** 2 + share * (1 - share) / people))
        if told is not None and told.people:
            p, q = told.oracle.truth, told.oracle.other
            seen = share * p + (1 - share) * q
            out.append(told.people * (p - q) ** 2 / (seen * (1 - seen)))
        return out

    share = np.zeros_like(sides[0])
    for _ in range(2):
        weights = precisions(np.clip(share, 0.0, 1.0))
        total = np.sum(weights, axis=0)
        share = np.sum([w * s for w, s in zip(weights, sides, strict=True)], axis=0) / total
    return share, 1 / total


Clique = tuple[int, ...]
Codes = NDArray[np.uint16]
_SWEEPS, _ROUNDING = 20, 8
_MOST_KEPT = 1 << 25  # cell numbers of records in tables, four bytes each
_LEAST_BATCH = 32


def raked(
    model: GraphModel,
    known: Sequence[MeasuredTable],
    new: Sequence[MeasuredTable],
    people: int,
    *,
    rows: int,
    seed: int,
) -> Codes:
    """`rows` records that follow all tables, the model being of the `known` ones. Deterministic; the seed is public.

    So that memory is bounded, no more records are drawn and weighted than the tables leave room for.
    """
    must(bool(new), "tables", "must be at least one", 0)
    sizes, most = model.tree.sizes, max(1 << 15, _MOST_KEPT // (len(known) + len(new)))
    records = model.records(min(rows, most), seed=seed)
    shares, noise = together([*known, *new], people)
    wanted = consistent(shares, noise, sizes)
    cells = [_cells(records, features, sizes) for features in wanted]
    slack = _slack(records, sizes, *together(new, people))
    goals = [Goal.of(features, y, noise[features], features, sizes) for features, y in wanted.items()]
    goals = [replace(goal, slack=slack.get(goal.features, goal.slack)) for goal in goals]
    weights = _weighted(goals, cells, len(records))
    last = [i for i, goal in enumerate(goals) if goal.features in slack]
    times = _whole(records, weights * rows, [cells[i] for i in last], [goals[i].wanted.size for i in last], seed)
    return np.repeat(records, times, axis=0)


def _cells(records: Codes, features: Sequence[int], sizes: Sequence[int]) -> NDArray[np.int32]:
    result = np.ravel_multi_index(tuple(records[:, f] for f in features), tuple(sizes[f] for f in features))
    return np.asarray(result, dtype=np.int32)


def _slack(
    records: Codes, sizes: Sequence[int], shares: dict[Clique, Floats], noise: dict[Clique, float]
) -> dict[Clique, float]:
    """lambda of every new table, by what the records miss of all of them."""
    missed, scatter = {}, {}
    for features, y in shares.items():
        own = np.bincount(_cells(records, features, sizes), minlength=y.size) / len(records)
        missed[features] = float(((y.ravel() - own) ** 2).sum()) - y.size * noise[features] ** 2
        scatter[features] = noise[features] ** 2 * math.sqrt(2 * y.size)
    mean = math.fsum(missed[t] / scatter[t] for t in shares) / len(shares)
    least = max(mean, 0.5 / math.sqrt(len(shares)))  # half of the mean's own scatter
    return {t: noise[t] ** 2 / max(missed[t], least * scatter[t]) for t in shares}


def _weighted(goals: list[Goal], cells: list[NDArray[np.int32]], records: int) -> Floats:
    weights = np.full(records, 1 / records)
    thetas = [np.zeros(goal.wanted.shape) for goal in goals]
    for _ in range(_SWEEPS):
        for i, (goal, cell) in enumerate(zip(goals, cells, strict=True)):
            now = np.bincount(cell, weights=weights, minlength=goal.wanted.size)
            new = np.array(now, dtype=np.float64).reshape(goal.wanted.shape)
            thetas[i] = goal.step(new, thetas[i])
            weights *= np.divide(new.ravel(), now, out=np.ones_like(now), where=now > 0)[cell]
            weights /= weights.sum()
    return weights


def _whole(
    records: Codes, wanted: Floats, cells: list[NDArray[np.int32]], sizes: list[int], seed: int
) -> NDArray[np.int64]:
    """How often each record comes: whole numbers whose tables are near those of the numbers wanted, with their sum.

    From systematic sampling on, records come once more or once less where that brings the tables nearer (squares), in
    batches that become smaller: those of a batch do not see each other.
    """
    rng, rows, many = np.random.default_rng(seed), round(float(wanted.sum())), len(cells)
    order = np.lexsort(records.T[::-1])
    steps = np.floor(np.cumsum(wanted[order]) + rng.random())
    times = np.empty(len(records), dtype=np.int64)
    times[order] = np.diff(steps, prepend=0.0).astype(np.int64)
    starts, total = np.cumsum([0, *sizes[:-1]]), sum(sizes)
    kind: type[np.signedinteger[Any]] = np.int32 if total < 1 << 31 else np.int64
    places = np.stack(cells, axis=1).astype(kind, copy=False)
    places += starts.astype(places.dtype)  # of every record in all tables, one behind the other
    left = np.concatenate(
        [np.bincount(cell, weights=wanted - times, minlength=size) for cell, size in zip(cells, sizes, strict=True)]
    )

    def missed(some: NDArray[np.int64]) -> Floats:
        return np.asarray(left[places[some]].sum(axis=1))

    def move(some: NDArray[np.int64], by: NDArray[np.int64]) -> None:
        times[some] += by
        np.subtract.at(left, places[some].ravel(), np.repeat(by.astype(np.float64), many))

    for sweep in range(_ROUNDING):
        batch = max(_LEAST_BATCH, len(records) >> (5 + sweep))
        for some in np.array_split(rng.permutation(len(records)), math.ceil(len(records) / batch)):
            score = missed(some)
            by = (score > many / 2).astype(np.int64) - ((score < -many / 2) & (times[some] > 0))
            move(some[by != 0], by[by != 0])
    short = rows - int(times.sum())
    while short:
        side = 1 if short > 0 else -1
        allowed = np.arange(len(records)) if side > 0 else np.flatnonzero(times)
        best = np.argsort(-side * missed(allowed), kind="stable")[: min(abs(short), len(allowed))]
        move(allowed[best], np.full(len(best), side))
        short -= side * len(best)
    return times
