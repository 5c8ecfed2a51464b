"""Table II and Figure 1 of Chaudhuri and Courtade (2023), simulated with the library's weights.

    python -m benchmarks.adpm [--runs 200_000]

Weights, noise scales and sampling probabilities come from `hybridp.public`; data and noise are seeded NumPy floats, as
in the paper, so that nothing here protects anybody. Writes the tables of `docs/personal.md` and its picture. The paper
averaged 200,000 runs for the figure and 20,000 for the table. So does this, but for the table it spreads them over
twenty draws of the epsilons instead of one. Errors are against the population's mean, on [-1/2, 1/2].
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.utility import DOCS, write_between
from hybridp.public.personal import adpm_weights
from hybridp_lab.baselines.personal import (
    Affine,
    fme_inferred,
    ldpe,
    propdpm,
    sampling_mechanism,
    uni,
)
from hybridp_lab.papers.adpm2023.two_groups import two_groups

__all__ = ["Point", "figure_a", "figure_b", "main", "table_2"]

Floats = NDArray[np.float64]

PRINTED = {
    "ADPM": (-9.3, -8.1),
    "PropDPM": (-9.0, -8.1),
    "LDPE": (-7.2, -1.3),
    "SM": (-6.5, -7.9),
    "FME": (-6.2, -6.2),
    "UNI": (-5.1, -7.1),
}
RANGES = ((-4.0, 2.0), (-3.0, -2.0))  # of ln epsilon: high and low variance
TABLE_RUNS, DRAWS = 20_000, 20
SIZES = (100, 200, 400, 700, 1000, 1500, 2000)
EPSILONS = (0.105, 0.13, 0.16, 0.19, 0.2143, 0.25, 0.3, 0.35, 0.4, 0.5)
STYLES = {"ADPM": "C3-o", "PropDPM": "C1-s", "LDPE": "C0-^", "SM": "C2-v", "UNI": "C7-D"}


@dataclass(frozen=True)
class Point:
    """Mean squared errors at one place of a figure: simulated, its standard error, and in closed form."""

    x: float
    simulated: dict[str, float]
    se: dict[str, float]
    predicted: dict[str, float]


@dataclass(frozen=True)
class Rule:
    """An affine estimator: a weight for each entry, the scales of its independent Laplace draws, its predicted MSE."""

    weight: Floats
    scales: Floats
    mse: float


def rules(epsilons: Floats, counts: Any, variance: float) -> dict[str, Rule]:
    """Everyone who chooses weights does so for the worst case, as in the paper; the errors are for this variance."""
    worst, groups = adpm_weights(epsilons, counts=counts), ldpe(epsilons, counts=counts)
    mass = np.ones(len(epsilons)) if counts is None else np.asarray(counts, dtype=np.float64)
    where = np.searchsorted(groups.epsilon, epsilons)
    own = groups.weight[where] / groups.size[where]
    found = {
        "ADPM": (worst.weight, np.array([worst.noise_scale])),
        "LDPE": (own, groups.weight * groups.noise_scale),
    }
    for name, rule in (("PropDPM", propdpm), ("UNI", uni), ("FME", fme_inferred)):
        plain: Affine = rule(epsilons, counts=counts)
        found[name] = (plain.weight, np.array([plain.noise_scale]))
    return {
        name: Rule(w, s, variance * float(np.dot(w * w, mass)) + 2 * float(np.dot(s, s)))
        for name, (w, s) in found.items()
    }


def noise(draw: np.random.Generator, scales: Floats, runs: int) -> Floats:
    return np.asarray(draw.laplace(size=(runs, scales.size)) @ scales)


def point(x: float, errors: dict[str, Floats], predicted: dict[str, float]) -> Point:
    """Squared errors as their mean and its standard error."""
    squares = {name: error**2 for name, error in errors.items()}
    return Point(
        x,
        {name: float(s.mean()) for name, s in squares.items()},
        {name: float(s.std() / math.sqrt(s.size)) for name, s in squares.items()},
        {name: predicted[name] for name in errors},
    )


# --- Table II ---------------------------------------------------------------------------------------------------------


def table_2(runs: int) -> Iterator[tuple[int, dict[str, float]]]:
    """For each draw of 1,000 epsilons of either kind: ln MSE of every method on Beta(2,3) data, variance .04."""
    for kind, limits in enumerate(RANGES):
        for seed in range(DRAWS):
            draw = np.random.default_rng([20 + kind, seed])
            eps = np.exp(draw.uniform(*limits, 1000))
            many = runs // DRAWS
            x = draw.beta(2, 3, (many, 1000)) - 0.4
            sm = sampling_mechanism(eps)
            kept = draw.random((many, 1000)) < sm.probability
            size = kept.sum(axis=1)
            errors = {name: x @ r.weight + noise(draw, r.scales, many) for name, r in rules(eps, None, 0.04).items()}
            errors["SM"] = (x * kept).sum(axis=1) / size + draw.laplace(size=many) / (size * sm.inner_epsilon)
            yield kind, {name: math.log(float(np.mean(error**2))) for name, error in errors.items()}


def table_2_text(found: list[tuple[int, dict[str, float]]]) -> str:
    lines = ["| method | high variance: paper | ours | low variance: paper | ours |", "|---|---|---|---|---|"]
    for name, printed in PRINTED.items():
        cells = []
        for kind in (0, 1):
            values = np.array([row[name] for k, row in found if k == kind])
            cells += [f"{printed[kind]:.1f}", f"{values.mean():.2f} ± {values.std(ddof=1):.2f}"]
        label = "FME (rule inferred)" if name == "FME" else name
        lines.append(f"| {label} | {' | '.join(cells)} |")
    return "\n".join(lines)


# --- Figure 1 ---------------------------------------------------------------------------------------------------------


def figure_a(runs: int) -> Iterator[Point]:
    """eps .1 and .15, half of the people each, uniform data, against n."""
    for n in SIZES:
        draw = np.random.default_rng([31, n])
        eps, counts = np.array([0.1, 0.15]), np.array([n // 2, n // 2])
        found, sm = rules(eps, counts, 1 / 12), sampling_mechanism(eps, counts=counts, variance=1 / 12)
        errors: dict[str, list[Floats]] = {name: [] for name in ("ADPM", "LDPE", "SM", "UNI")}
        for start in range(0, runs, 2_000):
            many = min(2_000, runs - start)
            x = draw.random((many, n), dtype=np.float32) - np.float32(0.5)
            private = np.cumsum(x[:, : n // 2], axis=1, dtype=np.float64)
            sums = np.stack([private[:, -1], x[:, n // 2 :].sum(axis=1, dtype=np.float64)], axis=1)
            for name in ("ADPM", "LDPE", "UNI"):
                errors[name].append(sums @ found[name].weight + noise(draw, found[name].scales, many))
            # Who is kept does not depend on the data: the first N of the private half are as good as any N of them.
            kept = draw.binomial(n // 2, sm.probability[0], many)
            first = np.where(kept > 0, private[np.arange(many), np.maximum(kept, 1) - 1], 0.0)
            size = kept + n // 2
            errors["SM"].append((first + sums[:, 1]) / size + draw.laplace(size=many) / (size * sm.inner_epsilon))
        predicted = {name: rule.mse for name, rule in found.items()} | {"SM": sm.mse}
        yield point(n, {name: np.concatenate(parts) for name, parts in errors.items()}, predicted)


def figure_b(runs: int) -> Iterator[Point]:
    """eps_1 = .1 for 700 of 1,000 people, data of +-1/2, against eps_2. Sums of such data are binomial."""
    counts = np.array([700, 300])
    for epsilon_2 in EPSILONS:
        draw = np.random.default_rng([32, round(1e4 * epsilon_2)])
        eps = np.array([0.1, epsilon_2])
        found, sm = rules(eps, counts, 0.25), sampling_mechanism(eps, counts=counts)
        sums = draw.binomial(counts, 0.5, (runs, 2)) - counts / 2
        names = ("ADPM", "PropDPM", "LDPE", "UNI")
        errors = {name: sums @ found[name].weight + noise(draw, found[name].scales, runs) for name in names}
        kept = draw.binomial(counts, sm.probability, (runs, 2))
        total, size = (draw.binomial(kept, 0.5) - kept / 2).sum(axis=1), kept.sum(axis=1)
        errors["SM"] = total / size + draw.laplace(size=runs) / (size * sm.inner_epsilon)
        yield point(epsilon_2, errors, {name: rule.mse for name, rule in found.items()} | {"SM": sm.mse})


def second_order(mse: float, n: float) -> float:
    """What Figure 1(A) plots."""
    return (mse - 1 / (12 * n)) * n * n


def figure_text(a: list[Point], b: list[Point]) -> str:
    lines = ["| (A) (MSE - 1/(12n)) n² | " + " | ".join(f"n = {p.x:,.0f}" for p in a) + " |", "|---|" + "---|" * len(a)]
    for name in a[0].simulated:
        cells = [f"{second_order(p.simulated[name], p.x):.0f} ({second_order(p.predicted[name], p.x):.0f})" for p in a]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "| (B) MSE × 10⁴ | " + " | ".join(f"ε₂ = {p.x:g}" for p in b) + " |", "|---|" + "---|" * len(b)]
    for name in b[0].simulated:
        cells = [f"{1e4 * p.simulated[name]:.2f} ({1e4 * p.predicted[name]:.2f})" for p in b]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


def farthest(points: list[Point]) -> float:
    """The largest distance of a simulated error from its closed form, in standard errors."""
    return max(abs(p.simulated[k] - p.predicted[k]) / p.se[k] for p in points for k in p.simulated)


def picture(a: list[Point], b: list[Point], path: Path) -> None:
    """Lines are the closed forms, markers the simulation."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.2), layout="constrained")
    for name in a[0].simulated:
        colour, marker = STYLES[name][:2], STYLES[name][-1]
        left.plot([p.x for p in a], [second_order(p.predicted[name], p.x) for p in a], color=colour, lw=1.2)
        left.errorbar(
            [p.x for p in a],
            [second_order(p.simulated[name], p.x) for p in a],
            [2 * p.se[name] * p.x**2 for p in a],
            fmt=marker, color=colour, ms=4.5, elinewidth=1, label=name,
        )  # fmt: skip
    left.set(xlabel="n", ylabel="(MSE - 1/(12n)) n²", title="(A) ε₁ = 0.1, ε₂ = 0.15, half each, uniform data")
    for name in b[0].simulated:
        colour, marker = STYLES[name][:2], STYLES[name][-1]
        right.plot([p.x for p in b], [1e4 * p.predicted[name] for p in b], color=colour, lw=1.2)
        right.errorbar(
            [p.x for p in b],
            [1e4 * p.simulated[name] for p in b],
            [2e4 * p.se[name] for p in b],
            fmt=marker, color=colour, ms=4.5, elinewidth=1, label=name,
        )  # fmt: skip
    at = two_groups(1000, 0.7, 0.1, 0.1).saturation
    right.axvline(at, color="0.4", ls="--", lw=1)
    right.text(at + 0.005, 6.4, f"saturation, ε₂ = {at:.3f}", color="0.3", fontsize=8)
    right.set(xlabel="ε₂", ylabel="MSE × 10⁴", ylim=(3.8, 6.6), title="(B) ε₁ = 0.1 for 700 of 1,000, data of ±½")
    for axes, height in ((left, 0.79), (right, 0.66)):
        axes.spines[["top", "right"]].set_visible(False)
        axes.legend(frameon=False, fontsize=8, loc="upper right", bbox_to_anchor=(1, height))
    figure.savefig(path, dpi=100, metadata={"Software": None})
    plt.close(figure)


def main(arguments: list[str] | None = None) -> None:
    from rich.console import Console
    from rich.progress import Progress

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=200_000, help="runs for every point of the figure")
    runs = parser.parse_args(arguments).runs
    with Progress(console=Console(file=sys.stderr)) as bar:
        table = list(bar.track(table_2(TABLE_RUNS), total=2 * DRAWS, description="Table II"))
        a = list(bar.track(figure_a(runs), total=len(SIZES), description="Figure 1(A)"))
        b = list(bar.track(figure_b(runs), total=len(EPSILONS), description="Figure 1(B)"))
    simulated = sum(len(p.simulated) for p in (*a, *b))
    checked = (
        f"{runs:,} runs a point; closed form in brackets. Of {simulated} simulated errors the farthest is "
        f"{farthest([*a, *b]):.1f} standard errors from its closed form."
    )
    write_between(DOCS / "personal.md", "adpm-table2", table_2_text(table))
    write_between(DOCS / "personal.md", "adpm-figure1", f"{figure_text(a, b)}\n\n{checked}")
    picture(a, b, DOCS / "images" / "adpm-fig1.png")
    print(table_2_text(table), figure_text(a, b), checked, sep="\n\n")


if __name__ == "__main__":
    main()
