"""A published front and guarded utilities: every number carries Laplace noise of its own, sensitivity over epsilon.

A released number is the true one plus or minus ``-b ln U`` on a lattice so fine that it cannot be seen here, U being
the leading 63 bits of a word and the last bit its sign (`docs/exact-noise.md`).
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from tests.laws.recording import Recording

from hybridp.errors import BudgetExceeded
from hybridp.noise import seeded
from hybridp.pareto import Evaluation, LogReal, Problem, Space, publishing_cost
from hybridp.public.mechanisms import ApproxDP, PureDP
from hybridp_lab.fronts import guarded, release_front

SPACE = Space({"b": LogReal(0.01, 100)})
SENSITIVITY = 0.004


def _epsilon(setting: dict[str, float]) -> float:
    return 1 / float(setting["b"])


def problem(**more: object) -> Problem:
    return Problem("front", SPACE, _epsilon, lambda s, seed: [0.5], sensitivity=SENSITIVITY, **more)  # type: ignore[arg-type]


def quantiles(tape: Recording, scale: float) -> np.ndarray:
    """What every word of the tape would be as Laplace noise of this scale."""
    words = tape.words
    u = ((words >> np.uint64(1)).astype(np.float64) + 0.5) / 2.0**63
    return np.where(words & np.uint64(1), 1, -1) * scale * np.log(u)


def places(tape: Recording, noise: list[float], scale: float) -> list[int]:
    """The words that the noise was drawn from; each must be there, once."""
    drawn = quantiles(tape, scale)
    found = [np.flatnonzero(np.abs(drawn - x) < 1e-8 * scale) for x in noise]
    assert all(len(at) == 1 for at in found), "not on the tape"
    return [int(at[0]) for at in found]


def test_a_front_has_an_equal_share_of_the_evaluated_budget_on_every_error() -> None:
    tape = Recording(1)
    settings = [{"b": float(b)} for b in (2.0, 4.0, 5.0, 8.0, 10.0)]
    trained = PureDP(0.5 + 0.25 + 0.2 + 0.125 + 0.1)
    found = release_front(problem(), settings, trained=trained, evaluated=PureDP(2.0), rng=tape.rng)
    noise = [0.5 - error for error in found.errors]
    assert len(set(places(tape, noise, SENSITIVITY / (2.0 / 5)))) == 5
    for wrong in (0.9, 1 / 5, 5.0):
        with pytest.raises(AssertionError, match="not on the tape"):
            places(tape, noise, wrong * SENSITIVITY / (2.0 / 5))
    assert found.evaluated == ApproxDP(2.0, 0.0)
    assert found.trained.epsilon == pytest.approx(trained.epsilon)
    assert found.epsilons == (0.5, 0.25, 0.2, 0.125, 0.1)
    assert not found.simulated
    trial = release_front(problem(), settings, trained=trained, evaluated=PureDP(2.0), rng=seeded(1))
    assert trial.simulated


def test_a_front_above_its_budget_is_refused_before_anything_is_run() -> None:
    def never(setting: object, seed: int) -> list[float]:
        raise AssertionError("a run")

    asked = [{"b": 2.0}, {"b": 4.0}]
    for delta, trained in (
        (0.0, PureDP(0.7499)),
        (0.0, PureDP(0.5)),
        (1e-6, ApproxDP(1.0, 1.9e-6)),
        (1e-6, PureDP(1.0)),
    ):
        one = Problem("front", SPACE, _epsilon, never, sensitivity=SENSITIVITY, delta=delta)
        with pytest.raises(BudgetExceeded):
            release_front(one, asked, trained=trained, evaluated=PureDP(1.0), rng=Recording(2).rng)


def test_guarded_utilities_carry_fresh_noise_of_the_system_at_every_call() -> None:
    tape, epsilon = Recording(3), 0.2
    one = guarded(problem(), epsilon_each=epsilon)
    with tape.as_the_systems():
        answers = [x for seed in (1, 1, 2) for x in one.utility({"b": 1.0}, seed)]
    assert len(set(places(tape, [x - 0.5 for x in answers], SENSITIVITY / epsilon))) == 3
    with pytest.raises(AssertionError, match="not on the tape"):
        places(tape, [x - 0.5 for x in answers], 0.9 * SENSITIVITY / epsilon)


def test_answers_beyond_the_unit_are_cut_before_the_noise() -> None:
    """The declared sensitivity is that of answers in [0, 1]: one of 7 must look like one of 1."""
    wild = Problem("wild", SPACE, _epsilon, lambda s, seed: [7.0], sensitivity=SENSITIVITY)
    tame = Problem("tame", SPACE, _epsilon, lambda s, seed: [1.0], sensitivity=SENSITIVITY)
    errors = [
        release_front(p, [{"b": 2.0}], trained=PureDP(1.0), evaluated=PureDP(0.1), rng=Recording(seed).rng).errors
        for seed in range(6)
        for p in (wild, tame)
    ]
    assert errors[::2] == errors[1::2]
    assert max(e[0] for e in errors) > 0


def test_every_run_is_charged_and_those_that_failed_after_reading_too() -> None:
    runs = problem(repeats=3, delta=1e-7)
    good = Evaluation({"b": 2.0}, 1, 0.5, (0.5,), (0.5,) * 3, 1.0)
    failed = Evaluation({"b": 4.0}, 2, 0.25, (), (), 1.0, "the oracle raised an error")
    unread = Evaluation({"b": 4.0}, 3, math.nan, (), (), 1.0, "no epsilon")
    cost = publishing_cost(runs, [good, failed, unread], epsilon_each=0.1)
    assert cost.answers == 6
    assert cost.trained.epsilon == pytest.approx(3 * 0.5 + 3 * 0.25)
    assert cost.trained.delta == pytest.approx(6e-7)
    assert cost.evaluated is not None
    assert cost.evaluated.epsilon == pytest.approx(0.6)
