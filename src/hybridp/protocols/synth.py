"""Fit a synthetic table: charge a round, measure it, keep what it measured, and only then use it.

The ledger is charged for a round before its statistics are computed, and the round's measurements are saved before
anything is made of them: in the ledger, beside the charge, and then in the folder. A fit that was interrupted goes on
by the same conversation (`hybridp.tasks.table`): rounds that were kept are not measured again, whatever became of the
folder, and a round that was charged but not kept is measured under the same charge, because nobody has seen it.

The folder of a fit holds `transcript.json`, the task and what its rounds released, and `synthetic.npz`, the rows that
follow. Every file is written beside its place and renamed into it, so that it is there whole or not at all. No pickle.

In two phases, over files: the adaptive method is fitted to the trusted rows (`fit_file`), which pays for its choice of
marginals; `write_invitation` tells devices what it chose, each of which sends one report on one of them at its person's
whole epsilon; `hybridp.protocols.invited.release_invited` blends both, and spends nothing of the trusted people's.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from hybridp.curator.marginals import Codes, read_groups
from hybridp.curator.sources import Columns, Raw, TableLike, asks, chosen_by, must_not_ask
from hybridp.errors import InvalidInput, must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.models import CodePeople
from hybridp.protocols.paying import charge_on_failure, charged, paying, warned
from hybridp.public import envelope
from hybridp.public.budgets import PureDP
from hybridp.public.rounds import Answer, Crowd, People, Round, drive
from hybridp.public.synth import MeasuredTable
from hybridp.public.trust import Trusts, drawn_trust
from hybridp.randomness import Randomness, secure, seeded
from hybridp.release.receipt import Receipt, assuming, noted
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.table import Made, Measure, NoSignalWarning, Reported, TableTask, charge_for_reports
from hybridp.tasks.transcript import Transcript, made_of, plain_of, read_invitation

__all__ = ["NoSignalWarning", "TableTask", "fit_file", "fit_synth", "load_model", "save_model"]
__all__ += ["saved_rounds", "write_invitation", "write_model"]

Place = str | PathLike[str]
_KIND = "synthetic data set"
_TRANSCRIPT, _ROWS = "transcript.json", "synthetic.npz"


def _untold(done: float, rounds: int) -> None:
    """Nobody watches."""


# --- what a fit keeps -------------------------------------------------------------------------------------------------


@dataclass
class _Kept:
    """What a fit has released so far; without a path it is kept nowhere, and every fit is a new one.

    The name tells fits apart in the ledger: two fits of one study are two uses of the rows. `chosen_by` is how its rows
    were chosen, `reports` names the local people's, and there is a receipt when the fit has ended.
    """

    path: Path | None
    task: TableTask
    name: str
    chosen_by: str = ""
    seeded: bool = False
    simulated: bool = False
    reports: str | None = None
    entries: tuple[int, ...] = ()
    answers: tuple[Any, ...] = ()
    receipt: Any = None

    @staticmethod
    def load(folder: Place) -> _Kept:
        """What is kept in a folder, as it was written."""
        path = Path(folder)
        try:
            said = envelope.load(path / _TRANSCRIPT, _KIND)
            known = {one.name: said[one.name] for one in fields(_Kept) if one.name != "path"}
            known |= {name: tuple(known[name]) for name in ("entries", "answers")}
            result = _Kept(path, **{**known, "task": made_of(known["task"])})
            if not isinstance(result.task, TableTask) or result.task.people is None:
                raise ValueError
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError, AssertionError):
            pass
        else:
            return result
        raise InvalidInput(f"`model` must be the folder of a synthetic data set, of this version. Got {path}.")

    @staticmethod
    def begun(
        folder: Place | None, study: TableTask, chosen: str, ledger: Ledger | None, *, new: bool = False
    ) -> _Kept | None:
        """The fit that was begun in a folder, if any. Makes nothing, and reads no row.

        Refused is one of another study, of rows that another query, table or rule of trust chose, and another ledger
        than the one that paid for its rounds: a `new` one has not.
        """
        if folder is None or not (Path(folder) / _TRANSCRIPT).is_file():
            return None
        kept = _Kept.load(folder)
        same = plain_of(replace(kept.task, people=None)) == plain_of(replace(study, people=None))
        kept.must_be(same and kept.chosen_by == chosen)
        paid = set() if ledger is None or new else {entry.collection for entry in ledger.history()}
        unpaid = any(one.collection not in paid for one in _due(kept.task, kept, "")[: len(kept.answers)])
        rule = f"must be the one that paid for the {len(kept.answers)} rounds"
        none = ledger is None and not new
        must(not kept.entries if none else not unpaid, "ledger", rule, "none" if none else "another")
        return kept

    @staticmethod
    def new(folder: Place | None, task: TableTask, **facts: Any) -> _Kept:
        """Of a fit that begins, in a new or empty folder."""
        made = _Kept(None if folder is None else Path(folder), task, f"synth-{os.urandom(8).hex()}", **facts)
        if made.path is not None:
            made.path.mkdir(parents=True, exist_ok=True)
            left = [p.name for p in made.path.iterdir()]  # by a fit that died at its start
            empty = all(name == ".lock" or (name.startswith(".") and name.endswith(_TRANSCRIPT)) for name in left)
            must(empty, "out", "must be a new or empty folder, or an interrupted fit", made.path)
            made.save()
        return made

    def must_be(self, same: bool) -> None:
        """Refuse to go on with a fit unless it is the same one."""
        must(same, "out", "must be a new folder, or hold a fit of the same study and rows", self.path)

    def must_fit(self, groups: Raw, *, simulated: bool) -> None:
        """Refuse to go on with another number of people, or other reports."""
        held = groups.trusted_people, groups.local_people
        self.must_be((self.task.people, self.simulated, self.reports) == (held, simulated, groups.digest))

    def save(self) -> None:
        if self.path is not None:
            said = {one.name: getattr(self, one.name) for one in fields(self) if one.name not in ("path", "simulated")}
            said["task"] = plain_of(self.task)
            envelope.save(self.path / _TRANSCRIPT, envelope.sealed(_KIND, said, simulated=self.simulated))

    def add(self, i: int, said: Any, entries: list[int]) -> None:
        """What a round released, before anything is made of it."""
        # A round that is measured again under its charge was perhaps noted before the interruption.
        self.entries = tuple(dict.fromkeys((*self.entries, *entries)))
        self.answers = (*self.answers[:i], said, *self.answers[i + 1 :])
        self.save()

    def _answers(self) -> str:
        return hashlib.sha256(json.dumps(self.answers).encode()).hexdigest()

    def save_rows(self, values: Any) -> None:
        """D', with a name of the answers that it follows from."""
        if self.path is not None:
            out = io.BytesIO()
            np.savez_compressed(out, allow_pickle=False, values=values, answers=np.array(self._answers()))
            envelope.write(self.path / _ROWS, out.getvalue())

    def rows(self) -> Any:
        """The relaxed rows, or records (whole codes), that follow from these very answers; None: there are none."""
        if self.path is None or not (self.path / _ROWS).is_file():
            return None
        import torch

        from hybridp.blend.relaxed import Records, Relaxed

        sizes = self.task.workload.schema.sizes
        try:
            with np.load(io.BytesIO((self.path / _ROWS).read_bytes()), allow_pickle=False) as kept:
                values, answers = kept["values"], str(kept["answers"])
            if answers != self._answers():
                return None
            if values.dtype == np.uint16:
                return Records(values, sizes)
            return Relaxed(torch.from_numpy(values.astype(np.float32)), sizes)
        except (OSError, LookupError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            problem = InvalidInput(f"`model` must hold readable files. Got {self.path} ({type(error).__name__}).")
        raise problem


@dataclass
class _Fit(People):
    """RAW: answers a fit's rounds from what was kept of them and, under their charges, from people's rows and reports.

    Without `people` there is what was kept, and nothing else.
    """

    kept: _Kept
    people: CodePeople | None = None
    ledger: Ledger | None = None
    purpose: str = ""
    device: str = "cpu"
    progress: Callable[[float, int], None] = _untold
    place: int = 0

    def answer(self, asked: Round) -> Any:
        if isinstance(asked, Made):
            return self.made(asked)
        i, total = self.place, len(self.kept.task.plan) + 1
        said = getattr(self, asked.kind)(asked, i, self.kept.answers[i] if i < len(self.kept.answers) else None)
        self.place += 1
        self.progress(min(self.place, total - 1), total)
        rule = "must hold what its study measures, with the noise of its promise: fit it anew in a new folder"
        try:
            return asked.restored(said)
        except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError):
            problem = InvalidInput(f"`model` {rule}. Got another round {i + 1} in {self.kept.path}.")
        raise problem

    def _people(self) -> CodePeople:
        if self.people is None:
            raise InvalidInput(
                f"`model` must be a fit that has ended; call fit again to go on. Got {self.kept.path}."
            )
        return self.people

    def measure(self, asked: Measure, i: int, said: str | None) -> str:
        """What was kept of a round or, under its charge, what the rows say, kept before it is used."""
        kept, ledger = self.kept, self.ledger
        charge, measured = _measured(ledger, kept.task.charges(self.purpose, kept.name)[asked.place], said)
        if measured is None:
            people = self._people()
            with charged(ledger, [charge], trial=kept.simulated):
                measured = asked.plain(people.measure(asked))
                if ledger is not None and charge.collection is not None:
                    measured = ledger.keep_measured(charge.collection, measured.encode()).decode()
        if said != measured:
            paid = [] if ledger is None else ledger.history()
            kept.add(i, measured, [e.id for e in paid if e.collection == charge.collection and e.state == "spent"])
        return measured

    def reported(self, asked: Reported, i: int, said: Any) -> Any:
        """The local people's reports, charged, and kept before they are used; those that were kept are paid for."""
        if said is None:
            people = self._people()
            own = charge_for_reports(asked.invite, self.purpose, people.groups.digest)
            with charged(self.ledger, [own], trial=self.kept.simulated) as entries:
                said = asked.plain(people.reported(asked))
                self.kept.add(i, said, entries)
        return said

    def made(self, asked: Made) -> Any:
        """Rows that were kept, or that are made and kept now. (A graphical model is not kept: rounds make it again.)"""
        result = self.kept.rows()
        if result is None:
            self._people()
            rounds = len(self.kept.task.plan)
            result = asked.make(self.device, lambda part: self.progress(rounds + part, rounds + 1))
            self.kept.save_rows(result.numpy())
            self.progress(rounds + 1, rounds + 1)
        return result


