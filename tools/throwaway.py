"""A server of one's own, PostgreSQL or Spark, for as long as a test or a benchmark runs, in a folder that goes away."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from hybridp.errors import InvalidInput

__all__ = ["postgres", "server_binary", "spark"]

PATIENCE = 600  # seconds: a limit for what will never come; beside other work Java takes its time


def server_binary(name: str = "initdb") -> Path | None:
    """A server program of PostgreSQL, from the path or from where Debian puts it; None where none is installed."""
    result = shutil.which(name)
    if result is not None:
        return Path(result)
    every = sorted(glob.glob(f"/usr/lib/postgresql/*/bin/{name}"))
    return Path(every[-1]) if every else None


@contextlib.contextmanager
def postgres(*, durable: bool = True) -> Iterator[str]:
    """The URL of a fresh server on a local socket. Root runs it as the user `postgres`.

    Not durable: quicker, and safe from everything but a crash of the machine itself.
    """
    initdb = server_binary()
    if initdb is None:
        raise InvalidInput("`postgres` must be installed for a throwaway server. Got no initdb.")
    folder = Path(tempfile.mkdtemp(prefix="hpg"))
    user: str | None = None
    if os.geteuid() == 0:
        try:
            owner = pwd.getpwnam("postgres")
        except KeyError:
            raise InvalidInput("`postgres` must have its own user to be started by root. Got none.") from None
        os.chown(folder, owner.pw_uid, owner.pw_gid)
        user = "postgres"
    data = folder / "data"
    quiet = {"check": True, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder, "user": user}

    def call(*arguments: str) -> None:
        subprocess.run(arguments, **quiet)  # type: ignore[call-overload]

    control = str(initdb.with_name("pg_ctl"))
    try:
        call(str(initdb), "-D", str(data), "-A", "trust", "-U", "hybridp", "--no-sync", "-E", "UTF8", "--locale=C")
        options = f"-c listen_addresses='' -c unix_socket_directories='{folder}' -c max_connections=200"
        if not durable:
            options += " -c fsync=off -c full_page_writes=off"
        call(control, "-D", str(data), "-w", "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql+psycopg://hybridp@/postgres?host={folder}"
        finally:
            call(control, "-D", str(data), "-m", "immediate", "stop")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextlib.contextmanager
def spark(threads: int = 2) -> Iterator[str]:
    """The URL of a real Spark Connect server on this machine."""
    import pyspark

    home, folder = os.path.dirname(pyspark.__file__), Path(tempfile.mkdtemp(prefix="hspark"))
    settings = {
        "spark.ui.enabled": "false",
        "spark.connect.grpc.binding.port": "0",
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.local.dir": str(folder),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": str(4 * threads),
        "spark.driver.memory": "1g",
    }
    command = [os.path.join(home, "bin", "spark-submit"), "--master", f"local[{threads}]"]
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
        shutil.rmtree(folder, ignore_errors=True)
