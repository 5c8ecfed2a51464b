"""Reports on a vector, added up as they come: the state is one set of exact sums a column.

>>> from hybridp.public.bounds import Bounds
>>> invite = VectorInvite(VectorBounds((Bounds(0, 10), Bounds(-1, 1))), scalar_reports(PureDP(2.0), 2, 1))
>>> empty = VectorTally.empty(invite, ("age", "score"))
>>> both = empty.add([[7.5, np.nan], [np.nan, -0.5]])
>>> both.people, [sums.people for sums in both.sums]
(2, [1, 1])
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.tally_origin import Origin
from hybridp.blend.tally_sums import NOTHING, Sums, check_reach, exact_sums, numbers
from hybridp.errors import must
from hybridp.public.budgets import PureDP
from hybridp.public.vector import VectorBounds, VectorInvite, VectorReportSums
from hybridp.public.vector_randomisers import ScalarReports, scalar_reports, unit_vector

__all__ = ["VectorTally"]

_SLACK = 1e-9  # a report's own rounding


@dataclass(frozen=True, slots=True)
class VectorTally:
    """Reports on a vector, one entry a column; `people` sent one, about as many columns as the invitation asks for."""

    origin: Origin
    invite: VectorInvite
    columns: tuple[str, ...]
    people: int
    sums: tuple[Sums, ...]

    kind = "vector-mean"

    def __post_init__(self) -> None:
        d = self.invite.bounds.dimensions
        ok = len(self.columns) == len(set(self.columns)) == len(self.sums) == d
        must(ok, "columns", f"must name each of the {d} columns once", len(self.columns))
        counts = [sums.people for sums in self.sums]
        ok = self.people >= max(counts) and sum(counts) == self.people * self._reported
        must(ok, "people", f"must each report {self._reported} of {d} columns", self.people)
        for sums, side in zip(self.sums, self.invite.bounds.bounds, strict=True):
            check_reach(sums, side.centre, side.half * self.invite.bounds.reach * self._bound * (1 + _SLACK))

    @property
    def _reported(self) -> int:
        plan = self.invite.reports
        return plan.reported if isinstance(plan, ScalarReports) else plan.dimensions

    @property
    def _bound(self) -> float:
        plan = self.invite.reports
        return plan.randomiser.bound if isinstance(plan, ScalarReports) else plan.bound

    @classmethod
    def empty(cls, invite: VectorInvite, columns: Sequence[str], collection: str | None = None) -> VectorTally:
        asked = replace(invite, question=tuple(columns))
        return cls(Origin(asked.text, collection), asked, tuple(columns), 0, (NOTHING,) * invite.bounds.dimensions)

    def add(
        self,
        reports: Sequence[Sequence[float]] | NDArray[np.float64],
        *,
        batch: str | None = None,
        simulated: bool = False,
    ) -> VectorTally:
        """With these reports too, one a row, in the columns' own units; NaN where a column was not reported."""
        d = self.invite.bounds.dimensions
        x = numbers("reports", reports, d)
        told = ~np.isnan(x)
        ok = bool((told.sum(axis=1) == self._reported).all())
        must(ok, "reports", f"must hold {self._reported} of {d} columns in every row", "another number")
        counts = told.sum(axis=0)
        heard = np.flatnonzero(counts)
        more = [NOTHING] * d
        if len(heard):
            # Column by column: the segments of one long array.
            starts = (np.cumsum(counts) - counts)[heard]
            for j, found in zip(heard.tolist(), exact_sums(x.T[told.T], starts), strict=True):
                more[j] = found
        return replace(
            self,
            origin=self.origin.adding(batch, simulated=simulated),
            people=self.people + len(x),
            sums=tuple(a + b for a, b in zip(self.sums, more, strict=True)),
        )

    def __add__(self, other: VectorTally) -> VectorTally:
        must(self.columns == other.columns, "tally", "must hold the same columns to be merged", "other columns")
        return replace(
            self,
            origin=self.origin + other.origin,
            people=self.people + other.people,
            sums=tuple(a + b for a, b in zip(self.sums, other.sums, strict=True)),
        )

    def summary(self) -> VectorReportSums:
        """What the blend reads, in reach coordinates: exact sums, rounded once."""
        bounds = self.invite.bounds
        moved = [s.moved(b.centre, b.half * bounds.reach) for s, b in zip(self.sums, bounds.bounds, strict=True)]
        totals, squares = (np.array(part) for part in zip(*moved, strict=True))
        counts = np.array([s.people for s in self.sums], dtype=np.int64)
        return VectorReportSums(self.people, counts, totals, squares, self.invite.reports)

    def to_dict(self) -> dict[str, Any]:
        bounds, plan = self.invite.bounds, self.invite.reports
        geometry = {
            "lower": [float(b.lower) for b in bounds.bounds],
            "upper": [float(b.upper) for b in bounds.bounds],
            "norm": bounds.norm,
            "radius": bounds.radius,
            "epsilon": plan.guarantee.epsilon,
            "reported": plan.reported if isinstance(plan, ScalarReports) else None,
        }
        columns = {name: sums.to_dict() for name, sums in zip(self.columns, self.sums, strict=True)}
        return self.origin.document(self.kind, self.people, invite=geometry, columns=columns)

    @classmethod
    def read(cls, stated: dict[str, Any], origin: Origin) -> VectorTally:
        invite = stated["invite"]
        bounds = VectorBounds.of(invite["lower"], invite["upper"], norm=invite["norm"], radius=invite["radius"])
        promise, d = PureDP(invite["epsilon"]), bounds.dimensions
        reported = invite["reported"]
        plan = unit_vector(promise, d, bounds.ratio) if reported is None else scalar_reports(promise, d, reported)
        asked = VectorInvite(bounds, plan, tuple(stated["columns"]))
        must(asked.text == origin.mechanism, "mechanism", "must be the one of the tally's bounds", "another")
        ok = type(stated["people"]) is int
        must(ok, "people", "must be a whole number", stated["people"])
        sums = tuple(Sums.from_dict(part) for part in stated["columns"].values())
        return cls(origin, asked, tuple(stated["columns"]), stated["people"], sums)
