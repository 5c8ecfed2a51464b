"""Fit a synthetic table: charge a round, measure it, keep what it measured, and only then use it.

The ledger is charged for a round before its statistics are computed, and the round's measurements are saved before
anything is made of them: in the ledger, beside the charge, and then in the folder. A fit that was interrupted goes on
by the same conversation (`hybridp.tasks.table`): rounds that were kept are not measured again, whatever became of the
folder, and a round that was charged but not kept is measured under the same charge, because nobody has seen it.

In two phases, over files: the adaptive method is fitted to the trusted rows (`fit_synth`), which pays for its choice of
marginals; `write_invitation` tells devices what it chose, each of which sends one report on one of them at its person's
whole epsilon; `fit_groups` with this invitation blends both, and spends nothing of the trusted people's.
"""

from __future__ import annotations

import hashlib
import shutil
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from hybridp.curator import synth as curating
from hybridp.curator.marginals import GroupCodes, read_groups
from hybridp.curator.sources import TableLike, asks, chosen_by
from hybridp.curator.synth import Codes
from hybridp.device.reports import simulated_marginals
from hybridp.errors import InvalidInput, must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.paying import looked, spending, warned
from hybridp.protocols.synth_files import Folder, Invitation, packed, read_invitation, seal_invitation, unpacked
from hybridp.public.rounds import drive
from hybridp.public.shares import ShareReports
from hybridp.public.synth import MeasuredTable
from hybridp.public.synth_reports import MarginalReports
from hybridp.public.trust import Trusts, drawn_trust
from hybridp.randomness import Randomness, secure, seeded
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.table import (
    BothGroups,
    Fitted,
    Made,
    Measure,
    NoSignalWarning,
    Reported,
    SynthStudy,
    charge_for_reports,
)

__all__ = ["Invitation", "NoSignalWarning", "SynthStudy", "fit_file", "fit_groups", "fit_synth", "load_model"]
__all__ += ["made_by", "read_invitation", "read_people", "write_invitation", "write_model"]


# --- reading ----------------------------------------------------------------------------------------------------------


def fit_file(
    path: TableLike,
    study: SynthStudy,
    trust: Trusts | None = None,
    *,
    folder: str | PathLike[str] | None = None,
    table: str | None = None,
    simulate_local: bool = False,
    assume_mechanism: bool = False,
    ledger: Ledger | None = None,
    purpose: str = "synthetic data",
    rng: Randomness | None = None,
) -> SyntheticModel:
    """`fit_synth` on a file or, where `trust` says who trusts, `fit_groups` (`method` "mixed").

    No row is refused: the schema declares what a field counts as that it does not list. With `simulate_local` local
    rows are raw and randomised here: a trial, and marked as such.
    """
    rng = secure() if rng is None else rng
    how: dict[str, Any] = {"folder": folder, "ledger": ledger, "purpose": purpose, "rng": rng}
    local: dict[str, Any] = {"simulate_local": simulate_local, "assume_mechanism": assume_mechanism}
    return fit_groups(read_people(path, study, trust, table=table, **local, **how), study, **how)


def read_people(
    path: TableLike,
    study: SynthStudy,
    trust: Trusts | None = None,
    *,
    folder: str | PathLike[str] | None,
    ledger: Ledger | None,
    purpose: str,
    rng: Randomness,
    table: str | None = None,
    simulate_local: bool = False,
    assume_mechanism: bool = False,
) -> GroupCodes:
    """The people of a file for `fit_groups`. What is refused for rows is refused here, where a ledger can be charged.

    So is a budget that cannot pay for local reports: which reports there are, a query may have chosen by a value.
    """
    begun = Folder.begun(folder, study.to_dict(), chosen_by(path, table, trust))  # before a row is read: free
    raw = simulate_local or drawn_trust(trust)
    trial = rng.simulated if trust is None else ledger is not None and ledger.trial  # reports may be a trial's

    def read() -> GroupCodes:
        if trust is None:
            groups = GroupCodes(curating.read_codes(path, study.workload.schema, table=table, declared=True))
        else:
            how: dict[str, Any] = {"table": table, "local_raw": raw, "assume": assume_mechanism, "rng": rng}
            groups = read_groups(path, study.invite, trust, **how)
        _check_people(groups, study)
        some = groups.trusted.people > 0 or not asks(path)
        must(some, "query", "must leave somebody who trusts: nobody else pays for what it tells", "nobody")
        simulated = rng.simulated or groups.simulated
        Folder.must_fit(begun, groups.people, simulated=simulated)
        _check_budget(groups, study, begun, ledger, purpose, trial=simulated)
        return groups

    return looked(read, ledger, study.charges(Folder.name_of(begun), purpose), trial=trial, path=path)


