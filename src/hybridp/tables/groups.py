"""Rows by a public group: who is in which group is known to all, so that a rule on it may refuse.

The columns that a release needs are kept once, with everybody's group as text; the rows of one group are then rows like
any others, and every query about a whole table is a query about a group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import UnusablePublicRows
from hybridp.tables.engine import answers, arrays, drop, fresh, keep
from hybridp.tables.labels import unlabelled
from hybridp.tables.source import VIEW, Rows

__all__ = ["Counted", "count_people", "group_sizes", "kept_by_group", "rows_of"]

MOST_GROUPS = 500
_GROUP = "group of the person"


@contextmanager
def kept_by_group(rows: Rows, by: str, columns: Iterable[str | None]) -> Iterator[Rows]:
    """These columns of all rows, those that there are, kept by the engine with everybody's group beside them."""
    from sqlglot import exp

    from hybridp.tables.sql import cast, column, named

    rows.need("by", by)
    if rows.columns[by] in ("FLOAT", "DOUBLE"):  # their text differs between engines
        raise UnusablePublicRows(f"Column `{by}` must hold text or whole numbers to name a group.")
    wanted = {name: rows.columns[name] for name in dict.fromkeys(columns) if name is not None and name in rows.columns}
    table = fresh("grouped")
    fields = [*(named(column(name), name) for name in wanted), named(cast(column(by), "text"), _GROUP)]
    keep(rows, table, exp.select(*fields).from_(VIEW))
    try:
        every = exp.select(*(named(column(name), name) for name in (*wanted, _GROUP))).from_(exp.to_table(table))
        found = {**wanted, _GROUP: "VARCHAR"}
        yield replace(rows, columns=MappingProxyType(found), part=every.subquery())
    finally:
        drop(rows, table)


def rows_of(kept: Rows, groups: Iterable[str]) -> Rows:
    """The rows of people in one of these groups."""
    from sqlglot import exp

    from hybridp.tables.sql import column

    among: Any = exp.In(this=column(_GROUP), expressions=[exp.Literal.string(name) for name in groups])
    part = kept.part.copy()
    part.set("this", part.this.where(among))
    return replace(kept, part=part)


def group_sizes(kept: Rows, by: str, trust: str, person: str | None) -> dict[str, tuple[int, int]]:
    """How many trusted and local people each group has, in the order of the names. Everybody is in one group."""
    from sqlglot import exp

    from hybridp.tables.sql import column, labelled, named

    group, label = column(_GROUP), column(trust)
    who: Any = exp.Star()
    if person is not None:
        kept.need("person", person)
        who = exp.Distinct(expressions=[column(person)])
        several = exp.Count(this=exp.Distinct(expressions=[group]))
        each = exp.select(named(several, "many")).from_(VIEW).group_by(column(person)).subquery("each")
        (found,) = answers(kept, exp.select(named(exp.Max(this=column("many")), "most")).from_(each))
        if (found["most"] or 0) > 1:
            raise UnusablePublicRows(f"Column `{by}` must hold one group for each person, not several.")
    trusted, many = labelled(label, "trusted"), exp.Count(this=who)
    asked = exp.select(named(group, "name"), named(trusted, "trusted"), named(many, "n")).from_(VIEW)
    sizes: dict[Any, list[int]] = {}
    for row in answers(kept, asked.group_by(group.copy(), trusted.copy()).limit(2 * MOST_GROUPS + 3)):
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
    from sqlglot import exp

    from hybridp.tables.sql import column, named, number

    rows.need("trust", trust)
    many: Any = exp.Count(this=exp.Star())
    if person is not None:
        rows.need("person", person)
        many = exp.Count(this=exp.Distinct(expressions=[column(person)]))
    label = exp.cast(column(trust), "TEXT")
    asked: Any = exp.Literal.number(0)
    keys: list[Any] = [label]
    if epsilon is not None:
        rows.need("epsilon-column", epsilon)
        asked = number(column(epsilon), is_text=rows.is_text(epsilon))
        keys.append(asked)
    query = exp.select(named(label, "label"), named(asked, "asked"), named(many, "people")).from_(VIEW).group_by(*keys)
    found = arrays(rows, query)
    labels: Any = np.ma.asarray(found["label"], dtype=object).filled("")
    counts = np.asarray(found["people"], dtype=np.int64)
    if not {*labels.tolist()} <= {"trusted", "local"}:
        raise unlabelled(rows, trust)
    chosen = np.ma.filled(np.ma.asarray(found["asked"], dtype=np.float64), 0.0)
    inside = [labels == name for name in ("trusted", "local")]
    people = [int(counts[where].sum()) for where in inside]
    if epsilon is None:
        return Counted(people[0], people[1])
    chosen = np.where(np.isfinite(chosen), chosen, 0.0)
    trusted, local = ((chosen[where], counts[where]) for where in inside)
    return Counted(people[0], people[1], (trusted, local))
