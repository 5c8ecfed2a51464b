"""Columns of public facts, such as who trusts, of reports and how they were made, and of codes by a public schema."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import InvalidInput, OtherMechanism, UnusablePublicRows, UnusableRows, must
from hybridp.public.lattice import missing_each
from hybridp.public.queries import Schema
from hybridp.public.trust import LABEL, LOCAL, TRUSTED, TrustRule, Trusts, keyed, label_column, suggestion
from hybridp.randomness import Randomness
from hybridp.tables.engine import answers, arrays, drop, fresh, keep, stream
from hybridp.tables.source import TABLES, Rows, unstated
from hybridp.tables.sql import (
    VIEW,
    chosen,
    column,
    count_if,
    feature_code,
    is_one_of,
    labelled,
    literal,
    not_a_number,
    number_of,
    select,
    text,
)

__all__ = ["Columns", "Counted", "all_empty", "answers_here", "check_mechanism", "check_schema", "check_trust", "codes"]
__all__ += ["count_people", "domain", "drawn_label", "epsilon_counts", "group_sizes", "kept_by_group", "local_numbers"]
__all__ += ["local_rows", "local_texts", "named_mechanism", "number_column", "only_texts", "rows_of", "slot_counts"]
__all__ += ["some_texts", "unlabelled", "worded_label"]


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of the table hold what. Without `person`, every row is a person of their own.

    `value` is the column of one number or option, whose reports are in `report`; or it names several columns, of a
    vector (the report on column `NAME` is in `NAME_report`), of a record, or of a synthetic table, whose columns may
    hold `words`. `missing` says what a value counts as that is missing or no number: a number within the bounds, or
    "middle", for all columns or for each; or, of one number where nobody is local, "exclude": whoever has none is left
    out. It may be left out of a table whose column is declared to hold a number in every row (whole numbers of NumPy),
    and where options state it (`hybridp.choice`).
    """

    value: str | tuple[str, ...]
    trust: Trusts | None
    report: str | None = "report"
    person: str | None = None
    record_key: str | None = None
    record_id: str | None = None
    missing: tuple[float | str, ...] | float | str | None = None
    words: bool = field(default=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.value,) if isinstance(self.value, str) else self.value

    @property
    def label(self) -> str:
        """The column of labels, once the table is open."""
        return label_column(self.trust) or LABEL

    @property
    def order(self) -> str | None:
        """The column that decides which record stands for a person."""
        return self.record_key or self.record_id

    @property
    def reports(self) -> tuple[str, ...]:
        if not (self.words or isinstance(self.value, str)):
            return tuple(f"{name}_report" for name in self.value)
        return () if self.report is None else (self.report,)

    @property
    def mechanism(self) -> str:
        """The column that says how a report was made."""
        return f"{self.report}_mechanism"

    @property
    def reads(self) -> dict[str, tuple[str, ...]]:
        """The columns that must be there and hold numbers, by the option that names them."""
        return {} if self.words else {"column" if isinstance(self.value, str) else "columns": self.names}

    @property
    def absent(self) -> tuple[float | str, ...] | float | str | None:
        """What a missing value counts as, of several columns that of each."""
        return self.missing if isinstance(self.value, str) else missing_each(self.missing, len(self.value))

    def must_count(self, what: str) -> None:
        """Refuse to leave people out where the answer is about everybody."""
        rule = f"must be a number, or middle, for {what}: people without a value cannot be left out of it yet"
        must(self.missing != "exclude", "missing", rule, self.missing)


def number_column(rows: Rows, name: str) -> NDArray[np.float64]:
    """A column of numbers, none of them missing. For public figures: nothing is protected here."""
    rows.need("count-column", name)
    result = arrays(rows, select({"value": number_of(rows, name)}, VIEW))["value"]
    if np.ma.is_masked(result) or not bool(np.isfinite(np.asarray(result, dtype=np.float64)).all()):
        raise UnusableRows(f"Column `{name}` must hold a finite number in every row.")
    return np.asarray(result, dtype=np.float64)


