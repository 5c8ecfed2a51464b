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
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hybridp.blend import kmeans as blending
from hybridp.blend.kmeans import Clusters
from hybridp.curator import kmeans as curating
from hybridp.curator.kmeans import PointRows, Points
from hybridp.device import kmeans as device
from hybridp.errors import must
from hybridp.ledger import Charge
from hybridp.noise import uniform_below
from hybridp.public.budgets import ZCDP, ApproxDP, PureDP
from hybridp.public.kmeans import LEAST_CLUSTERED, Box, Grid, map_noise, packing, round_noise
from hybridp.public.kmeans_rounds import (
    LocalMap,
    LocalRound,
    MapInvite,
    Plan,
    RoundInvite,
    RoundReports,
    map_invite,
    plan_rounds,
    plan_with_map,
    round_invite,
    spends_gaussian,
)
from hybridp.randomness import Randomness
from hybridp.release.facts import statistic
from hybridp.release.receipt import (
    Protection,
    build_receipt,
    choice_unprotected,
    chosen_blindly,
    plain,
    public_choice,
    values_rule,
)
from hybridp.release.release import Release

__all__ = [
    "Crowd",
    "KMeansStudy",
    "SimulatedCrowd",
    "cluster",
    "publish_kmeans",
    "release_points",
    "start",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class KMeansStudy:
    """Everything that is decided, and public, before anybody sends anything.

    `guarantee` is what every person is promised, under replacement of their point. `iterations` bounds how often anyone
    is asked; the plan may need fewer. Trusted people may have another promise (`trusted_guarantee`).
    """

    box: Box
    clusters: int
    guarantee: PureDP | ApproxDP
    iterations: int | None = None
    trusted_guarantee: PureDP | ApproxDP | None = None

    def __post_init__(self) -> None:
        for name, value in (
            ("clusters", self.clusters),
            ("iterations", 1 if self.iterations is None else self.iterations),
        ):
            must(isinstance(value, int), name, "must be a whole number", value)
            must(value >= 1, name, "must be at least 1", value)
        for promise in (self.guarantee, self.trusted_whole):
            ok = LEAST_CLUSTERED <= promise.epsilon <= 30
            rule = f"must be at least {LEAST_CLUSTERED} and at most 30 for K-means"
            must(ok, "epsilon", rule, promise.epsilon)

    @property
    def trusted_whole(self) -> PureDP | ApproxDP:
        """What trusted people are promised at most."""
        return self.trusted_guarantee or self.guarantee

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

    def rounds_after(self, asked: MapInvite, trusted: int, local: int) -> Plan:
        """The same where all local people answer this map, once: the trusted go on alone."""
        return plan_with_map(
            self.trusted_whole,
            asked.grid.per_axis,
            dims=self.box.dims,
            trusted=trusted,
            local=local,
            iterations=self.iterations,
        )

    def charges(
        self,
        purpose: str,
        collection: str | None = None,
        *,
        groups: tuple[str, ...],
        reports: str = "reports of a point",
    ) -> list[Charge]:
        """What the ledger is asked for, before a row is read; each group's total for the whole conversation.

        `reports` says which reports the local people's are: a collection of that name holds no others.
        """
        found = []
        for group in groups:
            if group == "trusted":
                found.append(Charge(group, self.trusted_promise, "noisy counts and sums by cluster", purpose))
            else:
                own = PureDP(self.guarantee.epsilon)
                found.append(Charge(group, own, reports, purpose, collection=collection))
        return found


class Crowd(Protocol):
    """Local people, behind whatever carries messages to their devices. Every person belongs to one part."""

    @property
    def people(self) -> int: ...

    def tell_cell(self, invite: MapInvite, part: int, parts: int) -> Ints:
        """The cells told by the people of one part."""
        ...

    def tell_deviation(self, invite: RoundInvite, part: int, parts: int) -> RoundReports:
        """The labels and deviations told by the people of one part."""
        ...


@dataclass(eq=False)
class SimulatedCrowd:
    """For a trial: raw points of local people, answered for here by the code that runs on a device."""

    levels: Floats
    rng: Randomness
    _part: Ints | None = None

    @property
    def people(self) -> int:
        return int(self.levels.shape[1])

    def _of(self, part: int, parts: int) -> Floats:
        if parts == 1:
            return self.levels
        if self._part is None:  # drawn once: the same people never answer twice
            self._part = uniform_below(parts, self.people, rng=self.rng)
        return self.levels[:, self._part == part]

    def tell_cell(self, invite: MapInvite, part: int, parts: int) -> Ints:
        return device.answer_map(self._of(part, parts), invite, rng=self.rng)

    def tell_deviation(self, invite: RoundInvite, part: int, parts: int) -> RoundReports:
        return device.answer_round(self._of(part, parts), invite, rng=self.rng)


def cluster(
    study: KMeansStudy, trusted: PointRows | None, local: Crowd | None, *, plan: Plan | None = None, rng: Randomness
) -> tuple[Clusters, Plan]:
    """Run the conversation, by this plan or by the best one known; the centres are in steps of the box.

    Guarantee: `study.trusted_whole` for trusted people against whoever sees every message of the curator (zCDP or pure
    composition over map and rounds), epsilon-DP for every local person against everyone (one report each).

    No ledger is charged here. A crowd that is online learns noisy centres with every round: charge `study.charges`
    before the first one, and keep the charge when the conversation breaks off.
    """
    people = (0 if trusted is None else trusted.people, 0 if local is None else local.people)
    plan = plan or study.rounds(*people)
    found = start(study)
    if plan.per_axis:
        found = _map(study, plan, trusted, local, rng)
    for turn in range(plan.rounds):
        found = _round(study, plan, found, trusted, local, turn, rng)
    return found, plan


def start(study: KMeansStudy) -> Clusters:
    """Packed centres, and nothing known about sizes."""
    k, d = study.clusters, study.box.dims
    nothing = np.full(k, np.inf)
    return Clusters(packing(study.box, k), np.full(k, 1 / k), np.full((k, d), np.inf), nothing)


def _map(study: KMeansStudy, plan: Plan, trusted: PointRows | None, local: Crowd | None, rng: Randomness) -> Clusters:
    grid = Grid(study.box, plan.per_axis)
    said = counted = None
    if trusted is not None and plan.map_spend is not None:
        counted = curating.release_map(trusted, grid, map_noise(plan.map_spend), rng=rng)
    if local is not None and plan.local_people:
        invite = map_invite(grid, study.guarantee.epsilon)
        told = np.zeros(grid.cells, dtype=np.int64)
        for part in range(plan.map_parts):
            told += np.bincount(local.tell_cell(invite, part, plan.parts), minlength=grid.cells)
        said = LocalMap(invite, told)
    return blending.centres_of_map(grid, blending.blend_map(counted, said), study.clusters)


def _round(
    study: KMeansStudy,
    plan: Plan,
    before: Clusters,
    trusted: PointRows | None,
    local: Crowd | None,
    turn: int,
    rng: Randomness,
) -> Clusters:
    box, k = study.box, study.clusters
    radius = blending.radius_for(box, before)
    centres = np.rint(before.centres)
    added = said = None
    if trusted is not None and plan.round_spend is not None:
        noise = round_noise(plan.round_spend, box.dims, radius)
        added = curating.release_round(trusted, centres, noise, radius=radius, rng=rng)
    if local is not None and plan.local_people:
        invite = round_invite(box, centres, radius, study.guarantee.epsilon)
        said = LocalRound(invite, np.zeros(k, dtype=np.int64), np.zeros((k, box.dims)))
        said = blending.collect_round(said, local.tell_deviation(invite, plan.map_parts + turn, plan.parts))
    early = not plan.per_axis and turn + 1 < plan.rounds
    return blending.blend_round(box, before, added, said, radius, reseed=early)


# --- from centres to a release: units, noisy sizes, promises ----------------------------------------------------------

_ASSUMES = (
    public_choice("point is"),
    choice_unprotected(),
    chosen_blindly("the bounds and the number of clusters"),
    "the centres are estimates of a local optimum; nobody's label is published, and labels computed from the centres "
    "for a person are as private as that person's point",
)


def release_points(
    study: KMeansStudy,
    trusted: ArrayLike | None,
    local: ArrayLike | None,
    *,
    columns: tuple[str, ...] | None = None,
    rng: Randomness,
) -> Release:
    """Release the centres of points in memory; local people's are raw and randomised here, which makes it a trial.

    >>> from hybridp.public.kmeans import Box
    >>> from hybridp.randomness import seeded
    >>> study = KMeansStudy(Box((0.0,), (1.0,)), 2, PureDP(5.0))
    >>> points = [[0.1]] * 500 + [[0.9]] * 500
    >>> found = release_points(study, points, None, rng=seeded(1))
    >>> sorted(round(centre[0], 1) for centre in found.facts["estimate"])
    [0.1, 0.9]
    """
    rows = None if trusted is None or not len(np.asarray(trusted)) else Points.read(study.box, trusted)
    crowd = None if local is None or not len(np.asarray(local)) else SimulatedCrowd(study.box.levels(local), rng)
    found, plan = cluster(study, rows, crowd, rng=rng)
    return publish_kmeans(
        study,
        found,
        plan,
        columns=columns or tuple(f"x{j}" for j in range(study.box.dims)),
        people=(0 if rows is None else rows.people, 0 if crowd is None else crowd.people),
        simulated_local=crowd is not None,
        rng=rng,
    )


def publish_kmeans(
    study: KMeansStudy,
    found: Clusters,
    plan: Plan,
    *,
    columns: tuple[str, ...],
    people: tuple[int, int],
    entries: tuple[int, ...] = (),
    simulated_local: bool = False,
    missing: tuple[float | str, ...] | None = None,
    rng: Randomness,
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
        columns=list(columns),
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
            assumes=(*_ASSUMES, values_rule(_stated(missing))),
            randomness=rng.label,
            seeded=rng.simulated,
            simulated_local=simulated_local,
            reads="points",
            unit="one person, one point",
            entries=entries,
        ),
    )


def _stated(missing: tuple[float | str, ...] | None) -> str:
    """What a missing coordinate counts as, in words."""
    if missing is None or all(one == "middle" for one in missing):
        return "the middle of the bounds"
    return ", ".join(one if isinstance(one, str) else f"{one:g}" for one in missing)


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _noise(plan: Plan) -> str:
    return "none" if plan.spent is None else "laplace" if isinstance(plan.spent, PureDP) else "gaussian"


def _trusted_protection(study: KMeansStudy, plan: Plan) -> Protection:
    own = PureDP(study.trusted_whole.epsilon)
    spent = plan.spent
    level = f"composed as {spent}" if isinstance(spent, ZCDP) else "composed by adding up"
    promise = study.trusted_whole if isinstance(spent, ZCDP) else own
    kind = f"discrete {_noise(plan)} noise on counts in cells and sums by cluster"
    return Protection(promise, kind, f"{plan.iterations} answers, {level}")


def _local_protection(study: KMeansStudy) -> Protection:
    once = "one report of a point, with the whole epsilon, on their own device"
    return Protection(PureDP(study.guarantee.epsilon), once)
