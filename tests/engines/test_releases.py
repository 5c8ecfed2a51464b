"""Every question on every engine: the same seed gives the same release, whoever holds the rows."""

from __future__ import annotations

import functools
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.engines.conftest import Columns, fill_postgres, need_spark, write_parquet
from tests.queries import number_query
from tests.questions import TASKS, crowd, declare

from hybridp.randomness import seeded
from hybridp.tables import Source, add_up, open_rows
from tests import warm

PATIENCE = 600  # seconds: a limit for what will never come; beside other work Java takes its time


PLACES = {"duckdb": {}, "postgresql": {"table": "released"}, "spark": {}}


@functools.cache
def _columns() -> Columns:
    types = {"i": "BIGINT", "f": "DOUBLE"}
    return {name: (types.get(column.dtype.kind, "VARCHAR"), column.tolist()) for name, column in crowd().items()}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Source]:
    """The same rows on each engine."""
    file = tmp_path_factory.mktemp("rows") / "people.parquet"
    write_parquet(file, _columns())
    url = request.getfixturevalue("server")
    fill_postgres(url, "released", _columns())
    return {"duckdb": Source(file), "postgresql": Source(url), "spark": Source(file, "spark")}


def _released(task: str, places: dict[str, Source], engine: str) -> Any:
    study = declare(task, people={"public": ["trust", "own", "town"], "column": "id" if task == "records" else None})
    found = study.release(places[engine], **PLACES[engine], simulate_local=True, rng=seeded(3)).to_dict()
    found.pop("made", None)
    return found


ASKED = [task for task in TASKS if task not in ("own epsilons", "ticks", "table")]  # whose devices need files, or order
ON_SPARK = ("mean", "choice", "vector", "records", "points")


@pytest.mark.parametrize(
    ("task", "engine"), [*((task, "postgresql") for task in ASKED), *((task, "spark") for task in ON_SPARK)]
)
def test_a_release_is_the_same_on_every_engine(places: dict[str, Source], task: str, engine: str) -> None:
    if engine == "spark":
        need_spark()
    assert _released(task, places, engine) == _released(task, places, "duckdb")


# --- Spark Connect ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def connect_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of a real Spark Connect server on this machine."""
    need_spark()
    import pyspark

    home = os.path.dirname(pyspark.__file__)
    folder = tmp_path_factory.mktemp("connect")
    settings = {
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.driver.memory": "1g",
    }
    command = [os.path.join(home, "bin", "spark-submit"), "--master", "local[2]"]
    for key, value in settings.items():
        command += ["--conf", f"{key}={value}"]
    command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
    environment = {**os.environ, "SPARK_HOME": home, "PYSPARK_PYTHON": sys.executable}
    with (folder / "log").open("w") as log:
        server = subprocess.Popen(command, env=environment, stdout=log, stderr=log, cwd=folder, start_new_session=True)
    try:
        until, port = time.monotonic() + PATIENCE, None
        while port is None:
            log_text = (folder / "log").read_text()
            assert server.poll() is None and time.monotonic() < until, log_text  # noqa: PT018
            port = re.search(r"Spark Connect server started at: \S*:(\d+)", log_text)
            time.sleep(0.2)
        yield f"sc://127.0.0.1:{port[1]}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def test_a_cluster_through_spark_connect(connect_server: str, tmp_path: Path) -> None:
    """In a process of its own: one that has started a local Spark cannot be a client as well."""
    file = tmp_path / "people.parquet"
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


def test_rows_on_another_engine_cannot_be_copied(places: dict[str, Source], tmp_path: Path) -> None:
    """Randomising is done to files, on the devices' side."""
    from hybridp.errors import InvalidInput
    from hybridp.tables.reports import Copy, write_reports

    location, table = places["postgresql"], "released"
    copy = Copy(values=("pay",), trust="trust")
    with open_rows(location, table=table) as rows, pytest.raises(InvalidInput, match="must be a file"):
        write_reports(rows, copy, tmp_path / "out.csv")
    query = number_query(value="pay", trust="trust", lower=0.0, upper=100.0, local_raw=True, missing="middle")
    with open_rows(location, table=table) as rows:
        assert add_up(rows, query).trusted_people > 0
