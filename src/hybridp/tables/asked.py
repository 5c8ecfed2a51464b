"""A SQL query of one's own in place of a table: one SELECT that only reads, and only what was named.

The text is parsed, and what is sent to the engine is what was parsed. It runs once, and the release reads its answer.
On DuckDB the engine itself refuses every file but those named (`hybridp.tables.duck`). PostgreSQL and Spark run it
with the user's own rights, so that a function that sqlglot does not know is refused there: it might do anything.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from hybridp.errors import HybridpError, InvalidInput, must
from hybridp.tables.source import VIEW

__all__ = ["asked_query", "asking", "query_note"]

_FORMATS = {"csv", "parquet", "json", "orc", "text", "avro", "delta", "iceberg", "binaryfile", "jdbc", "xml"}
_FORMATS |= {"hudi", "image", "libsvm"}


def asked_query(text: str, dialect: str, *, tables: bool) -> str:
    """The query in the engine's own words. Without `tables` it may only read `rows`, the file or frame that was given.

    >>> asked_query("select age from rows where age > 17", "duckdb", tables=False)
    'SELECT age FROM rows WHERE age > 17'
    >>> asked_query("drop table rows", "duckdb", tables=False)
    Traceback (most recent call last):
        ...
    hybridp.errors.InvalidInput: `query` must be one SELECT that only reads. Got DROP.
    """
    import sqlglot
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    parsed: list[Any] | None = None
    log = logging.getLogger("sqlglot")
    level = log.level
    try:
        log.setLevel(logging.CRITICAL)  # what it cannot parse is refused below, in one sentence
        parsed = [statement for statement in sqlglot.parse(text, read=dialect) if statement is not None]
    except (SqlglotError, RecursionError):
        parsed = None
    finally:
        log.setLevel(level)
    if parsed is None:
        raise InvalidInput(f"`query` must be one SELECT in the SQL of {dialect}. Got text that cannot be parsed.")
    must(len(parsed) == 1, "query", "must be one SELECT that only reads", f"{len(parsed)} statements")
    (statement,) = parsed
    writing = (exp.DDL, exp.DML, exp.Command, exp.Into, exp.Lock, exp.Copy, exp.Set, exp.Attach, exp.Pragma)
    nodes = [*statement.walk()]
    wrong = next((node for node in nodes if isinstance(node, writing) and not isinstance(node, exp.Query)), None)
    kind = type(statement if wrong is None else wrong).__name__.upper()
    must(isinstance(statement, exp.Query) and wrong is None, "query", "must be one SELECT that only reads", kind)
    named = {cte.alias_or_name.lower() for cte in statement.find_all(exp.CTE)}
    for node in nodes:
        if isinstance(node, exp.Table):
            _check_table(node, dialect, tables=tables or node.name.lower() in named)
        if isinstance(node, exp.Anonymous | exp.AnonymousAggFunc | exp.CombinedAggFunc) and dialect != "duckdb":
            raise InvalidInput(f"`query` must use functions that are known to read only. Got `{node.name}`.")
        if isinstance(node, exp.Pivot) and not _lists_columns(node):
            raise InvalidInput(
                "`query` must list what PIVOT makes columns of (IN): names of columns are no secret, and people's "
                "values may be one. Got a PIVOT that does not."
            )
        if isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
            raise InvalidInput("`query` must be complete, without a place for a parameter. Got one.")
    return str(statement.sql(dialect=dialect))


def _lists_columns(pivot: Any) -> bool:
    """Whether the columns that a PIVOT makes are the same whatever the rows hold."""
    from sqlglot import exp

    made = pivot.args.get("fields") or pivot.expressions
    listed = all(isinstance(one, exp.In) and one.find(exp.Query) is None for one in made)
    return bool(pivot.args.get("unpivot")) or listed


def _check_table(table: Any, dialect: str, *, tables: bool) -> None:
    from sqlglot import exp

    plain = isinstance(table.this, exp.Identifier)
    if not tables:
        ok = plain and table.name.lower() == VIEW and not table.db
        must(ok, "query", f"must read the table `{VIEW}`, which is what was given", f"`{table.name or table.this}`")
    if dialect == "duckdb":
        return
    must(plain, "query", "must read tables by their names", f"`{table.this}`")
    path = dialect == "spark" and (table.db.lower() in _FORMATS or "." in table.db or "/" in table.name)
    must(not path, "query", "must read tables of the catalogue, not files", f"`{table.db}`")


@contextmanager
def asking() -> Iterator[None]:
    """Around the moment in which the query runs: whatever fails then, somebody's value may be the reason."""
    try:
        yield
    except HybridpError as failure:
        failure.of_rows = True
        raise


def query_note(text: str) -> str:
    """What a receipt says of rows that a query made."""
    plain = " ".join(text.split())
    return (
        "the rows are the answer to a query, and the promise is about one of them: each depends on one person's data "
        f"alone, and who is in the answer is public; the query is: {plain}"
    )
