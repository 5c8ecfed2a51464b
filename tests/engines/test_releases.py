"""Every question on every engine: the same seed gives the same release, whoever holds the rows."""

from __future__ import annotations

import functools
import json
from pathlib import Path
from typing import Any

import pytest
from tests.engines.conftest import Columns, fill_postgres, source_of, spark, write_parquet
from tests.queries import number_query
from tests.questions import OWN, TASKS, crowd, declare

from hybridp.noise import seeded
from hybridp.tables import add_up, open_rows
from tests import warm

PLACES = {"duckdb": {}, "postgresql": {"table": "released"}, "spark": {}}


@functools.cache
def _columns() -> Columns:
    types = {"i": "BIGINT", "f": "DOUBLE"}
    return {name: (types.get(column.dtype.kind, "VARCHAR"), column.tolist()) for name, column in crowd().items()}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, str]:
    """The same rows on each engine."""
    file = tmp_path_factory.mktemp("rows") / "people.parquet"
    write_parquet(file, _columns())
    url = request.getfixturevalue("server")
    fill_postgres(url, "released", _columns())
    return {"duckdb": str(file), "postgresql": url, "spark": str(file)}


def _released(task: str, places: dict[str, str], engine: str) -> Any:
    study = declare(task, people={"public": ["trust", "own", "town"], "column": "id" if task == "records" else None})
    source = source_of(engine, places[engine])
    found = study.release(source, **PLACES[engine], simulate_local=True, rng=seeded(3)).to_dict()
    found.pop("made", None)
    return found


ASKED = [task for task in TASKS if task not in (*OWN, "ticks", "table")]  # whose devices need files, or order
ON_SPARK = ("mean", "choice", "vector", "records", "points")


@pytest.mark.parametrize(
    ("task", "engine"), [*((task, "postgresql") for task in ASKED), *((task, "spark") for task in ON_SPARK)]
)
def test_a_release_is_the_same_on_every_engine(places: dict[str, str], task: str, engine: str) -> None:
    assert _released(task, places, engine) == _released(task, places, "duckdb")


def test_a_cluster_through_spark_connect(tmp_path: Path) -> None:
    file, connect_server = tmp_path / "people.parquet", spark()
    write_parquet(file, _columns())
    mean = "release mean {rows} --column pay --trust trust --missing middle --lower 0 --upper 100 --epsilon 1"
    words = [*mean.format(rows=file).split(), "--simulate-local"]
    plain, remote = (
        warm.run(warm.COMMAND, *words, "--seed", "3", "--json", *more) for more in ([], ["--engine", connect_server])
    )
    assert remote.returncode == 0, remote.stderr
    assert json.loads(remote.stdout) == json.loads(plain.stdout)
    missing = [*mean.format(rows=connect_server).split(), "--table", "nowhere"]
    refused = warm.run(warm.COMMAND, *missing)
    assert refused.returncode == 2
    assert refused.stderr.strip() == (
        "hybridp: `table` must be a table that the cluster knows and this user may read. Got nowhere."
    )


def test_rows_on_another_engine_cannot_be_copied(places: dict[str, str], tmp_path: Path) -> None:
    """Randomising is done to files, on the devices' side."""
    from hybridp.device.files import Copy, write_copy
    from hybridp.errors import InvalidInput

    location, table = places["postgresql"], "released"
    copy = Copy(values=("pay",), trust="trust")
    with open_rows(location, table=table) as rows, pytest.raises(InvalidInput, match="must be a file"):
        write_copy(rows, copy, tmp_path / "out.csv")
    query = number_query(value="pay", trust="trust", lower=0.0, upper=100.0, local_raw=True, missing="middle")
    with open_rows(location, table=table) as rows:
        assert add_up(rows, query).trusted_people > 0
