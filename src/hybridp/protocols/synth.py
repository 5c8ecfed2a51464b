"""Fit a synthetic data set in rounds: charge, measure, save, project.

The ledger is charged for a round before its statistics are computed, and the round's measurements are saved before
anything is made of them: in the ledger, beside the charge, and then in the folder. A fit that was interrupted goes on:
rounds that were kept are not measured again, whatever became of the folder, and a round that was charged but not kept
is measured under the same charge, because nobody has seen it.
"""

from __future__ import annotations

import hashlib
import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

from hybridp.blend.graph import GraphModel, tree_cells
from hybridp.blend.raking import raked
from hybridp.curator import synth as curating
from hybridp.curator.sources import TableLike, chosen_by
from hybridp.curator.synth import Codes
from hybridp.errors import InvalidInput, must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.paying import looked, spending, warned
from hybridp.protocols.synth_files import Folder, packed, unpacked
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.queries import MOST_CELLS, Workload
from hybridp.public.synth import (
    MODEL_CELLS,
    MeasuredTable,
    Round,
    adaptive_count,
    adaptive_rounds,
    candidates,
    cumulative_epsilons,
    measured_last,
    table_rounds,
    total_rho,
)
from hybridp.public.synth_reports import MarginalInvite
from hybridp.randomness import Randomness, secure
from hybridp.release.receipt import Protection, build_receipt
from hybridp.release.synth import SyntheticModel

if TYPE_CHECKING:
    from hybridp.blend.relaxed import Records, Relaxed

    State = Relaxed | Records | GraphModel

__all__ = ["PILOT", "Method", "NoSignalWarning", "SynthStudy", "fit_file", "fit_synth", "load_model"]
__all__ += ["measured_once"]

Method = Literal["tables", "adaptive", "mixed"]
PILOT = "pilot"  # In a saved study: the invitation by which local people joined a fit to the trusted rows.
_LEAST_RECORDS, _MOST_RECORDS = 1 << 15, 1 << 20  # Few records scatter around the model that they are drawn from.
_ONE_THREAD = 1 << 20  # Tables up to this many cells are fitted faster by one thread than by threads that wait.


class NoSignalWarning(UserWarning):
    """The budget is so small that the noise hides every answer."""


@dataclass(frozen=True)
class SynthStudy:
    """Everything that is decided, and public, before a row is read.

    `method` "tables" measures all whole marginals of the workload; "adaptive" chooses one marginal in each of `rounds`
    rounds (`adaptive_count` unless given), fits a graphical model, and has records (twice as many as people, at least
    2^15 and `rows`) drawn, which follow all that is asked where that is measured at the end (`last`); "mixed" is that
    of `hybridp.protocols.synth_mixed`, where local people take part. `rows` is n', and `seed` the public start of D',
    or of the records.
    """

    workload: Workload
    guarantee: ApproxDP
    method: Method = "tables"
    rounds: int = 0
    rows: int = 1000
    seed: int = 0
    most_cells: int = MOST_CELLS

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
        }

    @staticmethod
    def from_dict(kept: dict[str, Any]) -> SynthStudy:
        from hybridp.public.queries import Schema, Threshold

        thresholds = tuple(Threshold(tuple(t["features"]), int(t["r"])) for t in kept["thresholds"])
        names = ("method", "rounds", "rows", "seed", "most_cells")
        rest = {name: kept[name] for name in names}
        workload = Workload(Schema.from_dict(kept["schema"]), thresholds)
        return SynthStudy(workload, ApproxDP(kept["epsilon"], kept["delta"]), **rest)


def fit_file(
    path: TableLike,
    study: SynthStudy,
    *,
    folder: str | PathLike[str] | None = None,
    table: str | None = None,
    ledger: Ledger | None = None,
    purpose: str = "synthetic data",
    rng: Randomness | None = None,
) -> SyntheticModel:
    """`fit_synth` on a file. No row is refused: the schema declares what a field counts as that it does not list."""
    codes = paid_codes(path, study, folder=folder, table=table, ledger=ledger, purpose=purpose, rng=rng)
    return fit_synth(codes, study, folder=folder, ledger=ledger, purpose=purpose, rng=rng)


