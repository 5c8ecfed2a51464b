"""BLENDER: heavy hitters discovered by those who trust, counted by everyone (dissertation, Algs 2.1-2.6, corrected).

1. Trusted people are split, without looking at their records, into discovery (most of them) and estimation.
2. `discover`: the curator shows the records whose noisy counts among the former pass a threshold (Alg. 2.2).
3. The others' noisy counts on that list choose the M queries that stay (Alg. 2.3).
4. The head list is the invitation: every local person's device reports on it, whatever they hold (Alg. 2.4).
5. Both groups' counts are debiased (Alg. 2.5) and blended by variance (Alg. 2.6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Unpack, cast, get_args

import numpy as np
from numpy.typing import NDArray

from hybridp.blend import heavy as blending
from hybridp.blend.heavy import HeavyEstimator, blend_heavy, keep_best, restrict
from hybridp.errors import must
from hybridp.public.anchoring import Anchoring
from hybridp.public.budgets import ApproxDP, Charge, PureDP
from hybridp.public.heavy import HeadList, counting_noise, discovery, slot_response
from hybridp.public.messages import Invite, OnList, OptInCounts, SlotReports
from hybridp.public.rounds import Conversation, Crowd, Discover, Later, Slots
from hybridp.public.shuffling import Mixing
from hybridp.public.study import Declaration, Records
from hybridp.release.answers import Shuffled
from hybridp.release.receipt import Made, Protection, build_receipt, choice_unprotected, plain, public_choice
from hybridp.release.release import GroupEstimate, Release, statistic
from hybridp.tasks.task import MixedReports, Task, declared, mixed_assumptions, mixed_batches, mixed_promises

__all__ = ["RecordsTask", "list_mixing", "opt_in_counts", "records_task", "trim"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True)
class RecordsTask(Task):
    """Everything that is decided before anybody sends anything (Table 2.3's defaults; M counts queries).

    `reuse` also blends the noisy counts of the discovery group, which are already paid for. Up to `spare` times M
    queries are counted by everyone, and the M of them that stay are chosen at the end, when everyone has counted.
    `estimator` "anchored" holds reports to the trusted counts, slot by slot; "alike" does so where that is cheap.
    With `mixing`, some people's reports come through a mixer and have a larger epsilon of their own. Trusted people may
    have another promise (`trusted_guarantee`).
    """

    called = "heavy hitters"
    by_invitation = True
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
        for promise in (self.guarantee, self.trusted_whole):
            ok = 0.01 <= promise.epsilon <= 30
            must(ok, "epsilon", "must be at least 0.01 and at most 30", promise.epsilon)
        delta = self.trusted_whole.delta
        must(delta > 0, "delta", "must be positive to discover records", delta)
        must(self.head >= 1, "head", "must be at least 1", self.head)
        must(self.depth in (1, 2), "record", "must have one or two columns", self.depth)
        must(0 < self.discovery_share < 1, "discovery-share", "must be strictly between 0 and 1", self.discovery_share)
        must(0 < self.level < 1, "level", "must be strictly between 0 and 1", self.level)
        must(1 <= self.spare <= 100, "spare", "must be at least 1 and at most 100", self.spare)
        known = get_args(HeavyEstimator)
        must(self.estimator in known, "estimator", f"must be one of {', '.join(known)}", self.estimator)

    @property
    def local_guarantee(self) -> PureDP:
        """Reports are purely private."""
        return PureDP(self.guarantee.epsilon)

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """The trusted people's record, and other people's reports."""
        result = [Charge("trusted", self.trusted_whole, "thresholded counts of one record", purpose)]
        made = "k-rr report on the head list"
        result.append(Charge("local", self.local_guarantee, made, purpose, collection=collection))
        if self.mixing is not None:  # whatever mixer and curator do, no more than this
            result.append(Charge("shuffled", PureDP(self.mixing.epsilon), "k-rr report, mixed", purpose))
        return result

    def ask(self, crowd: Crowd) -> Conversation:
        records, noisy, people, others = yield Discover(self.discovery_share, discovery(self.trusted_whole))
        head = HeadList.of([tuple(one) for one in records], self.depth)
        counted = yield Slots(head, counting_noise(self.trusted_whole))
        result = opt_in_counts(records, noisy, people, counted, head, others, self)
        head, estimates = trim(result, self)
        invite = self.invite_to(head, crowd.names)
        told = {"slots": len(head), "queries": len(head.queries) - 1, "report": invite.mechanism.name}
        got = yield Later(invite, about=told)
        local, mixed = (None, None) if got is None else (got.local, got.mixed)
        return _publish(self, result, invite, estimates, local, mixed, **crowd.made())

    def invite_to(self, head: HeadList, names: tuple[str, ...] = ()) -> OnList:
        """What goes to the devices: the final head list."""
        return Invite(head, slot_response(self.local_guarantee, len(head)), names)

    def mixed_of(self, invite: OnList) -> OnList | None:
        """The same for people who trust a mixer, with the epsilon that a batch allows."""
        if self.mixing is None:
            return None
        own = slot_response(PureDP(self.mixing.epsilon), len(invite.encoding))
        return replace(invite, mechanism=own, mixed=True)


# --- the trusted group ------------------------------------------------------------------------------------------------


def opt_in_counts(
    records: Any,
    noisy: Any,
    discovery_people: int,
    counted: Any,
    head: HeadList,
    estimation_people: int,
    study: RecordsTask,
) -> OptInCounts:
    """Step 3: the noisy counts of the head list's slots among the estimation part, beside the discovery counts."""
    shown = np.full(len(head), np.nan)
    for record, value in zip(records, noisy, strict=True):
        shown[head.slot_of(tuple(record))] = value
    return OptInCounts(
        head,
        discovery_people,
        estimation_people,
        shown,
        np.array(counted, dtype=np.float64),
        discovery(study.trusted_whole),
        counting_noise(study.trusted_whole),
    )


def trim(found: OptInCounts, study: RecordsTask) -> tuple[HeadList, list[blending.Estimate]]:
    """Keep the most probable queries, M or some to spare; what is dropped joins the wildcard, with its noise."""
    return blending.trim(found, math.ceil(study.head * study.spare), reuse=study.reuse)


def list_mixing(invite: OnList, mixing: Mixing) -> Mixing:
    """What a batch of such reports keeps: responses to a list of k slots have a tighter bound than any report."""
    k = len(invite.encoding)
    return replace(mixing, k=k) if k >= 2 else mixing


# --- what is told of everyone's counts -------------------------------------------------------------------------------


def _listed(
    names: Sequence[Sequence[str | None]], numbers: tuple[Floats, Floats, Floats], order: list[int], level: float
) -> dict[str, Any]:
    """Parallel lists in this order, one entry a name: in a wildcard the last entries are None, for everything else.

    Intervals are around the unbiased values, within [0, 1], and wide enough for the published ones."""
    values, centres, errors = (each[order] for each in numbers)
    half = blending.half_width(errors, level)
    low = np.maximum(np.minimum(centres - half, values), 0.0)
    high = np.minimum(np.maximum(centres + half, values), 1.0)
    told = [list(names[i]) for i in order]
    return {"records": told, "estimate": values.tolist(), "interval": [low.tolist(), high.tolist()]}


def _ranked(names: Sequence[tuple[str | None, ...]], values: Floats) -> list[int]:
    """The places, most frequent first."""
    return sorted(range(len(names)), key=lambda i: (-values[i], str(names[i])))


# --- publishing -------------------------------------------------------------------------------------------------------


def _publish(
    study: RecordsTask,
    found: OptInCounts,
    invite: OnList,
    estimates: list[blending.Estimate],
    told: SlotReports | None,
    mixed: MixedReports[SlotReports] | None,
    **made: Unpack[Made],
) -> Release:
    """Blend what the trusted said with the local reports (None: nobody was asked): post-processing, nothing is drawn.

    `mixed` reports are a third group.
    """
    everything, anchor, default = estimates, None, None
    second, shuffled = study.mixed_of(invite), None
    heard = [(invite.mechanism, told)] if told is not None and told.people else []
    if mixed is not None and mixed.summary.people and second is not None and study.mixing is not None:
        heard.append((second.mechanism, mixed.summary))
        batches = mixed_batches(list_mixing(second, study.mixing), mixed.batches)
        shuffled = Shuffled(GroupEstimate(mixed.summary.people), None, second.mechanism.name,
                            study.mixing.epsilon, study.mixing.batch, batches)  # fmt: skip
    if heard:
        (first, *more) = heard
        everything, anchor, default = blending.held(invite.encoding, estimates, *first, study.estimator, more)
    counted = blend_heavy(invite.encoding, everything, anchor)
    blended = restrict(counted, keep_best(counted, study.head))
    level = study.level
    head, is_record = blended.head, blended.head.is_record
    every = blended.slots, blended.centres, blended.errors
    asked: list[tuple[str | None, ...]] = [(query,) for query in head.queries[:-1]]
    queries = blended.queries[:-1], blended.query_centres[:-1], blended.query_errors[:-1]
    best, worst = blending.rank_ranges(blended.centres[is_record], blended.errors[is_record], level)
    kept, rest = np.flatnonzero(is_record), np.flatnonzero(~is_record)
    order = _ranked([head.slots[i] for i in kept.tolist()], blended.slots[kept])
    places, first = np.arange(1, len(order) + 1), kept[order].tolist()
    ranks = {"best": np.minimum(best[order], places).tolist(), "worst": np.maximum(worst[order], places).tolist()}
    shares, others = (_listed(head.slots, every, of, level) for of in (first, rest.tolist()))
    told_queries = _listed(asked, queries, _ranked(asked, queries[0]), level)
    held = blended.anchor
    groups: dict[str, Any] = {
        "trusted": {
            "people": found.discovery_people + found.estimation_people,
            "discovery": found.discovery_people,
            "estimation": found.estimation_people,
        },
        "local": {"people": 0 if told is None else told.people},
    }
    mixing: dict[str, Any] = {}
    if shuffled is not None:
        groups["shuffled"], mixing = {"people": shuffled.group.people}, {"mixing": shuffled.to_dict()}
    facts = statistic(
        "heavy-hitters",
        shares["estimate"],
        shares["interval"],
        records=shares["records"],
        ranks=ranks,
        queries=told_queries,
        wildcards=others,
        anchor=None if held is None else {"plain": held.plain[first].tolist(), "most": plain(held.most[first].tolist()),
                                          "reach": held.reach},
        head_list_size=len(asked),
        discovered_records=int(np.isfinite(found.discovered).sum()),
        groups=groups,
        mechanisms={
            "discovery": f"noise of scale {found.discovery.scale:.4g}, threshold {found.discovery.threshold}",
            "estimation": f"laplace noise of scale {found.noise.scale:.4g}",
            "local": invite.mechanism.name if told is not None else "none",
        },
        **mixing,
    )
    return Release(
        {"records": {"shares": facts}},
        level,
        receipt=build_receipt(
            Protection(
                study.trusted_whole,
                "thresholded noisy counts (discovery part) or noisy counts of known slots (estimation part)",
                "no amplification: the head list is shown to local people before the end",
            ),
            Protection(study.local_guarantee, f"{invite.mechanism.name} report on their own device")
            if told is not None and told.people
            else None,
            mixed=mixed_promises(shuffled),
            assumes=(*_ASSUMES, *mixed_assumptions(shuffled), *_default(default)),
            reads="record",
            **made,
        ),
    )


def _default(default: Anchoring | None) -> list[str]:
    return [] if default is None else [default.words("hybrid", "a trusted share", "at equal shares", default.reach)]


_ASSUMES = (
    public_choice("records are"),
    "one record of each person is used, chosen from their own records alone; a person without one counts for the rest",
    choice_unprotected("records"),
    "devices report as stated, and answer an invitation once; a dishonest one counts as a report for what it likes",
    "assumes that people who trust and people who do not are alike: each group counts by its errors",
)


def records_task(study: Declaration, place: int) -> RecordsTask:
    """The heavy hitters that are asked for at this place among the questions."""
    return declared(RecordsTask, study, place, depth=len(cast(Records, study.questions[place]).columns))
