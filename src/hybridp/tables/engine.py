"""Opening a table and asking about its rows: a CSV, Parquet or DuckDB file, one that Python holds, or a table of
PostgreSQL or Spark.

Whatever holds the rows, every query is written against one name, `rows`. Who trusts is settled here too: whatever the
table says of it, and in which words, the open rows have one column that holds `trusted` or `local`.

Queries are text in DuckDB's SQL, which `hybridp.tables.servers` translates for others. Names of a table's columns and
texts are quoted here, always; bare words are the queries' own. A part that is no call, cast, CASE or name has brackets
of its own. Three facts that the queries rely on hold on every engine: NaN is greater than infinity and equal to itself,
a comparison with NULL selects no branch of a CASE, and arithmetic on doubles is IEEE. LEAST(GREATEST(x, lower), upper)
is avoided: it turns NULL into `lower` and NaN into `upper`. The sum of whole numbers is exact on every engine; one of
doubles, or of 0 and 1, says so by a cast to DOUBLE or INT.

An engine's message may quote the value that it could not convert. No such text leaves this module: it is replaced by
one sentence, and the original exception is not even kept as the context of the new one.
"""

from __future__ import annotations

import contextlib
import csv
import glob
import gzip
import itertools
import math
import os
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypeVar

from numpy.typing import NDArray

from hybridp import errors
from hybridp.errors import LABEL, LOCAL, TRUSTED, HybridpError, InvalidInput, TrustRule, UnusablePublicRows, must
from hybridp.noise import Randomness

if TYPE_CHECKING:
    from hybridp.tables.servers import Postgres, Spark

__all__ = ["ArrowStream", "CHOICES", "DECIMAL", "Duck", "ENGINES", "Engine", "INFINITY", "NUMBERS", "Rows", "Source"]
__all__ += ["TABLES", "TableLike", "VIEW", "answers", "arrays", "attempt", "chosen", "column", "column_must"]
__all__ += ["count_if", "double", "drop", "fresh", "give", "is_one_of", "joined", "keep", "labelled", "literal"]
__all__ += ["local_copy", "memory_short", "of_local", "on_duck", "open_rows", "parquet_or_csv", "read_header"]
__all__ += ["read_kept", "select", "shown", "sql_for", "stream", "text", "unreadable", "unstated", "whole"]
__all__ += ["without_bar"]

# --- the words of queries ---------------------------------------------------------------------------------------------

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


def of_local(trust: str | None) -> str:
    return "" if trust is None else f"WHERE {labelled(column(trust), LOCAL)}"


def joined(first: str, *others: str) -> str:
    """Texts as one text from which they can be read back: all but the last behind their length.

    A missing one would make the whole missing; it is refused elsewhere, and here an empty text.
    """
    *heads, last = (f"COALESCE({part}, '')" for part in (first, *others))
    before = [f"CAST(LENGTH({part}) AS TEXT) || ' ' || {part} || " for part in heads]
    return f"({''.join(before)}{last})"


# --- where rows live --------------------------------------------------------------------------------------------------

ENGINES = ("duckdb", "postgresql", "spark")
_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")
# Two letters at least: one is a drive. `pathlib` leaves one slash of a URL's two.
_URL = re.compile(r"([a-z][a-z0-9+.:-]+):/", re.IGNORECASE)
_STRING = re.compile(r"\bpassword\s*=", re.IGNORECASE)


