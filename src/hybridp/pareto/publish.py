"""What a published front costs the people in the data behind it (the first open problem of Avent 2023, section 3.6).

Two groups pay. People whose rows the mechanism learnt from pay each evaluation's epsilon for each of its runs, on the
front or not, because every one of them steered the search. People on whose rows the utility was measured are
protected only if noise was added to each answer *before* the search saw it: noise added to a finished front would not
hide what chose it (`hybridp_lab.fronts` adds it, and keeps a promise made beforehand).

Composition is basic: a search chooses its epsilons on the way, and a smaller bound read off after the fact is none.

All of it supposes that the mechanism's own noise is secret: a run whose seed is known protects nobody.

For whoever decides there is the final front, and "give me the setting for epsilon <= 1". The best of many noisy
measurements is mostly lucky, so settings are ranked by the models' posterior means and not by what was observed. A
setting that was never measured may be better still: `suggest` minimises the posterior mean over settings whose exact
epsilon is within the bound (the second open problem of Avent 2023, section 3.6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, final

import numpy as np

from hybridp.errors import InvalidInput, must
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.pareto.models import Models, best_settings, fit_models, ln_epsilon, smoothed
from hybridp.pareto.problem import Evaluation, Problem, Setting, Value, pareto_indices
from hybridp.public.mechanisms import ApproxDP
from hybridp.public.randomisers import Floats

__all__ = ["Advice", "Choice", "Cost", "final_front", "publishing_cost", "suggest"]

LEVEL, _WIDTH = 0.95, 1.96  # of the intervals on the models' scale


@final
@dataclass(frozen=True)
class Choice:
    """A setting with its exact epsilon and its predicted expected error, and what was measured if it was.

    The interval is the model's for the expected error; a single run scatters around it as well.
    """

    setting: Mapping[str, Any]
    epsilon: float
    predicted: float
    low: float
    high: float
    measured: float | None = None


@final
@dataclass(frozen=True)
class Advice:
    """The best measured setting within the bound (if any) and a new one that the models prefer."""

    measured: Choice | None
    suggested: Choice
    level: float = LEVEL


def _choices(
    problem: Problem, models: Models, settings: Sequence[Setting], epsilons: Sequence[float], measured: Sequence[Any]
) -> list[Choice]:
    mean, sd = models.noisy[0].predict(models.inputs(problem.space.encoded(settings), np.log(epsilons)))
    ends = (problem.measure.inverse(mean + k * sd).tolist() for k in (0.0, -_WIDTH, _WIDTH))
    return [Choice(*row) for row in zip(settings, epsilons, *ends, measured, strict=True)]


def _measured(problem: Problem, done: Sequence[Evaluation]) -> tuple[Models, list[Choice]]:
    """The models of evaluations, and what they expect of each."""
    must(len(done) >= 3, "evaluations", "must hold at least 3 that succeeded", len(done))
    models = fit_models(problem, done)
    settings, epsilons, measured = zip(*((e.setting, e.epsilon, e.values[0]) for e in done), strict=True)
    return models, _choices(problem, models, settings, epsilons, measured)


def final_front(problem: Problem, done: Sequence[Evaluation]) -> tuple[Choice, ...]:
    """Measured settings that are non-dominated by posterior mean, in order of epsilon.

    Further objectives enter by their posterior means too.
    """
    models, choices = _measured(problem, done)
    points = smoothed(problem, models, [c.epsilon for c in choices])
    return tuple(choices[i] for i in pareto_indices(points))


def suggest(problem: Problem, done: Sequence[Evaluation], *, epsilon: float) -> Advice:
    """The best measured setting with epsilon within the bound, and the best by the models over the whole space."""
    must(math.isfinite(epsilon) and epsilon > 0, "epsilon", "must be positive and finite", epsilon)
    models, choices = _measured(problem, done)
    best = min((c for c in choices if c.epsilon <= epsilon), key=lambda c: c.predicted, default=None)

    def score(settings: list[dict[str, Value]], x: Floats) -> Floats:
        a = ln_epsilon(problem, settings)
        known = np.where(np.isfinite(a), a, 0.0)
        return np.where(a <= math.log(epsilon), -models.noisy[0].predict(models.inputs(x, known))[0], -np.inf)

    known = problem.space.encoded([e.setting for e in done])
    for setting in best_settings(problem.space, known, score, synthetic_data_generator(seeded(0)))[:8]:
        if (exact := problem.epsilon(setting)) <= epsilon:
            return Advice(best, _choices(problem, models, [setting], [exact], [None])[0])
    raise InvalidInput(f"`epsilon` must be within reach of the mechanism. Got {epsilon}, below every setting tried.")


@final
@dataclass(frozen=True)
class Cost:
    """Budgets spent; `evaluated` is None where exact utilities were used, which no epsilon bounds."""

    trained: ApproxDP
    evaluated: ApproxDP | None
    answers: int

    def __str__(self) -> str:
        other = "no guarantee: exact utilities steered the search" if self.evaluated is None else str(self.evaluated)
        return f"{self.answers} answers; people learnt from: {self.trained}; people evaluated on: {other}"


def publishing_cost(problem: Problem, evaluations: Sequence[Evaluation], *, epsilon_each: float | None = None) -> Cost:
    """What all evaluations cost together, failed ones included: pass those too.

    `epsilon_each` is that of `guarded`, if the run's utilities were guarded. A failed evaluation whose epsilon
    is unknown never reached the data, as privacy is asked first; one that failed later is charged in full.
    """
    must(len(evaluations) > 0, "evaluations", "must hold at least one", 0)
    touched = [e for e in evaluations if math.isfinite(e.epsilon)]
    # Runs of a failed evaluation are not on record: every repeat is charged.
    spent = [e.epsilon for e in touched for _ in range(max(len(e.runs), problem.repeats))]
    trained = ApproxDP(math.fsum(spent), len(spent) * problem.delta)
    return Cost(trained, None if epsilon_each is None else ApproxDP(epsilon_each * len(spent), 0.0), len(spent))
