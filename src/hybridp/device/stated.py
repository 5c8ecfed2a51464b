"""Mechanisms as a task document states them, checked against its promise, and one person's draw from them.

Guarantee: what is drawn keeps the promise beside which its mechanism is stated; a construction refuses integers that do
not. A server that asks for less noise than it says is refused.

A person's point becomes one report, on that person's machine: a cell of the map, or a label and a deviation.

Guarantee: each report is epsilon-DP for the epsilon of its invitation, whatever the point; one report a person.

>>> from hybridp.public.kmeans import Box, Grid
>>> from hybridp.public.kmeans_rounds import map_invite
>>> from hybridp.randomness import secure
>>> box = Box((0.0, 0.0), (1.0, 1.0))
>>> 0 <= int(answer_map(box.levels([[0.2, 0.9]]), map_invite(Grid(box, 4), 1.0), rng=secure())[0]) < 16
True
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.device.mean import chosen_levels, randomise_steps, reach_reports
from hybridp.errors import InvalidInput, must
from hybridp.noise import categories, dithered, reports, uniform_below
from hybridp.public.budgets import ApproxDP, PureDP, promised
from hybridp.public.kmeans import Box, Grid, nearest
from hybridp.public.kmeans_rounds import MapInvite, RoundInvite, RoundReports
from hybridp.public.lattice import Bounds
from hybridp.public.messages import Invite
from hybridp.public.randomisers import (
    LEVELS,
    DitheredBit,
    DitheredReports,
    KRandomisedResponse,
    Piecewise,
    Randomiser,
    local_additive,
)
from hybridp.public.regression import Question
from hybridp.public.vector import VectorBounds, VectorInvite
from hybridp.public.vector_randomisers import ScalarReports, UnitVector, VectorReports, scalar_reports, unit_vector
from hybridp.randomness import Randomness

__all__ = [
    "Reporter",
    "answer_map",
    "answer_question",
    "answer_round",
    "cell_teller",
    "line_teller",
    "must_accept",
    "number_report",
    "promise_of",
    "randomiser_of",
    "vector_reporter",
    "vector_teller",
]

Task = Mapping[str, Any]
Reporter = Callable[[Any, Randomness], Any]
"""One person's answer becomes a report. Whoever makes one has checked that it keeps its promise."""


def promise_of(stated: Mapping[str, float]) -> PureDP | ApproxDP:
    return promised(float(stated["epsilon"]), float(stated["delta"]))


def must_accept(asked: PureDP | ApproxDP, epsilon: float | None, delta: float = 0.0) -> None:
    """Refuse a report that tells more than its person accepts, whatever an invitation says of itself.

    >>> must_accept(PureDP(4.0), 1.0)
    Traceback (most recent call last):
        ...
    hybridp.errors.InvalidInput: `epsilon` must be at least the 4 that the invitation asks of every report. Got 1.0.
    """
    if epsilon is None:
        raise InvalidInput("`epsilon` must be given with an invitation: the most that people accept. Got none.")
    rule = "must be at least the {:g} that the invitation asks of every report"
    must(asked.epsilon <= epsilon < math.inf, "epsilon", rule.format(asked.epsilon), epsilon)
    must(asked.delta <= delta, "delta", rule.format(asked.delta), delta)


def randomiser_of(stated: Mapping[str, Any], promise: PureDP | ApproxDP) -> Randomiser:
    """The description as an object, whose construction checks that its integers keep the promise."""
    pure = PureDP(promise.epsilon)
    match stated["name"]:
        case "dithered":
            return DitheredBit(pure, int(stated["flips"]))
        case "piecewise":
            return Piecewise(pure, int(stated["width"]), int(stated["inside"]))
        case "laplace":
            return local_additive(pure)
        case "gaussian":
            return local_additive(promise, "gaussian")
    raise InvalidInput(f"`randomiser` must be one that this client knows. Got {stated['name']}.")


def number_report(
    bounds: Bounds,
    randomiser: Randomiser,
    value: float,
    rng: Randomness,
    windows: tuple[tuple[float, float], ...] = (),
) -> Any:
    levels = Invite(bounds, randomiser, windows=windows).placed(bounds.levels([value]))
    if isinstance(randomiser, DitheredBit):
        return _bits(dithered(randomiser, levels, rng=rng))[0]
    return bounds.from_unit(float(reports(randomiser, levels, rng=rng)[0]))


def _bits(sent: DitheredReports) -> list[dict[str, Any]]:
    """Dithered bits as the service takes them."""
    return [{"threshold": int(t), "above": bool(a)} for t, a in zip(*sent, strict=True)]


