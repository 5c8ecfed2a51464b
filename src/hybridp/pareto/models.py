"""Gaussian processes of the noisy objectives, by botorch and gpytorch, on the transformed scale.

One `SingleTaskGP` an objective, on the unit cube, its outcome standardised. Utility follows epsilon closely and epsilon
is known exactly, so ln(epsilon) is one more input of the model (the third open problem of Avent 2023, section 3.6, asks
for models made for privacy). Where every evaluation has several runs, the variance of their mean (delta method through
the transform) is given to the model as known noise; with single runs the noise is fitted. Hyperparameters are fitted
again only when the data have grown by an eighth; in between, new data are merely conditioned on.

What to evaluate next, of candidates of the unit cube. The privacy oracle is exact, so a candidate's ln(epsilon) is
known and only its errors are uncertain. The hypervolume that a candidate adds is summed over botorch's partition of the
region that the front does not dominate, and its expectation taken in the plain errors, on quantiles of the models'
normal laws. The front stands on posterior means, not on lucky observations. The dissertation's acquisition and
botorch's are the laboratory's (`hybridp_lab.baselines.acquisition`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np

from hybridp.pareto.problem import Evaluation, Problem, Setting, Space, Value, pareto_indices, quiet
from hybridp.public.randomisers import Floats

__all__ = ["Choose", "Models", "Score", "Surrogate", "believe", "best_settings", "by_gain", "cells", "error_models"]
__all__ += ["expected_gain", "fit_models", "gain", "ln_epsilon", "log", "next_setting", "smoothed", "surrogate"]

# With fewer runs than this, their spread says too little to be used as known noise.
_RUNS = 5


@final
@dataclass(frozen=True)
class Surrogate:
    """The posterior of one objective on the model's scale, with the data that it holds."""

    gp: Any
    x: Floats
    z: Floats
    noise: Floats | None
    fitted: int
    warped: int = 0

    def predict(self, x: Floats) -> tuple[Floats, Floats]:
        """Mean and standard deviation of the noise-free objective at rows of the cube."""
        import torch

        with torch.no_grad(), quiet():
            posterior = self.gp.posterior(torch.as_tensor(x, dtype=torch.double))
            mean, var = posterior.mean.squeeze(-1).numpy(), posterior.variance.squeeze(-1).numpy()
        return mean, np.sqrt(np.maximum(var, 1e-12))

    def believing(self, x: Floats) -> Surrogate:
        """As if rows of the cube had turned out as predicted."""
        noise = None if self.noise is None else np.append(self.noise, np.full(len(x), np.median(self.noise)))
        # `fitted` is set to now: believed values must never train hyperparameters.
        trusted = replace(self, fitted=len(self.x) + len(x))
        z = np.append(self.z, self.predict(x)[0])
        return replace(surrogate(np.vstack([self.x, x]), z, noise, trusted, warped=self.warped), fitted=self.fitted)


@final
@dataclass(frozen=True)
class Models:
    """A surrogate of every noisy objective; `span` is the range of ln(epsilon) that becomes [0, 1] as an input."""

    noisy: tuple[Surrogate, ...]
    span: tuple[float, float]

    def inputs(self, x: Floats, ln_epsilon: Floats) -> Floats:
        """Rows for the surrogates, from points of the cube and their ln(epsilon)."""
        low, high = self.span
        return np.column_stack([x, np.clip((ln_epsilon - low) / (high - low), -1.0, 2.0)])


def fit_models(problem: Problem, done: Sequence[Evaluation], before: Models | None = None) -> Models:
    """Models of evaluations that succeeded; `before` lends its hyperparameters while they are fresh."""
    z = np.log([e.epsilon for e in done])
    span = before.span if before else (float(z.min()), float(max(z.max(), z.min() + 1e-3)))
    x = Models((), span).inputs(problem.space.encoded([e.setting for e in done]), z)
    return Models(error_models(problem, done, x, before.noisy if before else (), warped=problem.space.dim), span)


def error_models(
    problem: Problem, done: Sequence[Evaluation], x: Floats, before: Sequence[Surrogate], *, warped: int = 0
) -> tuple[Surrogate, ...]:
    """A surrogate of every noisy objective on these inputs."""
    costs = np.array([e.values for e in done]).T
    old: Sequence[Surrogate | None] = before or [None] * len(costs)
    known = [_noise(problem, done), *[None] * (len(costs) - 1)]
    every = zip(problem.measures, costs, known, old, strict=True)
    return tuple(surrogate(x, measure.model(cost), noise, one, warped=warped) for measure, cost, noise, one in every)


def believe(problem: Problem, models: Models, settings: Sequence[Setting]) -> Models:
    """The models as if each pending setting had turned out as predicted ("kriging believer"), for batches."""
    if not settings:
        return models
    x = models.inputs(problem.space.encoded(settings), np.log([problem.epsilon(s) for s in settings]))
    return replace(models, noisy=tuple(one.believing(x) for one in models.noisy))


