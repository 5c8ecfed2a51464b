"""The benchmark's aggregations: the library's call, and the SQL that somebody would write by hand for the same answer.

`by hand` keeps the library's promise: the same integers, and a count of what would be refused (no label, no value, no
key, two labels or two equal smallest keys of one person). `bare` gives up the refusals, and in the sum also the
integers: what one would write who trusts the table.

One record stands for a person: that with the smallest stored key, or with the smallest MD5 of its id. On DuckDB the
fastest way we know that still notices two equal keys is a group-by and a join with its result: windows, or the two
smallest keys of each person, take 1.4 to 1.9 times as long. On PostgreSQL and Spark it is a window.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from benchmarks.engine_rows import SCHEMA
from hybridp.curator.models import Codes
from hybridp.public.randomisers import Bounds
from hybridp.tables import Columns, Query, Report, Rows, add_up, discovery_counts, sample_records
from hybridp.tables.counts import codes
from hybridp.tables.engine import drop

__all__ = ["AGGREGATIONS", "WAYS", "runner"]

SALT = 7
LOWER, UPPER, LOW, HIGH, CENTRE, HALF = 0.0, 100.0, -70.0, 170.0, 50.0, 50.0
MEAN = Query.on(
    Bounds(LOWER, UPPER), ("value",), "trust", "middle", reports=(Report("report", CENTRE, HALF, LOW, HIGH),)
)
LEVELS = 2**32
WAYS = {"duckdb": ("ours", "by hand", "bare"), "postgresql": ("ours", "by hand"), "spark": ("ours", "by hand")}
Answer = list[Any]


def _words(engine: str) -> dict[str, str]:
    plain = {"double": "DOUBLE", "text": "VARCHAR"}
    return {"postgresql": {"double": "DOUBLE PRECISION", "text": "TEXT"}, "spark": plain | {"text": "STRING"}}.get(
        engine, plain
    )


def _number(value: float) -> str:
    return f"CAST('{value!r}' AS {{double}})"


def _level() -> str:
    """Clipping and rounding to the lattice, as `Lattice` defines it."""
    scale = LEVELS / (UPPER - LOWER)
    inside = f"CAST(floor((value - {_number(LOWER)}) * {_number(scale)} + {_number(0.5)}) AS BIGINT)"
    return (
        f"CASE WHEN value > {_number(LOWER)} AND value < {_number(UPPER)} THEN {inside} "
        f"WHEN value <= {_number(LOWER)} THEN 0 WHEN value <= CAST('Infinity' AS {{double}}) THEN {LEVELS} END"
    )


_MOVED = f"(report - {_number(CENTRE)})"
_TOTALS = (
    f"count(*), sum({_level()}), count({_level()}), sum({_MOVED}), sum({_MOVED} * {_MOVED}), count(report), "
    "min(report), max(report)"
)
_CLIPPED = (
    f"CASE WHEN value < {_number(LOWER)} THEN {_number(LOWER)} WHEN value > {_number(UPPER)} THEN {_number(UPPER)} "
    "ELSE value END"
)
_JOINED = """
    WITH chosen AS (
        SELECT person, min(key) AS chosen, bool_and(trust = 'trusted') AS whole, bool_or(trust = 'trusted') AS part,
            bool_or((trust IN ('trusted', 'local') AND key IS NOT NULL AND page IS NOT NULL) IS NOT TRUE) AS odd
        FROM rows GROUP BY person
    ),
    picked AS (
        SELECT min(page) AS page, bool_or(part) AS trusted, count(*) AS times
        FROM rows JOIN chosen ON rows.person = chosen.person AND rows.key = chosen.chosen GROUP BY rows.person
    )
    SELECT if(trusted, 'trusted', 'local'), page, count(*), sum(CAST(times > 1 AS INT))
    FROM picked GROUP BY trusted, page
    UNION ALL
    SELECT NULL, NULL, count(*), sum(CAST(whole <> part OR odd OR person IS NULL AS INT)) FROM chosen
"""
_WINDOW = """
    SELECT trust, page, sum(CAST(place = 1 AS INT)), sum(CAST(twice OR mixed OR odd AS INT)) FROM (
        SELECT trust, page, row_number() OVER w AS place, coalesce(lag(key) OVER w = key, false) AS twice,
            coalesce(lag(trust) OVER w <> trust, false) AS mixed,
            person IS NULL OR trust IS NULL OR page IS NULL OR key IS NULL AS odd
        FROM rows WINDOW w AS (PARTITION BY person ORDER BY key)
    ) AS ranked GROUP BY trust, page
