"""DP-SGD and DP-Adam from a clipped gradient on: batches, noise and the two updates (dissertation, Algs 3.3, 3.4)."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from hybridp.errors import must
from hybridp_lab.training.accounting import Training

__all__ = ["SIMULATED", "OptimiserName", "Recipe", "run_recipe", "sample_batches"]

SIMULATED = "seeded torch generator, simulation only"
OptimiserName = Literal["sgd", "adam"]

_BLOCK = 1 << 21  # numbers drawn at a time


@dataclass(frozen=True, slots=True)
class Recipe:
    """Table 3.1's five knobs (noise is sigma, the square root of the table's variance) and the optimiser.

    >>> Recipe(epochs=2, batch=100, rate=0.1, noise=1.0, clip=0.5).noise_scale
    0.01
    """

    epochs: int
    batch: int
    rate: float
    noise: float
    clip: float
    optimiser: OptimiserName = "sgd"

    def __post_init__(self) -> None:
        must(self.epochs >= 1, "epochs", "must be at least 1", self.epochs)
        must(self.batch >= 1, "batch", "must be at least 1", self.batch)
        must(math.isfinite(self.noise) and self.noise >= 0, "noise", "must be finite and not negative", self.noise)
        for name in ("rate", "clip"):
            value = getattr(self, name)
            must(math.isfinite(value) and value > 0, name, "must be positive and finite", value)
        must(self.optimiser in ("sgd", "adam"), "optimiser", "must be sgd or adam", self.optimiser)

    @property
    def noise_scale(self) -> float:
        """The standard deviation added to every coordinate of the mean gradient: ``2 L sigma/m``."""
        return 2 * self.clip * self.noise / self.batch

    def training(self, people: int) -> Training:
        """What it costs, for replacement of one of so many people."""
        return Training(people, self.batch, self.epochs, self.noise)


def sample_batches(people: int, batch: int, count: int, *, generator: torch.Generator) -> Tensor:
    """`count` uniformly random batches of distinct people, independent of each other: (count, batch).

    Numbers are drawn with replacement and those that repeat are drawn again, until all differ. The procedure treats
    all people alike, so every subset is as likely as any other. A large share of everybody is cut from a permutation.

    >>> sample_batches(5, 5, 1, generator=torch.Generator().manual_seed(1)).sort().values.tolist()
    [[0, 1, 2, 3, 4]]
    """
    must(1 <= batch <= people, "batch", f"must lie between 1 and people ({people})", batch)
    if 4 * batch > people:
        keys = torch.rand(count, people, generator=generator, dtype=torch.float64, device=generator.device)
        return keys.argsort(dim=1)[:, :batch]
    out = torch.randint(people, (count, batch), generator=generator, device=generator.device)
    again = torch.arange(count, device=generator.device)
    while len(again):
        rows = out[again].sort(dim=1).values
        repeated = rows[:, 1:] == rows[:, :-1]
        fresh = torch.randint(people, (int(repeated.sum()),), generator=generator, device=generator.device)
        rows[:, 1:][repeated] = fresh
        out[again] = rows
        again = again[repeated.any(dim=1)]
    return out


Gradient = Callable[[Tensor, Tensor], Tensor]


def _blocks(
    people: int, recipe: Recipe, runs: int, width: int, generator: torch.Generator
) -> Iterator[tuple[Tensor, Tensor]]:
    """For every step the runs' batches (runs, m) and their noise (runs, width), drawn many steps at a time."""
    steps = recipe.epochs * (people // recipe.batch)
    drawn = people if 4 * recipe.batch > people else recipe.batch
    size = max(1, _BLOCK // (runs * max(width, drawn)))
    for start in range(0, steps, size):
        count = min(size, steps - start)
        at = sample_batches(people, recipe.batch, count * runs, generator=generator).view(count, runs, -1)
        noise = torch.randn(count, runs, width, generator=generator, device=generator.device).mul_(recipe.noise_scale)
        yield from zip(at, noise, strict=True)


def run_recipe(start: Tensor, people: int, recipe: Recipe, gradient: Gradient, *, generator: torch.Generator) -> Tensor:
    """All steps from `start` (runs, width), updated in place. `gradient(weights, at)` sums the clipped gradients.

    SGD: ``w -= eta g``. Adam: ``mu``, ``nu`` the running means of ``g`` and ``g^2``, de-biased, ``kappa = 1e-8``,
    ``beta_1 = 0.9``, ``beta_2 = 0.999``, ``w -= eta mu/(sqrt(nu) + kappa)``; both with the noisy mean g.
    """
    must(recipe.batch <= people, "batch", f"must be at most the number of people ({people})", recipe.batch)
    runs, width = start.shape
    weights = start
    first, second = torch.zeros_like(start), torch.zeros_like(start)
    adam = recipe.optimiser == "adam"
    share = 1 / recipe.batch
    for i, (at, noise) in enumerate(_blocks(people, recipe, runs, width, generator), start=1):
        noisy = noise.add_(gradient(weights, at), alpha=share)
        if not adam:
            weights.sub_(noisy, alpha=recipe.rate)
            continue
        first.lerp_(noisy, 0.1)
        second.mul_(0.999).addcmul_(noisy, noisy, value=0.001)
        size = second.div(1 - 0.999**i).sqrt_().add_(1e-8)
        weights.addcdiv_(first, size, value=-recipe.rate / (1 - 0.9**i))
    return weights
