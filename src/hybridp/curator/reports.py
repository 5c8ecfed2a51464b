"""Files of reports that name a slot: of a head list, or of a map. Private already: read before a charge."""

from __future__ import annotations

from os import PathLike
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.errors import UnusablePublicRows
from hybridp.public.messages import BATCH, MECHANISM, reports_digest
from hybridp.tables.columns import only_texts, some_texts

__all__ = ["SlotsTold", "read_slots"]

_MOST_BATCHES = 100_000


class SlotsTold(NamedTuple):
    """How many reports name each slot, and what they say of themselves; `digest` names the set of them."""

    counts: NDArray[np.int64]
    simulated: bool
    assumed: bool
    digest: str


def read_slots(
    path: str | PathLike[str], mechanism: str, slots: int, *, table: str | None = None, assume: bool = False
) -> SlotsTold:
    """The reports of a file by the mechanism with this text, which they must name unless it is assumed.

    Counts alone cannot tell two sets of reports apart, so that the digest also holds the random names of the batches
    that devices write beside them.
    """
    with tables.open_rows(path, table=table) as rows:
        named = MECHANISM in rows.columns
        simulated = f"{mechanism} SIMULATED"
        marks = only_texts(rows, MECHANISM, (mechanism, simulated)) if named else set()
        counts = tables.slot_counts(rows, "report", slots)
        batches = some_texts(rows, BATCH, _MOST_BATCHES + 1) if BATCH in rows.columns else []
    if len(batches) > _MOST_BATCHES:
        raise UnusablePublicRows(f"Column `{BATCH}` must hold at most {_MOST_BATCHES:,} different names.")
    assumed = tables.named_mechanism(MECHANISM, named or None, int(counts.sum()), assume=assume)
    return SlotsTold(counts, simulated in marks, assumed, reports_digest(mechanism, counts.tolist(), batches))
