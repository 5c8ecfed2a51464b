"""How good would the rows of a synthetic table be? A rehearsal on stand-ins, before anybody is asked.

The fit is the fit itself, or its noise drawn from its own law. The people are stand-ins: rows that are public, or made
up by a stated law (`made_up_people`). Larger crowds than the stand-ins are rehearsed with as many times less noise.

>>> from hybridp.public.queries import Threshold
>>> work = Workload(Schema.from_domain({"a": 4, "b": 3, "c": 3}), (Threshold((0, 1), 2), Threshold((1, 2), 2)))
>>> plan = plan_rows(10**5, 0.01, work, ApproxDP(1.0, 1e-10))
>>> plan.errors["stated"] < plan.errors["trusted"]
True
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.graph import GraphModel, tree_cells
from hybridp.blend.tables import blend_tables, pooled
from hybridp.curator.marginals import Codes, table_counts
from hybridp.errors import InvalidInput, must
from hybridp.protocols.synth import fit_synth
from hybridp.public.budgets import ZCDP, ApproxDP, PureDP, as_approx
from hybridp.public.queries import Schema, Workload
from hybridp.public.shares import ShareReports
from hybridp.public.synth import MeasuredTable, table_sigma, total_rho
from hybridp.public.synth_reports import MarginalInvite
from hybridp.randomness import seeded, synthetic_data_generator
from hybridp.release.plan import Plan, planned, predicted
from hybridp.tasks.table import SynthStudy, chosen_invite

if TYPE_CHECKING:
    from hybridp.blend.relaxed import Records, Relaxed

__all__ = ["made_up_people", "plan_rows", "rows_plan"]

_STAND_INS = 20_000
_KINDS = 5
_MOST_TIMES, _CELLS = 3, 6_000  # A small table is rehearsed three times.
_TREE = 1 << 20  # Cells of a graphical model that is rehearsed.


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


def rows_plan(
    people: int, opt_in: float, guarantee: ApproxDP, marginals: int, errors: Mapping[str, float],
    outweigh_below: float | None, public: bool,
) -> Plan:  # fmt: skip
    """The mean total variation distance of the rows' marginals to be expected, by who takes part and how.

    `outweigh_below` is the share of trusting people below which, on an empty cell of the stated marginals, the local
    people's reports count for more in the blend than the trusted people's noise. The gain is what the local people take
    off the trusted people's error, as a share of it; None without either group.
    """
    both = [errors[way] for way in errors if way not in ("trusted", "local")]
    who = "the public rows that were given" if public else "made-up people of five kinds"
    facts = predicted(
        "synthetic-data",
        more={
            "total_variation": dict(errors),
            "best": min(errors, key=lambda way: errors[way]),
            "gain_by_local": 1 - min(both) / errors["trusted"] if both and "trusted" in errors else None,
            "local_outweigh_below_opt_in": outweigh_below,
            "marginals": marginals,
        },
        assumes=[
            f"people are like {who}, and those who trust like the others",
            "these are distances of rehearsed fits: people like these had them within a factor of 1.25, ten other "
            "tables within a factor of 2",
        ],
    )
    return planned({"table": {"rows": facts}}, people, opt_in, guarantee)


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
    error is the total variation distance of a marginal of the workload, in the mean over its marginals.
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
    below = None if invite is None else _outweigh_below(invite, _sigma(invite, guarantee), people)
    return rows_plan(people, opt_in, guarantee, len(asked), errors, below, like is not None)


def _rehearsed(
    crowd: _Crowd,
    trusted: int,
    workload: Workload,
    asked: Sequence[tuple[int, ...]],
    invite: MarginalInvite | None,
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
            tables = {f: crowd.measured(f, trusted, _sigma(invite, guarantee)) for f in invite.marginals}
            errors["stated"] = crowd.missed(asked, crowd.blended(tables, trusted, told), crowd.people)
    if trusted and local:
        chosen = chosen_invite(SynthStudy(workload, guarantee, "adaptive"), piloted, "")
        both = crowd.blended(pooled(piloted), trusted, crowd.told(chosen, local))
        errors["chosen"] = crowd.missed(asked, both, crowd.people)
    return errors


def _sigma(invite: MarginalInvite, guarantee: ApproxDP) -> float:
    """The noise of the trusted people's stated marginals, in people."""
    return table_sigma(total_rho(guarantee, 1) / len(invite.marginals))


