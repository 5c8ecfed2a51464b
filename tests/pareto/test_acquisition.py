"""Acquisition functions against Monte Carlo, the models against what they should predict."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.special import expit
from toys import SPACE, three, toy, true_error

from hybridp.pareto import dpareto, fit_models, hypervolume, pareto_indices, random_search
from hybridp.pareto.models import believe, by_gain, cells, expected_gain, gain, next_setting
from hybridp_lab.baselines.acquisition import by_hvpoi, by_nehvi

CORNER = np.array([2.0, 1.0])


def front_of(rng, n=8):
    points = np.column_stack([rng.uniform(-2, 2, n), rng.uniform(0, 1, n)])
    return points[pareto_indices(points)]


def added(front, point, corner):
    return hypervolume(np.vstack([front, point]), corner) - hypervolume(front, corner)


@pytest.mark.parametrize("seed", range(5))
def test_the_gain_is_the_added_volume(seed):
    rng = np.random.default_rng(seed)
    front, points = front_of(rng), np.column_stack([rng.uniform(-3, 2.5, 96), rng.uniform(0, 1.1, 96)])
    assert gain(points, *cells(front, CORNER)) == pytest.approx([added(front, p, CORNER) for p in points], abs=1e-9)


def test_the_gain_without_a_front():
    assert gain(np.array([[0.0, 0.25]]), *cells(np.empty((0, 2)), CORNER)) == pytest.approx(1.5)


def test_the_model_sees_through_the_noise():
    problem = toy()
    done = random_search(problem, n=40, seed=1).evaluations
    models = fit_models(problem, done)
    fresh = SPACE.sample(200, rng=np.random.default_rng(7))
    cube, z = np.array([SPACE.encode(s) for s in fresh]), -np.log([s["b"] for s in fresh])
    mean, sd = models.noisy[0].predict(models.inputs(cube, z))
    truth = np.array([true_error(s) for s in fresh])
    assert np.abs(expit(mean) - truth).mean() < 0.01
    # The interval of two standard deviations covers most, and half a hundredth of it does not.
    z = np.log(truth / (1 - truth))
    assert np.mean(np.abs(z - mean) < 2 * sd + 0.05) > 0.8
    assert np.mean(np.abs(z - mean) < 0.01 * sd) < 0.5


def test_belief_lowers_uncertainty_and_keeps_the_mean():
    problem = toy()
    models = fit_models(problem, random_search(problem, n=16, seed=1).evaluations)
    setting = {"b": 0.02, "x": 0.95}
    x = models.inputs(SPACE.encode(setting)[None], -np.log([setting["b"]]))
    before, after = models.noisy[0].predict(x), believe(problem, models, [setting]).noisy[0].predict(x)
    assert after[1][0] < before[1][0]
    assert after[0][0] == pytest.approx(before[0][0], abs=0.1)


@pytest.mark.parametrize("chooser", [by_gain, by_hvpoi, by_nehvi])
def test_every_acquisition_beats_random_search(chooser):
    problem = toy()

    def true_volume(evaluations):
        points = problem.axes([e.epsilon for e in evaluations], [true_error(e.setting) for e in evaluations])
        return hypervolume(points, problem.corner)

    steps = 8
    found = dpareto(problem, init=8, steps=steps, chooser=chooser, seed=1)
    plain = [true_volume(random_search(problem, n=8 + steps, seed=s).evaluations) for s in range(10)]
    assert true_volume(found.evaluations) > np.mean(plain) + 2 * np.std(plain) / 10**0.5


def test_three_objectives():
    found = dpareto(three(), init=6, steps=2, seed=2)
    assert len(found.evaluations) == 8
    assert found.hypervolume > 0


def test_failed_settings_repel():
    problem = toy()
    done = random_search(problem, n=12, seed=1).evaluations
    models = fit_models(problem, done)

    def ask(failed):
        rng = np.random.default_rng(5)
        score = expected_gain(problem, models, done, rng)
        return next_setting(problem, score, [e.setting for e in done], failed, rng)

    first = ask([])
    again = ask([problem.evaluate(first, 0)])
    apart = np.linalg.norm(SPACE.encode(first) - SPACE.encode(again))
    assert apart > 0.01
