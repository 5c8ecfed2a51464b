"""The curator's part of the vector mean: one scan of the rows, one draw of noise a coordinate, one charge.

Every trusted vector is clipped and rounded on its own, in integers (`hybridp.public.vector`), so the exact sum has the
stated sensitivity and discrete noise on it has exactly the stated guarantee. How many people are in each group is
public.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.curator.sources import Entrusted, Raw, noisy_sums
from hybridp.public.lattice import missing_each
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import MECHANISM, NoisySquares, reports_digest
from hybridp.public.trust import Trusts, label_column
from hybridp.public.vector import SQUARE_STEPS, VectorBounds, VectorInvite, VectorReportSums, VectorSum
from hybridp.randomness import Randomness
from hybridp.tables.vector import VectorQuery, local_vectors, vector_totals

__all__ = [
    "MECHANISM",
    "Raw",
    "VectorColumns",
    "local_steps",
    "read",
    "read_answers",
    "release_sum",
    "vector_query",
]


@dataclass(frozen=True, slots=True)
class VectorColumns:
    """Which columns of the table hold what; the report on column `NAME` is in `NAME_report`."""

    values: tuple[str, ...]
    trust: Trusts | None
    person: str | None = None
    missing: tuple[float | str, ...] | float | str | None = None
    mechanism: str = MECHANISM

    @property
    def names(self) -> tuple[str, ...]:
        return self.values

    @property
    def reads(self) -> dict[str, tuple[str, ...]]:
        """The columns that must be there, by the option that names them."""
        return {"columns": self.values}

    @property
    def absent(self) -> tuple[float | str, ...] | None:
        """What a missing value of each column counts as: a number within the bounds, or "middle"."""
        return missing_each(self.missing, len(self.values))

    def counts_as(self, bounds: VectorBounds) -> str:
        """What missing values count as, column by column, for a receipt."""
        middles = [bound.centre for bound in bounds.bounds]
        stated = self.absent or ("middle",) * len(middles)
        return ", ".join(
            f"{middle if isinstance(one, str) else one:g}" for one, middle in zip(stated, middles, strict=True)
        )

    @property
    def reports(self) -> tuple[str, ...]:
        return tuple(f"{name}_report" for name in self.values)


def vector_query(columns: VectorColumns, bounds: VectorBounds, *, reads: str = "trusted") -> VectorQuery:
    """The query for these columns, without reports."""
    read = {"missing": columns.absent, "person": columns.person, "reads": reads}
    return VectorQuery.of(bounds, columns.values, label_column(columns.trust), **read)


def _with_reports(rows: tables.Rows, columns: VectorColumns, invite: VectorInvite) -> VectorQuery:
    """Reports are read where the table has them; without them nobody may be local, which the totals check."""
    query = vector_query(columns, invite.bounds)
    if not any(name in rows.columns for name in columns.reports):
        return query
    reported, most = invite.reports.reported, invite.reports.law.bound
    reaches = tuple(b.half * invite.bounds.reach for b in invite.bounds.bounds)
    return replace(
        query,
        reports=columns.reports,
        reported=reported,
        report_centres=tuple(b.centre for b in invite.bounds.bounds),
        report_reaches=reaches,
        report_bounds=tuple(r * most * (1 + 1e-9) for r in reaches),
    )


def read(
    rows: tables.Rows,
    columns: VectorColumns,
    invite: VectorInvite,
    *,
    local_raw: bool = False,
    assume: bool = False,
    sum_squares: bool = False,
) -> Raw:
    """Both groups' totals in one scan. Rows that break a rule are refused before anything is drawn.

    Reports that name no mechanism are refused too, unless the invitation's is assumed. `digest` names the reports.
    """
    says: bool | None
    if local_raw:
        query, says = vector_query(columns, invite.bounds, reads="all"), True
    else:
        for name in columns.values:  # before the reports, which name them too
            rows.need("columns", name)
        query, says = _with_reports(rows, columns, invite), None
        if columns.trust is not None and query.reports is not None:
            label = label_column(columns.trust)
            says = tables.check_mechanism(rows, label, columns.mechanism, invite.text)
    found = vector_totals(rows, replace(query, square_steps=SQUARE_STEPS) if sum_squares else query)
    local = VectorReportSums(
        found.local_people,
        np.array(found.report_counts, dtype=np.int64),
        np.array(found.report_sums),
        np.array(found.report_square_sums),
        invite.reports,
    )
    assumed = tables.named_mechanism(columns.mechanism, says, local.people, assume=assume)
    digest = None if local_raw else reports_digest(invite.text, *found.fingerprint)
    sums, squared = (np.array(of, dtype=np.int64) for of in (found.trusted_sums, found.trusted_squares))
    return Raw(found.trusted_people, sums, local, bool(says), assumed, digest, squared)


def read_answers(answers: Entrusted, bounds: VectorBounds, local: VectorReportSums) -> Raw:
    """The same from the answers that a service keeps, beside the sums of its reports."""
    people, sums, squared = 0, *np.zeros((2, bounds.dimensions), dtype=np.int64)
    for values in answers.numbers(bounds.dimensions):
        people += len(values)
        steps = bounds.steps(values)
        sums = sums + steps.sum(axis=0)
        far = np.floor(np.abs(steps) * (SQUARE_STEPS / bounds.reach_steps)).astype(np.int64)
        squared = squared + (far * far).sum(axis=0)
    return Raw(people, sums, local, squares=squared)


def release_sum(
    totals: Raw,
    mechanism: DiscreteLaplace | DiscreteGaussian,
    bounds: VectorBounds,
    squares: DiscreteLaplace | None = None,
    *,
    rng: Randomness,
) -> VectorSum:
    """The trusted sums, each with a draw of the mechanism's noise: this is what its guarantee is about.

    And those of squares with draws of their own, where a mechanism is given for them.
    """
    people, noisy = totals.trusted_people, noisy_sums(totals.trusted, mechanism, rng=rng)
    if squares is None:
        return VectorSum(people, noisy, mechanism, bounds.reach_steps)
    own = noisy_sums(totals.squares, squares, rng=rng)
    spread = tuple(NoisySquares(people, total, squares, SQUARE_STEPS) for total in own)
    return VectorSum(people, noisy, mechanism, bounds.reach_steps, spread)


def local_steps(rows: tables.Rows, columns: VectorColumns, invite: VectorInvite) -> Iterator[NDArray[np.int64]]:
    """For a trial only: local people's raw vectors, clipped and on the lattice."""
    return local_vectors(rows, vector_query(columns, invite.bounds, reads="all"))
