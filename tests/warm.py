"""Programs in processes of their own, that need not import everything first.

Importing numpy, SciPy, DuckDB and the package costs a Python process one to four seconds, and the tests start hundreds.
So each test process starts one interpreter that has imported them, and that forks for each program. The fork has its
own process id, folder, environment and streams, is killed and waited for like any other, and ends as an interpreter
does. What a fresh interpreter does (imports, start) is tested with `subprocess`.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import weakref
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import IO

COMMAND = "from hybridp.cli import main; main()"
SCRIPT = "import runpy, sys; del sys.argv[0]; runpy.run_path(sys.argv[0], run_name='__main__')"
PATIENCE = 600  # seconds: a limit for what will never come
_IMPORTED = (
    "scipy.optimize", "scipy.stats", "scipy.special", "duckdb", "pyarrow", "torch", "matplotlib.backends.backend_agg",
    "matplotlib.pyplot", "rich.console", "alembic.command",
    "fastapi", "uvicorn", "sqlalchemy.dialects.sqlite", "psycopg", "cryptography", "multipart", "pytest", "hypothesis",
    "sqlglot.dialects.duckdb", "sqlglot.dialects.postgres", "sqlglot.dialects.spark",
)  # fmt: skip
Stream = IO[str] | IO[bytes] | int


def unbuffered(**environment: str) -> dict[str, str]:
    """This process's environment and more, where what a program says is there with each line."""
    return {**os.environ, "PYTHONUNBUFFERED": "1", **environment}


class Process:
    """A running program. Its streams are files that the caller opened; None is the null device."""

    def __init__(
        self,
        code: str,
        *words: str,
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        stdin: Stream | None = None,
        stdout: Stream | None = None,
        stderr: Stream | None = None,
    ) -> None:
        self.returncode: int | None = None
        from tests import chance

        asked = {"code": code, "words": words, "cwd": str(cwd or Path.cwd()), "env": dict(env or os.environ),
                 "chance": chance.of_the_next_program()}  # fmt: skip
        self._answers, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, open(os.devnull, "r+b") as null:
            streams = [null if one is None else one for one in (stdin, stdout, stderr)]
            numbers = [one if isinstance(one, int) else one.fileno() for one in streams]
            socket.send_fds(_interpreter(), [json.dumps(asked).encode()], [*numbers, theirs.fileno()])
        self.pid = int(self._answers.recv(64))

    def poll(self) -> int | None:
        return self._ended(0.0)

    def wait(self, timeout: float = PATIENCE) -> int:
        found = self._ended(timeout)
        if found is None:
            raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        return found

    def _ended(self, timeout: float) -> int | None:
        if self.returncode is None:
            self._answers.settimeout(timeout)
            try:
                self.returncode = int(self._answers.recv(64))
            except (TimeoutError, BlockingIOError):
                return None
            self._answers.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)