@dataclass(frozen=True, repr=False)
class Source:
    """Where rows live, and the engine that reads them.

    `location` is a path, a connection URL, or a table that Python holds: a pandas or Polars frame, an Arrow table or
    reader, a dictionary of NumPy arrays by column, a structured array, a relation of DuckDB. `decimal` is the sign in
    numbers that are written as text, "." or ",": a column that is declared as text is read as numbers only where it is
    stated.
    Everybody may know who holds what in the columns that are `public`; a study states them itself (`people.public`).

    >>> Source("people.parquet").engine, Source("postgresql://db.example/people").engine
    ('duckdb', 'postgresql')
    >>> Source("sc://spark.example:15002/;token=abc").shown
    'sc://spark.example:15002'
    >>> Source({"age": [31, 45]}).shown
    'the arrays'
    """

    location: Any
    engine: str = ""
    decimal: str = ""
    public: Sequence[str] = ()

    def __post_init__(self) -> None:
        must(self.decimal in ("", ".", ","), "decimal", 'must be "." or ","', repr(self.decimal))
        public = (self.public,) if isinstance(self.public, str) else tuple(self.public)
        object.__setattr__(self, "public", public)
        if self.held is not None:
            must(self.engine in ("", "duckdb"), "engine", "must be duckdb for a table in memory", shown(self.engine))
            object.__setattr__(self, "engine", "duckdb")
            return
        kind, rule = type(self.location), "must be a file, a URL, or a table of pandas, Polars, Arrow, DuckDB or NumPy"
        known = issubclass(kind, str | os.PathLike)
        must(known, "path", f"{rule} arrays by column", f"an object of type {kind.__name__}")
        object.__setattr__(self, "location", os.fspath(self.location))
        start = str(self.location).lower()
        natural = "postgresql" if start.startswith(_POSTGRES) else "spark" if start.startswith("sc://") else "duckdb"
        engine = self.engine or natural
        known = engine in ENGINES or engine.startswith("sc://")
        must(known, "engine", f"must be one of {', '.join(ENGINES)} or an sc:// URL", shown(self.engine))
        must(natural in ("duckdb", engine), "engine", f"must be {natural} for this URL", shown(self.engine))
        rule = "must be an sc:// URL, such as sc://spark.example:15002, for a file that a cluster sees"
        must(engine != "spark" or natural == engine, "engine", rule, "spark")
        rule = "must be a URL such as postgresql://user@host/database for this engine"
        must(engine != "postgresql" or natural == engine, "path", rule, "a path")
        plain, rule = self.shown == self.location, "must be a file, or a URL that starts with postgresql:// or sc://"
        must(engine != "duckdb" or plain, "path", rule, self.shown or "a connection string")
        object.__setattr__(self, "engine", engine)

    @property
    def shown(self) -> str:
        """The location without a password, token or other option: fit for a message."""
        return self.held or shown(self.location)

    @property
    def held(self) -> str | None:
        """What messages call a table that Python holds; None for a path or a URL."""
        if isinstance(self.location, str | os.PathLike):
            return None
        from hybridp.tables.frames import held

        return held(self.location)

    def __fspath__(self) -> str:
        must(self.held is None, "path", "must be a file here", self.held)
        return str(self.location)

    def __repr__(self) -> str:
        return f"Source({self.shown!r}, {shown(self.engine)!r})"

    def __str__(self) -> str:
        return self.shown


def shown(location: str | os.PathLike[str]) -> str:
    """A location without a password, token or other option: fit for a message.

    >>> shown("postgresql://ann:hunter2@db.example/people"), shown("folder/people.csv")
    ('postgresql://db.example/people', 'folder/people.csv')
    """
    from urllib.parse import urlsplit

    location = os.fspath(location)
    url = _URL.match(location)
    if url is None:
        return "" if _STRING.search(location) else location
    scheme = url[1]
    try:
        parts = urlsplit(location)
        host, port = parts.hostname or "", f":{parts.port}" if parts.port else ""
    except ValueError:
        return f"{scheme}://"
    # A password with a slash or a number sign ends the host too early; what follows is then not a path.
    if ":" in scheme or "://" not in location or ("@" in location and "@" not in parts.netloc):
        return f"{scheme}://"
    # The path of a Spark Connect URL starts its options, among them the token.
    return f"{scheme}://{host}{port}" + ("" if scheme == "sc" else parts.path)


