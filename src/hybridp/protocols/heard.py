"""What people told of a number's distribution so far: public, and enough to publish from and to ask further."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hybridp.blend.distribution import Known, SharesBelow, blended, windows_around
from hybridp.protocols.mean import noise_level
from hybridp.public.bounds import Bounds
from hybridp.public.distribution import BinnedReports, WindowReports
from hybridp.public.shares import NoisyCounts
from hybridp.release.distribution import Counted

__all__ = ["Heard", "with_counts"]


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
        return windows_around(at, blended(self.known(bounds), alone=False).both)

    @property
    def local(self) -> int:
        return (0 if self.reports is None else self.reports.people) + sum(one.people for one in self.answered)


def _below(one: Counted, bounds: Bounds) -> SharesBelow:
    shares = np.array(one.noisy, dtype=np.float64) / one.steps / one.people
    if len(one.values) > 1:
        shares = np.cumsum(shares - (shares.sum() - 1) / len(shares))[:-1]
    places = tuple((value - bounds.lower) / bounds.width for value in one.values)
    return SharesBelow(shares, places, one.people, one.variance)


def with_counts(heard: Heard, bounds: Bounds, counted: list[tuple[NoisyCounts, tuple[float, ...]]]) -> Heard:
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
