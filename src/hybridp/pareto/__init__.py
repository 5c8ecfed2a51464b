"""The privacy-utility Pareto front of any mechanism with knobs (Avent 2023, chapter 3).

A `Problem` joins a `Space` of knobs, an exact privacy oracle and a noisy utility oracle; `dpareto` finds its front,
`Store` makes the run durable, `suggest` answers "which setting for epsilon <= 1". Importing this package imports
neither torch nor botorch.

>>> problem = Problem("toy", Space({"b": LogReal(0.01, 100)}), lambda s: 1 / s["b"], lambda s, seed: 1 / (1 + s["b"]))
>>> found = random_search(problem, n=8, seed=1)
>>> len(found.front)
8
"""

from hybridp.pareto.models import Models, fit_models
from hybridp.pareto.problem import (
    Categorical,
    Evaluation,
    Integer,
    LogInteger,
    LogReal,
    Measure,
    Problem,
    Real,
    Setting,
    Space,
    band,
    hypervolume,
    load_problem,
    pareto_indices,
    problem_names,
    staircase,
)
from hybridp.pareto.publish import Advice, Choice, Cost, final_front, publishing_cost, suggest
from hybridp.pareto.run import Run, Store, dpareto, observed_hypervolume, random_search, search

__all__ = ["Advice", "Categorical", "Choice", "Cost", "Evaluation", "Integer", "LogInteger", "LogReal", "Measure"]
__all__ += ["Models", "Problem", "Real", "Run", "Setting", "Space", "Store", "band", "dpareto"]
__all__ += ["final_front", "fit_models", "hypervolume", "load_problem", "observed_hypervolume"]
__all__ += ["pareto_indices", "problem_names", "publishing_cost", "random_search", "search", "staircase", "suggest"]