class ArrowStream(Protocol):
    """A table of pandas, Polars, Arrow, DuckDB, or whatever else offers its rows as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


TableLike: TypeAlias = str | os.PathLike[str] | Source | ArrowStream | Mapping[str, Any] | NDArray[Any]
"""What can be opened: a path or a URL, a `Source`, or a table that Python holds."""


# --- an open table ----------------------------------------------------------------------------------------------------

AS_WRITTEN = "trust as written"  # beside the labels in the open rows, for a copy of them
NUMBERS = "a number within its bounds, middle, or exclude (for a mean of trusted people alone)"
CHOICES = "one of the options, or `other` as one more, or exclude"
TABLES = "one of its values, or true (a category), in the schema; or `other` for all columns, last or missing"
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_WHOLE_DECIMAL = re.compile(r"DECIMAL\([0-9]+, ?0\)")
_MOST = 9  # words that are looked at: more are no answer to a question of trust


@dataclass(frozen=True, eq=False)
class Rows(contextlib.AbstractContextManager["Rows"]):
    """An open table: its columns with their types, and the engine that answers queries about it.

    `columns` maps each name to DuckDB's name of its type; every CSV column is text (`VARCHAR`) and is converted by the
    query that reads it, because types guessed from the first rows would depend on the people in them. `part` is a query
    that makes the rows of what the engine holds, where they are not all of it as it is.
    """

    columns: Mapping[str, str]
    engine: Engine = field(repr=False)
    trust: TrustRule | None = None
    notes: tuple[str, ...] = ()
    part: str | None = field(default=None, repr=False)
    decimal: str = ""
    filled: frozenset[str] = frozenset()
    """The columns whose declared type has a number in every row."""

    @property
    def name(self) -> str:
        return self.engine.name

    @property
    def written(self) -> Mapping[str, str]:
        """The columns of a copy of the rows, and where each is read: choices as they were written."""
        alike = self.trust is not None and self.trust.everyone is not None
        names = [name for name in self.columns if not (alike and name == LABEL)]
        worded = self.trust.column if self.trust is not None and self.trust.trusted else None
        return {name: AS_WRITTEN if name == worded else name for name in names}

    def need(self, parameter: str, column: str | None) -> None:
        """Refuse a column, where one is named, that the table does not have."""
        if column is None or column in self.columns:
            return
        # Names are not listed: in a file without a header they would be somebody's values. A header has no numbers.
        names = (name.strip().lower() for name in self.columns)
        header = not any(re.fullmatch(r"[-+]?[\d.,_]*\d[\d.,_]*(e[-+]?\d+)?", name) for name in names)
        hint = errors.did_you_mean(column, self.columns) if header else ""
        raise InvalidInput(f"`{parameter}` must be a column of {self.name}. Got `{column}`.{hint}")

    def is_text(self, column: str) -> bool:
        return self.columns[column] == "VARCHAR" or self.columns[column].startswith("ENUM")

    def is_number(self, column: str) -> bool:
        kind = self.columns[column]
        return kind.removeprefix("U").startswith(_NUMBERS) and "[" not in kind

    def is_whole(self, column: str) -> bool:
        kind = self.columns[column]
        # An unsigned number of 64 bits is a DECIMAL(20,0) elsewhere.
        return kind.removeprefix("U") in _WHOLE or _WHOLE_DECIMAL.fullmatch(kind) is not None

    def need_number(self, column: str, *, text: bool = False) -> None:
        """Refuse a column that is not declared to hold numbers; with `text`, as reports are, they may be written.

        By types alone, as in `need_missing`: what a field holds must not decide.
        """
        kind = self.columns[column]
        numbers = f"must hold numbers; its type is {kind}"
        column_must(self.is_number(column) or self.is_text(column), column, numbers)
        how = 'State `decimal`, the sign in numbers that are written as text ("." or ","), or convert the column'
        stated = text or self.decimal or not self.is_text(column)
        column_must(stated, column, f"of {self.name} {numbers}. {how}")

    def need_missing(self, column: str, missing: object, ways: str = NUMBERS) -> None:
        """Refuse a column that may lack values while nobody said what that means."""
        if missing is None and column not in self.filled:
            raise unstated(column, ways)

    def need_words(self, column: str, rule: str) -> None:
        """Refuse a column of doubles, whose text differs between engines, and with it what it names."""
        column_must(self.columns[column] not in ("FLOAT", "DOUBLE"), column, f"must hold text or whole numbers{rule}")

    def need_identifier(self, parameter: str, column: str) -> None:
        """Refuse a column whose text form is not the same on every engine, and with it the sample made from it."""
        ok = self.is_text(column) or self.is_whole(column) or self.columns[column] in ("UUID", "DATE")
        must(ok, parameter, "must hold text, whole numbers, dates or UUIDs", f"`{column}` of {self.columns[column]}")

    def texts(self, name: str, most: int, trust: str | None = None) -> list[str]:
        """Up to `most` different texts of a column, in order; a missing one is an empty text. For what is public.

        With `trust`, those of local rows alone.
        """
        query = f"SELECT DISTINCT {text(column(name))} AS told FROM {VIEW} {of_local(trust)} LIMIT {most}"
        return sorted("" if row["told"] is None else str(row["told"]) for row in answers(self, query))

    def need_labels(self, name: str) -> None:
        """Refuse a column that cannot hold the labels."""
        self.need("trust", name)
        if not self.is_text(name):
            words = f"Column `{name}` must hold text: `trusted` or `local` in every row."
            known = self.is_whole(name) or self.columns[name] == "BOOLEAN"
            raise UnusablePublicRows(words + (errors.suggestion(name, self.texts(name, _MOST)) if known else ""))

    def unlabelled(self, name: str) -> UnusablePublicRows:
        """What to say where a row has no label: the choice is public, and so are the words for it."""
        trust = self.trust
        if trust is not None and trust.local:
            trusted, local = (" or ".join(f"`{word}`" for word in words) for words in (trust.trusted, trust.local))
            return UnusablePublicRows(f"Column `{name}` must hold {trusted} (trusted) or {local} (local) in every row.")
        result = self.texts(name, _MOST)
        hint = "" if {*result} <= {TRUSTED, LOCAL, ""} else errors.suggestion(name, result)
        return UnusablePublicRows(f"Column `{name}` must hold `trusted` or `local` in every row.{hint}")

    def close(self) -> None:
        """Give back what the engine holds."""
        self.engine.close()

    def __exit__(self, *exc: object) -> None:
        self.close()


def column_must(ok: object, column: str | None, rule: str) -> None:
    """Refuse a column that breaks a public rule."""
    if not ok:
        raise UnusablePublicRows(f"Column `{column}` {rule}.")


def unstated(column: str, ways: str) -> UnusablePublicRows:
    """What to say where nobody stated what a missing field means."""
    rule = f"must say what a missing or unreadable field of `{column}` counts as: {ways}"
    return UnusablePublicRows(f"`missing` {rule}. Got nothing.")


def open_rows(
    path: TableLike,
    *,
    table: str | None = None,
    trust: errors.Trusts | None = None,
    person: str | None = None,
    rng: Randomness | None = None,
    threads: int | None = None,
    memory_limit: str = "1GB",
) -> Rows:
    """Open a file, a table that Python holds or one of a database as `Rows`. A `Source` chooses the engine.

    - A CSV file (.csv, .tsv, also .gz), a Parquet file or pattern, or a DuckDB file (read-only). A CSV file has a
      header, one delimiter (comma, semicolon, tab or bar, whichever is the most frequent in the header) and double
      quotes; an empty field is missing.
    - ``postgresql://user@host/database``: a table or view of PostgreSQL, read in one snapshot.
    - ``sc://host:15002``: a table of a Spark cluster, through Spark Connect; or a CSV or Parquet file that the cluster
      sees, with ``Source(path, "sc://host:15002")``.
    - A pandas or Polars frame, an Arrow table or reader, NumPy arrays by column, a relation of DuckDB: see `Source`.

    With a `TrustRule`, the open rows have a column that holds `trusted` or `local` by its rule (`TrustRule.label`); a
    drawn split draws from `rng`, by the column `person` where given, otherwise by row.

    `table` may be left out for a DuckDB file or a PostgreSQL schema with only one table. `threads` (all cores by
    default) and `memory_limit` are for DuckDB; what does not fit is spilled to a private temporary
    directory, which `close` removes.

    >>> import pathlib, tempfile
    >>> folder = tempfile.TemporaryDirectory()
    >>> file = pathlib.Path(folder.name, "people.csv")
    >>> _ = file.write_text("salary,trust\\n12,trusted\\n")
    >>> with open_rows(file) as rows:
    ...     print(dict(rows.columns))
    {'salary': 'VARCHAR', 'trust': 'VARCHAR'}
    >>> folder.cleanup()
    """
    source = path if isinstance(path, Source) else Source(path)
    must(threads is None or threads >= 1, "threads", "must be at least 1", threads)
    with contextlib.ExitStack() as undo:  # what was opened is given back where anything fails
        if source.engine == "duckdb":
            rows = _open_duck(source, table, undo, threads, memory_limit)
        else:
            from hybridp.tables import servers

            rows = (servers.open_postgres if source.engine == "postgresql" else servers.open_spark)(source, table, undo)
        if source.public:
            public = f"declared public, so that everybody may know who holds what there: {', '.join(source.public)}"
            rows = replace(rows, notes=(public,))
        rule = errors.rule_of(trust)
        if rule is not None:
            rows = _answering(_labelled(rows, rule, person, rng), rule, person)
        undo.pop_all()
    return rows


# --- who trusts: by a rule on words, for everybody alike, or drawn ----------------------------------------------------

_DRAWN = "question drawn"
_DIGITS = 13  # of a hash in hexadecimal: a share is drawn to 2^-52


def _labelled(rows: Rows, trust: TrustRule, person: str | None, rng: Randomness | None) -> Rows:
    """The rows with a column of labels by the rule; the words as they were written stay beside it, for copies."""
    notes = (*rows.notes, trust.rule)
    if trust.column is not None and not trust.trusted:
        return replace(rows, trust=trust, notes=notes)
    if trust.column is not None:
        rows.need("trust", trust.column)
        kind = rows.columns[trust.column]
        known = rows.is_text(trust.column) or rows.is_whole(trust.column) or kind == "BOOLEAN"
        rule = f"must hold words, whole numbers or truth to say who trusts; its type is {kind}"
        column_must(known, trust.column, rule)
        derived = {trust.column: worded_label(trust), AS_WRITTEN: column(trust.column)}
    else:
        rows.need("person", person)
        derived = {trust.label: drawn_label(trust, person, rng, rows.engine.dialect)}
    # Most engines read a name in any case: a column of the table would be read in place of the one that is made here.
    own = {name.lower() for name in rows.columns if name != trust.label}
    for name in derived:
        must(name not in own or name == trust.column, "path", f"must not have a column called `{name}`", "one")
    columns = {**rows.columns, trust.label: "VARCHAR"}
    return replace(rows, columns=MappingProxyType(columns), part=_derived(rows, derived), trust=trust, notes=notes)


def _derived(rows: Rows, made: Mapping[str, str]) -> str:
    """The rows with these columns, computed from theirs, in place of those of the same names."""
    before = VIEW if rows.part is None else f"({rows.part}) AS before"
    written = [AS_WRITTEN] if rows.trust is not None and rows.trust.trusted else []
    return select(chosen([*rows.columns, *written]) | {**made}, before)


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
        key = errors.keyed(trust, rng.words(2).tolist()).key
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


def _answering(rows: Rows, trust: TrustRule, person: str | None) -> Rows:
    """The rows without the local people who answered another question than this one.

    A row without a label stays, to be refused.
    """
    answering, made = trust.answering, dict[str, str]()
    if answering is None:
        return rows
    if answering.column is None:
        rule = "must name a column for a trial of several questions on this engine"
        made[_DRAWN] = _hashed(answering.key or "", person, rows.engine.dialect, "people.column", rule)
        within = [f"{column(_DRAWN)} >= '{_digits(answering.start)}'"] if answering.start > 0 else ["TRUE"]
        within += [f"{column(_DRAWN)} < '{_digits(answering.end)}'"] if answering.end < 1 else []
        here = f"({' AND '.join(within)})"
    elif answering.column in rows.columns:
        here = labelled(column(answering.column), answering.question)
    else:
        return rows  # nobody is local, or somebody is and is refused
    where = f"COALESCE({column(trust.label)} <> '{LOCAL}', TRUE) OR {here}"
    return replace(rows, part=f"SELECT * FROM ({_derived(rows, made)}) AS derived WHERE {where}")


# --- asking an engine -------------------------------------------------------------------------------------------------

Engine: TypeAlias = "Duck | Postgres | Spark"
"""Where rows live. It answers queries about them (`ask`), has one sentence for each of its errors, and gives everything
back (`close`). Any but DuckDB can `send` columns to one, where whatever is kept is kept (`local_copy`)."""
T = TypeVar("T")
_serial = itertools.count()


def fresh(purpose: str) -> str:
    """A new name for a table."""
    return f"{purpose}_{next(_serial)}"


def sql_for(rows: Rows, query: str) -> str:
    """The query in the engine's own words, about the rows that are meant. Only what was made here is run on them."""
    dialect = rows.engine.dialect
    if rows.part is not None:
        query = f"WITH {VIEW} AS {'NOT MATERIALIZED ' if dialect == 'duckdb' else ''}({rows.part}) {query}"
    if dialect == "duckdb":
        return query
    from hybridp.tables.servers import translated

    return translated(query, dialect)


