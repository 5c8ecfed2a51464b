"""What a question asks of people, round by round, and what comes back: all of it is public.

A task is a conversation: a generator that yields rounds, is sent their answers and returns its release. It sees public
facts and released numbers only. Who holds it (`hybridp.protocols.driver`) has the rows, the noise and the ledger, and
answers a round by the method of its name, whatever the task.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from hybridp.public import messages
from hybridp.public.distribution import BinnedReports, report_bins
from hybridp.public.groups import Joint
from hybridp.public.heavy import Discovery, HeadList
from hybridp.public.kmeans import Box, OnMap, TotalsNoise
from hybridp.public.mechanisms import AddedNoise, DiscreteLaplace
from hybridp.public.messages import Invite, NoisySquares, OnNumber, Round, TrustedSummary, VectorBounds, whole_numbers
from hybridp.public.randomisers import Bounds
from hybridp.public.regression import KindName
from hybridp.public.shares import CountNoise, NoisyCounts, OnOptions
from hybridp.public.steered_mean import Window, WindowNoise

__all__ = ["Answer", "Between", "ByLevel", "Cells", "Chance", "Crowd", "Discover", "Epsilons", "Later", "Level"]
__all__ += ["Levels", "Many", "Moves", "Numbers", "Options", "Products", "Scale", "Slots", "Weighted", "Within"]


@dataclass(frozen=True)
class Answer:
    """What a round brought: of trusted people with its noise, of the others as they, or their mixer, sent it."""

    trusted_people: int = 0
    trusted: Any = None
    local: Any = None
    mixed: Any = None
    binned: Any = None
    clipped: int | None = None


def _counts(said: Any) -> NDArray[np.int64]:
    result = np.array([int(x) for x in said], dtype=np.int64)
    if (result < 0).any():
        raise ValueError
    return result


@dataclass(frozen=True)
class Numbers(Round):
    """The sum of one number of trusted people, or of each of several, with `noise` (None: nobody's), and local reports.

    With noise of their own: the sum of `squares`, and how many were `clipped`. `bins` asks for the reports by public
    bins too. With `all_report` trusted people's numbers go through the randomiser, on their behalf. `excluding` leaves
    people without a value out, where nobody is local. Reports are `heard`, or only checked.
    """

    invite: Invite[Any, Any]
    noise: AddedNoise | None = None
    squares: DiscreteLaplace | None = None
    clipped: DiscreteLaplace | None = None
    bins: bool = False
    all_report: bool = False
    excluding: bool = False
    heard: bool = True

    def plain(self, answer: Answer) -> dict[str, Any]:
        binned = answer.binned
        result: dict[str, Any] = {"people": answer.trusted_people}
        for own in answer.trusted or ():
            result |= {"sum": own.noisy_total, "squares": None if own.squares is None else own.squares.noisy_total}
        return result if binned is None else result | {"reports": binned.counts.tolist()}

    def restored(self, said: Any) -> Answer:
        people, trusted, binned = int(said["people"]), None, None
        if self.noise is not None:
            noise = self.squares
            squares = None if noise is None else NoisySquares(people, int(said["squares"]), noise)
            trusted = (TrustedSummary(people, int(said["sum"]), self.noise, squares),)
        if "reports" in said:
            binned = BinnedReports(_counts(said["reports"]), self.invite.mechanism)
            if len(binned.counts) != report_bins(binned.randomiser).size:
                raise ValueError
        return Answer(people, trusted, binned=binned)


@dataclass(frozen=True)
class Options(Round):
    """How many trusted people have each option, ticked it, or vote for each cell of a `joint` question; and reports."""

    invite: OnOptions
    noise: CountNoise | None = None
    joint: Joint | None = None
    heard: bool = True


@dataclass(frozen=True)
class Between(Round):
    """How many trusted people lie between places (0 to 1 of the range)."""

    places: tuple[float, ...]
    noise: CountNoise
    invite: OnNumber

    def plain(self, answer: NoisyCounts) -> dict[str, Any]:
        return {"people": answer.people, "counts": list(answer.noisy)}

    def restored(self, said: Any) -> NoisyCounts:
        return NoisyCounts(int(said["people"]), tuple(map(int, said["counts"])), self.noise)


@dataclass(frozen=True)
class Within(Round):
    """The sums of trusted people's numbers within a window, and beyond it, and of the squares of the latter."""

    invite: OnNumber
    window: Window
    noise: WindowNoise


@dataclass(frozen=True)
class Products(Round):
    """The sums of products of trusted people's columns or, of a logistic regression, of scores at `centre`."""

    model: KindName
    bounds: VectorBounds
    noise: AddedNoise
    centre: tuple[float, ...]


@dataclass(frozen=True)
class Scale(Round):
    """Which distance from the line, of a ladder's from the `first` on, about a twentieth of trusted people exceed."""

    bounds: VectorBounds
    line: tuple[float, ...]
    first: int
    noise: DiscreteLaplace


@dataclass(frozen=True)
class Discover(Round):
    """Records whose noisy counts pass a threshold, these counts, and how many of a `share` of the trusted people they
    are of; and how many the others are."""

    share: float
    mechanism: Discovery

    def restored(self, said: Any) -> Any:
        records, (noisy, people, others) = said[0], whole_numbers(said[1:])
        result = [tuple(map(str, one)) for one in records]
        whole = [list(one) for one in result] == [list(one) for one in records] and result == sorted(set(result))
        if not whole or len(result) != len(noisy) or min(people, others) < 0 or people + others < 1:
            raise ValueError
        return result, noisy, people, others


@dataclass(frozen=True)
class Slots(Round):
    """How many of the other trusted people hold each slot of a head list."""

    head: HeadList
    noise: DiscreteLaplace

    def restored(self, said: Any) -> Any:
        if len(said) != len(self.head):
            raise ValueError
        return whole_numbers(said)


@dataclass(frozen=True)
class Many(Round):
    """How many trusted people there are, and how many local ones, which is public."""

    box: Box


@dataclass(frozen=True)
class Cells(Round):
    """How many trusted people are in each cell of a map (no noise: nobody), and the cells that local people tell."""

    invite: OnMap
    noise: TotalsNoise | None


@dataclass(frozen=True, eq=False)
class Moves(Round):
    """Trusted people by nearest centre, and the sums of their deviations, no longer than the radius of the noise."""

    centres: NDArray[np.float64]
    noise: TotalsNoise


@dataclass(frozen=True)
class Later(Round):
    """What local people are asked who can only be asked now: it follows from what others said. None: nobody is there.

    `bins` asks for reports by public bins; `about` is what is said of the invitation.
    """

    invite: Invite[Any, Any]
    bins: bool = False
    about: Mapping[str, Any] = field(default_factory=dict, compare=False)

    def plain(self, answer: Answer) -> Any:
        sides = [(one.window, *one.counts.reshape(2, -1).tolist()) for one in answer.local]
        return [{"window": list(window), "below": below, "above": above} for window, below, above in sides]

    def restored(self, said: Any) -> Answer:
        told = []
        for one, window in zip(said, self.invite.windows, strict=True):
            below, above = _counts(one["below"]), _counts(one["above"])
            if not np.allclose(one["window"], window, rtol=0, atol=1e-9) or not len(below) == len(above) > 0:
                raise ValueError
            told.append(BinnedReports(np.concatenate([below, above]), self.invite.mechanism, window))
        return Answer(local=tuple(told))


@dataclass(frozen=True)
class ByLevel:
    """What people are asked who each chose one of some epsilons: those of each by an invitation of their own.

    One line is written beside every report: which mechanism made it follows from it and the person's public epsilon.
    """

    each: tuple[tuple[float, Invite[Any, Any]], ...]

    way: ClassVar[str] = "level"
    name: ClassVar[str] = messages.OWN_EPSILON
    promise: ClassVar[None] = None

    @property
    def encoding(self) -> Any:
        return self.each[0][1].encoding

    @property
    def text(self) -> str:
        epsilons = ",".join(f"{epsilon:g}" for epsilon, _ in self.each)
        told = hashlib.sha256("\n".join(invite.text for _, invite in self.each).encode()).hexdigest()[:16]
        return f"{self.name} among {epsilons} {told}"

    def of(self, names: tuple[str, ...]) -> ByLevel:
        return ByLevel(tuple((epsilon, invite.of(names)) for epsilon, invite in self.each))


@dataclass(frozen=True)
class Levels(Round):
    """How many trusted and local people count as each of some epsilons, which are public; all reports are paid for."""

    invite: ByLevel


@dataclass(frozen=True)
class Level(Round):
    """What is asked of those who count as one of them."""

    epsilon: float
    asked: Round


@dataclass(frozen=True)
class Epsilons(Round):
    """Who has which epsilon of their own, which is public, and the reports by it."""

    bounds: Bounds
    share: float


@dataclass(frozen=True, eq=False)
class Weighted(Round):
    """The sum of trusted people's numbers, of which those of an epsilon have a weight, with noise for each of them."""

    epsilons: NDArray[np.float64]
    weights: NDArray[np.float64]


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

    @classmethod
    def of(cls, *names: str, **made: Any) -> Crowd:
        """Of whom it is known how the answers came about, and no table's rows became values."""
        return cls(names, lambda middle: "", lambda: made)
