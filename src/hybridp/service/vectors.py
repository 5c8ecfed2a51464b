"""Local reports about several numbers: checked and packed for the store, and as numbers again.

Of `reported` coordinates each has its place and either a dithered bit as it was drawn or a number in the column's own
unit; a direction is one number for each column. In the store a coordinate takes 7 or 10 bytes, a direction's 8.

>>> from hybridp.service.plans import parse_plan
>>> asked = {"name": "abc", "kind": "vector", "columns": list("abc"), "lower": 0, "upper": 1}
>>> plan = parse_plan({"title": "t", "promise": 1, "questions": [asked]})
>>> body = pack(plan.invite, [2], [(2**31, True)])
>>> len(body), unpacked(plan.invite, [body]).shape
(7, (1, 3))
"""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput
from hybridp.public.randomisers import DitheredBit, DitheredReports
from hybridp.public.vector import VectorInvite
from hybridp.public.vector_randomisers import ScalarReports

__all__ = ["OutOfReach", "direction", "own_units", "pack", "size", "unpacked"]

Floats = NDArray[np.float64]
Told = tuple[int, bool] | float
"""A dithered bit (threshold, above), or a number in the column's own unit."""

_BITS = np.dtype([("at", "<u2"), ("threshold", "<u4"), ("above", "u1")])
_NUMBERS = np.dtype([("at", "<u2"), ("value", "<f8")])
_BIT, _NUMBER = struct.Struct("<HIB"), struct.Struct("<Hd")
_FAR = "`report` must be one that a device which follows the plan can send. Got a number beyond its reach."


def pack(invite: VectorInvite, places: Sequence[int], each: Sequence[Told]) -> bytes:
    """Some coordinates, as a device that follows the plan reports them; `InvalidInput` otherwise."""
    plan, bounds = invite.reports, invite.bounds
    if not isinstance(plan, ScalarReports):
        raise InvalidInput("`report` must be a list of numbers: the plan asks for a direction. Got coordinates.")
    rising = all(a < b for a, b in pairwise(places))
    inside = all(0 <= j < plan.dimensions for j in places)
    if not (len(places) == len(each) == plan.reported and rising and inside):
        raise InvalidInput(f"`coordinates` must be {plan.reported} different ones, ascending, each with its report.")
    parts = []
    for j, told in zip(places, each, strict=True):
        if isinstance(told, tuple) != isinstance(plan.randomiser, DitheredBit):
            raise InvalidInput("`each` must hold reports of the plan's randomiser. Got others.")
        if isinstance(told, tuple):
            parts.append(_BIT.pack(j, *told))
        else:
            side = bounds.bounds[j]
            _check_reach(told - side.centre, side.half * bounds.reach * plan.randomiser.bound)
            parts.append(_NUMBER.pack(j, told))
    return b"".join(parts)


def direction(invite: VectorInvite, values: Sequence[float]) -> bytes:
    """One number for each column."""
    plan, bounds = invite.reports, invite.bounds
    if isinstance(plan, ScalarReports):
        raise InvalidInput("`report` must hold coordinates and a report for each of them. Got a list.")
    if len(values) != plan.dimensions:
        raise InvalidInput(f"`report` must be {plan.dimensions} numbers. Got {len(values)}.")
    for x, side in zip(values, bounds.bounds, strict=True):
        _check_reach(x - side.centre, side.half * bounds.reach * plan.bound)
    return struct.pack(f"<{len(values)}d", *values)


class OutOfReach(InvalidInput):
    """A number that no device which follows the plan can send."""


def _check_reach(away: float, reach: float) -> None:
    if not (math.isfinite(away) and abs(away) <= reach * (1 + 1e-9)):
        raise OutOfReach(_FAR)


def size(invite: VectorInvite) -> int:
    """Bytes of a report in the store."""
    plan = invite.reports
    if not isinstance(plan, ScalarReports):
        return 8 * plan.dimensions
    return plan.reported * (_BIT if isinstance(plan.randomiser, DitheredBit) else _NUMBER).size


def unpacked(invite: VectorInvite, bodies: Sequence[bytes]) -> Floats:
    """Stored reports, behind each other, in reach coordinates, one row each; NaN where a coordinate was not told."""
    plan, bounds, joined = invite.reports, invite.bounds, b"".join(bodies)
    d, n = plan.dimensions, len(joined) // size(invite)
    centres = np.array([side.centre for side in bounds.bounds])
    reaches = np.array([side.half * bounds.reach for side in bounds.bounds])
    if not isinstance(plan, ScalarReports):
        return np.asarray((np.frombuffer(joined, dtype="<f8").reshape(n, d) - centres) / reaches)
    if isinstance(plan.randomiser, DitheredBit):
        found = np.frombuffer(joined, dtype=_BITS)
        told = plan.randomiser.values(DitheredReports(found["threshold"], found["above"]))
    else:
        found = np.frombuffer(joined, dtype=_NUMBERS)
        told = (found["value"] - centres[found["at"]]) / reaches[found["at"]]
    out = np.full((n, d), np.nan)
    out[np.repeat(np.arange(n), plan.reported), found["at"]] = told
    return out


def own_units(invite: VectorInvite, rows: Floats) -> Floats:
    """The same in the columns' own units."""
    bounds = invite.bounds.bounds
    centres, halves = np.array([b.centre for b in bounds]), np.array([b.half for b in bounds])
    return np.asarray(centres + halves * invite.bounds.reach * rows)