def attempt(engine: Engine, call: Callable[[], T], sentence: HybridpError | None = None) -> T:
    """The result of `call`, or one sentence in place of whatever the engine raises in it: `sentence`, where given."""
    try:
        return call()
    except HybridpError:
        raise
    except Exception as error:
        # Bytes that are no Unicode are the rows' doing, whoever reads them; such an error holds the whole text.
        problem = unreadable(engine.name) if isinstance(error, UnicodeError) else engine.sentence(error)
        if problem is None:
            raise
        if sentence is not None and isinstance(problem, errors.UnusableRows):
            problem = sentence
    # Raised outside the handlers, so that the engine's exception is not attached to this one.
    raise problem


def unreadable(name: str) -> errors.UnusableRows:
    return errors.UnusableRows(
        f"The rows of {name} must be readable: a damaged file, text that is not UTF-8, or a row with "
        "more or fewer fields than the header is refused."
    )


def memory_short() -> InvalidInput:
    return InvalidInput("`memory_limit` must be larger for this table, or the disk emptier.")


def answers(rows: Rows, query: str) -> list[dict[str, Any]]:
    """The rows that answer a query, each as a dictionary by column name."""
    names, result = attempt(rows.engine, lambda: rows.engine.ask(sql_for(rows, query)))
    return [dict(zip(names, row, strict=True)) for row in result]


