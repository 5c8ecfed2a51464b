"""The made-up table of the engines' benchmark: ten records for each person on average, half of the people trusted.

Every field is a hash of the row's or the person's number, so that the table is the same whatever the engine's threads,
and DuckDB writes it as it goes: generating 1e8 rows takes no more memory than 1e6.

`person`, `id`     whole numbers: the person, and the record's own number
`key`              a random whole number of 63 bits stored with the record
`trust`            `trusted` or `local`, the same for all records of a person
`value`, `report`  doubles: a trusted record's value in (-5, 105), a local one's report in (-70, 170)
`page`             a text of some 10,000, the one of rank r with probability about proportional to 1/r
`state`, `age`, `kind`  texts of 50, 10 and 5: three categorical columns
"""

from __future__ import annotations

from pathlib import Path

from hybridp.public.queries import Feature, Schema

__all__ = ["COLUMNS", "PAGES", "RECORDS_A_PERSON", "SCHEMA", "generate"]

RECORDS_A_PERSON = 10
PAGES = 10_000
STATES, AGES, KINDS = 50, 10, 5
COLUMNS = {
    "person": "bigint",
    "id": "bigint",
    "key": "bigint",
    "trust": "text",
    "value": "double precision",
    "report": "double precision",
    "page": "text",
    "state": "text",
    "age": "text",
    "kind": "text",
}
SCHEMA = Schema(
    tuple(
        Feature(name, tuple(f"{name} {place}" for place in range(size)))
        for name, size in (("state", STATES), ("age", AGES), ("kind", KINDS))
    )
)


def _uniform(purpose: int) -> str:
    """A double in [0, 1) for each row, from 53 bits of a hash of its number and a purpose."""
    return f"(({_hash('i', purpose)} >> 11)::DOUBLE / {float(2**53)!r})"


def _hash(this: str, purpose: int) -> str:
    # Of one number: DuckDB's hash of two arguments is a combination whose values go together from purpose to purpose.
    return f"hash({this} * 16 + {purpose})"


def generate(path: Path, rows: int) -> None:
    """Write `rows` records as one Parquet file."""
    import duckdb

    people = max(1, rows // RECORDS_A_PERSON)
    with duckdb.connect(config={"memory_limit": "2GB"}) as connection:
        connection.execute("SET enable_progress_bar = false")
        connection.execute("SET preserve_insertion_order = false")
        connection.execute(
            f"""
            COPY (
                SELECT person, id, key, trust,
                    CASE WHEN trust = 'trusted' THEN u * 110 - 5 END AS value,
                    CASE WHEN trust = 'local' THEN u * 240 - 70 END AS report,
                    'page ' || floor(exp(r * ln({PAGES})))::INT AS page,
                    'state ' || floor(s * s * {STATES})::INT AS state,
                    'age ' || floor(a * {AGES})::INT AS age,
                    'kind ' || floor(k * {KINDS})::INT AS kind
                FROM (
                    SELECT person, id, key, u, r, s, a, k,
                        CASE WHEN {_hash("person", 3)} % 2 = 0 THEN 'trusted' ELSE 'local' END AS trust
                    FROM (
                        SELECT ({_hash("i", 1)} % {people})::BIGINT AS person, i AS id,
                            ({_hash("i", 2)} >> 1)::BIGINT AS key, {_uniform(4)} AS u, {_uniform(5)} AS r,
                            {_uniform(6)} AS s, {_uniform(7)} AS a, {_uniform(8)} AS k
                        FROM range({rows}) t(i)
                    )
                )
            ) TO '{path}' (FORMAT parquet)
            """
        )
