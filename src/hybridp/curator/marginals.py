"""RAW: people's rows as codes, and local people's reports beside them; and what leaves the room: marginals with noise,
and which one a model misses most.

The selection is the exponential mechanism itself, drawn exactly: the scores are whole numbers of lattice steps, so that
their sensitivity is exact, and rounding changes no probability.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from hybridp import noise, tables
from hybridp.curator.sources import Columns, Raw, Rows, TrustedAnswers
from hybridp.curator.sums import read
from hybridp.errors import must
from hybridp.noise.additive import settle_below_exp
from hybridp.public.lattice import Floats, Ints
from hybridp.public.queries import Feature, Schema, table_counts
from hybridp.public.shares import OnMarginals
from hybridp.public.synth import MeasuredTable, gumbel_scale
from hybridp.public.trust import label_column
from hybridp.randomness import Randomness
from hybridp.tables import totals as marginals
from hybridp.tables.engine import answers
from hybridp.tables.source import TableLike
from hybridp.tables.sql import VIEW

__all__ = ["LATTICE", "Codes", "answer_codes", "count_people", "gain", "groups_of", "measure_table"]
__all__ += ["pick_table", "read_codes", "read_domain"]

_MOST_READ = 4096  # Read from rows, a domain of more values is no domain: every value would be about somebody.
LATTICE = 1 << 16  # Steps to a person: the answers of D' are rounded to them, which is post-processing.


@dataclass(frozen=True, eq=False)
class Codes:
    """RAW: the code of every person's value, one array for each feature of the schema. Never leaves this room."""

    schema: Schema
    values: NDArray[np.uint16]

    @property
    def people(self) -> int:
        return int(self.values.shape[1])

    def table(self, features: Sequence[int]) -> Ints:
        """The exact counts of the table over these features."""
        return table_counts(self.values, self.schema.sizes, features)


def read_codes(path: TableLike, schema: Schema, *, table: str | None = None) -> Codes:
    """Read a table once and keep its codes: two bytes a field. See `hybridp.tables.totals.codes`."""
    with tables.open_rows(path, table=table) as rows:
        return Codes(schema, marginals.codes(rows, schema))


def count_people(path: TableLike, *, table: str | None = None) -> int:
    """How many rows there are, which is public: a row is a person."""
    with tables.open_rows(path, table=table) as rows:
        (result,) = answers(rows, f"SELECT COUNT(*) AS people FROM {VIEW}")
        return int(result["people"])


def read_domain(path: TableLike, names: Iterable[str], *, table: str | None = None) -> dict[str, Feature]:
    """NOT PRIVATE: the distinct values of columns, for data whose domain is public or for a rehearsal."""
    result = {}
    with tables.open_rows(path, table=table) as rows:
        for name in names:
            values = marginals.domain(rows, name, _MOST_READ)
            labels = [v for v in values if v is not None]
            rule = f"must be at most {_MOST_READ} to be read from a file: give --bins, or group them in --schema"
            must(len(labels) <= _MOST_READ, f"values of {name}", rule, "more")
            made = Feature.categorical(name, sorted(labels, key=_order), missing=len(labels) < len(values))
            result[name] = made.counting("last")  # every field is listed
    return result


def _order(label: str) -> tuple[bool, float, str]:
    """Numbers by size, then words."""
    try:
        size = float(label)
    except ValueError:
        size = math.nan
    return (math.isnan(size), 0.0 if math.isnan(size) else size, label)


# --- both groups ------------------------------------------------------------------------------------------------------


def groups_of(
    rows: Rows, schema: Schema, columns: Columns, invite: OnMarginals | None, *, local_raw: bool = False,
    assume: bool = False,
) -> Raw:  # fmt: skip
    """RAW: the codes of trusted people; of local ones their reports or, in a trial, their codes (`held`).

    Without an invitation nobody is local. What a field counts as must be declared.
    """
    labels = None if columns.trust is None else label_column(columns.trust)
    if local_raw or rows.trust is None or rows.trust.everyone != "local":
        marginals.check_schema(rows, schema, declared=True)
    trusted = Codes(schema, marginals.codes(rows, schema, trust=labels))
    if invite is None or labels is None:
        return Raw(trusted.people, trusted, notes=rows.notes)
    if local_raw:
        held = Codes(schema, marginals.codes(rows, schema, trust=labels, label="local"))
        return Raw(trusted.people, trusted, simulated_reports=True, held=held, notes=rows.notes)
    return replace(read(rows, columns, invite, assume=assume), trusted_people=trusted.people, trusted=trusted)


# --- what leaves the room ---------------------------------------------------------------------------------------------


def measure_table(codes: Codes, features: tuple[int, ...], sigma: float, *, rng: Randomness) -> MeasuredTable:
    """One whole marginal with exact discrete Gaussian noise on every cell: 1/sigma^2-zCDP, sigma in people."""
    counts = codes.table(features)
    drawn = noise.discrete_gaussian(sigma, counts.size, rng=rng).reshape(counts.shape)
    return MeasuredTable(features, np.asarray(counts + drawn, dtype=np.int64), sigma)


def answer_codes(answers: TrustedAnswers, schema: Schema) -> Codes:
    """RAW: the answers to every column as a service keeps them."""
    return Codes(schema, np.concatenate([rows.astype(np.uint16) for rows in answers]).T)


def gain(codes: Codes, features: tuple[int, ...], modelled: Floats, sigma: float) -> int:
    """RAW: how many people nearer a marginal measured with noise sigma would bring a model, in lattice steps.

    Half the L1 distance, less what noise would leave of it. That is k = sqrt(2/pi) sigma for each cell, and at most
    what the cell holds by the rows or by the model: |c - m| - min(k, max(c, m)). But a cell that already agrees to
    within k, where a fit that trusts the model would stay, loses nothing: max(0, |c - m| - k). The score is the mean of
    the two. Replacing a person moves one count up and another down by 1, both terms of a cell by at most as much, and
    the score by at most LATTICE: rounding down keeps whole bounds.
    """
    counts = codes.table(features) * LATTICE
    expected = np.rint(modelled * (float(LATTICE) * codes.people)).astype(np.int64)
    left = round(math.sqrt(2 / math.pi) * sigma * LATTICE)
    missed = np.abs(counts - expected)
    clear = np.maximum(missed - left, 0)
    known = missed - np.minimum(np.maximum(counts, expected), left)
    return int((clear + known).sum()) // 4


def pick_table(scores: Sequence[int], rho: float, allowed: Callable[[int], bool], *, rng: Randomness) -> int | None:
    """The number of one score by the exponential mechanism among those that are `allowed`: rho-zCDP.

    The scores have the sensitivity LATTICE. A number is drawn evenly and taken with probability
    ``exp((score - largest)/scale)``, decided exactly: each is taken in proportion to ``exp(score/scale)``. Whether it
    is allowed is public: one that is not is put aside, which leaves the others' proportions. None where none is.
    """
    scale, left = Fraction(gumbel_scale(rho, 1)) * LATTICE, list(range(len(scores)))
    largest = max(scores, default=0)
    while left:
        place = int(noise.uniform_below(len(left), 1, rng=rng)[0])
        behind = (largest - scores[left[place]]) / scale
        if settle_below_exp(int(rng.words(1)[0]), 64, behind, rng):
            if allowed(left[place]):
                return left[place]
            del left[place]
            largest = max((scores[i] for i in left), default=0)
    return None
