"""A SQL query of one's own in place of a table: one SELECT that only reads, and only what was named.

The text is parsed, and what is sent to the engine is what was parsed. It runs once, and the release reads its answer.
On DuckDB the engine itself refuses every file but those named (`hybridp.tables.duck`). PostgreSQL and Spark run it
with the user's own rights, so that a function that sqlglot does not know is refused there: it might do anything.
"""

from __future__ import annotations

import logging
from typing import Any

from hybridp.errors import InvalidInput, must
from hybridp.tables.source import VIEW

__all__ = ["asked_query", "query_note"]

_FORMATS = ("csv", "parquet", "json", "orc", "text", "avro", "delta", "iceberg", "binaryfile", "jdbc", "xml")


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
        if isinstance(node, exp.Placeholder | exp.Parameter | exp.SessionParameter):
            raise InvalidInput("`query` must be complete, without a place for a parameter. Got one.")
    return str(statement.sql(dialect=dialect))


def _check_table(table: Any, dialect: str, *, tables: bool) -> None:
    from sqlglot import exp

    plain = isinstance(table.this, exp.Identifier)
    if not tables:
        ok = plain and table.name.lower() == VIEW and not table.db
        must(ok, "query", f"must read the table `{VIEW}`, which is what was given", f"`{table.name or table.this}`")
    if dialect == "duckdb":
        return
    must(plain, "query", "must read tables by their names", f"`{table.this}`")
    path = dialect == "spark" and (table.db.lower() in _FORMATS or "/" in table.name)
    must(not path, "query", "must read tables of the catalogue, not files", f"`{table.db}`")


def query_note(text: str) -> str:
    """What a receipt says of rows that a query made."""
    plain = " ".join(text.split())
    return (
        "the rows are the answer to a query, and the promise is about one of them: each depends on one person's data "
        f"alone; the query is: {plain}"
    )
