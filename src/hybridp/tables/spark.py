"""Spark: a session on this machine, or a cluster through Spark Connect, whose client needs no Java.

A local session is private to this process: its log and its user interface are off, because either would show values,
and what it spills lies in a folder of its own. It reads files through links in that folder, whose names are plain:
Spark takes a path for a pattern, and a file whose name starts with `_` or `.` for one that is not there.
"""

from __future__ import annotations

import atexit
import codecs
import contextlib
import gzip
import logging
import os
import shutil
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hybridp.errors import HybridpError, InvalidInput, UnusableRows, must
from hybridp.tables.engine import (
    Duck,
    attempt,
    files_of,
    memory_short,
    parquet_or_csv,
    read_header,
    type_name,
    unreadable,
)
from hybridp.tables.sql import VIEW

if TYPE_CHECKING:
    from hybridp.tables.source import Rows, Source

__all__ = ["Spark", "open_spark"]

# Loggers of the client that write a failed query's message, with the value in it, to standard error.
_TALKATIVE = ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.logging")
# Spark's own words for "not here, but at a server", which a session of this process must not read.
_ELSEWHERE = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED", "SPARK_API_MODE", "SPARK_LOCAL_REMOTE")
_BEFORE = "rows_before_the_query"
_local: list[Any] = []
_folder: list[str] = []


@dataclass(frozen=True, eq=False)
class Spark:
    """A session with the rows as a temporary view."""

    name: str
    session: Any = field(repr=False)
    remote: bool = False
    links: str | None = field(default=None, repr=False)
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
        if kind not in ("pyspark", "py4j", "grpc", "pyarrow"):
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
        """Forget what is kept; a cluster's session ends, a local one waits for the next table."""
        with ExitStack() as last:
            if self.remote:
                last.callback(_forgiven, self.session.stop)
            for view in (VIEW, _BEFORE):
                last.callback(_forgiven, self.session.catalog.dropTempView, view)
            for rows in self.copies.values():
                last.callback(rows.close)
            if self.links is not None:
                shutil.rmtree(self.links, ignore_errors=True)


def _forgiven(call: Callable[..., Any], *given: str) -> None:
    """What is given back may be gone already."""
    with contextlib.suppress(Exception):
        call(*given)


def _condition(error: Exception) -> str:
    """The name of an error's condition, such as CAST_INVALID_INPUT: a word of Spark's, never a value."""
    for name in ("getCondition", "getErrorClass"):
        call = getattr(error, name, None)
        if call is not None:
            try:
                result = str(call() or "")
            except Exception:
                result = ""
            return result if result.replace("_", "").replace(".", "").isalnum() else ""
    return ""


def open_spark(
    source: Source, table: str | None, *, threads: int | None, memory_limit: str
) -> tuple[Spark, dict[str, str]]:
    """The engine with a view of the file or table, and the types of its columns."""
    from hybridp.tables.dialects import parse_query, row_by_row, table_of

    at_cluster = source.location.lower().startswith("sc://")
    url = source.location if at_cluster else source.engine if source.engine != "spark" else None
    asked = None if source.query is None else parse_query(source.query, "spark")
    if asked is not None:
        named = table_of(asked, "spark", tables=at_cluster)
        table = named if at_cluster else table
    files: list[str] | None = None
    kind = None if at_cluster else parquet_or_csv(source.location)
    if at_cluster:
        must(table is not None, "table", "must be given with an sc:// URL, or a query", table)
    else:
        must(kind is not None, "path", "must end in .csv, .csv.gz, .tsv or .parquet for Spark", source.shown)
        must(table is None, "table", "is not for a file", table)
        if url is None and "://" not in source.location:
            files = files_of(source.location, pattern=kind == "Parquet")
    name = table if table is not None else os.path.basename(source.shown)
    if files and kind == "CSV":
        _check_text(files[0], name)
    session = _connected(url) if url is not None else _own(threads, memory_limit)
    links = _linked(files) if files else None
    engine = Spark(name, session, remote=url is not None, links=links)
    refused = InvalidInput(
        f"`table` must be a table that the cluster knows and this user may read. Got {table}."
        if table is not None
        else f"`path` must be a readable {kind} file that Spark sees. Got {source.shown}."
    )

    def look() -> dict[str, str]:
        frame = _frame(session, links or source.location, kind, table, files)
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


