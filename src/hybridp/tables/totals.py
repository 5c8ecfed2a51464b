"""Totals over people, read from a table under rules that every record must obey: sums of numbers, also by everybody's
own epsilon. Counts of options and by public bins are in `hybridp.tables.counts`.

Everything of trusted people is exact, and raw: it needs noise before it may be released. Nothing of theirs but a type
and a declaration is refused, because a refusal would be an answer.

How a field becomes a whole number, what is read of every person, and the query for it in three steps: records,
people and their totals.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import LABEL, Trusts, UnusablePublicRows, UnusableRows, label_column, must
from hybridp.public.groups import Joint
from hybridp.public.kmeans import Box
from hybridp.public.messages import SHRINK, ReportsByEpsilon, VectorBounds, VectorReportSums
from hybridp.public.personal import local_terms
from hybridp.public.queries import SEPARATOR, Feature, Schema
from hybridp.public.randomisers import HALF, LEVELS, Bounds, Floats, Ints, Lattice, missing_each
from hybridp.tables import engine
from hybridp.tables.engine import VIEW, Rows, chosen, column, column_must, count_if, double, select, text, whole

__all__ = ["ByCategory", "CHUNK", "Category", "Codec", "Columns", "Number", "Query", "Raw", "Report", "TIMES"]
__all__ += ["add_up", "changed", "check_columns", "code_of", "count_groups", "feature_code", "kept_levels", "labels"]
__all__ += ["levels_of", "local_rows", "no_reports", "not_a_number", "number", "number_of", "people", "people_of"]
__all__ += ["records", "totals"]

# --- how a field becomes a whole number, in SQL -----------------------------------------------------------------------


def number(this: str, *, is_text: bool, decimal: str = "") -> str:
    """A field as a double; text that is not a number becomes NULL, and `not_a_number` tells it from a missing field.

    The field is looked at beside its cast: DuckDB would otherwise let the reader of a CSV file do the only cast, and
    that fails as a whole where TRY_CAST gives NULL for one field. Of numbers with a decimal comma, one with a point is
    none: it may stand between thousands.
    """
    if not is_text:
        return f"CAST({this} AS DOUBLE)"
    plain = f"REPLACE(REPLACE({text(this)}, '.', '?'), ',', '.')" if decimal == "," else text(this)
    return f"CASE WHEN NOT {this} IS NULL THEN TRY_CAST({plain} AS DOUBLE) END"


def number_of(rows: Rows, name: str, field: str = "", *, decimal: str = "") -> str:
    """A field of a column (the column itself unless given) as a double; truth is 1 or 0."""
    raw = field or column(name)
    if rows.columns[name] == "BOOLEAN":  # which not every engine takes for a number
        raw = f"CAST({raw} AS INT)"
    return number(raw, is_text=rows.is_text(name), decimal=decimal)


def not_a_number(raw: str, as_number: str) -> str:
    return f"(NOT {raw} IS NULL AND {as_number} IS NULL)"


def code_of(this: str, labels: Iterable[str]) -> str:
    """The place of a text among the labels, from 0; NULL where it is none of them.

    A cast to an enumeration is one look-up, against a branch for each of possibly thousands of labels.
    """
    return f"enum_code(TRY_CAST({this} AS ENUM({', '.join(map(engine.literal, labels))})))"


def _ticked(raw: str, feature: Feature) -> str:
    """The values that a field lists, as bits of a number, the first value's lowest; what is not listed is left out."""
    mark, listed = engine.literal(SEPARATOR), f"COALESCE({text(raw)}, '')"
    for spaced in (f"{SEPARATOR} ", f" {SEPARATOR}"):
        listed = f"REPLACE({listed}, {engine.literal(spaced)}, {mark})"
    listed = f"{mark} || TRIM({listed}) || {mark}"
    result = [f"STRPOS({listed}, {engine.literal(SEPARATOR + value + SEPARATOR)}) > 0" for value in feature.values]
    bits = (f"CASE WHEN {there} THEN {whole(1 << i)} ELSE {whole(0)} END" for i, there in enumerate(result))
    return f"CAST(({' + '.join(bits)}) AS BIGINT)"


def feature_code(rows: Rows, feature: Feature, field: str | None = None) -> str:
    """The code of one field (the feature's column unless given) by the public schema, whatever the field holds.

    It is a function of one row, never of the others. A number outside the edges is in the nearest bin, and whatever
    else is not listed, or is missing, counts as the value that the feature declares, else as its last one: a refusal
    would be an answer.
    """
    raw = column(feature.name) if field is None else field
    if feature.most:
        return _ticked(raw, feature)
    if feature.edges:
        value = number_of(rows, feature.name, raw, decimal=rows.decimal)
        inner = feature.edges[1:-1]
        # NaN is above infinity on every engine: it is no number, and falls through.
        ends = {**{i: f"< {double(edge)}" for i, edge in enumerate(inner)}, len(inner): f"<= {engine.INFINITY}"}
        cases = [f"WHEN {value} {end} THEN {whole(i)}" for i, end in ends.items()]
    else:
        place = code_of(text(raw), feature.values[: feature.size - feature.missing])
        cases = [f"WHEN NOT {place} IS NULL THEN CAST({place} AS BIGINT)"]
    last = feature.size - 1
    absent = last if feature.absent is None else feature.values.index(feature.absent)
    if feature.missing and absent != last:  # what is not listed is the last, what is not there another
        cases.append(f"WHEN NOT {raw} IS NULL THEN {whole(last)}")
    return f"CAST(CASE {' '.join(cases)} ELSE {whole(absent)} END AS INT)"


