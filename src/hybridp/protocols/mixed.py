"""The batches that a mixer handed on, as tables: one a batch, a row a report, and nothing that tells who sent it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hybridp.curator import options, sums
from hybridp.curator import personal as by_epsilon
from hybridp.curator.reports import all_empty, batch_names, slots_told, some_texts
from hybridp.curator.sources import Columns, Rows, TableLike, VectorColumns, epsilon_counts, open_rows
from hybridp.errors import OtherMechanism, UnusablePublicRows, must
from hybridp.public.lattice import Bounds
from hybridp.public.messages import (
    Invite,
    LocalSummary,
    ReportsByEpsilon,
    SlotReports,
    own_epsilon_text,
    reports_digest,
)
from hybridp.public.shares import ShareInvite, ShareReports
from hybridp.public.shuffling import MOST_LEVELS, LevelMixing, Mixing
from hybridp.public.trust import TrustRule
from hybridp.public.vector import VectorInvite, VectorReportSums
from hybridp.tasks.protections import Batches, LevelBatches, mixed_levels

__all__ = ["SlotsAsked", "read_batches", "read_level_batches", "written_levels"]

S = TypeVar("S", LocalSummary, ShareReports, VectorReportSums, SlotReports)
_EVERYBODY = TrustRule(everyone="local")


@dataclass(frozen=True, slots=True)
class SlotsAsked:
    """Reports of one slot among so many, by the mechanism with this text."""

    text: str
    slots: int


def read_batches(
    paths: Sequence[TableLike],
    invite: Invite | ShareInvite | VectorInvite | SlotsAsked | None,
    columns: Columns | VectorColumns | None,
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
    read, asked, own, held, start = _kind(invite, columns)

    def one(rows: Rows) -> tuple[Any, Any, bool, bool]:
        try:
            found = read(rows, own, asked, assume=assume)
        except OtherMechanism as problem:
            raise UnusablePublicRows(
                f"{problem} A report to a mixer is drawn for a least size of its batch: give the --batch that the "
                f"devices were given, and the same promise of the mixer. Got --batch {mixing.batch}."
            ) from None
        return found.local, found.digest, found.simulated_reports, found.assumed

    return Batches(*_added_up(paths, asked.text, held, start, one))


def _added_up(
    paths: Sequence[TableLike], text: str, held: tuple[tuple[str, ...], tuple[str, ...]], start: str,
    read: Callable[[Rows], tuple[Any, Any, bool, bool]],
) -> tuple[tuple[Any, ...], str, bool, str | None]:  # fmt: skip
    """Every batch by itself, each once: its reports, what names all of them, and what is said of how they were made."""
    found = []
    names: set[str] = set()
    for path in paths:
        with open_rows(path, trust=_EVERYBODY) as rows:
            name = _alone(rows, *held, start)
            found.append(read(rows))
        must(name not in names, "mixed", f"must name every batch once (`{start}_batch`)", "the same name twice")
        names.add(name)
    digest = reports_digest(text, *sorted(str(digest) for _, digest, _, _ in found))
    assumed = text if any(assumed for _, _, _, assumed in found) else None
    return tuple(part for part, _, _, _ in found), digest, any(simulated for _, _, simulated, _ in found), assumed


def read_level_batches(
    paths: Sequence[TableLike], columns: Columns, epsilon: str, bounds: Bounds, *, assume: bool = False
) -> LevelBatches:
    """Add up every batch by itself and by its people's epsilons, which the column `epsilon` holds.

    What is refused is refused as in `read_batches`; and an epsilon that is written in two ways, as if its people were
    of two kinds.
    """
    own = Columns(columns.value, _EVERYBODY, columns.report)
    start = columns.report or "report"

    def one(rows: Rows) -> tuple[Any, Any, bool, bool]:
        totals, sent = by_epsilon.read(rows, own, epsilon, bounds, assume=assume)
        levels = len(totals.local_epsilons)
        must(levels <= MOST_LEVELS, "mixed", f"must hold at most {MOST_LEVELS} different epsilons", f"{levels:,}")
        alike = not rows.is_text(epsilon) or len(some_texts(rows, epsilon, levels + 1)) == levels
        must(alike, "mixed", f"must hold every epsilon of `{epsilon}` written in one way: two may tell whose", "two")
        part = ReportsByEpsilon(totals.local_epsilons, totals.local_people, totals.report_sums, totals.report_squares)
        return part, sent.digest, sent.simulated, sent.assumed

    text, held = own_epsilon_text(bounds, (columns.value,)), ((columns.value,), (start, epsilon))
    found = LevelBatches(*_added_up(paths, text, held, start, one))
    many = len(found.sizes)
    must(many <= MOST_LEVELS, "mixed", f"must hold at most {MOST_LEVELS} different epsilons", f"{many:,}")
    return found


def written_levels(mixing: LevelMixing, batch: TableLike, epsilon: str) -> dict[str, Any]:
    """What the people of each epsilon keep in a batch that was written, as plain data."""
    with open_rows(batch) as rows:
        told = zip(*(numbers.tolist() for numbers in epsilon_counts(rows, epsilon)), strict=True)
    levels = []
    for level in mixed_levels(mixing, {own: (people,) for own, people in told}):
        own = level.epsilon if math.isfinite(level.epsilon) else "inf"
        kept: dict[str, Any] = {"epsilon": own, "delta": 0.0}
        if level.batches:
            kept = {"epsilon": level.batches[0].budget.epsilon, "delta": mixing.delta}
        levels.append({"local_epsilon": own, "people": level.people, "unhidden": level.unhidden, **kept})
    return {"least": mixing.batch, "levels": levels}


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
        return sums.read, asked, own, (columns.values, columns.reports), start
    own, held = Columns(columns.value, _EVERYBODY, columns.report), ((columns.value,), (columns.report,))
    if isinstance(invite, Invite):
        return sums.read, replace(invite, question=(columns.value,)), own, held, columns.report
    return options.read, invite, own, held, columns.report


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
    must(all_empty(rows, values), "mixed", rule, "a value")
    names = batch_names(rows, told[1])
    rule = f"must hold one name of the batch in `{told[1]}`, the same in every row"
    must(len(names) == 1 and names != [""], "mixed", rule, f"{len(names)} names" if any(names) else "none")
    return names[0]
