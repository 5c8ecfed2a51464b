"""The curator's part of numbers and options: one scan of the rows, draws of noise, one charge.

Everybody's answer becomes whole numbers row by row, so that replacing one person's data moves the exact sums by at most
what is stated, and discrete noise on them has exactly the stated guarantee: a number by `LEVELS` steps, a vector as
`hybridp.public.messages` says. Of options a replaced person moves one count down and another up by 1, whatever the
field holds: everybody has one. Of a number by a private category everybody has one vote, divided over two cells
(`hybridp.public.groups`). Of several options a replaced person moves the counts by at most ``min(2 most, k)`` in all:
of more ticks than `most` the first are counted. How many people are in each group is public under replacement.

Trusted people's rows come from a table (`open_rows`) or a service's sealed answers (`Answers`). This is the one door to
tables for everyone else, with what is public of them: who trusts, groups, epsilons, reports and how they were made.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, reduce
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hybridp import errors, noise, tables
from hybridp.errors import LOCAL, TRUSTED, Trusts, UnusablePublicRows, UnusableRows, label_column, must
from hybridp.noise import Randomness, additive, voted_cells
from hybridp.public import messages, shares
from hybridp.public.distribution import by_window, invite_bins
from hybridp.public.groups import Joint
from hybridp.public.mechanisms import AddedNoise, DiscreteLaplace
from hybridp.public.messages import BATCH, MECHANISM, NoisySquares, OnNumber, OnVector, TrustedSummary, reports_digest
from hybridp.public.randomisers import LEVELS, Bounds, Ints, Lattice
from hybridp.public.shares import CountNoise, NoisyCounts, OnOptions
from hybridp.public.steered_mean import Window, WindowNoise
from hybridp.tables import ByCategory, Columns, Query, Raw, Report, Rows, Source, TableLike, engine, open_rows, totals
from hybridp.tables import counts as counting
from hybridp.tables.engine import CHOICES, NUMBERS, TABLES, VIEW, answers, column, column_must, select, shown, text
from hybridp.tables.totals import CHUNK, local_rows, number_of

__all__ = ["Answers", "CHOICES", "Columns", "Counted", "NUMBERS", "Raw", "Rows", "Source", "TABLES", "TableLike"]
__all__ += ["TrustedAnswers", "all_empty", "as_numbers", "batch_digest", "batch_names", "binned", "check_answers"]
__all__ += ["check_batches", "check_mechanism", "column_reports", "count_answers", "count_between", "count_people"]
__all__ += ["count_rows", "epsilon_counts", "group_sizes", "grouped", "levels", "local_numbers", "local_rows", "lots"]
__all__ += ["must_be_public", "must_read_again", "named_mechanism", "noisy_sums", "open_rows", "people_query", "read"]
__all__ += ["read_answers", "read_as", "read_mechanism", "read_slots", "release_clipped", "release_counts"]
__all__ += ["release_sums", "release_totals", "release_window", "rounded_cells", "rows_of", "shown"]
__all__ += ["sizes_of", "slot_counts", "slots_told", "squares", "with_public"]

Levels = tuple[NDArray[np.float64], NDArray[np.int64]]
TrustedAnswers = Iterable[NDArray[np.int64]]
"""RAW: trusted people's answers, some people at a time, one row a person: options by their places, ticks as bits, or
numbers in the same bytes (`as_numbers`)."""


def as_numbers(rows: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.ascontiguousarray(rows).view(np.float64)


class Answers(TrustedAnswers, Protocol):
    """RAW: trusted people's answers as a service keeps them, unsealed some at a time, in bounded memory.

    Whoever stores them hands them over here; only this room adds them up, and its sums leave it with noise.
    """

    def by_epsilon(self) -> Iterator[tuple[float, NDArray[np.int64]]]:
        """Some people's answers, all of them with one epsilon of their own."""

    def records(self) -> Iterator[list[tuple[str, ...]]]:
        """Some people's records, one of each."""


# --- noise, and what is public ----------------------------------------------------------------------------------------


def noisy_sums(sums: Iterable[int], mechanism: AddedNoise, *, rng: Randomness) -> tuple[int, ...]:
    """Whole numbers, each with a draw of the mechanism's noise: what its guarantee is about."""
    totals = [int(total) for total in sums]
    drawn = additive(mechanism, len(totals), rng=rng)
    return tuple(total + int(draw) for total, draw in zip(totals, drawn, strict=True))


def read_as(data: Any, decimal: str | None) -> Any:
    """The table, whose numbers in text have this decimal sign where one is stated."""
    if decimal is None or data is None:
        return data
    return replace(data, decimal=decimal) if isinstance(data, Source) else Source(data, decimal=decimal)


