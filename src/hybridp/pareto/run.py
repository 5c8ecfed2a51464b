"""Searching for the front: DPareto (Avent 2023, Algorithm 3.2), random search and grid search.

All three fill the slots of a store, so all are durable, resume, and can be shared by processes. A batch of q settings
is chosen one after the other, each believing the predictions for those before it, and evaluated in parallel
by joblib; `backend` is handed to joblib as it is ("loky", "threading", or "dask" and "ray" once registered).

>>> from hybridp.pareto import LogReal, Problem, Space
>>> problem = Problem("toy", Space({"b": LogReal(0.01, 100)}), lambda s: 1 / s["b"], lambda s, seed: 1 / (1 + s["b"]))
>>> found = random_search(problem, n=20, seed=1)
>>> len(found.evaluations), 0 < found.hypervolume
(20, True)

A run on disk is one SQLite file, every evaluation written as it ends. It has numbered slots. A process claims slots,
announces their settings, evaluates, and records; several processes share a run because claiming is one transaction.
Slots of a process that died are free again. A file that belongs to another problem is refused, by the problem's
fingerprint and by asking the privacy oracle again.

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
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Required, TypeAlias, TypedDict, Unpack, final

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.pareto.models import ACQUISITIONS, Models, believe, fit_models, next_setting
from hybridp.pareto.problem import Evaluation, Measure, Problem, hypervolume, pareto_indices
from hybridp.pareto.space import Real, Setting, Space
from hybridp.randomness import seeded, synthetic_data_generator

__all__ = ["Progress", "Run", "Store", "dpareto", "grid_search", "observed_hypervolume", "random_search"]

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
        """Evaluations that no other one dominates as observed; `decide.final_front` sees through the noise."""
        if not self.evaluations:
            return ()
        return tuple(self.evaluations[i] for i in pareto_indices(self.problem.points(self.evaluations)))


def observed_hypervolume(problem: Problem, evaluations: Sequence[Evaluation]) -> float:
    """The hypervolume below the anti-ideal point in (ln epsilon, error, ...), of the means as they were observed."""
    if not evaluations:
        return 0.0
    return hypervolume(problem.points(evaluations), problem.corner)


class Evaluating(TypedDict, total=False):
    """How settings are evaluated, whoever chooses them."""

    seed: Required[int]
    jobs: int
    """At so many settings at a time (1)."""
    backend: str
    """By these workers of joblib ("loky")."""
    store: Store | None
    """In this run, which goes on where it was; in memory without one."""
    progress: Progress | None


def dpareto(
    problem: Problem,
    *,
    init: int = 16,
    steps: int = 256,
    batch: int = 1,
    acquisition: str = "exact",
    handmade: bool = False,
    **how: Unpack[Evaluating],
) -> Run:
    """Algorithm 3.2: `init` settings spread over the space, then `steps` chosen by the acquisition function.

    The first settings are a scrambled Sobol sequence, or with `handmade` drawn by the problem's own laws.
    """
    made, seed = _How(**how), how["seed"]
    must(init >= 1, "init", "must be at least 1", init)
    must(steps >= 0, "steps", "must not be negative", steps)
    must(batch >= 1, "batch", "must be at least 1", batch)
    must(acquisition in ACQUISITIONS, "acquisition", f"must be one of {', '.join(ACQUISITIONS)}", acquisition)
    first = _drawn(problem, init, handmade, seed) if handmade else _spread(problem, init, seed)
    models: Models | None = None

    def choose(slots: Sequence[int], store: Store) -> list[Setting]:
        nonlocal models
        out: list[Setting] = [first[s] for s in slots if s < init]
        rest = [s for s in slots if s >= init]
        done = store.evaluations() if rest else []
        if rest and len(done) < _LEAST:
            return out + _drawn(problem, len(rest), handmade, seed, rest[0])
        if rest:
            waiting = [*store.pending(), *out]
            models = fit_models(problem, done, models, exact=acquisition == "exact")
            failed = store.evaluations(failed=True)
            for slot in rest:
                rng = _generator(seed, slot)
                seen = believe(problem, models, waiting)
                out.append(next_setting(problem, seen, done, failed, acquisition=acquisition, rng=rng))
                waiting.append(dict(out[-1]))
        return out

    def wave(claimed: int) -> int:
        # The first settings depend on nothing, so as many of them run at once as there are workers.
        return max(batch, made.jobs) if claimed < init else batch

    return _fill(problem, init + steps, choose, wave, made)


def random_search(problem: Problem, *, n: int, handmade: bool = False, **how: Unpack[Evaluating]) -> Run:
    """n independent settings: uniform, or by the problem's hand-made laws (Tables 3.2, 3.3)."""
    made = _How(**how)
    must(n >= 1, "n", "must be at least 1", n)
    return _listed(problem, _drawn(problem, n, handmade, made.seed), made)


