"""Where trusted people's rows come from: a table (`open_rows`) or a service's sealed answers (`Answers`).

The one door to tables for everyone else, with what may be read of them that is public: who trusts, groups and epsilons,
reports and how they were made.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, OtherMechanism, UnusablePublicRows, UnusableRows, must
from hybridp.noise.additive import additive
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import BATCH, MECHANISM, SlotReports, reports_digest
from hybridp.public.study.basics import LOCAL, TRUSTED, Trusts, label_column, rule_of
from hybridp.randomness import Randomness
from hybridp.tables import sql
from hybridp.tables.engine import answers, arrays, fresh, keep, local_copy, stream
from hybridp.tables.query import Query
from hybridp.tables.source import CHOICES, ENGINES, NUMBERS, TABLES, Rows, Source, TableLike, open_rows, shown, unstated
from hybridp.tables.sql import VIEW, Columns, column, labelled, local_rows, named_mechanism, number_of, select, text
from hybridp.tables.totals import count_groups

__all__ = ["Answers", "CHOICES", "Columns", "Counted", "ENGINES", "NUMBERS", "Raw", "Rows", "Source", "TABLES"]
__all__ += ["TableLike", "TrustedAnswers", "all_empty", "as_numbers", "asks", "batch_digest", "batch_names"]
__all__ += ["check_answers", "check_batches", "check_mechanism", "count_people", "count_rows", "epsilon_counts"]
__all__ += ["group_sizes", "grouped", "local_numbers", "local_rows", "must_be_public", "must_not_ask"]
__all__ += ["must_read_again", "named_mechanism", "noisy_sums", "number_column", "open_rows", "read_as"]
__all__ += ["read_mechanism", "read_slots", "rows_of", "shown", "sizes_of", "slot_counts", "slots_told", "unstated"]
__all__ += ["with_public"]


TrustedAnswers = Iterable[NDArray[np.int64]]
"""RAW: trusted people's answers, some people at a time, one row a person: options by their places, ticks as bits, or
numbers in the same bytes (`as_numbers`)."""


def as_numbers(rows: NDArray[np.int64]) -> NDArray[np.float64]:
    return np.ascontiguousarray(rows).view(np.float64)


class Answers(TrustedAnswers, Protocol):
    """RAW: trusted people's answers as a service keeps them, unsealed some at a time, in bounded memory.

    Whoever stores them hands them over here; only this room adds them up, and its sums leave it with noise.
    """

    def by_epsilon(self) -> Iterator[tuple[float, NDArray[np.float64]]]:
        """Some people's numbers, all of them with one epsilon of their own."""
        ...

    def records(self) -> Iterator[list[tuple[str, ...]]]:
        """Some people's records, one of each."""
        ...


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Raw:
    """RAW: exact sums over the trusted people, beside what local people sent. Never leaves this room.

    `trusted` sums up what everybody's answer counts for: a number's steps, those of each column, or one count an option
    (a person counts for `steps`, all in one place unless their vote is divided). Who is left out without a value
    stands in the middle, and `answered` counts the others. `digest` names the set of reports; `simulated_reports` and
    `assumed` say whether a program drew some, and whether they name no mechanism. In a trial `held` is what local
    people hold. With own `epsilons` there is one entry for each of them, ascending.
    """

    trusted_people: Any
    trusted: Any
    local: Any = None
    simulated_reports: bool = False
    assumed: bool = False
    digest: str | None = None
    squares: Any = 0
    clipped: int = 0
    answered: int | None = None
    steps: int = 1
    held: Any = None
    epsilons: Any = None
    notes: tuple[str, ...] = ()

    @property
    def local_people(self) -> int:
        """Who reported, or in a trial of codes holds some."""
        return int(getattr(self.held if self.local is None else self.local, "people", 0))

    def plus(self, other: Raw) -> Raw:
        """RAW: what is needed of the people in both."""
        people, squares = self.trusted_people + other.trusted_people, self.squares + other.squares
        return replace(self, trusted_people=people, trusted=self.trusted + other.trusted, squares=squares)


