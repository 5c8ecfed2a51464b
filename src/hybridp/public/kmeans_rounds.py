"""What travels between the rooms in a round of hybrid K-means, and the plan of all rounds.

Two kinds of invitation go to local people's devices, and every person answers one of them, once, with the whole
epsilon: the *map* (in which cell of a public grid are you?) and the *round* (which of these centres is nearest, and how
far off are you?). Trusted people are counted in both, with the budget divided among them.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.budgets import ZCDP, Guarantee, PureDP, zcdp_for
from hybridp.public.kmeans import MOST_CELLS, Box, Grid, Spend, TotalsNoise, map_noise, round_noise
from hybridp.public.lattice import Floats, Ints
from hybridp.public.messages import Invite
from hybridp.public.randomisers import KRandomisedResponse, Randomiser, best_randomiser, k_randomised_response

__all__ = [
    "LocalRound",
    "OnMap",
    "Plan",
    "RoundInvite",
    "RoundReports",
    "TrustedRound",
    "map_invite",
    "plan_rounds",
    "plan_with_map",
    "round_invite",
    "spends_gaussian",
]

_EPSILONS = np.linspace(0.05, 0.95, 19)


@dataclass(frozen=True, eq=False, slots=True)
class RoundInvite:
    """Which centre is nearest, and what is your deviation from it?

    The label goes through k-ary randomised response (`response`, None for one cluster); `coordinates` of the d
    deviations, drawn at random, go through `value` each, in units of `radius`; when the label told is not the true one,
    the deviation told is that of a point at the centre. Label and values compose: the whole is epsilon-DP, which is
    checked in exact arithmetic when the invitation is made.
    """

    box: Box
    centres: Floats
    radius: int
    response: KRandomisedResponse | None
    value: Randomiser
    coordinates: int
    promise: PureDP

    def __post_init__(self) -> None:
        k, d = self.centres.shape
        must(d == self.box.dims, "centres", f"must have {self.box.dims} coordinates", d)
        must(1 <= self.coordinates <= d, "coordinates", f"must be 1 to {d}", self.coordinates)
        must(self.radius >= 1, "radius", "must be at least one step", self.radius)
        told = 1 if self.response is None else self.response.categories
        must(told == k, "response", f"must have one category for each of the {k} centres", told)
        parts = [self.value.guarantee] * self.coordinates
        parts += [] if self.response is None else [self.response.guarantee]
        within = sum(Fraction(part.epsilon) for part in parts) <= Fraction(self.promise.epsilon)
        ok = within and all(part.delta == 0 for part in parts)
        must(ok, "value", f"must be small enough for {self.promise} with the label", self.value.guarantee)

    @property
    def truth(self) -> float:
        return 1.0 if self.response is None else self.response.truth

    @property
    def other(self) -> float:
        return 0.0 if self.response is None else self.response.other


@dataclass(frozen=True, eq=False, slots=True)
class RoundReports:
    """Answers of several people: the label told, which coordinates, and their noisy values in units of the radius."""

    cluster: Ints
    coordinate: Ints
    value: Floats


@dataclass(frozen=True, eq=False, slots=True)
class LocalRound:
    """Sums over reports by the label told: how many, and their values (clusters, coordinates)."""

    invite: RoundInvite
    told: Ints
    sums: Floats


@dataclass(frozen=True, eq=False, slots=True)
class TrustedRound:
    """Noisy counts of trusted people in each cell of a map; or by cluster, with sums of their deviations (in steps)."""

    people: int
    counts: NDArray[Any]
    noise: TotalsNoise
    sums: Floats | None = None


# --- invitations ------------------------------------------------------------------------------------------------------


OnMap: TypeAlias = Invite[Grid, KRandomisedResponse]


def map_invite(grid: Grid, epsilon: float) -> OnMap:
    """In which cell are you? Answered by k-ary randomised response with the whole epsilon."""
    return Invite(grid, k_randomised_response(PureDP(epsilon), grid.cells))


def _value_variance(epsilon: float, dims: int, coordinates: int) -> float:
    """Mean square of the debiased deviation in one coordinate, for a person at the centre: (d/m) v(epsilon/m)."""
    return dims / coordinates * best_randomiser(PureDP(epsilon / coordinates)).variance_terms[0]


def round_invite(box: Box, centres: Floats, radius: int, epsilon: float) -> RoundInvite:
    """The invitation whose predicted error of a centre is the least.

    With p, q the chances of the true and of another label, n/K people a cluster and v the mean square of a value, n/K
    times the variance of a centre S/f is ``d v/p^2`` from the sums and ``(1 - 1/K) (1/3)^2/(p-q)^2`` from the shares
    (radius 1, a deviation of a third): the split of epsilon and the number m of coordinates minimise it (m = 1 has the
    whole rest of epsilon; Wang et al. 2019 take about epsilon/2.5).
    """
    k, d = len(centres), box.dims
    best = (math.inf, 0.0, 1)
    for share in _EPSILONS if k > 1 else np.zeros(1):
        label, rest = share * epsilon, (1 - share) * epsilon
        p = math.exp(label) / (math.exp(label) + k - 1)
        q = 1 / (math.exp(label) + k - 1)
        most = min(d, max(1, int(rest / 0.5)))
        for m in {1, *(min(most, max(1, round(rest / a))) for a in (5.0, 3.5, 2.5, 1.8)), most}:
            if rest / m < 1e-3 or (k > 1 and label < 1e-3):
                continue
            shares = (1 - 1 / k) / (9 * (p - q) ** 2) if k > 1 else 0.0
            result = d * _value_variance(rest, d, m) / p**2 + shares
            if result < best[0]:
                best = (result, float(label), m)
    must(math.isfinite(best[0]), "epsilon", "must be at least 0.02 for a local report of a point", epsilon)
    _, label, m = best
    response = k_randomised_response(PureDP(label), k) if k > 1 else None
    value = best_randomiser(PureDP((epsilon - label) / m * (1 - 1e-12)))
    return RoundInvite(box, centres, radius, response, value, m, PureDP(epsilon))


# --- the plan ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rounds, whether a map comes first, and who pays what: all from public numbers.

    `per_axis` is 0 without a map. Local people are divided at random into `parts` equal parts: `map_parts` of them
    answer the map, each round has one part.
    """

    guarantee: Guarantee
    trusted_people: int
    local_people: int
    per_axis: int
    rounds: int
    map_spend: Spend | None
    round_spend: Spend | None

    def __post_init__(self) -> None:
        g, spends = self.guarantee, self._spends
        if any(isinstance(s, ZCDP) for s in spends):
            total = sum(Fraction(s.rho) for s in spends if isinstance(s, ZCDP))
            ok = (
                all(isinstance(s, ZCDP) for s in spends) and g.delta > 0 and total <= Fraction(_rho(g.epsilon, g.delta))
            )
        else:
            ok = sum(Fraction(s.epsilon) for s in spends if isinstance(s, PureDP)) <= Fraction(g.epsilon)
        must(ok, "round_spend", f"must be small enough for {g} with the map's", self.round_spend)

    @property
    def _spends(self) -> list[Spend]:
        return [s for s in (self.map_spend, *[self.round_spend] * self.rounds) if s is not None]

    @property
    def map_parts(self) -> int:
        return max(1, self.rounds) if self.per_axis else 0

    @property
    def parts(self) -> int:
        return self.map_parts + self.rounds

    @property
    def iterations(self) -> int:
        return self.rounds + (self.per_axis > 0)

    @property
    def spent(self) -> Spend | None:
        """The trusted group's total, composed."""
        spends = self._spends
        if not spends:
            return None
        if isinstance(spends[0], PureDP):
            return PureDP(math.fsum(s.epsilon for s in spends if isinstance(s, PureDP)))
        return ZCDP(math.fsum(s.rho for s in spends if isinstance(s, ZCDP)))


