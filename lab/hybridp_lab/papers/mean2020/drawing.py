"""Pictures of the hybrid mean's figures: solid lines are corrected, dotted ones as printed, crosses are trials."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridp_lab.figure.declared import Row
from hybridp_lab.papers.mean2020.data import LAWS, beta_sd
from hybridp_lab.papers.mean2020.judges import curves
from hybridp_lab.papers.mean2020.maps import over_space

__all__ = ["draw_known", "draw_mean_skew", "draw_salaries_known", "draw_salaries_unknown", "draw_unknown"]
__all__ += ["draw_variance_skew", "draw_workshop_errors", "draw_workshop_ratio"]

_COLOURS = {(0.005, 0.1): "C0", (0.005, 1.0): "C1", (0.05, 0.1): "C2", (0.05, 1.0): "C3"}


def _colour(row: Row) -> str:
    return _COLOURS.get((row["c"], row["epsilon"]), "k")


def _label(row: Row) -> str:
    return f"c = {100 * row['c']:g} %, ε = {row['epsilon']:g}"


def _lines(ax: Any, found: Sequence[Row], value: str, style: str = "-", labels: bool = True) -> None:
    for r in found:
        more = r.get("turn", {}) if value == "R" else {}
        line = sorted(zip([*r["n"], *more.get("n", [])], [*r[value], *more.get(value, [])], strict=True))
        ax.plot(*zip(*line, strict=True), style, color=_colour(r), lw=1.3, label=_label(r) if labels else None)
    ax.set(xscale="log", xlabel="n")


def _crosses(ax: Any, rows: Sequence[Row], **where: Any) -> None:
    for r in rows:
        if r["kind"] == "trials" and all(r[key] == value for key, value in where.items()):
            reach = [[r["R"] - r["low"]], [r["high"] - r["R"]]]
            ax.errorbar([r["n"]], [r["R"]], reach, fmt="x", color=_colour(r), ms=5, capsize=2)


def draw_known(rows: Sequence[Row], canvas: Any) -> None:
    axes = canvas.subplots(1, 4)
    x = np.linspace(0.005, 0.995, 400)
    laws = list(dict.fromkeys(r["law_t"] for r in curves(rows)))
    for law in laws:
        a, b = LAWS[law]
        density = x ** (a - 1) * (1 - x) ** (b - 1)
        axes[0].plot(x, density / (density.sum() * (x[1] - x[0])), label=f"{law}, σ = {beta_sd(law):.3f}")
    axes[0].set(xlabel="value", ylabel="density", ylim=(0, 4))
    axes[0].legend(fontsize=6)
    for ax, law in zip(axes[1:], laws, strict=True):
        _lines(ax, curves(rows, law_t=law), "R")
        _lines(ax, curves(rows, form="as printed", law_t=law), "R", ":", labels=False)
        _crosses(ax, rows, law_t=law)
        ax.set(title=law, ylim=(0.95, 2.5))
        ax.title.set_fontsize(9)
    axes[1].set_ylabel("R of KVH (dotted: as printed)")
    axes[1].legend(fontsize=6)


def draw_unknown(rows: Sequence[Row], canvas: Any) -> None:
    laws = list(dict.fromkeys(r["law_t"] for r in curves(rows)))
    axes = canvas.subplots(2, len(laws), sharex=True, sharey="row")
    for column, law in zip(axes.T, laws, strict=True):
        _lines(column[0], curves(rows, law_t=law), "R_pwh")
        _lines(column[0], curves(rows, form="as printed", law_t=law), "R_pwh", ":", labels=False)
        _crosses(column[0], rows, law_t=law)
        column[0].axhline(1, color="0.7", lw=0.8)
        column[0].set(title=law, xlabel="")
        _lines(column[1], curves(rows, law_t=law), "r_pwh")
        column[1].set_yscale("log")
    axes[0][0].set_ylabel("R of PWH")
    axes[1][0].set_ylabel("r of PWH")
    axes[0][-1].legend(fontsize=6)


def draw_variance_skew(rows: Sequence[Row], canvas: Any) -> None:
    skewed = [r for r in curves(rows) if r["law_t"] != r["law_l"]]
    pairs = list(dict.fromkeys((r["law_t"], r["law_l"]) for r in skewed))
    for ax, (own, other) in zip(canvas.subplots(1, 2, sharey=True), pairs, strict=True):
        _lines(ax, curves(rows, law_t=own, law_l=other), "R")
        _lines(ax, curves(rows, law_t=own, law_l=own), "R", "--", labels=False)
        _crosses(ax, rows, law_t=own)
        ax.set(title=f"{own} trusted, {other} local", ylabel="R of KVH (dashed: both groups as the trusted)")
        ax.title.set_fontsize(9)
        ax.legend(fontsize=7)


def draw_mean_skew(rows: Sequence[Row], canvas: Any) -> None:
    shifts = sorted({r["shift"] for r in curves(rows)})
    axes = canvas.subplots(1, len(shifts), sharey=True)
    for ax, shift in zip(axes, shifts, strict=True):
        _lines(ax, curves(rows, shift=shift), "R")
        if shift:
            _lines(ax, curves(rows, shift=shift), "R_told", "--", labels=False)
        _crosses(ax, rows, shift=shift)
        ax.axhline(1, color="0.7", lw=0.8)
        ax.set(yscale="log", title=f"trusted −{shift:g}, local +{shift:g}")
        ax.title.set_fontsize(9)
    axes[0].set_ylabel("R of KVH (dashed: the gap is known)")
    axes[0].legend(fontsize=7)


def _heat(ax: Any, canvas: Any, rows: Sequence[Row], value: str, label: str, log: bool = False) -> None:
    epsilon, c, values = over_space(rows, value)
    shown = ax.pcolormesh(
        100 * c, epsilon, np.log10(values) if log else values, cmap="magma" if log else "viridis", shading="nearest"
    )
    canvas.colorbar(shown, ax=ax, label=f"log10 of {label}" if log else label)
    ax.set(xscale="log", yscale="log", xlabel="trusted people, %", ylabel="epsilon")


def draw_salaries_known(rows: Sequence[Row], canvas: Any) -> None:
    left, right = canvas.subplots(1, 2)
    result = next(r for r in rows if r["kind"] == "salaries")
    edges = np.array(result["edges"])
    edges[0] = 500.0  # the first bar holds everything below 1,000
    left.stairs(result["shares"], edges, fill=True, alpha=0.6)  # widths are equal in log scale, but for the first
    left.set(xscale="log", xlabel="yearly pay", ylabel="share of people", title=result["source"])
    left.title.set_fontsize(9)
    _heat(right, canvas, rows, "R", "R of KVH")


def draw_salaries_unknown(rows: Sequence[Row], canvas: Any) -> None:
    left, right = canvas.subplots(1, 2)
    _heat(left, canvas, rows, "R_pwh", "R of PWH")
    epsilon, c, values = over_space(rows, "R_pwh")
    left.contour(100 * c, epsilon, values, levels=[0.5, 1.0], colors=["r", "w"], linewidths=1)
    _heat(right, canvas, rows, "r_pwh", "r of PWH", log=True)
    left.set_title("red line: .5, white line: 1", fontsize=9)


def draw_workshop_errors(rows: Sequence[Row], canvas: Any) -> None:
    ax = canvas.subplots()
    [result] = curves(rows)
    for value, label in (("full_lm", "FullLM"), ("tcm", "OnlyTCM"), ("kvh", "Hybrid")):
        ax.plot(result["n"], result[value], label=label)
    ax.axvline(result["n_crit"], color="0.6", ls=":", label="n critical")
    ax.set(xscale="log", yscale="log", xlabel="n", ylabel="mean squared error")
    ax.legend()


def draw_workshop_ratio(rows: Sequence[Row], canvas: Any) -> None:
    ax = canvas.subplots()
    [result] = curves(rows)
    ax.plot(result["n"], result["R"], label="closed form")
    [said] = curves(rows, form="as printed")
    ax.plot(said["n"], said["R"], ":", color="C3", label="with Lemma 3.6 of the later paper as printed")
    _crosses(ax, rows)
    ax.axvline(result["n_crit"], color="0.6", ls=":", label="n critical")
    ax.set(xscale="log", xlabel="n", ylabel="R of Hybrid (crosses: trials)")
    ax.legend()
