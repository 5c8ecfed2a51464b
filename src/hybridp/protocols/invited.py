"""What is asked of people who answer later, and models that are kept in a folder.

The first phase of a number, the invitation to a question that needs one, the answers that come back, and the fit of a
synthetic table. Each is paid for, answered, kept and shown by the driver, as any question is.
"""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any, cast

from hybridp.curator.sums import Columns, TableLike, with_public
from hybridp.errors import InvalidInput, TrustRule, Trusts, drawn_trust, must
from hybridp.ledger import Ledger
from hybridp.noise import Randomness, secure
from hybridp.protocols import driver
from hybridp.protocols.driver import columns_of, must_have_paid, paying, release, trust_rule
from hybridp.public import envelope
from hybridp.public.mechanisms import PureDP
from hybridp.public.study import Declaration
from hybridp.release.release import Release
from hybridp.release.synth import SyntheticModel
from hybridp.tasks import transcript as transcripts
from hybridp.tasks.kmeans import KMeansTask
from hybridp.tasks.table import TableTask
from hybridp.tasks.task import task_of
from hybridp.tasks.transcript import Place, Transcript, kept_missing, read_invitation

__all__ = ["fit_file", "invite_study", "release_invited"]


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
    `folder`. `how` names a `table`, or lets `assume_mechanism`, as in `release`.
    """
    rng = secure() if rng is None else rng
    columns = Columns(study.workload.schema.names, trust or TrustRule(everyone="trusted"), words=True)
    totals: dict[str, Any] = {"trusted": study.guarantee}
    if trust is not None or study.method == "adaptive":  # which may invite local people, charged in the same ledger
        totals["local"] = PureDP(study.guarantee.epsilon)
    trial = rng.simulated or simulate_local or drawn_trust(trust)
    transcripts.must_be_new(None if folder is None else Path(folder), "out")
    with paying(ledger, totals, trial=trial) as books:
        how |= {"simulate_local": simulate_local, "ledger": books, "rng": rng}
        result: Any = release(path, study, columns, purpose=purpose, **how)
    return result if folder is None else transcripts.save_model(result, folder)


_TAKEN = {"number": ("trust", "person"), "marginal": ("trust",), "slot": ("tally", "mixed")}
"""What may be told of the answers to an invitation; nothing of others."""


def release_invited(
    data: Any, invite: Path, *, ledger: Ledger | str | PathLike[str] | None = None, **how: Any
) -> Release:
    """Answers to an invitation, blended with all that it holds. No noise is drawn and no raw value is read.

    The answers are charged once, however often they are used; others to the same invitation again, and those of a later
    phase, which other people gave, not. A ledger that is made for it holds no promise to trusted people, who have spent
    theirs. `how` is as in `ask_invited`; what these answers have no use for is refused.
    """
    said = read_invitation(invite)
    taken, task = _TAKEN.get(said.invite.way, ()), said.task
    taken += ("invite_out",) * (not task.by_invitation) + ("joint",) * hasattr(task, "joint")
    taken += ("collection",) * (said.first_reports is None)  # later phases are charged under the first one's name
    for name in ("trust", "person", "tally", "mixed", "invite_out", "joint", "collection"):
        rule = f"must be left out: answers to this invitation, to {task.called}, have no use for it"
        must(not how.get(name) or name in taken, name.replace("_", "-"), rule, how.get(name))
    mixing, way = task.mixing, driver.ask_invited(said, data, **how)
    totals = {"local": task.guarantee} | ({} if mixing is None else {"shuffled": PureDP(mixing.epsilon)})
    with paying(ledger, totals, trial=said.simulated) as books:
        must_have_paid(books, invite)
        return driver.pay_for(way, books)


def invite_study(
    study: Declaration,
    out: str | PathLike[str],
    data: Any = None,
    *,
    question: str | None = None,
    people: tuple[int | None, ...] = (None, None),
    table: str | None = None,
    ledger: Ledger | None = None,
    rng: Randomness | None = None,
) -> dict[str, Any]:
    """Write the invitation to a question that local people can only answer when they have been sent one.

    Records are discovered, and the line of a regression or the window of a mean is found, by the trusted people of
    `data` first, at the question's part of the promise, which is charged now; a map of points is planned from the
    number of trusted and local `people` alone.
    """
    named = [q.name for q in study.questions if q.by_invitation]
    name = question or (named[0] if len(named) == 1 else None)
    rule = f"must be one of {', '.join(named) or 'none in this study'}: questions that need an invitation"
    must(name in named, "question", rule, name or "none")
    i = [q.name for q in study.questions].index(str(name))
    place, (trusted, local) = Path(out), people
    task, columns = task_of(study, i), columns_of(study, i, trust_rule(study))
    if task.planned:
        if trusted is None or local is None:
            raise InvalidInput("`people` must be given for a map of points: how many trusted and local ones. Got none.")
        own = cast(KMeansTask, task.prepared(columns))
        mapped = own.mapped(trusted, round(local * study.chances[str(name)]))
        must(place.parent.is_dir(), "invite", "must lie in an existing folder", place)
        envelope.save(place, Transcript(mapped, columns.names, kept_missing(columns)).document())
    else:
        must(data is not None, "data", "must be given: what local people are asked follows from trusted people", "none")
        how: dict[str, Any] = {"table": table, "local_people": local, "ledger": ledger, "rng": rng}
        release(with_public(data, study.people.public), task, columns, invite_out=place, purpose=str(name), **how)
    return {"question": name, "invitation": str(place), **read_invitation(place).about}