@dataclass(frozen=True)
class Number:
    """A number, clipped to the lattice's bounds and rounded to one of its levels.

    What is missing or no number counts as the public `missing` ("middle": of the bounds), or in nothing ("exclude").
    Where nobody said what, a column that may lack values is refused, by its type alone.
    """

    column: str
    lattice: Lattice
    missing: float | str | None = None

    def __post_init__(self) -> None:
        low, high = self.lattice.lower, self.lattice.upper
        if isinstance(self.missing, str):
            must(self.missing in ("middle", "exclude"), "missing", "must be a number, middle or exclude", self.missing)
        elif self.missing is not None:
            must(low <= self.missing <= high, "missing", f"must lie between {low} and {high}", self.missing)

    def check(self, rows: Rows, *, unread: bool = False) -> None:
        rows.need_number(self.column, text=unread)
        if not unread:
            rows.need_missing(self.column, self.missing)

    def fields(self, rows: Rows, j: int) -> dict[str, str]:
        return {f"value{j}": number_of(rows, self.column, decimal=rows.decimal)}

    def level(self, rows: Rows, j: int) -> str:
        """The lattice level of a double (see `Lattice`); NULL and NaN get that of `missing`, or of the middle.

        Every field has a level, or none where `missing` says exclude: whether there is an answer must not depend on
        anybody's value.
        """
        value, lattice = f"value{j}", self.lattice
        low, high = double(lattice.lower), double(lattice.upper)
        inside = f"CAST(FLOOR(({value} - {low}) * {double(lattice.scale)} + {double(0.5)}) AS BIGINT)"
        other = lattice.middle if self.missing is None or isinstance(self.missing, str) else self.missing
        default = "" if self.missing == "exclude" else f"ELSE {whole(lattice.level(other))} "
        return (
            f"CASE WHEN {value} > {low} AND {value} < {high} THEN {inside} WHEN {value} <= {low} THEN {whole(0)} "
            f"WHEN {value} <= {engine.INFINITY} THEN {whole(lattice.levels)} {default}END"
        )

    def outside(self, j: int) -> str:
        """Whether it is clipped; NaN is no number."""
        low, high = double(self.lattice.lower), double(self.lattice.upper)
        return f"value{j} < {low} OR (value{j} > {high} AND value{j} <= {engine.INFINITY})"


@dataclass(frozen=True)
class Category:
    """The code of a field among the options of a feature, or its ticks as bits (`feature_code`)."""

    feature: Feature
    purpose: str = "be one of several options"

    @property
    def column(self) -> str:
        return self.feature.name

    @property
    def missing(self) -> str | None:
        return "exclude" if self.feature.excludes else None

    def check(self, rows: Rows, *, unread: bool = False) -> None:
        feature = self.feature
        if feature.edges and not unread:
            rows.need_number(feature.name)
        if not (feature.most or unread):
            rows.need_missing(feature.name, feature.absent or feature.missing or None, engine.CHOICES)
        if not feature.edges:
            rows.need_words(feature.name, f" to {self.purpose}")

    def fields(self, rows: Rows, j: int) -> dict[str, str]:
        return {f"value{j}": column(self.column)}

    def level(self, rows: Rows, j: int) -> str:
        return f"CAST({feature_code(rows, self.feature, f'value{j}')} AS BIGINT)"


@dataclass(frozen=True)
class ByCategory:
    """A private category and another answer of one record: the code of the one times `stride`, plus the other."""

    by: Feature
    answer: Number | Category

    @property
    def column(self) -> str:
        return self.answer.column

    @property
    def missing(self) -> float | str | None:
        return self.answer.missing

    @property
    def stride(self) -> int:
        """A power of two for numbers, so that doubles divide by it exactly."""
        return 2 * self.answer.lattice.levels if isinstance(self.answer, Number) else self.answer.feature.size

    def check(self, rows: Rows, *, unread: bool = False) -> None:
        self.answer.check(rows, unread=unread)
        rows.need("by", self.by.name)
        Category(self.by, "name a group").check(rows, unread=True)

    def fields(self, rows: Rows, j: int) -> dict[str, str]:
        return {**self.answer.fields(rows, j), f"category{j}": column(self.by.name)}

    def level(self, rows: Rows, j: int) -> str:
        code = f"CAST({feature_code(rows, self.by, f'category{j}')} AS BIGINT)"
        return f"{code} * {whole(self.stride)} + ({self.answer.level(rows, j)})"


Codec: TypeAlias = Number | Category | ByCategory
"""How a field becomes a whole number: of every field, whatever it holds, as a refusal would be an answer. `check`
refuses a column by its type or declaration; where its values stay `unread`, only what no type allows. `fields` are the
fields as they are compared, and `level` is their whole number."""


