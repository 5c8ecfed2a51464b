"""Columns of public facts, such as who trusts, of reports and how they were made, and of codes by a public schema."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import OtherMechanism, UnusablePublicRows, UnusableRows
from hybridp.public.queries import Schema
from hybridp.public.trust import LOCAL, TRUSTED
from hybridp.tables.engine import answers, arrays, fresh, keep, local_copy, stream
from hybridp.tables.source import TABLES, Rows, unstated
from hybridp.tables.sql import (
    VIEW,
    chosen,
    column,
    count_if,
    feature_code,
    is_one_of,
    labelled,
    not_a_number,
    number_of,
    of_local,
    select,
    text,
)

__all__ = ["Counted", "all_empty", "check_mechanism", "check_schema", "codes", "count_people", "domain"]
__all__ += ["epsilon_counts", "group_sizes", "kept_by_group", "local_numbers", "local_texts", "number_column"]
__all__ += ["only_texts", "rows_of", "slot_counts"]


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


def local_texts(rows: Rows, name: str, trust: str | None, chunk: int) -> Iterator[list[str | None]]:
    """The texts of local rows' reports (of all rows without `trust`), some at a time."""
    rows.need("report", name)
    rows = local_copy(rows, [name, trust])
    for part in stream(rows, select({"sent": text(column(name))}, VIEW, of_local(trust)), chunk):
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
    rows = local_copy(rows, [*names, trust])
    for part in stream(rows, select(fields, VIEW, of_local(trust)), chunk):
        for i, name in enumerate(names):
            if bool(np.any(part[f"text{i}"])):
                raise UnusableRows(f"Column `{name}` must hold numbers.")
        yield {name: np.ma.asarray(part[f"n{i}"], dtype=np.float64).copy() for i, name in enumerate(names)}


def all_empty(rows: Rows, names: tuple[str, ...]) -> bool:
    """Whether these columns, as far as the table has them, hold nothing in any row."""
    here = [f"NULLIF({text(column(name))}, '')" for name in names if name in rows.columns]
    some = f"SELECT 1 AS filled FROM {VIEW} WHERE NOT COALESCE({', '.join(here)}) IS NULL LIMIT 1"
    return not here or len(arrays(rows, some)["filled"]) == 0


def only_texts(rows: Rows, name: str, allowed: tuple[str, ...]) -> set[str]:
    """Which of the allowed texts a column holds; any other is refused, and not repeated. For what is public."""
    texts = set(rows.texts(name, len(allowed) + 1))
    if not texts <= set(allowed):
        raise UnusablePublicRows(f"Column `{name}` must hold `{allowed[0]}` in every row.")
    return texts


# --- rows by a public group ------------------------------------------------------------------------------------------
# Who is in which group is known to all, so that a rule on it may refuse. The columns of a release are kept once,
# with everybody's group as text; the rows of one group are then rows like any others.

MOST_GROUPS = 500
_GROUP = "group of the person"


def kept_by_group(rows: Rows, by: str, columns: Iterable[str | None]) -> Rows:
    """These columns of all rows, those that there are, kept by the engine with everybody's group beside them.

    They are kept as long as the rows are open.
    """
    rows.need("by", by)
    if rows.columns[by] in ("FLOAT", "DOUBLE"):  # their text differs between engines
        raise UnusablePublicRows(f"Column `{by}` must hold text or whole numbers to name a group.")
    wanted = {name: rows.columns[name] for name in dict.fromkeys(columns) if name is not None and name in rows.columns}
    table, rows = fresh("grouped"), local_copy(rows, [*wanted, by])
    keep(rows, table, select(chosen(wanted) | {_GROUP: text(column(by))}, VIEW))
    result = {**wanted, _GROUP: "VARCHAR"}
    return replace(rows, columns=MappingProxyType(result), part=select(chosen(result), table))


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
        raise rows.unlabelled(trust)
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


def codes(rows: Rows, schema: Schema, *, trust: str | None = None, label: str = "trusted") -> NDArray[np.uint16]:
    """The codes of every row, one array for each feature, in one pass over the table.

    With `trust`, those of the rows with this label alone.
    """
    check_schema(rows, schema, declared=False)
    rows = local_copy(rows, [*schema.names, trust])
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
