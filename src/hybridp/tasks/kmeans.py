"""Hybrid K-means as a conversation: a map, a few rounds, and the centres.

1. Everyone may know: the box, the number of clusters, how many people are in each group, the plan made from these.
2. The *map*, where the budget affords one: trusted people are counted on a public grid, with noise; a part of the local
   people tell their cell by randomised response, with their whole epsilon. Lloyd's algorithm runs on the blended map.
   Without a map the centres start packed like spheres in the box.
3. In every *round* the centres are public. Trusted people's deviations from their nearest centre, no longer than a
   public radius, are added up with noise; another part of the local people report a label and a deviation, once.
   The blend moves the centres.
4. The release states centres, noisy sizes and the receipt. Nobody's label is released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from hybridp.blend import kmeans as blending
from hybridp.blend.kmeans import Clusters
from hybridp.errors import must
from hybridp.public.budgets import ZCDP, ApproxDP, Charge, Guarantee, PureDP, zcdp_for
from hybridp.public.kmeans import (
    LEAST_CLUSTERED,
    MOST_CELLS,
    Box,
    Grid,
    OnMap,
    Spend,
    TotalsNoise,
    map_invite,
    map_noise,
    packing,
    round_invite,
    round_noise,
)
from hybridp.public.rounds import Cells, Conversation, Crowd, Later, Many, Moves
from hybridp.public.study import Declaration, Points
from hybridp.public.vector import VectorBounds
from hybridp.release.receipt import (
    Made,
    Protection,
    build_receipt,
    choice_unprotected,
    chosen_blindly,
    plain,
    public_choice,
)
from hybridp.release.release import Release, statistic
from hybridp.tasks.task import Task, declared

__all__ = ["KMeansTask", "Plan", "kmeans_task", "plan_rounds", "plan_with_map", "start"]

Floats = NDArray[np.float64]


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
            ok = all(isinstance(s, ZCDP) for s in spends) and g.delta > 0
            ok = ok and total <= Fraction(zcdp_for(g.epsilon, g.delta).rho)
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
    return ZCDP(zcdp_for(guarantee.epsilon, guarantee.delta).rho * share * (1 - 1e-12))


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


# --- the conversation -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KMeansTask(Task):
    """Everything that is decided, and public, before anybody sends anything.

    `guarantee` is what every person is promised, under replacement of their point. `iterations` bounds how often anyone
    is asked; the plan may need fewer. Trusted people may have another promise (`trusted_guarantee`). With `per_axis`
    all local people answer one map of so many cells an axis, once, and the trusted go on alone.
    """

    called = "kmeans"
    by_invitation = planned = True
    box: Box
    clusters: int
    guarantee: PureDP | ApproxDP
    iterations: int | None = None
    trusted_guarantee: PureDP | ApproxDP | None = None
    per_axis: int = 0

    def __post_init__(self) -> None:
        for name, value in (
            ("clusters", self.clusters),
            ("iterations", 1 if self.iterations is None else self.iterations),
            ("per_axis", self.per_axis or 1),
        ):
            must(isinstance(value, int), name, "must be a whole number", value)
            must(value >= 1, name, "must be at least 1", value)
        for promise in (self.guarantee, self.trusted_whole):
            ok = LEAST_CLUSTERED <= promise.epsilon <= 30
            rule = f"must be at least {LEAST_CLUSTERED} and at most 30 for K-means"
            must(ok, "epsilon", rule, promise.epsilon)

    @property
    def trusted_promise(self) -> PureDP | ApproxDP:
        """What the trusted group pays: a delta only where Gaussian noise is used."""
        gaussian = spends_gaussian(self.trusted_whole, self.box.dims)
        return self.trusted_whole if gaussian else PureDP(self.trusted_whole.epsilon)

    def rounds(self, trusted: int, local: int, iterations: int | None = None) -> Plan:
        """The map and the rounds for so many people."""
        return plan_rounds(
            self.trusted_whole,
            dims=self.box.dims,
            clusters=self.clusters,
            trusted=trusted,
            local=local,
            iterations=self.iterations if iterations is None else iterations,
            local_epsilon=self.guarantee.epsilon,
        )

    def mapped(self, trusted: int, local: int) -> KMeansTask:
        """The same where so many expected people are asked about a map: from public numbers alone."""
        plan, rule = self.rounds(trusted, local, iterations=2), "must be more, or epsilon larger, or coordinates and"
        must(plan.per_axis > 0, "people", f"{rule} clusters fewer, for a useful map", trusted + local)
        return replace(self, per_axis=plan.per_axis)

    @property
    def invite(self) -> OnMap | None:
        """What goes to every device, where all answer one map."""
        return map_invite(Grid(self.box, self.per_axis), self.guarantee.epsilon) if self.per_axis else None

    def at_once(self, names: tuple[str, ...]) -> Later | None:
        asked = self.invite
        return None if asked is None else Later(replace(asked, question=names), about={"cells": asked.encoding.cells})

    def invited(self) -> KMeansTask:
        return replace(self, iterations=None, trusted_guarantee=None)

    def plan(self, trusted: int, local: int) -> Plan:
        """The map and the rounds of so many people who came."""
        if not self.per_axis:
            return self.rounds(trusted, local)
        own = {"trusted": trusted, "local": local, "iterations": self.iterations}
        return plan_with_map(self.trusted_whole, self.per_axis, dims=self.box.dims, **own)  # type: ignore[arg-type]

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger is asked for, before a row is read; each group's total for the whole conversation."""
        own = PureDP(self.guarantee.epsilon)
        return [
            Charge("trusted", self.trusted_promise, "noisy counts and sums by cluster", purpose),
            Charge("local", own, "cell of the map" if self.per_axis else "reports of a point", purpose,
                   collection=collection),
        ]  # fmt: skip

    def check_inviting(self, *, trial: bool) -> None:
        must(False, "invite-out", "must be planned from the numbers of people (`mapped`): it needs no rows", "one")

    def check_tally(self, tally: Any, names: tuple[str, ...]) -> None:
        cells = 0 if self.invite is None else self.invite.encoding.cells
        must(cells > 0, "reports", "must be given together with the invitation", "a tally")
        must(len(tally.counts) == cells, "tally", f"must count the {cells} cells", len(tally.counts))

    def prepared(self, columns: Any) -> KMeansTask:
        many = len(columns.names)
        must(many == self.box.dims, "columns", f"must be {self.box.dims}, as the bounds", many)
        return self

    def ask(self, crowd: Crowd) -> Conversation:
        people = yield Many(self.box)
        rule = f"must be at most the {sum(people)} people"
        must(sum(people) >= self.clusters, "clusters", rule, self.clusters)
        plan = self.plan(*people)
        result = yield from self.clustered(plan)
        return _publish(self, result, plan, crowd, people, **crowd.made())

    def clustered(self, plan: Plan) -> Conversation:
        """The map and the rounds of a plan; the centres are in steps of the box.

        Guarantee: `trusted_whole` for trusted people against whoever sees every message of the curator (zCDP or pure
        composition over map and rounds), epsilon-DP for every local person against everyone (one report each).
        """
        result, box = start(self), self.box
        if plan.per_axis:
            grid = Grid(box, plan.per_axis)
            noise = None if plan.map_spend is None else map_noise(plan.map_spend)
            asked = map_invite(grid, self.guarantee.epsilon) if plan.local_people else None
            got = yield Cells(grid, noise, asked, (plan.map_parts, plan.parts))
            result = blending.centres_of_map(grid, blending.blend_map(got.trusted, got.local), self.clusters)
        for turn in range(plan.rounds):
            radius, centres = blending.radius_for(box, result), np.rint(result.centres)
            noise = None if plan.round_spend is None else round_noise(plan.round_spend, box.dims, radius)
            told = round_invite(box, centres, radius, self.guarantee.epsilon) if plan.local_people else None
            got = yield Moves(centres, radius, noise, told, (plan.map_parts + turn, plan.parts))
            early = not plan.per_axis and turn + 1 < plan.rounds
            result = blending.blend_round(box, result, got.trusted, got.local, radius, reseed=early)
        return result


