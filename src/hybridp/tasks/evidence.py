"""What people told of a number's distribution so far, and where trusted people are counted for it.

All of it is public, and enough to publish from and to ask further.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hybridp.blend.distribution import (
    Known,
    Shape,
    SharesBelow,
    counts_seen,
    fit,
    reports_seen,
)
from hybridp.blend.plausible import windows_around
from hybridp.public.budgets import ApproxDP, PureDP, split_off
from hybridp.public.distribution import CELLS, BinnedReports, WindowReports
from hybridp.public.lattice import Bounds
from hybridp.public.rounds import Between, People, drive
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.tasks.task import noise_level

if TYPE_CHECKING:
    from hybridp.tasks.distribution import DistributionTask

__all__ = ["Counted", "DistributionEvidence", "ask_counts", "hear", "noise_in_shares", "places_around"]

Guarantee = PureDP | ApproxDP
_COARSE = (*(2.0**-i for i in (11, 9, 7, 5)), *(i / 16 for i in range(1, 16)), *(1 - 2.0**-i for i in (5, 7, 9, 11)))
"""Where trusted people are counted who say first where to look: bounds may lie far outside of where people are."""
_PLACES = (3, 5, 9, 17, 33)
_MANY = 0.2  # of people between two places
_FEWEST, _FINEST = 8, 64  # even stretches in which trusted people are counted for the spread


@dataclass(frozen=True, slots=True)
class Counted:
    """Noisy counts of trusted people at or below each value and above the one before; `steps` of a count are a person.

    Of one value only the count below it is told. `variance` is that of the noise in each count, in people.
    """

    values: tuple[float, ...]
    noisy: tuple[int, ...]
    steps: int
    people: int
    variance: float

    @property
    def stated(self) -> dict[str, Any]:
        """As a release tells it."""
        noisy = [n / self.steps for n in self.noisy]
        told = {"values": list(self.values), "noisy_counts": noisy, "people": self.people}
        return {**told, "noise_variance": self.variance}


@dataclass(frozen=True, eq=False)
class DistributionEvidence:
    """What was heard so far, and what is to be said of it. All of it is public."""

    counted: tuple[Counted, ...] = ()
    reports: BinnedReports | None = None
    answered: tuple[WindowReports, ...] = ()
    trusted: int = 0
    protection: str = ""
    """How trusted people are protected."""
    noise: str = "none"
    alone: bool = False
    """Whether a release in one go is by trusted people alone, and the reports are only told beside."""

    def known(self, study: DistributionTask) -> Known:
        """The same in shares of people and of the range."""
        counted = tuple(_below(one, study.bounds) for one in self.counted)
        share = self.trusted / max(self.trusted + self.local, 1) if study.estimator == "everyone" else None
        return Known(counted, self.reports, self.answered, share, study.atoms)

    def windows(self, study: DistributionTask) -> tuple[tuple[float, float], ...]:
        """Where to ask about a study's quantiles next, in shares of the range: everywhere while nothing is known."""
        if not self.counted and not self.local:
            return ((0.0, 1.0),)
        return windows_around(study.at, self.known(study))

    @property
    def local(self) -> int:
        return (0 if self.reports is None else self.reports.people) + sum(one.people for one in self.answered)


def _below(one: Counted, bounds: Bounds) -> SharesBelow:
    shares = np.array(one.noisy, dtype=np.float64) / one.steps / one.people
    if len(one.values) > 1:
        shares = np.cumsum(shares - (shares.sum() - 1) / len(shares))[:-1]
    places = tuple((value - bounds.lower) / bounds.width for value in one.values)
    return SharesBelow(shares, places, one.people, one.variance)


def _with_counts(
    heard: DistributionEvidence, bounds: Bounds, counted: list[tuple[NoisyCounts, tuple[float, ...]]]
) -> DistributionEvidence:
    """With what trusted people say, and how they are protected."""
    low, width = bounds.lower, bounds.width
    told = tuple(
        Counted(
            tuple(low + width * place for place in places),
            noisy.noisy,
            noisy.noise.steps,
            noisy.people,
            noisy.noise.mechanism.variance / noisy.noise.steps**2,
        )
        for noisy, places in counted
    )
    parts = []
    for noisy, places in counted:
        kind, size = noise_level(noisy.noise.mechanism)
        epsilon = noisy.noise.mechanism.guarantee.epsilon
        where = "place" if len(places) == 1 else "places"
        parts.append(
            f"discrete {kind} noise on counts between {len(places)} {where}, {size:.6g} times their sensitivity "
            f"(epsilon {epsilon:.12g})"
        )
    kind = noise_level(counted[-1][0].noise.mechanism)[0]
    return replace(heard, counted=told, protection=", then ".join(parts), noise=kind)


@dataclass(frozen=True)
class _Counted(People):
    """People who can only be counted between places."""

    count: Callable[[tuple[float, ...], CountNoise], NoisyCounts]

    def answer(self, asked: Any) -> NoisyCounts:
        return self.count(asked.places, asked.noise)


def hear(
    study: DistributionTask,
    people: int,
    local: BinnedReports | None,
    count: Callable[[tuple[float, ...], CountNoise], NoisyCounts],
) -> DistributionEvidence:
    """The reports, and the trusted people counted where these say that it matters, with noise by `count`."""
    result: DistributionEvidence = drive(ask_counts(study, people, local), _Counted(count))
    return result