def must_read_again(data: TableLike | None, times: int) -> None:
    """Refuse a stream, which can be read but once, where a table is read for several questions."""
    held = data.location if isinstance(data, Source) else data
    again = times == 1 or type(held).__name__ != "RecordBatchReader"
    must(again, "data", "must be a table for several questions", "a stream: read it whole")


def with_public(data: TableLike | None, public: tuple[str, ...]) -> Any:
    """The rows with the columns that a study declares public: it states them, and nobody else does."""
    if data is None or not (public or isinstance(data, Source)):
        return data
    source = data if isinstance(data, Source) else Source(data)
    rule = "must be left out here, where the study states it (people.public)"
    must(source.public in ((), public), "public", rule, ", ".join(source.public))
    return replace(source, public=public)


def must_be_public(data: TableLike, option: str, column: str | None) -> None:
    """Refuse to publish exactly who holds what in a column, unless it is declared public. No row is read for it."""
    rule = "must be declared public, as how many people hold what in it is told exactly: add it to people.public, or "
    rule += f"--public {column}, if everybody may know it (`Source(data, public=...)` in Python)"
    public = column is None or (isinstance(data, Source) and column in data.public)
    must(public, option, rule, f"`{column}`, which is not")


# --- how many people there are: public under replacement --------------------------------------------------------------


def check_answers(
    data: TableLike, trust: Trusts, person: str | None, column_of: str, reports: Mapping[str, tuple[str, ...]], *,
    table: str | None = None,
) -> dict[str, int]:  # fmt: skip
    """Refuse reports by which a local person answered another question than the one drawn, or several: all public.

    `reports` names every question's columns of reports, of which some may be empty, and none where they are in a file
    of their own. Gives how many people drew each question.
    """
    label = label_column(trust)
    with open_rows(data, table=table, trust=trust, person=person) as rows:
        # Each question sees the rows that answer it alone: only here two of them meet.
        _, local = totals.count_groups(rows, Query(values=(), trust=label, person=person))
        if any(name not in rows.columns for names in (*reports.values(), (column_of,)) for name in names):
            if local:
                why = f"no column `{column_of}` names the one question that each of them drew: make their reports with"
                raise totals.no_reports(label, f"{why} `hybridp randomise`")
            return dict.fromkeys(reports, 0)
        said = [engine.labelled(column(column_of), name) for name in reports]
        outputs = {}
        for i, (one, columns) in enumerate(zip(said, reports.values(), strict=True)):
            outputs[f"answered{i}"] = engine.count_if(one)
            if columns:
                empty = " AND ".join(f"{column(name)} IS NULL" for name in columns)
                outputs[f"astray{i}"] = engine.count_if(f"COALESCE({one}, FALSE) = ({empty})")
        (result,) = answers(rows, select(outputs, VIEW, engine.of_local(label)))
    answered = {name: int(result[f"answered{i}"] or 0) for i, name in enumerate(reports)}
    rule = "must name one of the questions in every local row, as `hybridp randomise` writes it: every local person "
    column_must(sum(answered.values()) == local, column_of, f"{rule}answers one drawn question")
    rule = f"must hold a report where `{column_of}` names its question, and nothing in any other local row: a person "
    for i, columns in enumerate(reports.values()):
        alone = not result.get(f"astray{i}")
        column_must(alone, next(iter(columns), None), f"{rule}answers one question with the whole promise")
    return answered


class Counted(NamedTuple):
    """The people of both groups; with own epsilons, each group's different ones and how many people have each."""

    trusted: int
    local: int
    epsilons: tuple[Levels, Levels] | None = None


def _counted(rows: Rows, fields: Mapping[str, str], person: str | None = None, more: str = "") -> list[dict[str, Any]]:
    """How many people (rows, without `person`) there are of each kind by these fields."""
    rows.need("person", person)
    many = "COUNT(*)" if person is None else f"COUNT(DISTINCT {column(person)})"
    return answers(rows, select({**fields, "people": many}, VIEW, f"GROUP BY {', '.join(fields.values())} {more}"))


def _levels(groups: Iterable[Mapping[str, Any]]) -> Levels:
    """The different epsilons of some groups, ascending, and how many people have each."""
    own = sorted((group["asked"], group["people"]) for group in groups)
    return np.array([one for one, _ in own], dtype=np.float64), np.array([many for _, many in own], dtype=np.int64)


