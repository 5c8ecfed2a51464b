"""How a field becomes a whole number, what is read of every person, and the query for it in three steps: records,
people and their totals."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

from hybridp.errors import UnusablePublicRows, must
from hybridp.public.groups import Joint
from hybridp.public.kmeans import Box
from hybridp.public.lattice import HALF, LEVELS, Bounds, Lattice, missing_each
from hybridp.public.queries import Feature, Schema
from hybridp.public.study.basics import label_column
from hybridp.public.vector import SHRINK, VectorBounds
from hybridp.tables import sql
from hybridp.tables.source import CHOICES, Rows
from hybridp.tables.sql import VIEW, Columns, chosen, column, double, feature_code, number_of, select, text, whole

__all__ = ["TIMES", "ByCategory", "Category", "Codec", "Number", "Query", "Report", "flags", "labels", "one_each"]
__all__ += ["people", "records", "totals"]


# --- how a field becomes a whole number, in SQL -----------------------------------------------------------------------


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
        return sql.level(f"value{j}", self.lattice, self.missing)

    def outside(self, j: int) -> str:
        """Whether it is clipped; NaN is no number."""
        low, high = double(self.lattice.lower), double(self.lattice.upper)
        return f"value{j} < {low} OR (value{j} > {high} AND value{j} <= {sql.INFINITY})"


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
            rows.need_missing(feature.name, feature.absent or feature.missing or None, CHOICES)
        if not self.feature.edges and rows.columns[self.column] in ("FLOAT", "DOUBLE"):
            # The text of a double differs between engines.
            raise UnusablePublicRows(f"Column `{self.column}` must hold text or whole numbers to {self.purpose}.")

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


@dataclass(frozen=True, kw_only=True)
class Query:
    """Which columns hold what, and the public rules that their fields must obey.

    `trust` holds exactly `trusted` or `local` (None: everybody is local). Everybody's `values` become whole numbers,
    less `origin`; with a `radius` (in steps) they are shrunk by the factor ``radius shrink/norm`` where their L1 or L2
    norm exceeds it. `reads` says whose values are read: those of the trusted, the local or all people. No value of a
    trusted person is refused, because a refusal would be an answer about it. Reports are read unless local values are:
    a local person answers `reported` of the columns `reports`, and other fields are empty; reports that are words name
    one of `names`. `count_clipped` asks how many trusted people's values lie outside the bounds; with `square_steps`
    the squares of their distances from the middle are added up, in so many steps to the farthest that a value can be.

    Without `person` every record is its own person. With it, one record stands for a person: the one with the smallest
    `record_key` (a random key stored with the record) or the smallest MD5 of its `record_id`; with neither, or where
    those are the same, the one whose levels have the smallest MD5, or are the smallest. All depend on that
    person's records alone. A choice by row position would not: another person's presence could move it, so that
    replacing one person would change the contributions of two. `epsilon` names the column of personal epsilons, which
    `hybridp.tables.totals` groups by.
    """

    values: tuple[Codec, ...]
    trust: str | None
    reports: tuple[Report, ...] = ()
    reported: int = 1
    names: tuple[str, ...] = ()
    person: str | None = None
    record_key: str | None = None
    record_id: str | None = None
    epsilon: str | None = None
    reads: str = "trusted"
    origin: int = 0
    norm: str | None = None
    radius: int | None = None
    shrink: float = 1.0
    count_clipped: bool = False
    square_steps: int = 0

    def __post_init__(self) -> None:
        names = [value.column for value in self.values]
        must(len({*names}) == len(names), "columns", "must name each column once", ", ".join(names))
        must(None in (self.record_key, self.record_id), "record_id", "must not join `record_key`", self.record_id)
        must(self.order is None or self.person is not None, "person", "must go with a record's key or id", self.person)

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
            how |= {"norm": bounds.norm, "radius": bounds.radius_steps, "shrink": SHRINK, "origin": HALF}
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
        trust, values = label_column(columns.trust), tuple[Codec, ...]()
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
    def order(self) -> str | None:
        """The column that decides which record stands for a person."""
        return self.record_key or self.record_id

    @property
    def columns(self) -> list[str | None]:
        """All that are read."""
        own = [self.trust, self.person, self.order, self.epsilon, *(report.column for report in self.sent)]
        by = (value.by.name for value in self.values if isinstance(value, ByCategory))
        return [*own, *(value.column for value in self.values), *by]

    @property
    def excludes(self) -> bool:
        return any(value.missing == "exclude" for value in self.values)

    @property
    def levels(self) -> list[str]:
        """What queries call everybody's whole numbers."""
        return [f"c{j}" for j in range(len(self.values))]


# --- records, people, totals ------------------------------------------------------------------------------------------
# Names within them: `c0`, ... are everybody's whole numbers, `sent0` a report as it was sent, `number0` the number that
# it is, `moved0` that number less its centre, `asked` everybody's own epsilon.

TIMES = "hybridp times"
"""The column that says how many records are alike."""


def labels(trust: str | None, table: str = "") -> dict[str, str]:
    """Whether a row is trusted, and whether it is local; without a column of labels everybody is local."""
    if trust is None:
        return {"trusted": "FALSE", "local": "TRUE"}
    return {label: sql.labelled(column(trust, table), label) for label in ("trusted", "local")}


