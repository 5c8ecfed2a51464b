"""Which map and how many rounds do these people's epsilons afford? Read from the numbers alone, before anyone is asked.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.kmeans import Box
>>> study = KMeansStudy(Box((0.0, 0.0), (1.0, 1.0)), 3, PureDP(4.0))
>>> plan_kmeans(study, ("a", "b"), people=6_600, opt_in=0.0909).people["trusted"]
600
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hybridp.errors import must
from hybridp.release import style
from hybridp.release.plan import Plan, planned, predicted
from hybridp.tasks.kmeans import KMeansStudy

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plan_kmeans"]


def draw_map(plan: Plan, ax: Axes | None) -> Axes:
    """The public bounds of the first two coordinates, with the cells of the map; needs matplotlib."""
    ax = style.new_axes(ax, 5.6, 5.0)
    bounds, columns = plan.facts["bounds"], plan.facts["columns"]
    lower, upper = bounds["lower"], bounds["upper"]
    told, flat = plan.predicted, len(columns) == 1
    second = (0.0, 1.0) if flat else (lower[1], upper[1])
    ax.set_xlim(lower[0], upper[0])
    ax.set_ylim(*second)
    for i in range(1, told["per_axis"]):
        ax.axvline(lower[0] + i * (upper[0] - lower[0]) / told["per_axis"], color=style.FAINT, lw=0.8)
        if not flat:
            ax.axhline(second[0] + i * (second[1] - second[0]) / told["per_axis"], color=style.FAINT, lw=0.8)
    ax.set_xlabel(columns[0])
    style.plain_numbers(ax.xaxis)
    style.plain_numbers(ax.yaxis)
    if flat:
        ax.set_yticks([])
    else:
        ax.set_ylabel(columns[1])
    cells = f"A map of {told['map_cells']:,} cells" if told["map_cells"] else "No map"
    after = f", then {told['rounds']} round{'' if told['rounds'] == 1 else 's'}. Local people report once each."
    style.dress(ax, plan.in_words().title, cells + after, grid="")
    return ax


def plan_kmeans(study: KMeansStudy, columns: tuple[str, ...], *, people: int, opt_in: float) -> Plan:
    """The map, the rounds and the noise that these numbers afford. Nothing is read and nothing is spent."""
    must(0 <= opt_in <= 1, "opt-in", "must lie between 0 and 1", opt_in)
    trusted = round(people * opt_in)
    found, box = study.rounds(trusted, people - trusted), study.box
    facts = predicted(
        "kmeans",
        more={
            "map_cells": found.per_axis**box.dims if found.per_axis else 0,
            "per_axis": found.per_axis,
            "rounds": found.rounds,
            "trusted_spends": None if found.spent is None else str(found.spent),
            "local_parts": found.parts,
        },
        columns=list(columns),
        clusters=study.clusters,
        bounds={"lower": list(box.lower), "upper": list(box.upper)},
        remarks=["Local people report once each, with the whole epsilon."],
    )
    return planned({"points": {"centres": facts}}, people, opt_in, study.guarantee, picture=draw_map, setting=study)
