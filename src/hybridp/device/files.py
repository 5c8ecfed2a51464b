"""What devices do, for a file of many people: reports in place of values, and how they were made."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.device.reports import (
    answer_map,
    answer_question,
    randomise_levels,
    randomise_own,
    randomise_steps,
    report_codes,
    report_joint,
    report_marginals,
    report_sets,
)
from hybridp.noise import categories
from hybridp.public.envelope import appearing
from hybridp.public.groups import Joint
from hybridp.public.heavy import OneSlot
from hybridp.public.kmeans_rounds import MapInvite
from hybridp.public.lattice import LEVELS, Bounds, Lattice
from hybridp.public.messages import BATCH, MECHANISM, SlotInvite
from hybridp.public.shares import ShareInvite
from hybridp.public.synth_reports import MarginalInvite
from hybridp.public.trust import Trusts, drawn_trust, label_column
from hybridp.randomness import Randomness
from hybridp.tables.kmeans import PointQuery, check_points, store_points
from hybridp.tables.reports import Copy, read_codes, read_levels, read_vectors, write_drawn, write_emptied
from hybridp.tables.reports import write_reports as write_randomised
from hybridp.tables.vector import VectorQuery

__all__ = ["draw_questions", "write_point_reports", "write_record_reports", "write_reports", "write_without"]


def _named(rng: Randomness) -> str:
    """A random name of a batch of reports."""
    return f"{int(rng.words(1)[0]):016x}"


@dataclass(frozen=True)
class _Way:
    """How rows become reports: the columns that are read, and lost, those that reports are in, and who draws them."""

    values: tuple[str, ...]
    reports: tuple[str, ...]
    read: Callable[..., Any]
    draw: Callable[..., Any]
    mechanism: str = MECHANISM
    texts: bool = False
    named: bool | None = None
    """Whether a name of the batch stands beside each report; None: only where a mixer hands it on."""
    alone: bool = False
    """Whether nothing but the reports is written, sorted."""


def _number(invite: Any, columns: Any, joint: None, rng: Randomness) -> _Way:
    bounds, report = invite.bounds, columns.report or "report"
    draw: Any = lambda held: randomise_levels(held[:, 0], invite, rng=rng)  # noqa: E731
    if invite.way == "own":
        draw = lambda held, own: randomise_own(held[:, 0], own, bounds, rng=rng)  # noqa: E731
    read = partial(read_levels, lattice=Lattice(bounds.lower, bounds.upper, LEVELS), missing=columns.missing)
    return _Way(columns.names, (report,), read, draw, f"{report}_mechanism")


def _vector(invite: Any, columns: Any, joint: None, rng: Randomness) -> _Way:
    query = VectorQuery.of(invite.bounds, columns.values, label_column(columns.trust), missing=columns.absent,
                           person=columns.person, reads="local")  # fmt: skip
    read = partial(read_vectors, query=query)
    if invite.way == "line":
        draw = partial(answer_question, question=invite, rng=rng)
        return _Way((), invite.names, read, draw, named=False, alone=True)
    draw = partial(randomise_steps, invite=invite, rng=rng)
    return _Way(columns.values, columns.reports, read, draw, columns.mechanism)


def _option(invite: ShareInvite, columns: Any, joint: Joint | None, rng: Randomness) -> _Way:
    levels: dict[str, Any] = {"lattice": Lattice(0.0, 1.0, LEVELS), "feature": invite.question}
    values: tuple[str, ...] = (invite.question.name,)
    each: Any = report_sets if invite.question.most else report_codes
    report_on, report = partial(each, invite=invite, rng=rng), columns.report or "report"
    if joint is not None:  # the report is about a private category too, which local rows lose as well
        values = joint.value, joint.by.name
        levels |= {"feature": joint.answers, "by": joint.by}
        report_on = partial(report_joint, joint=joint, invite=invite, rng=rng)
        if isinstance(joint.answers, Bounds):
            lattice = Lattice(joint.answers.lower, joint.answers.upper, joint.steps)
            levels |= {"lattice": lattice, "missing": columns.missing, "feature": None}
    draw = lambda held: report_on(held[:, 0])  # noqa: E731
    return _Way(values, (report,), partial(read_levels, **levels), draw, f"{report}_mechanism", texts=True, named=True)


def _marginal(invite: MarginalInvite, columns: Any, joint: None, rng: Randomness) -> _Way:
    def draw(held: NDArray[np.int64]) -> list[str]:
        return report_marginals(held.T.astype(np.uint16), invite, rng=rng)

    read = partial(read_codes, schema=invite.schema)
    return _Way(invite.schema.names, ("report",), read, draw, texts=True, named=True)


_WAYS: dict[str, Callable[..., _Way]] = {
    "line": _vector, "marginal": _marginal, "number": _number, "option": _option, "own": _number, "vector": _vector,
}  # fmt: skip


def write_reports(
    path: tables.TableLike,
    invite: Any,
    columns: Any,
    out: str | PathLike[str],
    *,
    joint: Joint | None = None,
    epsilon: str | None = None,
    kept: tuple[str, ...] = (),
    table: str | None = None,
    overwrite: bool = False,
    asked: tuple[str, str] | None = None,
    mixed: bool = False,
    rng: Randomness,
) -> tuple[int, list[str]]:
    """A copy of the table in which local rows (all rows where `columns` name no trust) have a report in place of their
    answer, as the invitation asks for it, marked where a program or a trial draws it.

    Of a `mixed` batch only the reports are written, sorted, with a name of the batch: what whoever sees a mixed batch
    would see. The column `epsilon` holds everybody's own. Gives the number of reports, and the columns that were left
    out: those that neither the release needs nor `kept` names.
    """
    trust, way = columns.trust, _WAYS[invite.way](invite, columns, joint, rng)
    mark = " SIMULATED" * (rng.simulated or drawn_trust(trust))
    copy = Copy(values=way.values, trust=label_column(trust), person=columns.person, epsilon=epsilon, kept=kept,
                reports=way.reports, mechanism=(way.mechanism, f"{invite.text}{mark}"), texts=way.texts, asked=asked,
                mixed=mixed or way.alone)  # fmt: skip
    with tables.open_rows(path, table=table, trust=trust, person=copy.person, rng=rng) as rows:
        if way.named or (way.named is None and mixed):
            copy = replace(copy, batch=(f"{way.mechanism.removesuffix('_mechanism')}_batch", _named(rng)))
        people = write_randomised(rows, copy, way.read, way.draw, out, overwrite=overwrite)
        return people, [name for name in rows.written if name not in copy.columns]


def write_without(
    path: Any,
    out: Path,
    *,
    emptied: tuple[str, ...],
    kept: tuple[str, ...],
    trust: Trusts,
    person: str | None = None,
    table: str | None = None,
    told: tuple[str, str, str, str] | None = None,
    rng: Randomness,
) -> list[str]:
    """A copy of the table in which local rows hold nothing in the columns `emptied`; gives the columns left out.

    For what local people tell elsewhere: in a file of answers to an invitation. `told` names the batch of that file
    beside those who answer there: (column, name, the column of drawn questions, this one).
    """
    batch, asked = (None, None) if told is None else (told[:2], told[2:])
    copy = Copy(values=emptied, trust=label_column(trust), kept=kept, batch=batch, asked=asked)
    with tables.open_rows(path, table=table, trust=trust, person=person, rng=rng) as rows:
        write_emptied(rows, copy, out)
        return [name for name in rows.written if name not in copy.columns]


def draw_questions(
    path: Any,
    out: Path,
    *,
    column: str,
    chances: Mapping[str, float],
    kept: tuple[str, ...],
    trust: Trusts,
    person: str | None = None,
    table: str | None = None,
    rng: Randomness,
) -> list[str]:
    """A copy of the table in which a question was drawn for every local person; gives the columns left out.

    Each device draws for itself, with these chances and whatever its person's data: which one it was is public.
    """
    ends = [min(math.floor(end * 2**64), 2**64 - 1) for end in itertools.accumulate(chances.values())][:-1]
    marks = np.array(ends, dtype=np.uint64)

    def draw(many: int) -> NDArray[np.int64]:
        return np.searchsorted(marks, rng.words(many), side="right").astype(np.int64)

    copy = Copy(trust=label_column(trust), kept=kept, reports=(column,), texts=True)
    with tables.open_rows(path, table=table, trust=trust, person=person, rng=rng) as rows:
        write_drawn(rows, copy, tuple(chances), draw, out)
        return [name for name in rows.written if name not in copy.columns]


def _write_slots(out: str | PathLike[str], counts: NDArray[np.int64], mechanism: str, *, rng: Randomness) -> None:
    """A CSV with one line for each report, slot by slot, so that their order tells nothing.

    Beside each report stand the mechanism's text and a random name of this batch.
    """
    batch, mechanism = _named(rng), f"{mechanism} SIMULATED" if rng.simulated else mechanism
    with appearing(out) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["report", MECHANISM, BATCH])
        for slot, times in enumerate(counts.tolist()):
            writer.writerows(itertools.repeat((slot, mechanism, batch), times))


def write_record_reports(
    path: tables.TableLike,
    invite: SlotInvite,
    columns: Any,
    out: str | PathLike[str],
    *,
    table: str | None = None,
    rng: Randomness,
) -> int:
    """One report on the head list for each local person, who has any number of records; how many there are.

    Reports are written slot by slot, so that their order tells neither who sent which nor who has several records.
    """
    query = tables.HeavyQuery(
        person=columns.person, record=columns.record, trust=label_column(columns.trust), record_key=columns.record_key,
        record_id=columns.record_id,
    )  # fmt: skip
    head, mechanism = invite.head, invite.mechanism
    counts = np.zeros(len(head), dtype=np.int64)
    with (
        tables.open_rows(path, table=table, trust=columns.trust) as rows,
        tables.sample_records(rows, query, int(rng.words(1)[0]), discovery_share=0.5) as sampled,
    ):
        for slots in tables.local_slots(sampled, list(head.slots)):
            told = slots if isinstance(mechanism, OneSlot) else categories(mechanism, slots, rng=rng)
            counts += np.bincount(told, minlength=len(counts))
    _write_slots(out, counts, invite.text, rng=rng)
    return int(counts.sum())


def write_point_reports(
    path: tables.TableLike,
    invite: MapInvite,
    columns: Any,
    out: str | PathLike[str],
    *,
    table: str | None = None,
    rng: Randomness,
) -> int:
    """One cell of the map for each local row (every row without `trust`); how many there are."""
    label, missing = label_column(columns.trust), columns.absent
    query = PointQuery(columns.values, label, invite.grid.box, local_raw=True, missing=missing)
    counts = np.zeros(invite.grid.cells, dtype=np.int64)
    with tables.open_rows(path, table=table, trust=columns.trust) as rows:
        check_points(rows, query)
        for part in store_points(rows, query, "local").parts():
            counts += np.bincount(answer_map(part, invite, rng=rng), minlength=len(counts))
    _write_slots(out, counts, invite.text, rng=rng)
    return int(counts.sum())
