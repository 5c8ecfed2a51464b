"""Several private trainings of a network at once on a GPU, every step replayed from a captured graph.

The law is that of `training.mlp`: ghost norms, lots of distinct examples, Gaussian noise on the clipped mean, SGD. All
runs of a setting take their steps together, in batched products, and a graph of `_UNROLLED` steps is captured once a
setting: a step of ten runs takes some tenths of a millisecond on an H200. Small lots take the steps of
`training.mlp_fused` where triton is installed: three launches in place of some fifty. Simulation only.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from hybridp.errors import must
from hybridp_lab.training.mlp import Network
from hybridp_lab.training.optimisers import Recipe, sample_batches

if TYPE_CHECKING:
    from hybridp_lab.training.mlp_fused import FusedStep

__all__ = ["accuracies", "train_networks"]

_UNROLLED = 32
_DRAWN = 1 << 23  # indices drawn at a time


class _Step:
    """One step of all runs, in place on `weights` (runs, parameters)."""

    def __init__(self, net: Network, x: Tensor, labels: Tensor, recipe: Recipe, weights: Tensor) -> None:
        self.net, self.x, self.labels, self.recipe, self.weights = net, x, labels, recipe, weights
        self.layers, at = [], 0
        self.noisy = torch.empty_like(weights)
        self.into = []
        for into, wide in net.shapes:
            ends = at + into * wide, at + into * wide + wide
            shape = (len(weights), wide, into)
            self.layers.append((weights[:, at : ends[0]].view(shape), weights[:, ends[0] : ends[1]]))
            self.into.append((self.noisy[:, at : ends[0]].view(shape), self.noisy[:, ends[0] : ends[1]]))
            at = ends[1]

    def __call__(self, at: Tensor, seed: Tensor) -> None:
        """With the lots (runs, lot); noise is of torch's own generator, and `seed` is for steps that draw theirs."""
        inputs, own = [self.x[at]], self.labels[at]
        for i, (matrix, intercept) in enumerate(self.layers):
            sums = torch.baddbmm(intercept.unsqueeze(1), inputs[-1], matrix.transpose(1, 2))
            if i < len(self.layers) - 1:
                inputs.append(sums.relu_())
        error = torch.softmax(sums, dim=2)
        error.scatter_add_(2, own.unsqueeze(2), torch.full_like(error[:, :, :1], -1.0))
        errors = [error]
        for (matrix, _), into in zip(self.layers[:0:-1], inputs[:0:-1], strict=True):
            errors.append(torch.bmm(errors[-1], matrix).mul_(into > 0))
        errors.reverse()
        parts = [e.square().sum(2) * (a.square().sum(2) + 1) for a, e in zip(inputs, errors, strict=True)]
        norms = torch.stack(parts).sum(0)
        factor = (self.recipe.clip * torch.rsqrt(norms.clamp_(min=1e-30))).clamp_(max=1).unsqueeze(2)
        self.noisy.normal_(0, self.recipe.noise_scale)
        share = 1 / self.recipe.batch
        for (matrix, intercept), a, e in zip(self.into, inputs, errors, strict=True):
            clipped = e.mul_(factor)
            matrix.baddbmm_(clipped.transpose(1, 2), a, alpha=share)
            intercept.add_(clipped.sum(1), alpha=share)
        self.weights.sub_(self.noisy, alpha=self.recipe.rate)

    def trained(self) -> Tensor:
        """The flat parameters (runs, parameters)."""
        return self.weights


def train_networks(net: Network, x: Tensor, labels: Tensor, recipe: Recipe, *, runs: int, seed: int) -> Tensor:
    """The flat parameters (runs, parameters) after so many trainings with noise, from He's initialisation."""
    must(x.is_cuda, "x", "must be on a GPU", str(x.device))
    must(recipe.optimiser == "sgd", "optimiser", "must be sgd", recipe.optimiser)
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.cuda.manual_seed(seed)
    generator = torch.Generator("cuda").manual_seed(seed)
    weights = torch.stack([net.start(generator=generator) for _ in range(runs)])
    lot, steps = recipe.batch, recipe.epochs * (len(x) // recipe.batch)
    step = _step(net, x, labels, recipe, weights)
    room = torch.zeros((_UNROLLED, runs, lot), dtype=torch.int64, device="cuda")
    keys = torch.zeros((_UNROLLED, 1), dtype=torch.int64, device="cuda")
    graph = None
    if steps >= 4 * _UNROLLED:
        side = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            _step(net, x, labels, recipe, weights.clone())(room[0], keys[0])
        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for i in range(_UNROLLED):
                step(room[i], keys[i])
    block = max(_UNROLLED, _DRAWN // (runs * max(lot, 1)) // _UNROLLED * _UNROLLED)
    for first in range(0, steps, block):
        count = min(block, steps - first)
        at = sample_batches(len(x), lot, count * runs, generator=generator).view(count, runs, lot)
        own = torch.randint(2**62, (count, 1), generator=generator, device="cuda")
        whole = count // _UNROLLED * _UNROLLED if graph is not None else 0
        for i in range(0, whole, _UNROLLED):
            room.copy_(at[i : i + _UNROLLED])
            keys.copy_(own[i : i + _UNROLLED])
            assert graph is not None
            graph.replay()
        for i in range(whole, count):
            step(at[i], own[i])
    torch.cuda.synchronize()
    return step.trained()


def _step(net: Network, x: Tensor, labels: Tensor, recipe: Recipe, weights: Tensor) -> _Step | FusedStep:
    """What takes a step of this network with lots of this size, from these weights on."""
    if find_spec("triton") is not None:
        from hybridp_lab.training.mlp_fused import FusedStep, can_fuse

        if can_fuse(net, recipe.batch):
            return FusedStep(net, x, labels, recipe, weights)
    return _Step(net, x, labels, recipe, weights)


def accuracies(net: Network, weights: Tensor, x: Tensor, labels: Tensor) -> list[float]:
    """The share of examples that every run's network classifies right."""
    from hybridp_lab.training.mlp import network_accuracy

    return [network_accuracy(net, flat, x, labels) for flat in weights]
