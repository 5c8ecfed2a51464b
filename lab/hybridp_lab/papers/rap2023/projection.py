"""Relaxed projection: the D' whose answers come closest to noisy ones (Avent 2023, Algorithm 4.3). Post-processing.

The loss is sum_q w_q (q(D') - a_q)^2 over single queries plus sum_t w_t ||T_t(D') - a_t||^2 over whole tables. Every
step is one of Adam followed by Sparsemax on every feature of every row.

Stopping rule. The best loss so far is looked at every `window` steps. Where it fell by less than the share `tolerance`,
the learning rate is halved; the time after `halvings` of those, or after `steps` steps, the projection ends and returns
the best D' that it saw.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hybridp.errors import must
from hybridp.public.queries import Threshold, at_least
from hybridp_lab.papers.rap2023.contraction import MOST_ENTRIES, Contraction, Scratch, Support
from hybridp_lab.papers.rap2023.mechanism import Selection
from hybridp_lab.papers.rap2023.relaxed import Relaxed, sparsemax_blocks
from hybridp_lab.papers.rap2023.single import selected_loss

__all__ = ["Options", "Projection", "QueryGoal", "TableGoal", "loss_and_gradient", "project"]


@dataclass(frozen=True, eq=False)
class TableGoal:
    """The wanted answers to all consistent queries of a threshold, and the weight of their squared errors."""

    threshold: Threshold
    values: NDArray[Any]
    weight: float = 1.0

    def __post_init__(self) -> None:
        must(self.weight > 0, "weight", "must be positive", self.weight)


@dataclass(frozen=True, eq=False)
class QueryGoal:
    """The wanted answers to single queries, and the weights of their squared errors (1 unless given)."""

    selection: Selection
    values: NDArray[Any]
    weights: NDArray[Any] | None = None

    def __post_init__(self) -> None:
        m = len(self.selection)
        must(np.shape(self.values) == (m,), "values", f"must be one for each of the {m} queries", np.shape(self.values))
        if self.weights is not None:
            ok = np.shape(self.weights) == (m,) and bool((np.asarray(self.weights) >= 0).all())
            must(ok, "weights", f"must be {m} numbers that are not negative", np.shape(self.weights))


@dataclass(frozen=True, slots=True)
class Options:
    """How the projection searches.

    The published learning rate is 1e-4 sqrt(number of queries), and stays. In one run on 16 noisy marginals of ADULT
    (n' = 1000, 64,317 cells) the loss after 100 steps was .077 at 5e-3, .0048 at .02, .0026 at .05 and .0021 at .1, but
    the largest error of any query after 150 was .0087 at .02 and above .014 from .05 on. With `tables_per_step` each
    step looks at so many of the tables, drawn by the seed: cheaper steps, and more of them.
    Temporary arrays keep to `most_cells` numbers each, beside the goals themselves and a few times the largest table.
    """

    steps: int = 1000
    learning_rate: float = 3e-2
    tolerance: float = 1e-2
    window: int = 20
    halvings: int = 2
    tables_per_step: int | None = None
    most_cells: int = MOST_ENTRIES
    seed: int = 0

    def __post_init__(self) -> None:
        must(self.steps >= 0, "steps", "must not be negative", self.steps)
        must(self.learning_rate > 0, "learning_rate", "must be positive", self.learning_rate)
        must(0 <= self.tolerance < 1, "tolerance", "must be at least 0 and below 1", self.tolerance)
        must(self.window >= 1, "window", "must be at least 1", self.window)
        must(self.most_cells >= 1, "most_cells", "must be at least 1", self.most_cells)
        must(self.halvings >= 0, "halvings", "must not be negative", self.halvings)
        must(self.tables_per_step is None or self.tables_per_step >= 1, "tables_per_step", "must be at least 1", 0)


@dataclass(frozen=True, eq=False)
class Projection:
    """The D' that was found, the loss before every step, and why the search ended."""

    data: Relaxed
    losses: tuple[float, ...]
    steps: int
    stopped: Literal["tolerance", "steps"]


@dataclass(frozen=True, eq=False)
class _Goals:
    """The goals as tensors on the device of D'; built once."""

    selection: Selection | None
    wanted: Tensor
    weights: Tensor
    tables: tuple[tuple[Threshold, Tensor, float], ...]

    @property
    def scale(self) -> float:
        return max([*(w for _, _, w in self.tables), float(self.weights.max()) if len(self.weights) else 0.0])


def _goals(data: Relaxed, queries: QueryGoal | None, tables: Sequence[TableGoal]) -> _Goals:
    x = data.values

    def tensor(values: Any) -> Tensor:
        return torch.as_tensor(np.asarray(values), dtype=x.dtype).to(x.device)

    prepared = []
    for goal in tables:
        known = max(goal.threshold.features) < len(data.sizes)
        must(known, "features", f"must be positions below {len(data.sizes)}", goal.threshold.features)
        shape = tuple(data.sizes[f] for f in goal.threshold.features)
        values = np.asarray(goal.values)
        must(values.size == np.prod(shape), "values", f"must fill a table of shape {shape}", values.shape)
        prepared.append((goal.threshold, tensor(values.reshape(shape)), goal.weight))
    if queries is None or len(queries.selection) == 0:
        return _Goals(None, tensor([]), tensor([]), tuple(prepared))
    weights = np.ones(len(queries.selection)) if queries.weights is None else queries.weights
    return _Goals(queries.selection, tensor(queries.values), tensor(weights), tuple(prepared))


def loss_and_gradient(
    data: Relaxed, *, queries: QueryGoal | None = None, tables: Sequence[TableGoal] = ()
) -> tuple[float, Tensor]:
    """The loss and its gradient with respect to `data.values`."""
    goals = _goals(data, queries, tables)
    return _loss_and_gradient(data, goals, range(len(goals.tables)), Scratch(), MOST_ENTRIES)


def _loss_and_gradient(
    data: Relaxed, goals: _Goals, some: Sequence[int], scratch: Scratch, most: int
) -> tuple[float, Tensor]:
    x = data.values
    loss = 0.0
    slope = torch.zeros_like(x)
    if goals.selection is not None:
        columns = x.T.contiguous()
        sideways = torch.zeros_like(columns)
        loss += float(selected_loss(data, goals.selection, goals.wanted, goals.weights, sideways, columns))
        slope += sideways.T
    share = len(goals.tables) / max(1, len(some))
    offsets = data.offsets
    result: dict[int, Support] = {}
    for t in some:
        threshold, wanted, weight = goals.tables[t]
        blocks = [data.block(f) for f in threshold.features]
        now = Contraction(blocks, scratch, most, threshold.features, result)
        error = at_least(now.table(), threshold.r).sub_(wanted)
        loss += weight * share * float((error * error).sum())
        # The map from the k-way table to the threshold's answers is its own adjoint.
        back = at_least(error, threshold.r) * (2 * weight * share)
        for f, part in zip(threshold.features, now.gradients(back), strict=True):
            slope[:, offsets[f] : offsets[f] + data.sizes[f]] += part
    return loss, slope


class _Adam:
    """Adam (Kingma and Ba 2015) with its usual constants. torch's own takes seconds to import, with its compiler."""

    def __init__(self, like: Tensor) -> None:
        self.mean, self.square = torch.zeros_like(like), torch.zeros_like(like)
        self.room = torch.empty_like(like)
        self.steps = 0

    def step(self, moving: Tensor, gradient: Tensor, rate: float) -> None:
        self.steps += 1
        self.mean.lerp_(gradient, 0.1)
        self.square.mul_(0.999).addcmul_(gradient, gradient, value=0.001)
        # The corrections of both moments for their start at zero are put in the rate and in the small constant.
        root = (1 - 0.999**self.steps) ** 0.5
        torch.sqrt(self.square, out=self.room).add_(1e-8 * root)
        moving.addcdiv_(self.mean, self.room, value=-rate * root / (1 - 0.9**self.steps))


def project(
    data: Relaxed,
    *,
    queries: QueryGoal | None = None,
    tables: Sequence[TableGoal] = (),
    options: Options | None = None,
) -> Projection:
    """Move D' towards the wanted answers. The same start, goals and options give the same D' on the same device.

    >>> from hybridp_lab.papers.rap2023.relaxed import start
    >>> goal = TableGoal(Threshold((0, 1), 2), np.array([[0.5, 0.0], [0.25, 0.25]]))
    >>> found = project(start(50, (2, 2), seed=3), tables=[goal], options=Options(steps=300))
    >>> found.losses[-1] < 1e-3 < found.losses[0]
    True
    """
    chosen = options or Options()
    goals = _goals(data, queries, tables)
    must(goals.selection is not None or bool(goals.tables), "tables", "must be at least one, or some queries", 0)
    every = range(len(goals.tables))
    part = chosen.tables_per_step is not None and chosen.tables_per_step < len(every)
    rng = np.random.default_rng(chosen.seed)
    moving = data.values.clone()
    scratch = Scratch()
    # Adam's own small constant should stay small beside the gradient, which is of the order of weight / rows.
    scale = data.rows / max(goals.scale, 1e-30)
    adam = _Adam(moving)
    rate = chosen.learning_rate
    losses: list[float] = []
    best, before, halved = np.inf, np.inf, 0
    kept = moving.clone()
    recent: list[float] = []
    for step in range(chosen.steps + 1):
        some = rng.choice(len(every), chosen.tables_per_step, replace=False).tolist() if part else every
        loss, gradient = _loss_and_gradient(Relaxed(moving, data.sizes), goals, some, scratch, chosen.most_cells)
        losses.append(loss)
        recent.append(loss)
        # With parts of the tables, single losses are not comparable: the last D' is kept, and their mean is watched.
        if part or loss < best:
            kept.copy_(moving)
        best = min(best, loss)
        if step == chosen.steps:
            break
        if len(recent) == chosen.window:
            now = float(np.mean(recent)) if part else best
            if now >= before * (1 - chosen.tolerance):
                if halved == chosen.halvings:
                    return Projection(Relaxed(kept, data.sizes), tuple(losses), step, "tolerance")
                halved += 1
                rate /= 2
            before, recent = now, []
        adam.step(moving, gradient.mul_(scale), rate)
        moving.copy_(sparsemax_blocks(moving, data.sizes))
    return Projection(Relaxed(kept, data.sizes), tuple(losses), chosen.steps, "steps")
