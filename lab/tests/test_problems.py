"""Every problem loads, its privacy oracle is sound and its utility oracle sane."""

from __future__ import annotations

import pickle
import runpy
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from hybridp.errors import InvalidInput
from hybridp.noise import seeded
from hybridp_lab.problems.sparse_vector import sparse_vector

pytest.importorskip("torch")

from hybridp.pareto import Integer, Problem, Real, Space, load_problem, problem_names
from hybridp_lab.baselines.acquisition import knob_levels
from hybridp_lab.problems import adult, data, mnist
from hybridp_lab.problems.laws import Normal, ShiftedExponential, Uniform, by_laws
from hybridp_lab.problems.svt import f1_scores, simulate_sparse_vector

# Small settings whose utility takes well under a second.
QUICK: dict[str, dict[str, float]] = {
    "svt": {"C": 10, "b": 1.0},
    "logreg": {"gamma": 1e-3, "sigma": 0.1},
    "dpsgd-adult": {"epochs": 1, "lot": 24, "rate": 0.05, "variance": 1.0, "clip": 4.0},
    "dpadam-adult": {"epochs": 1, "lot": 256, "rate": 0.05, "variance": 1.0, "clip": 1.0},
    "svm-adult": {"epochs": 1, "lot": 24, "rate": 0.05, "variance": 1.0, "clip": 4.0},
    "mlp-mnist": {"epochs": 1, "lot": 500, "rate": 0.3, "variance": 0.2, "clip": 2.0},
    "mlp1-mnist": {"epochs": 1, "lot": 2000, "rate": 0.3, "variance": 0.2, "clip": 2.0},
    "hybrid-mean": {"epsilon": 1.0, "opt_in": 0.05},
    "blender": {"f_O": 0.9, "f_C": 0.85, "M": 50, "epsilon": 4.0},
    "rap": {"T": 2, "K": 2, "rows": 100, "epsilon": 1.0},
}
# The knob that buys privacy; elsewhere it is the noise variance.
NOISE = {"svt": "b", "logreg": "sigma"}
SLOW = {"logreg", "mlp1-mnist", "rap"}
MEASURED = [name for name in problem_names() if name in QUICK]


@pytest.fixture(autouse=True)
def generated_data(monkeypatch: pytest.MonkeyPatch) -> Any:
    """No real data in the tests; what was loaded before is forgotten."""
    from hybridp_lab.problems import logistic

    kept = (data.adult, data.mnist, adult._prepared, logistic._prepared, mnist._prepared)
    if data.adult.cache_info().currsize == 0 or data.adult().source != "generated":
        for cached in kept:
            cached.cache_clear()
    monkeypatch.delenv("HYBRIDP_DATA", raising=False)


@pytest.mark.parametrize("name", MEASURED)
def test_a_problem_loads_and_measures(name: str) -> None:
    problem = load_problem(name)
    assert isinstance(problem, Problem)
    assert problem.name == name
    result = problem.evaluate(problem.space.check(QUICK[name]), seed=3)
    assert result.failure is None
    assert 0 < result.epsilon < problem.anti_ideal[0] * 100
    assert 0 <= result.values[0] < problem.anti_ideal[1]
    if name not in SLOW:
        again = problem.evaluate(problem.space.check(QUICK[name]), seed=3)
        assert again.values == result.values
        assert problem.evaluate(problem.space.check(QUICK[name]), seed=4).runs != result.runs


@pytest.mark.parametrize("name", MEASURED)
def test_oracles_travel_to_other_processes(name: str) -> None:
    problem = load_problem(name)
    privacy, utility = pickle.loads(pickle.dumps((problem.privacy, problem.utility)))
    assert privacy(QUICK[name]) == problem.privacy(QUICK[name])
    assert callable(utility)


@pytest.mark.parametrize("name", MEASURED)
def test_epsilon_falls_as_noise_grows(name: str) -> None:
    problem = load_problem(name)
    if "epsilon" in QUICK[name]:
        assert problem.privacy(QUICK[name]) == QUICK[name]["epsilon"]
        return
    knob = NOISE.get(name, "variance")
    axis = problem.space.knobs[knob]
    levels = [problem.privacy({**QUICK[name], knob: float(v)}) for v in knob_levels(axis, 12)]
    assert np.all(np.diff(levels) < 0)
    assert np.all(np.isfinite(levels))
    assert min(levels) > 0


