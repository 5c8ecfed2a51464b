"""Counts of people: by the option that they have or report, by stretch of a number's range, by public bins of reports,
and by record; and the codes of whole tables.

Everything of trusted people is exact, and raw: it needs noise before it may be released.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.public.distribution import ReportBins
from hybridp.public.heavy import HeadList
from hybridp.public.queries import Schema
from hybridp.public.randomisers import Ints
from hybridp.public.shares import ShareReports, tick_counts
from hybridp.tables import engine, totals
from hybridp.tables.engine import VIEW, Rows, answers, chosen, column, double, fresh, keep, select, text, whole
from hybridp.tables.totals import TIMES, ByCategory, Category, Columns, Number, Query, Raw, feature_code, people

__all__ = ["Record", "RecordSample", "check_schema", "codes", "count_options", "discovery_counts", "head_counts"]
__all__ += ["local_slots", "records_at", "report_counts", "report_texts", "sample_records", "stretch_counts"]

# --- options ----------------------------------------------------------------------------------------------------------


def count_options(rows: Rows, query: Query, *, named: bool) -> Raw:
    """How many people have each option; `named`: local reports name one of `query.names`, and are counted here.

    Labels, people and reports are refused where they break a rule; a trusted person's field never is. Of a number by a
    private category everybody's vote is divided over two cells, of the upper end and of the lower.

    >>> from hybridp.public.queries import Feature
    >>> from hybridp.tables import Report, open_rows
    >>> trust, report = ["trusted", "trusted", "local"], ["", "", "yes"]
    >>> feature = Feature("smokes", ("yes", "no"), absent="no")
    >>> query = Query(values=(Category(feature),), trust="trust", reports=(Report("report", text=True),),
    ...               names=feature.values)
    >>> with open_rows({"smokes": ["yes", "well", ""], "trust": trust, "report": report}) as rows:
    ...     found = count_options(rows, query, named=True)
    >>> found.trusted.tolist(), found.local.counts.tolist()
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
    codec, size = query.values[0], len(query.names)
    none = query.local_raw or not named
    local = ShareReports(others, _listed(Counter() if none else held[False], size), query.made)
    if isinstance(codec, ByCategory) and isinstance(codec.answer, Number):
        people, levels = _listed(held[True], codec.by.size), codec.answer.lattice.levels
        upper = _listed(steps, codec.by.size)
        return Raw(own, np.column_stack([upper, levels * people - upper]).ravel(), local, steps=levels)
    if not isinstance(codec, Category) or not codec.feature.most:
        return Raw(own, _listed(held[True], size), local, held=_listed(held[False], size) if query.local_raw else None)
    own_sets, local_sets = (np.array([*sets.items()], dtype=np.int64).reshape(-1, 2).T for sets in held.values())
    counts = tick_counts(own_sets[0], own_sets[1], codec.feature)
    return Raw(own, counts, local, held=(local_sets[0], local_sets[1]) if query.local_raw else None)


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
    asked = {"records": "COUNT(*)", "local": engine.count_if("local")}
    # Of people, options and reports that name an option there are few: those alike are counted before anything else.
    few = query.person is None and isinstance(codec, Category) and not codec.feature.edges
    alike = few and (named or not query.sent)
    if alike:
        times = outputs[TIMES] = column(TIMES)
        asked = {"records": f"CAST(SUM({times}) AS BIGINT)"}
        asked["local"] = f"CAST(SUM(CAST(local AS INT) * {times}) AS BIGINT)"
    asked |= {flag: engine.count_if(flag) for flag in query.flags}
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
    coded = select({"slot": slot}, f"({people(rows, query)}) AS people", f"WHERE {query.one_each(label)}")
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


def check_schema(rows: Rows, schema: Schema, *, declared: bool) -> None:
    """Refuse columns whose types have no codes; and, where it must be `declared`, a column of which nobody said what a
    field counts as that is missing or not listed.

    A type with a number in every row needs no word where numbers are cut into bins: each of them is in one.
    """
    for feature in schema.features:
        rows.need("columns", feature.name)
        filled = feature.edges and feature.name in rows.filled
        if declared and not (feature.stated or filled):
            raise engine.unstated(feature.name, engine.TABLES)
    for feature in schema.features:
        if feature.edges:
            rows.need_number(feature.name)
        else:
            rows.need_words(feature.name, ", or be cut into bins")


# --- records: one for each person, from which heavy hitters are found and estimated -----------------------------------

Record = tuple[str, ...]


