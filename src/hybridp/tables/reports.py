"""Randomising a file: each local row's value becomes a report, in a copy of the file."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, UnusablePublicRows, must
from hybridp.public.lattice import Lattice
from hybridp.public.queries import Feature, Schema
from hybridp.public.shuffling import MOST_LEVELS
from hybridp.tables.duck import DECIMAL, Duck, kind_of
from hybridp.tables.engine import answers, attempt, drop, fresh, given, keep, quoted, stream, text, written
from hybridp.tables.labels import check_trust, local_rows, unlabelled
from hybridp.tables.marginals import check_feature
from hybridp.tables.mean import CHUNK, cannot_exclude
from hybridp.tables.source import Rows

__all__ = ["check_one_answer", "on_files", "write_copy", "write_drawn", "write_emptied"]
__all__ += ["write_record_reports", "write_reports"]

Randomise = Callable[[NDArray[np.int64]], NDArray[np.float64]]
RandomiseEach = Callable[[NDArray[np.int64], NDArray[np.float64]], NDArray[np.float64]]
RandomiseCodes = Callable[[NDArray[np.int64]], list[str]]


def write_reports(
    rows: Rows,
    *,
    value: str,
    trust: str | None,
    report: str = "report",
    mechanism_column: str = "report_mechanism",
    mechanism_text: str,
    lower: float,
    upper: float,
    levels: int = 2**32,
    missing: float | str | None = None,
    person: str | None = None,
    epsilon: str | None = None,
    kept: tuple[str, ...] = (),
    feature: Feature | None = None,
    by: Feature | None = None,
    batch: tuple[str, str] | None = None,
    asked: tuple[str, str] | None = None,
    mixed: bool = False,
    randomise: Randomise | RandomiseEach | RandomiseCodes,
    out: str | os.PathLike[str],
    overwrite: bool = False,
    chunk: int = CHUNK,
) -> int:
    """Copy the rows to `out` (CSV or Parquet) with a report in place of every local value; return how many there are.

    Rows labelled `local` (all rows when `trust` is None) lose their value and get `randomise(level)` and
    `mechanism_text`; trusted rows keep theirs and get neither. The order of the rows is kept. `randomise` sees each
    local row once, at most `chunk` levels at a time, so the guarantee is the randomiser's and holds for a row: the
    column `person`, where given, must name every local person once. A value that is missing or no number counts as
    `missing` ("middle": of the bounds): a device that sent nothing would tell. With a column of personal epsilons,
    `randomise` gets those as its second argument. Of the other columns only those in `kept` are copied, as they are:
    a raw column beside a report may tell what the report hides. Those of a CSV file stay text in Parquet too.
    With a `feature`, the levels are codes of its options and reports are texts; `batch` is a column, and a name of
    these reports that stands in it. With a private category `by`, the levels are joint ones (`queries.stride`), reports
    are texts too, and local rows lose their category with their value. With `asked`, a column and a word, only local
    rows that hold the word get a report; the others lose their value too. A `mixed` batch is what a mixer hands on: the
    reports alone, without trusted rows or any other column, sorted, so that their order tells nothing. Everyone's own
    epsilon, which is public, stands beside their report there, as a number.

    The copy appears under its name only when it is complete.

    >>> import pathlib, tempfile
    >>> from hybridp.tables import open_rows
    >>> folder = tempfile.TemporaryDirectory()
    >>> file, out = pathlib.Path(folder.name, "people.csv"), pathlib.Path(folder.name, "reports.csv")
    >>> _ = file.write_text("salary,trust\\n25,trusted\\n75,local\\n")
    >>> with open_rows(file) as rows:
    ...     write_reports(rows, value="salary", trust="trust", mechanism_text="half, without noise", lower=0, upper=100,
    ...                   levels=4, missing=0, randomise=lambda levels: levels / 2, out=out)
    1
    >>> print(out.read_text())
    salary,trust,report,report_mechanism
    25,trusted,,
    ,local,1.5,"half, without noise"
    >>> folder.cleanup()
    """
    from hybridp.tables import queries

    target = _target(out, overwrite=overwrite)
    lattice = Lattice(lower, upper, levels)
    if missing == "exclude" or (feature is not None and feature.excludes):
        raise cannot_exclude()
    if isinstance(missing, float | int):
        must(lower <= missing <= upper, "missing", f"must lie between {lower} and {upper}", missing)
    must(chunk >= 1, "chunk", "must be at least 1", chunk)
    added = {"report": report, "mechanism_column": mechanism_column, **({} if batch is None else {"batch": batch[0]})}
    _check_columns(rows, value, trust, person, added)
    if feature is None:
        rows.need_number(value)
        rows.need_missing(value, missing)
    else:
        check_feature(rows, feature)
    if by is not None:
        rows.need("by", by.name)
    if epsilon is not None:
        rows.need("epsilon-column", epsilon)
    for name in kept:
        rows.need("keep", name)
    if person is not None:
        _check_once(rows, person, trust)

    duck = on_files(rows)
    levelled, drawn = fresh("levelled"), fresh("drawn")
    try:
        keep(rows, levelled, queries.draws(rows, value, trust, lattice, missing, epsilon, feature, by, asked))
        problems = queries.draw_problems(levelled, with_epsilon=epsilon is not None)
        local = _check_rows(rows, answers(rows, problems)[0], trust, epsilon)
        if mixed and epsilon is not None:
            levels_told = int(answers(rows, queries.levels_told(levelled))[0]["levels"] or 0)
            rule = (
                f"must hold at most {MOST_LEVELS} different numbers in a mixed batch, or people hide among hardly any"
            )
            must(levels_told <= MOST_LEVELS, "epsilon-column", rule, f"{levels_told:,}")
        texts = feature is not None or by is not None
        _draw(rows, duck, levelled, drawn, randomise, epsilon, chunk, texts=texts)
        category = None if by is None else by.name
        copied = {value} if mixed else {value, category, trust, person, epsilon, *kept}
        names = {name: place for name, place in rows.written.items() if name in copied}
        raw = (value,) if category is None else (value, category)
        level = None if epsilon is None or not mixed else (epsilon, rows.is_text(epsilon))
        beside: tuple[Any, ...] = (batch, asked, mixed, level)
        copy = queries.copied(names, raw, trust, report, mechanism_column, mechanism_text, drawn, *beside)
        write_copy(rows, written(copy), target)
    finally:
        drop(rows, levelled, drawn)
    return local


def write_record_reports(
    rows: Rows,
    schema: Schema,
    *,
    trust: str | None,
    report: str,
    mechanism_text: str,
    batch: str,
    kept: tuple[str, ...] = (),
    randomise: Callable[[NDArray[np.uint16]], list[str]],
    out: str | os.PathLike[str],
    overwrite: bool = False,
    chunk: int = CHUNK,
) -> int:
    """As `write_reports`, with one report for all columns of a schema: local rows lose every one of them.

    `randomise` sees each local row once, as its codes (`hybridp.tables.marginals`), one column of the array a row.
    """
    from hybridp.tables import queries
    from hybridp.tables.marginals import check_declared, labelled_codes

    target = _target(out, overwrite=overwrite)
    added = {"report": report, "mechanism_column": f"{report}_mechanism", "batch": f"{report}_batch"}
    for name in schema.names:
        _check_columns(rows, name, trust, None, added)
    for name in kept:
        rows.need("keep", name)
        must(name not in schema.names, "keep", "must not name a column that is reported on", f"`{name}`")
    check_declared(rows, schema)
    duck, coded, drawn = on_files(rows), fresh("coded"), fresh("drawn")
    people = 0
    try:
        # Read once: what is randomised and the order of the copy are then of the same rows.
        keep(rows, coded, labelled_codes(rows, schema, trust))
        _check_rows(rows, answers(rows, queries.draw_problems(coded))[0], trust, None)
        duck.execute(f"CREATE TEMP TABLE {drawn} (report VARCHAR)")
        for part in stream(rows, queries.every_field(coded), chunk):
            local = np.asarray(part["local"], dtype=np.bool_)
            codes = np.stack([np.asarray(part[f"c{i}"])[local] for i in range(len(schema.names))]).astype(np.uint16)
            reports = np.full(local.size, "", dtype=object)
            reports[local] = randomise(codes)
            people += int(local.sum())
            with given(rows, {"local": local, "report": reports}) as name:
                duck.execute(f"INSERT INTO {drawn} SELECT CASE WHEN local THEN report END FROM {quoted(name)}")
        copied = {*schema.names, trust, *kept}
        names = {name: place for name, place in rows.written.items() if name in copied}
        beside = (f"{report}_batch", batch)
        copy = queries.copied(names, schema.names, trust, report, f"{report}_mechanism", mechanism_text, drawn, beside)
        write_copy(rows, written(copy), target)
    finally:
        drop(rows, coded, drawn)
    return people


def _target(out: str | os.PathLike[str], *, overwrite: bool) -> Path:
    """Where a copy goes; refused where it cannot."""
    target = Path(out)
    writable = target.name.lower().endswith((".csv", ".csv.gz", ".tsv", ".parquet"))
    must(writable, "out", "must end in .csv, .csv.gz, .tsv or .parquet", str(target))
    must(overwrite or not target.exists(), "out", "must not exist yet, unless it may be overwritten", str(target))
    must(target.parent.is_dir(), "out", "must be in a directory that exists", str(target))
    return target


def write_emptied(
    rows: Rows, emptied: tuple[str, ...], kept: tuple[str, ...], trust: str, out: Path,
    told: tuple[str, str, str, str] | None = None,
) -> None:  # fmt: skip
    """Copy columns of the rows to `out`: `kept` ones as they are, `emptied` ones only where the row says `trusted`.

    `told`: see `queries.emptied`.
    """
    from hybridp.tables import queries

    for name in (trust, *emptied, *kept):
        rows.need("columns", name)
    names = {name: place for name, place in rows.written.items() if name in {trust, *emptied, *kept}}
    write_copy(rows, written(queries.emptied(names, emptied, trust, told)), out)


def write_drawn(
    rows: Rows,
    column: str,
    words: tuple[str, ...],
    draw: Callable[[int], NDArray[np.int64]],
    kept: tuple[str, ...],
    trust: str,
    out: Path,
) -> None:
    """Copy the columns `kept` to `out`, with a word that was drawn for every local row in the new one `column`."""
    from hybridp.tables import queries

    for name in (trust, *kept):
        rows.need("columns", name)
    taken = column.lower() in {name.lower() for name in rows.columns}
    must(not taken, "columns", "must leave a name free, for the question that was drawn", f"`{column}`")
    check_trust(rows, trust)
    duck, drawn, known = on_files(rows), fresh("drawn"), np.array([*words, ""], dtype=object)
    labels = fresh("labels")
    try:
        keep(rows, labels, queries.draws(rows, trust, trust, Lattice(0.0, 1.0, 2), None))
        duck.execute(f"CREATE TEMP TABLE {drawn} (drawn VARCHAR)")
        for part in stream(rows, queries.drawn_from(labels, with_epsilon=False), CHUNK):
            local = np.asarray(part["local"], dtype=np.bool_)
            codes = np.full(local.size, len(words), dtype=np.int64)
            codes[local] = draw(int(local.sum()))
            with given(rows, {"local": local, "word": known[codes]}) as name:
                duck.execute(f"INSERT INTO {drawn} SELECT CASE WHEN local THEN word END FROM {quoted(name)}")
        names = {name: place for name, place in rows.written.items() if name in {trust, *kept}}
        write_copy(rows, written(queries.beside(names, column, drawn)), out)
    finally:
        drop(rows, labels, drawn)


def _check_once(rows: Rows, person: str, trust: str | None) -> None:
    """Refuse a local person who is named in several rows, or in none, and one who is trusted too."""
    from hybridp.tables import queries

    (found,) = answers(rows, queries.local_people(person, trust))
    if not (found["rows"] or 0) == found["named"] == found["people"]:
        raise UnusablePublicRows(f"Column `{person}` must name every local person, and once.")
    if found["people"] + found["trusted"] > found["either"]:
        raise UnusablePublicRows(f"Column `{trust}` must hold one label for each person, not both.")


def check_one_answer(
    rows: Rows, trust: str, person: str | None, column: str, reports: Mapping[str, tuple[str, ...]]
) -> dict[str, int]:
    """Refuse local people who sent a report on more than one question, or on another one than was drawn.

    `reports` names every question's columns of reports, none where they are in a file of their own. Gives how many
    people drew each question.
    """
    from hybridp.tables import queries

    rows.need("trust", trust)
    if person is not None:  # each question sees the rows that answer it alone: only here two of them meet
        rows.need("person", person)
        _check_once(rows, person, trust)
    drawn = "as `hybridp randomise` writes it: every local person answers one drawn question"
    needed = [name for columns in reports.values() for name in columns]
    if column not in rows.columns or any(name not in rows.columns for name in needed):
        (found,) = answers(rows, queries.mechanisms(trust, trust, "local", "local"))
        if found["local"]:
            raise UnusablePublicRows(
                f"{local_rows(trust)}, and no column `{column}` names the one question that each of them drew: make "
                "their reports with `hybridp randomise`, or add --simulate-local for a trial on raw rows."
            )
        return dict.fromkeys(reports, 0)
    (found,) = answers(rows, queries.one_answer(trust, column, reports))
    local = int(found["local"] or 0)
    if int(found["named"] or 0) != local:
        raise UnusablePublicRows(f"Column `{column}` must name one of the questions in every local row, {drawn}.")
    for i, columns in enumerate(reports.values()):
        if found.get(f"astray{i}"):
            raise UnusablePublicRows(
                f"Column `{columns[0]}` must hold a report where `{column}` names its question, and nothing in any "
                "other local row: a person answers one question with the whole promise."
            )
    return {name: int(found[f"answered{i}"] or 0) for i, name in enumerate(reports)}


def on_files(rows: Rows) -> Duck:
    """DuckDB, which alone keeps the order of a file's rows and writes a copy of it."""
    if not isinstance(rows.engine, Duck):
        raise InvalidInput("`path` must be a file to be copied with reports. Got a table of another engine.")
    return rows.engine