def _split(guarantee: Guarantee, gaussian: bool, share: float) -> Spend:
    """A share of the trusted budget, rounded down."""
    if not gaussian:
        return PureDP(guarantee.epsilon * share * (1 - 1e-12))
    return ZCDP(_rho(guarantee.epsilon, guarantee.delta) * share * (1 - 1e-12))


@functools.cache
def _rho(epsilon: float, delta: float) -> float:
    return zcdp_for(epsilon, delta).rho


def _cell_variance(trusted: int, local: int, epsilon: float, noise: TotalsNoise | None, cells: int) -> float:
    """Noise variance of the blended share of one cell, without sampling error."""
    weight = 0.0
    if trusted and noise is not None:
        weight += trusted**2 / noise.variance
    if local:
        e = math.exp(min(epsilon, 30.0))
        weight += local * (e - 1) ** 2 / (cells - 2 + e)
    return 1 / weight if weight else math.inf


def _axis(dims: int, clusters: int, variance_at: dict[int, float]) -> int:
    """The finest useful grid: Su et al. (2016) take ``M = (n epsilon/10)^(2d/(d+2))`` cells for Laplace noise.

    Noise of variance V on a share is what Laplace noise with n epsilon = sqrt(2/V) would be. A map with fewer than four
    cells a cluster says too little.
    """
    best = 0
    for per_axis, variance in variance_at.items():
        cells = per_axis**dims
        if cells >= 4 * clusters and cells <= (math.sqrt(2 / variance) / 10) ** (2 * dims / (dims + 2)):
            best = per_axis
    return best