def test_hand_made_laws_follow_their_truncated_distributions() -> None:
    space = Space({"lot": Integer(8, 512), "rate": Real(5e-4, 5e-2), "variance": Real(0.1, 16.0), "t": Integer(1, 64)})
    laws = {
        "lot": Normal(128, 64, accept=(8, 512)),
        "rate": ShiftedExponential(10, 1e-3, accept=(1e-3, 1e-1)),
        "variance": ShiftedExponential(0.1, 0.1, accept=(0.1, 16.0)),
        "t": Uniform(1, 64),
    }
    drawn = by_laws(space, laws, 4000, np.random.default_rng(5))
    variance = np.array([s["variance"] for s in drawn])
    law = stats.truncexpon(b=15.9 / 10, loc=0.1, scale=10)
    assert stats.kstest(variance, law.cdf).pvalue > 1e-6
    assert stats.kstest(variance, stats.truncexpon(b=15.9 / 8, loc=0.1, scale=8).cdf).pvalue < 1e-6
    rate = np.array([s["rate"] for s in drawn])
    assert rate.min() >= 1e-3
    assert rate.max() <= 5e-2  # the acceptance range and the knob's domain both hold
    lot = stats.truncnorm((8 - 128) / 64, (512 - 128) / 64, 128, 64)
    assert np.mean([s["lot"] for s in drawn]) == pytest.approx(lot.mean(), abs=6 * 64 / 4000**0.5)
    assert {s["t"] for s in drawn} == set(range(1, 65))


@pytest.mark.parametrize("name", ["dpsgd-adult", "dpadam-adult", "svm-adult", "mlp-mnist", "mlp1-mnist"])
def test_hand_made_laws_stay_inside_table_3_1(name: str) -> None:
    problem = load_problem(name)
    laws = mnist.LAWS if "mnist" in name else adult.LAWS
    for setting in by_laws(problem.space, laws, 50, np.random.default_rng(1)):
        problem.space.check(setting)
        assert problem.epsilon(setting) > 0


def test_training_learns_more_with_less_noise() -> None:
    problem = load_problem("dpadam-adult")
    quiet, loud = (
        problem.evaluate({**QUICK["dpadam-adult"], "lot": 64, "variance": v, "rate": 0.01}, seed=1) for v in (0.1, 16.0)
    )
    assert quiet.epsilon > loud.epsilon
    assert quiet.values[0] < loud.values[0]
    assert quiet.values[0] < 0.23  # the majority's label is wrong for 24 %


def test_the_anti_ideal_of_the_mean_counts_trust_as_a_cost() -> None:
    problem = load_problem("hybrid-mean")
    few, many = (problem.evaluate({"epsilon": 0.5, "opt_in": c}, seed=2) for c in (0.002, 0.2))
    assert few.values[0] > many.values[0]
    assert few.values[1] == 0.002
    assert many.values[1] == 0.2


