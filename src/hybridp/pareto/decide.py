"""For whoever decides: the final front, and "give me the setting for epsilon <= 1".

The best of many noisy measurements is mostly lucky, so settings are ranked by the models' posterior means and not by
what was observed. A setting that was never measured may be better still: `suggest` minimises the posterior
mean over settings whose exact epsilon is within the bound (the second open problem of Avent 2023, section 3.6).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidInput, must
from ..randomness import seeded, synthetic_data_generator
from .acquisition import ln_epsilon
from .front import pareto_indices
from .models import Models, fit_models
from .problem import Evaluation, Problem

__all__ = ["Advice", "Choice", "final_front", "suggest"]

Floats: TypeAlias = NDArray[np.float64]

# Two-sided normal quantiles of the intervals on the models' scale.
_LEVELS = {0.5: 0.6745, 0.8: 1.2816, 0.9: 1.6449, 0.95: 1.96, 0.99: 2.5758}


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

    def to_dict(self) -> dict[str, Any]:
        return {
            "setting": dict(self.setting), "epsilon": self.epsilon, "predicted": self.predicted, "low": self.low,
            "high": self.high, "measured": self.measured,
        }  # fmt: skip


@final
@dataclass(frozen=True)
class Advice:
    """The best measured setting within the bound (if any) and a new one that the models prefer."""

    bound: float
    measured: Choice | None
    suggested: Choice
    level: float


def _inputs(problem: Problem, models: Models, done: Sequence[Evaluation]) -> Floats:
    cube = np.array([problem.space.encode(e.setting) for e in done])
    return models.inputs(cube, np.log([e.epsilon for e in done]))


def _predicted(problem: Problem, models: Models, x: Floats, level: float) -> tuple[Floats, Floats, Floats]:
    mean, sd = models.noisy[0].predict(x)
    width = _LEVELS[level]
    inverse = problem.measure.inverse
    return inverse(mean), inverse(mean - width * sd), inverse(mean + width * sd)


def _choices(problem: Problem, done: Sequence[Evaluation], models: Models, level: float) -> list[Choice]:
    rows = zip(done, *_predicted(problem, models, _inputs(problem, models, done), level), strict=True)
    return [Choice(e.setting, e.epsilon, float(m), float(a), float(b), e.values[0]) for e, m, a, b in rows]


def _checked(done: Sequence[Evaluation], level: float) -> None:
    must(len(done) >= 3, "evaluations", "must hold at least 3 that succeeded", len(done))
    must(level in _LEVELS, "level", f"must be one of {', '.join(map(str, _LEVELS))}", level)


def final_front(
    problem: Problem, done: Sequence[Evaluation], models: Models | None = None, *, level: float = 0.95
) -> tuple[Choice, ...]:
    """Measured settings that are non-dominated by posterior mean, in order of epsilon.

    Further objectives enter by their posterior means too.
    """
    _checked(done, level)
    models = models or fit_models(problem, done)
    x = _inputs(problem, models, done)
    means = [m.inverse(s.predict(x)[0]) for m, s in zip(problem.measures, models.noisy, strict=True)]
    points = problem.axes([e.epsilon for e in done], np.column_stack(means))
    choices = _choices(problem, done, models, level)
    return tuple(choices[i] for i in pareto_indices(points))


def suggest(
    problem: Problem,
    done: Sequence[Evaluation],
    *,
    epsilon: float,
    models: Models | None = None,
    level: float = 0.95,
    seed: int = 0,
) -> Advice:
    """The best measured setting with epsilon within the bound, and the best by the models over the whole space."""
    must(math.isfinite(epsilon) and epsilon > 0, "epsilon", "must be positive and finite", epsilon)
    _checked(done, level)
    models = models or fit_models(problem, done)
    within = [c for c in _choices(problem, done, models, level) if c.epsilon <= epsilon]
    best = min(within, key=lambda c: c.predicted, default=None)
    return Advice(epsilon, best, _searched(problem, done, models, epsilon, level, seed), level)


def _searched(
    problem: Problem, done: Sequence[Evaluation], models: Models, epsilon: float, level: float, seed: int
) -> Choice:
    """Uniform candidates and the measured settings, then shrinking moves around the best eight within the bound."""
    rng = synthetic_data_generator(seeded(seed))
    dim = problem.space.dim
    known = np.array([problem.space.encode(e.setting) for e in done])
    pool = np.vstack([rng.random((2048, dim)), known])
    kept = np.empty((0, dim))
    value = np.empty(0)
    for shrink in (0.1, 0.05, 0.02, 0.01, 0.003, 0.001):
        settings, x = problem.space.snap(np.clip(pool, 0, 1))
        a = ln_epsilon(problem, models, settings, x)
        allowed = a <= math.log(epsilon)
        if allowed.any():
            kept = np.vstack([kept, x[allowed]])
            value = np.append(value, models.noisy[0].predict(models.inputs(x[allowed], a[allowed]))[0])
            top = np.argsort(value)[:8]
            kept, value = kept[top], value[top]
        start = kept if len(kept) else known
        pool = np.repeat(start, 32, axis=0) + shrink * rng.normal(size=(32 * len(start), dim))
    # A model of epsilon may have let some in: only the oracle's word counts in the end.
    for row in kept[np.argsort(value)]:
        setting = problem.space.decode(row)
        exact = problem.epsilon(setting)
        if exact <= epsilon:
            inputs = models.inputs(row[None], np.log([exact]))
            mean, low, high = _predicted(problem, models, inputs, level)
            return Choice(setting, exact, float(mean[0]), float(low[0]), float(high[0]))
    raise InvalidInput(f"`epsilon` must be within reach of the mechanism. Got {epsilon}, below every setting tried.")
