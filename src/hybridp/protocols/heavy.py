"""BLENDER: heavy hitters discovered by those who trust, counted by everyone (dissertation, Algs 2.1-2.6, corrected).

1. Trusted people are split, without looking at their records, into discovery (most of them) and estimation.
2. `discover`: the curator shows the records whose noisy counts among the former pass a threshold (Alg. 2.2).
3. The others' noisy counts on that list choose the M queries that stay (Alg. 2.3).
4. The head list is the invitation: every local person's device reports on it, whatever they hold (Alg. 2.4).
5. Both groups' counts are debiased (Alg. 2.5) and blended by variance (Alg. 2.6).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from hybridp.blend import heavy as blending
from hybridp.blend.heavy import HeavyBlend, HeavyEstimator, blend_heavy, keep_best, restrict
from hybridp.errors import must
from hybridp.noise.reports import simulate_counts
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heavy import HeadList, OneSlot, counting_noise, discovery
from hybridp.public.messages import OptInCounts, SlotReports
from hybridp.public.randomisers import KRandomisedResponse, k_randomised_response
from hybridp.public.shuffling import Mixing
from hybridp.randomness import Randomness

__all__ = [
    "HeavyBlend",
    "HeavyStudy",
    "Invitation",
    "blend_heavy",
    "invitation",
    "keep_best",
    "list_mixing",
    "mixed_invitation",
    "opt_in_counts",
    "ranked_queries",
    "ranked_records",
    "report",
    "restrict",
    "trim",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class HeavyStudy:
    """Everything that is decided before anybody sends anything (Table 2.3's defaults; M counts queries).

    `reuse` also blends the noisy counts of the discovery group, which are already paid for. Up to `spare` times M
    queries are counted by everyone, and the M of them that stay are chosen at the end, when everyone has counted.
    `estimator` "anchored" holds reports to the trusted counts, slot by slot; "alike" does so where that is cheap.
    With `mixing`, some people's reports come through a mixer and have a larger epsilon of their own. Trusted people may
    have another promise (`trusted_guarantee`).
    """

    guarantee: ApproxDP
    depth: int = 2
    head: int = 50
    discovery_share: float = 0.95
    reuse: bool = True
    level: float = 0.95
    spare: float = 1.5
    estimator: HeavyEstimator = "alike"
    mixing: Mixing | None = None
    trusted_guarantee: ApproxDP | None = None

    def __post_init__(self) -> None:
        must(self.guarantee.delta > 0, "delta", "must be positive to discover records", self.guarantee.delta)
        for promise in (self.guarantee, self.trusted_promise):
            ok = 0.01 <= promise.epsilon <= 30
            must(ok, "epsilon", "must be at least 0.01 and at most 30", promise.epsilon)
        delta = self.trusted_promise.delta
        must(delta > 0, "delta", "must be positive to discover records", delta)
        must(self.head >= 1, "head", "must be at least 1", self.head)
        must(self.depth in (1, 2), "record", "must have one or two columns", self.depth)
        must(0 < self.discovery_share < 1, "discovery-share", "must be strictly between 0 and 1", self.discovery_share)
        must(0 < self.level < 1, "level", "must be strictly between 0 and 1", self.level)
        must(1 <= self.spare <= 100, "spare", "must be at least 1 and at most 100", self.spare)
        known = get_args(HeavyEstimator)
        must(self.estimator in known, "estimator", f"must be one of {', '.join(known)}", self.estimator)

    @property
    def trusted_promise(self) -> ApproxDP:
        """What trusted people are promised, whose records are discovered and counted."""
        return self.trusted_guarantee or self.guarantee

    @property
    def local_guarantee(self) -> PureDP:
        """Reports are purely private."""
        return PureDP(self.guarantee.epsilon)


@dataclass(frozen=True)
class Invitation:
    """What goes to the devices: the final head list and the mechanism for it."""

    head: HeadList
    mechanism: OneSlot | KRandomisedResponse


# --- the trusted group ------------------------------------------------------------------------------------------------


def opt_in_counts(
    records: list[tuple[str, ...]],
    noisy: Ints,
    discovery_people: int,
    counted: Ints,
    head: HeadList,
    estimation_people: int,
    study: HeavyStudy,
) -> OptInCounts:
    """Step 3: the noisy counts of the head list's slots among the estimation part, beside the discovery counts."""
    shown = np.full(len(head), np.nan)
    for record, value in zip(records, noisy.tolist(), strict=True):
        shown[head.slot_of(record)] = value
    return OptInCounts(
        head,
        discovery_people,
        estimation_people,
        shown,
        counted.astype(np.float64),
        discovery(study.trusted_promise),
        counting_noise(study.trusted_promise),
    )


def trim(found: OptInCounts, study: HeavyStudy) -> tuple[HeadList, list[blending.Estimate]]:
    """Keep the most probable queries, M or some to spare; what is dropped joins the wildcard, with its noise."""
    return blending.trim(found, math.ceil(study.head * study.spare), reuse=study.reuse)


# --- the local group --------------------------------------------------------------------------------------------------


def invitation(head: HeadList, study: HeavyStudy) -> Invitation:
    """Step 4: the mechanism for this head list."""
    return Invitation(head, OneSlot() if len(head) < 2 else k_randomised_response(study.local_guarantee, len(head)))


def mixed_invitation(head: HeadList, study: HeavyStudy) -> Invitation | None:
    """The same for people who trust a mixer: one slot, with the epsilon that a batch allows."""
    if study.mixing is None:
        return None
    return invitation(head, replace(study, guarantee=replace(study.guarantee, epsilon=study.mixing.epsilon)))


def list_mixing(invite: Invitation, mixing: Mixing) -> Mixing:
    """What a batch of such reports keeps: responses to a list of k slots have a tighter bound than any report."""
    k = len(invite.head)
    return replace(mixing, k=k) if k >= 2 else mixing


def report(slots: Ints, invite: Invitation, *, rng: Randomness) -> SlotReports:
    """Many devices' reports, added up as they come."""
    if isinstance(invite.mechanism, OneSlot):
        return SlotReports(len(slots), np.array([len(slots)]))
    return SlotReports(len(slots), simulate_counts(invite.mechanism, slots, rng=rng))


# --- what is told of everyone's counts -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class HeavyRecord:
    """One record (or query): its share of people, an interval, and the best and worst rank it may have.

    In a wildcard the last entries are None: everything else of a query, or of all. Where reports are held to the
    trusted counts, `plain` is the unbiased blend without that rule, and `most` the farthest from the trusted share that
    any reports could have moved the unbiased estimate (None where the trusted say nothing); the estimate is the nearest
    of all that add up.
    """

    record: tuple[str | None, ...]
    estimate: float
    low: float
    high: float
    best_rank: int | None = None
    worst_rank: int | None = None
    plain: float | None = None
    most: float | None = None


def ranked_records(blended: HeavyBlend, level: float) -> tuple[tuple[HeavyRecord, ...], tuple[HeavyRecord, ...]]:
    """The records, most frequent first, with the ranks that they may have; and the wildcards."""
    every = _measured(list(blended.head.slots), blended.slots, blended.centres, blended.errors, level)
    keep, rest = np.flatnonzero(blended.head.is_record), np.flatnonzero(~blended.head.is_record)
    if (anchor := blended.anchor) is not None:
        bounds = [float(most) if np.isfinite(most) else None for most in anchor.most]
        every = [replace(r, plain=p, most=m) for r, p, m in zip(every, anchor.plain.tolist(), bounds, strict=True)]
    found = [every[i] for i in keep.tolist()]
    ranks = blending.rank_ranges(blended.centres[keep], blended.errors[keep], level)
    return _ranked(found, *ranks), tuple(every[i] for i in rest.tolist())


def ranked_queries(blended: HeavyBlend, level: float) -> tuple[HeavyRecord, ...]:
    """The same of queries, whatever their urls."""
    names: list[tuple[str | None, ...]] = [(query,) for query in blended.head.queries]
    found = _measured(names, blended.queries, blended.query_centres, blended.query_errors, level)[:-1]
    return _ranked(found, *blending.rank_ranges(blended.query_centres[:-1], blended.query_errors[:-1], level))


def _measured(
    names: list[tuple[str | None, ...]], values: Floats, centres: Floats, errors: Floats, level: float
) -> list[HeavyRecord]:
    """Intervals around the unbiased values, within [0, 1], and wide enough for the published ones."""
    half = blending.half_width(errors, level)
    low = np.maximum(np.minimum(centres - half, values), 0.0)
    high = np.minimum(np.maximum(centres + half, values), 1.0)
    rows = zip(names, values.tolist(), low.tolist(), high.tolist(), strict=True)
    return [HeavyRecord(*row) for row in rows]


def _ranked(found: list[HeavyRecord], best: Ints, worst: Ints) -> tuple[HeavyRecord, ...]:
    """Most frequent first; each with the ranks that it may have, its own place among them."""
    order = sorted(range(len(found)), key=lambda i: (-found[i].estimate, str(found[i].record)))
    return tuple(
        replace(found[i], best_rank=min(int(best[i]), place), worst_rank=max(int(worst[i]), place))
        for place, i in enumerate(order, 1)
    )
