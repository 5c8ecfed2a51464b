"""Simulated collections of records: made-up or declared non-private ones, the real mechanisms, a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

import numpy as np
from numpy.typing import NDArray

from hybridp.blend import heavy as blending
from hybridp.blend.heavy import Estimate, local_estimate
from hybridp.curator.models import threshold_counts
from hybridp.curator.sums import noisy_sums
from hybridp.noise import Randomness
from hybridp.protocols.rows import report_slots as report_all
from hybridp.public.heavy import HeadList, counting_noise, discovery
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import SlotReports
from hybridp.public.randomisers import Oracle
from hybridp.tasks import records as protocol
from hybridp_lab.baselines.oracles import AnyOracle, simulate_counts
from hybridp_lab.papers.blender.two_stage import (
    TwoStageStudy,
    blend_in_order,
    from_two_stage,
    report_slots,
    two_stage,
)

__all__ = ["HeavyTrial", "simulate_heavy"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class HeavyTrial:
    """One simulated collection: what the opt-in group, the clients, and both together say.

    Records are pairs of whole numbers (query, url), or (query, 0) at depth one; None in a slot is the wildcard.
    """

    head: HeadList
    discovered: int
    opt_in: blending.HeavyBlend | None
    clients: blending.HeavyBlend | None
    blended: blending.HeavyBlend


def simulate_heavy(
    queries: Ints,
    urls: Ints,
    study: protocol.RecordsTask,
    *,
    trusted: int,
    oracle: Callable[[PureDP, int], AnyOracle] | None = None,
    rng: Randomness,
) -> HeavyTrial:
    """One collection from one record a person; the first `trusted` people opt in (the order must be random).

    Local people report as the study says, or by another `oracle` over the slots of the list.
    """
    n_s = round(trusted * study.discovery_share)
    stride = int(urls.max()) + 1 if study.depth == 2 else 1
    codes = queries * stride + (urls if study.depth == 2 else 0)
    distinct, counts = np.unique(codes[:n_s], return_counts=True)
    passing, noisy = threshold_counts(counts.astype(np.int64), discovery(study.trusted_whole), rng=rng)
    records = [_record(int(c), stride, study.depth) for c in distinct[passing].tolist()]
    full = HeadList.of(records, study.depth)
    placed = _slots(codes[n_s:], full, stride)
    among_t = np.bincount(placed[: trusted - n_s], minlength=len(full)).astype(np.int64)
    counted = np.array(noisy_sums(among_t, counting_noise(study.trusted_whole), rng=rng))
    result = protocol.opt_in_counts(records, noisy, n_s, counted, full, trusted - n_s, study.trusted_whole)
    head, opt_in = blending.trim(result, study.most, reuse=study.reuse)
    local = full.fold(head)[placed[trusted - n_s :]]
    client = _client(local, head, study, oracle, rng) if len(local) else None
    everything = [*opt_in, *([client] if client is not None else [])]
    blended = _blended(head, everything, study)
    keep = blending.most_probable(blended.head, blended.queries, study.head)

    def alone(estimates: list[Estimate]) -> blending.HeavyBlend | None:
        return blending.restrict(_blended(head, estimates, study), keep) if estimates else None

    final = blending.restrict(blended, keep)
    return HeavyTrial(
        head=final.head,
        discovered=len(records),
        opt_in=alone(opt_in),
        clients=alone([] if client is None else [client]),
        blended=final,
    )


def _client(
    local: Ints,
    head: HeadList,
    study: protocol.RecordsTask,
    oracle: Callable[[PureDP, int], AnyOracle] | None,
    rng: Randomness,
) -> Estimate:
    if isinstance(study, TwoStageStudy):
        stages = two_stage(head, study.guarantee, study.query_share)
        told = np.bincount(report_slots(local, stages, rng=rng), minlength=len(head)).astype(np.int64)
        return from_two_stage(stages, told)
    if oracle is None or len(head) < 2:
        invite = study.invite_to(head)
        return local_estimate(head, invite.mechanism, report_all(local, invite, rng=rng))
    other = oracle(PureDP(study.guarantee.epsilon), len(head))
    return local_estimate(head, cast(Oracle, other), SlotReports(len(local), simulate_counts(other, local, rng=rng)))


def _blended(head: HeadList, estimates: list[Estimate], study: protocol.RecordsTask) -> blending.HeavyBlend:
    if isinstance(study, TwoStageStudy):
        return blend_in_order(head, estimates, study.order)
    return blending.blend_heavy(head, estimates)


def _record(code: int, stride: int, depth: int) -> tuple[str, ...]:
    return (str(code // stride), str(code % stride)) if depth == 2 else (str(code),)


def _slots(codes: Ints, head: HeadList, stride: int) -> Ints:
    """The slot of every record, by binary search over the list's codes."""
    out = np.full(len(codes), len(head) - 1, dtype=np.int64)
    wild = [(int(s[0]), i) for i, s in enumerate(head.slots) if s[0] is not None and s[-1] is None]
    exact = [(_code(s, stride), i) for i, s in enumerate(head.slots) if None not in s]
    for keys, values in ((codes // stride, wild), (codes, exact)):
        if values:
            known = np.array(sorted(values), dtype=np.int64)
            at = np.minimum(np.searchsorted(known[:, 0], keys), len(known) - 1)
            hit = known[at, 0] == keys
            out[hit] = known[at[hit], 1]
    return out


def _code(slot: tuple[str | None, ...], stride: int) -> int:
    query = int(slot[0] or 0)
    return query * stride + int(slot[1] or 0) if len(slot) == 2 else query