@dataclass(frozen=True)
class Report:
    """A column of reports: numbers within [low, high], summed as (report - centre)/half, or, with `text`, words."""

    column: str
    centre: float = 0.0
    half: float = 1.0
    low: float = -math.inf
    high: float = math.inf
    text: bool = False


# --- what is read of every person -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Columns:
    """Which columns of the table hold what. Without `person`, every row is a person of their own.

    `value` is the column of one number or option, whose reports are in `report`; or it names several columns, of a
    vector (the report on column `NAME` is in `NAME_report`), of a record, or of a synthetic table, whose columns may
    hold `words`. `missing` says what a value counts as that is missing or no number: a number within the bounds, or
    "middle", for all columns or for each; or, of one number where nobody is local, "exclude": whoever has none is left
    out. It may be left out of a table whose column is declared to hold a number in every row (whole numbers of NumPy),
    and where options state it (`hybridp.choice`).
    """

    value: str | tuple[str, ...]
    trust: Trusts | None
    report: str | None = "report"
    person: str | None = None
    record_key: str | None = None
    missing: tuple[float | str, ...] | float | str | None = None
    words: bool = field(default=False, repr=False)

    @property
    def names(self) -> tuple[str, ...]:
        return (self.value,) if isinstance(self.value, str) else self.value

    @property
    def trust_column(self) -> str | None:
        """The column of labels, once the table is open; None where no rule says who trusts."""
        return None if self.trust is None else label_column(self.trust)

    @property
    def label(self) -> str:
        return self.trust_column or LABEL

    @property
    def reports(self) -> tuple[str, ...]:
        if not (self.words or isinstance(self.value, str)):
            return tuple(f"{name}_report" for name in self.value)
        return () if self.report is None else (self.report,)

    @property
    def mechanism(self) -> str:
        """The column that says how a report was made."""
        return f"{self.report}_mechanism"

    @property
    def reads(self) -> dict[str, tuple[str, ...]]:
        """The columns that must be there and hold numbers, by the option that names them."""
        return {} if self.words else {"column" if isinstance(self.value, str) else "columns": self.names}

    @property
    def absent(self) -> tuple[float | str, ...] | float | str | None:
        """What a missing value counts as, of several columns that of each."""
        return self.missing if isinstance(self.value, str) else missing_each(self.missing, len(self.value))

    def must_count(self, what: str) -> None:
        """Refuse to leave people out where the answer is about everybody."""
        rule = f"must be a number, or middle, for {what}: people without a value cannot be left out of it yet"
        must(self.missing != "exclude", "missing", rule, self.missing)


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which columns hold what, and the public rules that their fields must obey.

    `trust` holds exactly `trusted` or `local` (None: everybody is local). Everybody's `values` become whole numbers,
    less `origin`; with a `radius` (in steps) they are shrunk by the factor ``radius SHRINK/norm`` where their L1 or L2
    norm exceeds it. `reads` says whose values are read: those of the trusted, the local or all people. Reports are read
    unless local values are: a local person answers `reported` of the columns `reports`, and other fields are empty;
    reports that are words name one of `names`. `count_clipped` asks how many trusted people's values lie outside the
    bounds; with `square_steps` the squares of their distances from the middle are added up, in so many steps to the
    farthest that a value can be.

    Without `person` every record is its own person. With it, one record stands for a person: the one with the smallest
    `record_key` (a random key stored with the record); without one, or where those are the same, the one whose levels
    have the smallest MD5, or are the smallest. All depend on that person's records alone. A choice by row position
    would not: another person's presence could move it, so that replacing one person would change the contributions of
    two. `epsilon` names the column of personal epsilons, which `hybridp.tables.totals` groups by.
    """

    values: tuple[Codec, ...]
    trust: str | None
    reports: tuple[Report, ...] = ()
    reported: int = 1
    names: tuple[str, ...] = ()
    person: str | None = None
    record_key: str | None = None
    epsilon: str | None = None
    reads: str = "trusted"
    origin: int = 0
    norm: str | None = None
    radius: int | None = None
    count_clipped: bool = False
    square_steps: int = 0
    made: Any = None
    """The mechanism of the reports."""

    def __post_init__(self) -> None:
        names = [value.column for value in self.values]
        must(len({*names}) == len(names), "columns", "must name each column once", ", ".join(names))
        must(self.record_key is None or self.person is not None, "person", "must go with a record's key", self.person)

    @classmethod
    def on(
        cls, bounds: Bounds | VectorBounds | Box, columns: tuple[str, ...], trust: str | None,
        missing: tuple[float | str, ...] | float | str | None = None, **how: Any,
    ) -> Query:  # fmt: skip
        """The query of one number a person, of a vector in steps from its centre, or of a point in steps from the lower
        corner of its box; `missing` is one for all columns or one for each, and `how` are other fields.

        >>> Query.on(Bounds(0, 100), ("salary",), "trust", "middle").values[0].lattice.levels == 2**32
        True
        """
        if isinstance(bounds, Bounds):
            lattices = [Lattice(bounds.lower, bounds.upper, LEVELS)]
        elif isinstance(bounds, Box):
            lattices = [*map(Lattice, bounds.lower, bounds.upper, bounds.tops)]
        else:
            lattices = [Lattice(b.lower, b.upper, 2 * HALF) for b in bounds.bounds]
            how |= {"norm": bounds.norm, "radius": bounds.radius_steps, "origin": HALF}
        d = len(columns)
        must(len(lattices) == d, "lower", f"must hold one number for each of the {d} columns", len(lattices))
        stated = missing_each(missing, d) or (None,) * d
        must(len(stated) == d, "missing", f"must hold one number for each of the {d} columns", len(stated))
        must(d == 1 or "exclude" not in stated, "missing", "must lie within the bounds, or be middle", "exclude")
        return cls(values=tuple(map(Number, columns, lattices, stated)), trust=trust, **how)

    @classmethod
    def asking(
        cls, encoding: Bounds | VectorBounds | Box | Feature | Schema, columns: Columns, joint: Joint | None = None,
        **how: Any,
    ) -> Query:  # fmt: skip
        """What is asked about these columns; with `joint` a private category and an answer together."""
        trust, values = columns.trust_column, tuple[Codec, ...]()
        if isinstance(encoding, Schema):
            values = tuple(map(Category, encoding.features))
        elif isinstance(encoding, Feature):
            values, how["names"] = (Category(encoding),), encoding.told
        else:
            return cls.on(encoding, columns.names, trust, columns.missing, **how)
        if joint is not None:
            answer: Category | Number
            if isinstance(joint.answers, Bounds):
                lattice = Lattice(joint.answers.lower, joint.answers.upper, joint.steps)
                answer = Number(columns.names[0], lattice, columns.missing)  # type: ignore[arg-type]
            else:
                answer = Category(joint.answers)
            values = (ByCategory(joint.by, answer),)
        return cls(values=values, trust=trust, **how)

    @property
    def local_raw(self) -> bool:
        return self.reads != "trusted"

    @property
    def sent(self) -> tuple[Report, ...]:
        """The reports that are read."""
        return () if self.local_raw else self.reports

    @property
    def columns(self) -> list[str | None]:
        """All that are read."""
        own = [self.trust, self.person, self.record_key, self.epsilon, *(report.column for report in self.sent)]
        by = (value.by.name for value in self.values if isinstance(value, ByCategory))
        return [*own, *(value.column for value in self.values), *by]

    @property
    def excludes(self) -> bool:
        return any(value.missing == "exclude" for value in self.values)

    @property
    def levels(self) -> list[str]:
        """What queries call everybody's whole numbers."""
        return [f"c{j}" for j in range(len(self.values))]

    @property
    def value_names(self) -> list[str]:
        """What queries call all that they read of values."""
        return [*self.levels, *(["clipped"] if self.count_clipped else [])]

    @property
    def flags(self) -> list[str]:
        """The problems that people may have, by name."""
        if self.person is None:
            return []
        ordered, own = self.record_key is not None, self.epsilon is not None
        return ["nobody", "first", "mixed", *(["keyless", "tied"] if ordered else []), *(["uneven"] if own else [])]

    @property
    def each(self) -> str:
        """What counts people: records, or those that stand for a person."""
        return "records" if self.person is None else "first"

    def one_each(self, label: str) -> str:
        """Which rows of `people` stand for a person with this label."""
        return label if self.person is None else f"{label} AND first"