def _check_people(groups: GroupCodes, study: SynthStudy, invitation: Invitation | None = None) -> None:
    must(groups.trusted.schema == study.workload.schema, "workload", "must be over the schema of the rows", "another")
    if study.method != "mixed" and invitation is None:
        must(not groups.local_people, "method", "must be mixed for people who trust differently", study.method)
        must(groups.people >= 2, "people", "must be at least 2", groups.people)
    elif not groups.local_people:
        raise InvalidInput(
            "`trust` must be left out where everybody trusts the curator, or say in a study file: everyone = "
            '"trusted". Got no local row.'
        )


def _check_budget(
    groups: GroupCodes, study: SynthStudy, begun: Folder | None, ledger: Ledger | None, purpose: str,
    invitation: Invitation | None = None, *, trial: bool,
) -> None:  # fmt: skip
    """Refuse where the ledger cannot pay for all of it: for trusted people, whom an invitation has not heard, and for
    reports that the fit has not kept. Those that it has kept must be the very same ones."""
    owed: list[Charge] = []
    if groups.trusted.people and invitation is None:
        owed += study.charges(Folder.name_of(begun), purpose)
    if groups.local_people:
        invite = study.invite if invitation is None else invitation.invite
        kept = None if begun is None else begun.about()
        if begun is None or kept is None:
            owed.append(charge_for_reports(invite, purpose, groups.digest))
        else:
            begun.must_be(kept.digest == groups.digest and begun.reports(invite).people == groups.local_people)
    if ledger is not None:
        ledger.check(owed, trial=trial)


# --- fits -------------------------------------------------------------------------------------------------------------


def fit_synth(codes: Codes, study: SynthStudy, **how: Any) -> SyntheticModel:
    """Fit a synthetic data set to people's rows, or go on with a fit that was interrupted.

    Everybody in the rows is promised the study's (epsilon, delta) under replacement of their record, one record a
    person, by zCDP over all rounds; the number of people is public. `how` is that of `fit_groups`.
    """
    return fit_groups(GroupCodes(codes), study, **how)


