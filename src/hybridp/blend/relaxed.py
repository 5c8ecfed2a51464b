"""The relaxed data set D': n' rows in which every feature is a point of the simplex in place of one value.

A relaxed row is a product distribution over records, and the answer of a query on D' is the mean over its rows of the
probability that the query's predicate holds. On one-hot rows that is the query itself (Avent 2023, Definition 4.2.6).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hybridp.blend.contraction import Contraction, Scratch, Support
from hybridp.errors import InvalidInput, must
from hybridp.public.queries import MOST_CELLS, Piece, Workload, sliced, table_between
from hybridp.public.workloads import Polynomial

__all__ = ["Records", "Relaxed", "answers", "polynomial_answer", "table"]
__all__ += ["one_hot", "one_thread", "round_records", "sparsemax_blocks"]
__all__ += ["sparsemax_lines", "start"]


@contextmanager
def one_thread(wanted: bool) -> Iterator[None]:
    """One thread where wanted, as for small tables: the others would wait for work, at full load, most of the time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1 if wanted else before)
    try:
        yield
    finally:
        torch.set_num_threads(before)


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

    def mass(self, columns: Sequence[int]) -> Tensor:
        """Every row's share on these columns together."""
        return self.values[:, list(columns)].sum(1)

    def to(self, device: str) -> Relaxed:
        """The same rows on another device."""
        return Relaxed(self.values.to(usable(device)), self.sizes)

    def numpy(self) -> NDArray[np.float32]:
        return self.values.detach().cpu().numpy().astype(np.float32, copy=False)


@dataclass(frozen=True, eq=False)
class Records:
    """Whole records in place of relaxed ones: `codes` has one row a record, one column a feature."""

    codes: NDArray[np.uint16]
    sizes: tuple[int, ...]

    def __post_init__(self) -> None:
        must(self.codes.ndim == 2, "codes", "must be a matrix of records", self.codes.shape)
        must(self.codes.shape[1] == len(self.sizes), "codes", f"must have {len(self.sizes)} columns", self.codes.shape)

    @property
    def rows(self) -> int:
        return int(self.codes.shape[0])

    def to(self, _device: str) -> Records:
        """Counting records needs no device."""
        return self

    def numpy(self) -> NDArray[np.uint16]:
        return self.codes

    def mass(self, columns: Sequence[int]) -> Tensor:
        """Which records have one of these values of a feature, given by the columns of relaxed rows; 1 or 0."""
        offsets = (0, *accumulate(self.sizes[:-1]))
        feature = int(np.searchsorted(offsets, columns[0], side="right")) - 1
        codes = [column - offsets[feature] for column in columns]
        return torch.from_numpy(np.isin(self.codes[:, feature], codes).astype(np.float64))

    def table(self, features: Sequence[int], spans: Sequence[tuple[int, int]]) -> Tensor:
        """The shares of the records in the cells between these codes."""
        return torch.from_numpy(table_between([self.codes[:, f] for f in features], spans) / self.rows)


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


def round_records(data: Relaxed | Records, rows: int, *, seed: int) -> NDArray[np.uint16]:
    """Records drawn from D': all relaxed rows serve equally often (up to one), each feature is drawn from its block.

    The draws are a function of D' alone and cost no privacy, so that a plain seeded generator makes them. The expected
    answer of the records to a query is its answer on D'. They scatter less around it than independent draws would: of
    a relaxed row that serves m times, the m draws of a feature fall into m equal parts of [0, 1], one in each, in an
    order of their own (McKay, Beckman and Conover 1979), so that every value comes within one of m times its share.

    >>> round_records(one_hot(np.array([[1, 2]]), (2, 3)), 2, seed=1).tolist()
    [[1, 2], [1, 2]]
    """
    must(rows >= 1, "rows", "must be at least 1", rows)
    rng = np.random.default_rng(seed)
    whole, rest = divmod(rows, data.rows)
    serves = np.full(data.rows, whole)
    serves[rng.choice(data.rows, rest, replace=False)] += 1
    owner = np.repeat(np.arange(data.rows), serves)
    mixed = rng.permutation(rows)
    if isinstance(data, Records):
        return np.asarray(data.codes[owner[mixed]], dtype=np.uint16)
    out = np.empty((rows, len(data.sizes)), dtype=np.uint16)
    part = np.arange(rows) - (np.cumsum(serves) - serves)[owner]
    for feature, size in enumerate(data.sizes):
        cumulative = torch.cumsum(data.block(feature).detach().cpu().double(), 1).numpy()
        cumulative /= cumulative[:, -1:]
        # Row i's steps lie in (i, i + 1], so that one search in all rows' steps finds each draw in its own row.
        steps = (cumulative + np.arange(data.rows)[:, None]).ravel()
        within = (part + rng.random(rows)) / serves[owner]
        within = within[np.argsort(owner + rng.random(rows))]  # the parts of a row in random order
        result = np.searchsorted(steps, owner + within, side="right") - owner * size
        out[:, feature] = np.clip(result, 0, size - 1)
    return out[mixed]


# --- answers to whole workloads: tables by contraction, thresholds by sums over the tables' axes ---------------------


def table(data: Relaxed | Records, features: Sequence[int]) -> Tensor:
    """The k-way table of D' over these features, in their order: the mean over rows of the outer products.

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
    """Blocks of D' with their non-zeros, found once for every whole block."""

    def __init__(self, data: Relaxed | Records, most: int = MOST_CELLS) -> None:
        self.data = data if isinstance(data, Records) else Relaxed(data.values.detach(), data.sizes)
        self.most = most
        self.scratch = Scratch()
        self._kept: dict[int, Support] = {}

    def table(self, features: Sequence[int], spans: Sequence[tuple[int, int]]) -> Tensor:
        if isinstance(self.data, Records):
            return self.data.table(features, spans)
        blocks = [self.data.block(f, *span) for f, span in zip(features, spans, strict=True)]
        whole = [f if span == (0, self.data.sizes[f]) else None for f, span in zip(features, spans, strict=True)]
        return Contraction(blocks, self.scratch, self.most, whole, self._kept).table()


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
