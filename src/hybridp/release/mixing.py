"""What a release says of people whose reports went through a mixer: their batches, and what each keeps."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from hybridp.public.budgets import ApproxDP, PureDP

__all__ = ["MixedBatch", "MixedLevel", "Shuffled", "ShuffledLevels"]

G = TypeVar("G")


@dataclass(frozen=True, slots=True)
class MixedBatch:
    """So many batches of a mixer, each of this many people at least, and what each keeps.

    `fakes`, told of the smallest batch, is the epsilon that is left if so many of its people are fakes.
    """

    people: int
    many: int
    budget: PureDP | ApproxDP
    fakes: tuple[tuple[int, float], ...] = ()

    @property
    def text(self) -> str:
        batches = "a batch" if self.many == 1 else f"{self.many:,} batches"
        return f"in {batches} of {self.people:,}"

    def to_dict(self) -> dict[str, Any]:
        kept = {"people": self.people, "batches": self.many, "epsilon": self.budget.epsilon, "delta": self.budget.delta}
        fakes = [{"fakes": fakes, "epsilon": left} for fakes, left in self.fakes]
        return kept | ({"with_fakes": fakes} if fakes else {})


@dataclass(frozen=True, slots=True)
class Shuffled(Generic[G]):
    """People who trust that mixer and curator do not collude: their own estimate, its weight, and their batches.

    `epsilon` is what a report keeps by itself, `least` the public minimum of a batch.
    """

    group: G
    weight: float | tuple[float, ...] | None
    randomiser: str
    epsilon: float
    least: int
    batches: tuple[MixedBatch, ...]

    def to_dict(self) -> dict[str, Any]:
        batches = [batch.to_dict() for batch in self.batches]
        weight = list(self.weight) if isinstance(self.weight, tuple) else self.weight
        stated = {"local_epsilon": self.epsilon, "least": self.least, "batches": batches}
        return {"randomiser": self.randomiser, **({} if weight is None else {"weight": weight}), **stated}


@dataclass(frozen=True, slots=True)
class MixedLevel:
    """People of one epsilon whose reports were mixed: how many, and what they keep by the size of their crowd.

    `batches` counts people of this epsilon alone, where that many of them keep more than their report does by itself;
    `unhidden` are the others.
    """

    epsilon: float
    people: int
    batches: tuple[MixedBatch, ...]
    unhidden: int


@dataclass(frozen=True, slots=True)
class ShuffledLevels(Generic[G]):
    """As `Shuffled`, where everyone has their own epsilon: `least` counts people of one epsilon in a batch."""

    group: G
    weight: float
    randomiser: str
    least: int
    levels: tuple[MixedLevel, ...]

    def to_dict(self) -> dict[str, Any]:
        levels = [
            {
                "local_epsilon": level.epsilon if math.isfinite(level.epsilon) else "inf",
                "people": level.people,
                "unhidden": level.unhidden,
                "batches": [batch.to_dict() for batch in level.batches],
            }
            for level in self.levels
        ]
        return {"randomiser": self.randomiser, "weight": self.weight, "least": self.least, "levels": levels}
