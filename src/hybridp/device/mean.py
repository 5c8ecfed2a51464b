"""A person's value, or values, become a report on that person's machine. Nothing else ever leaves it.

>>> from hybridp.public.randomisers import dithered_bit
>>> from hybridp.randomness import secure
>>> invite = Invite(Bounds(0, 200_000), dithered_bit(PureDP(1.0)))
>>> report = randomise(52_000, invite, rng=secure())
>>> abs(report - 100_000) <= 100_000 * invite.randomiser.bound
True

Of several values some are reported, or one direction, with the whole epsilon:

>>> from hybridp.public.vector import VectorBounds
>>> from hybridp.public.vector_randomisers import vector_reports
>>> bounds = VectorBounds.of([0, 0, 0], [1, 1, 1])
>>> several = VectorInvite(bounds, vector_reports("best", PureDP(1.0), 3, bounds.ratio))
>>> report = randomise_steps(bounds.steps([[0.2, 0.9, 0.5]]), several, rng=secure())
>>> report.shape, int(np.isfinite(report).sum())
((1, 3), 1)
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise import bernoulli, reports, uniform_below
from hybridp.public.budgets import PureDP
from hybridp.public.lattice import LEVELS, Bounds
from hybridp.public.messages import Invite
from hybridp.public.personal import LOCAL_LEAST, LOCAL_MOST
from hybridp.public.randomisers import Randomiser, best_randomiser
from hybridp.public.vector import VectorInvite
from hybridp.public.vector_randomisers import ScalarReports, UnitVector
from hybridp.randomness import Randomness

__all__ = [
    "choose_names",
    "chosen_levels",
    "own_randomiser",
    "randomise",
    "randomise_levels",
    "randomise_many",
    "randomise_own",
    "randomise_steps",
    "reach_reports",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_CHUNK = 1 << 20  # codebook entries at a time


def randomise(value: float, invite: Invite, *, rng: Randomness) -> float:
    """One report in the value's own unit: private as `invite.promise` says, unbiased for the clipped value."""
    return float(randomise_many([value], invite, rng=rng)[0])


def randomise_many(values: Sequence[float] | Floats, invite: Invite, *, rng: Randomness) -> Floats:
    """The same for a file of many people, each with their own independent randomness."""
    return randomise_levels(invite.bounds.levels(values), invite, rng=rng)


def randomise_levels(levels: Ints, invite: Invite, *, rng: Randomness) -> Floats:
    """Reports for values that are already clipped and on the public lattice."""
    unit = reports(invite.randomiser, invite.placed(levels), rng=rng)
    return invite.bounds.centre + invite.bounds.half * unit


# --- with the person's own epsilon ------------------------------------------------------------------------------------


def own_randomiser(epsilon: float) -> Randomiser | None:
    """The best randomiser for an epsilon; None below 0.001 (the device says nothing), that of 30 above 30."""
    must(epsilon >= 0, "epsilon", "must be zero or positive", epsilon)
    return None if epsilon < LOCAL_LEAST else best_randomiser(PureDP(min(epsilon, LOCAL_MOST)))


def randomise_own(levels: Ints, epsilons: Floats, bounds: Bounds, *, rng: Randomness) -> Floats:
    """One report a person in the value's unit, each epsilon_i-DP for its person; always the midpoint where silent.

    >>> from hybridp.randomness import seeded
    >>> randomise_own(np.array([7, 7]), np.array([0.0, 0.0]), Bounds(0, 10), rng=seeded(1)).tolist()
    [5.0, 5.0]
    """
    out = np.zeros(len(levels))
    order = np.argsort(epsilons, kind="stable")
    distinct, first = np.unique(epsilons[order], return_index=True)
    for epsilon, who in zip(distinct.tolist(), np.split(order, first[1:]), strict=True):
        randomiser = own_randomiser(epsilon)
        if randomiser is not None:
            out[who] = reports(randomiser, levels[who], rng=rng)
    return bounds.centre + bounds.half * out


# --- several numbers --------------------------------------------------------------------------------------------------


def randomise_steps(steps: Ints, invite: VectorInvite, *, rng: Randomness) -> Floats:
    """One report for each row, in the values' own units: private as `invite.promise` says, for the whole row.

    NaN where a coordinate was not reported. Those that were are unbiased for the clipped value.
    """
    out = reach_reports(steps, invite, rng=rng)
    for j, b in enumerate(invite.bounds.bounds):
        out[:, j] = b.centre + b.half * invite.bounds.reach * out[:, j]
    return out


