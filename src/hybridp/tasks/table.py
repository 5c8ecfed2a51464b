"""A synthetic table as a conversation: marginals of trusted rows, round by round, then local people's reports.

"tables" sums all marginals that are asked; "adaptive" chooses one in each round, the one that a graphical model of all
so far misses most; "mixed" sums the stated marginals of trusted people, and each local person reports on one of them.
Where trusted people `choose`, local ones report on the marginals that an adaptive fit to the trusted rows chose.

What is fitted is post-processing, and made when somebody needs it: rounds that were kept are replayed without a fit.
"""

from __future__ import annotations

import base64
import math
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any, ClassVar, Literal, Self, cast, get_args

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.tables import GraphModel, blend_tables, fit_rows, pooled, raked, round_rows, tree_cells
from hybridp.errors import InvalidInput, PromiseWarning, must, rule_of
from hybridp.public import synth as planning
from hybridp.public.mechanisms import ApproxDP, Charge, PureDP
from hybridp.public.messages import Conversation, Round
from hybridp.public.queries import Schema, Threshold, Workload, listed_workload
from hybridp.public.questions import Table
from hybridp.public.rounds import Answer, Crowd, Later
from hybridp.public.shares import MOST_REPORTED, MarginalReports, OnMarginals, ShareReports, marginal_invite
from hybridp.public.study import Declaration
from hybridp.public.synth import MODEL_CELLS, MeasuredTable, Use, usual_method
from hybridp.release import release as releasing
from hybridp.release.release import Protection, Receipt
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.task import BUILDERS, Task

__all__ = ["Made", "Measure", "Method", "NoSignalWarning", "Reported", "TableTask", "chosen_invite"]
__all__ += ["packed", "table_task", "unpacked"]

Method = Literal["tables", "adaptive", "mixed"]
Codes = NDArray[np.uint16]
_LEAST_RECORDS, _MOST_RECORDS = 1 << 15, 1 << 20  # Few records scatter around the model that they are drawn from.
_TREE = 1 << 22  # Cells of the largest graphical model of both groups; marginals beyond are fitted by relaxed rows.
_MOST = 2**53  # people: more are no whole numbers to a double


_NO_SIGNAL = "The budget leaves no signal: {} hides every share below {:.2g}; ask fewer {}, of more people, or with a "
_NO_SIGNAL += "larger epsilon."


class NoSignalWarning(PromiseWarning):
    """The budget is so small that the noise hides every answer."""


def packed(numbers: NDArray[Any], kind: str) -> str:
    """Many whole numbers as a short text."""
    return base64.b64encode(zlib.compress(numbers.astype(kind).tobytes())).decode()


def unpacked(text: str, kind: str) -> NDArray[Any]:
    """The same back again, in one row; `ValueError` or `TypeError` where it cannot be read."""
    try:
        return np.frombuffer(zlib.decompress(base64.b64decode(text, validate=True)), kind)
    except zlib.error:
        raise ValueError from None


# --- rounds -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Measure(Round):
    """A use of trusted rows: the sums of its marginals with its noise; where it names none, those of a chosen one.

    What may be chosen is public: whatever leaves the model small enough (`allowed`). Local people of the same table
    answer `invite`.
    """

    kind: ClassVar[str] = "measure"
    place: int
    use: Use
    schema: Schema
    among: tuple[tuple[int, ...], ...]
    before: tuple[tuple[int, ...], ...]
    model: Callable[[], GraphModel]
    invite: OnMarginals | None

    def allowed(self, i: int) -> bool:
        return tree_cells(self.schema.sizes, {*self.before, self.among[i]}) <= MODEL_CELLS

    def plain(self, answer: Sequence[MeasuredTable]) -> list[dict[str, Any]]:
        return [{"features": list(t.features), "sigma": t.sigma, "counts": packed(t.counts, "<i8")} for t in answer]

    def restored(self, said: Any) -> list[MeasuredTable]:
        """What was measured: only what this round measures, with the noise of its promise, can be gone on with."""
        result = []
        for one in said:
            shape = [self.schema.sizes[f] for f in one["features"]]
            counts = unpacked(one["counts"], "<i8").reshape(shape).astype(np.int64)
            result.append(MeasuredTable(tuple(one["features"]), counts, float(one["sigma"])))
        if not self.use.planned(result) or any(int(np.abs(one.counts).max()) >= _MOST for one in result):
            raise ValueError
        return result