def arrays(rows: Rows, query: str) -> dict[str, Any]:
    """The columns that answer a query to DuckDB, as NumPy arrays (masked where a value is missing)."""
    result: dict[str, Any] = on_duck(rows).execute(sql_for(rows, query)).fetchnumpy()
    return result


# --- what is kept: always in a private DuckDB -------------------------------------------------------------------------

_KNOWN = re.compile(r"(TINY|SMALL|BIG|HUGE)INT|INTEGER|FLOAT|DOUBLE|BOOLEAN|DATE|UUID|DECIMAL\(([12]?\d|3[0-8]),.+\)")


def local_copy(rows: Rows, columns: Iterable[str | None]) -> Rows:
    """The rows, or of another engine's rows these columns, sent once: kept within a limit of memory, then on disk.

    No row can make it fail: what a declared type cannot hold, such as NaN in a decimal number, is missing.
    """
    if isinstance(rows.engine, Duck):
        return rows
    wanted = {*columns}
    kinds = {name: kind for name, kind in rows.columns.items() if name in wanted}
    engine, sql = rows.engine, sql_for(rows, select(chosen(kinds), VIEW))
    if sql not in engine.copies:
        duck, table = new_duck(rows.name), fresh("copied")
        part = select(chosen(kinds), table)
        engine.copies[sql] = replace(rows, columns=MappingProxyType(kinds), engine=duck, part=part)
        arriving = attempt(engine, lambda: engine.send(sql, duck))
        typed = {}
        for place, (name, kind) in enumerate(kinds.items()):
            known = kind if _KNOWN.fullmatch(kind) else "DOUBLE" if kind.startswith("DECIMAL") else "VARCHAR"
            typed[name] = f"TRY_CAST(c{place} AS {known})"
        duck.execute(f"CREATE TEMP TABLE {table} AS {select(typed, arriving)}")
        for file in Path(duck.spill.name).glob("sent.*"):
            file.unlink()
    return engine.copies[sql]


