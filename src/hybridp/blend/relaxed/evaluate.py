"""Answers of a relaxed data set to whole workloads: tables by contraction, thresholds by sums over the tables' axes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from hybridp.blend.relaxed.contract import (
    Dense,
    Scratch,
    Support,
    may_pay,
    sparse_table,
    sparse_table_pays,
    support,
)
from hybridp.blend.relaxed.data import Records, Relaxed
from hybridp.errors import must
from hybridp.public.formulas import Polynomial
from hybridp.public.queries import MOST_CELLS, Piece, Workload, sliced

__all__ = ["answers", "polynomial_answer", "table"]


def table(data: Relaxed | Records, features: Sequence[int]) -> Tensor:
    """The k-way table of D' over these features, in their order: the mean over rows of the outer products.

    >>> from hybridp.blend.relaxed.data import one_hot
    >>> import numpy as np
    >>> table(one_hot(np.array([[0, 2], [0, 1]]), (2, 3)), (0, 1)).tolist()
    [[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]
    """
    return _Slices(data).table(features, [(0, data.sizes[f]) for f in features])


def answers(
    data: Relaxed | Records, workload: Workload, *, most_cells: int = MOST_CELLS
) -> Iterator[tuple[Piece, Tensor]]:
    """The answers of D' to all consistent queries, piece by piece in the order of their numbers (`sliced`)."""
    must(data.sizes == workload.schema.sizes, "workload", f"must be over features of sizes {data.sizes}", "others")
    return sliced(workload, _Slices(data, most_cells).table, most_cells)


class _Slices:
    """Blocks of D' with their non-zeros, found once for every whole block. On the CPU only: scattering to a GPU's
    memory adds in no fixed order, and matrix products are what it is good at."""

    def __init__(self, data: Relaxed | Records, most: int = MOST_CELLS) -> None:
        self.data = data if isinstance(data, Records) else Relaxed(data.values.detach(), data.sizes)
        self.most = most
        self.scratch = Scratch()
        self._kept: dict[int, Support] = {}

    def table(self, features: Sequence[int], spans: Sequence[tuple[int, int]]) -> Tensor:
        if isinstance(self.data, Records):
            return self.data.table(features, spans)
        blocks = [self.data.block(f, *span) for f, span in zip(features, spans, strict=True)]
        cells = math.prod(high - low for low, high in spans)
        if not self.data.values.is_cuda and may_pay(self.data.rows, cells):
            found = [self._support(f, span, b) for f, span, b in zip(features, spans, blocks, strict=True)]
            if sparse_table_pays(found):
                return sparse_table(found, self.most)
        return Dense(blocks, self.scratch, self.most).table()

    def _support(self, feature: int, span: tuple[int, int], block: Tensor) -> Support:
        if span != (0, self.data.sizes[feature]):
            return support(block)
        if feature not in self._kept:
            self._kept[feature] = support(block)
        return self._kept[feature]


def polynomial_answer(data: Relaxed | Records, polynomial: Polynomial) -> Tensor:
    """The mean over rows of a formula's surrogate: a sum of products of the masses of groups of values.

    Differentiable with respect to `data.values`.
    """
    must(polynomial.width == sum(data.sizes), "formula", "must be over the features of this data set", "others")
    # One more group of mass one fills up the terms with fewer factors.
    mass = [data.mass(columns) for columns in polynomial.groups]
    x = torch.ones_like(mass[0])
    groups = torch.stack([*mass, x])
    most = max((len(factors) for _, factors in polynomial.terms), default=0)
    filled = [[*factors, *[len(mass)] * (most - len(factors))] for _, factors in polynomial.terms]
    index = torch.tensor(filled, dtype=torch.int64, device=x.device).reshape(len(filled), most)
    coefficients = torch.tensor([c for c, _ in polynomial.terms], dtype=x.dtype, device=x.device)
    out = torch.zeros_like(x)
    step = max(1, MOST_CELLS // (data.rows * max(1, most)))
    for low in range(0, len(filled), step):
        products = groups[index[low : low + step]].prod(1)
        out = out + coefficients[low : low + step] @ products
    return out.mean()
