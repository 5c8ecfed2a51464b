"""Hybrid K-means as a conversation: a map, a few rounds, and the centres.

1. Everyone may know: the box, the number of clusters, how many people are in each group, the plan made from these.
2. The *map*, where the budget affords one: trusted people are counted on a public grid, with noise; local people tell
   their cell by randomised response, once, with their whole epsilon. Lloyd's algorithm runs on the blended map. Where
   everybody trusts there may be none: the centres then start packed like spheres in the box.
3. In every *round* the centres are public, and trusted people's deviations from their nearest centre, no longer than a
   public radius, are added up with noise. The blend moves the centres.
4. The release states centres, noisy sizes and the receipt. Nobody's label is released.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, cast

import numpy as np

from hybridp.blend import kmeans as blending
from hybridp.errors import must
from hybridp.public import kmeans as rules
from hybridp.public.kmeans import Box, Grid, OnMap, Spend, TotalsNoise
from hybridp.public.mechanisms import ZCDP, ApproxDP, Charge, Guarantee, PureDP, zcdp_for
from hybridp.public.messages import Conversation, VectorBounds
from hybridp.public.questions import Points
from hybridp.public.rounds import Cells, Crowd, Later, Many, Moves
from hybridp.public.study import Declaration
from hybridp.release import release as releasing
from hybridp.release.release import Protection, Release, statistic
from hybridp.tasks.task import BUILDERS, Task, declared

__all__ = ["KMeansTask", "Plan", "kmeans_task"]


# --- the plan ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Plan:
    """How many rounds, whether a map comes first (`per_axis` is 0 without), and what trusted people pay for each."""

    guarantee: Guarantee
    per_axis: int
    rounds: int
    map_spend: Spend | None
    round_spend: Spend | None

    def __post_init__(self) -> None:
        g, (epsilons, rhos) = self.guarantee, self._spends
        ok = sum(map(Fraction, epsilons)) <= Fraction(g.epsilon)
        if rhos:
            total = sum(map(Fraction, rhos))
            ok = not epsilons and g.delta > 0 and total <= Fraction(zcdp_for(g.epsilon, g.delta).rho)
        must(ok, "round_spend", f"must be small enough for {g} with the map's", self.round_spend)

    @property
    def _spends(self) -> tuple[list[float], list[float]]:
        """The epsilons of map and rounds, or their rhos: all are of one kind."""
        every = (self.map_spend, *[self.round_spend] * self.rounds)
        return [s.epsilon for s in every if isinstance(s, PureDP)], [s.rho for s in every if isinstance(s, ZCDP)]

    @property
    def iterations(self) -> int:
        return self.rounds + (self.per_axis > 0)

    @property
    def spent(self) -> Spend | None:
        """The trusted group's total, composed."""
        epsilons, rhos = self._spends
        if rhos:
            return ZCDP(math.fsum(rhos))
        return PureDP(math.fsum(epsilons)) if epsilons else None


def _split(guarantee: Guarantee, gaussian: bool, share: float) -> Spend:
    """A share of the trusted budget, rounded down."""
    if not gaussian:
        return PureDP(guarantee.epsilon * share * (1 - 1e-12))
    return ZCDP(zcdp_for(guarantee.epsilon, guarantee.delta).rho * share * (1 - 1e-12))


def spends_gaussian(guarantee: Guarantee, dims: int) -> bool:
    """Whether the trusted group's budget goes into Gaussian noise; otherwise a delta is left unspent."""
    if guarantee.delta == 0:
        return False
    pure = rules.round_noise(_split(guarantee, False, 0.25), dims, 1000)
    return rules.round_noise(_split(guarantee, True, 0.25), dims, 1000).variance < pure.variance