# --- records, people, totals ------------------------------------------------------------------------------------------
# Names within them: `c0`, ... are everybody's whole numbers, `sent0` a report as it was sent, `number0` the number that
# it is, `moved0` that number less its centre, `asked` everybody's own epsilon.

CHUNK = 2**18
TIMES = "hybridp times"
"""The column that says how many records are alike."""


def labels(trust: str | None, table: str = "") -> dict[str, str]:
    """Whether a row is trusted, and whether it is local; without a column of labels everybody is local."""
    if trust is None:
        return {"trusted": "FALSE", "local": "TRUE"}
    return {label: engine.labelled(column(trust, table), label) for label in ("trusted", "local")}


def _sent(rows: Rows, query: Query) -> list[str]:
    """Reports as numbers, and as they were sent where that is text."""
    named = {f"sent{j}": one.text or rows.is_text(one.column) for j, one in enumerate(query.sent)}
    return [*(name for name, words in named.items() if words), *(f"number{j}" for j in range(len(query.sent)))]


def records(rows: Rows, query: Query, *, alike: bool = False, local: str = "") -> str:
    """Every record: its labels as flags, the levels of values that are read here, its reports and its epsilon; `local`
    says who is taken for local.

    No field of a trusted record is refused: a value has a level whatever it is, and an epsilon that is missing,
    negative or no number is 0, so that nothing is used of that person. With `alike` those that hold the same are one
    row, with their number: fields of options, of which there are few, are worked out once for many people.
    """
    fields = labels(query.trust) | ({"local": local} if local else {})
    outputs = chosen(fields)
    for j, codec in enumerate(query.values):
        fields |= codec.fields(rows, j)
        here = codec.level(rows, j) + (f" - {whole(query.origin)}" if query.origin else "")
        outputs[f"c{j}"] = here if query.reads == "all" else f"CASE WHEN {query.reads} THEN {here} END"
        if query.count_clipped and isinstance(codec, Number):
            outputs["clipped"] = f"({'TRUE' if query.reads == 'all' else query.reads} AND ({codec.outside(j)}))"
    for j, report in enumerate(query.sent):
        fields |= {f"sent{j}": text(column(report.column)), f"number{j}": number_of(rows, report.column)}
    outputs |= chosen(_sent(rows, query))
    if query.epsilon is not None:
        fields["own"] = number_of(rows, query.epsilon)
        stated = f"own >= {double(0.0)} AND own <= {engine.INFINITY}"
        outputs["asked"] = f"CASE WHEN {stated} THEN own WHEN trusted THEN {double(0.0)} END"
    if query.person is not None:
        label = "'local'" if query.trust is None else f"COALESCE({column(query.trust)}, '')"
        fields |= {"who": column(query.person), "label": label}
        outputs |= chosen(["who", "label"])
    if query.record_key is not None:
        key = column(query.record_key)
        own = {"key": key}
        if rows.is_text(query.record_key):
            # Numbers kept as text are compared as numbers; keys that are the same double are compared as text.
            own["key_number"] = number(key, is_text=True)
        fields |= own
        outputs |= chosen(own)
    held = VIEW
    if alike:
        names = [query.trust or "", *(value.column for value in query.values), *(one.column for one in query.sent)]
        read = chosen(names)
        counted = select(read | {TIMES: "COUNT(*)"}, VIEW, f"GROUP BY {', '.join(read.values())}")
        held = f"({counted}) AS held"
        fields[TIMES] = outputs[TIMES] = column(TIMES)
    return _shrunk(query, outputs, f"({select(fields, held)}) AS fields")


