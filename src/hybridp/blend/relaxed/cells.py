"""Single cells of marginals on a relaxed data set, many at once: the gradient of their squared errors, by hand."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from hybridp.blend.relaxed.contract import MOST_ENTRIES

__all__ = ["Cells", "add_rows"]


@dataclass(frozen=True, eq=False)
class Cells:
    """Cells of tables of k features: the k one-hot columns of each, its share as measured, and its weight."""

    columns: Tensor
    wanted: Tensor
    weights: Tensor

    def add_slope(self, lines: Tensor, slope: Tensor) -> None:
        """Add the gradient of sum w (mean over rows of p_1..p_k - share)^2; D' and gradient are transposed."""
        (many, k), rows = self.columns.shape, lines.shape[1]
        for lot in torch.arange(many).tensor_split(-(-many * k * rows // MOST_ENTRIES)):
            where = lot.to(lines.device)
            targets = self.columns[where]
            p = lines[targets]  # cells x k x rows
            error = p.prod(1).mean(-1) - self.wanted[where]
            each = (2 / rows) * self.weights[where] * error
            for i in range(k):
                others = torch.cat([p[:, :i], p[:, i + 1 :]], dim=1)
                add_rows(slope, targets[:, i], each[:, None] * others.prod(1), by_product=lines.is_cuda)


def add_rows(total: Tensor, rows: Tensor, part: Tensor, *, by_product: bool) -> None:
    """total[rows] += part, where a row may come twice.

    A GPU adds such rows in no fixed order; a product with a matrix of zeros and ones gives the same bits every time.
    """
    if not by_product:
        total.index_add_(0, rows, part)
        return
    ones = torch.zeros((len(rows), total.shape[0]), dtype=part.dtype, device=part.device)
    total.addmm_(ones.scatter_(1, rows[:, None], 1.0).T, part)