@dataclass(frozen=True)
class Reported(Later):
    """The reports of local people, each on one marginal that their device drew. None: they are asked later."""

    kind: ClassVar[str] = "reported"
    invite: OnMarginals

    @property
    def schema(self) -> Schema:
        return self.invite.encoding

    def plain(self, answer: Answer) -> Any:
        return [{"people": one.people, "supports": one.counts.tolist()} for one in answer.local.told]

    def restored(self, said: Any) -> Answer:
        told = [
            ShareReports(int(one["people"]), np.array(one["supports"], np.int64), oracle)
            for one, oracle in zip(said, self.invite.mechanism.oracles, strict=True)
        ]
        if any(len(one.counts) != one.oracle.categories for one in told):
            raise ValueError
        return Answer(local=MarginalReports(tuple(told)))


@dataclass(frozen=True, eq=False)
class Made(Round):
    """Records that follow from all rounds: whoever kept them answers with them, or makes them; None: nobody has."""

    kind: ClassVar[str] = "made"
    make: Callable[[], Codes]

    def kept_or_made(self) -> Conversation:
        result = yield self
        return self.make() if result is None else result


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
class TableTask(Task):
    """Everything that is decided, and public, before a row is read.

    `method` "tables" measures all whole marginals of the workload; "adaptive" chooses one marginal in each of `rounds`
    rounds (`adaptive_count` unless given), fits a graphical model, and has records drawn, which follow all that is
    asked where that is measured at the end (`last`); "mixed" is that of people who trust differently. Records are twice
    as many as people, and at least 2^15; `rows` is how many relaxed ones are fitted, and `seed` the public start. With
    `choose` an adaptive fit to the trusted rows says what local people are asked. The values of the columns `read` were
    read from rows. `people` are the groups' sizes, which are public.
    """

    workload: Workload
    guarantee: ApproxDP
    method: Method = "tables"
    rounds: int = 0
    rows: int = 1000
    seed: int = 0
    choose: bool = False
    read: tuple[str, ...] = ()
    people: tuple[int, int] | None = None

    called = "synthetic data"
    undecided = True

    def __post_init__(self) -> None:
        must(self.method in get_args(Method), "method", "must be tables, adaptive or mixed", self.method)
        whole = all(type(one) is int for one in (self.rounds, self.rows, self.seed))
        must(whole, "rounds", "and rows and seed must be whole numbers", "others")
        must(self.rows >= 1, "rows", "must be at least 1", self.rows)
        must(0 <= self.rounds <= 10**4, "rounds", "must be at least 1, or 0 for the usual number", self.rounds)
        rule = "must be adaptive where trusted people choose what local people are asked"
        must(not self.choose or self.method == "adaptive", "method", rule, self.method)
        known = self.people is None or max(self.people) < _MOST
        must(known, "people", "must be fewer", "too many")
        if not self.rounds and self.method == "adaptive":
            columns = len(self.workload.schema.features)
            object.__setattr__(self, "rounds", planning.adaptive_count(self.guarantee, columns, last=bool(self.last)))
        assert self.plan

    @cached_property
    def plan(self) -> tuple[Use, ...]:
        """The uses of the rows in their order; their rhos add up to what the guarantee allows."""
        if self.method == "tables":
            rho = planning.total_rho(self.guarantee, 2)
            return tuple(planning.table_rounds(self.workload, rho))
        if self.method == "mixed":
            return (Use(self.invite.mechanism.marginals, 0.0, planning.total_rho(self.guarantee, 1)),)
        rho = planning.total_rho(self.guarantee, self.rounds + (2 if self.last else 1))
        return tuple(planning.adaptive_rounds(self.workload, rho, rounds=self.rounds, last=self.last))

    @cached_property
    def last(self) -> tuple[tuple[int, ...], ...]:
        """The marginals that the adaptive method measures all at once when it has chosen enough; none elsewhere."""
        return planning.measured_last(self.workload, self.guarantee) if self.method == "adaptive" else ()

    @property
    def both(self) -> bool:
        return self.method == "mixed" or self.choose

    @property
    def trusted_people(self) -> int:
        assert self.people is not None
        return self.people[0]

    @property
    def by_invitation(self) -> bool:  # type: ignore[override]
        return self.choose

    @cached_property
    def invite(self) -> OnMarginals:
        """What goes to every device where local people take part. They are promised the epsilon, and spend no delta."""
        return marginal_invite(self.workload, PureDP(self.guarantee.epsilon))

    def named(self, names: tuple[str, ...]) -> OnMarginals | None:
        return self.invite if self.method == "mixed" else None

    def prepared(self, columns: Any) -> Self:
        """The same for a table's rule of trust: "mixed" where not everybody trusts."""
        rule = rule_of(columns.trust)
        if self.both or rule is None or rule.everyone == "trusted":
            result = self
        else:
            usual = usual_method(self.workload)
            must(self.method == usual, "method", "must be left out where local people take part", self.method)
            result = replace(self, method="mixed")
        return result if rule is None or rule.everyone != "local" else replace(result, people=(0, 0))

    def decided(self, trusted: int, local: int, shuffled: int = 0) -> Self:
        """The same for groups of so many people; warns of a budget that leaves no signal."""
        if not self.both:
            must(not local, "method", "must be mixed for people who trust differently", self.method)
            must(trusted >= 2, "people", "must be at least 2", trusted)
        elif not local:
            raise InvalidInput(
                "`trust` must be left out where everybody trusts the curator, or say in a study file: everyone = "
                '"trusted". Got no local row.'
            )
        for note in () if self.both else self.no_signal(trusted):
            warnings.warn(note, NoSignalWarning, stacklevel=3)
        return replace(self, people=(trusted, local))

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """One charge a round: by how much the epsilon of all rounds so far, at the guarantee's delta, grows with it.

        And one for the reports on stated marginals.
        """
        plan: tuple[Use, ...] = () if self.people is not None and not self.people[0] else self.plan
        result, before = [], 0.0
        for i, epsilon in enumerate(planning.cumulative_epsilons([r.rho for r in plan], self.guarantee.delta)):
            budget = ApproxDP(max(0.0, epsilon - before), self.guarantee.delta if i == 0 else 0.0)
            mechanism = f"{plan[i].words}, round {i + 1} of {len(plan)}"
            result.append(Charge("trusted", budget, mechanism, purpose, noise=("gaussian", plan[i].level)))
            before = max(before, epsilon)
        if self.method == "mixed":
            result.append(Charge("local", self.invite.promise, "report on one drawn marginal", purpose))
        return result

    @property
    def protection(self) -> Protection:
        steps = "; then ".join(dict.fromkeys(use.words for use in self.plan))
        rho, rounds = math.fsum(use.rho for use in self.plan), len(self.plan)
        return Protection(self.guarantee, steps, f"{rho:.6g}-zCDP" + (f" over {rounds} rounds" if rounds > 1 else ""))

    def no_signal(self, people: int) -> tuple[str, ...]:
        """What hides every answer: a cell that must be more than half of the people to be seen."""
        for use in self.plan:
            if (hidden := use.hidden(self.workload.schema) / people) > 0.5:
                noise = f"with {self.guarantee} for {people:,} people, the noise of {use.words}"
                return (_NO_SIGNAL.format(noise, hidden, "queries"),)
        return ()

    # --- the conversation ---------------------------------------------------------------------------------------------

    def ask(self, crowd: Crowd) -> Conversation:
        schema, plan, tables, trusted = self.workload.schema, self.plan, list[MeasuredTable](), self.trusted_people
        among = tuple(c for c in planning.candidates(self.workload) if len(c) == 1 or schema.cells(c) <= MODEL_CELLS)
        model, said = _Model(schema.sizes, trusted), list[tuple[Round, Any]]()
        stated = self.named(())
        for i, use in enumerate(plan if trusted else ()):
            known = tuple(tuple(sorted(table.features)) for table in tables)
            asked = Measure(i, use, schema, among, known, model, stated)
            said.append((asked, (yield asked)))
            tables += said[-1][1]
            if i + 1 < len(plan):
                model.rounds.append(list(tables))
        if self.both:
            invite = stated or chosen_invite(self, tables)
            reported = Reported(invite, about=invite.mechanism.about)
            answer = yield reported
            if answer is not None:
                said.append((reported, answer))
                return (yield from self._blended(tables, invite, answer.local, crowd, said))

        records = yield from Made(partial(self._records, model, tables)).kept_or_made()
        receipt = self._receipt(crowd, None, self.no_signal(trusted))
        return SyntheticModel(self.workload, trusted, self.method, records, tuple(tables), receipt, self, tuple(said))

    def _domain_words(self, asked: str) -> str:
        """Where the schema and what is asked come from."""
        if self.read:
            return f"NOT PROTECTED: which values occur in {', '.join(self.read)} was read from the rows"
        return f"the schema, its bins and the {asked} were chosen without looking at the rows"

    def _many(self, people: int) -> int:
        return min(max(2 * people, _LEAST_RECORDS), _MOST_RECORDS)

    def _relaxed(self, tables: Sequence[MeasuredTable], people: int) -> Codes:
        sizes = self.workload.schema.sizes
        lines = fit_rows(tables, sizes, people, rows=self.rows, seed=self.seed)
        return round_rows(lines, sizes, self._many(people), seed=self.seed)

    def _records(self, model: _Model, tables: list[MeasuredTable]) -> Codes:
        """Records of the model of all rounds; where the last one measured all that is asked, they follow that."""
        people, new = self.trusted_people, len(self.last)
        if self.method == "tables":
            return self._relaxed(tables, people)
        if new:
            parts = tables[:-new], tables[-new:]
            return raked(model(), *parts, people, rows=self._many(people), seed=self.seed)
        return model().fit(tables, people, sweeps=60).records(self._many(people), seed=self.seed)

    def _blended(
        self, tables: list[MeasuredTable], invite: OnMarginals, reports: MarginalReports, crowd: Crowd, said: Any
    ) -> Conversation:
        """Local people's reports, blended with the trusted people's tables, cell by cell, into one model."""
        own, trusted = pooled(tables), self.trusted_people
        told = dict(zip(invite.mechanism.marginals, reports.told, strict=True))
        sizes, every = self.workload.schema.sizes, dict.fromkeys([*told, *own])
        shapes = [(features, tuple(sizes[f] for f in features)) for features in every]
        blended = blend_tables(shapes, [own.get(f) for f in every], trusted, [told.get(f) for f in every])
        people = trusted + reports.people
        hidden = min(planning.significance(one.counts.size) * one.sigma for _, one in blended) / people
        note = _NO_SIGNAL.format("the noise of both groups' tables", hidden, "marginals")
        notes = (note,) if hidden > 0.5 else ()

        def make() -> Codes:
            for note in notes:
                warnings.warn(note, NoSignalWarning, stacklevel=2)
            chosen = {tuple(sorted(t.features)) for t in tables[: len(tables) - len(self.last)]}
            return self._blended_records([one for _, one in blended], chosen, people)

        records = yield from Made(make).kept_or_made()
        stated, method = tuple(one for one, _ in blended), "chosen" if self.choose else self.method
        receipt = self._receipt(crowd, invite, notes)
        return SyntheticModel(self.workload, people, method, records, stated, receipt, self, tuple(said))

    def _blended_records(self, tables: list[MeasuredTable], chosen: set[tuple[int, ...]], people: int) -> Codes:
        """Records of a graphical model; of marginals whose junction tree is too large, by relaxed rows. A public rule.

        Where the trusted people's fit ended with all that is asked, the records of the model of the `chosen` marginals
        follow the others, as they do there.
        """
        sizes, how = self.workload.schema.sizes, {"rows": self._many(people), "seed": self.seed}
        held = [table for table in tables if not self.last or table.features in chosen]
        rest = [table for table in tables if self.last and table.features not in chosen]
        if tree_cells(sizes, [table.features for table in held]) > _TREE:
            return self._relaxed(tables, people)
        model = GraphModel.uniform(sizes).fit(held, people, sweeps=60)
        return raked(model, held, rest, people, **how) if rest else model.records(**how)

    def _receipt(self, crowd: Crowd, invite: OnMarginals | None, notes: tuple[str, ...]) -> Receipt:
        """What the groups are promised, and by what; without an invitation everybody trusts."""
        local, rule = None, self.workload.schema.rule
        assumes = [
            self._domain_words("workload"),
            rule,
            "the number of people is public; a person's record is replaced",
        ]
        if invite is not None:
            drawn = f"one report on one of {len(invite.mechanism.marginals)} marginals, drawn on their own device"
            local = Protection(invite.promise, f"{drawn} whatever their data", "no amplification is claimed")
            assumes = [
                releasing.public_choice("record is"),
                releasing.choice_unprotected("record"),
                self._domain_words("questions" if self.choose else "marginals"),
                rule,
                "one blend speaks for both groups: trusted and local people are taken to be alike",
                "devices randomise as stated; a dishonest one shifts a local table by one report's reach over their "
                "number",
            ]
        if self.choose and invite is not None:
            assumes += [releasing.ASKED_BEFORE, "no trusted person answers the invitation"]
        trusted = self.protection if self.trusted_people else None
        return releasing.build_receipt(trusted, local, assumes=(*assumes, *notes), reads="rows", **crowd.made())


