"""The batches that a mixer handed on, as tables: one a batch, a row a report, and nothing that tells who sent it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from hybridp.curator import mean as curating
from hybridp.curator import shares as counting
from hybridp.curator import vector as vectors
from hybridp.curator.reports import slots_told
from hybridp.curator.sources import Rows, TableLike, open_rows
from hybridp.errors import OtherMechanism, UnusablePublicRows, must
from hybridp.protocols.mean_receipt import MixedReports
from hybridp.public.messages import Invite, LocalSummary, SlotReports, reports_digest
from hybridp.public.shares import ShareInvite, ShareReports
from hybridp.public.shuffling import Mixing
from hybridp.public.trust import TrustRule
from hybridp.public.vector import VectorInvite, VectorReportSums

__all__ = ["Batches", "SlotsAsked", "read_batches"]

S = TypeVar("S", LocalSummary, ShareReports, VectorReportSums, SlotReports)
_EVERYBODY = TrustRule(everyone="local")


@dataclass(frozen=True, slots=True)
class SlotsAsked:
    """Reports of one slot among so many, by the mechanism with this text."""

    text: str
    slots: int


@dataclass(frozen=True, slots=True)
class Batches(Generic[S]):
    """The reports of all batches, a name for the set of them, and whether some say that they protect nobody.

    `assumed` is the mechanism that some do not name, and that they are taken to be made by.
    """

    reports: MixedReports[S] | None = None
    digest: str | None = None
    simulated: bool = False
    assumed: str | None = None

    @property
    def found(self) -> tuple[int, str | None]:
        return 0 if self.reports is None else self.reports.summary.people, self.digest


def read_batches(
    paths: Sequence[TableLike],
    invite: Invite | ShareInvite | VectorInvite | SlotsAsked | None,
    columns: curating.Columns | vectors.VectorColumns | None,
    mixing: Mixing | None,
    *,
    assume: bool = False,
) -> Batches[Any]:
    """Add up every batch by itself: its size decides what it keeps. Reports name their mechanism, as local ones do.

    `invite` is what went to the devices of people who trust the mixer, or None. Nothing in a report tells it from
    another, so that a batch has a name, in all of its rows: a batch that is given twice is refused, whole or in part,
    and so is one that holds reports of another. So is a table with any other column, or with a value in that of the
    answers, which a batch leaves empty: a report beside something that may tell who sent it is not mixed.
    """
    if not paths:
        return Batches()
    must(invite is not None, "mixed", "must go with the least size of a batch (--batch)", "none")
    assert mixing is not None
    read, asked, own, (values, told), start = _kind(invite, columns)
    parts, names, digests, simulated, assumed = [], set(), [], False, False
    for path in paths:
        with open_rows(path, trust=_EVERYBODY) as rows:
            name = _alone(rows, values, told, start)
            try:
                found = read(rows, own, asked, assume=assume)
            except OtherMechanism as problem:
                raise UnusablePublicRows(
                    f"{problem} A report to a mixer is drawn for a least size of its batch: give the --batch that the "
                    f"devices were given, and the same promise of the mixer. Got --batch {mixing.batch}."
                ) from None
        must(name not in names, "mixed", f"must name every batch once (`{start}_batch`)", "the same name twice")
        names.add(name)
        parts.append(found.local)
        digests.append(str(found.digest))
        simulated = simulated or found.simulated_reports
        assumed = assumed or found.assumed
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    sizes = tuple(part.people for part in parts)
    digest = reports_digest(asked.text, *sorted(digests))
    return Batches(MixedReports(total, sizes), digest, simulated, asked.text if assumed else None)


def _kind(invite: Any, columns: Any) -> tuple[Any, Any, Any, tuple[tuple[str, ...], tuple[str, ...]], str]:
    """How a batch of such reports is read, asked about what, in which columns, and how the names of the others begin.

    The columns are those of the answers, and of the reports. The others say how a report was made, and in which batch
    it came.
    """
    if isinstance(invite, SlotsAsked):
        return _slots, invite, None, ((), ("report",)), "report"
    if isinstance(invite, VectorInvite):
        own: Any = replace(columns, trust=_EVERYBODY, person=None)
        asked: Any = replace(invite, question=columns.values)
        start = columns.mechanism.removesuffix("_mechanism")
        return vectors.read, asked, own, (columns.values, columns.reports), start
    own, held = curating.Columns(columns.value, _EVERYBODY, columns.report), ((columns.value,), (columns.report,))
    if isinstance(invite, Invite):
        return curating.read, replace(invite, question=(columns.value,)), own, held, columns.report
    return counting.read, invite, own, held, columns.report


@dataclass(frozen=True, slots=True)
class _Slots:
    local: SlotReports
    digest: str
    simulated_reports: bool
    assumed: bool


def _slots(rows: Rows, own: None, asked: SlotsAsked, *, assume: bool) -> _Slots:
    told = slots_told(rows, asked.text, asked.slots, assume=assume)
    return _Slots(SlotReports(int(told.counts.sum()), told.counts), told.digest, told.simulated, told.assumed)


def _alone(rows: Rows, values: tuple[str, ...], reports: tuple[str, ...], start: str) -> str:
    """The batch's name. There must be one, and nothing beside the reports."""
    told, held = (f"{start}_mechanism", f"{start}_batch"), (*values, *reports)
    more = len({*rows.written} - {*held, *told})
    rule = f"must hold nothing but reports ({', '.join(f'`{name}`' for name in (*held, *told))}): others may tell whose"
    must(not more, "mixed", rule, f"{more} more column{'s' if more > 1 else ''}")
    rule = f"must hold nothing in {', '.join(f'`{name}`' for name in values)}: reports stand for the answers"
    must(counting.all_empty(rows, values), "mixed", rule, "a value")
    names = counting.batch_names(rows, told[1])
    rule = f"must hold one name of the batch in `{told[1]}`, the same in every row"
    must(len(names) == 1 and names != [""], "mixed", rule, f"{len(names)} names" if any(names) else "none")
    return names[0]
