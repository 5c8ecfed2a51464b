"""DP-SGD and DP-Adam on ADULT as problems: the domains of Table 3.1 and the hand-made laws of Table 3.2.

Two settings. "ours": 13 columns one-hot (586, and a constant), 40,000 to train on and 8,842 to test, the table's last
knob read as a variance, delta = 1e-6, w = 0 at first, and (10, .5) as the anti-ideal point. "original", as the authors'
own code has it: LIBSVM's a1a (123 binary features and a constant; 30,956 and 1,605), the knob read as sigma, delta =
1e-5, a random start (the constant's weight with a standard deviation of 1.7), and (10, .999). Epsilon is for
replacement of one training example in both.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from hybridp.errors import must
from hybridp.pareto import Integer, LogInteger, LogReal, Problem, Real, Space
from hybridp.pareto.problem import Setting
from hybridp_lab.problems.data import A1A_FEATURES, ADULT_SIZES, ADULT_TRAIN, a1a, adult
from hybridp_lab.problems.laws import Law, Normal, ShiftedExponential, Uniform
from hybridp_lab.training import LinearLoss, OneHot, OptimiserName, Recipe, train_linear
from hybridp_lab.training.accounting import Training
from hybridp_lab.training.design import Dense, Design
from hybridp_lab.training.linear import accuracy

if TYPE_CHECKING:
    from hybridp_lab.training.linear_cuda import BinaryRows

__all__ = ["DELTA", "EVEN", "LAWS", "ORIGINAL_DELTA", "SPACE", "Settings", "dpadam_problem"]
__all__ += ["dpsgd_problem", "svm_problem", "utilities_on_gpu"]

Settings = Literal["ours", "original"]
DELTA, ORIGINAL_DELTA = 1e-6, 1e-5
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
# The same intervals as printed: the authors' code draws uniform settings from them, and lays its grids, evenly.
EVEN = Space(
    {
        "epochs": Integer(1, 64),
        "lot": Integer(8, 512),
        "rate": Real(5e-4, 5e-2),
        "variance": Real(0.1, 16.0),
        "clip": Real(0.1, 4.0),
    }
)


@lru_cache(maxsize=4)
def _prepared(part: Literal["train", "test"], people: int, settings: Settings) -> tuple[Design, Tensor]:
    data = adult() if settings == "ours" else a1a()
    codes, labels = (data.train, data.train_labels) if part == "train" else (data.test, data.test_labels)
    truth = torch.as_tensor(labels[:people], dtype=torch.float32)
    if settings == "ours":
        return OneHot.of(torch.as_tensor(codes[:people]), ADULT_SIZES), truth
    rows = torch.as_tensor(codes[:people], dtype=torch.float32)
    return Dense.of(torch.cat([rows, torch.ones(len(rows), 1)], dim=1)), truth


def _start() -> Tensor:
    """Standard deviations of the original's start: Glorot's for the features, and 1.7 for the constant."""
    return torch.cat([torch.full((A1A_FEATURES,), (2 / (A1A_FEATURES + 1)) ** 0.5), torch.tensor([1.7])])


def noise_of(setting: Setting, settings: Settings = "ours") -> float:
    """sigma: Table 3.1 calls the knob a variance, and the authors' code takes it as sigma itself."""
    knob = float(setting["variance"])
    return knob if settings == "original" else knob**0.5


def recipe_of(setting: Setting, optimiser: OptimiserName, settings: Settings = "ours") -> Recipe:
    """Table 3.1's knobs."""
    return Recipe(
        epochs=int(setting["epochs"]),
        batch=int(setting["lot"]),
        rate=float(setting["rate"]),
        noise=noise_of(setting, settings),
        clip=float(setting["clip"]),
        optimiser=optimiser,
    )


def privacy_of(setting: Setting, people: int, delta: float, settings: Settings = "ours") -> float:
    """epsilon of DP-SGD and DP-Adam alike: neither the clipping norm nor the learning rate matters."""
    return Training(people, int(setting["lot"]), int(setting["epochs"]), noise_of(setting, settings)).epsilon(delta)


