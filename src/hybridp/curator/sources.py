"""Where trusted people's rows come from: a table (`open_rows`) or a service's sealed answers (`Answers`).

The one door to tables for everyone else, with what may be read of them that is public.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, UnusablePublicRows, UnusableRows, must
from hybridp.noise.additive import additive
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import BATCH, MECHANISM, SlotReports, reports_digest
from hybridp.public.trust import Trusts, label_column, rule_of
from hybridp.randomness import Randomness
from hybridp.tables.columns import (
    Counted,
    all_empty,
    epsilon_counts,
    kept_by_group,
    local_numbers,
    number_column,
    only_texts,
    rows_of,
    slot_counts,
)
from hybridp.tables.columns import count_people as count_rows
from hybridp.tables.columns import group_sizes as sizes_of
from hybridp.tables.frames import read_once
from hybridp.tables.reports import check_one_answer
from hybridp.tables.source import CHOICES, ENGINES, NUMBERS, TABLES, Rows, Source, TableLike, open_rows, shown, unstated
from hybridp.tables.sql import Columns, local_rows, named_mechanism

__all__ = ["Answers", "CHOICES", "Columns", "Counted", "ENGINES", "TrustedAnswers", "NUMBERS", "Raw"]
__all__ += ["Rows", "Source", "TABLES", "TableLike", "asks", "check_answers"]
__all__ += ["chosen_by", "count_people", "count_rows", "epsilon_counts", "group_sizes", "grouped", "local_rows"]
__all__ += ["must_be_public", "must_not_ask", "must_read_again", "noisy_sums", "number_column", "open_rows"]
__all__ += ["local_numbers", "read_as", "rows_of", "shown", "sizes_of", "unstated", "with_public"]
__all__ += ["Sent", "all_empty", "batch_digest", "batch_names", "check_batches", "read_mechanism", "read_slots"]
__all__ += ["slot_counts", "slots_told"]


class TrustedAnswers(Protocol):
    """RAW: trusted people's numbers and options, some people at a time."""

    def numbers(self, width: int = 1) -> Iterator[NDArray[np.float64]]:
        """Some people's numbers: one row a person, `width` columns."""
        ...

    def codes(self, width: int = 1) -> Iterator[NDArray[np.int64]]:
        """Some people's options by their places, or their ticks as bits: one row a person, `width` columns."""
        ...


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
    stands in the middle, and `answered` counts the others. In a trial `held` is what local people hold. With own
    `epsilons` there is one entry for each of them, ascending.
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
    must(times == 1 or not read_once(held), "data", "must be a table for several questions", "a stream: read it whole")


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


def chosen_by(data: TableLike, table: str | None = None, trust: Trusts | None = None) -> str:
    """A digest of how rows are chosen: by which query, from which table, by which rule of trust. Nothing of what they
    hold is in it: whoever has it could try whether somebody's row was there.
    """
    rule, query = rule_of(trust), data.query if isinstance(data, Source) else None
    words = None if rule is None else (rule.column, rule.trusted, rule.local, rule.everyone, rule.trial_opt_in)
    return hashlib.sha256(json.dumps([query, table, words]).encode()).hexdigest()[:16]


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


def check_answers(
    data: TableLike, trust: Trusts, person: str | None, column: str, reports: Mapping[str, tuple[str, ...]], *,
    table: str | None = None,
) -> dict[str, int]:  # fmt: skip
    """Refuse reports by which a local person answered another question than the one drawn, or several: all public.

    Gives how many people drew each question.
    """
    with open_rows(data, table=table, trust=trust, person=person) as rows:
        return check_one_answer(rows, label_column(trust), person, column, reports)


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
    for option, column in (("trust", None if rule is None else rule.column), ("epsilon-column", epsilon)):
        if column is not None:
            must_be_public(data, option, column)
    with open_rows(data, table=table, trust=trust, person=person) as rows:
        for question, columns in answers.items():
            for name in columns:
                rows.need(f"{question}.column", name)
        return count_rows(rows, label_column(trust), person, epsilon)


# --- by public group --------------------------------------------------------------------------------------------------


def grouped(rows: Rows, by: str, columns: Columns, ways: str, missing: object) -> Rows:
    """The columns of a release, kept beside everybody's group; `ways` says how one may state what is `missing`."""
    (value,) = columns.names
    rows.need("column", value)
    if rows.trust is None or rows.trust.everyone != "local":
        rows.need_missing(value, missing, ways)
    report = columns.report
    beside = () if report is None else (report, f"{report}_mechanism", f"{report}_batch")
    own = (value, label_column(columns.trust), columns.person, columns.record_key, columns.record_id)
    return kept_by_group(rows, by, (*own, *beside))


def group_sizes(
    data: TableLike, by: str, trust: Trusts, person: str | None, *, table: str | None = None
) -> dict[str, tuple[int, int]]:
    """How many trusted and local people each group of a table has, for a plan: public, as who trusts is. No value of
    anybody is read."""
    label = label_column(trust)
    must_be_public(data, "by", by)
    with open_rows(data, table=table, trust=trust, person=person) as rows:
        return sizes_of(kept_by_group(rows, by, (label, person)), by, label, person)


# --- files of reports: private already, and read before a charge ------------------------------------------------------

_MOST_BATCHES = 100_000
_SIMULATED = " SIMULATED"


class Sent(NamedTuple):
    """Reports, added up, and what they say of themselves: whether a program drew them, and whether their mechanism is
    only assumed; `digest` names the set of them."""

    reports: Any
    simulated: bool = False
    assumed: bool = False
    digest: str | None = None


def read_slots(path: TableLike, mechanism: str, slots: int, *, table: str | None = None, assume: bool = False) -> Sent:
    """How many reports of a file name each slot, by the mechanism with this text, which they must name unless it is
    assumed.

    Counts alone cannot tell two sets of reports apart, so that the digest also holds the random names of the batches
    that devices write beside them.
    """
    with open_rows(path, table=table) as rows:
        return slots_told(rows, mechanism, slots, assume=assume)


def slots_told(rows: Rows, mechanism: str, slots: int, *, assume: bool = False) -> Sent:
    """The same of rows."""
    named = MECHANISM in rows.columns
    simulated = f"{mechanism}{_SIMULATED}"
    marks = only_texts(rows, MECHANISM, (mechanism, simulated)) if named else set()
    counts = slot_counts(rows, "report", slots)
    batches = batch_names(rows, BATCH)
    assumed = named_mechanism(MECHANISM, named or None, int(counts.sum()), assume=assume)
    return Sent(
        SlotReports(int(counts.sum()), counts),
        simulated in marks,
        assumed,
        reports_digest(mechanism, counts.tolist(), batches),
    )


# --- reports on numbers, some rows at a time --------------------------------------------------------------------------


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
