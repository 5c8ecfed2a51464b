"""Counts of people: by the option that they have or report, by stretch of a number's range, by public bins of reports;
and the codes of whole tables.

Everything of trusted people is exact, and raw: it needs noise before it may be released.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.distribution import ReportBins
from hybridp.public.queries import Schema
from hybridp.public.randomisers import Ints
from hybridp.public.shares import tick_counts
from hybridp.tables import engine, totals
from hybridp.tables.engine import VIEW, Rows, answers, chosen, column, count_if, double, select, text, whole
from hybridp.tables.totals import TIMES, ByCategory, Category, Number, Query, Totals, feature_code, people

__all__ = ["check_schema", "codes", "count_options", "domain", "report_counts", "report_texts", "stretch_counts"]

# --- options ----------------------------------------------------------------------------------------------------------


def count_options(rows: Rows, query: Query, *, named: bool) -> Totals:
    """How many people have each option; `named`: local reports name one of `query.names`, and are counted here.

    Labels, people and reports are refused where they break a rule; a trusted person's field never is. Of a number by a
    private category, people are counted by it, and the sums are those of the numbers' levels.

    >>> from hybridp.public.queries import Feature
    >>> from hybridp.tables import Report, open_rows
    >>> trust, report = ["trusted", "trusted", "local"], ["", "", "yes"]
    >>> feature = Feature("smokes", ("yes", "no"), absent="no")
    >>> query = Query(values=(Category(feature),), trust="trust", reports=(Report("report", text=True),),
    ...               names=feature.values)
    >>> with open_rows({"smokes": ["yes", "well", ""], "trust": trust, "report": report}) as rows:
    ...     found = count_options(rows, query, named=True)
    >>> found.sums.tolist(), found.report_counts.tolist()
    ([1, 1], [1, 0])
    """
    totals.check_columns(rows, query)
    groups, counted = answers(rows, _counted(rows, query, named=named)), query.each
    own, others = totals.people_of(rows, query, groups)
    if others and not query.local_raw and not query.reports:
        raise totals.no_reports(query.trust)
    held: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    steps: Counter[int] = Counter()
    for group in groups:
        if group["slot"] is not None and int(group["slot"]) >= 0:
            held[bool(group["trusted"])][int(group["slot"])] += int(group[counted] or 0)
            steps[int(group["slot"])] += int(group.get("steps") or 0) if group["trusted"] else 0
    if held[True].total() != own:
        raise totals.changed(rows)
    if (named or query.local_raw) and held[False].total() != others:
        what = "say yes or no to one option" if _ticks(query) else "name one of the options"
        engine.column_must(False, query.reports[0].column, f"must {what} in every local row")
    codec = query.values[0]
    told = _listed(Counter() if _ticks(query) and query.local_raw else held[False], len(query.names))
    if isinstance(codec, ByCategory) and isinstance(codec.answer, Number):
        size = codec.by.size
        return Totals(own, _listed(steps, size), others, told, counts=_listed(held[True], size))
    if not isinstance(codec, Category) or not codec.feature.most:
        return Totals(own, _listed(held[True], len(query.names)), others, told)
    own_sets, local_sets = (np.array([*sets.items()], dtype=np.int64).reshape(-1, 2).T for sets in held.values())
    counts = tick_counts(own_sets[0], own_sets[1], codec.feature)
    return Totals(own, counts, others, told, held=(local_sets[0], local_sets[1]))


def _ticks(query: Query) -> bool:
    """Whether people have several options, so that what they hold is a set of them."""
    return isinstance(query.values[0], Category) and bool(query.values[0].feature.most)


def _listed(counts: Counter[int], size: int) -> Ints:
    return np.array([counts[i] for i in range(size)], dtype=np.int64)


def report_texts(rows: Rows, query: Query, chunk: int) -> Iterator[list[str | None]]:
    """Local people's reports as they were sent, some at a time, after the rules of `count_options`."""
    rows = engine.local_copy(rows, query.columns)
    asked = select({"sent": text("sent0")}, f"({people(rows, query)}) AS people", f"WHERE {query.one_each('local')}")
    for part in engine.stream(rows, asked, chunk):
        yield np.ma.asarray(part["sent"], dtype=object).tolist()


