"""One person's answer becomes a report that is private by itself, on that person's machine: a number, several numbers,
an option, options, a record, a point, or a person's part in a regression. Nothing else ever leaves it.

>>> from hybridp.public.messages import Invite
>>> from hybridp.public.randomisers import dithered_bit
>>> from hybridp.noise import secure
>>> invite = Invite(Bounds(0, 200_000), dithered_bit(PureDP(1.0)))
>>> report = randomise_steps(invite.encoding.steps([[52_000]]), invite, rng=secure())
>>> bool(abs(report[0, 0] - 100_000) <= 100_000 * invite.mechanism.bound)
True

Of several values some are reported, or one direction, with the whole epsilon:

>>> from hybridp.public.messages import VectorBounds
>>> from hybridp.public.randomisers import vector_reports
>>> bounds = VectorBounds.of([0, 0, 0], [1, 1, 1])
>>> several = Invite(bounds, vector_reports("best", PureDP(1.0), 3, bounds.ratio))
>>> report = randomise_steps(bounds.steps([[0.2, 0.9, 0.5]]), several, rng=secure())
>>> report.shape, int(np.isfinite(report).sum())
((1, 3), 1)
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp import noise
from hybridp.errors import InvalidInput, must
from hybridp.noise import Randomness, bernoulli, categories, oracle_reports, reports, uniform_below
from hybridp.public import randomisers
from hybridp.public.groups import Joint
from hybridp.public.kmeans import OnMap
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp.public.messages import Invite, OnNumber, OnVector
from hybridp.public.personal import LOCAL_LEAST, LOCAL_MOST
from hybridp.public.randomisers import LEVELS, Bounds, Floats, Ints, Randomiser, ScalarReports, UnitVector
from hybridp.public.shares import MarginalReports, OnMarginals, OnOptions, ShareReports, kept, written_reports

__all__ = ["answer_map", "choose_names", "chosen_levels", "must_accept", "own_randomiser"]
__all__ += ["randomise_own", "randomise_steps", "reach_reports", "report_marginals", "report_options"]
__all__ += ["simulated_marginals", "simulated_reports", "tick_places"]

_CHUNK = 1 << 20  # codebook entries at a time
_PART = 1 << 16  # people at a time


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


# --- numbers ----------------------------------------------------------------------------------------------------------


def own_randomiser(epsilon: float) -> Randomiser | None:
    """The best randomiser for an epsilon; None below 0.001 (the device says nothing), that of 30 above 30."""
    must(epsilon >= 0, "epsilon", "must be zero or positive", epsilon)
    return None if epsilon < LOCAL_LEAST else randomisers.best_randomiser(PureDP(min(epsilon, LOCAL_MOST)))


def randomise_own(levels: Ints, epsilons: Floats, bounds: Bounds, *, rng: Randomness) -> Floats:
    """One report a person in the value's unit, each epsilon_i-DP for its person; always the midpoint where silent.

    >>> from hybridp.noise import seeded
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


def randomise_steps(steps: Ints, invite: OnNumber | OnVector, *, rng: Randomness) -> Floats:
    """One report for each row, in the values' own units, each with independent randomness: private as `invite.promise`
    says, for the whole row.

    NaN where a coordinate was not reported. Those that were are unbiased for the clipped value.
    """
    centres, reaches = np.array(invite.encoding.sides).T
    return np.asarray(centres + reaches * reach_reports(steps, invite, rng=rng))


def reach_reports(steps: Ints, invite: Invite[Any, Any], *, rng: Randomness) -> Floats:
    """Reports in reach coordinates, one a person (a row each, on the lattice); NaN where none is told.

    Of a line (the target last) each is epsilon-DP for the epsilon of its invitation, whatever the columns: the vector
    that it tells of lies within public bounds before it is randomised.

    >>> from hybridp.public.mechanisms import PureDP
    >>> from hybridp.public.regression import Line, line_invite
    >>> from hybridp.public.messages import VectorBounds
    >>> from hybridp.noise import secure
    >>> bounds = VectorBounds.of([0, 0], [10, 1])
    >>> asked = line_invite(Line("linear", "steered", bounds, centre=(0.1, 0.2), clip=0.5), PureDP(1.0))
    >>> reach_reports(bounds.steps([[7.0, 0.9]]), asked, rng=secure()).shape
    (1, 2)
    """
    if invite.way == "line":
        line = invite.encoding
        steps, invite = line.steps(steps), Invite(line.vector, invite.mechanism)
    if invite.way == "number":
        return reports(invite.mechanism, invite.placed(steps[:, 0]), rng=rng)[:, None]
    if isinstance(invite.mechanism, ScalarReports):
        return _some_coordinates(invite.mechanism, steps, invite.encoding.reach_steps, rng)
    return _one_direction(invite.mechanism, steps, invite.encoding.reach_steps, rng)


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
        near, uniform_below(plan.top, people, rng=rng), plan.top + uniform_below(2 * pairs - plan.top, people, rng=rng)
    )
    # The names in order: the nearer of each pair by distance, then their opposites.
    index = np.take_along_axis(order, (place % pairs)[:, None], axis=1)[:, 0]
    towards = np.where(np.take_along_axis(inner, index[:, None], axis=1)[:, 0] >= 0, 1.0, -1.0)
    return index, np.where(place < pairs, towards, -towards)


