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
from statistics import NormalDist
from typing import Any, cast

import numpy as np

from hybridp.blend import heavy as blending
from hybridp.blend.heavy import HeavyEstimator
from hybridp.errors import must
from hybridp.public.heavy import HeadList, Record, counting_noise, discovery, slot_response
from hybridp.public.mechanisms import ApproxDP, Charge, PureDP
from hybridp.public.messages import Conversation, Invite, OnList, OptInCounts
from hybridp.public.questions import Records
from hybridp.public.randomisers import Floats
from hybridp.public.rounds import Answer, Crowd, Discover, Later, Slots
from hybridp.public.shuffling import Mixing
from hybridp.public.study import Declaration
from hybridp.release import release as releasing
from hybridp.release.release import GroupEstimate, Protection, Release, statistic
from hybridp.tasks.task import BUILDERS, Task, declared, mixed_assumptions, mixed_facts, mixed_promises

__all__ = ["RecordsTask", "list_mixing", "opt_in_counts", "records_task"]


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
        for promise in (self.guarantee, self.trusted_whole):
            must(promise.delta > 0, "delta", "must be positive to discover records", promise.delta)
            ok = 0.01 <= promise.epsilon <= 30
            must(ok, "epsilon", "must be at least 0.01 and at most 30", promise.epsilon)
        must(0 < self.discovery_share < 1, "discovery-share", "must be strictly between 0 and 1", self.discovery_share)

    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """The trusted people's record, and other people's reports, which are purely private."""
        result = [Charge("trusted", self.trusted_whole, "thresholded counts of one record", purpose)]
        made = "k-rr report on the head list"
        result.append(Charge("local", PureDP(self.guarantee.epsilon), made, purpose, collection=collection))
        if self.mixing is not None:  # whatever mixer and curator do, no more than this
            result.append(Charge("shuffled", PureDP(self.mixing.epsilon), "k-rr report, mixed", purpose))
        return result

    def ask(self, crowd: Crowd) -> Conversation:
        records, noisy, people, others = yield Discover(self.discovery_share, discovery(self.trusted_whole))
        head = HeadList.of([tuple(one) for one in records], self.depth)
        counted = yield Slots(head, counting_noise(self.trusted_whole))
        result = opt_in_counts(records, noisy, people, counted, head, others, self.trusted_whole)
        head, estimates = blending.trim(result, self.most, reuse=self.reuse)
        invite = self.invite_to(head, crowd.names)
        about = {"slots": len(head), "queries": len(head.queries) - 1, "report": invite.mechanism.name}
        got = yield Later(invite, about=about)
        return _publish(self, result, invite, estimates, got or Answer(), crowd)

    @property
    def most(self) -> int:
        """The most queries that everyone counts."""
        return math.ceil(self.head * self.spare)

    def invite_to(self, head: HeadList, names: tuple[str, ...] = ()) -> OnList:
        """What goes to the devices: the final head list."""
        return Invite(head, slot_response(PureDP(self.guarantee.epsilon), len(head)), names)

    def mixed_of(self, invite: OnList) -> OnList | None:
        """The same for people who trust a mixer, with the epsilon that a batch allows."""
        if self.mixing is None:
            return None
        own = slot_response(PureDP(self.mixing.epsilon), len(invite.encoding))
        return replace(invite, mechanism=own, mixed=True)


def opt_in_counts(
    records: Any, noisy: Any, discoverers: int, counted: Any, head: HeadList, others: int, promise: ApproxDP
) -> OptInCounts:
    """Step 3: the noisy counts of the head list's slots among the estimation part, beside the discovery counts."""
    discovered = np.full(len(head), np.nan)
    for record, value in zip(records, noisy, strict=True):
        discovered[head.slot_of(tuple(record))] = value
    noises = discovery(promise), counting_noise(promise)
    return OptInCounts(head, discoverers, others, discovered, np.array(counted, dtype=np.float64), *noises)


def list_mixing(invite: OnList, mixing: Mixing) -> Mixing:
    """What a batch of such reports keeps: responses to a list of k slots have a tighter bound than any report."""
    k = len(invite.encoding)
    return replace(mixing, k=k) if k >= 2 else mixing


# --- publishing -------------------------------------------------------------------------------------------------------


