"""The curator's part of several options a person: one noisy count an option, for all of them together.

A replaced person moves the counts by at most ``min(2 most, k)`` in all, whatever the field holds: of more ticks than
`most` the first ones are counted. How many people are in each group is public under replacement.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hybridp import noise, tables
from hybridp.curator.mean import Columns, check_mechanism
from hybridp.curator.shares import batch_digest, share_query
from hybridp.curator.sources import Entrusted
from hybridp.public.mechanisms import DiscreteLaplace
from hybridp.public.shares import CountNoise, NoisyCounts, TickInvite, TickReports, option_counts, tick_counts
from hybridp.randomness import Randomness
from hybridp.tables.shares import share_totals

__all__ = ["RawTicks", "read", "read_answers", "release_ticks"]


@dataclass(frozen=True, eq=False, slots=True)
class RawTicks:
    """RAW: the exact trusted counts, and in a trial the sets that local people hold. Never leaves this room."""

    trusted_people: int
    trusted: NDArray[np.int64]
    local: TickReports
    local_sets: tuple[NDArray[np.int64], NDArray[np.int64]] | None
    simulated_reports: bool
    assumed: bool = False
    digest: str | None = None


def read(
    rows: tables.Rows, columns: Columns, invite: TickInvite, *, local_raw: bool = False, assume: bool = False
) -> RawTicks:
    """Both groups' counts. Reports of another mechanism, or of none unless it is assumed, are refused."""
    if columns.report not in rows.columns:  # fine when nobody is local; refused below when somebody is
        columns = replace(columns, report=None)
    rows.need("column", columns.value)
    says = True if local_raw else check_mechanism(rows, columns, invite.text)
    query = replace(share_query(columns, invite.question, local_raw=local_raw), cells=invite.names)
    found = share_totals(rows, query, named=True)
    local = TickReports(found.local_counts, invite.oracle)
    if local_raw:
        return RawTicks(found.trusted_people, found.trusted_counts, local, found.local_sets, simulated_reports=True)
    assumed = tables.named_mechanism(f"{columns.report}_mechanism", says, local.people, assume=assume)
    digest = batch_digest(rows, columns, invite.text, local.counts, local.people)
    return RawTicks(found.trusted_people, found.trusted_counts, local, None, bool(says), assumed, digest)


def read_answers(answers: Entrusted, invite: TickInvite) -> RawTicks:
    """The same from the answers that a service keeps: how many trusted people ticked each option."""
    people, counts = 0, np.zeros(invite.question.size, dtype=np.int64)
    for sets in answers.codes():
        people += len(sets)
        counts += tick_counts(sets[:, 0], np.ones(len(sets), dtype=np.int64), invite.question)
    nobody = TickReports(np.zeros(len(invite.names), dtype=np.int64), invite.oracle)
    return RawTicks(people, counts, nobody, None, simulated_reports=False)


def release_ticks(raw: RawTicks, stated: CountNoise, *, rng: Randomness) -> list[NoisyCounts]:
    """Every option's count of trusted people, each with noise for all of them: what the guarantee is about."""
    assert isinstance(stated.mechanism, DiscreteLaplace)
    drawn = noise.discrete_laplace(stated.mechanism.scale, len(raw.trusted), rng=rng)
    return [
        option_counts(raw.trusted_people, count + int(draw), stated)
        for count, draw in zip(raw.trusted.tolist(), drawn, strict=True)
    ]
