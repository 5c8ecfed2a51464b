"""The adaptive estimator beside KVH, PWH and the baselines, simulated over the paper's grid.

    python -m benchmarks.utility [--full]

Every rule blends the same collections, so that ratios of mean squared errors are far less noisy than the errors. A cell
goes on until the standard error of its ratio adaptive/KVH is below .01 (`--full`: .004), or .003 where the ratio is
within three standard errors of the limit. "KVH" is told the population's
standard deviation; "oracle" is told its mean as well, and so the exact variance of a report: it has the best fixed
weight there is. Errors are against the empirical mean (P Def. 2.2), on [0, 1]. Writes the table of
`docs/adaptive.md` and its picture, and checks two promises: adaptive/KVH is at most 1.10 everywhere, and adaptive beats
the better baseline wherever KVH does.
"""

from __future__ import annotations

import argparse
import itertools
import multiprocessing
import re
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.mean import EstimatorName, Rule
from hybridp.noise import seeded, synthetic_data_generator
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import Setting, TrustedSummary, hybrid, kvh_weight, over_best, sum_noise
from hybridp.public.randomisers import best_randomiser
from hybridp_lab.simulate import errors, trials

__all__ = ["BETAS", "DOCS", "Cell", "Found", "beta_population", "in_parallel", "main", "run", "write_between"]

Floats = NDArray[np.float64]
Result = TypeVar("Result")

DOCS = Path(__file__).parents[1] / "docs"
BETAS = ((10.0, 10.0), (1.0, 1.0), (0.1, 0.1), (1.0, 10.0))
RULES = ("kvh", "adaptive", "oracle", "pwh", "skew-aware", "tcm-only", "full-lm")
BATCH = {1_000: 2_000, 10_000: 1_000, 100_000: 400}
LIMIT = 1.10


@dataclass(frozen=True)
class Cell:
    beta: tuple[float, float]
    epsilon: float
    c: float
    n: int
    seed: int

    @property
    def trusted(self) -> int:
        return round(self.c * self.n)


@dataclass(frozen=True)
class Found:
    """One cell's mean squared errors on [0, 1] (in the order of RULES) and what is read off them."""

    cell: Cell
    count: int
    mse: tuple[float, ...]
    se: float
    kvh_over_best: float

    def ratio(self, rule: str, to: str = "kvh") -> float:
        return self.mse[RULES.index(rule)] / self.mse[RULES.index(to)]

    @property
    def adaptive_over_best(self) -> float:
        """R of the adaptive estimator: KVH's from theory, over the measured ratio."""
        return self.kvh_over_best / self.ratio("adaptive")


def grid() -> list[Cell]:
    """P sec. 4 and 5: three sizes, two opt-in rates, three epsilons, four shapes of data."""
    found = itertools.product(BETAS, (0.1, 1.0, 4.0), (0.005, 0.05), (1_000, 10_000, 100_000))
    return [Cell(*where, seed=100 + i) for i, where in enumerate(found)]


@lru_cache(maxsize=len(BETAS))
def beta_population(beta: tuple[float, float]) -> Floats:
    """A million made-up values in the unit coordinate [-1, 1]."""
    draw = synthetic_data_generator(seeded(5))
    return np.asarray(2 * draw.beta(*beta, 1_000_000) - 1)


def theory(cell: Cell, population: Floats) -> tuple[float, float]:
    """The oracle's weight, and R of KVH, which must assume the randomiser's worst variance (unit coordinate)."""
    randomiser = best_randomiser(PureDP(cell.epsilon))
    constant, quadratic = randomiser.variance_terms
    noise_t = TrustedSummary(cell.trusted, 0, sum_noise(PureDP(cell.epsilon))).noise_variance

    def setting(noise_l: float) -> Setting:
        share = cell.trusted / cell.n
        return Setting(n=cell.n, c=share, var_t=population.var(), noise_t=noise_t, noise_l=noise_l)

    true = setting(constant + quadratic * float(np.mean(population**2)))
    error = hybrid(true, kvh_weight(setting(randomiser.worst_variance)))
    return float(kvh_weight(true)), float(over_best(true, error))


