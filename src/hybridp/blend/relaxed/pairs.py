"""The gradient of many one- and two-way tables at once, on the transposed D': three products a pair, and no copies.

With X_f the lines of D' that are feature f's values (values x rows), the pair's table is X_f X_g'/n', and for a loss
with gradient G with respect to it, G X_g/n' and G' X_f/n' are added to the lines of f and g.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["AtOnce", "Small", "gathered"]

_MOST_CELLS = 1 << 25  # Of the product of D' with itself, in which a GPU finds all pairs at once.


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


@dataclass(frozen=True, eq=False)
class AtOnce:
    """Many goals as blocks of one table over all lines, `wanted`, and `floor` and weights of its cells.

    A vector holds one-way tables, a matrix two-way ones: blocks of the product of D' with itself. That is more
    arithmetic in a handful of calls, which is what a GPU is good at.
    """

    wanted: Tensor
    floor: Tensor
    weight: Tensor

    @classmethod
    def of(cls, goals: Sequence[Small], lines: int) -> AtOnce:
        """Goals of different features, all with one feature or all with two."""
        wanted, floor, weight = (goals[0].wanted.new_zeros([lines] * len(goals[0].lines)) for _ in range(3))
        for goal in goals:
            wanted[goal.lines], floor[goal.lines], weight[goal.lines] = goal.wanted, goal.floor, goal.weight
        return cls(wanted, floor, weight)

    def add_slope(self, columns: Tensor, slope: Tensor) -> None:
        """As `Small.add_slope`, of all goals."""
        rows = columns.shape[1]
        if self.wanted.ndim == 1:
            error = torch.maximum(columns.mean(1).sub_(self.wanted), self.floor).mul_(self.weight)
            slope += error.mul_(2 / rows)[:, None]
            return
        error = torch.addmm(self.wanted, columns, columns.T, beta=-1, alpha=1 / rows)
        torch.maximum(error, self.floor, out=error).mul_(self.weight)
        slope.addmm_(error + error.T, columns, alpha=2 / rows)


def gathered(goals: Sequence[Small], lines: int, *, at_once: bool | None = None) -> list[Small | AtOnce]:
    """The same goals, `at_once` unless given on a GPU alone: where a call costs more than what it does."""
    known: dict[tuple[tuple[int, int], ...], Small] = {}
    alone: list[Small | AtOnce] = []
    wide = lines * lines > _MOST_CELLS
    for goal in goals:
        place = tuple((one.start, one.stop) for one in goal.lines)
        if not (goal.wanted.is_cuda if at_once is None else at_once) or place in known or (wide and len(place) == 2):
            alone.append(goal)
        else:
            known[place] = goal
    alike = [[goal for goal in known.values() if len(goal.lines) == features] for features in (1, 2)]
    return [*alone, *(AtOnce.of(some, lines) for some in alike if some)]
