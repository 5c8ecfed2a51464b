"""What goes wrong on an engine is one sentence, without the values, the password or the engine's own words."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
from tests.engines.conftest import Columns, Opened, fill_postgres, source_of
from tests.queries import figures, number_query

from hybridp.errors import HybridpError, InvalidInput, UnusableRows
from hybridp.tables import Source, add_up, open_rows
from hybridp.tables.engine import answers, local_copy

SECRET = "4711.25"
PEOPLE: Columns = {"value": ("DOUBLE", [1.0, 2.0]), "trust": ("VARCHAR", ["trusted", "trusted"])}
QUERY = number_query(value="value", trust="trust", lower=0.0, upper=10.0, missing="middle")


@pytest.mark.parametrize(
    ("location", "engine", "words"),
    [
        ("people.csv", "oracle", "`engine` must be one of duckdb, postgresql, spark or an sc:// URL. Got oracle."),
        ("people.csv", "postgresql", "`path` must be a URL such as postgresql://user@host/database"),
        ("postgresql://u:hunter2@h/d", "duckdb", "`engine` must be postgresql for this URL. Got duckdb."),
        ("people.csv", "spark", "`engine` must be an sc:// URL, such as sc://spark.example:15002, for a file"),
        ("sc://h/;token=hunter2", "postgresql", "`engine` must be spark for this URL. Got postgresql."),
    ],
)
def test_a_source_that_makes_no_sense(location: str, engine: str, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        Source(location, engine)
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_database_that_does_not_answer(closed_port: int) -> None:
    pytest.importorskip("psycopg")
    url = f"postgresql://ann:hunter2@127.0.0.1:{closed_port}/people"
    with pytest.raises(InvalidInput, match="must be a PostgreSQL database that answers") as caught:
        open_rows(url, table="people")
    assert "hunter2" not in str(caught.value)
    assert caught.value.__context__ is None


def test_types_that_only_postgresql_has(server: str) -> None:
    """An enumeration as label, money kept as numeric, truth as a value, and a fixed-width label."""
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE TYPE trusting AS ENUM ('trusted', 'local', 'asked later')")
        connection.execute("CREATE TABLE odd (value numeric(12, 2), flag boolean, trust trusting, wide char(12))")
        connection.execute(
            "INSERT INTO odd VALUES (2.50, true, 'trusted', 'trusted'), (7.25, false, 'trusted', 'trusted')"
        )
    with open_rows(server, table="odd") as rows:
        for value, trust, upper, levels, total in (("value", "trust", 10.0, 40, 39), ("flag", "trust", 1.0, 1, 1),
                                                   ("value", "wide", 10.0, 4, 4)):  # fmt: skip
            query = number_query(value, trust, lower=0.0, upper=upper, levels=levels, missing="middle")
            assert add_up(rows, query).trusted[0] == total


@pytest.mark.parametrize("text", ["a\rb", "a\r\nb", "\n", '"', "x" * 3_000_000, "-", ""], ids=range(7))
def test_any_text_is_sent_and_leaves_no_file(server: str, text: str) -> None:
    import psycopg

    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("DROP TABLE IF EXISTS sent")
        connection.execute("CREATE TABLE sent (v text, n int)")
        connection.execute("INSERT INTO sent VALUES (%s, 1), ('y', 2), (NULL, 3)", (text,))
    with open_rows(server, table="sent") as rows:
        copy = local_copy(rows, ["v", "n"])
        assert answers(copy, "SELECT v FROM rows ORDER BY n") == [{"v": text}, {"v": "y"}, {"v": None}]
        assert not list(Path(copy.engine.spill.name).glob("sent*"))  # type: ignore[attr-defined]


def test_a_release_sees_one_snapshot(server: str) -> None:
    import psycopg

    fill_postgres(server, "moving", PEOPLE)
    with open_rows(server, table="moving") as rows:
        assert add_up(rows, QUERY).trusted_people == 2
        with psycopg.connect(server, autocommit=True) as other:
            other.execute("INSERT INTO moving VALUES (3.0, 'nobody')")
        assert add_up(rows, QUERY).trusted_people == 2
    with open_rows(server, table="moving") as rows, pytest.raises(UnusableRows, match="must hold `trusted` or `local`"):
        add_up(rows, QUERY)


def test_a_user_without_rights(server: str) -> None:
    import psycopg

    fill_postgres(server, "closed", PEOPLE)
    fill_postgres(server, "half open", PEOPLE)
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute("CREATE USER visitor")
        connection.execute('GRANT SELECT (trust) ON "half open" TO visitor')
    visitor = server.replace("hybridp@", "visitor@")
    with pytest.raises(InvalidInput, match="that this user may read"):
        open_rows(visitor, table="closed")
    with open_rows(visitor, table="half open") as rows, pytest.raises(InvalidInput):
        add_up(rows, QUERY)


def test_a_connection_that_breaks(server: str) -> None:
    import psycopg

    fill_postgres(server, "broken", PEOPLE)
    with open_rows(server, table="broken") as rows:
        with psycopg.connect(server, autocommit=True) as other:
            other.execute("SELECT pg_terminate_backend(%s)", (rows.engine.connection.info.backend_pid,))  # type: ignore[attr-defined]
        with pytest.raises(InvalidInput, match="must stay connected") as caught:
            add_up(rows, QUERY)
        assert caught.value.__context__ is None


@pytest.mark.parametrize("engine", ["postgresql", "spark"])
def test_an_error_of_the_engine_keeps_the_value_to_itself(
    engine: str, opened: Opened, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    from hybridp.tables.engine import attempt

    columns: Columns = {"value": ("VARCHAR", [SECRET]), "trust": ("VARCHAR", ["trusted"])}
    with caplog.at_level(logging.DEBUG), opened(engine, columns) as rows:
        source = "(SELECT '4711.25' AS value) AS rows" if engine == "postgresql" else "rows"
        with pytest.raises(HybridpError) as caught:
            attempt(rows.engine, lambda: rows.engine.ask(f"SELECT CAST(value AS INT) FROM {source}"))
    assert SECRET not in str(caught.value)
    assert caught.value.__context__ is None
    assert SECRET not in "".join(capfd.readouterr())
    assert SECRET not in caplog.text


def test_spark_files_and_servers(tmp_path: Path) -> None:
    broken = tmp_path / "broken.parquet"
    broken.write_bytes(b"not a table")
    for path, words in [
        (broken, "`path` must be a readable Parquet file that Spark sees"),
        (tmp_path / "nowhere.parquet", "`path` must be a readable Parquet file that Spark sees"),
        (tmp_path / "people.duckdb", "`path` must end in .csv, .csv.gz, .tsv or .parquet for Spark"),
    ]:
        with pytest.raises(InvalidInput) as caught:
            open_rows(source_of("spark", path))
        assert words in str(caught.value)
    with pytest.raises(InvalidInput, match="`table` must be given with an sc:// URL"):
        open_rows("sc://127.0.0.1:1/;token=hunter2")


def test_a_csv_file_is_read_alike(tmp_path: Path) -> None:
    """Quotes, a delimiter inside them, line ends inside them, and empty fields."""
    file = tmp_path / "people.csv"
    text = '"the value",trust,note\r\n"1.5",trusted,"a ""b"",\nc"\r\n,trusted,\r\n2.5,local,x\r\n'
    file.write_text(text, encoding="utf-8", newline="")
    query = number_query(value="the value", trust="trust", lower=0.0, upper=4.0, levels=8, missing=4.0, local_raw=True)
    found = []
    for engine in ("duckdb", "spark"):
        with open_rows(source_of(engine, file)) as rows:
            assert list(rows.columns) == ["the value", "trust", "note"]
            found.append(figures(add_up(rows, query)))
    assert found[0] == found[1]
    assert found[0][1] == 3 + 8
