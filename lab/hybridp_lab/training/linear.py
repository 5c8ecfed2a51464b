"""Logistic regression and the linear support vector machine, trained with noise: gradients in closed form.

An example's gradient is its slope (the derivative of the loss by the score) times x, so clipping it to norm L
multiplies the slope by ``min(1, L/(|slope| ||x||))`` (dissertation, Algs 3.3 and 3.4, line 5).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from hybridp.errors import must
from hybridp_lab.training.design import Design
from hybridp_lab.training.optimisers import Recipe, run_recipe

__all__ = ["LinearLoss", "accuracy", "clipped_sum", "example_slopes", "train_linear"]

LinearLoss = Literal["logistic", "hinge"]


def example_slopes(scores: Tensor, labels: Tensor, loss: LinearLoss) -> Tensor:
    """The derivative of every example's loss by its score; labels are 0 and 1.

    Logistic: ``sigmoid(z) - y``. Hinge with ``s = 2y - 1``: ``-s`` where ``s z < 1``, else 0.

    >>> example_slopes(torch.zeros(2), torch.tensor([0.0, 1.0]), "logistic").tolist()
    [0.5, -0.5]
    """
    if loss == "logistic":
        return torch.sigmoid(scores).sub_(labels)
    sign = labels * 2 - 1
    return -sign * (sign * scores < 1)


def clipped_sum(
    design: Design, labels: Tensor, weights: Tensor, at: Tensor, *, clip: float, loss: LinearLoss
) -> Tensor:
    """The sum of the clipped gradients of the examples `at` (runs, m), one row a run."""
    rows = design.rows(at)
    slopes = example_slopes(rows.scores(weights), labels.take(at), loss)
    return rows.combine(rows.clip_slopes(slopes, clip))


def train_linear(
    design: Design,
    labels: Tensor,
    recipe: Recipe,
    *,
    loss: LinearLoss = "logistic",
    runs: int = 1,
    spread: Tensor | None = None,
    seed: int,
) -> Tensor:
    """Weights (runs, width) of so many independent trainings, by a seeded generator (simulation only).

    They start at w = 0, as Algorithm 3.3 prints, or at normal numbers with the standard deviations `spread`.

    >>> from hybridp_lab.training.design import Dense
    >>> x = Dense.of(torch.tensor([[1.0, 1.0], [-1.0, 1.0]]))
    >>> recipe = Recipe(epochs=50, batch=2, rate=1.0, noise=0.0, clip=1.0)
    >>> w = train_linear(x, torch.tensor([1.0, 0.0]), recipe, seed=1)
    >>> accuracy(x, torch.tensor([1.0, 0.0]), w).tolist()
    [1.0]
    """
    must(runs >= 1, "runs", "must be at least 1", runs)
    generator = torch.Generator(labels.device).manual_seed(seed)
    start = torch.zeros(runs, design.width, device=labels.device)
    if spread is not None:
        start.normal_(generator=generator).mul_(spread.to(labels.device))

    def gradient(weights: Tensor, at: Tensor) -> Tensor:
        return clipped_sum(design, labels, weights, at, clip=recipe.clip, loss=loss)

    return run_recipe(start, design.people, recipe, gradient, generator=generator)


def accuracy(design: Design, labels: Tensor, weights: Tensor) -> Tensor:
    """The share of examples that every run's model classifies right."""
    return ((design.scores(weights) > 0) == (labels > 0.5)).to(torch.float64).mean(dim=1)
