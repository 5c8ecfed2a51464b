"""Tables of a relaxed data set and their gradients, as matrix products or along the non-zero entries.

The table over the features f_1..f_k is T = 1/n' sum_i x_i[f_1] (x) ... (x) x_i[f_k]. With L and R the row-wise
(Khatri-Rao) products of a first and a last part of the blocks, T = L' R / n' is one matrix product. For a loss with
gradient G with respect to T, dL = R G'/n' and dR = L G/n' are two more, and they unfold into the blocks.

Sparsemax leaves few non-zero values in a row. Then the table is a scatter of the products of non-zeros, and the
gradient of one block a weighted sum of fibres of G, picked by the non-zeros of the others: work that does not grow with
rows x cells.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import embedding_bag

__all__ = ["MOST_ENTRIES", "Contraction", "Dense", "Scratch", "Support", "sparse_gradients", "sparse_table", "support"]

_LOTS, _SMALL = 6, 1 << 14
MOST_ENTRIES = 1 << 22  # Numbers of one temporary array; rows are taken in lots that keep to it.
# Nanoseconds on one core: a multiply-add of a matrix product, a scattered entry, a cell that is touched at all, and the
# calls of the sparse form. They only choose between two ways to the same numbers.
_MULTIPLY, _SCATTER, _TOUCH, _CALLS = 0.025, 15.0, 0.5, 1e6


@dataclass(frozen=True, eq=False)
class Support:
    """The non-zero entries of one block: how many each row has, their columns and values, filled up with zeros."""

    count: Tensor
    column: Tensor
    value: Tensor
    size: int


def support(block: Tensor) -> Support:
    """The non-zero entries of a block."""
    on = block != 0
    count = on.sum(1)
    row, column = on.nonzero().unbind(1)
    within = torch.arange(len(row)) - (torch.cumsum(count, 0) - count)[row]
    shape = (len(count), max(1, int(count.max())))
    columns = torch.zeros(shape, dtype=torch.int64)
    values = torch.zeros(shape, dtype=block.dtype)
    columns[row, within] = column
    values[row, within] = block[row, column]
    return Support(count, columns, values, int(block.shape[1]))


class Scratch:
    """Arrays that are used again: fresh ones cost more in page faults than the arithmetic that fills them."""

    def __init__(self) -> None:
        self._kept: dict[str, Tensor] = {}

    def take(self, slot: str, like: Tensor, *shape: int) -> Tensor:
        """An array of this shape with anything in it, until the slot is taken again."""
        need = math.prod(shape)
        kept = self._kept.get(slot)
        if kept is None or kept.numel() < need or kept.dtype != like.dtype or kept.device != like.device:
            kept = torch.empty(need, dtype=like.dtype, device=like.device)
            self._kept[slot] = kept
        return kept[:need].view(shape)


class Dense:
    """The table over some blocks and its gradients by matrix products, rows taken in lots of at most `most` numbers."""

    def __init__(self, blocks: Sequence[Tensor], scratch: Scratch, most: int = MOST_ENTRIES) -> None:
        self.blocks = blocks
        self.scratch = scratch
        self.rows = int(blocks[0].shape[0])
        self.sizes = [int(block.shape[1]) for block in blocks]
        places = range(1, len(self.sizes))
        self.at = min(places, key=lambda at: math.prod(self.sizes[:at]) + math.prod(self.sizes[at:]), default=0)
        self.left, self.right = math.prod(self.sizes[: self.at]), math.prod(self.sizes[self.at :])
        step = max(1, most // (self.left + self.right))
        self.lots = [slice(low, low + step) for low in range(0, self.rows, step)]
        self._kept: tuple[Tensor, Tensor] | None = None

    def table(self) -> Tensor:
        """T; the array is fresh."""
        if len(self.blocks) == 1:
            return self.blocks[0].mean(0)
        like = self.blocks[0]
        out = torch.empty((self.left, self.right), dtype=like.dtype, device=like.device)
        for lot in self.lots:
            first, last = self._sides(lot)
            torch.addmm(out, first.T, last, beta=0 if lot.start == 0 else 1, alpha=1 / self.rows, out=out)
        return out.view(self.sizes)

    def gradients(self, slope: Tensor) -> list[Tensor]:
        """The gradient with respect to every block of a loss whose gradient with respect to T is `slope`."""
        if len(self.blocks) == 1:
            return [(slope / self.rows).expand(self.rows, -1)]
        flat = (slope / self.rows).reshape(self.left, self.right)
        parts: list[list[Tensor]] = []
        for lot in self.lots:
            some = [block[lot] for block in self.blocks]
            first, last = self._sides(lot)
            rows = first.shape[0]
            to_first = torch.mm(last, flat.T, out=self.scratch.take("to first", flat, rows, self.left))
            parts.append(_unfold(some[: self.at], to_first))
            to_last = torch.mm(first, flat, out=self.scratch.take("to last", flat, rows, self.right))
            parts[-1] += _unfold(some[self.at :], to_last)
            if len(self.lots) > 1:
                parts[-1] = [part.clone() for part in parts[-1]]
        return parts[0] if len(parts) == 1 else [torch.cat(list(part)) for part in zip(*parts, strict=True)]

    def _sides(self, lot: slice) -> tuple[Tensor, Tensor]:
        if self._kept is not None and len(self.lots) == 1:
            return self._kept
        some = [block[lot] for block in self.blocks]
        self._kept = (
            khatri_rao(some[: self.at], self.scratch, "first"),
            khatri_rao(some[self.at :], self.scratch, "last"),
        )
        return self._kept


def khatri_rao(blocks: Sequence[Tensor], scratch: Scratch, slot: str) -> Tensor:
    """Row-wise products of all combinations of columns, in C order."""
    out = blocks[0]
    for place, block in enumerate(blocks[1:]):
        (rows, wide), size = out.shape, int(block.shape[1])
        room = scratch.take(f"{slot} {place}", out, int(rows), int(wide), size)
        out = torch.mul(out[:, :, None], block[:, None, :], out=room).view(int(rows), -1)
    return out


def _unfold(blocks: Sequence[Tensor], slope: Tensor) -> list[Tensor]:
    """From the gradient of a Khatri-Rao product to those of its blocks, peeling off the last block each time."""
    if len(blocks) == 1:
        return [slope]
    rows, size = blocks[-1].shape
    spread = slope.view(rows, -1, size)
    rest = khatri_rao(blocks[:-1], Scratch(), "rest")
    last = torch.bmm(rest[:, None, :], spread)[:, 0]
    return [*_unfold(blocks[:-1], torch.bmm(spread, blocks[-1][:, :, None])[:, :, 0]), last]


def _entries(supports: Sequence[Support]) -> float:
    return float(torch.stack([s.count for s in supports]).prod(0).sum())


class Contraction(Dense):
    """The same by the cheaper way: on the CPU, where a table is large, perhaps along the non-zeros of the blocks.

    A block's non-zeros are looked up once and `kept` under its key, unless that is None. Not on a GPU: scattering to
    its memory adds in no fixed order, and matrix products are what it is good at.
    """

    def __init__(
        self, blocks: Sequence[Tensor], scratch: Scratch, most: int, keys: Sequence[int | None],
        kept: dict[int, Support],
    ) -> None:  # fmt: skip
        super().__init__(blocks, scratch, most)
        self.most, self.supports = most, list[Support]()
        self.dense = self.rows * math.prod(self.sizes) * _MULTIPLY
        if blocks[0].is_cuda or self.dense <= _CALLS:
            return
        for key, block in zip(keys, blocks, strict=True):
            result = support(block) if key is None or key not in kept else kept[key]
            self.supports.append(result)
            if key is not None:
                kept[key] = result

    def table(self) -> Tensor:
        """T; the array is fresh."""
        cells = math.prod(self.sizes)
        pays = self.supports and _entries(self.supports) * _SCATTER + cells * _TOUCH + _CALLS < self.dense
        return sparse_table(self.supports, self.most) if pays else super().table()

    def gradients(self, slope: Tensor) -> list[Tensor]:
        """As `Dense.gradients`."""
        supports = self.supports if len(self.blocks) > 1 else []
        sparse = _CALLS + 8 * _TOUCH * math.prod(self.sizes) * len(supports)
        for axis, kept in enumerate(supports):
            others = [s for i, s in enumerate(supports) if i != axis]
            sparse += _entries(others) * (_SCATTER + _MULTIPLY * 10 * kept.size)
        pays = supports and sparse < 3 * self.dense
        return sparse_gradients(supports, slope, self.most) if pays else super().gradients(slope)


def _lot_products(supports: Sequence[Support], rows: Tensor) -> tuple[Tensor, Tensor]:
    """The cells and the values of all combinations of non-zeros in each of these rows."""
    cell, value = _trimmed(supports[0], rows)
    for other in supports[1:]:
        column, number = _trimmed(other, rows)
        cell = (cell[:, :, None] * other.size + column[:, None, :]).flatten(1)
        value = (value[:, :, None] * number[:, None, :]).flatten(1)
    return cell, value


def _trimmed(kept: Support, rows: Tensor) -> tuple[Tensor, Tensor]:
    most = max(1, int(kept.count[rows].max()))
    return kept.column[rows, :most], kept.value[rows, :most]


def _alike(supports: Sequence[Support], most: int) -> list[Tensor]:
    """Rows in lots: those with similarly many products together, so that little is filled up, and few at a time."""
    products = torch.stack([s.count for s in supports]).prod(0)
    order = torch.argsort(products, stable=True)
    lots: list[Tensor] = []
    widest = math.prod(s.value.shape[1] for s in supports)
    for lot in order.chunk(_LOTS if int(products.sum()) > 4 * _SMALL else 1):
        lots += torch.split(lot, max(1, most // widest))
    return lots


def sparse_table(supports: Sequence[Support], most: int = MOST_ENTRIES) -> Tensor:
    """T by adding up the products of non-zeros, on the CPU (in a fixed order: the same bits every time)."""
    sizes = [s.size for s in supports]
    out = torch.zeros(math.prod(sizes), dtype=supports[0].value.dtype)
    for rows in _alike(supports, most):
        cell, value = _lot_products(supports, rows)
        out.index_add_(0, cell.flatten(), value.flatten())
    return out.div_(len(supports[0].count)).reshape(sizes)


def sparse_gradients(supports: Sequence[Support], slope: Tensor, most: int = MOST_ENTRIES) -> list[Tensor]:
    """As `Dense.gradients`, by sums of the fibres of `slope` at the non-zeros of the other blocks."""
    n = len(supports[0].count)
    scaled = slope / n
    if len(supports) == 1:
        return [scaled.expand(n, -1)]
    out = []
    for axis, kept in enumerate(supports):
        others = [s for i, s in enumerate(supports) if i != axis]
        fibres = scaled.movedim(axis, -1).reshape(-1, kept.size)
        gradient = torch.empty((n, kept.size), dtype=slope.dtype)
        for rows in _alike(others, most):
            cell, value = _lot_products(others, rows)
            gradient[rows] = embedding_bag(cell, fibres, mode="sum", per_sample_weights=value)
        out.append(gradient)
    return out
