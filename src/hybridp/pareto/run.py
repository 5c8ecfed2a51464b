"""Searching for the front: DPareto (Avent 2023, Algorithm 3.2), random search and grid search.

All three fill the slots of a store, so all are durable, resume, and can be shared by processes. A batch of q settings
is chosen one after the other, each believing the predictions for those before it, and evaluated in parallel
by joblib; `backend` is handed to joblib as it is ("loky", "threading", or "dask" and "ray" once registered).

>>> from hybridp.pareto import LogReal, Problem, Space
>>> problem = Problem("toy", Space({"b": LogReal(0.01, 100)}), lambda s: 1 / s["b"], lambda s, seed: 1 / (1 + s["b"]))
>>> found = random_search(problem, n=20, seed=1)
>>> len(found.evaluations), 0 < found.hypervolume
(20, True)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.pareto.front import hypervolume, pareto_indices
from hybridp.pareto.models import ACQUISITIONS, Models, believe, fit_models, next_setting
from hybridp.pareto.problem import Evaluation, Problem
from hybridp.pareto.space import Setting
from hybridp.pareto.store import Store
from hybridp.randomness import seeded, synthetic_data_generator

__all__ = ["Progress", "Run", "dpareto", "grid_search", "observed_hypervolume", "random_search"]

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


def dpareto(
    problem: Problem,
    *,
    init: int = 16,
    steps: int = 256,
    batch: int = 1,
    jobs: int = 1,
    backend: str = "loky",
    acquisition: str = "exact",
    handmade: bool = False,
    store: Store | None = None,
    seed: int,
    progress: Progress | None = None,
) -> Run:
    """Algorithm 3.2: `init` settings spread over the space, then `steps` chosen by the acquisition function.

    The first settings are a scrambled Sobol sequence, or with `handmade` drawn by the problem's own laws.
    """
    how = _How(jobs, backend, store, seed, progress)
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
        return max(batch, jobs) if claimed < init else batch

    return _fill(problem, init + steps, choose, wave, how)


def random_search(
    problem: Problem,
    *,
    n: int,
    handmade: bool = False,
    jobs: int = 1,
    backend: str = "loky",
    store: Store | None = None,
    seed: int,
    progress: Progress | None = None,
) -> Run:
    """n independent settings: uniform, or by the problem's hand-made laws (Tables 3.2, 3.3)."""
    how = _How(jobs, backend, store, seed, progress)
    must(n >= 1, "n", "must be at least 1", n)
    return _listed(problem, _drawn(problem, n, handmade, seed), how)


def grid_search(
    problem: Problem,
    *,
    per_axis: int,
    jobs: int = 1,
    backend: str = "loky",
    store: Store | None = None,
    seed: int,
    progress: Progress | None = None,
) -> Run:
    """Every combination of `per_axis` levels of each knob."""
    return _listed(problem, problem.space.grid(per_axis), _How(jobs, backend, store, seed, progress))


# --- the engine -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _How:
    """How settings are evaluated, whoever chooses them."""

    jobs: int
    backend: str
    store: Store | None
    seed: int
    progress: Progress | None

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
            for slot, found in _evaluated(problem, tasks, how):
                store.record(slot, found)
                claimed += 1
                if how.progress is not None:
                    how.progress(claimed, total, observed_hypervolume(problem, store.evaluations()), found)
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
