"""Gaussian processes of the noisy objectives, by botorch and gpytorch, on the transformed scale.

One `SingleTaskGP` an objective, on the unit cube, its outcome standardised. Utility follows epsilon closely and epsilon
is known exactly, so ln(epsilon) is one more input of the model where the privacy oracle is cheap (the third
open problem of Avent 2023, section 3.6, asks for models made for privacy). Where every evaluation has several runs,
the variance of their mean (delta method through the transform) is given to the model as known noise; with
single runs the noise is fitted. Hyperparameters are fitted again only when the data have grown by an eighth; in
between, new data are merely conditioned on.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import NDArray

from hybridp.pareto.front import quiet
from hybridp.pareto.problem import Evaluation, Problem
from hybridp.pareto.space import Setting

__all__ = ["Models", "Surrogate", "believe", "fit_models", "refit_due"]

Floats: TypeAlias = NDArray[np.float64]

# With fewer runs than this, their spread says too little to be used as known noise.
_RUNS = 5
# The privacy oracle has no noise; a jitter keeps the Cholesky factor well-conditioned.
_EXACT = 1e-6


def refit_due(fitted: int, now: int) -> bool:
    """Whether hyperparameters fitted on `fitted` points are stale at `now` points.

    >>> [refit_due(16, 17), refit_due(16, 20), refit_due(200, 220), refit_due(200, 240)]
    [False, True, False, True]
    """
    return now >= fitted + max(4, fitted // 8)


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


@final
@dataclass(frozen=True)
class Models:
    """A surrogate of every noisy objective, and one of ln(epsilon) where it is wanted.

    `span` is the range of ln(epsilon) that becomes [0, 1] as an input, or None where it is not an input.
    """

    noisy: tuple[Surrogate, ...]
    privacy: Surrogate | None = None
    span: tuple[float, float] | None = None

    def inputs(self, x: Floats, ln_epsilon: Floats) -> Floats:
        """Rows for the noisy surrogates, from points of the cube and their ln(epsilon)."""
        if self.span is None:
            return x
        low, high = self.span
        return np.column_stack([x, np.clip((ln_epsilon - low) / (high - low), -1.0, 2.0)])


def fit_models(
    problem: Problem, done: Sequence[Evaluation], before: Models | None = None, *, exact: bool = True
) -> Models:
    """Models of evaluations that succeeded; `before` lends its hyperparameters while they are fresh.

    Without `exact`, or where the privacy oracle is declared dear, ln(epsilon) is modelled instead of used.
    """
    cube, z = np.array([problem.space.encode(e.setting) for e in done]), np.log([e.epsilon for e in done])
    span = None
    if exact and problem.cheap_privacy:
        span = before.span if before else (float(z.min()), float(max(z.max(), z.min() + 1e-3)))
    x = Models((), None, span).inputs(cube, z)
    values = np.array([e.values for e in done])
    noisy = tuple(
        _surrogate(
            x,
            measure.model(values[:, j]),
            _noise(problem, done) if j == 0 else None,
            before.noisy[j] if before else None,
            warped=problem.space.dim if exact else 0,
        )
        for j, measure in enumerate(problem.measures)
    )
    if span is not None:
        return Models(noisy, None, span)
    return Models(noisy, _surrogate(cube, z, np.full(len(x), _EXACT), before.privacy if before else None))


def believe(problem: Problem, models: Models, settings: Sequence[Setting]) -> Models:
    """The models as if each pending setting had turned out as predicted ("kriging believer"), for batches."""
    if not settings:
        return models
    cube, z = np.array([problem.space.encode(s) for s in settings]), np.zeros(len(settings))
    if models.span is not None:
        z = np.log([problem.epsilon(s) for s in settings])

    def with_belief(one: Surrogate, x: Floats) -> Surrogate:
        noise = None if one.noise is None else np.append(one.noise, np.full(len(x), np.median(one.noise)))
        # `fitted` is set to now: believed values must never train hyperparameters.
        now = len(one.x) + len(x)
        trusted = replace(one, fitted=now)
        z_all = np.append(one.z, one.predict(x)[0])
        return replace(_surrogate(np.vstack([one.x, x]), z_all, noise, trusted, warped=one.warped), fitted=one.fitted)

    noisy = tuple(with_belief(one, models.inputs(cube, z)) for one in models.noisy)
    return Models(noisy, with_belief(models.privacy, cube) if models.privacy else None, models.span)


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


def _surrogate(x: Floats, z: Floats, noise: Floats | None, before: Surrogate | None, *, warped: int = 0) -> Surrogate:
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
            gp.load_state_dict(_hyperparameters(before.gp), strict=False)
        if before is None or refit_due(before.fitted, len(x)):
            fitting = ExactMarginalLogLikelihood(gp.likelihood, gp)
            fit_gpytorch_mll(fitting, optimizer_kwargs={"options": {"maxiter": 60}})
            return Surrogate(gp, x, z, noise, len(x), warped)
    gp.eval()
    return Surrogate(gp, x, z, noise, before.fitted, warped)


def _hyperparameters(gp: Any) -> dict[str, Any]:
    """Lengthscales, mean and fitted noise; the scaling of the outcome and known noise belong to the data."""
    return {name: value for name, value in gp.named_parameters() if value.requires_grad}
