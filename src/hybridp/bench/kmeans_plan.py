"""Which map and how many rounds do these people's epsilons afford? Read from the numbers alone, before anyone is asked.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.kmeans import Box
>>> study = KMeansStudy(Box((0.0, 0.0), (1.0, 1.0)), 3, PureDP(4.0))
>>> plan_kmeans(study, ("a", "b"), people=6_600, opt_in=0.0909).trusted_people
600
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hybridp.errors import must
from hybridp.protocols.kmeans import KMeansStudy
from hybridp.public.kmeans_rounds import plan_rounds
from hybridp.release.document import plan_document

__all__ = ["KMeansPlan", "plan_kmeans"]


@dataclass(frozen=True)
class KMeansPlan:
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


def plan_kmeans(study: KMeansStudy, columns: tuple[str, ...], *, people: int, opt_in: float) -> KMeansPlan:
    """The map, the rounds and the noise that these numbers afford. Nothing is read and nothing is spent."""
    must(0 <= opt_in <= 1, "opt-in", "must lie between 0 and 1", opt_in)
    trusted = round(people * opt_in)
    found = plan_rounds(
        study.guarantee,
        dims=study.box.dims,
        clusters=study.clusters,
        trusted=trusted,
        local=people - trusted,
        iterations=study.iterations,
    )
    spends = None if found.spent is None else str(found.spent)
    return KMeansPlan(study, columns, people, opt_in, found.per_axis, found.rounds, spends, found.parts)
