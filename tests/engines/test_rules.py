"""Who trusts, by a rule, and a query in place of a table: the same people and the same rows on every engine."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
from tests.engines.conftest import ENGINES, Columns, fill_postgres, source_of, write_parquet
from tests.queries import number_query

from hybridp.curator.sums import Columns as MeanColumns
from hybridp.errors import InvalidInput, UnusablePublicRows, UnusableRows
from hybridp.ledger import Ledger
from hybridp.protocols.driver import release as release_mean
from hybridp.public.budgets import PureDP
from hybridp.public.lattice import Bounds
from hybridp.public.trust import TrustRule
from hybridp.randomness import seeded
from hybridp.tables import Source, Totals, add_up, open_rows
from hybridp.tables.engine import answers
from hybridp.tasks.mean import MeanTask

N = 300
PEOPLE: Columns = {
    "who": ("VARCHAR", [f"p{i % 150}" for i in range(N)]),
    "pay": ("DOUBLE", [float(i % 100) for i in range(N)]),
    "consent": ("VARCHAR", [("yes", "no", "Yes", None, "", "yes ")[i % 6] for i in range(N)]),
    "agreed": ("BOOLEAN", [(True, False, None)[i % 3] for i in range(N)]),
    "code": ("BIGINT", [(1, 0, None)[i % 3] for i in range(N)]),
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, tuple[Any, Any]]:
    """Where each engine has the people: location, and table."""
    file = tmp_path_factory.mktemp("rows") / "people.parquet"
    write_parquet(file, PEOPLE)
    url = request.getfixturevalue("server")
    fill_postgres(url, "worded", PEOPLE)
    return {"duckdb": (str(file), None), "postgresql": (url, "worded"), "spark": (str(file), None)}


def totals(
    places: dict[str, tuple[Any, Any]], engine: str, rule: TrustRule, query: str | None = None, **more: Any
) -> Totals:
    location, table = places[engine]
    source = source_of(engine, location, query, public=("code", "agreed", "who", "consent"))
    asked = number_query(
        value="pay", trust=rule.label, lower=0, upper=100, levels=100, local_raw=True, missing="middle"
    )
    with open_rows(source, table=table if query is None else None, trust=rule, threads=2, **more) as rows:
        return add_up(rows, asked)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("rule", "trusted"),
    [
        (TrustRule("consent", trusted=("yes",)), [i for i in range(N) if i % 6 == 0]),
        (TrustRule("consent", trusted=("yes", "Yes")), [i for i in range(N) if i % 6 in (0, 2)]),
        (TrustRule("agreed", trusted=("true",)), [i for i in range(N) if i % 3 == 0]),
        (TrustRule("agreed", trusted=("True",)), []),
        (TrustRule("code", trusted=("1",)), [i for i in range(N) if i % 3 == 0]),
        (TrustRule(everyone="trusted"), [*range(N)]),
        (TrustRule(everyone="local"), []),
    ],
    ids=lambda this: this.rule if isinstance(this, TrustRule) else "",
)
def test_the_same_people_are_trusted_on_every_engine(
    places: dict[str, tuple[Any, Any]], engine: str, rule: TrustRule, trusted: list[int]
) -> None:
    found = totals(places, engine, rule)
    assert (found.trusted_people, found.local_people) == (len(trusted), N - len(trusted))
    assert found.sums[0] == sum(i % 100 for i in trusted)


@pytest.mark.parametrize("engine", ENGINES)
def test_a_choice_without_a_listed_word_is_refused(places: dict[str, tuple[Any, Any]], engine: str) -> None:
    with pytest.raises(UnusablePublicRows, match=r"must hold `yes` \(trusted\) or `no` \(local\) in every row"):
        totals(places, engine, TrustRule("consent", trusted=("yes",), local=("no",)))
    with pytest.raises(UnusablePublicRows, match="its type is DOUBLE"):
        totals(places, engine, TrustRule("pay", trusted=("1",)))


def test_the_same_people_are_drawn_on_every_engine(places: dict[str, tuple[Any, Any]]) -> None:
    rule = TrustRule(trial_opt_in=0.4)
    found = {engine: totals(places, engine, rule, person="who", rng=seeded(8)) for engine in ENGINES}
    assert found["duckdb"] == found["postgresql"] == found["spark"]
    assert found["duckdb"] != totals(places, "duckdb", rule, person="who", rng=seeded(9))
    assert 80 < found["duckdb"].trusted_people < 160
    for engine in ("postgresql", "spark"):
        with pytest.raises(InvalidInput, match="`trial-opt-in` must go with --person on this engine"):
            totals(places, engine, rule, rng=seeded(8))


WISE = "CASE WHEN pay > 49.5 THEN 100 ELSE 0.0 END AS pay, consent FROM {} WHERE code = 1 AND agreed AND who > ''"


def test_a_query_makes_the_same_rows_on_every_engine(places: dict[str, tuple[Any, Any]]) -> None:
    rule = TrustRule("consent", trusted=("yes",))
    chosen = [i for i in range(N) if i % 6 == 0]
    for engine in ENGINES:
        query = f"SELECT {WISE.format('worded' if engine == 'postgresql' else 'rows')}"
        found = totals(places, engine, rule, query)
        assert (found.trusted_people, found.local_people) == (len(chosen), N // 3 - len(chosen)), engine
        assert found.sums[0] == sum(100 * (i % 100 >= 50) for i in chosen), engine
        with pytest.raises(InvalidInput, match=r"`query` must choose rows .* --public pay"):
            totals(places, engine, rule, query.replace("code = 1", "pay = 1"))


ODD: Columns = {
    "who": ("VARCHAR", ["1", "abc", None, "", "9" * 400, "1e999", "nan", "-inf", "2024-02-30", "ä"]),
    "whole": ("BIGINT", [0, -(2**63), 2**63 - 1, None, 1, -1, 7, 20, 10, 3]),
    "small": ("INTEGER", [0, -(2**31), 2**31 - 1, None, 1, -1, 7, 20, 10, 3]),
    "real": ("DOUBLE", [0.0, -0.0, 1e308, -1e308, math.inf, -math.inf, math.nan, None, 5e-324, 1.5]),
    "told": ("BOOLEAN", [True, False, None, *[True] * 7]),
}
ON_EVERY_ENGINE = [
    "whole > 0.1234567890123456789012345678901234567", "CASE WHEN whole > 3 THEN whole > 1e-300 END", "real > 1e300",
    "COALESCE(whole, small, 9007199254740992, 0.5)", "COALESCE(real, 0.5)", "NULLIF(small, whole)", "real IN (1, -2.5)",
    "whole BETWEEN small AND 9007199254740992", "CASE whole WHEN small THEN 'a' ELSE who END", "told IS TRUE", "NULL",
    "UPPER(LEFT(TRIM(who), 3)) = LOWER(who)", "CAST(whole AS VARCHAR)", "CAST(told AS VARCHAR)",
    "who >= 'b' OR NOT told",
]  # fmt: skip
NOT_ON_POSTGRESQL = [
    "TRY_CAST(who AS DOUBLE)", "TRY_CAST(who AS INT)", "TRY_CAST(who AS BOOLEAN)", "TRY_CAST(who AS DATE)",
    "TRY_CAST(whole AS SMALLINT)", "TRY_CAST(real AS INT)", "whole * whole * small", "real * real", "whole / 0",
    "1 / real", "-whole - small", "CASE WHEN whole > real THEN real ELSE small END", "CAST(real AS VARCHAR)",
]  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_what_a_query_may_compute_fails_on_no_row(engine: str, tmp_path: Path, request: Any) -> None:
    """On the oddest numbers and texts; what cannot be made safe on an engine is refused there."""
    location: Any = tmp_path / "odd.parquet"
    write_parquet(location, ODD)
    if engine == "postgresql":
        location = request.getfixturevalue("server")
        fill_postgres(location, "oddest", ODD)
    table = "oddest" if engine == "postgresql" else "rows"
    several = [*ON_EVERY_ENGINE, *(NOT_ON_POSTGRESQL if engine != "postgresql" else [])]
    listed = ", ".join(f"{this} AS x{i}" for i, this in enumerate(several))
    with open_rows(source_of(engine, location, f"SELECT {listed} FROM {table}"), threads=2) as rows:
        view = f"SELECT {', '.join(f'x{i}' for i in range(len(several)))} FROM rows"
        assert len(answers(rows, view)) == 10
    refused = ["CAST(who AS INT)", "who > 5", "whole = who", "whole % 2", "abs(whole)", "error('x')"]
    refused += [*NOT_ON_POSTGRESQL[:-2], "whole > real", "pg_sleep(9)"] if engine == "postgresql" else ["sqrt(real)"]
    for this in refused:
        with pytest.raises(InvalidInput, match="`query` must") as caught:
            open_rows(source_of(engine, location, f"SELECT CASE WHEN whole > 3 THEN {this} END AS x FROM {table}"))
        assert caught.value.of_rows is False, this


POSTGRES = [
    "DELETE FROM worded",
    "WITH gone AS (DELETE FROM worded RETURNING *) SELECT * FROM gone",
    "SELECT * INTO other FROM worded",
    "SELECT * FROM worded FOR UPDATE",
    "SELECT nextval('counter') AS pay",
    "SELECT setval('counter', 99) AS pay",
    "SELECT pg_read_file('/etc/hostname') AS pay",
    "SELECT * FROM pg_ls_dir('/')",
    "SELECT lo_import('/etc/hostname') AS pay",
    "SELECT public.mine() AS pay",
    "SELECT * FROM worded; DROP TABLE worded",
    "SELECT nothing FROM worded",
    "SELECT * FROM nowhere",
    "COPY worded TO '/tmp/stolen'",
]
SPARK = [
    "DROP TABLE rows",
    "SELECT reflect('java.lang.System', 'getProperty', 'user.home') AS pay FROM rows",
    "SELECT java_method('java.lang.System', 'exit', 1) AS pay FROM rows",
    "SELECT * FROM parquet.`/tmp/x.parquet`",
    "SELECT * FROM read_files('/tmp')",
    "SELECT * FROM other",
    "SELECT nothing FROM rows",
    "INSERT INTO rows SELECT * FROM rows",
]


@pytest.mark.parametrize(
    ("engine", "query"), [*(("postgresql", q) for q in POSTGRES), *(("spark", q) for q in SPARK)], ids=lambda this: this
)
def test_a_query_only_reads_what_was_named(places: dict[str, tuple[Any, Any]], engine: str, query: str) -> None:
    location, _ = places[engine]
    if engine == "postgresql":
        run(location, "CREATE SEQUENCE IF NOT EXISTS counter")
        body = "CREATE SEQUENCE IF NOT EXISTS made_by_a_query; SELECT 1"
        run(location, f"CREATE OR REPLACE FUNCTION mine() RETURNS int LANGUAGE sql AS '{body}'")
    with pytest.raises(InvalidInput, match=r"`(query|table)` must") as caught:
        open_rows(source_of(engine, location, query), threads=2)
    assert not isinstance(caught.value, UnusableRows)
    if engine == "postgresql":
        assert run(location, "SELECT count(*) FROM worded") == N
        assert run(location, "SELECT is_called FROM counter") is False
        assert run(location, "SELECT count(*) FROM pg_class WHERE relname IN ('other', 'made_by_a_query')") == 0


def run(url: str, sql: str) -> Any:
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(sql)
        row = cursor.fetchone() if cursor.description else None
        return None if row is None else row[0]


def test_a_query_that_the_server_cancels_is_charged(places: dict[str, tuple[Any, Any]], tmp_path: Path) -> None:
    """It can be slow where somebody's value is large; of a table, that a server is slow is not the rows' doing."""
    location = places["postgresql"][0]
    run(location, "CREATE VIEW asleep AS SELECT pg_sleep(600)::text AS trust, 1 AS pay")
    hurried = f"{location}&options=-c%20statement_timeout%3D300"
    totals = {"trusted": PureDP(5.0), "local": PureDP(5.0)}
    found = {}
    for query in (None, "SELECT trust, pay FROM asleep"):
        ledger = Ledger.create(tmp_path / str(query), totals)
        study = MeanTask(Bounds(0, 1), PureDP(0.25))
        with pytest.raises(InvalidInput, match="the server cancelled it"):
            release_mean(Source(hurried, query=query), study, MeanColumns("pay", "trust", missing=0.0),
                         table=None if query else "asleep", ledger=ledger)  # fmt: skip
        found[query] = ledger.accounts()[0].spent.epsilon
    run(location, "DROP VIEW asleep")
    assert found == {None: 0.0, "SELECT trust, pay FROM asleep": 1.0}
