"""A trial of people's own epsilons: a copy of the rows with the reports that devices would send."""

from __future__ import annotations

from collections.abc import Callable
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.curator.sources import Columns
from hybridp.public.lattice import Bounds
from hybridp.public.messages import Invite, OwnEpsilon
from hybridp.public.trust import label_column
from hybridp.tables.query import Query
from hybridp.tables.reports import Copy, Reporting, write_reports

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
    label = label_column(columns.trust)
    told = Reporting(
        query=Query.on(bounds, columns.names, label, columns.missing, reads="all"),
        draw=lambda held, own: randomise(held[:, 0], own),
        reports=(report,),
        mechanism=(f"{report}_mechanism", f"{Invite(bounds, OwnEpsilon(), columns.names).text} SIMULATED"),
    )
    kept = tuple(name for name in own if name is not None)
    write_reports(rows, Copy(values=columns.names, trust=label, epsilon=epsilon, kept=kept, told=(told,)), out)
