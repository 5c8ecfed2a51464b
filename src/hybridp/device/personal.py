"""A report with the person's own epsilon: the best randomiser for it, silence at 0."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from hybridp.errors import must
from hybridp.noise import reports
from hybridp.public.bounds import Bounds
from hybridp.public.budgets import PureDP
from hybridp.public.heterogeneous import LOCAL_LEAST, LOCAL_MOST
from hybridp.public.randomisers import Randomiser, best_randomiser
from hybridp.randomness import Randomness

__all__ = ["own_randomiser", "randomise_own"]

Floats = NDArray[np.float64]


def own_randomiser(epsilon: float) -> Randomiser | None:
    """The best randomiser for an epsilon; None below 0.001 (the device says nothing), that of 30 above 30."""
    must(epsilon >= 0, "epsilon", "must be zero or positive", epsilon)
    return None if epsilon < LOCAL_LEAST else best_randomiser(PureDP(min(epsilon, LOCAL_MOST)))


def randomise_own(levels: NDArray[np.int64], epsilons: Floats, bounds: Bounds, *, rng: Randomness) -> Floats:
    """One report a person in the value's unit, each epsilon_i-DP for its person; always the midpoint where silent.

    >>> from hybridp.randomness import seeded
    >>> randomise_own(np.array([7, 7]), np.array([0.0, 0.0]), Bounds(0, 10), rng=seeded(1)).tolist()
    [5.0, 5.0]
    """
    out = np.zeros(len(levels))
    order = np.argsort(epsilons, kind="stable")
    distinct, first = np.unique(epsilons[order], return_index=True)
    for epsilon, who in zip(distinct.tolist(), np.split(order, first[1:]), strict=True):
        randomiser = own_randomiser(epsilon)
        if randomiser is not None:
            out[who] = reports(randomiser, levels[who], rng=rng)
    return bounds.centre + bounds.half * out