def flags(query: Query) -> list[str]:
    """The problems that people may have, by name."""
    if query.person is None:
        return []
    ordered, own = query.order is not None, query.epsilon is not None
    return ["nobody", "first", "mixed", *(["keyless", "tied"] if ordered else []), *(["uneven"] if own else [])]


def one_each(query: Query, label: str) -> str:
    """Which rows of `people` stand for a person with this label."""
    return label if query.person is None else f"{label} AND first"


def _clipped(query: Query) -> list[str]:
    return ["clipped"] if query.count_clipped else []


def _sent(rows: Rows, query: Query) -> list[str]:
    """Reports as numbers, and as they were sent where that is text."""
    named = {f"sent{j}": one.text or rows.is_text(one.column) for j, one in enumerate(query.sent)}
    return [*(name for name, words in named.items() if words), *(f"number{j}" for j in range(len(query.sent)))]


def _text_keys(rows: Rows, query: Query) -> bool:
    return query.record_key is not None and rows.is_text(query.record_key)


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
        stated = f"own >= {double(0.0)} AND own <= {sql.INFINITY}"
        outputs["asked"] = f"CASE WHEN {stated} THEN own WHEN trusted THEN {double(0.0)} END"
    if query.person is not None:
        label = "'local'" if query.trust is None else f"COALESCE({column(query.trust)}, '')"
        fields |= {"who": column(query.person), "label": label}
        outputs |= chosen(["who", "label"])
    if query.order is not None:
        key = column(query.order)
        own = {"key_field": key, "key": f"MD5({text(key)})" if query.record_id is not None else key}
        if _text_keys(rows, query):
            # Numbers kept as text are compared as numbers; keys that are the same double are compared as text.
            own["key_number"] = sql.number(key, is_text=True)
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

    Coordinates are integers from the lattice on, and a squared norm fits 64 bits (`hybridp.public.vector.HALF`), so
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
    factor = f"CASE WHEN size > {limit} THEN {double(query.radius * query.shrink)} / {length} END"
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
    along = [*(["key_number"] if _text_keys(rows, query) else []), "key", *query.levels]
    if query.order is None:
        drawn = f"MD5({sql.joined(*map(text, query.levels))})" if query.levels else "label"
        along[0] = f"CASE WHEN NOT {query.levels[0]} IS NULL THEN {drawn} END" if query.excludes else drawn
    over = f"OVER (PARTITION BY who ORDER BY {', '.join(f'{part} NULLS LAST' for part in along)})"
    outputs = {
        **chosen(["trusted", "local"]),
        "nobody": "who IS NULL",
        "first": f"ROW_NUMBER() {over} = 1",
        # Where a person has two labels, one of them differs from the label before it.
        "mixed": f"LAG(label) {over} <> label",
    }
    if query.order is not None:
        outputs |= {"keyless": "key_field IS NULL", "tied": f"LAG(key) {over} = key"}
    kept = [*query.levels, *_clipped(query), *_sent(rows, query)]
    outputs |= chosen(kept)
    if query.epsilon is not None:
        outputs["uneven"] = f"LAG(asked) {over} <> asked"
        # A trusted person who states several epsilons is promised the smallest.
        outputs["asked"] = "CASE WHEN trusted THEN MIN(asked) OVER (PARTITION BY who) ELSE asked END"
        kept.append("asked")
    masked = {name: f"CASE WHEN first THEN {name} END" for name in kept}
    ranked = select(outputs, f"({every}) AS records")
    return select(chosen(["trusted", "local", *flags(query)]) | masked, f"({ranked}) AS ranked")


def totals(rows: Rows, query: Query) -> str:
    """The totals of each group (trusted: true, false, or NULL without a label), with a count of every problem.

    Grouping by one flag keeps the groups apart without a CASE around every term, which costs DuckDB more than the sums.
    """
    keys = ["trusted", *(["asked"] if query.epsilon is not None else [])]
    outputs = chosen(["local", *keys, *flags(query), *query.levels, *_clipped(query)])
    asked = {"records": "COUNT(*)", "local": sql.count_if("local")}
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
        asked["clipped"] = sql.count_if("clipped")
    for j, report in enumerate(query.sent):
        # The sums are divided by `half` once, at the end: a division here costs as much as a sum.
        moved = f"(number{j} - {double(report.centre)})"
        outputs |= {f"number{j}": f"number{j}", f"moved{j}": moved, f"steps{j}": sql.steps(moved, 2**31 / report.half)}
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
            outputs[f"wordy{j}"] = sql.not_a_number(f"sent{j}", f"number{j}")
            asked[f"wordy{j}"] = sql.count_if(f"wordy{j}")
    if len(query.sent) > 1:
        several = " + ".join(f"CAST(NOT number{j} IS NULL AS INT)" for j in range(len(query.sent)))
        asked["partial"] = sql.count_if(f"{one_each(query, 'local')} AND ({several}) <> {whole(query.reported)}")
    asked |= {flag: sql.count_if(flag) for flag in flags(query)}
    numbers = select(outputs, f"({people(rows, query)}) AS chosen")
    return select(chosen(keys) | asked, f"({numbers}) AS numbers", f"GROUP BY {', '.join(keys)}")
