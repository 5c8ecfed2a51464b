"""What devices do, for a file of many people: reports in place of values, and how they were made."""

from __future__ import annotations

import csv
import itertools
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.device.kmeans import answer_map
from hybridp.device.mean import randomise_levels, randomise_own, randomise_steps
from hybridp.device.shares import report_codes, report_joint, report_marginals, report_sets
from hybridp.device.stated import answer_question
from hybridp.noise import categories
from hybridp.public.envelope import appearing
from hybridp.public.groups import Joint
from hybridp.public.heavy import OneSlot
from hybridp.public.kmeans_rounds import MapInvite
from hybridp.public.lattice import LEVELS, Bounds, Lattice
from hybridp.public.messages import BATCH, MECHANISM, Invite, SlotInvite, own_epsilon_text
from hybridp.public.regression import Question
from hybridp.public.shares import ShareInvite
from hybridp.public.synth_reports import MarginalInvite
from hybridp.public.trust import Trusts, drawn_trust, label_column
from hybridp.public.vector import VectorInvite
from hybridp.randomness import Randomness
from hybridp.tables.kmeans import PointQuery, check_points, store_points
from hybridp.tables.reports import Copy, read_codes, read_levels, read_vectors, write_drawn, write_emptied
from hybridp.tables.reports import write_reports as write_randomised
from hybridp.tables.vector import VectorQuery

__all__ = [
    "draw_questions",
    "write_marginal_reports",
    "write_number_reports",
    "write_point_reports",
    "write_record_reports",
    "write_regression_reports",
    "write_share_reports",
    "write_vector_reports",
    "write_without",
]


def _named(rng: Randomness) -> str:
    """A random name of a batch of reports."""
    return f"{int(rng.words(1)[0]):016x}"


def _copied(
    path: tables.TableLike, copy: Copy, read: Callable[[tables.Rows, Copy], Any], draw: Callable[..., Any],
    out: str | PathLike[str], where: Mapping[str, Any], rng: Randomness, *, batch: str | None = None,
) -> tuple[int, list[str]]:  # fmt: skip
    """A copy of the table with reports in it, marked where a program or a trial draws them, and with `batch`, the
    column for it, a random name; gives the number of reports, and the columns that were left out."""
    trust = where["trust"]
    copy = replace(copy, trust=label_column(trust))
    if copy.mechanism is not None and (rng.simulated or drawn_trust(trust)):
        copy = replace(copy, mechanism=(copy.mechanism[0], f"{copy.mechanism[1]} SIMULATED"))
    with tables.open_rows(path, table=where["table"], trust=trust, person=copy.person, rng=rng) as rows:
        copy = copy if batch is None else replace(copy, batch=(batch, _named(rng)))
        people = write_randomised(rows, copy, read, draw, out, overwrite=where["overwrite"])
        return people, [name for name in rows.written if name not in copy.columns]


def write_number_reports(
    path: tables.TableLike,
    invite: Invite | Bounds,
    out: str | PathLike[str],
    *,
    value: str,
    trust: Trusts | None,
    report: str = "report",
    person: str | None = None,
    missing: float | str | None = None,
    epsilon: str | None = None,
    kept: tuple[str, ...] = (),
    table: str | None = None,
    overwrite: bool = False,
    asked: tuple[str, str] | None = None,
    mixed: bool = False,
    rng: Randomness,
) -> tuple[int, str, list[str]]:
    """A copy of the table in which local rows (all rows without `trust`) have a report in place of their value.

    Of a `mixed` batch only the reports are written, sorted, with a name of the batch: what whoever sees a mixed batch
    would see.

    An invitation states bounds, randomiser and guarantee; with bounds alone each person's own epsilon is read from the
    column `epsilon`. Gives the number of reports, the text that stands beside each, and the columns that were left out.
    """
    draw: Any
    if isinstance(invite, Invite):
        told, bounds = replace(invite, question=(value,)), invite.bounds
        text = told.text
        draw = lambda held: randomise_levels(held[:, 0], told, rng=rng)  # noqa: E731
    else:
        bounds = invite
        text = own_epsilon_text(bounds, (value,))
        draw = lambda held, own: randomise_own(held[:, 0], own, bounds, rng=rng)  # noqa: E731
    copy = Copy(values=(value,), trust=None, person=person, epsilon=epsilon, kept=kept, reports=(report,),
                mechanism=(f"{report}_mechanism", text), asked=asked, mixed=mixed)  # fmt: skip
    read = partial(read_levels, lattice=Lattice(bounds.lower, bounds.upper, LEVELS), missing=missing)
    where = {"trust": trust, "table": table, "overwrite": overwrite}
    people, left_out = _copied(path, copy, read, draw, out, where, rng, batch=f"{report}_batch" if mixed else None)
    return people, text, left_out


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


