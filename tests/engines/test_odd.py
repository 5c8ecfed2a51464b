"""Odd names, odd texts and odd servers: the same answer on every engine, or one sentence that says what is wrong."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.conftest import ENGINES, Columns, Opened, fill_postgres, source_of, write_parquet
from tests.engines.test_errors import QUERY
from tests.queries import number_query

from hybridp import PureDP
from hybridp.curator.sums import Columns as MeanColumns
from hybridp.errors import HybridpError, InvalidInput, UnusableRows
from hybridp.ledger import Ledger
from hybridp.protocols.driver import release
from hybridp.public.heavy import HeadList
from hybridp.public.queries import Feature, Schema
from hybridp.public.randomisers import Bounds
from hybridp.tables import Columns as TableColumns
from hybridp.tables import (
    Source,
    add_up,
    discovery_counts,
    head_counts,
    levels_of,
    open_rows,
    records_at,
    sample_records,
)
from hybridp.tables.counts import codes
from hybridp.tables.engine import shown
from hybridp.tasks.mean import MeanTask
from tests import warm

HEAVY = TableColumns(("query",), "trust", person="person")
LABELS = [
    "it's",
    "back\\slash",
    "\\",
    "${spark.app.name}",
    "new\nline",
    "\\u0041",
    "A",
    "%",
    "'; --",
    "é",
    "e\u0301",
    "",
]
MEAN = ["--column", "value", "--trust", "trust", "--missing", "middle", "--lower", "0", "--upper", "10",
        "--epsilon", "1"]  # fmt: skip


def refused(call: Any, words: str) -> HybridpError:
    with pytest.raises(HybridpError) as caught:
        call()
    assert words in str(caught.value)
    assert caught.value.__context__ is None
    return caught.value


# --- every engine -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("engine", ENGINES)
def test_labels_are_literal(engine: str, opened: Opened) -> None:
    """Quotes, backslashes, and what Spark takes for a variable; a NUL, which no text of PostgreSQL holds."""
    schema = Schema((Feature("query", ("a\0b", *LABELS)),))
    with opened(engine, {"query": ("VARCHAR", LABELS)}) as rows:
        assert codes(rows, schema).tolist() == [[*range(1, len(LABELS) + 1)]]


@pytest.mark.parametrize("engine", ENGINES)
def test_truth_as_text_and_as_number(engine: str, opened: Opened) -> None:
    columns: Columns = {
        "person": ("BIGINT", [1, 2, 3]),
        "query": ("BOOLEAN", [True, False, True]),
        "trust": ("VARCHAR", ["trusted"] * 3),
    }
    with opened(engine, columns) as rows:
        assert rows.columns["query"] == "BOOLEAN"
        assert codes(rows, Schema((Feature("query", ("true", "false")),))).tolist() == [[0, 1, 0]]
        query = number_query(
            value="query", trust="trust", person="person", lower=0.0, upper=1.0, levels=1, missing="middle"
        )
        assert add_up(rows, query).trusted[0] == 2
        sample = sample_records(rows, HEAVY, 1, discovery_share=1.0)
        counts = discovery_counts(sample)
        assert records_at(sample, range(2)) == [("false",), ("true",)]
        assert counts.tolist() == [1, 2]
        assert head_counts(sample, HeadList.of([("a\0b",), ("true",)]), "trusted").tolist() == [0, 2, 1]


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("names", [("a`b", "${x}", "x;y"), ('va"lue', "tr.ust", "label"), ("%s", "trusted", "place_")])
def test_names_are_names(engine: str, opened: Opened, names: tuple[str, str, str]) -> None:
    if engine == "postgresql" and '"' in names[0]:
        pytest.skip("the fixture does not quote quotes; see below")
    value, trust, person = names
    columns: Columns = {
        value: ("DOUBLE", [1.0, 2.0, 4.0]),
        trust: ("VARCHAR", ["trusted", "trusted", "local"]),
        person: ("BIGINT", [1, 2, 3]),
    }
    query = number_query(
        value=value, trust=trust, person=person, lower=0.0, upper=8.0, levels=8, local_raw=True, missing="middle"
    )
    with opened(engine, columns) as rows:
        assert add_up(rows, query).trusted[0] == 3
        assert sorted(level for part in levels_of(rows, query, "trusted") for level in part[:, 0].tolist()) == [1, 2]


# --- PostgreSQL -------------------------------------------------------------------------------------------------------


@pytest.fixture
def connection(server: str) -> Any:
    import psycopg

    with psycopg.connect(server, autocommit=True) as found:
        yield found


def test_a_failed_query_is_told_by_its_state(server: str, connection: Any) -> None:
    connection.execute("CREATE TABLE beyond (value numeric, trust text)")
    connection.execute("INSERT INTO beyond VALUES (1e400, 'trusted')")
    with open_rows(server, table="beyond") as rows:
        refused(lambda: add_up(rows, QUERY), "SQLSTATE 22003")


def test_tables_are_found_as_the_database_finds_them(server: str, connection: Any) -> None:
    """A dot in a name, a schema on the search path, a materialised view, a partitioned table, a domain."""
    connection.execute("CREATE DOMAIN share AS numeric(4, 0)")
    connection.execute('CREATE TABLE "with.dot" (value share, trust text)')
    connection.execute("INSERT INTO \"with.dot\" VALUES (3, 'trusted')")
    connection.execute('CREATE MATERIALIZED VIEW frozen AS SELECT * FROM "with.dot"')
    connection.execute("CREATE TABLE parted (value float8, trust text) PARTITION BY LIST (trust)")
    connection.execute("CREATE TABLE parted_one PARTITION OF parted FOR VALUES IN ('trusted')")
    connection.execute("INSERT INTO parted VALUES (3, 'trusted')")
    for schema in ("one", "two"):
        connection.execute(f"CREATE SCHEMA {schema}")
        connection.execute(f"CREATE TABLE {schema}.twice AS SELECT 3.0 AS value, 'trusted' AS trust")
    query = number_query(value="value", trust="trust", lower=0.0, upper=10.0, levels=10, missing="middle")
    path = f"{server}&options=-c%20search_path%3Dtwo"
    for url, table in [
        (server, "with.dot"), (server, "public.with.dot"), (server, "frozen"), (server, "parted"),
        (server, "one.twice"), (path, "twice"), (path, None),
    ]:  # fmt: skip
        with open_rows(url, table=table) as rows:
            assert add_up(rows, query).trusted[0] == 3
    with open_rows(server, table="frozen") as rows:
        assert rows.columns["value"] == "DECIMAL(4,0)"
        assert rows.is_whole("value")
    refused(lambda: open_rows(server, table="twice"), "must be one table of")


LOG: Columns = {
    "person": ("VARCHAR", ["a", "b", "c"]),
    "trust": ("VARCHAR", ["trusted"] * 3),
    "query": ("VARCHAR", ["x", "y\\", "x"]),
}


def test_settings_of_a_role_do_not_matter(server: str, connection: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A table of the database has the name of a temporary one and comes first; literals are read the old way."""
    from hybridp.tables import counts

    fill_postgres(server, "log", LOG)
    connection.execute("CREATE TABLE sample_mine (a int)")
    connection.execute("CREATE TABLE chosen_mine (a int)")
    connection.execute("CREATE USER guest")
    connection.execute("GRANT SELECT ON log TO guest")
    monkeypatch.setattr(counts, "fresh", lambda purpose: f"{purpose}_mine")
    options = "-c%20search_path%3Dpublic,pg_temp%20-c%20standard_conforming_strings%3Doff"
    guest = server.replace("hybridp@", "guest@") + f"&options={options}"
    with open_rows(guest, table="log") as rows:
        assert codes(rows, Schema((Feature("query", ("y\\", "x")),))).tolist() == [[1, 0, 1]]
        sample = sample_records(rows, HEAVY, 1, discovery_share=1.0)
        assert records_at(sample, range(len(discovery_counts(sample)))) == [("x",), ("y\\",)]
    assert connection.execute("SELECT count(*) FROM chosen_mine").fetchone() == (0,)


