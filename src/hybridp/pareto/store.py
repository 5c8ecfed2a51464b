"""A run on disk: one SQLite file, every evaluation written as it ends.

A run has numbered slots. A process claims slots, announces their settings, evaluates, and records; several
processes share a run because claiming is one transaction. Slots of a process that died are free again. A file
that belongs to another problem is refused, by the problem's fingerprint and by asking the privacy oracle again.

>>> from hybridp.pareto import LogReal, Problem, Space
>>> problem = Problem("toy", Space({"b": LogReal(0.01, 100)}), lambda s: 1 / s["b"], lambda s, seed: 0.5)
>>> with Store.open(None, problem) as store:
...     slot, = store.claim(total=3, count=1)
...     store.record(slot, problem.evaluate({"b": 1.0}, seed=0))
...     [e.epsilon for e in store.evaluations()]
[1.0]
"""

from __future__ import annotations

import json
import math
import os
import socket
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any, final

from hybridp.errors import InvalidInput, must
from hybridp.pareto.problem import Evaluation, Measure, Problem
from hybridp.pareto.space import Setting

__all__ = ["Declared", "Store"]

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS evaluations (
  slot INTEGER PRIMARY KEY, owner TEXT NOT NULL, claimed REAL NOT NULL, setting TEXT, seed INTEGER,
  epsilon REAL, costs TEXT, runs TEXT, seconds REAL, failure TEXT, ended REAL);
"""
_FORMAT = "hybridp-pareto-1"
# A claim by a process of another machine, which cannot be asked whether it lives, lapses after a day.
_LAPSE = 86_400.0
# Seconds to wait for another process that is writing.
_PATIENCE = 60.0


def _owner() -> str:
    return f"{socket.gethostname()}:{os.getpid()}"


def _dead(owner: str, claimed: float) -> bool:
    host, _, pid = owner.rpartition(":")
    if host != socket.gethostname():
        return time.time() - claimed > _LAPSE
    try:
        os.kill(int(pid), 0)
    except ProcessLookupError:
        return True
    except PermissionError:
        return False
    return False


@final
class Declared:
    """What a file says about its problem, for reading a run without the problem's code."""

    def __init__(self, about: dict[str, str]) -> None:
        found = json.loads(about["declared"])
        self.name: str = found["name"]
        self.anti_ideal: tuple[float, ...] = tuple(found["anti_ideal"])
        self.measures: tuple[Measure, ...] = tuple(Measure(**m) for m in found["measures"])
        self.knobs: tuple[str, ...] = tuple(found["knobs"])
        self.delta: float = found["delta"]
        self.private_data: bool = found["private_data"]
        self.fingerprint: str = about["fingerprint"]
        self.source: str | None = about.get("source")

    def reading(self) -> Problem:
        """A problem with these axes whose oracles cannot be asked."""
        from hybridp.pareto.space import Real, Space

        def closed(*_: Any) -> float:
            raise InvalidInput("`problem` must be given to evaluate anything new. Got only a run file.")

        others = {m.name: m for m in self.measures[1:]}
        space = Space({name: Real(0, 1) for name in self.knobs})
        return Problem(
            self.name, space, closed, closed, self.anti_ideal, self.measures[0], others=others, delta=self.delta,
            private_data=self.private_data,
        )  # fmt: skip


