"""Pictures of the rows of chapter 4's figures. matplotlib is only used through the canvas that is handed in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridp_lab.figure.catalogue import Row, mean_by
from hybridp_lab.papers.rap2023 import regression
from hybridp_lab.papers.rap2023.appendix import filtering_rows
from hybridp_lab.papers.rap2023.checks import Settings, best, tried
from hybridp_lab.papers.rap2023.judges import chosen_fits, corrected

__all__ = ["by_law", "by_rows", "drifting", "heatmaps", "histories", "mechanisms", "regressions", "training"]

_MARKS = "osv^D*"


def _panels(canvas: Any, names: Sequence[str]) -> list[Any]:
    result = canvas.subplots(1, len(names), sharey=True, squeeze=False)[0]
    for axes, name in zip(result, names, strict=True):
        axes.set_title(name, fontsize=9 if len(names) <= 4 else 7)
    return list(result)


def _label(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def mechanisms(rows: Sequence[Row], canvas: Any, *, panel: str, x: str) -> None:
    """Figures 4.2 and 4.7: the error of every mechanism along x, a panel for each value of another axis."""
    keys = ["data", panel, x]
    groups, others = tried(corrected(rows), keys), mean_by(rows, [*keys, "mechanism"], "error")
    printed = tried([row for row in rows if row.get("form") == "as printed"], keys)
    names = list(dict.fromkeys(key[:2] for key in groups))
    for axes, name in zip(_panels(canvas, [f"{d}, {panel} {_label(v)}" for d, v in names]), names, strict=True):
        line = sorted((key[2], *best(settings)) for key, settings in groups.items() if key[:2] == name)
        axes.plot([at for at, _, _ in line], [error for _, _, error in line], "o-", label="RAP, best (T, K)")
        for at, pair, error in line:
            axes.annotate(f"{pair}", (at, error), fontsize=6, textcoords="offset points", xytext=(2, 4))
        unsafe = sorted((key[2], best(settings)[1]) for key, settings in printed.items() if key[:2] == name)
        if unsafe:
            axes.plot(*zip(*unsafe, strict=True), "x:", color="C3", label="RAP as printed (spends 1.5 rho)")
        for mark, mechanism in zip(_MARKS[1:], ("non-adaptive", "GM", "All-0"), strict=False):
            other = sorted((key[2], e) for key, e in others.items() if key[:2] == name and key[3] == mechanism)
            if other:
                axes.plot(*zip(*other, strict=True), f"{mark}--", label=mechanism)
        axes.set_xlabel("thresholds |W|" if x == "workload" else x)
        axes.set_xscale("log", base=4)
        axes.set_yscale("log")
        axes.set_ylabel("present error")
        axes.legend(fontsize=6)


def heatmaps(rows: Sequence[Row], canvas: Any, *, panel: str) -> None:
    """Figures 4.3, 4.4 and 4.8: the error at every (T, K), a line of panels for each form."""
    lines: dict[str, dict[tuple[Any, ...], Settings]] = {}
    for form in dict.fromkeys(row.get("form", "corrected") for row in rows):
        lines[form] = tried([row for row in rows if row.get("form", "corrected") == form], ["data", panel])
    columns = list(dict.fromkeys(key for groups in lines.values() for key in groups))
    highest = max(error for groups in lines.values() for settings in groups.values() for error in settings.values())
    grid = canvas.subplots(len(lines), len(columns), squeeze=False)
    for line, (form, groups) in zip(grid, lines.items(), strict=True):
        for axes, key in zip(line, columns, strict=True):
            axes.set_title(f"{key[0]}, {panel} {_label(key[1])}" + (f", {form}" if len(lines) > 1 else ""), fontsize=8)
            _heatmap(axes, groups.get(key, {}), highest)


def _heatmap(axes: Any, settings: Settings, highest: float) -> None:
    rounds, picks = (sorted({pair[i] for pair in settings}) for i in (0, 1))
    table = np.array([[settings.get((t, k), np.nan) for k in picks] for t in rounds]).reshape(len(rounds), len(picks))
    axes.imshow(table, origin="lower", vmin=0, vmax=highest, cmap="viridis_r", aspect="auto")
    for i, j in np.ndindex(table.shape):
        if np.isfinite(table[i, j]):
            colour = "white" if table[i, j] > 0.5 * highest else "black"
            axes.text(j, i, f"{table[i, j]:.3f}", ha="center", va="center", fontsize=7, color=colour)
    axes.set_xticks(range(len(picks)), picks)
    axes.set_yticks(range(len(rounds)), rounds)
    axes.set_xlabel("K")
    axes.set_ylabel("T")


def regressions(rows: Sequence[Row], canvas: Any, *, size: regression.Size, epsilon: float = 0.1) -> None:
    """Figures 4.5 and 4.6: the full model at one epsilon, over its observations."""
    kept = filtering_rows(rows)
    names = list(dict.fromkeys(row["data"] for row in kept))
    for axes, name in zip(_panels(canvas, [f"{name}, epsilon {epsilon:g}" for name in names]), names, strict=True):
        own = [row for row in kept if row["data"] == name]
        result = regression.filtering_test(own, size)
        levels = sorted({row["epsilon"] for row in own})
        reach = np.geomspace(min(row[size] for row in own), max(row[size] for row in own), 40)
        for filtered, mark in ((False, "o"), (True, "s")):
            seen = [row for row in own if row["filtered"] == filtered and row["epsilon"] == epsilon]
            dots = axes.plot([r[size] for r in seen], [r["error"] for r in seen], mark, alpha=0.6)
            flags = [filtered] * (len(reach) + len(levels))
            # One point of every epsilon makes the dummies complete; only the line's own points are drawn.
            base, extra = regression.filtering_design(
                [*levels, *[epsilon] * len(reach)], [1.0] * len(levels) + reach.tolist(), flags
            )
            fitted = np.column_stack([base, extra]) @ np.array([c.value for c in result.coefficients])
            told = "filtered" if filtered else "unfiltered"
            axes.plot(reach, fitted[len(levels) :], "-", color=dots[0].get_color(), label=told)
        axes.set_xscale("log")
        axes.set_xlabel("thresholds |W|" if size == "workload" else "consistent queries")
        axes.set_ylabel("present error")
        axes.legend(fontsize=7)


def by_rows(rows: Sequence[Row], canvas: Any) -> None:
    """Figure 4.9: error and CPU seconds against n'."""
    result = chosen_fits(rows)
    for number, (axes, name) in enumerate(
        zip(canvas.subplots(1, 2), ("present error", "CPU seconds of the fit"), strict=True)
    ):
        for data, r in dict.fromkeys(key[:2] for key in result):
            line = sorted((key[2], pair[number]) for key, pair in result.items() if key[:2] == (data, r))
            axes.plot(*zip(*line, strict=True), f"{_MARKS[r % 6]}-", label=f"{data}, r = {r}")
        axes.set_xlabel("synthetic rows n'")
        axes.set_ylabel(name)
        axes.set_xscale("log")
        axes.legend(fontsize=7)
    axes.set_yscale("log")


