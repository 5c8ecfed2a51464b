"""What the search for a front is compared with: two other ways to choose what to evaluate next, and a grid.

`hvpoi`: Avent 2023, equation (3.1), after Couckuyt et al. 2014: gain of the posterior mean times the probability of
improvement, in the transformed space, with a model for ln(epsilon) too.

`nehvi`: botorch's log noisy expected hypervolume improvement on the same models.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from hybridp.errors import must
from hybridp.pareto import Evaluation, Integer, LogInteger, Problem, Run, Setting, Space, pareto_indices, search
from hybridp.pareto.models import (
    Choose,
    Score,
    Surrogate,
    cells,
    error_models,
    gain,
    log,
    next_setting,
    surrogate,
)
from hybridp.pareto.problem import Categorical, Knob, Value, quiet
from hybridp.public.randomisers import Floats

__all__ = ["PrintedModels", "by_hvpoi", "by_nehvi", "fit_printed", "full_grid", "grid_search", "hvpoi", "knob_levels"]
__all__ += ["nehvi", "poi", "volume_poi"]

# The privacy oracle has no noise; a jitter keeps the Cholesky factor well-conditioned.
_EXACT = 1e-6


@dataclass(frozen=True)
class PrintedModels:
    """The models of the dissertation: of ln(epsilon), and of every noisy objective, each on the knobs alone."""

    privacy: Surrogate
    noisy: tuple[Surrogate, ...]

    @property
    def every(self) -> tuple[Surrogate, ...]:
        return (self.privacy, *self.noisy)


def fit_printed(problem: Problem, done: Sequence[Evaluation], before: PrintedModels | None = None) -> PrintedModels:
    """Models of evaluations that succeeded; `before` lends its hyperparameters while they are fresh."""
    x, z = problem.space.encoded([e.setting for e in done]), np.log([e.epsilon for e in done])
    privacy = surrogate(x, z, np.full(len(x), _EXACT), before.privacy if before else None)
    return PrintedModels(privacy, error_models(problem, done, x, before.noisy if before else ()))


def _chooser(
    acquisition: Callable[[Problem, PrintedModels, Sequence[Evaluation], np.random.Generator], Score], problem: Problem
) -> Choose:
    models: PrintedModels | None = None

    def choose(
        done: Sequence[Evaluation], failed: Sequence[Evaluation], waiting: Sequence[Setting], rng: np.random.Generator
    ) -> dict[str, Value]:
        nonlocal models
        models = seen = fit_printed(problem, done, models)
        if waiting:
            x = problem.space.encoded(waiting)
            seen = PrintedModels(models.privacy.believing(x), tuple(one.believing(x) for one in models.noisy))
        score = acquisition(problem, seen, done, rng)
        return next_setting(problem, score, [*(e.setting for e in done), *waiting], failed, rng)

    return choose


def poi(mean: Floats, sd: Floats, lower: Floats, upper: Floats) -> Floats:
    """Probability that independent normals fall into the cells."""
    from scipy.special import ndtr

    spread = np.maximum(sd, 1e-9)[:, None, :]
    inside = ndtr((upper[None] - mean[:, None, :]) / spread) - ndtr((lower[None] - mean[:, None, :]) / spread)
    return np.asarray(inside.prod(2).sum(1))


def volume_poi(front: Floats, corner: Floats, mean: Floats, sd: Floats) -> Floats:
    """Gain of the mean times the probability of improvement (Avent 2023, equation 3.1)."""
    lower, upper = cells(front, corner)
    return gain(mean, lower, upper) * poi(mean, sd, lower, upper)


def _transformed(problem: Problem, done: Sequence[Evaluation]) -> tuple[Floats, Floats]:
    """Observed points and the anti-ideal point in the models' space."""
    values = np.array([e.values for e in done])
    columns = [np.log([e.epsilon for e in done])]
    columns += [m.model(values[:, j]) for j, m in enumerate(problem.measures)]
    worst = [float(m.model(np.array([v]))[0]) for m, v in zip(problem.measures, problem.anti_ideal[1:], strict=True)]
    return np.column_stack(columns), np.array([np.log(problem.anti_ideal[0]), *worst])


