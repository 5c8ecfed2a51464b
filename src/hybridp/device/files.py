"""What devices do, for a file of many people: reports in place of values, and how they were made."""

from __future__ import annotations

import csv
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
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
from hybridp.public.messages import BATCH, MECHANISM, SlotInvite
from hybridp.public.shares import ShareInvite
from hybridp.public.synth_reports import MarginalInvite
from hybridp.public.trust import Trusts, drawn_trust, label_column
from hybridp.randomness import Randomness
from hybridp.tables.query import Query, option_codec
from hybridp.tables.reports import Copy, read_codes, read_levels, write_drawn, write_emptied
from hybridp.tables.reports import write_reports as write_randomised
from hybridp.tables.totals import count_groups, kept_levels

__all__ = ["draw_questions", "write_reports", "write_without"]


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
    query = Query.on(bounds, columns.names, label_column(columns.trust), columns.missing, reads="local")
    read = partial(read_levels, query=query)
    return _Way(columns.names, (report,), read, draw, f"{report}_mechanism")


def _vector(invite: Any, columns: Any, joint: None, rng: Randomness) -> _Way:
    query = Query.on(invite.bounds, columns.names, label_column(columns.trust), columns.missing, reads="local")
    read = partial(read_levels, query=query)
    if invite.way == "line":
        draw = partial(answer_question, question=invite, rng=rng)
        return _Way((), invite.names, read, draw, named=False, alone=True)
    draw = partial(randomise_steps, invite=invite, rng=rng)
    return _Way(columns.names, columns.reports, read, draw, columns.mechanism)


def _option(invite: ShareInvite, columns: Any, joint: Joint | None, rng: Randomness) -> _Way:
    values: tuple[str, ...] = (invite.question.name,)
    each: Any = report_sets if invite.question.most else report_codes
    report_on, report = partial(each, invite=invite, rng=rng), columns.report or "report"
    if joint is not None:  # the report is about a private category too, which local rows lose as well
        values = joint.value, joint.by.name
        report_on = partial(report_joint, joint=joint, invite=invite, rng=rng)
    codec = option_codec(invite.question, joint, values[0], columns.missing)
    read = partial(read_levels, query=Query(values=(codec,), trust=label_column(columns.trust), reads="local"))
    draw = lambda held: report_on(held[:, 0])  # noqa: E731
    return _Way(values, (report,), read, draw, f"{report}_mechanism", texts=True, named=True)


def _marginal(invite: MarginalInvite, columns: Any, joint: None, rng: Randomness) -> _Way:
    def draw(held: NDArray[np.int64]) -> list[str]:
        return report_marginals(held.T.astype(np.uint16), invite, rng=rng)

    read = partial(read_codes, schema=invite.schema)
    report = columns.report or "report"
    return _Way(invite.schema.names, (report,), read, draw, f"{report}_mechanism", texts=True, named=True)


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
    out: those that neither the release needs nor `kept` names. Slots of a list and cells of a map are a file of their
    own.
    """
    if invite.way in _PLACES:
        return _write_places(path, invite, columns, out, table, rng), []
    trust, way = columns.trust, _WAYS[invite.way](invite, columns, joint, rng)
    mark = " SIMULATED" * (rng.simulated or drawn_trust(trust))
    copy = Copy(values=way.values, trust=label_column(trust), person=columns.person, epsilon=epsilon, kept=kept,
                reports=way.reports, mechanism=(way.mechanism, f"{invite.text}{mark}"), texts=way.texts, asked=asked,
                mixed=mixed or way.alone)  # fmt: skip
    with tables.open_rows(path, table=table, trust=trust, person=copy.person, rng=rng) as rows:
        if way.named or (way.named is None and mixed):
            copy = replace(copy, batch=(f"{way.mechanism.removesuffix('_mechanism')}_batch", _named(rng)))
        people = write_randomised(rows, copy, way.read, way.draw, out, overwrite=overwrite)
        return people, [name for name in rows.written if name not in copy.columns and not way.alone]


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


# --- one of several places, of people who need not be in one row each -------------------------------------------------


def _slots(rows: tables.Rows, invite: SlotInvite, columns: Any, rng: Randomness) -> Iterator[NDArray[np.int64]]:
    """The slot of the head list that each local person, who has any number of records, tells."""
    query = tables.HeavyQuery(
        person=columns.person, record=columns.names, trust=label_column(columns.trust), record_key=columns.record_key,
        record_id=columns.record_id,
    )  # fmt: skip
    mechanism = invite.mechanism
    with tables.sample_records(rows, query, int(rng.words(1)[0]), discovery_share=0.5) as sampled:
        for slots in tables.local_slots(sampled, invite.head):
            yield slots if isinstance(mechanism, OneSlot) else categories(mechanism, slots, rng=rng)


def _cells(rows: tables.Rows, invite: MapInvite, columns: Any, rng: Randomness) -> Iterator[NDArray[np.int64]]:
    """The cell of the map that each local row tells."""
    query = Query.on(invite.grid.box, columns.names, label_column(columns.trust), columns.missing, reads="local")
    count_groups(rows, query)
    for part in kept_levels(rows, query, "local", ordered=False)():
        yield answer_map(np.ascontiguousarray(part.T, dtype=np.float64), invite, rng=rng)


_PLACES: dict[str, Callable[..., Iterator[NDArray[np.int64]]]] = {"slot": _slots, "cell": _cells}


def _write_places(
    path: tables.TableLike, invite: SlotInvite | MapInvite, columns: Any, out: str | PathLike[str], table: str | None,
    rng: Randomness,
) -> int:  # fmt: skip
    """A CSV with one line for each report, place by place, so that their order tells neither who sent which nor who has
    several records. Beside each stand the mechanism's text and a random name of this batch."""
    told: Counter[int] = Counter()
    with tables.open_rows(path, table=table, trust=columns.trust) as rows:
        for places in _PLACES[invite.way](rows, invite, columns, rng):
            told.update(places.tolist())
    batch, mechanism = _named(rng), f"{invite.text} SIMULATED" if rng.simulated else invite.text
    with appearing(out) as draft, draft.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["report", MECHANISM, BATCH])
        for place in sorted(told):
            writer.writerows(itertools.repeat((place, mechanism, batch), told[place]))
    return told.total()
