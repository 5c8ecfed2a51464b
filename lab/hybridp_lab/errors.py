"""True errors of answers about synthetic tables, against everybody's rows: for public stand-ins and simulations.

All of it is NOT PRIVATE and says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.curator.models import Codes
from hybridp.errors import must
from hybridp.public.queries import Piece, Workload, counts, pieces
from hybridp.release.synth import SyntheticModel

__all__ = ["Errors", "all_zero", "evaluate", "present_error"]

Shares = Iterable[tuple[Piece, NDArray[Any]]]


@dataclass(frozen=True, slots=True)
class Errors:
    """Norms of the errors over all consistent queries (l_inf is Definition 4.3.1). NOT PRIVATE: the truth is in it.

    `total_variation` is half the L1 distance of a marginal, in the mean over the marginals; None where there are none.
    """

    queries: int
    l_inf: float
    l1: float
    l2: float
    total_variation: float | None

    def to_dict(self) -> dict[str, Any]:
        means = {"mean_absolute": self.l1 / self.queries, "root_mean_square": self.l2 / math.sqrt(self.queries)}
        return {"private": False, **asdict(self), **means}


def _sum_up(found: Sequence[tuple[Piece, tuple[int, float, float, float]]]) -> Errors:
    many, largest, sums, squares = np.array([part for _, part in found]).T
    whole = [(piece.index, part[2]) for piece, part in found if piece.threshold.r == piece.threshold.k]
    marginals = len({index for index, _ in whole})
    distance = math.fsum(distance for _, distance in whole) / 2 / marginals if marginals else None
    return Errors(int(many.sum()), float(largest.max()), math.fsum(sums), math.sqrt(math.fsum(squares)), distance)


def _pieces(
    codes: Codes, workload: Workload, shares: Shares
) -> Iterator[tuple[Piece, tuple[int, float, float, float]]]:
    for (piece, exact), (other, result) in zip(counts(codes.values, workload), shares, strict=True):
        must(piece.start == other.start, "answers", "must come in the workload's own pieces", "others")
        gaps = np.abs(np.asarray(result, dtype=np.float64) - exact / codes.people)
        yield piece, (len(gaps), float(gaps.max()), float(gaps.sum()), float((gaps * gaps).sum()))


def present_error(codes: Codes, workload: Workload, shares: Shares) -> Errors:
    """The errors of some answers to a workload. NOT PRIVATE."""
    return _sum_up(list(_pieces(codes, workload, shares)))


def all_zero(codes: Codes, workload: Workload) -> Errors:
    """The errors of answering 0 to everything. NOT PRIVATE."""
    return present_error(codes, workload, ((piece, np.zeros(piece.cells)) for piece in pieces(workload)))


def evaluate(model: SyntheticModel, codes: Codes, workload: Workload | None = None) -> dict[str, Any]:
    """The true errors of a model, in all and by class of query. NOT PRIVATE: never publish it.

    `synthetic` are the records alone, `settled` the model's answers (moved to what was measured, where that contradicts
    them), and `all_zero` answers 0 to everything.
    """
    asked = model.workload if workload is None else workload
    classes: dict[str, list[tuple[Piece, tuple[int, float, float, float]]]] = {}
    for piece, part in _pieces(codes, asked, model.answers(asked)):
        classes.setdefault(f"{piece.threshold.r}-of-{piece.threshold.k}", []).append((piece, part))
    plain = ((piece, found / model.rows) for piece, found in counts(model.records.T, asked))
    return {
        "private": False,
        "settled": _sum_up([part for parts in classes.values() for part in parts]).to_dict(),
        "synthetic": present_error(codes, asked, plain).to_dict(),
        "classes": {name: _sum_up(parts).to_dict() for name, parts in classes.items()},
        "all_zero": all_zero(codes, asked).to_dict(),
    }
