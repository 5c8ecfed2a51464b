"""A person's ticks become one report: yes or no to one option that their device drew, private by itself."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridp.noise import categories, uniform_below
from hybridp.public.shares import TickInvite, TickReports, kept
from hybridp.randomness import Randomness

__all__ = ["report_places", "report_sets", "simulated_ticks"]

Ints = NDArray[np.int64]
_LOT = 1 << 18


def _told(sets: Ints, invite: TickInvite, rng: Randomness) -> Ints:
    """For each set of ticks the place of its report among the invitation's names."""
    option = uniform_below(invite.question.size, len(sets), rng=rng)
    no = 1 - ((kept(sets, invite.question) >> option) & 1)
    return 2 * option + categories(invite.oracle, no, rng=rng)


def report_sets(sets: Ints, invite: TickInvite, *, rng: Randomness) -> list[str]:
    """Reports of many people, each with their own randomness: private as `invite.promise` says."""
    return [invite.names[place] for place in _told(sets, invite, rng).tolist()]


def report_places(sets: Ints, invite: TickInvite, *, rng: Randomness) -> list[int]:
    """The same as places among the invitation's names."""
    return [int(place) for place in _told(sets, invite, rng)]


def simulated_ticks(held: tuple[Ints, Ints], invite: TickInvite, *, rng: Randomness) -> TickReports:
    """For a trial: everybody's reports, added up, where so many people hold each of the sets."""
    counts = np.zeros(len(invite.names), dtype=np.int64)
    everyone = np.repeat(*held)
    for start in range(0, len(everyone), _LOT):
        counts += np.bincount(_told(everyone[start : start + _LOT], invite, rng), minlength=len(counts))
    return TickReports(counts, invite.oracle)