def _check_columns(rows: Rows, value: str, trust: str | None, person: str | None, added: dict[str, str]) -> None:
    for parameter, name in (("value", value), ("trust", trust), ("person", person)):
        if name is not None:
            rows.need(parameter, name)
    if trust is not None:
        check_trust(rows, trust)
    taken = {name.lower() for name in rows.columns}
    for parameter, name in added.items():
        must(name.lower() not in taken, parameter, "must be a column that the table does not have yet", f"`{name}`")
        taken.add(name.lower())


def _check_rows(rows: Rows, found: dict[str, int | None], trust: str | None, epsilon: str | None) -> int:
    local = int(found["local"] or 0)
    if (found["known"] or 0) != found["rows"]:
        raise unlabelled(rows, trust or "")
    if epsilon is not None and (found["asked"] or 0) != local:
        raise UnusablePublicRows(f"Column `{epsilon}` must hold an epsilon of 0 or more in every local row.")
    return local


def _draw(
    rows: Rows,
    duck: Duck,
    levelled: str,
    drawn: str,
    randomise: Any,
    epsilon: str | None,
    chunk: int,
    *,
    texts: bool = False,
) -> None:
    """Fill `drawn` with one report for each row of `levelled`, NULL where the row is not local."""
    from hybridp.tables import queries

    duck.execute(f"CREATE TEMP TABLE {drawn} (report {'VARCHAR' if texts else 'DOUBLE'})")
    for part in stream(rows, queries.drawn_from(levelled, with_epsilon=epsilon is not None), chunk):
        local = np.asarray(part["local"], dtype=np.bool_)
        reports: Any = np.full(local.size, "", dtype=object) if texts else np.zeros(local.size)
        if local.any():
            asked: list[Any] = [np.asarray(part["level"], dtype=np.int64)[local]]
            if epsilon is not None:
                asked.append(np.asarray(part["epsilon"], dtype=np.float64)[local])
            sent = np.asarray(randomise(*asked), dtype=object if texts else np.float64)
            ok = sent.shape == (int(local.sum()),) and (texts or bool(np.isfinite(sent).all()))
            must(ok, "randomise", "must return one finite report for each level", f"shape {sent.shape}")
            reports[local] = sent
        with given(rows, {"local": local, "report": reports}) as name:
            duck.execute(f"INSERT INTO {drawn} SELECT CASE WHEN local THEN report END FROM {quoted(name)}")