def by_law(rows: Sequence[Row], canvas: Any, *, together: bool) -> None:
    """Figures 4.13 (a panel for each distribution, with All-0 and the best in hindsight) and 4.14 (one for all)."""
    keys = ["data", "law", "workload"]
    shown, later, zero = tried(rows, keys, "present"), tried(rows, keys), mean_by(rows, keys, "All-0")
    laws = list(dict.fromkeys(key[:2] for key in later))
    names = sorted({data for data, _ in laws}) if together else [f"{data}, {law}" for data, law in laws]
    panels = _panels(canvas, names)
    for i, law in enumerate(laws):
        axes = panels[names.index(law[0])] if together else panels[i]
        sizes = sorted(key[2] for key in later if key[:2] == law)
        chosen = [best(shown[(*law, size)])[0] for size in sizes]
        errors = [later[(*law, size)][pair] for size, pair in zip(sizes, chosen, strict=True)]
        if together:
            axes.plot(sizes, errors, f"{_MARKS[i % 6]}-", label=law[1])
        else:
            reach = [_reach(rows, (*law, size), pair) for size, pair in zip(sizes, chosen, strict=True)]
            axes.errorbar(sizes, errors, yerr=reach, fmt="o-", capsize=3, label="RAP")
            axes.plot(sizes, [best(later[(*law, size)])[1] for size in sizes], "s--", label="RAP (opt)")
            axes.plot(sizes, [zero[(*law, size)] for size in sizes], "v--", label="All-0")
        axes.set_xscale("log", base=4)
        axes.set_xlabel("historical thresholds")
        axes.set_ylabel("future error")
        axes.legend(fontsize=7)