def count_rows(rows: Rows, trust: str, person: str | None, epsilon: str | None = None) -> Counted:
    """People by their choices; no value of anybody is read. Without `person`, every row is a person of their own."""
    rows.need("trust", trust)
    fields = {"label": text(column(trust))}
    if epsilon is not None:
        rows.need("epsilon-column", epsilon)
        own = number_of(rows, epsilon)
        fields["asked"] = f"CASE WHEN {own} <= {engine.INFINITY} THEN {own} ELSE {engine.double(0.0)} END"
    groups = _counted(rows, fields, person)
    if not {group["label"] for group in groups} <= {TRUSTED, LOCAL}:
        raise rows.unlabelled(trust)
    sides = [[group for group in groups if group["label"] == label] for label in (TRUSTED, LOCAL)]
    trusted, local = (sum(int(group["people"]) for group in side) for side in sides)
    return Counted(trusted, local, None if epsilon is None else (_levels(sides[0]), _levels(sides[1])))


def count_people(
    data: TableLike,
    trust: Trusts,
    person: str | None,
    epsilon: str | None,
    *,
    answers: Mapping[str, Sequence[str]],
    table: str | None = None,
) -> Counted:
    """How many people are in each group, by their choices alone; of the columns of `answers` only that they exist."""
    rule = errors.rule_of(trust)
    must_be_public(data, "trust", None if rule is None else rule.column)
    must_be_public(data, "epsilon-column", epsilon)
    with open_rows(data, table=table, trust=trust, person=person) as rows:
        for question, columns in answers.items():
            for name in columns:
                rows.need(f"{question}.column", name)
        return count_rows(rows, label_column(trust), person, epsilon)


def epsilon_counts(rows: Rows, epsilon: str) -> Levels:
    """The distinct epsilons of a column and how many rows have each: what a plan needs, and no value."""
    rows.need("epsilon-column", epsilon)
    groups = _counted(rows, {"asked": number_of(rows, epsilon)})
    stated = all(group["asked"] is not None and group["asked"] >= 0 for group in groups)
    column_must(stated, epsilon, "must hold an epsilon of 0 or more for every person")
    return _levels(groups)


# --- by public group --------------------------------------------------------------------------------------------------
# Who is in which group is known to all, so that a rule on it may refuse. The columns of a release are kept once,
# with everybody's group as text; the rows of one group are then rows like any others.

MOST_GROUPS = 500
_GROUP = "group of the person"


def _kept_by_group(rows: Rows, by: str, columns: Iterable[str | None], levels: Sequence[float] = ()) -> Rows:
    """These columns of all rows, those that there are, kept with everybody's group while the rows are open: what a
    column says, or which of some levels is the largest that is at most the number there."""
    if levels:
        rows.need("epsilon-column", by)
        own, least = number_of(rows, by), repr(min(levels))
        cases = (f"WHEN {own} >= {engine.double(one)} THEN '{one!r}'" for one in sorted(levels, reverse=True))
        known = f"WHEN {own} <= {engine.INFINITY} THEN CASE {' '.join(cases)} END"  # what is no number is beyond it
        group = f"COALESCE(CASE {known} END, 'below {least}')"
    else:
        rows.need("by", by)
        rows.need_words(by, " to name a group")
        group = text(column(by))
    wanted = {name: rows.columns[name] for name in dict.fromkeys(columns) if name is not None and name in rows.columns}
    table, rows = engine.fresh("grouped"), engine.local_copy(rows, [*wanted, by])
    engine.keep(rows, table, select(engine.chosen(wanted) | {_GROUP: group}, VIEW))
    result = {**wanted, _GROUP: "VARCHAR"}
    return replace(rows, columns=MappingProxyType(result), part=select(engine.chosen(result), table))


def grouped(
    rows: Rows, by: str, columns: Columns, ways: str, missing: object, levels: Sequence[float] = ()
) -> Rows:
    """The columns of a release, kept beside everybody's group; `ways` says how one may state what is `missing`."""
    for value in columns.names:
        rows.need("column", value)
        if rows.trust is None or rows.trust.everyone != "local":
            rows.need_missing(value, missing, ways)
    report = columns.report
    beside = () if report is None else (*columns.reports, f"{report}_mechanism", f"{report}_batch")
    own = (*columns.names, columns.trust_column, columns.person, columns.record_key)
    return _kept_by_group(rows, by, (*own, *beside), levels)


def rows_of(kept: Rows, groups: Iterable[str]) -> Rows:
    """The rows of people in one of these groups."""
    return replace(kept, part=f"{kept.part} WHERE {engine.is_one_of(column(_GROUP), groups)}")


