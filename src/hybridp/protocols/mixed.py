"""The batches that a mixer handed on, as tables: one a batch, a row a report, and nothing that tells who sent it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from hybridp.curator import sums
from hybridp.curator.reports import Sent, all_empty, batch_names, slots_told, some_texts
from hybridp.curator.sources import Columns, Rows, TableLike, epsilon_counts, open_rows
from hybridp.errors import OtherMechanism, UnusablePublicRows, must
from hybridp.public.lattice import Bounds
from hybridp.public.messages import (
    Invite,
    LocalSummary,
    OwnEpsilon,
    SlotReports,
    reports_digest,
)
from hybridp.public.shares import ShareReports
from hybridp.public.shuffling import MOST_LEVELS, LevelMixing, Mixing
from hybridp.public.trust import TrustRule
from hybridp.public.vector import VectorReportSums
from hybridp.tasks.task import Batches, LevelBatches, mixed_levels

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
    invite: Invite[Any, Any] | SlotsAsked | None,
    columns: Columns | None,
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
    held: _Held = ((), ("report",))
    text, start = invite.text, "report"  # type: ignore[union-attr]
    if columns is not None:
        own, held, start = _everybody(columns), (columns.names, columns.reports), columns.mechanism.rpartition("_")[0]
        asked: Any = replace(invite, question=columns.names)  # type: ignore[type-var]
        text = asked.text

    def read(rows: Rows) -> Sent:
        if isinstance(invite, SlotsAsked):
            return slots_told(rows, text, invite.slots, assume=assume)
        found = sums.read(rows, own, asked, assume=assume)
        return Sent(found.local, found.simulated_reports, found.assumed, found.digest)

    try:
        return Batches(*_added_up(paths, text, held, start, read))
    except OtherMechanism as problem:
        raise UnusablePublicRows(
            f"{problem} A report to a mixer is drawn for a least size of its batch: give the --batch that the devices "
            f"were given, and the same promise of the mixer. Got --batch {mixing.batch}."
        ) from None


def _everybody(columns: Columns) -> Columns:
    """The columns of a batch, which names nobody."""
    return Columns(columns.value, _EVERYBODY, columns.report)


_Held = tuple[tuple[str, ...], tuple[str, ...]]
"""The columns of the answers, and of the reports; the others say how a report was made, and in which batch it came."""


def _added_up(
    paths: Sequence[TableLike], text: str, held: _Held, start: str, read: Callable[[Rows], Sent]
) -> tuple[tuple[Any, ...], str, bool, str | None]:
    """Every batch by itself, each once: its reports, what names all of them, and what is said of how they were made."""
    found = []
    names: set[str] = set()
    for path in paths:
        with open_rows(path, trust=_EVERYBODY) as rows:
            name = _alone(rows, *held, start)
            found.append(read(rows))
        must(name not in names, "mixed", f"must name every batch once (`{start}_batch`)", "the same name twice")
        names.add(name)
    digest = reports_digest(text, *sorted(str(one.digest) for one in found))
    assumed = text if any(one.assumed for one in found) else None
    return tuple(one.reports for one in found), digest, any(one.simulated for one in found), assumed


def read_level_batches(
    paths: Sequence[TableLike], columns: Columns, epsilon: str, bounds: Bounds, *, assume: bool = False
) -> LevelBatches:
    """Add up every batch by itself and by its people's epsilons, which the column `epsilon` holds.

    What is refused is refused as in `read_batches`; and an epsilon that is written in two ways, as if its people were
    of two kinds.
    """
    own, start = _everybody(columns), columns.report or "report"

    def one(rows: Rows) -> Sent:
        found = sums.read(rows, own, invite, epsilon=epsilon, assume=assume)
        levels = len(found.local.epsilons)
        must(levels <= MOST_LEVELS, "mixed", f"must hold at most {MOST_LEVELS} different epsilons", f"{levels:,}")
        alike = not rows.is_text(epsilon) or len(some_texts(rows, epsilon, levels + 1)) == levels
        must(alike, "mixed", f"must hold every epsilon of `{epsilon}` written in one way: two may tell whose", "two")
        return Sent(found.local, found.simulated_reports, found.assumed, found.digest)

    invite, held = Invite(bounds, OwnEpsilon(), columns.names), (columns.names, (start, epsilon))
    found = LevelBatches(*_added_up(paths, invite.text, held, start, one))
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
