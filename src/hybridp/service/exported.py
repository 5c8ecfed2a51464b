"""One stored report, private by itself, in words and numbers: for an export."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from hybridp.protocols.regression_files import Invitation as Line
from hybridp.public.kmeans_rounds import MapInvite
from hybridp.public.messages import Invite
from hybridp.public.oracles import SubsetSelection
from hybridp.public.randomisers import Randomiser
from hybridp.public.shares import ShareInvite, TickInvite, written_reports
from hybridp.public.vector import VectorInvite
from hybridp.service.answering import randomiser_of
from hybridp.service.plans import Head, HeavyPlan, PointsPlan, QuestionsPlan, RegressionPlan, SomePlan, VectorPlan
from hybridp.service.questions import SLOT, Asked, Category, unit_reports, unpacked_reports
from hybridp.service.vectors import own_units, unpacked

__all__ = ["readable"]


def readable(plan: SomePlan, head: Head | None, epsilon: float | None, body: bytes) -> dict[str, Any]:
    """A stored report, private by itself, in words and numbers; `head` is the invitation of a second phase."""
    match plan:
        case HeavyPlan() | PointsPlan():
            return {"category": SLOT.unpack(body)[0]}
        case VectorPlan():
            return {"report": _coordinates(plan.invite, body)}
        case RegressionPlan():
            assert isinstance(head, Line)
            return {"report": _coordinates(head.question.invite, body)}
        case QuestionsPlan():
            packed = plan.packed_within(head)
            sent = zip(packed, unpacked_reports(packed, plan.drawn, [body]), strict=True)
            return {"report": {one.name: _written(one, own) for one, own in sent if own}}
        case _:
            return {"report": _own_unit(randomiser_of(plan, epsilon), plan.bounds, body)}


def _coordinates(invite: VectorInvite, body: bytes) -> list[float | None]:
    numbers = own_units(invite, unpacked(invite, [body]))[0].tolist()
    return [None if math.isnan(x) else x for x in numbers]


def _written(one: Asked | Category, body: bytes) -> Any:
    """As a device would write it into a table."""
    if isinstance(one, Category):
        return one.names[SLOT.unpack(body)[0]]
    match one.invite:
        case ShareInvite(oracle=SubsetSelection()):
            return body.hex()
        case ShareInvite() as invite:
            return written_reports(invite, np.frombuffer(body, dtype="<u4").astype(np.int64))[0]
        case TickInvite() as invite:
            return invite.names[SLOT.unpack(body)[0]]
        case VectorInvite() as invite:
            return _coordinates(invite, body)
        case MapInvite():
            return SLOT.unpack(body)[0]
        case Invite() as invite:
            return _own_unit(invite.randomiser, invite.bounds, body)


def _own_unit(randomiser: Randomiser, bounds: Any, body: bytes) -> float:
    return float(bounds.from_unit(float(unit_reports(randomiser, bounds, [body])[0])))