def sizes_of(kept: Rows, by: str, trust: str, person: str | None) -> dict[str, tuple[int, int]]:
    """How many trusted and local people each group has, in the order of the names. Everybody is in one group."""
    group, trusted = column(_GROUP), engine.labelled(column(trust), TRUSTED)
    if person is not None:
        kept.need("person", person)
        each = select({"many": f"COUNT(DISTINCT {group})"}, VIEW, f"GROUP BY {column(person)}")
        (result,) = answers(kept, f"SELECT MAX(many) AS most FROM ({each}) AS groups")
        column_must((result["most"] or 0) <= 1, by, "must hold one group for each person, not several")
    sizes: dict[Any, list[int]] = {}
    for row in _counted(kept, {"name": group, "trusted": trusted}, person, f"LIMIT {2 * MOST_GROUPS + 3}"):
        sizes.setdefault(row["name"], [0, 0])[0 if row["trusted"] else 1] += int(row["people"])
    column_must(not {None, ""} & set(sizes), by, "must name a group in every row")
    column_must(len(sizes) <= MOST_GROUPS, by, f"must hold at most {MOST_GROUPS} different groups: merge some first")
    return {name: (sizes[name][0], sizes[name][1]) for name in sorted(sizes)}


def group_sizes(
    data: TableLike, by: str, trust: Trusts, person: str | None, *, table: str | None = None
) -> dict[str, tuple[int, int]]:
    """The same of a table, for a plan: public, as who trusts is. No value of anybody is read."""
    label = label_column(trust)
    must_be_public(data, "by", by)
    with open_rows(data, table=table, trust=trust, person=person) as rows:
        return sizes_of(_kept_by_group(rows, by, (label, person)), by, label, person)


# --- files of reports: private already, and read before a charge ------------------------------------------------------

_MOST_BATCHES = 100_000
_SIMULATED = " SIMULATED"


def all_empty(rows: Rows, names: tuple[str, ...]) -> bool:
    """Whether these columns, as far as the table has them, hold nothing in any row."""
    here = [f"NULLIF({text(column(name))}, '')" for name in names if name in rows.columns]
    some = f"SELECT 1 AS filled FROM {VIEW} WHERE NOT COALESCE({', '.join(here)}) IS NULL LIMIT 1"
    return not here or not answers(rows, some)


def slot_counts(rows: Rows, name: str, slots: int) -> NDArray[np.int64]:
    """How many reports name each slot; a number that is no slot is refused."""
    rows.need("report", name)
    out = np.zeros(slots, dtype=np.int64)
    for group in _counted(rows, {"slot": number_of(rows, name)}):
        slot = group["slot"]
        known = slot is not None and 0 <= slot < slots and slot == int(slot)
        column_must(known, name, f"must hold the number of a slot of the invitation, 0 to {slots - 1}")
        out[int(slot)] += int(group["people"])
    return out


def read_slots(path: TableLike, mechanism: str, slots: int, *, table: str | None = None, assume: bool = False) -> Raw:
    """`slots_told` of a file."""
    with open_rows(path, table=table) as rows:
        return slots_told(rows, mechanism, slots, assume=assume)


def slots_told(rows: Rows, mechanism: str, slots: int, *, assume: bool = False) -> Raw:
    """How many reports name each slot, by the mechanism with this text, which they must name unless it is assumed.

    Counts alone cannot tell two sets of reports apart, so that the digest also holds the random names of the batches
    that devices write beside them.
    """
    says, counts = check_mechanism(rows, None, MECHANISM, mechanism), slot_counts(rows, "report", slots)
    people, digest = int(counts.sum()), reports_digest(mechanism, counts.tolist(), batch_names(rows, BATCH))
    assumed = named_mechanism(MECHANISM, says, people, assume=assume)
    return Raw(0, None, messages.SlotReports(people, counts), bool(says), assumed, digest)


def check_mechanism(rows: Rows, trust: str | None, mechanism_column: str, real: str) -> bool | None:
    """Refuse reports that say they were made by another mechanism; True when some say that they were simulated.

    Without `trust` all rows are local. None for a table without that column, which says nothing (`named_mechanism`).
    """
    rows.need("trust", trust)
    if mechanism_column not in rows.columns:
        return None
    simulated, told = f"{real}{_SIMULATED}", rows.texts(mechanism_column, 3, trust)
    if not {*told} <= {real, simulated}:
        raise errors.OtherMechanism(f"Column `{mechanism_column}` must name the mechanism {real} in every local row.")
    return simulated in told


