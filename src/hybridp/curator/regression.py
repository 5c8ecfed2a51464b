"""The curator's part of a regression: exact sums of the trusted people's products or scores, with their noise.

Everybody's columns are whole lattice steps, and what is added up are whole numbers; replacing one person moves all sums
of all rounds together by what `hybridp.public.regression` states, so that discrete noise has exactly the stated
guarantee.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from hybridp import noise, tables
from hybridp.curator.sources import Entrusted, noisy_sums
from hybridp.curator.vector import MECHANISM, VectorColumns, vector_query
from hybridp.errors import InvalidInput, UnusablePublicRows
from hybridp.public.lattice import HALF
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import reports_digest
from hybridp.public.regression import LADDER, TAIL, KindName, Question, farther, round_sums
from hybridp.public.trust import LABEL, label_column
from hybridp.public.vector import VectorBounds, VectorReportSums
from hybridp.randomness import Randomness
from hybridp.tables.columns import count_people, local_rows, only_texts
from hybridp.tables.source import TableLike
from hybridp.tables.vector import VectorQuery, check_columns, check_people, group_vectors, vector_totals

__all__ = ["AnswerRows", "PeopleRows", "People", "Told", "TableRows", "read_reports", "release_round", "release_scale"]

Ints = NDArray[np.int64]
_CHUNK = 1 << 16


class PeopleRows(Protocol):
    """RAW: people's columns on the lattice, wherever they live, the target last."""

    @property
    def trusted(self) -> int: ...

    @property
    def local(self) -> int: ...

    def parts(self, group: str) -> Iterator[Ints]:
        """One group's rows, at most 2^16 at a time."""
        ...


@dataclass(frozen=True, eq=False)
class TableRows:
    """The rows of a table, checked; with `local_raw` (a trial) those of local people can be read too."""

    rows: tables.Rows
    query: VectorQuery
    trusted: int
    local: int

    @classmethod
    def read(
        cls, rows: tables.Rows, columns: VectorColumns, bounds: VectorBounds, *, local_raw: bool = False
    ) -> TableRows:
        query = vector_query(columns, bounds, reads="all" if local_raw else "trusted")
        check_columns(rows, query)
        check_people(rows, query)
        people = count_people(rows, label_column(columns.trust) or LABEL, columns.person)
        return cls(rows, query, people.trusted, people.local)

    def parts(self, group: str) -> Iterator[Ints]:
        if group == "local" and self.query.reads == "trusted":
            raise UnusablePublicRows(
                f"{local_rows(self.query.trust or LABEL)}, and nobody asked them: make an invitation with --invite-out "
                "and reports with `hybridp randomise regression`, or add --simulate-local for a trial on raw rows."
            )
        return group_vectors(self.rows, self.query, group, _CHUNK)


@dataclass(frozen=True, eq=False)
class People:
    """Two groups' columns in memory, on the lattice."""

    trusted_steps: Ints
    local_steps: Ints

    @property
    def trusted(self) -> int:
        return len(self.trusted_steps)

    @property
    def local(self) -> int:
        return len(self.local_steps)

    def parts(self, group: str) -> Iterator[Ints]:
        steps = self.trusted_steps if group == "trusted" else self.local_steps
        for start in range(0, len(steps), _CHUNK):
            yield steps[start : start + _CHUNK]


@dataclass(frozen=True, eq=False)
class AnswerRows:
    """Answers that a service keeps: those of its trusted people, and nobody else's."""

    answers: Entrusted
    bounds: VectorBounds
    trusted: int
    local: int = 0

    def parts(self, group: str) -> Iterator[Ints]:
        assert group == "trusted"
        for values in self.answers.numbers(self.bounds.dimensions):
            for start in range(0, len(values), _CHUNK):
                yield self.bounds.steps(values[start : start + _CHUNK])


def release_round(
    rows: PeopleRows,
    kind: KindName,
    mechanism: DiscreteLaplace | DiscreteGaussian,
    centre: tuple[float, ...] = (),
    *,
    rng: Randomness,
) -> tuple[int, ...]:
    """The trusted people's sums of one round, each with a draw of the mechanism's noise."""
    totals: list[int] = []
    for part in rows.parts("trusted"):
        more = round_sums(kind, part, centre).tolist()
        totals = more if not totals else [a + b for a, b in zip(totals, more, strict=True)]
    return noisy_sums(totals, mechanism, rng=rng)


def release_scale(
    rows: PeopleRows, centre: tuple[float, ...], first: int, mechanism: DiscreteLaplace, *, rng: Randomness
) -> int:
    """Which distance of the ladder, from the `first` on, about a twentieth of the trusted people exceed.

    Private as `scale_noise` says; `centre` and `first` follow from what was released before.
    """
    counts = np.zeros(len(LADDER), dtype=np.int64)
    for part in rows.parts("trusted"):
        counts += farther(part, centre)
    drawn = noise.discrete_laplace(mechanism.scale, len(LADDER), rng=rng)
    return first + int(np.argmax((drawn - np.abs(TAIL * counts - rows.trusted))[first:]))


# --- reports ----------------------------------------------------------------------------------------------------------


class Told(NamedTuple):
    """The sums of a file of reports, and what they say of themselves; `digest` names the set of them."""

    sums: VectorReportSums
    simulated: bool
    assumed: bool
    digest: str


def read_reports(
    path: TableLike, question: Question, mechanism: str, *, table: str | None = None, assume: bool = False
) -> Told:
    """Reports that answer the question with this text, which they must name unless it is assumed. Private already."""
    plan, names = question.invite.reports, question.names
    most = plan.law.bound
    d = len(names)
    query = VectorQuery(
        values=names,
        trust=None,
        lower=(-1.0,) * d,
        upper=(1.0,) * d,
        half=HALF,
        reports=names,
        reported=plan.reported,
        report_centres=(0.0,) * d,
        report_reaches=(1.0,) * d,
        report_bounds=(most * (1 + 1e-9),) * d,
    )
    simulated = f"{mechanism} SIMULATED"
    with tables.open_rows(path, table=table) as rows:
        for name in names:
            if name not in rows.columns:
                rule = "must hold the reports that `hybridp randomise regression --invite` writes"
                raise InvalidInput(f"`file` {rule}. Got {rows.name} without the column `{name}`.")
        marks = only_texts(rows, MECHANISM, (mechanism, simulated)) if MECHANISM in rows.columns else None
        found = vector_totals(rows, query)
    assumed = tables.named_mechanism(MECHANISM, None if marks is None else True, found.local_people, assume=assume)
    sums = VectorReportSums(
        found.local_people,
        np.array(found.report_counts, dtype=np.int64),
        np.array(found.report_sums),
        np.array(found.report_square_sums),
        question.invite.reports,
    )
    digest = reports_digest(mechanism, *found.fingerprint)
    return Told(sums, marks is not None and simulated in marks, assumed, digest)
