"""DP-SGD and DP-Adam on ADULT as problems: the domains of Table 3.1 and the hand-made laws of Table 3.2.

The features are the 13 columns one-hot (586, and a constant). The utility is the accuracy on 8,842 test examples, one
number a run; epsilon is for delta = 1e-6 and replacement of one of the 40,000 training examples.
"""

from __future__ import annotations

from functools import lru_cache, partial
from typing import Literal

import torch
from torch import Tensor

from hybridp.errors import must
from hybridp.pareto import (
    LogInteger,
    LogReal,
    Normal,
    Problem,
    ShiftedExponential,
    Space,
    Uniform,
)
from hybridp.pareto.space import Law, Setting
from hybridp.public.training import Training
from hybridp_lab.problems.data import ADULT_SIZES, ADULT_TRAIN, adult
from hybridp_lab.training import LinearLoss, OneHot, OptimiserName, Recipe, train_linear
from hybridp_lab.training.linear import accuracy

__all__ = ["DELTA", "LAWS", "SPACE", "dpadam_problem", "dpsgd_problem", "svm_problem"]

DELTA = 1e-6
RUNS = 3
SPACE = Space(
    {
        "epochs": LogInteger(1, 64),
        "lot": LogInteger(8, 512),
        "rate": LogReal(5e-4, 5e-2),
        "variance": LogReal(0.1, 16.0),
        "clip": LogReal(0.1, 4.0),
    }
)
LAWS: dict[str, Law] = {
    "epochs": Uniform(1, 64),
    "lot": Normal(128, 64, accept=(8, 512)),
    "rate": ShiftedExponential(10, 1e-3, accept=(1e-3, 1e-1)),
    "variance": ShiftedExponential(0.1, 0.1, accept=(0.1, 16)),
    "clip": ShiftedExponential(0.1, 0.1, accept=(0.1, 4)),
}


@lru_cache(maxsize=4)
def _prepared(part: Literal["train", "test"], people: int) -> tuple[OneHot, Tensor]:
    data = adult()
    codes, labels = (data.train, data.train_labels) if part == "train" else (data.test, data.test_labels)
    design = OneHot.of(torch.as_tensor(codes[:people]), ADULT_SIZES)
    return design, torch.as_tensor(labels[:people], dtype=torch.float32)


def recipe_of(setting: Setting, optimiser: OptimiserName) -> Recipe:
    """Table 3.1's knobs; its noise variance is sigma^2."""
    return Recipe(
        epochs=int(setting["epochs"]),
        batch=int(setting["lot"]),
        rate=float(setting["rate"]),
        noise=float(setting["variance"]) ** 0.5,
        clip=float(setting["clip"]),
        optimiser=optimiser,
    )


def privacy_of(setting: Setting, people: int, delta: float) -> float:
    """epsilon of DP-SGD and DP-Adam alike: neither the clipping norm nor the learning rate matters."""
    noise = float(setting["variance"]) ** 0.5
    return Training(people, int(setting["lot"]), int(setting["epochs"]), noise).epsilon(delta)


def _utility(
    setting: Setting, seed: int, *, loss: LinearLoss, optimiser: OptimiserName, people: int, runs: int
) -> list[float]:
    design, labels = _prepared("train", people)
    test, truth = _prepared("test", len(adult().test))
    weights = train_linear(design, labels, recipe_of(setting, optimiser), loss=loss, runs=runs, seed=seed)
    found: list[float] = accuracy(test, truth, weights).tolist()
    return found


def _problem(name: str, loss: LinearLoss, optimiser: OptimiserName, people: int, runs: int) -> Problem:
    data = adult()
    must(512 <= people <= len(data.train), "people", f"must lie between 512 and {len(data.train)}", people)
    return Problem(
        name,
        SPACE,
        partial(privacy_of, people=people, delta=DELTA),
        partial(_utility, loss=loss, optimiser=optimiser, people=people, runs=runs),
        anti_ideal=(10.0, 0.5),
        delta=DELTA,
        laws=LAWS,
        sensitivity=1 / len(data.test),
        version=f"1 {data.source} {people} {runs}",
    )


def dpsgd_problem(people: int = ADULT_TRAIN, runs: int = RUNS) -> Problem:
    """LogReg+SGD (Alg. 3.3); fewer people and runs make a quicker problem, and another one."""
    return _problem("dpsgd-adult", "logistic", "sgd", people, runs)


def dpadam_problem(people: int = ADULT_TRAIN, runs: int = RUNS) -> Problem:
    """LogReg+Adam (Alg. 3.4)."""
    return _problem("dpadam-adult", "logistic", "adam", people, runs)


def svm_problem(people: int = ADULT_TRAIN, runs: int = RUNS) -> Problem:
    """SVM+SGD: the hinge loss."""
    return _problem("svm-adult", "hinge", "sgd", people, runs)