def on_duck(rows: Rows) -> Duck:
    """DuckDB, which alone keeps tables, and the order of a file's rows."""
    if not isinstance(rows.engine, Duck):
        raise InvalidInput("`path` must be a file to be copied with reports. Got a table of another engine.")
    return rows.engine


def keep(rows: Rows, table: str, query: str) -> None:
    """Keep an answer, within the limit of memory and then on disk, until `drop`."""
    on_duck(rows).execute(f"CREATE TEMP TABLE {column(table)} AS {sql_for(rows, query)}")


def drop(rows: Rows, *tables: str) -> None:
    """Forget tables that were kept or given; those that were not are ignored."""
    import duckdb

    with contextlib.suppress(duckdb.ConnectionException):  # closed, and the tables gone with it
        for table in tables:
            on_duck(rows).connection.unregister(table)
            on_duck(rows).execute(f"DROP TABLE IF EXISTS {column(table)}")


def give(rows: Rows, fields: Mapping[str, Any]) -> str:
    """Arrays as a table, until `drop`; gives its name."""
    name = fresh("given")
    attempt(rows.engine, lambda: on_duck(rows).connection.register(name, dict(fields)))
    return name


def stream(rows: Rows, query: str, chunk: int) -> Iterator[dict[str, Any]]:
    """The columns that answer a query, at most `chunk` rows at a time, in its order.

    The query runs at the call, and its answer is kept: other queries may run while the parts are read.
    """
    table = fresh("stream")
    keep(rows, table, query)
    return read_kept(rows, table, chunk, once=True)


def read_kept(rows: Rows, table: str, chunk: int, *, once: bool = False) -> Iterator[dict[str, Any]]:
    """The columns of a table that was kept, at most `chunk` rows at a time, in the order of its query."""
    must(chunk >= 1, "chunk", "must be at least 1", chunk)
    try:
        (size,) = on_duck(rows).execute(f"SELECT COUNT(*) FROM {column(table)}").fetchone()
        for start in range(0, size, chunk):  # a connection holds one result at a time: rows are found by their numbers
            here = f"rowid >= {start:d} AND rowid < {start + chunk:d}"
            yield on_duck(rows).execute(f"SELECT * FROM {column(table)} WHERE {here} ORDER BY rowid").fetchnumpy()
    finally:
        if once:
            drop(rows, table)


