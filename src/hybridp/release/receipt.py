"""The privacy receipt: what each group was promised, against whom, by which mechanism.

>>> promise = Promise("local", "the curator", PureDP(1.0), "dithered bit on the device")
>>> promise.to_dict()["epsilon"]
1.0
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.heterogeneous import PersonalDP

__all__ = ["CURATOR", "VIEWER", "Promise", "Receipt", "simulation_notes"]

CURATOR = "the curator"
VIEWER = "whoever sees the release"


@dataclass(frozen=True, slots=True)
class Promise:
    """One group's guarantee against one kind of adversary; `budget` None means that there is none (trust instead)."""

    people: str
    against: str
    budget: PureDP | ApproxDP | PersonalDP | None
    mechanism: str
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "group": self.people,
            "against": self.against,
            **_levels(self.budget),
            "neighbours": None if self.budget is None else self.budget.neighbours.value,
            "mechanism": self.mechanism,
            "note": self.note,
        }

    def __str__(self) -> str:
        level = "no guarantee, by their own choice" if self.budget is None else str(self.budget)
        tail = f"; {self.note}" if self.note else ""
        return f"{self.people}, against {self.against}: {level}, by {self.mechanism}{tail}"


def _levels(budget: PureDP | ApproxDP | PersonalDP | None) -> dict[str, Any]:
    if budget is None:
        return {"epsilon": None, "delta": None}
    if isinstance(budget, PersonalDP):
        public = sum(n for e, n in budget.levels if math.isinf(e))
        return {
            "epsilon": "personal",
            "delta": 0.0,
            "epsilons": {"least": budget.least, "most": budget.most, "people": budget.people, "public_people": public},
        }
    return {"epsilon": budget.epsilon, "delta": budget.delta}


def simulation_notes(*, seeded: bool, reports: bool) -> tuple[str, ...]:
    """What a trial must say beside its promises: which of them nobody was given."""
    found: list[str] = []
    if seeded:
        found.append("SIMULATION: the noise came from a seeded generator; whoever knows the seed can take it off again")
    if reports:
        found.append(
            "SIMULATION: local reports were drawn for a trial, from raw values or from a seed; nobody was protected"
        )
    return tuple(found)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What was spent, and what the promises assume."""

    promises: tuple[Promise, ...]
    randomness: str
    simulated: bool
    unit: str
    assumes: tuple[str, ...]
    ledger_entries: tuple[int, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {
            "promises": [p.to_dict() for p in self.promises],
            "randomness": self.randomness,
            "simulated": self.simulated,
            "unit": self.unit,
            "assumes": list(self.assumes),
            "ledger_entries": list(self.ledger_entries),
        }

    def __str__(self) -> str:
        lines = [str(p) for p in self.promises]
        lines.append(f"unit of privacy: {self.unit}; randomness: {self.randomness}")
        lines.extend(f"assumes: {a}" for a in self.assumes)
        if self.ledger_entries:
            lines.append(f"ledger entries: {', '.join(map(str, self.ledger_entries))}")
        return "\n".join(lines)
