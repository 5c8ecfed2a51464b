"""Files of reports: on numbers, or of slots of a head list or of a map. Private already: read before a charge."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.errors import UnusablePublicRows, UnusableRows
from hybridp.public.messages import BATCH, MECHANISM, reports_digest
from hybridp.public.trust import Trusts, label_column
from hybridp.tables.columns import only_texts, slot_counts, some_texts
from hybridp.tables.engine import answers, arrays, stream
from hybridp.tables.labels import check_trust, unlabelled
from hybridp.tables.source import Rows, TableLike

__all__ = ["ReportColumns", "SlotsTold", "read_mechanism", "read_slots", "report_parts", "slot_counts"]
__all__ += ["slots_told"]

_MOST_BATCHES = 100_000
_SIMULATED = " SIMULATED"


class SlotsTold(NamedTuple):
    """How many reports name each slot, and what they say of themselves; `digest` names the set of them."""

    counts: NDArray[np.int64]
    simulated: bool
    assumed: bool
    digest: str


def read_slots(
    path: TableLike, mechanism: str, slots: int, *, table: str | None = None, assume: bool = False
) -> SlotsTold:
    """The reports of a file by the mechanism with this text, which they must name unless it is assumed.

    Counts alone cannot tell two sets of reports apart, so that the digest also holds the random names of the batches
    that devices write beside them.
    """
    with tables.open_rows(path, table=table) as rows:
        return slots_told(rows, mechanism, slots, assume=assume)


def slots_told(rows: Rows, mechanism: str, slots: int, *, assume: bool = False) -> SlotsTold:
    """The same of rows."""
    named = MECHANISM in rows.columns
    simulated = f"{mechanism}{_SIMULATED}"
    marks = only_texts(rows, MECHANISM, (mechanism, simulated)) if named else set()
    counts = slot_counts(rows, "report", slots)
    batches = some_texts(rows, BATCH, _MOST_BATCHES + 1) if BATCH in rows.columns else []
    if len(batches) > _MOST_BATCHES:
        raise UnusablePublicRows(f"Column `{BATCH}` must hold at most {_MOST_BATCHES:,} different names.")
    assumed = tables.named_mechanism(MECHANISM, named or None, int(counts.sum()), assume=assume)
    return SlotsTold(counts, simulated in marks, assumed, reports_digest(mechanism, counts.tolist(), batches))


@dataclass(frozen=True, slots=True)
class ReportColumns:
    """Where a file has its reports. With `trust` only rows labelled `local` are read; without it, every row is."""

    report: str = "report"
    trust: Trusts | None = None
    epsilon: str | None = None
    table: str | None = None

    @property
    def mechanism(self) -> str:
        return f"{self.report}_mechanism"


# --- reports on numbers, some rows at a time --------------------------------------------------------------------------


def report_parts(rows: Rows, names: tuple[str, ...], where: ReportColumns, chunk: int) -> Iterator[dict[str, Any]]:
    """The columns as masked doubles, some rows at a time; text that is no number is refused."""
    from hybridp.tables import tally_queries as queries

    for name in names:
        rows.need("report", name)
        if not (rows.is_number(name) or rows.is_text(name)):
            raise UnusableRows(f"Column `{name}` must hold numbers; its type is {rows.columns[name]}.")
    for part in stream(rows, queries.reports(rows, names, label_column(where.trust)), chunk):
        for i, name in enumerate(names):
            if bool(np.any(part[f"text{i}"])):
                raise UnusableRows(f"Column `{name}` must hold numbers.")
        yield {name: np.ma.asarray(part[f"n{i}"], dtype=np.float64).copy() for i, name in enumerate(names)}


def read_mechanism(rows: Rows, where: ReportColumns) -> tuple[str | None, bool]:
    """The text of the one mechanism that reports name (None without reports), and whether some say SIMULATED."""
    _check_labels(rows, where)
    texts = _texts(rows, where.mechanism, where)
    plain = {text.removesuffix(_SIMULATED) for text in texts if isinstance(text, str)}
    if None in texts or len(plain) > 1:
        raise UnusableRows(f"Column `{where.mechanism}` must name one mechanism, the same in every row that is read.")
    return next(iter(plain), None), any(text != text.removesuffix(_SIMULATED) for text in texts)


def _texts(rows: Rows, name: str, where: ReportColumns) -> set[Any]:
    """Up to three different texts of a public column."""
    from hybridp.tables import tally_queries as queries

    rows.need("report", name)
    return {
        *np.ma.asarray(arrays(rows, queries.texts(name, label_column(where.trust), 3))["text"], dtype=object).tolist()
    }


def _check_labels(rows: Rows, where: ReportColumns) -> None:
    from hybridp.tables import tally_queries as queries

    if where.trust is None:
        return
    label = label_column(where.trust)
    check_trust(rows, label)
    (found,) = answers(rows, queries.labels(label))
    if found["every"] and found["known"] != found["every"]:
        raise unlabelled(rows, label)
