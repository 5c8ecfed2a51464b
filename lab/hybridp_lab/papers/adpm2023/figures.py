"""Figure 1 and Tables I and II of Chaudhuri and Courtade (2023), declared.

The quick forms have 20,000 runs a point for the figure and 1,000 for each of twelve draws of Table II's epsilons; the
full ones 200,000 and 20,000, as published, with twenty draws where the paper has one. Table I needs no runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridp_lab.figure.catalogue import Figure, Grid, Point, Row
from hybridp_lab.papers.adpm2023.judges import judge_figure, judge_table_one, judge_table_two, second_order
from hybridp_lab.papers.adpm2023.simulation import METHODS, NOTES, PRINTED, adpm_errors, adpm_table_one, adpm_table_two
from hybridp_lab.papers.adpm2023.two_groups import two_groups

__all__ = ["FIGURES"]

_COLOURS = {"ADPM": "C3", "PropDPM": "C1", "LDPE": "C0", "SM": "C2", "UNI": "C7", "FME": "C4"}
_MARKS = {"ADPM": "o", "PropDPM": "s", "LDPE": "^", "SM": "v", "UNI": "D", "FME": "x"}
_SIZES = (100, 200, 400, 700, 1000, 1500, 2000)
_EPSILONS = (0.105, 0.13, 0.16, 0.19, 0.215, 0.25, 0.3, 0.35, 0.4, 0.5)


def _label(name: str) -> str:
    return f"{name} ({NOTES[name]})" if name in NOTES else name


def _draw_figure(rows: Sequence[Row], canvas: Any) -> None:
    """Lines are the closed forms, markers the simulation with its 95 % interval."""
    left, right = canvas.subplots(1, 2)
    for axes, panel, x in ((left, "A", "n"), (right, "B", "epsilon_2")):
        hidden = ("FME", "PropDPM") if panel == "A" else ("FME",)  # as in the paper
        for name in METHODS:
            own = sorted((r for r in rows if (r["panel"], r["method"]) == (panel, name)), key=lambda r: r[x])
            if name in hidden or not own:
                continue
            at = [r[x] for r in own]
            if panel == "A":
                line, dots = ([second_order(r[k], r["n"]) for r in own] for k in ("predicted", "mse"))
                reach = [1.96 * r["se"] * r["n"] ** 2 for r in own]
            else:
                line, dots = ([1e4 * r[k] for r in own] for k in ("predicted", "mse"))
                reach = [1.96e4 * r["se"] for r in own]
            axes.plot(at, line, color=_COLOURS[name], lw=1.1)
            style = {"fmt": _MARKS[name], "color": _COLOURS[name], "ms": 4, "elinewidth": 1}
            axes.errorbar(at, dots, reach, label=_label(name), **style)
    left.set(xlabel="n", ylabel="(MSE - 1/(12n)) n²", title="(A) ε₁ = .1, ε₂ = .15, half each, uniform data")
    right.set(xlabel="ε₂", ylabel="MSE × 10⁴", title="(B) ε₁ = .1 for 70 % of 1,000, data of ±½")
    sizes = [r["n"] for r in rows if r["panel"] == "B"]
    if sizes:
        edge = two_groups(sizes[0], 0.7, 0.1, 0.1).saturation
        right.axvline(edge, color="0.4", ls="--", lw=1, label=f"saturation, {edge:.3f}")
    left.set_ylim(top=1.2 * left.get_ylim()[1])  # room for the legend
    for axes in (left, right):
        axes.title.set_fontsize(9)
        axes.legend(fontsize=6.5)


def _draw_table_one(rows: Sequence[Row], canvas: Any) -> None:
    """Both groups' weights against eps_2: lines as printed, one panel for each population."""
    from fractions import Fraction

    names = list(dict.fromkeys((r["n"], r["private"]) for r in rows))
    for axes, (n, private) in zip(canvas.subplots(1, len(names), squeeze=False)[0], names, strict=True):
        own = [r for r in rows if (r["n"], r["private"]) == (n, private)]
        at = [float(Fraction(r["epsilon_2"])) for r in own]
        axes.plot(at, [n * r["w_1"] for r in own], "C0o-", ms=4, label="n w₁ (more private)")
        axes.plot(at, [n * r["w_2"] for r in own], "C3s-", ms=4, label="n w₂")
        axes.axvline(own[0]["saturation"], color="0.4", ls="--", lw=1, label="R ε₁")
        axes.set(xlabel="ε₂", ylabel="weight of a person × n", xscale="log", title=f"n = {n}, f = {private / n:g}")
        axes.title.set_fontsize(9)
        axes.legend(fontsize=6.5)


