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
from hybridp.public.queries import Threshold, Workload, counts
from hybridp.release.synth import SyntheticModel

__all__ = ["Errors", "all_zero", "evaluate", "present_error"]

Shares = Iterable[tuple[Threshold, NDArray[Any]]]
Gaps = tuple[Threshold, tuple[int, float, float, float]]


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


def _sum_up(gaps: Sequence[Gaps]) -> Errors:
    many, largest, sums, squares = np.array([part for _, part in gaps]).T
    whole = [part[2] for threshold, part in gaps if threshold.r == threshold.k]
    distance = math.fsum(whole) / 2 / len(whole) if whole else None
    return Errors(int(many.sum()), float(largest.max()), math.fsum(sums), math.sqrt(math.fsum(squares)), distance)


def _gaps(codes: Codes, workload: Workload, shares: Shares) -> Iterator[Gaps]:
    """Of each threshold how many queries it has, and the largest gap, their sum and that of their squares."""
    for (threshold, exact), (other, result) in zip(counts(codes.values, workload), shares, strict=True):
        must(threshold == other, "answers", "must come in the workload's own order", "others")
        gaps = np.abs(np.asarray(result, dtype=np.float64) - exact / codes.people)
        yield threshold, (len(gaps), float(gaps.max()), float(gaps.sum()), float((gaps * gaps).sum()))


def present_error(codes: Codes, workload: Workload, shares: Shares) -> Errors:
    """The errors of some answers to a workload. NOT PRIVATE."""
    return _sum_up(list(_gaps(codes, workload, shares)))


def all_zero(codes: Codes, workload: Workload) -> Errors:
    """The errors of answering 0 to everything. NOT PRIVATE."""
    zeros = ((t, np.zeros(workload.schema.cells(t.features))) for t in workload.thresholds)
    return present_error(codes, workload, zeros)


def evaluate(model: SyntheticModel, codes: Codes, workload: Workload | None = None) -> dict[str, Any]:
    """The true errors of a model, in all and by class of query. NOT PRIVATE: never publish it.

    `synthetic` are the records alone, `settled` the model's answers (moved to what was measured, where that contradicts
    them), and `all_zero` answers 0 to everything.
    """
    asked = model.workload if workload is None else workload
    classes: dict[str, list[Gaps]] = {}
    for threshold, part in _gaps(codes, asked, model.answers(asked)):
        classes.setdefault(f"{threshold.r}-of-{threshold.k}", []).append((threshold, part))
    plain = ((threshold, matching / model.rows) for threshold, matching in counts(model.records.T, asked))
    return {
        "private": False,
        "settled": _sum_up([part for parts in classes.values() for part in parts]).to_dict(),
        "synthetic": present_error(codes, asked, plain).to_dict(),
        "classes": {name: _sum_up(parts).to_dict() for name, parts in classes.items()},
        "all_zero": all_zero(codes, asked).to_dict(),
    }