def _shrunk(query: Query, outputs: dict[str, str], source: str) -> str:
    """The outputs, of which c0, c1, ... are shrunk to the radius.

    Coordinates are integers from the lattice on, and a squared norm fits 64 bits (`hybridp.public.messages.HALF`), so
    that whether a vector is clipped is decided exactly; a clipped one is shrunk and rounded towards the centre.
    """
    made, c = select(outputs, source), query.levels
    if query.radius is None:
        return made
    square = query.norm == "l2"
    size = " + ".join(f"{x} * {x}" if square else f"ABS({x})" for x in c)
    sized = select(chosen(outputs) | {"size": size}, f"({made}) AS steps")
    limit = whole(query.radius**2 if square else query.radius)
    length = "SQRT(CAST(size AS DOUBLE))" if square else "CAST(size AS DOUBLE)"
    factor = f"CASE WHEN size > {limit} THEN {double(query.radius * SHRINK)} / {length} END"
    factored = select(chosen(outputs) | {"factor": factor}, f"({sized}) AS sized")
    last = chosen(outputs)
    for x in c:
        inside = f"CAST(SIGN({x}) AS BIGINT) * CAST(FLOOR(CAST(ABS({x}) AS DOUBLE) * factor) AS BIGINT)"
        last[x] = f"CASE WHEN factor IS NULL THEN {x} ELSE {inside} END"
    return select(last, f"({factored}) AS factored")


def people(rows: Rows, query: Query, *, alike: bool = False) -> str:
    """The records, or of each person one, along their keys, an empty key last; what is on the others is left out.

    Labels are flags, levels are those of values read here, reports are as they were sent.
    """
    every = records(rows, query, alike=alike)
    if query.person is None:
        return every
    # Records with one key are told apart by their levels: where those are the same too, it does not matter.
    text_keys = query.record_key is not None and rows.is_text(query.record_key)
    along = [*(["key_number"] if text_keys else []), "key", *query.levels]
    if query.record_key is None:
        drawn = f"MD5({engine.joined(*map(text, query.levels))})" if query.levels else "label"
        along[0] = f"CASE WHEN NOT {query.levels[0]} IS NULL THEN {drawn} END" if query.excludes else drawn
    over = f"OVER (PARTITION BY who ORDER BY {', '.join(f'{part} NULLS LAST' for part in along)})"
    outputs = {
        **chosen(["trusted", "local"]),
        "nobody": "who IS NULL",
        "first": f"ROW_NUMBER() {over} = 1",
        # Where a person has two labels, one of them differs from the label before it.
        "mixed": f"LAG(label) {over} <> label",
    }
    if query.record_key is not None:
        outputs |= {"keyless": "key IS NULL", "tied": f"LAG(key) {over} = key"}
    kept = [*query.value_names, *_sent(rows, query)]
    outputs |= chosen(kept)
    if query.epsilon is not None:
        outputs["uneven"] = f"LAG(asked) {over} <> asked"
        # A trusted person who states several epsilons is promised the smallest.
        outputs["asked"] = "CASE WHEN trusted THEN MIN(asked) OVER (PARTITION BY who) ELSE asked END"
        kept.append("asked")
    masked = {name: f"CASE WHEN first THEN {name} END" for name in kept}
    ranked = select(outputs, f"({every}) AS records")
    return select(chosen(["trusted", "local", *query.flags]) | masked, f"({ranked}) AS ranked")