def fit_groups(
    groups: GroupCodes,
    study: SynthStudy,
    *,
    invitation: Invitation | None = None,
    folder: str | PathLike[str] | None = None,
    ledger: Ledger | None = None,
    purpose: str = "synthetic data",
    device: str = "cpu",
    progress: Callable[[float, int], None] = lambda done, rounds: None,
    rng: Randomness | None = None,
) -> SyntheticModel:
    """Fit a synthetic data set to trusted rows and local reports.

    Trusted people: the study's (epsilon, delta) against whoever sees the model, under replacement of their record, by
    zCDP. Local people: the epsilon of their own report, against everyone. With `folder`, every round is saved there,
    and a second call with the same study and folder charges and measures only what is missing; two calls at the same
    time are refused. `progress(done, rounds)` is called after each round, and in parts of one while rows are fitted.

    With an `invitation`, whose study this is, the trusted people chose before (`groups` are those of `read_groups` with
    `pilot`): they pay nothing more, no row of theirs is read, and local people spend the epsilon of their own report.
    """
    rng = secure() if rng is None else rng
    _check_people(groups, study, invitation)
    trial, trusted = rng.simulated, groups.trusted.people
    if invitation is not None:
        invitation.must_be_paid_by(ledger)
        study = replace(study, pilot=invitation.digest)
        trial, trusted = trial or invitation.simulated, invitation.trusted
    people, simulated = trusted + groups.local_people, trial or groups.simulated
    warned([study.guarantee], people if invitation is None else trusted)
    for note in () if study.both else study.no_signal(people):
        warnings.warn(note, NoSignalWarning, stacklevel=3)
    named, rows = study.to_dict(), groups.trusted.chosen_by
    begun = Folder.begun(folder, named, rows)
    _check_budget(groups, study, begun, ledger, purpose, invitation, trial=simulated)  # what is refused leaves none
    with Folder.open(folder, named, rows, people=people, simulated=simulated) as place:
        about = BothGroups(trusted, groups.simulated, trial, groups.assumed, groups.notes, groups.digest)
        sources = [rng] if study.pilot else rng.spawn(len(study.plan) + study.both)
        fit = _Fit(study, place, about, groups, sources, ledger, purpose, invitation)
        return fit.hold(device, lambda done: progress(done, len(study.plan)))


def load_model(folder: str | PathLike[str]) -> SyntheticModel:
    """A saved model; a fit that did not come to its end is refused."""
    place = Folder.load(folder)
    return _Fit(_kept_study(place), place, place.about(), ended=True).hold()


def _kept_study(place: Folder) -> SynthStudy:
    try:
        return SynthStudy.from_dict(place.study)
    except (KeyError, TypeError, ValueError) as error:
        problem = InvalidInput(
            f"`model` must be the folder of a synthetic data set. Got {place.path} ({type(error).__name__})."
        )
    raise problem


def made_by(trial: bool, entries: tuple[int, ...]) -> dict[str, Any]:
    """For a receipt: where noise came from, and what was charged."""
    return {"randomness": (seeded(0) if trial else secure()).label, "seeded": trial, "entries": entries}


