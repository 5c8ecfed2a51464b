"""The queries of a tally: reports as numbers, the texts beside them, and the labels where a file holds both groups."""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from hybridp.tables.source import VIEW, Rows
from hybridp.tables.sql import cast, column, count_if, labelled, named, not_a_number, number

__all__ = ["labels", "reports", "texts"]


def _read(fields: list[Any], trust: str | None) -> exp.Select:
    """The rows labelled `local`; without a column of labels, all."""
    query = exp.select(*fields).from_(VIEW)
    return query if trust is None else query.where(labelled(column(trust), "local"))


def reports(rows: Rows, names: tuple[str, ...], trust: str | None) -> exp.Select:
    """Each column as a number `n0`, `n1`, ..., and whether it holds a text that is none as `text0`, `text1`, ..."""
    fields = []
    for i, name in enumerate(names):
        value = number(column(name), is_text=rows.is_text(name))
        fields += [named(value, f"n{i}"), named(not_a_number(column(name), value), f"text{i}")]
    return _read(fields, trust)


def texts(name: str, trust: str | None, most: int) -> exp.Select:
    """Up to `most` different texts of a column."""
    return _read([named(cast(column(name), "text"), "text")], trust).distinct().limit(most)


def labels(trust: str) -> exp.Select:
    """How many rows there are, and how many are labelled `trusted` or `local`."""
    known = exp.or_(labelled(column(trust), "trusted"), labelled(column(trust), "local"))
    every = named(exp.Count(this=exp.Star()), "every")
    return exp.select(every, named(count_if(exp.paren(known)), "known")).from_(VIEW)
