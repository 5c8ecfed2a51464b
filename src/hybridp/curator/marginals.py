"""RAW: people's rows as codes, local people's reports beside them, and exact counts of whole workloads.

The cell of a row in a k-way table is one number in mixed radix, and the table is how often each number occurs: work in
rows + cells, whatever the number of queries. Thresholds follow by sums over the table's axes. Nothing here is private;
what leaves the room is noised elsewhere.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp import tables
from hybridp.curator.mean import Columns
from hybridp.curator.shares import batch_digest
from hybridp.curator.sources import chosen_by, must_not_ask
from hybridp.errors import UnusablePublicRows, must
from hybridp.public.queries import MOST_CELLS, Feature, Piece, Schema, Workload, sliced, table_between
from hybridp.public.synth_reports import MarginalInvite, MarginalReports, read_marginal_reports
from hybridp.public.trust import Trusts, label_column, rule_of
from hybridp.randomness import Randomness
from hybridp.tables import marginals
from hybridp.tables.columns import count_people as count_groups
from hybridp.tables.columns import local_rows, local_texts
from hybridp.tables.engine import answers
from hybridp.tables.mean import CHUNK
from hybridp.tables.source import VIEW, TableLike

__all__ = ["REPORT", "Codes", "GroupCodes", "codes_of", "count_people", "counts", "read_codes", "read_domain"]
__all__ += ["read_groups", "table_counts"]

Counts = NDArray[np.int64]
_MOST_READ = 4096  # Read from rows, a domain of more values is no domain: every value would be about somebody.
REPORT = "report"
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

    What is no code of a feature counts as its last value, as in `hybridp.tables.marginals`: nothing is refused.

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


def read_codes(path: TableLike, schema: Schema, *, table: str | None = None, declared: bool = False) -> Codes:
    """Read a table once and keep its codes: two bytes a field. See `hybridp.tables.marginals.codes`.

    For a release it must be `declared` what a field counts as that is missing or not listed.
    """
    with tables.open_rows(path, table=table) as rows:
        if declared:
            marginals.check_declared(rows, schema)
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


def read_groups(
    path: TableLike,
    invite: MarginalInvite,
    trust: Trusts,
    *,
    table: str | None = None,
    local_raw: bool = False,
    assume: bool = False,
    pilot: bool = False,
    rng: Randomness,
) -> GroupCodes:
    """Both groups. Reports of another mechanism, or of none unless it is assumed, are refused; no field ever is.

    With a `pilot` the trusted people have been asked before: their rows are not read.
    """
    if pilot:
        must_not_ask(path)
    labels, schema = label_column(trust), invite.schema
    with tables.open_rows(path, table=table, trust=trust, rng=rng) as rows:
        if local_raw or not (pilot or (rows.trust is not None and rows.trust.everyone == "local")):
            marginals.check_declared(rows, schema)
        counted, notes = count_groups(rows, labels, None), rows.notes
        rule = rule_of(trust)
        if pilot and rule is not None:  # who trusts was asked before this file
            notes = tuple(note for note in notes if note != rule.rule)
        nobody = np.zeros((len(schema.sizes), 0), dtype=np.uint16)
        values = nobody if pilot else marginals.codes(rows, schema, trust=labels)
        trusted = Codes(schema, values, chosen_by(path, table, trust))
        if local_raw:
            raw = Codes(schema, marginals.codes(rows, schema, trust=labels, label="local"))
            return GroupCodes(trusted, None, raw, simulated=True, notes=notes)
        if not counted.local:
            return GroupCodes(trusted, MarginalReports.nobody(invite), None, notes=notes)
        if REPORT not in rows.columns:
            raise UnusablePublicRows(
                f"{local_rows(labels)}, and no column `{REPORT}` holds their reports: make them with `hybridp "
                "randomise synth`, or add --simulate-local for a trial on raw rows."
            )
        says = tables.check_mechanism(rows, labels, f"{REPORT}_mechanism", invite.text)
        told = MarginalReports.nobody(invite)
        for texts in local_texts(rows, REPORT, labels, CHUNK):
            told = told + read_marginal_reports(invite, texts, REPORT)
        assumed = tables.named_mechanism(f"{REPORT}_mechanism", says, told.people, assume=assume)
        counts = np.concatenate([one.counts for one in told.told])
        digest = batch_digest(rows, Columns("", trust, REPORT), invite.text, counts, told.people)
        return GroupCodes(trusted, told, None, bool(says), assumed, digest, notes)
