"""The relaxed projection as the authors' own code has it, beside the library's.

Adam (its constant 1e-8 against gradients as they are) on the *mean* squared error of the answers, a learning rate of
1e-4 sqrt(queries), Sparsemax after every step, up to 5,000 epochs in every round, ended where an epoch lowers the loss
by less than 1e-9. Noisy answers are clipped to [0, 1] first. The library's own projection rescales the gradient, so
that every coordinate moves by the whole rate, and follows the noise further: see `Options` there.

With fewer epochs the rate is larger in proportion, so that a coordinate can still go as far, and since larger steps
overshoot at times, the fit waits longer for a gain; the published fits have 5,000 epochs. Every epoch sees all answers
at once, up to 25,000; the published code takes batches above that.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must

if TYPE_CHECKING:
    from torch import Tensor

    from hybridp.public.queries import Threshold
    from hybridp_lab.papers.rap2023.mechanism import Selection
    from hybridp_lab.papers.rap2023.projection import TableGoal
    from hybridp_lab.papers.rap2023.relaxed import Relaxed

__all__ = ["EPOCHS", "MOST", "TOLERANCE", "learning_rate", "project_queries", "project_tables"]

EPOCHS, TOLERANCE, MOST = 5_000, 1e-9, 25_000
_RATE = 1e-4
_FIRST, _THEN = (0.1, 1.0), (0.02, 1e-3)  # rates, and what the gradient of the sum of squares is multiplied by


@dataclass
class _Adam:
    """Adam's two means, of the gradient as it is."""

    rate: float
    first: Any
    second: Any
    steps: int = 0

    def step(self, moving: Any, gradient: Any) -> None:
        self.steps += 1
        self.first.lerp_(gradient, 0.1)
        self.second.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        size = self.second.div(1 - 0.999**self.steps).sqrt_().add_(1e-8)
        moving.addcdiv_(self.first, size, value=-self.rate / (1 - 0.9**self.steps))


def learning_rate(queries: int, epochs: int) -> float:
    """1e-4 sqrt(queries), or more where there are fewer epochs."""
    return float(_RATE * np.sqrt(min(queries, MOST)) * EPOCHS / epochs)


@dataclass(frozen=True, eq=False)
class _Packed:
    """The part of D' that single queries can move, one column of D' a line, `rows` numbers long.

    Columns that a query names come first. A feature's other columns have no gradient: Sparsemax moves them all by the
    same tau, so that those which are 0 at first stay equal to each other for ever, and one line with their number as
    its weight stands for them. Features that no query names do not move at all.
    """

    lines: Tensor
    named: NDArray[np.int64]
    member: Tensor  # features x lines: the weight of each line in its feature, 0 in others
    feature: Tensor  # of every line
    order: dict[int, tuple[slice, Tensor]]  # by feature: its other lines, and the columns behind them, row by row

    @classmethod
    def of(cls, data: Relaxed, selection: Selection) -> _Packed:
        import torch

        named = np.unique(selection.columns[selection.columns >= 0])
        starts = np.array(data.offsets)
        home = np.searchsorted(starts, named, side="right") - 1
        lines, feature, weight = [data.values[:, named].T], home.tolist(), [1.0] * len(named)
        order: dict[int, tuple[slice, Tensor]] = {}
        for f in np.unique(home).tolist():
            others = np.setdiff1d(np.arange(starts[f], starts[f] + data.sizes[f]), named)
            if not len(others):
                continue
            sorted_values, at = data.values[:, others].sort(dim=1, descending=True)
            kept = int((sorted_values > 0).sum(1).max())
            alike = len(others) - kept
            width = kept + (alike > 0)
            order[f] = slice(len(feature), len(feature) + width), torch.from_numpy(others).to(at.device)[at]
            lines.append(sorted_values[:, :width].T)
            feature += [f] * width
            weight += [1.0] * kept + [float(alike)] * (alike > 0)
        numbers = torch.cat(lines).contiguous()
        known, place = np.unique(feature, return_inverse=True)
        member = torch.zeros((len(known), len(feature)), dtype=numbers.dtype)
        member[torch.from_numpy(place), torch.arange(len(feature))] = torch.tensor(weight, dtype=numbers.dtype)
        where = torch.from_numpy(place).to(numbers.device)
        return cls(numbers, named, member.to(numbers.device), where, order)

    def simplex(self, lines: Tensor) -> Tensor:
        """Sparsemax of every feature of every row, by Newton's method from 0 (`relaxed.sparsemax_lines`)."""
        import torch

        tau = lines.new_zeros((len(self.member), lines.shape[1]))
        support: Tensor | None = None
        while True:
            kept = lines.sub(tau.index_select(0, self.feature)).clamp_(min=0)
            count = self.member @ kept.sign()
            if support is not None and torch.equal(count, support):
                return kept
            if support is None and not bool(count.all()):  # some feature is below 0 everywhere: begin below its top
                top = torch.stack([lines[self.feature == f].amax(0) for f in range(len(tau))])
                tau = torch.minimum(tau, top - 1e-3)
                kept = lines.sub(tau.index_select(0, self.feature)).clamp_(min=0)
                count = self.member @ kept.sign()
            step = (self.member @ kept - 1) / count
            tau = tau + (step if support is None else step.clamp_(min=0))
            support = count

    def unpacked(self, lines: Tensor, data: Relaxed) -> Tensor:
        """D' with these lines in their columns."""
        out = data.values.clone()
        out[:, self.named] = lines[: len(self.named)].T
        for place, columns in self.order.values():
            own = lines[place].T
            out.scatter_(1, columns[:, : own.shape[1]], own)
            rest = columns[:, own.shape[1] :]
            out.scatter_(1, rest, own[:, -1:].expand(rest.shape))
        return out


