"""Regularised logistic regression by SGD with noise on the result (Wu et al. 2017, Alg. 2), simulated."""

from __future__ import annotations

import torch
from torch import Tensor

from hybridp.errors import must
from hybridp.public.training import OutputPerturbation
from hybridp_lab.training.design import Design
from hybridp_lab.training.linear import example_slopes

__all__ = ["fit_output", "train_output"]


def fit_output(design: Design, labels: Tensor, plan: OutputPerturbation, order: Tensor, *, passes: int) -> Tensor:
    """The weights before the noise; `order` (runs, steps a pass, m) visits every example once a pass.

    ``w -= eta_t (mean slope x + gamma w)``; `plan.sensitivity` bounds how far one replaced example moves the result,
    for every order.
    """
    runs, steps, batch = order.shape
    must(steps * batch == design.people == plan.people, "order", "must visit every person once", tuple(order.shape))
    weights = torch.zeros(runs, design.width, device=labels.device)
    for t in range(1, passes * steps + 1):
        at = order[:, (t - 1) % steps]
        rows = design.rows(at)
        gradient = rows.combine(example_slopes(rows.scores(weights), labels[at], "logistic"))
        rate = plan.step(t)
        weights.mul_(1 - rate * plan.strength).sub_(gradient, alpha=rate / batch)
    return weights


def train_output(
    design: Design,
    labels: Tensor,
    plan: OutputPerturbation,
    *,
    passes: int = 10,
    batch: int = 1,
    runs: int = 1,
    draws: int = 1,
    seed: int,
) -> Tensor:
    """Noisy weights (runs x draws, width), every run with its own order of the data (simulation only).

    Examples must have ``||x|| <= 1``. Each run's result gets `draws` separate draws of the noise.

    The dissertation takes batches of 1; the guarantee is the same for every batch size that divides the people.
    """
    must(design.people % batch == 0, "batch", f"must divide the number of people ({design.people})", batch)
    generator = torch.Generator(labels.device).manual_seed(seed)
    keys = torch.rand(runs, design.people, generator=generator, dtype=torch.float64, device=labels.device)
    order = keys.argsort(dim=1).view(runs, -1, batch)
    weights = fit_output(design, labels, plan, order, passes=passes).repeat_interleave(draws, dim=0)
    return weights + plan.sigma * torch.randn(weights.shape, generator=generator, device=labels.device)