def slot_counts(rows: Rows, name: str, slots: int) -> NDArray[np.int64]:
    """How many reports name each slot. Reports are private already; a number that is no slot is refused."""
    rows.need("report", name)
    value = number_of(rows, name)
    result = arrays(rows, select({"slot": value, "reports": "COUNT(*)"}, VIEW, f"GROUP BY {value}"))
    told = np.ma.filled(np.ma.asarray(result["slot"], dtype=np.float64), np.nan)
    ok = (told >= 0) & (told < slots) & (told == np.floor(told))
    if not bool(ok.all()):
        raise UnusablePublicRows(f"Column `{name}` must hold the number of a slot of the invitation, 0 to {slots - 1}.")
    out = np.zeros(slots, dtype=np.int64)
    out[told.astype(np.int64)] = np.asarray(result["reports"], dtype=np.int64)
    return out


def some_texts(rows: Rows, name: str, most: int, trust: str | None = None) -> list[str]:
    """Up to `most` different texts of a column, in order; a missing one is an empty text. For what is public.

    With `trust`, those of local rows alone.
    """
    query = f"SELECT DISTINCT {text(column(name))} AS told FROM {VIEW} {_of_local(trust)} LIMIT {most}"
    result = np.ma.asarray(arrays(rows, query)["told"], dtype=object).tolist()
    return sorted("" if one is None else str(one) for one in result)


def local_texts(rows: Rows, name: str, trust: str | None, chunk: int) -> Iterator[list[str | None]]:
    """The texts of local rows' reports (of all rows without `trust`), some at a time."""
    rows.need("report", name)
    for part in stream(rows, select({"sent": text(column(name))}, VIEW, _of_local(trust)), chunk):
        yield np.ma.asarray(part["sent"], dtype=object).tolist()


def local_numbers(rows: Rows, names: tuple[str, ...], trust: str | None, chunk: int) -> Iterator[dict[str, Any]]:
    """The same of several columns as masked doubles; text that is no number is refused."""
    fields: dict[str, str] = {}
    for i, name in enumerate(names):
        rows.need("report", name)
        if not (rows.is_number(name) or rows.is_text(name)):
            raise UnusableRows(f"Column `{name}` must hold numbers; its type is {rows.columns[name]}.")
        value = number_of(rows, name)
        fields |= {f"n{i}": value, f"text{i}": not_a_number(column(name), value)}
    for part in stream(rows, select(fields, VIEW, _of_local(trust)), chunk):
        for i, name in enumerate(names):
            if bool(np.any(part[f"text{i}"])):
                raise UnusableRows(f"Column `{name}` must hold numbers.")
        yield {name: np.ma.asarray(part[f"n{i}"], dtype=np.float64).copy() for i, name in enumerate(names)}


def _of_local(trust: str | None) -> str:
    return "" if trust is None else f"WHERE {labelled(column(trust), LOCAL)}"


def all_empty(rows: Rows, names: tuple[str, ...]) -> bool:
    """Whether these columns, as far as the table has them, hold nothing in any row."""
    here = [f"NULLIF({text(column(name))}, '')" for name in names if name in rows.columns]
    some = f"SELECT 1 AS filled FROM {VIEW} WHERE NOT COALESCE({', '.join(here)}) IS NULL LIMIT 1"
    return not here or len(arrays(rows, some)["filled"]) == 0


def only_texts(rows: Rows, name: str, allowed: tuple[str, ...]) -> set[str]:
    """Which of the allowed texts a column holds; any other is refused, and not repeated. For what is public."""
    texts = set(some_texts(rows, name, len(allowed) + 1))
    if not texts <= set(allowed):
        raise UnusablePublicRows(f"Column `{name}` must hold `{allowed[0]}` in every row.")
    return texts


# --- labels: `trusted` or `local` for every row, by a rule on words, for everybody alike, or drawn --------------------

_DRAWN = "question drawn"
_DIGITS = 13  # of a hash in hexadecimal: a share is drawn to 2^-52


def worded_label(trust: TrustRule) -> str:
    """`trusted` for its words alone; any other is local, or no label where the words for local are listed too."""
    words = text(column(trust.column or ""))
    other = f"WHEN {is_one_of(words, trust.local)} THEN '{LOCAL}'" if trust.local else f"ELSE '{LOCAL}'"
    return f"CASE WHEN {is_one_of(words, trust.trusted)} THEN '{TRUSTED}' {other} END"


