"""What devices wrote, in words and as plain data: how many reports, by which mechanism, and what was left out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hybridp.public.budgets import ApproxDP, PureDP
from hybridp.public.shuffling import Mixing
from hybridp.public.study import Promise

__all__ = ["Randomised"]


@dataclass(frozen=True, slots=True)
class Randomised:
    """What was written: how many reports on each question, by which mechanism, and the columns that were left out."""

    out: str
    reports: Mapping[str, int]
    mechanisms: Mapping[str, str]
    left_out: tuple[str, ...]
    simulated: bool
    randomness: str
    mixing: Mixing | None = None
    levels: Mapping[str, Any] | None = None
    promise: PureDP | ApproxDP | None = None
    """What every report keeps by itself; None where everyone has their own epsilon, or questions differ."""
    windows: Mapping[str, Any] = field(default_factory=dict)
    """Where an invitation asks within."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data for programs: what `--json` prints."""
        return {
            "schema": 1,
            "out": self.out,
            "questions": {
                name: {"randomised": count, "mechanism": self.mechanisms[name]} for name, count in self.reports.items()
            },
            "left_out": list(self.left_out),
            "simulated": self.simulated,
            "randomness": self.randomness,
            **({} if self.mixing is None else {"batch": self.mixing.to_dict(max(self.reports.values()))}),
            **({} if self.levels is None else {"batch": dict(self.levels)}),
        }

    def alone(self, stated: Promise | None = None, *, told: str = "randomised") -> dict[str, Any]:
        """The same of one question alone; `stated` is what the study promises, None where an invitation says it."""
        ((name, sent),) = self.reports.items()
        said: Any = self.promise if stated is None or stated.personal else stated
        batch = {} if self.mixing is None else self.mixing.to_dict(sent)
        return {
            "out": self.out,
            told: sent,
            "mechanism": self.mechanisms[name],
            "left_out": list(self.left_out),
            "epsilon": "personal" if said is None else said.epsilon,
            "delta": 0.0 if said is None else said.delta,
            "randomness": self.randomness,
            "simulated": self.simulated,
            **self.windows,
            **(batch if self.levels is None else self.levels),
        }
