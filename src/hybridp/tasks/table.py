"""A synthetic table as a conversation: marginals of trusted rows, round by round, then local people's reports.

"tables" sums all marginals that are asked; "adaptive" chooses one in each round, the one that a graphical model of all
so far misses most; "mixed" sums the stated marginals of trusted people, and each local person reports on one of them.
After an adaptive fit to trusted rows (`SynthStudy.pilot`) local people report on the marginals that it chose.

What is fitted is post-processing, and made when somebody needs it: rounds that were kept are replayed without a fit.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast, get_args

from hybridp.blend.graph import GraphModel, tree_cells
from hybridp.blend.tables import blend_tables, pooled, raked
from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, Charge, PureDP
from hybridp.public.queries import MOST_CELLS, Feature, Schema, Threshold, Workload
from hybridp.public.study import Declaration, Table
from hybridp.public.synth import (
    MODEL_CELLS,
    MeasuredTable,
    Round,
    adaptive_count,
    adaptive_rounds,
    candidates,
    cumulative_epsilons,
    measured_last,
    significance,
    table_rounds,
    total_rho,
    usual_method,
)
from hybridp.public.synth_reports import MOST_REPORTED, MarginalInvite, MarginalReports
from hybridp.public.workloads import stated_workload
from hybridp.release.facts import statistic
from hybridp.release.receipt import (
    ASKED_BEFORE,
    Protection,
    Receipt,
    assuming,
    build_receipt,
    choice_unprotected,
    honest_devices,
    public_choice,
)
from hybridp.release.synth import SyntheticModel

if TYPE_CHECKING:
    from hybridp.blend.relaxed import Records, Relaxed

__all__ = ["BothGroups", "Fitted", "Made", "Measure", "Method", "NoSignalWarning", "Reported", "SynthStudy"]
__all__ += ["synth_study"]
__all__ += ["charge_for_reports", "chosen_invite", "published"]

Method = Literal["tables", "adaptive", "mixed"]
_LEAST_RECORDS, _MOST_RECORDS = 1 << 15, 1 << 20  # Few records scatter around the model that they are drawn from.
_ONE_THREAD = 1 << 20  # Tables up to this many cells are fitted faster by one thread than by threads that wait.
_TREE = 1 << 22  # Cells of the largest graphical model of both groups; marginals beyond are fitted by relaxed rows.


class NoSignalWarning(UserWarning):
    """The budget is so small that the noise hides every answer."""


# --- rounds -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Measure:
    """A use of trusted rows: the sums of its marginals with its noise; where it names none, those of a chosen one.

    What may be chosen is public: whatever leaves the model small enough (`allowed`).
    """

    kind: ClassVar[str] = "measure"
    place: int
    use: Round
    schema: Schema
    among: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, ...], ...]
    model: Callable[[], GraphModel]

    def allowed(self, i: int) -> bool:
        return tree_cells(self.schema.sizes, {*self.before, self.among[i]}) <= MODEL_CELLS


@dataclass(frozen=True)
class Reported:
    """The reports of local people, each on one marginal that their device drew, and what is public about them."""

    kind: ClassVar[str] = "reported"
    invite: MarginalInvite


@dataclass(frozen=True, eq=False)
class Made:
    """Rows that follow from the first `rounds` rounds: whoever kept them answers with them, or makes them."""

    kind: ClassVar[str] = "made"
    rounds: int
    make: Callable[[], Relaxed | Records]


@dataclass(frozen=True)
class BothGroups:
    """What is public about both groups, kept with the reports."""

    trusted: int
    simulated_local: bool
    seeded: bool
    assumed: bool
    notes: tuple[str, ...]
    digest: str | None = None  # of the reports


@dataclass(frozen=True)
class Fitted:
    """Public facts of a fit: how many people trust, whether a seed draws their noise, how a receipt says who drew noise
    and was charged (`made`, of a fit that was `seeded`), and columns whose values were `read` from rows."""

    trusted: int
    seeded: bool
    made: Callable[[bool], dict[str, Any]]
    read: Callable[[], Sequence[str]] = tuple
    device: str = "cpu"
    moved: Callable[[float], None] = lambda rounds: None

    def domain_words(self, asked: str) -> str:
        """Where the schema and what is asked come from."""
        if read := ", ".join(self.read()):
            return f"NOT PROTECTED: which values occur in {read} was read from the rows"
        return f"the schema, its bins and the {asked} were chosen without looking at the rows"


Conversation = Generator[Measure | Reported | Made, Any, SyntheticModel]


class _Model:
    """The graphical model of the rounds so far, fitted from one to the next when somebody asks for it."""

    def __init__(self, sizes: tuple[int, ...], people: int) -> None:
        self.people, self.fitted, self.now = people, 0, GraphModel.uniform(sizes)
        self.rounds: list[list[MeasuredTable]] = []

    def __call__(self) -> GraphModel:
        for tables in self.rounds[self.fitted :]:
            self.now = self.now.fit(tables, self.people, sweeps=12)
        self.fitted = len(self.rounds)
        return self.now


# --- the study --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SynthStudy:
    """Everything that is decided, and public, before a row is read.

    `method` "tables" measures all whole marginals of the workload; "adaptive" chooses one marginal in each of `rounds`
    rounds (`adaptive_count` unless given), fits a graphical model, and has records (twice as many as people, at least
    2^15 and `rows`) drawn, which follow all that is asked where that is measured at the end (`last`); "mixed" is that
    of people who trust differently. `rows` is n', and `seed` the public start of D', or of the records. `pilot` names
    the invitation by which local people joined an adaptive fit to the trusted rows.
    """

    workload: Workload
    guarantee: ApproxDP
    method: Method = "tables"
    rounds: int = 0
    rows: int = 1000
    seed: int = 0
    most_cells: int = MOST_CELLS
    pilot: str = ""

    def __post_init__(self) -> None:
        must(self.method in get_args(Method), "method", "must be tables, adaptive or mixed", self.method)
        must(self.rows >= 1, "rows", "must be at least 1", self.rows)
        must(self.rounds >= 0, "rounds", "must be at least 1, or 0 for the usual number", self.rounds)
        if not self.rounds and self.method == "adaptive":
            columns = len(self.workload.schema.features)
            object.__setattr__(self, "rounds", adaptive_count(self.guarantee, columns, last=bool(self.last)))
        assert self.plan

    @cached_property
    def plan(self) -> tuple[Round, ...]:
        """The uses of the rows in their order; their rhos add up to what the guarantee allows."""
        if self.method == "tables":
            rho = total_rho(self.guarantee, 2)
            return tuple(table_rounds(self.workload, rho, most_cells=self.most_cells))
        if self.method == "mixed":
            return (Round(self.invite.marginals, 0.0, total_rho(self.guarantee, 1)),)
        rho = total_rho(self.guarantee, self.rounds + (2 if self.last else 1))
        return tuple(adaptive_rounds(self.workload, rho, rounds=self.rounds, last=self.last))

    @cached_property
    def last(self) -> tuple[tuple[int, ...], ...]:
        """The marginals that the adaptive method measures all at once when it has chosen enough; none elsewhere."""
        return measured_last(self.workload, self.guarantee) if self.method == "adaptive" else ()

    @property
    def both(self) -> bool:
        """Whether local people take part."""
        return self.method == "mixed" or bool(self.pilot)

    @cached_property
    def invite(self) -> MarginalInvite:
        """What goes to every device where local people take part. They are promised the epsilon, and spend no delta."""
        return MarginalInvite(self.workload, PureDP(self.guarantee.epsilon))

    def charges(self, name: str, purpose: str) -> list[Charge]:
        """One charge a round: by how much the epsilon of all rounds so far, at the guarantee's delta, grows with it."""
        plan = self.plan
        found, before = [], 0.0
        for i, epsilon in enumerate(cumulative_epsilons([r.rho for r in plan], self.guarantee.delta)):
            budget = ApproxDP(max(0.0, epsilon - before), self.guarantee.delta if i == 0 else 0.0)
            mechanism = f"{plan[i].words}, round {i + 1} of {len(plan)}"
            noise = ("gaussian", plan[i].level)
            found.append(Charge("trusted", budget, mechanism, purpose, collection=f"{name}/{i + 1}", noise=noise))
            before = max(before, epsilon)
        return found

    @property
    def protection(self) -> Protection:
        """What trusted people are promised, and by what."""
        steps = "; then ".join(dict.fromkeys(use.words for use in self.plan))
        rho, rounds = math.fsum(use.rho for use in self.plan), len(self.plan)
        return Protection(self.guarantee, steps, f"{rho:.6g}-zCDP" + (f" over {rounds} rounds" if rounds > 1 else ""))

    def no_signal(self, people: int) -> tuple[str, ...]:
        """What hides every answer: a cell that must be more than half of the people to be seen."""
        for use in self.plan:
            if (hidden := use.hidden(self.workload.schema)) > people / 2:
                return (
                    f"The budget leaves no signal: with {self.guarantee} for {people:,} people, the noise of "
                    f"{use.words} hides every share below {hidden / people:.2g}; ask fewer queries, of more people, or "
                    "with a larger epsilon.",
                )
        return ()

    def to_dict(self) -> dict[str, Any]:
        thresholds = [{"features": list(t.features), "r": t.r} for t in self.workload.thresholds]
        return {
            "schema": self.workload.schema.to_dict(),
            "thresholds": thresholds,
            "epsilon": self.guarantee.epsilon,
            "delta": self.guarantee.delta,
            "method": self.method,
            "rounds": self.rounds,
            "rows": self.rows,
            "seed": self.seed,
            "most_cells": self.most_cells,
        } | ({"pilot": self.pilot} if self.pilot else {})

    @staticmethod
    def from_dict(kept: dict[str, Any]) -> SynthStudy:
        thresholds = tuple(Threshold(tuple(t["features"]), int(t["r"])) for t in kept["thresholds"])
        rest = {name: kept[name] for name in ("method", "rounds", "rows", "seed", "most_cells")}
        workload = Workload(Schema.from_dict(kept["schema"]), thresholds)
        promise = ApproxDP(kept["epsilon"], kept["delta"])
        return SynthStudy(workload, promise, **rest, pilot=str(kept.get("pilot", "")))

    # --- the conversation ---------------------------------------------------------------------------------------------

    def ask(self, fit: Fitted) -> Conversation:
        """The rounds, and the model that follows from their answers. Post-processing: no rows, no noise."""
        schema, plan, tables = self.workload.schema, self.plan, list[MeasuredTable]()
        among = tuple(c for c in candidates(self.workload) if len(c) == 1 or schema.cells(c) <= MODEL_CELLS)
        model, data = _Model(schema.sizes, fit.trusted), None
        for i, use in enumerate(plan if fit.trusted else ()):
            known = tuple(tuple(sorted(table.features)) for table in tables)
            tables += yield Measure(i, use, schema, among, known, model)
            if self.method == "tables":
                data = yield Made(i + 1, lambda: self._relaxed(data, tables, i, fit))  # noqa: B023
            if i + 1 < len(plan):
                model.rounds.append(list(tables))
                fit.moved(i + 1)
        if self.both:
            return (yield from self._ask_local(tables, fit))
        if self.method == "adaptive":
            data = yield Made(len(plan), lambda: self._records(model, tables, fit))
        fit.moved(len(plan))
        assert data is not None
        receipt = build_receipt(
            self.protection,
            None,
            assumes=(
                fit.domain_words("workload"),
                schema.rule,
                "the number of people is public; a person's record is replaced",
                *self.no_signal(fit.trusted),
            ),
            reads="rows",
            **fit.made(fit.seeded),
        )
        return SyntheticModel(self.workload, fit.trusted, self.method, data.to("cpu"), tuple(tables), receipt)

    def _relaxed(self, data: Relaxed | None, tables: list[MeasuredTable], i: int, fit: Fitted) -> Relaxed:
        """The rows before, or the public start, moved to everything measured up to round i."""
        from hybridp.blend.relaxed import start
        from hybridp.blend.relaxed.data import one_thread
        from hybridp.blend.synth import Fit, fit_tables

        sizes, rounds = self.workload.schema.sizes, len(self.plan)
        before = start(self.rows, sizes, seed=self.seed) if data is None else data
        how = Fit(steps=60, learning_rate=0.05) if i == 0 and rounds > 1 else Fit()
        largest = max(self.workload.schema.cells(f) for use in self.plan for f in use.tables)
        with one_thread(largest <= _ONE_THREAD and fit.device == "cpu"):
            return fit_tables(before.to(fit.device), tables, fit.trusted, how, moved=lambda part: fit.moved(i + part))

    def _records(self, model: _Model, tables: list[MeasuredTable], fit: Fitted) -> Records:
        """Records of the model of all rounds; where the last one measured all that is asked, they follow that."""
        from hybridp.blend.relaxed import Records

        sizes, people, before = self.workload.schema.sizes, fit.trusted, len(self.plan) - 1
        rows = min(max(self.rows, 2 * people, _LEAST_RECORDS), _MOST_RECORDS)
        if new := len(self.last):
            moved = lambda part: fit.moved(before + part)  # noqa: E731
            parts = tables[:-new], tables[-new:]
            return Records(raked(model(), *parts, people, rows=rows, seed=self.seed, moved=moved), sizes)
        return Records(model().fit(tables, people, sweeps=60).records(rows, seed=self.seed), sizes)

    def _ask_local(self, tables: list[MeasuredTable], fit: Fitted) -> Conversation:
        """Local people's reports, blended with the trusted people's tables, cell by cell, into one model."""
        invite = chosen_invite(self, tables, self.pilot) if self.pilot else self.invite
        reports, about = yield Reported(invite)
        own, told = pooled(tables), dict(zip(invite.marginals, reports.told, strict=True))
        sizes, every = self.workload.schema.sizes, dict.fromkeys([*told, *own])
        shapes = [(features, tuple(sizes[f] for f in features)) for features in every]
        blended = blend_tables(shapes, [own.get(f) for f in every], about.trusted, [told.get(f) for f in every])
        people = about.trusted + reports.people
        hidden = min(significance(one.table.counts.size) * one.usual for one in blended) / people
        note = (
            f"The budget leaves no signal: the noise of both groups' tables hides every share below {hidden:.2g}; ask "
            "fewer marginals, of more people, or with a larger epsilon."
        )
        notes = (note,) if hidden > 0.5 else ()

        def make() -> Relaxed | Records:
            for note in notes:
                warnings.warn(note, NoSignalWarning, stacklevel=2)
            chosen = {tuple(sorted(t.features)) for t in tables[: len(tables) - len(self.last)]}
            return self._blended_rows([one.fitted for one in blended], chosen, people)

        data = yield Made(1, make)
        receipt = self.receipt(fit, invite, replace(about, notes=about.notes + notes))
        stated = tuple(one.table for one in blended)
        method = "chosen" if self.pilot else self.method
        found = SyntheticModel(self.workload, people, method, data, stated, receipt)
        return assuming(found, invite.text if about.assumed else None)

    def _blended_rows(
        self, tables: list[MeasuredTable], chosen: set[tuple[int, ...]], people: int
    ) -> Relaxed | Records:
        """Records of a graphical model; of marginals whose junction tree is too large, relaxed rows. A public rule.

        Where the trusted people's fit ended with all that is asked, the records of the model of the `chosen` marginals
        follow the others, as they do there.
        """
        from hybridp.blend.relaxed import Records, start
        from hybridp.blend.synth import fit_tables

        sizes, rows = self.workload.schema.sizes, min(max(self.rows, 2 * people), _MOST_RECORDS)
        held = [table for table in tables if not self.last or table.features in chosen]
        rest = [table for table in tables if self.last and table.features not in chosen]
        if tree_cells(sizes, [table.features for table in held]) > _TREE:
            return fit_tables(start(self.rows, sizes, seed=self.seed), tables, people)
        model = GraphModel.uniform(sizes).fit(held, people, sweeps=60)
        if rest:
            return Records(raked(model, held, rest, people, rows=rows, seed=self.seed), sizes)
        return Records(model.records(rows, seed=self.seed), sizes)

    def receipt(self, fit: Fitted, invite: MarginalInvite, about: BothGroups) -> Receipt:
        """What both groups are promised, and by what."""
        drawn = f"one report on one of {len(invite.marginals)} marginals, drawn on their own device whatever their data"
        return build_receipt(
            self.protection if about.trusted else None,
            Protection(invite.guarantee, drawn, "no amplification is claimed"),
            assumes=(
                public_choice("record is"),
                choice_unprotected("record"),
                fit.domain_words("questions" if self.pilot else "marginals"),
                self.workload.schema.rule,
                "one blend speaks for both groups: trusted and local people are taken to be alike",
                honest_devices("a local table"),
                *((ASKED_BEFORE, "no trusted person answers the invitation") if self.pilot else ()),
                *about.notes,
            ),
            simulated_local=about.simulated_local,
            reads="rows",
            **fit.made(about.seeded),
        )


