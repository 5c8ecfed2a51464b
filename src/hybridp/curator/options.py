"""The curator's part of options: one grouped count of the rows, one draw of noise for each count, one charge.

A replaced person moves one count down and another up by 1, whatever the field holds: everybody has one option. Of a
number by a private category everybody has one vote, divided over two cells (`hybridp.public.groups`). Of several
options a replaced person moves the counts by at most ``min(2 most, k)`` in all: of more ticks than `most` the first
are counted.
How many people are in each group is public under replacement.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.curator.reports import batch_digest
from hybridp.curator.sources import Columns, Entrusted, Raw, Rows, noisy_sums
from hybridp.curator.sums import check_reports, release_counts
from hybridp.noise.reports import voted_cells
from hybridp.public.groups import Joint
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
from hybridp.public.trust import label_column
from hybridp.randomness import Randomness
from hybridp.tables.codecs import ByCategory, Report, option_codec
from hybridp.tables.options import count_options, report_texts
from hybridp.tables.query import Query
from hybridp.tables.totals import CHUNK, levels_of

__all__ = ["read", "read_answers", "read_ticks", "read_votes", "release_counts", "release_ticks"]
__all__ += ["rounded_cells"]


def _query(rows: Rows, columns: Columns, invite: ShareInvite, joint: Joint | None, *, local_raw: bool) -> Query:
    report = columns.report if columns.report in rows.columns and not local_raw else None
    return Query(
        values=(option_codec(invite.question, joint, columns.value, columns.missing),),
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