def ask_counts(
    study: DistributionTask, people: int, local: BinnedReports | None
) -> Generator[Between, NoisyCounts, DistributionEvidence]:
    """The same as rounds of a conversation."""
    local = None if local is None or not local.people else local
    heard = DistributionEvidence(reports=local, trusted=people)
    if not people or study.estimator == "lm-only":
        return heard
    if local is not None and study.trusted_alone(people, local.people):
        heard, local = replace(heard, alone=True), None
    counted: list[tuple[NoisyCounts, tuple[float, ...]]] = []

    def noisy(places: tuple[float, ...], part: Guarantee | None = None) -> Generator[Between, NoisyCounts, NoisyCounts]:
        result = yield Between(places, study.count_noise(len(places), part), study.invite)
        counted.append((result, places))
        return result

    ends, jumps = _ends(study)
    shape = None
    if local is not None and _enough(local):
        shape = fit([reports_seen(local, CELLS, ends, jumps=jumps)], ends, jumps=jumps)
    if shape is not None and _near(study, shape, people):
        yield from noisy(places_around(study, shape, people))
    else:  # local people do not tell where to look: trusted people do, first
        rest, part = split_off(study.promised, 0.5)
        coarse = _apart(study, _COARSE)
        look = yield from noisy(coarse, part)
        ends = ends if jumps else np.union1d(ends, coarse)
        rough = counts_seen(look, coarse, Shape.known(ends=ends, jumps=jumps))
        yield from noisy(places_around(study, fit([rough], ends, jumps=jumps), people, rest, coarse), rest)
    return _with_counts(heard, study.bounds, counted)


def _ends(study: DistributionTask) -> tuple[NDArray[np.float64], bool]:
    """Where F is told, and whether it stays between."""
    return (np.array(study.atoms), True) if study.atoms else (np.linspace(0.0, 1.0, CELLS + 1), False)


def _enough(local: BinnedReports) -> bool:
    """Whether local reports tell where to look: a rank to within 11 % in a tenth of the range."""
    return local.people >= 400 * (local.randomiser.worst_variance + 1)


def _near(study: DistributionTask, shape: Shape, people: int) -> bool:
    """Whether what local reports say of each quantile is not much coarser than what trusted people would say by
    themselves: counts between places that are far apart tell little of what lies between them."""
    noise = 32 / (study.promised.epsilon * people) ** 2  # of a count with half of epsilon
    errors = ((q, shape.below(shape.quantile(q))[1]) for q in study.at)
    return all(error**2 <= 9 * (q * (1 - q) / people + noise) for q, error in errors)


def _apart(study: DistributionTask, places: Iterable[float]) -> tuple[float, ...]:
    """Places in rising order, none too close to another; between the atoms, halfway, where numbers have steps."""
    atoms, apart = np.array(study.atoms), 1 / 2**20
    out: list[float] = []
    for place in sorted(places):
        at = place
        if study.atoms:
            after = min(int(np.searchsorted(atoms, place + 1e-9, side="right")), len(atoms) - 1)
            at = float(atoms[after - 1] + atoms[after]) / 2
        if apart < at < 1 - apart and (not out or at > out[-1] + apart):
            out.append(at)
    return tuple(out) or (0.5,)


def noise_in_shares(study: DistributionTask, people: int, part: Guarantee | None) -> float:
    """The variance of the noise in one count of four, which were made to add up, in shares of people."""
    return study.count_noise(3, part).variance / people**2


def places_around(
    study: DistributionTask,
    shape: Shape,
    people: int,
    part: Guarantee | None = None,
    looked: tuple[float, ...] = (),
) -> tuple[float, ...]:
    """Around each quantile, at each value that is asked for, and, for the spread, broadly; in rising order.

    However many places there are, a person lies between two of them, so that the noise on each count is the same. What
    is said of a place adds up the noise of the counts before it; what is said of people between two places is a guess.
    There are as many places as make the sum of both smallest: the more, the more people trust. Where many lie between
    two of the places that were `looked` at, nobody knows where: there they are counted evenly too.
    """
    asked = (*study.below, *study.above, *study.cuts)
    result = {(x - study.bounds.lower) / study.bounds.width for x in asked}
    noise = noise_in_shares(study, people, part)
    reach = {q: 2 * (shape.below(shape.quantile(q))[1] + math.sqrt(q * (1 - q) / people + noise)) for q in study.at}
    widest = max(reach.values(), default=0.0)

    def variance(many: int) -> float:
        return many * len(study.at) / 4 * noise + (2 * widest / (many - 1)) ** 2 / 100

    many = min(_PLACES, key=variance)
    around = np.linspace(-1, 1, many)
    for q in study.at:
        # Around a quantile at whole steps of 2^-20 of the range, which doubles hold exactly.
        near = (shape.quantile(min(max(q + d, 0.002), 0.998)) for d in (around * reach[q]).tolist())
        result |= {math.floor(place * 2**20) / 2**20 for place in near}
        after = int(np.searchsorted(looked, shape.quantile(q)))
        low, high = (0.0, *looked, 1.0)[after : after + 2]
        if looked and shape.between(low, high)[0] > _MANY:
            result |= {math.floor((low + (high - low) * i / 16) * 2**20) / 2**20 for i in range(17)}
    if study.spread:  # what is not known of where people lie within a stretch, and the noise of all, are about as large
        wanted = (0.1 * (part or study.promised).epsilon * people) ** (2 / 3)
        even = 2 ** round(math.log2(min(max(wanted, _FEWEST), _FINEST)))
        result |= {i / even for i in range(1, even)}
    return _apart(study, result)
