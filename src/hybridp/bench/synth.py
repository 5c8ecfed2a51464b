"""The analyst's bench for synthetic data: a plan, true errors, baselines, non-adaptive fits, the search for (T, K).

What reads the true rows here is NOT PRIVATE and says so; it is for public stand-ins and simulations.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp import noise
from hybridp.curator import marginals
from hybridp.curator.marginals import Codes
from hybridp.errors import must
from hybridp.public.budgets import ApproxDP
from hybridp.public.queries import MOST_CELLS, Piece, Workload
from hybridp.public.synth import answer_sigma, significance, table_rounds, total_rho
from hybridp.randomness import Randomness
from hybridp.release import style
from hybridp.release.document import plan_document
from hybridp.release.result import Result, Words
from hybridp.release.synth import SyntheticModel

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = [
    "Errors",
    "PlannedTable",
    "SynthPlan",
    "Tried",
    "all_zero",
    "diagonal_search",
    "evaluate",
    "gaussian_mechanism",
    "non_adaptive",
    "plan_synth",
    "present_error",
    "search_cost",
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


@dataclass(frozen=True, slots=True)
class PlannedTable:
    """One marginal that would be measured: `sigma` is the noise of each of its cells, in people."""

    features: tuple[str, ...]
    cells: int
    sigma: float

    def largest(self) -> float:
        """The expected largest error of a cell, in sigmas: the integral of ``1 - P[|Z| <= x]^cells``."""
        x = np.linspace(0.0, 12.0, 12_001)
        inside = np.array([math.erf(v / math.sqrt(2)) for v in x])
        return float(np.trapezoid(1 - inside**self.cells, x))

    def to_dict(self, people: int) -> dict[str, Any]:
        return {
            "columns": list(self.features),
            "cells": self.cells,
            "sd": self.sigma / people,
            "expected_largest_error": self.largest() * self.sigma / people,
            "expected_total_error": math.sqrt(2 / math.pi) * self.cells * self.sigma / people,
            "smallest_visible_share": significance(self.cells) * self.sigma / people,
        }


@dataclass(frozen=True, slots=True)
class SynthPlan(Result):
    """How well a fit to whole tables would measure them."""

    people: int
    guarantee: ApproxDP
    tables: tuple[PlannedTable, ...]

    assumes = (
        "everybody in the table trusts the curator",
        "these are the errors of what is measured; the synthetic rows are fitted to it, and differ from it a little",
    )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        told = {
            "task": "synthetic-data",
            "predicted": {"tables": [one.to_dict(self.people) for one in self.tables]},
            "assumes": list(self.assumes),
        }
        return plan_document(
            {"table": {"marginals": told}},
            people=self.people,
            opt_in=1.0,
            epsilon=self.guarantee.epsilon,
            delta=self.guarantee.delta,
        )

    def to_frame(self) -> DataFrame:
        """One row a table that would be measured; needs pandas, the extra "frames"."""
        import pandas as pd

        return pd.DataFrame([{**one.to_dict(self.people), "columns": ", ".join(one.features)} for one in self.tables])

    @property
    def _title(self) -> str:
        promise = f"epsilon {self.guarantee.epsilon:g}, delta {self.guarantee.delta:g}"
        return f"Expected error of {len(self.tables):,} measured tables: {self.people:,} people, {promise}"

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        names = ("sd", "expected_largest_error", "expected_total_error", "smallest_visible_share")
        told = [one.to_dict(self.people) for one in self.tables]
        rows = [(", ".join(t["columns"]), f"{t['cells']:,}", *(f"{t[k]:.2g}" for k in names)) for t in told]
        columns = ("table", "cells", "sd of a cell", "largest error", "total error", "visible from")
        return Words(self._title, columns, rows, tuple(f"Assumes: {a}." for a in self.assumes))

    def plot(self, ax: Axes | None = None, most: int = 40) -> Axes:
        """The largest error to expect in each table, as a share of people; needs matplotlib."""
        shown = self.tables[:most]
        ax = style.new_axes(ax, 7.2, 1.7 + 0.28 * len(shown))
        largest = [(", ".join(one.features), one.largest() * one.sigma / self.people) for one in shown]
        style.sized_rows(ax, [(name, error, style.percent(error, 3)) for name, error in largest])
        style.plain_numbers(ax.xaxis, percents=True)
        ax.set_xlabel("largest error of a cell to expect, as a share of people")
        more = f" {most} of {len(self.tables):,} tables are shown." if len(self.tables) > most else ""
        style.dress(ax, self._title, f"Further left is better.{more}")
        return ax


def plan_synth(people: int, workload: Workload, guarantee: ApproxDP, *, most_cells: int = MOST_CELLS) -> SynthPlan:
    """The errors of every marginal that the method "tables" would measure for a workload.

    Each cell gets Gaussian noise of the same size, whatever the data: the tables and their noise are those of the fit.

    >>> from hybridp.public.queries import Schema, Threshold
    >>> work = Workload(Schema.from_domain({"age": 5, "sex": 2}), (Threshold((0, 1), 2),))
    >>> [(t.features, t.cells, round(t.sigma, 1)) for t in plan_synth(10_000, work, ApproxDP(1.0, 1e-6)).tables]
    [(('age',), 5, 23.4), (('sex',), 2, 23.4), (('age', 'sex'), 10, 7.0)]
    """
    must(2 <= people <= 1e15, "n", "must be at least 2 and at most 1e15", people)
    schema = workload.schema
    found = [
        PlannedTable(tuple(schema.names[f] for f in features), schema.cells(features), use.sigma)
        for use in table_rounds(workload, total_rho(guarantee, 2), most_cells=most_cells)
        for features in use.tables
    ]
    return SynthPlan(people, guarantee, tuple(found))


# --- baselines --------------------------------------------------------------------------------------------------------


def all_zero(codes: Codes, workload: Workload) -> Errors:
    """The errors of answering 0 to everything. NOT PRIVATE."""
    counted = marginals.counts(codes, workload)
    return present_error(codes, workload, ((piece, np.zeros(len(counts))) for piece, counts in counted))


def gaussian_mechanism(codes: Codes, workload: Workload, guarantee: ApproxDP, *, rng: Randomness) -> Errors:
    """The errors of the Gaussian mechanism with an equal part of the budget for every single query. NOT PRIVATE."""
    sigma = answer_sigma(total_rho(guarantee, 1) / workload.queries)

    def noisy() -> Iterator[tuple[Piece, NDArray[Any]]]:
        for piece, counts in marginals.counts(codes, workload):
            yield piece, (counts + noise.discrete_gaussian(sigma, len(counts), rng=rng)) / codes.people

    return present_error(codes, workload, noisy())


def non_adaptive(
    codes: Codes,
    workload: Workload,
    guarantee: ApproxDP,
    *,
    rows: int = 1000,
    steps: int = 100,
    tables_per_step: int = 16,
    seed: int = 0,
    rng: Randomness,
) -> Errors:
    """RAP with T = 1 and K = m: the Gaussian mechanism's answers to every query, then the projection. NOT PRIVATE.

    Thresholds of more than 2^22 queries are left out of the projection: their noise is the largest anyway.
    """
    from hybridp.blend.relaxed import Options, TableGoal, answers, project, start

    sigma = answer_sigma(total_rho(guarantee, 1) / workload.queries)
    goals = []
    for piece, counts in marginals.counts(codes, workload):
        noisy = (counts + noise.discrete_gaussian(sigma, len(counts), rng=rng)) / codes.people
        if piece.cells == workload.schema.cells(piece.threshold.features):
            goals.append(TableGoal(piece.threshold, noisy.astype(np.float32)))
    must(bool(goals), "workload", f"must have a threshold of at most {MOST_CELLS} queries", workload.queries)
    options = Options(steps=steps, tables_per_step=min(tables_per_step, len(goals)), seed=seed)
    data = project(start(rows, workload.schema.sizes, seed=seed), tables=goals, options=options).data
    shares = ((piece, found.cpu().numpy()) for piece, found in answers(data, workload))
    return present_error(codes, workload, shares)


# --- the search for T and K -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Tried:
    """The settings that a search looked at, with the error of each, and the best of them."""

    rounds: int
    per_round: int
    error: float
    errors: dict[tuple[int, int], float]


def diagonal_search(error: Callable[[int, int], float], sizes: Sequence[int]) -> Tried:
    """The diagonal strategy of 4.3.4.2 over the grid `sizes` x `sizes`: O(N) settings instead of N^2.

    First a search of the best product T K along the diagonal T = K, where the error falls to a minimum and rises again;
    then all pairs of the grid with about that product (within a factor of sqrt 2). `error(T, K)` must come from a
    public stand-in or a simulation; on the people's rows every setting tried is a fit that must be paid for
    (`search_cost`).

    >>> found = diagonal_search(lambda t, k: (math.log2(t * k) - 6) ** 2 + 0.1 * k, [1, 2, 4, 8, 16, 32])
    >>> found.rounds, found.per_round, len(found.errors) < 36
    (32, 2, True)
    """
    grid = sorted(set(sizes))
    must(bool(grid) and grid[0] >= 1, "sizes", "must be numbers from 1", list(sizes))
    seen: dict[tuple[int, int], float] = {}

    def tried(t: int, k: int) -> float:
        if (t, k) not in seen:
            seen[t, k] = error(t, k)
        return seen[t, k]

    low, high = 0, len(grid) - 1
    while low < high:
        middle = (low + high) // 2
        if tried(grid[middle], grid[middle]) <= tried(grid[middle + 1], grid[middle + 1]):
            high = middle
        else:
            low = middle + 1
    tried(grid[low], grid[low])
    best_product = grid[low] ** 2
    for t in grid:
        for k in grid:
            if best_product / math.sqrt(2) <= t * k <= best_product * math.sqrt(2):
                tried(t, k)
    (t, k), least = min(seen.items(), key=lambda item: item[1])
    return Tried(t, k, least, seen)


def search_cost(guarantee: ApproxDP, tried: int) -> ApproxDP:
    """What each of `tried` fits on the people's rows may spend, so that all of them together keep the guarantee.

    The budget is shared in zCDP. Choosing among them is free only where the choice looks at released figures (say, how
    D' agrees with the measurements): true errors are not released, and choosing by them would cost more.
    """
    must(tried >= 1, "tried", "must be at least 1", tried)
    from hybridp.public.budgets import ZCDP, as_approx

    rho = total_rho(guarantee, 1) / tried
    return as_approx(ZCDP(rho), guarantee.delta)
