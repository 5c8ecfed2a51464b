"""A person's point becomes one report, on that person's machine: a cell of the map, or a label and a deviation.

Guarantee: each report is epsilon-DP for the epsilon of its invitation, whatever the point; one report a person.

>>> from hybridp.public.kmeans import Box, Grid
>>> from hybridp.public.kmeans_rounds import map_invite
>>> from hybridp.randomness import secure
>>> box = Box((0.0, 0.0), (1.0, 1.0))
>>> 0 <= int(answer_map(box.levels([[0.2, 0.9]]), map_invite(Grid(box, 4), 1.0), rng=secure())[0]) < 16
True
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.device.stated import Reporter
from hybridp.errors import must
from hybridp.noise import categories, reports, uniform_below
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.kmeans import Box, Grid, nearest
from hybridp.public.kmeans_rounds import MapInvite, RoundInvite, RoundReports
from hybridp.public.randomisers import LEVELS, KRandomisedResponse
from hybridp.randomness import Randomness

__all__ = ["answer_map", "answer_round", "cell_teller"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def answer_map(levels: Floats, invite: MapInvite, *, rng: Randomness) -> Ints:
    """The cell told by each person (levels: coordinates x people), by k-ary randomised response."""
    return categories(invite.response, invite.grid.cell(levels), rng=rng)


def cell_teller(task: Mapping[str, Any], promise: PureDP | ApproxDP) -> Reporter:
    """Reports on the map of a task document, or of one of its questions; refused where its integers do not keep the
    promise."""
    sides, stated = task["coordinates"], task["randomiser"]
    box = Box(tuple(float(c["lower"]) for c in sides), tuple(float(c["upper"]) for c in sides))
    must(stated["name"] == "k-rr", "randomiser", "must be one that this client knows", stated["name"])
    response = KRandomisedResponse(PureDP(promise.epsilon), int(stated["categories"]), int(stated["keep"]))
    invite = MapInvite(Grid(box, int(task["grid"]["per_axis"])), response)
    return lambda point, rng: int(answer_map(box.levels([point]), invite, rng=rng)[0])


def answer_round(levels: Floats, invite: RoundInvite, *, rng: Randomness) -> RoundReports:
    """The label told and the noisy deviations of each person."""
    n = levels.shape[1]
    label = nearest(levels, invite.centres)
    told = label if invite.response is None else categories(invite.response, label, rng=rng)
    which = _coordinates(n, invite.box.dims, invite.coordinates, rng)
    # A deviation d in [-radius, radius] is the level LEVELS (d + radius)/(2 radius); 0 where the label is not true.
    deviation = levels[which.T, np.arange(n)] - invite.centres[label, which.T]
    np.clip(deviation, -invite.radius, invite.radius, out=deviation)
    deviation *= told == label
    unit = np.rint((deviation / invite.radius + 1) * (LEVELS // 2)).astype(np.int64)
    value = reports(invite.value, unit.ravel(), rng=rng).reshape(unit.shape)
    return RoundReports(told, which, np.ascontiguousarray(value.T))


def _coordinates(people: int, dims: int, wanted: int, rng: Randomness) -> Ints:
    """Which coordinates each person tells of: `wanted` of them, every set as likely as another."""
    if wanted == dims:
        return np.broadcast_to(np.arange(dims), (people, dims)).copy()
    if wanted == 1:
        return uniform_below(dims, people, rng=rng)[:, None]
    order = np.argsort(rng.words(people * dims).reshape(people, dims), axis=1)
    return order[:, :wanted]