def test_a_server_says_no(server: str, connection: Any) -> None:
    """Too slow: not the rows' fault, and not a lost connection. One that may only be read will do."""
    fill_postgres(server, "kept log", LOG)
    connection.execute("CREATE VIEW slow AS SELECT pg_sleep(600)::text AS trust, 1.0::float8 AS value")
    with open_rows(f"{server}&options=-c%20statement_timeout%3D2000", table="slow") as rows:
        refused(lambda: add_up(rows, QUERY), "must be allowed to finish: the server cancelled it")
    with open_rows(f"{server}&options=-c%20default_transaction_read_only%3Don", table="kept log") as rows:
        assert sample_records(rows, HEAVY, 1, discovery_share=1.0).trusted_people == 3


def test_bytes_that_are_no_text(server: str, connection: Any) -> None:
    import psycopg

    connection.execute("CREATE DATABASE plain ENCODING 'SQL_ASCII' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'")
    url = server.replace("/postgres?", "/plain?")
    with psycopg.connect(url, autocommit=True) as other:
        other.execute(b"CREATE TABLE log AS SELECT 'p' AS person, E'caf\\xe9' AS query, 'trusted' AS trust")
    with open_rows(url, table="log") as rows:
        problem = refused(lambda: sample_records(rows, HEAVY, 1, discovery_share=1.0), "text that is not UTF-8")
        assert isinstance(problem, UnusableRows)


