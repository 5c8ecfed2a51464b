"""The batches that a mixer handed on, as tables: one a batch, a row a report, and nothing that tells who sent it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from hybridp.curator import mean as curating
from hybridp.curator import shares as counting
from hybridp.curator.sources import Rows, TableLike, open_rows
from hybridp.errors import must
from hybridp.protocols.mean_receipt import MixedReports
from hybridp.public.messages import Invite, LocalSummary, reports_digest
from hybridp.public.shares import ShareReports
from hybridp.public.trust import TrustRule

__all__ = ["Batches", "read_batches"]

S = TypeVar("S", LocalSummary, ShareReports)
_EVERYBODY = TrustRule(everyone="local")


@dataclass(frozen=True, slots=True)
class Batches(Generic[S]):
    """The reports of all batches, a name for the set of them, and whether some say that they protect nobody."""

    reports: MixedReports[S] | None = None
    digest: str | None = None
    simulated: bool = False

    @property
    def found(self) -> tuple[int, str | None]:
        return 0 if self.reports is None else self.reports.summary.people, self.digest


def read_batches(
    paths: Sequence[TableLike], invite: Any, columns: curating.Columns, *, assume: bool = False
) -> Batches[Any]:
    """Add up every batch by itself: its size decides what it keeps. Reports name their mechanism, as local ones do.

    `invite` is what went to the devices of people who trust the mixer: an `Invite`, a `ShareInvite`, or None. The
    very same batch given twice is refused: its reports would count twice. So is a table with any other column: a report
    beside something that may tell who sent it is not mixed.
    """
    if not paths:
        return Batches()
    must(invite is not None, "mixed", "must go with the least size of a batch (--batch)", "none")
    read: Any = curating.read if isinstance(invite, Invite) else counting.read
    asked = replace(invite, question=(columns.value,)) if isinstance(invite, Invite) else invite
    own = curating.Columns(columns.value, _EVERYBODY, columns.report)
    parts, names, simulated = [], [], False
    for path in paths:
        with open_rows(path, trust=_EVERYBODY) as rows:
            _must_be_alone(rows, own, counted=not isinstance(invite, Invite))
            found = read(rows, own, asked, assume=assume)
        must(str(found.digest) not in names, "mixed", "must name every batch once", "the same reports twice")
        parts.append(found.local)
        names.append(str(found.digest))
        simulated = simulated or found.simulated_reports
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    sizes = tuple(part.people for part in parts)
    return Batches(MixedReports(total, sizes), reports_digest(asked.text, *sorted(names)), simulated)


def _must_be_alone(rows: Rows, columns: curating.Columns, *, counted: bool) -> None:
    """Nothing beside the reports; of reports that are counted, one name of the batch for all of them."""
    more = len({*rows.written} - {columns.value, columns.report, f"{columns.report}_mechanism"})
    if counted and f"{columns.report}_batch" in rows.written:
        names = len(counting.batch_names(rows, columns))
        must(names <= 1, "mixed", f"must hold one name of the batch in `{columns.report}_batch`", f"{names} names")
        more -= 1
    rule = f"must hold nothing but reports (`{columns.report}`, `{columns.report}_mechanism`): others may tell whose"
    must(not more, "mixed", rule, f"{more} more column{'s' if more > 1 else ''}")