def totals(rows: Rows, query: Query) -> str:
    """The totals of each group (trusted: true, false, or NULL without a label), with a count of every problem.

    Grouping by one flag keeps the groups apart without a CASE around every term, which costs DuckDB more than the sums.
    """
    keys = ["trusted", *(["asked"] if query.epsilon is not None else [])]
    outputs = chosen(["local", *keys, *query.flags, *query.value_names])
    asked = {"records": "COUNT(*)", "local": count_if("local")}
    for j, (c, codec) in enumerate(zip(query.levels, query.values, strict=True)):
        asked[f"sum{j}"] = f"SUM({c})"
        if codec.missing == "exclude":
            asked["answered"] = f"COUNT({c})"
        if query.square_steps and isinstance(codec, Number):
            half = codec.lattice.levels // 2
            scale = double(query.square_steps / min(half, query.radius or half))
            away = c if query.origin == half else f"{c} - {whole(half - query.origin)}"
            far = f"CAST(FLOOR(CAST(ABS({away}) AS DOUBLE) * {scale}) AS BIGINT)"
            asked[f"square{j}"] = f"SUM({far} * {far})"
    if query.count_clipped:
        asked["clipped"] = count_if("clipped")
    for j, report in enumerate(query.sent):
        # The sums are divided by `half` once, at the end: a division here costs as much as a sum.
        moved = f"(number{j} - {double(report.centre)})"
        outputs |= {f"number{j}": f"number{j}", f"moved{j}": moved}
        # A whole number of steps, of a tie the even one; NULL for NaN and what none is.
        outputs[f"steps{j}"] = f"TRY_CAST({moved} * {double(2**31 / report.half)} AS BIGINT)"
        asked |= {
            f"reports{j}": f"SUM(CAST(moved{j} AS DOUBLE))",
            f"squares{j}": f"SUM(CAST(moved{j} * moved{j} AS DOUBLE))",
            f"reported{j}": f"COUNT(moved{j})",
            f"least{j}": f"MIN(number{j})",
            f"most{j}": f"MAX(number{j})",
            # Stands for the reports whatever their order, beside their number, the least and the largest: they are on
            # 2^32 steps of the bounds, so that other draws agree in it with a probability of about 2^-32. It guards
            # against mistakes: whoever writes the reports' file themselves can make two sets agree.
            f"parity{j}": f"BIT_XOR(steps{j})",
        }
        if rows.is_text(report.column):
            outputs[f"wordy{j}"] = not_a_number(f"sent{j}", f"number{j}")
            asked[f"wordy{j}"] = count_if(f"wordy{j}")
    if len(query.sent) > 1:
        several = " + ".join(f"CAST(NOT number{j} IS NULL AS INT)" for j in range(len(query.sent)))
        asked["partial"] = count_if(f"{query.one_each('local')} AND ({several}) <> {whole(query.reported)}")
    asked |= {flag: count_if(flag) for flag in query.flags}
    numbers = select(outputs, f"({people(rows, query)}) AS chosen")
    return select(chosen(keys) | asked, f"({numbers}) AS numbers", f"GROUP BY {', '.join(keys)}")


@dataclass(frozen=True, eq=False, slots=True, repr=False)
class Raw:
    """RAW: exact sums over the trusted people, beside what local people sent. Never leaves the curator.

    `trusted` sums up what everybody's answer counts for: a number's steps (less the query's origin), those of each
    column, or one count an option (a person counts for `steps`, all in one place unless their vote is divided);
    `squares` are of distances from the middle. Who is left out without a value stands in the middle, and `answered`
    counts the others. Replacing one trusted person moves a sum by at most the levels, and `clipped` by at most 1;
    replacing one moves one count of an option down and another up by 1.

    Sums of `local` reports are of doubles that are already private, so that their last digits may depend on the order;
    `marks` stand for the set of them, and `digest` names it. `simulated_reports` and `assumed` say whether a program
    drew some, and whether they name no mechanism. In a trial `held` is what local people hold: a count an option, or
    sets of them and how many have each. With own `epsilons` there is one entry for each of them, ascending.
    """

    trusted_people: Any
    trusted: Any
    local: Any = None
    simulated_reports: bool = False
    assumed: bool = False
    digest: str | None = None
    squares: Any = 0
    clipped: int = 0
    answered: int | None = None
    steps: int = 1
    held: Any = None
    epsilons: Any = None
    notes: tuple[str, ...] = ()
    marks: tuple[Any, ...] = ()

    @property
    def local_people(self) -> int:
        """Who reported, or in a trial of codes holds some."""
        return int(getattr(self.held if self.local is None else self.local, "people", 0))

    def plus(self, other: Raw) -> Raw:
        """RAW: what is needed of the people in both."""
        people, squares = self.trusted_people + other.trusted_people, self.squares + other.squares
        return replace(other, trusted_people=people, trusted=self.trusted + other.trusted, squares=squares)


