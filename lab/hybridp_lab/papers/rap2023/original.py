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

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must

if TYPE_CHECKING:
    from hybridp.blend.relaxed import Relaxed
    from hybridp.public.queries import Selection, Threshold

__all__ = ["EPOCHS", "MOST", "TOLERANCE", "project_queries", "project_tables"]

EPOCHS, TOLERANCE, MOST = 5_000, 1e-9, 25_000
_RATE = 1e-4


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


def _rate(queries: int, epochs: int) -> float:
    return float(_RATE * np.sqrt(min(queries, MOST)) * EPOCHS / epochs)


def project_queries(
    data: Relaxed, selection: Selection, answers: NDArray[Any], *, epochs: int = EPOCHS
) -> tuple[Relaxed, float]:
    """D' moved towards the clipped answers of single queries, and the loss where it ended."""
    import torch

    from hybridp.blend.relaxed import QueryGoal, Relaxed, loss_and_gradient, sparsemax_blocks

    must(epochs >= 1, "epochs", "must be at least 1", epochs)
    many = len(selection)
    goal = QueryGoal(selection, np.clip(answers, 0.0, 1.0), np.full(many, 1 / many))
    moving = data.values.clone()
    adam = _Adam(_rate(many, epochs), torch.zeros_like(moving), torch.zeros_like(moving))
    best, waited, loss = np.inf, 0, np.inf
    for _ in range(epochs):
        loss, gradient = loss_and_gradient(Relaxed(moving, data.sizes), queries=goal)
        waited = 0 if best - loss >= TOLERANCE else waited + 1
        best = min(best, loss)
        if waited * epochs >= EPOCHS:  # one epoch without a gain ends the published fits; a faster one waits longer
            break
        adam.step(moving, gradient)
        moving = sparsemax_blocks(moving, data.sizes, near=True)
    return Relaxed(moving, data.sizes), float(loss)


def project_tables(
    data: Relaxed,
    tables: list[tuple[Threshold, NDArray[Any]]],
    *,
    epochs: int,
    per_step: int,
    seed: int,
) -> Relaxed:
    """The same for whole tables of clipped answers; a step looks at so many of them, drawn by the seed."""
    import torch

    from hybridp.blend.relaxed import Relaxed, TableGoal, loss_and_gradient, sparsemax_blocks

    queries = sum(values.size for _, values in tables)
    goals = [TableGoal(t, np.clip(values, 0.0, 1.0)) for t, values in tables]
    moving = data.values.clone()
    adam = _Adam(_rate(queries, epochs), torch.zeros_like(moving), torch.zeros_like(moving))
    rng = np.random.default_rng(seed)
    for _ in range(epochs):
        some = rng.choice(len(goals), min(per_step, len(goals)), replace=False)
        seen = [goals[i] for i in some]
        _, gradient = loss_and_gradient(Relaxed(moving, data.sizes), tables=seen)
        adam.step(moving, gradient.div_(sum(goal.values.size for goal in seen)))
        moving = sparsemax_blocks(moving, data.sizes, near=True)
    return Relaxed(moving, data.sizes)
