"""Draws the pictures of the documentation from the library: `python docs/figures.py`; more of them: more_figures.py.

Pictures of measurements come from `benchmarks/`. Needs the extras `plot` and `pareto`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib as mpl

mpl.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from matplotlib.axes import Axes
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

from hybridp.bench.crowd import salary_like
from hybridp.curator.sums import Raw, release_sums, squares
from hybridp.noise import reports, seeded, synthetic_data_generator
from hybridp.pareto import dpareto, final_front, load_problem, pareto_indices, random_search
from hybridp.public.mechanisms import PureDP
from hybridp.public.messages import LocalSummary
from hybridp.public.randomisers import Bounds, dithered_bit, piecewise
from hybridp.public.rounds import Answer, Crowd
from hybridp.release import style
from hybridp.study import Study
from hybridp.study import kmeans as release_kmeans
from hybridp.tasks.mean import MeanTask, publish_mean
from hybridp_lab.baselines.acquisition import grid_search
from hybridp_lab.baselines.local import local_additive

__all__ = ["flow", "kmeans", "main", "pareto", "plan", "reach", "release"]

IMAGES = Path(__file__).resolve().parent / "images"
BOUNDS = Bounds(0.0, 250_000.0)


def _save(name: str) -> None:
    plt.savefig(IMAGES / name, dpi=100, metadata={"Software": None})
    plt.close()


def _box(ax: Axes, x: float, y: float, w: float, h: float, title: str, text: str, colour: str) -> None:
    style = "round,pad=0.02,rounding_size=0.08"
    ax.add_patch(FancyBboxPatch((x, y), w, h, boxstyle=style, fc=colour, ec="0.35", lw=1.2))
    ax.text(x + w / 2, y + h - 0.16, title, ha="center", va="top", fontsize=11, weight="bold")
    ax.text(x + w / 2, y + h - 0.47, text, ha="center", va="top", fontsize=9.5, linespacing=1.35)


def _arrow(ax: Axes, start: tuple[float, float], end: tuple[float, float], label: str, at: tuple[float, float]) -> None:
    ax.add_patch(FancyArrowPatch(start, end, arrowstyle="-|>", mutation_scale=15, color="0.25", lw=1.5))
    ax.text(*at, label, ha="center", va="center", fontsize=9.5, style="italic")


def flow() -> None:
    """Who sends what to whom: the rooms and the lines of trust between them."""
    _, ax = plt.subplots(figsize=(9.2, 3.5), layout="constrained")
    _box(ax, 0.0, 1.75, 2.3, 1.15, "device", "a local person's value\nbecomes one report", "#dbe9f6")
    _box(ax, 0.0, 0.1, 2.3, 1.15, "trusting people", "send their value\nas it is", "#fbe3d4")
    _box(ax, 3.75, 0.1, 2.2, 1.15, "curator", "charges the ledger,\nadds up, adds exact noise", "#fbe3d4")
    _box(ax, 3.75, 1.75, 2.2, 1.15, "blend", "combines by weight:\nno rows, no noise", "#e4f1de")
    _box(ax, 7.35, 1.75, 2.1, 1.15, "release", "estimate, interval,\nprivacy receipt", "#e4f1de")
    _arrow(ax, (2.34, 2.3), (3.71, 2.3), "report", (3.03, 2.47))
    _arrow(ax, (2.34, 0.66), (3.71, 0.66), "value", (3.03, 0.83))
    _arrow(ax, (4.85, 1.3), (4.85, 1.7), "noisy sum", (5.42, 1.49))
    _arrow(ax, (5.99, 2.3), (7.31, 2.3), "published", (6.72, 2.47))
    ax.plot([2.62, 2.62], [1.5, 3.1], ls="--", color="C0", lw=1.3)
    ax.text(2.62, 3.2, "local people trust nobody beyond this line", ha="center", color="C0", fontsize=9.5)
    ax.plot([6.15, 6.15], [0.0, 3.1], ls="--", color="C1", lw=1.3)
    ax.text(6.28, 0.75, "trusting people trust\nthe curator, and nobody\nbeyond this line", color="C1", fontsize=9.5)
    ax.set_xlim(-0.15, 9.65)
    ax.set_ylim(-0.1, 3.35)
    ax.set_axis_off()
    _save("flow.png")


def plan() -> None:
    """Expected error against the share of trusting people: what `hybridp plan mean --plot` draws."""
    pay = {"name": "value", "kind": "number", "lower": BOUNDS.lower, "upper": BOUNDS.upper, "sd": 45_000}
    study = Study(questions=[pay], promise={"epsilon": 1.0}, trust="trust")  # type: ignore[arg-type]
    study.plan(trusted=1_000, local=49_000)["value"].plot()
    _save("plan.png")


def release() -> None:
    """`Release.plot()` of a mean of one simulated collection."""
    rng = seeded(11)
    study = MeanTask(BOUNDS, PureDP(1.0)).decided(1_000, 49_000)
    levels = BOUNDS.levels(salary_like(50_000, rng=seeded(1)))
    trusted, local = levels[:1000], levels[1000:]
    unit = reports(study.invite.mechanism, local, rng=rng)
    summary = LocalSummary(len(unit), float(unit.sum()), float(unit @ unit), study.invite.mechanism)
    totals = Raw(len(trusted), [int(trusted.sum())], summary, squares=squares(trusted[:, None], BOUNDS))
    noisy = release_sums(totals, study.sum_noise, BOUNDS, study.squares_noise, rng=rng)
    publish_mean(study, Answer(len(trusted), noisy, summary), Crowd.of("value", rng=rng)).named("salary").plot()
    _save("release.png")


def _end_labels(ax: Axes, ends: list[tuple[str, float, float, str]]) -> None:
    """Names at the right of curves, (name, x, y of its end, colour), moved apart where they would touch.

    The limits of the axes must be set.
    """
    size = style.points(ax, 9.5)
    gap = 1.5 * size / (72 * 0.6 * ax.figure.get_figheight())
    result = []
    for name, x, y, colour in ends:
        place = ax.transAxes.inverted().transform(ax.transData.transform((x, y)))
        result.append((min(1.0, max(0.0, float(place[1]))), float(place[0]), name, colour))
    result.sort(key=lambda one: one[0])
    heights: list[float] = []
    for one in result:
        heights.append(max(one[0], heights[-1] + gap if heights else -1.0))
    for i in reversed(range(len(heights))):
        heights[i] = min(heights[i], 1.0 if i == len(heights) - 1 else heights[i + 1] - gap)
    for (y, x, name, colour), height in zip(result, heights, strict=True):
        ax.annotate(
            name, (x, y), xycoords="axes fraction", xytext=(1.035, height), textcoords="axes fraction", fontsize=size,
            color=colour, va="center", ha="left", annotation_clip=False,
            arrowprops={"arrowstyle": "-", "color": colour, "lw": 0.7, "shrinkA": 1, "shrinkB": 1, "relpos": (0, 0.5)},
        )  # fmt: skip


def reach() -> None:
    """How far dishonest devices can move the local mean, by randomiser: docs/privacy-model.md has the formula."""
    epsilons = np.geomspace(0.1, 8, 60)
    ax = style.new_axes(None, 7.2, 3.8)
    looks: dict[str, tuple[Any, str]] = {
        "laplace": (local_additive, style.QUIET),
        "piecewise": (piecewise, style.TRUSTED),
        "dithered": (dithered_bit, style.LOCAL),
    }
    ends = []
    for name, (make, colour) in looks.items():
        shift = 0.01 * (np.array([make(PureDP(float(e))).bound for e in epsilons]) + 1) / 2
        ax.loglog(epsilons, shift, color=colour, lw=2)
        ends.append((name, epsilons[-1], float(shift[-1]), colour))
    ax.axhline(0.01, color=style.INK, lw=1, ls=":")
    ends.append(("lying about the value", epsilons[-1], 0.01, style.INK))
    ax.set(xlim=(0.1, 8), ylim=(0.005, 10), xlabel="epsilon", ylabel="shift, of the range")
    style.plain_numbers(ax.xaxis)
    style.plain_numbers(ax.yaxis, percents=True)
    _end_labels(ax, ends)
    style.dress(
        ax,
        "Largest shift of the local mean by 1% dishonest devices",
        "By the report that they pretend to send.",
        grid="both",
    )
    _save("reach.png")


def kmeans() -> None:
    """`Release.plot()` of centres of one simulated collection: what `hybridp release kmeans --plot` draws."""
    draw = synthetic_data_generator(seeded(1))
    true = np.array([[0.2, 0.3], [0.75, 0.25], [0.5, 0.8]])
    points = true[draw.integers(0, 3, 20_000)] + 0.04 * draw.standard_normal((20_000, 2))
    trust = np.where(np.arange(20_000) < 1000, "trusted", "local")
    people, bounds = {"x": points[:, 0], "y": points[:, 1], "trust": trust}, {"x": (0, 1), "y": (0, 1)}
    asked = release_kmeans(people, clusters=3, bounds=bounds, trust="trust", epsilon=3.0, missing="middle",
                           simulate_local=True, rng=seeded(2))  # fmt: skip
    asked.plot()
    _save("kmeans.png")


def pareto() -> None:
    """The front of the sparse vector technique by three searches, every setting on it measured afresh."""
    problem = load_problem("svt")
    careful = replace(problem, repeats=20)
    ours = dpareto(problem, init=16, steps=24, seed=1)
    searches = {
        "grid, 900 evaluations": (
            [e.setting for e in grid_search(problem, per_axis=30, seed=1).front],
            style.QUIET,
            1.2,
        ),
        "random search, 40": ([e.setting for e in random_search(problem, n=40, seed=1).front], style.LOCAL, 1.8),
        "DPareto, 40": ([c.setting for c in final_front(problem, ours.evaluations)], style.TRUSTED, 2.2),
    }
    ax = style.new_axes(None, 7.4, 4.0)
    ends = []
    for label, (settings, colour, width) in searches.items():
        found = [careful.evaluate(setting, 100 + i) for i, setting in enumerate(settings)]
        points = np.array([[e.epsilon, e.values[0]] for e in found])
        steps = points[pareto_indices(points)]
        x, y = np.append(steps[:, 0], 1000.0), np.append(steps[:, 1], steps[-1, 1])
        ax.step(x, y, where="post", color=colour, lw=width)
        ax.plot(*steps.T, ".", color=colour, ms=5 if colour != style.QUIET else 0)
        ends.append((label, 1000.0, float(y[-1]), colour))
    ax.set_xscale("log")
    ax.set(xlim=(0.05, 1000), ylim=(0, ax.get_ylim()[1]), xlabel="epsilon", ylabel="1 - F1 score")
    style.plain_numbers(ax.xaxis)
    style.plain_numbers(ax.yaxis)
    _end_labels(ax, ends)
    about = (
        "Fronts of the sparse vector technique on 100 queries, 10 of them positive; every setting was measured afresh."
    )
    style.dress(ax, "Error that an epsilon buys, by how it was searched for", about, grid="both")
    _save("pareto.png")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    for draw in (flow, plan, release, reach, kmeans, pareto):
        draw()


if __name__ == "__main__":
    main()