def run(
    code: str,
    *words: str,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    typed: str = "",
    stdout: Stream | None = None,
    stderr: Stream | None = None,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end. What it writes is kept, but for a stream that is given."""
    with tempfile.TemporaryFile() as told, tempfile.TemporaryFile() as complained, tempfile.TemporaryFile() as said:
        said.write(typed.encode())
        said.seek(0)
        out, err = told if stdout is None else stdout, complained if stderr is None else stderr
        process = Process(code, *words, cwd=cwd, env=env, stdin=said, stdout=out, stderr=err)
        try:
            process.wait()
        finally:
            process.kill()
        told.seek(0)
        complained.seek(0)
        assert process.returncode is not None
        done = subprocess.CompletedProcess(
            words, process.returncode, told.read().decode(), complained.read().decode("utf-8", "backslashreplace")
        )
    if check:
        assert done.returncode == 0, done.stderr
    return done


@cache
def _interpreter() -> socket.socket:
    """The one that forks for this test process, and ends with it."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        started = subprocess.Popen(
            [sys.executable, __file__, str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )

    @atexit.register
    def end() -> None:
        ours.close()
        started.wait()

    return ours


# --- the interpreter that forks ---------------------------------------------------------------------------------------


def _import_everything() -> None:
    import pkgutil

    import hybridp

    own = [one.name for one in pkgutil.walk_packages(hybridp.__path__, "hybridp.") if "__main__" not in one.name]
    for name in (*_IMPORTED, *own):
        try:
            importlib.import_module(name)
        except ImportError:  # of an extra that is not installed: a program that needs it says so itself
            continue


def _next_program(control: socket.socket) -> str:
    """Fork for each program that is asked for, and say how it ended. Returns in the forks; ends with the asker."""
    _leave_nothing_to_the_forks()
    running: dict[int, tuple[int, int]] = {}  # what tells the end of a program -> its process id, where it is awaited
    waiting = select.poll()
    waiting.register(control, select.POLLIN)
    while True:
        for ready, _ in waiting.poll():
            if ready != control.fileno():
                waiting.unregister(ready)
                _tell_the_end(ready, *running.pop(ready))
                continue
            asked, streams, _, _ = socket.recv_fds(control, 1 << 20, 4)
            if not asked:
                os._exit(0)
            program = os.fork()
            if program == 0:
                control.close()
                for number, (_, answers) in running.items():
                    os.close(number)
                    os.close(answers)
                return _become(json.loads(asked), streams)
            for one in streams[:3]:
                os.close(one)
            os.write(streams[3], str(program).encode())
            running[ended := os.pidfd_open(program)] = (program, streams[3])
            waiting.register(ended, select.POLLIN)


def _tell_the_end(ended: int, program: int, answers: int) -> None:
    _, status = os.waitpid(program, 0)
    with contextlib.suppress(OSError):  # nobody waits any more
        os.write(answers, str(os.waitstatus_to_exitcode(status)).encode())
    os.close(answers)
    os.close(ended)


def _leave_nothing_to_the_forks() -> None:
    """What the imports made is neither searched for garbage nor taken down by each program: that would copy it all."""
    for one in list(weakref.finalize._registry):  # type: ignore[attr-defined]
        one.atexit = False
    gc.collect()
    gc.freeze()


def _become(asked: dict[str, object], streams: list[int]) -> str:
    for number, given in enumerate(streams[:3]):
        os.dup2(given, number)
    for given in streams:
        os.close(given)
    os.chdir(str(asked["cwd"]))
    environment, words, seed = asked["env"], asked["words"], asked["chance"]
    assert isinstance(environment, dict)
    assert isinstance(words, list)
    if seed is not None:
        sys.modules["chance"].play(seed)
    os.environ.clear()
    os.environ.update(environment)
    if environment.get("PYTHONUNBUFFERED"):
        sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    sys.argv = ["-c", *words]
    return str(asked["code"])


def _run_to_the_end(code: str) -> None:
    """As the interpreter would: what is raised, waiting threads, exit functions, the last flush; its objects stay."""
    sys.modules["__main__"] = main = ModuleType("__main__")
    status, stopped = 0, False
    try:
        exec(compile(code, "<string>", "exec"), main.__dict__)
    except SystemExit as left:
        if left.code is not None and not isinstance(left.code, int):
            sys.stderr.write(f"{left.code}\n")
        status = left.code if isinstance(left.code, int) else int(left.code is not None)
    except BaseException as error:
        sys.excepthook(type(error), error, error.__traceback__)
        status, stopped = 1, isinstance(error, KeyboardInterrupt)
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    try:
        sys.stdout.flush()
    except (OSError, ValueError) as error:
        if not sys.stdout.closed:
            os.write(2, f"Exception ignored in: {sys.stdout}\n{error!r}\n".encode())
            status = 120
    if stopped:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    os._exit(status & 0xFF)


if __name__ == "__main__":
    import chance  # noqa: F401, from this folder

    sys.path[0] = ""  # as for `python -c`
    _import_everything()
    _run_to_the_end(_next_program(socket.socket(fileno=int(sys.argv[1]))))