def _invited(workload: Workload, guarantee: ApproxDP) -> MarginalInvite | None:
    """What local people would be asked; None where they cannot be asked all of it."""
    try:
        return MarginalInvite(workload, PureDP(guarantee.epsilon))
    except InvalidInput:
        return None


def _outweigh_below(invite: MarginalInvite, sigma: float, people: int) -> float:
    """The share x of trusting people at which (sigma/(x n))^2 = v/((1-x) n/m), m marginals and v the mean of a
    report's variance on an empty cell."""
    v = float(np.mean([question.oracle.variance(0.0) for question in invite.questions]))
    a = v * len(invite.marginals) * people / sigma**2  # x^2 a = 1 - x
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
        return np.asarray(table_counts(self.codes, features) / self.codes.people)

    def some(self, many: int) -> Codes:
        """So many people, by as many stand-ins as scatter around all stand-ins like they do around everybody."""
        if many not in self._kept:
            size = round(1 / (1 / many - 1 / self.people + 1 / self.codes.people))
            who = self.draw.choice(self.codes.people, max(2, min(size, self.codes.people)), replace=False)
            self._kept[many] = Codes(self.codes.schema, self.codes.values[:, who])
        return self._kept[many]

    def adaptive(
        self, workload: Workload, guarantee: ApproxDP, many: int
    ) -> tuple[list[MeasuredTable], Relaxed | Records | None]:
        """What the adaptive method measures of so many people: the same choices and noise, as shares of people.

        And its rows, where they follow all that is asked (`SynthStudy.last`).
        """
        codes = self.some(many)
        study, times = SynthStudy(workload, guarantee, "adaptive"), many / codes.people
        rho = math.fsum(use.rho for use in study.plan) * times**2
        delta = min(max(guarantee.delta, 1e-18) * times**2, 0.5)  # as many rounds, and the same end
        promise = ApproxDP(as_approx(ZCDP(rho), delta).epsilon, delta)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            seed = int(self.draw.integers(1 << 30))
            found = fit_synth(codes, SynthStudy(workload, promise, "adaptive", study.rounds), rng=seeded(seed))
        tables = [
            MeasuredTable(t.features, np.rint(t.counts * times).astype(np.int64), t.sigma * times) for t in found.tables
        ]
        return tables, found.data if study.last else None

    def measured(self, features: tuple[int, ...], many: int, sigma: float) -> MeasuredTable:
        codes = self.some(many)
        counts = table_counts(codes, features) * (many / codes.people)
        noisy = np.rint(counts + self.draw.normal(0.0, sigma, counts.shape))
        return MeasuredTable(features, noisy.astype(np.int64), sigma)

    def told(self, invite: MarginalInvite, many: int) -> dict[tuple[int, ...], ShareReports]:
        """The supports of so many people's reports, of each marginal as many as its weight says."""
        found, parts = {}, np.diff(invite.steps, prepend=0) / invite.steps[-1]
        for features, question, part in zip(invite.marginals, invite.questions, parts, strict=True):
            drawn, oracle = max(1, int(many * part)), question.oracle
            held = self.draw.multinomial(drawn, self.share(features).ravel())
            seen = self.draw.binomial(held, oracle.truth) + self.draw.binomial(drawn - held, oracle.other)
            found[features] = ShareReports(drawn, seen, oracle)
        return found

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
        rows: Relaxed | Records | None = None,
    ) -> float:
        """The mean total variation distance, over the marginals asked, of the model of these tables, or of rows."""
        sizes = self.codes.schema.sizes
        if rows is None and tree_cells(sizes, [t.features for t in tables]) <= _TREE:
            model = GraphModel.uniform(sizes).fit(tables, people, sweeps=60)
            shares = (model.table(f) for f in asked)
        else:
            from hybridp.blend.relaxed import start, table
            from hybridp.blend.synth import fit_tables

            data = fit_tables(start(1000, sizes, seed=0), tables, people) if rows is None else rows
            shares = (table(data, f).cpu().numpy() for f in asked)
        return float(np.mean([np.abs(m - self.share(f)).sum() / 2 for m, f in zip(shares, asked, strict=True)]))