# --- noise, and what is public ----------------------------------------------------------------------------------------


def noisy_sums(
    sums: Iterable[int], mechanism: DiscreteLaplace | DiscreteGaussian, *, rng: Randomness
) -> tuple[int, ...]:
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


def asks(data: TableLike | None) -> bool:
    """Whether the rows are the answer to a query: who is in it, and what is called what, may be by people's values."""
    return isinstance(data, Source) and data.query is not None


def with_public(data: TableLike | None, public: tuple[str, ...]) -> Any:
    """The rows with the columns that a study declares public: it states them, and nobody else does."""
    if data is None or not (public or isinstance(data, Source)):
        return data
    source = data if isinstance(data, Source) else Source(data)
    rule = "must be left out here, where the study states it (people.public)"
    must(source.public in ((), public), "public", rule, ", ".join(source.public))
    return replace(source, public=public)


def must_be_public(data: TableLike, option: str, column: str) -> None:
    """Refuse to publish exactly who holds what in a column, unless it is declared public. No row is read for it."""
    if not isinstance(data, Source) or column not in data.public:
        raise InvalidInput(
            f"`{option}` must be declared public, as how many people hold what in it is told exactly: add it to "
            f"people.public, or --public {column}, if everybody may know it (`Source(data, public=...)` in Python). "
            f"Got `{column}`, which is not."
        )


def must_not_ask(
    data: TableLike | None,
    where: str = "trusted people are charged nothing",
    instead: str = "Make a table of its answer first, of reports alone",
) -> None:
    """Refuse rows that are the answer to a query, which anybody's value can make fail, where nobody pays for that."""
    if asks(data):
        raise InvalidInput(
            f"`query` must be left out where {where}: whom it leaves would tell of people's rows for free. "
            f"{instead}. Got one."
        )


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
        _, local = count_groups(rows, Query(values=(), trust=label, person=person))
        if any(name not in rows.columns for names in (*reports.values(), (column_of,)) for name in names):
            if local:
                raise UnusablePublicRows(
                    f"{local_rows(label)}, and no column `{column_of}` names the one question that each of them drew: "
                    "make their reports with `hybridp randomise`, or add --simulate-local for a trial on raw rows."
                )
            return dict.fromkeys(reports, 0)
        said = [labelled(column(column_of), name) for name in reports]
        outputs = {"named": sql.count_if(" OR ".join(said))}
        for i, (one, columns) in enumerate(zip(said, reports.values(), strict=True)):
            outputs[f"answered{i}"] = sql.count_if(one)
            if columns:
                empty = " AND ".join(f"{column(name)} IS NULL" for name in columns)
                outputs[f"astray{i}"] = sql.count_if(f"COALESCE({one}, FALSE) = ({empty})")
        (result,) = answers(rows, select(outputs, VIEW, sql.of_local(label)))
    if int(result["named"] or 0) != local:
        raise UnusablePublicRows(
            f"Column `{column_of}` must name one of the questions in every local row, as `hybridp randomise` writes "
            "it: every local person answers one drawn question."
        )
    for i, columns in enumerate(reports.values()):
        if result.get(f"astray{i}"):
            raise UnusablePublicRows(
                f"Column `{columns[0]}` must hold a report where `{column_of}` names its question, and nothing in any "
                "other local row: a person answers one question with the whole promise."
            )
    return {name: int(result[f"answered{i}"] or 0) for i, name in enumerate(reports)}


Levels = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass(frozen=True, eq=False, slots=True)
class Counted:
    """The people of both groups; with own epsilons, each group's different ones and how many people have each."""

    trusted: int
    local: int
    epsilons: tuple[Levels, Levels] | None = None


