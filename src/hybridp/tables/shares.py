"""How many people chose each option, read from a table under the rules of `hybridp.tables.mean`: one grouped count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import UnusablePublicRows, UnusableRows, must
from hybridp.public.distribution import ReportBins
from hybridp.public.shares import tick_counts
from hybridp.tables.columns import local_rows, unlabelled
from hybridp.tables.engine import answers, stream
from hybridp.tables.mean import MeanQuery, check_columns, check_people
from hybridp.tables.source import Rows
from hybridp.tables.sql import both, cast, code_of, column, exp, named

__all__ = ["ShareTotals", "report_counts", "report_texts", "share_totals", "stretch_counts"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False, slots=True)
class ShareTotals:
    """RAW: exact counts of the trusted people's options. Replacing one person moves one count down and another up by 1.

    `local_counts` are counts of what local people report (options by name), or, in a simulation, of what they hold.
    By a private category of a number, trusted people are counted by it, and `trusted_steps` are the sums of levels.
    """

    trusted_people: int
    trusted_counts: Ints
    local_people: int
    local_counts: Ints
    trusted_steps: Ints | None = None
    local_sets: tuple[Ints, Ints] | None = None
    """Where people have several options, in a simulation: the sets that local people hold, and how many hold each."""


def share_totals(rows: Rows, query: MeanQuery, *, named: bool) -> ShareTotals:
    """The counts of `query.feature`; `named`: local reports name an option, and are counted here.

    Labels, people and reports are refused where they break a rule; a trusted person's field never is.

    >>> import pathlib, tempfile
    >>> from hybridp.public.queries import Feature
    >>> from hybridp.tables import open_rows
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "people.csv")
    >>> _ = file.write_text("smokes,trust,report\\nyes,trusted,\\nwell,trusted,\\n,local,yes\\n")
    >>> query = MeanQuery(value="smokes", trust="trust", report="report", lower=0, upper=1,
    ...                   feature=Feature("smokes", ("yes", "no"), absent="no"))
    >>> with open_rows(file) as rows:
    ...     totals = share_totals(rows, query, named=True)
    >>> totals.trusted_counts.tolist(), totals.local_counts.tolist()
    ([1, 1], [1, 0])
    >>> folder.cleanup()
    """
    from hybridp.tables.queries import flags

    assert query.feature is not None or query.by is not None
    check_columns(rows, query)
    if query.feature is not None and not query.feature.edges and rows.columns[query.value] in ("FLOAT", "DOUBLE"):
        raise UnusablePublicRows(
            f"Column `{query.value}` must hold text or whole numbers to be one of several options."
        )
    groups = answers(rows, _counted(rows, query, named=named))
    sides: dict[Any, Counter[str]] = {}
    for group in groups:
        side = sides.setdefault(group["trusted"], Counter())
        side.update({name: int(group[name] or 0) for name in ("records", "local", *flags(query))})
    empty: Counter[str] = Counter()
    trusted, local = sides.get(True, empty), sides.get(False, empty)
    nobody = None in sides or local["local"] != local["records"]
    check_people([*sides.values()], local, query, missing=unlabelled(rows, query.trust) if nobody else None)
    counted = "first" if "first" in flags(query) else "records"
    people = trusted[counted], local[counted]
    if people[1] and not query.local_raw and query.report is None:
        raise UnusablePublicRows(
            f"{local_rows(query.trust)}, and no column holds their reports: make them with "
            "`hybridp randomise`, or add --simulate-local for a trial on raw rows."
        )
    if query.feature is not None and query.feature.most:
        return _ticked_totals(rows, query, groups, counted, people)
    size = len(query.cells) if query.by is not None else query.feature.size if query.feature is not None else 0
    found = {side: np.zeros(size, dtype=np.int64) for side in (True, False)}
    steps = np.zeros(size, dtype=np.int64)
    for group in groups:
        if group["slot"] is not None and int(group["slot"]) >= 0:
            found[bool(group["trusted"])][int(group["slot"])] += int(group[counted] or 0)
            if group["trusted"]:
                steps[int(group["slot"])] += int(group.get("steps") or 0)
    if int(found[True].sum()) != people[0]:
        raise UnusableRows(f"The rows of {rows.name} must not change while they are read.")
    if (named or query.local_raw) and int(found[False].sum()) != people[1]:
        raise UnusablePublicRows(f"Column `{query.report}` must name one of the options in every local row.")
    if query.feature is None and query.by is not None:
        own = query.by.size
        return ShareTotals(people[0], found[True][:own], people[1], found[False], steps[:own])
    return ShareTotals(people[0], found[True], people[1], found[False])


def _ticked_totals(
    rows: Rows, query: MeanQuery, groups: list[dict[str, Any]], counted: str, people: tuple[int, int]
) -> ShareTotals:
    """The same where people have several options: trusted people's ticks, and reports by their names."""
    assert query.feature is not None
    sides: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    for group in groups:
        if group["slot"] is not None and int(group["slot"]) >= 0:
            sides[bool(group["trusted"])][int(group["slot"])] += int(group[counted] or 0)
    held = {side: tuple(np.array(list(part), dtype=np.int64) for part in (found.keys(), found.values()))
            for side, found in sides.items()}  # fmt: skip
    if int(held[True][1].sum()) != people[0]:
        raise UnusableRows(f"The rows of {rows.name} must not change while they are read.")
    told = np.zeros(len(query.cells), dtype=np.int64)
    sets: tuple[Ints, Ints] | None = None
    if query.local_raw:
        sets = held[False][0], held[False][1]
    else:
        for slot, many in sides[False].items():
            told[slot] += many
        if int(told.sum()) != people[1]:
            raise UnusablePublicRows(f"Column `{query.report}` must say yes or no to one option in every local row.")
    return ShareTotals(people[0], tick_counts(held[True][0], held[True][1], query.feature), people[1], told, None, sets)


