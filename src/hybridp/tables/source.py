"""Opening a table: a CSV, Parquet or DuckDB file, one that Python holds, or a table of PostgreSQL or Spark.

Whatever holds the rows, every query is written against one name, `rows`. Who trusts is settled here too: whatever the
table says of it, and in which words, the open rows have one column that holds `trusted` or `local`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Literal, Protocol, TypeAlias, cast, get_args

from numpy.typing import NDArray

from hybridp import errors
from hybridp.errors import LABEL, LOCAL, TRUSTED, InvalidInput, TrustRule, Trusts, UnusablePublicRows, must, suggestion
from hybridp.noise import Randomness
from hybridp.tables.engine import Duck, Engine, answers, filled_columns, held, open_duck, parquet_or_csv, stated_decimal
from hybridp.tables.sql import VIEW, answers_here, chosen, column, drawn_label, of_local, select, text, worded_label

__all__ = ["ENGINES", "EngineName", "Rows", "Source", "TableLike", "is_number_type", "open_rows"]
__all__ += ["CHOICES", "NUMBERS", "TABLES", "shown", "unstated"]

AS_WRITTEN = "trust as written"  # beside the labels in the open rows, for a copy of them
EngineName = Literal["duckdb", "postgresql", "spark"]
ENGINES: tuple[str, ...] = get_args(EngineName)
NUMBERS = "a number within its bounds, middle, or exclude (for a mean of trusted people alone)"
CHOICES = "one of the options, or `other` as one more, or exclude"
TABLES = "one of its values, or true (a category), in the schema; or `other` for all columns, last or missing"
_NUMBERS = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT", "FLOAT", "DOUBLE", "DECIMAL", "BOOLEAN")
_WHOLE = ("TINYINT", "SMALLINT", "INTEGER", "BIGINT", "HUGEINT")
_WHOLE_DECIMAL = re.compile(r"DECIMAL\([0-9]+, ?0\)")
_POSTGRES = ("postgresql://", "postgres://", "postgresql+psycopg://")
# Two letters at least: one is a drive. `pathlib` leaves one slash of a URL's two.
_URL = re.compile(r"([a-z][a-z0-9+.:-]+):/", re.IGNORECASE)
_MOST = 9  # words that are looked at: more are no answer to a question of trust
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
        if held(self.location) is not None:
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
        ok = natural == "duckdb" or natural == engine
        must(ok, "engine", f"must be {natural} for this URL", shown(self.engine))
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


def unstated(column: str, ways: str) -> UnusablePublicRows:
    """What to say where nobody stated what a missing field means."""
    rule = f"must say what a missing or unreadable field of `{column}` counts as: {ways}"
    return UnusablePublicRows(f"`missing` {rule}. Got nothing.")


def is_number_type(kind: str) -> bool:
    return kind.removeprefix("U").startswith(_NUMBERS) and "[" not in kind


@dataclass(frozen=True, eq=False)
class Rows:
    """An open table: its columns with their types, and the engine that answers queries about it.

    `columns` maps each name to DuckDB's name of its type; every CSV column is text (`VARCHAR`) and is converted by the
    query that reads it, because types guessed from the first rows would depend on the people in them. `part` is a query
    that makes the rows of what the engine holds, where they are not all of it as it is.
    """

    name: str
    columns: Mapping[str, str]
    engine: Engine = field(repr=False)
    trust: TrustRule | None = None
    notes: tuple[str, ...] = ()
    part: str | None = field(default=None, repr=False)
    decimal: str = ""
    filled: frozenset[str] = frozenset()
    """The columns whose declared type has a number in every row."""

    @property
    def written(self) -> Mapping[str, str]:
        """The columns of a copy of the rows, and where each is read: choices as they were written."""
        alike = self.trust is not None and self.trust.everyone is not None
        names = [name for name in self.columns if not (alike and name == LABEL)]
        worded = self.trust.column if self.trust is not None and self.trust.trusted else None
        return {name: AS_WRITTEN if name == worded else name for name in names}

    def need(self, parameter: str, column: str) -> None:
        """Refuse a column that the table does not have."""
        if column in self.columns:
            return
        # Names are not listed: in a file without a header they would be somebody's values. A header has no numbers.
        names = (name.strip().lower() for name in self.columns)
        header = not any(re.fullmatch(r"[-+]?[\d.,_]*\d[\d.,_]*(e[-+]?\d+)?", name) for name in names)
        hint = errors.did_you_mean(column, self.columns) if header else ""
        raise InvalidInput(f"`{parameter}` must be a column of {self.name}. Got `{column}`.{hint}")

    def is_text(self, column: str) -> bool:
        return self.columns[column] == "VARCHAR" or self.columns[column].startswith("ENUM")

    def is_number(self, column: str) -> bool:
        return is_number_type(self.columns[column])

    def is_whole(self, column: str) -> bool:
        kind = self.columns[column]
        # An unsigned number of 64 bits is a DECIMAL(20,0) elsewhere.
        return kind.removeprefix("U") in _WHOLE or _WHOLE_DECIMAL.fullmatch(kind) is not None

    def need_number(self, column: str, *, text: bool = False) -> None:
        """Refuse a column that is not declared to hold numbers; with `text`, as reports are, they may be written.

        By types alone, as in `need_missing`: what a field holds must not decide.
        """
        kind = self.columns[column]
        if not (self.is_number(column) or self.is_text(column)):
            raise UnusablePublicRows(f"Column `{column}` must hold numbers; its type is {kind}.")
        if self.is_text(column) and not (text or self.decimal):
            raise UnusablePublicRows(
                f"Column `{column}` of {self.name} must hold numbers; its type is {kind}. State `decimal`, the "
                'sign in numbers that are written as text ("." or ","), or convert the column.'
            )

    def need_missing(self, column: str, missing: object, ways: str = NUMBERS) -> None:
        """Refuse a column that may lack values while nobody said what that means."""
        if missing is None and column not in self.filled:
            raise unstated(column, ways)

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
            raise UnusablePublicRows(words + (suggestion(name, self.texts(name, _MOST)) if known else ""))

    def unlabelled(self, name: str) -> UnusablePublicRows:
        """What to say where a row has no label: the choice is public, and so are the words for it."""
        trust = self.trust
        if trust is not None and trust.local:
            trusted, local = (" or ".join(f"`{word}`" for word in words) for words in (trust.trusted, trust.local))
            return UnusablePublicRows(f"Column `{name}` must hold {trusted} (trusted) or {local} (local) in every row.")
        result = self.texts(name, _MOST)
        hint = "" if {*result} <= {TRUSTED, LOCAL, ""} else suggestion(name, result)
        return UnusablePublicRows(f"Column `{name}` must hold `trusted` or `local` in every row.{hint}")

    def close(self) -> None:
        """Give back what the engine holds."""
        self.engine.close()

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()


class ArrowStream(Protocol):
    """A table of pandas, Polars, Arrow, DuckDB, or whatever else offers its rows as an Arrow stream."""

    def __arrow_c_stream__(self, requested_schema: Any = None) -> Any: ...


TableLike: TypeAlias = str | os.PathLike[str] | Source | ArrowStream | Mapping[str, Any] | NDArray[Any]
"""What can be opened: a path or a URL, a `Source`, or a table that Python holds."""


def open_rows(
    path: TableLike,
    *,
    table: str | None = None,
    trust: Trusts | None = None,
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
    engine, columns, part = _opened(source, table, threads=threads, memory_limit=memory_limit)
    notes: tuple[str, ...] = ()
    if source.public:
        notes = (f"declared public, so that everybody may know who holds what there: {', '.join(source.public)}",)
    form = parquet_or_csv(str(source.location)) if source.held is None else None
    decimal = source.decimal or "." * (form == "CSV")  # whose columns are all text: no type was declared
    if form == "Parquet" and source.engine == "duckdb":
        decimal = decimal or stated_decimal(cast(Duck, engine), str(source.location))
    filled = filled_columns(source.location)
    rows = Rows(engine.name, MappingProxyType(columns), engine, notes=notes, part=part, decimal=decimal, filled=filled)
    rule = errors.rule_of(trust)
    if rule is None:
        return rows
    try:
        labelled = _labelled(rows, rule, person, rng)
        return labelled if rule.answering is None else _answering(labelled, rule, person)
    except BaseException:
        rows.close()
        raise


def _opened(
    source: Source, table: str | None, *, threads: int | None, memory_limit: str
) -> tuple[Engine, dict[str, str], str | None]:
    """The engine, the columns with their types, and the query for the rows where the engine has no view of them."""
    if source.engine == "duckdb":
        return *open_duck(source, table=table, threads=threads, memory_limit=memory_limit), None
    if source.engine == "postgresql":
        from hybridp.tables.servers import open_postgres

        return open_postgres(source, table)
    from hybridp.tables.servers import open_spark

    return *open_spark(source, table), None


def _answering(rows: Rows, trust: TrustRule, person: str | None) -> Rows:
    """The rows without the local people who answered another question than this one."""
    assert trust.answering is not None
    if trust.answering.column is not None and trust.answering.column not in rows.columns:
        return rows  # nobody is local, or somebody is and is refused
    made, where = answers_here(trust, person, rows.engine.dialect)
    return replace(rows, part=f"SELECT * FROM ({_derived(rows, made)}) AS derived WHERE {where}")


def _derived(rows: Rows, made: Mapping[str, str]) -> str:
    """The rows with these columns, computed from theirs, in place of those of the same names."""
    before = VIEW if rows.part is None else f"({rows.part}) AS before"
    written = [AS_WRITTEN] if rows.trust is not None and rows.trust.trusted else []
    return select(chosen([*rows.columns, *written]) | {**made}, before)


def _labelled(rows: Rows, trust: TrustRule, person: str | None, rng: Randomness | None) -> Rows:
    """The rows with a column of labels by the rule; the words as they were written stay beside it, for copies."""
    notes = (*rows.notes, trust.rule)
    if trust.column is not None and not trust.trusted:
        return replace(rows, trust=trust, notes=notes)
    if trust.column is not None:
        rows.need("trust", trust.column)
        kind = rows.columns[trust.column]
        if not (rows.is_text(trust.column) or rows.is_whole(trust.column) or kind == "BOOLEAN"):
            rule = "must hold words, whole numbers or truth to say who trusts"
            raise UnusablePublicRows(f"Column `{trust.column}` {rule}; its type is {kind}.")
        derived = {trust.column: worded_label(trust), AS_WRITTEN: column(trust.column)}
    else:
        if person is not None:
            rows.need("person", person)
        derived = {trust.label: drawn_label(trust, person, rng, rows.engine.dialect)}
    # Most engines read a name in any case: a column of the table would be read in place of the one that is made here.
    own = {name.lower() for name in rows.columns if name != trust.label}
    for name in derived:
        must(name not in own or name == trust.column, "path", f"must not have a column called `{name}`", "one")
    columns = {**rows.columns, trust.label: "VARCHAR"}
    return replace(rows, columns=MappingProxyType(columns), part=_derived(rows, derived), trust=trust, notes=notes)
