"""The analyst's bench for synthetic data: plans, rehearsals and true errors.

What reads the true rows here is NOT PRIVATE and says so; it is for public stand-ins and simulations. A plan of rows
(`plan_rows`) rehearses the fit itself, or draws its noise from its own law. The people are stand-ins: rows that are
public, or made up by a stated law (`made_up_people`). Larger crowds are rehearsed with as many times less noise.

>>> from hybridp.public.queries import Threshold
>>> work = Workload(Schema.from_domain({"a": 4, "b": 3, "c": 3}), (Threshold((0, 1), 2), Threshold((1, 2), 2)))
>>> plan = plan_rows(10**5, 0.01, work, ApproxDP(1.0, 1e-10))
>>> plan.errors["stated"] < plan.errors["trusted"]
True
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.graph import GraphModel, pooled, tree_cells
from hybridp.blend.relaxed import fit_rows, round_rows
from hybridp.blend.tables import blend_tables
from hybridp.curator.marginals import Codes
from hybridp.errors import InvalidInput, must
from hybridp.protocols.synth import fit_synth
from hybridp.public.budgets import ZCDP, ApproxDP, PureDP, as_approx
from hybridp.public.queries import Piece, Schema, Workload, counts, pieces, table_counts
from hybridp.public.shares import OnMarginals, ShareReports, marginal_invite
from hybridp.public.synth import MeasuredTable, significance, table_rounds, table_sigma, total_rho
from hybridp.randomness import seeded, synthetic_data_generator
from hybridp.release.plan import Plan, planned, predicted
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.table import TableTask, chosen_invite

__all__ = ["Errors", "all_zero", "evaluate", "made_up_people", "plan_rows", "plan_synth", "planned_table"]
__all__ += ["present_error"]

Shares = Iterable[tuple[Piece, NDArray[Any]]]
_STAND_INS = 20_000
_KINDS = 5
_MOST_TIMES, _CELLS = 3, 6_000  # A small table is rehearsed three times.
_TREE = 1 << 20  # Cells of a graphical model that is rehearsed.


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
    them), and
    `all_zero` answers 0 to everything.
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


def plan_synth(people: int, workload: Workload, guarantee: ApproxDP) -> Plan:
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
    result = [
        planned_table([schema.names[f] for f in features], schema.cells(features), use.sigma, people)
        for use in table_rounds(workload, total_rho(guarantee, 2))
        for features in use.tables
    ]
    assumes = [
        "everybody in the table trusts the curator",
        "these are the errors of what is measured; the synthetic rows are fitted to it, and differ from it a little",
    ]
    facts = predicted("synthetic-data", more={"tables": result}, assumes=assumes)
    return planned({"table": {"marginals": facts}}, people, 1.0, guarantee)


# --- a rehearsal of the rows ------------------------------------------------------------------------------------------


def made_up_people(schema: Schema, people: int, *, seed: int = 0) -> Codes:
    """People of five kinds. In every column one order of its values is common, and a third of the kinds have their own.

    The j-th value in its order has a share like 1/j^2 of a kind, within which the columns are independent. The most
    common kind is a third of the people.
    """
    draw = synthetic_data_generator(seeded(seed))
    kinds = draw.choice(_KINDS, size=people, p=np.arange(_KINDS, 0, -1) / (_KINDS * (_KINDS + 1) / 2))
    values = np.empty((len(schema.sizes), people), dtype=np.uint16)
    for f, size in enumerate(schema.sizes):
        shares, common = np.arange(1.0, size + 1) ** -2, draw.permutation(size)
        for kind in range(_KINDS):
            who = np.flatnonzero(kinds == kind)
            order = draw.permutation(size) if (kind + f) % 3 == 0 else common
            values[f, who] = order[draw.choice(size, size=len(who), p=shares / shares.sum())]
    return Codes(schema, values)


def plan_rows(
    people: int,
    opt_in: float,
    workload: Workload,
    guarantee: ApproxDP,
    *,
    like: Codes | None = None,
    seed: int = 0,
) -> Plan:
    """The error of the rows to expect of the trusted people alone, of the local alone, and of both.

    `like` are rows that may be looked at, public or nobody's; without them people are made up (`made_up_people`). The
    error is the total variation distance of a marginal of the workload, in the mean over its marginals. The gain is
    what the local people take off the trusted people's error, as a share of it; None without either group.
    """
    must(2 <= people <= 1e15, "n", "must be at least 2 and at most 1e15", people)
    must(0 <= opt_in <= 1, "opt-in", "must lie between 0 and 1", opt_in)
    must(like is None or like.people >= 2, "like", "must hold at least 2 rows", "fewer")
    trusted = round(people * opt_in)
    must(trusted != 1, "opt-in", "must leave nobody or at least 2 people trusted", opt_in)
    asked = tuple(dict.fromkeys(tuple(sorted(t.features)) for t in workload.thresholds if t.r == t.k))
    must(bool(asked), "marginals", "must be whole for a plan of the rows, such as age,sex", "thresholds alone")
    invite = _invited(workload, guarantee) if trusted < people else None
    times = max(1, min(_MOST_TIMES, _CELLS // sum(workload.schema.cells(f) for f in asked)))
    runs = []
    for i in range(times):
        draw = synthetic_data_generator(seeded(seed + i + 1))
        crowd = _Crowd.of(like or made_up_people(workload.schema, min(people, _STAND_INS), seed=seed + i), people, draw)
        runs.append(_rehearsed(crowd, trusted, workload, asked, invite, guarantee))
    errors = {way: float(np.mean([run[way] for run in runs])) for way in runs[0]}
    must(bool(errors), "marginals", "must be whole and of at most 2^14 cells for local people", "others")
    both = [errors[way] for way in errors if way not in ("trusted", "local")]
    who = "made-up people of five kinds" if like is None else "the public rows that were given"
    facts = predicted(
        "synthetic-data",
        {way: {"total_variation": error} for way, error in errors.items()},
        {
            "best": min(errors, key=lambda way: errors[way]),
            "gain_by_local": 1 - min(both) / errors["trusted"] if both and "trusted" in errors else None,
            "local_outweigh_below_opt_in": None if invite is None else _outweigh_below(invite, guarantee, people),
            "marginals": len(asked),
        },
        assumes=[
            f"people are like {who}, and those who trust like the others",
            "these are distances of rehearsed fits: people like these had them within a factor of 1.25, ten other "
            "tables within a factor of 2",
        ],
    )
    return planned({"table": {"rows": facts}}, people, opt_in, guarantee)


def _rehearsed(
    crowd: _Crowd,
    trusted: int,
    workload: Workload,
    asked: Sequence[tuple[int, ...]],
    invite: OnMarginals | None,
    guarantee: ApproxDP,
) -> dict[str, float]:
    """The error of each way in one rehearsal."""
    local, errors = crowd.people - trusted, {}
    if trusted:
        piloted, rows = crowd.adaptive(workload, guarantee, trusted)
        errors["trusted"] = crowd.missed(asked, piloted, trusted, rows)
    if invite is not None:
        told = crowd.told(invite, local)
        errors["local"] = crowd.missed(asked, crowd.blended({}, 0, told), local)
        if trusted:
            tables = {f: crowd.measured(f, trusted, _sigma(invite, guarantee)) for f in invite.mechanism.marginals}
            errors["stated"] = crowd.missed(asked, crowd.blended(tables, trusted, told), crowd.people)
    if trusted and local:
        chosen = chosen_invite(TableTask(workload, guarantee, "adaptive"), piloted)
        both = crowd.blended(pooled(piloted), trusted, crowd.told(chosen, local))
        errors["chosen"] = crowd.missed(asked, both, crowd.people)
    return errors


def _sigma(invite: OnMarginals, guarantee: ApproxDP) -> float:
    """The noise of the trusted people's stated marginals, in people."""
    return table_sigma(total_rho(guarantee, 1) / len(invite.mechanism.marginals))