def named_mechanism(mechanism_column: str, says: bool | None, people: int, *, assume: bool) -> bool:
    """Refuse reports that name no mechanism, unless it is assumed; True when it is."""
    if says is not None or not people:
        return False
    rule = "must name the mechanism and the question beside every report, as `hybridp randomise` writes them; "
    rule += "--assume-mechanism takes them at your word, and the receipt will say so"
    column_must(assume, mechanism_column, rule)
    return True


def local_numbers(rows: Rows, names: tuple[str, ...], trust: str | None, chunk: int) -> Iterator[Any]:
    """Local rows' reports (those of all rows without `trust`) as masked doubles, a row each, some at a time; text that
    is no number is refused."""
    fields: dict[str, str] = {}
    for i, name in enumerate(names):
        rows.need("report", name)
        rows.need_number(name, text=True)
        value = number_of(rows, name)
        fields |= {f"n{i}": value, f"text{i}": totals.not_a_number(column(name), value)}
    rows = engine.local_copy(rows, [*names, trust])
    for part in engine.stream(rows, select(fields, VIEW, engine.of_local(trust)), chunk):
        for i, name in enumerate(names):
            if bool(np.any(part[f"text{i}"])):
                raise UnusableRows(f"Column `{name}` must hold numbers.")
        yield np.ma.stack([np.ma.asarray(part[f"n{i}"], dtype=np.float64) for i in range(len(names))], axis=1)


def read_mechanism(rows: Rows, where: Columns) -> tuple[str | None, bool]:
    """The text of the one mechanism that reports name (None without reports), and whether some say SIMULATED."""
    label = where.trust_column
    if label is not None:
        rows.need_labels(label)
        count_rows(rows, label, None)  # refuses a row without a label
    rows.need("report", where.mechanism)
    texts = rows.texts(where.mechanism, 3, label)
    plain = {text.removesuffix(_SIMULATED) for text in texts}
    if "" in texts or len(plain) > 1:
        raise UnusableRows(f"Column `{where.mechanism}` must name one mechanism, the same in every row that is read.")
    return next(iter(plain), None), any(text != text.removesuffix(_SIMULATED) for text in texts)


def batch_names(rows: Rows, batch: str) -> list[str]:
    """The different names of batches that stand beside reports, in the column `batch`."""
    result = rows.texts(batch, _MOST_BATCHES + 1) if batch in rows.columns else []
    column_must(len(result) <= _MOST_BATCHES, batch, f"must hold at most {_MOST_BATCHES:,} different names")
    return result


def batch_digest(rows: Rows, columns: Columns, text: str, counts: NDArray[np.int64], people: int) -> str:
    """What names a set of reports that are counted: their mechanism, their counts, and the names of their batches."""
    batches = batch_names(rows, f"{columns.report}_batch")
    return reports_digest(text, people, counts.tolist(), [name for name in batches if name])


def check_batches(data: TableLike, table: str | None, column: str, reports: TableLike) -> None:
    """Refuse reports of another run than the table's, which names their batch in `column`: all public.

    Somebody may have drawn one question in each run, and would count in both. A table that names none is not checked.
    """
    with open_rows(data, table=table) as rows:
        known = {*batch_names(rows, column)} - {""}  # of those who drew another question it is empty
    with open_rows(reports) as sent:
        told = {*batch_names(sent, BATCH)}
    if known and not (told and told <= known):
        raise UnusablePublicRows(
            "`reports` must be those of the run of `hybridp randomise` that wrote the table. Got another run's: people "
            "may have drawn other questions there."
        )


_SLACK = 1 + 1e-9


# --- what is read of a table ------------------------------------------------------------------------------------------


def people_query(
    columns: Columns, encoding: Any, joint: Joint | None = None, *, local_raw: bool = False, **how: Any
) -> Query:
    """The query of what is asked about these columns, a record a person, without reports."""
    own = {"person": columns.person, "record_key": columns.record_key}
    return Query.asking(encoding, columns, joint, reads="all" if local_raw else "trusted", **own, **how)


def column_reports(invite: Any, names: tuple[str, ...]) -> dict[str, Any]:
    """The columns of reports, words or numbers within so many half-ranges of the middle, and how many all answer."""
    if invite.way == "option":
        return {"reports": (Report(names[0], text=True),)}
    made, reports = invite.mechanism, []
    reach = made.law.bound * _SLACK
    for name, (centre, half) in zip(names, invite.encoding.sides, strict=True):
        reports.append(Report(name, centre, half, centre - half * reach, centre + half * reach))
    return {"reports": tuple(reports), "reported": made.reported}