def charge_for_reports(invite: MarginalInvite, purpose: str, digest: str | None) -> Charge:
    """What the reports cost: the very same ones are charged once, however often they are used."""
    return Charge("local", invite.guarantee, "report on one drawn marginal", purpose, digest=digest)


def chosen_invite(study: SynthStudy, tables: Sequence[MeasuredTable], answers: str) -> MarginalInvite:
    """What devices are asked, by a public rule: the chosen marginals of two columns or more that a report can carry.

    Where there is none, those of one column. `tables` are all that was measured, in its order; what was measured only
    because it is asked (`SynthStudy.last`) stands at the end. The weight of a marginal is the square root of its number
    of cells: the error of a table grows with its cells, and falls with the square root of those who draw it.
    """
    schema = study.workload.schema
    chosen = tables[: len(tables) - len(study.last)]
    sets = dict.fromkeys(tuple(sorted(t.features)) for t in chosen if t.counts.size <= MOST_REPORTED)
    named = [f for f in sets if len(f) > 1] or list(sets)
    must(bool(named), "marginals", f"must be of at most {MOST_REPORTED} cells for local people", "larger ones")
    asked = Workload(schema, tuple(Threshold(f, len(f)) for f in named))
    weights = tuple(math.isqrt(schema.cells(f)) for f in named)
    return MarginalInvite(asked, PureDP(study.guarantee.epsilon), weights, answers)


