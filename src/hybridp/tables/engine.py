"""Asking an engine: one place where SQL text is written, and where the engine's errors are replaced.

An engine's message may quote the value that it could not convert. No such text leaves this module: it is replaced by
one sentence, and the original exception is not even kept as the context of the new one.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from hybridp.errors import HybridpError, InvalidInput, UnusableRows, must

if TYPE_CHECKING:
    from hybridp.tables.source import Rows

__all__ = ["Engine", "answers", "arrays", "attempt", "drop", "fresh", "given", "keep", "stream"]
__all__ += ["unreadable"]

T = TypeVar("T")
_serial = itertools.count()


class Engine(Protocol):
    """What a place where rows live can do. Tables that it keeps are its own, and gone when it is closed."""

    @property
    def name(self) -> str:
        """What messages call the rows."""

    @property
    def dialect(self) -> str:
        """sqlglot's name of its SQL."""

    @property
    def source(self) -> Any:
        """What stands for the rows in a query, where the engine has no view of them."""

    def ask(self, sql: str) -> list[dict[str, Any]]:
        """The rows that answer a query, each as a dictionary by column name."""

    def columns(self, sql: str) -> dict[str, Any]:
        """The columns that answer a query, as NumPy arrays (masked where a value is missing)."""

    def derive(self, columns: Mapping[str, str], where: str | None = None) -> Engine:
        """The engine whose rows have these columns, computed from theirs, in place of those of the same names.

        With `where`, which reads the new columns, only the rows for which it holds.
        """

    def keep(self, table: str, sql: str) -> None:
        """Keep the answer as a table."""

    def drop(self, table: str) -> None:
        """Forget a table, if there is one of this name."""

    def give(self, table: str, fields: Mapping[str, Any]) -> None:
        """Arrays as a table, which `drop` forgets."""

    def stream(self, sql: str, chunk: int) -> Generator[dict[str, Any]]:
        """The columns that answer a query, some rows at a time and in its order."""

    def sentence(self, error: Exception) -> HybridpError | None:
        """What to say in place of an error of this engine; None for an error that is not the engine's."""

    def close(self) -> None:
        """Give everything back."""


def fresh(purpose: str) -> str:
    """A new name for a table."""
    return f"{purpose}_{next(_serial)}"


def _sql(rows: Rows, query: str) -> str:
    """The query in the engine's own words, about the rows that are meant. Only here one is run on them."""
    rows.ran.add(rows.name)
    source, dialect = rows.engine.source if rows.part is None else rows.part, rows.engine.dialect
    if dialect == "duckdb" and source is None:
        return query
    from hybridp.tables.dialects import translated

    return translated(query, dialect, source, "rows")


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
        if sentence is not None and isinstance(problem, UnusableRows):
            problem = sentence
    # Raised outside the handlers, so that the engine's exception is not attached to this one.
    raise problem


def unreadable(name: str) -> UnusableRows:
    return UnusableRows(
        f"The rows of {name} must be readable: a damaged file, text that is not UTF-8, or a row with "
        "more or fewer fields than the header is refused."
    )


def answers(rows: Rows, query: str) -> list[dict[str, Any]]:
    """The rows that answer a query, each as a dictionary by column name."""
    return attempt(rows.engine, lambda: rows.engine.ask(_sql(rows, query)))


def arrays(rows: Rows, query: str) -> dict[str, Any]:
    """The columns that answer a query, as NumPy arrays (masked where a value is missing)."""
    return attempt(rows.engine, lambda: rows.engine.columns(_sql(rows, query)))


def keep(rows: Rows, table: str, query: str) -> None:
    """Let the engine keep an answer, within its memory and then on disk, until `drop`."""
    attempt(rows.engine, lambda: rows.engine.keep(table, _sql(rows, query)))


def drop(rows: Rows, *tables: str) -> None:
    """Forget tables that were kept; those that were not are ignored."""
    for table in tables:
        attempt(rows.engine, lambda table=table: rows.engine.drop(table))  # type: ignore[misc]


@contextmanager
def given(rows: Rows, fields: Mapping[str, Any]) -> Iterator[str]:
    """Arrays as a table of the engine, for as long as it is needed."""
    name = fresh("given")
    attempt(rows.engine, lambda: rows.engine.give(name, fields))
    try:
        yield name
    finally:
        drop(rows, name)


def stream(rows: Rows, query: str, chunk: int) -> Iterator[dict[str, Any]]:
    """The columns that answer a query, at most `chunk` rows at a time, in its order.

    The query runs at the call; other queries may run while the parts are read.
    """
    must(chunk >= 1, "chunk", "must be at least 1", chunk)
    sql = _sql(rows, query)
    parts = attempt(rows.engine, lambda: rows.engine.stream(sql, chunk))
    return _parts(rows.engine, parts)


def _parts(engine: Engine, parts: Generator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    try:
        while True:
            part = attempt(engine, lambda: next(parts, None))
            if part is None:
                return
            yield part
    finally:
        parts.close()


def memory_short() -> InvalidInput:
    return InvalidInput("`memory_limit` must be larger for this table, or the disk emptier.")