def drawn_label(trust: TrustRule, person: str | None, rng: Randomness | None, dialect: str) -> str:
    """The same label for everybody; or, for a trial, one that is drawn for every person or, without names, every row.

    The draw is a hash of the person's name, or of the row's place, with a key of 128 random bits: whatever the row
    holds.
    """
    if trust.trial_opt_in is None:
        return literal(trust.everyone or LOCAL)
    key = trust.key
    if key is None:
        if rng is None:
            raise InvalidInput("`rng` must be given to draw who trusts. Got None.")
        key = keyed(trust, rng.words(2).tolist()).key
    drawn = _hashed(key or "", person, dialect, "trial-opt-in", "must go with --person on this engine")
    return f"CASE WHEN {drawn} < '{_digits(trust.trial_opt_in)}' THEN '{TRUSTED}' ELSE '{LOCAL}' END"


def _hashed(key: str, person: str | None, dialect: str, field: str, rule: str) -> str:
    """Some digits of a hash of the person's name, or of the row's place, with a key."""
    if person is None:  # only there the rows have an order that every query sees
        must(dialect == "duckdb", field, rule, dialect)
    who = "ROW_NUMBER() OVER ()" if person is None else column(person)
    return f"SUBSTRING(MD5({literal(f'{key} ')} || {text(who)}), 1, {_DIGITS})"


def _digits(share: float) -> str:
    """The first digits that are not below this share of all hashes."""
    return f"{min(math.ceil(share * 16**_DIGITS), 16**_DIGITS - 1):0{_DIGITS}x}"


def answers_here(trust: TrustRule, person: str | None, dialect: str) -> tuple[dict[str, str], str]:
    """A column to make, and which rows to keep by it: all but local people who answered another question.

    A row without a label stays, to be refused.
    """
    answering = trust.answering
    assert answering is not None
    elsewhere = f"COALESCE({column(trust.label)} <> '{LOCAL}', TRUE)"
    if answering.column is not None:
        return {}, f"{elsewhere} OR {labelled(column(answering.column), answering.question)}"
    rule = "must name a column for a trial of several questions on this engine"
    drawn = _hashed(answering.key or "", person, dialect, "people.column", rule)
    within = [f"{column(_DRAWN)} >= '{_digits(answering.start)}'"] if answering.start > 0 else ["TRUE"]
    within += [f"{column(_DRAWN)} < '{_digits(answering.end)}'"] if answering.end < 1 else []
    return {_DRAWN: drawn}, f"{elsewhere} OR ({' AND '.join(within)})"


def check_trust(rows: Rows, name: str) -> None:
    """Refuse a column that cannot hold the labels."""
    rows.need("trust", name)
    if not rows.is_text(name):
        words = f"Column `{name}` must hold text: `trusted` or `local` in every row."
        known = rows.is_whole(name) or rows.columns[name] == "BOOLEAN"
        raise UnusablePublicRows(words + (suggestion(name, some_texts(rows, name, _MOST)) if known else ""))


_MOST = 9  # words that are looked at: more are no answer to a question of trust


def unlabelled(rows: Rows, name: str) -> UnusablePublicRows:
    """What to say where a row has no label: the choice is public, and so are the words for it."""
    trust = rows.trust
    if trust is not None and trust.local:
        trusted, local = (" or ".join(f"`{word}`" for word in words) for words in (trust.trusted, trust.local))
        return UnusablePublicRows(f"Column `{name}` must hold {trusted} (trusted) or {local} (local) in every row.")
    result = some_texts(rows, name, _MOST)
    hint = "" if {*result} <= {TRUSTED, LOCAL, ""} else suggestion(name, result)
    return UnusablePublicRows(f"Column `{name}` must hold `trusted` or `local` in every row.{hint}")


def local_rows(name: str) -> str:
    """How a message starts that is about local rows.

    >>> local_rows("consent")
    'Column `consent` labels rows `local`'
    """
    return "Rows are local" if name == LABEL else f"Column `{name}` labels rows `local`"


# --- rows by a public group ------------------------------------------------------------------------------------------
# Who is in which group is known to all, so that a rule on it may refuse. The columns of a release are kept once,
# with everybody's group as text; the rows of one group are then rows like any others.

MOST_GROUPS = 500
_GROUP = "group of the person"