def _invited(workload: Workload, guarantee: ApproxDP) -> OnMarginals | None:
    """What local people would be asked; None where they cannot be asked all of it."""
    try:
        return marginal_invite(workload, PureDP(guarantee.epsilon))
    except InvalidInput:
        return None


def _outweigh_below(invite: OnMarginals, guarantee: ApproxDP, people: int) -> float:
    """The share of trusting people below which, on an empty cell of the stated marginals, the local people's reports
    count for more in the blend than the trusted people's noise: x with (sigma/(x n))^2 = v/((1-x) n/m), m marginals and
    v the mean of a report's variance on an empty cell."""
    v = float(np.mean([oracle.variance(0.0) for oracle in invite.mechanism.oracles]))
    a = v * len(invite.mechanism.marginals) * people / _sigma(invite, guarantee) ** 2  # x^2 a = 1 - x
    return (math.sqrt(1 + 4 * a) - 1) / (2 * a)


@dataclass(frozen=True, eq=False)
class _Crowd:
    """Stand-ins for a crowd of `people`, of whom any few are drawn without replacement."""

    codes: Codes
    people: int
    draw: np.random.Generator
    _kept: dict[int, Codes]

    @staticmethod
    def of(codes: Codes, people: int, draw: np.random.Generator) -> _Crowd:
        many = min(codes.people, _STAND_INS)
        if many < codes.people:
            codes = Codes(codes.schema, codes.values[:, draw.choice(codes.people, many, replace=False)])
        return _Crowd(codes, people, draw, {})

    def share(self, features: Sequence[int]) -> NDArray[np.float64]:
        return np.asarray(self.codes.table(features) / self.codes.people)

    def some(self, many: int) -> Codes:
        """So many people, by as many stand-ins as scatter around all stand-ins like they do around everybody."""
        if many not in self._kept:
            size = round(1 / (1 / many - 1 / self.people + 1 / self.codes.people))
            who = self.draw.choice(self.codes.people, max(2, min(size, self.codes.people)), replace=False)
            self._kept[many] = Codes(self.codes.schema, self.codes.values[:, who])
        return self._kept[many]

    def adaptive(
        self, workload: Workload, guarantee: ApproxDP, many: int
    ) -> tuple[list[MeasuredTable], NDArray[np.uint16] | None]:
        """What the adaptive method measures of so many people: the same choices and noise, as shares of people.

        And its rows, where they follow all that is asked (`TableTask.last`).
        """
        codes = self.some(many)
        study, times = TableTask(workload, guarantee, "adaptive"), many / codes.people
        rho = math.fsum(use.rho for use in study.plan) * times**2
        delta = min(max(guarantee.delta, 1e-18) * times**2, 0.5)  # as many rounds, and the same end
        promise = ApproxDP(as_approx(ZCDP(rho), delta).epsilon, delta)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seed = int(self.draw.integers(1 << 30))
            result = fit_synth(codes, TableTask(workload, promise, "adaptive", study.rounds), rng=seeded(seed))
        tables = [
            MeasuredTable(one.features, np.rint(one.counts * times).astype(np.int64), one.sigma * times)
            for one in result.tables
        ]
        return tables, result.records if study.last else None

    def measured(self, features: tuple[int, ...], many: int, sigma: float) -> MeasuredTable:
        codes = self.some(many)
        counts = codes.table(features) * (many / codes.people)
        noisy = np.rint(counts + self.draw.normal(0.0, sigma, counts.shape))
        return MeasuredTable(features, noisy.astype(np.int64), sigma)

    def told(self, invite: OnMarginals, many: int) -> dict[tuple[int, ...], ShareReports]:
        """The supports of so many people's reports, of each marginal as many as its weight says."""
        result, parts = {}, np.diff(invite.mechanism.steps, prepend=0) / invite.mechanism.steps[-1]
        for features, oracle, part in zip(invite.mechanism.marginals, invite.mechanism.oracles, parts, strict=True):
            drawn = max(1, int(many * part))
            held = self.draw.multinomial(drawn, self.share(features).ravel())
            seen = self.draw.binomial(held, oracle.truth) + self.draw.binomial(drawn - held, oracle.other)
            result[features] = ShareReports(drawn, seen, oracle)
        return result

    def blended(
        self,
        tables: Mapping[tuple[int, ...], MeasuredTable],
        many: int,
        told: Mapping[tuple[int, ...], ShareReports],
    ) -> list[MeasuredTable]:
        every = list(dict.fromkeys([*told, *tables]))
        shapes = [(f, tuple(self.codes.schema.sizes[i] for i in f)) for f in every]
        blended = blend_tables(shapes, [tables.get(f) for f in every], many, [told.get(f) for f in every])
        return [one.fitted for one in blended]

    def missed(
        self,
        asked: Sequence[tuple[int, ...]],
        tables: list[MeasuredTable],
        people: int,
        records: NDArray[np.uint16] | None = None,
    ) -> float:
        """The mean total variation distance, over the marginals asked, of the model of these tables, or of rows."""
        sizes = self.codes.schema.sizes
        if records is None and tree_cells(sizes, [t.features for t in tables]) <= _TREE:
            model = GraphModel.uniform(sizes).fit(tables, people, sweeps=60)
            shares = (model.table(f) for f in asked)
        else:
            if records is None:
                records = round_rows(fit_rows(tables, sizes, people, rows=1000, seed=0), sizes, 1 << 15, seed=0)
            shares = (table_counts(records.T, sizes, f) / len(records) for f in asked)
        return float(np.mean([np.abs(m - self.share(f)).sum() / 2 for m, f in zip(shares, asked, strict=True)]))
