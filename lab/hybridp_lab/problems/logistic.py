"""Private logistic regression by output perturbation as a problem (dissertation, section 3.2.2.1).

gamma in 1e-4 .. 1 and sigma in 0.1 .. 10 on ADULT, ten passes, delta = 1e-6, the error of the model averaged over 50
draws of the noise. Batches of 50 instead of 1: the sensitivity is the same and the training fifty times shorter. Five
orders of the data are trained, and ten draws of noise are added to each of the five results.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor

from hybridp.pareto import LogReal, Problem, Space
from hybridp.pareto.problem import Setting
from hybridp_lab.problems.data import ADULT_SIZES, adult
from hybridp_lab.training.accounting import OutputPerturbation
from hybridp_lab.training.design import OneHot
from hybridp_lab.training.linear import accuracy
from hybridp_lab.training.output import train_output

__all__ = ["DELTA", "logistic_problem", "utilities"]

DELTA = 1e-6
PASSES, BATCH, ORDERS, DRAWS = 10, 50, 5, 10


@lru_cache(maxsize=2)
def _prepared(part: Literal["train", "test"]) -> tuple[OneHot, Tensor]:
    data = adult()
    codes, labels = (data.train, data.train_labels) if part == "train" else (data.test, data.test_labels)
    return OneHot.of(torch.as_tensor(codes), ADULT_SIZES, unit=True), torch.as_tensor(labels, dtype=torch.float32)


def _plan(setting: Setting) -> OutputPerturbation:
    return OutputPerturbation(len(adult().train), float(setting["gamma"]), float(setting["sigma"]))


def _privacy(setting: Setting) -> float:
    return _plan(setting).epsilon(DELTA)


def _utility(setting: Setting, seed: int) -> list[float]:
    return utilities([setting], [seed])[0]


def utilities(settings: Sequence[Setting], seeds: Sequence[int]) -> list[list[float]]:
    """What `utility` says of each setting with its seed; the models of all settings are trained at once."""
    design, labels = _prepared("train")
    test, truth = _prepared("test")
    plans = [_plan(setting) for setting in settings]
    shape = {"passes": PASSES, "batch": BATCH, "runs": ORDERS, "draws": DRAWS}
    weights = train_output(design, labels, plans, **shape, seeds=seeds)
    return [accuracy(test, truth, own).tolist() for own in weights]


def logistic_problem() -> Problem:
    """Two knobs, both of which move epsilon and the error."""
    data = adult()
    space = Space({"gamma": LogReal(1e-4, 1.0), "sigma": LogReal(0.1, 10.0)})
    return Problem(
        "logreg",
        space,
        _privacy,
        _utility,
        anti_ideal=(1000.0, 1.0),
        delta=DELTA,
        sensitivity=1 / len(data.test),
        version=f"1 {data.source}",
    )