def _counted(rows: Rows, query: Query, *, named: bool) -> str:
    """Records, people and problems of each group by the option held or reported; -1 where none was named."""
    codec, slot, outputs = query.values[0], "c0", chosen(["trusted", "local", *query.flags])
    asked = {"records": "COUNT(*)", "local": count_if("local")}
    # Of people, options and reports that name an option there are few: those alike are counted before anything else.
    few = query.person is None and isinstance(codec, Category) and not codec.feature.edges
    alike = few and (named or not query.sent)
    if alike:
        times = outputs[TIMES] = column(TIMES)
        asked = {"records": f"CAST(SUM({times}) AS BIGINT)"}
        asked["local"] = f"CAST(SUM(CAST(local AS INT) * {times}) AS BIGINT)"
    asked |= {flag: count_if(flag) for flag in query.flags}
    if isinstance(codec, ByCategory) and isinstance(codec.answer, Number):  # the category, and beside it the level
        slot = f"CAST(FLOOR(CAST(c0 AS DOUBLE) * {double(1 / codec.stride)}) AS BIGINT)"
        outputs["rest"] = f"c0 - {slot} * {whole(codec.stride)}"
        asked["steps"] = "CAST(SUM(rest) AS BIGINT)"
    if named and query.sent:
        told = f"COALESCE(CAST({totals.code_of(text('sent0'), query.names)} AS BIGINT), {whole(-1)})"
        slot = f"CASE WHEN trusted THEN {slot} ELSE {told} END"
    coded = select(outputs | {"slot": slot}, f"({people(rows, query, alike=alike)}) AS people")
    return select(chosen(["trusted", "slot"]) | asked, f"({coded}) AS coded", "GROUP BY trusted, slot")


# --- counts by stretch of a number's range, and of reports by public bins ---------------------------------------------


def stretch_counts(rows: Rows, query: Query, cuts: Sequence[int], people: int) -> Ints:
    """RAW: how many trusted people have a level at or below each cut and above the one before, and above the last.

    Replacing one person moves one count down and another up by 1. The rules have been checked.
    """
    must(all(a < b for a, b in pairwise(cuts)), "cuts", "must rise", "others")
    cases = " ".join(f"WHEN c0 <= {whole(cut)} THEN {whole(place)}" for place, cut in enumerate(cuts))
    slot = f"CASE {cases} ELSE {whole(len(cuts))} END" if cuts else whole(0)
    return _grouped(rows, query, slot, len(cuts) + 1, "trusted", people)


def report_counts(rows: Rows, query: Query, bins: ReportBins, people: int) -> Ints:
    """How many local reports lie in each bin. Reports are private already; the rules have been checked."""
    (report,) = query.sent
    half, moved = report.half, f"(number0 - {double(report.centre)})"

    def place(start: float) -> str:
        step = f"FLOOR(({moved} - {double(start * half)}) / {double(bins.width * half)})"
        first, last = double(0.0), double(float(bins.count - 1))
        return f"CASE WHEN {step} < {first} THEN {first} WHEN {step} > {last} THEN {last} ELSE {step} END"

    slot = place(bins.starts[0])
    if bins.signed:
        above = f"{place(bins.starts[1])} + {double(float(bins.count))}"
        slot = f"CASE WHEN {moved} > {double(0.0)} THEN {above} ELSE {slot} END"
    return _grouped(rows, query, f"CAST({slot} AS BIGINT)", bins.size, "local", people)


def _grouped(rows: Rows, query: Query, slot: str, slots: int, label: str, total: int) -> Ints:
    everybody = f"({people(rows, query)}) AS people"
    coded = select({"slot": slot}, everybody, f"WHERE {query.one_each(label)}")
    counts = np.zeros(slots, dtype=np.int64)
    for group in answers(rows, f"SELECT slot, COUNT(*) AS records FROM ({coded}) AS coded GROUP BY slot"):
        counts[int(group["slot"])] += int(group["records"])
    if int(counts.sum()) != total:
        raise totals.changed(rows)
    return counts


# --- whole tables of codes --------------------------------------------------------------------------------------------


def codes(rows: Rows, schema: Schema, *, trust: str | None = None, label: str = "trusted") -> NDArray[np.uint16]:
    """The codes of every row, one array for each feature, in one pass over the table.

    With `trust`, those of the rows with this label alone.
    """
    check_schema(rows, schema, declared=False)
    rows = engine.local_copy(rows, [*schema.names, trust])
    outputs = {f"c{i}": feature_code(rows, feature) for i, feature in enumerate(schema.features)}
    here = "" if trust is None else f"WHERE {engine.labelled(column(trust), label)}"
    result = engine.arrays(rows, select(outputs, VIEW, here))
    return np.stack([np.asarray(result[name]) for name in outputs], dtype=np.uint16, casting="unsafe")


def domain(rows: Rows, name: str, most: int) -> list[str | None]:
    """NOT PRIVATE: the distinct values of a column as text, in no order; a few more than `most` at the most."""
    rows.need("columns", name)
    result = answers(rows, f"SELECT DISTINCT {text(column(name))} AS v FROM {VIEW} LIMIT {most + 2}")
    return [row["v"] for row in result]


def check_schema(rows: Rows, schema: Schema, *, declared: bool) -> None:
    """Refuse columns whose types have no codes; and, where it must be `declared`, a column of which nobody said what a
    field counts as that is missing or not listed.

    A type with a number in every row needs no word where numbers are cut into bins: each of them is in one.
    """
    for feature in schema.features:
        rows.need("columns", feature.name)
        if declared and feature.edges:
            rows.need_missing(feature.name, feature.stated or None, engine.TABLES)
        elif declared and not feature.stated:
            raise engine.unstated(feature.name, engine.TABLES)
    for feature in schema.features:
        if feature.edges:
            rows.need_number(feature.name)
        else:
            rows.need_words(feature.name, ", or be cut into bins")
