"""One record for each person, and the counts from which heavy hitters are found and estimated.

Everything that is returned here is raw: it needs a mechanism before it may be released.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import UnusablePublicRows, UnusableRows, must
from hybridp.tables.columns import check_trust, unlabelled
from hybridp.tables.engine import answers, arrays, drop, fresh, given, keep, stream
from hybridp.tables.mean import CHUNK
from hybridp.tables.source import Rows

__all__ = ["HeavyQuery", "Record", "RecordSample", "Slot", "discovery_counts", "head_counts", "local_slots"]
__all__ += ["records_at", "sample_records"]

Ints = NDArray[np.int64]
Record = tuple[str, ...]
Slot = tuple[str | None, ...]


@dataclass(frozen=True, kw_only=True)
class HeavyQuery:
    """Which columns hold what: one row for each record, any number of records for each person.

    `record` names one column (a query) or two (a query and a URL); `trust` holds exactly `trusted` or `local`, the same
    for all rows of a person. Fields are compared as text, and numbers are cast to it. Where the first field is missing
    there is no record: it is not discovered, and counts for the rest. A missing second field is the empty text, and so
    the same as an empty one.

    One record stands for a person: the one with the smallest `record_key` (a random key stored with the record), or the
    smallest MD5 of a salt and its `record_id`, or, with neither, one drawn with a salted hash, uniformly over the
    person's records (a record that a person has twice counts twice). All depend on that person's records alone. A
    record without a key or id is not chosen, and of different records with one key none is.

    >>> HeavyQuery(person="user", record=("query", "url"), trust="trust").order is None
    True
    """

    person: str
    record: tuple[str, ...]
    trust: str
    record_key: str | None = None
    record_id: str | None = None

    def __post_init__(self) -> None:
        ok = isinstance(self.record, tuple) and len(self.record) in (1, 2)
        must(ok, "record", "must be a tuple of one or two columns", self.record)
        names = (self.person, self.trust, *self.record)
        must(len(set(names)) == len(names), "record", "must differ from `person`, `trust` and itself", self.record)
        must(None in (self.record_key, self.record_id), "record_id", "must not join `record_key`", self.record_id)

    @property
    def order(self) -> str | None:
        """The column that decides which record stands for a person."""
        return self.record_key or self.record_id


@dataclass(frozen=True, eq=False)
class RecordSample:
    """One record for each person, kept by the engine (within its memory limit, then on disk) until `close`.

    The trusted people are split into a discovery part and an estimation part by a salted hash of the person, so that
    the part depends on no record: replacing a person's records changes that person's contribution to one part only.
    """

    rows: Rows = field(repr=False)
    query: HeavyQuery
    table: str = field(repr=False)
    discovery_people: int
    estimation_people: int
    local_people: int
    discovered: list[bool] = field(default_factory=list, repr=False)

    @property
    def trusted_people(self) -> int:
        return self.discovery_people + self.estimation_people

    def close(self) -> None:
        """Drop what the engine keeps of the sample; closing the rows does too."""
        drop(self.rows, self.table, _discovered(self))

    def __enter__(self) -> RecordSample:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


def sample_records(rows: Rows, query: HeavyQuery, salt: int, *, discovery_share: float) -> RecordSample:
    """One record for each person, and the split of the trusted people.

    Each trusted person is in the discovery part with probability `discovery_share` over the salt. When every person
    has one row the sample keeps the order of the rows; otherwise the local people's order is that of a salted hash.

    Raises `UnusableRows` when a label or a person's name breaks a rule; no record is refused.

    >>> import pathlib, tempfile
    >>> from hybridp.tables import open_rows
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "log.csv")
    >>> _ = file.write_text("user,query,trust\\n1,maps,trusted\\n1,maps,trusted\\n2,news,local\\n3,maps,local\\n")
    >>> query = HeavyQuery(person="user", record=("query",), trust="trust")
    >>> with open_rows(file) as rows, sample_records(rows, query, 7, discovery_share=1.0) as sample:
    ...     sample.trusted_people, sample.local_people
    ...     records_at(sample, discovery_counts(sample)[0])
    ...     head_counts(sample, [("maps",), (None,)], "local").tolist()
    (1, 2)
    [('maps',)]
    [1, 1]
    >>> folder.cleanup()
    """
    from hybridp.tables import heavy_queries as queries

    must(isinstance(salt, int) and salt >= 0, "salt", "must be a whole number of 0 or more", salt)
    must(0 <= discovery_share <= 1, "discovery_share", "must lie between 0 and 1", discovery_share)
    _check_columns(rows, query)
    (found,) = answers(rows, queries.labels(query))
    _check_labels(rows, found, query)
    table, chosen = fresh("sample"), fresh("chosen")
    try:
        alone = found["people"] == found["rows"]
        if alone:
            keep(rows, table, queries.lone(query, salt, discovery_share))
        else:
            keep(rows, chosen, queries.chosen(rows, query, salt))
            (found,) = answers(rows, queries.problems(chosen))
            if found["mixed"]:
                raise UnusablePublicRows(f"Column `{query.trust}` must hold one label for each person.")
            keep(rows, table, queries.ranked(rows, query, salt, discovery_share, chosen))
        (counted,) = answers(rows, queries.people(table))
        if counted["people"] != found["people"]:
            raise UnusableRows(f"The rows of {rows.name} must not change while they are read.")
    except BaseException:
        drop(rows, table)
        raise
    finally:
        drop(rows, chosen)
    discovery, estimation, local = (int(counted[part] or 0) for part in ("discovery", "estimation", "local"))
    return RecordSample(rows, query, table, discovery, estimation, local)


def discovery_counts(sample: RecordSample) -> tuple[Ints, Ints]:
    """Row numbers of the distinct records of the discovery part, and how many people have each.

    The records themselves stay with the engine: `records_at` fetches those that pass a threshold. They are numbered
    along their text, so that the numbers depend on the set of records alone. Replacing one person moves at most two
    counts, each by one; which numbers exist is itself private, and so is every number before noise and a threshold.
    """
    from hybridp.tables import heavy_queries as queries

    _discover(sample)
    found = arrays(sample.rows, queries.times(_discovered(sample)))
    counts = np.asarray(found["times"], dtype=np.int64)
    return np.arange(counts.size, dtype=np.int64), counts


def records_at(sample: RecordSample, numbers: Sequence[int] | Ints) -> list[Record]:
    """The records with these row numbers of `discovery_counts`, in the order of the numbers."""
    from hybridp.tables import heavy_queries as queries

    asked = np.ascontiguousarray(numbers, dtype=np.int64)  # the engine reads no strides
    must(asked.ndim == 1, "numbers", "must be a list of row numbers", f"shape {asked.shape}")
    _discover(sample)
    with given(sample.rows, {"number": asked, "place": np.arange(asked.size)}) as wanted:
        found = _records(sample.rows, queries.of_rows(sample.query, _discovered(sample), wanted), sample.query)
    must(len(found) == asked.size, "numbers", "must be row numbers that `discovery_counts` returned", "others")
    return found


def head_counts(sample: RecordSample, head: Sequence[Slot], part: str) -> Ints:
    """How many people of `part` (discovery, estimation, trusted or local) have each slot of `head`.

    A slot is a record, or a query with None for any other URL, or None throughout for the rest, which `head` must
    contain. A record counts for its own slot, else for that of its query, else for the rest: for exactly one.
    """
    from hybridp.tables import heavy_queries as queries

    must(part in queries.PARTS, "part", f"must be one of {', '.join(queries.PARTS)}", part)
    rest = _check_head(sample.query, head)
    with _head(sample, head) as table:
        found = arrays(sample.rows, queries.slot_counts(sample.query, sample.table, table, rest, part))
    counts = np.zeros(len(head), dtype=np.int64)
    counts[np.asarray(found["slot"], dtype=np.int64)] = np.asarray(found["people"], dtype=np.int64)
    return counts


def local_slots(sample: RecordSample, head: Sequence[Slot], chunk: int = CHUNK) -> Iterator[Ints]:
    """The slot of every local person, in chunks and in the order of the sample; slots as in `head_counts`.

    The slots are computed at the call and kept by the engine while they are read.
    """
    from hybridp.tables import heavy_queries as queries

    must(chunk >= 1, "chunk", "must be at least 1", chunk)
    rest = _check_head(sample.query, head)
    with _head(sample, head) as listed:
        parts = stream(sample.rows, queries.slots(sample.query, sample.table, listed, rest, "local"), chunk)
    return (np.asarray(part["slot"], dtype=np.int64) for part in parts)


def _check_columns(rows: Rows, query: HeavyQuery) -> None:
    for parameter in ("person", "trust", "record_key", "record_id"):
        name = getattr(query, parameter)
        if name is not None:
            rows.need(parameter, name)
    rows.need_identifier("person", query.person)
    if query.record_id is not None:
        rows.need_identifier("record_id", query.record_id)
    for name in query.record:
        rows.need("record", name)
        # The text of a double differs between engines, and with it the records.
        if not (rows.is_text(name) or rows.is_number(name)) or rows.columns[name] in ("FLOAT", "DOUBLE"):
            kind = rows.columns[name]
            raise UnusablePublicRows(f"Column `{name}` must hold text or whole numbers; its type is {kind}.")
    check_trust(rows, query.trust)


def _check_labels(rows: Rows, found: dict[str, Any], query: HeavyQuery) -> None:
    """Who takes part, and with which label, is public: a rule on it may refuse, and no other rule does."""
    if found["named"] != found["rows"]:
        raise UnusablePublicRows(f"Column `{query.person}` must name a person in every row.")
    if (found["trusted"] or 0) + (found["local"] or 0) != found["rows"]:
        raise unlabelled(rows, query.trust)


def _check_head(query: HeavyQuery, head: Sequence[Slot]) -> int:
    """The place of the slot for the rest, in a head that obeys the rules."""
    width = len(query.record)
    for place, slot in enumerate(head):
        ok = isinstance(slot, tuple) and len(slot) == width and all(f is None or isinstance(f, str) for f in slot)
        ok = ok and _is_unicode("".join(f for f in slot if f is not None))
        must(ok, "head", f"must hold tuples of {width} texts or None", f"another slot at place {place}")
        ok = slot[0] is not None or all(field is None for field in slot)
        must(ok, "head", "must not have a slot with None before a text", f"one at place {place}")
    must(len(set(head)) == len(head), "head", "must not repeat a slot", f"{len(head) - len(set(head))} repeated")
    rest: Slot = (None,) * width
    must(rest in head, "head", "must have a slot of None for all other records", f"{len(head)} slots without it")
    return list(head).index(rest)


def _is_unicode(this: str) -> bool:
    try:
        this.encode()
    except UnicodeEncodeError:  # a lone surrogate
        return False
    return True


def _discovered(sample: RecordSample) -> str:
    return f"{sample.table}_discovered"


def _discover(sample: RecordSample) -> None:
    from hybridp.tables import heavy_queries as queries

    if not sample.discovered:
        keep(sample.rows, _discovered(sample), queries.numbered(sample.query, sample.table, "discovery"))
        sample.discovered.append(True)


def _records(rows: Rows, expression: Any, query: HeavyQuery) -> list[Record]:
    return [tuple(row[f"f{place}"] for place in range(len(query.record))) for row in answers(rows, expression)]


@contextmanager
def _head(sample: RecordSample, head: Sequence[Slot]) -> Iterator[str]:
    depth = [sum(field is not None for field in slot) for slot in head]
    fields: dict[str, Any] = {"slot": np.arange(len(head), dtype=np.int32), "depth": np.array(depth)}
    for place in range(len(sample.query.record)):
        # No None among them: the type of a column is taken from its first objects.
        fields[f"f{place}"] = np.array([slot[place] or "" for slot in head], dtype=object)
    with given(sample.rows, fields) as name:
        yield name
