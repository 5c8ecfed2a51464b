"""Exact noise: drawn bit by bit (`exact`), added to sums (`additive`), or sent as reports (`reports`)."""

from hybridp.noise.additive import LARGEST_SCALE, bernoulli, discrete_gaussian, discrete_laplace, perturb, uniform_below
from hybridp.noise.reports import categories, dithered, reports

__all__ = ["LARGEST_SCALE", "bernoulli", "categories", "discrete_gaussian", "discrete_laplace", "dithered", "perturb"]
__all__ += ["reports", "uniform_below"]
