"""Every `release` command on every engine: the same seed gives the same numbers, whoever holds the rows."""

from __future__ import annotations

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

import numpy as np
import pytest
from click.testing import CliRunner
from tests.engines.conftest import Columns, fill_postgres, need_spark, write_parquet
from tests.queries import number_query

from hybridp.cli.app import cli
from hybridp.tables import Source, add_up, open_rows
from tests import warm

PEOPLE = 2_000
PATIENCE = 600  # seconds: a limit for what will never come; beside other work Java takes its time


def _columns() -> Columns:
    rng = np.random.default_rng(11)
    trust = rng.choice(["trusted", "local"], PEOPLE, p=[0.4, 0.6])
    return {
        "person": ("VARCHAR", [f"p{i}" for i in rng.permutation(PEOPLE)]),
        "trust": ("VARCHAR", trust.tolist()),
        "value": ("DOUBLE", rng.normal(40, 10, PEOPLE).tolist()),
        "other": ("DOUBLE", rng.normal(0, 1, PEOPLE).tolist()),
        "own": ("DOUBLE", rng.choice([0.5, 1.0, 2.0], PEOPLE).tolist()),
        "query": ("VARCHAR", [f"q{int(q)}" for q in np.minimum(rng.geometric(0.4, PEOPLE), 9)]),
        "colour": ("VARCHAR", rng.choice(["red", "green"], PEOPLE).tolist()),
        "size": ("VARCHAR", rng.choice(["s", "m", "l"], PEOPLE).tolist()),
    }


COMMANDS = {
    "mean": "release mean {rows} --column value --trust trust "
    "--missing middle --lower 0 --upper 100 --epsilon 1 --simulate-local",
    "vector": "release vector-mean {rows} --column value other --trust trust "
    "--missing middle --lower 0 -3 --upper 100 3 --epsilon 2 "
    "--simulate-local",
    "shares": "release shares {rows} --column colour --options red,green "
    "--missing green --trust trust --epsilon 1 --simulate-local",
    "shares of people": "release shares {rows} --column size --options s,m,l "
    "--missing l --trust trust --epsilon 1 --person person "
    "--simulate-local",
    "histogram": "release histogram {rows} --column value --edges 0,30,40,90 "
    "--missing 40..90 --trust trust --epsilon 1 --simulate-local",
    "quantiles": "release quantiles {rows} --column value --trust trust "
    "--missing middle --lower 0 --upper 100 --epsilon 1 --at .5 "
    "--simulate-local",
    "heavy": "release heavy-hitters {rows} --person person --column query --trust trust --epsilon 4 --delta 1e-4 "
    "--head 5 --simulate-local",
    "kmeans": "release kmeans {rows} --column value other --trust trust "
    "--missing middle --lower 0 -3 --upper 100 3 --clusters 2 "
    "--epsilon 4 --simulate-local",
}


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, list[str]]:
    """The arguments that name the same rows on each engine."""
    file = tmp_path_factory.mktemp("rows") / "people.parquet"
    write_parquet(file, _columns())
    url = request.getfixturevalue("server")
    fill_postgres(url, "released", _columns())
    return {
        "duckdb": [str(file)],
        "postgresql": [url, "--table", "released"],
        "spark": [str(file), "--engine", "spark"],
    }


def run(line: str, rows: list[str]) -> Any:
    words = [part for word in line.split() for part in (rows if word == "{rows}" else [word])]
    found = CliRunner().invoke(cli, [*words, "--seed", "3", "--json"])
    assert found.exit_code == 0, found.output
    return json.loads(found.stdout)


@pytest.mark.parametrize("engine", ["postgresql", "spark"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_release_is_the_same_on_every_engine(places: dict[str, list[str]], command: str, engine: str) -> None:
    if engine == "spark":
        need_spark()
    expected, found = (run(COMMANDS[command], places[name]) for name in ("duckdb", engine))
    for document in (expected, found):
        document.pop("made", None)
    assert found == expected


BY_GROUP = {
    "public": f"{COMMANDS['mean']} --by size --public size --compare all --person person",
    "private": f"{COMMANDS['mean']} --by size --by-private --categories s,m,l --person person",
    "private shares": f"{COMMANDS['shares']} --by size --by-private --categories s,m",
}


@pytest.mark.parametrize("command", BY_GROUP)
def test_an_answer_by_group_is_the_same_in_a_database(places: dict[str, list[str]], command: str) -> None:
    expected, found = (run(BY_GROUP[command], places[name]) for name in ("duckdb", "postgresql"))
    for document in (expected, found):
        document.pop("made", None)
    assert found == expected


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
    words = COMMANDS["mean"].replace("{rows}", str(file)).split()
    plain, remote = (
        warm.run(warm.COMMAND, *words, "--seed", "3", "--json", *more) for more in ([], ["--engine", connect_server])
    )
    assert remote.returncode == 0, remote.stderr
    assert json.loads(remote.stdout) == json.loads(plain.stdout)
    missing = [*COMMANDS["mean"].replace("{rows}", connect_server).split(), "--table", "nowhere"]
    refused = warm.run(warm.COMMAND, *missing)
    assert refused.returncode == 2
    assert refused.stderr.strip() == (
        "hybridp: `table` must be a table that the cluster knows and this user may read. Got nowhere."
    )


def test_rows_on_another_engine_cannot_be_copied(places: dict[str, list[str]], tmp_path: Path) -> None:
    """Randomising is done to files, on the devices' side."""
    from hybridp.errors import InvalidInput
    from hybridp.tables.reports import Copy, write_reports

    location, _, table = places["postgresql"]
    copy = Copy(values=("value",), trust="trust")
    with open_rows(location, table=table) as rows, pytest.raises(InvalidInput, match="must be a file"):
        write_reports(rows, copy, tmp_path / "out.csv")
    query = number_query(value="value", trust="trust", lower=0.0, upper=100.0, local_raw=True, missing="middle")
    with open_rows(Source(location), table=table) as rows:
        assert add_up(rows, query).trusted_people > 0