@contextmanager
def kept_by_group(rows: Rows, by: str, columns: Iterable[str | None]) -> Iterator[Rows]:
    """These columns of all rows, those that there are, kept by the engine with everybody's group beside them."""
    rows.need("by", by)
    if rows.columns[by] in ("FLOAT", "DOUBLE"):  # their text differs between engines
        raise UnusablePublicRows(f"Column `{by}` must hold text or whole numbers to name a group.")
    wanted = {name: rows.columns[name] for name in dict.fromkeys(columns) if name is not None and name in rows.columns}
    table = fresh("grouped")
    keep(rows, table, select(chosen(wanted) | {_GROUP: text(column(by))}, VIEW))
    try:
        result = {**wanted, _GROUP: "VARCHAR"}
        yield replace(rows, columns=MappingProxyType(result), part=select(chosen(result), table))
    finally:
        drop(rows, table)


def rows_of(kept: Rows, groups: Iterable[str]) -> Rows:
    """The rows of people in one of these groups."""
    return replace(kept, part=f"{kept.part} WHERE {is_one_of(column(_GROUP), groups)}")


def group_sizes(kept: Rows, by: str, trust: str, person: str | None) -> dict[str, tuple[int, int]]:
    """How many trusted and local people each group has, in the order of the names. Everybody is in one group."""
    group, trusted, many = column(_GROUP), labelled(column(trust), TRUSTED), "COUNT(*)"
    if person is not None:
        kept.need("person", person)
        many = f"COUNT(DISTINCT {column(person)})"
        each = select({"many": f"COUNT(DISTINCT {group})"}, VIEW, f"GROUP BY {column(person)}")
        (result,) = answers(kept, f"SELECT MAX(many) AS most FROM ({each}) AS groups")
        if (result["most"] or 0) > 1:
            raise UnusablePublicRows(f"Column `{by}` must hold one group for each person, not several.")
    more = f"GROUP BY {group}, {trusted} LIMIT {2 * MOST_GROUPS + 3}"
    sizes: dict[Any, list[int]] = {}
    for row in answers(kept, select({"name": group, "trusted": trusted, "n": many}, VIEW, more)):
        sizes.setdefault(row["name"], [0, 0])[0 if row["trusted"] else 1] += int(row["n"])
    if None in sizes or "" in sizes:
        raise UnusablePublicRows(f"Column `{by}` must name a group in every row.")
    if len(sizes) > MOST_GROUPS:
        raise UnusablePublicRows(f"Column `{by}` must hold at most {MOST_GROUPS} different groups: merge some first.")
    return {name: (sizes[name][0], sizes[name][1]) for name in sorted(sizes)}


# --- how many people are in each group: public under replacement, and all that a plan reads of a table ----------------

Levels = tuple[NDArray[np.float64], NDArray[np.int64]]


@dataclass(frozen=True, eq=False, slots=True)
class Counted:
    """The people of both groups; with own epsilons, each group's different ones and how many people have each."""

    trusted: int
    local: int
    epsilons: tuple[Levels, Levels] | None = None


def count_people(rows: Rows, trust: str, person: str | None, epsilon: str | None = None) -> Counted:
    """People by their choices; no value of anybody is read. Without `person`, every row is a person of their own."""
    rows.need("trust", trust)
    fields, many = {"label": text(column(trust))}, "COUNT(*)"
    if person is not None:
        rows.need("person", person)
        many = f"COUNT(DISTINCT {column(person)})"
    if epsilon is not None:
        rows.need("epsilon-column", epsilon)
        fields["asked"] = number_of(rows, epsilon)
    result = arrays(rows, select(fields | {"people": many}, VIEW, f"GROUP BY {', '.join(fields.values())}"))
    labels: Any = np.ma.asarray(result["label"], dtype=object).filled("")
    counts = np.asarray(result["people"], dtype=np.int64)
    if not {*labels.tolist()} <= {TRUSTED, LOCAL}:
        raise unlabelled(rows, trust)
    inside = [labels == name for name in (TRUSTED, LOCAL)]
    people = [int(counts[where].sum()) for where in inside]
    if epsilon is None:
        return Counted(people[0], people[1])
    own = np.ma.filled(np.ma.asarray(result["asked"], dtype=np.float64), 0.0)
    own = np.where(np.isfinite(own), own, 0.0)
    trusted, local = ((own[where], counts[where]) for where in inside)
    return Counted(people[0], people[1], (trusted, local))


