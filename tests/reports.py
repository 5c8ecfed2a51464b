"""Reports of many people on one number, as tests draw them."""

from __future__ import annotations

from collections.abc import Sequence

from hybridp.device.reports import randomise_steps
from hybridp.noise import Randomness
from hybridp.public.messages import OnNumber
from hybridp.public.randomisers import Floats

__all__ = ["randomise_many"]


def randomise_many(values: Sequence[float] | Floats, invite: OnNumber, *, rng: Randomness) -> Floats:
    """One report a person, in the values' own unit."""
    return randomise_steps(invite.encoding.levels(values)[:, None], invite, rng=rng)[:, 0]
