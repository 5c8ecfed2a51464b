"""Searching for the front: DPareto (Avent 2023, Algorithm 3.2), random search and grid search.

All three fill the slots of a store, so all are durable, resume, and can be shared by processes. A batch of q settings
is chosen one after the other, each believing the predictions for those before it, and evaluated in parallel
by joblib, in processes or as `joblib.parallel_config` says.

>>> from hybridp.pareto import LogReal, Problem, Space
>>> problem = Problem("toy", Space({"b": LogReal(0.01, 100)}), lambda s: 1 / s["b"], lambda s, seed: 1 / (1 + s["b"]))
>>> found = random_search(problem, n=20, seed=1)
>>> len(found.evaluations), 0 < found.hypervolume
(20, True)

A run on disk is one SQLite file, every evaluation written as it ends. It has numbered slots. A process claims slots,
announces their settings, evaluates, and records; several processes share a run because claiming is one transaction.
Slots of a process that died are free again. A file that belongs to another problem is refused, by what the problem
declares and by asking the privacy oracle again.

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
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Required, TypeAlias, TypedDict, Unpack, final

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.pareto.models import Acquisition, Models, believe, fit_models, next_setting
from hybridp.pareto.problem import Evaluation, Measure, Problem, hypervolume, pareto_indices
from hybridp.pareto.space import Real, Setting, Space
from hybridp.randomness import seeded, synthetic_data_generator

__all__ = ["Progress", "Run", "Store", "dpareto", "generator", "grid_search", "observed_hypervolume", "random_search"]
__all__ += ["search"]

# Called after every evaluation with how many have ended, how many there will be, the hypervolume so far, and it.
Progress: TypeAlias = Callable[[int, int, float, Evaluation], None]
# Fewer successes than this are no data for a model: random settings are tried instead.
_LEAST = 3


@final
@dataclass(frozen=True)
class Run:
    """What a search left behind."""

    problem: Problem
    evaluations: tuple[Evaluation, ...]
    failures: tuple[Evaluation, ...] = ()

    @property
    def hypervolume(self) -> float:
        """Of the observed means; noise inflates it, so evaluate a front afresh before quoting it."""
        return observed_hypervolume(self.problem, self.evaluations)

    @property
    def front(self) -> tuple[Evaluation, ...]:
        """Evaluations that no other one dominates as observed; `final_front` sees through the noise."""
        return tuple(self.evaluations[i] for i in pareto_indices(self.problem.points(self.evaluations)))


def observed_hypervolume(problem: Problem, evaluations: Sequence[Evaluation]) -> float:
    """The hypervolume below the anti-ideal point in (ln epsilon, error, ...), of the means as they were observed."""
    return hypervolume(problem.points(evaluations), problem.corner)


class Evaluating(TypedDict, total=False):
    """How settings are evaluated, whoever chooses them."""

    seed: Required[int]
    jobs: int
    """At so many settings at a time (1)."""
    store: Store | None
    """In this run, which goes on where it was; in memory without one."""
    progress: Progress | None


def dpareto(
    problem: Problem,
    *,
    init: int | Sequence[Setting] = 16,
    steps: int = 256,
    batch: int = 1,
    acquisition: Acquisition | None = None,
    exact: bool = True,
    **how: Unpack[Evaluating],
) -> Run:
    """Algorithm 3.2: `init` settings spread over the space, or those given, then `steps` by the acquisition function.

    The spread is a scrambled Sobol sequence. Another acquisition than the expected gain may want ln(epsilon) modelled
    too (`exact=False`).
    """
    first = list(init) if not isinstance(init, int) else _spread(problem, init, how["seed"])
    must(len(first) >= 1, "init", "must be at least 1", len(first))
    must(steps >= 0, "steps", "must not be negative", steps)
    must(batch >= 1, "batch", "must be at least 1", batch)
    models: Models | None = None

    def choose(slots: Sequence[int], store: Store) -> list[Setting]:
        nonlocal models
        out: list[Setting] = [first[s] for s in slots if s < len(first)]
        rest = [s for s in slots if s >= len(first)]
        done = store.evaluations() if rest else []
        if rest and len(done) < _LEAST:
            return out + problem.space.sample(len(rest), rng=generator(how["seed"], rest[0]))
        if rest:
            waiting = [*store.pending(), *out]
            models = fit_models(problem, done, models, exact=exact)
            failed = store.evaluations(failed=True)
            for slot in rest:
                seen, rng = believe(problem, models, waiting), generator(how["seed"], slot)
                out.append(next_setting(problem, seen, done, failed, rng=rng, acquisition=acquisition))
                waiting.append(dict(out[-1]))
        return out

    # The first settings depend on nothing, so as many of them run at once as there are workers.
    wide = max(batch, how.get("jobs", 1))
    return _fill(problem, len(first) + steps, choose, lambda n: wide if n < len(first) else batch, **how)


def search(problem: Problem, settings: Sequence[Setting], **how: Unpack[Evaluating]) -> Run:
    """These settings."""
    must(len(settings) >= 1, "settings", "must be at least 1", len(settings))
    jobs = how.get("jobs", 1)
    return _fill(problem, len(settings), lambda slots, _: [settings[s] for s in slots], lambda _: jobs, **how)


def random_search(problem: Problem, *, n: int, **how: Unpack[Evaluating]) -> Run:
    """n independent settings, uniform in the space."""
    return search(problem, problem.space.sample(n, rng=generator(how["seed"])), **how)


def grid_search(problem: Problem, *, per_axis: int, **how: Unpack[Evaluating]) -> Run:
    """Every combination of `per_axis` levels of each knob."""
    return search(problem, problem.space.grid(per_axis), **how)


# --- the engine -------------------------------------------------------------------------------------------------------


def _spread(problem: Problem, n: int, seed: int) -> list[dict[str, Any]]:
    from scipy.stats import qmc

    must(n >= 1, "init", "must be at least 1", n)
    sequence = qmc.Sobol(problem.space.dim, rng=generator(seed))
    # Whole powers of two keep the sequence balanced; what is left over is not used.
    return [problem.space.decode(row) for row in sequence.random_base2((n - 1).bit_length())[:n]]


def _fill(
    problem: Problem,
    total: int,
    choose: Callable[[Sequence[int], Store], list[Setting]],
    wave: Callable[[int], int],
    *,
    seed: int,
    jobs: int = 1,
    store: Store | None = None,
    progress: Progress | None = None,
) -> Run:
    must(jobs >= 1, "jobs", "must be at least 1", jobs)
    with nullcontext(store) if store is not None else Store.open(None, problem) as kept:
        claimed = len(kept.evaluations()) + len(kept.evaluations(failed=True))
        while slots := kept.claim(total=total, count=wave(claimed)):
            try:
                tasks = [(slot, s, _seed(seed, slot)) for slot, s in zip(slots, choose(slots, kept), strict=True)]
                for task in tasks:
                    kept.announce(*task)
                for slot, result in _evaluated(problem, tasks, jobs):
                    kept.record(slot, result)
                    claimed += 1
                    if progress is not None:
                        progress(claimed, total, observed_hypervolume(problem, kept.evaluations()), result)
            finally:
                kept.release(slots)
        return Run(problem, tuple(kept.evaluations()), tuple(kept.evaluations(failed=True)))


def _seed(*parts: int) -> int:
    """One seed of several, so that every slot has its own."""
    must(all(isinstance(one, int) and one >= 0 for one in parts), "seed", "must be whole and not negative", parts[0])
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def generator(*parts: int) -> np.random.Generator:
    """What a search with this seed draws from, at this slot."""
    return synthetic_data_generator(seeded(_seed(*parts)))


def _evaluated(
    problem: Problem, tasks: Sequence[tuple[int, Setting, int]], jobs: int
) -> Iterable[tuple[int, Evaluation]]:
    """Each evaluation as it ends, in whatever order."""
    if min(jobs, len(tasks)) == 1:
        return (_one(problem, *task) for task in tasks)
    from joblib import Parallel, delayed

    workers = Parallel(n_jobs=jobs, return_as="generator_unordered")
    result: Iterable[tuple[int, Evaluation]] = workers(delayed(_one)(problem, *task) for task in tasks)
    return result


def _one(problem: Problem, slot: int, setting: Setting, seed: int) -> tuple[int, Evaluation]:
    return slot, problem.evaluate(setting, seed)


# --- the file ---------------------------------------------------------------------------------------------------------

_SCHEMA = """
CREATE TABLE IF NOT EXISTS about (key TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS evaluations (
  slot INTEGER PRIMARY KEY, owner TEXT NOT NULL, claimed REAL NOT NULL, setting TEXT, seed INTEGER,
  epsilon REAL, costs TEXT, runs TEXT, seconds REAL, failure TEXT, ended REAL);
"""
_RECORDED = ("setting", "seed", "epsilon", "costs", "runs", "seconds", "failure")
_FORMAT = "hybridp-pareto-2"
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
class Store:
    """An open run file: `with Store.open(...) as store`."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None) -> None:
        self._db, self.path = connection, path

    @classmethod
    @contextmanager
    def open(cls, path: str | Path | None, problem: Problem, *, source: str | None = None) -> Iterator[Store]:
        """The run of this problem, created where there is none; None keeps it in memory. Another's is refused."""
        file = None if path is None else Path(path)
        must(file is None or file.parent.is_dir(), "store", "must lie in an existing folder", file)
        with closing(_connect(":memory:" if file is None else str(file))) as db:
            store = cls(db, file)
            store._claim_file(problem, source)
            yield store

    @classmethod
    @contextmanager
    def read(cls, path: str | Path) -> Iterator[Store]:
        """An existing run, whatever its problem."""
        file = Path(path)
        must(file.is_file(), "store", "must be an existing run file", file)
        with closing(_connect(str(file))) as db:
            store = cls(db, file)
            store._about()
            yield store

    @property
    def source(self) -> str | None:
        """Where its problem is, if the file says so."""
        return self._about().get("source")

    @property
    def problem(self) -> Problem:
        """What the file says of its problem: the same axes, and oracles that cannot be asked."""

        def closed(*_: Any) -> float:
            raise InvalidInput("`problem` must be given to evaluate anything new. Got only a run file.")

        said = json.loads(self._about()["declared"])
        said |= {"space": Space({name: Real(0, 1) for name in said["space"]}), "anti_ideal": tuple(said["anti_ideal"])}
        said |= {"measure": Measure(**said["measure"])}
        said |= {"others": {name: Measure(**one) for name, one in said["others"].items()}}
        return Problem(**said, privacy=closed, utility=closed)

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
        costs, runs = json.dumps(found.values), json.dumps(found.runs)
        row = json.dumps(dict(found.setting)), found.seed, epsilon, costs, runs, found.seconds, found.failure
        fields = ", ".join(f"{name} = ?" for name in (*_RECORDED, "ended"))
        with self._writing() as db:
            db.execute(f"UPDATE evaluations SET {fields} WHERE slot = ? AND ended IS NULL", (*row, time.time(), slot))

    def release(self, slots: Sequence[int]) -> None:
        """Give back slots that were claimed and not evaluated."""
        with self._writing() as db:
            rows = [(s, _owner()) for s in slots]
            db.executemany("DELETE FROM evaluations WHERE slot = ? AND owner = ? AND ended IS NULL", rows)

    def evaluations(self, *, failed: bool = False) -> list[Evaluation]:
        """Those that ended well, by slot; with `failed`, those that did not."""
        kind = "IS NOT NULL" if failed else "IS NULL"
        rows = self._db.execute(
            f"SELECT {', '.join(_RECORDED)} FROM evaluations WHERE ended IS NOT NULL AND failure {kind} ORDER BY slot"
        )
        return [
            Evaluation(json.loads(setting), seed, math.nan if epsilon is None else epsilon, tuple(json.loads(costs)),
                       tuple(json.loads(runs)), *rest)
            for setting, seed, epsilon, costs, runs, *rest in rows
        ]  # fmt: skip

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
        mine = {"format": _FORMAT, "declared": json.dumps(problem.declared())}
        if source is not None:
            mine["source"] = source
        try:
            tables = {name for (name,) in self._db.execute("SELECT name FROM sqlite_master")}
        except sqlite3.DatabaseError:
            tables = {"unknown"}
        must(not tables or "about" in tables, "store", "must be a run file of this library", self.path)
        with self._writing() as db:
            for statement in filter(str.strip, _SCHEMA.split(";")):
                db.execute(statement)
            db.executemany("INSERT OR IGNORE INTO about VALUES (?, ?)", list(mine.items()))
        if self._about()["declared"] != mine["declared"]:
            raise InvalidInput(
                f"`store` must be of the problem {problem.name} as it is declared now."
                f" Got a run of {self.problem.name} with another declaration."
            )
        for old in self.evaluations()[:1]:
            same = math.isclose(problem.epsilon(old.setting), old.epsilon, rel_tol=1e-6)
            must(same, "store", "must be made by the same privacy oracle", "another epsilon for its first setting")


def _connect(name: str) -> sqlite3.Connection:
    try:
        return sqlite3.connect(name, timeout=_PATIENCE, isolation_level=None)
    except sqlite3.OperationalError:
        raise InvalidInput(f"`store` must be a file that can be opened. Got {name}.") from None