# --- DuckDB, embedded and without network -----------------------------------------------------------------------------

DECIMAL = "hybridp_decimal"
"""What a Parquet file that hybridp wrote calls the decimal sign of the numbers that are text in it."""
_DATABASES = (".duckdb", ".ddb", ".db")


@dataclass(frozen=True, eq=False)
class Duck:
    """An in-memory DuckDB with the rows as a view; what it spills lies in a private folder."""

    name: str
    connection: Any = field(repr=False)
    spill: tempfile.TemporaryDirectory[str] = field(repr=False)
    dialect: str = field(default="duckdb", init=False)

    def execute(self, sql: str) -> Any:
        """Run one statement; the connection holds its result."""
        return attempt(self, lambda: self.connection.execute(sql))

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        result = self.connection.execute(sql)
        return [column[0] for column in result.description], result.fetchall()

    def sentence(self, error: Exception) -> HybridpError | None:
        import duckdb

        # Ctrl-C inside a query comes as an error of the query, of one kind or another.
        if isinstance(error, duckdb.InterruptException) or str(error) == "Query interrupted":
            raise KeyboardInterrupt from None
        if isinstance(error, duckdb.OutOfMemoryException):
            return memory_short()
        return unreadable(self.name) if isinstance(error, duckdb.Error) else None

    def close(self) -> None:
        """Close the connection and remove what was spilled to disk."""
        self.connection.close()
        self.spill.cleanup()


def without_bar(connection: Any) -> None:
    """No progress bar of DuckDB's own. It is on only where it could be drawn, and elsewhere may not even be named."""
    (shown,) = connection.execute("SELECT current_setting('enable_progress_bar')").fetchone()
    if shown:
        connection.execute("SET enable_progress_bar = false")


def _open_duck(
    source: Source, table: str | None, undo: contextlib.ExitStack, threads: int | None, memory_limit: str
) -> Rows:
    """The rows as a view of an engine of their own."""
    where, files, decimal, filled = source.location, list[str](), source.decimal, frozenset[str]()
    kind = "table" if source.held is not None else parquet_or_csv(where) or "DuckDB"
    if kind == "DuckDB":
        known = where.lower().endswith(_DATABASES)
        must(known, "path", "must end in .csv, .csv.gz, .tsv, .parquet, .duckdb or .db", where)
    must(table is None or kind == "DuckDB", "table", "is only for a DuckDB file", table)
    if source.held is None:
        pattern = kind == "Parquet" and not os.path.isfile(where)
        files = sorted(glob.glob(where, recursive=True)) if pattern else [where] if os.path.isfile(where) else []
        must(bool(files), "path", "must be a file that exists", where)
    refused = InvalidInput(f"`path` must be a readable {kind} file. Got {source.shown}.")

    engine = new_duck(source.held or Path(where).name, threads, memory_limit)
    undo.callback(engine.close)
    run = engine.connection.execute

    def look() -> list[tuple[Any, ...]]:
        if source.held is not None:
            from hybridp.tables.frames import put

            relation = put(engine.connection, where)
        else:
            relation = _database(engine.connection, where, table) if kind == "DuckDB" else _scan(kind, files)
        # What has no type, because there is nothing in it, is text without a letter.
        empty = [row[0] for row in run(f"DESCRIBE SELECT * FROM {relation}").fetchall() if "NULL" in str(row[1])]
        instead = ", ".join(f"CAST({column(name)} AS VARCHAR) AS {column(name)}" for name in empty)
        run(f"CREATE TEMP VIEW {VIEW} AS SELECT * {f'REPLACE ({instead}) ' if empty else ''}FROM {relation}")
        result: list[tuple[Any, ...]] = run(f"DESCRIBE {VIEW}").fetchall()
        return result

    # A stream is read here, whole: what its rows hold may be why it fails, which is then no fault of the form.
    types = attempt(engine, look, None if source.held is not None else refused)
    if kind == "Parquet" and not decimal:
        stated = f"SELECT DISTINCT decode(value) FROM parquet_kv_metadata({literal(where)})"
        signs = attempt(engine, lambda: run(f"{stated} WHERE decode(key) = '{DECIMAL}'").fetchall())
        decimal = signs[0][0] if signs in ([(".",)], [(",",)]) else ""  # where all files state the same
    if kind == "CSV":  # whose columns are all text: no type was declared
        decimal = decimal or "."
    if source.held is not None:
        from hybridp.tables.frames import filled_columns

        filled = filled_columns(where)
    # The words of an enumeration are of the rows: they belong in no message.
    columns = {name: re.sub(r"ENUM\(.*\)", "ENUM", str(kind)) for name, kind, *_ in types}
    return Rows(MappingProxyType(columns), engine, decimal=decimal, filled=filled)


