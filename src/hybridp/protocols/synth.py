"""Fit a synthetic table: charge a round, measure it, keep what it measured, and only then use it.

The ledger is charged for a round before its statistics are computed, and the round's measurements are saved before
anything is made of them: in the ledger, beside the charge, and then in the folder. A fit that was interrupted goes on
by the same conversation (`hybridp.tasks.table`): rounds that were kept are not measured again, whatever became of the
folder, and a round that was charged but not kept is measured under the same charge, because nobody has seen it.

In two phases, over files: the adaptive method is fitted to the trusted rows (`fit_file`), which pays for its choice of
marginals; `write_invitation` tells devices what it chose, each of which sends one report on one of them at its person's
whole epsilon; `hybridp.protocols.invited.release_invited` blends both, and spends nothing of the trusted people's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hybridp.curator.marginals import Codes, read_groups
from hybridp.curator.sources import Columns, Raw, TableLike, asks, chosen_by, must_not_ask
from hybridp.errors import must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.models import CodePeople
from hybridp.protocols.paying import charge_on_failure, charged, paying
from hybridp.public import envelope
from hybridp.public.budgets import PureDP, warned
from hybridp.public.rounds import Crowd, drive
from hybridp.public.trust import Trusts, drawn_trust
from hybridp.randomness import Randomness, secure, seeded
from hybridp.release.receipt import assuming, noted
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.fits import KeptFit, KeptRounds, Place, untold
from hybridp.tasks.table import Made, Measure, NoSignalWarning, Reported, TableTask, charge_for_reports
from hybridp.tasks.transcript import Transcript, plain_of

__all__ = ["NoSignalWarning", "TableTask", "fit_file", "fit_synth"]


def _begun(
    folder: Place | None, study: TableTask, chosen: str, ledger: Ledger | None, *, new: bool = False
) -> KeptFit | None:
    """The fit that was begun in a folder, if any. Makes nothing, and reads no row.

    Refused is one of another study, of rows that another query, table or rule of trust chose, and another ledger
    than the one that paid for its rounds: a `new` one has not.
    """
    if folder is None or not KeptFit.there(folder):
        return None
    kept = KeptFit.load(folder)
    same = plain_of(replace(kept.task, people=None)) == plain_of(replace(study, people=None))
    kept.must_be(same and kept.chosen_by == chosen)
    paid = set() if ledger is None or new else {entry.collection for entry in ledger.history()}
    unpaid = any(one.collection not in paid for one in _due(kept.task, kept, "")[: len(kept.said.answers)])
    rule = f"must be the one that paid for the {len(kept.said.answers)} rounds"
    none = ledger is None and not new
    must(not kept.said.entries if none else not unpaid, "ledger", rule, "none" if none else "another")
    return kept


@dataclass
class _Fit(KeptRounds):
    """RAW: answers a fit's rounds from what was kept of them or, under their charges, from rows and reports."""

    people: CodePeople
    ledger: Ledger | None = None
    purpose: str = ""

    def said(self, asked: Any, i: int, kept: Any) -> Any:
        return getattr(self, f"_{asked.kind}")(asked, i, kept)

    def _measure(self, asked: Measure, i: int, said: str | None) -> str:
        """What was kept of a round or, under its charge, what the rows say, kept before it is used."""
        kept, ledger = self.kept, self.ledger
        charge, measured = _measured(ledger, kept.task.charges(self.purpose, kept.name)[asked.place], said)
        if measured is None:
            with charged(ledger, [charge], trial=kept.said.simulated):
                measured = asked.plain(self.people.measure(asked))
                if ledger is not None and charge.collection is not None:
                    measured = ledger.keep_measured(charge.collection, measured.encode()).decode()
        if said != measured:
            paid = [] if ledger is None else ledger.history()
            kept.add(i, measured, [e.id for e in paid if e.collection == charge.collection and e.state == "spent"])
        return measured

    def _reported(self, asked: Reported, i: int, said: Any) -> Any:
        """The local people's reports, charged, and kept before they are used; those that were kept are paid for."""
        if said is None:
            own = charge_for_reports(asked.invite, self.purpose, self.people.groups.digest)
            with charged(self.ledger, [own], trial=self.kept.said.simulated) as entries:
                said = asked.plain(self.people.reported(asked))
                self.kept.add(i, said, entries)
        return said

    def made(self, asked: Made) -> Any:
        """Rows that were kept, or that are made and kept now. (A graphical model is not kept: rounds make it again.)"""
        result = self.kept.rows()
        if result is None:
            rounds = len(self.kept.task.plan)
            result = asked.make(lambda part: self.progress(rounds + part, rounds + 1))
            self.kept.save_rows(result)
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
        begun = _begun(folder, study, chosen, books, new=new)  # before a row is read: free

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
    folder charges and measures only what is missing; two calls at the same time are refused. `progress(done, rounds)`
    is called after each round, and in parts of one while rows are fitted.
    """
    groups = people if isinstance(people, Raw) else Raw(people.people, people)
    must(groups.trusted.schema == study.workload.schema, "workload", "must be over the schema of the rows", "another")
    rng, task = secure() if rng is None else rng, study.decided(groups.trusted_people, groups.local_people)
    begun = _begun(folder, study, groups.trusted.chosen_by, ledger)
    return _fit(groups, task, folder, begun, ledger, purpose, rng, **how)


def _due(study: TableTask, begun: KeptFit | None, purpose: str) -> list[Charge]:
    """What trusted people pay, under the name by which the ledger knows the fit; a new one has a name of its own."""
    charges = study.charges(purpose, "a new fit" if begun is None else begun.name)
    return [one for one in charges if one.people == "trusted"]


def _check(
    groups: Raw, task: TableTask, begun: KeptFit | None, ledger: Ledger | None, purpose: str, *, trial: bool
) -> None:
    """Refuse where the ledger cannot pay for all of it, but for reports that the fit has kept."""
    owed = _due(task, begun, purpose)
    if begun is not None:
        begun.must_fit((groups.trusted_people, groups.local_people), groups.digest, simulated=trial)
    if groups.local_people and (begun is None or len(begun.said.answers) <= len(owed)):
        owed.append(charge_for_reports(task.invite, purpose, groups.digest))
    if ledger is not None:
        ledger.check(owed, trial=trial)


def _fit(
    groups: Raw, task: TableTask, folder: Place | None, begun: KeptFit | None, ledger: Ledger | None,
    purpose: str, rng: Randomness, *, progress: Callable[[float, int], None] = untold,
) -> SyntheticModel:  # fmt: skip
    simulated = rng.simulated or groups.simulated_reports
    _check(groups, task, begun, ledger, purpose, trial=simulated)  # what is refused leaves no folder
    warned([task.guarantee], groups.trusted_people + groups.local_people)
    said = Transcript(task, task.workload.schema.names, first_reports=groups.digest, simulated=simulated)
    kept = begun or KeptFit.new(folder, said, groups.trusted.chosen_by, rng.simulated)
    with ExitStack() as stack:
        if kept.path is not None:  # two fits at once would measure a round twice under one charge
            stack.enter_context(envelope.held(kept.path, "out"))
        people = _Fit(kept, CodePeople(groups, rng), ledger, purpose, progress=progress)

        def made() -> dict[str, Any]:
            drawn = seeded(0) if kept.seeded else secure()
            return {"entries": kept.said.entries, "simulated_local": groups.simulated_reports, "rng": drawn}

        crowd = Crowd(said.names, lambda middle: "", made)
        result: SyntheticModel = drive(task.ask(crowd), people)
        result = noted(assuming(result, task.invite.text if groups.assumed else None), groups.notes)
        kept.receipt = result.receipt.to_dict()
        kept.save()
        return result