# --- options, yes or no to one of several that the device drew, records, and cells of a map ---------------------------


def report_options(held: Ints, invite: OnOptions, joint: Joint | None = None, *, rng: Randomness) -> list[str]:
    """The reports of many people as texts, each with their own randomness: private as `invite.promise` says.

    `held` are the numbers of options, or sets of those ticked; of a value and a private category together, a number is
    rounded to one of its bounds first. A report is the number of an option, or numbers of several; of ticks, the place
    among what a report may say.
    """
    if joint is not None and isinstance(joint.answers, Bounds):
        held = noise.voted_cells(held, 2 * joint.steps, joint.steps, rng=rng)
    if invite.encoding.most:
        sent: NDArray[Any] = tick_places(held, invite, rng=rng)
    else:
        sent = oracle_reports(invite.mechanism, held, rng=rng)
    return written_reports(invite.mechanism, sent, invite.encoding.told)


def tick_places(sets: Ints, invite: OnOptions, *, rng: Randomness) -> Ints:
    """The option is drawn first, and looks at nobody's ticks."""
    option = uniform_below(invite.encoding.size, len(sets), rng=rng)
    no = 1 - ((kept(sets, invite.encoding) >> option) & 1)
    return 2 * option + categories(invite.mechanism, no, rng=rng)


def simulated_reports(counts: Ints, invite: OnOptions, values: Ints | None = None, *, rng: Randomness) -> ShareReports:
    """For a trial: everybody's reports, added up, where so many people hold each option, or each of the `values`."""
    everyone = np.repeat(np.arange(len(counts)) if values is None else values, counts)
    if invite.encoding.most:
        supports = np.bincount(tick_places(everyone, invite, rng=rng), minlength=len(invite.encoding.told))
    else:
        supports = noise.simulate_counts(invite.mechanism, everyone, rng=rng)
    return ShareReports(len(everyone), supports, invite.mechanism)


def _drawn(codes: NDArray[np.uint16], invite: OnMarginals, rng: Randomness) -> Iterator[tuple[int, Ints, NDArray[Any]]]:
    """Each marginal, who drew it, and their reports. The draw comes first, and looks at nobody's codes."""
    steps = invite.mechanism.steps
    asked = np.searchsorted(steps, uniform_below(int(steps[-1]), codes.shape[1], rng=rng), side="right")
    for i, features in enumerate(invite.mechanism.marginals):
        who = np.flatnonzero(asked == i)
        sizes = tuple(invite.encoding.sizes[f] for f in features)
        cells = np.ravel_multi_index(tuple(codes[f, who].astype(np.int64) for f in features), sizes)
        held = np.asarray(cells, dtype=np.int64)
        yield i, who, oracle_reports(invite.mechanism.oracles[i], held, rng=rng)


def report_marginals(codes: NDArray[np.uint16], invite: OnMarginals, *, rng: Randomness) -> list[str]:
    """One report for each person, a column of `codes`: private as `invite.promise` says, whatever was drawn."""
    out: list[str] = [""] * codes.shape[1]
    for i, who, sent in _drawn(codes, invite, rng):
        for person, text in zip(who.tolist(), written_reports(invite.mechanism.oracles[i], sent), strict=True):
            out[person] = f"{i}:{text}"
    return out


def simulated_marginals(codes: NDArray[np.uint16], invite: OnMarginals, *, rng: Randomness) -> MarginalReports:
    """For a trial: everybody's reports, added up."""
    result, oracles = MarginalReports.nobody(invite), invite.mechanism.oracles
    for start in range(0, codes.shape[1], _PART):
        told = [
            ShareReports(len(who), randomisers.support_counts(oracles[i], sent), oracles[i])
            for i, who, sent in _drawn(codes[:, start : start + _PART], invite, rng)
        ]
        result = result + MarginalReports(tuple(told))
    return result


def answer_map(levels: Floats, invite: OnMap, *, rng: Randomness) -> Ints:
    """The cell told by each person (levels: coordinates x people), by k-ary randomised response."""
    return categories(invite.mechanism, invite.encoding.cell(levels), rng=rng)
