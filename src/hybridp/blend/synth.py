"""Noisy marginals -> a relaxed data set that agrees with them, without following their noise. Post-processing.

Least squares is the wrong loss here. Most cells of a large marginal are empty, the positive half of their noise has
a large sum, and a D' that follows it takes its mass from the cells that matter: on ADULT (eps = .1, 64 marginals) the
largest error is .33, six times that of the measurements themselves. So only cells that stand out of the noise are
targets. Every other cell is a ceiling: D' must not exceed max(measured, 0) there, and is free below it.

    loss = sum_t 1/sigma_t^2 [ sum over significant cells (T_t - y_t)^2 + sum over the others (T_t - max(y_t, 0))_+^2 ]

With it the largest error is .030, half of the measurements' own, because marginals that overlap support each other.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import torch
from torch import Tensor

from hybridp.blend.contraction import MOST_ENTRIES, Contraction, Scratch, Support
from hybridp.blend.graph import pooled
from hybridp.blend.relaxed import Relaxed, sparsemax_lines
from hybridp.errors import must
from hybridp.public.lattice import Floats
from hybridp.public.synth import MeasuredTable, significance

__all__ = ["Fit", "Small", "add_rows", "descend", "fit_tables", "gathered", "pair_sums", "settle"]

_MOST_CELLS = 1 << 25  # Of the product of D' with itself, in which a GPU finds all pairs at once.


@dataclass(frozen=True, slots=True)
class Fit:
    """How `fit_tables` searches: the learning rate falls in a straight line over the second half of the steps.

    Every step looks at all targets. The ceilings of tables of more than `large` cells, which are most of the work, are
    looked at in one step of `every`, in turn, with their weight multiplied; `pair_sums` in one of `seldom`.

    `floor` is Adam's small constant, in shares of people. With the usual 1e-8 every step moves every value by the
    learning rate, however small the error, and answers that nobody measured drift: RAP's largest error on ADULT (eps =
    1, 16 marginals) falls from .021 to .015 with 1e-2, where steps shrink with errors below a percent.
    """

    steps: int = 100
    learning_rate: float = 0.02
    floor: float = 1e-3
    large: int = 1 << 15
    every: int = 12
    seldom: int = 4
    most_cells: int = MOST_ENTRIES

    def __post_init__(self) -> None:
        must(self.steps >= 1, "steps", "must be at least 1", self.steps)
        must(self.learning_rate > 0, "learning_rate", "must be positive", self.learning_rate)
        must(self.floor > 0, "floor", "must be positive", self.floor)
        must(self.every >= 1, "every", "must be at least 1", self.every)
        must(self.seldom >= 1, "seldom", "must be at least 1", self.seldom)


@dataclass(frozen=True, eq=False)
class _Goal:
    """A table on the device of D'. The targets of a large one are goals of their own, and no ceilings.

    `small` is the same table, where it has one or two features and is not large.
    """

    features: tuple[int, ...]
    wanted: Tensor
    target: Tensor
    weight: float
    large: bool
    every: int
    small: Small | None


def _goals(
    data: Relaxed, tables: Sequence[MeasuredTable], sums: Sequence[MeasuredTable], people: int, fit: Fit
) -> tuple[list[_Goal], list[Cells]]:
    """What every table wants of D', and the targets of the large ones, cell by cell."""
    least = min(table.sigma for table in tables)
    x = data.values
    result, targets = [], []
    for i, table in enumerate((*tables, *sums)):
        shape = tuple(data.sizes[f] for f in table.features)
        must(table.counts.shape == shape, "counts", f"must be a table of shape {shape}", table.counts.shape)
        target = table.counts > significance(table.counts.size) * table.sigma
        shares = np.maximum(table.counts, 0) / people
        weight = (least / table.sigma) ** 2
        is_large = table.counts.size > fit.large
        if is_large:
            columns = np.argwhere(target) + np.array([data.offsets[f] for f in table.features])
            if len(columns):
                wanted = torch.as_tensor(shares[target], dtype=x.dtype).to(x.device)
                targets.append(Cells(torch.as_tensor(columns).to(x.device), wanted, torch.full_like(wanted, weight)))
        values, mask = torch.as_tensor(shares, dtype=x.dtype).to(x.device), torch.as_tensor(target).to(x.device)
        every = fit.every if is_large else fit.seldom if i >= len(tables) else 1
        lines = [slice(data.offsets[f], data.offsets[f] + data.sizes[f]) for f in table.features]
        small = Small.of(lines, values, mask, weight * every) if len(lines) <= 2 and not is_large else None
        result.append(_Goal(table.features, values, mask, weight * every, is_large, every, small))
    return result, _together(targets)


