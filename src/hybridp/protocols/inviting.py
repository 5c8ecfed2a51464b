"""What goes to the devices first: the invitation to a question of a study that local people cannot answer without."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from os import PathLike
from pathlib import Path
from typing import Any

from hybridp.curator.sources import with_public
from hybridp.errors import InvalidInput, must
from hybridp.ledger import Ledger
from hybridp.protocols import asked, heavy_files, kmeans_files, regression_files, steered, steered_mean_files
from hybridp.protocols.driver import release
from hybridp.protocols.paying import paying
from hybridp.protocols.tally import load_tally, tally_for
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.study import Declaration, Number, Points, Regression, needs_invitation
from hybridp.randomness import Randomness
from hybridp.release.release import Release

__all__ = ["first_phase", "invite_study", "release_invited"]


def invite_study(
    study: Declaration,
    out: str | PathLike[str],
    data: Any = None,
    *,
    question: str | None = None,
    people: tuple[int | None, ...] = (None, None),
    table: str | None = None,
    trust: Any = None,
    ledger: Ledger | None = None,
    rng: Randomness | None = None,
) -> dict[str, Any]:
    """Write the invitation to a question that local people can only answer when they have been sent one.

    Records are discovered, and the line of a regression or the window of a mean is found, by the trusted people of
    `data` first, at the question's part of the promise, which is charged now; a map of points is planned from the
    number of trusted and local `people` alone.
    """
    named = [q.name for q in study.questions if needs_invitation(q)]
    name = question or (named[0] if len(named) == 1 else None)
    rule = f"must be one of {', '.join(named) or 'none in this study'}: questions that need an invitation"
    must(name in named, "question", rule, name or "none")
    i = [q.name for q in study.questions].index(str(name))
    place = Path(out)
    if isinstance(study.questions[i], Points):
        trusted, local = people
        if trusted is None or local is None:
            raise InvalidInput("`people` must be given for a map of points: how many trusted and local ones. Got none.")
        own, columns = asked.kmeans_study(study, i), asked.point_columns(study, i, None)
        local = round(local * study.chances[str(name)])
        sent = kmeans_files.write_invitation(
            own, columns.coordinates, trusted=trusted, local=local, missing=columns.missing, out=place
        )
        return {"question": name, "invitation": str(place), "cells": sent.grid.cells}
    line, mean = isinstance(study.questions[i], Regression), isinstance(study.questions[i], Number)
    what = "find the line that local people are asked about" if line else "discover the records"
    what = "name the window that local people are asked within" if mean else what
    must(data is not None, "data", f"must be given: trusted people {what}", "none")
    labels = asked.trust_rule(study) if trust is None else trust
    asked.must_declare(study, data := with_public(data, study.people.public))
    if mean:
        how: dict[str, Any] = {"table": table, "ledger": ledger, "rng": rng}
        found = first_phase(study, data, place, trust=trust, local_people=people[1], **how)
        return {
            "question": name,
            "invitation": str(place),
            "window": found.facts.get("window"),
            "people": sum(found.people.values()),
        }
    if line:
        steered = regression_files.write_invitation(
            data, asked.regression_study(study, i), asked.regression_columns(study, i, labels), place,
            local_people=people[1], table=table, ledger=ledger, purpose=str(name), rng=rng,
        )  # fmt: skip
        return {"question": name, "invitation": str(place), **steered.to_dict()}
    invited = heavy_files.write_invitation(
        data,
        asked.heavy_study(study, i),
        asked.record_columns(study, i, labels),
        place,
        table=table,
        ledger=ledger,
        rng=rng,
    )
    return {
        "question": name,
        "invitation": str(place),
        "slots": len(invited.head),
        "queries": len(invited.head.queries) - 1,
        "mechanism": invited.mechanism.name,
    }


def first_phase(
    study: Declaration,
    data: Any,
    out: Path,
    *,
    trust: Any = None,
    simulate_local: bool = False,
    local_people: int | None = None,
    tally: Path | None = None,
    phases: Sequence[float] = (),
    collection: str | None = None,
    assume_mechanism: bool = False,
    table: str | None = None,
    ledger: Ledger | None = None,
    rng: Randomness | None = None,
) -> Release:
    """What is known of a study's only number, and the invitation that follows from it for those who are asked later.

    A mean is told by the trusted people alone, and `local_people` is how many will be asked; quantiles by everybody who
    has been heard. The invitation names what was charged in the ledger.
    """
    question = study.questions[0]
    rule = "must go with the mean or the quantiles of a study's only question"
    number = len(study.questions) == 1 and isinstance(question, Number) and question.by is None
    must(number and not study.promise.personal and study.mixer is None, "invite-out", rule, "another question")
    asked.must_declare(study, data := with_public(data, study.people.public))
    columns = asked.number_columns(study, 0, asked.trust_rule(study) if trust is None else trust)
    how: dict[str, Any] = {"table": table, "invite_out": out, "ledger": ledger, "purpose": study.purpose, "rng": rng}
    if question.statistics == ("mean",):  # type: ignore[attr-defined]
        for name, given in (("tally", tally), ("phases", phases), ("collection", collection)):
            must(not given, name, "must not join the first phase of a mean: trusted people alone are asked", given)
        own = asked.mean_study(study, 0)
        many = study.people.local if local_people is None else local_people
        how |= {"simulate_local": simulate_local, "local_people": many}
        return steered_mean_files.release_steered(data, own, columns, **how)
    must(local_people is None, "local-people", "must go with a mean: quantiles are asked around, however many", "it")
    counted = asked.number_study(study, 0)
    must(counted.mean is None, "invite-out", rule, "both")
    how |= {"simulate_local": simulate_local, "assume_mechanism": assume_mechanism, "collection": collection}
    how |= {"tally": None if tally is None else tally_for(study, tally), "phases": phases}
    assert counted.distribution is not None
    return release(data, counted.distribution, columns, **how)


_READ: dict[str, Callable[[Path], Any]] = {
    "mean": steered_mean_files.read_invitation,
    "quantiles": steered.read_invitation,
    "regression": regression_files.read_invitation,
}
_RELEASE: dict[str, Callable[..., Release]] = {
    "mean": steered_mean_files.release_answers,
    "quantiles": steered.release_answers,
    "regression": regression_files.combine_reports,
    "records": heavy_files.combine_reports,
}


def release_invited(
    what: str, data: Any, invite: Path, *, ledger: Ledger | str | PathLike[str] | None = None, **how: Any
) -> Release:
    """Reports that answer an invitation, which says the rest: blended with what it holds, and charged once.

    `what` is a mean, quantiles, a regression or records, and `how` is told to its own release. A ledger that is made
    for it holds no promise to trusted people, who have spent theirs.
    """
    totals: dict[str, PureDP | ApproxDP]
    if what == "records":
        own, simulated = heavy_files.invited_study(invite), heavy_files.is_simulated(invite)
        totals = {"local": own.guarantee} | ({} if own.mixing is None else {"shuffled": PureDP(own.mixing.epsilon)})
    else:
        said = _READ[what](invite)
        totals = {"local": said.study.guarantee if what == "regression" else said.invite.promise}
        simulated = said.simulated
    if how.get("tally") is not None:
        how["tally"] = load_tally(how["tally"])
        must(how["tally"].kind == "slots", "tally", "must be of the kind slots for this release", how["tally"].kind)
    with paying(ledger, totals, trial=simulated) as books:
        return _RELEASE[what](data, invite, ledger=books, **how)