def _noise(problem: Problem, done: Sequence[Evaluation]) -> Floats | None:
    """Variance of each mean error on the model's scale."""
    if min(len(e.runs) for e in done) < _RUNS:
        return None
    runs = np.array([len(e.runs) for e in done])
    var = np.array([np.var(e.runs, ddof=1) for e in done])
    # Runs that all agree have not shown a variance of 0: one pseudo-run brings in the pooled spread.
    var = (var * (runs - 1) + float(np.mean(var))) / runs
    mean = np.array([e.values[0] for e in done])
    return np.asarray(np.clip(var / runs * problem.measure.slope(mean) ** 2, 1e-5, 4.0))


def surrogate(x: Floats, z: Floats, noise: Floats | None, before: Surrogate | None, *, warped: int = 0) -> Surrogate:
    """A GP of z; the first `warped` inputs pass through fitted Kumaraswamy warps (Snoek et al. 2014)."""
    with quiet():
        import torch
        from botorch.fit import fit_gpytorch_mll
        from botorch.models import SingleTaskGP
        from botorch.models.transforms import Standardize
        from botorch.models.transforms.input import Warp
        from gpytorch.mlls import ExactMarginalLogLikelihood
        from gpytorch.priors import LogNormalPrior

    def column(values: Floats) -> Any:
        return torch.as_tensor(values, dtype=torch.double).reshape(-1, 1)

    warp = None
    if warped:
        # Priors centred on the identity; a knob that matters on one end only is stretched there.
        prior = {f"concentration{i}_prior": LogNormalPrior(0.0, 0.75**0.5) for i in (0, 1)}
        warp = Warp(d=x.shape[1], indices=list(range(warped)), **prior)
    with quiet():
        gp = SingleTaskGP(
            torch.as_tensor(x, dtype=torch.double),
            column(z),
            None if noise is None else column(noise),
            outcome_transform=Standardize(1),
            input_transform=warp,
        )
        if before is not None:
            # Lengthscales, mean and fitted noise; the scaling of the outcome and known noise belong to the data.
            known = {name: value for name, value in before.gp.named_parameters() if value.requires_grad}
            gp.load_state_dict(known, strict=False)
        if before is None or len(x) >= before.fitted + max(4, before.fitted // 8):
            fitting = ExactMarginalLogLikelihood(gp.likelihood, gp)
            fit_gpytorch_mll(fitting, optimizer_kwargs={"options": {"maxiter": 60}})
            return Surrogate(gp, x, z, noise, len(x), warped)
    gp.eval()
    return Surrogate(gp, x, z, noise, before.fitted, warped)


# How much candidates are wanted, from settings and their points of the cube.
Score: TypeAlias = Callable[[list[dict[str, Value]], Floats], Floats]
# What to evaluate next, after evaluations that succeeded and that failed, while others are under way.
Choose: TypeAlias = Callable[
    [Sequence[Evaluation], Sequence[Evaluation], Sequence[Setting], np.random.Generator], dict[str, Value]
]

# Posterior draws an error is averaged over: midpoints of equally likely slices.
_SLICES = 16
# Stands for minus infinity on a transformed axis: finite, so that no cell is infinite times nothing.
_FAR = 1e6


def best_settings(space: Space, known: Floats, score: Score, rng: np.random.Generator) -> list[dict[str, Value]]:
    """Candidates, the largest score first: a uniform pool and known points, then four rounds of shrinking moves."""
    dim = space.dim
    near = known[rng.integers(len(known), size=256)] + 0.05 * rng.normal(size=(256, dim))
    pool = np.vstack([rng.random((512, dim)), np.clip(near, 0, 1), known])
    settings: list[dict[str, Value]] = []
    x, values = np.empty((0, dim)), np.empty(0)
    for shrink in (0.1, 0.03, 0.01, 0.003, 0.0):
        new = [space.decode(row) for row in pool]
        places = space.encoded(new)
        scores = score(new, places)
        settings, x = settings + new, np.vstack([x, places])
        values = np.append(values, np.where(np.isnan(scores), -np.inf, scores))
        top = np.argsort(-values)[:8]
        # Half of the moves change one knob only: in several dimensions those are the ones that succeed.
        moves = shrink * rng.normal(size=(16 * len(top), dim))
        single = rng.integers(dim, size=len(moves))
        mask = (np.arange(dim)[None] == single[:, None]) | (np.arange(len(moves))[:, None] % 2 == 0)
        pool = np.clip(np.repeat(x[top], 16, axis=0) + moves * mask, 0, 1)
    return [settings[i] for i in np.argsort(-values)]


def by_gain(problem: Problem) -> Choose:
    """By the expected gain, with models that lend their hyperparameters to the next choice."""
    models: Models | None = None

    def choose(
        done: Sequence[Evaluation], failed: Sequence[Evaluation], waiting: Sequence[Setting], rng: np.random.Generator
    ) -> dict[str, Value]:
        nonlocal models
        models = fit_models(problem, done, models)
        score = expected_gain(problem, believe(problem, models, waiting), done, rng)
        return next_setting(problem, score, [*(e.setting for e in done), *waiting], failed, rng)

    return choose


def next_setting(
    problem: Problem, score: Score, known: Sequence[Setting], failed: Sequence[Evaluation], rng: np.random.Generator
) -> dict[str, Value]:
    """The candidate with the largest score (a logarithm), near known settings or anywhere."""
    bad = problem.space.encoded([e.setting for e in failed])

    def repelled(settings: list[dict[str, Value]], x: Floats) -> Floats:
        values = score(settings, x)
        if len(bad):  # nothing is learnt about settings that failed, so nothing else would keep others away
            near = ((x[:, None, :] - bad[None, :, :]) ** 2).sum(2).min(1)
            values = values + np.log(np.maximum(-np.expm1(-near / 0.05**2), 1e-300))
        return values

    return best_settings(problem.space, problem.space.encoded(known), repelled, rng)[0]


def log(values: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(values, 1e-300)))


