"""Randomising a file: each local row's answer becomes a report (`Reporting`), in a copy of the file (`Copy`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, UnusablePublicRows, cannot_exclude, must
from hybridp.public.envelope import appearing
from hybridp.public.queries import Schema
from hybridp.public.shuffling import MOST_LEVELS
from hybridp.tables import engine
from hybridp.tables.counts import check_schema
from hybridp.tables.engine import VIEW, Rows, answers, column, count_if, drop, fresh, keep, labelled, literal, select
from hybridp.tables.totals import CHUNK, Query, check_columns, count_groups, labels, number_of, records

__all__ = ["Copy", "Reporting", "write_reports"]


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

    @property
    def columns(self) -> list[tuple[str, str]]:
        """The new ones, each with what it is called."""
        beside = (("mechanism", self.mechanism), ("batch", self.batch))
        return [*(("report", name) for name in self.reports), *((what, one[0]) for what, one in beside if one)]

    def check(self, rows: Rows) -> None:
        """Refuse columns that cannot be read. A value that is missing or no number counts as what is stated: a device
        that sent nothing would tell."""
        if self.query.excludes:
            raise cannot_exclude()
        if self.schema is None:
            check_columns(rows, self.query)
        else:
            check_schema(rows, self.schema, declared=True)


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


def write_reports(
    rows: Rows, copy: Copy, out: str | os.PathLike[str], *, overwrite: bool = False, chunk: int = CHUNK
) -> list[int]:
    """Write the copy to `out` (CSV or Parquet), with reports in place of local values; how many there are of each.

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
    ...     write_reports(rows, Copy(values=("salary",), trust="trust", told=(told,)), out)
    [1]
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
    for told in copy.told:
        told.check(rows)
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
        write_copy(rows, _copied(rows, copy, drawn), target)
    finally:
        drop(rows, held, *drawn)
    return people


# --- rules ------------------------------------------------------------------------------------------------------------


def _check_copy(rows: Rows, copy: Copy) -> None:
    own = [("value" if len(copy.values) == 1 else "columns", name) for name in copy.values]
    beside = [("epsilon-column", copy.epsilon), *(("keep", name) for name in copy.kept)]
    for parameter, name in (*own, ("trust", copy.trust), ("person", copy.person), *beside):
        rows.need(parameter, name)
    for name in copy.kept:
        must(name not in copy.values, "keep", "must not name a column that is reported on", f"`{name}`")
    if copy.trust is not None:
        rows.need_labels(copy.trust)
    taken = {name.lower() for name in rows.columns}
    new = [("batch", copy.beside[0])] if copy.beside else []
    for parameter, name in (*new, *(one for told in copy.told for one in told.columns)):
        must(name.lower() not in taken, parameter, "must be a column that the table does not have yet", f"`{name}`")
        taken.add(name.lower())


def _reporting_people(rows: Rows, copy: Copy, held: str) -> int:
    """How many rows are to report, where everyone's own epsilon obeys the rules."""
    asked = {"local": count_if("local")}
    if copy.epsilon is not None:
        own = "CASE WHEN local THEN asked END"
        asked |= {"stated": f"COUNT({own})", "levels": f"COUNT(DISTINCT {own})"}
    (result,) = answers(rows, select(asked, held))
    local = int(result["local"] or 0)
    if copy.epsilon is not None and result["stated"] != local:
        raise UnusablePublicRows(f"Column `{copy.epsilon}` must hold an epsilon of 0 or more in every local row.")
    if copy.mixed and copy.epsilon is not None:
        rule = f"must hold at most {MOST_LEVELS} different numbers in a mixed batch, or people hide among hardly any"
        must(result["levels"] <= MOST_LEVELS, "epsilon-column", rule, f"{result['levels']:,}")
    return local


# --- queries ----------------------------------------------------------------------------------------------------------


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


# --- draws, and the file ----------------------------------------------------------------------------------------------


def _draw(rows: Rows, copy: Copy, told: Reporting, held: str, drawn: str, chunk: int) -> None:
    """Fill `drawn` with one report for each row of `held`, NULL where the row is not to report or says nothing."""
    duck, wide = engine.on_duck(rows), len(told.reports)
    kind, there = ("VARCHAR", "local") if told.texts else ("DOUBLE", "NOT isnan(y{j})")
    duck.execute(f"CREATE TEMP TABLE {drawn} ({', '.join(f'y{j} {kind}' for j in range(wide))})")
    listed = ", ".join(f"CASE WHEN {there.format(j=j)} THEN y{j} END" for j in range(wide))
    for part in engine.stream(rows, f"SELECT * FROM {held}", chunk):
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


def write_copy(rows: Rows, query: str, target: Path) -> None:
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