def _query(rows: Rows, columns: Columns, invite: Any, local_raw: bool, joint: Joint | None = None, **how: Any) -> Query:
    """The query for what an invitation asked of these columns; a table needs no reports while nobody is local."""
    how["made"] = invite.mechanism
    if not local_raw and any(name in rows.columns for name in columns.reports):
        how |= column_reports(invite, columns.reports)
    return people_query(columns, invite.encoding, joint, local_raw=local_raw, **how)


def read(
    rows: Rows, columns: Columns, invite: Any, *, local_raw: bool = False, assume: bool = False, says_so: str = "",
    **how: Any,
) -> Raw:  # fmt: skip
    """Both groups' totals in one scan, of what the invitation asks. Rows that break a rule are refused before anything
    is drawn.

    So are reports of another mechanism, and those that name none unless the invitation's is assumed; a line that is
    written beside those of several invitations is `says_so`. `digest` names the reports. `how` may ask to
    `count_clipped` and to `sum_squares` of numbers, names the column of everybody's own `epsilon`, and the `joint`
    question that options are the cells of.
    """
    # Before the reports, which name them too: a misspelt column is heard of as one.
    for name in () if columns.words else columns.names:
        rows.need("column" if len(columns.names) == 1 else "columns", name)
    says: bool | None = True if local_raw else None
    if not local_raw and any(name in rows.columns for name in columns.reports):
        says = check_mechanism(rows, columns.label, columns.mechanism, says_so or invite.text)
    raw = _READERS[invite.way](rows, columns, invite, local_raw, **how)
    sent = raw.local.people if raw.epsilons is None else int(raw.local.people[raw.local.epsilons > 0].sum())
    assumed = named_mechanism(columns.mechanism, says, sent, assume=assume)
    return replace(raw, simulated_reports=bool(says), assumed=assumed, digest=None if local_raw else raw.digest)