def _measured(ledger: Ledger | None, charge: Charge, said: str | None) -> tuple[Charge, str | None]:
    """The charge of a round, and what was measured under it; None where nobody has measured under that charge yet.

    What was measured lives with its charge in the ledger: a folder without it is filled again, never measured again.
    Of a measurement too large for that the ledger knows the digest: where the folder has lost it, the charge is anew.
    """
    first, again = charge.collection, 1
    if ledger is None:
        return charge, said
    while (kept := ledger.measured(charge.collection or "")) is not None:
        digest, content = kept
        if content is not None:
            return charge, content.decode()
        if said is not None and hashlib.sha256(said.encode()).hexdigest() == digest:
            return charge, said
        again += 1
        charge = replace(charge, collection=f"{first}, again {again}")
    return charge, None


# --- fits -------------------------------------------------------------------------------------------------------------


def fit_file(
    path: TableLike,
    study: TableTask,
    trust: Trusts | None = None,
    *,
    folder: Place | None = None,
    table: str | None = None,
    simulate_local: bool = False,
    assume_mechanism: bool = False,
    ledger: Ledger | Place | None = None,
    purpose: str = "synthetic data",
    rng: Randomness | None = None,
    **how: Any,
) -> SyntheticModel:
    """`fit_synth` on a file or, where `trust` says who trusts, on trusted rows and local reports (`method` "mixed").

    No row is refused: the schema declares what a field counts as that it does not list. With `simulate_local` local
    rows are raw and randomised here: a trial, and marked as such. What is refused for rows is refused where the ledger
    can be charged for it; so is a budget that cannot pay for local reports: which there are, a query may have chosen by
    a value. A `ledger` that is not there is made when it is known whether the reports are a trial's.
    """
    rng = secure() if rng is None else rng
    columns, chosen = Columns(study.workload.schema.names, trust, words=True), chosen_by(path, table, trust)
    study = study.prepared(columns)
    totals: dict[str, Any] = {"trusted": study.guarantee}
    if study.both or study.method == "adaptive":  # which may invite local people, who are charged in the same ledger
        totals["local"] = PureDP(study.guarantee.epsilon)
    reads: dict[str, Any] = {"local_raw": simulate_local or drawn_trust(trust), "assume": assume_mechanism}
    new = ledger is not None and not isinstance(ledger, Ledger) and not Path(ledger).exists()
    with ExitStack() as stack:
        books = None
        if trust is None or not new:
            books = stack.enter_context(paying(ledger, totals, trial=rng.simulated))
        else:
            must_not_ask(path, "no ledger is there to pay for its failure", "`hybridp ledger create` makes one")
        begun = _Kept.begun(folder, study, chosen, books, new=new)  # before a row is read: free

        def read() -> tuple[Raw, TableTask]:
            invite = study.named(())
            groups = read_groups(path, study.workload.schema, columns, invite, table=table, rng=rng, **reads)
            some = groups.trusted_people > 0 or not asks(path)
            must(some, "query", "must leave somebody who trusts: nobody else pays for what it tells", "nobody")
            task = study.decided(groups.trusted_people, groups.local_people)
            _check(groups, task, begun, books, purpose, trial=rng.simulated or groups.simulated_reports)
            return groups, task

        trial = rng.simulated if trust is None else books is not None and books.trial  # reports may be a trial's
        groups, task = charge_on_failure(read, books, _due(study, begun, purpose), trial=trial, path=path)
        if books is None and new:
            books = stack.enter_context(paying(ledger, totals, trial=rng.simulated or groups.simulated_reports))
        return _fit(groups, task, folder, begun, books, purpose, rng, **how)