def _reach(rows: Sequence[Row], key: tuple[Any, ...], pair: tuple[int, int]) -> float:
    """Half of Student's 95 % interval over trials, which covers noise, history and future thresholds."""
    own = [r["error"] for r in rows if (r["data"], r["law"], r["workload"]) == key and (r["T"], r["K"]) == pair]
    return _student(own)


def _student(values: Sequence[float]) -> float:
    from scipy.stats import t as student

    if len(values) < 2:
        return 0.0
    spread = float(np.std(values, ddof=1) / np.sqrt(len(values)))
    return float(student.ppf(0.975, len(values) - 1)) * spread


def training(rows: Sequence[Row], canvas: Any) -> None:
    """Figure 4.15: loss, present and future error after every round."""
    keys = ["data", "law", "round"]
    names = list(dict.fromkeys((row["data"], row["law"]) for row in rows))
    for axes, name in zip(_panels(canvas, [f"{data}, {law}" for data, law in names]), names, strict=True):
        for value, told in (("loss", "mean squared loss"), ("present", "present error"), ("error", "future error")):
            line = sorted((key[2], mean) for key, mean in mean_by(rows, keys, value).items() if key[:2] == name)
            axes.plot(*zip(*line, strict=True), label=told)
        axes.set_yscale("log")
        axes.set_xlabel("round")
        axes.legend(fontsize=7)


def drifting(rows: Sequence[Row], canvas: Any) -> None:
    """Figure 4.16: future error against drift."""
    groups: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        groups.setdefault((row["data"], row["gamma"]), []).append(row["error"])
    axes = canvas.subplots()
    for data in dict.fromkeys(key[0] for key in groups):
        line = sorted((key[1], values) for key, values in groups.items() if key[0] == data)
        means = [float(np.mean(values)) for _, values in line]
        axes.errorbar([g for g, _ in line], means, yerr=[_student(v) for _, v in line], fmt="o-", capsize=3, label=data)
    axes.set_xlabel("drift gamma")
    axes.set_ylabel("future error")
    axes.legend(fontsize=7)


def histories(rows: Sequence[Row], canvas: Any) -> None:
    """The future error by what was done with the history, a panel for each size; dots are trials."""
    sizes = sorted({row["workload"] for row in rows})
    kinds = list(dict.fromkeys(row["history"] for row in rows))
    for axes, size in zip(canvas.subplots(1, len(sizes), squeeze=False, sharey=True)[0], sizes, strict=True):
        for i, kind in enumerate(kinds):
            values = [row["error"] for row in rows if (row["workload"], row["history"]) == (size, kind)]
            axes.plot([i] * len(values), values, "o", ms=4, alpha=0.6, color="C0")
            if values:
                axes.plot([i - 0.3, i + 0.3], [float(np.mean(values))] * 2, "C3-", lw=1.5)
        axes.set_xticks(range(len(kinds)), kinds, fontsize=8)
        axes.set_title(f"{size} historical thresholds", fontsize=9)
    canvas.axes[0].set_ylabel("future error")
