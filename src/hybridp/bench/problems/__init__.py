"""Mechanisms with knobs, ready for the Pareto bench: `load(name)` builds the problem, importing only what it needs.

>>> names()[:4]
('svt', 'logreg', 'dpsgd-adult', 'dpadam-adult')
>>> load("svt").space.names
('C', 'b')
>>> load("svd")
Traceback (most recent call last):
    ...
hybridp.errors.InvalidInput: `problem` must be one of svt, logreg, dpsgd-adult, ... Got svd.
"""

from __future__ import annotations

from importlib import import_module

from hybridp.bench.pareto.problem import Problem
from hybridp.errors import must

__all__ = ["load", "names"]

# name -> module and function that builds it
_BUILDERS = {
    "svt": ("svt", "sparse_vector_problem"),
    "logreg": ("logistic", "logistic_problem"),
    "dpsgd-adult": ("adult", "dpsgd_problem"),
    "dpadam-adult": ("adult", "dpadam_problem"),
    "svm-adult": ("adult", "svm_problem"),
    "mlp-mnist": ("mnist", "mlp2_problem"),
    "mlp1-mnist": ("mnist", "mlp1_problem"),
    "hybrid-mean": ("ours", "mean_problem"),
    "blender": ("ours", "blender_problem"),
    "rap": ("ours", "rap_problem"),
}


def names() -> tuple[str, ...]:
    """The problems that come with the library."""
    return tuple(_BUILDERS)


def load(name: str) -> Problem:
    """The named problem, with its data: real where the environment variable HYBRIDP_DATA says so, else generated."""
    must(name in _BUILDERS, "problem", f"must be one of {', '.join(_BUILDERS)}", name)
    module, function = _BUILDERS[name]
    problem: Problem = getattr(import_module(f"{__name__}.{module}"), function)()
    return problem
