"""The examples of a linear model, dense or one-hot, for several runs at once.

A gradient of a linear model is ``slope * x``: its norm is ``|slope| ||x||`` and a weighted sum of gradients is one
product, so nothing of the size examples x features is ever made. `at` holds the examples of a step, one row a run.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from hybridp.errors import must

__all__ = ["Dense", "Design", "OneHot", "Rows"]


@dataclass(frozen=True, eq=False, slots=True)
class DenseRows:
    """Chosen rows of a dense design: values[run, example, feature]."""

    values: Tensor
    norms: Tensor

    def scores(self, weights: Tensor) -> Tensor:
        if len(weights) == 1:  # one run: plain products cost less than batched ones
            return torch.mv(self.values[0], weights[0]).unsqueeze(0)
        return torch.bmm(self.values, weights.unsqueeze(2)).squeeze(2)

    def clip_slopes(self, slopes: Tensor, clip: float) -> Tensor:
        """``min(1, clip/(|slope| ||x||))`` times the slope."""
        limit = clip / self.norms.clamp(min=1e-30)
        return torch.clamp(slopes, -limit, limit)

    def combine(self, slopes: Tensor) -> Tensor:
        """``sum_i slope_i x_i`` for every run."""
        if len(slopes) == 1:
            return torch.mm(slopes, self.values[0])
        return torch.bmm(slopes.unsqueeze(1), self.values).squeeze(1)


@dataclass(frozen=True, eq=False, slots=True)
class Dense:
    """Examples as rows of a float matrix."""

    values: Tensor
    row_norms: Tensor

    @classmethod
    def of(cls, values: Tensor) -> Dense:
        must(values.ndim == 2, "values", "must be a matrix", tuple(values.shape))
        return cls(values, torch.linalg.vector_norm(values, dim=1))

    @property
    def people(self) -> int:
        return int(self.values.shape[0])

    @property
    def width(self) -> int:
        return int(self.values.shape[1])

    def rows(self, at: Tensor) -> DenseRows:
        flat = at.reshape(-1)
        values = self.values.index_select(0, flat).view(*at.shape, -1)
        return DenseRows(values, self.row_norms.index_select(0, flat).view(at.shape))

    def scores(self, weights: Tensor) -> Tensor:
        """Everybody's scores, one row a run."""
        return weights @ self.values.T


@dataclass(frozen=True, eq=False, slots=True)
class OneHotRows:
    """Chosen rows of a one-hot design: positions[run, example, column] into the flattened weights of all runs."""

    positions: Tensor
    value: float
    width: int

    def scores(self, weights: Tensor) -> Tensor:
        picked = weights.reshape(-1).index_select(0, self.positions.reshape(-1))
        return picked.view(self.positions.shape).sum(2).mul_(self.value)

    def clip_slopes(self, slopes: Tensor, clip: float) -> Tensor:
        limit = clip / (self.value * math.sqrt(self.positions.shape[2]))
        return torch.clamp(slopes, -limit, limit)

    def combine(self, slopes: Tensor) -> Tensor:
        runs = slopes.shape[0]
        spread = (slopes * self.value).unsqueeze(2).expand(self.positions.shape).reshape(-1)
        total = torch.zeros(runs * self.width, dtype=slopes.dtype, device=slopes.device)
        return total.index_add_(0, self.positions.reshape(-1), spread).view(runs, self.width)


@dataclass(frozen=True, eq=False, slots=True)
class OneHot:
    """Examples as the positions of their ones (all rows have as many); every one stands for `value`."""

    positions: Tensor
    width: int
    value: float = 1.0

    @classmethod
    def of(cls, codes: Tensor, sizes: tuple[int, ...], *, unit: bool = False) -> OneHot:
        """From integer codes, one column a feature, with a constant column for the intercept at the end.

        With `unit`, the ones are scaled so that every example has norm 1.

        >>> OneHot.of(torch.tensor([[0, 2], [1, 0]]), (2, 3)).positions.tolist()
        [[0, 4, 5], [1, 2, 5]]
        """
        must(codes.ndim == 2 and codes.shape[1] == len(sizes), "codes", "must have a column a feature", codes.shape)
        starts = [sum(sizes[:j]) for j in range(len(sizes) + 1)]
        shifted = codes + torch.tensor(starts[:-1])
        constant = torch.full((codes.shape[0], 1), starts[-1])
        value = 1 / math.sqrt(len(sizes) + 1) if unit else 1.0
        return cls(torch.cat([shifted, constant], dim=1), starts[-1] + 1, value)

    @property
    def people(self) -> int:
        return int(self.positions.shape[0])

    def rows(self, at: Tensor) -> OneHotRows:
        chosen = self.positions.index_select(0, at.reshape(-1)).view(*at.shape, -1)
        if at.shape[0] > 1:
            chosen += torch.arange(at.shape[0], device=at.device).mul_(self.width)[:, None, None]
        return OneHotRows(chosen, self.value, self.width)

    def scores(self, weights: Tensor) -> Tensor:
        return torch.stack([w[self.positions].sum(1) for w in weights]) * self.value


Design: TypeAlias = Dense | OneHot
Rows: TypeAlias = DenseRows | OneHotRows
