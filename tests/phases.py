"""Conversations in phases over files, as tests hold them: an invitation, the devices' answers, and their release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from hybridp.curator.sums import Columns
from hybridp.protocols.devices import answer_invitation
from hybridp.protocols.driver import release
from hybridp.protocols.invited import release_invited
from hybridp.protocols.rows import LatticePeople
from hybridp.public import envelope
from hybridp.public.heavy import HeadList
from hybridp.public.messages import drive
from hybridp.public.rounds import Many
from hybridp.release.release import Release
from hybridp.tasks.kmeans import KMeansTask
from hybridp.tasks.transcript import Transcript, kept_missing, read_invitation
from hybridp_lab.simulate import held_rows

__all__ = ["answer", "cluster", "invite_to", "opt_in", "plan_map", "read_invitation", "release"]
__all__ += ["release_invited", "release_points"]


def invite_to(path: Any, study: Any, columns: Any, out: Path, **how: Any) -> Transcript:
    """Phase one: the invitation that follows from what the trusted people of a table say."""
    release(path, study, columns, invite_out=out, **how)
    return read_invitation(out)


def answer(path: Any, invite: Path, columns: Any, out: Path, **how: Any) -> int:
    """What the devices of a table's local people do; gives the number of reports."""
    told = {"trust": columns.trust, "person": columns.person}
    if columns.report is None:
        told |= {"record": columns.names, "record_key": columns.record_key}
    found = answer_invitation(path, out, invite, **told, **how)
    return next(iter(found.reports.values()))


def plan_map(study: KMeansTask, columns: Any, trusted: int, local: int, out: Path) -> Transcript:
    """An invitation to a map for so many people."""
    envelope.save(out, Transcript(study.mapped(trusted, local), columns.names, kept_missing(columns)).document())
    return read_invitation(out)


def release_points(study: KMeansTask, trusted: Any, local: Any, rng: Any) -> Release:
    """The centres of points in memory; local people's are raw."""
    groups = {"trusted": trusted, "local": () if local is None else local}
    points = np.concatenate([np.reshape(own, (-1, 2)) for own in groups.values()])
    trust = np.repeat(np.array([*groups]), [len(own) for own in groups.values()])
    columns, raw = Columns(("x", "y"), "trust", missing="middle"), local is not None
    return release({"x": points[:, 0], "y": points[:, 1], "trust": trust}, study, columns, simulate_local=raw, rng=rng)


def cluster(study: KMeansTask, trusted: Any, local: Any, *, plan: Any = None, rng: Any) -> Any:
    """The centres that follow from a plan, or from the best one known, and that plan."""
    people = LatticePeople(trusted, held_rows(np.zeros((0, study.box.dims))) if local is None else local, rng)
    plan = plan or study.plan(*people.many(Many(study.box)))
    return drive(study.clustered(plan), people), plan


def opt_in(document: dict[str, Any]) -> dict[str, Any]:
    """What an invitation to records says of the trusted people: the list, and the noisy counts of both halves."""
    (records, noisy, people, others), counted = document["answers"]
    shown = dict(zip(map(tuple, records), noisy, strict=True))
    slots = HeadList.of(list(shown), document["task"]["depth"]).slots
    found = {"slots": [list(slot) for slot in slots], "discovered": [shown.get(slot) for slot in slots]}  # type: ignore[call-overload]
    return found | {"counted": counted, "discovery_people": people, "estimation_people": others}