def project_queries(
    data: Relaxed, selection: Selection, answers: NDArray[Any], *, epochs: int = EPOCHS
) -> tuple[Relaxed, float]:
    """D' moved towards the clipped answers of single queries, and the loss where it ended."""
    import torch

    from hybridp_lab.papers.rap2023.mechanism import Selection
    from hybridp_lab.papers.rap2023.relaxed import Relaxed
    from hybridp_lab.papers.rap2023.single import selected_loss

    must(epochs >= 1, "epochs", "must be at least 1", epochs)
    packed = _Packed.of(data, selection)
    lines, many, named = packed.lines, len(selection), len(packed.named)
    renamed = np.where(selection.columns < 0, -1, np.searchsorted(packed.named, selection.columns))
    asked, shape = Selection(renamed, selection.r), Relaxed(lines.T, (lines.shape[0],))
    wanted = torch.as_tensor(np.clip(answers, 0.0, 1.0)).to(lines)
    weights = torch.full_like(wanted, 1 / many)
    gradient = torch.zeros_like(lines[:named])
    adam = _Adam(learning_rate(many, epochs), torch.zeros_like(gradient), torch.zeros_like(gradient))
    best, waited, loss = np.inf, 0, np.inf
    for _ in range(epochs):
        loss = float(selected_loss(shape, asked, wanted, weights, gradient.zero_(), lines))
        waited = 0 if best - loss >= TOLERANCE else waited + 1
        best = min(best, loss)
        if waited * epochs >= EPOCHS:  # one epoch without a gain ends the published fits; a faster one waits longer
            break
        adam.step(lines[:named], gradient)
        lines = packed.simplex(lines)
    return Relaxed(packed.unpacked(lines, data), data.sizes), loss


def project_tables(
    data: Relaxed,
    tables: list[tuple[Threshold, NDArray[Any]]],
    *,
    epochs: int,
    per_step: int,
    seed: int,
    published: bool = False,
) -> Relaxed:
    """The same for whole tables of clipped answers; a step looks at so many of them, drawn by the seed.

    Features of no table have no gradient, and stay as they are. The published optimiser, Adam on the mean squared error
    at a constant rate, leaves most rows of D' on cells of noise, from which no gradient leads away: the loss ends above
    that of the truth itself. Here D' is moved in two parts. The first two thirds of the epochs fit the tables after
    each was projected on the shares that sum to 1, which takes most of the noise out of them (post-processing, and only
    where a table has all r = k); the last third fits the answers themselves. Both have the *sum* of squares as their
    loss, and rates that fall along a cosine. The final loss is at most the truth's.
    """
    import torch

    from hybridp_lab.papers.rap2023.projection import TableGoal, loss_and_gradient
    from hybridp_lab.papers.rap2023.relaxed import Relaxed, sparsemax_blocks

    queries = sum(values.size for _, values in tables)
    moved = sorted({f for t, _ in tables for f in t.features})
    place = {f: i for i, f in enumerate(moved)}
    named = [replace(t, features=tuple(place[f] for f in t.features)) for t, _ in tables]
    goals = [TableGoal(t, np.clip(values, 0.0, 1.0)) for t, (_, values) in zip(named, tables, strict=True)]
    sizes = tuple(data.sizes[f] for f in moved)
    columns = np.concatenate([np.arange(data.offsets[f], data.offsets[f] + data.sizes[f]) for f in moved])
    moving = data.values[:, columns]
    rng = np.random.default_rng(seed)

    def fit(goals: list[TableGoal], epochs: int, rate: float, scale: float | None) -> None:
        nonlocal moving
        adam = _Adam(rate, torch.zeros_like(moving), torch.zeros_like(moving))
        for epoch in range(epochs):
            some = rng.choice(len(goals), min(per_step, len(goals)), replace=False)
            seen = [goals[i] for i in some]
            _, gradient = loss_and_gradient(Relaxed(moving, sizes), tables=seen)
            if scale is None:
                gradient.div_(sum(goal.values.size for goal in seen))
            else:
                gradient.mul_(scale)
                adam.rate = rate * (1 + np.cos(np.pi * epoch / epochs)) / 2
            adam.step(moving, gradient)
            moving = sparsemax_blocks(moving, sizes)

    if published:
        fit(goals, epochs, learning_rate(queries, epochs), None)
    else:
        first = -(-2 * epochs // 3)
        fit([_denoised(goal) for goal in goals], first, *_FIRST)
        fit(goals, epochs - first, *_THEN)
    out = data.values.clone()
    out[:, columns] = moving
    return Relaxed(out, data.sizes)


def _denoised(goal: TableGoal) -> TableGoal:
    """The nearest shares that sum to 1, where the table is that of a whole marginal."""
    if goal.threshold.r != len(goal.threshold.features):
        return goal
    values = np.asarray(goal.values, dtype=np.float64).ravel()
    ordered = np.sort(values)[::-1]
    excess = np.cumsum(ordered) - 1
    last = np.flatnonzero(ordered * np.arange(1, len(values) + 1) > excess)[-1]
    nearest = np.maximum(values - excess[last] / (last + 1), 0.0)
    return replace(goal, values=nearest.astype(np.float32).reshape(np.shape(goal.values)))
