"""Categorical columns, and numbers cut into bins, as codes by the public schema.

The codes are a function of one row and the schema, never of the other rows, and every field has one: a number outside
the edges is in the nearest bin, and whatever else the schema does not list, or is missing, counts as the value that the
feature declares (`check_declared`), else as its last one. Nothing but a type and a declaration is refused, because a
refusal would be an answer.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import UnusablePublicRows
from hybridp.public.queries import SEPARATOR, Feature, Schema
from hybridp.tables.engine import answers, arrays
from hybridp.tables.source import CHOICES, TABLES, VIEW, Rows, unstated
from hybridp.tables.sql import INFINITY, code_of, column, double, labelled, literal, number, select, text, whole

__all__ = ["check_declared", "check_feature", "check_schema", "codes", "domain", "feature_code"]


def codes(rows: Rows, schema: Schema, *, trust: str | None = None, label: str = "trusted") -> NDArray[np.uint16]:
    """The codes of every row, one array for each feature, in one pass over the table.

    With `trust`, those of the rows with this label alone.
    """
    check_schema(rows, schema)
    outputs = {f"c{i}": feature_code(rows, feature) for i, feature in enumerate(schema.features)}
    found = arrays(rows, select(outputs, VIEW, "" if trust is None else f"WHERE {labelled(column(trust), label)}"))
    out = np.empty((len(schema.features), len(found["c0"])), dtype=np.uint16)
    for i in range(len(schema.features)):
        out[i] = np.asarray(found[f"c{i}"])
    return out


def domain(rows: Rows, name: str, most: int) -> list[str | None]:
    """NOT PRIVATE: the distinct values of a column as text, in no order; a few more than `most` at the most."""
    rows.need("columns", name)
    found = answers(rows, f"SELECT DISTINCT {text(column(name))} AS v FROM {VIEW} LIMIT {most + 2}")
    return [row["v"] for row in found]


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


def _ticked(raw: str, feature: Feature) -> str:
    """The values that a field lists, as bits of a number, the first value's lowest; what is not listed is left out."""
    mark, listed = literal(SEPARATOR), f"COALESCE({text(raw)}, '')"
    for spaced in (f"{SEPARATOR} ", f" {SEPARATOR}"):
        listed = f"REPLACE({listed}, {literal(spaced)}, {mark})"
    listed = f"{mark} || TRIM({listed}) || {mark}"
    found = [f"STRPOS({listed}, {literal(SEPARATOR + value + SEPARATOR)}) > 0" for value in feature.values]
    bits = (f"CASE WHEN {there} THEN {whole(1 << i)} ELSE {whole(0)} END" for i, there in enumerate(found))
    return f"CAST(({' + '.join(bits)}) AS BIGINT)"


def feature_code(rows: Rows, feature: Feature, field: str | None = None) -> str:
    """The code of one field (the feature's column unless given): of every field, whatever it holds."""
    raw = column(feature.name) if field is None else field
    if feature.most:
        return _ticked(raw, feature)
    if feature.edges:
        value = number(raw, is_text=rows.is_text(feature.name), decimal=rows.decimal)
        inner = feature.edges[1:-1]
        # NaN is above infinity on every engine: it is no number, and falls through.
        ends = {**{i: f"< {double(edge)}" for i, edge in enumerate(inner)}, len(inner): f"<= {INFINITY}"}
        cases = [f"WHEN {value} {end} THEN {whole(i)}" for i, end in ends.items()]
    else:
        place = code_of(text(raw), feature.values[: feature.size - feature.missing])
        cases = [f"WHEN NOT {place} IS NULL THEN CAST({place} AS BIGINT)"]
    last = feature.size - 1
    absent = last if feature.absent is None else feature.values.index(feature.absent)
    if feature.missing and absent != last:  # what is not listed is the last, what is not there another
        cases.append(f"WHEN NOT {raw} IS NULL THEN {whole(last)}")
    return f"CAST(CASE {' '.join(cases)} ELSE {whole(absent)} END AS INT)"
