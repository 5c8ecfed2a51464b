"""A person's value becomes a report, on that person's machine. Nothing else ever leaves it.

>>> from hybridp.public.budgets import PureDP
>>> from hybridp.public.randomisers import dithered_bit
>>> from hybridp.randomness import secure
>>> invite = Invite(Bounds(0, 200_000), dithered_bit(PureDP(1.0)))
>>> report = randomise(52_000, invite, rng=secure())
>>> abs(report - 100_000) <= 100_000 * invite.randomiser.bound
True
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from hybridp.noise import reports
from hybridp.public.bounds import Bounds
from hybridp.public.messages import Invite
from hybridp.randomness import Randomness

__all__ = ["Bounds", "randomise", "randomise_levels", "randomise_many"]

Floats = NDArray[np.float64]


def randomise(value: float, invite: Invite, *, rng: Randomness) -> float:
    """One report in the value's own unit: private as `invite.promise` says, unbiased for the clipped value."""
    return float(randomise_many([value], invite, rng=rng)[0])


def randomise_many(values: Sequence[float] | Floats, invite: Invite, *, rng: Randomness) -> Floats:
    """The same for a file of many people, each with their own independent randomness."""
    return randomise_levels(invite.bounds.levels(values), invite, rng=rng)


def randomise_levels(levels: NDArray[np.int64], invite: Invite, *, rng: Randomness) -> Floats:
    """Reports for values that are already clipped and on the public lattice."""
    unit = reports(invite.randomiser, levels, rng=rng)
    return invite.bounds.centre + invite.bounds.half * unit