def paid_codes(
    path: TableLike,
    study: SynthStudy,
    *,
    folder: str | PathLike[str] | None,
    table: str | None,
    ledger: Ledger | None,
    purpose: str,
    rng: Randomness | None,
) -> Codes:
    """The rows of a file for `fit_synth`. What is refused for them is refused here, where a ledger can be charged."""
    trial = rng is not None and rng.simulated
    begun = Folder.begun(folder, study.to_dict(), chosen_by(path, table))  # before a row is read, so that it is free
    charges = study.charges(Folder.name_of(begun), purpose)

    def read() -> Codes:
        codes = curating.read_codes(path, study.workload.schema, table=table, declared=True)
        _must_be_two(codes)
        Folder.must_fit(begun, codes.people, simulated=trial)
        return codes

    return looked(read, ledger, charges, trial=trial, path=path)


def _must_be_two(codes: Codes) -> None:
    must(codes.people >= 2, "people", "must be at least 2", codes.people)


def fit_synth(
    codes: Codes,
    study: SynthStudy,
    *,
    folder: str | PathLike[str] | None = None,
    ledger: Ledger | None = None,
    purpose: str = "synthetic data",
    device: str = "cpu",
    progress: Callable[[float, int], None] = lambda done, rounds: None,
    rng: Randomness | None = None,
) -> SyntheticModel:
    """Fit a synthetic data set to people's rows, or go on with a fit that was interrupted.

    Everybody in the rows is promised the study's (epsilon, delta) under replacement of their record, one record a
    person, by zCDP over all rounds; the number of people is public. With `folder`, every round is saved there, and a
    second call with the same study and folder charges and measures only what is missing; two calls at the same time
    are refused. `progress(done, rounds)` is called after each round, and in parts of one while rows are fitted.
    """
    rng = secure() if rng is None else rng
    alone = study.method != "mixed"
    must(alone, "method", "must be one for trusted rows; both groups are fitted by fit_mixed", "mixed")
    must(codes.schema == study.workload.schema, "workload", "must be over the schema of the rows", "another")
    _must_be_two(codes)
    plan = study.plan
    notes = _no_signal(study, plan, codes.people)
    warned([study.guarantee], codes.people)
    for note in notes:
        warnings.warn(note, NoSignalWarning, stacklevel=2)
    if ledger is not None:  # what is refused leaves no folder
        name = Folder.name_of(Folder.begun(folder, study.to_dict(), codes.chosen_by))
        ledger.check(study.charges(name, purpose), trial=rng.simulated)
    opened = Folder.open(folder, study.to_dict(), codes.chosen_by, people=codes.people, simulated=rng.simulated)
    cells = [study.workload.schema.cells(f) for use in plan for f in use.tables]
    small = max(cells, default=0) <= _ONE_THREAD
    from hybridp.blend.relaxed.data import one_thread

    with opened as place, one_thread(small and device == "cpu"):
        return _fit(codes, study, place, notes, ledger, purpose, device, progress, rng)


def _fit(
    codes: Codes,
    study: SynthStudy,
    place: Folder,
    notes: list[str],
    ledger: Ledger | None,
    purpose: str,
    device: str,
    progress: Callable[[float, int], None],
    rng: Randomness,
) -> SyntheticModel:
    plan = study.plan
    charges = study.charges(place.name, purpose)
    data, done = place.synthetic(study.workload.schema.sizes)
    state = _start(study) if data is None else data
    if not isinstance(state, GraphModel):
        state = state.to(device)
    sources = rng.spawn(len(plan))
    measured: list[Any] = []
    for i, use in enumerate(plan):
        measured += measured_once(
            study, place, i, done, charges[i], ledger,
            lambda: _measure(codes, study, use, state, measured, sources[i]),  # noqa: B023
            trial=rng.simulated,
        )  # fmt: skip
        if i >= done:
            moved = lambda part: progress(i + part, len(plan))  # noqa: B023, E731
            state = _project(state, study, measured, codes.people, i, moved)
            # A graphical model is not kept: what was measured makes the same one again.
            if not isinstance(state, GraphModel):
                place.save_synthetic(state.numpy(), i + 1)
        progress(i + 1, len(plan))
    assert not isinstance(state, GraphModel)
    return _model(study, place, state.to("cpu"), measured, tuple(notes))


