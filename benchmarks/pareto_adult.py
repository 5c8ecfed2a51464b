"""DPareto against repetitions of random search on ADULT: Table 3.4, for the three models of Table 3.1.

    python -m benchmarks.pareto_adult [--full] [--people 10000] [--evaluations 64] [--uniform]

One run of DPareto (16 settings to start with, the rest chosen) and 19 of random search by the hand-made laws of Table
3.2, with as many evaluations each. The quick form trains on 10,000 people, once a setting, with 64 evaluations;
`--full` on 40,000, ten times a setting, with 272 as in the dissertation. A front's hypervolume is that of its settings
evaluated afresh, in (ln epsilon, error) below (10, 0.5): as observed, a front gains from its luck. Both are printed.
`--uniform` draws the random settings uniformly from the space that DPareto searches, on whose logarithmic axes small
lots and few epochs, and so small epsilons, are common; the hand-made laws seldom come there.
Reads ADULT from the folder that HYBRIDP_DATA names, or takes a generated stand-in and says so.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence

import torch

from hybridp.pareto import Problem, Run, dpareto, random_search, search
from hybridp.pareto.run import generator, observed_hypervolume
from hybridp_lab.papers.dpareto.volumes import hypervolume_difference
from hybridp_lab.problems.adult import LAWS, dpadam_problem, dpsgd_problem, svm_problem
from hybridp_lab.problems.laws import by_laws

__all__ = ["afresh", "main"]

MODELS: dict[str, Callable[..., Problem]] = {
    "LogReg+SGD": dpsgd_problem,
    "LogReg+Adam": dpadam_problem,
    "SVM+SGD": svm_problem,
}
PRINTED = {
    "LogReg+SGD": "0.158 (0.053, 0.264)",
    "LogReg+Adam": "0.439 (0.272, 0.607)",
    "SVM+SGD": "0.282 (0.161, 0.402)",
}


def afresh(run: Run, seed: int) -> float:
    """The hypervolume of a run's front when its settings are evaluated once more."""
    return observed_hypervolume(
        run.problem, [run.problem.evaluate(e.setting, seed + i) for i, e in enumerate(run.front)]
    )


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pareto_adult")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--people", type=int)
    parser.add_argument("--evaluations", type=int)
    parser.add_argument("--repetitions", type=int, default=19)
    parser.add_argument("--uniform", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--models", nargs="*", choices=list(MODELS), default=list(MODELS))
    options = parser.parse_args(arguments)
    people = options.people or (40_000 if options.full else 10_000)
    evaluations = options.evaluations or (272 if options.full else 64)
    torch.set_num_threads(1)
    sure = True
    for name in options.models:
        start = time.process_time()
        problem = MODELS[name](people=people, runs=10 if options.full else 1)
        print(f"{name}: {problem.version}, {evaluations} evaluations, {options.repetitions} repetitions", flush=True)
        ours = dpareto(problem, init=16, steps=evaluations - 16, batch=options.jobs, jobs=options.jobs, seed=1)
        theirs = [
            random_search(problem, n=evaluations, jobs=options.jobs, seed=100 + i)
            if options.uniform
            else search(
                problem,
                by_laws(problem.space, LAWS, evaluations, generator(100 + i)),
                jobs=options.jobs,
                seed=100 + i,
            )
            for i in range(options.repetitions)
        ]
        fresh = [afresh(run, 10_000 + 1_000 * i) for i, run in enumerate([ours, *theirs])]
        for what, mine, others in (
            ("afresh", fresh[0], fresh[1:]),
            ("as observed", ours.hypervolume, [run.hypervolume for run in theirs]),
        ):
            found = hypervolume_difference(mine, others)
            print(
                f"  {what:12s} DPareto {mine:.3f}, random {sum(others) / len(others):.3f}: mean difference "
                f"{found.mean:.3f} ({found.low:.3f}, {found.high:.3f}), p = {found.p_value:.1e}"
            )
            sure &= found.low > 0
        print(f"  printed in Table 3.4 (other features, other anti-ideal point): {PRINTED[name]}")
        print(f"  {time.process_time() - start:.0f} s of CPU time in this process", flush=True)
    return 0 if sure else 1


if __name__ == "__main__":
    sys.exit(main())