# --- Spark ------------------------------------------------------------------------------------------------------------


def test_a_file_is_read_under_its_own_name(tmp_path: Path) -> None:
    """Brackets in it are no pattern, where such a file is there."""
    for name, value in [("a1", 9.0), ("a[1]", 3.0), ("_a", 3.0), (".a", 3.0), ("a:b", 3.0), ("m1", 1.0), ("m2", 2.0)]:
        write_parquet(tmp_path / f"{name}.parquet", {"value": ("DOUBLE", [value]), "trust": ("VARCHAR", ["trusted"])})
        (tmp_path / f"{name}.csv").write_text(f"value,trust\n{value},trusted\n")
    query = number_query(value="value", trust="trust", lower=0.0, upper=10.0, levels=10, missing="middle")
    for name in (
        "a[1].parquet",
        "_a.parquet",
        "a:b.parquet",
        "m*.parquet",
        "m?.parquet",
        "a[1].csv",
        "_a.csv",
        ".a.csv",
    ):
        with open_rows(tmp_path / name, threads=2) as rows:
            assert add_up(rows, query).trusted[0] == 3, name
    refused(lambda: open_rows(tmp_path / "z*.parquet"), "`path` must be a file that exists")


def test_a_csv_file_that_is_not_utf8_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "log.csv"
    file.write_bytes("person,query,trust\n1,caf\xe9,trusted\n".encode("latin-1"))
    with open_rows(file) as rows:
        refused(lambda: sample_records(rows, HEAVY, 1, discovery_share=1.0), "text that is not UTF-8")


def _told(*words: str, without: str = "", folder: Path | None = None, **environment: str) -> tuple[int, str, str]:
    code = f"import sys\nfor name in {without.split()!r}: sys.modules[name] = None\n"
    found = warm.run(f"{code}{warm.COMMAND}", *words, cwd=folder, env={**os.environ, **environment})
    return found.returncode, found.stdout, found.stderr.strip()


@pytest.fixture(scope="module", autouse=True)
def unanswered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[warm.Process, str, Path]]:
    """A command that asks a server which does not answer, the server and its complaints: it waits while others run."""
    complaints = tmp_path_factory.mktemp("unanswered") / "stderr"
    with socket.socket() as taken, complaints.open("wb") as stderr:
        taken.bind(("127.0.0.1", 0))
        url = f"sc://127.0.0.1:{taken.getsockname()[1]}"
        words = ("release", "mean", f"{url}/;token=hunter2", "--table", "people", *MEAN)
        process = warm.Process(warm.COMMAND, *words, stderr=stderr)
        yield process, url, complaints
        process.kill()


def test_a_spark_server_that_does_not_answer_is_not_waited_for(unanswered: tuple[warm.Process, str, Path]) -> None:
    """PySpark would try for ten minutes, and once more when the process ends."""
    process, url, complaints = unanswered
    assert process.wait() == 2
    told = complaints.read_text(encoding="utf-8").strip()
    assert told == f"hybridp: `engine` must be a Spark Connect server that answers. Got {url}."


