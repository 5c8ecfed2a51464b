"""What devices do, for a file of many people: reports in place of values, and how they were made."""

from __future__ import annotations

import csv
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.device import reports as drawing
from hybridp.errors import Trusts, drawn_trust, label_column
from hybridp.noise import Randomness, categories
from hybridp.public.envelope import appearing
from hybridp.public.groups import Joint
from hybridp.public.heavy import OneSlot
from hybridp.public.kmeans import OnMap
from hybridp.public.messages import BATCH, MECHANISM, Invite, OnList
from hybridp.tables.reports import Copy, Reporting
from hybridp.tables.reports import write_reports as write_randomised
from hybridp.tables.totals import Query, count_groups, kept_levels

__all__ = ["Asked", "draw_questions", "write_reports"]


def _named(rng: Randomness) -> str:
    """A random name of a batch of reports."""
    return f"{int(rng.words(1)[0]):016x}"


class Asked(NamedTuple):
    """One question as the devices of a table's people answer it: by an invitation, about these columns; of a value and
    a private category where they are told together (`joint`); by those alone who hold a word in a column (`of`)."""

    invite: Any
    columns: Any
    joint: Joint | None = None
    of: tuple[str, str] | None = None


def _way(asked: Asked, rng: Randomness) -> tuple[tuple[str, ...], Query, Callable[..., Any]]:
    """How rows become reports: the columns that local rows lose, what is read of a row, and who draws."""
    invite, columns, joint = asked.invite, asked.columns, asked.joint
    encoding, lost = invite.encoding, columns.names
    if invite.way == "line":
        encoding, lost = encoding.bounds, ()
    elif invite.way == "marginal":
        lost = encoding.names
    elif invite.way == "option":  # a report on a private category too: local rows lose both
        lost = (encoding.name,) if joint is None else (joint.value, joint.by.name)
    draws: dict[str, Callable[..., Any]] = {
        "line": lambda held: drawing.answer_question(held, invite, rng=rng),
        "marginal": lambda held: drawing.report_marginals(held.T.astype(np.uint16), invite, rng=rng),
        "number": lambda held: drawing.randomise_steps(held, invite, rng=rng),
        "option": lambda held: drawing.report_options(held[:, 0], invite, joint, rng=rng),
        "own": lambda held, own: drawing.randomise_own(held[:, 0], own, encoding, rng=rng),
        "vector": lambda held: drawing.randomise_steps(held, invite, rng=rng),
    }
    return lost, Query.asking(encoding, columns, joint), draws[invite.way]


def write_reports(
    path: tables.TableLike | tables.Rows,
    questions: Sequence[Asked],
    out: str | PathLike[str],
    *,
    epsilon: str | None = None,
    kept: tuple[str, ...] = (),
    emptied: tuple[str, ...] = (),
    beside: tuple[str, str, str, str] | None = None,
    table: str | None = None,
    overwrite: bool = False,
    mixed: bool = False,
    trial: bool = False,
    rng: Randomness,
) -> tuple[list[int], list[str]]:
    """A copy of the table (`Copy`) in which local rows have reports in place of their answers, as each invitation asks,
    marked where a seed or a trial draws it.

    Local rows hold nothing in the columns `emptied`, which they tell elsewhere: in a file of answers to an invitation,
    whose batch is named `beside` those who answer there (column, name, the column of drawn questions, this one). Gives
    the number of reports on each question, and the columns that were left out: those that neither the release needs nor
    `kept` names. Slots of a list and cells of a map are a file of their own.
    """
    first = questions[0]
    if first.invite.way in _PLACES:
        return [_write_places(path, first.invite, first.columns, out, table, rng)], []  # type: ignore[arg-type]
    trust, alone = first.columns.trust, first.invite.way == "line"
    mark = " SIMULATED" * (trial or rng.simulated or drawn_trust(trust))
    values, told = list(emptied), []
    for asked in questions:
        invite, (lost, query, draw) = asked.invite, _way(asked, rng)
        reports, mechanism = asked.columns.reports, asked.columns.mechanism
        if alone:
            reports, mechanism = invite.encoding.names, MECHANISM
        values += lost
        texts = invite.way in ("option", "marginal")
        batch = (f"{mechanism.removesuffix('_mechanism')}_batch", partial(_named, rng)) if texts or mixed else None
        schema = invite.encoding if invite.way == "marginal" else None
        told.append(Reporting(query=query, draw=draw, reports=reports, texts=texts, asked=asked.of, schema=schema,
                              mechanism=(mechanism, f"{invite.text}{mark}"), batch=batch))  # fmt: skip
    person = next((asked.columns.person for asked in questions if asked.columns.person), None)
    copy = Copy(values=tuple(dict.fromkeys(values)), trust=None if trust is None else label_column(trust),
                person=person, kept=kept, epsilon=epsilon, told=tuple(told), beside=beside,
                mixed=mixed or alone)  # fmt: skip
    with ExitStack() as stack:
        rows: Any = path
        if not isinstance(path, tables.Rows):
            rows = stack.enter_context(tables.open_rows(path, table=table, trust=trust, person=person, rng=rng))
        people = write_randomised(rows, copy, out, overwrite=overwrite)
        return people, [name for name in rows.written if name not in copy.columns and not alone]


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
    marks, known = np.array(ends, dtype=np.uint64), np.array(tuple(chances), dtype=object)

    def draw(held: NDArray[np.int64]) -> Any:
        return known[np.searchsorted(marks, rng.words(len(held)), side="right")]

    label = label_column(trust)
    told = Reporting(query=Query(values=(), trust=label), draw=draw, reports=(column,), texts=True)
    copy = Copy(trust=label, kept=kept, told=(told,))
    with tables.open_rows(path, table=table, trust=trust, person=person, rng=rng) as rows:
        write_randomised(rows, copy, out)
        return [name for name in rows.written if name not in copy.columns]


# --- one of several places, of people who need not be in one row each -------------------------------------------------


def _slots(rows: tables.Rows, invite: OnList, columns: Any, rng: Randomness) -> Iterator[NDArray[np.int64]]:
    """The slot of the head list that each local person, who has any number of records, tells."""
    mechanism = invite.mechanism
    sampled = tables.sample_records(rows, columns, int(rng.words(1)[0]), discovery_share=0.5)
    for slots in tables.local_slots(sampled, invite.encoding):
        yield slots if isinstance(mechanism, OneSlot) else categories(mechanism, slots, rng=rng)


def _cells(rows: tables.Rows, invite: OnMap, columns: Any, rng: Randomness) -> Iterator[NDArray[np.int64]]:
    """The cell of the map that each local row tells."""
    query = Query.asking(invite.encoding.box, columns, reads="local")
    count_groups(rows, query)
    for part in kept_levels(rows, query, "local", ordered=False)():
        yield drawing.answer_map(np.ascontiguousarray(part.T, dtype=np.float64), invite, rng=rng)


_PLACES: dict[str, Callable[..., Iterator[NDArray[np.int64]]]] = {"slot": _slots, "cell": _cells}


def _write_places(
    path: tables.TableLike, invite: Invite[Any, Any], columns: Any, out: str | PathLike[str], table: str | None,
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
