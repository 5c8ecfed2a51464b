"""What does choosing 16 + 256 settings cost, without the oracles, beside Optuna's TPE and Ax?

Run with `python -m benchmarks.pareto_overhead [--steps 256]`. The oracles here take microseconds; their time is taken
off. CPU time of one process on one thread. The dissertation reports 45 s of wall clock (section 3.4.3.2). Ax is
compared when it is installed; it is not a dependency.
"""

from __future__ import annotations

import argparse
import importlib.util
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hybridp.pareto import LogReal, Problem, Real, Space, dpareto
from hybridp_lab.baselines.acquisition import by_hvpoi, by_nehvi

INIT = 16


class Clocked:
    """A made-up mechanism of d knobs that counts the CPU time of its own oracles."""

    def __init__(self, dim: int) -> None:
        knobs: dict[str, Any] = {"b": LogReal(0.01, 100.0)}
        knobs.update({f"x{i}": Real(0.0, 1.0) for i in range(dim - 1)})
        self.spent = 0.0
        self.problem = Problem(f"bowl-{dim}", Space(knobs), self.privacy, self.utility)

    def privacy(self, setting: Any) -> float:
        start = time.process_time()
        epsilon = (1 + 0.2 * sum(v for k, v in setting.items() if k != "b")) / setting["b"]
        self.spent += time.process_time() - start
        return float(epsilon)

    def utility(self, setting: Any, seed: int) -> Any:
        start = time.process_time()
        off = sum((v - 0.6) ** 2 for k, v in setting.items() if k != "b")
        mean = 1 / (1 + setting["b"]) * np.exp(-off)
        runs = np.clip(mean + 0.03 * np.random.default_rng(seed).normal(size=10), 0, 1)
        self.spent += time.process_time() - start
        return runs


def ours(**how: Any) -> Callable[[Clocked, int], None]:
    return lambda toy, steps: dpareto(toy.problem, init=INIT, steps=steps, seed=1, **how) and None


def tpe(toy: Clocked, steps: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    sampler = optuna.samplers.TPESampler(multivariate=True, n_startup_trials=INIT, seed=1)
    study = optuna.create_study(directions=["minimize", "minimize"], sampler=sampler)

    def objective(trial: Any) -> tuple[float, float]:
        setting = {
            name: trial.suggest_float(name, knob.low, knob.high, log=isinstance(knob, LogReal))
            for name, knob in toy.problem.space.knobs.items()
        }
        found = toy.problem.evaluate(setting, trial.number)
        return float(np.log(found.epsilon)), found.values[0]

    study.optimize(objective, n_trials=INIT + steps)


def ax(toy: Clocked, steps: int) -> None:
    from ax.api.client import Client
    from ax.api.configs import RangeParameterConfig

    client = Client()
    client.configure_experiment(
        parameters=[
            RangeParameterConfig(
                name=name,
                bounds=(knob.low, knob.high),
                parameter_type="float",
                scaling="log" if isinstance(knob, LogReal) else None,
            )
            for name, knob in toy.problem.space.knobs.items()
        ]
    )
    client.configure_optimization(objective="-lneps, -error")
    for i in range(INIT + steps):
        for index, setting in client.get_next_trials(max_trials=1).items():
            found = toy.problem.evaluate(setting, i)
            result = {"lneps": float(np.log(found.epsilon)), "error": found.values[0]}
            client.complete_trial(trial_index=index, raw_data=result)


def main(arguments: Sequence[str] | None = None) -> None:
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    methods: dict[str, Callable[[Clocked, int], None]] = {
        "exact": ours(),
        "hvpoi": ours(chooser=by_hvpoi),
        "nehvi": ours(chooser=by_nehvi),
        "tpe": tpe,
    }
    if importlib.util.find_spec("ax") is not None:
        methods["ax"] = ax
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=256)
    parser.add_argument("--methods", nargs="*", default=list(methods), choices=list(methods))
    args = parser.parse_args(arguments)
    for dim in (2, 5):
        first = None
        for name in args.methods:
            toy = Clocked(dim)
            methods[name](Clocked(dim), 2)  # imports and caches are not overhead of a step
            start = time.process_time()
            methods[name](toy, args.steps)
            spent = time.process_time() - start - toy.spent
            first = spent if first is None else first
            print(
                f"{dim} dimensions, {INIT} + {args.steps}: {name:6s} {spent:7.1f} s, {spent / first:.2f} of the first"
            )


if __name__ == "__main__":
    main()
