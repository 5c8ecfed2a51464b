"""A PostgreSQL server of one's own for as long as a test or a benchmark runs, in a folder that goes away with it."""

from __future__ import annotations

import contextlib
import glob
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from hybridp.errors import InvalidInput

__all__ = ["postgres", "server_binary"]


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
