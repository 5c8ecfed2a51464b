"""How many people are in each group: public under replacement, and all that a plan reads of a table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.tables.engine import arrays
from hybridp.tables.labels import unlabelled
from hybridp.tables.source import VIEW, Rows

__all__ = ["Counted", "count_people"]

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
