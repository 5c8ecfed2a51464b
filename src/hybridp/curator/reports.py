"""Files of reports: on numbers, or of slots of a head list or of a map. Private already: read before a charge."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.curator.sources import Columns, Rows, TableLike
from hybridp.errors import UnusablePublicRows, UnusableRows
from hybridp.public.messages import BATCH, MECHANISM, SlotReports, reports_digest
from hybridp.public.trust import label_column
from hybridp.tables.columns import (
    all_empty,
    check_trust,
    count_people,
    local_numbers,
    only_texts,
    slot_counts,
    some_texts,
)

__all__ = ["Sent", "all_empty", "batch_digest", "batch_names", "check_batches", "read_mechanism"]
__all__ += ["read_slots", "report_parts", "slot_counts", "slots_told", "some_texts"]

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
    with tables.open_rows(path, table=table) as rows:
        return slots_told(rows, mechanism, slots, assume=assume)


def slots_told(rows: Rows, mechanism: str, slots: int, *, assume: bool = False) -> Sent:
    """The same of rows."""
    named = MECHANISM in rows.columns
    simulated = f"{mechanism}{_SIMULATED}"
    marks = only_texts(rows, MECHANISM, (mechanism, simulated)) if named else set()
    counts = slot_counts(rows, "report", slots)
    batches = batch_names(rows, BATCH)
    assumed = tables.named_mechanism(MECHANISM, named or None, int(counts.sum()), assume=assume)
    return Sent(
        SlotReports(int(counts.sum()), counts),
        simulated in marks,
        assumed,
        reports_digest(mechanism, counts.tolist(), batches),
    )


# --- reports on numbers, some rows at a time --------------------------------------------------------------------------


def report_parts(rows: Rows, names: tuple[str, ...], where: Columns, chunk: int) -> Iterator[dict[str, Any]]:
    """The columns as masked doubles, some rows at a time; text that is no number is refused."""
    return local_numbers(rows, names, label_column(where.trust), chunk)


def read_mechanism(rows: Rows, where: Columns) -> tuple[str | None, bool]:
    """The text of the one mechanism that reports name (None without reports), and whether some say SIMULATED."""
    label = label_column(where.trust)
    if label is not None:
        check_trust(rows, label)
        count_people(rows, label, None)  # refuses a row without a label
    rows.need("report", where.mechanism)
    texts = some_texts(rows, where.mechanism, 3, label)
    plain = {text.removesuffix(_SIMULATED) for text in texts}
    if "" in texts or len(plain) > 1:
        raise UnusableRows(f"Column `{where.mechanism}` must name one mechanism, the same in every row that is read.")
    return next(iter(plain), None), any(text != text.removesuffix(_SIMULATED) for text in texts)


def batch_names(rows: Rows, batch: str) -> list[str]:
    """The different names of batches that stand beside reports, in the column `batch`."""
    found = some_texts(rows, batch, _MOST_BATCHES + 1) if batch in rows.columns else []
    if len(found) > _MOST_BATCHES:
        raise UnusablePublicRows(f"Column `{batch}` must hold at most {_MOST_BATCHES:,} different names.")
    return found


def batch_digest(rows: Rows, columns: Columns, text: str, counts: NDArray[np.int64], people: int) -> str:
    """What names a set of reports that are counted: their mechanism, their counts, and the names of their batches."""
    batches = batch_names(rows, f"{columns.report}_batch")
    return reports_digest(text, people, counts.tolist(), [name for name in batches if name])


def check_batches(data: TableLike, table: str | None, column: str, reports: TableLike) -> None:
    """Refuse reports of another run than the table's, which names their batch in `column`: all public.

    Somebody may have drawn one question in each run, and would count in both. A table that names none is not checked.
    """
    with tables.open_rows(data, table=table) as rows:
        known = {*batch_names(rows, column)} - {""}  # of those who drew another question it is empty
    with tables.open_rows(reports) as sent:
        told = {*batch_names(sent, BATCH)}
    if known and not (told and told <= known):
        raise UnusablePublicRows(
            "`reports` must be those of the run of `hybridp randomise` that wrote the table. Got another run's: people "
            "may have drawn other questions there."
        )
