"""Spark: a cluster through Spark Connect, whose client needs no Java."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hybridp.errors import HybridpError, InvalidInput, UnusableRows, must
from hybridp.tables.engine import Duck, attempt, memory_short, parquet_or_csv, type_name
from hybridp.tables.sql import VIEW

if TYPE_CHECKING:
    from hybridp.tables.source import Rows, Source

__all__ = ["Spark", "open_spark"]

# Loggers of the client that write a failed query's message, with the value in it, to standard error.
_TALKATIVE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.logging")
_BEFORE = "rows_before_the_query"


@dataclass(frozen=True, eq=False)
class Spark:
    """A session with the rows as a temporary view."""

    name: str
    session: Any = field(repr=False)
    copies: dict[str, Rows] = field(default_factory=dict, repr=False)
    dialect: str = field(default="spark", init=False)

    def ask(self, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
        frame = self.session.sql(sql)
        return frame.columns, [tuple(row) for row in frame.collect()]

    def send(self, sql: str, duck: Duck) -> str:
        # In one piece: a partition at a time would run the query once for each on some clusters.
        whole = self.session.sql(sql).toArrow()
        duck.connection.register("sent", whole.rename_columns([f"c{place}" for place in range(whole.num_columns)]))
        return "sent"

    def sentence(self, error: Exception) -> HybridpError | None:
        kind = type(error).__module__.split(".")[0]
        if kind not in ("pyspark", "grpc", "pyarrow"):
            return None
        told = _condition(error)
        if kind == "grpc" or "UNAVAILABLE" in told or "SESSION" in told:
            return InvalidInput(f"The Spark server of {self.name} must stay reachable until the release is done.")
        if told in ("OUT_OF_MEMORY", "UNABLE_TO_ACQUIRE_MEMORY"):
            return memory_short()
        return UnusableRows(
            f"The rows of {self.name} must be readable, and numbers and texts that the query can compute with"
            f"{f' ({told})' if told else ''}."
        )

    def close(self) -> None:
        """Forget what was copied, and end the session."""
        for rows in self.copies.values():
            rows.close()
        _forgiven(self.session.stop)


def _forgiven(call: Callable[..., Any], *given: str) -> None:
    """What is given back may be gone already."""
    with contextlib.suppress(Exception):
        call(*given)


def _condition(error: Exception) -> str:
    """The name of an error's condition, such as CAST_INVALID_INPUT: a word of Spark's, never a value."""
    try:
        result = str(error.getCondition() or "")  # type: ignore[attr-defined]
    except Exception:
        result = ""
    return result if result.replace("_", "").replace(".", "").isalnum() else ""


def open_spark(source: Source, table: str | None) -> tuple[Spark, dict[str, str]]:
    """The engine with a view of the file or table, and the types of its columns."""
    from hybridp.tables.dialects import parse_query, row_by_row, table_of

    at_cluster = source.location.lower().startswith("sc://")
    asked = None if source.query is None else parse_query(source.query, "spark")
    if asked is not None:
        named = table_of(asked, "spark", tables=at_cluster)
        table = named if at_cluster else table
    kind = None if at_cluster else parquet_or_csv(source.location)
    if at_cluster:
        must(table is not None, "table", "must be given with an sc:// URL, or a query", table)
    else:
        must(kind is not None, "path", "must end in .csv, .csv.gz, .tsv or .parquet for Spark", source.shown)
        must(table is None, "table", "is not for a file", table)
    session = _connected(source.location if at_cluster else source.engine)
    engine = Spark(table or os.path.basename(source.shown), session)
    refused = InvalidInput(
        f"`table` must be a table that the cluster knows and this user may read. Got {table}."
        if table is not None
        else f"`path` must be a readable {kind} file that Spark sees. Got {source.shown}."
    )

    def look() -> dict[str, str]:
        frame = session.table(table) if table is not None else _file(session, source.location, kind)
        if asked is not None:
            frame.createOrReplaceTempView(_BEFORE)
            types = {column: type_name(told) for column, told in frame.dtypes}
            sql = row_by_row(asked, "spark", _BEFORE, types, source.public)
            unknown = InvalidInput("`query` must combine columns as their types allow.")
            frame = attempt(engine, lambda: session.sql(sql), unknown)
        frame.createOrReplaceTempView(VIEW)
        return {column: type_name(told) for column, told in frame.dtypes}

    try:
        types = attempt(engine, look, refused)
    except BaseException:
        engine.close()
        raise
    return engine, types


def _file(session: Any, location: str, kind: str | None) -> Any:
    if kind == "Parquet":
        return session.read.parquet(location)
    # Every column is text, as in the embedded engine; a row with another number of fields fails the whole file.
    options = {"header": True, "inferSchema": False, "mode": "FAILFAST", "quote": '"', "escape": '"', "multiLine": True}
    return session.read.options(**options, sep="\t" if ".tsv" in location.lower() else ",").csv(location)


def _connected(url: str) -> Any:
    sql = _pyspark()
    try:
        from pyspark.sql.connect.client.retries import DefaultPolicy
    except (ImportError, SystemExit):  # under `python -c` PySpark takes a missing package for a reason to leave, with 0
        raise InvalidInput("`engine` must have all of the extra `spark` installed. Got PySpark alone.") from None
    result = None
    answered = False
    try:
        result = sql.SparkSession.builder.remote(url).create()
        # Some fifteen seconds, where the client by itself would try again for ten minutes.
        result.client.set_retry_policies([DefaultPolicy(max_retries=6, max_backoff=5_000)])
        _configure(result)
        answered = True
    except Exception:
        if result is not None:
            _forgiven(result.client.close)  # or it would try again when this process ends
    if not answered:
        from hybridp.tables.source import Source

        raise InvalidInput(f"`engine` must be a Spark Connect server that answers. Got {Source(url).shown}.")
    return result


def _pyspark() -> Any:
    import warnings

    # pandas is not used here: neither is its version anything to tell people about.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas", category=FutureWarning)
    # Said in a sentence, where it matters.
    warnings.filterwarnings("ignore", message=r"\[RETRIES_EXCEEDED\]", category=UserWarning)
    try:
        import pyarrow  # noqa: F401
        import pyspark.sql as sql
    except ImportError:
        raise InvalidInput("`engine` must have PySpark installed (the extra `spark`). Got no pyspark.") from None
    from pyspark.logger import PySparkLogger

    for name in _TALKATIVE:
        PySparkLogger.getLogger(name).disabled = True
    return sql


def _configure(session: Any) -> None:
    # An overflow is an error and never wraps; names that differ in case are different names.
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set("spark.sql.caseSensitive", "true")
    # A label such as ${spark.app.name} stays what it is.
    session.conf.set("spark.sql.variable.substitute", "false")
