"""Single columns of public or already private numbers: popularity curves, and reports."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import UnusablePublicRows, UnusableRows
from hybridp.tables.engine import arrays, stream
from hybridp.tables.source import VIEW, Rows

__all__ = ["all_empty", "local_numbers", "local_texts", "number_column", "only_texts", "slot_counts", "some_texts"]


def number_column(rows: Rows, name: str) -> NDArray[np.float64]:
    """A column of numbers, none of them missing. For public figures: nothing is protected here."""
    from sqlglot import exp

    from hybridp.tables.sql import column, named, number

    rows.need("count-column", name)
    value = number(column(name), is_text=rows.is_text(name))
    found = arrays(rows, exp.select(named(value, "value")).from_(VIEW))["value"]
    if np.ma.is_masked(found) or not bool(np.isfinite(np.asarray(found, dtype=np.float64)).all()):
        raise UnusableRows(f"Column `{name}` must hold a finite number in every row.")
    return np.asarray(found, dtype=np.float64)


def slot_counts(rows: Rows, name: str, slots: int) -> NDArray[np.int64]:
    """How many reports name each slot. Reports are private already; a number that is no slot is refused."""
    from sqlglot import exp

    from hybridp.tables.sql import column, named, number

    rows.need("report", name)
    value = number(column(name), is_text=rows.is_text(name))
    reports = named(exp.Count(this=exp.Star()), "reports")
    found = arrays(rows, exp.select(named(value, "slot"), reports).from_(VIEW).group_by(value))
    told = np.ma.filled(np.ma.asarray(found["slot"], dtype=np.float64), np.nan)
    ok = (told >= 0) & (told < slots) & (told == np.floor(told))
    if not bool(ok.all()):
        raise UnusablePublicRows(f"Column `{name}` must hold the number of a slot of the invitation, 0 to {slots - 1}.")
    out = np.zeros(slots, dtype=np.int64)
    out[told.astype(np.int64)] = np.asarray(found["reports"], dtype=np.int64)
    return out


def some_texts(rows: Rows, name: str, most: int, trust: str | None = None) -> list[str]:
    """Up to `most` different texts of a column, in order; a missing one is an empty text. For what is public.

    With `trust`, those of local rows alone.
    """
    from hybridp.tables.sql import cast, column, named

    query = _of_local([named(cast(column(name), "text"), "text")], trust).distinct().limit(most)
    found = np.ma.asarray(arrays(rows, query)["text"], dtype=object).tolist()
    return sorted("" if text is None else str(text) for text in found)


def local_texts(rows: Rows, name: str, trust: str | None, chunk: int) -> Iterator[list[str | None]]:
    """The texts of local rows' reports (of all rows without `trust`), some at a time."""
    from hybridp.tables.sql import cast, column, named

    rows.need("report", name)
    for part in stream(rows, _of_local([named(cast(column(name), "text"), "sent")], trust), chunk):
        yield np.ma.asarray(part["sent"], dtype=object).tolist()


def local_numbers(rows: Rows, names: tuple[str, ...], trust: str | None, chunk: int) -> Iterator[dict[str, Any]]:
    """The same of several columns as masked doubles; text that is no number is refused."""
    from hybridp.tables.sql import column, named, not_a_number, number

    fields = []
    for i, name in enumerate(names):
        rows.need("report", name)
        if not (rows.is_number(name) or rows.is_text(name)):
            raise UnusableRows(f"Column `{name}` must hold numbers; its type is {rows.columns[name]}.")
        value = number(column(name), is_text=rows.is_text(name))
        fields += [named(value, f"n{i}"), named(not_a_number(column(name), value), f"text{i}")]
    for part in stream(rows, _of_local(fields, trust), chunk):
        for i, name in enumerate(names):
            if bool(np.any(part[f"text{i}"])):
                raise UnusableRows(f"Column `{name}` must hold numbers.")
        yield {name: np.ma.asarray(part[f"n{i}"], dtype=np.float64).copy() for i, name in enumerate(names)}


def _of_local(fields: list[Any], trust: str | None) -> Any:
    from sqlglot import exp

    from hybridp.tables.sql import column, labelled

    query = exp.select(*fields).from_(VIEW)
    return query if trust is None else query.where(labelled(column(trust), "local"))


def all_empty(rows: Rows, names: tuple[str, ...]) -> bool:
    """Whether these columns, as far as the table has them, hold nothing in any row."""
    from sqlglot import exp

    from hybridp.tables.sql import column, named

    here = [name for name in names if name in rows.columns]
    if not here:
        return True
    texts = [exp.Nullif(this=exp.cast(column(name), "TEXT"), expression=exp.Literal.string("")) for name in here]
    filled = exp.Coalesce(this=texts[0], expressions=texts[1:]).is_(exp.null()).not_()
    some = exp.select(named(exp.Literal.number(1), "filled")).from_(VIEW).where(filled).limit(1)
    return len(arrays(rows, some)["filled"]) == 0


def only_texts(rows: Rows, name: str, allowed: tuple[str, ...]) -> set[str]:
    """Which of the allowed texts a column holds; any other is refused, and not repeated. For what is public."""
    texts = set(some_texts(rows, name, len(allowed) + 1))
    if not texts <= set(allowed):
        raise UnusablePublicRows(f"Column `{name}` must hold `{allowed[0]}` in every row.")
    return texts
