"""Totals of vectors in SQL equal NumPy's, whatever the file; rows that break a rule are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest
from numpy.typing import NDArray

from hybridp.errors import UnusableRows
from hybridp.public.messages import VectorBounds
from hybridp.tables import Query, Report, add_up, open_rows

NAMES = ("a", "b", "c")
SIZE = 3_000
_draw = np.random.default_rng(8)
X = _draw.normal(0, 1, (SIZE, 3)) * [1.0, 30.0, 0.01] + [0.0, 100.0, 0.5]
TRUSTED = _draw.random(SIZE) < 0.4
GEOMETRIES = [(None, None), ("l2", 0.7), ("l1", 0.9), ("l1", 1.8), ("l2", 5.0)]


def bounds(norm: Any = None, radius: float | None = None) -> VectorBounds:
    return VectorBounds.of([-2, 0, 0.48], [2, 200, 0.52], norm=norm, radius=radius)


def column(values: NDArray[np.float64], keep: NDArray[np.bool_]) -> list[str]:
    return [repr(float(v)) if k else "" for v, k in zip(values, keep, strict=True)]


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The same rows as CSV, Parquet and DuckDB: everybody's values, and reports that are 10 j + i."""
    folder = tmp_path_factory.mktemp("vectors")
    everyone = np.ones(SIZE, dtype=bool)
    parts = [column(X[:, j], everyone) for j in range(3)]
    parts += [column(10.0 * j + np.arange(SIZE) % 7, ~TRUSTED & (np.arange(SIZE) % 3 == j)) for j in range(3)]
    labels = np.where(TRUSTED, "trusted", "local").tolist()
    lines = [",".join(row) for row in zip(*parts, labels, strict=True)]
    csv = folder / "rows.csv"
    csv.write_text("\n".join(["a,b,c,a_report,b_report,c_report,trust", *lines]) + "\n")
    found = {"csv": csv, "parquet": folder / "rows.parquet", "duckdb": folder / "rows.duckdb"}
    numbers = ", ".join(f"'{n}': 'DOUBLE'" for n in ("a", "b", "c", "a_report", "b_report", "c_report"))
    read = f"read_csv('{csv}', columns = {{{numbers}, 'trust': 'VARCHAR'}})"
    with duckdb.connect(str(found["duckdb"])) as db:
        db.execute(f"CREATE TABLE people AS FROM {read}")
        db.execute(f"COPY people TO '{found['parquet']}' (FORMAT parquet)")
    return found


REPORTS = tuple(Report(f"{name}_report", 10.0 * j, 2.0, 10.0 * j - 7, 10.0 * j + 7) for j, name in enumerate(NAMES))


def query(limits: VectorBounds, missing: Any = ("middle",) * 3, **other: Any) -> Query:
    return Query.on(limits, NAMES, "trust", missing, **{"reports": REPORTS, **other})


@pytest.mark.parametrize(("norm", "radius"), GEOMETRIES)
def test_totals_equal_numpy_s(files: dict[str, Path], norm: Any, radius: float | None) -> None:
    limits = bounds(norm, radius)
    with open_rows(files["parquet"]) as rows:
        found = add_up(rows, query(limits))
    exact = limits.steps(X[TRUSTED]).sum(axis=0)
    assert found.trusted == tuple(exact.tolist())
    assert (found.trusted_people, found.local_people) == (int(TRUSTED.sum()), int((~TRUSTED).sum()))
    for j in range(3):
        mine = ~TRUSTED & (np.arange(SIZE) % 3 == j)
        sent = (np.arange(SIZE) % 7)[mine] / 2
        assert found.local.counts[j] == mine.sum()
        assert found.local.totals[j] == pytest.approx(sent.sum())
        assert found.local.squares[j] == pytest.approx((sent**2).sum())


SECRET = "1.98765"
HEAD = "a,b,c,a_report,b_report,c_report,trust,id"
BAD = [
    (f"{SECRET},1,1,,,,,1", "Column `trust` must hold `trusted` or `local`"),
    (",,,1,,twenty,local,1", "Column `c_report` must hold numbers"),
    (",,,inf,,,local,1", "Column `a_report` must hold finite reports"),
    (f",,,{SECRET}e5,,,local,1", "Column `a_report` has a report that this mechanism cannot produce"),
    (",,,1,10,,local,1", "Columns `a_report` and following must hold 1 of 3 reports"),
    (",,,,,,local,1", "Columns `a_report` and following must hold 1 of 3 reports"),
    (",,,1,,,local,1\n,,,1,,,local,1", "Column `id` must name each local person once"),
    (f"{SECRET},1,1,,,,trusted,1\n,,,1,,,local,1", "Column `trust` must hold one label for each person"),
]


@pytest.mark.parametrize(("line", "sentence"), BAD)
def test_rows_that_break_a_rule_are_refused(line: str, sentence: str, tmp_path: Path) -> None:
    file = tmp_path / "bad.csv"
    file.write_text(f"{HEAD}\n{line}\n")
    with open_rows(file) as rows, pytest.raises(UnusableRows) as refusal:
        add_up(rows, query(bounds(), person="id"))
    assert str(refusal.value).startswith(sentence)
    assert SECRET not in str(refusal.value)


def test_missing_values_may_have_public_ones(tmp_path: Path) -> None:
    file = tmp_path / "gaps.csv"
    file.write_text(f"{HEAD}\n,,0.5,,,,trusted,1\n")
    with open_rows(file) as rows:
        found = add_up(rows, query(bounds(), missing=(0.0, 150.0, 0.5)))
    assert found.trusted == tuple(bounds().steps([[0.0, 150.0, 0.5]])[0].tolist())