def epsilon_counts(rows: Rows, epsilon: str) -> Levels:
    """The distinct epsilons of a column and how many rows have each: what a plan needs, and no value."""
    rows.need("epsilon-column", epsilon)
    asked = number_of(rows, epsilon)
    result = arrays(rows, select({"asked": asked, "people": "COUNT(*)"}, VIEW, f"GROUP BY {asked}"))
    values = np.ma.filled(np.ma.asarray(result["asked"], dtype=np.float64), np.nan)
    if not bool((values >= 0).all()):
        raise UnusablePublicRows(f"Column `{epsilon}` must hold an epsilon of 0 or more for every person.")
    order = np.argsort(values)
    return values[order], np.asarray(result["people"], dtype=np.int64)[order]


# --- how reports were made, and whole tables of codes ----------------------------------------------------------------


def check_mechanism(rows: Rows, trust: str, mechanism_column: str, real: str) -> bool | None:
    """Refuse reports that say they were made by another mechanism; True when some say that they were simulated.

    None for a table without that column, which says nothing (see `named_mechanism`).
    """
    rows.need("trust", trust)
    if mechanism_column not in rows.columns:
        return None
    words = {"real": real, "simulated": f"{real} SIMULATED"}
    asked = {name: count_if(labelled(column(mechanism_column), word)) for name, word in words.items()}
    local = f"WHERE {labelled(column(trust), 'local')}"
    (result,) = answers(rows, select({"local": "COUNT(*)", **asked}, VIEW, local))
    if (result["real"] or 0) + (result["simulated"] or 0) != result["local"]:
        raise OtherMechanism(f"Column `{mechanism_column}` must name the mechanism {real} in every local row.")
    return bool(result["simulated"])


def named_mechanism(mechanism_column: str, says: bool | None, people: int, *, assume: bool) -> bool:
    """Refuse reports that name no mechanism, unless it is assumed; True when it is."""
    if says is not None or not people:
        return False
    if not assume:
        raise UnusablePublicRows(
            f"Column `{mechanism_column}` must name the mechanism and the question beside every report, as `hybridp "
            "randomise` writes them; --assume-mechanism takes them at your word, and the receipt will say so."
        )
    return True


def codes(rows: Rows, schema: Schema, *, trust: str | None = None, label: str = "trusted") -> NDArray[np.uint16]:
    """The codes of every row, one array for each feature, in one pass over the table.

    With `trust`, those of the rows with this label alone.
    """
    check_schema(rows, schema, declared=False)
    outputs = {f"c{i}": feature_code(rows, feature) for i, feature in enumerate(schema.features)}
    result = arrays(rows, select(outputs, VIEW, "" if trust is None else f"WHERE {labelled(column(trust), label)}"))
    out = np.empty((len(schema.features), len(result["c0"])), dtype=np.uint16)
    for i in range(len(schema.features)):
        out[i] = np.asarray(result[f"c{i}"])
    return out


def domain(rows: Rows, name: str, most: int) -> list[str | None]:
    """NOT PRIVATE: the distinct values of a column as text, in no order; a few more than `most` at the most."""
    rows.need("columns", name)
    result = answers(rows, f"SELECT DISTINCT {text(column(name))} AS v FROM {VIEW} LIMIT {most + 2}")
    return [row["v"] for row in result]


def check_schema(rows: Rows, schema: Schema, *, declared: bool) -> None:
    """Refuse columns whose types have no codes; and, where it must be `declared`, a column of which nobody said what a
    field counts as that is missing or not listed.

    A type with a number in every row needs no word where numbers are cut into bins: each of them is in one.
    """
    for feature in schema.features:
        rows.need("columns", feature.name)
        if declared and feature.edges:
            rows.need_missing(feature.name, feature.stated or None, TABLES)
        elif declared and not feature.stated:
            raise rows.unread(unstated(feature.name, TABLES))
    for feature in schema.features:
        if feature.edges:
            rows.need_number(feature.name)
        # The text of a double differs between engines, and with it the category.
        elif rows.columns[feature.name] in ("FLOAT", "DOUBLE"):
            raise UnusablePublicRows(f"Column `{feature.name}` must hold text or whole numbers, or be cut into bins.")
