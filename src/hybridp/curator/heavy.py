"""The curator's part of the heavy hitters: discover with most of the trusted people, count with the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridp import noise, tables
from hybridp.curator.sources import Answers, RecordColumns
from hybridp.public.heavy import Discovery, HeadList
from hybridp.public.mechanisms import DiscreteLaplace
from hybridp.public.trust import label_column
from hybridp.randomness import Randomness

__all__ = [
    "Discovered",
    "discover_answers",
    "found_records",
    "local_slots",
    "noisy_counts",
    "sample",
    "shown",
    "slots_among",
]

Ints = NDArray[np.int64]


def sample(
    rows: tables.Rows, columns: RecordColumns, discovery_share: float, *, rng: Randomness
) -> tables.RecordSample:
    """One record of each person, and the split of the trusted people, by a fresh salt. RAW: stays here."""
    query = tables.HeavyQuery(
        person=columns.person,
        record=columns.record,
        trust=label_column(columns.trust),
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
