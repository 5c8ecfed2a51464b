"""What goes to the devices first: the invitation to a question of a study that local people cannot answer without."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

from hybridp.curator.sources import with_public
from hybridp.errors import InvalidInput, must
from hybridp.ledger import Ledger
from hybridp.protocols import asked, heavy_files, kmeans_files, regression_files, steered_mean_files
from hybridp.public.study import Declaration, Number, Points, Regression, needs_invitation
from hybridp.randomness import Randomness

__all__ = ["invite_study"]


def invite_study(
    study: Declaration,
    out: str | PathLike[str],
    data: Any = None,
    *,
    question: str | None = None,
    people: tuple[int, int] | None = None,
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
        if people is None:
            raise InvalidInput("`people` must be given for a map of points: how many trusted and local ones. Got none.")
        own, columns = asked.kmeans_study(study, i), asked.point_columns(study, i, None)
        local = round(people[1] * study.chances[str(name)])
        sent = kmeans_files.write_invitation(
            own, columns.coordinates, trusted=people[0], local=local, missing=columns.missing, out=place
        )
        return {"question": name, "invitation": str(place), "cells": sent.grid.cells}
    line, mean = isinstance(study.questions[i], Regression), isinstance(study.questions[i], Number)
    what = "find the line that local people are asked about" if line else "discover the records"
    what = "name the window that local people are asked within" if mean else what
    must(data is not None, "data", f"must be given: trusted people {what}", "none")
    labels = asked.trust_rule(study) if trust is None else trust
    data = with_public(data, study.people.public)
    if mean:
        found = steered_mean_files.release_steered(
            data, asked.mean_study(study, i), asked.number_columns(study, i, labels), invite_out=place, table=table,
            local_people=study.people.local if people is None else people[1], ledger=ledger, purpose=str(name), rng=rng,
        )  # fmt: skip
        return {
            "question": name,
            "invitation": str(place),
            "window": found.facts.get("window"),
            "people": sum(found.people.values()),
        }
    if line:
        steered = regression_files.write_invitation(
            data, asked.regression_study(study, i), asked.regression_columns(study, i, labels), place,
            local_people=None if people is None else people[1], table=table, ledger=ledger, purpose=str(name), rng=rng,
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