def fit_synth(
    people: Codes | Raw,
    study: TableTask,
    *,
    folder: Place | None = None,
    ledger: Ledger | None = None,
    purpose: str = "synthetic data",
    rng: Randomness | None = None,
    **how: Any,
) -> SyntheticModel:
    """Fit a synthetic data set to people's rows, of both groups perhaps, or go on with a fit that was interrupted.

    Trusted people: the study's (epsilon, delta) against whoever sees the model, under replacement of their record, one
    record a person, by zCDP over all rounds; the number of people is public. Local people: the epsilon of their own
    report, against everyone. With `folder`, every round is saved there, and a second call with the same study and
    folder charges and measures only what is missing; two calls at the same time are refused. `how` may name a `device`,
    and `progress(done, rounds)`, which is called after each round, and in parts of one while rows are fitted.
    """
    groups = people if isinstance(people, Raw) else Raw(people.people, people)
    must(groups.trusted.schema == study.workload.schema, "workload", "must be over the schema of the rows", "another")
    rng, task = secure() if rng is None else rng, study.decided(groups.trusted_people, groups.local_people)
    begun = _Kept.begun(folder, study, groups.trusted.chosen_by, ledger)
    return _fit(groups, task, folder, begun, ledger, purpose, rng, **how)


def _due(study: TableTask, begun: _Kept | None, purpose: str) -> list[Charge]:
    """What trusted people pay, under the name by which the ledger knows the fit; a new one has a name of its own."""
    charges = study.charges(purpose, "a new fit" if begun is None else begun.name)
    return [one for one in charges if one.people == "trusted"]


