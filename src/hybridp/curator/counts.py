"""The curator's part of options and records: one grouped count of the rows, one draw of noise for each count.

A replaced person moves one count down and another up by 1, whatever the field holds: everybody has one option. Of a
number by a private category everybody has one vote, divided over two cells (`hybridp.public.groups`). Of several
options a replaced person moves the counts by at most ``min(2 most, k)`` in all: of more ticks than `most` the first
are counted.
How many people are in each group is public under replacement.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridp import noise, tables
from hybridp.curator.reports import batch_digest
from hybridp.curator.sources import Answers, Columns, Entrusted, Raw, Rows, noisy_sums
from hybridp.curator.sums import check_reports, release_counts
from hybridp.noise.reports import voted_cells
from hybridp.public.groups import Joint
from hybridp.public.heavy import Discovery, HeadList
from hybridp.public.lattice import Bounds, Lattice
from hybridp.public.mechanisms import DiscreteLaplace
from hybridp.public.oracles import SubsetSelection
from hybridp.public.shares import (
    CountNoise,
    NoisyCounts,
    ShareInvite,
    ShareReports,
    TickReports,
    read_reports,
    tick_counts,
)
from hybridp.public.trust import LABEL, label_column
from hybridp.randomness import Randomness
from hybridp.tables.columns import ByCategory, Report, option_codec
from hybridp.tables.options import count_options, report_texts
from hybridp.tables.query import Query
from hybridp.tables.totals import CHUNK, levels_of

__all__ = ["Discovered", "discover_answers", "found_records", "local_slots", "noisy_counts", "read", "read_answers"]
__all__ += ["read_ticks", "read_votes", "release_counts", "release_ticks", "rounded_cells", "sample", "shown"]
__all__ += ["slots_among"]

Ints = NDArray[np.int64]


def _query(rows: Rows, columns: Columns, invite: ShareInvite, joint: Joint | None, *, local_raw: bool) -> Query:
    report = columns.report if columns.report in rows.columns and not local_raw else None
    return Query(
        values=(option_codec(invite.question, joint, columns.names[0], columns.missing),),
        trust=label_column(columns.trust),
        reports=() if report is None else (Report(report, text=True),),
        names=invite.names if invite.question.most else invite.question.values,
        person=columns.person,
        record_key=columns.record_key,
        record_id=columns.record_id,
        reads="all" if local_raw else "trusted",
    )


def read(
    rows: Rows,
    columns: Columns,
    invite: ShareInvite,
    *,
    local_raw: bool = False,
    assume: bool = False,
    joint: Joint | None = None,
) -> Raw:
    """Both groups' counts, also of several options a person. Reports of another mechanism, or of none, are refused."""
    says = check_reports(rows, columns, invite.text, local_raw)
    query = _query(rows, columns, invite, joint, local_raw=local_raw)
    ticks, sets = bool(invite.question.most), isinstance(invite.oracle, SubsetSelection)
    found = count_options(rows, query, named=not sets)
    counts, steps, held = found.sums, 1, found.held if ticks else found.report_counts
    if found.counts is not None and joint is not None:
        steps, held = joint.steps, None  # whose numbers are rounded by `rounded_cells`
        counts = np.column_stack([found.sums, steps * found.counts - found.sums]).ravel()
    local: Any = ShareReports(0, np.zeros(invite.question.size, dtype=np.int64), invite.oracle)
    if ticks:
        local = TickReports(found.report_counts, invite.oracle)
    elif not (sets or local_raw):
        local = ShareReports(found.local_people, found.report_counts, invite.oracle)
    if local_raw:
        return Raw(found.trusted_people, counts, local, simulated_reports=True, steps=steps, held=held)
    for texts in report_texts(rows, query, CHUNK) if sets and found.local_people else ():
        local = local + read_reports(invite, texts, columns.report or "")
    assumed = tables.named_mechanism(columns.mechanism, says, local.people, assume=assume)
    digest = batch_digest(rows, columns, invite.text, local.counts, local.people)
    return Raw(found.trusted_people, counts, local, bool(says), assumed, digest, steps=steps)


def read_answers(some: Iterable[NDArray[np.int64]], size: int) -> Raw:
    """The same from the answers that a service keeps, some at a time: how many trusted people have each option."""
    counts = np.zeros(size, dtype=np.int64)
    for codes in some:
        counts += np.bincount(codes, minlength=size)
    return Raw(int(counts.sum()), counts)


def read_votes(answers: Entrusted, joint: Joint) -> Raw:
    """The same of a private category and an answer: everybody's vote, which of a number is divided over two cells."""
    if not isinstance(joint.answers, Bounds):
        pairs = answers.codes(2)  # as the place of both among all pairs
        return read_answers((pair[:, 0] * joint.size + pair[:, 1] for pair in pairs), joint.cells.size)
    lattice = Lattice(joint.answers.lower, joint.answers.upper, joint.steps)
    people, upper = np.zeros((2, joint.by.size), dtype=np.int64)
    for pair in answers.codes(2):  # a number is the same 8 bytes as a place
        levels = lattice.round(np.ascontiguousarray(pair[:, 1]).view(np.float64))
        np.add.at(people, pair[:, 0], 1)
        np.add.at(upper, pair[:, 0], levels)
    counts = np.column_stack([upper, joint.steps * people - upper]).ravel()
    return Raw(int(people.sum()), counts, steps=joint.steps)


