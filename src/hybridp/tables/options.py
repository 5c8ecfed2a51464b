"""Options: how many people have each, of which sets, and whole tables of their codes; and counts by public bins.

Codes are a function of one row and the public schema (`hybridp.tables.sql.feature_code`). Nothing but a type and a
declaration is refused, because a refusal would be an answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import UnusablePublicRows, must
from hybridp.public.distribution import ReportBins
from hybridp.public.queries import Schema
from hybridp.public.shares import tick_counts
from hybridp.tables.columns import ByCategory, Category, Number
from hybridp.tables.engine import answers, arrays, stream
from hybridp.tables.query import TIMES, Query, flags, one_each, people
from hybridp.tables.source import TABLES, VIEW, Rows, unstated
from hybridp.tables.sql import chosen, code_of, column, count_if, double, feature_code, labelled, select, text, whole
from hybridp.tables.totals import Totals, changed, check_columns, check_people, no_reports

__all__ = ["check_declared", "check_schema", "codes", "count_options", "domain", "report_counts", "report_texts"]
__all__ += ["stretch_counts"]

Ints = NDArray[np.int64]


def count_options(rows: Rows, query: Query, *, named: bool) -> Totals:
    """How many people have each option; `named`: local reports name one of `query.names`, and are counted here.

    Labels, people and reports are refused where they break a rule; a trusted person's field never is. Of a number by a
    private category, people are counted by it, and the sums are those of the numbers' levels.

    >>> import pathlib, tempfile
    >>> from hybridp.public.queries import Feature
    >>> from hybridp.tables import Report, open_rows
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "people.csv")
    >>> _ = file.write_text("smokes,trust,report\\nyes,trusted,\\nwell,trusted,\\n,local,yes\\n")
    >>> feature = Feature("smokes", ("yes", "no"), absent="no")
    >>> query = Query(values=(Category(feature),), trust="trust", reports=(Report("report", text=True),),
    ...               names=feature.values)
    >>> with open_rows(file) as rows:
    ...     totals = count_options(rows, query, named=True)
    >>> totals.sums.tolist(), totals.report_counts.tolist()
    ([1, 1], [1, 0])
    >>> folder.cleanup()
    """
    check_columns(rows, query)
    groups = answers(rows, _counted(rows, query, named=named))
    sides: dict[Any, Counter[str]] = {}
    for group in groups:
        side = sides.setdefault(group["trusted"], Counter())
        side.update({name: int(group[name] or 0) for name in ("records", "local", *flags(query))})
    empty: Counter[str] = Counter()
    trusted, local = sides.get(True, empty), sides.get(False, empty)
    check_people(rows, [*sides.values()], local, query, None in sides)
    counted = "first" if "first" in flags(query) else "records"
    own, others = trusted[counted], local[counted]
    if others and not query.local_raw and not query.reports:
        raise no_reports(query)
    held: dict[bool, Counter[int]] = {True: Counter(), False: Counter()}
    steps: Counter[int] = Counter()
    for group in groups:
        if group["slot"] is not None and int(group["slot"]) >= 0:
            held[bool(group["trusted"])][int(group["slot"])] += int(group[counted] or 0)
            steps[int(group["slot"])] += int(group.get("steps") or 0) if group["trusted"] else 0
    if held[True].total() != own:
        raise changed(rows)
    if (named or query.local_raw) and held[False].total() != others:
        what = "say yes or no to one option" if _ticks(query) else "name one of the options"
        raise UnusablePublicRows(f"Column `{query.reports[0].column}` must {what} in every local row.")
    codec = query.values[0]
    told = _listed(Counter() if _ticks(query) and query.local_raw else held[False], len(query.names))
    if isinstance(codec, ByCategory) and isinstance(codec.answer, Number):
        size = codec.by.size
        return Totals(own, _listed(steps, size), others, told, counts=_listed(held[True], size))
    if not _ticks(query):
        return Totals(own, _listed(held[True], len(query.names)), others, told)
    assert isinstance(codec, Category)
    own_sets, local_sets = map(_held, held.values())
    return Totals(own, tick_counts(*own_sets, codec.feature), others, told, held=local_sets)


def _ticks(query: Query) -> bool:
    """Whether people have several options, so that what they hold is a set of them."""
    return isinstance(query.values[0], Category) and bool(query.values[0].feature.most)


def _held(sets: Counter[int]) -> tuple[Ints, Ints]:
    """Sets of options, and how many people hold each."""
    return np.array(list(sets), dtype=np.int64), np.array(list(sets.values()), dtype=np.int64)


def _listed(counts: Counter[int], size: int) -> Ints:
    return np.array([counts[i] for i in range(size)], dtype=np.int64)


def report_texts(rows: Rows, query: Query, chunk: int) -> Iterator[list[str | None]]:
    """Local people's reports as they were sent, some at a time, after the rules of `count_options`."""
    must(bool(query.sent), "report", "must be read", None)
    asked = select({"sent": text("sent0")}, f"({people(rows, query)}) AS people", f"WHERE {one_each(query, 'local')}")
    for part in stream(rows, asked, chunk):
        yield np.ma.asarray(part["sent"], dtype=object).tolist()