# --- the conversation -------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class KMeansTask(Task):
    """Everything that is decided, and public, before anybody sends anything.

    `guarantee` is what every person is promised, under replacement of their point. `iterations` bounds how often anyone
    is asked; the plan may need fewer. Trusted people may have another promise (`trusted_guarantee`). `per_axis` are the
    cells an axis of a map that an invitation states; without, they are planned when people are counted.
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
        for promise in (self.guarantee, self.trusted_whole):
            ok = rules.LEAST_CLUSTERED <= promise.epsilon <= 30
            rule = f"must be at least {rules.LEAST_CLUSTERED} and at most 30 for K-means"
            must(ok, "epsilon", rule, promise.epsilon)

    def plan(self, trusted: int, local: int) -> Plan:
        """Map and rounds of so many people. Local people answer the map, and trusted people alone go on.

        Half of the trusted budget goes to the map, where rounds follow it; the rounds share the rest alike. With delta
        > 0 it is split as zCDP and spent on Gaussian noise, or as pure epsilon on Laplace noise, whichever noise is
        smaller in a round.
        """
        rule = f"must be at most the {trusted + local} people"
        must(trusted + local >= self.clusters, "clusters", rule, self.clusters)
        whole, gaussian = self.trusted_whole, spends_gaussian(self.trusted_whole, self.box.dims)
        most = 10 if self.iterations is None else self.iterations
        noise = rules.map_noise(_split(whole, gaussian, 0.5 if most > 1 else 1.0))
        per_axis = self.per_axis or self._useful_axis(trusted, local, noise)
        # A coarse map leaves more to do; more rounds than that only spread the budget thinner (measured).
        rounds = min(most - 1, 1 if per_axis > 3 or local else 2) if per_axis else min(most, self._rounds(trusted))
        rounds = rounds if trusted else 0
        share = 0.5 if per_axis and rounds else 1.0
        of_map = _split(whole, gaussian, share) if trusted and per_axis else None
        return Plan(whole, per_axis, rounds, of_map, _split(whole, gaussian, share / rounds) if rounds else None)

    def _useful_axis(self, trusted: int, local: int, noise: TotalsNoise) -> int:
        """The finest useful grid: Su et al. (2016) take ``M = (n epsilon/10)^(2d/(d+2))`` cells for Laplace noise.

        Noise of variance V on a share is what Laplace noise with n epsilon = sqrt(2/V) would be. A map with fewer than
        four cells a cluster says too little.
        """
        best, dims, e = 0, self.box.dims, math.exp(self.guarantee.epsilon)
        for per_axis in (g for g in range(2, 129) if g**dims <= rules.MOST_CELLS):
            cells = per_axis**dims
            weight = trusted**2 / noise.variance + local * (e - 1) ** 2 / (cells - 2 + e)  # 1/V
            if 4 * self.clusters <= cells <= (math.sqrt(2 * weight) / 10) ** (2 * dims / (dims + 2)):
                best = per_axis
        return best

    def _rounds(self, trusted: int) -> int:
        """The most rounds (2 to 8) that leave a centre's error in each below a tenth of the radius, by coordinate."""
        whole, dims = self.trusted_whole, self.box.dims
        most = 1e4 * (trusted / self.clusters) ** 2
        spends = {t: _split(whole, spends_gaussian(whole, dims), 1 / t) for t in range(3, 9)}
        return max(
            (t for t, spend in spends.items() if rules.round_noise(spend, dims, 1000).variance <= most), default=2
        )

    def mapped(self, trusted: int, local: int) -> KMeansTask:
        """The same where so many expected people are asked about a map: from public numbers alone."""
        per_axis = self.plan(trusted, local).per_axis
        rule = "must be more, or epsilon larger, or coordinates and clusters fewer, for a useful map"
        must(per_axis > 0, "people", rule, trusted + local)
        return replace(self, per_axis=per_axis)

    @property
    def invite(self) -> OnMap | None:
        return rules.map_invite(Grid(self.box, self.per_axis), self.guarantee.epsilon) if self.per_axis else None

    def at_once(self, names: tuple[str, ...]) -> Later | None:
        asked = self.invite
        return None if asked is None else Later(replace(asked, question=names), about={"cells": asked.encoding.cells})

    def invited(self) -> KMeansTask:
        return replace(self, iterations=None, trusted_guarantee=None)

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger is asked for, before a row is read; each group's total for the whole conversation."""
        own = PureDP(self.guarantee.epsilon)
        return [
            Charge("trusted", self.trusted_promise, "noisy counts and sums by cluster", purpose),
            Charge("local", own, "cell of the map", purpose, collection=collection),
        ]

    @property
    def trusted_promise(self) -> PureDP | ApproxDP:
        """What the trusted group pays: a delta only where Gaussian noise is used."""
        gaussian = spends_gaussian(self.trusted_whole, self.box.dims)
        return self.trusted_whole if gaussian else PureDP(self.trusted_whole.epsilon)

    def check_inviting(self, *, trial: bool) -> None:
        must(False, "invite-out", "must be planned from the numbers of people (`mapped`): it needs no rows", "one")

    def check_tally(self, tally: Any) -> None:
        cells = 0 if self.invite is None else self.invite.encoding.cells
        must(cells > 0, "reports", "must be given together with the invitation", "a tally")
        must(len(tally.counts) == cells, "tally", f"must count the {cells} cells", len(tally.counts))

    def ask(self, crowd: Crowd) -> Conversation:
        people = yield Many(self.box)
        task = self.mapped(*people) if people[1] else self
        plan = task.plan(*people)
        result = yield from task.clustered(plan)
        return _publish(self, result, plan, crowd, people)

    def clustered(self, plan: Plan) -> Conversation:
        """The map and the rounds of a plan; the centres are in steps of the box.

        Guarantee: `trusted_whole` for trusted people against whoever sees every message of the curator (zCDP or pure
        composition over map and rounds), epsilon-DP for every local person against everyone (one report each).
        """
        box = self.box
        result = blending.packed(box, self.clusters)
        if plan.per_axis:
            invite = rules.map_invite(Grid(box, plan.per_axis), self.guarantee.epsilon)
            noise = None if plan.map_spend is None else rules.map_noise(plan.map_spend)
            got = yield Cells(invite, noise)
            shares = blending.blend_map(got.trusted, got.local)
            result = blending.centres_of_map(invite.encoding, shares, self.clusters)
        for turn in range(plan.rounds):
            assert plan.round_spend is not None
            radius = blending.radius_for(box, result)
            moved = yield Moves(np.rint(result.centres), rules.round_noise(plan.round_spend, box.dims, radius))
            early = not plan.per_axis and turn + 1 < plan.rounds
            result = blending.blend_round(box, result, moved, reseed=early)
        return result


