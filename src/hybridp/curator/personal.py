"""A trial of people's own epsilons: a copy of the rows with the reports that devices would send."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.curator.sources import Columns
from hybridp.public.lattice import Bounds
from hybridp.public.messages import OwnInvite
from hybridp.public.trust import label_column
from hybridp.tables.query import Query
from hybridp.tables.reports import Copy, read_levels, write_reports

__all__ = ["simulate_reports"]

Floats = NDArray[np.float64]


def simulate_reports(
    rows: tables.Rows,
    columns: Columns,
    epsilon: str,
    bounds: Bounds,
    randomise: Callable[[NDArray[np.int64], Floats], Floats],
    out: str | PathLike[str],
) -> None:
    """For a trial only: a copy of the rows with local values replaced by simulated reports."""
    report, own = columns.report or "report", (columns.person, columns.record_key, columns.record_id)
    copy = Copy(
        values=columns.names,
        trust=label_column(columns.trust),
        epsilon=epsilon,
        kept=tuple(name for name in own if name is not None),
        reports=(report,),
        mechanism=(f"{report}_mechanism", f"{OwnInvite(bounds, columns.names).text} SIMULATED"),
    )
    query = Query.on(bounds, columns.names, copy.trust, columns.missing, reads="all")
    read = partial(read_levels, query=query)
    write_reports(rows, copy, read, lambda held, own: randomise(held[:, 0], own), out)
