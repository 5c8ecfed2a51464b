"""What crosses a boundary between the rooms. Everything here may be seen by its receiver; nothing here is raw.

``Invite`` goes to every device, a device answers with reports that are added up as ``LocalSummary`` (mergeable in any
order), and the curator hands out a ``TrustedSummary`` that already carries its noise. Means are in the unit coordinate
[-1, 1] of the public bounds.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.randomisers import dithered_bit
>>> part = LocalSummary(people=2, total=0.5, squares=9.0, randomiser=dithered_bit(PureDP(1.0)))
>>> (part + part).people
4
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, ClassVar, Generic, Self, TypeAlias, TypeVar

import numpy as np

from hybridp.errors import must
from hybridp.public.heavy import Discovery, HeadList, OneSlot
from hybridp.public.lattice import SQUARE_STEPS, Bounds, Floats, Groups, Ints
from hybridp.public.mechanisms import DiscreteGaussian, DiscreteLaplace
from hybridp.public.randomisers import LEVELS, Oracle, Randomiser, _Told

__all__ = ["BATCH", "MECHANISM", "OWN_EPSILON", "SQUARE_STEPS", "Invite", "LocalSummary", "NoisySquares", "OnList"]
__all__ += ["OnNumber", "OptInCounts", "OwnEpsilon", "ReportSums", "ReportsByEpsilon", "SlotReports"]
__all__ += ["TrustedSummary", "WeightedSum", "reports_digest"]

OWN_EPSILON = "best-for-own-epsilon"
MECHANISM = "report_mechanism"
"""The column beside reports that says how they were made, and on which question."""
BATCH = "report_batch"
"""The column beside reports of slots that holds a random name of the batch that a device, or several, sent."""
_NAMED = 8


def reports_digest(mechanism: str, *fingerprint: object) -> str:
    """A name for a set of reports: their mechanism's text, and numbers that stand for them whatever their order."""
    stated = json.dumps([mechanism, *fingerprint])
    return f"sha256:{hashlib.sha256(stated.encode()).hexdigest()[:32]}"


@dataclass(frozen=True)
class OwnEpsilon(_Told):
    """A device draws the best report for its person's own epsilon."""

    way: ClassVar[str] = "own"
    name: ClassVar[str] = OWN_EPSILON
    guarantee: ClassVar[None] = None
    bound: ClassVar[float] = 1 + 2 / math.tanh(0.0005)
    """The longest report of anybody's, at epsilon 0.001."""


E = TypeVar("E")
M = TypeVar("M")