def write_vector_reports(
    path: tables.TableLike,
    invite: VectorInvite,
    out: str | PathLike[str],
    *,
    values: tuple[str, ...],
    reports: tuple[str, ...],
    mechanism: str,
    trust: Trusts | None,
    person: str | None = None,
    missing: tuple[float | str, ...] | None = None,
    kept: tuple[str, ...] = (),
    table: str | None = None,
    overwrite: bool = False,
    asked: tuple[str, str] | None = None,
    mixed: bool = False,
    rng: Randomness,
) -> tuple[int, list[str]]:
    """A copy of the table in which local rows (all rows without `trust`) have one report in place of their vector.

    Of a `mixed` batch only the reports are written, sorted, with a name of the batch.

    Gives the number of reports, and the columns that were left out.
    """
    told = replace(invite, question=values)
    read = {"missing": missing, "person": person, "reads": "local"}
    query = VectorQuery.of(invite.bounds, values, label_column(trust), **read)
    copy = Copy(values=values, trust=None, person=person, kept=kept, reports=reports, mechanism=(mechanism, told.text),
                asked=asked, mixed=mixed)  # fmt: skip
    where = {"trust": trust, "table": table, "overwrite": overwrite}
    draw, batch = partial(randomise_steps, invite=told, rng=rng), f"{mechanism.removesuffix('_mechanism')}_batch"
    read_all = partial(read_vectors, query=query)
    return _copied(path, copy, read_all, draw, out, where, rng, batch=batch if mixed else None)


def write_regression_reports(
    path: tables.TableLike,
    question: Question,
    columns: Any,
    out: str | PathLike[str],
    *,
    table: str | None = None,
    rng: Randomness,
) -> int:
    """One report on the question for each local row (every row without `trust`), and nothing else; how many."""
    trust, person = columns.trust, columns.person
    read = {"missing": columns.absent, "person": person, "reads": "local"}
    query = VectorQuery.of(question.bounds, columns.values, label_column(trust), **read)
    copy = Copy(trust=None, person=person, reports=question.names, mechanism=(MECHANISM, question.text), mixed=True)
    draw, where = partial(answer_question, question=question, rng=rng), {"trust": trust, "table": table}
    return _copied(path, copy, partial(read_vectors, query=query), draw, out, {**where, "overwrite": False}, rng)[0]


def write_share_reports(
    path: tables.TableLike,
    invite: ShareInvite,
    out: str | PathLike[str],
    *,
    trust: Trusts | None = None,
    person: str | None = None,
    report: str = "report",
    table: str | None = None,
    overwrite: bool = False,
    keep: tuple[str, ...] = (),
    joint: Joint | None = None,
    missing: float | str | None = None,
    asked: tuple[str, str] | None = None,
    mixed: bool = False,
    rng: Randomness,
) -> tuple[int, list[str]]:
    """A copy of a table in which local rows (all, without `trust`) lose their option and get one report.

    Of a `mixed` batch only the reports are written, sorted, with a name of the batch: what whoever sees a mixed batch
    would see.

    With `joint` the report is about a private category too, which local rows lose as well; `missing` is what a number
    that is missing counts as.

    Gives the number of reports, and the columns that were left out: those that neither the release needs nor `keep`
    names.
    """
    levels: dict[str, Any] = {"lattice": Lattice(0.0, 1.0, LEVELS), "feature": invite.question}
    values: tuple[str, ...] = (invite.question.name,)
    each: Any = report_sets if invite.question.most else report_codes
    report_on = partial(each, invite=invite, rng=rng)
    if joint is not None:
        values = joint.value, joint.by.name
        levels |= {"feature": joint.answers, "by": joint.by}
        assert isinstance(invite, ShareInvite)
        report_on = partial(report_joint, joint=joint, invite=invite, rng=rng)
        if isinstance(joint.answers, Bounds):
            lattice = Lattice(joint.answers.lower, joint.answers.upper, joint.steps)
            levels |= {"lattice": lattice, "missing": missing, "feature": None}
    copy = Copy(values=values, trust=None, person=person, kept=keep, reports=(report,), texts=True, asked=asked,
                mechanism=(f"{report}_mechanism", invite.text), mixed=mixed)  # fmt: skip
    where = {"trust": trust, "table": table, "overwrite": overwrite}
    draw, batch = (lambda held: report_on(held[:, 0])), f"{report}_batch"
    return _copied(path, copy, partial(read_levels, **levels), draw, out, where, rng, batch=batch)


def write_marginal_reports(
    path: tables.TableLike,
    invite: MarginalInvite,
    out: str | PathLike[str],
    *,
    trust: Trusts | None = None,
    table: str | None = None,
    overwrite: bool = False,
    keep: tuple[str, ...] = (),
    rng: Randomness,
) -> tuple[int, list[str]]:
    """A copy of a table in which local rows (all, without `trust`) lose all columns of the schema and get one report.

    Gives the number of reports, and the columns that were left out.
    """
    copy = Copy(values=invite.schema.names, trust=None, kept=keep, reports=("report",), texts=True,
                mechanism=(MECHANISM, invite.text))  # fmt: skip
    read, where = partial(read_codes, schema=invite.schema), {"trust": trust, "table": table, "overwrite": overwrite}

    def draw(held: NDArray[np.int64]) -> list[str]:
        return report_marginals(held.T.astype(np.uint16), invite, rng=rng)

    return _copied(path, copy, read, draw, out, where, rng, batch=BATCH)
