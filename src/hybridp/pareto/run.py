"""Searching for the front: DPareto (Avent 2023, Algorithm 3.2), random search, and settings that are given.

All three fill the slots of a store, so all are durable, and resume. A batch of q settings
is chosen one after the other, each believing the predictions for those before it, and evaluated in parallel
by joblib, in processes or as `joblib.parallel_config` says.

>>> from hybridp.pareto import LogReal, Problem, Space
>>> problem = Problem("toy", Space({"b": LogReal(0.01, 100)}), lambda s: 1 / s["b"], lambda s, seed: 1 / (1 + s["b"]))
>>> found = random_search(problem, n=20, seed=1)
>>> len(found.evaluations), 0 < found.hypervolume
(20, True)

A run on disk is a file of JSON lines: what the problem declares, then every evaluation, written as it ends, in its
numbered slot. A file that belongs to another problem is refused, by what the problem declares and by asking the privacy
oracle again.

>>> store = Store.open(None, problem)
>>> store.record(0, problem.evaluate({"b": 1.0}, seed=0))
>>> [e.epsilon for e in store.evaluations()]
[1.0]
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Required, TypeAlias, TypedDict, Unpack, final

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.pareto.models import Choose, by_gain
from hybridp.pareto.problem import Evaluation, Measure, Problem, Real, Setting, Space, hypervolume, pareto_indices
from hybridp.public.envelope import write_new

__all__ = ["Progress", "Run", "Store", "dpareto", "generator", "observed_hypervolume", "random_search", "search"]

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
    problem: Problem, *, init: int | Sequence[Setting] = 16, steps: int = 256, batch: int = 1,
    chooser: Callable[[Problem], Choose] = by_gain, **how: Unpack[Evaluating],
) -> Run:  # fmt: skip
    """Algorithm 3.2: `init` settings spread over the space, or those given, then `steps` by models of the answers.

    The spread is a scrambled Sobol sequence.
    """
    first = list(init) if not isinstance(init, int) else _spread(problem, init, how["seed"])
    must(len(first) >= 1, "init", "must be at least 1", len(first))
    must(steps >= 0, "steps", "must not be negative", steps)
    must(batch >= 1, "batch", "must be at least 1", batch)
    chosen = chooser(problem)

    def choose(slots: Sequence[int], store: Store) -> list[Setting]:
        out: list[Setting] = [first[s] for s in slots if s < len(first)]
        rest = [s for s in slots if s >= len(first)]
        done, failed = store.evaluations(), store.evaluations(failed=True)
        if len(done) < _LEAST:
            return out + problem.space.sample(len(rest), rng=generator(how["seed"], *rest[:1]))
        for slot in rest:
            out.append(chosen(done, failed, out, generator(how["seed"], slot)))
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


# --- the engine -------------------------------------------------------------------------------------------------------


def _spread(problem: Problem, n: int, seed: int) -> list[dict[str, Any]]:
    from scipy.stats import qmc

    must(n >= 1, "init", "must be at least 1", n)
    sequence = qmc.Sobol(problem.space.dim, rng=generator(seed))
    # Whole powers of two keep the sequence balanced; what is left over is not used.
    return [problem.space.decode(row) for row in sequence.random_base2((n - 1).bit_length())[:n]]


def _fill(
    problem: Problem, total: int, choose: Callable[[Sequence[int], Store], list[Setting]], wave: Callable[[int], int],
    *, seed: int, jobs: int = 1, store: Store | None = None, progress: Progress | None = None,
) -> Run:  # fmt: skip
    must(jobs >= 1, "jobs", "must be at least 1", jobs)
    kept = Store.open(None, problem) if store is None else store
    while slots := kept.free(total)[: wave(len(kept))]:
        tasks = [(slot, s, _seed(seed, slot)) for slot, s in zip(slots, choose(slots, kept), strict=True)]
        for slot, result in _evaluated(problem, tasks, jobs):
            kept.record(slot, result)
            if progress is not None:
                progress(len(kept), total, observed_hypervolume(problem, kept.evaluations()), result)
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

_FORMAT = "hybridp-pareto-3"


@final
class Store:
    """A run of a problem, in a file or in memory: evaluations by slot, each of which somebody may have paid for."""

    def __init__(self, path: Path | None, about: dict[str, Any]) -> None:
        self.path, self._about = path, about
        self.source: str | None = about["source"]
        """Where its problem is, if the file says so."""
        self._kept: list[tuple[int, Evaluation]] = []

    @classmethod
    def open(cls, path: str | Path | None, problem: Problem, *, source: str | None = None) -> Store:
        """The run of this problem, created where there is none; None keeps it in memory. Another's is refused."""
        mine = json.dumps({"format": _FORMAT, "declared": problem.declared(), "source": source})
        if path is None:
            return cls(None, json.loads(mine))
        file = Path(path)
        must(file.parent.is_dir(), "store", "must lie in an existing folder", file)
        if not file.exists():
            write_new(file, f"{mine}\n")
        store = cls.read(file)
        same, other = store._about["declared"] == json.loads(mine)["declared"], store.problem.name
        rule = f"must be of the problem {problem.name} as it is declared now"
        must(same, "store", rule, f"a run of {other} with another declaration")
        for old in store.evaluations()[:1]:
            same = math.isclose(problem.epsilon(old.setting), old.epsilon, rel_tol=1e-6)
            must(same, "store", "must be made by the same privacy oracle", "another epsilon for its first setting")
        os.truncate(file, file.read_bytes().rfind(b"\n") + 1)  # without a line that was cut off
        return store

    @classmethod
    def read(cls, path: str | Path) -> Store:
        """An existing run, whatever its problem. A line that was cut off while it was written is not there."""
        file = Path(path)
        must(file.is_file(), "store", "must be an existing run file", file)
        try:
            about, *rows = map(json.loads, file.read_bytes().rpartition(b"\n")[0].splitlines())
            known = about["format"] == _FORMAT
        except (OSError, ValueError, LookupError, TypeError):
            known = False
        must(known, "store", "must be a run file of this library", file)
        store = cls(file, about)
        for row in rows:
            row |= {name: tuple(row[name]) for name in ("values", "runs")}
            store._kept.append((row.pop("slot"), Evaluation(**row)))
        return store

    @property
    def problem(self) -> Problem:
        """What the file says of its problem: the same axes, and oracles that cannot be asked."""

        def closed(*_: Any) -> float:
            raise InvalidInput("`problem` must be given to evaluate anything new. Got only a run file.")

        said = dict(self._about["declared"])
        said |= {"space": Space({name: Real(0, 1) for name in said["space"]}), "anti_ideal": tuple(said["anti_ideal"])}
        said |= {"measure": Measure(**said["measure"])}
        said |= {"others": {name: Measure(**one) for name, one in said["others"].items()}}
        return Problem(**said, privacy=closed, utility=closed)

    def __len__(self) -> int:
        """How many evaluations have ended, well or not."""
        return len(self._kept)

    def free(self, total: int) -> list[int]:
        """Those of the slots 0 .. total - 1 that hold nothing yet."""
        return sorted({*range(total)} - {slot for slot, _ in self._kept})

    def record(self, slot: int, result: Evaluation) -> None:
        """Keep an evaluation, failed or not, durably."""
        self._kept.append((slot, result))
        if self.path is not None:
            line = json.dumps({"slot": slot, **asdict(result), "setting": dict(result.setting)})
            with self.path.open("a", encoding="utf-8") as file:
                file.write(f"{line}\n")
                file.flush()
                os.fsync(file.fileno())

    def evaluations(self, *, failed: bool = False) -> list[Evaluation]:
        """Those that ended well, by slot; with `failed`, those that did not."""
        return [result for _, result in sorted(self._kept, key=lambda kept: kept[0]) if result.ok is not failed]