def measured_once(
    study: SynthStudy,
    place: Folder,
    i: int,
    done: int,
    charge: Charge,
    ledger: Ledger | None,
    measure: Callable[[], list[MeasuredTable]],
    *,
    trial: bool,
) -> list[Any]:
    """What a round measured: what was kept of it or, under its charge, what `measure` finds, kept before it is used."""
    charge, content = _kept_round(ledger, charge, place, i)
    if content is None:
        _must_be_new(place, i, done, len(study.plan))
        with spending(ledger, [charge], trial=trial) as entries:
            content = packed(measure())
            if ledger is not None and charge.collection is not None:
                content = ledger.keep_measured(charge.collection, content)
            place.save_measured(i, content, entries or _paid_before(ledger, charge))
    elif place.saved(i) != content:
        place.save_measured(i, content, _paid_before(ledger, charge))
    return _as_planned(study, place, i, unpacked(content))


def _as_planned(study: SynthStudy, place: Folder, i: int, found: list[Any]) -> list[Any]:
    """What a round of this very plan measured. Rounds of another one, as of another version, are never gone on with."""
    rule = "must hold what its study measures, with the noise of its promise: fit it anew in a new folder"
    must(study.plan[i].planned(found), "model", rule, f"another round {i + 1} in {place.path}")
    return found


def _start(study: SynthStudy) -> Relaxed | GraphModel:
    sizes = study.workload.schema.sizes
    if study.method == "adaptive":
        return GraphModel.uniform(sizes)
    from hybridp.blend.relaxed import start

    return start(study.rows, sizes, seed=study.seed)


def _kept_round(ledger: Ledger | None, charge: Charge, place: Folder, i: int) -> tuple[Charge, bytes | None]:
    """The charge of a round, and what was measured under it; None where nobody has measured under that charge yet.

    What was measured lives with its charge in the ledger: a folder without it is filled again, never measured again.
    Of a measurement too large for that the ledger knows the digest: where the folder has lost it, the charge is anew.
    """
    saved, first, again = place.saved(i), charge.collection, 1
    if ledger is None:
        return charge, saved
    while (kept := ledger.measured(charge.collection or "")) is not None:
        digest, content = kept
        if content is None and saved is not None and hashlib.sha256(saved).hexdigest() == digest:
            content = saved
        if content is not None:
            return charge, content
        again += 1
        charge = replace(charge, collection=f"{first}, again {again}")
    return charge, None


def _paid_before(ledger: Ledger | None, charge: Charge) -> list[int]:
    """The entries of a round that was charged before an interruption."""
    if ledger is None:
        return []
    return [e.id for e in ledger.history() if e.collection == charge.collection and e.state == "spent"]


def _must_be_new(place: Folder, i: int, done: int, rounds: int) -> None:
    """A round whose results were used has been seen: measuring it again would be a second use of the rows."""
    if i < done or place.saved_after(i, rounds):
        raise InvalidInput(
            f"`model` must hold all rounds that it was made from. Got {place.path} without round {i + 1}."
        )


def load_model(folder: str | PathLike[str]) -> SyntheticModel:
    """A saved model; a fit that did not come to its end is refused."""
    place = Folder.load(folder)
    study = _kept_study(place)
    if study.method == "mixed" or PILOT in place.study:
        from hybridp.protocols.synth_mixed import loaded

        return loaded(study, place)
    (data, done), plan = place.synthetic(study.workload.schema.sizes), study.plan
    measured: list[Any] = []
    for i in range(len(plan)):
        found = place.measured(i)
        if found is None:
            _must_be_new(place, i, done, len(plan))
        measured += [] if found is None else _as_planned(study, place, i, found)
    if data is None or done < len(plan):
        raise InvalidInput(f"`model` must be a fit that has ended; call fit again to go on. Got {Path(folder)}.")
    return _model(study, place, data, measured, tuple(_no_signal(study, plan, place.people)))


