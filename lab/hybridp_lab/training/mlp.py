"""Multilayer perceptrons trained with noise by ghost norms: no per-example gradient is ever stored.

In a fully connected layer the gradient of one example is the outer product of its backpropagated error ``d`` and its
input ``a``, so its squared norm is ``||d||^2 (||a||^2 + 1)`` with the intercept. One pass back gives all errors, their
norms give every example's clipping factor, and one product a layer sums the clipped gradients (Goodfellow 2015).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from hybridp.errors import must
from hybridp_lab.training.optimisers import Recipe, run_recipe

__all__ = ["Network", "clipped_sum", "example_norms", "network", "network_accuracy", "train_network"]


@dataclass(frozen=True, slots=True)
class Network:
    """Layer widths, inputs first and classes last; ReLU between layers, softmax cross-entropy at the end.

    >>> network(784, 128, 64, 10).parameters
    109386
    """

    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        must(len(self.widths) >= 2, "widths", "must name inputs and classes", self.widths)
        must(min(self.widths) >= 1, "widths", "must be at least 1", self.widths)

    @property
    def parameters(self) -> int:
        return sum(out * (into + 1) for into, out in self.shapes)

    @property
    def shapes(self) -> tuple[tuple[int, int], ...]:
        return tuple(zip(self.widths[:-1], self.widths[1:], strict=True))

    def layers(self, flat: Tensor) -> list[tuple[Tensor, Tensor]]:
        """The flat parameters as (matrix, intercept) views, one pair a layer."""
        out, at = [], 0
        for into, wide in self.shapes:
            matrix = flat[at : at + into * wide].view(wide, into)
            at += into * wide
            out.append((matrix, flat[at : at + wide]))
            at += wide
        return out

    def start(self, *, generator: torch.Generator) -> Tensor:
        """He's initialisation. The algorithms' w = 0 is a stationary point of a network with hidden layers."""
        flat = torch.zeros(self.parameters, device=generator.device)
        for matrix, _ in self.layers(flat):
            matrix.normal_(0, math.sqrt(2 / matrix.shape[1]), generator=generator)
        return flat


def network(*widths: int) -> Network:
    """A network by its layer widths."""
    return Network(tuple(widths))


def _forward(net: Network, flat: Tensor, x: Tensor) -> tuple[list[Tensor], Tensor]:
    """The input of every layer, and the last layer's scores."""
    inputs, layers = [x], net.layers(flat)
    for matrix, intercept in layers[:-1]:
        inputs.append(torch.addmm(intercept, inputs[-1], matrix.T).relu_())
    matrix, intercept = layers[-1]
    return inputs, torch.addmm(intercept, inputs[-1], matrix.T)


def _backward(net: Network, flat: Tensor, x: Tensor, labels: Tensor) -> tuple[list[Tensor], list[Tensor]]:
    """Every layer's inputs and every layer's errors (the derivative of each example's own loss by the layer's sums)."""
    inputs, scores = _forward(net, flat, x)
    error = torch.softmax(scores, dim=1)
    error[torch.arange(len(labels), device=labels.device), labels] -= 1
    errors = [error]
    for (matrix, _), into in zip(net.layers(flat)[:0:-1], inputs[:0:-1], strict=True):
        errors.append((errors[-1] @ matrix).mul_(into > 0))
    return inputs, errors[::-1]


def _norms(inputs: list[Tensor], errors: list[Tensor]) -> Tensor:
    total = torch.zeros(len(inputs[0]), device=inputs[0].device)
    for into, error in zip(inputs, errors, strict=True):
        total += torch.linalg.vector_norm(error, dim=1).square_() * (
            torch.linalg.vector_norm(into, dim=1).square_() + 1
        )
    return total.sqrt_()


def example_norms(net: Network, flat: Tensor, x: Tensor, labels: Tensor) -> Tensor:
    """The norm of every example's gradient over all layers."""
    return _norms(*_backward(net, flat, x, labels))


def clipped_sum(net: Network, flat: Tensor, x: Tensor, labels: Tensor, clip: float) -> Tensor:
    """The sum of the examples' gradients, each clipped to norm `clip`, as a flat vector."""
    inputs, errors = _backward(net, flat, x, labels)
    factor = (clip / _norms(inputs, errors).clamp_(min=1e-30)).clamp_(max=1).unsqueeze_(1)
    out = torch.empty_like(flat)
    for (matrix, intercept), into, error in zip(net.layers(out), inputs, errors, strict=True):
        error *= factor
        torch.mm(error.T, into, out=matrix)
        torch.sum(error, dim=0, out=intercept)
    return out


def train_network(net: Network, x: Tensor, labels: Tensor, recipe: Recipe, *, seed: int) -> Tensor:
    """The flat parameters after training with noise, by a seeded generator (simulation only)."""
    must(x.shape[1] == net.widths[0], "x", f"must have {net.widths[0]} columns", x.shape[1])
    generator = torch.Generator(x.device).manual_seed(seed)
    start = net.start(generator=generator).unsqueeze(0)

    def gradient(weights: Tensor, at: Tensor) -> Tensor:
        return clipped_sum(net, weights[0], x.index_select(0, at[0]), labels[at[0]], recipe.clip).unsqueeze(0)

    return run_recipe(start, len(x), recipe, gradient, generator=generator)[0]


def network_accuracy(net: Network, flat: Tensor, x: Tensor, labels: Tensor) -> float:
    """The share of examples classified right."""
    return float((_forward(net, flat, x)[1].argmax(dim=1) == labels).to(torch.float64).mean())
