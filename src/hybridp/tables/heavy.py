"""One record for each person, and the counts from which heavy hitters are found and estimated.

Everything that is returned here is raw: it needs a mechanism before it may be released.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import UnusablePublicRows, must
from hybridp.public.heavy import HeadList
from hybridp.tables.engine import answers, arrays, drop, fresh, give, keep, local_copy, stream
from hybridp.tables.query import Query
from hybridp.tables.source import Rows
from hybridp.tables.sql import VIEW, Columns, chosen, column, count_if, joined, labelled, number, select, text, whole
from hybridp.tables.totals import CHUNK, changed, check_columns

__all__ = ["Record", "RecordSample", "discovery_counts", "head_counts", "local_slots"]
__all__ += ["records_at", "sample_records"]

Ints = NDArray[np.int64]
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
    discovered: list[bool] = field(default_factory=list, repr=False)

    @property
    def trusted_people(self) -> int:
        return self.discovery_people + self.estimation_people


def sample_records(rows: Rows, query: Columns, salt: int, *, discovery_share: float) -> RecordSample:
    """One record for each person, and the split of the trusted people.

    A record is one column (a query) or two (a query and a URL) of `query`, whose labels are the same for all rows of a
    person. Fields are compared as text, and numbers are cast to it. Where the first field is missing there is no
    record: it is not discovered, and counts for the rest. A missing second field is the empty text, and so the same as
    an empty one. One record stands for a person: the one with the smallest `record_key` (a random key stored with the
    record), or the smallest MD5 of a salt and its `record_id`, or, with neither, one drawn with a salted hash,
    uniformly over the person's records (a record that a person has twice counts twice). All depend on that person's
    records alone. A record without a key or id is not chosen, and of different records with one key none is.

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
    ...     records_at(sample, discovery_counts(sample)[0])
    ...     head_counts(sample, HeadList.of([("maps",)]), "local").tolist()
    (1, 2)
    [('maps',)]
    [1, 1]
    """
    must(isinstance(salt, int) and salt >= 0, "salt", "must be a whole number of 0 or more", salt)
    must(0 <= discovery_share <= 1, "discovery_share", "must lie between 0 and 1", discovery_share)
    _check_columns(rows, query)
    rows = local_copy(rows, [query.person, query.label, query.order, *query.names])
    (result,) = answers(rows, _labels(query))
    # Who takes part, and with which label, is public: a rule on it may refuse, and no other rule does.
    if result["named"] != result["rows"]:
        raise UnusablePublicRows(f"Column `{query.person}` must name a person in every row.")
    if (result["trusted"] or 0) + (result["local"] or 0) != result["rows"]:
        raise rows.unlabelled(query.label)
    table, choice = fresh("sample"), fresh("chosen")
    try:
        alone = result["people"] == result["rows"]
        if alone:  # in the order of the rows
            kept = chosen(_names(query)) | {"part": _part(salt, discovery_share)}
            keep(rows, table, select(kept, f"({_fields(query, None)}) AS fields"))
        else:
            keep(rows, choice, _choice(rows, query, salt))
            (result,) = answers(rows, select({"people": "COUNT(*)", "mixed": count_if("mixed")}, choice))
            if result["mixed"]:
                raise UnusablePublicRows(f"Column `{query.label}` must hold one label for each person.")
            keep(rows, table, _ranked(rows, query, salt, discovery_share, choice))
        asked = {part: count_if(_within(part)) for part in ("discovery", "estimation", "local")}
        (counted,) = answers(rows, select(asked | {"people": "COUNT(*)"}, table))
        if counted["people"] != result["people"]:
            raise changed(rows)
    finally:
        drop(rows, choice)
    discovery, estimation, local = (int(counted[part] or 0) for part in ("discovery", "estimation", "local"))
    return RecordSample(rows, query, table, discovery, estimation, local)


def discovery_counts(sample: RecordSample) -> tuple[Ints, Ints]:
    """Row numbers of the distinct records of the discovery part, and how many people have each.

    The records themselves stay with the engine: `records_at` fetches those that pass a threshold. They are numbered
    along their text, so that the numbers depend on the set of records alone. Replacing one person moves at most two
    counts, each by one; which numbers exist is itself private, and so is every number before noise and a threshold.
    """
    result = arrays(sample.rows, f"SELECT times FROM {_discovered(sample)} ORDER BY number")
    counts = np.asarray(result["times"], dtype=np.int64)
    return np.arange(counts.size, dtype=np.int64), counts


def records_at(sample: RecordSample, numbers: Sequence[int] | Ints) -> list[Record]:
    """The records with these row numbers of `discovery_counts`, in the order of the numbers."""
    asked = np.ascontiguousarray(numbers, dtype=np.int64)  # the engine reads no strides
    must(asked.ndim == 1, "numbers", "must be a list of row numbers", f"shape {asked.shape}")
    table, names = _discovered(sample), _names(sample.query)
    wanted = give(sample.rows, {"number": asked, "place": np.arange(asked.size)})
    listed = select({name: f"{table}.{name}" for name in names}, wanted, f"JOIN {table} ON "
                    f"{wanted}.number = {table}.number ORDER BY {wanted}.place")  # fmt: skip
    result = [tuple(row[name] for name in names) for row in answers(sample.rows, listed)]
    must(len(result) == asked.size, "numbers", "must be row numbers that `discovery_counts` returned", "others")
    return result


def head_counts(sample: RecordSample, head: HeadList, part: str) -> Ints:
    """How many people of `part` (discovery, estimation, trusted or local) have each slot of the list.

    A record counts for its own slot, else for that of its query, else for the rest: for exactly one.
    """
    must(part in PARTS, "part", f"must be one of {', '.join(PARTS)}", part)
    each = _slots(sample, head, part)
    result = arrays(sample.rows, f"SELECT slot, COUNT(*) AS people FROM ({each}) AS slots GROUP BY slot")
    counts = np.zeros(len(head), dtype=np.int64)
    counts[np.asarray(result["slot"], dtype=np.int64)] = np.asarray(result["people"], dtype=np.int64)
    return counts


def local_slots(sample: RecordSample, head: HeadList, chunk: int = CHUNK) -> Iterator[Ints]:
    """The slot of every local person, in chunks and in the order of the sample; slots as in `head_counts`.

    The slots are computed at the call and kept by the engine while they are read.
    """
    must(chunk >= 1, "chunk", "must be at least 1", chunk)
    parts = stream(sample.rows, _slots(sample, head, "local"), chunk)
    return (np.asarray(part["slot"], dtype=np.int64) for part in parts)


def _check_columns(rows: Rows, query: Columns) -> None:
    must(len(query.names) in (1, 2), "record", "must be one or two columns", len(query.names))
    names = (query.person, query.label, *query.names)
    must(len({*names}) == len(names), "record", "must differ from `person`, `trust` and itself", query.names)
    for name in query.names:
        rows.need("record", name)
        # The text of a double differs between engines, and with it the records.
        if not (rows.is_text(name) or rows.is_number(name)) or rows.columns[name] in ("FLOAT", "DOUBLE"):
            kind = rows.columns[name]
            raise UnusablePublicRows(f"Column `{name}` must hold text or whole numbers; its type is {kind}.")
    key, own_id = query.record_key, query.record_id
    check_columns(rows, Query(values=(), trust=query.label, person=query.person, record_key=key, record_id=own_id))
    rows.need_identifier("person", query.person or "")


def _names(query: Columns) -> tuple[str, ...]:
    """What queries call the columns of a record."""
    return ("f0", "f1")[: len(query.names)]


# --- queries ----------------------------------------------------------------------------------------------------------
# Names within them: `who` is the person, `trusted` a flag, `f0` and `f1` are the record's fields as text, `key` is what
# a record is chosen by, and `part` is 0 (discovery), 1 (estimation) or 2 (local).

PARTS: dict[str, tuple[int, ...]] = {"discovery": (0,), "estimation": (1,), "trusted": (0, 1), "local": (2,)}
LOCAL = 2
_GLANCE = 2**17
_SIGNED = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT")


def _labels(query: Columns) -> str:
    """How many rows there are, how many name a person or have a label, and how many people there are.

    People are counted by a 64-bit hash: equal people have equal hashes, so that as many hashes as rows prove that no
    person has two rows; two people with one hash only send the table to the longer path, which is right for any table.
    Where some rows already name a person twice, nobody is counted, which saves as much as the choice itself takes.
    """
    who = column(query.person or "")
    some = select({"who": who}, VIEW, f"LIMIT {_GLANCE}")
    glance = f"(SELECT COUNT(DISTINCT who) = COUNT(who) FROM ({some}) AS first_rows)"
    asked = {label: count_if(labelled(column(query.label), label)) for label in ("trusted", "local")}
    people = f"COUNT(DISTINCT CASE WHEN {glance} THEN hash({who}) END)"
    return select({"rows": "COUNT(*)", "named": f"COUNT({who})", **asked, "people": people}, VIEW)


def _choice(rows: Rows, query: Columns, salt: int) -> str:
    """The key of the record that stands for each person (NULL where no record has a key), and the person's label."""
    keyed = {"who": "who", "key": _key(rows, query), "trusted": "trusted"}
    if query.order is None:
        keyed["draw"] = _md5(salt, "draw", joined(text("who"), *_names(query)))
    if query.record_id is not None:
        keyed["draw"] = _md5(salt, "record", "own")
    records, smallest = select(keyed, f"({_fields(query, query.order)}) AS fields"), "MIN(key)"
    if query.record_id is not None:
        # The id itself is kept, so that its MD5 is computed once: ids differ where their MD5s do.
        smallest = f"CAST(ARG_MIN(key, draw) AS {_id_type(rows, query)})"
    if query.order is None:
        # Identical records of a person are counted first, and then each of them draws its own hash.
        counted = select(chosen(["who", "key", "trusted"]) | {"draw": "MIN(draw)", "times": "COUNT(*)"},
                         f"({records}) AS keyed", "GROUP BY who, key, trusted")  # fmt: skip
        ordinal = f"UNNEST(GENERATE_SERIES({whole(1)}, times))"
        records = select(chosen(["who", "key", "trusted", "draw"]) | {"ordinal": ordinal}, f"({counted}) AS counted")
        # The first of identical records keeps the draw of salt, person and fields; the others hash it again.
        again = f"MD5({joined('draw', text('ordinal'))})"
        smallest = f"ARG_MIN(key, CASE WHEN ordinal = {whole(1)} THEN draw ELSE {again} END)"
    low, high = (f"{end}(CAST(trusted AS INT))" for end in ("MIN", "MAX"))
    outputs = {"who": "who", "key": smallest, "trusted": f"{high} = 1", "mixed": f"{low} <> {high}"}
    return select(outputs, f"({records}) AS records", "GROUP BY who")


