"""Runs: bad oracles are recorded, runs resume after a crash, foreign files are refused."""

from __future__ import annotations

import itertools
import math
import os
from pathlib import Path

import numpy as np
import pytest
from joblib import parallel_config
from toys import SPACE, laplace_epsilon, noisy_utility, single_run, sometimes_fails, toy

from hybridp.errors import InvalidInput
from hybridp.pareto import Measure, Problem, Store, dpareto, observed_hypervolume, random_search
from tests import warm

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("privacy", "utility", "says"),
    [
        (laplace_epsilon, lambda s, seed: 1 / 0, "ZeroDivisionError"),
        (laplace_epsilon, lambda s, seed: "0.5", "must return a number"),
        (laplace_epsilon, lambda s, seed: math.nan, "finite"),
        (laplace_epsilon, lambda s, seed: 1.5, "[0, 1]"),
        (laplace_epsilon, lambda s, seed: {"other": 1.0}, "objectives"),
        (lambda s: 0.0, noisy_utility, "positive and finite"),
    ],
)
def test_a_bad_oracle_is_recorded(privacy, utility, says):
    found = Problem("bad", SPACE, privacy, utility).evaluate({"b": 1.0, "x": 0.5}, 0)
    assert not found.ok
    assert says in str(found.failure)


def test_a_run_outlives_failures_and_keeps_secrets():
    found = dpareto(toy(sometimes_fails), init=8, steps=6, seed=1)
    assert len(found.evaluations) + len(found.failures) == 14
    assert found.failures
    assert not any("987654" in str(e.failure) for e in found.failures)


def test_a_run_where_everything_fails_ends():
    found = dpareto(toy(lambda s, seed: math.nan), init=3, steps=3, seed=1)
    assert (len(found.evaluations), len(found.failures), found.hypervolume) == (0, 6, 0.0)


def test_a_run_is_reproducible_and_seeds_differ():
    first, again, other = (random_search(toy(), n=5, seed=s) for s in (1, 1, 2))
    assert [e.values for e in first.evaluations] == [e.values for e in again.evaluations]
    assert [e.setting for e in first.evaluations] != [e.setting for e in other.evaluations]


def test_a_crashed_run_resumes(tmp_path):
    """The process dies by os._exit in its seventh evaluation; six are kept, and so is nothing of a line cut off."""
    script = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from toys import toy, dies_at_seventh\n"
        "from hybridp.pareto import Store, random_search\n"
        "problem = toy(dies_at_seventh)\n"
        "random_search(problem, n=10, seed=3, store=Store.open(sys.argv[2], problem))\n"
    )
    path = tmp_path / "run.jsonl"
    died = warm.run(script, str(HERE), str(path), env={**os.environ, "TOY_COUNTER": str(tmp_path / "count")})
    assert died.returncode == 9
    with path.open("a") as file:
        file.write('{"slot": 6, "epsi')
    store = Store.open(path, toy())
    assert len(store.evaluations()) == 6
    resumed = random_search(toy(), n=10, seed=3, store=store)
    straight = random_search(toy(), n=10, seed=3)
    for run in (resumed, Store.read(path)):
        kept = run.evaluations if run is resumed else run.evaluations()
        assert [e.values for e in kept] == [e.values for e in straight.evaluations]


def test_what_two_processes_evaluated_is_all_kept(tmp_path):
    """Whoever opens a run that another is filling evaluates some settings twice: each was paid for, and counts."""
    stores = [Store.open(tmp_path / "run.jsonl", toy()) for _ in range(2)]
    for store in stores:
        random_search(toy(), n=3, seed=3, store=store)
    assert [len(store) for store in (*stores, Store.read(tmp_path / "run.jsonl"))] == [3, 3, 6]


def test_a_finished_run_is_extended_not_repeated(tmp_path):
    calls = []

    def counted(setting, seed):
        calls.append(seed)
        return noisy_utility(setting, seed)

    store = Store.open(tmp_path / "run.jsonl", toy(counted))
    dpareto(toy(counted), init=6, steps=2, seed=1, store=store)
    dpareto(toy(counted), init=6, steps=2, seed=1, store=store)
    assert len(calls) == 8
    assert len(dpareto(toy(counted), init=6, steps=4, seed=1, store=store).evaluations) == 10
    assert len(set(calls)) == len(calls) == 10


@pytest.mark.parametrize(
    "other",
    [
        Problem("other", SPACE, laplace_epsilon, noisy_utility),
        toy(version="2"),
        toy(measure=Measure(transform="linear")),
        Problem("toy", SPACE, lambda s: 2 / s["b"], noisy_utility),
    ],
)
def test_the_store_of_another_problem_is_refused(tmp_path, other):
    random_search(toy(), n=2, seed=1, store=Store.open(tmp_path / "run.jsonl", toy()))
    with pytest.raises(InvalidInput, match="store"):
        Store.open(tmp_path / "run.jsonl", other)


@pytest.mark.parametrize("content", [b"no lines of JSON at all", b"\xff\x00\n", b"", b'[1, 2]\n{"x": 1}\n{"precio'])
def test_a_foreign_file_is_refused_and_kept(tmp_path, content):
    path = tmp_path / "foreign.jsonl"
    path.write_bytes(content)
    for opened in (lambda: Store.open(path, toy()), lambda: Store.read(path)):
        with pytest.raises(InvalidInput):
            opened()
    assert path.read_bytes() == content


def test_batches_in_parallel_fill_every_slot_once():
    told = []
    with parallel_config(backend="threading"):
        found = dpareto(
            toy(), init=6, steps=6, batch=3, jobs=2, seed=1,
            progress=lambda done, total, volume, last: told.append((done, total, volume)),
        )  # fmt: skip
    assert len(found.evaluations) == 12
    assert [t[0] for t in told] == list(range(1, 13))
    assert all(a[2] <= b[2] for a, b in itertools.pairwise(told))
    assert told[-1][2] == pytest.approx(found.hypervolume)
    chosen = np.array([SPACE.encode(e.setting) for e in found.evaluations[6:]])
    apart = np.linalg.norm(chosen[:, None] - chosen[None], axis=2)[np.triu_indices(6, 1)]
    assert apart.min() > 1e-3  # a batch does not ask the same question twice


def test_repeats_and_single_runs():
    problem = toy(single_run, repeats=3)
    found = random_search(problem, n=9, seed=1)
    assert len(found.evaluations) == 9
    assert all(len(e.runs) == 3 and len(set(e.runs)) == 3 for e in found.evaluations)
    assert found.hypervolume == pytest.approx(observed_hypervolume(problem, found.front))


@pytest.mark.parametrize(
    "bad",
    [
        {"init": 0}, {"steps": -1}, {"batch": 0}, {"jobs": 0}, {"seed": -1}, {"init": []},
    ],
)  # fmt: skip
def test_bad_arguments_are_refused(bad):
    with pytest.raises(InvalidInput):
        dpareto(toy(), **{"init": 2, "steps": 0, "seed": 1, **bad})