def run(cell: Cell, target: float, least: int) -> Found:
    """Batches of trials until the ratio's standard error is below the target (delta method, paired trials)."""
    population = beta_population(cell.beta)
    best_weight, r_kvh = theory(cell, population)
    sd = float(population.std())
    other = {"kvh": Rule("kvh", sd=sd), "oracle": Rule("fixed", weight=best_weight)}
    rules = [other.get(name) or Rule(cast(EstimatorName, name)) for name in RULES]
    batches: list[Floats] = []
    rng, se = seeded(cell.seed), np.inf
    while se > target or sum(map(len, batches)) < least:
        found = trials(
            population,
            n=cell.n,
            trusted_people=cell.trusted,
            noise=sum_noise(PureDP(cell.epsilon)),
            randomiser=best_randomiser(PureDP(cell.epsilon)),
            count=BATCH[cell.n],
            baseline=True,
            rng=rng,
        )
        batches.append(errors(found, rules))
        seen = np.concatenate(batches)
        mse = seen.mean(axis=0)
        kvh, adaptive = seen[:, 0], seen[:, 1]
        se = float((adaptive - mse[1] / mse[0] * kvh).std() / len(seen) ** 0.5 / mse[0])
    return Found(cell, len(seen), tuple((mse / 4).tolist()), se, r_kvh)


def in_parallel(
    task: Callable[..., Result], jobs: Sequence[tuple[object, ...]], title: str, processes: int = 2
) -> list[Result]:
    """task(*job) for every job, in order, on so many processes, with a progress bar on stderr."""
    from rich.console import Console
    from rich.progress import Progress

    found: dict[int, Result] = {}
    context = multiprocessing.get_context("spawn")
    with Progress(console=Console(file=sys.stderr)) as bar, ProcessPoolExecutor(processes, context) as pool:
        line = bar.add_task(title, total=len(jobs))
        futures = {pool.submit(task, *job): i for i, job in enumerate(jobs)}
        for future in as_completed(futures):
            found[futures[future]] = future.result()
            bar.advance(line)
    return [found[i] for i in range(len(jobs))]


# --- what is written --------------------------------------------------------------------------------------------------


def write_between(path: Path, marker: str, text: str) -> None:
    """Replace what stands between <!-- marker --> and <!-- /marker -->."""
    old = path.read_text(encoding="utf-8")
    pattern = re.compile(rf"(<!-- {marker} -->\n).*?(<!-- /{marker} -->)", re.DOTALL)
    new, count = pattern.subn(lambda m: f"{m[1]}\n{text}\n\n{m[2]}", old)
    if count != 1:
        raise SystemExit(f"{path.name} must have the markers <!-- {marker} --> once. Got {count}.")
    path.write_text(new, encoding="utf-8")


def table(found: Sequence[Found]) -> str:
    head = ["Beta", "ε", "c", "n", "KVH's MSE", "adaptive", "± se", "oracle", "PWH", "skew-aware", "TCM-only"]
    head += ["Full-LM", "R KVH", "R adaptive", "trials"]
    lines = ["| " + " | ".join(head) + " |", "|" + "---|" * len(head)]
    for f in found:
        cell = f.cell
        row = ["({:g}, {:g})".format(*cell.beta), f"{cell.epsilon:g}", f"{cell.c:.1%}", f"{cell.n:,}"]
        row += [f"{f.mse[0]:.2e}", f"{f.ratio('adaptive'):.3f}", f"{f.se:.3f}", f"{f.ratio('oracle'):.3f}"]
        row += [f"{f.ratio(rule):.3g}" for rule in RULES[3:]]
        row += [f"{f.kvh_over_best:.3f}", f"{f.adaptive_over_best:.3f}", f"{f.count:,}"]
        lines.append("| " + " | ".join(row) + " |")
    return "\n".join(lines)


def summary(found: Sequence[Found]) -> list[str]:
    """The two checks, in sentences."""
    worst = max(found, key=lambda f: f.ratio("adaptive"))
    to_oracle = max(found, key=lambda f: f.ratio("adaptive", "oracle"))
    below = [f for f in found if f.kvh_over_best > 1 >= f.adaptive_over_best]
    narrow = [f for f in found if f.kvh_over_best > 1 and abs(f.adaptive_over_best - 1) < 2 * f.se]
    verdict = "met" if worst.ratio("adaptive") <= LIMIT else "MISSED"
    lines = [
        f"- Largest adaptive/KVH: {worst.ratio('adaptive'):.3f} ± {worst.se:.3f} at {_place(worst.cell)} "
        f"(target at most {LIMIT:.2f}: {verdict}).",
        f"- Largest adaptive/oracle: {to_oracle.ratio('adaptive', 'oracle'):.3f} at {_place(to_oracle.cell)}.",
        f"- KVH beats the better baseline in {sum(f.kvh_over_best > 1 for f in found)} of {len(found)} cells; "
        f"of these the adaptive estimator fails in {len(below)}, and in {len(narrow)} the margin is within two "
        "standard errors.",
    ]
    lines += [
        f"  - {_place(f.cell)}: R is {f.adaptive_over_best:.4f} where KVH's is {f.kvh_over_best:.4f} (± {f.se:.4f})."
        for f in below
    ]
    return lines