def _ranked(rows: Rows, query: Columns, salt: int, share: float, table: str) -> str:
    """The sample of any table: the fields of the records that `table` chose, missing where it chose none.

    Without a column of keys, records with the chosen key are identical, so that the minimum over them is that record;
    with one, a person whose records of that key differ has none. The order of local people is that of a salted hash: it
    neither depends on the rows' order nor varies with the number of threads.
    """
    names, fields = _names(query), f"({_fields(query, query.order)}) AS fields"
    records = select({"who": "who", "key": _key(rows, query), **chosen(names)}, fields)
    texts = {name: f"MIN(records.{name})" for name in names}
    if query.order is not None:
        alike = " AND ".join(f"MIN(records.{name}) = MAX(records.{name})" for name in names)
        texts = {name: f"CASE WHEN {alike} THEN {this} END" for name, this in texts.items()}
    outputs = {"who": f"{table}.who", **texts, "trusted": f"MAX(CAST({table}.trusted AS INT))"}
    same = f"records.who = {table}.who AND records.key = {table}.key"
    result = select(outputs, f"{table} LEFT JOIN ({records}) AS records ON {same}", f"GROUP BY {table}.who")
    flagged = select(chosen(["who", *names]) | {"trusted": "trusted = 1"}, f"({result}) AS joined")
    # Trusted people are only ever counted, so that theirs is left open.
    along = f"ORDER BY CASE WHEN NOT trusted THEN {_md5(salt, 'order', 'who')} END"
    return select(chosen(names) | {"part": _part(salt, share)}, f"({flagged}) AS flagged", along)


