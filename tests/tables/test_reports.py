"""Randomised copies: what is kept, what is removed, and that nothing half-written is left behind."""

from __future__ import annotations

import csv
import gzip
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

from hybridp.device.files import Copy, Reporting, write_copy
from hybridp.errors import InvalidInput, UnusableRows
from hybridp.tables import Lattice, Number, Query, open_rows

BASE = Copy(values=("salary",), trust="trust")
CSV = 'salary,trust,zip,name\n1.50,trusted,007,"a,b"\n2.5,local,010,"say ""hi"""\n99,local,,é\n'


def save(folder: Path, content: str = CSV) -> Path:
    path = folder / "in.csv"
    path.write_text(content)
    return path


def write(
    path: Path, out: Path, *, randomise: Any = lambda levels: levels / 8, missing: Any = "middle", chunk: int = 2**18,
    overwrite: bool = False, threads: int = 1, **changes: Any,
) -> int:  # fmt: skip
    reports = changes.pop("reports", ("report",))
    mechanism = changes.pop("mechanism", ("report_mechanism", "it's a test"))
    with open_rows(path, threads=threads) as rows:
        copy = replace(BASE, **changes)
        query = Query(values=(Number(copy.values[0], Lattice(0.0, 10.0, 100), missing),), trust=copy.trust, reads="all")
        told = Reporting(query=query, draw=randomise, reports=reports, mechanism=mechanism)
        (count,), _ = write_copy(rows, replace(copy, told=(told,)), out, chunk=chunk, overwrite=overwrite)
        assert rows.engine.connection.execute("SELECT count(*) FROM duckdb_tables()").fetchone() == (0,)
    return count


def read(path: Path) -> list[dict[str, str]]:
    opened = gzip.open if path.suffix == ".gz" else open
    with opened(path, "rt", newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file, delimiter="\t" if ".tsv" in path.name else ","))


@pytest.mark.parametrize("name", ["out.csv", "out.csv.gz", "out.tsv"])
def test_local_values_become_reports_and_the_rest_is_kept(tmp_path: Path, name: str) -> None:
    assert write(save(tmp_path), tmp_path / name, kept=("zip", "name")) == 2
    added = {"report": "", "report_mechanism": ""}
    sent = {"trust": "local", "salary": "", "report_mechanism": "it's a test"}
    assert read(tmp_path / name) == [
        {"salary": "1.50", "trust": "trusted", "zip": "007", "name": "a,b", **added},
        {**sent, "zip": "010", "name": 'say "hi"', "report": "3.125"},
        {**sent, "zip": "", "name": "é", "report": "12.5"},
    ]
    assert sorted(os.listdir(tmp_path)) == sorted(["in.csv", name])


def test_other_columns_are_left_out_unless_they_are_named(tmp_path: Path) -> None:
    """Beside a report they would stand there raw, and tell what the report hides."""
    write(save(tmp_path), tmp_path / "none.csv")
    assert (tmp_path / "none.csv").read_text().splitlines()[0] == "salary,trust,report,report_mechanism"
    write(save(tmp_path), tmp_path / "one.csv", kept=("name",))
    assert (tmp_path / "one.csv").read_text().splitlines()[0] == "salary,trust,name,report,report_mechanism"
    with pytest.raises(InvalidInput, match="`keep` must be a column"):
        write(save(tmp_path), tmp_path / "two.csv", kept=("nope",))


def test_everybody_is_local_without_a_trust_column(tmp_path: Path) -> None:
    assert write(save(tmp_path), tmp_path / "out.parquet", trust=None, kept=("zip",)) == 3
    found = duckdb.sql(f"SELECT salary, report, report_mechanism, zip FROM '{tmp_path}/out.parquet'").fetchall()
    text = "it's a test"
    assert found == [(None, 1.875, text, "007"), (None, 3.125, text, "010"), (None, 12.5, text, None)]


def test_the_order_of_many_rows_is_kept_and_each_row_gets_its_own_report(tmp_path: Path) -> None:
    count, seen = 300_000, []
    label = "CASE WHEN i % 3 = 0 THEN 'trusted' ELSE 'local' END AS trust"
    made = duckdb.sql(f"SELECT i AS serial, (i % 101) / 10.0 AS salary, {label} FROM range({count}) t(i)")
    made.write_parquet(str(tmp_path / "in.parquet"))

    def randomise(levels: NDArray[np.int64]) -> NDArray[np.float64]:
        seen.append(levels.size)
        return levels + 0.5

    options: dict[str, Any] = {"randomise": randomise, "kept": ("serial",), "chunk": 70_001, "threads": 2}
    assert write(tmp_path / "in.parquet", tmp_path / "out.csv", **options) == 200_000
    assert sum(seen) == 200_000
    assert len(seen) == 5
    for serial, row in enumerate(read(tmp_path / "out.csv")):
        assert row["serial"] == str(serial)
        level = min(serial % 101, 100)
        assert row["report"] == ("" if serial % 3 == 0 else f"{level + 0.5}")
        assert (row["salary"] == "") == (serial % 3 != 0)