def _together(targets: Sequence[Cells]) -> list[Cells]:
    """Cells of tables of as many features in one."""
    result = []
    for k in sorted({one.columns.shape[1] for one in targets}):
        some = [one for one in targets if one.columns.shape[1] == k]
        parts = ((one.columns, one.wanted, one.weights) for one in some)
        result.append(Cells(*(torch.cat(part) for part in zip(*parts, strict=True))))
    return result


def fit_tables(
    data: Relaxed,
    tables: Sequence[MeasuredTable],
    people: int,
    fit: Fit | None = None,
    *,
    moved: Callable[[float], None] = lambda part: None,
) -> Relaxed:
    """Move D' towards the measured marginals. Deterministic: the same D' and measurements give the same result.

    `moved` is told the part of the steps that is done, before each.

    >>> from hybridp.blend.relaxed import start, table
    >>> noisy = MeasuredTable((0, 1), np.array([[500, 0], [3, 497]]), 2.0)
    >>> found = fit_tables(start(40, (2, 2), seed=1), [noisy], 1000, Fit(steps=200, learning_rate=0.05))
    >>> bool(abs(table(found, (0, 1))[0, 0] - 0.5) < 0.01)
    True
    """
    must(bool(tables), "tables", "must be at least one", 0)
    must(people >= 1, "people", "must be at least 1", people)
    chosen = fit or Fit()
    sums = [pair for pair in pair_sums(tables) if pair.counts.size <= chosen.large]
    goals, cells = _goals(data, tables, sums, people, chosen)
    scratch = Scratch()
    alike: dict[tuple[int, int], list[Small]] = {}  # those that the same steps look at
    for i, goal in enumerate(goals):
        if goal.small is not None:
            alike.setdefault((goal.every, i % goal.every), []).append(goal.small)
    small = {when: gathered(some, sum(data.sizes)) for when, some in alike.items()}

    def add_slope(lines: Tensor, slope: Tensor, step: int) -> None:
        for (every, first), some in small.items():
            for one in some if (first + step) % every == 0 else []:
                one.add_slope(lines, slope)
        for large in cells:
            large.add_slope(lines, slope)
        now = [goal for i, goal in enumerate(goals) if goal.small is None and (i + step) % goal.every == 0]
        if now:
            rows = Relaxed(lines.T.contiguous(), data.sizes)
            result: dict[int, Support] = {}
            upright = torch.zeros_like(rows.values)
            for goal in now:
                _add_slope(rows, goal, upright, scratch, result, chosen)
            slope += upright.T

    return descend(data, add_slope, chosen, moved)


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


