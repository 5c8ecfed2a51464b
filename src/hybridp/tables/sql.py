"""The words that the queries are made of: text in DuckDB's SQL, which `hybridp.tables.dialects` translates for others.

Names of a table's columns and texts are quoted here, always; bare words are the queries' own. A part that is no call,
cast, CASE or name has brackets of its own. Three facts that the queries rely on hold on every engine: NaN is greater
than infinity and equal to itself, a comparison with NULL selects no branch of a CASE, and arithmetic on doubles is
IEEE. LEAST(GREATEST(x, lower), upper) is avoided: it turns NULL into `lower` and NaN into `upper`. The sum of whole
numbers is exact on every engine; one of doubles, or of 0 and 1, says so by a cast to DOUBLE or INT.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hybridp import errors
from hybridp.errors import LABEL, LOCAL, TRUSTED, InvalidInput, TrustRule, Trusts, UnusablePublicRows, keyed, must
from hybridp.noise import Randomness
from hybridp.public.queries import SEPARATOR, Feature
from hybridp.public.randomisers import Lattice, missing_each

if TYPE_CHECKING:
    from hybridp.tables.source import Rows

__all__ = ["INFINITY", "VIEW", "Columns", "answers_here", "chosen", "code_of", "column", "count_if", "double"]
__all__ += ["drawn_label", "feature_code", "is_one_of", "joined", "labelled", "level", "literal"]
__all__ += ["local_rows", "named_mechanism", "not_a_number", "number", "number_of", "of_local", "select", "steps"]
__all__ += ["text", "whole", "worded_label"]

VIEW = "rows"
"""What every query calls the rows, whatever holds them."""


def column(name: str, table: str = "") -> str:
    quoted = '"' + name.replace('"', '""') + '"'
    return f"{table}.{quoted}" if table else quoted


def literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def select(outputs: Mapping[str, str], source: str, more: str = "") -> str:
    """The outputs by their names, from a table or from a query (in brackets, with a name)."""
    return f"SELECT {', '.join(f'{this} AS {column(name)}' for name, this in outputs.items())} FROM {source} {more}"


def chosen(names: Iterable[str]) -> dict[str, str]:
    """Columns as they are, for `select`."""
    return {name: column(name) for name in names}


def double(value: float) -> str:
    # A bare 0.1 is a DECIMAL in DuckDB; the cast of the shortest text that identifies a double is that double.
    return f"CAST('{repr(float(value)).replace('inf', 'Infinity')}' AS DOUBLE)"


INFINITY = double(float("inf"))


def whole(value: int) -> str:
    return f"CAST({value:d} AS BIGINT)"


def text(this: str) -> str:
    return f"CAST({this} AS TEXT)"


def count_if(this: str) -> str:
    # In DuckDB the sum of a flag is faster than COUNT over a CASE or a FILTER.
    return f"SUM(CAST({this} AS INT))"


def labelled(this: str, label: str) -> str:
    return f"({this} = {literal(label)})"


def is_one_of(this: str, words: Iterable[str]) -> str:
    return f"{this} IN ({', '.join(map(literal, words))})"


def joined(first: str, *others: str) -> str:
    """Texts as one text from which they can be read back: all but the last behind their length.

    A missing one would make the whole missing; it is refused elsewhere, and here an empty text.
    """
    *heads, last = (f"COALESCE({part}, '')" for part in (first, *others))
    before = [f"CAST(LENGTH({part}) AS TEXT) || ' ' || {part} || " for part in heads]
    return f"({''.join(before)}{last})"


def code_of(this: str, labels: Iterable[str]) -> str:
    """The place of a text among the labels, from 0; NULL where it is none of them.

    A cast to an enumeration is one look-up, against a branch for each of possibly thousands of labels.
    """
    return f"enum_code(TRY_CAST({this} AS ENUM({', '.join(map(literal, labels))})))"


def steps(moved: str, scale: float) -> str:
    """A report, less its centre, as a whole number of steps (of a tie the even one); NULL for NaN and what none is."""
    return f"TRY_CAST({moved} * {double(scale)} AS BIGINT)"


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


def level(value: str, lattice: Lattice, missing: float | str | None = None) -> str:
    """The lattice level of a double (see `Lattice`); NULL and NaN get the level of `missing`, or of the middle.

    Every field has a level, or none where `missing` says exclude: whether there is an answer must not depend on
    anybody's value.
    """
    low, high = double(lattice.lower), double(lattice.upper)
    inside = f"CAST(FLOOR(({value} - {low}) * {double(lattice.scale)} + {double(0.5)}) AS BIGINT)"
    other = lattice.middle if missing is None or isinstance(missing, str) else missing
    default = "" if missing == "exclude" else f"ELSE {whole(lattice.level(other))} "
    return (
        f"CASE WHEN {value} > {low} AND {value} < {high} THEN {inside} WHEN {value} <= {low} THEN {whole(0)} "
        f"WHEN {value} <= {INFINITY} THEN {whole(lattice.levels)} {default}END"
    )


def _ticked(raw: str, feature: Feature) -> str:
    """The values that a field lists, as bits of a number, the first value's lowest; what is not listed is left out."""
    mark, listed = literal(SEPARATOR), f"COALESCE({text(raw)}, '')"
    for spaced in (f"{SEPARATOR} ", f" {SEPARATOR}"):
        listed = f"REPLACE({listed}, {literal(spaced)}, {mark})"
    listed = f"{mark} || TRIM({listed}) || {mark}"
    result = [f"STRPOS({listed}, {literal(SEPARATOR + value + SEPARATOR)}) > 0" for value in feature.values]
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
        ends = {**{i: f"< {double(edge)}" for i, edge in enumerate(inner)}, len(inner): f"<= {INFINITY}"}
        cases = [f"WHEN {value} {end} THEN {whole(i)}" for i, end in ends.items()]
    else:
        place = code_of(text(raw), feature.values[: feature.size - feature.missing])
        cases = [f"WHEN NOT {place} IS NULL THEN CAST({place} AS BIGINT)"]
    last = feature.size - 1
    absent = last if feature.absent is None else feature.values.index(feature.absent)
    if feature.missing and absent != last:  # what is not listed is the last, what is not there another
        cases.append(f"WHEN NOT {raw} IS NULL THEN {whole(last)}")
    return f"CAST(CASE {' '.join(cases)} ELSE {whole(absent)} END AS INT)"