def plan_rounds(
    guarantee: Guarantee,
    *,
    dims: int,
    clusters: int,
    trusted: int,
    local: int,
    iterations: int | None = None,
    local_epsilon: float | None = None,
) -> Plan:
    """Map and rounds for these public numbers, with at most `iterations` questions to anyone.

    `guarantee` is the trusted people's; a report's epsilon is the same unless it is given (`local_epsilon`).
    With delta > 0 the trusted group's budget is split as zCDP and spent on Gaussian noise, or as pure epsilon on
    Laplace noise, whichever noise is smaller in a round.
    """
    people = trusted + local
    must(people >= clusters, "people", f"must be at least the number of clusters ({clusters})", people)
    must(iterations is None or iterations >= 1, "iterations", "must be at least 1", iterations)
    reported = guarantee.epsilon if local_epsilon is None else local_epsilon
    gaussian = spends_gaussian(guarantee, dims)
    most = 10 if iterations is None else iterations
    sizes = [g for g in range(2, 129) if g**dims <= MOST_CELLS]
    half = map_noise(_split(guarantee, gaussian, 0.5 if most > 1 else 1.0))
    per_axis = _axis(
        dims,
        clusters,
        {g: _cell_variance(trusted, local // 2, reported, half, g**dims) for g in sizes},
    )
    if per_axis:
        # A coarse map leaves more to do; more rounds than that only spread the budget thinner (measured).
        rounds = min(most - 1, 1 if per_axis > 3 else 2)
    else:
        rounds = min(most, _rounds_for(guarantee, reported, gaussian, dims, clusters, trusted, local))
    return _paid(guarantee, gaussian, trusted, local, per_axis, rounds)


def _paid(guarantee: Guarantee, gaussian: bool, trusted: int, local: int, per_axis: int, rounds: int) -> Plan:
    """Half of the trusted budget for the map, where rounds follow it; the rounds share the rest alike."""
    share = 0.5 if per_axis and rounds else 1.0
    of_map = _split(guarantee, gaussian, share) if trusted and per_axis else None
    of_round = _split(guarantee, gaussian, share / rounds) if trusted and rounds else None
    return Plan(guarantee, trusted, local, per_axis, rounds, of_map, of_round)


def plan_with_map(
    guarantee: Guarantee, per_axis: int, *, dims: int, trusted: int, local: int, iterations: int | None = None
) -> Plan:
    """The plan when every local person answers the map, and the trusted group alone goes on: one message a person.

    Trusted people are also counted on the map. Local people have no part in the rounds.
    """
    rounds = min(1 if iterations is None else iterations - 1, 1) if trusted else 0
    return _paid(guarantee, spends_gaussian(guarantee, dims), trusted, local, per_axis, rounds)


def spends_gaussian(guarantee: Guarantee, dims: int) -> bool:
    """Whether the trusted group's budget goes into Gaussian noise; otherwise a delta is left unspent."""
    if guarantee.delta == 0:
        return False
    pure = round_noise(_split(guarantee, False, 0.25), dims, 1000)
    return round_noise(_split(guarantee, True, 0.25), dims, 1000).variance < pure.variance


def _rounds_for(
    guarantee: Guarantee, local_epsilon: float, gaussian: bool, dims: int, clusters: int, trusted: int, local: int
) -> int:
    """The most rounds (2 to 8) that leave a centre's error in a round below a tenth of the radius, by coordinate."""
    rounds = 2
    for t in range(3, 9):
        weight = 0.0
        if trusted:
            noise = round_noise(_split(guarantee, gaussian, 1 / t), dims, 1000)
            weight += (trusted / clusters) ** 2 / noise.variance * 1e6
        if local:
            epsilon = min(local_epsilon, 30.0)
            invite = round_invite(Box((0.0,) * dims, (1.0,) * dims), np.zeros((clusters, dims)), 1, epsilon)
            value = invite.value.variance_terms[0] * dims / invite.coordinates
            seen = invite.truth + (clusters - 1) * invite.other
            weight += local / t / clusters * invite.truth**2 / (seen * value)
        if weight and 1 / weight <= 0.1**2:
            rounds = t
    return rounds