def write_copy(rows: Rows, query: str, target: Path) -> None:
    """The answer as a CSV or Parquet file, which appears when it is complete.

    Text stays text in a Parquet file; where it holds numbers in the rows, the file says with which decimal sign.
    """
    duck, plain = on_files(rows), target.name.lower()
    decimal = rows.decimal or "." * rows.worded
    form = f"FORMAT parquet, KV_METADATA {{{DECIMAL}: {text(decimal)}}}" if decimal else "FORMAT parquet"
    if kind_of(plain) == "CSV":
        zipped = ", COMPRESSION gzip" if plain.endswith(".gz") else ""
        form = f"FORMAT csv, HEADER true, DELIMITER {text(chr(9) if '.tsv' in plain else ',')}{zipped}"
    refused = InvalidInput(f"`out` must be a place that can be written to, with room for the copy. Got {target}.")
    try:
        # A directory of its own beside the target: usual permissions for the file, and one rename as the last step.
        with tempfile.TemporaryDirectory(prefix=".hybridp-", dir=target.parent) as folder:
            part = Path(folder, target.name)
            sql = f"COPY ({query}) TO {text(str(part))} ({form}, USE_TMP_FILE false)"
            attempt(duck, lambda: duck.connection.execute(sql), refused)
            with part.open("rb") as complete:
                os.fsync(complete.fileno())
            # The copy may hold trusted people's values: nobody else may read it.
            part.chmod(0o600)
            os.replace(part, target)
    except OSError:
        raise refused from None