def start(study: KMeansTask) -> Clusters:
    """Packed centres, and nothing known about sizes."""
    k, d = study.clusters, study.box.dims
    nothing = np.full(k, np.inf)
    return Clusters(packing(study.box, k), np.full(k, 1 / k), np.full((k, d), np.inf), nothing)


# --- from centres to a release: units, noisy sizes, promises ----------------------------------------------------------

_ASSUMES = (
    public_choice("point is"),
    choice_unprotected(),
    chosen_blindly("the bounds and the number of clusters"),
    "the centres are estimates of a local optimum; nobody's label is published, and labels computed from the centres "
    "for a person are as private as that person's point",
)


def _publish(
    study: KMeansTask,
    found: Clusters,
    plan: Plan,
    crowd: Crowd,
    people: tuple[int, int],
    **made: Unpack[Made],
) -> Release:
    """State what was found and what was promised. Post-processing: no rows, no noise."""
    total = sum(people)
    centres = study.box.values(found.centres)
    order = np.argsort(-found.shares, kind="stable").tolist()
    noise = [_known(float(np.sqrt(np.mean(found.centre_errors[i] ** 2))) * study.box.step) for i in order]
    facts = statistic(
        "kmeans",
        [[float(v) for v in centres[i]] for i in order],
        None,
        columns=list(crowd.names),
        standard_error=noise,
        size=[float(found.shares[i]) * total for i in order],
        size_error=[_known(float(found.share_errors[i]) * total) for i in order],
        bounds={"lower": list(study.box.lower), "upper": list(study.box.upper)},
        method="improved",
        groups={"trusted": {"people": people[0]}, "local": {"people": people[1]}},
        iterations=plan.iterations,
        map_cells=plan.per_axis**study.box.dims if plan.per_axis else 0,
        noise=_noise(plan),
    )
    return Release(
        {"points": {"centres": plain(facts)}},
        None,
        receipt=build_receipt(
            _trusted_protection(study, plan) if people[0] else None,
            _local_protection(study) if people[1] else None,
            assumes=(*_ASSUMES, crowd.rows(VectorBounds.of(study.box.lower, study.box.upper))),
            reads="points",
            unit="one person, one point",
            **made,
        ),
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _noise(plan: Plan) -> str:
    return "none" if plan.spent is None else "laplace" if isinstance(plan.spent, PureDP) else "gaussian"


def _trusted_protection(study: KMeansTask, plan: Plan) -> Protection:
    own = PureDP(study.trusted_whole.epsilon)
    spent = plan.spent
    level = f"composed as {spent}" if isinstance(spent, ZCDP) else "composed by adding up"
    promise = study.trusted_whole if isinstance(spent, ZCDP) else own
    kind = f"discrete {_noise(plan)} noise on counts in cells and sums by cluster"
    return Protection(promise, kind, f"{plan.iterations} answers, {level}")


def _local_protection(study: KMeansTask) -> Protection:
    once = "one report of a point, with the whole epsilon, on their own device"
    return Protection(PureDP(study.guarantee.epsilon), once)


def kmeans_task(study: Declaration, place: int) -> KMeansTask:
    """The clustering that is asked for at this place among the questions."""
    asked = cast(Points, study.questions[place])
    return declared(KMeansTask, study, place, box=Box(asked.lower, asked.upper))