def reach_reports(steps: Ints, invite: VectorInvite, *, rng: Randomness) -> Floats:
    """Reports in reach coordinates."""
    if isinstance(invite.reports, ScalarReports):
        return _some_coordinates(invite.reports, steps, invite.bounds.reach_steps, rng)
    return _one_direction(invite.reports, steps, invite.bounds.reach_steps, rng)


# --- some coordinates -------------------------------------------------------------------------------------------------


def _some_coordinates(plan: ScalarReports, steps: Ints, reach: int, rng: Randomness) -> Floats:
    chosen, levels = chosen_levels(plan, steps, reach, rng=rng)
    sent = reports(plan.randomiser, levels.reshape(-1), rng=rng).reshape(levels.shape)
    out = np.full(steps.shape, np.nan)
    np.put_along_axis(out, chosen, sent, axis=1)
    return out


def chosen_levels(plan: ScalarReports, steps: Ints, reach: int, *, rng: Randomness) -> tuple[Ints, Ints]:
    """Which coordinates each person reports, chosen without looking, and where each of them lies on the lattice."""
    people, d = steps.shape
    chosen = _subsets(d, plan.reported, people, rng)
    picked = np.take_along_axis(steps, chosen, axis=1)
    # (steps + reach)/(2 reach) of the levels, rounded: at most 2^25 * 2^32, which 64 bits hold.
    return chosen, ((picked + reach) * LEVELS + reach) // (2 * reach)


def _subsets(d: int, k: int, people: int, rng: Randomness) -> Ints:
    """k of d places for each person, uniformly: the first k cards of a shuffled pack (Fisher-Yates)."""
    cards = np.broadcast_to(np.arange(d), (people, d)).copy()
    if k == d:
        return cards
    row = np.arange(people)
    for i in range(k):
        j = i + uniform_below(d - i, people, rng=rng)
        cards[row, i], cards[row, j] = cards[row, j], cards[row, i]
    return cards[:, :k]


# --- one direction ----------------------------------------------------------------------------------------------------


def _one_direction(plan: UnitVector, steps: Ints, reach: int, rng: Randomness) -> Floats:
    people, d = steps.shape
    out = np.empty((people, d))
    part = max(1, _CHUNK // (plan.pairs * (d + 1)))
    for start in range(0, people, part):
        x = steps[start : start + part] / (reach * plan.ratio)
        rest = np.sqrt(np.maximum(1 - np.sum(x * x, axis=1), 0.0))
        unit = np.concatenate([x, rest[:, None]], axis=1)
        book = _codebook(len(x), plan.pairs, d + 1, rng)
        index, sign = choose_names(np.einsum("nid,nd->ni", book, unit), plan, rng=rng)
        named = book[np.arange(len(x)), index, :d]
        out[start : start + part] = named * (sign * plan.bound)[:, None]
    return out


def _codebook(people: int, pairs: int, size: int, rng: Randomness) -> Floats:
    """Directions drawn without looking at the data: normal quantiles of 32-bit uniforms, made unit vectors.

    Their rounding cannot cost privacy, which rests on the choice among them alone.
    """
    from scipy.special import ndtri

    count = people * pairs * size
    halves = rng.words((count + 1) // 2).view(np.uint32)[:count]
    book = ndtri((halves + 0.5) * 2.0**-32).reshape(people, pairs, size)
    book /= np.sqrt(np.einsum("nid,nid->ni", book, book))[:, :, None]
    return np.asarray(book)


def choose_names(inner: Floats, plan: UnitVector, *, rng: Randomness) -> tuple[Ints, Floats]:
    """Which direction is named, and its sign, given the inner products with each: the only step that sees the data.

    Exactly `top` of the 2 `pairs` names are near, whatever the inner products; a near one is named with probability
    inside/2^64, uniformly, and otherwise uniformly one of the others.
    """
    people, pairs = inner.shape
    order = np.argsort(-np.abs(inner), axis=1, kind="stable")
    near = bernoulli(plan.inside, 64, people, rng=rng)
    place = np.where(
        near,
        uniform_below(plan.top, people, rng=rng),
        plan.top + uniform_below(2 * pairs - plan.top, people, rng=rng),
    )
    # The names in order: the nearer of each pair by distance, then their opposites.
    index = np.take_along_axis(order, (place % pairs)[:, None], axis=1)[:, 0]
    towards = np.where(np.take_along_axis(inner, index[:, None], axis=1)[:, 0] >= 0, 1.0, -1.0)
    return index, np.where(place < pairs, towards, -towards)
