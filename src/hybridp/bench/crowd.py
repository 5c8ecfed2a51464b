"""Expected people: how many trust, what is guessed of their answers, and how much each group tells of a number."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from hybridp.errors import must
from hybridp.public.anchoring import Anchoring
from hybridp.public.shuffling import Mixing
from hybridp.release.facts import Facts
from hybridp.release.plan import Plan, planned

__all__ = ["SAID_OF_EVERYONE", "Cells", "Crowd", "Guesses", "anchored", "by_people"]

SAID_OF_EVERYONE = "Estimator: everyone by default: each group counts by its number of people, however much they differ"


@dataclass(frozen=True, kw_only=True)
class Guesses:
    """What is guessed of people's answers: `sd` may be a range, or one of a regression's columns and of its residuals;
    `shares` are those of the options or, of an answer by group, of the groups; `popularity` is that of records."""

    mean: float | None = None
    sd: Any = None
    shares: Sequence[float] | None = None
    popularity: ArrayLike | None = None


@dataclass(frozen=True)
class Crowd:
    """So many people, of whom a share trusts; of the others a share `chance` is asked the question."""

    n: float
    opt_in: float
    guess: Guesses = field(default_factory=Guesses)
    question: str = "value"
    columns: tuple[str, ...] = ()
    chance: float = 1.0

    def __post_init__(self) -> None:
        must(1 <= self.n <= 1e15, "n", "must be at least 1 and at most 1e15", self.n)
        must(0 <= self.opt_in <= 1, "opt-in", "must lie between 0 and 1", self.opt_in)

    @property
    def trusted(self) -> int:
        return round(self.n * self.opt_in)

    @property
    def local(self) -> int:
        return round(self.n) - self.trusted

    @property
    def told(self) -> float:
        """How many local people answer, on average."""
        return self.local * self.chance

    @property
    def both(self) -> bool:
        return 0 < self.trusted < self.n

    def must_be_both(self) -> None:
        """Refuse numbers of people of whom one group is empty."""
        must(self.n >= 2, "n", "must be at least 2 and at most 1e15", self.n)
        must(0 < self.opt_in < 1, "opt-in", "must be strictly between 0 and 1", self.opt_in)
        few = min(self.opt_in, 1 - self.opt_in) * self.n
        rule = f"must leave at least one person in each group of {self.n:,.0f} people"
        must(few >= 1 - 1e-9, "opt-in", rule, self.opt_in)

    @property
    def answering(self) -> Crowd:
        """Those who answer the question."""
        if self.chance == 1:
            return self
        n = self.trusted + round(self.told)
        return replace(self, n=n, opt_in=self.trusted / n, chance=1.0)

    def planned(self, own: Any, facts: Facts, **more: Any) -> Plan:
        """The plan of a task for these people, with the facts of every statistic."""
        trusted = getattr(own, "trusted_guarantee", None)
        epsilon = None if trusted is None else trusted.epsilon
        return planned({self.question: facts}, self.n, self.opt_in, own.guarantee, epsilon, **more)


class Cells(ABC):
    """How much people tell of every number that is asked for, as information: the inverse of a variance."""

    @abstractmethod
    def trusted(self, k: int) -> Any:
        """Of so many trusted people together."""

    @abstractmethod
    def report(self, mixing: Mixing | None) -> Any:
        """Of one report, by a local person or through a mixer."""

    def three_groups(self, people: tuple[int, int, int], mixing: Mixing, *, by_people: bool) -> dict[str, Any]:
        """Those who trust, those who trust a mixer, and those who trust nobody in one estimate, as plain data.

        The error, each group's weight, and what one more person of a group is worth: the information that they bring,
        as so many local people; a move from one group to another is worth the difference. Of a mean each is one number,
        of several cells a list. With `by_people` each group counts by its number of people, else by its information, as
        if all were alike. Those of a batch below its least size are counted alike: their reports say as much, only less
        is promised.
        """
        sizes = dict(zip(("trusted", "shuffled", "local"), people, strict=True))
        k, mixed, rest = people
        must(mixed >= 1, "shuffled", "must leave at least one person who trusts the mixer", mixed)
        must(rest >= 0, "shuffled", "must be at most those who do not trust", mixed)
        shuffled, local = self.report(mixing), self.report(None)
        whole = {"trusted": self.trusted(k), "shuffled": mixed * shuffled, "local": rest * local}
        more = {"trusted": self.trusted(k + 1) - whole["trusted"], "shuffled": shuffled, "local": local}
        parts = {name: sizes[name] + 0 * part for name, part in whole.items()} if by_people else whole
        weights = {name: part / sum(parts.values()) for name, part in parts.items()}
        error = sum(weights[name] ** 2 / part for name, part in whole.items() if sizes[name])
        worth = {name: one / local for name, one in more.items()}
        moves = {
            "local to shuffled": worth["shuffled"] - worth["local"],
            "shuffled to trusted": worth["trusted"] - worth["shuffled"],
        }
        return {
            "people": sizes,
            # The mixer may send as few as the least: how many take part in all promises nobody more than that.
            "batch": mixing.to_dict(min(mixed, mixing.batch)),
            "rmse_population": _plain(error**0.5),
            "weights": _plain(weights),
            "worth_in_local_people": _plain(worth),
            "moves_in_local_people": _plain(moves),
        }


def _plain(found: Any) -> Any:
    if isinstance(found, dict):
        return {name: _plain(one) for name, one in found.items()}
    return found.tolist() if isinstance(found, np.ndarray) else found


def anchored(default: Anchoring, plain: str, reach: float | None, most: Any) -> dict[str, Any]:
    """What "alike" is for so many people, what it costs, and how far any reports could move it."""
    cost = default.cost if math.isfinite(default.cost) else None
    return {"estimator": plain if default.reach is None else "anchored", "reach": reach, "cost": cost, "most": most}


def by_people(trusted: float, local: float, v_t: Any, v_l: Any) -> Any:
    """The variance of the stratified estimate from those of the groups' own.

    >>> by_people(1, 3, 16.0, 16.0)
    10.0
    """
    c = trusted / (trusted + local)
    return c**2 * v_t + (1 - c) ** 2 * v_l