@dataclass(frozen=True, eq=False)
class RecordSample:
    """One record for each person, kept by the engine (within its memory limit, then on disk) while the rows are open.

    The trusted people are split into a discovery part and an estimation part by a salted hash of the person, so that
    the part depends on no record: replacing a person's records changes that person's contribution to one part only.
    """

    rows: Rows = field(repr=False)
    query: Columns
    table: str = field(repr=False)
    discovery_people: int
    estimation_people: int
    local_people: int

    @cached_property
    def discovered(self) -> str:
        """The table of the distinct records of the discovery part with their counts, numbered from 0 along their text,
        made when it is first asked for."""
        table, by = f"{self.table}_discovered", ", ".join(_names(self.query))
        here = f"WHERE {_within('discovery')} AND f0 IS NOT NULL"
        counted = f"SELECT {by}, COUNT(*) AS times FROM {self.table} {here} GROUP BY {by}"
        keep(self.rows, table, f"SELECT *, ROW_NUMBER() OVER (ORDER BY {by}) - 1 AS number FROM ({counted})")
        return table

    @property
    def trusted_people(self) -> int:
        return self.discovery_people + self.estimation_people


def sample_records(rows: Rows, query: Columns, salt: int, *, discovery_share: float) -> RecordSample:
    """One record for each person, and the split of the trusted people.

    A record is one column (a query) or two (a query and a URL) of `query`, whose labels are the same for all rows of a
    person. Fields are compared as text, and numbers are cast to it. Where the first field is missing there is no
    record: it is not discovered, and counts for the rest. A missing second field is the empty text, and so the same as
    an empty one. One record stands for a person: the one with the smallest `record_key` (a random key stored with the
    record) or, without one, one drawn with a salted hash, uniformly over the person's records (a record that a person
    has twice counts twice). Both depend on that person's records alone. A record without a key is not chosen, and of
    different records with one key none is.

    Each trusted person is in the discovery part with probability `discovery_share` over the salt. When every person
    has one row the sample keeps the order of the rows; otherwise the local people's order is that of a salted hash.

    Raises `UnusableRows` when a label or a person's name breaks a rule; no record is refused.

    >>> from hybridp.tables import open_rows
    >>> log = {"user": [1, 1, 2, 3], "query": ["maps", "maps", "news", "maps"]}
    >>> log["trust"] = ["trusted", "trusted", "local", "local"]
    >>> query = Columns(("query",), "trust", person="user")
    >>> with open_rows(log) as rows:
    ...     sample = sample_records(rows, query, 7, discovery_share=1.0)
    ...     sample.trusted_people, sample.local_people
    ...     records_at(sample, range(len(discovery_counts(sample))))
    ...     head_counts(sample, HeadList.of([("maps",)]), "local").tolist()
    (1, 2)
    [('maps',)]
    [1, 1]
    """
    must(isinstance(salt, int) and salt >= 0, "salt", "must be a whole number of 0 or more", salt)
    must(0 <= discovery_share <= 1, "discovery_share", "must lie between 0 and 1", discovery_share)
    _check_columns(rows, query)
    rows = engine.local_copy(rows, [query.person, query.label, query.record_key, *query.names])
    who, label, names = column(query.person or ""), column(query.label), ", ".join(_names(query))
    counts = f"COUNT(*) AS rows, COUNT({who}) AS named, COUNT(*) FILTER ({label} IN ('trusted', 'local')) AS labelled"
    # Equal people have equal hashes: as many hashes as rows prove that nobody has two rows, and two people with one
    # hash only send the table to the longer path, which is right for any table.
    (result,) = answers(rows, f"SELECT {counts}, COUNT(DISTINCT hash({who})) AS people FROM {VIEW}")
    # Who takes part, and with which label, is public: a rule on it may refuse, and no other rule does.
    engine.column_must(result["named"] == result["rows"], query.person, "must name a person in every row")
    if result["labelled"] != result["rows"]:
        raise rows.unlabelled(query.label)
    table, choice = fresh("sample"), fresh("chosen")
    sampled = f"SELECT {names}, {_part(salt, discovery_share)} AS part FROM"
    try:
        if result["people"] == result["rows"]:  # in the order of the rows
            keep(rows, table, f"{sampled} ({_fields(query)})")
        else:
            keep(rows, choice, _choice(rows, query, salt))
            (result,) = answers(rows, f"SELECT COUNT(*) AS people, COUNT(*) FILTER (mixed) AS mixed FROM {choice}")
            engine.column_must(not result["mixed"], query.label, "must hold one label for each person")
            # Missing where none has a key, or where those of the smallest one differ. Local people are in the order of
            # a salted hash, whatever that of the rows and the number of threads.
            keep(rows, table, f"{sampled} ({_standing(rows, query, choice)}) "
                              f"ORDER BY CASE WHEN NOT trusted THEN {_md5(salt, 'order', 'who')} END")  # fmt: skip
        parts = ", ".join(f"COUNT(*) FILTER ({_within(part)}) AS {part}" for part in PARTS)
        (counted,) = answers(rows, f"SELECT COUNT(*) AS people, {parts} FROM {table}")
        if counted["people"] != result["people"]:
            raise totals.changed(rows)
    finally:
        engine.drop(rows, choice)
    return RecordSample(rows, query, table, *(counted[part] for part in ("discovery", "estimation", "local")))


