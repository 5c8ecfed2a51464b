"""The batches that a mixer handed on, as tables: one a batch, a row a report, and nothing that tells who sent it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hybridp.curator import mean as curating
from hybridp.curator.sources import Rows, TableLike, open_rows
from hybridp.errors import must
from hybridp.protocols.mean_receipt import MixedReports
from hybridp.public.messages import LocalSummary, reports_digest
from hybridp.public.trust import TrustRule

if TYPE_CHECKING:
    from hybridp.protocols.mean import MeanStudy

__all__ = ["Batches", "read_batches"]

_EVERYBODY = TrustRule(everyone="local")


@dataclass(frozen=True, slots=True)
class Batches:
    """The reports of all batches, a name for the set of them, and whether some say that they protect nobody."""

    reports: MixedReports | None = None
    digest: str | None = None
    simulated: bool = False

    @property
    def found(self) -> tuple[int, str | None]:
        return 0 if self.reports is None else self.reports.summary.people, self.digest


def read_batches(
    paths: Sequence[TableLike], study: MeanStudy, columns: curating.Columns, *, assume: bool = False
) -> Batches:
    """Add up every batch by itself: its size decides what it keeps. Reports name their mechanism, as local ones do.

    The very same batch given twice is refused: its reports would count twice. So is a table with any other column: a
    report beside something that may tell who sent it is not mixed.
    """
    if not paths:
        return Batches()
    must(study.mixed_invite is not None, "mixed", "must go with the least size of a batch (--batch)", "none")
    assert study.mixed_invite is not None
    invite = replace(study.mixed_invite, question=(columns.value,))
    own = curating.Columns(columns.value, _EVERYBODY, columns.report)
    total, simulated = LocalSummary(0, 0.0, 0.0, invite.randomiser), False
    sizes: list[int] = []
    names: list[str] = []
    for path in paths:
        with open_rows(path, trust=_EVERYBODY) as rows:
            _must_be_alone(rows, own)
            found = curating.read(rows, own, invite, assume=assume)
        must(str(found.digest) not in names, "mixed", "must name every batch once", "the same reports twice")
        total, simulated = total + found.local, simulated or found.simulated_reports
        sizes.append(found.local.people)
        names.append(str(found.digest))
    return Batches(MixedReports(total, tuple(sizes)), reports_digest(invite.text, *sorted(names)), simulated)


def _must_be_alone(rows: Rows, columns: curating.Columns) -> None:
    more = len({*rows.written} - {columns.value, columns.report, f"{columns.report}_mechanism"})
    rule = f"must hold nothing but reports (`{columns.report}`, `{columns.report}_mechanism`): others may tell whose"
    must(not more, "mixed", rule, f"{more} more column{'s' if more > 1 else ''}")
