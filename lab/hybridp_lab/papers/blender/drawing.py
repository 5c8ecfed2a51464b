"""Pictures of BLENDER's rows. matplotlib is only used through the canvas that is handed in.

Dotted lines are the mechanism as printed, solid ones as corrected, dashed ones our default. Lines have gaps where a
list of the wanted size was not found in every log.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from hybridp_lab.figure.catalogue import Row
from hybridp_lab.figure.ruling import student
from hybridp_lab.papers.blender.findings import chosen
from hybridp_lab.papers.blender.trials import FORMS, VOICES

__all__ = ["by_split", "four_groups", "sizes", "table", "trust_models", "two_groups"]

_STYLES = dict(zip(FORMS, (":", "-", "--"), strict=True))
_TITLES = {"aol": "AOL-like", "yandex": "Yandex-like"}
_AXES = {
    "opt_in": "opt-in (%)",
    "epsilon": "epsilon",
    "query_share": "share of the budget for queries",
    "l1": "l1 over the true M queries",
    "ndcg": "NDCG",
    "ndcg_printed_gain": "NDCG, printed gain",
}


def _line(axes: Any, rows: Sequence[Row], x: str, value: str, label: str, style: str, colour: str) -> None:
    """Means over logs with 95 % intervals."""
    at, means, reach = [], [], []
    for level in sorted({row[x] for row in rows}):
        own = [row for row in rows if row[x] == level]
        if all(row["reached"] for row in own):
            mean = float(np.mean([row[value] for row in own]))
            low, _ = student([row[value] for row in own])
            at.append(100 * level if x == "opt_in" else level)
            means.append(mean)
            reach.append(0.0 if low is None else mean - low)
    if at:
        axes.errorbar(at, means, reach, fmt="o", ls=style, ms=3, lw=1.2, elinewidth=0.7, color=colour, label=label)


def _finish(axes: Any, x: str, value: str, title: str) -> None:
    axes.set_xlabel(_AXES[x], fontsize=8)
    axes.set_ylabel(_AXES[value], fontsize=8)
    axes.set_title(title, fontsize=9)
    axes.tick_params(which="both", labelsize=7)
    if value == "l1":
        axes.set_yscale("log")
    handles, _ = axes.get_legend_handles_labels()
    if handles:
        axes.legend(fontsize=5.5, ncols=2, handlelength=3.5)


def sizes(rows: Sequence[Row], canvas: Any, *, x: str, value: str | tuple[str, str]) -> None:
    """Figures 2.5 to 2.8 (a panel a log) and 2.10 (a panel a measure): a colour for each list size."""
    panels = [(data, value) for data in dict.fromkeys(row["data"] for row in rows)]
    if isinstance(value, tuple):
        panels = [(rows[0]["data"], one) for one in value]
    for axes, (data, measure) in zip(canvas.subplots(1, len(panels), squeeze=False)[0], panels, strict=True):
        for i, head in enumerate(sorted({row["head"] for row in rows if row["data"] == data})):
            for form in FORMS:
                own = chosen(rows, data=data, head=head, form=form, voice="blended")
                _line(axes, own, x, str(measure), f"M = {head}, {form}", _STYLES[form], f"C{i}")
        _finish(axes, x, str(measure), _TITLES[data])


def _groups(axes: Any, rows: Sequence[Row], x: str, value: str, title: str) -> None:
    for i, voice in enumerate(VOICES):
        for form in FORMS:
            _line(axes, chosen(rows, form=form, voice=voice), x, value, f"{voice}, {form}", _STYLES[form], f"C{i}")
    _finish(axes, x, value, title)


def by_split(rows: Sequence[Row], canvas: Any) -> None:
    """Figure 2.3."""
    for axes, value in zip(canvas.subplots(1, 2), ("l1", "ndcg"), strict=True):
        _groups(axes, rows, "query_share", value, "AOL-like, M = 50")


def two_groups(rows: Sequence[Row], canvas: Any) -> None:
    """Figure 2.11."""
    for axes, value in zip(canvas.subplots(1, 2), ("l1", "ndcg"), strict=True):
        _groups(axes, rows, "opt_in", value, "Yandex-like, M = 10")


def four_groups(rows: Sequence[Row], canvas: Any) -> None:
    """Figure 2.9."""
    panels = [("opt_in", "l1"), ("opt_in", "ndcg"), ("epsilon", "l1"), ("epsilon", "ndcg")]
    for axes, (x, value) in zip(canvas.subplots(1, 4), panels, strict=True):
        fixed: dict[str, object] = {"epsilon": 4.0} if x == "opt_in" else {"opt_in": 0.03}
        _groups(axes, chosen(rows, **fixed), x, value, "")
        handles, labels = axes.get_legend_handles_labels()
        if handles:
            axes.get_legend().remove()  # one for all panels
    if handles:
        canvas.legend(handles, labels, loc="outside lower center", ncols=5, fontsize=6, handlelength=3.5)


def trust_models(rows: Sequence[Row], canvas: Any) -> None:
    """Figure 2.4: on the right with the gain that is printed."""
    for axes, value in zip(canvas.subplots(1, 2), ("ndcg", "ndcg_printed_gain"), strict=True):
        for form in FORMS:
            for i, (voice, name) in enumerate((("blended", "BLENDER"), ("opt-in", "TCM"))):
                own = chosen(rows, form=form, voice=voice)
                _line(axes, own, "epsilon", value, f"{name}, {form}", _STYLES[form], f"C{i}")
        if value == "ndcg":
            for bag in sorted({row["bag"] for row in rows if row["form"] == "LDPMiner"}):
                told = "one record" if bag == 1 else f"sets of {bag}"
                own = chosen(rows, form="LDPMiner", bag=bag)
                _line(axes, own, "epsilon", value, f"LM, {told}", "-." if bag == 1 else ":", "C2")
        _finish(axes, "epsilon", value, "AOL-like, M = 10")


def table(rows: Sequence[Row], canvas: Any) -> None:
    """Table 2.2: the means over logs of each column less the truth, a panel a form."""
    names = [row["query"] for row in sorted(chosen(rows, form=rows[0]["form"], log=rows[0]["log"]), key=_rank)]
    columns = ("blended", "opt-in", "clients")
    for axes, form in zip(canvas.subplots(1, len(FORMS), sharey=True), FORMS, strict=True):
        for i, column in enumerate(columns):
            for j, name in enumerate(names):
                own = chosen(rows, form=form, query=name)
                gaps = [row[column] - row["true"] for row in own]
                label = column if j == 0 else None
                axes.plot(np.full(len(gaps), j + 0.25 * (i - 1)), gaps, ".", ms=4, color=f"C{i}", label=label)
        axes.axhline(0, color="0.5", lw=0.8)
        axes.set_xticks(range(len(names)), names, rotation=70, fontsize=6)
        axes.set_title(form, fontsize=9)
        axes.legend(fontsize=6)
        axes.set_ylabel("estimate less truth", fontsize=8)


def _rank(row: Row) -> int:
    return int(row["rank"])