def rounded_cells(
    rows: Rows, columns: Columns, invite: ShareInvite, joint: Joint, *, rng: Randomness
) -> NDArray[np.int64]:
    """For a trial only: how many local people vote for each cell, by numbers that are rounded here."""
    query = _query(rows, columns, invite, joint, local_raw=True)
    counts = np.zeros(invite.question.size, dtype=np.int64)
    assert isinstance(query.values[0], ByCategory)
    for levels in levels_of(rows, query, "local"):
        cells = voted_cells(levels[:, 0], query.values[0].stride, joint.steps, rng=rng)
        counts += np.bincount(cells, minlength=len(counts))
    return counts


def read_ticks(answers: Entrusted, invite: ShareInvite) -> Raw:
    """The same from the answers that a service keeps: how many trusted people ticked each option."""
    people, counts = 0, np.zeros(invite.question.size, dtype=np.int64)
    for sets in answers.codes():
        people += len(sets)
        counts += tick_counts(sets[:, 0], np.ones(len(sets), dtype=np.int64), invite.question)
    nobody = TickReports(np.zeros(len(invite.names), dtype=np.int64), invite.oracle)
    return Raw(people, counts, nobody)


def release_ticks(raw: Raw, stated: CountNoise, *, rng: Randomness) -> list[NoisyCounts]:
    """Every option's count of trusted people, each with noise for all of them: what the guarantee is about."""
    assert isinstance(stated.mechanism, DiscreteLaplace)
    noisy = noisy_sums(raw.trusted, stated.mechanism, rng=rng)
    return [NoisyCounts(raw.trusted_people, (count,), stated) for count in noisy]


# --- records: discovered by most of the trusted people, counted by the rest -------------------------------------------


def sample(
    rows: tables.Rows, columns: Columns, discovery_share: float, *, rng: Randomness
) -> tables.RecordSample:
    """One record of each person, and the split of the trusted people, by a fresh salt. RAW: stays here."""
    query = tables.HeavyQuery(
        person=columns.person or "",
        record=columns.names,
        trust=label_column(columns.trust) or LABEL,
        record_key=columns.record_key,
        record_id=columns.record_id,
    )
    salt = int(rng.words(1)[0])
    return tables.sample_records(rows, query, salt, discovery_share=discovery_share)


def found_records(
    people: tables.RecordSample, mechanism: Discovery, *, rng: Randomness
) -> tuple[list[tuple[str, ...]], Ints]:
    """The records that the discovery part shows, and their noisy counts."""
    numbers, counts = tables.discovery_counts(people)
    passing, noisy = shown(counts, mechanism, rng=rng)
    return _in_order(tables.records_at(people, numbers[passing]), noisy)


def _in_order(records: list[tuple[str, ...]], noisy: Ints) -> tuple[list[tuple[str, ...]], Ints]:
    """Alphabetically: the order in which rows held them may tell of people."""
    order = sorted(range(len(records)), key=records.__getitem__)
    return [records[i] for i in order], noisy[order]


def slots_among(people: tables.RecordSample, head: HeadList, mechanism: DiscreteLaplace, *, rng: Randomness) -> Ints:
    """The noisy counts of every slot among the estimation part."""
    return noisy_counts(tables.head_counts(people, list(head.slots), "estimation"), mechanism, rng=rng)


class Discovered(NamedTuple):
    """Records that a part of the trusted people show, with noise, and how many they are; RAW: what the others hold."""

    records: list[tuple[str, ...]]
    noisy: Ints
    people: int
    others: Counter[tuple[str, ...]]


def discover_answers(answers: Answers, share: float, mechanism: Discovery, *, rng: Randomness) -> Discovered:
    """The first part of the curator's work on the answers that a service keeps, one record of each person.

    Who discovers and who counts is decided by a coin for each person, without looking at their record.
    """
    limit = np.uint64(int(share * 2**64))
    halves: tuple[Counter[tuple[str, ...]], Counter[tuple[str, ...]]] = (Counter(), Counter())
    for records in answers.records():
        counts_others = (rng.words(len(records)) >= limit).tolist()
        for record, half in zip(records, counts_others, strict=True):
            halves[half][record] += 1
    known = list(halves[0])
    among = np.array([halves[0][record] for record in known], dtype=np.int64)
    passing, noisy = shown(among, mechanism, rng=rng)
    found = _in_order([known[i] for i in passing.tolist()], noisy)
    return Discovered(*found, halves[0].total(), halves[1])


def local_slots(people: tables.RecordSample, head: HeadList) -> Iterator[Ints]:
    """For a trial, or a device's own file: the slot of every local person, in chunks. RAW."""
    return tables.local_slots(people, list(head.slots))


def shown(counts: Ints, mechanism: Discovery, *, rng: Randomness) -> tuple[Ints, Ints]:
    """Which of the distinct records are shown, and their noisy counts (Alg. 2.2). `counts` are at least 1, and RAW.

    The guarantee is the mechanism's, for one record a person: the numbers of the records that pass, and their noisy
    counts, may leave this room once they are in an order that tells nothing (`_in_order`).
    """
    noisy = counts + noise.discrete_laplace(mechanism.scale, len(counts), rng=rng)
    passing = np.flatnonzero(noisy >= mechanism.threshold).astype(np.int64)
    return passing, noisy[passing]


def noisy_counts(counts: Ints, mechanism: DiscreteLaplace, *, rng: Randomness) -> Ints:
    """The counts of known slots with noise on every one of them, wildcards included (Alg. 2.3)."""
    return np.asarray(counts + noise.discrete_laplace(mechanism.scale, len(counts), rng=rng), dtype=np.int64)