@dataclass(frozen=True)
class Invite(Generic[E, M]):
    """What a device must know to take part: what it is asked about (`encoding`: bounds, options, a list, a map), and
    the mechanism that its answer goes through, which states its guarantee.

    `question` names the columns that are asked for; empty where another document names them. Within `windows` (shares
    of the range of a number, rising, apart) the report is about where the value stands in them, laid end to end, each
    as long as another. `answers` names the document that asks so; `mixed` people send their report through a mixer.
    """

    encoding: E
    mechanism: M
    question: tuple[str, ...] = ()
    windows: tuple[tuple[float, float], ...] = ()
    answers: str = ""
    mixed: bool = False

    def __post_init__(self) -> None:
        for name in ("categories", "dimensions"):
            own, told = (getattr(part, name, None) for part in (self.encoding, self.mechanism))
            must(None in (own, told) or own == told, name, f"must be the {own} that are asked about", told)

    @property
    def way(self) -> str:
        result: str = getattr(self.mechanism, "way", None) or self.encoding.way  # type: ignore[attr-defined]
        return result

    @property
    def name(self) -> str:
        """Of the report."""
        result: str = getattr(self.encoding, "report", None) or self.mechanism.name  # type: ignore[attr-defined]
        return result

    @property
    def promise(self) -> Any:
        return self.mechanism.guarantee  # type: ignore[attr-defined]

    @property
    def text(self) -> str:
        """The mechanism and the columns in one line, written beside every report so that it cannot be mistaken for
        another's."""
        mechanism: str = self.encoding.made(self)  # type: ignore[attr-defined]
        question: tuple[str, ...] = getattr(self.encoding, "columns", ()) or self.question
        if not question:
            return mechanism
        named = ",".join(f"`{name.replace('`', '``')}`" for name in question)
        if len(question) > _NAMED:
            named = f"{len(question)} columns {hashlib.sha256(named.encode()).hexdigest()[:16]}"
        return f"{mechanism} on {named}"

    def placed(self, levels: Ints) -> Ints:
        """The levels that reports are about: those of the value, or of its place within the windows.

        >>> from hybridp.public.budgets import PureDP
        >>> from hybridp.public.randomisers import dithered_bit
        >>> asked = Invite(Bounds(0, 8), dithered_bit(PureDP(1.0)), windows=((0.25, 0.5), (0.75, 1.0)))
        >>> (asked.placed(asked.encoding.levels([0, 2, 3, 4, 5, 7, 8])) / LEVELS).tolist()
        [0.0, 0.0, 0.25, 0.5, 0.5, 0.75, 1.0]
        """
        if not self.windows:
            return levels
        cuts = [i * LEVELS // len(self.windows) for i in range(len(self.windows) + 1)]
        result = np.zeros_like(levels)
        for i, (low, high) in enumerate(self.windows):
            part = np.clip((levels / LEVELS - low) / (high - low), 0.0, 1.0)
            result += np.floor(part * (cuts[i + 1] - cuts[i])).astype(np.int64)
        return result


OnNumber: TypeAlias = Invite[Bounds, Randomiser]
OnList: TypeAlias = Invite[HeadList, OneSlot | Oracle]


class ReportSums:
    """Sums over local reports: associative, commutative, and free of charge (post-processing of what was reported)."""

    __slots__ = ()

    def __add__(self, other: Self) -> Self:
        """The numbers together, field by field; whatever else is stated must be the same."""
        result = []
        for one, two in ((getattr(self, f.name), getattr(other, f.name)) for f in fields(self)):  # type: ignore[arg-type]
            added = isinstance(one, int | float | np.ndarray)
            must(added or one == two, "reports", "must come from one mechanism to be added up", "two different ones")
            result.append(one + two if added else one)
        return type(self)(*result)


@dataclass(frozen=True, slots=True)
class LocalSummary(ReportSums):
    """Of reports on a number, in the unit coordinate."""

    people: int
    total: float
    squares: float
    randomiser: Randomiser

    def __post_init__(self) -> None:
        must(self.people >= 0, "people", "must not be negative", self.people)

    @property
    def columns(self) -> tuple[LocalSummary | None, ...]:
        """As of a vector of one column; None where nobody reported it."""
        return (self if self.people else None,)

    @property
    def mean(self) -> float:
        return self.total / self.people

    def second_moment(self, centre: float) -> float:
        """The mean square of the reports around a centre."""
        return max(self.squares / self.people - 2 * centre * self.mean + centre**2, 0.0)

    @property
    def variance(self) -> float:
        """The sample variance of the reports."""
        n = self.people
        return self.second_moment(self.mean) * n / (n - 1) if n > 1 else self.randomiser.worst_variance


@dataclass(frozen=True, slots=True)
class NoisySquares:
    """The trusted group's noisy sum of squared distances from the middle, in `steps`; one moves it by their square."""

    people: int
    noisy_total: int
    noise: DiscreteLaplace
    steps: int = SQUARE_STEPS

    @property
    def mean(self) -> float:
        """The mean square in the unit coordinate: below the exact one by less than 2/steps."""
        return self.noisy_total / (self.people * self.steps**2)

    @property
    def noise_variance(self) -> float:
        return self.noise.variance / (self.people * self.steps**2) ** 2


@dataclass(frozen=True, slots=True)
class TrustedSummary:
    """The trusted group's noisy sum of lattice steps, and of squares where the study pays for their spread.

    The number of people is public under replacement. Where those without a value are left out, it is the noisy number
    of the others (at least 1), and `count_noise` what it was drawn with: the error of the mean m, of which the ratio
    (sum noise - m count noise + sampling)/people is exact, then has both. A value lies at most `reach` steps from the
    middle, and steps are counted from `start`, in reaches from the middle: -1, the lower bound, for one number; 0, the
    middle, for a column of a vector and where people are left out.
    """

    people: int
    noisy_total: int
    noise: DiscreteLaplace | DiscreteGaussian
    squares: NoisySquares | None = None
    reach: int = LEVELS // 2
    start: int = -1
    count_noise: DiscreteLaplace | None = None

    def __post_init__(self) -> None:
        must(self.people >= 1, "people", "must be at least 1", self.people)

    @property
    def step(self) -> float:
        """One lattice step of the sum, as a step of the mean in the unit coordinate."""
        return 1 / (self.reach * self.people)

    @property
    def mean(self) -> float:
        return self.noisy_total * self.step + self.start

    @property
    def clamped_mean(self) -> float:
        """The mean put back inside [-1, 1]."""
        return min(max(self.mean, -1.0), 1.0)

    @property
    def noise_variance(self) -> float:
        each = self.clamped_mean / self.people
        counted = 0.0 if self.count_noise is None else self.count_noise.variance * each**2
        return self.noise.variance * self.step**2 + counted

    @property
    def laplace_scale(self) -> float:
        """Scale of the Laplace part of the mean's error; 0 for Gaussian noise. Of two draws one of their variance."""
        counted = 0.0 if self.count_noise is None else self.count_noise.scale * self.clamped_mean / self.people
        return math.hypot(self.noise.scale * self.step, counted) if isinstance(self.noise, DiscreteLaplace) else 0.0

    @property
    def gaussian_variance(self) -> float:
        return self.noise_variance if isinstance(self.noise, DiscreteGaussian) else 0.0


@dataclass(frozen=True, eq=False, slots=True)
class ReportsByEpsilon:
    """Sums over the reports of local people who chose the same epsilon, one entry a level of epsilon, ascending."""

    epsilons: Floats
    people: Ints
    totals: Floats
    squares: Floats

    @classmethod
    def of(cls, groups: Groups) -> ReportsByEpsilon:
        """From the exact sums of each epsilon's reports."""
        rows = [(epsilon, sums.people, *sums.moments) for epsilon, sums in groups]
        epsilons, people, totals, squares = (np.array([row[i] for row in rows], dtype=np.float64) for i in range(4))
        return cls(epsilons, people.astype(np.int64), totals, squares)

    @classmethod
    def pooled(cls, parts: Sequence[ReportsByEpsilon]) -> ReportsByEpsilon:
        """The reports of several collections as one: people of one epsilon have one randomiser, wherever they sent."""
        epsilons, place = np.unique(np.concatenate([np.zeros(0), *(p.epsilons for p in parts)]), return_inverse=True)

        def added(name: str) -> Floats:
            values = np.concatenate([np.zeros(0), *(getattr(p, name) for p in parts)])
            return np.bincount(place, weights=values, minlength=len(epsilons)).astype(np.float64)

        return cls(epsilons, added("people").astype(np.int64), added("totals"), added("squares"))

    @property
    def count(self) -> int:
        return int(self.people.sum())


@dataclass(frozen=True, eq=False, slots=True)
class WeightedSum:
    """The trusted group's noisy weighted mean when everyone brings their own epsilon (unit coordinate).

    `weights` is the weight of one person of each level of epsilon; `spent` is what that person really spent.
    """

    people: int
    mean: float
    laplace_scale: float
    weights: Floats
    spent: Floats

    @property
    def noise_variance(self) -> float:
        return 2 * self.laplace_scale**2


@dataclass(frozen=True, eq=False, slots=True)
class OptInCounts:
    """What the trusted people say of heavy hitters: a head list, and noisy counts of its slots from two halves.

    `discovered` holds the noisy counts (of `discovery_people`) with which the records were shown, NaN for wildcards;
    `counted` the noisy counts of every slot among the other `estimation_people`.
    """

    head: HeadList
    discovery_people: int
    estimation_people: int
    discovered: Floats
    counted: Floats
    discovery: Discovery
    noise: DiscreteLaplace


@dataclass(frozen=True, eq=False, slots=True)
class SlotReports(ReportSums):
    """Of reports on a head list: how many support each slot."""

    people: int
    counts: Ints