def _counted(rows: Rows, fields: Mapping[str, str], person: str | None = None, more: str = "") -> list[dict[str, Any]]:
    """How many people (rows, without `person`) there are of each kind by these fields."""
    many = "COUNT(*)"
    if person is not None:
        rows.need("person", person)
        many = f"COUNT(DISTINCT {column(person)})"
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
        fields["asked"] = f"CASE WHEN ABS({own}) < {sql.INFINITY} THEN {own} ELSE {sql.double(0.0)} END"
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
    rule = rule_of(trust)
    for option, named in (("trust", None if rule is None else rule.column), ("epsilon-column", epsilon)):
        if named is not None:
            must_be_public(data, option, named)
    with open_rows(data, table=table, trust=trust, person=person) as rows:
        for question, columns in answers.items():
            for name in columns:
                rows.need(f"{question}.column", name)
        return count_rows(rows, label_column(trust), person, epsilon)


def epsilon_counts(rows: Rows, epsilon: str) -> Levels:
    """The distinct epsilons of a column and how many rows have each: what a plan needs, and no value."""
    rows.need("epsilon-column", epsilon)
    groups = _counted(rows, {"asked": number_of(rows, epsilon)})
    if not all(group["asked"] is not None and group["asked"] >= 0 for group in groups):
        raise UnusablePublicRows(f"Column `{epsilon}` must hold an epsilon of 0 or more for every person.")
    return _levels(groups)


def number_column(rows: Rows, name: str) -> NDArray[np.float64]:
    """A column of numbers, none of them missing. For public figures: nothing is protected here."""
    rows.need("count-column", name)
    rows = local_copy(rows, [name])
    result = np.ma.filled(arrays(rows, select({"value": number_of(rows, name)}, VIEW))["value"], np.nan)
    if not bool(np.isfinite(result).all()):
        raise UnusableRows(f"Column `{name}` must hold a finite number in every row.")
    return np.asarray(result, dtype=np.float64)


# --- by public group --------------------------------------------------------------------------------------------------
# Who is in which group is known to all, so that a rule on it may refuse. The columns of a release are kept once,
# with everybody's group as text; the rows of one group are then rows like any others.

MOST_GROUPS = 500
_GROUP = "group of the person"


def _kept_by_group(rows: Rows, by: str, columns: Iterable[str | None]) -> Rows:
    """These columns of all rows, those that there are, kept with everybody's group while the rows are open."""
    rows.need("by", by)
    if rows.columns[by] in ("FLOAT", "DOUBLE"):  # their text differs between engines
        raise UnusablePublicRows(f"Column `{by}` must hold text or whole numbers to name a group.")
    wanted = {name: rows.columns[name] for name in dict.fromkeys(columns) if name is not None and name in rows.columns}
    table, rows = fresh("grouped"), local_copy(rows, [*wanted, by])
    keep(rows, table, select(sql.chosen(wanted) | {_GROUP: text(column(by))}, VIEW))
    result = {**wanted, _GROUP: "VARCHAR"}
    return replace(rows, columns=MappingProxyType(result), part=select(sql.chosen(result), table))


def grouped(rows: Rows, by: str, columns: Columns, ways: str, missing: object) -> Rows:
    """The columns of a release, kept beside everybody's group; `ways` says how one may state what is `missing`."""
    (value,) = columns.names
    rows.need("column", value)
    if rows.trust is None or rows.trust.everyone != "local":
        rows.need_missing(value, missing, ways)
    report = columns.report
    beside = () if report is None else (report, f"{report}_mechanism", f"{report}_batch")
    own = (value, label_column(columns.trust), columns.person, columns.record_key, columns.record_id)
    return _kept_by_group(rows, by, (*own, *beside))


def rows_of(kept: Rows, groups: Iterable[str]) -> Rows:
    """The rows of people in one of these groups."""
    return replace(kept, part=f"{kept.part} WHERE {sql.is_one_of(column(_GROUP), groups)}")


