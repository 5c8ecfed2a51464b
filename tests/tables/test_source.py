"""Opening tables: each kind of file, and one sentence for each file that cannot be used."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import duckdb
import pytest
from tests.queries import number_query

from hybridp.errors import InvalidInput, UnusableRows
from hybridp.tables import add_up, open_rows

CSV = 'value,trust\n1.5,trusted\n"2",trusted\n'
QUERY = number_query(value="value", trust="trust", lower=0, upper=4, levels=8, missing="middle")


def total(path: object, **options: object) -> tuple[int, int]:
    with open_rows(path, **options) as rows:  # type: ignore[arg-type]
        found = add_up(rows, QUERY)
    return found.trusted_people, found.trusted[0]


def database(path: Path, *statements: str) -> Path:
    with duckdb.connect(str(path)) as made:
        for statement in statements:
            made.execute(statement)
    return path


def test_every_kind_of_file_gives_the_same_totals(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    (tmp_path / "marked.csv").write_bytes(b"\xef\xbb\xbf" + CSV.replace("\n", "\r\n").encode())
    (tmp_path / "semicolons.csv").write_text(CSV.replace(",", ";"))
    (tmp_path / "quoted.csv").write_text('"x;y;z",value,trust\n,1.5,trusted\n,2,trusted\n')
    (tmp_path / "a.tsv").write_text(CSV.replace(",", "\t"))
    (tmp_path / "odd[1]*.csv").write_text(CSV)
    with gzip.open(tmp_path / "a.csv.gz", "wt") as file:
        file.write(CSV)
    select = "SELECT * FROM (VALUES (1.5::DOUBLE, 'trusted'), (2, 'trusted')) t(value, trust)"
    duckdb.sql(select).write_parquet(str(tmp_path / "a.parquet"))
    database(tmp_path / "a.duckdb", f'CREATE TABLE "my rows" AS {select}')
    names = ["a.csv", "marked.csv", "semicolons.csv", "quoted.csv", "a.tsv", "odd[1]*.csv", "a.csv.gz"]
    names += ["a.parquet", "a.duckdb"]
    assert {name: total(tmp_path / name) for name in names} == dict.fromkeys(names, (2, 7))
    assert total(tmp_path / "a.duckdb", table="my rows") == (2, 7)


def test_a_pattern_reads_every_parquet_file(tmp_path: Path) -> None:
    for index in range(3):
        made = duckdb.sql("SELECT 1.0::DOUBLE AS value, 'trusted' AS trust")
        made.write_parquet(str(tmp_path / f"part{index}.parquet"))
    assert total(str(tmp_path / "part*.parquet")) == (3, 6)


@pytest.mark.parametrize(
    ("type_name", "value", "level"),
    [("FLOAT", "1.5", 3), ("DECIMAL(9, 2)", "1.5", 3), ("UTINYINT", "2", 4), ("HUGEINT", "2", 4), ("BOOLEAN", "1", 2)],
)
def test_every_type_of_number_is_read(tmp_path: Path, type_name: str, value: str, level: int) -> None:
    made = duckdb.sql(f"SELECT {value}::{type_name} AS value, 'trusted' AS trust")
    made.write_parquet(str(tmp_path / "a.parquet"))
    assert total(tmp_path / "a.parquet") == (1, level)


def test_labels_may_be_an_enumeration(tmp_path: Path) -> None:
    statement = "CREATE TABLE t AS SELECT 1 AS value, 'trusted'::ENUM('trusted', 'local') AS trust"
    assert total(database(tmp_path / "a.duckdb", statement)) == (1, 2)


def test_unusable_files_are_refused_in_one_sentence(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").write_text("")
    (tmp_path / "twice.csv").write_text("a,A\n1,2\n")
    (tmp_path / "latin.csv").write_bytes(b"a\xe9,b\n1,2\n")
    (tmp_path / "bad.csv.gz").write_bytes(b"nothing")
    (tmp_path / "bad.parquet").write_bytes(b"nothing")
    (tmp_path / "bad.duckdb").write_bytes(b"nothing" * 1000)
    (tmp_path / "a.xlsx").write_bytes(b"nothing")
    (tmp_path / "a.csv").write_text(CSV)
    database(tmp_path / "two.duckdb", "CREATE TABLE a (x INT)", "CREATE TABLE b (x INT)")
    database(tmp_path / "none.duckdb")
    refused = [
        ("missing.csv", {}, "`path` must be a file that exists"),
        ("missing*.parquet", {}, "`path` must be a file that exists"),
        ("empty.csv", {}, "`path` must be a CSV file in UTF-8 that starts with a header"),
        ("latin.csv", {}, "`path` must be a CSV file in UTF-8"),
        ("bad.csv.gz", {}, "`path` must be a CSV file in UTF-8"),
        ("twice.csv", {}, "`path` must have a header without repeated column names"),
        ("bad.parquet", {}, "`path` must be a readable Parquet file"),
        ("bad.duckdb", {}, "`path` must be a readable DuckDB file"),
        ("a.xlsx", {}, "`path` must end in .csv"),
        ("two.duckdb", {}, "`table` must be given when a file has not exactly one table (`a`, `b`)"),
        ("two.duckdb", {"table": "c"}, "`table` must be one table of the file (`a`, `b`). Got c."),
        ("none.duckdb", {}, "`table` must be given"),
        ("a.csv", {"table": "a"}, "`table` is only for a DuckDB file"),
        ("a.csv", {"threads": 0}, "`threads` must be at least 1"),
        ("a.csv", {"memory_limit": "much"}, "`memory_limit` must be a size such as 1GB"),
    ]
    for name, options, sentence in refused:
        with pytest.raises(InvalidInput) as caught:
            open_rows(tmp_path / name, **options)  # type: ignore[arg-type]
        assert str(caught.value).startswith(sentence), name
        assert caught.value.__context__ is None, name


def test_a_damaged_row_is_refused_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "ragged.csv").write_text(CSV + "secret,trusted,5\n")
    (tmp_path / "latin.csv").write_bytes(CSV.encode() + b"secret\xe9,trusted\n")
    for name in ("ragged.csv", "latin.csv"):
        with open_rows(tmp_path / name) as rows, pytest.raises(UnusableRows) as caught:
            add_up(rows, QUERY)
        assert str(caught.value).startswith(f"The rows of {name} must be readable")
        assert "secret" not in str(caught.value)
        assert caught.value.__context__ is None


def test_a_database_is_not_written_to_and_the_spill_is_removed(tmp_path: Path) -> None:
    path = database(tmp_path / "a.duckdb", "CREATE TABLE t AS SELECT 1.0 AS value, 'trusted' AS trust")
    before = path.read_bytes()
    rows = open_rows(path, threads=1)
    assert os.path.isdir(rows.engine.spill.name)
    with pytest.raises(duckdb.Error):
        rows.engine.connection.execute("INSERT INTO source.t VALUES (2, 'trusted')")
    rows.close()
    assert not os.path.exists(rows.engine.spill.name)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.duckdb"]


def test_the_network_is_out_of_reach(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(CSV)
    with open_rows(tmp_path / "a.csv", threads=1) as rows:
        settings = "current_setting('autoload_known_extensions'), current_setting('autoinstall_known_extensions')"
        assert rows.engine.connection.execute(f"SELECT {settings}").fetchone() == (False, False)
    with pytest.raises(InvalidInput, match="must be a file that exists"):
        open_rows("https://localhost/a.csv")


def test_importing_the_room_loads_no_engine() -> None:
    code = "import sys, hybridp.tables; sys.exit(bool({'duckdb', 'sqlglot'} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
