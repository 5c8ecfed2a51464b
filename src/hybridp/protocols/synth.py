"""Fit a synthetic table: a release like any other (`hybridp.protocols.driver`), whose model is kept in a folder.

In two phases, over files: the adaptive method is fitted to the trusted rows (`fit_file`), which pays for its choice of
marginals; `write_invitation` tells devices what it chose, each of which sends one report on one of them at its person's
whole epsilon; `hybridp.protocols.invited.release_invited` blends both, and spends nothing of the trusted people's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hybridp.curator.marginals import Codes
from hybridp.curator.sources import Columns, Raw, TableLike
from hybridp.errors import must
from hybridp.ledger import Ledger
from hybridp.protocols.driver import release
from hybridp.protocols.models import CodePeople
from hybridp.protocols.paying import charged, paying
from hybridp.public.budgets import PureDP
from hybridp.public.rounds import Crowd, drive
from hybridp.public.trust import TrustRule, Trusts, drawn_trust
from hybridp.randomness import Randomness, secure
from hybridp.release.synth import SyntheticModel
from hybridp.tasks.fits import Place, must_be_new, save_model
from hybridp.tasks.table import NoSignalWarning, TableTask

__all__ = ["NoSignalWarning", "TableTask", "fit_file", "fit_synth"]


def fit_file(
    path: TableLike,
    study: TableTask,
    trust: Trusts | None = None,
    *,
    folder: Place | None = None,
    simulate_local: bool = False,
    ledger: Ledger | Place | None = None,
    purpose: str = "synthetic data",
    rng: Randomness | None = None,
    **how: Any,
) -> SyntheticModel:
    """Fit a synthetic data set to a table; where `trust` says who trusts, to trusted rows and local reports ("mixed").

    Trusted people: the study's (epsilon, delta) against whoever sees the model, under replacement of their record, one
    record a person, by zCDP over all rounds; the number of people is public. Local people: the epsilon of their own
    report, against everyone. No row is refused: the schema declares what a field counts as that it does not list. With
    `simulate_local` local rows are raw and randomised here: a trial, and marked as such. The model is saved in a new
    `folder`. `how` names a `table`, or lets `assume_mechanism`, as in `hybridp.protocols.driver.release`.
    """
    rng = secure() if rng is None else rng
    columns = Columns(study.workload.schema.names, trust or TrustRule(everyone="trusted"), words=True)
    totals: dict[str, Any] = {"trusted": study.guarantee}
    if trust is not None or study.method == "adaptive":  # which may invite local people, charged in the same ledger
        totals["local"] = PureDP(study.guarantee.epsilon)
    trial = rng.simulated or simulate_local or drawn_trust(trust)
    must_be_new(None if folder is None else Path(folder), "out")
    with paying(ledger, totals, trial=trial) as books:
        how |= {"simulate_local": simulate_local, "ledger": books, "rng": rng}
        result: Any = release(path, study, columns, purpose=purpose, **how)
    return result if folder is None else save_model(result, folder)


def fit_synth(
    people: Codes | Raw, study: TableTask, *, ledger: Ledger | None = None, purpose: str = "synthetic data",
    rng: Randomness | None = None,
) -> SyntheticModel:  # fmt: skip
    """The same of people whose codes, or reports, Python holds; nothing is saved, nor kept in the ledger."""
    groups = people if isinstance(people, Raw) else Raw(people.people, people)
    must(groups.trusted.schema == study.workload.schema, "workload", "must be over the schema of the rows", "another")
    rng, task = secure() if rng is None else rng, study.decided(groups.trusted_people, groups.local_people)
    with charged(ledger, task.charges(purpose, None), trial=rng.simulated or groups.simulated_reports) as entries:
        made: dict[str, Any] = {"entries": tuple(entries), "simulated_local": groups.simulated_reports, "rng": rng}
        crowd = Crowd(study.workload.schema.names, lambda middle: "", lambda: made)
        result: SyntheticModel = drive(task.ask(crowd), CodePeople(groups, rng))
        return result