def add_up(rows: Rows, query: Query) -> Raw:
    """The totals of `query`, from one scan of the table when every record is its own person.

    Raises `UnusableRows` when a label, a person's name or a report breaks a rule; the sentence names a column, never a
    record or a value. Trusted people's values are never refused.

    With a column of epsilons, for each of them. A missing, NaN or negative one is 0 for a trusted person, and refused
    for a local one; 0 and infinity are allowed, and nothing is used of a person with epsilon 0.

    >>> from hybridp.tables import Lattice, Number, Query, Report, open_rows
    >>> salary, report = np.array([25, 990, 0]), np.array([0, 0, 150])
    >>> query = Query(values=(Number("salary", Lattice(0, 100, 4)),), trust="trust",
    ...               reports=(Report("report", centre=50, half=50, low=-50, high=150),))
    >>> people = {"salary": salary, "trust": ["trusted", "trusted", "local"], "report": report}
    >>> with open_rows(people) as rows:
    ...     found = add_up(rows, query)
    >>> found.trusted_people, found.trusted, found.local_people, found.local.totals.tolist()
    (2, (5,), 1, [2.0])
    """
    check_columns(rows, query)
    groups, each = engine.answers(rows, totals(rows, query)), query.each
    own, others = people_of(rows, query, groups)
    sides = [[group for group in groups if group["trusted"] == label and group[each]] for label in (True, False)]
    if query.epsilon is not None:
        return _by_epsilon(query, *sides)
    trusted, local = (next(iter(side), {}) for side in sides)
    _check_reports(local, others, query)
    wide, halves = range(len(query.values)), np.array([report.half for report in query.sent] or [1.0])

    def told(name: str) -> list[Any]:
        return [local.get(f"{name}{j}") or 0 for j in range(len(query.sent))]

    counts, sums, squares = (np.array(told(name) or [0.0 for _ in wide]) for name in ("reported", "reports", "squares"))
    return Raw(
        own,
        tuple(int(trusted.get(f"sum{j}") or 0) for j in wide),
        VectorReportSums(others, counts.astype(np.int64), sums / halves, squares / halves / halves, query.made),
        squares=tuple(int(trusted.get(f"square{j}") or 0) for j in wide) if query.square_steps else (),
        clipped=int(trusted.get("clipped") or 0),
        answered=int(trusted.get("answered") or 0) if query.excludes else None,
        marks=(others, *map(int, told("parity")), *_ends(*told("least"), *told("most"))),
    )


def people_of(rows: Rows, query: Query, groups: Sequence[Mapping[str, Any]]) -> tuple[int, int]:
    """How many people are trusted and local, of whom there may be several groups; who breaks a rule is refused.

    Who takes part and with which label is public, so that a rule on it may refuse; so may a rule on local reports. What
    trusted records hold, how many a person has and their keys may not: there the query chooses by a public rule.
    """
    sides: dict[Any, Counter[str]] = {}
    for group in groups:
        side = sides.setdefault(group["trusted"], Counter())
        side.update({name: int(group[name] or 0) for name in ("records", "local", *query.flags)})
    trusted, local = sides.get(True, Counter()), sides.get(False, Counter())
    column_must(not any(side["nobody"] for side in sides.values()), query.person, "must name a person in every row")
    if None in sides or local["local"] != local["records"]:
        raise rows.unlabelled(query.trust or "")
    one_label = not any(side["mixed"] for side in sides.values())
    column_must(one_label, query.trust, "must hold one label for each person, not both")
    once = query.record_key is not None or local["records"] == local[query.each]
    rule = "must name each local person once, unless a record key or id decides which record is used"
    column_must(once, query.person, rule)
    column_must(not local["uneven"], query.epsilon, "must hold one epsilon for each local person")
    column_must(not local["keyless"], query.record_key, "must not be empty in any local row")
    column_must(not local["tied"], query.record_key, "must differ between the records of one local person")
    return trusted[query.each], local[query.each]


def count_groups(rows: Rows, query: Query) -> tuple[int, int]:
    """How many people are trusted and local, by the rules of `add_up`; no value is read, and no report."""
    check_columns(rows, query)
    result = add_up(rows, replace(query, values=(), reports=(), square_steps=0, radius=None, count_clipped=False))
    return result.trusted_people, result.local_people


def levels_of(rows: Rows, query: Query, group: str, chunk: int = CHUNK, **how: Any) -> Iterator[Ints]:
    """RAW: the whole numbers of one group's people, a row a person, in chunks, after the rules on people; both at the
    call."""
    count_groups(rows, query)
    return kept_levels(rows, query, group, chunk, **how)()


def kept_levels(
    rows: Rows, query: Query, group: str, chunk: int = CHUNK, *, ordered: bool = True, dtype: type = np.int64
) -> Callable[[], Iterator[NDArray[Any]]]:
    """RAW: the same, kept now (within the limit of memory, then on disk) and read as often as that is called. Check the
    rows first (`count_groups`). Those of one number, and of local people, come in ascending order, so that a seeded
    trial repeats itself; unless they are not `ordered`, but perhaps as the rows are.
    """
    must(query.reads in (group, "all"), "local_raw", f"must be true to read values of {group} people", query.reads)
    table, rows, c = engine.fresh("levels"), engine.local_copy(rows, query.columns), ", ".join(query.levels)
    standing = f"FROM ({people(rows, query)}) AS people WHERE {query.one_each(group)}"
    along = f"ORDER BY {c}" if ordered and (group == "local" or len(query.values) == 1) else ""
    engine.keep(rows, table, f"SELECT {c} {standing} {along}")

    def read() -> Iterator[NDArray[Any]]:
        for part in engine.read_kept(rows, table, chunk):
            if any(np.ma.is_masked(part[name]) for name in query.levels):
                raise changed(rows)
            yield np.stack([np.asarray(part[name]) for name in query.levels], dtype=dtype, casting="unsafe").T

    return read