def _kept_study(place: Folder) -> SynthStudy:
    try:
        return SynthStudy.from_dict(place.study)
    except (KeyError, TypeError, ValueError) as error:
        problem = InvalidInput(
            f"`model` must be the folder of a synthetic data set. Got {place.path} ({type(error).__name__})."
        )
    raise problem


# --- one round --------------------------------------------------------------------------------------------------------


def _measure(
    codes: Codes, study: SynthStudy, use: Round, state: State, before: list[MeasuredTable], rng: Randomness
) -> list[MeasuredTable]:
    """The only step that looks at the rows."""
    if use.tables:
        return [curating.measure_table(codes, features, use.sigma, rng=rng) for features in use.tables]
    assert isinstance(state, GraphModel)
    features = _worst_table(codes, study, use, state, before, rng)
    return [curating.measure_table(codes, features, use.sigma, rng=rng)]


def _worst_table(
    codes: Codes, study: SynthStudy, use: Round, model: GraphModel, before: list[Any], rng: Randomness
) -> tuple[int, ...]:
    """The marginal to measure: the one that would bring the model nearest, by the exponential mechanism.

    What may be chosen is public: whatever leaves the model small enough.
    """
    schema = study.workload.schema
    named = [c for c in candidates(study.workload) if len(c) == 1 or schema.cells(c) <= MODEL_CELLS]
    scores = [curating.gain(codes, c, model.table(c), use.sigma) for c in named]
    known = {tuple(sorted(table.features)) for table in before}

    def fits(i: int) -> bool:
        return tree_cells(schema.sizes, {*known, named[i]}) <= MODEL_CELLS

    found = curating.pick_table(scores, use.select_rho, fits, rng=rng)
    assert found is not None  # one-way marginals always fit
    return named[found]


def _project(
    state: State, study: SynthStudy, measured: list[Any], people: int, i: int, moved: Callable[[float], None]
) -> State:
    """The projection on everything measured up to round i. Post-processing."""
    from hybridp.blend.relaxed import Records, Relaxed
    from hybridp.blend.synth import Fit, fit_tables

    first, last = i == 0, i == len(study.plan) - 1
    if isinstance(state, GraphModel):
        rows, sizes = min(max(study.rows, 2 * people, _LEAST_RECORDS), _MOST_RECORDS), study.workload.schema.sizes
        if last and (new := len(study.last)):
            parts = measured[:-new], measured[-new:]
            return Records(raked(state, *parts, people, rows=rows, seed=study.seed, moved=moved), sizes)
        model = state.fit(measured, people, sweeps=60 if last else 12)
        return Records(model.records(rows, seed=study.seed), sizes) if last else model
    assert isinstance(state, Relaxed)
    fit = Fit(steps=60, learning_rate=0.05) if first and not last else Fit()
    return fit_tables(state, measured, people, fit, moved=moved)


def _no_signal(study: SynthStudy, plan: tuple[Round, ...], people: int) -> list[str]:
    """What hides every answer: a cell that must be more than half of the people to be seen."""
    for use in plan:
        if (hidden := use.hidden(study.workload.schema)) > people / 2:
            return [
                f"The budget leaves no signal: with {study.guarantee} for {people:,} people, the noise of {use.words} "
                f"hides every share below {hidden / people:.2g}; ask fewer queries, of more people, or with a larger "
                "epsilon."
            ]
    return []


def _model(
    study: SynthStudy, place: Folder, data: Relaxed | Records, measured: list[MeasuredTable], notes: tuple[str, ...]
) -> SyntheticModel:
    receipt = build_receipt(
        study.protection,
        None,
        assumes=(
            place.domain_words("workload"),
            study.workload.schema.rule,
            "the number of people is public; a person's record is replaced",
            *notes,
        ),
        randomness=place.randomness,
        seeded=place.simulated,
        reads="rows",
        entries=place.entries,
    )
    return SyntheticModel(study.workload, place.people, study.method, data, tuple(measured), receipt)
