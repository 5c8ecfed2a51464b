"""The curator's part of shares: one grouped count of the rows, one draw of noise for each count, one charge.

A replaced person moves one count down and another up by 1, whatever the field holds: everybody has one option. Of a
number by a private category everybody has one vote, divided over two cells (`hybridp.public.groups`).
How many people are in each group is public under replacement.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.curator.mean import Columns, reported
from hybridp.curator.reports import batch_names
from hybridp.curator.sources import Entrusted, Raw, noisy_sums
from hybridp.errors import UnusablePublicRows
from hybridp.noise.reports import voted_cells
from hybridp.public.groups import Joint
from hybridp.public.lattice import Bounds, Lattice
from hybridp.public.mechanisms import DiscreteLaplace
from hybridp.public.messages import BATCH, reports_digest
from hybridp.public.oracles import SubsetSelection
from hybridp.public.queries import Feature
from hybridp.public.shares import (
    CountNoise,
    NoisyCounts,
    ShareInvite,
    ShareReports,
    TickReports,
    option_counts,
    read_reports,
    tick_counts,
)
from hybridp.public.trust import label_column
from hybridp.randomness import Randomness
from hybridp.tables.columns import all_empty, some_texts
from hybridp.tables.mean import CHUNK, MeanQuery
from hybridp.tables.queries import stride
from hybridp.tables.shares import report_texts, share_totals
from hybridp.tables.source import TableLike

__all__ = ["Raw", "all_empty", "batch_digest", "batch_names", "check_batches", "read", "read_answers"]
__all__ += ["Raw", "read_ticks", "read_votes", "release_counts", "release_ticks", "rounded_cells"]
__all__ += ["share_query"]


def share_query(columns: Columns, question: Feature, *, local_raw: bool, joint: Joint | None = None) -> MeanQuery:
    """The query for these columns, or for them and a private category."""
    beside: dict[str, Any] = {"lower": 0.0, "upper": 1.0, "feature": question}
    if joint is not None:
        beside |= {"feature": joint.answers, "by": joint.by, "cells": joint.cells.values}
        if isinstance(joint.answers, Bounds):
            ends = {"lower": joint.answers.lower, "upper": joint.answers.upper, "levels": joint.steps}
            beside |= {**ends, "missing": columns.missing, "feature": None}
    return MeanQuery(
        value=columns.value,
        trust=label_column(columns.trust),
        report=None if local_raw else columns.report,
        person=columns.person,
        record_key=columns.record_key,
        record_id=columns.record_id,
        local_raw=local_raw,
        **beside,
    )


def read(
    rows: tables.Rows,
    columns: Columns,
    invite: ShareInvite,
    *,
    local_raw: bool = False,
    assume: bool = False,
    joint: Joint | None = None,
) -> Raw:
    """Both groups' counts, also of several options a person. Reports of another mechanism, or of none, are refused."""
    columns, says = reported(rows, columns, invite.text, local_raw=local_raw)
    query = share_query(columns, invite.question, local_raw=local_raw, joint=joint)
    ticks, sets = bool(invite.question.most), isinstance(invite.oracle, SubsetSelection)
    found = share_totals(rows, replace(query, cells=invite.names) if ticks else query, named=not sets)
    counts, steps, held = found.trusted_counts, 1, found.local_sets if ticks else found.local_counts
    if found.trusted_steps is not None and joint is not None:
        steps, held = joint.steps, None  # whose numbers are rounded by `rounded_cells`
        upper = found.trusted_steps
        counts = np.column_stack([upper, steps * counts - upper]).ravel()
    local: Any = ShareReports(0, np.zeros(invite.question.size, dtype=np.int64), invite.oracle)
    if ticks:
        local = TickReports(found.local_counts, invite.oracle)
    elif not (sets or local_raw):
        local = ShareReports(found.local_people, found.local_counts, invite.oracle)
    if local_raw:
        return Raw(found.trusted_people, counts, local, simulated_reports=True, steps=steps, held=held)
    for texts in report_texts(rows, query, CHUNK) if sets and found.local_people else ():
        local = local + read_reports(invite, texts, columns.report or "")
    assumed = tables.named_mechanism(f"{columns.report}_mechanism", says, local.people, assume=assume)
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


def batch_digest(rows: tables.Rows, columns: Columns, text: str, counts: NDArray[np.int64], people: int) -> str:
    """What names a set of reports that are counted: their mechanism, their counts, and the names of their batches."""
    batches = batch_names(rows, f"{columns.report}_batch")
    return reports_digest(text, people, counts.tolist(), [name for name in batches if name])


def check_batches(data: TableLike, table: str | None, column: str, reports: TableLike) -> None:
    """Refuse reports of another run than the table's, which names their batch in `column`: all public.

    Somebody may have drawn one question in each run, and would count in both. A table that names none is not checked.
    """
    with tables.open_rows(data, table=table) as rows:
        known = {*batch_names(rows, column)} - {""}  # of those who drew another question it is empty
    with tables.open_rows(reports) as sent:
        told = {*batch_names(sent, BATCH)}
    if known and not (told and told <= known):
        raise UnusablePublicRows(
            "`reports` must be those of the run of `hybridp randomise` that wrote the table. Got another run's: people "
            "may have drawn other questions there."
        )


def texts_of(rows: tables.Rows, column: str, most: int) -> int:
    """How many different texts a public column holds, at most so many."""
    return len(some_texts(rows, column, most))


def rounded_cells(
    rows: tables.Rows, columns: Columns, invite: ShareInvite, joint: Joint, *, rng: Randomness
) -> NDArray[np.int64]:
    """For a trial only: how many local people vote for each cell, by numbers that are rounded here."""
    query = share_query(columns, invite.question, local_raw=True, joint=joint)
    counts = np.zeros(invite.question.size, dtype=np.int64)
    for levels in tables.local_levels(rows, query):
        cells = voted_cells(levels, stride(None, query.lattice), joint.steps, rng=rng)
        counts += np.bincount(cells, minlength=len(counts))
    return counts


def release_counts(raw: Raw, stated: CountNoise, *, rng: Randomness) -> NoisyCounts:
    """The trusted counts with noise on each (of two options, on the first alone): what the guarantee is about."""
    counted = raw.trusted[: stated.draws] * (stated.steps // raw.steps)
    return NoisyCounts(raw.trusted_people, noisy_sums(counted, stated.mechanism, rng=rng), stated)


# --- several options a person -----------------------------------------------------------------------------------------
# One noisy count an option, for all of them together: a replaced person moves the counts by at most ``min(2 most, k)``
# in all, whatever the field holds: of more ticks than `most` the first ones are counted.


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
    return [option_counts(raw.trusted_people, count, stated) for count in noisy]