def hvpoi(problem: Problem, models: PrintedModels, done: Sequence[Evaluation], rng: np.random.Generator) -> Score:
    """Equation (3.1)."""
    points, corner = _transformed(problem, done)
    every = models.every
    extra = models.noisy[0].x[len(done) :]
    if len(extra):  # believed, pending settings
        points = np.vstack([points, np.column_stack([s.predict(extra)[0] for s in every])])
    points = points[(points < corner).all(1)]
    lower, upper = cells(points[pareto_indices(points)], corner)

    def score(settings: list[dict[str, Value]], x: Floats) -> Floats:
        ends = [s.predict(x) for s in every]
        mean, sd = np.column_stack([e[0] for e in ends]), np.column_stack([e[1] for e in ends])
        return log(gain(mean, lower, upper) * poi(mean, sd, lower, upper))

    return score


def nehvi(problem: Problem, models: PrintedModels, done: Sequence[Evaluation], rng: np.random.Generator) -> Score:
    """botorch's."""
    with quiet():
        import torch
        from botorch.acquisition.multi_objective import logei
        from botorch.acquisition.multi_objective.objective import WeightedMCMultiOutputObjective
        from botorch.models.model_list_gp_regression import ModelListGP
        from botorch.sampling.normal import SobolQMCNormalSampler

    # Some versions compile a kernel at first use, for minutes; a few hundred candidates do not repay that.
    logei._load_attempted = True
    _, corner = _transformed(problem, done)
    # Every member is a GP, the privacy one nearly noiseless: a deterministic member cannot be conditioned.
    every = models.every
    with quiet():
        result = logei.qLogNoisyExpectedHypervolumeImprovement(
            model=ModelListGP(*[s.gp for s in every]),
            ref_point=(-corner).tolist(),
            X_baseline=torch.as_tensor(models.noisy[0].x, dtype=torch.double),
            sampler=SobolQMCNormalSampler(torch.Size([32]), seed=int(rng.integers(2**31))),
            objective=WeightedMCMultiOutputObjective(-torch.ones(len(every), dtype=torch.double)),
            prune_baseline=True,
        )

    def score(settings: list[dict[str, Value]], x: Floats) -> Floats:
        with torch.no_grad(), quiet():
            return np.asarray(result(torch.as_tensor(x, dtype=torch.double).unsqueeze(1)).numpy())

    return score


def by_hvpoi(problem: Problem) -> Choose:
    """For `dpareto(..., chooser=by_hvpoi)`."""
    return _chooser(hvpoi, problem)


def by_nehvi(problem: Problem) -> Choose:
    """For `dpareto(..., chooser=by_nehvi)`."""
    return _chooser(nehvi, problem)


def grid_search(problem: Problem, *, per_axis: int, **how: Any) -> Run:
    """Every combination of `per_axis` levels of each knob, evaluated as `hybridp.pareto.search` does."""
    return search(problem, full_grid(problem.space, per_axis), **how)


def full_grid(space: Space, per_axis: int) -> list[dict[str, Value]]:
    """Every combination of `per_axis` evenly spread levels of each knob (fewer where a knob has fewer)."""
    must(per_axis >= 1, "per_axis", "must be at least 1", per_axis)
    axes = [knob_levels(knob, per_axis) for knob in space.knobs.values()]
    return [dict(zip(space.knobs, values, strict=True)) for values in itertools.product(*axes)]


def knob_levels(knob: Knob, n: int) -> list[Value]:
    """So many evenly spread values of a knob, fewer where it has fewer."""
    if isinstance(knob, Categorical):
        return list(knob.choices)
    if isinstance(knob, Integer | LogInteger):
        spread = np.geomspace if isinstance(knob, LogInteger) else np.linspace
        return sorted({round(v) for v in spread(knob.low, knob.high, n).tolist()})
    return [knob.decode(x) for x in ([0.5] if n == 1 else [i / (n - 1) for i in range(n)])]