"""
_BARE = """
    SELECT trust, page, count(*), 0 FROM (
        SELECT arg_min(page, key) AS page, min(trust) AS trust FROM rows GROUP BY person
    ) GROUP BY trust, page
"""


def _counts(engine: str, way: str) -> str:
    if way == "bare":
        return _BARE
    return _JOINED if engine == "duckdb" else _WINDOW


def _sum(engine: str, way: str) -> str:
    if way == "bare":
        return f"SELECT trust, count(*), avg({_CLIPPED}), avg(report) FROM rows GROUP BY trust"
    return f"SELECT trust, {_TOTALS} FROM rows GROUP BY trust"


def _marginal(engine: str, way: str) -> str:
    return "SELECT state, age, kind, count(*) FROM rows GROUP BY state, age, kind"


def _read_sum(found: Iterable[Any]) -> Answer:
    groups = {row[0]: row for row in found}
    trusted, local = groups["trusted"], groups["local"]
    if len(groups) != 2 or trusted[1] != trusted[3] or local[1] != local[6] or local[7] < LOW or local[8] > HIGH:
        raise AssertionError("every record has a label, and a value or a report")
    return [int(trusted[1]), int(trusted[2]), int(local[1])]


def _read_counts(found: Iterable[Any]) -> Answer:
    rows = [*found]
    if any(int(row[3]) for row in rows):
        raise AssertionError("no record breaks a rule")
    return _digest(int(people) for trust, page, people, _ in sorted(r for r in rows if r[0] == "trusted") if people)


def _read_marginal(found: Iterable[Any]) -> Answer:
    place = [{label: i for i, label in enumerate(feature.values)} for feature in SCHEMA.features]
    table = np.zeros(SCHEMA.sizes, dtype=np.int64)
    for *labels, n in found:
        table[tuple(where[label] for where, label in zip(place, labels, strict=True))] = n
    return _digest(table.reshape(-1).tolist())


def _digest(counts: Iterable[int]) -> Answer:
    every = [int(n) for n in counts]
    return [len(every), sum(every), hashlib.sha256(" ".join(map(str, every)).encode()).hexdigest()[:16]]


def _our_sum(rows: Rows) -> Answer:
    found = add_up(rows, MEAN)
    return [found.trusted_people, found.trusted[0], found.local_people]


def _our_counts(rows: Rows) -> Answer:
    query = Columns(("page",), "trust", person="person", record_key="key")
    sample = sample_records(rows, query, SALT, discovery_share=1.0)
    result = _digest(discovery_counts(sample))
    drop(sample.rows, sample.table, f"{sample.table}_discovered")
    return result


def _our_marginal(rows: Rows) -> Answer:
    return _digest(Codes(SCHEMA, codes(rows, SCHEMA)).table((0, 1, 2)).reshape(-1).tolist())


Sql = Callable[[str, str], str]
Read = Callable[[Iterable[Any]], Answer]
AGGREGATIONS: dict[str, tuple[Callable[[Rows], Answer], Sql, Read]] = {
    "clipped sum": (_our_sum, _sum, _read_sum),
    "record counts by key": (_our_counts, _counts, _read_counts),
    "3-way marginal": (_our_marginal, _marginal, _read_marginal),
}


def runner(rows: Rows, engine: str, aggregation: str, way: str) -> tuple[Callable[[], Any], Callable[[Any], Answer]]:
    """What to time, and how to read the answer from what it returns."""
    ours, sql, read = AGGREGATIONS[aggregation]
    if way == "ours":
        return lambda: ours(rows), lambda answer: list(answer)
    text = sql(engine, way).format(**_words(engine))
    run = _runs(rows, engine)
    # Doubles are not the same answer, and refusals that were not counted cannot be read.
    return lambda: run(text), (lambda found: [len(found)]) if way == "bare" and aggregation == "clipped sum" else read


def _runs(rows: Rows, engine: str) -> Callable[[str], list[Any]]:
    connection: Any = getattr(rows.engine, "session" if engine == "spark" else "connection")
    if engine == "spark":
        return lambda text: [tuple(row) for row in connection.sql(text).collect()]
    return lambda text: connection.execute(text).fetchall()
