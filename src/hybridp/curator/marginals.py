"""RAW: people's rows as codes, local people's reports beside them, and exact counts of whole workloads.

The cell of a row in a k-way table is one number in mixed radix, and the table is how often each number occurs: work in
rows + cells, whatever the number of queries. Thresholds follow by sums over the table's axes. Nothing here is private;
what leaves the room is noised elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.curator.reports import batch_digest
from hybridp.curator.sources import Columns, Rows, chosen_by
from hybridp.errors import UnusablePublicRows, must
from hybridp.public.queries import MOST_CELLS, Feature, Piece, Schema, Workload, sliced, table_between
from hybridp.public.synth_reports import MarginalInvite, MarginalReports, read_marginal_reports
from hybridp.public.trust import Trusts, label_column
from hybridp.randomness import Randomness
from hybridp.tables import options as marginals
from hybridp.tables.columns import count_people as count_groups
from hybridp.tables.columns import local_rows, local_texts
from hybridp.tables.engine import answers
from hybridp.tables.source import VIEW, TableLike
from hybridp.tables.totals import CHUNK

__all__ = ["Codes", "GroupCodes", "TableColumns", "codes_of", "count_people", "counts", "groups_of", "read_answers"]
__all__ += ["read_codes", "read_domain", "read_groups", "table_counts"]

Counts = NDArray[np.int64]
_MOST_READ = 4096  # Read from rows, a domain of more values is no domain: every value would be about somebody.
_LOT = 1 << 16  # Rows whose cell numbers are made at a time: they stay in the cache.


@dataclass(frozen=True, eq=False)
class Codes:
    """RAW: the code of every person's value, one array for each feature of the schema. Never leaves this room."""

    schema: Schema
    values: NDArray[np.uint16]
    chosen_by: str = ""

    @property
    def people(self) -> int:
        return int(self.values.shape[1])


def codes_of(schema: Schema, records: NDArray[Any]) -> Codes:
    """Rows that are integer codes already: one person a row, one feature a column.

    What is no code of a feature counts as its last value, as in `hybridp.tables.options`: nothing is refused.

    >>> codes_of(Schema.from_domain({"a": 2, "b": 3}), np.array([[0, 2], [1, 7]])).values.tolist()
    [[0, 1], [2, 2]]
    """
    wide = len(schema.features)
    must(
        np.ndim(records) == 2 and np.shape(records)[1] == wide,
        "records",
        f"must have {wide} columns",
        np.shape(records),
    )
    given = np.asarray(records)
    must(given.dtype.kind in "iufb", "records", "must be numbers", given.dtype)
    values = np.empty((wide, len(given)), dtype=np.uint16)
    for i, size in enumerate(schema.sizes):
        column = given[:, i]
        listed = (column >= 0) & (column < size)
        if given.dtype.kind == "f":  # NaN beside whole numbers makes all of them floating
            listed &= column == np.floor(column)
        values[i] = np.where(listed, column, size - 1)
    return Codes(schema, values)


def read_codes(path: TableLike, schema: Schema, *, table: str | None = None) -> Codes:
    """Read a table once and keep its codes: two bytes a field. See `hybridp.tables.options.codes`."""
    with tables.open_rows(path, table=table) as rows:
        return Codes(schema, marginals.codes(rows, schema), chosen_by(path, table))


def count_people(path: TableLike, *, table: str | None = None) -> int:
    """How many rows there are, which is public: a row is a person."""
    with tables.open_rows(path, table=table) as rows:
        (found,) = answers(rows, f"SELECT COUNT(*) AS people FROM {VIEW}")
        return int(found["people"])


def read_domain(path: TableLike, names: Iterable[str], *, table: str | None = None) -> dict[str, Feature]:
    """NOT PRIVATE: the distinct values of columns, for data whose domain is public or for a rehearsal."""
    found = {}
    with tables.open_rows(path, table=table) as rows:
        for name in names:
            values = marginals.domain(rows, name, _MOST_READ)
            labels = [v for v in values if v is not None]
            rule = f"must be at most {_MOST_READ} to be read from a file: give --bins, or group them in --schema"
            must(len(labels) <= _MOST_READ, f"values of {name}", rule, "more")
            made = Feature.categorical(name, sorted(labels, key=_order), missing=len(labels) < len(values))
            found[name] = made.counting("last")  # every field is listed
    return found


def _order(label: str) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        size = float(label)
    except ValueError:
        size = math.nan
    return (math.isnan(size), 0.0 if math.isnan(size) else size, label)


def table_counts(codes: Codes, features: Sequence[int]) -> Counts:
    """The k-way table of counts over these features, in their order.

    >>> people = codes_of(Schema.from_domain({"a": 2, "b": 3}), np.array([[0, 2], [1, 1], [0, 2]]))
    >>> table_counts(people, (0, 1)).tolist()
    [[0, 0, 2], [0, 1, 0]]
    """
    sizes = [codes.schema.sizes[f] for f in features]
    cells = math.prod(sizes)
    step = max(_LOT, cells)
    out: Counts | None = None
    for low in range(0, codes.people, step):
        people = slice(low, low + step)
        cell = codes.values[features[0], people].astype(np.int64)  # its number, in C order
        for f in features[1:]:
            cell *= codes.schema.sizes[f]
            cell += codes.values[f, people]
        part = np.bincount(cell, minlength=cells)
        out = part if out is None else np.add(out, part, out=out)
    found = np.zeros(cells, dtype=np.int64) if out is None else out
    return found.astype(np.int64, copy=False).reshape(sizes)