def _counted(rows: Rows, query: Query, *, named: bool) -> str:
    """Records, people and problems of each group by the option held or reported; -1 where none was named."""
    codec, slot, outputs = query.values[0], "c0", chosen(["trusted", "local", *flags(query)])
    asked = {"records": "COUNT(*)", "local": count_if("local")}
    # Of people, options and reports that name an option there are few: those alike are counted before anything else.
    few = query.person is None and isinstance(codec, Category) and not codec.feature.edges
    alike = few and (named or not query.sent)
    if alike:
        times = outputs[TIMES] = column(TIMES)
        asked = {"records": f"CAST(SUM({times}) AS BIGINT)"}
        asked["local"] = f"CAST(SUM(CAST(local AS INT) * {times}) AS BIGINT)"
    asked |= {flag: count_if(flag) for flag in flags(query)}
    if isinstance(codec, ByCategory) and isinstance(codec.answer, Number):  # the category, and beside it the level
        slot = f"CAST(FLOOR(CAST(c0 AS DOUBLE) * {double(1 / codec.stride)}) AS BIGINT)"
        outputs["rest"] = f"c0 - {slot} * {whole(codec.stride)}"
        asked["steps"] = "CAST(SUM(rest) AS BIGINT)"
    if named and query.sent:
        told = f"COALESCE(CAST({code_of(text('sent0'), query.names)} AS BIGINT), {whole(-1)})"
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
    coded = select({"slot": slot}, everybody, f"WHERE {one_each(query, label)}")
    counts = np.zeros(slots, dtype=np.int64)
    for group in answers(rows, f"SELECT slot, COUNT(*) AS records FROM ({coded}) AS coded GROUP BY slot"):
        counts[int(group["slot"])] += int(group["records"])
    if int(counts.sum()) != total:
        raise changed(rows)
    return counts


# --- whole tables of codes --------------------------------------------------------------------------------------------


def codes(rows: Rows, schema: Schema, *, trust: str | None = None, label: str = "trusted") -> NDArray[np.uint16]:
    """The codes of every row, one array for each feature, in one pass over the table.

    With `trust`, those of the rows with this label alone.
    """
    check_schema(rows, schema)
    outputs = {f"c{i}": feature_code(rows, feature) for i, feature in enumerate(schema.features)}
    found = arrays(rows, select(outputs, VIEW, "" if trust is None else f"WHERE {labelled(column(trust), label)}"))
    out = np.empty((len(schema.features), len(found["c0"])), dtype=np.uint16)
    for i in range(len(schema.features)):
        out[i] = np.asarray(found[f"c{i}"])
    return out


def domain(rows: Rows, name: str, most: int) -> list[str | None]:
    """NOT PRIVATE: the distinct values of a column as text, in no order; a few more than `most` at the most."""
    rows.need("columns", name)
    found = answers(rows, f"SELECT DISTINCT {text(column(name))} AS v FROM {VIEW} LIMIT {most + 2}")
    return [row["v"] for row in found]


def check_declared(rows: Rows, schema: Schema) -> None:
    """Refuse a table's column of which nobody said what a field counts as that is missing or not listed.

    A type with a number in every row needs no word where numbers are cut into bins: each of them is in one.
    """
    for feature in schema.features:
        rows.need("columns", feature.name)
        if feature.edges:
            rows.need_missing(feature.name, feature.stated or None, TABLES)
        elif not feature.stated:
            raise rows.unread(unstated(feature.name, TABLES))


def check_schema(rows: Rows, schema: Schema) -> None:
    """Refuse columns whose types have no codes."""
    for feature in schema.features:
        rows.need("columns", feature.name)
        if feature.edges:
            rows.need_number(feature.name)
        # The text of a double differs between engines, and with it the category.
        if not feature.edges and rows.columns[feature.name] in ("FLOAT", "DOUBLE"):
            raise UnusablePublicRows(f"Column `{feature.name}` must hold text or whole numbers, or be cut into bins.")
