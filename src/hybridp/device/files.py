"""What devices do, for a file of many people: reports in place of values, in a copy of it, and how they were made."""

from __future__ import annotations

import csv
import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.device import reports as drawing
from hybridp.errors import InvalidInput, Trusts, cannot_exclude, drawn_trust, label_column, must
from hybridp.noise import Randomness, categories
from hybridp.public.envelope import appearing
from hybridp.public.groups import Joint
from hybridp.public.heavy import OneSlot
from hybridp.public.kmeans import OnMap
from hybridp.public.messages import BATCH, MECHANISM, Invite, OnList
from hybridp.public.queries import Schema
from hybridp.public.rounds import ByLevel
from hybridp.public.shuffling import MOST_LEVELS
from hybridp.tables import Query, Rows, engine
from hybridp.tables.counts import check_schema
from hybridp.tables.engine import VIEW, answers, column, count_if, drop, fresh, keep, labelled, literal, select
from hybridp.tables.totals import CHUNK, check_columns, count_groups, labels, levels_of, number_of, records

__all__ = ["Asked", "Copy", "Reporting", "draw_questions", "write_copy", "write_reports"]


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
    if invite.way == "level":
        ways = [_way(asked._replace(invite=one), rng) for _, one in invite.each]
        return *ways[0][:2], partial(_at_levels, invite, [draw for *_, draw in ways])
    encoding, lost = invite.encoding, columns.names
    if invite.way == "line":
        encoding, lost = encoding.bounds, ()
    elif invite.way == "marginal":
        lost = encoding.names
    elif invite.way == "option":  # a report on a private category too: local rows lose both
        lost = (encoding.name,) if joint is None else (joint.value, joint.by.name)
    draws: dict[str, Callable[..., Any]] = {
        "line": lambda held: drawing.reach_reports(held, invite, rng=rng),
        "marginal": lambda held: drawing.report_marginals(held.T.astype(np.uint16), invite, rng=rng),
        "number": lambda held: drawing.randomise_steps(held, invite, rng=rng),
        "option": lambda held: drawing.report_options(held[:, 0], invite, joint, rng=rng),
        "own": lambda held, own: drawing.randomise_own(held[:, 0], own, encoding, rng=rng),
        "vector": lambda held: drawing.randomise_steps(held, invite, rng=rng),
    }
    return lost, Query.asking(encoding, columns, joint), draws[invite.way]


def _at_levels(invite: ByLevel, draws: Sequence[Callable[..., Any]], held: Any, own: Any) -> Any:
    """Everybody's report, by the largest of the epsilons that is at most their own. Who has less says nothing: an empty
    text, or the middle."""
    level = np.searchsorted([epsilon for epsilon, _ in invite.each], own, side="right") - 1
    middle = "" if invite.encoding.way == "option" else [centre for centre, _ in invite.encoding.sides]
    said: list[Any] = [middle] * len(held)
    for i in np.unique(level[level >= 0]).tolist():
        who = np.flatnonzero(level == i)
        for place, report in zip(who.tolist(), draws[i](held[who]), strict=True):
            said[place] = report
    return said