def _numbers(
    rows: Rows, columns: Columns, invite: Any, local_raw: bool, *, count_clipped: bool = False,
    sum_squares: bool = False, epsilon: str | None = None,
) -> Raw:  # fmt: skip
    """Of one number or several; with own epsilons by each of them, ascending."""
    rows.need("epsilon-column", epsilon)
    steps = invite.encoding.square_steps * sum_squares
    how: dict[str, Any] = {"count_clipped": count_clipped, "square_steps": steps, "epsilon": epsilon}
    raw = tables.add_up(rows, _query(rows, columns, invite, local_raw, **how))
    left_out = 0 if raw.answered is None else raw.trusted_people - raw.answered
    sums = raw.trusted if epsilon is not None else [total + left_out * (LEVELS // 2) for total in raw.trusted]
    return replace(raw, trusted=sums, digest=reports_digest(invite.text, *raw.marks))


def _option(rows: Rows, columns: Columns, invite: OnOptions, local_raw: bool, *, joint: Joint | None = None) -> Raw:
    query, sets = _query(rows, columns, invite, local_raw, joint), invite.mechanism.size > 1
    raw = counting.count_options(rows, query, named=not sets)
    if local_raw:
        return raw
    local = raw.local
    if sets:
        local = replace(local, people=0)
    for texts in counting.report_texts(rows, query, CHUNK) if sets and raw.local_people else ():
        local = local + shares.read_reports(
            invite.mechanism, texts, shares.unreadable(columns.report or "", invite.text)
        )
    return replace(raw, local=local, digest=batch_digest(rows, columns, invite.text, local.counts, local.people))


def _marginal(rows: Rows, columns: Columns, invite: Any, local_raw: bool) -> Raw:
    """The reports of local people on a table, of which trusted rows are read elsewhere."""
    labels, report = columns.label, columns.report or "report"
    told, digest = shares.MarginalReports.nobody(invite), None
    if count_rows(rows, labels, None).local:
        if report not in rows.columns:
            why = f"no column `{report}` holds their reports: make them with `hybridp randomise synth`"
            raise totals.no_reports(labels, why)
        query = Query(values=(), trust=labels, reports=(Report(report, text=True),))
        for texts in counting.report_texts(rows, query, CHUNK):
            told = told + shares.read_marginal_reports(invite, texts, report)
        counts = np.concatenate([one.counts for one in told.told])
        digest = batch_digest(rows, columns, invite.text, counts, told.people)
    return Raw(0, None, told, digest=digest, notes=rows.notes)


_READERS: dict[str, Callable[..., Raw]] = {
    "marginal": _marginal, "number": _numbers, "option": _option, "own": _numbers, "vector": _numbers,
}  # fmt: skip


# --- the same of answers that a service keeps, some at a time ---------------------------------------------------------


def read_answers(answers: TrustedAnswers, invite: Any, joint: Joint | None = None) -> Raw:
    """RAW: the trusted people's totals of what the invitation asks; they add up over people (`Raw.plus`)."""
    return reduce(Raw.plus, _ANSWERS[invite.way](answers, invite, joint), Raw(0, 0))


def _number_answers(answers: TrustedAnswers, invite: OnNumber | OnVector, joint: None) -> Iterator[Raw]:
    bounds = invite.encoding
    for rows in answers:
        steps = bounds.steps(as_numbers(rows[:, : bounds.dimensions]))
        yield Raw(len(rows), steps.sum(axis=0).astype(object), squares=squares(steps, bounds))


def _option_answers(answers: TrustedAnswers, invite: OnOptions, joint: Joint | None) -> Iterator[Raw]:
    """Everybody's option, ticks, or vote for a private category and an answer: of a number it is divided over two."""
    question = invite.encoding
    for codes in answers:
        many, own = len(codes), codes[:, 0]
        if question.most:
            yield Raw(many, shares.tick_counts(own, np.ones(many, dtype=np.int64), question))
        elif joint is None:
            yield Raw(many, np.bincount(own, minlength=question.size))
        elif not isinstance(joint.answers, Bounds):  # the place of both among all pairs
            yield Raw(many, np.bincount(own * joint.size + codes[:, 1], minlength=joint.cells.size))
        else:  # a number is the same 8 bytes as a place
            lattice = Lattice(joint.answers.lower, joint.answers.upper, joint.steps)
            upper = np.zeros(joint.by.size, dtype=np.int64)
            np.add.at(upper, own, lattice.round(as_numbers(codes[:, 1])))
            people = np.bincount(own, minlength=joint.by.size)
            votes = np.column_stack([upper, joint.steps * people - upper]).ravel()
            yield Raw(many, votes, steps=joint.steps)


_ANSWERS: dict[str, Callable[..., Iterator[Raw]]] = {
    "number": _number_answers, "option": _option_answers, "vector": _number_answers,
}  # fmt: skip


def squares(steps: Ints, bounds: Bounds | messages.VectorBounds) -> NDArray[Any]:
    """RAW: of each column the sum of squared distances from the middle, as a table's query adds them up."""
    away = np.abs(steps + bounds.start * bounds.reach_steps)
    far = np.floor(away * (bounds.square_steps / bounds.reach_steps)).astype(np.int64)
    return np.asarray((far * far).sum(axis=0).astype(object))


# --- what is released of sums -----------------------------------------------------------------------------------------


def release_sums(
    totals: Raw, mechanism: AddedNoise, bounds: Bounds | messages.VectorBounds,
    squares: DiscreteLaplace | None = None, *, rng: Randomness,
) -> tuple[TrustedSummary, ...]:  # fmt: skip
    """The trusted sums, each with a draw of the mechanism's noise: this is what its guarantee is about.

    And those of squares with draws of their own, where a mechanism is given for them. Where people without a value are
    left out: the sum of the others from the middle, and their noisy number.
    """
    people, noisy = totals.trusted_people, noisy_sums(totals.trusted, mechanism, rng=rng)
    if totals.answered is not None:
        count = messages.answered_noise(mechanism)
        answered = max(noise.perturb(count, totals.answered, rng=rng), 1)
        return (TrustedSummary(answered, noisy[0] - people * (LEVELS // 2), mechanism, start=0, count_noise=count),)
    own: Sequence[NoisySquares | None] = (None,) * len(noisy)
    if squares is not None:
        told = noisy_sums(totals.squares, squares, rng=rng)
        own = [NoisySquares(people, total, squares, bounds.square_steps) for total in told]
    both, where = zip(noisy, own, strict=True), (bounds.reach_steps, bounds.start)
    return tuple(TrustedSummary(people, total, mechanism, one, *where) for total, one in both)


def release_counts(raw: Raw, stated: CountNoise, *, rng: Randomness) -> NoisyCounts:
    """The trusted counts with noise on each (of two options, on the first alone): what the guarantee is about."""
    counted = raw.trusted[: stated.draws] * (stated.steps // raw.steps)
    return NoisyCounts(raw.trusted_people, noisy_sums(counted, stated.mechanism, rng=rng), stated)


def release_totals(raw: Raw | None, asked: Any, *, rng: Randomness) -> Any:
    """What leaves the curator of these totals, by the way of what is asked: with its noise, whatever that is.

    None where they are not asked for, or nobody trusts.
    """
    if asked.noise is None or raw is None or not raw.trusted_people:
        return None
    if asked.invite.way != "option":
        return release_sums(raw, asked.noise, asked.invite.encoding, asked.squares, rng=rng)
    return replace(release_counts(raw, asked.noise, rng=rng), left_out=asked.invite.encoding.excludes)


def release_window(
    levels: Iterable[Ints], window: Window, stated: WindowNoise, *, rng: Randomness
) -> tuple[int, int, int]:
    """The trusted sums within a window and beyond it, and the squares of the latter, each with its noise.

    A level is the sum of its parts, which rise and fall together: replacing a person moves the two sums by at most
    `LEVELS` steps in all, and the squares by at most that of the farthest.
    """
    low, high = window.levels
    unit = LEVELS // messages.SQUARE_STEPS
    inside = outside = squared = 0
    for chunk in levels:
        within = np.clip(chunk, low, high)
        beyond = chunk - within
        far = np.abs(beyond) // unit
        inside += int((within - low).sum())
        outside += int(beyond.sum())
        squared += int((far * far).sum())
    within_noisy, beyond_noisy = (noise.perturb(stated.sums, total, rng=rng) for total in (inside, outside))
    return within_noisy, beyond_noisy, noise.perturb(stated.squares, squared, rng=rng)


def release_clipped(totals: Raw, mechanism: DiscreteLaplace, *, rng: Randomness) -> int:
    """How many trusted people's values were clipped, with noise of its own: one person moves it by at most 1."""
    return noise.perturb(mechanism, totals.clipped, rng=rng)


# --- reports that are drawn here, for a trial or on trusted people's behalf -------------------------------------------


def levels(
    rows: Rows, columns: Columns, invite: Any, group: str = "trusted", *, local_raw: bool = False, chunk: int = CHUNK
) -> Iterator[Ints]:
    """RAW: the levels of a table's trusted people or, in a trial, of local ones, in parts: a row each."""
    return totals.levels_of(rows, _query(rows, columns, invite, local_raw or group == "local"), group, chunk)


def rounded_cells(rows: Rows, columns: Columns, invite: OnOptions, joint: Joint, *, rng: Randomness) -> Ints:
    """For a trial only: how many local people vote for each cell, by numbers that are rounded here."""
    query = _query(rows, columns, invite, True, joint)
    counts = np.zeros(invite.encoding.size, dtype=np.int64)
    assert isinstance(query.values[0], ByCategory)
    for part in totals.levels_of(rows, query, "local"):
        cells = voted_cells(part[:, 0], query.values[0].stride, joint.steps, rng=rng)
        counts += np.bincount(cells, minlength=len(counts))
    return counts


def lots(shares: Sequence[float], *, rng: Randomness) -> Callable[[int, int], Any]:
    """For a trial only: the phase in which each local person answers, drawn once for every part of the rows, which come
    in the same order every time; a byte a person."""
    ends = np.cumsum(shares)[:-1] / sum(shares)

    @cache
    def phase(part: int, people: int) -> Any:
        return np.searchsorted(ends, rng.words(people) / 2.0**64, side="right").astype(np.uint8)

    return phase


def binned(rows: Rows, columns: Columns, invite: OnNumber, people: int) -> Any:
    """The local reports by public bins, or the answers within an invitation's windows, after `read` checked them."""
    query = _query(rows, columns, invite, local_raw=False)
    return by_window(counting.report_counts(rows, query, invite_bins(invite), people), invite)


def count_between(
    rows: Rows,
    columns: Columns,
    invite: OnNumber,
    places: Sequence[float],
    stated: CountNoise,
    people: int,
    *,
    local_raw: bool,
    rng: Randomness,
) -> NoisyCounts:
    """How many trusted people lie at or below each of the places (0 to 1 of the range), with the stated noise."""
    raw = counting.stretch_counts(rows, _query(rows, columns, invite, local_raw), _cuts(places), people)
    return release_counts(Raw(people, raw), stated, rng=rng)


def _cuts(places: Sequence[float]) -> list[int]:
    return [math.floor(place * LEVELS + 0.5) for place in places]  # as values are rounded: whoever is at a place counts


def count_answers(
    answers: TrustedAnswers, bounds: Bounds, places: Sequence[float], stated: CountNoise, *, rng: Randomness
) -> NoisyCounts:
    """The same of the answers that a service keeps."""
    cuts = _cuts(places)
    raw = np.zeros(len(cuts) + 1, dtype=np.int64)
    for values in map(as_numbers, answers):
        raw += np.bincount(np.searchsorted(cuts, bounds.levels(values[:, 0])), minlength=len(raw))
    return release_counts(Raw(int(raw.sum()), raw), stated, rng=rng)
