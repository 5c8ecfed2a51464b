"""Categorical columns, and numbers cut into bins, as codes by the public schema.

The codes are a function of one row and the schema, never of the other rows, and every field has one: a number outside
the edges is in the nearest bin, and whatever else the schema does not list, or is missing, counts as the value that the
feature declares (`check_declared`), else as its last one. Nothing but a type and a declaration is refused, because a
refusal would be an answer.
"""

from __future__ import annotations

from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import UnusablePublicRows
from hybridp.public.queries import SEPARATOR, Feature, Schema
from hybridp.tables.engine import answers, arrays
from hybridp.tables.source import CHOICES, TABLES, VIEW, Rows, unstated
from hybridp.tables.sql import cast, code_of, column, double, exp, is_missing, labelled, named, number, whole

__all__ = ["check_declared", "check_feature", "check_schema", "codes", "domain", "feature_code"]


def codes(rows: Rows, schema: Schema, *, trust: str | None = None, label: str = "trusted") -> NDArray[np.uint16]:
    """The codes of every row, one array for each feature, in one pass over the table.

    With `trust`, those of the rows with this label alone.
    """
    check_schema(rows, schema)
    query = exp.select(*(named(feature_code(rows, f), f"c{i}") for i, f in enumerate(schema.features))).from_(VIEW)
    if trust is not None:
        query = query.where(labelled(column(trust), label))
    found = arrays(rows, query)
    out = np.empty((len(schema.features), len(found["c0"])), dtype=np.uint16)
    for i in range(len(schema.features)):
        out[i] = np.asarray(found[f"c{i}"])
    return out


def domain(rows: Rows, name: str, most: int) -> list[str | None]:
    """NOT PRIVATE: the distinct values of a column as text, in no order; a few more than `most` at the most."""
    rows.need("columns", name)
    query = exp.select(named(cast(column(name), "text"), "v")).distinct().from_(VIEW).limit(most + 2)
    return [row["v"] for row in answers(rows, query)]


def check_feature(rows: Rows, feature: Feature) -> None:
    """Refuse a column of options, or of a number in bins, that may lack some while nobody said what that means."""
    stated = feature.absent or feature.missing or feature.most or None
    if feature.edges:
        rows.need_number(feature.name)
    if not feature.most:
        rows.need_missing(feature.name, stated, CHOICES)


def check_declared(rows: Rows, schema: Schema) -> None:
    """Refuse a table's column of which nobody said what a field counts as that is missing or not listed.

    A type with a number in every row needs no word where numbers are cut into bins: each of them is in one.
    """
    for feature in schema.features:
        rows.need("columns", feature.name)
        if feature.edges:
            rows.need_missing(feature.name, feature.stated or None, TABLES)
        elif not feature.stated:
            raise rows.unread(unstated(feature.name, TABLES))


def check_schema(rows: Rows, schema: Schema) -> None:
    """Refuse columns whose types have no codes."""
    for feature in schema.features:
        rows.need("columns", feature.name)
        if feature.edges:
            rows.need_number(feature.name)
        # The text of a double differs between engines, and with it the category.
        if not feature.edges and rows.columns[feature.name] in ("FLOAT", "DOUBLE"):
            raise UnusablePublicRows(f"Column `{feature.name}` must hold text or whole numbers, or be cut into bins.")


def _ticked(raw: Any, feature: Feature) -> Any:
    """The values that a field lists, as bits of a number, the first value's lowest; what is not listed is left out."""

    def joined(*parts: Any) -> Any:
        return reduce(lambda a, b: exp.DPipe(this=a, expression=b), parts)

    mark = exp.Literal.string(SEPARATOR)
    text: Any = exp.Coalesce(this=cast(raw, "text"), expressions=[exp.Literal.string("")])
    for spaced in (f"{SEPARATOR} ", f" {SEPARATOR}"):
        text = exp.Replace(this=text, expression=exp.Literal.string(spaced), replacement=mark.copy())
    text = joined(mark, exp.Trim(this=text), mark.copy())
    bits: list[Any] = []
    for i, value in enumerate(feature.values):
        listed = exp.StrPosition(this=text.copy(), substr=exp.Literal.string(f"{SEPARATOR}{value}{SEPARATOR}"))
        there = exp.GT(this=listed, expression=exp.Literal.number(0))
        bits.append(exp.Case().when(there, cast(whole(1 << i), "bigint")).else_(cast(whole(0), "bigint")))
    return cast(exp.paren(reduce(lambda a, b: exp.Add(this=a, expression=b), bits)), "bigint")


def feature_code(rows: Rows, feature: Feature, field: Any = None) -> Any:
    """The code of one field (the feature's column unless given): of every field, whatever it holds."""
    raw = column(feature.name) if field is None else field
    if feature.most:
        return _ticked(raw, feature)
    case: Any = exp.Case()
    if feature.edges:
        value = number(raw, is_text=rows.is_text(feature.name), decimal=rows.decimal)
        inner = feature.edges[1:-1]
        for i, edge in enumerate(inner):
            case = case.when(exp.LT(this=value.copy(), expression=double(edge)), whole(i))
        # NaN is above infinity on every engine: it is no number, and falls through.
        case = case.when(exp.LTE(this=value.copy(), expression=double(float("inf"))), whole(len(inner)))
    else:
        place = code_of(cast(raw, "text"), tuple(feature.values[: feature.size - feature.missing]))
        case = case.when(exp.not_(is_missing(place)), cast(place.copy(), "bigint"))
    last = feature.size - 1
    absent = last if feature.absent is None else feature.values.index(feature.absent)
    if feature.missing and absent != last:  # what is not listed is the last, what is not there another
        case = case.when(exp.not_(is_missing(raw.copy())), whole(last))
    return cast(case.else_(whole(absent)), "int")
