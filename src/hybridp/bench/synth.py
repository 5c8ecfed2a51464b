"""How good will a synthetic table be? A plan of rows (`plan_rows`) holds the conversation of the fit with stand-ins.

They are rows that are public, or made up by a stated law (`made_up_people`). Larger crowds are rehearsed with as many
times less noise.

>>> from hybridp.public.queries import Threshold
>>> work = Workload(Schema.from_domain({"a": 4, "b": 3, "c": 3}), (Threshold((0, 1), 2), Threshold((1, 2), 2)))
>>> plan = plan_rows(10**5, 0.01, work, ApproxDP(1.0, 1e-10))
>>> plan.errors["stated"] < plan.errors["trusted"]
True
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from hybridp.curator.models import LATTICE, Codes, gain
from hybridp.errors import InvalidInput, must
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import People, drive
from hybridp.public.queries import Schema, Workload, table_counts
from hybridp.public.rounds import Answer, Crowd
from hybridp.public.shares import MarginalReports, OnMarginals, ShareReports, marginal_invite
from hybridp.public.synth import MeasuredTable, gumbel_scale, significance, table_rounds, table_sigma, total_rho
from hybridp.release.plan import Plan, planned, predicted
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.table import Measure, Reported, TableTask

__all__ = ["made_up_people", "plan_rows", "plan_synth", "planned_table"]

_STAND_INS = 20_000
_KINDS = 5
_MOST_TIMES, _CELLS = 3, 6_000  # A small table is rehearsed three times.


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


def made_up_people(schema: Schema, people: int, *, seed: int) -> Codes:
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
    people: int, opt_in: float, workload: Workload, guarantee: ApproxDP, *, like: Codes | None = None
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
    invite = None
    if trusted < people:
        with suppress(InvalidInput):  # local people cannot be asked all of it
            invite = marginal_invite(workload, PureDP(guarantee.epsilon))
    times = max(1, min(_MOST_TIMES, _CELLS // sum(workload.schema.cells(f) for f in asked)))
    runs = []
    for i in range(times):
        draw = synthetic_data_generator(seeded(i + 1))
        codes = like or made_up_people(workload.schema, min(people, _STAND_INS), seed=i)
        runs.append(_rehearsed(codes, (trusted, people - trusted), workload, asked, invite, guarantee, draw))
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


class _Task(TableTask):
    """A table of which as many records are made as a rehearsal has time for."""

    def _many(self, people: int) -> int:
        return min(super()._many(people), 1 << 17)


def _rehearsed(
    codes: Codes, people: tuple[int, int], workload: Workload, asked: Sequence[tuple[int, ...]],
    invite: OnMarginals | None, guarantee: ApproxDP, draw: np.random.Generator,
) -> dict[str, float]:  # fmt: skip
    """The mean total variation distance over the marginals asked, of each way, in one rehearsal on these stand-ins."""
    codes, (trusted, local) = _some(codes, _STAND_INS, draw), people
    adaptive, mixed = _Task(workload, guarantee, "adaptive"), _Task(workload, guarantee, "mixed") if invite else None
    ways: dict[str, Any] = {"trusted": (adaptive, trusted, 0)} if trusted else {}
    ways |= {"local": (mixed, 0, local)} if mixed else {}
    ways |= {"stated": (mixed, trusted, local)} if mixed and trusted else {}
    ways |= {"chosen": (replace(adaptive, choose=True), trusted, local)} if trusted and local else {}
    errors, some = {}, 1 / (1 / max(1, trusted) - 1 / sum(people) + 1 / codes.people)
    crowd = _Crowd(codes, _some(codes, max(2, round(some)), draw), people, draw)
    facts = Crowd(workload.schema.names, str, lambda: {"entries": (), "simulated_local": True, "rng": seeded(0)})
    with warnings.catch_warnings(action="ignore"):
        for way, (task, *sizes) in ways.items():
            model: SyntheticModel = drive(replace(task, people=tuple(sizes)).ask(facts), crowd)
            shares = [table_counts(model.records.T, workload.schema.sizes, f) / model.rows for f in asked]
            missed = [np.abs(s - codes.table(f) / codes.people).sum() / 2 for s, f in zip(shares, asked, strict=True)]
            errors[way] = float(np.mean(missed))
    return errors


def _some(codes: Codes, many: int, draw: np.random.Generator) -> Codes:
    if many >= codes.people:
        return codes
    return Codes(codes.schema, codes.values[:, draw.choice(codes.people, many, replace=False)])


@dataclass
class _Crowd(People):
    """Stand-ins who answer rounds for a larger crowd, with as many times less noise; what was chosen once stays.

    Those for the trusted people scatter around all stand-ins like these people do around everybody.
    """

    codes: Codes
    trusted: Codes
    people: tuple[int, int]
    draw: np.random.Generator
    chosen: dict[int, list[MeasuredTable]] = field(default_factory=dict)

    def measure(self, asked: Measure) -> list[MeasuredTable]:
        tables, adaptive = asked.use.tables, asked.invite is None
        times, sigma = self.people[0] / self.trusted.people, asked.use.sigma
        if adaptive and asked.place in self.chosen:
            return self.chosen[asked.place]
        if not tables:
            model, scale = asked.model(), gumbel_scale(asked.use.select_rho, 1) * LATTICE / times
            scores = [gain(self.trusted, c, model.table(c), sigma / times) / scale for c in asked.among]
            order = np.argsort(-(np.array(scores) + self.draw.gumbel(size=len(scores))))
            tables = (asked.among[next(i for i in order.tolist() if asked.allowed(i))],)
        result = []
        for features in tables:
            counts = self.trusted.table(features) * times
            noisy = np.rint(counts + self.draw.normal(0.0, sigma, counts.shape)).astype(np.int64)
            result.append(MeasuredTable(features, noisy, sigma))
        return self.chosen.setdefault(asked.place, result) if adaptive else result

    def reported(self, asked: Reported) -> Answer:
        """The supports of so many people's reports, of each marginal as many as its weight says."""
        drawn, told = asked.invite.mechanism, []
        parts = np.diff(drawn.steps, prepend=0) / drawn.steps[-1]
        for features, oracle, part in zip(drawn.marginals, drawn.oracles, parts, strict=True):
            many = max(1, int(self.people[1] * part))
            held = self.draw.multinomial(many, (self.codes.table(features) / self.codes.people).ravel())
            seen = self.draw.binomial(held, oracle.truth) + self.draw.binomial(many - held, oracle.other)
            told.append(ShareReports(many, seen, oracle))
        return Answer(local=MarginalReports(tuple(told)))


def _outweigh_below(invite: OnMarginals, guarantee: ApproxDP, people: int) -> float:
    """The share of trusting people below which, on an empty cell of the stated marginals, the local people's reports
    count for more in the blend than the trusted people's noise: x with (sigma/(x n))^2 = v/((1-x) n/m), m marginals and
    v the mean of a report's variance on an empty cell."""
    v = float(np.mean([oracle.variance(0.0) for oracle in invite.mechanism.oracles]))
    m = len(invite.mechanism.marginals)
    a = v * m * people / table_sigma(total_rho(guarantee, 1) / m) ** 2  # x^2 a = 1 - x
    return (math.sqrt(1 + 4 * a) - 1) / (2 * a)
