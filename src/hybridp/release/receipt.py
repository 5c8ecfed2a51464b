"""The privacy receipt: what each group was promised, against whom, by which mechanism.

>>> promise = Promise("local", "the curator", PureDP(1.0), "dithered bit on the device")
>>> promise.to_dict()["epsilon"]
1.0
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hybridp.public.budgets import ApproxDP, PureDP

__all__ = ["CURATOR", "VIEWER", "Promise", "Receipt"]

CURATOR = "the curator"
VIEWER = "whoever sees the release"


@dataclass(frozen=True, slots=True)
class Promise:
    """One group's guarantee against one kind of adversary; `budget` None means that there is none (trust instead)."""

    people: str
    against: str
    budget: PureDP | ApproxDP | None
    mechanism: str
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        return {
            "group": self.people,
            "against": self.against,
            "epsilon": None if self.budget is None else self.budget.epsilon,
            "delta": None if self.budget is None else self.budget.delta,
            "neighbours": None if self.budget is None else self.budget.neighbours.value,
            "mechanism": self.mechanism,
            "note": self.note,
        }

    def __str__(self) -> str:
        level = "no guarantee, by their own choice" if self.budget is None else str(self.budget)
        tail = f"; {self.note}" if self.note else ""
        return f"{self.people}, against {self.against}: {level}, by {self.mechanism}{tail}"


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