def descend(
    data: Relaxed, add_slope: Callable[[Tensor, Tensor, int], None], fit: Fit, moved: Callable[[float], None]
) -> Relaxed:
    """Adam with a short memory of squares (their size falls by orders of magnitude within a fit), then Sparsemax.

    On the transposed D': a feature's values are lines next to each other. `add_slope` adds its gradient to zeros.
    """
    moving = data.values.T.contiguous()
    mean, square, slope, room = (torch.zeros_like(moving) for _ in range(4))
    half = fit.steps / 2
    for step in range(1, fit.steps + 1):
        moved((step - 1) / fit.steps)
        rate = fit.learning_rate * min(1.0, (fit.steps - step + 1) / half)
        add_slope(moving, slope.zero_(), step)
        slope.mul_(data.rows)  # undoes the mean over rows
        mean.lerp_(slope, 0.1)
        square.mul_(0.99).addcmul_(slope, slope, value=0.01)
        root = (1 - 0.99**step) ** 0.5
        size = torch.sqrt(square, out=room).add_(fit.floor * root)
        moving.addcdiv_(mean, size, value=-rate * root / (1 - 0.9**step))
        sparsemax_lines(moving, data.sizes)
    return Relaxed(moving.T.contiguous(), data.sizes)


def _add_slope(
    data: Relaxed, goal: _Goal, slope: Tensor, scratch: Scratch, found: dict[int, Support], fit: Fit
) -> None:
    blocks = [data.block(f) for f in goal.features]
    now = Contraction(blocks, scratch, fit.most_cells, goal.features, found)
    error = now.table().sub_(goal.wanted)
    # Below its ceiling a cell that is no target has no error.
    if goal.large:
        error = error.clamp_(min=0).masked_fill_(goal.target, 0.0).mul_(2 * goal.weight)
    else:
        error = torch.where(goal.target, error, error.clamp(min=0)).mul_(2 * goal.weight)
    for f, part in zip(goal.features, now.gradients(error), strict=True):
        begin = data.offsets[f]
        slope[:, begin : begin + data.sizes[f]] += part


def settle(synthetic: Floats, measured: Floats, reach: float) -> Floats:
    """The share nearest to the synthetic one that its measurement does not contradict, cell by cell, and not below 0.

    With `reach` = sqrt(2 ln m) standard deviations of the noise on m cells, almost every truth lies within it: a
    synthetic answer farther off is an error of the fit, and the end of that interval is nearer.

    >>> settle(np.array([0.2, 0.0]), np.array([0.3, -0.01]), 0.05).round(3).tolist()
    [0.25, 0.0]
    """
    return np.asarray(np.clip(synthetic, np.maximum(measured - reach, 0.0), np.maximum(measured + reach, 0.0)))