# --- from centres to a release: units, noisy sizes, promises ----------------------------------------------------------

_ASSUMES = (
    releasing.public_choice("point is"),
    releasing.choice_unprotected(),
    "the bounds and the number of clusters were chosen without looking at the data",
    "the centres are estimates of a local optimum; nobody's label is published, and labels computed from the centres "
    "for a person are as private as that person's point",
)


def _publish(study: KMeansTask, found: blending.Clusters, plan: Plan, crowd: Crowd, people: tuple[int, int]) -> Release:
    """State what was found and what was promised. Post-processing: no rows, no noise."""
    total, spent = sum(people), plan.spent
    order = np.argsort(-found.shares, kind="stable")
    noise = "none" if spent is None else "laplace" if isinstance(spent, PureDP) else "gaussian"
    facts = statistic(
        "kmeans",
        study.box.values(found.centres)[order],
        None,
        columns=list(crowd.names),
        standard_error=np.sqrt(np.mean(found.centre_errors[order] ** 2, axis=1)) * study.box.step,
        size=found.shares[order] * total,
        size_error=found.share_errors[order] * total,
        bounds={"lower": list(study.box.lower), "upper": list(study.box.upper)},
        groups={"trusted": {"people": people[0]}, "local": {"people": people[1]}},
        iterations=plan.iterations,
        map_cells=plan.per_axis**study.box.dims if plan.per_axis else 0,
        noise=noise,
    )
    level = f"composed as {spent}" if isinstance(spent, ZCDP) else "composed by adding up"
    kind = f"discrete {noise} noise on counts in cells and sums by cluster"
    once = "one report of a point, with the whole epsilon, on their own device"
    return Release(
        {"points": {"centres": facts}},
        None,
        receipt=releasing.build_receipt(
            Protection(study.trusted_promise, kind, f"{plan.iterations} answers, {level}") if people[0] else None,
            Protection(PureDP(study.guarantee.epsilon), once) if people[1] else None,
            assumes=(*_ASSUMES, crowd.rows(VectorBounds.of(study.box.lower, study.box.upper))),
            reads="points",
            unit="one person, one point",
            **crowd.made(),
        ),
    )


def kmeans_task(study: Declaration, place: int) -> KMeansTask:
    question = cast(Points, study.questions[place])
    return declared(KMeansTask, study, place, box=Box(question.lower, question.upper))


BUILDERS["points"] = kmeans_task
