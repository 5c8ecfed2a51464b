"""The dissertation's K-means figure: mean sum of squares of every method, with intervals.

    python -m benchmarks.kmeans [--quick | --full] [--trials 40] [--jobs 2] [--plot kmeans.png]

`--quick` has 6 trials, `--full` the paper's 364; `--jobs` divides them over processes, each with seeds of its own.
Targets, cell by cell: the improved hybrid is at most 1.05 times the better of the two baselines (TCM-only, LM-all) and
better than the paper's hybrid, corrected.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

from rich.console import Console
from rich.progress import Progress

from hybridp.noise import seeded
from hybridp_lab.papers.mean2020.kmeans_trials import METHODS, Cell, experiment

__all__ = ["main"]

TARGET = 1.05


def show(cells: list[Cell], share: float) -> bool:
    """One table; True when every target is reached."""
    by = {(c.method, c.tau): c for c in cells if c.share == share}
    taus = sorted({tau for _, tau in by})
    print(f"trusted share {share:.1%}: mean sum of squares (half width of the 95 % interval)")
    print(f"{'tau':>4s}" + "".join(f"{m:>22s}" for m in METHODS) + f"{'/ better baseline':>20s}")
    ok = True
    for tau in taus:
        row = [by[m, tau] for m in METHODS]
        better = min(by["tcm", tau].mean, by["lm", tau].mean)
        worst = max(by["improved", tau].mean, by["improved_delta", tau].mean)
        ok &= worst <= TARGET * better and worst < by["corrected", tau].mean
        print(f"{tau:4d}" + "".join(f"{f'{c.mean:,.1f} ({c.high - c.mean:,.1f})':>22s}" for c in row)
              + f"{worst / better:20.4f}")  # fmt: skip
    return ok


def _part(trials: int, seed: int) -> list[Cell]:
    return experiment(trials=trials, rng=seeded(seed))


def pooled(parts: list[list[Cell]]) -> list[Cell]:
    """Cells of disjoint trials as one: means by their numbers of trials, variances from within and between."""
    groups: dict[tuple[str, float, int], list[Cell]] = {}
    for cell in (cell for part in parts for cell in part):
        groups.setdefault((cell.method, cell.share, cell.tau), []).append(cell)
    found = []
    for key, cells in groups.items():
        n = sum(c.trials for c in cells)
        mean = sum(c.trials * c.mean for c in cells) / n
        squares = sum(
            (c.trials - 1) * c.trials * ((c.high - c.mean) / 1.96) ** 2 + c.trials * (c.mean - mean) ** 2 for c in cells
        )
        reach = 1.96 * math.sqrt(squares / (n - 1) / n)
        found.append(Cell(*key, n, mean, mean - reach, mean + reach))
    return found


def run(trials: int, seed: int, jobs: int, tick: Callable[[int], None]) -> list[Cell]:
    if jobs == 1:
        return experiment(trials=trials, progress=lambda done, _: tick(done), rng=seeded(seed))
    size = max(2, math.ceil(trials / (4 * jobs)))
    sizes = [min(size, trials - start) for start in range(0, trials, size)]
    if sizes[-1] == 1 and len(sizes) > 1:  # one trial has no spread to pool
        sizes[-2:] = [sizes[-2] + 1]
    parts, done = [], 0
    with ProcessPoolExecutor(jobs) as pool:
        for part in as_completed([pool.submit(_part, n, 1000 * seed + i) for i, n in enumerate(sizes)]):
            parts.append(part.result())
            done += parts[-1][0].trials
            tick(done)
    return pooled(parts)


def draw(cells: list[Cell], path: str) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    shares = sorted({c.share for c in cells})
    figure, axes = plt.subplots(1, len(shares), figsize=(5 * len(shares), 4), sharey=True, layout="constrained")
    for ax, share in zip(axes if len(shares) > 1 else [axes], shares, strict=True):
        for method in METHODS:
            line = sorted((c for c in cells if c.share == share and c.method == method), key=lambda c: c.tau)
            x, y = [c.tau for c in line], [c.mean for c in line]
            ax.plot(x, y, "o-", ms=3, label=method.replace("_", " "))
            ax.fill_between(x, [c.low for c in line], [c.high for c in line], alpha=0.2)
        ax.set_title(f"{share:.1%} trusted")
        ax.set_xlabel("iterations")
        ax.set_yscale("log")
        ax.grid(alpha=0.3, which="both")
    (axes if len(shares) == 1 else axes[0]).set_ylabel("within-cluster sum of squares")
    (axes if len(shares) == 1 else axes[-1]).legend(fontsize=8)
    figure.savefig(path, dpi=100)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--trials", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--plot")
    options = parser.parse_args(arguments)
    trials = 364 if options.full else 6 if options.quick else options.trials
    bar: Any = Progress(console=Console(file=sys.stderr), transient=True)
    with bar:
        task = bar.add_task("trials", total=trials)
        cells = run(trials, options.seed, options.jobs, lambda done: bar.update(task, completed=done))
    print(f"4 Gaussians, sigma 0.028, 40,000 points each, epsilon 7, {trials} trials")
    ok = [show(cells, share) for share in sorted({c.share for c in cells})]
    print(f"improved within {TARGET:g} of the better baseline and better than corrected, in every cell: "
          f"{'reached' if all(ok) else 'NOT reached'}")  # fmt: skip
    if options.plot:
        draw(cells, options.plot)


if __name__ == "__main__":
    main()