def _publish(
    study: RecordsTask,
    found: OptInCounts,
    invite: OnList,
    estimates: list[blending.Estimate],
    got: Answer,
    crowd: Crowd,
) -> Release:
    """Blend what the trusted said with the local reports (None: nobody was asked) and those that came through a mixer:
    post-processing, nothing is drawn."""
    local, mixed, level = got.local, got.mixed, study.level
    second, shuffled = study.mixed_of(invite), None
    reports = [(invite.mechanism, local)] if local is not None and local.people else []
    device = f"{invite.mechanism.name} report on their own device"
    own = Protection(PureDP(study.guarantee.epsilon), device) if reports else None
    if mixed is not None and mixed.people and second is not None and study.mixing is not None:
        reports.append((second.mechanism, mixed.summary))
        batches = mixed_facts(list_mixing(second, study.mixing), mixed.sizes, second.mechanism.name)
        shuffled = GroupEstimate(mixed.people, mixing=batches)
    everything, anchor, default = blending.held(invite.encoding, estimates, reports, study.estimator)
    counted = blending.blend_heavy(invite.encoding, everything, anchor)
    blended = blending.restrict(counted, blending.most_probable(counted.head, counted.queries, study.head))
    head, is_record, held = blended.head, blended.head.is_record, blended.anchor
    every = blended.slots, blended.centres, blended.errors
    queries = blended.queries[:-1], blended.query_centres[:-1], blended.query_errors[:-1]
    queried: list[Record] = [(query,) for query in head.queries[:-1]]
    best, worst = blending.rank_ranges(blended.centres[is_record], blended.errors[is_record], level)
    records, rest = np.flatnonzero(is_record), np.flatnonzero(~is_record)
    order = _ranked([head.slots[i] for i in records.tolist()], blended.slots[records])
    places, first = np.arange(1, len(order) + 1), records[order].tolist()
    ranks = {"best": np.minimum(best[order], places).tolist(), "worst": np.maximum(worst[order], places).tolist()}
    shares = _listed(head.slots, every, first, level)
    groups: dict[str, Any] = {
        "trusted": {
            "people": found.discovery_people + found.estimation_people,
            "discovery": found.discovery_people,
            "estimation": found.estimation_people,
        },
        "local": {"people": 0 if local is None else local.people},
    }
    mixing: dict[str, Any] = {}
    if shuffled is not None:
        groups["shuffled"], mixing = {"people": shuffled.people}, {"mixing": shuffled.mixing}
    facts = statistic(
        "heavy-hitters",
        shares["estimate"],
        shares["interval"],
        records=shares["records"],
        ranks=ranks,
        queries=_listed(queried, queries, _ranked(queried, queries[0]), level),
        wildcards=_listed(head.slots, every, rest.tolist(), level),
        anchor=None if held is None else {"plain": held.plain[first], "most": held.most[first], "reach": held.reach},
        head_list_size=len(queried),
        discovered_records=int(np.isfinite(found.discovered).sum()),
        groups=groups,
        mechanisms={
            "discovery": f"noise of scale {found.discovery.scale:.4g}, threshold {found.discovery.threshold}",
            "estimation": f"laplace noise of scale {found.noise.scale:.4g}",
            "local": invite.mechanism.name if local is not None else "none",
        },
        **mixing,
    )
    chosen = "" if default is None else default.words("hybrid", "a trusted share", "at equal shares", default.reach)
    return Release(
        {"records": {"shares": facts}},
        level,
        receipt=releasing.build_receipt(
            Protection(
                study.trusted_whole,
                "thresholded noisy counts (discovery part) or noisy counts of known slots (estimation part)",
                "no amplification: the head list is shown to local people before the end",
            ),
            own,
            mixed=mixed_promises(shuffled),
            assumes=(*_ASSUMES, *mixed_assumptions(shuffled), chosen),
            reads="record",
            **crowd.made(),
        ),
    )


def _listed(
    names: Sequence[Record], numbers: tuple[Floats, Floats, Floats], order: list[int], level: float
) -> dict[str, Any]:
    """Parallel lists in this order, one entry a name: in a wildcard the last entries are None, for everything else.

    Intervals are around the unbiased values, within [0, 1], and wide enough for the published ones."""
    values, centres, errors = (each[order] for each in numbers)
    half = NormalDist().inv_cdf((1 + level) / 2) * errors
    low = np.maximum(np.minimum(centres - half, values), 0.0)
    high = np.minimum(np.maximum(centres + half, values), 1.0)
    listed = [list(names[i]) for i in order]
    return {"records": listed, "estimate": values.tolist(), "interval": [low.tolist(), high.tolist()]}


def _ranked(names: Sequence[Record], values: Floats) -> list[int]:
    return sorted(range(len(names)), key=lambda i: (-values[i], str(names[i])))


_ASSUMES = (
    releasing.public_choice("records are"),
    "one record of each person is used, chosen from their own records alone; a person without one counts for the rest",
    releasing.choice_unprotected("records"),
    "devices report as stated, and answer an invitation once; a dishonest one counts as a report for what it likes",
    "assumes that people who trust and people who do not are alike: each group counts by its errors",
)


def records_task(study: Declaration, place: int) -> RecordsTask:
    return declared(RecordsTask, study, place, depth=len(cast(Records, study.questions[place]).columns))


BUILDERS["records"] = records_task
