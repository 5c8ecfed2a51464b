"""The gradient of many one- and two-way tables at once, on the transposed D': three products a pair, and no copies.

With X_f the lines of D' that are feature f's values (values x rows), the pair's table is X_f X_g'/n', and for a loss
with gradient G with respect to it, G X_g/n' and G' X_f/n' are added to the lines of f and g.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["Small"]


@dataclass(frozen=True, eq=False)
class Small:
    """One- or two-way tables that D' is moved to: sum of `weight` times squared errors. The lines of each feature.

    In cells where `floor` is 0, shares below `wanted` are no error; in the others it is minus infinity.
    """

    lines: tuple[slice, ...]
    wanted: Tensor
    floor: Tensor
    weight: float

    @classmethod
    def of(cls, lines: Sequence[slice], wanted: Tensor, target: Tensor, weight: float) -> Small:
        """A goal whose cells are targets where `target`, and ceilings elsewhere."""
        floor = torch.zeros_like(wanted).masked_fill_(target, -torch.inf)
        return cls(tuple(lines), wanted, floor, weight)

    def add_slope(self, columns: Tensor, slope: Tensor) -> None:
        """Add the gradient of the loss with respect to D' to `slope`; D' and `slope` are transposed."""
        rows = columns.shape[1]
        first = columns[self.lines[0]]
        if len(self.lines) == 1:
            error = torch.maximum(first.mean(1).sub_(self.wanted), self.floor)
            slope[self.lines[0]] += error.mul_(2 * self.weight / rows)[:, None]
            return
        last = columns[self.lines[1]]
        error = torch.addmm(self.wanted, first, last.T, beta=-1, alpha=1 / rows)
        torch.maximum(error, self.floor, out=error)
        slope[self.lines[0]].addmm_(error, last, alpha=2 * self.weight / rows)
        slope[self.lines[1]].addmm_(error.T, first, alpha=2 * self.weight / rows)