@dataclass(eq=False)
class _Fit:
    """RAW: answers a fit's rounds from what was kept of them and, under their charges, from people's rows and reports.

    Without `groups` there is what was kept, and nothing else; of a fit that has `ended`, the rows as well.
    """

    study: SynthStudy
    place: Folder
    about: BothGroups | None
    groups: GroupCodes | None = None
    sources: list[Randomness] | None = None
    ledger: Ledger | None = None
    purpose: str = ""
    invitation: Invitation | None = None
    ended: bool = False

    def hold(self, device: str = "cpu", moved: Callable[[float], None] = lambda done: None) -> SyntheticModel:
        """The conversation, to its end."""
        place, about = self.place, self.about
        if about is None and self.study.both:
            raise self._unended()
        if self.invitation is not None and self.invitation.read_from_rows:
            place.say_read_from_rows(self.invitation.read_from_rows)
        trusted = place.people if about is None else about.trusted
        made = lambda trial: made_by(trial, place.entries)  # noqa: E731
        asked: Any = self.study.ask(Fitted(trusted, place.simulated, made, place.read_from_rows, device, moved))
        found: SyntheticModel = drive(asked, self)
        return found

    def answer(self, asked: Any) -> Any:
        return getattr(self, asked.kind)(asked)

    def _unended(self) -> InvalidInput:
        return InvalidInput(f"`model` must be a fit that has ended; call fit again to go on. Got {self.place.path}.")

    def measure(self, asked: Measure) -> list[MeasuredTable]:
        """What a round measured: what was kept of it or, under its charge, what the rows say, kept before it is used.

        Rounds of another plan, as of another version, are never gone on with.
        """
        i, place, ledger = asked.place, self.place, self.ledger
        charge, kept = _kept_round(ledger, self.study.charges(place.name, self.purpose)[i], place, i)
        before = _paid_before(ledger, charge)
        if self.invitation is not None:  # the trusted people paid for it before
            kept, before = self.invitation.rounds[i], list(self.invitation.entries)
        if kept is None:
            # A round whose results were used has been seen: measuring it again would be a second use of the rows.
            if place.used(i, len(self.study.plan)):
                raise InvalidInput(
                    f"`model` must hold all rounds that it was made from. Got {place.path} without round {i + 1}."
                )
            if self.groups is None or self.sources is None:
                raise self._unended()
            with spending(ledger, [charge], trial=place.simulated) as paid:
                kept = packed(_measure(self.groups.trusted, asked, self.sources[i]))
                if ledger is not None and charge.collection is not None:
                    kept = ledger.keep_measured(charge.collection, kept)
                place.save_measured(i, kept, paid or before)
        elif place.saved(i) != kept:
            place.save_measured(i, kept, before)
        found = unpacked(kept, place.path)
        rule = "must hold what its study measures, with the noise of its promise: fit it anew in a new folder"
        must(asked.use.planned(found), "model", rule, f"another round {i + 1} in {place.path}")
        return found

    def reported(self, asked: Reported) -> tuple[MarginalReports, BothGroups]:
        """The local people's reports, charged, and kept before they are used; those that were kept are paid for."""
        place, groups, about = self.place, self.groups, self.about
        if (kept := place.about()) is not None:
            return place.reports(asked.invite), kept
        if groups is None or self.sources is None or about is None:
            raise self._unended()
        own = charge_for_reports(asked.invite, self.purpose, groups.digest)
        with spending(self.ledger, [own], trial=place.simulated) as entries:
            reports = groups.local
            if groups.local_raw is not None:
                reports = simulated_marginals(groups.local_raw.values, asked.invite, rng=self.sources[-1])
            assert reports is not None
            place.save_local(reports, about, entries)
        return reports, about

    def made(self, asked: Made) -> Any:
        """Rows that were kept, or that are made and kept now. (A graphical model is not kept: rounds make it again.)"""
        data, rounds = self.place.synthetic(self.study.workload.schema.sizes)
        if data is not None and rounds >= asked.rounds:
            return data
        if self.ended:
            raise self._unended()
        made = asked.make()
        self.place.save_synthetic(made.numpy(), asked.rounds)
        return made


def _measure(codes: Codes, asked: Measure, rng: Randomness) -> list[MeasuredTable]:
    """The only step that looks at the rows: the marginals of a round, each cell with its noise.

    Where none is named, the one that would bring the model nearest, by the exponential mechanism.
    """
    use, tables = asked.use, asked.use.tables
    if not tables:
        model = asked.model()
        scores = [curating.gain(codes, c, model.table(c), use.sigma) for c in asked.among]
        picked = curating.pick_table(scores, use.select_rho, asked.allowed, rng=rng)
        assert picked is not None  # one-way marginals always fit
        tables = (asked.among[picked],)
    return [curating.measure_table(codes, features, use.sigma, rng=rng) for features in tables]


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


# --- other doors ------------------------------------------------------------------------------------------------------


def write_invitation(model: str | PathLike[str], out: Path) -> Invitation:
    """The invitation of a fit that has ended, by the adaptive method, to the trusted rows. Free: it was paid for."""
    must(out.parent.is_dir() and not out.exists(), "out", "must name a new file in an existing folder", out)
    load_model(model)  # a fit that has not ended is refused
    place = Folder.load(model)
    return seal_invitation(place, SynthStudy.from_dict(place.study), out)


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
    about = BothGroups(trusted, simulated_local=False, seeded=simulated, assumed=False, notes=())
    people = trusted + reports.people
    try:
        with Folder.open(folder, study.to_dict(), people=people, simulated=simulated) as place:
            if tables:
                place.save_measured(0, packed(tables), entries)
            place.save_local(reports, about, entries)
            return _Fit(study, place, about).hold()
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)  # the release is kept: it is fitted again, whole
        raise
