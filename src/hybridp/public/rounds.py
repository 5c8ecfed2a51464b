"""What a question asks of people, round by round, and what comes back: all of it is public.

A task is a conversation: a generator that yields rounds, is sent their answers and returns its release. It sees public
facts and released numbers only. Who holds it (`hybridp.protocols.driver`) has the rows, the noise and the ledger, and
answers a round by the method of its name, whatever the task.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from hybridp.public.groups import Joint
from hybridp.public.lattice import Bounds
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.messages import Invite
from hybridp.public.shares import CountNoise, ShareInvite
from hybridp.public.vector import VectorInvite

__all__ = ["Answer", "Between", "Chance", "Conversation", "Crowd", "Epsilons", "Numbers", "Options", "People"]
__all__ += ["Round", "Ticks", "Vectors", "Weighted", "Windows", "drive"]

AddedNoise = DiscreteLaplace | DiscreteGaussian


@dataclass(frozen=True)
class Answer:
    """What a round brought: of trusted people with its noise, of the others as they, or their mixer, sent it."""

    trusted_people: int = 0
    trusted: Any = None
    local: Any = None
    mixed: Any = None
    binned: Any = None
    clipped: int | None = None


@dataclass(frozen=True)
class Numbers:
    """The sum of one number of trusted people, with `noise` (None: nobody's), and local reports on it.

    With noise of their own: the sum of `squares`, and how many were `clipped`. `bins` asks for the reports by public
    bins too. With `all_report` trusted people's numbers go through the randomiser, on their behalf. `excluding` leaves
    people without a value out, where nobody is local. Reports are `heard`, or only checked.
    """

    kind: ClassVar[str] = "numbers"
    invite: Invite
    noise: AddedNoise | None = None
    squares: DiscreteLaplace | None = None
    clipped: DiscreteLaplace | None = None
    bins: bool = False
    all_report: bool = False
    excluding: bool = False
    heard: bool = True


@dataclass(frozen=True)
class Vectors:
    """The sums of several numbers of trusted people, and of their `squares`, and local reports on all of them."""

    kind: ClassVar[str] = "vectors"
    invite: VectorInvite
    noise: AddedNoise | None = None
    squares: DiscreteLaplace | None = None
    heard: bool = True


@dataclass(frozen=True)
class Options:
    """How many trusted people have each option, or vote for each cell of a `joint` question, and local reports."""

    kind: ClassVar[str] = "options"
    invite: ShareInvite
    noise: CountNoise | None = None
    joint: Joint | None = None
    heard: bool = True


@dataclass(frozen=True)
class Ticks:
    """How many trusted people ticked each option, and local reports on one drawn option each."""

    kind: ClassVar[str] = "ticks"
    invite: ShareInvite
    noise: CountNoise | None = None
    heard: bool = True


@dataclass(frozen=True)
class Between:
    """How many trusted people lie between places (0 to 1 of the range)."""

    kind: ClassVar[str] = "between"
    places: tuple[float, ...]
    noise: CountNoise


@dataclass(frozen=True)
class Windows:
    """Reports of further local people within an invitation's windows; None where nobody is asked any more."""

    kind: ClassVar[str] = "windows"
    invite: Invite
    known: Any
    """All that was heard so far, from which the windows follow."""


@dataclass(frozen=True)
class Epsilons:
    """Who has which epsilon of their own, which is public, and the reports by it."""

    kind: ClassVar[str] = "epsilons"
    bounds: Bounds
    share: float


@dataclass(frozen=True, eq=False)
class Weighted:
    """The sum of trusted people's numbers, of which those of an epsilon have a weight, with noise for each of them."""

    kind: ClassVar[str] = "weighted"
    epsilons: NDArray[np.float64]
    weights: NDArray[np.float64]


Round = Numbers | Vectors | Options | Ticks | Between | Windows | Epsilons | Weighted


class Chance(Protocol):
    """Where noise came from, as a release says it."""

    @property
    def label(self) -> str: ...
    @property
    def simulated(self) -> bool: ...


@dataclass(frozen=True)
class Crowd:
    """Public facts that a release states: the columns' names, how rows became values where a missing one counts as so
    much, and how the answers came about (`made`)."""

    names: tuple[str, ...]
    rows: Callable[[Any], str]
    made: Callable[[], dict[str, Any]]
    phased: bool = False
    """Whether some people are asked later, within windows that the others name."""


Conversation = Generator[Round, Any, Any]


class People(Protocol):
    """RAW: whoever can answer rounds: the people of a table, of a service, or made-up ones."""

    def answer(self, asked: Round) -> Any:
        """What leaves the curator, and what devices sent."""


def drive(conversation: Conversation, people: People, answers: list[Any] | None = None) -> Any:
    """Hold a conversation with these people, to its end; `answers` takes what every round brought."""
    answer: Any = None
    while True:
        try:
            asked = conversation.send(answer)
        except StopIteration as end:
            return end.value
        answer = people.answer(asked)
        if answers is not None:
            answers.append(answer)