def vector_teller(task: Task, promise: PureDP | ApproxDP) -> Reporter:
    """Reports on several numbers, in a box or a ball, as a task document, or one of its questions, asks for them."""
    sides = task["coordinates"]
    bounds = VectorBounds.of(
        [float(c["lower"]) for c in sides],
        [float(c["upper"]) for c in sides],
        norm=task.get("norm"),
        radius=task.get("radius"),
    )
    stated = task["randomiser"]
    plan: VectorReports
    if stated["name"] == "unit-vector":
        plan = unit_vector(promise, bounds.dimensions, bounds.ratio)
    else:
        must(stated["name"] == "coordinates", "randomiser", "must be one that this client knows", stated["name"])
        plan = scalar_reports(promise, bounds.dimensions, int(stated["reported"]))
    tell = vector_reporter(stated, VectorInvite(bounds, plan))
    return lambda values, rng: tell(bounds.steps([values]), rng)


def vector_reporter(stated: Mapping[str, Any], invite: VectorInvite) -> Reporter:
    """The report of one person's steps, by the mechanism of the invitation, which must be the one that is stated."""
    plan = invite.reports
    if isinstance(plan, UnitVector):
        own = {"name": plan.name, "pairs": plan.pairs, "top": plan.top, "inside": str(plan.inside)}
        same = all(stated.get(name) == value for name, value in own.items())
        must(same, "randomiser", "must be the direction for the promise", "another one")
        return lambda steps, rng: [float(x) for x in randomise_steps(steps, invite, rng=rng)[0]]
    same = stated["name"] == "coordinates" and int(stated["reported"]) == plan.reported
    same = same and randomiser_of(stated["each"], plan.randomiser.guarantee) == plan.randomiser
    must(same, "randomiser", "must be the report of each coordinate for the promise", "another one")
    return lambda steps, rng: _some_coordinates(plan, invite.bounds, steps, rng)


def _some_coordinates(plan: ScalarReports, bounds: VectorBounds, steps: NDArray[np.int64], rng: Randomness) -> Any:
    """Some coordinates, chosen by chance, each with its own report, ascending, so that their order tells nothing."""
    (chosen,), (levels,) = chosen_levels(plan, steps, bounds.reach_steps, rng=rng)
    each: list[Any]
    if isinstance(plan.randomiser, DitheredBit):
        each = _bits(dithered(plan.randomiser, levels, rng=rng))
    else:
        sides = [bounds.bounds[j] for j in chosen]
        unit = reports(plan.randomiser, levels, rng=rng).tolist()
        each = [side.centre + side.half * bounds.reach * y for side, y in zip(sides, unit, strict=True)]
    order = np.argsort(chosen)
    return {"coordinates": [int(j) for j in chosen[order]], "each": [each[i] for i in order]}


# --- regression -------------------------------------------------------------------------------------------------------


def answer_question(steps: NDArray[np.int64], question: Question, *, rng: Randomness) -> NDArray[np.float64]:
    """Reports of people (a row each, on the lattice, the target last), in reach coordinates; NaN where none is told.

    Each is epsilon-DP for the epsilon of its question, whatever the columns: the vector that it tells of lies within
    public bounds before it is randomised. One report a person.

    >>> from hybridp.public.budgets import PureDP
    >>> from hybridp.public.vector import VectorBounds
    >>> from hybridp.randomness import secure
    >>> bounds = VectorBounds.of([0, 0], [10, 1])
    >>> asked = Question("linear", "steered", bounds, PureDP(1.0), centre=(0.1, 0.2), clip=0.5)
    >>> answer_question(bounds.steps([[7.0, 0.9]]), asked, rng=secure()).shape
    (1, 2)
    """
    return reach_reports(question.steps(steps), question.invite, rng=rng)


def line_teller(task: Mapping[str, Any], promise: PureDP | ApproxDP) -> Reporter:
    """Reports on the line of a task document, or of one of its questions; refused where it states another mechanism
    than the promise asks for."""
    sides, line = task["coordinates"], task["line"]
    bounds = VectorBounds.of([float(c["lower"]) for c in sides], [float(c["upper"]) for c in sides])
    pure, centre = PureDP(promise.epsilon), tuple(map(float, line["centre"]))
    asked = Question(task["model"], line["form"], bounds, pure, centre, float(line["clip"]))
    tell = vector_reporter(task["randomiser"], asked.invite)
    return lambda values, rng: tell(asked.steps(bounds.steps([values])), rng)


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