def grid_search(problem: Problem, *, per_axis: int, **how: Unpack[Evaluating]) -> Run:
    """Every combination of `per_axis` levels of each knob."""
    return _listed(problem, problem.space.grid(per_axis), _How(**how))


# --- the engine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _How:
    """The same, checked."""

    seed: int
    jobs: int = 1
    backend: str = "loky"
    store: Store | None = None
    progress: Progress | None = None

    def __post_init__(self) -> None:
        whole = isinstance(self.seed, int) and self.seed >= 0
        must(whole, "seed", "must be a whole number that is not negative", self.seed)
        must(self.jobs >= 1, "jobs", "must be at least 1", self.jobs)
        if self.jobs > 1:  # refused before anything is evaluated
            _workers(self.jobs, self.backend)


def _spread(problem: Problem, n: int, seed: int) -> list[dict[str, Any]]:
    from scipy.stats import qmc

    sequence = qmc.Sobol(problem.space.dim, rng=_generator(seed))
    # Whole powers of two keep the sequence balanced; what is left over is not used.
    points = sequence.random_base2(max((n - 1).bit_length(), 0))
    return [problem.space.decode(row) for row in points[:n]]


def _drawn(problem: Problem, n: int, handmade: bool, *seed: int) -> list[Any]:
    must(not handmade or problem.laws is not None, "handmade", "must have laws, which this problem lacks", problem.name)
    return problem.space.sample(n, rng=_generator(*seed), laws=problem.laws if handmade else None)


def _listed(problem: Problem, settings: Sequence[Setting], how: _How) -> Run:
    return _fill(problem, len(settings), lambda slots, _: [settings[s] for s in slots], lambda _: how.jobs, how)


def _fill(
    problem: Problem,
    total: int,
    choose: Callable[[Sequence[int], Store], list[Setting]],
    wave: Callable[[int], int],
    how: _How,
) -> Run:
    if (store := how.store) is None:
        with Store.open(None, problem) as kept:
            return _fill(problem, total, choose, wave, replace(how, store=kept))
    claimed = len(store.evaluations()) + len(store.evaluations(failed=True))
    while slots := store.claim(total=total, count=wave(claimed)):
        try:
            settings = choose(slots, store)
            tasks = []
            for slot, setting in zip(slots, settings, strict=True):
                tasks.append((slot, setting, _seed(how.seed, slot)))
                store.announce(*tasks[-1])
            for slot, result in _evaluated(problem, tasks, how):
                store.record(slot, result)
                claimed += 1
                if how.progress is not None:
                    how.progress(claimed, total, observed_hypervolume(problem, store.evaluations()), result)
        finally:
            store.release(slots)
    return Run(problem, tuple(store.evaluations()), tuple(store.evaluations(failed=True)))


def _seed(*parts: int) -> int:
    """One seed of several, so that every slot has its own."""
    return int(np.random.SeedSequence(parts).generate_state(1)[0])


def _generator(*parts: int) -> np.random.Generator:
    return synthetic_data_generator(seeded(_seed(*parts)))


def _evaluated(
    problem: Problem, tasks: Sequence[tuple[int, Setting, int]], how: _How
) -> Iterator[tuple[int, Evaluation]]:
    """Each evaluation as it ends, in whatever order."""
    if how.jobs == 1 or len(tasks) == 1:
        for slot, setting, seed in tasks:
            yield slot, problem.evaluate(setting, seed)
        return
    from joblib import delayed

    yield from _workers(how.jobs, how.backend)(delayed(_one)(problem, *task) for task in tasks)


def _workers(jobs: int, backend: str) -> Any:
    """joblib's workers: its own, or those of a cluster that was connected beforehand."""
    from joblib import Parallel, parallel_config

    try:
        # Backends of other packages are found through the configuration, not through Parallel's own argument.
        with parallel_config(backend=backend, n_jobs=jobs):
            return Parallel(return_as="generator_unordered")
    except (ImportError, ValueError) as error:
        # joblib's sentence names the known backends, or says that no Dask client is connected.
        why = " ".join(str(error).split())
        raise InvalidInput(f"`backend` must be one that joblib can use here. Got {backend} ({why}).") from None


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
    def source(self) -> str | None:
        """Where its problem is, if the file says so."""
        return self._about().get("source")

    @property
    def problem(self) -> Problem:
        """What the file says of its problem: the same axes, and oracles that cannot be asked."""

        def closed(*_: Any) -> float:
            raise InvalidInput("`problem` must be given to evaluate anything new. Got only a run file.")

        said = json.loads(self._about()["declared"])
        space = Space({name: Real(0, 1) for name in said["knobs"]})
        first, *others = (Measure(**one) for one in said["measures"])
        return Problem(
            said["name"], space, closed, closed, tuple(said["anti_ideal"]), first, others={m.name: m for m in others},
            delta=said["delta"], private_data=said["private_data"],
        )  # fmt: skip

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
            raise InvalidInput(
                f"`store` must be of the problem {problem.name} as it is declared now."
                f" Got a run of {self.problem.name} with another declaration."
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
