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
from hybridp.tables import queries
from hybridp.tables.columns import local_rows, unlabelled
from hybridp.tables.engine import answers, stream
from hybridp.tables.mean import MeanQuery, check_columns, check_people
from hybridp.tables.source import Rows
from hybridp.tables.sql import chosen, code_of, column, count_if, double, select, text, whole

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
        side.update({name: int(group[name] or 0) for name in ("records", "local", *queries.flags(query))})
    empty: Counter[str] = Counter()
    trusted, local = sides.get(True, empty), sides.get(False, empty)
    nobody = None in sides or local["local"] != local["records"]
    check_people([*sides.values()], local, query, missing=unlabelled(rows, query.trust) if nobody else None)
    counted = "first" if "first" in queries.flags(query) else "records"
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
    must(query.reads_reports, "report", "must be read", query.report)
    everybody = f"({queries.people(rows, query)}) AS people"
    asked = select({"sent": text("sent")}, everybody, f"WHERE {queries.one_each(query, 'local')}")
    for part in stream(rows, asked, chunk):
        yield np.ma.asarray(part["sent"], dtype=object).tolist()


def _counted(rows: Rows, query: MeanQuery, *, named: bool) -> str:
    """Records, people and problems of each group by the option held or reported; -1 where none was named."""
    slot, outputs = "level", chosen(["trusted", "local", *queries.flags(query)])
    asked = {"records": "COUNT(*)", "local": count_if("local")}
    # Of people, options and reports that name an option there are few: those alike are counted before anything else.
    few = query.person is None and query.by is None and query.feature is not None and not query.feature.edges
    if few and (named or not query.reads_reports):
        everybody, times = queries.alike(rows, query), column(queries.TIMES)
        outputs[queries.TIMES] = times
        asked = {"records": f"CAST(SUM({times}) AS BIGINT)"}
        asked["local"] = f"CAST(SUM(CAST(local AS INT) * {times}) AS BIGINT)"
    else:
        everybody = queries.people(rows, query)
    asked |= {flag: count_if(flag) for flag in queries.flags(query)}
    if query.feature is None:  # of a number by category: the category, and beside it the sum of the numbers' levels
        stride = queries.stride(None, query.lattice)
        slot = f"CAST(FLOOR(CAST(level AS DOUBLE) * {double(1 / stride)}) AS BIGINT)"
        outputs["rest"] = f"level - {slot} * {whole(stride)}"
        asked["steps"] = "CAST(SUM(rest) AS BIGINT)"
    if named and query.reads_reports:
        names = query.cells or (query.feature.values if query.feature is not None else ())
        told = f"COALESCE(CAST({code_of(text('sent'), names)} AS BIGINT), {whole(-1)})"
        slot = f"CASE WHEN trusted THEN {slot} ELSE {told} END"
    coded = select(outputs | {"slot": slot}, f"({everybody}) AS people")
    return select(chosen(["trusted", "slot"]) | asked, f"({coded}) AS coded", "GROUP BY trusted, slot")


# --- counts by stretch of a number's range, and of reports by public bins ---------------------------------------------


def stretch_counts(rows: Rows, query: MeanQuery, cuts: Sequence[int], people: int) -> Ints:
    """RAW: how many trusted people have a level at or below each cut and above the one before, and above the last.

    Replacing one person moves one count down and another up by 1. The rules of `mean_totals` have been checked.
    """
    must(all(a < b for a, b in pairwise(cuts)), "cuts", "must rise", "others")
    cases = " ".join(f"WHEN level <= {whole(cut)} THEN {whole(place)}" for place, cut in enumerate(cuts))
    slot = f"CASE {cases} ELSE {whole(len(cuts))} END" if cuts else whole(0)
    return _grouped(rows, query, slot, len(cuts) + 1, "trusted", people)


def report_counts(rows: Rows, query: MeanQuery, bins: ReportBins, people: int) -> Ints:
    """How many local reports lie in each bin. Reports are private already; the rules have been checked."""
    half, moved = query.report_half, f"(sent_number - {double(query.report_centre)})"

    def place(start: float) -> str:
        step = f"FLOOR(({moved} - {double(start * half)}) / {double(bins.width * half)})"
        first, last = double(0.0), double(float(bins.count - 1))
        return f"CASE WHEN {step} < {first} THEN {first} WHEN {step} > {last} THEN {last} ELSE {step} END"

    slot = place(bins.starts[0])
    if bins.signed:
        above = f"{place(bins.starts[1])} + {double(float(bins.count))}"
        slot = f"CASE WHEN {moved} > {double(0.0)} THEN {above} ELSE {slot} END"
    return _grouped(rows, query, f"CAST({slot} AS BIGINT)", bins.size, "local", people)


def _grouped(rows: Rows, query: MeanQuery, slot: str, slots: int, label: str, people: int) -> Ints:
    everybody = f"({queries.people(rows, query)}) AS people"
    coded = select({"slot": slot}, everybody, f"WHERE {queries.one_each(query, label)}")
    counts = np.zeros(slots, dtype=np.int64)
    for group in answers(rows, f"SELECT slot, COUNT(*) AS records FROM ({coded}) AS coded GROUP BY slot"):
        counts[int(group["slot"])] += int(group["records"])
    if int(counts.sum()) != people:
        raise UnusableRows(f"The rows of {rows.name} must not change while they are read.")
    return counts