def discovery_counts(sample: RecordSample) -> Ints:
    """How many people of the discovery part have each of its distinct records.

    The records themselves stay with the engine: `records_at` fetches those that pass a threshold, by their places here.
    They stand along their text, so that the places depend on the set of records alone. Replacing one person moves at
    most two counts, each by one; which exist is itself private, and so is every number before noise and a threshold.
    """
    result = engine.arrays(sample.rows, f"SELECT times FROM {sample.discovered} ORDER BY number")
    return np.asarray(result["times"], dtype=np.int64)


def records_at(sample: RecordSample, numbers: Sequence[int] | Ints) -> list[Record]:
    """The records at these places of `discovery_counts`, in the order of the places."""
    asked = np.ascontiguousarray(numbers, dtype=np.int64)  # the engine reads no strides
    must(asked.ndim == 1, "numbers", "must be a list of row numbers", f"shape {asked.shape}")
    table, names = sample.discovered, _names(sample.query)
    wanted = engine.give(sample.rows, {"number": asked, "place": np.arange(asked.size)})
    listed = f"SELECT {', '.join(names)} FROM {wanted} JOIN {table} USING (number) ORDER BY place"
    result = [tuple(row[name] for name in names) for row in answers(sample.rows, listed)]
    must(len(result) == asked.size, "numbers", "must be places of `discovery_counts`", "others")
    return result


def head_counts(sample: RecordSample, head: HeadList, part: str) -> Ints:
    """How many people of `part` (discovery, estimation, trusted or local) have each slot of the list.

    A record counts for its own slot, else for that of its query, else for the rest: for exactly one.
    """
    must(part in PARTS, "part", f"must be one of {', '.join(PARTS)}", part)
    each = _slots(sample, head, part)
    result = engine.arrays(sample.rows, f"SELECT slot, COUNT(*) AS people FROM ({each}) AS slots GROUP BY slot")
    counts = np.zeros(len(head), dtype=np.int64)
    counts[np.asarray(result["slot"], dtype=np.int64)] = np.asarray(result["people"], dtype=np.int64)
    return counts


def local_slots(sample: RecordSample, head: HeadList, chunk: int = totals.CHUNK) -> Iterator[Ints]:
    """The slot of every local person, in chunks and in the order of the sample; slots as in `head_counts`.

    The slots are computed at the call and kept by the engine while they are read.
    """
    parts = engine.stream(sample.rows, _slots(sample, head, "local"), chunk)
    return (np.asarray(part["slot"], dtype=np.int64) for part in parts)


def _check_columns(rows: Rows, query: Columns) -> None:
    must(len(query.names) in (1, 2), "record", "must be one or two columns", len(query.names))
    names = (query.person, query.label, *query.names)
    must(len({*names}) == len(names), "record", "must differ from `person`, `trust` and itself", query.names)
    for name in query.names:
        rows.need("record", name)
        kind = f"; its type is {rows.columns[name]}"
        rows.need_words(name, kind)
        engine.column_must(rows.is_text(name) or rows.is_number(name), name, f"must hold text or whole numbers{kind}")
    totals.check_columns(rows, Query(values=(), trust=query.label, person=query.person, record_key=query.record_key))
    rows.need_identifier("person", query.person or "")


def _names(query: Columns) -> tuple[str, ...]:
    """What queries call the columns of a record."""
    return ("f0", "f1")[: len(query.names)]


# Names within them: `who` is the person, `trusted` a flag, `f0` and `f1` are the record's fields as text, `key` is what
# a record is chosen by, and `part` is 0 (discovery), 1 (estimation) or 2 (local).

PARTS: dict[str, tuple[int, ...]] = {"discovery": (0,), "estimation": (1,), "trusted": (0, 1), "local": (2,)}
LOCAL = 2


def _fields(query: Columns) -> str:
    """Every row with the names above; a missing second field is the empty text."""
    first, *second = (f"CAST({column(name)} AS TEXT)" for name in query.names)
    more = "".join(f", COALESCE({this}, '') AS f1" for this in second)
    own = "" if query.record_key is None else f", {column(query.record_key)} AS own"
    trusted = f"{column(query.label)} = 'trusted' AS trusted"
    return f"SELECT {column(query.person or '')} AS who, {trusted}, {first} AS f0{more}{own} FROM {VIEW}"


