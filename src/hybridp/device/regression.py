"""A person's columns become one report about a regression, on that person's machine.

Guarantee: the report is epsilon-DP for the epsilon of its question, whatever the columns: the vector that it tells of
lies within public bounds before it is randomised. One report a person.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.vector import VectorBounds
>>> from hybridp.randomness import secure
>>> bounds = VectorBounds.of([0, 0], [10, 1])
>>> asked = Question("linear", "steered", bounds, PureDP(1.0), centre=(0.1, 0.2), clip=0.5)
>>> answer_question(bounds.steps([[7.0, 0.9]]), asked, rng=secure()).shape
(1, 2)
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hybridp.device.mean import reach_reports
from hybridp.device.stated import Reporter, vector_reporter
from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.regression import Question
from hybridp.public.vector import VectorBounds
from hybridp.randomness import Randomness

__all__ = ["answer_question", "line_teller"]


def answer_question(steps: NDArray[np.int64], question: Question, *, rng: Randomness) -> NDArray[np.float64]:
    """Reports of people (a row each, on the lattice, the target last), in reach coordinates; NaN where none is told."""
    return reach_reports(question.steps(steps), question.invite, rng=rng)


def line_teller(task: Mapping[str, Any], promise: PureDP | ApproxDP) -> Reporter:
    """Reports on the line of a task document, or of one of its questions; refused where it states another mechanism
    than the promise asks for."""
    sides, line = task["coordinates"], task["line"]
    bounds = VectorBounds.of([float(c["lower"]) for c in sides], [float(c["upper"]) for c in sides])
    pure, centre = PureDP(promise.epsilon), tuple(map(float, line["centre"]))
    asked = Question(task["model"], line["form"], bounds, pure, centre, float(line["clip"]))
    tell = vector_reporter(task["randomiser"], asked.invite)
    return lambda values, rng: tell(asked.steps(bounds.steps([values])), rng)
