"""Which map and how many rounds do these people's epsilons afford? Read from the numbers alone, before anyone is asked.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.kmeans import Box
>>> study = KMeansStudy(Box((0.0, 0.0), (1.0, 1.0)), 3, PureDP(4.0))
>>> plan_kmeans(study, ("a", "b"), people=6_600, opt_in=0.0909).trusted_people
600
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from hybridp.errors import must
from hybridp.protocols.kmeans import KMeansStudy
from hybridp.release import style
from hybridp.release.result import Result, Words, people_words, plan_document

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from pandas import DataFrame

__all__ = ["KMeansPlan", "plan_kmeans"]


@dataclass(frozen=True)
class KMeansPlan(Result):
    """The cells of the map (0: no map), the rounds after it, what trusted people spend, and how local ones divide."""

    study: KMeansStudy
    columns: tuple[str, ...]
    people: int
    opt_in: float
    per_axis: int
    rounds: int
    trusted_spends: str | None
    local_parts: int
    question: str = "points"

    @property
    def trusted_people(self) -> int:
        return round(self.people * self.opt_in)

    @property
    def local_people(self) -> int:
        return self.people - self.trusted_people

    @property
    def map_cells(self) -> int:
        return self.per_axis**self.study.box.dims if self.per_axis else 0

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        box = self.study.box
        told = {
            "task": "kmeans",
            "predicted": {
                "map_cells": self.map_cells,
                "per_axis": self.per_axis,
                "rounds": self.rounds,
                "trusted_spends": self.trusted_spends,
                "local_parts": self.local_parts,
            },
            "columns": list(self.columns),
            "clusters": self.study.clusters,
            "bounds": {"lower": list(box.lower), "upper": list(box.upper)},
        }
        promise = self.study.guarantee
        return plan_document(
            {self.question: {"centres": told}},
            people=self.people,
            opt_in=self.opt_in,
            epsilon=promise.epsilon,
            delta=promise.delta,
        )

    def to_frame(self) -> DataFrame:
        """One row: map, rounds and people; needs pandas, the extra "frames"."""
        import pandas as pd

        names = ["map_cells", "rounds", "trusted_people", "local_people", "local_parts"]
        return pd.DataFrame([[getattr(self, name) for name in names]], columns=names)

    @property
    def _title(self) -> str:
        promise = self.study.guarantee
        told = f"epsilon {promise.epsilon:g}" + (f", delta {promise.delta:g}" if promise.delta else "")
        people = people_words(self.trusted_people, self.local_people)
        return f"Plan for {self.study.clusters} centres: {people}, {told}"

    def in_words(self) -> Words:
        """The result as a title, a table and remarks."""
        rows = [
            ("cells of the map", f"{self.map_cells:,}" if self.map_cells else "no map"),
            ("rounds after it", str(self.rounds)),
            ("trusted people spend", self.trusted_spends or "nothing"),
            ("local people report", "once each, with the whole epsilon"),
        ]
        return Words(self._title, ("planned", "value"), rows)

    def plot(self, ax: Axes | None = None) -> Axes:
        """The public bounds of the first two coordinates, with the cells of the map; needs matplotlib."""
        ax = style.new_axes(ax, 5.6, 5.0)
        box = self.study.box
        second = (box.lower[1], box.upper[1]) if box.dims > 1 else (0.0, 1.0)
        ax.set_xlim(box.lower[0], box.upper[0])
        ax.set_ylim(*second)
        for i in range(1, self.per_axis):
            ax.axvline(box.lower[0] + i * (box.upper[0] - box.lower[0]) / self.per_axis, color=style.FAINT, lw=0.8)
            if box.dims > 1:
                ax.axhline(second[0] + i * (second[1] - second[0]) / self.per_axis, color=style.FAINT, lw=0.8)
        ax.set_xlabel(self.columns[0])
        style.plain_numbers(ax.xaxis)
        style.plain_numbers(ax.yaxis)
        if box.dims > 1:
            ax.set_ylabel(self.columns[1])
        else:
            ax.set_yticks([])
        told = f"A map of {self.map_cells:,} cells" if self.map_cells else "No map"
        after = f", then {self.rounds} round{'' if self.rounds == 1 else 's'}. Local people report once each."
        style.dress(ax, self._title, told + after, grid="")
        return ax


def plan_kmeans(study: KMeansStudy, columns: tuple[str, ...], *, people: int, opt_in: float) -> KMeansPlan:
    """The map, the rounds and the noise that these numbers afford. Nothing is read and nothing is spent."""
    must(0 <= opt_in <= 1, "opt-in", "must lie between 0 and 1", opt_in)
    trusted = round(people * opt_in)
    found = study.rounds(trusted, people - trusted)
    spends = None if found.spent is None else str(found.spent)
    return KMeansPlan(study, columns, people, opt_in, found.per_axis, found.rounds, spends, found.parts)
