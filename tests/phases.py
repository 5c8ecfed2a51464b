"""Conversations in phases over files, as tests hold them: an invitation, the devices' answers, and their release."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hybridp.protocols.devices import answer_invitation
from hybridp.protocols.driver import release
from hybridp.protocols.invited import release_invited
from hybridp.public import envelope
from hybridp.public.heavy import HeadList
from hybridp.tasks.kmeans import KMeansTask
from hybridp.tasks.transcript import Transcript, kept_missing, read_invitation

__all__ = ["answer", "invite_to", "opt_in", "plan_map", "read_invitation", "release"]
__all__ += ["release_invited"]


def invite_to(path: Any, study: Any, columns: Any, out: Path, **how: Any) -> Transcript:
    """Phase one: the invitation that follows from what the trusted people of a table say."""
    release(path, study, columns, invite_out=out, **how)
    return read_invitation(out)


def answer(path: Any, invite: Path, columns: Any, out: Path, **how: Any) -> int:
    """What the devices of a table's local people do; gives the number of reports."""
    told = {"trust": columns.trust, "person": columns.person}
    if columns.report is None:
        told |= {"record": columns.names, "record_key": columns.record_key, "record_id": columns.record_id}
    found = answer_invitation(None, path, out, invite, **told, **how)
    return next(iter(found.reports.values()))


def plan_map(study: KMeansTask, columns: Any, trusted: int, local: int, out: Path) -> Transcript:
    """An invitation to a map for so many people."""
    envelope.save(out, Transcript(study.mapped(trusted, local), columns.names, kept_missing(columns)).document())
    return read_invitation(out)


def opt_in(document: dict[str, Any]) -> dict[str, Any]:
    """What an invitation to records says of the trusted people: the list, and the noisy counts of both halves."""
    (records, noisy, people, others), counted = document["answers"]
    shown = dict(zip(map(tuple, records), noisy, strict=True))
    slots = HeadList.of(list(shown), document["task"]["depth"]).slots
    found = {"slots": [list(slot) for slot in slots], "discovered": [shown.get(slot) for slot in slots]}  # type: ignore[call-overload]
    return found | {"counted": counted, "discovery_people": people, "estimation_people": others}