def _check(
    groups: Raw, task: TableTask, begun: _Kept | None, ledger: Ledger | None, purpose: str, *, trial: bool
) -> None:
    """Refuse where the ledger cannot pay for all of it, but for reports that the fit has kept."""
    owed = _due(task, begun, purpose)
    if begun is not None:
        begun.must_fit(groups, simulated=trial)
    if groups.local_people and (begun is None or len(begun.answers) <= len(owed)):
        owed.append(charge_for_reports(task.invite, purpose, groups.digest))
    if ledger is not None:
        ledger.check(owed, trial=trial)


def _fit(
    groups: Raw, task: TableTask, folder: Place | None, begun: _Kept | None, ledger: Ledger | None,
    purpose: str, rng: Randomness, *, device: str = "cpu", progress: Callable[[float, int], None] = _untold,
) -> SyntheticModel:  # fmt: skip
    simulated = rng.simulated or groups.simulated_reports
    _check(groups, task, begun, ledger, purpose, trial=simulated)  # what is refused leaves no folder
    warned([task.guarantee], groups.trusted_people + groups.local_people)
    facts: dict[str, Any] = {"chosen_by": groups.trusted.chosen_by, "reports": groups.digest, "simulated": simulated}
    kept = begun or _Kept.new(folder, task, **facts, seeded=rng.simulated)
    with ExitStack() as stack:
        if kept.path is not None:  # two fits at once would measure a round twice under one charge
            stack.enter_context(envelope.held(kept.path, "out"))
        people = _Fit(kept, CodePeople(groups, rng), ledger, purpose, device, progress)
        crowd = _crowd(task, kept.seeded, lambda: kept.entries, local=groups.simulated_reports)
        result: SyntheticModel = drive(task.ask(crowd), people)
        result = noted(assuming(result, task.invite.text if groups.assumed else None), groups.notes)
        kept.receipt = result.receipt.to_dict()
        kept.save()
        return result