@final
class Store:
    """An open run file; use `Store.open` and `with`."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        self._db, self.path = connection, path

    @classmethod
    def open(cls, path: str | Path | None, problem: Problem, *, source: str | None = None) -> Store:
        """The run of this problem, created where there is none; None keeps it in memory. Another's is refused."""
        file = None if path is None else Path(path)
        must(file is None or file.parent.is_dir(), "store", "must lie in an existing folder", file)
        return cls._checked(file, lambda store: store._claim_file(problem, source))

    @classmethod
    def read(cls, path: str | Path) -> Store:
        """An existing run, whatever its problem."""
        file = Path(path)
        must(file.is_file(), "store", "must be an existing run file", file)
        return cls._checked(file, cls._about)

    @classmethod
    def _checked(cls, file: Path | None, check: Callable[[Store], object]) -> Store:
        store = cls(_connect(":memory:" if file is None else str(file)), file)
        try:
            check(store)
        except BaseException:
            store.close()
            raise
        return store

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._db.close()

    @property
    def declared(self) -> Declared:
        return Declared(self._about())

    # --- slots --------------------------------------------------------------------------------------------------------

    def claim(self, *, total: int, count: int) -> list[int]:
        """Up to `count` of the slots 0 .. total - 1 that nobody has, lowest first; an empty list ends the run."""
        with self._writing() as db:
            for slot, owner, claimed in db.execute("SELECT slot, owner, claimed FROM evaluations WHERE ended IS NULL"):
                if _dead(owner, claimed):
                    db.execute("DELETE FROM evaluations WHERE slot = ?", (slot,))
            taken = {row[0] for row in db.execute("SELECT slot FROM evaluations")}
            free = [slot for slot in range(total) if slot not in taken][:count]
            mine = [(slot, _owner(), time.time()) for slot in free]
            db.executemany("INSERT INTO evaluations (slot, owner, claimed) VALUES (?, ?, ?)", mine)
        return free

    def announce(self, slot: int, setting: Setting, seed: int) -> None:
        """Say what a claimed slot is about to try, so that others sharing the run try something else."""
        with self._writing() as db:
            db.execute("UPDATE evaluations SET setting = ?, seed = ? WHERE slot = ?", (json.dumps(setting), seed, slot))

    def record(self, slot: int, found: Evaluation) -> None:
        """Write an evaluation, failed or not; a slot that was written already keeps its first result."""
        epsilon = found.epsilon if math.isfinite(found.epsilon) else None
        row = (
            json.dumps(dict(found.setting)), found.seed, epsilon, json.dumps(found.values), json.dumps(found.runs),
            found.seconds, found.failure, time.time(), slot,
        )  # fmt: skip
        with self._writing() as db:
            db.execute(
                "UPDATE evaluations SET setting = ?, seed = ?, epsilon = ?, costs = ?, runs = ?, seconds = ?,"
                " failure = ?, ended = ? WHERE slot = ? AND ended IS NULL",
                row,
            )

    def release(self, slots: Sequence[int]) -> None:
        """Give back slots that were claimed and not evaluated."""
        with self._writing() as db:
            rows = [(s, _owner()) for s in slots]
            db.executemany("DELETE FROM evaluations WHERE slot = ? AND owner = ? AND ended IS NULL", rows)

    def evaluations(self, *, failed: bool = False) -> list[Evaluation]:
        """Those that ended well, by slot; with `failed`, those that did not."""
        kind = "IS NOT NULL" if failed else "IS NULL"
        rows = self._db.execute(
            "SELECT setting, seed, epsilon, costs, runs, seconds, failure FROM evaluations"
            f" WHERE ended IS NOT NULL AND failure {kind} ORDER BY slot"
        )
        return [
            Evaluation(
                json.loads(setting),
                seed,
                math.nan if epsilon is None else epsilon,
                tuple(json.loads(costs)),
                tuple(json.loads(runs)),
                seconds,
                failure,
            )
            for setting, seed, epsilon, costs, runs, seconds, failure in rows
        ]

    def pending(self) -> list[dict[str, Any]]:
        """Settings being evaluated somewhere now."""
        rows = self._db.execute("SELECT setting FROM evaluations WHERE ended IS NULL AND setting IS NOT NULL")
        return [json.loads(row[0]) for row in rows]

    # --- the file -----------------------------------------------------------------------------------------------------

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield self._db
        except BaseException:
            self._db.execute("ROLLBACK")
            raise
        self._db.execute("COMMIT")

    def _about(self) -> dict[str, str]:
        try:
            about = dict(self._db.execute("SELECT key, value FROM about").fetchall())
        except sqlite3.DatabaseError:
            about = {}
        must(about.get("format") == _FORMAT, "store", "must be a run file of this library", self.path)
        return about

    def _claim_file(self, problem: Problem, source: str | None) -> None:
        declared = {
            "name": problem.name,
            "anti_ideal": problem.anti_ideal,
            "measures": [asdict(m) for m in problem.measures],
            "knobs": problem.space.names,
            "delta": problem.delta,
            "private_data": problem.private_data,
        }
        mine = {"format": _FORMAT, "fingerprint": problem.fingerprint(), "declared": json.dumps(declared)}
        if source is not None:
            mine["source"] = source
        try:
            foreign = self._db.execute("SELECT count(*) FROM sqlite_master WHERE name = 'about'").fetchone()[0] == 0
            empty = self._db.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
        except sqlite3.DatabaseError:
            foreign, empty = True, False
        must(empty or not foreign, "store", "must be a run file of this library", self.path)
        with self._writing() as db:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                db.execute(statement)
            db.executemany("INSERT OR IGNORE INTO about VALUES (?, ?)", list(mine.items()))
        theirs = self._about()
        if theirs["fingerprint"] != mine["fingerprint"]:
            other = Declared(theirs).name
            raise InvalidInput(
                f"`store` must be of the problem {problem.name} as it is declared now."
                f" Got a run of {other} with another declaration."
            )
        for old in self.evaluations()[:1]:
            same = math.isclose(problem.epsilon(old.setting), old.epsilon, rel_tol=1e-6)
            must(
                same, "store", "must have been made by the same privacy oracle", "another epsilon for its first setting"
            )


def _connect(name: str) -> sqlite3.Connection:
    try:
        return sqlite3.connect(name, timeout=_PATIENCE, isolation_level=None)
    except sqlite3.OperationalError:
        raise InvalidInput(f"`store` must be a file that can be opened. Got {name}.") from None
