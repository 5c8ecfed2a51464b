"""The analyst's bench for synthetic data: a plan and true errors.

What reads the true rows here is NOT PRIVATE and says so; it is for public stand-ins and simulations.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.curator import marginals
from hybridp.curator.marginals import Codes
from hybridp.errors import must
from hybridp.public.budgets import ApproxDP
from hybridp.public.queries import MOST_CELLS, Piece, Workload
from hybridp.public.synth import significance, table_rounds, total_rho
from hybridp.release.plan import Plan, planned, predicted
from hybridp.release.synth import SyntheticModel

__all__ = [
    "Errors",
    "all_zero",
    "evaluate",
    "plan_synth",
    "planned_table",
    "present_error",
]

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
        return {
            "private": False,
            "queries": self.queries,
            "l_inf": self.l_inf,
            "l1": self.l1,
            "l2": self.l2,
            "mean_absolute": self.l1 / self.queries,
            "root_mean_square": self.l2 / math.sqrt(self.queries),
            "total_variation": self.total_variation,
        }


def _sum_up(found: Sequence[tuple[Piece, tuple[int, float, float, float]]]) -> Errors:
    parts = [part for _, part in found]
    whole = [(piece.index, part[2]) for piece, part in found if piece.threshold.r == piece.threshold.k]
    marginals = len({index for index, _ in whole})
    return Errors(
        sum(p[0] for p in parts),
        max(p[1] for p in parts),
        math.fsum(p[2] for p in parts),
        math.sqrt(math.fsum(p[3] for p in parts)),
        math.fsum(distance for _, distance in whole) / 2 / marginals if marginals else None,
    )


def _pieces(
    codes: Codes, workload: Workload, shares: Shares
) -> Iterator[tuple[Piece, tuple[int, float, float, float]]]:
    for (piece, counts), (other, found) in zip(marginals.counts(codes, workload), shares, strict=True):
        must(piece.start == other.start, "answers", "must come in the workload's own pieces", "others")
        gaps = np.abs(np.asarray(found, dtype=np.float64) - counts / codes.people)
        yield piece, (len(gaps), float(gaps.max()), float(gaps.sum()), float((gaps * gaps).sum()))


def present_error(codes: Codes, workload: Workload, shares: Shares) -> Errors:
    """The errors of some answers to a workload. NOT PRIVATE."""
    return _sum_up(list(_pieces(codes, workload, shares)))


def evaluate(model: SyntheticModel, codes: Codes, workload: Workload | None = None) -> dict[str, Any]:
    """The true errors of a model, in all and by class of query. NOT PRIVATE: never publish it.

    `synthetic` is D' alone, `settled` the model's answers (moved to what was measured, where that contradicts D').
    """
    from hybridp.blend.relaxed import answers

    asked = model.workload if workload is None else workload
    classes: dict[str, list[tuple[Piece, tuple[int, float, float, float]]]] = {}
    for piece, part in _pieces(codes, asked, model.answers(asked)):
        classes.setdefault(f"{piece.threshold.r}-of-{piece.threshold.k}", []).append((piece, part))
    plain = ((piece, found.cpu().numpy()) for piece, found in answers(model.data, asked))
    return {
        "private": False,
        "settled": _sum_up([part for parts in classes.values() for part in parts]).to_dict(),
        "synthetic": present_error(codes, asked, plain).to_dict(),
        "classes": {name: _sum_up(parts).to_dict() for name, parts in classes.items()},
    }


# --- a plan from public numbers ---------------------------------------------------------------------------------------


def planned_table(columns: list[str], cells: int, sigma: float, people: int) -> dict[str, Any]:
    """One marginal that would be measured with noise `sigma`, in people, on each of its cells.

    The expected largest error of a cell, in sigmas, is the integral of ``1 - P[|Z| <= x]^cells``.
    """
    x = np.linspace(0.0, 12.0, 12_001)
    inside = np.array([math.erf(v / math.sqrt(2)) for v in x])
    return {
        "columns": columns,
        "cells": cells,
        "sd": sigma / people,
        "expected_largest_error": float(np.trapezoid(1 - inside**cells, x)) * sigma / people,
        "expected_total_error": math.sqrt(2 / math.pi) * cells * sigma / people,
        "smallest_visible_share": significance(cells) * sigma / people,
    }


def plan_synth(people: int, workload: Workload, guarantee: ApproxDP, *, most_cells: int = MOST_CELLS) -> Plan:
    """The errors of every marginal that the method "tables" would measure for a workload.

    Each cell gets Gaussian noise of the same size, whatever the data: the tables and their noise are those of the fit.

    >>> from hybridp.public.queries import Schema, Threshold
    >>> work = Workload(Schema.from_domain({"age": 5, "sex": 2}), (Threshold((0, 1), 2),))
    >>> told = plan_synth(10_000, work, ApproxDP(1.0, 1e-6)).predicted["tables"]
    >>> [(one["columns"], one["cells"], round(one["sd"], 5)) for one in told]
    [(['age'], 5, 0.00234), (['sex'], 2, 0.00234), (['age', 'sex'], 10, 0.0007)]
    """
    must(2 <= people <= 1e15, "n", "must be at least 2 and at most 1e15", people)
    schema = workload.schema
    found = [
        planned_table([schema.names[f] for f in features], schema.cells(features), use.sigma, people)
        for use in table_rounds(workload, total_rho(guarantee, 2), most_cells=most_cells)
        for features in use.tables
    ]
    assumes = [
        "everybody in the table trusts the curator",
        "these are the errors of what is measured; the synthetic rows are fitted to it, and differ from it a little",
    ]
    facts = predicted("synthetic-data", more={"tables": found}, assumes=assumes)
    return planned({"table": {"marginals": facts}}, people, 1.0, guarantee)


def all_zero(codes: Codes, workload: Workload) -> Errors:
    """The errors of answering 0 to everything. NOT PRIVATE."""
    counted = marginals.counts(codes, workload)
    return present_error(codes, workload, ((piece, np.zeros(len(counts))) for piece, counts in counted))
