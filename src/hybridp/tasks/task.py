"""What a driver must know of a question, whatever it is: what is decided, and public, before anybody sends anything."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Self

from hybridp.errors import must
from hybridp.public.budgets import ApproxDP, Charge, PureDP
from hybridp.public.groups import Grouping
from hybridp.public.rounds import Conversation, Crowd, Later

__all__ = ["Task", "undecided"]

Guarantee = PureDP | ApproxDP


class Task(ABC):
    """A question at its part of the promise. Its conversation (`ask`) sees public facts and released numbers only."""

    called = "mean"
    """What is asked for, in a word."""
    options: tuple[str, ...] = ()
    undecided = False
    """Whether the groups' sizes, which are public, decide what is spent (`decided`)."""
    at: tuple[float, ...] = ()
    """The quantiles around which people may be asked in phases."""
    personal = False
    """Whether everybody brings their own epsilon, which a column holds."""
    reads_again = False
    """Whether a trial reads raw rows twice."""
    by_invitation = False
    """Whether local people can only answer an invitation: it follows from others' answers, or from public numbers."""
    planned = False
    """Whether that invitation is planned from public numbers, so that rows and reports are released together."""
    people: tuple[int, int] | None = None
    """The groups' sizes, where they were decided by."""
    mixing: Any = None
    mixed_invite: Any = None
    invite: Any = None

    @abstractmethod
    def charges(self, purpose: str, collection: str | None) -> list[Charge]:
        """What the ledger will be asked for."""

    @abstractmethod
    def ask(self, crowd: Crowd) -> Conversation:
        """The rounds, and the release that follows from their answers. Post-processing: no rows, no noise."""

    def prepared(self, columns: Any) -> Self:
        """The same for a table's columns; refuses what they cannot answer, before anything is opened."""
        return self

    def prepared_for(self, by: Grouping, columns: Any) -> Self:
        """The same by group, where it can be told so."""
        must(False, "by", "must be left out: only a mean or shares are told by a public group", by.column)
        return self

    def decided(self, trusted: int, local: int, shuffled: int = 0) -> Self:
        """The same for groups of so many people, before anything is charged or drawn."""
        return self

    def named(self, names: tuple[str, ...]) -> Any:
        """What goes to every device, about the columns of these names."""
        return self.invite

    def purpose(self, names: tuple[str, ...], by: Grouping | None) -> str:
        """What the ledger calls it."""
        return self.called if by is None else f"{self.called} of {names[0]} by {by.column}"

    def check_tally(self, tally: Any, names: tuple[str, ...]) -> None:
        """Refuse a tally that cannot stand in for local people's rows."""
        must(False, "tally", "must be left out for this question", "one")

    def check_phases(self, phases: Sequence[float], *, trial: bool) -> None:
        """Refuse phases that a trial cannot have."""
        must(not phases, "phases", "must go with quantiles of a study's only question", tuple(phases))

    def check_inviting(self, *, trial: bool) -> None:
        """Refuse an invitation to people who are asked later, in a trial of all phases at once or where none are."""
        rule = "must be for a release in one go: devices do not draw who trusts"
        must(not trial or not self.by_invitation, "simulate-local", rule, "two phases")

    def check_alone(self) -> None:  # noqa: B027
        """Refuse a release of trusted people alone, before local people were invited; most can be made."""

    def check_mixed(self) -> None:  # noqa: B027
        """Refuse a mixer's batches where they cannot be heard; most can be."""

    def stated(self, by: Grouping | None) -> Any:
        """What a receipt says was asked."""
        own = self if self.people is None else replace(self, people=None)  # type: ignore[type-var]
        return own if by is None else {"question": own, "by": by}

    def invited(self) -> Self:
        """The same as an invitation states it: all that decides what people are asked, and how they are protected."""
        return self

    def at_once(self, names: tuple[str, ...]) -> Later | None:
        """What local people are asked before anybody has answered, where it still needs an invitation."""
        return None

    def with_level(self, level: float | None, joint: bool | None = None) -> Self:
        """The same with intervals of another level, or that cover together."""
        given = {name: one for name, one in (("level", level), ("joint", joint)) if one is not None}
        return replace(self, **given)  # type: ignore[type-var]


def undecided(promise: Guarantee, ways: Sequence[list[Charge]], purpose: str, text: str | None = None) -> list[Charge]:
    """The charges before it is known which of these ways is taken: for trusted people, the promise that covers each."""
    sums = [[charge for charge in way if charge.people == "trusted"] for way in ways]
    delta = max(charge.budget.delta for charge in chain(*sums))
    budget = replace(promise, delta=delta) if isinstance(promise, ApproxDP) and delta else PureDP(promise.epsilon)
    text = text or f"{sums[0][0].mechanism}, and on its spread where the estimator is anchored"
    return [Charge("trusted", budget, text, purpose), *(one for one in ways[0] if one.people != "trusted")]
