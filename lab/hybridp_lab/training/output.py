"""Regularised logistic regression by SGD with noise on the result (Wu et al. 2017, Alg. 2), simulated."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hybridp.errors import must
from hybridp_lab.training.accounting import OutputPerturbation
from hybridp_lab.training.design import Design
from hybridp_lab.training.linear import example_slopes

__all__ = ["fit_output", "train_output"]


def fit_output(
    design: Design, labels: Tensor, plans: Sequence[OutputPerturbation], order: Tensor, *, passes: int
) -> Tensor:
    """The weights before the noise, a run for each plan; `order` (runs, steps a pass, m) visits everybody once a pass.

    ``w -= eta_t (mean slope x + gamma w)``; a plan's `sensitivity` bounds how far one replaced example moves the
    result, for every order.
    """
    runs, steps, batch = order.shape
    must(len(plans) == runs, "plans", f"must be one for each of the {runs} runs", len(plans))
    fits = all(steps * batch == design.people == plan.people for plan in plans)
    must(fits, "order", "must visit every person once", tuple(order.shape))
    weights = torch.zeros(runs, design.width, device=labels.device)
    strength = torch.tensor([plan.strength for plan in plans], dtype=torch.float64)
    largest, first = 1 / (1 + strength), 1 / strength
    for t in range(1, passes * steps + 1):
        at = order[:, (t - 1) % steps]
        rows = design.rows(at)
        gradient = rows.combine(example_slopes(rows.scores(weights), labels[at], "logistic"))
        rate = torch.minimum(largest, first / t)
        shrink, move = ((1 - rate * strength).to(weights), (rate / batch).to(weights))
        weights.mul_(shrink[:, None]).sub_(gradient.mul_(move[:, None]))
    return weights


def train_output(
    design: Design,
    labels: Tensor,
    plans: Sequence[OutputPerturbation],
    *,
    passes: int = 10,
    batch: int = 1,
    runs: int = 1,
    draws: int = 1,
    seeds: Sequence[int],
) -> list[Tensor]:
    """For each plan and its seed, noisy weights (runs x draws, width), every run with its own order of the data
    (simulation only); all plans are trained at once.

    Examples must have ``||x|| <= 1``. Each run's result gets `draws` separate draws of the noise.

    The dissertation takes batches of 1; the guarantee is the same for every batch size that divides the people.
    """
    must(design.people % batch == 0, "batch", f"must divide the number of people ({design.people})", batch)
    generators = [torch.Generator(labels.device).manual_seed(seed) for seed in seeds]
    orders = []
    for generator in generators:
        keys = torch.rand(runs, design.people, generator=generator, dtype=torch.float64, device=labels.device)
        orders.append(keys.argsort(dim=1).view(runs, -1, batch))
    every = [plan for plan in plans for _ in range(runs)]
    fitted = torch.split(fit_output(design, labels, every, torch.cat(orders), passes=passes), runs)
    noisy = []
    for plan, generator, own in zip(plans, generators, fitted, strict=True):
        weights = own.repeat_interleave(draws, dim=0)
        noisy.append(weights + plan.sigma * torch.randn(weights.shape, generator=generator, device=labels.device))
    return noisy
