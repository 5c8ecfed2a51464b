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
from typing import Any, Unpack, cast

import numpy as np
from numpy.typing import NDArray

from hybridp.blend import kmeans as blending
from hybridp.blend.kmeans import Clusters
from hybridp.errors import must
from hybridp.public.budgets import ZCDP, ApproxDP, Charge, PureDP
from hybridp.public.kmeans import LEAST_CLUSTERED, Box, Grid, map_noise, packing, round_noise
from hybridp.public.kmeans_rounds import (
    OnMap,
    Plan,
    map_invite,
    plan_rounds,
    plan_with_map,
    round_invite,
    spends_gaussian,
)
from hybridp.public.rounds import Cells, Conversation, Crowd, Later, Many, Moves
from hybridp.public.study import Declaration, Points
from hybridp.public.vector import VectorBounds
from hybridp.release.facts import statistic
from hybridp.release.receipt import (
    Made,
    Protection,
    build_receipt,
    choice_unprotected,
    chosen_blindly,
    plain,
    public_choice,
)
from hybridp.release.release import Release
from hybridp.tasks.task import Task, declared

__all__ = ["KMeansTask", "kmeans_task", "start"]

Floats = NDArray[np.float64]


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