def changed(rows: Rows) -> UnusableRows:
    return UnusableRows(f"The rows of {rows.name} must not change while they are read.")


# --- rules ------------------------------------------------------------------------------------------------------------


def check_columns(rows: Rows, query: Query) -> None:
    """Refuse columns that are not there, or whose types cannot hold what they should."""
    for codec in query.values:
        rows.need("value" if len(query.values) == 1 else "columns", codec.column)
    for report in query.reports:
        rows.need("report", report.column)
    for parameter in ("trust", "person", "record_key", "epsilon"):
        rows.need(parameter, getattr(query, parameter))
    everybody_local = query.trust is None or (rows.trust is not None and rows.trust.everyone == "local")
    for codec in query.values:
        codec.check(rows, unread=everybody_local and query.reads == "trusted")
    for name in (*(one.column for one in query.reports if not one.text), query.epsilon):
        if name is not None:
            rows.need_number(name, text=True)
    if query.trust is not None:
        rows.need_labels(query.trust)


def _check_reports(group: dict[str, Any], people: int, query: Query) -> None:
    if not people or query.local_raw or not query.values:
        return
    if not query.reports:
        raise no_reports(query.trust)
    first = query.reports[0].column
    for j, report in enumerate(query.reports):
        column_must(not group.get(f"wordy{j}"), report.column, "must hold numbers")
    if group.get("partial"):
        rule = f"must hold {query.reported} of {len(query.reports)} reports in every local row"
        raise UnusablePublicRows(f"Columns `{first}` and following {rule}.")
    everybody = len(query.reports) > 1 or group["reported0"] == people
    column_must(everybody, first, "must have a report for every local person")
    for j, report in enumerate(query.reports):
        least, most = group[f"least{j}"], group[f"most{j}"]
        if least is None:
            continue
        finite = all(map(math.isfinite, (least, most, group[f"squares{j}"])))
        column_must(finite, report.column, "must hold finite reports")
        rule = f"reports lie between {report.low} and {report.high}"
        possible = least >= report.low and most <= report.high
        column_must(possible, report.column, f"has a report that this mechanism cannot produce: {rule}")


def no_reports(
    trust: str | None, why: str = "no column holds their reports: make them with `hybridp randomise`"
) -> UnusablePublicRows:
    """Local people, whose reports are nowhere."""
    trial = "or add --simulate-local for a trial on raw rows."
    return UnusablePublicRows(f"{local_rows(trust or LABEL)}, and {why}, {trial}")


def local_rows(name: str) -> str:
    """How a message starts that is about local rows.

    >>> local_rows("consent")
    'Column `consent` labels rows `local`'
    """
    return "Rows are local" if name == LABEL else f"Column `{name}` labels rows `local`"


def _ends(*numbers: float | None) -> tuple[float, ...]:
    """The least and the largest report, as they are compared: without the sign of 0, and 0 where there is none."""
    return tuple(float(x or 0.0) + 0.0 for x in numbers)


# --- by everybody's own epsilon ---------------------------------------------------------------------------------------

_SLACK = 1e-4  # the device's probabilities are rounded to whole cells, which moves a reach by a few millionths
Groups = Sequence[dict[str, Any]]


def _by_epsilon(query: Query, trusted: Groups, local: Groups) -> Raw:
    """For each trust label and each epsilon, ascending. Reports are in the unit coordinate; nobody's may lie further
    out than the best report for their own epsilon can, and those at epsilon 0 are not looked at."""
    stated = all(group["asked"] is not None for group in local)
    column_must(stated, query.epsilon, "must hold an epsilon of 0 or more for every local person")
    trusted, local = (sorted(side, key=lambda group: float(group["asked"])) for side in (trusted, local))
    heard, each = [group for group in local if group["asked"] > 0], query.each
    reaches = local_terms(_floats(heard, "asked")).reach
    half = query.reports[0].half if query.sent else 1.0
    for group, reach in zip(heard, reaches.tolist(), strict=True):
        _check_reports(group, group[each], query)
        for report in query.sent:
            far = max(report.centre - group["least0"], group["most0"] - report.centre)
            possible = far <= reach * half * (1 + _SLACK)
            column_must(possible, report.column, "has a report that its person's own epsilon cannot produce")
    silent = np.array([group["asked"] == 0 for group in local], dtype=np.bool_)
    sums, squares = (np.where(silent, 0.0, _floats(local, name) / half) for name in ("reports0", "squares0"))
    marks = tuple(
        (group["asked"], group[each], group["parity0"], *_ends(group["least0"], group["most0"]))
        if group["asked"] > 0
        else (0.0, group[each])
        for group in local
        if query.sent
    )
    people, others = (np.array([int(group[each]) for group in side], dtype=np.int64) for side in (trusted, local))
    return Raw(
        people,
        np.array([int(group.get("sum0") or 0) for group in trusted], dtype=np.int64),
        ReportsByEpsilon(_floats(local, "asked"), others, sums, squares / half),
        epsilons=_floats(trusted, "asked"),
        marks=marks,
    )


def _floats(groups: Groups, name: str) -> Floats:
    return np.array([group.get(name) or 0.0 for group in groups], dtype=np.float64)
