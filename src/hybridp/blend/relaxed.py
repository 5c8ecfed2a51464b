"""Noisy marginals -> records that agree with them, without following their noise, by way of relaxed rows.

A relaxed row has in every feature a point of the simplex in place of one value: a product distribution over records
(Aydore et al. 2021; Avent 2023, Definition 4.2.6). Gradient steps bring the tables of n' such rows to the measured
ones, and records are drawn from the rows in the end. Post-processing.

Least squares is the wrong loss here. Most cells of a large marginal are empty, the positive half of their noise has
a large sum, and rows that follow it take their mass from the cells that matter: on ADULT (eps = .1, 64 marginals) the
largest error is .33, six times that of the measurements themselves. So only cells that stand out of the noise are
targets. Every other cell is a ceiling: the rows must not exceed max(measured, 0) there, and are free below it.

    loss = sum_t 1/sigma_t^2 [ sum over significant cells (T_t - y_t)^2 + sum over the others (T_t - max(y_t, 0))_+^2 ]

With it the largest error is .030, half of the measurements' own, because marginals that overlap support each other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.graph import pooled
from hybridp.errors import must
from hybridp.public.synth import MeasuredTable, significance

__all__ = ["Goal", "fit_rows", "pair_sums", "round_rows", "sparsemax"]

Lines = NDArray[np.float32]
"""Relaxed rows, a column each: one line for every value of a feature, or for the values of all features in turn."""
_LARGE, _STEP = 1 << 15, 1 << 19  # Where larger tables have more cells in all, some are looked at in each step,
_EVERY, _SELDOM = 6, 4  # each in one step of 6; and sums of tables in one of 4.
_MOST = 1 << 22  # numbers of one temporary array
_FLOOR = 1e-3  # Adam's small constant, in shares of people: with the usual 1e-8, what nobody measured drifts


def pair_sums(tables: Sequence[MeasuredTable]) -> list[MeasuredTable]:
    """The two-way marginals that measured tables of more features add up to, each once: their most precise average.

    A cell of a large table seldom stands out of the noise, the sum of many of them may. Sums of a table's k cells have
    sqrt(k) times its noise.

    >>> cube = MeasuredTable((0, 1, 2), np.arange(8).reshape(2, 2, 2), 3.0)
    >>> [(pair.features, pair.counts.tolist(), round(pair.sigma, 3)) for pair in pair_sums([cube])][:1]
    [((0, 1), [[1, 5], [9, 13]], 4.243)]
    """
    sums = []
    for table in tables:
        for kept in combinations(range(len(table.features)), 2) if len(table.features) > 2 else ():
            rest = tuple(axis for axis in range(len(table.features)) if axis not in kept)
            pair, counts = tuple(table.features[axis] for axis in kept), table.counts.sum(axis=rest)
            sums.append(MeasuredTable(pair, counts, table.sigma * math.sqrt(table.counts.size / counts.size)))
    return list(pooled(sums).values())


@dataclass(frozen=True, eq=False)
class Goal:
    """A table that rows are moved to. Where `floor` is 0, shares below `wanted` are no error; elsewhere it is -inf.

    With L and R the products of all combinations of lines of the features on its two sides, the table is L R'/n'. For
    a loss with gradient G with respect to it, those with respect to L and R are G R/n' and G' L/n'.
    """

    sides: tuple[tuple[int, ...], tuple[int, ...]]
    wanted: Lines
    floor: Lines
    weight: float
    every: int = 1

    @staticmethod
    def of(table: MeasuredTable, people: int, least: float, every: int) -> Goal:
        """Of a measured table, by its precision over the largest; its weight makes up for steps that do not look."""
        shape, target = table.counts.shape, table.counts > significance(table.counts.size) * table.sigma
        cut = min(range(1, len(shape) + 1), key=lambda at: math.prod(shape[:at]) + math.prod(shape[at:]))
        flat = math.prod(shape[:cut]), math.prod(shape[cut:])
        wanted = (np.maximum(table.counts, 0) / people).astype(np.float32).reshape(flat)
        floor = np.where(target, -np.inf, 0).astype(np.float32).reshape(flat)
        weight = (least / table.sigma) ** 2 * every
        return Goal((table.features[:cut], table.features[cut:]), wanted, floor, weight, every)

    def add_slope(self, blocks: Sequence[Lines], slopes: Sequence[Lines]) -> None:
        """Add the gradient of the weighted squared errors with respect to the features' blocks; rows in lots."""
        rows = blocks[0].shape[1]
        step = max(1, _MOST // sum(self.wanted.shape))
        lots = [slice(low, low + step) for low in range(0, rows, step)]
        error = -self.wanted
        for lot in lots:
            first, last = (_products([blocks[f][:, lot] for f in side], blocks[0][:1, lot]) for side in self.sides)
            error += first @ last.T / np.float32(rows)
        np.maximum(error, self.floor, out=error)
        error *= np.float32(2 * self.weight / rows)
        for lot in lots:
            sides = [[(blocks[f][:, lot], slopes[f][:, lot]) for f in side] for side in self.sides]
            first, last = (_products([block for block, _ in side], blocks[0][:1, lot]) for side in sides)
            _unfold(error @ last, sides[0])
            _unfold(error.T @ first, sides[1])


def _products(blocks: Sequence[Lines], line: Lines) -> Lines:
    """The products of all combinations of lines, in C order (Khatri and Rao); of none, 1 for every row of `line`."""
    out = blocks[0] if blocks else np.ones_like(line)
    for block in blocks[1:]:
        out = (out[:, None] * block[None]).reshape(-1, out.shape[1])
    return out


def _unfold(slope: Lines, blocks: Sequence[tuple[Lines, Lines]]) -> None:
    """From the gradient of a product to those of its blocks, peeling off the last block each time."""
    for i in range(len(blocks) - 1, 0, -1):
        block, into = blocks[i]
        spread = slope.reshape(-1, *block.shape)
        into += np.einsum("abn,an->bn", spread, _products([one for one, _ in blocks[:i]], block))
        slope = np.einsum("abn,bn->an", spread, block)
    if blocks:
        blocks[0][1][:] += slope


def sparsemax(block: Lines) -> None:
    """The closest point of the simplex to every column, in place (Martins and Astudillo 2016).

    It is max(x - tau, 0) with the tau that makes it sum to one, by Newton's method. The sum is convex, piecewise linear
    and falling in tau, so that the method comes to the root from the left after its first step and stops after finitely
    many: three passes, against a sort, where x was on the simplex one small step ago. It starts from 0; from the tau
    that keeps every value, where 0 would keep none.

    >>> numbers = np.array([[0.75], [0.5], [-1.0]])
    >>> sparsemax(numbers)
    >>> numbers.ravel().tolist()
    [0.625, 0.375, 0.0]
    """
    kept = np.maximum(block, 0)
    count = (kept > 0).sum(0)
    tau = np.where(count > 0, (kept.sum(0) - 1) / np.maximum(count, 1), (block.sum(0) - 1) / len(block))
    tau, count = tau.astype(block.dtype), np.where(count > 0, count, len(block))
    while True:
        np.maximum(np.subtract(block, tau, out=kept), 0, out=kept)
        support = (kept > 0).sum(0)
        if np.array_equal(count, support):
            block[:] = kept
            return
        tau += np.maximum((kept.sum(0) - 1) / support, 0).astype(block.dtype)
        count = support


def fit_rows(tables: Sequence[MeasuredTable], sizes: Sequence[int], people: int, *, rows: int, seed: int) -> Lines:
    """So many relaxed rows that follow these tables, from random ones on. Deterministic; the seed is public.

    They are moved to the one-way tables first, then to all.
    """
    from threadpoolctl import threadpool_limits

    must(bool(tables), "tables", "must be at least one", 0)
    lines = np.random.default_rng(seed).random((sum(sizes), rows), dtype=np.float32)
    for block in np.split(lines, np.cumsum(sizes)[:-1]):
        sparsemax(block)
    sums = [pair for pair in pair_sums(tables) if pair.counts.size <= _LARGE]
    least, goals = min(table.sigma for table in tables), list[Goal]()
    large = [table.counts.size for table in tables if table.counts.size > _LARGE]
    seldom = min(_EVERY, len(large), math.ceil(sum(large) / _STEP))
    for i, table in enumerate((*tables, *sums)):
        shape = tuple(sizes[f] for f in table.features)
        must(table.counts.shape == shape, "counts", f"must be a table of shape {shape}", table.counts.shape)
        every = seldom if table.counts.size > _LARGE else _SELDOM if i >= len(tables) else 1
        goals.append(Goal.of(table, people, least, every))
    ones = [goal for goal in goals if len(goal.sides[0] + goal.sides[1]) == 1]
    with threadpool_limits(1, "blas"):  # Threads that wait for small products spin: many times the work itself.
        if 0 < len(ones) < len(goals):
            _descend(lines, sizes, ones, 60, 0.05)
        _descend(lines, sizes, goals, 100, 0.02)
    return lines


def _descend(lines: Lines, sizes: Sequence[int], goals: Sequence[Goal], steps: int, rate: float) -> None:
    """Adam with a short memory of squares (their size falls by orders of magnitude within a fit), then Sparsemax.

    The learning rate falls in a straight line over the second half of the steps.
    """
    slope, mean, square = (np.zeros_like(lines) for _ in range(3))
    blocks, slopes, means, squares = (np.split(one, np.cumsum(sizes)[:-1]) for one in (lines, slope, mean, square))
    for step in range(1, steps + 1):
        slope[:] = 0
        for i, goal in enumerate(goals):
            if (i + step) % goal.every == 0:
                goal.add_slope(blocks, slopes)
        root = (1 - 0.99**step) ** 0.5
        size = np.float32(rate * min(1.0, 2 * (steps - step + 1) / steps) * root / (1 - 0.9**step))
        for x, g, m, s in zip(blocks, slopes, means, squares, strict=True):
            g *= lines.shape[1]  # undoes the mean over rows
            m += np.float32(0.1) * (g - m)
            s += np.float32(0.01) * (g * g - s)
            x -= size * m / (np.sqrt(s) + np.float32(_FLOOR * root))
            sparsemax(x)


def round_rows(lines: Lines, sizes: Sequence[int], records: int, *, seed: int) -> NDArray[np.uint16]:
    """Records drawn from relaxed rows: all of these serve equally often (up to one), each feature is drawn by itself.

    The expected answer of the records to a query is that of the rows. They scatter less around it than independent
    draws would: of a relaxed row that serves m times, the m draws of a feature fall into m equal parts of [0, 1], one
    in each, in an order of their own (McKay, Beckman and Conover 1979), so that every value comes within one of m times
    its share.

    >>> round_rows(np.array([[0.0], [1.0], [1.0], [0.0]]), (2, 2), 2, seed=1).tolist()
    [[1, 0], [1, 0]]
    """
    must(records >= 1, "rows", "must be at least 1", records)
    rng, many = np.random.default_rng(seed), lines.shape[1]
    whole, rest = divmod(records, many)
    serves = np.full(many, whole)
    serves[rng.choice(many, rest, replace=False)] += 1
    owner = np.repeat(np.arange(many), serves)
    part = np.arange(records) - (np.cumsum(serves) - serves)[owner]
    out = np.empty((records, len(sizes)), dtype=np.uint16)
    for feature, block in enumerate(np.split(lines, np.cumsum(sizes)[:-1])):
        cumulative = np.cumsum(block.T, axis=1, dtype=np.float64)
        # Row i's steps lie in (i, i + 1], so that one search in all rows' steps finds each draw in its own row.
        steps = (cumulative / cumulative[:, -1:] + np.arange(many)[:, None]).ravel()
        within = ((part + rng.random(records)) / serves[owner])[np.argsort(owner + rng.random(records))]
        result = np.searchsorted(steps, owner + within, side="right") - owner * sizes[feature]
        out[:, feature] = np.clip(result, 0, sizes[feature] - 1)
    return out