def _linked(files: list[str]) -> str:
    """A folder of links to the files, whose names only keep what tells the format."""
    folder = tempfile.mkdtemp(prefix="links-", dir=_folder[0])
    for number, file in enumerate(files):
        ending = "".join(part for part in (".csv", ".tsv", ".parquet", ".gz") if part in os.path.basename(file).lower())
        os.symlink(os.path.abspath(file), os.path.join(folder, f"{number:09d}{ending}"))
    return folder


def _check_text(file: str, name: str) -> None:
    """Refuse a text file that is not UTF-8, where Spark would put one character for every byte that is none."""
    opened = gzip.open if file.lower().endswith(".gz") else open
    decoder = codecs.getincrementaldecoder("utf-8")()
    ok = True
    try:
        with opened(file, "rb") as content:
            while block := content.read(1 << 20):
                decoder.decode(block)
            decoder.decode(b"", final=True)
    except (OSError, EOFError, UnicodeError, zlib.error):
        ok = False
    if not ok:
        raise unreadable(name)


def _frame(session: Any, location: str, kind: str | None, table: str | None, files: list[str] | None) -> Any:
    if table is not None:
        return session.table(table)
    if kind == "Parquet":
        paths = [location] if files is None else [entry.path for entry in os.scandir(location)]
        return session.read.parquet(*sorted(paths))
    # Every column is text, as in the embedded engine; a row with another number of fields fails the whole file.
    options = {"header": True, "inferSchema": False, "mode": "FAILFAST", "quote": '"', "escape": '"', "multiLine": True}
    if files is not None:
        names, delimiter = read_header(files[0])
        schema = ", ".join(f"`{name.replace('`', '``')}` STRING" for name in names)
        return session.read.options(**options, sep=delimiter, enforceSchema=True).schema(schema).csv(location)
    return session.read.options(**options, sep="\t" if ".tsv" in location.lower() else ",").csv(location)


def _own(threads: int | None, memory_limit: str) -> Any:
    """A session of this process, which starts Java at the first call and is used again afterwards."""
    if _local and _local[0].sparkContext._jsc is None:  # somebody stopped it
        _local.clear()
    if not _local:
        _local.append(_started(threads, memory_limit))
    session = _local[0].newSession()
    _configure(session)
    return session


def _started(threads: int | None, memory_limit: str) -> Any:
    sql = _pyspark()
    from pyspark.util import is_remote_only

    if is_remote_only():
        raise InvalidInput("`engine` must have all of PySpark (the extra `spark-local`). Got its client alone.")
    if shutil.which("java") is None and "JAVA_HOME" not in os.environ:
        raise InvalidInput("`engine` must have Java installed to run Spark here, or an sc:// URL. Got no java.")
    memory = memory_limit.upper().removesuffix("B")
    must(memory[:-1].isdigit() and memory[-1] in "MG", "memory_limit", "must be a size such as 1GB", memory_limit)
    folder = tempfile.mkdtemp(prefix="hybridp-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    cores = threads or os.cpu_count() or 1
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.memory": memory.lower(),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.local.dir": folder,
        "spark.sql.warehouse.dir": os.path.join(folder, "warehouse"),
        "spark.sql.shuffle.partitions": str(4 * cores),
        "spark.log.level": "OFF",
        "spark.eventLog.enabled": "false",
        "spark.api.mode": "classic",
    }
    result = None
    try:
        with _silent(), _here():
            builder = sql.SparkSession.builder.master(f"local[{cores}]").appName("hybridp")
            for key, value in settings.items():
                builder = builder.config(key, value)
            result = builder.getOrCreate()
    except Exception:
        result = None
    if result is None:
        raise InvalidInput("`engine` must be able to start Java 17 or newer for Spark. Got a Java that did not start.")
    _folder[:] = [folder]
    return result


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
    # The bridge to Java repeats every message when an application logs in detail.
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    return sql


def _configure(session: Any) -> None:
    # An overflow is an error and never wraps; names that differ in case are different names.
    session.conf.set("spark.sql.ansi.enabled", "true")
    session.conf.set("spark.sql.caseSensitive", "true")
    # A label such as ${spark.app.name} stays what it is.
    session.conf.set("spark.sql.variable.substitute", "false")


@contextmanager
def _here() -> Iterator[None]:
    """Without the variables that would send the rows of this machine to a server."""
    kept = {name: os.environ.pop(name) for name in _ELSEWHERE if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(kept)


@contextmanager
def _silent() -> Iterator[None]:
    """Java inherits this process's standard error: it gets none, for its messages may quote values."""
    before = os.dup(2)
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)
        os.close(nowhere)
