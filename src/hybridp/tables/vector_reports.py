"""Randomising a file of vectors: each local row's values become one report, in a copy of the file."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.tables.duck import Duck
from hybridp.tables.engine import answers, drop, fresh, given, keep, quoted, stream, text, written
from hybridp.tables.labels import unlabelled
from hybridp.tables.reports import on_files, write_copy
from hybridp.tables.source import Rows
from hybridp.tables.vector import CHUNK, VectorQuery, check_columns, check_people

__all__ = ["write_bare_reports", "write_vector_reports"]

RandomiseVectors = Callable[[NDArray[np.int64]], NDArray[np.float64]]


def write_vector_reports(
    rows: Rows,
    query: VectorQuery,
    names: tuple[str, ...],
    *,
    mechanism_column: str,
    mechanism_text: str,
    randomise: RandomiseVectors,
    out: str | os.PathLike[str],
    overwrite: bool = False,
    kept: tuple[str, ...] = (),
    batch: tuple[str, str] | None = None,
    chunk: int = CHUNK,
) -> int:
    """Copy the rows to `out` (CSV or Parquet) with reports in place of local values; return how many rows report.

    Rows labelled `local` (all rows when the query has no trust column) lose the values of the query's columns and get
    `randomise(vector)` in the columns `names`, empty where it is NaN; trusted rows keep theirs and get none. The order
    of the rows is kept, of the other columns only those in `kept`, and the copy appears when it is complete. Where
    the query says what was `asked`, local rows of other questions lose their values too, and report nothing. With
    `batch`, a column and a name that stands in it, the copy is what a mixer hands on: the reports alone, in the order
    of their own numbers, which tells nothing of anybody.
    """
    from hybridp.tables import vector_queries

    query = replace(query, reads="local", reports=None)
    target = Path(out)
    check_columns(rows, query)
    for name in kept:
        rows.need("keep", name)
    added = (*names, mechanism_column, *(() if batch is None else batch[:1]))
    _check_target(rows, target, added, overwrite=overwrite)
    check_people(rows, query)
    duck = on_files(rows)
    levelled, drawn = fresh("vector_levels"), fresh("vector_draws")
    d = len(query.values)
    try:
        keep(rows, levelled, vector_queries.clipped(rows, query))
        (found,) = answers(rows, vector_queries.draw_problems(levelled, query))
        local = int(found["local"] or 0)
        if (found["known"] or 0) != found["records"]:
            raise unlabelled(rows, query.trust or "")
        _draw(rows, duck, levelled, drawn, query, randomise, chunk, bare=0 if batch is None else d)
        copied = {*query.values, query.trust, query.person, *kept}
        columns = {name: place for name, place in rows.written.items() if name in copied}
        if batch is None:
            copy = written(vector_queries.copied(columns, query, names, mechanism_column, mechanism_text, drawn))
        else:
            empty = ", ".join(f"CAST(NULL AS DOUBLE) AS {quoted(name)}" for name in query.values)
            beside = {mechanism_column: mechanism_text, batch[0]: batch[1]}
            copy = f"SELECT {empty}, {_listed(names, beside)} FROM {drawn} ORDER BY ALL"
        write_copy(rows, copy, target)
    finally:
        drop(rows, levelled, drawn)
    return local


def write_bare_reports(
    rows: Rows,
    query: VectorQuery,
    names: tuple[str, ...],
    *,
    mechanism_column: str,
    mechanism_text: str,
    randomise: RandomiseVectors,
    out: str | os.PathLike[str],
    chunk: int = CHUNK,
) -> int:
    """Reports of the local rows alone, in the columns `names`, and nothing else; return how many there are.

    They are written in the order of their own numbers, so that it tells nothing of anybody.
    """
    from hybridp.tables import vector_queries

    query = replace(query, reads="local", reports=None)
    target = Path(out)
    check_columns(rows, query)
    writable = target.name.lower().endswith(".csv") and target.parent.is_dir() and not target.exists()
    must(writable, "out", "must name a new .csv file in an existing folder", str(target))
    check_people(rows, query)
    duck = on_files(rows)
    levelled, drawn = fresh("vector_levels"), fresh("vector_draws")
    try:
        keep(rows, levelled, vector_queries.clipped(rows, query))
        (found,) = answers(rows, vector_queries.draw_problems(levelled, query))
        if (found["known"] or 0) != found["records"]:
            raise unlabelled(rows, query.trust or "")
        _draw(rows, duck, levelled, drawn, query, randomise, chunk, bare=len(names))
        copy = f"SELECT {_listed(names, {mechanism_column: mechanism_text})} FROM {drawn} ORDER BY ALL"
        write_copy(rows, copy, target)
    finally:
        drop(rows, levelled, drawn)
    return int(found["local"] or 0)


def _listed(names: tuple[str, ...], beside: dict[str, str]) -> str:
    """The numbers of reports under these names, and texts that are the same for all."""
    numbers = (f"y{j} AS {quoted(name)}" for j, name in enumerate(names))
    return ", ".join([*numbers, *(f"{text(said)} AS {quoted(name)}" for name, said in beside.items())])


def _check_target(rows: Rows, target: Path, added: tuple[str, ...], *, overwrite: bool) -> None:
    taken = {name.lower() for name in rows.columns}
    for name in added:
        must(name.lower() not in taken, "columns", "must not have a column for reports yet", f"`{name}`")
        taken.add(name.lower())
    writable = target.name.lower().endswith((".csv", ".csv.gz", ".tsv", ".parquet"))
    must(writable, "out", "must end in .csv, .csv.gz, .tsv or .parquet", str(target))
    must(overwrite or not target.exists(), "out", "must not exist yet, unless it may be overwritten", str(target))
    must(target.parent.is_dir(), "out", "must be in a directory that exists", str(target))


def _draw(
    rows: Rows, duck: Duck, levelled: str, drawn: str, query: VectorQuery, randomise: RandomiseVectors, chunk: int,
    bare: int = 0,
) -> None:  # fmt: skip
    """Fill `drawn` with one report for each row of `levelled`, NULL where the row is not to report or says nothing.

    With `bare`, so many numbers long, there are reports of those rows alone.
    """
    from hybridp.tables import vector_queries

    d = len(query.values)
    wide = bare or d
    duck.execute(f"CREATE TEMP TABLE {drawn} ({', '.join(f'y{j} DOUBLE' for j in range(wide))})")
    for part in stream(rows, vector_queries.drawn_from(levelled, query), chunk):
        local = np.asarray(part["local"], dtype=np.bool_)
        sent = np.full((len(local), wide), np.nan)
        if local.any():
            steps = [np.asarray(np.ma.filled(part[f"c{j}"], 0), dtype=np.int64)[local] for j in range(d)]
            told = np.asarray(randomise(np.stack(steps, axis=1)), dtype=np.float64)
            must(told.shape == (int(local.sum()), wide), "randomise", "must return one report for each vector",
                 f"shape {told.shape}")  # fmt: skip
            sent[local] = told
        sent = sent[local] if bare else sent
        with given(rows, {f"y{j}": np.ascontiguousarray(sent[:, j]) for j in range(wide)}) as name:
            listed = ", ".join(f"CASE WHEN isnan(y{j}) THEN NULL ELSE y{j} END" for j in range(wide))
            duck.execute(f"INSERT INTO {drawn} SELECT {listed} FROM {quoted(name)}")