def _place(cell: Cell) -> str:
    return f"Beta({cell.beta[0]:g}, {cell.beta[1]:g}), ε = {cell.epsilon:g}, c = {cell.c:.1%}, n = {cell.n:,}"


def picture(found: Sequence[Found], path: Path) -> None:
    """Above: every rule over KVH on a logarithmic axis. Below: adaptive alone, with two standard errors."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (top, low) = plt.subplots(2, 1, figsize=(10, 6.4), sharex=True, height_ratios=(3, 2))
    x = np.arange(len(found))
    styles = (("pwh", "PWH", "s", "#d1495b"), ("skew-aware", "skew-aware", "^", "#edae49"))
    for rule, name, marker, colour in styles:
        top.plot(x, [f.ratio(rule) for f in found], marker, color=colour, ms=4, ls="", label=name)
    ratios, ses = np.array([f.ratio("adaptive") for f in found]), np.array([f.se for f in found])
    top.plot(x, ratios, "o", color="#00798c", ms=4.5, label="adaptive")
    top.set(yscale="log", ylabel="MSE over KVH's")
    top.legend(loc="upper left", frameon=False, ncols=3)
    low.errorbar(x, ratios, 2 * ses, fmt="o", color="#00798c", ms=3.5, elinewidth=1)
    low.axhline(LIMIT, color="#888888", ls="--", lw=1)
    low.text(len(found) - 0.6, LIMIT, "1.10", va="bottom", ha="right", color="#666666", fontsize=8)
    low.set(ylabel="adaptive over KVH", ylim=(min(0.88, (ratios - 2 * ses).min() - 0.01), 1.14))
    block, part = len(found) // len(BETAS), len(found) // len(BETAS) // 3
    for axes in (top, low):
        axes.axhline(1, color="black", lw=0.8)
        for edge in range(part, len(found), part):
            axes.axvline(edge - 0.5, color="#444444" if edge % block == 0 else "#dddddd", lw=0.8)
        axes.spines[["top", "right"]].set_visible(False)
    for i, (a, b) in enumerate(BETAS):
        top.text((i + 0.5) * block - 0.5, 1.01, f"Beta({a:g}, {b:g})", ha="center", transform=top.get_xaxis_transform())
    low.set_xticks([part * (i + 0.5) - 0.5 for i in range(len(found) // part)])
    low.set_xticklabels([f"ε = {found[part * i].cell.epsilon:g}" for i in range(len(found) // part)], fontsize=8)
    low.tick_params(axis="x", length=0)
    low.set_xlabel("within each ε: c = 0.5 % with n = 10³, 10⁴, 10⁵, then c = 5 %; simulated", fontsize=8)
    low.set_xlim(-0.7, len(found) - 0.3)
    figure.tight_layout()
    figure.savefig(path, dpi=130)
    plt.close(figure)


def main(arguments: list[str] | None = None) -> list[Found]:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="standard errors of .004 instead of .01")
    options = parser.parse_args(arguments)
    target, least = (0.004, 4_000) if options.full else (0.01, 1_000)
    cells = grid()
    order = sorted(range(len(cells)), key=lambda i: -cells[i].n)  # the long ones first
    done = in_parallel(run, [(cells[i], target, least) for i in order], "utility")
    found = [done[order.index(i)] for i in range(len(cells))]
    close = [i for i, f in enumerate(found) if abs(f.ratio("adaptive") - LIMIT) < 3 * f.se]
    again = in_parallel(run, [(cells[i], 0.003, least) for i in close], "closer to the limit")
    for i, refined in zip(close, again, strict=True):
        found[i] = refined
    lines = summary(found)
    write_between(DOCS / "adaptive.md", "utility", table(found))
    write_between(DOCS / "adaptive.md", "utility-summary", "\n".join(lines))
    picture(found, DOCS / "images" / "adaptive-ratio.png")
    print("\n".join(lines))
    return found


if __name__ == "__main__":
    main()