def ln_epsilon(problem: Problem, settings: Sequence[Setting]) -> Floats:
    """ln(epsilon) by the oracle, inf where it refuses."""
    out = np.empty(len(settings))
    for i, setting in enumerate(settings):
        try:
            out[i] = np.log(problem.epsilon(setting))
        except Exception:
            out[i] = np.inf
    return out


def smoothed(problem: Problem, models: Models, epsilon: Sequence[float]) -> Floats:
    """The models' own data on the axes of the volume, each noisy objective at its posterior mean."""
    values = [m.inverse(s.predict(s.x)[0]) for m, s in zip(problem.measures, models.noisy, strict=True)]
    return problem.axes(epsilon, np.column_stack(values))


def _front(problem: Problem, models: Models, done: Sequence[Evaluation]) -> Floats:
    """Of the evaluations and of what is believed of pending settings."""
    later = models.noisy[0].x[len(done) :, : problem.space.dim]
    epsilon = [*(e.epsilon for e in done), *(problem.epsilon(problem.space.decode(row)) for row in later)]
    points = smoothed(problem, models, epsilon)
    points = points[(points < problem.corner).all(1)]
    return points[pareto_indices(points)]


def expected_gain(problem: Problem, models: Models, done: Sequence[Evaluation], rng: np.random.Generator) -> Score:
    """The hypervolume that a candidate is expected to add to the smoothed front."""
    from scipy.special import ndtri

    corner = problem.corner
    lower, upper = cells(_front(problem, models, done), corner)
    plan = np.asarray(ndtri((np.arange(_SLICES) + 0.5) / _SLICES))
    draws = np.column_stack([rng.permutation(plan) for _ in models.noisy])

    def volume(settings: list[dict[str, Value]], x: Floats) -> Floats:
        a = ln_epsilon(problem, settings)
        ends = [s.predict(models.inputs(x, a)) for s in models.noisy]
        total = np.zeros(len(x))
        for draw in draws:
            columns = [np.where(np.isfinite(a), a, corner[0])]
            for (mean, sd), m, t in zip(ends, problem.measures, draw, strict=True):
                columns.append(np.asarray(m.on_axis(m.inverse(mean + t * sd))))
            total += gain(np.column_stack(columns), lower, upper)
        return log(total / len(draws))

    return volume


def cells(front: Floats, corner: Floats) -> tuple[Floats, Floats]:
    """Disjoint boxes that fill the region below `corner` that the front does not dominate (minimisation).

    >>> lower, upper = cells(np.array([[0.0, 0.0]]), np.array([1.0, 1.0]))
    >>> bool((lower < -1e5).any()), len(upper)
    (True, 2)
    """
    with quiet():
        import torch
        from botorch.utils.multi_objective.box_decompositions.non_dominated import FastNondominatedPartitioning

    result = FastNondominatedPartitioning(
        torch.as_tensor(-corner, dtype=torch.double),
        torch.as_tensor(-front.reshape(-1, len(corner)), dtype=torch.double),
    )
    high, low = (-result.get_hypercell_bounds()).numpy()
    return np.clip(low, -_FAR, _FAR), np.clip(high, -_FAR, _FAR)


def gain(points: Floats, lower: Floats, upper: Floats) -> Floats:
    """Hypervolume that each point would add: the part of every cell that lies above it."""
    sides = np.maximum(upper[None] - np.maximum(lower[None], points[:, None, :]), 0.0)
    return np.asarray(sides.prod(2).sum(1))