def _draw_table_two(rows: Sequence[Row], canvas: Any) -> None:
    """Printed numbers beside the draws."""
    for column, (axes, kind) in enumerate(zip(canvas.subplots(1, 2, sharey=True), ("high", "low"), strict=True)):
        for i, name in enumerate(METHODS):
            values = [r["log_mse"] for r in rows if (r["method"], r["variance"]) == (name, kind)]
            axes.plot(np.full(len(values), i), values, ".", color="C0", label="simulated, a draw" if i == 0 else None)
            shown = "printed" if i == 0 else None
            axes.plot([i - 0.35, i + 0.35], [PRINTED[name][column]] * 2, "C3-", lw=1.5, label=shown)
        axes.set_xticks(range(len(METHODS)), ["FME\n(inferred)" if m == "FME" else m for m in METHODS], fontsize=7)
        axes.set(title=f"{kind} variance of ε", ylabel="ln MSE")
        axes.legend(fontsize=7)


def _nothing(_: Point) -> str:
    return "made-up values"


def _figure_grid(runs: int) -> tuple[Grid, ...]:
    return (
        Grid({"panel": ("A",), "n": _SIZES, "epsilon_2": (0.15,), "runs": (runs,)}),
        Grid({"panel": ("B",), "n": (1000,), "epsilon_2": _EPSILONS, "runs": (runs,)}),
    )


def _second_grid(draws: int, runs: int) -> tuple[Grid, ...]:
    kinds, numbers = ("high", "low"), tuple(range(draws))
    return (Grid({"variance": kinds, "draw": numbers, "people": (1000,), "runs": (runs,)}, repeated="draw"),)


_LEVELS = ("1/10", "13/100", "17/100", "1/5", "3/10", "1/2", "1", "10", "1000")
_FIRST = tuple(
    Grid({"n": (n,), "private": (private,), "epsilon_1": ("1/10",), "epsilon_2": _LEVELS})
    for n, private in ((1000, 700), (1000, 100), (200, 199))
)

FIGURES: tuple[Figure, ...] = (
    Figure(
        "adpm-1",
        "Chaudhuri and Courtade 2023, Figure 1",
        "ADPM has the least error; it stops gaining at eps_2 = R eps_1, where proportional weights begin to lose.",
        {"quick": _figure_grid(20_000), "full": _figure_grid(200_000)},
        adpm_errors,
        judge_figure,
        _draw_figure,
        _nothing,
    ),
    Figure(
        "adpm-table-1",
        "Chaudhuri and Courtade 2023, Table I",
        "Weights are proportional to epsilon until eps_2 reaches R eps_1, and then stay.",
        {"quick": _FIRST, "full": _FIRST},
        adpm_table_one,
        judge_table_one,
        _draw_table_one,
    ),
    Figure(
        "adpm-table-2",
        "Chaudhuri and Courtade 2023, Table II",
        "With 1,000 epsilons of their own ADPM has the least error, more clearly the more the epsilons vary.",
        {"quick": _second_grid(12, 1_000), "full": _second_grid(20, 20_000)},
        adpm_table_two,
        judge_table_two,
        _draw_table_two,
        _nothing,
    ),
)