def report_texts(rows: Rows, query: MeanQuery, chunk: int) -> Iterator[list[str | None]]:
    """Local people's reports as they were sent, some at a time, after the rules of `share_totals`."""
    from hybridp.tables.queries import flags, people

    must(query.reads_reports, "report", "must be read", query.report)
    wanted = [column("local"), *([column("first")] if "first" in flags(query) else [])]
    asked = exp.select(named(cast(column("sent"), "text"), "sent")).from_(people(rows, query).subquery("people"))
    for part in stream(rows, asked.where(both(*wanted)), chunk):
        yield np.ma.asarray(part["sent"], dtype=object).tolist()


def _counted(rows: Rows, query: MeanQuery, *, named: bool) -> Any:
    """Records, people and problems of each group by the option held or reported; -1 where none was named."""
    from hybridp.tables import sql
    from hybridp.tables.queries import TIMES, alike, flags, people, stride

    slot: Any = sql.column("level")
    steps: dict[str, Any] = {}
    if query.feature is None:  # of a number by category: the category, and beside it the sum of the numbers' levels
        whole = stride(None, query.lattice)
        scaled = exp.Mul(this=sql.cast(sql.column("level"), "double"), expression=sql.double(1 / whole))
        slot = sql.cast(exp.Floor(this=scaled), "bigint")
        rest = exp.Sub(this=sql.column("level"), expression=exp.Mul(this=slot.copy(), expression=sql.whole(whole)))
        steps = {"steps": sql.cast(exp.Sum(this=sql.column("rest")), "bigint")}
    if named and query.reads_reports:
        names = query.cells or (query.feature.values if query.feature is not None else ())
        code = sql.cast(code_of(sql.cast(sql.column("sent"), "text"), names), "bigint")
        told = exp.Coalesce(this=code, expressions=[sql.whole(-1)])
        slot = exp.Case().when(sql.column("trusted"), slot).else_(told)
    outputs = [sql.column(name) for name in ("trusted", "local", *flags(query))]
    outputs += [sql.named(rest, "rest")] if steps else []
    # Of people, options and reports that name an option there are few: those alike are counted before anything else.
    few = query.person is None and query.by is None and query.feature is not None and not query.feature.edges
    few = few and (named or not query.reads_reports)
    outputs += [sql.column(TIMES)] if few else []
    chosen = (alike if few else people)(rows, query)
    coded = exp.select(*outputs, sql.named(slot, "slot")).from_(chosen.subquery("people"))
    asked: dict[str, Any] = {"records": exp.Count(this=exp.Star()), "local": sql.count_if(sql.column("local"))}
    if few:
        local = exp.Mul(this=sql.cast(sql.column("local"), "int"), expression=sql.column(TIMES))
        asked = {"records": sql.cast(exp.Sum(this=sql.column(TIMES)), "bigint"),
                 "local": sql.cast(exp.Sum(this=local), "bigint")}  # fmt: skip
    asked |= {flag: sql.count_if(sql.column(flag)) for flag in flags(query)} | steps
    keys = [sql.column("trusted"), sql.column("slot")]
    outputs = [*(key.copy() for key in keys), *(sql.named(this, name) for name, this in asked.items())]
    return exp.select(*outputs).from_(coded.subquery("coded")).group_by(*keys)


