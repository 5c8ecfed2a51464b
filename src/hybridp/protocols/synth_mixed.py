"""A synthetic data set of people who trust differently, from a table of trusted rows and local reports.

1. Everyone may know: the schema, the marginals, the epsilon.
2. Each local person's device draws one marginal and sends one report on it (`hybridp.device.shares`).
3. The ledger is charged, once for each group.
4. The curator measures all marginals of the trusted rows as one vector, and adds up the reports on each. Or the trusted
   people were asked before, and chose the marginals (`hybridp.protocols.synth_chosen`): their rows are not read again.
5. The blend weighs the groups cell by cell, and one model is fitted to all tables. No further privacy is spent.
"""

from __future__ import annotations

import shutil
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridp.blend.graph import GraphModel, tree_cells
from hybridp.blend.raking import raked
from hybridp.blend.tables import BlendedTable, blend_tables, pooled
from hybridp.curator import synth as curating
from hybridp.curator.sources import TableLike, asks, chosen_by
from hybridp.curator.synth_groups import GroupCodes, read_groups
from hybridp.device.shares import simulated_marginals
from hybridp.errors import InvalidInput, must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.paying import ASKED_BEFORE, looked, spending, warned
from hybridp.protocols.synth import PILOT, NoSignalWarning, SynthStudy, measured_once
from hybridp.protocols.synth_chosen import Invitation, chosen_invite
from hybridp.protocols.synth_files import Folder, packed
from hybridp.public.shares import ShareReports
from hybridp.public.synth import MeasuredTable, significance
from hybridp.public.synth_reports import MarginalInvite, MarginalReports
from hybridp.public.trust import Trusts, drawn_trust
from hybridp.randomness import Randomness, secure, seeded
from hybridp.release.facts import statistic
from hybridp.release.receipt import (
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

__all__ = ["charge_for_reports", "fit_groups", "fit_mixed", "loaded", "publish_mixed", "write_model"]

_TREE = 1 << 22  # Cells of the largest graphical model; marginals that need more are fitted by relaxed rows.
_MOST_RECORDS = 1 << 20


@dataclass(frozen=True)
class _About:
    """What is public about both groups, kept with the reports."""

    trusted: int
    simulated_local: bool
    seeded: bool
    assumed: bool
    notes: tuple[str, ...]
    digest: str | None = None  # of the reports


def fit_mixed(
    path: TableLike,
    study: SynthStudy,
    trust: Trusts,
    *,
    folder: str | PathLike[str] | None = None,
    table: str | None = None,
    simulate_local: bool = False,
    assume_mechanism: bool = False,
    ledger: Ledger | None = None,
    purpose: str = "synthetic data",
    rng: Randomness | None = None,
) -> SyntheticModel:
    """Fit a synthetic data set (`method` "mixed") to trusted rows and local reports of one table.

    Trusted people: the study's (epsilon, delta) against whoever sees the model, under replacement of their record, by
    zCDP. Local people: the epsilon of their own report, against everyone. With `simulate_local` local rows are raw and
    randomised here: a trial, and marked as such. Folders and interruptions: as in `fit_synth`.
    """
    rng = secure() if rng is None else rng
    raw = simulate_local or drawn_trust(trust)
    how: dict[str, Any] = {"table": table, "local_raw": raw, "assume": assume_mechanism}
    groups = paid_groups(path, study, trust, folder=folder, ledger=ledger, purpose=purpose, rng=rng, **how)
    return fit_groups(groups, study, folder=folder, ledger=ledger, purpose=purpose, rng=rng)


def paid_groups(
    path: TableLike,
    study: SynthStudy,
    trust: Trusts,
    *,
    folder: str | PathLike[str] | None,
    ledger: Ledger | None,
    purpose: str,
    rng: Randomness,
    **how: Any,
) -> GroupCodes:
    """Both groups for `fit_groups`. What is refused for their rows is refused here, where a ledger can be charged.

    So is a budget that cannot pay for their reports: which reports there are, a query may have chosen by a value.
    """
    trial = ledger is not None and ledger.trial  # reports may say that they are a trial's
    begun = Folder.begun(folder, study.to_dict(), chosen_by(path, how.get("table"), trust))

    def read() -> GroupCodes:
        groups = read_groups(path, study.invite, trust, rng=rng, **how)
        _must_have_local(groups)
        some = groups.trusted.people > 0 or not asks(path)
        must(some, "query", "must leave somebody who trusts: nobody else pays for what it tells", "nobody")
        Folder.must_fit(begun, groups.people, simulated=rng.simulated or groups.simulated)
        _owed(groups, study, begun, ledger, purpose, trial=rng.simulated or groups.simulated)
        return groups

    return looked(read, ledger, study.charges(Folder.name_of(begun), purpose), trial=trial, path=path)


def _owed(
    groups: GroupCodes, study: SynthStudy, begun: Folder | None, ledger: Ledger | None, purpose: str,
    invitation: Invitation | None = None, *, trial: bool,
) -> tuple[list[Charge], Charge, MarginalReports | None]:  # fmt: skip
    """What the fit charges for trusted people and for reports, and the reports that it has kept, which are paid for.

    Refused where the ledger cannot pay for all of it. Trusted people whom an invitation heard have paid before.
    """
    invite = study.invite if invitation is None else invitation.invite
    kept = _kept_local(begun, invite, groups)
    own = charge_for_reports(invite, purpose, groups.digest)
    again = invitation is None and groups.trusted.people > 0
    charges = study.charges(Folder.name_of(begun), purpose) if again else []
    if ledger is not None:
        ledger.check([*charges, *([own] if kept is None else [])], trial=trial)
    return charges, own, kept


def fit_groups(
    groups: GroupCodes,
    study: SynthStudy,
    *,
    invitation: Invitation | None = None,
    folder: str | PathLike[str] | None = None,
    ledger: Ledger | None = None,
    purpose: str = "synthetic data",
    rng: Randomness,
) -> SyntheticModel:
    """`fit_mixed` on groups that have been read.

    With an `invitation`, whose study this is, the trusted people chose before (`groups` are those of `read_groups` with
    `pilot`): they pay nothing more, no row of theirs is read, and local people spend the epsilon of their own report.
    """
    _must_have_local(groups)
    must(groups.trusted.schema == study.workload.schema, "workload", "must be over the schema of the rows", "another")
    named, rows, trusted = study.to_dict(), groups.trusted.chosen_by, groups.trusted.people
    if invitation is None:
        must(study.method == "mixed", "method", "must be mixed for people who trust differently", study.method)
        invite, trial = study.invite, False
    else:
        invitation.must_be_paid_by(ledger)
        invite, trial, trusted = invitation.invite, invitation.simulated, invitation.trusted
        named[PILOT] = invitation.digest
    people, simulated = trusted + groups.local_people, rng.simulated or groups.simulated or trial
    warned([study.guarantee], people if invitation is None else trusted)
    if invitation is not None:  # what is refused leaves no folder
        _owed(groups, study, Folder.begun(folder, named, rows), ledger, purpose, invitation, trial=simulated)
    with Folder.open(folder, named, rows, people=people, simulated=simulated) as place:
        about = _about(groups, trusted, seeded=rng.simulated or trial)
        charges, own, kept = _owed(groups, study, place, ledger, purpose, invitation, trial=simulated)
        source, drawn = rng.spawn(2) if invitation is None else (rng, rng)
        tables: list[MeasuredTable] = []
        if invitation is not None:
            tables = invitation.tables
            if invitation.read_from_rows:
                place.say_read_from_rows(invitation.read_from_rows)
            for i, content in enumerate(invitation.rounds):
                if place.saved(i) != content:
                    place.save_measured(i, content, list(invitation.entries))
        elif charges:
            (use,), (charge,) = study.plan, charges
            tables = measured_once(
                study, place, 0, int(kept is not None), charge, ledger,
                lambda: [curating.measure_table(groups.trusted, f, use.sigma, rng=source) for f in use.tables],
                trial=simulated,
            )  # fmt: skip
        reports = kept or _heard(groups, invite, place, own, about, ledger, simulated, drawn)
        return _fitted(study, invite, place, tables, reports, about, place.synthetic(study.workload.schema.sizes)[0])


def _must_have_local(groups: GroupCodes) -> None:
    if not groups.local_people:
        raise InvalidInput(
            "`trust` must be left out where everybody trusts the curator, or say in a study file: everyone = "
            '"trusted". Got no local row.'
        )


def _about(groups: GroupCodes, trusted: int, *, seeded: bool) -> _About:
    return _About(trusted, groups.simulated, seeded, groups.assumed, groups.notes, groups.digest)


def _kept_local(place: Folder | None, invite: MarginalInvite, groups: GroupCodes) -> MarginalReports | None:
    """The reports that an interrupted fit has kept: the very same ones, beside as many trusted people."""
    kept = None if place is None else place.local(invite)
    if place is None or kept is None:
        return None
    place.must_be(kept[1]["digest"] == groups.digest and kept[0].people == groups.local_people)
    return kept[0]


def _heard(
    groups: GroupCodes,
    invite: MarginalInvite,
    place: Folder,
    charge: Charge,
    about: _About,
    ledger: Ledger | None,
    simulated: bool,
    rng: Randomness,
) -> MarginalReports:
    """The local people's reports, charged, and kept before they are used."""
    with spending(ledger, [charge], trial=simulated) as entries:
        reports = groups.local
        if groups.local_raw is not None:
            reports = simulated_marginals(groups.local_raw.values, invite, rng=rng)
        assert reports is not None
        place.save_local(reports, {**vars(about), "notes": list(about.notes)}, entries)
    return reports


def charge_for_reports(invite: MarginalInvite, purpose: str, digest: str | None) -> Charge:
    """What the reports cost: the very same ones are charged once, however often they are used."""
    return Charge("local", invite.guarantee, "report on one drawn marginal", purpose, digest=digest)


def loaded(study: SynthStudy, place: Folder) -> SyntheticModel:
    """A saved model; a fit that did not come to its end is refused."""
    rounds = [place.measured(i) for i in range(len(study.plan))]
    tables = [table for one in rounds for table in one or []]
    pilot = place.study.get(PILOT)
    whole = None not in rounds
    invite = study.invite if pilot is None else chosen_invite(study, tables, str(pilot)) if whole else None
    kept = None if invite is None else place.local(invite)
    data, done = place.synthetic(study.workload.schema.sizes)
    if invite is None or kept is None or data is None or not done or (kept[1]["trusted"] and not whole):
        raise InvalidInput(f"`model` must be a fit that has ended; call fit again to go on. Got {place.path}.")
    about = _About(**{**kept[1], "notes": tuple(kept[1]["notes"])})
    return _fitted(study, invite, place, tables, kept[0], about, data)


def publish_mixed(
    study: SynthStudy,
    tables: Sequence[MeasuredTable],
    reports: MarginalReports,
    trusted: int,
    *,
    entries: tuple[int, ...],
    rng: Randomness,
) -> tuple[dict[str, Any], Receipt]:
    """What both groups said, as plain data from which `write_model` fits the model, and the receipt of it.

    `tables` are the trusted people's, with their noise. Post-processing: nothing further is spent, now or by the fit.
    """
    about = _About(trusted, simulated_local=False, seeded=rng.simulated, assumed=False, notes=())
    place = Folder(None, "", study.to_dict(), trusted + reports.people, rng.simulated, entries)
    own = [{"features": list(t.features), "sigma": t.sigma, "counts": t.counts.reshape(-1).tolist()} for t in tables]
    told = statistic(
        "synthetic-data",
        None,
        None,
        method=study.method,
        people=trusted + reports.people,
        features=list(study.workload.schema.names),
        model={
            "study": study.to_dict(),
            "trusted_people": trusted,
            "trusted_tables": own,
            "local_reports": [{"people": one.people, "supports": one.counts.tolist()} for one in reports.told],
        },
    )
    return told, _receipt(study, study.invite, place, about)


def write_model(release: Mapping[str, Any], folder: str | PathLike[str]) -> SyntheticModel:
    """The model of a release that the service made of a table, fitted and saved in a new folder. Free: it was paid for.

    `release` is the document. What it says must fit the study that stands in it.
    """
    must(not Path(folder).exists(), "model", "must be a new folder", folder)
    try:
        ((told,),) = [list(facts.values()) for facts in release["questions"].values()]
        kept, entries = told["model"], [int(entry) for entry in release["receipt"]["ledger_entries"]]
        study, trusted = SynthStudy.from_dict(kept["study"]), int(kept["trusted_people"])
        sizes = study.workload.schema.sizes
        tables = [
            MeasuredTable(
                tuple(one["features"]),
                np.array(one["counts"], dtype=np.int64).reshape([sizes[f] for f in one["features"]]),
                float(one["sigma"]),
            )
            for one in kept["trusted_tables"]
        ]
        sent = zip(kept["local_reports"], study.invite.questions, strict=True)
        reports = MarginalReports(
            tuple(ShareReports(int(a["people"]), np.array(a["supports"], np.int64), q.oracle) for a, q in sent)
        )
        simulated = bool(release["simulated"])
    except (ValueError, LookupError, TypeError, AttributeError):
        raise InvalidInput("`release` must be the document of a synthetic table's release. Got another.") from None
    about = _About(trusted, simulated_local=False, seeded=simulated, assumed=False, notes=())
    people = trusted + reports.people
    try:
        with Folder.open(folder, study.to_dict(), people=people, simulated=simulated) as place:
            if tables:
                place.save_measured(0, packed(tables), entries)
            place.save_local(reports, {**vars(about), "notes": []}, entries)
            return _fitted(study, study.invite, place, tables, reports, about)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # the release is kept: it is fitted again, whole
        raise


# --- post-processing --------------------------------------------------------------------------------------------------


def _fitted(
    study: SynthStudy,
    invite: MarginalInvite,
    place: Folder,
    tables: list[MeasuredTable],
    reports: MarginalReports,
    about: _About,
    data: Relaxed | Records | None = None,
) -> SyntheticModel:
    """One model of both groups' tables, and its receipt."""
    own, told = pooled(tables), dict(zip(invite.marginals, reports.told, strict=True))
    sizes, every = study.workload.schema.sizes, dict.fromkeys([*told, *own])
    shapes = [(features, tuple(sizes[f] for f in features)) for features in every]
    blended = blend_tables(shapes, [own.get(f) for f in every], about.trusted, [told.get(f) for f in every])
    people = about.trusted + reports.people
    notes = _no_signal(blended, people)
    if data is None:
        for note in notes:
            warnings.warn(note, NoSignalWarning, stacklevel=2)
        chosen = {tuple(sorted(t.features)) for t in tables[: len(tables) - len(study.last)]}
        data = _rows(study, [one.fitted for one in blended], chosen, people)
        place.save_synthetic(data.numpy(), 1)
    receipt = _receipt(study, invite, place, replace(about, notes=about.notes + notes))
    stated = tuple(one.table for one in blended)
    method = "chosen" if PILOT in place.study else study.method
    found = SyntheticModel(study.workload, people, method, data, stated, receipt)
    return assuming(found, invite.text if about.assumed else None)


def _rows(
    study: SynthStudy, tables: list[MeasuredTable], chosen: set[tuple[int, ...]], people: int
) -> Relaxed | Records:
    """Records of a graphical model; of marginals whose junction tree is too large, relaxed rows. A public rule.

    Where the trusted people's fit ended with all that is asked, the records of the model of the `chosen` marginals
    follow the others, as they do there.
    """
    from hybridp.blend.relaxed import Records, start
    from hybridp.blend.synth import fit_tables

    sizes, rows = study.workload.schema.sizes, min(max(study.rows, 2 * people), _MOST_RECORDS)
    held = [table for table in tables if not study.last or table.features in chosen]
    rest = [table for table in tables if study.last and table.features not in chosen]
    if tree_cells(sizes, [table.features for table in held]) > _TREE:
        return fit_tables(start(study.rows, sizes, seed=study.seed), tables, people)
    model = GraphModel.uniform(sizes).fit(held, people, sweeps=60)
    if rest:
        return Records(raked(model, held, rest, people, rows=rows, seed=study.seed), sizes)
    return Records(model.records(rows, seed=study.seed), sizes)


def _no_signal(blended: list[BlendedTable], people: int) -> tuple[str, ...]:
    hidden = min(significance(one.table.counts.size) * one.usual for one in blended) / people
    if hidden <= 0.5:
        return ()
    return (
        f"The budget leaves no signal: the noise of both groups' tables hides every share below {hidden:.2g}; ask "
        "fewer marginals, of more people, or with a larger epsilon.",
    )


# --- the receipt ------------------------------------------------------------------------------------------------------


def _receipt(study: SynthStudy, invite: MarginalInvite, place: Folder, about: _About) -> Receipt:
    drawn = f"one report on one of {len(invite.marginals)} marginals, drawn on their own device whatever their data"
    return build_receipt(
        study.protection if about.trusted else None,
        Protection(invite.guarantee, drawn, "no amplification is claimed"),
        assumes=(
            public_choice("record is"),
            choice_unprotected("record"),
            place.domain_words("marginals" if study.method == "mixed" else "questions"),
            study.workload.schema.rule,
            "one blend speaks for both groups: trusted and local people are taken to be alike",
            honest_devices("a local table"),
            *((ASKED_BEFORE, "no trusted person answers the invitation") if PILOT in place.study else ()),
            *about.notes,
        ),
        randomness=seeded(0).label if about.seeded else secure().label,
        seeded=about.seeded,
        simulated_local=about.simulated_local,
        reads="rows",
        entries=place.entries,
    )
