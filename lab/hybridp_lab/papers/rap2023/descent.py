"""Adam and Sparsemax on a relaxed data set: a few steps towards any goal that has a gradient. Post-processing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from hybridp.errors import must
from hybridp_lab.papers.rap2023.relaxed import Relaxed, sparsemax_lines

__all__ = ["Fit", "add_rows", "descend"]


@dataclass(frozen=True, slots=True)
class Fit:
    """How `descend` searches: the learning rate falls in a straight line over the second half of the steps.

    `floor` is Adam's small constant, in shares of people. With the usual 1e-8 every step moves every value by the
    learning rate, however small the error, and answers that nobody measured drift: RAP's largest error on ADULT (eps =
    1, 16 marginals) falls from .021 to .015 with 1e-2, where steps shrink with errors below a percent.
    """

    steps: int = 100
    learning_rate: float = 0.02
    floor: float = 1e-3

    def __post_init__(self) -> None:
        must(self.steps >= 1, "steps", "must be at least 1", self.steps)
        must(self.learning_rate > 0, "learning_rate", "must be positive", self.learning_rate)
        must(self.floor > 0, "floor", "must be positive", self.floor)


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


def add_rows(total: Tensor, rows: Tensor, part: Tensor, *, by_product: bool) -> None:
    """total[rows] += part, where a row may come twice.

    A GPU adds such rows in no fixed order; a product with a matrix of zeros and ones gives the same bits every time.
    """
    if not by_product:
        total.index_add_(0, rows, part)
        return
    ones = torch.zeros((len(rows), total.shape[0]), dtype=part.dtype, device=part.device)
    total.addmm_(ones.scatter_(1, rows[:, None], 1.0).T, part)