@pytest.mark.parametrize(
    ("without", "where", "words"),
    [
        ("psycopg", ["postgresql://h/d"], "psycopg installed (the extra `postgres`). Got no psycopg."),
        ("pyspark", ["sc://h", "--table", "t"], "PySpark installed (the extra `spark`). Got no pyspark."),
        ("grpc", ["sc://h", "--table", "t"], "all of the extra `spark` installed. Got PySpark alone."),
    ],
)
def test_what_is_not_installed(without: str, where: list[str], words: str) -> None:
    pytest.importorskip(without)
    code, out, told = _told("release", "mean", *where, *MEAN, without=without)
    assert (code, out, told.splitlines()[-1]) == (2, "", f"hybridp: `engine` must have {words}")


# --- secrets ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "location",
    [
        "mysql://ann:hunter2@h/d", "POSTGRESQL://ann:hunter2@127.0.0.1:1/d", "postgresql:/ann:hunter2@h/d",
        "jdbc:postgresql://ann:hunter2@h/d.parquet", "host=h password=hunter2", "postgresql://ann:12/hunter2@h/d",
        "postgresql://ann:12#hunter2@h/d", "postgresql://h/d?password=hunter2",
    ],
)  # fmt: skip
def test_a_password_is_never_repeated(location: str) -> None:
    pytest.importorskip("psycopg")
    assert "hunter2" not in shown(location)
    with pytest.raises(InvalidInput) as caught:
        open_rows(location, table="people")
    assert "hunter2" not in str(caught.value)
    source = Source("postgresql://ann:hunter2@h/d")
    assert repr(source) == "Source('postgresql://h/d', 'postgresql')"
    assert str(source) == f"{source}" == "postgresql://h/d"


@pytest.mark.parametrize("line", ["randomise mean URL --column v "
    "--missing middle --lower 0 --upper 1 --epsilon 1 --out o.csv",
                                  "tally add URL --tally s.json"])  # fmt: skip
def test_a_url_where_a_file_is_meant(line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from click.testing import CliRunner

    from hybridp.cli.app import cli

    monkeypatch.chdir(tmp_path)
    found = CliRunner().invoke(cli, line.replace("URL", "postgresql://ann:hunter2@h/d").split())
    assert isinstance(found.exception, InvalidInput)
    assert "hunter2" not in str(found.exception) + found.output


# --- the ledger -------------------------------------------------------------------------------------------------------


def release_from(source: Source, tmp_path: Path) -> tuple[Ledger, str]:
    """A release that is refused: what its ledger says then, and the sentence."""
    ledger = Ledger.create(tmp_path / "study.ledger", {"trusted": PureDP(1.0), "local": PureDP(1.0)})
    study = MeanTask(bounds=Bounds(0, 10), guarantee=PureDP(1.0))
    with pytest.raises(HybridpError) as caught:
        release(source, study, MeanColumns("value", "trust", missing="middle"), ledger=ledger)
    return ledger, str(caught.value)


@pytest.mark.parametrize("engine", ["postgresql", "spark"])
def test_an_engine_that_fails_costs_nothing(engine: str, tmp_path: Path, closed_port: int) -> None:
    if engine == "spark":
        where = source_of("spark", tmp_path / "nowhere.csv")
    else:
        pytest.importorskip("psycopg")
        where = Source(f"postgresql://127.0.0.1:{closed_port}/people")
    ledger, _ = release_from(where, tmp_path)
    assert ledger.remaining("trusted").epsilon == ledger.remaining("local").epsilon == 1.0


@pytest.mark.parametrize("engine", ["duckdb", "spark"])
def test_a_refusal_that_depends_on_a_row_stays_charged(engine: str, tmp_path: Path) -> None:
    """One field too many may be a comma in somebody's value: whoever sees the refusal has learnt that."""
    (tmp_path / "people.csv").write_text("value,trust\n1,trusted\n2,trusted,4711.25\n")
    ledger, said = release_from(source_of(engine, tmp_path / "people.csv"), tmp_path)
    assert "4711" not in said
    assert ledger.remaining("trusted").epsilon == 0
    assert [entry.state for entry in ledger.history()] == ["refused"]