def published(
    study: SynthStudy, tables: Sequence[MeasuredTable], reports: MarginalReports, fit: Fitted
) -> tuple[dict[str, Any], Receipt]:
    """What both groups said, as plain data from which a model is fitted, and the receipt of it.

    `tables` are the trusted people's, with their noise. Post-processing: nothing further is spent, now or by the fit.
    """
    about = BothGroups(fit.trusted, simulated_local=False, seeded=fit.seeded, assumed=False, notes=())
    own = [{"features": list(t.features), "sigma": t.sigma, "counts": t.counts.reshape(-1).tolist()} for t in tables]
    told = statistic(
        "synthetic-data",
        None,
        None,
        method=study.method,
        people=fit.trusted + reports.people,
        features=list(study.workload.schema.names),
        model={
            "study": study.to_dict(),
            "trusted_people": fit.trusted,
            "trusted_tables": own,
            "local_reports": [{"people": one.people, "supports": one.counts.tolist()} for one in reports.told],
        },
    )
    return told, study.receipt(fit, study.invite, about)


def synth_study(study: Declaration, place: int, *, mixed: bool = False) -> SynthStudy:
    """The synthetic table that is asked for at this place among the questions; `mixed` where local people take part."""
    asked, part = cast(Table, study.questions[place]), study.parts[place]
    assert isinstance(part.everybody, ApproxDP)
    features = tuple(
        Feature.binned(one.name, one.edges, missing=one.missing)
        if one.edges
        else Feature.categorical(one.name, one.values, missing=one.missing)
        for one in asked.features
    )
    workload = stated_workload(
        Schema(features).counting(asked.other),
        asked.thresholds,
        asked.marginals,
        law=asked.law,
        most_queries=asked.most_queries,
        seed=asked.workload_seed,
    )
    if mixed:
        asked.check_mixed()
    chosen = "mixed" if mixed else asked.method or usual_method(workload)
    return SynthStudy(workload, part.everybody, method=cast(Method, chosen), rows=asked.rows)