def sizes_of(kept: Rows, by: str, trust: str, person: str | None) -> dict[str, tuple[int, int]]:
    """How many trusted and local people each group has, in the order of the names. Everybody is in one group."""
    group, trusted = column(_GROUP), labelled(column(trust), TRUSTED)
    if person is not None:
        kept.need("person", person)
        each = select({"many": f"COUNT(DISTINCT {group})"}, VIEW, f"GROUP BY {column(person)}")
        (result,) = answers(kept, f"SELECT MAX(many) AS most FROM ({each}) AS groups")
        if (result["most"] or 0) > 1:
            raise UnusablePublicRows(f"Column `{by}` must hold one group for each person, not several.")
    sizes: dict[Any, list[int]] = {}
    for row in _counted(kept, {"name": group, "trusted": trusted}, person, f"LIMIT {2 * MOST_GROUPS + 3}"):
        sizes.setdefault(row["name"], [0, 0])[0 if row["trusted"] else 1] += int(row["people"])
    if None in sizes or "" in sizes:
        raise UnusablePublicRows(f"Column `{by}` must name a group in every row.")
    if len(sizes) > MOST_GROUPS:
        raise UnusablePublicRows(f"Column `{by}` must hold at most {MOST_GROUPS} different groups: merge some first.")
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
        if slot is None or not 0 <= slot < slots or slot != int(slot):
            rule = f"must hold the number of a slot of the invitation, 0 to {slots - 1}"
            raise UnusablePublicRows(f"Column `{name}` {rule}.")
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
    return Raw(0, None, SlotReports(people, counts), bool(says), assumed, digest)


def check_mechanism(rows: Rows, trust: str | None, mechanism_column: str, real: str) -> bool | None:
    """Refuse reports that say they were made by another mechanism; True when some say that they were simulated.

    Without `trust` all rows are local. None for a table without that column, which says nothing (`named_mechanism`).
    """
    if trust is not None:
        rows.need("trust", trust)
    if mechanism_column not in rows.columns:
        return None
    words = {"real": real, "simulated": f"{real}{_SIMULATED}"}
    asked = {name: sql.count_if(labelled(column(mechanism_column), word)) for name, word in words.items()}
    (result,) = answers(rows, select({"local": "COUNT(*)", **asked}, VIEW, sql.of_local(trust)))
    if (result["real"] or 0) + (result["simulated"] or 0) != result["local"]:
        raise OtherMechanism(f"Column `{mechanism_column}` must name the mechanism {real} in every local row.")
    return bool(result["simulated"])


def local_numbers(rows: Rows, names: tuple[str, ...], trust: str | None, chunk: int) -> Iterator[Any]:
    """Local rows' reports (those of all rows without `trust`) as masked doubles, a row each, some at a time; text that
    is no number is refused."""
    fields: dict[str, str] = {}
    for i, name in enumerate(names):
        rows.need("report", name)
        rows.need_number(name, text=True)
        value = number_of(rows, name)
        fields |= {f"n{i}": value, f"text{i}": sql.not_a_number(column(name), value)}
    rows = local_copy(rows, [*names, trust])
    for part in stream(rows, select(fields, VIEW, sql.of_local(trust)), chunk):
        for i, name in enumerate(names):
            if bool(np.any(part[f"text{i}"])):
                raise UnusableRows(f"Column `{name}` must hold numbers.")
        yield np.ma.stack([np.ma.asarray(part[f"n{i}"], dtype=np.float64) for i in range(len(names))], axis=1)


def read_mechanism(rows: Rows, where: Columns) -> tuple[str | None, bool]:
    """The text of the one mechanism that reports name (None without reports), and whether some say SIMULATED."""
    label = label_column(where.trust)
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
    if len(result) > _MOST_BATCHES:
        raise UnusablePublicRows(f"Column `{batch}` must hold at most {_MOST_BATCHES:,} different names.")
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