def chosen_invite(study: TableTask, tables: Sequence[MeasuredTable]) -> OnMarginals:
    """What devices are asked, by a public rule: the chosen marginals of two columns or more that a report can carry.

    Where there is none, those of one column. `tables` are all that was measured, in its order; what was measured only
    because it is asked (`TableTask.last`) stands at the end. The weight of a marginal is the square root of its number
    of cells: the error of a table grows with its cells, and falls with the square root of those who draw it.
    """
    schema = study.workload.schema
    chosen = tables[: len(tables) - len(study.last)]
    sets = dict.fromkeys(tuple(sorted(t.features)) for t in chosen if t.counts.size <= MOST_REPORTED)
    named = [f for f in sets if len(f) > 1] or list(sets)
    must(bool(named), "marginals", f"must be of at most {MOST_REPORTED} cells for local people", "larger ones")
    asked = Workload(schema, tuple(Threshold(f, len(f)) for f in named))
    weights = tuple(math.isqrt(schema.cells(f)) for f in named)
    return marginal_invite(asked, PureDP(study.guarantee.epsilon), weights)


def table_task(study: Declaration, place: int) -> TableTask:
    question, part = cast(Table, study.questions[place]), study.parts[place]
    assert isinstance(part.everybody, ApproxDP)
    schema = Schema(tuple(one.feature for one in question.features)).counting(question.other)
    workload = listed_workload(schema, question.marginals)
    chosen = "mixed" if study.trust.everyone != "trusted" else question.method or usual_method(workload)
    return TableTask(workload, part.everybody, method=cast(Method, chosen), rows=question.rows)


BUILDERS["table"] = table_task