def _utility(
    setting: Setting,
    seed: int,
    *,
    loss: LinearLoss,
    optimiser: OptimiserName,
    people: int,
    runs: int,
    settings: Settings,
) -> list[float]:
    design, labels = _prepared("train", people, settings)
    test, truth = _prepared("test", 10**6, settings)
    recipe = recipe_of(setting, optimiser, settings)
    spread = _start() if settings == "original" else None
    weights = train_linear(design, labels, recipe, loss=loss, runs=runs, spread=spread, seed=seed)
    result: list[float] = accuracy(test, truth, weights).tolist()
    return result


_MODELS: dict[str, tuple[LinearLoss, OptimiserName]] = {
    "dpsgd-adult": ("logistic", "sgd"),
    "dpadam-adult": ("logistic", "adam"),
    "svm-adult": ("hinge", "sgd"),
}


@lru_cache(maxsize=2)
def _on_gpu(people: int) -> tuple[BinaryRows, Tensor, Tensor]:
    from hybridp_lab.training.linear_cuda import BinaryRows

    data = a1a()

    def whole(rows: NDArray[np.generic]) -> NDArray[np.uint8]:
        return np.column_stack([rows.astype(np.uint8), np.ones(len(rows), np.uint8)])

    test = torch.as_tensor(whole(data.test), dtype=torch.float32, device="cuda")
    truth = torch.as_tensor(data.test_labels > 0, device="cuda")
    return BinaryRows(whole(data.train[:people]), data.train_labels[:people]), test, truth


def utilities_on_gpu(
    name: str, chosen: Sequence[Setting], seeds: Sequence[int], *, people: int, runs: int
) -> list[list[float]]:
    """The utilities of many settings of a model in the original's settings, trained all at once."""
    from hybridp_lab.training.linear_cuda import train_many

    loss, optimiser = _MODELS[name]
    rows, test, truth = _on_gpu(people)
    recipes = [recipe_of(setting, optimiser, "original") for setting in chosen]
    weights = train_many(rows, recipes, seeds, runs=runs, loss=loss, spread=_start())
    result = []
    for own in torch.split(weights, 512):
        right = (torch.einsum("srf,tf->srt", own, test) > 0) == truth
        result += right.to(torch.float64).mean(dim=2).tolist()
    return result


def _problem(
    name: str, loss: LinearLoss, optimiser: OptimiserName, people: int, runs: int, settings: Settings
) -> Problem:
    data = adult() if settings == "ours" else a1a()
    delta = DELTA if settings == "ours" else ORIGINAL_DELTA
    people = len(data.train) if (people, settings) == (ADULT_TRAIN, "original") else people
    must(512 <= people <= len(data.train), "people", f"must lie between 512 and {len(data.train)}", people)
    return Problem(
        name,
        SPACE,
        partial(privacy_of, people=people, delta=delta, settings=settings),
        partial(_utility, loss=loss, optimiser=optimiser, people=people, runs=runs, settings=settings),
        anti_ideal=(10.0, 0.5 if settings == "ours" else 0.999),
        delta=delta,
        sensitivity=1 / len(data.test),
        version=f"1 {data.source} {people} {runs}" + (" original" if settings == "original" else ""),
    )


def dpsgd_problem(people: int = ADULT_TRAIN, runs: int = RUNS, settings: Settings = "ours") -> Problem:
    """LogReg+SGD (Alg. 3.3); fewer people and runs make a quicker problem, and another one."""
    return _problem("dpsgd-adult", "logistic", "sgd", people, runs, settings)


def dpadam_problem(people: int = ADULT_TRAIN, runs: int = RUNS, settings: Settings = "ours") -> Problem:
    """LogReg+Adam (Alg. 3.4)."""
    return _problem("dpadam-adult", "logistic", "adam", people, runs, settings)


def svm_problem(people: int = ADULT_TRAIN, runs: int = RUNS, settings: Settings = "ours") -> Problem:
    """SVM+SGD: the hinge loss."""
    return _problem("svm-adult", "hinge", "sgd", people, runs, settings)