def _records(rows: Rows, query: Columns) -> str:
    """Every row with the key of its record: what those of one person are told apart by.

    Without a column for it, two of a person's records with one hash are taken for the same record: at odds of 2^-64 a
    pair this changes which record is chosen, and never that there is one, or that it depends on that person alone.
    """
    key = "own" if query.record_key is not None else f"hash({', '.join(_names(query))})"
    if query.record_key is not None and rows.is_text(query.record_key):
        # Numbers kept as text are compared as numbers; keys that are the same double, or no number, as text.
        key = f"{{'number': COALESCE({totals.number('own', is_text=True)}, CAST('NaN' AS DOUBLE)), 'text': own}}"
    return f"(SELECT *, {key} AS key FROM ({_fields(query)})) AS records"


def _choice(rows: Rows, query: Columns, salt: int) -> str:
    """The key of the record that stands for each person (NULL where no record has a key), and the person's label."""
    records, smallest = _records(rows, query), "ARG_MIN(key, draw)"
    if query.record_key is not None:
        smallest = "MIN(key)"
    else:  # identical records of a person are counted, and each draws its own hash: the first one that of the fields
        draw = _md5(salt, "draw", engine.joined(text("who"), *_names(query)))
        counted = f"SELECT who, trusted, key, MIN({draw}) AS first, COUNT(*) AS times FROM {records} GROUP BY ALL"
        again = f"[MD5({engine.joined('first', text('i'))}) FOR i IN range(2, times + 1)]"
        records = f"(SELECT *, LEAST(first, list_min({again})) AS draw FROM ({counted}))"
    labels = "BOOL_OR(trusted) AS trusted, BOOL_OR(trusted) <> BOOL_AND(trusted) AS mixed"
    return f"SELECT who, {smallest} AS key, {labels} FROM {records} GROUP BY who"


def _standing(rows: Rows, query: Columns, choice: str) -> str:
    """Each person with the fields of the record that was chosen; missing where none was, or several that differ."""
    names = _names(query)
    alike = " AND ".join(f"MIN({name}) = MAX({name})" for name in names)
    fields = ", ".join(f"CASE WHEN {alike} THEN MIN({name}) END AS {name}" for name in names)
    both = f"{choice} LEFT JOIN {_records(rows, query)} USING (who, key)"
    return f"SELECT who, BOOL_OR({choice}.trusted) AS trusted, {fields} FROM {both} GROUP BY who"


def _slots(sample: RecordSample, head: HeadList, part: str) -> str:
    """The slot of every person of a part: its exact one, else its query's wildcard, else that of the rest.

    `depth` is the number of fields that a slot of the head names; those that it leaves open are empty texts there.
    """
    names, table, slots = _names(sample.query), sample.table, head.slots
    must(head.depth == len(names), "record", f"must have as many columns as the list, {head.depth}", len(names))
    signs = (sign for slot in slots for field in slot for sign in field or "")
    must(not any("\ud800" <= sign <= "\udfff" for sign in signs), "slots", "must be texts of Unicode", "others")
    depth = [sum(field is not None for field in slot) for slot in slots]
    listed: dict[str, Any] = {"slot": np.arange(len(head), dtype=np.int32), "depth": np.array(depth)}
    # No None among them: the type of a column is taken from its first objects.
    listed |= {name: np.array([slot[i] or "" for slot in slots], dtype=object) for i, name in enumerate(names)}
    given_head = engine.give(sample.rows, listed)
    joins = ""
    for alias, fields in (("wild", names[:1]), ("exact", names)):
        same = " AND ".join(f"{table}.{name} = {alias}.{name}" for name in fields)
        joins += f" LEFT JOIN {given_head} AS {alias} ON {same} AND {alias}.depth = {len(fields)}"
    slot = f"CAST(COALESCE(exact.slot, wild.slot, {len(head) - 1}) AS INT)"
    return f"SELECT {slot} AS slot FROM {table}{joins} WHERE {_within(part, f'{table}.')}"


def _part(salt: int, share: float) -> str:
    """0, 1 or 2: trusted people are split by the first bits of a salted MD5 of the person, whatever their records.

    The MD5 in hexadecimal is below ceil(share * 2^128) in hexadecimal for that share of people: both have 32 digits.
    """
    bound = math.ceil(Fraction(share) * 2**128)
    early = f"{_md5(salt, 'split', 'who')} < '{bound:032x}'" if bound < 2**128 else "TRUE"
    return f"CAST(CASE WHEN NOT trusted THEN {LOCAL} WHEN {early} THEN 0 ELSE 1 END AS TINYINT)"


def _within(part: str, table: str = "") -> str:
    return f"{table}part IN ({', '.join(map(str, PARTS[part]))})"


def _md5(salt: int, purpose: str, this: str) -> str:
    """The MD5 of "salt purpose text": the purposes are words, so that no two purposes or salts share an input."""
    return f"MD5('{salt:d} {purpose} ' || {text(this)})"
