"""A synthetic data set of people who trust differently, from a table of trusted rows and local reports.

1. Everyone may know: the schema, the marginals, the epsilon.
2. Each local person's device draws one marginal and sends one report on it (`hybridp.device.synth`).
3. The ledger is charged, once for each group.
4. The curator measures all marginals of the trusted rows as one vector, and adds up the reports on each.
5. The blend weighs the groups cell by cell, and one model is fitted to all tables. No further privacy is spent.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from os import PathLike
from typing import TYPE_CHECKING, Any

from hybridp.blend.graph import GraphModel, tree_cells
from hybridp.blend.tables import BlendedTable, blend_tables
from hybridp.curator import synth as curating
from hybridp.curator.sources import TableLike
from hybridp.curator.synth_groups import GroupCodes, read_groups
from hybridp.device.synth import simulated_marginals
from hybridp.errors import InvalidInput, must
from hybridp.ledger import Charge, Ledger
from hybridp.protocols.mean import spending, warned
from hybridp.protocols.synth import NoSignalWarning, SynthStudy, measured_once
from hybridp.protocols.synth_files import Folder
from hybridp.public.synth import MeasuredTable, significance
from hybridp.public.synth_reports import MarginalReports
from hybridp.public.trust import Trusts, drawn_trust
from hybridp.randomness import Randomness, secure, seeded
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

__all__ = ["fit_groups", "fit_mixed", "loaded"]

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
    groups = read_groups(path, study.invite, trust, rng=rng, **how)
    return fit_groups(groups, study, folder=folder, ledger=ledger, purpose=purpose, rng=rng)


def fit_groups(
    groups: GroupCodes,
    study: SynthStudy,
    *,
    folder: str | PathLike[str] | None = None,
    ledger: Ledger | None = None,
    purpose: str = "synthetic data",
    rng: Randomness,
) -> SyntheticModel:
    """`fit_mixed` on groups that have been read."""
    must(study.method == "mixed", "method", "must be mixed for people who trust differently", study.method)
    must(groups.trusted.schema == study.workload.schema, "workload", "must be over the schema of the rows", "another")
    if not groups.local_people:
        raise InvalidInput("`trust` must be left out where everybody trusts the curator. Got no local row.")
    warned([study.guarantee], groups.people)
    simulated = rng.simulated or groups.simulated
    with Folder.open(folder, study.to_dict(), people=groups.people, simulated=simulated) as place:
        about = _About(groups.trusted.people, groups.simulated, rng.simulated, groups.assumed, groups.notes)
        kept = place.local(study.invite)
        same = kept is None or kept[1]["trusted"] == about.trusted
        must(same, "out", "must be a new folder, or hold a fit of the same study and rows", place.path)
        own = charge_for_reports(study, purpose, groups.digest)
        charges = study.charges(place.name, purpose) if groups.trusted.people else []
        if ledger is not None:
            ledger.check([*charges, *([own] if kept is None else [])], trial=simulated)
        sources = rng.spawn(2)
        tables = []
        if charges:
            (use,), (charge,) = study.plan, charges
            tables = measured_once(
                study, place, 0, int(kept is not None), charge, ledger,
                lambda: [curating.measure_table(groups.trusted, f, use.sigma, rng=sources[0]) for f in use.tables],
                trial=simulated,
            )  # fmt: skip
        if kept is None:
            with spending(ledger, [own], trial=simulated) as entries:
                reports = groups.local
                if groups.local_raw is not None:
                    reports = simulated_marginals(groups.local_raw.values, study.invite, rng=sources[1])
                assert reports is not None
                place.save_local(reports, {**vars(about), "notes": list(about.notes)}, entries)
        else:
            reports = kept[0]
        return _fitted(study, place, tables, reports, about, place.synthetic(study.workload.schema.sizes)[0])


def charge_for_reports(study: SynthStudy, purpose: str, digest: str | None) -> Charge:
    """What the reports cost: the very same ones are charged once, however often they are used."""
    return Charge("local", study.invite.guarantee, "report on one drawn marginal", purpose, digest=digest)


def loaded(study: SynthStudy, place: Folder) -> SyntheticModel:
    """A saved model; a fit that did not come to its end is refused."""
    kept = place.local(study.invite)
    data, done = place.synthetic(study.workload.schema.sizes)
    measured = place.measured(0, study.workload)
    if kept is None or data is None or not done or (kept[1]["trusted"] and measured is None):
        raise InvalidInput(f"`model` must be a fit that has ended; call fit again to go on. Got {place.path}.")
    about = _About(**{**kept[1], "notes": tuple(kept[1]["notes"])})
    return _fitted(study, place, measured or [], kept[0], about, data)


# --- post-processing --------------------------------------------------------------------------------------------------


def _fitted(
    study: SynthStudy,
    place: Folder,
    tables: list[MeasuredTable],
    reports: MarginalReports,
    about: _About,
    data: Relaxed | Records | None = None,
) -> SyntheticModel:
    """One model of both groups' tables, and its receipt."""
    invite, sizes = study.invite, study.workload.schema.sizes
    shapes = [(features, tuple(sizes[f] for f in features)) for features in invite.marginals]
    blended = blend_tables(shapes, tables, about.trusted, reports.told)
    people = about.trusted + reports.people
    notes = _no_signal(blended, people)
    if data is None:
        for note in notes:
            warnings.warn(note, NoSignalWarning, stacklevel=2)
        data = _rows(study, [one.fitted for one in blended], people)
        place.save_synthetic(data.numpy(), 1)
    receipt = _receipt(study, place, replace(about, notes=about.notes + notes))
    stated = tuple(one.table for one in blended)
    found = SyntheticModel(study.workload, people, study.method, data, stated, (), receipt)
    return assuming(found, invite.text if about.assumed else None)


def _rows(study: SynthStudy, tables: list[MeasuredTable], people: int) -> Relaxed | Records:
    """Records of a graphical model; of marginals whose junction tree is too large, relaxed rows. A public rule."""
    from hybridp.blend.relaxed import Records, start
    from hybridp.blend.synth import fit_tables

    sizes = study.workload.schema.sizes
    if tree_cells(sizes, study.invite.marginals) > _TREE:
        return fit_tables(start(study.rows, sizes, seed=study.seed), tables, people)
    model = GraphModel.uniform(sizes).fit(tables, people, sweeps=60)
    rows = min(max(study.rows, 2 * people), _MOST_RECORDS)
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


def _receipt(study: SynthStudy, place: Folder, about: _About) -> Receipt:
    (use,), invite = study.plan, study.invite
    read = ", ".join(place.read_from_rows())
    domain = "the schema, its bins and the marginals were chosen without looking at the rows"
    if read:
        domain = f"NOT PROTECTED: which values occur in {read} was read from the rows"
    trusted = Protection(
        study.guarantee, f"discrete Gaussian noise on {len(use.tables)} marginals", f"{use.rho:.6g}-zCDP"
    )
    drawn = f"one report on one of {len(invite.marginals)} marginals, drawn on their own device whatever their data"
    return build_receipt(
        trusted if about.trusted else None,
        Protection(invite.guarantee, drawn, "no amplification is claimed"),
        assumes=(
            public_choice("record is"),
            choice_unprotected("record"),
            domain,
            "a number outside the edges counts in the nearest bin; what is missing or not listed, as the column's last "
            "value",
            "one blend speaks for both groups: trusted and local people are taken to be alike",
            honest_devices("a local table"),
            *about.notes,
        ),
        randomness=seeded(0).label if about.seeded else secure().label,
        seeded=about.seeded,
        simulated_local=about.simulated_local,
        reads="rows",
        entries=place.entries,
    )