def _discovered(sample: RecordSample) -> str:
    """The table of the distinct records of the discovery part with their counts, numbered from 0 along their text."""
    table, names = f"{sample.table}_discovered", _names(sample.query)
    if not sample.discovered:
        by, place = ", ".join(names), "ROW_NUMBER() OVER (ORDER BY {}) - 1"
        counted = select(chosen(names) | {"times": "COUNT(*)"}, sample.table, f"WHERE {_within('discovery')} "
                         f"AND NOT f0 IS NULL GROUP BY {by}")  # fmt: skip
        numbered = chosen([*names, "times"]) | {"number": place.format(by)}
        keep(sample.rows, table, select(numbered, f"({counted}) AS counted"))
        sample.discovered.append(True)
    return table


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
    given_head = give(sample.rows, listed)
    joins, result = "", []
    for alias, fields in (("exact", names), ("wild", names[:1]))[: len(names)]:
        same = " AND ".join(f"{table}.{name} = {alias}.{name}" for name in fields)
        joins += f" LEFT JOIN {given_head} AS {alias} ON {same} AND {alias}.depth = {whole(len(fields))}"
        result.append(f"{alias}.slot")
    slot = f"CAST(COALESCE({', '.join(result)}, {whole(len(head) - 1)}) AS INT)"
    return select({"slot": slot}, table + joins, f"WHERE {_within(part, f'{table}.')}")


def _fields(query: Columns, own: str | None) -> str:
    """Every row with the names above; a missing second field is the empty text."""
    outputs = {"who": column(query.person or ""), "trusted": labelled(column(query.label), "trusted")}
    for place, name in enumerate(query.names):
        this = text(column(name))
        outputs[f"f{place}"] = this if place == 0 else f"COALESCE({this}, '')"
    return select(outputs if own is None else outputs | {"own": column(own)}, VIEW)


def _key(rows: Rows, query: Columns) -> str:
    """What the records of one person are told apart by: their key, their id, or a hash of their fields.

    Without a key or id, two of a person's records with one hash are taken for the same record: at odds of 2^-64 a pair
    this changes which record is chosen, and never that there is one, or that it depends on that person alone.
    """
    if query.record_id is not None:
        return f"CAST(own AS {_id_type(rows, query)})"
    if query.record_key is None:
        return f"hash({', '.join(_names(query))})"
    if not rows.is_text(query.record_key):
        return "own"
    # Numbers kept as text are compared as numbers; keys that are the same double, or no number, as text.
    return f"{{'number': COALESCE({number('own', is_text=True)}, CAST('NaN' AS DOUBLE)), 'text': own}}"


def _id_type(rows: Rows, query: Columns) -> str:
    """Whole numbers stay numbers, which are compared faster; every other id is compared as the text that is hashed."""
    return "BIGINT" if rows.columns[query.record_id or ""] in _SIGNED else "TEXT"


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
