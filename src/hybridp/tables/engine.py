"""Running an expression on DuckDB: one place where SQL text is written, and where the engine's errors are replaced.

An engine's message may quote the value that it could not convert. No such text leaves this module: it is replaced by
one sentence, and the original exception is not even kept as the context of the new one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from hybridp.errors import HybridpError, InvalidInput, UnusableRows

if TYPE_CHECKING:
    from sqlglot import exp

    from hybridp.tables.source import Rows

__all__ = ["DIALECT", "answers", "arrays", "attempt", "execute", "quoted", "text", "written"]

T = TypeVar("T")
DIALECT = "duckdb"


def written(expression: exp.Expression, dialect: str = DIALECT) -> str:
    """The expression as SQL text, with every identifier quoted."""
    return expression.sql(dialect=dialect, identify=True)


def text(value: str) -> str:
    """A string literal."""
    from sqlglot import exp

    return exp.Literal.string(value).sql(dialect=DIALECT)


def quoted(name: str) -> str:
    """A quoted identifier."""
    from sqlglot import exp

    return exp.to_identifier(name, quoted=True).sql(dialect=DIALECT)


def attempt(call: Callable[[], T], sentence: HybridpError) -> T:
    """The result of `call`, or `sentence` in place of whatever DuckDB raises in it."""
    import duckdb

    try:
        return call()
    except duckdb.OutOfMemoryException:
        problem: HybridpError = InvalidInput("`memory_limit` must be larger for this table, or the disk emptier.")
    except duckdb.Error:
        problem = sentence
    # Raised outside the handlers, so that the engine's exception is not attached to this one.
    raise problem


def unreadable(rows: Rows) -> UnusableRows:
    return UnusableRows(
        f"The rows of {rows.name} must be readable: a damaged file, text that is not UTF-8, or a row with "
        "more or fewer fields than the header is refused."
    )


def execute(rows: Rows, sql: str) -> Any:
    """Run one statement; the connection holds its result."""
    return attempt(lambda: rows.connection.execute(sql), unreadable(rows))


def answers(rows: Rows, expression: exp.Expression) -> list[dict[str, Any]]:
    """The rows that answer a query, each as a dictionary by column name."""

    def ask() -> list[dict[str, Any]]:
        result = rows.connection.execute(written(expression))
        names = [column[0] for column in result.description]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    return attempt(ask, unreadable(rows))


def arrays(rows: Rows, sql: str) -> dict[str, Any]:
    """The columns that answer a query, as NumPy arrays (masked where a value is missing)."""

    def ask() -> dict[str, Any]:
        found: dict[str, Any] = rows.connection.execute(sql).fetchnumpy()
        return found

    return attempt(ask, unreadable(rows))
