"""Points of work: each is computed once, kept as one line of a file, and all of them share one pool of processes.

A run that was interrupted goes on where it stopped: a line is written when its point has ended, and a last line that
was cut off is no line. Rows hold errors against true answers, of public or made-up data: NOT PRIVATE.
"""

from __future__ import annotations

import gzip
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from hybridp import __version__

__all__ = ["Kept", "Point", "Row", "Run", "Shelf", "Task", "work"]

Point = dict[str, Any]
Row = dict[str, Any]
Run = Callable[[Point], list[Row]]


@dataclass(frozen=True)
class Task:
    """`run(point)`, to be kept in the file `path` under `key`. Tasks with the same place are the same work."""

    run: Run
    point: Point
    path: Path
    key: str

    @property
    def place(self) -> tuple[str, str]:
        return str(self.path), self.key


@dataclass(frozen=True)
class Kept:
    """The rows of a finished point, the CPU seconds that it took, when it ended, and the version that computed it."""

    rows: list[Row]
    seconds: float
    at: str
    version: str = __version__
    inputs: str = ""


@dataclass
class Shelf:
    """The finished points of a folder's files, each file read once.

    To go on computing, only points of this version and of the data at hand count. To judge what was computed, those of
    any version and data do: the data at hand first, and real ones before made-up ones.
    """

    files: dict[Path, dict[str, Kept]] = field(default_factory=dict)
    as_computed: bool = False
    points: dict[Path, dict[str, Kept]] = field(default_factory=dict)

    def get(self, task: Task) -> Kept | None:
        if task.path not in self.files:
            self.files[task.path] = _read(task.path)
        result = self.files[task.path].get(task.key)
        if not self.as_computed:
            return result if result is None or result.version == __version__ else None
        return result or self._by_point(task.path).get(json.dumps(task.point, sort_keys=True))

    def _by_point(self, path: Path) -> dict[str, Kept]:
        if path not in self.points:
            by_point: dict[str, Kept] = {}
            for key, kept in self.files[path].items():
                point = json.dumps(json.loads(key).get("point"), sort_keys=True)
                if point not in by_point or by_point[point].inputs.startswith("made-up"):
                    by_point[point] = kept
            self.points[path] = by_point
        return self.points[path]

    def keep(self, task: Task, found: Kept) -> None:
        """Write a finished point at once. Rows must be JSON: no NaN and no infinity."""
        known = {"key": task.key, "version": found.version, "seconds": found.seconds, "at": found.at}
        known |= {"rows": found.rows}
        line = json.dumps(known, allow_nan=False) + "\n"
        cut = task.path.exists() and task.path.stat().st_size and not _ends_whole(task.path)
        with task.path.open("a", encoding="utf-8") as file:
            file.write(f"\n{line}" if cut else line)
        self.files.setdefault(task.path, {})[task.key] = found


def _ends_whole(path: Path) -> bool:
    with path.open("rb") as file:
        file.seek(-1, os.SEEK_END)
        return file.read(1) == b"\n"


def _read(path: Path) -> dict[str, Kept]:
    """The lines of a file, or of its packed form `.jsonl.gz` (the committed results are packed)."""
    result: dict[str, Kept] = {}
    packed = path.with_suffix(".jsonl.gz")
    text = ""
    if path.exists():
        text = path.read_text(encoding="utf-8", errors="replace")
    elif packed.exists():
        text = gzip.decompress(packed.read_bytes()).decode("utf-8")
    if text:
        for line in text.splitlines():
            try:
                known = json.loads(line)
                seconds, version = float(known.get("seconds", 0.0)), str(known["version"])
                inputs = str(json.loads(known["key"]).get("inputs", ""))
                result[known["key"]] = Kept(known["rows"], seconds, known.get("at", ""), version, inputs)
            except (ValueError, KeyError, TypeError, AttributeError):
                continue
    return result


def work(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, Kept | Exception]]:
    """What each task gave, or why it gave nothing, as they end; with `jobs` above 1 in as many processes."""
    if jobs == 1 or len(tasks) < 2:
        for task in tasks:
            try:
                yield task, _timed(task.run, task.point)
            except Exception as error:
                yield task, error
        return
    left, alone = list(tasks), False
    while left:
        lost = set()
        for task, result in _pooled(left, 1 if alone else jobs):
            if result is None:
                lost.add(task.place)
            else:
                yield task, result
        left = [task for task in left if task.place in lost]
        if alone and left:  # one process takes tasks in turn: it died in the first that is left
            yield left.pop(0), ChildProcessError("the process that computed a point died")
            alone = False
        else:
            alone = True


def _pooled(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, Kept | Exception | None]]:
    """The tasks in a pool of processes. When a process dies, its pool gives up: None for whatever was not finished."""
    from concurrent.futures import BrokenExecutor, Future, ProcessPoolExecutor, as_completed
    from multiprocessing import get_context

    def result(future: Future[Kept]) -> Kept | Exception | None:
        try:
            return future.result()
        except BrokenExecutor:
            return None
        except Exception as error:
            return error

    with _one_thread_each(), ProcessPoolExecutor(min(jobs, len(tasks)), mp_context=get_context("spawn")) as pool:
        asked: dict[Future[Kept], Task] = {}
        refused: list[Task] = []
        for task in tasks:
            try:
                asked[pool.submit(_timed, task.run, task.point)] = task
            except BrokenExecutor:
                refused.append(task)
        try:
            for future in as_completed(asked):
                yield asked[future], result(future)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        for task in refused:
            yield task, None


def _timed(run: Run, point: Point) -> Kept:
    began = time.process_time()
    rows = run(point)
    return Kept(rows, round(time.process_time() - began, 4), datetime.now(UTC).isoformat(timespec="seconds"))


@contextmanager
def _one_thread_each() -> Iterator[None]:
    """Processes share the cores already: threads of their own would only get in each other's way."""
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(dict.fromkeys(names, "1"))
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