# --- counts by stretch of a number's range, and of reports by public bins ---------------------------------------------


def stretch_counts(rows: Rows, query: MeanQuery, cuts: Sequence[int], people: int) -> Ints:
    """RAW: how many trusted people have a level at or below each cut and above the one before, and above the last.

    Replacing one person moves one count down and another up by 1. The rules of `mean_totals` have been checked.
    """
    from hybridp.tables import sql

    must(all(a < b for a, b in pairwise(cuts)), "cuts", "must rise", "others")
    slot: Any = exp.Case()
    for place, cut in enumerate(cuts):
        slot = slot.when(exp.LTE(this=sql.column("level"), expression=sql.whole(cut)), sql.whole(place))
    counts = np.zeros(len(cuts) + 1, dtype=np.int64)
    for group in answers(rows, _grouped(rows, query, slot.else_(sql.whole(len(cuts))), "trusted")):
        counts[int(group["slot"])] += int(group["records"])
    if int(counts.sum()) != people:
        raise UnusableRows(f"The rows of {rows.name} must not change while they are read.")
    return counts


def report_counts(rows: Rows, query: MeanQuery, bins: ReportBins, people: int) -> Ints:
    """How many local reports lie in each bin. Reports are private already; the rules have been checked."""
    from hybridp.tables import sql

    half = query.report_half
    moved = exp.paren(exp.Sub(this=sql.column("sent_number"), expression=sql.double(query.report_centre)))
    plus = exp.GT(this=moved, expression=sql.double(0.0))

    def place(start: float) -> Any:
        shifted = exp.paren(exp.Sub(this=moved.copy(), expression=sql.double(start * half)))
        step = exp.Floor(this=exp.Div(this=shifted, expression=sql.double(bins.width * half)))
        inside = exp.Case().when(exp.LT(this=step, expression=sql.double(0.0)), sql.double(0.0))
        last = sql.double(float(bins.count - 1))
        return inside.when(exp.GT(this=step.copy(), expression=last), last.copy()).else_(step.copy())

    slot: Any = place(bins.starts[0])
    if bins.signed:
        above = exp.Add(this=place(bins.starts[1]), expression=sql.double(float(bins.count)))
        slot = exp.Case().when(plus, above).else_(slot)
    counts = np.zeros(bins.size, dtype=np.int64)
    for group in answers(rows, _grouped(rows, query, sql.cast(slot, "bigint"), "local")):
        counts[int(group["slot"])] += int(group["records"])
    if int(counts.sum()) != people:
        raise UnusableRows(f"The rows of {rows.name} must not change while they are read.")
    return counts


def _grouped(rows: Rows, query: MeanQuery, slot: Any, label: str) -> Any:
    from hybridp.tables import queries, sql

    wanted = [sql.column(label), *([sql.column("first")] if "first" in queries.flags(query) else [])]
    chosen = queries.people(rows, query).subquery("people")
    coded = exp.select(sql.named(slot, "slot")).from_(chosen).where(sql.both(*wanted)).subquery("coded")
    counted = exp.select(sql.column("slot"), sql.named(exp.Count(this=exp.Star()), "records")).from_(coded)
    return counted.group_by(sql.column("slot"))
