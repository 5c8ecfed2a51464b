"""What people told of a number's distribution so far, and where trusted people are counted for it.

All of it is public, and enough to publish from and to ask further.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from hybridp.blend.distribution import (
    Known,
    Shape,
    SharesBelow,
    counts_seen,
    fit,
    reports_seen,
)
from hybridp.blend.plausible import windows_around
from hybridp.protocols.mean import noise_level
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import ApproxDP, PureDP, split_off
from hybridp.public.distribution import CELLS, BinnedReports, WindowReports
from hybridp.public.shares import CountNoise, NoisyCounts
from hybridp.release.distribution import Counted

if TYPE_CHECKING:
    from hybridp.protocols.distribution import DistributionStudy

__all__ = ["Heard", "hear", "noise_in_shares", "places_around"]

Guarantee = PureDP | ApproxDP
_PILOT_CELLS = 16
_PLACES = (3, 5, 9, 17, 33)
_BROAD = (0.1, 0.25, 0.5, 0.75, 0.9)


@dataclass(frozen=True, eq=False)
class Heard:
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

    def known(self, bounds: Bounds) -> Known:
        """The same in shares of people and of the range."""
        return Known(tuple(_below(one, bounds) for one in self.counted), self.reports, self.answered)

    def windows(self, at: Sequence[float], bounds: Bounds) -> tuple[tuple[float, float], ...]:
        """Where to ask about these quantiles next, in shares of the range: everywhere while nothing is known."""
        if not self.counted and not self.local:
            return ((0.0, 1.0),)
        return windows_around(at, self.known(bounds))

    @property
    def local(self) -> int:
        return (0 if self.reports is None else self.reports.people) + sum(one.people for one in self.answered)


def _below(one: Counted, bounds: Bounds) -> SharesBelow:
    shares = np.array(one.noisy, dtype=np.float64) / one.steps / one.people
    if len(one.values) > 1:
        shares = np.cumsum(shares - (shares.sum() - 1) / len(shares))[:-1]
    places = tuple((value - bounds.lower) / bounds.width for value in one.values)
    return SharesBelow(shares, places, one.people, one.variance)


def _with_counts(heard: Heard, bounds: Bounds, counted: list[tuple[NoisyCounts, tuple[float, ...]]]) -> Heard:
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


def hear(
    study: DistributionStudy,
    people: int,
    local: BinnedReports | None,
    count: Callable[[tuple[float, ...], CountNoise], NoisyCounts],
) -> Heard:
    """The reports, and the trusted people counted where these say that it matters."""
    local = None if local is None or not local.people else local
    heard = Heard(reports=local, trusted=people)
    if not people or study.estimator == "lm-only":
        return heard
    if local is not None and study.trusted_alone(people, local.people):
        heard, local = replace(heard, alone=True), None
    counted: list[tuple[NoisyCounts, tuple[float, ...]]] = []

    def noisy(places: tuple[float, ...], part: Guarantee | None) -> NoisyCounts:
        found = count(places, study.count_noise(len(places), part))
        counted.append((found, places))
        return found

    shape = fit([reports_seen(local, CELLS)], CELLS) if local is not None and _enough(local) else None
    _count(study, people, noisy, shape if shape is not None and _near(study, shape, people) else None)
    return _with_counts(heard, study.bounds, counted)


def _enough(local: BinnedReports) -> bool:
    """Whether local reports tell where to look: a rank to within 11 % in a tenth of the range."""
    return local.people >= 400 * (local.randomiser.worst_variance + 1)


def _near(study: DistributionStudy, shape: Shape, people: int) -> bool:
    """Whether what local reports say of each quantile is not much coarser than what trusted people would say by
    themselves: counts between places that are far apart tell little of what lies between them."""
    noise = 32 / (study.promised.epsilon * people) ** 2  # of a count with half of epsilon
    errors = ((q, shape.below(shape.quantile(q))[1]) for q in study.at)
    return all(error**2 <= 9 * (q * (1 - q) / people + noise) for q, error in errors)


def _count(study: DistributionStudy, people: int, count: Any, shape: Shape | None) -> None:
    """Count trusted people around what is asked for; where local people do not tell where that is, look first."""
    if shape is not None:
        count(places_around(study, shape, people), None)
        return
    rest, part = split_off(study.promised, 0.5)
    coarse = tuple(i / _PILOT_CELLS for i in range(1, _PILOT_CELLS))
    look = count(coarse, part)
    rough = counts_seen(look, coarse, Shape.known())
    count(places_around(study, fit([rough], CELLS), people, rest), rest)


def noise_in_shares(study: DistributionStudy, people: int, part: Guarantee | None) -> float:
    """The variance of the noise in one count of four, which were made to add up, in shares of people."""
    return study.count_noise(3, part).variance / people**2


def places_around(
    study: DistributionStudy, shape: Shape, people: int, part: Guarantee | None = None
) -> tuple[float, ...]:
    """Around each quantile, at each value that is asked for, and, for the spread, broadly; in rising order.

    However many places there are, a person lies between two of them, so that the noise on each count is the same. What
    is said of a place adds up the noise of the counts before it; what is said of people between two places is a guess.
    There are as many places as make the sum of both smallest: the more, the more people trust.
    """
    asked = (*study.below, *study.above, *study.edges[1:-1])
    found = {(x - study.bounds.lower) / study.bounds.width for x in asked}
    noise = noise_in_shares(study, people, part)
    reach = {
        q: 2 * (shape.below(shape.quantile(q))[1] + math.sqrt(q * (1 - q) / people + noise)) for q in study.at
    }
    widest = max(reach.values(), default=0.0)

    def variance(many: int) -> float:
        return many * len(study.at) / 4 * noise + (2 * widest / (many - 1)) ** 2 / 100

    many = min(_PLACES, key=variance)
    around = np.linspace(-1, 1, many)
    for q in (*study.at, *(_BROAD if study.spread else ())):
        # Around a quantile at whole steps of 2^-20 of the range, which doubles hold exactly.
        away = around * reach[q] if q in reach else np.zeros(1)
        near = (shape.quantile(min(max(q + d, 0.002), 0.998)) for d in away.tolist())
        found |= {math.floor(place * 2**20) / 2**20 for place in near}
    apart = 1 / 2**20
    out: list[float] = []
    for place in sorted(found):
        if apart < place < 1 - apart and (not out or place > out[-1] + apart):
            out.append(place)
    return tuple(out) or (0.5,)
