"""The relaxed data set D': n' rows in which every feature is a point of the simplex in place of one value.

A relaxed row is a product distribution over records, and the answer of a query on D' is the mean over its rows of the
probability that the query's predicate holds. On one-hot rows that is the query itself (Avent 2023, Definition 4.2.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hybridp.errors import InvalidInput, must
from hybridp.public.queries import MOST_CELLS, Threshold, Workload, at_least
from hybridp_lab.papers.rap2023.contraction import Contraction, Scratch, Support

__all__ = ["Relaxed", "answers", "one_hot", "sparsemax_blocks", "sparsemax_lines", "start", "table"]


@dataclass(frozen=True, eq=False)
class Relaxed:
    """n' relaxed rows: `values` has one column for every value of every feature, in the order of the schema."""

    values: Tensor
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        must(self.values.ndim == 2, "values", "must be a matrix of rows", tuple(self.values.shape))
        width = sum(self.sizes)
        must(self.values.shape[1] == width, "values", f"must have {width} columns", self.values.shape[1])

    @property
    def rows(self) -> int:
        return int(self.values.shape[0])

    @property
    def offsets(self) -> tuple[int, ...]:
        return (0, *accumulate(self.sizes[:-1]))

    def block(self, feature: int, low: int = 0, high: int | None = None) -> Tensor:
        """The columns of one feature, or those of its codes from `low` to `high - 1`; a view."""
        begin = sum(self.sizes[:feature])
        return self.values[:, begin + low : begin + (self.sizes[feature] if high is None else high)]

    def to(self, device: str) -> Relaxed:
        """The same rows on another device."""
        return Relaxed(self.values.to(usable(device)), self.sizes)

    def numpy(self) -> NDArray[np.float32]:
        return self.values.detach().cpu().numpy().astype(np.float32, copy=False)


def usable(device: str) -> torch.device:
    """The device by its name; one that is not there is refused."""
    try:
        torch.empty(1, device=device)
    except (RuntimeError, AssertionError):
        problem = InvalidInput(f"`device` must be one that torch finds here. Got {device!r}.")
    else:
        return torch.device(device)
    raise problem


def start(rows: int, sizes: Sequence[int], *, seed: int, device: str = "cpu") -> Relaxed:
    """The published start: independent uniform numbers, then Sparsemax on every feature. The seed decides all of it.

    >>> data = start(3, (2, 5), seed=1)
    >>> bool(torch.allclose(data.block(1).sum(1), torch.ones(3)))
    True
    """
    must(rows >= 1, "rows", "must be at least 1", rows)
    # Always drawn on the CPU: a seed means the same rows on every device.
    numbers = torch.rand((rows, sum(sizes)), generator=torch.Generator().manual_seed(seed))
    return Relaxed(sparsemax_blocks(numbers.to(usable(device)), tuple(sizes)), tuple(sizes))


def one_hot(codes: NDArray[np.integer], sizes: Sequence[int]) -> Relaxed:
    """Records given by their codes, one record a row, as a D' of one-hot rows."""
    shape = np.shape(codes)
    must(len(shape) == 2 and shape[1] == len(sizes), "codes", f"must have {len(sizes)} columns", shape)
    moved = np.asarray(codes, dtype=np.int64) + np.concatenate([[0], np.cumsum(sizes)[:-1]])
    values = torch.zeros((shape[0], sum(sizes)))
    return Relaxed(values.scatter_(1, torch.from_numpy(moved), 1.0), tuple(sizes))


def sparsemax_blocks(numbers: Tensor, sizes: Sequence[int]) -> Tensor:
    """The closest point of the simplex to every feature's block of each row (Martins and Astudillo 2016).

    >>> sparsemax_blocks(torch.tensor([[0.75, 0.5, -1.0]]), (3,)).tolist()
    [[0.625, 0.375, 0.0]]
    """
    lines = numbers.T.clone(memory_format=torch.contiguous_format)
    sparsemax_lines(lines, sizes)
    return lines.T.contiguous()


def sparsemax_lines(lines: Tensor, sizes: Sequence[int], *, at_once: bool | None = None) -> None:
    """Sparsemax of every feature, in place, of a transposed D'.

    `at_once` unless given: on a GPU, where calls are what costs; elsewhere one feature after the other, in the cache.
    """
    if not (lines.is_cuda if at_once is None else at_once):
        for block in torch.split(lines, list(sizes)):
            _newton(block, lambda numbers: numbers.sum(0, keepdim=True), lambda tau: tau)
        return
    counts = torch.tensor(sizes, device=lines.device)
    home = torch.repeat_interleave(torch.arange(len(sizes), device=lines.device), counts)
    member = torch.zeros((len(sizes), len(lines)), dtype=lines.dtype, device=lines.device)
    member.scatter_(0, home[None, :], 1.0)
    _newton(lines, lambda numbers: member @ numbers, lambda tau: tau.index_select(0, home))


def _newton(lines: Tensor, total: Callable[[Tensor], Tensor], spread: Callable[[Tensor], Tensor]) -> None:
    """max(x - tau, 0) with the tau that makes it sum to one, by Newton's method.

    The sum is convex, piecewise linear and falling in tau, so that the method comes to the root from the left after its
    first step and stops after finitely many: three passes, against a sort, where D' was on the simplex one small step
    ago. It starts from 0; from the tau that keeps every value, where 0 would keep none. `total` adds up the lines of
    each feature, and `spread` gives every line its feature's tau.
    """
    kept = lines.clamp(min=0)
    sign = torch.sign(kept)
    count = total(sign)
    step = (total(kept) - 1) / count
    if not bool(count.all()):
        every = total(sign.fill_(1.0))
        step = torch.where(count > 0, step, (total(lines) - 1) / every)
        count = torch.where(count > 0, count, every)
    tau = step
    while True:
        torch.sub(lines, spread(tau), out=kept).clamp_(min=0)
        support = total(torch.sign(kept, out=sign))
        if torch.equal(count, support):
            lines.copy_(kept)
            return
        tau = tau + ((total(kept) - 1) / support).clamp_(min=0)
        count = support


# --- answers to whole workloads: tables by contraction, thresholds by sums over the tables' axes ---------------------


def table(data: Relaxed, features: Sequence[int]) -> Tensor:
    """The k-way table of D' over these features, in their order: the mean over rows of the outer products.

    >>> table(one_hot(np.array([[0, 2], [0, 1]]), (2, 3)), (0, 1)).tolist()
    [[0.0, 0.5, 0.5], [0.0, 0.0, 0.0]]
    """
    return _Blocks(data).table(features)


def answers(data: Relaxed, workload: Workload, *, most_cells: int = MOST_CELLS) -> Iterator[tuple[Threshold, Tensor]]:
    """The answers of D' to all consistent queries, in the order of their numbers."""
    must(data.sizes == workload.schema.sizes, "workload", f"must be over features of sizes {data.sizes}", "others")
    blocks = _Blocks(data, most_cells)
    for threshold in workload.thresholds:
        yield threshold, at_least(blocks.table(threshold.features), threshold.r).reshape(-1)


class _Blocks:
    """Blocks of D' with their non-zeros, found once for every one."""

    def __init__(self, data: Relaxed, most: int = MOST_CELLS) -> None:
        self.data = Relaxed(data.values.detach(), data.sizes)
        self.most = most
        self.scratch = Scratch()
        self._kept: dict[int, Support] = {}

    def table(self, features: Sequence[int]) -> Tensor:
        blocks = [self.data.block(f, 0, self.data.sizes[f]) for f in features]
        return Contraction(blocks, self.scratch, self.most, list(features), self._kept).table()