def test_reports_survive_the_text_of_a_file(tmp_path: Path) -> None:
    sent = np.random.default_rng(3).normal(size=2)
    write(save(tmp_path), tmp_path / "out.csv", randomise=lambda levels: sent)
    assert [float(row["report"]) for row in read(tmp_path / "out.csv")[1:]] == sent.tolist()


def test_missing_values_and_people(tmp_path: Path) -> None:
    content = "salary,trust,who\n,local,a\nnan,local,b\n,trusted,c\nwords,trusted,c\n"
    path = save(tmp_path, content)
    assert write(path, tmp_path / "out.csv", missing=5, person="who") == 2
    assert [row["report"] for row in read(tmp_path / "out.csv")] == ["6.25", "6.25", "", ""]
    assert [row["salary"] for row in read(tmp_path / "out.csv")] == ["", "", "", "words"]


def test_an_empty_table_has_an_empty_copy(tmp_path: Path) -> None:
    assert write(save(tmp_path, "salary,trust\n"), tmp_path / "out.csv") == 0
    assert (tmp_path / "out.csv").read_text() == "salary,trust,report,report_mechanism\n"


@pytest.mark.parametrize(
    ("content", "changes", "sentence"),
    [
        (CSV + "1,other,,\n", {}, "Column `trust` must hold `trusted` or `local` in every row."),
        (CSV + "1,,,\n", {}, "Column `trust` must hold `trusted` or `local` in every row."),
        (CSV, {"person": "zip"}, "Column `zip` must name a person in every row."),
        (CSV.replace(",,é", ",010,é"), {"person": "zip"}, "Column `zip` must name each local person once"),
        ("salary,trust,who\n1,trusted,a\n2,local,a\n", {"person": "who"},
         "Column `trust` must hold one label for each person, not both."),
    ],
)  # fmt: skip
def test_unusable_rows_leave_no_copy(tmp_path: Path, content: str, changes: dict[str, Any], sentence: str) -> None:
    with pytest.raises(UnusableRows) as caught:
        write(save(tmp_path, content), tmp_path / "out.csv", **changes)
    assert str(caught.value).startswith(sentence)
    assert "secret" not in str(caught.value)
    assert os.listdir(tmp_path) == ["in.csv"]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"values": ("pay",)}, "`value` must be a column of in.csv"),
        ({"reports": ("ZIP",)}, "`report` must be a column that the table does not have yet"),
        ({"mechanism": ("name", "x")}, "`mechanism` must be a column that the table does not have yet"),
        ({"mechanism": ("report", "x")}, "`mechanism` must be a column that the table does not have yet"),
        ({"out": "out.duckdb"}, "`out` must end in"),
        ({"out": "none/out.csv"}, "`out` must be in a directory that exists"),
        ({"missing": 11}, "`missing` must lie between"),
        ({"chunk": 0}, "`chunk` must be at least 1"),
        ({"randomise": lambda levels: levels[:1] / 2}, "`randomise` must return one finite report for each row"),
        ({"randomise": lambda levels: levels * np.nan}, "`randomise` must return one finite report for each row"),
    ],
)
def test_parameters_are_checked(tmp_path: Path, changes: dict[str, Any], sentence: str) -> None:
    out = tmp_path / changes.get("out", "out.csv")
    with pytest.raises(InvalidInput) as caught:
        write(save(tmp_path), out, **{name: value for name, value in changes.items() if name != "out"})
    assert str(caught.value).startswith(sentence)
    assert os.listdir(tmp_path) == ["in.csv"]


def test_an_existing_file_is_only_replaced_on_request(tmp_path: Path) -> None:
    out = tmp_path / "out.csv"
    out.write_text("kept")
    with pytest.raises(InvalidInput, match="`out` must not exist yet"):
        write(save(tmp_path), out)
    assert out.read_text() == "kept"

    def fails(levels: NDArray[np.int64]) -> NDArray[np.float64]:
        raise RuntimeError("no entropy")

    with pytest.raises(RuntimeError, match="no entropy"):
        write(save(tmp_path), out, overwrite=True, randomise=fails)
    assert out.read_text() == "kept"
    assert write(save(tmp_path), out, overwrite=True) == 2
    assert len(read(out)) == 3


def test_any_column_name_can_be_used(tmp_path: Path) -> None:
    path = save(tmp_path, '"a""b; drop",trust\n8,local\n1,trusted\n')
    odd = {"values": ('a"b; drop',), "reports": ("it's",), "mechanism": ('m"', "it's a test")}
    write(path, tmp_path / "out.csv", **odd)
    sent, kept = read(tmp_path / "out.csv")
    assert sent == {'a"b; drop': "", "trust": "local", "it's": "10.0", 'm"': "it's a test"}
    assert kept == {'a"b; drop': "1", "trust": "trusted", "it's": "", 'm"': ""}