def _crowd(
    task: TableTask, trial: bool = False, entries: Callable[[], tuple[int, ...]] = tuple, *, local: bool = False
) -> Crowd:
    """What a receipt says of noise and charges: whether a seed drew the noise, or local reports for a trial."""

    def made() -> dict[str, Any]:
        return {"entries": entries(), "simulated_local": local, "rng": seeded(0) if trial else secure()}

    return Crowd(task.workload.schema.names, lambda middle: "", made)


def saved_rounds(folder: Place) -> int:
    """How many rounds of a fit are in a folder."""
    return len(_Kept.load(folder).answers) if (Path(folder) / _TRANSCRIPT).is_file() else 0


# --- other doors ------------------------------------------------------------------------------------------------------


def load_model(folder: Place) -> SyntheticModel:
    """A saved model; a fit that did not come to its end is refused."""
    return _loaded(_Kept.load(folder))


def _loaded(kept: _Kept) -> SyntheticModel:
    people = _Fit(kept)
    result: SyntheticModel = drive(kept.task.ask(_crowd(kept.task)), people)
    if kept.receipt is None:
        people._people()
    return replace(result, receipt=Receipt.of(kept.receipt))


def save_model(model: SyntheticModel, folder: Place) -> SyntheticModel:
    """A model that was released by other means, in a new folder, as a fit would keep it."""
    must(not Path(folder).exists(), "model", "must be a new folder", folder)
    marks: dict[str, Any] = {"seeded": model.simulated, "simulated": model.simulated}
    answers = tuple(asked.plain(answer) for asked, answer in model.said)
    try:
        kept = _Kept.new(folder, model.study, **marks, entries=model.receipt.ledger_entries, answers=answers)
        kept.save_rows(model.data.numpy())
        kept.receipt = model.receipt.to_dict()
        kept.save()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # it was released, and is saved again, whole
        raise
    return model


def write_invitation(model: Place, out: Path) -> Transcript:
    """The invitation of a fit that has ended, by the adaptive method, to the trusted rows. Free: it was paid for."""
    must(out.parent.is_dir() and not out.exists(), "out", "must name a new file in an existing folder", out)
    kept = _Kept.load(model)
    _loaded(kept)  # a fit that has not ended is refused
    kind = "both groups'" if kept.task.both else kept.task.method
    must(kind == "adaptive", "model", "must be fitted by --method adaptive to the trusted rows", kind)
    task = replace(kept.task, choose=True)
    more: dict[str, Any] = {"answers": kept.answers, "entries": kept.entries, "simulated": kept.simulated}
    envelope.save(out, Transcript(task, task.workload.schema.names, **more).document(), new=True)
    return read_invitation(out)


def write_model(release: Mapping[str, Any], folder: Place) -> SyntheticModel:
    """The model of a release that the service made of a table, fitted and saved in a new folder. Free: it was paid for.

    `release` is the document. What it says must fit the study that stands in it.
    """
    try:
        ((told,),) = [list(facts.values()) for facts in release["questions"].values()]
        said, task = told["model"], made_of(told["model"]["study"])
        sizes, receipt = task.workload.schema.sizes, Receipt.of(release["receipt"])
        tables = []
        for one in said["trusted_tables"]:
            counts = np.array(one["counts"], dtype=np.int64).reshape([sizes[f] for f in one["features"]])
            tables.append(MeasuredTable(tuple(one["features"]), counts, float(one["sigma"])))
        result: SyntheticModel = drive(task.ask(_crowd(task)), _Released(tables, said["local_reports"]))
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InvalidInput("`release` must be the document of a synthetic table's release. Got another.") from None
    return save_model(replace(result, receipt=receipt), folder)


@dataclass
class _Released(People):
    """Both groups, as a release tells what they said."""

    tables: list[MeasuredTable]
    reports: Any

    def measure(self, asked: Measure) -> list[MeasuredTable]:
        return asked.restored(asked.plain(self.tables))

    def reported(self, asked: Reported) -> Answer:
        return asked.restored(self.reports)