# --- which columns hold what, and labels by a rule on words, for everybody alike, or drawn ----------------------------


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
        return None if self.trust is None else errors.label_column(self.trust)

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


def named_mechanism(mechanism_column: str, says: bool | None, people: int, *, assume: bool) -> bool:
    """Refuse reports that name no mechanism, unless it is assumed; True when it is."""
    if says is not None or not people:
        return False
    if not assume:
        raise UnusablePublicRows(
            f"Column `{mechanism_column}` must name the mechanism and the question beside every report, as `hybridp "
            "randomise` writes them; --assume-mechanism takes them at your word, and the receipt will say so."
        )
    return True


def local_rows(name: str) -> str:
    """How a message starts that is about local rows.

    >>> local_rows("consent")
    'Column `consent` labels rows `local`'
    """
    return "Rows are local" if name == LABEL else f"Column `{name}` labels rows `local`"


def of_local(trust: str | None) -> str:
    return "" if trust is None else f"WHERE {labelled(column(trust), LOCAL)}"


_DRAWN = "question drawn"
_DIGITS = 13  # of a hash in hexadecimal: a share is drawn to 2^-52


def worded_label(trust: TrustRule) -> str:
    """`trusted` for its words alone; any other is local, or no label where the words for local are listed too."""
    words = text(column(trust.column or ""))
    other = f"WHEN {is_one_of(words, trust.local)} THEN '{LOCAL}'" if trust.local else f"ELSE '{LOCAL}'"
    return f"CASE WHEN {is_one_of(words, trust.trusted)} THEN '{TRUSTED}' {other} END"


def drawn_label(trust: TrustRule, person: str | None, rng: Randomness | None, dialect: str) -> str:
    """The same label for everybody; or, for a trial, one that is drawn for every person or, without names, every row.

    The draw is a hash of the person's name, or of the row's place, with a key of 128 random bits: whatever the row
    holds.
    """
    if trust.trial_opt_in is None:
        return literal(trust.everyone or LOCAL)
    key = trust.key
    if key is None:
        if rng is None:
            raise InvalidInput("`rng` must be given to draw who trusts. Got None.")
        key = keyed(trust, rng.words(2).tolist()).key
    drawn = _hashed(key or "", person, dialect, "trial-opt-in", "must go with --person on this engine")
    return f"CASE WHEN {drawn} < '{_digits(trust.trial_opt_in)}' THEN '{TRUSTED}' ELSE '{LOCAL}' END"


def _hashed(key: str, person: str | None, dialect: str, field: str, rule: str) -> str:
    """Some digits of a hash of the person's name, or of the row's place, with a key."""
    if person is None:  # only there the rows have an order that every query sees
        must(dialect == "duckdb", field, rule, dialect)
    who = "ROW_NUMBER() OVER ()" if person is None else column(person)
    return f"SUBSTRING(MD5({literal(f'{key} ')} || {text(who)}), 1, {_DIGITS})"


def _digits(share: float) -> str:
    """The first digits that are not below this share of all hashes."""
    return f"{min(math.ceil(share * 16**_DIGITS), 16**_DIGITS - 1):0{_DIGITS}x}"


def answers_here(trust: TrustRule, person: str | None, dialect: str) -> tuple[dict[str, str], str]:
    """A column to make, and which rows to keep by it: all but local people who answered another question.

    A row without a label stays, to be refused.
    """
    answering = trust.answering
    assert answering is not None
    elsewhere = f"COALESCE({column(trust.label)} <> '{LOCAL}', TRUE)"
    if answering.column is not None:
        return {}, f"{elsewhere} OR {labelled(column(answering.column), answering.question)}"
    rule = "must name a column for a trial of several questions on this engine"
    drawn = _hashed(answering.key or "", person, dialect, "people.column", rule)
    within = [f"{column(_DRAWN)} >= '{_digits(answering.start)}'"] if answering.start > 0 else ["TRUE"]
    within += [f"{column(_DRAWN)} < '{_digits(answering.end)}'"] if answering.end < 1 else []
    return {_DRAWN: drawn}, f"{elsewhere} OR ({' AND '.join(within)})"
