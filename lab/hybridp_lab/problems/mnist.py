"""DP-SGD for multilayer perceptrons on MNIST as problems: Table 3.1's domains, Table 3.3's laws.

The settings are those of the authors' code: the table's noise is sigma and no variance, delta = 1e-5, the anti-ideal
point is (10, .999), and every setting is trained ten times. A whole front takes a GPU, on which the problems run by
themselves when torch sees one.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import os
from functools import lru_cache, partial
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from hybridp.pareto import Integer, LogInteger, LogReal, Problem, Real, Space
from hybridp.pareto.problem import Setting
from hybridp_lab.problems.adult import ORIGINAL_DELTA, privacy_of, recipe_of
from hybridp_lab.problems.data import mnist
from hybridp_lab.problems.laws import Law, Normal, ShiftedExponential, Uniform
from hybridp_lab.training.mlp import network, network_accuracy, train_network

__all__ = ["EVEN", "LAWS", "RUNS", "SPACE", "mlp1_problem", "mlp2_problem"]

DELTA = ORIGINAL_DELTA
RUNS = 10
SPACE = Space(
    {
        "epochs": LogInteger(1, 400),
        "lot": LogInteger(16, 4000),
        "rate": LogReal(1e-3, 0.5),
        "variance": LogReal(0.1, 16.0),
        "clip": LogReal(0.1, 12.0),
    }
)
EVEN = Space(  # the same intervals as printed
    {
        "epochs": Integer(1, 400),
        "lot": Integer(16, 4000),
        "rate": Real(1e-3, 0.5),
        "variance": Real(0.1, 16.0),
        "clip": Real(0.1, 12.0),
    }
)
LAWS: dict[str, Law] = {
    "epochs": Uniform(1, 400),
    "lot": Normal(800, 800, accept=(16, 4000)),
    "rate": ShiftedExponential(10, 1e-3, accept=(1e-3, 0.5)),
    "variance": ShiftedExponential(0.5, 0.1, accept=(0.1, 16)),
    "clip": ShiftedExponential(0.5, 0.1, accept=(0.1, 12)),
}


@lru_cache(maxsize=2)
def _prepared(part: Literal["train", "test"]) -> tuple[Tensor, Tensor]:
    data = mnist()
    pixels, labels = (data.train, data.train_labels) if part == "train" else (data.test, data.test_labels)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return torch.as_tensor(pixels, device=device), torch.as_tensor(labels, device=device)


@lru_cache(maxsize=1)
def _trained() -> dict[str, list[float]]:
    """The accuracies of trainings that were run before, by the network, its setting, the runs and the seed."""
    kept = Path(__file__).parent.parent / "results" / "trainings.json.gz"
    result: dict[str, list[float]] = json.loads(gzip.decompress(kept.read_bytes()))
    added = Path(os.environ.get("HYBRIDP_TRAININGS", ""))
    for line in added.read_text().splitlines() if added.is_file() else ():
        result |= json.loads(line)
    return result


def _kept_utility(setting: Setting, seed: int, *, name: str, hidden: tuple[int, ...], runs: int) -> list[float]:
    stated = [name, {knob: repr(value) for knob, value in sorted(setting.items())}, seed]
    key = f"{runs} {hashlib.sha256(json.dumps(stated).encode()).hexdigest()[:24]}"
    if key not in _trained():
        _trained()[key] = _utility(setting, seed, hidden=hidden, runs=runs)
        if into := os.environ.get("HYBRIDP_TRAININGS"):
            with Path(into).open("a") as file:
                file.write(json.dumps({key: _trained()[key]}) + "\n")
    return _trained()[key]


def _utility(setting: Setting, seed: int, *, hidden: tuple[int, ...], runs: int) -> list[float]:
    net, recipe = network(784, *hidden, 10), recipe_of(setting, "sgd", "original")
    train, test = _prepared("train"), _prepared("test")
    if train[0].is_cuda:
        from hybridp_lab.training.mlp_cuda import accuracies, train_networks

        return accuracies(net, train_networks(net, *train, recipe, runs=runs, seed=seed), *test)
    result = [train_network(net, *train, recipe, seed=seed + 7919 * run) for run in range(runs)]
    return [network_accuracy(net, parameters, *test) for parameters in result]


def _problem(name: str, hidden: tuple[int, ...], runs: int) -> Problem:
    data = mnist()
    return Problem(
        name,
        SPACE,
        partial(privacy_of, people=len(data.train), delta=DELTA, settings="original"),
        partial(_kept_utility, name=f"{name}{'' if data.source == 'mnist' else ' made up'}", hidden=hidden, runs=runs),
        anti_ideal=(10.0, 0.999),
        delta=DELTA,
        sensitivity=1 / len(data.test),
        version=f"2 {data.source} {runs}",
    )


def mlp2_problem(runs: int = RUNS) -> Problem:
    """MLP2: hidden layers of 128 and 64."""
    return _problem("mlp-mnist", (128, 64), runs)


def mlp1_problem(runs: int = RUNS) -> Problem:
    """MLP1: one hidden layer of 1000 (Abadi et al. 2016, without its PCA)."""
    return _problem("mlp1-mnist", (1000,), runs)