def counts(codes: Codes, workload: Workload, *, most_cells: int = MOST_CELLS) -> Iterator[tuple[Piece, Counts]]:
    """The exact counts of all consistent queries, piece by piece in the order of their numbers (`sliced`)."""
    must(codes.schema == workload.schema, "workload", "must be over the schema of the codes", "another")

    def table(features: Sequence[int], spans: Sequence[tuple[int, int]]) -> Counts:
        if all(span == (0, codes.schema.sizes[f]) for f, span in zip(features, spans, strict=True)):
            return table_counts(codes, features)
        return table_between([codes.values[f] for f in features], spans)

    return sliced(workload, table, most_cells)


# --- both groups ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class GroupCodes:
    """RAW: the codes of trusted people; of local ones their reports or, in a trial, their codes. Never leaves."""

    trusted: Codes
    local: MarginalReports | None = None
    local_raw: Codes | None = None
    simulated: bool = False
    assumed: bool = False
    digest: str | None = None
    notes: tuple[str, ...] = ()

    @property
    def local_people(self) -> int:
        if self.local_raw is not None:
            return self.local_raw.people
        return 0 if self.local is None else self.local.people

    @property
    def people(self) -> int:
        return self.trusted.people + self.local_people


@dataclass(frozen=True)
class TableColumns:
    """The columns of a synthetic table, and the one that says who trusts (None: everybody does)."""

    names: tuple[str, ...]
    trust: Trusts | None
    report: str = "report"
    person: ClassVar[None] = None
    absent: ClassVar[None] = None
    reads: ClassVar[dict[str, str]] = {}
    """No column must hold numbers; what each must be is checked as it is read."""

    def counts_as(self, middle: object) -> str:
        return ""


def read_groups(
    path: TableLike, schema: Schema, columns: TableColumns, invite: MarginalInvite | None = None, *,
    table: str | None = None, rng: Randomness, **how: Any,
) -> GroupCodes:  # fmt: skip
    """Both groups of a table; `how` as for `groups_of`."""
    with tables.open_rows(path, table=table, trust=columns.trust, rng=rng) as rows:
        chosen = chosen_by(path, table, columns.trust)
        return groups_of(rows, schema, columns, invite, chosen=chosen, **how)


def groups_of(
    rows: Rows, schema: Schema, columns: TableColumns, invite: MarginalInvite | None, *, local_raw: bool = False,
    assume: bool = False, chosen: str = "",
) -> GroupCodes:  # fmt: skip
    """Both groups of open rows; without an invitation nobody is local. What a field counts as must be declared."""
    labels = None if columns.trust is None else label_column(columns.trust)
    if local_raw or rows.trust is None or rows.trust.everyone != "local":
        marginals.check_declared(rows, schema)
    trusted = Codes(schema, marginals.codes(rows, schema, trust=labels), chosen)
    if invite is None or labels is None:
        return GroupCodes(trusted, notes=rows.notes)
    if local_raw:
        raw = Codes(schema, marginals.codes(rows, schema, trust=labels, label="local"))
        return GroupCodes(trusted, None, raw, simulated=True, notes=rows.notes)
    return replace(read_answers(rows, invite, columns, assume=assume), trusted=trusted)


def read_answers(rows: Rows, invite: MarginalInvite, columns: TableColumns, *, assume: bool) -> GroupCodes:
    """Local people's reports. Those of another mechanism, or of none unless it is assumed, are refused."""
    assert columns.trust is not None
    labels, report = label_column(columns.trust), columns.report
    told = MarginalReports.nobody(invite)
    nobody = Codes(invite.schema, np.zeros((len(invite.schema.sizes), 0), dtype=np.uint16))
    if not count_groups(rows, labels, None).local:
        return GroupCodes(nobody, told, notes=rows.notes)
    if report not in rows.columns:
        raise UnusablePublicRows(
            f"{local_rows(labels)}, and no column `{report}` holds their reports: make them with `hybridp "
            "randomise synth`, or add --simulate-local for a trial on raw rows."
        )
    says = tables.check_mechanism(rows, labels, f"{report}_mechanism", invite.text)
    for texts in local_texts(rows, report, labels, CHUNK):
        told = told + read_marginal_reports(invite, texts, report)
    assumed = tables.named_mechanism(f"{report}_mechanism", says, told.people, assume=assume)
    counts = np.concatenate([one.counts for one in told.told])
    digest = batch_digest(rows, Columns("", columns.trust, report), invite.text, counts, told.people)
    return GroupCodes(nobody, told, None, bool(says), assumed, digest, rows.notes)
