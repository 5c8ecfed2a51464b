"""Fronts of people's rows that are published: noise on every utility before a search sees it, within stated budgets.

People on whose rows a utility was measured are protected by the noise alone; people whose rows a mechanism learnt from
pay each setting's epsilon (`hybridp.pareto.publishing_cost`). All of it supposes that the mechanism's own noise is
secret: a run whose seed is known protects nobody.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np

from hybridp.errors import BudgetExceeded, must
from hybridp.noise import Randomness, perturb, secure
from hybridp.pareto import Problem, Setting
from hybridp.public.mechanisms import ApproxDP, PureDP, discrete_laplace

__all__ = ["PublishedFront", "guarded", "release_front"]

_STEPS = 2**40  # of a utility in [0, 1]


def _noisy(answer: Any, epsilon: float, sensitivity: float, rng: Randomness) -> list[float]:
    """Every answer is published, whatever it is: a refusal would be one too. What is no number is the worst utility."""
    values = np.clip(np.nan_to_num(np.asarray(answer, dtype=float).reshape(-1), nan=0.0), 0.0, 1.0)
    # In whole steps; rounding may add one of them to the sensitivity.
    mechanism = discrete_laplace(PureDP(epsilon), math.ceil(sensitivity * _STEPS) + 1)
    noisy = [perturb(mechanism, int(v), rng=rng) / _STEPS for v in np.rint(values * _STEPS)]
    return [float(v) for v in np.clip(noisy, 0.0, 1.0)]


def _bounded(problem: Problem) -> float:
    one = problem.sensitivity
    must(one is not None, "sensitivity", "must be declared by the problem to add noise", one)
    assert one is not None
    must(not problem.others, "others", "must be empty: only the utility's noise is calibrated", len(problem.others))
    must(problem.measure.transform == "logit", "measure", "must be a utility in [0, 1] to be guarded", problem.measure)
    return one


def guarded(problem: Problem, *, epsilon_each: float) -> Problem:
    """The problem with noise on every utility before anyone sees it: epsilon_each for an evaluated person, an answer.

    Scale: sensitivity / epsilon_each (Laplace, exact sampler). Clipping to [0, 1] is post-processing.
    """
    one = _bounded(problem)
    must(math.isfinite(epsilon_each) and epsilon_each > 0, "epsilon_each", "must be positive and finite", epsilon_each)

    def noisy(setting: Setting, seed: int) -> list[float]:
        return _noisy(problem.utility(setting, seed), epsilon_each, one, secure())

    return replace(problem, utility=noisy, version=f"{problem.version}+guarded({epsilon_each:g})")


@final
@dataclass(frozen=True)
class PublishedFront:
    """Settings with epsilon and one noisy error each, and what everyone paid."""

    settings: tuple[Setting, ...]
    epsilons: tuple[float, ...]
    errors: tuple[float, ...]
    trained: ApproxDP
    evaluated: ApproxDP
    simulated: bool


def release_front(
    problem: Problem, settings: Sequence[Setting], *, trained: PureDP | ApproxDP, evaluated: PureDP, rng: Randomness
) -> PublishedFront:
    """Evaluate settings afresh, one run each, and publish noisy errors within two stated budgets.

    The settings must come from somewhere public: theory, made-up data, or a guarded run already paid for. `trained`
    must cover the sum of their epsilons and deltas, or nothing is run; `evaluated` is split evenly over the settings.
    """
    one = _bounded(problem)
    must(len(settings) > 0, "settings", "must name at least one setting", 0)
    checked = [problem.space.check(s) for s in settings]
    epsilons = [problem.epsilon(s) for s in checked]
    need = ApproxDP(math.fsum(epsilons), len(checked) * problem.delta)
    limit = trained.delta if isinstance(trained, ApproxDP) else 0.0
    if need.epsilon > trained.epsilon or need.delta > limit:
        raise BudgetExceeded(f"The front needs {need} of the people learnt from; {trained} is left.")
    share = evaluated.epsilon / len(checked)
    errors = []
    for setting in checked:
        # The oracle's generator is seeded from `rng` and the seed is not kept.
        runs = np.asarray(problem.utility(setting, int(rng.words(1)[0] >> np.uint64(1))), dtype=float).reshape(-1)
        must(len(runs) == 1, "utility", "must make one run a call to be published", f"{len(runs)} runs")
        errors.append(1.0 - _noisy(runs, share, one, rng)[0])
    return PublishedFront(
        tuple(checked), tuple(epsilons), tuple(errors), need, ApproxDP(evaluated.epsilon, 0.0), rng.simulated
    )
