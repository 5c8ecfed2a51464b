"""Small problems with known fronts. Module-level functions, so that worker processes can import or unpickle them."""

from __future__ import annotations

import os

import numpy as np

from hybridp.pareto import Integer, LogReal, Measure, Problem, Real, Space


def laplace_epsilon(setting):
    return 1.0 / setting["b"]


def noisy_utility(setting, seed):
    """Expected error b/(1+b) + (x - 1/2)^2 / 4, ten runs with small noise."""
    error = 0.8 * setting["b"] / (1 + setting["b"]) + (setting["x"] - 0.5) ** 2 / 4
    return np.clip(1 - error + 0.02 * np.random.default_rng(seed).normal(size=10), 0, 1)


def single_run(setting, seed):
    return float(np.mean(noisy_utility(setting, seed)))


def sometimes_fails(setting, seed):
    if setting["b"] > 10:
        raise RuntimeError("secret 987654.321")
    if setting["b"] > 3:
        return float("nan")
    return noisy_utility(setting, seed)


def dies_at_seventh(setting, seed):
    """A crash no `except` can see."""
    path = os.environ["TOY_COUNTER"]
    with open(path, "a") as file:
        file.write("x")
    if os.path.getsize(path) == 7:
        os._exit(9)
    return noisy_utility(setting, seed)


SPACE = Space({"b": LogReal(0.01, 100.0), "x": Real(0.0, 1.0)})


def toy(utility=noisy_utility, **more):
    return Problem("toy", SPACE, laplace_epsilon, utility, **more)


def three_utility(setting, seed):
    return {"utility": single_run(setting, seed), "cost": float(setting["n"])}


def three():
    """A third objective: the number of rounds n, which lowers the error a little."""
    space = Space({"b": LogReal(0.01, 100.0), "x": Real(0.0, 1.0), "n": Integer(1, 20)})
    cost = Measure("cost", better="lower", transform="log")
    return Problem("three", space, laplace_epsilon, three_utility, (1000.0, 1.0, 30.0), others={"cost": cost})


def true_error(setting):
    return 0.8 * setting["b"] / (1 + setting["b"]) + (setting["x"] - 0.5) ** 2 / 4