def test_rap_follows_its_seed_and_its_budget() -> None:
    """On a few hundred made-up people: the same seed, the same error; a drowned budget, a larger one."""
    from hybridp_lab.problems.ours import rap_max_error

    draw = np.random.default_rng(8)
    kind = draw.integers(0, 3, 900)
    people = np.column_stack([kind, (kind + draw.integers(0, 2, 900)) % 4, draw.integers(0, 2, 900), kind // 2])
    asked: dict[str, Any] = {"marginals": 3, "delta": 1e-6, "rounds": 6, "per_round": 3, "rows": 60}
    good = [rap_max_error(people, (3, 4, 2, 2), epsilon=50.0, seed=seed, **asked) for seed in (1, 1, 2)]
    assert good[0] == good[1]
    assert good[0] != good[2]
    assert max(good) < 0.05 < rap_max_error(people, (3, 4, 2, 2), epsilon=0.01, seed=1, **asked)


# --- the sparse vector technique --------------------------------------------------------------------------------------


def test_svt_without_noise_answers_the_first_c_positives() -> None:
    rng = np.random.default_rng(4)
    answers = (rng.random((200, 30)) < 0.3).astype(np.int64)
    result = simulate_sparse_vector(answers, sparse_vector(1e-6, 5), rng=seeded(1))
    expected = (answers == 1) & (np.cumsum(answers, axis=1) <= 5)
    assert np.array_equal(result, expected)


def test_svt_follows_algorithm_3_1() -> None:
    """How often each output appears, against a plain loop over the algorithm's lines with another generator."""
    truth = np.array([1, 0, 1])
    b, cutoff, runs = 2.0, 2, 60_000
    result = simulate_sparse_vector(np.tile(truth, (runs, 1)), sparse_vector(b, cutoff), rng=seeded(2))
    mine = np.bincount(result @ np.array([4, 2, 1]), minlength=8) / runs
    rng = np.random.default_rng(5)

    def loop(first: float, second: float) -> np.ndarray[Any, Any]:
        seen = np.zeros(8)
        for _ in range(runs):
            rho, count, code = rng.laplace(0, first), 0, 0
            for i, q in enumerate(truth):
                if q + rng.laplace(0, second) >= 0.5 + rho:
                    code += 4 >> i
                    count += 1
                    if count >= cutoff:
                        break
            seen[code] += 1
        return seen / runs

    b1 = b / (1 + (2 * cutoff) ** (1 / 3))
    spread = 5.5 * np.sqrt(2 * mine * (1 - mine) / runs) + 1e-9
    assert np.all(np.abs(mine - loop(b1, b - b1)) <= spread)
    assert not np.all(np.abs(mine - loop(b1 * 1.5, b - b1)) <= spread)


def test_f1_scores_are_scikit_learn_s() -> None:
    metrics = pytest.importorskip("sklearn.metrics")
    rng = np.random.default_rng(6)
    result, truth = rng.random((40, 12)) < 0.4, (rng.random((40, 12)) < 0.3).astype(np.int64)
    truth[:, 0] = 1
    expected = [metrics.f1_score(t, f, zero_division=0) for t, f in zip(truth, result, strict=True)]
    np.testing.assert_allclose(f1_scores(result, truth), expected)


def test_the_example_wraps_opacus() -> None:
    """Its privacy oracle against Opacus's own engine, and a fit that learns."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("opacus")
        path = Path(__file__).parents[2] / "docs" / "examples" / "pareto_opacus.py"
        problem = runpy.run_path(str(path))["problem"]
    setting = {"epochs": 1, "batch": 200, "rate": 0.5, "noise": 1.0}
    levels = [problem.epsilon({**setting, "noise": noise}) for noise in (0.5, 1.0, 2.0, 8.0)]
    assert np.all(np.diff(levels) < 0)
    dp_accounting = pytest.importorskip("dp_accounting")
    account = dp_accounting.rdp.RdpAccountant()
    step = dp_accounting.PoissonSampledDpEvent(0.1, dp_accounting.GaussianDpEvent(1.0))
    account.compose(step, 10)
    assert levels[1] == pytest.approx(account.get_epsilon(1e-5), rel=0.02)
    assert problem.evaluate(setting, seed=1).values[0] < 0.3


# --- the registry and the data ----------------------------------------------------------------------------------------


def test_names_are_pinned_and_others_refused() -> None:
    assert set(problem_names()) == {
        "svt", "logreg", "dpsgd-adult", "dpadam-adult", "svm-adult", "mlp-mnist", "mlp1-mnist", "hybrid-mean",
        "blender", "rap",
    }  # fmt: skip
    with pytest.raises(InvalidInput, match="problem"):
        load_problem("nothing")


def test_stand_ins_have_the_data_s_shape_and_say_so() -> None:
    table = data.adult()
    assert table.source == "generated"
    assert table.train.shape == (40_000, 13)
    assert table.test.shape == (8_842, 13)
    assert np.all(table.train.max(axis=0) < np.array(data.ADULT_SIZES))
    assert sum(data.ADULT_SIZES) + 2 == 588
    assert 0.2 < table.train_labels.mean() < 0.28
    problem = load_problem("dpsgd-adult")
    assert "generated" in problem.version
    assert replace(problem, version=problem.version.replace("generated", "adult")).declared() != problem.declared()