def new_duck(name: str, threads: int | None = None, memory_limit: str = "1GB") -> Duck:
    """A database of its own, without network."""
    import duckdb

    spill = tempfile.TemporaryDirectory(prefix="hybridp-")
    config: dict[str, Any] = {
        "memory_limit": memory_limit,
        "temp_directory": spill.name,
        "autoinstall_known_extensions": "false",
        "autoload_known_extensions": "false",
        # A thread that took a task whole would end it before it heard of Ctrl-C, be it hours later.
        "scheduler_process_partial": "true",
    }
    config |= {} if threads is None else {"threads": threads}
    connection: Any = None
    try:
        connection = duckdb.connect(":memory:", config=config)
    except duckdb.Error:
        spill.cleanup()
    must(connection is not None, "memory_limit", "must be a size such as 1GB", memory_limit)
    without_bar(connection)
    # A Parquet file's statistics leave NaN out, and the optimiser takes them at their word: a NaN would count as a
    # value inside the least and the greatest, and so be neither refused nor replaced.
    connection.execute("SET disabled_optimizers = 'statistics_propagation'")
    return Duck(name, connection, spill)


def parquet_or_csv(path: str) -> str | None:
    """CSV or Parquet, from the name's extension; None for anything else."""
    plain = path.lower()
    if plain.removesuffix(".gz").endswith((".csv", ".tsv")):
        return "CSV"
    return "Parquet" if plain.endswith((".parquet", ".pq")) else None


def _scan(kind: str, files: list[str]) -> str:
    # The engine takes a path for a pattern, so that a file called `a[1].parquet` has to be escaped.
    paths = ", ".join(literal(glob.escape(file)) for file in files)
    if kind == "Parquet":
        return f"read_parquet([{paths}])"
    names, delimiter = read_header(files[0])
    columns = ", ".join(f"{literal(name)}: 'VARCHAR'" for name in names)
    # Nothing is guessed: a sniffer drops the rows above the ones that it likes best.
    return (
        f"read_csv([{paths}], auto_detect = false, header = true, delim = {literal(delimiter)}, quote = '\"', "
        f"escape = '\"', columns = {{{columns}}})"
    )


def read_header(file: str) -> tuple[list[str], str]:
    """The names in the first line of a CSV file, and its delimiter."""
    opened = gzip.open if file.lower().endswith(".gz") else open
    names: list[str] = []
    delimiter = ","
    try:
        with opened(file, "rt", encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
            first = lines.readline()
            outside_quotes = re.sub('"[^"]*"', "", first)
            delimiter = "\t" if ".tsv" in Path(file).name.lower() else max(",;\t|", key=outside_quotes.count)
            lines.seek(0)
            names = next(csv.reader(lines, delimiter=delimiter), [])
            readable = "".join(names).encode() != b""
    except (OSError, EOFError, UnicodeError, csv.Error):
        readable = False
    must(readable, "path", "must be a CSV file in UTF-8 that starts with a header", file)
    names = [name or f"column{index}" for index, name in enumerate(names)]
    # Column names are compared without regard to case by most engines.
    distinct = len({name.lower() for name in names}) == len(names)
    must(distinct, "path", "must have a header without repeated column names", file)
    return names, delimiter


def _database(connection: Any, path: str, table: str | None) -> str:
    connection.execute(f"ATTACH {literal(path)} AS source (READ_ONLY)")
    result = connection.execute(
        "SELECT table_schema, table_name FROM information_schema.tables WHERE table_catalog = 'source' ORDER BY 1, 2"
    ).fetchall()
    known = ", ".join(f"`{name}`" for _, name in result) or "none"
    if table is None:
        must(len(result) == 1, "table", f"must be given when a file has not exactly one table ({known})", table)
    chosen = [row for row in result if table in (None, row[1])]
    must(len(chosen) == 1, "table", f"must be one table of the file ({known})", table)
    schema, name = chosen[0]
    return f"source.{column(schema)}.{column(name)}"