# --- gradients on the transposed D' -----------------------------------------------------------------------------------
#
# Of one- and two-way tables three products a pair, and no copies: with X_f the lines of D' that are feature f's values
# (values x rows), the pair's table is X_f X_g'/n', and for a loss with gradient G with respect to it, G X_g/n' and
# G' X_f/n' are added to the lines of f and g.


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of tables of k features: the k one-hot columns of each, its share as measured, and its weight."""

    columns: Tensor
    wanted: Tensor
    weights: Tensor

    def add_slope(self, lines: Tensor, slope: Tensor) -> None:
        """Add the gradient of sum w (mean over rows of p_1..p_k - share)^2; D' and gradient are transposed."""
        (many, k), rows = self.columns.shape, lines.shape[1]
        for lot in torch.arange(many).tensor_split(-(-many * k * rows // MOST_ENTRIES)):
            where = lot.to(lines.device)
            targets = self.columns[where]
            p = lines[targets]  # cells x k x rows
            error = p.prod(1).mean(-1) - self.wanted[where]
            each = (2 / rows) * self.weights[where] * error
            for i in range(k):
                others = torch.cat([p[:, :i], p[:, i + 1 :]], dim=1)
                add_rows(slope, targets[:, i], each[:, None] * others.prod(1), by_product=lines.is_cuda)


def add_rows(total: Tensor, rows: Tensor, part: Tensor, *, by_product: bool) -> None:
    """total[rows] += part, where a row may come twice.

    A GPU adds such rows in no fixed order; a product with a matrix of zeros and ones gives the same bits every time.
    """
    if not by_product:
        total.index_add_(0, rows, part)
        return
    ones = torch.zeros((len(rows), total.shape[0]), dtype=part.dtype, device=part.device)
    total.addmm_(ones.scatter_(1, rows[:, None], 1.0).T, part)


@dataclass(frozen=True, eq=False)
class Small:
    """One- or two-way tables that D' is moved to: sum of `weight` times squared errors. The lines of each feature.

    In cells where `floor` is 0, shares below `wanted` are no error; in the others it is minus infinity.
    """

    lines: tuple[slice, ...]
    wanted: Tensor
    floor: Tensor
    weight: float

    @classmethod
    def of(cls, lines: Sequence[slice], wanted: Tensor, target: Tensor, weight: float) -> Small:
        """A goal whose cells are targets where `target`, and ceilings elsewhere."""
        floor = torch.zeros_like(wanted).masked_fill_(target, -torch.inf)
        return cls(tuple(lines), wanted, floor, weight)

    def add_slope(self, columns: Tensor, slope: Tensor) -> None:
        """Add the gradient of the loss with respect to D' to `slope`; D' and `slope` are transposed."""
        rows = columns.shape[1]
        first = columns[self.lines[0]]
        if len(self.lines) == 1:
            error = torch.maximum(first.mean(1).sub_(self.wanted), self.floor)
            slope[self.lines[0]] += error.mul_(2 * self.weight / rows)[:, None]
            return
        last = columns[self.lines[1]]
        error = torch.addmm(self.wanted, first, last.T, beta=-1, alpha=1 / rows)
        torch.maximum(error, self.floor, out=error)
        slope[self.lines[0]].addmm_(error, last, alpha=2 * self.weight / rows)
        slope[self.lines[1]].addmm_(error.T, first, alpha=2 * self.weight / rows)


@dataclass(frozen=True, eq=False)
class AtOnce:
    """Many goals as blocks of one table over all lines, `wanted`, and `floor` and weights of its cells.

    A vector holds one-way tables, a matrix two-way ones: blocks of the product of D' with itself. That is more
    arithmetic in a handful of calls, which is what a GPU is good at.
    """

    wanted: Tensor
    floor: Tensor
    weight: Tensor

    @classmethod
    def of(cls, goals: Sequence[Small], lines: int) -> AtOnce:
        """Goals of different features, all with one feature or all with two."""
        wanted, floor, weight = (goals[0].wanted.new_zeros([lines] * len(goals[0].lines)) for _ in range(3))
        for goal in goals:
            wanted[goal.lines], floor[goal.lines], weight[goal.lines] = goal.wanted, goal.floor, goal.weight
        return cls(wanted, floor, weight)

    def add_slope(self, columns: Tensor, slope: Tensor) -> None:
        """As `Small.add_slope`, of all goals."""
        rows = columns.shape[1]
        if self.wanted.ndim == 1:
            error = torch.maximum(columns.mean(1).sub_(self.wanted), self.floor).mul_(self.weight)
            slope += error.mul_(2 / rows)[:, None]
            return
        error = torch.addmm(self.wanted, columns, columns.T, beta=-1, alpha=1 / rows)
        torch.maximum(error, self.floor, out=error).mul_(self.weight)
        slope.addmm_(error + error.T, columns, alpha=2 / rows)


def gathered(goals: Sequence[Small], lines: int, *, at_once: bool | None = None) -> list[Small | AtOnce]:
    """The same goals, `at_once` unless given on a GPU alone: where a call costs more than what it does."""
    known: dict[tuple[tuple[int, int], ...], Small] = {}
    alone: list[Small | AtOnce] = []
    wide = lines * lines > _MOST_CELLS
    for goal in goals:
        place = tuple((one.start, one.stop) for one in goal.lines)
        if not (goal.wanted.is_cuda if at_once is None else at_once) or place in known or (wide and len(place) == 2):
            alone.append(goal)
        else:
            known[place] = goal
    alike = [[goal for goal in known.values() if len(goal.lines) == features] for features in (1, 2)]
    return [*alone, *(AtOnce.of(some, lines) for some in alike if some)]