def write_reports(
    path: tables.TableLike | Rows,
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
        texts = "option" in (invite.way, invite.encoding.way) or invite.way == "marginal"
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
        if not isinstance(path, Rows):
            rows = stack.enter_context(tables.open_rows(path, table=table, trust=trust, person=person, rng=rng))
        people, left_out = write_copy(rows, copy, out, overwrite=overwrite)
        return people, [] if alone else left_out


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
        return write_copy(rows, copy, out)[1]


# --- the copy ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Reporting:
    """What local rows report on one question: `draw` makes it of what the query reads, as numbers or `texts` in the
    columns `reports`.

    It sees what was read of each local row once (a row each, and everyone's own epsilon as a second argument where
    there is one), so the guarantee is the randomiser's and holds for a row. It gives one report a row; of several
    numbers, NaN where one is not reported. Beside reports stand the mechanism's column and text and, with `batch`, a
    column and a name of these reports. With `asked`, a column and a word, only local rows that hold the word report. Of
    a `schema` all columns are read.
    """

    query: Query
    draw: Callable[..., Any]
    reports: tuple[str, ...]
    texts: bool = False
    mechanism: tuple[str, str] | None = None
    batch: tuple[str, Callable[[], str]] | None = None
    asked: tuple[str, str] | None = None
    schema: Schema | None = None


@dataclass(frozen=True, kw_only=True)
class Copy:
    """What a copy of the rows holds: `values`, which local rows lose, columns that are `kept`, and those of `told`.

    Rows labelled `local` (all rows when `trust` is None) get reports; trusted rows keep their values and get nothing.
    Of the other columns only those in `kept` are copied, as they are: a raw column beside a report may tell what the
    report hides. `beside` is a column and a text in local rows that hold a word in another column (the last two). A
    `mixed` batch is what a mixer hands on: the reports alone, sorted, so that their order tells nothing, and everyone's
    own `epsilon`, which is public, as a number: how somebody writes it may tell who they are.
    """

    values: tuple[str, ...] = ()
    trust: str | None
    person: str | None = None
    epsilon: str | None = None
    kept: tuple[str, ...] = ()
    told: tuple[Reporting, ...] = ()
    beside: tuple[str, str, str, str] | None = None
    mixed: bool = False

    @property
    def columns(self) -> set[str | None]:
        """Those of the table that are in the copy."""
        own = {*self.values, self.epsilon}
        return own if self.mixed else {*own, self.trust, self.person, *self.kept}


def write_copy(
    rows: Rows, copy: Copy, out: str | PathLike[str], *, overwrite: bool = False, chunk: int = CHUNK
) -> tuple[list[int], list[str]]:
    """Write the copy to `out` (CSV or Parquet), with reports in place of local values; how many there are of each, and
    the columns that were left out.

    The order of the rows is kept, and at most `chunk` of them are randomised at a time. The column `copy.person`, where
    given, must name every local person once. The copy appears under its name only when it is complete.

    >>> import pathlib, tempfile
    >>> from hybridp.tables import Lattice, Number, open_rows
    >>> folder = tempfile.TemporaryDirectory()
    >>> file, out = pathlib.Path(folder.name, "people.csv"), pathlib.Path(folder.name, "reports.csv")
    >>> _ = file.write_text("salary,trust\\n25,trusted\\n75,local\\n")
    >>> query = Query(values=(Number("salary", Lattice(0, 100, 4), 0),), trust="trust", reads="all")
    >>> how = ("how", "half, without noise")
    >>> told = Reporting(query=query, draw=lambda levels: levels / 2, reports=("report",), mechanism=how)
    >>> with open_rows(file) as rows:
    ...     write_copy(rows, Copy(values=("salary",), trust="trust", told=(told,)), out)
    ([1], [])
    >>> print(out.read_text())
    salary,trust,report,how
    25,trusted,,
    ,local,1.5,"half, without noise"
    >>> folder.cleanup()
    """
    target = Path(out)
    writable = target.name.lower().endswith((".csv", ".csv.gz", ".tsv", ".parquet"))
    must(writable, "out", "must end in .csv, .csv.gz, .tsv or .parquet", str(target))
    must(overwrite or not target.exists(), "out", "must not exist yet, unless it may be overwritten", str(target))
    must(target.parent.is_dir(), "out", "must be in a directory that exists", str(target))
    _check_copy(rows, copy)
    count_groups(rows, Query(values=(), trust=copy.trust, person=copy.person))  # all have a label, the local one name
    engine.on_duck(rows)
    people: list[int] = []
    drawn: dict[str, tuple[Reporting, str]] = {}
    held = fresh("held")
    try:
        for told in copy.told:
            query = replace(told.query, reads="local", epsilon=copy.epsilon)
            # Kept once: what is randomised and the order are of the same rows.
            keep(rows, held, records(rows, query, local=_reporting(copy, told.asked)))
            people.append(_reporting_people(rows, copy, held))
            place = fresh("drawn")
            drawn[place] = told, "" if told.batch is None else told.batch[1]()
            _draw(rows, copy, told, held, place, chunk)
            drop(rows, held)
        _write(rows, _copied(rows, copy, drawn), target)
    finally:
        drop(rows, held, *drawn)
    return people, [name for name in rows.written if name not in copy.columns]


def _check_copy(rows: Rows, copy: Copy) -> None:
    """Refuse columns that cannot be read, or written. A value that is missing or no number counts as what is stated: a
    device that sent nothing would tell."""
    own = [("value" if len(copy.values) == 1 else "columns", name) for name in copy.values]
    for parameter, name in (*own, ("epsilon-column", copy.epsilon), *(("keep", name) for name in copy.kept)):
        rows.need(parameter, name)
    for name in copy.kept:
        must(name not in copy.values, "keep", "must not name a column that is reported on", f"`{name}`")
    taken = {name.lower() for name in rows.columns}
    new: list[tuple[str, Any]] = [("batch", copy.beside[0])] if copy.beside else []
    for told in copy.told:
        beside = (("mechanism", told.mechanism), ("batch", told.batch))
        new += [*(("report", name) for name in told.reports), *((what, one[0]) for what, one in beside if one)]
    for parameter, name in new:
        must(name.lower() not in taken, parameter, "must be a column that the table does not have yet", f"`{name}`")
        taken.add(name.lower())
    for told in copy.told:
        if told.query.excludes:
            raise cannot_exclude()
        if told.schema is None:
            check_columns(rows, replace(told.query, reads="all"))  # whoever reports, here they are read
        else:
            check_schema(rows, told.schema, declared=True)


def _reporting_people(rows: Rows, copy: Copy, held: str) -> int:
    """How many rows are to report, where everyone's own epsilon obeys the rules."""
    asked = {"local": count_if("local")}
    if copy.epsilon is not None:
        own = "CASE WHEN local THEN asked END"
        asked |= {"stated": f"COUNT({own})", "levels": f"COUNT(DISTINCT {own})"}
    (result,) = answers(rows, select(asked, held))
    local = int(result["local"] or 0)
    stated = copy.epsilon is None or result["stated"] == local
    engine.column_must(stated, copy.epsilon, "must hold an epsilon of 0 or more in every local row")
    if copy.mixed and copy.epsilon is not None:
        rule = f"must hold at most {MOST_LEVELS} different numbers in a mixed batch, or people hide among hardly any"
        must(result["levels"] <= MOST_LEVELS, "epsilon-column", rule, f"{result['levels']:,}")
    return local


def _reporting(copy: Copy, asked: tuple[str, str] | None, table: str = "") -> str:
    """Whether a row is local and was asked what is reported on."""
    local = labels(copy.trust, table)["local"]
    if asked is not None:
        local = f"({local} AND COALESCE({labelled(column(asked[0], table), asked[1])}, FALSE))"
    return local


def _copied(rows: Rows, copy: Copy, drawn: Mapping[str, tuple[Reporting, str]]) -> str:
    """Some columns of the rows, in order, beside their reports; values only where the row itself says `trusted`.

    Of a mixed batch there are the reports alone, from the least to the largest, by everyone's own epsilon first.
    """
    flags = labels(copy.trust, VIEW)
    wanted = {*copy.values} if copy.mixed else copy.columns
    kept = {name: column(place, VIEW) for name, place in rows.written.items() if name in wanted}
    kept |= {name: f"CASE WHEN {flags['trusted']} THEN {column(name, VIEW)} END" for name in copy.values}
    sorted_by = []
    if copy.mixed and copy.epsilon is not None:
        kept[copy.epsilon] = number_of(rows, copy.epsilon, column(copy.epsilon, VIEW))
        sorted_by.append(kept[copy.epsilon])
    if copy.beside is not None:
        name, text, *asked = copy.beside
        kept[name] = f"CASE WHEN {_reporting(copy, (asked[0], asked[1]), VIEW)} THEN {literal(text)} END"
    for place, (told, batch) in drawn.items():
        reports = {name: f"{place}.y{j}" for j, name in enumerate(told.reports)}
        sorted_by += reports.values()
        kept |= reports
        texts = dict(filter(None, (told.mechanism, told.batch and (told.batch[0], batch))))
        for name, text in texts.items():
            kept[name] = f"CASE WHEN {_reporting(copy, told.asked, VIEW)} THEN {literal(text)} END"
    # DuckDB alone pairs rows by position, which is how a file's order is kept.
    more = f"WHERE {flags['local']} ORDER BY {', '.join(sorted_by)}" if copy.mixed else ""
    return select(kept, " POSITIONAL JOIN ".join([VIEW, *drawn]), more)


def _draw(rows: Rows, copy: Copy, told: Reporting, held: str, drawn: str, chunk: int) -> None:
    """Fill `drawn` with one report for each row of `held`, NULL where the row is not to report or says nothing."""
    duck, wide = engine.on_duck(rows), len(told.reports)
    kind, there = ("VARCHAR", "local") if told.texts else ("DOUBLE", "NOT isnan(y{j})")
    duck.execute(f"CREATE TEMP TABLE {drawn} ({', '.join(f'y{j} {kind}' for j in range(wide))})")
    listed = ", ".join(f"CASE WHEN {there.format(j=j)} THEN y{j} END" for j in range(wide))
    for part in engine.read_kept(rows, held, chunk):
        local = np.asarray(part["local"], dtype=np.bool_)
        nothing: tuple[Any, Any] = ("", object) if told.texts else (np.nan, np.float64)
        reports: NDArray[Any] = np.full((local.size, wide), *nothing, order="F")  # a column is one piece
        if local.any():
            read = [np.ma.getdata(part[name])[local] for name in part if name.startswith("c")]
            asked: list[Any] = [np.array(read, dtype=np.int64).reshape(len(read), int(local.sum())).T]
            if copy.epsilon is not None:
                asked.append(np.asarray(part["asked"], dtype=np.float64)[local])
            made = np.asarray(told.draw(*asked), dtype=reports.dtype)
            made = made.reshape(-1, 1) if wide == 1 else made
            ok = made.shape == (int(local.sum()), wide) and (told.texts or wide > 1 or bool(np.isfinite(made).all()))
            must(ok, "randomise", "must return one finite report for each row", f"shape {made.shape}")
            reports[local] = made
        name = engine.give(rows, {"local": local, **{f"y{j}": reports[:, j] for j in range(wide)}})
        duck.execute(f"INSERT INTO {drawn} SELECT {listed} FROM {name}")
        drop(rows, name)


def _write(rows: Rows, query: str, target: Path) -> None:
    """The answer as a CSV or Parquet file, which appears when it is complete.

    Text stays text in a Parquet file; where it holds numbers in the rows, the file says with which decimal sign.
    """
    duck, plain = engine.on_duck(rows), target.name.lower()
    stated = f", KV_METADATA {{{engine.DECIMAL}: {literal(rows.decimal)}}}" if rows.decimal else ""
    form = f"FORMAT parquet{stated}"
    if engine.parquet_or_csv(plain) == "CSV":
        zipped = ", COMPRESSION gzip" if plain.endswith(".gz") else ""
        form = f"FORMAT csv, HEADER true, DELIMITER {literal(chr(9) if '.tsv' in plain else ',')}{zipped}"
    refused = InvalidInput(f"`out` must be a place that can be written to, with room for the copy. Got {target}.")
    try:
        with appearing(target, mode=0o600) as part:  # it may hold trusted people's values: nobody else may read it
            sql = f"COPY ({engine.sql_for(rows, query)}) TO {literal(str(part))} ({form}, USE_TMP_FILE false)"
            engine.attempt(duck, lambda: duck.connection.execute(sql), refused)
    except OSError:
        raise refused from None


# --- one of several places, of people who need not be in one row each -------------------------------------------------


def _slots(rows: Rows, invite: OnList, columns: Any, rng: Randomness) -> Iterator[NDArray[np.int64]]:
    """The slot of the head list that each local person, who has any number of records, tells."""
    mechanism = invite.mechanism
    sampled = tables.sample_records(rows, columns, int(rng.words(1)[0]), discovery_share=0.5)
    for slots in tables.local_slots(sampled, invite.encoding):
        yield slots if isinstance(mechanism, OneSlot) else categories(mechanism, slots, rng=rng)


def _cells(rows: Rows, invite: OnMap, columns: Any, rng: Randomness) -> Iterator[NDArray[np.int64]]:
    """The cell of the map that each local row tells."""
    query = Query.asking(invite.encoding.box, columns, reads="local")
    for part in levels_of(rows, query, "local", ordered=False):
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
